// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/reducer.hpp>
#include <espalier/tensor/run/kernels/parallel.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

/// The steps of a program that no operator computes: copies, zeros and sums of whole buffers, by all threads.
namespace espalier::detail {

inline void copy_bytes(void* target, const void* source, std::int64_t bytes) {
  parallel_ranges(bytes, bytes / 4, [=](std::int64_t first, std::int64_t last) {
    std::memcpy(static_cast<char*>(target) + first, static_cast<const char*>(source) + first,
                static_cast<std::size_t>(last - first));
  });
}

inline void clear_bytes(void* target, std::int64_t bytes) {
  parallel_ranges(bytes, bytes / 4, [=](std::int64_t first, std::int64_t last) {
    std::memset(static_cast<char*>(target) + first, 0, static_cast<std::size_t>(last - first));
  });
}

/// Adds `count` elements of so many bytes to those of `sum`.
inline void add_terms_to(comm::detail::tile_function combine, std::int64_t bytes, std::int64_t count, void* sum,
                         const void* terms) {
  char* const to = static_cast<char*>(sum);
  const char* const from = static_cast<const char*>(terms);
  parallel_ranges(count, count, [=](std::int64_t first, std::int64_t last) {
    char* const there = to + first * bytes;
    combine(comm::detail::partial_sides::none, there, there, from + first * bytes, last - first);
  });
}

}  // namespace espalier::detail
