// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/comm/host/copy.hpp>
#include <espalier/comm/run/call_summary.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace espalier::comm::host {

/// A flag and what fits beside it into one cache line: a short message is there as soon as its flag is seen.
struct alignas(64) flag_line {
  static constexpr std::int64_t room = 56;
  std::atomic<std::uint64_t> flag;
  std::byte beside[static_cast<std::size_t>(room)];
};
static_assert(sizeof(flag_line) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);

/// A rank's notice of the call that it is in, for ranks that have waited long enough to look. Zero at first: none.
class call_notice {
 public:
  /// `number`: of the call, from 1; the ranks count alike.
  void write(std::uint64_t number, const call_summary& said) {
    number_.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    words_[0].store(said.kind, std::memory_order_relaxed);
    words_[1].store(said.element_bytes, std::memory_order_relaxed);
    words_[2].store(said.size, std::memory_order_relaxed);
    number_.store(number, std::memory_order_release);
  }
  [[nodiscard]] std::uint64_t number() const { return number_.load(std::memory_order_acquire); }
  /// Whether it is about this call; then what it says.
  [[nodiscard]] bool read(std::uint64_t number, call_summary& said) const {
    if (number_.load(std::memory_order_acquire) != number) return false;
    said.kind = words_[0].load(std::memory_order_relaxed);
    said.element_bytes = words_[1].load(std::memory_order_relaxed);
    said.size = words_[2].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    return number_.load(std::memory_order_relaxed) == number;
  }

 private:
  std::atomic<std::uint64_t> number_;
  std::array<std::atomic<std::uint64_t>, 3> words_;
};

