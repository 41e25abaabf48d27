// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace espalier::detail {

// std::fill and std::copy, of elements in memory: `<algorithm>`, where they are declared, is a sixth of what core.hpp
// costs to include.

template <class T> constexpr void fill_elements(T* first, const T* last, T value) {
  for (; first != last; ++first) *first = value;
}
/// @pre `to` is not inside [first, last)
template <class T> constexpr void copy_elements(const T* first, const T* last, T* to) {
  for (; first != last; ++first, ++to) *to = *first;
}

}  // namespace espalier::detail
