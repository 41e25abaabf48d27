// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/reducer.hpp>
#include <espalier/tensor/run/execute/item_executor.hpp>
#include <espalier/testing/executed/devices.hpp>
#include <espalier/testing/executed/elements.hpp>
#include <espalier/testing/executed/kernels.hpp>
#include <espalier/testing/executed/plan.hpp>
#include <espalier/testing/interpret_spmd.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Executes programs over poisoned memory, all devices of a mesh by turns in one thread, with the very walk that
/// programs take everywhere: compiled ones, and graphs made at run time, which go through schedule, memory and fusion
/// first and have each op's `evaluate` for kernels. Collectives are plain copies.
namespace espalier::test {

/// Executes a planned program on all devices of its mesh, from whole arguments to whole results.
/// Throws std::logic_error where devices part ways, or somebody writes where nothing is.
template <class Kernels> class lockstep_execution {
 public:
  /// `t` is kept.
  lockstep_execution(const program_tables& t, std::vector<placed_buffer> buffers)
      : t_(t), mesh_(t.mesh), g_(t.code), buffers_(std::move(buffers)) {
    const mesh_shape& mesh = mesh_;
    const graph_view g = g_;
    argument_.assign(static_cast<std::size_t>(t.argument_count), -1);
    result_.assign(static_cast<std::size_t>(t.result_count), -1);
    for (int id = 0; id < g.size; ++id) {
      if (structure_of(g[id]) == structure::argument) argument_[number_of(g[id])] = id;
      if (structure_of(g[id]) == structure::result) result_.at(number_of(g[id])) = id;
    }
    for (int device = 0; device < mesh.devices(); ++device) {
      devices_.push_back(std::make_unique<executor>(t, device, no_ranks_, Kernels(t)));
    }
  }

  [[nodiscard]] std::vector<tensor_value> run(const std::vector<tensor_value>& arguments) {
    std::vector<std::vector<guarded_buffer>> given(devices_.size());
    std::vector<std::vector<guarded_buffer>> made(devices_.size());
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      executor& device = *devices_[d];
      for (std::size_t n = 0; n < argument_.size(); ++n) {
        given[d].emplace_back(argument_[n] < 0 ? 0 : bytes_of(g_[argument_[n]]));
        device.set_argument(static_cast<int>(n), given[d].back().data());
        if (argument_[n] >= 0) put(argument_[n], arguments.at(n), static_cast<int>(d), given[d].back().data());
      }
      for (std::size_t n = 0; n < result_.size(); ++n) {
        made[d].emplace_back(bytes_of(g_[result_[n]]));
        device.set_result(static_cast<int>(n), made[d].back().data());
      }
      std::memset(device.arena(), poison, static_cast<std::size_t>(t_.arena_bytes));
      device.start();
    }
    last_launch_ = -1;
    walk();
    check_margins(given);
    check_margins(made);
    check_arguments(arguments, given);
    std::vector<tensor_value> results;
    for (const int id : result_) results.push_back(take(id));
    return results;
  }

 private:
  using executor = detail::item_executor<no_communicator, Kernels>;

  [[nodiscard]] const layout& layout_of(int id) const { return g_.annotations[g_[id].annotation]; }

  /// Calls f(index in the buffer, index in the whole tensor) for the real elements of a device's part.
  template <class F> void for_each_held(int id, int device, const F& f) const {
    const layout& l = layout_of(id);
    const detail::tensor_box mine = detail::box_of(mesh_, l.shape, l.placement, device);
    std::int64_t start[max_rank]{};
    std::int64_t extent[max_rank]{};
    const std::int64_t origin[max_rank]{};
    for (int d = 0; d < l.shape.rank; ++d) {
      start[d] = mine.dim[d].start;
      extent[d] = mine.dim[d].size;
    }
    detail::for_each_index(l.shape.rank, &extent[0], [&](const std::int64_t* index) {
      f(detail::position_in(g_[id].shape, &origin[0], index), detail::position_in(l.shape, &start[0], index));
    });
  }

  void put(int id, const tensor_value& whole, int device, void* memory) const {
    // A partial sum that comes from outside is the first device's term.
    const bool has_term = mesh_.position(device, list_of(layout_of(id).placement.unreduced)) == 0;
    for_each_held(id, device, [&](std::size_t at, std::size_t from) {
      save(g_[id].type, memory, static_cast<std::int64_t>(at), has_term ? whole.data[from] : 0);
    });
  }

