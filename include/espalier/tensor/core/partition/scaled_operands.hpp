// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/row_product.hpp>
#include <espalier/tensor/core/partition/schedule.hpp>

// Queries are divided by a number before they meet keys. As values of their own they would take as much memory as the
// queries themselves: a product in a row region (partition/row_regions.hpp), which rearranges what it reads for its
// tiles anyway, scales it there.

namespace espalier::detail {

/// A value that is another one times a number, or divided by it, in the same type.
struct scaled_value {
  /// The other value; -1: it is no such value.
  int from = -1;
  operand_scale by;
};

/// The constant that a value is, or repeats; or -1.
[[nodiscard]] constexpr int constant_of(graph_view g, int id) {
  if (g[id].op->fuse == fusion::broadcast) id = g[id].operand[0];
  return g[id].op->facts.values == pattern::uniform ? id : -1;
}

[[nodiscard]] constexpr scaled_value scaled_value_of(graph_view g, int id) {
  const scaled_value none;
  const dtype type = g[id].type;
  if (!is_floating(type)) return none;
  // Sixteen bits may be computed with in a wider type, and rounded once.
  const bool is_rounded = g[id].op->facts.converts && is_for_storage(type);
  const instruction& scaled = g[is_rounded ? g[id].operand[0] : id];
  if (is_rounded && scaled.type != facts_of(type).accumulate) return none;
  const bool divides = scaled.op == &ops::divide;
  if (!divides && scaled.op != &ops::multiply) return none;
  const int number = !divides && constant_of(g, scaled.operand[0]) >= 0 ? 0 : 1;
  const int constant = constant_of(g, scaled.operand[number]);
  if (constant < 0) return none;
  int from = scaled.operand[1 - number];
  if (is_rounded) {
    if (!g[from].op->facts.converts) return none;
    from = g[from].operand[0];
  }
  if (g[from].type != type || !(g[from].shape == g[id].shape)) return none;
  return {from, {true, divides, stored_as(scaled.type, g[constant].scalar)}};
}

/// Lets the products of row regions scale what they read, where nothing else reads the scaled values: these are not
/// computed any more.
template <int Instructions> class operand_scaler {
 public:
  constexpr operand_scaler(graph_view g, fixed_schedule<Instructions>& s) : g_(g), s_(s) {}

  constexpr void run() {
    find_reads();
    if (reads_.empty()) return;
    leave_what_others_read();
    for (const read& one : reads_) {
      if (is_gone_[one.value]) s_.launches[one.launch].unscaled[one.operand] = scaled_value_of(g_, one.value).from;
    }
    find_unread();
    remove();
  }

 private:
  /// A product of a region reads a scaled value.
  struct read {
    int launch = -1;
    int operand = -1;
    int value = -1;
  };

  constexpr void find_reads() {
    for (int u = 0; u < s_.launch_count; ++u) {
      if (s_.launches[u].scores < 0) continue;
      const int product = s_.order[s_.launches[u].first];
      for (int k = 0; k < 2; ++k) {
        const int value = g_[product].operand[k];
        if (k == s_.launches[u].scores || !is_of_chain(value)) continue;
        const int from = scaled_value_of(g_, value).from;
        // In a loop, what is read from outside of it may be somewhere else in each iteration.
        if (from < 0 || !is_in_memory(from) || g_[from].region != g_[product].region ||
            g_[value].region != g_[product].region)
          continue;
        reads_.push_back({u, k, value});
      }
    }
  }
  [[nodiscard]] constexpr bool is_of_chain(int id) const {
    const int u = s_.launch_of[id];
    return u >= 0 && s_.launches[u].fused && s_.launches[u].region_end < 0;
  }
  [[nodiscard]] constexpr bool is_in_memory(int id) const {
    return s_.launch_of[id] >= 0 && s_.stored[id] && !s_.in_rows[id];
  }

  constexpr void leave_what_others_read() {
    is_gone_.resize(g_.size, false);
    for (const read& one : reads_) is_gone_[one.value] = true;
    for (int id = 0; id < g_.size; ++id) {
      const int u = s_.launch_of[id];
      const int scores = u < 0 ? -1 : s_.launches[u].scores;
      for (int k = 0; k < g_[id].operand_count; ++k) {
        const int o = g_.operand_at(g_[id], k);
        if (scores < 0 || k == scores || g_[id].region != g_[o].region) is_gone_[o] = false;
      }
    }
  }

  /// What only these values read is not computed any more, either: queries in a wider type.
  constexpr void find_unread() {
    list<bool> is_read(g_.size, false);
    list<bool> was_read(g_.size, false);
    for (int id = g_.size - 1; id >= 0; --id) {
      if (was_read[id] && !is_read[id] && is_of_chain(id) && !s_.stored[id]) is_gone_[id] = true;
      list<bool>& reads = is_gone_[id] ? was_read : is_read;
      for (int k = 0; k < g_[id].operand_count; ++k) reads[g_.operand_at(g_[id], k)] = true;
    }
  }
  constexpr void remove() {
    list<int> order;
    list<int> number(s_.launch_count, -1);
    int launches = 0;
    for (int u = 0; u < s_.launch_count; ++u) {
      launch left = s_.launches[u];
      left.first = order.size();
      for (int n = 0; n < left.count; ++n) {
        const int id = s_.order[s_.launches[u].first + n];
        if (!is_gone_[id]) order.push_back(id);
      }
      left.count = order.size() - left.first;
      if (left.count == 0) continue;
      number[u] = launches;
      s_.launches[launches++] = left;
    }
    for (int u = 0; u < launches; ++u) {
      int& end = s_.launches[u].region_end;
      if (end >= 0) end = number[end];
    }
    s_.launch_count = launches;
    s_.ordered_count = order.size();
    for (int n = 0; n < order.size(); ++n) s_.order[n] = order[n];
    for (int id = 0; id < g_.size; ++id) {
      if (is_gone_[id]) s_.stored[id] = false;
      int& of = s_.launch_of[id];
      if (of >= 0) of = is_gone_[id] ? -1 : number[of];
    }
  }

  graph_view g_;
  fixed_schedule<Instructions>& s_;
  list<read> reads_;
  /// Of a value: no launch computes it any more.
  list<bool> is_gone_;
};

/// The same schedule, in which the products of row regions scale what they read.
/// @pre the schedule has its row regions
template <int Instructions>
[[nodiscard]] constexpr fixed_schedule<Instructions> scale_where_read(graph_view g, fixed_schedule<Instructions> s) {
  operand_scaler(g, s).run();
  return s;
}

}  // namespace espalier::detail
