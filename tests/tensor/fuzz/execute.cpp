// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 300
// optimised: yes

#include <espalier/tensor/core/program/map_over.hpp>
#include <espalier/testing/executed.hpp>
#include <espalier/testing/naive.hpp>
#include <espalier/testing/random_graph.hpp>
#include <espalier/testing/random_program_graph.hpp>
#include <espalier/testing/random_region.hpp>
#include <support/instrumented.hpp>
#include <support/kept_program.hpp>
#include <support/spmd_check.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#endif

// Random programs through the whole compiler and executed, against a second meaning of every op on one device. Seeds
// are printed; ESPALIER_FUZZ_SEED and ESPALIER_FUZZ_CASES choose others, and a single case is listed. A program that
// fails is written to a file (in the folder ESPALIER_FUZZ_KEEP, or here); moved to tests/data/programs, it is run by
// every test run.

namespace {

using namespace espalier;
using namespace espalier::test;

constexpr long usual_cases = is_instrumented ? 500 : 10000;

long from_environment(const char* name, long otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtol(text, nullptr, 10);
}

mesh_shape any_mesh(dice& random) {
  static const std::vector<std::vector<int>> meshes{{1},       {2}, {2}, {4}, {8},    {2, 2}, {2, 2}, {2, 4},    {4, 2},
                                                    {2, 2, 2}, {3}, {5}, {6}, {3, 2}, {1, 2}, {2, 3}, {2, 1, 3}, {7}};
  return mesh_of(meshes[static_cast<std::size_t>(random.integer(0, static_cast<int>(meshes.size()) - 1))]);
}

/// Meshes with axes that have parts.
mesh_shape mesh_with_parts(dice& random) {
  static const std::vector<std::vector<int>> meshes{{4}, {8}, {2, 4}, {4, 2}, {6}, {4, 4}, {3, 4}, {12}, {9}};
  return mesh_of(meshes[static_cast<std::size_t>(random.integer(0, static_cast<int>(meshes.size()) - 1))]);
}

/// @param cuts whether the programs are of those for which axes are cut into parts
program_options any_options(std::uint32_t seed, bool cuts) {
  dice random(seed ^ 0x9e3779b9U);
  program_options options;
  options.kind = random.chance(0.35) ? numbers::whole : numbers::smooth;
  options.mesh = cuts ? mesh_with_parts(random) : any_mesh(random);
  options.taken_apart = cuts ? 0.5 : 0;
  options.instructions = random.integer(2, 26);
  options.gradients = random.chance(0.5) ? 1 : 0;
  options.annotated = random.one_of({0.03, 0.15, 0.5});
  options.alike = seed % 4 == 0 ? 0.25 : 0;
  options.priorities = seed % 8 == 0 ? 2 : 0;
  options.loops = random.one_of({0.0, 0.1, 0.1, 0.25});
  // An integer has no maximum of nothing.
  options.empty_loops = options.kind == numbers::smooth ? random.one_of({0.0, 0.02}) : 0;
  options.most_elements = random.one_of({60, 200, 400});
  if (seed % 10 == 3) {
    options.unlimited = 0.3;
    options.alternatives = 0.5;
    options.own_gradients = options.gradients > 0 ? 0.1 : 0.02;
    options.most_carries = 6;
    options.placed_carries = random.one_of({0.0, 0.2, 0.5});
  }
  static constexpr std::int64_t sizes[][8]{{1, 2, 3, 4, 4, 5, 7, 6},
                                           {2, 4, 8, 2, 4, 8, 4, 1},
                                           {4, 8, 4, 8, 2, 16, 4, 8},
                                           {3, 5, 7, 1, 11, 2, 3, 5},
                                           {0, 1, 2, 3, 4, 5, 1, 2}};
  if (cuts) {
    // An axis is not cut where arguments or results would lie in other parts then: few that are uneven.
    options.annotated = random.one_of({0.01, 0.05, 0.15});
    options.most_elements = random.one_of({200, 400});
    static constexpr std::int64_t whole_parts[8]{4, 8, 6, 12, 2, 9, 3, 4};
    options.size_count = 8;
    for (int n = 0; n < 8; ++n) options.sizes[n] = whole_parts[n];
    return options;
  }
  const int which = random.integer(0, options.kind == numbers::smooth ? 19 : 18);
  const auto& chosen = sizes[which == 19 ? 4 : which % 4];
  options.size_count = 8;
  for (int n = 0; n < 8; ++n) options.sizes[n] = chosen[n];
  return options;
}

enum class verdict {
  right,
  /// Annotations contradict each other, as the user is told.
  conflicting,
  /// A sum is asked to stay partial where none is.
  unfounded,
  undecided,
  wrong,
};
constexpr int verdicts = 5;

struct outcome {
  verdict what = verdict::right;
  std::string text;
  int instructions = 0;
  /// Axes were cut into parts.
  bool is_cut = false;
  /// They might have been, and the program moves less with whole ones.
  bool stays_whole = false;
  /// All numbers are whole, and every sum of some of them too.
  bool is_exact = false;
  /// Some of it is computed a few rows of scores at a time.
  bool is_by_rows = false;
  /// An op of it cannot be mapped, as the user would be told.
  bool is_unmapped = false;
};

/// Returns limits that cut already such short rows into blocks, in half of the programs.
row_limits any_limits(std::uint32_t seed) {
  if (seed / 4 % 2 == 0) return {};
  return seed / 8 % 2 == 0 ? row_limits{2, 2} : row_limits{4, 3};
}

/// The program with copies in the place of functions that have gradients of their own: a text cannot name these.
graph without_own_gradients(graph g) {
  const auto is_own = [&](int id) { return g.code[id].op->facts.passes_operands; };
  const auto operand = [&](int id, int k) { return g.code[id].operand_at(k, g.further.data()); };
  for (int id = g.code.size() - 1; id >= 0; --id) {
    instruction& i = g.code[id];
    const bool is_further = i.op == &ops::further_result && is_own(i.operand[0]);
    if (!is_further && !is_own(id)) continue;
    const int value =
        is_further ? operand(i.operand[0], attributes_of<further_result_attributes>(i).number) : operand(id, 0);
    const int loop = i.region;
    i = builder::make(ops::copy, i.type, i.shape, value);
    i.region = loop;
  }
  return g;
}

/// The change that rounding may cause, relative to the largest element of a result. Whole numbers are exact, but for
/// some gradients.
double tolerance_of(const program_options& options, bool is_exact) {
  if (options.kind == numbers::whole) return is_exact ? 0 : 0x1p-6;
  if (options.float_type == dtype::f64) return 1e-8;
  return options.float_type == dtype::f32 ? 0x1p-12 : 0x1p-4;
}

/// The same with all floats as f64: what then agrees differed by rounding.
graph widened(graph g) {
  for (int id = 0; id < g.code.size(); ++id) {
    if (is_floating(g.code[id].type)) g.code[id].type = dtype::f64;
  }
  return g;
}

/// Whether the reference itself changes as much when its arguments move a little: where a comparison is about to turn,
/// rounding decides.
bool is_unstable(graph_view raw, const std::vector<tensor_value>& arguments,
                 const std::vector<tensor_value>& expected) {
  for (const double step : {1e-10, -1e-10, 3e-9}) {
    std::vector<tensor_value> moved = arguments;
    for (int id = 0; id < raw.size; ++id) {
      if (raw[id].op != &ops::argument || !is_floating(raw[id].type)) continue;
      double turn = step;
      const auto number = static_cast<std::size_t>(attributes_of<border_attributes>(raw[id]).number);
      for (double& x : moved[number].data) x += (turn = -turn * 1.01);
    }
    if (!difference(naive_interpret(raw, moved), expected, 1e-6).empty()) return true;
  }
  return false;
}

/// That a program moves no more bytes than it does with whole axes, or what it moves.
std::string more_than_whole(const spmd_program& program, const mesh_shape& mesh, graph_view raw) {
  const spmd_program whole = merged_program(partitioned_on(mesh, raw, false));
  if (whole.parts.fault != partition_fault::nothing || program.most_bytes() <= whole.most_bytes()) return "";
  return "with its axes cut a device sends " + std::to_string(program.most_bytes()) + " bytes (" + program.summary() +
         "), with whole axes " + std::to_string(whole.most_bytes()) + " (" + whole.summary() + ")";
}

bool has_row_regions(graph_view g) {
  schedule made = make_schedule(g);
  detail::form_row_regions(g, made);
  return std::any_of(made.launches.begin(), made.launches.end(), [](const launch& u) { return u.region_end >= 0; });
}

outcome check(std::uint32_t seed, const program_options& options, const graph& source) {
  const graph_view raw = source;
  outcome result;
  result.instructions = raw.size;
  spmd_program program;
  try {
    if (find_conflict(merge_common_subexpressions(normalise(raw), false)).first >= 0) {
      result.what = verdict::conflicting;
      return result;
    }
    const spmd_program apart = partitioned_program(options.mesh, raw);
    program = merged_program(apart);
    result.text = fault_of_text(options.mesh, axis_parts::whole(options.mesh), without_own_gradients(source));
    if (result.text.empty() && seed % 4 == 1 && program.parts.fault == partition_fault::nothing)
      result.text = fault_of_text(options.mesh, program.axes, program.parts.program);
    if (!result.text.empty()) {
      result.what = verdict::wrong;
      result.is_exact = true;  // no rounding excuses it
      return result;
    }
    result.is_cut = program.axes.count > options.mesh.rank;
    result.stays_whole = program.stays_whole;
    if (is_refused(program)) {
      if (from_environment("ESPALIER_FUZZ_CASES", 0) == 1)
        std::cout << "traced:\n" << listing(raw) << "no sum at %" << program.parts.fault_at << '\n';
      result.what = verdict::unfounded;
      return result;
    }
    result.is_by_rows = detail::has_scores(program.parts.program) && has_row_regions(program.parts.program);
    if (result.is_cut) result.text = more_than_whole(program, options.mesh, raw);
    if (!result.text.empty()) {
      result.what = verdict::wrong;
      result.is_exact = true;  // no rounding excuses it
      return result;
    }
    const std::vector<tensor_value> arguments = random_program_arguments(raw, seed, options.kind);
    const bool is_smooth = options.kind == numbers::smooth;
    const bool is_exact_real = is_smooth && options.float_type == dtype::f64;
    const naive_outcome meant = naive_run(raw, arguments, is_exact_real ? naive_storage::exact : naive_storage::typed);
    const std::vector<tensor_value>& expected = meant.results;
    result.is_exact = meant.is_exact;
    // The partitioner's program, before it is scheduled, and before its collectives are merged: bytes sent, scopes,
    // copies that differ.
    if (is_exact_real && seed % 4 == 0) result.text = fault_of(program, expected, arguments, 1e-8);
    if (is_exact_real && seed % 4 == 2) result.text = fault_of(apart, expected, arguments, 1e-8);
    if (result.text.empty()) {
      const std::vector<tensor_value> made = execute(program.mesh, program.parts.program, arguments, any_limits(seed));
      result.text = difference(made, expected, tolerance_of(options, meant.is_exact));
    }
    if (result.text.empty()) return result;
    result.what = is_exact_real && is_unstable(raw, arguments, expected) ? verdict::undecided : verdict::wrong;
  } catch (const std::exception& e) {
    result.what = verdict::wrong;
    result.text = e.what();
  }
  if (from_environment("ESPALIER_FUZZ_CASES", 0) == 1) { std::cout << "traced:\n" << listing(raw) << program.text(); }
  return result;
}

/// The same, where rounding excuses what does not fit whole numbers.
outcome check_rounded(std::uint32_t seed, const program_options& options, const graph& source) {
  outcome result = check(seed, options, source);
  if (result.what != verdict::wrong || options.kind == numbers::smooth || result.is_exact) return result;
  // Gradients of whole numbers may be too large for their types, or for any.
  const outcome wide = check(seed, options, widened(source));
  if (wide.what == verdict::right || !wide.is_exact) result.what = verdict::undecided;
  return result;
}

/// Writes a program that is wrong to a file.
outcome kept(outcome result, std::uint32_t seed, const program_options& options, const graph& source) {
  if (result.what == verdict::wrong)
    result.text += " (the program is in " + keep_program(seed, options, without_own_gradients(source)) + ")";
  return result;
}

outcome check_usual(std::uint32_t seed, bool cuts) {
  const program_options options = any_options(seed, cuts);
  const graph source = random_program_graph(seed, options);
  return kept(check_rounded(seed, options, source), seed, options, source);
}

/// Gives axes of a mesh another order, as that of a mesh which counts the same devices backwards, or in any way.
mesh_shape with_orders(mesh_shape mesh, dice& random) {
  static constexpr const char* names[max_axes]{"bx", "by", "bz", "bw", "bs", "bt", "bu", "bv"};
  // The place of each device of an axis, by how many it has.
  static constexpr int tables[3][8][8]{
      {{}, {0}, {1, 0}, {1, 2, 0}, {0, 1, 3, 2}, {3, 0, 4, 1, 2}, {2, 0, 1, 5, 4, 3}, {6, 0, 5, 1, 4, 2, 3}},
      {{}, {0}, {1, 0}, {0, 2, 1}, {2, 0, 1, 3}, {0, 4, 1, 3, 2}, {0, 1, 2, 5, 4, 3}, {0, 6, 2, 5, 3, 1, 4}},
      {{}, {0}, {0, 1}, {2, 0, 1}, {0, 2, 1, 3}, {4, 3, 2, 1, 0}, {0, 2, 4, 1, 3, 5}, {1, 0, 3, 2, 5, 4, 6}}};
  static constexpr int of_eight[3][8]{{0, 1, 2, 3, 7, 6, 5, 4}, {1, 3, 5, 7, 6, 4, 2, 0}, {0, 4, 2, 6, 1, 5, 3, 7}};
  do {
    for (int axis = 0; axis < mesh.rank; ++axis) {
      if (random.chance(0.3)) continue;
      const int which = random.integer(0, 5);
      const int size = mesh.size[axis];
      const int* const table = size == 8 ? &of_eight[which % 3][0] : size < 8 ? &tables[which % 3][size][0] : nullptr;
      mesh.add_order(axis, names[axis], which < 3 ? table : nullptr);
    }
  } while (mesh.ordered == 0);
  return mesh;
}
/// Programs on meshes that count devices in two ways.
outcome check_ordered(std::uint32_t seed, bool /*cuts*/) {
  program_options options = any_options(seed, seed % 3 == 0);
  dice random(seed ^ 0x27d4eb2fU);
  options.mesh = with_orders(options.mesh, random);
  options.annotated = random.one_of({0.05, 0.15, 0.5});
  const graph source = random_program_graph(seed, options);
  return kept(check_rounded(seed, options, source), seed, options, source);
}

/// Functions of several steps, in types that are computed in another one.
outcome check_narrow(std::uint32_t seed, bool /*cuts*/) {
  program_options options = any_options(seed, false);
  options.kind = numbers::smooth;
  options.empty_loops = 0;
  options.instructions = 1 + options.instructions / 3;
  options.float_type = seed % 5 < 2 ? dtype::bf16 : seed % 5 < 4 ? dtype::f16 : dtype::f32;
  const graph source = random_program_graph(seed, options);
  outcome result = check(seed, options, source);
  if (result.what != verdict::wrong) return result;
  // Rounding may have turned a comparison: in f64 it turns none.
  program_options exact = options;
  exact.float_type = dtype::f64;
  if (check(seed, exact, widened(source)).what == verdict::right) result.what = verdict::undecided;
  return kept(std::move(result), seed, options, source);
}

/// Long rows, which are taken a vector at a time, and whose chains follow products part by part.
outcome check_long_rows(std::uint32_t seed, bool /*cuts*/) {
  program_options options = any_options(seed, false);
  options.instructions = 2 + options.instructions / 2;
  options.empty_loops = 0;
  options.most_elements = 20'000;
  static constexpr std::int64_t sizes[8]{64, 3, 128, 2, 192, 64, 5, 80};
  options.size_count = 8;
  for (int n = 0; n < 8; ++n) options.sizes[n] = sizes[n];
  const graph source = random_program_graph(seed, options);
  return kept(check_rounded(seed, options, source), seed, options, source);
}

/// Scores of rows and keys, which are worked on a few rows at a time.
outcome check_scores(std::uint32_t seed, bool /*cuts*/) {
  program_options options = any_options(seed, false);
  dice random(seed ^ 0x51ed270bU);
  static const std::vector<std::vector<int>> meshes{{1}, {1}, {2}, {2}, {4}, {2, 2}};
  options.mesh = mesh_of(meshes[static_cast<std::size_t>(random.integer(0, static_cast<int>(meshes.size()) - 1))]);
  options.kind = numbers::smooth;
  options.float_type = random.chance(0.7) ? dtype::f64 : random.chance(0.5) ? dtype::f32 : dtype::bf16;
  options.annotated = random.one_of({0.1, 0.5});
  options.unfounded = 0;
  options.gradients = 0.5;
  const graph source = random_score_graph(seed, options);
  outcome result = check(seed, options, source);
  if (result.what == verdict::wrong && options.float_type != dtype::f64) {
    program_options exact = options;
    exact.float_type = dtype::f64;
    if (check(seed, exact, widened(source)).what == verdict::right) result.what = verdict::undecided;
  }
  return kept(std::move(result), seed, options, source);
}

/// Regions in regions: loops in branches in loops, with several carries in layouts of their own.
outcome check_regions(std::uint32_t seed, bool cuts) {
  program_options options = any_options(seed, cuts);
  dice random(seed ^ 0x68bc21ebU);
  options.instructions = random.integer(2, 6);
  options.loops = 0.3;
  options.decided = 0.5;
  options.unlimited = 0.3;
  options.alternatives = 0.5;
  options.own_gradients = 0.1;
  options.most_carries = 6;
  options.placed_carries = random.one_of({0.0, 0.2, 0.5});
  options.gradients = random.one_of({0.0, 0.5, 1.0});
  options.inner_gradients = 0.1;
  const graph source = random_program_graph(seed, options);
  return kept(check_rounded(seed, options, source), seed, options, source);
}

/// A program of a file, as the fuzz runs it.
outcome check_kept(const kept_program& kept) {
  program_options options;
  options.kind = kept.kind;
  options.float_type = kept.float_type;
  options.mesh = kept.program.mesh;
  return check_rounded(kept.seed, options, kept.program.code);
}

/// `undecided`: of so many programs one may be undecided.
template <class Check> void check_many(long cases, bool cuts, const Check& check_one, long undecided = 200) {
  const auto base = static_cast<std::uint32_t>(from_environment("ESPALIER_FUZZ_SEED", 1));
  const auto workers = static_cast<std::size_t>(
      std::max<long>(1, std::min<long>(cases / 100, static_cast<long>(std::thread::hardware_concurrency()))));
  std::vector<std::vector<outcome>> found(workers);
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
#if defined(_OPENMP)
      omp_set_num_threads(1);
#endif
      for (long n = static_cast<long>(w); n < cases; n += static_cast<long>(workers)) {
        outcome one = check_one(base + static_cast<std::uint32_t>(n), cuts);
        if (one.what == verdict::wrong)
          one.text = "ESPALIER_FUZZ_SEED=" + std::to_string(base + n) + " ESPALIER_FUZZ_CASES=1: " + one.text;
        found[w].push_back(one);
      }
    });
  }
  for (std::thread& one : threads) one.join();
  long count[verdicts]{};
  long instructions = 0;
  long cut = 0;
  long kept_whole = 0;
  long unmapped = 0;
  long by_rows = 0;
  for (const auto& of_worker : found) {
    for (const outcome& one : of_worker) {
      ++count[static_cast<int>(one.what)];
      cut += one.is_cut ? 1 : 0;
      kept_whole += one.stays_whole ? 1 : 0;
      unmapped += one.is_unmapped ? 1 : 0;
      by_rows += one.is_by_rows ? 1 : 0;
      instructions += one.instructions;
      // Not through Catch, which would break lines.
      if (one.what == verdict::wrong) std::cout << one.text << " (" << one.instructions << " instructions)\n";
    }
  }
  const auto of = [&](verdict what) { return count[static_cast<int>(what)]; };
  std::cout << cases << " random programs from seed " << base << ", " << instructions
            << " instructions: " << of(verdict::right) << " right, " << of(verdict::conflicting)
            << " with conflicting annotations, " << of(verdict::unfounded) << " that ask for no sum there is, "
            << of(verdict::undecided) << " undecided, " << of(verdict::wrong) << " wrong; axes cut into parts in "
            << cut << ", whole in " << kept_whole << " that move less so; " << unmapped << " cannot be mapped; "
            << by_rows << " with row regions\n";
  CHECK(unmapped <= 10 + cases / 50);
  CHECK(of(verdict::wrong) == 0);
  CHECK(of(verdict::undecided) <= cases / undecided);
  // The generator means to ask for one in few programs.
  CHECK(of(verdict::unfounded) <= 10 + cases / 50);
  if (cases >= 1000) {
    // Regions have carries with layouts of their own, which contradict others more often.
    CHECK(of(verdict::right) + of(verdict::conflicting) > cases * 9 / 10);
    CHECK(of(verdict::conflicting) < cases / 4);
    if (cuts) {
      // Both ways to decide are drawn.
      CHECK(cut > cases / 12);
      CHECK(kept_whole > cases / 100);
    }
  }
}

