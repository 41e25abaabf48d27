// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/builder.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/testing/random/dice.hpp>
#include <espalier/testing/random/options.hpp>

#include <cstdint>

/// The values in scope while a random program is drawn, and how large their elements may be.
namespace espalier::test {

/// The first layer of `program_generator`: the graph that is built, the values that ops may read, and their bounds.
/// Each further layer draws one family of ops and may use all layers below it.
class random_values {
 protected:
  constexpr random_values(std::uint64_t seed, const program_options& options) : random_(seed), options_(options) {}

  using ids = detail::list<int>;

  /// The axis as a layout names it, in any of its orders.
  constexpr int in_any_order(int axis) {
    const bool is_ordered = options_.mesh.ordered != 0 && has_axis(options_.mesh.ordered, axis);
    return is_ordered && random_.chance(0.5) ? axis + max_axes : axis;
  }
  [[nodiscard]] constexpr bool smooth() const { return options_.kind == numbers::smooth; }
  /// A copy: what is appended moves the others.
  [[nodiscard]] constexpr extents shape_of(int id) const { return b_[id].shape; }
  [[nodiscard]] constexpr dtype type_of(int id) const { return b_[id].type; }
  [[nodiscard]] constexpr int rank_of(int id) const { return b_[id].shape.rank; }
  [[nodiscard]] static constexpr std::int64_t all_of(const extents& shape) {
    return (std::int64_t{1} << shape.rank) - 1;
  }
  [[nodiscard]] constexpr bool same_kind(int a, int b) const {
    return type_of(a) == type_of(b) && shape_of(a) == shape_of(b);
  }
  [[nodiscard]] constexpr bool is_number(int id) const { return type_of(id) != dtype::boolean; }
  /// Numbers without sign stay numbers without sign: nothing wraps around.
  [[nodiscard]] static constexpr bool is_natural(dtype type) { return facts_of(type).format == number_format::natural; }
  [[nodiscard]] constexpr bool is_natural(int id) const { return is_natural(type_of(id)); }

  // --- how large values are
  // --------------------------------------------------------------------------------------------

  /// No element of a value is larger than its bound, if it has one; gradients have none.
  constexpr double bound(int id) const { return id < bound_.size() && bound_[id] >= 0 ? bound_[id] : 1e9; }
  constexpr int bounded_by(int id, double most) {
    if (id >= bound_.size()) bound_.resize(id + 16, -1);
    bound_[id] = most;
    return id;
  }
  /// Carries are handed on below this.
  static constexpr double tame_bound = 4;
  /// Numbers that the type holds exactly, and sums of a few such.
  [[nodiscard]] static constexpr double most_of(dtype type) {
    switch (type) {
      case dtype::i8:
      case dtype::u8: return 30;
      case dtype::bf16: return 64;
      case dtype::f16: return 512;
      case dtype::f32: return 1 << 20;
      case dtype::u32:
      case dtype::i32: return 1 << 26;
      case dtype::i64:
      case dtype::f64: return 1e12;
      case dtype::boolean: return 1;
    }
    return 1;
  }

  constexpr int unary(const op_info& op, int x, double most) {
    return bounded_by(b_.append(op, type_of(x), shape_of(x), x), most);
  }
  constexpr int constant_like(int x, double value) {
    if (is_natural(x) && value < 0) value = 0;
    return bounded_by(emit::constant_like(b_, x, value), value < 0 ? -value : value);
  }

