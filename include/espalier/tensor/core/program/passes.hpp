// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/partition/partition.hpp>
#include <espalier/tensor/core/partition/pass_chunks.hpp>
#include <espalier/tensor/core/partition/plan.hpp>
#include <espalier/tensor/core/partition/run_price.hpp>
#include <espalier/tensor/core/program/complete.hpp>
#include <espalier/tensor/core/program/cut_axes.hpp>
#include <espalier/tensor/core/program/pass_list.hpp>
#include <espalier/tensor/core/program/recompute_rows.hpp>
#include <espalier/tensor/core/program/refine_layouts.hpp>
#include <espalier/tensor/core/program/repeat_widened.hpp>
#include <espalier/tensor/core/program/trace.hpp>

#include <type_traits>

namespace espalier::detail {

struct graph_size {
  int code = 0;
  int annotations = 0;
  int windows = 0;
  int further = 0;
};
[[nodiscard]] constexpr graph_size graph_size_of(const graph& g) {
  return {g.code.size(), g.annotations.size(), g.windows.size(), g.further.size()};
}

/// The passes as constants, each in variables of its own: a compiler's limit on the steps of a constant evaluation
/// holds for each of them alone. `Maker::make()` returns a graph, and no compiler lets its lists outlive the
/// evaluation: its size has to be known before. `Maker::counted` is that size, if the maker knows it; `Maker::room` is
/// what it most likely does not exceed, and where it does, or for a maker that knows nothing, the evaluation is made
/// twice.
template <class Maker> [[nodiscard]] constexpr graph_size counted_size() {
  if constexpr (requires { Maker::counted; }) {
    return Maker::counted;
  } else {
    return graph_size_of(Maker::make());
  }
}
template <class Maker> struct frozen {
  static constexpr graph_size counted = counted_size<Maker>();
  static constexpr int size = counted.code;
  static constexpr auto value =
      freeze<counted.code, counted.annotations, counted.windows, counted.further>(Maker::make());
};
template <class Maker>
  requires requires { Maker::room; }
class frozen<Maker> {
  template <graph_size Room> [[nodiscard]] static constexpr auto make() {
    return freeze_roomily<Room.code, Room.annotations, Room.windows, Room.further>(Maker::make());
  }
  static constexpr auto first = make<Maker::room>();
  template <graph_size Room> struct again { static constexpr auto value = make<Room>(); };