/// Number `lane` of the tensors that lie along a dimension.
tensor_value lane_of(const tensor_value& all, int dim, int lane) {
  tensor_value one{espalier::detail::without_dimension(all.shape, dim), {}};
  const std::int64_t inner = all.shape.product(dim + 1, all.shape.rank);
  for (std::int64_t i = 0; i < one.shape.elements(); ++i) {
    const std::int64_t at = (i / inner * all.shape[dim] + lane) * inner + i % inner;
    one.data.push_back(all.data[static_cast<std::size_t>(at)]);
  }
  return one;
}

/// A program over lanes means what it means for each of them, and is then a program like any other.
outcome check_over_lanes(std::uint32_t seed, const program_options& options, const graph& source, int lanes,
                         dice& random) {
  outcome result;
  result.instructions = source.code.size();
  std::vector<int> dims;
  for (const tensor_value& one : random_program_arguments(source, seed, options.kind)) {
    const bool differs = dims.empty() || random.chance(0.75);
    dims.push_back(differs ? random.integer(0, one.shape.rank) : -1);
  }
  const graph mapped = map_program(source, dims.data(), lanes);
  if (mapped.code.size() == 0) {
    result.is_unmapped = true;
    return result;
  }
  try {
    const std::vector<tensor_value> arguments = random_program_arguments(mapped, seed, options.kind);
    std::vector<tensor_value> expected;
    bool is_decided = true;
    for (int lane = 0; lane < lanes; ++lane) {
      std::vector<tensor_value> own = arguments;
      for (std::size_t k = 0; k < own.size(); ++k) {
        if (dims[k] >= 0) own[k] = lane_of(arguments[k], dims[k], lane);
      }
      const std::vector<tensor_value> of_lane = naive_interpret(source, own);
      is_decided = is_decided && !is_unstable(source, own, of_lane);
      for (std::size_t r = 0; r < of_lane.size(); ++r) {
        if (lane == 0) expected.push_back({espalier::detail::with_dimension(of_lane[r].shape, 0, lanes), {}});
        expected[r].data.insert(expected[r].data.end(), of_lane[r].data.begin(), of_lane[r].data.end());
      }
    }
    result.text = difference(naive_interpret(mapped, arguments), expected, 1e-6);
    if (!result.text.empty()) result.what = is_decided ? verdict::wrong : verdict::undecided;
  } catch (const std::exception& e) {
    result.what = verdict::wrong;
    result.text = e.what();
  }
  return result.text.empty() ? check_rounded(seed, options, mapped) : result;
}

