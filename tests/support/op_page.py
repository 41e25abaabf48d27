#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Makes docs/ops.md, the page of all ops: `op_page.py PROGRAM` writes it, `op_page.py PROGRAM --check` fails if it would
change. PROGRAM is built of support/op_page.cpp and tells what was traced; what the functions do, how they are called and
their errors are read from the comments and declarations in include/espalier/tensor/core/ops, include/espalier/tensor/core/nn and
include/espalier/tensor/core/program/{differentiate,custom_gradient}.hpp.

It fails, too, for a public function without a comment or without a call in op_page.cpp, for an op of which no call makes
an instruction, for an error that is not among the reasons, and for one that a call has met and no comment names.
"""
import argparse
import difflib
import glob
import os
import re
import subprocess
import sys
import textwrap

sys.dont_write_bytecode = True  # no folder of compiled scripts among the sources
from reasons import all_reasons

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PAGE = os.path.join(ROOT, "docs", "ops.md")
FUNCTION = re.compile(r"((?:^///.*\n)*)^template <(.*(?:\n {6,}.*)*)>(?:\n  requires.*\n|\s)constexpr auto ([a-z]\w*)\(", re.MULTILINE)
OP = re.compile(r"((?:^///.*\n)*)^(?:template <.*>\n)?inline constexpr op_info (\w+)", re.MULTILINE)
# Ours, for all operators together: they have no comment of their own, being friends that no reader calls by name.
OPERATORS = """Operands broadcast as NumPy's do, and one of the two may be a number: counted from the right, two dimensions
are equal, or one of them is 1, or missing. Element types are never converted silently. Integers wrap around, and divide
towards zero and by 0 to 0; `%` has the sign of the first. `& | ^ ~ << >>` work on bits, `>>` with the sign where there
is one. Comparisons give truth values; of `&&` and `||` both operands are computed. `a += b` is `a = a + b`,
and so on. Numbers are of any arithmetic type, and exact beside integers.
Errors: `shape_mismatch`, `dtype_mismatch`, `operand_is_boolean` (arithmetic), `operand_is_not_integer` (bits),
`condition_is_not_boolean` (`!`, `&&`, `||`), `number_is_no_integer`, `number_out_of_range`."""
INTRODUCTION = """# Ops

<!-- Written by tests/support/op_page.py: change the comments in include/espalier/tensor/core/ops, or the calls in
     tests/support/op_page.cpp, and run it again. -->

Every function of tensors: those of `include/espalier/tensor/core/ops`, what makes gradients, and the parts of models. All are in the
namespace `espalier`. The page is made from the headers and from a program that calls each function for every element
type, so what it says is what the library does.

**Types** are the element types a call takes. *floats* are {floats}.
*integers* are {integers}. *all* are these and `bool`.
Tensors of one call have the same one, unless the shapes show another.

**Rule** says how dimensions correspond, as an einsum does. Each letter is a factor along which the work can be split
over devices:

| written | means, if the factor is split |
|---|---|
| `ab -> ab` | every device computes its part, and nothing moves |
| `ab, bc -> ac; sum over b` | each device has a term of the result: a pending sum, and sooner or later a collective |
| `ab -> ab; max over b` | the same, but only what was reduced moves: the result is split as the argument |
| `a~b -> ab` | through a window: a device receives the elements it lacks, most often of its neighbours |
| `[a]b -> b` | it is not split: the dimension is made whole on every device first |
| `a(bc) -> abc` | one dimension is two factors, the major one first |
| `ab -> ab; in steps` | the op takes several steps on a device, and moves something between them: see what it says |
| `1`, `()` | a dimension of one element; a scalar |

**Made of** are the instructions that a call becomes, which `explain` shows. **Gradient** names the arguments that
something flows back to, and what that takes; where nothing is named, nothing flows back.
"""
OPS = """## Instructions

What calls and gradients become. A pending sum may stay pending through an op that is linear: *of one operand* if the
others are whole there.

