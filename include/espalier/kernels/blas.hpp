// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>

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

/// What is wrong with the speed of the matrix products, or nothing. OpenBLAS chooses its kernels by the processor's
/// model number; one it does not know gets those of the first 64-bit processors, a fifth of the speed.
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

/// A matrix in memory: element (i, j) stands at `data[i * row_stride + j * column_stride]`.
template <class T> struct matrix_view {
  T* data;
  std::int64_t row_stride;
  std::int64_t column_stride;
};

#if defined(__GNUC__)
#if defined(__AVX512F__)
inline constexpr int simd_bytes = 64;
#elif defined(__AVX__)
inline constexpr int simd_bytes = 32;
#else
inline constexpr int simd_bytes = 16;
#endif
/// One vector register; may alias and need not be aligned, so that rows of any matrix can be read through it.
template <class T> using simd_vector [[gnu::vector_size(simd_bytes), gnu::aligned(alignof(T)), gnu::may_alias]] = T;
#endif

/// Tile sizes of the library's own matrix product: a `rows` x `columns` tile of C lives in registers, a block of A and
/// a panel of B in L2. Both buffers are on the stack of the thread that works: 0.22 MB for float, 0.44 MB for double.
template <class T> struct tile_sizes {
#if defined(__AVX512F__)
  static constexpr int rows = 12;  // 24 of 32 registers accumulate
#elif defined(__AVX__)
  static constexpr int rows = 6;  // 12 of 16
#else
  static constexpr int rows = 4;  // SSE has no three-operand FMA: leave registers for products
#endif
  static constexpr int vectors = 2;
  static constexpr int columns = vectors * simd_bytes / static_cast<int>(sizeof(T));
  static constexpr int block_m = 96;  // a multiple of every `rows` above
  static constexpr int block_n = 192;
  static constexpr int block_k = 192;
};

/// tile = (rows of a packed A strip) x (columns of a packed B strip) over `depth`.
/// `a` holds `rows` values per step, `b` holds `columns`.
template <class T>
inline void micro_kernel(std::int64_t depth, const T* ESPALIER_RESTRICT a, const T* ESPALIER_RESTRICT b,
                         T* ESPALIER_RESTRICT tile) {
  using sizes = tile_sizes<T>;
  using vector = simd_vector<T>;
  constexpr int lanes = sizes::columns / sizes::vectors;
  vector sum[sizes::rows][sizes::vectors] = {};
  for (std::int64_t p = 0; p < depth; ++p) {
    const vector b0 = *reinterpret_cast<const vector*>(b);
    const vector b1 = *reinterpret_cast<const vector*>(b + lanes);
#if defined(__clang__)
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 16
#endif
    for (int i = 0; i < sizes::rows; ++i) {
      sum[i][0] += a[i] * b0;
      sum[i][1] += a[i] * b1;
    }
    a += sizes::rows;
    b += sizes::columns;
  }
#if defined(__clang__)
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 16
#endif
  for (int i = 0; i < sizes::rows; ++i) {
    *reinterpret_cast<vector*>(tile + i * sizes::columns) = sum[i][0];
    *reinterpret_cast<vector*>(tile + i * sizes::columns + lanes) = sum[i][1];
  }
}

/// Copies `count` x `depth` elements into strips of `Width`: element (i, p) of a strip goes to [p * Width + i].
/// The last strip is filled up with zeros, so that the micro kernel knows one shape only.
template <int Width, class T>
void pack_strips(matrix_view<const T> from, std::int64_t count, std::int64_t depth, T* ESPALIER_RESTRICT to) {
  for (std::int64_t first = 0; first < count; first += Width) {
    const std::int64_t width = std::min<std::int64_t>(Width, count - first);
    const T* ESPALIER_RESTRICT source = from.data + first * from.row_stride;
    if (width < Width) {
      for (std::int64_t p = 0; p < depth; ++p)
        for (std::int64_t i = 0; i < Width; ++i)
          to[p * Width + i] = i < width ? source[i * from.row_stride + p * from.column_stride] : T(0);
    } else if (from.row_stride == 1) {
      for (std::int64_t p = 0; p < depth; ++p) {
        ESPALIER_OMP(simd)
        for (std::int64_t i = 0; i < Width; ++i) to[p * Width + i] = source[i + p * from.column_stride];
      }
    } else {
      for (std::int64_t p = 0; p < depth; ++p)
        for (std::int64_t i = 0; i < Width; ++i)
          to[p * Width + i] = source[i * from.row_stride + p * from.column_stride];
    }
    to += Width * depth;
  }
}

