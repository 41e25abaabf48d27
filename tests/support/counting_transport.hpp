// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/messages/conversation.hpp>
#include <espalier/pipeline/stages/messages/transport.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>
#include <espalier/pipeline/stages/plan/routes.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace espalier::test {

/// The bytes that a rank has sent and received so far for activations and their gradients, and those that it has sent
/// for parameters.
struct moved_bytes {
  std::int64_t sent = 0;
  std::int64_t received = 0;
  std::int64_t sent_of_parameters = 0;
};

[[nodiscard]] inline int tags_between_stages(const pipeline::execution_plan& plan, const pipeline::layer_model& model) {
  int end = 0;
  const pipeline::detail::routes ways(plan, model);
  for (const pipeline::detail::message& one : ways.messages()) end = std::max(end, one.tag + 1);
  return end;
}

/// Another transport, whose messages are counted.
class counting_transport final : public pipeline::transport {
 public:
  /// @param stages how many tags stages have between them, see `tags_between_stages`
  counting_transport(std::unique_ptr<pipeline::transport> inner, int stages, moved_bytes& moved)
      : inner_(std::move(inner)), end_(first_ + stages), moved_(&moved) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] std::chrono::duration<double> deadline() const override { return inner_->deadline(); }
  [[nodiscard]] int send(int to, int tag, const void* data, std::int64_t bytes) override {
    if (tag >= first_) (tag < end_ ? moved_->sent : moved_->sent_of_parameters) += bytes;
    return inner_->send(to, tag, data, bytes);
  }
  [[nodiscard]] int receive(int from, int tag, void* data, std::int64_t bytes) override {
    if (tag >= first_ && tag < end_) moved_->received += bytes;
    return inner_->receive(from, tag, data, bytes);
  }
  [[nodiscard]] bool finished(int request) override { return inner_->finished(request); }
  void progress(bool idle) override { inner_->progress(idle); }
  [[nodiscard]] std::int64_t ended() const override { return inner_->ended(); }
  void fail(const std::string& reason) override { inner_->fail(reason); }
  void all_are_here() override { inner_->all_are_here(); }
  [[nodiscard]] bool one_clock() const override { return inner_->one_clock(); }
  [[nodiscard]] int last_tag() const override { return inner_->last_tag(); }
  void use_texts(const std::vector<std::string>& texts) override { inner_->use_texts(texts); }
  void at(int text, bool waiting) override { inner_->at(text, waiting); }
  [[nodiscard]] std::vector<pipeline::rank_place> ask(std::chrono::duration<double> patience) override {
    return inner_->ask(patience);
  }

 private:
  static constexpr int first_ = static_cast<int>(pipeline::detail::talk_tag::end);

  std::unique_ptr<pipeline::transport> inner_;
  int end_;
  moved_bytes* moved_;
};

}  // namespace espalier::test
