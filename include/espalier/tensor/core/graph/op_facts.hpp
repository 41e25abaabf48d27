// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

namespace espalier {

struct op_view;

/// The part an op plays in the structure of a program: its border, and its regions, of which ops/scan.hpp has a picture
/// and graph/region.hpp the questions.
/// An op that plays none computes.
enum class structure : std::uint8_t {
  none,
  argument,
  result,
  region_begin,
  region_parameter,
  loop_slice,
  region_yield,
  region_end,
  region_result,
  loop_stack,
  loop_sum,
};

/// Attributes of arguments and results.
struct border_attributes {
  /// The number of the argument, or of the result, in the program.
  int number = 0;
  /// One more than the `dtype` that the program's sums travel in (`send_sums_as`), 0 if none is chosen; set for
  /// results.
  int sums_travel_as = 0;
};
/// What decides how often a region runs.
enum class region_kind : std::uint8_t {
  /// Nothing: as often as its `iterations` say.
  counted,
  /// The number that its `region_begin` reads, if that is less.
  up_to,
  /// It runs if what its `region_begin` reads is true, and again while what its `region_end` reads is. Its `iterations`
  /// are
  /// 1: all that is counted by them is meant for one iteration.
  until,
  /// The same, at most as often as its `iterations` say.
  until_or_at_most,
  /// Once, if its `region_begin` reads its own number, and else not at all.
  branch,
};

/// Attributes of a `region_begin`. (The number of a branch is its `scalar`.)
struct region_attributes {
  /// The largest number of iterations; what is stacked has as many layers.
  std::int64_t iterations = 0;
  /// True if the loop runs from the last iteration to the first.
  bool reverse = false;
  /// The gradient computes the body again instead of keeping its values.
  bool recompute = false;
  region_kind kind = region_kind::counted;
};

/// Whether it collects a value of a region over all iterations.
[[nodiscard]] constexpr bool collects(structure s) { return s == structure::loop_stack || s == structure::loop_sum; }
/// True if it is outside a region and reads a value that the region has computed.
[[nodiscard]] constexpr bool reads_region(structure s) { return collects(s) || s == structure::region_result; }
/// Whether it only marks a place in the list of instructions.
[[nodiscard]] constexpr bool marks_region(structure s) {
  return s == structure::region_begin || s == structure::region_end;
}

/// The layout that an op asks for, if it leaves every value as it is.
enum class layout_request : std::uint8_t {
  none,
  /// The operand is laid out so (`shard`).
  annotation,
  /// The result is, whatever the operand's layout (`reshard`).
  change,
  /// The result is laid out as operand 1 is (`match`).
  as_operand,
  /// The result is laid out as operand 1 is, if there is one, and that one as the result is: whichever gets a layout
  /// first gives it to the other (`shard_as`).
  as_partner,
};

/// Attributes of what requests the layout of its annotation.
struct annotation_attributes {
  /// It was made for a gradient, and may meet another annotation where the user's own may not. Of a `match`: it is the
  /// gradient of a `reshard`, and nothing is inferred from one side to the other either.
  bool of_gradient = false;
};

/// Sources whose elements follow from where they are.
enum class pattern : std::uint8_t {
  none,
  /// Every element is `scalar`.
  uniform,
  /// Every element is its own index along a dimension (`index_attributes`).
  index,
};

/// Attributes of ops whose values are `pattern::index`.
struct index_attributes {
  /// The dimension along which elements are counted.
  int dim = 0;
};

/// The effect of an op on values that a mask has set to a very low number, or to zero (execute/causal.hpp).
enum class masking : std::uint8_t {
  none,
  /// Whether operand 0 is at most operand 1: between indices, where a causal mask lets values through.
  order,
  /// Operand 2 where operand 0 is false: makes them.
  choice,
  /// Less another value they are as low as before.
  difference,
  /// The exponential of a number so low is zero.
  exponential,
  /// The number itself, in another type.
  same,
};

/// The facts about an op that passes ask for beyond its rules. None of them knows an op by its name. An `op_info` gives
/// them in this order:
///
/// | group           | facts                                                                                        |
/// |-----------------|----------------------------------------------------------------------------------------------|
/// | border, region  | part, bound_to_region, is_further_result, unique, looks                                      |
/// | buffers         | shares_operand, overwrites, passes_operands, is_operand                                      |
/// | movement        | requests, is_written, moves, travels_along, row_of, has_windows, regroups_dimensions         |
/// | algebra         | values, masks, vanishes_with, multiplies, contracts, adds_up, combines, converts,            |
/// |                 | cheap_to_repeat, keeps_finite, stops_gradient                                                |
/// | text            | attributes                                                                                   |
struct op_facts {
  // Border and region.

