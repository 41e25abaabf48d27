// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/ops/arithmetic.hpp>
#include <espalier/ops/transpose.hpp>

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
/// A product of two tensors, summed over the letters the result does not have.
inline constexpr op_info einsum{.name = "einsum",
                                .spread = propagation::dimensional,
                                .linear = linearity::each,
                                .facts = {.contracts = true},
                                .factors = detail::einsum_factors,
                                .gradient = detail::einsum_gradient,
                                .evaluate = detail::evaluate_einsum,
                                .flops = detail::einsum_flops,
                                .identity = detail::einsum_identity};
}  // namespace ops

namespace detail {

/// Sums away the letters that `keep` rejects.
template <class Keep> constexpr int sum_unused(builder& b, int a, einsum_term& term, Keep keep) {
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
  return emit::reduce_sum(b, a, dims);
}

}  // namespace detail

namespace emit {

/// One operand: a sum and a transposition.
constexpr int einsum(builder& b, int a, einsum_term from, einsum_term to) {
  const int summed = detail::sum_unused(b, a, from, [&](char letter) { return to.contains(letter); });
  axis_list order;
  for (int d = 0; d < to.size(); ++d) order = order.with(from.find(to[d]));
  return transpose(b, summed, order);
}

/// Two operands. A letter that only one operand has, and not the result, is summed away first.
constexpr int einsum(builder& b, int x, einsum_term left, int y, einsum_term right, einsum_term result) {
  const einsum_term other = right;
  const int a =
      detail::sum_unused(b, x, left, [&](char letter) { return result.contains(letter) || other.contains(letter); });
  const int c =
      detail::sum_unused(b, y, right, [&](char letter) { return result.contains(letter) || left.contains(letter); });
  extents shape;
  for (int d = 0; d < result.size(); ++d) {
    const int i = left.find(result[d]);
    shape.append(i >= 0 ? b[a].shape[i] : b[c].shape[right.find(result[d])]);
  }
  instruction made = builder::make(ops::einsum, b[a].type, shape, a, c);
  set_attributes(made, einsum_attributes{left, right, result});
  return b.append(made);
}

}  // namespace emit

/// The derivative by one operand is an einsum of the cotangent with the other; a letter only that operand has is
/// repeated along (there is none here: they were summed away before).
constexpr void detail::einsum_gradient(gradient_context& c) {
  const auto [left, right, result] = attributes_of<einsum_attributes>(c);
  c.give(0, emit::einsum(c.emit, c.cotangent, result, c.operand(1), right, left));
  c.give(1, emit::einsum(c.emit, c.operand(0), left, c.cotangent, result, right));
}

namespace detail {

inline constexpr int max_einsum_operands = 6;

/// A formula taken apart: the terms of the operands and of the result.
struct einsum_formula {
  bool valid = true;
  int operands = 0;
  einsum_term operand[max_einsum_operands];
  einsum_term result;
};

[[nodiscard]] constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

template <fixed_string Text> [[nodiscard]] constexpr einsum_formula parse_einsum() {
  einsum_formula f;
  int i = 0;
  einsum_term term;
  const auto take = [&](char c) {
    if (!is_letter(c) || term.contains(c) || term.size() == max_rank) f.valid = false;
    if (f.valid) term.append(c);
  };
  for (; i < Text.size() && Text[i] != '-'; ++i) {
    if (Text[i] == ' ') continue;
    if (Text[i] == ',') {
      if (f.operands == max_einsum_operands - 1) f.valid = false;
      if (f.valid) f.operand[f.operands++] = term;
      term = {};
    } else {
      take(Text[i]);
    }
  }
  f.operand[f.operands++] = term;
  term = {};
  if (i + 1 >= Text.size() || Text[i] != '-' || Text[i + 1] != '>') f.valid = false;
  for (i += 2; i < Text.size(); ++i) {
    if (Text[i] != ' ') take(Text[i]);
  }
  f.result = term;
  for (int d = 0; d < f.result.size(); ++d) {
    bool found = false;
    for (int k = 0; k < f.operands; ++k) found = found || f.operand[k].contains(f.result[d]);
    f.valid = f.valid && found;
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

[[nodiscard]] constexpr einsum_clash find_clash(const einsum_formula& f, const einsum_shapes& shapes) {
  for (int k = 0; k < f.operands; ++k) {
    for (int d = 0; d < f.operand[k].size(); ++d) {
      for (int j = 0; j < k; ++j) {
        const int e = f.operand[j].find(f.operand[k][d]);
        if (e >= 0 && shapes[j][e] != shapes[k][d]) return {f.operand[k][d], j, e, k, d};
      }
    }
  }
  return {};
}

[[nodiscard]] constexpr extents einsum_shape(const einsum_formula& f, const einsum_shapes& shapes) {
  extents result;
  for (int d = 0; d < f.result.size(); ++d) {
    for (int k = 0; k < f.operands; ++k) {
      const int e = f.operand[k].find(f.result[d]);
      if (e >= 0) {
        result.append(shapes[k][e]);
        break;
      }
    }
  }
  return result;
}

/// Contracts the operands from left to right; an intermediate keeps the letters that later operands or the result
/// still need.
constexpr int emit_einsum(builder& b, const einsum_formula& f, const int* ids) {
  if (f.operands == 1) return emit::einsum(b, ids[0], f.operand[0], f.result);
  int value = ids[0];
  einsum_term term = f.operand[0];
  for (int k = 1; k < f.operands; ++k) {
    einsum_term next = f.result;
    if (k + 1 < f.operands) {
      next = {};
      const auto keep = [&](char letter) {
        bool needed = f.result.contains(letter);
        for (int later = k + 1; later < f.operands; ++later) needed = needed || f.operand[later].contains(letter);
        if (needed && !next.contains(letter)) next.append(letter);
      };
      for (int d = 0; d < term.size(); ++d) keep(term[d]);
      for (int d = 0; d < f.operand[k].size(); ++d) keep(f.operand[k][d]);
    }
    value = emit::einsum(b, value, term, ids[k], f.operand[k], next);
    term = next;
  }
  return value;
}

template <fixed_string Text> inline constexpr einsum_formula formula_of = parse_einsum<Text>();

[[nodiscard]] constexpr bool ranks_agree(const einsum_formula& f, const einsum_shapes& shapes) {
  for (int k = 0; k < f.operands; ++k) {
    if (f.operand[k].size() != shapes[k].rank) return false;
  }
  return true;
}

template <fixed_string Text, class First, class... Rest>
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
    if constexpr (!ranks_agree(formula_of<Text>, shapes)) {
      return failed<why::einsum_wrong_rank<typename First::tensor, typename Rest::tensor...>>(where);
    } else if constexpr (constexpr einsum_clash clash = find_clash(formula_of<Text>, shapes); clash.letter != '\0') {
      return failed<why::einsum_size_mismatch<why::text<clash.letter>,
                                              why::extent<static_cast<int>(shapes[clash.first][clash.first_dim])>,
                                              why::extent<static_cast<int>(shapes[clash.second][clash.second_dim])>,
                                              typename First::tensor, typename Rest::tensor...>>(where);
    } else if constexpr (!((First::type == Rest::type) && ...)) {
      return failed<why::dtype_mismatch<typename First::tensor, typename Rest::tensor...>>(where);
    } else if constexpr (!Numbers<First, Rest...>) {
      return operand_is_boolean<First, Rest...>(where);
    } else {
      builder& b = *first.owner;
      const pinned_line line(b, where);
      const int ids[]{first.id, operand_of(b, rest)...};
      constexpr extents shape = einsum_shape(formula_of<Text>, shapes);
      return symbol_like<First, tensor_for<First::type, shape>>(first, emit_einsum(b, formula_of<Text>, &ids[0]));
    }
  }
}

}  // namespace detail

