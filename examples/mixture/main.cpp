// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "by_hand.hpp"
#include "layouts.hpp"
#include "model.hpp"

#include <espalier/base/table.hpp>
#include <espalier/espalier.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <type_traits>
#include <vector>

// A mixture of experts in two layouts: experts over all devices, and experts over one axis with their products over the
// other. Each is trained for a few steps and compared with one device, and that with loops in plain C++.
// layouts.hpp has the layouts, and what each sends, by hand.

namespace {

using namespace mixture;

constexpr int steps = 5;

/// The loss of each step, the tensors after the last one, and the first step's.
struct outcome {
  std::vector<double> losses;
  std::vector<std::vector<float>> before;
  std::vector<std::vector<float>> after;
  std::vector<float> input;
  std::vector<float> target;
};

/// Trains on numbers that are the same whatever the layout. Collective.
template <class Program> outcome train(ep::world& where) {
  ep::runner<Program> run(where);
  auto p = run.template argument<0>();
  const auto input = run.template argument<1>();
  const auto target = run.template argument<2>();
  const auto draw = [](auto& array, std::uint64_t seed, double size) {
    array.for_each([&](float& element, std::int64_t index) {
      element = static_cast<float>(size * ep::nn::normal_at(seed, 0, static_cast<std::uint64_t>(index)));
    });
  };
  std::uint64_t seed = 0;
  ep::nn::for_each_named_leaf(
      p, [&](auto& array, const auto& path) { draw(array, ++seed, path.is("gate") ? 1 : 1 / std::sqrt(M)); });
  draw(input, 5, 1);
  draw(target, 6, 1);

  outcome result;
  const auto tensors = [&] {
    std::vector<std::vector<float>> all;
    ep::nn::for_each_named_leaf(p, [&](auto& array, const auto&) { all.push_back(ep::gather(where, array)); });
    return all;
  };
  result.before = tensors();
  result.input = ep::gather(where, input);
  result.target = ep::gather(where, target);
  for (int step = 0; step < steps; ++step)
    result.losses.push_back(static_cast<double>(ep::gather(where, run(p, input, target).template get<1>())[0]));
  result.after = tensors();
  return result;
}

/// The largest difference between two runs: of losses, and of moves of weights relative to the largest move of the same
/// tensor.
double difference(const outcome& expected, const outcome& found) {
  double largest = 0;
  const auto count = [&](double one) { largest = std::isfinite(one) ? std::max(largest, one) : INFINITY; };
  for (std::size_t n = 0; n < expected.losses.size(); ++n) count(std::abs(found.losses[n] - expected.losses[n]));
  for (std::size_t leaf = 0; leaf < expected.after.size(); ++leaf) {
    const auto moved = [&](const outcome& in, std::size_t n) {
      return static_cast<double>(in.after[leaf][n]) - static_cast<double>(in.before[leaf][n]);
    };
    double size = 0;
    for (std::size_t n = 0; n < expected.after[leaf].size(); ++n) size = std::max(size, std::abs(moved(expected, n)));
    for (std::size_t n = 0; n < expected.after[leaf].size(); ++n)
      count(std::abs(moved(found, n) - moved(expected, n)) / size);
  }
  return largest;
}

struct one_device : ep::axis<"one_device", 1> {};

const char* answer(bool is_so) { return is_so ? "yes" : "NO"; }

}  // namespace

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world line(argc, argv, ep::mesh<n>{});  // mpirun -n 4: four ranks; without it: four threads
    ep::world grid(argc, argv, ep::mesh<x, y>{});
    ep::world alone(ep::mesh<one_device>::value);
    const outcome expected = train<training<ep::mesh<one_device>, as_it_is>>(alone);

    ep::report::table table({{"layout"},
                             {"all-to-alls"},
                             {"all-gathers"},
                             {"reduce-scatters"},
                             {"all-reduces"},
                             {"sent"},
                             {"memory"},
                             {"as one device"}});
    bool all_agree = true;
    const auto add = [&]<class Program>(const char* name, ep::world& where, std::type_identity<Program>) {
      const bool agrees = difference(expected, train<Program>(where)) < 1e-4;
      all_agree = all_agree && agrees;
      table.add({name, std::to_string(Program::template collectives<ep::all_to_all>()),
                 std::to_string(Program::template collectives<ep::all_gather>()),
                 std::to_string(Program::template collectives<ep::reduce_scatter>()),
                 std::to_string(Program::template collectives<ep::all_reduce>()),
                 ep::report::format_bytes(
                     Program::template bytes<ep::all_to_all>() + Program::template bytes<ep::all_gather>() +
                     Program::template bytes<ep::reduce_scatter>() + Program::template bytes<ep::all_reduce>()),
                 ep::report::format_bytes(Program::peak_bytes_per_device()), answer(agrees)});
    };
    add("experts over 4", line, std::type_identity<experts_step>{});
    add("experts over 2, products over 2", grid, std::type_identity<hybrid_step>{});

    const by_hand first(expected.before, expected.input, expected.target);
    const bool is_right = std::abs(first.loss() - expected.losses.front()) < 1e-5;
    const by_hand last(expected.after, expected.input, expected.target);
    if (!line.is_root()) return 0;
    table.print(std::cout);
    std::cout << "tokens that an expert turns away: " << first.turned_away() << " of " << 2 * B * S << " at first\n"
              << "the first loss is that of plain loops: " << answer(is_right) << '\n'
              << "it is lower after " << steps << " steps: " << answer(last.loss() < 0.9 * first.loss()) << '\n';
    return all_agree && is_right ? 0 : 1;
  });
}
