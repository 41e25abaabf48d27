// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/fixed_string.hpp>
#include <espalier/tensor/core/diagnostics/reasons.hpp>
#include <espalier/tensor/core/diagnostics/source_line.hpp>

#include <cstddef>
#include <utility>

namespace espalier::detail {

/// The last part of a path: what a reader needs of it.
[[nodiscard]] constexpr const char* base_name(const char* path) {
  const char* name = path;
  for (const char* c = path; *c != '\0'; ++c) {
    if (*c == '/' || *c == '\\') name = c + 1;
  }
  return name;
}

/// Text as a type, spelled in letters: the one form that every compiler prints readably. `Source::value` is the text;
/// `Spelled` collects its letters.
template <class Source, template <char...> class Spelled> struct spelled_text {
  template <std::size_t... I> static Spelled<Source::value[I]...> letters(std::index_sequence<I...>);
  using type = decltype(letters(std::make_index_sequence<static_cast<std::size_t>(length_of(Source::value))>{}));
};

template <class Line> struct file_of_line { static constexpr const char* value = base_name(Line::value.file); };
template <int Number> struct line_in { template <char... File> using file = why::at<why::line<Number>, File...>; };
/// A line of source as a type: `at<line<17>, 'm', '.', 'c', 'p', 'p'>`. `Line::value` is a source_line.
template <class Line>
using spelled = typename spelled_text<file_of_line<Line>, line_in<Line::value.line>::template file>::type;

/// A mistake, ready to be reported. Naming `raised` does no harm; as soon as its definition is needed, the reason's own
/// assertion fails, and the compiler names the code that needed it: that is left to the class template that the user
/// wrote, so that the message names nothing between the two.
template <class Reason, class Where> struct report {
  static constexpr bool is_mistake = true;
  using raised = typename Reason::template raise<Where>;
};
struct nothing_to_report {
  static constexpr bool is_mistake = false;
  struct raised {};
};
/// A mistake of which the compiler has spoken already.
struct reported_by_compiler {
  static constexpr bool is_mistake = true;
  struct raised {};
};

}  // namespace espalier::detail
