// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/editor.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/partition/collectives.hpp>
#include <espalier/tensor/core/partition/row_product.hpp>
#include <espalier/tensor/core/partition/scheduler.hpp>

#include <cstdint>
#include <limits>

namespace espalier::detail {

/// Prepares scores whose rows, or keys, are split over devices, for row regions (partition/row_regions.hpp).
///
/// The largest score of a row, m, is the largest that any device has. As it is written, exp(s - m) waits for it, and
/// with it all that follows: the scores would be kept until then. So each device uses its own largest score, m', and
/// what it sums up over its keys is multiplied by c = exp(m' - m) afterwards, when m is known. That is a number for
/// each row: sum exp(s - m) is c times sum exp(s - m'), and the product of exp(s - m) / t with values, whose t are
/// numbers of rows, too, is c / t times the product of exp(s - m').
///
/// Of two devices with the scores {1, 3} and {2} of a row and the values {10, 20} and {30}: m' is 3 and 2, the sums are
/// 1.135 and 1, the products 21.35 and 30. With m = 3 the second device's are multiplied by 0.368: together 1.503 and
/// 32.39, and the result is 21.55.
///
/// A gradient needs, for each row, the sum over all keys of p dp, where dp = dx y^T, p are the weights and x = p y is
/// the value that all devices have of the row together: it is the sum over the features of dx x, which each device
/// computes for itself. Nothing then waits for another sum of all devices, after which dp would be computed again.
///
/// The padding of uneven shards is filled where it is read: a `mask` has a kernel of its own and would be stored.
class split_row_preparation {
 public:
  constexpr explicit split_row_preparation(graph_view g)
      : g_(g),
        plain_(g.size, -1),
        factor_(g.size, -1),
        sum_(g.size, -1),
        source_(g.size, -1),
        waits_(g.size, false),
        raised_(g.size, -1) {
    for (int id = 0; id < g_.size; ++id) {
      if (g_[id].op->facts.contracts && makes_scores(g_, id) && !is_of_scores(g_[id].shape))
        spaces_.push_back(g_[id].shape);
    }
    for (int id = 0; id < g_.size; ++id) {
      if (!is_collective(g_[id].op, collective::all_reduce)) continue;
      const reduction by = attributes_of<collective_attributes>(g_[id]).combine;
      if (by == reduction::max) raised_[g_[id].operand[0]] = waits_for_maximum(g_[id].operand[0], id);
      if (by == reduction::sum && g_[id].annotation >= 0) sums_of_devices_.push_back(id);
    }
  }

  /// Whether there is something to do.
  [[nodiscard]] constexpr bool is_needed() const {
    for (int id = 0; id < g_.size; ++id) {
      if (is_padding_of_scores(id) || raised_[id] >= 0 || sum_of_products(id).of_values >= 0) return true;
    }
    return false;
  }

  constexpr graph run() {
    edit_ = graph_editor(g_);
    for (int id = 0; id < g_.size; ++id) place(id);
    return edit_.finish();
  }

 private:
  // --- questions ----------------------------------------------------------------------------------------------------

  [[nodiscard]] constexpr bool is_of_scores(const extents& shape) const {
    if (!has_many_scores(shape)) return false;
    for (const extents& space : spaces_) {
      if (space == shape) return true;
    }
    return false;
  }
  /// Whether it fills the padding of scores, and an element's own index tells that it is padding: the shards of one
  /// axis follow each other, so that only elements beyond the tensor are.
  [[nodiscard]] constexpr bool is_padding_of_scores(int id) const {
    const instruction& i = g_[id];
    if (i.op != &ops::mask || !is_of_scores(i.shape) || !is_floating(i.type) || i.annotation < 0) return false;
    return g_.annotations[i.annotation].placement.dim[attributes_of<mask_attributes>(i).dim].size() == 1;
  }
  [[nodiscard]] constexpr bool is_row_reduction(int id, reduction kind) const {
    const instruction& i = g_[id];
    if (i.op->fuse != fusion::reduction) return false;
    const extents& from = g_[i.operand[0]].shape;
    const auto [dims, by] = attributes_of<reduction_attributes>(i);
    return by == kind && is_of_scores(from) && dims == std::int64_t{1} << (from.rank - 1);
  }
  /// A number for each row, repeated along it.
  [[nodiscard]] constexpr bool is_of_rows(int id, const extents& space) const {
    const instruction& i = g_[id];
    return i.op->fuse == fusion::broadcast && i.shape == space && repeats_rows(i, g_[i.operand[0]].shape);
  }
  /// The value itself, or what fills its padding.
  [[nodiscard]] constexpr int without_padding(int id) const { return g_[id].op == &ops::mask ? g_[id].operand[0] : id; }

