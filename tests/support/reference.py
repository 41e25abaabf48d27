#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Makes docs/reference.md and its two sisters, for pipelines and collectives, of the comments in the headers that users
include: `reference.py` writes them, `reference.py --check` fails if one would change. Functions of tensors have a page of
their own (support/op_page.py).

What has a `///` comment is listed, and of a class its public members that have one, before or behind them; `detail`,
`emit` and `ops` are left out.
"""
import argparse
import difflib
import os
import re
import sys

sys.dont_write_bytecode = True  # no folder of compiled scripts among the sources
from op_page import TRAINING, braces, folded, prose, with_links
from reasons import all_reasons

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAMS = [
    ("Meshes, tensors, layouts", ["tensor/core/mesh/axis.hpp", "tensor/core/mesh/mesh.hpp",
                                  "tensor/core/mesh/axis_parts.hpp", "base/dtype.hpp",
                                  "tensor/core/sharding/annotation.hpp", "tensor/core/sharding/sharding.hpp",
                                  "tensor/core/sharding/print.hpp"]),
    ("Programs", ["tensor/core/program/program.hpp", "tensor/core/program/collective_types.hpp",
                  "tensor/core/program/trace.hpp", "tensor/core/program/budget.hpp",
                  "tensor/core/program/explicit_mode.hpp"]),
    ("Trees of parameters, and several results", ["tensor/core/graph/tree.hpp", "tensor/core/graph/named_leaves.hpp"]),
    ("Running", ["tensor/run/execute/world.hpp", "tensor/run/execute/runner.hpp", "tensor/run/execute/array.hpp",
                 "tensor/run/execute/gather.hpp", "tensor/run/execute/guard.hpp", "tensor/run/execute/together.hpp",
                 "tensor/run/execute/traffic.hpp"]),
    ("Models", ["tensor/core/nn/leaves.hpp", "tensor/core/nn/initialise.hpp"]),
    ("Training", ["tensor/core/nn/optimizers/adamw.hpp", "tensor/core/nn/optimizers/sgd.hpp", *TRAINING]),
    ("Files", ["tensor/run/io/checkpoint.hpp", "tensor/run/io/load_options.hpp", "tensor/run/io/safetensors.hpp",
               "tensor/run/io/error.hpp", "tensor/run/io/xtensor.hpp", "tensor/run/io/dataset.hpp",
               "tensor/run/io/row_file.hpp", "tensor/run/io/permutation.hpp", "tensor/run/io/data_error.hpp"]),
    ("Reports and pictures", ["tensor/run/report/explain.hpp", "tensor/run/report/dump.hpp",
                              "tensor/core/graph/called_from.hpp", "tensor/run/report/draw_layout.hpp",
                              "tensor/run/report/progress.hpp", "tensor/run/report/predict_run.hpp",
                              "tensor/run/report/search_annotations.hpp", "base/table.hpp"]),
]
PIPELINES = [
    ("Models and machines", ["pipeline/profile.hpp", "pipeline/layer_graph.hpp", "pipeline/read_profile.hpp",
                             "pipeline/cluster.hpp", "pipeline/device_sets.hpp", "pipeline/latency.hpp",
                             "pipeline/published.hpp"]),
    ("Schedules and the simulator", ["pipeline/instruction.hpp", "pipeline/costs.hpp", "pipeline/schedules/by_name.hpp",
                                     "pipeline/schedules/improve.hpp", "pipeline/schedules/split_backward.hpp",
                                     "pipeline/schedules/zb_heuristic.hpp", "pipeline/transfers.hpp",
                                     "pipeline/validate.hpp", "pipeline/simulate.hpp", "pipeline/bound.hpp",
                                     "pipeline/durations.hpp", "pipeline/chart.hpp", "pipeline/trace.hpp"]),
    ("Plans", ["pipeline/plan.hpp", "pipeline/planner.hpp", "pipeline/evaluate.hpp", "pipeline/print_plan.hpp"]),
    ("Models that run", ["pipeline/stages/model/model.hpp", "pipeline/stages/model/model_layers.hpp",
                         "pipeline/stages/model/named.hpp", "pipeline/stages/layers/layer.hpp",
                         "pipeline/stages/measure/measure.hpp", "pipeline/stages/measure/estimate.hpp"]),
    ("Running a plan", ["pipeline/stages/plan/execution_plan.hpp", "pipeline/stages/plan/check_plan.hpp",
                        "pipeline/stages/plan/choose.hpp", "pipeline/stages/plan/choose_meshes.hpp",
                        "pipeline/stages/measure/probed_cluster.hpp", "pipeline/stages/plan/predict.hpp",
                        "pipeline/stages/plan/stage_bytes.hpp", "pipeline/stages/messages/transport.hpp",
                        "pipeline/stages/messages/transport_in_process.hpp",
                        "pipeline/stages/messages/transport_mpi.hpp", "pipeline/stages/engine/engine.hpp",
                        "pipeline/stages/measure/measured.hpp", "pipeline/stages/engine/checkpoint.hpp"]),
]
COLLECTIVES = [
    ("As Boost.MPI calls them", ["comm/run/ranges.hpp", "comm/run/collectives.hpp"]),
    ("Networks", ["comm/probe/probe.hpp", "comm/topology/topology.hpp", "comm/network.hpp", "comm/topology/json.hpp",
                  "comm/topology/merge.hpp", "comm/placement.hpp"]),
    ("For worlds and programs", ["comm/run/engine.hpp", "comm/communicator.hpp", "comm/any_communicator.hpp",
                                 "comm/reduce.hpp", "comm/reducer.hpp", "comm/in_process.hpp", "comm/mpi.hpp",
                                 "comm/mpi_options.hpp", "comm/mpi_handle.hpp", "comm/launch.hpp",
                                 "comm/termination.hpp"]),
]
WRITTEN_BY = "<!-- Written by tests/support/reference.py: change the comments in the headers, and run it again. -->"
PAGES = [
    ("reference.md", PROGRAMS, f"""# Reference

