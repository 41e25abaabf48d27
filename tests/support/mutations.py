#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Breaks the library in one line at a time and says which test notices: the fuzz that executes random programs, or, of
what it draws too rarely or what changes bytes alone, the next of TESTS.

    tests/support/mutations.py BUILD [number ...]
    tests/support/mutations.py --check

BUILD: a folder configured with the preset `default` and ESPALIER_TEST_TOGETHER=OFF, whose flags are used. A mutation
that no longer fits its file is an error: what it breaks has moved, and the list below has to follow. `--check` looks for
that alone.
"""
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = "20000"
TESTS = ["fuzz/execute", "fuzz/windows", "fuzz/stencils", "unit/partitioner_cases", "unit/partition_around", "unit/windows",
         "unit/partition_rules", "unit/partition_memory", "unit/partition_shifts", "unit/gradients_scan", "unit/random_programs",
         "spmd/travelling_together"]

SCHEDULER = "tensor/core/partition/scheduler.hpp"
SHARING = "tensor/core/partition/buffer_sharing.hpp"
HALOS = "tensor/core/partition/halo_room.hpp"
OVERWRITTEN = "tensor/core/partition/overwritten_values.hpp"
LIVES = "tensor/core/partition/buffer_lives.hpp"
COPIES = "tensor/core/partition/copy_order.hpp"
ARENA = "tensor/core/partition/arena.hpp"
LOWER = "tensor/core/partition/lower.hpp"
STEPS = "tensor/run/execute/steps.hpp"
DEVICE = "tensor/run/execute/device.hpp"
MESSAGES = "tensor/run/execute/message_tables.hpp"
CHAIN = "tensor/run/execute/chain.hpp"
ITEMS = "tensor/run/execute/item_executor.hpp"
ROW_PRODUCT = "tensor/run/kernels/row_product.hpp"
ROW_REGIONS = "tensor/core/partition/row_regions.hpp"
ROWS_AGAIN = "tensor/core/program/recompute_rows.hpp"
LOOPS = "tensor/core/program/reverse_sweep.hpp"
NORMALISE = "tensor/core/program/normalise.hpp"
HOIST = "tensor/core/program/hoist.hpp"
PARTITION = "tensor/core/partition/partition.hpp"
SUMS = "tensor/core/partition/partial_sums.hpp"
OPEN = "tensor/core/partition/open_sums.hpp"
FINER = "tensor/core/program/finer_sums.hpp"
BORDERS = "tensor/core/partition/region_borders.hpp"
AFTER_LOOPS = "tensor/core/partition/reduce_after_loops.hpp"
MERGE = "tensor/core/partition/merge_collectives.hpp"
TRANSFER = "tensor/core/partition/transfer.hpp"
BOXES = "tensor/core/partition/boxes.hpp"
WINDOW = "tensor/core/graph/window.hpp"
LOCAL = "tensor/core/partition/local_program.hpp"
CHOICE = "tensor/core/partition/factor_choice.hpp"
RESHAPE = "tensor/core/ops/reshape.hpp"
JOIN = "tensor/core/partition/join_halos.hpp"
FRAMES = "tensor/core/program/keep_frames.hpp"
CARRIED = "tensor/core/partition/carried_in_place.hpp"
SHIFTS = "tensor/core/partition/shifted_rows.hpp"
SHIFTED_KERNEL = "tensor/run/kernels/shifted_rows.hpp"
BY_ROWS = "tensor/core/partition/sums_by_rows.hpp"

MUTATIONS = [
    (SCHEDULER, "role != fused_role::wide || root(group_[source]) == group", "role != fused_role::wide"),
    (SCHEDULER, "role != fused_role::wide || root(group_[source]) == group", "root(group_[source]) == group"),
    (SCHEDULER, "    while (is_shifted(o)) o = g_[o].operand[0];\n", ""),
    (SHIFTS, "(theirs.wraps || mine.wraps)", "theirs.wraps"),
    (SHIFTS, "return above_[operand] < shifted_rows::most;", "return true;"),
    (SHIFTED_KERNEL, "smaller_of(mine.size, held.size - by) - p.by", "mine.size - p.by"),
    (SHIFTED_KERNEL, "larger_of<std::int64_t>(0, -by) - p.by", "-p.by"),
    (SHIFTED_KERNEL, "d.of[1] = {turn, mine.size, by - extent};", "d.of[1] = {turn, mine.size, by};"),
    (SHIFTED_KERNEL, "  clear(done, last);\n", ""),
    (SHIFTED_KERNEL, "    clear(done, from);\n", ""),
    (CARRIED, "    if (overwritten_.last_read(carry) > at) return false;\n", ""),
    (CARRIED, "overwritten_.last_read(other) > at", "false"),
    (CARRIED, "(operand != carry || is_written)", "operand != carry"),
    (CARRIED, "(operand != carry || is_written)", "is_written"),
    (CARRIED, " || chain.reads_again", ""),
    (BY_ROWS, "reduction_attributes{dims >> 1, kind}", "reduction_attributes{dims >> 2, kind}"),
    (AFTER_LOOPS, "    if (axes == 0) return value;", "    if (axes >= 0) return value;"),
    (SCHEDULER, "for (int id = g.size - 1; id >= 0; --id) find_stored(id, shifts);", "for (int id = 0; id < g.size; ++id) find_stored(id, shifts);"),
    (SCHEDULER, "i.op->fuse == fusion::broadcast && !stored_[id] && g_[o].op->facts.values", "i.op->fuse == fusion::broadcast && g_[o].op->facts.values"),
    (SCHEDULER, "for (const int source : {o, source_of(o)}) {\n        const int group = open_group(source);\n        if (group >= 0 && group != except)", "for (const int source : {o}) {\n        const int group = open_group(source);\n        if (group >= 0 && group != except)"),
    (SCHEDULER, ": role_[source] == role;", ": true;"),
    (SCHEDULER, "if (broadcast_target(b, d) != d) return false;", ""),
    (SCHEDULER, "from.rank > 1 && i.op->linear == linearity::first)", "from.rank > 1)"),
    (SCHEDULER, "if (role_[id] == fused_role::accumulator) result_.stored[id] = true;", ""),
    (LIVES, "      live(root, program_.ends_at(region));\n    }\n  }\n\n  /// Reads of virtual", "    }\n  }\n\n  /// Reads of virtual"),
    (LIVES, "        live(buffers_.root[id], program_.begins_at(one.first));\n", ""),
    (LIVES, "if (last_[argument] < written) return true;", "if (last_[argument] <= written) return true;"),
    (LIVES, "if (reads_through(o, argument)) return false;", ""),
    (LIVES, "if (o == argument && overwritten) return false;", ""),
    (SHARING, " &&\n                       structure_of(g_[value]) != structure::region_parameter;", ";"),
    (SHARING, "      move(other, id, region, bytes_of(g_[value]));\n", ""),
    (COPIES, "if (writer_[target] != id || unread_[target] > 0) return;", "if (writer_[target] != id) return;"),
    (COPIES, "      saved[id] = true;\n", ""),
    (SHARING, "buffers_.copied[id] = buffers_.root[i.operand[1]] != buffers_.root[id];", "buffers_.copied[id] = false;"),
    (ARENA, "if (gap >= bytes && (best < 0 || gap < best_gap)) {", "if (gap > 0 && (best < 0 || gap < best_gap)) {"),
    (SHARING, "i.region, bytes_of(i));", "i.region, bytes_of(g_[i.operand[0]]));"),
    (SHARING, "where.outer = g_[into].operand[0];", "where.outer = -1;"),
    (LIVES, "if (i.operand_count == 2 && root == i.operand[1]) continue;", "if (root >= 0 && structure_of(g_[root]) == structure::argument) continue;"),
    (OVERWRITTEN, "home != region || last_read_[root] > at", "home != region"),
    (OVERWRITTEN, "if (home != region || last_read_", "if (last_read_"),
    (OVERWRITTEN, "      if (last_read_[other] > at) return false;\n", ""),
    (OVERWRITTEN, " &&\n           home_[buffers_.root[i.operand[0]]] != i.region", ""),
    (OVERWRITTEN, "if (structure_of(g_[root]) == structure::argument && !donated_[root]) return false;", ""),
    (LOWER, "last_use_[source] != n || slot_[source] < 0) return;", "slot_[source] < 0) return;"),
    (LOWER, "if (size_of(g_[source_of(g_.operand_at(i, k))].type) == size_of(i.type))\n        release(source_of(g_.operand_at(i, k)), n);", "release(source_of(g_.operand_at(i, k)), n);"),
    (LOWER, "if (inner > 1) limit_ = greatest_common_divisor(limit_, inner);", ""),
    (LOWER, "if (from.shape[d] == 1) continue;", ""),
    (LOWER, "index.repeat = i.shape.product(along + 1, row_dims);", "index.repeat = i.shape.product(along, row_dims);"),
    (LOWER, "    dense_ = false;\n    fused_source source;\n    source.value = inner;", "    fused_source source;\n    source.value = inner;"),
    (LOWER, "while (limit_ % rows != 0) --rows;", ""),
    (STEPS, "    add_copies();\n    const int begin = open_.back();", "    const int begin = open_.back();"),
    (STEPS, "if (of.goes_on >= 0) add(step_kind::loop_test, -1, of.goes_on, of.first);\n    add_copies();", "add_copies();\n    if (of.goes_on >= 0) add(step_kind::loop_test, -1, of.goes_on, of.first);"),
    (STEPS, "structure_of(t_.code[id]) == structure::loop_sum || is_read_beyond(id)", "is_read_beyond(id)"),
    (STEPS, "structure_of(t_.code[id]) == structure::loop_sum || is_read_beyond(id)", "structure_of(t_.code[id]) == structure::loop_sum"),
    (STEPS, "for (const bool saving : {true, false}) {", "for (const bool saving : {false, true}) {"),
    (STEPS, "} else if (t_.copied[id]) {", "} else {"),
    (DEVICE, "return is_reverse ? limit_[static_cast<std::size_t>(region)] - 1 : 0;", "return 0;"),
    (DEVICE, "return limit > 0 ? n + 1 : s.jump;", "return n + 1;"),
    (DEVICE, "const bool is_over = next < 0 || next >= limit_", "const bool is_over = next >= limit_"),
    (DEVICE, "if (whole_number(s.source) == 0) limit_[static_cast<std::size_t>(s.region)] = 0;", ""),
    (DEVICE, "iteration(s.region) * bytes_of(t_.code[s.source]);", "iteration(s.region) * bytes_of(t_.code[s.target]);"),
    (CHAIN, "call.rows = smaller_of(c.block_rows, last - row);", "call.rows = c.block_rows;"),
    (CHAIN, "return run_blocks(u, triangle, steps, first, last, scratch", "return run_blocks(u, triangle, steps, first / chain.block_rows * chain.block_rows, last / chain.block_rows * chain.block_rows, scratch"),
    (ITEMS, "call.begins_sum = rows.first_row == 0 && rows.item % items_of_y == 0;", "call.begins_sum = rows.first_row == 0;"),
    (ROW_PRODUCT, "sums + k * p_.features", "sums"),
    (ROW_REGIONS, "if (c == content::late) return part::after;", ""),
    (ROWS_AGAIN, "const bool waits = is_late_[o] || (space_[o] >= 0 && !by_rows);", "const bool waits = is_late_[o];"),
    (CHAIN, "std::memset(sums, 0, static_cast<std::size_t>(c.columns * scratch_layout::element_bytes));", ""),
    (CHAIN, "call.first_row = row;\n      // No row", "call.first_row = 0;\n      // No row"),
    (CHAIN, "row % side / kernels::triangle_grain * kernels::triangle_grain : 0", "row % side / kernels::triangle_grain * kernels::triangle_grain + kernels::triangle_grain : 0"),
    (LOOPS, "if (structure_of(i) == structure::region_yield && !active_[parameter_of(i)])\n          active_[parameter_of(i)] = changed = true;", "if (structure_of(i) == structure::region_yield) active_[parameter_of(i)] = true;"),
    (LOOPS, "if ((reads_region(structure_of(i)) && !is_count(i)) || !belongs || i.op->facts.looks) continue;", "if ((reads_region(structure_of(i)) && !is_count(i)) || i.op->facts.looks) continue;"),
    (LOOPS, ".reverse = !forward.reverse,", ".reverse = forward.reverse,"),
    (LOOPS, "reverse.kind = region_kind::up_to;", ""),
    (LOOPS, "static_cast<int>(branch_number(b_[original.first]))", "0"),
    (NORMALISE, "if (structure_of(i) == structure::region_parameter && regions_.yield_of(id) >= 0) want(regions_.yield_of(id));", ""),
    (HOIST, "within = within_branch(code_, i.region, within);", ""),
    (SHARING, "if (g_.operand_at(g_[id], k) == carry) return;", ""),
    (SUMS, "g_[reader].region == g_[id].region || structure_of(g_[reader]) == structure::loop_sum", "true || structure_of(g_[reader]) == structure::loop_sum"),
    (BORDERS, "one.placement.unreduced |= all.placement.dim[0].mask();", ""),
    (BORDERS, "device_.reshard(device_.value[g_[stack].operand[0]], unstacked(all.placement))", "device_.value[g_[stack].operand[0]]"),
    (PARTITION, "if (divides_evenly(traced_.mesh, shape[d], axes)) continue;", "continue;"),
    (MERGE, "    if (state_[id] == waiting) close(class_of_[id]);\n", ""),
    (TRANSFER, "        p.source_start[longest] += here;\n", ""),
    (TRANSFER, "p.source = mesh_.member(holder, copies_, copy + 1);", "p.source = mesh_.member(holder, copies_, copy);"),
    (BOXES, "second > w.base_dilation * (held - 1) && ", ""),
    (BOXES, " && last_of_first < w.base_dilation * held;", ";"),
    (BOXES, "if (!regular || w.stride * part != w.base_dilation * held) return false;", "if (!regular) return false;"),
    (BOXES, "if (elements_met(box_of(mesh, g, id, device), box, shape) != elements_of(box, wanted.rank)) return false;", ""),
    (BOXES, "    box.dim[w.dim] = needed(w, part, shape[w.dim]);\n", "    box.dim[w.dim] = part;\n"),
    (WINDOW, "larger_of(one, other) + w.reach() - w.low", "larger_of(one, other) - w.low"),
    (WINDOW, "larger_of<std::int64_t>(first, 0), extent)", "larger_of<std::int64_t>(first, 1), extent)"),
    (WINDOW, "return {size, base_dilation, reach() - low,", "return {size, base_dilation, low,"),
    (LOCAL, "if (overlaps || !to.dim[d].starts_with(from.dim[d])) axes", "if (!to.dim[d].starts_with(from.dim[d])) axes"),
    (LOCAL, "stays = stays && stays_at_home(", "stays = stays_at_home("),
    (CHOICE, "rule.kind[f] == factor_kind::blocked || (used & mask) != 0", "rule.kind[f] == factor_kind::blocked"),
    (BOXES, "moved.dim[d].start += (rest % 3 == 2 ? -1 : rest % 3) * shape[d];", ""),
    (WINDOW, "interval{first - floor_div(first, extent) * extent, size}", "interval{first, size}"),
    (BOXES, "  if (w.wraps) return false;\n", ""),
    (BOXES, "    room.before = larger_of(room.before, -first);\n", ""),
    (BOXES, "room.after = larger_of(room.after, first + g[id].shape[rows] - held);", "room.after = 0;"),
    (BOXES, "    if (i.shape[d] != held.shape[d]) return -1;\n", ""),
    (HALOS, "where.offset += around_[root].before;", ""),
    (HALOS, "        where.offset += (last + 1) % 2 * half;\n", ""),
    (HALOS, "        where.alternates = true;\n", "        where.alternates = true;\n        where.phase = 0;\n"),
    (HALOS, "      for (int k = 0; k < i.operand_count; ++k) {\n        if (i.op->windows == nullptr) around_[g_.operand_at(i, k)].room.before = -1;\n      }\n", ""),
    (DEVICE, "iteration(s.region) = is_over ? first_iteration(s.region) : next;\n", "if (!is_over) iteration(s.region) = next;\n"),
    (DEVICE, "rows_to_needed(t_.mesh, t_.code, id, rows, device_) * row;", "0;"),
    (RESHAPE, "parts_.add(whole_rows(to_[first_to], after, elements));", "parts_.add(whole_rows(from_[first_from], before, elements));"),
    (RESHAPE, "const std::int64_t row = elements / rows;", "const std::int64_t row = 1;"),
    (RESHAPE, "        if (!(read[factors[n]] == asked_[factors[n]])) return false;\n", ""),
    (LOCAL, "if (like >= 0 && !reads_windows(out_[like])) {", "if (false) {"),
    (HALOS, "return !is_enlarged(root) || brings_the_same(id, around_[root].exchange);", "return true;"),
    (WINDOW, "if (o >= part.start && o < part.start + part.size) return true;", "return true;"),
    (SUMS, "if (partial != 0 && combine == reduction::sum) device_.terms[id] = value;", "if (partial != 0) device_.terms[id] = value;"),
    (MESSAGES, "    if (p.source == receiver && !reduces) return;\n", ""),
    (MESSAGES, "add_elements_before<Kinds>(mesh, g, one.id, moves, before);", "add_elements_before<Kinds>(mesh, g, id, moves, before);"),
    (MESSAGES, "one.received_at[k] = made.received;", "one.received_at[k] = first_received;"),
    (MESSAGES, "all.extent[d] = held.dim[d].size;", "all.extent[d] = shape[d];"),
    (DEVICE, "comm::copy_block(type, target, address(t_.code[one.id].operand[0]), one.boxes.incoming[self]);", ""),
    (SCHEDULER, "close_operands(id + n, -1);", "close_operands(id, -1);"),
    (MERGE, "|| is_easy(i)) && gather(i);", "|| is_easy(i));"),
    (OPEN, "if (traced_.readers[id] != 1 || g_[id].label != nullptr) return false;", "if (g_[id].label != nullptr) return false;"),
    (OPEN, "if (terms_of(other, most_depth) == partial) return true;", ""),
    (PARTITION, "if (i.op != &ops::subtract) return value[1];", "return value[1];"),
    (FINER, "if (!is_small_sum) return false;", ""),
    (FINER, "if (!is_coarse(reader) || !accepts(reader, region)) return false;", ""),
    (BOXES, ">= shape[w.dim] + 2) most *= 2;", ">= shape[w.dim] + 2) {}"),
    (MERGE, "      moves.axes = axes;\n", ""),
    (JOIN, "      if (joined.size == 0) return none;\n", ""),
    (JOIN, "const bool is_wider_elsewhere = !is_same && (all.dims != windows.dims || windows.count > 1);", "const bool is_wider_elsewhere = false;"),
    (JOIN, "      of_buffer.placement.dim[d] = axis_list{};\n", ""),
    (FRAMES, "    if (start > 0) made = emit::select(out_, is_before(i.shape, start), nothing, made);\n", ""),
    (FRAMES, "dim_, at - offset_[id], out_[framed_[id]]", "dim_, at, out_[framed_[id]]"),
]


def compile_command(build, test):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"].endswith("/%s.cpp" % test):
            words = shlex.split(entry["command"])
            out = words.index("-o")
            return [w for n, w in enumerate(words) if n not in (out, out + 1)], entry["directory"]
    sys.exit("mutations: %s does not build tests/%s.cpp" % (build, test))


def verdict_of(build, work, test):
    """What a test says of the library in `work`: survives, caught, crashes, hangs, or that it does not compile."""
    command, directory = compile_command(build, test)
    # All from the broken headers: nothing of the library's compiled part, and no ranks.
    broken = [w.replace(str(ROOT / "include"), str(work / "include")) for w in command
              if not w.startswith(("-W", "-DESPALIER_COMPILED", "-DESPALIER_USE_MPI"))]
    made = subprocess.run(broken + ["-w", "-o", str(work / "x.o")], cwd=directory, capture_output=True, text=True)
    if made.returncode != 0:
        return "does not compile"
    main_object = build / "tests/CMakeFiles/espalier_test_main.dir/support/main.cpp.o"
    compiler = next(w for w in command if "++" in pathlib.Path(w).name)
    subprocess.run([compiler, "-fopenmp", str(work / "x.o"),
                    str(main_object), "-o", str(work / "x"), "-lopenblas"], check=True)
    environment = dict(os.environ, ESPALIER_FUZZ_CASES=CASES, ESPALIER_CONVOLUTION_CASES=CASES, OPENBLAS_NUM_THREADS="1",
                       ESPALIER_SOURCE=str(ROOT))
    try:
        run = subprocess.run([str(work / "x")], env=environment, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return "hangs"
    if run.returncode == -signal.SIGTERM:
        sys.exit("mutations: tests/%s.cpp was stopped from outside, which says nothing of the library" % test)
    return "survives" if run.returncode == 0 else "crashes" if run.returncode < 0 else "caught"


def require_that_all_fit():
    wrong = []
    for number, (name, old, _) in enumerate(MUTATIONS, 1):
        found = (ROOT / "include" / "espalier" / name).read_text().count(old)
        if found != 1:
            wrong.append("mutations: number %d is found %d times in %s: %s" % (number, found, name, old))
    if wrong:
        sys.exit("\n".join(wrong))


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    require_that_all_fit()
    if sys.argv[1] == "--check":
        print("all %d mutations fit" % len(MUTATIONS))
        return
    build = pathlib.Path(sys.argv[1]).resolve()
    if not (build / "compile_commands.json").exists():
        sys.exit(f"{build} is no build folder: configure one with the preset `default` and -DESPALIER_TEST_TOGETHER=OFF")
    chosen = [int(n) for n in sys.argv[2:]] or range(1, len(MUTATIONS) + 1)
    work = build / "mutations"
    survivors = []
    for number in chosen:
        name, old, new = MUTATIONS[number - 1]
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(ROOT / "include", work / "include")
        path = work / "include" / "espalier" / name
        text = path.read_text()
        path.write_text(text.replace(old, new))
        for test in TESTS:
            verdict = verdict_of(build, work, test)
            if verdict != "survives":
                break
        else:
            survivors.append(number)
            test = ""
        print("%3d  %-28s %-9s %-24s %s" % (number, name, verdict, test, " ".join(old.split())[:100]), flush=True)
    print("%d of %d noticed; survivors: %s" % (len(list(chosen)) - len(survivors), len(list(chosen)), survivors))


main()
