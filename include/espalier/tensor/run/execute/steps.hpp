// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/run/execute/tables.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::detail {

/// The action of a device in one step. Values are named by their instruction; the plan says where they are.
enum class step_kind : std::uint8_t {
  /// The launch's kernel.
  kernel,
  /// The launch's fused chain.
  chain,
  /// target = source
  copy,
  /// The value that the copy into `target` is to take, into the buffer kept for it; and from there to the target.
  save,
  copy_saved,
  /// target = 0
  clear,
  /// target += source
  add,
  /// The slice of `target` that belongs to the iteration of region `region` = source
  stack,
  /// target = the part of source that this device keeps
  local_slice,
  /// A collective: target from the sources of all devices
  move,
  /// The first iteration of region `region`; if there is none, execution goes on after it, at step `jump`. `source`
  /// says how many there are, or which branch is taken (-1: it is known).
  region_begin,
  /// There is no next iteration unless `source` is true.
  loop_test,
  /// The next iteration: goes back to step `jump`, if there is one.
  region_end,
};

struct device_step {
  step_kind kind = step_kind::kernel;
  int launch = -1;
  int target = -1;
  int source = -1;
  int region = -1;
  int jump = -1;
};

/// The program of one device as a table of steps, which an executor walks without knowing any op. Made once, at run
/// time: it costs no compilation.
class step_list {
 public:
  explicit step_list(const program_tables& t)
      : t_(t), regions_(t.code), first_(static_cast<std::size_t>(t.launch_count) + 1) {
    for (launch_ = 0; launch_ < t.launch_count; ++launch_) {
      first_[static_cast<std::size_t>(launch_)] = size();
      add_launch();
    }
    first_[static_cast<std::size_t>(launch_)] = size();
  }

  [[nodiscard]] int size() const { return static_cast<int>(steps_.size()); }
  [[nodiscard]] const device_step& operator[](int n) const { return steps_[static_cast<std::size_t>(n)]; }
  /// The first step of a launch, or, if it has none, of the next one that has.
  [[nodiscard]] int first_of(int launch) const { return first_[static_cast<std::size_t>(launch)]; }

 private:
  void add(step_kind kind, int target = -1, int source = -1, int region = -1, int jump = -1) {
    steps_.push_back({kind, launch_, target, source, region, jump});
  }

  void add_launch() {
    const launch& what = t_.launches[launch_];
    const int id = t_.order[what.first];
    const instruction& i = t_.code[id];
    const int moves = collective_index(i.op);
    if (what.fused) {
      add(step_kind::chain);
    } else if (has_kernel(i)) {
      add(step_kind::kernel, id);
    } else if (moves == static_cast<int>(collective::local_slice)) {
      add(step_kind::local_slice, id, i.operand[0]);
    } else if (moves >= 0) {
      add(step_kind::move, id, i.operand[0]);
    } else if (structure_of(i) == structure::region_begin) {
      begin_region(regions_.beginning_at(id));
    } else if (structure_of(i) == structure::region_end) {
      end_region(regions_.beginning_at(i.operand[0]));
    } else if (structure_of(i) == structure::result) {
      add_copies();
    }
  }

  void begin_region(const region& of) {
    for (const int carry : of.parameters) add(step_kind::copy, carry, initial_of(t_.code[carry]));
    for (const int id : of.collected) {
      if (structure_of(t_.code[id]) == structure::loop_sum || is_read_beyond(id)) add(step_kind::clear, id);
    }
    open_.push_back(size());
    add(step_kind::region_begin, -1, of.entry, of.first);
  }

  /// Whether layers of a stack are read that the iterations have not written: other regions that run as often as this
  /// one read only those that were.
  [[nodiscard]] bool is_read_beyond(int stack) const {
    if (is_counted(attributes_of<region_attributes>(t_.code[t_.code[t_.code[stack].operand[0]].region]))) return false;
    for (int id = stack + 1; id < t_.code.size; ++id) {
      const instruction& i = t_.code[id];
      for (int k = 0; k < i.operand_count; ++k) {
        if (t_.code.operand_at(i, k) != stack) continue;
        if (structure_of(i) != structure::loop_slice) return true;
        if (is_counted(attributes_of<region_attributes>(t_.code[i.region]))) return true;
      }
    }
    return false;
  }

  /// The iteration's values go to stacks and sums before the carries change.
  void end_region(const region& of) {
    for (const int id : of.collected) {
      const int value = t_.code[id].operand[0];
      if (structure_of(t_.code[id]) == structure::loop_sum) {
        add(step_kind::add, id, value);
      } else if (t_.copied[id]) {
        add(step_kind::stack, id, value, of.first);
      }
    }
    if (of.goes_on >= 0) add(step_kind::loop_test, -1, of.goes_on, of.first);
    add_copies();
    const int begin = open_.back();
    open_.pop_back();
    add(step_kind::region_end, -1, -1, of.first, begin + 1);
    steps_[static_cast<std::size_t>(begin)].jump = size();
  }

  /// The copies that happen at once at the end of this launch.
  void add_copies() {
    const int first = next_copy_;
    while (next_copy_ < t_.code.size && t_.copies[next_copy_] >= 0 && t_.launch_of[t_.copies[next_copy_]] == launch_) {
      ++next_copy_;
    }
    for (const bool saving : {true, false}) {
      for (int n = first; n < next_copy_; ++n) {
        const int id = t_.copies[n];
        const int source = t_.code[id].operand[structure_of(t_.code[id]) == structure::result ? 0 : 1];
        const bool is_saved = t_.saved_at[id] >= 0;
        if (saving && is_saved) add(step_kind::save, id, source);
        if (!saving) add(is_saved ? step_kind::copy_saved : step_kind::copy, id, source);
      }
    }
  }

  const program_tables& t_;
  region_table regions_;
  plain_vector<device_step> steps_;
  std::vector<int> first_;
  /// The first steps of the loops that are open.
  std::vector<int> open_;
  int launch_ = 0;
  int next_copy_ = 0;
};

}  // namespace espalier::detail
