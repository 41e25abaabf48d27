// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/program/differentiate.hpp>
#include <espalier/testing/random/dice.hpp>
#include <espalier/testing/regret/layouts.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

/// Small random programs whose arguments and result have given layouts: the passes choose the layouts in between.
namespace espalier::test {

/// The operators that a program is made of: `outer_products` and `broadcasts` have those of the kinds before them, all
/// others those of `products`.
enum class operator_kind : std::uint8_t {
  /// Contracting products, sums, additions, tanh, transpositions.
  products,
  /// Also products without a common dimension: "a,b->ab", "ab,c->abc".
  outer_products,
  /// Also additions of tensors of lower rank, and of two tensors along different dimensions.
  broadcasts,
  /// `products` with a scalar loss, and its gradients by all arguments.
  gradients,
  /// `products` and slices, rolls, differences of neighbours and pads.
  windows,
  /// `products` and rows of a table by indices that are an argument, and sums of rows by such indices.
  gathers,
  /// `products`, of which one is a loop whose body has two or three operators.
  loops,
};

struct layout_program_options {
  operator_kind kind = operator_kind::products;
  mesh_shape mesh{};
  /// The extents of dimensions; a program takes two or three of them.
  std::vector<int> sizes{128, 256, 512, 1024};
};

/// Makes programs of 3 or 4 operators over 2 or 3 arguments.
class layout_program_generator {
 public:
  layout_program_generator(std::uint64_t seed, layout_program_options options)
      : random_(seed), options_(static_cast<layout_program_options&&>(options)) {}

  /// A program in which everything is used.
  [[nodiscard]] graph make() {
    while (!attempt()) {}
    return static_cast<graph&&>(b_.result());
  }

 private:
  [[nodiscard]] bool attempt() {
    b_ = builder{};
    values_.clear();
    uses_.clear();
    sizes_.clear();
    for (int n = random_.integer(2, 3); n > 0; --n) sizes_.push_back(options_.sizes[any(options_.sizes)]);
    const int arguments = random_.integer(2, 3);
    for (int n = 0; n < arguments; ++n) add_argument(n);
    indices_ = -1;
    if (options_.kind == operator_kind::gathers) add_indices(arguments);
    const int operators = random_.integer(3, 4);
    const int loop_at = options_.kind == operator_kind::loops ? random_.integer(0, operators - 1) : -1;
    for (int made = 0; made < operators; ++made) {
      if (!(made == loop_at ? add_loop() : add_operators(1))) return false;
    }
    // All but the last are used.
    for (std::size_t n = 0; n + 1 < values_.size(); ++n) {
      if (uses_[n] == 0) return false;
    }
    if (indices_ >= 0 && !indices_used_) return false;
    const int last = values_.back();
    if (options_.kind == operator_kind::gradients) {
      add_gradients(last, arguments);
    } else {
      const int annotation = b_.annotate(b_[last].shape, any_layout(b_[last].shape.rank));
      emit::result(b_, emit::annotated(b_, ops::shard, last, annotation), 0);
    }
    return true;
  }

  /// Appends operators that are found in a few attempts each.
  [[nodiscard]] bool add_operators(int count) {
    for (int tries = 0; count > 0; ++tries) {
      if (tries == 20) return false;
      const int value = add_operator();
      if (value < 0) continue;
      add(value);
      tries = 0;
      --count;
    }
    return true;
  }

  template <class T> [[nodiscard]] std::size_t any(const std::vector<T>& of) {
    return static_cast<std::size_t>(random_.integer(0, static_cast<int>(of.size()) - 1));
  }
  [[nodiscard]] sharding any_layout(int rank) {
    const std::vector<sharding> all = all_layouts(options_.mesh, rank);
    return all[any(all)];
  }
  void add(int value) {
    values_.push_back(value);
    uses_.push_back(0);
  }
  void add_argument(int number) {
    extents shape;
    const bool has_vectors =
        options_.kind == operator_kind::outer_products || options_.kind == operator_kind::broadcasts;
    const int rank = random_.chance(has_vectors ? 0.5 : 0.2) ? 1 : 2;
    for (int d = 0; d < rank; ++d) shape.append(sizes_[any(sizes_)]);
    const int id = emit::argument(b_, dtype::f32, shape, number);
    b_[id].annotation = b_.annotate(shape, any_layout(rank));
    add(id);
  }

  /// One of the values, most often one that is not used yet.
  [[nodiscard]] std::size_t any_value() {
    std::vector<std::size_t> unused;
    for (std::size_t n = 0; n < values_.size(); ++n) {
      if (uses_[n] == 0) unused.push_back(n);
    }
    return unused.empty() || random_.chance(0.3) ? any(values_) : unused[any(unused)];
  }
  [[nodiscard]] const extents& shape(std::size_t n) const { return b_[values_[n]].shape; }
  int used(std::size_t n) {
    ++uses_[n];
    return values_[n];
  }

