#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Shows that run_case.py accepts good.cpp and detects each fault the other files here have, with every compiler given."""
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
RUN_CASE = os.path.join(HERE, "..", "run_case.py")
FILES = {
    "good": (0, "ok     CASE_sizes"),
    "control_fails": (1, "control: must compile, and does not"),
    "case_compiles": (1, "must not compile, and does"),
    "wrong_words": (1, "nothing matches expect: the outer sizes differ"),
    "wrong_first": (1, "the first message does not match"),
    "wrong_line": (1, "is not in the first three messages"),
    "too_many_messages": (1, "messages, at most 7 allowed"),
    "kind_with_a_budget": (1, "messages, at most 7 allowed"),
    "kind_without_line": (1, "CASE_sizes is a kind of mistake and has no user_line"),
    "no_expectation": (1, "CASE_sizes has no expect line"),
    "misspelled_case": (1, "CASE_size, which no #if names"),
}


def main():
    compilers = [compiler for compiler in sys.argv[1:] if shutil.which(compiler)]
    if not compilers:
        print("SKIPPED: none of these compilers is installed:", *sys.argv[1:])
        return 77
    failed = 0
    for compiler in compilers:
        for name, (code, words) in FILES.items():
            run = subprocess.run([sys.executable, RUN_CASE, "--compiler", compiler, os.path.join(HERE, name + ".cpp"),
                                  "--", "-std=c++20"], capture_output=True, text=True)
            if run.returncode != code or words not in run.stdout:
                failed += 1
                print(f"{compiler} {name}: exit code {run.returncode}, not {code}, or without the words `{words}`:\n"
                      f"{run.stdout}{run.stderr}")
    absent = subprocess.run([sys.executable, RUN_CASE, "--compiler", "no-such-compiler",
                             os.path.join(HERE, "good.cpp")], capture_output=True, text=True)
    if absent.returncode != 77:
        failed += 1
        print(f"an absent compiler gives exit code {absent.returncode}, not 77")
    checks = len(compilers) * len(FILES) + 1
    print(f"{checks - failed} of {checks} as expected, with {', '.join(compilers)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
