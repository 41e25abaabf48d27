// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace espalier::pipeline::detail {

/// A stage and the hop after it, as `one_forward_one_backward` needs them. Seconds.
struct line_stage {
  double forward = 0;   ///< of one micro-batch
  double backward = 0;  ///< of one micro-batch
  double tail = 0;      ///< all-reduce and optimizer after the last backward, while other stages still work
  double transfer = 0;  ///< of an activation, or a gradient, in one direction of the hop after the stage
  double latency = 0;   ///< of that hop, on top
  int in_flight = 1;    ///< micro-batches that are forward but not backward

  [[nodiscard]] double seconds() const { return forward + backward; }
  [[nodiscard]] double hop() const { return transfer + latency; }
};

/// Sets how many micro-batches each stage has in flight: one more than the next stage, and as many more as pass
/// while an activation and its gradient travel.
inline void set_in_flight(std::vector<line_stage>& line, int micro_batches) {
  double longest = 0;
  for (const line_stage& one : line) longest = std::max(longest, one.seconds());
  double wanted = 1;
  for (std::size_t s = line.size(); s-- > 0;) {
    if (s + 1 < line.size()) wanted += 1 + (longest > 0 ? std::ceil(2 * line[s].hop() / longest - 1e-9) : 0.0);
    line[s].in_flight = static_cast<int>(std::min(wanted, static_cast<double>(micro_batches)));
  }
}

/// No stage can have more in flight than the one before it sends: lowers numbers to that, or, with `less` 1, to one
/// less where there are several. Neighbours with the same number take turns with one micro-batch instead of
/// overlapping.
inline void limit_in_flight(std::vector<line_stage>& line, int less = 0) {
  for (std::size_t s = 1; s < line.size(); ++s)
    line[s].in_flight = std::min(line[s].in_flight, std::max(1, line[s - 1].in_flight - less));
}

/// Seconds that no schedule of whole backwards goes below, as `latency_bound`, with hops whose directions are separate.
[[nodiscard]] inline double step_bound(const std::vector<line_stage>& line, int micro_batches) {
  double bound = 0;
  double fill = 0;
  double drain = 0;
  for (const line_stage& one : line) {
    drain = std::max(drain, one.tail);
    bound = std::max(bound, fill + micro_batches * one.seconds() + drain);
    fill += one.forward + one.hop();
    drain += one.backward + one.hop();
  }
  return bound;
}

/// The exact time of a step in which each stage, once it has its number of micro-batches in flight, alternates between
/// one backward and one forward. The same as `simulate` gives for that order of instructions, but in a
/// microsecond for a hundred of them: searches ask many thousand times.
class one_forward_one_backward {
 public:
  /// Infinity where the stages wait for one another in a circle.
  [[nodiscard]] double seconds(const std::vector<line_stage>& line, int micro_batches) {
    const auto count = static_cast<std::size_t>(micro_batches);
    states_.assign(line.size(), {});
    activation_.resize(line.size() * count);
    gradient_.resize(line.size() * count);
    for (bool more = true; more;) {
      more = false;
      for (std::size_t s = 0; s < line.size(); ++s) more = advance(line, s, micro_batches) || more;
      for (std::size_t s = line.size(); s-- > 0;) more = advance(line, s, micro_batches) || more;
    }
    double end = 0;
    for (std::size_t s = 0; s < line.size(); ++s) {
      if (states_[s].backwards < micro_batches) return std::numeric_limits<double>::infinity();
      end = std::max(end, states_[s].free + line[s].tail);
    }
    return end;
  }

 private:
  struct state {
    double free = 0;  ///< when the stage ends what it does
    double sent_activation = 0;
    double sent_gradient = 0;
    int forwards = 0;
    int backwards = 0;
  };

  /// Everything that stage `s` can do with what has been computed so far; whether there was anything.
  bool advance(const std::vector<line_stage>& line, std::size_t s, int micro_batches) {
    const auto count = static_cast<std::size_t>(micro_batches);
    const line_stage& one = line[s];
    state& own = states_[s];
    bool any = false;
    while (own.backwards < micro_batches) {
      if (own.forwards < std::min(micro_batches, own.backwards + one.in_flight)) {
        const auto k = static_cast<std::size_t>(own.forwards);
        if (s > 0) {
          if (states_[s - 1].forwards <= own.forwards) break;
          own.free = std::max(own.free, activation_[s * count + k]);
        }
        own.free += one.forward;
        if (s + 1 < line.size()) {
          own.sent_activation = std::max(own.sent_activation, own.free) + one.transfer;
          activation_[(s + 1) * count + k] = own.sent_activation + one.latency;
        }
        ++own.forwards;
      } else {
        const auto k = static_cast<std::size_t>(own.backwards);
        if (s + 1 < line.size()) {
          if (states_[s + 1].backwards <= own.backwards) break;
          own.free = std::max(own.free, gradient_[s * count + k]);
        }
        own.free += one.backward;
        if (s > 0) {
          own.sent_gradient = std::max(own.sent_gradient, own.free) + line[s - 1].transfer;
          gradient_[(s - 1) * count + k] = own.sent_gradient + line[s - 1].latency;
        }
        ++own.backwards;
      }
      any = true;
    }
    return any;
  }

  std::vector<state> states_;
  std::vector<double> activation_;  ///< by stage and micro-batch: when its input has come
  std::vector<double> gradient_;    ///< by stage and micro-batch: when the gradient of its output has come
};

}  // namespace espalier::pipeline::detail
