// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/json.hpp>
#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/read_file.hpp>
#include <espalier/comm/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier::comm {

/// The error of a topology file that cannot be used: the place, the text found there, and what was expected.
class topology_error : public std::runtime_error {
 public:
  topology_error(const std::string& name, int line, int column, const std::string& found, const std::string& expected)
      : std::runtime_error(name + ", line " + std::to_string(line) + ", column " + std::to_string(column) + ": found " +
                           found + ", expected " + expected),
        line_(line),
        column_(column) {}

  [[nodiscard]] int line() const { return line_; }
  [[nodiscard]] int column() const { return column_; }

 private:
  int line_;
  int column_;
};

}  // namespace espalier::comm

namespace espalier::comm::detail {

using espalier::detail::json_mark;
using espalier::detail::json_number;
using espalier::detail::json_place;
using espalier::detail::json_string;

/// Both forms of a topology file (docs/topology.md): a matrix of bandwidths, or lists of vertices and links.
class topology_parser {
 public:
  topology_parser(std::string_view text, const std::string& name) : json_(text, make_error{name}) {}

  [[nodiscard]] topology parse() {
    const json_mark start = json_.where();
    json_.object([&](const std::string& key) {
      const json_mark at = json_.where();
      if (key == "adjacency") {
        once(has_adjacency_, at, key);
        adjacency();
      } else if (key == "vertices") {
        once(has_vertices_, at, key);
        json_.array([&](std::size_t) { vertex(); });
      } else if (key == "links") {
        once(has_links_, at, key);
        json_.array([&](std::size_t) { link(); });
      } else if (key == "compute_nodes") {
        once(has_compute_nodes_, at, key);
        json_.array([&](std::size_t) { compute_nodes_.push_back(index("the number of a vertex")); });
      } else if (key == "names") {
        json_.array([&](std::size_t) { names_.emplace_back(json_.where(), json_.string()); });
      } else if (key == "hosts") {
        json_.array([&](std::size_t) { hosts_.push_back(index("the number of a host, or -1", -1)); });
      } else if (key == "latency") {
        latency();
      } else if (key == "resources") {
        json_.array([&](std::size_t) { resource(); });
      } else if (key == "bytes_per_second") {
        machine_.unit = positive("the bytes per second of bandwidth 1, more than 0", most_unit);
      } else if (key == "unit" && json_.peek() == '"') {
        machine_.unit_name = json_.string();
      } else {
        json_.skip_value();  // files hold notes and results as well as the topology
      }
    });
    json_.finish();
    if (has_adjacency_ && (has_vertices_ || has_links_))
      fail(start, "both \"adjacency\" and \"vertices\"", "one of the two forms");
    if (!has_adjacency_ && !has_vertices_)
      fail(start, "an object without \"adjacency\"", "\"adjacency\", or \"vertices\" and \"links\"");
    if (has_adjacency_) {
      build_adjacency();
    } else {
      if (has_compute_nodes_)
        fail(start, "\"compute_nodes\" beside \"vertices\"", "a \"kind\" of each vertex, rank or switch");
      for (const auto& [at, l] : links_) {
        require_vertex(at, l.from);
        require_vertex(at, l.to);
        if (l.from == l.to) fail(at, "a link from vertex " + std::to_string(l.from) + " to itself", "two vertices");
        machine_.links.push_back(l);
      }
    }
    build_resources();
    if (rank_vertices(machine_).empty()) fail(start, "a topology without ranks", "at least one vertex that is a rank");
    return std::move(machine_);
  }

 private:
  struct make_error {
    std::string name;
    topology_error operator()(const json_place& at, const std::string& found, const std::string& expected) const {
      return {name, at.line, at.column, found, expected};
    }
  };
  struct placed_index {
    json_mark at;
    int value;
  };
  struct resource_text {
    json_mark at;
    std::string name;
    double bandwidth = 0;
    std::vector<placed_index> links;                           ///< by number
    std::vector<std::pair<placed_index, placed_index>> pairs;  ///< by ends
    std::vector<placed_index> vertices;
    side direction = side::both;
    bool inner = false;
  };

  [[noreturn]] void fail(json_mark at, const std::string& found, const std::string& expected) const {
    json_.fail(at, found, expected);
  }

  void once(bool& seen, json_mark at, const std::string& key) const {
    if (seen) fail(at, "a second " + json_string(key), "each key once");
    seen = true;
  }

