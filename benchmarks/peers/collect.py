#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Runs the rows of benchmarks/floors.json, ours and the peer in turn, and prints one table. benchmarks/run calls it.

A program prints JSON lines {"row": ..., "what": ..., "value": ..., "unit": ...}; `what` is "ours" or the peer's name.
Other lines are passed on to stderr. Exit status: 0 if every requirement was met, 1 if not.
"""
import argparse
import fnmatch
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
APART = 1.6  # times as far apart are two processors that count as equally far apart, at most
MORE_ROUNDS = 4  # at most, of programs that never met the same distance
LOWER_IS_BETTER = {"s", "ms", "us", "ns", "B", "KiB", "MiB", "GiB", "kB", "MB", "GB", "count"}
TIMEOUT = 900


class Failed(Exception):
    """A command that did not end well, and the lines that it had printed by then."""

    def __init__(self, text, lines=()):
        super().__init__(text)
        self.lines = list(lines)


def busy_cores(interval=0.3):
    """How many cores other programs use right now (this one sleeps)."""
    def used():
        with open("/proc/stat") as file:
            fields = [int(x) for x in file.readline().split()[1:9]]
        return sum(fields) - fields[3] - fields[4], sum(fields)
    begin = used()
    time.sleep(interval)
    end = used()
    return os.cpu_count() * (end[0] - begin[0]) / max(1, end[1] - begin[1])


def is_quiet(patience):
    """Waits up to `patience` seconds for the machine to be idle; threads that wait for each other suffer most from company."""
    deadline = time.monotonic() + patience
    while busy_cores() > 0.15:
        if time.monotonic() > deadline:
            return False
        time.sleep(1)
    return True


def launch(command, threads, ranks, pinned=None, timeout=TIMEOUT):
    """Runs a command on `pinned` cores (default: one a thread) and returns its JSON lines."""
    program = shutil.which(command[0])
    if not program:
        raise Failed(f"{os.path.relpath(command[0], ROOT) if os.path.isabs(command[0]) else command[0]} is not there")
    cores = sorted(os.sched_getaffinity(0))
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads), "OMP_DYNAMIC": "false",
                   "LAB_TIMEOUT": str(timeout - 15)}  # before ours, so that tests/lab/lab takes its hosts down
    if ranks:
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun") or "mpirun"
        place = ["--map-by", f"slot:PE={threads}", "--bind-to", "core"] if ranks * threads <= len(cores) else ["--oversubscribe", "--bind-to", "none"]
        command = [mpirun, *root, *place, "-n", str(ranks), *command]
    else:
        command = ["taskset", "-c", ",".join(map(str, cores[:pinned or threads])), *command]
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, timeout=timeout)
    except subprocess.TimeoutExpired as expired:
        printed = expired.stdout or ""
        printed = printed.decode(errors="replace") if isinstance(printed, bytes) else printed
        raise Failed(f"{os.path.basename(program)} took more than {timeout} s", read_lines(printed)) from None
    lines = read_lines(done.stdout)
    if done.returncode == 77:
        raise Failed(f"{os.path.basename(program)} was skipped: this machine lacks what it needs (see above)")
    if done.returncode:
        raise Failed(f"{os.path.basename(program)} ended with {done.returncode}", lines)
    return lines


def read_lines(printed):
    lines = []
    for line in printed.splitlines():
        try:
            parsed = json.loads(line)
            parsed["row"], parsed["what"], parsed["value"], parsed["unit"]
            lines.append(parsed)
        except (ValueError, TypeError, KeyError):
            print(line, file=sys.stderr)
    return lines


def spread(specs):
    """Rows with `each`, once for each of `count` files, at equal distances in the order of the lengths of their names, then of the names."""
    for spec in specs:
        if "each" not in spec:
            yield spec
            continue
        files = sorted(ROOT.glob(spec["each"]["files"]), key=lambda f: (len(f.name), f.name))
        count = min(spec["each"].get("count", len(files)), len(files))
        for k in range(count):
            file = files[(2 * k + 1) * len(files) // (2 * count)]
            yield {**spec, "row": spec["row"].format(each=file.stem), "file": str(file)}


def measure(spec, patience):
    """All samples of a row's commands, {row: {what: [lines]}}, what went wrong, as a function of a row's name, and whether
    the machine was quiet."""
    lab = [f"{ROOT}/tests/lab/lab", *WORDS["labs"][spec["lab"]], "--"] if "lab" in spec else []

    def filled(command, part):
        places = {**WORDS, "bin": BIN, "peers": PEERS, "here": HERE, "root": ROOT, "row": spec["row"], "name": spec["row"].removesuffix("/*"),
                  "file": spec.get("file"), "part": part}
        return [word.format(**places) for word in lab + command]

    commands = [(spec["ours"], spec.get("threads", 1), spec.get("ranks"))]
    commands += [(c, spec.get("peer_threads", spec.get("threads", 1)), spec.get("peer_ranks")) for c in spec.get("peer", [])]
    cores = spec.get("cores", os.cpu_count() if lab else None)
    patience = min(patience, 5) if lab else patience  # rates of hundreds of Mbit/s are kept beside other programs, too
    samples, quiet, rows_in = {}, True, {}
    failures, refusals, whats_of, left_out = {}, {}, {}, set()
    parts = WORDS[spec["parts"]] if "parts" in spec else [None]

    def keep(line, place, part):
        # One peer may have several ways (a style, a configuration): each is a candidate of its own.
        what = line["what"] if line["what"] == "ours" else " ".join(filter(None, [line["what"], line.get("style")]))
        if line["value"] is None:
            refusals.setdefault(line["row"], []).append(f"{what} cannot do it: {line.get('reason', 'it does not say why')}")
            return
        samples.setdefault(line["row"], {}).setdefault(what, []).append(line)
        whats_of.setdefault(place, set()).add((line["row"], what))
        rows_in.setdefault(part, set()).add(line["row"])

    def run(part):
        nonlocal quiet
        for place, (command, threads, ranks) in enumerate(commands):
            if place in left_out:
                continue
            try:
                quiet = is_quiet(patience if quiet else 0) and quiet
                lines = launch(filled(command, part), threads, ranks, cores, spec.get("timeout", TIMEOUT))
            except Failed as failure:
                lines = failure.lines
                words = " ".join(os.path.basename(word) for word in command[1:4])  # rows.py jax attention
                failures.setdefault(place, []).append(f"{failure} ({words})" if place > 0 and words else str(failure))
                left_out.add(place)
            for line in lines:
                keep(line, place, part)

    def is_slow(place):
        """Whether other peers are faster than this one by `slow`, and more, in all rows: it is not measured again."""
        def far_behind(row, what):
            others = [median_of(lines) for other, lines in samples[row].items() if other not in ("ours", what) and not is_shown(spec, other)]
            return others and median_of(samples[row][what]) > spec["slow"] * min(others)
        return place in whats_of and all(far_behind(*pair) for pair in whats_of[place])

    def troubles(row):
        """A peer that failed is missing only where it had not reported by then."""
        missing = [text for place, texts in failures.items() for text in texts if place == 0 or row not in {r for r, _ in whats_of.get(place, ())}]
        return missing + refusals.get(row, [])

    for part in parts * (ROUNDS or spec.get("rounds", 1)):
        run(part)
        if "slow" in spec:
            left_out.update(place for place in range(1, len(commands)) if is_slow(place))
    for part in parts * MORE_ROUNDS:
        if any(alike(samples[row]) is None for row in rows_in.get(part, [])):
            run(part)
    return samples, troubles, quiet


def is_shown(spec, what):
    """Whether a peer is printed and not compared with."""
    return any(fnmatch.fnmatchcase(what, pattern) for pattern in spec.get("shown", []))


def median_of(lines):
    return statistics.median(line["value"] for line in lines)


def alike(samples):
    """The samples of a row that were taken while the processors were equally far apart, where lines say how far: of ours
    and of each peer as many as there can be. None where ours and a peer never met the same."""
    if not samples or any("apart" not in line for lines in samples.values() for line in lines):
        return samples
    best = None
    for anchor in (line["apart"] for line in samples.get("ours", [])):
        near = {what: [l for l in lines if max(l["apart"], anchor) <= APART * min(l["apart"], anchor)] for what, lines in samples.items()}
        count = min(len(lines) for lines in near.values())
        if count > (best[0] if best else 0):
            best = (count, near)
    return best[1] if best else None


def judge(spec, ours, peer, unit):
    """Ratio to show, requirement as text, and whether it was met (None: not judged)."""
    ratio = None
    if peer is not None and ours is not None:
        as_they_are = unit not in LOWER_IS_BETTER or any(key in spec for key in ("at_most_ratio", "apart", "equal", "at_most"))
        top, bottom = (ours, peer) if as_they_are else (peer, ours)
        ratio = top / bottom if bottom else (1.0 if top == bottom else float("inf"))
    if "floor" in spec:
        met = ratio is not None and ratio >= spec["floor"]
        if spec.get("within") is None:
            return ratio, f">= {spec['floor']:.2f}", met
        near = ratio is not None and abs(ours - peer) <= spec["within"]
        return ratio, f">= {spec['floor']:.2f} or {spec['within']:g} {unit}", met or near
    if "at_most_ratio" in spec:
        met = ratio is not None and ratio <= spec["at_most_ratio"]
        if spec.get("within") is None:
            return ratio, f"<= {spec['at_most_ratio']:.2f}" + (f" ({spec['note']})" if "note" in spec else ""), met
        near = ratio is not None and abs(ours - peer) <= spec["within"]
        return ratio, f"<= {spec['at_most_ratio']:.2f} or {spec['within']:g} {unit}", met or near
    if "apart" in spec:
        return ratio, f"within {100 * spec['apart']:.0f} %", ratio is not None and abs(ratio - 1) <= spec["apart"]
    if "equal" in spec:
        return ratio, "equal", ours is not None and peer is not None and ours == peer
    if "at_most" in spec:
        return ratio, f"<= {spec['at_most']:g} {unit}".strip(), ours is not None and ours <= spec["at_most"]
    return ratio, spec.get("note", ""), None


def number(value):
    return "" if value is None else f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def losses_apart(samples):
    """The largest relative difference between our losses and a peer's, step by step, where both print them."""
    def of(lines):
        return next((l["losses"] for l in lines if "losses" in l), [])
    ours = of(samples.get("ours", []))
    pairs = [(a, b) for what, lines in samples.items() if what != "ours" for a, b in zip(ours, of(lines))]
    return max((abs(a - b) / abs(b) for a, b in pairs), default=None)


