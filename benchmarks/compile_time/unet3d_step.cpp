// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// A training step of the 3-D U-Net of examples/unet3d on volumes that are cut in two: what compiling costs.

#include "../../examples/unet3d/unet3d.hpp"

#include <espalier/tensor/run/execute/runner.hpp>

namespace ep = espalier;

struct depth : ep::axis<"depth", 2> {};
using step = ep::program<ep::mesh<depth>, unet3d::train_step<depth>, ep::donated<unet3d::optimizer::state<ep::spec>>,
                         ep::f32<1, 32, 16, 16, unet3d::input_channels>, ep::i32<1, 32, 16, 16>, ep::f32<>>;

int main(int argc, char** argv) {
  ep::world world(argc, argv, step::mesh{});
  ep::runner<step> run(world);
  auto state = run.argument<0>();
  auto x = run.argument<1>();
  auto labels = run.argument<2>();
  auto rate = run.argument<3>();
  run(state, x, labels, rate);
}
