// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/dtype.hpp>
#include <espalier/comm/communicator.hpp>
#include <espalier/tensor/core/mesh/mesh.hpp>
#include <espalier/tensor/core/sharding/sharding.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier::pipeline {

/// The three parts of a layer's work on a micro-batch, in their order.
enum class part : std::uint8_t {
  forward,         ///< F
  input_gradient,  ///< B
  weight_gradient  ///< W
};

/// One row of an activation, of its gradient or of data: the elements of one sample. Rows follow each other in memory,
/// so that those of a part of a micro-batch are a part of its memory.
struct row_facts {
  dtype type = dtype::f32;
  std::vector<std::int64_t> shape;  ///< without the dimension of samples

  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape) elements *= extent;
    return elements * size_of(type);
  }
};

/// An activation that a layer reads: the output of an earlier layer, not only of the one right before it.
struct input_facts {
  int layer = 0;                ///< whose output it is; smaller than the reader's number
  part needed = part::forward;  ///< the last part that reads it: the engine keeps it until then
  bool has_gradient = true;     ///< false: no gradient is computed (integers; nothing trained lies before it)
};

/// Rows that the user gives each step, such as tokens or targets; there in all parts.
struct data_facts {
  std::string name;  ///< the same name in two layers is the same data
  row_facts row;
};

/// The memory that a layer keeps for later parts, for one number of rows. Each block is one opaque piece of memory.
struct kept_facts {
  std::int64_t kept_bytes = 0;          ///< written by F, read by B
  std::int64_t kept_through_bytes = 0;  ///< written by F, read by B and by W
  std::int64_t kept_between_bytes = 0;  ///< written by B, read by W
};

/// The work of a part of a layer for some number of rows, before any machine is known.
struct work_facts {
  double operations = 0;  ///< of products and other ops that do many operations with each element
  double bytes = 0;       ///< that the other ops read and write
};

/// A tensor inside a block of parameters, gradients or state.
struct tensor_facts {
  std::string name;  ///< in checkpoints; unique in the model
  dtype type = dtype::f32;
  std::vector<std::int64_t> shape;  ///< of every device's part, where the devices of a replica share it
  std::int64_t offset = 0;          ///< bytes from the block's beginning
  std::optional<layout> whole{};    ///< the tensor that they share, and how; nothing: each has all of it

  [[nodiscard]] std::int64_t elements() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return count;
  }
  [[nodiscard]] std::int64_t bytes() const { return elements() * size_of(type); }
};

/// The facts of a layer on one mesh before it exists: enough to check a plan, to size all memory and to match
/// transfers. The same on every rank. Its name, numbers of rows, inputs, data and the layers whose parameters it reads
/// are the same on all meshes.
struct layer_facts {
  std::string name;
  std::vector<int> batches;  ///< the numbers of rows that it is compiled for, ascending
  std::vector<input_facts> inputs;
  std::vector<data_facts> data;
  /// A row of the output. The last layer's output is no row but one element of this type, whatever the number of rows:
  /// the sum of its samples' losses; its gradient is one such element, too, 1 / (samples of the step).
  row_facts output;
  /// The output of one sample, and how the devices of a replica share it; dimension 0 is that of samples. Nothing: each
  /// has all of it. `output` is then every device's part of a row.
  std::optional<layout> whole_output{};
  part output_needed = part::forward;                  ///< the last part that reads the layer's own output
  part output_gradient_needed = part::input_gradient;  ///< the last part that reads the output's gradient: B or W
  std::vector<kept_facts> kept;                        ///< by number of rows, as `batches`
  /// The work of F, B and W for each number of rows, in the order of `batches`; empty if it was not counted.
  std::vector<std::array<work_facts, 3>> work;
  /// The layers whose blocks of parameters it reads, in the order in which it gets them: itself, where it has any, and
  /// those whose weights are tied to its own.
  std::vector<int> parameters_of;
  std::vector<tensor_facts> parameters;  ///< of its own block; gradients lie as the parameters do, in their types
  std::int64_t parameter_bytes = 0;      ///< of the block: its gradients take as many
  std::vector<tensor_facts> state;       ///< of its optimizer
  std::int64_t state_bytes = 0;
};

/// The memory of one call of a layer. It belongs to the engine; blocks begin at multiples of 64 bytes, rows where the
/// rows before them end. Pointers that a part has no use for, or of nothing, are null.
struct layer_memory {
  int batch = 0;                                 ///< rows, one of `layer_facts::batches`
  std::span<const std::byte* const> parameters;  ///< as `parameters_of`
  std::span<const std::byte* const> inputs;      ///< as `inputs`
  std::span<const std::byte* const> data;        ///< as `data`
  std::byte* output = nullptr;                   ///< F writes all of it
  std::byte* kept = nullptr;
  std::byte* kept_through = nullptr;
  std::byte* kept_between = nullptr;
  const std::byte* output_gradient = nullptr;   ///< for B, and for W where it is needed
  std::span<std::byte* const> input_gradients;  ///< as `inputs`: B writes all of each; null: has none
  std::span<std::byte* const> gradients;        ///< as `parameters_of`: W adds to them
  bool is_again = false;                        ///< F for a second time: it shows nothing (`print`) that it has shown
};

