// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/run/kernels/blas.hpp>
#include <espalier/tensor/run/kernels/contraction/rearrange.hpp>
#include <espalier/tensor/run/kernels/kernel.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace espalier::detail {

template <class A, class B, class C>
using compute_t =
    std::conditional_t<std::is_same_v<A, double> || std::is_same_v<B, double> || std::is_same_v<C, double>, double,
                       float>;

template <class T>
inline void pointwise_row(std::int64_t n, T alpha, const T* ESPALIER_RESTRICT a, std::int64_t a_step,
                          const T* ESPALIER_RESTRICT b, std::int64_t b_step, T beta, T* ESPALIER_RESTRICT c,
                          std::int64_t c_step) {
  const auto each = [&](auto&& product) {
    if (c_step == 1 && beta == T(0)) {
      ESPALIER_OMP(simd)
      for (std::int64_t i = 0; i < n; ++i) c[i] = product(i);
    } else if (c_step == 1) {
      ESPALIER_OMP(simd)
      for (std::int64_t i = 0; i < n; ++i) c[i] = product(i) + beta * c[i];
    } else {
      ESPALIER_OMP(simd)
      for (std::int64_t i = 0; i < n; ++i) c[i * c_step] = product(i) + (beta == T(0) ? T(0) : beta * c[i * c_step]);
    }
  };
  if (a_step == 1 && b_step == 1) {
    each([=](std::int64_t i) { return alpha * a[i] * b[i]; });
  } else if (a_step == 1 && b_step == 0) {
    each([=, factor = alpha * b[0]](std::int64_t i) { return factor * a[i]; });
  } else if (a_step == 0 && b_step == 1) {
    each([=, factor = alpha * a[0]](std::int64_t i) { return factor * b[i]; });
  } else {
    each([=](std::int64_t i) { return alpha * a[i * a_step] * b[i * b_step]; });
  }
}

/// Part of a product: rows [row, row + rows) and columns [column, column + columns) of its result.
struct product_block {
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t column = 0;
  std::int64_t columns = 0;
};

template <class Backend, class T>
void run_product(const kernels::gemm_plan& p, const T* a, const T* b, T* c, T alpha, T beta, const product_block& part,
                 const kernels::product_tail* tail) {
  c += part.row * p.c_row + part.column * p.c_column;
  a += part.row * p.a_row;
  switch (p.kind) {
    case product_kind::gemm:
      Backend::gemm(part.rows, part.columns, p.k, alpha, matrix_view<const T>{a, p.a_row, p.a_column},
                    matrix_view<const T>{b + part.column * p.b_column, p.b_row, p.b_column}, beta, c, p.c_row,
                    part_tail{tail, part.row, part.column});
      break;
    case product_kind::gemv:
      Backend::gemv(part.rows, p.k, alpha, matrix_view<const T>{a, p.a_row, p.a_column}, b, p.b_row, beta, c, p.c_row);
      break;
    case product_kind::dots:
      b += part.row * p.b_row;
      for (std::int64_t i = 0; i < part.rows; ++i) {
        const T sum = alpha * strided_dot(p.k, a + i * p.a_row, p.a_column, b + i * p.b_row, p.b_column);
        T& out = c[i * p.c_row];
        out = beta == T(0) ? sum : sum + beta * out;
      }
      break;
    case product_kind::pointwise:
      a += part.column * p.a_column;
      b += part.row * p.b_row + part.column * p.b_column;
      for (std::int64_t i = 0; i < part.rows; ++i) {
        pointwise_row(part.columns, alpha, a + i * p.a_row, p.a_column, b + i * p.b_row, p.b_column, beta,
                      c + i * p.c_row, p.c_column);
      }
      break;
    case product_kind::empty: break;
  }
}

/// A product is cut along its longer side: the shorter operand is then read by every thread, and the longer by one.
[[nodiscard]] inline bool cuts_columns(const kernels::gemm_plan& p) {
  return (p.kind == product_kind::gemm || p.kind == product_kind::pointwise) && p.n > p.m;
}

/// The products of one iteration of the loops, each of which adds to the same part of C.
template <class Backend, class T>
void run_iteration(const kernels::gemm_plan& p, const T* a, const T* b, T* c, T alpha, T beta, std::int64_t iteration,
                   const product_block& part, const kernels::product_tail* tail = nullptr) {
  const loop_axis at = locate(p.loops, p.loop_count, iteration);
  for (std::int64_t s = 0; s < p.sum_iterations; ++s) {
    const loop_axis term = locate(p.sum_loops, p.sum_loop_count, s);
    run_product<Backend>(p, a + at.a + term.a, b + at.b + term.b, c + at.c, alpha, s == 0 ? beta : T(1), part, tail);
  }
}

/// Whether `tail` can follow a product whose C is written where it belongs. @param by_columns whether threads share
/// columns
template <class T>
[[nodiscard]] bool takes_tail(const kernels::gemm_plan& p, const kernels::product_tail& tail, bool by_columns) {
  const bool is_matrix = p.kind == product_kind::gemm && p.iterations == 1 && p.sum_iterations == 1 &&
                         p.c_column == 1 && p.c_row == p.n && p.m * p.n == p.c_count;
  const bool fits = tail.columns == 0 ? is_long_row(p.n) : tail.columns == p.n;
  return is_matrix && fits && !(tail.takes_whole_rows && (by_columns || p.n > tile_sizes<T>::width));
}

