// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/comm/in_process.hpp>
#include <espalier/pipeline/stages/messages/transport.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

/// The state that the ranks of one process share: the messages sent to each rank, and those that it waits for.
class message_hub {
 public:
  explicit message_hub(int ranks) : boxes_(static_cast<std::size_t>(ranks)) {}

  /// One end of a message, until the other one comes.
  struct end {
    int from = 0;
    int tag = 0;
    std::byte* memory = nullptr;
    std::int64_t bytes = 0;
    std::atomic<bool>* done = nullptr;
  };

  void send(int to, const end& sent) {
    mailbox& box = at(to);
    {
      const std::lock_guard lock(box.mutex);
      end wanted;
      if (!take(box.receives, sent, wanted)) {
        box.sends.push_back(sent);
        return;
      }
      deliver(sent, wanted);
    }
    wake(to);
  }
  void receive(int rank, const end& wanted) {
    mailbox& box = at(rank);
    {
      const std::lock_guard lock(box.mutex);
      end sent;
      if (!take(box.sends, wanted, sent)) {
        box.receives.push_back(wanted);
        return;
      }
      deliver(sent, wanted);
    }
    wake(wanted.from);
  }
  /// Forgets all that would be read from or written to this rank's memory; copies are done by then.
  void leave(int rank) {
    for (mailbox& box : boxes_) {
      const std::lock_guard lock(box.mutex);
      std::erase_if(box.sends, [rank](const end& one) { return one.from == rank; });
      if (&box == &at(rank)) box.receives.clear();
    }
  }

  [[nodiscard]] std::uint64_t signals(int rank) { return at(rank).signals.load(std::memory_order_acquire); }
  /// Sleeps until something has happened for this rank since `seen`, a millisecond at most.
  void sleep(int rank, std::uint64_t seen) {
    mailbox& box = at(rank);
    std::unique_lock lock(box.sleep_mutex);
    box.changed.wait_for(lock, std::chrono::milliseconds(1),
                         [&] { return box.signals.load(std::memory_order_acquire) != seen; });
  }

  void fail(const std::string& reason) {
    {
      const std::lock_guard lock(reason_mutex_);
      if (failed_.load()) return;
      reason_ = reason;
      failed_.store(true);
    }
    for (std::size_t k = 0; k < boxes_.size(); ++k) wake(static_cast<int>(k));
  }
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string reason() const {
    const std::lock_guard lock(reason_mutex_);
    return reason_;
  }

  void use_texts(int rank, const std::vector<std::string>& texts) {
    mailbox& box = at(rank);
    const std::lock_guard lock(box.mutex);
    box.place.store(-1);
    box.texts = &texts;
  }
  void set_place(int rank, int text, bool waiting) {
    at(rank).place.store(text * 2 + (waiting ? 1 : 0), std::memory_order_release);
  }
  [[nodiscard]] rank_place place(int rank) {
    mailbox& box = at(rank);
    const std::lock_guard lock(box.mutex);
    const int number = box.place.load(std::memory_order_acquire);
    rank_place where;
    where.known = number >= 0 && box.texts != nullptr && static_cast<std::size_t>(number / 2) < box.texts->size();
    if (!where.known) return where;
    where.waiting = number % 2 == 1;
    where.text = (*box.texts)[static_cast<std::size_t>(number / 2)];
    return where;
  }

 private:
  struct mailbox {
    std::mutex mutex;
    std::vector<end> sends, receives;
    const std::vector<std::string>* texts = nullptr;
    std::atomic<int> place{-1};
    std::mutex sleep_mutex;
    std::condition_variable changed;
    std::atomic<std::uint64_t> signals{0};
  };

  [[nodiscard]] mailbox& at(int rank) { return boxes_[static_cast<std::size_t>(rank)]; }

  [[nodiscard]] static bool take(std::vector<end>& from, const end& other, end& taken) {
    const auto found = std::find_if(from.begin(), from.end(),
                                    [&](const end& one) { return one.from == other.from && one.tag == other.tag; });
    if (found == from.end()) return false;
    taken = *found;
    from.erase(found);
    return true;
  }
  static void deliver(const end& sent, const end& wanted) {
    // Lengths follow from one plan; where they differ, nothing is written out of place.
    const std::int64_t bytes = std::min(sent.bytes, wanted.bytes);
    if (bytes > 0) std::memcpy(wanted.memory, sent.memory, static_cast<std::size_t>(bytes));
    wanted.done->store(true, std::memory_order_release);
    sent.done->store(true, std::memory_order_release);
  }
  void wake(int rank) {
    mailbox& box = at(rank);
    {
      const std::lock_guard lock(box.sleep_mutex);
      box.signals.fetch_add(1, std::memory_order_release);
    }
    box.changed.notify_all();
  }

