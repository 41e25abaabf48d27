// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// A training step of four stages and eight micro-batches as one program: on four ranks of one thread, and on one device
// that has the layers one after the other.
//
//     mpirun -n 4 bench_shifting_buffer stages
//     OMP_NUM_THREADS=2 bench_shifting_buffer layers

#include "../examples/common/shifting_buffer.hpp"
#include "machine.hpp"

#include <espalier/espalier.hpp>
#include <espalier/vmap.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace espalier;
using namespace espalier::benchmarks;

constexpr int stages = 4;
constexpr int micro_batches = 8;
constexpr int texts = 4;  // of a micro-batch
constexpr int length = 64;
constexpr int width = 512;
constexpr int hidden = 2048;
constexpr double rate = 0.01;

struct stage : axis<"stage", stages> {};
using up_weights = f32<stages, width, hidden>;
using down_weights = f32<stages, hidden, width>;
using batch = f32<micro_batches, texts, length, width>;

constexpr auto layer(const auto& x, const auto& up, const auto& down) { return x + matmul(relu(matmul(x, up)), down); }
constexpr auto mean_square(const auto& made, const auto& target) {
  const auto difference = made - target;
  return mean(difference * difference);
}
/// All stages at once, each on another micro-batch.
struct pipelined_loss {
  constexpr auto operator()(const auto& up, const auto& down, const auto& input, const auto& target) const {
    const auto of_stages = [&](const auto& state, const auto& /*t*/) {
      return vmap([](const auto& x, const auto& a, const auto& b) { return layer(x, a, b); })(state, up, down);
    };
    return mean_square(pipelined::shifting_buffer<stages, stage, none>(of_stages, input), target);
  }
};
/// One after the other, each on the whole batch.
struct layered_loss {
  constexpr auto operator()(const auto& up, const auto& down, const auto& input, const auto& target) const {
    const auto one = [](const auto& x, const auto& w) { return layer(x, w.template get<0>(), w.template get<1>()); };
    return mean_square(scan(one, input, results(up, down)), target);
  }
};
template <class Loss> struct train_step {
  constexpr auto operator()(const auto& up, const auto& down, const auto& input, const auto& target) const {
    const auto [value, gradients] = value_and_grad<0, 1>(Loss{})(up, down, input, target);
    const auto [by_up, by_down] = gradients;
    return results(up - rate * by_up, down - rate * by_down, value);
  }
};
template <class Mesh, class Loss>
using training = program<Mesh, train_step<Loss>, donated<up_weights>, donated<down_weights>, batch, batch>;
using on_stages = training<mesh<stage>, pipelined_loss>;
// Eleven iterations there and back: a stage's values to the next one each time.
static_assert(on_stages::collectives<exchange>() > 0);

template <class Program> void measure(int argc, char** argv, const mesh_shape& mesh) {
  world here(argc, argv, mesh);
  runner<Program> run(here);
  auto up = run.template argument<0>();
  auto down = run.template argument<1>();
  auto input = run.template argument<2>();
  auto target = run.template argument<3>();
  const auto scaled = [](double scale, int argument) {
    return [=](float& e, std::int64_t i) { e = static_cast<float>(scale * drawn(i, argument)); };
  };
  up.for_each(scaled(0.02, 0));
  down.for_each(scaled(0.02, 1));
  input.for_each(scaled(1, 2));
  target.for_each(scaled(1, 3));
  std::vector<float> loss;
  const double taken =
      median_seconds([&] { loss = gather(here, run(up, down, input, target).template get<2>()); }, {2, 7});
  if (!here.is_root()) return;
  benchmarks::report("shifting_buffer_4_ranks", mesh.devices() > 1 ? "ours" : "one device, two threads", taken * 1e3,
                     "ms", "\"loss\": " + std::to_string(loss.front()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "stages") {
    measure<on_stages>(argc, argv, mesh<stage>::value);
  } else if (what == "layers") {
    measure<training<mesh<>, layered_loss>>(argc, argv, mesh<>::value);
  } else {
    std::fprintf(stderr, "usage: %s stages | layers\n", argv[0]);
    return EXIT_FAILURE;
  }
}
