// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Causal attention, 8 heads of 64, batches of 8192 tokens in all.

#include "measured_row.hpp"

#include <espalier/tensor/core/nn/attention.hpp>
#include <espalier/tensor/core/program/differentiate.hpp>

namespace espalier::benchmarks {

namespace {

constexpr int tokens = 8192;
constexpr int heads = 8;
constexpr int features = 64;
template <int Sequence> using sequences = f32<tokens / Sequence, Sequence, heads, features>;

struct forward {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const { return nn::causal_attention(q, k, v); }
};
/// The result, and the gradients of all three for its gradient `upper`.
struct both_ways {
  struct weighed {
    constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto& upper) const {
      const auto mixed = nn::causal_attention(q, k, v);
      return results(sum(mixed * upper), mixed);
    }
  };
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto& upper) const {
    const auto [value, gradients] = value_and_grad<0, 1, 2>(weighed{})(q, k, v, upper);
    const auto [loss, mixed] = value;
    const auto [by_q, by_k, by_v] = gradients;
    return results(mixed, by_q, by_k, by_v);
  }
};

/// Of the triangle of scores that count: two products forward, five more backward.
constexpr double product_flops(int sequence) { return 1.0 * tokens * sequence * heads * features; }

constexpr double array_bytes = 4.0 * tokens * heads * features;

template <int Sequence> void measure(speed_rows& rows) {
  using tensor = sequences<Sequence>;
  const std::string name = std::to_string(Sequence);
  rows.measure<forward, tensor, tensor, tensor>("attention/forward_" + name,
                                                {4 * array_bytes, 2 * product_flops(Sequence)});
  rows.measure<both_ways, tensor, tensor, tensor, tensor>("attention/both_ways_" + name,
                                                          {8 * array_bytes, 7 * product_flops(Sequence)});
}

/// The bytes of one sequence, all heads.
template <int Sequence> void measure_memory(speed_rows& rows) {
  using tensor = f32<1, Sequence, heads, features>;
  const std::string name = std::to_string(Sequence);
  rows.measure_memory<forward, tensor, tensor, tensor>("memory/forward_" + name);
  rows.measure_memory<both_ways, tensor, tensor, tensor, tensor>("memory/both_ways_" + name);
}

}  // namespace

void measure_attention(speed_rows& rows) {
  measure<512>(rows);
  measure<1024>(rows);
  measure<2048>(rows);
  measure<4096>(rows);
  measure<8192>(rows);
}
void measure_attention_memory(speed_rows& rows) {
  measure_memory<512>(rows);
  measure_memory<1024>(rows);
  measure_memory<2048>(rows);
  measure_memory<4096>(rows);
  measure_memory<8192>(rows);
}

}  // namespace espalier::benchmarks
