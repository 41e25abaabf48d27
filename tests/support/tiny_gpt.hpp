// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/initialise.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/run/execute/runner.hpp>
#include <espalier/tensor/run/execute/world.hpp>

#include <gpt/model.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

/// A GPT of a few hundred parameters, trained on numbers: enough to compare meshes.
namespace espalier::test {

template <int Size> struct data : axis<"data", Size> {};
template <int Size> struct model : axis<"model", Size> {};

template <template <int...> class Element> struct tiny : gpt::config<16, 8, 4, 2, 6, 4, Element> {
  using rate = Element<>;
};

template <int Data, int Model, template <int...> class Element>
using tiny_training =
    program<mesh<data<Data>, model<Model>>, gpt::train_step<tiny<Element>, gpt::megatron<data<Data>, model<Model>>>,
            donated<gpt::state<tiny<Element>, spec>>, typename tiny<Element>::tokens, typename tiny<Element>::tokens,
            typename tiny<Element>::rate>;

/// The losses of the first `steps` steps.
template <int Data, int Model, template <int...> class Element>
std::vector<double> tiny_losses(world& where, int steps) {
  using config = tiny<Element>;
  runner<tiny_training<Data, Model, Element>> train(where);
  auto state = train.template argument<0>();
  const auto tokens = train.template argument<1>();
  const auto targets = train.template argument<2>();
  const auto rate = train.template argument<3>();
  nn::initialise(
      state.parameters, 5, [](const leaf_path& path) { return gpt::initial<config>(path); },
      [](auto& array, const auto& value) {
        array.for_each([&](auto& e, std::int64_t index) {
          e = static_cast<std::remove_reference_t<decltype(e)>>(5 * value(static_cast<std::uint64_t>(index)));
        });
      });
  rate.for_each([](auto& e, std::int64_t) { e = static_cast<std::remove_reference_t<decltype(e)>>(0.003); });
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const auto symbol = [&](std::int64_t index) {
      const std::array<double, 2> u =
          nn::uniform_at(7, static_cast<std::uint32_t>(step), static_cast<std::uint64_t>(index));
      return static_cast<std::int32_t>(u[0] * u[1] * config::vocabulary);
    };
    tokens.for_each([&](std::int32_t& e, std::int64_t index) { e = symbol(index); });
    targets.for_each([&](std::int32_t& e, std::int64_t index) { e = symbol(index + 1); });
    const auto& results = train(state, tokens, targets, rate);
    losses.push_back(static_cast<double>(*results.template get<1>().data(0)));
  }
  return losses;
}

/// The same with all devices in this process.
template <int Data, int Model, template <int...> class Element> std::vector<double> tiny_losses(int steps) {
  world where(mesh<data<Data>, model<Model>>::value);
  return tiny_losses<Data, Model, Element>(where, steps);
}

/// The largest relative difference; infinite where the lengths differ or a loss is not finite.
inline double largest_difference(const std::vector<double>& expected, const std::vector<double>& found) {
  double largest = expected.size() == found.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < expected.size() && i < found.size(); ++i) {
    const double difference = std::abs(expected[i] - found[i]) / std::abs(expected[i]);
    largest = difference <= largest ? largest : std::isfinite(difference) ? difference : INFINITY;
  }
  return largest;
}

inline constexpr int agreement_steps = 50;
inline constexpr double agreement_f32 = 1e-4;
inline constexpr double agreement_f64 = 1e-12;

/// The unpartitioned program's, in spmd/gpt_one_device.cpp.
const std::vector<double>& one_device_losses_f32();
const std::vector<double>& one_device_losses_f64();

}  // namespace espalier::test
