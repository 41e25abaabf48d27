// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/bound.hpp>
#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/durations.hpp>
#include <espalier/pipeline/evaluate.hpp>
#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/schedules/fill_gaps.hpp>
#include <espalier/pipeline/schedules/improve.hpp>
#include <espalier/pipeline/schedules/in_order.hpp>
#include <espalier/pipeline/schedules/interleaved.hpp>
#include <espalier/pipeline/schedules/one_f_one_b.hpp>
#include <espalier/pipeline/schedules/safe_greedy.hpp>
#include <espalier/pipeline/schedules/split_backward.hpp>
#include <espalier/pipeline/schedules/v_bounded.hpp>
#include <espalier/pipeline/schedules/zb_heuristic.hpp>
#include <espalier/pipeline/schedules/zb_v.hpp>
#include <espalier/pipeline/schedules/zero_bubble.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier::pipeline {

/// How stages are placed on ranks that have several: round the ranks (`loop_placement`), down and up (`v_placement`),
/// or down and up once with half of them on each way (`wide_v_placement`). With two stages per rank the last two are
/// one.
enum class stage_placement : std::uint8_t { any, loop, v, wide_v };

/// Returns the `rank_of` of stages that go down the ranks and back up once, with `chunks` / 2 neighbouring ones on each
/// rank in each direction. Throws std::invalid_argument unless `chunks` is even and both counts are positive.
[[nodiscard]] inline std::vector<int> wide_v_placement(int ranks, int chunks) {
  if (chunks % 2 != 0)
    throw std::invalid_argument("a V of " + std::to_string(chunks) +
                                " stages per rank: the number must be even, for as many go down as up");
  std::vector<int> rank_of;
  for (const int rank : v_placement(ranks, 2))
    for (int part = 0; part < chunks / 2; ++part) rank_of.push_back(rank);
  (void)loop_placement(ranks, chunks);
  return rank_of;
}

/// The budget and the choices of `automatic`.
struct automatic_options {
  int evaluations = 3000;  ///< of the local search, in all; of large pipelines fewer, so that it takes seconds
  stage_placement placement = stage_placement::any;
  std::vector<bool> recomputed;  ///< by stage; empty: none is
};

}  // namespace espalier::pipeline

namespace espalier::pipeline::detail {

// The best schedules so far, each made to fit the costs' memory.
class candidates {
 public:
  struct candidate {
    double makespan;
    schedule plan;
  };

  candidates(const costs& cost, const std::vector<bool>& recomputed) : cost_(cost), recomputed_(recomputed) {}

  // As it is where it fits, and with its gaps filled.
  void add(schedule plan) {
    plan.recomputed = recomputed_;
    for (const bool early : {false, true})
      for (const bool largest_gap : {false, true})
        add_fitting(fill_gaps(plan, cost_, limits_of(plan, cost_), {early, largest_gap}));
    add_fitting(std::move(plan));
  }

  void add_fitting(std::optional<schedule> plan) {
    if (!plan || plan->lists.empty() || !fits(*plan, cost_)) return;
    const double makespan = quick_makespan(*plan, cost_);
    if (makespan == evaluator::never) return;
    // Equals keep the order in which they were added.
    const auto place = std::upper_bound(best_.begin(), best_.end(), makespan,
                                        [](double value, const candidate& one) { return value < one.makespan; });
    best_.insert(place, {makespan, std::move(*plan)});
    if (best_.size() > kept) best_.pop_back();
  }

  [[nodiscard]] std::vector<candidate>& best() { return best_; }
  [[nodiscard]] bool optimal() const {
    return !best_.empty() && best_.front().makespan <= lower_bound(best_.front().plan, cost_) * (1 + 1e-9);
  }

  static constexpr std::size_t kept = 3;

