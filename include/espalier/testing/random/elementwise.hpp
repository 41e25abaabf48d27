// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/attention.hpp>
#include <espalier/tensor/core/nn/losses.hpp>
#include <espalier/tensor/core/nn/norm.hpp>
#include <espalier/testing/random/arguments.hpp>

#include <cstdint>

/// Random functions of elements, alone and with normalisations.
namespace espalier::test {

/// Draws arithmetic, smooth functions, normalisations, functions of whole numbers and of bits, comparisons and
/// choices.
class random_elementwise : protected random_arguments {
 protected:
  using random_arguments::random_arguments;

  constexpr int arithmetic(int x) {
    if (x < 0) return -1;
    const int y = like(x);
    const double sum = bound(x) + bound(y);
    const double product = bound(x) * bound(y);
    switch (random_.integer(0, 3)) {
      case 0: return holds(x, sum) ? limited(emit::add(b_, x, y), sum) : -1;
      case 1: return holds(x, sum) && !is_natural(x) ? limited(emit::subtract(b_, y, x), sum) : -1;
      case 2: return holds(x, product) ? limited(emit::multiply(b_, x, y), product) : -1;
      default: {
        const double square = bound(x) * bound(x);
        return holds(x, square) ? limited(emit::multiply(b_, x, x), square) : -1;
      }
    }
  }

  constexpr int plus(int x, double value) {
    return bounded_by(emit::add(b_, x, constant_like(x, value)), bound(x) + value);
  }
  /// x x + value
  constexpr int positive(int x, double value) {
    return plus(bounded_by(emit::multiply(b_, x, x), bound(x) * bound(x)), value);
  }

  /// Smooth functions of one tensor. What is differentiated twice needs a derivative that has one.
  constexpr int function(int x) {
    if (x < 0) return -1;
    const double most = bound(x);
    switch (random_.integer(0, twice_ ? 23 : 25)) {
      case 0: return unary(ops::tanh, x, 1);
      case 1: return unary(ops::sigmoid, x, 1);
      case 2: return unary(ops::exp, most > 2 ? unary(ops::tanh, x, 1) : x, 8);
      case 3: return unary(ops::log, positive(tame(x), 0.5), 3);
      case 4: return unary(ops::sqrt, positive(tame(x), 0.5), 5);
      case 5: return unary(ops::rsqrt, positive(tame(x), 0.5), 2);
      // Off zero, which sums of equal terms may miss by rounding.
      case 6: return unary(ops::relu, plus(x, 0.0137), most + 0.0137);
      case 7: return unary(ops::negate, x, most);
      case 8: return limited(emit::divide(b_, like(x), positive(x, 0.7)), 3 * tame_bound);
      case 9: {
        const int y = plus(like(x), 0.0211);
        return unary_of_two(random_.chance(0.5) ? ops::maximum : ops::minimum, x, y);
      }
      case 10: return unary(ops::sin, tame(x), 1);
      case 11: return unary(ops::cos, tame(x), 1);
      case 12: return unary(ops::tan, unary(ops::tanh, x, 1), 1.6);
      case 13: {
        const int ahead = positive(tame(like(x)), 0.5);
        return binary(ops::atan2, tame(x), ahead, 1.6);
      }
      case 14: return unary(ops::erf, tame(x), 1);
      case 15: return unary(ops::erfc, tame(x), 2);
      case 16: return unary(ops::expm1, most > 2 ? unary(ops::tanh, x, 1) : x, 7);
      case 17: return unary(ops::log1p, positive(tame(x), 0), 3);
      case 18: {
        const int base = positive(tame(x), 0.5);
        const int exponent = like(x);
        return limited(binary(ops::pow, base, unary(ops::tanh, exponent, 1), bound(base)), bound(base));
      }
      case 19: return unary(ops::abs, plus(x, 0.0171), most + 0.0171);
      case 20: {
        const int high = plus(like(x), 0.4713);
        const double widest = most > bound(high) ? most : bound(high);
        return bounded_by(b_.append(ops::clamp, type_of(x), shape_of(x), constant_like(x, -0.3117), x, high),
                          widest + 1);
      }
      case 21: {
        // The divisor goes once into what is divided, whatever the values are.
        const int divided = plus(unary(ops::tanh, x, 1), 5);
        const int narrow = bounded_by(emit::scale(b_, unary(ops::tanh, like(x), 1), 0.4), 0.4);
        return binary(ops::remainder, divided, plus(narrow, 3.5), 3);
      }
      case 22: return whole_part(x);
      case 23: {
        const int inside = bounded_by(emit::scale(b_, unary(ops::tanh, x, 1), 0.875), 0.875);
        return unary(ops::erf_inv, inside, 1.1);
      }
      case 24: return unary(ops::silu, x, most);
      default: return unary(ops::gelu, x, most);
    }
  }
  constexpr int binary(const op_info& op, int x, int y, double most) {
    return bounded_by(b_.append(op, type_of(x), shape_of(x), x, y), most);
  }
  /// A step function, of values that are never near a step: less than a half from the middle between two.
  constexpr int whole_part(int x) {
    const int near = bounded_by(emit::scale(b_, unary(ops::tanh, x, 1), 0.4), 0.4);
    const int rank = rank_of(x);
    const op_info* const steps[]{&ops::floor, &ops::ceil, &ops::trunc};
    if (rank == 0 || random_.chance(0.2)) {
      return random_.chance(0.5) ? unary(ops::round, near, 1) : unary(ops::sign, plus(near, 0.5), 1);
    }
    const int dim = random_.integer(0, rank - 1);
    const extents shape = shape_of(x);
    const dtype type = type_of(x);
    const int place = emit::convert(b_, emit::iota(b_, dtype::i32, shape, dim), type);
    const int middle = plus(bounded_by(emit::subtract(b_, near, place), 0.4 + static_cast<double>(shape[dim])), 0.5);
    return limited(unary(*random_.one_of(steps), middle, bound(middle) + 1), bound(middle) + 1);
  }
  constexpr int unary_of_two(const op_info& op, int x, int y) {
    const double most = bound(x) > bound(y) ? bound(x) : bound(y);
    return limited(b_.append(op, type_of(x), shape_of(x), x, y), most);
  }