def magnitudes_apart(samples):
    """The largest relative difference between the mean magnitudes of our result and a peer's, where both print them."""
    def of(lines):
        return next((l["mean_magnitude"] for l in lines if "mean_magnitude" in l), None)
    ours = of(samples.get("ours", []))
    theirs = [of(lines) for what, lines in samples.items() if what != "ours"]
    if ours is None:
        return None
    return max((abs(ours - value) / max(abs(value), 1e-3) for value in theirs if value is not None), default=None)


def by_name(table, name):
    """What a table of patterns says of a row: the first that fits."""
    return next((value for pattern, value in table.items() if fnmatch.fnmatchcase(name, pattern)), None)


def nearest(machine, kind, threads, arrays):
    """The machine's rate of a kind on so many threads, of arrays as large as possible as these, and how large they were."""
    fitting = [line for line in machine if line.get("kind") == kind and line["threads"] == threads]
    if not fitting:
        return None
    return min(fitting, key=lambda line: abs(math.log(max(1, line["arrays"]) / max(1, arrays))))


def bound_of(line, milliseconds, threads, machine):
    """What binds a row, and the share of that which it reaches: of the times that the machine's own rates, and its
    program where all data are at hand, say that it takes at least, the longest."""
    least = {}
    if "bytes" in line:
        kind = "read" if "only_reads" in line else "copy"
        found = nearest(machine, kind, threads, line["arrays"])
        if found:
            least[found["what"].removesuffix("s").removesuffix(f" {threads} thread")] = line["bytes"] / found["value"] * 1e-6
    if "flops" in line:
        found = nearest(machine, "multiply-adds", threads, 0)
        if found:
            least["multiply-adds"] = line["flops"] / found["value"] * 1e-6
    if "instruction_ms" in line:
        least["instructions"] = line["instruction_ms"]
    if not least or not milliseconds:
        return None
    what = max(least, key=least.get)
    return {"what": what, "share": least[what] / milliseconds, "least_ms": least}


