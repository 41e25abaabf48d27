// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/object_vector.hpp>
#include <espalier/base/light_std/owned.hpp>
#include <espalier/config.hpp>

#include <espalier/base/light_std/function_ref.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/comm/communicator.hpp>
#include <espalier/comm/host/threads.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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
  /// Sets the text that errors add to each rank's number: its place on the mesh, "data 1, model 0". Call it before the
  /// devices start.
  void set_places(std::vector<std::string> places) { places_ = std::move(places); }
  /// "rank 2 (data 1, model 0)"
  [[nodiscard]] std::string name_of(int rank) const {
    const auto k = static_cast<std::size_t>(rank);
    const bool placed = k < places_.size() && !places_[k].empty();
    return placed ? detail::joined({"rank ", rank, " (", places_[k], ")"}) : detail::joined({"rank ", rank});
  }

  /// Device `rank`'s own communicator, for one thread.
  [[nodiscard]] in_process_communicator device(int rank);

  /// Rank `rank` cannot go on: every wait of the others ends with an error that repeats `reason`. The first call
  /// counts; `what` is kept with it.
  void abort(int rank, const std::string& reason, const std::exception_ptr& what = std::current_exception()) {
    const std::lock_guard lock(mutex_);
    if (aborted_.load()) return;
    reason_ = detail::joined({name_of(rank), " failed: ", reason});
    exception_ = what;
    aborted_.store(true);
    for (const auto& group : groups_) group->threads.interrupt();
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

  /// Threads read each other's memory at no cost: only what is small is worth a copy that saves the second wait.
  static host::sizes sizes() {
    host::sizes how;
    how.expose_from = 8 << 10;
    how.region = 0;  // of the tier for messages that are larger than that
    return how;
  }

  /// The state that the members of one group share.
  struct members_share {
    members_share(std::vector<int> ranks, int devices)
        : members(std::move(ranks)), threads(static_cast<int>(members.size()), sizes(), devices) {}
    std::vector<int> members;
    host::thread_group threads;
  };

  host::thread_group& shared(const std::vector<int>& members) {
    const std::lock_guard lock(mutex_);
    for (const auto& group : groups_) {
      if (group->members == members) return group->threads;
    }
    groups_.push_back(espalier::detail::owned<members_share>(new members_share(members, size_)));
    if (aborted_.load()) groups_.back()->threads.interrupt();
    return groups_.back()->threads;
  }

  int size_;
  std::chrono::duration<double> deadline_;
  std::vector<std::string> places_;
  std::vector<std::atomic<const context*>> contexts_;
  mutable std::mutex mutex_;
  espalier::detail::object_vector<espalier::detail::owned<members_share>> groups_;
  std::string reason_;
  std::exception_ptr exception_;
  std::atomic<bool> aborted_{false};
};

/// A device's end of an `in_process_group`: no copies but the one from the sender's source to the receiver's target.
///
/// Everything goes through the group's `thread_collectives`: all-reduces and broadcasts are its own, and boxes, which
/// may lie strided on both sides, are read in place while all members expose their buffers.
class in_process_communicator {
 public:
  in_process_communicator(in_process_group& group, int rank) : group_(&group), rank_(rank) {
    if (rank < 0 || rank >= group.size()) {
      throw comm_error(detail::joined({"there is no device ", rank, " of ", group.size()}));
    }
    world_.members.resize(static_cast<std::size_t>(group.size()));
    for (int k = 0; k < group.size(); ++k) world_.members[static_cast<std::size_t>(k)] = k;
    world_.self = rank;
    prepare(world_);
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return group_->size(); }
  /// Returns the state that all devices of the group share.
  [[nodiscard]] in_process_group& group() const { return *group_; }

  void prepare(const transfer& moves) {
    detail::require_consistent(moves, rank_, size());
    prepare(static_cast<const transfer_group&>(moves));
  }
  void prepare(const transfer_group& group) {
    detail::require_consistent(group, rank_, size());
    counters_.reserve(group.channel);
    (void)among(group);
    reserve_parts(group.members.size());
  }

  void exchange(const transfer& moves, const void* source, void* target) {
    const std::uint64_t kind =
        detail::kind_word(collective::exchange, detail::class_of(moves.type), element_operation::unnamed, 0);
    meet("exchange", kind, moves, source, [&](const readable_list& readable) {
      const int members = static_cast<int>(moves.members.size());
      const host::store how = store_of(moves);
      // Each member starts with itself and goes on from there: the members do not all read the same peer at once.
      for (int step = 0; step < members; ++step) {
        const auto k = static_cast<std::size_t>((moves.self + step) % members);
        const block& box = moves.incoming[k];
        if (readable[k].packed) {
          unpack(moves.type, target, readable[k].memory, box);
        } else {
          copy(moves.type, target, readable[k].memory, box, how);
        }
      }
    });
    counters_.add(moves.channel, sent_bytes(moves));
  }

