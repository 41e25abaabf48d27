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

/// A region: where it is, and what goes in and out.
struct region {
  /// Its `region_begin` and its `region_end`.
  int first = -1;
  int last = -1;
  /// The region around it, or -1.
  int parent = -1;
  region_kind kind = region_kind::counted;
  /// What its `region_begin` reads, and what its `region_end` reads to decide whether it goes on; or -1.
  int entry = -1;
  int goes_on = -1;
  /// The carries, and the `region_yield`s that say what each gets next.
  detail::list<int> parameters;
  detail::list<int> yields;
  /// The stacks and sums of its values, which are outside of it.
  detail::list<int> collected;
};

/// All regions of a program. Linear in its size.
class region_table {
 public:
  constexpr explicit region_table(graph_view g) : at_(g.size, -1) {
    for (int id = 0; id < g.size; ++id) {
      const instruction& i = g[id];
      switch (structure_of(i)) {
        case structure::region_begin: {
          region made;
          made.first = id;
          made.parent = i.region;
          made.kind = region_kind_of(i);
          if (i.operand_count > 0) made.entry = i.operand[0];
          at_[id] = all_.size();
          all_.push_back(made);
          break;
        }
        case structure::region_end:
          at(i.operand[0]).last = id;
          if (i.operand_count > 1) at(i.operand[0]).goes_on = i.operand[1];
          break;
        case structure::region_yield: at(i.region).yields.push_back(id); break;
        case structure::region_parameter: at(i.region).parameters.push_back(id); break;
        case structure::loop_stack:
        case structure::loop_sum: at(g[i.operand[0]].region).collected.push_back(id); break;
        default: break;
      }
    }
  }

  [[nodiscard]] constexpr int size() const { return all_.size(); }
  /// Region n, in the order in which they begin.
  [[nodiscard]] constexpr const region& operator[](int n) const { return all_[n]; }
  /// The region that begins at a `region_begin`.
  [[nodiscard]] constexpr const region& beginning_at(int begin) const { return all_[at_[begin]]; }

 private:
  [[nodiscard]] constexpr region& at(int begin) { return all_[at_[begin]]; }

  detail::list<region> all_;
  detail::list<int> at_;
};

}  // namespace espalier
