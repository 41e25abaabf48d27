// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/partition.hpp>
#include <espalier/tensor/core/partition/run_price.hpp>
#include <espalier/tensor/core/program/pass_list.hpp>

#include <cstdint>
#include <limits>
#include <vector>

/// Prices of programs whose layouts are all given.
namespace espalier::test {

/// How the price of a run becomes one number, in bytes.
enum class price_measure : std::uint8_t {
  /// The bytes that the device that sends most sends.
  bytes,
  /// Also the start of each collective, as `collective_latency` bytes.
  movement,
  /// Also the work, as the bytes that a device could send meanwhile.
  time,
};

/// A price as one number. One element of f32 is added, so that the ratio of two prices exists where one of them
/// is 0: {0 bytes} is 4, {256 bytes, 1 start} is 260 by `bytes` and 16,644 by `movement`. What cannot be partitioned so
/// is infinitely dear.
[[nodiscard]] constexpr double weighed(const run_price& price, price_measure by) {
  if (price.is_faulty) return std::numeric_limits<double>::infinity();
  double sum = 4 + static_cast<double>(price.bytes);
  if (by != price_measure::bytes) sum += static_cast<double>(price.starts * collective_latency);
  if (by == price_measure::time) sum += static_cast<double>(price.work) / operations_per_byte;
  return sum;
}

/// The price of a graph in which every value has the layout that `of` says: nothing is completed.
[[nodiscard]] inline run_price price_of_layouts(const mesh_shape& mesh, graph_view g, const factor_rule* rules,
                                                const sharding* of) {
  const partitioned made = partition(mesh, g, rules, of);
  if (made.fault != partition_fault::nothing) return price_of_run(mesh, g, true);
  return price_of_run(mesh, run_passes(passes_on_buffers, mesh, made.program), false);
}

[[nodiscard]] inline std::vector<factor_rule> rules_of_graph(graph_view g) {
  std::vector<factor_rule> rules;
  for (int id = 0; id < g.size; ++id) rules.push_back(g[id].op->factors(g.view(id)));
  return rules;
}

}  // namespace espalier::test
