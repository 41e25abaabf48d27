// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/ops/arithmetic.hpp>
#include <espalier/ops/compare.hpp>
#include <espalier/ops/iota.hpp>
#include <espalier/ops/transpose.hpp>

#include <bit>

namespace espalier {

/// The letters of one term of an einsum formula, one per dimension, eight bits each.
class einsum_term {
 public:
  constexpr einsum_term() = default;
  constexpr explicit einsum_term(std::int64_t code) : code_(static_cast<std::uint64_t>(code)) {}
  [[nodiscard]] constexpr std::int64_t code() const { return static_cast<std::int64_t>(code_); }
  [[nodiscard]] constexpr int size() const {
    int count = 0;
    for (std::uint64_t rest = code_; rest != 0; rest >>= 8U) ++count;
    return count;
  }
  [[nodiscard]] constexpr char operator[](int i) const {
    return static_cast<char>(code_ >> (8U * static_cast<unsigned>(i)) & 255U);
  }
  constexpr void append(char letter) {
    code_ |= static_cast<std::uint64_t>(static_cast<unsigned char>(letter)) << (8U * static_cast<unsigned>(size()));
  }
  [[nodiscard]] constexpr int find(char letter) const {
    int i = 0;
    for (std::uint64_t rest = code_; rest != 0; rest >>= 8U, ++i) {
      if (static_cast<char>(rest & 255U) == letter) return i;
    }
    return -1;
  }
  [[nodiscard]] constexpr bool contains(char letter) const { return find(letter) >= 0; }
  [[nodiscard]] constexpr bool operator==(const einsum_term&) const = default;

