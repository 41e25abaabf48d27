// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/comm/network.hpp>
#include <espalier/comm/schedule/network_paths.hpp>
#include <espalier/comm/schedule/schedule.hpp>
#include <espalier/comm/schedule/streams.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace espalier::comm {

/// The assumptions of a simulation that are not in the network.
struct simulation_options {
  double element_bytes = 4;
  int credits = 0;             ///< per stream; 0: what the schedule asks for
  double message_seconds = 0;  ///< work of a rank per message, at each end
  double reduce_seconds_per_byte = 0;
  double copy_seconds_per_byte = 0;  ///< of local copies; arriving messages are free
};

/// The result of a simulation.
struct simulation {
  double seconds = 0;     ///< until the last rank has its result
  bool complete = false;  ///< false: some lanes never ended (`validate` says why)
  std::int64_t messages = 0;
  std::vector<double> finished;     ///< seconds, by rank
  std::vector<double> utilisation;  ///< of each resource: busy time / `seconds`
};

}  // namespace espalier::comm

namespace espalier::comm::detail {

namespace simulated {

// The state of one simulation.
enum class kind : std::uint8_t { served, left, arrived, credit, worked };
struct event {
  double time;
  std::int64_t order;  // of creation: ties are settled the same way everywhere
  kind type;
  int a;
  std::int64_t b;
};
struct later {
  constexpr bool operator()(const event& x, const event& y) const {
    return x.time != y.time ? x.time > y.time : x.order > y.order;
  }
};
struct server {
  double seconds_per_byte = 0;
  double busy = 0;
  bool serving = false;
  std::vector<std::pair<std::int64_t, int>> waiting;  // lane's place and message, a heap
};
// One direction of one edge for one track: per chunk, `sends` messages.
struct stream {
  const network_path* path = nullptr;
  int sender = -1;  // records
  int receiver = -1;
  int sends = 0;
  std::int64_t sent = 0;
  std::int64_t freed = 0;  // credits come back
  std::int64_t arrived = 0;
  std::int64_t total = 0;
  std::vector<char> ready;  // by message: its send step was taken
};
struct message {
  int stream = 0;
  std::int64_t number = 0;
  double bytes = 0;
  double leaves = 0;
  std::size_t hop = 0;
  std::int64_t place = 0;
};
struct record {  // a part
  int track = 0;
  rank_steps steps;
  std::int64_t first_lane = 0;  // of lane states
  std::int64_t opened = 0;
};
struct lane_state {
  int next = 0;
  int leaving = 0;  // sends that have not left
  char state = 0;   // 0 closed, 1 open, 2 working, 3 done
};
struct rank_state {
  double free = 0;  // when its own work ends
  std::vector<int> records;
  std::vector<std::int64_t> left_in_phase;
  std::size_t phase = 0;
};

}  // namespace simulated

// Discrete events on a model between fluid flow and store-and-forward. Every resource serves one message at a time, for
// size / capacity seconds, the one whose lane comes first. A message moves on to the next resource of its way as soon
// as it is served (cut-through), has left when the slowest resource is done with it, and arrives a latency later.
//
// Why not fair shares of a fluid: each event would change the rates of all flows that share something, which is
// quadratic where 64 ranks have thousands of chunks under way. Serving whole messages keeps every resource exactly as
// busy as fair shares would and ends each message no later than fair shares would end the last of those that share, so
// the two differ by a chunk per hop at most; and it shows what fair shares hide, the effect of the order of lanes.
class schedule_simulator {
 public:
  ESPALIER_CONSTEXPR_VECTOR schedule_simulator(const schedule& plan, const network& net,
                                               const simulation_options& options)
      : plan_(plan), net_(net), options_(options), credits_(options.credits > 0 ? options.credits : plan.credits) {}

