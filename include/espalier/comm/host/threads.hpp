// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>
#include <espalier/comm/host/engine.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace espalier::comm {

namespace host {

/// What the threads of one group share. Outlives their `thread_collectives`.
class thread_group {
 public:
  explicit thread_group(int ranks, const sizes& how = {})
      : ranks_(ranks), how_(how), layout_(checked(ranks), how.region) {
    const auto each = static_cast<std::size_t>(layout_.bytes());
    memory_.reset(static_cast<std::byte*>(::operator new[](each* static_cast<std::size_t>(ranks), alignment)));
    std::fill_n(memory_.get(), each * static_cast<std::size_t>(ranks), std::byte{0});
  }

  [[nodiscard]] int size() const { return ranks_; }
  [[nodiscard]] const sizes& how() const { return how_; }
  [[nodiscard]] std::byte* region(int rank) const { return memory_.get() + rank * layout_.bytes(); }
  /// Ends every wait with an error.
  void interrupt() { interrupted_.store(true, std::memory_order_release); }
  [[nodiscard]] bool interrupted() const { return interrupted_.load(std::memory_order_acquire); }

 private:
  static constexpr std::align_val_t alignment{4096};
  struct release {
    void operator()(std::byte* memory) const { ::operator delete[](memory, alignment); }
  };
  static int checked(int ranks) {
    if (ranks < 1) throw std::invalid_argument("a group of threads has at least one");
    return ranks;
  }

  int ranks_;
  sizes how_;
  region_layout layout_;
  std::unique_ptr<std::byte[], release> memory_;
  std::atomic<bool> interrupted_{false};
};

/// A thread's end of a `thread_group`: everything is in the same memory.
class thread_space {
 public:
  thread_space(thread_group& group, int rank) : group_(&group), rank_(rank) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return group_->size(); }
  [[nodiscard]] std::byte* region(int rank) const { return group_->region(rank); }
  [[nodiscard]] bool crowded() const {
    return static_cast<unsigned>(group_->size()) > std::thread::hardware_concurrency();
  }
  [[nodiscard]] bool exposes() const { return true; }
  [[nodiscard]] exposed expose(const void* data, std::int64_t) const {
    return {reach::direct, reinterpret_cast<std::uintptr_t>(data)};  // NOLINT: turned back by `direct`
  }
  [[nodiscard]] std::byte* direct(int, const exposed& e) const {
    return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(e.where));  // NOLINT: made by `expose`
  }
  [[nodiscard]] bool fetch(int, const exposed&, std::int64_t, void*, std::int64_t) const { return false; }
  [[nodiscard]] bool interrupted() const { return group_->interrupted(); }

 private:
  thread_group* group_;
  int rank_;
};
static_assert(SharedSpace<thread_space>);

}  // namespace host

/// The eight collectives among threads of one process, without a copy but the one from the sender's buffer to the
/// receiver's; little data goes through the group's own memory, so that nobody has to wait for readers.
///
/// One object belongs to one thread; all make the same calls in the same order. Errors: `comm_error` where another
/// thread does not come before the deadline, or is in another call; then the group is unusable.
class thread_collectives {
 public:
  thread_collectives(host::thread_group& group, int rank, std::chrono::duration<double> deadline = default_deadline())
      : space_(group, rank), engine_(space_, group.how(), deadline) {}
  thread_collectives(const thread_collectives&) = delete;
  thread_collectives& operator=(const thread_collectives&) = delete;

  [[nodiscard]] int rank() const { return space_.rank(); }
  [[nodiscard]] int size() const { return space_.size(); }
  [[nodiscard]] bool serves(const collective_call& call, const combiner& by) const {
    return call.ranks == size() && (!reduces(call.what) || (by.combine != nullptr && engine_.holds(by.element_bytes)));
  }

  /// Buffers as `collective_call` says.
  void run(const collective_call& call, const void* input, void* output, const combiner& by,
           const context* where = nullptr) {
    if (reduces(call.what) && by.combine != known_) {
      known_ = by.combine;
      kernel_ = host::fold_of(by);
    }
    engine_.run(call, input, output, by, kernel_, where);
  }

 private:
  host::thread_space space_;
  host::engine<host::thread_space> engine_;
  combiner::function known_ = nullptr;
  host::fold_function kernel_ = nullptr;
};

}  // namespace espalier::comm
