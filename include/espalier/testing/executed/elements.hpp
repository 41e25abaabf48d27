// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

/// Elements of every type in memory, as doubles.
namespace espalier::test {

/// Bytes that are a NaN in every floating-point type, -1 as an integer, and no truth value.
inline constexpr int poison = 0xFF;

[[nodiscard]] inline double load(dtype type, const void* memory, std::int64_t index) {
  const char* const at = static_cast<const char*>(memory) + index * size_of(type);
  return with_storage(type, [at]<class T>(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t byte = 0;
      std::memcpy(&byte, at, 1);
      return byte != 0 ? 1.0 : 0.0;
    } else {
      std::memcpy(&value, at, sizeof(T));
      return static_cast<double>(value);
    }
  });
}

inline void save(dtype type, void* memory, std::int64_t index, double value) {
  char* const at = static_cast<char*>(memory) + index * size_of(type);
  with_storage(type, [at, value]<class T>(T element) {
    using limits = std::numeric_limits<T>;
    if constexpr (std::is_same_v<T, bool>) {
      element = value != 0;
    } else if constexpr (std::is_integral_v<T>) {
      // The maximum of nothing is the smallest number; no number at all is padding, which nobody may read.
      element = value != value                                ? static_cast<T>(-1)
                : value <= static_cast<double>(limits::min()) ? limits::min()
                : value >= static_cast<double>(limits::max()) ? limits::max()
                                                              : static_cast<T>(value);
    } else {
      element = static_cast<T>(static_cast<computed_t<T>>(value));
    }
    std::memcpy(at, &element, sizeof(T));
  });
}

[[nodiscard]] inline std::vector<double> load_all(dtype type, const void* memory, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::int64_t n = 0; n < count; ++n) values[static_cast<std::size_t>(n)] = load(type, memory, n);
  return values;
}

}  // namespace espalier::test
