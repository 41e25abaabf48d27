// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <catch2/catch.hpp>
#include <espalier/tensor/core/ops/scan.hpp>
#include <espalier/tensor/core/program/custom_gradient.hpp>
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/runner.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

// Attention by plain loops in double precision, and programs against it.

namespace testing::attention {

namespace ep = espalier;

enum class mask : std::uint8_t {
  none,
  causal,
  /// Each query sees its own place and the 63 before it.
  window,
  /// Causal; and the first 7 keys of every text are padding, so that as many queries see nothing.
  padded,
  /// Each query sees the keys for which `bias` [1, 1, 1, keys] is not negative: as many hidden as are padding, say.
  given,
};

/// What a query sees of a key.
[[nodiscard]] inline bool sees(mask m, int query, int key) {
  switch (m) {
    case mask::none: return true;
    case mask::causal: return key <= query;
    case mask::window: return key <= query && key > query - 64;
    case mask::padded: return key <= query && key >= 7;
    case mask::given: return true;
  }
  return true;
}

struct sizes {
  int batch, queries, keys, groups, heads, features;
};

/// The same by plain loops in double precision: the value, and the gradients by q, k and v of the sum of its cubes.
struct plain {
  std::vector<double> y, q, k, v;
};
[[nodiscard]] inline plain plain_attention(const sizes& s, mask m, bool biased, const std::vector<double>& q,
                                           const std::vector<double>& k, const std::vector<double>& v,
                                           const std::vector<double>& bias) {
  const auto size = [](auto n) { return static_cast<std::size_t>(n); };
  plain made{std::vector<double>(q.size()), std::vector<double>(q.size()), std::vector<double>(k.size()),
             std::vector<double>(v.size())};
  const auto is_seen = [&](int query, int key) {
    return sees(m, query, key) && (m != mask::given || bias[size(key)] >= 0);
  };
  std::vector<double> p(size(s.keys));
  std::vector<double> dp(size(s.keys));
  for (int b = 0; b < s.batch; ++b) {
    for (int g = 0; g < s.groups; ++g) {
      for (int h = 0; h < s.heads; ++h) {
        for (int i = 0; i < s.queries; ++i) {
          const std::size_t row = size((((b * s.queries + i) * s.groups + g) * s.heads + h) * s.features);
          const auto key = [&](int j) { return size(((b * s.keys + j) * s.groups + g) * s.features); };
          double top = -std::numeric_limits<double>::infinity();
          for (int j = 0; j < s.keys; ++j) {
            double score = 0;
            for (std::size_t d = 0; d < size(s.features); ++d) score += q[row + d] * k[key(j) + d];
            score *= 0.35;
            if (biased) score += bias[size(((g * s.heads + h) * s.queries + i) * s.keys + j)];
            p[size(j)] = is_seen(i, j) ? score : -1e30;
            top = std::max(top, p[size(j)]);
          }
          double total = 0;
          for (double& one : p) total += one = std::exp(one - top);
          for (int j = 0; j < s.keys; ++j) {
            p[size(j)] /= total;
            for (std::size_t d = 0; d < size(s.features); ++d) made.y[row + d] += p[size(j)] * v[key(j) + d];
          }
          double dot = 0;
          for (int j = 0; j < s.keys; ++j) {
            dp[size(j)] = 0;
            for (std::size_t d = 0; d < size(s.features); ++d) {
              const double dy = 3 * made.y[row + d] * made.y[row + d];
              dp[size(j)] += dy * v[key(j) + d];
              made.v[key(j) + d] += p[size(j)] * dy;
            }
            dot += dp[size(j)] * p[size(j)];
          }
          for (int j = 0; j < s.keys; ++j) {
            if (!is_seen(i, j)) continue;
            const double ds = 0.35 * p[size(j)] * (dp[size(j)] - dot);
            for (std::size_t d = 0; d < size(s.features); ++d) {
              made.q[row + d] += ds * k[key(j) + d];
              made.k[key(j) + d] += ds * q[row + d];
            }
          }
        }
      }
    }
  }
  return made;
}

/// Runs a program and compares all that it gives with plain loops: the largest difference, relative to the largest
/// element of each result. `scale`: of q's elements, which are in (-scale, scale).
template <class Program> double worst_of(const sizes& s, mask m, bool biased, double scale = 2) {
  ep::world world(Program::mesh::value);
  ep::runner<Program> run(world);
  auto q = run.template argument<0>();
  auto k = run.template argument<1>();
  auto v = run.template argument<2>();
  auto bias = run.template argument<3>();
  int leaf = 0;
  const auto fill = [&](auto& array, double by) {
    using element = typename std::remove_reference_t<decltype(array)>::value_type;
    ++leaf;
    array.for_each([&](element& one, std::int64_t i) {
      const auto mixed =
          (static_cast<std::uint64_t>(i + 1) * 0x9e3779b97f4a7c15U) ^ (static_cast<std::uint64_t>(leaf) << 40U);
      const auto bits = static_cast<double>((mixed ^ mixed >> 29U) * 0xbf58476d1ce4e5b9U >> 40U);
      one = static_cast<element>(static_cast<ep::computed_t<element>>(by * (bits / 8388608.0 - 1)));
    });
  };
  fill(q, scale);
  fill(k, 1);
  fill(v, 1);
  fill(bias, 3);
  const auto doubles = [&](const auto& array) {
    std::vector<double> all;
    for (const auto& one : ep::gather(world, array)) all.push_back(static_cast<double>(one));
    return all;
  };
  const auto& results = run(q, k, v, bias);
  const plain expected = plain_attention(s, m, biased, doubles(q), doubles(k), doubles(v), doubles(bias));
  double worst = 0;
  const auto compare = [&](const std::vector<double>& found, const std::vector<double>& wanted) {
    REQUIRE(found.size() == wanted.size());
    double largest = 1e-30;
    double difference = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      largest = std::max(largest, std::abs(wanted[i]));
      const double here = std::abs(found[i] - wanted[i]);
      difference = here <= difference ? difference : here;  // a NaN stays
    }
    worst = difference / largest <= worst ? worst : difference / largest;
  };
  const auto& gradient = results.template get<1>();
  compare(doubles(results.template get<0>()), expected.y);
  compare(doubles(gradient.template get<0>()), expected.q);
  compare(doubles(gradient.template get<1>()), expected.k);
  compare(doubles(gradient.template get<2>()), expected.v);
  return worst;
}

