// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/interpret.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

/// Tensors as functions of an index.
namespace espalier::test::naive {

/// The place of an element in its tensor.
struct place_in {
  std::array<std::int64_t, max_rank> at{};
  [[nodiscard]] std::int64_t operator[](int d) const { return at[static_cast<std::size_t>(d)]; }
  [[nodiscard]] std::int64_t& operator[](int d) { return at[static_cast<std::size_t>(d)]; }
};

/// Calls `f` with every index of a shape, the last dimension fastest.
template <class F> void for_each_index(const extents& shape, F f) {
  for (int d = 0; d < shape.rank; ++d) {
    if (shape[d] == 0) return;
  }
  place_in index;
  for (;;) {
    f(index);
    int d = shape.rank - 1;
    while (d >= 0 && index[d] + 1 == shape[d]) index[d--] = 0;
    if (d < 0) return;
    ++index[d];
  }
}

/// The tensor whose element at each index is `f(index)`.
template <class F> tensor_value tensor_of(const extents& shape, F f) {
  tensor_value made{shape, {}};
  made.data.reserve(static_cast<std::size_t>(shape.elements()));
  for_each_index(shape, [&](const place_in& index) { made.data.push_back(f(index)); });
  return made;
}

[[nodiscard]] inline double element(const tensor_value& t, const place_in& index) {
  std::int64_t at = 0;
  for (int d = 0; d < t.shape.rank; ++d) at = at * t.shape[d] + index[d];
  return t.data.at(static_cast<std::size_t>(at));
}
/// A reference to the element at an index.
[[nodiscard]] inline double& element_at(tensor_value& of, const place_in& i) {
  std::size_t at = 0;
  for (int d = 0; d < of.shape.rank; ++d)
    at = at * static_cast<std::size_t>(of.shape[d]) + static_cast<std::size_t>(i[d]);
  return of.data[at];
}

}  // namespace espalier::test::naive
