// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/partition/collectives.hpp>
#include <espalier/program/complete.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace espalier {

/// What starting a collective costs, in bytes that could be sent meanwhile. It keeps a plan from sharing one all-reduce
/// out over idle axes as three steps unless the tensor is large enough to gain by it.
inline constexpr std::int64_t collective_latency = 16384;

/// What partitioning found wrong.
enum class partition_fault : std::uint8_t {
  nothing,
  op_without_rule,
  /// A sum that was to stay pending meets an op that needs it whole.
  pending_sum_dropped,
  /// An annotation says that a sum is pending where none is.
  no_sum_pending,
};

/// The program of one device, the same on all: every instruction works on local buffers, and communication is
/// explicit. Every instruction's `annotation` is the layout its buffer is a part of.
struct partitioned {
  graph program;
  /// The instruction of the traced graph each instruction comes from.
  detail::list<int> origin;
  partition_fault fault = partition_fault::nothing;
  int fault_at = -1;
};

namespace detail {

class partitioner {
 public:
  constexpr partitioner(const mesh_shape& mesh, graph_view g, const factor_rule* rules, const sharding* of)
      : mesh_(mesh),
        g_(g),
        rules_(rules),
        of_(of),
        readers_(g.size, 0),
        reader_(g.size, -1),
        value_(g.size, -1),
        unsettled_(g.size, -1) {
    for (int id = 0; id < g.size; ++id) {
      for (int k = 0; k < g[id].operand_count; ++k) {
        ++readers_[g[id].operand[k]];
        reader_[g[id].operand[k]] = id;
      }
    }
    if (const axis_mask trivial = axes_of_one(mesh); (trivial & ((1U << static_cast<unsigned>(mesh.rank)) - 1U)) != 0) {
      // Axes of one device split nothing, and nothing is pending on them.
      nontrivial_.reserve(g.size);
      for (int id = 0; id < g.size; ++id) nontrivial_.push_back(without_axes(of[id], trivial));
      of_ = nontrivial_.data();
    }
  }

  constexpr partitioned run() {
    // A fifth more instructions is what collectives usually come to.
    const int expected = g_.size + g_.size / 5;
    out_.result().code.reserve(expected);
    out_.result().annotations.reserve(expected);
    origin_.reserve(expected);
    next_variant_.reserve(expected);
    for (int id = 0; id < g_.size && fault_ == partition_fault::nothing; ++id) visit(id);
    if (hoisted_) arrange();
    return {static_cast<graph&&>(out_.result()), static_cast<list<int>&&>(origin_), fault_, fault_at_};
  }

 private:
  /// A reshard that was made before, to be used again where it is in scope.
  struct variant {
    int value = -1;
    int next = -1;
  };

  constexpr void fail(partition_fault fault, int id) {
    fault_ = fault;
    fault_at_ = id;
  }

  constexpr int append(instruction made, const extents& shape, const sharding& placement) {
    made.shape = local_shape(mesh_, shape, placement);
    made.annotation = out_.annotate(shape, placement);
    made.origin = current_;
    const int id = out_.append(made);
    origin_.push_back(current_);
    next_variant_.push_back(-1);
    return id;
  }
  [[nodiscard]] constexpr const layout& layout_of(int value) const {
    return out_.result().annotations[out_[value].annotation];
  }

  /// The value laid out as wanted: itself, an earlier reshard, or new steps. A value from outside a loop changes its
  /// layout there, once, and not in every iteration.
  constexpr int reshard(int value, const sharding& wanted, reduction combine = reduction::sum) {
    if (const int made = found(value, wanted); made >= 0) return made;
    const layout from = layout_of(value);
    const reshard_plan plan =
        plan_reshard(mesh_, from.shape, out_[value].type, from.placement, wanted, collective_latency);
    int result = value;
    const int here = out_.loop;
    out_.loop = out_[value].loop;
    hoisted_ = hoisted_ || out_.loop != here;
    for (int s = 0; s < plan.count; ++s) {
      instruction made = builder::make(op_of(plan.step[s].kind), out_[value].type, extents{}, result);
      made.attribute[0] = plan.step[s].axes;
      made.attribute[1] = static_cast<std::int64_t>(combine);
      result = append(made, from.shape, plan.step[s].after);
    }
    out_.loop = here;
    next_variant_[value] = variants_.push_back({result, next_variant_[value]});
    return result;
  }
  /// The value itself or an earlier reshard, if it is laid out as wanted; or -1.
  [[nodiscard]] constexpr int found(int value, const sharding& wanted) const {
    if (detail::agree(layout_of(value).placement, wanted)) return value;
    for (int v = next_variant_[value]; v >= 0; v = variants_[v].next) {
      const int made = variants_[v].value;
      if (in_scope(out_[made].loop) && detail::agree(layout_of(made).placement, wanted)) return made;
    }
    return -1;
  }
  [[nodiscard]] constexpr bool in_scope(int loop) const {
    for (int l = out_.loop;; l = out_[l].loop) {
      if (l == loop) return true;
      if (l < 0) return false;
    }
  }

