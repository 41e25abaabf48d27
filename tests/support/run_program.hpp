// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/runner.hpp>
#include <espalier/tensor/run/report/dump.hpp>
#include <espalier/testing/interpret.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

namespace testing {

namespace ep = espalier;

/// The same number for the same element on every device and in the oracle: in (-1, 1), or a small index.
template <class T> [[nodiscard]] T sample(int leaf, std::int64_t element) {
  const std::uint64_t mixed =
      (static_cast<std::uint64_t>(element) * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(leaf) * 977U) ^
      0x5bd1e995U;
  const std::uint64_t bits = (mixed ^ mixed >> 29U) * 0xbf58476d1ce4e5b9U >> 40U;
  if constexpr (std::is_same_v<T, bool>) {
    return bits % 2U == 1U;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits % 5U);
  } else {
    return static_cast<T>(static_cast<ep::computed_t<T>>(static_cast<double>(bits) / 8388608.0 - 1.0));
  }
}

struct comparison {
  double worst = 0;
  std::size_t compared = 0;
  bool finite = true;
};

template <class Program, int... I> auto make_arguments(ep::runner<Program>& run, std::integer_sequence<int, I...>) {
  return std::tuple<typename ep::runner<Program>::template argument_type<I>...>(run.template argument<I>()...);
}

/// Runs a program on a world, `times` times over its own donated arguments, and compares every element of every
/// result of the last run with the interpretation of the traced, unpartitioned program in double precision. The
/// differences are relative to the largest element of each result. In debug builds, which tests are, the graph is
/// checked after every pass.
template <class Program> [[nodiscard]] comparison run_and_compare(ep::world& world, int times = 1) {
#ifndef NDEBUG
  ep::check_passes<Program>();
#endif
  ep::runner<Program> run(world);
  auto arguments = make_arguments(run, std::make_integer_sequence<int, Program::arity>{});
  std::vector<ep::tensor_value> inputs;
  const auto fill = [&](auto& array) {
    using array_type = std::remove_reference_t<decltype(array)>;
    using element = typename array_type::value_type;
    const int leaf = static_cast<int>(inputs.size());
    array.for_each([&](element& one, std::int64_t i) { one = sample<element>(leaf, i); });
    ep::tensor_value value;
    value.shape = array_type::tensor::shape;
    for (std::int64_t i = 0; i < value.shape.elements(); ++i)
      value.data.push_back(static_cast<double>(sample<element>(leaf, i)));
    inputs.push_back(value);
  };
  std::apply([&](auto&... one) { (ep::detail::for_each_leaf(one, fill), ...); }, arguments);
  for (int n = 1; n < times; ++n) std::apply([&](auto&... one) { run(one...); }, arguments);
  const auto& results = std::apply(
      [&](auto&... one) -> const auto& { return run(one...); }, arguments);

  const ep::graph_view traced = Program::traced;
  std::vector<ep::tensor_value> expected;
  for (int n = 0; n < times; ++n) {
    expected = ep::interpret(traced, inputs);
    int index = 0;
    for (int id = 0; id < traced.size; ++id) {
      const ep::instruction& i = traced[id];
      if (i.op != &ep::ops::result) continue;
      if (i.operand_count == 2) {
        const int replaced = ep::attributes_of<ep::border_attributes>(traced[i.operand[1]]).number;
        inputs[static_cast<std::size_t>(replaced)] = expected[static_cast<std::size_t>(index)];
      }
      ++index;
    }
  }

  comparison seen;
  std::size_t leaf = 0;
  ep::detail::for_each_leaf(results, [&](const auto& array) {
    const auto values = ep::gather(world, array);
    const auto& wanted = expected[leaf++].data;
    double scale = 1e-30;
    for (const double w : wanted) scale = std::max(scale, std::abs(w));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const double value = static_cast<double>(values[i]);
      seen.finite = seen.finite && std::isfinite(value);
      seen.worst = std::max(seen.worst, std::abs(value - wanted[i]) / scale);
      ++seen.compared;
    }
  });
  return seen;
}

}  // namespace testing