  /// A result from all devices' parts; copies must agree to the last bit, and the terms of partial sums are added up.
  [[nodiscard]] tensor_value take(int id) const {
    const layout& l = layout_of(id);
    const auto size = static_cast<std::size_t>(l.shape.elements());
    tensor_value whole{l.shape, std::vector<double>(size, std::numeric_limits<double>::quiet_NaN())};
    std::vector<bool> known(size, false);
    const axis_list terms = list_of(l.placement.unreduced);
    for (int device = 0; device < mesh_.devices(); ++device) {
      if (mesh_.position(device, terms) != 0) continue;
      for_each_held(id, device, [&](std::size_t at, std::size_t to) {
        double value = 0;
        for (int n = 0; n < static_cast<int>(mesh_.parts(terms)); ++n) {
          const auto member = static_cast<std::size_t>(mesh_.member(device, terms, n));
          value += load(g_[id].type, devices_[member]->address(id), static_cast<std::int64_t>(at));
        }
        const bool same = whole.data[to] == value || (value != value && whole.data[to] != whole.data[to]);
        if (known[to] && !same) throw std::logic_error("the copies of a result's replicated elements differ");
        known[to] = true;
        whole.data[to] = value;
      });
    }
    if (std::find(known.begin(), known.end(), false) != known.end()) {
      throw std::logic_error("no device holds some element of a result");
    }
    return whole;
  }

  static void check_margins(const std::vector<std::vector<guarded_buffer>>& all) {
    for (const auto& device : all) {
      for (const guarded_buffer& one : device) {
        if (!one.is_intact()) throw std::logic_error("something was written beside an argument or a result");
      }
    }
  }
  /// The memory of an argument or a result.
  [[nodiscard]] static std::size_t number_of(const instruction& i) {
    return static_cast<std::size_t>(attributes_of<border_attributes>(i).number);
  }
  /// Only a donated argument may change.
  void check_arguments(const std::vector<tensor_value>& arguments,
                       const std::vector<std::vector<guarded_buffer>>& given) const {
    std::vector<bool> is_donated(argument_.size(), false);
    for (const int id : result_) {
      if (g_[id].operand_count == 2) is_donated[number_of(g_.operand(id, 1))] = true;
    }
    for (std::size_t n = 0; n < argument_.size(); ++n) {
      if (argument_[n] < 0 || is_donated[n]) continue;
      for (std::size_t d = 0; d < devices_.size(); ++d) {
        const guarded_buffer expected(bytes_of(g_[argument_[n]]));
        put(argument_[n], arguments[n], static_cast<int>(d), expected.data());
        const auto bytes = static_cast<std::size_t>(bytes_of(g_[argument_[n]]));
        if (std::memcmp(expected.data(), given[d][n].data(), bytes) != 0) {
          throw std::logic_error("argument " + std::to_string(n) + ", which is not donated, was changed");
        }
      }
    }
  }

  // --- the walk
  // -------------------------------------------------------------------------------------------------------

  /// One step on every device, then the next: all take the same steps.
  void walk() {
    while (const detail::device_step* s = devices_[0]->next()) {
      for (const auto& device : devices_) {
        const detail::device_step* other = device->next();
        if (other == nullptr || other->kind != s->kind || other->launch != s->launch || other->target != s->target) {
          throw std::logic_error("two devices are at different steps");
        }
      }
      const detail::device_step now = *s;
      for (const auto& device : devices_) spoil(*device, now.launch);
      last_launch_ = now.launch;
      if (now.kind == detail::step_kind::move) {
        move(now.target);
        for (const auto& device : devices_) device->pass();
      } else {
        for (const auto& device : devices_) device->step();
      }
      for (int d = 0; d < mesh_.devices(); ++d) poison_padding(now, d);
    }
    for (const auto& device : devices_) {
      if (device->next() != nullptr) throw std::logic_error("a device has more to do than the first");
    }
  }

  /// Runs before the first step of a launch: buffers that no step needs any more, and those that only begin to be used,
  /// hold nothing that anybody may read.
  void spoil(executor& device, int launch) const {
    if (launch == last_launch_) return;
    for (const placed_buffer& one : buffers_) {
      const bool begins = one.first == launch;
      const bool has_ended = last_launch_ < launch && one.last >= last_launch_ && one.last < launch;
      if (!begins && !has_ended) continue;
      // Where another one lives now, it is that one's.
      if (!begins && overlaps_living(one, launch)) continue;
      std::memset(device.arena() + one.offset, poison, static_cast<std::size_t>(one.bytes));
    }
  }
  [[nodiscard]] bool overlaps_living(const placed_buffer& one, int launch) const {
    return std::any_of(buffers_.begin(), buffers_.end(), [&](const placed_buffer& other) {
      return other.first <= launch && launch <= other.last && other.offset < one.offset + one.bytes &&
             one.offset < other.offset + other.bytes;
    });
  }

