// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/pipeline/cluster.hpp>
#include <espalier/pipeline/plan.hpp>
#include <espalier/pipeline/planner/assemble.hpp>
#include <espalier/pipeline/planner/beam.hpp>
#include <espalier/pipeline/planner/candidate.hpp>
#include <espalier/pipeline/planner/devices.hpp>
#include <espalier/pipeline/planner/exchange.hpp>
#include <espalier/pipeline/planner/exhaustive.hpp>
#include <espalier/pipeline/planner/families.hpp>
#include <espalier/pipeline/planner/orders.hpp>
#include <espalier/pipeline/planner/problem.hpp>
#include <espalier/pipeline/planner/reasons.hpp>
#include <espalier/pipeline/planner/refine.hpp>
#include <espalier/pipeline/planner/uniform.hpp>
#include <espalier/pipeline/profile.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

/// The search for a plan, step by step.
class planner {
 public:
  planner(const profile& model, const cluster& machines, const planner_options& asked)
      : problem_(model, machines, asked),
        ends_(blocks_of(model, most_blocks)),
        merged_(with_layers_merged(model, ends_), machines, asked),
        tree_(machines),
        evaluate_(problem_),
        evaluate_merged_(merged_),
        counts_(some_counts(problem_.micro_batch_counts(false))) {}

  planning run() {
    search();
    if (families_.all().empty()) {  // smaller micro-batches are slower, but they may fit
      counts_ = some_counts(problem_.micro_batch_counts(true));
      search();
    }
    refine();
    std::vector<plan> plans = assemble();
    planning result;
    result.partitions = partitions_;
    result.evaluated = evaluate_.evaluated() + evaluate_merged_.evaluated();
    if (plans.empty()) throw std::invalid_argument(nothing_fits());
    // Of plans that are equal up to rounding, the simpler one is first, whatever the compiler does.
    const auto better = [](const plan& a, const plan& b) {
      const auto key = [](const plan& one) {
        return std::tuple(without_rounding(one.times.step), one.stages.size(), one.schedule_name != "1f1b",
                          one.schedule_name, one.micro_batches);
      };
      return key(a) < key(b);
    };
    std::sort(plans.begin(), plans.end(), better);
    result.best = plans.front();
    name_others(std::move(plans), result);
    return result;
  }

 private:
  static constexpr int most_blocks = 64;          // cuts that the search looks at
  static constexpr int exhaustive_stages = 3;     // partitions of so many stages are all looked at
  static constexpr std::size_t most_counts = 16;  // numbers of micro-batches

  /// Rounds to eleven digits.
  static double without_rounding(double seconds) {
    int exponent = 0;
    const double fraction = std::frexp(seconds, &exponent);
    return std::ldexp(std::round(std::ldexp(fraction, 36)), exponent - 36);
  }

  /// Returns all counts or, if there are very many, `most_counts` of them at even distances, with the first and the
  /// last.
  static std::vector<int> some_counts(const std::vector<int>& all) {
    if (all.size() <= most_counts) return all;
    std::vector<int> some;
    for (std::size_t k = 0; k < most_counts; ++k) some.push_back(all[k * (all.size() - 1) / (most_counts - 1)]);
    return some;
  }

  void search() {
    const int most = merged_.most_stages();
    for (const int count : counts_)
      for (int stages = 1; stages <= most; ++stages)
        for (const placement_policy policy :
             {placement_policy::gaps_first, placement_policy::fresh_first, placement_policy::scatter_first})
          if (const auto partition = even_partition(merged_, tree_, stages, count, policy))
            families_.offer(evaluate_merged_, *partition);
    exhaustive_search all(merged_, tree_, evaluate_merged_, families_);
    for (int stages = 1; stages <= std::min(most, exhaustive_stages); ++stages)
      for (std::size_t k = counts_.size(); k-- > 0;) all.run(stages, counts_[k]);
    beam_search more(merged_, tree_, evaluate_merged_, families_);
    if (most > exhaustive_stages)
      for (std::size_t k = counts_.size(); k-- > 0;) more.run(exhaustive_stages + 1, most, counts_[k]);
    partitions_ = all.partitions() + more.partitions();
  }

  /// Partitions of the layers themselves, from those of merged ones; of many stages, which were not all looked at, with
  /// their cuts moved to where they are best.
  void refine() {
    const bool merged = ends_.size() < static_cast<std::size_t>(problem_.layers());
    const int reach = std::max(1, problem_.layers() / static_cast<int>(ends_.size()));
    const double limit = 1.5 * families_.best_seconds();
    for (const auto& [stages, kept] : families_.all()) {
      if (kept.back().seconds > limit && stages > exhaustive_stages) continue;
      for (std::size_t k = 0; k < kept.size(); ++k) {
        candidate partition = unmerged(kept[k].partition, ends_);
        if (!tree_.hosts().alike()) {
          partition = device_exchange(std::move(partition), problem_.machines(), tree_, evaluate_).run();
          move_cuts(partition, merged ? 2 * reach : 1, evaluate_, refined_);
        } else if ((merged || stages > exhaustive_stages) && k + 1 == kept.size())
          move_cuts(partition, merged ? 2 * reach : 1, evaluate_, refined_);
        else
          refined_.offer(evaluate_, partition);
      }
    }
  }

