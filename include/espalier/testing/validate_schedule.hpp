// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/schedule/schedule.hpp>
#include <espalier/comm/schedule/streams.hpp>
#include <espalier/config.hpp>
#include <espalier/testing/pieces.hpp>
#include <espalier/testing/symbolic_memory.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace espalier::comm {

/// The mistakes that a schedule can have.
enum class fault : std::uint8_t {
  malformed,        ///< a rank, count, offset or field that makes no sense
  wrong_edge,       ///< a message names an edge of the network that does not connect its ranks
  outside,          ///< a step reaches beyond a buffer
  writes_input,     ///< a step writes the caller's input
  race,             ///< two lanes touch the same elements and nothing orders them
  no_partner,       ///< a stream has more messages on one end than on the other
  size_differs,     ///< a message is longer or shorter than its receiver expects
  unwritten,        ///< a step reads elements that nothing has been written to
  elements_differ,  ///< a reduction combines different elements of the array
  twice,            ///< a reduction combines a rank's contribution a second time
  out_of_order,     ///< an ordered reduction combines ranks that are not neighbours, or in the wrong order
  deadlock,         ///< no rank can go on
  result_missing,   ///< a result is not written
  result_wrong      ///< a result is the wrong element, or lacks contributions
};

/// The place of a mistake.
struct schedule_fault {
  fault kind = fault::malformed;
  int rank = -1;
  int peer = -1;
  int track = -1;
  int tree = -1;
  std::int64_t chunk = -1;
  int step = -1;  ///< of the track's list
  place where = place::output;
  std::int64_t offset = -1;
  std::int64_t count = 0;
};

/// The result of `validate`.
struct schedule_report {
  std::vector<schedule_fault> faults;
  std::int64_t messages = 0;
  std::int64_t steps = 0;

  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR explicit operator bool() const { return faults.empty(); }
};

/// One sentence about a fault.
[[nodiscard]] inline std::string describe(const schedule_fault& f) {
  const auto buffer = [&] {
    const char* const name = f.where == place::input ? "input" : f.where == place::output ? "output" : "scratch";
    return std::string(name) + " [" + std::to_string(f.offset) + ", " + std::to_string(f.offset + f.count) + ")";
  };
  std::string text = "rank " + std::to_string(f.rank);
  if (f.track >= 0) text += ", track " + std::to_string(f.track) + " (tree " + std::to_string(f.tree) + ")";
  if (f.chunk >= 0) text += ", chunk " + std::to_string(f.chunk);
  if (f.step >= 0) text += ", step " + std::to_string(f.step);
  text += ": ";
  const std::string peer = "rank " + std::to_string(f.peer);
  switch (f.kind) {
    case fault::malformed: return text + "a field of the schedule is out of range";
    case fault::wrong_edge: return text + "the message exchanged with " + peer + " names an edge between others";
    case fault::outside: return text + buffer() + " reaches beyond the buffer";
    case fault::writes_input: return text + "writes the caller's " + buffer();
    case fault::race: return text + buffer() + " is also touched by another lane, and nothing orders the two";
    case fault::no_partner: return text + "the messages exchanged with " + peer + " don't pair up on both ends";
    case fault::size_differs: return text + "a message of " + peer + " has another size than expected";
    case fault::unwritten: return text + "reads " + buffer() + " before anything is written there";
    case fault::elements_differ: return text + "combines different elements of the array into " + buffer();
    case fault::twice: return text + "combines a contribution into " + buffer() + " that is already in it";
    case fault::out_of_order: return text + "combines into " + buffer() + " out of the order of ranks";
    case fault::deadlock: return text + "waits for ever" + (f.peer >= 0 ? " for " + peer : std::string());
    case fault::result_missing: return text + "the result " + buffer() + " is never written";
    case fault::result_wrong: return text + "the result " + buffer() + " is not what the collective asks for";
  }
  return text;
}

}  // namespace espalier::comm

namespace espalier::comm::detail {

class schedule_validator {
 public:
  ESPALIER_CONSTEXPR_VECTOR schedule_validator(const schedule& plan, const network* net, std::size_t most)
      : plan_(plan), net_(net), layout_(plan.call), most_(most) {}

  ESPALIER_CONSTEXPR_VECTOR schedule_report run() {
    if (check_fields()) {
      check_races();
      if (pair_streams() && report_.faults.empty()) execute();
    }
    return std::move(report_);
  }

