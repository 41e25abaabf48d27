// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/list.hpp>
#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/graph/op.hpp>

#include <cstdint>

// A region is a part of a program that does not run exactly once: the body of a loop, or a branch. In the list of
// instructions it is what is between a `region_begin` and its `region_end` (ops/scan.hpp), by whose place it is named.
// Here are the questions that passes ask about one.

namespace espalier {

[[nodiscard]] constexpr region_kind region_kind_of(const instruction& begin) {
  return attributes_of<region_attributes>(begin).kind;
}
/// Whether what its `region_end` reads decides if it runs again.
[[nodiscard]] constexpr bool tests_to_go_on(region_kind kind) {
  return kind == region_kind::until || kind == region_kind::until_or_at_most;
}
/// Whether its body may run more than once.
[[nodiscard]] constexpr bool may_repeat(const region_attributes& of) {
  return of.iterations > 1 || of.kind == region_kind::until;
}
/// Whether it is known, before it runs, how often its body will.
[[nodiscard]] constexpr bool is_counted(const region_attributes& of) { return of.kind == region_kind::counted; }
/// The number that a branch is taken for.
[[nodiscard]] constexpr std::int64_t branch_number(const instruction& begin) {
  return static_cast<std::int64_t>(begin.scalar);
}

/// The most iterations of a region whose `region_begin` has read `entry` (and nothing, if the region is counted): 0 if
/// it does not run at all. A loop without a bound has the largest number there is.
[[nodiscard]] constexpr std::int64_t most_iterations(const instruction& begin, std::int64_t entry) {
  const auto of = attributes_of<region_attributes>(begin);
  switch (of.kind) {
    case region_kind::counted: return of.iterations;
    case region_kind::up_to: return entry < 0 ? 0 : entry < of.iterations ? entry : of.iterations;
    case region_kind::until: return entry != 0 ? INT64_MAX : 0;
    case region_kind::until_or_at_most: return entry != 0 ? of.iterations : 0;
    case region_kind::branch: return entry == branch_number(begin) ? 1 : 0;
  }
  return 0;
}

/// The innermost branch that encloses a place in region `inside` without enclosing region `outside` (-1: the program),
/// or `outside` if there is none: what is computed there runs as seldom as the place itself.
template <class Code> [[nodiscard]] constexpr int within_branch(const Code& code, int inside, int outside) {
  int branch = -1;
  int region = inside;
  for (; region >= 0 && region != outside; region = code[region].region) {
    if (branch < 0 && region_kind_of(code[region]) == region_kind::branch) branch = region;
  }
  return branch >= 0 && region == outside ? branch : outside;
}

// What the instructions at a region's border read.

/// What a parameter is in the first iteration.
[[nodiscard]] constexpr int initial_of(const instruction& parameter) { return parameter.operand[0]; }
/// The parameter that a `region_yield` is for, and what that is in the next iteration.
[[nodiscard]] constexpr int parameter_of(const instruction& yield) { return yield.operand[0]; }
[[nodiscard]] constexpr int yielded_by(const instruction& yield) { return yield.operand[1]; }
/// The `region_yield` whose last value a `region_result` is.
[[nodiscard]] constexpr int yield_of_result(const instruction& result) { return result.operand[0]; }
/// The region that a `region_end` ends.
[[nodiscard]] constexpr int ended_by(const instruction& end) { return end.operand[0]; }
/// The region where an instruction reads its operands: an end reads, in its region, whether that goes on.
[[nodiscard]] constexpr int reads_in(const instruction& i) {
  return structure_of(i) == structure::region_end ? ended_by(i) : i.region;
}

/// A region: where it is, and what goes in and out. Values are named by their instructions, in the order of these.
struct region {
  /// Its `region_begin` and its `region_end` (-1: it is being built).
  int first = -1;
  int last = -1;
  /// The region around it, or -1.
  int parent = -1;
  region_kind kind = region_kind::counted;
  /// What its `region_begin` reads, and what its `region_end` reads to decide whether it goes on; or -1.
  int entry = -1;
  int goes_on = -1;
  detail::list<int> parameters;
  /// The `region_yield`s that say what the parameters are next.
  detail::list<int> yields;
  /// Outside of it: the `region_result`s, and the stacks and sums of its values.
  detail::list<int> results;
  detail::list<int> collected;
};

/// The regions of a program, finished or being built: what passes ask instead of looking through the instructions.
/// Linear in the program's size.
class region_table {
 public:
  constexpr region_table() = default;
  /// @param from the first instruction that counts: regions that begin before it are left out
  constexpr explicit region_table(graph_view g, int from = 0) : from_(from) {
    // (The loop does as little as it can: in most programs few instructions are at a border, and in many none.)
    for (int id = from; id < g.size; ++id) {
      if (g.code[id].op->facts.part >= structure::region_begin) add(g, id);
    }
  }