  std::deque<mailbox> boxes_;
  mutable std::mutex reason_mutex_;
  std::string reason_;
  std::atomic<bool> failed_{false};
};

/// Ranks that are threads of one process: a message is one copy from the sender's memory to the receiver's.
class in_process_transport final : public transport {
 public:
  in_process_transport(comm::in_process_group& group, std::shared_ptr<message_hub> hub, int rank)
      : group_(&group), hub_(std::move(hub)), rank_(rank) {}
  ~in_process_transport() override { hub_->leave(rank_); }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] std::chrono::duration<double> deadline() const override { return group_->deadline(); }

  [[nodiscard]] int send(int to, int tag, const void* data, std::int64_t bytes) override {
    const int request = fresh();
    // The hub writes to memory of receives only.
    auto* const memory = static_cast<std::byte*>(const_cast<void*>(data));  // NOLINT
    hub_->send(to, {rank_, tag, memory, bytes, &requests_[static_cast<std::size_t>(request)]});
    return request;
  }
  [[nodiscard]] int receive(int from, int tag, void* data, std::int64_t bytes) override {
    const int request = fresh();
    hub_->receive(rank_,
                  {from, tag, static_cast<std::byte*>(data), bytes, &requests_[static_cast<std::size_t>(request)]});
    return request;
  }
  [[nodiscard]] bool finished(int request) override {
    if (!requests_[static_cast<std::size_t>(request)].load(std::memory_order_acquire)) return false;
    free_.push_back(request);
    ++ended_;
    return true;
  }
  void progress(bool idle) override {
    if (hub_->failed()) throw comm::comm_error(hub_->reason() + "\n  noticed by rank " + std::to_string(rank_));
    if (group_->aborted())
      throw comm::comm_error(group_->abort_reason() + "\n  noticed by rank " + std::to_string(rank_));
    if (!idle) return;
    const std::uint64_t now = hub_->signals(rank_);
    if (now != seen_) {
      seen_ = now;
      return;
    }
    std::this_thread::yield();
    if (hub_->signals(rank_) == seen_ && ++idle_turns_ % 32 == 0) hub_->sleep(rank_, seen_);
  }
  [[nodiscard]] std::int64_t ended() const override { return ended_; }

  void fail(const std::string& reason) override { hub_->fail(reason); }
  [[nodiscard]] bool one_clock() const override { return true; }
  [[nodiscard]] int last_tag() const override { return std::numeric_limits<int>::max(); }
  void use_texts(const std::vector<std::string>& texts) override { hub_->use_texts(rank_, texts); }
  void at(int text, bool waiting) override { hub_->set_place(rank_, text, waiting); }
  [[nodiscard]] std::vector<rank_place> ask(std::chrono::duration<double> /*patience*/) override {
    std::vector<rank_place> places;
    for (int k = 0; k < size(); ++k) places.push_back(hub_->place(k));
    return places;
  }

 private:
  [[nodiscard]] int fresh() {
    if (free_.empty()) {
      free_.push_back(static_cast<int>(requests_.size()));
      requests_.emplace_back(false);
    }
    const int request = free_.back();
    free_.pop_back();
    requests_[static_cast<std::size_t>(request)].store(false, std::memory_order_relaxed);
    return request;
  }

  comm::in_process_group* group_;
  std::shared_ptr<message_hub> hub_;
  int rank_;
  std::deque<std::atomic<bool>> requests_;  // whether each has ended; they do not move
  std::vector<int> free_;
  std::int64_t ended_ = 0;
  std::uint64_t seen_ = 0;
  unsigned idle_turns_ = 0;
};

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// The messages of a pipeline whose ranks are threads. All ranks of the group call it.
[[nodiscard]] inline std::unique_ptr<transport> make_transport(comm::in_process_communicator& ranks) {
  // Rank 0 makes what is shared, and tells the others where it is; it stays until all have a share of it.
  std::shared_ptr<detail::message_hub> hub;
  std::shared_ptr<detail::message_hub>* shared = &hub;
  if (ranks.rank() == 0) hub = std::make_shared<detail::message_hub>(ranks.size());
  ranks.broadcast(static_cast<void*>(&shared), sizeof shared, 0);
  if (ranks.rank() != 0) hub = *shared;
  ranks.barrier();
  return std::make_unique<detail::in_process_transport>(ranks.group(), std::move(hub), ranks.rank());
}

}  // namespace espalier::pipeline
