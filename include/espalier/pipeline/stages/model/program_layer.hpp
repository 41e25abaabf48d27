// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/layers/tensor_shard.hpp>
#include <espalier/pipeline/stages/messages/peer_communicator.hpp>
#include <espalier/pipeline/stages/model/bindings.hpp>
#include <espalier/tensor/core/nn/initialise.hpp>
#include <espalier/tensor/run/execute/item_executor.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier::pipeline {

/// The initial values of a model's parameters, and the length of each step of its optimizer.
struct training_options {
  std::uint64_t seed = 0;
  /// The initial value of a parameter of a layer; by default its name decides.
  std::function<nn::initial(const std::string& layer, const leaf_path& path)> initial =
      [](const std::string&, const leaf_path& path) { return nn::initial_by_name(path); };
  /// The learning rate of a step; steps count from 1.
  std::function<double(std::int64_t)> rate = [](std::int64_t) { return 1e-3; };
};

namespace detail {

/// A program of one device on memory of the caller's.
class bound_program {
 public:
  bound_program(const program_tables& tables, peer_communicator& comm)
      : tables_(tables), executor_(tables_, comm.rank(), comm) {}
  bound_program(const bound_program&) = delete;
  bound_program& operator=(const bound_program&) = delete;

  /// Runs with arguments and results where `address(place)` says.
  template <class Address> void run(const part_places& places, const Address& address, bool looks = true) {
    executor_.set_looks(looks);
    for (std::size_t k = 0; k < places.arguments.size(); ++k)
      executor_.set_argument(static_cast<int>(k), address(places.arguments[k]));
    for (std::size_t k = 0; k < places.results.size(); ++k)
      executor_.set_result(static_cast<int>(k), address(places.results[k]));
    executor_.run();
  }

 private:
  program_tables tables_;
  espalier::detail::item_executor<peer_communicator> executor_;
};

/// The optimizer of a layer: (parameters, state, gradients, rate), the first two changed where they are.
struct compiled_optimizer {
  program_tables (*tables)() = nullptr;
  /// `room::inputs` is the state, `room::data` the rate.
  part_places places;
};

/// All that is known of a layer when the program starts, the same for all devices.
struct layer_description {
  layer_facts facts;
  mesh_shape mesh;  ///< of a replica
  std::vector<compiled_batch> batches;
  std::vector<batch_places> places;
  compiled_optimizer optimizer;
  std::vector<nn::initial> initial;  ///< of the leaves of its own parameters
  std::uint32_t first_leaf = 0;      ///< in the whole model: leaves have random numbers of their own
};

/// Memory of a call, for an executor, which is given all of it as it is given results.
[[nodiscard]] inline void* address_in(const layer_memory& memory, const place& at) {
  const auto index = static_cast<std::size_t>(at.index);
  const auto at_offset = [&](const std::byte* begin) -> void* { return const_cast<std::byte*>(begin) + at.offset; };
  switch (at.in) {
    case room::parameters: return at_offset(memory.parameters[index]);
    case room::inputs: return at_offset(memory.inputs[index]);
    case room::data: return at_offset(memory.data[index]);
    case room::output: return at_offset(memory.output);
    case room::output_gradient: return at_offset(memory.output_gradient);
    case room::kept: return at_offset(memory.kept);
    case room::kept_through: return at_offset(memory.kept_through);
    case room::kept_between: return at_offset(memory.kept_between);
    case room::input_gradients: return at_offset(memory.input_gradients[index]);
    case room::gradients: return at_offset(memory.gradients[index]);
  }
  return nullptr;
}

/// A layer on one device, whose parts are programs.
class program_layer final : public layer {
 public:
  /// @param options outlives the layer, as the description does
  program_layer(const layer_description& description, const training_options& options, replica_link& link)
      : description_(description), options_(options), communicator_(link), prepared_(description.batches.size()) {
    if (description_.optimizer.tables != nullptr) optimizer_ = bound(description_.optimizer.tables);
  }

