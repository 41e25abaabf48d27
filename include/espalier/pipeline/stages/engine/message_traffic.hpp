// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/simulate.hpp>
#include <espalier/pipeline/stages/engine/stage_worker.hpp>
#include <espalier/pipeline/stages/layers/pool.hpp>
#include <espalier/pipeline/stages/messages/conversation.hpp>
#include <espalier/pipeline/stages/messages/transport.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>
#include <espalier/pipeline/stages/plan/flow.hpp>
#include <espalier/pipeline/stages/plan/routes.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace espalier::pipeline::detail {

/// Activations and gradients on their way between the stages of this rank and those of others: receives are posted two
/// micro-batches ahead of their use, sends started where the list says so, and blocks held until both are through.
///
/// Until `end_dry_run` nothing is moved: blocks are taken and dropped as late as a real step can be driven to.
class message_traffic {
 public:
  static constexpr std::size_t no_entry = std::numeric_limits<std::size_t>::max();

  message_traffic(const execution_plan& plan, const routes& paths, const flow& order, transport& ranks,
                  block_pool& pool, const std::vector<std::unique_ptr<stage_worker>>& workers)
      : routes_(&paths), flow_(&order), ranks_(&ranks), pool_(&pool), member_(order.member(ranks.rank())) {
    worker_of_.assign(plan.stages.size(), nullptr);
    for (const auto& worker : workers) worker_of_[as_index(worker->stage())] = worker.get();
    queues_.resize(plan.stages.size() * 2);
    for (const instruction& step : order.list(ranks.rank())) {
      if (step.kind == action::forward) queue(step.stage, false).order.push_back(step.micro_batch);
      if (is_backward(step)) queue(step.stage, true).order.push_back(step.micro_batch);
    }
    requests_.assign(paths.messages().size(), none);
    came_.assign(paths.messages().size(), 0);
    block_of_.assign(paths.messages().size(), block_pool::none);
    packed_size_.assign(paths.messages().size(), in_place);
    packed_.assign(paths.messages().size(), block_pool::none);
    std::size_t own = 0;
    for (std::size_t number = 0; number < paths.messages().size(); ++number) {
      const message& one = paths.messages()[number];
      tags_end_ = std::max(tags_end_, first_tag + one.tag + 1);
      if (one.from == ranks.rank()) ++own;
      const std::int64_t count = one.box.elements();
      const bool is_packed = (one.from == ranks.rank() && comm::detail::contiguous_source(one.box, 0, count) < 0) ||
                             (one.to == ranks.rank() && comm::detail::contiguous_target(one.box, 0, count) < 0);
      if (is_packed) packed_size_[number] = pool.size_class(paths.bytes(one));
    }
    outstanding_.reserve(own);
  }

  [[nodiscard]] stage_worker& worker(int stage) const { return *worker_of_[as_index(stage)]; }
  [[nodiscard]] int tags_end() const { return tags_end_; }
  [[nodiscard]] bool is_quiet() const { return outstanding_.empty(); }

  void begin_step() {
    std::fill(came_.begin(), came_.end(), char{0});
    for (int s = 0; s < static_cast<int>(worker_of_.size()); ++s) {
      if (worker_of_[as_index(s)] == nullptr) continue;
      for (const bool gradient : {false, true}) {
        queue(s, gradient).posted = 0;
        for (int k = 0; k < ahead; ++k) post_next(s, gradient);
      }
    }
  }
  void end_dry_run() {
    for (const journey& one : outstanding_) drop(one.block);
    outstanding_.clear();
    dry_ = false;
  }

