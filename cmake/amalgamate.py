#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Writes one header with everything that a header of the library includes, for places that take one file:

    cmake/amalgamate.py >espalier_core.hpp                     espalier/core.hpp, the compile-time half
    cmake/amalgamate.py espalier/espalier.hpp >espalier.hpp    what runs, too: every device a thread of one process

The result needs C++20 and what the library itself needs (Boost.Hana); it has all in headers, and no MPI.
"""
import pathlib
import re
import sys

INCLUDE = pathlib.Path(__file__).resolve().parent.parent / "include"
OWN = re.compile(r"^#include <(espalier/[^>]+)>")
OTHER = re.compile(r"^#include <[^>]+>")
CONDITION = re.compile(r"^#\s*(if|ifdef|ifndef|else|elif|endif)\b")
# What is not defined where one header is all there is.
ABSENT = re.compile(r"^#if (!?)defined\(ESPALIER_(?:USE_MPI|COMPILED|CHECK_PASSES)\)$")
LICENCE = ["// SPDX-FileCopyrightText: 2026 The Espalier authors", "// SPDX-License-Identifier: BSL-1.0"]


class Amalgamation:
    def __init__(self):
        self.seen = set()
        self.outside = set()
        self.lines = []

    def add(self, name, depth=0):
        if name in self.seen:
            return
        self.seen.add(name)
        text = (INCLUDE / name).read_text(encoding="utf-8").splitlines()
        body = [line for line in text if line not in LICENCE and line != "#pragma once"]
        self.lines.append(f"\n// --- {name}")
        # Of conditions: what is included inside one must stay there, and may come again elsewhere. Those on what is
        # absent are decided here: None for another condition, else whether the lines that follow are kept.
        open_conditions = []
        for line in body:
            if condition := CONDITION.match(line):
                word = condition[1]
                if word in ("if", "ifdef", "ifndef"):
                    decided = ABSENT.match(line)
                    open_conditions.append(bool(decided[1]) if decided else None)
                    if decided:
                        continue
                elif open_conditions[-1] is not None:
                    if word == "elif":
                        sys.exit(f"{name}: {line} belongs to a condition that this script decides; it knows no elif")
                    if word == "else":
                        open_conditions[-1] = not open_conditions[-1]
                    else:
                        open_conditions.pop()
                    continue
                elif word == "endif":
                    if False not in open_conditions:
                        self.lines.append(line)
                    open_conditions.pop()
                    continue
            if False in open_conditions:
                continue
            nesting = open_conditions.count(None)
            if own := OWN.match(line):
                if nesting and own[1] not in self.seen:
                    sys.exit(f"{name}: {line} stands inside a condition; this script cannot keep it there")
                self.add(own[1])
            elif OTHER.match(line) and not nesting:
                if line not in self.outside:
                    self.outside.add(line)
                    self.lines.append(line)
            else:
                self.lines.append(line)


def version():
    text = (INCLUDE / "espalier/version.hpp").read_text(encoding="utf-8")
    return ".".join(re.search(rf"VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def main(header):
    whole = Amalgamation()
    whole.add("espalier/version.hpp")
    whole.add(header)
    print("\n".join(LICENCE))
    print(f"//\n// Espalier {version()}: {header} and all that it includes, made by cmake/amalgamate.py.\n#pragma once")
    print("\n".join(whole.lines))


if __name__ == "__main__":
    if len(sys.argv) > 2 or (len(sys.argv) == 2 and sys.argv[1].startswith("-")):
        sys.exit(__doc__)
    main(sys.argv[1] if len(sys.argv) == 2 else "espalier/core.hpp")
