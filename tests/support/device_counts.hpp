// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <type_traits>
#include <utility>

namespace espalier::test {

/// The device counts that tests run with, as types: ESPALIER_TEST_DEVICE_COUNTS of CMake, 1, 2, 4, 8 by default.
using device_counts = std::integer_sequence<int, ESPALIER_TEST_DEVICE_COUNTS>;

template <class Function, int... Count>
void for_each_device_count(Function&& function, std::integer_sequence<int, Count...> /*counts*/) {
  (function(std::integral_constant<int, Count>{}), ...);
}

/// Calls `function(count)` for each device count; `count` is an integral_constant, so it can size a mesh.
template <class Function> void for_each_device_count(Function&& function) {
  for_each_device_count(std::forward<Function>(function), device_counts{});
}

}  // namespace espalier::test
