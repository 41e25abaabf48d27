// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/comm/communicator.hpp>
#include <espalier/pipeline/stages/engine/agree.hpp>
#include <espalier/pipeline/stages/engine/expiry.hpp>
#include <espalier/pipeline/stages/engine/loss_exchange.hpp>
#include <espalier/pipeline/stages/engine/message_traffic.hpp>
#include <espalier/pipeline/stages/engine/parameter_update.hpp>
#include <espalier/pipeline/stages/engine/parameters.hpp>
#include <espalier/pipeline/stages/engine/rank_texts.hpp>
#include <espalier/pipeline/stages/engine/stage_worker.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/layers/layer_sizes.hpp>
#include <espalier/pipeline/stages/layers/pool.hpp>
#include <espalier/pipeline/stages/measure/measured.hpp>
#include <espalier/pipeline/stages/messages/conversation.hpp>
#include <espalier/pipeline/stages/messages/peer_messages.hpp>
#include <espalier/pipeline/stages/messages/transport.hpp>
#include <espalier/pipeline/stages/plan/check_plan.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>
#include <espalier/pipeline/stages/plan/flow.hpp>
#include <espalier/pipeline/stages/plan/routes.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier::pipeline {

/// A step failed on this rank: the text names rank, instruction, stage, layer and micro-batch; what the layer threw is
/// nested. The other ranks get a `comm::comm_error` with the same text.
struct step_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Executes a plan: one object per rank, made and used by all ranks together. Each walks through its list; a step is
/// equal to the single-device step but for rounding, and its bits do not depend on the schedule (but see
/// `reorders_gradients`). All memory is there before the first step.
class engine final : private detail::stage_host {
 public:
  /// Rank 0's plan is used on all ranks; another rank may pass the one that it expects, or none.
  /// Errors, on all ranks alike: std::invalid_argument where the plan cannot be executed, or ranks pass different plans
  /// or models. `comm_error` where a rank does not come.
  engine(std::unique_ptr<transport> ranks, const layer_model& model,
         const std::optional<execution_plan>& plan = std::nullopt)
      : model_(&model), ranks_(ranks.get()), owned_ranks_(std::move(ranks)) {
    begin(plan);
    ranks_->all_are_here();
    clock_ahead_ = talk().clock_ahead();
  }

  [[nodiscard]] int rank() const { return ranks_->rank(); }
  [[nodiscard]] const execution_plan& plan() const { return plan_; }
  /// The data that `step` wants, in its order.
  [[nodiscard]] const std::vector<data_facts>& data_wanted() const { return data_facts_; }
  /// Steps that were done, of earlier runs too, where their checkpoint was loaded.
  [[nodiscard]] std::int64_t steps_done() const { return steps_done_; }
  [[nodiscard]] memory_report memory() const {
    memory_report report;
    report.blocks = pool_.reserved_bytes();
    report.parameters = store_->bytes();
    if (update_) report.reductions = update_->staging_bytes();
    return report;
  }

  /// One training step on all ranks. `data`: by `data_wanted()`, the rows of the whole batch; null where no layer of
  /// this rank reads them.
  /// Errors: `step_error` where a layer of this rank throws; `comm_error` where another rank failed, or did nothing for
  /// the deadline. The engine can then not be used any more, nor can the communicator it was made from.
  step_report step(std::span<const void* const> data) {
    require_usable(data);
    data_.assign(data.begin(), data.end());
    broken_ = true;  // until the step has ended well
    try {
      run_step();
    } catch (const comm::comm_error&) { throw; } catch (const std::exception& error) {
      const std::string text = "rank " + std::to_string(rank()) + ", " + texts_.text(index_) + ": " + error.what();
      ranks_->fail(text);
      std::throw_with_nested(step_error(text));
    }
    broken_ = false;
    return report_;
  }

  /// An engine that computes the loss of `samples` samples with these parameters, on the same stages and ranks, and
  /// leaves everything as it is: its steps are F alone, cut into so many micro-batches. All ranks call it, not during a
  /// step; it lives as long as this engine, and is made once for each pair of numbers.
  /// Errors, on all ranks alike: std::invalid_argument where the layers are not compiled for such micro-batches.
  engine& evaluation(int samples, int micro_batches) {
    for (const auto& known : evaluations_)
      if (known->plan_.samples() == samples && known->plan_.order.micro_batches == micro_batches) return *known;
    evaluations_.push_back(std::unique_ptr<engine>(new engine(*this, forward_only(plan_, samples, micro_batches))));
    return *evaluations_.back();
  }

