// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why these operators refuse a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct indices_are_not_integers {
  template <class Where> struct raise {
    static_assert(Where::ok, "indices must be integers. Use convert<dtype::i32>, or swap the arguments.");
  };
};

}  // namespace espalier::why
