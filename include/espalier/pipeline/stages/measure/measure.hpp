// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/pipeline/profile.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/layers/layer_sizes.hpp>
#include <espalier/pipeline/stages/messages/peer_communicator.hpp>
#include <espalier/pipeline/stages/messages/peer_messages.hpp>
#include <espalier/pipeline/stages/messages/transport_in_process.hpp>
#include <espalier/tensor/run/execute/buffer.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace espalier::pipeline {

/// The options of `measure`.
struct measure_options {
  int rows = 1;         ///< samples, one of the numbers that the model is compiled for
  int mesh = 0;         ///< on which of the model's meshes
  int repetitions = 9;  ///< of the whole model; the median of each part's times counts
  /// Writes so many rows of data; zeros without it. Devices that share each layer call it at the same time.
  std::function<void(const data_facts& data, std::byte* rows, int count)> fill;
};

namespace detail {

/// All layers of a model on one device of a replica, run in turn.
class measured_model {
 public:
  measured_model(const layer_model& model, const measure_options& options, replica_link& link)
      : model_(model), rows_(options.rows), peers_(link) {
    for (int k = 0; k < model.layers(); ++k) {
      const layer_facts& facts = model.facts(k, options.mesh);
      const kept_facts& kept = kept_of(facts, rows_);
      one_layer made;
      made.facts = &facts;
      made.object = model.make(k, options.mesh, link);
      made.object->prepare(rows_);
      const std::int64_t bytes = output_bytes(model, k, options.mesh, rows_);
      made.output = shared_buffer(bytes);
      made.output_gradient = shared_buffer(bytes);
      made.parameters = shared_buffer(facts.parameter_bytes);
      made.gradients = shared_buffer(facts.parameter_bytes);
      made.state = shared_buffer(facts.state_bytes);
      made.kept = shared_buffer(kept.kept_bytes);
      made.through = shared_buffer(kept.kept_through_bytes);
      made.between = shared_buffer(kept.kept_between_bytes);
      if (facts.parameter_bytes > 0) made.object->initialise(bytes_of(made.parameters), bytes_of(made.state));
      for (const data_facts& data : facts.data) {
        made.data.emplace_back(data.row.bytes() * rows_);
        if (options.fill) options.fill(data, bytes_of(made.data.back()), rows_);
      }
      layers_.push_back(std::move(made));
    }
    for (one_layer& one : layers_) connect(one);
    begin_gradient();
  }

