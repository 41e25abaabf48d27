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
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// The resource that a host shares among several peers when it talks to them at once: nothing (no peers), a resource,
/// or not known yet without a measurement of the peers alone.
struct shared_peers {
  std::vector<int> peers;
  double capacity = 0;
  bool in_doubt = false;
};

/// Returns the rate that a host reaches with each of a measurement's peers alone.
[[nodiscard]] inline std::vector<double> rates_alone(const pair_table& alone,
                                                     const probe_figures::concurrent& measured) {
  std::vector<double> rates;
  for (const int peer : measured.peers)
    rates.push_back(measured.direction == toward::others ? alone(measured.host, peer) : alone(peer, measured.host));
  return rates;
}

/// A group of a host's peers, and what was measured of them.
struct peer_group {
  std::vector<std::size_t> places;  ///< among the peers that were measured
  double sum = 0;                   ///< of their rates at once
  double widest = 0;                ///< of their rates alone

  [[nodiscard]] bool has(std::size_t place) const {
    return std::find(places.begin(), places.end(), place) != places.end();
  }
};

/// The weights of the terms by which reasons are compared, in squared relative differences. Found with 4,000 fans of
/// emulated hosts whose links are known, most of them measured while the machine was busy: of those of a machine with
/// time to spare none is explained wrongly, and 1 in 70 is in doubt. Half and twice as much make little difference.
struct misfit_weights {
  double division = 0.05;       ///< the division of a shared capacity among its members
  double reason = 0.03;         ///< that something is shared at all
  double capacity = 0.12;       ///< one that no peer can fill alone
  double part_of_alike = 0.15;  ///< a peer shares it, and one that is as wide does not
};

/// How far rates at once are from what they would be if `group` shared `capacity`: a sum of squared relative
/// differences.
///
/// A peer outside the group gets all that it can. The group together gets all of the capacity, or what it can use: a
/// shared way is not idle while a flow waits for it. How the members divide it tells little, since of flows that have
/// just begun one may hold up the others; fair is between an equal part (max-min fairness) and one in proportion to
/// what each reaches alone. Above what a peer reaches alone is no difference: a rank that looks late sees a burst.
[[nodiscard]] inline double misfit(const std::vector<double>& alone, const std::vector<double>& at_once,
                                   const peer_group& group, double capacity) {
  constexpr misfit_weights weights;
  const auto rate_of = [&](std::size_t k) { return std::min(at_once[k], alone[k]); };
  double misfit = 0;
  for (std::size_t k = 0; k < alone.size(); ++k) {
    if (!(alone[k] > 0) || group.has(k)) continue;
    const double lost = 1 - rate_of(k) / alone[k];
    misfit += lost * lost;
  }
  if (group.places.empty()) return misfit;

  double wanted = 0;
  double got = 0;
  std::vector<double> sorted;
  for (const std::size_t k : group.places) {
    wanted += alone[k];
    got += rate_of(k);
    sorted.push_back(alone[k]);
  }
  const double off = got / std::min(capacity, wanted) - 1;
  misfit += off * off;

  std::sort(sorted.begin(), sorted.end());
  double level = 0;
  double left = capacity;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    level = left / static_cast<double>(sorted.size() - i);
    if (sorted[i] > level) break;
    left -= sorted[i];
    level = sorted[i];
  }
  for (const std::size_t k : group.places) {
    const double in_proportion = alone[k] * std::min(1.0, capacity / wanted);
    const double equal = std::min(alone[k], level);
    const double low = std::min(in_proportion, equal);
    const double high = std::max(in_proportion, equal);
    const double rate = rate_of(k);
    const double unfair = rate < low ? 1 - rate / low : rate > high ? std::min(1.0, rate / high - 1) : 0;
    misfit += weights.division * unfair * unfair;
  }
  return misfit;
}