  /// If `own` is the largest score of each row that a device has, and `all` that of all devices: the exponential that
  /// waits for it; or -1.
  [[nodiscard]] constexpr int waits_for_maximum(int own, int all) const {
    if (!is_row_reduction(own, reduction::max) || g_[all].region != g_[own].region) return -1;
    const dtype type = g_[own].type;
    if ((type != dtype::f32 && type != dtype::f64) || g_[own].annotation < 0) return -1;
    const int scores = without_padding(g_[own].operand[0]);
    for (int e = all + 1; e < g_.size && e < all + most_looks; ++e) {
      const instruction& raised = g_[e];
      if (raised.op->facts.masks != masking::exponential || raised.region != g_[own].region) continue;
      const instruction& shifted = g_[raised.operand[0]];
      if (shifted.op->facts.masks != masking::difference || shifted.operand[0] != scores) continue;
      if (is_of_rows(shifted.operand[1], shifted.shape) && g_[shifted.operand[1]].operand[0] == all) return e;
    }
    return -1;
  }
  /// What follows from a maximum is not far from it.
  static constexpr int most_looks = 256;

  /// A sum over all keys of p dp, as above: what it is the sum over the features of.
  struct sum_over_features {
    int cotangent = -1;
    /// The value that all devices have.
    int of_values = -1;
    int feature = -1;
    /// The dimension of both that each dimension of the sum is.
    axis_list source{};
  };
  [[nodiscard]] constexpr sum_over_features sum_of_products(int id) const {
    const sum_over_features none;
    const instruction& all = g_[id];
    // Others that travel along with it need it; those that it travels along with do not.
    if (!is_sum_of_devices(id) || (id + 1 < g_.size && g_[id + 1].op->facts.travels_along)) return none;
    const int sum = all.operand[0];
    if (!is_row_reduction(sum, reduction::sum)) return none;
    const instruction& product = g_[without_padding(g_[sum].operand[0])];
    if (product.op->facts.multiplies != 0b11 || product.operand_count != 2) return none;
    for (int k = 0; k < 2; ++k) {
      const int dp = product.operand[k];
      if (!g_[dp].op->facts.contracts || !makes_scores(g_, dp) || g_[dp].type != all.type) continue;
      const int p = product.operand[1 - k];
      for (const int x : sums_of_devices_) {
        if (x <= p || x >= id || g_[x].region != all.region || g_[x].type != all.type) continue;
        if (attributes_of<collective_attributes>(g_[x]).axes != attributes_of<collective_attributes>(all).axes)
          continue;
        const sum_over_features found = matched(dp, p, g_[x].operand[0], x);
        if (found.of_values >= 0) return found;
      }
    }
    return none;
  }
  [[nodiscard]] constexpr bool is_sum_of_devices(int id) const {
    const instruction& i = g_[id];
    return is_collective(i.op, collective::all_reduce) && i.annotation >= 0 &&
           attributes_of<collective_attributes>(i).combine == reduction::sum;
  }
  /// Whether `product` is p y and `dp` is dx y^T, with the same y and the dimensions of dx and x in one order.
  [[nodiscard]] constexpr sum_over_features matched(int dp, int p, int product, int all) const {
    sum_over_features found;
    if (!g_[product].op->facts.contracts || g_[dp].region != g_[all].region) return found;
    for (int scores = 0; scores < 2; ++scores) {
      if (without_padding(g_[product].operand[scores]) != p) continue;
      const row_product of_value = row_product_of(g_, product, scores);
      const row_product of_scores = row_product_of(g_, dp, 2);
      if (of_value.role != row_role::keeps || of_scores.role != row_role::makes) continue;
      const auto value = attributes_of<einsum_attributes>(g_[product]);
      const auto made = attributes_of<einsum_attributes>(g_[dp]);
      const int y = g_[product].operand[1 - scores];
      const int dx = g_[dp].operand[of_scores.x];
      if (without_padding(g_[dp].operand[of_scores.y]) != without_padding(y) || !(g_[dx].shape == g_[all].shape))
        continue;
      const einsum_term& of_x = of_scores.x == 0 ? made.left : made.right;
      const einsum_term& of_y = of_scores.x == 0 ? made.right : made.left;
      const einsum_term& of_p = scores == 0 ? value.left : value.right;
      const einsum_term& of_v = scores == 0 ? value.right : value.left;
      // The letters of one product as those of the other, by the dimensions of the scores.
      const auto same = [&](char a, char b) { return made.result.find(a) == of_p.find(b); };
      bool fits = g_[dx].type == g_[all].type && g_[dx].annotation >= 0;
      int features = 0;
      for (int d = 0; d < of_x.size(); ++d) {
        fits = fits && same(of_x[d], value.result[d]);
        if (made.result.contains(of_x[d])) continue;
        found.feature = d;
        ++features;
      }
      for (int d = 0; d < of_y.size(); ++d) fits = fits && same(of_y[d], of_v[d]);
      found.source = {};
      for (int d = 0; d + 1 < g_[dp].shape.rank; ++d) {
        const int at = of_x.find(made.result[d]);
        fits = fits && at >= 0;
        if (fits) found.source = found.source.with(at < found.feature ? at : at - 1);
      }
      if (!fits || features != 1) continue;
      const sharding& layout = g_.annotations[g_[dx].annotation].placement;
      if (((layout.tiled() | layout.unreduced) & attributes_of<collective_attributes>(g_[all]).axes) != 0) continue;
      found.cotangent = dx;
      found.of_values = all;
      return found;
    }
    return {};
  }

