// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The GPT example's training step: what compiling costs on a DATA x MODEL mesh, with LAYERS layers. All sizes divide on
// a mesh of 64 x 32, so that the program is the same on every mesh; with UNEVEN, batch, context and vocabulary divide
// on none.

#include "../../examples/gpt/model.hpp"

#include <espalier/tensor/run/execute/runner.hpp>

namespace ep = espalier;

#if !defined(DATA)
#define DATA 2
#define MODEL 2
#endif
#if !defined(LAYERS)
#define LAYERS 4
#endif

struct data : ep::axis<"data", DATA> {};
struct model : ep::axis<"model", MODEL> {};
#if defined(UNEVEN)
using config = gpt::config<4099, 2048, 64, LAYERS, 257, 131>;
#else
using config = gpt::config<4096, 2048, 64, LAYERS, 256, 128>;
#endif
using step = ep::program<ep::mesh<data, model>, gpt::train_step<config, gpt::megatron<data, model>>,
                         ep::donated<gpt::state<config, ep::spec>>, config::tokens, config::tokens, config::rate>;

int main(int argc, char** argv) {
  ep::world world(argc, argv, step::mesh{});
  ep::runner<step> run(world);
  auto state = run.argument<0>();
  auto tokens = run.argument<1>();
  auto rate = run.argument<3>();
  run(state, tokens, tokens, rate);
}
