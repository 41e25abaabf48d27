// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/list.hpp>
#include <espalier/tensor/core/partition/plan.hpp>
#include <espalier/tensor/core/program/layout_disputes.hpp>

#include <cstdint>

namespace espalier::detail {

/// The cost of cutting a part out of a buffer, in bytes that a device could send meanwhile for each byte of the part.
inline constexpr double slice_cost = 1.0 / 64;

/// The layout of a value without its flags: a list of axes for each dimension. A constant evaluation copies it in a
/// step.
struct placing {
  std::uint32_t dim[max_rank]{};
};
/// A layout that a value may have, and the cost of having it so.
struct layout_option {
  placing at;
  double cost = 0;
};
/// A value whose layout is being chosen. Its options begin at `first` in the list of all options.
struct layout_candidate {
  int value = 0;
  int first = 0;
  int count = 0;
  int readers = 1;
  bool is_chosen = true;
  /// It has a layout that is tried: it is a carry of a loop, or what has the carry's layout.
  bool is_tried = false;
};

/// A value that an op of a loop (-1: outside) moves to another layout.
struct layout_move {
  int value = 0;
  int region = -1;
  placing at;
};

/// Estimates the bytes that a device has to send, with the start of a collective. Sums start none: they mostly travel
/// with others that are ready at the same time.
[[nodiscard]] constexpr double move_cost(const mesh_shape& mesh, const extents& shape, std::int64_t element,
                                         const placing& from, axis_mask partial, const placing& to) {
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
    const std::int64_t shards = f == 0 ? 1 : shards_of(mesh, f);
    const auto before = static_cast<double>(ceil_div(extent, shards));
    held *= before;
    tiled |= mask_of(f);
    if (t == f) {
      wanted *= before;
      common *= before;
      continue;
    }
    const auto after = static_cast<double>(t == 0 ? extent : ceil_div(extent, shards_of(mesh, t)));
    wanted *= after;
    // Of fewer elements than shards, some device has none.
    common *= !nested(f, t) || extent < shards ? 0 : smaller_of(after, before);
    gained |= mask_of(t) & ~mask_of(f);
    loses = loses || !nested(f, t) || f > t;
  }
  double cost = 0;
  if (partial != 0) {
    const axis_mask scattered = gained & partial;
    double local = held / static_cast<double>(mesh.parts(gained & ~partial & ~tiled));
    if (scattered != 0) {
      const auto n = static_cast<double>(mesh.parts(scattered));
      cost += local * (n - 1) / n;
      local /= n;
    }
    if (const axis_mask rest = partial & ~scattered; rest != 0) {
      const auto n = static_cast<double>(mesh.parts(rest));
      cost += 2 * local * (n - 1) / n;
    }
    if (!loses) return cost;
  }
  const double lacking = wanted - common;
  if (lacking > 0) return cost + lacking + static_cast<double>(collective_latency);
  return cost + slice_cost * wanted + 1;
}

/// What ops cost in the layouts that their tensors may have: the work of each device, and the bytes that it sends to
/// bring the operands to where the op needs them and the result to where it is wanted. It is the part of
/// `layout_refinement` that knows no search.
class layout_prices {
 protected:
  constexpr layout_prices(const mesh_shape& mesh, graph_view g, const factor_rule* rules, const completion_view& state)
      : mesh_(mesh), g_(g), rules_(rules), state_(state), of_(state.of) {
    for (int id = 0; id < g.size; ++id) {
      if (of_[id].unreduced != 0 && requests_of(g[id]) != layout_request::none) keep_terms(g[id].operand[0]);
    }
  }

