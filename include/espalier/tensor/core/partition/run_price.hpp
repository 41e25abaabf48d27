// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/partition/machine.hpp>
#include <espalier/tensor/core/partition/messages.hpp>
#include <espalier/tensor/core/partition/plan.hpp>

#include <cstdint>

namespace espalier {

/// The cost for a device of one run of a partitioned program. Two ways to partition the same program are compared by
/// it.
struct run_price {
  /// The bytes sent by the device that sends most, and the number of collectives that send them.
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

namespace detail {

/// Whether every layout of a program gives all devices as many elements.
[[nodiscard]] constexpr bool all_even(const mesh_shape& mesh, graph_view g) {
  for (int i = 0; i < g.annotation_count; ++i) {
    const layout& l = g.annotations[i];
    for (int d = 0; d < l.placement.rank; ++d) {
      if (!divides_evenly(mesh, l.shape[d], l.placement.dim[d])) return false;
    }
  }
  return true;
}

/// True if all devices send as many bytes. The device that sends most in one exchange need not send most in the next.
[[nodiscard]] constexpr bool all_send_alike(const mesh_shape& mesh, graph_view g) {
  for (int id = 0; id < g.size; ++id) {
    if (is_collective(g[id].op, collective::exchange)) return false;
  }
  return all_even(mesh, g);
}

/// The devices that are asked what they send where that differs: all of sixteen, and sixteen or a few more of many,
/// so that it takes no longer on a larger mesh.
inline constexpr int most_devices_asked = 16;
[[nodiscard]] constexpr int step_between_asked(int devices) {
  return devices <= most_devices_asked ? 1 : devices / most_devices_asked;
}

/// Bytes that a device sends in one run.
[[nodiscard]] constexpr std::int64_t bytes_sent_by(const mesh_shape& mesh, graph_view g, int device) {
  std::int64_t bytes = 0;
  for (int id = 0; id < g.size; ++id) {
    if (starts_collective(g[id])) bytes += repetitions(g, id) * sent_in_messages(mesh, g, id, device);
  }
  return bytes;
}

/// The price of a run on a device that sends `bytes`, or, if these are negative, the most that any device sends where
/// all send alike.
/// @param g the program of one device, as it is scheduled; `is_faulty` if the partitioner gave it up
[[nodiscard]] constexpr run_price price_of_run(const mesh_shape& mesh, graph_view g, bool is_faulty,
                                               std::int64_t bytes) {
  run_price price;
  price.is_faulty = is_faulty;
  if (is_faulty) return price;
  price.bytes = bytes < 0 ? 0 : bytes;
  for (int id = 0; id < g.size; ++id) {
    const bool starts = starts_collective(g[id]);
    const bool works = g[id].op->flops != nullptr;
    if (!starts && !works) continue;
    const std::int64_t times = repetitions(g, id);
    if (works) price.work += times * g[id].op->flops(g.view(id));
    if (!starts) continue;
    price.starts += times;
    if (bytes < 0) price.bytes += times * most_sent_in_messages(mesh, g, id);
  }
  return price;
}

}  // namespace detail

/// The price of a run of a program of one device, as it is scheduled; `is_faulty` if the partitioner gave it up.
[[nodiscard]] constexpr run_price price_of_run(const mesh_shape& mesh, graph_view g, bool is_faulty) {
  std::int64_t most = -1;
  if (!is_faulty && !detail::all_send_alike(mesh, g)) {
    for (int device = 0; device < mesh.devices(); device += detail::step_between_asked(mesh.devices()))
      most = detail::larger_of(most, detail::bytes_sent_by(mesh, g, device));
  }
  return detail::price_of_run(mesh, g, is_faulty, most);
}

}  // namespace espalier