  /// An operand as it is, or with its pending sum carried out if `keep_pending` is false.
  constexpr int settled(int id) {
    const int value = value_[id];
    if (layout_of(value).placement.unreduced == of_[id].unreduced) return value;
    return settle(id, of_[id]);
  }
  /// Carries out a pending sum for all later readers but those that ask for the terms.
  constexpr int settle(int id, const sharding& reduced) {
    unsettled_[id] = value_[id];
    return value_[id] = reshard(value_[id], reduced);
  }

  constexpr void visit(int id) {
    current_ = id;
    const instruction& i = g_[id];
    out_.where = i.where;
    if (i.op == &ops::argument) {
      value_[id] = append(i, i.shape, of_[id]);
    } else if (i.op == &ops::shard || i.op == &ops::reshard || i.op == &ops::match) {
      value_[id] = visit_annotation(id);
    } else if (i.op == &ops::result) {
      visit_result(id);
    } else if (!visit_loop(id)) {
      visit_op(id);
    }
    if (i.label != nullptr && value_[id] >= 0) out_[value_[id]].label = i.label;
  }

  constexpr int visit_annotation(int id) {
    const int operand = g_[id].operand[0];
    int value = value_[operand];
    if (of_[id].unreduced != 0) {
      if (unsettled_[operand] >= 0 && in_scope(out_[unsettled_[operand]].loop)) value = unsettled_[operand];
      if ((of_[id].unreduced & ~layout_of(value).placement.unreduced) != 0) {
        fail(partition_fault::no_sum_pending, id);
        return value;
      }
    }
    // The sum may be wanted in yet another layout: whoever reads it says in which.
    const axis_mask pending = layout_of(value).placement.unreduced;
    const bool waits =
        g_[id].op == &ops::match && pending != 0 && postpones(id, pending) && g_[reader_[id]].op != &ops::result;
    return owned(id, waits ? value : reshard(value, of_[id]));
  }

  /// A loop collects what it computes itself: a value from outside becomes one of the loop.
  constexpr int owned(int id, int value) {
    if (out_[value].loop == out_.loop || readers_[id] == 0 || !collects(reader_[id])) return value;
    return copied(value);
  }
  [[nodiscard]] constexpr bool collects(int id) const {
    return g_[id].op == &ops::loop_stack || g_[id].op == &ops::loop_sum;
  }
  constexpr int copied(int value) {
    const layout same = layout_of(value);
    return append(builder::make(ops::copy, out_[value].type, extents{}, value), same.shape, same.placement);
  }

  constexpr void visit_result(int id) {
    instruction made = g_[id];
    made.operand[0] = reshard(value_[g_[id].operand[0]], of_[id]);
    if (made.operand_count == 2) made.operand[1] = value_[g_[id].operand[1]];
    value_[id] = append(made, g_[id].shape, of_[id]);
  }

