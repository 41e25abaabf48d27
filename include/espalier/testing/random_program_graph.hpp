// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/attention.hpp>
#include <espalier/tensor/core/nn/losses.hpp>
#include <espalier/tensor/core/nn/norm.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/program/differentiate.hpp>
#include <espalier/testing/table_numbers.hpp>

#include <cstdint>

/// Random programs as values: the same graph from the same seed, at run time or in a constant evaluation.
namespace espalier::test {

/// Random numbers that are the same on every platform (splitmix64; Steele, Lea and Flood, 2014).
class dice {
 public:
  constexpr explicit dice(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t x = state_;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  }
  /// A whole number in [low, high].
  constexpr int integer(int low, int high) {
    return low + static_cast<int>((next() >> 33U) % static_cast<std::uint64_t>(high - low + 1));
  }
  constexpr double real(double low, double high) {
    return low + (high - low) * (static_cast<double>(next() >> 11U) + 0.5) * 0x1p-53;
  }
  constexpr bool chance(double probability) { return real(0, 1) < probability; }
  template <class T, int Count> constexpr T one_of(const T (&from)[Count]) { return from[integer(0, Count - 1)]; }

 private:
  std::uint64_t state_;
};

enum class numbers : std::uint8_t {
  /// All floats are f64, all functions smooth where they are differentiated, values bounded: whatever the order of
  /// additions, results agree to rounding.
  smooth,
  /// Small whole numbers and truth values, in every type: what is not a gradient is exact.
  whole,
};

/// What `random_program_graph` draws. Probabilities are of each chance to do it.
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
  /// That a loop has no iterations: nothing that a typed program can say.
  double empty_loops = 0;
  /// That the program has gradients, of these the share with gradients of gradients, and that a loop's body has its
  /// own.
  double gradients = 0.5;
  double second_order = 0.15;
  double inner_gradients = 0.05;
  /// Not where gradients are compared with differences, which see through it.
  bool stop_gradients = true;
  /// That an argument is donated.
  double donated = 0.4;
  /// That there are arguments nobody uses.
  double unused = 0.3;
  /// Where `mesh` is one: that a value is annotated with a random sharding on it; that it is annotated once more; that
  /// a sum is asked to stay pending.
  mesh_shape mesh{};
  double annotated = 0.2;
  double conflicts = 0.1;
  double pending = 0.1;
  /// That a pending sum is asked for where there is none, which the partitioner refuses.
  double unfounded = 0.002;
  /// That a dimension is split by an axis and then taken apart, so that a part of the axis may split a part of it.
  double taken_apart = 0;
};

/// Makes random well-formed programs as tracing would: with dead code, aliases, captured values, loops in loops that
/// hand their carries on in any order, donated arguments, and gradients.
class program_generator {
 public:
  constexpr program_generator(std::uint64_t seed, const program_options& options) : random_(seed), options_(options) {}

  constexpr graph make() {
    differentiable_ = random_.chance(options_.gradients);
    second_order_ = differentiable_ && random_.chance(options_.second_order);
    inner_gradients_ = random_.chance(5 * options_.inner_gradients);
    twice_ = second_order_ || inner_gradients_;
    length_ = random_.integer(1, 4);
    // The gradient of a loop stacks what its body computes, and of a loop in a loop stacks of stacks.
    options_.loop_depth = random_.integer(options_.loop_depth > 0 ? 1 : 0, options_.loop_depth);
    const int room = max_rank - options_.loop_depth;
    if (options_.most_dimensions > room) options_.most_dimensions = room;
    make_arguments();
    add_ops(options_.instructions, 0);
    if (values_.size() > 4 && random_.chance(0.5)) keep(sum_of_several());
    if (differentiable_) add_gradients();
    add_results();
    return static_cast<graph&&>(b_.result());
  }

  using ids = detail::list<int>;
  /// What the last gradients that the program computes are of and by, and what they are; a loss of -1 without any.
  struct derivatives {
    int loss = -1;
    ids wanted;
    ids gradients;
    /// An op that would have to be differentiated and cannot be, or -1.
    int without_rule = -1;
  };
  [[nodiscard]] constexpr const derivatives& differentiated() const { return derivatives_; }

