// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// together: blocks

#include <tensor/unit/kernels_math_checks.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace kernels = espalier::kernels;
using namespace kernels_math_checks;

namespace {

/// The largest error over `x`, computed by a loop that the compiler may vectorise and again one by one.
template <class T, class Function, class Reference>
double worst(const std::vector<T>& x, Function function, Reference reference) {
  std::vector<T> y(x.size());
  const T* in = x.data();
  T* out = y.data();
  const std::size_t count = x.size();
  ESPALIER_OMP(simd)
  for (std::size_t i = 0; i < count; ++i) out[i] = function(in[i]);
  double result = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    const double error = ulps(y[i], static_cast<wider_t<T>>(reference(static_cast<wider_t<T>>(x[i]))));
    if (error > result) result = error;
  }
  return result;
}

}  // namespace

TEMPLATE_TEST_CASE("exp is accurate over its whole range", "[kernels][math]", float, double) {
  using T = TestType;
  const auto f = [](T x) { return kernels::exp(x); };
  const auto reference = [](auto x) { return std::exp(x); };
  const T limit = sizeof(T) == 4 ? T(104) : T(746);
  CHECK(worst(spread<T>(-limit, limit, 400'000), f, reference) <= 1.1 + slack);
  CHECK(worst(spread<T>(T(-1), T(1), 400'000), f, reference) <= 1.1 + slack);
  CHECK(worst(all_magnitudes<T>(100'000), f, reference) <= 1.1 + slack);
  CHECK(kernels::exp(T(0)) == T(1));
  CHECK(kernels::exp(-T(0)) == T(1));
  CHECK(kernels::exp(-infinity<T>) == T(0));
  CHECK(kernels::exp(infinity<T>) == infinity<T>);
  CHECK(kernels::exp(T(1000)) == infinity<T>);
  CHECK(kernels::exp(T(-1000)) == T(0));
  CHECK(kernels::exp(std::numeric_limits<T>::lowest()) == T(0));
  CHECK(kernels::exp(std::numeric_limits<T>::max()) == infinity<T>);
  CHECK(std::isnan(kernels::exp(not_a_number<T>)));
}

TEMPLATE_TEST_CASE("log is accurate over its whole range", "[kernels][math]", float, double) {
  using T = TestType;
  const auto f = [](T x) { return kernels::log(x); };
  const auto reference = [](auto x) { return std::log(x); };
  CHECK(worst(all_magnitudes<T>(400'000), f, reference) <= 1.0 + slack);
  CHECK(worst(spread<T>(T(0.5), T(2), 400'000), f, reference) <= 1.0 + slack);
  CHECK(kernels::log(T(1)) == T(0));
  CHECK(kernels::log(T(0)) == -infinity<T>);
  CHECK(kernels::log(-T(0)) == -infinity<T>);
  CHECK(kernels::log(infinity<T>) == infinity<T>);
  CHECK(ulps(kernels::log(std::numeric_limits<T>::denorm_min()),
             std::log(static_cast<wider_t<T>>(std::numeric_limits<T>::denorm_min()))) <= 1.0);
  CHECK(std::isnan(kernels::log(T(-1))));
  CHECK(std::isnan(kernels::log(-infinity<T>)));
  CHECK(std::isnan(kernels::log(-std::numeric_limits<T>::denorm_min())));
  CHECK(std::isnan(kernels::log(not_a_number<T>)));
}

TEMPLATE_TEST_CASE("tanh is accurate, odd and saturates at one", "[kernels][math]", float, double) {
  using T = TestType;
  const auto f = [](T x) { return kernels::tanh(x); };
  const auto reference = [](auto x) { return std::tanh(x); };
  CHECK(worst(spread<T>(T(-25), T(25), 400'000), f, reference) <= 3.0 + slack);
  CHECK(worst(spread<T>(T(-1), T(1), 400'000), f, reference) <= 3.0 + slack);
  CHECK(worst(all_magnitudes<T>(100'000), f, reference) <= 3.0 + slack);
  for (const T x : spread<T>(T(0), T(25), 5'000)) CHECK(kernels::tanh(-x) == -kernels::tanh(x));
  for (const T x : {T(9.5), T(30), T(1e30), std::numeric_limits<T>::max(), infinity<T>})
    CHECK((sizeof(T) == 8 && x < T(20) ? T(1) : kernels::tanh(x)) == T(1));
  CHECK(kernels::tanh(-infinity<T>) == T(-1));
  CHECK(std::signbit(kernels::tanh(-T(0))));
  CHECK_FALSE(std::signbit(kernels::tanh(T(0))));
  CHECK(std::isnan(kernels::tanh(not_a_number<T>)));
}

TEMPLATE_TEST_CASE("sigmoid, silu and gelu follow their definitions", "[kernels][math]", float, double) {
  using T = TestType;
  using W = wider_t<T>;
  const T normal = sizeof(T) == 4 ? T(87) : T(700);
  CHECK(worst(
            spread<T>(-normal, normal, 400'000), [](T x) { return kernels::sigmoid(x); },
            [](W x) { return W(1) / (W(1) + std::exp(-x)); }) <= 3.0 + slack);
  CHECK(worst(
            spread<T>(-normal, normal, 400'000), [](T x) { return kernels::silu(x); },
            [](W x) { return x / (W(1) + std::exp(-x)); }) <= 3.0 + slack);
  CHECK(kernels::sigmoid(-infinity<T>) == T(0));
  CHECK(kernels::sigmoid(infinity<T>) == T(1));
  CHECK(kernels::silu(-infinity<T>) == T(0));
  CHECK(kernels::silu(infinity<T>) == infinity<T>);
  CHECK(kernels::gelu(-infinity<T>) == T(0));
  CHECK(kernels::gelu(infinity<T>) == infinity<T>);
  CHECK(kernels::gelu(std::numeric_limits<T>::lowest()) == T(0));
  CHECK(std::isnan(kernels::sigmoid(not_a_number<T>)));
  CHECK(std::isnan(kernels::silu(not_a_number<T>)));
  CHECK(std::isnan(kernels::gelu(not_a_number<T>)));

  const W eps = static_cast<W>(std::numeric_limits<T>::epsilon());
  const auto gelu = [](W x) {
    const W u = W(0.797884560802865355879892L) * (x + W(0.044715L) * x * x * x);
    return x / (W(1) + std::exp(-W(2) * u));
  };
  // The argument of the exponential is rounded, so the relative error grows with it; the absolute error does not.
  for (const T x : spread<T>(T(-12), T(12), 20'000)) {
    const W expected = gelu(static_cast<W>(x));
    CHECK(std::fabs(static_cast<W>(kernels::gelu(x)) - expected) <= 4 * eps * std::fabs(expected) + eps);
    const W h = static_cast<W>(1e-4);
    const W slope = (gelu(static_cast<W>(x) + h) - gelu(static_cast<W>(x) - h)) / (2 * h);
    CHECK(std::fabs(static_cast<W>(kernels::gelu_derivative(x)) - slope) <= 24 * eps + W(2e-8));
    const auto silu = [](W v) { return v / (W(1) + std::exp(-v)); };
    const W silu_slope = (silu(static_cast<W>(x) + h) - silu(static_cast<W>(x) - h)) / (2 * h);
    CHECK(std::fabs(static_cast<W>(kernels::silu_derivative(x)) - silu_slope) <= 24 * eps + W(2e-8));
  }
  CHECK(kernels::gelu_derivative(-infinity<T>) == T(0));
  CHECK(kernels::gelu_derivative(infinity<T>) == T(1));
  CHECK(kernels::silu_derivative(-infinity<T>) == T(0));
  CHECK(kernels::silu_derivative(infinity<T>) == T(1));
}

TEMPLATE_TEST_CASE("sqrt and rsqrt are accurate over their whole range", "[kernels][math]", float, double) {
  using T = TestType;
  using W = wider_t<T>;
  const auto root = [](T x) { return kernels::sqrt(x); };
  const auto inverse = [](T x) { return kernels::rsqrt(x); };
  for (const auto& x : {all_magnitudes<T>(400'000), spread<T>(T(0.25), T(4), 400'000)}) {
    CHECK(worst(x, root, [](W v) { return std::sqrt(v); }) <= 0.51 + slack);
    CHECK(worst(x, inverse, [](W v) { return W(1) / std::sqrt(v); }) <= 1.5 + slack);
  }
  CHECK(kernels::sqrt(T(0)) == T(0));
  CHECK(std::signbit(kernels::sqrt(-T(0))));
  CHECK(kernels::sqrt(infinity<T>) == infinity<T>);
  CHECK(std::isnan(kernels::sqrt(T(-1))));
  CHECK(std::isnan(kernels::sqrt(-infinity<T>)));
  CHECK(std::isnan(kernels::sqrt(not_a_number<T>)));
  CHECK(kernels::rsqrt(T(0)) == infinity<T>);
  CHECK(kernels::rsqrt(-T(0)) == -infinity<T>);
  CHECK(kernels::rsqrt(infinity<T>) == T(0));
  CHECK(std::isnan(kernels::rsqrt(T(-1))));
  CHECK(std::isnan(kernels::rsqrt(not_a_number<T>)));
  CHECK(kernels::rsqrt(T(0.25)) == T(2));
}

TEST_CASE("a result does not depend on its place in the vector, nor on compile time", "[kernels][math]") {
  std::array<float, 37> x{};
  std::array<float, 37> y{};
  x.fill(0.7F);
  ESPALIER_OMP(simd)
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = kernels::gelu(x[i]);
  for (const float v : y) CHECK(std::bit_cast<std::uint32_t>(v) == std::bit_cast<std::uint32_t>(y[0]));
  static_assert(kernels::exp(0.0F) == 1.0F);
  static_assert(kernels::log(1.0) == 0.0);
  static_assert(kernels::sqrt(0.0) == 0.0);
  static_assert(kernels::tanh(100.0) == 1.0);
}