  /// Prepares for instruction number `index`, whose messages have all come: posts the next receives.
  void begin_computation(const instruction& step, std::size_t index) {
    if (dry_)
      std::erase_if(outstanding_, [&](const journey& one) {
        const bool arrived = flow_->has_arrived(one.number, index);
        if (arrived) drop(one.block);
        return arrived;
      });
    if (step.kind == action::forward) post_next(step.stage, false);
    if (is_backward(step)) post_next(step.stage, true);
  }
  [[nodiscard]] bool have_come(const std::vector<int>& numbers) {
    bool all = true;
    for (const int number : numbers) {
      char& came = came_[as_index(number)];
      int& request = requests_[as_index(number)];
      if (came == 0 && request != none && ranks_->finished(request)) {
        came = 1;
        request = none;
        unpack(number);
      }
      all = all && came != 0;
    }
    return all;
  }
  /// The same in the dry run, where all that is awaited has come.
  void suppose_come(const std::vector<int>& numbers) {
    for (const int number : numbers) unpack(number);
  }
  /// "the activation of layer 1 (dense), micro-batch 3, from rank 0"
  [[nodiscard]] std::string missing_text(const layer_model& model, const std::vector<int>& numbers) const {
    std::string text;
    for (const int number : numbers) {
      if (came_[as_index(number)] != 0) continue;
      const message& one = routes_->at(number);
      text += (text.empty() ? "the " : ", and the ") + std::string(one.is_gradient ? "gradient" : "activation") +
              " of " + layer_text(model, routes_->value(one.route).layer) + ", micro-batch " +
              std::to_string(one.micro_batch) + ", from rank " + std::to_string(one.from);
    }
    return text;
  }

  /// Hands on outputs after F: the outputs that other stages read go to them, and so does what this stage read and
  /// hands on, at once or with `start`.
  void hand_on_outputs(int stage, int m) {
    stage_worker& from = worker(stage);
    if (from.rows(m).count() == 0) return;
    const auto output = [&](int route) { return from.held_block(m, routes_->value(route).layer); };
    for (const int r : routes_->out_of(stage)) {
      const value_route& route = routes_->value(r);
      if (!route.local) continue;
      worker(route.to_stage).blocks(m).incoming[position(routes_->into(route.to_stage), r)] = output(r);
      pool_->hold(output(r));
    }
    for (const int number : routes_->of(traffic::activation_out, stage, m, member_)) {
      block_of_[as_index(number)] = output(routes_->at(number).route);
      pool_->hold(block_of_[as_index(number)]);
    }
  }
  /// Sends back the gradients of the stage's inputs after B.
  void hand_on_gradients(int stage, int m) {
    stage_worker& from = worker(stage);
    if (from.rows(m).count() == 0) return;
    for (std::size_t k = 0; k < routes_->into(stage).size(); ++k) {
      const int r = routes_->into(stage)[k];
      const value_route& route = routes_->value(r);
      if (!route.has_gradient) continue;
      int& gradient = from.blocks(m).incoming_gradients[k];
      if (route.local) {
        worker(route.from_stage).blocks(m).arrived[position(routes_->out_of(route.from_stage), r)] = gradient;
        gradient = block_pool::none;
        continue;
      }
      for (const int number : routes_->of(traffic::gradient_out, stage, m, member_)) {
        if (routes_->at(number).route != r) continue;
        block_of_[as_index(number)] = gradient;
        pool_->hold(gradient);
      }
      pool_->drop(gradient);
    }
  }
  /// Sends what was handed on; `entry`: where in the timeline its end is to be noted.
  void start(const std::vector<int>& numbers, std::size_t entry) {
    for (const int number : numbers) {
      const message& one = routes_->at(number);
      const dtype type = routes_->value(one.route).type;
      int& block = block_of_[as_index(number)];
      journey started{number, block, none, entry};
      std::int64_t offset = 0;
      if (packed_size_[as_index(number)] != in_place) {
        const value_route& route = routes_->value(one.route);
        started.block =
            worker(one.is_gradient ? route.to_stage : route.from_stage).take(packed_size_[as_index(number)]);
        if (!dry_) comm::pack(type, pool_->memory(started.block), pool_->memory(block), one.box);
        drop(block);
      } else {
        offset = comm::detail::contiguous_source(one.box, 0, one.box.elements()) * size_of(type);
      }
      if (!dry_)
        started.request =
            ranks_->send(one.to, first_tag + one.tag, pool_->memory(started.block) + offset, routes_->bytes(one));
      outstanding_.push_back(started);
    }
  }
  /// Lets go of what has been received.
  void advance(std::vector<timed>& timeline) {
    std::erase_if(outstanding_, [&](const journey& one) {
      if (!ranks_->finished(one.request)) return false;
      if (one.entry < timeline.size()) timeline[one.entry].end = seconds_now();
      drop(one.block);
      return true;
    });
  }

