// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/messages/conversation.hpp>
#include <espalier/pipeline/stages/messages/transport.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

/// The devices of a rank's replica, on the messages of the pipeline.
class peer_messages final : public replica_link {
 public:
  /// Returns when `is_done()`, or throws `peer_error`.
  using waiting = std::function<void(peer_messages&)>;

  /// @param members ranks, by device; this one among them
  peer_messages(std::vector<int> members, transport& ranks, waiting wait)
      : ranks_(&ranks),
        members_(std::move(members)),
        device_(static_cast<int>(std::find(members_.begin(), members_.end(), ranks.rank()) - members_.begin())),
        wait_(std::move(wait)) {}

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
    if (!is_done()) wait_(*this);
  }
  [[nodiscard]] bool is_done() {
    std::erase_if(open_, [&](int request) { return ranks_->finished(request); });
    return open_.empty();
  }

 private:
  static constexpr int tag = static_cast<int>(talk_tag::peers);

  transport* ranks_;
  std::vector<int> members_;
  int device_;
  waiting wait_;
  std::vector<int> open_;  // requests
};

}  // namespace espalier::pipeline::detail