/// C = alpha A B + beta C on one thread; A is m x k, B is k x n, C is m x n with unit column stride. Any strides for A
/// and B, since both are packed. With beta = 0, C is written without being read.
template <class T>
void blocked_gemm(std::int64_t m, std::int64_t n, std::int64_t k, T alpha, matrix_view<const T> a,
                  matrix_view<const T> b, T beta, T* c, std::int64_t ldc) {
  using sizes = tile_sizes<T>;
  constexpr int padded_n = (sizes::block_n + sizes::columns - 1) / sizes::columns * sizes::columns;
  alignas(64) T a_block[sizes::block_m * sizes::block_k];
  alignas(64) T b_panel[padded_n * sizes::block_k];
  alignas(64) T tile[sizes::rows * sizes::columns];
  for (std::int64_t n0 = 0; n0 < n; n0 += sizes::block_n) {
    const std::int64_t nb = std::min<std::int64_t>(sizes::block_n, n - n0);
    for (std::int64_t k0 = 0; k0 < k; k0 += sizes::block_k) {
      const std::int64_t kb = std::min<std::int64_t>(sizes::block_k, k - k0);
      const T keep = k0 == 0 ? beta : T(1);
      // B is packed by columns, so it is handed over as its transpose.
      pack_strips<sizes::columns, T>({b.data + k0 * b.row_stride + n0 * b.column_stride, b.column_stride, b.row_stride},
                                     nb, kb, b_panel);
      for (std::int64_t m0 = 0; m0 < m; m0 += sizes::block_m) {
        const std::int64_t mb = std::min<std::int64_t>(sizes::block_m, m - m0);
        pack_strips<sizes::rows, T>({a.data + m0 * a.row_stride + k0 * a.column_stride, a.row_stride, a.column_stride},
                                    mb, kb, a_block);
        for (std::int64_t j = 0; j < nb; j += sizes::columns) {
          const std::int64_t columns = std::min<std::int64_t>(sizes::columns, nb - j);
          for (std::int64_t i = 0; i < mb; i += sizes::rows) {
            const std::int64_t rows = std::min<std::int64_t>(sizes::rows, mb - i);
            micro_kernel(kb, a_block + i * kb, b_panel + j * kb, tile);
            T* ESPALIER_RESTRICT out = c + (m0 + i) * ldc + n0 + j;
            for (std::int64_t r = 0; r < rows; ++r) {
              const T* row = tile + r * sizes::columns;
              if (keep == T(0)) {
                ESPALIER_OMP(simd)
                for (std::int64_t x = 0; x < columns; ++x) out[r * ldc + x] = alpha * row[x];
              } else {
                ESPALIER_OMP(simd)
                for (std::int64_t x = 0; x < columns; ++x) out[r * ldc + x] = alpha * row[x] + keep * out[r * ldc + x];
              }
            }
          }
        }
      }
    }
  }
}

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
    const std::int64_t rows = std::min(block, m - first);
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

/// The library's own products: single-threaded each, so `contract` shares the rows of one product among threads.
struct blocked_backend {
  static constexpr bool threads_inside = false;
  template <class T>
  static void gemm(std::int64_t m, std::int64_t n, std::int64_t k, T alpha, matrix_view<const T> a,
                   matrix_view<const T> b, T beta, T* c, std::int64_t ldc) {
    blocked_gemm(m, n, k, alpha, a, b, beta, c, ldc);
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
  static constexpr bool threads_inside = true;

  static void gemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, matrix_view<const float> a,
                   matrix_view<const float> b, float beta, float* c, std::int64_t ldc) {
    cblas_sgemm(CblasRowMajor, transposed(a), transposed(b), blas_int(m), blas_int(n), blas_int(k), alpha, a.data,
                leading(a), b.data, leading(b), beta, c, blas_int(ldc));
  }
  static void gemm(std::int64_t m, std::int64_t n, std::int64_t k, double alpha, matrix_view<const double> a,
                   matrix_view<const double> b, double beta, double* c, std::int64_t ldc) {
    cblas_dgemm(CblasRowMajor, transposed(a), transposed(b), blas_int(m), blas_int(n), blas_int(k), alpha, a.data,
                leading(a), b.data, leading(b), beta, c, blas_int(ldc));
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

using default_backend = cblas_backend;
#else
using default_backend = blocked_backend;
#endif

}  // namespace espalier::detail