  /// The last step of all ranks, on one clock. All ranks call it; rank 0 gets it.
  [[nodiscard]] measured_run measured() { return detail::collect(talk(), timeline_, clock_ahead_); }

  /// The parameters that this rank holds, and which rank saves them; for checkpoints and tests.
  [[nodiscard]] detail::parameter_store& store() { return *store_; }
  [[nodiscard]] detail::conversation talk() { return detail::conversation(*ranks_); }
  [[nodiscard]] const layer_model& model() const { return *model_; }
  void set_steps_done(std::int64_t count) { steps_done_ = count; }

 private:
  using messages = detail::message_traffic;

  engine(engine& trained, const execution_plan& plan)
      : model_(trained.model_), store_(trained.store_), clock_ahead_(trained.clock_ahead_), ranks_(trained.ranks_) {
    begin(plan);
  }

  void begin(const std::optional<execution_plan>& plan) {
    plan_ = detail::agree_on(talk(), plan, *model_, rank());
    check(plan_, *model_, ranks_->size());
    if (!plan_.trains && store_ == nullptr)
      throw std::invalid_argument(
          "a plan that does not train needs parameters: ask the engine that trains them for its "
          "evaluation(samples, micro_batches)");
    try {
      prepare();
    } catch (const comm::comm_error&) { throw; } catch (const std::exception& error) {
      ranks_->fail("rank " + std::to_string(rank()) + " failed before the first step: " + error.what());
      throw;
    }
    talk().barrier();
  }

  void prepare() {
    data_facts_ = detail::data_of(*model_);
    routes_.emplace(plan_, *model_);
    flow_.emplace(plan_, *routes_, ranks_->size(), rank());
    if (plan_.trains) store_ = std::make_shared<detail::parameter_store>(plan_, *model_, rank());
    const int group = flow_->group(rank());
    detail::stage_host& host = *this;
    for (int s = 0; s < plan_.order.stages() && group >= 0; ++s)
      if (plan_.group_of(s) == group)
        workers_.push_back(std::make_unique<detail::stage_worker>(
            plan_, *model_, *routes_, data_facts_, s, flow_->member(rank()) / plan_.group_at(s).devices, pool_, host));
    link_.emplace(plan_.replica_of(rank()), *ranks_, [this](detail::peer_messages& link) { wait_for_peers(link); });
    traffic_.emplace(plan_, *routes_, *flow_, *ranks_, pool_, workers_);
    texts_ = detail::rank_texts(plan_, *model_, list());
    kept_texts_ = &detail::kept_for_good(texts_.all());
    ranks_->use_texts(*kept_texts_);
    dry_run();
    for (const auto& worker : workers_) worker->prepare(*store_, *link_);
    if (plan_.trains) store_->initialise(*link_);
    if (plan_.trains) update_.emplace(plan_, *model_, *store_, *ranks_, traffic_->tags_end());
    const int tags = update_ ? update_->tags_end() : traffic_->tags_end();
    if (tags > ranks_->last_tag())
      throw std::invalid_argument("the plan has " + std::to_string(tags) + " kinds of messages, but MPI has " +
                                  std::to_string(ranks_->last_tag()) + " tags: use fewer micro-batches");
    losses_.emplace(plan_, *ranks_);
    timeline_.reserve(list().size());
  }

  /// All takes and drops of a step, without work and messages, each message held as long as it may be.
  void dry_run() {
    dry_ = true;
    traffic_->begin_step();
    for (index_ = 0; index_ < list().size(); ++index_) execute(list()[index_]);
    traffic_->end_dry_run();
    pool_.freeze();
    dry_ = false;
    held_ = peak_ = 0;
  }

  [[nodiscard]] auto waiting() {
    return [this](const auto& done, const auto& awaited) { wait(done, awaited); };
  }
  [[nodiscard]] const std::vector<instruction>& list() const { return flow_->list(rank()); }
  [[nodiscard]] detail::stage_worker& worker(int stage) { return traffic_->worker(stage); }