  constexpr bool visit_loop(int id) {
    const instruction& i = g_[id];
    instruction made = i;
    if (i.op == &ops::loop_begin) {
      // The carries' initial values take the carries' layout outside, before the loop starts.
      for (int c = id + 1; c < g_.size && g_[c].op == &ops::loop_carry; ++c) {
        initial_.push_back(reshard(value_[g_[c].operand[0]], of_[c]));
      }
      first_initial_ = 0;
      value_[id] = append(made, i.shape, of_[id]);
      out_.loop = value_[id];
    } else if (i.op == &ops::loop_carry) {
      made.operand[0] = initial_[first_initial_++];
      if (first_initial_ == initial_.size()) initial_.clear();
      value_[id] = append(made, i.shape, of_[id]);
    } else if (i.op == &ops::loop_next) {
      made.operand[0] = value_[i.operand[0]];
      made.operand[1] = passed_on(reshard(value_[i.operand[1]], layout_of(made.operand[0]).placement), made.operand[0]);
      value_[id] = append(made, i.shape, layout_of(made.operand[0]).placement);
    } else if (i.op == &ops::loop_end) {
      made.operand[0] = value_[i.operand[0]];
      out_.loop = out_[made.operand[0]].loop;
      value_[id] = append(made, i.shape, of_[id]);
    } else if (i.op == &ops::loop_result || i.op == &ops::loop_sum) {
      made.operand[0] = value_[i.operand[0]];
      value_[id] = append(made, i.shape, layout_of(made.operand[0]).placement);
    } else if (i.op == &ops::loop_slice) {
      visit_slice(id);
    } else if (i.op == &ops::loop_stack) {
      made.operand[0] = value_[i.operand[0]];
      value_[id] = append(made, i.shape, stacked(layout_of(made.operand[0]).placement));
    } else {
      return false;
    }
    return true;
  }

  /// A carry that becomes another one (through annotations, which are gone by now) would be overwritten on the way.
  constexpr int passed_on(int value, int carry) {
    if (out_[value].op != &ops::loop_carry || out_[value].loop != out_.loop || value == carry) return value;
    const layout same = layout_of(value);
    return append(builder::make(ops::copy, out_[value].type, extents{}, value), same.shape, same.placement);
  }

  [[nodiscard]] static constexpr sharding stacked(const sharding& inner) {
    sharding result = inner;
    result.rank = inner.rank + 1;
    result.dim[0] = axis_list{};
    for (int d = 0; d < inner.rank; ++d) result.dim[d + 1] = inner.dim[d];
    result.open = inner.open << 1U;
    return result;
  }

  /// A slice is laid out as the tensor it is cut from: what has to be gathered is gathered slice by slice.
  constexpr void visit_slice(int id) {
    instruction made = g_[id];
    made.operand[0] = settled(g_[id].operand[0]);
    sharding whole = layout_of(made.operand[0]).placement;
    if (!whole.dim[0].empty()) {
      // Its slices have to be whole in this dimension: then they may as well be laid out as they are wanted.
      const axis_mask pending = whole.unreduced;
      whole = stacked(of_[id]);
      whole.unreduced = pending;
      made.operand[0] = reshard(made.operand[0], whole);
    }
    sharding inner = whole;
    inner.rank = whole.rank - 1;
    for (int d = 0; d < inner.rank; ++d) inner.dim[d] = whole.dim[d + 1];
    inner.dim[inner.rank] = axis_list{};
    inner.open = whole.open >> 1U;
    const int slice = append(made, g_[id].shape, inner);
    value_[id] = slice;
  }

  // --- ordinary ops ---------------------------------------------------------------------------------------------

  constexpr void visit_op(int id) {
    const instruction& i = g_[id];
    if (i.op->factors == nullptr) return fail(partition_fault::op_without_rule, id);
    const axis_mask pending = settle_operands(id);
    if (fault_ != partition_fault::nothing) return;
    const factor_rule& rule = rules_[id];
    const factor_axes split = choose(id, rule, pending);
    instruction made = i;
    for (int k = 0; k < i.operand_count; ++k) {
      sharding wanted = required(rule.operand[k], g_[i.operand[k]].shape.rank, rule, split);
      const axis_mask held = layout_of(value_[i.operand[k]]).placement.unreduced;
      wanted.unreduced = held;
      made.operand[k] = masked(i, rule, k, reshard(value_[i.operand[k]], wanted), split);
    }
    if (i.op->positional_factor != nullptr) {
      const int factor = i.op->positional_factor({g_.code, id});
      made.place = {split[factor], rule.size[factor]};
    }
    sharding local = required(rule.result, i.shape.rank, rule, split);
    for (int f = 0; f < rule.count; ++f) {
      if (rule.kind[f] == factor_kind::reduce) local.unreduced |= split[f].mask();
    }
    local.unreduced |= pending;
    int value = append(made, i.shape, local);
    if (local.unreduced != 0) unsettled_[id] = value;
    if (local.unreduced != of_[id].unreduced && rule.combine != reduction::sum) {
      value = reshard(value, of_[id], rule.combine);
    } else if (local.unreduced == 0 || !postpones(id, local.unreduced)) {
      value = reshard(value, of_[id]);
    }
    value_[id] = value;
  }

