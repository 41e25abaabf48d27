// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// optimised: never
// built: once

#include "nn_check.hpp"

#include <gpt/model.hpp>

#include <espalier/tensor/core/program/common_subexpressions.hpp>
#include <espalier/tensor/core/program/complete.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <type_traits>

namespace {

using namespace nn_check;

// vocabulary 11, width 8, heads 2, layers 3, context 5, batch 2
using small = gpt::config<11, 8, 2, 3, 5, 2, f64>;
struct small_recomputed : small {
  static constexpr bool recompute_blocks = true;
};
struct small_tied : small {
  static constexpr bool tied_embedding = true;
};
struct small_biased : small {
  static constexpr bool attention_bias = true;
};

template <class Config> struct loss_and_gradient {
  constexpr auto operator()(const auto& parameters, const auto& tokens, const auto& targets) const {
    const auto made = value_and_grad(gpt::loss<Config>{})(parameters, tokens, targets);
    return results(made.value, made.gradient);
  }
};

/// Parameters as the example starts them, but larger, so that every path matters; and tokens.
template <class Config> std::vector<tensor_value> arguments_of(random_source& random) {
  auto made = random_arguments<gpt::parameters<Config, spec>, typename Config::tokens, typename Config::tokens>(
      random, Config::vocabulary);
  gpt::parameters<Config, spec> tree;
  std::size_t index = 0;
  nn::initialise(
      tree, 5, [](const nn::leaf_path& path) { return gpt::initial<Config>(path); },
      [&](const auto&, const auto& value) {
        std::vector<double>& data = made[index++].data;
        for (std::size_t i = 0; i < data.size(); ++i) data[i] = 0.1 * data[i] + 10 * value(i);
      });
  return made;
}

template <class Config> graph loss_program() {
  return traced_program<gpt::loss<Config>, gpt::parameters<Config, spec>, typename Config::tokens,
                        typename Config::tokens>();
}

template <class Config> std::vector<tensor_value> check_whole_gradient(std::uint32_t seed) {
  random_source random(seed);
  const auto arguments = arguments_of<Config>(random);
  const auto made =
      run<loss_and_gradient<Config>, gpt::parameters<Config, spec>, typename Config::tokens, typename Config::tokens>(
          arguments);
  const graph value = loss_program<Config>();
  REQUIRE(made.size() == arguments.size() - 1);
  for (std::size_t k = 0; k + 1 < made.size(); ++k) require_gradient(value, arguments, k, made[1 + k], random, 3);
  return made;
}

// --- the same model with plain loops
// ------------------------------------------------------------------------------------

using matrix = std::vector<std::vector<double>>;  // one token's vector per row

std::vector<double> normalised(const std::vector<double>& x, const double* gain, const double* bias) {
  double mean = 0;
  double variance = 0;
  for (const double v : x) mean += v / static_cast<double>(x.size());
  for (const double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
  std::vector<double> y;
  for (std::size_t i = 0; i < x.size(); ++i)
    y.push_back((x[i] - mean) / std::sqrt(variance + 1e-5) * gain[i] + bias[i]);
  return y;
}

std::vector<double> product(const std::vector<double>& x, const double* weight, std::size_t columns) {
  std::vector<double> y(columns, 0.0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t o = 0; o < columns; ++o) y[o] += x[i] * weight[i * columns + o];
  }
  return y;
}

/// The mean loss of one batch for `small`.
double plain_loss(const std::vector<tensor_value>& a) {
  constexpr std::size_t width = 8;
  constexpr std::size_t heads = 2;
  constexpr std::size_t size = 4;
  constexpr std::size_t hidden = 32;
  constexpr std::size_t vocabulary = 11;
  enum leaf {
    token,
    position,
    norm1_gain,
    norm1_bias,
    query,
    key,
    value,
    output,
    norm2_gain,
    norm2_bias,
    up,
    up_bias,
    down,
    down_bias,
    gain,
    bias,
    head,
    tokens,
    targets
  };
  const auto at = [&](leaf which, std::size_t offset = 0) { return &a[which].data[offset]; };
  double total = 0;
  for (std::size_t b = 0; b < 2; ++b) {
    matrix x;
    for (std::size_t s = 0; s < 5; ++s) {
      const auto t = static_cast<std::size_t>(a[tokens].data[b * 5 + s]);
      x.emplace_back();
      for (std::size_t i = 0; i < width; ++i) x[s].push_back(*at(token, t * width + i) + *at(position, s * width + i));
    }
    for (std::size_t layer = 0; layer < 3; ++layer) {
      matrix q;
      matrix k;
      matrix v;
      for (const auto& row : x) {
        const auto n = normalised(row, at(norm1_gain, layer * width), at(norm1_bias, layer * width));
        q.push_back(product(n, at(query, layer * width * width), width));
        k.push_back(product(n, at(key, layer * width * width), width));
        v.push_back(product(n, at(value, layer * width * width), width));
      }
      for (std::size_t i = 0; i < 5; ++i) {
        std::vector<double> mixed(width, 0.0);
        for (std::size_t h = 0; h < heads; ++h) {
          std::vector<double> weight;
          double sum = 0;
          for (std::size_t j = 0; j <= i; ++j) {
            double score = 0;
            for (std::size_t d = h * size; d < (h + 1) * size; ++d) score += q[i][d] * k[j][d];
            weight.push_back(std::exp(score / 2));
            sum += weight.back();
          }
          for (std::size_t j = 0; j <= i; ++j) {
            for (std::size_t d = h * size; d < (h + 1) * size; ++d) mixed[d] += weight[j] / sum * v[j][d];
          }
        }
        const auto added = product(mixed, at(output, layer * width * width), width);
        for (std::size_t d = 0; d < width; ++d) x[i][d] += added[d];
        const auto n = normalised(x[i], at(norm2_gain, layer * width), at(norm2_bias, layer * width));
        auto h = product(n, at(up, layer * width * hidden), hidden);
        for (std::size_t d = 0; d < hidden; ++d) {
          const double y = h[d] + *at(up_bias, layer * hidden + d);
          h[d] = 0.5 * y * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (y + 0.044715 * y * y * y)));
        }
        const auto out = product(h, at(down, layer * hidden * width), width);
        for (std::size_t d = 0; d < width; ++d) x[i][d] += out[d] + *at(down_bias, layer * width + d);
      }
    }
    for (std::size_t s = 0; s < 5; ++s) {
      const auto logits = product(normalised(x[s], at(gain), at(bias)), at(head), vocabulary);
      double sum = 0;
      for (const double l : logits) sum += std::exp(l);
      total += std::log(sum) - logits[static_cast<std::size_t>(a[targets].data[b * 5 + s])];
    }
  }
  return total / 10;
}

}  // namespace