outcome check_mapped(std::uint32_t seed, bool cuts) {
  program_options options = any_options(seed, cuts);
  options.donated = 0;
  options.most_dimensions = 5;
  options.most_elements = 60;
  options.decided = 0.5;
  options.unfounded = 0;
  const graph source = random_program_graph(seed, options);
  dice random(seed ^ 0x51ed270bU);
  return check_over_lanes(seed, options, source, random.integer(1, 5), random);
}

/// The change of the sum of all results when every float of the arguments moves in its direction, by differences.
double slope_along(const program_with_region& region, const std::vector<tensor_value>& at,
                   const std::vector<tensor_value>& direction, double step) {
  const auto moved = [&](double by) {
    std::vector<tensor_value> to = at;
    for (std::size_t k = 0; k < to.size(); ++k) {
      for (std::size_t i = 0; i < to[k].data.size(); ++i) to[k].data[i] += by * direction[k].data[i];
    }
    return meaning_of(region, to).loss;
  };
  return (moved(step) - moved(-step)) / (2 * step);
}
/// What is wrong with the gradients, the last results of the program.
std::string wrong_slope(std::uint32_t seed, const program_with_region& region, const std::vector<tensor_value>& at,
                        const std::vector<tensor_value>& results, double loss, verdict& what) {
  dice random(seed ^ 0x2545f491U);
  std::vector<tensor_value> direction = at;
  std::size_t next = region.out.size();
  double slope = 0;
  double size = 1;
  if (std::abs(results[next].data[0] - loss) > 1e-8 * (1 + std::abs(loss))) return "the loss is wrong";
  ++next;
  std::size_t number = 0;
  for (int id = 0; id < region.whole.code.size(); ++id) {
    const instruction& i = region.whole.code[id];
    if (i.op != &ops::argument) continue;
    std::vector<double>& along = direction[number++].data;
    for (double& one : along) one = is_floating(i.type) ? random.real(-1, 1) : 0;
    if (!is_floating(i.type)) continue;
    const tensor_value& gradient = results[next++];
    for (std::size_t n = 0; n < along.size(); ++n) {
      slope += gradient.data[n] * along[n];
      size += std::abs(gradient.data[n] * along[n]);
    }
  }
  const double meant = slope_along(region, at, direction, 1e-6);
  if (std::abs(slope - meant) <= 1e-5 * size) return "";
  // Differences that differ among themselves tell nothing, nor do those beyond the border of what a function is defined
  // of.
  for (const double step : {1e-5, 3e-6, 2.5e-7}) {
    if (!(std::abs(slope_along(region, at, direction, step) - meant) <= 1e-6 * size)) what = verdict::undecided;
  }
  return "the slope is " + std::to_string(slope) + " instead of " + std::to_string(meant);
}

