// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Random words in a tensor that is larger than the caches, against storing one constant in as much memory.

#include "machine.hpp"

#include <espalier/espalier.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

using namespace espalier;
using namespace espalier::benchmarks;

constexpr int words = 1 << 26;

struct alone : axis<"alone", 1> {};
using one_device = mesh<alone>;

struct draw {
  constexpr auto operator()(auto key) const { return random_bits<u32<words>>(key); }
};
using drawing = program<one_device, draw, u32<2>>;

}  // namespace

int main(int argc, char** argv) {
  const std::string row = argc > 1 ? argv[1] : "random_bits_vs_constants";
  return guarded_main(argc, argv, [&] {
    world here(argc, argv, one_device{});
    runner<drawing> run(here);
    const auto key = run.argument<0>();
    key.for_each([](std::uint32_t& word, std::int64_t i) { word = static_cast<std::uint32_t>(i) + 7; });
    std::uint32_t* const data = run(key).data(0);
    const auto [ours, constants] = interleaved_seconds(
        repeats{1, 9}, [&] { run(key); },
        [&] {
          ESPALIER_OMP(parallel for simd schedule(static))
          for (int i = 0; i < words; ++i) data[i] = 3;
          keep(data);
        });
    constexpr double gigabytes = 4e-9 * words;
    benchmarks::report(row, "ours", gigabytes / ours, "GB/s");
    benchmarks::report(row, "storing a constant", gigabytes / constants, "GB/s");
    return 0;
  });
}
