// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/comm/communicator.hpp>
#include <espalier/comm/host/engine.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <thread>

namespace espalier::comm {

namespace host {

/// The memory that the threads of one group share. Outlives their `thread_collectives`.
class thread_group {
 public:
  /// `running`: threads that want a processor, if more than these.
  explicit thread_group(int ranks, const sizes& how = {}, int running = 0)
      : ranks_(ranks),
        how_(how),
        layout_(checked(ranks), how.region),
        crowded_(static_cast<unsigned>(espalier::detail::larger_of(ranks, running)) >
                 std::thread::hardware_concurrency()) {
    // Pages that no call ever uses are never touched, so they cost nothing: there are many groups, and large calls need
    // no memory.
    const auto bytes = static_cast<std::size_t>(layout_.bytes() * ranks);
    memory_ = static_cast<std::byte*>(std::calloc(bytes + static_cast<std::size_t>(line_bytes), 1));  // NOLINT
    if (memory_ == nullptr) throw std::bad_alloc();
    first_ = memory_ + to_next_line(memory_, line_bytes);
  }
  thread_group(const thread_group&) = delete;
  thread_group& operator=(const thread_group&) = delete;
  ~thread_group() { std::free(memory_); }  // NOLINT: from calloc

  [[nodiscard]] int size() const { return ranks_; }
  [[nodiscard]] const sizes& how() const { return how_; }
  [[nodiscard]] std::byte* region(int rank) const { return first_ + rank * layout_.bytes(); }
  /// There are more threads than processors: a waiting one must yield.
  [[nodiscard]] bool crowded() const { return crowded_; }
  /// Ends every wait with an error.
  void interrupt() { interrupted_.store(true, std::memory_order_release); }
  [[nodiscard]] bool interrupted() const { return interrupted_.load(std::memory_order_acquire); }

 private:
  static int checked(int ranks) {
    if (ranks < 1) throw std::invalid_argument("a group of threads has at least one");
    return ranks;
  }

  int ranks_;
  sizes how_;
  region_layout layout_;
  bool crowded_;
  std::byte* memory_ = nullptr;
  std::byte* first_ = nullptr;
  std::atomic<bool> interrupted_{false};
};

/// A thread's end of a `thread_group`: everything is in the same memory.
class thread_space {
 public:
  static constexpr bool exposes_private_memory = true;

  thread_space(thread_group& group, int rank) : group_(&group), rank_(rank) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return group_->size(); }
  [[nodiscard]] std::byte* region(int rank) const { return group_->region(rank); }
  [[nodiscard]] bool crowded() const { return group_->crowded(); }
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
/// receiver's; little data goes through the group's own memory, so that no rank has to wait for readers.
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
    return call.ranks == size() && (!reduces(call.kind) || (by.combine != nullptr && engine_.holds(by.element_bytes)));
  }

  /// Buffers as `collective_call` says.
  void run(const collective_call& call, const void* input, void* output, const combiner& by,
           const context* where = nullptr) {
    engine_.run(call, detail::summary_of(call, by), 0, input, output, by, where);
  }
  /// The same for a collective that combines nothing. @pre `!reduces(call.kind)`
  void move(const collective_call& call, const void* input, void* output, std::int64_t element_bytes,
            const context* where = nullptr) {
    const combiner by = moves_only(element_bytes);
    engine_.run(call, detail::summary_of(call, by), 0, input, output, by, where);
  }

  /// Returns once all ranks have called it. `operation` is the name that the error of a timeout gives.
  void meet(const char* operation, const context* where = nullptr) { engine_.meet(operation, where); }

  using engine = host::engine<host::thread_space>;
  /// All ranks expose memory to each other while `work(readable)` runs in each, for exchanges that no `collective_call`
  /// describes: see `host::engine::meet`.
  void meet(const char* operation, const call_summary& summary, const engine::exposed_source& mine,
            const context* where, engine::packer pack, engine::memory_reader work) {
    engine_.meet(operation, summary, mine, where, pack, work);
  }

 private:
  host::thread_space space_;
  engine engine_;
};

}  // namespace espalier::comm
