// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/engine/parameters.hpp>
#include <espalier/pipeline/stages/engine/stage_memory.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/layers/pool.hpp>
#include <espalier/pipeline/stages/plan/check_plan.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>
#include <espalier/pipeline/stages/plan/routes.hpp>
#include <espalier/pipeline/stages/plan/stage_bytes.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <type_traits>
#include <vector>

namespace espalier::pipeline::detail {

/// F, B and W of one stage on one rank: calls its layers and knows what has to be kept for how long.
class stage_worker {
 public:
  stage_worker(const execution_plan& plan, const layer_model& model, const routes& paths,
               const std::vector<data_facts>& data, int stage, int replica, block_pool& pool, stage_host& host)
      : plan_(&plan),
        model_(&model),
        routes_(&paths),
        stage_(stage),
        run_(plan.stages[as_index(stage)]),
        mesh_(plan.mesh_of(stage)),
        pool_(&pool),
        host_(&host) {
    int most = 0;
    for (int m = 0; m < plan.order.micro_batches; ++m) {
      rows_.push_back(plan.rows_of(plan.group_of(stage), replica, m));
      first_row_.push_back(plan.first_sample(m) + rows_.back().begin);
      most = std::max(most, rows_.back().count());
    }
    for (const int r : paths.into(stage)) incoming_size_.push_back(pool.size_class(paths.incoming_bytes(r, most)));
    for (int l = run_.first; l < run_.last; ++l) {
      layers_.push_back(place_layer(model, paths, stage, run_, mesh_, l, rows_, data, pool));
      if (!plan.trains) layers_.back().needed = part::forward;
    }
    const auto width = static_cast<std::size_t>(run_.last - run_.first);
    micro_batch_blocks empty;
    empty.incoming.assign(paths.into(stage).size(), block_pool::none);
    empty.incoming_gradients = empty.incoming;
    empty.arrived.assign(paths.out_of(stage).size(), block_pool::none);
    for (auto* list : {&empty.outputs, &empty.output_gradients, &empty.kept, &empty.kept_through, &empty.kept_between})
      list->assign(width, block_pool::none);
    blocks_.assign(rows_.size(), empty);
  }

  [[nodiscard]] int stage() const { return stage_; }
  [[nodiscard]] const layer_run& layers() const { return run_; }
  [[nodiscard]] const row_interval& rows(int m) const { return rows_[as_index(m)]; }
  [[nodiscard]] micro_batch_blocks& blocks(int m) { return blocks_[as_index(m)]; }
  [[nodiscard]] int incoming_size(std::size_t k) const { return incoming_size_[k]; }
  /// The block of a value that the stage has, its own or one that it read.
  [[nodiscard]] int held_block(int m, int layer) {
    return is_own(layer) ? blocks(m).outputs[place(layer)] : blocks(m).incoming[route_into(layer)];
  }
  [[nodiscard]] int held_size(int layer) {
    return is_own(layer) ? at(layer).output_size : incoming_size_[route_into(layer)];
  }
  [[nodiscard]] int take(int size) { return host_->take(size); }
  [[nodiscard]] double layer_seconds() const { return layer_seconds_; }
  [[nodiscard]] layer* object(int l) { return at(l).object.get(); }
  /// The sum of the losses of a micro-batch's rows, from its F on. @pre the last stage, some rows
  [[nodiscard]] double loss(int m) const { return losses_[as_index(m)]; }

  /// Makes the layers, and lets them allocate what they need.
  void prepare(parameter_store& store, replica_link& link) {
    for (held_layer& one : layers_) {
      one.object = model_->make(one.index, mesh_, link);
      std::vector<int> prepared;
      for (const row_interval& rows : rows_) {
        if (rows.count() == 0 || std::find(prepared.begin(), prepared.end(), rows.count()) != prepared.end()) continue;
        one.object->prepare(rows.count());
        prepared.push_back(rows.count());
      }
      for (const int owner : model_->facts(one.index).parameters_of) {
        parameter_block& block = *store.find(owner);
        if (owner == one.index && plan_->trains) block.owner_object = one.object.get();
        one.parameters.push_back(block.parameters.data());
        one.gradients.push_back(store.gradients(owner, one.index));
      }
    }
    losses_.assign(rows_.size(), 0.0);
    dry_ = false;
  }

