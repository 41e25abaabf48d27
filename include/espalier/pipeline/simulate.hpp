// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/durations.hpp>
#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/transfers.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier::pipeline {

/// An instruction and when it ran. Of a send: from the link's service to the arrival; of a receive: the wait; of an
/// all-reduce: while it ran in the background.
struct timed {
  instruction step;
  double start = 0;
  double end = 0;
};

/// The course of a schedule on given costs, in their units. All ranks start at 0.
struct simulation {
  bool complete = false;                      ///< false: no rank can go on; the rest says how far they came
  std::vector<std::string> waiting;           ///< why each rank that cannot go on waits, one sentence each
  double makespan = 0;                        ///< when the last rank ends, its optimizer step included
  double bubble = 0;                          ///< makespan - the busiest rank's `busy`
  double span_bubble = 0;                     ///< the longest span - the busiest rank's `busy`
  std::vector<double> span;                   ///< by rank: from the start of its first computation to its end
  std::vector<double> busy;                   ///< by rank: seconds of its computations and steps
  std::vector<double> peak_bytes;             ///< by rank: state and activations
  std::vector<double> peak_activation_bytes;  ///< by rank: activations alone
  std::vector<std::vector<timed>> timeline;   ///< by rank, in the order of its list
};

}  // namespace espalier::pipeline

namespace espalier::pipeline::detail {

// Discrete events. A rank works through its list and stops only to compute and to wait; sends are handed to the link
// between the two ranks, which carries one transfer at a time (in each direction, where it is full duplex) in the order
// in which they were handed over. Of those handed over at the same moment gradients go first: what waits for a gradient
// frees memory.
class pipeline_simulator {
 public:
  pipeline_simulator(const schedule& plan, const costs& cost) : plan_(plan), cost_(cost) {
    const auto cells = static_cast<std::size_t>(plan.stages()) * static_cast<std::size_t>(plan.micro_batches);
    for (auto* times : {&forward_done_, &gradient_done_, &activation_here_, &gradient_here_})
      times->assign(cells, never);
    reduced_.assign(plan.rank_of.size(), never);
    ranks_.resize(plan.lists.size());
    for (const auto& list : plan.lists) result_.timeline.emplace_back().reserve(list.size());
    prepare_links();
  }

