// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How a program is run on arrays: the compiled half of program_runner.hpp.
#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/light_std/place_in.hpp>
#include <espalier/tensor/core/sharding/print.hpp>
#include <espalier/tensor/run/execute/checks.hpp>
#include <espalier/tensor/run/execute/program_runner.hpp>
#include <espalier/tensor/run/execute/replicas.hpp>

#include <cstddef>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace espalier::detail {

ESPALIER_INLINE program_runner::program_runner(world& where, const program_tables& tables, const runner_facts& facts)
    : world_(where.place()),
      tables_(tables),
      facts_(facts),
      arguments_(static_cast<std::size_t>(tables.argument_count)),
      results_(static_cast<std::size_t>(tables.result_count)),
      aliases_(tables.argument_count + tables.result_count) {
  if (!same_grid(where.mesh_value(), *facts.mesh)) {
    throw launch_error(
        joined({"the program is compiled for ", text_of(*facts.mesh), ", but the world it is to run on has ",
                text_of(where.mesh_value()), ": make the world with the program's mesh"}));
  }
}

ESPALIER_INLINE void refuse_element(const std::string& value, dtype type) {
  throw argument_error(joined({"an element is ", value, ", which ", name_of(type),
                               " cannot hold: give values that fit, or declare the argument with a wider type"}));
}

ESPALIER_INLINE world& program_runner::here() const {
  if (world_ != nullptr && *world_ != nullptr) return **world_;
  throw argument_error("this runner's world is gone: a world has to live as long as the runners that were made on it");
}

/// One of BLAS that is slow, once.
inline void warn_of_blas(const world& where) {
  static const bool warned = [&] {
    const char* const warning = kernels::blas_warning();
    if (warning != nullptr && where.is_root()) std::cerr << "espalier: " << warning << '\n';
    return true;
  }();
  static_cast<void>(warned);
}

/// These are a runner's own for as long as it keeps them.
inline void keep(const std::vector<shared_buffer>& shards, int count) {
  for (const shared_buffer& shard : shards) shard.keep(count);
}

ESPALIER_INLINE void program_runner::start() {
  warn_of_blas(here());
  replicas_every_ = checks_replicas_every();
  find_borders();
  make_results();
  devices_.resize(static_cast<std::size_t>(here().local_devices()));
  here().on_devices([this](int local, comm::any_communicator& communicator) {
    devices_[static_cast<std::size_t>(local)] = facts_.make_device(tables_, here().device(local), communicator);
  });
  for (std::size_t r = 0; r < results_.size(); ++r) {
    array_memory::handle(*results_[r].array).is_of_runner = true;
    keep(array_memory::shards(*results_[r].array), 1);
    set_result(static_cast<int>(r), array_memory::shards(*results_[r].array));
  }
}

/// The layouts of arguments and results, and which result takes which argument's place.
ESPALIER_INLINE void program_runner::find_borders() {
  for (int id = 0; id < tables_.code.size; ++id) {
    const instruction& i = tables_.code[id];
    if (structure_of(i) != structure::argument && structure_of(i) != structure::result) continue;
    const int number = attributes_of<border_attributes>(i).number;
    const sharding* const placement = &tables_.code.annotations[i.annotation].placement;
    if (structure_of(i) == structure::argument) {
      argument_of(number).placement = placement;
      continue;
    }
    result_leaf& made = results_[static_cast<std::size_t>(number)];
    made.placement = placement;
    if (i.operand_count != 2) continue;
    made.source = attributes_of<border_attributes>(tables_.code[i.operand[1]]).number;
    argument_of(made.source).result = number;
  }
}

ESPALIER_INLINE void program_runner::make_results() {
  for (const result_leaf& one : results_) {
    if (one.source >= 0) {
      array_memory::place(*one.array, here(), *facts_.parts, *argument_of(one.source).placement);
    } else {
      array_memory::make(*one.array, here(), *facts_.parts, *one.placement);
    }
  }
}

ESPALIER_INLINE void program_runner::make_argument(any_array& array, int index) const {
  array_memory::make(array, here(), *facts_.parts, *argument_of(index).placement);
}

/// Whether some of these are other arrays' as well.
[[nodiscard]] inline bool are_shared(const std::vector<shared_buffer>& shards) {
  for (const shared_buffer& shard : shards) {
    if (shard.is_shared()) return true;
  }
  return false;
}

ESPALIER_INLINE std::shared_ptr<any_array>& program_runner::own_argument(int leaf) {
  auto& [first, second] = argument_of(leaf).own;
  const auto is_taken = [](const std::shared_ptr<any_array>& one) {
    return one != nullptr && are_shared(array_memory::shards(*one));
  };
  if (is_taken(first)) first.swap(second);
  if (is_taken(first)) first = nullptr;
  return first;
}

ESPALIER_INLINE program_runner::~program_runner() {
  for (const result_leaf& one : results_) {
    if (one.array != nullptr) keep(array_memory::shards(*one.array), -1);
    keep(one.former, -1);
  }
}

