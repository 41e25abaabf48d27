// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include "compiled_step.hpp"

namespace espalier::benchmarks {

using large_step = training_step<mesh<>, large_gpt, gpt::megatron<>>;

mesh_shape large_gpt_mesh() { return mesh<>::value; }
std::unique_ptr<gpt_step> make_large_gpt(world& where) {
  return std::make_unique<compiled_step<large_step, large_gpt>>(where);
}

}  // namespace espalier::benchmarks
