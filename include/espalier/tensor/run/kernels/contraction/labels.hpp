// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/run/kernels/contraction/plan.hpp>

#include <cstdint>
#include <utility>

namespace espalier::detail {

enum class label_class : std::uint8_t { batch, row, column, sum, invalid };

/// One index of the loop nest that defines a contraction. `stride` is 0 where the tensor does not have the label.
struct contraction_label {
  std::int64_t extent = 1;
  std::int64_t stride[3] = {};
  bool in[3] = {};

  [[nodiscard]] constexpr label_class kind() const {
    if (in[0] && in[1]) return in[2] ? label_class::batch : label_class::sum;
    if (!in[2]) return label_class::invalid;
    return in[0] ? label_class::row : in[1] ? label_class::column : label_class::invalid;
  }
};

struct label_list {
  int count = 0;
  contraction_label item[kernels::contraction::max_labels];
};

/// The labels of `p` with their strides; labels of extent 1 are dropped, since they move no pointer.
[[nodiscard]] constexpr label_list labels_of(const kernels::contraction& p) {
  contraction_label all[kernels::contraction::max_labels];
  const auto add = [&](int which, int rank, const signed char* dims) {
    std::int64_t stride = 1;
    for (int d = rank - 1; d >= 0; --d) {
      contraction_label& label = all[dims[d]];
      label.in[which] = true;
      label.stride[which] += stride;
      stride *= p.extent[dims[d]];
    }
  };
  add(operand_a, p.rank_a, p.a);
  add(operand_b, p.rank_b, p.b);
  add(operand_c, p.rank_c, p.c);
  label_list list;
  for (int l = 0; l < p.label_count; ++l) {
    all[l].extent = p.extent[l];
    if (p.extent[l] != 1) list.item[list.count++] = all[l];
  }
  return list;
}

/// Whether `inner` continues `outer` in every tensor, so that both are one longer label.
[[nodiscard]] constexpr bool continues(const contraction_label& outer, const contraction_label& inner) {
  for (int t = 0; t < 3; ++t) {
    if (outer.in[t] != inner.in[t]) return false;
    if (outer.in[t] && outer.stride[t] != inner.stride[t] * inner.extent) return false;
  }
  return true;
}

constexpr void fuse(label_list& list) {
  for (int i = 0; i < list.count; ++i) {
    for (int j = 0; j < list.count; ++j) {
      if (i == j || !continues(list.item[i], list.item[j])) continue;
      list.item[j].extent *= list.item[i].extent;
      list.item[i] = list.item[--list.count];
      i = -1;  // the fused label may fuse again
      break;
    }
  }
}

/// Sorts by class, and within a class from the outermost label to the innermost as a tensor that is not packed has
/// them: a packed tensor that follows this order can then be walked together with it, without gaps.
constexpr void sort_labels(label_list& list, const bool (&packed)[3]) {
  const auto reference = [&packed](label_class kind) {
    switch (kind) {
      case label_class::batch: return !packed[2] ? 2 : !packed[0] ? 0 : 1;
      case label_class::row: return !packed[2] ? 2 : 0;
      case label_class::column: return !packed[2] ? 2 : 1;
      default: return !packed[0] ? 0 : 1;
    }
  };
  for (int i = 1; i < list.count; ++i) {
    for (int j = i; j > 0; --j) {
      contraction_label& left = list.item[j - 1];
      contraction_label& right = list.item[j];
      const label_class kind = right.kind();
      const int r = reference(kind);
      if (left.kind() < kind || (left.kind() == kind && left.stride[r] >= right.stride[r])) break;
      std::swap(left, right);
    }
  }
}

/// Gives each tensor of `packed` the layout [batch][rows or columns][sum] in the order of the list.
constexpr void lay_out_packed(label_list& list, const bool (&packed)[3]) {
  for (int t = 0; t < 3; ++t) {
    if (!packed[t]) continue;
    std::int64_t stride = 1;
    for (int i = list.count - 1; i >= 0; --i) {
      if (!list.item[i].in[t]) continue;
      list.item[i].stride[t] = stride;
      stride *= list.item[i].extent;
    }
  }
}

/// The rearrangement of tensor `t` between its own layout and scratch. `before` and `after` are the same labels.
[[nodiscard]] constexpr copy_plan copy_of(int t, const label_list& before, const label_list& after) {
  copy_plan copy;
  copy.active = true;
  copy.count = 1;
  for (int i = 0; i < after.count; ++i) {
    if (!after.item[i].in[t]) continue;
    copy_axis axis{after.item[i].extent, before.item[i].stride[t], after.item[i].stride[t]};
    if (t == operand_c) std::swap(axis.from, axis.to);
    copy.count *= axis.extent;
    int at = copy.rank++;
    for (; at > 0 && copy.axis[at - 1].to < axis.to; --at) copy.axis[at] = copy.axis[at - 1];
    copy.axis[at] = axis;
  }
  for (int i = copy.rank - 1; i > 0; --i) {
    copy_axis& outer = copy.axis[i - 1];
    const copy_axis& inner = copy.axis[i];
    if (outer.to != inner.to * inner.extent || outer.from != inner.from * inner.extent) continue;
    outer = {outer.extent * inner.extent, inner.from, inner.to};
    for (int j = i; j + 1 < copy.rank; ++j) copy.axis[j] = copy.axis[j + 1];
    --copy.rank;
  }
  return copy;
}

}  // namespace espalier::detail
