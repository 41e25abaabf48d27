#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Checks that programs do not compile, and that the compiler says why in few words.

A case file holds sections `#if defined(CASE_name)` ... and these comment lines, for each case:

    // expect(CASE_name): regex        each must match somewhere in the diagnostics; at least one for every case
    // first(CASE_name): regex         must match the first message
    // user_line(CASE_name): 42        this line of the file (or a line that matches this regex) must be named within
                                       the first three messages
    // budget(CASE_name): 7 30         most messages and lines, if not these
    // kind(CASE_name): words          the case stands for this kind of mistake in docs/mistakes.md: it needs a user_line,
                                       and no budget allows it more messages

`expect(CASE_name, clang++-14)` holds for compilers whose name starts so (`clang`, `g++`). Without any CASE_ defined
the file must compile (the control); with one it must not.

A message is an error, a warning or a note. g++ also prints `In instantiation of ...` and `required from ...` lines:
each of those counts as a message too, and all that stand before an error belong to that error when the first
messages are searched.

Exit code: 0 all as expected, 1 not, 77 there is no such compiler.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True  # no folder of compiled scripts among the sources
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from precompiled import flags_with_first_include, keep_diagnostics, place_of_diagnostics  # noqa: E402

INCLUDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "include")
SKIPPED = 77
MAX_MESSAGES = 7
MAX_LINES = 30
FIRST_MESSAGES = 3

MESSAGE = re.compile(r"^(?:.*?:\d+(?::\d+)?: |\S+: )?(?:fatal )?(?:error|warning|note): ")
CONTEXT = re.compile(r"(?:: In |: in |:   (?:recursively )?required |\s+in 'constexpr' expansion of |: At global scope)")
INCLUDED = re.compile(r"^(?:In file included from |\s+from )")
DIRECTIVE = re.compile(r"^\s*// (expect|first|user_line|budget|kind)\((CASE_\w+)(?:,\s*([^)\s]+))?\):\s*(.*?)\s*$")
SECTION = re.compile(r"^\s*#\s*(?:if|elif|ifdef|elifdef)\b(.*)$")


class Diagnostics:
    """What a compiler printed, as messages in order, each with the context lines before it and the code after it."""

    def __init__(self, text):
        self.lines = text.splitlines()
        self.blocks = []  # [lines] of one error, warning or note
        self.contexts = 0
        before = []
        for line in self.lines:
            if MESSAGE.match(line):
                self.blocks.append([*before, line])
                before = []
            elif CONTEXT.search(line) and not line.startswith(" "):
                self.contexts += 1
                before.append(line)
            elif INCLUDED.match(line):
                before.append(line)
            elif self.blocks and not before:
                self.blocks[-1].append(line)
            # "1 error generated." and what else stands outside any message counts as a line only.

    @property
    def messages(self):
        return len(self.blocks) + self.contexts

    def position(self, name, numbers):
        """Which message is the first that names one of these lines of a file, or 0."""
        for place, block in enumerate(self.blocks, 1):
            if any(re.search(rf"{name}:{number}\b", line) for number in numbers for line in block):
                return place
        return 0

    def first_message(self):
        for line in self.blocks[0] if self.blocks else []:
            if MESSAGE.match(line):
                return line
        return ""


class CaseFile:
    def __init__(self, path):
        self.path = path
        with open(path) as file:
            self.lines = file.read().splitlines()
        self.cases = []
        self.directives = []
        self.problems = []
        for number, line in enumerate(self.lines, 1):
            section = SECTION.match(line)
            for case in re.findall(r"\bCASE_\w+", section[1]) if section else []:
                if case not in self.cases:
                    self.cases.append(case)
            directive = DIRECTIVE.match(line)
            if directive:
                self.directives.append((number, *directive.groups()))
            elif re.match(r"^\s*//\s*(expect|first|user_line|budget|kind)\b\s*\(", line):
                self.problems.append(f"line {number} looks like a directive and is none: {line.strip()}")
        if not self.cases:
            self.problems.append("no `#if defined(CASE_...)` section")
        for number, kind, case, _, _ in self.directives:
            if case not in self.cases:
                self.problems.append(f"line {number}: {kind} for {case}, which no #if names")
        for case in self.cases:
            if not any(kind == "expect" and owner == case for _, kind, owner, _, _ in self.directives):
                self.problems.append(f"{case} has no expect line: any error would pass")

            if any(kind == "kind" and owner == case for _, kind, owner, _, _ in self.directives):
                if not any(kind == "user_line" and owner == case for _, kind, owner, _, _ in self.directives):
                    self.problems.append(f"{case} is a kind of mistake and has no user_line")

    def kind_of(self, case):
        return next((text for _, kind, owner, _, text in self.directives if kind == "kind" and owner == case), "")

    def directives_of(self, case, kind, compiler):
        return [text for _, its_kind, owner, only, text in self.directives
                if its_kind == kind and owner == case and (only is None or compiler.startswith(only))]

    def lines_matching(self, text):
        if text.isdigit():
            return [int(text)]
        return [number for number, line in enumerate(self.lines, 1)
                if re.search(text, line) and not DIRECTIVE.match(line)]


