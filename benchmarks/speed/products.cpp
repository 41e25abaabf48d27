// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Products of matrices: square ones, those of a GPT's step, attention's small ones.

#include "measured_row.hpp"

namespace espalier::benchmarks {

namespace {

struct product {
  constexpr auto operator()(const auto& a, const auto& b) const { return einsum<"mk,kn->mn">(a, b); }
};
struct weights_by_values {
  constexpr auto operator()(const auto& weights, const auto& values) const {
    return einsum<"bhqk,bkhd->bqhd">(weights, values);
  }
};
struct queries_by_keys {
  constexpr auto operator()(const auto& queries, const auto& keys) const {
    return einsum<"bqhd,bkhd->bhqk">(queries, keys);
  }
};

template <int M, int K, int N> void measure(speed_rows& rows) {
  rows.measure<product, f32<M, K>, f32<K, N>>(
      "products/" + std::to_string(M) + "x" + std::to_string(K) + "x" + std::to_string(N),
      {4.0 * (M * K + K * N + M * N), 2.0 * M * K * N});
}

}  // namespace

void measure_products(speed_rows& rows) {
  measure<512, 512, 512>(rows);
  measure<1024, 1024, 1024>(rows);
  measure<2048, 2048, 2048>(rows);
  measure<4096, 4096, 4096>(rows);
  measure<2048, 256, 768>(rows);   // queries, keys and values of the small GPT
  measure<2048, 256, 1024>(rows);  // its MLP, up
  measure<2048, 1024, 256>(rows);  // and down
  constexpr double flops = 2.0 * 16 * 8 * 128 * 128 * 32;
  constexpr double scores = 4.0 * 16 * 8 * 128 * 128;
  constexpr double heads = 4.0 * 16 * 128 * 8 * 32;
  rows.measure<weights_by_values, f32<16, 8, 128, 128>, f32<16, 128, 8, 32>>("products/weights_by_values",
                                                                             {scores + 2 * heads, flops});
  rows.measure<queries_by_keys, f32<16, 128, 8, 32>, f32<16, 128, 8, 32>>("products/queries_by_keys",
                                                                          {scores + 2 * heads, flops});
}

}  // namespace espalier::benchmarks
