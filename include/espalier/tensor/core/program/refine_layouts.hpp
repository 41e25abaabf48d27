// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/list.hpp>
#include <espalier/tensor/core/graph/factor_axes.hpp>
#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/partition/machine.hpp>
#include <espalier/tensor/core/partition/plan.hpp>
#include <espalier/tensor/core/partition/reshard.hpp>
#include <espalier/tensor/core/program/complete.hpp>

#include <bit>
#include <cstdint>

namespace espalier::detail {

/// The largest number of values whose layouts are chosen together.
inline constexpr int most_refined_values = 24;
/// The cost of cutting a part out of a buffer, in bytes that a device could send meanwhile for each byte of the part.
inline constexpr double slice_cost = 1.0 / 64;
/// The number of moves that are priced for one choice, and in one constant evaluation, at most: clang's limit on steps
/// is some ten thousand. A look at whether an op is disputed counts as a few.
inline constexpr int most_moves_priced = 2000;
inline constexpr int looks_in_evaluation = 1024;

/// Where the refinement of a graph is, between two constant evaluations.
struct refinement_progress {
  int round = 0;
  /// The next instruction, and the next set of the axes that are disputed there.
  int id = 0;
  int set = 0;
  bool changed = false;
  bool done = false;
};

/// Whether the tensors of an op may be split in other ways than completion has chosen.
[[nodiscard]] constexpr bool has_choice(graph_view g, const sharding* of, int id) {
  const instruction& i = g[id];
  if (i.op->factors == nullptr || structure_of(i) != structure::none || requests_of(i) != layout_request::none)
    return false;
  if (i.op->facts.looks || is_further_result(i)) return false;
  if (i.op->lower != nullptr && !i.op->facts.regroups_dimensions) return false;
  if (id + 1 < g.size && is_further_result(g[id + 1])) return false;
  if (of[id].unreduced != 0) return false;
  for (int k = 0; k < i.operand_count; ++k) {
    if (of[g.operand_at(i, k)].unreduced != 0) return false;
  }
  return true;
}

/// The axes that one dimension gives to its factors, as completion carries them.
[[nodiscard]] constexpr factor_axes axes_of_factors(const mesh_shape& mesh, const factor_rule& rule,
                                                    factor_list factors, axis_list axes) {
  factor_axes said;
  if (splits_major_unevenly(mesh, rule, factors, axes)) {
    said.set(factors[0], axes);
  } else {
    read_dimension(mesh, rule, factors, axes, said);
  }
  return said;
}

/// The axes that the tensors of an op have on its factors, heard one tensor after another.
class factor_dispute {
 public:
  axis_mask disputed = 0;

  constexpr factor_dispute(const mesh_shape& mesh, const factor_rule& rule) : mesh_(mesh), rule_(rule) {}

  constexpr void hear(const sharding& s, const factor_list* dims) {
    for (int d = 0; d < s.rank; ++d) {
      const std::uint32_t factors = dims[d].code();
      const std::uint32_t axes = s.dim[d].code();
      if (factors != 0 && factors < 16U) {
        hear(static_cast<int>(factors) - 1, axes);
      } else if (factors == 0) {
        disputed |= mask_of(axes);
      } else {
        const factor_axes said = axes_of_factors(mesh_, rule_, dims[d], s.dim[d]);
        for (int n = 0; n < dims[d].size(); ++n) hear(dims[d][n], said[dims[d][n]].code());
      }
    }
  }

 private:
  constexpr void hear(int f, std::uint32_t axes) {
    const bool is_first = (heard_ >> static_cast<unsigned>(f) & 1U) == 0;
    if (!is_first && known_[f] == axes) return;
    const axis_mask mask = mask_of(axes);
    if (is_first) {
      heard_ |= 1U << static_cast<unsigned>(f);
      known_[f] = axes;
      disputed |= rule_.kind[f] == factor_kind::blocked ? mask : used_ & mask;
      used_ |= mask;
    } else {
      const axis_mask differs = mask_of(known_[f]) ^ mask;
      disputed |= differs == 0 ? mask : differs;
    }
  }

