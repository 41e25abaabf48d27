// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <cblas.h>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(ESPALIER_USE_OPENBLAS)
extern "C" void openblas_set_num_threads(int);
extern "C" char* openblas_get_corename(void);
#endif

/// The common part of every benchmark program: timing, the machine's own ceiling, and the line that benchmarks/run
/// collects.
namespace espalier::benchmarks {

/// Seconds of the steady clock since an arbitrary point.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds that one call of `body` takes.
template <class Body> double seconds(Body&& body) {
  const double begin = now();
  body();
  return now() - begin;
}

/// The median; of an even number of samples the upper one, so that it is a sample.
/// @pre !samples.empty()
inline double median(std::vector<double> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

/// How often something is measured, after how many runs that don't count.
struct repeats {
  int warm_up = 3;
  int measured = 15;
};

/// Median seconds of a call of `body`.
template <class Body> double median_seconds(Body&& body, repeats how = {}) {
  for (int i = 0; i < how.warm_up; ++i) body();
  std::vector<double> samples;
  for (int i = 0; i < how.measured; ++i) samples.push_back(seconds(body));
  return median(std::move(samples));
}

/// Median seconds of each of several bodies, measured in turn (A B A B ...), so that a machine that slows down for a
/// while slows all of them down. Each runs once unmeasured before: what the other has left over (OpenMP's threads spin
/// for some milliseconds after a loop, and would share the cores with a body that has threads of its own) is not
/// counted as its own.
template <class... Bodies> std::array<double, sizeof...(Bodies)> interleaved_seconds(repeats how, Bodies&&... bodies) {
  std::array<std::vector<double>, sizeof...(Bodies)> samples;
  for (int i = -how.warm_up; i < how.measured; ++i) {
    std::size_t which = 0;
    const auto measure = [&](auto& body) {
      body();
      const double taken = seconds(body);
      if (i >= 0) samples[which].push_back(taken);
      ++which;
    };
    (measure(bodies), ...);
  }
  std::array<double, sizeof...(Bodies)> result{};
  for (std::size_t which = 0; which < result.size(); ++which) result[which] = median(std::move(samples[which]));
  return result;
}

/// Element i of an argument, as peers/speed/rows.py draws it too: from -2 to 2, in no order.
[[nodiscard]] inline double drawn(std::int64_t i, int argument) {
  return static_cast<double>((i * 7919 + argument * 104729) % 4001) / 1000.0 - 2.0;
}

/// Keeps the compiler from dropping the computation of `value`.
template <class T> void keep(const T& value) { asm volatile("" : : "r"(&value) : "memory"); }

/// Sets the number of threads of OpenMP loops and of the CBLAS.
inline void set_threads([[maybe_unused]] int threads) {
#if defined(_OPENMP)
  omp_set_num_threads(threads);
#endif
#if defined(ESPALIER_USE_OPENBLAS)
  openblas_set_num_threads(threads);
#endif
}

/// The kernels that the CBLAS chose for this processor, or "unknown".
/// OpenBLAS 0.3.21 takes SSE3 kernels ("Prescott") on Xeons it does not know, five times slower than AVX-512:
/// benchmarks/run sets OPENBLAS_CORETYPE for the project's programs and for their peers alike.
inline std::string_view blas_kernels() {
#if defined(ESPALIER_USE_OPENBLAS)
  return openblas_get_corename();
#else
  return "unknown";
#endif
}

/// C = A B with the CBLAS, row-major n x n.
inline void multiply(std::size_t n, const float* a, const float* b, float* c) {
  const auto size = static_cast<int>(n);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size, size, size, 1.0F, a, size, b, size, 0.0F, c, size);
}
inline void multiply(std::size_t n, const double* a, const double* b, double* c) {
  const auto size = static_cast<int>(n);
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size, size, size, 1.0, a, size, b, size, 0.0, c, size);
}

/// GFLOP/s of the CBLAS's n x n x n product on `threads` threads: the ceiling of whatever is made of matrix products.
/// @pre n > 0 && threads > 0
template <class T> double matmul_rate(std::size_t n, int threads, repeats how = {2, 7}) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>, "a CBLAS multiplies float or double");
  set_threads(threads);
  std::vector<T> a(n * n), b(n * n), c(n * n);
  for (std::size_t i = 0; i < n * n; ++i) {
    a[i] = static_cast<T>(i % 13) / 8;
    b[i] = static_cast<T>(i % 7) / 8;
  }
  const double taken = median_seconds([&] { multiply(n, a.data(), b.data(), c.data()); }, how);
  keep(c);
  const auto size = static_cast<double>(n);
  return 2.0 * size * size * size / taken / 1e9;
}

/// GB/s, counted bytes, of a stream that reads two arrays and writes one (triad) or reads one and writes one (copy).
struct stream_rates {
  double copy = 0;
  double triad = 0;
};

/// Bandwidth of memory on `threads` threads; arrays of `bytes` each, well above the last cache for that of DRAM.
inline stream_rates stream_bandwidth(int threads, std::size_t bytes = std::size_t{512} << 20, repeats how = {1, 5}) {
  set_threads(threads);
  const auto count = static_cast<std::ptrdiff_t>(bytes / sizeof(double));
  const auto allocate = [&](double value) {
    // The threads that will read a page write it first.
    auto* data = new double[static_cast<std::size_t>(count)];
    ESPALIER_OMP(parallel for schedule(static))
    for (std::ptrdiff_t i = 0; i < count; ++i) data[i] = value;
    return data;
  };
  double* ESPALIER_RESTRICT a = allocate(0.0);
  double* ESPALIER_RESTRICT b = allocate(1.0);
  double* ESPALIER_RESTRICT c = allocate(2.0);
  const auto copy = [&] {
    ESPALIER_OMP(parallel for simd schedule(static))
    for (std::ptrdiff_t i = 0; i < count; ++i) a[i] = b[i];
    keep(a);
  };
  const auto triad = [&] {
    ESPALIER_OMP(parallel for simd schedule(static))
    for (std::ptrdiff_t i = 0; i < count; ++i) a[i] = b[i] + 3.0 * c[i];
    keep(a);
  };
  const auto size = static_cast<double>(count) * sizeof(double) / 1e9;
  const auto [copy_seconds, triad_seconds] = interleaved_seconds(how, copy, triad);
  delete[] a;
  delete[] b;
  delete[] c;
  return {2 * size / copy_seconds, 3 * size / triad_seconds};
}

/// Prints one line for benchmarks/run. `what` is "ours" for the project's own number and the peer's name otherwise;
/// `row` is a name in benchmarks/floors.json, or matches a pattern there. `more`: further members of the JSON object.
inline void report(std::string_view row, std::string_view what, double value, std::string_view unit,
                   std::string_view more = "") {
  std::printf("{\"row\": \"%.*s\", \"what\": \"%.*s\", \"value\": %.9g, \"unit\": \"%.*s\"%s%.*s}\n",
              static_cast<int>(row.size()), row.data(), static_cast<int>(what.size()), what.data(), value,
              static_cast<int>(unit.size()), unit.data(), more.empty() ? "" : ", ", static_cast<int>(more.size()),
              more.data());
  std::fflush(stdout);
}

}  // namespace espalier::benchmarks
