// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/bound.hpp>
#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/durations.hpp>
#include <espalier/pipeline/evaluate.hpp>
#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/schedules/fill_gaps.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

// Local search on lists of computations. A schedule gets shorter only if the chain of instructions that ends last gets
// shorter, and of it only what waits for its rank can be moved: such an instruction is put before others of its rank,
// or the W before it after others. A change is kept if it makes nothing worse.
class local_search {
 public:
  local_search(schedule plan, const costs& cost, std::uint64_t seed)
      : plan_(std::move(plan)), cost_(cost), limits_(limits_of(plan_, cost)), timing_(plan_, cost), random_(seed) {
    current_ = timing_(plan_.lists);
    find_chain();
  }

  void run(int evaluations) {
    const double bound = lower_bound(plan_, cost_) * (1 + 1e-9);
    int failures = 0;
    while (evaluations > 0 && current_.makespan > bound && !chain_.empty() && failures < 50 * 64) {
      const place where = chain_[below(chain_.size())];
      auto& list = plan_.lists[as_index(where.rank)];
      const std::size_t at = as_index(where.position);
      const std::size_t far = 1 + below(below(4) == 0 ? 16 : 3);
      // The chain's instruction waits for the one before it: that one is moved later, or the chain's own one earlier.
      const bool later = below(2) == 0;
      const std::size_t from = later ? at - 1 : at;
      const std::size_t to = later ? std::min(list.size() - 1, from + far) : from - std::min(from, far);
      if (from == to || !keeps_order(list, from, to)) {
        ++failures;  // of chains that can be changed nowhere
        continue;
      }
      failures = 0;
      --evaluations;
      shift(list, from, to);
      if (!accept(as_index(where.rank))) shift(list, to, from);
    }
  }

  [[nodiscard]] schedule take() { return std::move(plan_); }
  [[nodiscard]] double makespan() const { return current_.makespan; }

 private:
  using place = evaluator::place;

  [[nodiscard]] std::size_t below(std::size_t count) { return static_cast<std::size_t>(random_() % count); }

  // Micro-batches of one stage stay in order, and F, B, W of one micro-batch do.
  [[nodiscard]] static bool keeps_order(const std::vector<instruction>& list, std::size_t from, std::size_t to) {
    const instruction& moved = list[from];
    const std::size_t first = from < to ? from + 1 : to;
    const std::size_t last = from < to ? to : from - 1;
    for (std::size_t i = first; i <= last; ++i)
      if (list[i].stage == moved.stage && (list[i].kind == moved.kind || list[i].micro_batch == moved.micro_batch))
        return false;
    return true;
  }

  static void shift(std::vector<instruction>& list, std::size_t from, std::size_t to) {
    const auto at = [&](std::size_t i) { return list.begin() + static_cast<std::ptrdiff_t>(i); };
    if (from < to)
      std::rotate(at(from), at(from) + 1, at(to) + 1);
    else
      std::rotate(at(to), at(from), at(from) + 1);
  }

  [[nodiscard]] bool accept(std::size_t r) {
    if (peak_of(plan_.lists[r], plan_, cost_) > limits_[r]) return false;
    const evaluator::outcome next = timing_(plan_.lists);
    if (!next.complete || next.makespan > current_.makespan) return false;
    if (next.makespan == current_.makespan && next.sum_of_ends > current_.sum_of_ends) return false;
    current_ = next;
    find_chain();
    return true;
  }

  // Back from the last end: what each instruction started after, on its rank or another one.
  void find_chain() {
    chain_.clear();
    if (!current_.complete) return;
    place where{-1, 0};
    double latest = -1;
    for (std::size_t r = 0; r < plan_.lists.size(); ++r) {
      if (plan_.lists[r].empty()) continue;
      const place last{static_cast<int>(r), static_cast<int>(plan_.lists[r].size()) - 1};
      const double end = timing_.start(last) + timing_.seconds(plan_.lists[r].back());
      if (end <= latest) continue;
      latest = end;
      where = last;
    }
    while (where.rank >= 0) {
      const auto& list = plan_.lists[as_index(where.rank)];
      const std::size_t at = as_index(where.position);
      const bool rank_first =
          at > 0 &&
          timing_.start({where.rank, where.position - 1}) + timing_.seconds(list[at - 1]) >= timing_.start(where);
      if (rank_first) {
        chain_.push_back(where);
        --where.position;
      } else if (list[at].kind == action::forward && list[at].stage == 0) {
        break;
      } else {
        where = timing_.source(list[at]);
      }
    }
  }

  schedule plan_;
  const costs& cost_;
  activation_limits limits_;
  evaluator timing_;
  std::mt19937_64 random_;
  evaluator::outcome current_;
  std::vector<place> chain_;
};

/// How many of `evaluations` a search may do so that large pipelines, too, take seconds.
[[nodiscard]] inline int affordable(int evaluations, int ranks, int chunks, int micro_batches) {
  constexpr double most_instructions = 3e7;
  return static_cast<int>(std::min<double>(evaluations, most_instructions / (3.0 * ranks * chunks * micro_batches)));
}

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// The schedule after a local search: never slower, within `cost.memory_bytes`, the same for the same arguments. It
/// ends where the lower bound is met, or after so many evaluations, which take all links for full duplex.
/// @pre only_computations(plan), fits(plan, cost)
[[nodiscard]] inline schedule improve(schedule plan, const costs& cost, int evaluations, std::uint64_t seed = 1) {
  detail::local_search search(std::move(plan), cost, seed);
  search.run(evaluations);
  return search.take();
}

}  // namespace espalier::pipeline
