// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/simd.hpp>
#include <espalier/tensor/run/kernels/gemm.hpp>

#include <cstdint>
#include <string_view>
#include <type_traits>

// The one place that names CBLAS. CMake defines ESPALIER_USE_CBLAS where it found one; without it, or where the header
// is missing, the library's own kernels serve.
#if defined(ESPALIER_USE_CBLAS) && __has_include(<cblas.h>)
// OpenBLAS's header declares a global `bfloat16`: espalier's would be ambiguous after `using namespace espalier`.
#define bfloat16 espalier_openblas_bfloat16
#include <cblas.h>
#undef bfloat16
#define ESPALIER_HAS_CBLAS 1
#else
#define ESPALIER_HAS_CBLAS 0
#endif

namespace espalier::kernels {

/// Returns a warning if the matrix products are slow, else null. OpenBLAS chooses its kernels by the processor's model
/// number; a model that it does not know gets those of the first 64-bit processors, a fifth of the speed.
[[nodiscard]] inline const char* blas_warning() {
#if ESPALIER_HAS_CBLAS && defined(ESPALIER_USE_OPENBLAS) && defined(__GNUC__) && defined(__x86_64__)
  const std::string_view chosen = openblas_get_corename();
  const bool oldest = chosen == "Prescott" || chosen == "Core2" || chosen == "Generic" || chosen == "Unknown";
  if (oldest && __builtin_cpu_supports("avx512f") != 0) {
    return "OpenBLAS does not know this processor and runs at a fraction of its speed. "
           "Set OPENBLAS_CORETYPE=SkylakeX in the environment.";
  }
  if (oldest && __builtin_cpu_supports("avx2") != 0) {
    return "OpenBLAS does not know this processor and runs at a fraction of its speed. "
           "Set OPENBLAS_CORETYPE=Haswell in the environment.";
  }
#endif
  return nullptr;
}

}  // namespace espalier::kernels

namespace espalier::detail {

/// sum_i x[i] y[i] with several running sums, so that it runs at the speed of memory and not of one addition chain.
template <class T>
[[nodiscard]] inline T strided_dot(std::int64_t n, const T* ESPALIER_RESTRICT x, std::int64_t incx,
                                   const T* ESPALIER_RESTRICT y, std::int64_t incy) {
  constexpr int lanes = 4 * simd_bytes / static_cast<int>(sizeof(T));
  T sum[lanes] = {};
  std::int64_t i = 0;
  if (incx == 1 && incy == 1) {
    for (; i + lanes <= n; i += lanes) {
      ESPALIER_OMP(simd)
      for (int l = 0; l < lanes; ++l) sum[l] += x[i + l] * y[i + l];
    }
  } else {
    for (; i + 4 <= n; i += 4)
      for (int l = 0; l < 4; ++l) sum[l] += x[(i + l) * incx] * y[(i + l) * incy];
  }
  for (; i < n; ++i) sum[0] += x[i * incx] * y[i * incy];
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) sum[l] += sum[l + width];
  return sum[0];
}

/// y = alpha A x + beta y on one thread; A is m x n with one unit stride.
template <class T>
void plain_gemv(std::int64_t m, std::int64_t n, T alpha, matrix_view<const T> a, const T* ESPALIER_RESTRICT x,
                std::int64_t incx, T beta, T* ESPALIER_RESTRICT y, std::int64_t incy) {
  if (a.column_stride == 1 || incy != 1) {
    for (std::int64_t i = 0; i < m; ++i) {
      const T sum = alpha * strided_dot(n, a.data + i * a.row_stride, a.column_stride, x, incx);
      y[i * incy] = beta == T(0) ? sum : sum + beta * y[i * incy];
    }
    return;
  }
  constexpr std::int64_t block = 512;  // this much of y stays in L1 while the columns pass
  for (std::int64_t first = 0; first < m; first += block) {
    const std::int64_t rows = smaller_of(block, m - first);
    T* ESPALIER_RESTRICT out = y + first;
    ESPALIER_OMP(simd)
    for (std::int64_t i = 0; i < rows; ++i) out[i] = beta == T(0) ? T(0) : beta * out[i];
    for (std::int64_t j = 0; j < n; ++j) {
      const T factor = alpha * x[j * incx];
      const T* ESPALIER_RESTRICT column = a.data + first * a.row_stride + j * a.column_stride;
      if (a.row_stride == 1) {
        ESPALIER_OMP(simd)
        for (std::int64_t i = 0; i < rows; ++i) out[i] += factor * column[i];
      } else {
        for (std::int64_t i = 0; i < rows; ++i) out[i] += factor * column[i * a.row_stride];
      }
    }
  }
}

