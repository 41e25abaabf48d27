// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/list.hpp>
#include <espalier/tensor/core/program/complete.hpp>
#include <espalier/tensor/core/program/layout_disputes.hpp>
#include <espalier/tensor/core/program/layout_prices.hpp>

#include <cstdint>

namespace espalier::detail {

/// The largest number of values whose layouts are chosen together.
inline constexpr int most_refined_values = 24;
/// The largest number of carries around an op whose layouts are tried.
inline constexpr int most_carries_tried = 3;
/// The number of moves that are priced for one choice at most. A constant evaluation ends with the choice after which
/// it has priced `moves_in_evaluation`: clang's limit on steps is some three thousand moves of an op of many factors. A
/// look at whether an op is disputed counts as a few.
inline constexpr int most_moves_priced = 1900;
inline constexpr int moves_in_evaluation = 500;
inline constexpr int looks_in_evaluation = 1024;
/// The number of moves that are priced for one program, after which layouts stay as they are.
inline constexpr int most_moves_of_program = 32'000;

/// Where the refinement of a graph is, between two constant evaluations.
struct refinement_progress {
  int round = 0;
  /// The next instruction, and the next set of the axes that are disputed there.
  int id = 0;
  int set = 0;
  /// The number of the layout of a carry that is tried next, counted from 1; 0 if none is.
  int trial = 0;
  axis_mask tried_axes = 0;
  /// The moves that were priced so far.
  int priced = 0;
  bool changed = false;
  bool done = false;
};

/// Moves a change of layout to where it costs least.
///
/// Completion passes layouts on as far as they go, so that two of them may meet at an op where tensors are large. This
/// pass looks at an op whose tensors would have to move, and at the values around it whose layouts no annotation fixes.
/// For the mesh axes that the tensors disagree about it tries all places on all of these values together, by dynamic
/// programming from operands to results: the cost of a value in a layout is the least, over the ways to split its op,
/// of what its operands cost where the op needs them. Then it goes back from results to operands and fixes the layouts
/// that were cheapest. (A value that several ops read counts to each of them in part, so that the choice is exact only
/// without such values; it is kept only where it costs less than before.)
///
/// `expand_dims<0>(a) - expand_dims<1>(a)`, a: f32[4096@x, 3]: completion splits the two broadcasts over x along
/// different dimensions, and one of them, 4096 x 4096 x 3, would move. Here one broadcast becomes whole, and a moves.
class layout_refinement : layout_prices {
  /// The number of linear ops after a sum through which it is looked for.
  static constexpr int most_depth = 8;
  /// The number of ops that are looked at, and that are taken, for a move that an op may share.
  static constexpr int most_others = 8;

 public:
  constexpr layout_refinement(const mesh_shape& mesh, graph_view g, const factor_rule* rules,
                              const completion_view& state)
      : layout_prices(mesh, g, rules, state) {}

  /// Goes on until everything is refined whose tensors have `least_bytes`, or about `most` moves are priced.
  constexpr refinement_progress run(refinement_progress at, int most, std::int64_t least_bytes) {
    int looks = 0;
    while (!at.done && priced_ < most && looks < looks_in_evaluation) {
      ++looks;
      if (at.id == g_.size) {
        at.done = !at.changed || at.round == 1;
        at = {at.round + 1, 0, 0, 0, 0, at.priced, false, at.done};
        continue;
      }
      if (at.trial > 0) {
        looks += 8;
        try_carried(at);
        continue;
      }
      const bool is_large = has_bytes(g_, at.id, least_bytes);
      const axis_mask disputed = is_large ? disputed_axes(mesh_, g_, rules_[at.id], of_, at.id) : 0;
      const axis_mask idle = is_large ? idle_axes(mesh_, g_, of_, at.id) : 0;
      const axis_list axes = next_axes(list_of(disputed | idle), at);
      if (!axes.empty()) {
        looks += 8;
        const bool is_asked = (axes.mask() & disputed) != 0;
        carries_.clear();
        refused_.clear();
        axes_ = axes;
        mask_ = axes.mask();
        values_.clear();
        gather(at.id);
        at.changed = refine(is_asked ? 0.5 : unasked_collective / 2, nullptr) || at.changed;
        const bool stays = is_asked && (disputed_axes(mesh_, g_, rules_[at.id], of_, at.id) & mask_) != 0;
        if (stays && !carries_.empty()) at.trial = 1;
        at.tried_axes = mask_;
      }
    }
    at.priced += priced_;
    at.done = at.done || at.priced > most_moves_of_program;
    return at;
  }

