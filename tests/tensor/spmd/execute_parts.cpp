// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// built: once
// timeout: 300

#include <catch2/catch.hpp>
#include <espalier/tensor/core/nn/nn.hpp>
#include <espalier/tensor/run/execute/item_executor.hpp>
#include <support/run_program.hpp>

#include <atomic>
#include <cstdlib>
#include <type_traits>
#include <vector>

namespace ep = espalier;

namespace {

template <int Data, int Heads> struct on {
  struct data : ep::axis<"data", Data> {};
  struct heads : ep::axis<"heads", Heads> {};
  using mesh = ep::mesh<data, heads>;
};

/// Attention and its gradients: batch 4, some positions, 6 heads of 8. Batch and heads split over the mesh.
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

template <class On, bool Causal, int Positions = 20>
using attention_program = ep::program<typename On::mesh, attention<On, Causal>, ep::f64<4, Positions, 6, 8>,
                                      ep::f64<4, Positions, 6, 8>, ep::f64<4, Positions, 6, 8>>;

/// Attention under a causal mask written by hand, and under others: every query sees its own place and what comes after
/// it, or what comes before it up to the next place. Hidden scores are low; or only 0, and count.
template <int Shift, bool Future, bool Low> struct other_mask {
  struct loss {
    constexpr auto operator()(const auto& query, const auto& key) const {
      const auto scores = ep::nn::attention_scores(query, key);
      const auto row = shifted(ep::iota<ep::i32<64, 64>, 0>(query));
      const auto column = ep::iota<ep::i32<64, 64>, 1>(query);
      const auto weights = ep::softmax<-1>(masked(Future ? row : column, Future ? column : row, scores));
      const auto y = ep::nn::attention_mix(weights, key);
      return ep::sum(y * y);
    }
    static constexpr auto shifted(const auto& row) {
      if constexpr (Shift == 0) {
        return row;
      } else {
        return row + Shift;
      }
    }
    static constexpr auto masked(const auto& less, const auto& more, const auto& scores) {
      return ep::select(less <= more, scores, Low ? -1e30 : 0.0);
    }
  };
  constexpr auto operator()(const auto& query, const auto& key) const {
    const auto [value, gradient] = ep::value_and_grad(loss{})(query, key);
    return ep::results(value, gradient);
  }
};
template <int Shift, bool Future, bool Low>
using other_mask_program =
    ep::program<ep::mesh<>, other_mask<Shift, Future, Low>, ep::f64<2, 64, 3, 8>, ep::f64<2, 64, 3, 8>>;

/// Attention under a causal mask and one of padding: the first 5 keys of text 1, 10 of text 2 ... are hidden, so that
/// as many queries see nothing at all, and spread over everything. `Adds`: the padding mask is added to the scores, and
/// lets gradients through.
template <class On, bool Adds> struct padded_attention {
  struct loss {
    constexpr auto operator()(const auto& query, const auto& key) const {
      const auto q = ep::shard<typename On::data, ep::none, typename On::heads, ep::none>(query);
      const auto scores = ep::nn::attention_scores(q, key);
      const auto hidden = ep::iota<ep::i32<4, 1, 1, 64>, 3>(query) < ep::iota<ep::i32<4, 1, 1, 64>, 0>(query) * 5;
      const auto masked = [&] {
        if constexpr (Adds) {
          return scores + ep::convert<ep::dtype::f64>(hidden) * -1e30;
        } else {
          return ep::select(hidden, -1e30, scores);
        }
      }();
      const auto y = ep::nn::attention_mix(ep::softmax<-1>(ep::nn::hide_future(masked)), key);
      return ep::sum(y * y * y);
    }
  };
  constexpr auto operator()(const auto& query, const auto& key) const {
    const auto [value, gradient] = ep::value_and_grad(loss{})(query, key);
    const auto turned = [](const auto& k, const auto& q) { return loss{}(q, k); };
    return ep::results(value, gradient, ep::value_and_grad(turned)(key, query).gradient);
  }
};
template <class On, bool Adds>
using padded_program =
    ep::program<typename On::mesh, padded_attention<On, Adds>, ep::f64<4, 64, 6, 8>, ep::f64<4, 64, 6, 8>>;

/// Operations that follow a batched product but need other parts of it than their own: sums over the batch, rows turned
/// round, and a product that is batched by another label.
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

/// Two products with as many parts each, where every part of the second reads all parts of the first, and no other op
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

/// A product without a batch is in one piece.
struct layer {
  constexpr auto operator()(auto x, auto w, auto v) const {
    return ep::einsum<"bh,hm->bm">(ep::relu(ep::einsum<"bm,mh->bh">(x, w)), v);
  }
};
using layer_program = ep::program<ep::mesh<>, layer, ep::f64<8, 8>, ep::f64<8, 8>, ep::f64<8, 8>>;

/// Whether a program of headers alone is compiled with what looks for parts.
template <class Program>
constexpr bool looks_for_parts = std::is_same_v<ep::detail::executor_of<Program, ep::comm::any_communicator>,
                                                ep::detail::item_executor<ep::comm::any_communicator>>;

template <class Program> ep::detail::object_vector<ep::detail::item_group> groups_of() {
  const ep::program_tables tables = ep::tables_of<Program>();
  auto groups = ep::detail::item_finder(tables, ep::detail::causal_finder(tables)).run();
  CHECK((groups.empty() || looks_for_parts<Program>));
  return groups;
}

/// Counts the products that are asked for one of their parts.
class counting_kernels : public ep::detail::compiled_kernels {
 public:
  counting_kernels(const ep::program_tables& t, std::atomic<int>& parts) : compiled_kernels(t), parts_(&parts) {}
  void run(int launch, const ep::kernels::kernel_call& call) const {
    if (call.item >= 0) ++*parts_;
    compiled_kernels::run(launch, call);
  }

