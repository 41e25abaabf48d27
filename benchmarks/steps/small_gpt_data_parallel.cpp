// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include "compiled_step.hpp"

namespace espalier::benchmarks {

struct data : axis<"data", 2> {};
using two_devices = mesh<data>;
using split_step = training_step<two_devices, small_gpt, gpt::megatron<data>>;

mesh_shape small_gpt_data_parallel_mesh() { return two_devices::value; }
std::unique_ptr<gpt_step> make_small_gpt_data_parallel(world& where) {
  return std::make_unique<compiled_step<split_step, small_gpt>>(where);
}

}  // namespace espalier::benchmarks
