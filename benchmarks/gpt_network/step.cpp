// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include "step.hpp"

#include "../steps/compiled_step.hpp"

namespace espalier::benchmarks {

struct replicas : axis<"data", 4> {};
using four_devices = mesh<replicas>;
using replicated_step = training_step<four_devices, small_gpt, gpt::megatron<replicas>>;

mesh_shape four_replicas_mesh() { return four_devices::value; }
std::unique_ptr<gpt_step> make_four_replicas(world& where) {
  return std::make_unique<compiled_step<replicated_step, small_gpt>>(where);
}

}  // namespace espalier::benchmarks
