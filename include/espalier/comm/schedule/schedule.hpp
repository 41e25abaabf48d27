// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/comm/schedule/call.hpp>
#include <espalier/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

// A schedule says what every rank does in one collective. It is kept small: the data is cut into *tracks* (one tree's
// share, one pair's share, ...), a track into equal chunks, and only the steps of the first chunk are stored; chunk k
// does the same `k * chunk` elements further on. What one track does with one chunk is a *lane*.
//
// Rules for every executor, on all ranks alike:
//
// 1. A rank takes the steps of a lane in order. A send only starts a message and never blocks the steps after it;
//    other steps are over when their target is written. A step begins when the earlier receives, reductions and copies
//    of its lane are over, and, if it writes, when the earlier sends of its lane that read there have left.
// 2. Lanes are independent, except that on each rank lane k of a track waits for lane k - `in_flight` of the track
//    (scratch memory is used round robin), and lanes of a later phase for all lanes of earlier phases.
// 3. Messages of one track over one edge with one `stream` number form a stream: sent in the order of chunks, and of
//    steps within a lane; received in the same order. Streams don't wait for each other (streams.hpp numbers them). A
//    receiver takes up to `credits` messages of a stream before it gets to their steps: receives are posted early, into
//    the step's target where that is free already, else into memory of the executor's own. More
//    are never under way; 1 is enough for correctness.
// 4. Where several lanes can go on, the one that comes first in `lanes_in_order` should: this keeps trees in step.
//
// No executor that keeps 1-3 can block for ever, even one that runs lanes one after another in that order: `validate`
// runs a schedule so.
namespace espalier::comm {

enum class action : std::uint8_t {
  send,            ///< `count` elements at `from` go to `peer`
  receive,         ///< the next message of the stream replaces the elements at `to`
  receive_reduce,  ///< elements at `to` become: elements at `from`, combined with the message
  copy             ///< elements at `to` become those at `from`; the two may overlap
};

[[nodiscard]] constexpr bool is_receive(action what) {
  return what == action::receive || what == action::receive_reduce;
}
[[nodiscard]] constexpr bool reads(action what) { return what != action::receive; }
[[nodiscard]] constexpr bool writes(action what) { return what != action::send; }

/// One step of one rank in the first chunk of a track.
struct step {
  static constexpr int direct = -1;  ///< as `edge`: not in the network; whatever way the transport finds

  action kind = action::send;
  bool incoming_left = false;  ///< of a reduction: the message is the left operand
  int peer = -1;
  int edge = direct;  ///< of the network; names the channel
  int stream = 0;     ///< tells messages apart that pass one edge on different ways: up a tree, down it
  location from;
  location to;
  std::int64_t count = 0;

  [[nodiscard]] friend constexpr bool operator==(const step&, const step&) = default;
};

/// The steps [begin, end) of a track that rank `rank` takes.
struct rank_steps {
  int rank = 0;
  int begin = 0;
  int end = 0;
};

/// A share of the data, and how it moves.
struct track {
  int tree = 0;  ///< for reports: of the packing, or a number of the algorithm's own
  int phase = 0;
  std::int64_t chunks = 1;
  std::int64_t chunk = 0;         ///< elements from one chunk to the next
  std::int64_t cut = 0;           ///< elements by which the last chunk is shorter than the others
  int in_flight = 1;              ///< lanes of this track that one rank may have begun and not finished
  std::vector<rank_steps> parts;  ///< ranks ascending, each at most once
  std::vector<step> steps;

  /// Elements that a step moves in chunk `k`.
  [[nodiscard]] constexpr std::int64_t count(const step& s, std::int64_t k) const {
    return k + 1 == chunks ? s.count - cut : s.count;
  }
  /// Offset of a step's location in chunk `k`.
  [[nodiscard]] constexpr std::int64_t offset(const location& l, std::int64_t k) const {
    return l.offset + (l.cyclic ? k % in_flight : k) * chunk;
  }
};

/// The steps of all ranks in one collective.
struct schedule {
  collective_call call;
  std::vector<track> tracks;
  std::vector<std::int64_t> scratch;  ///< elements, by rank
  int credits = 4;                    ///< messages under way per stream that suit the network it was made for
};

/// One chunk of one track.
struct lane {
  int track = 0;
  std::int64_t chunk = 0;

  [[nodiscard]] friend constexpr bool operator==(const lane&, const lane&) = default;
};

/// All lanes in the order of preference: phase by phase, and within it all tracks at the same pace, each at
/// (chunk + 1/2) / chunks of its way, so that trees of unequal weight end together.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::vector<lane> lanes_in_order(const schedule& plan) {
  std::size_t count = 0;
  for (const track& t : plan.tracks) count += static_cast<std::size_t>(t.chunks);
  std::vector<lane> lanes;
  lanes.reserve(count);
  for (std::size_t t = 0; t < plan.tracks.size(); ++t) {
    for (std::int64_t k = 0; k < plan.tracks[t].chunks; ++k) lanes.push_back({static_cast<int>(t), k});
  }
  std::sort(lanes.begin(), lanes.end(), [&](const lane& a, const lane& b) {
    const track& x = plan.tracks[static_cast<std::size_t>(a.track)];
    const track& y = plan.tracks[static_cast<std::size_t>(b.track)];
    if (x.phase != y.phase) return x.phase < y.phase;
    const std::int64_t left = (2 * a.chunk + 1) * y.chunks;
    const std::int64_t right = (2 * b.chunk + 1) * x.chunks;
    return left != right ? left < right : a.track < b.track;
  });
  return lanes;
}