  /// A pending sum whose only reader is linear is reduced there, where it may have been added to others, have become
  /// smaller, or be wanted in another layout.
  [[nodiscard]] constexpr bool postpones(int id, axis_mask pending) const {
    if (readers_[id] != 1) return false;
    const int reader = reader_[id];
    // Stacked, terms would take as much memory as the sums that are to be split over their devices.
    if (g_[reader].op == &ops::loop_stack) return (of_[id].tiled() & pending) == 0;
    // Never into a loop, where it would be reduced in every iteration; but out of one.
    return g_[reader].loop == g_[id].loop || g_[reader].op == &ops::loop_sum || g_[reader].op == &ops::loop_carry;
  }

  /// Carries out the pending sums of operands that the op cannot work on, and returns the axes still pending.
  constexpr axis_mask settle_operands(int id) {
    const instruction& i = g_[id];
    axis_mask pending = 0;
    for (int k = 0; k < i.operand_count; ++k) pending |= layout_of(value_[i.operand[k]]).placement.unreduced;
    if (pending == 0) return 0;
    if (may_keep(id, pending)) return pending;
    for (int k = 0; k < i.operand_count; ++k) {
      if (of_[i.operand[k]].unreduced != 0 && g_[i.operand[k]].op == &ops::shard) {
        // The user asked for this sum to stay pending, and here it would be lost.
        fail(partition_fault::pending_sum_dropped, id);
        return 0;
      }
      if (layout_of(value_[i.operand[k]]).placement.unreduced != 0) settle(i.operand[k], settled_for(id, k));
    }
    return 0;
  }

  /// Where a pending sum goes for its reader: to its own place, or, if nobody else wants it, straight to parts that
  /// the reader works on.
  [[nodiscard]] constexpr sharding settled_for(int id, int k) const {
    const int operand = g_[id].operand[k];
    sharding result = of_[operand];
    if (readers_[operand] == 1) {
      result = layout_of(value_[operand]).placement;
      const factor_rule& rule = rules_[id];
      factor_axes wanted;
      for (int d = 0; d < of_[id].rank; ++d) {
        if (!rule.result[d].empty()) read_dimension(mesh_, rule, rule.result[d], of_[id].dim[d], wanted);
      }
      for (int d = 0; d < result.rank; ++d) {
        const factor_list factors = rule.operand[k][d];
        if (factors.size() != 1 || rule.kind[factors[0]] != factor_kind::pass) continue;
        const axis_list axes = wanted[factors[0]];
        const axis_mask added = axes.mask() & ~result.dim[d].mask();
        if (axes.starts_with(result.dim[d]) && (added & ~result.unreduced) == 0) result.dim[d] = axes;
      }
    }
    result.unreduced = 0;
    return result;
  }

  [[nodiscard]] constexpr bool may_keep(int id, axis_mask pending) const {
    const instruction& i = g_[id];
    const auto held = [&](int k) { return layout_of(value_[i.operand[k]]).placement.unreduced; };
    const auto uses = [&](int k) { return layout_of(value_[i.operand[k]]).placement.tiled(); };
    switch (i.op->linear) {
      case linearity::none: return false;
      case linearity::first: {
        for (int k = 1; k < i.operand_count; ++k) {
          if (held(k) != 0 || (uses(k) & pending) != 0) return false;
        }
        return i.shape.elements() <= g_[i.operand[0]].shape.elements();
      }
      case linearity::joint: {
        for (int k = 0; k < i.operand_count; ++k) {
          if (held(k) != pending) return false;
        }
        return true;
      }
      case linearity::each: {
        int holders = 0;
        for (int k = 0; k < i.operand_count; ++k) {
          if (held(k) != 0) {
            ++holders;
          } else if ((uses(k) & pending) != 0 || g_[i.operand[k]].shape.elements() > i.shape.elements()) {
            return false;
          }
        }
        return holders == 1 && i.op != &ops::einsum;
      }
    }
    return false;
  }

  [[nodiscard]] constexpr sharding required(const factor_list* dims, int rank, const factor_rule& rule,
                                            const factor_axes& split) const {
    sharding result = empty_sharding;
    result.rank = rank;
    for (int d = 0; d < rank; ++d) {
      const factor_list factors = dims[d];
      if (!factors.empty()) result.dim[d] = write_dimension(mesh_, rule, factors, split);
    }
    return result;
  }