 private:
  struct message {
    std::vector<known_run> runs;
    std::int64_t count = 0;
    std::int64_t chunk = 0;
  };
  // What is under way of a stream: at most one message.
  struct mailbox {
    bool full = false;
    message held;
  };
  struct process {
    std::vector<std::pair<int, std::int64_t>> lanes;  // index of the part's record, chunk
    std::size_t lane = 0;
    int next = 0;  // step, from the beginning of the part
    bool queued = false;
  };
  struct part_record {
    int track = 0;
    rank_steps steps;
  };

  [[nodiscard]] constexpr std::int64_t size_of_place(int rank, place where) const {
    switch (where) {
      case place::input: return layout_.input_elements(rank);
      case place::output: return layout_.output_elements(rank);
      case place::scratch: return plan_.scratch[static_cast<std::size_t>(rank)];
    }
    return 0;
  }

  ESPALIER_CONSTEXPR_VECTOR schedule_fault& add(fault what, int rank, int track = -1, int step = -1,
                                                std::int64_t chunk = -1) {
    schedule_fault f;
    f.kind = what;
    f.rank = rank;
    f.track = track;
    f.tree = track < 0 ? -1 : plan_.tracks[static_cast<std::size_t>(track)].tree;
    f.step = step;
    f.chunk = chunk;
    if (report_.faults.size() >= most_) {
      spare_ = f;
      return spare_;
    }
    report_.faults.push_back(f);
    return report_.faults.back();
  }
  constexpr void at(schedule_fault& f, const location& l, std::int64_t count) {
    f.where = l.where;
    f.offset = l.offset;
    f.count = count;
  }

  // Elements that a step touches at `l` in all chunks together.
  [[nodiscard]] constexpr std::int64_t span(const track& t, const step& s, const location& l) const {
    if (t.chunks == 1) return s.count - t.cut;
    if (l.cyclic && t.in_flight <= t.chunks - 1) return (t.in_flight - 1) * t.chunk + s.count;
    return (t.chunks - 1) * t.chunk + s.count - t.cut;
  }

  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR bool check_fields() {
    const int ranks = plan_.call.ranks;
    if (plan_.scratch.size() != static_cast<std::size_t>(ranks)) add(fault::malformed, 0);
    for (std::size_t i = 0; i < plan_.tracks.size() && report_.faults.empty(); ++i) {
      const track& t = plan_.tracks[i];
      const int number = static_cast<int>(i);
      if (t.chunks < 1 || t.in_flight < 1 || t.chunk < 0 || t.cut < 0 || t.phase < 0) add(fault::malformed, 0, number);
      int before = -1;
      for (const rank_steps& p : t.parts) {
        if (p.rank <= before || p.rank >= ranks || p.begin > p.end || p.begin < 0 ||
            p.end > static_cast<int>(t.steps.size())) {
          add(fault::malformed, p.rank, number);
          return false;
        }
        before = p.rank;
        for (int k = p.begin; k < p.end; ++k) check_step(t, number, p.rank, k);
      }
    }
    return report_.faults.empty();
  }

  ESPALIER_CONSTEXPR_VECTOR void check_step(const track& t, int number, int rank, int index) {
    const step& s = t.steps[static_cast<std::size_t>(index)];
    const bool moves = s.kind == action::send || is_receive(s.kind);
    if (s.count <= t.cut || (t.chunks > 1 && s.count > t.chunk) ||
        (moves && (s.peer < 0 || s.peer >= plan_.call.ranks || s.peer == rank))) {
      add(fault::malformed, rank, number, index);
      return;
    }
    if (moves && !right_edge(s, rank)) add(fault::wrong_edge, rank, number, index).peer = s.peer;
    if (writes(s.kind) && s.to.where == place::input) at(add(fault::writes_input, rank, number, index), s.to, s.count);
    const auto inside = [&](const location& l) {
      const std::int64_t size = span(t, s, l);
      if (l.offset >= 0 && l.offset + size <= size_of_place(rank, l.where)) return;
      at(add(fault::outside, rank, number, index), l, size);
    };
    if (reads(s.kind)) inside(s.from);
    if (writes(s.kind)) inside(s.to);
  }

  [[nodiscard]] constexpr bool right_edge(const step& s, int rank) const {
    if (s.edge == step::direct) return true;
    if (s.edge < 0) return false;
    if (net_ == nullptr) return true;
    if (static_cast<std::size_t>(s.edge) >= net_->edges.size()) return false;
    const network::edge& e = net_->edges[static_cast<std::size_t>(s.edge)];
    const bool sends = s.kind == action::send;
    return e.from == (sends ? rank : s.peer) && e.to == (sends ? s.peer : rank);
  }

