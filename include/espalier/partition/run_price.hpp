// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/partition/machine.hpp>
#include <espalier/partition/messages.hpp>
#include <espalier/partition/plan.hpp>

#include <cstdint>

namespace espalier {

/// What one run of a partitioned program costs a device: what two ways to partition the same program are compared by.
struct run_price {
  /// What is sent, as `program::sent_bytes_of` counts it, and how many collectives send it.
  std::int64_t bytes = 0;
  std::int64_t starts = 0;
  /// Floating-point operations.
  std::int64_t work = 0;
  /// The partitioner found a mistake, so that the program is not whole.
  bool is_faulty = false;

  /// Whether a program with this price moves more, or, if it moves as much, takes longer by the rates of
  /// partition/machine.hpp. ({8 bytes, 1 start} is dearer than {4 bytes, 2 starts}, and {8, 2} than {8, 1}.) One with a
  /// mistake is dearer than any without.
  [[nodiscard]] constexpr bool is_dearer_than(const run_price& other) const {
    if (is_faulty != other.is_faulty) return is_faulty;
    if (bytes != other.bytes) return bytes > other.bytes;
    return time() > other.time();
  }

 private:
  [[nodiscard]] constexpr double time() const {
    return static_cast<double>(starts * collective_latency) + static_cast<double>(work) / operations_per_byte;
  }
};

/// @param g the program of one device, as it is scheduled; `is_faulty` if the partitioner gave it up
[[nodiscard]] constexpr run_price price_of_run(const mesh_shape& mesh, graph_view g, bool is_faulty) {
  run_price price;
  price.is_faulty = is_faulty;
  if (is_faulty) return price;
  for (int id = 0; id < g.size; ++id) {
    const bool starts = starts_collective(g[id]);
    const bool works = g[id].op->flops != nullptr;
    if (!starts && !works) continue;
    const std::int64_t times = detail::repetitions(g, id);
    if (works) price.work += times * g[id].op->flops(g.view(id));
    if (!starts) continue;
    price.starts += times;
    price.bytes += times * detail::most_sent_in_messages(mesh, g, id);
  }
  return price;
}

}  // namespace espalier
