// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/joined.hpp>
#include <espalier/comm/communicator.hpp>
#include <espalier/comm/host/space.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace espalier::comm::host {

/// The chunk of another rank that a rank waits for, for the error that ends the wait.
struct awaited {
  int rank = 0;
  const char* purpose = "";  ///< "data", "room", ...
  std::int64_t chunk = 0;
  std::int64_t chunks = 1;
};

/// Why a rank left a collective that it had begun, for a caller that knows more about the ranks than their numbers.
class wait_error : public comm_error {
 public:
  enum class cause : std::uint8_t {
    expired,    ///< `missing` did not come before the deadline
    different,  ///< another rank is in another call
    failed      ///< another rank failed, here or elsewhere
  };
  wait_error(cause why, const std::string& text, std::vector<int> missing = {}, said_by_ranks said = {})
      : comm_error(text), why_(why), missing_(std::move(missing)), said_(std::move(said)) {}

  [[nodiscard]] cause why() const { return why_; }
  [[nodiscard]] const std::vector<int>& missing() const { return missing_; }
  /// The different calls; none if they are not known.
  [[nodiscard]] const said_by_ranks& said() const { return said_; }

 private:
  cause why_;
  std::vector<int> missing_;
  said_by_ranks said_;
};

/// Waits for other ranks of a space, with a deadline, and turns what goes wrong into errors that name them.
template <SharedSpace Space> class watch {
 public:
  watch(Space& space, std::chrono::duration<double> deadline)
      : space_(&space), deadline_(deadline), spins_(space.crowded() ? 0 : most_spins) {}

  /// Starts a call. `word`: its number << `hash_bits` and its fingerprint.
  void begin(std::uint64_t word, bool noted, const char* operation, const context* where) {
    word_ = word;
    noted_ = noted;
    operation_ = operation;
    where_ = where;
  }

  /// Takes part in the call from now on. Errors: `wait_error` if a rank gave up that cannot be waited with.
  void enter() {
    std::atomic<std::uint64_t>& begun = state_of(space_->region(space_->rank())).begun;
    if constexpr (Space::exposes_private_memory) {
      std::uint64_t before = begun.load(std::memory_order_relaxed);
      // Only `shut` can have come in between.
      if ((before & shut) == 0 && begun.compare_exchange_strong(before, word_)) return;
      look_around();
      fail({"came after another rank had given up", during()});
    } else {
      begun.store(word_, std::memory_order_relaxed);
    }
  }

  /// Returns, after `give_up`, when no rank reads or writes this one's buffers, nor ever will. Ranks that have not come
  /// to the call are kept from it; the others finish it, or give up as well, since they see that this one did.
  void take_back() {
    const std::uint64_t call = word_ >> hash_bits;
    for (int r = 0; r < space_->size(); ++r) {
      if (r == space_->rank()) continue;
      rank_state& other = state_of(space_->region(r));
      const std::uint64_t begun = other.begun.fetch_or(shut) & ~shut;
      if (begun >> hash_bits < call) continue;
      while (other.finished.load(std::memory_order_acquire) < call &&
             other.broken.load(std::memory_order_acquire) == 0) {
        std::this_thread::yield();
      }
    }
  }

  /// This rank found that another one is in another call.
  [[noreturn]] void differ(int rank) const {
    const std::uint64_t number = state_of(space_->region(space_->rank())).notice.number();
    said_by_ranks said = hear_all(number, space_->size(),
                                  [&](int r) -> const call_notice& { return state_of(space_->region(r)).notice; });
    bool heard = false;
    for (const auto& one : said) heard = heard || one.rank == rank;
    // A rank that only sends may have gone on, and one that only meets the others says nothing.
    if (!heard) said.clear();
    throw wait_error(wait_error::cause::different,
                     detail::joined({prefix(), "and rank ", rank,
                                     " are in different collectives: ", detail::mismatch_text(said), during()}),
                     {rank}, said);
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
    const std::size_t length = espalier::detail::smaller_of(why.size(), rank_state::text_bytes - 1);
    std::memcpy(mine.reason.data(), why.data(), length);
    mine.reason[length] = '\0';
    mine.broken.store(1, std::memory_order_release);
  }

 private:
  using clock = std::chrono::steady_clock;
  // Other threads of the process may want this processor, whatever the ranks are: after ten microseconds it is offered.
  static constexpr int most_spins = Space::exposes_private_memory ? 200 : 2000;

  template <class There> [[gnu::noinline]] void wait(There there, const awaited& of) {
    for (int i = 0; i < spins_; ++i) {
      pause();
      if (there()) return;
    }
    const clock::time_point start = clock::now();
    const clock::time_point end = start + std::chrono::duration_cast<clock::duration>(deadline_);
    for (std::uint64_t turn = 1;; ++turn) {
      give_way(start);
      if (there()) return;
      if (turn % 16 != 0) continue;
      look_around();
      if (clock::now() > end && !there()) expire(of);
    }
  }

  /// The awaited rank may need this processor. A device's other threads need it, too: long waits become naps, each
  /// short against the wait so far.
  static void give_way(clock::time_point start) {
    if constexpr (Space::exposes_private_memory) {
      constexpr clock::duration long_wait = std::chrono::milliseconds(1);
      constexpr clock::duration longest_nap = std::chrono::milliseconds(1);
      const clock::duration waited = clock::now() - start;
      if (waited > long_wait)
        return std::this_thread::sleep_for(espalier::detail::smaller_of(waited / 16, longest_nap));
    }
    std::this_thread::yield();
  }

  static void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }

  /// Throws if another rank failed, or is in another call.
  void look_around() const {
    if (space_->interrupted()) { fail({"was interrupted: another rank failed", during()}); }
    for (int r = 0; r < space_->size(); ++r) {
      if (r == space_->rank()) continue;
      const rank_state& other = state_of(space_->region(r));
      if (other.broken.load(std::memory_order_acquire) != 0) {
        fail({"could not go on, since rank ", r, " gave up: ", other.reason.data()});
      }
      const std::uint64_t there = begun_by(other, std::memory_order_relaxed);
      if (there >> hash_bits == word_ >> hash_bits && there != word_) differ(r);
      // It may have come to the same call and not be here: the same number, for something else.
      const call_notice& mine = state_of(space_->region(space_->rank())).notice;
      call_summary said;
      call_summary others;
      if (noted_ && mine.read(mine.number(), said) && other.notice.read(mine.number(), others) &&
          !detail::same_for_all(said, others)) {
        differ(r);
      }
    }
  }

  [[noreturn]] void expire(const awaited& of) const {
    std::vector<int> missing;
    for (int r = 0; r < space_->size(); ++r) {
      if (r == space_->rank()) continue;
      const std::uint64_t there = begun_by(state_of(space_->region(r)), std::memory_order_relaxed);
      if (there >> hash_bits < word_ >> hash_bits) missing.push_back(r);
    }
    // All came, but one stopped in the middle.
    if (missing.empty()) missing.push_back(of.rank);
    const std::string text = detail::joined(
        {detail::expired_text(space_->rank(), operation_, deadline_, missing, where_), "\n  pending: ", of.purpose,
         ", chunk ", of.chunk, " of ", of.chunks, ", from rank ", of.rank, ", over shared memory"});
    throw wait_error(wait_error::cause::expired, text, std::move(missing));
  }

  [[noreturn]] void fail(std::initializer_list<espalier::detail::text_piece> how) const {
    std::string text = prefix();
    detail::append_text(text, how);
    throw wait_error(wait_error::cause::failed, text);
  }

  [[nodiscard]] std::string prefix() const {
    return detail::joined({"rank ", space_->rank(), ", in ", operation_, ", "});
  }
  [[nodiscard]] std::string during() const { return detail::during(where_); }

  Space* space_;
  std::chrono::duration<double> deadline_;
  int spins_;
  std::uint64_t word_ = 0;
  bool noted_ = false;
  const char* operation_ = "";
  const context* where_ = nullptr;
};

}  // namespace espalier::comm::host
