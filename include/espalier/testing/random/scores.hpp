// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/losses.hpp>
#include <espalier/tensor/core/ops/broadcast.hpp>
#include <espalier/tensor/core/program/differentiate.hpp>
#include <espalier/testing/random/annotations.hpp>

#include <cstdint>

/// Random programs with scores of rows and keys, which are worked on a few rows at a time.
namespace espalier::test {

/// Makes programs like attention: a product of rows and keys, steps on its scores, products that read them, gradients.
/// Scores are as many as row regions need (partition/row_regions.hpp), sizes few multiples of anything.
class score_program_generator : private random_annotations {
 public:
  constexpr score_program_generator(std::uint64_t seed, const program_options& options)
      : random_annotations(seed, options) {}

  constexpr graph make() {
    choose_sizes();
    einsum_term scores = letters_of(items_);
    scores.append('r');
    scores.append('k');
    const int x = any_argument(with(items_, "rf"));
    const int y = any_argument(with(own_items(), "kf"));
    keys_ = y;
    int s = product(x, y, scores);
    for (int n = random_.integer(0, 3); n > 0; --n) s = step(s);
    if (random_.chance(0.25)) lose(s);
    if (random_.chance(0.9)) s = normalised(s);
    if (random_.chance(0.2)) s = step(s);
    for (int n = random_.integer(1, 3); n > 0; --n) read(s, scores);
    if (random_.chance(0.15)) results_.push_back(emit::reduce_sum(b_, s, row_dims()));
    if (random_.chance(0.15)) results_.push_back(emit::reduce_sum(b_, s, key_dims()));
    if (random_.chance(0.05)) results_.push_back(s);
    if (random_.chance(options_.gradients)) add_gradients();
    for (int n = 0; n < results_.size(); ++n) emit::result(b_, results_[n], n);
    detail::mark_lone_heads(b_, 0, b_.size(), random_.chance(0.5));
    return static_cast<graph&&>(b_.result());
  }

 private:
  struct text {
    char letter[8]{};
    int size = 0;
    constexpr void append(char one) { letter[size++] = one; }
  };

  constexpr void choose_sizes() {
    keys_size_ = random_.one_of({33, 64, 100, 143, 192, 257, 320, 512, 701, 1100});
    std::int64_t devices = 1;
    for (int a = 0; a < options_.mesh.rank; ++a) devices *= options_.mesh.size[a];
    const std::int64_t scores = detail::least_scores * (random_.chance(0.7) ? devices : 1);
    row_size_ = (scores + keys_size_ - 1) / keys_size_ + random_.integer(0, 7);
    const int items = devices > 1 ? random_.integer(0, 1) : random_.integer(0, 2);
    for (int n = 0; n < items; ++n) {
      items_.append(static_cast<char>('a' + n));
      item_size_[n] = random_.integer(1, 3);
    }
    features_ = random_.integer(1, 7);
    values_size_ = random_.integer(1, 9);
  }
  [[nodiscard]] constexpr std::int64_t size_of_letter(char letter) const {
    switch (letter) {
      case 'r': return row_size_;
      case 'k': return keys_size_;
      case 'f': return features_;
      case 'v': return values_size_;
      default: return item_size_[letter - 'a'];
    }
  }
  [[nodiscard]] static constexpr einsum_term letters_of(const text& of) {
    einsum_term made;
    for (int n = 0; n < of.size; ++n) made.append(of.letter[n]);
    return made;
  }
  /// Letters in any order, the last one mostly where it is.
  constexpr einsum_term with(text first, const char* more) {
    for (; *more != 0; ++more) first.append(*more);
    const int moved = random_.chance(0.8) ? first.size - 1 : first.size;
    for (int n = moved - 1; n > 0; --n) {
      const int other = random_.integer(0, n);
      const char letter = first.letter[n];
      first.letter[n] = first.letter[other];
      first.letter[other] = letter;
    }
    return letters_of(first);
  }
  /// Of keys and values: those of all items, or of some, or of none (they are shared).
  constexpr text own_items() {
    text own;
    const bool shares_all = random_.chance(0.3);
    for (int n = 0; n < items_.size; ++n) {
      if (!shares_all && random_.chance(0.8)) own.append(items_.letter[n]);
    }
    return own;
  }
  [[nodiscard]] constexpr extents shape_of_term(const einsum_term& term) const {
    extents shape;
    for (int d = 0; d < term.size(); ++d) shape.append(size_of_letter(term[d]));
    return shape;
  }

