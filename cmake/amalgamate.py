#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Writes one header with everything that a header of the library includes, for places that take one file:

    cmake/amalgamate.py [HEADER] >espalier_core.hpp        HEADER: espalier/core.hpp, the compile-time half

The result needs C++20 and what the library itself needs (Boost.Hana).
"""
import pathlib
import re
import sys

INCLUDE = pathlib.Path(__file__).resolve().parent.parent / "include"
OWN = re.compile(r"^#include <(espalier/[^>]+)>")
OTHER = re.compile(r"^#include <[^>]+>")
CONDITION = re.compile(r"^#\s*(if|ifdef|ifndef|endif)\b")
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
        nesting = 0  # of conditions: what is included inside one must stay there, and may come again elsewhere
        for line in body:
            if condition := CONDITION.match(line):
                nesting += -1 if condition[1] == "endif" else 1
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
