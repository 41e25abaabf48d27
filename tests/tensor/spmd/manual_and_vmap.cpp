// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/manual.hpp>
#include <espalier/vmap.hpp>
#include <support/kinds.hpp>

#include <boost/hana/define_struct.hpp>

#include <array>
#include <cmath>

// Maps around regions by hand and regions around maps, as a user writes them, against plain loops.

namespace ep = espalier;
namespace spmd = espalier::spmd;
using namespace testing::kinds;

namespace {

/// Calls `test.operator()<On>()` for each mesh.
template <class... On, class Test> void on_each(meshes<On...> /*meshes*/, const Test& test) {
  (test.template operator()<On>(), ...);
}
using all_meshes = few_or_all<meshes<on<2, 4>>, meshes<on<1, 1>, on<1, 2>, on<1, 4>, on<2, 4>>>;

// --- a map around a region -------------------------------------------------------------------------------------------

constexpr int examples = 6, features = 8;

/// One example, whose features are spread over model: its score, normalised by the length of all of it.
template <class On>
constexpr auto loss_of_example = [](auto x, auto y, auto w) {
  using model = typename On::model;
  return ep::manual<model>(
      [](auto part, auto wanted, auto weights) {
        const auto score = spmd::psum<model>(ep::sum(part * weights));
        const auto length = spmd::psum<model>(ep::sum(part * part));
        const auto next = spmd::permute<model, 1>(part);
        const auto error = ep::tanh(score) / (1.0 + length) - wanted;
        return error * error + spmd::psum<model>(ep::sum(next * part * weights));
      },
      ep::in_specs<ep::dims<model>, ep::dims<>, ep::dims<model>>(), ep::out_specs<ep::dims<>>())(x, y, w);
};
template <class On> struct around {
  constexpr auto operator()(auto xs, auto ys, auto w) const {
    const auto x = ep::shard<typename On::data, typename On::model>(xs);
    const auto each = ep::vmap<0, 0, ep::unmapped>(ep::value_and_grad<0, 2>(loss_of_example<On>));
    const auto [losses, slopes] = each(x, ys, w);
    const auto whole = [&](const auto& a, const auto& v) {
      return ep::sum(ep::vmap<0, 0, ep::unmapped>(loss_of_example<On>)(a, ys, v));
    };
    const auto [loss, back] = ep::value_and_grad<0, 1>(whole)(x, w);
    return ep::results(losses, slopes, loss, back);
  }
};
template <class On>
using around_program =
    ep::program<typename On::mesh, around<On>, ep::f64<examples, features>, ep::f64<examples>, ep::f64<features>>;

real plain_example(const plains& in, int e, int d) {
  real score = 0, length = 0, turned = 0;
  const int size = features / d;
  for (int i = 0; i < features; ++i) {
    score += in[0](e, i) * in[2](i);
    length += in[0](e, i) * in[0](e, i);
    turned += in[0](e, (i - size + features) % features) * in[0](e, i) * in[2](i);
  }
  const real error = std::tanh(score) / (1 + length) - in[1](e);
  return error * error + turned;
}
plains plain_around(const plains& in, int d) {
  plain losses({examples}), by_w({examples, features});
  real total = 0;
  for (int e = 0; e < examples; ++e) {
    losses(e) = plain_example(in, e, d);
    total += losses(e);
    const plain slopes = slope([&](const plains& at) { return plain_example(at, e, d); }, in, 2);
    for (int i = 0; i < features; ++i) by_w(e, i) = slopes(i);
  }
  const auto whole = [&](const plains& at) {
    real sum = 0;
    for (int e = 0; e < examples; ++e) sum += plain_example(at, e, d);
    return sum;
  };
  const plain by_x = slope(whole, in, 0);
  return {losses, by_x, by_w, plain::number(total), by_x, slope(whole, in, 2)};
}

// --- a map in a region -----------------------------------------------------------------------------------------------

constexpr int tokens = 5, heads = 8, size = 3, width = 4;

/// Attention of one head.
constexpr auto attention = [](auto q, auto k, auto v) {
  return ep::matmul(ep::softmax<1>(ep::matmul(q, ep::transpose<1, 0>(k))), v);
};
/// Megatron's attention by hand: each device has some of the heads, and maps over them. One all-reduce.
template <class On> struct heads_by_hand {
  using model = typename On::model;
  constexpr auto operator()(auto q, auto k, auto v, auto w) const {
    const auto layer = [](auto a, auto b, auto c, auto out) {
      const auto joined = ep::manual<model>(
          [](auto own_q, auto own_k, auto own_v, auto own_w) {
            const auto mixed = ep::vmap<1, 1, 1>(attention, ep::out_dims<1>)(own_q, own_k, own_v);
            const auto terms = ep::einsum<"thc,hcw->tw">(mixed, own_w);
            return spmd::psum<model>(terms);
          },
          ep::in_specs<ep::dims<ep::none, model>, ep::dims<ep::none, model>, ep::dims<ep::none, model>,
                       ep::dims<model>>(),
          ep::out_specs<ep::dims<>>())(a, b, c, out);
      return ep::results(ep::sum(ep::sin(joined)), joined);
    };
    const auto [value, slopes] = ep::value_and_grad<0, 1, 2, 3>(layer)(q, k, v, w);
    return ep::results(value, slopes);
  }
};
template <class On>
using heads_program =
    ep::program<typename On::mesh, heads_by_hand<On>, ep::f64<tokens, heads, size>, ep::f64<tokens, heads, size>,
                ep::f64<tokens, heads, size>, ep::f64<heads, size, width>>;
plain plain_attention(const plains& in) {
  plain out({tokens, width});
  for (int h = 0; h < heads; ++h) {
    for (int t = 0; t < tokens; ++t) {
      real weight[tokens], sum = 0;
      for (int s = 0; s < tokens; ++s) {
        real product = 0;
        for (int c = 0; c < size; ++c) product += in[0](t, h, c) * in[1](s, h, c);
        sum += weight[s] = std::exp(product);
      }
      for (int c = 0; c < size; ++c) {
        real mixed = 0;
        for (int s = 0; s < tokens; ++s) mixed += weight[s] / sum * in[2](s, h, c);
        for (int j = 0; j < width; ++j) out(t, j) += mixed * in[3](h, c, j);
      }
    }
  }
  return out;
}
real plain_sines(const plains& in) {
  real sum = 0;
  for (const real one : plain_attention(in).data) sum += std::sin(one);
  return sum;
}

// --- every collective under a map in a region ------------------------------------------------------------------------

/// Shards are columns of x: [4 rows, 8 columns]; the map is over rows, each of which is collected by itself.
template <class On> struct collectives_of_rows {
  using model = typename On::model;
  static constexpr int d = model::size;
  constexpr auto operator()(auto x) const {
    const auto of_row = [](auto row) {  // f64[8 / d]
      const auto all = spmd::all_gather<model>(row);
      const auto twice = ep::reshape<8 / d, 1>(row) * ep::reshape<1, 8>(all);  // f64[8 / d, 8]
      const auto turned = spmd::all_to_all<model, 1, 0>(twice);                // f64[8, 8 / d]
      const auto kept = spmd::psum_scatter<model>(all * ep::sum(row));
      const auto number = ep::convert<ep::dtype::f64>(spmd::axis_index<model>(row));
      return ep::results(kept, ep::sum<0>(turned), spmd::permute<model, 1>(row) * number,
                         spmd::pmax<model>(ep::sum(row)) + spmd::broadcast<model, d - 1>(ep::sum(row * row)));
    };
    const auto region = ep::manual<model>(
        [=](auto columns) { return ep::vmap(of_row)(columns); }, ep::in_specs<ep::dims<ep::none, model>>(),
        ep::out_specs<ep::dims<ep::none, model>, ep::dims<ep::none, model>, ep::dims<ep::none, model>, ep::dims<>>());
    const auto loss = [&](auto at) {
      const auto [a, b, c, e] = region(at);
      return ep::results(ep::sum(a * a) + ep::sum(ep::sin(b)) + ep::sum(c * c) + ep::sum(e * e), a, b, c, e);
    };
    const auto [value, slopes] = ep::value_and_grad(loss)(x);
    return ep::results(value, slopes);
  }
};
template <class On> using collectives_program = ep::program<typename On::mesh, collectives_of_rows<On>, ep::f64<4, 8>>;
plains plain_collectives(const plain& x, int d) {
  plain kept({4, 8}), turned({4, 8}), moved({4, 8}), most({4});
  const int columns = 8 / d;
  for (int r = 0; r < 4; ++r) {
    real sum = 0, squares = 0, largest = -100;
    for (int i = 0; i < 8; ++i) sum += x(r, i);
    for (int k = 0; k < d; ++k) {
      real own = 0;
      for (int i = 0; i < columns; ++i) own += x(r, k * columns + i);
      largest = std::max(largest, own);
    }
    for (int i = 0; i < columns; ++i) squares += x(r, 8 - columns + i) * x(r, 8 - columns + i);
    most(r) = largest + squares;
    for (int i = 0; i < 8; ++i) {
      kept(r, i) = x(r, i) * sum;
      turned(r, i) = sum * x(r, i);
      moved(r, i) = x(r, (i - columns + 8) % 8) * (i / columns);
    }
  }
  return {kept, turned, moved, most};
}
real plain_collected(const plain& x, int d) {
  const plains all = plain_collectives(x, d);
  real sum = 0;
  for (const auto k : {std::size_t{0}, std::size_t{2}, std::size_t{3}}) {
    for (const real one : all[k].data) sum += one * one;
  }
  for (const real one : all[1].data) sum += std::sin(one);
  return sum;
}

// --- maps, checkpoints and regions in one another --------------------------------------------------------------------

/// A layer whose weights are rows of each device, computed again in the gradient, of every example by itself.
template <class On> struct layers {
  using model = typename On::model;
  constexpr auto operator()(auto xs, auto w) const {
    const auto layer = [](auto row, auto weights) {  // f64[4], f64[4, 8 / d]
      const auto h = ep::tanh(ep::matmul(row, weights));
      return spmd::psum<model>(ep::matmul(weights, h)) + row;
    };
    const auto loss = [=](auto x, auto v) {
      // A map around a region that maps and checkpoints: example by example, two layers.
      const auto of_pair = ep::vmap<0, ep::unmapped>([=](auto pair, auto weights) {  // f64[2, 4]
        return ep::manual<model>(
            [=](auto rows, auto part) {
              const auto once = ep::vmap<0, ep::unmapped>(ep::checkpoint(layer));
              return ep::repeat<2>([&](auto h) { return once(h, part); }, rows);
            },
            ep::in_specs<ep::dims<>, ep::dims<ep::none, model>>(), ep::out_specs<ep::dims<>>())(pair, weights);
      });
      const auto again = ep::checkpoint([](auto a, auto b) {
        return ep::manual<model>([](auto s, auto t) { return spmd::psum<model>(ep::sum(ep::sin(t)) * s); },
                                 ep::in_specs<ep::dims<>, ep::dims<ep::none, model>>(),
                                 ep::out_specs<ep::dims<>>())(a, b);
      });
      const auto out = of_pair(x, v);
      return ep::sum(ep::sin(out)) + ep::sum(again(ep::sum(out), v));
    };
    const auto both = ep::value_and_grad<0, 1>(loss)(xs, w);
    return ep::results(both.value, both.gradient);
  }
};
template <class On> using layers_program = ep::program<typename On::mesh, layers<On>, ep::f64<3, 2, 4>, ep::f64<4, 8>>;
real plain_layers(const plains& in) {
  real sum = 0, all = 0, sines = 0;
  for (int e = 0; e < 6; ++e) {
    real row[4];
    for (int i = 0; i < 4; ++i) row[i] = in[0].data[static_cast<std::size_t>(e * 4 + i)];
    for (int layer = 0; layer < 2; ++layer) {
      real next[4]{row[0], row[1], row[2], row[3]};
      for (int c = 0; c < 8; ++c) {
        real h = 0;
        for (int i = 0; i < 4; ++i) h += row[i] * in[1](i, c);
        h = std::tanh(h);
        for (int i = 0; i < 4; ++i) next[i] += in[1](i, c) * h;
      }
      for (int i = 0; i < 4; ++i) row[i] = next[i];
    }
    for (const real one : row) {
      sum += std::sin(one);
      all += one;
    }
  }
  for (const real one : in[1].data) sines += std::sin(one);
  return sum + sines * all;
}

// --- regions in regions ----------------------------------------------------------------------------------------------

/// What is computed again communicates along the axes of both regions.
template <class On> struct nested_regions {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto x, auto w) const {
    const auto loss = [](auto all, auto weights) {
      const auto inner = [](auto rows, auto whole) {
        const auto innermost = [](auto part, auto own) {  // f64[4 / data, 8 / model], f64[8 / model]
          const auto again = ep::checkpoint([](auto s, auto t) {
            const auto scores = spmd::psum<model>(ep::matmul(s, t));
            return spmd::psum<data>(ep::sum(ep::tanh(scores) * scores));
          });
          return again(part, own);
        };
        return ep::manual<model>(innermost, ep::in_specs<ep::dims<ep::none, model>, ep::dims<model>>(),
                                 ep::out_specs<ep::dims<>>())(rows, whole);
      };
      return ep::manual<data>(inner, ep::in_specs<ep::dims<data>, ep::dims<>>(), ep::out_specs<ep::dims<>>())(all,
                                                                                                              weights);
    };
    const auto both = ep::value_and_grad<0, 1>(loss)(x, w);
    return ep::results(both.value, both.gradient);
  }
};
template <class On>
using nested_program = ep::program<typename On::mesh, nested_regions<On>, ep::f64<4, 8>, ep::f64<8>>;
real plain_nested(const plains& in) {
  real sum = 0;
  for (int r = 0; r < 4; ++r) {
    real score = 0;
    for (int i = 0; i < 8; ++i) score += in[0](r, i) * in[1](i);
    sum += std::tanh(score) * score;
  }
  return sum;
}