def mean_of(spec, rows):
    """A row that is the geometric mean of others, and of their ratios: of those that have one."""
    parts = [row for row in rows if any(fnmatch.fnmatchcase(row["row"], pattern) for pattern in spec["mean_of"])]
    measured = [row for row in parts if row["ratio"] is not None]
    missing = [f"without {row['row']}, which was not measured" for row in parts if row["ratio"] is None] or ([] if parts else ["none of its rows was measured"])
    ours, peer = (statistics.geometric_mean(row[what] for row in measured) if measured else None for what in ("ours", "peer"))
    unit = parts[0]["unit"] if parts else ""
    ratio, requirement, met = judge(spec, ours, peer, unit)
    troubles = [*missing, *dict.fromkeys(f"{row['row']}: {trouble}" for row in parts for trouble in row["troubles"])]
    peer_missing = bool(met and troubles)
    return {"row": spec["row"], "ours": ours, "peer": peer, "peer_name": f"mean of {len(measured)} rows", "unit": unit, "ratio": ratio,
            "requirement": requirement, "met": met and not peer_missing, "peer_missing": peer_missing, "troubles": troubles, "losses_apart": None,
            "others": {}, "bound": None, "samples": {}, "quiet": all(row["quiet"] for row in parts)}


def rows_of(spec, samples, troubles_of, machine):
    names = [name for name in samples if fnmatch.fnmatchcase(name, spec["row"])]
    for name in names or [spec["row"]]:
        troubles = troubles_of(name)
        comparable = alike(samples.get(name, {}))
        if comparable is None:
            comparable, troubles = samples[name], [*troubles, "the processors were never as far apart for ours as for a peer"]
        medians = {what: median_of(lines) for what, lines in comparable.items()}
        units = {l["unit"] for lines in samples.get(name, {}).values() for l in lines}
        unit = next(iter(units), "")
        ours = medians.pop("ours", None)
        best = min if unit in LOWER_IS_BETTER else max
        judged = {what: value for what, value in medians.items() if not is_shown(spec, what)}
        what = best(judged, key=judged.get) if judged else ""
        peer = judged.get(what)
        floor = by_name(spec.get("floors", {}), name)
        wanted = spec if floor is None else {**spec, "floor": floor}
        ratio, requirement, met = judge({**wanted, "within": by_name(spec.get("within", {}), name)}, ours, peer, unit)
        # A peer that could not run may have been the faster one: the row counts as not met, and says why.
        peer_missing = bool(met and troubles)
        met = met and not peer_missing
        if len(units) > 1:
            met, peer_missing, troubles = False, False, [*troubles, f"ours and the peer have different units: {', '.join(sorted(units))}"]
        apart = losses_apart(samples.get(name, {}))
        if apart is not None and not apart < 1e-3:
            met, peer_missing, troubles = False, False, [*troubles, f"ours and the peer compute different things: their losses differ by {apart:.1e}"]
        apart_in_size = magnitudes_apart(samples.get(name, {}))
        if apart_in_size is not None and not apart_in_size < 1e-3:
            met, peer_missing = False, False
            troubles = [*troubles, f"ours and the peer compute different things: the mean magnitudes of their results differ by {apart_in_size:.1e}"]
        own = samples.get(name, {}).get("ours", [])
        bound = bound_of(own[-1], ours, spec.get("threads", 1), machine) if own and unit == "ms" else None
        yield {"row": name, "ours": ours, "peer": peer, "peer_name": what, "unit": unit, "ratio": ratio, "requirement": requirement,
               "met": met, "peer_missing": peer_missing, "troubles": troubles, "losses_apart": apart,
               "others": {w: v for w, v in medians.items() if w != what}, "bound": bound, "samples": samples.get(name, {})}


