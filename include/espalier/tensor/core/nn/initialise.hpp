// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/core/nn/leaves.hpp>
#include <espalier/tensor/core/ops/random.hpp>

#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <type_traits>

namespace espalier::nn {

/// Two numbers in (0, 1), each with 53 random bits, that belong to element `element` of leaf number `leaf`.
[[nodiscard]] constexpr std::array<double, 2> uniform_at(std::uint64_t seed, std::uint32_t leaf,
                                                         std::uint64_t element) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32U); };
  const std::array<std::uint32_t, 4> word = philox<10>({low(element), high(element), leaf, 0}, {low(seed), high(seed)});
  const auto unit = [](std::uint32_t upper, std::uint32_t lower) {
    const std::uint64_t bits = (std::uint64_t{upper} << 32U | lower) >> 11U;
    return (static_cast<double>(bits) + 0.5) * 0x1p-53;
  };
  return {unit(word[0], word[1]), unit(word[2], word[3])};
}

/// A number from the normal distribution with mean 0 and variance 1 (Box and Muller 1958), the same whatever part of
/// the tensor a device holds. `element` counts the whole tensor's elements in row-major order.
[[nodiscard]] inline double normal_at(std::uint64_t seed, std::uint32_t leaf, std::uint64_t element) {
  constexpr double two_pi = 6.283185307179586476925;
  const std::array<double, 2> u = uniform_at(seed, leaf, element);
  return std::sqrt(-2 * std::log(u[0])) * std::cos(two_pi * u[1]);
}

/// The starting values of a leaf's elements: numbers from a normal distribution with mean `mean`; all the same if
/// `deviation` is 0.
struct initial {
  double mean = 0;
  double deviation = 0;

  [[nodiscard]] static constexpr initial zeros() { return {0, 0}; }
  [[nodiscard]] static constexpr initial ones() { return {1, 0}; }
  [[nodiscard]] static constexpr initial normal(double deviation) { return {0, deviation}; }
};

/// The convention: members named `gain` start as 1, `bias` as 0, all others as small random numbers.
[[nodiscard]] constexpr initial initial_by_name(const leaf_path& path, double deviation = 0.02) {
  if (path.is("gain")) return initial::ones();
  if (path.is("bias")) return initial::zeros();
  return initial::normal(deviation);
}

/// The starting value of one element.
[[nodiscard]] inline double initial_at(const initial& what, std::uint64_t seed, std::uint32_t leaf,
                                       std::uint64_t element) {
  return what.deviation == 0 ? what.mean : what.mean + what.deviation * normal_at(seed, leaf, element);
}

/// Gives every leaf of a tree its starting values: calls fill(leaf, value) where value(element) is what the element
/// with that row-major number in the whole tensor starts as. `choose(path)` says how each leaf starts.
///
///     ep::nn::initialise(
///         parameters, seed, [](const ep::nn::leaf_path& path) { return ep::nn::initial_by_name(path, 0.2); },
///         [](auto& array, const auto& value) {
///           array.for_each([&](float& e, std::int64_t i) { e = float(value(static_cast<std::uint64_t>(i))); });
///         });
///
/// That is what `initialise(parameters, seed)` does, in the type of each array.
template <class Tree, class Choose, class Fill>
void initialise(Tree& tree, std::uint64_t seed, const Choose& choose, const Fill& fill) {
  std::uint32_t index = 0;
  for_each_named_leaf(tree, [&](auto& leaf, const leaf_path& path) {
    const initial what = choose(path);
    const std::uint32_t number = index++;
    fill(leaf, [=](std::uint64_t element) { return initial_at(what, seed, number, element); });
  });
}

/// A layer that gives the starting values of its own leaves: `static constexpr nn::initial start(const
/// nn::leaf_path&)`. Those of nn/layers.hpp do.
template <class Tree>
concept StartsItself = requires(const leaf_path& path) {
  { Tree::start(path) } -> std::same_as<initial>;
};

namespace initialising {

/// Calls f(leaf, initial) on every leaf in order.
template <class Tree, class F>
void for_each_start(Tree& tree, const F& f, const leaf_path& path, initial (*start)(const leaf_path&)) {
  using type = std::remove_const_t<Tree>;
  if constexpr (ParameterTree<type>) {
    if constexpr (StartsItself<type>) start = &type::start;
    boost::hana::unpack(boost::hana::accessors<type>(), [&](const auto&... member) {
      (for_each_start(boost::hana::second(member)(tree), f, leaf_path{&path, boost::hana::first(member).c_str()},
                      start),
       ...);
    });
  } else {
    f(tree, start(path));
  }
}
[[nodiscard]] inline initial start_by_name(const leaf_path& path) { return initial_by_name(path); }

}  // namespace initialising

/// Gives every array of a tree its starting values, the same on any mesh and any number of ranks:
/// `nn::initialise(state.parameters, 42);`. A layer that says how it starts (`StartsItself`) is asked, for all others
/// `initial_by_name` decides: `gain` 1, `bias` 0, and normally distributed numbers of deviation 0.02.
template <class Tree> void initialise(Tree& tree, std::uint64_t seed) {
  std::uint32_t index = 0;
  initialising::for_each_start(
      tree,
      [&](auto& array, const initial& what) {
        const std::uint32_t number = index++;
        array.for_each([&]<class T>(T& one, std::int64_t element) {
          using computed = computed_t<T>;
          one = static_cast<T>(
              static_cast<computed>(initial_at(what, seed, number, static_cast<std::uint64_t>(element))));
        });
      },
      leaf_path{}, &initialising::start_by_name);
}

}  // namespace espalier::nn
