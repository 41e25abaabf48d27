// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/factors.hpp>
#include <espalier/tensor/core/graph/op_facts.hpp>
#include <espalier/tensor/core/graph/window.hpp>
#include <espalier/tensor/core/mesh/mesh.hpp>
#include <espalier/tensor/core/sharding/box.hpp>

#include <cstdint>

namespace espalier {

struct gradient_context;
class partition_context;
class map_context;
struct mapped_value;

/// The order in which completion carries shardings through ops (GSPMD section 3.5; the order of XLA's four levels).
enum class propagation : std::uint8_t {
  /// Elementwise and other ops that keep every dimension: first, both ways.
  elementwise,
  /// Ops that add or remove dimensions.
  dimensional,
  /// Broadcasts: backward before forward, to keep communication off the larger shape.
  broadcast,
  /// Nothing passes.
  none,
};

/// A result that is linear in an operand may be computed on the terms of a partial.
enum class linearity : std::uint8_t {
  none,
  /// Linear in operand 0 alone; the others, if any, only select.
  first,
  /// Linear in all operands together: all of them must be partial on the same axes (addition).
  joint,
  /// Linear in each operand alone, while the others are replicated on the partial axes (multiplication).
  each,
};

/// The part that an op may play in a fused chain, which passes over a block of rows while it is in the cache.
enum class fusion : std::uint8_t {
  /// Never: it has a kernel of its own.
  alone,
  /// One element of the result from the elements at the same place.
  elementwise,
  /// Dimensions disappear: fused when they are the last one, or all but the last one.
  reduction,
  /// Costs nothing: its reader uses the operand with another stride.
  broadcast,
  /// Has no operands; made where it is read.
  source,
};

/// Attributes of ops that are `fusion::reduction`: they combine the elements along some dimensions, which disappear.
struct reduction_attributes {
  /// The dimensions, as a bit set.
  std::int64_t dims = 0;
  reduction kind = reduction::sum;
};

/// The attributes of a reduction that a step of a fused chain keeps.
struct fused_reduction_attributes {
  reduction kind = reduction::sum;
  /// The rows of the block are combined into a row of accumulators, which has a value already; otherwise each row is
  /// combined into one result.
  bool accumulates = false;
};
/// The attributes of an index (`pattern::index`) that a step keeps; it computes the index where it is read.
struct fused_index_attributes {
  /// The index runs along the columns. Otherwise it runs along the rows: row r has index r / repeat % size.
  bool along_columns = false;
  /// The dimension of the tensor.
  int dim = 0;
  std::int64_t repeat = 1;
  std::int64_t size = 1;
};

/// Fused chains whose rows have so many columns, and whole vectors of them, share their kernels for all lengths: the
/// loops know no number but that they need no remainder. So what is compiled does not depend on how far a mesh splits
/// a tensor.
[[nodiscard]] constexpr bool is_long_row(std::int64_t columns) { return columns >= 64 && columns % 16 == 0; }

/// Stands for the columns of a block (`kernels::block_key`) of which the call says how many they are: any number.
inline constexpr std::int64_t any_columns = -1;

/// Where the elements of an op come from that only moves those of operand 0, along one dimension: element o of the
/// result is element o + by of the operand, in whole tensors, and zero where the operand has none.
struct element_shift {
  /// -1: the op does more.
  int dim = -1;
  std::int64_t by = 0;
  /// The dimension is a circle: o + by is meant modulo its extent.
  bool wraps = false;
};

/// The boxes of an instruction's result and operands in their whole tensors, on one device. A buffer may have room for
/// more elements than its box has: those after the box are padding.
struct instruction_boxes {
  tensor_box result;
  per_operand<tensor_box> operand;
  /// The extents of the whole result, from which follows which of its elements an element of the buffer is.
  extents whole;
};

/// One device's data for the reference evaluation: everything is held in double precision.
struct evaluation {
  const instruction* self = nullptr;
  per_operand<const double*> operand;
  per_operand<const extents*> operand_shape;
  per_operand<dtype> operand_type;
  double* result = nullptr;
  /// Results 1, 2, ...
  double* const* further_result = nullptr;
  /// The boxes of the instruction, if the op is positional.
  const instruction_boxes* boxes = nullptr;
  /// The graph's table (`builder::add_windows`).
  const placed_window* windows = nullptr;
};

/// Everything the compiler half knows about an op. A null entry means that the op has no such rule, and a program
/// that needs it does not compile.
struct op_info {
  const char* name = "";
  propagation spread = propagation::none;
  linearity linear = linearity::none;
  fusion fuse = fusion::alone;
  op_facts facts{};
  /// Returns how dimensions correspond.
  factor_rule (*factors)(op_view) = nullptr;
  /// Appends the cotangents of the operands.
  void (*gradient)(gradient_context&) = nullptr;
  /// Evaluates the op plainly, in double precision: the oracle of all tests.
  void (*evaluate)(const evaluation&) = nullptr;
  /// Floating-point operations on operands and result of these shapes.
  std::int64_t (*flops)(op_view) = nullptr;
  /// The windows through which dimensions of operand `k` are read, one for each of the dimensions whose bits are
  /// returned: there the rule gives the factor over which the window moves. Null if there are none.
  std::uint32_t (*windows)(op_view, int k, window* of_dimension) = nullptr;
  /// Appends the local counterpart of the op in steps of its own and returns the last of them (graph/lowering.hpp); or
  /// -1: then, and if there is no such function, it becomes one instruction, whose factors are split by axes.
  int (*lower)(partition_context&) = nullptr;
  /// True if the result depends on the positions of result and operands in their tensors: kernels and `evaluate` get
  /// boxes.
  bool positional = false;
  /// The value that leaves a reduction over a padded dimension unchanged, when the op reduces one.
  double (*identity)(op_view) = nullptr;
  /// The dimensions of operand and result, as a bit set, along which an element of the result depends on other
  /// elements, although devices may split them. Null: there are none.
  std::uint32_t (*carries_along)(op_view) = nullptr;
  /// Returns how the op moves the elements of operand 0, if it does nothing else: a fused chain may read them where
  /// they are (partition/shifted_rows.hpp). Null: it does something else.
  element_shift (*shifts)(op_view) = nullptr;
  /// Writes the box `part` of the whole tensor into a buffer; set for a table in the user's source.
  void (*fill)(void* to, const extents& buffer, const extents& whole, const tensor_box& part) = nullptr;
  /// Appends the op over one more dimension of some of its operands (graph/mapping.hpp). Null: the op itself, with that
  /// dimension in all of its operands, where `factors` say that it passes.
  mapped_value (*map)(map_context&) = nullptr;
};

[[nodiscard]] constexpr bool is_further_result(const instruction& i) { return i.op->facts.is_further_result; }
/// Returns the number of results that instruction `id` of `size` has after the first: they follow it.
[[nodiscard]] constexpr int further_results(const instruction* code, int size, int id) {
  int last = id + 1;
  while (last < size && is_further_result(code[last])) ++last;
  return is_further_result(code[id]) ? 0 : last - id - 1;
}

/// Whether a fused chain that reads a value of this op, which is not in memory, reads operand 0 instead: repeated, or
/// moved.
[[nodiscard]] constexpr bool is_read_through(const instruction& i) {
  return i.op->fuse == fusion::broadcast || i.op->shifts != nullptr;
}

[[nodiscard]] constexpr structure structure_of(const instruction& i) { return i.op->facts.part; }
[[nodiscard]] constexpr layout_request requests_of(const instruction& i) { return i.op->facts.requests; }

}  // namespace espalier
