// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/base/simd.hpp>
#include <espalier/comm/host/copy.hpp>
#include <espalier/comm/run/combine.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace espalier::comm::host {

/// Several ranks' values of the same elements, combined in the order of ranks and written to one or more places. A
/// target may be one of the parts, or lie below one: elements are read before what lies below them is written.
struct fold_job {
  std::byte* const* targets = nullptr;
  int copies = 1;
  const std::byte* const* parts = nullptr;
  int members = 0;
  std::int64_t count = 0;  ///< elements
  store how = store::cached;
};

}  // namespace espalier::comm::host

namespace espalier::comm::detail {

template <class T>
inline constexpr int register_bytes =
    std::is_integral_v<T> ? espalier::detail::integer_simd_bytes : espalier::detail::simd_bytes;

/// A register of elements: with wider vectors g++ 12 takes five times as long for sums of eight parts, and up to twenty
/// times for maxima.
template <class T> struct wide_vector { using type [[gnu::vector_size(register_bytes<T>), gnu::may_alias]] = T; };
template <class T> using wide_t = typename wide_vector<T>::type;

template <reduction Kind, class V> ESPALIER_ALWAYS_INLINE void combine_wide(V& a, const V& b) {
  if constexpr (Kind == reduction::max) {
    espalier::detail::keep_greater(a, b);
  } else if constexpr (Kind == reduction::min) {
    espalier::detail::keep_lesser(a, b);
  } else if constexpr (Kind == reduction::sum) {
    a = a + b;
  } else {
    a = a * b;
  }
}

template <reduction Kind, class T> [[nodiscard]] inline T folded(const host::fold_job& job, std::int64_t at) {
  const auto value = [&](int k) {
    T one;
    std::memcpy(&one, job.parts[k] + at, sizeof(T));
    return static_cast<computed_t<T>>(one);
  };
  auto sum = value(0);
  for (int k = 1; k < job.members; ++k) sum = combined<Kind>(sum, value(k));
  return static_cast<T>(sum);
}

/// One element after the other.
template <reduction Kind, class T> void fold_singly(const host::fold_job& job, std::int64_t begin, std::int64_t end) {
  for (std::int64_t at = begin; at < end; at += static_cast<std::int64_t>(sizeof(T))) {
    const T result = folded<Kind, T>(job, at);
    for (int c = 0; c < job.copies; ++c) std::memcpy(job.targets[c] + at, &result, sizeof(T));
  }
}

/// Elements in so many registers. No array, which g++ 12 would keep in memory: `fold_pair` took six times as long.
template <class T, int Registers> struct registers {
  wide_t<T> first;
  registers<T, Registers - 1> rest;

  ESPALIER_ALWAYS_INLINE void load(const std::byte* from) {
    std::memcpy(&first, from, register_bytes<T>);
    if constexpr (Registers > 1) rest.load(from + register_bytes<T>);
  }
  template <reduction Kind> ESPALIER_ALWAYS_INLINE void combine(const std::byte* with) {
    wide_t<T> next;
    std::memcpy(&next, with, register_bytes<T>);
    combine_wide<Kind>(first, next);
    if constexpr (Registers > 1) rest.template combine<Kind>(with + register_bytes<T>);
  }
  ESPALIER_ALWAYS_INLINE void put(std::byte* to) const {
    std::memcpy(to, &first, register_bytes<T>);
    if constexpr (Registers > 1) rest.put(to + register_bytes<T>);
  }
};
template <class T> struct registers<T, 0> {};
template <class T, int Lines> using lines = registers<T, Lines * 64 / register_bytes<T>>;

template <int Lines, class T, int Registers>
ESPALIER_ALWAYS_INLINE void put_lines(std::byte* to, const registers<T, Registers>& from, host::store how) {
  if (how == host::store::cached) return from.put(to);
  alignas(64) std::byte together[64 * Lines];
  from.put(&together[0]);
  for (int l = 0; l < Lines; ++l) host::stream_line(to + 64 * l, &together[64 * l]);
}

template <reduction Kind, class T, int Lines>
ESPALIER_ALWAYS_INLINE void fold_lines(const host::fold_job& job, std::int64_t at) {
  lines<T, Lines> sum;
  sum.load(job.parts[0] + at);
  for (int k = 1; k < job.members; ++k) sum.template combine<Kind>(job.parts[k] + at);
  for (int c = 0; c < job.copies; ++c) put_lines<Lines>(job.targets[c] + at, sum, job.how);
}

/// Two parts and one target, which is nearly always the case: at least 64 bytes. It writes whole lines of the target,
/// since a write across two costs twice as much, and before and after these 64 bytes that overlap with them.
template <reduction Kind, class T, host::store How>
void fold_pair(std::byte* target, const std::byte* first, const std::byte* second, std::int64_t bytes) {
  const auto fold = [&](auto& sum, std::int64_t at) {
    sum.load(first + at);
    sum.template combine<Kind>(second + at);
  };
  std::int64_t at =
      host::to_next_line(target, bytes) / static_cast<std::int64_t>(sizeof(T)) * static_cast<std::int64_t>(sizeof(T));
  const bool has_head = at > 0;
  const bool has_tail = (bytes - at) % 64 != 0;
  // Read before anything is written: the target may be one of the parts.
  lines<T, 1> head;
  lines<T, 1> tail;
  fold(head, 0);
  fold(tail, bytes - 64);
  for (; at + 128 <= bytes; at += 128) {
    lines<T, 2> sum;
    fold(sum, at);
    put_lines<2>(target + at, sum, How);
  }
  if (at + 64 <= bytes) {
    lines<T, 1> sum;
    fold(sum, at);
    put_lines<1>(target + at, sum, How);
  }
  if (has_head) head.put(target);
  if (has_tail) tail.put(target + bytes - 64);
}

template <reduction Kind, class T> void fold_wide(const host::fold_job& job) {
  const std::int64_t bytes = job.count * static_cast<std::int64_t>(sizeof(T));
  if (bytes < 64) return fold_singly<Kind, T>(job, 0, bytes);
  // Streaming stores want whole lines: the targets must stand alike, and on multiples of elements.
  host::fold_job now = job;
  std::int64_t at = 0;
  if (job.how == host::store::streaming) {
    at = host::to_next_line(job.targets[0], bytes);
    bool alike = at % static_cast<std::int64_t>(sizeof(T)) == 0;
    for (int c = 1; c < job.copies; ++c) alike = alike && host::to_next_line(job.targets[c], bytes) == at;
    if (!alike) {
      now.how = host::store::cached;
      at = 0;
    }
  }
  if (now.members == 2 && now.copies == 1) {
    const auto pair = now.how == host::store::streaming ? &fold_pair<Kind, T, host::store::streaming>
                                                        : &fold_pair<Kind, T, host::store::cached>;
    return pair(now.targets[0], now.parts[0], now.parts[1], bytes);
  }
  fold_singly<Kind, T>(now, 0, at);
  for (; at + 128 <= bytes; at += 128) fold_lines<Kind, T, 2>(now, at);
  for (; at + 64 <= bytes; at += 64) fold_lines<Kind, T, 1>(now, at);
  fold_singly<Kind, T>(now, at, bytes);
}

/// Types for storage only are added up in float32 and rounded once. Tiles, so that the conversions are vectorised.
/// Also what is rare: less code than `fold_wide`.
template <reduction Kind, class T> void fold_tiles(const host::fold_job& job) {
  constexpr std::int64_t tile = 256;
  computed_t<T> sum[tile];
  T values[tile];
  for (std::int64_t done = 0; done < job.count; done += tile) {
    const std::int64_t length = job.count - done < tile ? job.count - done : tile;
    const auto bytes = static_cast<std::size_t>(length) * sizeof(T);
    const auto at = done * static_cast<std::int64_t>(sizeof(T));
    for (int k = 0; k < job.members; ++k) {
      std::memcpy(&values[0], job.parts[k] + at, bytes);
      if (k == 0) {
        espalier::detail::convert_elements(&values[0], &sum[0], length);
      } else {
        combine_run<Kind, computed_t<T>>(&sum[0], &sum[0], &values[0], length);
      }
    }
    espalier::detail::convert_elements(&sum[0], &values[0], length);
    for (int c = 0; c < job.copies; ++c) std::memcpy(job.targets[c] + at, &values[0], bytes);
  }
}

/// One pass over all parts.
template <reduction Kind, class T> [[nodiscard]] constexpr host::fold_function fold_of() {
  // Products, the extremes of integers, and short integers.
  constexpr bool is_rare =
      !std::is_same_v<T, bool> &&
      (Kind == reduction::prod || (std::is_integral_v<T> && (sizeof(T) < 4 || Kind != reduction::sum)));
  if constexpr (is_rare || !std::is_same_v<T, computed_t<T>>) {
    return &fold_tiles<Kind, lane_t<Kind, T>>;
  } else {
    return &fold_wide<Kind, lane_t<Kind, T>>;
  }
}

}  // namespace espalier::comm::detail