 private:
  /// One axis after another, then two at a time, all pairs; none after the last.
  [[nodiscard]] static constexpr axis_list next_axes(axis_list all, refinement_progress& at) {
    const int n = all.size();
    int set = at.set++;
    if (set < n) return axis_list(all[set]);
    set -= n;
    for (int a = 0; a < n; ++a) {
      if (set < n - 1 - a) return axis_list(all[a]).with(all[a + 1 + set]);
      set -= n - 1 - a;
    }
    at.set = 0;
    ++at.id;
    return {};
  }

  [[nodiscard]] constexpr bool is_free(int value) const {
    return g_[value].annotation < 0 && is_searchable(value) && is_open(value);
  }
  /// Whether all that reads a value takes it in any layout, and nothing has decided about it.
  [[nodiscard]] constexpr bool is_open(int value) const {
    if ((of_[value].open & sharding::decided_early) != 0) return false;
    for (int at = state_.first[value]; at >= 0; at = state_.next[at]) {
      const int id = state_.reader[at];
      const instruction& reader = g_[id];
      const structure part = structure_of(reader);
      if (part != structure::none && operand_moved_by(reader) < 0) return false;
      // It is only added to: its terms may stay partial in the loop, which costs less than is known here.
      if (part == structure::region_yield && yielded_by(reader) == value && is_added_to(parameter_of(reader)))
        return false;
      // The layout that another value is to have.
      if (reader.operand_count == 2 && reader.operand[1] == value && propagation_step::copies_layout(reader))
        return false;
    }
    return true;
  }
  /// The instruction that passes on the next value of a carry, or that returns what the last iteration passed on; or
  /// -1.
  [[nodiscard]] constexpr int read_as(structure part, int value) const {
    for (int at = state_.first[value]; at >= 0; at = state_.next[at]) {
      const instruction& reader = g_[state_.reader[at]];
      if (structure_of(reader) == part && reader.operand[0] == value) return state_.reader[at];
    }
    return -1;
  }
  /// Whether a loop only adds to a carry, element by element, itself or in loops inside it, and some term is a partial.
  [[nodiscard]] constexpr bool is_added_to(int carry) const {
    bool has_partials = false;
    int value = carry;
    while (value >= 0) {
      int reader = -1;
      for (int at = state_.first[value]; at >= 0; at = state_.next[at]) {
        const int id = state_.reader[at];
        if (structure_of(g_[id]) == structure::region_yield && yielded_by(g_[id]) != value) continue;
        if (reader >= 0) return false;
        reader = id;
      }
      if (reader < 0) return false;
      const instruction& i = g_[reader];
      const structure part = structure_of(i);
      if (part == structure::region_yield) return has_partials && parameter_of(i) == carry;
      if (part == structure::region_parameter) {
        if (!is_added_to(reader)) return false;
        const int next = read_as(structure::region_yield, reader);
        value = next < 0 ? -1 : read_as(structure::region_result, next);
        has_partials = true;
        continue;
      }
      if (part != structure::none || !keeps_terms(reader) || i.op->spread != propagation::elementwise) return false;
      for (int k = 0; k < i.operand_count; ++k)
        has_partials = has_partials || (g_.operand_at(i, k) != value && may_be_partial(g_.operand_at(i, k), 0));
      value = reader;
    }
    return false;
  }
  [[nodiscard]] constexpr bool keeps_terms(int id) const {
    return g_[id].op->linear != linearity::none || requests_of(g_[id]) != layout_request::none;
  }
  /// Whether a value is a sum over something that is split now, or linear in one; a loop's result is taken for one.
  [[nodiscard]] constexpr bool may_be_partial(int value, int depth) const {
    const instruction& i = g_[value];
    if (reads_region(structure_of(i))) return true;
    if (structure_of(i) != structure::none) return false;
    if (depth == most_depth || of_[value].unreduced != 0) return true;
    if (i.operand_count == 0 || i.op->factors == nullptr) return false;
    if (axes_summed_over(g_, rules_[value], of_, value) != 0) return true;
    bool result = false;
    for (int k = 0; k < i.operand_count && keeps_terms(value); ++k)
      result = result || may_be_partial(g_.operand_at(i, k), depth + 1);
    return result;
  }

