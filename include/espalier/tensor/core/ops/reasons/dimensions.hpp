// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why these operators refuse a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct dimension_has_more_elements {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "squeeze: this dimension has more than one element. Name dimensions of one element, or use take, sum "
                  "or reshape.");
  };
};

}  // namespace espalier::why
