// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/naive.hpp>
#include <support/compiled_graph.hpp>
#include <support/spmd_check.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

/// A sample of random programs, compiled for one mesh and executed with the kernels that programs have, over poisoned
/// memory. ESPALIER_TEST_SAMPLE: the first seed and how many.
namespace espalier::test {

inline constexpr std::array<std::uint32_t, 2> sample{ESPALIER_TEST_SAMPLE};

/// The kinds of programs that a sample contains.
struct sample_census {
  int compared = 0;
  int gradients = 0;
  int of_type[dtype_count]{};
};

/// The change that rounding may cause, relative to the largest element of a result. The kernels' functions are not the
/// exact ones.
[[nodiscard]] constexpr double sample_tolerance(numbers kind, bool is_exact) {
  return kind == numbers::smooth ? 1e-8 : is_exact ? 0 : 0x1p-6;
}

template <class Mesh, std::uint32_t Seed> void check_sample(sample_census& census) {
  using program = compiled_graph<Seed, Mesh>;
  constexpr numbers kind = program::raw::options.kind;
  static const program_tables tables = tables_of<program>();
  const graph raw = program::raw::make();
  const std::vector<tensor_value> arguments = random_program_arguments(raw, Seed, kind);
  const naive_outcome meant =
      naive_run(raw, arguments, kind == numbers::smooth ? naive_storage::exact : naive_storage::typed);
  std::string wrong;
  try {
    const std::vector<tensor_value> made =
        lockstep_execution<detail::compiled_kernels>(tables, program::buffers()).run(arguments);
    wrong = difference(made, meant.results, sample_tolerance(kind, meant.is_exact));
  } catch (const std::exception& error) { wrong = error.what(); }
  INFO("seed " << Seed << " on " << Mesh::value.devices() << " devices, " << raw.code.size() << " instructions\n"
               << (wrong.empty() ? "" : listing(raw) + "partitioned:\n" + listing(program::code)));
  CHECK(wrong == "");
  ++census.compared;
  census.gradients += program::raw::options.gradients > 0 ? 1 : 0;
  bool has[dtype_count]{};
  for (const instruction& i : raw.code) has[static_cast<int>(i.type)] = true;
  for (int t = 0; t < dtype_count; ++t) census.of_type[t] += has[t] ? 1 : 0;
}

template <class Mesh, std::uint32_t First, std::uint32_t... N>
void check_samples(std::integer_sequence<std::uint32_t, N...> /*programs*/) {
  sample_census census;
  (check_sample<Mesh, sample[0] + First + N>(census), ...);
  CHECK(census.gradients >= census.compared / 3);
  for (const int programs : census.of_type) CHECK(programs >= std::max(1, census.compared / 32));
}

/// The sample's programs on one mesh, or one of `Parts` equal parts of them: most of what a compiler may do wrong needs
/// some devices, and few programs go wrong on two counts of devices alone.
template <class Mesh, std::uint32_t Parts = 1, std::uint32_t Part = 0> void check_samples() {
  check_samples<Mesh, Part*(sample[1] / Parts)>(std::make_integer_sequence<std::uint32_t, sample[1] / Parts>{});
}

}  // namespace espalier::test
