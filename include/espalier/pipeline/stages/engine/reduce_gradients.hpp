// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/reduce.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/layers/pool.hpp>
#include <espalier/pipeline/stages/messages/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::pipeline::detail {

/// The sum of one block of gradients over the ranks that use it, in the background: `start` it, `advance` it between
/// instructions until it is done. It has two tags.
class block_reduction {
 public:
  block_reduction() = default;
  block_reduction(const block_reduction&) = delete;
  block_reduction& operator=(const block_reduction&) = delete;
  virtual ~block_reduction() = default;

  [[nodiscard]] virtual std::int64_t staging_bytes() const = 0;
  virtual void start(transport& ranks, std::byte* gradients) = 0;
  /// True when all sums are there.
  virtual bool advance(transport& ranks) = 0;
};

/// The sum over ranks that have the same part of the block. Each rank gets the others' values of its share, adds them
/// in the order of ranks, and sends the sums back: the same bits on all ranks and in every run.
class gradient_reduction final : public block_reduction {
 public:
  gradient_reduction(const layer_facts& owner, std::vector<int> members, int rank, int tag)
      : facts_(&owner), members_(std::move(members)), tag_(tag) {
    self_ = static_cast<std::size_t>(std::find(members_.begin(), members_.end(), rank) - members_.begin());
    const auto count = static_cast<std::int64_t>(members_.size());
    const std::int64_t lines = (owner.parameter_bytes + aligned_memory::alignment - 1) / aligned_memory::alignment;
    for (std::int64_t k = 0; k <= count; ++k)
      bounds_.push_back(std::min(owner.parameter_bytes, lines * k / count * aligned_memory::alignment));
    staging_ = aligned_memory(share(self_) * (count - 1));
    for (auto* list : {&given_, &got_, &sums_out_, &sums_in_}) list->assign(members_.size(), none);
    parts_.resize(members_.size());
  }

  [[nodiscard]] std::int64_t staging_bytes() const override {
    return share(self_) * (static_cast<std::int64_t>(members_.size()) - 1);
  }

  void start(transport& ranks, std::byte* gradients) override {
    gradients_ = gradients;
    missing_ = 0;
    open_ = 0;
    summed_ = members_.size() == 1;
    for (std::size_t k = 0; k < members_.size(); ++k) {
      if (k == self_) continue;
      if (share(self_) > 0) {
        got_[k] = ranks.receive(members_[k], tag_, slot(k), share(self_));
        ++missing_;
      }
      if (share(k) > 0) given_[k] = ranks.send(members_[k], tag_, gradients_ + bounds_[k], share(k));
    }
    open_ = missing_ + static_cast<int>(std::count_if(given_.begin(), given_.end(), is_open));
    if (missing_ == 0) summed_ = true;
  }

  bool advance(transport& ranks) override {
    if (open_ == 0) return true;
    for (std::size_t k = 0; k < members_.size(); ++k) {
      if (ends(ranks, got_[k]) && --missing_ == 0 && !summed_) {
        sum();
        summed_ = true;
        for (std::size_t other = 0; other < members_.size(); ++other) {
          if (other == self_) continue;
          sums_out_[other] = ranks.send(members_[other], tag_ + 1, gradients_ + bounds_[self_], share(self_));
          ++open_;
        }
      }
      // Its sums overwrite what is being sent to it: not before that has gone.
      if (ends(ranks, given_[k])) {
        sums_in_[k] = ranks.receive(members_[k], tag_ + 1, gradients_ + bounds_[k], share(k));
        ++open_;
      }
      (void)ends(ranks, sums_out_[k]);
      (void)ends(ranks, sums_in_[k]);
    }
    return open_ == 0;
  }

 private:
  static constexpr int none = -1;
  [[nodiscard]] static bool is_open(int request) { return request != none; }
  [[nodiscard]] std::int64_t share(std::size_t k) const { return bounds_[k + 1] - bounds_[k]; }
  [[nodiscard]] std::byte* slot(std::size_t k) const {
    return staging_.data() + share(self_) * static_cast<std::int64_t>(k < self_ ? k : k - 1);
  }
  bool ends(transport& ranks, int& request) {
    if (request == none || !ranks.finished(request)) return false;
    request = none;
    --open_;
    return true;
  }

  void sum() {
    const std::int64_t begin = bounds_[self_];
    for (const tensor_facts& one : facts_->parameters) {
      const std::int64_t first = std::max(begin, one.offset);
      const std::int64_t last = std::min(bounds_[self_ + 1], one.offset + one.bytes());
      if (first >= last) continue;
      for (std::size_t k = 0; k < members_.size(); ++k)
        parts_[k] = {k == self_ ? gradients_ + first : slot(k) + (first - begin), nullptr};
      const std::int64_t count = (last - first) / size_of(one.type);
      comm::detail::reduce_range(comm::reducer_of(one.type, reduction::sum), gradients_ + first,
                                 comm::contiguous_block(count), 0, count, parts_.data(),
                                 static_cast<int>(members_.size()));
    }
  }

  const layer_facts* facts_;
  std::vector<int> members_;
  int tag_;
  std::size_t self_ = 0;
  std::vector<std::int64_t> bounds_;
  aligned_memory staging_;
  std::vector<int> given_, got_, sums_out_, sums_in_;  // requests, by member
  std::vector<comm::contribution> parts_;
  std::byte* gradients_ = nullptr;
  int missing_ = 0;
  int open_ = 0;
  bool summed_ = false;
};

}  // namespace espalier::pipeline::detail
