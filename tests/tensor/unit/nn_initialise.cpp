// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// together: kernels

#include <espalier/tensor/core/nn/constant_math.hpp>
#include <espalier/tensor/core/nn/initialise.hpp>

#include <boost/hana/define_struct.hpp>
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace espalier;

template <class Leaf> struct dense {
  BOOST_HANA_DEFINE_STRUCT(dense, (leaf<Leaf, f32<3, 4>>, weight), (leaf<Leaf, f32<4>>, bias));
};
template <class Leaf> struct net {
  BOOST_HANA_DEFINE_STRUCT(net, (dense<Leaf>, first), (leaf<Leaf, f32<4>>, gain), (leaf<Leaf, f32<4, 2>>, last));
};

using words = std::array<std::uint32_t, 4>;

}  // namespace

// Known answers of the authors' own library, Random123 (kat_vectors).
static_assert(philox<10>({0, 0, 0, 0}, {0, 0}) == words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox<10>({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
              words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox<10>({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
              words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

TEST_CASE("nn: functions for constant evaluation agree with the library's") {
  for (double x : {1e-6, 0.01, 0.5, 0.9, 0.95, 0.999, 0.9999, 1.0, 1.5}) {
    REQUIRE(std::abs(detail::logarithm(x < 0.1 ? 0.9 : x) - std::log(x < 0.1 ? 0.9 : x)) < 1e-15);
    REQUIRE(detail::square_root(x) == Approx(std::sqrt(x)).epsilon(1e-15));
  }
  for (const double x : {2.0, 32.0, 64.0, 1e6}) REQUIRE(detail::square_root(x) == Approx(std::sqrt(x)).epsilon(1e-15));
  REQUIRE(detail::square_root(0) == 0);
}

TEST_CASE("nn: normal_at has the moments of a normal distribution and no state") {
  const int count = 200000;
  double power[5]{};
  double neighbour = 0;
  for (int i = 0; i < count; ++i) {
    const double x = nn::normal_at(7, 3, static_cast<std::uint64_t>(i));
    neighbour += x * nn::normal_at(7, 3, static_cast<std::uint64_t>(i) + 1) / count;
    double p = 1;
    for (double& sum : power) {
      sum += p / count;
      p *= x;
    }
  }
  REQUIRE(std::abs(power[1]) < 0.01);
  REQUIRE(std::abs(power[2] - 1) < 0.015);
  REQUIRE(std::abs(power[3]) < 0.03);
  REQUIRE(std::abs(power[4] - 3) < 0.1);
  REQUIRE(std::abs(neighbour) < 0.01);
  REQUIRE(nn::normal_at(7, 3, 5) == nn::normal_at(7, 3, 5));
  REQUIRE(nn::normal_at(7, 3, 5) != nn::normal_at(8, 3, 5));
  REQUIRE(nn::normal_at(7, 3, 5) != nn::normal_at(7, 4, 5));
  REQUIRE(nn::normal_at(7, 3, 5) != nn::normal_at(7, 3, 5 + (std::uint64_t{1} << 32U)));
}

TEST_CASE("nn: leaves are named by the members that lead to them") {
  std::vector<std::string> names;
  net<spec> tree;
  nn::for_each_named_leaf(tree, [&](const auto&, const nn::leaf_path& path) { names.push_back(path.str()); });
  REQUIRE(names == std::vector<std::string>{"first.weight", "first.bias", "gain", "last"});
  nn::for_each_named_leaf(tree, [&](const auto&, const nn::leaf_path& path) {
    REQUIRE(path.is("first", "weight") == (path.str() == "first.weight"));
    REQUIRE(nn::is_gain_or_bias(path) == (path.str() == "first.bias" || path.str() == "gain"));
    REQUIRE_FALSE(path.is("las"));
    REQUIRE_FALSE(path.is("lasts"));
  });
}

TEST_CASE("nn: initialise follows the convention, and every element has its own number") {
  net<spec> tree;
  std::vector<std::vector<double>> values;
  nn::initialise(
      tree, 11, [](const nn::leaf_path& path) { return nn::initial_by_name(path, 0.5); },
      [&](const auto& leaf, const auto& value) {
        values.emplace_back();
        for (std::int64_t i = 0; i < leaf.shape.elements(); ++i) {
          values.back().push_back(value(static_cast<std::uint64_t>(i)));
        }
      });
  REQUIRE(values.size() == 4);
  REQUIRE(values[1] == std::vector<double>(4, 0.0));
  REQUIRE(values[2] == std::vector<double>(4, 1.0));
  for (std::size_t i = 0; i < 12; ++i) REQUIRE(values[0][i] == 0.5 * nn::normal_at(11, 0, i));
  for (std::size_t i = 0; i < 8; ++i) REQUIRE(values[3][i] == 0.5 * nn::normal_at(11, 3, i));
}