  ESPALIER_CONSTEXPR_VECTOR simulation run() {
    if (net_.ranks != plan_.call.ranks) {
      throw std::invalid_argument("the schedule and the network have different numbers of ranks");
    }
    prepare();
    for (std::size_t r = 0; r < ranks_.size(); ++r) open_phase(static_cast<int>(r));
    settle();
    while (!events_.empty()) {
      std::pop_heap(events_.begin(), events_.end(), later{});
      const event e = events_.back();
      events_.pop_back();
      now_ = e.time;
      handle(e);
      settle();
    }
    result_.seconds = *std::max_element(result_.finished.begin(), result_.finished.end());
    result_.complete = unfinished_ == 0;
    for (const server& s : servers_) result_.utilisation.push_back(result_.seconds > 0 ? s.busy / result_.seconds : 0);
    return std::move(result_);
  }

 private:
  using kind = simulated::kind;
  using event = simulated::event;
  using later = simulated::later;
  using server = simulated::server;
  using stream = simulated::stream;
  using message = simulated::message;
  using record = simulated::record;
  using lane_state = simulated::lane_state;
  using rank_state = simulated::rank_state;

  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR const track& track_of(const record& r) const {
    return plan_.tracks[static_cast<std::size_t>(r.track)];
  }
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR record& record_at(int index) {
    return records_[static_cast<std::size_t>(index)];
  }

  ESPALIER_CONSTEXPR_VECTOR void post(double time, kind what, int a, std::int64_t b) {
    events_.push_back({time, created_++, what, a, b});
    std::push_heap(events_.begin(), events_.end(), later{});
  }

  ESPALIER_CONSTEXPR_VECTOR void prepare() {
    const auto n = static_cast<std::size_t>(plan_.call.ranks);
    ranks_.resize(n);
    result_.finished.assign(n, 0.0);
    for (const network::resource& r : net_.resources) {
      servers_.push_back({1.0 / (static_cast<double>(r.capacity) * net_.unit), 0, false, {}});
    }
    edge_paths_.reserve(net_.edges.size());
    for (const network::edge& e : net_.edges) edge_paths_.push_back(path_of(net_, e));
    for (const track& t : plan_.tracks) {
      for (const step& s : t.steps) {
        if (s.peer >= 0 && s.edge == step::direct && direct_paths_.empty()) direct_paths_ = all_paths(net_);
      }
    }
    std::int64_t lanes = 0;
    int phases = 1;
    for (const track& t : plan_.tracks) phases = std::max(phases, t.phase + 1);
    for (rank_state& r : ranks_) r.left_in_phase.assign(static_cast<std::size_t>(phases), 0);
    overwrites_.assign(plan_.tracks.size(), {});
    places_.assign(plan_.tracks.size(), {});
    for (std::size_t i = 0; i < plan_.tracks.size(); ++i) {
      const track& t = plan_.tracks[i];
      places_[i].assign(static_cast<std::size_t>(t.chunks), 0);
      first_record_.push_back(static_cast<int>(records_.size()));
      for (const rank_steps& p : t.parts) {
        rank_state& rank = ranks_[static_cast<std::size_t>(p.rank)];
        rank.records.push_back(static_cast<int>(records_.size()));
        rank.left_in_phase[static_cast<std::size_t>(t.phase)] += t.chunks;
        records_.push_back({static_cast<int>(i), p, lanes, 0});
        lanes += t.chunks;
      }
      find_overwrites(t, overwrites_[i]);
    }
    connect();
    states_.resize(static_cast<std::size_t>(lanes));
    unfinished_ = lanes;
    const std::vector<lane> order = lanes_in_order(plan_);
    for (std::size_t i = 0; i < order.size(); ++i) {
      places_[static_cast<std::size_t>(order[i].track)][static_cast<std::size_t>(order[i].chunk)] =
          static_cast<std::int64_t>(i);
    }
  }

