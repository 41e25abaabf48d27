// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/nn.hpp>
#include <espalier/tensor/core/program/normalise.hpp>
#include <espalier/tensor/core/program/trace.hpp>
#include <espalier/testing/interpret.hpp>

#include <espalier/testing/random_graph.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

/// The common code of the tests of nn: calling a traced function on numbers.
namespace nn_check {

using namespace espalier;
using test::random_integers;
using test::random_source;
using test::random_tensor;
using one_device = mesh<>;

/// The arguments' leaves of a program as random numbers; integers are in [0, classes).
template <class... Arguments>
std::vector<tensor_value> random_arguments(random_source& random, int classes = 2, double low = -1, double high = 1) {
  std::vector<tensor_value> made;
  const auto add = [&](const auto& leaf) {
    using tensor = plain<std::remove_cvref_t<decltype(leaf)>>;
    made.push_back(tensor::type == dtype::i32 ? random_integers(random, tensor::shape, 0, classes - 1)
                                              : random_tensor(random, tensor::shape, low, high));
  };
  const auto add_tree = [&](const auto& tree) { detail::for_each_leaf(tree, add); };
  (add_tree(Arguments{}), ...);
  return made;
}

template <class Function, class... Arguments> graph traced_program() {
  traced made = detail::trace<one_device, Function, Arguments...>();
  REQUIRE(made.failure.line == 0);
  REQUIRE(made.without_gradient == -1);
  REQUIRE(made.program.code.size() > 0);
  return normalise(made.program);
}

/// Runs a function on numbers and returns its results.
template <class Function, class... Arguments>
std::vector<tensor_value> run(const std::vector<tensor_value>& arguments) {
  return interpret(traced_program<Function, Arguments...>(), arguments);
}

inline void require_close(const std::vector<double>& one, const std::vector<double>& other, double tolerance = 1e-12) {
  REQUIRE(one.size() == other.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    CAPTURE(i, one[i], other[i]);
    REQUIRE(std::abs(one[i] - other[i]) <= tolerance * std::max({1.0, std::abs(one[i]), std::abs(other[i])}));
  }
}

/// Compares the gradient by argument `which` of a program's result 0, a scalar, with central differences, for about
/// `samples` of its elements.
inline void require_gradient(graph_view value, std::vector<tensor_value> arguments, std::size_t which,
                             const tensor_value& gradient, random_source& random, int samples = 6,
                             double tolerance = 1e-6) {
  REQUIRE(gradient.shape == arguments[which].shape);
  const double step = 1e-5;
  for (int n = 0; n < samples; ++n) {
    const auto i = static_cast<std::size_t>(random.integer(0, static_cast<int>(gradient.data.size()) - 1));
    double& x = arguments[which].data[i];
    const double before = x;
    x = before + step;
    const double above = interpret(value, arguments)[0].data[0];
    x = before - step;
    const double below = interpret(value, arguments)[0].data[0];
    x = before;
    const double difference = (above - below) / (2 * step);
    CAPTURE(which, i, gradient.data[i], difference);
    REQUIRE(std::abs(gradient.data[i] - difference) <= tolerance * std::max(1.0, std::abs(difference)));
  }
}

/// The gradient of a weighted sum of what Function returns, by its first argument.
template <class Function> struct weighted {
  struct inner {
    constexpr auto operator()(const auto& first, const auto& weights, const auto&... rest) const {
      return sum(Function{}(first, rest...) * weights);
    }
  };
  constexpr auto operator()(const auto& first, const auto& weights, const auto&... rest) const {
    const auto made = value_and_grad(inner{})(first, weights, rest...);
    return results(made.value, made.gradient);
  }
};

/// Checks the gradient of Function by its first argument, whose result has the type Result.
template <class Function, class Result, class First, class... Rest>
void check_gradient(random_source& random, int classes = 2) {
  const auto arguments = random_arguments<First, Result, Rest...>(random, classes);
  const graph value = traced_program<typename weighted<Function>::inner, First, Result, Rest...>();
  const auto exact = run<weighted<Function>, First, Result, Rest...>(arguments);
  const std::size_t leaves = exact.size() - 1;
  for (std::size_t k = 0; k < leaves; ++k) require_gradient(value, arguments, k, exact[1 + k], random);
}

}  // namespace nn_check
