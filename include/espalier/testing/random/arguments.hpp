// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/random/annotations.hpp>

#include <cstdint>

/// The arguments of a random program.
namespace espalier::test {

/// Draws the arguments: tensors of any type, some of them alike, integer indices, and some that are never read.
class random_arguments : protected random_annotations {
 protected:
  using random_annotations::random_annotations;

  constexpr int add_argument(dtype type, const extents& shape) {
    const int id = emit::argument(b_, type, shape, arguments_.size());
    if (wants_annotation()) {
      const int annotation = any_annotation(shape);
      b_[id].annotation = annotation;
      // An argument is never a partial sum.
      b_.result().annotations[annotation].placement.unreduced = 0;
    }
    arguments_.push_back(id);
    return bounded_by(id, type == dtype::boolean ? 1 : smooth() && is_floating(type) ? 1 : 2);
  }

  constexpr void make_arguments() {
    const int count = random_.integer(2, 5);
    for (int n = 0; n < count; ++n) {
      extents shape = any_shape(0, n == 0 ? 3 : 4);
      dtype type = any_type();
      if (random_.chance(0.3) && shape.rank > 0) shape[0] = length_;
      if (n > 0 && random_.chance(0.5)) {
        // A twin of another one, or one of as many elements: what donation and carries can exchange.
        const int model = arguments_[random_.integer(0, n - 1)];
        shape = random_.chance(0.75) ? shape_of(model) : reshaped(shape_of(model));
        type = type_of(model);
      }
      int id = add_argument(type, shape);
      if (is_floating(type)) {
        // Gradients are by another name of the argument, as `value_and_grad` makes it.
        if (differentiable_ && random_.chance(0.4))
          id = bounded_by(b_.append(ops::reshape, type, shape, id), bound(id));
        parameters_.push_back(id);
      }
      keep(id);
    }
    if (parameters_.empty()) {
      const int id = add_argument(smooth() ? options_.float_type : dtype::f32, any_shape(1, 3));
      parameters_.push_back(id);
      keep(id);
    }
    if (values_.empty()) values_.push_back(parameters_[0]);
    for (int n = random_.integer(0, 2); n > 0; --n) indices_.push_back(add_argument(dtype::i32, any_shape(0, 2)));
    if (!smooth() && random_.chance(0.5)) keep(add_argument(dtype::boolean, any_shape(0, 3)));
    while (random_.chance(options_.unused)) {
      const int model = arguments_[random_.integer(0, arguments_.size() - 1)];
      const extents shape = random_.chance(0.5) ? shape_of(model) : any_shape(0, 3);
      const int id = add_argument(type_of(model), shape);
      if (is_floating(type_of(id)) && random_.chance(0.5)) parameters_.push_back(id);
    }
  }

  ids arguments_;
  ids indices_;
  /// The values by which gradients are computed.
  ids parameters_;
};

}  // namespace espalier::test
