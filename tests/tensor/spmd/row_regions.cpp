// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 300

#include <espalier/tensor/core/nn/attention.hpp>
#include <espalier/tensor/core/program/custom_gradient.hpp>
#include <support/plain_attention.hpp>

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace ep = espalier;
using namespace testing::attention;

namespace {

template <int Data, int Heads> struct on {
  struct data : ep::axis<"data", Data> {};
  struct heads : ep::axis<"heads", Heads> {};
  using mesh = ep::mesh<data, heads>;
};

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
      } else if constexpr (Mask == mask::given) {
        return ep::nn::hide_unseen(scores, ep::expand_dims<0>(bias) >= 0);
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

template <class On, mask Mask, bool Biased, template <int...> class T, int Batch, int Queries, int Keys, int Groups,
          int Heads, int Features>
struct setting {
  using bias = std::conditional_t<Mask == mask::given, T<1, 1, 1, Keys>, T<Groups, Heads, Queries, Keys>>;
  using program =
      ep::program<typename On::mesh, with_gradients<On, Mask, Biased>, T<Batch, Queries, Groups, Heads, Features>,
                  T<Batch, Keys, Groups, Features>, T<Batch, Keys, Groups, Features>, bias>;
  /// Of the scores of one head on one device, so many bytes.
  static constexpr std::int64_t bytes_of_head = std::int64_t{Queries} * Keys * ep::size_of(program::code.code[0].type);
  static constexpr sizes of{Batch, Queries, Keys, Groups, Heads, Features};
  static double worst(double scale = 2) { return worst_of<program>(of, Mask, Biased, scale); }
};

/// A layer of attention to itself.
struct layer {
  constexpr auto operator()(const auto& y, const auto& scale) const {
    return y + ep::nn::causal_attention(y * scale, y, y * (scale - 0.5));
  }
};
template <bool Loop>
using layers_program = ep::program<ep::mesh<>, two_layers<layer, Loop>, ep::f64<2, 512, 2, 8>, ep::f64<2, 8>>;

/// Three layers of attention to themselves, each of them a checkpoint or not.
template <bool Checkpoint> struct three_layers {
  constexpr auto operator()(const auto& x) const {
    const auto loss = [](const auto& start) {
      const auto attend = [](const auto& y) { return y + ep::nn::causal_attention(y * 1.25, y, y * 0.75); };
      const auto layer = [attend](const auto& y) {
        if constexpr (Checkpoint) {
          return ep::checkpoint(attend)(y);
        } else {
          return attend(y);
        }
      };
      const auto y = layer(layer(layer(start)));
      return ep::sum(y * y);
    };
    return ep::value_and_grad(loss)(x);
  }
};
template <bool Checkpoint>
using checkpointed_program = ep::program<ep::mesh<>, three_layers<Checkpoint>, ep::f32<1, 512, 2, 8>>;

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

TEST_CASE("short rows, of which a block of a chain is several, and which are no multiple of it", "[execute]") {
  // Three rows of 320 keys are a block.
  using three = setting<on<1, 1>, mask::none, false, f64, 1, 1024, 320, 1, 1, 8>;
  STATIC_REQUIRE(launches_in_regions<three::program>() == 3 + 7);
  CHECK(three::worst() < 1e-12);
  using seven = setting<on<1, 2>, mask::none, true, f32, 2, 2050, 143, 2, 1, 5>;
  STATIC_REQUIRE(launches_in_regions<seven::program>() == 3 + 7);
  CHECK(seven::worst() < 2e-5);
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
  CHECK(worst_difference_of_layers<layers_program<true>, layers_program<false>>() < 1e-11);
}

TEST_CASE("a window of keys in bf16", "[execute]") {
  using window = setting<on<1, 1>, mask::window, false, bf16, 1, 512, 512, 2, 1, 16>;
  CHECK(launches_in_regions<window::program>() > 0);
  STATIC_REQUIRE(window::program::arena_bytes() < 512 * 512 * 2);
  CHECK(window::worst() < 4e-2);
}

TEST_CASE("cross attention on eight devices, batch over four and heads over two", "[execute]") {
  using cross = setting<on<4, 2>, mask::none, false, f32, 4, 512, 523, 2, 1, 8>;
  STATIC_REQUIRE(launches_in_regions<cross::program>() == 3 + 7);
  STATIC_REQUIRE(cross::program::arena_bytes() < cross::bytes_of_head);
  CHECK(cross::worst() < 2e-5);
}

TEST_CASE("a window in f64 over batches, keys hidden by data in bf16 over heads, a bias in bf16 over both",
          "[execute]") {
  using window = setting<on<2, 1>, mask::window, false, f64, 2, 512, 512, 1, 1, 8>;
  STATIC_REQUIRE(window::program::arena_bytes() < window::bytes_of_head);
  CHECK(window::worst() < 1e-12);
  using given = setting<on<1, 2>, mask::given, false, bf16, 1, 512, 512, 2, 2, 16>;
  STATIC_REQUIRE(given::program::arena_bytes() < given::bytes_of_head);
  CHECK(given::worst() < 4e-2);
  using biased = setting<on<2, 2>, mask::causal, true, bf16, 2, 512, 512, 2, 1, 16>;
  STATIC_REQUIRE(biased::program::arena_bytes() < biased::bytes_of_head);
  CHECK(biased::worst() < 4e-2);
}

TEST_CASE("a checkpoint around attention keeps its argument alone", "[execute]") {
  STATIC_REQUIRE(checkpointed_program<true>::arena_bytes() < checkpointed_program<false>::arena_bytes());
}