TEST_CASE("nn: the GPT's loss as loops compute it") {
  random_source random(1);
  const auto arguments = arguments_of<small>(random);
  REQUIRE(interpret(loss_program<small>(), arguments)[0].data[0] == Approx(plain_loss(arguments)).epsilon(1e-12));
}

TEST_CASE("nn: gradients of the whole GPT, kept and recomputed alike") {
  const auto kept = check_whole_gradient<small>(2);
  const auto again = check_whole_gradient<small_recomputed>(2);
  REQUIRE(kept.size() == again.size());
  for (std::size_t k = 0; k < kept.size(); ++k) require_close(kept[k].data, again[k].data, 1e-13);
}

TEST_CASE("nn: gradients of the GPT with a tied embedding and with attention biases") {
  check_whole_gradient<small_tied>(3);
  check_whole_gradient<small_biased>(4);
}

TEST_CASE("nn: forward takes texts shorter than the context, and a prefix has the same logits") {
  random_source random(5);
  auto arguments = arguments_of<small>(random);
  arguments.pop_back();
  const auto whole = run<gpt::forward<small>, gpt::parameters<small, spec>, i32<2, 5>>(arguments)[0].data;
  tensor_value shorter{i32<1, 3>::shape,
                       {arguments.back().data[0], arguments.back().data[1], arguments.back().data[2]}};
  arguments.back() = shorter;
  const auto prefix = run<gpt::forward<small>, gpt::parameters<small, spec>, i32<1, 3>>(arguments)[0].data;
  require_close(prefix, {whole.begin(), whole.begin() + 33});
}

TEST_CASE("nn: training steps lower the loss on one batch") {
  random_source random(6);
  using state = gpt::state<small, spec>;
  auto arguments = arguments_of<small>(random);
  const std::vector<tensor_value> text{arguments.end() - 2, arguments.end()};
  arguments.resize(arguments.size() - 2);
  const std::size_t parameters = arguments.size();
  for (int moment = 0; moment < 2; ++moment) {
    for (std::size_t k = 0; k < parameters; ++k) {
      arguments.push_back({arguments[k].shape, std::vector<double>(arguments[k].data.size(), 0.0)});
    }
  }
  arguments.push_back({extents{}, {0}});
  const std::size_t leaves = arguments.size();
  arguments.insert(arguments.end(), text.begin(), text.end());
  arguments.push_back({extents{}, {0.01}});
  const graph step =
      traced_program<gpt::train_step<small>, donated<state>, small::tokens, small::tokens, small::rate>();
  std::vector<double> losses;
  for (int t = 0; t < 12; ++t) {
    const auto next = interpret(step, arguments);
    REQUIRE(next.size() == leaves + 1);
    std::copy(next.begin(), next.begin() + static_cast<std::ptrdiff_t>(leaves), arguments.begin());
    losses.push_back(next[leaves].data[0]);
  }
  REQUIRE(arguments[leaves - 1].data[0] == 12);
  REQUIRE(losses[11] < 0.7 * losses[0]);
}

// --- on a mesh
// ----------------------------------------------------------------------------------------------------------

