// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/tensor/core/nn/training.hpp>
#include <espalier/tensor/run/execute/array_trees.hpp>
#include <espalier/tensor/run/execute/gather.hpp>

#include <support/kinds.hpp>

#include <boost/hana/define_struct.hpp>

/// Functions of trees, schedules, averages, loss scaling and gradients in parts, against plain loops.
namespace ep = espalier;
namespace nn = espalier::nn;
using namespace testing::kinds;

namespace {

template <class On> struct trees {
  using data = typename On::data;
  template <class Leaf> struct inner {
    BOOST_HANA_DEFINE_STRUCT(inner, (ep::leaf<Leaf, ep::sharded<ep::f64<5, 3>, data, ep::none>>, doubles),
                             (ep::leaf<Leaf, ep::sharded<ep::bf16<7>, data>>, brains));
  };
  template <class Leaf> struct net {
    BOOST_HANA_DEFINE_STRUCT(net, (inner<Leaf>, in), (ep::leaf<Leaf, ep::f16<>>, half),
                             (ep::leaf<Leaf, ep::sharded<ep::f32<3, 4>, ep::none, data>>, floats));
  };
  /// Leaves of one type, all split.
  template <class Leaf> struct even {
    BOOST_HANA_DEFINE_STRUCT(even, (ep::leaf<Leaf, ep::sharded<ep::f32<5, 3>, data, ep::none>>, one),
                             (ep::leaf<Leaf, ep::sharded<ep::f32<3, 4>, ep::none, data>>, other),
                             (ep::leaf<Leaf, ep::sharded<ep::f32<7>, data>>, bias));
  };
};
template <class On> using net_of = typename trees<On>::template net<ep::spec>;

constexpr ep::dtype types[]{ep::dtype::f64, ep::dtype::bf16, ep::dtype::f16, ep::dtype::f32};

real rounded(ep::dtype type, real value) {
  return static_cast<real>(ep::detail::stored_as(type, static_cast<double>(value)));
}
/// The leaves of `net`, as they are stored.
plains leaves(int seed, double scale) {
  plains made{wave(seed, {5, 3}, scale), wave(seed + 1, {7}, scale), wave(seed + 2, {}, scale),
              wave(seed + 3, {3, 4}, scale)};
  for (std::size_t l = 0; l < made.size(); ++l) {
    for (real& x : made[l].data) x = rounded(types[l], x);
  }
  return made;
}
template <class F> plains each(const plains& of, const F& f) {
  plains made = of;
  for (std::size_t l = 0; l < made.size(); ++l) {
    for (std::size_t i = 0; i < made[l].data.size(); ++i) made[l].data[i] = f(l, i);
  }
  return made;
}

// --- trees ----------------------------------------------------------------------------------------------------------

struct clip {
  constexpr auto operator()(const auto& t) const { return ep::clip_by_global_norm(t, 2.0); }
};
template <class On> using clip_program = ep::program<typename On::mesh, clip, net_of<On>>;

struct functions {
  constexpr auto operator()(const auto& t, const auto& u) const {
    const auto finite = ep::all_finite(ep::results(t, u));
    const auto largest = ep::tree_reduce(
        [](auto so_far, auto x) { return ep::maximum(so_far, ep::convert<ep::dtype::f32>(ep::max(ep::abs(x)))); },
        ep::constant<ep::f32<>>(finite, 0), t);
    const auto wide = ep::tree_map([](auto x) { return ep::convert<ep::dtype::f32>(x); }, t);
    static_assert(decltype(wide.in.doubles)::type == ep::dtype::f32 && decltype(wide.half)::type == ep::dtype::f32);
    return ep::results(ep::tree_zip([](auto x, auto y) { return x - 2 * y; }, t, u), wide, finite,
                       ep::tree_select(finite, t, ep::zeros_like(t)), largest);
  }
};
template <class On> using functions_program = ep::program<typename On::mesh, functions, net_of<On>, net_of<On>>;

struct norm {
  constexpr auto operator()(const auto& t) const { return ep::global_norm(t); }
};
template <class On>
using norm_program = ep::program<typename On::mesh, norm, typename trees<On>::template even<ep::spec>>;

}  // namespace