  const mesh_shape& mesh_;
  const factor_rule& rule_;
  /// The axes of the factors that some tensor has named, which may be none.
  std::uint32_t known_[max_factors]{};
  std::uint32_t heard_ = 0;
  axis_mask used_ = 0;
};

/// The axes about whose place the tensors of an op disagree, so that one of them moves.
[[nodiscard]] constexpr axis_mask disputed_axes(const mesh_shape& mesh, graph_view g, const factor_rule& rule,
                                                const sharding* of, int id) {
  const instruction& i = g[id];
  axis_mask disputed = 0;
  if (requests_of(i) != layout_request::none || structure_of(i) == structure::result) {
    const sharding& before = of[i.operand[0]];
    if (before.unreduced != 0 || of[id].unreduced != 0) return 0;
    for (int d = 0; d < before.rank; ++d) {
      if (before.dim[d].code() == of[id].dim[d].code()) continue;
      const axis_mask differs = before.dim[d].mask() ^ of[id].dim[d].mask();
      disputed |= differs == 0 ? before.dim[d].mask() : differs;
    }
  } else if (has_choice(g, of, id)) {
    factor_dispute all(mesh, rule);
    all.hear(of[id], rule.result);
    for (int k = 0; k < i.operand_count; ++k) all.hear(of[g.operand_at(i, k)], rule.dims_of(k));
    disputed = all.disputed;
  }
  return disputed == 0 ? 0 : disputed & ~axes_of_one(mesh);
}

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
class layout_refinement {
 public:
  constexpr layout_refinement(const mesh_shape& mesh, graph_view g, const factor_rule* rules,
                              const completion_view& state)
      : mesh_(mesh), g_(g), rules_(rules), state_(state), of_(state.of) {}

  /// Goes on until everything is refined, or about `most` moves are priced.
  constexpr refinement_progress run(refinement_progress at, int most) {
    int looks = 0;
    while (!at.done && priced_ < most && looks < looks_in_evaluation) {
      ++looks;
      if (at.id == g_.size) {
        at.done = !at.changed || at.round == 1;
        at = {at.round + 1, 0, 0, false, at.done};
        continue;
      }
      const axis_mask disputed = disputed_axes(mesh_, g_, rules_[at.id], of_, at.id);
      const axis_list axes = next_axes(list_of(disputed), at);
      if (!axes.empty()) {
        looks += 8;
        at.changed = refine(at.id, axes) || at.changed;
      }
    }
    return at;
  }

 private:
  /// The layout of a value without its flags: a list of axes for each dimension. A constant evaluation copies it in a
  /// step.
  struct placing {
    std::uint32_t dim[max_rank]{};
  };
  /// A layout that a value may have, and the cost of having it so.
  struct option {
    placing at;
    double cost = 0;
  };
  /// A value whose layout is being chosen. Its options begin at `first` in `options_`.
  struct candidate {
    int value = 0;
    int first = 0;
    int count = 0;
    int readers = 1;
    bool is_chosen = true;
  };

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

  [[nodiscard]] constexpr bool is_searchable(int id) const { return has_choice(g_, of_, id); }
  [[nodiscard]] constexpr bool is_free(int value) const {
    if (g_[value].annotation >= 0 || !is_searchable(value)) return false;
    if ((of_[value].open & sharding::decided_early) != 0) return false;
    for (int at = state_.first[value]; at >= 0; at = state_.next[at]) {
      const instruction& reader = g_[state_.reader[at]];
      const structure part = structure_of(reader);
      if (part != structure::none && part != structure::result) return false;
      // The layout that another value is to have.
      if (reader.operand_count == 2 && reader.operand[1] == value && propagation_step::copies_layout(reader))
        return false;
    }
    return true;
  }
  /// A result whose layout nobody asked for: it is the one of its value.
  [[nodiscard]] constexpr bool follows(int id) const {
    return structure_of(g_[id]) == structure::result && g_[id].annotation < 0 && g_[id].operand_count == 1;
  }

