// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/program/differentiate.hpp>
#include <espalier/testing/interpret.hpp>

#include <espalier/testing/random_program_graph.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

/// Graphs and data made at run time, for tests that compare one way of computing with another.
namespace espalier::test {

[[nodiscard]] inline extents extents_of(std::initializer_list<std::int64_t> sizes) {
  extents shape;
  for (const std::int64_t size : sizes) shape.append(size);
  return shape;
}

/// Random numbers that are the same on every platform: the standard's distributions are not. (Nor is the order in
/// which a call's arguments are evaluated, so no call draws two.)
class random_source {
 public:
  explicit random_source(std::uint32_t seed) : engine_(seed) {}

  /// A whole number in [low, high].
  [[nodiscard]] int integer(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<std::uint32_t>(high - low + 1));
  }
  [[nodiscard]] bool chance(double probability) { return real(0, 1) < probability; }
  [[nodiscard]] double real(double low, double high) {
    return low + (high - low) * (static_cast<double>(engine_()) + 0.5) / 4294967296.0;
  }
  template <class T> [[nodiscard]] const T& one_of(const std::vector<T>& from) {
    return from[static_cast<std::size_t>(integer(0, static_cast<int>(from.size()) - 1))];
  }

 private:
  std::mt19937 engine_;
};

[[nodiscard]] inline tensor_value random_tensor(random_source& random, const extents& shape, double low = -1,
                                                double high = 1) {
  tensor_value made{shape, std::vector<double>(static_cast<std::size_t>(shape.elements()))};
  for (double& x : made.data) x = random.real(low, high);
  return made;
}
[[nodiscard]] inline tensor_value random_integers(random_source& random, const extents& shape, int low, int high) {
  tensor_value made{shape, std::vector<double>(static_cast<std::size_t>(shape.elements()))};
  for (double& x : made.data) x = random.integer(low, high);
  return made;
}

/// Data for every argument of `random_program_graph(seed, ...)`.
[[nodiscard]] inline std::vector<tensor_value> random_program_arguments(graph_view g, std::uint32_t seed,
                                                                        numbers kind) {
  std::vector<tensor_value> made;
  for (int id = 0; id < g.size; ++id) {
    if (g[id].op != &ops::argument) continue;
    const auto number = static_cast<std::size_t>(attributes_of<border_attributes>(g[id]).number);
    if (number >= made.size()) made.resize(number + 1);
    tensor_value data{g[id].shape, {}};
    for (std::int64_t at = 0; at < data.shape.elements(); ++at) {
      data.data.push_back(random_program_element(seed, static_cast<int>(number), at, g[id].type, kind));
    }
    made[number] = data;
  }
  return made;
}

/// A program and data for its arguments.
struct random_program {
  builder code;
  std::vector<tensor_value> arguments;
  /// The floating-point arguments' instructions.
  std::vector<int> parameters;
};

/// Which kinds of instructions `random_graph` may use.
struct random_graph_options {
  int instructions = 30;
  bool loops = true;
  bool gradients = true;
  /// Ops that no partition rule splits at will (slices, joins, lookups) too.
  bool irregular = true;
  /// Not where gradients are compared with differences, which see through it.
  bool stop_gradients = true;
  /// Products, maxima and minima along dimensions, integer indices as arguments, and conversions.
  bool more_ops = false;
  std::vector<std::int64_t> sizes{1, 2, 3, 4, 4, 6};
  /// If this is a mesh, that share of the values is annotated with shardings on it.
  mesh_shape mesh{};
  double annotated = 0;
};

/// Makes random well-formed programs: elementwise ops, reductions, broadcasts, reshapes, transpositions, einsums,
/// slices, joins, lookups, softmax and nested scans, on tensors of rank 0 to 4, with dead code and repetitions in it;
/// optionally with its gradients by all parameters. Smooth where they are differentiated, and bounded.
class graph_generator {
 public:
  graph_generator(random_source& random, random_graph_options options)
      : random_(random), options_(std::move(options)) {}

