// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/graph/factor_axes.hpp>
#include <espalier/tensor/core/partition/local_program.hpp>
#include <espalier/tensor/core/partition/machine.hpp>

#include <cstdint>

namespace espalier::detail {

/// A tensor of these dimensions when each factor is split by the axes given to it.
[[nodiscard]] constexpr sharding required(const mesh_shape& mesh, const factor_list* dims, int rank,
                                          const factor_rule& rule, const factor_axes& split) {
  sharding result = empty_sharding;
  result.rank = rank;
  for (int d = 0; d < rank; ++d) {
    const factor_list factors = dims[d];
    if (!factors.empty()) result.dim[d] = write_dimension(mesh, rule, factors, split);
  }
  return result;
}

/// The windows through which operand `k` is read, over factors that are split like this.
[[nodiscard]] constexpr placed_windows windows_over(graph_view g, int id, int k, const factor_rule& rule,
                                                    const factor_axes& split) {
  placed_windows windows;
  window of_dimension[max_rank];
  windows.dims = g[id].op->windows(g.view(id), k, &of_dimension[0]);
  for (int d = 0; d < g.operand(id, k).shape.rank; ++d) {
    if ((windows.dims >> static_cast<unsigned>(d) & 1U) == 0) continue;
    const int factor = rule.dims_of(k)[d][0];
    windows.window[windows.count++] = place_window(of_dimension[d], d, rule.size[factor], split[factor]);
  }
  return windows;
}

/// Decides which factors of an op are split by which axes.
class factor_choice {
 public:
  /// `value` says by which value of the device's program a traced one is held now, `of` how completion wants it.
  constexpr factor_choice(const mesh_shape& mesh, graph_view g, const sharding* of, const local_program& program,
                          const list<int>& value)
      : mesh_(mesh), g_(g), of_(of), program_(program), value_(value) {}

  /// @param partial the axes over which the result will be a partial because operands are.
  constexpr factor_axes run(int id, const factor_rule& rule, axis_mask partial) {
    factor_axes agreed;
    if (agree(id, rule, partial, agreed) && is_faithful(id, rule, agreed)) {
      axis_mask used = partial;
      for (int f = 0; f < rule.count; ++f) used |= agreed[f].mask();
      if (worth_splitting(id, used) == 0) return agreed;
    }
    return search(id, rule, propose(id, rule), partial);
  }

 private:
  /// The axes that each tensor proposes for each factor: the operands as they are, the result as it is wanted.
  struct proposals {
    list<factor_axes> by;
    int count = 0;
  };

  [[nodiscard]] constexpr proposals propose(int id, const factor_rule& rule) const {
    const instruction& i = g_[id];
    proposals result;
    const int further = further_results(g_.code, g_.size, id);
    result.by.resize(i.operand_count + 1 + further);
    const auto read = [&](const sharding& s, const factor_list* dims) {
      factor_axes& into = result.by[result.count++];
      for (int d = 0; d < s.rank; ++d) {
        if (!s.dim[d].empty() && !dims[d].empty()) read_dimension(mesh_, rule, dims[d], s.dim[d], into);
      }
    };
    read(of_[id], rule.result);
    for (int n = 1; n <= further; ++n) read(of_[id + n], rule.dims_of_result(n));
    for (int k = 0; k < i.operand_count; ++k)
      read(program_.layout_of(value_[g_.operand_at(i, k)]).placement, rule.dims_of(k));
    return result;
  }