ESPALIER_INLINE void program_runner::call(source_line where) {
  world& on = here();
  for (int leaf = 0; leaf < given_; ++leaf) check(leaf);
  if (replicas_every_ > 0 && calls_++ % replicas_every_ == 0) check_replicas(where);
  bool as_before = unchanged_;
  unchanged_ = false;
  for (argument_leaf& one : arguments_) {
    void* const begin = array_memory::shards(*one.array).front().data();
    as_before = as_before && one.begin == begin;
    one.begin = begin;
  }
  if (find_kept()) as_before = false;
  if (!as_before) {
    find_aliases();
    forget_former();  // of a call that failed
  }
  for (int leaf = 0; leaf < given_; ++leaf) bind(leaf, as_before);
  // Arguments may be results: not before all of them are bound.
  if (!as_before) place_results();
  mark_donated(where);
  for (const copy& one : copies_) copied_bytes_ += one.local == 0 ? one.bytes : 0;
  on.on_devices([this](int local, comm::any_communicator&) {
    for (const copy& one : copies_) {
      if (one.local == local) one.make();
    }
    devices_[static_cast<std::size_t>(local)]->run();
  });
  // Memory that only the last results held was in use as an argument until now.
  if (!as_before) forget_former();
  unchanged_ = !some_kept_ && aliases_.copied().empty() && aliases_.renewed().empty();
}

ESPALIER_INLINE void program_runner::check_replicas(source_line where) {
  std::vector<const any_array*> all;
  for (const argument_leaf& one : arguments_) all.push_back(one.array);
  const auto name = [this](int leaf) { return joined({"argument ", name_of(leaf), " of the program"}); };
  compare_replicas(here(), all, name, where);
}

/// Whether arrays that this call does not name share memory that it would change: results of the last one, and donated
/// arguments.
ESPALIER_INLINE bool program_runner::find_kept() {
  bool found = false;
  for (const result_leaf& one : results_) {
    found = found || (one.source < 0 && are_shared(array_memory::shards(*one.array)));
  }
  some_kept_ = false;
  for (argument_leaf& one : arguments_) {
    if (one.result < 0) continue;
    one.is_kept = false;
    const int own = array_memory::handle(*one.array).is_of_runner ? 0 : 1;
    for (const shared_buffer& shard : array_memory::shards(*one.array)) {
      one.is_kept = one.is_kept || shard.users() > own;
    }
    some_kept_ = some_kept_ || one.is_kept;
  }
  return found || some_kept_;
}

ESPALIER_INLINE void program_runner::check(int leaf) const {
  const any_array& array = *argument_of(leaf).array;
  const sharding& wanted = *argument_of(leaf).placement;
  array.require_unspent();
  const bool is_here = !array.empty() && array.lies_in(here());
  if (is_here && array.lies_as(tables_.mesh, wanted)) return;
  const std::string name = joined({"argument ", name_of(leaf), " of the program"});
  const std::string remedy = joined({". Make it with ", maker_of(leaf), " of this runner"});
  if (!array.empty() && !is_here) {
    throw argument_error(joined({name, " is an array of another world: it lies on ", array_memory::devices_of(array),
                                 ", the runner's world on ", array_memory::devices_of(here()), remedy, "."}));
  }
  throw argument_error(
      joined({name, " is laid out as ",
              to_string(here().mesh_value(), *facts_.parts, array.type(), array.shape(), wanted), ", but was given ",
              array.empty() ? "an empty array" : array.text(), remedy, ", or declare the argument as sharded<...>."}));
}

ESPALIER_INLINE void program_runner::find_aliases() {
  using role = alias_finder::role;
  // One array for two donated arguments is a mistake, also where it is kept. Otherwise an argument that is kept is
  // copied, so that what it was stays.
  for (const bool all_change : {true, false}) {
    if (all_change && !some_kept_) continue;
    aliases_.begin();
    for (int leaf = 0; leaf < given_; ++leaf) {
      const argument_leaf& one = argument_of(leaf);
      const bool changes = one.result >= 0 && (all_change || !one.is_kept);
      aliases_.add(one.begin, changes ? role::changed : role::read, leaf);
    }
    for (std::size_t r = 0; r < results_.size(); ++r) {
      if (results_[r].begin != nullptr) aliases_.add(results_[r].begin, role::result, static_cast<int>(r));
    }
    aliases_.find();
    refuse_clash();
  }
}

ESPALIER_INLINE void program_runner::refuse_clash() const {
  const auto [first, second] = aliases_.clash();
  if (first < 0) return;
  throw argument_error(joined({"arguments ", name_of(first), " and ", name_of(second),
                               " are the same array, but each is donated, for a result of its own. Pass ",
                               "ep::copy(array) for the second."}));
}