  [[nodiscard]] random_program make() {
    program_ = {};
    values_.clear();
    const int parameters = random_.integer(2, 4);
    for (int i = 0; i < parameters; ++i) {
      const int id = add_argument(random_tensor(random_, random_shape(1, 3)), dtype::f32);
      program_.parameters.push_back(id);
      values_.push_back(id);
    }
    indices_.clear();
    for (int i = 0; options_.more_ops && i < 3; ++i) {
      // Some rows are outside of some tables.
      indices_.push_back(add_argument(random_integers(random_, random_shape(1, 2), 0, 7), dtype::i32));
    }
    add_ops(options_.instructions, 0);
    builder& b = program_.code;
    if (options_.mesh.rank > 0 && random_.chance(0.5)) {
      // Not the last value alone: what is computed before should not all be dead code.
      int sum = total(values_.back());
      for (int k = 0; k < 3; ++k) sum = emit::add(b, sum, total(any_value()));
      values_.push_back(sum);
    }
    const int loss = total(values_.back());
    emit::result(b, loss, 0);
    emit::result(b, values_.back(), 1);
    if (options_.gradients) {
      std::vector<int> gradients(program_.parameters.size());
      differentiate(b, loss, program_.parameters.data(), static_cast<int>(gradients.size()), gradients.data());
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        emit::result(b, gradients[i], 2 + static_cast<int>(i), random_.chance(0.5) ? program_.parameters[i] : -1);
      }
    }
    return program_;
  }

 private:
  [[nodiscard]] extents random_shape(int low_rank, int high_rank) {
    extents shape;
    const int rank = random_.integer(low_rank, high_rank);
    for (int d = 0; d < rank; ++d) shape.append(random_.one_of(options_.sizes));
    return shape;
  }

  [[nodiscard]] bool wants_annotation() { return options_.mesh.rank > 0 && random_.chance(options_.annotated); }

  /// Any sharding: axes in any order on any dimensions, open and closed ones, axes to stay replicated on.
  [[nodiscard]] int random_annotation(const extents& shape) {
    sharding made = sharding::whole(shape.rank);
    std::vector<int> axes;
    for (int a = 0; a < options_.mesh.rank; ++a) axes.push_back(a);
    while (!axes.empty()) {
      const auto at = static_cast<std::size_t>(random_.integer(0, static_cast<int>(axes.size()) - 1));
      const int axis = axes[at];
      axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(at));
      const int where = random_.integer(-2, shape.rank - 1);
      if (where >= 0) made.dim[where] = made.dim[where].with(axis);
      if (where == -2 && random_.chance(0.2)) made.replicated |= bit_of(axis);
    }
    for (int d = 0; d < shape.rank; ++d) {
      if (random_.chance(0.4)) made.open |= 1U << static_cast<unsigned>(d);
    }
    return program_.code.annotate(shape, made);
  }

  int add_argument(const tensor_value& data, dtype type) {
    const int id = emit::argument(program_.code, type, data.shape, static_cast<int>(program_.arguments.size()));
    if (wants_annotation()) program_.code[id].annotation = random_annotation(data.shape);
    program_.arguments.push_back(data);
    return id;
  }

  [[nodiscard]] int total(int id) {
    builder& b = program_.code;
    return emit::reduce_sum(b, id, (std::int64_t{1} << b[id].shape.rank) - 1);
  }

  [[nodiscard]] int any_value() {
    // Recent values more often, so that graphs become deep.
    const int count = static_cast<int>(values_.size());
    const int back =
        random_.chance(0.6) ? random_.integer(0, count < 4 ? count - 1 : 3) : random_.integer(0, count - 1);
    return values_[static_cast<std::size_t>(count - 1 - back)];
  }

  /// Another value made to have the shape of this one: broadcast from a sum, or the value itself where it fits.
  [[nodiscard]] int like(int model) {
    builder& b = program_.code;
    const int other = any_value();
    const extents shape = b[model].shape;
    return b[other].shape == shape ? other : emit::broadcast_to(b, emit::scale(b, total(other), 0.1), shape);
  }

  /// Keeps values bounded, so that differences stay meaningful however deep the graph is.
  [[nodiscard]] int bounded(int id) {
    builder& b = program_.code;
    return b.append(ops::tanh, b[id].type, b[id].shape, id);
  }

  void add_ops(int count, int depth) {
    for (int i = 0; i < count; ++i) {
      int made = options_.more_ops && random_.chance(0.15) ? add_another_op() : add_op(depth);
      if (made >= 0 && wants_annotation()) made = annotated(made);
      if (made >= 0 && program_.code[made].shape.rank <= 4 && program_.code[made].shape.elements() <= 400) {
        values_.push_back(made);
      }
    }
  }

  int add_op(int depth) {
    builder& b = program_.code;
    const int x = any_value();
    const extents shape = b[x].shape;
    const int dim = shape.rank > 0 ? random_.integer(0, shape.rank - 1) : 0;
    switch (random_.integer(0, options_.irregular ? 16 : 12)) {
      case 0: return emit::add(b, x, like(x));
      case 1: return emit::subtract(b, like(x), x);
      case 2: return emit::multiply(b, x, like(x));
      case 3: return b.append(ops::sigmoid, b[x].type, shape, x);
      case 4: {
        static const std::vector<const op_info*> functions{&ops::silu, &ops::gelu, &ops::sin, &ops::cos,
                                                           &ops::erf,  &ops::erfc, &ops::tanh};
        return b.append(*random_.one_of(functions), b[x].type, shape, x);
      }
      case 5: return bounded(emit::reduce_sum(b, x, random_.integer(0, (1 << shape.rank) - 1)));
      case 6: return broadcast(x);
      case 7: return transpose(x);
      case 8: return shape.rank > 0 ? emit::softmax(b, x, std::int64_t{1} << dim) : -1;
      case 9: return reshape(x);
      case 10: return einsum(x);
      case 11: {
        if (!options_.loops || depth >= 2) return -1;
        const int kind = random_.integer(0, 4);
        return kind < 3 ? scan(depth) : kind == 3 ? until(depth) : branches(depth);
      }
      case 12: return choice(x);
      case 13: return slice(x, dim);
      case 14: return shape.rank > 0 ? concat(x, dim) : -1;
      case 15: return lookup(x, dim);
      default: return options_.stop_gradients ? b.append(ops::stop_gradient, b[x].type, shape, x) : -1;
    }
  }

  int annotated(int id) {
    const op_info& op = random_.chance(0.85) ? ops::shard : ops::reshard;
    return emit::annotated(program_.code, op, id, random_annotation(program_.code[id].shape));
  }

  int add_another_op() {
    builder& b = program_.code;
    const int x = any_value();
    const extents shape = b[x].shape;
    const auto kind = random_.one_of(std::vector<reduction>{reduction::prod, reduction::max, reduction::min});
    const int dim = shape.rank > 0 ? random_.integer(0, shape.rank - 1) : 0;
    switch (random_.integer(0, 6)) {
      case 0: return bounded(emit::reduce(b, kind, x, random_.integer(0, (1 << shape.rank) - 1)));
      case 1: {
        if (shape.rank == 0) return -1;
        const int rows = random_.one_of(indices_);
        return emit::gather(b, x, rows, dim);
      }
      case 2: {
        if (shape.rank == 0) return -1;
        const int rows = random_.one_of(indices_);
        const int found = emit::gather(b, x, rows, dim);
        return b[found].shape.elements() > 400 ? -1 : emit::scatter_add(b, shape, rows, found, dim);
      }
      case 3: {
        if (shape.rank == 0) return -1;
        // A sum of integers, exact in any order.
        const int index = emit::iota(b, dtype::i32, shape, dim);
        // A product of indices would be too large for i32.
        const reduction combining = random_.chance(0.5) || kind == reduction::prod ? reduction::sum : kind;
        const int sum = emit::reduce(b, combining, index, random_.integer(1, (1 << shape.rank) - 1));
        return bounded(emit::scale(b, emit::convert(b, sum, dtype::f32), 0.01));
      }
      case 4: {
        if (shape.rank == 0) return -1;
        const int index = emit::convert(b, emit::iota(b, dtype::i32, shape, dim), dtype::f32);
        const int hit = emit::compare(b, ops::less_equal, index, any_fixed(shape));
        return emit::keep_where(b, hit, x);
      }
      case 5: return emit::divide(b, x, emit::add(b, b.append(ops::exp, b[x].type, shape, x), like(x)));
      default: {
        if (shape.rank == 0) return -1;
        const int wide = shape[dim] < 20 ? static_cast<int>(shape[dim]) * 2 + random_.integer(0, 2) : -1;
        if (wide < 0) return -1;
        const int start = random_.integer(0, 1);
        return emit::pad(b, x, dim, start, wide, random_.integer(1, 2));
      }
    }
  }

  int choice(int x) {
    builder& b = program_.code;
    const int condition = emit::compare(b, ops::less, any_fixed(b[x].shape), x);
    return emit::select(b, condition, like(x), x);
  }

  /// A constant far from where values change their order under a small step.
  [[nodiscard]] int any_fixed(extents shape) {
    return emit::constant(program_.code, dtype::f32, shape, random_.one_of(std::vector<double>{-3, 3}));
  }

  int broadcast(int x) {
    builder& b = program_.code;
    extents shape = b[x].shape;
    if (shape.rank > 3) return -1;
    extents larger;
    const int at = random_.integer(0, shape.rank);
    for (int d = 0; d <= shape.rank; ++d) {
      if (d == at) larger.append(random_.integer(1, 4));
      if (d < shape.rank) larger.append(shape[d]);
    }
    return emit::broadcast_along(b, x, larger, std::int64_t{1} << at);
  }

  int transpose(int x) {
    builder& b = program_.code;
    std::vector<int> left;
    for (int d = 0; d < b[x].shape.rank; ++d) left.push_back(d);
    axis_list order;
    while (!left.empty()) {
      const auto at = static_cast<std::size_t>(random_.integer(0, static_cast<int>(left.size()) - 1));
      order = order.with(left[at]);
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return emit::transpose(b, x, order);
  }

  int reshape(int x) {
    builder& b = program_.code;
    std::int64_t rest = b[x].shape.elements();
    extents shape;
    for (const std::int64_t factor : {2, 3, 4}) {
      if (rest % factor == 0 && random_.chance(0.6)) {
        shape.append(factor);
        rest /= factor;
      }
    }
    shape.append(rest);
    return emit::reshape(b, x, shape);
  }

  /// The product with another value over their common sizes, or with itself.
  int einsum(int x) {
    builder& b = program_.code;
    const int y = any_value();
    einsum_term left;
    einsum_term right;
    einsum_term result;
    char next = 'a';
    for (int d = 0; d < b[x].shape.rank; ++d) left.append(next++);
    for (int d = 0; d < b[y].shape.rank; ++d) {
      char letter = next;
      for (int e = 0; e < b[x].shape.rank; ++e) {
        if (b[x].shape[e] == b[y].shape[d] && !right.contains(left[e]) && random_.chance(0.7)) letter = left[e];
      }
      if (letter == next) ++next;
      right.append(letter);
    }
    for (char letter = 'a'; letter < next; ++letter) {
      if (random_.chance(0.5) && result.size() < 4) result.append(letter);
    }
    return bounded(emit::einsum(b, x, left, y, right, result));
  }

  int slice(int x, int dim) {
    builder& b = program_.code;
    if (b[x].shape.rank == 0) return -1;
    const auto extent = static_cast<int>(b[x].shape[dim]);
    const int start = random_.integer(0, extent - 1);
    const int step = random_.integer(1, 2);
    return emit::slice(b, x, dim, start, (extent - start + step - 1) / step, step);
  }

  int concat(int x, int dim) {
    std::vector<int> parts;
    for (int k = random_.integer(2, 8); k > 0; --k) parts.push_back(random_.chance(0.5) ? x : like(x));
    return emit::concat(program_.code, parts.data(), static_cast<int>(parts.size()), dim);
  }

  int lookup(int x, int dim) {
    builder& b = program_.code;
    if (b[x].shape.rank == 0) return -1;
    const int rows = emit::iota(b, dtype::i32, extents_of({2, 3}), 1);
    const int found = emit::gather(b, x, rows, dim);
    return b[found].shape.rank <= 4 ? found : -1;
  }

  /// Two carries of which the second may become the first, a stacked argument and a stacked result; the body uses
  /// values from outside, and may hold another scan.
  int scan(int depth) {
    builder& b = program_.code;
    const int count = random_.integer(1, 3);
    const int first = any_value();
    const int second = like(first);
    const int layer = any_value();
    if (b[layer].shape.rank > 3) return -1;
    extents stacked;
    stacked.append(count);
    for (int d = 0; d < b[layer].shape.rank; ++d) stacked.append(b[layer].shape[d]);
    const int layers = emit::broadcast_along(b, layer, stacked, 1);
    const std::vector<int> outside = values_;
    const bool recompute = random_.chance(0.5);
    emit::region_begin(b, count, random_.chance(0.3), recompute);
    const int one = emit::region_parameter(b, first);
    const int two = emit::region_parameter(b, second);
    values_.push_back(emit::loop_slice(b, layers));
    values_.push_back(two);
    values_.push_back(one);
    add_ops(random_.integer(2, 6), depth + 1);
    const int output = bounded(emit::add(b, values_.back(), like(values_.back())));
    const int next_one = random_.chance(0.3) ? two : bounded(emit::add(b, one, like(one)));
    const int next_two = random_.chance(0.3) ? one : bounded(emit::multiply(b, two, like(two)));
    const int passed_one = emit::region_yield(b, one, next_one);
    const int passed_two = emit::region_yield(b, two, next_two);
    emit::region_end(b);
    values_ = outside;
    const int last_one = emit::region_result(b, passed_one);
    values_.push_back(last_one);
    if (random_.chance(0.6)) values_.push_back(emit::region_result(b, passed_two));
    if (b[output].shape.rank < 4 && random_.chance(0.6)) values_.push_back(emit::loop_stack(b, output));
    return -1;
  }

  /// Whether the values of a tensor are large, or whole numbers say so: what decides about a region.
  int decision() {
    builder& b = program_.code;
    if (random_.chance(0.3)) {
      const int number = emit::reduce_sum(b, emit::iota(b, dtype::i32, extents_of({3}), 0), 1);
      return emit::compare(b, ops::less, emit::constant_like(b, number, random_.integer(1, 4)), number);
    }
    const int sum = b.append(ops::sin, dtype::f32, extents{}, emit::scale(b, total(any_value()), 0.7));
    return emit::compare(b, ops::less, emit::constant(b, dtype::f32, extents{}, -0.41234), sum);
  }

  /// Two carries, as those of `scan`, until a condition is false.
  int until(int depth) {
    builder& b = program_.code;
    const int first = any_value();
    const int second = like(first);
    const std::vector<int> outside = values_;
    const int zero = emit::constant(b, dtype::i32, extents{}, 0);
    const int enters = decision();
    emit::region_begin(b, region_attributes{.iterations = random_.integer(1, 4), .kind = region_kind::until_or_at_most},
                       enters);
    const int counter = emit::region_parameter(b, zero);
    const int one = emit::region_parameter(b, first);
    const int two = emit::region_parameter(b, second);
    values_.push_back(two);
    values_.push_back(one);
    add_ops(random_.integer(2, 6), depth + 1);
    const int next_one = random_.chance(0.3) ? two : bounded(emit::add(b, one, like(one)));
    const int next_two = random_.chance(0.3) ? one : bounded(emit::multiply(b, two, like(two)));
    values_.push_back(next_one);
    const int goes_on = decision();
    const int counted = emit::region_yield(b, counter, emit::add(b, counter, emit::constant_like(b, counter, 1)));
    const int passed_one = emit::region_yield(b, one, next_one);
    const int passed_two = emit::region_yield(b, two, next_two);
    emit::region_end(b, goes_on);
    values_ = outside;
    emit::region_result(b, counted);
    values_.push_back(emit::region_result(b, passed_one));
    if (random_.chance(0.6)) values_.push_back(emit::region_result(b, passed_two));
    return -1;
  }

  /// One of two or three values.
  int branches(int depth) {
    builder& b = program_.code;
    const std::vector<int> outside = values_;
    int result = any_value();
    int which = emit::convert(b, decision(), dtype::i32);
    if (random_.chance(0.5)) which = emit::add(b, which, emit::convert(b, decision(), dtype::i32));
    for (int number = 0; number < 3; ++number) {
      emit::region_begin(b, region_attributes{.iterations = 1, .kind = region_kind::branch}, which, number);
      const int carry = emit::region_parameter(b, result);
      if (random_.chance(0.3)) values_.push_back(carry);
      add_ops(random_.integer(1, 5), depth + 1);
      const int passed = emit::region_yield(b, carry, like(carry));
      emit::region_end(b);
      values_ = outside;
      result = emit::region_result(b, passed);
    }
    values_.push_back(result);
    return -1;
  }

  random_source& random_;
  random_graph_options options_;
  random_program program_;
  std::vector<int> values_;
  std::vector<int> indices_;
};

[[nodiscard]] inline random_program random_graph(random_source& random, random_graph_options options = {}) {
  return graph_generator(random, std::move(options)).make();
}

}  // namespace espalier::test