  // No machine has numbers outside of these, but a damaged file may: sums and times would be infinite.
  static constexpr double least_rate = 1e-9;
  static constexpr double most_bandwidth = 1e15;
  static constexpr double most_unit = 1e18;    // bytes per second
  static constexpr double most_latency = 1e6;  // seconds

  /// More than 0: from `least_rate` to `most`.
  [[nodiscard]] double positive(const char* expected, double most = most_bandwidth) {
    const json_mark at = json_.where();
    const double value = json_.number(expected);
    if (!(value > 0)) fail(at, json_number(value), expected);
    require_within(at, value, least_rate, most, expected);
    return value;
  }
  /// 0, or as above.
  [[nodiscard]] double not_negative(const char* expected, double smallest, double most) {
    const json_mark at = json_.where();
    const double value = json_.number(expected);
    if (!(value >= 0)) fail(at, json_number(value), expected);
    if (value > 0) require_within(at, value, smallest, most, expected);
    return value;
  }
  void require_within(json_mark at, double value, double smallest, double largest, const char* expected) const {
    if (value >= smallest && value <= largest) return;
    fail(at, json_number(value),
         std::string(expected) +
             (value < smallest ? ", of at least " + json_number(smallest) : ", of at most " + json_number(largest)));
  }
  [[nodiscard]] double seconds() { return not_negative("seconds, 0 or more", 0, most_latency); }
  [[nodiscard]] placed_index index(const char* expected, int least = 0) {
    const json_mark at = json_.where();
    const std::int64_t value = json_.whole_number(expected);
    if (value < least || value > 1000000) fail(at, std::to_string(value), expected);
    return {at, static_cast<int>(value)};
  }

  void adjacency() {
    json_.array([&](std::size_t row) {
      const json_mark at = json_.where();
      std::vector<double> values;
      json_.array([&](std::size_t column) {
        const json_mark here = json_.where();
        values.push_back(not_negative("a bandwidth, 0 or more", least_rate, most_bandwidth));
        if (column == row && values.back() != 0)
          fail(here, json_number(values.back()),
               "0: vertex " + std::to_string(row) + " needs no link to itself (row and column count from 0)");
      });
      rows_.emplace_back(at, std::move(values));
    });
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (rows_[r].second.size() != rows_.size())
        fail(rows_[r].first,
             "row " + std::to_string(r) + " with " + std::to_string(rows_[r].second.size()) + " numbers",
             std::to_string(rows_.size()) + ", as there are rows");
  }

  void latency() {
    if (json_.peek() != '[') {
      common_latency_ = seconds();
      return;
    }
    latency_at_ = json_.where();
    json_.array([&](std::size_t) {
      latencies_.emplace_back();
      json_.array([&](std::size_t) { latencies_.back().push_back(seconds()); });
    });
  }

  void vertex() {
    topology::vertex v;
    v.name = std::to_string(machine_.vertices.size());
    json_.object([&](const std::string& key) {
      const json_mark at = json_.where();
      if (key == "name") {
        v.name = json_.string();
      } else if (key == "kind") {
        const std::string kind = json_.string();
        if (kind != "rank" && kind != "switch") fail(at, json_string(kind), "\"rank\" or \"switch\"");
        v.is_switch = kind == "switch";
      } else if (key == "host") {
        v.host = index("the number of a host, or -1", -1).value;
      } else {
        fail(at, "the key " + json_string(key), "name, kind or host");
      }
    });
    machine_.vertices.push_back(std::move(v));
  }

  void link() {
    const json_mark start = json_.where();
    topology::link l;
    bool has_from = false;
    bool has_to = false;
    json_.object([&](const std::string& key) {
      const json_mark at = json_.where();
      if (key == "from") {
        once(has_from, at, key);
        l.from = index("the number of a vertex").value;
      } else if (key == "to") {
        once(has_to, at, key);
        l.to = index("the number of a vertex").value;
      } else if (key == "bandwidth") {
        l.bandwidth = positive("a bandwidth, more than 0");
      } else if (key == "latency") {
        l.latency = seconds();
      } else {
        fail(at, "the key " + json_string(key), "from, to, bandwidth or latency");
      }
    });
    if (!has_from || !has_to || l.bandwidth == 0)
      fail(start,
           "a link without " + std::string(!has_from ? "from"
                                           : !has_to ? "to"
                                                     : "bandwidth"),
           "from, to and bandwidth");
    links_.emplace_back(start, l);
  }

