// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/dtype.hpp>
#include <espalier/tensor/core/mesh/mesh.hpp>

#include <cstdint>

/// The options of random programs.
namespace espalier::test {

enum class numbers : std::uint8_t {
  /// All floats are f64, all functions smooth where they are differentiated, values bounded: whatever the order of
  /// additions, results agree to rounding.
  smooth,
  /// Small whole numbers and truth values, in every type: what is not a gradient is exact.
  whole,
};

/// The options of `random_program_graph`. Probabilities are of each chance to do it.
struct program_options {
  numbers kind = numbers::smooth;
  /// The type of smooth numbers. Of another than f64, many ops are functions of several steps, which are computed in a
  /// wider type and rounded once.
  dtype float_type = dtype::f64;
  /// How many ops are drawn outside of loops; most are more than one instruction.
  int instructions = 20;
  std::int64_t most_elements = 400;
  int most_dimensions = 6;
  int size_count = 7;
  std::int64_t sizes[8]{1, 2, 3, 4, 4, 5, 7};
  /// That an op is a loop, and how deep they nest.
  double loops = 0.1;
  int loop_depth = 4;
  /// That a loop has carries that it only adds to.
  double accumulators = 0.5;
  /// That a loop has no iterations: nothing that a typed program can say.
  double empty_loops = 0;
  /// That a loop that has iterations runs until a condition is false, or is a branch.
  double decided = 0.25;
  /// That a loop until a condition is false has no largest number of iterations, if nothing is differentiated.
  double unlimited = 0;
  /// That a branch is one of several, of which one runs, as `cond` and `switch_case` have them.
  double alternatives = 0;
  int most_carries = 4;
  /// That what a carry starts with, what is passed on and what the body reads of it has a layout of its own.
  double placed_carries = 0;
  /// That the program has gradients, of these the share with gradients of gradients, and that a loop's body has its
  /// own.
  double gradients = 0.5;
  double second_order = 0.15;
  double inner_gradients = 0.05;
  /// That a smooth op has a gradient of the user's, or computes again what its gradient needs.
  double own_gradients = 0;
  /// Not where gradients are compared with differences, which see through it.
  bool stop_gradients = true;
  /// That an argument is donated.
  double donated = 0.4;
  /// That there are arguments nobody uses.
  double unused = 0.3;
  /// If `mesh` is one: that a value is annotated with a random sharding on it; that it is annotated once more; that
  /// a sum is asked to stay partial, or several have terms on all devices for a while.
  mesh_shape mesh{};
  double annotated = 0.2;
  double conflicts = 0.1;
  double partial = 0.1;
  /// That a partial sum is asked for where there is none, which the partitioner refuses.
  double unfounded = 0.002;
  /// That a value gets the layout of another one, or both the same.
  double alike = 0;
  /// The last priority that annotations have.
  int priorities = 0;
  /// The axes of `mesh` along which the program is by hand: then it is one for a shard. That an op is a collective.
  axis_mask by_hand = 0;
  double communicates = 0.2;
  /// That a dimension is split by an axis and then taken apart, so that a part of the axis may split a part of it.
  double taken_apart = 0;
};

}  // namespace espalier::test
