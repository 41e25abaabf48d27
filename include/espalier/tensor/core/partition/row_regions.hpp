// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/row_product.hpp>
#include <espalier/tensor/core/partition/scheduler.hpp>

#include <cstdint>
#include <initializer_list>

// Attention makes scores of every query with every key, which take far more memory than all else, and works on them row
// by row: fused chains between a product that makes them and others that read them. Such launches, which follow each
// other, are a row region: they take turns for a few rows of an item (a head) at a time, so that of the scores, and
// of all that is computed from them, only these rows exist, for each thread. Nothing says that it is attention: any
// product, chains with sums or maxima over its rows, and products that read them, are a region.

namespace espalier::detail {

/// Finds row regions in a schedule, puts their launches one after the other, and marks what they keep for themselves.
class row_region_finder {
 public:
  constexpr row_region_finder(graph_view g, schedule& s) : g_(g), s_(s) {}

  constexpr void run() {
    for (int u = 0; u < s_.launches.size();) {
      // A region may have put another launch here, which comes next.
      if (s_.launches[u].region_end >= 0 || !starts_at(u) || !try_from(u)) ++u;
    }
  }

 private:
  enum class part : std::uint8_t {
    /// Needs nothing that the region makes.
    before,
    member,
    /// Needs what the region makes, and not row by row.
    after,
  };
  enum class content : std::uint8_t {
    /// Not made by the region.
    other,
    /// Known row by row: scores, or a number for each row.
    rows,
    /// Known when the region is over.
    late,
  };
  /// So many launches after its first one a region ends.
  static constexpr int most_launches = 256;

  [[nodiscard]] constexpr int instruction_of(int u) const { return s_.order[s_.launches[u].first]; }
  [[nodiscard]] constexpr bool is_product(int u) const {
    return !s_.launches[u].fused && s_.launches[u].count == 1 && g_[instruction_of(u)].op->facts.contracts;
  }
  [[nodiscard]] constexpr bool starts_at(int u) const { return is_product(u) && makes_scores(g_, instruction_of(u)); }

  /// Whether a region may not go on past launch `u`.
  [[nodiscard]] constexpr bool ends_at(int u) const {
    const instruction& i = g_[instruction_of(u)];
    if (s_.launches[u].region_end >= 0) return true;
    return marks_region(structure_of(i)) || structure_of(i) == structure::result || i.op->facts.overwrites >= 0;
  }

  constexpr void note_place(int u) {
    for (int n = s_.launches[u].first; n < s_.launches[u].first + s_.launches[u].count; ++n)
      s_.launch_of[s_.order[n]] = u;
  }

  /// Whether a region starts at launch `first`: then it is in place.
  constexpr bool try_from(int first) {
    space_ = g_[instruction_of(first)].shape;
    first_ = first;
    content_.clear();
    content_.resize(g_.size, content::other);
    parts_.clear();
    scores_.clear();
    for (int u = first; u < s_.launches.size() && u - first < most_launches && !ends_at(u); ++u) {
      int scores = -1;
      const part p = part_of(u, scores);
      parts_.push_back(p);
      scores_.push_back(scores);
      if (p == part::before) continue;
      for (int n = s_.launches[u].first; n < s_.launches[u].first + s_.launches[u].count; ++n) {
        const bool by_rows = p == part::member && (s_.launches[u].fused || scores == 2);
        content_[s_.order[n]] = by_rows ? content::rows : content::late;
      }
    }
    drop_others();
    leave_to_others();
    while (!parts_.empty() && parts_.back() != part::member) parts_.pop_back();
    if (!is_worth_it()) return false;
    place();
    return true;
  }

  /// A value, or what it repeats if it is not stored.
  [[nodiscard]] constexpr int stored_source(int value) const {
    while (s_.launch_of[value] < 0 && is_read_through(g_[value])) value = g_[value].operand[0];
    return value;
  }
  [[nodiscard]] constexpr content content_of(int value) const { return content_[stored_source(value)]; }