  void reduce_exchange(const transfer& moves, const void* source, void* target, const reducer& by) {
    detail::require_reducible(moves, by, where_);
    reserve_parts(moves.members.size());
    const std::uint64_t what = detail::kind_word(collective::reduce_exchange, detail::class_of(moves.type),
                                                 detail::operation_of(moves.type, by.kind), 0);
    meet("reduce_exchange", what, moves, source, [&](const readable_list& readable) {
      if (fold(moves, readable, target, by)) return;
      for (std::size_t k = 0; k < moves.members.size(); ++k) {
        parts_[k] = {readable[k].memory, readable[k].packed ? nullptr : &moves.incoming[k]};
      }
      const block& box = moves.incoming[static_cast<std::size_t>(moves.self)];
      detail::reduce_range(by, target, box, 0, box.elements(), parts_.data(), static_cast<int>(moves.members.size()));
    });
    counters_.add(moves.channel, sent_bytes(moves));
  }

  void all_reduce(const transfer_group& group, const void* source, void* target, std::int64_t count,
                  const reducer& by) {
    detail::require_reducible(by, where_);
    const auto members = static_cast<int>(group.members.size());
    const bool in_place = source == target;
    set_call(collective::all_reduce, members, count, 0, in_place);
    run("all_reduce", group,
        [&](thread_collectives& all) { all.run(call_, in_place ? nullptr : source, target, combiner_of(by), where_); });
    counters_.add(group.channel, all_reduce_sent_bytes(count, size_of(by.type), members, group.self));
  }

  void barrier() {
    run("barrier", world_, [&](thread_collectives& all) { all.meet("barrier", where_); });
  }