/// The loops around the innermost product, shared among threads. Where they do not share out evenly, each product is
/// cut into as many parts as there are threads: that scales better than a BLAS's own threads, which wait for each other
/// several times in a product.
template <class Backend, class T>
void run_products(const kernels::gemm_plan& p, const T* a, const T* b, T* c, T alpha, T beta,
                  kernels::product_tail* tail) {
  const int threads = p.flops() < 2.0 * parallel_threshold ? 1 : available_threads();
  const bool by_columns = cuts_columns(p);
  const std::int64_t length = by_columns ? p.n : p.m;
  const bool even = p.iterations % threads == 0 || p.iterations >= 4 * threads;
  const std::int64_t cuts = even ? 1 : smaller_of<std::int64_t>(threads, length);
  const std::int64_t grain = p.kind != product_kind::gemm ? 1
                             : by_columns                 ? tile_sizes<T>::columns
                                                          : tile_sizes<T>::rows;
  const std::int64_t cut_length = ((length + cuts - 1) / cuts + grain - 1) / grain * grain;
  const std::int64_t total = p.iterations * cuts;
  const bool is_taken = tail != nullptr && takes_tail<T>(p, *tail, by_columns && cuts > 1);
  const kernels::product_tail* const taken = is_taken ? tail : nullptr;
  if (is_taken) {
    tail->is_taken = true;
    tail->columns = p.n;
  }
  const auto run = [&](std::int64_t index) {
    const std::int64_t first = index % cuts * cut_length;
    const std::int64_t count = smaller_of(cut_length, length - first);
    if (count <= 0) return;
    const product_block part = by_columns ? product_block{0, p.m, first, count} : product_block{first, count, 0, p.n};
    run_iteration<Backend>(p, a, b, c, alpha, beta, index / cuts, part, taken);
  };
  if (threads == 1 || total == 1) {
    for (std::int64_t i = 0; i < total; ++i) run(i);
    return;
  }
  ESPALIER_OMP(parallel for num_threads(threads) schedule(static))
  for (std::int64_t i = 0; i < total; ++i) run(i);
}

template <class T, class Stored>
[[nodiscard]] const T* gather(const copy_plan& copy, const Stored* tensor, T* scratch) {
  if (copy.active) {
    run_copy<T>(copy, tensor, scratch + copy.offset, T(0));
    return scratch + copy.offset;
  }
  if constexpr (std::is_same_v<T, Stored>) return tensor;
  return nullptr;  // a tensor of another type is always copied
}

template <class Backend, class A, class B, class C>
void run_contraction(const kernels::gemm_plan& plan, const A* a, const B* b, C* c, compute_t<A, B, C> alpha,
                     compute_t<A, B, C> beta, void* scratch, kernels::product_tail* tail = nullptr) {
  using T = compute_t<A, B, C>;
  if (plan.kind == product_kind::empty) {
    for (std::int64_t i = 0; i < plan.c_count; ++i)
      c[i] = beta == T(0) ? C(T(0)) : static_cast<C>(beta * static_cast<T>(c[i]));
    return;
  }
  T* const room = static_cast<T*>(scratch);
  const T* first = gather<T>(plan.copy[operand_a], a, room);
  const T* second = gather<T>(plan.copy[operand_b], b, room);
  if (plan.swapped) std::swap(first, second);
  const copy_plan& out = plan.copy[operand_c];
  if (out.active) {
    run_products<Backend>(plan, first, second, room + out.offset, alpha, T(0), nullptr);
    run_copy<T>(out, room + out.offset, c, beta);
  } else if constexpr (std::is_same_v<T, C>) {
    run_products<Backend>(plan, first, second, c, alpha, beta, tail);
  }
}

/// One iteration of a plan without scratch, on one thread; of a square one, if asked for, little more than the lower
/// triangle: a few blocks of whole tiles' columns, from the diagonal down.
template <class Backend, class A, class B, class C>
void run_contraction_item(const kernels::gemm_plan& plan, const A* a, const B* b, C* c, std::int64_t item,
                          bool lower_triangle) {
  using T = compute_t<A, B, C>;
  // A tensor of another type is converted in scratch, and such a plan has no items.
  if constexpr (std::is_same_v<A, T> && std::is_same_v<B, T> && std::is_same_v<C, T>) {
    constexpr std::int64_t narrowest = larger_of<std::int64_t>(tile_sizes<T>::columns, kernels::triangle_grain);
    constexpr std::int64_t most_blocks = 8;
    const std::int64_t tiles = (plan.n + most_blocks * narrowest - 1) / (most_blocks * narrowest);
    const std::int64_t block = lower_triangle ? tiles * narrowest : plan.n;
    for (std::int64_t j = 0; j < plan.n; j += block) {
      const product_block below{j, plan.m - j, j, smaller_of(block, plan.n - j)};
      run_iteration<Backend>(plan, plan.swapped ? b : a, plan.swapped ? a : b, c, T(1), T(0), item, below);
    }
  }
}

}  // namespace espalier::detail
