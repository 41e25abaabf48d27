// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>
#include <espalier/comm/run/arrival_list.hpp>
#include <espalier/comm/run/polling_wait.hpp>
#include <espalier/comm/termination.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// A call that its caller cannot look after: it comes back only when the library is done. Entering and leaving costs
/// some stores; the watchdog's thread does the rest.
class watched_call {
 public:
  watched_call(int rank, std::chrono::duration<double> deadline) : rank_(rank), deadline_(deadline) {}

  /// Sets the list where ranks note that they come to calls, which the error reads. Call it before the watchdog knows
  /// of this.
  void note_in(arrival_list& list) { list_ = &list; }

  /// Everything passed is a literal or outlives the call. `number`: of the call, and what it is, for the other ranks.
  /// `seconds`: that it may take beyond the deadline.
  void enter(std::uint64_t number, const call_summary& said, const char* operation, const context* where,
             double seconds) {
    operation_.store(operation, std::memory_order_relaxed);
    where_.store(where, std::memory_order_relaxed);
    seconds_.store(seconds, std::memory_order_relaxed);
    number_.store(number, std::memory_order_relaxed);
    if (list_ != nullptr) list_->enter(number, said);
    said_ = said;
    count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  void leave() { count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

 private:
  friend class watchdog;
  using clock = std::chrono::steady_clock;

  std::atomic<std::uint64_t> count_{0};   // odd: inside
  std::atomic<std::uint64_t> number_{0};  // the same on all ranks
  call_summary said_;                     // read by the watchdog while the call does not come back
  std::atomic<const char*> operation_{nullptr};
  std::atomic<const context*> where_{nullptr};
  std::atomic<double> seconds_{0};
  int rank_;
  std::chrono::duration<double> deadline_;
  arrival_list* list_ = nullptr;
  // The thread's own.
  std::uint64_t seen_ = 0;
  clock::time_point since_{};
};

/// One thread per process that ends it, with words, when a watched call does not come back. It is started by the first
/// call there is to watch, and sleeps between looks.
class watchdog {
 public:
  [[nodiscard]] static watchdog& of_this_process() {
    static watchdog& one = *new watchdog;  // NOLINT: its thread ends with the process, after all of its users
    return one;
  }
  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;

  void add(watched_call& call) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(&call);
    if (!std::exchange(started_, true)) start_unsignalled(&watch_calls, this).detach();
    wake_.notify_all();  // its deadline may be the shortest
  }
  void remove(watched_call& call) {
    const std::lock_guard lock(mutex_);
    std::erase(calls_, &call);
  }

 private:
  using clock = watched_call::clock;

  watchdog() = default;

  static void watch_calls(void* all) { static_cast<watchdog*>(all)->look(); }
  void look() {
    std::unique_lock lock(mutex_);
    for (;;) {
      double pause = 0.5;
      for (watched_call* const call : calls_) {
        if (is_late(*call)) end(*call);
        pause = std::min(pause, call->deadline_.count() / 10);
      }
      wake_.wait_for(lock, std::chrono::duration<double>(std::max(pause, 0.002)));
    }
  }

  [[nodiscard]] static bool is_late(watched_call& call) {
    const std::uint64_t count = call.count_.load(std::memory_order_acquire);
    const clock::time_point now = clock::now();
    if (count != call.seen_) {
      call.seen_ = count;
      call.since_ = now;
    }
    const double allowed = call.deadline_.count() + call.seconds_.load(std::memory_order_relaxed);
    return count % 2 == 1 && std::chrono::duration<double>(now - call.since_).count() > allowed;
  }

  [[noreturn]] static void end(const watched_call& call) {
    // The first process to end may end the others: those that can see which ranks are missing go first.
    constexpr std::chrono::milliseconds for_others{300};
    if (call.list_ != nullptr && !call.list_->knows(call.number_.load())) { std::this_thread::sleep_for(for_others); }
    end_process(text_of(call));
  }

  [[nodiscard]] static std::string text_of(const watched_call& call) {
    std::string missing = "some rank did not come (which, the library does not say)";
    if (call.list_ != nullptr) {
      missing = call.list_->mismatch(call.number_.load(), call.said_, call.rank_, false);
      if (missing.empty()) missing = call.list_->text_of(call.number_.load());
    }
    return "espalier: rank " + std::to_string(call.rank_) + " waited " +
           seconds_text(call.deadline_ + std::chrono::duration<double>(call.seconds_.load())) + " s in " +
           call.operation_.load() + ", which the MPI library carries out: " + missing + during(call.where_.load()) +
           "\n  to wait longer: set ESPALIER_DEADLINE_SECONDS\n";
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<watched_call*> calls_;
  bool started_ = false;
};

}  // namespace espalier::comm::detail