 private:
  std::uint64_t code_ = 0;
};

/// The terms of a product of two tensors: `ab,bc->ac`. A letter of one operand appears in the other or in the result.
struct einsum_attributes {
  einsum_term left;
  einsum_term right;
  einsum_term result;
};

namespace detail {

/// One factor per letter: it passes when the result has it, and is summed over otherwise.
[[nodiscard]] constexpr factor_rule einsum_factors(op_view v) {
  factor_rule rule;
  const auto [left, right, result] = attributes_of<einsum_attributes>(v);
  for (int d = 0; d < v.self().shape.rank; ++d) rule.result[d] = factor_list(rule.add(v.self().shape[d]));
  const extents& a = v.operand(0).shape;
  for (int d = 0; d < a.rank; ++d) {
    const int at = result.find(left[d]);
    rule.operand[0][d] = at >= 0 ? rule.result[at] : factor_list(rule.add(a[d], factor_kind::reduce));
  }
  for (int d = 0; d < v.operand(1).shape.rank; ++d) {
    const int at = result.find(right[d]);
    rule.operand[1][d] = at >= 0 ? rule.result[at] : rule.operand[0][left.find(right[d])];
  }
  return rule;
}

constexpr void einsum_gradient(gradient_context& c);

/// Every element of the result as a sum over the contracted letters, in their order in the left operand.
constexpr void evaluate_einsum(const evaluation& e) {
  const auto [left, right, result] = attributes_of<einsum_attributes>(*e.self);
  const einsum_term term[3]{left, right, result};
  std::int64_t extent[2 * max_rank]{};
  std::int64_t stride[3][2 * max_rank]{};
  int loops = 0;
  const auto add_loop = [&](char letter, std::int64_t size) {
    extent[loops] = size;
    for (int t = 0; t < 3; ++t) {
      const int d = term[t].find(letter);
      if (d >= 0) stride[t][loops] = stride_of(t == 2 ? e.self->shape : *e.operand_shape[t], d);
    }
    ++loops;
  };
  for (int d = 0; d < e.self->shape.rank; ++d) add_loop(term[2][d], e.self->shape[d]);
  for (int d = 0; d < e.operand_shape[0]->rank; ++d) {
    if (!term[2].contains(term[0][d])) add_loop(term[0][d], (*e.operand_shape[0])[d]);
  }
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = 0;
  std::int64_t index[2 * max_rank]{};
  std::int64_t at[3]{};
  std::int64_t total = 1;
  for (int l = 0; l < loops; ++l) total *= extent[l];
  for (std::int64_t i = 0; i < total; ++i) {
    e.result[at[2]] += e.operand[0][at[0]] * e.operand[1][at[1]];
    for (int l = loops - 1; l >= 0; --l) {
      for (int t = 0; t < 3; ++t) at[t] += stride[t][l];
      if (++index[l] < extent[l]) break;
      for (int t = 0; t < 3; ++t) at[t] -= stride[t][l] * extent[l];
      index[l] = 0;
    }
  }
}

[[nodiscard]] constexpr double einsum_identity(op_view) { return 0; }

/// One multiplication and one addition per element of the iteration space.
[[nodiscard]] constexpr std::int64_t einsum_flops(op_view v) {
  std::int64_t space = v.self().shape.elements();
  const einsum_attributes terms = attributes_of<einsum_attributes>(v);
  for (int d = 0; d < v.operand(0).shape.rank; ++d) {
    if (!terms.result.contains(terms.left[d])) space *= v.operand(0).shape[d];
  }
  return 2 * space;
}

}  // namespace detail

namespace ops {
/// A product of two tensors, summed over the letters the result does not have. Each of the three has its own type, all
/// floats or all integers: it is added up in `accumulate` of the widest, integers in the result's.
inline constexpr op_info einsum{.name = "einsum",
                                .spread = propagation::dimensional,
                                .linear = linearity::each,
                                .facts = {.contracts = true, .adds_up = true},
                                .factors = detail::einsum_factors,
                                .gradient = detail::einsum_gradient,
                                .evaluate = detail::evaluate_einsum,
                                .flops = detail::einsum_flops,
                                .identity = detail::einsum_identity};
}  // namespace ops

namespace detail {

/// A sum over some dimensions, of none the operand itself: of type `type` if anything is added up.
constexpr int sum_over(builder& b, int a, std::int64_t dims, dtype type) {
  return dims == 0 ? a : emit::reduce_sum(b, a, dims, type);
}

/// Sums away the letters that `keep` rejects.
template <class Keep> constexpr int sum_unused(builder& b, int a, einsum_term& term, dtype type, Keep keep) {
  std::int64_t dims = 0;
  einsum_term rest;
  for (int d = 0; d < term.size(); ++d) {
    if (keep(term[d])) {
      rest.append(term[d]);
    } else {
      dims |= std::int64_t{1} << d;
    }
  }
  term = rest;
  return sum_over(b, a, dims, type);
}

/// In what a sum that goes into a product of type `result` is kept: nothing is rounded before the product is.
[[nodiscard]] constexpr dtype term_type(dtype operand, dtype result) {
  return is_floating(result) && facts_of(operand).accumulate == dtype::f64 ? dtype::f64 : facts_of(result).accumulate;
}

}  // namespace detail

namespace emit {

/// One operand: a sum and a transposition.
constexpr int einsum(builder& b, int a, einsum_term from, einsum_term to, dtype type) {
  const int summed =
      convert(b, detail::sum_unused(b, a, from, type, [&](char letter) { return to.contains(letter); }), type);
  axis_list order;
  for (int d = 0; d < to.size(); ++d) order = order.with(from.find(to[d]));
  return transpose(b, summed, order);
}

/// Two operands, of one type or several. A letter that only one operand has, and not the result, is summed away first.
constexpr int einsum(builder& b, int x, einsum_term left, int y, einsum_term right, einsum_term result, dtype type) {
  const einsum_term other = right;
  const int a = detail::sum_unused(b, x, left, detail::term_type(b[x].type, type),
                                   [&](char letter) { return result.contains(letter) || other.contains(letter); });
  const int c = detail::sum_unused(b, y, right, detail::term_type(b[y].type, type),
                                   [&](char letter) { return result.contains(letter) || left.contains(letter); });
  extents shape;
  for (int d = 0; d < result.size(); ++d) {
    const int i = left.find(result[d]);
    shape.append(i >= 0 ? b[a].shape[i] : b[c].shape[right.find(result[d])]);
  }
  instruction made = builder::make(ops::einsum, type, shape, a, c);
  set_attributes(made, einsum_attributes{left, right, result});
  return b.append(made);
}
constexpr int einsum(builder& b, int x, einsum_term left, int y, einsum_term right, einsum_term result) {
  return einsum(b, x, left, y, right, result, b[x].type);
}

}  // namespace emit

/// The derivative by one operand is an einsum of the cotangent with the other; a letter only that operand has is
/// repeated along (there is none here: they were summed away before). It has the operand's type, whatever the
/// product's.
constexpr void detail::einsum_gradient(gradient_context& c) {
  const auto [left, right, result] = attributes_of<einsum_attributes>(c);
  c.give(0, emit::einsum(c.emit, c.cotangent, result, c.operand(1), right, left, c.emit[c.operand(0)].type));
  c.give(1, emit::einsum(c.emit, c.operand(0), left, c.cotangent, result, right, c.emit[c.operand(1)].type));
}

namespace detail {

inline constexpr int max_einsum_operands = 8;

/// A formula taken apart: the terms of the operands and of the result.
struct einsum_formula {
  bool valid = true;
  int operands = 0;
  einsum_term operand[max_einsum_operands];
  einsum_term result;
  /// Before which letter of its term an ellipsis stands, counted from 1; 0 where there is none.
  int ellipsis[max_einsum_operands]{};
  int result_ellipsis = 0;
};

[[nodiscard]] constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

template <fixed_string Text> [[nodiscard]] constexpr einsum_formula parse_einsum() {
  einsum_formula f;
  int i = 0;
  // The term that ends at `stop`, or at the end.
  const auto read = [&](einsum_term& term, int& ellipsis, auto is_end) {
    for (; i < Text.size() && !is_end(Text[i]); ++i) {
      if (Text[i] == ' ') continue;
      if (Text[i] == '.') {
        if (i + 2 >= Text.size() || Text[i + 1] != '.' || Text[i + 2] != '.' || ellipsis != 0) f.valid = false;
        ellipsis = term.size() + 1;
        i += 2;
      } else {
        if (!is_letter(Text[i]) || term.size() == max_rank) f.valid = false;
        if (f.valid) term.append(Text[i]);
      }
    }
  };
  for (;; ++i) {
    if (f.operands == max_einsum_operands) f.valid = false;
    if (!f.valid) return f;
    read(f.operand[f.operands], f.ellipsis[f.operands], [](char c) { return c == ',' || c == '-'; });
    ++f.operands;
    if (i >= Text.size() || Text[i] != ',') break;
  }
  if (i + 1 >= Text.size() || Text[i] != '-' || Text[i + 1] != '>') f.valid = false;
  i += 2;
  read(f.result, f.result_ellipsis, [](char) { return false; });
  bool any_ellipsis = false;
  for (int k = 0; k < f.operands; ++k) any_ellipsis = any_ellipsis || f.ellipsis[k] != 0;
  f.valid = f.valid && any_ellipsis == (f.result_ellipsis != 0);
  for (int d = 0; d < f.result.size(); ++d) {
    bool found = false;
    for (int k = 0; k < f.operands; ++k) found = found || f.operand[k].contains(f.result[d]);
    f.valid = f.valid && found && f.result.find(f.result[d]) == d;
  }
  return f;
}

/// A letter and the two operands and dimensions that disagree about its size.
struct einsum_clash {
  char letter = '\0';
  int first = 0;
  int first_dim = 0;
  int second = 0;
  int second_dim = 0;
};

/// (An array of its own: EDG does not read the address of a constant's element in a constant.)
struct einsum_shapes {
  extents of[max_einsum_operands];
  [[nodiscard]] constexpr const extents& operator[](int k) const { return of[k]; }
};

/// What is wrong with the operands of a formula.
enum class einsum_fault { nothing, rank, size, batch, too_many_dimensions };

/// A formula for operands of known shapes: every dimension has a letter.
struct einsum_reading {
  einsum_formula formula;
  einsum_fault fault = einsum_fault::nothing;
  einsum_clash clash;
  /// For each operand the dimensions of one element along which it is repeated, as a set. They have no letter.
  std::int64_t repeated[max_einsum_operands]{};
  extents shape;
};

/// Gives letters of their own, '0', '1', ... counted from the right, to the dimensions that an ellipsis stands for.
[[nodiscard]] constexpr einsum_reading read_einsum(const einsum_formula& f, const einsum_shapes& shapes) {
  einsum_reading r;
  r.formula.operands = f.operands;
  const auto fail = [&](einsum_fault fault) {
    r.fault = fault;
    return r;
  };
  extents batch;  // from the right
  for (int k = 0; k < f.operands; ++k) {
    const int more = shapes[k].rank - f.operand[k].size();
    if (more < 0 || (more > 0 && f.ellipsis[k] == 0)) return fail(einsum_fault::rank);
    for (int n = 0; n < more; ++n) {
      const std::int64_t extent = shapes[k][f.ellipsis[k] - 1 + more - 1 - n];
      if (n == batch.rank) {
        batch.append(extent);
      } else if (batch[n] == 1) {
        batch[n] = extent;
      } else if (extent != 1 && extent != batch[n]) {
        return fail(einsum_fault::batch);
      }
    }
  }
  for (int k = 0; k < f.operands; ++k) {
    const int more = shapes[k].rank - f.operand[k].size();
    const int before = more == 0 ? 0 : f.ellipsis[k] - 1;
    einsum_term& term = r.formula.operand[k];
    for (int d = 0; d < shapes[k].rank; ++d) {
      if (d < before || d >= before + more) {
        term.append(f.operand[k][d < before ? d : d - more]);
      } else if (const int n = before + more - 1 - d; shapes[k][d] == 1 && batch[n] != 1) {
        r.repeated[k] |= std::int64_t{1} << d;
      } else {
        term.append(static_cast<char>('0' + n));
      }
    }
  }
  if (f.result.size() + batch.rank > max_rank) return fail(einsum_fault::too_many_dimensions);
  const int before = f.result_ellipsis == 0 ? 0 : f.result_ellipsis - 1;
  for (int d = 0; d < before; ++d) r.formula.result.append(f.result[d]);
  for (int n = batch.rank - 1; n >= 0; --n) r.formula.result.append(static_cast<char>('0' + n));
  for (int d = before; d < f.result.size(); ++d) r.formula.result.append(f.result[d]);

  // One size for each letter: that of its first dimension.
  bool known[128]{};
  std::int64_t size[128]{};
  int first[128]{};
  int first_dim[128]{};
  for (int k = 0; k < f.operands; ++k) {
    for (int d = 0, at = 0; d < shapes[k].rank; ++d) {
      if ((r.repeated[k] >> d & 1) != 0) continue;
      const char letter = r.formula.operand[k][at++];
      const int c = static_cast<unsigned char>(letter);
      if (!known[c]) {
        known[c] = true;
        size[c] = shapes[k][d];
        first[c] = k;
        first_dim[c] = d;
      } else if (size[c] != shapes[k][d]) {
        r.clash = {letter, first[c], first_dim[c], k, d};
        return fail(einsum_fault::size);
      }
    }
  }
  for (int d = 0; d < r.formula.result.size(); ++d) {
    r.shape.append(size[static_cast<unsigned char>(r.formula.result[d])]);
  }
  return r;
}

/// In which order operands are multiplied: two at a time, product n as value number `operands` + n.
struct einsum_order {
  bool found = true;
  int left[max_einsum_operands]{};
  int right[max_einsum_operands]{};
};

/// The order that multiplies and stores the fewest elements, of all there are: for each set of operands the cheapest
/// way to get their product, by what its two halves cost (Pfeifer, Haegeman, Verstraete, 2014). Among equals, from left
/// to right. None is found where every order has a product of more than `max_rank` dimensions on its way.
class einsum_orders {
 public:
  constexpr einsum_orders(const einsum_formula& f, const einsum_shapes& shapes, const std::int64_t* repeated)
      : operands_(f.operands) {
    for (int k = 0; k < f.operands; ++k) {
      for (int d = 0, at = 0; d < shapes[k].rank; ++d) {
        if ((repeated[k] >> d & 1) == 0) size_[number(f.operand[k][at++])] = static_cast<double>(shapes[k][d]);
      }
    }
    const unsigned all = (1U << static_cast<unsigned>(operands_)) - 1;
    std::uint64_t named[1U << max_einsum_operands]{};
    for (unsigned set = 1; set <= all; ++set) {
      const int k = std::countr_zero(set);
      named[set] = named[set & (set - 1)] | letters(f.operand[k]);
    }
    const std::uint64_t result = letters(f.result);
    for (unsigned set = 1; set <= all; ++set) kept_[set] = named[set] & (result | named[all & ~set]);
    for (unsigned set = 1; set <= all; ++set) {
      if ((set & (set - 1)) != 0) find(set);
    }
  }