def compile_case(compiler, flags, path, case):
    command = [compiler, *flags, "-fsyntax-only", *([f"-D{case}"] if case else []), path]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    if run.returncode < 0 or "internal compiler error" in run.stderr or "PLEASE submit a bug report" in run.stderr:
        return run.returncode or 1, run.stderr, "the compiler crashed"
    return run.returncode, run.stderr, ""


def problems_of_case(file, case, compiler, text):
    """What is wrong with the diagnostics `text` of `case`, and their measure."""
    found = Diagnostics(text)
    problems = []
    for regex in file.directives_of(case, "expect", compiler):
        if not re.search(regex, text):
            problems.append(f"nothing matches expect: {regex}")
    for regex in file.directives_of(case, "first", compiler):
        if not re.search(regex, found.first_message()):
            problems.append(f"the first message does not match: {regex}\n      it is: {found.first_message()}")
    for wanted in file.directives_of(case, "user_line", compiler):
        name = re.escape(os.path.basename(file.path))
        numbers = file.lines_matching(wanted)
        if not numbers:
            problems.append(f"user_line: no line of the file matches {wanted}")
        elif not 0 < (place := found.position(name, numbers)) <= FIRST_MESSAGES:
            where = " or ".join(str(number) for number in numbers)
            problems.append(f"the user's own line {where} is not in the first three messages, but in number {place}")
    limits = (MAX_MESSAGES, MAX_LINES)
    for budget in file.directives_of(case, "budget", compiler):
        limits = tuple(int(number) for number in budget.split())
    if file.kind_of(case):
        limits = (min(limits[0], MAX_MESSAGES), limits[1])
    if found.messages > limits[0]:
        problems.append(f"{found.messages} messages, at most {limits[0]} allowed")
    if len(found.lines) > limits[1]:
        problems.append(f"{len(found.lines)} lines, at most {limits[1]} allowed")
    if not found.blocks:
        problems.append("the compiler failed without an error message")
    return problems, found


def position_in(file, case, compiler, found):
    """Which message is the first that names the user's line; 0 where no line is asked for."""
    name = re.escape(os.path.basename(file.path))
    places = [found.position(name, file.lines_matching(wanted))
              for wanted in file.directives_of(case, "user_line", compiler)]
    return max(places, default=0)


def check(options):
    if shutil.which(options.compiler) is None:
        print(f"SKIPPED: {options.compiler} is not installed")
        return SKIPPED
    file = CaseFile(options.file)
    compiler = os.path.basename(options.compiler)
    name = options.name or os.path.splitext(os.path.basename(file.path))[0]
    for problem in file.problems:
        print(f"{file.path}: {problem}")
    failed = bool(file.problems)

    # The precompiled header is what the file includes first: the control means with it what it means without.
    flags = options.flags
    if options.precompiled:
        flags = flags_with_first_include(options.compiler, flags, file.path, options.precompiled)
    code, text, crash = compile_case(options.compiler, flags, file.path, None)
    if code != 0 or crash:
        print(f"control: must compile, and does not {crash}\n{text}")
        return 1
    rows = []
    for case in file.cases:
        code, text, crash = compile_case(options.compiler, flags, file.path, case)
        problems, found = [], Diagnostics(text)
        if code == 0:
            problems = ["must not compile, and does"]
        elif crash:
            problems = [crash]
        else:
            problems, found = problems_of_case(file, case, compiler, text)
            if options.said:
                keep_diagnostics(place_of_diagnostics(options.said, compiler, file.path, case, [INCLUDE]), text)
        print(f"{'FAILED' if problems else 'ok':6} {case}: {found.messages} messages "
              f"({len(found.blocks)} errors and notes, {found.contexts} context lines), {len(found.lines)} lines")
        for problem in problems:
            print(f"    {problem}")
        if problems or options.show:
            print("\n".join(f"    | {line}" for line in found.lines))
        failed |= bool(problems)
        rows.append("\t".join([name, case, compiler, str(found.messages), str(len(found.lines)), str(len(problems)),
                               str(position_in(file, case, compiler, found)), file.kind_of(case)]) + "\n")
    if options.results:
        os.makedirs(options.results, exist_ok=True)
        with open(os.path.join(options.results, f"{name.replace('/', '.')}@{compiler}.tsv"), "w") as results:
            results.writelines(rows)
    return 1 if failed else 0


def read_results(folder):
    """All rows of all results: (name of the case, compiler, messages, lines, problems, position, kind)."""
    rows = []
    for path in sorted(glob.glob(os.path.join(folder, "*.tsv"))):
        with open(path) as file:
            for row in file:
                name, case, compiler, messages, lines, problems, position, kind = row.rstrip("\n").split("\t")
                rows.append((f"{name} {case.removeprefix('CASE_')}", compiler, messages, lines, problems, position, kind))
    return rows


