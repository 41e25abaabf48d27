// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/probe/equalise.hpp>
#include <espalier/comm/probe/figures.hpp>
#include <espalier/comm/topology/topology.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// Rates that differ by less are the same: the noise of a measurement of some milliseconds.
constexpr double probe_noise = 0.12;

/// What a host shares when it talks to several peers at once: nothing (no peers), a resource, or not known yet without
/// a measurement of the peers alone.
struct shared_peers {
  std::vector<int> peers;
  double capacity = 0;
  bool in_doubt = false;
};

/// What a host reaches with each of a measurement's peers alone.
[[nodiscard]] inline std::vector<double> rates_alone(const pair_table& alone,
                                                     const probe_figures::concurrent& measured) {
  std::vector<double> rates;
  for (const int peer : measured.peers)
    rates.push_back(measured.way == toward::others ? alone(measured.host, peer) : alone(peer, measured.host));
  return rates;
}

/// A group of a host's peers, and what was measured of them.
struct peer_group {
  std::vector<std::size_t> places;  ///< among the peers that were measured
  double sum = 0;                   ///< of their rates at once
  double widest = 0;                ///< of their rates alone
};

/// How far rates at once are from what they would be if `group` shared `capacity`: the sum of squared relative
/// differences. Whoever shares gets between an equal part (max-min fairness) and one in proportion to what it can reach
/// alone; the others all that they can. Above that is no difference: who looks late sees a burst.
[[nodiscard]] inline double misfit(const std::vector<double>& alone, const std::vector<double>& at_once,
                                   const peer_group& group, double capacity) {
  double wanted = 0;
  for (const std::size_t k : group.places) wanted += alone[k];
  std::vector<double> sorted;
  for (const std::size_t k : group.places) sorted.push_back(alone[k]);
  std::sort(sorted.begin(), sorted.end());
  double level = 0;
  double left = capacity;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    level = left / static_cast<double>(sorted.size() - i);
    if (sorted[i] > level) break;
    left -= sorted[i];
    level = sorted[i];
  }
  double sum = 0;
  for (std::size_t k = 0; k < alone.size(); ++k) {
    if (!(alone[k] > 0)) continue;
    double low = alone[k];
    double high = alone[k];
    if (std::find(group.places.begin(), group.places.end(), k) != group.places.end()) {
      const double in_proportion = alone[k] * std::min(1.0, capacity / wanted);
      const double equal = std::min(alone[k], level);
      low = std::min(in_proportion, equal);
      high = std::max(in_proportion, equal);
    }
    const double rate = std::min(at_once[k], alone[k]);
    const double off = rate < low ? 1 - rate / low : rate > high ? rate / high - 1 : 0;
    sum += off * off;
  }
  return sum;
}

