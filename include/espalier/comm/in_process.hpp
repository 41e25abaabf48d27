// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace espalier::comm::detail {

ESPALIER_ALWAYS_INLINE void pause_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// A reusable barrier that can be broken: a member that gives up leaves either before everybody met or not at all.
/// That is what makes zero-copy safe: nobody's buffers disappear while another member may still read them.
class meeting_point {
 public:
  enum class outcome { met, broken, expired };

  meeting_point(int members, bool oversubscribed) : members_(members), spins_(oversubscribed ? 0 : 1000) {}

  /// Waits until all members are here. With `gives_up()` true, or after `deadline`, breaks it for good.
  template <class GivesUp> outcome meet(std::chrono::duration<double> deadline, GivesUp gives_up) {
    std::uint64_t now = state_.load();
    std::uint64_t next = 0;
    do {
      if (now & broken_bit) return outcome::broken;
      const bool last = (now & count_mask) + 1 == static_cast<std::uint64_t>(members_);
      next = last ? (phase_of(now) + 1) << phase_shift : now + 1;
    } while (!state_.compare_exchange_weak(now, next));
    const std::uint64_t phase = phase_of(now);
    if ((next & count_mask) == 0) {
      wake();
      return outcome::met;
    }
    return wait(phase, deadline, gives_up);
  }

  /// Makes sleeping members look again whether to give up.
  void wake() {
    if (sleepers_.load() == 0) return;
    { const std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }

 private:
  static constexpr int phase_shift = 16;
  static constexpr std::uint64_t count_mask = (std::uint64_t{1} << phase_shift) - 1;
  static constexpr std::uint64_t broken_bit = std::uint64_t{1} << 63;

  static std::uint64_t phase_of(std::uint64_t state) { return (state & ~broken_bit) >> phase_shift; }

  [[nodiscard]] bool settled(std::uint64_t phase) const {
    const std::uint64_t now = state_.load();
    return phase_of(now) != phase || (now & broken_bit) != 0;
  }

  /// A meeting that took place counts, even if a later one was broken since.
  [[nodiscard]] outcome result(std::uint64_t phase) const {
    return phase_of(state_.load()) != phase ? outcome::met : outcome::broken;
  }

  template <class GivesUp> outcome wait(std::uint64_t phase, std::chrono::duration<double> deadline, GivesUp gives_up) {
    constexpr int yields = 32;
    for (int i = 0; i < spins_ && !settled(phase); ++i) pause_processor();
    for (int i = 0; i < yields && !settled(phase); ++i) std::this_thread::yield();
    if (settled(phase)) return result(phase);
    const bool expired = sleep(phase, deadline, gives_up);
    if (settled(phase)) return result(phase);
    return leave(phase) ? (expired ? outcome::expired : outcome::broken) : result(phase);
  }

  /// True when the deadline passed; false when the meeting is settled or the member gives up.
  template <class GivesUp> bool sleep(std::uint64_t phase, std::chrono::duration<double> deadline, GivesUp gives_up) {
    using clock = std::chrono::steady_clock;
    const auto until = clock::now() + std::chrono::duration_cast<clock::duration>(deadline);
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    bool expired = false;
    while (!expired && !settled(phase) && !gives_up()) {
      expired = changed_.wait_until(lock, until) == std::cv_status::timeout;
    }
    sleepers_.fetch_sub(1);
    return expired;
  }

  /// Breaks the meeting unless everybody arrived in the meantime.
  bool leave(std::uint64_t phase) {
    std::uint64_t now = state_.load();
    while (phase_of(now) == phase && (now & broken_bit) == 0) {
      if (state_.compare_exchange_weak(now, now | broken_bit)) {
        wake();
        return true;
      }
    }
    return false;
  }

  int members_;
  int spins_;
  std::atomic<std::uint64_t> state_{0};  // broken : 1, phase : 47, members here : 16
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

/// What a member shows the others during one operation.
struct published {
  const void* source = nullptr;
  void* target = nullptr;
  const char* operation = "";
  std::int64_t count = 0;
  int channel = 0;
  std::atomic<std::uint64_t> arrivals{0};
};

/// What the members of one group share.
struct shared_group {
  shared_group(std::vector<int> ranks, bool oversubscribed)
      : members(std::move(ranks)),
        slots(members.size()),
        start(static_cast<int>(members.size()), oversubscribed),
        finish(static_cast<int>(members.size()), oversubscribed) {}
  std::vector<int> members;
  std::vector<published> slots;
  meeting_point start;   // everybody has published
  meeting_point finish;  // nobody needs anybody's buffers any more
};

}  // namespace espalier::comm::detail

namespace espalier::comm {

class in_process_communicator;

/// The devices of one process, each a thread; what they share. Outlives its communicators.
class in_process_group {
 public:
  explicit in_process_group(int size, std::chrono::duration<double> deadline = default_deadline())
      : size_(size), deadline_(deadline), contexts_(static_cast<std::size_t>(size)) {
    if (size < 1 || size > 65535) throw comm_error("an in-process group has 1 to 65535 devices");
  }

  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] std::chrono::duration<double> deadline() const { return deadline_; }
  /// What errors add to a rank's number: where it stands on the mesh, "data 1, model 0". Set before the devices start.
  void set_places(std::vector<std::string> places) { places_ = std::move(places); }
  /// "rank 2 (data 1, model 0)"
  [[nodiscard]] std::string name_of(int rank) const {
    const auto k = static_cast<std::size_t>(rank);
    const bool placed = k < places_.size() && !places_[k].empty();
    return "rank " + std::to_string(rank) + (placed ? " (" + places_[k] + ")" : "");
  }

