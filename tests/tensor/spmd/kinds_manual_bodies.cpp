// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/manual.hpp>
#include <support/kinds.hpp>

namespace ep = espalier;
namespace spmd = espalier::spmd;
using namespace testing::kinds;

namespace {

/// Calls `test.operator()<On>()` for each mesh: what a region gives depends on the number of devices.
template <class... On, class Test> void on_each(meshes<On...> /*meshes*/, const Test& test) {
  (test.template operator()<On>(), ...);
}

// --- a gradient that is taken inside ---------------------------------------------------------------------------------

/// A step of training, data-parallel by hand: nobody adds up the gradient but the type of w, which is invariant.
template <class On> struct step_by_hand {
  using data = typename On::data;
  constexpr auto operator()(auto x, auto y, auto w) const {
    return ep::manual<data>(
        [](auto rows, auto wanted, auto weights) {
          const auto loss = [&](auto v) {
            const auto gathered = spmd::all_gather<data>(wanted * ep::sum(v));
            const auto error = ep::tanh(ep::matmul(rows, v)) - wanted;
            const auto next = spmd::permute<data, 1>(error);
            return spmd::psum<data>(ep::sum(error * next)) + ep::sum(gathered * gathered) +
                   ep::sum(spmd::pmax<data>(error * error));
          };
          const auto both = ep::value_and_grad(loss)(weights);
          return ep::results(both.value, weights - 0.1 * both.gradient);
        },
        ep::in_specs<ep::dims<data>, ep::dims<data>, ep::dims<>>(), ep::out_specs<ep::dims<>, ep::dims<>>())(x, y, w);
  }
};
template <class On>
using step_by_hand_program = ep::program<typename On::mesh, step_by_hand<On>, ep::f64<8, 3>, ep::f64<8>, ep::f64<3>>;

real plain_step(const plains& in, int d) {
  real error[8], all = 0, total = 0;
  for (int i = 0; i < 3; ++i) total += in[2](i);
  for (int r = 0; r < 8; ++r) {
    real sum = 0;
    for (int i = 0; i < 3; ++i) sum += in[0](r, i) * in[2](i);
    error[r] = std::tanh(sum) - in[1](r);
    all += in[1](r) * in[1](r) * total * total;
  }
  const int rows = 8 / d;
  for (int r = 0; r < 8; ++r) all += error[r] * error[(r - rows + 8) % 8];
  for (int r = 0; r < rows; ++r) {
    real most = 0;
    for (int k = 0; k < d; ++k) most = std::max(most, error[k * rows + r] * error[k * rows + r]);
    all += most;
  }
  return all;
}

// --- loops and branches ----------------------------------------------------------------------------------------------

/// A product whose left operand comes round a ring, a shard in each step, and is put where it belongs.
template <class On> struct ring {
  using model = typename On::model;
  static constexpr int d = model::size;
  constexpr auto operator()(auto x, auto w) const {
    const auto loss = [](auto rows, auto weights) {
      const auto out = ep::manual<model>(
          [](auto shard, auto v) {
            constexpr int size = decltype(shard)::extent(0);
            const auto here = spmd::axis_index<model>(shard);
            const auto zeros = ep::constant<ep::f64<8, decltype(v)::extent(1)>>(shard, 0.0);
            const auto all = ep::repeat<d>(
                [&](const auto& carry, auto step) {
                  const auto [block, done] = carry;
                  const auto from = ep::remainder(here - step + d, ep::constant<ep::i32<>>(step, d));
                  const auto product = ep::matmul(block, v);
                  return ep::results(spmd::permute<model, 1>(block),
                                     ep::dynamic_update_slice<0>(done, product, from * size));
                },
                ep::results(shard, zeros));
            return all.template get<1>();
          },
          ep::in_specs<ep::dims<model>, ep::dims<ep::none, model>>(),
          ep::out_specs<ep::dims<ep::none, model>>())(rows, weights);
      return ep::results(ep::sum(ep::sin(out)), out);
    };
    const auto both = ep::value_and_grad<0, 1>(loss)(x, w);
    return ep::results(both.value, both.gradient);
  }
};
template <class On> using ring_program = ep::program<typename On::mesh, ring<On>, ep::f64<8, 3>, ep::f64<3, 8>>;

plain plain_product(const plains& in) {
  plain out({8, 8});
  for (int r = 0; r < 8; ++r) {
    for (int c = 0; c < 8; ++c) {
      for (int i = 0; i < 3; ++i) out(r, c) += in[0](r, i) * in[1](i, c);
    }
  }
  return out;
}
real plain_sines(const plains& in) {
  real all = 0;
  for (const real one : plain_product(in).data) all += std::sin(one);
  return all;
}

/// A scan over layers that are cut along model, whose carry varies; a branch and a loop that all devices take alike.
template <class On> struct regions_inside {
  using model = typename On::model;
  constexpr auto operator()(auto x, auto layers) const {
    const auto loss = [](auto start, auto all) {
      const auto out = ep::manual<model>(
          [](auto s, auto stack) {
            const auto scanned = ep::scan(
                [](auto h, auto w) {
                  const auto next = ep::tanh(h * w);
                  return ep::results(next, ep::sum(next));
                },
                s, stack);
            const auto last = scanned.template get<0>();
            const auto sums = scanned.template get<1>();
            const auto total = spmd::psum<model>(ep::sum(last));
            const auto chosen = ep::cond(
                total > 0.0, [&] { return spmd::permute<model, 1>(last); }, [&] { return 2.0 * last; });
            const auto grown = ep::while_loop(
                [](auto t) { return t.template get<1>() < 3; },
                [](auto t) { return ep::results(t.template get<0>() * t.template get<0>(), t.template get<1>() + 1); },
                ep::results(chosen, ep::constant<ep::i32<>>(total, 1)), ep::at_most_iterations<4>);
            return ep::results(grown.template get<0>(), spmd::psum<model>(sums));
          },
          ep::in_specs<ep::dims<model>, ep::dims<ep::none, model>>(),
          ep::out_specs<ep::dims<model>, ep::dims<>>())(start, all);
      return ep::sum(out.template get<0>()) + ep::sum(out.template get<1>() * out.template get<1>());
    };
    const auto both = ep::value_and_grad<0, 1>(loss)(x, layers);
    return ep::results(both.value, both.gradient);
  }
};
template <class On>
using regions_inside_program = ep::program<typename On::mesh, regions_inside<On>, ep::f64<8>, ep::f64<3, 8>>;

real plain_regions(const plains& in, int d) {
  plain h = in[0];
  real all = 0, total = 0;
  for (int l = 0; l < 3; ++l) {
    real sum = 0;
    for (int i = 0; i < 8; ++i) sum += h(i) = std::tanh(h(i) * in[1](l, i));
    all += sum * sum;
    total = sum;
  }
  for (int i = 0; i < 8; ++i) {
    const real chosen = total > 0 ? h((i - 8 / d + 8) % 8) : 2 * h(i);
    all += chosen * chosen * chosen * chosen;
  }
  return all;
}

// --- other operators on shards ---------------------------------------------------------------------------------------

/// What each device does to its own rows; along data the compiler may split what it likes.
constexpr auto many_ops = [](auto s, auto w) {  // f64[1, 4, 6], f64[5, 6]
  using ep::dtype;
  const auto flat = ep::reshape<4, 6>(s);
  const auto turned = ep::transpose<1, 0>(flat);
  const auto soft = ep::softmax<-1>(flat) + ep::log_softmax<0>(flat);
  const auto sums = ep::cumsum<1>(flat) + ep::max<1>(flat, ep::keep_dims) + ep::mean<0>(flat);
  const auto rows = ep::concat<0>(flat, ep::slice<0, 1, 3>(w));
  const auto padded = ep::pad<1, 1, 2>(ep::roll<0, 1>(rows));
  const auto top = ep::top_k<1, 2>(flat);
  const auto first =
      ep::convert<dtype::i32>(ep::remainder(ep::floor(ep::sum(flat) * 10.0), ep::constant<ep::f64<>>(s, 3.0)));
  const auto cut = ep::dynamic_slice<0, 2>(flat, first);
  const auto written = ep::dynamic_update_slice<1>(flat, ep::slice<1, 0, 2>(flat), first);
  const auto looked = ep::gather<0>(w, top.indices);
  const auto both = ep::gather<0>(flat, ep::convert<dtype::i32>(ep::floor(ep::abs(ep::slice<1, 0, 3>(flat)) * 3.9)));
  const auto chosen = ep::select(flat > 0.0, flat, ep::clamp(-0.5, flat, 0.5) * 2.0);
  const auto product = ep::einsum<"ab,cb,ab->c">(flat, w, soft);
  const auto image = ep::convolution(ep::reshape<1, 4, 6, 1>(s), ep::reshape<1, 5, 1, 6>(w));
  return ep::sum(ep::sin(turned)) + ep::sum(soft * sums) + ep::sum(padded * padded) + ep::sum(top.values) +
         ep::sum(cut * cut) + ep::sum(ep::sin(written)) + ep::sum(looked * looked) + ep::sum(both * both) +
         ep::sum(chosen) + ep::sum(ep::exp(product)) + ep::sum(image * image);
};
template <class On> struct ops_on_shards {
  using model = typename On::model;
  constexpr auto operator()(auto x, auto w) const {
    const auto loss = [](auto y, auto v) {
      return ep::manual<model>(
          [](auto shards, auto u) {
            const auto each = ep::scan([&](auto sum, auto one) { return sum + many_ops(ep::reshape<1, 4, 6>(one), u); },
                                       spmd::pvary<model>(ep::constant<ep::f64<>>(u, 0.0)), shards);
            return spmd::psum<model>(each);
          },
          ep::in_specs<ep::dims<model>, ep::dims<>>(), ep::out_specs<ep::dims<>>())(y, v);
    };
    const auto both = ep::value_and_grad<0, 1>(loss)(x, w);
    return ep::results(both.value, both.gradient);
  }
};
/// The same without a region.
struct ops_on_rows {
  constexpr auto operator()(auto x, auto w) const {
    const auto loss = [](auto y, auto v) {
      return ep::scan([&](auto sum, auto one) { return sum + many_ops(ep::reshape<1, 4, 6>(one), v); },
                      ep::constant<ep::f64<>>(v, 0.0), y);
    };
    const auto both = ep::value_and_grad<0, 1>(loss)(x, w);
    return ep::results(both.value, both.gradient);
  }
};
using ops_on_rows_program = ep::program<on<1, 1>::mesh, ops_on_rows, ep::f64<8, 4, 6>, ep::f64<5, 6>>;
template <class On>
using ops_on_shards_program = ep::program<typename On::mesh, ops_on_shards<On>, ep::f64<8, 4, 6>, ep::f64<5, 6>>;

}  // namespace

