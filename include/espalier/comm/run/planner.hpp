// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/packing/pack.hpp>
#include <espalier/comm/run/agreement.hpp>
#include <espalier/comm/run/choice.hpp>
#include <espalier/comm/run/plan_words.hpp>
#include <espalier/comm/schedule/network_paths.hpp>
#include <espalier/comm/schedule/price.hpp>
#include <espalier/comm/schedule/routes.hpp>
#include <espalier/comm/schedule/select.hpp>
#include <espalier/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// Makes a network in which every rank reaches every other: MPI finds paths that a topology, or a group's part of one,
/// does not show. They count as slow as the slowest that is known.
[[nodiscard]] inline network reachable(network net) {
  const std::vector<network_path> paths = all_paths(net);
  std::int64_t slowest = net.resources.empty() ? 1 : net.resources.front().capacity;
  for (const network::resource& r : net.resources) slowest = std::min(slowest, r.capacity);
  double latency = 0;
  for (const network::edge& e : net.edges) latency = std::max(latency, e.latency);
  for (int a = 0; a < net.ranks; ++a) {
    for (int b = 0; b < net.ranks; ++b) {
      if (a == b || paths[static_cast<std::size_t>(a * net.ranks + b)].rate > 0) continue;
      net.resources.push_back({"an unknown way from " + std::to_string(a) + " to " + std::to_string(b), slowest});
      net.edges.push_back({a, b, {static_cast<int>(net.resources.size()) - 1}, latency});
    }
  }
  return net;
}

/// The path between two ranks whose rate differs most between two networks of the same ranks.
struct changed_path {
  int from = 0;
  int to = 0;
  double before = 0;  ///< bytes per second
  double after = 0;
  double factor = 1;  ///< the larger of the two by the smaller
};
[[nodiscard]] inline changed_path most_changed(const network& before, const network& after) {
  changed_path most;
  const std::vector<network_path> old_paths = all_paths(before);
  const std::vector<network_path> new_paths = all_paths(after);
  for (int a = 0; a < before.ranks; ++a) {
    for (int b = 0; b < before.ranks; ++b) {
      const auto cell = static_cast<std::size_t>(a * before.ranks + b);
      if (a == b || old_paths[cell].rate <= 0 || new_paths[cell].rate <= 0) continue;
      const double factor =
          std::max(old_paths[cell].rate / new_paths[cell].rate, new_paths[cell].rate / old_paths[cell].rate);
      if (factor > most.factor) most = {a, b, old_paths[cell].rate, new_paths[cell].rate, factor};
    }
  }
  return most;
}

/// Bytes of a schedule's longest message.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::int64_t longest_message(const schedule& plan, std::int64_t element_bytes) {
  std::int64_t most = 0;
  for (const track& t : plan.tracks) {
    for (const step& s : t.steps) {
      if (s.kind != action::copy) most = std::max(most, s.count * element_bytes);
    }
  }
  return most;
}

/// The plan of one call, as rank 0 has told it to all ranks.
struct proposal {
  std::vector<choice> candidates;  ///< to be tried; not empty
  choice scheduled;                ///< the schedule that the model takes for the fastest
};

/// Finds the schedules for a call that may be fastest on this network, by the cost model, and the trees and routes for
/// them. Rank 0 finds all of it and hands it out.
class planner {
 public:
  struct settings {
    std::int64_t eager = 65536;
    std::optional<choice> forced;
    bool fixed_order = false;
  };

  planner(network net, agreement& with, const settings& options)
      : net_(reachable(std::move(net))), with_(&with), options_(options) {}

  [[nodiscard]] const network& over() const { return net_; }

  /// Returns the candidates for the fastest: those that the model takes for at most `range` times as slow as the best,
  /// and `others`, of which the model knows nothing. Collective.
  [[nodiscard]] proposal propose(const collective_call& call, std::int64_t element_bytes,
                                 const std::vector<choice>& others) {
    require_packing(call, element_bytes);
    const plan_words said =
        with_->from_root("for rank 0's plan", [&] { return to_words(offered(call, element_bytes, others)); });
    proposal made;
    made.candidates = choices_from(said);
    made.scheduled = made.candidates.front();
    made.candidates.erase(made.candidates.begin());
    return made;
  }

