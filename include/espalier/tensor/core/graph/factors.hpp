// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/dtype.hpp>
#include <espalier/tensor/core/graph/instruction.hpp>
#include <espalier/tensor/core/graph/window.hpp>

#include <cstdint>

namespace espalier {

inline constexpr int max_factors = 12;

/// The effect of splitting a factor of an op over mesh axes.
enum class factor_kind : std::uint8_t {
  /// Every device computes its part of the result, no communication.
  pass,
  /// Every device computes a term of the result: it has to be reduced over those axes.
  reduce,
  /// The op cannot work on a part of this factor: it must be whole on every device.
  blocked,
};

/// Short ordered lists of factor numbers have the same encoding as lists of axes.
using factor_list = axis_list;

/// The correspondence of an op's dimensions (Shardy's sharding rule): every dimension of every operand and of the
/// result is a list of factors, major to minor; `bm,mh->bh` has the factors b, m, h. Completion, partitioning,
/// resharding and cost all work through this one description.
struct factor_rule {
  int count = 0;
  std::int64_t size[max_factors]{};
  factor_kind kind[max_factors]{};
  reduction combine = reduction::sum;
  factor_list operand[inline_operands][max_rank]{};
  /// The dimensions of the operands beyond those: a table that outlives the rule, next to the op. Null: each has those
  /// of the last operand before them.
  const factor_list (*further)[max_rank] = nullptr;
  factor_list result[max_rank]{};
  /// The dimensions of the results after the first, likewise. Null: each has those of the first.
  const factor_list (*further_results)[max_rank] = nullptr;

  /// The dimensions of operand k.
  [[nodiscard]] constexpr const factor_list* dims_of(int k) const {
    if (k < inline_operands) return &operand[k][0];
    return further == nullptr ? &operand[inline_operands - 1][0] : &further[k - inline_operands][0];
  }
  /// The dimensions of result n.
  [[nodiscard]] constexpr const factor_list* dims_of_result(int n) const {
    return n == 0 || further_results == nullptr ? &result[0] : &further_results[n - 1][0];
  }

  constexpr int add(std::int64_t extent, factor_kind what = factor_kind::pass) {
    size[count] = extent;
    kind[count] = what;
    return count++;
  }
};

/// An instruction together with its operands' instructions: what an op's own functions read.
struct op_view {
  const instruction* code = nullptr;
  int id = 0;
  /// The graph's table, where the op may have some of its own (`builder::add_windows`).
  const placed_window* windows = nullptr;
  /// The graph's table of further operands.
  const int* further = nullptr;

  [[nodiscard]] constexpr const instruction& self() const { return code[id]; }
  [[nodiscard]] constexpr const instruction& operand(int k) const { return code[code[id].operand_at(k, further)]; }
};

}  // namespace espalier
