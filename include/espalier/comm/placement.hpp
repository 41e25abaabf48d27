// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/comm/packing/joint.hpp>
#include <espalier/comm/placement_traffic.hpp>
#include <espalier/comm/schedule/joint.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace espalier::comm {

/// Which rank does the work of which device of a mesh, and what that is worth.
struct placement {
  std::vector<int> rank_of;  ///< of each device; device 0 is rank 0
  double before = 0;         ///< predicted seconds of communication per run, device d on rank d; infinite where some
                             ///< group is not connected among its members
  double after = 0;          ///< the same with `rank_of`
  bool best = false;         ///< no placement is predicted to be faster; else the search ended before it knew
};

struct placement_options {
  double seconds = 5;         ///< for the search; plan on one rank for all
  std::int64_t most = 60000;  ///< arrangements up to which all are looked at
};

}  // namespace espalier::comm

namespace espalier::comm::detail {

/// Which ranks are alike: exchanging two of a class changes nothing in the network.
[[nodiscard]] inline std::vector<int> classes_of_ranks(const network& net) {
  using pairs = std::vector<std::pair<int, int>>;
  using resource_key = std::pair<std::int64_t, pairs>;
  // A resource is its capacity and what it serves; an edge is its ends and its resources.
  const auto picture = [&](int a, int b) {
    const auto swapped = [&](int r) { return r == a ? b : r == b ? a : r; };
    std::vector<resource_key> keys(net.resources.size());
    for (std::size_t r = 0; r < keys.size(); ++r) keys[r].first = net.resources[r].capacity;
    for (const network::edge& e : net.edges)
      for (const int r : e.resources)
        keys[static_cast<std::size_t>(r)].second.emplace_back(swapped(e.from), swapped(e.to));
    for (resource_key& key : keys) std::sort(key.second.begin(), key.second.end());
    std::vector<resource_key> sorted = keys;
    std::sort(sorted.begin(), sorted.end());
    std::vector<std::tuple<int, int, double, std::vector<std::ptrdiff_t>>> edges;
    for (const network::edge& e : net.edges) {
      std::vector<std::ptrdiff_t> uses;
      for (const int r : e.resources)
        uses.push_back(std::lower_bound(sorted.begin(), sorted.end(), keys[static_cast<std::size_t>(r)]) -
                       sorted.begin());
      std::sort(uses.begin(), uses.end());
      edges.emplace_back(swapped(e.from), swapped(e.to), e.latency, std::move(uses));
    }
    std::sort(edges.begin(), edges.end());
    return std::pair(std::move(sorted), std::move(edges));
  };
  const auto as_it_is = picture(-1, -1);
  std::vector<int> class_of(static_cast<std::size_t>(net.ranks));
  for (int b = 0; b < net.ranks; ++b) {
    int& mine = class_of[static_cast<std::size_t>(b)];
    mine = b;
    for (int a = 0; a < b && mine == b; ++a)
      if (class_of[static_cast<std::size_t>(a)] == a && picture(a, b) == as_it_is) mine = a;
  }
  return class_of;
}

/// Groups of the devices that differ along `axes` only.
[[nodiscard]] inline std::vector<std::vector<int>> groups_along(const std::vector<int>& sizes, unsigned axes) {
  const int devices = std::accumulate(sizes.begin(), sizes.end(), 1, [](int a, int b) { return a * b; });
  std::map<int, std::vector<int>> groups;
  for (int d = 0; d < devices; ++d) {
    int first = d;  // the same device with coordinate 0 along these axes
    int stride = 1;
    for (std::size_t a = sizes.size(); a-- > 0;) {
      const int coordinate = d / stride % sizes[a];
      if ((axes >> a & 1U) != 0) first -= coordinate * stride;
      stride *= sizes[a];
    }
    groups[first].push_back(d);
  }
  std::vector<std::vector<int>> list;
  for (auto& [first, members] : groups) list.push_back(std::move(members));
  return list;
}

/// Predicts what placements cost. The cost of a group depends on its ranks, and only on their classes: little is packed
/// twice.
class placement_price {
 public:
  placement_price(const network& net, const mesh_traffic& mesh)
      : net_(net), mesh_(mesh), class_of_(classes_of_ranks(net)), known_(mesh.items.size()) {
    for (const axis_traffic& item : mesh.items) groups_.push_back(groups_along(mesh.sizes, item.axes));
  }

  [[nodiscard]] const std::vector<int>& class_of() const { return class_of_; }

  /// Seconds per run.
  [[nodiscard]] double seconds(const std::vector<int>& rank_of) {
    double sum = 0;
    for (std::size_t i = 0; i < mesh_.items.size(); ++i) sum += seconds_of(i, rank_of);
    return sum;
  }