  /// Device `rank`'s own communicator, for one thread.
  [[nodiscard]] in_process_communicator device(int rank);

  /// Rank `rank` cannot go on: every wait of the others ends with an error that repeats `reason`. The first call
  /// counts; `what` is kept with it.
  void abort(int rank, const std::string& reason, const std::exception_ptr& what = std::current_exception()) {
    const std::lock_guard lock(mutex_);
    if (aborted_.load()) return;
    reason_ = name_of(rank) + " failed: " + reason;
    exception_ = what;
    aborted_.store(true);
    for (const auto& group : groups_) group->start.wake();
  }
  [[nodiscard]] bool aborted() const { return aborted_.load(); }
  /// Which rank failed first and why; empty while none has.
  [[nodiscard]] std::string abort_reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  /// The exception given to the first `abort`, if any: the one that was being handled, if no other.
  [[nodiscard]] std::exception_ptr abort_exception() const {
    const std::lock_guard lock(mutex_);
    return exception_;
  }

 private:
  friend class in_process_communicator;

  detail::shared_group& shared(const std::vector<int>& members) {
    const std::lock_guard lock(mutex_);
    for (const auto& group : groups_) {
      if (group->members == members) return *group;
    }
    // More runnable threads than cores: a spinning one only keeps the awaited one from running.
    const bool oversubscribed = static_cast<unsigned>(size_) > std::thread::hardware_concurrency();
    groups_.push_back(std::make_unique<detail::shared_group>(members, oversubscribed));
    return *groups_.back();
  }

  int size_;
  std::chrono::duration<double> deadline_;
  std::vector<std::string> places_;
  std::vector<std::atomic<const context*>> contexts_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<detail::shared_group>> groups_;
  std::string reason_;
  std::exception_ptr exception_;
  std::atomic<bool> aborted_{false};
};

/// A device's end of an `in_process_group`: no copies but the one from the sender's source to the receiver's target.
class in_process_communicator {
 public:
  in_process_communicator(in_process_group& group, int rank) : group_(&group), rank_(rank) {
    if (rank < 0 || rank >= group.size()) {
      throw comm_error("there is no device " + std::to_string(rank) + " of " + std::to_string(group.size()));
    }
    world_.members.resize(static_cast<std::size_t>(group.size()));
    for (int k = 0; k < group.size(); ++k) world_.members[static_cast<std::size_t>(k)] = k;
    world_.self = rank;
    prepare(world_);
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return group_->size(); }

  void prepare(const transfer& moves) {
    detail::require_consistent(moves, rank_, size());
    prepare(static_cast<const transfer_group&>(moves));
  }
  void prepare(const transfer_group& group) {
    detail::require_consistent(group, rank_, size());
    counters_.reserve(group.channel);
    (void)shared(group.members);
    reserve_parts(group.members.size());
  }

  void exchange(const transfer& moves, const void* source, void* target) {
    const auto copy = [&](detail::shared_group& shared) {
      const int members = static_cast<int>(moves.members.size());
      // Each member starts with itself and goes on from there: not everybody reads the same peer at once.
      for (int step = 0; step < members; ++step) {
        const auto k = static_cast<std::size_t>((moves.self + step) % members);
        copy_block(moves.type, target, shared.slots[k].source, moves.incoming[k]);
      }
    };
    run("exchange", moves, source, target, size_of(moves.type), copy);
    counters_.add(moves.channel, sent_bytes(moves));
  }