// --- trees -----------------------------------------------------------------------------------------------------------

template <class Leaf> struct dense {
  BOOST_HANA_DEFINE_STRUCT(dense, (ep::leaf<Leaf, ep::f64<3, 3>>, weight), (ep::leaf<Leaf, ep::f64<3>>, bias));
};
constexpr int depth = 8;

/// Each device has some layers of a stack, and runs them on the same input; all have the last layer. A step of
/// training, with the gradient inside of the region, and the gradient from outside.
template <class On> struct trees {
  using model = typename On::model;
  constexpr auto operator()(auto x, auto stack, auto head) const {
    const auto loss = [](auto v, auto own, auto last) {
      const auto layer = [](auto h, auto p) { return ep::tanh(ep::matmul(h, p.weight) + p.bias); };
      const auto mine = ep::scan(layer, spmd::pvary<model>(v), own);
      const auto all = spmd::psum<model>(mine);
      return ep::sum(ep::sin(ep::matmul(all, last.weight) + last.bias));
    };
    const auto step = ep::manual<model>(
        [=](auto v, auto own, auto last) {
          const auto [value, slopes] = ep::value_and_grad<1, 2>(loss)(v, own, last);
          return ep::results(value, slopes.template get<0>(), slopes.template get<1>());
        },
        ep::in_specs<ep::dims<>, ep::dims<model>, ep::dims<>>(),
        ep::out_specs<ep::dims<>, ep::dims<model>, ep::dims<>>());
    const auto outside = [=](auto v, auto layers, auto last) {
      return ep::manual<model>(loss, ep::in_specs<ep::dims<>, ep::dims<model>, ep::dims<>>(),
                               ep::out_specs<ep::dims<>>())(v, layers, last);
    };
    return ep::results(step(x, stack, head), ep::value_and_grad<0, 1, 2>(outside)(x, stack, head).gradient);
  }
};
template <class On>
using trees_program =
    ep::program<typename On::mesh, trees<On>, ep::f64<3>, dense<ep::stacked<ep::spec, depth>>, dense<ep::spec>>;
