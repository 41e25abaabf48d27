// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/joined.hpp>
#include <espalier/tensor/run/execute/array.hpp>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace espalier {

namespace detail {

/// An element in decimals: "-0.25".
[[nodiscard]] std::string element_text(dtype type, const void* element);

// Templates, which cost nothing where no array is printed.

/// Returns the address at which this process holds an element of a tensor, or null.
template <class Array> [[nodiscard]] const void* find_element(const Array& array, std::int64_t flat) {
  const extents& shape = array.shape();
  const extents buffer = array.local_extents();
  for (int k = 0; k < array.local_count(); ++k) {
    std::int64_t at = 0;
    bool is_here = true;
    for (int d = 0; d < shape.rank; ++d) {
      const interval held = array.held(k, d);
      const std::int64_t index = flat / stride_of(shape, d) % shape[d] - held.start;
      is_here = is_here && index >= 0 && index < held.size;
      at += index * stride_of(buffer, d);
    }
    if (!is_here) continue;
    const void* const first = array_memory::shards(array)[static_cast<std::size_t>(k)].data();
    return static_cast<const char*>(first) + at * size_of(array.type());
  }
  return nullptr;
}

/// Type, layout and a few elements.
template <class Array> [[nodiscard]] std::string array_text(const Array& array) {
  if (array.empty()) return "an empty array";
  std::string text = array.text();
  if (array.is_spent()) return text + ", donated to a call";
  if (array.placed().placement.unreduced != 0) return text + ", pending sums, which gather adds up";
  const std::int64_t count = array.shape().elements();
  constexpr std::int64_t first = 6;
  constexpr std::int64_t last = 2;
  const bool all_here = array.local_count() == array.mesh().devices() || array.placed().placement.tiled() == 0;
  std::vector<std::int64_t> shown;
  std::int64_t held = count;
  if (all_here) {
    for (std::int64_t n = 0; n < count; ++n) {
      if (count <= first + last || n < first) shown.push_back(n);
      if (static_cast<std::int64_t>(shown.size()) == first && count > first + last) break;
    }
    for (std::int64_t n = count - last; count > first + last && n < count; ++n) shown.push_back(n);
  } else {
    held = 0;
    for (shard_rows row(array, 0); row.any; row.next()) {
      for (std::int64_t n = 0; n < row.length && held + n < first + last; ++n) shown.push_back(row.flat + n);
      held += row.length;
    }
    append_text(text, {", of which this process holds"});
    for (int d = 0; d < array.shape().rank; ++d) {
      const interval part = array.held(0, d);
      append_text(text, {d == 0 ? " [" : ", ", part.start, ":", part.start + part.size});
    }
    text += "]";
  }
  for (std::size_t n = 0; n < shown.size(); ++n) {
    const bool has_gap = n > 0 && all_here && shown[n] > shown[n - 1] + 1;
    append_text(text, {n == 0    ? ": "
                       : has_gap ? ", ..., "
                                 : ", ",
                       element_text(array.type(), find_element(array, shown[n]))});
  }
  if (!all_here && held > static_cast<std::int64_t>(shown.size())) text += ", ...";
  return text;
}

#if defined(ESPALIER_COMPILED)
extern template std::string array_text(const any_array& array);
#endif

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
#include <espalier/tensor/run/execute/impl/print.ipp>
#endif