  /// The values that a kernel leaves in padding are never read, except where a mask was made for the next instruction.
  void poison_padding(const detail::device_step& now, int device) const {
    if (now.kind == detail::step_kind::kernel) {
      const bool is_stored = t_.root[now.target] >= 0;  // not so of scores of a few rows
      if (is_stored && !is_mask(now.target)) poison_padding(now.target, device);
    } else if (now.kind == detail::step_kind::chain) {
      const launch& what = t_.launches[now.launch];
      for (int n = what.first; n < what.first + what.count; ++n) {
        if (t_.root[t_.order[n]] >= 0 && !is_mask(t_.order[n])) poison_padding(t_.order[n], device);
      }
    }
  }
  /// Whether a value is another one with its padding filled in. (That of scores is filled in where it is read.)
  [[nodiscard]] bool is_mask(int id) const {
    const instruction& i = g_[id];
    if (std::string_view(i.op->name) == ops::mask.name) return true;
    if (i.op != &ops::select || g_.operand(id, 0).op != &ops::less) return false;
    const instruction& less = g_.operand(id, 0);
    return g_[less.operand[0]].op->facts.values == pattern::index &&
           g_[less.operand[1]].op->facts.values == pattern::uniform;
  }
  void poison_padding(int id, int device) const {
    const layout& l = layout_of(id);
    const tensor_box mine = detail::box_of(mesh_, g_, id, device);
    if (detail::elements_of(mine, l.shape.rank) == g_[id].shape.elements()) return;
    char* const memory = static_cast<char*>(devices_[static_cast<std::size_t>(device)]->address(id));
    detail::for_each_index(g_[id].shape.rank, &g_[id].shape.size[0], [&](const std::int64_t* index) {
      const std::int64_t origin[max_rank]{};
      bool real = true;
      for (int d = 0; d < g_[id].shape.rank; ++d) real = real && index[d] < mine.dim[d].size;
      if (real) return;
      const auto at = static_cast<std::int64_t>(detail::position_in(g_[id].shape, &origin[0], index));
      std::memset(memory + at * size_of(g_[id].type), poison, static_cast<std::size_t>(size_of(g_[id].type)));
    });
  }

  // --- collectives
  // ----------------------------------------------------------------------------------------------------