 public:
  static constexpr graph_size counted{first.size, first.annotation_count, first.window_count, first.further_count};
  static constexpr int size = counted.code;
  [[nodiscard]] static constexpr const auto& with_room() {
    if constexpr (first.fits) {
      return first;
    } else {
      return again<counted>::value;
    }
  }
  static constexpr const auto& value = with_room();
};

/// The findings of tracing, from a single evaluation.
struct trace_content {
  mistake_place failure;
  const reason_id* mistake = nullptr;
  mistake_place mistake_where;
  bool gradient_is_missing = false;
  const char* without_gradient = "";
  source_line without_gradient_line;
  /// A part of it is in explicit mode (program/explicit_mode.hpp).
  bool is_explicit = false;
  graph_size size;
};
[[nodiscard]] constexpr trace_content content_of(const traced& t) {
  trace_content c;
  c.failure = t.failure;
  c.mistake = t.mistake;
  c.mistake_where = t.mistake_where;
  c.size = graph_size_of(t.program);
  for (const source_line& caller : t.callers) {
    if (is_scope(caller) && allowed_in_scope(caller) != all_kinds_allowed) c.is_explicit = true;
  }
  if (t.without_gradient >= 0) {
    c.gradient_is_missing = true;
    c.without_gradient = t.program.code[t.without_gradient].op->name;
    c.without_gradient_line = t.without_gradient_line;
  }
  return c;
}
/// That and the graph, if it is as small as most are.
template <int Room> struct trace_content_and_graph : trace_content {
  roomy_graph<Room, Room / 2, Room / 8, Room / 8> program;
};
/// Returns a number of instructions that most functions of so many tensors do not exceed.
[[nodiscard]] constexpr int room_for_trace(int arguments) { return 160 + 16 * arguments; }

/// The same by its address, and the places in it, for messages.
template <const auto& Found> struct findings_at {
  static constexpr const trace_content& value = Found;
  struct mistake_place {
    static constexpr espalier::mistake_place value = Found.mistake_where;
  };
  struct failure_place {
    static constexpr espalier::mistake_place value = Found.failure;
  };
  struct gradient_line {
    static constexpr source_line value = Found.without_gradient_line;
  };
  struct gradient_op {
    static constexpr const char* value = Found.without_gradient;
  };
};
/// g++ remembers what this function returned; asked again, as every program does, it costs nothing.
template <class Mesh, class Function, class... Arguments> [[nodiscard]] constexpr auto find_by_tracing() {
  constexpr int room = room_for_trace((leaf_count<Arguments>() + ... + 0));
  const traced made = trace<Mesh, Function, Arguments...>();
  return trace_content_and_graph<room>{content_of(made),
                                       freeze_roomily<room, room / 2, room / 8, room / 8>(made.program)};
}
template <class Mesh, class Function, class... Arguments> struct found_by_tracing {
  static constexpr auto value = find_by_tracing<Mesh, Function, Arguments...>();
};
template <class Mesh, class Function, class... Arguments>
using trace_findings = findings_at<found_by_tracing<Mesh, Function, Arguments...>::value>;

template <class Mesh, class Function, class... Arguments> struct traced_graph {
  using content = found_by_tracing<Mesh, Function, Arguments...>;
  static constexpr graph_size counted = content::value.size;
  [[nodiscard]] static constexpr auto make() {
    if constexpr (content::value.program.fits) {
      return graph_view(content::value.program);
    } else {
      return trace<Mesh, Function, Arguments...>().program;
    }
  }
};
/// A graph after the first `Count` of `passes_on_tensors`.
template <class Mesh, class Source, int Count = length_of(passes_on_tensors)> struct simplified_graph {
  using before = std::conditional_t<Count == 1, Source, simplified_graph<Mesh, Source, Count - 1>>;
  static constexpr graph_size room = frozen<before>::counted;
  static constexpr graph make() { return passes_on_tensors[Count - 1].run(Mesh::value, frozen<before>::value); }
};
/// The same of `passes_on_buffers`.
template <class Mesh, class Source, int Count = length_of(passes_on_buffers)> struct device_graph {
  using before = std::conditional_t<Count == 1, Source, device_graph<Mesh, Source, Count - 1>>;
  static constexpr graph_size room = frozen<before>::counted;
  static constexpr graph make() { return passes_on_buffers[Count - 1].run(Mesh::value, frozen<before>::value); }
};

/// The graph after `recompute_rows`, where there are scores of rows and keys: most programs have none.
template <class Mesh, class Source> struct recomputed_graph {
  static constexpr graph make() { return recompute_rows(frozen<device_graph<Mesh, Source>>::value); }
};
template <class Mesh, class Source>
using graph_by_rows = std::conditional_t<has_scores(frozen<device_graph<Mesh, Source>>::value),
                                         recomputed_graph<Mesh, Source>, device_graph<Mesh, Source>>;

/// The graph after `repeat_widened`, where values are computed in a wider type than they are kept in: most programs
/// have none.
template <class Mesh, class Source> struct repeated_graph {
  using before = graph_by_rows<Mesh, Source>;
  static constexpr graph make() {
    return repeat_widened(frozen<before>::value, planned<Mesh, frozen<before>::value>::scheduled);
  }
};
template <class Mesh, class Source>
using scheduled_graph = std::conditional_t<widens(frozen<graph_by_rows<Mesh, Source>>::value),
                                           repeated_graph<Mesh, Source>, graph_by_rows<Mesh, Source>>;

template <int Size> struct rule_table { factor_rule of[Size > 0 ? Size : 1]{}; };

/// The first instruction without a rule, or -1.
[[nodiscard]] constexpr int first_without_rule(graph_view g) {
  for (int id = 0; id < g.size; ++id) {
    if (g[id].op->factors == nullptr) return id;
  }
  return -1;
}

template <int Size> [[nodiscard]] constexpr rule_table<Size> rules_of(graph_view g) {
  rule_table<Size> table;
  for (int id = 0; id < Size; ++id) {
    if (g[id].op->factors == nullptr) return table;
    table.of[id] = g[id].op->factors(g.view(id));
    write_each(&table.of[id].result[0], max_rank);
    for (int k = 0; k < g[id].operand_count && k < inline_operands; ++k)
      write_each(&table.of[id].operand[k][0], max_rank);
  }
  return table;
}

template <int Size, int Operands>
[[nodiscard]] constexpr completion_view view_of(completion<Size>& state, const reader_table<Size, Operands>& readers) {
  return {&state.of[0],      &state.cause[0],    &state.forward[0], &state.backward[0],
          &readers.first[0], &readers.reader[0], &readers.next[0]};
}
template <int Size, int Operands> [[nodiscard]] constexpr reader_table<Size, Operands> readers_of(graph_view g) {
  reader_table<Size, Operands> table;
  list_readers(g, &table.first[0], &table.reader[0], &table.next[0]);
  return table;
}

template <int Size, int Operands>
[[nodiscard]] constexpr completion<Size> started_completion(graph_view g, const reader_table<Size, Operands>& readers) {
  completion<Size> state;
  start_completion(g, view_of(state, readers));
  for (sharding& one : state.of) write_each(&one.dim[0], max_rank);
  return state;
}

/// A constant evaluation ends after so many visits of ops with its sweep: clang's limit on steps is some thousand
/// visits.
inline constexpr int visits_in_evaluation = 512 * length_of_evaluations;

/// Further sweeps; when one changes nothing, the next level, after the last level the annotations of the next priority,
/// and after those of the last priority the end.
template <int Size, int Operands>
[[nodiscard]] constexpr completion<Size> swept(const mesh_shape& mesh, graph_view g, const rule_table<Size>& rules,
                                               const reader_table<Size, Operands>& readers, completion<Size> state) {
  for (int spent = 0; !state.done && spent < visits_in_evaluation;) {
    const completion_sweep sweep = sweep_completion(mesh, g, &rules.of[0], view_of(state, readers), state.level);
    if (!sweep.changed && state.level++ == last_level) {
      state.done = state.round == last_priority(g);
      if (!state.done) start_round(g, view_of(state, readers), ++state.round);
      state.level = state.done ? state.level : 0;
    }
    spent += sweep.visited + Size / 16;  // a look at whether to visit is a part of a visit
  }
  if (state.done) refine_sums(g, &rules.of[0], view_of(state, readers));
  return state;
}

/// Shardings for all values of a graph.
template <class Mesh, class Source> struct completed {
  static constexpr const auto& program = frozen<Source>::value;
  static constexpr int size = frozen<Source>::size;
  static constexpr annotation_conflict conflict = find_conflict(program);
  static constexpr int without_rule = first_without_rule(program);
  static constexpr rule_table<size> rules = rules_of<size>(program);
  static constexpr auto readers = readers_of<size, count_operands(program)>(program);

  template <int Chunk> struct state {
    static constexpr completion<size> value = swept(Mesh::value, program, rules, readers, state<Chunk - 1>::value);
  };
  template <int Chunk>
    requires(Chunk == 0)
  struct state<Chunk> {
    static constexpr completion<size> value = started_completion(program, readers);
  };
  template <int Chunk> static constexpr const completion<size>& last() {
    if constexpr (state<Chunk>::value.done) {
      return state<Chunk>::value;
    } else {
      return last<Chunk + 1>();
    }
  }
  static constexpr const completion<size>& spread = last<0>();

  /// The first op whose tensors have to move, or -1: most programs have none.
  template <int First = 0> [[nodiscard]] static constexpr int find_dispute() {
    constexpr int found =
        first_dispute(Mesh::value, program, &rules.of[0], &spread.of[0], First, First + looks_in_evaluation);
    if constexpr (found >= 0 || First + looks_in_evaluation >= size) {
      return found;
    } else {
      return find_dispute<First + looks_in_evaluation>();
    }
  }
  struct refinement {
    completion<size> of;
    refinement_progress at;
  };
  [[nodiscard]] static constexpr refinement refine_further(const refinement& from) {
    refinement now = from;
    layout_refinement work(Mesh::value, program, &rules.of[0], view_of(now.of, readers));
    now.at = work.run(from.at, moves_in_evaluation, least_refined_bytes);
    return now;
  }
  template <int Chunk> struct refined {
    static constexpr refinement value = refine_further(refined<Chunk - 1>::value);
  };
  template <int Chunk>
    requires(Chunk == 0)
  struct refined<Chunk> {
    static constexpr refinement value = refine_further({spread, {}});
  };
  template <int Chunk = 0> [[nodiscard]] static constexpr const completion<size>& last_refined() {
    if constexpr (refined<Chunk>::value.at.done) {
      return refined<Chunk>::value.of;
    } else {
      return last_refined<Chunk + 1>();
    }
  }
  [[nodiscard]] static constexpr const completion<size>& settled() {
    if constexpr (find_dispute() >= 0) {
      return last_refined();
    } else {
      return spread;
    }
  }
  static constexpr const completion<size>& value = settled();
};

/// The largest number of times that axes are cut, with the graph completed each time: the dimensions that sub-axes
/// split show where the next cut is. (An axis is cut in at most as many places as a mesh may have axes.)
inline constexpr int most_cuts = max_axes;

/// A graph completed on a mesh, of which axes are cut `Cuts` times. Of none: on the mesh itself.
template <class Mesh, class Source, int Cuts> struct completed_on_sub_axes {
  using before = completed_on_sub_axes<Mesh, Source, Cuts - 1>;
  static constexpr axis_parts sub_axes = before::next_sub_axes;
  struct mesh {
    static constexpr mesh_shape value = cut_mesh(Mesh::value, sub_axes);
    static constexpr int devices = Mesh::devices;
  };
  struct source {
    static constexpr graph_size counted = frozen<Source>::counted;
    [[nodiscard]] static constexpr graph make() { return on_sub_axes(frozen<Source>::value, sub_axes); }
  };
  using completion = completed<mesh, source>;
  static constexpr axis_parts next_sub_axes =
      refined_sub_axes(mesh::value, completion::program, &completion::rules.of[0], &completion::value.of[0], sub_axes);
  static constexpr bool is_last = next_sub_axes.count == sub_axes.count || Cuts == most_cuts;
};
template <class Mesh, class Source> struct completed_on_sub_axes<Mesh, Source, 0> {
  static constexpr axis_parts sub_axes = axis_parts::whole(Mesh::value);
  using mesh = Mesh;
  using source = Source;
  using completion = completed<Mesh, Source>;
  static constexpr axis_parts next_sub_axes =
      refined_sub_axes(Mesh::value, completion::program, &completion::rules.of[0], &completion::value.of[0], sub_axes);
  static constexpr bool is_last = next_sub_axes.count == sub_axes.count;
};
/// Partitioning, chunk by chunk: every chunk goes on with what the one before it made.
template <class Mesh, class Source> struct partitioned_graph {
  using from = completed<Mesh, Source>;
  using cut = pass_chunks<from::size, 128>;

  template <int Chunk> static constexpr partitioner started() {
    if constexpr (Chunk == 0) {
      return {Mesh::value, from::program, &from::rules.of[0], &from::value.of[0]};
    } else {
      return {Mesh::value, from::program, &from::rules.of[0], &from::value.of[0], progress<Chunk - 1>::value()};
    }
  }
  template <int Room, int Chunk> static constexpr partition_progress<from::size, Room> run_chunk() {
    partitioner work = started<Chunk>();
    work.run(cut::first(Chunk), cut::last(Chunk));
    return work.template save<from::size, Room>();
  }
  /// The dearest pass, so each chunk runs but once if twice as many instructions as before are enough.
  template <int Chunk> struct progress {
    static constexpr int room_before() {
      if constexpr (Chunk == 0) {
        return 64;
      } else {
        return progress<Chunk - 1>::value().program.size;
      }
    }
    static constexpr int room = room_before() + 2 * cut::length;
    static constexpr partition_progress<from::size, room> first = run_chunk<room, Chunk>();
    template <int Room> struct again {
      static constexpr partition_progress<from::size, Room> value = run_chunk<Room, Chunk>();
    };
    [[nodiscard]] static constexpr const auto& value() {
      if constexpr (first.program.fits) {
        return first;
      } else {
        constexpr int most_of_code = larger_of(first.program.size, first.program.annotation_count);
        constexpr int most_of_others = larger_of(first.program.window_count, first.program.further_count);
        return again<larger_of(most_of_code, most_of_others)>::value;
      }
    }
  };
  static constexpr const auto& last = progress<cut::count - 1>::value();
  static constexpr graph_size counted{last.program.size, last.program.annotation_count, last.program.window_count,
                                      last.program.further_count};
  [[nodiscard]] static constexpr graph make() {
    return partitioner(Mesh::value, from::program, &from::rules.of[0], &from::value.of[0], last).finish().program;
  }
};

/// Whether the partitioner gave the program up that is completed on these sub-axes; what it made until then may read
/// values that never were, and no pass runs on it.
template <class OnSubAxes>
inline constexpr bool is_given_up =
    partitioned_graph<typename OnSubAxes::mesh, typename OnSubAxes::source>::last.fault != partition_fault::nothing;

/// The price of a run of a graph that is completed on these sub-axes.
template <class OnSubAxes, bool IsGivenUp = is_given_up<OnSubAxes>> struct price_on_sub_axes {
  using partition_pass = partitioned_graph<typename OnSubAxes::mesh, typename OnSubAxes::source>;
  using device_program = device_graph<typename OnSubAxes::mesh, partition_pass>;
  static constexpr const auto& code = frozen<device_program>::value;

  // Each device in an evaluation of its own, as in the function of the same name that knows them all.
  static constexpr int step = step_between_asked(OnSubAxes::mesh::devices);
  static constexpr int asked =
      all_send_alike(OnSubAxes::mesh::value, code) ? 0 : (OnSubAxes::mesh::devices + step - 1) / step;
  template <int N> struct bytes_sent {
    static constexpr std::int64_t value = bytes_sent_by(OnSubAxes::mesh::value, code, N* step);
  };
  template <int... N> [[nodiscard]] static constexpr std::int64_t most_of(std::integer_sequence<int, N...>) {
    std::int64_t most = -1;
    ((most = larger_of(most, bytes_sent<N>::value)), ...);
    return most;
  }
  static constexpr run_price value =
      price_of_run(OnSubAxes::mesh::value, code, false, most_of(std::make_integer_sequence<int, asked>{}));
};
template <class OnSubAxes> struct price_on_sub_axes<OnSubAxes, true> {
  static constexpr run_price value{.is_faulty = true};
};
/// Whether a program is to have these sub-axes. No single op knows what a cut costs later: with whole axes a tensor may
/// be gathered once, and nothing that is computed from it communicates; with sub-axes it stays split, and each op that
/// reads it sums up or gathers its own. So a program that still moves something with its axes cut is partitioned with
/// whole axes too, and has the sub-axes if it moves no more with them.
template <class OnSubAxes, class Whole> [[nodiscard]] constexpr bool pays_off() {
  constexpr run_price cut = price_on_sub_axes<OnSubAxes>::value;
  if constexpr (cut.bytes == 0 && !cut.is_faulty) {
    return true;
  } else {
    return !cut.is_dearer_than(price_on_sub_axes<Whole>::value);
  }
}

template <class Mesh, class Source, int Cuts = 0> [[nodiscard]] constexpr auto find_sub_axes() {
  using cut = completed_on_sub_axes<Mesh, Source, Cuts>;
  using whole = completed_on_sub_axes<Mesh, Source, 0>;
  if constexpr (!cut::is_last) {
    return find_sub_axes<Mesh, Source, Cuts + 1>();
  } else if constexpr (Cuts == 0) {
    return whole{};
  } else {
    return std::conditional_t<pays_off<cut, whole>(), cut, whole>{};
  }
}
/// A graph completed on the mesh whose axes are cut where that spares a move.
template <class Mesh, class Source> using on_chosen_sub_axes = decltype(find_sub_axes<Mesh, Source>());

}  // namespace espalier::detail