TEST_CASE("trees: the norm of all leaves, and clipping by it") {
  // 300 squared is beyond f16, and 1e-4 squared is below it.
  for (const double scale : {300.0, 1e-4}) {
    const plains in = leaves(1, scale);
    real squares = 0;
    for (const plain& leaf : in) {
      for (const real x : leaf.data) squares += x * x;
    }
    const real size = std::sqrt(squares);
    plains out = each(in, [&](std::size_t l, std::size_t i) { return in[l].data[i] * std::min(1.0L, 2 / size); });
    out.push_back(plain::number(size));
    const auto check = [&](const plains& got) {
      for (std::size_t l = 0; l < got.size(); ++l) {
        INFO("leaf " << l << " at " << scale);
        CHECK(difference(got[l], out[l], l == 1 ? 0x1p-8 : l == 2 ? 0x1p-11 : 1e-6) == "");
      }
    };
    check(run<clip_program<on<1, 1>>>(in));
    check(run<clip_program<on<4, 1>>>(in));
  }
  // One number, in one collective: a sum of four devices is three messages of four bytes.
  STATIC_REQUIRE(norm_program<on<4, 1>>::collectives() == 1);
  STATIC_REQUIRE(norm_program<on<4, 1>>::bytes<ep::all_reduce>() == 12);
  STATIC_REQUIRE(norm_program<on<1, 1>>::collectives() == 0);
}

TEST_CASE("trees: map, zip, reduce, select and whether all is finite") {
  const plains one = leaves(1, 1);
  plains other = leaves(11, 1);
  for (const bool finite : {true, false}) {
    if (!finite) other[3].data[7] = std::numeric_limits<real>::infinity();
    const plains in = [&] {
      plains both = one;
      both.insert(both.end(), other.begin(), other.end());
      return both;
    }();
    plains out = each(
        one, [&](std::size_t l, std::size_t i) { return rounded(types[l], one[l].data[i] - 2 * other[l].data[i]); });
    const plains wide =
        each(one, [&](std::size_t l, std::size_t i) { return rounded(ep::dtype::f32, one[l].data[i]); });
    out.insert(out.end(), wide.begin(), wide.end());
    out.push_back(plain::number(finite ? 1 : 0));
    const plains chosen = each(one, [&](std::size_t l, std::size_t i) { return finite ? one[l].data[i] : 0; });
    out.insert(out.end(), chosen.begin(), chosen.end());
    real largest = 0;
    for (const plain& leaf : one) {
      for (const real x : leaf.data) largest = std::max(largest, std::abs(x));
    }
    out.push_back(plain::number(largest));
    everywhere<functions_program>(few_or_all<meshes<on<1, 1>, on<4, 1>>, meshes<on<1, 1>, on<2, 1>, on<4, 1>>>{}, in,
                                  out, 1e-7);
  }
}

TEST_CASE("trees: of arrays") {
  // Split over one axis, and copied along the other.
  using program = clip_program<on<2, 2>>;
  ep::world world(program::mesh::value);
  ep::runner<program> runner(world);
  const auto tree = runner.argument<0>();
  array_list arrays;
  arrays.add(tree);
  const plains in = leaves(1, 300);
  arrays.write(in);
  real squares = 0;
  for (const plain& leaf : in) {
    for (const real x : leaf.data) squares += x * x;
  }
  const auto size = static_cast<double>(std::sqrt(squares));
  CHECK(ep::global_norm(world, tree) == Approx(size).epsilon(1e-14));
  const auto twice = ep::tree_map([](const auto& array) { return array; }, ep::zeros_like(tree));
  CHECK(ep::global_norm(world, twice) == 0);
  ep::tree_zip(
      [&](const auto& to, const auto& from) {
        const auto values = ep::gather(world, from);
        to.for_each([&](auto& x, std::int64_t i) {
          x = static_cast<std::remove_reference_t<decltype(x)>>(
              2 * static_cast<float>(values[static_cast<std::size_t>(i)]));
        });
      },
      twice, tree);
  CHECK(ep::global_norm(world, twice) == Approx(2 * size).epsilon(1e-7));
  CHECK(ep::global_norm(world, tree) == Approx(size).epsilon(1e-14));  // zeros_like shares no memory
  const auto count =
      ep::tree_reduce([](int so_far, const auto& array) { return so_far + array.shape().rank; }, 0, tree);
  CHECK(count == 2 + 1 + 0 + 2);
  CHECK(ep::clip_by_global_norm(world, tree, 1e9) == Approx(size).epsilon(1e-14));
  CHECK(ep::clip_by_global_norm(world, tree, 2) == Approx(size).epsilon(1e-14));
  const plains got = arrays.read();
  for (std::size_t l = 0; l < got.size(); ++l) {
    const plains out = each(in, [&](std::size_t n, std::size_t i) {
      return rounded(types[n], static_cast<real>(static_cast<double>(in[n].data[i]) * (2 / size)));
    });
    CHECK(difference(got[l], out[l], 1e-7) == "");
  }
  CHECK(ep::all_finite(world, tree));
  tree.floats.for_each([](float& x, std::int64_t i) { x = i == 11 ? std::numeric_limits<float>::quiet_NaN() : x; });
  CHECK_FALSE(ep::all_finite(world, tree));
  CHECK_THROWS_AS(ep::global_norm(world, decltype(tree){}), ep::argument_error);
}

