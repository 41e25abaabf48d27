// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::pipeline::detail {

[[nodiscard]] constexpr std::size_t as_index(int number) { return static_cast<std::size_t>(number); }

/// "12.5", "0.004": no more digits than it needs, six at most.
[[nodiscard]] inline std::string short_number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// The action of one instruction. B is the gradient with respect to a stage's input, W with respect to its weights.
enum class action : std::uint8_t {
  forward,             ///< F
  input_gradient,      ///< B
  weight_gradient,     ///< W
  backward,            ///< BW: both gradients in one; what the stage before needs is there at its end
  send_activation,     ///< starts the transfer of the stage's output to the next stage; does not wait
  receive_activation,  ///< waits until the stage's input has come from the stage before it
  send_gradient,     ///< starts the transfer of the gradient of the stage's input to the stage before it; does not wait
  receive_gradient,  ///< waits until the gradient of the stage's output has come from the next stage
  all_reduce,        ///< starts to sum the stage's weight gradients over its replicas; does not wait
  optimizer          ///< waits for the stage's all-reduce, then steps
};

/// "F", "B", "W", "BW", "send activation" ...
[[nodiscard]] constexpr std::string_view name_of(action kind) {
  switch (kind) {
    case action::forward: return "F";
    case action::input_gradient: return "B";
    case action::weight_gradient: return "W";
    case action::backward: return "BW";
    case action::send_activation: return "send activation";
    case action::receive_activation: return "receive activation";
    case action::send_gradient: return "send gradient";
    case action::receive_gradient: return "receive gradient";
    case action::all_reduce: return "all-reduce";
    case action::optimizer: return "optimizer";
  }
  return "?";
}

/// True for F, B, W and BW.
[[nodiscard]] constexpr bool is_computation(action kind) { return kind <= action::backward; }

/// One step of a rank: an action of one of its stages on one micro-batch.
struct instruction {
  action kind = action::forward;
  int stage = 0;
  int micro_batch = 0;  ///< 0 where it means nothing: all_reduce, optimizer

  constexpr bool operator==(const instruction&) const = default;
};

/// "F of stage 2, micro-batch 5".
[[nodiscard]] inline std::string to_string(const instruction& step) {
  std::string text = std::string(name_of(step.kind)) + " of stage " + std::to_string(step.stage);
  if (step.kind < action::all_reduce) text += ", micro-batch " + std::to_string(step.micro_batch);
  return text;
}

/// The instructions of each rank, in order, in one training step.
///
/// Lists hold computations alone, as generators make them, or also transfers, all-reduces and optimizer steps, as
/// `with_transfers` adds them. Stages, ranks and micro-batches count from 0; a stage passes its output to the next one.
struct schedule {
  std::string name;
  int micro_batches = 0;
  std::vector<int> rank_of;                     ///< by stage; a rank may have several stages, its chunks
  std::vector<std::vector<instruction>> lists;  ///< by rank
  std::vector<bool> recomputed;                 ///< by stage: only its input is kept until B; empty: none is

  [[nodiscard]] int ranks() const { return static_cast<int>(lists.size()); }
  [[nodiscard]] int stages() const { return static_cast<int>(rank_of.size()); }
  [[nodiscard]] bool recomputes(int stage) const {
    return !recomputed.empty() && recomputed[static_cast<std::size_t>(stage)];
  }
};

/// Returns the `rank_of` of stages that go round the ranks: stage s belongs to rank s mod ranks.
/// Throws std::invalid_argument unless both counts are positive.
/// @post every rank has one stage of each chunk, and each stage's rank is one after that of the stage before it
[[nodiscard]] inline std::vector<int> loop_placement(int ranks, int chunks) {
  if (ranks < 1 || chunks < 1)
    throw std::invalid_argument("a pipeline of " + std::to_string(ranks) + " ranks with " + std::to_string(chunks) +
                                " stages each: both numbers must be at least 1");
  std::vector<int> rank_of;
  for (int chunk = 0; chunk < chunks; ++chunk)
    for (int rank = 0; rank < ranks; ++rank) rank_of.push_back(rank);
  return rank_of;
}

/// Returns the `rank_of` of stages that go down the ranks and back up, as often as there are chunks: with two, a V,
/// whose first and last stage are both on rank 0.
/// Throws std::invalid_argument unless both counts are positive.
/// @post every rank has one stage of each chunk, and neighbouring stages are on neighbouring ranks or on one
[[nodiscard]] inline std::vector<int> v_placement(int ranks, int chunks) {
  std::vector<int> rank_of = loop_placement(ranks, chunks);
  for (std::size_t s = 0; s < rank_of.size(); ++s)
    if (s / static_cast<std::size_t>(ranks) % 2 == 1) rank_of[s] = ranks - 1 - rank_of[s];
  return rank_of;
}

}  // namespace espalier::pipeline