  [[nodiscard]] constexpr einsum_order best() const {
    einsum_order order;
    int made = 0;
    order.found = emit((1U << static_cast<unsigned>(operands_)) - 1, order, made) >= 0;
    return order;
  }

 private:
  [[nodiscard]] static constexpr int number(char letter) {
    if (letter >= 'a') return letter - 'a';
    return letter >= 'A' ? 26 + letter - 'A' : 52 + letter - '0';
  }
  [[nodiscard]] static constexpr std::uint64_t letters(einsum_term term) {
    std::uint64_t set = 0;
    for (int d = 0; d < term.size(); ++d) set |= std::uint64_t{1} << static_cast<unsigned>(number(term[d]));
    return set;
  }
  [[nodiscard]] constexpr double elements(std::uint64_t set) const {
    double count = 1;
    for (; set != 0; set &= set - 1) count *= size_[std::countr_zero(set)];
    return count;
  }

  constexpr void find(unsigned set) {
    if (std::popcount(kept_[set]) > max_rank) return;
    // The half without the first operand: the last one alone, then all others.
    const unsigned last = std::bit_floor(set);
    try_half(set, last);
    const unsigned rest = set & (set - 1);
    for (unsigned half = rest; half != 0; half = (half - 1) & rest) try_half(set, half);
  }
  constexpr void try_half(unsigned set, unsigned half) {
    const unsigned other = set & ~half;
    if (!exists(half) || !exists(other)) return;
    const double cost = cost_[half] + cost_[other] + elements(kept_[half] | kept_[other]) + elements(kept_[set]);
    if (half_[set] != 0 && cost >= cost_[set]) return;
    half_[set] = half;
    cost_[set] = cost;
  }
  [[nodiscard]] constexpr bool exists(unsigned set) const { return (set & (set - 1)) == 0 || half_[set] != 0; }

