// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "unet3d.hpp"

#include <espalier/espalier.hpp>

#include <cmath>
#include <cstdint>
#include <iomanip>
#include <iostream>

// A 3-D U-Net learns to tell hollow balls from their shells, on volumes that are cut in two. Only the input is
// annotated; what every one of the convolutions needs from the other device follows.

namespace ep = espalier;

struct depth : ep::axis<"depth", 2> {};
using mesh = ep::mesh<depth>;

constexpr int side = 16;
using volumes = ep::f32<1, side, side, side, unet3d::input_channels>;
using voxels = ep::i32<1, side, side, side>;

using evaluation = ep::program<mesh, unet3d::loss<depth>, unet3d::parameters<ep::spec>, volumes, voxels>;
using training = ep::program<mesh, unet3d::train_step<depth>, ep::donated<unet3d::optimizer::state<ep::spec>>, volumes,
                             voxels, ep::f32<>>;

// Halos and the sum of the gradients, and nothing else: each 3^3 convolution needs a slice of the neighbour's input,
// and its gradient one of the cotangent; the gradient of the filter has the input's slice already. Pooling and
// up-convolution by 2 stay within a device.
static_assert(evaluation::collectives<ep::exchange>() == 14);
static_assert(training::collectives<ep::exchange>() == 14 + 13);
static_assert(evaluation::bytes<ep::exchange>() == 539 * side * side * 4);
static_assert(training::bytes<ep::exchange>() == (539 + 372) * side * side * 4);
static_assert(training::collectives<ep::all_gather>() == 0 && training::collectives<ep::all_to_all>() == 0);

constexpr int steps = 12;

/// Whether a voxel lies outside of the ball, in its shell, or in the hollow: 0, 1, 2.
int class_of(std::int64_t voxel) {
  const auto from_centre = [](std::int64_t index, double centre) { return static_cast<double>(index) - centre; };
  const double z = from_centre(voxel / (side * side), 8.5);
  const double y = from_centre(voxel / side % side, 7);
  const double x = from_centre(voxel % side, 8);
  const double radius = std::sqrt(z * z + y * y + x * x);
  return radius > 6 ? 0 : radius > 4 ? 1 : 2;
}

/// The brightness of a voxel, in three noisy channels: the shell is bright, its outside and inside are equally dark.
float brightness(std::int64_t element) {
  const double noise = ep::nn::uniform_at(1, 0, static_cast<std::uint64_t>(element))[0] - 0.5;
  return static_cast<float>((class_of(element / unet3d::input_channels) == 1 ? 1.0 : 0.0) + noise);
}

template <class Parameters> void initialise(Parameters& parameters) {
  std::uint32_t number = 0;
  ep::nn::for_each_named_leaf(parameters, [&](auto& array, const ep::nn::leaf_path& path) {
    constexpr ep::extents shape = std::remove_cvref_t<decltype(array)>::tensor::shape;
    const ep::nn::initial start = unet3d::initial(path, shape.elements() / shape[shape.rank - 1]);
    const std::uint32_t leaf = number++;
    array.for_each([&](float& element, std::int64_t index) {
      element = static_cast<float>(ep::nn::initial_at(start, 2, leaf, static_cast<std::uint64_t>(index)));
    });
  });
}

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});  // mpirun -n 2: two ranks; without it: two threads
    ep::runner<training> run(world);
    auto state = run.argument<0>();
    const auto x = run.argument<1>();
    const auto labels = run.argument<2>();
    const auto rate = run.argument<3>();
    initialise(state.parameters);
    x.for_each([](float& element, std::int64_t index) { element = brightness(index); });
    labels.for_each([](std::int32_t& label, std::int64_t voxel) { label = class_of(voxel); });
    rate.for_each([](float& r, std::int64_t /*index*/) { r = 0.01F; });
    double first = 0;
    double last = 0;
    for (int step = 0; step < steps; ++step) {
      last = static_cast<double>(*run(state, x, labels, rate).template get<1>().data(0));
      if (step == 0) first = last;
    }
    if (!world.is_root()) return 0;
    std::cout << unet3d::parameter_count() << " parameters\n"
              << training::collectives<ep::exchange>() << " exchanges in a step, " << training::bytes<ep::exchange>()
              << " bytes; the gradients are summed in " << training::collectives<ep::all_reduce>() << " all-reduces\n"
              << std::fixed << std::setprecision(1) << "loss " << first << " at first, " << last << " after "
              << steps - 1 << " steps\n";
    return 0;
  });
}
