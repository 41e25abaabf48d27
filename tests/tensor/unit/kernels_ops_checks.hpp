// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/run/kernels/kernels.hpp>

#include <catch2/catch.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace espalier::test {

/// Elements of some type in memory aligned as the executor's arena, and as doubles.
class buffer {
 public:
  buffer(dtype type, std::int64_t count) : type_(type), count_(count), bytes_(bytes_for(type, count)) {}

  [[nodiscard]] void* data() { return bytes_.data(); }
  [[nodiscard]] std::int64_t size() const { return count_; }

  void set(std::int64_t i, double value) {
    std::byte* at = bytes_.data() + i * size_of(type_);
    with_storage(type_, [=]<class T>(T x) {
      if constexpr (std::is_same_v<T, bool>) {
        x = value != 0;
      } else {
        x = static_cast<T>(static_cast<computed_t<T>>(value));
      }
      std::memcpy(at, &x, sizeof(x));
    });
  }
  [[nodiscard]] double get(std::int64_t i) const {
    const std::byte* at = bytes_.data() + i * size_of(type_);
    return with_storage(type_, [=]<class T>(T /*type*/) {
      // A truth value as the byte it is: only 0 and 1 are any.
      std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T> x{};
      std::memcpy(&x, at, sizeof(x));
      return static_cast<double>(x);
    });
  }

 private:
  struct alignas(64) line {
    std::byte bytes[64];
  };
  class storage {
   public:
    explicit storage(std::size_t lines) : lines_(lines) {}
    [[nodiscard]] std::byte* data() { return &lines_.front().bytes[0]; }
    [[nodiscard]] const std::byte* data() const { return &lines_.front().bytes[0]; }

   private:
    std::vector<line> lines_;
  };
  static storage bytes_for(dtype type, std::int64_t count) {
    return storage(static_cast<std::size_t>(count * size_of(type)) / 64 + 2);
  }

  dtype type_;
  std::int64_t count_;
  storage bytes_;
};

enum class values { any, nonzero, positive, special };

/// Random numbers that the type can hold; `special` mixes in what comparisons and extrema must treat with care.
class generator {
 public:
  explicit generator(unsigned seed = 7) : engine_(seed) {}

  double operator()(dtype type, values kind) {
    if (type == dtype::boolean) return static_cast<double>(engine_() >> 7U & 1U);
    if (is_integer(type)) {
      // Products of two fit in any type; a natural number has no sign.
      const int most = size_of(type) == 1 ? 11 : 20;
      const int drawn = static_cast<int>(engine_() % static_cast<unsigned>(2 * most + 1));
      const int x = facts_of(type).format == number_format::natural ? drawn : drawn - most;
      return kind != values::any && x == 0 ? 1 : kind == values::positive ? std::abs(x) : x;
    }
    if (kind == values::special && engine_() % 8U == 0) {
      const double inf = std::numeric_limits<double>::infinity();
      const double list[]{std::nan(""), inf, -inf, 0.0, -0.0};
      return list[engine_() % 5U];
    }
    const double x = normal_(engine_);
    return kind == values::positive ? std::abs(x) + 0.01 : kind == values::nonzero && std::abs(x) < 0.1 ? 1 : x;
  }
  void fill(buffer& to, dtype type, values kind) {
    for (std::int64_t i = 0; i < to.size(); ++i) to.set(i, (*this)(type, kind));
  }

 private:
  std::mt19937 engine_;
  std::normal_distribution<double> normal_{0, 2};
};

/// Whether a kernel's result is what the type can be expected to give.
inline bool close_enough(double got, double want, dtype type, double terms = 1) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
  if (got == want) return true;
  if (std::isinf(got) || std::isinf(want)) return false;
  const double error = std::abs(got - want);
  switch (type) {
    case dtype::f32: return error <= 1e-6 * (std::abs(want) + 1) * terms;
    case dtype::f64: return error <= 1e-14 * (std::abs(want) + 1) * terms;
    case dtype::bf16: return error <= 0.005 * std::abs(want) + 1e-5 * terms;
    case dtype::f16: return error <= 0.001 * std::abs(want) + 1e-5 * terms;
    default: return false;
  }
}

/// Runs the body with 1, 2 and 3 threads.
template <class Body> void with_threads(Body body) {
#if defined(_OPENMP)
  const int before = omp_get_max_threads();
  for (const int threads : {1, 2, 3}) {
    omp_set_num_threads(threads);
    body();
  }
  omp_set_num_threads(before);
#else
  body();
#endif
}

}  // namespace espalier::test