  // Lanes that nothing orders must not touch the same elements, unless both only read. Looked at by whole tracks: the
  // chunks of one step lie one after the other, so only steps at the same offset may share elements within a track.
  ESPALIER_CONSTEXPR_VECTOR void check_races() {
    struct access {
      int phase;
      place where;
      std::int64_t begin;
      std::int64_t end;
      int track;
      int step;
      bool writes;
      bool many;  // chunks
      bool cyclic;
    };
    std::vector<std::vector<access>> all(static_cast<std::size_t>(plan_.call.ranks));
    for (std::size_t i = 0; i < plan_.tracks.size(); ++i) {
      const track& t = plan_.tracks[i];
      for (const rank_steps& p : t.parts) {
        for (int k = p.begin; k < p.end; ++k) {
          const step& s = t.steps[static_cast<std::size_t>(k)];
          const auto note = [&](const location& l, bool write) {
            all[static_cast<std::size_t>(p.rank)].push_back({t.phase, l.where, l.offset, l.offset + span(t, s, l),
                                                             static_cast<int>(i), k, write, t.chunks > 1, l.cyclic});
          };
          if (reads(s.kind)) note(s.from, false);
          if (writes(s.kind)) note(s.to, true);
        }
      }
    }
    for (std::size_t r = 0; r < all.size(); ++r) {
      auto& list = all[r];
      std::sort(list.begin(), list.end(), [](const access& a, const access& b) {
        if (a.phase != b.phase) return a.phase < b.phase;
        if (a.where != b.where) return a.where < b.where;
        if (a.begin != b.begin) return a.begin < b.begin;
        if (a.track != b.track) return a.track < b.track;
        return a.step < b.step;
      });
      // Of what began earlier, the furthest end of each kind decides. Two of a track at the same offset are in order.
      struct reach {
        std::int64_t end = -1;
        std::int64_t begin = -1;
        int track = -1;
        bool cyclic = false;
      };
      reach write[2];  // the furthest, and the furthest of another track or offset
      reach any[2];
      const auto same = [](const reach& x, const access& a) {
        return x.track == a.track && (!a.many || (x.begin == a.begin && x.cyclic == a.cyclic));
      };
      const auto extend = [&](reach(&kept)[2], const access& a) {
        const reach now{a.end, a.begin, a.track, a.cyclic};
        if (same(kept[0], a)) {
          kept[0].end = std::max(kept[0].end, a.end);
        } else if (a.end > kept[0].end) {
          kept[1] = kept[0];
          kept[0] = now;
        } else if (a.end > kept[1].end) {
          kept[1] = now;
        }
      };
      for (std::size_t i = 0; i < list.size(); ++i) {
        const access& a = list[i];
        if (i == 0 || list[i - 1].phase != a.phase || list[i - 1].where != a.where) {
          write[0] = write[1] = any[0] = any[1] = reach{};
        }
        const reach(&against)[2] = a.writes ? any : write;
        for (const reach& x : against) {
          if (x.track < 0 || same(x, a) || x.end <= a.begin) continue;
          at(add(fault::race, static_cast<int>(r), a.track, a.step), {a.where, a.begin}, a.end - a.begin);
          return;
        }
        extend(any, a);
        if (a.writes) extend(write, a);
      }
    }
  }

  // Both ends of a stream must have the same number of messages per chunk.
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR bool pair_streams() {
    map_ = streams_of(plan_);
    for (const message_stream& s : map_.streams) {
      if (s.sends.size() == s.receives.size()) continue;
      const bool sends = s.sends.size() > s.receives.size();
      add(fault::no_partner, sends ? s.from : s.to, s.track, sends ? s.sends.back() : s.receives.back()).peer =
          sends ? s.to : s.from;
    }
    mailboxes_.assign(map_.streams.size(), {});
    return report_.faults.empty();
  }

