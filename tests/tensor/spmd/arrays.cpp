// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never

#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/runner.hpp>

#include <boost/hana/define_struct.hpp>
#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

/// Which arrays a program may be given: the same one twice, the runner's own results, those of other worlds.
namespace ep = espalier;

namespace {

using Catch::Contains;
using square = ep::f64<4, 4>;
using matrix = std::vector<double>;

struct data : ep::axis<"data", 2> {};
using two = ep::mesh<data>;
using one = ep::mesh<>;

/// Every element of a result needs others of the arguments: written over what is still to be read, it is wrong.
template <class Mesh> struct product {
  constexpr auto operator()(auto a, auto b) const {
    if constexpr (Mesh::rank > 0) a = ep::shard<data, ep::none>(a);
    return ep::matmul(a, b);
  }
};
template <class Mesh> using product_program = ep::program<Mesh, product<Mesh>, square, square>;

/// The first result is computed in a's memory, while b is read; the second has its own.
struct with_twice {
  constexpr auto operator()(auto a, auto b) const {
    const auto both = a + a;
    return ep::results(ep::matmul(both, b), ep::matmul(b, both));
  }
};
template <class Mesh> using donating_program = ep::program<Mesh, with_twice, ep::donated<square>, square>;

struct both_orders {
  constexpr auto operator()(auto a, auto b) const { return ep::results(ep::matmul(a, b), ep::matmul(b, a)); }
};
/// Each result takes an argument's memory.
template <class Mesh>
using exchanging_program = ep::program<Mesh, both_orders, ep::donated<square>, ep::donated<square>>;

template <class Leaf> struct pair_of {
  BOOST_HANA_DEFINE_STRUCT(pair_of, (ep::leaf<Leaf, square>, left), (ep::leaf<Leaf, square>, right));
};
struct both_orders_of_pair {
  constexpr auto operator()(auto b, const auto& pair) const {
    auto next = pair;
    next.left = ep::matmul(b, pair.right);
    next.right = ep::matmul(pair.left, b);
    return next;
  }
};
using pair_program = ep::program<two, both_orders_of_pair, square, ep::donated<pair_of<ep::spec>>>;

matrix times(const matrix& a, const matrix& b, double factor = 1) {
  matrix c(16, 0);
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < 4; ++j) {
      for (std::size_t k = 0; k < 4; ++k) c[4 * i + j] += factor * a[4 * i + k] * b[4 * k + j];
    }
  }
  return c;
}
/// Whole numbers, so that all sums are exact.
matrix numbers(std::int64_t seed) {
  matrix m;
  for (std::int64_t n = 0; n < 16; ++n) m.push_back(static_cast<double>((n * n + seed * (n + 3)) % 5 - 2));
  return m;
}

void fill(const ep::sharded_array<square>& array, const matrix& values) {
  array.for_each([&](double& e, std::int64_t index) { e = values[static_cast<std::size_t>(index)]; });
}

}  // namespace

TEMPLATE_TEST_CASE("a runner's result may be its next argument", "[execute]", one, two) {
  ep::world world(TestType::value);
  ep::runner<product_program<TestType>> run(world);
  // Both arguments are laid out as the result.
  auto x = run.template argument<0>();
  const auto b = run.template argument<1>();
  fill(x, numbers(1));
  fill(b, numbers(2));
  matrix expected = times(numbers(1), numbers(2));

  SECTION("by its reference") {
    const auto& y = run(x, b);
    for (int n = 0; n < 4; ++n) {
      CHECK(ep::gather(world, y) == expected);
      run(y, b);
      expected = times(expected, numbers(2));
    }
    CHECK(ep::gather(world, y) == expected);
    CHECK(ep::gather(world, x) == numbers(1));
  }
  SECTION("by assignment, in two buffers however often") {
    const auto first = x;  // alive, or the runner's buffer may be allocated where it was
    std::set<const double*> seen;
    for (int n = 0; n < 6; ++n) {
      x = run(x, b);
      seen.insert(x.data(0));
      CHECK(ep::gather(world, x) == expected);
      expected = times(expected, numbers(2));
    }
    CHECK(seen.size() == 2);
    CHECK(seen.count(first.data(0)) == 0);
    CHECK(ep::gather(world, first) == numbers(1));
  }
  SECTION("while all of them are kept") {
    std::vector<ep::sharded_array<square>> kept{x};
    for (int n = 0; n < 4; ++n) {
      const auto& next = run(kept.back(), b);
      kept.push_back(next);
    }
    expected = numbers(1);
    for (const auto& y : kept) {
      CHECK(ep::gather(world, y) == expected);
      expected = times(expected, numbers(2));
    }
  }
}

TEST_CASE("a runner's result may be two of its next arguments", "[execute]") {
  ep::world world(one::value);
  ep::runner<product_program<one>> run(world);
  const auto x = run.argument<0>();
  fill(x, numbers(3));
  auto y = run(x, x);
  matrix expected = times(numbers(3), numbers(3));
  for (int n = 0; n < 3; ++n) {
    CHECK(ep::gather(world, y) == expected);
    y = run(y, y);
    expected = times(expected, expected);
  }
  CHECK(ep::gather(world, y) == expected);
}