  void resource() {
    resource_text r;
    r.at = json_.where();
    json_.object([&](const std::string& key) {
      const json_mark at = json_.where();
      if (key == "name") {
        r.name = json_.string();
      } else if (key == "bandwidth" || key == "capacity") {
        r.bandwidth = positive("a bandwidth, more than 0");
      } else if (key == "links") {
        json_.array([&](std::size_t) {
          if (json_.peek() != '[') {
            r.links.push_back(index("the number of a link, or [from, to]"));
            return;
          }
          const json_mark pair_at = json_.where();
          std::vector<placed_index> ends;
          json_.array([&](std::size_t) { ends.push_back(index("the number of a vertex")); });
          if (ends.size() != 2) fail(pair_at, std::to_string(ends.size()) + " numbers", "[from, to]");
          r.pairs.emplace_back(ends[0], ends[1]);
        });
      } else if (key == "vertices") {
        json_.array([&](std::size_t) { r.vertices.push_back(index("the number of a vertex")); });
      } else if (key == "direction") {
        const std::string way = json_.string();
        if (way != "in" && way != "out" && way != "both") fail(at, json_string(way), "\"in\", \"out\" or \"both\"");
        r.direction = way == "in" ? side::in : way == "out" ? side::out : side::both;
      } else if (key == "inner") {
        r.inner = json_.boolean();
      } else {
        fail(at, "the key " + json_string(key), "name, bandwidth, links, vertices, direction or inner");
      }
    });
    if (r.bandwidth == 0) fail(r.at, "a resource without bandwidth", "name, bandwidth, and links or vertices");
    if (r.links.empty() && r.pairs.empty() && r.vertices.empty())
      fail(r.at, "a resource that nothing uses", "links, or vertices with a direction");
    resources_.push_back(std::move(r));
  }

  void require_vertex(json_mark at, int v) const {
    if (v >= static_cast<int>(machine_.vertices.size()))
      fail(at, "vertex " + std::to_string(v),
           "one of 0 to " + std::to_string(static_cast<int>(machine_.vertices.size()) - 1));
  }

  void build_adjacency() {
    const std::size_t count = rows_.size();
    for (std::size_t v = 0; v < count; ++v) machine_.vertices.push_back({std::to_string(v), has_compute_nodes_, -1});
    for (const placed_index& node : compute_nodes_) {
      require_vertex(node.at, node.value);
      auto& v = machine_.vertices[static_cast<std::size_t>(node.value)];
      if (!v.is_switch) fail(node.at, std::to_string(node.value) + " twice", "each compute node once");
      v.is_switch = false;
    }
    const auto per_vertex = [&](const auto& list, json_mark at, const char* what) {
      if (!list.empty() && list.size() != count)
        fail(at, std::to_string(list.size()) + " " + what, std::to_string(count) + ", one of each vertex");
    };
    if (!names_.empty()) per_vertex(names_, names_.front().first, "names");
    for (std::size_t v = 0; v < names_.size(); ++v) machine_.vertices[v].name = names_[v].second;
    if (!hosts_.empty()) per_vertex(hosts_, hosts_.front().at, "hosts");
    for (std::size_t v = 0; v < hosts_.size(); ++v) machine_.vertices[v].host = hosts_[v].value;
    per_vertex(latencies_, latency_at_, "rows of latencies");
    for (const auto& row : latencies_) per_vertex(row, latency_at_, "latencies in a row");
    for (std::size_t u = 0; u < count; ++u)
      for (std::size_t v = 0; v < count; ++v)
        if (const double bandwidth = rows_[u].second[v]; bandwidth > 0)
          machine_.links.push_back({static_cast<int>(u), static_cast<int>(v), bandwidth,
                                    latencies_.empty() ? common_latency_ : latencies_[u][v]});
  }

