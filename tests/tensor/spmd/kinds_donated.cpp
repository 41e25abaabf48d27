// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

#include <boost/hana/define_struct.hpp>

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- donated swaps --------------------------------------------------------------------------------------------------

template <class Leaf> struct rod {
  BOOST_HANA_DEFINE_STRUCT(rod, (ep::leaf<Leaf, ep::f64<6, 4>>, u), (ep::leaf<Leaf, ep::f64<6, 4>>, before));
};
template <class On> struct leapfrog {
  constexpr auto operator()(const auto& s) const {
    auto next = s;
    next.u = 2.0 * ep::shard<typename On::data, typename On::model>(s.u) - s.before + 1.0;
    next.before = s.u;
    return next;
  }
};
template <class On> using leapfrog_program = ep::program<typename On::mesh, leapfrog<On>, ep::donated<rod<ep::spec>>>;

template <class On> struct swap {
  constexpr auto operator()(auto a, auto b) const { return ep::results(ep::shard<typename On::data, ep::none>(b), a); }
};
template <class On>
using swap_program = ep::program<typename On::mesh, swap<On>, ep::donated<ep::f64<5, 3>>, ep::donated<ep::f64<5, 3>>>;

/// A ring of three with work on the way, of which one part is read by a product, and a sum of what was.
template <class On> struct ring {
  constexpr auto operator()(auto a, auto b, auto c, auto w) const {
    const auto product = ep::matmul(ep::shard<typename On::data, typename On::model>(b), w);
    const auto sums = ep::sum<0>(a * c);
    return ep::results(b, product + a, a, sums, b);
  }
};
template <class On>
using ring_program = ep::program<typename On::mesh, ring<On>, ep::donated<ep::f64<4, 4>>, ep::donated<ep::f64<4, 4>>,
                                 ep::donated<ep::f64<4, 4>>, ep::f64<4, 4>>;

/// Swapped with different layouts of the two: each place takes what arrives.
template <class On> struct crossed {
  constexpr auto operator()(auto a, auto b) const {
    return ep::results(ep::reshard<typename On::data, typename On::model>(b),
                       ep::reshard<typename On::model, typename On::data>(a), ep::mean(a - b));
  }
};
template <class On>
using crossed_program = ep::program<typename On::mesh, crossed<On>,
                                    ep::donated<ep::sharded<ep::f64<4, 6>, typename On::data, typename On::model>>,
                                    ep::donated<ep::sharded<ep::f64<4, 6>, typename On::model, typename On::data>>>;

/// One value into both places, and the other place's old value besides.
template <class On> struct same_twice {
  constexpr auto operator()(auto a, auto b) const {
    const auto both = ep::shard<typename On::data>(a * b);
    return ep::results(both, both, b, both - a);
  }
};
template <class On>
using same_program = ep::program<typename On::mesh, same_twice<On>, ep::donated<ep::f64<7>>, ep::donated<ep::f64<7>>>;

// --- arguments and leaves that the function does not use -------------------------------------------------------------

template <class Leaf> struct partly {
  BOOST_HANA_DEFINE_STRUCT(partly, (ep::leaf<Leaf, ep::f64<4>>, used), (ep::leaf<Leaf, ep::f32<3, 2>>, unused),
                           (ep::leaf<Leaf, ep::f64<4>>, also_used));
};
template <class On> struct unused {
  constexpr auto operator()(auto /*first*/, const auto& tree, auto x, auto /*last*/) const {
    return ep::results(ep::shard<typename On::data>(tree.used) * x, ep::sum(tree.also_used));
  }
};
template <class On>
using unused_program = ep::program<typename On::mesh, unused<On>, ep::f64<5>, partly<ep::spec>, ep::f64<4>, ep::i32<2>>;

/// The gradient of a tree of which the loss does not see everything: zeros.
template <class On> struct blind {
  constexpr auto operator()(const auto& tree, auto x) const {
    const auto loss = [](const auto& p, auto y) { return ep::mean(ep::shard<typename On::data>(y) * p.used); };
    return ep::value_and_grad(loss)(tree, x).gradient;
  }
};
template <class On> using blind_program = ep::program<typename On::mesh, blind<On>, partly<ep::spec>, ep::f64<4>>;

}  // namespace

TEST_CASE("kinds: leapfrog in place", "[kinds]") {
  plain u = wave(1, {6, 4}), before = wave(2, {6, 4});
  const plains in{u, before};
  for (int step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < u.data.size(); ++i) {
      const real next = 2 * u.data[i] - before.data[i] + 1;
      before.data[i] = u.data[i];
      u.data[i] = next;
    }
  }
  everywhere<leapfrog_program>(both_ways{}, in, {u, before}, 1e-12, 3);
}

TEST_CASE("kinds: two donated arguments change places", "[kinds]") {
  const plains in{wave(1, {5, 3}), wave(2, {5, 3})};
  everywhere<swap_program>(data_axis{}, in, {in[1], in[0]}, 0);
  everywhere<swap_program>(meshes<on<1, 1>, on<4, 1>>{}, in, {in[0], in[1]}, 0, 2);
}

TEST_CASE("kinds: three donated arguments in a ring", "[kinds]") {
  plains now{wave(1, {4, 4}), wave(2, {4, 4}), wave(3, {4, 4})};
  const plain w = wave(4, {4, 4});
  const plains in{now[0], now[1], now[2], w};
  plain sums, last;
  for (int step = 0; step < 2; ++step) {
    plain product = now[0];
    sums = plain({4});
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) {
        sums(j) += now[0](i, j) * now[2](i, j);
        for (int k = 0; k < 4; ++k) product(i, j) += now[1](i, k) * w(k, j);
      }
    }
    last = now[1];
    now = {now[1], product, now[0]};
  }
  everywhere<ring_program>(both_ways{}, in, {now[0], now[1], now[2], sums, last}, 1e-12, 2);
}

TEST_CASE("kinds: two donated arguments change places and layouts", "[kinds]") {
  const plains in{wave(1, {4, 6}), wave(2, {4, 6})};
  real mean = 0;
  for (std::size_t i = 0; i < 24; ++i) mean += (in[0].data[i] - in[1].data[i]) / 24;
  everywhere<crossed_program>(both_axes{}, in, {in[1], in[0], plain::number(mean)}, 1e-12);
}

TEST_CASE("kinds: one value for two donated arguments", "[kinds]") {
  const plains in{wave(1, {7}), wave(2, {7})};
  plains out{in[0], in[0], in[1], in[0]};
  for (std::size_t i = 0; i < 7; ++i) {
    out[0].data[i] = out[1].data[i] = in[0].data[i] * in[1].data[i];
    out[3].data[i] = out[0].data[i] - in[0].data[i];
  }
  everywhere<same_program>(data_axis{}, in, out, 1e-12);
}

TEST_CASE("kinds: arguments and leaves that nothing reads", "[kinds]") {
  const plains in{wave(1, {5}), wave(2, {4}), wave(3, {3, 2}), wave(4, {4}), wave(5, {4}), indices(6, {2}, 9)};
  plain product = in[1];
  real sum = 0;
  for (int i = 0; i < 4; ++i) {
    product(i) *= in[4](i);
    sum += in[3](i);
  }
  everywhere<unused_program>(data_axis{}, in, {product, plain::number(sum)});
  plain gradient = in[4];
  for (real& one : gradient.data) one /= 4;
  everywhere<blind_program>(data_axis{}, {in[1], in[2], in[3], in[4]}, {gradient, plain({3, 2}), plain({4})});
}
