// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never

#include "nn_check.hpp"

#include <boost/hana/define_struct.hpp>

#include <cmath>
#include <type_traits>

namespace {

using namespace nn_check;

template <class Leaf> struct dense {
  BOOST_HANA_DEFINE_STRUCT(dense, (leaf<Leaf, f64<3, 4>>, weight), (leaf<Leaf, f64<4>>, bias));
};
template <class Leaf> struct net {
  BOOST_HANA_DEFINE_STRUCT(net, (dense<Leaf>, first), (leaf<Leaf, f64<4, 2>>, last));
};
using adamw_state = nn::adamw<net>::state<spec>;
using sgd_state = nn::sgd<net>::state<spec>;

constexpr nn::adamw_settings adam{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.3};
constexpr nn::sgd_settings plain_sgd{.momentum = 0.7, .weight_decay = 0.2};

struct adamw_step {
  constexpr auto operator()(const auto& state, const auto& gradient, const auto& rate) const {
    return nn::adamw_step(state, gradient, rate, adam);
  }
};
struct adamw_without_decay {
  constexpr auto operator()(const auto& state, const auto& gradient, const auto& rate) const {
    return nn::adamw_step(state, gradient, rate, {.weight_decay = 0});
  }
};
struct sgd_step {
  constexpr auto operator()(const auto& state, const auto& gradient, const auto& rate) const {
    return nn::sgd_step(state, gradient, rate, plain_sgd);
  }
};

/// Leaf 1, the bias, does not decay.
constexpr std::size_t bias = 1;
constexpr std::size_t leaves = 3;

}  // namespace

TEST_CASE("nn: three steps of AdamW as its paper says") {
  random_source random(1);
  std::vector<tensor_value> state = random_arguments<adamw_state>(random);
  for (std::size_t l = leaves; l < 3 * leaves; ++l) {
    for (double& x : state[l].data) x = 0;
  }
  state[3 * leaves].data[0] = 0;
  auto p = state;
  for (int t = 1; t <= 3; ++t) {
    const auto gradient = random_arguments<net<spec>>(random);
    const double rate = 0.25 / t;
    auto arguments = state;
    arguments.insert(arguments.end(), gradient.begin(), gradient.end());
    arguments.push_back({extents{}, {rate}});
    state = run<adamw_step, adamw_state, net<spec>, f32<>>(arguments);
    for (std::size_t l = 0; l < leaves; ++l) {
      for (std::size_t i = 0; i < p[l].data.size(); ++i) {
        const double g = gradient[l].data[i];
        double& x = p[l].data[i];
        double& m = p[l + leaves].data[i];
        double& v = p[l + 2 * leaves].data[i];
        m = adam.beta1 * m + (1 - adam.beta1) * g;
        v = adam.beta2 * v + (1 - adam.beta2) * g * g;
        const double m_hat = m / (1 - std::pow(adam.beta1, t));
        const double v_hat = v / (1 - std::pow(adam.beta2, t));
        x -= rate * (m_hat / (std::sqrt(v_hat) + adam.epsilon) + (l == bias ? 0 : adam.weight_decay) * x);
      }
    }
    for (std::size_t l = 0; l < 3 * leaves; ++l) {
      CAPTURE(t, l);
      require_close(state[l].data, p[l].data, 1e-12);
    }
    REQUIRE(state[3 * leaves].data[0] == t);
  }
}

TEST_CASE("nn: without weight decay AdamW is Adam") {
  random_source random(2);
  auto arguments = random_arguments<adamw_state, net<spec>, f32<>>(random, 2, 0.1, 1);
  arguments[3 * leaves].data[0] = 4;
  const auto next = run<adamw_without_decay, adamw_state, net<spec>, f32<>>(arguments);
  const double m = 0.9 * arguments[leaves].data[0] + 0.1 * arguments[3 * leaves + 1].data[0];
  const double v = 0.999 * arguments[2 * leaves].data[0] + 0.001 * std::pow(arguments[3 * leaves + 1].data[0], 2);
  const double step = m / (1 - std::pow(0.9, 5)) / (std::sqrt(v / (1 - std::pow(0.999, 5))) + 1e-8);
  REQUIRE(next[0].data[0] == Approx(arguments[0].data[0] - arguments.back().data[0] * step).epsilon(1e-12));
}