/// Thrown by `replica_link::wait`: another rank failed, or nothing happened for the deadline, and all know it. Layers
/// let it pass.
struct peer_error : comm::comm_error {
  using comm::comm_error::comm_error;
};

/// The devices of a replica, as one of them sees the others: what the objects of a layer say to each other while they
/// run. Messages from one device to another keep their order; all devices of a replica run the same parts of the same
/// layers in one order.
class replica_link {
 public:
  replica_link() = default;
  replica_link(const replica_link&) = delete;
  replica_link& operator=(const replica_link&) = delete;
  virtual ~replica_link() = default;

  [[nodiscard]] virtual int device() const = 0;
  [[nodiscard]] virtual int devices() const = 0;
  /// Each starts a message; its memory stays until `wait` returns. @pre device != device()
  virtual void send(int device, const void* data, std::int64_t bytes) = 0;
  virtual void receive(int device, void* data, std::int64_t bytes) = 0;
  /// Waits until all messages that were started here have ended; the step's other messages move on meanwhile.
  /// Errors: `peer_error`.
  virtual void wait() = 0;
};

/// The link of a replica that is one device.
class no_peers final : public replica_link {
 public:
  [[nodiscard]] int device() const override { return 0; }
  [[nodiscard]] int devices() const override { return 1; }
  void send(int, const void*, std::int64_t) override { throw std::logic_error("a replica of one device has no peers"); }
  void receive(int, void*, std::int64_t) override { throw std::logic_error("a replica of one device has no peers"); }
  void wait() override {}
};

/// A layer on one device, as the engine runs it. A device has one object for each of its layers; it is used by one
/// thread at a time, and no run function allocates.
///
/// Rows are independent of each other: F of rows [a, b) and F of rows [b, c) make what F of rows [a, c) makes. Where a
/// replica is several devices, each has an object of its own and its part of every row of activations, and of the
/// parameters; facts give the sizes of these parts, and rows of data are there whole.
/// Errors: whatever a function throws ends the step on every rank, with rank, stage, layer and micro-batch.
class layer {
 public:
  layer() = default;
  layer(const layer&) = delete;
  layer& operator=(const layer&) = delete;
  virtual ~layer() = default;

  /// Allocates the memory that the layer needs for `batch` rows. Called before the first step, once for each number of
  /// rows that the plan uses.
  virtual void prepare(int batch) = 0;

  /// F: the output, and what B and W need of it. Called again, with the same result, where the stage is recomputed.
  virtual void forward(const layer_memory& memory) = 0;
  /// B: the gradients of the inputs, and what W needs of it.
  virtual void input_gradient(const layer_memory& memory) = 0;
  /// W: adds to the gradients of the parameters. Nothing is called for layers without parameters.
  virtual void weight_gradient(const layer_memory& memory) = 0;
  /// B and W in one, where the schedule does not part them.
  virtual void backward(const layer_memory& memory) {
    input_gradient(memory);
    weight_gradient(memory);
  }

  /// First values of the layer's own block and of its optimizer's state: the same on every device.
  virtual void initialise(std::byte* parameters, std::byte* state) = 0;
  /// The optimizer's step on the layer's own block, whose gradients are summed over the whole batch. `number` counts
  /// steps from 1.
  virtual void step(std::byte* parameters, const std::byte* gradients, std::byte* state, std::int64_t number) = 0;
};

/// Layers in a row, for the engine: facts of all, and objects of those that a device runs. Each layer is there for
/// every mesh of a list: the devices of one replica of a stage form such a mesh, and stages may have different ones.
class layer_model {
 public:
  layer_model() = default;
  layer_model(const layer_model&) = delete;
  layer_model& operator=(const layer_model&) = delete;
  virtual ~layer_model() = default;

  [[nodiscard]] virtual int layers() const = 0;
  /// The length of the list of meshes.
  [[nodiscard]] virtual int meshes() const { return 1; }
  /// The devices of a replica. @pre 0 <= mesh < meshes()
  [[nodiscard]] virtual mesh_shape replica_mesh(int mesh) const {
    (void)mesh;
    return {};
  }
  [[nodiscard]] int devices(int mesh = 0) const { return replica_mesh(mesh).devices(); }
  /// @pre 0 <= index < layers(), 0 <= mesh < meshes()
  [[nodiscard]] virtual const layer_facts& facts(int index, int mesh) const = 0;
  /// Returns the facts on mesh 0, for those that are the same on all meshes.
  [[nodiscard]] const layer_facts& facts(int index) const { return facts(index, 0); }
  /// A new object of that layer, for the device of `link`, which outlives it. Devices call it at the same time.
  /// @pre link.devices() == devices(mesh)
  [[nodiscard]] virtual std::unique_ptr<layer> make(int index, int mesh, replica_link& link) const = 0;
};

}  // namespace espalier::pipeline
