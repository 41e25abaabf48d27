// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/run/kernels/contraction/labels.hpp>

#include <cstdint>

namespace espalier::detail {

/// ns to rearrange on one thread. The constants of this and the next estimates are roundings of what an AVX-512 core
/// does; only their order of magnitude matters, because alternatives differ by factors.
[[nodiscard]] constexpr double copy_cost(const copy_plan& copy) {
  const bool rows = copy.rank == 0 || copy.axis[copy.rank - 1].from == 1;
  return 200.0 + static_cast<double>(copy.count) * (rows ? 0.3 : 0.8);
}

[[nodiscard]] constexpr double gemm_cost(double m, double n, double k) {
  return 300.0 + 2.0 * (m + 8.0) * (n + 8.0) * (k + 16.0) / 150.0 + 0.1 * (m * k + k * n + 2.0 * m * n);
}

/// Picks the innermost product and the loops around it for labels whose strides are settled.
class product_search {
 public:
  constexpr explicit product_search(const label_list& list) : list_(list) {
    for (int i = 0; i < list.count; ++i) total_ *= static_cast<double>(list.item[i].extent);
  }

  constexpr void run() {
    for (int i = 0; i < list_.count; ++i) {
      const label_class kind = list_.item[i].kind();
      if (kind == label_class::sum) {
        try_products(i);
        try_dots(i);
      } else {
        try_pointwise(i);
      }
    }
    if (list_.count == 0) offer(product_kind::pointwise, -1, -1, -1, 10.0);
  }

  [[nodiscard]] constexpr double cost() const { return cost_; }

  constexpr void write(kernels::gemm_plan& plan) const {
    plan.kind = kind_;
    plan.cost = cost_;
    const contraction_label none;
    const contraction_label& m = m_ < 0 ? none : list_.item[m_];
    const contraction_label& n = n_ < 0 ? none : list_.item[n_];
    const contraction_label& k = k_ < 0 ? none : list_.item[k_];
    const int x = swapped_ ? operand_b : operand_a;
    const int y = swapped_ ? operand_a : operand_b;
    plan.swapped = swapped_;
    plan.m = m.extent;
    plan.n = n.extent;
    plan.k = k.extent;
    plan.c_row = m.stride[operand_c];
    plan.c_column = n.stride[operand_c];
    plan.a_row = m.stride[x];
    switch (kind_) {
      case product_kind::gemm:
      case product_kind::gemv:
        plan.a_column = k.stride[x];
        plan.b_row = k.stride[y];
        plan.b_column = n.stride[y];
        break;
      case product_kind::dots:
        plan.a_column = k.stride[x];
        plan.b_row = m.stride[y];
        plan.b_column = k.stride[y];
        break;
      default:
        plan.a_column = n.stride[x];
        plan.b_row = m.stride[y];
        plan.b_column = n.stride[y];
        break;
    }
    for (int i = 0; i < list_.count; ++i) {
      if (i == m_ || i == n_ || i == k_) continue;
      const contraction_label& label = list_.item[i];
      const bool sums = label.kind() == label_class::sum;
      loop_axis* loops = sums ? plan.sum_loops : plan.loops;
      int& count = sums ? plan.sum_loop_count : plan.loop_count;
      (sums ? plan.sum_iterations : plan.iterations) *= label.extent;
      const loop_axis loop{label.extent, label.stride[x], label.stride[y], label.stride[operand_c]};
      // Neighbouring iterations should touch neighbouring memory: the longest step of C (or of A) goes outside.
      const auto step = [sums](const loop_axis& l) { return sums ? l.a : l.c; };
      int at = count++;
      for (; at > 0 && step(loops[at - 1]) < step(loop); --at) loops[at] = loops[at - 1];
      loops[at] = loop;
    }
  }

 private:
  [[nodiscard]] constexpr double extent(int label) const {
    return label < 0 ? 1.0 : static_cast<double>(list_.item[label].extent);
  }
  [[nodiscard]] constexpr std::int64_t stride(int label, int tensor) const {
    return label < 0 ? 0 : list_.item[label].stride[tensor];
  }
  [[nodiscard]] constexpr bool unit(int label, int tensor) const { return stride(label, tensor) == 1; }

  constexpr void offer(product_kind kind, int m, int n, int k, double each, bool swapped = false) {
    const double calls = total_ / (extent(m) * extent(n) * extent(k));
    if (cost_ >= 0.0 && calls * each >= cost_) return;
    cost_ = calls * each;
    kind_ = kind;
    m_ = m;
    n_ = n;
    k_ = k;
    swapped_ = swapped;
  }

