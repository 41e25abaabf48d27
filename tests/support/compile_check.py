#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Lets one compiler read sources or headers with -fsyntax-only, several at a time, and fails on any error or warning.

A file that passed is not read again until the command, the compiler or anything it includes has changed.
Exit code: 0 all pass, 1 some do not, 77 there is nothing to check (no such compiler, no such file).
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

import parts

SKIPPED = 77
ENVIRONMENT = {**os.environ, "LC_ALL": "C"}


def digest_of(path, known):
    """Contents for what may be edited, size and time for what a package manager installs."""
    if path not in known:
        if path.startswith("/usr/"):
            status = os.stat(path)
            known[path] = f"{status.st_size} {status.st_mtime_ns}"
        else:
            with open(path, "rb") as file:
                known[path] = hashlib.sha256(file.read()).hexdigest()
    return known[path]


def dependencies_of(rule):
    """The prerequisites in a make rule as written by -M."""
    words = rule.replace("\\\n", " ").split(":", 1)[1]
    paths = [word.replace("\\ ", " ") for word in re.split(r"(?<!\\)\s+", words.strip())]
    return [os.path.realpath(path) for path in paths if path and path != "-"]


class Checker:
    def __init__(self, options):
        self.options = options
        version = subprocess.run([options.compiler, "--version"], capture_output=True, text=True, check=True).stdout
        self.command = [options.compiler, *options.flags, "-Werror", "-fsyntax-only"]
        self.identity = json.dumps([version, self.command, options.precompile])
        self.known = {}
        self.lock = threading.Lock()
        self.precompiled = None
        self.seen_from = {}

    def see_parts(self):
        """From here on each header sees what its part may see, instead of the folder of all headers."""
        root = pathlib.Path(os.path.abspath(self.options.headers))
        own = f"-I{root}"
        if own not in self.command:
            sys.exit(f"--parts replaces {own}, which is not among the flags")
        self.command.remove(own)
        self.identity += pathlib.Path(parts.__file__).read_text(encoding="utf-8")
        trees = parts.make_trees(root, os.path.join(os.path.abspath(self.options.cache), "parts"))
        self.seen_from = {str(root / header): (parts.part_of(header), tree) for header, tree in trees.items()}

    def cached(self, path):
        """A file that exists exactly when `path` passed, listing what that rests on."""
        key = hashlib.sha256(f"{self.identity}{path}".encode()).hexdigest()
        return os.path.join(self.options.cache, key + ".json")

    def is_unchanged(self, path):
        try:
            with open(self.cached(path)) as file:
                return all(digest_of(name, self.known) == digest for name, digest in json.load(file).items())
        except (OSError, ValueError):
            return False

    def read_in_advance(self):
        """What `--precompile` names, read once for all units: (flags that use it, what it rests on)"""
        header = self.options.precompile
        if header is None:
            return [], []
        with self.lock:
            if self.precompiled is None:
                self.scratch = tempfile.TemporaryDirectory()
                out = os.path.join(self.scratch.name, "precompiled.pch")
                rule = os.path.join(self.scratch.name, "rule.d")
                command = [argument for argument in self.command if argument != "-fsyntax-only"]
                subprocess.run([*command, "-x", "c++-header", header, "-o", out, "-MD", "-MF", rule, "-MT", "x"],
                               env=ENVIRONMENT, check=True)
                with open(rule) as file:
                    self.precompiled = ["-include-pch", out], dependencies_of(file.read())
        return self.precompiled

    def check(self, path):
        """(path, diagnostics or "", whether the compiler was asked); a path may be several headers, one a line"""
        if self.is_unchanged(path):
            return path, "", False
        with tempfile.TemporaryDirectory() as scratch:
            rule = os.path.join(scratch, "rule.d")
            ready, below = self.read_in_advance()
            command = [*self.command, *ready, "-MD", "-MF", rule, "-MT", "x"]
            part, tree = self.seen_from.get(path.splitlines()[-1], (None, None))
            if part is not None:
                command.append(f"-I{tree}")
            if path.endswith(".cpp"):
                run = subprocess.run([*command, path], capture_output=True, text=True, env=ENVIRONMENT)
            else:
                # Twice: the second time it must be guarded.
                text = "".join(f'#include "{header}"\n' for header in 2 * path.splitlines())
                run = subprocess.run([*command, "-x", "c++", "-"], input=text, capture_output=True, text=True,
                                     env=ENVIRONMENT)
            if run.returncode != 0:
                return path, run.stderr, True
            with open(rule) as file:
                names = {*path.splitlines(), *dependencies_of(file.read()), *below}
            if part is not None:
                for library, pattern in parts.forbidden_libraries(part, closure=True).items():
                    if taken := next((name for name in sorted(names) if re.search(pattern, name)), None):
                        return path, f"{part.name} does without {library}, but this includes {taken}", True
            names -= set(ready)  # is gone with this run
            try:
                rests_on = {name: digest_of(name, self.known) for name in names if os.path.isfile(name)}
                os.makedirs(self.options.cache, exist_ok=True)
                with tempfile.NamedTemporaryFile("w", dir=self.options.cache, delete=False) as file:
                    json.dump(rests_on, file)
                os.replace(file.name, self.cached(path))
            except OSError as problem:
                print(f"(not remembered: {problem})")
        return path, "", True


