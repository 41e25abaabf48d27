// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/fixed_string.hpp>
#include <espalier/tensor/core/shape/extents.hpp>

#include <cstdint>

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

}  // namespace espalier

namespace espalier::detail {

inline constexpr int max_einsum_operands = 8;

/// A parsed formula: the terms of the operands and of the result.
struct einsum_formula {
  bool valid = true;
  int operands = 0;
  einsum_term operand[max_einsum_operands];
  einsum_term result;
  /// The position of an ellipsis: the letter of its term that follows it, counted from 1; 0 if there is none.
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
    bool named = false;
    for (int k = 0; k < f.operands; ++k) named = named || f.operand[k].contains(f.result[d]);
    f.valid = f.valid && named && f.result.find(f.result[d]) == d;
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

/// Mistakes in the operands of a formula.
enum class einsum_fault { nothing, rank, size, batch, too_many_dimensions };

/// A formula for operands of known shapes: every dimension has a letter.
struct einsum_reading {
  einsum_formula formula;
  einsum_fault fault = einsum_fault::nothing;
  einsum_clash clash;
  /// Each operand's dimensions of one element along which it is repeated, as a set. They have no letter.
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

template <fixed_string Text> inline constexpr einsum_formula formula_of = parse_einsum<Text>();

}  // namespace espalier::detail