  /// Fills the padding of dimensions that the op reduces with the value that changes nothing.
  constexpr int masked(const instruction& i, const factor_rule& rule, int k, int value, const factor_axes& split) {
    if (i.op->identity == nullptr) return value;
    const extents& shape = g_[i.operand[k]].shape;
    for (int d = 0; d < shape.rank; ++d) {
      const factor_list factors = rule.operand[k][d];
      if (factors.size() != 1 || rule.kind[factors[0]] != factor_kind::reduce) continue;
      const axis_list axes = split[factors[0]];
      if (divides_evenly(mesh_, shape[d], axes)) continue;
      // What an index of padding selects does not matter: it is masked itself.
      if (!is_floating(out_[value].type) && is_floating(i.type)) continue;
      instruction made = builder::make(ops::mask, out_[value].type, extents{}, value);
      made.attribute[0] = d;
      made.scalar = storable(made.type, i.op->identity({g_.code, current_}));
      made.place = {axes, shape[d]};
      const sharding same = layout_of(value).placement;
      value = append(made, shape, same);
    }
    return value;
  }

  /// Integers have no infinity: their largest or smallest value serves.
  [[nodiscard]] static constexpr double storable(dtype type, double value) {
    if (type != dtype::i32) return value;
    return std::clamp<double>(value, std::numeric_limits<std::int32_t>::min(),
                              std::numeric_limits<std::int32_t>::max());
  }

  // --- which factor is split by which axes ----------------------------------------------------------------------

  /// What each tensor says of each factor: the operands as they are, the result as it is wanted.
  struct proposals {
    factor_axes by[max_operands + 1];
    int count = 0;
  };

  [[nodiscard]] constexpr proposals propose(int id, const factor_rule& rule) const {
    const instruction& i = g_[id];
    proposals result;
    const auto read = [&](const sharding& s, const factor_list* dims) {
      factor_axes& into = result.by[result.count++];
      for (int d = 0; d < s.rank; ++d) {
        if (!s.dim[d].empty() && !dims[d].empty()) read_dimension(mesh_, rule, dims[d], s.dim[d], into);
      }
    };
    read(of_[id], rule.result);
    for (int k = 0; k < i.operand_count; ++k) read(layout_of(value_[i.operand[k]]).placement, rule.operand[k]);
    return result;
  }

  constexpr factor_axes choose(int id, const factor_rule& rule, axis_mask pending) {
    factor_axes agreed;
    if (agree(id, rule, pending, agreed) && is_faithful(id, rule, agreed)) return agreed;
    return search(id, rule, propose(id, rule), pending);
  }

  /// The usual case: nobody contradicts anybody.
  [[nodiscard]] constexpr bool agree(int id, const factor_rule& rule, axis_mask pending, factor_axes& result) const {
    const instruction& i = g_[id];
    if (!join(of_[id], rule.result, rule, result)) return false;
    const factor_axes wanted = result;
    for (int k = 0; k < i.operand_count; ++k) {
      if (!join(layout_of(value_[i.operand[k]]).placement, rule.operand[k], rule, result)) return false;
    }
    axis_mask used = pending;
    for (int f = 0; f < rule.count; ++f) {
      const axis_list axes = result[f];
      if (axes.empty()) continue;
      const axis_mask mask = axes.mask();
      if (rule.kind[f] == factor_kind::blocked || (used & mask) != 0) return false;
      // A result that is wanted whole may be cheaper to compute whole.
      if (rule.kind[f] == factor_kind::pass && wanted[f].empty()) return false;
      used |= mask;
    }
    return true;
  }
  /// Adds what one tensor says of the factors, unless it contradicts what others said.
  [[nodiscard]] constexpr bool join(const sharding& s, const factor_list* dims, const factor_rule& rule,
                                    factor_axes& known) const {
    for (int d = 0; d < s.rank; ++d) {
      if (s.dim[d].empty() || dims[d].empty()) continue;
      if (dims[d].code() < 16U) {
        if (!join(dims[d][0], s.dim[d], known)) return false;
        continue;
      }
      factor_axes read;
      read_dimension(mesh_, rule, dims[d], s.dim[d], read);
      for (int n = 0; n < dims[d].size(); ++n) {
        if (!join(dims[d][n], read[dims[d][n]], known)) return false;
      }
    }
    return true;
  }
  [[nodiscard]] static constexpr bool join(int f, axis_list said, factor_axes& known) {
    if (said.empty()) return true;
    if (!known[f].empty()) return known[f] == said;
    known.set(f, said);
    return true;
  }

