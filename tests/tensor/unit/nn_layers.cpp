// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// together: layers

#include "nn_check.hpp"

#include <cmath>
#include <type_traits>

namespace {

using namespace nn_check;

// --- attention: [batch 2, sequence 5, heads 3, head_dim 4] ----------------------------------------------------------

struct attention {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const { return nn::causal_attention(q, k, v); }
};
struct attention_in_parts {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
    const auto weights = softmax(nn::hide_future(nn::attention_scores(q, k)));
    return nn::attention_mix(weights, v);
  }
};
struct attention_by_value {
  constexpr auto operator()(const auto& v, const auto& q, const auto& k) const { return nn::causal_attention(q, k, v); }
};
struct attention_by_key {
  constexpr auto operator()(const auto& k, const auto& q, const auto& v) const { return nn::causal_attention(q, k, v); }
};

/// Attention with loops; the last query stands at the last key.
std::vector<double> plain_attention(const tensor_value& q, const tensor_value& k, const tensor_value& v) {
  const auto batch = static_cast<std::size_t>(q.shape[0]);
  const auto queries = static_cast<std::size_t>(q.shape[1]);
  const auto keys = static_cast<std::size_t>(k.shape[1]);
  const auto heads = static_cast<std::size_t>(q.shape[2]);
  const auto size = static_cast<std::size_t>(q.shape[3]);
  const auto at = [&](std::size_t b, std::size_t s, std::size_t length, std::size_t h, std::size_t d) {
    return ((b * length + s) * heads + h) * size + d;
  };
  std::vector<double> out(q.data.size());
  for (std::size_t b = 0; b < batch; ++b) {
    for (std::size_t h = 0; h < heads; ++h) {
      for (std::size_t i = 0; i < queries; ++i) {
        std::vector<double> weight;
        double total = 0;
        for (std::size_t j = 0; j <= i + keys - queries; ++j) {
          double score = 0;
          for (std::size_t d = 0; d < size; ++d)
            score += q.data[at(b, i, queries, h, d)] * k.data[at(b, j, keys, h, d)];
          weight.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
          total += weight.back();
        }
        for (std::size_t d = 0; d < size; ++d) {
          double sum = 0;
          for (std::size_t j = 0; j < weight.size(); ++j) sum += weight[j] / total * v.data[at(b, j, keys, h, d)];
          out[at(b, i, queries, h, d)] = sum;
        }
      }
    }
  }
  return out;
}

// --- norms, dense layers
// ----------------------------------------------------------------------------------------------

struct layer_norm {
  constexpr auto operator()(const auto& x, const auto& gain, const auto& bias) const {
    return nn::layer_norm(x, gain, bias);
  }
};
struct layer_norm_by_gain {
  constexpr auto operator()(const auto& gain, const auto& x, const auto& bias) const {
    return nn::layer_norm(x, gain, bias, 0.1);
  }
};
struct rms_norm {
  constexpr auto operator()(const auto& x, const auto& gain) const { return nn::rms_norm(x, gain, 1e-3); }
};

struct halved {
  constexpr auto operator()(const auto& x, source_line) const { return x * 0.5; }
};
struct mlp {
  constexpr auto operator()(const auto&... x) const { return nn::mlp(x...); }
};
struct mlp_placed {
  constexpr auto operator()(const auto&... x) const { return nn::mlp(x..., halved{}); }
};

double plain_gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

std::vector<double> plain_dense(const std::vector<double>& x, const tensor_value& weight, const tensor_value& bias) {
  const auto in = static_cast<std::size_t>(weight.shape[0]);
  const auto out = static_cast<std::size_t>(weight.shape[1]);
  std::vector<double> y(x.size() / in * out);
  for (std::size_t r = 0; r < x.size() / in; ++r) {
    for (std::size_t o = 0; o < out; ++o) {
      double sum = bias.data[o];
      for (std::size_t i = 0; i < in; ++i) sum += x[r * in + i] * weight.data[i * out + o];
      y[r * out + o] = sum;
    }
  }
  return y;
}

}  // namespace

