// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/memory_outline.hpp>

#include <cstdint>

namespace espalier {

/// The largest sum of the sizes of buffers that are needed at the same time: no arena can be smaller.
/// @post the largest sum over launches of the buffers that live then
[[nodiscard]] constexpr std::int64_t live_bytes(const buffer* buffers, int count, int launches) {
  detail::list<std::int64_t> change(launches + 1, 0);
  for (int i = 0; i < count; ++i) {
    change[buffers[i].first] += buffers[i].bytes;
    change[buffers[i].last + 1] -= buffers[i].bytes;
  }
  std::int64_t live = 0;
  std::int64_t most = 0;
  for (int u = 0; u < launches; ++u) {
    live += change[u];
    most = live > most ? live : most;
  }
  return most;
}

namespace detail {

/// The occupied offsets of the arena by time: a segment tree over the launches of the schedule, whose nodes hold sets
/// of offsets as spans that neither touch nor overlap. Looking for the conflicts of a buffer meets a few spans on each
/// level of the tree, where a list of all buffers would be quadratic.
class arena_occupancy {
 public:
  struct span {
    std::int64_t begin;
    std::int64_t end;
    int next;  // in the same set, in order of offset; 0 ends it
  };

  constexpr explicit arena_occupancy(int launches) {
    while (leaves_ < launches) leaves_ *= 2;
    throughout_.resize(2 * leaves_, 0);
    inside_.resize(2 * leaves_, 0);
    spans_.push_back({});
  }

  /// Offsets [begin, end) are in use from launch `first` to launch `last`.
  constexpr void occupy(int first, int last, std::int64_t begin, std::int64_t end) {
    int left = first + leaves_;
    int right = last + leaves_;
    for (int l = left, r = right + 1; l < r; l /= 2, r /= 2) {
      if (l % 2 == 1) {
        add(throughout_[l], 0, begin, end);
        add(inside_[l], 0, begin, end);
        ++l;
      }
      if (r % 2 == 1) {
        --r;
        add(throughout_[r], 0, begin, end);
        add(inside_[r], 0, begin, end);
      }
    }
    for (; left != right; left /= 2, right /= 2) {
      add(inside_[left], 0, begin, end);
      add(inside_[right], 0, begin, end);
    }
    for (; left > 0; left /= 2) add(inside_[left], 0, begin, end);
  }

  /// The lowest of the smallest gaps that `bytes` fit into, among everything in use between two launches.
  [[nodiscard]] constexpr std::int64_t tightest(int first, int last, std::int64_t bytes) {
    taken_ = 0;
    int left = first + leaves_;
    int right = last + leaves_;
    for (int l = left, r = right + 1; l < r; l /= 2, r /= 2) {
      if (l % 2 == 1) take(inside_[l++]);
      if (r % 2 == 1) take(inside_[--r]);
    }
    for (; left != right; left /= 2, right /= 2) {
      take(throughout_[left]);
      take(throughout_[right]);
    }
    for (; left > 0; left /= 2) take(throughout_[left]);
    std::int64_t best = -1;
    std::int64_t best_gap = -1;
    std::int64_t end = 0;
    for (int at = taken_; at != 0; at = spans_[at].next) {
      const std::int64_t gap = spans_[at].begin - end;
      if (gap >= bytes && (best < 0 || gap < best_gap)) {
        best = end;
        best_gap = gap;
      }
      end = spans_[at].end;
    }
    release(taken_);
    return best < 0 ? end : best;
  }

 private:
  constexpr void take(int set) {
    int from = 0;  // both are in order of offset: no span of this set is looked for twice in the other
    for (; set != 0; set = spans_[set].next) from = add(taken_, from, spans_[set].begin, spans_[set].end);
  }

  /// Adds [begin, end) to the set whose first span is `first`. Looks after span `from`, which ends before `begin`, or
  /// from the first on if that is 0. Returns the last span that ends before `begin`: a `from` for what begins later.
  constexpr int add(int& first, int from, std::int64_t begin, std::int64_t end) {
    int before = from;
    int at = from == 0 ? first : spans_[from].next;
    while (at != 0) {
      const span& met = spans_[at];
      if (met.end >= begin) {
        if (met.begin <= begin && end <= met.end) return before;
        break;
      }
      before = at;
      at = met.next;
    }
    while (at != 0) {
      span& met = spans_[at];
      if (met.begin > end) break;
      begin = met.begin < begin ? met.begin : begin;
      end = met.end > end ? met.end : end;
      const int swallowed = at;
      at = met.next;
      met.next = free_;
      free_ = swallowed;
    }
    const int grown = new_span({begin, end, at});
    (before == 0 ? first : spans_[before].next) = grown;
    return before;
  }
  constexpr int new_span(const span& content) {
    if (free_ == 0) return spans_.push_back(content);
    const int reused = free_;
    free_ = spans_[reused].next;
    spans_[reused] = content;
    return reused;
  }
  constexpr void release(int set) {
    while (set != 0) {
      const int next = spans_[set].next;
      spans_[set].next = free_;
      free_ = set;
      set = next;
    }
  }

  int leaves_ = 1;
  /// The offsets in use during all launches of a node because of this node (not of those above it), and those in use
  /// during any of its launches because of this node and those below it.
  list<int> throughout_;
  list<int> inside_;
  list<span> spans_;
  int free_ = 0;
  int taken_ = 0;
};

}  // namespace detail

/// Finds offsets in the arena, for the largest buffers first: each goes into the tightest gap that the buffers alive at
/// the same time leave. Places numbers [start, stop) of `order`, when those before them have been placed; returns the
/// bytes that all of them take.
/// @post buffers that live at the same time do not overlap, and end within the returned bytes
constexpr std::int64_t place_buffers(const buffer* buffers, const int* order, int start, int stop, int launches,
                                     std::int64_t* offset) {
  detail::arena_occupancy occupied(launches);
  std::int64_t size = 0;
  for (int n = 0; n < stop; ++n) {
    const buffer& b = buffers[order[n]];
    if (n >= start) offset[order[n]] = occupied.tightest(b.first, b.last, b.bytes);
    const std::int64_t at = offset[order[n]];
    occupied.occupy(b.first, b.last, at, at + b.bytes);
    size = at + b.bytes > size ? at + b.bytes : size;
  }
  return size;
}

/// The buffers' numbers, largest first; among equals the one needed first. (Merge sort: no quadratic pass.)
/// @post every buffer once, none larger than the one before it
constexpr void sort_buffers(const buffer* buffers, int count, int* order) {
  detail::list<int> other(count);
  for (int i = 0; i < count; ++i) order[i] = i;
  const auto before = [&](int a, int b) {
    if (buffers[a].bytes != buffers[b].bytes) return buffers[a].bytes > buffers[b].bytes;
    return a < b;
  };
  for (int width = 1; width < count; width *= 2) {
    for (int low = 0; low < count; low += 2 * width) {
      const int middle = low + width < count ? low + width : count;
      const int high = low + 2 * width < count ? low + 2 * width : count;
      int i = low;
      int j = middle;
      for (int k = low; k < high; ++k) {
        const bool left = j >= high || (i < middle && !before(order[j], order[i]));
        other[k] = left ? order[i++] : order[j++];
      }
    }
    for (int i = 0; i < count; ++i) order[i] = other[i];
  }
}

}  // namespace espalier
