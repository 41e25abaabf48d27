// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/op.hpp>

#include <cstdint>

namespace espalier {

class builder;

/// A value with one more dimension than it was traced with: that of the lanes over which `vmap` maps a function.
struct mapped_value {
  int id = -1;
  /// Where in the value's shape that dimension is.
  int at = 0;
};

/// An instruction that is appended over lanes, as its op sees it (`op_info::map`). An op says for itself how where its
/// `factors` do not: an operand that all lanes share stays as it is, or a lookup has a table for each lane. What it
/// appends has the line and the loop of the instruction. In a region by hand lanes are the devices along an axis.
///
///     constexpr mapped_value map_scaled_rows(map_context& c) {  // operands x[rows, n], one factor[rows] for each row
///       const int factor = c.is_mapped(1) ? c.operand(1, 0) : c.operand(1);
///       return {emit_scaled_rows(c.emit(), c.operand(0, 0), factor), 0};  // an op that knows both
///     }
class map_context {
 public:
  [[nodiscard]] constexpr virtual builder& emit() = 0;
  /// The instruction as it was traced, without the new dimension. (Its operands' ids mean nothing.)
  [[nodiscard]] constexpr virtual op_view op() const = 0;
  /// The number of lanes.
  [[nodiscard]] constexpr virtual std::int64_t lanes() const = 0;
  /// Whether operand k differs from lane to lane.
  [[nodiscard]] constexpr virtual bool is_mapped(int k) const = 0;
  /// Operand k, the same for all lanes.
  /// @pre !is_mapped(k)
  [[nodiscard]] constexpr virtual int operand(int k) = 0;
  /// Operand k with the lanes as dimension `at`; repeated for each of them if it is the same for all.
  [[nodiscard]] constexpr virtual int operand(int k, int at) = 0;
  /// Appends the op as if it had no function of its own. A result without an id: its factors do not let lanes pass.
  [[nodiscard]] constexpr virtual mapped_value by_factors() = 0;
  /// Appends the op with the lanes merged into dimension `dim` of the result and those of the operands that are the
  /// same factor: of 5 lanes with 8 images each, 40 images. What has no such dimension is the same for all lanes.
  /// @pre the op has one result
  [[nodiscard]] constexpr virtual mapped_value merged_into(int dim) = 0;

 protected:
  constexpr map_context() = default;
  constexpr map_context(const map_context&) = default;
  constexpr map_context& operator=(const map_context&) = default;
  constexpr ~map_context() = default;
};

}  // namespace espalier