 private:
  const costs& cost_;
  const std::vector<bool>& recomputed_;
  std::vector<candidate> best_;
};

inline void add_greedy(candidates& found, const std::vector<int>& rank_of, int ranks, int micro_batches,
                       const costs& cost, const std::vector<bool>& recomputed) {
  schedule empty;
  empty.micro_batches = micro_batches;
  empty.rank_of = rank_of;
  empty.recomputed = recomputed;
  empty.lists.resize(as_index(ranks));
  const bool several = rank_of.size() > as_index(ranks);
  for (const auto filled : {safe_greedy::gaps::that_fit, safe_greedy::gaps::largest, safe_greedy::gaps::every})
    for (const bool gradients_first : {true, false})
      for (const bool deepest_first : {true, false}) {
        if (!several && !deepest_first) continue;
        std::optional<schedule> plan =
            safe_greedy(empty, cost, limits_of(empty, cost), {gradients_first, deepest_first, filled}).run();
        if (plan) found.add_fitting(std::move(*plan));
      }
}

inline void add_loop(candidates& found, int ranks, int chunks, int micro_batches, const costs& cost,
                     const std::vector<bool>& recomputed) {
  if (chunks == 1) {
    found.add(zb_h1(ranks, micro_batches));
    found.add(zb_h2(ranks, micro_batches));
    found.add_fitting(zb_heuristic(micro_batches, cost, goal::makespan, recomputed));
    found.add(one_f_one_b(micro_batches, warm_up_pb(ranks)));
    found.add(one_f_one_b(micro_batches, least_warm_up(cost, micro_batches, recomputed)));
  } else {
    found.add(interleaved_zb(ranks, chunks, micro_batches));
    found.add(interleaved_1f1b(ranks, chunks, micro_batches));
  }
  add_greedy(found, loop_placement(ranks, chunks), ranks, micro_batches, cost, recomputed);
}

inline void add_wide_v(candidates& found, int ranks, int chunks, int micro_batches, const costs& cost,
                       const std::vector<bool>& recomputed) {
  add_greedy(found, wide_v_placement(ranks, chunks), ranks, micro_batches, cost, recomputed);
  found.add(cut_stages(zb_v(ranks, micro_batches), chunks / 2));
  const activation_limits limits = limits_of(cut_stages(zb_v(ranks, 1), chunks / 2), cost);
  for (int sum = 2; sum <= 6 && !found.optimal(); ++sum)
    for (schedule& plan : best_v(ranks, chunks / 2, micro_batches, cost, limits, recomputed, sum, candidates::kept))
      found.add_fitting(std::move(plan));
}

// Without limits of their own, ranks may hold as many micro-batches as in 1F1B the first one does without transfers;
// or, where transfers take time, as many as 1F1B starts with to hide them.
[[nodiscard]] inline std::vector<double> default_memory(const std::vector<int>& rank_of, int ranks, int micro_batches,
                                                        const costs& cost, const std::vector<bool>& recomputed) {
  const auto again = [&](std::size_t s) { return !recomputed.empty() && recomputed[s]; };
  std::vector<int> held(as_index(ranks), ranks);
  if (rank_of.size() == as_index(ranks)) {
    const std::vector<int> warm_up = warm_up_per_hop({cost.stages, cost.hops, {}}, micro_batches, recomputed);
    for (std::size_t r = 0; r < held.size(); ++r) held[r] = std::max(held[r], warm_up[r]);
  } else {
    std::vector<double> work(as_index(ranks), 0.0);
    for (std::size_t s = 0; s < rank_of.size(); ++s) work[as_index(rank_of[s])] += cost.stages[s].seconds();
    const double slowest = *std::max_element(work.begin(), work.end());
    double ways = 0;
    for (const hop_costs& hop : cost.hops)
      ways += hop.activation_seconds() + hop.gradient_seconds() + 2 * hop.latency_seconds;
    if (slowest > 0)
      for (int& count : held)
        count = static_cast<int>(std::min(ranks + std::ceil(ways / slowest - 1e-9), static_cast<double>(1 << 20)));
  }
  std::vector<double> memory(held.size(), 0.0);
  std::vector<double> reserve(held.size(), 0.0);
  for (std::size_t s = 0; s < rank_of.size(); ++s) {
    const std::size_t r = as_index(rank_of[s]);
    const stage_costs& one = cost.stages[s];
    const double bytes = again(s) ? one.input_bytes : std::max(one.activation_bytes, one.weight_gradient_bytes);
    memory[r] += one.state_bytes + std::min(held[r], micro_batches) * bytes;
    if (again(s)) reserve[r] = std::max(reserve[r], one.activation_bytes);
  }
  for (std::size_t r = 0; r < memory.size(); ++r) memory[r] += reserve[r];
  return memory;
}

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// The fastest schedule found for stages of any costs within the memory of each rank: the zero-bubble heuristic, the
/// known schedules with their gaps filled, and greedy ones, in all their settings; the best of them improved by local
/// search. The same arguments give the same schedule.
///
/// Where `cost.memory_bytes` is empty, a rank may hold as many micro-batches as 1F1B does on its first rank: one per
/// rank, and more only where transfers take time.
/// @pre one entry of `cost.stages` for each of `ranks` x `chunks` stages
/// Throws std::invalid_argument where a rank cannot hold a single micro-batch.
[[nodiscard]] inline schedule automatic(int ranks, int chunks, int micro_batches, const costs& cost,
                                        const automatic_options& options = {}) {
  detail::require_counts(ranks, chunks, micro_batches);
  check(cost, ranks * chunks, ranks);
  std::optional<detail::candidates::candidate> best;
  const auto done = [&] { return best && best->makespan <= lower_bound(best->plan, cost) * (1 + 1e-9); };
  const auto search = [&](stage_placement placed) {
    if (done()) return;
    costs limited = cost;
    const std::vector<int> rank_of = placed == stage_placement::loop ? loop_placement(ranks, chunks)
                                     : placed == stage_placement::v  ? v_placement(ranks, chunks)
                                                                     : wide_v_placement(ranks, chunks);
    if (cost.memory_bytes.empty())
      limited.memory_bytes = detail::default_memory(rank_of, ranks, micro_batches, cost, options.recomputed);
    detail::candidates found(limited, options.recomputed);
    if (placed == stage_placement::loop)
      detail::add_loop(found, ranks, chunks, micro_batches, limited, options.recomputed);
    else if (placed == stage_placement::v)
      detail::add_greedy(found, rank_of, ranks, micro_batches, limited, options.recomputed);
    else
      detail::add_wide_v(found, ranks, chunks, micro_batches, limited, options.recomputed);
    const int share = detail::affordable(options.evaluations, ranks, chunks, micro_batches) /
                      static_cast<int>(detail::candidates::kept);
    for (auto& one : found.best()) {
      if (done()) return;
      schedule improved = improve(detail::split_backwards(one.plan, limited), limited, share);
      const double makespan = quick_makespan(improved, limited);
      if (makespan < one.makespan) one = {makespan, std::move(improved)};
      if (!best || one.makespan < best->makespan) best = std::move(one);
    }
  };
  const bool any = options.placement == stage_placement::any;
  const bool v = options.placement == stage_placement::v;
  if (any || chunks == 1 || options.placement == stage_placement::loop) search(stage_placement::loop);
  const bool wide = options.placement == stage_placement::wide_v || (any && chunks % 2 == 0) || (v && chunks == 2);
  if (wide && chunks > 1) search(stage_placement::wide_v);
  if ((any || v) && chunks > 2) search(stage_placement::v);
  if (!best) {
    std::string limits;
    for (const double bytes : cost.memory_bytes) limits += (limits.empty() ? "" : ", ") + detail::short_number(bytes);
    throw std::invalid_argument("no schedule of " + std::to_string(ranks) + " ranks with " + std::to_string(chunks) +
                                " stages each fits into the memory of the ranks (" + limits +
                                " bytes): each has to hold its state and at least one micro-batch; use more ranks, "
                                "smaller micro-batches or recomputation");
  }
  best->plan.name = "auto";
  return std::move(best->plan);
}

}  // namespace espalier::pipeline
