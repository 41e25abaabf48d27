// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/run/kernels/contraction/problem.hpp>

#include <cstdint>

namespace espalier::detail {

inline constexpr int operand_a = 0;
inline constexpr int operand_b = 1;
inline constexpr int operand_c = 2;

struct copy_axis {
  std::int64_t extent = 1;
  std::int64_t from = 0;
  std::int64_t to = 0;
};

/// A rearrangement; the axes are sorted so that the destination is written in order.
struct copy_plan {
  bool active = false;
  int rank = 0;
  copy_axis axis[kernels::contraction::max_rank];
  std::int64_t count = 0;   // elements
  std::int64_t offset = 0;  // elements from the start of scratch

  /// One element after the other, on either side.
  [[nodiscard]] constexpr bool is_in_order() const {
    return rank == 0 || (rank == 1 && axis[0].from == 1 && axis[0].to == 1);
  }
};

struct loop_axis {
  std::int64_t extent = 1;
  std::int64_t a = 0;
  std::int64_t b = 0;
  std::int64_t c = 0;
};

/// The kinds of an innermost product.
enum class product_kind : std::uint8_t {
  empty,      // nothing to sum: C = beta C
  gemm,       // C[m,n] = A[m,k] B[k,n]
  gemv,       // C[m] = A[m,k] B[k]
  dots,       // C[m] = sum_k A[m,k] B[m,k]
  pointwise,  // C[m,n] = A[m,n] B[m,n], where a stride may be 0
};

}  // namespace espalier::detail

namespace espalier::kernels {

/// The plan of a contraction. Strides are in elements and belong to the operands in the order they are multiplied:
/// with `swapped`, "A" is the caller's B, since a column-major C is a row-major C^T = B^T A^T.
struct gemm_plan {
  detail::product_kind kind = detail::product_kind::empty;
  bool swapped = false;
  std::int64_t m = 1;
  std::int64_t n = 1;
  std::int64_t k = 1;
  std::int64_t a_row = 0;
  std::int64_t a_column = 0;
  std::int64_t b_row = 0;
  std::int64_t b_column = 0;
  std::int64_t c_row = 0;
  std::int64_t c_column = 0;
  int loop_count = 0;      // independent iterations, outermost first
  int sum_loop_count = 0;  // iterations that accumulate into the same C, inside the others
  detail::loop_axis loops[contraction::max_labels];
  detail::loop_axis sum_loops[contraction::max_labels];
  std::int64_t iterations = 1;
  std::int64_t sum_iterations = 1;
  detail::copy_plan copy[3];  // of the caller's A and B into scratch, and of C out of it
  std::int64_t scratch_elements = 0;
  std::int64_t c_count = 0;
  double cost = 0.0;  // the planner's estimate for one thread, ns

  [[nodiscard]] constexpr double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
           static_cast<double>(iterations) * static_cast<double>(sum_iterations);
  }
};

}  // namespace espalier::kernels