def in_order(compilers):
    """g++ first, then clang."""
    return sorted(sorted(set(compilers)), key=lambda compiler: not compiler.startswith("g++"))


def print_table(folder):
    """One row per case, one column per compiler: messages/lines, and which message names the user's line."""
    table = {}
    rows = read_results(folder)
    for name, compiler, messages, lines, problems, position, _ in rows:
        cell = f"{messages}/{lines}" + (f" @{position}" if position != "0" else "")
        table.setdefault(name, {})[compiler] = cell + ("" if problems == "0" else " FAILED")
    if not table:
        print("no compile-fail case has run")
        return 1
    compilers = in_order(row[1] for row in rows)
    shown = [["must not compile: messages/lines @user's line", *compilers]]
    shown += [[name, *[cells.get(compiler, "skipped") for compiler in compilers]]
              for name, cells in sorted(table.items())]
    widths = [max(len(row[column]) for row in shown) for column in range(len(shown[0]))]
    text = "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in shown)
    print(text)
    with open(os.path.join(folder, "table.txt"), "w") as file:
        file.write(text + "\n")
    return 0


DOCUMENTED = ("g++-12", "clang++-14", "clang++-19")


def mistakes_page(rows):
    """docs/mistakes.md: the cases that stand for a kind of mistake, or None if a compiler has not run them all."""
    kinds = {}
    cells = {}
    for name, compiler, messages, lines, _, position, kind in rows:
        if kind:
            kinds[name] = kind
            cells[name, compiler] = (int(messages), int(lines), int(position))
    if not kinds or any((name, compiler) not in cells for name in kinds for compiler in DOCUMENTED):
        return None
    documented = [cells[name, compiler] for name in kinds for compiler in DOCUMENTED]
    page = [
        "# What compilers print for a mistake",
        "",
        f"{len(kinds)} kinds of mistake, each a program that must not compile (`tests/compile_fail`). A cell says how many",
        "messages a compiler prints (g++'s lines of context count as messages), on how many lines with the code that it",
        "quotes, and which message is the first to name the user's file and line. The first message is the reason.",
        f"At most {max(cell[0] for cell in documented)} messages; the user's line in number "
        f"{max(cell[2] for cell in documented)} at the latest. What the sentences say: [errors.md](errors.md).",
        "",
        "The test `compile_fail/table` compares this page with what was measured, and writes it where",
        "`ESPALIER_WRITE_DOCS` is set.",
        "",
        "| mistake | " + " | ".join(compiler.replace("++-", "++ ") for compiler in DOCUMENTED) + " | case |",
        "|---|" + "---|" * (len(DOCUMENTED) + 1),
    ]
    for name, kind in sorted(kinds.items(), key=lambda item: item[0]):
        shown = ["{} / {} / {}".format(*cells[name, compiler]) for compiler in DOCUMENTED]
        page.append(f"| {kind} | " + " | ".join(shown) + f" | `{name}` |")
    return "\n".join(page) + "\n"


def check_page(folder, path):
    page = mistakes_page(read_results(folder))
    if page is None:
        print(f"{path}: not compared, since not all of {', '.join(DOCUMENTED)} have run")
        return 0
    # Below the table the page is written by hand.
    with open(path) as file:
        page += "".join(file.read().partition("\n## ")[1:])
    if os.environ.get("ESPALIER_WRITE_DOCS"):
        with open(path, "w") as file:
            file.write(page)
        return 0
    # How many lines a message takes changes with the list of include files above it.
    without_lines = re.compile(r"(?<= \d / )\d+(?= / \d )")
    with open(path) as file:
        same = without_lines.sub("", file.read()) == without_lines.sub("", page)
    if not same:
        print(f"{path} is not what was measured; with ESPALIER_WRITE_DOCS=1 this command writes it")
    return 0 if same else 1


def main():
    arguments = sys.argv[1:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="g++-12")
    parser.add_argument("--name", help="name in the table; by default that of the file")
    parser.add_argument("--results", help="folder for what was measured")
    parser.add_argument("--precompiled", help="folder for the headers that the files include first, precompiled")
    parser.add_argument("--said", help="folder that keeps the diagnostics, for support/quotes.py")
    parser.add_argument("--show", action="store_true", help="print the diagnostics of cases that are as expected too")
    parser.add_argument("--table", action="store_true", help="only print the table of --results")
    parser.add_argument("--page", help="with --table: docs/mistakes.md, to be compared or written")
    parser.add_argument("file", nargs="?", help="case file; compiler flags follow after --")
    options = parser.parse_args(arguments[:split])
    include = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "include")
    options.flags = arguments[split + 1:] or ["-std=c++20", f"-I{os.path.normpath(include)}"]
    if options.table:
        code = print_table(options.results)
        return code or (check_page(options.results, options.page) if options.page else 0)
    return check(options)


if __name__ == "__main__":
    sys.exit(main())