  /// Notes the carry of a loop that a value is, is passed on to, or was, if its layout may be chosen.
  constexpr void note_carry(int value) {
    if (structure_of(g_[value]) == structure::none) return;
    int carry = value;
    if (structure_of(g_[carry]) == structure::region_result) carry = yield_of_result(g_[carry]);
    if (structure_of(g_[carry]) == structure::region_yield) carry = parameter_of(g_[carry]);
    if (structure_of(g_[carry]) != structure::region_parameter || carries_.size() == most_carries_tried) return;
    for (const int known : carries_) {
      if (known == carry) return;
    }
    for (const int known : refused_) {
      if (known == carry) return;
    }
    (is_free_carry(carry) ? carries_ : refused_).push_back(carry);
  }
  [[nodiscard]] constexpr bool is_free_carry(int carry) const {
    if (of_[carry].unreduced != 0 || (!keeps_terms_.empty() && keeps_terms_[carry])) return false;
    const int next = read_as(structure::region_yield, carry);
    if (next < 0 || is_added_to(carry) || !is_open(carry)) return false;
    for (int at = state_.first[next]; at >= 0; at = state_.next[at]) {
      if (structure_of(g_[state_.reader[at]]) == structure::region_result && !is_open(state_.reader[at])) return false;
    }
    return true;
  }
  /// Tries the next layout of the carries around an op: of each alone, then of all together that are like the first.
  /// What they pass from one iteration to the next has to be in one layout at both ends, which no way from operands to
  /// results can choose.
  constexpr void try_carried(refinement_progress& at) {
    axes_ = list_of(at.tried_axes);
    mask_ = at.tried_axes;
    carries_.clear();
    refused_.clear();
    values_.clear();
    gather(at.id);
    int number = at.trial++ - 1;
    for (int n = 0; n <= carries_.size() && !carries_.empty(); ++n) {
      const bool all = n == carries_.size();
      const int carry = carries_[all ? 0 : n];
      layout_candidate options;
      options.value = carry;
      options_.clear();
      list_options(options);
      if (number >= options.count) {
        number -= options.count;
        continue;
      }
      const placing tried = options_[number].at;
      values_.clear();
      for (const int other : carries_) {
        if (other == carry || (all && is_like(other, carry))) add_tried(other);
      }
      bool differs = false;
      axis_mask lost = of_[carry].tiled();
      for (int d = 0; d < of_[carry].rank; ++d) {
        differs = differs || of_[carry].dim[d].code() != tried.dim[d];
        lost &= ~mask_of(tried.dim[d]);
      }
      // With fewer shards each device would keep more of it, all the time.
      if (!differs || lost != 0 || (all && carries_.size() == 1)) return;
      gather(at.id);
      at.changed = refine(0.5, &tried) || at.changed;
      return;
    }
    at.trial = 0;
  }
  [[nodiscard]] constexpr bool is_like(int one, int other) const {
    return g_[one].region == g_[other].region && g_[one].shape == g_[other].shape && of_[one].same_layout(of_[other]);
  }
  /// Adds a carry and what has its layout.
  constexpr void add_tried(int carry) {
    layout_candidate added;
    added.is_tried = true;
    added.value = carry;
    values_.push_back(added);
    added.value = read_as(structure::region_yield, carry);
    values_.push_back(added);
    for (int at = state_.first[added.value]; at >= 0; at = state_.next[at]) {
      if (structure_of(g_[state_.reader[at]]) != structure::region_result) continue;
      layout_candidate result = added;
      result.value = state_.reader[at];
      values_.push_back(result);
    }
  }

  /// Chooses the place of `axes_` on `values_`, if that saves enough, with one layout for all that is tried; true if a
  /// layout has changed.
  constexpr bool refine(double least_saved, const placing* tried) {
    if (values_.empty()) return false;
    const int priced_before = priced_;
    options_.clear();
    list<sharding> before;
    for (const layout_candidate& c : values_) before.push_back(of_[c.value]);
    const double cost_before = total();
    for (layout_candidate& c : values_) {
      if (c.is_tried) {
        lay_out(c.value, *tried);
      } else {
        list_options(c);
        c.is_chosen = false;
      }
    }
    for (const layout_candidate& c : values_) {
      if (!c.is_tried) price_options(c);
    }
    for (int n = values_.size() - 1; n >= 0; --n) {
      if (!values_[n].is_tried) choose(n);
    }
    const bool is_kept = total() < cost_before - least_saved;
    for (int n = 0; n < values_.size() && !is_kept; ++n) of_[values_[n].value] = before[n];
    const bool changed = is_kept && note(before);
    return (tried == nullptr && share_moves(least_saved, priced_before + most_moves_priced)) || changed;
  }