  // --- the new graph ------------------------------------------------------------------------------------------------

  constexpr void place(int id) {
    if (!g_[id].op->facts.travels_along) append_factors();
    const instruction& i = g_[id];
    int made = -1;
    if (is_padding_of_scores(id)) {
      made = fill_padding(id, i.operand[0]);
    } else if (const sum_over_features sum = sum_of_products(id); sum.of_values >= 0) {
      made = append_sum_over_features(id, sum);
    } else if (is_row_reduction(id, reduction::sum) && factor_[i.operand[0]] >= 0) {
      made = append_sum(id);
    } else {
      made = append_product(id);
    }
    if (made < 0) {
      edit_.place(id);
    } else {
      edit_.replace(id, made);
    }
    if (const int raised = raised_[id]; raised >= 0) append_own(id, raised);
    if (source_[id] >= 0) waiting_.push_back(id);
    waits_[id] = source_[id] >= 0;
    for (int k = 0; k < i.operand_count; ++k) waits_[id] = waits_[id] || waits_[g_.operand_at(i, k)];
    carry_factor(id);
  }

  /// An instruction like another one, in the same place.
  constexpr int append_like(int like, const op_info& op, int a, int b = -1, int c = -1) {
    instruction i = builder::make(op, edit_[a].type, g_[like].shape, a, b, c);
    return append(i, like);
  }
  constexpr int append(instruction i, int like) {
    i.where = g_[like].where;
    i.origin = g_[like].origin;
    i.annotation = g_[like].annotation;
    i.region = g_[like].region;
    return edit_.append(i);
  }
  constexpr int append_constant(int like, dtype type, double value) {
    instruction i = builder::make(ops::constant, type, g_[like].shape);
    i.scalar = value;
    return append(i, like);
  }
  constexpr int repeat_rows(int value, int like) {
    axis_list targets;
    for (int d = 0; d + 1 < g_[like].shape.rank; ++d) targets = targets.with(d);
    instruction i = builder::make(ops::broadcast, edit_[value].type, g_[like].shape, value);
    set_attributes(i, broadcast_attributes{targets});
    return append(i, like);
  }

  /// As `mask` instruction `id`, of another operand.
  constexpr int fill_padding(int id, int operand) {
    const int dim = attributes_of<mask_attributes>(g_[id]).dim;
    instruction count = builder::make(ops::iota, dtype::i32, g_[id].shape);
    set_attributes(count, index_attributes{dim});
    const int index = append(count, id);
    const std::int64_t extent = g_.annotations[g_[id].annotation].shape[dim];
    const int end = append_constant(id, dtype::i32, static_cast<double>(extent));
    const int is_real = append(builder::make(ops::less, dtype::boolean, g_[id].shape, index, end), id);
    const int filling = append_constant(id, edit_[operand].type, g_[id].scalar);
    return append(builder::make(ops::select, edit_[operand].type, g_[id].shape, is_real, operand, filling), id);
  }