// --- schedules ------------------------------------------------------------------------------------------------------

namespace {

constexpr nn::warm_up_settings rise_and_fall{.peak = 0.3, .warm_up = 10, .total = 100, .floor = 0.03};

struct schedules {
  constexpr auto operator()(auto t) const {
    return ep::results(nn::constant_rate(t, 0.1), nn::linear_rate(t, 0.1, 0.01, 100),
                       nn::cosine_rate(t, 0.1, 0.01, 100), nn::warm_up_cosine(t, rise_and_fall),
                       nn::warm_up_linear(t, rise_and_fall), nn::inverse_square_root(t, 0.3, 10), nn::relative_step(t),
                       nn::average_decay(t, 0.999));
  }
};
template <class On> using schedules_program = ep::program<typename On::mesh, schedules, ep::f32<>>;

}  // namespace

TEST_CASE("schedules: rates are functions of the step") {
  for (const int step : {0, 1, 4, 9, 10, 11, 55, 99, 100, 101, 20000}) {
    const real t = step;
    const real pi = std::acos(-1.0L);
    const real done = std::min(t / 100, 1.0L);
    const real fallen = std::min(std::max((t - 10) / 90, 0.0L), 1.0L);
    const real risen = std::min((t + 1) / 10, 1.0L);
    const plains expected{plain::number(0.1L),
                          plain::number(0.1L - 0.09L * done),
                          plain::number(0.01L + 0.09L * (1 + std::cos(pi * done)) / 2),
                          plain::number(risen * (0.03L + 0.27L * (1 + std::cos(pi * fallen)) / 2)),
                          plain::number(risen * (0.3L - 0.27L * fallen)),
                          plain::number(0.3L * std::min((t + 1) / 10, std::sqrt(10 / (t + 1)))),
                          plain::number(std::min(0.01L, 1 / std::sqrt(t + 1))),
                          plain::number(std::min(0.999L, (1 + t) / (10 + t)))};
    INFO("step " << step);
    gives<schedules_program<on<1, 1>>>({plain::number(t)}, expected, 6e-8);
  }
}

// --- moving averages ------------------------------------------------------------------------------------------------

namespace {

template <class On> struct averaged {
  template <class Leaf> using net = typename trees<On>::template net<Leaf>;
  template <class Leaf> struct state {
    BOOST_HANA_DEFINE_STRUCT(state, (net<Leaf>, parameters), (nn::accumulators<net, Leaf>, average));
  };
};
struct average {
  constexpr auto operator()(auto state, auto step) const {
    state.average = nn::moving_average(state.average, state.parameters, nn::average_decay(step, 0.9));
    return state;
  }
};
template <class On>
using average_program =
    ep::program<typename On::mesh, average, ep::donated<typename averaged<On>::template state<ep::spec>>, ep::f32<>>;

}  // namespace

TEST_CASE("averages: of parameters of every float type, in f32 where they are of sixteen bits") {
  const plains parameters = leaves(1, 1);
  plains in = parameters;
  const plains old = each(parameters, [](std::size_t, std::size_t i) { return 1 + static_cast<real>(i) / 16; });
  in.insert(in.end(), old.begin(), old.end());
  in.push_back(plain::number(200));
  plains out = parameters;
  const plains next = each(parameters, [&](std::size_t l, std::size_t i) {
    return old[l].data[i] + 0.1L * (parameters[l].data[i] - old[l].data[i]);
  });
  out.insert(out.end(), next.begin(), next.end());
  // The decay itself is of f32.
  everywhere<average_program>(meshes<on<1, 1>, on<4, 1>>{}, in, out, 1e-7);
  STATIC_REQUIRE(average_program<on<4, 1>>::collectives() == 0);
}

// --- loss scaling ---------------------------------------------------------------------------------------------------

