// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/lower.hpp>
#include <espalier/tensor/run/kernels/kernels.hpp>

#include <cstdint>

// The micro-operations that kernel sets have (kernel_set.hpp): these ops, on these types. Of any other a program has
// its own code: an op that is not listed here works, and costs each program what it costs to compile.

namespace espalier::kernels {

/// How the types of operands and result belong together, for a type T.
enum class block_signature : std::uint8_t {
  same,        ///< all are T
  compares,    ///< operands are T, the result is a truth value
  selects,     ///< the first operand is a truth value, all else is T
  normalises,  ///< the first operand and the result are T, all else is what T is computed in
  converts,    ///< the operand is T, the result any of the types
  fills,       ///< there are no operands
  counts,      ///< there are none, and the index runs along the columns
  reduces      ///< a row, or all rows of a block, to T
};

/// A set of element types.
using type_set = std::uint32_t;
[[nodiscard]] constexpr type_set only(dtype type) { return type_set{1} << static_cast<int>(type); }
[[nodiscard]] constexpr bool has(type_set set, dtype type) { return (set & only(type)) != 0; }
/// Those of f16 are steps of f32 with conversions around them, and cost next to nothing.
inline constexpr type_set shared_floats = only(dtype::f32) | only(dtype::f64) | only(dtype::bf16) | only(dtype::f16);
inline constexpr type_set shared_bytes = only(dtype::i8) | only(dtype::u8);
inline constexpr type_set shared_words = only(dtype::i32) | only(dtype::u32) | only(dtype::i64) | shared_bytes;
inline constexpr type_set shared_numbers = shared_floats | shared_words;
inline constexpr type_set shared_types = shared_numbers | only(dtype::boolean);
inline constexpr type_set all_types = (type_set{1} << dtype_count) - 1;

struct shared_block {
  const op_info* op = nullptr;
  block_signature signature = block_signature::same;
  int operands = 0;
  type_set types = 0;
};
inline constexpr shared_block shared_blocks[]{
    {&ops::exp, block_signature::same, 1, shared_floats},
    {&ops::log, block_signature::same, 1, shared_floats},
    {&ops::sqrt, block_signature::same, 1, shared_floats},
    {&ops::rsqrt, block_signature::same, 1, shared_floats},
    {&ops::tanh, block_signature::same, 1, shared_floats},
    {&ops::sigmoid, block_signature::same, 1, shared_floats},
    {&ops::relu, block_signature::same, 1, shared_floats},
    {&ops::silu, block_signature::same, 1, shared_floats},
    {&ops::gelu, block_signature::same, 1, shared_floats},
    {&ops::silu_slope, block_signature::same, 1, shared_floats},
    {&ops::gelu_slope, block_signature::same, 1, shared_floats},
    {&ops::negate, block_signature::same, 1, shared_numbers},
    {&ops::abs, block_signature::same, 1, shared_numbers},
    {&ops::sin, block_signature::same, 1, shared_floats},
    {&ops::cos, block_signature::same, 1, shared_floats},
    {&ops::logical_not, block_signature::same, 1, only(dtype::boolean)},
    {&ops::add, block_signature::same, 2, shared_numbers},
    {&ops::subtract, block_signature::same, 2, shared_numbers},
    {&ops::multiply, block_signature::same, 2, shared_numbers},
    {&ops::divide, block_signature::same, 2, shared_numbers},
    {&ops::remainder, block_signature::same, 2, shared_numbers},
    {&ops::maximum, block_signature::same, 2, shared_numbers},
    {&ops::minimum, block_signature::same, 2, shared_numbers},
    {&ops::logical_and, block_signature::same, 2, only(dtype::boolean)},
    {&ops::logical_or, block_signature::same, 2, only(dtype::boolean)},
    {&ops::erf, block_signature::same, 1, shared_floats},
    {&ops::erfc, block_signature::same, 1, shared_floats},
    {&ops::erf_inv, block_signature::same, 1, shared_floats},
    {&ops::expm1, block_signature::same, 1, shared_floats},
    {&ops::log1p, block_signature::same, 1, shared_floats},
    {&ops::tan, block_signature::same, 1, shared_floats},
    {&ops::floor, block_signature::same, 1, shared_floats},
    {&ops::ceil, block_signature::same, 1, shared_floats},
    {&ops::trunc, block_signature::same, 1, shared_floats},
    {&ops::round, block_signature::same, 1, shared_floats},
    {&ops::sign, block_signature::same, 1, shared_numbers},
    {&ops::pow, block_signature::same, 2, shared_floats},
    {&ops::atan2, block_signature::same, 2, shared_floats},
    {&ops::clamp, block_signature::same, 3, shared_numbers},
    {&ops::bitwise_and, block_signature::same, 2, shared_words},
    {&ops::bitwise_or, block_signature::same, 2, shared_words},
    {&ops::bitwise_xor, block_signature::same, 2, shared_words},
    {&ops::bitwise_not, block_signature::same, 1, shared_words},
    {&ops::shift_left, block_signature::same, 2, shared_words},
    {&ops::shift_right_logical, block_signature::same, 2, shared_words},
    {&ops::shift_right_arithmetic, block_signature::same, 2, shared_words},
    {&ops::is_finite, block_signature::compares, 1, shared_floats},
    {&ops::softmax, block_signature::normalises, 3, shared_floats},
    {&ops::standardise, block_signature::normalises, 3, shared_floats},
    {&ops::less, block_signature::compares, 2, shared_numbers},
    {&ops::less_equal, block_signature::compares, 2, shared_numbers},
    {&ops::equal, block_signature::compares, 2, shared_types},
    {&ops::not_equal, block_signature::compares, 2, shared_types},
    {&ops::select, block_signature::selects, 3, shared_types},
    {&ops::convert, block_signature::converts, 1, shared_types},
    {&ops::broadcast, block_signature::same, 1, all_types},
    {&ops::reshape, block_signature::same, 1, all_types},
    {&ops::copy, block_signature::same, 1, all_types},
    {&ops::shard, block_signature::same, 1, all_types},
    {&ops::result, block_signature::same, 1, all_types},
    {&ops::stop_gradient, block_signature::same, 1, all_types},
    {&ops::constant, block_signature::fills, 0, all_types},
    {&ops::iota, block_signature::counts, 0, only(dtype::f32) | only(dtype::i32) | only(dtype::i64)},
    {&ops::reduce, block_signature::reduces, 1, shared_numbers},
    {&ops::reduce_sum, block_signature::reduces, 1, shared_numbers},
};
inline constexpr int shared_block_count = static_cast<int>(sizeof(shared_blocks) / sizeof(shared_block));

/// The type of operand `k` of a step of such a signature, for a type T.
[[nodiscard]] constexpr dtype operand_type_of(block_signature signature, int k, dtype type) {
  if (signature == block_signature::selects && k == 0) return dtype::boolean;
  return signature == block_signature::normalises && k > 0 ? facts_of(type).accumulate : type;
}
/// Whether a row of the list has the types of `key`. Reductions from another type are left to the programs.
[[nodiscard]] constexpr bool has_types(const shared_block& row, const block_key& key) {
  if (key.operand_count != row.operands) return false;
  const dtype type = row.signature == block_signature::compares || row.signature == block_signature::converts
                         ? key.operand_type[0]
                         : key.type;
  if (!has(row.types, type)) return false;
  if (row.signature == block_signature::counts && !attributes_of<fused_index_attributes>(key).along_columns)
    return false;
  if (row.signature == block_signature::compares && key.type != dtype::boolean) return false;
  if (row.signature == block_signature::converts) return has(row.types, key.type);
  for (int k = 0; k < row.operands; ++k) {
    if (key.operand_type[k] != operand_type_of(row.signature, k, type)) return false;
  }
  return true;
}
/// Whether kernel sets have the micro-operation.
[[nodiscard]] constexpr bool is_shared(const op_info* op, const block_key& key) {
  for (const shared_block& row : shared_blocks) {
    if (row.op == op) return has_types(row, key);
  }
  return false;
}

}  // namespace espalier::kernels
