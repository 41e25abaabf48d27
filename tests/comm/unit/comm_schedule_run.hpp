// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/schedule/schedule.hpp>
#include <espalier/testing/pieces.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

// Executes schedules on numbers, in a random order that the rules of schedule.hpp allow, and compares with what the
// collective is defined to do.
namespace espalier::test {

/// A 2 x 2 matrix of integers modulo 2^32: its product does not commute, and is exact.
struct matrix {
  std::array<std::uint32_t, 4> m{};

  friend bool operator==(const matrix&, const matrix&) = default;
  friend matrix operator*(const matrix& a, const matrix& b) {
    return {{a.m[0] * b.m[0] + a.m[1] * b.m[2], a.m[0] * b.m[1] + a.m[1] * b.m[3], a.m[2] * b.m[0] + a.m[3] * b.m[2],
             a.m[2] * b.m[1] + a.m[3] * b.m[3]}};
  }
};

[[nodiscard]] inline std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

/// The value that rank `rank` has for element `element` of the array. Commuting values are diagonal.
[[nodiscard]] inline matrix contribution(int rank, std::int64_t element, bool commute) {
  const std::uint64_t a = mixed(static_cast<std::uint64_t>(element) * 64 + static_cast<std::uint64_t>(rank));
  const std::uint64_t b = mixed(a);
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x) | 1U; };
  return {{low(a), commute ? 0U : low(a >> 32U), commute ? 0U : low(b), low(b >> 32U) * 2U + 1U}};
}

/// One run of a schedule.
class schedule_run {
 public:
  schedule_run(const comm::schedule& plan, int credits, std::uint32_t seed)
      : plan_(plan), layout_(plan.call), credits_(credits), random_(seed) {}

  /// Empty if all results are right; otherwise what is wrong.
  [[nodiscard]] std::string check() {
    prepare();
    if (!execute()) return "blocked for ever";
    return compare();
  }

 private:
  using place = comm::place;
  struct envelope {
    std::int64_t chunk;
    std::vector<matrix> values;
  };
  struct departure {  // a send that has begun; its elements are read when it leaves
    std::size_t lane;
    comm::location from;
    std::int64_t count;
    std::int64_t chunk;
  };
  struct stream {
    std::deque<departure> leaving;
    std::deque<envelope> arrived;
    int used = 0;
    std::int64_t started = 0;
    int per_chunk = 0;
  };
  struct lane_state {
    int track;
    const comm::rank_steps* part;
    std::int64_t chunk;
    int next = 0;
    std::vector<std::pair<comm::location, std::int64_t>> reading;  // by sends that have not left
    bool open = false;
    bool done = false;
  };
  using key = std::tuple<int, int, int, int, int>;  // track, from, to, edge, stream

  [[nodiscard]] std::size_t stream_index(const key& k) {
    const auto found = std::find(keys_.begin(), keys_.end(), k);
    if (found != keys_.end()) return static_cast<std::size_t>(found - keys_.begin());
    keys_.push_back(k);
    streams_.emplace_back();
    return streams_.size() - 1;
  }
  [[nodiscard]] std::vector<matrix>& memory(int rank, place where) {
    return memory_[static_cast<std::size_t>(rank) * 3 + static_cast<std::size_t>(where)];
  }

  void prepare() {
    const int n = plan_.call.ranks;
    const bool commute = !plan_.call.ordered;
    for (int r = 0; r < n; ++r) {
      const std::int64_t sizes[] = {layout_.input_elements(r), layout_.output_elements(r),
                                    plan_.scratch[static_cast<std::size_t>(r)]};
      for (const std::int64_t size : sizes) {
        memory_.emplace_back();
        for (std::int64_t i = 0; i < size; ++i) memory_.back().push_back(contribution(1000 + r, i, false));
      }
      for (const comm::piece& p : comm::pieces_held(plan_.call, layout_, r)) {
        for (std::int64_t i = 0; i < p.count; ++i) {
          memory(r, p.at.where)[static_cast<std::size_t>(p.at.offset + i)] =
              contribution(p.contributor, p.element + i, commute);
        }
      }
    }
    for (std::size_t t = 0; t < plan_.tracks.size(); ++t) {
      const comm::track& track = plan_.tracks[t];
      for (const comm::rank_steps& p : track.parts) {
        for (std::int64_t k = 0; k < track.chunks; ++k) {
          lanes_.push_back({static_cast<int>(t), &p, k, 0, {}, false, false});
        }
        for (int i = p.begin; i < p.end; ++i) {
          const comm::step& s = track.steps[static_cast<std::size_t>(i)];
          if (s.kind == comm::action::send) {
            ++streams_at(stream_index({static_cast<int>(t), p.rank, s.peer, s.edge, s.stream})).per_chunk;
          }
        }
      }
    }
  }
  [[nodiscard]] stream& streams_at(std::size_t i) { return streams_[i]; }

  // Rule 2.
  [[nodiscard]] bool may_open(std::size_t index) const {
    const lane_state& lane = lanes_[index];
    const comm::track& track = plan_.tracks[static_cast<std::size_t>(lane.track)];
    if (lane.chunk >= track.in_flight && !lanes_[index - static_cast<std::size_t>(track.in_flight)].done) return false;
    return std::none_of(lanes_.begin(), lanes_.end(), [&](const lane_state& other) {
      return !other.done && other.part->rank == lane.part->rank &&
             plan_.tracks[static_cast<std::size_t>(other.track)].phase < track.phase;
    });
  }