  void reduce_exchange(const transfer& moves, const void* source, void* target, reduction kind) {
    detail::require_reducible(moves.type, kind, where_);
    detail::require_one_size(moves, where_);
    reserve_parts(moves.members.size());
    const auto reduce = [&](detail::shared_group& shared) {
      for (std::size_t k = 0; k < moves.members.size(); ++k) parts_[k] = {shared.slots[k].source, &moves.incoming[k]};
      const block& box = moves.incoming[static_cast<std::size_t>(moves.self)];
      detail::reduce_range(moves.type, kind, target, box, 0, box.elements(), parts_.data(),
                           static_cast<int>(moves.members.size()));
    };
    run("reduce_exchange", moves, source, target, size_of(moves.type), reduce);
    counters_.add(moves.channel, sent_bytes(moves));
  }

  void all_reduce(const transfer_group& group, const void* source, void* target, std::int64_t count, dtype type,
                  reduction kind) {
    detail::require_reducible(type, kind, where_);
    const auto members = static_cast<int>(group.members.size());
    reserve_parts(group.members.size());
    const auto reduce = [&](detail::shared_group& shared) { reduce_own_range(shared, group, count, type, kind); };
    run("all_reduce", group, source, target, count * size_of(type), reduce);
    counters_.add(group.channel, all_reduce_sent_bytes(count, size_of(type), members, group.self));
  }

  void barrier() {
    run("barrier", world_, nullptr, nullptr, 0, [](detail::shared_group&) {});
  }

  /// `bytes` bytes at `data`, from rank `root` to all.
  void broadcast(void* data, std::int64_t bytes, int root) {
    run("broadcast", world_, data, data, bytes, [&](detail::shared_group& shared) {
      if (rank_ == root || bytes == 0) return;
      std::memcpy(data, shared.slots[static_cast<std::size_t>(root)].source, static_cast<std::size_t>(bytes));
    });
  }

  [[nodiscard]] std::span<const std::int64_t> counters() const { return counters_.view(); }
  void reset_counters() { counters_.reset(); }

  /// `*where` must stay valid as long as the group: another device's error may quote it.
  void set_context(const context* where) {
    where_ = where;
    group_->contexts_[static_cast<std::size_t>(rank_)].store(where, std::memory_order_release);
  }

  /// Ends every other device's waits with an error that names this rank, `reason` and the instruction. Returns; the
  /// caller then throws.
  void abort(const std::string& reason) { group_->abort(rank_, reason + place_of_failure(reason)); }

 private:
  using outcome = detail::meeting_point::outcome;

  /// Between collectives only the last instruction that was named is known. An error of a collective names it itself.
  [[nodiscard]] std::string place_of_failure(const std::string& reason) const {
    const std::string instruction = detail::describe(where_);
    if (instruction.empty() || reason.find(instruction) != std::string::npos) return "";
    return (inside_ ? "\n  instruction: " : "\n  in or after instruction: ") + instruction;
  }

  void reserve_parts(std::size_t members) {
    if (parts_.size() < members) parts_.resize(members);
  }

  detail::shared_group& shared(const std::vector<int>& members) {
    for (detail::shared_group* known : known_groups_) {
      if (known->members == members) return *known;
    }
    known_groups_.push_back(&group_->shared(members));
    return *known_groups_.back();
  }

  /// Publishes this device's buffers, meets the group, does `work(shared)`, and meets again before anybody goes on.
  template <class Work>
  void run(const char* operation, const transfer_group& group, const void* source, void* target, std::int64_t count,
           Work work) {
    detail::shared_group& all = shared(group.members);
    detail::published& mine = all.slots[static_cast<std::size_t>(group.self)];
    if (group_->aborted()) fail();
    inside_ = true;
    // Arrivals first: a peer whose wait expires right now should not call this rank missing.
    mine.arrivals.fetch_add(1);
    mine.source = source;
    mine.target = target;
    mine.operation = operation;
    mine.count = count;
    mine.channel = group.channel;
    settle(all.start.meet(group_->deadline(), [this] { return group_->aborted(); }), operation, all, mine);
    // From here to the second meeting nothing throws and nothing gives up: peers read this device's buffers.
    const bool agreed = agrees(all, mine);
    if (agreed) work(all);
    settle(all.finish.meet(group_->deadline(), [] { return false; }), operation, all, mine);
    if (!agreed) disagree(operation, all);
    inside_ = false;
  }

  static bool agrees(const detail::shared_group& all, const detail::published& mine) {
    for (const detail::published& other : all.slots) {
      if (std::strcmp(other.operation, mine.operation) != 0 || other.count != mine.count ||
          other.channel != mine.channel) {
        return false;
      }
    }
    return true;
  }

