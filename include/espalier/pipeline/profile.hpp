// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier::pipeline {

/// The costs of one layer of a model for a batch of `profile::batch` samples on one device. Seconds and bytes.
struct layer_profile {
  std::string name;
  double forward_seconds = 0;
  double input_gradient_seconds = 0;
  double weight_gradient_seconds = 0;
  double activation_bytes = 0;   ///< kept from the layer's forward to its backward
  double parameter_bytes = 0;    ///< of the parameters alone; their gradients and the optimizer's state come on top
  double output_bytes = 0;       ///< that cross to another stage if the model is cut right after this layer
  double optimizer_seconds = 0;  ///< of its parameters, once per step; 0 in published profiles

  [[nodiscard]] double backward_seconds() const { return input_gradient_seconds + weight_gradient_seconds; }
  [[nodiscard]] double seconds() const { return forward_seconds + backward_seconds(); }
};

/// A model as planners see it: layers in an order in which each may be the last one of a stage.
struct profile {
  std::string name;
  double batch = 1;  ///< samples that the layers' numbers are for
  std::vector<layer_profile> layers;

  [[nodiscard]] int size() const { return static_cast<int>(layers.size()); }
};

/// Throws std::invalid_argument, with the layer and the value, unless there is at least one layer, the batch is
/// positive, all numbers are finite, none is negative, and some layer takes time.
inline void require_usable(const profile& model) {
  const std::string where = "profile \"" + model.name + "\"";
  if (model.layers.empty()) throw std::invalid_argument(where + " has no layers: there is nothing to plan");
  if (!(model.batch > 0) || !std::isfinite(model.batch))
    throw std::invalid_argument(where + " is for a batch of " + std::to_string(model.batch) +
                                " samples: give a positive number");
  double seconds = 0;
  for (const layer_profile& one : model.layers) {
    const std::pair<double, const char*> values[] = {{one.forward_seconds, "forward_seconds"},
                                                     {one.input_gradient_seconds, "input_gradient_seconds"},
                                                     {one.weight_gradient_seconds, "weight_gradient_seconds"},
                                                     {one.activation_bytes, "activation_bytes"},
                                                     {one.parameter_bytes, "parameter_bytes"},
                                                     {one.output_bytes, "output_bytes"},
                                                     {one.optimizer_seconds, "optimizer_seconds"}};
    for (const auto& [value, kind] : values)
      if (!(value >= 0) || !std::isfinite(value))
        throw std::invalid_argument(where + ": " + kind + " of layer \"" + one.name + "\" is " + std::to_string(value) +
                                    ": give a finite number, 0 or more");
    seconds += one.seconds();
  }
  if (!(seconds > 0)) throw std::invalid_argument(where + ": no layer takes any time, so that all plans are equal");
}

/// Sums over runs of layers, each in constant time. A run is [first, last), as layers count from 0.
class profile_sums {
 public:
  profile_sums() = default;
  explicit profile_sums(const profile& model) {
    for (auto* line :
         {&forward_, &input_gradient_, &weight_gradient_, &activation_, &parameter_, &backward_, &optimizer_})
      line->assign(1, 0.0);
    for (const layer_profile& one : model.layers) {
      const auto add = [](std::vector<double>& line, double value) { line.push_back(line.back() + value); };
      add(forward_, one.forward_seconds);
      add(input_gradient_, one.input_gradient_seconds);
      add(weight_gradient_, one.weight_gradient_seconds);
      add(backward_, one.backward_seconds());
      add(activation_, one.activation_bytes);
      add(parameter_, one.parameter_bytes);
      add(optimizer_, one.optimizer_seconds);
      output_.push_back(one.output_bytes);
    }
  }

  [[nodiscard]] int layers() const { return static_cast<int>(output_.size()); }
  [[nodiscard]] double forward(int first, int last) const { return between(forward_, first, last); }
  [[nodiscard]] double input_gradient(int first, int last) const { return between(input_gradient_, first, last); }
  [[nodiscard]] double weight_gradient(int first, int last) const { return between(weight_gradient_, first, last); }
  [[nodiscard]] double backward(int first, int last) const { return between(backward_, first, last); }
  [[nodiscard]] double seconds(int first, int last) const { return forward(first, last) + backward(first, last); }
  [[nodiscard]] double activation(int first, int last) const { return between(activation_, first, last); }
  [[nodiscard]] double parameter(int first, int last) const { return between(parameter_, first, last); }
  [[nodiscard]] double optimizer(int first, int last) const { return between(optimizer_, first, last); }
  /// Returns the bytes that cross into the run that starts with layer `first`: 0 at layer 0, where the batch itself
  /// comes in.
  [[nodiscard]] double input(int first) const { return first == 0 ? 0 : output_[static_cast<std::size_t>(first) - 1]; }

 private:
  [[nodiscard]] static double between(const std::vector<double>& line, int first, int last) {
    return line[static_cast<std::size_t>(last)] - line[static_cast<std::size_t>(first)];
  }

  std::vector<double> forward_, input_gradient_, weight_gradient_, backward_, activation_, parameter_, optimizer_,
      output_;
};

/// The profile with `bytes` of activations in all, spread over the layers in proportion to their forward time.
///
/// Published profiles know of a layer's output alone, not of what it keeps inside; where a measurement of the whole
/// model is at hand, this makes memory real. Throws std::invalid_argument unless `bytes` is finite and not negative.
[[nodiscard]] inline profile with_activation_memory(profile model, double bytes) {
  if (!(bytes >= 0) || !std::isfinite(bytes))
    throw std::invalid_argument("activations of " + std::to_string(bytes) + " bytes: give a finite number, 0 or more");
  double forward = 0;
  for (const layer_profile& one : model.layers) forward += one.forward_seconds;
  for (layer_profile& one : model.layers)
    one.activation_bytes = forward > 0 ? bytes * one.forward_seconds / forward : bytes / model.size();
  return model;
}

/// The profile with runs of layers taken together: `ends` holds where each run ends, ascending, the last one at size().
[[nodiscard]] inline profile with_layers_merged(const profile& model, const std::vector<int>& ends) {
  profile merged{model.name, model.batch, {}};
  int first = 0;
  for (const int end : ends) {
    layer_profile run = model.layers[static_cast<std::size_t>(first)];
    for (int k = first + 1; k < end; ++k) {
      const layer_profile& one = model.layers[static_cast<std::size_t>(k)];
      run.forward_seconds += one.forward_seconds;
      run.input_gradient_seconds += one.input_gradient_seconds;
      run.weight_gradient_seconds += one.weight_gradient_seconds;
      run.activation_bytes += one.activation_bytes;
      run.parameter_bytes += one.parameter_bytes;
      run.optimizer_seconds += one.optimizer_seconds;
      run.output_bytes = one.output_bytes;
    }
    if (end - first > 1) run.name += " .. " + model.layers[static_cast<std::size_t>(end) - 1].name;
    merged.layers.push_back(std::move(run));
    first = end;
  }
  return merged;
}

}  // namespace espalier::pipeline