  constexpr int any_argument(const einsum_term& term) {
    const extents shape = shape_of_term(term);
    int id = emit::argument(b_, options_.float_type, shape, arguments_.size());
    arguments_.push_back(id);
    if (wants_annotation()) id = emit::annotated(b_, ops::shard, id, any_annotation(shape));
    term_.resize(id + 1);
    term_[id] = term;
    return id;
  }
  /// A product in the type of its operands, or, of sixteen bits, in what their sums are kept in.
  constexpr int product(int x, int y, const einsum_term& result) {
    const dtype wide = facts_of(b_[x].type).accumulate;
    const dtype type = size_of(b_[x].type) == 2 && random_.chance(0.5) ? wide : b_[x].type;
    return emit::einsum(b_, x, term_[x], y, term_[y], result, type);
  }

  // --- steps on scores
  // ------------------------------------------------------------------------------------------------

  [[nodiscard]] constexpr std::int64_t key_dims() const { return std::int64_t{1} << (items_.size + 1); }
  [[nodiscard]] constexpr std::int64_t row_dims() const { return std::int64_t{1} << items_.size; }

  constexpr int step(int s) {
    const extents shape = shape_of(s);
    const dtype type = type_of(s);
    switch (random_.integer(0, 5)) {
      case 0: return emit::scale(b_, s, 0.35);
      case 1: return b_.append(ops::tanh, type, shape, s);
      case 2: return emit::add(b_, s, spread(bias(), s));
      case 3: return emit::multiply(b_, s, spread(bias(), s));
      case 4: {
        // A number of each row: rounding might choose another one.
        if (options_.float_type != dtype::f64) return s;
        const int least = emit::reduce(b_, reduction::min, s, key_dims());
        return emit::subtract(b_, s, emit::broadcast_along(b_, least, shape, key_dims()));
      }
      default: {
        const int row = emit::iota(b_, dtype::i32, shape, items_.size);
        const int key = emit::iota(b_, dtype::i32, shape, items_.size + 1);
        const int from = emit::add(b_, row, emit::constant_like(b_, row, random_.integer(0, 40)));
        const bool sees_before = random_.chance(0.7);
        const int seen = emit::compare(b_, ops::less_equal, sees_before ? key : from, sees_before ? from : key);
        return emit::select(b_, seen, s, emit::constant_like(b_, s, random_.chance(0.7) ? -30.0 : 0.0));
      }
    }
  }
  /// An argument with some of the letters of scores, at the end one of a row or a key.
  constexpr int bias() {
    text of;
    for (int n = 0; n < items_.size; ++n) {
      if (random_.chance(0.5)) of.append(items_.letter[n]);
    }
    const int which = random_.integer(0, 4);
    if (which < 3) of.append('r');
    if (which > 1 || which == 0) of.append('k');
    return any_argument(letters_of(of));
  }
  constexpr int spread(int a, int like) {
    const einsum_term term = term_[a];
    const int converted = emit::convert(b_, a, type_of(like));
    axis_list targets;
    for (int d = 0; d < term.size(); ++d) {
      const int item = term[d] - 'a';
      targets = targets.with(term[d] == 'r' ? items_.size : term[d] == 'k' ? items_.size + 1 : item);
    }
    return emit::broadcast(b_, converted, shape_of(like), targets);
  }
  constexpr int normalised(int s) {
    const extents shape = shape_of(s);
    const dtype type = type_of(s);
    switch (random_.integer(0, 4)) {
      case 0: {
        const int squares = emit::mean_over(b_, emit::widen(b_, emit::multiply(b_, s, s)), key_dims());
        const int most = emit::add(b_, squares, emit::constant_like(b_, squares, 1));
        const int spread_out = emit::broadcast_along(b_, emit::convert(b_, most, type), shape, key_dims());
        return emit::divide(b_, s, spread_out);
      }
      case 1: {
        const int raised = b_.append(ops::exp, type, shape, b_.append(ops::tanh, type, shape, s));
        const int total = emit::reduce_sum(b_, raised, key_dims());
        return emit::divide(b_, raised, emit::broadcast_along(b_, total, shape, key_dims()));
      }
      default: return emit::softmax(b_, s, key_dims());
    }
  }