real plain_trees(const plains& in, int d) {
  real all[3]{};
  for (int k = 0; k < d; ++k) {
    real h[3]{in[0](0), in[0](1), in[0](2)};
    for (int l = k * depth / d; l < (k + 1) * depth / d; ++l) {
      real next[3];
      for (int j = 0; j < 3; ++j) {
        next[j] = in[2](l, j);
        for (int i = 0; i < 3; ++i) next[j] += h[i] * in[1](l, i, j);
        next[j] = std::tanh(next[j]);
      }
      for (int j = 0; j < 3; ++j) h[j] = next[j];
    }
    for (int j = 0; j < 3; ++j) all[j] += h[j];
  }
  real sum = 0;
  for (int j = 0; j < 3; ++j) {
    real out = in[4](j);
    for (int i = 0; i < 3; ++i) out += all[i] * in[3](i, j);
    sum += std::sin(out);
  }
  return sum;
}

// --- keys ------------------------------------------------------------------------------------------------------------

using key_words = std::array<std::uint32_t, 2>;
std::uint32_t word(key_words key, std::int64_t at, std::uint32_t purpose, std::uint32_t number = 0) {
  const auto block = static_cast<std::uint64_t>(at) / 4;
  const auto four =
      ep::philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U), number, purpose}, key);
  return four[static_cast<std::size_t>(at % 4)];
}
/// Each device folds its number into the key; each row of it has a key of that.
template <class On> struct keys_of_devices {
  using model = typename On::model;
  constexpr auto operator()(auto key) const {
    return ep::manual<model>(
        [](auto same) {
          const auto own = ep::fold_in(same, ep::convert<ep::dtype::u32>(spmd::axis_index<model>(same)));
          const auto rows = ep::vmap([](auto one) { return ep::random_bits<ep::u32<5>>(one); })(ep::split_key<2>(own));
          return ep::results(ep::random_bits<ep::u32<3, 2>>(own), rows, ep::random_bits<ep::u32<4>>(same));
        },
        ep::in_specs<ep::dims<>>(), ep::out_specs<ep::dims<model>, ep::dims<model>, ep::dims<>>())(key);
  }
};
template <class On> using keys_program = ep::program<typename On::mesh, keys_of_devices<On>, ep::u32<2>>;

}  // namespace