  constexpr int normalised(int x) {
    if (x < 0 || rank_of(x) == 0) return -1;
    x = tame(x);
    const int dim = random_.integer(0, rank_of(x) - 1);
    const std::int64_t dims = random_.chance(0.8) ? std::int64_t{1} << dim : all_of(shape_of(x));
    switch (random_.integer(0, 2)) {
      case 0: return bounded_by(emit::softmax(b_, x, dims), 1);
      case 1: return bounded_by(emit::log_softmax(b_, x, dims), 20);
      default:
        return bounded_by(emit::standardise(b_, x, std::int64_t{1} << (rank_of(x) - 1), random_.chance(0.5), 0.1), 20);
    }
  }

  /// A function of nn applied to x, in its type: computed in a wider one, and rounded once.
  constexpr int composite(int x) {
    if (x < 0 || rank_of(x) == 0) return -1;
    x = tame(x);
    const extents shape = shape_of(x);
    const dtype type = type_of(x);
    const std::int64_t last = std::int64_t{1} << (shape.rank - 1);
    extents before = shape;
    before[--before.rank] = 0;
    const extents width{1, {shape[shape.rank - 1]}};
    switch (random_.integer(0, 4)) {
      case 0: {
        // Layer norm, RMS norm, and the norm of a batch.
        const bool batch = shape.rank > 1 && random_.chance(0.3);
        const int normal = emit::standardise(b_, x, batch ? last - 1 : last, random_.chance(0.6), 0.1);
        const int gain = like(width, type);
        const int bias = random_.chance(0.5) ? like(width, type) : -1;
        return limited(emit::scaled_and_shifted(b_, normal, gain, bias, type), 20 * bound(gain) + 4);
      }
      case 1: {
        const int none = emit::constant(b_, dtype::i32, before, 0);
        const int target = before.rank == 0 ? none : emit::iota(b_, dtype::i32, before, before.rank - 1);
        return limited(emit::convert(b_, emit::cross_entropy(b_, x, target), type), 2 * bound(x) + 6);
      }
      case 2:
        if (shape.rank < 2) return normalised(x);
        return bounded_by(emit::softmax(b_, emit::hide_future(b_, x), last), 1);
      default: return normalised(x);
    }
  }

  constexpr int other_arithmetic(int x) {
    if (x < 0) return -1;
    switch (random_.integer(0, 3)) {
      case 0: return is_natural(x) ? x : unary(ops::negate, x, bound(x));
      case 1: {
        const op_info& op = random_.chance(0.5) ? ops::maximum : ops::minimum;
        return unary_of_two(op, x, like(x));
      }
      case 2: return is_floating(type_of(x)) ? unary(ops::relu, x, bound(x)) : x;
      default: {
        // Integers divide towards zero, and by zero into zero.
        const int numerator = as_type(x, any_integer());
        const double most = bound(numerator);
        return bounded_by(emit::divide(b_, numerator, like(numerator)), most);
      }
    }
  }