/// The simplest reason why a host's rates with all peers at once (`fan`) are below those with each alone.
///
/// A resource that one peer alone can fill explains itself: of nothing and such resources of the peers that lost most
/// (and of those as wide as they: peers that got all they can may share it too), the one that explains best what every
/// peer got is the answer. Where one of another capacity explains it better, it is not known which other peers share
/// it: `part`, the measurement of the slowed peers alone, decides. They gain if the others had taken some of it.
class fan_explanation {
 public:
  fan_explanation(const pair_table& alone, const probe_figures::concurrent& fan,
                  const probe_figures::concurrent* part = nullptr)
      : alone_(alone), fan_(fan), part_(part) {}

  [[nodiscard]] shared_peers find() const {
    const std::vector<double> full = rates_alone(alone_, fan_);
    const peer_group everyone = group_of(fan_, full, any);
    const peer_group slowed =
        group_of(fan_, full, [&](std::size_t k) { return fan_.rates[k] < (1 - probe_noise) * full[k]; });
    shared_peers answer;
    if (slowed.places.empty() || explains_itself(fan_, answer)) return answer;
    if (slowed.places.size() == everyone.places.size()) return shared_by(fan_, everyone);
    if (part_ == nullptr) {
      answer = shared_by(fan_, slowed);
      answer.peers = peers_of(fan_, slowed);
      answer.in_doubt = true;
      return answer;
    }
    if (explains_itself(*part_, answer)) return answer;
    const std::vector<double> usable_by = rates_alone(alone_, *part_);
    const peer_group themselves = group_of(*part_, usable_by, any);
    // The rate that the others took is then available to them: all of it, or all that they can use.
    const double usable = std::accumulate(usable_by.begin(), usable_by.end(), 0.0);
    const bool gain = themselves.sum > (1 + probe_noise) * slowed.sum &&
                      themselves.sum > (1 - 2 * probe_noise) * std::min(everyone.sum, usable);
    return gain ? shared_by(fan_, everyone) : shared_by(*part_, themselves);
  }

 private:
  static constexpr auto any = [](std::size_t) { return true; };

  /// The peers at the places that belong to it, of those that can be reached.
  template <class Belongs>
  [[nodiscard]] static peer_group group_of(const probe_figures::concurrent& measured, const std::vector<double>& full,
                                           Belongs belongs) {
    peer_group group;
    for (std::size_t k = 0; k < full.size(); ++k) {
      if (!(full[k] > 0) || !belongs(k)) continue;
      group.places.push_back(k);
      group.sum += measured.rates[k];
      group.widest = std::max(group.widest, full[k]);
    }
    return group;
  }

  [[nodiscard]] static std::vector<int> peers_of(const probe_figures::concurrent& measured, const peer_group& group) {
    std::vector<int> peers;
    for (const std::size_t k : group.places) peers.push_back(measured.peers[k]);
    return peers;
  }
  [[nodiscard]] static shared_peers shared_by(const probe_figures::concurrent& measured, const peer_group& group) {
    if (group.places.size() < 2) return {};
    // The rate of one alone was measured with less disturbance.
    const bool filled_by_one = std::abs(group.sum - group.widest) <= probe_noise * group.widest;
    return {peers_of(measured, group), filled_by_one ? group.widest : std::max(group.sum, group.widest), false};
  }