  constexpr part part_of(int u, int& scores) const {
    bool reads_rows = false;
    const launch& what = s_.launches[u];
    for (int n = what.first; n < what.first + what.count; ++n) {
      const instruction& i = g_[s_.order[n]];
      for (int k = 0; k < i.operand_count; ++k) {
        const content c = content_of(g_.operand_at(i, k));
        if (c == content::late) return part::after;
        reads_rows = reads_rows || c == content::rows;
      }
    }
    if (is_product(u)) {
      const int id = instruction_of(u);
      if (!reads_rows) {
        if (!(g_[id].shape == space_) || !starts_at(u)) return part::before;
        scores = 2;
        return part::member;
      }
      scores = content_[g_[id].operand[0]] == content::rows ? 0 : 1;
      const bool both = scores == 0 && content_of(g_[id].operand[1]) == content::rows;
      const bool fits = !both && g_[g_[id].operand[scores]].shape == space_ && is_floating(g_[id].type) &&
                        is_floating(g_.operand(id, 1 - scores).type) &&
                        row_product_of(g_, id, scores).role != row_role::none;
      return fits ? part::member : part::after;
    }
    if (!reads_rows) return part::before;
    const bool is_of_rows = what.space == leading(space_);
    return what.fused && (is_of_rows || what.space == space_) && works_by_rows(u, is_of_rows) ? part::member
                                                                                              : part::after;
  }

  /// Whether a chain needs of each row of scores, and of the numbers of each row, only the row it works on.
  /// `is_of_rows`: it has a number for each row, and no scores.
  [[nodiscard]] constexpr bool works_by_rows(int u, bool is_of_rows) const {
    const launch& what = s_.launches[u];
    for (int n = what.first; n < what.first + what.count; ++n) {
      const instruction& i = g_[s_.order[n]];
      if (s_.role[s_.order[n]] == fused_role::accumulator) return false;
      if (is_of_rows && (i.op->fuse != fusion::elementwise || !(i.shape == what.space))) return false;
      const bool is_wide = !is_of_rows && (i.op->fuse == fusion::reduction || s_.role[s_.order[n]] == fused_role::wide);
      for (int k = 0; k < i.operand_count; ++k) {
        const int o = g_.operand_at(i, k);
        // Of other rows.
        if (is_of_rows && s_.launch_of[o] < 0 && g_[o].op->shifts != nullptr) return false;
        if (content_of(o) != content::rows) continue;
        if (s_.launch_of[o] >= 0) {
          if (!(g_[o].shape == (is_wide ? space_ : leading(space_)))) return false;
        } else {
          const int from = g_[o].operand[0];
          if (g_[o].op->fuse != fusion::broadcast) return false;
          if (!is_wide || s_.launch_of[from] < 0 || !repeats_rows(g_[o], g_[from].shape)) return false;
        }
      }
    }
    return true;
  }

  [[nodiscard]] constexpr bool is_member(int u) const {
    return u >= first_ && u - first_ < parts_.size() && parts_[u - first_] == part::member;
  }
  /// Calls `f` for each member that member `n` reads something of.
  template <class F> constexpr void for_each_member_read(int n, const F& f) const {
    const launch& what = s_.launches[first_ + n];
    for (int at = what.first; at < what.first + what.count; ++at) {
      const instruction& i = g_[s_.order[at]];
      for (int k = 0; k < i.operand_count; ++k) {
        const int from = s_.launch_of[stored_source(g_.operand_at(i, k))] - first_;
        if (from >= 0 && from < n && parts_[from] == part::member) f(from);
      }
    }
  }

  /// Only launches that work on the same scores as the first one, or on others together with these, are a region. The
  /// others come after it, where they may be in another one: nothing that comes before reads them.
  constexpr void drop_others() {
    list<bool> together(parts_.size(), false);
    if (!together.empty()) together[0] = true;
    for (bool changed = true; changed;) {
      changed = false;
      for (int n = 1; n < parts_.size(); ++n) {
        if (parts_[n] != part::member) continue;
        // What it reads of members is of rows: by that they hang together.
        bool any = together[n];
        for_each_member_read(n, [&](int from) { any = any || together[from]; });
        if (!any) continue;
        changed = changed || !together[n];
        together[n] = true;
        for_each_member_read(n, [&](int from) {
          changed = changed || !together[from];
          together[from] = true;
        });
      }
    }
    for (int n = 0; n < parts_.size(); ++n) {
      if (parts_[n] == part::member && !together[n]) parts_[n] = part::after;
    }
  }
  /// Scores that no member reads, as those of a gradient that needs maxima and sums of the region, are made after it,
  /// where they may be in another one.
  constexpr void leave_to_others() {
    for (int n = parts_.size() - 1; n >= 0; --n) {
      if (parts_[n] != part::member) continue;
      const launch& what = s_.launches[first_ + n];
      bool makes_scores_only = what.fused || scores_[n] == 2;
      for (int at = what.first; at < what.first + what.count; ++at)
        makes_scores_only = makes_scores_only && (!s_.stored[s_.order[at]] || g_[s_.order[at]].shape == space_);
      bool is_read = false;
      for (int m = n + 1; m < parts_.size() && makes_scores_only && !is_read; ++m) {
        if (parts_[m] == part::member) for_each_member_read(m, [&](int from) { is_read = is_read || from == n; });
      }
      if (makes_scores_only && !is_read) parts_[n] = part::after;
    }
  }

