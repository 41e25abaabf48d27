#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""What compiling costs: compile_time.py PART, on each compiler that is installed. Prints JSON lines.

include_core     seconds to include core.hpp, less those for an empty file (-fsyntax-only)
gpt              seconds for the GPT step, -O2 on a 2 x 2 mesh with 4 layers; -fsyntax-only with 48, on 16 x 16 and 64 x 32
devices          CPU seconds of g++ for the GPT step on 2 to 65,536 devices, -fsyntax-only, the least of three in turn; `uneven`: batch,
                 context and vocabulary divide on no mesh; peer: on two devices
gpt_memory       MB that g++ needs for the same, -O2
instantiations   template instantiations of the GPT step on each mesh and with 48 layers; peer: 2 x 2, 4 layers (clang's -ftime-trace)
constexpr_steps  the longest constant evaluation of the GPT step: the smallest -fconstexpr-steps that compiles, exactly; peer as above
unet3d           seconds for the training step of examples/unet3d on two devices, -O2
readme_WHAT      CPU seconds of g++ for README's program with MPI: WHAT is checked (-fsyntax-only), O1, O2, or compiled_checked,
                 compiled_O1, compiled_O2 with what the target espalier::compiled gives it (the compiled part, which is left
                 to the linker, and the precompiled header); peer: the same way, checked, O1 or O2, with the library as it was
                 before anybody worked on its weight, in turn; readme_memory: the most MB of these
long_programs    seconds for 500 instructions with default limits and half of clang's, for 5,000 with espalier::large_programs
"""
import functools
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
SOURCES = ROOT / "benchmarks" / "compile_time"
COMPILERS = [c for c in ["g++-12", "clang++-14", "clang++-19"] if shutil.which(c)]
MESHES = [(2, 2), (16, 16), (64, 32)]
CLANG_DEFAULT_STEPS = 1 << 20
# Layers and tail of unrolled.cpp that give 500 and 5,000 traced instructions; it says how many it has when it runs.
LENGTHS = {500: ["-DLAYERS=3", "-DTAIL=8"], 5000: ["-DLAYERS=34", "-DTAIL=1"]}
# The commit before anybody worked on what README's program weighs. It took 6.0 s checked, 14 at -O1 and 24 at -O2 where its
# floors were set: 3.5, 9 and 15 s, and 1.5, 3 and 5 s with the compiled part. Seconds differ by half between machines, and
# ratios of two compilations in turn do not, so floors.json has them as shares of what this commit takes.
BEFORE = "dc502b1"
LARGE_PROGRAMS = {"clang": ["-fconstexpr-steps=200000000", "-fbracket-depth=4096"],
                  "g++": ["-fconstexpr-ops-limit=2000000000", "-fconstexpr-loop-limit=16777216",
                          "--param=ggc-min-expand=10000"]}


class Failed(Exception):
    pass


def compile_once(compiler, source, *flags):
    """Seconds and the largest resident set in MB of one compilation."""
    seconds, _, megabytes = compile_measured(compiler, source, *flags)
    return seconds, megabytes


def compile_measured(compiler, source, *flags, root=ROOT):
    """Seconds, CPU seconds and the largest resident set in MB, with the library at `root`."""
    command = [compiler, "-std=c++20", "-Iinclude", *map(str, flags), str(source)]
    begin = time.perf_counter()
    process = subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True, env={**os.environ, "CCACHE_DISABLE": "1"})
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise Failed(f"does not compile: {' '.join(command)}\n{errors[:1500]}")
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, largest_child(usage)


def largest_child(usage):
    return usage.ru_maxrss * 1024 / 1e6


def report(row, value, unit, what="ours"):
    print(json.dumps({"row": row, "what": what, "value": round(value, 3), "unit": unit}), flush=True)


def say(text):
    """For people: collect.py passes lines that are no JSON on to stderr."""
    print(text, flush=True)


def include_core(folder):
    empty, one = folder / "empty.cpp", folder / "one.cpp"
    empty.write_text("")
    one.write_text(f'#include "{ROOT}/include/espalier/core.hpp"\n')
    for compiler in COMPILERS:
        pairs = [(compile_once(compiler, one, "-fsyntax-only")[0], compile_once(compiler, empty, "-fsyntax-only")[0]) for _ in range(5)]
        report(f"include_core/{compiler}", statistics.median(a for a, _ in pairs) - statistics.median(b for _, b in pairs), "s")


def defines(mesh, layers):
    return [f"-DDATA={mesh[0]}", f"-DMODEL={mesh[1]}", f"-DLAYERS={layers}"]


def variants():
    yield MESHES[0], 4
    yield MESHES[0], 48
    for mesh in MESHES[1:]:
        yield mesh, 4


def name_of(mesh, layers):
    return f"{mesh[0]}x{mesh[1]}_{layers}_layers"


def openmp_of(compiler, folder):
    """-fopenmp where the compiler has it: on Debian two versions of clang cannot have theirs side by side."""
    source = folder / "openmp.cpp"
    source.write_text("#include <omp.h>\n")
    try:
        compile_once(compiler, source, "-fopenmp", "-fsyntax-only")
        return ["-fopenmp"]
    except Failed:
        say(f"{compiler} is measured without OpenMP, which is not installed for it")
        return []


def gpt(folder):
    source = SOURCES / "gpt_step.cpp"
    for compiler in COMPILERS:
        flags = ["-O2", *openmp_of(compiler, folder), "-c", "-o", folder / "one.o", *defines(MESHES[0], 4)]
        report(f"compile_time/gpt_{name_of(MESHES[0], 4)}_O2/{compiler}", compile_once(compiler, source, *flags)[0], "s")
    for mesh, layers in variants():
        report(f"compile_time/gpt_{name_of(mesh, layers)}_syntax/g++-12", compile_once("g++-12", source, "-fsyntax-only", *defines(mesh, layers))[0], "s")


def devices(folder):
    meshes = [(1, 2), (2, 2), (4, 4), (16, 16), (64, 32), (128, 128), (256, 256)]
    least = {}
    for _ in range(3):
        for sizes in ("even", "uneven"):
            for mesh in meshes:
                flags = ["-fsyntax-only", *defines(mesh, 4), *(["-DUNEVEN"] if sizes == "uneven" else [])]
                taken = compile_measured("g++-12", SOURCES / "gpt_step.cpp", *flags)[1]
                least[sizes, mesh] = min(taken, least.get((sizes, mesh), taken))
    for (sizes, mesh), taken in least.items():
        row = f"compile_devices/{mesh[0] * mesh[1]}_{sizes}"
        report(row, taken, "s")
        report(row, least[sizes, meshes[0]], "s", "2 devices")


def unet3d(folder):
    source = SOURCES / "unet3d_step.cpp"
    for compiler in COMPILERS:
        flags = ["-O2", *openmp_of(compiler, folder), "-c", "-o", folder / "one.o"]
        report(f"compile_time_unet3d/{compiler}", compile_once(compiler, source, *flags)[0], "s")


def gpt_memory(folder):
    megabytes = compile_once("g++-12", SOURCES / "gpt_step.cpp", "-O2", "-fopenmp", "-c", "-o", folder / "one.o", *defines(MESHES[0], 4))[1]
    report("compile_memory/g++-12", megabytes, "MB")


def count_instantiations(folder, compiler, mesh, layers):
    trace = folder / "one.json"
    trace.unlink(missing_ok=True)
    compile_once(compiler, SOURCES / "gpt_step.cpp", "-c", "-O0", "-o", folder / "one.o", "-ftime-trace", "-ftime-trace-granularity=0", *defines(mesh, layers))
    events = json.loads(trace.read_text())["traceEvents"]
    return sum(e["name"] in ("InstantiateClass", "InstantiateFunction") for e in events if e["ph"] == "X")


def tree_before(folder):
    """The library and README's program as they were at BEFORE, or None where git does not have it."""
    archive = subprocess.run(["git", "archive", BEFORE, "include", "examples/mlp.cpp"], cwd=ROOT, capture_output=True)
    if archive.returncode:
        say(f"the peer is missing: git does not have {BEFORE} here ({archive.stderr.decode().strip()})")
        return None
    tree = folder / "before"
    tree.mkdir()
    subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True)
    return tree