/// Two layers of attention to themselves, as a loop or written out: the sum of the cubes, and its gradients by `x`
/// [..., 8] and the layers' `scales` [2, 8].
template <class Layer, bool Loop> struct two_layers {
  constexpr auto operator()(const auto& x, const auto& scales) const {
    const auto loss = [](const auto& start, const auto& each) {
      const auto y = [&] {
        if constexpr (Loop) {
          return ep::scan(Layer{}, start, each);
        } else {
          const auto first = Layer{}(start, ep::reshape<8>(ep::slice<0, 0, 1>(each)));
          return Layer{}(first, ep::reshape<8>(ep::slice<0, 1, 2>(each)));
        }
      }();
      return ep::sum(y * y * y);
    };
    const auto found = ep::value_and_grad<0, 1>(loss)(x, scales);
    return ep::results(found.value, found.gradient);
  }
};
/// Both gradients of such a program, one after the other.
template <class Program> [[nodiscard]] std::vector<double> gradients_of_layers() {
  ep::world world(Program::mesh::value);
  ep::runner<Program> run(world);
  auto x = run.template argument<0>();
  auto scales = run.template argument<1>();
  x.for_each([](double& one, std::int64_t i) { one = std::sin(static_cast<double>(i * i % 1009)); });
  scales.for_each([](double& one, std::int64_t i) { one = 1 + 0.1 * static_cast<double>(i); });
  const auto& results = run(x, scales);
  std::vector<double> all = ep::gather(world, results.template get<1>().template get<0>());
  for (const double one : ep::gather(world, results.template get<1>().template get<1>())) all.push_back(one);
  return all;
}
/// The largest difference of two programs' gradients, relative to an element where that is larger than 1.
template <class Program, class Other> [[nodiscard]] double worst_difference_of_layers() {
  const std::vector<double> found = gradients_of_layers<Program>();
  const std::vector<double> wanted = gradients_of_layers<Other>();
  REQUIRE(found.size() == wanted.size());
  double worst = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double difference = std::abs(found[i] - wanted[i]) / (1 + std::abs(wanted[i]));
    worst = difference <= worst ? worst : difference;  // a NaN stays
  }
  return worst;
}

/// The launches of a program that are in row regions.
template <class Program> constexpr int launches_in_regions() {
  int count = 0;
  for (const ep::launch& u : Program::plan.launches) count += u.region_end >= 0 ? 1 : 0;
  return count;
}

}  // namespace testing::attention