  /// The value itself, or what a bounded function makes of it.
  constexpr int tame(int id) {
    if (type_of(id) == dtype::boolean || bound(id) <= tame_bound) return id;
    if (smooth() && is_floating(type_of(id))) {
      // Far out, tanh is flat.
      const bool shrink = bound(id) > 8 && random_.chance(0.6);
      return unary(ops::tanh, shrink ? emit::scale(b_, id, 8 / bound(id)) : id, 1);
    }
    const double edge = random_.integer(2, 4);
    const int top = constant_like(id, edge);
    const int bottom = constant_like(id, is_natural(id) ? 0 : -edge);
    if (random_.chance(0.3)) {
      const int inside = emit::compare(b_, ops::less_equal, id, top);
      const int cut = emit::select(b_, inside, id, top);
      return bounded_by(b_.append(ops::maximum, type_of(id), shape_of(id), cut, bottom), edge);
    }
    const int cut = b_.append(ops::minimum, type_of(id), shape_of(id), id, top);
    return bounded_by(b_.append(ops::maximum, type_of(id), shape_of(id), cut, bottom), edge);
  }
  /// The value, tamed if its elements may be too large. The result of every op goes through here.
  constexpr int limited(int id, double most) {
    bounded_by(id, most);
    const double limit = smooth() ? 30 : most_of(type_of(id));
    return most > limit || (most > tame_bound && random_.chance(0.5)) ? tame(id) : id;
  }
  /// Whether an op may be done in this type and stay exact.
  [[nodiscard]] constexpr bool holds(int id, double most) const { return smooth() || most <= 4 * most_of(type_of(id)); }

  // --- values in scope
  // -------------------------------------------------------------------------------------------------

  constexpr void keep(int id) {
    if (id < 0 || rank_of(id) > options_.most_dimensions || shape_of(id).elements() > options_.most_elements) return;
    values_.push_back(id);
  }
  /// Recent values more often, so that graphs become deep.
  constexpr int any_value() {
    const int count = values_.size();
    const int near = count < 4 ? count : 4;
    const int back = random_.chance(0.6) ? random_.integer(1, near) : random_.integer(1, count);
    return values_[count - back];
  }
  template <class Condition> constexpr int any_that(Condition condition) {
    for (int tries = 0; tries < 6; ++tries) {
      const int id = any_value();
      if (condition(id)) return id;
    }
    for (int k = values_.size() - 1; k >= 0; --k) {
      if (condition(values_[k])) return values_[k];
    }
    return -1;
  }
  constexpr int any_number() {
    return any_that([&](int id) { return is_number(id); });
  }
  constexpr int any_float() {
    return any_that([&](int id) { return is_floating(type_of(id)); });
  }
  constexpr int any_of_rank(int low, int high) {
    return any_that([&](int id) { return rank_of(id) >= low && rank_of(id) <= high; });
  }

  constexpr std::int64_t any_size() { return options_.sizes[random_.integer(0, options_.size_count - 1)]; }
  constexpr extents any_shape(int low_rank, int high_rank) {
    extents shape;
    for (int rank = random_.integer(low_rank, high_rank); rank > 0; --rank) {
      const std::int64_t size = any_size();
      shape.append(shape.elements() * size <= options_.most_elements / 2 ? size : 1);
    }
    return shape;
  }
  /// Another shape of as many elements.
  constexpr extents reshaped(const extents& from) {
    extents shape;
    std::int64_t rest = from.elements();
    for (const int factor : {2, 3, 5, 7, 4, 1}) {
      if (rest > 0 && rest % factor == 0 && shape.rank < options_.most_dimensions - 1 &&
          random_.chance(factor == 1 ? 0.15 : 0.5)) {
        shape.append(factor);
        rest /= factor;
      }
    }
    if (rest != 1 || random_.chance(0.3)) shape.append(rest);
    return shape;
  }

  // --- conversions
  // -----------------------------------------------------------------------------------------------------

