#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Fills README.md and docs/ with what the sources, programs and compilers say: `quotes.py` writes it, `quotes.py
--check` fails if it would change (beyond places in our headers) and returns 77 where a compiler is missing. `--said
FOLDER`: there compile_fail/run_case.py kept what compilers said of its cases; what has changed since is compiled.

A comment in a document owns the blocks that follow it:

    <!-- source: FILE [from TEXT] [to TEXT] -->   the file without licence and first comment, or the lines from the
                                                  first with TEXT to the next with TEXT; `to =TEXT`: to the next that
                                                  is TEXT, as `}` is at the end of a function
    <!-- output: FILE -->                         what a program prints: FILE is compared with it by the test example/...
    <!-- message: FILE [CASE_name|everywhere] --> a file that does not compile, and what compilers say of it; of a
                                                  compile-fail case (with CASE_name) the two lines that matter;
                                                  `everywhere`: of all compilers that the project is tried with
    <!-- mistake: FILE: OLD => NEW -->            what g++ says of FILE when OLD is written NEW

And of the tables that follow:

    <!-- pairs: FILE WORD -->                     each comment `// WORD: what they write` and the code below it
    <!-- reasons: include/espalier -->            each reason of these headers, with its sentence; every one has a section
                                                  in the document

Every block of C++ has such an owner: no code in a document is untried. Paths are cut to what follows `include/`, lists
of include files are left out.
"""
import argparse
import difflib
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

sys.dont_write_bytecode = True  # no folder of compiled scripts among the sources
from precompiled import flags_with_first_include, kept_diagnostics, place_of_diagnostics
from reasons import all_reasons

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
DOCUMENTS = [os.path.join(ROOT, "README.md"), *sorted(glob.glob(os.path.join(ROOT, "docs", "*.md")))]
COMPILERS = [("g++ 12", "g++-12"), ("clang 19", "clang++-19")]
ALL_COMPILERS = [COMPILERS[0], ("clang 14", "clang++-14"), COMPILERS[1]]
OWNED = re.compile(r"(<!-- (source|output|message|mistake): (.*?) -->\n)(?:\n?```(?:cpp|text)\n.*?\n```\n)*", re.DOTALL)
TABLE = re.compile(r"(<!-- (pairs|reasons): (.*?) -->\n)\n*(?:\|.*\n)*\n*")
UNOWNED = re.compile(r"(?<! -->\n)^```cpp\n(.*)$", re.MULTILINE)
PRECOMPILED = tempfile.TemporaryDirectory()
INCLUDE = os.path.join(ROOT, "include")
said = None  # the folder of --said
INCLUDED = re.compile(r"^(?:In file included from |\s+from )")


def read(name):
    with open(os.path.join(ROOT, name)) as file:
        return file.read()


def source(rest):
    name, first, last = re.fullmatch(r"(\S+)(?: from (.*?))?(?: to (.*))?", rest).groups()
    lines = read(name).rstrip().split("\n")
    if first is None and last is None:
        body = [n for n, line in enumerate(lines) if line and not line.startswith(("//", "#pragma once"))]
        lines = lines[body[0]:]
    else:
        begin = next((n for n, line in enumerate(lines) if first in line), None) if first else 0
        is_last = (lambda line: line == last[1:]) if last and last.startswith("=") else (lambda line: last in line)
        end = None if begin is None else next((n for n in range(begin, len(lines)) if is_last(lines[n])), None)
        if begin is None or end is None:
            sys.exit(f"{name}: there are no lines from \"{first}\" to \"{last}\"")
        lines = lines[begin:end + 1]
    return "```cpp\n" + textwrap.dedent("\n".join(lines)) + "\n```\n"


def compiled_diagnostics(compiler, path, case):
    flags = ["-std=c++20", "-fno-color-diagnostics" if "clang" in compiler else "-fdiagnostics-color=never",
             f"-I{INCLUDE}"]
    if case:  # many of them begin with the same header; what is quoted alone is compiled as a user does
        flags = flags_with_first_include(compiler, flags, path, PRECOMPILED.name)
    command = [compiler, *flags, "-fsyntax-only", *([f"-D{case}"] if case else []), os.path.basename(path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=os.path.dirname(path), check=False,
                         env={**os.environ, "LC_ALL": "C"})
    if run.returncode == 0:
        sys.exit(f"{path} {case or ''}: must not compile, and does with {compiler}")
    return run.stderr


def diagnostics(compiler, path, case=None):
    text = kept_diagnostics(place_of_diagnostics(said, compiler, path, case, [INCLUDE])) if said and case else None
    if text is None:
        text = compiled_diagnostics(compiler, path, case)
    lines = [line.replace(f"{ROOT}/include/", "").replace(f"{os.path.dirname(path)}/", "")
             for line in text.splitlines() if not INCLUDED.match(line)]
    return [line for line in lines if not re.match(r"^\d+ errors? generated", line)]


def matters(lines, name):
    """The sentence, and what it is about; without the place in our header, which changes. Where the compiler finds the
    mistake itself, the sentence and the first line that names the user's own file."""
    if not any("::raise<" in line for line in lines):
        first = next(line for line in lines if " error: " in line)
        own = next((line for line in lines if line.startswith(name + ":") and line != first), None)
        kept = [line for line in lines if line in (first, own)]
        return [line if line.startswith(name + ":") else re.sub(r"^\S+: ", "", line) for line in kept[:2]]
    kept = [line for line in lines if " error: " in line or "::raise<" in line and "In instantiation" in line
            or "::raise<" in line and "in instantiation" in line]
    return [re.sub(r"^\S+: ", "", line) for line in kept[:2]]


