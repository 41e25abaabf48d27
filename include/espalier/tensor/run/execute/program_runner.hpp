// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/object_vector.hpp>
#include <espalier/base/light_std/owned.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/tensor/core/diagnostics/source_line.hpp>
#include <espalier/tensor/core/graph/named_leaves.hpp>
#include <espalier/tensor/run/execute/aliases.hpp>
#include <espalier/tensor/run/execute/array.hpp>
#include <espalier/tensor/run/execute/program_device.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace espalier::detail {

/// The facts of a program that a runner needs in addition to its tables.
struct runner_facts {
  const mesh_shape* mesh;   ///< that the program was written for
  const axis_parts* parts;  ///< of its axes
  const int* first_leaf;    ///< by argument, and how many leaves there are
  int arity;
  device_maker make_device;
  /// Returns the name of a leaf of an argument that is a tree: "blocks.up.weight". Null if no argument is a tree.
  std::string (*leaf_name)(int leaf);
};

/// Runs a program on arrays whose types only run time knows: all of a `runner` but its types, compiled once.
class program_runner {
 public:
  /// Errors: `launch_error` if the world's mesh is not the program's.
  program_runner(world& where, const program_tables& tables, const runner_facts& facts);
  program_runner(const program_runner&) = delete;
  program_runner& operator=(const program_runner&) = delete;
  ~program_runner();

  /// The results' arrays, in order, which outlive this; then `start`.
  void add_result(any_array& array) { results_[static_cast<std::size_t>(added_++)].array = &array; }
  void start();

  /// Zeros, laid out as the program wants leaf `index`.
  void make_argument(any_array& array, int index) const;

  /// A call: the arguments' arrays, in order, and what `runner` says of a call.
  void forget_arguments() { given_ = 0; }
  void add_argument(const any_array& array) { arguments_[static_cast<std::size_t>(given_++)].array = &array; }
  /// `where`: the call's line, if that is known.
  void call(source_line where);
  /// Bytes that calls have copied on a device because arguments were the same array, or because an array that shares a
  /// donated one's memory keeps its values.
  [[nodiscard]] std::int64_t copied_bytes() const { return copied_bytes_; }
  /// Returns the array into which an argument given only as a whole is copied, at the number of its leaf. No other
  /// array shares its memory, as a result that took its place may do; it is null if one has to be made.
  [[nodiscard]] std::shared_ptr<any_array>& own_argument(int leaf);

 private:
  /// Errors: `argument_error` if the world is gone.
  [[nodiscard]] world& here() const;

  using buffers = std::vector<shared_buffer>;  // one for each device of this process

  /// A leaf of an argument.
  struct argument_leaf {
    const sharding* placement = nullptr;
    int result = -1;  // that takes its place
    // In the current call, and then the last one:
    const any_array* array = nullptr;
    void* begin = nullptr;  // on the first device of this process
    buffers private_copy;   // what is read in its place, if that is changed
    buffers donated;        // during a call: the memory that its result takes
    bool is_kept = false;   // in the current call: by another array, which keeps its values
    std::shared_ptr<donation> call;
    /// Arrays of which only the whole is given: the second is there for calls that make the first one a result.
    std::shared_ptr<any_array> own[2];
  };
  struct result_leaf {
    any_array* array = nullptr;
    const sharding* placement = nullptr;
    int source = -1;        // the argument whose place it takes
    void* begin = nullptr;  // of memory of its own, on the first device of this process
    buffers former;         // memory that it does not use at present
  };
  /// Made on a device before that runs.
  struct copy {
    int local;
    void* to;
    const void* from;
    std::int64_t bytes;

    void make() const;
  };

  [[nodiscard]] argument_leaf& argument_of(int leaf) { return arguments_[static_cast<std::size_t>(leaf)]; }
  [[nodiscard]] const argument_leaf& argument_of(int leaf) const { return arguments_[static_cast<std::size_t>(leaf)]; }

  void find_borders();
  void make_results();
  void set_result(int index, const buffers& shards);
  void check(int leaf) const;
  [[nodiscard]] bool find_kept();
  void find_aliases();
  void refuse_clash() const;
  void check_replicas(source_line where);
  void bind(int leaf, bool as_before);
  void place_results();
  void mark_donated(source_line where);
  void forget_former();
  [[nodiscard]] std::string name_of(int leaf) const;
  [[nodiscard]] std::string maker_of(int leaf) const;

  std::shared_ptr<world*> world_;
  program_tables tables_;
  runner_facts facts_;
  object_vector<argument_leaf> arguments_;
  object_vector<result_leaf> results_;
  int given_ = 0;  // arguments of the current call
  int added_ = 0;  // results
  alias_finder aliases_;
  /// The last call had these arguments, and nothing had to be done about them.
  bool unchanged_ = false;
  bool some_kept_ = false;
  std::int64_t copied_bytes_ = 0;
  std::int64_t replicas_every_ = 0;
  std::int64_t calls_ = 0;
  plain_vector<copy> copies_;
  object_vector<owned<program_device>> devices_;
};

/// Throws `argument_error`: `value` is an integer that an element of type `type` cannot be.
[[noreturn]] void refuse_element(const std::string& value, dtype type);

// What a runner does to each array of a tree.
struct result_lister {
  program_runner& core;
  void operator()(any_array& array, const leaf_path& /*path*/) const { core.add_result(array); }
};
struct argument_lister {
  program_runner& core;
  void operator()(const any_array& array, const leaf_path& /*path*/) const { core.add_argument(array); }
};
class argument_maker {
 public:
  argument_maker(const program_runner& core, int first) : core_(core), next_(first) {}
  void operator()(any_array& array, const leaf_path& /*path*/) const { core_.make_argument(array, next_++); }

 private:
  const program_runner& core_;
  mutable int next_;
};
/// Leaves the name of leaf `leaf` in `name`.
struct leaf_namer {
  int& next;
  int leaf;
  std::string& name;
  void operator()(const any_array& /*array*/, const leaf_path& path) const {
    if (next++ == leaf) name = path.str();
  }
};

}  // namespace espalier::detail

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/execute/impl/program_runner.ipp>
#endif
