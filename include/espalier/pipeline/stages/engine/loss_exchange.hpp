// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/messages/conversation.hpp>
#include <espalier/pipeline/stages/messages/transport.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::pipeline::detail {

/// The losses of a step go from the ranks of the last stage to all others, which add them in one order.
class loss_exchange {
 public:
  loss_exchange(const execution_plan& plan, transport& ranks) : samples_(plan.samples()), ranks_(&ranks) {
    // All devices of a replica have the loss of its rows: the first one says it.
    const replica_group& last = plan.group_at(plan.order.stages() - 1);
    for (std::size_t k = 0; k < last.ranks.size(); k += as_index(last.devices)) sources_.push_back(last.ranks[k]);
    of_.assign(sources_.size(), std::vector<double>(plan.micro_batch_rows.size(), 0.0));
    open_.reserve(sources_.size() + as_index(ranks.size()));
  }

  [[nodiscard]] const std::vector<int>& sources() const { return sources_; }
  /// `loss_of(micro-batch)`: of this rank, where it is one of the sources.
  template <class Loss> void start(const Loss& loss_of) {
    const auto bytes = static_cast<std::int64_t>(of_.front().size() * sizeof(double));
    constexpr int tag = static_cast<int>(talk_tag::loss);
    for (std::size_t k = 0; k < sources_.size(); ++k) {
      if (sources_[k] != ranks_->rank()) {
        open_.push_back(ranks_->receive(sources_[k], tag, of_[k].data(), bytes));
        continue;
      }
      for (std::size_t m = 0; m < of_[k].size(); ++m) of_[k][m] = loss_of(static_cast<int>(m));
      for (int other = 0; other < ranks_->size(); ++other)
        if (other != ranks_->rank()) open_.push_back(ranks_->send(other, tag, of_[k].data(), bytes));
    }
  }
  [[nodiscard]] bool is_done() {
    std::erase_if(open_, [&](int request) { return ranks_->finished(request); });
    return open_.empty();
  }
  [[nodiscard]] double mean() const {
    double sum = 0;
    for (std::size_t m = 0; m < of_.front().size(); ++m)
      for (const std::vector<double>& theirs : of_) sum += theirs[m];
    return sum / samples_;
  }

 private:
  int samples_;
  transport* ranks_;
  std::vector<int> sources_;             // ranks
  std::vector<std::vector<double>> of_;  // by source and micro-batch
  std::vector<int> open_;                // requests
};

}  // namespace espalier::pipeline::detail
