#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Makes the single headers, compiles a program with each and nothing else of the library, and runs the one that can run:
single_header.py COMPILER SCRATCH. Without C++20 both say so in one line, and stop."""
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
compiler, scratch = sys.argv[1], pathlib.Path(sys.argv[2])
if not shutil.which(compiler):
    print(f"{compiler} is not installed")
    sys.exit(77)
scratch.mkdir(parents=True, exist_ok=True)
PROGRAMS = ROOT / "tests" / "install"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]


def amalgamate(name, *arguments):
    with open(scratch / name, "w", encoding="utf-8") as header:
        subprocess.run([sys.executable, ROOT / "cmake" / "amalgamate.py", *arguments], stdout=header, check=True)
    if "\n#include <espalier/" in (scratch / name).read_text(encoding="utf-8"):
        sys.exit(f"{name} still includes other headers of the library")


def compiled(*arguments):
    return subprocess.run([compiler, "-I", scratch, *arguments], check=False).returncode == 0


amalgamate("espalier_core.hpp")
amalgamate("espalier.hpp", "espalier/espalier.hpp")
if not compiled("-std=c++20", "-fsyntax-only", *WARNINGS, PROGRAMS / "single_header.cpp"):
    sys.exit("the compile-time half does not compile")
program = scratch / "single_header_run"
if not compiled("-std=c++20", *WARNINGS, PROGRAMS / "single_header_run.cpp", "-pthread", "-o", program):
    sys.exit("the header that runs does not compile")
said = subprocess.run([program], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
if said != "30 on 4 devices, which send 12 B each\n":
    sys.exit(f"single_header_run printed {said}")

# An older standard: one error, and the end; also of the headers as they are.
for folder, source in ((scratch, "single_header.cpp"), (ROOT / "include", "consumer/openmp.cpp")):
    old = subprocess.run([compiler, "-std=c++17", "-fsyntax-only", "-I", folder, PROGRAMS / source], check=False,
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, universal_newlines=True)
    lines = old.stderr.splitlines()
    if old.returncode == 0 or "Espalier needs C++20: compile with -std=c++20" not in old.stderr or len(lines) > 12:
        sys.exit(f"{source} without C++20 gives {len(lines)} lines:\n" + "\n".join(lines[:20]))
