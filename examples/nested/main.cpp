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

// An encoder's and a decoder's pipeline in one program on a mesh of 2 x 2 devices, trained for a few steps and compared
// with one device, and that with plain loops: the loss, and how it changes along the gradient. sent.hpp says by hand
// what each device sends.

namespace {

using namespace nested;

struct x : ep::axis<"x", 2> {};
struct y : ep::axis<"y", 2> {};
struct one_device : ep::axis<"one_device", 1> {};
constexpr int L = x::size;
using staged = training<ep::mesh<x, y>, L, x, y>;
using alone = training<ep::mesh<one_device>, L, ep::none, ep::none>;

static_assert(sends_as_by_hand<staged, x, y>(true));
static_assert(alone::collectives() == 0);
// Weights are where they are used: an X-th of the stages, of experts and words a Y-th.
static_assert(staged::argument_bytes() ==
              4 * (V * M / y::size + L / x::size * (2 * M + 2 * M * M + M * E + 2 * M * H + 2 * E * M * H / y::size)) +
                  3 * 4 * T * B * S / x::size);

constexpr int steps = 3;
/// Words of texts. What is wanted at each place follows from the two words that are read there.
std::int32_t word(std::uint32_t text, std::int64_t at) {
  return static_cast<std::int32_t>(ep::nn::uniform_at(9, text, static_cast<std::uint64_t>(at))[0] * 24);
}
std::int32_t wanted_word(std::int64_t at) { return (word(0, at) + word(1, at)) % 24; }

/// Collective.
template <class Program> pipelined::training_run train_on(ep::world& where) {
  return pipelined::train<Program>(
      where, steps,
      [](auto& parameters) {
        ep::nn::initialise(
            parameters, 5, [](const auto& path) { return ep::nn::initial_by_name(path, path.is("words") ? 0.2 : 0.1); },
            [](auto& array, const auto& value) {
              array.for_each(
                  [&](float& e, std::int64_t i) { e = static_cast<float>(value(static_cast<std::uint64_t>(i))); });
            });
      },
      [](const auto& source, const auto& written, const auto& wanted) {
        source.for_each([](std::int32_t& e, std::int64_t i) { e = word(0, i); });
        written.for_each([](std::int32_t& e, std::int64_t i) { e = word(1, i); });
        wanted.for_each([](std::int32_t& e, std::int64_t i) { e = wanted_word(i); });
      });
}

double plain_loss(const std::vector<std::vector<double>>& parameters) {
  std::vector<std::int32_t> texts[3];
  for (std::int64_t at = 0; at < T * B * S; ++at) {
    for (std::uint32_t text = 0; text < 2; ++text) texts[text].push_back(word(text, at));
    texts[2].push_back(wanted_word(at));
  }
  return plain_model(parameters, L).loss(texts[0], texts[1], texts[2]);
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

    ep::report::table table({{"collective"}, {"along x"}, {"sent"}, {"along y"}, {"sent"}});
    const auto row = [&]<class Kind>(const char* name, Kind) {
      const auto count = [](const sent& s) { return s.count == 0 ? "" : std::to_string(s.count); };
      const auto bytes = [](const sent& s) { return s.count == 0 ? "" : ep::report::format_bytes(s.bytes); };
      constexpr sent along_x = sends<staged, Kind, x>();
      constexpr sent along_y = sends<staged, Kind, y>();
      table.add({name, count(along_x), bytes(along_x), count(along_y), bytes(along_y)});
    };
    row("exchange", ep::exchange{});
    row("all-to-all", ep::all_to_all{});
    row("all-gather", ep::all_gather{});
    row("reduce-scatter", ep::reduce_scatter{});
    row("all-reduce", ep::all_reduce{});
    table.print(std::cout);
    const bool agrees = pipelined::difference(expected, found) < 1e-3;
    const bool is_right = pipelined::is_as_plain(expected, on<L, x, y>::rate, plain_loss);
    std::cout << "as on one device: " << answer(agrees) << '\n'
              << "loss and gradient are those of plain loops: " << answer(is_right) << '\n'
              << "the loss falls in each of " << steps << " steps: " << answer(expected.falls()) << '\n';
    return agrees && is_right ? 0 : 1;
  });
}