  /// The schedule of a choice. Collective where it is the first along these trees or routes.
  [[nodiscard]] schedule make(const collective_call& call, const choice& how, std::int64_t element_bytes) {
    const algorithm by = how.by.value_or(algorithm::trees);
    std::vector<route> routes;
    selection_input given = input(element_bytes);
    if (by == algorithm::trees) given.trees = &trees_for(call).trees;
    if (by == algorithm::routes) {
      routes = routes_from(with_->from_root("for rank 0's routes", [&] { return to_words(routes_here(call)); }));
      given.routes = &routes;
    }
    return schedule_of(candidate_of(how, element_bytes), call, net_, given);
  }

  /// Seconds that a call should not take more of, however slow what carries it out: all data of all ranks over the
  /// slowest way, one after another.
  [[nodiscard]] double slowest_seconds(std::int64_t bytes) const {
    double rate = std::numeric_limits<double>::infinity();
    for (const network::resource& r : net_.resources) {
      rate = std::min(rate, static_cast<double>(r.capacity) * net_.unit);
    }
    return static_cast<double>(bytes) * net_.ranks / rate;
  }

 private:
  /// Candidates the model takes for slower than this many times the best are not tried.
  static constexpr double range = 3;
  static constexpr std::int64_t least_chunk = 4096;
  static constexpr std::int64_t long_chunk = 512 << 10;

  [[nodiscard]] selection_input input(std::int64_t element_bytes) const {
    selection_input given;
    given.element_bytes = static_cast<double>(element_bytes);
    given.limits.least = least_chunk;
    given.limits.eager = options_.eager;
    return given;
  }

  [[nodiscard]] static candidate candidate_of(const choice& how, std::int64_t element_bytes) {
    candidate made;
    made.how = how.by.value_or(algorithm::trees);
    made.cut.elements = std::max<std::int64_t>(1, how.chunk / element_bytes);
    made.cut.grain = std::max<std::int64_t>(1, 64 / element_bytes);
    made.cut.element_bytes = static_cast<double>(element_bytes);
    if (made.how == algorithm::trees) made.cut.spare *= how.parts;
    made.blocks = how.parts;
    made.shares = how.parts;
    return made;
  }
  [[nodiscard]] static choice choice_of(const candidate& c, std::int64_t element_bytes) {
    choice made{method_of(c.how), 0, c.how, 1};
    const bool is_cut = made.how == method::trees || c.how == algorithm::pairwise;
    if (is_cut) made.chunk = c.cut.elements * element_bytes;
    if (c.how == algorithm::circulant_blocks) made.parts = static_cast<int>(c.blocks);
    if (c.how == algorithm::ordered_trees) made.parts = c.shares;
    return made;
  }

  /// Returns, on rank 0, the schedule that should be best, then the candidates to be tried.
  [[nodiscard]] std::vector<choice> offered(const collective_call& call, std::int64_t element_bytes,
                                            const std::vector<choice>& others) {
    const std::vector<candidate> all = schedules_for(call, element_bytes);
    std::vector<choice> list;
    const auto add = [&](const candidate& c) { list.push_back(choice_of(c, element_bytes)); };
    const bool one_way = call.ordered && options_.fixed_order;
    if (options_.forced && !one_way) {
      const choice& wanted = *options_.forced;
      const auto found = std::find_if(all.begin(), all.end(), [&](const candidate& c) {
        return wanted.by ? c.how == *wanted.by : method_of(c.how) == wanted.how;
      });
      add(found == all.end() ? all.front() : *found);
      if (wanted.chunk > 0) list.front().chunk = wanted.chunk;
      const bool other = std::find(others.begin(), others.end(), wanted) != others.end();
      list.push_back(other ? wanted : list.front());
      return list;
    }
    add(all.front());
    if (call.ranks == 1 || total_elements(call) == 0 || one_way) {
      list.push_back(list.front());
      return list;
    }
    list.insert(list.end(), others.begin(), others.end());
    for (const candidate& c : all) {
      if (c.seconds <= range * all.front().seconds) add(c);
    }
    const auto found =
        std::find_if(list.begin() + 1, list.end(), [](const choice& c) { return c.how == method::trees; });
    if (found == list.end()) return list;
    const choice trees = *found;
    const auto bytes = total_elements(call) * element_bytes;
    // Where ranks wait for their processors, as many lanes are needed as that takes.
    constexpr int patient = 8;
    if (trees.by == algorithm::trees && bytes >= patient * trees.chunk) {
      list.push_back(trees);
      list.back().parts = patient;
    }
    // Shared memory wants longer chunks than the model knows reasons for: the search begins near the better.
    if (bytes >= 8 * long_chunk && trees.chunk < long_chunk / 2) {
      list.push_back(trees);
      list.back().chunk = long_chunk;
    }
    return list;
  }

