#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Makes the single header and compiles a program with it, and nothing else of the library: single_header.py COMPILER SCRATCH"""
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
with open(scratch / "espalier_core.hpp", "w", encoding="utf-8") as header:
    subprocess.run([sys.executable, ROOT / "cmake" / "amalgamate.py"], stdout=header, check=True)
if "#include <espalier/" in (scratch / "espalier_core.hpp").read_text(encoding="utf-8"):
    sys.exit("the single header still includes others of the library")
sys.exit(subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion",
                         "-Wshadow", "-Werror", "-I", scratch, ROOT / "tests" / "install" / "single_header.cpp"],
                        check=False).returncode)
