// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/core.hpp>

#include <cstdint>

namespace pipelined {

/// The collectives of one kind along some axes: how many, and what the device that sends most sends in them.
struct sent {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
  constexpr bool operator==(const sent&) const = default;
  constexpr sent operator+(const sent& other) const { return {count + other.count, bytes + other.bytes}; }
};
/// Those of a program that these axes take part in.
template <class Program, class Kind, class... Axes> [[nodiscard]] constexpr sent sends() {
  return {Program::template collectives<Kind, Axes...>(), Program::template bytes<Kind, Axes...>()};
}

/// What a device sends in an all-gather to n bytes over d devices, a reduce-scatter of n bytes, or an all-to-all of the
/// n bytes that each device has.
[[nodiscard]] constexpr std::int64_t bytes_of_part(std::int64_t bytes, std::int64_t devices) {
  return bytes / devices * (devices - 1);
}
/// In an all-reduce of f32, which is a reduce-scatter and an all-gather. Where the elements cannot be divided equally,
/// the device with one more sends most.
[[nodiscard]] constexpr std::int64_t bytes_of_reduce(std::int64_t bytes, std::int64_t devices) {
  const std::int64_t elements = bytes / 4;
  const std::int64_t own = (elements + devices - 1) / devices;
  return 4 * (elements - own + own * (devices - 1));
}

}  // namespace pipelined