  /// Returns, on rank 0, all schedules for a call whose messages are not too long for MPI, the one that should be best
  /// first.
  [[nodiscard]] std::vector<candidate> schedules_for(const collective_call& call, std::int64_t element_bytes) {
    selection_input given = input(element_bytes);
    std::vector<route> routes;
    if (has_trees(call.kind)) {
      const auto found = packings_.find({call.kind, has_root(call.kind) ? call.root : 0});
      if (found != packings_.end()) given.trees = &found->second.trees;
    } else if (worth_planning(call, element_bytes)) {
      routes = routes_here(call);
      given.routes = &routes;
    }
    std::vector<candidate> all = candidates(call, net_, given);
    if (options_.fixed_order && call.ordered && call.ranks > 1) {
      // One way, whatever is faster: another would round otherwise. Chunks do not matter.
      std::erase_if(all, [](const candidate& c) { return c.how != algorithm::ordered_trees || c.shares != 1; });
    }
    std::erase_if(all, [&](const candidate& c) {
      // Data that is cut into chunks never has long messages; of other schedules, only those of very much data have.
      if (total_elements(call) * element_bytes <= std::numeric_limits<int>::max()) return false;
      return longest_message(schedule_of(c, call, net_, given), element_bytes) > std::numeric_limits<int>::max();
    });
    if (all.empty()) throw std::logic_error("no schedule serves the call");
    return all;
  }

  /// Whether a call takes notably longer than one that moves next to nothing: where latency is all, trees packed for
  /// rates gain nothing. All ranks find the same.
  [[nodiscard]] bool worth_planning(const collective_call& call, std::int64_t element_bytes) const {
    if (call.ranks == 1 || total_elements(call) == 0) return false;
    if (options_.forced) return options_.forced->how == method::trees;
    const selection_input given = input(element_bytes);
    collective_call least = uniform_call(call.kind, call.ranks, 1, call.root);
    least.ordered = call.ordered;
    return candidates(call, net_, given).front().seconds > 1.25 * candidates(least, net_, given).front().seconds;
  }

  /// Packs trees where they may serve. Collective.
  void require_packing(const collective_call& call, std::int64_t element_bytes) {
    if (call.ordered || !has_trees(call.kind)) return;
    if (packings_.contains({call.kind, has_root(call.kind) ? call.root : 0})) return;
    const plan_words said = with_->from_root("for rank 0 to plan trees",
                                             [&] { return plan_words{worth_planning(call, element_bytes) ? 1 : 0}; });
    if (said.at(0) != 0) (void)trees_for(call);
  }

  [[nodiscard]] const packing& trees_for(const collective_call& call) {
    const collective kind = call.kind;
    const int root = has_root(call.kind) ? call.root : 0;
    const auto wanted = std::pair{kind, root};
    if (const auto found = packings_.find(wanted); found != packings_.end()) return found->second;
    const plan_words said = with_->from_root("for rank 0's trees", [&] {
      // A tree of little weight costs as many messages as one of much (Blink: minimising the number of trees).
      pack_options fewer;
      fewer.slack = 0.05;
      return to_words(pack(net_, kind, root, fewer));
    });
    return packings_.emplace(wanted, packing_from(said)).first->second;
  }

  [[nodiscard]] std::vector<route> routes_here(const collective_call& call) const {
    return find_routes(call, net_).routes;
  }

  network net_;
  agreement* with_;
  settings options_;
  std::map<std::pair<collective, int>, packing> packings_;
};

}  // namespace espalier::comm::detail
