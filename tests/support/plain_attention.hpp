// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <catch2/catch.hpp>
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

/// The launches of a program that are in row regions.
template <class Program> constexpr int launches_in_regions() {
  int count = 0;
  for (const ep::launch& u : Program::plan.launches) count += u.region_end >= 0 ? 1 : 0;
  return count;
}

}  // namespace testing::attention