def check_closure(options):
    """Fails when `--closure HEADER` includes, however far away, a file that matches `--forbid`."""
    header = options.closure
    if not os.path.isfile(header):
        print(f"SKIPPED: there is no {header} yet")
        return SKIPPED
    run = subprocess.run([options.compiler, *options.flags, "-M", "-MT", "x", "-x", "c++", "-"],
                         input=f'#include "{header}"\n', capture_output=True, text=True, env=ENVIRONMENT)
    if run.returncode != 0:
        print(run.stderr)
        return 1
    names = dependencies_of(run.stdout)
    found = [name for name in names for pattern in options.forbid if re.search(pattern, name)]
    for name in found:
        print(f"{header} must not include {name}")
    if found:
        trace = subprocess.run([options.compiler, *options.flags, "-H", "-fsyntax-only", "-x", "c++", "-"],
                               input=f'#include "{header}"\n', capture_output=True, text=True, env=ENVIRONMENT)
        stack = []
        for line in trace.stderr.splitlines():
            match = re.match(r"(\.+) (.*)", line)
            if match:
                stack[len(match[1]) - 1:] = [match[2]]
                if os.path.realpath(match[2]) == found[0]:
                    print("  by way of\n    " + "\n    ".join(stack))
                    break
        return 1
    print(f"{os.path.basename(header)} includes {len(names)} files, none of them forbidden")
    return 0


def direct_includes(header, root):
    """Headers below root that this one includes on every path through it."""
    found = []
    depth = 0
    with open(header) as file:
        for line in file:
            if re.match(r"\s*#\s*if", line):
                depth += 1
            elif re.match(r"\s*#\s*endif", line):
                depth -= 1
            elif depth == 0 and (match := re.match(r"#include <(.*)>", line)):
                found.append(os.path.join(root, match.group(1)))
    return found


def chains(headers, root, in_parts):
    """The headers in few lists, in each of which every header includes, however far away, the one before it (`in_parts`:
    and is of the same part of the library).

    Read in such an order each sees what it sees alone: what was read before it is what it includes itself. And a list
    costs no more than its last header.
    """
    direct = {header: [name for name in direct_includes(header, root) if os.path.isfile(name)] for header in headers}
    closures = {}

    def closure(header):
        if header not in closures:
            closures[header] = set()  # so that a circle ends
            closures[header] = {far for near in direct.get(header, []) for far in ({near} | closure(near))}
        return closures[header]

    def part(header):
        return parts.part_of(os.path.relpath(header, root)) if in_parts else None

    before = {}  # of a header the one before it in its list, and the other way round: a matching as large as can be
    after = {}

    def find_place(header, tried):
        """Puts some header before this one, moving others if need be."""
        for candidate in sorted(closure(header), key=lambda name: -len(closure(name))):
            if candidate in direct and candidate not in tried and part(candidate) is part(header):
                tried.add(candidate)
                if candidate not in after or find_place(after[candidate], tried):
                    before[header], after[candidate] = candidate, header
                    return True
        return False

    for header in sorted(headers, key=lambda name: len(closure(name))):
        find_place(header, set())
    lists = []
    for header in sorted(headers):
        if header not in after:  # the last of its list
            one = [header]
            while one[0] in before:
                one.insert(0, before[one[0]])
            lists.append(one)
    return lists


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--cache", required=True, help="folder that remembers what passed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--headers", help="check every header (.hpp, .ipp) below this folder")
    parser.add_argument("--together", action="store_true", help="the headers in one unit, instead of each alone")
    parser.add_argument("--precompile", help="clang reads this header once, and every unit begins with it")
    parser.add_argument("--parts", action="store_true", help="each header sees what its part of the library may see")
    parser.add_argument("--closure", help="check what this header includes")
    parser.add_argument("--forbid", action="append", default=[])
    parser.add_argument("files", nargs="*")
    arguments = sys.argv[1:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:split])
    options.flags = arguments[split + 1:]

    if shutil.which(options.compiler) is None:
        print(f"SKIPPED: {options.compiler} is not installed")
        return SKIPPED
    if options.closure:
        return check_closure(options)

    files = [os.path.abspath(file) for file in options.files]
    if options.headers:
        for folder, _, names in os.walk(options.headers):
            files += [os.path.join(os.path.abspath(folder), name) for name in names if name.endswith((".hpp", ".ipp"))]
    units = ["\n".join(sorted(files))] if options.together else sorted(files)
    if options.parts:
        units = [header for header in units if not parts.only_includes(pathlib.Path(header))]
    if options.headers and not options.together:
        units = ["\n".join(one) for one in chains(units, os.path.abspath(options.headers), options.parts)]
    if not files:
        print("SKIPPED: no files to check")
        return SKIPPED
    checker = Checker(options)
    if options.parts:
        checker.see_parts()
    failed = 0
    asked = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, options.jobs)) as pool:
        for path, diagnostics, was_asked in pool.map(checker.check, units):
            asked += was_asked
            if diagnostics:
                failed += 1
                shown = ", ".join(os.path.relpath(one) for one in path.splitlines())
                print(f"=== {'all headers' if options.together else shown} ===\n{diagnostics}", flush=True)
    print(f"{options.compiler}: {len(units) - failed} of {len(units)} units ({len(files)} files) compile without a warning "
          f"({asked} read now, {len(units) - asked} unchanged)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
