// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>
#include <espalier/comm/mpi/mpi_compat.hpp>
#include <espalier/comm/mpi/mpi_requests.hpp>
#include <espalier/comm/run/combine.hpp>
#include <espalier/comm/run/polling_wait.hpp>
#include <espalier/comm/run/rank_schedule.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace espalier::comm {

/// A message of a schedule that has been started and is not over.
struct pending_message {
  int tree = 0;
  std::int64_t chunk = 0;
  std::int64_t chunks = 1;  ///< of the tree
  int peer = 0;
  bool incoming = false;
  std::int64_t bytes = 0;
};

/// "tree 1, chunk 3 of 16, from rank 2, 32768 bytes"
[[nodiscard]] inline std::string describe(const pending_message& m) {
  return "tree " + std::to_string(m.tree) + ", chunk " + std::to_string(m.chunk) + " of " + std::to_string(m.chunks) +
         (m.incoming ? ", from rank " : ", to rank ") + std::to_string(m.peer) + ", " + std::to_string(m.bytes) +
         " bytes";
}

/// Runs one rank's part of a schedule over MPI point-to-point messages, by the rules of comm/schedule/schedule.hpp.
///
/// Receives are posted as soon as their memory is free, reductions happen while other messages travel, and every
/// `credits`-th message of a stream is a synchronous send: no rank is ever more than two rounds of credits ahead of
/// the one it sends to, however fast it is. Made once for a schedule; a run allocates nothing.
///
/// `run` is `begin`, then `wait`. Between the two, `progress` takes the operation further whenever it is called; so
/// many runners can be under way on one communicator, with different tags.
class mpi_schedule_runner {
 public:
  /// @pre the schedule and the communicator outlive the runner
  mpi_schedule_runner(const schedule& plan, MPI_Comm communicator, std::int64_t element_bytes,
                      std::chrono::duration<double> deadline = default_deadline(), bool oversubscribed = true)
      : plan_(plan),
        mine_(part_of_rank(plan, rank_in(communicator), element_bytes)),
        communicator_(communicator),
        deadline_(deadline),
        oversubscribed_(oversubscribed) {
    (void)scratch_.reserve(mine_.scratch_bytes);
    (void)staging_.reserve(mine_.staging_bytes);
    std::size_t requests = 0;
    for (const rank_schedule::own_track& t : mine_.tracks) {
      track_state state;
      state.slots.resize(static_cast<std::size_t>(t.slots));
      for (slot_state& s : state.slots) s.done.assign(t.steps.size(), not_begun);
      state.issued.assign(t.steps.size(), 0);
      state.asked.assign(t.steps.size(), 0);
      requests += t.steps.size() * static_cast<std::size_t>(t.slots);
      for (const rank_schedule::own_step& s : t.steps) {
        if (s.move.kind != action::send) continue;
        sent_bytes_ += (t.shape->chunks * s.move.count - t.shape->cut) * mine_.element_bytes;
      }
      tracks_.push_back(std::move(state));
    }
    requests_.reserve(requests);
    owners_.reserve(requests);
    ended_.resize(requests);
  }

  /// Tags that a run uses, from the base it is begun with.
  [[nodiscard]] int tags() const { return mine_.tags; }

  /// Bytes that this rank sends in a run.
  [[nodiscard]] std::int64_t sent_bytes() const { return sent_bytes_; }

  /// Takes part in the collective. Buffers as `collective_call` says; neither is needed where it has no elements.
  /// Errors: `comm_error` after a wait without progress, naming the ranks, the tree and the chunk; the communicator
  /// is then unusable.
  void run(const void* input, void* output, const combiner& by, const context* where = nullptr) {
    begin(input, output, by, where);
    wait();
  }

  /// Starts it. The buffers, what `by` and `where` point to stay where they are until it is finished.
  /// @pre finished(); tags [base, base + tags()) are not used by what else is under way
  void begin(const void* input, void* output, const combiner& by, const context* where = nullptr, int base = 0) {
    input_ = static_cast<const std::byte*>(input);
    output_ = static_cast<std::byte*>(output);
    by_ = by;
    where_ = where;
    base_ = base;
    requests_.clear();
    owners_.clear();
    for (track_state& t : tracks_) {
      t.begun = 0;
      t.ended = 0;
      std::fill(t.issued.begin(), t.issued.end(), 0);
      std::fill(t.asked.begin(), t.asked.end(), 0);
    }
    last_ = 0;
    guarded([&] { begin_phases(); });
  }

