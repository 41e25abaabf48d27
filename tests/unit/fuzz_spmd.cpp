// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include <support/executed.hpp>
#include <support/spmd_check.hpp>

#include <catch2/catch.hpp>

#include <cstdlib>
#include <iostream>
#include <string>

namespace {

using namespace espalier;
using namespace espalier::test;

long from_environment(const char* name, long otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtol(text, nullptr, 10);
}

struct fuzz_case {
  random_program source;
  mesh_shape mesh;
};

fuzz_case make_case(std::uint32_t seed) {
  static const std::vector<std::vector<int>> meshes{{2},       {4}, {8},    {2, 2}, {2, 4}, {4, 2},
                                                    {2, 2, 2}, {3}, {3, 2}, {1, 2}, {5},    {2, 3}};
  static const std::vector<std::vector<std::int64_t>> sizes{
      {1, 2, 3, 4, 4, 6}, {2, 4, 8}, {4, 8}, {3, 5, 7}, {1, 2, 3, 4, 5, 6, 7, 8}};
  random_source random(seed);
  fuzz_case made;
  made.mesh = mesh_of(random.one_of(meshes));
  random_graph_options options;
  options.instructions = random.integer(3, 40);
  options.loops = random.chance(0.5);
  options.gradients = random.chance(0.5);
  options.irregular = random.chance(0.6);
  options.more_ops = random.chance(0.6);
  options.sizes = random.one_of(sizes);
  options.mesh = made.mesh;
  options.annotated = random.one_of(std::vector<double>{0.05, 0.2, 0.6});
  made.source = random_graph(random, options);
  return made;
}

/// The same on `f64`, so that what is executed may be compared closely.
void widen(graph& g) {
  for (int id = 0; id < g.code.size(); ++id) {
    if (g.code[id].type == dtype::f32) g.code[id].type = dtype::f64;
  }
}

/// What is wrong with the program when it is executed, or an empty string.
std::string executed_fault(const spmd_program& program, const std::vector<tensor_value>& expected,
                           const std::vector<tensor_value>& arguments) {
  try {
    const graph_view code = program.parts.program;
    const std::vector<tensor_value> made = execute(program.mesh, code, arguments);
    return difference(made, expected, 1e-8);
  } catch (const std::exception& e) { return e.what(); }
}

}  // namespace

TEST_CASE("random programs compute the same on a mesh as on one device") {
  const auto base = static_cast<std::uint32_t>(from_environment("ESPALIER_FUZZ_SEED", 1));
  const long cases = from_environment("ESPALIER_FUZZ_CASES", 1500);
  int faults = 0;
  std::size_t instructions = 0;
  std::size_t collectives = 0;
  std::size_t merged = 0;
  for (long n = 0; n < cases; ++n) {
    const std::uint32_t seed = base + static_cast<std::uint32_t>(n);
    fuzz_case made = make_case(seed);
    widen(made.source.code.result());
    const graph_view g = made.source.code.result();
    const spmd_program apart = partitioned_program(made.mesh, g);
    const spmd_program program = merged_program(apart);
    merged += apart.collectives.size() - program.collectives.size();
    const std::vector<tensor_value> expected = interpret(program.traced, made.source.arguments);
    instructions += static_cast<std::size_t>(program.traced.code.size());
    collectives += program.collectives.size();
    // Before the last pass too: it might hide a mistake.
    std::string fault = fault_of(apart, expected, made.source.arguments);
    if (fault.empty()) fault = fault_of(program, expected, made.source.arguments);
    if (fault.empty()) fault = executed_fault(program, expected, made.source.arguments);
    if (fault.empty()) continue;
    ++faults;
    // Not through Catch, which would break the listing into lines of 80 columns.
    std::cout << "ESPALIER_FUZZ_SEED=" << seed << " ESPALIER_FUZZ_CASES=1: " << fault << " ("
              << program.traced.code.size() << " instructions)\n";
    if (cases == 1) std::cout << program.text();
  }
  std::cout << cases << " random programs, " << instructions << " instructions, " << collectives << " collectives, "
            << merged << " more merged into these, " << faults << " faults\n";
  CHECK(faults == 0);
  if (cases >= 1000) CHECK(merged > 10);
}
