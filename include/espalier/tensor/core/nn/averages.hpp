// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/optimizers/step.hpp>
#include <espalier/tensor/core/nn/trees.hpp>

#include <type_traits>

/// Moving averages of parameters.
namespace espalier::nn {

/// The exponential moving average of parameters (Polyak): average + (1 - decay) (parameters - average), leaf by leaf,
/// in the average's type. `average` is a tree like `parameters`, declared as `nn::accumulators<Tree, Leaf>`, which has
/// `f32` where parameters are of sixteen bits; `decay` is a number or a scalar tensor, such as
/// `average_decay(state.step, 0.999)`. Laid out like the parameters; nothing travels.
/// Errors: `gradients_of_another_tree`.
template <class Average, class Parameters, class Decay>
constexpr auto moving_average(const Average& average, const Parameters& parameters, const Decay& decay,
                              source_line where = source_line::current()) {
  if constexpr (Failed<Average> || Failed<Parameters> || Failed<Decay>) {
    return detail::first_failure(average, parameters, decay);
  } else if constexpr (!detail::are_moments_of<Average, Parameters>()) {
    return failed<detail::difference_of_trees<Parameters, Average, why::trees_of_different_leaves>>(where);
  } else {
    builder& b = *detail::owner_of(average);
    const pinned_line line(b, where);
    Average next = detail::operands_of(b, average, where);
    detail::for_each_pair(next, parameters, [&](auto& one, const auto& parameter) {
      const int now = emit::convert(b, detail::operand_of(b, parameter, where), one.type);
      const int old = emit::convert(b, one.id, detail::computed_type(one.type));
      const int apart = emit::subtract(b, emit::convert(b, now, b[old].type), old);
      int part = -1;
      if constexpr (std::is_arithmetic_v<Decay>) {
        part = emit::scale(b, apart, 1 - static_cast<double>(decay));
      } else {
        const int kept = emit::convert(b, detail::operand_of(b, decay, where), dtype::f64);
        const int fresh = emit::subtract(b, emit::constant_like(b, kept, 1), kept);
        part = emit::multiply(b, emit::repeat_scalar(b, fresh, apart), apart);
      }
      one.id = emit::convert(b, emit::add(b, old, part), one.type);
    });
    return next;
  }
}

}  // namespace espalier::nn
