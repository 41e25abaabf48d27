// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/graph/op.hpp>
#include <espalier/tensor/core/partition/kinds.hpp>

#include <cstddef>
#include <exception>
#include <utility>

namespace espalier::detail {

/// Raised where a rule is asked of an op that has been left without: only its facts are there at run time.
class no_rule_at_run_time : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override {
    return "what a program holds of itself at run time has no rules of ops: ask Program::code, in a constant";
  }
};
template <class Rule> struct absent_rule;
template <class Result, class... Given> struct absent_rule<Result (*)(Given...)> {
  [[noreturn]] static Result call(Given... /*given*/) { throw no_rule_at_run_time(); }
};
template <class Rule> [[nodiscard]] constexpr Rule absent(Rule rule) {
  return rule == nullptr ? nullptr : &absent_rule<Rule>::call;
}

/// Calls f on each rule of an op.
template <class Op, class F> constexpr void for_each_rule(Op& op, const F& f) {
  f(op.factors);
  f(op.gradient);
  f(op.evaluate);
  f(op.flops);
  f(op.windows);
  f(op.lower);
  f(op.identity);
  f(op.shifts);
  f(op.fill);
  f(op.map);
  f(op.facts.is_operand);
}
[[nodiscard]] constexpr op_info stripped(op_info op) {
  for_each_rule(op, [](auto& rule) { rule = absent(rule); });
  return op;
}
/// Whether an op has rules at all. Those that are elements of an array, which no template argument can name, have none.
[[nodiscard]] constexpr bool has_rules(const op_info& op) {
  bool found = false;
  for_each_rule(op, [&](const auto& rule) { found = found || rule != nullptr; });
  return found;
}
template <const op_info* Op> inline constexpr op_info op_without_rules = stripped(*Op);

/// A frozen graph for use at run time. Its instructions point to ops without rules: those that point to the rules would
/// take them, and all that they call, the partitioner included, into every program that is built.
template <const auto& Graph> class without_rules {
  static constexpr kind_table<Graph.size> ops = sort_into_kinds<Graph.size>(
      [](int id) { return has_rules(*Graph.code[id].op); }, [](int id) { return hash_of(*Graph.code[id].op); },
      [](int a, int b) { return Graph.code[a].op == Graph.code[b].op; });

  template <std::size_t... Kind> [[nodiscard]] static constexpr auto make(std::index_sequence<Kind...> /*kinds*/) {
    const op_info* const bare[]{&op_without_rules<Graph.code[ops.first[Kind]].op>..., nullptr};
    auto result = freeze<Graph.size, Graph.annotation_count, Graph.window_count, Graph.further_count>(Graph);
    for (int id = 0; id < Graph.size; ++id) {
      if (ops.of[id] >= 0) result.code[id].op = bare[ops.of[id]];
    }
    return result;
  }

 public:
  static constexpr auto value = make(std::make_index_sequence<static_cast<std::size_t>(ops.count)>{});
};

}  // namespace espalier::detail
