// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Conjugate gradients until the residual is small: the temperatures of a plate whose edge is cold and which is heated
// at some places, four devices with a quarter of it each. How many iterations that takes nobody knows beforehand; all
// devices take equally many.

#include <espalier/espalier.hpp>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <vector>

namespace ep = espalier;

struct rows : ep::axis<"rows", 2> {};
struct columns : ep::axis<"columns", 2> {};
using mesh = ep::mesh<rows, columns>;
constexpr int height = 30;
constexpr int width = 41;
using plate = ep::f64<height, width>;

/// Five points: a plate that is 0 outside.
constexpr auto apply(const auto& x) {
  return 4.0 * x - ep::shift<0, 1>(x) - ep::shift<0, -1>(x) - ep::shift<1, 1>(x) - ep::shift<1, -1>(x);
}

struct solve {
  constexpr auto operator()(auto heat, auto tolerance) const {
    heat = ep::shard<rows, columns>(heat);  // the only hint
    const auto is_large = [&](const auto& state) { return state.template get<3>() > tolerance; };
    const auto step = [](const auto& state) {
      const auto [x, residual, direction, square, iterations] = state;
      const auto product = apply(direction);
      const auto length = square / ep::sum(direction * product);
      const auto next = residual - length * product;
      const auto next_square = ep::sum(next * next);
      return ep::results(x + length * direction, next, next + (next_square / square) * direction, next_square,
                         iterations + 1);
    };
    const auto nothing = ep::constant<plate>(heat, 0);
    const auto start = ep::results(nothing, heat, heat, ep::sum(heat * heat), ep::constant<ep::i32<>>(heat, 0));
    const auto last = ep::while_loop(is_large, step, start);
    return ep::results(last.template get<0>(), last.template get<4>());
  }
};
using program = ep::program<mesh, solve, plate, ep::f64<>>;

// An iteration, which counts once: the borders of a quarter and two sums, and no word about whether to go on: that
// follows from the second sum, which is the same on all devices. Before the loop the sum of squares, and the tolerance
// on which devices agree.
static_assert(program::collectives<ep::exchange>() == 1 && program::collectives<ep::all_reduce>() == 4);
// A device sends at most one row of 21 numbers and one column of 15; and 8 bytes of each sum to three others.
static_assert(program::bytes<ep::exchange>() == (21 + 15) * 8);

/// The same on one processor, by hand.
int iterations_by_hand(const std::vector<double>& heat, double tolerance, std::vector<double>& x) {
  const auto at = [](int i, int j) { return static_cast<std::size_t>(i * width + j); };
  std::vector<double> residual = heat;
  std::vector<double> direction = heat;
  std::vector<double> product(heat.size());
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t n = 0; n < a.size(); ++n) sum += a[n] * b[n];
    return sum;
  };
  x.assign(heat.size(), 0);
  double square = dot(heat, heat);
  int iterations = 0;
  for (; square > tolerance; ++iterations) {
    for (int i = 0; i < height; ++i) {
      for (int j = 0; j < width; ++j) {
        const double around = (i > 0 ? direction[at(i - 1, j)] : 0) + (i + 1 < height ? direction[at(i + 1, j)] : 0) +
                              (j > 0 ? direction[at(i, j - 1)] : 0) + (j + 1 < width ? direction[at(i, j + 1)] : 0);
        product[at(i, j)] = 4 * direction[at(i, j)] - around;
      }
    }
    const double length = square / dot(direction, product);
    for (std::size_t n = 0; n < x.size(); ++n) {
      x[n] += length * direction[n];
      residual[n] -= length * product[n];
    }
    const double next_square = dot(residual, residual);
    for (std::size_t n = 0; n < x.size(); ++n) direction[n] = residual[n] + next_square / square * direction[n];
    square = next_square;
  }
  return iterations;
}

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});
    ep::runner<program> run(world);
    const auto heat = run.argument<0>();
    const auto tolerance = run.argument<1>();
    const auto source = [](std::int64_t n) { return n % 97 == 5 ? 1.0 + 0.01 * static_cast<double>(n % 11) : 0.0; };
    heat.for_each([&](double& element, std::int64_t n) { element = source(n); });
    tolerance.for_each([](double& element, std::int64_t) { element = 1e-12; });
    const auto& results = run(heat, tolerance);
    const auto x = ep::gather(world, results.get<0>());
    const auto iterations = ep::gather(world, results.get<1>());
    if (!world.is_root()) return 0;

    ep::explain<program>(std::cout, ep::collectives_only);
    std::vector<double> sources(static_cast<std::size_t>(height * width));
    for (std::size_t n = 0; n < sources.size(); ++n) sources[n] = source(static_cast<std::int64_t>(n));
    std::vector<double> by_hand;
    const int expected = iterations_by_hand(sources, 1e-12, by_hand);
    double difference = 0;
    for (std::size_t n = 0; n < by_hand.size(); ++n) difference = std::fmax(difference, std::abs(x[n] - by_hand[n]));
    const bool agree = difference < 1e-8 && iterations[0] == expected;
    std::cout << (agree ? "as many iterations as by hand, and the same temperatures\n"
                        : "ANOTHER NUMBER OF ITERATIONS, OR OTHER TEMPERATURES\n");
    return agree ? 0 : 1;
  });
}