  /// Chooses the place of these axes on the values around an op; true if a layout has changed.
  constexpr bool refine(int id, axis_list axes) {
    axes_ = axes;
    mask_ = axes.mask();
    gather(id);
    if (values_.empty()) return false;
    options_.clear();
    list<sharding> before;
    for (const candidate& c : values_) before.push_back(of_[c.value]);
    const double cost_before = total();
    for (candidate& c : values_) list_options(c);
    for (candidate& c : values_) c.is_chosen = false;
    for (const candidate& c : values_) price_options(c);
    for (int n = values_.size() - 1; n >= 0; --n) choose(n);
    if (total() < cost_before - 0.5) return note(before);
    for (int n = 0; n < values_.size(); ++n) of_[values_[n].value] = before[n];
    return false;
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

  /// Lists the free values around an op, as many as can be searched: the nearest; then in the order of the program.
  constexpr void gather(int id) {
    values_.clear();
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
        if (is_searchable(state_.reader[at])) add_operands(state_.reader[at]);
      }
    }
    for (int n = 1; n < values_.size(); ++n) {
      const candidate moved = values_[n];
      int at = n;
      for (; at > 0 && values_[at - 1].value > moved.value; --at) values_[at] = values_[at - 1];
      values_[at] = moved;
    }
  }
  constexpr void add(int value) {
    if (values_.size() == most_refined_values || expected_ > most_moves_priced || index_of(value) >= 0 ||
        !is_free(value))
      return;
    candidate added;
    added.value = value;
    int readers = 0;
    int split_readers = 0;
    for (int at = state_.first[value]; at >= 0; at = state_.next[at]) {
      ++readers;
      const int reader = state_.reader[at];
      split_readers += is_searchable(reader) ? power(1 + rules_[reader].count) * (1 + g_[reader].operand_count) : 1;
    }
    added.readers = larger_of(1, readers);
    const int options = power(1 + g_[value].shape.rank);
    const int own = power(1 + rules_[value].count) * (1 + g_[value].operand_count) * options;
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
    if (structure_of(g_[of]) != structure::none && structure_of(g_[of]) != structure::result) return;
    for (int k = 0; k < g_[of].operand_count; ++k) add(g_.operand_at(g_[of], k));
  }

