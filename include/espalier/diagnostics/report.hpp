// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/diagnostics/reasons.hpp>

#include <cstddef>
#include <utility>

namespace espalier::detail {

/// The last part of a path: what a reader needs of it.
[[nodiscard]] constexpr const char* base_name(const char* path) {
  const char* name = path;
  for (const char* c = path; *c != '\0'; ++c) {
    if (*c == '/') name = c + 1;
  }
  return name;
}

/// A line of source as a type, spelled in letters: the one form that every compiler prints readably.
template <class Line> struct spelled {
  static constexpr source_line value = Line::value;
  static constexpr int length = length_of(base_name(value.file));
  template <std::size_t... I> static why::text<base_name(value.file)[I]...> letters(std::index_sequence<I...>);
  using file = decltype(letters(std::make_index_sequence<static_cast<std::size_t>(length)>{}));
  using type = why::at<file, why::line<value.line>>;
};

/// Raises the error: the reason's own assertion, with the place in its type. `Line::value` is a source_line.
template <class Reason, class Line> struct report {
  using raised = typename Reason::template raise<typename spelled<Line>::type>;
  static constexpr bool value = sizeof(raised) > 0;
};

}  // namespace espalier::detail
