// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/probe/explain.hpp>
#include <espalier/comm/probe/figures.hpp>
#include <espalier/comm/probe/flows.hpp>
#include <espalier/comm/probe/latency.hpp>
#include <espalier/comm/probe/tournament.hpp>
#include <espalier/comm/probe/wire.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace espalier::comm {

struct probe_options {
  std::chrono::duration<double> deadline = default_deadline();  ///< of a wait without progress
  /// All rounds of hosts together, more or less. A round takes between 30 and 80 ms, however many there are.
  double seconds = 1.3;
  double inside_seconds = 0.010;  ///< each round inside the hosts
  double latency_seconds = 0.003;
  double most_seconds = 1.8;  ///< a doubt that remains after this time is decided without more measurements
};

}  // namespace espalier::comm

namespace espalier::comm::detail {

/// Finds the hosts, and measures them round by round. Collective; afterwards all ranks hold all figures.
class topology_measurement {
 public:
  topology_measurement(probe_wire& wire, const probe_options& options)
      : wire_(wire), meter_(wire), options_(options), began_(probe_wire::clock::now()) {}

  void run() {
    wire_.begin("which ranks share a host");
    find_hosts();
    const int count = hosts_.count();
    figures_.latency = pair_table(wire_.size());
    figures_.single = pair_table(count);
    figures_.together = pair_table(count);
    measure_latency();
    measure_inside();
    const bool several =
        std::any_of(hosts_.ranks.begin(), hosts_.ranks.end(), [](const auto& r) { return r.size() > 1; });
    const int rounds = 2 * tournament_rounds(count) * (several ? 2 : 1) + (count > 2 ? 2 * count : 0);
    round_seconds_ = std::clamp(options_.seconds / std::max(1, rounds) - drain_seconds, 0.03, 0.08);
    measure_pairs(figures_.single, false);
    wire_.sum(figures_.single.values());
    measure_again(figures_.single);
    if (several) measure_pairs(figures_.together, true);
    wire_.sum(figures_.together.values());
    if (!several) figures_.together = figures_.single;
    if (count > 2) measure_fans();
  }

  [[nodiscard]] const probe_hosts& hosts() const { return hosts_; }
  [[nodiscard]] const probe_figures& figures() const { return figures_; }

 private:
  void find_hosts() {
    // All ranks are here: the split has no deadline of its own.
    wire_.meet();
    MPI_Comm host = MPI_COMM_NULL;
    wire_.check(MPI_Comm_split_type(wire_.communicator(), MPI_COMM_TYPE_SHARED, wire_.rank(), MPI_INFO_NULL, &host),
                "MPI_Comm_split_type");
    int first = wire_.rank();  // the host is known by its first rank
    wire_.check(MPI_Bcast(&first, 1, MPI_INT, 0, host), "MPI_Bcast");
    MPI_Comm_free(&host);
    const std::vector<double> firsts = wire_.gather(first);
    hosts_.of.assign(firsts.size(), -1);
    for (std::size_t r = 0; r < firsts.size(); ++r) {
      const auto leader = static_cast<std::size_t>(firsts[r]);
      if (leader == r) {
        hosts_.of[r] = hosts_.count();
        hosts_.ranks.emplace_back();
      }
      hosts_.of[r] = hosts_.of[leader];
      hosts_.ranks[static_cast<std::size_t>(hosts_.of[r])].push_back(static_cast<int>(r));
    }
    find_names();
  }