  void require_usable(std::span<const void* const> data) const {
    if (broken_) throw comm::comm_error("rank " + std::to_string(rank()) + ": an earlier step of this pipeline failed");
    if (data.size() != data_facts_.size()) {
      std::string names;
      for (const data_facts& one : data_facts_) names += (names.empty() ? "" : ", ") + one.name;
      throw std::invalid_argument("a step was given " + std::to_string(data.size()) + " data, but the model reads " +
                                  std::to_string(data_facts_.size()) + (names.empty() ? "" : ": " + names));
    }
    for (const auto& worker : workers_)
      for (int l = worker->layers().first; l < worker->layers().last; ++l)
        for (const data_facts& wanted : model_->facts(l).data)
          for (std::size_t d = 0; d < data.size(); ++d)
            if (data_facts_[d].name == wanted.name && data[d] == nullptr)
              throw std::invalid_argument("rank " + std::to_string(rank()) + " was given no \"" + wanted.name +
                                          "\", which " + detail::layer_text(*model_, l) + " reads there");
  }

  // ---- a step ---------------------------------------------------------------------------------------------------

  void run_step() {
    const double start = detail::seconds_now();
    double layers_before = 0;
    for (const auto& worker : workers_) layers_before += worker->layer_seconds();
    index_ = 0;
    peak_ = held_;
    waited_ = 0;
    timeline_.clear();
    ranks_->use_texts(*kept_texts_);
    if (plan_.trains) store_->begin_step();
    traffic_->begin_step();
    for (index_ = 0; index_ < list().size(); ++index_) {
      const instruction& step = list()[index_];
      ranks_->at(texts_.at(index_), false);
      timeline_.push_back({step, detail::seconds_now(), 0});
      execute(step);
      if (step.kind != action::all_reduce) timeline_.back().end = detail::seconds_now();
      ranks_->progress(false);
      background();
    }
    ranks_->at(texts_.at(index_), false);
    if (plan_.trains) update_->finish(steps_done_ + 1, timeline_.size(), waiting());
    finish_step();
    steps_done_ += plan_.trains ? 1 : 0;
    report_.seconds = detail::seconds_now() - start;
    report_.waiting_seconds = waited_;
    report_.instructions = static_cast<int>(list().size());
    report_.peak_activation_bytes = peak_;
    report_.layer_seconds = -layers_before;
    for (const auto& worker : workers_) report_.layer_seconds += worker->layer_seconds();
  }

  void execute(const instruction& step) {
    const std::vector<int>& awaited = flow_->waits(rank(), step);
    if (dry_) {
      traffic_->suppose_come(awaited);
    } else {
      wait([&] { return traffic_->have_come(awaited); }, [&] { return traffic_->missing_text(*model_, awaited); });
    }
    const int m = step.micro_batch;
    switch (step.kind) {
      case action::forward:
        traffic_->begin_computation(step, index_);
        worker(step.stage).forward(m);
        traffic_->hand_on_outputs(step.stage, m);
        worker(step.stage).forward_done(m);
        break;
      case action::input_gradient:
      case action::backward:
        traffic_->begin_computation(step, index_);
        worker(step.stage).backward(m, step.kind == action::backward);
        traffic_->hand_on_gradients(step.stage, m);
        break;
      case action::weight_gradient:
        traffic_->begin_computation(step, index_);
        worker(step.stage).weights(m);
        break;
      case action::all_reduce:
        if (dry_) break;
        timeline_.back().end = timeline_.back().start;
        update_->reduce(step.stage, timeline_.size() - 1);
        break;
      case action::optimizer:
        if (!dry_) update_->optimise(step.stage, steps_done_ + 1, waiting());
        break;
      default: break;
    }
    const bool sends = step.kind == action::send_activation || step.kind == action::send_gradient;
    traffic_->start(flow_->starts(rank(), step), sends && !dry_ ? timeline_.size() - 1 : messages::no_entry);
  }

