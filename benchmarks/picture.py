#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Draws the time of an all-reduce against its size, from what benchmarks/run collectives measured.

    benchmarks/picture.py build/benchmarks/results_collectives.json docs/images/all_reduce_time.svg
"""
import json
import math
import statistics
import sys

ROW = "nics_400_400_100_400/all_reduce/"
TITLE = "All-reduce on four hosts with network cards of 400, 400, 100 and 400 Mbit/s"
WIDTH, HEIGHT = 760, 470
LEFT, RIGHT, TOP, BOTTOM = 74, 30, 44, 50
# Name, colour, dashes: told apart without colours by their markers, too.
LINES = {"Open MPI, its choice": ("#c0504d", "", "square"), "Open MPI, best forced": ("#d8962c", "", "diamond"),
         "Espalier": ("#1f6f8b", "", "circle"), "bound of the probed rates": ("#555555", "6 4", None)}


def read(path):
    """Seconds by line and size."""
    lines = {name: {} for name in LINES}
    with open(path) as file:
        rows = json.load(file)["rows"]
    for row in rows:
        if not row["row"].startswith(ROW):
            continue
        size, beside = row["row"][len(ROW):].split("/")
        seconds = {what: statistics.median(line["value"] for line in taken) * 1e-6 for what, taken in row["samples"].items()}
        ours = seconds.pop("ours")
        if not seconds:
            continue
        name = {"default": "Open MPI, its choice", "best": "Open MPI, best forced", "bound": "bound of the probed rates"}[beside]
        lines[name][int(size)] = min(seconds.values())
        lines["Espalier"][int(size)] = ours
    if not any(lines.values()):
        sys.exit(f"{path} has no rows {ROW}*: run benchmarks/run collectives first")
    return lines


def text_of(value, units):
    """A power of 2 or 10 with its unit."""
    for factor, unit in units:
        if value >= factor * 0.999:
            return f"{value / factor:.0f} {unit}"
    return str(value)


def draw(lines):
    sizes = sorted({size for line in lines.values() for size in line})
    times = [time for line in lines.values() for time in line.values()]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))

    def x(size):
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(size / sizes[0]) / max(1e-9, math.log(sizes[-1] / sizes[0]))

    def y(time):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (math.log10(time) - low) / (high - low)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" fill="#333">',
           f'<title>{TITLE}</title>', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{WIDTH / 2:.0f}" y="24" font-size="14" text-anchor="middle">{TITLE}</text>']
    for power in range(low, high + 1):
        at = y(10 ** power)
        out += [f'<line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}" stroke="#ddd"/>',
                f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{text_of(10.0 ** power, ((1, "s"), (1e-3, "ms"), (1e-6, "us")))}</text>']
    for size in sizes:
        at = x(size)
        out += [f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#eee"/>',
                f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{text_of(size, ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")))}</text>']
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 10}" text-anchor="middle">size of the array; both axes logarithmic</text>')
    for number, (name, (colour, dashes, marker)) in enumerate(LINES.items()):
        points = [(x(size), y(time)) for size, time in sorted(lines[name].items())]
        if not points:
            continue
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"' + (f' stroke-dasharray="{dashes}"' if dashes else "") + "/>")
        key = TOP + 18 + 20 * number
        out.append(f'<line x1="{LEFT + 16}" y1="{key}" x2="{LEFT + 46}" y2="{key}" stroke="{colour}" stroke-width="2"' + (f' stroke-dasharray="{dashes}"' if dashes else "") + "/>")
        out.append(f'<text x="{LEFT + 54}" y="{key + 4}">{name}</text>')
        for px, py in points + [(LEFT + 31, key)]:
            if marker == "circle":
                out.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="{colour}"/>')
            elif marker:
                turn = f' transform="rotate(45 {px:.1f} {py:.1f})"' if marker == "diamond" else ""
                out.append(f'<rect x="{px - 3.5:.1f}" y="{py - 3.5:.1f}" width="7" height="7" fill="{colour}"{turn}/>')
    return "\n".join([*out, "</svg>", ""])


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    picture = draw(read(sys.argv[1]))
    with open(sys.argv[2], "w") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