  std::vector<plan> assemble() {
    std::vector<plan> plans;
    std::vector<families::member> leaders;  // the best of each number of stages
    std::vector<families::member> followers;
    for (const auto& [stages, kept] : refined_.all()) {
      const candidate& partition = kept.back().partition;
      const partition_step best = evaluate_(partition);
      plans.push_back(assembled(problem_, tree_, partition,
                                alternating_schedule(best.line, best.recomputed, partition.micro_batches)));
      leaders.push_back(kept.back());
      followers.insert(followers.end(), kept.begin(), kept.end() - 1);
    }
    if (!problem_.asked().all_schedules || leaders.empty()) return plans;
    const auto faster = [](const families::member& a, const families::member& b) { return a.seconds < b.seconds; };
    std::sort(leaders.begin(), leaders.end(), faster);
    std::sort(followers.begin(), followers.end(), faster);
    constexpr double slack = 1.2;  // other schedules do not make up for more
    constexpr std::size_t tried = 16;
    order_search orders(problem_, merged_, ends_, tree_, slack * leaders.front().seconds);
    for (const auto* some : {&leaders, &followers})
      for (std::size_t k = 0; k < std::min(tried, some->size()); ++k) orders.try_on((*some)[k].partition);
    const int devices = problem_.machines().devices();
    const int asked_for = problem_.asked().most_stages;
    const int most_stages = asked_for > 0 ? std::min(asked_for, problem_.layers()) : problem_.layers();
    for (int groups = 2; groups <= devices; ++groups) {
      if (devices % groups != 0) continue;
      for (const int chunks : {2, 4})
        for (const int count : counts_)
          if (groups * chunks <= std::min(most_stages, merged_.layers())) orders.try_chunks(groups, chunks, count);
    }
    orders.try_automatic(leaders.front().partition);
    for (const auto& [name, best] : orders.best()) {
      plan made = assembled(problem_, tree_, best.partition, best.order);
      if (made.times.step < std::numeric_limits<double>::infinity()) plans.push_back(std::move(made));
    }
    return plans;
  }

  void name_others(std::vector<plan> plans, planning& result) const {
    const auto room = static_cast<std::size_t>(problem_.asked().alternatives);
    const std::string chosen = plan_name(result.best);
    bool alone = result.best.stages.size() == 1;
    for (plan& one : plans) {
      std::string name = plan_name(one);
      const bool data_parallel = one.stages.size() == 1;
      if (name == chosen && one.micro_batches == result.best.micro_batches) continue;
      // Data parallelism is always named: it is the usual choice without a plan.
      if (result.others.size() + (alone || data_parallel ? 0 : 1) >= room) continue;
      alone = alone || data_parallel;
      std::string reason = reason_for(one.times, result.best.times);
      result.others.push_back({std::move(name), true, std::move(one), std::move(reason)});
    }
    if (!alone && room > 0) result.others.push_back({"data parallel", false, {}, too_large()});
  }

  /// How much a device of a data parallel plan needs at least.
  [[nodiscard]] std::string too_large() const {
    double least = std::numeric_limits<double>::infinity();
    for (const int count : counts_)
      least = std::min(least, problem_.least_bytes(0, problem_.layers(), count, problem_.machines().devices()));
    return "needs " + gigabytes(least) + " on each device, which has " + gigabytes(problem_.machines().memory_bytes);
  }

  [[nodiscard]] std::string nothing_fits() const {
    const int stages = problem_.most_stages();
    const int count = counts_.back();
    const int replicas = problem_.machines().devices() / stages;
    const auto bytes = [&](int, int first, int last) { return problem_.least_bytes(first, last, count, replicas); };
    const auto none = [](int) { return 0.0; };
    const std::vector<int> ends = even_cuts(problem_.layers(), stages, bytes, none);
    double most = 0;
    for (std::size_t s = 0; s < ends.size(); ++s) most = std::max(most, bytes(0, s == 0 ? 0 : ends[s - 1], ends[s]));
    return "no plan fits: a device has " + gigabytes(problem_.machines().memory_bytes) + ", and even " +
           std::to_string(stages) + (stages == 1 ? " stage" : " stages") + " with a micro-batch of " +
           std::to_string(problem_.asked().global_batch / count) + " samples need up to " + gigabytes(most) +
           ". Use devices with more memory, more of them, or an optimizer with less state";
  }

  planning_problem problem_;
  std::vector<int> ends_;
  planning_problem merged_;
  device_tree tree_;
  partition_evaluator evaluate_;
  partition_evaluator evaluate_merged_;
  std::vector<int> counts_;
  families families_;
  families refined_;
  long long partitions_ = 0;
};

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// Plans a training step: which layers form a stage, which devices compute it, into how many micro-batches the batch is
/// split, in which order the stages work, and what is computed twice to save memory.
///
/// All partitions into one, two and three stages are looked at (of a model of up to 64 layers, with 1F1B), those of
/// more by a beam search; the best are tried with every schedule. Plain data parallelism is the plan of one stage.
/// Memory is a hard limit. The same question has the same answer everywhere. Throws std::invalid_argument for unusable
/// models, machines and options, and where no plan fits.
[[nodiscard]] inline planning make_plan(const profile& model, const cluster& machines, const planner_options& asked) {
  using clock = std::chrono::steady_clock;
  const clock::time_point start = clock::now();
  planning result = detail::planner(model, machines, asked).run();
  result.seconds = std::chrono::duration<double>(clock::now() - start).count();
  return result;
}

}  // namespace espalier::pipeline
