// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/durations.hpp>
#include <espalier/pipeline/evaluate.hpp>
#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/planner/assemble.hpp>
#include <espalier/pipeline/planner/candidate.hpp>
#include <espalier/pipeline/planner/chunks.hpp>
#include <espalier/pipeline/planner/devices.hpp>
#include <espalier/pipeline/planner/refine.hpp>
#include <espalier/pipeline/schedules/automatic.hpp>
#include <espalier/pipeline/schedules/interleaved.hpp>
#include <espalier/pipeline/schedules/v_bounded.hpp>
#include <espalier/pipeline/schedules/zb_v.hpp>
#include <espalier/pipeline/schedules/zero_bubble.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

/// A partition with the order in which its stages work.
struct ordered_partition {
  double seconds = std::numeric_limits<double>::infinity();
  candidate partition;
  schedule order;
};

/// Tries partitions with schedules other than 1F1B, and keeps the best of each kind of schedule. Those that take longer
/// than `limit` are not of interest.
class order_search {
 public:
  /// `merged` is `problem` with the runs of layers that end at `ends` taken together: chunks are cut between those.
  order_search(const planning_problem& problem, const planning_problem& merged, const std::vector<int>& ends,
               device_tree& tree, double limit)
      : problem_(problem), merged_(merged), ends_(ends), tree_(tree), limit_(limit) {}

  /// Schedules of one stage per group of devices.
  void try_on(const candidate& partition) {
    const int groups = static_cast<int>(partition.stages.size());
    if (groups < 2) return;
    offer(partition, loop_placement(groups, 1), [&] { return zb_h1(groups, partition.micro_batches); });
    offer(partition, loop_placement(groups, 1), [&] { return zb_h2(groups, partition.micro_batches); });
  }

  /// Schedules of several stages per group of devices.
  void try_chunks(int groups, int chunks, int micro_batches) {
    const std::vector<int> loop = loop_placement(groups, chunks);
    if (const auto partition = chunks_of_layers(loop, groups, micro_batches)) {
      offer(*partition, loop, [&] { return interleaved_1f1b(groups, chunks, micro_batches); });
      offer(*partition, loop, [&] { return interleaved_zb(groups, chunks, micro_batches); });
    }
    if (chunks != 2) return;
    const std::vector<int> down_and_up = v_placement(groups, chunks);
    if (const auto partition = chunks_of_layers(down_and_up, groups, micro_batches)) {
      const bool fitted = offer(*partition, down_and_up, [&] { return zb_v(groups, micro_batches); });
      if (!fitted)
        offer(*partition, down_and_up,
              [&] { return v_half(groups, micro_batches, simulated_costs(problem_, *partition)); });
    }
  }

  /// The automatic schedule for `partition`, and for those with and without chunks that are fastest with the others.
  /// Small ones are searched longer, large ones not at all.
  void try_automatic(const candidate& partition) {
    if (partition.stages.size() > 1) search_order(partition, static_cast<int>(partition.stages.size()));
    const std::map<std::string, ordered_partition> known = best_;
    for (const bool chunked : {false, true}) {
      const ordered_partition* most = nullptr;
      for (const auto& [name, one] : known)
        if ((one.order.stages() > one.order.ranks()) == chunked && (most == nullptr || one.seconds < most->seconds))
          most = &one;
      if (most != nullptr) search_order(most->partition, most->order.ranks());
    }
  }

  /// Returns the best partition of each schedule, by the schedule's name.
  [[nodiscard]] const std::map<std::string, ordered_partition>& best() const { return best_; }

 private:
  [[nodiscard]] std::optional<candidate> chunks_of_layers(const std::vector<int>& rank_of, int groups,
                                                          int micro_batches) {
    auto partition = chunked_partition(merged_, tree_, rank_of, groups, micro_batches, kept_);
    if (partition) *partition = unmerged(std::move(*partition), ends_);
    return partition;
  }

  /// False where the order needs more memory than there is.
  template <class Generate>
  bool offer(const candidate& partition, const std::vector<int>& rank_of, const Generate& generate) {
    costs cost = simulated_costs(problem_, partition);
    if (least_seconds(partition, rank_of, cost) >= limit_) return true;
    const double memory = problem_.machines().memory_bytes;
    const auto groups = static_cast<std::size_t>(*std::max_element(rank_of.begin(), rank_of.end())) + 1;
    if (std::isfinite(memory)) cost.memory_bytes.assign(groups, memory);
    schedule order = generate();
    order.recomputed.assign(partition.stages.size(), false);
    if (!fits(order, cost)) {
      order.recomputed.assign(partition.stages.size(), problem_.asked().recompute);
      if (!fits(order, cost)) return false;
    }
    const evaluator::outcome result = evaluator(order, cost)(order.lists);
    if (!result.complete || !(result.makespan < limit_)) return true;
    ordered_partition& best = best_[order.name];
    if (result.makespan < best.seconds * (1 - 1e-12)) best = {result.makespan, partition, std::move(order)};
    return true;
  }

  void search_order(const candidate& partition, int groups) {
    const int stages = static_cast<int>(partition.stages.size());
    if (stages * partition.micro_batches > most_searched) return;
    automatic_options spend;
    spend.evaluations = std::clamp(evaluated_instructions / (stages * partition.micro_batches), 10, 1000);
    // Which partition it is says how chunks are placed: as a V, the one in the middle stays where it is.
    const bool v =
        stages > groups && partition.stages[static_cast<std::size_t>(groups)].devices->transfer.per_byte == 0;
    spend.placement = v ? stage_placement::v : stage_placement::loop;
    const std::vector<int> rank_of = v ? v_placement(groups, stages / groups) : loop_placement(groups, stages / groups);
    costs cost = simulated_costs(problem_, partition);
    cost.memory_bytes.assign(static_cast<std::size_t>(groups), problem_.machines().memory_bytes);
    if (!std::isfinite(problem_.machines().memory_bytes)) {  // as many in flight as with ZB-H2
      cost.memory_bytes.assign(static_cast<std::size_t>(groups), 0);
      for (std::size_t s = 0; s < rank_of.size(); ++s)
        cost.memory_bytes[static_cast<std::size_t>(rank_of[s])] +=
            cost.stages[s].state_bytes + 2 * groups * cost.stages[s].activation_bytes;
    }
    try {
      offer(partition, rank_of,
            [&] { return automatic(groups, stages / groups, partition.micro_batches, cost, spend); });
    } catch (const std::invalid_argument&) {
      return;  // nothing fits without recomputation
    }
  }

  /// Returns a lower bound of the seconds of any order of these stages: the work of the busiest group.
  [[nodiscard]] static double least_seconds(const candidate& partition, const std::vector<int>& rank_of,
                                            const costs& cost) {
    std::vector<double> work(rank_of.size(), 0);
    for (std::size_t s = 0; s < rank_of.size(); ++s)
      work[static_cast<std::size_t>(rank_of[s])] += partition.micro_batches * cost.stages[s].seconds();
    return *std::max_element(work.begin(), work.end());
  }

  static constexpr int evaluated_instructions = 100000;
  static constexpr int most_searched = 400;  // micro-batches of stages: of more, the automatic schedule takes seconds

  const planning_problem& problem_;
  const planning_problem& merged_;
  const std::vector<int>& ends_;
  device_tree& tree_;
  double limit_;
  std::deque<stage_devices> kept_;  // chunks know other transfers than the group's first stage
  std::map<std::string, ordered_partition> best_;
};

}  // namespace espalier::pipeline::detail