  void forward(int m) {
    if (rows(m).count() > 0) run_forward(m, keeps());
  }
  /// Gives up what only F needed, once what leaves the stage has holders of its own.
  void forward_done(int m) {
    micro_batch_blocks& mine = blocks(m);
    drop_outputs(mine, keeps());
    if (!recomputed())
      for (std::size_t k = 0; k < mine.incoming.size(); ++k)
        if (routes_->value(routes_->into(stage_)[k]).needed == part::forward) pool_->drop(mine.incoming[k]);
    recount(m);
  }

  /// B, or B and W. Takes the gradients that arrived; leaves those of the inputs in `incoming_gradients`.
  void backward(int m, bool with_weights) {
    if (rows(m).count() == 0) return;
    micro_batch_blocks& mine = blocks(m);
    if (recomputed()) {
      run_forward(m, true, true);
      drop_outputs(mine, true);
      recount(m);
    }
    for (std::size_t k = 0; k < mine.arrived.size(); ++k) {
      const value_route& route = routes_->value(routes_->out_of(stage_)[k]);
      if (!route.has_gradient) continue;
      int& sum = is_own(route.layer) ? mine.output_gradients[place(route.layer)]
                                     : mine.incoming_gradients[route_into(route.layer)];
      join(sum, mine.arrived[k], route.layer, rows(m).count());
    }
    for (int l = run_.last; l-- > run_.first;) backward(m, at(l), with_weights);
    for (std::size_t k = 0; k < mine.incoming.size(); ++k)
      if (with_weights || routes_->value(routes_->into(stage_)[k]).needed <= part::input_gradient)
        pool_->drop(mine.incoming[k]);
    recount(m);
  }

  void weights(int m) {
    if (rows(m).count() == 0) return;
    micro_batch_blocks& mine = blocks(m);
    for (int l = run_.last; l-- > run_.first;) {
      held_layer& one = at(l);
      const std::size_t k = place(l);
      if (one.trained) {
        layer_memory memory = memory_of(m, one);
        call(one, [&] { one.object->weight_gradient(memory); });
      }
      for (auto* list : {&mine.kept_through, &mine.kept_between, &mine.output_gradients}) pool_->drop((*list)[k]);
    }
    for (int& block : mine.outputs) pool_->drop(block);
    for (int& block : mine.incoming) pool_->drop(block);
    recount(m);
  }

 private:
  static constexpr std::size_t inside = held_layer::inside;

  [[nodiscard]] held_layer& at(int l) { return layers_[place(l)]; }
  [[nodiscard]] std::size_t place(int l) const { return as_index(l - run_.first); }
  [[nodiscard]] bool is_own(int l) const { return l >= run_.first && l < run_.last; }
  /// Which of the values that come into the stage is that layer's output. @pre one of them is
  [[nodiscard]] std::size_t route_into(int layer) const {
    const std::vector<int>& into = routes_->into(stage_);
    std::size_t k = 0;
    while (routes_->value(into[k]).layer != layer) ++k;
    return k;
  }
  [[nodiscard]] bool recomputed() const { return plan_->order.recomputes(stage_); }
  /// Whether F leaves something for B and W.
  [[nodiscard]] bool keeps() const { return plan_->trains && !recomputed(); }

  /// Bytes of gradients and outputs as elements.
  [[nodiscard]] std::int64_t elements_of(int l, int rows) const {
    return output_bytes(*model_, l, mesh_, rows) / size_of(model_->facts(l).output.type);
  }