TEST_CASE("a map around a region: each example's loss, and its gradients", "[manual][vmap]") {
  const plains in{wave(1, {examples, features}), wave(2, {examples}), wave(3, {features})};
  on_each(all_meshes{}, [&]<class On>() { gives<around_program<On>>(in, plain_around(in, On::model::size), 1e-7); });
}
TEST_CASE("a map in a region: attention over the heads of each device", "[manual][vmap]") {
  using four = heads_program<on<2, 4>>;
  // Forward one sum of 5 x 4 numbers over four devices; back nothing is added up.
  CHECK(four::collectives<ep::all_reduce>() == 1);
  CHECK(four::collectives() == 1);
  CHECK(four::bytes<ep::all_reduce>() == 2 * tokens * width * 8 * 3 / 4);
  const plains in{wave(1, {tokens, heads, size}), wave(2, {tokens, heads, size}), wave(3, {tokens, heads, size}),
                  wave(4, {heads, size, width})};
  plains expected = value_and_slopes(plain_sines, in, 4);
  expected.insert(expected.begin() + 1, plain_attention(in));
  everywhere<heads_program>(all_meshes{}, in, expected, 1e-7);
}
TEST_CASE("every collective under a map in a region", "[manual][vmap]") {
  const plains in{wave(5, {4, 8})};
  on_each(all_meshes{}, [&]<class On>() {
    constexpr int d = On::model::size;
    plains expected{plain::number(plain_collected(in[0], d))};
    for (const plain& one : plain_collectives(in[0], d)) expected.push_back(one);
    expected.push_back(slope([](const plains& at) { return plain_collected(at[0], d); }, in, 0));
    gives<collectives_program<On>>(in, expected, 1e-7);
  });
}
TEST_CASE("maps, checkpoints and regions in one another", "[manual][vmap]") {
  const plains in{wave(6, {3, 2, 4}), wave(7, {4, 8}, 0.5)};
  everywhere<layers_program>(all_meshes{}, in, value_and_slopes(plain_layers, in, 2), 1e-7);
}
TEST_CASE("a checkpoint in a region in a region", "[manual]") {
  const plains in{wave(14, {4, 8}), wave(15, {8})};
  everywhere<nested_program>(all_meshes{}, in, value_and_slopes(plain_nested, in, 2), 1e-7);
}
TEST_CASE("trees of parameters as operands and results of a region", "[manual]") {
  const plains in{wave(9, {3}), wave(10, {depth, 3, 3}), wave(11, {depth, 3}), wave(12, {3, 3}), wave(13, {3})};
  on_each(all_meshes{}, [&]<class On>() {
    const auto loss = [](const plains& at) { return plain_trees(at, On::model::size); };
    const plains all = value_and_slopes(loss, in, 5);
    gives<trees_program<On>>(in, {all[0], all[2], all[3], all[4], all[5], all[1], all[2], all[3], all[4], all[5]},
                             1e-7);
  });
}
TEST_CASE("keys of each device, and of each row of it", "[manual][vmap]") {
  const plains in{indices(8, {2}, 4000000)};
  on_each(all_meshes{}, [&]<class On>() {
    constexpr int d = On::model::size;
    const key_words key{static_cast<std::uint32_t>(in[0](0)), static_cast<std::uint32_t>(in[0](1))};
    plain bits({3 * d, 2}), rows({2 * d, 5}), same({4});
    for (int k = 0; k < d; ++k) {
      const auto number = static_cast<std::uint32_t>(k);
      const key_words own{word(key, 0, 2, number), word(key, 1, 2, number)};
      for (int i = 0; i < 6; ++i) bits(3 * k + i / 2, i % 2) = word(own, i, 0);
      for (int r = 0; r < 2; ++r) {
        const key_words of_row{word(own, 2 * r, 3), word(own, 2 * r + 1, 3)};
        for (int i = 0; i < 5; ++i) rows(2 * k + r, i) = word(of_row, i, 0);
      }
    }
    for (int i = 0; i < 4; ++i) same(i) = word(key, i, 0);
    gives<keys_program<On>>(in, {bits, rows, same}, 0);
  });
}
