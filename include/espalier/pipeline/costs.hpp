// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/instruction.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier::pipeline {

/// The costs of one stage per micro-batch, on one of its ranks. Seconds and bytes may be any consistent units.
struct stage_costs {
  double forward_seconds = 1;
  double input_gradient_seconds = 1;
  double weight_gradient_seconds = 1;
  double activation_bytes = 1;       ///< held from F to B
  double weight_gradient_bytes = 1;  ///< of them, those held from B to W
  double input_bytes = 0;            ///< held from F to B instead, where the stage is recomputed
  double state_bytes = 0;            ///< always held: weights, gradients, the optimizer's state
  double all_reduce_seconds = 0;     ///< of its weight gradients over its replicas, once per step
  double optimizer_seconds = 0;      ///< once per step

  /// F + B + W, which is what the stage computes per micro-batch where nothing is recomputed.
  [[nodiscard]] double seconds() const { return forward_seconds + input_gradient_seconds + weight_gradient_seconds; }
};

/// Whether a link carries both directions at once, or one transfer at a time.
enum class duplex : std::uint8_t { full, half };

/// The costs of a transfer between a stage and the next one: it occupies the link for bytes / bandwidth, and arrives a
/// latency after that.
struct hop_costs {
  double latency_seconds = 0;
  double activation_bytes = 0;
  double gradient_bytes = 0;
  double bytes_per_second = 1;
  duplex mode = duplex::full;

  [[nodiscard]] double activation_seconds() const { return activation_bytes / bytes_per_second; }
  [[nodiscard]] double gradient_seconds() const { return gradient_bytes / bytes_per_second; }
};

/// The costs of a pipeline: every stage, every hop from a stage to the next, and the bytes that ranks may hold.
struct costs {
  std::vector<stage_costs> stages;
  std::vector<hop_costs> hops;       ///< by the stage before it; empty: transfers take no time
  std::vector<double> memory_bytes;  ///< by rank: the most it may hold; empty: no limit
};

/// A hop whose transfers take `seconds` each, both ways at once.
[[nodiscard]] inline hop_costs hop_of(double seconds) {
  hop_costs hop;
  hop.activation_bytes = seconds;
  hop.gradient_bytes = seconds;
  return hop;
}

/// `stages` equal stages: each has the durations given, and each hop takes `transfer` seconds.
[[nodiscard]] inline costs uniform_costs(int stages, double forward = 1, double input_gradient = 1,
                                         double weight_gradient = 1, double transfer = 0) {
  costs even;
  stage_costs one;
  one.forward_seconds = forward;
  one.input_gradient_seconds = input_gradient;
  one.weight_gradient_seconds = weight_gradient;
  even.stages.assign(static_cast<std::size_t>(stages < 0 ? 0 : stages), one);
  if (transfer > 0 && stages > 1) even.hops.assign(static_cast<std::size_t>(stages - 1), hop_of(transfer));
  return even;
}

/// The costs of `chunks` equal parts of what each rank does: durations and bytes divided by `chunks`, transfers as they
/// are. `ranks` holds what a whole rank costs; the hops of the result all cost what the first of `ranks` does.
[[nodiscard]] inline costs divided(const costs& ranks, int chunks) {
  costs parts;
  parts.memory_bytes = ranks.memory_bytes;
  const double n = chunks;
  for (int chunk = 0; chunk < chunks; ++chunk)
    for (stage_costs one : ranks.stages) {
      for (double* value :
           {&one.forward_seconds, &one.input_gradient_seconds, &one.weight_gradient_seconds, &one.activation_bytes,
            &one.weight_gradient_bytes, &one.state_bytes, &one.all_reduce_seconds, &one.optimizer_seconds})
        *value /= n;
      parts.stages.push_back(one);
    }
  if (!ranks.hops.empty()) parts.hops.assign(parts.stages.size() - 1, ranks.hops.front());
  return parts;
}

/// Throws std::invalid_argument, with the value and its place, unless there are costs for `stages` stages on `ranks`
/// ranks, all of them finite and none negative.
inline void check(const costs& cost, int stages, int ranks) {
  const auto count = [](std::size_t held, std::size_t needed, const char* kind, const char* per) {
    if (held != needed)
      throw std::invalid_argument("the costs hold " + std::to_string(held) + " " + kind + ", the pipeline needs " +
                                  std::to_string(needed) + ", one per " + per);
  };
  count(cost.stages.size(), static_cast<std::size_t>(stages), "stages", "stage");
  if (!cost.hops.empty()) count(cost.hops.size(), static_cast<std::size_t>(stages - 1), "hops", "pair of neighbours");
  if (!cost.memory_bytes.empty()) count(cost.memory_bytes.size(), static_cast<std::size_t>(ranks), "limits", "rank");
  const auto value = [](double number, const char* kind, const char* place, std::size_t index) {
    if (!(number >= 0) || !std::isfinite(number))
      throw std::invalid_argument(std::string(kind) + " of " + place + " " + std::to_string(index) + " is " +
                                  detail::short_number(number) + ": give a finite number, 0 or more");
  };
  for (std::size_t s = 0; s < cost.stages.size(); ++s) {
    const stage_costs& one = cost.stages[s];
    value(one.forward_seconds, "forward_seconds", "stage", s);
    value(one.input_gradient_seconds, "input_gradient_seconds", "stage", s);
    value(one.weight_gradient_seconds, "weight_gradient_seconds", "stage", s);
    value(one.activation_bytes, "activation_bytes", "stage", s);
    value(one.weight_gradient_bytes, "weight_gradient_bytes", "stage", s);
    value(one.input_bytes, "input_bytes", "stage", s);
    value(one.state_bytes, "state_bytes", "stage", s);
    value(one.all_reduce_seconds, "all_reduce_seconds", "stage", s);
    value(one.optimizer_seconds, "optimizer_seconds", "stage", s);
  }
  for (std::size_t h = 0; h < cost.hops.size(); ++h) {
    const hop_costs& hop = cost.hops[h];
    value(hop.latency_seconds, "latency_seconds", "hop", h);
    value(hop.activation_bytes, "activation_bytes", "hop", h);
    value(hop.gradient_bytes, "gradient_bytes", "hop", h);
    if (!(hop.bytes_per_second > 0))
      throw std::invalid_argument("bytes_per_second of hop " + std::to_string(h) + " is " +
                                  detail::short_number(hop.bytes_per_second) + ": give a number above 0");
  }
}

}  // namespace espalier::pipeline