  void prepare(int batch) override {
    const std::size_t n = index_of(batch);
    for (std::size_t k = 0; k < 3; ++k) {
      const auto tables = description_.batches[n].of[k].tables;
      if (tables != nullptr && !prepared_[n].of[k]) prepared_[n].of[k] = bound(tables);
    }
    prepared_[n].is_ready = true;
  }

  void forward(const layer_memory& memory) override { run(part::forward, memory); }
  void input_gradient(const layer_memory& memory) override { run(part::input_gradient, memory); }
  void weight_gradient(const layer_memory& memory) override { run(part::weight_gradient, memory); }

  void initialise(std::byte* parameters, std::byte* state) override {
    if (state != nullptr) std::memset(state, 0, static_cast<std::size_t>(description_.facts.state_bytes));
    for (std::size_t k = 0; k < description_.facts.parameters.size(); ++k) {
      const tensor_facts& leaf = description_.facts.parameters[k];
      with_storage(leaf.type, [&]<class T>(T) {
        auto* const first = reinterpret_cast<T*>(parameters + leaf.offset);
        for_each_element(shard_of_tensor(description_.mesh, leaf, communicator_.rank()), whole_shape(leaf),
                         [&](std::int64_t element, std::int64_t here) {
                           first[here] =
                               number_of<T>(nn::initial_at(description_.initial[k], options_.seed,
                                                           description_.first_leaf + static_cast<std::uint32_t>(k),
                                                           static_cast<std::uint64_t>(element)));
                         });
      });
    }
  }

  void step(std::byte* parameters, const std::byte* gradients, std::byte* state, std::int64_t number) override {
    if (!optimizer_) return;
    double rate = options_.rate(number);
    optimizer_->run(description_.optimizer.places, [&](const place& at) -> void* {
      switch (at.in) {
        case room::parameters: return parameters + at.offset;
        case room::gradients: return const_cast<std::byte*>(gradients) + at.offset;
        case room::inputs: return state + at.offset;
        default: return &rate;
      }
    });
  }

 private:
  struct prepared_batch {
    bool is_ready = false;
    std::unique_ptr<bound_program> of[3];
  };

  template <class T> static T number_of(double value) {
    if constexpr (std::is_same_v<T, bool>) {
      return value != 0;
    } else if constexpr (std::is_arithmetic_v<T>) {
      return static_cast<T>(value);
    } else {
      return T(static_cast<typename T::computed>(value));
    }
  }

  std::unique_ptr<bound_program> bound(program_tables (*tables)()) {
    return std::make_unique<bound_program>(tables(), communicator_);
  }

  [[nodiscard]] std::size_t index_of(int batch) const {
    const std::vector<int>& all = description_.facts.batches;
    for (std::size_t n = 0; n < all.size(); ++n)
      if (all[n] == batch) return n;
    std::string list;
    for (const int one : all) list += (list.empty() ? "" : ", ") + std::to_string(one);
    throw std::invalid_argument("layer \"" + description_.facts.name + "\" is not compiled for " +
                                std::to_string(batch) + " rows, but for " + list +
                                ": choose other shares, or add the number to the model's batches<...>");
  }

  void run(part which, const layer_memory& memory) {
    const std::size_t n = index_of(memory.batch);
    if (!prepared_[n].is_ready)
      throw std::logic_error("layer \"" + description_.facts.name + "\" runs on " + std::to_string(memory.batch) +
                             " rows, for which it was not prepared: call prepare(" + std::to_string(memory.batch) +
                             ") before the first step");
    bound_program* const program = prepared_[n].of[static_cast<std::size_t>(which)].get();
    if (program == nullptr) return;
    program->run(
        description_.places[n][which], [&](const place& at) { return address_in(memory, at); }, !memory.is_again);
  }

  const layer_description& description_;
  const training_options& options_;
  peer_communicator communicator_;
  std::vector<prepared_batch> prepared_;
  std::unique_ptr<bound_program> optimizer_;
};

}  // namespace detail

}  // namespace espalier::pipeline