def table(rows):
    bounded = any(r["bound"] for r in rows)
    header = ["row", "ours", "peer", "unit", "ratio", "floor", "", *(["bound by", "share"] if bounded else []), "peer's name"]
    verdict = {True: "met", False: "NOT MET", None: ""}

    def bound(row):
        return [row["bound"]["what"], f"{row['bound']['share']:.2f}"] if row["bound"] else ["", ""]
    body = [[r["row"], number(r["ours"]), number(r["peer"]), r["unit"], "" if r["ratio"] is None else f"{r['ratio']:.3f}", r["requirement"],
             ("PEER MISSING" if r["peer_missing"] else verdict[r["met"]]) + ("" if r["quiet"] else " (noisy)"),
             *(bound(r) if bounded else []), r["peer_name"]] for r in rows]
    widths = [max(len(line[i]) for line in [header, *body]) for i in range(len(header))]
    right = {1, 2, 4, 8} if bounded else {1, 2, 4}
    for line in [header, ["-" * w for w in widths], *body]:
        print("  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths))).rstrip())
    if bounded:
        print("bound by: what takes longest of what a row does at least, and its share of our time: read, copy: its bytes at the rate\n"
              "  that the machine has for arrays of about this size; multiply-adds: its operations at the rate of registers; instructions:\n"
              "  our own program's time where all data fit in the second cache, so a limit of the code, not of the machine")


def main():
    global BIN, PEERS, WORDS, ROUNDS
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("suite")
    parser.add_argument("rows", nargs="*", help="names or patterns; all by default")
    parser.add_argument("--build", required=True, help="folder with bin/ and peers/")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet machine before a row is marked noisy")
    parser.add_argument("--rounds", type=int, help="for every row, instead of its own")
    args = parser.parse_args()
    ROUNDS = args.rounds
    BIN, PEERS = (str(pathlib.Path(args.build, f).resolve()) for f in ("bin", "peers"))
    read = json.loads((HERE.parent / "floors.json").read_text())
    WORDS = read.pop("words", {})
    suites = {name: rows for name, rows in read.items() if name != "comment"}
    if args.suite not in suites:
        sys.exit(f"no suite is called {args.suite}; there are: {', '.join(suites)}")

    def wanted(spec):
        return not args.rows or any(fnmatch.fnmatchcase(spec["row"], r) or fnmatch.fnmatchcase(spec["row"], r + "/*") or spec["row"].startswith(r) for r in args.rows)

    all_specs = list(spread(suites[args.suite]))
    specs = [s for s in all_specs if wanted(s)]
    if not specs:
        sys.exit(f"no row of {args.suite} matches; there are:\n  " + "\n  ".join(s["row"] for s in all_specs))
    load = busy_cores(1.0)
    print(f"{len(os.sched_getaffinity(0))} cores, of which others use {load:.2f}")
    machine = []
    try:
        machine = launch([f"{PEERS}/ceiling", str(min(2, len(os.sched_getaffinity(0))))], min(2, os.cpu_count()), None)
    except Failed as failure:
        print(failure, file=sys.stderr)
    for line in machine:
        print(f"  {line['what']:24} {line['value']:8.1f} {line['unit']}")
    rows = []
    for i, spec in enumerate(specs, 1):
        begin = time.monotonic()
        if "mean_of" in spec:
            rows.append(mean_of(spec, rows))
            continue
        print(f"[{i}/{len(specs)}] {spec['row']}", end="", file=sys.stderr, flush=True)
        samples, troubles, quiet = measure(spec, args.patience)
        rows += [{**row, "quiet": quiet} for row in rows_of(spec, samples, troubles, machine)]
        print(f": {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    print()
    table(rows)
    for row in rows:
        for trouble in dict.fromkeys(row["troubles"]):
            print(f"{row['row']}: {trouble}")
        if row["losses_apart"] is not None:
            print(f"{row['row']}: losses of the first steps agree to {row['losses_apart']:.1e} relative")
        if row["others"]:
            print(f"{row['row']}: also measured: " + ", ".join(f"{w} {number(v)} {row['unit']}" for w, v in row["others"].items()))
        for line in row["samples"].get("ours", [])[-1:]:
            shares = {key.removeprefix("share_in_"): value for key, value in line.items() if key.startswith("share_in_")}
            if shares:
                print(f"{row['row']}: of our time in " + ", ".join(f"{what} {100 * share:.0f} %" for what, share in shares.items()))
            if "peak_bytes_per_device" in line:
                print(f"{row['row']}: peak_bytes_per_device {line['peak_bytes_per_device'] / (1 << 20):.1f} MiB, the process grew by {line['grown_bytes'] / (1 << 20):.1f} MiB")
    pathlib.Path(args.build, f"results_{args.suite}.json").write_text(json.dumps({"busy_cores": load, "machine": machine, "rows": rows}, indent=1))
    sys.exit(any(row["met"] is False for row in rows))


if __name__ == "__main__":
    main()
