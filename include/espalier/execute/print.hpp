// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/execute/array.hpp>

#include <iosfwd>
#include <string>

namespace espalier {

namespace detail {

/// An element in decimals: "-0.25".
[[nodiscard]] std::string element_text(dtype type, const void* element);

/// Type, layout and a few elements.
[[nodiscard]] std::string array_text(const any_array& array);

template <class Traits> struct array_printer {
  std::basic_ostream<char, Traits>& out;
  int& printed;
  void operator()(const any_array& array) const { out << (printed++ == 0 ? "" : "\n") << array_text(array); }
};

}  // namespace detail

/// Prints an array's type, layout and a few of its elements. It asks no other rank: where this process does not hold
/// the whole tensor, it prints some of its own part and says so. `gather` has all elements.
///
///     std::cout << run(x);   // f32[4@data]: 2, 4, 6, 8
///                            // under MPI: f32[4@data], of which this process holds [0:2]: 2, 4
template <class Traits>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, const any_array& array) {
  return out << detail::array_text(array);
}
/// The same of the results of a program, one line each.
template <class Traits, class... Parts>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, const results<Parts...>& all) {
  int printed = 0;
  detail::for_each_leaf(all, detail::array_printer<Traits>{out, printed});
  return out;
}

}  // namespace espalier

#if !defined(ESPALIER_COMPILED)
#include <espalier/execute/print_compiled.hpp>
#endif
