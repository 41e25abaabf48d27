// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/simd.hpp>
#include <espalier/config.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>  // <immintrin.h>, for the wider registers, costs every program 0.25 s and 100 MB
#endif

namespace espalier::detail {

/// Routes by which results are written.
enum class store : std::uint8_t {
  cached,    ///< as usual
  streaming  ///< past the caches: for results larger than these, of which nothing was there before
};

inline constexpr std::int64_t line_bytes = 64;

/// Whether the processor has such stores; where it has none, streaming only copies.
#if defined(__SSE2__)
inline constexpr bool has_streaming_stores = true;
#else
inline constexpr bool has_streaming_stores = false;
#endif

/// Orders streaming stores before whatever tells another rank that they are done.
inline void finish_streaming() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

/// 64 bytes, to an address that is a multiple of 64.
ESPALIER_ALWAYS_INLINE void stream_line(void* to, const void* from) {
#if defined(__AVX__)
  constexpr auto width = static_cast<std::size_t>(simd_bytes);
  using wide [[gnu::vector_size(width), gnu::may_alias]] = long long;
  for (std::size_t k = 0; k < static_cast<std::size_t>(line_bytes) / width; ++k) {
    wide part;
    std::memcpy(&part, static_cast<const char*>(from) + k * width, width);
    asm volatile("vmovntdq %1, %0" : "=m"(static_cast<wide*>(to)[k]) : "v"(part));
  }
#elif defined(__SSE2__)
  auto* const t = static_cast<__m128i*>(to);
  const auto* const f = static_cast<const __m128i*>(from);
  for (int k = 0; k < 4; ++k) _mm_stream_si128(t + k, _mm_loadu_si128(f + k));
#else
  std::memcpy(to, from, static_cast<std::size_t>(line_bytes));
#endif
}

/// Asks for the line of an address as a writer needs it: from the processor that read it last.
ESPALIER_ALWAYS_INLINE void prefetch_to_write(const void* address) {
#if defined(__x86_64__)
  // The built-in means this instruction only where a flag allows it; where a processor lacks it, it does nothing.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

/// Bytes up to the next multiple of 64, at most `bytes`.
[[nodiscard]] inline std::int64_t to_next_line(const void* address, std::int64_t bytes) {
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address) % 64);  // NOLINT: alignment
  return smaller_of<std::int64_t>(bytes, (line_bytes - past) % line_bytes);
}

/// Copies past the caches, but for what is no whole line of `to`. `to` and `from` do not overlap.
inline void stream_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  std::int64_t done = to_next_line(to, bytes);
  std::memcpy(to, from, static_cast<std::size_t>(done));
  for (; done + 4 * line_bytes <= bytes; done += 4 * line_bytes) {
    for (std::int64_t k = 0; k < 4; ++k) stream_line(to + done + k * line_bytes, from + done + k * line_bytes);
  }
  std::memcpy(to + done, from + done, static_cast<std::size_t>(bytes - done));
}

}  // namespace espalier::detail