  /// Handles the usual case, in which no two layouts contradict each other.
  [[nodiscard]] constexpr bool agree(int id, const factor_rule& rule, axis_mask partial, factor_axes& result) const {
    const instruction& i = g_[id];
    if (!join(of_[id], rule.result, rule, result)) return false;
    for (int n = further_results(g_.code, g_.size, id); n > 0; --n) {
      if (!join(of_[id + n], rule.dims_of_result(n), rule, result)) return false;
    }
    const factor_axes wanted = result;
    for (int k = 0; k < i.operand_count; ++k) {
      if (!join(program_.layout_of(value_[g_.operand_at(i, k)]).placement, rule.dims_of(k), rule, result)) return false;
    }
    axis_mask used = partial;
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

  /// The axes that no tensor names, along which devices repeat one another's work: those of an op that is dearer than
  /// putting its result together from parts again. Else none. `used` are the axes that are named.
  [[nodiscard]] constexpr axis_mask worth_splitting(int id, axis_mask used) const {
    const auto idle = static_cast<axis_mask>(((1U << static_cast<unsigned>(mesh_.rank)) - 1U) & ~used);
    const instruction& i = g_[id];
    if (idle == 0 || i.op->flops == nullptr) return 0;
    const std::int64_t split = mesh_.parts(idle);
    if (split == 1) return 0;
    const std::int64_t work = i.op->flops(g_.view(id));
    std::int64_t touched = i.shape.elements();
    for (int k = 0; k < i.operand_count; ++k) touched += g_.operand(id, k).shape.elements();
    if (work < touched * bound_by_memory_below) return 0;  // to cut its operands takes as long
    const double saved = 1 - 1 / static_cast<double>(split);
    const double moved =
        static_cast<double>(i.shape.elements() * size_of(i.type)) / static_cast<double>(mesh_.parts(of_[id].tiled()));
    const double repeated = static_cast<double>(work) / static_cast<double>(mesh_.parts(used)) / operations_per_byte;
    return (repeated - moved) * saved > unasked_collective ? idle : 0;
  }

  /// Otherwise every assignment of the axes involved to factors is priced: bytes to bring the operands there, bytes
  /// to bring the result to its layout, and the work that is left to each device.
  constexpr factor_axes search(int id, const factor_rule& rule, const proposals& said, axis_mask partial) {
    assignment now;
    axis_mask involved = 0;
    std::uint32_t factors_of[max_axes]{};
    for (int t = 0; t < said.count; ++t) {
      for (int f = 0; f < rule.count; ++f) {
        const axis_list list = said.by[t][f];
        if (list.empty()) continue;
        involved |= list.mask() & ~partial;
        if (rule.kind[f] == factor_kind::blocked) continue;
        for (int n = 0; n < list.size(); ++n) factors_of[axis_of_entry(list[n])] |= 1U << static_cast<unsigned>(f);
      }
    }
    const axis_mask idle = worth_splitting(id, partial | involved);
    involved |= idle;
    // The axes of a dimension that has to be whole may split another one meanwhile, which moves less than gathering.
    for (int axis = 0; axis < mesh_.rank; ++axis) {
      if (!has_axis(involved, axis) || factors_of[axis] != 0) continue;
      for (int f = 0; f < rule.count; ++f) {
        const bool may_split =
            rule.kind[f] == factor_kind::pass || (rule.kind[f] == factor_kind::reduce && has_axis(idle, axis));
        const bool splits = may_split && rule.size[f] >= mesh_.size[axis];
        if (splits) factors_of[axis] |= 1U << static_cast<unsigned>(f);
      }
    }
    now.axes = list_of(involved);
    now.count = now.axes.size();
    note_factors(id, rule, now);
    // The proposal of some tensor is likely to be good: with its price as a limit, most others are soon too expensive.
    for (int n = 0; n < now.count; ++n) now.factor[n] = first_factor(rule, said, now.axes[n]);
    priced_.clear();
    factor_axes best = assemble(rule, said, now, 0);
    double best_cost = price(id, rule, best, now, partial, -1);
    for (int leader = 0; leader < said.count; ++leader) {
      if (leader > 0 && !has_order_of_its_own(rule, said, leader)) continue;
      // A price is remembered by the factors of the axes, without their order.
      if (leader > 0) priced_.clear();
      for (bool more = first_assignment(now); more; more = next_assignment(rule, now, &factors_of[0])) {
        if (leader > 0 && mesh_.ordered == 0 && !gives_several(now)) continue;
        const factor_axes candidate = assemble(rule, said, now, leader);
        const double cost = price(id, rule, candidate, now, partial, best_cost);
        if (cost < 0) continue;
        best = candidate;
        best_cost = cost;
      }
    }
    return best;
  }

  /// The factor that each axis splits, or -1; and the effect of the axes on each tensor (the operands, then the
  /// result).
  struct assignment {
    axis_list axes;
    int count = 0;
    int factor[max_axes]{};
    bool compound = false;
    list<std::uint32_t> factors_of;
  };
  /// The price of one tensor under the part of an assignment that concerns it.
  struct priced {
    int tensor = 0;
    std::uint32_t key = 0;
    double cost = 0;
  };

  constexpr void note_factors(int id, const factor_rule& rule, assignment& now) const {
    const instruction& i = g_[id];
    now.factors_of.resize(i.operand_count + 1, 0);
    const auto note = [&](const factor_list* dims, int rank, std::uint32_t& factors) {
      for (int d = 0; d < rank; ++d) {
        factors |= dims[d].mask();
        now.compound = now.compound || dims[d].code() > 15U;
      }
    };
    for (int k = 0; k < i.operand_count; ++k) {
      note(rule.dims_of(k), g_.operand(id, k).shape.rank, now.factors_of[k]);
    }
    note(rule.result, i.shape.rank, now.factors_of[i.operand_count]);
    for (int n = further_results(g_.code, g_.size, id); n > 0; --n) {
      note(rule.dims_of_result(n), g_[id + n].shape.rank, now.factors_of[i.operand_count]);
    }
    // The result is a partial along reduced factors.
    for (int f = 0; f < rule.count; ++f) {
      if (rule.kind[f] == factor_kind::reduce) now.factors_of[i.operand_count] |= 1U << static_cast<unsigned>(f);
    }
  }

  /// The assignments are counted through, the first axis fastest; at first no axis splits anything.
  [[nodiscard]] static constexpr bool first_assignment(assignment& now) {
    for (int n = 0; n < now.count; ++n) now.factor[n] = -1;
    return true;
  }
  [[nodiscard]] static constexpr bool next_assignment(const factor_rule& rule, assignment& now,
                                                      const std::uint32_t* factors_of) {
    for (int n = 0; n < now.count; ++n) {
      int& factor = now.factor[n];
      do {
        ++factor;
      } while (factor < rule.count && (factors_of[now.axes[n]] >> static_cast<unsigned>(factor) & 1U) == 0);
      if (factor < rule.count) return true;
      factor = -1;
    }
    return false;
  }
  /// Whether some factor is split by more than one axis.
  [[nodiscard]] static constexpr bool gives_several(const assignment& now) {
    std::uint32_t split = 0;
    for (int n = 0; n < now.count; ++n) {
      if (now.factor[n] < 0) continue;
      const std::uint32_t factor = 1U << static_cast<unsigned>(now.factor[n]);
      if ((split & factor) != 0) return true;
      split |= factor;
    }
    return false;
  }
  /// Whether a tensor has the axes of some factor in another order than all tensors before it.
  [[nodiscard]] constexpr bool has_order_of_its_own(const factor_rule& rule, const proposals& said, int tensor) const {
    for (int f = 0; f < rule.count; ++f) {
      const axis_list order = said.by[tensor][f];
      if (order.code() < 16U && (mesh_.ordered == 0 || order.empty())) continue;
      bool is_new = true;
      for (int t = 0; t < tensor && is_new; ++t) {
        const axis_list before = said.by[t][f];
        is_new = !before.starts_with(order) && (before.empty() || before.without(~order.mask()) != order);
      }
      if (is_new) return true;
    }
    return false;
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

  /// The axes given to each factor, in the order in which some tensor already has them: `leader` if it does, otherwise
  /// the first. The order of devices along an axis is that of the same tensor.
  [[nodiscard]] constexpr factor_axes assemble(const factor_rule& rule, const proposals& said, const assignment& now,
                                               int leader) const {
    factor_axes result;
    axis_mask several = 0;
    for (int n = 0; n < now.count; ++n) {
      const int f = now.factor[n];
      if (f < 0) continue;
      if (!result[f].empty()) several |= 1U << static_cast<unsigned>(f);
      result.set(f, result[f].with(now.axes[n]));
    }
    if (mesh_.ordered != 0) several = ~0U;
    if (several == 0) return result;
    for (int f = 0; f < rule.count; ++f) {
      if ((several >> static_cast<unsigned>(f) & 1U) == 0 || result[f].empty()) continue;
      const axis_mask given = result[f].mask();
      axis_list order;
      for (int t = -1; t < said.count; ++t) {
        const axis_list one = said.by[t < 0 ? leader : t][f];
        for (int n = 0; n < one.size(); ++n) {
          if (has_axis(given, one[n]) && !order.contains(one[n])) order = order.with(one[n]);
        }
      }
      result.set(f, order.followed_by(result[f].without(order.mask())));
    }
    return result;
  }

  /// Bytes of communication, plus the start of each collective and the local work, expressed in bytes
  /// (partition/machine.hpp). Negative if a compound dimension cannot be split like this, or if it is not below `limit`
  /// (which is none when negative).
  constexpr double price(int id, const factor_rule& rule, const factor_axes& split, const assignment& now,
                         axis_mask partial, double limit) {
    const instruction& i = g_[id];
    if (now.compound && !is_faithful(id, rule, split)) return -1;
    axis_mask used = partial;
    for (int n = 0; n < now.count; ++n) used |= now.factor[n] >= 0 ? bit_of(now.axes[n]) : 0;
    const double work = static_cast<double>(i.op->flops == nullptr ? 0 : i.op->flops(g_.view(id)));
    double cost = work / static_cast<double>(mesh_.parts(used)) / operations_per_byte;
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
        t < g_[id].operand_count ? price_of_operand(id, rule, split, t) : price_of_results(id, rule, split);
    priced_.push_back({t, key, cost});
    return cost;
  }
  [[nodiscard]] constexpr double price_of_operand(int id, const factor_rule& rule, const factor_axes& split,
                                                  int k) const {
    const int value = value_[g_.operand_at(g_[id], k)];
    const layout& from = program_.layout_of(value);
    sharding wanted = required(mesh_, rule.dims_of(k), from.shape.rank, rule, split);
    wanted.unreduced = from.placement.unreduced;
    if (g_[id].op->windows != nullptr) {
      const placed_windows windows = windows_over(g_, id, k, rule, split);
      if (windows.count > 0) return price_of_windows(value, wanted, windows);
    }
    if (program_.variant_as(value, wanted) >= 0 || program_.is_made_from_nothing(value)) return 0;
    if (const auto again = program_.padding_around(value, wanted); again.inner >= 0)
      return price_of_windows(again.inner, again.wanted, again.windows);
    return price_of_reshard(from.shape, program_[value].type, from.placement, wanted);
  }
  /// The bytes that windows need and a device lacks: the most of some devices, among them those at both borders of the
  /// mesh and one within. How many are asked does not depend on the mesh.
  [[nodiscard]] constexpr double price_of_windows(int value, const sharding& wanted,
                                                  const placed_windows& windows) const {
    if (const auto again = program_.padding_around(value, wanted); again.inner >= 0)
      return price_of_windows(again.inner, again.wanted, again.windows);
    const layout& from = program_.layout_of(value);
    const dtype type = program_[value].type;
    if (const sharding home = local_program::at_home(mesh_, from, wanted, windows); home.rank >= 0) {
      if (program_.variant_as(value, home) >= 0) return 0;
      if (!program_.brings_less(from, home, wanted, windows))
        return price_of_reshard(from.shape, type, from.placement, home);
    }
    const int devices = mesh_.devices();
    const int step = devices <= 8 ? 1 : devices / 7;
    std::int64_t most = 0;
    for (int device = 0; device < devices; device += step) {
      tensor_box box = box_of(mesh_, from.shape, wanted, device);
      apply_windows(mesh_, from.shape, &windows.window[0], windows.count, device, box);
      const tensor_box held = box_of(mesh_, from.shape, from.placement, device);
      const std::int64_t lacking = elements_of(box, wanted.rank) - elements_met(held, box, from.shape);
      most = larger_of(most, lacking);
    }
    return static_cast<double>(most * size_of(type) + (most > 0 ? collective_latency : 0)) + 0.01;
  }
  [[nodiscard]] constexpr double price_of_results(int id, const factor_rule& rule, const factor_axes& split) const {
    double cost = price_of_result(g_[id], of_[id], rule.result, rule, split);
    for (int n = further_results(g_.code, g_.size, id); n > 0; --n) {
      cost += price_of_result(g_[id + n], of_[id + n], rule.dims_of_result(n), rule, split);
    }
    return cost;
  }
  [[nodiscard]] constexpr double price_of_result(const instruction& i, sharding wanted, const factor_list* dims,
                                                 const factor_rule& rule, const factor_axes& split) const {
    sharding made = required(mesh_, dims, i.shape.rank, rule, split);
    for (int f = 0; f < rule.count; ++f) {
      if (rule.kind[f] == factor_kind::reduce) made.unreduced |= split[f].mask();
    }
    wanted.unreduced = 0;
    // Sums travel as what they are added up in.
    return price_of_reshard(i.shape, made.unreduced != 0 && i.op->facts.adds_up ? facts_of(i.type).accumulate : i.type,
                            made, wanted);
  }
  /// The price of the plan that is going to be made: bytes, and the start of each collective, as the plan itself was
  /// chosen by; of plans that cost the same the one with fewer steps. (By bytes alone, one all_reduce that was planned
  /// because it saves a start would be refused for its bytes, and three collectives made instead.)
  [[nodiscard]] constexpr double price_of_reshard(const extents& shape, dtype type, const sharding& from,
                                                  const sharding& to) const {
    if (from.same_layout(to)) return 0;
    const reshard_plan plan = plan_reshard(mesh_, shape, type, from, to, collective_latency);
    std::int64_t starts = 0;
    for (int n = 0; n < plan.count; ++n) starts += moves_tensors(plan.step[n].kind) ? collective_latency : 0;
    return static_cast<double>(plan.bytes + starts) + 0.01 * plan.count;
  }

  /// Whether all tensors of the op can be split like this; only reshapes have compound dimensions, whose factors
  /// cannot be split unevenly.
  [[nodiscard]] constexpr bool is_faithful(int id, const factor_rule& rule, const factor_axes& split) const {
    const instruction& i = g_[id];
    if (!faithful(rule.result, i.shape.rank, rule, split)) return false;
    for (int k = 0; k < i.operand_count; ++k) {
      if (!faithful(rule.dims_of(k), g_.operand(id, k).shape.rank, rule, split)) return false;
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

  const mesh_shape& mesh_;
  graph_view g_;
  const sharding* of_;
  const local_program& program_;
  const list<int>& value_;
  list<priced> priced_;
};

}  // namespace espalier::detail