namespace {

struct data : axis<"data", 2> {};
struct model : axis<"model", 2> {};
using square = mesh<data, model>;
using middle = gpt::config<64, 32, 4, 2, 16, 4>;

template <class Mesh, class Config, class Layout> graph step_on() {
  const traced made = detail::trace<Mesh, gpt::train_step<Config, Layout>, donated<gpt::state<Config, spec>>,
                                    typename Config::tokens, typename Config::tokens, typename Config::rate>();
  REQUIRE(made.program.code.size() > 0);
  REQUIRE(made.without_gradient == -1);
  return merge_common_subexpressions(normalise(made.program));
}

/// How completion lays out the leaves of the step's state: `-` or the axis of each dimension.
template <class Config, class Layout> std::map<std::string, std::string> state_layout() {
  const graph g = step_on<square, Config, Layout>();
  const auto size = static_cast<std::size_t>(g.code.size());
  std::vector<factor_rule> rules;
  for (int id = 0; id < g.code.size(); ++id) rules.push_back(g.code[id].op->factors(espalier::graph_view(g).view(id)));
  std::vector<sharding> of(size);
  std::vector<int> cause(size);
  REQUIRE(find_conflict(g).first == -1);
  complete(square::value, g, rules.data(), of.data(), cause.data());
  std::map<std::string, std::string> made;
  gpt::state<Config, spec> tree;
  std::size_t id = 0;
  nn::for_each_named_leaf(tree, [&](const auto&, const nn::leaf_path& path) {
    std::string text;
    for (int d = 0; d < of[id].rank; ++d) {
      text += d == 0 ? "" : " ";
      for (int n = 0; n < of[id].dim[d].size(); ++n) text += square::value.name[of[id].dim[d][n]];
      if (of[id].dim[d].empty()) text += "-";
    }
    made[path.str()] = text;
    ++id;
  });
  return made;
}

}  // namespace

TEST_CASE("nn: few annotations lay the GPT out as Megatron does") {
  auto layout = state_layout<middle, gpt::megatron<data, model>>();
  for (const std::string part : {"parameters.", "first_moment.", "second_moment."}) {
    CAPTURE(part);
    CHECK(layout[part + "token"] == "model -");
    CHECK(layout[part + "position"] == "- -");
    CHECK(layout[part + "blocks.query.weight"] == "- - model -");
    CHECK(layout[part + "blocks.key.weight"] == "- - model -");
    CHECK(layout[part + "blocks.value.weight"] == "- - model -");
    CHECK(layout[part + "blocks.output.weight"] == "- model - -");
    CHECK(layout[part + "blocks.up.weight"] == "- - model");
    CHECK(layout[part + "blocks.up.bias"] == "- model");
    CHECK(layout[part + "blocks.down.weight"] == "- model -");
    CHECK(layout[part + "blocks.down.bias"] == "- -");
    CHECK(layout[part + "blocks.mlp_norm.gain"] == "- -");
    CHECK(layout[part + "head"] == "- model");
  }
}

TEST_CASE("nn: ZeRO splits the moments and leaves the parameters") {
  auto layout = state_layout<middle, gpt::megatron_zero<middle, data, model>>();
  CHECK(layout["parameters.blocks.query.weight"] == "- - model -");
  CHECK(layout["first_moment.blocks.query.weight"] == "- data model -");
  CHECK(layout["second_moment.blocks.down.weight"] == "- model data");
  CHECK(layout["parameters.final_norm.gain"] == "-");
  CHECK(layout["first_moment.final_norm.gain"] == "data");
}

TEST_CASE("nn: without a mesh axis the annotations leave no trace") {
  const auto bare = step_on<one_device, middle, gpt::megatron<>>();
  CHECK(step_on<one_device, middle, gpt::megatron<data, model>>().code.size() == bare.code.size());
  CHECK(step_on<one_device, middle, gpt::megatron_zero<middle, data, model>>().code.size() == bare.code.size());
}

TEST_CASE("nn: the number of layers does not change the number of instructions") {
  const int two = step_on<square, gpt::config<64, 32, 4, 2, 16, 4>, gpt::megatron<data, model>>().code.size();
  const int many = step_on<square, gpt::config<64, 32, 4, 48, 16, 4>, gpt::megatron<data, model>>().code.size();
  CHECK(two == many);
  // Compile times depend on this number: a change that raises it should be deliberate.
  CHECK(two <= 740);
}

namespace {

using broken = failed<why::out_of_bounds<f32<1>>>;
using forward = gpt::forward<small>;
using tree = gpt::parameters<small, symbols<one_device>>;
template <class F, class... A> using made = decltype(F{}(std::declval<const A&>()...));
static_assert(std::is_same_v<made<forward, tree, broken>, broken>);
static_assert(std::is_same_v<made<gpt::loss<small>, tree, broken, symbol<one_device, small::tokens>>, broken>);
static_assert(std::is_same_v<made<gpt::loss<small>, tree, symbol<one_device, small::tokens>, broken>, broken>);

}  // namespace