  /// `bytes` bytes at `data`, from rank `root` to all.
  void broadcast(void* data, std::int64_t bytes, int root) {
    set_call(collective::broadcast, size(), bytes, root, true);
    run("broadcast", world_, [&](thread_collectives& all) { all.move(call_, nullptr, data, 1, where_); });
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
  using readable_list = thread_collectives::engine::readable_list;
  using cause = host::wait_error::cause;

  /// This device's end of a group.
  struct known_group {
    std::vector<int> members;
    espalier::detail::owned<thread_collectives> all;
  };

  /// Returns the place that an error names. Between collectives only the last named instruction is known; an error of a
  /// collective names its own.
  [[nodiscard]] std::string place_of_failure(const std::string& reason) const {
    const std::string instruction = detail::describe(where_);
    if (instruction.empty() || reason.find(instruction) != std::string::npos) return "";
    return (inside_ ? "\n  instruction: " : "\n  in or after instruction: ") + instruction;
  }

  void reserve_parts(std::size_t members) {
    if (parts_.size() < members) parts_.resize(members);
    if (sources_.size() < members) sources_.resize(members);
  }

  [[nodiscard]] thread_collectives& among(const transfer_group& group) {
    for (const known_group& known : known_groups_) {
      if (known.members == group.members) return *known.all;
    }
    known_groups_.push_back({group.members, espalier::detail::owned<thread_collectives>(new thread_collectives(
                                                group_->shared(group.members), group.self, group_->deadline()))});
    return *known_groups_.back().all;
  }

  /// One call is kept: making a new one would take memory.
  void set_call(collective what, int ranks, std::int64_t count, int root, bool in_place) {
    call_.kind = what;
    call_.ranks = ranks;
    call_.root = root;
    call_.in_place = in_place;
    call_.counts.assign(1, count);
  }

  /// Calls `body(collectives of the group)`. Its errors name this group's devices.
  void run(const char* operation, const transfer_group& group,
           espalier::detail::function_ref<void(thread_collectives&)> body) {
    thread_collectives& all = among(group);
    if (group_->aborted()) fail();
    inside_ = true;
    try {
      body(all);
    } catch (const host::wait_error& error) {
      switch (error.why()) {
        case cause::expired: expire(operation, group, error.missing());
        case cause::different: disagree(operation, group, error.said());
        case cause::failed: fail();
      }
    }
    inside_ = false;
  }

  /// `work(readable)` while all members expose their sources, or have packed what little they send.
  void meet(const char* operation, std::uint64_t kind, const transfer& moves, const void* source,
            thread_collectives::engine::memory_reader work) {
    const std::int64_t element = size_of(moves.type);
    bool packs = true;
    for (std::size_t k = 0; k < moves.outgoing.size(); ++k) {
      const bool fits = moves.outgoing[k].elements() * element <= thread_collectives::engine::packed_room;
      packs = packs && (fits || k == static_cast<std::size_t>(moves.self));
    }
    // Boxes differ from member to member; what they are made of does not.
    const call_summary said{kind, static_cast<std::uint64_t>(element), static_cast<std::uint64_t>(moves.channel)};
    const auto pack_for = [&](int member, std::byte* room) {
      pack(moves.type, room, source, moves.outgoing[static_cast<std::size_t>(member)]);
    };
    run(operation, moves, [&](thread_collectives& all) {
      all.meet(operation, said, {source, packs}, where_, pack_for, work);
    });
  }

  /// `said`: by the places of ranks in the group.
  [[noreturn]] void disagree(const char* operation, const transfer_group& group, said_by_ranks said) const {
    std::string text = detail::joined({"rank ", rank_, " and its group are not in the same collective: it is in ",
                                       operation, detail::during(where_)});
    for (auto& one : said) one.rank = group.members[static_cast<std::size_t>(one.rank)];
    if (!said.empty()) detail::append_text(text, {"\n  ", detail::mismatch_text(std::move(said))});
    for (const int member : group.members) {
      if (member != rank_) add_doing(text, member);
    }
    throw comm_error(text);
  }

  /// `missing`: places in the group.
  [[noreturn]] void expire(const char* operation, const transfer_group& group, std::vector<int> missing) const {
    for (int& member : missing) member = group.members[static_cast<std::size_t>(member)];
    std::string text = detail::expired_text(rank_, operation, group_->deadline(), missing, where_);
    for (const int member : missing) add_doing(text, member);
    const comm_error error(text);
    group_->abort(rank_, text, std::make_exception_ptr(error));
    throw error;
  }

  void add_doing(std::string& text, int member) const {
    const context* where = group_->contexts_[static_cast<std::size_t>(member)].load(std::memory_order_acquire);
    detail::append_text(
        text, {"\n  ", group_->name_of(member), where == nullptr ? " has named no instruction" : " was last seen in ",
               detail::describe(where)});
  }

  [[noreturn]] void fail() const {
    // The rank that failed gives its reason right after it.
    for (int i = 0; i < 10000 && !group_->aborted(); ++i) std::this_thread::sleep_for(std::chrono::microseconds(100));
    throw comm_error(
        detail::joined({group_->abort_reason(), "\n  noticed by ", group_->name_of(rank_), detail::during(where_)}));
  }

  /// Returns how a transfer is written: past the caches if it is larger than they are.
  [[nodiscard]] static host::store store_of(const transfer& moves) {
    std::int64_t elements = 0;
    for (const block& box : moves.incoming) elements += box.elements();
    const auto members = static_cast<std::int64_t>(moves.members.size());
    const bool large = elements * size_of(moves.type) * members >= host::sizes{}.stream_from;
    return large ? host::store::streaming : host::store::cached;
  }

  static void copy(dtype type, void* target, const void* source, const block& box, host::store how) {
    if (box.empty()) return;
    const std::int64_t from = detail::contiguous_source(box, 0, box.elements());
    const std::int64_t to = detail::contiguous_target(box, 0, box.elements());
    if (how == host::store::cached || from < 0 || to < 0) return copy_block(type, target, source, box);
    const std::int64_t element = size_of(type);
    host::copy_bytes(static_cast<std::byte*>(target) + to * element,
                     static_cast<const std::byte*>(source) + from * element, box.elements() * element, how);
  }

  /// Combines boxes that lie in one piece on all sides; false if these don't.
  [[nodiscard]] bool fold(const transfer& moves, const readable_list& readable, void* target, const reducer& by) {
    const block& own = moves.incoming[static_cast<std::size_t>(moves.self)];
    const std::int64_t count = own.elements();
    if (count == 0) return true;
    const std::int64_t element = size_of(moves.type);
    const std::int64_t to = detail::contiguous_target(own, 0, count);
    if (to < 0 || moves.members.size() < 2) return false;
    for (std::size_t k = 0; k < moves.members.size(); ++k) {
      const std::int64_t from = readable[k].packed ? 0 : detail::contiguous_source(moves.incoming[k], 0, count);
      if (from < 0) return false;
      sources_[k] = readable[k].memory + from * element;
    }
    std::byte* const result = static_cast<std::byte*>(target) + to * element;
    const auto members = static_cast<int>(moves.members.size());
    const bool large = count * element * members * members >= host::sizes{}.stream_from;
    by.fold({&result, 1, sources_.data(), members, count, large ? host::store::streaming : host::store::cached});
    return true;
  }

  in_process_group* group_;
  int rank_;
  transfer_group world_;
  const context* where_ = nullptr;
  /// A collective has begun and not ended well.
  bool inside_ = false;
  espalier::detail::object_vector<known_group> known_groups_;
  espalier::detail::plain_vector<contribution> parts_;
  espalier::detail::plain_vector<const std::byte*> sources_;
  collective_call call_;
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
    group.abort(static_cast<int>(threads.size()), detail::joined({"its thread did not start: ", error.what()}));
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
