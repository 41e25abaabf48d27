// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/partition/carried_in_place.hpp>
#include <espalier/tensor/core/partition/halo_room.hpp>
#include <espalier/tensor/core/partition/overwritten_values.hpp>
#include <espalier/tensor/core/partition/scheduled_program.hpp>
#include <espalier/tensor/core/partition/shared_buffers.hpp>

#include <cstdint>

namespace espalier::detail {

/// Finds for each value whether it has a buffer of its own or shares another one's.
class buffer_sharing {
 public:
  constexpr buffer_sharing(const scheduled_program& program, shared_buffers& buffers, halo_room& halos)
      : g_(program.g),
        s_(program.s),
        buffers_(buffers),
        halos_(halos),
        overwritten_(program, buffers),
        carried_(program, buffers, halos, overwritten_) {}

  constexpr void run() {
    for (int id = 0; id < g_.size; ++id) {
      const instruction& i = g_[id];
      switch (structure_of(i)) {
        case structure::argument:
          buffers_.own(id);
          buffers_.within[id].space = memory_space::argument;
          buffers_.within[id].index = attributes_of<border_attributes>(i).number;
          break;
        case structure::result:
        case structure::region_begin:
        case structure::region_end: break;
        case structure::region_yield:
          buffers_.share(id, i.operand[0]);
          if (region_kind_of(g_[i.region]) == region_kind::branch) {
            compute_in_place(id);
          } else if (carried_.may_overwrite_carry(id)) {
            put_in_place_of(i.operand[1], i.operand[0]);
          } else if (halos_.may_alternate(id)) {
            halos_.alternate(id);
          }
          buffers_.copied[id] = buffers_.root[i.operand[1]] != buffers_.root[id];
          break;
        case structure::loop_slice:
          buffers_.share(id, i.operand[0]);
          buffers_.slice(id, i.operand[0], i.region, bytes_of(i));
          break;
        case structure::loop_stack:
          buffers_.own(id);
          stack(id);
          break;
        case structure::none:
        case structure::region_parameter:
        case structure::region_result:
        case structure::loop_sum:
          if (i.op->facts.shares_operand) {
            buffers_.share(id, i.operand[0]);
          } else if (halos_.may_lie_around(id)) {
            halos_.lie_around(id);
          } else if (structure_of(i) == structure::region_parameter && !halos_.wants_room(id) &&
                     overwritten_.starts_in_place(id)) {
            buffers_.share(id, i.operand[0]);
            overwritten_.changes_in(buffers_.root[id], i.region);
          } else if (i.op->facts.overwrites >= 0 && overwritten_.is_last_reader(id)) {
            buffers_.share(id, g_.operand_at(i, i.op->facts.overwrites));
          } else if (s_.launch_of[id] >= 0 && s_.has_buffer(id)) {
            buffers_.own(id);
          }
          break;
      }
    }
  }

 private:
  /// What a branch hands out is computed where its result is, if the branch does not read what was there before.
  constexpr void compute_in_place(int next) {
    const int carry = parameter_of(g_[next]);
    const int value = yielded_by(g_[next]);
    if (value == carry || g_[value].region != g_[carry].region || structure_of(g_[value]) != structure::none) return;
    for (const int one : {value, buffers_.root[carry]}) {
      if (one < 0 || buffers_.root[one] != one || !buffers_.is_plain(one) || halos_.is_enlarged(one)) return;
    }
    for (int id = carry + 1; id < g_.size; ++id) {
      for (int k = 0; k < g_[id].operand_count && id != next; ++k) {
        if (g_.operand_at(g_[id], k) == carry) return;
      }
    }
    for (int one = buffers_.sharer[value]; one >= 0; one = buffers_.next_sharer[one]) {
      if (!buffers_.is_plain(one)) return;
    }
    put_in_place_of(value, carry);
  }
  /// The value, and all that shares its buffer, is where the carry is.
  constexpr void put_in_place_of(int value, int carry) {
    int other = buffers_.sharer[value];
    buffers_.sharer[value] = -1;
    buffers_.share(value, carry);
    while (other >= 0) {
      const int following = buffers_.next_sharer[other];
      buffers_.share(other, carry);
      other = following;
    }
  }

  /// A value that is stacked is computed in its place in the stack, unless it already lives somewhere else.
  constexpr void stack(int id) {
    const int value = g_[id].operand[0];
    const int region = g_[value].region;
    const bool plain = buffers_.root[value] == value && buffers_.is_plain(value) && !halos_.is_enlarged(value) &&
                       structure_of(g_[value]) != structure::region_parameter;
    if (!plain) {
      buffers_.copied[id] = true;
      return;
    }
    // All values that share its buffer follow it into the stack.
    int other = buffers_.sharer[value];
    buffers_.sharer[value] = -1;
    move(value, id, region, bytes_of(g_[value]));
    while (other >= 0) {
      const int next = buffers_.next_sharer[other];
      move(other, id, region, bytes_of(g_[value]));
      other = next;
    }
  }
  /// A value that moves already goes on to do so, within a buffer that now moves too: the chains that end at `id` grow
  /// by one.
  constexpr void move(int id, int into, int region, std::int64_t stride) {
    location& where = buffers_.within[id];
    if (where.region < 0) {
      where.region = region;
      where.stride = stride;
    } else if (where.outer < 0) {
      where.outer = g_[into].operand[0];
    }
    buffers_.follow(id, into);
  }

  graph_view g_;
  schedule_view s_;
  shared_buffers& buffers_;
  halo_room& halos_;
  overwritten_values overwritten_;
  carried_in_place carried_;
};

}  // namespace espalier::detail
