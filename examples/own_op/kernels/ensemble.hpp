// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/run/kernels/elementwise.hpp>
#include <espalier/tensor/run/kernels/kernel.hpp>
#include <espalier/tensor/run/kernels/parallel.hpp>

#include "../ops/ensemble.hpp"

#include <cstdint>

template <> struct espalier::kernels::kernel<&mine::ensemble_op> {
  static constexpr std::int64_t scratch_bytes(const kernel_key& /*key*/) { return 0; }
  template <kernel_key Key> static void run(const kernel_call& call) {
    using element = storage_t<Key.type>;
    using computed = computed_t<element>;
    auto* const means = static_cast<element*>(call.result);
    auto* const variances = static_cast<element*>(call.further_results[0].data);
    constexpr std::int64_t size = Key.shape.elements();
    detail::parallel_ranges(size, size * Key.operand_count, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        computed mean = 0;
        computed variance = 0;
        const auto member = [&](int k) {
          return static_cast<computed>(static_cast<const element*>(call.operand_at(k))[i]);
        };
        mine::mean_and_variance(Key.operand_count, member, mean, variance);
        means[i] = detail::element_cast<element>(mean);
        variances[i] = detail::element_cast<element>(variance);
      }
    });
  }
};