  structure part = structure::none;
  /// True if, in a region, the result depends on more than the operands: on the iteration, or on having a buffer of its
  /// own.
  bool bound_to_region = false;
  /// One of the results of operand 0, after the first (ops/further_result.hpp): directly after it, and made with it.
  bool is_further_result = false;
  /// Each is there for its own sake: two with the same operands are not one.
  bool unique = false;
  /// True if the op has an effect when it runs, and nothing reads its result: it lives with its loop, and no pass
  /// decides anything because of it, so that a program is the same with and without it.
  bool looks = false;

  // Buffers.

  /// The result is operand 0's buffer.
  bool shares_operand = false;
  /// The operand that the result equals except for the elements that the op overwrites, or -1. If that operand is not
  /// read afterwards, the two share a buffer, and the kernel is called with one address for both.
  std::int8_t overwrites = -1;
  /// Result n is operand n, with the same type, shape and values: it is there for its gradient alone.
  bool passes_operands = false;
  /// Whether the result is operand 0, with the same type, shape and values. Null: it never is.
  bool (*is_operand)(op_view) = nullptr;

  // Movement.

  layout_request requests = layout_request::none;
  /// The request is one that users write: what moves for it is asked for (program/explicit_mode.hpp).
  bool is_written = false;
  /// The `collective` that it is in a partitioned program, or -1.
  std::int8_t moves = -1;
  /// True for a collective of a partitioned program that travels in the messages of the one before it.
  bool travels_along = false;
  /// The dimension of operand 0 of which the result is one row, whose number operand 1 is; -1 if it is more. A device
  /// that has not this row gives nothing. Null: the result is no row.
  int (*row_of)(op_view) = nullptr;
  /// True if, in a partitioned program, windows may say where its boxes are (partition/boxes.hpp).
  bool has_windows = false;
  /// A dimension of an operand or of the result is several of the other's: one axis may split two of them by parts of
  /// it (program/cut_axes.hpp).
  bool regroups_dimensions = false;

  // Algebra.

  pattern values = pattern::none;
  masking masks = masking::none;
  /// Operands wherever one of which is zero, so is the result: bit k stands for operand k.
  std::uint8_t vanishes_with = 0;
  /// Operands whose product each element is: bit k stands for operand k.
  std::uint8_t multiplies = 0;
  /// Sums of products over dimensions that operands have in common.
  bool contracts = false;
  /// Adds up elements of floats, and rounds the sum to the result's type, once: also to the `accumulate` type of the
  /// one it has, in which terms of devices are kept until they are added up.
  bool adds_up = false;
  /// The `reduction` by which it combines the elements of two operands, or -1.
  std::int8_t combines = -1;
  /// Every element is that of operand 0 in another type.
  bool converts = false;
  /// The gradient of a loop's body computes it again rather than keep it: it takes no work to speak of.
  bool cheap_to_repeat = false;
  /// Elements that are all finite give a finite one, a sum or product beyond the type's range apart: what it makes of
  /// rows that nothing reads does not look like a mistake (program/keep_frames.hpp).
  bool keeps_finite = false;
  /// No derivative passes, though the result follows the operand.
  bool stops_gradient = false;

  // Text.

  /// The names of the op's attributes, in the order of its struct, by which the graph's text shows them
  /// (graph/text.hpp says how one is written): "dim start step", "dims:set kind:sum|prod|max|min".
  const char* attributes = "";
};

}  // namespace espalier