  int add_operator() {
    switch (any_operator()) {
      case 0:
      case 1: return contraction();
      case 2: return sum();
      case 3: return addition();
      case 4: {
        const std::size_t x = any_value();
        return b_.append(ops::tanh, dtype::f32, shape(x), used(x));
      }
      case 5: {
        const std::size_t x = any_value();
        return shape(x).rank < 2 ? -1 : emit::transpose(b_, used(x), any_order(shape(x).rank));
      }
      case 6: return outer_product();
      case 7: return added_along();
      case 8: return added_across();
      case 9: return slice();
      case 10: return roll();
      case 11: return difference_of_neighbours();
      case 12: return pad();
      case 13: return gather();
      default: return scatter();
    }
  }
  [[nodiscard]] int any_operator() {
    using enum operator_kind;
    const bool is_special = random_.chance(0.5);
    if (is_special && options_.kind == windows) return random_.integer(9, 12);
    if (is_special && options_.kind == gathers) return random_.integer(13, 14);
    return random_.integer(0, options_.kind == outer_products ? 6 : options_.kind == broadcasts ? 8 : 5);
  }

  [[nodiscard]] axis_list any_order(int rank) {
    axis_list order;
    while (order.size() < rank) {
      const int d = random_.integer(0, rank - 1);
      if (!order.contains(d)) order = order.with(d);
    }
    for (int d = 0; d < rank; ++d) {
      if (order[d] != d) return order;
    }
    return any_order(rank);
  }

  int contraction() {
    const std::size_t x = any_value();
    const std::size_t y = any_value();
    const extents left_shape = shape(x);
    const extents right_shape = shape(y);
    if (left_shape.rank + right_shape.rank < 3 || left_shape.rank + right_shape.rank > 5) return -1;
    const int d = random_.integer(0, left_shape.rank - 1);
    const int e = random_.integer(0, right_shape.rank - 1);
    if (left_shape[d] != right_shape[e]) return -1;
    return product(x, y, d, e);
  }
  int outer_product() {
    const std::size_t x = any_value();
    const std::size_t y = any_value();
    if (shape(x).rank + shape(y).rank > 3) return -1;
    return product(x, y, -1, -1);
  }
  /// The product over dimension `d` of x and `e` of y, or over none; the result's dimensions in any order.
  int product(std::size_t x, std::size_t y, int d, int e) {
    einsum_term left;
    einsum_term right;
    std::vector<char> kept;
    char next = 'a';
    for (int k = 0; k < shape(x).rank; ++k) {
      left.append(next);
      if (k != d) kept.push_back(next);
      ++next;
    }
    for (int k = 0; k < shape(y).rank; ++k) {
      right.append(k == e ? left[d] : next);
      if (k != e) kept.push_back(next++);
    }
    einsum_term result;
    const bool is_ordered = random_.chance(0.7);
    while (!kept.empty()) {
      const std::size_t at = is_ordered ? 0 : any(kept);
      result.append(kept[at]);
      kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(at));
    }
    const int a = used(x);
    const int b = used(y);
    return emit::einsum(b_, a, left, b, right, result);
  }

  int sum() {
    const std::size_t x = any_value();
    const int rank = shape(x).rank;
    return rank < 2 ? -1 : emit::reduce_sum(b_, used(x), std::int64_t{1} << random_.integer(0, rank - 1));
  }
  int addition() {
    const std::size_t x = any_value();
    const std::size_t y = any_value();
    if (x == y || !(shape(x) == shape(y))) return -1;
    const int a = used(x);
    const int b = used(y);
    return emit::add(b_, a, b);
  }
  /// The sum, difference or product of values of one shape.
  int combined(int x, int y) {
    switch (random_.integer(0, 2)) {
      case 0: return emit::add(b_, x, y);
      case 1: return emit::subtract(b_, x, y);
      default: return emit::multiply(b_, x, y);
    }
  }
  /// A value and one of lower rank, whose dimensions are some of the first one's: a bias.
  int added_along() {
    const std::size_t x = any_value();
    const std::size_t y = any_value();
    const extents large = shape(x);
    const extents small = shape(y);
    if (small.rank >= large.rank || small.rank == 0) return -1;
    axis_list targets;
    for (int d = 0; d < large.rank && targets.size() < small.rank; ++d) {
      const bool may_wait = large.rank - d > small.rank - targets.size();
      if (large[d] == small[targets.size()] && !(may_wait && random_.chance(0.5))) targets = targets.with(d);
    }
    if (targets.size() < small.rank) return -1;
    const int a = used(x);
    const int b = used(y);
    return combined(a, emit::broadcast(b_, b, large, targets));
  }
  /// Two values, each along dimensions of its own: all differences of the elements of two vectors.
  int added_across() {
    const std::size_t x = any_value();
    const std::size_t y = any_value();
    const extents first = shape(x);
    const extents second = shape(y);
    if (first.rank == 0 || second.rank == 0 || first.rank + second.rank > 3) return -1;
    extents large;
    axis_list targets;
    axis_list others;
    for (int d = 0; d < first.rank + second.rank; ++d) {
      const bool is_first = others.size() == second.rank || (targets.size() < first.rank && random_.chance(0.5));
      large.append(is_first ? first[targets.size()] : second[others.size()]);
      (is_first ? targets : others) = (is_first ? targets : others).with(d);
    }
    const int a = emit::broadcast(b_, used(x), large, targets);
    const int b = emit::broadcast(b_, used(y), large, others);
    return combined(a, b);
  }

