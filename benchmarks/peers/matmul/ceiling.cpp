// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The machine's own ceilings, printed above the table of benchmarks/run: products and streams of large arrays, and what
// collect.py compares single rows with: multiply-adds in registers, and reading and copying arrays of the sizes that
// rows have, in the second cache, in the last one and in memory.
#include "../../machine.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <string>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace {

namespace bench = espalier::benchmarks;

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif
typedef float lanes __attribute__((vector_size(vector_bytes), may_alias));

/// GFLOP/s of multiply-adds of f32 that read and write registers only: as many chains as hide their latency.
double multiply_add_rate(int threads) {
  bench::set_threads(threads);
  constexpr int chains = 12;
  constexpr int length = 2'000'000;
  const auto work = [] {
    lanes sum[chains]{};
    lanes factor{};
    factor += 0.999F;
    for (int n = 0; n < length; ++n) {
#pragma GCC unroll 12
      for (lanes& one : sum) one = one * factor + factor;
    }
    for (const lanes& one : sum) bench::keep(one);
  };
  const double taken = bench::median_seconds(
      [&] {
        ESPALIER_OMP(parallel for)
        for (int t = 0; t < threads; ++t) work();
      },
      {2, 9});
  return 2.0 * chains * length * (vector_bytes / 4) * threads / taken * 1e-9;
}

/// Memory in pages of 2 MiB, as the library's own.
class array {
 public:
  explicit array(std::size_t bytes) : bytes_(std::max(bytes, page)) {
    data_ = static_cast<float*>(std::aligned_alloc(page, (bytes_ + page - 1) / page * page));
    if (data_ == nullptr) throw std::bad_alloc();
    madvise(data_, bytes_, MADV_HUGEPAGE);
  }
  array(const array&) = delete;
  array& operator=(const array&) = delete;
  ~array() { std::free(data_); }
  [[nodiscard]] float* data() const { return data_; }

 private:
  static constexpr std::size_t page = std::size_t{1} << 21U;
  std::size_t bytes_;
  float* data_ = nullptr;
};

void copy_through_caches(float* ESPALIER_RESTRICT to, const float* ESPALIER_RESTRICT from, std::ptrdiff_t count) {
  for (std::ptrdiff_t i = 0; i < count; ++i) to[i] = from[i];
}
/// Lines that are written whole are not read first.
void copy_past_caches(float* to, const float* from, std::ptrdiff_t count) {
#if defined(__SSE2__)
  for (std::ptrdiff_t i = 0; i < count; i += 16) {
    for (std::ptrdiff_t k = i; k < i + 16; k += 4) _mm_stream_ps(to + k, _mm_load_ps(from + k));
  }
  _mm_sfence();
#else
  copy_through_caches(to, from, count);
#endif
}
float sum_of(const float* from, std::ptrdiff_t count) {
  constexpr int width = vector_bytes / 4;
  lanes sum[8]{};
  for (std::ptrdiff_t i = 0; i < count; i += 8 * width) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) sum[k] += *reinterpret_cast<const lanes*>(from + i + k * width);
  }
  lanes all{};
  for (const lanes& one : sum) all += one;
  return all[0];
}

struct rates {
  double read = 0;
  double copy = 0;
};

/// GB/s of reading `bytes` in all, and of copying half of them to the other half, each thread its own part.
rates memory_rates(int threads, std::size_t bytes) {
  bench::set_threads(threads);
  const array from(bytes / 2);
  const array to(bytes / 2);
  const auto part = static_cast<std::ptrdiff_t>(bytes / 2 / sizeof(float)) / threads;
  ESPALIER_OMP(parallel for schedule(static))
  for (int t = 0; t < threads; ++t) {
    for (std::ptrdiff_t i = t * part; i < (t + 1) * part; ++i) to.data()[i] = from.data()[i] = 1;
  }
  // Small arrays are passed over often, or starting the threads would count.
  const int passes = static_cast<int>(std::max<std::size_t>(1, (std::size_t{32} << 20U) / bytes));
  const auto gigabytes = [&](auto&& body) {
    const double taken = bench::median_seconds(
        [&] {
          ESPALIER_OMP(parallel for schedule(static))
          for (int t = 0; t < threads; ++t) {
            for (int n = 0; n < passes; ++n) body(to.data() + t * part, from.data() + t * part);
          }
        },
        {2, 7});
    return static_cast<double>(bytes) * passes / taken * 1e-9;
  };
  rates found;
  found.read = gigabytes([&](float* a, float* b) {
    bench::keep(sum_of(a, part));
    bench::keep(sum_of(b, part));
  });
  const auto copy = [&](auto&& how) {
    return gigabytes([&](float* a, float* b) {
      how(a, b, part);
      bench::keep(*a);
    });
  };
  found.copy = std::max(copy(copy_through_caches), copy(copy_past_caches));
  return found;
}

void report(const std::string& what, double value, const char* unit, const char* kind, int threads, std::size_t bytes) {
  bench::report("machine", what + " " + std::to_string(threads) + (threads == 1 ? " thread" : " threads"), value, unit,
                "\"kind\": \"" + std::string(kind) + "\", \"threads\": " + std::to_string(threads) +
                    ", \"arrays\": " + std::to_string(bytes));
}

}  // namespace

int main(int argc, char** argv) {
  const int most = argc > 1 ? std::atoi(argv[1]) : 2;
  std::fprintf(stderr, "OpenBLAS kernels: %.*s\n", static_cast<int>(bench::blas_kernels().size()),
               bench::blas_kernels().data());
  for (int threads = 1; threads <= most; ++threads) {
    const std::string suffix = " " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
    bench::report("machine", "sgemm 2048" + suffix, bench::matmul_rate<float>(2048, threads), "GFLOP/s");
    bench::report("machine", "dgemm 2048" + suffix, bench::matmul_rate<double>(2048, threads), "GFLOP/s");
    const auto stream = bench::stream_bandwidth(threads);
    bench::report("machine", "stream copy" + suffix, stream.copy, "GB/s");
    bench::report("machine", "stream triad" + suffix, stream.triad, "GB/s");
    report("multiply-adds f32", multiply_add_rate(threads), "GFLOP/s", "multiply-adds", threads, 0);
    for (const std::size_t kibibytes : {512, 8 << 10, 32 << 10, 64 << 10, 1 << 20}) {
      const std::size_t bytes = kibibytes << 10U;
      const std::string size =
          kibibytes < 1024 ? std::to_string(kibibytes) + " KiB" : std::to_string(kibibytes >> 10U) + " MiB";
      const rates found = memory_rates(threads, bytes);
      report("read " + size, found.read, "GB/s", "read", threads, bytes);
      report("copy " + size, found.copy, "GB/s", "copy", threads, bytes);
    }
  }
}
