// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>
#include <espalier/comm/host/space.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace espalier::comm::host {

/// What a rank is waiting for, for the error that ends the wait.
struct awaited {
  int rank = 0;
  const char* what = "";  ///< "data", "room", ...
  std::int64_t chunk = 0;
  std::int64_t chunks = 1;
};

/// Waits for other ranks of a space, with a deadline, and turns what goes wrong into errors that name them.
template <SharedSpace Space> class watch {
 public:
  watch(Space& space, std::chrono::duration<double> deadline)
      : space_(&space), deadline_(deadline), spins_(space.crowded() ? 0 : 2000) {}

  /// Before a call. `word`: its number << 8 and its fingerprint.
  void begin(std::uint64_t word, const char* operation, const context* where) {
    word_ = word;
    operation_ = operation;
    where_ = where;
  }

  /// Returns when `there()`.
  template <class There> ESPALIER_ALWAYS_INLINE void until(There there, const awaited& of) {
    if (!there()) [[unlikely]]
      wait(there, of);
  }

  /// This rank cannot go on: the others hear why.
  void give_up(std::string_view why) {
    rank_state& mine = state_of(space_->region(space_->rank()));
    if (mine.broken.load(std::memory_order_relaxed) != 0) return;
    const std::size_t length = std::min(why.size(), rank_state::text_bytes - 1);
    std::copy_n(why.data(), length, mine.reason.data());
    mine.reason[length] = '\0';
    mine.broken.store(1, std::memory_order_release);
  }

 private:
  using clock = std::chrono::steady_clock;

  template <class There> [[gnu::noinline]] void wait(There there, const awaited& of) {
    for (int i = 0; i < spins_; ++i) {
      pause();
      if (there()) return;
    }
    const auto end = clock::now() + std::chrono::duration_cast<clock::duration>(deadline_);
    for (std::uint64_t turn = 1;; ++turn) {
      std::this_thread::yield();
      if (there()) return;
      if (turn % 16 != 0) continue;
      look_around();
      if (clock::now() > end && !there()) expire(of);
    }
  }

  static void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }

  /// Whether somebody failed, or is in another call.
  void look_around() const {
    if (space_->interrupted()) throw comm_error(prefix() + "was interrupted: another rank failed" + during());
    for (int r = 0; r < space_->size(); ++r) {
      if (r == space_->rank()) continue;
      const rank_state& other = state_of(space_->region(r));
      if (other.broken.load(std::memory_order_acquire) != 0) {
        throw comm_error(prefix() + "could not go on, since rank " + std::to_string(r) +
                         " gave up: " + other.reason.data());
      }
      const std::uint64_t there = other.begun.load(std::memory_order_relaxed);
      if (there >> 8U == word_ >> 8U && there != word_) {
        throw comm_error(prefix() + "and rank " + std::to_string(r) +
                         " are in different collectives: all ranks must call the same operations, with the same "
                         "counts, roots and types, in the same order" +
                         during());
      }
    }
  }

  [[noreturn]] void expire(const awaited& of) const {
    std::vector<int> missing;
    for (int r = 0; r < space_->size(); ++r) {
      if (r == space_->rank()) continue;
      const std::uint64_t there = state_of(space_->region(r)).begun.load(std::memory_order_relaxed);
      if (there >> 8U < word_ >> 8U) missing.push_back(r);
    }
    // All came, but one stopped in the middle.
    if (missing.empty()) missing.push_back(of.rank);
    throw comm_error(detail::expired_text(space_->rank(), operation_, deadline_, missing, where_) +
                     "\n  pending: " + of.what + ", chunk " + std::to_string(of.chunk) + " of " +
                     std::to_string(of.chunks) + ", from rank " + std::to_string(of.rank) + ", over shared memory");
  }

  [[nodiscard]] std::string prefix() const {
    return "rank " + std::to_string(space_->rank()) + ", in " + operation_ + ", ";
  }
  [[nodiscard]] std::string during() const { return detail::during(where_); }

  Space* space_;
  std::chrono::duration<double> deadline_;
  int spins_;
  std::uint64_t word_ = 0;
  const char* operation_ = "";
  const context* where_ = nullptr;
};

}  // namespace espalier::comm::host
