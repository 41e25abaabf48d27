// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/runtime/conversation.hpp>
#include <espalier/pipeline/runtime/execution_plan.hpp>
#include <espalier/pipeline/runtime/layer.hpp>
#include <espalier/pipeline/runtime/stage_memory.hpp>
#include <espalier/pipeline/runtime/transport.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::pipeline::detail {

/// The devices of a rank's replica, on the messages of the pipeline.
class peer_messages final : public replica_link {
 public:
  /// @param host waits
  peer_messages(const execution_plan& plan, transport& ranks, stage_host& host)
      : ranks_(&ranks), host_(&host), members_(plan.replica_of(ranks.rank())), device_(plan.device_of(ranks.rank())) {}

  [[nodiscard]] int device() const override { return device_; }
  [[nodiscard]] int devices() const override { return static_cast<int>(members_.size()); }
  [[nodiscard]] const std::vector<int>& members() const { return members_; }

  void send(int device, const void* data, std::int64_t bytes) override {
    open_.push_back(ranks_->send(members_[as_index(device)], tag, data, bytes));
  }
  void receive(int device, void* data, std::int64_t bytes) override {
    open_.push_back(ranks_->receive(members_[as_index(device)], tag, data, bytes));
  }
  void wait() override {
    if (!open_.empty()) host_->wait_for_peers(*this);
  }
  [[nodiscard]] bool is_done() {
    std::erase_if(open_, [&](int request) { return ranks_->finished(request); });
    return open_.empty();
  }

 private:
  static constexpr int tag = static_cast<int>(talk_tag::peers);

  transport* ranks_;
  stage_host* host_;
  std::vector<int> members_;  // ranks, by device
  int device_;
  std::vector<int> open_;  // requests
};

}  // namespace espalier::pipeline::detail