  void find_names() {
    std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
    int length = 0;
    wire_.check(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
    // Characters as numbers: names go the same way as what is measured.
    constexpr std::size_t longest = 64;
    std::vector<double> all(static_cast<std::size_t>(hosts_.count()) * longest, 0.0);
    const int mine = hosts_.of[static_cast<std::size_t>(wire_.rank())];
    if (hosts_.rank(mine, 0) == wire_.rank())
      for (std::size_t i = 0; i < std::min(static_cast<std::size_t>(length), longest); ++i)
        all[static_cast<std::size_t>(mine) * longest + i] = static_cast<unsigned char>(name[i]);
    wire_.sum(all);
    for (std::size_t h = 0; h < hosts_.ranks.size(); ++h) {
      std::string& text = hosts_.names.emplace_back();
      for (std::size_t i = 0; i < longest && all[h * longest + i] > 0; ++i)
        text += static_cast<char>(static_cast<unsigned char>(all[h * longest + i]));
    }
  }

  void measure_latency() {
    const int rounds = tournament_rounds(wire_.size());
    for (int round = 0; round < rounds; ++round) {
      wire_.begin("latency, round " + std::to_string(round + 1) + " of " + std::to_string(rounds));
      wire_.meet();
      const int other = opponent(wire_.size(), round, wire_.rank());
      if (other < 0) continue;
      const double half = half_round_trip(wire_, other, options_.latency_seconds);
      if (half <= 0) continue;
      figures_.latency(wire_.rank(), other) = half;
      figures_.latency(other, wire_.rank()) = half;
    }
    wire_.sum(figures_.latency.values());
  }

  /// All hosts at once, each by itself: they share nothing.
  void measure_inside() {
    const auto count = static_cast<std::size_t>(hosts_.count());
    std::vector<double> sums(4 * count, 0.0);
    std::size_t most = 0;
    for (const auto& ranks : hosts_.ranks) most = std::max(most, ranks.size());
    constexpr std::array<const char*, 4> names{"one to one", "one to all", "all to one", "each to the next"};
    for (std::size_t kind = 0; kind < names.size() && most > 1; ++kind) {
      wire_.begin(std::string("inside the hosts, ") + names[kind]);
      std::vector<probe_flow> flows;
      for (const auto& ranks : hosts_.ranks) {
        constexpr std::int64_t message = 64 << 10;
        constexpr int window = 4;
        if (ranks.size() < 2) continue;
        if (kind == 0) flows.push_back({ranks[0], ranks[1], message, window, window});
        for (std::size_t k = 1; k < ranks.size() && kind == 1; ++k)
          flows.push_back({ranks[0], ranks[k], message, window, window});
        for (std::size_t k = 1; k < ranks.size() && kind == 2; ++k)
          flows.push_back({ranks[k], ranks[0], message, window, window});
        for (std::size_t k = 0; k < ranks.size() && kind == 3; ++k)
          flows.push_back({ranks[k], ranks[(k + 1) % ranks.size()], message, window, window});
      }
      const std::vector<double> rates = meter_.run(
          flows, options_.inside_seconds, kind == 0 ? flow_meter::seen::alone : flow_meter::seen::where_it_ends);
      for (std::size_t f = 0; f < flows.size(); ++f)
        sums[4 * static_cast<std::size_t>(hosts_.of[static_cast<std::size_t>(flows[f].from)]) + kind] += rates[f];
    }
    wire_.sum(sums);
    for (std::size_t h = 0; h < count; ++h)
      figures_.in_host.push_back({sums[4 * h], sums[4 * h + 1], sums[4 * h + 2], sums[4 * h + 3]});
  }

  /// Hosts in pairs, each host in one pair at a time, one direction after the other.
  void measure_pairs(pair_table& rates_of, bool all_ranks) {
    const int rounds = tournament_rounds(hosts_.count());
    for (int round = 0; round < rounds; ++round) {
      for (const bool back : {false, true}) {
        wire_.begin(std::string("bandwidth of ") + (all_ranks ? "hosts" : "pairs") + ", round " +
                    std::to_string(2 * round + (back ? 2 : 1)) + " of " + std::to_string(2 * rounds));
        std::vector<probe_flow> flows;
        for (int a = 0; a < hosts_.count(); ++a) {
          const int b = opponent(hosts_.count(), round, a);
          if (b < 0 || (a < b) == back) continue;
          const int streams = all_ranks ? std::max(hosts_.ranks_at(a), hosts_.ranks_at(b)) : 1;
          for (int k = 0; k < streams; ++k) {
            const int turn = all_ranks ? k : round;
            probe_flow flow;
            flow.from = hosts_.rank(a, turn);
            flow.to = hosts_.rank(b, turn);
            flow.window = std::max(2, flow.window / streams);
            flows.push_back(flow);
          }
        }
        const std::vector<double> rates =
            meter_.run(flows, round_seconds_, all_ranks ? flow_meter::seen::where_it_ends : flow_meter::seen::alone);
        for (std::size_t f = 0; f < flows.size(); ++f)
          rates_of(hosts_.of[static_cast<std::size_t>(flows[f].from)],
                   hosts_.of[static_cast<std::size_t>(flows[f].to)]) += rates[f];
      }
    }
  }

  /// A scheduler's delay shows as one link that differs from many equal ones: those are measured once more.
  void measure_again(pair_table& rates_of) {
    constexpr double gap = 0.04;
    constexpr double reach = 0.35;
    constexpr int most_rounds = 3;
    const int count = hosts_.count();
    std::vector<char> tried(rates_of.values().size(), 0);
    for (int round = 0; round < most_rounds; ++round) {
      const std::vector<double> likely = likely_values(rates_of.values(), gap, probe_noise, reach);
      // Rank 0 alone decides: all others do what it says.
      std::vector<char> again(likely.size(), 0);
      std::vector<bool> busy(static_cast<std::size_t>(count), false);
      for (std::size_t i = 0; i < likely.size(); ++i) {
        const std::size_t from = i / static_cast<std::size_t>(count);
        const std::size_t to = i % static_cast<std::size_t>(count);
        if (!(likely[i] > 0) || tried[i] != 0 || busy[from] || busy[to]) continue;
        if (std::abs(rates_of.values()[i] - likely[i]) <= gap * likely[i]) continue;
        busy[from] = busy[to] = true;
        again[i] = 1;
      }
      wire_.begin("bandwidth of pairs that differ from the others");
      wire_.hand_out(again.data(), static_cast<std::int64_t>(again.size()));
      std::vector<probe_flow> flows;
      std::vector<std::size_t> places;
      for (std::size_t i = 0; i < again.size(); ++i) {
        if (again[i] == 0) continue;
        tried[i] = 1;
        probe_flow flow;
        flow.from = hosts_.rank(static_cast<int>(i) / count, round);
        flow.to = hosts_.rank(static_cast<int>(i) % count, round);
        flows.push_back(flow);
        places.push_back(i);
      }
      if (flows.empty()) return;
      std::vector<double> rates = meter_.run(flows, round_seconds_, flow_meter::seen::alone);
      wire_.sum(rates);
      for (std::size_t f = 0; f < flows.size(); ++f) {
        double& known = rates_of.values()[places[f]];
        const double target = likely[places[f]];
        if (std::abs(rates[f] - target) < std::abs(known - target)) known = rates[f];
      }
    }
  }

  void measure_fans() {
    int left = 2 * hosts_.count();
    for (int host = 0; host < hosts_.count(); ++host) {
      for (const toward direction : {toward::others, toward::host}) {
        probe_figures::concurrent fan{host, direction, {}, {}};
        for (int peer = 0; peer < hosts_.count(); ++peer)
          if (peer != host) fan.peers.push_back(peer);
        measure(fan, --left);
        figures_.fans.push_back(fan);
      }
    }
    measure_fans_again();
    for (const auto& fan : figures_.fans) {
      const shared_peers found = explain_fan(figures_.together, fan);
      if (!is_worth_time(found.in_doubt)) continue;
      probe_figures::concurrent part{fan.host, fan.direction, found.peers, {}};
      measure(part);
      figures_.parts.push_back(std::move(part));
    }
  }

  /// A process that does not get its processor for some milliseconds is enough to spoil a measurement. Those that leave
  /// most open are made again while there is time.
  void measure_fans_again() {
    constexpr int most_tries = 3;
    std::vector<int> tries(figures_.fans.size(), 0);
    for (;;) {
      const usual_fans usual(figures_.together, figures_.fans);
      double most = 0;
      std::size_t worst = 0;
      for (std::size_t f = 0; f < tries.size(); ++f) {
        const double open = unexplained(figures_.together, usual, figures_.fans[f]);
        if (tries[f] == most_tries || open <= most) continue;
        most = open;
        worst = f;
      }
      if (!is_worth_time(most > tolerated_misfit)) return;
      auto& fan = figures_.fans[worst];
      probe_figures::concurrent again{fan.host, fan.direction, fan.peers, {}};
      measure(again);
      if (unexplained(figures_.together, usual, again) < most) fan = std::move(again);
      ++tries[worst];
    }
  }

  /// Whether another measurement is made. Rank 0 alone decides: time has passed differently on each rank.
  [[nodiscard]] bool is_worth_time(bool wanted) {
    char said = wanted && seconds_taken() < options_.most_seconds ? 1 : 0;
    wire_.hand_out(&said, 1);
    return said != 0;
  }

  [[nodiscard]] double seconds_taken() const {
    return std::chrono::duration<double>(probe_wire::clock::now() - began_).count();
  }

  /// `left`: measurements of this kind that have to be made afterwards.
  void measure(probe_figures::concurrent& what, int left = 0) {
    wire_.begin("host " + std::to_string(what.host) + (what.direction == toward::others ? " to " : " from ") +
                std::to_string(what.peers.size()) + " hosts at once");
    std::vector<probe_flow> flows;
    std::vector<std::size_t> place;
    for (std::size_t k = 0; k < what.peers.size(); ++k) {
      const int peer = what.peers[k];
      const bool out = what.direction == toward::others;
      const double alone = out ? figures_.together(what.host, peer) : figures_.together(peer, what.host);
      if (!(alone > 0)) continue;
      const int streams = std::max(hosts_.ranks_at(what.host), hosts_.ranks_at(peer));
      for (int s = 0; s < streams; ++s) {
        probe_flow flow = sized_for(alone / streams);
        if (hosts_.ranks_at(what.host) == 1) flow.alone = alone / streams;  // one rank sees them all
        flow.from = out ? hosts_.rank(what.host, s) : hosts_.rank(peer, s);
        flow.to = out ? hosts_.rank(peer, s) : hosts_.rank(what.host, s);
        flows.push_back(flow);
        place.push_back(k);
      }
    }
    const double spare = options_.most_seconds - seconds_taken() - left * (round_seconds_ + drain_seconds);
    const std::vector<double> rates = meter_.run(
        flows, round_seconds_,
        what.direction == toward::others ? flow_meter::seen::where_it_begins : flow_meter::seen::where_it_ends,
        std::clamp(spare, 0.0, 2 * round_seconds_));
    what.rates.assign(what.peers.size(), 0.0);
    for (std::size_t f = 0; f < flows.size(); ++f) what.rates[place[f]] += rates[f];
    wire_.sum(what.rates);
  }

  /// Messages so small that enough of them arrive, although others share the way; and as many under way from the
  /// beginning as cover a scheduler's delays: with fewer, what a shaper lets pass as a burst lasts beyond the first
  /// half.
  [[nodiscard]] static probe_flow sized_for(double rate) {
    constexpr double message_seconds = 0.0005;
    probe_flow flow;
    flow.message_bytes = std::clamp<std::int64_t>(static_cast<std::int64_t>(rate * message_seconds), 2 << 10, 16 << 10);
    const double cover = rate * flow_meter::cover_seconds / static_cast<double>(flow.message_bytes);
    flow.widest = static_cast<int>(std::clamp(cover, 16.0, static_cast<double>(flow.widest)));
    flow.window = flow.widest;
    return flow;
  }

  static constexpr double drain_seconds = 0.015;  // after a round

  probe_wire& wire_;
  flow_meter meter_;
  const probe_options& options_;
  probe_wire::clock::time_point began_;
  double round_seconds_ = 0;
  probe_hosts hosts_;
  probe_figures figures_;
};

}  // namespace espalier::comm::detail