  int slice() {
    const std::size_t x = any_value();
    const int d = random_.integer(0, shape(x).rank - 1);
    const auto extent = static_cast<int>(shape(x)[d]);
    const int size = random_.chance(0.5) ? extent / 2 : extent - random_.integer(1, 3);
    return emit::slice(b_, used(x), d, random_.integer(0, extent - size), size);
  }
  int roll() {
    const std::size_t x = any_value();
    const int d = random_.integer(0, shape(x).rank - 1);
    return emit::roll(b_, used(x), d, random_.integer(1, 3) * (random_.chance(0.5) ? 1 : -1));
  }
  int difference_of_neighbours() {
    const std::size_t x = any_value();
    const int d = random_.integer(0, shape(x).rank - 1);
    const std::int64_t extent = shape(x)[d];
    const int value = used(x);
    const int after = emit::slice(b_, value, d, 1, extent - 1);
    return emit::subtract(b_, after, emit::slice(b_, value, d, 0, extent - 1));
  }
  int pad() {
    const std::size_t x = any_value();
    const int d = random_.integer(0, shape(x).rank - 1);
    const int before = random_.integer(0, 2);
    const std::int64_t extent = shape(x)[d] + before + random_.integer(1, 2);
    return emit::pad(b_, used(x), d, before, extent);
  }

  void add_indices(int number) {
    extents shape;
    shape.append(sizes_[any(sizes_)]);
    indices_ = emit::argument(b_, dtype::i32, shape, number);
    b_[indices_].annotation = b_.annotate(shape, any_layout(1));
    indices_used_ = false;
  }
  int gather() {
    const std::size_t x = any_value();
    indices_used_ = true;
    return emit::gather(b_, used(x), indices_, random_.integer(0, shape(x).rank - 1));
  }
  /// Rows are added to as many rows as one of the program's extents says.
  int scatter() {
    const std::size_t x = any_value();
    const extents rows = shape(x);
    const int d = random_.integer(0, rows.rank - 1);
    if (rows[d] != b_[indices_].shape[0]) return -1;
    indices_used_ = true;
    extents table = rows;
    table[d] = sizes_[any(sizes_)];
    return emit::scatter_add(b_, table, indices_, used(x), d);
  }

  /// A value goes through a few iterations, each of two or three operators that may read all values before the loop.
  [[nodiscard]] bool add_loop() {
    const std::size_t x = any_value();
    const extents carried = shape(x);
    const int start = used(x);
    emit::region_begin(b_, random_.integer(2, 5), false, false);
    const int carry = emit::region_parameter(b_, start);
    add(carry);
    const std::size_t first = values_.size() - 1;
    if (!add_operators(random_.integer(2, 3))) return false;
    // The last value of the carry's shape is passed on, and all of the body is used for it.
    const std::size_t last = values_.size() - 1;
    if (!(shape(last) == carried)) return false;
    ++uses_[last];
    for (std::size_t n = first; n <= last; ++n) {
      if (uses_[n] == 0) return false;
    }
    const int passed = emit::region_yield(b_, carry, values_[last]);
    emit::region_end(b_);
    values_.resize(first);
    uses_.resize(first);
    add(emit::region_result(b_, passed));
    return true;
  }

  void add_gradients(int last, int arguments) {
    const int terms = random_.chance(0.3) ? last : emit::multiply(b_, last, last);
    const int loss = emit::reduce_sum(b_, terms, (std::int64_t{1} << b_[last].shape.rank) - 1);
    std::vector<int> gradients(static_cast<std::size_t>(arguments));
    differentiate(b_, loss, values_.data(), arguments, gradients.data());
    emit::result(b_, loss, 0);
    for (int n = 0; n < arguments; ++n) emit::result(b_, gradients[static_cast<std::size_t>(n)], n + 1);
  }

  dice random_;
  layout_program_options options_;
  builder b_;
  /// Arguments and operators' values, and how often each is used.
  std::vector<int> values_;
  std::vector<int> uses_;
  std::vector<int> sizes_;
  /// An argument of row numbers, or -1.
  int indices_ = -1;
  bool indices_used_ = false;
};

}  // namespace espalier::test