  /// After a device's own maximum: what it takes the exponential `raised` with, and the sums of it.
  constexpr void append_own(int id, int raised) {
    const int shifted = g_[raised].operand[0];
    const double lowest =
        g_[id].type == dtype::f32 ? -std::numeric_limits<float>::max() : -std::numeric_limits<double>::max();
    // A device all of whose keys are hidden by -inf, or that has none, subtracts a number all the same.
    const int own = append_like(id, ops::maximum, id, append_constant(id, g_[id].type, lowest));
    const int rest = append_like(shifted, ops::subtract, g_[shifted].operand[0], repeat_rows(own, shifted));
    plain_[raised] = append_like(raised, ops::exp, rest);
    const int all = g_[g_[shifted].operand[1]].operand[0];
    source_[all] = raised;
    own_.push_back({raised, own});
    // In the pass over the rows that finds the maximum, as well as it can.
    for (int sum = raised + 1; sum < g_.size && sum < raised + most_looks; ++sum) {
      if (!is_row_reduction(sum, reduction::sum) || g_[sum].region != g_[id].region ||
          without_padding(g_[sum].operand[0]) != raised)
        continue;
      if (g_[sum].operand[0] != raised && !is_padding_of_scores(g_[sum].operand[0])) continue;
      instruction i = g_[sum];
      i.operand[0] = g_[sum].operand[0] == raised ? plain_[raised] : fill_padding(g_[sum].operand[0], plain_[raised]);
      i.label = nullptr;
      sum_[sum] = append(i, sum);
    }
  }
  /// The factors that have been waiting for a maximum of all devices: after all collectives that travel together.
  constexpr void append_factors() {
    for (const int all : waiting_) {
      const int raised = source_[all];
      for (const own_maximum& one : own_) {
        if (one.raised != raised) continue;
        const int difference = append_like(all, ops::subtract, one.value, all);
        factor_[raised] = append_like(all, ops::exp, difference);
      }
    }
    waiting_.clear();
  }

  /// A sum over what has a factor.
  constexpr int append_sum(int id) {
    instruction i = g_[id];
    const int from = i.operand[0];
    if (i.type != edit_[factor_[from]].type) return -1;
    int sum = sum_[id];
    if (sum < 0) {
      i.operand[0] = plain_[from];
      i.label = nullptr;
      sum = edit_.append(i);
    }
    return append_like(id, ops::multiply, sum, factor_[from]);
  }

  constexpr int append_sum_over_features(int id, const sum_over_features& of) {
    const int x = of.of_values;
    const int terms = append(builder::make(ops::multiply, g_[x].type, g_[x].shape, of.cotangent, x), x);
    const layout& whole = g_.annotations[g_[x].annotation];
    layout without{extents{}, sharding::whole(whole.shape.rank - 1)};
    extents shape;
    bool is_in_order = true;
    for (int d = 0; d < whole.shape.rank; ++d) {
      if (d == of.feature) continue;
      without.placement.dim[shape.rank] = whole.placement.dim[d];
      is_in_order = is_in_order && of.source[shape.rank] == shape.rank;
      shape.append(g_[x].shape[d]);
      without.shape.append(whole.shape[d]);
    }
    instruction sum = builder::make(ops::reduce_sum, g_[x].type, shape, terms);
    set_attributes(sum, reduction_attributes{std::int64_t{1} << of.feature, reduction::sum});
    int made = append(sum, x);
    edit_[made].annotation = edit_.annotate(without);
    if (is_in_order) return made;
    instruction turned = builder::make(ops::transpose, g_[id].type, g_[id].shape, made);
    set_attributes(turned, transpose_attributes{of.source});
    return append(turned, id);
  }