  /// A product reads scores, or a chain reduces their rows, and something need not be stored.
  constexpr bool is_worth_it() {
    bool reads = false;
    for (int n = 0; n < parts_.size(); ++n) {
      if (parts_[n] != part::member) continue;
      const launch& what = s_.launches[first_ + n];
      if (!what.fused) reads = reads || scores_[n] != 2;
      for (int at = what.first; what.fused && at < what.first + what.count; ++at)
        reads = reads || g_[s_.order[at]].op->fuse == fusion::reduction;
    }
    return reads && !parts_.empty() && parts_[0] == part::member && find_values() > 0;
  }

  /// Finds the values of scores that nothing outside reads; returns how many.
  constexpr int find_values() {
    inside_.clear();
    inside_.resize(g_.size, false);
    for (int n = 0; n < parts_.size(); ++n) {
      if (parts_[n] != part::member) continue;
      const launch& what = s_.launches[first_ + n];
      for (int at = what.first; at < what.first + what.count; ++at) {
        const int id = s_.order[at];
        inside_[id] = content_[id] == content::rows && s_.stored[id] && g_[id].shape == space_;
      }
    }
    for (int id = 0; id < g_.size; ++id) {
      const bool is_inside = s_.launch_of[id] >= 0 && is_member(s_.launch_of[id]);
      for (int k = 0; k < g_[id].operand_count; ++k) {
        if (!is_inside) inside_[g_.operand_at(g_[id], k)] = false;
      }
    }
    int count = 0;
    for (int id = 0; id < g_.size; ++id) count += inside_[id] ? 1 : 0;
    return count;
  }

  /// Launches that need nothing from the region come first, then its own, then those that wait for it.
  constexpr void place() {
    if (s_.in_rows.empty()) s_.in_rows.resize(g_.size, false);
    for (int id = 0; id < g_.size; ++id) s_.in_rows[id] = s_.in_rows[id] || inside_[id];
    int members = 0;
    for (const part p : parts_) members += p == part::member ? 1 : 0;
    list<launch> placed;
    int end = -1;
    for (const part which : {part::before, part::member, part::after}) {
      if (which == part::member) end = first_ + placed.size() + members - 1;
      for (int n = 0; n < parts_.size(); ++n) {
        if (parts_[n] != which) continue;
        launch one = s_.launches[first_ + n];
        if (which == part::member) {
          one.region_end = end;
          one.scores = scores_[n];
          if (one.fused) join_space(one);
        }
        placed.push_back(one);
      }
    }
    for (int n = 0; n < placed.size(); ++n) {
      s_.launches[first_ + n] = placed[n];
      note_place(first_ + n);
    }
    // What a loop passes on names the launch that ends it, which stays where it is.
  }
  /// A chain of numbers of rows takes turns with the others as one that has no element for each column.
  constexpr void join_space(launch& chain) {
    if (chain.space == space_) return;
    chain.space = space_;
    for (int n = chain.first; n < chain.first + chain.count; ++n) s_.role[s_.order[n]] = fused_role::narrow;
  }

  graph_view g_;
  schedule& s_;
  extents space_;
  int first_ = 0;
  /// By launch, from the first on.
  list<part> parts_;
  list<int> scores_;
  /// By value.
  list<content> content_;
  list<bool> inside_;
};

[[nodiscard]] constexpr bool has_row_regions(const schedule_view& s) {
  for (int u = 0; u < s.launch_count; ++u) {
    if (s.launches[u].region_end >= 0) return true;
  }
  return false;
}

/// Forms the row regions of a schedule. Most programs have none, and pay a look at each of their products.
constexpr void form_row_regions(graph_view g, schedule& s) { row_region_finder(g, s).run(); }

}  // namespace espalier::detail