  /// Computes a value in the layout that it is moved to, if what it is computed from is moved to that layout for
  /// another op anyway; true if that saves enough. Of `a + 0.1 * b` and `a * b`, with a and b in two layouts, both need
  /// b where a is: then `0.1 * b` is computed there, and b moves once. (A choice of one value after the other prices
  /// each move for itself, so that a move of b costs as much as one of `0.1 * b`.)
  /// @param most the number of priced moves after which nothing more is tried
  constexpr bool share_moves(double least_saved, int most) {
    const list<int> around = concerned();
    int moving = 0;
    for (const int id : around) moving += moving < 2 && moves_something(id) ? 1 : 0;
    if (moving == 0) return false;
    find_others(around);
    if (moving + others_.size() < 2 || priced_ > most) return false;
    double cost = total_with_shared_moves();
    const list<layout_move> moves = moves_;
    bool changed = false;
    for (const layout_move& one : moves) {
      list<int> chain;
      if (priced_ > most) break;
      if (!follow_chain(one, moves, chain)) continue;
      list<sharding> before;
      for (const layout_candidate& c : values_) before.push_back(of_[c.value]);
      for (const int value : chain) lay_out(value, one.at);
      const double shared = total_with_shared_moves();
      // A start is not counted as saved: small moves travel together.
      const double start = static_cast<double>(repetitions(g_, one.value)) * starting_cost;
      if (shared + start < cost - least_saved) {
        cost = shared;
        changed = note(before) || changed;
      } else {
        for (int n = 0; n < values_.size(); ++n) of_[values_[n].value] = before[n];
      }
    }
    return changed;
  }
  [[nodiscard]] constexpr bool moves_something(int id) const {
    return (disputed_axes(mesh_, g_, rules_[id], of_, id) & mask_) != 0;
  }
  /// Finds other ops that move what the gathered values are computed from, among the first that read it.
  constexpr void find_others(const list<int>& around) {
    others_.clear();
    for (const layout_candidate& c : values_) {
      for (int k = 0; k < g_[c.value].operand_count; ++k) {
        const int operand = g_.operand_at(g_[c.value], k);
        int looks = 0;
        for (int at = state_.first[operand]; at >= 0 && looks < most_others; at = state_.next[at], ++looks) {
          const int reader = state_.reader[at];
          if (others_.size() == most_others || g_[reader].region != g_[c.value].region) continue;
          if (!has(around, reader) && !has(others_, reader) && moves_something(reader)) others_.push_back(reader);
        }
      }
    }
  }
  [[nodiscard]] static constexpr bool has(const list<int>& all, int id) {
    for (const int one : all) {
      if (one == id) return true;
    }
    return false;
  }
  /// Finds the values, from one that is moved, that are computed element by element from each other, and the first of
  /// them from a value that is moved to the same layout. @return whether there is such a value
  constexpr bool follow_chain(const layout_move& from, const list<layout_move>& moves, list<int>& chain) const {
    int value = from.value;
    bool is_found = false;
    while (value >= 0 && chain.size() < most_depth) {
      const int n = index_of(value);
      if (n < 0 || g_[value].op->spread != propagation::elementwise || g_[value].region != from.region) return false;
      if (!chain.empty() && values_[n].readers > 1) return false;
      chain.push_back(value);
      int next = -1;
      for (int k = 0; k < g_[value].operand_count; ++k) {
        const int operand = g_.operand_at(g_[value], k);
        if (!(g_[operand].shape == g_[value].shape)) continue;
        is_found = is_found || is_among(moves, operand, from.region, from.at);
        const int at = index_of(operand);
        if (at < 0) continue;
        if (g_[operand].operand_count > 0) {
          next = operand;
        } else if (values_[at].readers == 1) {
          chain.push_back(operand);  // a constant is wherever it is read
        }
      }
      if (is_found) return true;
      value = next;
    }
    return false;
  }
  constexpr void lay_out(int value, const placing& at) {
    sharding& chosen = of_[value];
    for (int d = 0; d < chosen.rank; ++d) chosen.dim[d] = axis_list::from_code(at.dim[d]);
  }
  /// True if something has changed.
  constexpr bool note(const list<sharding>& before) {
    bool changed = false;
    for (int n = 0; n < values_.size(); ++n) {
      const int value = values_[n].value;
      if (of_[value].same_layout(before[n])) continue;
      changed = true;
      for (int at = state_.first[value]; at >= 0; at = state_.next[at]) {
        const int reader = state_.reader[at];
        if (!follows(reader)) continue;
        const std::uint32_t open = of_[reader].open;
        of_[reader] = of_[value];
        of_[reader].open = open;
      }
      if (state_.cause[value] < 0) state_.cause[value] = g_[value].operand_count > 0 ? g_[value].operand[0] : value;
    }
    return changed;
  }