namespace {

constexpr nn::loss_scale_settings scaling{.initial = 1024, .growth = 4, .interval = 2};

struct scaled_step {
  constexpr auto operator()(auto weight, const auto& state, auto x) const {
    const auto loss = [&](auto w) { return nn::scaled(ep::sum(w * x), state, scaling); };
    const auto gradient = nn::unscaled(ep::results(ep::grad(loss)(weight)), state, scaling);
    static_assert(std::remove_cvref_t<decltype(gradient.first)>::type == ep::dtype::f32);
    const auto finite = ep::all_finite(gradient);
    const auto next = weight - ep::convert<ep::dtype::f16>(gradient.first);
    return ep::results(ep::select(finite, next, weight), nn::next_loss_scale(state, finite, scaling), gradient.first);
  }
};
template <class On>
using scaled_program =
    ep::program<typename On::mesh, scaled_step, ep::donated<ep::sharded<ep::f16<5>, typename On::data>>,
                ep::donated<nn::loss_scale<ep::spec>>, ep::f16<5>>;

}  // namespace

TEST_CASE("loss scaling: small gradients arrive, and a step that overflows is left out") {
  const auto check = []<class On>(On) {
    using program = scaled_program<On>;
    plains state{plain({5}, 0.5L), plain::number(0), plain::number(0)};
    real scale = 1024;
    int finite_steps = 0;
    // 2^-24, the least f16; and what is beyond f16 times the scale.
    for (const real size : {0x1p-24L, 0x1p-24L, 0x1p-3L, 100.0L, 0x1p-24L}) {
      plains in = state;
      in.push_back(plain({5}, size));
      const bool finite = size * scale < 65504;
      plains out{plain({5}, finite ? rounded(ep::dtype::f16, state[0].data[0] - size) : state[0].data[0])};
      const bool is_due = finite && finite_steps + 1 == 2;
      finite_steps = finite && !is_due ? finite_steps + 1 : 0;
      scale *= !finite ? 0.5L : is_due ? 4 : 1;
      out.push_back(plain::number(scale));
      out.push_back(plain::number(finite_steps));
      out.push_back(plain({5}, finite ? size : std::numeric_limits<real>::infinity()));
      const plains got = run<program>(in);
      CAPTURE(static_cast<double>(size), static_cast<double>(scale));
      check_results(got, out, 0);
      state = {got[0], got[1], got[2]};
    }
    CHECK(scale == 2048);  // 1024 * 4 / 2, and one finite step since
  };
  check(on<1, 1>{});
  check(on<2, 1>{});
}

// --- gradients in parts ---------------------------------------------------------------------------------------------

namespace {

template <class Leaf> struct line {
  BOOST_HANA_DEFINE_STRUCT(line, (ep::leaf<Leaf, ep::f64<3>>, weight), (ep::leaf<Leaf, ep::bf16<>>, bias));
};
template <class On> struct fit {
  constexpr auto operator()(const auto& p, const auto& before, auto x, auto y) const {
    const auto loss = [](const auto& q, auto rows, auto wanted) {
      const auto error = ep::einsum<"bi,i->b">(ep::shard<typename On::data, ep::none>(rows), q.weight) - wanted;
      return ep::mean(error * error) + ep::convert<ep::dtype::f64>(q.bias * q.bias);
    };
    const auto [value, gradient] = nn::value_and_grad_in_parts<4>(loss)(p, x, y);
    return ep::results(value, nn::add_gradients(before, gradient));
  }
};
template <class On>
using fit_program =
    ep::program<typename On::mesh, fit<On>, line<ep::spec>, nn::accumulators<line, ep::spec>,
                ep::sharded<ep::f64<24, 3>, typename On::data, ep::none>, ep::sharded<ep::f64<24>, typename On::data>>;

}  // namespace

TEST_CASE("gradients in parts are those of the whole batch") {
  const plain w = wave(1, {3}), x = wave(2, {24, 3}), y = wave(3, {24}), before = wave(4, {3});
  const real bias = 0.75L;
  real loss = bias * bias;
  plain gradient = before;
  for (int r = 0; r < 24; ++r) {
    real error = -y(r);
    for (int i = 0; i < 3; ++i) error += x(r, i) * w(i);
    loss += error * error / 24;
    for (int i = 0; i < 3; ++i) gradient(i) += 2 * error * x(r, i) / 24;
  }
  const plains in{w, plain::number(bias), before, plain::number(0.125L), x, y};
  everywhere<fit_program>(few_or_all<meshes<on<2, 1>, on<4, 1>>, meshes<on<1, 1>, on<2, 1>, on<4, 1>>>{}, in,
                          {plain::number(loss), gradient, plain::number(0.125L + 2 * bias)}, 1e-12);
  // Rows stay where they are: only sums travel.
  STATIC_REQUIRE(fit_program<on<2, 1>>::collectives<ep::all_reduce>() == fit_program<on<2, 1>>::collectives());
}