  /// The layer's memory for micro-batch m, as far as there is any now.
  [[nodiscard]] layer_memory memory_of(int m, held_layer& one) {
    const micro_batch_blocks& mine = blocks(m);
    const layer_facts& facts = model_->facts(one.index, mesh_);
    const std::size_t k = place(one.index);
    layer_memory memory;
    memory.batch = rows(m).count();
    if (dry_) return memory;
    for (std::size_t i = 0; i < one.incoming.size(); ++i)
      one.input_memory[i] = pool_->memory(one.incoming[i] == inside ? mine.outputs[place(facts.inputs[i].layer)]
                                                                    : mine.incoming[one.incoming[i]]);
    for (std::size_t d = 0; d < one.data.size(); ++d)
      one.data_memory[d] = host_->data(one.data[d]) + first_row_[as_index(m)] * facts.data[d].row.bytes();
    memory.parameters = one.parameters;
    memory.inputs = one.input_memory;
    memory.data = one.data_memory;
    memory.output = pool_->memory(mine.outputs[k]);
    memory.kept = pool_->memory(mine.kept[k]);
    memory.kept_through = pool_->memory(mine.kept_through[k]);
    memory.kept_between = pool_->memory(mine.kept_between[k]);
    memory.output_gradient = pool_->memory(mine.output_gradients[k]);
    memory.input_gradients = one.gradient_memory;
    memory.gradients = one.gradients;
    return memory;
  }