| op | what it does | rule | pending sums | kernel | gradient |
|---|---|---|---|---|---|
"""


def braces(line):
    """How many more are opened than closed, outside of texts and comments."""
    code = re.sub(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)'|//.*", "", line)
    return code.count("{") - code.count("}")


def without_nested(text):
    """The text of a header outside of the namespaces in it but `nn`, and the part in `namespace ops`."""
    public, ops, inside, depth = [], [], [], 0
    for line in text.split("\n"):
        opened = re.match(r"^namespace (detail|emit|ops|comm)\b.* \{|^namespace espalier::(detail|comm)\b.* \{", line)
        if opened:
            inside.append((opened[1] or opened[2], depth))
        depth += braces(line)
        closed = bool(inside) and not opened and depth <= inside[-1][1]
        if not inside or opened or closed:
            public.append("" if opened or closed else line)
        elif [name for name, _ in inside] == ["ops"]:
            ops.append(line)
        while inside and depth <= inside[-1][1]:
            inside.pop()
    return "\n".join(public), "\n".join(ops)


def comment(block):
    """A comment as one paragraph; lines of code in it, which are indented, as one span of code."""
    pieces = []
    for line in block.strip().split("\n"):
        is_code = line.startswith("///     ")
        if is_code and pieces and pieces[-1].startswith("`` "):
            pieces[-1] = pieces[-1][:-3] + " " + line[3:].strip() + " ``"
        elif is_code:
            pieces.append("`` " + line[3:].strip() + " ``")
        elif line[3:].strip():
            pieces.append(line[3:].strip())
    return " ".join(pieces).strip()


def split_list(text):
    """At commas that no bracket encloses."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "<({") - (c in ">)}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [" ".join(part.split()) for part in parts if part.strip()]


def signature(template, name, parameters):
    called, types = [], []
    for one in split_list(re.sub(r"/\*(\w+)\*/", r"\1", parameters)):
        if "source_line" in one:
            continue
        marker = re.fullmatch(r"(\w+)_t(<\w+>)?", one)
        if marker:
            called.append(marker[1] + (marker[2] or ""))
            continue
        declared, _, default = one.partition(" = ")
        kind, variable = re.fullmatch(r"(.*?)(\w+)", declared).groups()
        kind = kind.replace("const ", "").replace("&", "").strip()
        types.append(kind.replace("...", ""))
        own = kind[:1].islower()  # a type of C++, not one of the template's
        if re.search(rf"\b{kind} = (?:detail::)?no_operand\b", template):
            called.append(f"[{variable}]")  # an operand that a call may leave out
            continue
        called.append((f"{kind} {variable}" if own else variable + ("..." if "..." in kind else "")) +
                      (f" = {default}" if default else ""))
    chosen = []
    for one in split_list(template):
        declared = one.replace("detail::", "").partition(" = ")
        variable = declared[0].split()[-1]
        if variable in types or not re.match(r"int|dtype|TensorType|class|const auto&|\w+_settings|fixed_string", declared[0]):
            continue
        default = f" = {declared[2]}" if declared[2] else ""
        chosen.append(declared[0].replace("TensorType", "class").replace("fixed_string", "text").replace("const auto& ", "") +
                      re.sub(r"^ = \w+_settings\{\}$", " = {}", default))
    return f"{name}{'<' + ', '.join(chosen) + '>' if chosen else ''}({', '.join(called)})"


# Their functions are of trees, or make many tensors of many: they are on the reference page (support/reference.py).
TRAINING = ["tensor/core/nn/optimizers/step.hpp", "tensor/core/nn/optimizers/lion.hpp",
            "tensor/core/nn/optimizers/adafactor.hpp", "tensor/core/nn/optimizers/muon.hpp",
            "tensor/core/nn/schedules.hpp", "tensor/core/nn/averages.hpp", "tensor/core/nn/loss_scale.hpp",
            "tensor/core/nn/accumulate.hpp", "tensor/core/nn/mixed.hpp", "tensor/core/nn/trees.hpp", "tensor/run/execute/array_trees.hpp"]