/// Products of tensors summed over labels, in Einstein's notation: one letter per dimension, operands separated by
/// commas, the result behind the arrow. Letters the result does not name are summed over. Operands are contracted
/// from left to right.
/// Errors: `einsum_bad_formula`, `einsum_wrong_operand_count`, `einsum_wrong_rank`, `einsum_size_mismatch`,
/// `dtype_mismatch`, `operand_is_boolean`.
template <detail::fixed_string Formula, Traced A>
constexpr auto einsum(const A& a, source_line where = source_line::current()) {
  return detail::einsum<Formula>(where, a);
}
template <detail::fixed_string Formula, Traced A, Traced B>
constexpr auto einsum(const A& a, const B& b, source_line where = source_line::current()) {
  return detail::einsum<Formula>(where, a, b);
}
template <detail::fixed_string Formula, Traced A, Traced B, Traced C>
constexpr auto einsum(const A& a, const B& b, const C& c, source_line where = source_line::current()) {
  return detail::einsum<Formula>(where, a, b, c);
}
template <detail::fixed_string Formula, Traced A, Traced B, Traced C, Traced D>
constexpr auto einsum(const A& a, const B& b, const C& c, const D& d, source_line where = source_line::current()) {
  return detail::einsum<Formula>(where, a, b, c, d);
}

/// The matrix product over the last two dimensions. The second operand is a matrix, or has the same leading
/// dimensions as the first. Errors: `wrong_rank`, `matmul_size_mismatch`, `dtype_mismatch`,
/// `operand_is_boolean`.
template <Traced A, Traced B>
constexpr auto matmul(const A& a, const B& b, source_line where = source_line::current()) {
  if constexpr (Failed<A> || Failed<B>) {
    return detail::first_failure(a, b);
  } else if constexpr (A::rank < 2 || A::rank > max_rank - 1 || (B::rank != 2 && B::rank != A::rank)) {
    return failed<why::wrong_rank<typename A::tensor, typename B::tensor>>(where);
  } else if constexpr (A::extent(-1) != B::extent(-2)) {
    return failed<why::matmul_size_mismatch<typename A::tensor, typename B::tensor>>(where);
  } else if constexpr (A::rank == 2) {
    return detail::einsum<"xy,yz->xz">(where, a, b);
  } else if constexpr (B::rank == 2) {
    if constexpr (A::rank == 3) {
      return detail::einsum<"axy,yz->axz">(where, a, b);
    } else if constexpr (A::rank == 4) {
      return detail::einsum<"abxy,yz->abxz">(where, a, b);
    } else {
      return failed<why::wrong_rank<typename A::tensor, typename B::tensor>>(where);
    }
  } else if constexpr (A::rank == 3) {
    return detail::einsum<"axy,ayz->axz">(where, a, b);
  } else if constexpr (A::rank == 4) {
    return detail::einsum<"abxy,abyz->abxz">(where, a, b);
  } else {
    return failed<why::wrong_rank<typename A::tensor, typename B::tensor>>(where);
  }
}

}  // namespace espalier