  [[nodiscard]] constexpr bool is_searchable(int id) const {
    return has_choice(g_, of_, id) && (keeps_terms_.empty() || !keeps_terms_[id]);
  }
  /// The layouts of a value that is wanted as a partial, and of what it is computed from up to the sum, stay as they
  /// are: split in another way, there would be no terms.
  constexpr void keep_terms(int value) {
    if (keeps_terms_.empty()) keeps_terms_.resize(g_.size, false);
    if (keeps_terms_[value]) return;
    keeps_terms_[value] = true;
    const instruction& i = g_[value];
    if (structure_of(i) != structure::none || i.operand_count == 0) return;
    const bool passes = i.op->linear != linearity::none || requests_of(i) != layout_request::none;
    const bool is_sum = axes_summed_over(g_, rules_[value], of_, value) != 0;
    for (int k = 0; k < i.operand_count; ++k) {
      const int operand = g_.operand_at(i, k);
      if (passes && !is_sum) {
        keep_terms(operand);
      } else {
        keeps_terms_[operand] = true;
      }
    }
  }
  /// A result whose layout nobody asked for: it is the one of its value.
  [[nodiscard]] constexpr bool follows(int id) const {
    return structure_of(g_[id]) == structure::result && g_[id].annotation < 0 && g_[id].operand_count == 1;
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

  /// The cost of an op whose result has a layout.
  constexpr double price_of(int id) {
    const layout_option result{placing_of(id), 0};
    double cost = -1;
    price(id, &result, 1, &cost);
    return cost;
  }
  /// The least cost of an op for each of some layouts of its result.
  constexpr void price(int id, const layout_option* results, int count, double* costs) {
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
                               const layout_option* results, int count, double* costs) {
    if (n == axes_.size()) return price_split(id, rule, split, used, results, count, costs);
    split_further(id, rule, split, used, n + 1, results, count, costs);
    // In each order that the mesh has for it.
    for (int axis = axes_[n]; axis < 2 * max_axes; axis += mesh_.ordered == 0 ? 2 * max_axes : to_next_order(axis)) {
      for (int f = 0; f < rule.count; ++f) {
        if (rule.kind[f] == factor_kind::blocked) continue;
        const axis_list others = split[f];
        if (rule.size[f] <= (others.empty() ? 1 : mesh_.parts(others))) continue;
        factor_axes with = split;
        with.set(f, others.with(axis));
        split_further(id, rule, with, used | bit_of(axes_[n]), n + 1, results, count, costs);
        if (others.empty()) continue;
        with.set(f, axis_list(axis).followed_by(others));
        split_further(id, rule, with, used | bit_of(axes_[n]), n + 1, results, count, costs);
      }
    }
  }
  /// From an entry of a list to that of the same axis in its next order, or to none.
  [[nodiscard]] constexpr int to_next_order(int entry) const {
    return has_axis(mesh_.ordered, entry) ? max_axes : 2 * max_axes;
  }
  constexpr void price_split(int id, const factor_rule& rule, const factor_axes& split, axis_mask used,
                             const layout_option* results, int count, double* costs) {
    const instruction& i = g_[id];
    double most = 0;
    for (int n = 0; n < count && most >= 0; ++n) most = costs[n] < 0 ? -1 : larger_of(most, costs[n]);
    const double work = static_cast<double>(i.op->flops == nullptr ? 0 : i.op->flops(g_.view(id)));
    const double times = static_cast<double>(repetitions(g_, id));
    double cost = times * work / static_cast<double>(mesh_.parts(used)) / operations_per_byte;
    bool has_start = false;
    moving_.clear();
    for (int k = 0; k < i.operand_count; ++k) {
      placing needed;
      const extents& shape = g_.operand(id, k).shape;
      if (!place(rule, rule.dims_of(k), shape.rank, split, needed)) return;
      const bool has_windows = i.op->windows != nullptr;
      const int value = g_.operand_at(i, k);
      cost += price_of_operand(value, needed, has_windows ? read_through_windows(id, k, rule) : shape);
      // What the operands of one op lack may travel together if it is small, unless one has to wait for another.
      if (starts_ && g_[value].region == i.region && shape.elements() * size_of(g_[value].type) <= merged_bytes_limit) {
        if (has_start) cost -= times * shared_start;
        has_start = true;
      }
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
      if (costs[n] >= 0 && whole >= costs[n]) continue;
      costs[n] = whole;
      if (shares_moves_) moved_ = moving_;
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
    if (value == pinned_) return times * final_move(read, size_of(i.type), pinned_at_, needed);
    const int n = index_of(value);
    if (n < 0 || values_[n].is_chosen) {
      starts_ = false;
      if (shares_moves_ && is_moved_already(value, needed, read)) return 0;
      const axis_mask partial = of_[value].unreduced;
      return partial != 0 ? 0 : times * final_move(read, size_of(i.type), placing_of(value), needed);
    }
    double moved_at_least = 0;
    double least = -1;
    for (int o = 0; o < values_[n].count; ++o) {
      const layout_option& one = options_[values_[n].first + o];
      if (least >= 0 && one.cost >= least) continue;
      const double moved = move_cost(read, size_of(i.type), one.at, 0, needed);
      const double cost = one.cost + times * moved;
      if (least >= 0 && cost >= least) continue;
      least = cost;
      moved_at_least = moved;
    }
    starts_ = moved_at_least >= starting_cost;
    return least;
  }
  /// Whether an op of the same loop moves all of a value to a layout that another one has moved it to. Notes the move
  /// if it is the first.
  constexpr bool is_moved_already(int value, const placing& needed, const extents& read) {
    if (of_[value].unreduced != 0 || !(read == g_[value].shape)) return false;
    const placing now = placing_of(value);
    if (are_same(now, needed, read.rank)) return false;
    if (is_among(moves_, value, region_, needed)) return true;
    moving_.push_back({value, region_, needed});
    return false;
  }
  [[nodiscard]] static constexpr bool are_same(const placing& one, const placing& other, int rank) {
    for (int d = 0; d < rank; ++d) {
      if (one.dim[d] != other.dim[d]) return false;
    }
    return true;
  }
  [[nodiscard]] constexpr bool is_among(const list<layout_move>& moves, int value, int region,
                                        const placing& at) const {
    for (const layout_move& known : moves) {
      if (known.value == value && known.region == region && are_same(known.at, at, g_[value].shape.rank)) return true;
    }
    return false;
  }
  /// The cost of an op whose result has a layout, where it need not move again what is moved already; notes its moves.
  constexpr double price_with_shared_moves(int id) {
    shares_moves_ = true;
    region_ = g_[id].region;
    moved_.clear();
    const double cost = price_of(id);
    for (const layout_move& one : moved_) moves_.push_back(one);
    shares_moves_ = false;
    return cost;
  }

  /// The cost of a move right before an op reads the value; `starts_` says whether it starts a collective.
  constexpr double final_move(const extents& shape, std::int64_t element, const placing& from, const placing& to) {
    const double cost = move_cost(shape, element, from, 0, to);
    starts_ = cost >= starting_cost;
    return cost;
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
    moving_.clear();
    if (const int moved = operand_moved_by(i); moved >= 0) {
      const int to = layout_after_move(g_, id);
      if (!follows(id) && of_[to].unreduced == 0) cost = price_of_operand(i.operand[moved], placing_of(to));
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
    if (shares_moves_) moved_ = moving_;
  }

  [[nodiscard]] constexpr double move_cost(const extents& shape, std::int64_t element, const placing& from,
                                           axis_mask partial, const placing& to) {
    ++priced_;
    return detail::move_cost(mesh_, shape, element, from, partial, to);
  }

  static constexpr auto starting_cost = static_cast<double>(collective_latency);
  /// The part of a start that is saved on average by two moves which may travel together: it decides between plans that
  /// cost the same otherwise.
  static constexpr double shared_start = starting_cost / 8;

  const mesh_shape& mesh_;
  graph_view g_;
  const factor_rule* rules_;
  completion_view state_;
  sharding* of_;
  axis_list axes_;
  axis_mask mask_ = 0;
  list<layout_candidate> values_;
  list<layout_option> options_;
  /// The values whose layouts make a partial that an annotation wants; empty if there is none.
  list<bool> keeps_terms_;
  /// The number of moves priced so far.
  int priced_ = 0;
  /// The operand that was priced last needs a collective.
  bool starts_ = false;
  /// The moves of all ops priced so far by `price_with_shared_moves`, of the op that is priced now, and of the cheapest
  /// way to split it; and the op's loop.
  list<layout_move> moves_;
  list<layout_move> moving_;
  list<layout_move> moved_;
  int region_ = -1;
  bool shares_moves_ = false;
  /// A value that has a layout for now.
  int pinned_ = -1;
  placing pinned_at_;
};

}  // namespace espalier::detail
