// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::comm::detail {

/// Sets of ranks whose contributions a value contains, each kept once and named by a number.
class contributor_sets {
 public:
  ESPALIER_CONSTEXPR_VECTOR explicit contributor_sets(int ranks) : words_((static_cast<std::size_t>(ranks) + 63) / 64) {
    for (int r = 0; r < ranks; ++r) {
      std::vector<std::uint64_t> bits(words_, 0);
      bits[static_cast<std::size_t>(r) / 64] = std::uint64_t{1} << (static_cast<unsigned>(r) % 64U);
      sets_.push_back({std::move(bits), 1, r, r});
    }
    table_.assign(64, {});
  }

  /// The set of one rank.
  [[nodiscard]] constexpr int one(int rank) const { return rank; }
  [[nodiscard]] constexpr bool is_one(int which, int rank) const { return which == rank; }
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR int size(int which) const {
    return sets_[static_cast<std::size_t>(which)].size;
  }

  /// The union of two sets that have nothing in common; -1 if they have.
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR int united(int a, int b) {
    std::size_t place = find(a, b);
    if (table_[place].a >= 0) return table_[place].sum;
    const entry made{a, b, unite(a, b)};
    if (2 * ++used_ > table_.size()) {
      std::vector<entry> old(table_.size() * 2);
      old.swap(table_);
      for (const entry& e : old) {
        if (e.a >= 0) table_[find(e.a, e.b)] = e;
      }
      place = find(a, b);
    }
    table_[place] = made;
    return made.sum;
  }

  /// Whether both sets are runs of neighbouring ranks, and `right` begins where `left` ends.
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR bool continues(int left, int right) const {
    const set& x = sets_[static_cast<std::size_t>(left)];
    const set& y = sets_[static_cast<std::size_t>(right)];
    return x.last - x.first + 1 == x.size && y.last - y.first + 1 == y.size && x.last + 1 == y.first;
  }

 private:
  struct set {
    std::vector<std::uint64_t> bits;
    int size = 0;
    int first = 0;
    int last = 0;
  };
  struct entry {
    int a = -1;
    int b = -1;
    int sum = -1;
  };

  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::size_t find(int a, int b) const {
    const std::uint64_t mixed =
        (static_cast<std::uint64_t>(a) * 0x9E3779B97F4A7C15U) ^ (static_cast<std::uint64_t>(b) * 0xC2B2AE3D27D4EB4FU);
    std::size_t place = static_cast<std::size_t>(mixed >> 32U) & (table_.size() - 1);
    while (table_[place].a >= 0 && (table_[place].a != a || table_[place].b != b)) {
      place = (place + 1) & (table_.size() - 1);
    }
    return place;
  }

  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR int unite(int a, int b) {
    const set& x = sets_[static_cast<std::size_t>(a)];
    const set& y = sets_[static_cast<std::size_t>(b)];
    set made{x.bits, x.size + y.size, std::min(x.first, y.first), std::max(x.last, y.last)};
    for (std::size_t w = 0; w < words_; ++w) {
      if ((x.bits[w] & y.bits[w]) != 0) return -1;
      made.bits[w] |= y.bits[w];
    }
    for (std::size_t i = 0; i < sets_.size(); ++i) {
      if (sets_[i].size == made.size && sets_[i].first == made.first && sets_[i].bits == made.bits) {
        return static_cast<int>(i);
      }
    }
    sets_.push_back(std::move(made));
    return static_cast<int>(sets_.size()) - 1;
  }

  std::size_t words_;
  std::vector<set> sets_;
  std::vector<entry> table_;  // open addressing
  std::size_t used_ = 0;
};

/// An element of the array, with the contributions that a value of it contains.
struct known_value {
  std::int64_t element = 0;
  int set = 0;

  [[nodiscard]] constexpr known_value moved(std::int64_t by) const { return {element + by, set}; }
};

