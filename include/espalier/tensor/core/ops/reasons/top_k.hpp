// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why these operators refuse a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct top_k_out_of_range {
  template <class Where> struct raise {
    static_assert(Where::ok, "top_k: so many elements cannot be chosen. Choose 1 <= count <= extent of the dimension.");
  };
};

}  // namespace espalier::why
