// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/partition/merge_collectives.hpp>
#include <espalier/partition/partition.hpp>
#include <espalier/program/common_subexpressions.hpp>
#include <espalier/program/complete.hpp>
#include <espalier/program/normalise.hpp>
#include <espalier/program/trace.hpp>

namespace espalier::detail {

/// The passes as constants, each in variables of its own: a compiler's limit on the steps of a constant evaluation
/// holds for each of them alone. `Maker::make()` returns a graph; no compiler lets its lists outlive the evaluation,
/// so it runs once for the size and once for the content.
template <class Maker> struct frozen {
  static constexpr int size = Maker::make().code.size();
  static constexpr int annotations = Maker::make().annotations.size();
  static constexpr fixed_graph<size, annotations> value = freeze<size, annotations>(Maker::make());
};

template <class Mesh, class Function, class... Arguments> struct traced_graph {
  static constexpr graph make() { return trace<Mesh, Function, Arguments...>().program; }
};
template <class Before> struct normalised_graph {
  static constexpr graph make() { return normalise(frozen<Before>::value); }
};
template <class Before, bool SourcesToo> struct merged_graph {
  static constexpr graph make() { return merge_common_subexpressions(frozen<Before>::value, SourcesToo); }
};

template <int Size> struct rule_table {
  factor_rule of[Size > 0 ? Size : 1]{};
  /// The first instruction without a rule, or -1.
  int missing = -1;
};

[[nodiscard]] constexpr int first_without_rule(graph_view g) {
  for (int id = 0; id < g.size; ++id) {
    if (g[id].op->factors == nullptr) return id;
  }
  return -1;
}

template <int Size> [[nodiscard]] constexpr rule_table<Size> rules_of(graph_view g) {
  rule_table<Size> table;
  table.missing = first_without_rule(g);
  if (table.missing >= 0) return table;
  for (int id = 0; id < Size; ++id) {
    table.of[id] = g[id].op->factors({g.code, id});
    write_each(&table.of[id].result[0], max_rank);
    for (int k = 0; k < g[id].operand_count; ++k) write_each(&table.of[id].operand[k][0], max_rank);
  }
  return table;
}

template <int Size> [[nodiscard]] constexpr completion<Size> started_completion(graph_view g) {
  completion<Size> state;
  start_completion(g, &state.of[0], &state.cause[0], &state.changed_in[0]);
  for (sharding& one : state.of) write_each(&one.dim[0], max_rank);
  return state;
}

/// One more sweep; when it changes nothing, the next level, and behind the last level the end.
template <int Size>
[[nodiscard]] constexpr completion<Size> swept(const mesh_shape& mesh, graph_view g, const rule_table<Size>& rules,
                                               completion<Size> state) {
  const bool level_is_new = state.level_is_new;
  state.level_is_new = false;
  ++state.sweep;
  if (!sweep_completion(mesh, g, &rules.of[0], &state.of[0], &state.cause[0], &state.changed_in[0], state.sweep,
                        state.level, level_is_new)) {
    state.done = state.level == last_level;
    ++state.level;
    state.level_is_new = true;
  }
  return state;
}

/// Shardings for all values of a graph.
template <class Mesh, class Source> struct completed {
  static constexpr const auto& program = frozen<Source>::value;
  static constexpr int size = frozen<Source>::size;
  static constexpr annotation_conflict conflict = find_conflict(program);
  static constexpr rule_table<size> rules = rules_of<size>(program);

  template <int Sweep> struct state {
    static constexpr completion<size> value = swept<size>(Mesh::value, program, rules, state<Sweep - 1>::value);
  };
  template <int Sweep>
    requires(Sweep == 0)
  struct state<Sweep> {
    static constexpr completion<size> value = started_completion<size>(program);
  };
  template <int Sweep> static constexpr const completion<size>& last() {
    if constexpr (state<Sweep>::value.done) {
      return state<Sweep>::value;
    } else {
      return last<Sweep + 1>();
    }
  }
  static constexpr const completion<size>& value = last<0>();
};

template <class Mesh, class Source> struct partitioned_graph {
  using from = completed<Mesh, Source>;
  static constexpr partitioned run() {
    return partition(Mesh::value, from::program, &from::rules.of[0], &from::value.of[0]);
  }
  static constexpr graph make() { return run().program; }
  /// What went wrong, if anything: the instruction of the traced graph, or -1.
  struct finding {
    partition_fault fault;
    int at;
  };
  static constexpr finding found = [] {
    const partitioned made = run();
    return finding{made.fault, made.fault_at};
  }();
};

template <class Mesh, class Before> struct joined_graph {
  static constexpr graph make() { return merge_collectives(Mesh::value, frozen<Before>::value); }
};

}  // namespace espalier::detail
