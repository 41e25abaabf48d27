// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How arrays are printed: the compiled half of print.hpp.
#include <espalier/detail/joined.hpp>
#include <espalier/execute/print.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

namespace espalier::detail {

ESPALIER_INLINE std::string element_text(dtype type, const void* element) {
  return with_storage(type, [&]<class T>(T /*type*/) {
    const T& value = *static_cast<const T*>(element);
    if constexpr (std::is_same_v<T, bool>) {
      return std::string(value ? "true" : "false");
    } else if constexpr (std::is_integral_v<T>) {
      return std::to_string(value);
    } else {
      char text[40];
      std::snprintf(&text[0], sizeof(text), "%.9g", static_cast<double>(static_cast<accumulate_t<T>>(value)));
      return std::string(&text[0]);
    }
  });
}

/// Where this process holds an element of a tensor, or null.
[[nodiscard]] inline const void* find_element(const any_array& array, std::int64_t flat) {
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

ESPALIER_INLINE std::string array_text(const any_array& array) {
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

}  // namespace espalier::detail
