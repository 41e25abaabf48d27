// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 300

#include <catch2/catch.hpp>
#include <espalier/tensor/core/nn/attention.hpp>
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/runner.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace ep = espalier;

namespace {

template <int Data, int Heads> struct on {
  struct data : ep::axis<"data", Data> {};
  struct heads : ep::axis<"heads", Heads> {};
  using mesh = ep::mesh<data, heads>;
};

enum class mask : std::uint8_t {
  none,
  causal,
  /// Each query sees its own place and the 63 before it.
  window,
  /// Causal; and the first 7 keys of every text are padding, so that as many queries see nothing.
  padded,
};

/// What a query sees of a key.
[[nodiscard]] bool sees(mask m, int query, int key) {
  switch (m) {
    case mask::none: return true;
    case mask::causal: return key <= query;
    case mask::window: return key <= query && key > query - 64;
    case mask::padded: return key <= query && key >= 7;
  }
  return true;
}

/// The attention of groups of heads, each of which shares its keys and values; with a bias for each head, query and
/// key. q [batch, queries, groups, heads, features], k and v [batch, keys, groups, features].
template <class On, mask Mask, bool Biased> struct attention {
  constexpr auto operator()(const auto& query, const auto& k, const auto& v, const auto& bias) const {
    const auto q = ep::shard<typename On::data, ep::none, typename On::heads, ep::none, ep::none>(query);
    const auto products = ep::einsum<"bqghd,bkgd->bghqk">(q, k) * 0.35;
    const auto scores = [&] {
      if constexpr (Biased) {
        return products + ep::expand_dims<0>(bias);
      } else {
        return products;
      }
    }();
    const auto hidden = [&] {
      constexpr int queries = decltype(scores)::extent(-2);
      constexpr int keys = decltype(scores)::extent(-1);
      if constexpr (Mask == mask::none) {
        return scores;
      } else if constexpr (Mask == mask::causal) {
        return ep::nn::hide_future(scores);
      } else {
        const auto row = ep::iota<ep::i32<queries, keys>, 0>(query);
        const auto column = ep::iota<ep::i32<queries, keys>, 1>(query);
        if constexpr (Mask == mask::window) {
          return ep::select(row < column + 64, ep::nn::hide_future(scores), -1e30);
        } else {
          return ep::nn::hide_future(ep::select(column < 7, -1e30, scores));
        }
      }
    }();
    return ep::einsum<"bghqk,bkgd->bqghd">(ep::softmax<-1>(hidden), v);
  }
};

template <class On, mask Mask, bool Biased> struct with_gradients {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto& bias) const {
    const auto loss = [](const auto& query, const auto& key, const auto& value, const auto& b) {
      const auto y = attention<On, Mask, Biased>{}(query, key, value, b);
      return ep::results(ep::sum(y * y * y), y);
    };
    const auto found = ep::value_and_grad<0, 1, 2>(loss)(q, k, v, bias);
    return ep::results(found.value.template get<1>(), found.gradient);
  }
};

struct sizes {
  int batch, queries, keys, groups, heads, features;
};

