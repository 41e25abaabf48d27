// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/program/common_subexpressions.hpp>
#include <espalier/tensor/core/program/differentiate.hpp>
#include <espalier/tensor/core/program/normalise.hpp>
#include <espalier/testing/interpret.hpp>

#include <espalier/testing/random_graph.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

/// The common code of the tests of ops and of gradients.
namespace gradients_check {

using namespace espalier;

/// Every rule of `normalise` that can be read off its result.
inline void require_normal_form(graph_view g) {
  int loop = -1;
  std::vector<bool> used(static_cast<std::size_t>(g.size), false);
  for (int id = 0; id < g.size; ++id) {
    const instruction& i = g[id];
    CAPTURE(id, i.op->name);
    for (int k = 0; k < i.operand_count; ++k) {
      const int operand = g.operand_at(i, k);
      REQUIRE(operand >= 0);
      REQUIRE(operand < id);
      used[static_cast<std::size_t>(operand)] = true;
    }
    if (i.op == &ops::region_end) {
      REQUIRE(i.operand[0] == loop);
      loop = g[loop].region;
    }
    REQUIRE(i.region == loop);
    if (i.op == &ops::region_begin) loop = id;
    if (i.op == &ops::region_parameter) used[static_cast<std::size_t>(id)] = true;
    if (i.op == &ops::region_yield || i.op == &ops::region_end || i.op == &ops::result || i.op == &ops::argument) {
      used[static_cast<std::size_t>(id)] = true;
    }
    if (i.op == &ops::loop_stack || i.op == &ops::loop_sum) {
      const int before = id - 1;
      REQUIRE(g[i.operand[0]].region >= 0);
      const bool follows = g[before].op == &ops::region_end ? g[before].operand[0] == g[i.operand[0]].region
                                                            : g[g[before].operand[0]].region == g[i.operand[0]].region;
      REQUIRE(follows);
    }
    REQUIRE(i.op != &ops::stop_gradient);
  }
  REQUIRE(loop == -1);
  for (int id = 0; id < g.size; ++id) {
    CAPTURE(id, g[id].op->name);
    REQUIRE(used[static_cast<std::size_t>(id)]);
  }
}

inline void require_same(const std::vector<tensor_value>& one, const std::vector<tensor_value>& other) {
  REQUIRE(one.size() == other.size());
  for (std::size_t r = 0; r < one.size(); ++r) {
    CAPTURE(r);
    REQUIRE(one[r].shape == other[r].shape);
    REQUIRE(one[r].data.size() == other[r].data.size());
    // Compared by their bits, so that a NaN equals itself.
    const std::size_t bytes = one[r].data.size() * sizeof(double);
    REQUIRE((bytes == 0 || std::memcmp(one[r].data.data(), other[r].data.data(), bytes) == 0));
  }
}

inline void require_close(const tensor_value& one, const tensor_value& other, double tolerance) {
  REQUIRE(one.shape == other.shape);
  for (std::size_t i = 0; i < one.data.size(); ++i) {
    CAPTURE(i);
    const double size = std::max({1.0, std::abs(one.data[i]), std::abs(other.data[i])});
    REQUIRE(std::abs(one.data[i] - other.data[i]) <= tolerance * size);
  }
}

/// Interprets the program as it is, normalised, and with common subexpressions merged: the results must be the same
/// to the last bit.
inline std::vector<tensor_value> run_all_forms(graph_view g, const std::vector<tensor_value>& arguments) {
  const std::vector<tensor_value> plain = interpret(g, arguments);
  const graph normal = normalise(g);
  require_normal_form(normal);
  require_same(plain, interpret(normal, arguments));
  const graph merged = merge_common_subexpressions(normal);
  require_normal_form(merged);
  REQUIRE(merged.code.size() <= normal.code.size());
  require_same(plain, interpret(merged, arguments));
  REQUIRE(normalise(merged).code.size() == merged.code.size());
  REQUIRE(merge_common_subexpressions(merged).code.size() == merged.code.size());
  return plain;
}

/// Compares gradients (results first_gradient, ...) of result 0, a scalar, by the arguments in `wanted` with central
/// differences. Elements of large arguments are sampled.
inline void require_gradients(graph_view g, const std::vector<tensor_value>& arguments, const std::vector<int>& wanted,
                              std::size_t first_gradient, double tolerance = 1e-6) {
  const std::vector<tensor_value> exact = run_all_forms(g, arguments);
  const graph value = [&] {
    // Only the loss: the differences need nothing else.
    graph made;
    for (int id = 0; id < g.size; ++id) {
      instruction i = g[id];
      if (i.op == &ops::result && attributes_of<border_attributes>(i).number != 0) i.op = &ops::copy;
      made.code.push_back(i);
    }
    detail::copy_tables(made, g);
    return normalise(made);
  }();
  for (std::size_t w = 0; w < wanted.size(); ++w) {
    const auto argument = static_cast<std::size_t>(wanted[w]);
    std::vector<tensor_value> moved = arguments;
    const tensor_value& gradient = exact[first_gradient + w];
    REQUIRE(gradient.shape == arguments[argument].shape);
    const std::size_t stride = 1 + gradient.data.size() / 24;
    for (std::size_t i = 0; i < gradient.data.size(); i += stride) {
      const double x = arguments[argument].data[i];
      const double step = 1e-5;
      moved[argument].data[i] = x + step;
      const double above = interpret(value, moved)[0].data[0];
      moved[argument].data[i] = x - step;
      const double below = interpret(value, moved)[0].data[0];
      moved[argument].data[i] = x;
      const double difference = (above - below) / (2 * step);
      CAPTURE(argument, i, gradient.data[i], difference);
      REQUIRE(std::abs(gradient.data[i] - difference) <=
              tolerance * std::max({1.0, std::abs(difference), std::abs(exact[0].data[0])}));
    }
  }
}

/// A program made from `function(builder, arguments' ids)`, which returns a value of any shape. The loss is the sum
/// of its elements with random weights (the last argument). Results: loss, value, gradient by each floating argument.
struct differentiated {
  builder code;
  std::vector<tensor_value> arguments;
  /// Numbers of the arguments that have gradients.
  std::vector<int> wanted;
  int without_gradient = -1;
};

template <class Function>
differentiated differentiate_function(const std::vector<tensor_value>& data, Function function,
                                      const std::vector<dtype>& types = {}) {
  differentiated made;
  builder& b = made.code;
  made.arguments = data;
  std::vector<int> ids;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const dtype type = i < types.size() ? types[i] : dtype::f64;
    ids.push_back(emit::argument(b, type, data[i].shape, static_cast<int>(i)));
    if (is_floating(type)) made.wanted.push_back(static_cast<int>(i));
  }
  const int value = function(b, ids);
  const extents shape = b[value].shape;
  test::random_source random(static_cast<std::uint32_t>(shape.elements()) + 17);
  made.arguments.push_back(test::random_tensor(random, shape, 0.5, 2));
  const int weights = emit::argument(b, b[value].type, shape, static_cast<int>(data.size()));
  const int loss = emit::reduce_sum(b, emit::multiply(b, value, weights), (std::int64_t{1} << shape.rank) - 1);
  std::vector<int> sources;
  for (const int w : made.wanted) sources.push_back(ids[static_cast<std::size_t>(w)]);
  std::vector<int> gradients(sources.size(), -1);
  made.without_gradient = differentiate(b, loss, sources.data(), static_cast<int>(sources.size()), gradients.data());
  emit::result(b, loss, 0);
  emit::result(b, value, 1);
  for (std::size_t i = 0; i < gradients.size(); ++i) emit::result(b, gradients[i], 2 + static_cast<int>(i));
  return made;
}

/// Checks the gradients of a function against differences, and returns its results.
template <class Function>
std::vector<tensor_value> check_gradients(const std::vector<tensor_value>& data, Function function,
                                          const std::vector<dtype>& types = {}) {
  const differentiated made = differentiate_function(data, function, types);
  REQUIRE(made.without_gradient == -1);
  require_gradients(made.code.result(), made.arguments, made.wanted, 2);
  return run_all_forms(made.code.result(), made.arguments);
}

}  // namespace gradients_check