 private:
  [[nodiscard]] double seconds_of(std::size_t i, const std::vector<int>& rank_of) {
    std::vector<std::vector<int>> members;
    std::vector<std::vector<int>> key;
    for (const std::vector<int>& group : groups_[i]) {
      members.emplace_back();
      key.emplace_back();
      for (const int device : group) {
        members.back().push_back(rank_of[static_cast<std::size_t>(device)]);
        key.back().push_back(class_of_[static_cast<std::size_t>(members.back().back())]);
      }
      std::sort(key.back().begin(), key.back().end());
    }
    std::sort(key.begin(), key.end());
    const auto [found, is_new] = known_[i].emplace(std::move(key), 0.0);
    if (is_new) found->second = predict(mesh_.items[i], members);
    return found->second;
  }

  /// Size over the joint rate, and for each call the latency of as many rounds as it needs at least.
  [[nodiscard]] double predict(const axis_traffic& item, const std::vector<std::vector<int>>& members) {
    const auto n = static_cast<double>(members.front().size());
    if (n < 2 || (item.bytes <= 0 && item.calls == 0)) return 0;
    double latency = 0;
    for (const std::vector<int>& list : members)
      for (const network::edge& e : restricted(net_, list).edges) latency = std::max(latency, e.latency);
    const double rounds = std::ceil(std::log2(n)) * (item.kind == collective::all_reduce ? 2 : 1);
    const double waiting = latency * rounds * static_cast<double>(item.calls);
    double rate = 0;  // of each group's whole array
    double size = 0;
    if (!moves_tensors(item.kind)) {
      throw std::invalid_argument(std::string("placement: a program of tensors does not communicate by ") +
                                  name_of(item.kind));
    }
    if (!has_trees(item.kind)) {
      // Permutations and exchanges count as all-to-alls of the same bytes.
      rate = all_connected(members) ? route_jointly(net_, members).rate : 0;
      size = item.bytes * n * n / (n - 1);
    } else {
      std::vector<joint_group> groups;
      for (const std::vector<int>& list : members) groups.push_back({list, 1, 0});
      pack_options quick;
      quick.seconds = 0;
      quick.attempts = 1;
      rate = to_double(pack_jointly(net_, item.kind, groups, quick).rate);
      size = item.bytes * n / (n - 1) / (item.kind == collective::all_reduce ? 2 : 1);
    }
    if (rate <= 0) return std::numeric_limits<double>::infinity();
    return size / (rate * net_.unit) + waiting;
  }
  [[nodiscard]] bool all_connected(const std::vector<std::vector<int>>& members) const {
    return std::all_of(members.begin(), members.end(),
                       [&](const auto& list) { return is_connected(restricted(net_, list)); });
  }