  /// Otherwise every assignment of the axes involved to factors is priced: bytes to bring the operands there, bytes
  /// to bring the result to its layout, and the work that is left to each device.
  constexpr factor_axes search(int id, const factor_rule& rule, const proposals& said, axis_mask pending) {
    assignment now;
    axis_mask involved = 0;
    std::uint32_t factors_of[max_axes]{};
    for (int t = 0; t < said.count; ++t) {
      for (int f = 0; f < rule.count; ++f) {
        const axis_list list = said.by[t][f];
        if (list.empty()) continue;
        involved |= list.mask() & ~pending;
        if (rule.kind[f] == factor_kind::blocked) continue;
        for (int n = 0; n < list.size(); ++n) factors_of[list[n]] |= 1U << static_cast<unsigned>(f);
      }
    }
    // The axes of a dimension that has to be whole may split another one meanwhile, which moves less than gathering.
    for (int axis = 0; axis < mesh_.rank; ++axis) {
      if (!has_axis(involved, axis) || factors_of[axis] != 0) continue;
      for (int f = 0; f < rule.count; ++f) {
        const bool splits = rule.kind[f] == factor_kind::pass && rule.size[f] >= mesh_.size[axis];
        if (splits) factors_of[axis] |= 1U << static_cast<unsigned>(f);
      }
    }
    now.axes = list_of(involved);
    now.count = now.axes.size();
    note_factors(id, rule, now);
    priced_.clear();
    // What some tensor says is likely to be good: with its price as a limit, most others are soon too expensive.
    for (int n = 0; n < now.count; ++n) now.factor[n] = first_factor(rule, said, now.axes[n]);
    factor_axes best = assemble(rule, said, now);
    double best_cost = price(id, rule, best, now, pending, -1);
    for (int n = 0; n < now.count; ++n) now.factor[n] = -1;
    for (;;) {
      const factor_axes candidate = assemble(rule, said, now);
      const double cost = price(id, rule, candidate, now, pending, best_cost);
      if (cost >= 0) {
        best = candidate;
        best_cost = cost;
      }
      int n = 0;
      for (; n < now.count; ++n) {
        int& factor = now.factor[n];
        do {
          ++factor;
        } while (factor < rule.count && (factors_of[now.axes[n]] >> static_cast<unsigned>(factor) & 1U) == 0);
        if (factor < rule.count) break;
        factor = -1;
      }
      if (n == now.count) break;
    }
    return best;
  }

  /// Which factor each axis splits, or -1; and what each tensor (the operands, then the result) has to do with it.
  struct assignment {
    axis_list axes;
    int count = 0;
    int factor[max_axes]{};
    bool compound = false;
    std::uint32_t factors_of[max_operands + 1]{};
  };
  /// The price of one tensor under the part of an assignment that concerns it.
  struct priced {
    int tensor = 0;
    std::uint32_t key = 0;
    double cost = 0;
  };

  constexpr void note_factors(int id, const factor_rule& rule, assignment& now) const {
    const instruction& i = g_[id];
    const auto note = [&](const factor_list* dims, int rank, std::uint32_t& factors) {
      for (int d = 0; d < rank; ++d) {
        factors |= dims[d].mask();
        now.compound = now.compound || dims[d].code() > 15U;
      }
    };
    for (int k = 0; k < i.operand_count; ++k) {
      note(rule.operand[k], g_.operand(id, k).shape.rank, now.factors_of[k]);
    }
    note(rule.result, i.shape.rank, now.factors_of[i.operand_count]);
    // Along reduced factors the result is a pending sum.
    for (int f = 0; f < rule.count; ++f) {
      if (rule.kind[f] == factor_kind::reduce) now.factors_of[i.operand_count] |= 1U << static_cast<unsigned>(f);
    }
  }

  /// The factor that an axis splits in the first tensor that has it: the result, if it does.
  [[nodiscard]] static constexpr int first_factor(const factor_rule& rule, const proposals& said, int axis) {
    for (int t = 0; t < said.count; ++t) {
      for (int f = 0; f < rule.count; ++f) {
        if (rule.kind[f] != factor_kind::blocked && said.by[t][f].contains(axis)) return f;
      }
    }
    return -1;
  }

