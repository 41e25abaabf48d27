#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Runs clang-tidy over all headers, as two translation units: one of what needs only the standard library and Hana,
one of the rest. Tests and examples are not read: clang-tidy takes a minute on what Catch2's macros expand to.

Exit code: 0 nothing found, 1 findings, 77 there is no clang-tidy.
"""
import argparse
import concurrent.futures
import os
import shutil
import subprocess
import sys

HEAVY_FOLDERS = ("comm", "pipeline", "testing", "tensor/core/nn", "tensor/run/kernels", "tensor/run/io",
                 "tensor/run/report")


def run_tidy(tool, unit, root, flags):
    # The path comes first and is absolute: found through a relative one, no header would match the filter.
    command = [tool, "--quiet", f"--config-file={root}/.clang-tidy", f"--header-filter={root}/include/.*",
               "--warnings-as-errors=*", unit, "--", f"-I{root}/include", *flags]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})


def main():
    arguments = sys.argv[1:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source-dir", required=True)
    parser.add_argument("--work-dir", required=True)
    parser.add_argument("--tool", default="clang-tidy-14")
    options = parser.parse_args(arguments[:split])
    options.source_dir = os.path.abspath(options.source_dir)
    if shutil.which(options.tool) is None:
        print(f"SKIPPED: {options.tool} is not installed")
        return 77

    units = {"light": [], "heavy": []}
    base = os.path.join(options.source_dir, "include")
    for folder, _, names in os.walk(os.path.join(base, "espalier")):
        for name in names:
            header = os.path.relpath(os.path.join(folder, name), base)
            below = os.path.relpath(folder, os.path.join(base, "espalier"))
            heavy = below.startswith(HEAVY_FOLDERS) or header == os.path.join("espalier", "espalier.hpp")
            if name.endswith((".hpp", ".ipp")):
                units["heavy" if heavy else "light"].append(header)
    os.makedirs(options.work_dir, exist_ok=True)
    paths = []
    for unit, headers in units.items():
        if headers:
            paths.append(os.path.join(options.work_dir, f"{unit}.cpp"))
            with open(paths[-1], "w") as file:
                file.writelines(f"#include <{header}>\n" for header in sorted(headers))

    failed = False
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        runs = pool.map(lambda path: run_tidy(options.tool, path, options.source_dir, arguments[split + 1:]), paths)
        for run in runs:
            if run.returncode != 0:
                failed = True
                print(run.stdout)
                print(run.stderr)
    print(f"{sum(map(len, units.values()))} headers read, {'findings above' if failed else 'nothing found'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