  constexpr void try_products(int k) {
    for (int m = 0; m < list_.count; ++m) {
      const label_class kind = list_.item[m].kind();
      if (kind != label_class::row && kind != label_class::column) continue;
      const int matrix = kind == label_class::row ? operand_a : operand_b;
      if (!unit(m, matrix) && !unit(k, matrix)) continue;
      offer(product_kind::gemv, m, -1, k, 150.0 + 0.12 * extent(m) * extent(k), kind == label_class::column);
      if (kind != label_class::row) continue;
      for (int n = 0; n < list_.count; ++n) {
        if (list_.item[n].kind() != label_class::column) continue;
        if (!unit(n, operand_b) && !unit(k, operand_b)) continue;
        const double each = gemm_cost(extent(m), extent(n), extent(k));
        if (unit(n, operand_c)) offer(product_kind::gemm, m, n, k, each);
        if (unit(m, operand_c)) offer(product_kind::gemm, n, m, k, each, true);
      }
    }
  }

  constexpr void try_dots(int k) {
    const double each = 10.0 + extent(k) * (unit(k, operand_a) && unit(k, operand_b) ? 0.1 : 1.0);
    for (int m = -1; m < list_.count; ++m) {
      if (m >= 0 && list_.item[m].kind() == label_class::sum) continue;
      offer(product_kind::dots, m, -1, k, 15.0 + each * extent(m));
    }
  }

  constexpr void try_pointwise(int n) {
    const bool quick = unit(n, operand_c) && stride(n, operand_a) <= 1 && stride(n, operand_b) <= 1;
    const double each = 5.0 + extent(n) * (quick ? 0.15 : 1.0);
    for (int m = -1; m < list_.count; ++m) {
      if (m == n || (m >= 0 && list_.item[m].kind() == label_class::sum)) continue;
      offer(product_kind::pointwise, m, n, -1, 15.0 + each * extent(m));
    }
  }

  const label_list& list_;
  double total_ = 1.0;
  double cost_ = -1.0;
  product_kind kind_ = product_kind::empty;
  int m_ = -1;
  int n_ = -1;
  int k_ = -1;
  bool swapped_ = false;
};

/// The cheapest plan; tensors with `must_pack` go through scratch in any case (their elements need converting), in
/// their own order or in another.
[[nodiscard]] constexpr kernels::gemm_plan make_plan(const kernels::contraction& p, const bool (&must_pack)[3]) {
  kernels::gemm_plan best;
  const label_list labels = labels_of(p);
  std::int64_t c_count = 1;
  bool nothing = false;
  for (int i = 0; i < labels.count; ++i) {
    if (labels.item[i].in[operand_c]) c_count *= labels.item[i].extent;
    if (labels.item[i].extent == 0) nothing = true;
  }
  best.c_count = c_count;
  if (nothing) return best;
  double best_cost = -1.0;
  for (int choice = 0; choice < 8; ++choice) {
    const bool packed[3] = {(choice & 1) != 0, (choice & 2) != 0, (choice & 4) != 0};
    label_list before = labels;
    label_list after = labels;
    if (choice != 0) {
      sort_labels(before, packed);
      after = before;
      lay_out_packed(after, packed);
    }
    copy_plan copy[3];
    double cost = 0.0;
    std::int64_t scratch = 0;
    bool exists = true;
    for (int t = 0; t < 3; ++t) {
      if (!packed[t] && !must_pack[t]) continue;
      copy[t] = copy_of(t, before, after);
      exists = exists && (packed[t] || copy[t].is_in_order());
      copy[t].offset = scratch;
      scratch += (copy[t].count + 15) / 16 * 16;  // whole cache lines, for any type
      cost += copy_cost(copy[t]);
    }
    if (!exists || (best_cost >= 0.0 && cost >= best_cost)) continue;
    fuse(after);
    product_search search(after);
    search.run();
    cost += search.cost();
    if (best_cost >= 0.0 && cost >= best_cost) continue;
    best_cost = cost;
    best = kernels::gemm_plan{};
    best.c_count = c_count;
    search.write(best);
    best.cost = cost;
    for (int t = 0; t < 3; ++t) best.copy[t] = copy[t];
    best.scratch_elements = scratch;
  }
  return best;
}

}  // namespace espalier::detail
