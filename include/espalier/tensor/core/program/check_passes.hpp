// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/core/program/check_graph.hpp>
#include <espalier/tensor/core/program/program.hpp>

#include <type_traits>
#include <utility>

namespace espalier {

namespace detail {

/// A graph of a program, and the pass that returned it.
struct pass_graph {
  const char* pass = "";
  graph_stage stage = graph_stage::traced;
  /// The mesh of the user, its axes as the layouts name them, and the mesh of these axes.
  const mesh_shape& mesh;
  const axis_parts& parts;
  const mesh_shape& device_mesh;
  graph_view code;
};

/// The graph with a layout for every value.
[[nodiscard]] inline graph with_layouts(graph_view g, const sharding* of) {
  graph result = copy_of(g);
  for (int id = 0; id < g.size; ++id) result.code[id].annotation = result.annotations.push_back({g[id].shape, of[id]});
  return result;
}

/// Calls `f(pass_graph)` after tracing and after each pass of a program, in order. The graphs have the rules of their
/// operators, as `check` needs them.
template <class Program, class F> void for_each_pass(const F& f) {
  using mesh = typename Program::mesh;
  using device_mesh = typename Program::device_mesh;
  using trace_pass = typename Program::trace_pass;
  using partition_pass = typename Program::partition_pass;
  using device_program = typename Program::device_program;
  static constexpr axis_parts whole = axis_parts::whole(mesh::value);

  const auto on_tensors = [&](const char* pass, graph_stage stage, graph_view g) {
    f(pass_graph{pass, stage, mesh::value, whole, mesh::value, g});
  };
  const auto on_devices = [&](const char* pass, graph_stage stage, graph_view g) {
    f(pass_graph{pass, stage, mesh::value, Program::parts, device_mesh::value, g});
  };
  on_tensors("trace", graph_stage::traced, frozen<trace_pass>::value);
  [&]<int... N>(std::integer_sequence<int, N...> /*passes*/) {
    (on_tensors(passes_on_tensors[N].name, graph_stage::tensors,
                frozen<simplified_graph<mesh, trace_pass, N + 1>>::value),
     ...);
  }
  (std::make_integer_sequence<int, length_of(passes_on_tensors)>{});
  if constexpr (!std::is_same_v<device_mesh, mesh>) on_devices("cut_axes", graph_stage::tensors, Program::traced);
  on_devices("complete", graph_stage::tensors, with_layouts(Program::traced, &Program::completion_pass::value.of[0]));
  on_devices("partition", graph_stage::buffers, frozen<partition_pass>::value);
  [&]<int... N>(std::integer_sequence<int, N...> /*passes*/) {
    (on_devices(passes_on_buffers[N].name, graph_stage::buffers,
                frozen<device_graph<device_mesh, partition_pass, N + 1>>::value),
     ...);
  }
  (std::make_integer_sequence<int, length_of(passes_on_buffers)>{});
  if constexpr (!std::is_same_v<device_program, device_graph<device_mesh, partition_pass>>)
    on_devices("repeat_widened", graph_stage::buffers, Program::code);
}

inline void check_pass(const pass_graph& made) { check(made.device_mesh, made.code, made.stage, made.pass); }

}  // namespace detail

/// Checks the graph of a program after every pass: operands come before their users, loops are closed, and types,
/// shapes and layouts agree. A graph that fails is a mistake of a pass, or of an operator's rule.
/// A runner calls it for its program where ESPALIER_CHECK_PASSES is defined, as CMake's targets do in Debug builds.
/// Errors: `graph_error`, whose message names the pass and the instruction.
template <class Program> void check_passes() {
  if constexpr (Program::is_sound) detail::for_each_pass<Program>(detail::check_pass);
}
/// The same of a program that `compile` returned: `check_passes(step)`.
template <class Program> void check_passes(const Program& /*program*/) { check_passes<Program>(); }

}  // namespace espalier