 private:
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
  /// What the type holds exactly, and sums of a few such.
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
  /// Every op's result goes through here.
  constexpr int made(int id, double most) {
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

  // --- annotations
  // -----------------------------------------------------------------------------------------------------

  constexpr bool wants_annotation() { return options_.mesh.rank > 0 && random_.chance(options_.annotated); }

  /// Any sharding: axes in any order on any dimensions, open and closed ones, axes to stay replicated on.
  constexpr int any_annotation(const extents& shape) {
    sharding placement = sharding::whole(shape.rank);
    axis_mask left = bit_of(options_.mesh.rank) - 1;
    while (left != 0) {
      const axis_list axes = list_of(left);
      const int axis = axes[random_.integer(0, axes.size() - 1)];
      left &= ~bit_of(axis);
      const int where = random_.integer(-2, shape.rank - 1);
      if (where >= 0) placement.dim[where] = placement.dim[where].with(axis);
      if (where == -2 && random_.chance(0.2)) placement.replicated |= bit_of(axis);
    }
    for (int d = 0; d < shape.rank; ++d) {
      if (random_.chance(0.4)) placement.open |= 1U << static_cast<unsigned>(d);
    }
    if (random_.chance(options_.unfounded)) {
      const int axis = random_.integer(0, options_.mesh.rank - 1);
      if (!has_axis(placement.tiled() | placement.replicated, axis)) placement.unreduced |= bit_of(axis);
    }
    return b_.annotate(shape, placement);
  }
  constexpr int annotated(const op_info& op, int id, int annotation) {
    return bounded_by(emit::annotated(b_, op, id, annotation), bound(id));
  }
  constexpr int with_annotations(int id) {
    if (!wants_annotation()) return id;
    const extents shape = shape_of(id);
    const op_info& op = random_.chance(0.85) ? ops::shard : ops::reshard;
    int result = annotated(op, id, any_annotation(shape));
    if (random_.chance(options_.conflicts)) {
      // Of the same value, or of its copy.
      const int again = random_.chance(0.5) ? id : result;
      const int other = annotated(ops::shard, again, any_annotation(shape));
      keep(result);
      result = other;
    }
    return result;
  }

  /// A sum over a split dimension that is asked to stay pending, through a linear op, and then whole.
  constexpr int pending_sum() {
    const int from = any_that([&](int id) { return rank_of(id) > 0 && is_number(id) && b_[id].loop == b_.loop; });
    if (from < 0) return -1;
    const int axis = random_.integer(0, options_.mesh.rank - 1);
    const int dim = random_.integer(0, rank_of(from) - 1);
    const extents shape = shape_of(from);
    sharding split = sharding::whole(shape.rank);
    split.dim[dim] = axis_list(axis);
    const double most = bound(from) * static_cast<double>(shape[dim]);
    if (!holds(from, most)) return -1;
    const int parts = annotated(ops::reshard, from, b_.annotate(shape, split));
    int sum = -1;
    const std::int64_t one = std::int64_t{1} << dim;
    if (random_.chance(0.5)) {
      sum = emit::reduce_sum(b_, parts, one);
    } else {
      // With a vector of ones.
      einsum_term left;
      einsum_term right;
      einsum_term result;
      for (int d = 0; d < shape.rank; ++d) {
        const char letter = static_cast<char>('a' + d);
        left.append(letter);
        (d == dim ? right : result).append(letter);
      }
      extents line;
      line.append(shape[dim]);
      const int ones = bounded_by(emit::constant(b_, type_of(parts), line, 1), 1);
      sum = emit::einsum(b_, parts, left, ones, right, result);
    }
    bounded_by(sum, most);
    sharding pending = sharding::whole(rank_of(sum));
    pending.unreduced = bit_of(axis);
    const extents rest = shape_of(sum);
    sum = annotated(random_.chance(0.5) ? ops::shard : ops::reshard, sum, b_.annotate(rest, pending));
    if (random_.chance(0.4) && !is_natural(sum)) sum = bounded_by(emit::negate(b_, sum), most);
    if (random_.chance(0.3) && holds(sum, 2 * most)) sum = bounded_by(emit::add(b_, sum, sum), 2 * most);
    sharding settled = sharding::whole(rank_of(sum));
    if (rest.rank > 0 && random_.chance(0.5)) settled.dim[random_.integer(0, rest.rank - 1)] = axis_list(axis);
    return tame(annotated(ops::reshard, sum, b_.annotate(rest, settled)));
  }

  // --- arguments
  // -------------------------------------------------------------------------------------------------------

  constexpr int add_argument(dtype type, const extents& shape) {
    const int id = emit::argument(b_, type, shape, arguments_.size());
    if (wants_annotation()) {
      const int annotation = any_annotation(shape);
      b_[id].annotation = annotation;
      // An argument is never a pending sum.
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

  // --- ops
  // -------------------------------------------------------------------------------------------------------------

  constexpr void add_ops(int count, int depth) {
    for (int i = 0; i < count; ++i) {
      if (depth < options_.loop_depth && random_.chance(depth == 0 ? options_.loops : 2 * options_.loops)) {
        add_loop(depth);
        continue;
      }
      int id = options_.mesh.rank > 0 && random_.chance(options_.pending) ? pending_sum() : -1;
      if (id < 0) id = smooth() ? add_smooth_op() : add_whole_op();
      if (id < 0) continue;
      keep(with_annotations(id));
    }
  }

  constexpr int add_smooth_op() {
    if (options_.float_type != dtype::f64 && random_.chance(0.25)) return composite(any_float());
    const int x = any_float();
    switch (random_.integer(0, 9)) {
      case 0:
      case 1: return arithmetic(x);
      case 2:
      case 3: return function(x);
      case 4: return normalised(x);
      default: return add_common_op();
    }
  }
  constexpr int add_whole_op() {
    switch (random_.integer(0, 9)) {
      case 0:
      case 1: return arithmetic(any_number());
      case 2: return truth();
      case 3: {
        const int value = any_value();
        return as_type(value, any_type());
      }
      case 4: return other_arithmetic(any_number());
      case 5: return exact_function(any_value());
      default: return add_common_op();
    }
  }

  /// Ops that move or combine elements: of all types.
  constexpr int add_common_op() {
    if (options_.taken_apart > 0 && random_.chance(options_.taken_apart)) return taken_apart(any_value());
    switch (random_.integer(0, 22)) {
      case 22: {
        const int x = any_value();
        return bounded_by(emit::again(b_, x), bound(x));
      }
      case 21: return cumulated();
      case 19: return largest();
      case 18: return dynamic_slice();
      case 17: return dynamic_update_slice();
      case 14: return rearranged();
      case 15: return convolution();
      case 16:
      case 20: return pooled();
      case 0: return reduce();
      case 1: return broadcast(any_value());
      case 2: return transpose(any_value());
      case 3: return reshape(any_value());
      case 4:
      case 5: return einsum();
      case 6: return choice();
      case 7: return slice();
      case 8: return concat();
      case 9: return gather();
      case 10: return scatter();
      case 11: return pad();
      case 12: return source();
      default: {
        const int x = any_value();
        if (!options_.stop_gradients || random_.chance(0.7)) {
          return bounded_by(b_.append(ops::copy, type_of(x), shape_of(x), x), bound(x));
        }
        return unary(ops::stop_gradient, x, bound(x));
      }
    }
  }

  constexpr int arithmetic(int x) {
    if (x < 0) return -1;
    const int y = like(x);
    const double sum = bound(x) + bound(y);
    const double product = bound(x) * bound(y);
    switch (random_.integer(0, 3)) {
      case 0: return holds(x, sum) ? made(emit::add(b_, x, y), sum) : -1;
      case 1: return holds(x, sum) && !is_natural(x) ? made(emit::subtract(b_, y, x), sum) : -1;
      case 2: return holds(x, product) ? made(emit::multiply(b_, x, y), product) : -1;
      default: {
        const double square = bound(x) * bound(x);
        return holds(x, square) ? made(emit::multiply(b_, x, x), square) : -1;
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
      case 8: return made(emit::divide(b_, like(x), positive(x, 0.7)), 3 * tame_bound);
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
        return made(binary(ops::pow, base, unary(ops::tanh, exponent, 1), bound(base)), bound(base));
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
    return made(unary(*random_.one_of(steps), middle, bound(middle) + 1), bound(middle) + 1);
  }
  constexpr int unary_of_two(const op_info& op, int x, int y) {
    const double most = bound(x) > bound(y) ? bound(x) : bound(y);
    return made(b_.append(op, type_of(x), shape_of(x), x, y), most);
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

  /// What nn makes of x, in its type: computed in a wider one, and rounded once.
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
        return made(emit::scaled_and_shifted(b_, normal, gain, bias, type), 20 * bound(gain) + 4);
      }
      case 1: {
        const int none = emit::constant(b_, dtype::i32, before, 0);
        const int target = before.rank == 0 ? none : emit::iota(b_, dtype::i32, before, before.rank - 1);
        return made(emit::convert(b_, emit::cross_entropy(b_, x, target), type), 2 * bound(x) + 6);
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
        return made(bounded_by(b_.append(ops::clamp, type_of(x), shape_of(x), low, x, high), widest + 3), widest + 3);
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
        return made(binary(ops::shift_right_logical, word, constant_like(word, 23), 255), 255);
      }
      default: return word_function(as_type(x, dtype::i32));
    }
  }
  /// Of the bits of integers, or of truth values.
  constexpr int word_function(int x) {
    const int y = like(x);
    double most = 1;
    while (type_of(x) != dtype::boolean && (most <= bound(x) || most <= bound(y))) most *= 2;
    switch (random_.integer(0, type_of(x) == dtype::boolean ? 3 : 6)) {
      case 0: return made(binary(ops::bitwise_and, x, y, most), most);
      case 1: return made(binary(ops::bitwise_or, x, y, most), most);
      case 2: return made(binary(ops::bitwise_xor, x, y, most), most);
      case 3: return made(unary(ops::bitwise_not, x, most), most);
      case 4: {
        const int amount = binary(ops::bitwise_and, y, constant_like(y, 3), 3);
        return made(binary(ops::shift_left, x, amount, 8 * bound(x)), 8 * bound(x));
      }
      case 5: {
        constexpr int amounts[]{-1, 0, 1, 2, 31, 32, 40};
        const int amount = constant_like(x, random_.one_of(amounts));
        return made(binary(ops::shift_right_arithmetic, x, amount, most), most);
      }
      default: {
        constexpr int amounts[]{-1, 1, 3, 30, 32, 99};
        const int amount = constant_like(x, random_.one_of(amounts));
        return made(binary(ops::shift_right_logical, x, amount, 0x1p31), 0x1p31);
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

  constexpr int reduce() {
    int x = any_number();
    if (x < 0 || (smooth() && !is_floating(type_of(x)))) return -1;
    const extents shape = shape_of(x);
    const std::int64_t dims = random_.integer(0, (1 << shape.rank) - 1);
    double terms = 1;
    for (int d = 0; d < shape.rank; ++d) {
      if ((dims >> d & 1) != 0) terms *= static_cast<double>(shape[d]);
    }
    const double most = bound(x);
    if (random_.chance(0.6)) { return holds(x, most * terms) ? made(emit::reduce_sum(b_, x, dims), most * terms) : -1; }
    if (random_.chance(0.4)) {
      x = tame(x);
      double product = 1;
      for (int n = 0; n < static_cast<int>(terms) && product < 1e15; ++n) product *= bound(x);
      // Of many numbers a product is as good as 0 or too large.
      if (product > (smooth() ? 1e4 : most_of(type_of(x))) || terms > 30) return -1;
      return made(emit::reduce(b_, reduction::prod, x, dims), product);
    }
    const reduction kind = random_.chance(0.5) ? reduction::max : reduction::min;
    if (smooth()) {
      // Which of two equal sums is larger depends on rounding: only values that are far apart are compared.
      for (int d = 0; d < shape.rank; ++d) {
        if ((dims >> d & 1) == 0) continue;
        const int place = emit::convert(b_, emit::iota(b_, dtype::i32, shape, d), options_.float_type);
        x = emit::add(b_, x, emit::scale(b_, place, 0.0173 + 0.0071 * d));
      }
    }
    return made(emit::reduce(b_, kind, x, dims), most + 3);
  }

  constexpr int broadcast(int x) {
    const extents from = shape_of(x);
    if (from.rank >= options_.most_dimensions) return -1;
    extents to;
    axis_list targets;
    const int added = random_.integer(0, from.rank);
    for (int d = 0; d <= from.rank; ++d) {
      if (d == added) to.append(random_.chance(0.3) ? length_ : random_.integer(1, 5));
      if (d == from.rank) break;
      targets = targets.with(to.rank);
      to.append(from[d] == 1 && random_.chance(0.4) ? random_.integer(1, 4) : from[d]);
    }
    return bounded_by(emit::broadcast(b_, x, to, targets), bound(x));
  }

  constexpr int transpose(int x) {
    axis_list order;
    int left = (1 << rank_of(x)) - 1;
    while (left != 0) {
      const axis_list dims = list_of(static_cast<axis_mask>(left));
      const int dim = dims[random_.integer(0, dims.size() - 1)];
      left &= ~(1 << dim);
      order = order.with(dim);
    }
    return bounded_by(emit::transpose(b_, x, order), bound(x));
  }

  constexpr int reshape(int x) {
    const extents to = reshaped(shape_of(x));
    return bounded_by(emit::reshape(b_, x, to), bound(x));
  }

  /// All dimensions but perhaps the first as one, split by an axis, and this again as several, the first of them
  /// smaller than the axis.
  constexpr int taken_apart(int x) {
    const int axis = random_.integer(0, options_.mesh.rank - 1);
    const int devices = options_.mesh.size[axis];
    const std::int64_t all = shape_of(x).elements();
    extents merged;
    if (rank_of(x) > 1 && random_.chance(0.4)) merged.append(shape_of(x)[0]);
    const std::int64_t extent = all == 0 ? 0 : all / merged.elements();
    int first = random_.integer(2, 4);
    while (first < devices && (devices % first != 0 || extent % first != 0)) ++first;
    if (first >= devices || extent % devices != 0 || extent == 0) return reshape(x);
    extents apart = merged;
    merged.append(extent);
    apart.append(first);
    std::int64_t rest = extent / first;
    if (rest % 2 == 0 && random_.chance(0.4)) {
      apart.append(2);
      rest /= 2;
    }
    if (rest != 1 || random_.chance(0.3)) apart.append(rest);
    sharding split = sharding::whole(merged.rank);
    split.dim[merged.rank - 1] = axis_list(axis);
    if (random_.chance(0.5)) split.open = (1U << static_cast<unsigned>(merged.rank)) - 1U;
    const double most = bound(x);
    int value = bounded_by(emit::reshape(b_, x, merged), most);
    value = annotated(ops::shard, value, b_.annotate(merged, split));
    if (random_.chance(0.3)) keep(value);
    return bounded_by(emit::reshape(b_, value, apart), most);
  }

  /// The product with another value over common sizes, or with itself.
  constexpr int einsum() {
    const int x = any_number();
    if (x < 0 || (smooth() && !is_floating(type_of(x))) || rank_of(x) > 4) return -1;
    int y =
        any_that([&](int id) { return is_number(id) && rank_of(id) <= 4 && (!smooth() || is_floating(type_of(id))); });
    if (y < 0) return -1;
    y = as_type(y, type_of(x));
    einsum_term left;
    einsum_term right;
    einsum_term result;
    std::int64_t size[16]{};
    int letters = 0;
    for (int d = 0; d < rank_of(x); ++d) {
      left.append(static_cast<char>('a' + letters));
      size[letters++] = shape_of(x)[d];
    }
    for (int d = 0; d < rank_of(y); ++d) {
      int at = letters;
      for (int e = 0; e < rank_of(x); ++e) {
        const bool is_free = shape_of(x)[e] == shape_of(y)[d] && !right.contains(left[e]);
        if (is_free && random_.chance(0.7)) at = e;
      }
      if (at == letters) size[letters++] = shape_of(y)[d];
      right.append(static_cast<char>('a' + at));
    }
    double summed = 1;
    double space = 1;
    extents shape;
    const int turn = letters > 0 ? random_.integer(0, letters - 1) : 0;
    for (int n = 0; n < letters; ++n) {
      const int at = random_.chance(0.7) ? n : (n + turn) % letters;
      const char letter = static_cast<char>('a' + at);
      if (!result.contains(letter) && random_.chance(0.5) && shape.rank < options_.most_dimensions) {
        result.append(letter);
        shape.append(size[at]);
      }
    }
    for (int n = 0; n < letters; ++n) {
      space *= static_cast<double>(size[n]);
      if (!result.contains(static_cast<char>('a' + n))) summed *= static_cast<double>(size[n]);
    }
    const double most = bound(x) * bound(y) * summed;
    if (space > 20000 || shape.elements() > options_.most_elements || !holds(x, most)) return -1;
    return made(emit::einsum(b_, x, left, y, right, result), most);
  }

  constexpr int slice() {
    const int x = any_of_rank(1, options_.most_dimensions);
    if (x < 0 || !holds(x, bound(x))) return -1;
    const int dim = random_.integer(0, rank_of(x) - 1);
    const auto extent = static_cast<int>(shape_of(x)[dim]);
    if (extent == 0) return -1;
    const int start = random_.integer(0, extent - 1);
    const int stop = random_.integer(start + 1, extent);
    const int step = random_.integer(1, 2);
    return bounded_by(emit::slice(b_, x, dim, start, (stop - start + step - 1) / step, step), bound(x));
  }
  constexpr int pad() {
    const int x = any_of_rank(1, options_.most_dimensions);
    if (x < 0) return -1;
    const int dim = random_.integer(0, rank_of(x) - 1);
    const int start = random_.integer(0, 2);
    const int step = random_.integer(1, 2);
    const std::int64_t extent = shape_of(x)[dim];
    const std::int64_t room = start + (extent > 0 ? step * (extent - 1) + 1 : 0) + random_.integer(0, 2);
    return bounded_by(emit::pad(b_, x, dim, start, room, step), bound(x));
  }
  /// In reverse order, in a circle, with something before, behind or between, or without.
  constexpr int rearranged() {
    const int x = any_of_rank(1, options_.most_dimensions);
    if (x < 0) return -1;
    const int dim = random_.integer(0, rank_of(x) - 1);
    const std::int64_t extent = shape_of(x)[dim];
    if (extent == 0) return -1;
    switch (random_.integer(0, 3)) {
      case 0: return bounded_by(emit::reverse(b_, x, dim), bound(x));
      case 1: return bounded_by(emit::roll(b_, x, dim, random_.integer(-3, 3)), bound(x));
      default: {
        const int between = random_.integer(0, 2);
        const int low = random_.integer(-2, 3);
        const int high = random_.integer(-2, 3);
        const std::int64_t size = (extent - 1) * (between + 1) + 1 + low + high;
        if (size < 1 || shape_of(x).elements() / extent * size > options_.most_elements) return -1;
        return bounded_by(emit::pad_around(b_, x, dim, low, high, between), bound(x));
      }
    }
  }

  /// Filters that are as large as their input or larger than their stride, with and without padding and gaps.
  constexpr int convolution() {
    const int from = any_number();
    if (from < 0) return -1;
    const dtype type = type_of(from);
    const int spatial = random_.integer(1, options_.most_dimensions > 4 ? 3 : 2);
    convolution_settings s;
    s.groups = random_.chance(0.3) ? 2 : 1;
    extents input{1, {random_.integer(1, 3)}};
    extents filter;
    double terms = 1;
    for (int d = 0; d < spatial; ++d) {
      const int taps = random_.integer(1, 3);
      s.stride[d] = random_.integer(1, 3);
      s.dilation[d] = random_.integer(1, 2);
      s.base_dilation[d] = random_.chance(0.3) ? random_.integer(2, 3) : 1;
      s.low[d] = random_.integer(-1, 2);
      s.high[d] = random_.integer(-1, 2);
      s.reversed[d] = random_.chance(0.2);
      input.append(random_.integer(1, spatial == 1 ? 9 : 5));
      filter.append(taps);
      terms *= taps;
    }
    const int channels = random_.integer(1, 3);
    input.append(channels * s.groups);
    filter.append(channels);
    filter.append(random_.integer(1, 3) * s.groups);
    const extents shape = detail::convolution_shape(input, filter, s);
    if (detail::too_small_for_windows(shape) >= 0 || shape.elements() > options_.most_elements ||
        input.elements() > options_.most_elements) {
      return -1;
    }
    const int x = like(input, type);
    const int w = like(filter, type);
    const double most = bound(x) * bound(w) * terms * channels;
    if (!holds(x, most)) return -1;
    return made(emit::convolution(b_, x, w, s), most);
  }

  constexpr int pooled() {
    const int from = any_number();
    if (from < 0) return -1;
    const int spatial = random_.integer(1, options_.most_dimensions > 4 ? 3 : 2);
    pooling_settings s;
    extents input{1, {random_.integer(1, 2)}};
    double terms = 1;
    for (int d = 0; d < spatial; ++d) {
      s.size[d] = random_.integer(1, 3);
      s.stride[d] = random_.integer(1, 3);
      s.low[d] = random_.integer(0, s.size[d] - 1);
      s.high[d] = random_.integer(0, s.size[d] - 1);
      input.append(random_.integer(1, spatial == 1 ? 9 : 5));
      terms *= s.size[d];
    }
    input.append(random_.integer(1, 3));
    const extents shape = detail::pooled_shape(input, s);
    if (detail::too_small_for_windows(shape) >= 0 || input.elements() > options_.most_elements) return -1;
    const int x = like(input, type_of(from));
    placed_window windows[3]{};
    for (int d = 0; d < spatial; ++d) {
      windows[d] = place_window({s.size[d], s.stride[d], s.low[d], 1, 1}, d, 0, axis_list{});
    }
    if (!smooth() && random_.chance(0.5)) {
      return bounded_by(emit::pool(b_, ops::max_pool, shape, &windows[0], x), bound(x));
    }
    const double most = bound(x) * terms;
    return holds(x, most) ? made(emit::pool(b_, ops::sum_pool, shape, &windows[0], x), most) : -1;
  }
  constexpr int concat() {
    const int x = any_of_rank(1, options_.most_dimensions);
    if (x < 0) return -1;
    const int dim = random_.integer(0, rank_of(x) - 1);
    int parts[9]{};
    const int count = random_.chance(0.5) ? random_.integer(2, 4) : random_.integer(5, 9);
    double most = 0;
    for (int k = 0; k < count; ++k) {
      extents shape = shape_of(x);
      shape[dim] = random_.integer(1, 3);
      parts[k] = random_.chance(0.4) ? x : random_.chance(0.5) ? like(x) : like(shape, type_of(x));
      if (bound(parts[k]) > most) most = bound(parts[k]);
    }
    return bounded_by(emit::concat(b_, &parts[0], count, dim), most);
  }

  /// Along a dimension, from either end: sums, products, recurrences; of whole numbers, among which there may be equal
  /// ones, also the largest and the smallest so far.
  constexpr int cumulated() {
    const int x = any_that([&](int id) { return is_number(id) && rank_of(id) >= 1; });
    if (x < 0) return -1;
    cumulate_attributes how;
    how.dim = random_.integer(0, rank_of(x) - 1);
    how.reverse = random_.chance(0.4);
    const std::int64_t extent = shape_of(x)[how.dim];
    const double each = bound(x);
    switch (random_.integer(0, smooth() ? 2 : 4)) {
      case 0: {
        const double most = each * static_cast<double>(extent);
        return holds(x, most) ? made(emit::cumulate(b_, x, how), most) : -1;
      }
      case 1: {
        double most = 1;
        for (std::int64_t n = 0; n < extent; ++n) most *= each > 1 ? each : 1;
        if (!holds(x, most) || most > 1e6) return -1;
        how.kind = cumulation::prod;
        return made(emit::cumulate(b_, x, how), most);
      }
      case 2: {
        const int term = like(x);
        double most = 0;
        for (std::int64_t n = 0; n < extent; ++n) most = each * most + bound(term);
        if (!holds(x, most) || most > 1e6) return -1;
        how.kind = cumulation::recurrence;
        return made(emit::recurrence(b_, x, term, how), most);
      }
      default: {
        how.kind = random_.chance(0.5) ? cumulation::max : cumulation::min;
        return bounded_by(emit::cumulate(b_, x, how), each);
      }
    }
  }

  /// Where two elements are equal there is no derivative, so the arguments are drawn from, and where rounding might
  /// exchange two nothing can be compared, so gradients are not.
  constexpr int largest() {
    const int x = smooth() ? any_that([&](int id) { return b_[id].op == &ops::argument && rank_of(id) >= 1; })
                           : any_of_rank(1, options_.most_dimensions);
    if (x < 0 || !holds(x, bound(x))) return -1;
    const int dim = random_.integer(0, rank_of(x) - 1);
    const auto extent = static_cast<int>(shape_of(x)[dim]);
    if (extent < 1) return -1;
    const int values = bounded_by(emit::top_k(b_, x, dim, random_.integer(1, extent)), bound(x));
    const int places = bounded_by(values + 1, extent);
    if (smooth() || random_.chance(0.5)) return values;
    if (random_.chance(0.5)) keep(values);
    return places;
  }

  /// Whole numbers, some of them no rows of the table.
  constexpr int rows() {
    if (!indices_.empty() && random_.chance(0.5)) return indices_[random_.integer(0, indices_.size() - 1)];
    if (!smooth() && random_.chance(0.5)) {
      const int from = any_that([&](int id) { return is_number(id) && rank_of(id) <= 2; });
      // One after the other: in which order arguments are evaluated differs between compilers and constant evaluations.
      const int few = from < 0 ? -1 : tame(from);
      if (from >= 0) return as_type(few, any_integer());
    }
    const extents shape = any_shape(1, 2);
    const dtype type = any_integer();
    return bounded_by(emit::iota(b_, type, shape, random_.integer(0, shape.rank - 1)), 8);
  }
  constexpr int gather() {
    const int x = any_of_rank(1, 4);
    if (x < 0) return -1;
    const int dim = random_.integer(0, rank_of(x) - 1);
    const int from = rows();
    const extents found = detail::gathered_shape(shape_of(x), shape_of(from), dim);
    if (found.elements() > options_.most_elements || found.rank > options_.most_dimensions) return -1;
    return bounded_by(emit::gather(b_, x, from, dim), bound(x));
  }
  /// A whole number to start from, about as often inside as outside of `extent` elements.
  constexpr int start(std::int64_t extent) {
    if (!steps_.empty() && random_.chance(0.5)) return steps_[random_.integer(0, steps_.size() - 1)];
    if (random_.chance(0.3)) {
      const int from = any_that([&](int id) { return is_number(id) && rank_of(id) == 0 && !is_floating(type_of(id)); });
      if (from >= 0) return from;
    }
    const dtype drawn = any_integer();
    const int most = static_cast<int>(extent) + 1;
    constexpr int most_of_bytes = 127;
    const bool is_held = size_of(drawn) > 1 || most <= most_of_bytes;
    const dtype type = is_held ? drawn : dtype::i32;
    return bounded_by(emit::constant(b_, type, extents{}, random_.integer(is_natural(type) ? 0 : -2, most)), most);
  }
  constexpr int dynamic_slice() {
    const int x = any_of_rank(1, options_.most_dimensions);
    if (x < 0 || !holds(x, bound(x))) return -1;
    const int dim = random_.integer(0, rank_of(x) - 1);
    const auto extent = static_cast<int>(shape_of(x)[dim]);
    if (extent == 0) return -1;
    const int from = start(extent);
    return bounded_by(emit::dynamic_slice(b_, x, from, dim, random_.integer(1, extent)), bound(x));
  }
  constexpr int dynamic_update_slice() { return dynamic_update_slice(any_of_rank(1, options_.most_dimensions)); }
  constexpr int dynamic_update_slice(int x) {
    if (x < 0 || rank_of(x) == 0 || shape_of(x).elements() == 0) return -1;
    extents shape = shape_of(x);
    emit::placed_at at[2];
    const int count = rank_of(x) > 1 && random_.chance(0.4) ? 2 : 1;
    for (int n = 0; n < count; ++n) {
      const int dim = random_.integer(0, rank_of(x) - 1);
      if (n > 0 && dim == at[0].dim) continue;
      const auto extent = static_cast<int>(shape[dim]);
      at[n] = {dim, start(extent)};
      shape[dim] = random_.integer(1, extent);
    }
    const int update = like(shape, type_of(x));
    return bounded_by(emit::dynamic_update_slice(b_, x, update, at[0], at[1]),
                      bound(x) > bound(update) ? bound(x) : bound(update));
  }
  constexpr int scatter() {
    const int x = any_that([&](int id) { return rank_of(id) >= 1 && rank_of(id) <= 4 && is_number(id); });
    if (x < 0 || (smooth() && !is_floating(type_of(x)))) return -1;
    const int dim = random_.integer(0, rank_of(x) - 1);
    const int to = rows();
    const extents table = shape_of(x);
    const extents shape = detail::gathered_shape(table, shape_of(to), dim);
    const double most = tame_bound * static_cast<double>(shape_of(to).elements());
    if (shape.elements() > options_.most_elements || shape.rank > options_.most_dimensions) return -1;
    if (!holds(x, most)) return -1;
    const int updates = tame(like(shape, type_of(x)));
    return made(emit::scatter_add(b_, table, to, updates, dim), most);
  }

  /// A constant, or two whole numbers that are there; perhaps another one of it and the number of a step, or any other.
  constexpr int random_key() {
    extents pair;
    pair.append(2);
    int key = any_that([&](int id) { return is_integer(type_of(id)) && shape_of(id) == pair; });
    key = key < 0 || random_.chance(0.5) ? emit::constant(b_, dtype::u32, pair, random_.integer(0, 1 << 30))
                                         : as_type(key, dtype::u32);
    if (random_.chance(0.5)) return key;
    int number = any_that([&](int id) { return is_integer(type_of(id)) && rank_of(id) == 0; });
    number = number < 0 ? emit::constant(b_, dtype::u32, {}, random_.integer(0, 9)) : as_type(number, dtype::u32);
    return emit::random_bits(b_, dtype::u32, pair, key, detail::random_purpose::fold, number);
  }
  /// Small numbers, of few bits.
  constexpr int random_numbers(const extents& shape, dtype type) {
    const int key = random_key();
    if (smooth() && random_.chance(0.5)) return bounded_by(emit::uniform(b_, type, shape, key), 1);
    const dtype words = random_.chance(0.5) ? dtype::u32 : dtype::i32;
    const int bits = emit::random_bits(b_, words, shape, key);
    const int few = bounded_by(emit::shifted_right(b_, bits, 30, words == dtype::i32), 3);
    return smooth() ? bounded_by(emit::convert(b_, few, type), 3) : as_type(few, type);
  }

  /// A value that no argument goes into.
  constexpr int index(const extents& shape) {
    const int dim = random_.integer(0, shape.rank - 1);
    return bounded_by(emit::iota(b_, dtype::i32, shape, dim), static_cast<double>(shape[dim]));
  }
  constexpr int source() {
    if (random_.chance(0.3)) return table();
    const extents shape = any_shape(0, 3);
    const dtype type = any_type();
    if (random_.chance(0.4)) return random_numbers(shape, type);
    if (shape.rank == 0 || random_.chance(0.4)) {
      const double value = smooth() ? 0.25 * random_.integer(-4, 4) : random_.integer(is_natural(type) ? 0 : -2, 2);
      return bounded_by(emit::constant(b_, type, shape, value), 2);
    }
    const int place = index(shape);
    if (smooth()) return tame(bounded_by(emit::convert(b_, place, type), bound(place)));
    return as_type(place, type);
  }

  /// The elements of a table in some shape that holds them.
  constexpr int table() {
    constexpr int sizes[][4]{{24, 1, 1, 1}, {4, 6, 1, 1}, {2, 3, 4, 1}, {3, 2, 2, 2}, {6, 4, 1, 1}, {2, 12, 1, 1}};
    const auto& chosen = sizes[random_.integer(0, 5)];
    extents shape;
    for (const int size : chosen) {
      if (size > 1 || random_.chance(0.1)) shape.append(size);
    }
    const dtype type = any_type();
    return bounded_by(b_.append(table_of(type), type, shape), 3);
  }

  // --- loops
  // -----------------------------------------------------------------------------------------------------------

  struct loop_carries {
    int count = 0;
    int carry[6]{};
    int passed[6]{};
  };

  /// A tensor whose first dimension is the loop's length: an argument, a stack of an earlier loop, or one made so.
  constexpr int stacked(std::int64_t count) {
    for (int tries = 0; tries < 6; ++tries) {
      const int id = any_value();
      if (rank_of(id) > 0 && shape_of(id)[0] == count) return id;
    }
    const int from = any_of_rank(0, options_.most_dimensions - 1);
    if (from < 0 || shape_of(from).elements() * count > options_.most_elements) return -1;
    extents shape;
    shape.append(count);
    for (int d = 0; d < rank_of(from); ++d) shape.append(shape_of(from)[d]);
    if (random_.chance(0.5)) return like(shape, type_of(from));
    return bounded_by(emit::broadcast_along(b_, from, shape, 1), bound(from));
  }

  constexpr std::int64_t any_length() {
    if (random_.chance(options_.empty_loops)) return 0;
    return random_.chance(0.6) ? length_ : random_.integer(1, 4);
  }

  constexpr void add_loop(int depth) {
    const std::int64_t count = any_length();
    ids slices;
    for (int n = random_.integer(0, 2); n > 0; --n) {
      const int from = stacked(count);
      if (from >= 0) slices.push_back(from);
    }
    loop_carries c;
    c.count = random_.integer(1, 4);
    int initial[6]{};
    for (int k = 0; k < c.count; ++k) {
      if (k > 0 && random_.chance(0.65)) {
        const int model = initial[random_.integer(0, k - 1)];
        const bool turned = random_.chance(0.2);
        const extents shape = turned ? reshaped(shape_of(model)) : shape_of(model);
        initial[k] = !turned && random_.chance(0.2) ? model : like(shape, type_of(model));
      } else {
        initial[k] = any_value();
        if (type_of(initial[k]) == dtype::boolean) initial[k] = as_type(initial[k], any_type());
      }
      initial[k] = tame(initial[k]);
    }
    const ids outside = values_;
    const bool reverse = random_.chance(0.3);
    const bool counts = random_.chance(0.4);
    extents numbers;
    numbers.append(count);
    const int all_steps = counts ? emit::iota(b_, dtype::i32, numbers, 0) : -1;
    const int steps_outside = steps_.size();
    emit::loop_begin(b_, count, reverse, random_.chance(0.4));
    for (int k = 0; k < c.count; ++k) c.carry[k] = bounded_by(emit::loop_carry(b_, initial[k]), tame_bound);
    for (const int from : slices) {
      const int slice = bounded_by(emit::loop_slice(b_, from), bound(from));
      // A slice of what a loop further out counts, too.
      values_.push_back(slice);
    }
    if (counts) steps_.push_back(emit::loop_slice(b_, all_steps));
    for (int k = c.count - 1; k >= 0; --k) values_.push_back(c.carry[k]);
    add_ops(random_.integer(1, 5), depth + 1);
    if (inner_gradients_ && random_.chance(0.2)) step_down(c);
    choose_passed(c, outside);
    int next[6]{};
    for (int k = 0; k < c.count; ++k) next[k] = emit::loop_next(b_, c.carry[k], c.passed[k]);
    ids outputs;
    for (int n = random_.integer(0, 3); n > 0; --n) {
      int value = -1;
      switch (random_.integer(0, 5)) {
        case 0: value = c.carry[random_.integer(0, c.count - 1)]; break;
        case 1: value = c.passed[random_.integer(0, c.count - 1)]; break;
        case 2: value = outside[random_.integer(0, outside.size() - 1)]; break;
        case 3: value = outputs.empty() ? any_value() : outputs.back(); break;
        default: value = any_value(); break;
      }
      if (rank_of(value) >= options_.most_dimensions) continue;
      if (shape_of(value).elements() * count > options_.most_elements) continue;
      const double most = bound(value);
      outputs.push_back(bounded_by(emit::own(b_, value), most));
    }
    emit::loop_end(b_);
    values_ = outside;
    steps_.resize(steps_outside);
    const bool all = outputs.empty() || random_.chance(0.5);
    for (int k = 0; k < c.count; ++k) {
      if (all || random_.chance(0.6)) keep(bounded_by(emit::loop_result(b_, next[k]), tame_bound));
    }
    for (const int value : outputs) {
      const double most = bound(value);
      keep(bounded_by(emit::loop_stack(b_, value), most));
      const double sum = most * static_cast<double>(count);
      if (random_.chance(0.15) && is_number(value) && holds(value, sum)) { keep(made(emit::loop_sum(b_, value), sum)); }
    }
  }

  /// What the loop hands on. Every value was there before the first is overwritten.
  constexpr void choose_passed(loop_carries& c, const ids& outside) {
    for (int k = 0; k < c.count; ++k) c.passed[k] = computed_carry(c.carry[k]);
    if (c.count > 1 && random_.chance(0.35)) {
      // A delay line, or a turn: each carry that fits becomes the one before it.
      const bool turn = random_.chance(0.5);
      for (int k = 0; k < c.count; ++k) {
        const int from = k + 1 < c.count ? k + 1 : 0;
        if ((turn || from > 0) && same_kind(c.carry[k], c.carry[from])) c.passed[k] = c.carry[from];
      }
      return;
    }
    for (int k = 0; k < c.count; ++k) {
      const int carry = c.carry[k];
      const int other = c.carry[random_.integer(0, c.count - 1)];
      switch (random_.integer(0, 7)) {
        case 0: c.passed[k] = carry; break;
        case 1:
        case 2:
          if (same_kind(other, carry)) {
            c.passed[k] = other;
          } else if (type_of(other) == type_of(carry) && shape_of(other).elements() == shape_of(carry).elements()) {
            c.passed[k] = bounded_by(emit::reshape(b_, other, shape_of(carry)), tame_bound);
          }
          break;
        case 3: {
          const int value = outside[random_.integer(0, outside.size() - 1)];
          if (same_kind(value, carry) && bound(value) <= tame_bound) c.passed[k] = value;
          break;
        }
        case 4:
          if (k > 0 && same_kind(c.passed[k - 1], carry)) c.passed[k] = c.passed[k - 1];
          break;
        case 5: {
          // An alias of another carry, behind which it would be overwritten.
          if (same_kind(other, carry)) {
            c.passed[k] = unary(options_.stop_gradients ? ops::stop_gradient : ops::copy, other, tame_bound);
          }
          break;
        }
        default: break;
      }
    }
  }
  constexpr int computed_carry(int carry) {
    if (random_.chance(0.15)) {
      const int updated = dynamic_update_slice(carry);
      if (updated >= 0) return tame(updated);
    }
    const int other = like(carry);
    const double sum = bound(carry) + bound(other);
    if (random_.chance(0.3) || !holds(carry, sum)) return tame(other);
    return tame(bounded_by(emit::add(b_, carry, other), sum));
  }

  /// One step of descent in the body of a loop, along the gradient of something by a carry.
  constexpr void step_down(loop_carries& c) {
    for (int k = 0; k < c.count; ++k) {
      const int carry = c.carry[k];
      if (!is_floating(type_of(carry)) || (!smooth() && is_for_storage(type_of(carry)))) continue;
      const int other = like(carry);
      const int product = bounded_by(emit::multiply(b_, carry, other), bound(carry) * bound(other));
      const int loss = total(smooth() ? tame(product) : product);
      int gradient = -1;
      note_rule(differentiate(b_, loss, &carry, 1, &gradient));
      const double step = smooth() ? 0.1 : 1;
      keep(tame(emit::subtract(b_, carry, emit::scale(b_, gradient, step))));
      return;
    }
  }

  // --- gradients
  // -------------------------------------------------------------------------------------------------------

  constexpr int sum_of_several() {
    int sum = -1;
    for (int k = 0; k < 4; ++k) {
      int value = any_number();
      if (value < 0 || (smooth() && !is_floating(type_of(value)))) continue;
      if (!smooth()) value = as_type(value, dtype::f32);
      const int term = total(tame(value));
      sum = sum < 0 ? term : bounded_by(emit::add(b_, sum, term), bound(sum) + bound(term));
    }
    return sum < 0 ? values_.back() : sum;
  }

  /// A scalar, made directly of one op's result: every kind of loss.
  constexpr int any_loss() {
    int value = -1;
    for (int tries = 0; tries < 4 && value < 0; ++tries) {
      switch (random_.integer(0, 11)) {
        case 0: value = einsum(); break;
        case 1: value = gather(); break;
        case 2: value = concat(); break;
        case 3: value = slice(); break;
        case 4: value = transpose(any_value()); break;
        case 5: value = reshape(any_value()); break;
        case 6: value = pad(); break;
        case 7: value = scatter(); break;
        case 8:
          value = any_that([&](int id) { return b_[id].op == &ops::loop_result || b_[id].op == &ops::loop_stack; });
          break;
        case 9: value = reduce(); break;
        case 10: value = arithmetic(any_float()); break;
        default: value = values_.back(); break;
      }
      if (value >= 0 && !is_floating(type_of(value))) value = -1;
    }
    if (value < 0) value = any_float();
    if (value < 0) value = parameters_[0];
    if (!smooth() && !holds(value, bound(value) * static_cast<double>(shape_of(value).elements()))) {
      value = as_type(value, dtype::f32);
    }
    if (rank_of(value) > 0 && shape_of(value).elements() <= 12 && random_.chance(0.1)) {
      // Not a sum.
      const reduction kind = random_.chance(0.5) ? reduction::prod : reduction::max;
      if (!smooth() || kind == reduction::prod) return emit::reduce(b_, kind, tame(value), all_of(shape_of(value)));
    }
    if (rank_of(value) > 1 && random_.chance(0.2)) value = emit::reduce_sum(b_, value, 1);
    int loss = total(value);
    if (random_.chance(0.2) && !is_for_storage(type_of(loss))) loss = emit::scale(b_, loss, smooth() ? 0.37 : 2);
    return loss;
  }

  /// To how many of these values a gradient flows.
  [[nodiscard]] constexpr int reached(int from, const ids& wanted) const {
    detail::list<bool> seen(b_.size(), false);
    ids next_of(b_.size(), -1);
    for (int id = 0; id < b_.size(); ++id) {
      if (b_[id].op == &ops::loop_next) next_of[b_[id].operand[0]] = id;
    }
    ids work;
    const auto want = [&](int id) {
      if (id < 0 || seen[id] || !is_floating(type_of(id)) || b_[id].op == &ops::stop_gradient) return;
      seen[id] = true;
      work.push_back(id);
    };
    want(from);
    while (!work.empty()) {
      const int id = work.back();
      work.pop_back();
      for (int k = 0; k < b_[id].operand_count; ++k) want(b_.operand_at(b_[id], k));
      want(next_of[id]);
    }
    int count = 0;
    for (const int id : wanted) count += seen[id] ? 1 : 0;
    return count;
  }

  constexpr void add_gradients() {
    int loss = any_loss();
    for (int tries = 0; tries < 4; ++tries) {
      const int depends_on = reached(loss, parameters_);
      if (depends_on == parameters_.size() || (depends_on > 0 && random_.chance(0.3))) break;
      const int other = any_loss();
      const bool add = depends_on > 0 && type_of(other) == type_of(loss);
      if (add || depends_on == 0) loss = add ? emit::add(b_, loss, other) : other;
    }
    ids wanted;
    for (const int id : parameters_) {
      if (random_.chance(0.8)) wanted.push_back(id);
    }
    // Where nothing is differentiated there is nothing to see.
    if (reached(loss, wanted) == 0) {
      wanted.clear();
      for (const int id : parameters_) wanted.push_back(id);
    }
    // Of something in between, now and then.
    const int between = any_float();
    if (between >= 0 && random_.chance(0.15)) wanted.push_back(between);
    if (wanted.empty()) wanted.push_back(parameters_[0]);
    ids gradients(wanted.size(), -1);
    note_rule(differentiate(b_, loss, wanted.data(), wanted.size(), gradients.data()));
    derivatives_.loss = loss;
    derivatives_.wanted = wanted;
    derivatives_.gradients = gradients;
    if (second_order_) {
      int squares = -1;
      for (const int gradient : gradients) {
        if (type_of(gradient) != type_of(gradients[0])) continue;
        const int square = emit::multiply(b_, gradient, gradient);
        const int sum = emit::reduce_sum(b_, square, all_of(shape_of(square)));
        squares = squares < 0 ? sum : emit::add(b_, squares, sum);
      }
      ids second(wanted.size(), -1);
      note_rule(differentiate(b_, squares, wanted.data(), wanted.size(), second.data()));
      derivatives_.loss = squares;
      derivatives_.gradients = second;
      for (int k = 0; k < second.size(); ++k) note_gradient(wanted[k], second[k]);
      if (random_.chance(0.5)) results_.push_back(squares);
    }
    for (int k = 0; k < gradients.size(); ++k) note_gradient(wanted[k], gradients[k]);
    results_.push_back(loss);
  }
  constexpr void note_rule(int without_rule) {
    if (derivatives_.without_rule < 0) derivatives_.without_rule = without_rule;
  }
  /// The gradient itself becomes a result, or an updated parameter in the parameter's place.
  constexpr void note_gradient(int wanted, int gradient) {
    if (random_.chance(0.6)) {
      results_.push_back(gradient);
      return;
    }
    const double step = smooth() ? -0.1 : -1;
    results_.push_back(emit::add(b_, wanted, emit::scale(b_, gradient, step)));
  }

  // --- results
  // ---------------------------------------------------------------------------------------------------------

  constexpr int replaceable(const ids& taken, int value) {
    ids fitting;
    for (int n = 0; n < arguments_.size(); ++n) {
      if (taken[n] == 0 && same_kind(arguments_[n], value)) fitting.push_back(n);
    }
    return fitting.empty() ? -1 : fitting[random_.integer(0, fitting.size() - 1)];
  }

  constexpr void want_result(int id) {
    if (id >= 0) results_.push_back(id);
  }
  constexpr void add_results() {
    for (int n = random_.integer(1, 4); n > 0; --n) {
      switch (random_.integer(0, 9)) {
        case 0: want_result(arguments_[random_.integer(0, arguments_.size() - 1)]); break;
        case 1: want_result(random_.chance(0.1) ? index(any_shape(1, 3)) : source()); break;
        case 2: {
          const int from = source();
          want_result(rank_of(from) < 4 ? broadcast(from) : from);
          break;
        }
        case 3:
          if (!results_.empty()) want_result(results_[random_.integer(0, results_.size() - 1)]);
          break;
        case 4: want_result(reshape(arguments_[random_.integer(0, arguments_.size() - 1)])); break;
        default: want_result(any_value()); break;
      }
    }
    // What is computed last, so that not everything is dead code.
    results_.push_back(values_.back());
    ids taken(arguments_.size(), 0);
    detail::list<int> place(results_.size(), -1);
    if (random_.chance(options_.donated)) exchange_arguments(taken, place);
    if (random_.chance(options_.donated)) update_in_place(taken, place);
    for (int k = 0; k < results_.size(); ++k) {
      if (place[k] >= 0 || !random_.chance(options_.donated)) continue;
      const int n = replaceable(taken, results_[k]);
      if (n < 0) continue;
      taken[n] = 1;
      place[k] = n;
    }
    // In any order.
    ids order;
    for (int k = 0; k < results_.size(); ++k) order.push_back(k);
    for (int k = order.size() - 1; k > 0; --k) {
      const int other = random_.integer(0, k);
      const int swapped = order[k];
      order[k] = order[other];
      order[other] = swapped;
    }
    for (int k = 0; k < order.size(); ++k) {
      const int at = order[k];
      emit::result(b_, results_[at], k, place[at] >= 0 ? arguments_[place[at]] : -1);
    }
  }

  /// Arguments come back in each other's places: swapped, in a ring, through a reshape, or in their own.
  constexpr void exchange_arguments(ids& taken, detail::list<int>& place) {
    const int first = random_.integer(0, arguments_.size() - 1);
    ids ring;
    for (int n = 0; n < arguments_.size(); ++n) {
      const bool fits = type_of(arguments_[n]) == type_of(arguments_[first]) &&
                        shape_of(arguments_[n]).elements() == shape_of(arguments_[first]).elements();
      if (fits && ring.size() < 4) ring.push_back(n);
    }
    const int shift = random_.integer(0, ring.size());
    for (int k = 0; k < ring.size(); ++k) {
      // Some stay away: then what is overwritten may be read after all.
      if (random_.chance(0.15)) continue;
      const int from = arguments_[ring[(k + shift) % ring.size()]];
      const int to = ring[k];
      results_.push_back(emit::reshape(b_, from, shape_of(arguments_[to])));
      place.push_back(to);
      taken[to] = 1;
    }
  }

  /// New values of arguments that are made of the old ones, each read by the others too.
  constexpr void update_in_place(ids& taken, detail::list<int>& place) {
    const int models = arguments_.size();
    for (int n = 0; n < models; ++n) {
      const int argument = arguments_[n];
      if (taken[n] != 0 || !is_number(argument) || (smooth() && !is_floating(type_of(argument)))) continue;
      if (!random_.chance(0.5)) continue;
      int other = -1;
      for (int tries = 0; tries < 3 && other < 0; ++tries) {
        const int candidate = arguments_[random_.integer(0, models - 1)];
        if (same_kind(candidate, argument)) other = candidate;
      }
      if (other < 0) other = like(argument);
      const bool subtracts = random_.chance(0.5) && !is_natural(argument);
      const int step = subtracts ? emit::subtract(b_, other, argument) : emit::add(b_, argument, tame(other));
      results_.push_back(step);
      place.push_back(n);
      taken[n] = 1;
    }
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
  ids arguments_;
  ids indices_;
  /// The numbers of the running iterations of the loops being built.
  ids steps_;
  /// What gradients are by.
  ids parameters_;
  ids results_;
  derivatives derivatives_;
  detail::list<double> bound_;
};

/// A random program. Its data are `random_program_arguments` (random_graph.hpp), drawn from the same seed.
[[nodiscard]] constexpr graph random_program_graph(std::uint32_t seed, const program_options& options = {}) {
  return program_generator(seed, options).make();
}

/// Element `at` of argument `number`, which has this type: in [-1, 1], one of -2 to 2, or one of 0 to 2 if it
/// has no sign; indices are whole.
[[nodiscard]] constexpr double random_program_element(std::uint32_t seed, int number, std::int64_t at, dtype type,
                                                      numbers kind) {
  dice random((static_cast<std::uint64_t>(seed) << 32U) + (static_cast<std::uint64_t>(number) << 20U) +
              static_cast<std::uint64_t>(at) + 0x5bd1e995U);
  if (type == dtype::boolean) return random.integer(0, 1);
  if (facts_of(type).format == number_format::natural) return random.integer(0, 2);
  if (is_integer(type) || kind == numbers::whole) return random.integer(-2, 2);
  return random.real(-1, 1);
}

}  // namespace espalier::test
