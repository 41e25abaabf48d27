#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""The parts of the library, and what each may see.

    parts.py             every include line leads to what its part may see
    parts.py --self-test COMPILER FLAGS...   wrong includes, made on purpose, are noticed: by their text and by a compiler

compile_check.py compiles each header against a tree of links that holds only what its part may see. This script reads
the include lines as well: a compiler passes over those inside conditions, and cannot tell the headers that comm offers
from those inside it.
"""
import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import tempfile

INCLUDE = pathlib.Path(__file__).resolve().parent.parent.parent / "include"
OWN = re.compile(r'^\s*#\s*include\s*[<"](espalier/[^>"]+)[>"]')
OTHER = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')

# Other libraries, by the names of their headers.
LIBRARIES = {
    "MPI": r"(^|/)mpi[.]h$|(^|/)boost/(mpi|serialization)/",
    "Hana": r"(^|/)boost/hana(/|[.])",
    "OpenMP": r"(^|/)omp[.]h$",
    "CBLAS": r"(^|/)cblas[.]h$",
    "xtensor": r"(^|/)(xtensor|xtl|xsimd)/",
}


class Part:
    """Headers (patterns below espalier/, the first part that matches has a header), the parts they see, and the
    libraries they use. `offers`: the headers that other parts may name in an include line; all of them if empty."""

    def __init__(self, name, headers, sees, libraries, offers=()):
        self.name, self.headers, self.sees, self.libraries, self.offers = name, headers, sees, libraries, offers


EVERYTHING = ["base", "comm", "tensor core", "tensor run", "tensor io", "pipeline plans", "pipeline stages"]
PARTS = [
    Part("base", ["config.hpp", "version.hpp", "base/*"], sees=[], libraries=[]),
    Part("comm", ["comm/*"], ["base"], ["MPI"], offers=["comm/[!/]*.hpp"]),
    Part("tensor core", ["tensor/core/*"], ["base"], ["Hana"]),
    Part("tensor io", ["tensor/run/io/*"], ["base", "comm", "tensor core", "tensor run"], ["Hana", "xtensor"]),
    Part("tensor run", ["tensor/run/*"], ["base", "comm", "tensor core"], ["OpenMP", "CBLAS"]),
    Part("pipeline stages", ["pipeline/stages/*"], EVERYTHING, LIBRARIES),
    # Paths before 0.2 inside the folders of parts.
    Part("earlier paths", ["pipeline/runtime/*"], EVERYTHING, LIBRARIES),
    Part("pipeline plans", ["pipeline/*"], ["base"], []),
    # No other part sees it.
    Part("testing", ["testing/*"], EVERYTHING, LIBRARIES),
    # Lists of includes for users, and most of the paths that headers had before 0.2: no part includes them.
    Part("public", ["*"], [*EVERYTHING, "testing"], LIBRARIES),
]
# Those that see a part from inside it, whatever it offers to others.
INSIDERS = {"comm": ["pipeline stages", "testing", "public"]}


def matches(name, patterns):
    """Whether `espalier/...` fits one of the patterns; [!/]* is a name in the folder itself."""
    below = name[len("espalier/"):]
    for pattern in patterns:
        if "[!/]*" in pattern:
            if re.fullmatch(re.escape(pattern).replace(re.escape("[!/]*"), "[^/]*"), below):
                return True
        elif fnmatch.fnmatchcase(below, pattern):
            return True
    return False


def only_includes(path):
    """Whether a header is a list of other headers of the library: then those are all there is to compile."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("//")]
    return len(lines) >= 2 and lines[0] == "#pragma once" and all(map(OWN.match, lines[1:]))


def part_of(name):
    return next(part for part in PARTS if matches(name, part.headers))


def forbidden_libraries(part, closure=False):
    """{library: pattern} of those it does not name itself or, for the closure, get from any part that it sees."""
    allowed = {*part.libraries}
    if closure:
        allowed.update(library for seen in PARTS if seen.name in part.sees for library in seen.libraries)
    return {library: pattern for library, pattern in LIBRARIES.items() if library not in allowed}


def headers_below(include):
    return sorted(str(path.relative_to(include)) for path in (include / "espalier").rglob("*.[hi]pp"))