  ESPALIER_CONSTEXPR_VECTOR void connect() {
    map_ = streams_of(plan_);
    for (const message_stream& s : map_.streams) {
      if (s.sends.size() != s.receives.size()) {
        throw std::invalid_argument("a stream's ends have different numbers of messages");
      }
      stream made;
      made.path =
          s.edge == step::direct
              ? &direct_paths_[static_cast<std::size_t>(s.from) * ranks_.size() + static_cast<std::size_t>(s.to)]
              : &edge_paths_[static_cast<std::size_t>(s.edge)];
      if (made.path->rate <= 0) throw std::invalid_argument("the network has no way between two ranks that exchange");
      made.sender = record_of(s.track, s.from);
      made.receiver = record_of(s.track, s.to);
      made.sends = static_cast<int>(s.sends.size());
      made.total = made.sends * plan_.tracks[static_cast<std::size_t>(s.track)].chunks;
      made.ready.assign(static_cast<std::size_t>(made.total), 0);
      streams_.push_back(std::move(made));
    }
  }
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR int record_of(int number, int rank) const {
    const track& t = plan_.tracks[static_cast<std::size_t>(number)];
    return first_record_[static_cast<std::size_t>(number)] + static_cast<int>(steps_of(t, rank) - t.parts.data());
  }

  // Which steps must wait until sends of their lane have left.
  ESPALIER_CONSTEXPR_VECTOR void find_overwrites(const track& t, std::vector<char>& overwrites) const {
    overwrites.assign(t.steps.size(), 0);
    for (const rank_steps& p : t.parts) {
      for (int k = p.begin; k < p.end; ++k) {
        const step& s = t.steps[static_cast<std::size_t>(k)];
        for (int j = p.begin; j < k && writes(s.kind); ++j) {
          const step& before = t.steps[static_cast<std::size_t>(j)];
          if (before.kind == action::send && before.from.where == s.to.where &&
              before.from.offset < s.to.offset + s.count && s.to.offset < before.from.offset + before.count) {
            overwrites[static_cast<std::size_t>(k)] = 1;
          }
        }
      }
    }
  }

  // Opens the lanes of the rank's phase; goes on to the next where there are none.
  ESPALIER_CONSTEXPR_VECTOR void open_phase(int rank) {
    rank_state& r = ranks_[static_cast<std::size_t>(rank)];
    while (r.phase < r.left_in_phase.size() && r.left_in_phase[r.phase] == 0) ++r.phase;
    if (r.phase == r.left_in_phase.size()) {
      result_.finished[static_cast<std::size_t>(rank)] = now_;
      return;
    }
    for (const int index : r.records) {
      record& part = record_at(index);
      const track& t = track_of(part);
      if (t.phase != static_cast<int>(r.phase)) continue;
      while (part.opened < std::min<std::int64_t>(t.in_flight, t.chunks)) open_lane(index, part.opened++);
    }
  }
  ESPALIER_CONSTEXPR_VECTOR void open_lane(int index, std::int64_t chunk) {
    state(index, chunk).state = 1;
    runnable_.emplace_back(index, chunk);
  }
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR lane_state& state(int index, std::int64_t chunk) {
    return states_[static_cast<std::size_t>(record_at(index).first_lane + chunk)];
  }

  ESPALIER_CONSTEXPR_VECTOR void settle() {
    while (!runnable_.empty()) {
      const auto [index, chunk] = runnable_.back();
      runnable_.pop_back();
      advance(index, chunk);
    }
  }