TEST_CASE("kinds: a gradient that is taken inside of a region", "[kinds][manual]") {
  const plains in{wave(1, {8, 3}), wave(2, {8}), wave(3, {3})};
  on_each(few_or_all<meshes<on<4, 1>>, meshes<on<1, 1>, on<2, 1>, on<4, 1>, on<8, 1>>>{}, [&]<class On>() {
    const auto loss = [](const plains& given) { return plain_step(given, On::data::size); };
    plain next = in[2];
    const plain slopes = slope(loss, in, 2);
    for (int i = 0; i < 3; ++i) next(i) -= slopes(i) / 10;
    gives<step_by_hand_program<On>>(in, {plain::number(loss(in)), next}, 1e-7);
  });
}

TEST_CASE("kinds: a product round a ring", "[kinds][manual]") {
  const plains in{wave(1, {8, 3}), wave(2, {3, 8})};
  plains expected = value_and_slopes(plain_sines, in, 2);
  expected.insert(expected.begin() + 1, plain_product(in));
  everywhere<ring_program>(few_or_all<meshes<on<1, 8>>, meshes<on<1, 1>, on<1, 2>, on<1, 4>, on<1, 8>>>{}, in, expected,
                           1e-7);
}

TEST_CASE("kinds: loops and branches inside of a region", "[kinds][manual]") {
  const plains in{wave(1, {8}), wave(2, {3, 8}, 2)};
  on_each(few_or_all<meshes<on<1, 4>>, meshes<on<1, 1>, on<1, 2>, on<1, 4>, on<1, 8>>>{}, [&]<class On>() {
    const auto loss = [](const plains& given) { return plain_regions(given, On::model::size); };
    gives<regions_inside_program<On>>(in, value_and_slopes(loss, in, 2), 1e-7);
  });
}

TEST_CASE("kinds: other operators on shards", "[kinds][manual]") {
  const plains in{wave(1, {8, 4, 6}), wave(2, {5, 6}, 0.5)};
  const plains expected = run<ops_on_rows_program>(in);
  CHECK(std::abs(expected[0]()) > 1);
  on_each(few_or_all<meshes<on<2, 4>>, meshes<on<1, 1>, on<1, 2>, on<2, 4>>>{},
          [&]<class On>() { gives<ops_on_shards_program<On>>(in, expected, 1e-9); });
}
