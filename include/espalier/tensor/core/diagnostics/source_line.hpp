// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace espalier {

/// A line of the user's source. As a default argument `current()` yields the caller's own line.
struct source_line {
  const char* file = "";
  int line = 0;
  /// One more than the place, in the trace's list of callers, of the call whose helper function this line is in, or 0.
  int caller = 0;

  [[nodiscard]] static constexpr source_line current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace espalier