  /// Collectives that travel together, or one whose boxes go through messages: from and to the memory of these.
  void move_messages(int id) {
    const auto kind = static_cast<collective>(detail::collective_index(g_[id].op));
    const reduction combining = attributes_of<collective_attributes>(g_[id]).combine;
    std::vector<std::vector<char>> made;
    for (const auto& device : devices_) device->pack(*device->messages_of(id));
    for (const auto& device : devices_) {
      const detail::message_table& all = *device->messages_of(id);
      const comm::transfer& moves = all.moves;
      std::vector<char> target(static_cast<std::size_t>(all.received * size_of(moves.type)), static_cast<char>(poison));
      std::vector<comm::contribution> terms;
      for (std::size_t k = 0; k < moves.members.size(); ++k) {
        const executor& member = *devices_[static_cast<std::size_t>(moves.members[k])];
        const auto& theirs = member.messages_of(id)->moves.outgoing[static_cast<std::size_t>(moves.self)];
        const bool fits = kind == collective::all_reduce || (theirs.source_offset == moves.incoming[k].source_offset &&
                                                             theirs.elements() == moves.incoming[k].elements());
        if (!fits) throw std::logic_error("a message is not where its receiver looks for it");
        terms.push_back({member.sent_memory(), kind == collective::all_reduce ? nullptr : &moves.incoming[k]});
        if (!facts_of(kind).reduces) copy_block(moves.type, target.data(), member.sent_memory(), moves.incoming[k]);
      }
      if (kind == collective::all_reduce) {
        reduce(moves.type, combining, target.data(), comm::contiguous_block(all.sent), terms);
      } else if (kind == collective::reduce_scatter) {
        reduce(moves.type, combining, target.data(), moves.incoming[static_cast<std::size_t>(moves.self)], terms);
      }
      made.push_back(std::move(target));
    }
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      const detail::message_table& all = *devices_[d]->messages_of(id);
      if (!made[d].empty()) std::memcpy(devices_[d]->received_memory(all), made[d].data(), made[d].size());
      for (const detail::travelling_collective& one : all.collectives) spoil_result(one.id, *devices_[d]);
      devices_[d]->unpack(all);
    }
  }
  /// Elements that are not received are not there, but for rows that stay in place.
  void spoil_result(int id, const executor& device) const {
    if (t_.where[id].is_displaced) return;
    std::memset(device.address(id), poison, static_cast<std::size_t>(bytes_of(g_[id])));
  }

  /// All devices of the group get the owner's elements, from its buffer or its messages.
  void move_from_owner(int id) {
    const axis_list group = list_of(attributes_of<owner_attributes>(g_[id]).axes);
    const bool has_messages = devices_[0]->messages_of(id) != nullptr;
    std::vector<std::vector<char>> made;
    for (const auto& device : devices_) {
      if (has_messages) device->pack(*device->messages_of(id));
    }
    for (int d = 0; d < mesh_.devices(); ++d) {
      const executor& device = *devices_[static_cast<std::size_t>(d)];
      const int owner = device.owner_exchange_of(id)->owner_of(device.address(g_[id].operand[1]));
      const executor& from = *devices_[static_cast<std::size_t>(mesh_.member(d, group, owner))];
      const auto* const source =
          has_messages ? from.sent_memory() : static_cast<const char*>(from.address(g_[id].operand[0]));
      const std::int64_t bytes = has_messages ? from.messages_of(id)->sent * size_of(g_[id].type) : bytes_of(g_[id]);
      made.emplace_back(source, source + bytes);
    }
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      executor& device = *devices_[d];
      void* const target = has_messages ? device.received_memory(*device.messages_of(id)) : device.address(id);
      if (!made[d].empty()) std::memcpy(target, made[d].data(), made[d].size());
      if (!has_messages) continue;
      for (const detail::travelling_collective& one : device.messages_of(id)->collectives) spoil_result(one.id, device);
      device.unpack(*device.messages_of(id));
    }
  }

  void move(int id) {
    if (devices_[0]->owner_exchange_of(id) != nullptr) return move_from_owner(id);
    if (devices_[0]->messages_of(id) != nullptr) return move_messages(id);
    const instruction& i = g_[id];
    const auto kind = static_cast<collective>(detail::collective_index(i.op));
    const reduction combining = attributes_of<collective_attributes>(i).combine;
    const std::int64_t bytes = bytes_of(i);
    // All targets are written when all sources have been read: on a device they may be the same.
    std::vector<std::vector<char>> made;
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      const comm::transfer& moves = devices_[d]->moves_of(id);
      std::vector<char> target(static_cast<std::size_t>(bytes), static_cast<char>(poison));
      if (t_.where[id].is_displaced) {
        // What is not received stays: the device's own rows, and those that another exchange has brought.
        std::memcpy(target.data(), devices_[d]->address(id), target.size());
      }
      std::vector<comm::contribution> terms;
      for (std::size_t k = 0; k < moves.members.size(); ++k) {
        const auto member = static_cast<std::size_t>(moves.members[k]);
        const void* const source = devices_[member]->address(i.operand[0]);
        if (kind == collective::all_reduce) {
          terms.push_back({source, nullptr});
        } else if (kind == collective::reduce_scatter) {
          terms.push_back({source, &moves.incoming[k]});
        } else {
          comm::copy_block(i.type, target.data(), source, moves.incoming[k]);
        }
      }
      if (kind == collective::all_reduce) {
        const comm::block all = comm::contiguous_block(i.shape.elements());
        reduce(i.type, combining, target.data(), all, terms);
      } else if (kind == collective::reduce_scatter) {
        reduce(i.type, combining, target.data(), moves.incoming[static_cast<std::size_t>(moves.self)], terms);
      }
      made.push_back(std::move(target));
    }
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      if (bytes > 0) std::memcpy(devices_[d]->address(id), made[d].data(), made[d].size());
    }
  }
  static void reduce(dtype type, reduction kind, void* target, const comm::block& box,
                     const std::vector<comm::contribution>& terms) {
    const comm::reducer by = comm::reducer_of(type, kind);
    comm::detail::require_reducible(by, nullptr);
    comm::detail::reduce_range(by, target, box, 0, box.elements(), terms.data(), static_cast<int>(terms.size()));
  }

  const program_tables& t_;
  mesh_shape mesh_;
  graph_view g_;
  std::vector<placed_buffer> buffers_;
  no_communicator no_ranks_;
  std::vector<std::unique_ptr<executor>> devices_;
  /// The instruction of each number, or -1.
  std::vector<int> argument_;
  std::vector<int> result_;
  int last_launch_ = -1;
};

/// Takes a partitioned graph through the rest of the compiler and executes it.
[[nodiscard]] inline std::vector<tensor_value> execute(const mesh_shape& mesh, graph_view g,
                                                       const std::vector<tensor_value>& arguments,
                                                       row_limits limits = {}) {
  const run_time_plan plan(mesh, g, limits);
  return lockstep_execution<evaluated_kernels>(plan.tables(), plan.buffers()).run(arguments);
}

}  // namespace espalier::test
