#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Tries every C++ compiler that is installed: compilers.py [--page PAGE] [compiler ...]. Prints a table.

headers   every public header, all in one unit, with all warnings as errors
example   examples/mlp.cpp, built at -O1 and run: prints what it is to print
gpt       the GPT step of benchmarks/compile_time, only checked
test      tests/tensor/spmd/kinds_parts.cpp, built and run, with what it asserts
mistake   tests/compile_fail/shapes.cpp, whose messages are counted and compared

Nothing is linked with MPI: Debian's Boost.MPI is built with libstdc++, and cannot be mixed with libc++. --page writes the table between the lines
`<!-- compilers -->` and `<!-- end -->` of a document.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
COLUMNS = ["headers", "example", "gpt", "test", "mistake"]


def installed():
    """(name, flags) of every compiler in PATH that has a version in its name, and of those that have libc++ once more."""
    found = []
    for family in ("g++-", "clang++-"):
        names = {f.name for folder in os.environ["PATH"].split(":") if pathlib.Path(folder).is_dir()
                 for f in pathlib.Path(folder).iterdir() if re.fullmatch(re.escape(family) + r"\d+", f.name)}
        for name in sorted(names, key=lambda n: int(n.rsplit("-", 1)[1])):
            found.append((name, []))
            if family == "clang++-" and works(name, ["-stdlib=libc++"]):
                found.append((name, ["-stdlib=libc++"]))
    return found


def works(compiler, flags):
    """Whether a program that includes the standard library compiles and links."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "empty.cpp")
        source.write_text("#include <vector>\n#include <version>\nint main() { return std::vector<int>{}.size(); }\n")
        return run([compiler, "-std=c++20", *flags, source, "-o", f"{folder}/empty"]).returncode == 0


def run(command, **more):
    return subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
                          env={**os.environ, "CCACHE_DISABLE": "1", "OMP_NUM_THREADS": "2"}, **more)


def library_of(compiler, flags):
    text = run([compiler, "-std=c++20", *flags, "-x", "c++", "-E", "-dM", "-include", "version", "/dev/null"]).stdout
    for macro, name in (("_LIBCPP_VERSION", "libc++"), ("_GLIBCXX_RELEASE", "libstdc++")):
        found = re.search(rf"#define {macro} (\d+)", text)
        if found:
            number = int(found[1])
            # 14000 and 160000: two ways to count.
            return f"{name} {number if number < 100 else number // (1000 if number < 100000 else 10000)}"
    return "?"


def mpi_folders():
    """Where Open MPI's headers are, and OpenBLAS's."""
    shown = run(["mpicxx", "--showme:incdirs"]).stdout.split() if shutil.which("mpicxx") else []
    return [f"-isystem{folder}" for folder in [*shown, "/usr/include/x86_64-linux-gnu/openblas-openmp"] if os.path.isdir(folder)]


class Trial:
    def __init__(self, compiler, flags, folder):
        self.compiler, self.flags, self.folder = compiler, flags, pathlib.Path(folder)
        self.common = ["-std=c++20", *flags, "-Iinclude", "-Itests", "-Iexamples"]
        self.failed = ""

    def call(self, command):
        result = run(command, timeout=900)
        if result.returncode:
            first = next((line for line in result.stdout.splitlines() if re.search("error|warning", line)), result.stdout[:300])
            self.failed = first.strip()[:300]
        return result

    def headers(self):
        return self.call([sys.executable, "tests/support/compile_check.py", "--compiler", self.compiler, "--cache",
                          self.folder / "cache", "--together", "--headers", "include", "--", *self.common, *mpi_folders(),
                          *WARNINGS]).returncode == 0

    def example(self):
        program = self.folder / "mlp"
        if self.call([self.compiler, *self.common, "-O1", "examples/mlp.cpp", "-o", program, "-pthread"]).returncode:
            return False
        made = self.call([program])
        return made.returncode == 0 and made.stdout == (ROOT / "examples/mlp.expected").read_text()

    def gpt(self):
        return self.call([self.compiler, *self.common, "-fsyntax-only", "benchmarks/compile_time/gpt_step.cpp"]).returncode == 0

    def test(self):
        program = self.folder / "test"
        built = self.call([self.compiler, *self.common, "-O0", "tests/tensor/spmd/kinds_parts.cpp", "tests/support/main.cpp", "-o", program,
                           "-pthread"])
        return built.returncode == 0 and self.call([program]).returncode == 0

    def mistake(self):
        return self.call([sys.executable, "tests/compile_fail/run_case.py", "--compiler", self.compiler, "--results",
                          self.folder / "results", "--name", "shapes", "tests/compile_fail/shapes.cpp", "--",
                          *self.common]).returncode == 0


def try_out(compiler, flags):
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(compiler, flags, folder)
        row = [f"`{compiler}`", library_of(compiler, flags)]
        failures = []
        for column in COLUMNS:
            trial.failed = ""
            begin = time.perf_counter()
            good = getattr(trial, column)()
            row.append(f"{time.perf_counter() - begin:.1f} s" if good else "**no**")
            if not good:
                failures.append(f"{compiler} {' '.join(flags)}: {column}: {trial.failed}")
        return row, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("compilers", nargs="*", help="names; all by default")
    parser.add_argument("--page", help="document that the table is written into")
    args = parser.parse_args()
    trials = [one for one in installed() if not args.compilers or one[0] in args.compilers]
    if not trials:
        sys.exit("no compiler with a version in its name is in PATH")
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        outcomes = list(pool.map(lambda one: try_out(*one), trials))
    lines = ["| compiler | library | " + " | ".join(COLUMNS) + " |", "|---" * (2 + len(COLUMNS)) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row, _ in outcomes]
    print("\n".join(lines))
    failures = [text for _, texts in outcomes for text in texts]
    print("\n".join(failures))
    if args.page:
        page = ROOT / args.page
        text = page.read_text()
        made = re.sub(r"(<!-- compilers -->\n).*?(<!-- end -->)", lambda m: m[1] + "\n".join(lines) + "\n" + m[2], text, flags=re.S)
        page.write_text(made)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
