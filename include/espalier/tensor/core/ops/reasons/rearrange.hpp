// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why these operators refuse a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct nothing_is_left {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "pad, shift: along this dimension no element is left, or a negative number of elements is to be put "
                  "between the others. Take fewer away.");
  };
};
template <class... Details> struct parts_do_not_divide {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "split: the number of parts does not divide the dimension. Choose another number, or use slice for "
                  "parts of different sizes.");
  };
};

}  // namespace espalier::why