{WRITTEN_BY}

What users of the library name, header by header, in the words of the headers. All is in the namespace `espalier`, or in
the one that is written before a name. Functions of tensors have a [page of their own](ops.md), and so have
[collectives for MPI programs](reference_collectives.md) and [pipelines](reference_pipelines.md).

`espalier/core.hpp` includes what is needed to compile and ask, `espalier/espalier.hpp` what is needed to run.
"""),
    ("reference_pipelines.md", PIPELINES, f"""# Reference: pipelines

{WRITTEN_BY}

What is in `espalier::pipeline`, header by header, in the words of the headers; how it belongs together is told in
[pipelines](pipelines.md). `espalier/pipeline.hpp` includes what plans and simulates; what runs plans is included by name.
"""),
    ("reference_collectives.md", COLLECTIVES, f"""# Reference: collectives

{WRITTEN_BY}

What is in `espalier::comm`, header by header, in the words of the headers; how it belongs together is told in
[collectives](collectives.md). `espalier/comm.hpp` includes what MPI programs need.
"""),
]
NOT_FOR_USERS = {"traced", "dtype_facts", "number_format"}
LISTED = "\u200b\n"  # ends an entry of a list while a page is made
MEMBER = "member "  # before what has its comment behind it
DATA = re.compile(r"^(?!using|static|friend|return|template|typedef|constexpr|enum|struct|class|operator)"
                  r"(?:std::function<.*?>|[\w:<>,* ]+?) \w+(?:\[\w*\])*(?: = [^;(]*|\{[^;]*\})?;(?: *//.*)?$")
HIDDEN = ("detail", "emit", "ops", "kernels", "why")
CLASS = re.compile(r"^(?:class|struct) (\w+)[^;]*\{$")


def declaration(lines):
    """The declaration that begins these lines, without what a user need not read."""
    text, required = "", None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        # What is required ends where a line stands further to the left again.
        if line.strip().startswith("requires"):
            required = indent
        if required is not None and (indent >= required or line.strip() == "}"):
            continue
        required = None
        text += " " + line.strip()
        if re.search(r"[;{}]\s*(//.*)?$", line):
            break
    text = " ".join(text.split())
    # Up to the body, the bases, or what members begin with.
    depth, end = 0, len(text)
    for n, c in enumerate(text):
        depth += (c in "(<") - (c in ")>" and text[n - 1] not in "-=")
        if depth == 0 and (c == "{" or c == ";" or text[n:n + 3] == " : "):
            end = n
            break
    text = text[:end].strip()
    text = re.sub(r"\[\[\w+\]\] |\b(constexpr|inline|explicit|friend) ", "", text)
    text = text.replace("decltype(auto)", "auto")
    if not text.startswith("using") and " using " not in text:
        text = re.sub(r" = (\[|[^\d\w]|\w+[:(<]).*$", "", text) if "(" not in text.split(" = ")[0] else text
    text = re.sub(r",? ?source_line where( = source_line::current\(\))?", "", text)
    return text.replace("detail::", "")


def name_in(text):
    """`world::run` of its declaration."""
    rest = re.sub(r"^template <", "<", text)
    while rest.startswith("<"):  # the parameters of the template
        depth = 0
        for n, c in enumerate(rest):
            depth += (c == "<") - (c == ">" and rest[n - 1] not in "-=")
            if depth == 0:
                rest = rest[n + 1:].strip()
                break
        rest = re.sub(r"^template <", "<", rest)
    for pattern in (r"(?:class|struct|enum class|enum|using|concept) (\w+)", r"(operator(?:\(\)|[^\s(]+))\(", r"(\w+)\(", r"(\w+)(?: =.*|<.*)?$"):
        found = re.search(pattern, rest)
        if found:
            return found[1]
    return rest


def others_behind(lines):
    """The names of declarations that follow one without a line between them: its comment is about them, too."""
    indent = " " * (len(lines[0]) - len(lines[0].lstrip()))
    starts = [0]
    for n, line in enumerate(lines):
        if not line.strip() or line.startswith(indent + "//"):
            break
        begins = re.match(indent + r"(template|struct|class|using|\[\[|constexpr|inline|static)", line)
        # A template's parameters may stand on a line of their own.
        if n > 0 and begins and not lines[n - 1].startswith(indent + "template <") and lines[n - 1].strip() != indent + "}":
            starts.append(n)
        elif n > 0 and begins and re.search(r"[;}]\s*(//.*)?$", lines[n - 1]):
            starts.append(n)
    return [name_in(declaration(lines[n:])) for n in starts[1:]]


def entries(header):
    """(namespace, class, declaration, paragraphs) of what has a comment."""
    with open(os.path.join(ROOT, "include", "espalier", header)) as file:
        lines = file.read().split("\n")
    nested, depth, inside, public, comment, found = [], 0, None, True, [], []
    for n, line in enumerate(lines):
        opened = re.match(r"^(?:inline )?namespace ([\w:]+) \{", line)
        if opened:
            nested.append((re.sub(r"^espalier(::)?", "", opened[1]), depth))
        depth += braces(line)
        while nested and depth <= nested[-1][1]:
            nested.pop()
        spaces = [name for name, _ in nested]
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if stripped.startswith("///") and not stripped.startswith("///<"):
            comment.append(stripped[3:])
            continue
        shown = not any(part in HIDDEN for space in spaces for part in space.split("::"))
        if comment and shown and ((inside is None and indent == 0) or (inside and public and indent == 2)):
            space = "::".join(s for s in spaces if s and s != "literals")
            found.append((space, inside, declaration(lines[n:]), comment, others_behind(lines[n:])))
        elif shown and inside and public and indent == 2 and DATA.match(stripped):
            member, _, words = stripped.partition("//")
            space = "::".join(s for s in spaces if s and s != "literals")
            found.append((space, inside, MEMBER + member.strip().rstrip(";,"), [words.lstrip("/< ")], []))
        comment = []
        if inside is None and indent == 0:
            started = CLASS.match(re.sub(r"^template <.*> (?=class|struct)", "", line))
            if started:
                inside, public = started[1], "class " not in line.split("{")[0].split(started[1])[0]
        elif line == "};":
            inside = None
        elif re.match(r"^ (public|private|protected):$", line):
            public = "public" in line
    return found


def text_of(comment):
    """Paragraphs as they are, examples as blocks, `@pre` in words."""
    out, paragraph = "", ""

    def end():
        nonlocal out, paragraph
        if paragraph:
            out += folded(prose(paragraph.strip())) + "\n\n"
        paragraph = ""
    for line in comment:
        if line.startswith("     "):
            if paragraph:
                end()
            out += line[1:] + "\n"
            continue
        if out.endswith("\n") and not out.endswith("\n\n") and out:
            out += "\n"
        line = line.strip()
        if not line:
            end()
        elif line.startswith("* "):  # an entry of a list
            end()
            paragraph = line
        elif line.startswith("@"):
            end()
            kind, _, rest = line[1:].partition(" ")
            paragraph = {"pre": "Required: ", "post": "Afterwards: "}.get(kind, "") + \
                (re.sub(r"^(\w+)", r"`\1`:", rest) if kind == "param" else rest)
        else:
            paragraph += " " + line
    end()
    return out.strip() + "\n"


def page(introduction, sections):
    reasons = {name for name, _ in all_reasons()}
    text = introduction
    for title, headers in sections:
        text += f"\n## {title}\n"
        for header in headers:
            listed = entries(header)
            if header.startswith("tensor/core/nn/") and header not in TRAINING:
                # The functions of tensors among them are on the other page.
                listed = [one for one in listed if not re.search(r"auto \w+\(", one[2])]
            if not listed:
                continue
            text += f"\n### espalier/{header}\n"
            for space, owner, declared, comment, others in listed:
                if declared.startswith("namespace"):  # about the header
                    text += "\n" + text_of(comment)
                    continue
                if declared.startswith(MEMBER):
                    if owner not in NOT_FOR_USERS:
                        words = prose(" ".join(comment).strip())
                        text += "" if text.endswith(LISTED) else "\n"
                        text += f"* `{declared[len(MEMBER):]}`" + (f": {words}" if words else "") + LISTED
                    continue
                name = name_in(declared)
                if owner in NOT_FOR_USERS or name in NOT_FOR_USERS and not owner:
                    continue
                before = (space + "::" if space else "") + (owner + "::" if owner else "")
                names = list(dict.fromkeys([name, *others]))
                text += "\n" + ", ".join(f"**`{before}{one}`**" for one in names)
                if declared not in (f"class {name}", f"struct {name}", f"enum class {name}"):
                    text += f" &nbsp; `{declared}`"
                text += "\n\n" + with_links(text_of(comment), reasons)
    return text.replace(LISTED, "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    wrong = False
    for name, sections, introduction in PAGES:
        path = os.path.join(ROOT, "docs", name)
        after = page(introduction, sections)
        if not options.check:
            with open(path, "w") as file:
                file.write(after)
            continue
        with open(path) as file:
            before = file.read()
        difference = list(difflib.unified_diff(before.splitlines(True), after.splitlines(True), path, "now"))
        sys.stdout.writelines(difference)
        if difference:
            print(f"docs/{name} is not what the headers say: run tests/support/reference.py")
            wrong = True
    return wrong


if __name__ == "__main__":
    sys.exit(main())