  /// The axes given to each factor, in the order in which some tensor already has them.
  [[nodiscard]] static constexpr factor_axes assemble(const factor_rule& rule, const proposals& said,
                                                      const assignment& now) {
    factor_axes result;
    axis_mask several = 0;
    for (int n = 0; n < now.count; ++n) {
      const int f = now.factor[n];
      if (f < 0) continue;
      if (!result[f].empty()) several |= 1U << static_cast<unsigned>(f);
      result.set(f, result[f].with(now.axes[n]));
    }
    if (several == 0) return result;
    for (int f = 0; f < rule.count; ++f) {
      if ((several >> static_cast<unsigned>(f) & 1U) == 0) continue;
      const axis_mask given = result[f].mask();
      axis_list order;
      for (int t = 0; t < said.count; ++t) {
        const axis_list one = said.by[t][f];
        for (int n = 0; n < one.size(); ++n) {
          if (has_axis(given, one[n]) && !order.contains(one[n])) order = order.with(one[n]);
        }
      }
      result.set(f, order.followed_by(result[f].without(order.mask())));
    }
    return result;
  }

  /// Bytes of communication, plus the local work expressed in bytes: a device does about 40 operations in the time it
  /// takes to send one byte. Negative if a compound dimension cannot be split like this, or if it is not below `limit`
  /// (which is none when negative).
  constexpr double price(int id, const factor_rule& rule, const factor_axes& split, const assignment& now,
                         axis_mask pending, double limit) {
    const instruction& i = g_[id];
    if (now.compound && !is_faithful(id, rule, split)) return -1;
    axis_mask used = pending;
    for (int n = 0; n < now.count; ++n) used |= now.factor[n] >= 0 ? bit_of(now.axes[n]) : 0;
    const double work = static_cast<double>(i.op->flops == nullptr ? 0 : i.op->flops({g_.code, id}));
    double cost = work / static_cast<double>(mesh_.parts(used)) / 40.0;
    for (int t = 0; t <= i.operand_count; ++t) {
      if (limit >= 0 && cost >= limit) return -1;
      cost += price_of_tensor(id, rule, split, now, t);
    }
    return limit >= 0 && cost >= limit ? -1 : cost;
  }

  /// Only the axes on its own factors matter to a tensor, so many assignments share its price.
  constexpr double price_of_tensor(int id, const factor_rule& rule, const factor_axes& split, const assignment& now,
                                   int t) {
    std::uint32_t key = 0;
    for (int n = 0; n < now.count; ++n) {
      const int f = now.factor[n];
      const bool concerned = f >= 0 && (now.factors_of[t] >> static_cast<unsigned>(f) & 1U) != 0;
      key = key << 4U | static_cast<std::uint32_t>(concerned ? f + 1 : 0);
    }
    for (const priced& known : priced_) {
      if (known.key == key && known.tensor == t) return known.cost;
    }
    const double cost =
        t < g_[id].operand_count ? price_of_operand(id, rule, split, t) : price_of_result(id, rule, split);
    priced_.push_back({t, key, cost});
    return cost;
  }
  [[nodiscard]] constexpr double price_of_operand(int id, const factor_rule& rule, const factor_axes& split,
                                                  int k) const {
    const int value = value_[g_[id].operand[k]];
    const layout& from = layout_of(value);
    sharding wanted = required(rule.operand[k], from.shape.rank, rule, split);
    wanted.unreduced = from.placement.unreduced;
    return found(value, wanted) >= 0 ? 0 : price_of_reshard(from.shape, out_[value].type, from.placement, wanted);
  }
  [[nodiscard]] constexpr double price_of_result(int id, const factor_rule& rule, const factor_axes& split) const {
    const instruction& i = g_[id];
    sharding made = required(rule.result, i.shape.rank, rule, split);
    for (int f = 0; f < rule.count; ++f) {
      if (rule.kind[f] == factor_kind::reduce) made.unreduced |= split[f].mask();
    }
    sharding wanted = of_[id];
    wanted.unreduced = 0;
    return price_of_reshard(i.shape, i.type, made, wanted);
  }
  /// Bytes, and of plans with equally many bytes the one with fewer steps.
  [[nodiscard]] constexpr double price_of_reshard(const extents& shape, dtype type, const sharding& from,
                                                  const sharding& to) const {
    if (from.same_layout(to)) return 0;
    const reshard_plan plan = plan_reshard(mesh_, shape, type, from, to, collective_latency);
    return static_cast<double>(plan.bytes) + 0.01 * plan.count;
  }

