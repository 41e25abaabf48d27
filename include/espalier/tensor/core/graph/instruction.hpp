// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/dtype.hpp>
#include <espalier/base/light_std/list.hpp>
#include <espalier/tensor/core/diagnostics/source_line.hpp>
#include <espalier/tensor/core/graph/attributes.hpp>
#include <espalier/tensor/core/sharding/sharding.hpp>

#include <cstdint>

namespace espalier {

struct op_info;

/// The number of operands that an instruction has room for itself. The few that have more keep the others in a table of
/// their graph, so that all others stay small.
inline constexpr int inline_operands = 4;

/// One operation on tensors. Operands and the enclosing region are indices into the graph's code, always smaller than
/// the instruction's own index, except that a `region_begin` is its own region's name.
struct instruction {
  const op_info* op = nullptr;
  dtype type = dtype::f32;
  /// Extents of the result: of the whole tensor before partitioning, of a device's buffer after it.
  extents shape;
  /// Any number (`operand_at`).
  int operand_count = 0;
  int operand[inline_operands]{-1, -1, -1, -1};
  /// The place of the further operands in the graph's table, or -1 if there are none.
  int further = -1;
  /// The attributes, with the meaning that the op's own struct gives them: read and written through
  /// graph/attributes.hpp.
  std::int64_t attribute[max_attributes]{};
  double scalar = 0;
  /// The innermost region that it belongs to, named by its `region_begin` (graph/region.hpp); -1: none.
  int region = -1;
  /// Index of a layout in the graph's annotations, or -1.
  int annotation = -1;
  /// The instruction of the traced graph that this one was made for; set by partitioning.
  int origin = -1;
  source_line where;
  const char* label = nullptr;

  /// Operand k. `table` is that of the graph (`graph::further`).
  [[nodiscard]] constexpr int operand_at(int k, const int* table) const {
    return k < inline_operands ? operand[k] : table[further + k - inline_operands];
  }
  [[nodiscard]] constexpr int& operand_at(int k, int* table) {
    return k < inline_operands ? operand[k] : table[further + k - inline_operands];
  }
};

/// Something for each operand of an instruction, however many there are.
template <class T> class per_operand {
 public:
  [[nodiscard]] constexpr T& operator[](int k) {
    if (k < inline_operands) return first_[k];
    if (further_.size() <= k - inline_operands) further_.resize(k - inline_operands + 1);
    return further_[k - inline_operands];
  }
  /// @pre something was put there, or k < inline_operands
  [[nodiscard]] constexpr const T& operator[](int k) const {
    return k < inline_operands ? first_[k] : further_[k - inline_operands];
  }

 private:
  T first_[inline_operands]{};
  detail::list<T> further_;
};

}  // namespace espalier