  template <class Body> void call(held_layer& one, const Body& body) {
    if (dry_) return;
    host_->entering(one.index);
    const auto start = std::chrono::steady_clock::now();
    try {
      body();
    } catch (const peer_error&) { throw; } catch (const std::exception& error) {
      std::throw_with_nested(layer_failure(layer_text(*model_, one.index) + ": " + error.what()));
    } catch (...) {
      std::throw_with_nested(
          layer_failure(layer_text(*model_, one.index) + ": an exception that is no std::exception"));
    }
    layer_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void run_forward(int m, bool keep, bool is_again = false) {
    micro_batch_blocks& mine = blocks(m);
    for (held_layer& one : layers_) {
      const std::size_t k = place(one.index);
      mine.outputs[k] = host_->take(one.output_size);
      mine.kept[k] = host_->take(one.kept_size);
      mine.kept_through[k] = host_->take(one.through_size);
      layer_memory memory = memory_of(m, one);
      memory.is_again = is_again;
      call(one, [&] { one.object->forward(memory); });
      if (one.index + 1 == model_->layers() && !dry_) losses_[as_index(m)] = scalar(memory.output);
      if (!keep) {
        pool_->drop(mine.kept[k]);
        pool_->drop(mine.kept_through[k]);
      }
      for (const held_layer& before : layers_)  // outputs without another reader
        if (before.last_reader == one.index && !before.leaves && (!keep || before.needed == part::forward))
          pool_->drop(mine.outputs[place(before.index)]);
    }
  }
  void drop_outputs(micro_batch_blocks& mine, bool keep) {
    for (const held_layer& one : layers_)
      if (!keep || one.needed == part::forward) pool_->drop(mine.outputs[place(one.index)]);
  }

  [[nodiscard]] double scalar(const std::byte* memory) const {
    return with_storage(model_->facts(model_->layers() - 1).output.type, [&]<class T>(T value) {
      std::memcpy(&value, memory, sizeof value);
      if constexpr (std::is_same_v<T, double>) {
        return value;
      } else {
        return static_cast<double>(static_cast<float>(value));
      }
    });
  }

  /// sum += addend, whose block is given up; the first addend becomes the sum.
  void join(int& sum, int& addend, int layer, int rows) {
    if (sum == block_pool::none) {
      sum = addend;
      addend = block_pool::none;
      return;
    }
    if (!dry_)
      add_elements(model_->facts(layer).output.type, pool_->memory(sum), pool_->memory(addend),
                   elements_of(layer, rows));
    pool_->drop(addend);
  }

  /// Fills a gradient that no layer computes: 1 / (samples of the step) for the loss; 0 for an output that is read only
  /// where no gradient is asked for.
  void begin_gradient(int block, const held_layer& one, int rows) {
    if (dry_) return;
    const bool loss = one.index + 1 == model_->layers();
    std::byte* const memory = pool_->memory(block);
    std::fill_n(memory, static_cast<std::size_t>(output_bytes(*model_, one.index, mesh_, rows)), std::byte{0});
    if (!loss) return;
    with_storage(model_->facts(one.index).output.type, [&]<class T>(T value) {
      if constexpr (!std::is_same_v<T, bool>) {
        value = static_cast<T>(static_cast<float>(1.0 / plan_->samples()));
        if constexpr (std::is_same_v<T, double>) value = 1.0 / plan_->samples();
        std::memcpy(memory, &value, sizeof value);
      }
    });
  }

  void backward(int m, held_layer& one, bool with_weights) {
    micro_batch_blocks& mine = blocks(m);
    const layer_facts& facts = model_->facts(one.index, mesh_);
    const std::size_t k = place(one.index);
    if (mine.output_gradients[k] == block_pool::none) {
      mine.output_gradients[k] = host_->take(one.output_size);
      begin_gradient(mine.output_gradients[k], one, rows(m).count());
    }
    mine.kept_between[k] = host_->take(one.between_size);
    for (std::size_t i = 0; i < facts.inputs.size(); ++i) {
      one.gradient_memory[i] = nullptr;
      if (!facts.inputs[i].has_gradient) continue;
      int& sum = gradient_of(mine, one, i);
      const int size =
          one.incoming[i] == inside ? at(facts.inputs[i].layer).output_size : incoming_size_[one.incoming[i]];
      int& block = sum == block_pool::none ? sum : one.extra[i];
      block = host_->take(size);
      one.gradient_memory[i] = pool_->memory(block);
    }
    layer_memory memory = memory_of(m, one);
    call(one, [&] {
      if (with_weights && one.trained) {
        one.object->backward(memory);
      } else {
        one.object->input_gradient(memory);
      }
    });
    for (std::size_t i = 0; i < facts.inputs.size(); ++i)
      if (one.extra[i] != block_pool::none)
        add_extra(gradient_of(mine, one, i), one.extra[i], facts.inputs[i].layer, rows(m).count());
    pool_->drop(mine.kept[k]);
    const bool ends = with_weights || !one.trained;
    if (ends) {
      pool_->drop(mine.kept_through[k]);
      pool_->drop(mine.kept_between[k]);
    }
    if (ends || facts.output_gradient_needed != part::weight_gradient) pool_->drop(mine.output_gradients[k]);
    if (with_weights || one.needed <= part::input_gradient) pool_->drop(mine.outputs[k]);
  }

  [[nodiscard]] int& gradient_of(micro_batch_blocks& mine, const held_layer& one, std::size_t input) {
    if (one.incoming[input] != inside) return mine.incoming_gradients[one.incoming[input]];
    return mine.output_gradients[place(model_->facts(one.index).inputs[input].layer)];
  }
  void add_extra(int& sum, int& extra, int layer, int rows) {
    if (!dry_)
      add_elements(model_->facts(layer).output.type, pool_->memory(sum), pool_->memory(extra),
                   elements_of(layer, rows));
    pool_->drop(extra);
  }

  /// Counts what the stage holds of a micro-batch now, between two parts.
  void recount(int m) {
    micro_batch_blocks& mine = blocks(m);
    const int n = rows(m).count();
    std::int64_t bytes = 0;
    for (std::size_t k = 0; k < mine.incoming.size(); ++k)
      if (mine.incoming[k] != block_pool::none) bytes += routes_->incoming_bytes(routes_->into(stage_)[k], n);
    for (const held_layer& one : layers_) {
      if (n == 0) break;
      const std::size_t k = place(one.index);
      const kept_facts& kept = kept_of(model_->facts(one.index, mesh_), n);
      const std::int64_t output = output_bytes(*model_, one.index, mesh_, n);
      if (mine.outputs[k] != block_pool::none) bytes += output;
      if (mine.output_gradients[k] != block_pool::none) bytes += output;
      if (mine.kept[k] != block_pool::none) bytes += kept.kept_bytes;
      if (mine.kept_through[k] != block_pool::none) bytes += kept.kept_through_bytes;
      if (mine.kept_between[k] != block_pool::none) bytes += kept.kept_between_bytes;
    }
    host_->count(bytes - mine.held);
    mine.held = bytes;
  }

  const execution_plan* plan_;
  const layer_model* model_;
  const routes* routes_;
  int stage_;
  layer_run run_;
  int mesh_;
  block_pool* pool_;
  stage_host* host_;
  bool dry_ = true;
  std::vector<row_interval> rows_;
  std::vector<std::int64_t> first_row_;
  std::vector<int> incoming_size_;
  std::vector<held_layer> layers_;
  std::vector<micro_batch_blocks> blocks_;
  std::vector<double> losses_;
  double layer_seconds_ = 0;
};

}  // namespace espalier::pipeline::detail