/// The simplest reason why a host's rates with all peers at once (`fan`) are below those with each alone.
///
/// Peers that got much less share something; those that got all they can may share it too (a slow peer takes a small
/// part of a wide card) or have ways of their own (a direct link beside a bus). A resource that one peer alone can fill
/// explains itself: of the groups whose rates add up to what one of them reaches alone, the one that explains best what
/// every peer got is the answer. Where there is none, `part`, the measurement of the slowed peers alone, decides: they
/// gain if the others had taken some of it.
[[nodiscard]] inline shared_peers explain_fan(const pair_table& alone, const probe_figures::concurrent& fan,
                                              const probe_figures::concurrent* part) {
  constexpr double much = 0.35;
  const auto peers_that = [&](const probe_figures::concurrent& measured, auto belongs) {
    peer_group found;
    const std::vector<double> full = rates_alone(alone, measured);
    for (std::size_t k = 0; k < measured.peers.size(); ++k) {
      if (!(full[k] > 0) || !belongs(full[k], measured.rates[k] / full[k])) continue;
      found.places.push_back(k);
      found.sum += measured.rates[k];
      found.widest = std::max(found.widest, full[k]);
    }
    return found;
  };
  const auto off_one = [](const peer_group& g) { return std::abs(g.sum - g.widest) / g.widest; };
  const auto settle = [&](const probe_figures::concurrent& measured, const peer_group& g) {
    shared_peers what;
    if (g.places.size() < 2) return what;
    for (const std::size_t k : g.places) what.peers.push_back(measured.peers[k]);
    // The rate of one alone was measured with less disturbance.
    what.capacity = off_one(g) <= probe_noise ? g.widest : std::max(g.sum, g.widest);
    return what;
  };
  const auto any = [](double, double) { return true; };
  const auto is_slowed = [](double, double share) { return share < 1 - probe_noise; };
  const auto is_halted = [](double, double share) { return share < 1 - much; };
  /// The group that explains best what was measured, if one of its peers can fill what they share, and nothing of
  /// another capacity explains it better. Disturbed measurements are off by more than noise.
  const auto explained = [&](const probe_figures::concurrent& measured, shared_peers& answer) {
    constexpr double disturbed = 2 * probe_noise;
    constexpr double simpler = 0.06;  // what a capacity that no peer can fill has to explain beyond the others
    const std::vector<double> full = rates_alone(alone, measured);
    const peer_group everyone = peers_that(measured, any);
    const peer_group halted = peers_that(measured, is_halted);
    const peer_group slowed = peers_that(measured, is_slowed);
    // A flow may take more than its part: those that are as wide as the ones that lost belong to them.
    const peer_group alike = peers_that(measured, [&](double width, double share) {
      return is_halted(width, share) || std::abs(width - halted.widest) <= probe_noise * halted.widest;
    });
    const peer_group* best = nullptr;
    double least = 0;
    double other = std::numeric_limits<double>::infinity();
    for (const peer_group* candidate : {&everyone, &halted, &slowed, &alike}) {
      if (candidate->places.size() < 2) continue;
      if (off_one(*candidate) <= disturbed) {
        const double here = misfit(full, measured.rates, *candidate, candidate->widest);
        if (best == nullptr || here < least) {
          best = candidate;
          least = here;
        }
      }
      other = std::min(other,
                       simpler + misfit(full, measured.rates, *candidate, std::max(candidate->sum, candidate->widest)));
    }
    if (best == nullptr || least > other) return false;
    answer = settle(measured, *best);
    answer.capacity = best->widest;
    return true;
  };

  const peer_group everyone = peers_that(fan, any);
  const peer_group slowed = peers_that(fan, is_slowed);
  shared_peers answer;
  if (slowed.places.empty() || explained(fan, answer)) return answer;
  if (slowed.places.size() == everyone.places.size()) return settle(fan, everyone);
  if (part == nullptr) {
    answer = settle(fan, slowed);
    answer.peers.clear();
    for (const std::size_t k : slowed.places) answer.peers.push_back(fan.peers[k]);
    answer.in_doubt = true;
    return answer;
  }
  if (explained(*part, answer)) return answer;
  const peer_group themselves = peers_that(*part, any);
  // What the others took is then theirs: all of it, or all that they can use.
  double usable = 0;
  for (const double rate : rates_alone(alone, *part)) usable += rate;
  const bool gain = themselves.sum > (1 + probe_noise) * slowed.sum &&
                    themselves.sum > (1 - 2 * probe_noise) * std::min(everyone.sum, usable);
  return gain ? settle(fan, everyone) : settle(*part, themselves);
}

/// How many fans there are each way, and how many of them show that something is shared.
struct usual_fans {
  struct count {
    int all = 0;
    int sharing = 0;
  };
  count out;
  count in;

  usual_fans(const pair_table& alone, const std::vector<probe_figures::concurrent>& fans) {
    for (const probe_figures::concurrent& fan : fans) {
      count& here = fan.way == toward::others ? out : in;
      ++here.all;
      if (!explain_fan(alone, fan, nullptr).peers.empty()) ++here.sharing;
    }
  }

  /// Whether a host is an exception, if what it sends or receives is found to share something, or not to.
  [[nodiscard]] bool unusual(toward way, bool shares) const {
    const count& here = way == toward::others ? out : in;
    return 4 * (shares ? here.sharing : here.all - here.sharing) <= here.all;
  }
};