  // Takes the steps of a lane until one must wait.
  ESPALIER_CONSTEXPR_VECTOR void advance(int index, std::int64_t chunk) {
    const record& part = record_at(index);
    const track& t = track_of(part);
    lane_state& lane = state(index, chunk);
    const int last = part.steps.end - part.steps.begin;
    while (lane.state == 1 && lane.next < last) {
      const int at = part.steps.begin + lane.next;
      const step& s = t.steps[static_cast<std::size_t>(at)];
      const stream_map::end& end = map_.ends[static_cast<std::size_t>(part.track)][static_cast<std::size_t>(at)];
      const bool overwrites = overwrites_[static_cast<std::size_t>(part.track)][static_cast<std::size_t>(at)] != 0;
      if (overwrites && lane.leaving > 0) return;
      const double bytes = static_cast<double>(t.count(s, chunk)) * options_.element_bytes;
      if (s.kind == action::send) {
        stream& channel = streams_[static_cast<std::size_t>(end.stream)];
        channel.ready[static_cast<std::size_t>(chunk * channel.sends + end.message)] = 1;
        ++lane.leaving;
        ++lane.next;
        send_ready(end.stream);
        continue;
      }
      double work = 0;
      if (is_receive(s.kind)) {
        stream& channel = streams_[static_cast<std::size_t>(end.stream)];
        if (channel.arrived <= chunk * channel.sends + end.message) return;
        work = options_.message_seconds +
               (s.kind == action::receive_reduce ? bytes * options_.reduce_seconds_per_byte : 0);
      } else {
        work = bytes * options_.copy_seconds_per_byte;
      }
      if (work > 0) {
        rank_state& r = ranks_[static_cast<std::size_t>(part.steps.rank)];
        r.free = std::max(r.free, now_) + work;
        lane.state = 2;
        post(r.free, kind::worked, index, chunk);
        return;
      }
      step_over(index, chunk);
    }
    if (lane.state == 1 && lane.next == last && lane.leaving == 0) close_lane(index, chunk);
  }

  // The step that a lane is at has had its effect.
  ESPALIER_CONSTEXPR_VECTOR void step_over(int index, std::int64_t chunk) {
    const record& part = record_at(index);
    lane_state& lane = state(index, chunk);
    const int at = part.steps.begin + lane.next;
    const int from = map_.ends[static_cast<std::size_t>(part.track)][static_cast<std::size_t>(at)].stream;
    if (from >= 0) {  // a receive: the credit travels back
      post(now_ + streams_[static_cast<std::size_t>(from)].path->latency, kind::credit, from, 0);
    }
    ++lane.next;
  }

  ESPALIER_CONSTEXPR_VECTOR void close_lane(int index, std::int64_t chunk) {
    record& part = record_at(index);
    const track& t = track_of(part);
    state(index, chunk).state = 3;
    --unfinished_;
    // Lane k + in_flight waits for lane k.
    if (const std::int64_t next = chunk + t.in_flight; next < t.chunks) open_lane(index, next);
    rank_state& r = ranks_[static_cast<std::size_t>(part.steps.rank)];
    if (--r.left_in_phase[r.phase] == 0) open_phase(part.steps.rank);
  }

  // Starts the stream's next messages while they are ready and there is credit.
  ESPALIER_CONSTEXPR_VECTOR void send_ready(int index) {
    stream& channel = streams_[static_cast<std::size_t>(index)];
    while (channel.sent < channel.total && channel.sent - channel.freed < credits_ &&
           channel.ready[static_cast<std::size_t>(channel.sent)] != 0) {
      const record& from = record_at(channel.sender);
      const track& t = track_of(from);
      const std::int64_t chunk = channel.sent / channel.sends;
      const std::vector<int>& sends = map_.streams[static_cast<std::size_t>(index)].sends;
      const step& s = t.steps[static_cast<std::size_t>(sends[static_cast<std::size_t>(channel.sent % channel.sends)])];
      int slot = static_cast<int>(messages_.size());
      if (free_messages_.empty()) {
        messages_.push_back({});
      } else {
        slot = free_messages_.back();
        free_messages_.pop_back();
      }
      double start = now_;
      if (options_.message_seconds > 0) {
        rank_state& r = ranks_[static_cast<std::size_t>(from.steps.rank)];
        r.free = std::max(r.free, now_) + options_.message_seconds;
        start = r.free;
      }
      messages_[static_cast<std::size_t>(slot)] = {
          index,
          channel.sent,
          static_cast<double>(t.count(s, chunk)) * options_.element_bytes,
          start,
          0,
          places_[static_cast<std::size_t>(from.track)][static_cast<std::size_t>(chunk)]};
      ++channel.sent;
      ++result_.messages;
      if (start > now_) {
        post(start, kind::served, -1, slot);
      } else {
        move_on(slot);
      }
    }
  }

