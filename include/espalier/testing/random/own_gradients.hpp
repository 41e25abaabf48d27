// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/program/custom_gradient.hpp>
#include <espalier/testing/random/by_hand.hpp>

#include <cstdint>

/// Random functions whose gradients the user writes, and functions that are computed again for theirs.
namespace espalier::test {

namespace own_gradient {

/// x y, of which the program knows no gradient but this one.
constexpr void of_product(gradient_context& c) {
  if (detail::is_of_many(c)) return;
  c.give(1, emit::multiply(c.emit, c.cotangent, c.operand(2)));
  c.give(2, emit::multiply(c.emit, c.operand(1), c.cotangent));
}
/// sin x, and the sum of all x x: two values of two shapes.
constexpr void of_wave_and_squares(gradient_context& c) {
  if (detail::is_of_many(c)) return;
  builder& b = c.emit;
  const int x = c.operand(2);
  const extents shape = b[x].shape;
  const dtype type = b[x].type;
  int back = emit::multiply(b, c.cotangent, b.append(ops::cos, type, shape, x));
  const int of_sum = c.further_result_cotangent[0];
  if (of_sum >= 0) {
    const int all = emit::broadcast_along(b, of_sum, shape, (std::int64_t{1} << shape.rank) - 1);
    back = emit::add(b, back, emit::multiply(b, emit::scale(b, all, 2), x));
  }
  c.give(2, back);
}

/// tanh(x sin x), or a loop of two steps.
constexpr int repeated_function(builder& b, int x, bool has_loop) {
  const dtype type = b[x].type;
  const extents shape = b[x].shape;
  if (!has_loop) {
    const int wave = b.append(ops::sin, type, shape, x);
    return b.append(ops::tanh, type, shape, emit::multiply(b, x, wave));
  }
  emit::region_begin(b, region_attributes{.iterations = 2});
  const int carry = emit::region_parameter(b, x);
  const int sum = emit::add(b, emit::multiply(b, carry, carry), x);
  const int next = emit::region_yield(b, carry, b.append(ops::tanh, type, shape, sum));
  emit::region_end(b);
  return emit::region_result(b, next);
}
template <bool HasLoop> constexpr void by_repetition(gradient_context& c) {
  if (detail::is_of_many(c)) return;
  builder& b = c.emit;
  const int begin = b.size();
  const int x = emit::again(b, c.operand(1));
  const int value = repeated_function(b, x, HasLoop);
  detail::list<cotangent_of> seeds;
  seeds.push_back({value, c.cotangent});
  int back = -1;
  pull_back_to(b, begin, seeds, &x, 1, &back);
  if (back >= 0) c.give(1, back);
}

inline constexpr op_info product = detail::op_with_gradient(of_product);
inline constexpr op_info wave_and_squares = detail::op_with_gradient(of_wave_and_squares);
inline constexpr op_info repetition = detail::op_with_gradient(by_repetition<false>);
inline constexpr op_info repetition_of_loop = detail::op_with_gradient(by_repetition<true>);

}  // namespace own_gradient

/// Draws functions that pass through an op with a gradient of its own, as `custom_gradient` and `checkpoint` make them.
class random_own_gradients : protected random_by_hand {
 protected:
  using random_by_hand::random_by_hand;

  constexpr int with_own_gradient(int x) {
    if (x < 0) return -1;
    x = tame(x);
    const extents shape = shape_of(x);
    const dtype type = type_of(x);
    switch (random_.integer(0, 3)) {
      case 0: {
        const int y = tame(like(x));
        // Nothing of the value flows back but what the user's gradient gives.
        const int value = b_.append(ops::stop_gradient, type, shape, emit::multiply(b_, x, y));
        const int operands[]{value, x, y};
        return limited(b_.append(builder::make(own_gradient::product, type, shape), operands, 3), bound(x) * bound(y));
      }
      case 1: {
        const int wave = b_.append(ops::sin, type, shape, x);
        const int sum = total(emit::multiply(b_, x, x));
        const int operands[]{wave, sum, x};
        const int first =
            bounded_by(b_.append(builder::make(own_gradient::wave_and_squares, type, shape), operands, 3), 1);
        const int second = emit::further_result(b_, first, 1, type, extents{});
        const double most = bound(x) * bound(x) * static_cast<double>(shape.elements());
        keep(limited(second, most));
        return first;
      }
      case 2: return repeated(own_gradient::repetition, x, false);
      default: return repeated(own_gradient::repetition_of_loop, x, true);
    }
  }

 private:
  constexpr int repeated(const op_info& op, int x, bool has_loop) {
    const int operands[]{own_gradient::repeated_function(b_, x, has_loop), x};
    return bounded_by(b_.append(builder::make(op, type_of(x), shape_of(x)), operands, 2), 1);
  }
};

}  // namespace espalier::test