TEST_CASE("nn: causal attention as loops compute it") {
  random_source random(1);
  using t = f64<2, 5, 3, 4>;
  const auto data = random_arguments<t, t, t>(random, 2, -3, 3);
  require_close(run<attention, t, t, t>(data)[0].data, plain_attention(data[0], data[1], data[2]));
  require_close(run<attention_in_parts, t, t, t>(data)[0].data, plain_attention(data[0], data[1], data[2]));
}

TEST_CASE("nn: fewer queries than keys are the last ones") {
  random_source random(2);
  using q = f64<2, 2, 3, 4>;
  using kv = f64<2, 5, 3, 4>;
  const auto data = random_arguments<q, kv, kv>(random);
  require_close(run<attention, q, kv, kv>(data)[0].data, plain_attention(data[0], data[1], data[2]));
}

TEST_CASE("nn: attention survives huge scores") {
  random_source random(3);
  using t = f64<1, 4, 1, 2>;
  auto data = random_arguments<t, t, t>(random);
  for (double& x : data[0].data) x *= 1e6;
  const auto made = run<attention, t, t, t>(data);
  for (const double y : made[0].data) REQUIRE(std::isfinite(y));
}

TEST_CASE("nn: no query sees a later key") {
  random_source random(4);
  using t = f64<1, 6, 2, 3>;
  auto data = random_arguments<t, t, t>(random);
  const auto before = run<attention, t, t, t>(data)[0].data;
  for (std::size_t i = 24; i < 36; ++i) data[1].data[i] = data[2].data[i] = 9;
  const auto after = run<attention, t, t, t>(data)[0].data;
  for (std::size_t i = 0; i < 24; ++i) REQUIRE(before[i] == after[i]);
  REQUIRE(before[30] != after[30]);
}

TEST_CASE("nn: gradients of attention") {
  random_source random(5);
  using t = f64<2, 4, 2, 3>;
  check_gradient<attention, t, t, t, t>(random);
  check_gradient<attention_by_key, t, t, t, t>(random);
  check_gradient<attention_by_value, t, t, t, t>(random);
}

TEST_CASE("nn: layer norm and RMS norm as loops compute them") {
  random_source random(6);
  using x = f64<3, 2, 7>;
  using g = f64<7>;
  const auto data = random_arguments<x, g, g>(random, 2, -2, 5);
  const auto normal = run<layer_norm, x, g, g>(data)[0].data;
  const auto root = run<rms_norm, x, g>({data[0], data[1]})[0].data;
  for (std::size_t r = 0; r < 6; ++r) {
    double mean = 0;
    double variance = 0;
    double square = 0;
    for (std::size_t i = 0; i < 7; ++i) mean += data[0].data[r * 7 + i] / 7;
    for (std::size_t i = 0; i < 7; ++i) variance += std::pow(data[0].data[r * 7 + i] - mean, 2) / 7;
    for (std::size_t i = 0; i < 7; ++i) square += std::pow(data[0].data[r * 7 + i], 2) / 7;
    for (std::size_t i = 0; i < 7; ++i) {
      const double v = data[0].data[r * 7 + i];
      REQUIRE(normal[r * 7 + i] ==
              Approx((v - mean) / std::sqrt(variance + 1e-5) * data[1].data[i] + data[2].data[i]).epsilon(1e-12));
      REQUIRE(root[r * 7 + i] == Approx(v / std::sqrt(square + 1e-3) * data[1].data[i]).epsilon(1e-12));
    }
  }
}

TEST_CASE("nn: gradients of norms") {
  random_source random(7);
  using x = f64<3, 2, 7>;
  using g = f64<7>;
  check_gradient<layer_norm, x, x, g, g>(random);
  check_gradient<layer_norm_by_gain, x, g, x, g>(random);
  check_gradient<rms_norm, x, x, g>(random);
}

