// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/factor_axes.hpp>
#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/partition/machine.hpp>
#include <espalier/tensor/core/partition/plan.hpp>
#include <espalier/tensor/core/partition/reshard.hpp>
#include <espalier/tensor/core/program/complete.hpp>

#include <cstdint>

namespace espalier::detail {

/// Whether an op computes nothing, and only brings operand 0 or 1 to a layout that something else decides; then which
/// of them. An annotation does so, a result, and the border of a loop: an initial value takes the layout of its carry
/// once, and what an iteration passes on takes it in each.
[[nodiscard]] constexpr int operand_moved_by(const instruction& i) {
  const structure part = structure_of(i);
  if (part == structure::region_yield) return 1;
  const bool moves =
      requests_of(i) != layout_request::none || part == structure::result || part == structure::region_parameter;
  return moves ? 0 : -1;
}
/// The value in whose layout such an op leaves its operand.
[[nodiscard]] constexpr int layout_after_move(graph_view g, int id) {
  return structure_of(g[id]) == structure::region_yield ? parameter_of(g[id]) : id;
}

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
  if (const int moved = operand_moved_by(i); moved >= 0) {
    const sharding& before = of[i.operand[moved]];
    const sharding& after = of[layout_after_move(g, id)];
    if (before.unreduced != 0 || after.unreduced != 0) return 0;
    for (int d = 0; d < before.rank; ++d) {
      if (before.dim[d].code() == after.dim[d].code()) continue;
      const axis_mask differs = before.dim[d].mask() ^ after.dim[d].mask();
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

/// The axes that no tensor of an op is split over, along which devices would repeat so much work that to split it is
/// worth a collective that no annotation asks for.
[[nodiscard]] constexpr axis_mask idle_axes(const mesh_shape& mesh, graph_view g, const sharding* of, int id) {
  const instruction& i = g[id];
  // The others compute little of each element.
  if (i.op->flops == nullptr || i.op->fuse != fusion::alone || structure_of(i) != structure::none) return 0;
  const std::int64_t work = i.op->flops(g.view(id));
  if (static_cast<double>(work) <= unasked_collective * operations_per_byte || !has_choice(g, of, id)) return 0;
  std::int64_t touched = i.shape.elements();
  axis_mask used = of[id].tiled();
  for (int k = 0; k < i.operand_count; ++k) {
    touched += g.operand(id, k).shape.elements();
    used |= of[g.operand_at(i, k)].tiled();
  }
  const axis_mask all = (1U << static_cast<unsigned>(mesh.rank)) - 1U;
  const axis_mask idle = all & ~used & ~axes_of_one(mesh);
  if (idle == 0 || work < touched * bound_by_memory_below) return 0;
  const double saved = 1 - 1 / static_cast<double>(mesh.parts(idle));
  const double repeated = static_cast<double>(work) / static_cast<double>(mesh.parts(used)) / operations_per_byte;
  return repeated * saved > unasked_collective ? idle : 0;
}

/// Tensors of fewer bytes in a run cost little more than the start of a message, wherever they are: their layouts stay
/// as completion has chosen them.
inline constexpr std::int64_t least_refined_bytes = 1024;

/// Whether some tensor of an op has this many bytes, in all iterations of the loops around it.
[[nodiscard]] constexpr bool has_bytes(graph_view g, int id, std::int64_t bytes) {
  const std::int64_t times = g[id].region < 0 ? 1 : repetitions(g, id);
  if (times * g[id].shape.elements() * size_of(g[id].type) >= bytes) return true;
  for (int k = 0; k < g[id].operand_count; ++k) {
    const instruction& operand = g.operand(id, k);
    if (times * operand.shape.elements() * size_of(operand.type) >= bytes) return true;
  }
  return false;
}

/// The first instruction from `first` up to `last` whose tensors have to move, or -1.
[[nodiscard]] constexpr int first_dispute(const mesh_shape& mesh, graph_view g, const factor_rule* rules,
                                          const sharding* of, int first, int last) {
  for (int id = first; id < last && id < g.size; ++id) {
    const bool may_move = disputed_axes(mesh, g, rules[id], of, id) != 0 || idle_axes(mesh, g, of, id) != 0;
    if (may_move && has_bytes(g, id, least_refined_bytes)) return id;
  }
  return -1;
}

}  // namespace espalier::detail
