// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/profile.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/layers/layer_sizes.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace espalier::pipeline {

/// The rates that a device is assumed to reach.
struct device_rates {
  double operations_per_second = 1;
  double bytes_per_second = 1;  ///< of memory, read and written
};

/// The model's profile by counting, for machines that are not there: operations and bytes of each layer's F, B and W
/// for `rows` samples, one after the other, and of its optimizer, which reads and writes parameters and state. Bytes
/// are those of `measure`. Sizes are exact; seconds are as good as the rates, without caches and small shapes. `mesh`
/// is the number of one of the model's meshes, of which each device is such a machine. Errors: std::invalid_argument
/// where rates are not positive, or a layer is not compiled for so many rows, or does not say what it does.
[[nodiscard]] inline profile estimate(const layer_model& model, const std::string& name, int rows,
                                      const device_rates& device, int mesh = 0) {
  detail::require_mesh(model, mesh, "estimate");
  if (!(device.operations_per_second > 0) || !(device.bytes_per_second > 0))
    throw std::invalid_argument("estimate: " + std::to_string(device.operations_per_second) + " operations and " +
                                std::to_string(device.bytes_per_second) + " bytes a second: give positive numbers");
  profile made{name, static_cast<double>(rows), {}};
  for (int k = 0; k < model.layers(); ++k) {
    const layer_facts& facts = model.facts(k, mesh);
    const auto n = static_cast<std::size_t>(detail::index_of_rows(facts, rows, "estimate"));
    if (facts.work.size() <= n)
      throw std::invalid_argument("estimate: layer \"" + facts.name + "\" does not say what it does: measure it");
    const auto seconds = [&](part which) {
      const work_facts& work = facts.work[n][static_cast<std::size_t>(which)];
      return work.operations / device.operations_per_second + work.bytes / device.bytes_per_second;
    };
    layer_profile one;
    one.name = facts.name;
    one.forward_seconds = seconds(part::forward);
    one.input_gradient_seconds = seconds(part::input_gradient);
    one.weight_gradient_seconds = seconds(part::weight_gradient);
    one.activation_bytes = static_cast<double>(detail::activation_bytes(model, k, mesh, rows));
    one.parameter_bytes = static_cast<double>(facts.parameter_bytes);
    one.output_bytes = static_cast<double>(detail::crossing_bytes(model, k, mesh, rows));
    one.optimizer_seconds =
        static_cast<double>(3 * facts.parameter_bytes + 2 * facts.state_bytes) / device.bytes_per_second;
    made.layers.push_back(std::move(one));
  }
  return made;
}

}  // namespace espalier::pipeline
