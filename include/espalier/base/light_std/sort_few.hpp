// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <utility>

namespace espalier::detail {

/// Sorts what is short, and sorted where time does not count (ranks, in the text of an error): `std::sort` costs every
/// program 0.1 s of compilation for each type.
/// @pre `before` is a strict weak order
/// @post the list has the same elements, ascending, equal ones in their order
template <class List, class Before> void sort_few(List& list, const Before& before) {
  for (std::size_t i = 1; i < list.size(); ++i) {
    for (std::size_t k = i; k > 0 && before(list[k], list[k - 1]); --k) std::swap(list[k], list[k - 1]);
  }
}

}  // namespace espalier::detail