/// The ranks' notices of the call with this number, for an error: a rank that has not come is given a moment to come.
/// `notice_of(k)`: the notice of the k-th of them.
template <class NoticeOf>
[[nodiscard]] said_by_ranks hear_all(std::uint64_t number, int ranks, const NoticeOf& notice_of) {
  constexpr int most = 100;
  said_by_ranks said;
  for (int turn = 0; turn < most; ++turn) {
    said.clear();
    bool all_came = true;
    for (int k = 0; k < ranks; ++k) {
      call_summary there;
      if (notice_of(k).read(number, there)) {
        said.push_back({k, there});
      } else {
        all_came = all_came && notice_of(k).number() > number;
      }
    }
    if (all_came) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return said;
}

/// The state of a rank that others see: calls begun and finished, and why it gave up.
struct alignas(64) rank_state {
  static constexpr std::size_t text_bytes = 952;
  std::atomic<std::uint64_t> begun;  ///< number of the call << `hash_bits` | fingerprint of the call; perhaps | `shut`
  std::atomic<std::uint64_t> finished;
  std::atomic<std::int64_t> process;  ///< its number in the operating system
  std::atomic<std::uint64_t> probe;   ///< read by others to find out whether they may
  call_notice notice;                 ///< of the call that it is in, here or elsewhere
  std::atomic<std::uint64_t> broken;
  std::array<char, text_bytes> reason;
};

/// The fingerprint of a call has so many bits in `begun` and in flags.
inline constexpr unsigned hash_bits = 16;

/// A bit of a rank's `begun`: the rank must not begin another call, since a rank that gave up has taken its buffers
/// away.
inline constexpr std::uint64_t shut = std::uint64_t{1} << 63U;

/// The call that a rank has begun last.
[[nodiscard]] inline std::uint64_t begun_by(const rank_state& state, std::memory_order order) {
  return state.begun.load(order) & ~shut;
}

/// Tells how other ranks can reach a rank's data in one call.
enum class reach : std::uint64_t {
  staged,  ///< it copies them to its region, chunk by chunk
  direct,  ///< others read (and write) them in place
  kernel,  ///< others ask the operating system for a copy
  unknown  ///< not said yet
};
struct exposed {
  reach how = reach::staged;
  std::uint64_t where = 0;
};

/// Memory that ranks of one host share, as the collectives in comm/host/engine.hpp need it.
///
/// * `region(rank)`: memory of `region_layout`, mapped here, zero at first; only its rank writes to it.
/// * `exposes()`: whether any rank may have something to expose; the same on all ranks.
/// * `expose(data, bytes)`: how others reach this rank's data in place. `direct(rank, e)` is the pointer to them here;
///   `fetch(rank, e, offset, to, bytes)` a copy by the operating system, true if that was possible.
/// * `crowded()`: more ranks than processors, so that a waiting rank must yield.
/// * `interrupted()`: waits should end, since some rank failed elsewhere.
/// * `exposes_private_memory`: others read (and write) private memory in place. It is gone when its owner's call ends,
///   however that ends.
template <class T>
concept SharedSpace = requires(T& space, const T& view, int rank, const void* data, const exposed& e, void* to,
                               std::int64_t bytes) {
  { view.rank() } -> std::same_as<int>;
  { view.size() } -> std::same_as<int>;
  { view.region(rank) } -> std::same_as<std::byte*>;
  { view.crowded() } -> std::same_as<bool>;
  { view.exposes() } -> std::same_as<bool>;
  { view.expose(data, bytes) } -> std::same_as<exposed>;
  { view.direct(rank, e) } -> std::same_as<std::byte*>;
  { space.fetch(rank, e, bytes, to, bytes) } -> std::same_as<bool>;
  { view.interrupted() } -> std::same_as<bool>;
  { T::exposes_private_memory } -> std::convertible_to<bool>;
};

/// A part of every region for messages of one order of size. Call number c uses its copy c % depth, so that a rank can
/// be `depth` calls ahead of another before it has to wait.
struct tier {
  std::int64_t depth = 1;
  std::int64_t flags = 1;  ///< lines of flags in each copy
  std::int64_t bytes = 0;  ///< of data in each copy
  std::int64_t at = 0;     ///< in the region

  [[nodiscard]] std::int64_t copy_bytes() const { return flags * line_bytes + bytes; }
};

/// The layout of a region: state, one line per rank for what was taken from it, tiers.
class region_layout {
 public:
  static constexpr int tiers = 4;

  region_layout() = default;
  /// `bytes`: of the largest tier.
  region_layout(int ranks, std::int64_t bytes) {
    const std::int64_t peers = espalier::detail::larger_of(1, ranks - 1);
    taken_at_ = static_cast<std::int64_t>(sizeof(rank_state));
    std::int64_t at = taken_at_ + ranks * line_bytes;
    // Small copies are many, since a rank that only sends should not have to look how far the others are; where ranks
    // are many too, memory counts.
    const bool many = ranks > 8;
    tiers_ = {tier{64, peers, 0, 0}, tier{many ? 8 : 32, peers, peers * 1024, 0},
              tier{many ? 2 : 8, espalier::detail::larger_of<std::int64_t>(8, peers),
                   espalier::detail::larger_of<std::int64_t>(64 << 10, peers * 8192), 0},
              tier{2, espalier::detail::larger_of<std::int64_t>(16, 2 * peers),
                   espalier::detail::larger_of<std::int64_t>(bytes, peers * 16384), 0}};
    for (tier& t : tiers_) {
      t.at = at;
      at += t.depth * t.copy_bytes();
    }
    bytes_ = at;
  }

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] const tier& of(int index) const { return tiers_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] std::int64_t taken_at(int source) const { return taken_at_ + source * line_bytes; }

 private:
  std::array<tier, tiers> tiers_;
  std::int64_t taken_at_ = 0;
  std::int64_t bytes_ = 0;
};

[[nodiscard]] inline rank_state& state_of(std::byte* region) {
  return *reinterpret_cast<rank_state*>(region);  // NOLINT: shared memory has no constructor
}
[[nodiscard]] inline flag_line& line_at(std::byte* region, std::int64_t at) {
  return *reinterpret_cast<flag_line*>(region + at);  // NOLINT: as above
}

}  // namespace espalier::comm::host
