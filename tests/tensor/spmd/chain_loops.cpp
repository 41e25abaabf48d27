// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: yes
#include <catch2/catch.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/runner.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

// Chains of many elementwise steps are one loop (run/kernels/chain_loop.hpp). Each step rounds as if it stood alone:
// the results are those of plain C++ that rounds every operation, to the last bit, on any number of devices.

namespace ep = espalier;

namespace {

template <int Devices> struct on : ep::axis<"data", Devices> {};
template <int Devices> using mesh = ep::mesh<on<Devices>>;

/// Products that sums take in at once, where a compiler would like to round only once; a quotient; results that later
/// steps read; a factor that is one number in memory.
template <int Devices, ep::dtype Type> struct moments {
  constexpr auto operator()(auto a, auto b, auto c, auto rate) const {
    const auto first = ep::shard<on<Devices>, ep::none>(a) + 0.1 * (b - a);
    const auto second = c + 0.25 * (b * b - c);
    const auto step = rate * (first / (ep::abs(second) + 0.5));
    return ep::results(first, second, b * 0.75 - step * c);
  }
};
constexpr int rows = 37;
constexpr int columns = 129;  // no whole number of vectors

template <int Devices, ep::dtype Type> struct of_type;
template <int Devices> struct of_type<Devices, ep::dtype::f32> {
  using element = float;
  template <int... Extents> using tensor = ep::f32<Extents...>;
};
template <int Devices> struct of_type<Devices, ep::dtype::f64> {
  using element = double;
  template <int... Extents> using tensor = ep::f64<Extents...>;
};
template <int Devices> struct of_type<Devices, ep::dtype::bf16> {
  using element = ep::bfloat16;
  template <int... Extents> using tensor = ep::bf16<Extents...>;
};

/// `Donated`: results are where arguments were, and are written while these are read.
template <int Devices, ep::dtype Type, bool Donated> struct chosen {
  using types = of_type<Devices, Type>;
  using element = typename types::element;
  using matrix = typename types::template tensor<rows, columns>;
  using place = std::conditional_t<Donated, ep::donated<matrix>, matrix>;
  using program =
      ep::program<mesh<Devices>, moments<Devices, Type>, place, matrix, place, typename types::template tensor<>>;
};

/// No compiler joins what is computed from it with what it is computed from.
template <class T> T rounded(T x) {
  volatile T kept = x;
  return kept;
}

template <class T> std::vector<T> values(int seed) {
  std::vector<T> result;
  std::uint32_t state = 77777U * static_cast<std::uint32_t>(seed + 1);
  for (int i = 0; i < rows * columns; ++i) {
    state = state * 1664525U + 1013904223U;
    result.push_back(static_cast<T>(static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-29F));
  }
  using limits = std::numeric_limits<float>;
  const float special[]{limits::quiet_NaN(), limits::infinity(), -limits::infinity(), 0.0F, -0.0F, limits::denorm_min(),
                        -limits::min() / 3,  limits::max(),      limits::lowest(),    1.0F};
  // Every pair of arguments meets somewhere, in the middle and among the last elements.
  for (int n = 0; n < 100; ++n) {
    const int which = seed == 0 ? n % 10 : seed == 1 ? n / 10 : (n * 7 + n / 10) % 10;
    result[static_cast<std::size_t>(1000 + n)] = static_cast<T>(special[which]);
    result[static_cast<std::size_t>(rows * columns - 100 + n)] = static_cast<T>(special[which]);
  }
  return result;
}

/// The results for one element.
template <class T> struct three { T first, second, third; };
template <class T> three<T> plainly(T a, T b, T c, T rate) {
  // Numbers of sixteen bits are computed with in float, and rounded.
  using computed = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto stored = [](auto x) { return static_cast<T>(rounded(x)); };
  const auto number = [](double x) { return static_cast<T>(static_cast<computed>(x)); };
  const auto wide = [](T x) { return static_cast<computed>(x); };
  const auto plus = [&](T x, T y) { return stored(wide(x) + wide(y)); };
  const auto minus = [&](T x, T y) { return stored(wide(x) - wide(y)); };
  const auto times = [&](T x, T y) { return stored(wide(x) * wide(y)); };
  const T first = plus(a, times(minus(b, a), number(0.1)));
  const T second = plus(c, times(minus(times(b, b), c), number(0.25)));
  const T size = stored(std::fabs(wide(second)));
  const T divided = stored(wide(first) / wide(plus(size, number(0.5))));
  const T step = times(rate, divided);
  return {first, second, minus(times(b, number(0.75)), times(step, c))};
}

template <class T> bool equal_bits(T x, T y) {
  if (static_cast<double>(x) != static_cast<double>(x)) return static_cast<double>(y) != static_cast<double>(y);
  if (std::is_same_v<T, ep::bfloat16>) return static_cast<float>(x) == static_cast<float>(y);
  return static_cast<double>(x) == static_cast<double>(y) &&
         std::signbit(static_cast<double>(x)) == std::signbit(static_cast<double>(y));
}

template <int Devices, ep::dtype Type, bool Donated> void check() {
  using what = chosen<Devices, Type, Donated>;
  using T = typename what::element;
  using program = typename what::program;
  static_assert(ep::detail::chain_loops<program>::candidates.count == 1);
  const ep::program_tables tables = ep::tables_of<program>();
  const int launch = ep::detail::chain_loops<program>::candidates.launch[0];
  REQUIRE(tables.loop_functions != nullptr);
  REQUIRE(tables.loop_functions[launch] != nullptr);

  const std::vector<T> a = values<T>(0), b = values<T>(1), c = values<T>(2);
  const T rate = static_cast<T>(0.375F);
  ep::world world(mesh<Devices>::value);
  ep::runner<program> run(world);
  auto one = run.template argument<0>();
  auto two = run.template argument<1>();
  auto three = run.template argument<2>();
  auto factor = run.template argument<3>();
  const auto fill = [](auto& array, const std::vector<T>& from) {
    array.for_each([&](T& element, std::int64_t i) { element = from[static_cast<std::size_t>(i)]; });
  };
  fill(one, a);
  fill(two, b);
  fill(three, c);
  factor.for_each([&](T& element, std::int64_t) { element = rate; });
  const auto [first, second, third] = run(one, two, three, factor);
  const auto all_first = ep::gather(world, first);
  const auto all_second = ep::gather(world, second);
  const auto all_third = ep::gather(world, third);
  int wrong = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto expected = plainly(a[i], b[i], c[i], rate);
    if (equal_bits(all_first[i], expected.first) && equal_bits(all_second[i], expected.second) &&
        equal_bits(all_third[i], expected.third))
      continue;
    if (++wrong == 1) {
      UNSCOPED_INFO("element " << i << " of " << static_cast<double>(a[i]) << ", " << static_cast<double>(b[i]) << ", "
                               << static_cast<double>(c[i]));
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEMPLATE_TEST_CASE_SIG("a chain that is one loop rounds every step", "[execute][chain_loops]", ((int N), N), 1, 2, 4,
                       8) {
  check<N, ep::dtype::f32, true>();
}
TEST_CASE("a chain that is one loop writes new memory", "[execute][chain_loops]") {
  check<1, ep::dtype::f32, false>();
  check<4, ep::dtype::f64, false>();
}
TEST_CASE("a chain of sixteen bits that is one loop rounds every step", "[execute][chain_loops]") {
  check<2, ep::dtype::bf16, true>();
}