 private:
  static constexpr int none = -1;
  static constexpr int in_place = -1;
  static constexpr int ahead = 2;
  static constexpr int first_tag = static_cast<int>(talk_tag::end);

  /// The micro-batches of one stage in the order in which their activations, or gradients, are used.
  struct receive_queue {
    std::vector<int> order;
    std::size_t posted = 0;
  };
  /// A message that the receiver may not have yet.
  struct journey {
    int number = 0;
    int block = block_pool::none;
    int request = none;
    std::size_t entry = no_entry;
  };

  void drop(int block) { pool_->drop(block); }
  [[nodiscard]] static bool is_backward(const instruction& step) {
    return step.kind == action::backward || step.kind == action::input_gradient;
  }
  [[nodiscard]] receive_queue& queue(int stage, bool gradient) {
    return queues_[as_index(stage) * 2 + (gradient ? 1 : 0)];
  }
  [[nodiscard]] static std::size_t position(const std::vector<int>& list, int route) {
    return static_cast<std::size_t>(std::find(list.begin(), list.end(), route) - list.begin());
  }

  void post_next(int stage, bool gradient) {
    receive_queue& next = queue(stage, gradient);
    if (next.posted == next.order.size()) return;
    const int m = next.order[next.posted++];
    stage_worker& to = worker(stage);
    if (to.rows(m).count() == 0) return;
    const std::vector<int>& paths = gradient ? routes_->out_of(stage) : routes_->into(stage);
    for (std::size_t k = 0; k < paths.size(); ++k) {
      const value_route& route = routes_->value(paths[k]);
      if (route.local || (gradient && !route.has_gradient)) continue;
      int& block = (gradient ? to.blocks(m).arrived : to.blocks(m).incoming)[k];
      block = to.take(gradient ? to.held_size(route.layer) : to.incoming_size(k));
      receive(paths[k], stage, m, gradient, block);
    }
  }
  void receive(int route, int stage, int m, bool gradient, int block) {
    for (const int number : routes_->of(gradient ? traffic::gradient_in : traffic::activation_in, stage, m, member_)) {
      const message& one = routes_->at(number);
      if (one.route != route) continue;
      block_of_[as_index(number)] = block;
      std::int64_t offset = 0;
      int into = block;
      if (packed_size_[as_index(number)] != in_place) {
        into = packed_[as_index(number)] = worker(stage).take(packed_size_[as_index(number)]);
      } else {
        offset = comm::detail::contiguous_target(one.box, 0, one.box.elements()) * size_of(routes_->value(route).type);
      }
      if (dry_) continue;
      requests_[as_index(number)] =
          ranks_->receive(one.from, first_tag + one.tag, pool_->memory(into) + offset, routes_->bytes(one));
    }
  }
  /// Copies a message that has come packed to its place.
  void unpack(int number) {
    int& packed = packed_[as_index(number)];
    if (packed == block_pool::none) return;
    const message& one = routes_->at(number);
    if (!dry_)
      comm::unpack(routes_->value(one.route).type, pool_->memory(block_of_[as_index(number)]), pool_->memory(packed),
                   one.box);
    drop(packed);
  }

  const routes* routes_;
  const flow* flow_;
  transport* ranks_;
  block_pool* pool_;
  int member_;
  int tags_end_ = first_tag;
  bool dry_ = true;
  std::vector<stage_worker*> worker_of_;  // by stage; null: not of this rank
  std::vector<receive_queue> queues_;
  std::vector<int> requests_;  // by message: of its receive
  std::vector<char> came_;
  std::vector<int> block_of_;     // by message: what is to be sent, or what it comes into
  std::vector<int> packed_size_;  // by message: of the block that holds its elements in order; or it needs none
  std::vector<int> packed_;       // by message: that block, while it is to come
  std::vector<journey> outstanding_;
};

}  // namespace espalier::pipeline::detail
