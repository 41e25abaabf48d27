// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why these operators refuse a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct concat_shape_mismatch {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "concat: the shapes differ in another dimension than the joined one. Make all others "
                  "equal.");
  };
};
template <class... Details> struct too_many_elements {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "concat, pad: this dimension would have more than 2147483647 elements, which no int can count. Make two "
        "dimensions of it with reshape, or work on it in parts.");
  };
};

}  // namespace espalier::why