/// The same by plain loops in double precision: the value, and the gradients by q, k and v of the sum of its cubes.
struct plain {
  std::vector<double> y, q, k, v;
};
[[nodiscard]] plain plain_attention(const sizes& s, mask m, bool biased, const std::vector<double>& q,
                                    const std::vector<double>& k, const std::vector<double>& v,
                                    const std::vector<double>& bias) {
  const auto size = [](auto n) { return static_cast<std::size_t>(n); };
  plain made{std::vector<double>(q.size()), std::vector<double>(q.size()), std::vector<double>(k.size()),
             std::vector<double>(v.size())};
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
            p[size(j)] = sees(m, i, j) ? score : -1e30;
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
            if (!sees(m, i, j)) continue;
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

template <class On, mask Mask, bool Biased, template <int...> class T, int Batch, int Queries, int Keys, int Groups,
          int Heads, int Features>
struct setting {
  using program =
      ep::program<typename On::mesh, with_gradients<On, Mask, Biased>, T<Batch, Queries, Groups, Heads, Features>,
                  T<Batch, Keys, Groups, Features>, T<Batch, Keys, Groups, Features>, T<Groups, Heads, Queries, Keys>>;
  static constexpr sizes of{Batch, Queries, Keys, Groups, Heads, Features};
  static double worst(double scale = 2) { return worst_of<program>(of, Mask, Biased, scale); }
};

/// The launches of a program that are in row regions.
template <class Program> constexpr int launches_in_regions() {
  int count = 0;
  for (const ep::launch& u : Program::plan.launches) count += u.region_end >= 0 ? 1 : 0;
  return count;
}

/// Two layers of attention to themselves, as a loop or written out.
template <bool Loop> struct layers {
  constexpr auto operator()(const auto& x, const auto& scales) const {
    const auto layer = [](const auto& y, const auto& scale) {
      return y + ep::nn::causal_attention(y * scale, y, y * (scale - 0.5));
    };
    const auto loss = [layer](const auto& start, const auto& each) {
      const auto y = [&] {
        if constexpr (Loop) {
          return ep::scan(layer, start, each);
        } else {
          const auto first = layer(start, ep::reshape<8>(ep::slice<0, 0, 1>(each)));
          return layer(first, ep::reshape<8>(ep::slice<0, 1, 2>(each)));
        }
      }();
      return ep::sum(y * y * y);
    };
    const auto found = ep::value_and_grad<0, 1>(loss)(x, scales);
    return ep::results(found.value, found.gradient);
  }
};
template <bool Loop> using layers_program = ep::program<ep::mesh<>, layers<Loop>, ep::f64<2, 512, 2, 8>, ep::f64<2, 8>>;
template <bool Loop> std::vector<double> gradient_of_layers() {
  using program = layers_program<Loop>;
  ep::world world(program::mesh::value);
  ep::runner<program> run(world);
  auto x = run.template argument<0>();
  auto scales = run.template argument<1>();
  x.for_each([](double& one, std::int64_t i) { one = std::sin(static_cast<double>(i * i % 1009)); });
  scales.for_each([](double& one, std::int64_t i) { one = 1 + 0.1 * static_cast<double>(i); });
  const auto& results = run(x, scales);
  std::vector<double> all = ep::gather(world, results.template get<1>().template get<0>());
  for (const double one : ep::gather(world, results.template get<1>().template get<1>())) all.push_back(one);
  return all;
}

template <int... Extents> using f32 = ep::f32<Extents...>;
template <int... Extents> using f64 = ep::f64<Extents...>;
template <int... Extents> using bf16 = ep::bf16<Extents...>;

}  // namespace

TEST_CASE("causal attention and its gradients keep no scores, and compute what plain loops do", "[execute]") {
  using one = setting<on<1, 1>, mask::causal, false, f32, 2, 512, 512, 2, 1, 24>;
  // A product, a chain and a product; and five products around two chains.
  STATIC_REQUIRE(launches_in_regions<one::program>() == 3 + 7);
  // Less than the scores of one head.
  STATIC_REQUIRE(one::program::arena_bytes() < 512 * 512 * 4);
  CHECK(one::worst() < 2e-5);
  // Logits of thousands.
  CHECK(one::worst(4000) < 2e-3);
}

TEST_CASE("row regions on four devices compute what plain loops do", "[execute]") {
  using split = setting<on<2, 2>, mask::causal, false, f32, 2, 512, 512, 2, 1, 24>;
  STATIC_REQUIRE(launches_in_regions<split::program>() == 3 + 7);
  CHECK(split::worst() < 2e-5);
}

TEST_CASE("sizes that are no multiples of a tile, shared keys and a bias", "[execute]") {
  using uneven = setting<on<1, 1>, mask::none, true, f64, 1, 509, 523, 2, 3, 5>;
  STATIC_REQUIRE(launches_in_regions<uneven::program>() == 3 + 7);
  CHECK(uneven::worst() < 1e-12);
}

TEST_CASE("rows that see nothing, in a row region, spread over all keys", "[execute]") {
  using padded = setting<on<1, 1>, mask::padded, false, f64, 2, 512, 512, 2, 1, 8>;
  STATIC_REQUIRE(launches_in_regions<padded::program>() == 3 + 7);
  CHECK(padded::worst() < 1e-12);
}

TEST_CASE("the gradient of a loop keeps no scores", "[execute]") {
  // The scores of one head take 2 MiB.
  STATIC_REQUIRE(layers_program<true>::arena_bytes() < 512 * 512 * 8);
  STATIC_REQUIRE(layers_program<false>::arena_bytes() < 512 * 512 * 8);
  const std::vector<double> looped = gradient_of_layers<true>();
  const std::vector<double> plain = gradient_of_layers<false>();
  REQUIRE(looped.size() == plain.size());
  double worst = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double difference = std::abs(looped[i] - plain[i]) / (1 + std::abs(plain[i]));
    worst = difference <= worst ? worst : difference;
  }
  CHECK(worst < 1e-11);
}

TEST_CASE("a window of keys in bf16", "[execute]") {
  using window = setting<on<1, 1>, mask::window, false, bf16, 1, 512, 512, 2, 1, 16>;
  CHECK(launches_in_regions<window::program>() > 0);
  STATIC_REQUIRE(window::program::arena_bytes() < 512 * 512 * 2);
  CHECK(window::worst() < 4e-2);
}
