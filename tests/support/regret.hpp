// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/regret.hpp>
#include <support/spmd_check.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

/// What the passes make of a random program, next to the best layouts.
namespace espalier::test {

struct regret_settings {
  layout_program_options program;
  price_measure by = price_measure::time;
  /// Entries of the largest table of prices of one operator; where one would be larger, the best of so many descents
  /// is a bound.
  std::size_t most_entries = 1'000'000;
  int descents = 50;
};

struct compared_layouts {
  spmd_program made;
  run_price chosen;
  layout_choice best;
  /// The price of what the passes choose, over that of the best layouts. If the passes find something cheaper, it is 1.
  double regret = 1;
  /// They do: they kept a change of layout or a message for several readers, as no choice of layouts says.
  bool beats_best = false;
};

[[nodiscard]] inline run_price price_of_program(const spmd_program& program) {
  return price_of_run(program.mesh, program.parts.program, program.parts.fault != partition_fault::nothing);
}

/// @param memory prices on the mesh of the settings, kept from one program to the next
[[nodiscard]] inline compared_layouts compare_layouts(const regret_settings& settings, std::uint64_t seed,
                                                      price_memory& memory) {
  compared_layouts result;
  const graph source = layout_program_generator(seed, settings.program).make();
  result.made = merged_program(partitioned_program(settings.program.mesh, source));
  result.chosen = price_of_program(result.made);
  dice random(seed);
  result.best =
      layout_oracle(memory, result.made.traced, settings.by).best(settings.most_entries, settings.descents, random);
  const double chosen = weighed(result.chosen, settings.by);
  const double best = weighed(result.best.price, settings.by);
  result.beats_best = chosen < best;
  result.regret = chosen / std::min(chosen, best);
  return result;
}

}  // namespace espalier::test