  [[nodiscard]] constexpr int size() const { return all_.size(); }
  /// Region n, in the order in which they begin.
  [[nodiscard]] constexpr const region& operator[](int n) const { return all_[n]; }
  [[nodiscard]] constexpr const region* begin() const { return all_.begin(); }
  [[nodiscard]] constexpr const region* end() const { return all_.end(); }
  /// The region that begins at a `region_begin`.
  [[nodiscard]] constexpr const region& beginning_at(int begin) const { return all_[link_[begin - from_]]; }

  /// The (first) `region_yield` that says what a parameter is next, or -1.
  [[nodiscard]] constexpr int yield_of(int parameter) const { return link_[parameter - from_]; }
  /// The first `region_result` of a `region_yield`, or -1.
  [[nodiscard]] constexpr int result_of(int yield) const { return link_[yield - from_]; }

 private:
  constexpr void add(graph_view g, int id) {
    if (link_.empty()) link_.resize(g.size - from_, -1);
    const instruction& i = g.code[id];
    const structure part = structure_of(i);
    switch (part) {
      case structure::region_begin: {
        link(id) = all_.push_back(region{});
        region& made = all_.back();
        made.first = id;
        made.parent = i.region;
        made.kind = region_kind_of(i);
        if (i.operand_count > 0) made.entry = i.operand[0];
        break;
      }
      case structure::region_parameter:
        if (i.region >= from_) at(i.region).parameters.push_back(id);
        break;
      case structure::region_yield:
        if (i.region < from_) break;
        at(i.region).yields.push_back(id);
        if (link(parameter_of(i)) < 0) link(parameter_of(i)) = id;
        break;
      case structure::region_end: {
        if (ended_by(i) < from_) break;
        region& ended = at(ended_by(i));
        ended.last = id;
        if (i.operand_count > 1) ended.goes_on = i.operand[1];
        break;
      }
      case structure::region_result:
      case structure::loop_stack:
      case structure::loop_sum: {
        const int read = i.operand[0];
        if (g.code[read].region < from_) break;
        region& of = at(g.code[read].region);
        (part == structure::region_result ? of.results : of.collected).push_back(id);
        if (part == structure::region_result && link(read) < 0) link(read) = id;
        break;
      }
      case structure::none:
      case structure::argument:
      case structure::result:
      case structure::loop_slice: break;
    }
  }

  [[nodiscard]] constexpr region& at(int begin) { return all_[link_[begin - from_]]; }
  [[nodiscard]] constexpr int& link(int id) { return link_[id - from_]; }

  int from_ = 0;
  detail::list<region> all_;
  /// By instruction: the number of the region that begins there; a parameter's yield; a yield's first result; else -1.
  /// Empty as long as there are no regions.
  detail::list<int> link_;
};

/// Whether a program has a region of which it is not known, before it runs, how often it does.
[[nodiscard]] constexpr bool has_uncounted_regions(graph_view g) {
  for (int id = 0; id < g.size; ++id) {
    if (structure_of(g.code[id]) == structure::region_begin &&
        !is_counted(attributes_of<region_attributes>(g.code[id])))
      return true;
  }
  return false;
}

}  // namespace espalier