/// Puts a program for one shard over lanes: on devices with data of their own it means what it means for each lane.
outcome check_map_by_hand(std::uint32_t seed, const program_options& options, graph& shard, int lanes, dice& random) {
  outcome result;
  result.instructions = shard.code.size();
  std::vector<int> dims;
  for (const tensor_value& one : random_program_arguments(shard, seed, options.kind))
    dims.push_back(dims.empty() || random.chance(0.7) ? random.integer(0, one.shape.rank) : -1);
  graph mapped = map_program(shard, dims.data(), lanes);
  if (mapped.code.size() == 0) {
    result.is_unmapped = true;
    return result;
  }
  try {
    std::vector<std::vector<tensor_value>> arguments;
    for (int device = 0; device < options.mesh.devices(); ++device)
      arguments.push_back(random_program_arguments(mapped, seed + static_cast<std::uint32_t>(device), options.kind));
    const results_by_hand all = naive_by_hand(mapped, options.mesh, arguments);
    for (int lane = 0; lane < lanes && result.text.empty(); ++lane) {
      std::vector<std::vector<tensor_value>> own = arguments;
      for (std::vector<tensor_value>& of_device : own) {
        for (std::size_t k = 0; k < dims.size(); ++k) {
          if (dims[k] >= 0) of_device[k] = lane_of(of_device[k], dims[k], lane);
        }
      }
      const results_by_hand of_lane = naive_by_hand(shard, options.mesh, own);
      for (std::size_t device = 0; device < own.size() && result.text.empty(); ++device) {
        std::vector<tensor_value> made;
        for (const tensor_value& one : all.of_device[device]) made.push_back(lane_of(one, 0, lane));
        result.text = difference(made, of_lane.of_device[device], 1e-6);
      }
    }
    if (!result.text.empty()) result.what = all.is_exact ? verdict::wrong : verdict::undecided;
    if (!result.text.empty() && options.kind == numbers::smooth) result.what = verdict::wrong;
  } catch (const std::exception& e) {
    result.what = verdict::wrong;
    result.text = e.what();
  }
  shard = std::move(mapped);
  return result;
}