  /// Functions that whole numbers have whole results of.
  constexpr int exact_function(int x) {
    if (type_of(x) == dtype::boolean) return word_function(x);
    const double most = bound(x);
    switch (random_.integer(0, 9)) {
      case 0: return unary(ops::abs, x, most);
      case 1: return unary(ops::sign, x, 1);
      case 2: {
        const op_info* const steps[]{&ops::floor, &ops::ceil, &ops::trunc, &ops::round};
        const op_info& op = *random_.one_of(steps);
        return unary(op, is_floating(type_of(x)) ? x : as_type(x, dtype::f32), most);
      }
      case 3: {
        const int divisor = plus(unary(ops::abs, tame(like(x)), tame_bound), 1);
        const bool negative = random_.chance(0.5) && !is_natural(x);
        return binary(ops::remainder, x, negative ? emit::negate(b_, divisor) : divisor, most);
      }
      case 4: {
        const int low = like(x);
        const int high = constant_like(x, random_.integer(-2, 3));
        const double widest = bound(low) > most ? bound(low) : most;
        return limited(bounded_by(b_.append(ops::clamp, type_of(x), shape_of(x), low, x, high), widest + 3),
                       widest + 3);
      }
      case 5: {
        const int number = is_floating(type_of(x)) ? x : as_type(x, dtype::bf16);
        return bounded_by(b_.append(ops::is_finite, dtype::boolean, shape_of(number), number), 1);
      }
      case 6: {
        const op_info* const orders[]{&ops::total_less, &ops::total_less_equal, &ops::total_equal};
        const int number = is_floating(type_of(x)) ? x : as_type(x, dtype::f32);
        const int other = plus(like(number), 0);
        // Adding 0 leaves one zero of two.
        return bounded_by(emit::compare(b_, *random_.one_of(orders), plus(number, 0), other), 1);
      }
      case 7: {
        const int number = unary(ops::abs, as_type(x, dtype::f32), most);
        const int word = bounded_by(emit::bit_cast(b_, number, dtype::i32), 0x1p31);
        if (random_.chance(0.5)) return bounded_by(emit::bit_cast(b_, word, dtype::f32), bound(number));
        return limited(binary(ops::shift_right_logical, word, constant_like(word, 23), 255), 255);
      }
      default: return word_function(as_type(x, dtype::i32));
    }
  }
  /// Operations on the bits of integers, or on truth values.
  constexpr int word_function(int x) {
    const int y = like(x);
    double most = 1;
    while (type_of(x) != dtype::boolean && (most <= bound(x) || most <= bound(y))) most *= 2;
    switch (random_.integer(0, type_of(x) == dtype::boolean ? 3 : 6)) {
      case 0: return limited(binary(ops::bitwise_and, x, y, most), most);
      case 1: return limited(binary(ops::bitwise_or, x, y, most), most);
      case 2: return limited(binary(ops::bitwise_xor, x, y, most), most);
      case 3: return limited(unary(ops::bitwise_not, x, most), most);
      case 4: {
        const int amount = binary(ops::bitwise_and, y, constant_like(y, 3), 3);
        return limited(binary(ops::shift_left, x, amount, 8 * bound(x)), 8 * bound(x));
      }
      case 5: {
        constexpr int amounts[]{-1, 0, 1, 2, 31, 32, 40};
        const int amount = constant_like(x, random_.one_of(amounts));
        return limited(binary(ops::shift_right_arithmetic, x, amount, most), most);
      }
      default: {
        constexpr int amounts[]{-1, 1, 3, 30, 32, 99};
        const int amount = constant_like(x, random_.one_of(amounts));
        return limited(binary(ops::shift_right_logical, x, amount, 0x1p31), 0x1p31);
      }
    }
  }

  constexpr int condition(const extents& shape) {
    if (smooth()) {
      // Which elements, not which values: no rounding may change the answer.
      const int dim = shape.rank > 0 ? random_.integer(0, shape.rank - 1) : -1;
      if (dim < 0) {
        const int one = emit::constant(b_, options_.float_type, shape, 1);
        return emit::compare(b_, ops::less, one, emit::constant(b_, options_.float_type, shape, random_.integer(0, 2)));
      }
      const int place = emit::iota(b_, dtype::i32, shape, dim);
      const int other = random_.chance(0.5) ? emit::iota(b_, dtype::i32, shape, random_.integer(0, shape.rank - 1))
                                            : emit::constant(b_, dtype::i32, shape, random_.integer(0, 3));
      return emit::compare(b_, random_.chance(0.5) ? ops::less_equal : ops::not_equal, place, other);
    }
    return bounded_by(like(shape, dtype::boolean), 1);
  }
  constexpr int truth() {
    const op_info* const comparisons[]{&ops::less, &ops::less_equal, &ops::equal, &ops::not_equal};
    const int x = any_value();
    if (type_of(x) != dtype::boolean) {
      const op_info& op = *random_.one_of(comparisons);
      return bounded_by(emit::compare(b_, op, x, like(x)), 1);
    }
    if (random_.chance(0.3)) return bounded_by(b_.append(ops::logical_not, dtype::boolean, shape_of(x), x), 1);
    const int y = like(x);
    const op_info& op = random_.chance(0.5) ? ops::logical_and : ops::logical_or;
    return bounded_by(b_.append(op, dtype::boolean, shape_of(x), x, y), 1);
  }
  constexpr int choice() {
    const int x = any_value();
    const int chooser = condition(shape_of(x));
    if (smooth() && !is_floating(type_of(x))) return -1;
    if (smooth() && random_.chance(0.3)) return bounded_by(emit::keep_where(b_, chooser, x), bound(x));
    const int y = like(x);
    const double most = bound(x) > bound(y) ? bound(x) : bound(y);
    return bounded_by(emit::select(b_, chooser, x, y), most);
  }
};

}  // namespace espalier::test