  /// Lists the free values around an op and around what is tried, as many as can be searched: the nearest; then in the
  /// order of the program. Notes the carries among them.
  constexpr void gather(int id) {
    expected_ = 0;
    add(id);
    add_operands(id);
    // The list grows meanwhile.
    int seen = 0;
    while (seen < values_.size()) {
      const int value = values_[seen++].value;
      add_operands(value);
      for (int at = state_.first[value]; at >= 0; at = state_.next[at]) {
        add(state_.reader[at]);
        if (is_searchable(state_.reader[at]) || structure_of(g_[state_.reader[at]]) == structure::region_yield)
          add_operands(state_.reader[at]);
      }
    }
    for (int n = 1; n < values_.size(); ++n) {
      const layout_candidate moved = values_[n];
      int at = n;
      for (; at > 0 && values_[at - 1].value > moved.value; --at) values_[at] = values_[at - 1];
      values_[at] = moved;
    }
  }
  constexpr void add(int value) {
    note_carry(value);
    if (values_.size() == most_refined_values || expected_ > most_moves_priced || index_of(value) >= 0 ||
        !is_free(value))
      return;
    layout_candidate added;
    added.value = value;
    const int orders = mesh_.ordered == 0 ? 1 : 2;
    int readers = 0;
    int split_readers = 0;
    for (int at = state_.first[value]; at >= 0; at = state_.next[at]) {
      ++readers;
      const int reader = state_.reader[at];
      split_readers +=
          is_searchable(reader) ? power(1 + orders * rules_[reader].count) * (1 + g_[reader].operand_count) : 1;
    }
    added.readers = larger_of(1, readers);
    const int options = power(1 + orders * g_[value].shape.rank);
    const int own = power(1 + orders * rules_[value].count) * (1 + g_[value].operand_count) * options;
    if (!values_.empty() && expected_ + own + options * split_readers > most_moves_priced) {
      expected_ = most_moves_priced + 1;
      return;
    }
    expected_ += own + options * split_readers;
    values_.push_back(added);
  }
  [[nodiscard]] constexpr int power(int of_one) const {
    int result = of_one;
    for (int n = 1; n < axes_.size(); ++n) result *= of_one;
    return result;
  }
  constexpr void add_operands(int of) {
    if (structure_of(g_[of]) != structure::none && operand_moved_by(g_[of]) < 0) return;
    for (int k = 0; k < g_[of].operand_count; ++k) add(g_.operand_at(g_[of], k));
  }

  /// All layouts of a value that differ from the present one in the place of `axes_`.
  constexpr void list_options(layout_candidate& c) {
    c.first = options_.size();
    const sharding& now = of_[c.value];
    placing at;
    for (int d = 0; d < now.rank; ++d) at.dim[d] = now.dim[d].without(mask_).code();
    add_options(g_[c.value].shape, at, 0);
    c.count = options_.size() - c.first;
  }
  constexpr void add_options(const extents& shape, const placing& at, int n) {
    if (n == axes_.size()) {
      options_.push_back({at, 0});
      return;
    }
    add_options(shape, at, n + 1);
    for (int entry = axes_[n]; entry < 2 * max_axes;
         entry += mesh_.ordered == 0 ? 2 * max_axes : to_next_order(entry)) {
      const std::uint32_t axis = static_cast<std::uint32_t>(entry) + 1U;
      for (int d = 0; d < shape.rank; ++d) {
        if (shape.size[d] <= shards_of(mesh_, at.dim[d])) continue;
        placing with = at;
        with.dim[d] = joined(at.dim[d], axis);
        add_options(shape, with, n + 1);
        if (at.dim[d] == 0) continue;
        with.dim[d] = joined(axis, at.dim[d]);
        add_options(shape, with, n + 1);
      }
    }
  }