/// How much of a fan its explanation leaves open: `misfit`, and as much as is tolerated in addition where it looks like
/// what a disturbance makes: a capacity that no peer can fill, or a host that is an exception.
constexpr double tolerated_misfit = 0.13;
[[nodiscard]] inline double unexplained(const pair_table& alone, const usual_fans& usual,
                                        const probe_figures::concurrent& fan) {
  const shared_peers found = explain_fan(alone, fan, nullptr);
  const std::vector<double> full = rates_alone(alone, fan);
  peer_group group;
  for (std::size_t k = 0; k < fan.peers.size(); ++k) {
    if (std::find(found.peers.begin(), found.peers.end(), fan.peers[k]) == found.peers.end()) continue;
    group.places.push_back(k);
    group.widest = std::max(group.widest, full[k]);
  }
  double open = misfit(full, fan.rates, group, found.capacity);
  if (found.capacity > group.widest) open += tolerated_misfit;
  if (usual.unusual(fan.way, !found.peers.empty())) open += tolerated_misfit;
  return open;
}

/// Puts a topology together from what was measured. Switches that no rank can see are not named: what flows share is a
/// resource. Vertices are called by rank, so that a declared topology can add to them (comm/topology/merge.hpp).
class topology_of_figures {
 public:
  topology_of_figures(const probe_hosts& hosts, const probe_figures& figures) : hosts_(hosts), figures_(figures) {}

  [[nodiscard]] topology make() {
    const int ranks = static_cast<int>(hosts_.of.size());
    for (int r = 0; r < ranks; ++r)
      machine_.vertices.push_back({std::to_string(r), false, hosts_.of[static_cast<std::size_t>(r)]});
    for (int from = 0; from < ranks; ++from)
      for (int to = 0; to < ranks; ++to)
        if (from != to) add_link(from, to);
    for (int host = 0; host < hosts_.count(); ++host) share_inside(host);
    for (const auto& fan : figures_.fans) share_fan(fan);
    for (int from = 0; from < hosts_.count(); ++from)
      for (int to = 0; to < hosts_.count(); ++to)
        if (from != to) share_pair(from, to);
    drop_implied();
    round_off();
    require_consistent(machine_);
    return std::move(machine_);
  }

