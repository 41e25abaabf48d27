// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include "compiled_step.hpp"

namespace espalier::benchmarks {

using small_step = training_step<mesh<>, small_gpt, gpt::megatron<>>;

mesh_shape small_gpt_mesh() { return mesh<>::value; }
std::unique_ptr<gpt_step> make_small_gpt(world& where) {
  return std::make_unique<compiled_step<small_step, small_gpt>>(where);
}

}  // namespace espalier::benchmarks