  void build_resources() {
    if (resources_.empty()) return;
    const links_by_vertex links(machine_);
    std::vector<int> by_ends;  // links by number, in the order of their ends
    const auto ends = [&](int l) {
      const topology::link& one = machine_.links[static_cast<std::size_t>(l)];
      return std::pair(one.from, one.to);
    };
    if (std::any_of(resources_.begin(), resources_.end(), [](const resource_text& r) { return !r.pairs.empty(); })) {
      by_ends.resize(machine_.links.size());
      std::iota(by_ends.begin(), by_ends.end(), 0);
      std::sort(by_ends.begin(), by_ends.end(), [&](int a, int b) { return ends(a) < ends(b); });
    }
    for (const resource_text& r : resources_) {
      std::vector<int> vertices;
      for (const auto& v : r.vertices) {
        require_vertex(v.at, v.value);
        vertices.push_back(v.value);
      }
      share(machine_, r.name, r.bandwidth, vertices, r.direction, r.inner, links);
      std::vector<int>& used = machine_.resources.back().links;
      for (const auto& l : r.links) {
        if (l.value >= static_cast<int>(machine_.links.size()))
          fail(l.at, "link " + std::to_string(l.value),
               "one of 0 to " + std::to_string(static_cast<int>(machine_.links.size()) - 1));
        used.push_back(l.value);
      }
      for (const auto& [from, to] : r.pairs) {
        require_vertex(from.at, from.value);
        require_vertex(to.at, to.value);
        const std::pair asked(from.value, to.value);
        auto l = std::lower_bound(by_ends.begin(), by_ends.end(), asked,
                                  [&](int one, const std::pair<int, int>& what) { return ends(one) < what; });
        const bool any = l != by_ends.end() && ends(*l) == asked;
        for (; l != by_ends.end() && ends(*l) == asked; ++l) used.push_back(*l);
        if (!any)
          fail(from.at,
               espalier::detail::joined({"[", from.value, ", ", to.value, "], between which there is no link"}),
               "the ends of a link");
      }
      std::sort(used.begin(), used.end());
      used.erase(std::unique(used.begin(), used.end()), used.end());
    }
  }

  espalier::detail::json_reader<make_error> json_;
  topology machine_;
  bool has_adjacency_ = false;
  bool has_vertices_ = false;
  bool has_links_ = false;
  bool has_compute_nodes_ = false;
  std::vector<std::pair<json_mark, std::vector<double>>> rows_;
  std::vector<placed_index> compute_nodes_;
  std::vector<std::pair<json_mark, std::string>> names_;
  std::vector<placed_index> hosts_;
  double common_latency_ = 0;
  json_mark latency_at_;
  std::vector<std::vector<double>> latencies_;
  std::vector<std::pair<json_mark, topology::link>> links_;
  std::vector<resource_text> resources_;
};

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// Reads a topology from the text of a file; `name` is what errors call it. Errors: `topology_error`.
[[nodiscard]] inline topology parse_topology(std::string_view text, const std::string& name = "topology") {
  return detail::topology_parser(text, name).parse();
}

/// Reads a topology file. Errors: `topology_error`; `std::runtime_error` if there is no such file.
[[nodiscard]] inline topology load_topology(const std::string& path) {
  const espalier::detail::file_text file = espalier::detail::read_file(path);
  if (!file.failure.empty()) {
    throw std::runtime_error(path + ": cannot be read (" + file.failure +
                             "); expected a topology file (docs/topology.md)");
  }
  return parse_topology(file.text, path);
}

/// The topology as lists of vertices, links and resources, which `parse_topology` reads back without a difference.
[[nodiscard]] inline std::string dump(const topology& machine) {
  using detail::json_number;
  using detail::json_string;
  std::string out = "{\n  \"bytes_per_second\": " + json_number(machine.unit) + ",\n";
  if (!machine.unit_name.empty()) out += "  \"unit\": " + json_string(machine.unit_name) + ",\n";
  const auto list = [&](const char* key, const auto& items, bool last, auto&& write) {
    out += "  \"" + std::string(key) + "\": [";
    for (std::size_t i = 0; i < items.size(); ++i) {
      out += i == 0 ? "\n    {" : ",\n    {";
      write(items[i]);
      out += '}';
    }
    out += std::string(items.empty() ? "]" : "\n  ]") + (last ? "\n}\n" : ",\n");
  };
  list("vertices", machine.vertices, false, [&](const topology::vertex& v) {
    out += "\"name\": " + json_string(v.name) + ", \"kind\": \"" + (v.is_switch ? "switch" : "rank") + "\"";
    if (v.host != -1) out += ", \"host\": " + std::to_string(v.host);
  });
  list("links", machine.links, false, [&](const topology::link& l) {
    out += "\"from\": " + std::to_string(l.from) + ", \"to\": " + std::to_string(l.to) +
           ", \"bandwidth\": " + json_number(l.bandwidth);
    if (l.latency != 0) out += ", \"latency\": " + json_number(l.latency);
  });
  list("resources", machine.resources, true, [&](const topology::resource& r) {
    out += "\"name\": " + json_string(r.name) + ", \"bandwidth\": " + json_number(r.bandwidth) + ", \"links\": [";
    for (std::size_t i = 0; i < r.links.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(r.links[i]);
    out += ']';
  });
  return out;
}

}  // namespace espalier::comm