  constexpr dtype any_type() {
    if (smooth()) return options_.float_type;
    constexpr dtype types[]{dtype::f64, dtype::f32, dtype::bf16, dtype::f16, dtype::i32,
                            dtype::u32, dtype::i64, dtype::i8,   dtype::f32};
    return random_.chance(0.1) ? dtype::u8 : random_.one_of(types);
  }
  constexpr dtype any_integer() {
    if (smooth()) return dtype::i32;
    constexpr dtype types[]{dtype::i32, dtype::i64, dtype::u32, dtype::i8};
    return random_.chance(0.1) ? dtype::u8 : random_.one_of(types);
  }
  constexpr int as_type(int id, dtype type) {
    if (type_of(id) == type) return id;
    if (type == dtype::boolean) {
      if (random_.chance(0.3)) return bounded_by(emit::convert(b_, id, type), 1);
      const int zero = constant_like(id, 0);
      return bounded_by(emit::compare(b_, random_.chance(0.5) ? ops::less : ops::not_equal, zero, id), 1);
    }
    const double most = type_of(id) == dtype::boolean ? 1 : bound(id);
    int fitting = most > most_of(type) ? tame(id) : id;
    if (is_natural(type) && is_number(id)) {
      const int zero = constant_like(fitting, 0);
      const double kept = bound(fitting);
      fitting = bounded_by(b_.append(ops::maximum, type_of(fitting), shape_of(fitting), fitting, zero), kept);
    }
    const double fitted = bound(fitting);
    return bounded_by(emit::convert(b_, fitting, type), type_of(id) == dtype::boolean ? 1 : fitted);
  }

  constexpr int total(int id) {
    return bounded_by(emit::reduce_sum(b_, id, all_of(shape_of(id))),
                      bound(id) * static_cast<double>(shape_of(id).elements()));
  }
  /// A value of this shape and type: one that is there, or one made to be like it.
  constexpr int like(const extents& shape, dtype type) {
    for (int tries = 0; tries < 3; ++tries) {
      const int id = any_value();
      if (shape_of(id) == shape && (smooth() ? type_of(id) == type : is_number(id) || type == dtype::boolean)) {
        return as_type(id, type);
      }
    }
    if (random_.chance(0.1)) {
      const int least = is_natural(type) ? 0 : -2;
      return bounded_by(emit::constant(b_, type, shape, type == dtype::boolean ? 1 : random_.integer(least, 2)), 2);
    }
    int from = any_that([&](int id) { return smooth() ? type_of(id) == type : is_number(id); });
    if (from < 0) return bounded_by(emit::constant(b_, type, shape, 1), 1);
    from = tame(from);
    if (shape_of(from).elements() == shape.elements() && random_.chance(0.7)) {
      const int moved = bounded_by(emit::reshape(b_, from, shape), bound(from));
      return as_type(moved, type);
    }
    // Down to what the shape has too, counted from the right, then out again.
    std::int64_t gone = 0;
    const int added = shape.rank - rank_of(from);
    double terms = 1;
    for (int d = 0; d < rank_of(from); ++d) {
      const bool fits = d + added >= 0 && (shape_of(from)[d] == shape[d + added] || shape_of(from)[d] == 1);
      if (!fits) {
        gone |= std::int64_t{1} << d;
        terms *= static_cast<double>(shape_of(from)[d]);
      }
    }
    axis_list targets;
    for (int d = 0; d < rank_of(from); ++d) {
      if ((gone >> d & 1) == 0) targets = targets.with(d + added);
    }
    const double most = bound(from);
    if (gone != 0) {
      if (!holds(from, most * terms)) from = as_type(from, dtype::f64);
      from = random_.chance(0.3) || most * terms > 1e6
                 ? bounded_by(emit::reduce(b_, smooth() ? reduction::sum : reduction::max, from, gone), most * terms)
                 : bounded_by(emit::reduce_sum(b_, from, gone), most * terms);
      from = tame(from);
    }
    const double rest = bound(from);
    return as_type(bounded_by(emit::broadcast(b_, from, shape, targets), rest), type);
  }
  constexpr int like(int model) {
    const extents shape = shape_of(model);
    return like(shape, type_of(model));
  }

  dice random_;
  program_options options_;
  builder b_;
  bool differentiable_ = false;
  bool second_order_ = false;
  bool inner_gradients_ = false;
  /// Whether gradients may be differentiated themselves: not all ops' can.
  bool twice_ = false;
  /// The length of most loops, and of some arguments: stacks of one loop become slices of another.
  std::int64_t length_ = 2;
  ids values_;

 private:
  detail::list<double> bound_;
};

}  // namespace espalier::test
