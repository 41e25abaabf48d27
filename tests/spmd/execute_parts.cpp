// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 300

#include <catch2/catch.hpp>
#include <espalier/execute/parts.hpp>
#include <espalier/nn/nn.hpp>
#include <support/run_program.hpp>

#include <cstdlib>

namespace ep = espalier;

namespace {

template <int Data, int Heads> struct on {
  struct data : ep::axis<"data", Data> {};
  struct heads : ep::axis<"heads", Heads> {};
  using mesh = ep::mesh<data, heads>;
};

/// Attention and its gradients: batch 4, 20 positions, 6 heads of 8. Batch and heads split over the mesh.
template <class On, bool Causal> struct attention {
  struct loss {
    constexpr auto operator()(const auto& query, const auto& key, const auto& value) const {
      const auto q = ep::shard<typename On::data, ep::none, typename On::heads, ep::none>(query);
      if constexpr (Causal) {
        const auto y = ep::nn::causal_attention(q, key, value);
        return ep::sum(y * y);
      } else {
        const auto weights = ep::softmax<-1>(ep::nn::attention_scores(q, key));
        const auto y = ep::nn::attention_mix(weights, value);
        return ep::sum(y * y);
      }
    }
  };
  constexpr auto operator()(const auto& query, const auto& key, const auto& value) const {
    const auto by_query = ep::value_and_grad(loss{})(query, key, value);
    const auto turned = [](const auto& k, const auto& q, const auto& v) { return loss{}(q, k, v); };
    const auto by_value = [](const auto& v, const auto& q, const auto& k) { return loss{}(q, k, v); };
    return ep::results(by_query.gradient, ep::value_and_grad(turned)(key, query, value).gradient,
                       ep::value_and_grad(by_value)(value, query, key).gradient);
  }
};

template <class On, bool Causal>
using attention_program = ep::program<typename On::mesh, attention<On, Causal>, ep::f64<4, 20, 6, 8>,
                                      ep::f64<4, 20, 6, 8>, ep::f64<4, 20, 6, 8>>;

/// What follows a batched product but needs other parts of it than its own: sums over the batch, rows turned round, and
/// a product that is batched by another label.
struct crossing {
  constexpr auto operator()(const auto& a, const auto& b) const {
    const auto product = ep::einsum<"bij,bjk->bik">(a, b);
    const auto turned = ep::exp(0.1 * ep::transpose<1, 0, 2>(product));
    const auto again = ep::einsum<"ibk,bkj->bij">(turned, ep::einsum<"bij,bjk->bik">(b, product * 0.5));
    const auto crossed = ep::einsum<"bik,ibj->ikj">(product, b);
    return ep::results(again, ep::sum<0>(product * product), crossed);
  }
};
using crossing_program = ep::program<ep::mesh<>, crossing, ep::f64<8, 8, 8>, ep::f64<8, 8, 8>>;

/// Two products with as many parts each, where every part of the second reads all parts of the first, and nobody else
/// does: with the first in a buffer for one part, only `hands_over` sees that they must not run part by part.
struct across {
  constexpr auto operator()(const auto& a, const auto& b) const {
    return ep::einsum<"bik,ibj->ikj">(ep::einsum<"bij,bjk->bik">(a, b), b);
  }
};
using across_program = ep::program<ep::mesh<>, across, ep::f64<8, 8, 8>, ep::f64<8, 8, 8>>;

template <class Program> void agrees() {
  ep::world world(Program::mesh::value);
  const testing::comparison seen = testing::run_and_compare<Program>(world, 2);
  CHECK(seen.finite);
  CHECK(seen.compared > 0);
  CHECK(seen.worst < 1e-11);
}

template <class Program> std::vector<ep::detail::part_group> groups_of() {
  const ep::program_tables tables = ep::tables_of<Program>();
  return ep::detail::part_finder(tables).run();
}

}  // namespace

TEST_CASE("attention runs head by head, and its scores are never stored as a whole", "[execute]") {
  const auto groups = groups_of<attention_program<on<1, 1>, true>>();
  REQUIRE(groups.size() >= 2);
  std::size_t locals = 0;
  for (const ep::detail::part_group& group : groups) {
    CHECK(group.parts == 4 * 6);
    locals += group.locals.size();
    for (const ep::detail::part_local& local : group.locals) CHECK(local.chunk == 20 * 20 * 8);
  }
  CHECK(locals >= 2);
  const auto split = groups_of<attention_program<on<2, 3>, true>>();
  REQUIRE(!split.empty());
  CHECK(split.front().parts == 2 * 2);
}

TEST_CASE("part by part computes what the interpreter does", "[execute]") {
  agrees<attention_program<on<1, 1>, true>>();
  agrees<attention_program<on<1, 1>, false>>();
  agrees<attention_program<on<2, 3>, true>>();
  agrees<crossing_program>();
  agrees<across_program>();
}

TEST_CASE("a part that needs the others' results waits for all of them", "[execute]") {
  CHECK(groups_of<across_program>().empty());
}
