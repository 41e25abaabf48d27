// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/reshard_direct.hpp>
#include <espalier/tensor/core/partition/reshard_search.hpp>
#include <espalier/tensor/core/partition/reshard_step.hpp>
#include <espalier/tensor/core/partition/transfer.hpp>

#include <bit>
#include <cstdint>
#include <exception>
#include <limits>

namespace espalier {

/// Raised, or refused by the compiler, where no plan exists.
class impossible_reshard : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override {
    return "reshard: a sum that is not pending cannot be left pending; the target's unreduced axes must be unreduced "
           "in the source, and both need the same rank";
  }
};

namespace detail {

/// A placement without the axes that have a single device: they split nothing and hold no sum.
[[nodiscard]] constexpr sharding without_axes(const sharding& placement, axis_mask removed) {
  sharding result = placement;
  for (int d = 0; d < result.rank; ++d) result.dim[d] = result.dim[d].without(removed);
  result.unreduced &= ~removed;
  return result;
}

static_assert(max_axes == 8);
[[nodiscard]] constexpr axis_mask axes_of_one(const mesh_shape& mesh) {
  const int* n = &mesh.size[0];
  return (n[0] == 1 ? 1U : 0U) | (n[1] == 1 ? 2U : 0U) | (n[2] == 1 ? 4U : 0U) | (n[3] == 1 ? 8U : 0U) |
         (n[4] == 1 ? 16U : 0U) | (n[5] == 1 ? 32U : 0U) | (n[6] == 1 ? 64U : 0U) | (n[7] == 1 ? 128U : 0U);
}

[[nodiscard]] constexpr reshard_task task_of(const mesh_shape& mesh, const extents& shape, dtype type,
                                             const sharding& from, const sharding& to, std::int64_t latency) {
  reshard_task task{mesh, shape, size_of(type), latency, from, to};
  if (const axis_mask trivial = axes_of_one(mesh); trivial != 0) {
    task.from = without_axes(from, trivial);
    task.to = without_axes(to, trivial);
  }
  if ((task.to.unreduced & ~task.from.unreduced) != 0 || from.rank != to.rank) throw impossible_reshard();
  return task;
}

/// `same_layout` in fewer steps.
[[nodiscard]] constexpr bool agree(const sharding& a, const sharding& b) {
  return a.rank == b.rank && same_placement(std::bit_cast<placement_codes>(a), std::bit_cast<placement_codes>(b));
}

/// A plan that is cheaper than one already known; empty if there is none.
[[nodiscard]] constexpr reshard_plan undercut(const reshard_task& task, const direct_reshard& known) {
  const std::int64_t limit = known.cost();
  reshard_search search(task);
  const reshard_plan plan = search.run(limit);
  return search.gave_up ? search_difference(task, limit) : plan;
}

}  // namespace detail

/// The cheapest steps that change how a tensor is placed, and the bytes each device sends for them (GSPMD section 4.5,
/// without its last resort of replicating everything). Cheapest means: fewest bytes by the formulas of `step_bytes`,
/// plus `latency` bytes for each collective; then fewest collectives. Sums partial in both placements stay partial.
/// (On meshes of five and more axes, when nearly all of them change their dimension, the search gives up after
/// thousands of placements and searches only plans that leave in place what both placements share.)
/// @pre a sum partial in `to` is partial in `from`; `latency` is not negative.
/// @post the last step leaves `to`; no steps if the placements agree
[[nodiscard]] constexpr reshard_plan plan_reshard(const mesh_shape& mesh, const extents& shape, dtype type,
                                                  const sharding& from, const sharding& to, std::int64_t latency = 0) {
  reshard_plan plan = detail::empty_plan;
  if (detail::agree(from, to)) return plan;
  const detail::reshard_task task = detail::task_of(mesh, shape, type, from, to, latency);
  const detail::direct_reshard direct(task, std::bit_cast<detail::placement_codes>(task.from), &plan);
  plan.bytes = direct.bytes;
  if (!direct.optimal) {
    const reshard_plan better = detail::undercut(task, direct);
    if (better.count > 0) plan = better;
  }
  // Placements that differ in axes of one device only still get a step that says so.
  if (plan.count == 0) plan.count = 1;
  plan.step[plan.count - 1].after = to;
  return plan;
}

/// The bytes that `plan_reshard` would report, without building the plan where that is easy.
/// @post as many as plan_reshard's plan has
[[nodiscard]] constexpr std::int64_t reshard_bytes(const mesh_shape& mesh, const extents& shape, dtype type,
                                                   const sharding& from, const sharding& to, std::int64_t latency = 0) {
  if (detail::agree(from, to)) return 0;
  const detail::reshard_task task = detail::task_of(mesh, shape, type, from, to, latency);
  const detail::direct_reshard direct(task, std::bit_cast<detail::placement_codes>(task.from), nullptr);
  if (direct.optimal) return direct.bytes;
  const reshard_plan better = detail::undercut(task, direct);
  return better.count > 0 ? better.bytes : direct.bytes;
}

/// The bytes `device` sends to others in one step: real elements only, also where a dimension splits unevenly. An
/// all_reduce is a reduce_scatter and an all_gather of near-equal shares.
[[nodiscard]] constexpr std::int64_t sent_bytes(const mesh_shape& mesh, const extents& shape, dtype type,
                                                const reshard_step& step, const sharding& before, int device) {
  if (step.kind == collective::local_slice) return 0;
  const axis_list group = list_of(step.axes);
  const std::int64_t n = mesh.parts(group);
  const detail::tensor_box held = detail::box_of(mesh, shape, before, device);
  const std::int64_t elements = detail::elements_of(held, shape.rank);
  if (step.kind == collective::all_gather) return elements * (n - 1) * size_of(type);
  if (step.kind == collective::all_reduce) {
    const std::int64_t position = mesh.position(device, group);
    const std::int64_t share = elements / n + (position < elements % n ? 1 : 0);
    return (elements + share * (n - 2)) * size_of(type);
  }
  std::int64_t sent = 0;
  if (step.kind == collective::exchange) {
    const detail::shared_sending shares(mesh, shape, before, step.after, step.axes);
    shares.for_each_sent(device, [&](int, const piece& p) { sent += detail::elements_of(p, shape.rank); });
    return sent * size_of(type);
  }
  const detail::sender_choice choice(before, step.after, step.axes);
  for (int position = 0; position < n; ++position) {
    const int receiver = mesh.member(device, group, position);
    const bool serves = step.kind == collective::reduce_scatter ||
                        choice.sender(mesh, receiver, mesh.position(device, choice.holders)) == device;
    if (receiver == device || !serves) continue;
    sent += detail::common_elements(held, detail::box_of(mesh, shape, step.after, receiver), shape.rank);
  }
  return sent * size_of(type);
}

/// The most that any device sends, or of permutations and exchanges receives, in one step. The work for these two is
/// the same on every mesh.
[[nodiscard]] constexpr std::int64_t most_sent_bytes(const mesh_shape& mesh, const extents& shape, dtype type,
                                                     const reshard_step& step, const sharding& before) {
  if (step.kind != collective::exchange && step.kind != collective::collective_permute)
    return sent_bytes(mesh, shape, type, step, before, detail::holder_of_first(mesh, before));
  const detail::reshard_task task = detail::task_of(mesh, shape, type, before, step.after, 0);
  return detail::exchange_bytes(task, std::bit_cast<detail::placement_codes>(task.from),
                                std::bit_cast<detail::placement_codes>(task.to));
}

}  // namespace espalier