  /// The cross entropy of each row, whose target follows from its number: a second reader, which waits for the rows'
  /// maxima and sums as a softmax does.
  constexpr void lose(int s) {
    const extents rows = detail::reduced_shape(shape_of(s), key_dims(), false);
    const int row = emit::iota(b_, dtype::i32, rows, items_.size);
    const int spread_out = emit::multiply(b_, row, emit::constant_like(b_, row, 7));
    const int target = b_.append(ops::remainder, dtype::i32, rows, spread_out,
                                 emit::constant_like(b_, row, static_cast<double>(keys_size_)));
    const int loss = emit::cross_entropy(b_, s, target);
    results_.push_back(loss);
    read_.push_back(loss);
  }

  /// A product that keeps rows, or sums over them.
  constexpr void read(int s, const einsum_term& scores) {
    term_.resize(b_.size());
    if (type_of(s) != options_.float_type && random_.chance(0.5)) s = emit::convert(b_, s, options_.float_type);
    term_.resize(s + 1);
    term_[s] = scores;
    int y = -1;
    einsum_term result;
    if (random_.chance(0.25)) {
      y = any_argument(with(items_, "rv"));
      result = with(own_items(), "kv");
    } else if (random_.chance(0.1)) {
      y = keys_;
      result = with(items_, "rf");
    } else {
      y = any_argument(with(own_items(), "kv"));
      result = with(items_, "rv");
    }
    if (type_of(s) != type_of(y)) y = converted(y, type_of(s));
    const int made = random_.chance(0.5) ? product(s, y, result) : product(y, s, result);
    results_.push_back(made);
    read_.push_back(made);
  }
  constexpr int converted(int a, dtype type) {
    const int made = emit::convert(b_, a, type);
    const einsum_term term = term_[a];
    term_.resize(made + 1);
    term_[made] = term;
    return made;
  }

  constexpr void add_gradients() {
    int loss = -1;
    for (const int one : read_) {
      const int wide = emit::convert(b_, one, dtype::f64);
      const int square = emit::mean_over(b_, emit::multiply(b_, wide, wide), all_of(shape_of(one)));
      loss = loss < 0 ? square : emit::add(b_, loss, square);
    }
    detail::list<int> gradients(arguments_.size(), -1);
    (void)differentiate(b_, loss, arguments_.data(), arguments_.size(), gradients.data());
    for (const int one : gradients) results_.push_back(one);
  }

  text items_;
  std::int64_t item_size_[2]{};
  std::int64_t row_size_ = 0;
  std::int64_t keys_size_ = 0;
  std::int64_t features_ = 0;
  std::int64_t values_size_ = 0;
  int keys_ = -1;
  /// By value: the letters of its dimensions.
  detail::list<einsum_term> term_;
  detail::list<int> arguments_;
  detail::list<int> read_;
  detail::list<int> results_;
};

/// A random program with scores of rows and keys; its data are those of `random_program_graph`.
[[nodiscard]] constexpr graph random_score_graph(std::uint32_t seed, const program_options& options) {
  return score_program_generator(seed, options).make();
}

}  // namespace espalier::test