  /// All layouts of a value that differ from the present one in the place of `axes_`.
  constexpr void list_options(candidate& c) {
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
    const std::uint32_t axis = static_cast<std::uint32_t>(axes_[n]) + 1U;
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

  [[nodiscard]] constexpr int index_of(int value) const {
    for (int n = 0; n < values_.size(); ++n) {
      if (values_[n].value == value) return n;
    }
    return -1;
  }
  [[nodiscard]] constexpr placing placing_of(int value) const {
    const sharding& s = of_[value];
    placing result;
    for (int d = 0; d < s.rank; ++d) result.dim[d] = s.dim[d].code();
    return result;
  }

  /// The cost of each option of a value, which all readers share.
  constexpr void price_options(const candidate& c) {
    list<double> costs(c.count, -1);
    price(c.value, &options_[c.first], c.count, costs.data());
    for (int n = 0; n < c.count; ++n) options_[c.first + n].cost = costs[n] / c.readers;
  }
  /// Fixes the layout that is cheapest for value n and the ops that read it, whose results have theirs already.
  constexpr void choose(int n) {
    const candidate c = values_[n];
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
    sharding& chosen = of_[c.value];
    for (int d = 0; d < chosen.rank; ++d) chosen.dim[d] = axis_list::from_code(options_[c.first + best].at.dim[d]);
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
  /// The cost of an op whose result has a layout.
  constexpr double price_of(int id) {
    const option result{placing_of(id), 0};
    double cost = -1;
    price(id, &result, 1, &cost);
    return cost;
  }
  /// The cost of all ops that the gathered values concern, with the layouts that are chosen.
  [[nodiscard]] constexpr double total() {
    double cost = 0;
    list<int> added;
    const auto add_once = [&](int id) {
      for (const int known : added) {
        if (known == id) return;
      }
      added.push_back(id);
      cost += price_of(id);
    };
    for (const candidate& c : values_) {
      add_once(c.value);
      for (int at = state_.first[c.value]; at >= 0; at = state_.next[at]) add_once(state_.reader[at]);
    }
    return cost;
  }

  /// The least cost of an op for each of some layouts of its result.
  constexpr void price(int id, const option* results, int count, double* costs) {
    const instruction& i = g_[id];
    if (!is_searchable(id)) return price_fixed(id, count, costs);
    const factor_rule& rule = rules_[id];
    factor_axes base;
    axis_mask used = mask_;
    read_others(rule, results[0].at, i.shape.rank, rule.result, base, used);
    for (int k = 0; k < i.operand_count; ++k) {
      const int value = g_.operand_at(i, k);
      read_others(rule, placing_of(value), g_[value].shape.rank, rule.dims_of(k), base, used);
    }
    for (int n = 0; n < count; ++n) costs[n] = -1;
    split_further(id, rule, base, used & ~mask_, 0, results, count, costs);
  }
  /// Gives factors the axes, other than those that are being placed, that a tensor has for them.
  constexpr void read_others(const factor_rule& rule, const placing& at, int rank, const factor_list* dims,
                             factor_axes& base, axis_mask& used) const {
    for (int d = 0; d < rank; ++d) {
      if (at.dim[d] == 0 || dims[d].empty()) continue;
      const axis_list rest = axis_list::from_code(at.dim[d]).without(mask_);
      if (rest.empty()) continue;
      const factor_axes said = axes_of_factors(mesh_, rule, dims[d], rest);
      for (int n = 0; n < dims[d].size(); ++n) {
        const int f = dims[d][n];
        if (!base[f].empty() || rule.kind[f] == factor_kind::blocked) continue;
        const axis_list fresh = said[f].without(used);
        base.set(f, fresh);
        used |= fresh.mask();
      }
    }
  }
  constexpr void split_further(int id, const factor_rule& rule, const factor_axes& split, axis_mask used, int n,
                               const option* results, int count, double* costs) {
    if (n == axes_.size()) return price_split(id, rule, split, used, results, count, costs);
    split_further(id, rule, split, used, n + 1, results, count, costs);
    const int axis = axes_[n];
    for (int f = 0; f < rule.count; ++f) {
      if (rule.kind[f] == factor_kind::blocked) continue;
      const axis_list others = split[f];
      if (rule.size[f] <= (others.empty() ? 1 : mesh_.parts(others))) continue;
      factor_axes with = split;
      with.set(f, others.with(axis));
      split_further(id, rule, with, used | bit_of(axis), n + 1, results, count, costs);
      if (others.empty()) continue;
      with.set(f, axis_list(axis).followed_by(others));
      split_further(id, rule, with, used | bit_of(axis), n + 1, results, count, costs);
    }
  }
  constexpr void price_split(int id, const factor_rule& rule, const factor_axes& split, axis_mask used,
                             const option* results, int count, double* costs) {
    const instruction& i = g_[id];
    double most = 0;
    for (int n = 0; n < count && most >= 0; ++n) most = costs[n] < 0 ? -1 : larger_of(most, costs[n]);
    const double work = static_cast<double>(i.op->flops == nullptr ? 0 : i.op->flops(g_.view(id)));
    const double times = static_cast<double>(repetitions(g_, id));
    double cost = times * work / static_cast<double>(mesh_.parts(used)) / operations_per_byte;
    for (int k = 0; k < i.operand_count; ++k) {
      placing needed;
      const extents& shape = g_.operand(id, k).shape;
      if (!place(rule, rule.dims_of(k), shape.rank, split, needed)) return;
      const bool has_windows = i.op->windows != nullptr;
      cost += price_of_operand(g_.operand_at(i, k), needed, has_windows ? read_through_windows(id, k, rule) : shape);
      if (has_windows) cost += times * cost_of_windows(id, k, rule, needed);
      if (most >= 0 && cost >= most) return;
    }
    placing made;
    if (!place(rule, rule.result, i.shape.rank, split, made)) return;
    axis_mask partial = 0;
    for (int f = 0; f < rule.count; ++f) {
      if (rule.kind[f] == factor_kind::reduce) partial |= split[f].mask();
    }
    const std::int64_t element = size_of(partial != 0 && i.op->facts.adds_up ? facts_of(i.type).accumulate : i.type);
    for (int n = 0; n < count; ++n) {
      const double whole = cost + times * move_cost(i.shape, element, made, partial, results[n].at);
      if (costs[n] < 0 || whole < costs[n]) costs[n] = whole;
    }
  }
  /// Places a tensor of an op that is split like this; false if it cannot be.
  [[nodiscard]] constexpr bool place(const factor_rule& rule, const factor_list* dims, int rank,
                                     const factor_axes& split, placing& result) const {
    for (int d = 0; d < rank; ++d) {
      const std::uint32_t factors = dims[d].code();
      if (factors == 0) continue;
      const axis_list major = split[static_cast<int>(factors & 15U) - 1];
      if (factors < 16U) {
        result.dim[d] = major.code();
        continue;
      }
      const bool is_as_major = splits_major_unevenly(mesh_, rule, dims[d], major);
      const axis_list axes = is_as_major ? major : write_dimension(mesh_, rule, dims[d], split);
      result.dim[d] = axes.code();
      const factor_axes said = axes_of_factors(mesh_, rule, dims[d], axes);
      for (int n = 0; n < dims[d].size(); ++n) {
        if (!(said[dims[d][n]] == split[dims[d][n]])) return false;
      }
    }
    return true;
  }
  /// The extents of what an op reads of an operand: of a slice, as many elements as it takes.
  [[nodiscard]] constexpr extents read_through_windows(int id, int k, const factor_rule& rule) const {
    window of_dimension[max_rank];
    const std::uint32_t dims = g_[id].op->windows(g_.view(id), k, &of_dimension[0]);
    extents result = g_.operand(id, k).shape;
    for (int d = 0; d < result.rank; ++d) {
      if ((dims >> static_cast<unsigned>(d) & 1U) != 0)
        result[d] = smaller_of(result[d], rule.size[rule.dims_of(k)[d][0]]);
    }
    return result;
  }
  constexpr double price_of_operand(int value, const placing& needed) {
    return price_of_operand(value, needed, g_[value].shape);
  }
  /// The least cost to have a value laid out like this, where an op needs it; the op reads elements of these extents.
  constexpr double price_of_operand(int value, const placing& needed, const extents& read) {
    const instruction& i = g_[value];
    const double times = static_cast<double>(repetitions(g_, value));
    if (value == pinned_) return times * move_cost(read, size_of(i.type), pinned_at_, 0, needed);
    const int n = index_of(value);
    if (n < 0 || values_[n].is_chosen) {
      const axis_mask partial = of_[value].unreduced;
      return partial != 0 ? 0 : times * move_cost(read, size_of(i.type), placing_of(value), 0, needed);
    }
    double least = -1;
    for (int o = 0; o < values_[n].count; ++o) {
      const option& one = options_[values_[n].first + o];
      if (least >= 0 && one.cost >= least) continue;
      const double cost = one.cost + times * move_cost(read, size_of(i.type), one.at, 0, needed);
      if (least < 0 || cost < least) least = cost;
    }
    return least;
  }
  /// About what windows bring from other devices: as many elements along a dimension as it differs in from the
  /// result's.
  [[nodiscard]] constexpr double cost_of_windows(int id, int k, const factor_rule& rule, const placing& needed) const {
    window of_dimension[max_rank];
    const std::uint32_t dims = g_[id].op->windows(g_.view(id), k, &of_dimension[0]);
    const extents& shape = g_.operand(id, k).shape;
    double cost = 0;
    for (int d = 0; d < shape.rank; ++d) {
      if ((dims >> static_cast<unsigned>(d) & 1U) == 0 || needed.dim[d] == 0) continue;
      auto bytes = static_cast<double>(size_of(g_.operand(id, k).type));
      for (int other = 0; other < shape.rank; ++other) {
        const std::int64_t local = ceil_div(shape.size[other], shards_of(mesh_, needed.dim[other]));
        const std::int64_t shift = shape.size[d] - rule.size[rule.dims_of(k)[d][0]];
        bytes *= static_cast<double>(other == d ? smaller_of(local, larger_of(shift, -shift)) : local);
      }
      cost += bytes + static_cast<double>(collective_latency);
    }
    return cost;
  }
  /// The cost of an op whose split follows from the layout that its result has.
  constexpr void price_fixed(int id, int count, double* costs) {
    const instruction& i = g_[id];
    double cost = 0;
    if (requests_of(i) != layout_request::none || structure_of(i) == structure::result) {
      if (!follows(id) && of_[id].unreduced == 0) cost = price_of_operand(i.operand[0], placing_of(id));
    } else if (structure_of(i) == structure::none && !i.op->facts.looks && !is_further_result(i) &&
               i.op->factors != nullptr) {
      const factor_rule& rule = rules_[id];
      factor_axes split;
      for (int d = 0; d < of_[id].rank; ++d) {
        if (rule.result[d].empty()) continue;
        const factor_axes said = axes_of_factors(mesh_, rule, rule.result[d], of_[id].dim[d]);
        for (int n = 0; n < rule.result[d].size(); ++n) split.set(rule.result[d][n], said[rule.result[d][n]]);
      }
      for (int k = 0; k < i.operand_count; ++k) {
        placing needed;
        if (place(rule, rule.dims_of(k), g_.operand(id, k).shape.rank, split, needed))
          cost += price_of_operand(g_.operand_at(i, k), needed);
      }
    }
    for (int n = 0; n < count; ++n) costs[n] = cost;
  }

  /// Estimates the bytes that a device has to send, with the start of a collective. Sums start none: they mostly travel
  /// with others that are ready at the same time.
  [[nodiscard]] constexpr double move_cost(const extents& shape, std::int64_t element, const placing& from,
                                           axis_mask partial, const placing& to) {
    ++priced_;
    bool same = partial == 0;
    for (int d = 0; same && d < shape.rank; ++d) same = from.dim[d] == to.dim[d];
    if (same) return 0;
    double held = static_cast<double>(element);
    double wanted = held;
    double common = held;
    axis_mask gained = 0;
    axis_mask tiled = 0;
    bool loses = false;
    for (int d = 0; d < shape.rank; ++d) {
      const std::uint32_t f = from.dim[d];
      const std::uint32_t t = to.dim[d];
      const std::int64_t extent = shape.size[d];
      const std::int64_t shards = f == 0 ? 1 : shards_of(mesh_, f);
      const auto before = static_cast<double>(ceil_div(extent, shards));
      held *= before;
      tiled |= mask_of(f);
      if (t == f) {
        wanted *= before;
        common *= before;
        continue;
      }
      const auto after = static_cast<double>(t == 0 ? extent : ceil_div(extent, shards_of(mesh_, t)));
      wanted *= after;
      // Of fewer elements than shards, some device has none.
      common *= !nested(f, t) || extent < shards ? 0 : smaller_of(after, before);
      gained |= mask_of(t) & ~mask_of(f);
      loses = loses || !nested(f, t) || f > t;
    }
    double cost = 0;
    if (partial != 0) {
      const axis_mask scattered = gained & partial;
      double local = held / static_cast<double>(mesh_.parts(gained & ~partial & ~tiled));
      if (scattered != 0) {
        const auto n = static_cast<double>(mesh_.parts(scattered));
        cost += local * (n - 1) / n;
        local /= n;
      }
      if (const axis_mask rest = partial & ~scattered; rest != 0) {
        const auto n = static_cast<double>(mesh_.parts(rest));
        cost += 2 * local * (n - 1) / n;
      }
      if (!loses) return cost;
    }
    const double lacking = wanted - common;
    if (lacking > 0) return cost + lacking + static_cast<double>(collective_latency);
    return cost + slice_cost * wanted + 1;
  }

  const mesh_shape& mesh_;
  graph_view g_;
  const factor_rule* rules_;
  completion_view state_;
  sharding* of_;
  axis_list axes_;
  axis_mask mask_ = 0;
  list<candidate> values_;
  list<option> options_;
  /// The number of moves that a choice for `values_` is going to price, and of those priced so far.
  int expected_ = 0;
  int priced_ = 0;
  /// A value that has a layout for now.
  int pinned_ = -1;
  placing pinned_at_;
};

/// The first instruction from `first` up to `last` whose tensors have to move, or -1.
[[nodiscard]] constexpr int first_dispute(const mesh_shape& mesh, graph_view g, const factor_rule* rules,
                                          const sharding* of, int first, int last) {
  for (int id = first; id < last && id < g.size; ++id) {
    if (disputed_axes(mesh, g, rules[id], of, id) != 0) return id;
  }
  return -1;
}

}  // namespace espalier::detail

namespace espalier {

/// Completes a graph and moves changes of layout to where they cost least; for graphs made at run time.
constexpr void lay_out(const mesh_shape& mesh, graph_view g, const factor_rule* rules, sharding* of, int* cause) {
  complete(mesh, g, rules, of, cause);
  const int operands = count_operands(g);
  detail::list<int> first(g.size);
  detail::list<int> reader(operands);
  detail::list<int> next(operands);
  list_readers(g, first.data(), reader.data(), next.data());
  completion_view state{of, nullptr, nullptr, nullptr, first.data(), reader.data(), next.data()};
  state.cause = cause;
  detail::refinement_progress at;
  while (!at.done) at = detail::layout_refinement(mesh, g, rules, state).run(at, detail::most_moves_priced);
}

}  // namespace espalier
