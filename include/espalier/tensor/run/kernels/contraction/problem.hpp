// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

namespace espalier::kernels {

/// A label may be in A, B and C (batch), in A and C (rows), in B and C (columns) or in A and B (summed).
/// A label of A or B alone is not allowed: reduce that operand first. A label twice in A or in B means its diagonal.
struct contraction {
  static constexpr int max_labels = 12;
  static constexpr int max_rank = 8;
  int label_count = 0;
  std::int64_t extent[max_labels] = {};
  int rank_a = 0;
  int rank_b = 0;
  int rank_c = 0;
  signed char a[max_rank] = {};
  signed char b[max_rank] = {};
  signed char c[max_rank] = {};

  friend constexpr bool operator==(const contraction&, const contraction&) = default;
};

/// Whether `p` is a contraction that `contract` can run: labels in range, C without repetition, no label in one operand
/// alone, and extents that fit a BLAS's 32-bit integers.
[[nodiscard]] constexpr bool is_valid(const contraction& p) {
  if (p.label_count < 0 || p.label_count > contraction::max_labels) return false;
  int seen[3][contraction::max_labels] = {};
  const auto mark = [&](int which, int rank, const signed char* dims) {
    if (rank < 0 || rank > contraction::max_rank) return false;
    for (int d = 0; d < rank; ++d) {
      if (dims[d] < 0 || dims[d] >= p.label_count) return false;
      ++seen[which][dims[d]];
    }
    return true;
  };
  if (!mark(0, p.rank_a, p.a) || !mark(1, p.rank_b, p.b) || !mark(2, p.rank_c, p.c)) return false;
  for (int l = 0; l < p.label_count; ++l) {
    if (p.extent[l] < 0 || p.extent[l] > 0x7fffffff) return false;
    const int tensors = (seen[0][l] > 0) + (seen[1][l] > 0) + (seen[2][l] > 0);
    if (tensors < 2 || seen[2][l] > 1) return false;
  }
  return true;
}

}  // namespace espalier::kernels