  /// Whether nothing shared, or something that one peer can fill, explains best what was measured.
  [[nodiscard]] bool explains_itself(const probe_figures::concurrent& measured, shared_peers& answer) const {
    constexpr misfit_weights weights;
    const std::vector<double> full = rates_alone(alone_, measured);
    const std::size_t reached = group_of(measured, full, any).places.size();
    const auto alike = [&](std::size_t a, std::size_t b) {
      return std::abs(full[a] - full[b]) <= probe_noise * full[b];
    };
    double least = misfit(full, measured.rates, {}, 0);
    double other = std::numeric_limits<double>::infinity();
    shared_peers best;
    const auto judge = [&](const peer_group& group) {
      if (group.places.size() < 2) return;
      bool divides_alike = false;
      for (std::size_t k = 0; k < full.size(); ++k) {
        if (!(full[k] > 0) || group.has(k)) continue;
        for (const std::size_t member : group.places) divides_alike = divides_alike || alike(k, member);
      }
      const double cost = weights.reason + (divides_alike ? weights.part_of_alike : 0);
      other = std::min(
          other, cost + weights.capacity + misfit(full, measured.rates, group, std::max(group.sum, group.widest)));
      const double here = cost + misfit(full, measured.rates, group, group.widest);
      if (here >= least) return;
      least = here;
      best = shared_by(measured, group);
      // Where others are left, more than one of its peers can fill is a burst; where none is, it may be a wide card.
      if (group.places.size() < reached) best.capacity = group.widest;
    };
    for (std::size_t last = 0; last < full.size(); ++last) {
      if (!(full[last] > 0)) continue;
      const double most = measured.rates[last] / full[last];
      const peer_group lost =
          group_of(measured, full, [&](std::size_t k) { return measured.rates[k] / full[k] <= most; });
      judge(lost);
      judge(group_of(measured, full, [&](std::size_t k) {
        return lost.has(k) ||
               std::any_of(lost.places.begin(), lost.places.end(), [&](std::size_t l) { return alike(k, l); });
      }));
    }
    if (least > other) return false;
    answer = std::move(best);
    return true;
  }

  const pair_table& alone_;
  const probe_figures::concurrent& fan_;
  const probe_figures::concurrent* part_;
};

[[nodiscard]] inline shared_peers explain_fan(const pair_table& alone, const probe_figures::concurrent& fan,
                                              const probe_figures::concurrent* part = nullptr) {
  return fan_explanation(alone, fan, part).find();
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
      count& here = fan.direction == toward::others ? out : in;
      ++here.all;
      if (!explain_fan(alone, fan).peers.empty()) ++here.sharing;
    }
  }

  /// Whether a host is an exception, if what it sends or receives is found to share something, or not to.
  [[nodiscard]] bool unusual(toward direction, bool shares) const {
    const count& here = direction == toward::others ? out : in;
    return 4 * (shares ? here.sharing : here.all - here.sharing) <= here.all;
  }
};

/// How much of a fan its explanation leaves open: `misfit`, bursts that were not over, and as much as is tolerated in
/// addition where it looks like what a disturbance makes: a doubt, a capacity that no peer can fill, or a host that is
/// an exception.
constexpr double tolerated_misfit = 0.13;
[[nodiscard]] inline double unexplained(const pair_table& alone, const usual_fans& usual,
                                        const probe_figures::concurrent& fan) {
  const shared_peers found = explain_fan(alone, fan);
  const std::vector<double> full = rates_alone(alone, fan);
  peer_group group;
  for (std::size_t k = 0; k < fan.peers.size(); ++k) {
    if (std::find(found.peers.begin(), found.peers.end(), fan.peers[k]) == found.peers.end()) continue;
    group.places.push_back(k);
    group.widest = std::max(group.widest, full[k]);
  }
  double open = misfit(full, fan.rates, group, found.capacity);
  for (std::size_t k = 0; k < full.size(); ++k) {
    if (!(full[k] > 0)) continue;
    const double above = std::clamp(fan.rates[k] / full[k] - 1 - probe_noise, 0.0, 1.0);
    open += above * above;
  }
  if (found.in_doubt) open += tolerated_misfit;
  if (found.capacity > group.widest) open += tolerated_misfit;
  if (usual.unusual(fan.direction, !found.peers.empty())) open += tolerated_misfit;
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
                                   [&](const auto& p) { return p.host == fan.host && p.direction == fan.direction; });
    const shared_peers found = explain_fan(figures_.together, fan, part == figures_.parts.end() ? nullptr : &*part);
    if (found.peers.size() < 2) return;
    const auto has = [&](int host) {
      return std::find(found.peers.begin(), found.peers.end(), host) != found.peers.end();
    };
    const bool out = fan.direction == toward::others;
    add_shared(name_of(fan.host) + (out ? " out" : " in"), found.capacity, [&](int from, int to) {
      return out ? host_of(from) == fan.host && has(host_of(to)) : host_of(to) == fan.host && has(host_of(from));
    });
  }

  /// Explains what several ranks of two hosts share between them; or, if each has a way of its own, the rate of each
  /// rank.
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
