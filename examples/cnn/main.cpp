// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "resnet.hpp"

#include <espalier/espalier.hpp>
#include <espalier/xtensor.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <string>

#include <xtensor/xmath.hpp>
#include <xtensor/xsort.hpp>
#include <xtensor/xtensor.hpp>

// A small residual network learns to tell disks, squares, crosses and rings from one another, on a mesh that splits the
// images of a batch one way and the rows of each image the other way.

namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
struct rows : ep::axis<"rows", 2> {};
using mesh = ep::mesh<data, rows>;

constexpr int batch = 16;
constexpr int side = 20;
constexpr int steps = 80;
using images = ep::f32<batch, side, side, 1>;
using labels = ep::i32<batch>;

using training = ep::program<mesh, resnet::train_step<data, rows>, ep::donated<resnet::optimizer::state<ep::spec>>,
                             images, labels, ep::f32<>>;
struct classify {
  constexpr auto operator()(const auto& p, const auto& x) const {
    return resnet::logits(p, ep::shard<data, rows, ep::none, ep::none>(x));
  }
};
using inference = ep::program<mesh, classify, resnet::parameters<ep::spec>, images>;

// Rows that a convolution lacks come from the neighbour; means over the batch and gradients are sums over all devices.
static_assert(training::collectives<ep::all_gather>() == 0 && training::collectives<ep::all_to_all>() == 0 &&
              training::collectives<ep::reduce_scatter>() == 0);
static_assert(inference::collectives<ep::exchange>() == 9);

/// A number in (0, 1) that belongs to a picture.
double chance(std::int64_t picture, std::uint32_t which) {
  return ep::nn::uniform_at(7, which, static_cast<std::uint64_t>(picture))[0];
}
int class_of(std::int64_t picture) { return static_cast<int>(chance(picture, 0) * resnet::classes); }

float pixel(std::int64_t picture, std::int64_t index) {
  const double y = static_cast<double>(index / side) - (6 + 8 * chance(picture, 1));
  const double x = static_cast<double>(index % side) - (6 + 8 * chance(picture, 2));
  const double size = 3 + 2 * chance(picture, 3);
  const double radius = std::sqrt(x * x + y * y);
  const bool is_near = std::max(std::abs(x), std::abs(y)) <= size;
  bool inside = false;
  switch (class_of(picture)) {
    case 0: inside = radius <= size; break;
    case 1: inside = is_near; break;
    case 2: inside = is_near && std::min(std::abs(x), std::abs(y)) <= 1; break;
    default: inside = radius <= size && radius >= size - 2; break;
  }
  const double noise = ep::nn::uniform_at(8, static_cast<std::uint32_t>(index), static_cast<std::uint64_t>(picture))[0];
  return static_cast<float>((inside ? 1.0 : 0.0) + 0.4 * (noise - 0.5));
}

/// A batch of pictures `first`, `first` + 1, ...
xt::xtensor<float, 4> pictures_from(std::int64_t first) {
  auto x = xt::xtensor<float, 4>::from_shape({batch, side, side, 1});
  for (std::int64_t k = 0; k < batch; ++k)
    for (std::int64_t index = 0; index < side * side; ++index)
      x(k, index / side, index % side, 0) = pixel(first + k, index);
  return x;
}
xt::xtensor<int, 1> classes_from(std::int64_t first) {
  auto y = xt::xtensor<int, 1>::from_shape({batch});
  for (std::int64_t k = 0; k < batch; ++k) y(k) = class_of(first + k);
  return y;
}

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});  // mpirun -n 4: four ranks; without it: four threads
    ep::runner<training> train(world);
    auto state = train.argument<0>();
    ep::nn::initialise(
        state.parameters, 3, [](const ep::nn::leaf_path& path) { return ep::nn::initial_by_name(path, 0.2); },
        [](auto& array, const auto& value) {
          array.for_each(
              [&](float& e, std::int64_t index) { e = static_cast<float>(value(static_cast<std::uint64_t>(index))); });
        });
    for (std::int64_t step = 0; step < steps; ++step) {
      train(state, pictures_from(step * batch), classes_from(step * batch), 0.005F);
    }

    // Pictures that it has not seen.
    ep::runner<inference> infer(world);
    int right = 0;
    constexpr int batches = 8;
    for (std::int64_t n = 0; n < batches; ++n) {
      const std::int64_t first = 1'000'000 + n * batch;
      const auto logits = ep::gather_xtensor(world, infer(state.parameters, pictures_from(first)));
      right += xt::sum(xt::equal(xt::argmax(logits, 1), classes_from(first)))();
    }
    if (!world.is_root()) return 0;
    const std::string names[]{"disk", "square", "cross", "ring"};
    for (int picture = 0; picture < 4; ++picture) {
      std::cout << (picture > 0 ? ", " : "pictures: ") << names[class_of(picture)];
    }
    std::cout << " ...\n"
              << (right * 10 >= batches * batch * 9 ? "more" : "less") << " than 90 % of " << batches * batch
              << " new pictures are told apart\n"
              << "in a training step each device sends " << training::bytes<ep::exchange>() << " bytes of rows in "
              << training::collectives<ep::exchange>() << " exchanges, and takes part in "
              << training::collectives<ep::all_reduce>() << " all-reduces\n";
    return 0;
  });
}