/// A region by hand means what it means for each device on its shards, and is then a program like any other.
outcome check_by_hand(std::uint32_t seed, bool cuts) {
  program_options options = any_options(seed, cuts);
  dice random(seed ^ 0x3c6ef372U);
  while (options.by_hand == 0) {
    for (int axis = 0; axis < options.mesh.rank; ++axis) {
      if (random.chance(0.6)) options.by_hand |= bit_of(axis);
    }
  }
  options.donated = 0;
  options.alike = 0;
  options.partial = 0;
  options.unfounded = 0;
  options.loop_depth = 2;
  options.most_dimensions = 4;
  options.most_elements = 60;
  options.decided = 0.4;
  options.gradients = options.inner_gradients = 0;
  const int which = options.kind == numbers::smooth ? random.integer(0, 3) : 0;
  const region_gradient gradient = which < 2    ? region_gradient::none
                                   : which == 2 ? region_gradient::around
                                                : region_gradient::inside;
  options.stop_gradients = gradient == region_gradient::none;
  if (gradient != region_gradient::none) options.unlimited = 0;
  const bool is_in_loop = gradient != region_gradient::inside && options.kind == numbers::smooth && seed % 3 == 0;
  if (is_in_loop) options.loop_depth = 1;
  // A map inside of the region, or around it, or none.
  const int maps = random.integer(0, 3);
  if (maps < 2) options.most_dimensions = 3;
  outcome result;
  graph shard = random_program_graph(seed, options);
  if (maps == 0) {
    result = check_map_by_hand(seed, options, shard, random.integer(1, 3), random);
    if (result.is_unmapped || !result.text.empty()) return result;
  }
  const program_with_region region = in_region(std::move(shard), options.mesh, options.by_hand, random, gradient,
                                               is_in_loop ? 1 + static_cast<int>(seed / 3 % 3) : 0);
  result.instructions = region.shard.code.size();
  if (region.fault == detail::shard_fault::too_many_dimensions) {
    result.is_unmapped = true;
    return result;
  }
  if (region.fault != detail::shard_fault::nothing) {
    result.what = verdict::wrong;
    result.text = "refused as fault " + std::to_string(static_cast<int>(region.fault));
    if (from_environment("ESPALIER_FUZZ_CASES", 0) == 1) std::cout << "a shard:\n" << listing(region.shard);
    return result;
  }
  try {
    const std::vector<tensor_value> arguments = random_program_arguments(region.whole, seed, options.kind);
    const meaning_by_hand meant = meaning_of(region, arguments);
    std::vector<tensor_value> made = naive_interpret(region.whole, arguments);
    const std::vector<tensor_value> all = made;
    made.resize(meant.results.size());
    result.text = meant.fault.empty() ? difference(made, meant.results, 1e-7) : meant.fault;
    if (!result.text.empty()) {
      const bool is_rounded = options.kind == numbers::whole && !meant.is_exact;
      std::vector<tensor_value> moved = arguments;
      for (tensor_value& one : moved) {
        for (double& x : one.data) x += options.kind == numbers::smooth && x != std::trunc(x) ? 1e-10 : 0;
      }
      const bool is_steady = difference(meaning_of(region, moved).results, meant.results, 1e-6).empty();
      result.what = !is_rounded && is_steady ? verdict::wrong : verdict::undecided;
    } else if (region.has_gradient) {
      result.what = verdict::wrong;
      result.text = wrong_slope(seed, region, arguments, all, meant.loss, result.what);
    }
  } catch (const std::exception& e) {
    result.what = verdict::wrong;
    result.text = e.what();
  }
  if (result.what == verdict::wrong && from_environment("ESPALIER_FUZZ_CASES", 0) == 1)
    std::cout << "a shard:\n" << listing(region.shard) << "all:\n" << listing(region.whole);
  if (!result.text.empty()) return result;
  result.what = verdict::right;
  options.by_hand = 0;
  if (maps == 1) return check_over_lanes(seed, options, region.whole, random.integer(1, 3), random);
  return kept(check_rounded(seed, options, region.whole), seed, options, region.whole);
}

}  // namespace