TEST_CASE("nn: three steps of SGD with momentum") {
  random_source random(3);
  std::vector<tensor_value> state = random_arguments<sgd_state>(random);
  auto p = state;
  for (int t = 1; t <= 3; ++t) {
    const auto gradient = random_arguments<net<spec>>(random);
    auto arguments = state;
    arguments.insert(arguments.end(), gradient.begin(), gradient.end());
    arguments.push_back({extents{}, {0.125}});
    state = run<sgd_step, sgd_state, net<spec>, f32<>>(arguments);
    for (std::size_t l = 0; l < leaves; ++l) {
      for (std::size_t i = 0; i < p[l].data.size(); ++i) {
        double& velocity = p[l + leaves].data[i];
        velocity = plain_sgd.momentum * velocity + gradient[l].data[i];
        p[l].data[i] *= 1 - (l == bias ? 0 : 0.125 * plain_sgd.weight_decay);
        p[l].data[i] -= 0.125 * velocity;
      }
    }
    for (std::size_t l = 0; l < 2 * leaves; ++l) require_close(state[l].data, p[l].data, 1e-12);
  }
}

namespace {

struct data : axis<"data", 2> {};
using two_devices = mesh<data>;

struct split_step {
  constexpr auto operator()(const auto& state, const auto& gradient, const auto& rate) const {
    return nn::adamw_step(state, gradient, rate, adam, nn::split_state<data, 4>{});
  }
};

template <class Mesh> graph split_program() {
  return normalise(detail::trace<Mesh, split_step, donated<adamw_state>, net<spec>, f32<>>().program);
}

}  // namespace

TEST_CASE("nn: a split state is annotated, computes the same, and costs nothing on one device") {
  const graph split = split_program<two_devices>();
  int annotated = 0;
  for (int id = 0; id < split.code.size(); ++id) {
    if (split.code[id].op != &ops::shard) continue;
    ++annotated;
    const sharding& placement = split.annotations[split.code[id].annotation].placement;
    const extents& shape = split.code[id].shape;
    const int dim = shape[0] == 4 ? 0 : 1;
    REQUIRE(shape[dim] == 4);
    REQUIRE(placement.dim[dim] == axis_list(0));
    if (shape.rank == 2) REQUIRE(placement.is_open(1 - dim));
  }
  REQUIRE(annotated == 2 * static_cast<int>(leaves));
  random_source random(4);
  auto arguments = random_arguments<adamw_state, net<spec>, f32<>>(random, 2, 0.1, 1);
  const auto whole = run<adamw_step, adamw_state, net<spec>, f32<>>(arguments);
  const auto parts = interpret(split, arguments);
  for (std::size_t l = 0; l < whole.size(); ++l) REQUIRE(whole[l].data == parts[l].data);
  REQUIRE(split_program<one_device>().code.size() ==
          traced_program<adamw_step, adamw_state, net<spec>, f32<>>().code.size());
}

namespace {

using broken = failed<why::out_of_bounds<f32<1>>>;
using state_symbols = nn::adamw<net>::state<symbols<one_device>>;
using rate_symbol = symbol<one_device, f32<>>;
template <class F, class... A> using made = decltype(F{}(std::declval<const A&>()...));
static_assert(std::is_same_v<made<adamw_step, state_symbols, broken, rate_symbol>, broken>);
static_assert(std::is_same_v<made<adamw_step, broken, net<symbols<one_device>>, rate_symbol>, broken>);
static_assert(std::is_same_v<made<sgd_step, state_symbols, net<symbols<one_device>>, broken>, broken>);
static_assert(std::is_same_v<made<adamw_step, state_symbols, net<symbols<one_device>>, rate_symbol>, state_symbols>);

}  // namespace