/// The library's own products. As with every backend, each call is to run on one thread: `contract` shares the work.
struct blocked_backend {
  template <class T>
  static void gemm(std::int64_t m, std::int64_t n, std::int64_t k, T alpha, matrix_view<const T> a,
                   matrix_view<const T> b, T beta, T* c, std::int64_t ldc, const part_tail& tail = {}) {
    blocked_gemm(m, n, k, alpha, a, b, beta, c, ldc, tail);
  }
  template <class T>
  static void gemv(std::int64_t m, std::int64_t n, T alpha, matrix_view<const T> a, const T* x, std::int64_t incx,
                   T beta, T* y, std::int64_t incy) {
    plain_gemv(m, n, alpha, a, x, incx, beta, y, incy);
  }
};

#if ESPALIER_HAS_CBLAS

[[nodiscard]] inline int blas_int(std::int64_t value) { return static_cast<int>(value); }

/// Products by the CBLAS that was linked. A matrix with unit column stride goes in as it is, one with unit row stride
/// as its transpose.
/// The BLAS must run on one thread when called inside a parallel region (openblas-openmp, MKL and BLIS with OpenMP do;
/// OpenBLAS with its own pthreads needs OPENBLAS_NUM_THREADS=1).
struct cblas_backend {
  static void gemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, matrix_view<const float> a,
                   matrix_view<const float> b, float beta, float* c, std::int64_t ldc, const part_tail& tail = {}) {
    cblas_sgemm(CblasRowMajor, transposed(a), transposed(b), blas_int(m), blas_int(n), blas_int(k), alpha, a.data,
                leading(a), b.data, leading(b), beta, c, blas_int(ldc));
    tail.run(0, m, 0, n);
  }
  static void gemm(std::int64_t m, std::int64_t n, std::int64_t k, double alpha, matrix_view<const double> a,
                   matrix_view<const double> b, double beta, double* c, std::int64_t ldc, const part_tail& tail = {}) {
    cblas_dgemm(CblasRowMajor, transposed(a), transposed(b), blas_int(m), blas_int(n), blas_int(k), alpha, a.data,
                leading(a), b.data, leading(b), beta, c, blas_int(ldc));
    tail.run(0, m, 0, n);
  }
  static void gemv(std::int64_t m, std::int64_t n, float alpha, matrix_view<const float> a, const float* x,
                   std::int64_t incx, float beta, float* y, std::int64_t incy) {
    const bool flip = a.column_stride != 1;
    cblas_sgemv(CblasRowMajor, transposed(a), blas_int(flip ? n : m), blas_int(flip ? m : n), alpha, a.data, leading(a),
                x, blas_int(incx), beta, y, blas_int(incy));
  }
  static void gemv(std::int64_t m, std::int64_t n, double alpha, matrix_view<const double> a, const double* x,
                   std::int64_t incx, double beta, double* y, std::int64_t incy) {
    const bool flip = a.column_stride != 1;
    cblas_dgemv(CblasRowMajor, transposed(a), blas_int(flip ? n : m), blas_int(flip ? m : n), alpha, a.data, leading(a),
                x, blas_int(incx), beta, y, blas_int(incy));
  }

 private:
  template <class T> [[nodiscard]] static CBLAS_TRANSPOSE transposed(matrix_view<T> matrix) {
    return matrix.column_stride == 1 ? CblasNoTrans : CblasTrans;
  }
  template <class T> [[nodiscard]] static int leading(matrix_view<T> matrix) {
    return blas_int(matrix.column_stride == 1 ? matrix.row_stride : matrix.column_stride);
  }
};

/// The library's own products with AVX-512, for which they were tuned: OpenBLAS 0.3.21 is as fast for large ones, and
/// slower by 5 to 20 % where rearranging operands, or clearing the result first, is felt. Other products by the CBLAS.
struct tuned_backend {
  template <class T>
  static void gemm(std::int64_t m, std::int64_t n, std::int64_t k, T alpha, matrix_view<const T> a,
                   matrix_view<const T> b, T beta, T* c, std::int64_t ldc, const part_tail& tail = {}) {
    const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    if (work < own_below) {
      blocked_gemm(m, n, k, alpha, a, b, beta, c, ldc, tail);
    } else {
      cblas_backend::gemm(m, n, k, alpha, a, b, beta, c, ldc, tail);
    }
  }
  template <class T>
  static void gemv(std::int64_t m, std::int64_t n, T alpha, matrix_view<const T> a, const T* x, std::int64_t incx,
                   T beta, T* y, std::int64_t incy) {
    cblas_backend::gemv(m, n, alpha, a, x, incx, beta, y, incy);
  }

 private:
  static constexpr double own_below = 2.5e9;
};

using default_backend = std::conditional_t<simd_bytes == 64, tuned_backend, cblas_backend>;
#else
using default_backend = blocked_backend;
#endif

/// Whether each element of a product adds in the same order however many rows the product has, as the library's own
/// does. (Those of other libraries may treat the last rows in another way.)
inline constexpr bool adds_in_one_order = !ESPALIER_HAS_CBLAS || simd_bytes == 64;

}  // namespace espalier::detail