TEST_CASE("random programs for one shard are regions of one for all, and execute on a mesh", "[fuzz][manual]") {
  check_many(from_environment("ESPALIER_FUZZ_CASES", usual_cases / 20), false, check_by_hand);
}
TEST_CASE("random programs over lanes give what each lane gives, and execute on a mesh", "[fuzz]") {
  check_many(from_environment("ESPALIER_FUZZ_CASES", usual_cases / 10), false, check_mapped);
}
TEST_CASE("random programs execute on a mesh as they mean on one device", "[fuzz]") {
  check_many(from_environment("ESPALIER_FUZZ_CASES", usual_cases), false, check_usual);
}

TEST_CASE("random programs that split dimensions by parts of axes execute as they mean on one device", "[fuzz]") {
  check_many(from_environment("ESPALIER_FUZZ_CASES", usual_cases / 10), true, check_usual);
}

TEST_CASE("random programs on devices that are counted in two orders execute as they mean on one device",
          "[fuzz][orders]") {
  check_many(from_environment("ESPALIER_FUZZ_CASES", usual_cases / 5), false, check_ordered);
}

TEST_CASE("random programs of functions in sixteen bits execute as they mean on one device", "[fuzz]") {
  check_many(from_environment("ESPALIER_FUZZ_CASES", usual_cases / 10), false, check_narrow);
}