namespace espalier::comm::host {

/// Combines parts by a kernel, or, where there is none, by any combiner: which may overwrite what arrives, so it is
/// only given memory of our own as that, and what other ranks may be reading as its own.
class folder {
 public:
  void set(const combiner& by) {
    by_ = by;
    if (by.fold != nullptr) return;
    tile_ = by.element_bytes > 0 ? tile_bytes / by.element_bytes : 1;
    if (tile_ < 1) tile_ = 1;
    const auto needed = static_cast<std::size_t>(2 * tile_ * by.element_bytes);
    if (scratch_.size() < needed) scratch_.resize(needed);
  }

  /// Made for this operation and type: short jobs cost no more than one long one.
  [[nodiscard]] bool has_kernel() const { return by_.fold != nullptr; }

  void operator()(const fold_job& job) {
    if (by_.fold != nullptr && job.members > 1) return by_.fold(job);
    if (job.members == 1) {
      for (int c = 0; c < job.copies; ++c) copy_bytes(job.targets[c], job.parts[0], job.count * by_.element_bytes);
      return;
    }
    for (std::int64_t done = 0; done < job.count; done += tile_) {
      one_tile(job, done * by_.element_bytes, job.count - done < tile_ ? job.count - done : tile_);
    }
  }

 private:
  static constexpr std::int64_t tile_bytes = 16 << 10;

  void one_tile(const fold_job& job, std::int64_t at, std::int64_t count) {
    const std::int64_t bytes = count * by_.element_bytes;
    std::byte* sum = scratch_.data();
    std::byte* next = sum + tile_ * by_.element_bytes;
    copy_bytes(sum, job.parts[0] + at, bytes);
    for (int k = 1; k < job.members; ++k) {
      by_.combine(by_.state, next, job.parts[k] + at, sum, count, true);
      std::swap(sum, next);
    }
    for (int c = 0; c < job.copies; ++c) copy_bytes(job.targets[c] + at, sum, bytes);
  }

  combiner by_;
  std::int64_t tile_ = 1;
  espalier::detail::plain_vector<std::byte> scratch_;
};

}  // namespace espalier::comm::host