  simulation run() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) post(0, wake_rank, static_cast<int>(r));
    while (!events_.empty()) {
      std::pop_heap(events_.begin(), events_.end(), later{});
      const event next = events_.back();
      events_.pop_back();
      now_ = next.time;
      if (next.kind == wake_rank)
        proceed(static_cast<std::size_t>(next.index));
      else
        serve(static_cast<std::size_t>(next.index));
    }
    return finish();
  }

 private:
  static constexpr double never = std::numeric_limits<double>::infinity();
  static constexpr int wake_rank = 0;
  static constexpr int serve_link = 1;  // after all ranks of the same moment

  struct event {
    double time;
    int kind;
    int index;
    std::int64_t number;  // of creation: ties are settled the same way everywhere
  };
  struct later {
    bool operator()(const event& a, const event& b) const {
      if (a.time != b.time) return a.time > b.time;
      return a.kind != b.kind ? a.kind > b.kind : a.number > b.number;
    }
  };
  struct rank_state {
    std::size_t next = 0;
    double first_start = never;
    double end = 0;
    double busy = 0;
    double reduce_free = 0;  // all-reduces of a rank run one after another
    std::size_t awaited = no_cell;
    action awaited_kind = action::receive_activation;
  };
  struct request {
    double time;
    instruction step;
    std::size_t rank;  // of the sender, and where its timeline has the send
    std::size_t entry;
  };
  struct link {
    double free = 0;
    std::vector<request> queue;
    std::size_t served = 0;  // of the queue
  };
  static constexpr std::size_t no_cell = std::numeric_limits<std::size_t>::max();

  [[nodiscard]] std::size_t cell(int stage, int micro_batch) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(plan_.micro_batches) +
           static_cast<std::size_t>(micro_batch);
  }

  void post(double time, int kind, int index) {
    events_.push_back({time, kind, index, posted_++});
    std::push_heap(events_.begin(), events_.end(), later{});
  }

  void prepare_links() {
    std::map<std::pair<int, int>, int> known;
    const auto number = [&](int from, int to) {
      const auto [place, added] = known.emplace(std::pair{from, to}, static_cast<int>(links_.size()));
      if (added) links_.emplace_back();
      return place->second;
    };
    for (int s = 0; s + 1 < plan_.stages(); ++s) {
      const int from = plan_.rank_of[static_cast<std::size_t>(s)];
      const int to = plan_.rank_of[static_cast<std::size_t>(s) + 1];
      const bool half = !cost_.hops.empty() && cost_.hops[static_cast<std::size_t>(s)].mode == duplex::half;
      down_.push_back(half ? number(std::min(from, to), std::max(from, to)) : number(from, to));
      up_.push_back(half ? down_.back() : number(to, from));
    }
  }

  void record(std::size_t r, const instruction& step, double start, double end) {
    result_.timeline[r].push_back({step, start, end});
  }

  // Executes what rank `r` can do at this moment; returns with an event posted, or with the rank waiting, or at its
  // end.
  void proceed(std::size_t r) {
    rank_state& rank = ranks_[r];
    const auto& list = plan_.lists[r];
    while (rank.next < list.size()) {
      const instruction& step = list[rank.next];
      switch (step.kind) {
        case action::forward:
        case action::input_gradient:
        case action::weight_gradient:
        case action::backward:
          if (!can_compute(step)) return;
          if (compute(r, step)) return;
          break;
        case action::send_activation:
        case action::send_gradient:
          if (!can_send(step)) return;
          send(r, step);
          break;
        case action::receive_activation:
        case action::receive_gradient:
          if (!receive(r, step)) return;
          break;
        case action::all_reduce: {
          const double seconds = cost_.stages[static_cast<std::size_t>(step.stage)].all_reduce_seconds;
          const double start = std::max(now_, rank.reduce_free);
          rank.reduce_free = start + seconds;
          reduced_[static_cast<std::size_t>(step.stage)] = rank.reduce_free;
          record(r, step, start, rank.reduce_free);
          break;
        }
        case action::optimizer:
          if (step_optimizer(r, step)) return;
          break;
      }
      rank.end = std::max(rank.end, now_);
      ++rank.next;
    }
    rank.end = std::max(rank.end, rank.reduce_free);
  }

  // Rank-local order: what the list puts before its own operands can never run.
  [[nodiscard]] bool can_compute(const instruction& step) const {
    const std::size_t here = cell(step.stage, step.micro_batch);
    if (step.kind == action::weight_gradient) return gradient_done_[here] <= now_;
    if (step.kind == action::forward) {
      if (step.stage == 0) return true;
      const std::size_t before = cell(step.stage - 1, step.micro_batch);
      return crosses_before(plan_, step.stage) ? activation_here_[here] <= now_ : forward_done_[before] <= now_;
    }
    if (!(forward_done_[here] <= now_)) return false;
    if (step.stage + 1 == plan_.stages()) return true;
    const std::size_t next_cell = cell(step.stage + 1, step.micro_batch);
    return crosses_after(plan_, step.stage) ? gradient_here_[here] <= now_ : gradient_done_[next_cell] <= now_;
  }

  [[nodiscard]] bool can_send(const instruction& step) const {
    const std::size_t here = cell(step.stage, step.micro_batch);
    return (step.kind == action::send_activation ? forward_done_ : gradient_done_)[here] <= now_;
  }

  // True: the rank is busy until an event that was posted.
  bool compute(std::size_t r, const instruction& step) {
    rank_state& rank = ranks_[r];
    const double seconds = seconds_of(step, plan_, cost_);
    const double end = now_ + seconds;
    if (step.kind == action::forward) forward_done_[cell(step.stage, step.micro_batch)] = end;
    if (step.kind == action::input_gradient || step.kind == action::backward)
      gradient_done_[cell(step.stage, step.micro_batch)] = end;
    rank.first_start = std::min(rank.first_start, now_);
    rank.busy += seconds;
    record(r, step, now_, end);
    return advance(r, end);
  }

  bool step_optimizer(std::size_t r, const instruction& step) {
    const auto stage = static_cast<std::size_t>(step.stage);
    const double start = reduced_[stage] == never ? now_ : std::max(now_, reduced_[stage]);
    const double seconds = cost_.stages[stage].optimizer_seconds;
    const double end = start + seconds;
    ranks_[r].busy += seconds;
    record(r, step, start, end);
    return advance(r, end);
  }

  bool advance(std::size_t r, double end) {
    if (end <= now_) return false;
    ranks_[r].end = std::max(ranks_[r].end, end);
    ++ranks_[r].next;
    post(end, wake_rank, static_cast<int>(r));
    return true;
  }

  void send(std::size_t r, const instruction& step) {
    const bool forward = step.kind == action::send_activation;
    const auto hop = static_cast<std::size_t>(forward ? step.stage : step.stage - 1);
    const int index = forward ? down_[hop] : up_[hop];
    link& wire = links_[static_cast<std::size_t>(index)];
    wire.queue.push_back({now_, step, r, result_.timeline[r].size()});
    record(r, step, now_, never);
    post(std::max(now_, wire.free), serve_link, index);
  }

  void serve(std::size_t index) {
    link& wire = links_[index];
    if (wire.served == wire.queue.size()) return;
    if (wire.free > now_) return;  // an event of the moment when it is free follows
    std::size_t chosen = wire.served;
    for (std::size_t i = chosen; i < wire.queue.size() && wire.queue[i].time == wire.queue[wire.served].time; ++i)
      if (wire.queue[i].step.kind == action::send_gradient) {
        chosen = i;
        break;
      }
    // Those before it keep their order.
    std::rotate(wire.queue.begin() + static_cast<std::ptrdiff_t>(wire.served),
                wire.queue.begin() + static_cast<std::ptrdiff_t>(chosen),
                wire.queue.begin() + static_cast<std::ptrdiff_t>(chosen) + 1);
    const request next = wire.queue[wire.served++];
    const bool forward = next.step.kind == action::send_activation;
    const int target = forward ? next.step.stage + 1 : next.step.stage - 1;
    double seconds = 0;
    double latency = 0;
    if (!cost_.hops.empty()) {
      const hop_costs& hop = cost_.hops[static_cast<std::size_t>(forward ? next.step.stage : target)];
      seconds = forward ? hop.activation_seconds() : hop.gradient_seconds();
      latency = hop.latency_seconds;
    }
    wire.free = now_ + seconds;
    const double arrival = wire.free + latency;
    timed& entry = result_.timeline[next.rank][next.entry];
    entry.start = now_;
    entry.end = arrival;
    const std::size_t there = cell(target, next.step.micro_batch);
    (forward ? activation_here_ : gradient_here_)[there] = arrival;
    const auto receiver = static_cast<std::size_t>(plan_.rank_of[static_cast<std::size_t>(target)]);
    const action kind = forward ? action::receive_activation : action::receive_gradient;
    if (ranks_[receiver].awaited == there && ranks_[receiver].awaited_kind == kind) {
      ranks_[receiver].awaited = no_cell;
      post(arrival, wake_rank, static_cast<int>(receiver));
    }
    if (wire.served < wire.queue.size()) post(wire.free, serve_link, static_cast<int>(index));
  }

  // False: the rank waits.
  bool receive(std::size_t r, const instruction& step) {
    rank_state& rank = ranks_[r];
    auto& entries = result_.timeline[r];
    const bool resumed = !entries.empty() && entries.back().end == never && entries.back().step == step;
    if (!resumed) record(r, step, now_, never);
    const std::size_t here = cell(step.stage, step.micro_batch);
    const double arrival = (step.kind == action::receive_activation ? activation_here_ : gradient_here_)[here];
    if (arrival <= now_) {
      entries.back().end = now_;
      return true;
    }
    if (arrival == never) {
      rank.awaited = here;
      rank.awaited_kind = step.kind;
    } else {
      post(arrival, wake_rank, static_cast<int>(r));
    }
    return false;
  }

  [[nodiscard]] std::string reason(std::size_t r) const {
    const instruction& step = plan_.lists[r][ranks_[r].next];
    std::string text = "rank " + std::to_string(r) + " waits for ";
    const bool activation = step.kind == action::receive_activation;
    if (activation || step.kind == action::receive_gradient) {
      const int source = activation ? step.stage - 1 : step.stage + 1;
      text += std::string(activation ? "the activation" : "the gradient") + " of micro-batch " +
              std::to_string(step.micro_batch) + " from stage " + std::to_string(source);
      if (source >= 0 && source < plan_.stages())
        text += " on rank " + std::to_string(plan_.rank_of[static_cast<std::size_t>(source)]);
      return text;
    }
    return text + "what " + to_string(step) + " needs, which does not stand before it in the rank's list";
  }

  simulation finish() {
    result_.complete = true;
    double busiest = 0;
    double longest = 0;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const rank_state& rank = ranks_[r];
      if (rank.next < plan_.lists[r].size()) {
        result_.complete = false;
        result_.waiting.push_back(reason(r));
        for (timed& entry : result_.timeline[r])
          if (entry.end == never) entry.end = entry.start;
      }
      result_.makespan = std::max(result_.makespan, rank.end);
      result_.busy.push_back(rank.busy);
      result_.span.push_back(rank.first_start == never ? 0.0 : rank.end - rank.first_start);
      busiest = std::max(busiest, rank.busy);
      longest = std::max(longest, result_.span.back());
    }
    result_.bubble = result_.makespan - busiest;
    result_.span_bubble = longest - busiest;
    result_.peak_activation_bytes = espalier::pipeline::peak_activation_bytes(plan_, cost_);
    result_.peak_bytes = espalier::pipeline::peak_bytes(plan_, cost_);
    return std::move(result_);
  }

  const schedule& plan_;
  const costs& cost_;
  std::vector<rank_state> ranks_;
  std::vector<link> links_;
  std::vector<int> down_;  // by hop: the link that carries its activations
  std::vector<int> up_;    // and its gradients
  std::vector<double> forward_done_, gradient_done_, activation_here_, gradient_here_;  // by stage and micro-batch
  std::vector<double> reduced_;                                                         // by stage
  std::vector<event> events_;
  std::int64_t posted_ = 0;
  double now_ = 0;
  simulation result_;
};

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// Runs a schedule on costs, as discrete events; a list that holds computations alone gets its transfers first.
///
/// A rank does one computation at a time; transfers and all-reduces run in parallel with it. Exact up to rounding.
/// Throws std::invalid_argument where costs and schedule do not belong together, or a list names what does not exist.
[[nodiscard]] inline simulation simulate(const schedule& plan, const costs& cost) {
  check(cost, plan.stages(), plan.ranks());
  for (std::size_t r = 0; r < plan.lists.size(); ++r)
    for (const instruction& step : plan.lists[r]) {
      const bool exists = step.stage >= 0 && step.stage < plan.stages() && step.micro_batch >= 0 &&
                          step.micro_batch < std::max(1, plan.micro_batches);
      if (!exists || plan.rank_of[static_cast<std::size_t>(step.stage)] != static_cast<int>(r))
        throw std::invalid_argument("rank " + std::to_string(r) + " is to do " + to_string(step) +
                                    ", but the schedule has " + std::to_string(plan.stages()) + " stages, " +
                                    std::to_string(plan.micro_batches) + " micro-batches, and on this rank " +
                                    (exists ? "not this stage" : "no such instruction"));
    }
  if (!only_computations(plan)) return detail::pipeline_simulator(plan, cost).run();
  const schedule whole = with_transfers(plan);
  return detail::pipeline_simulator(whole, cost).run();
}

}  // namespace espalier::pipeline