/// "1", or "1.blocks.up.weight" for a leaf of a tree.
ESPALIER_INLINE std::string program_runner::name_of(int leaf) const {
  int argument = 0;
  while (facts_.first_leaf[argument + 1] <= leaf) ++argument;
  const std::string inside = facts_.leaf_name == nullptr ? std::string() : facts_.leaf_name(leaf);
  return joined({argument, inside.empty() ? "" : ".", inside});
}
ESPALIER_INLINE std::string program_runner::maker_of(int leaf) const {
  int argument = 0;
  while (facts_.first_leaf[argument + 1] <= leaf) ++argument;
  return joined({"argument<", argument, ">()"});
}

ESPALIER_INLINE void program_runner::bind(int leaf, bool as_before) {
  argument_leaf& one = argument_of(leaf);
  const auto& copied = aliases_.copied();
  const bool apart = !as_before && place_in(copied, leaf) >= 0;
  const buffers& shards = array_memory::shards(*one.array);
  if (!as_before && one.result >= 0) {
    one.donated = shards;
    if (one.is_kept) {
      for (shared_buffer& shard : one.donated) shard = shared_buffer(shard.bytes());
    }
  }
  if (apart && one.private_copy.empty()) {
    for (const shared_buffer& shard : shards) one.private_copy.emplace_back(shard.bytes());
  }
  const bool is_moved = !as_before && one.result >= 0 && one.is_kept;
  for (std::size_t local = 0; local < shards.size(); ++local) {
    const shared_buffer& shard = shards[local];
    void* const read = (is_moved ? one.donated[local] : apart ? one.private_copy[local] : shard).data();
    if (apart || is_moved) copies_.push_back({static_cast<int>(local), read, shard.data(), shard.bytes()});
    devices_[local]->set_argument(leaf, read);
  }
}

/// Gives each result that takes an argument's place that argument's memory, and other memory to those whose own is an
/// argument, or is held by an array that the user keeps. What they had stays until `forget_former`, or as the next such
/// call's other memory.
ESPALIER_INLINE void program_runner::place_results() {
  const auto& renewed = aliases_.renewed();
  for (std::size_t r = 0; r < results_.size(); ++r) {
    result_leaf& one = results_[r];
    buffers& shards = array_memory::shards(*one.array);
    if (one.source >= 0) {
      one.former.swap(shards);
      shards = argument_of(one.source).donated;
      keep(shards, 1);
    } else if (place_in(renewed, static_cast<int>(r)) >= 0 || are_shared(shards)) {
      if (one.former.empty() || are_shared(one.former)) {
        keep(one.former, -1);
        one.former.clear();
        for (const shared_buffer& shard : shards) one.former.emplace_back(shard.bytes());
        keep(one.former, 1);
      }
      one.former.swap(shards);
      set_result(static_cast<int>(r), shards);
    }
  }
  for (argument_leaf& one : arguments_) {
    if (one.result < 0 || !one.is_kept) continue;
    one.begin = one.donated.front().data();
    // A result that was given as it is belongs to its runner, which has placed it.
    if (!array_memory::handle(*one.array).is_of_runner) array_memory::renew(*one.array, one.donated);
  }
}

/// Says in every array of a donated place which call has it, and in the call's results whose memory they are.
ESPALIER_INLINE void program_runner::mark_donated(source_line where) {
  for (int leaf = 0; leaf < given_; ++leaf) {
    argument_leaf& one = argument_of(leaf);
    if (one.result < 0) continue;
    handle_state& handle = array_memory::handle(*one.array);
    handle_state& result = array_memory::handle(*results_[static_cast<std::size_t>(one.result)].array);
    result.gives = nullptr;
    if (handle.is_of_runner) continue;
    const long others = handle.donated == one.call ? 2 : 1;
    if (one.call == nullptr || one.call.use_count() > others) one.call = std::make_shared<donation>();
    int argument = 0;
    while (facts_.first_leaf[argument + 1] <= leaf) ++argument;
    *one.call = {where.file, where.line, argument};
    handle.donated = one.call;
    result.gives = one.call.get();
  }
}

ESPALIER_INLINE void program_runner::forget_former() {
  for (result_leaf& one : results_) {
    if (one.source < 0) continue;
    keep(one.former, -1);
    one.former.clear();
  }
  for (argument_leaf& one : arguments_) one.donated.clear();
  copies_.clear();
}

ESPALIER_INLINE void program_runner::set_result(int index, const buffers& shards) {
  if (shards.empty()) return;
  results_[static_cast<std::size_t>(index)].begin = shards.front().data();
  for (std::size_t local = 0; local < shards.size(); ++local) devices_[local]->set_result(index, shards[local].data());
}

ESPALIER_INLINE void program_runner::copy::make() const {
  parallel_ranges(bytes, bytes / 4, [this](std::int64_t first, std::int64_t last) {
    std::memcpy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first,
                static_cast<std::size_t>(last - first));
  });
}

}  // namespace espalier::detail
