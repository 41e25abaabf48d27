// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/execute/aliases.hpp>
#include <espalier/execute/array.hpp>
#include <espalier/execute/program_device.hpp>
#include <espalier/graph/named_leaves.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace espalier::detail {

/// What a runner knows of its program beside its tables.
struct runner_facts {
  const mesh_shape* mesh;   ///< that the program was written for
  const axis_parts* parts;  ///< of its axes
  const int* first_leaf;    ///< by argument, and how many leaves there are
  int arity;
  /// Of a leaf of an argument that is a tree, "blocks.up.weight". Null where no argument is one.
  std::string (*leaf_name)(int leaf);
};

/// Runs a program on arrays whose types only run time knows: all of a `runner` but its types, compiled once.
class program_runner {
 public:
  /// Errors: `launch_error` if the world's mesh is not the program's.
  program_runner(world& where, const program_tables& tables, const runner_facts& facts);
  program_runner(const program_runner&) = delete;
  program_runner& operator=(const program_runner&) = delete;

  /// The results' arrays, in order, which outlive this; then `start`.
  void add_result(any_array& array) { results_.push_back(&array); }
  void start();

  /// Zeros, laid out as the program wants leaf `index`.
  void make_argument(any_array& array, int index) const;

  /// A call: the arguments' arrays, in order, and what `runner` says of a call.
  void forget_arguments() { arguments_.clear(); }
  void add_argument(const any_array& array) { arguments_.push_back(&array); }
  void call();
  /// Of an argument of which only the whole is given, at the number of its leaf: an array whose memory is nobody
  /// else's, as a result's that took its place may be, or null if one has to be made.
  [[nodiscard]] std::shared_ptr<any_array>& own_argument(int leaf);

 private:
  struct copy {
    void* to;
    const void* from;
    std::int64_t bytes;

    void make() const;
  };

  void find_borders();
  void make_results();
  void set_result(int index, const std::vector<shared_buffer>& shards);
  void check(int index) const;
  void find_aliases();
  void bind(int index, bool as_before);
  void place_results();
  void forget_former();
  [[nodiscard]] std::string name_of(int leaf) const;
  [[nodiscard]] std::string maker_of(int leaf) const;

  world& world_;
  program_tables tables_;
  runner_facts facts_;
  std::vector<const sharding*> argument_placement_;
  std::vector<const sharding*> result_placement_;
  std::vector<int> donated_;    // by result: the argument whose place it takes, or -1
  std::vector<int> result_in_;  // by argument: the result that takes its place, or -1
  std::unique_ptr<alias_finder> aliases_;
  std::vector<any_array*> results_;
  std::vector<const any_array*> arguments_;  // of the current call
  std::vector<std::array<std::shared_ptr<any_array>, 2>> own_arguments_;
  /// Where arguments and the results with memory of their own begin, on the first device of this process.
  std::vector<void*> begins_;
  std::vector<void*> own_results_;
  /// The last call had these arguments, and nothing had to be done about them.
  bool settled_ = false;
  /// By argument: what a copy is made into; and during a call the memory that a result takes.
  std::vector<std::vector<shared_buffer>> private_;
  std::vector<std::vector<shared_buffer>> donations_;
  /// By result: the memory it does not use at present.
  std::vector<std::vector<shared_buffer>> former_;
  std::vector<std::vector<copy>> copies_;  // by device: before it runs
  std::vector<std::unique_ptr<program_device>> devices_;
};

/// Throws `argument_error`: `value` is an integer that an element of type `type` cannot be.
[[noreturn]] void refuse_element(const std::string& value, dtype type);

// What a runner does with each leaf of a tree: types of their own, so that trees are walked by the same code whatever
// the program.
struct result_lister {
  program_runner& core;
  void operator()(any_array& array) const { core.add_result(array); }
};
struct argument_lister {
  program_runner& core;
  void operator()(const any_array& array) const { core.add_argument(array); }
};
class argument_maker {
 public:
  argument_maker(const program_runner& core, int first) : core_(core), next_(first) {}
  void operator()(any_array& array) const { core_.make_argument(array, next_++); }

 private:
  const program_runner& core_;
  mutable int next_;
};
/// Leaves the name of leaf `wanted` in `name`.
struct leaf_namer {
  int& next;
  int wanted;
  std::string& name;
  void operator()(const any_array& /*array*/, const leaf_path& path) const {
    if (next++ == wanted) name = path.str();
  }
};

}  // namespace espalier::detail

#if !defined(ESPALIER_COMPILED)
#include <espalier/execute/program_runner_compiled.hpp>
#endif