  [[nodiscard]] bool finished() const { return open_tracks_ == 0; }

  /// One look at what has arrived or left, and all steps that can be taken then. Returns whether anything moved.
  bool progress() {
    bool moved = false;
    if (!finished()) guarded([&] { moved = poll(); });
    return moved;
  }

  void wait() {
    if (finished()) return;
    detail::polling_wait left(oversubscribed_, deadline_);
    guarded([&] {
      while (!finished()) {
        if (poll()) {
          left.moved();
        } else if (left.exhausted()) {
          throw comm_error(expired_text());
        }
      }
    });
  }

  /// Gives up, because a rank waited too long: lets go of all messages. Errors: `comm_error`, naming what is missing.
  [[noreturn]] void expire() {
    const std::string text = expired_text();
    abandon();
    throw comm_error(text);
  }

  /// The messages that are waited for.
  [[nodiscard]] std::vector<pending_message> pending() const {
    std::vector<pending_message> all;
    for (const owner& of : owners_) {
      const rank_schedule::own_track& t = shape(static_cast<std::size_t>(of.track));
      const step& s = t.steps[static_cast<std::size_t>(of.step)].move;
      const slot_state& slot = tracks_[static_cast<std::size_t>(of.track)].slots[static_cast<std::size_t>(of.slot)];
      const std::int64_t bytes = t.shape->count(s, slot.chunk) * mine_.element_bytes;
      all.push_back({t.shape->tree, slot.chunk, t.shape->chunks, s.peer, s.kind != action::send, bytes});
    }
    return all;
  }

 private:
  enum stage : std::uint8_t { not_begun, under_way, over };

  struct slot_state {
    std::int64_t chunk = -1;  // -1: free
    std::size_t at = 0;       // the next step
    int sends = 0;            // that have not left
    std::vector<std::uint8_t> done;
  };
  struct track_state {
    std::vector<slot_state> slots;
    std::int64_t begun = 0;  // lanes
    std::int64_t ended = 0;
    std::vector<std::int64_t> issued;  // by step: lanes whose message has been started
    std::vector<int> asked;            // by step: synchronous sends that have not left
  };
  struct owner {
    int track = 0;
    int slot = 0;
    int step = 0;
  };

  static int rank_in(MPI_Comm communicator) {
    int rank = 0;
    MPI_Comm_rank(communicator, &rank);
    return rank;
  }

  [[nodiscard]] const rank_schedule::own_track& shape(std::size_t t) const { return mine_.tracks[t]; }

  /// Whether a lane's sends wait for their receives.
  [[nodiscard]] bool asks(const slot_state& s) const { return s.chunk % mine_.credits == mine_.credits - 1; }

  /// Begins the tracks of the next phase, and of those after it while there is nothing to wait for.
  void begin_phases() {
    open_tracks_ = 0;
    while (open_tracks_ == 0 && last_ < tracks_.size()) {
      const std::size_t first = last_;
      const int phase = shape(first).shape->phase;
      while (last_ < tracks_.size() && shape(last_).shape->phase == phase) ++last_;
      open_tracks_ = last_ - first;
      for (std::size_t t = first; t < last_; ++t) advance(t);
    }
  }

  /// Takes every step of a track that can be taken.
  void advance(std::size_t t) {
    track_state& state = tracks_[t];
    const rank_schedule::own_track& own = shape(t);
    const std::int64_t chunks = own.shape->chunks;
    if (state.ended == chunks) return;
    for (bool moved = true; moved;) {
      moved = false;
      while (state.begun < chunks && state.begun - state.ended < own.slots) {
        slot_state& fresh = slot_of(t, state.begun);
        if (fresh.chunk >= 0) break;
        fresh.chunk = state.begun++;
        fresh.at = 0;
        fresh.sends = 0;
        std::fill(fresh.done.begin(), fresh.done.end(), static_cast<std::uint8_t>(not_begun));
        post_early(t, fresh);
      }
      for (std::int64_t k = state.ended; k < state.begun; ++k) {
        slot_state& s = slot_of(t, k);
        if (s.chunk != k) continue;  // has ended before older lanes
        while (s.at < own.steps.size() && take(t, s)) moved = true;
        if (s.at == own.steps.size() && s.sends == 0) {
          s.chunk = -1;
          moved = true;
        }
      }
      while (state.ended < state.begun && slot_of(t, state.ended).chunk != state.ended) ++state.ended;
    }
    if (state.ended == chunks) --open_tracks_;
  }