/// The part of `rank` in a track, or null.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR const rank_steps* steps_of(const track& t, int rank) {
  const auto found = std::lower_bound(t.parts.begin(), t.parts.end(), rank,
                                      [](const rank_steps& p, int wanted) { return p.rank < wanted; });
  return found != t.parts.end() && found->rank == rank ? &*found : nullptr;
}

/// Messages and elements that a schedule sends over all ranks.
struct traffic {
  std::int64_t messages = 0;
  std::int64_t elements = 0;
};

[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR traffic traffic_of(const schedule& plan) {
  traffic all;
  for (const track& t : plan.tracks) {
    for (const step& s : t.steps) {
      if (s.kind != action::send) continue;
      all.messages += t.chunks;
      all.elements += t.chunks * s.count - t.cut;
    }
  }
  return all;
}

/// A number that differs between schedules that differ (FNV-1a over all they say): ranks that compare it know whether
/// they are about to do the same.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::uint64_t fingerprint(const schedule& plan) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  const auto add = [&](auto value) {
    auto bits = static_cast<std::uint64_t>(value);
    for (int byte = 0; byte < 8; ++byte, bits >>= 8U) hash = (hash ^ (bits & 0xFFU)) * 0x100000001B3U;
  };
  const auto add_location = [&](const location& l) {
    add(static_cast<int>(l.where) * 2 + (l.cyclic ? 1 : 0));
    add(l.offset);
  };
  const collective_call& call = plan.call;
  add(static_cast<int>(call.kind) * 4 + (call.in_place ? 2 : 0) + (call.ordered ? 1 : 0));
  add(call.ranks);
  add(call.root);
  for (const std::int64_t count : call.counts) add(count);
  for (const std::int64_t elements : plan.scratch) add(elements);
  add(plan.credits);
  add(plan.tracks.size());
  for (const track& t : plan.tracks) {
    for (const int value : {t.tree, t.phase, t.in_flight}) add(value);
    for (const std::int64_t value : {t.chunks, t.chunk, t.cut}) add(value);
    add(t.parts.size());
    for (const rank_steps& p : t.parts) {
      for (const int value : {p.rank, p.begin, p.end}) add(value);
    }
    for (const step& s : t.steps) {
      add(static_cast<int>(s.kind) * 2 + (s.incoming_left ? 1 : 0));
      for (const int value : {s.peer, s.edge, s.stream}) add(value);
      add_location(s.from);
      add_location(s.to);
      add(s.count);
    }
  }
  return hash;
}

/// Writes a track rank by rank.
class track_builder {
 public:
  ESPALIER_CONSTEXPR_VECTOR track_builder() = default;
  ESPALIER_CONSTEXPR_VECTOR track_builder(int tree, int phase) {
    track_.tree = tree;
    track_.phase = phase;
  }

  /// All steps until the next call are `rank`'s. @pre ranks ascend
  ESPALIER_CONSTEXPR_VECTOR void rank(int rank) {
    close();
    track_.parts.push_back({rank, static_cast<int>(track_.steps.size()), 0});
  }
  /// The stream of all message steps until the next call.
  constexpr void stream(int number) { stream_ = number; }
  constexpr void send(int peer, int edge, location from, std::int64_t count) {
    add({action::send, false, peer, edge, stream_, from, {}, count});
  }
  constexpr void receive(int peer, int edge, location to, std::int64_t count) {
    add({action::receive, false, peer, edge, stream_, {}, to, count});
  }
  constexpr void receive_reduce(int peer, int edge, location from, location to, std::int64_t count,
                                bool incoming_left = false) {
    add({action::receive_reduce, incoming_left, peer, edge, stream_, from, to, count});
  }
  constexpr void copy(location from, location to, std::int64_t count) {
    if (from != to) add({action::copy, false, -1, step::direct, 0, from, to, count});
  }

  /// The track, as one lane.
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR track finish() { return finish(1, 0, 0, 1); }
  /// The track in `chunks` lanes. @pre every step moves `chunk` elements
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR track finish(std::int64_t chunks, std::int64_t chunk, std::int64_t cut,
                                                       int in_flight) {
    close();
    track_.chunks = chunks;
    track_.chunk = chunk;
    track_.cut = cut;
    track_.in_flight = in_flight;
    return std::move(track_);
  }

 private:
  // Nothing is sent for no elements: both ends leave it out alike.
  constexpr void add(const step& s) {
    if (s.count > 0) track_.steps.push_back(s);
  }
  ESPALIER_CONSTEXPR_VECTOR void close() {
    if (track_.parts.empty()) return;
    rank_steps& last = track_.parts.back();
    last.end = static_cast<int>(track_.steps.size());
    if (last.begin == last.end) track_.parts.pop_back();
  }

  track track_;
  int stream_ = 0;
};

}  // namespace espalier::comm
