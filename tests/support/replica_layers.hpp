// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/messages/peer_communicator.hpp>
#include <support/hand_written_layers.hpp>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// The hand-written layers on replicas of several devices, which all compute the same, and speak about it.
namespace hand_written {

/// Does what another layer does, and before each F and B adds numbers of all devices: few, or many.
class speaking final : public pl::layer {
 public:
  speaking(std::unique_ptr<pl::layer> inner, pl::replica_link& link) : inner_(std::move(inner)), peers_(link) {
    for (int k = 0; k < link.devices(); ++k) all_.members.push_back(k);
    all_.self = link.device();
    peers_.prepare(all_);
  }
  void prepare(int batch) override { inner_->prepare(batch); }
  void forward(const pl::layer_memory& memory) override {
    speak(3);
    inner_->forward(memory);
  }
  void input_gradient(const pl::layer_memory& memory) override {
    speak(5000);
    inner_->input_gradient(memory);
  }
  void weight_gradient(const pl::layer_memory& memory) override { inner_->weight_gradient(memory); }
  void initialise(std::byte* parameters, std::byte* state) override { inner_->initialise(parameters, state); }
  void step(std::byte* parameters, const std::byte* gradients, std::byte* state, std::int64_t number) override {
    inner_->step(parameters, gradients, state, number);
  }

 private:
  void speak(int count) {
    ++said_;
    std::vector<double> numbers(static_cast<std::size_t>(count), peers_.rank() + 1 + said_);
    peers_.all_reduce(all_, numbers.data(), numbers.data(), count,
                      espalier::comm::reducer_of(espalier::dtype::f64, espalier::reduction::sum));
    const int n = peers_.size();
    for (const double sum : numbers)
      if (sum != n * said_ + n * (n + 1) / 2)
        throw std::runtime_error("the devices of a replica are not in one layer: " + std::to_string(sum));
  }

  std::unique_ptr<pl::layer> inner_;
  pl::detail::peer_communicator peers_;
  espalier::comm::transfer_group all_;
  int said_ = 0;
};

class replica_model : public model {
 public:
  explicit replica_model(int devices, int most_rows = 12) : model(most_rows) {
    mesh_.rank = 1;
    mesh_.size[0] = devices;
    mesh_.name[0] = "device";
  }
  [[nodiscard]] espalier::mesh_shape replica_mesh(int) const override { return mesh_; }
  [[nodiscard]] std::unique_ptr<pl::layer> make(int index, int mesh, pl::replica_link& link) const override {
    return std::make_unique<speaking>(model::make(index, mesh, link), link);
  }

 private:
  espalier::mesh_shape mesh_;
};

}  // namespace hand_written