def make_trees(include, where):
    """A tree of links for each part, with what it may see: {header: folder to include from}"""
    seen_from = {}
    trees = {part.name: pathlib.Path(where) / part.name.replace(" ", "_") for part in PARTS}
    kept = set()
    for header in headers_below(include):
        owner = part_of(header)
        seen_from[header] = str(trees[owner.name])
        for part in PARTS:
            if owner is not part and owner.name not in part.sees:
                continue
            link = trees[part.name] / header
            kept.add(link)
            target = include / header
            if link.is_symlink():
                if os.readlink(link) == str(target):
                    continue
                link.unlink()
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
    for tree in trees.values():
        for link in tree.rglob("*.[hi]pp"):
            if link not in kept:
                link.unlink()
    return seen_from


def wrong_includes(include):
    """A sentence for each include line that leads to what its part must not see."""
    wrong = []
    names = set(headers_below(include))
    for header in sorted(names):
        part = part_of(header)
        for number, line in enumerate((include / header).read_text(encoding="utf-8").splitlines(), 1):
            where = f"include/{header}:{number}: {part.name}"
            if own := OWN.match(line):
                if own[1] not in names:
                    wrong.append(f"{where} includes {own[1]}, which is not there")
                    continue
                other = part_of(own[1])
                if other is part:
                    continue
                if other.name not in part.sees:
                    wrong.append(f"{where} must not include {own[1]}, which is {other.name}'s: it sees "
                                 f"{', '.join(part.sees) or 'nothing else'}")
                elif other.offers and part.name not in INSIDERS[other.name] and not matches(own[1], other.offers):
                    wrong.append(f"{where} must not include {own[1]}: {other.name} offers {', '.join(other.offers)}")
            elif others := OTHER.match(line):
                for library, pattern in forbidden_libraries(part).items():
                    if re.search(pattern, others[1]):
                        wrong.append(f"{where} must not include {others[1]}: it does without {library}")
    return wrong


def self_test(compiler, flags):
    """Wrong include lines are noticed, in a library of a few headers; returns what was not."""
    def first(name, but=""):
        return next(header for header in headers_below(INCLUDE) if part_of(header).name == name and header != but)

    base, comm, core, plans = first("base"), first("comm"), first("tensor core"), first("pipeline plans")
    run = first("tensor run")
    inner = next(header for header in headers_below(INCLUDE)
                 if part_of(header).name == "comm" and not matches(header, part_of(header).offers))
    cases = [  # (a header, what it includes, whether that is right, whether a compiler sees it)
        (base, comm, False, True), (base, core, False, True), (comm, base, True, True), (comm, core, False, True),
        (core, comm, False, True), (core, run, False, True), (plans, base, True, True), (plans, core, False, True),
        (run, inner, False, False), (core, "mpi.h", False, False), (base, "boost/hana.hpp", False, False)]
    missed = []
    for header, included, right, for_compiler in cases:
        with tempfile.TemporaryDirectory() as scratch:
            include = pathlib.Path(scratch) / "include"
            for name in {header, included} - {"mpi.h", "boost/hana.hpp"}:
                (include / name).parent.mkdir(parents=True, exist_ok=True)
                (include / name).write_text("#pragma once\n")
            (include / header).write_text(f"#pragma once\n#include <{included}>\n")
            if (not wrong_includes(include)) != right:
                missed.append(f"the text: {header} includes {included}")
            if for_compiler:
                tree = make_trees(include, pathlib.Path(scratch) / "trees")[header]
                run_of = subprocess.run([compiler, *flags, f"-I{tree}", "-fsyntax-only", "-x", "c++", "-"],
                                        input=f"#include <{header}>\n", capture_output=True, text=True)
                if (run_of.returncode == 0) != right:
                    missed.append(f"{compiler}: {header} includes {included}\n{run_of.stderr}")
    return missed


def main():
    if sys.argv[1:2] == ["--self-test"]:
        wrong = [f"not noticed by {case}" for case in self_test(sys.argv[2], sys.argv[3:])]
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        wrong = wrong_includes(INCLUDE)
    print("\n".join(wrong) if wrong else "no part sees what it must not")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