  const network& net_;
  const mesh_traffic& mesh_;
  std::vector<int> class_of_;
  std::vector<std::vector<std::vector<int>>> groups_;  // by item: of devices
  std::vector<std::map<std::vector<std::vector<int>>, double>> known_;
};

/// The same placement, up to names of coordinates along each axis, with rank 0 as device 0: groups stay what they are.
[[nodiscard]] inline std::vector<int> with_first_rank_first(const std::vector<int>& sizes,
                                                            const std::vector<int>& rank_of) {
  const auto device = static_cast<int>(std::find(rank_of.begin(), rank_of.end(), 0) - rank_of.begin());
  std::vector<int> made(rank_of.size());
  for (std::size_t d = 0; d < rank_of.size(); ++d) {
    // Along each axis, the coordinate of rank 0's device and coordinate 0 change places.
    int other = 0;
    int stride = 1;
    for (std::size_t a = sizes.size(); a-- > 0;) {
      const int here = static_cast<int>(d) / stride % sizes[a];
      const int first = device / stride % sizes[a];
      other += (here == 0 ? first : here == first ? 0 : here) * stride;
      stride *= sizes[a];
    }
    made[static_cast<std::size_t>(other)] = rank_of[d];
  }
  return made;
}

/// Ranks for classes: those of a class in ascending order.
[[nodiscard]] inline std::vector<int> ranks_for(const std::vector<int>& classes, const std::vector<int>& class_of) {
  std::vector<std::vector<int>> left(class_of.size());
  for (std::size_t r = class_of.size(); r-- > 0;)
    left[static_cast<std::size_t>(class_of[r])].push_back(static_cast<int>(r));
  std::vector<int> ranks;
  for (const int c : classes) {
    std::vector<int>& from = left[static_cast<std::size_t>(c)];
    ranks.push_back(from.back());
    from.pop_back();
  }
  return ranks;
}

/// How many ways there are to arrange the classes.
[[nodiscard]] inline double arrangements(const std::vector<int>& class_of) {
  std::map<int, int> count;
  double ways = 1;
  for (std::size_t r = 0; r < class_of.size(); ++r)
    ways *= static_cast<double>(r + 1) / static_cast<double>(++count[class_of[r]]);
  return ways;
}

/// Meshes with their axes in every order: with ranks numbered host by host, each keeps other axes inside the hosts.
[[nodiscard]] inline std::vector<std::vector<int>> axis_orders(const std::vector<int>& sizes) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const int devices = std::accumulate(sizes.begin(), sizes.end(), 1, [](int a, int b) { return a * b; });
  std::vector<std::vector<int>> all;
  do {
    std::vector<int> rank_of;
    for (int d = 0; d < devices; ++d) {
      std::vector<int> coordinate(sizes.size());
      for (std::size_t a = sizes.size(), rest = static_cast<std::size_t>(d); a-- > 0;) {
        coordinate[a] = static_cast<int>(rest % static_cast<std::size_t>(sizes[a]));
        rest /= static_cast<std::size_t>(sizes[a]);
      }
      int rank = 0;
      for (const std::size_t a : order) rank = rank * sizes[a] + coordinate[a];
      rank_of.push_back(rank);
    }
    all.push_back(std::move(rank_of));
  } while (std::next_permutation(order.begin(), order.end()) && all.size() < 120);
  return all;
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// Proposes which rank each device of a mesh should be, so that what a program communicates takes the least time on
/// this network: predicted as the sizes over the joint rates of the groups, and the latency of each call. Where there
/// are few arrangements of ranks that differ in the network's eyes all are looked at, else pairs of devices change
/// places as long as that helps, from several starts. The placement as it is stays unless another is faster.
///
/// Throws std::invalid_argument where the mesh has another number of devices than the network has ranks.
[[nodiscard]] inline placement propose_placement(const network& net, const mesh_traffic& mesh,
                                                 const placement_options& options = {}) {
  const int devices = std::accumulate(mesh.sizes.begin(), mesh.sizes.end(), 1, [](int a, int b) { return a * b; });
  if (devices != net.ranks) {
    throw std::invalid_argument("the topology has " + std::to_string(net.ranks) + " ranks, but the mesh has " +
                                std::to_string(devices) + " devices");
  }
  const auto end = detail::after(options.seconds);
  const auto in_time = [&] { return detail::packing_clock::now() < end; };
  detail::placement_price price(net, mesh);
  placement best;
  best.rank_of.resize(static_cast<std::size_t>(devices));
  std::iota(best.rank_of.begin(), best.rank_of.end(), 0);
  best.before = best.after = price.seconds(best.rank_of);
  const auto consider = [&](const std::vector<int>& rank_of) {
    const double seconds = price.seconds(rank_of);
    // Not for what rounding makes of equal ones.
    if (!(seconds < best.after * (1 - 1e-9)) && !(std::isinf(best.after) && !std::isinf(seconds))) return false;
    best.after = seconds;
    best.rank_of = rank_of;
    return true;
  };

  const std::vector<int>& class_of = price.class_of();
  if (detail::arrangements(class_of) <= static_cast<double>(options.most)) {
    std::vector<int> classes = class_of;
    std::sort(classes.begin(), classes.end());
    bool more = true;
    for (; more && in_time(); more = std::next_permutation(classes.begin(), classes.end()))
      (void)consider(detail::ranks_for(classes, class_of));
    best.best = !more;
  } else {
    for (const std::vector<int>& start : detail::axis_orders(mesh.sizes))
      if (in_time()) (void)consider(start);
    for (bool improved = true; improved && in_time();) {
      improved = false;
      for (int a = 0; a < devices && in_time(); ++a) {
        for (int b = a + 1; b < devices && in_time(); ++b) {
          std::vector<int> other = best.rank_of;
          std::swap(other[static_cast<std::size_t>(a)], other[static_cast<std::size_t>(b)]);
          improved = consider(other) || improved;
        }
      }
    }
  }
  best.rank_of = detail::with_first_rank_first(mesh.sizes, best.rank_of);
  return best;
}

/// The network as devices see it: its rank d is `rank_of[d]` of the other.
/// @pre `rank_of` is a permutation of the network's ranks
[[nodiscard]] inline network placed(const network& net, const std::vector<int>& rank_of) {
  std::vector<int> device_of(rank_of.size(), -1);
  for (std::size_t d = 0; d < rank_of.size(); ++d)
    device_of.at(static_cast<std::size_t>(rank_of[d])) = static_cast<int>(d);
  network made = net;
  for (network::edge& e : made.edges) {
    e.from = device_of[static_cast<std::size_t>(e.from)];
    e.to = device_of[static_cast<std::size_t>(e.to)];
  }
  for (std::size_t d = 0; d < made.host.size(); ++d) made.host[d] = net.host[static_cast<std::size_t>(rank_of[d])];
  return made;
}

}  // namespace espalier::comm
