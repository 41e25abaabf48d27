// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/durations.hpp>
#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/schedules/automatic.hpp>
#include <espalier/pipeline/schedules/dualpipe_v.hpp>
#include <espalier/pipeline/schedules/gpipe.hpp>
#include <espalier/pipeline/schedules/interleaved.hpp>
#include <espalier/pipeline/schedules/one_f_one_b.hpp>
#include <espalier/pipeline/schedules/v_bounded.hpp>
#include <espalier/pipeline/schedules/zb_v.hpp>
#include <espalier/pipeline/schedules/zero_bubble.hpp>

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::pipeline {

/// How many stages a rank has in the schedules of a name: one, two, or as many as one likes.
enum class chunk_count { one, two, any };

/// The numbers and costs that a schedule is made for: see `make_schedule`.
struct schedule_order {
  int ranks;
  int chunks;
  int micro_batches;
  const costs& cost;
  const std::vector<bool>& recomputed;
};

/// A schedule that can be asked for by name.
struct known_schedule {
  std::string_view name;
  chunk_count chunks;
  std::string_view summary;
  schedule (*make)(const schedule_order& of);
};

namespace detail {
/// 1F1B that starts with fewer micro-batches where memory allows no more.
[[nodiscard]] inline schedule limited_1f1b(const std::vector<int>& warm_up, const schedule_order& of) {
  return one_f_one_b(of.micro_batches, within_memory(warm_up, of.cost, of.recomputed));
}
}  // namespace detail

/// All of them, simplest first.
inline constexpr std::array<known_schedule, 13> known_schedules{{
    {"gpipe", chunk_count::one, "all forwards, then all backwards",
     [](const schedule_order& of) { return gpipe(of.ranks, of.micro_batches); }},
    {"1f1b_PA", chunk_count::one, "DAPPLE, policy PA: early backwards, rank i starts with S - i micro-batches",
     [](const schedule_order& of) { return detail::limited_1f1b(warm_up_pa(of.ranks), of); }},
    {"1f1b_PB", chunk_count::one, "DAPPLE, policy PB: rank i starts with 2 (S - i) - 1 micro-batches",
     [](const schedule_order& of) { return detail::limited_1f1b(warm_up_pb(of.ranks), of); }},
    {"1f1b", chunk_count::one, "the same, each rank starting with what its transfers need",
     [](const schedule_order& of) {
       return one_f_one_b(of.micro_batches, least_warm_up(of.cost, of.micro_batches, of.recomputed));
     }},
    {"interleaved_1f1b", chunk_count::any, "1F1B with several stages on each rank",
     [](const schedule_order& of) { return interleaved_1f1b(of.ranks, of.chunks, of.micro_batches); }},
    {"zb_h1", chunk_count::one, "zero bubble: weight gradients fill gaps, memory as 1F1B",
     [](const schedule_order& of) { return zb_h1(of.ranks, of.micro_batches); }},
    {"zb_h2", chunk_count::one, "zero bubble: no rank waits, twice the memory",
     [](const schedule_order& of) { return zb_h2(of.ranks, of.micro_batches); }},
    {"zb_v", chunk_count::two, "zero bubble: no rank waits, memory as 1F1B; stages placed as a V",
     [](const schedule_order& of) { return zb_v(of.ranks, of.micro_batches); }},
    {"interleaved_zb", chunk_count::any, "zero bubble with several stages on each rank",
     [](const schedule_order& of) { return interleaved_zb(of.ranks, of.chunks, of.micro_batches); }},
    {"v_half", chunk_count::two, "half the memory of 1F1B and a smaller bubble; stages placed as a V",
     [](const schedule_order& of) { return v_half(of.ranks, of.micro_batches, of.cost); }},
    {"v_min", chunk_count::two, "a third of the memory of 1F1B; stages placed as a V",
     [](const schedule_order& of) { return v_min(of.ranks, of.micro_batches, of.cost); }},
    {"dualpipe_v", chunk_count::two, "DualPipeV, forwards and backwards not overlapped",
     [](const schedule_order& of) { return dualpipe_v(of.ranks, of.micro_batches); }},
    {"auto", chunk_count::any, "the fastest that is found within the memory limit",
     [](const schedule_order& of) {
       automatic_options options;
       options.recomputed = of.recomputed;
       return automatic(of.ranks, of.chunks, of.micro_batches, of.cost, options);
     }},
}};

/// The one with this name, which may have a remark in brackets after it.
/// Throws std::invalid_argument that lists all names.
[[nodiscard]] inline const known_schedule& find_schedule(std::string_view name) {
  const std::string_view bare = name.substr(0, name.find('('));
  std::string all;
  for (const known_schedule& one : known_schedules) {
    if (one.name == bare) return one;
    all += (all.empty() ? "" : ", ") + std::string(one.name);
  }
  throw std::invalid_argument("there is no schedule \"" + std::string(name) + "\"; there are " + all);
}

/// How many stages its ranks have where `asked` are asked for; 0: nothing is asked for.
/// Throws std::invalid_argument where it cannot have as many.
[[nodiscard]] inline int chunks_of(const known_schedule& kind, int asked) {
  const int fixed = kind.chunks == chunk_count::one ? 1 : 2;
  if (asked == 0) return kind.name == "auto" ? 1 : fixed;
  if (kind.chunks != chunk_count::any && asked != fixed)
    throw std::invalid_argument(std::string(kind.name) + " has " + std::to_string(fixed) + " stage" +
                                (fixed == 1 ? "" : "s") + " per rank, not " + std::to_string(asked));
  return asked;
}

/// The schedule of that name for stages of these costs; `recomputed` says of each stage whether only its input is kept
/// (empty: of none). Policies of 1F1B start with fewer micro-batches where memory allows no more.
/// @pre one entry of `cost.stages` for each of `ranks` x `chunks` stages, in the order of the pipeline
/// @post every F comes before its B and every B before its W, each once, on the rank of its stage
/// Throws std::invalid_argument where the schedule does not fit into `cost.memory_bytes`, or does not exist.
[[nodiscard]] inline schedule make_schedule(std::string_view name, int ranks, int chunks, int micro_batches,
                                            const costs& cost, const std::vector<bool>& recomputed = {}) {
  const known_schedule& kind = find_schedule(name);
  detail::require_counts(ranks, chunks, micro_batches);
  (void)chunks_of(kind, chunks);
  check(cost, ranks * chunks, ranks);
  schedule plan = kind.make({ranks, chunks, micro_batches, cost, recomputed});
  plan.name = kind.name;
  plan.recomputed = recomputed;
  if (fits(plan, cost)) return plan;
  const std::vector<double> peaks = peak_bytes(plan, cost);
  for (std::size_t r = 0; r < peaks.size(); ++r)
    if (peaks[r] > cost.memory_bytes[r] * (1 + 1e-9))
      throw std::invalid_argument(plan.name + " holds " + detail::short_number(peaks[r]) + " bytes on rank " +
                                  std::to_string(r) + ", the limit is " + detail::short_number(cost.memory_bytes[r]) +
                                  ": use auto, which keeps to it, or one of the schedules that hold less");
  return plan;
}

}  // namespace espalier::pipeline
