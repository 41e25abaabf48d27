// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 300

#include <espalier/tensor/core/nn/attention.hpp>
#include <espalier/tensor/core/program/check_passes.hpp>
#include <support/plain_attention.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace ep = espalier;
using namespace testing::attention;

namespace {

template <int Keys, int Queries> struct on {
  struct keys : ep::axis<"keys", Keys> {};
  struct queries : ep::axis<"queries", Queries> {};
  using mesh = ep::mesh<keys, queries>;
  /// Whole queries, or queries split over an axis of their own.
  using over = queries;
};
/// Queries are split over the axis that keys are split over.
template <int Devices> struct on_ring {
  struct keys : ep::axis<"keys", Devices> {};
  using mesh = ep::mesh<keys>;
  using over = keys;
};

/// Attention whose keys and values are split over devices; with a bias for each head, query and key.
/// q [batch, queries, groups, heads, features], k and v [batch, keys, groups, features].
template <class On, mask Mask, bool Biased> struct attention {
  constexpr auto operator()(const auto& query, const auto& key, const auto& value, const auto& bias) const {
    const auto q = ep::shard<ep::none, typename On::over, ep::none, ep::none, ep::none>(query);
    const auto k = ep::shard<ep::none, typename On::keys, ep::none, ep::none>(key);
    const auto v = ep::shard<ep::none, typename On::keys, ep::none, ep::none>(value);
    const auto products = ep::einsum<"bqghd,bkgd->bghqk">(q, k) * 0.35;
    constexpr int queries = decltype(products)::extent(-2);
    constexpr int keys = decltype(products)::extent(-1);
    const auto scores = [&] {
      if constexpr (Biased) {
        return products + ep::expand_dims<0>(bias);
      } else {
        return products;
      }
    }();
    const auto hidden = [&] {
      if constexpr (Mask == mask::none) {
        return scores;
      } else if constexpr (Mask == mask::causal) {
        return ep::nn::hide_future(scores);
      } else {
        const auto column = ep::iota<ep::i32<queries, keys>, 1>(query);
        if constexpr (Mask == mask::window) {
          // All keys of some devices are hidden from some queries, by what no row may subtract.
          const auto row = ep::iota<ep::i32<queries, keys>, 0>(query);
          const double lowest = -std::numeric_limits<double>::infinity();
          return ep::select(row < column + 64, ep::select(column <= row, scores, lowest), lowest);
        } else {
          return ep::nn::hide_future(ep::select(column < 7, -1e30, scores));
        }
      }
    }();
    const auto y = ep::einsum<"bghqk,bkgd->bqghd">(ep::softmax<-1>(hidden), v);
    return ep::shard<ep::none, typename On::over, ep::none, ep::none, ep::none>(y);
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

template <class On, mask Mask, bool Biased, template <int...> class T, int Batch, int Queries, int Keys, int Groups,
          int Heads, int Features>
struct setting {
  using q = T<Batch, Queries, Groups, Heads, Features>;
  using k = T<Batch, Keys, Groups, Features>;
  using bias = std::conditional_t<Biased, T<Groups, Heads, Queries, Keys>, T<1, 1, 1, 1>>;
  using value = ep::program<typename On::mesh, attention<On, Mask, Biased>, q, k, k, bias>;
  using program = ep::program<typename On::mesh, with_gradients<On, Mask, Biased>, q, k, k, bias>;
  static constexpr sizes of{Batch, Queries, Keys, Groups, Heads, Features};
  static double worst(double scale = 2) {
    ep::check_passes<program>();
    return worst_of<program>(of, Mask, Biased, scale);
  }
};

template <int... Extents> using f32 = ep::f32<Extents...>;
template <int... Extents> using f64 = ep::f64<Extents...>;
template <int... Extents> using bf16 = ep::bf16<Extents...>;

}  // namespace

TEST_CASE("keys over four devices: partial results are combined, and nothing has a row for each query and key",
          "[execute]") {
  using over = on<4, 1>;
  using four = setting<over, mask::causal, false, f32, 1, 1024, 1024, 2, 1, 8>;
  // An all-reduce of n bytes on 4 devices sends 2 n (4 - 1) / 4. A row is one of 1024 queries of 2 heads.
  constexpr std::int64_t number_of_row = 2 * (1024 * 2 * 4) * 3 / 4;
  constexpr std::int64_t row_of_features = 8 * number_of_row;
  // The largest score of each row, the sum of its exponentials, and what comes of the values.
  STATIC_REQUIRE(four::value::bytes<ep::all_reduce, over::keys>() == 2 * number_of_row + row_of_features);
  STATIC_REQUIRE(four::value::collectives() == 3);
  // And back: the gradient by the queries.
  STATIC_REQUIRE(four::program::bytes<ep::all_reduce, over::keys>() == 2 * number_of_row + 2 * row_of_features);
  STATIC_REQUIRE(four::program::collectives() == 4);
  // Two products around a chain, and five around two.
  STATIC_REQUIRE(launches_in_regions<four::program>() == 3 + 7);
  // Of the scores, 2 heads of 1024 queries and 256 keys would take 2 MiB on each device.
  STATIC_REQUIRE(four::value::arena_bytes() < 1 << 18);
  STATIC_REQUIRE(four::program::arena_bytes() < 1 << 20);
  CHECK(four::worst() < 2e-5);
  CHECK(four::worst(4000) < 2e-3);
}

TEST_CASE("twice the sequence takes twice the memory", "[execute]") {
  using half = setting<on<4, 1>, mask::causal, false, f32, 1, 1024, 1024, 2, 1, 8>;
  using whole = setting<on<4, 1>, mask::causal, false, f32, 1, 2048, 2048, 2, 1, 8>;
  STATIC_REQUIRE(whole::value::peak_bytes_per_device() <= 2 * half::value::peak_bytes_per_device());
}

TEST_CASE("keys that do not divide by eight devices, shared by three heads, with a bias", "[execute]") {
  using uneven = setting<on<8, 1>, mask::none, true, f64, 1, 2051, 1027, 1, 3, 5>;
  STATIC_REQUIRE(launches_in_regions<uneven::program>() > 0);
  CHECK(uneven::worst() < 1e-12);
}

TEST_CASE("keys and queries over axes of their own, and rows that see nothing", "[execute]") {
  using both = setting<on<2, 2>, mask::padded, false, f64, 2, 1029, 1029, 1, 2, 6>;
  STATIC_REQUIRE(both::program::arena_bytes() < 1029 * 1029 / 4 * 8);
  CHECK(both::worst() < 1e-12);
}

TEST_CASE("devices all of whose keys are hidden by infinity, in bf16", "[execute]") {
  using window = setting<on<4, 1>, mask::window, false, bf16, 1, 1024, 1024, 1, 1, 16>;
  STATIC_REQUIRE(window::program::arena_bytes() < 1024 * 256 * 2);
  // Rounded values are no sum of weights and their gradients: those are summed, and scores made for what follows.
  STATIC_REQUIRE(launches_in_regions<window::program>() > 3 + 7);
  CHECK(window::worst() < 4e-2);
}

TEST_CASE("queries over the axis of the keys: keys and values are gathered, their gradients scattered", "[execute]") {
  using ring = setting<on_ring<4>, mask::causal, false, f32, 1, 1024, 1024, 2, 1, 8>;
  // A device sends its quarter of k and of v to three others, as on a ring, and gets as much back.
  constexpr std::int64_t quarter = 256 * 2 * 8 * 4;
  STATIC_REQUIRE(ring::program::bytes<ep::all_gather, on_ring<4>::keys>() == 2 * 3 * quarter);
  STATIC_REQUIRE(ring::program::bytes<ep::reduce_scatter, on_ring<4>::keys>() == 2 * 3 * quarter);
  STATIC_REQUIRE(ring::program::collectives() == 4);
  STATIC_REQUIRE(ring::program::arena_bytes() < 1 << 19);
  CHECK(ring::worst() < 2e-5);
}
