// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/program/passes.hpp>
#include <espalier/tensor/run/execute/tables.hpp>

#include <espalier/testing/executed.hpp>
#include <espalier/testing/random_graph.hpp>
#include <espalier/testing/random_program_graph.hpp>

#include <cstdint>
#include <utility>
#include <vector>

/// Random programs, compiled: the generator runs in a constant evaluation, and its graph goes the way of every program.
namespace espalier::test {

/// A mesh of these axes, as the passes want it.
template <int... Sizes> struct grid {
  static constexpr mesh_shape value = [] {
    constexpr const char* names[]{"x", "y", "z", "w"};
    mesh_shape mesh;
    for (const int size : {Sizes...}) {
      mesh.size[mesh.rank] = size;
      mesh.name[mesh.rank] = names[mesh.rank];
      ++mesh.rank;
    }
    return mesh;
  }();
};

/// Returns the options of the program with this seed: small, with and without gradients, of smooth functions and of
/// whole numbers, and nothing that the compiler would refuse.
[[nodiscard]] constexpr program_options sample_options(std::uint32_t seed, const mesh_shape& mesh) {
  dice random(seed ^ 0x51ed270bU);
  program_options options;
  options.kind = seed % 2 == 0 ? numbers::whole : numbers::smooth;
  options.gradients = seed % 4 < 2 ? 1 : 0;
  options.instructions = random.integer(4, 9);
  options.loops = 0.12;
  options.loop_depth = 2;
  options.most_elements = 120;
  options.most_dimensions = 4;
  options.mesh = mesh;
  options.conflicts = 0;
  options.partial = 0;
  options.unfounded = 0;
  return options;
}

template <std::uint32_t Seed, class Mesh> struct random_graph_source {
  static constexpr program_options options = sample_options(Seed, Mesh::value);
  static constexpr graph make() { return random_program_graph(Seed, options); }
};

/// The passes of `program` from tracing on.
template <std::uint32_t Seed, class Mesh> struct compiled_graph {
  using mesh = Mesh;
  using raw = random_graph_source<Seed, Mesh>;
  using on_sub_axes = detail::on_chosen_sub_axes<Mesh, detail::simplified_graph<Mesh, raw>>;
  using device_mesh = typename on_sub_axes::mesh;
  using partition_pass = detail::partitioned_graph<device_mesh, typename on_sub_axes::source>;
  using device_program = detail::scheduled_graph<device_mesh, partition_pass>;
  static constexpr const auto& code = detail::frozen<device_program>::value;
  using planned = detail::planned<device_mesh, detail::frozen<device_program>::value>;
  static constexpr const auto& plan = planned::value;
  [[nodiscard]] static constexpr int count(const op_info* op) {
    int n = 0;
    for (const instruction& i : code.code) n += i.op == op ? 1 : 0;
    return n;
  }
  [[nodiscard]] static constexpr int argument_count() { return count(&ops::argument); }
  [[nodiscard]] static constexpr int result_count() { return count(&ops::result); }

  [[nodiscard]] static std::vector<placed_buffer> buffers() {
    std::vector<placed_buffer> all;
    for (int b = 0; b < planned::buffer_count; ++b) {
      all.push_back({planned::buffers.of[b], planned::template arena<planned::goes>::value.offset[b]});
    }
    return all;
  }
};

}  // namespace espalier::test