TEMPLATE_TEST_CASE("results may take the memory of results", "[execute]", one, two) {
  ep::world world(TestType::value);
  ep::runner<donating_program<TestType>> run(world);
  auto s = run.template argument<0>();
  auto t = run.template argument<1>();
  matrix a = numbers(1);
  matrix b = numbers(2);
  fill(s, a);
  fill(t, b);
  const auto& results = run(s, t);
  s = t = {};  // only the runner holds them now
  for (int n = 0; n < 3; ++n) {
    const matrix next_a = times(b, a, 2);
    b = times(a, b, 2);
    a = next_a;
    CHECK(ep::gather(world, results.template get<0>()) == b);
    CHECK(ep::gather(world, results.template get<1>()) == a);
    const double* const given = results.template get<1>().data(0);
    run(results.template get<1>(), results.template get<0>());
    CHECK(results.template get<0>().data(0) == given);  // a donated argument's result is that argument
  }
}

TEST_CASE("one array as a donated argument and as another one is read before it changes", "[execute]") {
  ep::world world(two::value);
  ep::runner<donating_program<two>> run(world);
  const auto s = run.argument<0>();
  const auto copy = s;  // shares the shards
  fill(s, numbers(1));
  const matrix expected = times(numbers(1), numbers(1), 2);
  const auto& results = run(s, copy);
  CHECK(ep::gather(world, results.get<0>()) == expected);
  CHECK(ep::gather(world, results.get<1>()) == expected);
  CHECK(results.get<0>().data(0) == s.data(0));
  // The copy has kept its values.
  CHECK(ep::gather(world, copy) == numbers(1));
  run(s, copy);
  CHECK(ep::gather(world, s) == times(expected, numbers(1), 2));
  run(s, s);  // now without another handle
  const matrix third = times(expected, numbers(1), 2);
  CHECK(ep::gather(world, s) == times(third, third, 2));
  // An array that was read from a copy once is read from the array itself again.
  const auto t = run.argument<1>();
  fill(s, numbers(1));
  fill(t, numbers(2));
  run(s, t);
  CHECK(ep::gather(world, s) == times(numbers(1), numbers(2), 2));
}

TEST_CASE("two arguments that both change are two arrays", "[execute]") {
  ep::world world(two::value);
  ep::runner<exchanging_program<two>> run(world);
  auto a = run.argument<0>();
  auto b = run.argument<1>();
  fill(a, numbers(1));
  fill(b, numbers(2));
  const auto copy = a;
  CHECK_THROWS_AS(run(a, copy), ep::argument_error);
  CHECK_THROWS_WITH(run(a, a), Contains("arguments 0 and 1 are the same array") && Contains("ep::copy(array)"));
  CHECK(ep::gather(world, a) == numbers(1));  // nothing ran
  const auto& results = run(a, b);
  CHECK(ep::gather(world, a) == times(numbers(1), numbers(2)));
  CHECK(ep::gather(world, b) == times(numbers(2), numbers(1)));
  const matrix left = ep::gather(world, results.get<0>());
  const matrix right = ep::gather(world, results.get<1>());
  const double* const was_right = results.get<1>().data(0);
  a = b = run.argument<0>();  // only the runner holds what they were
  run(results.get<1>(), results.get<0>());
  CHECK(results.get<0>().data(0) == was_right);
  CHECK(ep::gather(world, results.get<0>()) == times(right, left));
  CHECK(ep::gather(world, results.get<1>()) == times(left, right));

  ep::runner<pair_program> run_pair(world);
  auto pair = run_pair.argument<1>();
  const auto factor = run_pair.argument<0>();
  pair.right = pair.left;
  CHECK_THROWS_WITH(run_pair(factor, pair),
                    Contains("arguments 1.left and 1.right are the same array") && Contains("ep::copy(array)"));
}

TEST_CASE("an array of another world is refused before anything changes", "[execute]") {
  struct four_data : ep::axis<"data", 4> {};
  ep::world world(two::value);
  ep::world alone(one::value);
  ep::world more(ep::mesh<four_data>::value);
  ep::runner<product_program<two>> run(world);
  ep::runner<donating_program<two>> change(world);
  const auto x = run.argument<0>();
  const auto b = run.argument<1>();
  fill(x, numbers(1));
  fill(b, numbers(2));

  using array = ep::sharded_array<square>;
  const ep::sharding& placement = product_program<two>::argument_layout(0).placement;
  const array fewer(alone, ep::sharding::whole(2));
  const array another(more, placement);
  const array never_made;
  CHECK_THROWS_AS(run(fewer, b), ep::argument_error);
  CHECK_THROWS_WITH(run(x, fewer), Contains("argument 1") && Contains("another world") && Contains("on one device") &&
                                       Contains("on data 2") && Contains("argument<1>()"));
  CHECK_THROWS_WITH(run(another, b), Contains("argument 0") && Contains("on data 4") && Contains("on data 2"));
  CHECK_THROWS_WITH(run(never_made, b), Contains("argument 0") && Contains("an empty array"));
  CHECK_THROWS_AS(change(x, fewer), ep::argument_error);
  CHECK(ep::gather(world, x) == numbers(1));
  CHECK_THROWS_WITH(ep::gather(world, another), Contains("another world"));
  CHECK_THROWS_WITH(ep::gather(world, never_made), Contains("empty"));

  // Another world over the same devices of this process is as good.
  ep::world same(two::value);
  ep::runner<product_program<two>> elsewhere(same);
  CHECK(ep::gather(same, elsewhere(x, b)) == times(numbers(1), numbers(2)));

  CHECK_THROWS_WITH(ep::runner<product_program<two>>(more), Contains("compiled for data 2") && Contains("has data 4"));
}
