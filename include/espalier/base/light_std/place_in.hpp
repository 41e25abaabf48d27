// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <vector>

namespace espalier::detail {

/// The index of the first element of a list that is `number`, or -1: of {4, 7, 7}, `place_in(list, 7)` is 1.
/// (`std::find` is four copies of its loop wherever it is called.)
/// @post it is the least k with list[k] == number, or -1 if there is none
[[nodiscard]] inline int place_in(const std::vector<int>& list, int number) {
  for (std::size_t k = 0; k < list.size(); ++k) {
    if (list[k] == number) return static_cast<int>(k);
  }
  return -1;
}

}  // namespace espalier::detail
