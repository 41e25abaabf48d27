// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Attention of 4096 queries whose keys and values are split over four ranks of one thread, and on one device.
//
//     mpirun -n 4 bench_split_keys split
//     OMP_NUM_THREADS=2 bench_split_keys whole

#include "machine.hpp"

#include <espalier/espalier.hpp>
#include <espalier/nn.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using namespace espalier;
using namespace espalier::benchmarks;

struct parts : axis<"parts", 4> {};
using heads = f32<1, 4096, 8, 64>;

template <class Split> struct attend {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
    const auto cut = [](const auto& x) { return shard<none, Split, none, none>(x); };
    return nn::attention(q, cut(k), cut(v));
  }
};
template <class Mesh, class Split> using attention = program<Mesh, attend<Split>, heads, heads, heads>;
// No scores are kept: less than one in sixteen of them would be.
static_assert(attention<mesh<parts>, parts>::arena_bytes() < 8LL * 4096 * 4096 * 4 / 16);

template <class Program> void measure(int argc, char** argv, const mesh_shape& mesh) {
  world here(argc, argv, mesh);
  runner<Program> run(here);
  auto q = run.template argument<0>();
  auto k = run.template argument<1>();
  auto v = run.template argument<2>();
  const auto argument = [](int number) {
    return [=](float& e, std::int64_t i) { e = static_cast<float>(drawn(i, number)); };
  };
  q.for_each(argument(0));
  k.for_each(argument(1));
  v.for_each(argument(2));
  double magnitude = 0;
  for (const float e : gather(here, run(q, k, v))) magnitude += e < 0 ? -e : e;
  const double taken = median_seconds([&] { keep(run(q, k, v)); }, {2, 7});
  if (!here.is_root()) return;
  benchmarks::report("split_keys_4_ranks", mesh.devices() > 1 ? "ours" : "one device, two threads", taken * 1e3, "ms",
                     "\"mean_magnitude\": " + std::to_string(magnitude / heads::shape.elements()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "split") {
    measure<attention<mesh<parts>, parts>>(argc, argv, mesh<parts>::value);
  } else if (what == "whole") {
    measure<attention<mesh<>, none>>(argc, argv, mesh<>::value);
  } else {
    std::fprintf(stderr, "usage: %s split | whole\n", argv[0]);
    return EXIT_FAILURE;
  }
}