  /// Lists the products that a set needs, and returns the number of its value.
  constexpr int emit(unsigned set, einsum_order& order, int& made) const {
    if ((set & (set - 1)) == 0) return std::countr_zero(set);
    if (half_[set] == 0) return -1;
    const int left = emit(set & ~half_[set], order, made);
    const int right = emit(half_[set], order, made);
    order.left[made] = left;
    order.right[made] = right;
    return operands_ + made++;
  }

  int operands_;
  double size_[64]{};
  /// Of each set of operands: the letters of its product, what it costs, and one of the two sets it is made of.
  std::uint64_t kept_[1U << max_einsum_operands]{};
  double cost_[1U << max_einsum_operands]{};
  unsigned half_[1U << max_einsum_operands]{};
};

[[nodiscard]] constexpr einsum_order order_of(const einsum_reading& r, const einsum_shapes& shapes) {
  if (r.formula.operands == 1) return {};
  if (r.formula.operands == 2) return {.left = {0}, .right = {1}};
  return einsum_orders(r.formula, shapes, &r.repeated[0]).best();
}

/// An operand with one dimension for each letter: where one is named twice only elements on the diagonal count. Letters
/// that `keep` rejects are summed away.
template <class Keep> constexpr int emit_operand(builder& b, int a, einsum_term& term, dtype type, Keep keep) {
  std::int64_t dims = 0;
  einsum_term rest;
  for (int d = 0; d < term.size(); ++d) {
    const int first = term.find(term[d]);
    if (first < d) {
      const extents shape = b[a].shape;
      const int row = emit::iota(b, dtype::i32, shape, first);
      const int column = emit::iota(b, dtype::i32, shape, d);
      a = emit::keep_where(b, emit::compare(b, ops::equal, row, column), a);
    }
    if (first == d && keep(term[d])) {
      rest.append(term[d]);
    } else {
      dims |= std::int64_t{1} << d;
    }
  }
  term = rest;
  return sum_over(b, a, dims, type);
}

/// Appends the products of a formula. `order` is of its reading. Only the last of them is of type `type`, or the sum if
/// there is one operand: what comes before is not rounded.
constexpr int emit_einsum(builder& b, const einsum_reading& r, const einsum_order& order, const int* ids, dtype type) {
  const einsum_formula& f = r.formula;
  int value[2 * max_einsum_operands]{};
  einsum_term term[2 * max_einsum_operands];
  bool open[2 * max_einsum_operands]{};  // not yet part of a product
  for (int k = 0; k < f.operands; ++k) {
    term[k] = f.operand[k];
    open[k] = true;
  }
  int count = f.operands;
  const auto needed_besides = [&](int one, int other, char letter) {
    bool needed = f.result.contains(letter);
    for (int k = 0; k < count; ++k) needed = needed || (open[k] && k != one && k != other && term[k].contains(letter));
    return needed;
  };
  for (int k = 0; k < f.operands; ++k) {
    const int whole = emit::reshape(b, ids[k], reduced_shape(b[ids[k]].shape, r.repeated[k], false));
    const dtype sums = f.operands == 1 ? type : term_type(b[whole].type, type);
    value[k] = emit_operand(b, whole, term[k], sums, [&](char letter) { return needed_besides(k, k, letter); });
  }
  for (int n = 0; n + 1 < f.operands; ++n, ++count) {
    const int left = order.left[n];
    const int right = order.right[n];
    if (n + 2 == f.operands) {
      term[count] = f.result;
    } else {
      const auto keep = [&](char letter) {
        if (!term[count].contains(letter) && needed_besides(left, right, letter)) term[count].append(letter);
      };
      for (int d = 0; d < term[left].size(); ++d) keep(term[left][d]);
      for (int d = 0; d < term[right].size(); ++d) keep(term[right][d]);
    }
    const dtype widest =
        size_of(b[value[left]].type) > size_of(b[value[right]].type) ? b[value[left]].type : b[value[right]].type;
    value[count] = emit::einsum(b, value[left], term[left], value[right], term[right], term[count],
                                n + 2 == f.operands ? type : term_type(widest, type));
    open[left] = open[right] = false;
    open[count] = true;
  }
  return f.operands == 1 ? emit::einsum(b, value[0], term[0], f.result, type) : value[count - 1];
}
constexpr int emit_einsum(builder& b, const einsum_formula& f, const int* ids) {
  einsum_shapes shapes;
  for (int k = 0; k < f.operands; ++k) shapes.of[k] = b[ids[k]].shape;
  const einsum_reading r = read_einsum(f, shapes);
  return emit_einsum(b, r, order_of(r, shapes), ids, b[ids[0]].type);
}

template <fixed_string Text> inline constexpr einsum_formula formula_of = parse_einsum<Text>();

template <fixed_string Text, dtype... Result, class First, class... Rest>
constexpr auto einsum(source_line where, const First& first, const Rest&... rest) {
  if constexpr (Failed<First> || (Failed<Rest> || ...)) {
    return first_failure(first, rest...);
  } else if constexpr (!formula_of<Text>.valid) {
    return failed<why::einsum_bad_formula<typename First::tensor, typename Rest::tensor...>>(where);
  } else if constexpr (formula_of<Text>.operands != 1 + static_cast<int>(sizeof...(Rest))) {
    return failed<why::einsum_wrong_operand_count<why::count<formula_of<Text>.operands>, typename First::tensor,
                                                  typename Rest::tensor...>>(where);
  } else {
    constexpr einsum_shapes shapes{{First::shape, Rest::shape...}};
    constexpr einsum_reading reading = read_einsum(formula_of<Text>, shapes);
    if constexpr (reading.fault == einsum_fault::rank) {
      return failed<why::einsum_wrong_rank<typename First::tensor, typename Rest::tensor...>>(where);
    } else if constexpr (reading.fault == einsum_fault::batch) {
      return failed<why::einsum_batch_mismatch<typename First::tensor, typename Rest::tensor...>>(where);
    } else if constexpr (reading.fault == einsum_fault::too_many_dimensions) {
      return failed<why::einsum_too_many_dimensions<typename First::tensor, typename Rest::tensor...>>(where);
    } else if constexpr (reading.fault == einsum_fault::size) {
      constexpr einsum_clash clash = reading.clash;
      return failed<why::einsum_size_mismatch<why::text<clash.letter>,
                                              why::extent<static_cast<int>(shapes[clash.first][clash.first_dim])>,
                                              why::extent<static_cast<int>(shapes[clash.second][clash.second_dim])>,
                                              typename First::tensor, typename Rest::tensor...>>(where);
    } else if constexpr (sizeof...(Result) == 0 && !((First::type == Rest::type) && ...)) {
      return failed<why::dtype_mismatch<typename First::tensor, typename Rest::tensor...>>(where, "einsum");
    } else if constexpr (!can_hold_products<Result...>(First::type, Rest::type...)) {
      return failed<why::result_type_cannot_hold_sums<tensor_for<asked_type<First::type, Result...>, extents{}>,
                                                      typename First::tensor, typename Rest::tensor...>>(where,
                                                                                                         "einsum");
    } else if constexpr (!Numbers<First, Rest...>) {
      return operand_is_boolean<First, Rest...>(where, "einsum");
    } else if constexpr (constexpr einsum_order order = order_of(reading, shapes); !order.found) {
      return failed<why::einsum_too_many_dimensions<typename First::tensor, typename Rest::tensor...>>(where);
    } else {
      builder& b = *first.owner;
      const pinned_line line(b, where);
      const int ids[]{first.id, operand_of(b, rest)...};
      constexpr extents shape = reading.shape;
      constexpr dtype type = asked_type<First::type, Result...>;
      return symbol_like<First, tensor_for<type, shape>>(first, emit_einsum(b, reading, order, &ids[0], type));
    }
  }
}

}  // namespace detail

/// Products of up to eight tensors summed over labels, in Einstein's notation: one letter per dimension, operands
/// separated by commas, the result behind the arrow. Letters the result does not name are summed over. A letter twice
/// in one operand means its diagonal: "ii->i" is that, "ii->" the trace. An ellipsis stands for any further dimensions,
/// as in "...ij,...jk->...ik"; those of several operands correspond from the right, as in NumPy's broadcasting, and
/// none is repeated in memory. Three operands or more are multiplied two at a time, in the order that takes the least
/// work. Sums are kept, also over devices, in the type's `accumulate` type, and rounded once. A type after the formula
/// is the result's: `einsum<"bm,mh->bh", dtype::i32>(x, w)` of i8 tensors is i32, and no operand is copied to that.
/// Then operands may have different types, all floats or all integers; each one's gradient has its own. Errors:
/// `result_type_cannot_hold_sums`, `einsum_bad_formula`, `einsum_wrong_operand_count`, `einsum_wrong_rank`,
/// `einsum_batch_mismatch`, `einsum_too_many_dimensions`, `einsum_size_mismatch`, `dtype_mismatch`,
/// `operand_is_boolean`.
template <detail::fixed_string Formula, dtype... Result, Traced A>
constexpr auto einsum(const A& a, source_line where = source_line::current()) {
  return detail::einsum<Formula, Result...>(where, a);
}
template <detail::fixed_string Formula, dtype... Result, Traced A, Traced B>
constexpr auto einsum(const A& a, const B& b, source_line where = source_line::current()) {
  return detail::einsum<Formula, Result...>(where, a, b);
}
template <detail::fixed_string Formula, dtype... Result, Traced A, Traced B, Traced C>
constexpr auto einsum(const A& a, const B& b, const C& c, source_line where = source_line::current()) {
  return detail::einsum<Formula, Result...>(where, a, b, c);
}
template <detail::fixed_string Formula, dtype... Result, Traced A, Traced B, Traced C, Traced D>
constexpr auto einsum(const A& a, const B& b, const C& c, const D& d, source_line where = source_line::current()) {
  return detail::einsum<Formula, Result...>(where, a, b, c, d);
}
template <detail::fixed_string Formula, dtype... Result, Traced A, Traced B, Traced C, Traced D, Traced E>
constexpr auto einsum(const A& a, const B& b, const C& c, const D& d, const E& e,
                      source_line where = source_line::current()) {
  return detail::einsum<Formula, Result...>(where, a, b, c, d, e);
}
template <detail::fixed_string Formula, dtype... Result, Traced A, Traced B, Traced C, Traced D, Traced E, Traced F>
constexpr auto einsum(const A& a, const B& b, const C& c, const D& d, const E& e, const F& f,
                      source_line where = source_line::current()) {
  return detail::einsum<Formula, Result...>(where, a, b, c, d, e, f);
}
template <detail::fixed_string Formula, dtype... Result, Traced A, Traced B, Traced C, Traced D, Traced E, Traced F,
          Traced G>
constexpr auto einsum(const A& a, const B& b, const C& c, const D& d, const E& e, const F& f, const G& g,
                      source_line where = source_line::current()) {
  return detail::einsum<Formula, Result...>(where, a, b, c, d, e, f, g);
}
template <detail::fixed_string Formula, dtype... Result, Traced A, Traced B, Traced C, Traced D, Traced E, Traced F,
          Traced G, Traced H>
constexpr auto einsum(const A& a, const B& b, const C& c, const D& d, const E& e, const F& f, const G& g, const H& h,
                      source_line where = source_line::current()) {
  return detail::einsum<Formula, Result...>(where, a, b, c, d, e, f, g, h);
}

/// The matrix product as NumPy defines it: over the last two dimensions, those before them broadcast against each
/// other. A vector on the left is a row, one on the right a column, and that dimension is not in the result: of two
/// vectors the product is a scalar. `matmul<dtype::f32>(x, w)` is of that type (see `einsum`).
/// Errors: `wrong_rank` (of a scalar), `matmul_size_mismatch`,
/// `einsum_batch_mismatch`, `einsum_too_many_dimensions`, `dtype_mismatch`, `operand_is_boolean`.
template <dtype... Result, Traced A, Traced B>
constexpr auto matmul(const A& a, const B& b, source_line where = source_line::current()) {
  if constexpr (Failed<A> || Failed<B>) {
    return detail::first_failure(a, b);
  } else if constexpr (A::rank == 0 || B::rank == 0) {
    return failed<why::wrong_rank<typename A::tensor, typename B::tensor>>(where, "matmul");
  } else if constexpr (A::extent(-1) != B::extent(B::rank == 1 ? 0 : -2)) {
    return failed<why::matmul_size_mismatch<typename A::tensor, typename B::tensor>>(where);
  } else if constexpr (A::rank == 1 && B::rank == 1) {
    return detail::einsum<"y,y->", Result...>(where, a, b);
  } else if constexpr (A::rank == 1) {
    return detail::einsum<"y,...yz->...z", Result...>(where, a, b);
  } else if constexpr (B::rank == 1) {
    return detail::einsum<"...xy,y->...x", Result...>(where, a, b);
  } else {
    return detail::einsum<"...xy,...yz->...xz", Result...>(where, a, b);
  }
}

}  // namespace espalier
