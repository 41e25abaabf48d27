// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Conjugate gradients until the residual is small: a large step in time of the heat equation on a plane of 1024 x 1024,
// whose temperatures follow from five-point sums. It is written for one device, and over two ranks each has half of
// the rows.

#include "machine.hpp"

#include <espalier/espalier.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace espalier;
using namespace espalier::benchmarks;

constexpr int side = 1024;
/// Of the residual's square, of that of the right-hand side.
constexpr double tolerance = 1e-16;

struct rows : axis<"rows", 2> {};
using two_ranks = mesh<rows>;
using plane = f64<side, side>;

/// A plane that is 0 outside.
constexpr auto apply(const auto& x) {
  return 4.02 * x - shift<0, 1>(x) - shift<0, -1>(x) - shift<1, 1>(x) - shift<1, -1>(x);
}

struct solve {
  constexpr auto operator()(auto heat) const {
    heat = shard<rows, none>(heat);
    const auto whole = sum(heat * heat);
    const auto is_large = [&](const auto& state) { return state.template get<3>() > tolerance * whole; };
    const auto step = [](const auto& state) {
      const auto [x, residual, direction, square, iterations] = state;
      const auto product = apply(direction);
      const auto length = square / sum(direction * product);
      const auto next = residual - length * product;
      const auto next_square = sum(next * next);
      return results(x + length * direction, next, next + (next_square / square) * direction, next_square,
                     iterations + 1);
    };
    const auto start = results(constant<plane>(heat, 0), heat, heat, whole, constant<i32<>>(heat, 0));
    const auto last = while_loop(is_large, step, start);
    return results(last.template get<0>(), last.template get<4>());
  }
};
using conjugate_gradients = program<two_ranks, solve, plane>;
// An iteration, which counts once: a row to the neighbour, and two sums; before the loop there is one more sum.
static_assert(conjugate_gradients::collectives<exchange>() == 1);
static_assert(conjugate_gradients::bytes<exchange>() == side * 8);
static_assert(conjugate_gradients::collectives<all_reduce>() == 3);

/// The heat, as in peers/windows/conjugate_gradients.cpp.
double heat_of(std::int64_t row, std::int64_t column) {
  return static_cast<double>((row * 7 + column * 3) % 11 - 5) / 8 + (row == column ? 1 : 0);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string row = argc > 1 ? argv[1] : "conjugate_gradients";
  return guarded_main(argc, argv, [&] {
    world here(argc, argv, two_ranks{});
    runner<conjugate_gradients> run(here);
    auto heat = run.argument<0>();
    heat.for_each([](double& e, std::int64_t i) { e = heat_of(i / side, i % side); });
    std::vector<double> samples;
    double sum = 0;
    int iterations = 0;
    for (int repeat = 0; repeat < 6; ++repeat) {
      here.on_devices([](int, auto& communicator) { communicator.barrier(); });
      const double begin = now();
      const auto& made = run(heat);
      const double mine = now() - begin;
      double slowest = 0;
      double part = 0;
      made.get<0>().for_each([&](const double& e, std::int64_t) { part += e * e; });
      made.get<1>().for_each([&](const std::int32_t& count, std::int64_t) { iterations = count; });
      sum = 0;
      here.on_devices([&](int local, auto& communicator) {
        if (local != 0) return;
        for (int rank = 0; rank < communicator.size(); ++rank) {
          double theirs[]{mine, part};
          if (here.uses_mpi()) communicator.broadcast(theirs, sizeof theirs, rank);
          slowest = std::max(slowest, theirs[0]);
          sum += theirs[1];
        }
      });
      if (repeat > 0) samples.push_back(slowest);
    }
    if (!here.is_root()) return 0;
    char numbers[96];
    std::snprintf(numbers, sizeof numbers, "\"iterations\": %d, \"checksum\": %.9g", iterations, sum);
    benchmarks::report(row, "ours", iterations / median(samples), "iterations/s", numbers);
    return 0;
  });
}