  /// The cost of each option of a value, which all readers share.
  constexpr void price_options(const layout_candidate& c) {
    list<double> costs(c.count, -1);
    price(c.value, &options_[c.first], c.count, costs.data());
    for (int n = 0; n < c.count; ++n) options_[c.first + n].cost = costs[n] / c.readers;
  }
  /// Fixes the layout that is cheapest for value n and the ops that read it, whose results have theirs already.
  constexpr void choose(int n) {
    const layout_candidate c = values_[n];
    int best = -1;
    double least = 0;
    for (int o = 0; o < c.count; ++o) {
      double cost = options_[c.first + o].cost * c.readers;
      if (best >= 0 && cost >= least) continue;
      pinned_ = c.value;
      pinned_at_ = options_[c.first + o].at;
      cost += price_of_readers(c.value, best < 0 ? -1 : least - cost);
      if (best >= 0 && cost >= least - 1e-6) continue;
      best = o;
      least = cost;
    }
    pinned_ = -1;
    lay_out(c.value, options_[c.first + best].at);
    values_[n].is_chosen = true;
  }
  /// The cost of all ops that read a value; any number above `most` if it is above, unless that is negative.
  constexpr double price_of_readers(int value, double most) {
    double cost = 0;
    for (int at = state_.first[value]; at >= 0 && (most < 0 || cost <= most); at = state_.next[at]) {
      bool again = false;
      for (int other = state_.first[value]; other != at; other = state_.next[other])
        again = again || state_.reader[other] == state_.reader[at];
      if (!again) cost += price_of(state_.reader[at]);
    }
    return cost;
  }
  /// The cost of all ops that the gathered values concern, with the layouts that are chosen.
  [[nodiscard]] constexpr double total() {
    double cost = 0;
    for (const int id : concerned()) cost += price_of(id);
    return cost;
  }
  /// The same, where several ops of a loop that need a value in one layout share the move to it.
  [[nodiscard]] constexpr double total_with_shared_moves() {
    double cost = 0;
    moves_.clear();
    for (const int id : others_) cost += price_with_shared_moves(id);
    for (const int id : concerned()) cost += price_with_shared_moves(id);
    return cost;
  }
  /// The gathered values, and the ops that read them.
  [[nodiscard]] constexpr list<int> concerned() const {
    list<int> all;
    for (const layout_candidate& c : values_) {
      if (!has(all, c.value)) all.push_back(c.value);
      for (int at = state_.first[c.value]; at >= 0; at = state_.next[at]) {
        if (!has(all, state_.reader[at])) all.push_back(state_.reader[at]);
      }
    }
    return all;
  }

  /// The number of moves that a choice for `values_` is going to price.
  int expected_ = 0;
  /// The carries around an op whose layouts may be chosen.
  list<int> carries_;
  list<int> refused_;
  /// Other ops that move what the gathered values are computed from.
  list<int> others_;
};

}  // namespace espalier::detail

namespace espalier {

/// Completes a graph and moves changes of layout to where they cost least; for graphs made at run time. Layouts change
/// around ops that have a tensor of `least_bytes`.
constexpr void lay_out(const mesh_shape& mesh, graph_view g, const factor_rule* rules, sharding* of, int* cause,
                       std::int64_t least_bytes = detail::least_refined_bytes) {
  complete(mesh, g, rules, of, cause);
  const int operands = count_operands(g);
  detail::list<int> first(g.size);
  detail::list<int> reader(operands);
  detail::list<int> next(operands);
  list_readers(g, first.data(), reader.data(), next.data());
  completion_view state{of, nullptr, nullptr, nullptr, first.data(), reader.data(), next.data()};
  state.cause = cause;
  detail::refinement_progress at;
  while (!at.done)
    at = detail::layout_refinement(mesh, g, rules, state).run(at, detail::moves_in_evaluation, least_bytes);
}

}  // namespace espalier