  /// Runs layer `k`'s part and returns the seconds it took.
  double run(int k, part which) {
    one_layer& one = layers_[static_cast<std::size_t>(k)];
    const layer_memory memory = one.memory(rows_);
    peers_.barrier();
    const auto begin = std::chrono::steady_clock::now();
    switch (which) {
      case part::forward: one.object->forward(memory); break;
      case part::input_gradient: one.object->input_gradient(memory); break;
      case part::weight_gradient:
        if (!one.facts->parameters_of.empty()) one.object->weight_gradient(memory);
        break;
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  /// The same of the optimizer's step on its parameters.
  double run_optimizer(int k, std::int64_t number) {
    one_layer& one = layers_[static_cast<std::size_t>(k)];
    if (one.facts->parameter_bytes == 0) return 0;
    peers_.barrier();
    const auto begin = std::chrono::steady_clock::now();
    one.object->step(bytes_of(one.parameters), bytes_of(one.gradients), bytes_of(one.state), number);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  struct one_layer {
    const layer_facts* facts = nullptr;
    std::unique_ptr<layer> object;
    shared_buffer output, output_gradient, parameters, gradients, state, kept, through, between;
    std::vector<shared_buffer> data;
    std::vector<const std::byte*> parameter_list, input_list, data_list;
    std::vector<std::byte*> gradient_list, input_gradient_list;

    [[nodiscard]] layer_memory memory(int rows) const {
      return {rows,
              parameter_list,
              input_list,
              data_list,
              bytes_of(output),
              bytes_of(kept),
              bytes_of(through),
              bytes_of(between),
              bytes_of(output_gradient),
              input_gradient_list,
              gradient_list};
    }
  };

  [[nodiscard]] static std::byte* bytes_of(const shared_buffer& buffer) {
    return static_cast<std::byte*>(buffer.data());
  }

  /// Sets the output's gradient as in a step: products of zeros would be faster.
  void begin_gradient() {
    with_storage(model_.facts(model_.layers() - 1).output.type, [&]<class T>(T) {
      if constexpr (!std::is_same_v<T, bool>) {
        const T value = static_cast<T>(1.0F / static_cast<float>(rows_));
        std::memcpy(bytes_of(layers_.back().output_gradient), &value, sizeof value);
      }
    });
  }

  /// Connects a layer to its inputs. If several layers read one output, the last of them to run leaves its gradient:
  /// times need no sum.
  void connect(one_layer& one) {
    for (const int from : one.facts->parameters_of) {
      const one_layer& other = layers_[static_cast<std::size_t>(from)];
      one.parameter_list.push_back(bytes_of(other.parameters));
      one.gradient_list.push_back(bytes_of(other.gradients));
    }
    for (const input_facts& input : one.facts->inputs) {
      const one_layer& other = layers_[static_cast<std::size_t>(input.layer)];
      one.input_list.push_back(bytes_of(other.output));
      one.input_gradient_list.push_back(input.has_gradient ? bytes_of(other.output_gradient) : nullptr);
    }
    for (const shared_buffer& data : one.data) one.data_list.push_back(bytes_of(data));
  }

  const layer_model& model_;
  int rows_;
  peer_communicator peers_;
  std::vector<one_layer> layers_;
};

/// Seconds of all layers, each a median.
struct layer_seconds {
  std::vector<double> of[3];  ///< by part and layer
  std::vector<double> optimizer;

  explicit layer_seconds(int layers) {
    for (auto* list : {&of[0], &of[1], &of[2], &optimizer}) list->assign(as_index(layers), 0);
  }
  /// Devices that run together take as long as the slowest of them.
  void include(const layer_seconds& other) {
    const auto slowest = [](std::vector<double>& all, const std::vector<double>& theirs) {
      for (std::size_t k = 0; k < all.size(); ++k) all[k] = std::max(all[k], theirs[k]);
    };
    for (int part = 0; part < 3; ++part) slowest(of[part], other.of[part]);
    slowest(optimizer, other.optimizer);
  }
};

[[nodiscard]] inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Measures on one device of a replica; all of its devices call it.
[[nodiscard]] inline layer_seconds measured_seconds(const layer_model& model, const measure_options& options,
                                                    replica_link& link) {
  measured_model measured(model, options, link);
  const int layers = model.layers();
  const auto times = [&] { return std::vector<std::vector<double>>(as_index(layers)); };
  std::vector<std::vector<double>> seconds[3] = {times(), times(), times()};
  std::vector<std::vector<double>> optimizer = times();
  const auto run = [&](int k, part which, bool counts) {
    const double taken = measured.run(k, which);
    if (counts) seconds[static_cast<std::size_t>(which)][as_index(k)].push_back(taken);
  };
  for (int n = 0; n <= options.repetitions; ++n) {  // the first one warms up
    for (int k = 0; k < layers; ++k) run(k, part::forward, n > 0);
    for (int k = layers - 1; k >= 0; --k) {
      run(k, part::input_gradient, n > 0);
      run(k, part::weight_gradient, n > 0);
    }
    for (int k = 0; k < layers; ++k) {
      const double taken = measured.run_optimizer(k, n + 1);
      if (n > 0) optimizer[as_index(k)].push_back(taken);
    }
  }
  layer_seconds found(layers);
  for (std::size_t k = 0; k < as_index(layers); ++k) {
    for (int part = 0; part < 3; ++part) found.of[part][k] = median(seconds[part][k]);
    found.optimizer[k] = median(optimizer[k]);
  }
  return found;
}

/// The devices of a replica as threads of this process.
[[nodiscard]] inline layer_seconds measured_together(const layer_model& model, const measure_options& options) {
  layer_seconds slowest(model.layers());
  std::mutex one_at_a_time;
  const int devices = model.devices(options.mesh);
  std::vector<int> members(as_index(devices));
  std::iota(members.begin(), members.end(), 0);
  comm::run_devices(devices, [&](comm::in_process_communicator& here) {
    const std::unique_ptr<transport> ranks = make_transport(here);
    peer_messages link(members, *ranks, [&](peer_messages& messages) {
      wait_until(
          *ranks, [&] { return messages.is_done(); }, [] {},
          [] { throw peer_error("measure: a device does not answer"); });
    });
    const layer_seconds mine = measured_seconds(model, options, link);
    const std::lock_guard lock(one_at_a_time);
    slowest.include(mine);
  });
  return slowest;
}

}  // namespace detail

/// The model's profile on this machine, with the threads that the caller has: every layer's F, B and W on
/// `options.rows` samples and its optimizer's step, run in the order of a step, so that each finds its operands in the
/// caches as it does there. The devices of a replica are threads of this process: give each of them processors.
/// Activation bytes are what a layer holds from its F on: what it keeps, and its output where some later part reads it.
/// Errors: std::invalid_argument if the model is not compiled for so many rows or such a mesh, or nothing is to be
/// repeated.
[[nodiscard]] inline profile measure(const layer_model& model, const std::string& name,
                                     const measure_options& options) {
  if (options.repetitions < 1)
    throw std::invalid_argument("measure: " + std::to_string(options.repetitions) + " repetitions: give 1 or more");
  detail::require_mesh(model, options.mesh, "measure");
  for (int k = 0; k < model.layers(); ++k) (void)detail::index_of_rows(model.facts(k), options.rows, "measure");
  no_peers alone;
  const detail::layer_seconds seconds = model.devices(options.mesh) > 1
                                            ? detail::measured_together(model, options)
                                            : detail::measured_seconds(model, options, alone);
  const int layers = model.layers();
  profile made{name, static_cast<double>(options.rows), {}};
  for (int k = 0; k < layers; ++k) {
    const auto of = [&](part which) { return seconds.of[static_cast<int>(which)][detail::as_index(k)]; };
    layer_profile one;
    one.name = model.facts(k).name;
    one.forward_seconds = of(part::forward);
    one.input_gradient_seconds = of(part::input_gradient);
    one.weight_gradient_seconds = of(part::weight_gradient);
    one.activation_bytes = static_cast<double>(detail::activation_bytes(model, k, options.mesh, options.rows));
    one.parameter_bytes = static_cast<double>(model.facts(k, options.mesh).parameter_bytes);
    one.output_bytes = static_cast<double>(detail::crossing_bytes(model, k, options.mesh, options.rows));
    one.optimizer_seconds = seconds.optimizer[detail::as_index(k)];
    made.layers.push_back(std::move(one));
  }
  return made;
}

}  // namespace espalier::pipeline
