#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Seconds that compiling takes: compile_time.py ROW [FILE...], on each compiler that is installed.

A header is timed with -fsyntax-only, less an empty file; a source with -O2 -c and the OpenMP, MPI and BLAS include paths.
Without files: every benchmarks/compile_time/*.cpp and examples/*.cpp. Rows are ROW/compiler and ROW/name/compiler.
"""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COMPILERS = ["g++-12", "clang++-14", "clang++-19"]
REPEATS = 5


def seconds(command):
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env={**os.environ, "CCACHE_DISABLE": "1"})
    if done.returncode:
        sys.exit(f"does not compile: {' '.join(map(str, command))}\n{done.stderr[:2000]}")
    return time.perf_counter() - begin


def report(row, value):
    print(json.dumps({"row": row, "what": "ours", "value": round(value, 3), "unit": "s"}), flush=True)


def main():
    row, files = sys.argv[1], [pathlib.Path(f) for f in sys.argv[2:]]
    files = files or sorted([*ROOT.glob("benchmarks/compile_time/*.cpp"), *ROOT.glob("examples/*.cpp")])
    mpi = subprocess.run(["mpicxx", "--showme:compile"], capture_output=True, text=True).stdout.split() if shutil.which("mpicxx") else []
    with tempfile.TemporaryDirectory() as folder:
        empty = pathlib.Path(folder, "empty.cpp")
        empty.write_text("")
        for compiler in filter(shutil.which, COMPILERS):
            base = [compiler, "-std=c++20", "-Iinclude"]
            for file in files:
                if file.suffix == ".hpp":
                    source = pathlib.Path(folder, "one.cpp")
                    source.write_text(f'#include "{ROOT / file}"\n')
                    pairs = [(seconds([*base, "-fsyntax-only", source]), seconds([*base, "-fsyntax-only", empty])) for _ in range(REPEATS)]
                    report(f"{row}/{compiler}", statistics.median(a for a, _ in pairs) - statistics.median(b for _, b in pairs))
                else:
                    command = [*base, *mpi, "-fopenmp", "-O2", "-c", file, "-o", pathlib.Path(folder, "one.o")]
                    report(f"{row}/{file.stem}/{compiler}", statistics.median(seconds(command) for _ in range(3)))


if __name__ == "__main__":
    main()