  [[noreturn]] void disagree(const char* operation, const detail::shared_group& all) {
    std::string text = "rank " + std::to_string(rank_) + " and its group are not in the same collective: it is in " +
                       operation + detail::during(where_);
    for (const int member : all.members) {
      if (member != rank_) text += "\n  " + group_->name_of(member) + doing(member);
    }
    throw comm_error(text);
  }

  void settle(outcome result, const char* operation, const detail::shared_group& all, const detail::published& mine) {
    if (result == outcome::met) return;
    if (result == outcome::expired) {
      const std::uint64_t here = mine.arrivals.load();
      std::vector<int> missing;
      for (std::size_t k = 0; k < all.members.size(); ++k) {
        if (all.slots[k].arrivals.load() < here) missing.push_back(all.members[k]);
      }
      std::string text = detail::expired_text(rank_, operation, group_->deadline(), missing, where_);
      for (const int member : missing) text += "\n  " + group_->name_of(member) + doing(member);
      const comm_error error(text);
      group_->abort(rank_, text, std::make_exception_ptr(error));
      throw error;
    }
    fail();
  }

  [[nodiscard]] std::string doing(int member) const {
    const context* where = group_->contexts_[static_cast<std::size_t>(member)].load(std::memory_order_acquire);
    return where == nullptr ? " has named no instruction" : " was last seen in " + detail::describe(where);
  }

  [[noreturn]] void fail() {
    // Whoever broke the meeting says why right after it.
    for (int i = 0; i < 10000 && !group_->aborted(); ++i) std::this_thread::sleep_for(std::chrono::microseconds(100));
    throw comm_error(group_->abort_reason() + "\n  noticed by " + group_->name_of(rank_) + detail::during(where_));
  }

  /// Reduces this member's range of all sources and writes it into all targets while it is in the cache. Safe in place:
  /// only this member reads or writes the range of its index, in anybody's buffer.
  void reduce_own_range(detail::shared_group& all, const transfer_group& group, std::int64_t count, dtype type,
                        reduction kind) {
    const int members = static_cast<int>(group.members.size());
    const element_range own = owned_range(count, members, group.self);
    const std::int64_t element = size_of(type);
    for (std::int64_t begin = own.begin; begin < own.end; begin += detail::reduce_tile) {
      const std::int64_t length = std::min(detail::reduce_tile, own.end - begin);
      const auto offset = static_cast<std::ptrdiff_t>(begin * element);
      for (std::size_t k = 0; k < group.members.size(); ++k) {
        parts_[k] = {static_cast<const std::byte*>(all.slots[k].source) + offset, nullptr};
      }
      std::byte* result = static_cast<std::byte*>(all.slots[static_cast<std::size_t>(group.self)].target) + offset;
      detail::reduce_range(type, kind, result, contiguous_block(length), 0, length, parts_.data(), members);
      for (int k = 0; k < members; ++k) {
        if (k == group.self) continue;
        std::byte* copy = static_cast<std::byte*>(all.slots[static_cast<std::size_t>(k)].target) + offset;
        std::memcpy(copy, result, static_cast<std::size_t>(length * element));
      }
    }
  }

  in_process_group* group_;
  int rank_;
  transfer_group world_;
  const context* where_ = nullptr;
  /// A collective has begun and not ended well.
  bool inside_ = false;
  std::vector<detail::shared_group*> known_groups_;
  std::vector<contribution> parts_;
  detail::byte_counters counters_;
};

static_assert(Communicator<in_process_communicator>);

inline in_process_communicator in_process_group::device(int rank) { return {*this, rank}; }

/// Runs `body(communicator)` on `group.size()` threads, one per device, and returns when all have ended. If devices
/// throw, throws what the first of them threw.
template <class Body> void run_devices(in_process_group& group, const Body& body) {
  const auto device = [&](int rank) {
    in_process_communicator communicator = group.device(rank);
    try {
      run_guarded(communicator, [&] { body(communicator); });
    } catch (...) {  // kept by the group
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < group.size(); ++rank) threads.emplace_back(device, rank);
  } catch (const std::exception& error) {
    group.abort(static_cast<int>(threads.size()), std::string("its thread did not start: ") + error.what());
  }
  for (std::thread& thread : threads) thread.join();
  if (group.abort_exception()) std::rethrow_exception(group.abort_exception());
  if (group.aborted()) throw comm_error(group.abort_reason());
}

/// `run_devices` on a fresh group of `size` devices.
template <class Body> void run_devices(int size, const Body& body) {
  in_process_group group(size);
  run_devices(group, body);
}

}  // namespace espalier::comm