 private:
  std::atomic<int>* parts_;
};

/// How many chains and products leave out what a causal mask hides.
struct triangles {
  int chains = 0;
  int products = 0;
  friend bool operator==(const triangles&, const triangles&) = default;
};
template <class Program> triangles triangles_of() {
  const ep::program_tables tables = ep::tables_of<Program>();
  const ep::detail::causal_finder causal(tables);
  triangles found;
  for (int u = 0; u < tables.launch_count; ++u) found.chains += causal.side(u) > 0 ? 1 : 0;
  for (const ep::detail::item_group& group : groups_of<Program>()) {
    for (const auto& member : group.members) found.products += member.lower_triangle ? 1 : 0;
  }
  return found;
}

}  // namespace

TEST_CASE("attention runs head by head, and its scores are never stored as a whole", "[execute]") {
  const auto groups = groups_of<attention_program<on<1, 1>, true>>();
  REQUIRE(groups.size() >= 2);
  std::size_t locals = 0;
  for (const ep::detail::item_group& group : groups) {
    CHECK(group.items == 4 * 6);
    locals += group.locals.size();
    for (const ep::detail::item_local& local : group.locals) CHECK(local.chunk == 20 * 20 * 8);
  }
  CHECK(locals >= 2);
  const auto split = groups_of<attention_program<on<2, 3>, true>>();
  REQUIRE(!split.empty());
  CHECK(split.front().items == 2 * 2);
}

TEST_CASE("the products of a group are executed part by part", "[execute]") {
  using program = attention_program<on<1, 1>, true>;
  int parts = 0;
  for (const ep::detail::item_group& group : groups_of<program>()) {
    for (const auto& member : group.members) {
      const bool multiplies = !member.whole && !ep::tables_of<program>().launches[member.launch].fused;
      if (multiplies) parts += static_cast<int>(group.items);
    }
  }
  REQUIRE(parts > 0);
  const ep::program_tables tables = ep::tables_of<program>();
  std::vector<std::vector<double>> memory;
  for (int id = 0; id < tables.code.size; ++id) {
    const auto part = ep::structure_of(tables.code[id]);
    if (part != ep::structure::argument && part != ep::structure::result) continue;
    memory.emplace_back(static_cast<std::size_t>(tables.code[id].shape.elements()), 0.5);
  }
  std::atomic<int> executed = 0;
  ep::world world(program::mesh::value);
  world.on_devices([&](int local, ep::comm::any_communicator& communicator) {
    ep::detail::item_executor<ep::comm::any_communicator, counting_kernels> device(
        tables, world.device(local), communicator, counting_kernels(tables, executed));
    std::size_t next = 0;
    for (int id = 0; id < tables.code.size; ++id) {
      const ep::instruction& i = tables.code[id];
      const auto part = ep::structure_of(i);
      if (part != ep::structure::argument && part != ep::structure::result) continue;
      const int number = ep::attributes_of<ep::border_attributes>(i).number;
      void* const data = memory[next++].data();
      if (part == ep::structure::argument) {
        device.set_argument(number, data);
      } else {
        device.set_result(number, data);
      }
    }
    device.run();
  });
  CHECK(executed == parts);
}

TEST_CASE("only a program whose products have parts is compiled with what looks for them", "[execute]") {
  STATIC_REQUIRE(looks_for_parts<attention_program<on<1, 1>, true>>);
  STATIC_REQUIRE(looks_for_parts<attention_program<on<2, 3>, false>>);
  STATIC_REQUIRE(looks_for_parts<across_program>);
  STATIC_REQUIRE_FALSE(looks_for_parts<layer_program>);
  CHECK(groups_of<layer_program>().empty());
  agrees<layer_program>();
}

TEST_CASE("of scores that a causal mask hides, neither products nor softmax compute more than they must", "[execute]") {
  using program = attention_program<on<1, 1>, true, 112>;
  CHECK(triangles_of<program>() == triangles{2, 2});
  agrees<program>();
  using split = attention_program<on<2, 3>, true, 64>;
  CHECK(triangles_of<split>().chains == 2);
  agrees<split>();
  // Short rows are computed whole.
  CHECK(triangles_of<attention_program<on<1, 1>, true>>() == triangles{0, 0});
}

TEST_CASE("other masks than the causal one leave nothing out", "[execute]") {
  CHECK(triangles_of<other_mask_program<0, false, true>>().chains == 2);
  agrees<other_mask_program<0, false, true>>();
  CHECK(triangles_of<other_mask_program<0, true, true>>() == triangles{0, 0});
  agrees<other_mask_program<0, true, true>>();
  CHECK(triangles_of<other_mask_program<1, false, true>>() == triangles{0, 0});
  agrees<other_mask_program<1, false, true>>();
  CHECK(triangles_of<other_mask_program<0, false, false>>() == triangles{0, 0});
  agrees<other_mask_program<0, false, false>>();
}

TEST_CASE("rows that a causal mask and another one hide entirely spread over all keys", "[execute]") {
  CHECK(triangles_of<padded_program<on<1, 1>, true>>().chains == 2);
  CHECK(triangles_of<padded_program<on<1, 1>, true>>().products == 2);
  agrees<padded_program<on<1, 1>, true>>();
  CHECK(triangles_of<padded_program<on<2, 3>, false>>().chains == 1);
  agrees<padded_program<on<2, 3>, false>>();
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