  /// Losses, and messages that have not gone yet.
  void finish_step() {
    losses_->start([&](int m) {
      const detail::stage_worker& last = *workers_.back();
      return last.rows(m).count() > 0 ? last.loss(m) : 0.0;
    });
    wait([&] { return losses_->is_done(); },
         [&] { return "the losses of the last stage, from " + comm::detail::list_ranks(losses_->sources()); });
    report_.loss = losses_->mean();
    wait([&] { return traffic_->is_quiet(); }, [] { return std::string("the messages of this step to be received"); });
  }

  // ---- waiting --------------------------------------------------------------------------------------------------

  void background() {
    traffic_->advance(timeline_);
    if (update_) update_->advance(timeline_);
  }

  template <class Done, class Text> void wait(const Done& done, const Text& awaited) {
    if (done()) return;
    const double start = detail::seconds_now();
    const int text = texts_.at(index_);
    ranks_->at(text, true);
    detail::wait_until(
        *ranks_, done, [&] { background(); }, [&] { expire(awaited()); });
    ranks_->at(text, false);
    waited_ += detail::seconds_now() - start;
  }

  /// A layer waits for the other devices of its replica.
  void wait_for_peers(detail::peer_messages& link) {
    const double start = detail::seconds_now();
    ranks_->at(place_, true);
    try {
      detail::wait_until(
          *ranks_, [&] { return link.is_done(); }, [&] { background(); },
          [&] { expire("the other devices of its replica, " + comm::detail::list_ranks(link.members())); });
    } catch (const comm::comm_error& error) { throw peer_error(error.what()); }
    ranks_->at(place_, false);
    waited_ += detail::seconds_now() - start;
  }

  /// Nothing has happened for the deadline.
  [[noreturn]] void expire(const std::string& awaited) {
    const std::string text = detail::expired_text(*ranks_, plan_, *model_, *flow_, texts_.text(index_), awaited);
    ranks_->fail(text);
    throw comm::comm_error(text);
  }

  // ---- what stages ask for --------------------------------------------------------------------------------------

  [[nodiscard]] int take(int size) override {
    int block = pool_.take(size);
    if (block != detail::block_pool::none || pool_.is_empty_class(size)) return block;
    // All free blocks are in messages that have been received, but of which this rank has not heard yet.
    wait(
        [&] {
          block = pool_.take(size);
          return block != detail::block_pool::none;
        },
        [] { return std::string("memory of messages that it has sent"); });
    return block;
  }
  void count(std::int64_t change) override {
    held_ += change;
    peak_ = std::max(peak_, held_);
  }
  /// Moves messages on between two layers: a stage of many layers must not keep the other ranks waiting.
  void entering(int layer) override {
    const int first = plan_.stages[detail::as_index(list()[index_].stage)].first;
    place_ = texts_.at(index_, layer - first);
    ranks_->at(place_, false);
    ranks_->progress(false);
    background();
  }
  [[nodiscard]] const std::byte* data(std::size_t number) const override {
    return static_cast<const std::byte*>(data_[number]);
  }

  const layer_model* model_;
  std::shared_ptr<detail::parameter_store> store_;
  double clock_ahead_ = 0;
  execution_plan plan_;
  std::vector<data_facts> data_facts_;
  std::optional<detail::routes> routes_;
  std::optional<detail::flow> flow_;
  detail::block_pool pool_;
  std::optional<detail::peer_messages> link_;
  std::vector<std::unique_ptr<detail::stage_worker>> workers_;
  std::optional<detail::parameter_update> update_;
  detail::rank_texts texts_;
  const std::vector<std::string>* kept_texts_ = nullptr;
  std::vector<const void*> data_;
  std::optional<detail::loss_exchange> losses_;
  std::vector<timed> timeline_;
  step_report report_;
  std::size_t index_ = 0;  // of the instruction
  int place_ = 0;          // of the layer, among the texts
  std::int64_t held_ = 0;
  std::int64_t peak_ = 0;
  double waited_ = 0;
  std::int64_t steps_done_ = 0;
  bool dry_ = false;
  bool broken_ = false;
  std::optional<detail::message_traffic> traffic_;
  std::vector<std::unique_ptr<engine>> evaluations_;
  transport* ranks_;
  // The last member: nothing reads or writes the others' memory once it is gone.
  std::unique_ptr<transport> owned_ranks_;
};

}  // namespace espalier::pipeline
