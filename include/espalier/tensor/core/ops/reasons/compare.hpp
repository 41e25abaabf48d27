// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why these operators refuse a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct condition_is_not_boolean {
  template <class Where> struct raise {
    static_assert(Where::ok, "a condition must be a boolean tensor. Compare first: x > 0.");
  };
};

}  // namespace espalier::why
