// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/runner.hpp>
#include <espalier/tensor/run/kernels/blas.hpp>

#include <chrono>
#include <cstdint>
#include <vector>

namespace gpt {

/// Operations per second of single-precision matrix products, all devices at work at the same time: what a step could
/// reach at most. Takes half a second. Collective.
[[nodiscard]] inline double matrix_product_rate(espalier::world& where) {
  using clock = std::chrono::steady_clock;
  constexpr std::int64_t n = 512;
  constexpr double flops = 2.0 * n * n * n;
  const auto local = static_cast<std::size_t>(where.local_devices());
  std::vector<double> rates(local);
  where.on_devices([&](int k, auto& communicator) {
    std::vector<float> a(n * n, 1.0F);
    std::vector<float> b(n * n, 1.0F);
    std::vector<float> c(n * n);
    const auto multiply = [&] {
      espalier::detail::default_backend::gemm(n, n, n, 1.0F, espalier::detail::matrix_view<const float>{a.data(), n, 1},
                                              espalier::detail::matrix_view<const float>{b.data(), n, 1}, 0.0F,
                                              c.data(), n);
    };
    multiply();
    communicator.barrier();
    const clock::time_point start = clock::now();
    double seconds = 0;
    double done = 0;
    while (seconds < 0.5) {
      multiply();
      done += flops;
      seconds = std::chrono::duration<double>(clock::now() - start).count();
    }
    rates[static_cast<std::size_t>(k)] = done / seconds;
  });
  double here = 0;
  for (const double rate : rates) here += rate;
  double sum = 0;
  for (const std::int64_t rate : espalier::detail::values_of_all_processes(where, static_cast<std::int64_t>(here))) {
    sum += static_cast<double>(rate);
  }
  return sum;
}

}  // namespace gpt
