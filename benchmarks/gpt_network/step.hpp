// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../steps/gpt_step.hpp"

#include <memory>

namespace espalier::benchmarks {

/// The small GPT of steps/gpt_step.hpp, its batch split over four devices.
[[nodiscard]] mesh_shape four_replicas_mesh();
[[nodiscard]] std::unique_ptr<gpt_step> make_four_replicas(world& where);

}  // namespace espalier::benchmarks
