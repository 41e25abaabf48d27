// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/partition/halo_room.hpp>
#include <espalier/tensor/core/partition/overwritten_values.hpp>
#include <espalier/tensor/core/partition/scheduled_program.hpp>
#include <espalier/tensor/core/partition/shared_buffers.hpp>

namespace espalier::detail {

/// Finds carries of loops whose next value is computed in their own place: x + a d, where nothing reads the x of this
/// iteration afterwards. Nothing is copied then, and the next value has no buffer of its own.
class carried_in_place {
 public:
  constexpr carried_in_place(const scheduled_program& program, const shared_buffers& buffers, const halo_room& halos,
                             const overwritten_values& overwritten)
      : g_(program.g), s_(program.s), buffers_(buffers), halos_(halos), overwritten_(overwritten) {}

  /// Whether a fused chain may write the value that `region_yield` instruction `next` passes on over the carry.
  [[nodiscard]] constexpr bool may_overwrite_carry(int next) const {
    const int carry = parameter_of(g_[next]);
    const int value = yielded_by(g_[next]);
    if (value == carry || g_[value].region != g_[carry].region || structure_of(g_[value]) != structure::none)
      return false;
    for (const int one : {carry, value}) {
      if (buffers_.root[one] != one || !buffers_.is_plain(one)) return false;
    }
    if (halos_.is_enlarged(value) || !(g_[value].shape == g_[carry].shape) || g_[value].type != g_[carry].type)
      return false;
    for (int other = buffers_.sharer[value]; other >= 0; other = buffers_.next_sharer[other]) {
      if (!buffers_.is_plain(other)) return false;
    }
    const int at = s_.launch_of[value];
    const launch& chain = s_.launches[at];
    if (!chain.fused || chain.reads_again || chain.region_end >= 0) return false;
    if (overwritten_.last_read(carry) > at) return false;
    for (int other = buffers_.sharer[carry]; other >= 0; other = buffers_.next_sharer[other]) {
      if (structure_of(g_[other]) != structure::region_yield && overwritten_.last_read(other) > at) return false;
    }
    return reads_before_it_writes(chain, carry, value);
  }

 private:
  /// Whether a chain reads the carry row by row, at the place where the value is, and no longer once it has written it.
  [[nodiscard]] constexpr bool reads_before_it_writes(const launch& chain, int carry, int value) const {
    bool is_written = false;
    for (int n = chain.first; n < chain.first + chain.count; ++n) {
      const instruction& i = g_[s_.order[n]];
      for (int k = 0; k < i.operand_count; ++k) {
        const int operand = g_.operand_at(i, k);
        int from = operand;
        while (buffers_.root[from] < 0 && is_read_through(g_[from])) from = g_[from].operand[0];
        if (buffers_.root[from] == carry && (operand != carry || is_written)) return false;
      }
      is_written = is_written || s_.order[n] == value;
    }
    return true;
  }

  graph_view g_;
  schedule_view s_;
  const shared_buffers& buffers_;
  const halo_room& halos_;
  const overwritten_values& overwritten_;
};

}  // namespace espalier::detail