  [[nodiscard]] slot_state& slot_of(std::size_t t, std::int64_t chunk) {
    track_state& state = tracks_[t];
    return state.slots[static_cast<std::size_t>(chunk % static_cast<std::int64_t>(state.slots.size()))];
  }

  /// Posts what may come at any time. Lanes begin in their order, so streams stay in theirs.
  void post_early(std::size_t t, slot_state& s) {
    const auto& steps = shape(t).steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const bool staged = steps[i].move.kind == action::receive_reduce;
      if ((staged || steps[i].early) && tracks_[t].issued[i] == s.chunk) post(t, s, i);
    }
  }

  void post(std::size_t t, slot_state& s, std::size_t i) {
    const rank_schedule::own_step& own = shape(t).steps[i];
    const bool staged = own.move.kind == action::receive_reduce;
    std::byte* const to = staged ? staged_memory(t, s, i) : memory(t, s, own.move.to);
    const std::int64_t bytes = shape(t).shape->count(own.move, s.chunk) * mine_.element_bytes;
    check(MPI_Irecv(to, static_cast<int>(bytes), detail::bytes_type(), own.move.peer, base_ + own.tag, communicator_,
                    request(t, s, i)),
          "MPI_Irecv");
    s.done[i] = under_way;
    ++tracks_[t].issued[i];
  }

  /// Takes the lane's next step, if it can be taken now.
  bool take(std::size_t t, slot_state& s) {
    const std::size_t i = s.at;
    const rank_schedule::own_step& own = shape(t).steps[i];
    const std::int64_t count = shape(t).shape->count(own.move, s.chunk);
    track_state& state = tracks_[t];
    for (const int before : own.after) {
      if (s.done[static_cast<std::size_t>(before)] != over) return false;
    }
    switch (own.move.kind) {
      case action::send: {
        // Other sends may leave before the receiver knows of them: those that ask tell how far it is.
        if (state.issued[i] != s.chunk || state.asked[i] == 2) return false;
        check((asks(s) ? MPI_Issend : MPI_Isend)(memory(t, s, own.move.from),
                                                 static_cast<int>(count * mine_.element_bytes), detail::bytes_type(),
                                                 own.move.peer, base_ + own.tag, communicator_, request(t, s, i)),
              "MPI_Isend");
        ++state.issued[i];
        if (asks(s)) ++state.asked[i];
        ++s.sends;
        s.done[i] = under_way;
        break;
      }
      case action::receive:
      case action::receive_reduce:
        if (s.done[i] == not_begun) {
          if (state.issued[i] != s.chunk) return false;
          post(t, s, i);
        }
        if (s.done[i] != over) return false;
        if (own.move.kind == action::receive_reduce) {
          by_.combine(by_.state, memory(t, s, own.move.to), memory(t, s, own.move.from), staged_memory(t, s, i), count,
                      own.move.incoming_left);
        }
        break;
      case action::copy:
        std::memmove(memory(t, s, own.move.to), memory(t, s, own.move.from),
                     static_cast<std::size_t>(count * mine_.element_bytes));
        break;
    }
    ++s.at;
    return true;
  }

  [[nodiscard]] std::byte* memory(std::size_t t, const slot_state& s, const location& l) {
    const std::int64_t at = shape(t).shape->offset(l, s.chunk) * mine_.element_bytes;
    switch (l.where) {
      case place::input: return const_cast<std::byte*>(input_) + at;  // NOLINT: never written, MPI's sends once were
      case place::output: return output_ + at;
      case place::scratch: return scratch_.reserve(0) + at;
    }
    return nullptr;
  }
  [[nodiscard]] std::byte* staged_memory(std::size_t t, const slot_state& s, std::size_t i) {
    const rank_schedule::own_step& own = shape(t).steps[i];
    constexpr std::int64_t alignment = 64;
    const std::int64_t each = (own.move.count * mine_.element_bytes + alignment - 1) / alignment * alignment;
    return staging_.reserve(0) + own.staged_at + s.chunk % shape(t).slots * each;
  }

  MPI_Request* request(std::size_t t, const slot_state& s, std::size_t i) {
    requests_.push_back(detail::no_request());
    const auto slot = static_cast<int>(s.chunk % shape(t).slots);
    owners_.push_back({static_cast<int>(t), slot, static_cast<int>(i)});
    return &requests_.back();
  }

  /// @pre !finished()
  bool poll() {
    int count = 0;
    check(
        MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, ended_.data(), MPI_STATUSES_IGNORE),
        "MPI_Testsome");
    if (count == MPI_UNDEFINED) {
      throw comm_error("rank " + std::to_string(mine_.rank) + ": a schedule of " + name_of(plan_.call.kind) +
                       " waits for nothing and has not ended: it is not valid" + detail::during(where_));
    }
    if (count == 0) return false;
    settle(count);
    if (open_tracks_ == 0) begin_phases();
    return true;
  }

  template <class Body> void guarded(const Body& body) {
    try {
      body();
    } catch (...) {
      abandon();
      throw;
    }
  }

  /// Notes which messages have ended, forgets their requests, and goes on with the tracks they belong to.
  void settle(int count) {
    touched_.clear();
    std::sort(ended_.begin(), ended_.begin() + count);
    for (int n = 0; n < count; ++n) {
      const owner of = owners_[static_cast<std::size_t>(ended_[static_cast<std::size_t>(n)])];
      track_state& state = tracks_[static_cast<std::size_t>(of.track)];
      slot_state& s = state.slots[static_cast<std::size_t>(of.slot)];
      s.done[static_cast<std::size_t>(of.step)] = over;
      if (shape(static_cast<std::size_t>(of.track)).steps[static_cast<std::size_t>(of.step)].move.kind ==
          action::send) {
        --s.sends;
        if (asks(s)) --state.asked[static_cast<std::size_t>(of.step)];
      }
      if (std::find(touched_.begin(), touched_.end(), of.track) == touched_.end()) touched_.push_back(of.track);
    }
    for (int n = count - 1; n >= 0; --n) {
      const auto at = static_cast<std::size_t>(ended_[static_cast<std::size_t>(n)]);
      requests_[at] = requests_.back();
      owners_[at] = owners_.back();
      requests_.pop_back();
      owners_.pop_back();
    }
    for (const int t : touched_) advance(static_cast<std::size_t>(t));
  }

  [[nodiscard]] std::string expired_text() const {
    const std::vector<pending_message> waiting = pending();
    std::vector<int> missing;
    for (const pending_message& m : waiting) missing.push_back(m.peer);
    std::sort(missing.begin(), missing.end());
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    std::string text = detail::expired_text(mine_.rank, name_of(plan_.call.kind), deadline_, missing, where_);
    constexpr std::size_t most = 8;
    for (std::size_t n = 0; n < std::min(most, waiting.size()); ++n) text += "\n  pending: " + describe(waiting[n]);
    if (waiting.size() > most) text += "\n  and " + std::to_string(waiting.size() - most) + " more";
    return text;
  }

  void abandon() noexcept {
    for (std::size_t n = 0; n < requests_.size(); ++n) {
      if (requests_[n] == detail::no_request()) continue;
      const owner of = owners_[n];
      const step& s = shape(static_cast<std::size_t>(of.track)).steps[static_cast<std::size_t>(of.step)].move;
      if (s.kind != action::send) MPI_Cancel(&requests_[n]);
      MPI_Request_free(&requests_[n]);
    }
    requests_.clear();
    owners_.clear();
    open_tracks_ = 0;
  }

  void check(int code, const char* routine) const { detail::check_mpi(code, routine, mine_.rank, where_); }

  const schedule& plan_;
  rank_schedule mine_;
  MPI_Comm communicator_;
  std::chrono::duration<double> deadline_;
  bool oversubscribed_;
  int base_ = 0;
  std::int64_t sent_bytes_ = 0;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  combiner by_;
  const context* where_ = nullptr;
  detail::staging_buffer scratch_;
  detail::staging_buffer staging_;
  std::vector<track_state> tracks_;
  std::size_t last_ = 0;         // after the tracks of the phase under way
  std::size_t open_tracks_ = 0;  // of that phase
  std::vector<MPI_Request> requests_;
  std::vector<owner> owners_;
  std::vector<int> ended_;
  std::vector<int> touched_;
};

}  // namespace espalier::comm