/// Neighbouring elements with the same contributions.
struct known_run {
  std::int64_t count = 0;
  known_value value;
};

ESPALIER_CONSTEXPR_VECTOR void append_run(std::vector<known_run>& runs, const known_run& next) {
  if (!runs.empty() && runs.back().value.set == next.value.set &&
      runs.back().value.element + runs.back().count == next.value.element) {
    runs.back().count += next.count;
  } else {
    runs.push_back(next);
  }
}

/// A buffer whose elements are known values; what was never written is unknown.
class symbolic_memory {
 public:
  /// The runs of [offset, offset + count). False if one of the elements was never written.
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR bool read(std::int64_t offset, std::int64_t count,
                                                    std::vector<known_run>& runs) const {
    runs.clear();
    const std::int64_t end = offset + count;
    for (std::size_t i = after(offset); offset < end; ++i) {
      if (i == segments_.size() || segments_[i].begin > offset) return false;
      const segment& s = segments_[i];
      const std::int64_t length = std::min(end, s.begin + s.run.count) - offset;
      append_run(runs, {length, s.run.value.moved(offset - s.begin)});
      offset += length;
    }
    return true;
  }

  /// [offset, offset + count) becomes the elements from `value` on.
  ESPALIER_CONSTEXPR_VECTOR void write(std::int64_t offset, std::int64_t count, known_value value) {
    const std::int64_t end = offset + count;
    const std::size_t first = after(offset);
    std::size_t last = first;
    segment kept[3];
    std::size_t pieces = 0;
    const auto keep = [&](const segment& s) {
      if (pieces > 0 && joins(kept[pieces - 1], s)) {
        kept[pieces - 1].run.count += s.run.count;
      } else {
        kept[pieces++] = s;
      }
    };
    // What is cut off at the front, the new run, what is left at the end; neighbours that continue are joined.
    std::size_t from = first;
    if (first < segments_.size() && segments_[first].begin < offset) {
      const segment& s = segments_[first];
      keep({s.begin, {offset - s.begin, s.run.value}});
    } else if (first > 0 && segments_[first - 1].begin + segments_[first - 1].run.count == offset) {
      from = first - 1;
      keep(segments_[from]);
    }
    keep({offset, {count, value}});
    while (last < segments_.size() && segments_[last].begin + segments_[last].run.count <= end) ++last;
    if (last < segments_.size() && segments_[last].begin < end) {
      const segment& s = segments_[last];
      keep({end, {s.begin + s.run.count - end, s.run.value.moved(end - s.begin)}});
      ++last;
    } else if (last < segments_.size() && segments_[last].begin == end) {
      keep(segments_[last]);
      ++last;
    }
    const std::size_t replaced = last - from;
    const auto at = [&](std::size_t i) { return segments_.begin() + static_cast<std::ptrdiff_t>(i); };
    if (replaced > pieces) {
      segments_.erase(at(from + pieces), at(last));
    } else if (replaced < pieces) {
      segments_.insert(at(last), pieces - replaced, segment{});
    }
    for (std::size_t i = 0; i < pieces; ++i) segments_[from + i] = kept[i];
  }

 private:
  struct segment {
    std::int64_t begin = 0;
    known_run run;
  };

  [[nodiscard]] static constexpr bool joins(const segment& a, const segment& b) {
    return a.begin + a.run.count == b.begin && a.run.value.set == b.run.value.set &&
           a.run.value.element + a.run.count == b.run.value.element;
  }

  // The first segment that ends after `offset`.
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::size_t after(std::int64_t offset) const {
    const auto found = std::upper_bound(segments_.begin(), segments_.end(), offset,
                                        [](std::int64_t o, const segment& s) { return o < s.begin + s.run.count; });
    return static_cast<std::size_t>(found - segments_.begin());
  }

  std::vector<segment> segments_;  // ascending, disjoint
};

}  // namespace espalier::comm::detail