def message(rest):
    name, case = (rest.split() + [None])[:2]
    path = os.path.join(ROOT, name)
    everywhere = case == "everywhere"
    case = None if everywhere else case
    text = "" if case else source(name)
    parts = []
    for title, compiler in ALL_COMPILERS if everywhere else COMPILERS:
        lines = diagnostics(compiler, path, case)
        parts.append("\n".join([f"{title}:", *(matters(lines, os.path.basename(path)) if case else lines)]))
    return text + "```text\n" + "\n\n".join(parts) + "\n```\n"


def mistake(rest):
    name, old, new = re.fullmatch(r"(\S+): (.*) => (.*)", rest).groups()
    text = read(name)
    if text.count(old) != 1:
        sys.exit(f"{name}: \"{old}\" stands there {text.count(old)} times")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, os.path.basename(name))
        with open(path, "w") as file:
            file.write(text.replace(old, new))
        lines = diagnostics(COMPILERS[0][1], path)
    if sum(" error: " in line for line in lines) != 1:
        sys.exit("\n".join([f"{name} with {new}: expected one error", *lines]))
    # Without the quoted code and the note, which say the same again.
    kept = [re.sub(r"^espalier/\S+\.[hi]pp:[\d:]+ ", "", line) for line in lines if not re.match(r"^ *\d* \||.* note: ", line)]
    wrapped = [piece for line in kept for piece in textwrap.wrap(line.strip(), 116, subsequent_indent="    ",
                                                                 break_long_words=False, break_on_hyphens=False)]
    return "```text\n" + "\n".join(wrapped) + "\n```\n"


def in_cell(lines):
    """Code in a cell of a table, which a bar would end."""
    escaped = [line.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;") for line in lines]
    return "<br>".join(f"<code>{line}</code>" for line in escaped)


def pairs(rest):
    name, word = rest.split()
    lines = read(name).split("\n")
    rows = ""
    for n, line in enumerate(lines):
        if not line.strip().startswith(f"// {word}: "):
            continue
        theirs = line.strip()[len(f"// {word}: "):]
        ours = []
        for below in lines[n + 1:]:
            if not below or below.strip().startswith("//") or below.strip() == "}":
                break
            ours.append(below)
        ours = textwrap.dedent("\n".join(ours))
        # What the test wraps around it is not what anybody writes.
        ours = re.sub(r"^use\(((?:.|\n)*)\);$|^constexpr auto \w+ = \[\]\(.*\) \{ return (.*); \};$",
                      lambda m: m[1] or m[2], ours)
        rows += f"| {theirs} | {in_cell(ours.split(chr(10)))} |\n"
    if not rows:
        sys.exit(f"{name}: no comment begins with {word}:")
    return f"\n| {word} | Espalier |\n|---|---|\n{rows}\n"


def reasons(_):
    rows = ""
    for name, sentence in all_reasons():
        sentence = re.sub(r"([<|*_])", r"\\\1", sentence)
        rows += f"| [`{name}`](#{name}) | {sentence} |\n"
    return f"\n| error | what it says |\n|---|---|\n{rows}\n"


def table(match):
    return match[1] + {"pairs": pairs, "reasons": reasons}[match[2]](match[3])


def without_section(text):
    """Reasons in a table of the document that have no section in it."""
    return [name for name in re.findall(r"^\| \[`(\w+)`\]\(#\w+\) \|", text, re.MULTILINE) if f"### `{name}`" not in text]


def block(match):
    marker, kind, rest = match.groups()
    if kind == "output":
        return marker + "```text\n" + read(rest).rstrip() + "\n```\n"
    return marker + {"source": source, "message": message, "mistake": mistake}[kind](rest)


def without_places(text):
    """Where in our headers something stands changes with every edit, and is no reason to write the document again; nor is
    how many `auto` parameters g++ has counted."""
    text = re.sub(r"auto:\d+", "auto", text)
    text = re.sub(r"(espalier/\S+\.[hi]pp):\d+:\d+", r"\1", text)
    return re.sub(r"^ *\d+ \|", " |", text, flags=re.MULTILINE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--said", help="folder with diagnostics that compile_fail/run_case.py kept")
    options = parser.parse_args()
    global said
    said = options.said
    absent = [compiler for _, compiler in ALL_COMPILERS if shutil.which(compiler) is None]
    if absent:
        print(f"quotes: {', '.join(absent)} is not installed, so nothing was compared")
        return 77
    wrong = False
    for document in DOCUMENTS:
        with open(document) as file:
            before = file.read()
        for line in UNOWNED.findall(before):
            print(f"{document}: a block of C++ that nothing tries: {line}")
            wrong = True
        after = TABLE.sub(table, OWNED.sub(block, before))
        for name in without_section(after):
            print(f"{document}: {name} has no section")
            wrong = True
        if options.check:
            before, after = without_places(before), without_places(after)
            sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), after.splitlines(True), document, "now"))
            wrong = wrong or before != after
        else:
            with open(document, "w") as file:
                file.write(after)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