  // A message comes to its next resource, or has passed all of them.
  ESPALIER_CONSTEXPR_VECTOR void move_on(int slot) {
    message& m = messages_[static_cast<std::size_t>(slot)];
    const stream& channel = streams_[static_cast<std::size_t>(m.stream)];
    if (m.hop == channel.path->resources.size()) {
      post(m.leaves, kind::left, m.stream, m.number);
      post(m.leaves + channel.path->latency, kind::arrived, m.stream, m.number);
      free_messages_.push_back(slot);
      return;
    }
    const int resource = channel.path->resources[m.hop++];
    server& s = servers_[static_cast<std::size_t>(resource)];
    s.waiting.emplace_back(-m.place, slot);
    std::push_heap(s.waiting.begin(), s.waiting.end());
    if (!s.serving) serve(resource);
  }

  ESPALIER_CONSTEXPR_VECTOR void serve(int resource) {
    server& s = servers_[static_cast<std::size_t>(resource)];
    s.serving = !s.waiting.empty();
    if (!s.serving) return;
    std::pop_heap(s.waiting.begin(), s.waiting.end());
    const int slot = s.waiting.back().second;
    s.waiting.pop_back();
    message& m = messages_[static_cast<std::size_t>(slot)];
    const double seconds = m.bytes * s.seconds_per_byte;
    s.busy += seconds;
    m.leaves = std::max(m.leaves, now_ + seconds);
    post(now_ + seconds, kind::served, resource, 0);
    move_on(slot);
  }

  constexpr void handle(const event& e) {
    switch (e.type) {
      case kind::served:
        if (e.a < 0) {
          move_on(static_cast<int>(e.b));
        } else {
          serve(e.a);
        }
        break;
      case kind::left: {
        const stream& channel = streams_[static_cast<std::size_t>(e.a)];
        const int sender = channel.sender;
        --state(sender, e.b / channel.sends).leaving;
        runnable_.emplace_back(sender, e.b / channel.sends);
        break;
      }
      case kind::arrived: {
        stream& channel = streams_[static_cast<std::size_t>(e.a)];
        ++channel.arrived;
        runnable_.emplace_back(channel.receiver, e.b / channel.sends);
        break;
      }
      case kind::credit:
        ++streams_[static_cast<std::size_t>(e.a)].freed;
        send_ready(e.a);
        break;
      case kind::worked:
        state(e.a, e.b).state = 1;
        step_over(e.a, e.b);
        runnable_.emplace_back(e.a, e.b);
        break;
    }
  }

  const schedule& plan_;
  const network& net_;
  const simulation_options& options_;
  int credits_;
  double now_ = 0;
  std::int64_t created_ = 0;
  std::int64_t unfinished_ = 0;
  std::vector<network_path> edge_paths_;
  std::vector<network_path> direct_paths_;
  std::vector<server> servers_;
  stream_map map_;
  std::vector<stream> streams_;
  std::vector<int> first_record_;  // by track
  std::vector<message> messages_;
  std::vector<int> free_messages_;
  std::vector<record> records_;
  std::vector<lane_state> states_;                 // by record and chunk
  std::vector<std::vector<char>> overwrites_;      // by track and step
  std::vector<std::vector<std::int64_t>> places_;  // by track and chunk
  std::vector<rank_state> ranks_;
  std::vector<std::pair<int, std::int64_t>> runnable_;
  std::vector<event> events_;  // a heap
  simulation result_;
};

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// How long a schedule takes on a network, by discrete events. Throws std::invalid_argument where they don't fit
/// together. Run `validate` first: the simulation moves no data.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR simulation simulate(const schedule& plan, const network& net,
                                                            const simulation_options& options = {}) {
  return detail::schedule_simulator(plan, net, options).run();
}

}  // namespace espalier::comm
