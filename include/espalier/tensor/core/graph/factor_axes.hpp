// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/factors.hpp>
#include <espalier/tensor/core/mesh/mesh.hpp>

#include <cstdint>

namespace espalier::detail {

/// The axes each factor of an op is split by, as one of its tensors says. (Codes, since a constant evaluation makes an
/// array of numbers in one step and constructs objects one by one.)
class factor_axes {
 public:
  [[nodiscard]] constexpr axis_list operator[](int factor) const { return axis_list::from_code(code_[factor]); }
  constexpr void set(int factor, axis_list axes) { code_[factor] = axes.code(); }

 private:
  std::uint32_t code_[max_factors]{};
};

/// Reads one dimension: its axes go to its factors from major to minor. A factor hands on to the next only when its
/// axes split it completely, and splits of compound dimensions must be even.
constexpr void read_dimension(const mesh_shape& mesh, const factor_rule& rule, factor_list factors, axis_list axes,
                              factor_axes& into) {
  if (factors.code() < 16U) {
    into.set(factors[0], axes);
    return;
  }
  int next = 0;
  for (int i = 0; i < factors.size() && next < axes.size(); ++i) {
    const int factor = factors[i];
    axis_list taken;
    std::int64_t rest = rule.size[factor];
    while (next < axes.size() && rest > 1 && rest % mesh.size[axes[next]] == 0) {
      rest /= mesh.size[axes[next]];
      taken = taken.with(axes[next++]);
    }
    into.set(factor, taken);
    if (rest > 1) return;
  }
}

/// The axes of a dimension with these factors.
constexpr axis_list write_dimension(const mesh_shape& mesh, const factor_rule& rule, factor_list factors,
                                    const factor_axes& from) {
  if (factors.code() < 16U) return from[factors[0]];
  axis_list result;
  for (int i = 0; i < factors.size(); ++i) {
    const int factor = factors[i];
    const axis_list axes = from[factor];
    std::int64_t rest = rule.size[factor];
    for (int k = 0; k < axes.size(); ++k) {
      if (rest % mesh.size[axes[k]] != 0) return result;
      rest /= mesh.size[axes[k]];
      result = result.with(axes[k]);
    }
    if (rest > 1) return result;
  }
  return result;
}

/// Whether axes split the major factor of a compound dimension unevenly, and every device gets a part of it. The parts
/// of the dimension are not those of the factor then, but of about the same elements: completion carries the axes
/// across, and `reshape` moves what lies between (ops/reshape.hpp).
[[nodiscard]] constexpr bool splits_major_unevenly(const mesh_shape& mesh, const factor_rule& rule, factor_list factors,
                                                   axis_list axes) {
  if (factors.code() < 16U || axes.empty()) return false;
  const std::int64_t major = rule.size[factors[0]];
  return major % mesh.size[axes[0]] != 0 && major >= mesh.parts(axes);
}

}  // namespace espalier::detail