  [[nodiscard]] bool execute() {
    std::size_t unfinished = lanes_.size();
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < lanes_.size(); ++i) order.push_back(i);
    while (unfinished > 0) {
      bool moved = false;
      std::shuffle(order.begin(), order.end(), random_);
      std::size_t streams_seen = 0;
      for (const std::size_t i : order) {
        if (!lanes_[i].done) {
          for (int steps = static_cast<int>(random_() % 3); steps >= 0 && take_step(i); --steps) moved = true;
          if (lanes_[i].done) --unfinished;
        }
        // Messages leave now and then, the later the better for finding elements that are overwritten too early.
        if (streams_seen < streams_.size() && random_() % 2 == 0 && leave(streams_seen++)) moved = true;
      }
      for (std::size_t s = 0; s < streams_.size() && !moved; ++s) moved = leave(s);
      if (!moved) {
        for (std::size_t i = 0; i < lanes_.size() && !moved; ++i) {
          if (lanes_[i].done) continue;
          moved = take_step(i);
          if (lanes_[i].done) --unfinished;
        }
      }
      if (!moved) return false;
    }
    return true;
  }

  bool leave(std::size_t index) {
    stream& s = streams_[index];
    if (s.leaving.empty()) return false;
    const departure d = s.leaving.front();
    s.leaving.pop_front();
    lane_state& lane = lanes_[d.lane];
    const auto& source = memory(lane.part->rank, d.from.where);
    const auto begin = source.begin() + static_cast<std::ptrdiff_t>(d.from.offset);
    s.arrived.push_back({d.chunk, {begin, begin + static_cast<std::ptrdiff_t>(d.count)}});
    lane.reading.erase(std::find(lane.reading.begin(), lane.reading.end(), std::pair{d.from, d.count}));
    return true;
  }

  bool take_step(std::size_t index) {
    lane_state& lane = lanes_[index];
    if (lane.done) return false;
    if (!lane.open) {
      if (!may_open(index)) return false;
      lane.open = true;
    }
    const comm::track& track = plan_.tracks[static_cast<std::size_t>(lane.track)];
    const int at = lane.part->begin + lane.next;
    if (at == lane.part->end) {
      if (!lane.reading.empty()) return false;
      lane.done = true;
      return true;
    }
    const comm::step& s = track.steps[static_cast<std::size_t>(at)];
    const int rank = lane.part->rank;
    const std::int64_t count = track.count(s, lane.chunk);
    const comm::location from{s.from.where, track.offset(s.from, lane.chunk)};
    const comm::location to{s.to.where, track.offset(s.to, lane.chunk)};
    const auto n = static_cast<std::size_t>(count);
    if (s.kind == comm::action::send) {
      stream& way = streams_[stream_index({lane.track, rank, s.peer, s.edge, s.stream})];
      if (way.used == credits_ || way.started / way.per_chunk != lane.chunk) return false;
      ++way.used;
      ++way.started;
      way.leaving.push_back({index, from, count, lane.chunk});
      lane.reading.emplace_back(from, count);
      ++lane.next;
      return true;
    }
    for (const auto& [where, length] : lane.reading) {
      if (where.where == to.where && where.offset < to.offset + count && to.offset < where.offset + length)
        return false;
    }
    const auto source = [&](const comm::location& l) {
      const auto& all = memory(rank, l.where);
      return std::vector<matrix>(all.begin() + static_cast<std::ptrdiff_t>(l.offset),
                                 all.begin() + static_cast<std::ptrdiff_t>(l.offset + count));
    };
    std::vector<matrix> values;
    std::vector<matrix> incoming;
    if (comm::is_receive(s.kind)) {
      stream& way = streams_[stream_index({lane.track, s.peer, rank, s.edge, s.stream})];
      if (way.arrived.empty() || way.arrived.front().chunk != lane.chunk || way.arrived.front().values.size() != n) {
        return false;
      }
      incoming = std::move(way.arrived.front().values);
      way.arrived.pop_front();
      --way.used;
    }
    switch (s.kind) {
      case comm::action::receive: values = std::move(incoming); break;
      case comm::action::copy: values = source(from); break;
      case comm::action::receive_reduce: values = source(from); break;
      case comm::action::send: break;
    }
    if (s.kind == comm::action::receive_reduce) {
      for (std::size_t i = 0; i < n; ++i) {
        values[i] = s.incoming_left ? incoming[i] * values[i] : values[i] * incoming[i];
      }
    }
    std::copy(values.begin(), values.end(), memory(rank, to.where).begin() + static_cast<std::ptrdiff_t>(to.offset));
    ++lane.next;
    return true;
  }

  [[nodiscard]] std::string compare() {
    const bool commute = !plan_.call.ordered;
    for (int r = 0; r < plan_.call.ranks; ++r) {
      for (const comm::piece& p : comm::pieces_wanted(plan_.call, layout_, r)) {
        for (std::int64_t i = 0; i < p.count; ++i) {
          matrix right;
          if (p.contributor != comm::piece::everyone) {
            right = contribution(p.contributor, p.element + i, commute);
          } else {
            right = contribution(0, p.element + i, commute);
            for (int k = 1; k < plan_.call.ranks; ++k) right = right * contribution(k, p.element + i, commute);
          }
          if (memory(r, p.at.where)[static_cast<std::size_t>(p.at.offset + i)] != right) {
            return "rank " + std::to_string(r) + " has a wrong element " + std::to_string(p.element + i);
          }
        }
      }
    }
    return {};
  }

  const comm::schedule& plan_;
  comm::call_layout layout_;
  int credits_;
  std::mt19937 random_;
  std::vector<key> keys_;
  std::vector<stream> streams_;
  std::vector<lane_state> lanes_;
  std::vector<std::vector<matrix>> memory_;
};

}  // namespace espalier::test