TEST_CASE("random programs with long rows execute as they mean on one device", "[fuzz][rows]") {
  check_many(from_environment("ESPALIER_FUZZ_CASES", usual_cases / 40), false, check_long_rows);
}

TEST_CASE("random programs with scores of rows and keys execute as they mean on one device", "[fuzz][scores]") {
  // One takes seconds. In narrow types, sums over thousands of rows round more than the tolerance in one of twenty.
  const long cases = from_environment("ESPALIER_FUZZ_CASES", is_instrumented ? 2 : 8);
  check_many(cases < 1000 ? cases : cases / 4000, false, check_scores, 10);
}

TEST_CASE("random programs of regions in regions execute as they mean on one device", "[fuzz]") {
  check_many(from_environment("ESPALIER_FUZZ_CASES", usual_cases / 80), false, check_regions);
}

TEST_CASE("a chain reads through broadcasts only what is there", "[fuzz]") {
  // As hard to hit for random programs as they are short: rows' sums that come back as columns, of a square; and sums
  // in the place of a donated argument that is read through a broadcast once more, after them.
  builder columns;
  const int square = emit::argument(columns, dtype::f64, extents{2, {4, 4}}, 0);
  const int sums = emit::reduce_sum(columns, square, 2);
  const int turned = emit::broadcast(columns, sums, extents{2, {4, 4}}, axis_list(1));
  emit::result(columns, emit::subtract(columns, square, turned), 0);

  builder donated;
  const int x = emit::argument(donated, dtype::f64, extents{2, {4, 8}}, 0);
  const int a = emit::argument(donated, dtype::f64, extents{1, {4}}, 1);
  const int wide = emit::broadcast_along(donated, a, extents{2, {4, 8}}, 2);
  const int total = emit::reduce_sum(donated, emit::add(donated, x, wide), 2);
  const int product = emit::multiply(donated, x, wide);
  emit::result(donated, total, 0, a);
  emit::result(donated, emit::subtract(donated, product, emit::broadcast_along(donated, total, extents{2, {4, 8}}, 2)),
               1);

  // Rows that come again after 600, which are no whole number of blocks: one ends where they begin anew.
  builder periodic;
  const int all = emit::argument(periodic, dtype::f64, extents{3, {2, 600, 3}}, 0);
  const int again = emit::argument(periodic, dtype::f64, extents{2, {600, 3}}, 1);
  emit::result(periodic, emit::add(periodic, all, emit::broadcast_to(periodic, again, extents{3, {2, 600, 3}})), 0);

  // An argument is overwritten in the first pass over its rows, and what is computed from it is needed in the second.
  builder rewritten;
  const int old = emit::argument(rewritten, dtype::f64, extents{2, {4, 8}}, 0);
  const int shifted = emit::add(rewritten, old, emit::constant_like(rewritten, old, 1));
  const int squares = emit::reduce_sum(rewritten, emit::multiply(rewritten, old, old), 2);
  emit::result(rewritten, rewritten.append(ops::exp, dtype::f64, extents{2, {4, 8}}, shifted), 0, old);
  const int of_rows = emit::broadcast_along(rewritten, squares, extents{2, {4, 8}}, 2);
  emit::result(rewritten, emit::multiply(rewritten, shifted, of_rows), 1);

  for (const builder* const made : {&columns, &donated, &periodic, &rewritten}) {
    const graph_view raw = made->result();
    const std::vector<tensor_value> arguments = random_program_arguments(raw, 7, numbers::smooth);
    const spmd_program program = merged_program(partitioned_program(mesh_of({1}), raw));
    for (const row_limits limits : {row_limits{}, row_limits{2, 2}}) {
      const std::vector<tensor_value> found = execute(mesh_of({1}), program.parts.program, arguments, limits);
      CHECK(difference(found, naive_interpret(raw, arguments), 1e-12) == "");
    }
  }
}

TEST_CASE("what random programs have found stays mended", "[fuzz]") {
  // Each file says in its first lines what was wrong with it.
  const auto folder = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "data" / "programs";
  int programs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const kept_program kept = read_kept_program(entry.path().string());
    const outcome now = check_kept(kept);
    INFO(entry.path().filename().string() << ": " << now.text);
    CHECK((now.what == verdict::right || now.what == verdict::unfounded));
    ++programs;
  }
  CHECK(programs >= 5);
}
