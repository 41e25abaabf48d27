// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why these operators refuse a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct bad_permutation {
  template <class Where> struct raise {
    static_assert(Where::ok, "transpose: not a permutation. Name every dimension exactly once.");
  };
};

}  // namespace espalier::why
