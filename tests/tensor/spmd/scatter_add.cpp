// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <catch2/catch.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/runner.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

// The gradient of a gather: rows that no index names are zeros, whatever was in memory; the first update of a row is
// stored and later ones are added, in the order of the indices.

namespace ep = espalier;

namespace {

template <int Devices> struct on : ep::axis<"on", Devices> {};

constexpr int rows = 11;
constexpr int columns = 37;  // no whole number of vectors
constexpr int updates = 23;

/// The cotangent of the gather is `weights` itself.
struct weighted_sum {
  constexpr auto operator()(auto table, auto indices, auto weights) const {
    return ep::sum(ep::gather<0>(table, indices) * weights);
  }
};
template <int Devices> struct gradient {
  constexpr auto operator()(auto table, auto indices, auto weights) const {
    return ep::grad(weighted_sum{})(ep::shard<on<Devices>, ep::none>(table), indices, weights);
  }
};
template <int Devices>
using program = ep::program<ep::mesh<on<Devices>>, gradient<Devices>, ep::f32<rows, columns>, ep::i32<updates>,
                            ep::f32<updates, columns>>;

constexpr int products = [] {
  int count = 0;
  for (int id = 0; id < program<1>::code.size; ++id)
    count += program<1>::code.code[id].op == &ep::ops::multiply ? 1 : 0;
  return count;
}();
static_assert(products == 0);  // what flows back from a plain sum is 1, and a product by it would be a copy

/// Row 3 is named most often, rows 0 and 10 once, 7 never; three indices are outside the table.
constexpr std::int32_t named[updates]{3, 5, -1, 0, 3, 3, 11, 9, 10, 1, 2, 4, 6, 8, 9, 9, 1, 3, 2147483647, 2, 5, 3, 3};

float update(std::int64_t n, std::int64_t c) {
  if (n == 3) return -0.0F;  // the only one of row 0
  if (n == 8 && c == 36) return std::numeric_limits<float>::quiet_NaN();
  if (n == 8 && c == 35) return -std::numeric_limits<float>::infinity();
  if (n == 8 && c == 34) return std::numeric_limits<float>::denorm_min();
  return static_cast<float>((n * 7919 + c * 104729) % 1009) / 97.0F - 5.0F;
}

}  // namespace

TEMPLATE_TEST_CASE_SIG("the gradient of a gather is that of plain loops, to the last bit", "[execute][scatter_add]",
                       ((int N), N), 1, 2, 4, 8) {
  std::vector<float> expected(rows * columns, 0.0F);
  for (int n = 0; n < updates; ++n) {
    if (named[n] < 0 || named[n] >= rows) continue;
    for (int c = 0; c < columns; ++c) expected[static_cast<std::size_t>(named[n] * columns + c)] += update(n, c);
  }
  ep::world world(ep::mesh<on<N>>::value);
  ep::runner<program<N>> run(world);
  const auto table = run.template argument<0>();
  const auto indices = run.template argument<1>();
  const auto weights = run.template argument<2>();
  table.for_each([](float& e, std::int64_t) { e = std::numeric_limits<float>::quiet_NaN(); });
  indices.for_each([](std::int32_t& e, std::int64_t i) { e = named[i]; });
  weights.for_each([](float& e, std::int64_t i) { e = update(i / columns, i % columns); });
  // Memory of the first result is that of the second: nothing of it may be left.
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto result = ep::gather(world, run(table, indices, weights));
    REQUIRE(result.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      INFO("row " << i / columns << ", column " << i % columns);
      if (std::isnan(expected[i])) {
        CHECK(std::isnan(result[i]));
      } else {
        CHECK(result[i] == expected[i]);
        CHECK(std::signbit(result[i]) == std::signbit(expected[i]));
      }
    }
  }
}
