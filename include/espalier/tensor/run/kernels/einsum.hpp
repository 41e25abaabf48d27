// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/einsum.hpp>
#include <espalier/tensor/run/kernels/contraction.hpp>
#include <espalier/tensor/run/kernels/reshape.hpp>

#include <cstdint>
#include <type_traits>

namespace espalier::detail {

/// The letters of an einsum as the labels of a contraction.
[[nodiscard]] constexpr kernels::contraction contraction_for(const kernels::kernel_key& key) {
  kernels::contraction made;
  char letters[kernels::contraction::max_labels]{};
  const einsum_attributes terms = attributes_of<einsum_attributes>(key);
  const auto read = [&](einsum_term term, const extents& shape, int& rank, signed char* labels) {
    for (rank = 0; rank < shape.rank; ++rank) {
      int label = 0;
      while (label < made.label_count && letters[label] != term[rank]) ++label;
      if (label == made.label_count) {
        letters[made.label_count++] = term[rank];
        made.extent[label] = shape[rank];
      }
      labels[rank] = static_cast<signed char>(label);
    }
  };
  read(terms.left, key.operand_shape[0], made.rank_a, made.a);
  read(terms.right, key.operand_shape[1], made.rank_b, made.b);
  read(terms.result, key.shape, made.rank_c, made.c);
  return made;
}

/// A contraction of integers, for which there is no fast library: loops over results (`from` and `to` are distances in
/// A and B here) around loops over what is summed.
struct exact_plan {
  run_nest results;
  run_nest sums;
};
[[nodiscard]] constexpr exact_plan plan_exact(const kernels::contraction& p) {
  run_axis all[kernels::contraction::max_labels];
  bool kept[kernels::contraction::max_labels]{};
  const auto strides = [&](int rank, const signed char* labels, std::int64_t run_axis::*distance) {
    std::int64_t stride = 1;
    for (int d = rank - 1; d >= 0; --d) {
      all[labels[d]].extent = p.extent[labels[d]];
      all[labels[d]].*distance += stride;
      stride *= p.extent[labels[d]];
    }
  };
  strides(p.rank_a, p.a, &run_axis::from);
  strides(p.rank_b, p.b, &run_axis::to);
  exact_plan plan;
  for (int d = 0; d < p.rank_c; ++d) {
    plan.results.append(all[p.c[d]]);
    kept[p.c[d]] = true;
  }
  for (int l = 0; l < p.label_count; ++l) {
    if (!kept[l]) plan.sums.append(all[l]);
  }
  return plan;
}

/// Multiplied and added up modulo as many numbers as C has.
template <class A, class B, class C> void contract_exactly(const exact_plan& plan, const A* a, const B* b, C* c) {
  using word = wrapping_t<C>;
  const std::int64_t results = plan.results.iterations();
  const std::int64_t terms = plan.sums.iterations();
  parallel_ranges(results, results * terms, [&](std::int64_t first, std::int64_t last) {
    nest_walker at(plan.results, first);
    for (std::int64_t i = first; i < last; ++i, ++at) {
      word sum = 0;
      nest_walker term(plan.sums, 0);
      for (std::int64_t k = 0; k < terms; ++k, ++term) {
        const auto left = static_cast<word>(a[(*at).from + (*term).from]);
        const auto right = static_cast<word>(b[(*at).to + (*term).to]);
        sum = static_cast<word>(sum + left * right);
      }
      c[i] = element_cast<C>(sum);
    }
  });
}

}  // namespace espalier::detail

namespace espalier::kernels {

/// Floating-point products go to the BLAS; see contraction.hpp.
template <> struct kernel<&ops::einsum> {
  static constexpr std::int64_t scratch_bytes(const kernel_key& key) {
    if (!is_floating(key.type)) return 0;
    return kernels::scratch_bytes(detail::contraction_for(key), key.operand_type[0], key.operand_type[1], key.type);
  }
  template <kernel_key Key> static void run(const kernel_call& call) {
    using left = storage_t<Key.operand_type[0]>;
    using right = storage_t<Key.operand_type[1]>;
    using element = storage_t<Key.type>;
    constexpr contraction plan = detail::contraction_for(Key);
    const auto* a = static_cast<const left*>(call.operand[0]);
    const auto* b = static_cast<const right*>(call.operand[1]);
    auto* c = static_cast<element*>(call.result);
    if constexpr (is_floating(Key.type)) {
      // Most products are all in one piece.
      constexpr bool has_items =
          detail::static_plan<plan, Key.operand_type[0], Key.operand_type[1], Key.type>.iterations > 1;
      if constexpr (has_items) {
        if (call.item >= 0) return contract_item<plan>(a, b, c, call.item, call.lower_triangle);
      }
      contract<plan>(a, b, c, 1, 0, call.scratch, call.tail);
    } else {
      static constexpr detail::exact_plan exact = detail::plan_exact(plan);
      detail::contract_exactly(exact, a, b, c);
    }
  }
};

}  // namespace espalier::kernels
