// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "model.hpp"
#include "plain.hpp"
#include "sent.hpp"

#include <espalier/base/table.hpp>
#include <espalier/espalier.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

// An encoder's and a decoder's pipeline in one program on a mesh of 2 x 2 devices, trained for a few steps and compared
// with one device, and that with plain loops: the loss, and how it changes along the gradient. sent.hpp says by hand
// what each device sends.

namespace {

using namespace nested;

struct x : ep::axis<"x", 2> {};
struct y : ep::axis<"y", 2> {};
struct one_device : ep::axis<"one_device", 1> {};
constexpr int L = x::size;
using pipelined = training<ep::mesh<x, y>, L, x, y>;
using alone = training<ep::mesh<one_device>, L, ep::none, ep::none>;

static_assert(sends_as_by_hand<pipelined, x, y>(true));
static_assert(alone::collectives() == 0);
// Weights are where they are used: an X-th of the stages, of experts and words a Y-th.
static_assert(pipelined::argument_bytes() ==
              4 * (V * M / y::size + L / x::size * (2 * M + 2 * M * M + M * E + 2 * M * H + 2 * E * M * H / y::size)) +
                  3 * 4 * T * B * S / x::size);

constexpr int steps = 3;
using numbers = std::vector<float>;

struct outcome {
  std::vector<double> losses;
  std::vector<numbers> before;
  std::vector<numbers> after_one;
  std::vector<numbers> after;
};

/// Words of texts. What is wanted at each place follows from the two words that are read there.
std::int32_t word(std::uint32_t text, std::int64_t at) {
  return static_cast<std::int32_t>(ep::nn::uniform_at(9, text, static_cast<std::uint64_t>(at))[0] * 24);
}
std::int32_t wanted_word(std::int64_t at) { return (word(0, at) + word(1, at)) % 24; }

/// Trains on numbers that are the same whatever the layout. Collective.
template <class Program> outcome train(ep::world& where) {
  ep::runner<Program> run(where);
  auto p = run.template argument<0>();
  const auto source = run.template argument<1>();
  const auto written = run.template argument<2>();
  const auto wanted = run.template argument<3>();
  ep::nn::initialise(
      p, 5, [](const auto& path) { return ep::nn::initial_by_name(path, path.is("words") ? 0.2 : 0.1); },
      [](auto& array, const auto& value) {
        array.for_each(
            [&](float& e, std::int64_t i) { e = static_cast<float>(value(static_cast<std::uint64_t>(i))); });
      });
  source.for_each([](std::int32_t& e, std::int64_t i) { e = word(0, i); });
  written.for_each([](std::int32_t& e, std::int64_t i) { e = word(1, i); });
  wanted.for_each([](std::int32_t& e, std::int64_t i) { e = wanted_word(i); });

  outcome result;
  const auto tensors = [&] {
    std::vector<numbers> all;
    ep::nn::for_each_named_leaf(p, [&](auto& array, const auto&) { all.push_back(ep::gather(where, array)); });
    return all;
  };
  result.before = tensors();
  for (int step = 0; step < steps; ++step) {
    const auto& out = run(p, source, written, wanted);
    result.losses.push_back(static_cast<double>(ep::gather(where, out.template get<1>())[0]));
    if (step == 0) result.after_one = tensors();
  }
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

/// Compares with plain loops: the first loss, and its derivative along the first step, which is minus the rate times
/// the squared length of the gradient.
bool is_as_plain(const outcome& run) {
  std::vector<std::int32_t> texts[3];
  for (std::int64_t at = 0; at < T * B * S; ++at) {
    for (std::uint32_t text = 0; text < 2; ++text) texts[text].push_back(word(text, at));
    texts[2].push_back(wanted_word(at));
  }
  double squares = 0;
  const auto loss_after = [&](double steps_done) {
    std::vector<plain_model::tensor> leaves;
    squares = 0;
    for (std::size_t leaf = 0; leaf < run.before.size(); ++leaf) {
      leaves.emplace_back();
      for (std::size_t n = 0; n < run.before[leaf].size(); ++n) {
        const auto before = static_cast<double>(run.before[leaf][n]);
        const double gradient = (before - static_cast<double>(run.after_one[leaf][n])) / on<L, x, y>::rate;
        leaves.back().push_back(before - steps_done * gradient);
        squares += gradient * gradient;
      }
    }
    return plain_model(leaves, L).loss(texts[0], texts[1], texts[2]);
  };
  const double slope = (loss_after(1e-4) - loss_after(-1e-4)) / 2e-4;
  return std::abs(loss_after(0) - run.losses.front()) < 1e-5 && std::abs(slope + squares) < 1e-3 * squares;
}

const char* answer(bool is_so) { return is_so ? "yes" : "NO"; }

}  // namespace

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, ep::mesh<x, y>{});  // mpirun -n 4: four ranks; without it: four threads
    ep::world single(ep::mesh<one_device>::value);
    const outcome expected = train<alone>(single);
    const outcome found = train<pipelined>(world);
    if (!world.is_root()) return 0;

    ep::report::table table({{"collective"}, {"along x"}, {"sent"}, {"along y"}, {"sent"}});
    const auto row = [&]<class Kind>(const char* name, Kind) {
      const auto count = [](const sent& s) { return s.count == 0 ? "" : std::to_string(s.count); };
      const auto bytes = [](const sent& s) { return s.count == 0 ? "" : ep::report::format_bytes(s.bytes); };
      constexpr sent along_x = sends<pipelined, Kind, x>();
      constexpr sent along_y = sends<pipelined, Kind, y>();
      table.add({name, count(along_x), bytes(along_x), count(along_y), bytes(along_y)});
    };
    row("exchange", ep::exchange{});
    row("all-to-all", ep::all_to_all{});
    row("all-gather", ep::all_gather{});
    row("reduce-scatter", ep::reduce_scatter{});
    row("all-reduce", ep::all_reduce{});
    table.print(std::cout);
    const bool agrees = difference(expected, found) < 1e-3;
    const bool is_right = is_as_plain(expected);
    std::cerr << expected.losses[0]<<" "<<expected.losses[1]<<" "<<expected.losses.back() << " " << difference(expected, found) << "\n"; std::cout << "as on one device: " << answer(agrees) << '\n'
              << "loss and gradient are those of plain loops: " << answer(is_right) << '\n'
              << "the loss falls in each of " << steps
              << " steps: " << answer(std::is_sorted(expected.losses.rbegin(), expected.losses.rend())) << '\n';
    return agrees && is_right ? 0 : 1;
  });
}
