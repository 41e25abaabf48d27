# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""The reasons why a program does not compile, as the headers declare them: those of diagnostics/reasons.hpp first, then
the operators' own."""
import glob
import os
import re
import sys

HEADERS = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "include", "espalier",
                                        "tensor", "core"))
REASON = re.compile(r"struct (\w+) \{\n  template <class Where> struct raise \{\n\s*static_assert\(\s*Where::ok,"
                    r"((?:\s*\"(?:[^\"\\]|\\.)*\")+)\);")


def all_reasons():
    """(name, sentence) of each."""
    general = os.path.join(HEADERS, "diagnostics", "reasons.hpp")
    operators = [*sorted(glob.glob(os.path.join(HEADERS, "ops", "reasons", "*.hpp"))),
                 os.path.join(HEADERS, "nn", "norm.hpp")]
    result = []
    for path in [general, *operators]:
        with open(path) as file:
            text = file.read()
        ours = REASON.findall(text)
        if len(ours) != text.count("struct raise {"):
            sys.exit(f"{path}: not every reason could be read")
        for name, literal in ours:
            sentence = "".join(re.findall(r"\"((?:[^\"\\]|\\.)*)\"", literal)).replace('\\"', '"')
            result.append((name, sentence))
    return result