TEST_CASE("nn: MLP as loops compute it, with what stands between placed") {
  random_source random(8);
  using x = f64<2, 3, 4>;
  const auto data = random_arguments<x, f64<4, 6>, f64<6>, f64<6, 4>, f64<4>>(random);
  for (const double part : {1.0, 0.5}) {
    auto hidden = plain_dense(data[0].data, data[1], data[2]);
    for (double& h : hidden) h = plain_gelu(part * h);
    const auto expected = plain_dense(hidden, data[3], data[4]);
    const auto made = part == 1.0 ? run<mlp, x, f64<4, 6>, f64<6>, f64<6, 4>, f64<4>>(data)
                                  : run<mlp_placed, x, f64<4, 6>, f64<6>, f64<6, 4>, f64<4>>(data);
    require_close(made[0].data, expected);
  }
  check_gradient<mlp, x, x, f64<4, 6>, f64<6>, f64<6, 4>, f64<4>>(random);
}

// --- mistakes travel on
// -----------------------------------------------------------------------------------------------

namespace {

template <class Type> using s = symbol<one_device, Type>;
using broken = failed<why::out_of_bounds<f32<1>>>;
using q = s<f32<2, 5, 3, 4>>;

template <class T, template <class...> class Reason> inline constexpr bool is_reason = false;
template <class... Details, template <class...> class Reason>
inline constexpr bool is_reason<failed<Reason<Details...>>, Reason> = true;

template <class F, class... Arguments>
inline constexpr bool hands_on = std::is_same_v<decltype(F{}(std::declval<const Arguments&>()...)), broken>;

static_assert(hands_on<attention, broken, q, q> && hands_on<attention, q, broken, q> &&
              hands_on<attention, q, q, broken>);
static_assert(hands_on<layer_norm, broken, s<f32<4>>, s<f32<4>>> && hands_on<layer_norm, q, s<f32<4>>, broken>);
static_assert(hands_on<rms_norm, broken, s<f32<4>>> && hands_on<rms_norm, q, broken>);
static_assert(hands_on<mlp, q, s<f32<4, 8>>, broken, s<f32<8, 4>>, s<f32<4>>>);
static_assert(hands_on<mlp, broken, s<f32<4, 8>>, s<f32<8>>, s<f32<8, 4>>, s<f32<4>>>);

template <class F, class... Arguments> using made = decltype(F{}(std::declval<const Arguments&>()...));
static_assert(is_reason<made<attention, q, s<f32<2, 5, 3, 8>>, q>, why::einsum_size_mismatch>);
static_assert(is_reason<made<attention, s<f32<2, 5, 4>>, q, q>, why::wrong_rank>);
static_assert(is_reason<made<layer_norm, q, s<f32<5>>, s<f32<4>>>, why::shape_mismatch>);
static_assert(is_reason<made<layer_norm, q, s<f64<4>>, s<f32<4>>>, why::dtype_mismatch>);
static_assert(is_reason<made<layer_norm, s<i32<2, 4>>, s<i32<4>>, s<i32<4>>>, why::operand_is_not_floating>);
static_assert(is_reason<made<layer_norm, q, s<f32<1, 4>>, s<f32<4>>>, why::wrong_rank>);
static_assert(is_reason<made<mlp, q, s<f32<3, 8>>, s<f32<8>>, s<f32<8, 4>>, s<f32<4>>>, why::matmul_size_mismatch>);

}  // namespace

TEST_CASE("nn: everything a function appends carries the caller's line") {
  builder b;
  const auto argument = [&](auto type) {
    using tensor = decltype(type);
    return s<tensor>(b, emit::argument(b, tensor::type, tensor::shape, 0));
  };
  const auto x = argument(f32<2, 5, 3, 4>{});
  const auto gain = argument(f32<4>{});
  const auto logits = argument(f32<3, 7>{});
  const auto targets = argument(i32<3>{});
  const int first = b.size();
  const int line = __LINE__ + 1;
  static_cast<void>((nn::causal_attention(x, x, x), nn::layer_norm(x, gain, gain), nn::cross_entropy(logits, targets)));
  REQUIRE(b.size() > first + 20);
  for (int id = first; id < b.size(); ++id) {
    CAPTURE(id, b[id].op->name);
    REQUIRE(b[id].where.line == line);
  }
}
