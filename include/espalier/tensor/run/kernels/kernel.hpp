// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/dtype.hpp>
#include <espalier/tensor/core/graph/op.hpp>

#include <cstdint>

namespace espalier::kernels {

/// The granularity of a lower triangle. If only the lower triangle of a square matters (under a causal mask), row i is
/// computed at least up to the next multiple of this: whole vectors, and row lengths that change seldom enough for the
/// processor to predict where rows end.
inline constexpr std::int64_t triangle_grain = 32;

/// The key that a kernel is specialised for: everything static about an instruction except which one it is, so that
/// equal ops share one instantiation.
struct kernel_key {
  dtype type = dtype::f32;
  extents shape;
  int operand_count = 0;
  /// Only the first `inline_operands` are part of the key; the others are passed at run time.
  dtype operand_type[inline_operands]{};
  extents operand_shape[inline_operands]{};
  /// Those of the instruction (`attributes_of`).
  std::int64_t attribute[max_attributes]{};
};

/// An operand beyond the first few.
struct further_operand {
  const void* data = nullptr;
  dtype type = dtype::f32;
  extents shape;
};

/// A result after the first.
struct further_result {
  void* data = nullptr;
  dtype type = dtype::f32;
  extents shape;
};

/// The place in a program at which it looks at a value (`op_facts::looks`).
struct look_site {
  const instruction* self = nullptr;
  const mesh_shape* mesh = nullptr;
  /// The placement of the value.
  const sharding* placement = nullptr;
  int device = 0;
  /// The enclosing loops, at most four, the innermost first; any further loops are omitted.
  int loops = 0;
  std::int64_t iteration[4]{};
};

/// What follows a product on each part of its result, as soon as that is complete: the first-level cache has it then.
/// The parts make up the result, without overlap; threads call at the same time, each on parts of its own.
struct product_tail {
  /// Called with the part's first row, rows, first column and columns of the result as a matrix.
  void (*run)(const product_tail& self, std::int64_t row, std::int64_t rows, std::int64_t column,
              std::int64_t columns) = nullptr;
  /// The columns of the matrix that it can follow, 0: any long rows (`is_long_row`); once it is taken, those it has.
  std::int64_t columns = 0;
  /// Whether parts have to be whole rows.
  bool takes_whole_rows = false;
  /// Set by the kernel if it calls `run`: otherwise what follows is still to be done.
  bool is_taken = false;
};

/// The arguments of a kernel. All tensors are dense and row-major.
struct kernel_call {
  const void* operand[inline_operands]{};
  const further_operand* further = nullptr;
  void* result = nullptr;
  /// Results 1, 2, ...
  const further_result* further_results = nullptr;
  double scalar = 0;
  /// The boxes of the instruction, if the op is positional.
  const instruction_boxes* boxes = nullptr;
  /// The graph's table (`builder::add_windows`).
  const placed_window* windows = nullptr;
  /// The site, if the op looks at a value.
  const look_site* site = nullptr;
  /// Holds at least `kernel<Op>::scratch_bytes(key)` bytes, aligned to 64.
  void* scratch = nullptr;
  /// The batch item of an einsum (`gemm_plan::iterations`) to compute alone; negative: all of them.
  std::int64_t item = -1;
  /// True if that product is a square of which only the lower triangle is needed (see `triangle_grain`).
  bool lower_triangle = false;
  /// What is to follow a product, if its kernel can call it.
  product_tail* tail = nullptr;

  /// The elements of operand k.
  [[nodiscard]] const void* operand_at(int k) const {
    return k < inline_operands ? operand[k] : further[k - inline_operands].data;
  }
  /// Its shape.
  [[nodiscard]] const extents& shape_of(const kernel_key& key, int k) const {
    return k < inline_operands ? key.operand_shape[k] : further[k - inline_operands].shape;
  }
};

/// The shard kernel of an op, specialised in kernels/<family>.hpp for the ops of ops/<family>.hpp:
///
///     template <> struct kernel<&ops::transpose> {
///       static constexpr std::int64_t scratch_bytes(const kernel_key&) { return 0; }
///       template <kernel_key Key> static void run(const kernel_call& call);
///     };
template <const op_info* Op> struct kernel;

/// The base of the kernels that need no memory but operands and result.
struct no_scratch {
  static constexpr std::int64_t scratch_bytes(const kernel_key& /*key*/) { return 0; }
};

/// One operand or result of a micro-operation: where the block's first row starts, and how many elements further the
/// next row does. Whether a row has one element per column or one for all columns is static.
struct stream {
  void* data = nullptr;
  std::int64_t row = 0;
};

/// A micro-operation works on a block of rows that stays in the first-level cache while a chain of fused ops passes
/// over it: `rows` rows of `columns` elements.
struct block_call {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  /// Index of the block's first row, among all rows of the fused group.
  std::int64_t first_row = 0;
  /// The index of the block's first column, if the row is cut.
  std::int64_t first_column = 0;
  stream operand[3];
  stream result;
  double scalar = 0;
  const instruction_boxes* boxes = nullptr;
};
using block_function = void (*)(const block_call&);

/// The key that a micro-operation is specialised for.
struct block_key {
  /// Static for short rows; 0 for long ones (`is_long_row`), of which the call says how long they are; `any_columns`
  /// for the blocks of rows that are cut, where these are no whole number of vectors.
  std::int64_t columns = 1;
  dtype type = dtype::f32;
  int operand_count = 0;
  dtype operand_type[3]{};
  /// Whether an operand has one element per column (true) or one per row.
  bool wide[3]{};
  /// The same of the result.
  bool result_wide = true;
  /// Not those of the instruction, but what a step of a chain needs of them (`fused_reduction_attributes`, ...).
  std::int64_t attribute[max_attributes]{};
};

/// The micro-operation of an op that can be fused: elementwise ops, and reductions and constants made row by row.
///
///     template <> struct block_kernel<&ops::add> {
///       template <block_key Key> static void run(const block_call& call);
///     };
template <const op_info* Op> struct block_kernel;

}  // namespace espalier::kernels