  // The strictest executor that the rules allow: each rank takes its lanes one after another, each step waits for the
  // one before, a stream holds one message. All waits are waits for one event, so an executor that waits less gets at
  // least as far.
  ESPALIER_CONSTEXPR_VECTOR void execute() {
    const auto ranks = static_cast<std::size_t>(plan_.call.ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      for (int where = 0; where < 3; ++where) memory_.emplace_back();
      for (const piece& p : pieces_held(plan_.call, layout_, static_cast<int>(r))) {
        if (p.count > 0)
          buffer(static_cast<int>(r), p.at.where).write(p.at.offset, p.count, {p.element, sets_.one(p.contributor)});
      }
    }
    std::vector<part_record> records;
    std::vector<std::vector<int>> of_track(plan_.tracks.size());
    processes_.resize(ranks);
    for (std::size_t i = 0; i < plan_.tracks.size(); ++i) {
      for (const rank_steps& p : plan_.tracks[i].parts) {
        of_track[i].push_back(static_cast<int>(records.size()));
        records.push_back({static_cast<int>(i), p});
      }
    }
    for (const lane& l : lanes_in_order(plan_)) {
      for (const int record : of_track[static_cast<std::size_t>(l.track)]) {
        processes_[static_cast<std::size_t>(records[static_cast<std::size_t>(record)].steps.rank)].lanes.emplace_back(
            record, l.chunk);
      }
    }
    for (std::size_t r = 0; r < ranks; ++r) wake(static_cast<int>(r));
    for (std::size_t i = 0; i < ready_.size() && report_.faults.empty(); ++i) {
      const int rank = ready_[i];
      processes_[static_cast<std::size_t>(rank)].queued = false;
      while (report_.faults.empty() && advance(rank, records)) {}
      if (i > 4096 && i * 2 > ready_.size()) {
        ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        i = static_cast<std::size_t>(-1);
      }
    }
    if (report_.faults.empty()) check_ends(records);
    if (report_.faults.empty()) check_results();
  }

  ESPALIER_CONSTEXPR_VECTOR void wake(int rank) {
    process& p = processes_[static_cast<std::size_t>(rank)];
    if (p.queued) return;
    p.queued = true;
    ready_.push_back(rank);
  }

  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR symbolic_memory& buffer(int rank, place where) {
    return memory_[static_cast<std::size_t>(rank) * 3 + static_cast<std::size_t>(where)];
  }

  // Takes one step of a rank. False where it must wait or has ended.
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR bool advance(int rank, const std::vector<part_record>& records) {
    process& p = processes_[static_cast<std::size_t>(rank)];
    if (p.lane == p.lanes.size()) return false;
    const part_record& record = records[static_cast<std::size_t>(p.lanes[p.lane].first)];
    const std::int64_t chunk = p.lanes[p.lane].second;
    const int index = record.steps.begin + p.next;
    if (index == record.steps.end) {
      ++p.lane;
      p.next = 0;
      return true;
    }
    const track& t = plan_.tracks[static_cast<std::size_t>(record.track)];
    const step& s = t.steps[static_cast<std::size_t>(index)];
    const std::int64_t count = t.count(s, chunk);
    const location from{s.from.where, t.offset(s.from, chunk)};
    const location to{s.to.where, t.offset(s.to, chunk)};
    const int index_of_stream =
        map_.ends[static_cast<std::size_t>(record.track)][static_cast<std::size_t>(index)].stream;
    mailbox* const way = index_of_stream >= 0 ? &mailboxes_[static_cast<std::size_t>(index_of_stream)] : nullptr;
    if (way != nullptr && way->full == (s.kind == action::send)) return false;
    const step_position where{rank, record.track, index, chunk};
    switch (s.kind) {
      case action::send:
        if (!read(where, from, count, way->held.runs)) return false;
        way->full = true;
        way->held.count = count;
        way->held.chunk = chunk;
        ++report_.messages;
        wake(s.peer);
        break;
      case action::receive:
      case action::receive_reduce:
        if (way->held.count != count || way->held.chunk != chunk) {
          at(add(fault::size_differs, rank, record.track, index, chunk), to, count);
          report_.faults.back().peer = s.peer;
          return false;
        }
        if (s.kind == action::receive) {
          put(to, way->held.runs, rank);
        } else if (!combine(where, from, to, count, way->held.runs, s.incoming_left)) {
          return false;
        }
        way->full = false;
        wake(s.peer);
        break;
      case action::copy:
        if (!read(where, from, count, scratch_runs_)) return false;
        put(to, scratch_runs_, rank);
        break;
    }
    ++report_.steps;
    ++p.next;
    return true;
  }

  struct step_position {
    int rank;
    int track;
    int step;
    std::int64_t chunk;
  };

  ESPALIER_CONSTEXPR_VECTOR void complain(fault what, const step_position& p, const location& l, std::int64_t count) {
    at(add(what, p.rank, p.track, p.step, p.chunk), l, count);
  }

  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR bool read(const step_position& p, const location& from, std::int64_t count,
                                                    std::vector<known_run>& runs) {
    if (buffer(p.rank, from.where).read(from.offset, count, runs)) return true;
    complain(fault::unwritten, p, from, count);
    return false;
  }

