// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
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

// One Transformer in the five layouts of the GSPMD paper (arXiv 2105.04663, section 3.2 and Table 1) on a mesh of 2 x 4
// devices: what a step of training sends in each, and how much memory it takes. Each is trained for a few steps and
// compared with one device. layouts.hpp has the layouts, and the figures by hand.

namespace {

using namespace layouts;

constexpr int steps = 3;

/// The loss of each step, and how far each weight has moved in all of them.
struct outcome {
  std::vector<double> losses;
  std::vector<std::vector<float>> moved;
};

/// Trains on numbers that are the same whatever the layout. Collective.
template <class Program> outcome train(ep::world& where) {
  ep::runner<Program> run(where);
  auto w = run.template argument<0>();
  const auto input = run.template argument<1>();
  const auto target = run.template argument<2>();
  ep::nn::initialise(
      w, 1,
      [](const auto& path) {
        const bool is_gain = path.is("attention_gain") || path.is("mlp_gain");
        return is_gain ? ep::nn::initial::ones() : ep::nn::initial::normal(0.1);
      },
      [](auto& array, const auto& value) {
        array.for_each([&](float& element, std::int64_t index) {
          element = static_cast<float>(value(static_cast<std::uint64_t>(index)));
        });
      });
  const auto draw = [](std::uint64_t seed) {
    return [seed](float& element, std::int64_t index) {
      element = static_cast<float>(ep::nn::normal_at(seed, 0, static_cast<std::uint64_t>(index)));
    };
  };
  input.for_each(draw(2));
  target.for_each(draw(3));

  outcome result;
  ep::nn::for_each_named_leaf(w, [&](auto& array, const auto&) { result.moved.push_back(ep::gather(where, array)); });
  for (int step = 0; step < steps; ++step)
    result.losses.push_back(static_cast<double>(ep::gather(where, run(w, input, target).template get<1>())[0]));
  std::size_t leaf = 0;
  ep::nn::for_each_named_leaf(w, [&](auto& array, const auto&) {
    const auto now = ep::gather(where, array);
    std::vector<float>& moved = result.moved[leaf++];
    for (std::size_t n = 0; n < now.size(); ++n) moved[n] = now[n] - moved[n];
  });
  return result;
}

/// The largest difference between two runs: of losses, and of moves of weights relative to the largest move of the
/// same tensor.
double difference(const outcome& expected, const outcome& found) {
  double largest = 0;
  const auto count = [&](double one) { largest = std::isfinite(one) ? std::max(largest, one) : INFINITY; };
  for (std::size_t n = 0; n < expected.losses.size(); ++n) count(std::abs(found.losses[n] - expected.losses[n]));
  for (std::size_t leaf = 0; leaf < expected.moved.size(); ++leaf) {
    const auto& right = expected.moved[leaf];
    double size = 0;
    for (const float one : right) size = std::max(size, std::abs(static_cast<double>(one)));
    for (std::size_t n = 0; n < right.size(); ++n)
      count(std::abs(static_cast<double>(found.moved[leaf][n]) - static_cast<double>(right[n])) / size);
  }
  return largest;
}

struct one_device : ep::axis<"one_device", 1> {};

}  // namespace

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});  // mpirun -n 8: eight ranks; without it: eight threads
    ep::world alone(ep::mesh<one_device>::value);
    const outcome expected = train<training<ep::mesh<one_device>, as_it_is>>(alone);

    ep::report::table table({{"layout"},
                             {"all-reduces"},
                             {"all-gathers"},
                             {"reduce-scatters"},
                             {"sent"},
                             {"arguments"},
                             {"memory"},
                             {"as one device"}});
    bool all_agree = true;
    const auto add = [&]<class Program>(const char* name, std::type_identity<Program>) {
      constexpr figures counted = figures_of<Program>();
      const bool agrees = difference(expected, train<Program>(world)) < 1e-4;
      all_agree = all_agree && agrees;
      table.add({name, std::to_string(counted.all_reduces), std::to_string(counted.all_gathers),
                 std::to_string(counted.reduce_scatters), ep::report::format_bytes(counted.bytes),
                 ep::report::format_bytes(counted.argument_bytes),
                 ep::report::format_bytes(Program::peak_bytes_per_device()), agrees ? "yes" : "NO"});
    };
    add("data parallel", std::type_identity<data_parallel_step>{});
    add("model parallel", std::type_identity<model_parallel_step>{});
    add("2D, attempt 1", std::type_identity<attempt_1_step>{});
    add("2D, attempt 2", std::type_identity<attempt_2_step>{});
    add("2D, finalized", std::type_identity<finalized_step>{});
    if (!world.is_root()) return 0;
    table.print(std::cout);
    std::cout << "the loss falls in each of " << steps
              << " steps: " << (std::is_sorted(expected.losses.rbegin(), expected.losses.rend()) ? "yes" : "NO")
              << '\n';
    return all_agree ? 0 : 1;
  });
}
