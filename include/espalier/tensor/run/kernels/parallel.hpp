// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/config.hpp>

#include <cstdint>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace espalier::detail {

/// Threads that a kernel may start from here: none inside a parallel region, else what the calling thread was given.
[[nodiscard]] inline int available_threads() {
#if defined(_OPENMP)
  return omp_in_parallel() != 0 ? 1 : omp_get_max_threads();
#else
  return 1;
#endif
}

/// Work below this (elements or multiply-adds) is not worth waking a thread for.
inline constexpr double parallel_threshold = 32768.0;

/// Threads worth starting for this many elements of simple work in `pieces` independent pieces.
[[nodiscard]] inline std::int64_t threads_for(std::int64_t pieces, std::int64_t elements) {
  if (static_cast<double>(elements) < parallel_threshold) return 1;
  return larger_of<std::int64_t>(1, smaller_of<std::int64_t>(pieces, available_threads()));
}

/// Calls body(first, last) for ranges that together are [0, count), one for each thread.
template <class Body> void parallel_ranges(std::int64_t count, std::int64_t elements, Body body) {
  const std::int64_t threads = threads_for(count, elements);
  if (threads == 1) {
    body(std::int64_t{0}, count);
    return;
  }
  ESPALIER_OMP(parallel for num_threads(static_cast<int>(threads)) schedule(static))
  for (std::int64_t t = 0; t < threads; ++t) body(count * t / threads, count * (t + 1) / threads);
}

}  // namespace espalier::detail