  /// A product x = scores y of scores that have a factor; or -1.
  constexpr int append_product(int id) {
    instruction i = g_[id];
    if (!i.op->facts.contracts) return -1;
    for (int k = 0; k < 2; ++k) {
      const int scores = g_[id].operand[k];
      if (factor_[scores] < 0 || edit_[factor_[scores]].type != i.type || i.annotation < 0) continue;
      const row_product p = row_product_of(g_, id, k);
      if (p.role != row_role::keeps) continue;
      const auto terms = attributes_of<einsum_attributes>(i);
      const einsum_term& of_scores = k == 0 ? terms.left : terms.right;
      axis_list targets;
      bool has_all = true;
      for (int d = 0; d + 1 < g_[scores].shape.rank; ++d) {
        has_all = has_all && terms.result.contains(of_scores[d]);
        if (has_all) targets = targets.with(terms.result.find(of_scores[d]));
      }
      if (!has_all) continue;
      i.operand[k] = plain_[scores];
      i.label = nullptr;
      const int product = edit_.append(i);
      instruction repeated = builder::make(ops::broadcast, i.type, i.shape, factor_[scores]);
      set_attributes(repeated, broadcast_attributes{targets});
      return append_like(id, ops::multiply, product, append(repeated, id));
    }
    return -1;
  }

  /// If a value of scores is another one, that has a factor, times something that is known before any maximum of all
  /// devices is: so has it.
  constexpr void carry_factor(int id) {
    const instruction& i = g_[id];
    if (plain_[id] >= 0 || !is_of_scores(i.shape)) return;
    const auto has = [&](int k) { return factor_[g_[id].operand[k]] >= 0 && g_[g_[id].operand[k]].shape == i.shape; };
    if (is_padding_of_scores(id) && i.scalar == 0 && has(0)) {
      plain_[id] = fill_padding(id, plain_[i.operand[0]]);
      factor_[id] = factor_[i.operand[0]];
    } else if (i.op->fuse == fusion::elementwise && i.op->facts.converts && has(0)) {
      plain_[id] = append(builder::make(*i.op, i.type, i.shape, plain_[i.operand[0]]), id);
      factor_[id] = factor_[i.operand[0]];
    } else if (i.op->facts.masks == masking::choice && has(1) && !waits_[i.operand[0]] && is_zero(i.operand[2])) {
      plain_[id] = append(builder::make(*i.op, i.type, i.shape, i.operand[0], plain_[i.operand[1]], i.operand[2]), id);
      factor_[id] = factor_[i.operand[1]];
    } else if (i.op->facts.multiplies != 0) {
      carry_through_product(id);
    }
  }
  [[nodiscard]] constexpr bool is_zero(int id) const {
    while (g_[id].op->fuse == fusion::broadcast) id = g_[id].operand[0];
    return g_[id].op->facts.values == pattern::uniform && g_[id].scalar == 0;
  }
  constexpr void carry_through_product(int id) {
    const instruction& i = g_[id];
    int plain = -1;
    int factor = -1;
    for (int k = 0; k < i.operand_count; ++k) {
      const int o = i.operand[k];
      if ((i.op->facts.multiplies >> static_cast<unsigned>(k) & 1U) == 0) continue;
      if (plain_[o] >= 0 && factor_[o] >= 0) {
        if (plain >= 0) return;
        plain = o;
      }
    }
    if (plain < 0) return;
    int value = plain_[plain];
    factor = factor_[plain];
    for (int k = 0; k < i.operand_count; ++k) {
      const int o = i.operand[k];
      if ((i.op->facts.multiplies >> static_cast<unsigned>(k) & 1U) == 0 || o == plain) continue;
      if (is_of_rows(o, i.shape) && g_[o].type == edit_[factor].type) {
        const int by = g_[o].operand[0];
        factor = append_like(by, ops::multiply, factor, by);
      } else {
        if (g_[o].type != edit_[value].type || waits_[o]) return;
        value = append_like(id, ops::multiply, value, o);
      }
    }
    if (edit_[value].type != i.type) value = append(builder::make(ops::convert, i.type, i.shape, value), id);
    plain_[id] = value;
    factor_[id] = factor;
  }

  struct own_maximum {
    int raised = -1;
    int value = -1;
  };

  graph_view g_;
  graph_editor edit_;
  /// The shapes of scores.
  list<extents> spaces_;
  /// Of a value that is this one, in the result, times a factor for each of its rows: both; or -1.
  list<int> plain_;
  list<int> factor_;
  /// The sum over what a device has, without its factor.
  list<int> sum_;
  /// Of a maximum of all devices: the exponential that waits for it.
  list<int> source_;
  /// It needs a maximum of all devices.
  list<bool> waits_;
  /// Of a maximum of this device: the exponential that waits for that of all.
  list<int> raised_;
  list<int> sums_of_devices_;
  list<own_maximum> own_;
  list<int> waiting_;
};

}  // namespace espalier::detail