def read_headers():
    """(functions, ops): functions are (name, signature, comment, header), ops name -> (comment, header)."""
    functions, ops = [], {}
    include = os.path.join(ROOT, "include", "espalier")
    # not_included.hpp declares nothing to call: it names the header that a call lacks.
    nn = [path for path in sorted(glob.glob(os.path.join(include, "tensor", "core", "nn", "**", "*.hpp"), recursive=True))
          if os.path.basename(path) != "not_included.hpp"]
    paths = [*sorted(glob.glob(os.path.join(include, "tensor", "core", "ops", "*.hpp"))),
             *(path for path in nn if os.path.relpath(path, include) not in TRAINING),
             *(os.path.join(include, "tensor", "core", "program", name) for name in ("differentiate.hpp", "custom_gradient.hpp"))]
    for path in paths:
        header = os.path.relpath(path, include)
        space = "nn::" if header.startswith("tensor/core/nn/") else ""
        with open(path) as file:
            public, in_ops = without_nested(file.read())
        doc = ""
        for match in FUNCTION.finditer(public):
            # A comment holds for the functions directly behind its own.
            doc = comment(match[1]) if match[1] else doc
            close = re.compile(r"\)\s*(?:\{|const)").search(public, match.end() - 1)
            parameters = public[match.end():close.start()]
            # What stands on the mesh of a call belongs to one; what has no line to ask for is called by others.
            if "source_line where)" in parameters + ")" or match[3] == "operand_of":
                continue
            # What is there to name a mistake is nothing to call.
            if doc.endswith("a mistake."):
                continue
            functions.append((space + match[3], signature(match[2], space + match[3], parameters), doc, header))
        for match in OP.finditer(in_ops):
            ops[match[2]] = (comment(match[1]), header)
    return functions, ops


def ops_without_text():
    """Ops that the table of ops by name has not, so that no text of a graph could name them."""
    include = os.path.join(ROOT, "include", "espalier")
    with open(os.path.join(include, "tensor", "core", "partition", "ops_by_name.hpp")) as file:
        named = set(re.findall(r"&ops::(\w+)", file.read()))
    missing = []
    for path in sorted(glob.glob(os.path.join(include, "tensor", "core", "ops", "*.hpp"))):
        with open(path) as file:
            for template, name in re.findall(r"^(template <.*>\n)?inline constexpr op_info (\w+)", file.read(), re.MULTILINE):
                # What a template makes has no name of its own.
                if not template and name not in named:
                    missing.append(name)
    return missing


def read_program(program):
    """(floats, integers, sections of calls, ops)."""
    floats, integers, sections, ops = [], [], [], {}
    for line in subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines():
        kind, *cells = line.split("\t")
        if kind == "type":
            {"float": floats, "integer": integers}.get(cells[1], []).append(cells[0])
        elif kind == "section":
            sections.append((cells[0], []))
        elif kind == "call":
            keys = ["function", "call", "types", "rule", "shapes", "made", "gradient", "refused"]
            sections[-1][1].append(dict(zip(keys, cells)))
        else:
            ops[cells[0]] = cells[1:]
    return floats, integers, sections, ops


def types_in_words(types, floats, integers):
    left, words = types.split(), []
    if set(left) == {*floats, *integers, "bool"}:
        return "all"
    for word, group in (("floats", floats), ("integers", integers)):
        if set(group) <= set(left):
            words.append(word)
            left = [name for name in left if name not in group]
    return ", ".join([*words, *(f"`{name}`" for name in left)])


def code(text):
    """A bar would end the cell of a table."""
    if "|" not in text:
        return f"`{text}`"
    return "<code>" + text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;") + "</code>"


def row(*cells):
    return "| " + " | ".join(cells) + " |\n"


def prose(text):
    """Types are code, where the comment does not say so: `f32<4, 8>` would be read as HTML."""
    pieces = text.split("`")
    pieces[::2] = [re.sub(r"\b[a-z]\w*<[^>]*>", r"`\g<0>`", piece) for piece in pieces[::2]]
    return "`".join(pieces)


def folded(text):
    lines = textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)
    # A number with a point would begin a list.
    return "\n".join(re.sub(r"^(\d+)\. ", r"\1\\. ", line) for line in lines)


def with_links(text, reasons):
    return re.sub(r"`(\w+)`", lambda m: f"[`{m[1]}`](errors.md#{m[1]})" if m[1] in reasons else m[0], text)


