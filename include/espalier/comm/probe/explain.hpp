// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/probe/equalise.hpp>
#include <espalier/comm/probe/figures.hpp>
#include <espalier/comm/topology/topology.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
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

/// The simplest reason why a host's rates with all peers at once (`fan`) are below those with each alone.
///
/// Peers that got much less share something; those that got all they can may share it too (a slow peer takes a small
/// part of a wide card) or have ways of their own (a direct link beside a bus). A resource that one peer alone can fill
/// explains itself: of the groups that peers may form, the first whose rates add up to what one of them reaches alone
/// is the answer. Where none does, `part`, the measurement of the slowed peers alone, decides: they gain if the others
/// had taken some of it.
[[nodiscard]] inline shared_peers explain_fan(const pair_table& alone, const probe_figures::concurrent& fan,
                                              const probe_figures::concurrent* part) {
  struct group {
    shared_peers what;
    double widest = 0;  // of its peers, alone
  };
  constexpr double much = 0.35;
  const auto alone_of = [&](int peer) {
    return fan.way == toward::others ? alone(fan.host, peer) : alone(peer, fan.host);
  };
  const auto peers_that = [&](const probe_figures::concurrent& measured, auto belongs) {
    group found;
    for (std::size_t k = 0; k < measured.peers.size(); ++k) {
      const double full = alone_of(measured.peers[k]);
      if (!(full > 0) || !belongs(full, measured.rates[k] / full)) continue;
      found.what.peers.push_back(measured.peers[k]);
      found.what.capacity += measured.rates[k];
      found.widest = std::max(found.widest, full);
    }
    return found;
  };
  const auto filled_by_one = [](const group& g) {
    return g.what.peers.size() > 1 && std::abs(g.what.capacity - g.widest) <= probe_noise * g.widest;
  };
  const auto settle = [&](group g) {
    // The rate of one alone was measured with less disturbance.
    g.what.capacity = filled_by_one(g) ? g.widest : std::max(g.what.capacity, g.widest);
    return g.what.peers.size() > 1 ? g.what : shared_peers{};
  };
  const auto any = [](double, double) { return true; };
  const auto is_slowed = [](double, double share) { return share < 1 - probe_noise; };
  const auto is_halted = [](double, double share) { return share < 1 - much; };
  /// The first group that one of its peers can fill alone.
  const auto explained = [&](const probe_figures::concurrent& measured, shared_peers& answer) {
    const group halted = peers_that(measured, is_halted);
    // A flow may take more than its part: those that are as wide as the ones that lost belong to them.
    const group alike = peers_that(measured, [&](double full, double share) {
      return is_halted(full, share) || std::abs(full - halted.widest) <= probe_noise * halted.widest;
    });
    for (const group& candidate : {peers_that(measured, any), halted, peers_that(measured, is_slowed), alike}) {
      if (!filled_by_one(candidate)) continue;
      answer = settle(candidate);
      return true;
    }
    return false;
  };

  const group everyone = peers_that(fan, any);
  const group slowed = peers_that(fan, is_slowed);
  shared_peers answer;
  if (slowed.what.peers.empty() || explained(fan, answer)) return answer;
  if (slowed.what.peers.size() == everyone.what.peers.size()) return settle(everyone);
  if (part == nullptr) {
    answer = settle(slowed);
    answer.peers = slowed.what.peers;
    answer.in_doubt = true;
    return answer;
  }
  if (explained(*part, answer)) return answer;
  const group themselves = peers_that(*part, any);
  const bool gain = themselves.what.capacity > (1 + probe_noise) * slowed.what.capacity;
  return settle(gain ? everyone : themselves);
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
