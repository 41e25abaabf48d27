// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/run/execute/tables.hpp>
#include <espalier/tensor/run/execute/world.hpp>

#include <cstdint>
#include <memory>

/// The training steps that several benchmarks measure, each compiled once.
namespace espalier::benchmarks {

/// The facts of a step that are known before it runs. Bytes are those of one device.
struct step_facts {
  std::int64_t tokens = 0;      // of the whole batch
  std::int64_t parameters = 0;  // all of them
  /// 6 x parameters x tokens, and the causal half of attention: 6 x layers x batch x context^2 x width.
  double flops = 0;
  /// The same without the parameters that are looked up, not multiplied with (token and position embedding).
  double multiplied_flops = 0;
  std::int64_t argument_bytes = 0;
  std::int64_t result_bytes = 0;
  std::int64_t arena_bytes = 0;
  std::int64_t peak_bytes = 0;
  int traced_instructions = 0;
  int instructions = 0;
};

/// The time of some steps, and of that what their products take.
struct step_seconds {
  double all = 0;
  double products = 0;
  /// Attention, where products and the softmax of a few rows take turns: not in `products`.
  double rows = 0;
};

/// A training step with its parameters and eight batches, both drawn as benchmarks/peers/torch_gpt.py draws them.
class gpt_step {
 public:
  static constexpr int batches = 8;

  gpt_step() = default;
  gpt_step(const gpt_step&) = delete;
  gpt_step& operator=(const gpt_step&) = delete;
  virtual ~gpt_step() = default;

  [[nodiscard]] virtual step_facts facts() const = 0;
  [[nodiscard]] virtual program_tables tables() const = 0;
  /// One step, on batch `number` modulo eight.
  virtual void run(int number) = 0;
  /// The loss that the last step found before its update. Collective: all ranks call it.
  [[nodiscard]] virtual double loss() = 0;
  /// Where the time of `count` more steps goes, on one device: the same steps, with a clock around each launch.
  [[nodiscard]] virtual step_seconds profile(int count) = 0;
};

/// d_model 512, 8 heads, 4 layers, sequence 256, batch 8, vocabulary 256, AdamW, on one device.
[[nodiscard]] mesh_shape large_gpt_mesh();
[[nodiscard]] std::unique_ptr<gpt_step> make_large_gpt(world& where);

/// d_model 256, 8 heads, 2 layers, sequence 128, batch 16, vocabulary 1024, biases everywhere, Adam, on one device.
[[nodiscard]] mesh_shape small_gpt_mesh();
[[nodiscard]] std::unique_ptr<gpt_step> make_small_gpt(world& where);
/// The same in mixed precision: bf16 with parameters in f32.
[[nodiscard]] std::unique_ptr<gpt_step> make_small_gpt_bf16(world& where);

/// The same, the batch split over two devices.
[[nodiscard]] mesh_shape small_gpt_data_parallel_mesh();
[[nodiscard]] std::unique_ptr<gpt_step> make_small_gpt_data_parallel(world& where);

}  // namespace espalier::benchmarks