def page(program):
    functions, ops = read_headers()
    floats, integers, sections, made = read_program(program)
    reasons = {name for name, _ in all_reasons()}
    wrong = []
    called = {call["function"] for _, calls in sections for call in calls}
    for name, _, doc, header in functions:
        if not doc:
            wrong.append(f"{header}: {name} has no comment that says what it does")
        if name not in called:
            wrong.append(f"{header}: {name} is not called in tests/support/op_page.cpp")
    declared = {name for name, _, _, _ in functions}
    for name in sorted(called - declared - {"operators"}):
        wrong.append(f"tests/support/op_page.cpp calls {name}, which no header declares")
    for name, (_, header) in ops.items():
        if name not in made:
            wrong.append(f"{header}: no call in tests/support/op_page.cpp makes an instruction {name}")

    text = INTRODUCTION.format(floats=", ".join(f"`{t}`" for t in floats),
                               integers=", ".join(f"`{t}`" for t in integers))
    for title, calls in sections:
        text += f"\n## {title}\n"
        done = set()
        for call in calls:
            if call["function"] in done:
                continue
            # Functions that share a comment, and all comments on functions of these names.
            names, docs = [call["function"]], []
            for name, _, doc, _ in functions:
                if name == call["function"] and doc not in docs:
                    docs.append(doc)
            names += [n for n, _, doc, _ in functions if doc == docs[0] and n not in names] if docs else []
            names = [n for n in dict.fromkeys(names) if any(c["function"] == n for c in calls)]
            done |= set(names)
            signatures = list(dict.fromkeys(s for n, s, _, _ in functions if n in names))
            if call["function"] == "operators":
                docs = [" ".join(OPERATORS.split())]
            else:
                text += "\n### " + ", ".join(f"`{n}`" for n in names) + "\n"
                text += "\n" + ", ".join(code(s) for s in signatures) + "\n"
            errors = []
            for doc in docs:
                what, _, error = doc.partition("Errors")
                text += "\n" + folded(prose(what.strip())) + "\n"
                if error and "the same" not in error:
                    errors.append("Errors" + error)
            text += "\n| call | shapes | types | rule | made of | gradient |\n|---|---|---|---|---|---|\n"
            for one in (c for c in calls if c["function"] in names):
                text += row(code(one["call"]), code(one["shapes"]), types_in_words(one["types"], floats, integers),
                            code(one["rule"]), one["made"],
                            one["gradient"])
                # Those of another function, or of a function that is given, are not listed again.
                others = re.search(r"those of|[Ee]rrors as|whatever the body does wrong", " ".join(docs))
                for reason in filter(None, one["refused"].split(", ")):
                    if f"`{reason}`" not in " ".join(docs) and not others:
                        wrong.append(f"{one['call']}: {reason} happens, and its comment does not name it")
            # Of overloads, those of one are often among those of another.
            for error in errors:
                if not any(other != error and error.rstrip(".") in other for other in errors):
                    text += "\n" + with_links(error, reasons) + "\n"
                listed = re.match(r"Errors:(.*?)(?:those of|$)", error)
                for name in re.findall(r"`(\w+)`", listed[1]) if listed else []:
                    if name not in reasons and name not in called:
                        wrong.append(f"{call['function']}: there is no error {name}")
    text += "\n" + OPS
    for name, (doc, header) in sorted(ops.items()):
        rule, pending, kernel, gradient = made.get(name, ["", "", "", ""])
        text += row(f"`{name}`", prose(doc), code(rule) if rule else "", pending, kernel, gradient)
    wrong += [f"{name} is not in tensor/core/partition/ops_by_name.hpp: no text of a graph can name it" for name in ops_without_text()]
    return text, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    after, wrong = page(options.program)
    for line in wrong:
        print(line)
    before = ""
    if os.path.exists(PAGE):
        with open(PAGE) as file:
            before = file.read()
    if not options.check:
        with open(PAGE, "w") as file:
            file.write(after)
        return bool(wrong)
    difference = list(difflib.unified_diff(before.splitlines(True), after.splitlines(True), PAGE, "now"))
    sys.stdout.writelines(difference)
    if difference:
        print("docs/ops.md is not what the headers say: run tests/support/op_page.py PROGRAM")
    return bool(wrong or difference)


if __name__ == "__main__":
    sys.exit(main())
