// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include "../steps/compiled_step.hpp"

namespace espalier::benchmarks {

struct lone_data : axis<"data", 1> {};
struct lone_model : axis<"model", 1> {};
using one_device = mesh<lone_data, lone_model>;
using annotated_step = training_step<one_device, small_gpt, gpt::megatron<lone_data, lone_model>>;

mesh_shape mesh_of_one() { return one_device::value; }
std::unique_ptr<gpt_step> make_small_gpt_on_mesh_of_one(world& where) {
  return std::make_unique<compiled_step<annotated_step, small_gpt>>(where);
}
std::int64_t collectives_on_mesh_of_one() { return annotated_step::collectives(); }

}  // namespace espalier::benchmarks