  /// Whether all tensors of the op can be split like this; only reshapes have compound dimensions, whose factors
  /// cannot be split unevenly.
  [[nodiscard]] constexpr bool is_faithful(int id, const factor_rule& rule, const factor_axes& split) const {
    const instruction& i = g_[id];
    if (!faithful(rule.result, i.shape.rank, rule, split)) return false;
    for (int k = 0; k < i.operand_count; ++k) {
      if (!faithful(rule.operand[k], g_.operand(id, k).shape.rank, rule, split)) return false;
    }
    return true;
  }

  /// Every factor's axes can be read back from the dimensions that contain it.
  [[nodiscard]] constexpr bool faithful(const factor_list* dims, int rank, const factor_rule& rule,
                                        const factor_axes& split) const {
    for (int d = 0; d < rank; ++d) {
      if (dims[d].code() < 16U) continue;  // at most one factor
      factor_axes read;
      read_dimension(mesh_, rule, dims[d], write_dimension(mesh_, rule, dims[d], split), read);
      for (int n = 0; n < dims[d].size(); ++n) {
        if (!(read[dims[d][n]] == split[dims[d][n]])) return false;
      }
    }
    return true;
  }

  // --- the order of instructions ----------------------------------------------------------------------------------

  /// Moves what stands inside a loop without belonging to it before that loop.
  constexpr void arrange() {
    const list<instruction> before = static_cast<list<instruction>&&>(out_.result().code);
    const int size = before.size();
    arrangement a{before, list<int>(size + 1, -1), list<int>(size, -1), list<int>(size, -1), list<int>(size, -1), {},
                  {}};
    for (int id = size - 1; id >= 0; --id) {
      const instruction& i = before[id];
      if (i.op == &ops::loop_end) a.end[i.operand[0]] = id;
      int& head = a.head[i.loop < 0 ? size : i.loop];
      a.next[id] = head;
      head = id;
    }
    a.made.reserve(size);
    a.origin.reserve(size);
    int cursor = a.head[size];
    arrange_region(a, cursor, size);
    out_.result().code = static_cast<list<instruction>&&>(a.made);
    origin_ = static_cast<list<int>&&>(a.origin);
  }

  /// By loop (outside: the last entry) its first instruction, and the one that follows each.
  struct arrangement {
    const list<instruction>& before;
    list<int> head;
    list<int> next;
    list<int> end;
    list<int> number;
    list<instruction> made;
    list<int> origin;
  };

  constexpr void arrange_region(arrangement& a, int& cursor, int last) {
    while (cursor >= 0 && cursor < last) {
      const int id = cursor;
      cursor = a.next[id];
      if (a.before[id].op == &ops::loop_begin) {
        arrange_region(a, cursor, a.end[id]);
        emit(a, id);
        int body = a.head[id];
        arrange_region(a, body, a.before.size());
      } else {
        emit(a, id);
      }
    }
  }

  constexpr void emit(arrangement& a, int id) {
    instruction i = a.before[id];
    for (int k = 0; k < i.operand_count; ++k) i.operand[k] = a.number[i.operand[k]];
    if (i.loop >= 0) i.loop = a.number[i.loop];
    a.number[id] = a.made.push_back(i);
    a.origin.push_back(origin_[id]);
  }

  const mesh_shape& mesh_;
  graph_view g_;
  const factor_rule* rules_;
  const sharding* of_;
  list<sharding> nontrivial_;
  /// How many instructions read a value, and the last of them.
  list<int> readers_;
  list<int> reader_;
  list<int> value_;
  /// Where a value is the outcome of a pending sum, that sum's terms.
  list<int> unsettled_;
  list<int> next_variant_;
  list<variant> variants_;
  list<priced> priced_;
  list<int> initial_;
  int first_initial_ = 0;
  builder out_;
  list<int> origin_;
  int current_ = 0;
  /// Some instruction stands in a loop that it does not belong to.
  bool hoisted_ = false;
  partition_fault fault_ = partition_fault::nothing;
  int fault_at_ = -1;
};

}  // namespace detail

/// Turns a completed graph into the program of one device (GSPMD section 4): local shapes, and explicit collectives
/// where layouts meet.
constexpr partitioned partition(const mesh_shape& mesh, graph_view g, const factor_rule* rules, const sharding* of) {
  return detail::partitioner(mesh, g, rules, of).run();
}

}  // namespace espalier
