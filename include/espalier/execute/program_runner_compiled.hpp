// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How a program is run on arrays: the compiled half of program_runner.hpp.
#include <espalier/execute/program_runner.hpp>
#include <espalier/sharding/print.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace espalier::detail {

ESPALIER_INLINE program_runner::program_runner(world& where, const program_tables& tables, const runner_facts& facts)
    : world_(where), tables_(tables), facts_(facts) {
  if (!same_grid(where.mesh_value(), *facts.mesh)) {
    throw launch_error("the program is compiled for " + text_of(*facts.mesh) + ", but the world it is to run on has " +
                       text_of(where.mesh_value()) + ": make the world with the program's mesh");
  }
}

ESPALIER_INLINE void refuse_element(const std::string& value, dtype type) {
  throw argument_error("an element is " + value + ", which " + name_of(type) +
                       " cannot hold: give values that fit, or declare the argument with a wider type");
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

ESPALIER_INLINE void program_runner::start() {
  warn_of_blas(world_);
  find_borders();
  make_results();
  devices_.resize(static_cast<std::size_t>(world_.local_devices()));
  world_.on_devices([this](int local, comm::any_communicator& communicator) {
    devices_[static_cast<std::size_t>(local)] = make_device(tables_, world_.device(local), communicator);
  });
  for (std::size_t r = 0; r < results_.size(); ++r) {
    set_result(static_cast<int>(r), array_memory::shards(*results_[r]));
  }
}

/// The layouts of arguments and results, and which result takes which argument's place.
ESPALIER_INLINE void program_runner::find_borders() {
  const auto arguments = static_cast<std::size_t>(tables_.argument_count);
  const auto results = static_cast<std::size_t>(tables_.result_count);
  std::vector<char> changed(arguments, 0);
  argument_placement_.resize(arguments, nullptr);
  result_placement_.resize(results, nullptr);
  result_in_.resize(arguments, -1);
  donated_.resize(results, -1);
  for (int id = 0; id < tables_.code.size; ++id) {
    const instruction& i = tables_.code[id];
    if (part_of(i) != structure::argument && part_of(i) != structure::result) continue;
    const auto number = static_cast<std::size_t>(attributes_of<border_attributes>(i).number);
    const sharding* const placement = &tables_.code.annotations[i.annotation].placement;
    if (part_of(i) == structure::argument) {
      argument_placement_[number] = placement;
      continue;
    }
    result_placement_[number] = placement;
    if (i.operand_count != 2) continue;
    const int source = attributes_of<border_attributes>(tables_.code[i.operand[1]]).number;
    donated_[number] = source;
    changed[static_cast<std::size_t>(source)] = 1;
    result_in_[static_cast<std::size_t>(source)] = static_cast<int>(number);
  }
  aliases_ = std::make_unique<alias_finder>(std::move(changed), tables_.result_count);
}

ESPALIER_INLINE void program_runner::make_results() {
  arguments_.reserve(argument_placement_.size());
  begins_.resize(argument_placement_.size());
  private_.resize(argument_placement_.size());
  donations_.resize(argument_placement_.size());
  former_.resize(results_.size());
  own_results_.resize(results_.size(), nullptr);
  copies_.resize(static_cast<std::size_t>(world_.local_devices()));
  for (std::size_t r = 0; r < results_.size(); ++r) {
    if (const int source = donated_[r]; source >= 0) {
      const sharding& placement = *argument_placement_[static_cast<std::size_t>(source)];
      array_memory::place(*results_[r], world_, *facts_.parts, placement);
    } else {
      array_memory::make(*results_[r], world_, *facts_.parts, *result_placement_[r]);
    }
  }
}

ESPALIER_INLINE void program_runner::make_argument(any_array& array, int index) const {
  array_memory::make(array, world_, *facts_.parts, *argument_placement_[static_cast<std::size_t>(index)]);
}

ESPALIER_INLINE std::shared_ptr<any_array>& program_runner::own_argument(int leaf) {
  if (own_arguments_.empty()) own_arguments_.resize(argument_placement_.size());
  auto& [first, second] = own_arguments_[static_cast<std::size_t>(leaf)];
  const auto is_taken = [](const std::shared_ptr<any_array>& one) {
    if (one == nullptr) return false;
    const std::vector<shared_buffer>& shards = array_memory::shards(*one);
    return std::any_of(shards.begin(), shards.end(), std::mem_fn(&shared_buffer::is_shared));
  };
  if (is_taken(first)) first.swap(second);
  if (is_taken(first)) first = nullptr;
  return first;
}

ESPALIER_INLINE void program_runner::call() {
  const int count = static_cast<int>(arguments_.size());
  for (int index = 0; index < count; ++index) check(index);
  bool as_before = settled_;
  settled_ = false;
  for (std::size_t a = 0; a < arguments_.size(); ++a) {
    void* const begin = array_memory::shards(*arguments_[a]).front().data();
    as_before = as_before && begins_[a] == begin;
    begins_[a] = begin;
  }
  if (!as_before) {
    find_aliases();
    forget_former();  // of a call that failed
  }
  for (int index = 0; index < count; ++index) bind(index, as_before);
  // Arguments may be results: not before all of them are bound.
  if (!as_before) place_results();
  world_.on_devices([this](int local, comm::any_communicator&) {
    for (const copy& one : copies_[static_cast<std::size_t>(local)]) one.make();
    devices_[static_cast<std::size_t>(local)]->run();
  });
  // What only the last results held was an argument until now.
  if (!as_before) forget_former();
  settled_ = aliases_->copied().empty() && aliases_->renewed().empty();
}

ESPALIER_INLINE void program_runner::check(int index) const {
  const any_array& array = *arguments_[static_cast<std::size_t>(index)];
  const sharding& wanted = *argument_placement_[static_cast<std::size_t>(index)];
  const bool is_here = !array.empty() && array.lies_in(world_);
  if (is_here && array.lies_as(tables_.mesh, wanted)) return;
  const std::string name = "argument " + name_of(index) + " of the program";
  const std::string remedy = ". Make it with " + maker_of(index) + " of this runner";
  if (!array.empty() && !is_here) {
    throw argument_error(name + " is an array of another world: it lies on " + array_memory::devices_of(array) +
                         ", the runner's world on " + array_memory::devices_of(world_) + remedy + '.');
  }
  throw argument_error(name + " is laid out as " +
                       to_string(world_.mesh_value(), *facts_.parts, array.type(), array.shape(), wanted) +
                       ", but was given " + (array.empty() ? std::string("an empty array") : array.text()) + remedy +
                       ", or declare the argument as sharded<...>.");
}

ESPALIER_INLINE void program_runner::find_aliases() {
  aliases_->find(begins_, own_results_);
  if (const auto [first, second] = aliases_->clash(); first >= 0) {
    throw argument_error("arguments " + name_of(first) + " and " + name_of(second) +
                         " are the same array, but each is donated, for a result of its own. Make the second with " +
                         maker_of(second) + " of this runner, and copy the elements.");
  }
}

/// "1", or "1.blocks.up.weight" for a leaf of a tree.
ESPALIER_INLINE std::string program_runner::name_of(int leaf) const {
  int argument = 0;
  while (facts_.first_leaf[argument + 1] <= leaf) ++argument;
  const std::string inside = facts_.leaf_name == nullptr ? std::string() : facts_.leaf_name(leaf);
  return std::to_string(argument) + (inside.empty() ? "" : ".") + inside;
}
ESPALIER_INLINE std::string program_runner::maker_of(int leaf) const {
  int argument = 0;
  while (facts_.first_leaf[argument + 1] <= leaf) ++argument;
  return "argument<" + std::to_string(argument) + ">()";
}

ESPALIER_INLINE void program_runner::bind(int index, bool as_before) {
  const auto at = static_cast<std::size_t>(index);
  const auto& copied = aliases_->copied();
  const bool apart = !as_before && std::find(copied.begin(), copied.end(), index) != copied.end();
  const std::vector<shared_buffer>& shards = array_memory::shards(*arguments_[at]);
  if (apart && private_[at].empty()) {
    for (const shared_buffer& one : shards) private_[at].emplace_back(one.bytes());
  }
  for (std::size_t local = 0; local < shards.size(); ++local) {
    if (apart) copies_[local].push_back({private_[at][local].data(), shards[local].data(), shards[local].bytes()});
    devices_[local]->set_argument(index, (apart ? private_[at] : shards)[local].data());
  }
  if (!as_before && result_in_[at] >= 0) donations_[at] = shards;
}

/// Gives each result that takes an argument's place that argument's memory, and other memory to those whose own is an
/// argument. What they had stays until `forget_former`, or as the next such call's other memory.
ESPALIER_INLINE void program_runner::place_results() {
  const auto& renewed = aliases_->renewed();
  for (std::size_t r = 0; r < results_.size(); ++r) {
    std::vector<shared_buffer>& own = array_memory::shards(*results_[r]);
    if (const int source = donated_[r]; source >= 0) {
      former_[r].swap(own);
      own = donations_[static_cast<std::size_t>(source)];
    } else if (std::find(renewed.begin(), renewed.end(), static_cast<int>(r)) != renewed.end()) {
      std::vector<shared_buffer>& other = former_[r];
      const bool is_free =
          !other.empty() && std::none_of(other.begin(), other.end(), std::mem_fn(&shared_buffer::is_shared));
      if (!is_free) {
        other.clear();
        for (const shared_buffer& one : own) other.emplace_back(one.bytes());
      }
      other.swap(own);
      set_result(static_cast<int>(r), own);
    }
  }
}

ESPALIER_INLINE void program_runner::forget_former() {
  for (std::size_t r = 0; r < donated_.size(); ++r) {
    if (donated_[r] >= 0) former_[r].clear();
  }
  for (auto& one : donations_) one.clear();
  for (auto& list : copies_) list.clear();
}

ESPALIER_INLINE void program_runner::set_result(int index, const std::vector<shared_buffer>& shards) {
  if (shards.empty()) return;
  own_results_[static_cast<std::size_t>(index)] = shards.front().data();
  for (std::size_t local = 0; local < shards.size(); ++local) devices_[local]->set_result(index, shards[local].data());
}

ESPALIER_INLINE void program_runner::copy::make() const {
  parallel_ranges(bytes, bytes / 4, [this](std::int64_t first, std::int64_t last) {
    std::memcpy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first,
                static_cast<std::size_t>(last - first));
  });
}

}  // namespace espalier::detail