  ESPALIER_CONSTEXPR_VECTOR void put(const location& to, const std::vector<known_run>& runs, int rank) {
    std::int64_t offset = to.offset;
    for (const known_run& run : runs) {
      buffer(rank, to.where).write(offset, run.count, run.value);
      offset += run.count;
    }
  }

  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR bool combine(const step_position& p, const location& from, const location& to,
                                                       std::int64_t count, const std::vector<known_run>& incoming,
                                                       bool incoming_left) {
    std::vector<known_run> own;
    if (!read(p, from, count, own)) return false;
    std::vector<known_run> result;
    std::size_t a = 0;
    std::size_t b = 0;
    std::int64_t in_a = 0;
    std::int64_t in_b = 0;
    while (a < own.size()) {
      const std::int64_t length = std::min(own[a].count - in_a, incoming[b].count - in_b);
      const known_value x = own[a].value.moved(in_a);
      const known_value y = incoming[b].value.moved(in_b);
      if (x.element != y.element) {
        complain(fault::elements_differ, p, to, count);
        return false;
      }
      const int sum = sets_.united(x.set, y.set);
      if (sum < 0) {
        complain(fault::twice, p, to, count);
        return false;
      }
      if (plan_.call.ordered) {
        const int left = incoming_left ? y.set : x.set;
        const int right = incoming_left ? x.set : y.set;
        if (!sets_.continues(left, right)) {
          complain(fault::out_of_order, p, to, count);
          return false;
        }
      }
      append_run(result, {length, {x.element, sum}});
      in_a += length;
      in_b += length;
      if (in_a == own[a].count) {
        ++a;
        in_a = 0;
      }
      if (b < incoming.size() && in_b == incoming[b].count) {
        ++b;
        in_b = 0;
      }
    }
    put(to, result, p.rank);
    return true;
  }

  ESPALIER_CONSTEXPR_VECTOR void check_ends(const std::vector<part_record>& records) {
    for (std::size_t r = 0; r < processes_.size(); ++r) {
      const process& p = processes_[r];
      if (p.lane == p.lanes.size()) continue;
      const part_record& record = records[static_cast<std::size_t>(p.lanes[p.lane].first)];
      const int index = record.steps.begin + p.next;
      schedule_fault& f = add(fault::deadlock, static_cast<int>(r), record.track, index, p.lanes[p.lane].second);
      f.peer = plan_.tracks[static_cast<std::size_t>(record.track)].steps[static_cast<std::size_t>(index)].peer;
    }
  }

  constexpr void check_results() {
    for (int r = 0; r < plan_.call.ranks; ++r) {
      for (const piece& wanted : pieces_wanted(plan_.call, layout_, r)) {
        if (wanted.count == 0) continue;
        if (!buffer(r, wanted.at.where).read(wanted.at.offset, wanted.count, scratch_runs_)) {
          at(add(fault::result_missing, r), wanted.at, wanted.count);
          continue;
        }
        std::int64_t offset = 0;
        for (const known_run& run : scratch_runs_) {
          const bool right = run.value.element == wanted.element + offset &&
                             (wanted.contributor == piece::everyone ? sets_.size(run.value.set) == plan_.call.ranks
                                                                    : sets_.is_one(run.value.set, wanted.contributor));
          if (!right) at(add(fault::result_wrong, r), {wanted.at.where, wanted.at.offset + offset}, run.count);
          offset += run.count;
        }
      }
    }
  }

  const schedule& plan_;
  const network* net_;
  call_layout layout_;
  std::size_t most_;
  schedule_report report_;
  schedule_fault spare_;
  stream_map map_;
  std::vector<mailbox> mailboxes_;       // by stream
  std::vector<symbolic_memory> memory_;  // by rank and place
  std::vector<process> processes_;
  std::vector<int> ready_;
  std::vector<known_run> scratch_runs_;
  contributor_sets sets_{plan_.call.ranks};
};

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// Executes a schedule on sets of contributions instead of numbers and says what is wrong with it: results that are
/// missing, wrong or combined twice, messages whose ends don't match, steps that read what is not there or race with
/// other lanes, ranks that wait for ever although every stream may hold one message. Stops after `most` faults.
/// Throws std::invalid_argument where the call contradicts itself.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule_report validate(const schedule& plan, std::size_t most = 8) {
  return detail::schedule_validator(plan, nullptr, most).run();
}

/// The same, and that the edges that messages name connect their ranks in `net`.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule_report validate(const schedule& plan, const network& net,
                                                                 std::size_t most = 8) {
  return detail::schedule_validator(plan, &net, most).run();
}

}  // namespace espalier::comm