 private:
  [[nodiscard]] int host_of(int rank) const { return hosts_.of[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::string name_of(int host) const {
    return "host " + std::to_string(host) + " (" + hosts_.names[static_cast<std::size_t>(host)] + ")";
  }

  void add_link(int from, int to) {
    const int a = host_of(from);
    const int b = host_of(to);
    const double bandwidth = a == b ? figures_.in_host[static_cast<std::size_t>(a)].single : figures_.single(a, b);
    // A pair that no message of the measurement crossed has no link.
    if (bandwidth > 0) machine_.links.push_back({from, to, bandwidth, figures_.latency(from, to)});
  }

  /// A resource of the links that `chosen(from, to)` says, unless it is wider than all of them together, or too little
  /// arrived to tell (0).
  template <class Chosen> void add_shared(std::string name, double capacity, Chosen chosen) {
    if (!(capacity > 0)) return;
    topology::resource shared{std::move(name), capacity, {}};
    double sum = 0;
    double widest = 0;
    for (std::size_t l = 0; l < machine_.links.size(); ++l) {
      const auto& link = machine_.links[l];
      if (!chosen(link.from, link.to)) continue;
      shared.links.push_back(static_cast<int>(l));
      sum += link.bandwidth;
      widest = std::max(widest, link.bandwidth);
    }
    shared.bandwidth = std::max(capacity, widest);
    if (shared.links.size() > 1 && shared.bandwidth < (1 - probe_noise) * sum)
      machine_.resources.push_back(std::move(shared));
  }

  void share_inside(int host) {
    const auto& figures = figures_.in_host[static_cast<std::size_t>(host)];
    const int count = hosts_.ranks_at(host);
    if (count < 2) return;
    const auto inner = [&](int from, int to) { return host_of(from) == host && host_of(to) == host; };
    for (int k = 0; k < count && count > 2; ++k) {
      const int rank = hosts_.rank(host, k);
      const std::string who = "rank " + std::to_string(rank);
      add_shared(who + " to its host", figures.fan_out,
                 [&](int from, int to) { return from == rank && inner(from, to); });
      add_shared(who + " from its host", figures.fan_in,
                 [&](int from, int to) { return to == rank && inner(from, to); });
    }
    add_shared(name_of(host) + " memory", figures.all, inner);
  }

  void share_fan(const probe_figures::concurrent& fan) {
    const auto part = std::find_if(figures_.parts.begin(), figures_.parts.end(),
                                   [&](const auto& p) { return p.host == fan.host && p.way == fan.way; });
    const shared_peers found = explain_fan(figures_.together, fan, part == figures_.parts.end() ? nullptr : &*part);
    if (found.peers.size() < 2) return;
    const auto has = [&](int host) {
      return std::find(found.peers.begin(), found.peers.end(), host) != found.peers.end();
    };
    const bool out = fan.way == toward::others;
    add_shared(name_of(fan.host) + (out ? " out" : " in"), found.capacity, [&](int from, int to) {
      return out ? host_of(from) == fan.host && has(host_of(to)) : host_of(to) == fan.host && has(host_of(from));
    });
  }

  /// What several ranks of two hosts share between them; or, if each has a way of its own, what each rank can do.
  void share_pair(int a, int b) {
    const int streams = std::max(hosts_.ranks_at(a), hosts_.ranks_at(b));
    const double single = figures_.single(a, b);
    double all = figures_.together(a, b);
    if (streams < 2 || !(single > 0)) return;
    if (std::abs(all - single) <= probe_noise * single) all = single;
    const auto between = [&](int from, int to) { return host_of(from) == a && host_of(to) == b; };
    add_shared(name_of(a) + " -> " + name_of(b), all, between);
    if (all < (1 - probe_noise) * streams * single) return;
    for (const int rank : hosts_.ranks[static_cast<std::size_t>(a)])
      add_shared("rank " + std::to_string(rank) + " -> " + name_of(b), single,
                 [&](int from, int to) { return from == rank && between(from, to); });
    for (const int rank : hosts_.ranks[static_cast<std::size_t>(b)])
      add_shared(name_of(a) + " -> rank " + std::to_string(rank), single,
                 [&](int from, int to) { return to == rank && between(from, to); });
  }

  /// A resource of links that are all in another, no wider one says nothing.
  void drop_implied() {
    auto& all = machine_.resources;
    std::vector<topology::resource> kept;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool implied = [&] {
        for (std::size_t j = 0; j < all.size(); ++j) {
          if (i == j || all[j].bandwidth > (1 + probe_noise) * all[i].bandwidth) continue;
          if (!std::includes(all[j].links.begin(), all[j].links.end(), all[i].links.begin(), all[i].links.end()))
            continue;
          if (all[i].links.size() < all[j].links.size() || j < i) return true;
        }
        return false;
      }();
      if (!implied) kept.push_back(all[i]);
    }
    all = std::move(kept);
  }

  /// Values become equal where they differ by noise, and bandwidths small whole numbers.
  void round_off() {
    std::vector<double*> bandwidths;
    std::vector<double*> latencies;
    for (auto& link : machine_.links) {
      bandwidths.push_back(&link.bandwidth);
      latencies.push_back(&link.latency);
    }
    for (auto& shared : machine_.resources) bandwidths.push_back(&shared.bandwidth);
    equalise(bandwidths, 0.05, probe_noise);
    equalise(latencies, 0.3, 1.0);
    for (double* value : latencies) *value = three_digits(*value);
    std::vector<double> values;
    for (const double* value : bandwidths) values.push_back(*value);
    machine_.unit = three_digits(common_measure(values, 0.025));
    constexpr double bits = 8;
    constexpr double mega = 1e6;
    std::string text = std::to_string(machine_.unit * bits / mega);
    machine_.unit_name = text.substr(0, text.find('.') + 3) + " Mbit/s";
    for (double* value : bandwidths) *value = std::max(1.0, std::round(*value / machine_.unit));
  }

  const probe_hosts& hosts_;
  const probe_figures& figures_;
  topology machine_;
};

}  // namespace espalier::comm::detail
