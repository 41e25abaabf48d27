// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why these operators refuse a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct out_of_bounds {
  template <class Where> struct raise {
    static_assert(Where::ok, "slice: the range leaves the dimension. Choose 0 <= start < stop <= extent.");
  };
};

}  // namespace espalier::why
