// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "../common/training_run.hpp"
#include "model.hpp"
#include "plain.hpp"
#include "sent.hpp"

#include <espalier/base/table.hpp>
#include <espalier/espalier.hpp>

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

// A Conformer as a pipeline on a mesh of 2 x 2 devices, trained for a few steps and compared with one device, and that
// with plain loops: the loss, and how it changes along the gradient. sent.hpp says by hand what each device sends.

namespace {

using namespace conformer;

struct x : ep::axis<"x", 2> {};
struct y : ep::axis<"y", 2> {};
struct one_device : ep::axis<"one_device", 1> {};
constexpr int L = x::size;
using staged = training<ep::mesh<x, y>, L, x, y>;
using alone = training<ep::mesh<one_device>, L, ep::none, ep::none>;

static_assert(sends_as_by_hand<staged, x, y>(true));
static_assert(alone::collectives() == 0);
// Each device has the weights of its stage, and its part of the recordings.
static_assert(staged::argument_bytes() == layer_bytes + 2 * 4 * T * B * S * M / (x::size * y::size));

constexpr int steps = 4;

/// Collective.
template <class Program> pipelined::training_run train_on(ep::world& where) {
  const auto draw = [](std::uint64_t seed) {
    return [seed](float& e, std::int64_t i) {
      e = static_cast<float>(ep::nn::normal_at(seed, 0, static_cast<std::uint64_t>(i)));
    };
  };
  return pipelined::train<Program>(
      where, steps,
      [](auto& parameters) {
        ep::nn::initialise(
            parameters, 7, [](const auto& path) { return ep::nn::initial_by_name(path, 0.4); },
            [](auto& array, const auto& value) {
              array.for_each(
                  [&](float& e, std::int64_t i) { e = static_cast<float>(value(static_cast<std::uint64_t>(i))); });
            });
      },
      [&](const auto& input, const auto& target) {
        input.for_each(draw(8));
        target.for_each(draw(9));
      });
}

double plain_loss(const std::vector<std::vector<double>>& parameters) {
  std::vector<float> both[2];
  for (std::size_t n = 0; n < 2; ++n) {
    for (std::uint64_t i = 0; i < T * B * S * M; ++i)
      both[n].push_back(static_cast<float>(ep::nn::normal_at(8 + n, 0, i)));
  }
  return plain_model(parameters, L).loss(both[0], both[1]);
}

const char* answer(bool is_so) { return is_so ? "yes" : "NO"; }

}  // namespace

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, ep::mesh<x, y>{});  // mpirun -n 4: four ranks; without it: four threads
    ep::world single(ep::mesh<one_device>::value);
    const pipelined::training_run expected = train_on<alone>(single);
    const pipelined::training_run found = train_on<staged>(world);
    if (!world.is_root()) return 0;

    ep::report::table table({{"collective"}, {"over"}, {"number"}, {"sent"}});
    const auto row = [&](const char* name, const char* along, const sent& s) {
      table.add({name, along, std::to_string(s.count), ep::report::format_bytes(s.bytes)});
    };
    row("all-gather", "x", sends<staged, ep::all_gather, x>());
    row("exchange", "x", sends<staged, ep::exchange, x>());
    row("all-reduce", "y, or x and y", sends<staged, ep::all_reduce, y>());
    table.print(std::cout);
    const bool agrees = pipelined::difference(expected, found) < 1e-3;
    const bool is_right = pipelined::is_as_plain(expected, on<L, x, y>::rate, plain_loss);
    std::cout << "as on one device: " << answer(agrees) << '\n'
              << "loss and gradient are those of plain loops: " << answer(is_right) << '\n'
              << "the loss falls in each of " << steps << " steps: " << answer(expected.falls()) << '\n';
    return agrees && is_right ? 0 : 1;
  });
}
