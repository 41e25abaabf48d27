// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

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

namespace detail {

/// Among the callers of a trace, an entry with a negative line is a scope instead, in which only collectives of these
/// kinds may be made without being written (program/explicit_mode.hpp): a bit for each `collective`.
[[nodiscard]] constexpr source_line scope_entry(std::uint32_t allowed) { return {"", -1 - static_cast<int>(allowed)}; }
[[nodiscard]] constexpr bool is_scope(const source_line& caller) { return caller.line < 0; }
[[nodiscard]] constexpr std::uint32_t allowed_in_scope(const source_line& scope) {
  return static_cast<std::uint32_t>(-1 - scope.line);
}
/// The kinds that are allowed in automatic mode: all.
inline constexpr std::uint32_t all_kinds_allowed = 0xFFFF;

}  // namespace detail

}  // namespace espalier