def readme(folder, kind, memory=False):
    """README's program, as `kind` says: [compiled_]checked, O1 or O2; and with the library as it was, in turn three times."""
    compiler = next((c for c in ("g++-12", "g++") if shutil.which(c)), None)
    wrapper = shutil.which("mpicxx.openmpi") or shutil.which("mpicxx")
    if compiler is None or wrapper is None:
        raise Failed("README's program is measured with g++ and MPI")
    mpi = subprocess.run([wrapper, "--showme:compile"], capture_output=True, text=True, check=True).stdout.split()
    flags = ["-fopenmp", "-fno-math-errno", "-DESPALIER_USE_MPI=1", "-DESPALIER_USE_CBLAS=1", "-DESPALIER_USE_OPENBLAS=1",
             *(flag.replace("-I", "-isystem", 1) if flag.startswith("-I") else flag for flag in mpi)]
    way = kind.split("_")[-1]
    flags += {"checked": ["-fsyntax-only"], "O1": ["-O1", "-c", "-o", folder / "one.o"], "O2": ["-O2", "-c", "-o", folder / "one.o"]}[way]
    as_before = list(flags)
    if kind.startswith("compiled_"):
        flags += ["-DESPALIER_COMPILED=1"]
        header = folder / "ready.hpp"
        header.write_text("#include <espalier/espalier.hpp>\n")
        optimised = [flag for flag in flags if flag not in ("-fsyntax-only", "-c", "-o", folder / "one.o")]
        compile_once(compiler, header, *optimised, "-x", "c++-header", "-o", f"{header}.gch")
        flags += ["-include", header, "-Winvalid-pch", "-Werror=invalid-pch"]
    before = None if memory else tree_before(folder)
    most = 0
    for _ in range(3):
        _, seconds, megabytes = compile_measured(compiler, ROOT / "examples" / "mlp.cpp", *flags)
        most = max(most, megabytes)
        if not memory:
            report(f"readme_{kind}", seconds, "s")
        if before is not None:
            report(f"readme_{kind}", compile_measured(compiler, "examples/mlp.cpp", *as_before, root=before)[1], "s", BEFORE)
    return most


def readme_memory(folder):
    report("readme_memory", max(readme(folder, kind, True) for kind in ("checked", "O1", "O2")), "MB")


README_KINDS = [prefix + way for prefix in ("", "compiled_") for way in ("checked", "O1", "O2")]


def instantiations(folder):
    compiler = next((c for c in reversed(COMPILERS) if c.startswith("clang")), None)
    if compiler is None:
        raise Failed("counting instantiations needs clang")
    counts = {v: count_instantiations(folder, compiler, *v) for v in variants()}
    first = next(iter(counts.values()))
    for variant, count in counts.items():
        report(f"compile_instantiations/{name_of(*variant)}", count, "count")
        report(f"compile_instantiations/{name_of(*variant)}", first, "count", "2x2, 4 layers")


def compiles(compiler, steps, variant):
    try:
        compile_once(compiler, SOURCES / "gpt_step.cpp", "-fsyntax-only", f"-fconstexpr-steps={steps}", *defines(*variant))
        return True
    except Failed:
        return False


def fewest_steps(compiler, variant, likely=None):
    """The smallest limit that compiles, exactly: `likely` if that is it, otherwise by bisection."""
    if likely is not None and compiles(compiler, likely, variant) and not compiles(compiler, likely - 1, variant):
        return likely
    low, high = 0, CLANG_DEFAULT_STEPS
    if not compiles(compiler, high, variant):
        raise Failed(f"the GPT step ({name_of(*variant)}) needs more than {compiler}'s default limit of steps")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if compiles(compiler, middle, variant) else (middle, high)
    return high


def constexpr_steps(_folder):
    compilers = [c for c in COMPILERS if c.startswith("clang")]
    if not compilers:
        raise Failed("counting steps needs clang")
    for compiler in compilers:
        first = None
        for variant in variants():
            steps = fewest_steps(compiler, variant, first)
            first = first or steps
            report(f"compile_constexpr_steps/{name_of(*variant)}/{compiler}", steps, "count")
            report(f"compile_constexpr_steps/{name_of(*variant)}/{compiler}", first, "count", "2x2, 4 layers")


def long_programs(folder):
    source = SOURCES / "unrolled.cpp"
    for size, length in LENGTHS.items():
        for compiler in COMPILERS:
            family = "clang" if compiler.startswith("clang") else "g++"
            cases = {"default": []} if size == 500 else {"large_programs": LARGE_PROGRAMS[family]}
            if size == 500 and family == "clang":
                cases["half_limit"] = [f"-fconstexpr-steps={CLANG_DEFAULT_STEPS // 2}"]
            for name, flags in cases.items():
                program = folder / "unrolled"
                row = f"compile_long/{size}_instructions/{compiler}/{name}"
                try:
                    taken, megabytes = compile_once(compiler, source, "-O2", "-pthread", *length, "-o", program, *flags)
                except Failed as failure:
                    say(str(failure))
                    report(row, float("inf"), "s")
                    continue
                size_text = subprocess.run([program], capture_output=True, text=True).stdout.strip()
                say(f"{compiler} {name}: {size_text}; {taken:.1f} s, {megabytes:.0f} MB")
                report(row, taken, "s")


def main():
    parts = {f"readme_{kind}": functools.partial(readme, kind=kind) for kind in README_KINDS}
    parts |= {f.__name__: f for f in (readme_memory, include_core, gpt, devices, gpt_memory, unet3d, instantiations, constexpr_steps, long_programs)}
    if len(sys.argv) < 2 or sys.argv[1] not in parts:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        try:
            parts[sys.argv[1]](pathlib.Path(folder))
        except Failed as failure:
            sys.exit(str(failure))


if __name__ == "__main__":
    main()
