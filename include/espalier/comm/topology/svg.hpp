// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/json.hpp>
#include <espalier/base/xml_text.hpp>
#include <espalier/comm/network.hpp>
#include <espalier/comm/packing/check.hpp>
#include <espalier/comm/packing/fraction.hpp>
#include <espalier/comm/topology/topology.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

namespace espalier::comm::detail {

[[nodiscard]] inline std::string svg_number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

/// Draws a topology in panels of equal layout: ranks on a circle in their order, so that hosts stay together, and
/// switches inside, each near what it connects.
class topology_drawing {
 public:
  explicit topology_drawing(const topology& machine) : machine_(machine), ranks_(rank_vertices(machine)) {
    radius_ = std::max(95.0, 15.0 * static_cast<double>(ranks_.size()));
    size_ = 2 * radius_ + 70;
    place();
    for (const auto& link : machine.links) widest_ = std::max(widest_, link.bandwidth);
  }

  [[nodiscard]] double panel_width() const { return size_; }
  [[nodiscard]] double panel_height() const { return size_ + 24; }

  /// The links, as wide as their bandwidth; both directions are one line where they are equal.
  [[nodiscard]] std::string links(const char* colour, bool labels) const {
    std::string out;
    std::string texts;
    for (std::size_t u = 0; u < machine_.vertices.size(); ++u)
      for (std::size_t v = 0; v < machine_.vertices.size(); ++v) {
        const double there = between(u, v);
        const double back = between(v, u);
        const bool duplex = there == back;
        if (there == 0 || (duplex && v < u)) continue;
        const double width = 1 + 5 * std::sqrt(std::max(there, 0.0) / widest_);
        out += line(points_[u], points_[v], duplex ? 0.0 : 6.0, colour, width, !duplex);
        if (!labels) continue;
        // Off the middle, where many lines cross.
        const double at = duplex ? 0.38 : 0.3;
        const double x = points_[u].x + at * (points_[v].x - points_[u].x);
        const double y = points_[u].y + at * (points_[v].y - points_[u].y);
        texts += "<text class=\"rate\" x=\"" + svg_number(x) + "\" y=\"" + svg_number(y + 3.5) + "\">" +
                 espalier::detail::json_number(there) + "</text>\n";
      }
    return out + texts;
  }

  [[nodiscard]] std::string vertices(int root, const char* colour) const {
    std::string out;
    for (std::size_t v = 0; v < machine_.vertices.size(); ++v) {
      const auto& vertex = machine_.vertices[v];
      const std::string x = svg_number(points_[v].x);
      const std::string y = svg_number(points_[v].y);
      const bool is_root = root >= 0 && ranks_[static_cast<std::size_t>(root)] == static_cast<int>(v);
      const std::string fill = is_root ? colour : vertex.is_switch ? "#dddddd" : "#ffffff";
      if (vertex.is_switch) {
        out += "<rect x=\"" + svg_number(points_[v].x - 11) + "\" y=\"" + svg_number(points_[v].y - 11) +
               "\" width=\"22\" height=\"22\" rx=\"3\" fill=\"" + fill + "\" stroke=\"#444444\"/>\n";
      } else {
        out += "<circle r=\"13\" stroke=\"#222222\" cx=\"";
        out.append(x).append("\" cy=\"").append(y).append("\" fill=\"").append(fill).append("\"/>\n");
      }
      out += "<text class=\"name\" x=\"" + x + "\" y=\"" + svg_number(points_[v].y + 4) + "\" fill=\"" +
             (is_root ? "#ffffff" : "#222222") + "\">" + espalier::detail::xml_text(vertex.name) + "</text>\n";
    }
    return out;
  }

  /// One half of a tree, with arrows along which data flows.
  [[nodiscard]] std::string edges(const network& net, const std::vector<int>& half, const char* colour) const {
    std::string out;
    for (const int e : half) {
      if (e < 0) continue;
      const auto& edge = net.edges[static_cast<std::size_t>(e)];
      out += line(points_[static_cast<std::size_t>(ranks_[static_cast<std::size_t>(edge.from)])],
                  points_[static_cast<std::size_t>(ranks_[static_cast<std::size_t>(edge.to)])], 0, colour, 2.5, true);
    }
    return out;
  }

  [[nodiscard]] std::string caption(const std::string& text) const {
    return "<text class=\"caption\" x=\"" + svg_number(size_ / 2) + "\" y=\"" + svg_number(size_ + 10) + "\">" +
           espalier::detail::xml_text(text) + "</text>\n";
  }

 private:
  struct point {
    double x = 0;
    double y = 0;
  };

  void place() {
    points_.resize(machine_.vertices.size());
    const double turn = 2 * std::acos(-1.0) / static_cast<double>(std::max<std::size_t>(1, ranks_.size()));
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const double angle = turn * static_cast<double>(r) - std::acos(-1.0) / 2;
      points_[static_cast<std::size_t>(ranks_[r])] = {size_ / 2 + radius_ * std::cos(angle),
                                                      size_ / 2 + radius_ * std::sin(angle)};
    }
    std::vector<std::vector<int>> near(machine_.vertices.size());
    for (const auto& link : machine_.links) {
      near[static_cast<std::size_t>(link.from)].push_back(link.to);
      near[static_cast<std::size_t>(link.to)].push_back(link.from);
    }
    for (std::size_t v = 0; v < points_.size(); ++v)
      if (machine_.vertices[v].is_switch) points_[v] = {size_ / 2, size_ / 2};
    // Each switch moves to the middle of its neighbours, and a little outwards from equal ones.
    for (int round = 0; round < 60; ++round) {
      for (std::size_t v = 0; v < points_.size(); ++v) {
        if (!machine_.vertices[v].is_switch || near[v].empty()) continue;
        point sum;
        for (const int u : near[v]) {
          sum.x += points_[static_cast<std::size_t>(u)].x;
          sum.y += points_[static_cast<std::size_t>(u)].y;
        }
        points_[v] = {sum.x / static_cast<double>(near[v].size()), sum.y / static_cast<double>(near[v].size())};
        for (std::size_t w = 0; w < points_.size(); ++w) {
          if (w == v || !machine_.vertices[w].is_switch) continue;
          double dx = points_[v].x - points_[w].x;
          double dy = points_[v].y - points_[w].y;
          const double distance = std::hypot(dx, dy);
          if (distance >= 34) continue;
          if (distance < 1) dx = std::cos(static_cast<double>(v)), dy = std::sin(static_cast<double>(v));
          const double push = (34 - distance) / std::max(1.0, std::hypot(dx, dy));
          points_[v].x += push * dx;
          points_[v].y += push * dy;
        }
      }
    }
  }

  [[nodiscard]] double between(std::size_t u, std::size_t v) const {
    double sum = 0;
    for (const auto& link : machine_.links)
      if (link.from == static_cast<int>(u) && link.to == static_cast<int>(v)) sum += link.bandwidth;
    return sum;
  }

  /// Draws a line from the border of one vertex to the border of the other, moved aside by `shift`.
  static std::string line(point a, point b, double shift, const char* colour, double width, bool arrow) {
    const double length = std::max(1.0, std::hypot(b.x - a.x, b.y - a.y));
    const double x = (b.x - a.x) / length;
    const double y = (b.y - a.y) / length;
    const double end = arrow ? 20 : 13;
    const point from{a.x + 13 * x - shift * y, a.y + 13 * y + shift * x};
    const point to{b.x - end * x - shift * y, b.y - end * y + shift * x};
    std::string out = "<line x1=\"" + svg_number(from.x) + "\" y1=\"" + svg_number(from.y) + "\" x2=\"" +
                      svg_number(to.x) + "\" y2=\"" + svg_number(to.y) + "\" stroke=\"" + colour +
                      "\" stroke-width=\"" + svg_number(width) + "\"/>\n";
    if (arrow) {
      const auto corner = [&](double along, double aside) {
        return svg_number(to.x + along * x - aside * y) + "," + svg_number(to.y + along * y + aside * x) + " ";
      };
      out += "<polygon points=\"" + corner(7, 0) + corner(-2, 4) + corner(-2, -4) + "\" fill=\"" + std::string(colour) +
             "\"/>\n";
    }
    return out;
  }

  const topology& machine_;
  std::vector<int> ranks_;
  std::vector<point> points_;
  double radius_ = 0;
  double size_ = 0;
  double widest_ = 1e-300;
};

[[nodiscard]] inline std::string svg_page(const topology_drawing& drawing, const std::vector<std::string>& panels) {
  const std::size_t columns = panels.size() <= 5 ? panels.size() : 4;
  const std::size_t rows = (panels.size() + columns - 1) / columns;
  const std::string width = svg_number(drawing.panel_width() * static_cast<double>(columns));
  const std::string height = svg_number(drawing.panel_height() * static_cast<double>(rows));
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + width + "\" height=\"" + height +
                    "\" viewBox=\"0 0 " + width + " " + height +
                    "\">\n<style>text{font-family:sans-serif;text-anchor:middle}.name{font-size:12px}"
                    ".rate{font-size:11px;fill:#222222;stroke:#ffffff;stroke-width:3px;paint-order:stroke}"
                    ".caption{font-size:13px;fill:#222222}</style>\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  for (std::size_t p = 0; p < panels.size(); ++p) {
    const std::size_t row = p / columns;
    out += "<g transform=\"translate(" + svg_number(drawing.panel_width() * static_cast<double>(p % columns)) + " " +
           svg_number(drawing.panel_height() * static_cast<double>(row)) + ")\">\n" + panels[p] + "</g>\n";
  }
  return out + "</svg>\n";
}

[[nodiscard]] inline std::string topology_panel(const topology_drawing& drawing, const topology& machine) {
  const std::string unit = machine.unit_name.empty() ? "" : ", 1 = " + machine.unit_name;
  // Longer names would run into the next panel.
  const std::string text = "links" + unit;
  return drawing.links("#9aa5b1", true) + drawing.vertices(-1, "") +
         drawing.caption(static_cast<double>(text.size()) * 6.5 < drawing.panel_width() ? text : "links");
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// A picture of the topology (SVG): ranks are circles, switches squares; a line is as wide as its bandwidth, which
/// stands beside it.
[[nodiscard]] inline std::string svg(const topology& machine) {
  const detail::topology_drawing drawing(machine);
  return detail::svg_page(drawing, {detail::topology_panel(drawing, machine)});
}

/// The same, and beside it a panel for each of the heaviest trees of a packing on it, with its rate and depth. Data
/// flows along the arrows; all-reduce, which uses both directions, is drawn from the root. The root is filled.
/// @pre net = network_of(machine)
[[nodiscard]] inline std::string svg(const topology& machine, const network& net, const packing& trees,
                                     std::size_t most_trees = 15) {
  constexpr std::array<const char*, 8> colours{"#c0392b", "#1f6fb2", "#2e8b57", "#b7711a",
                                               "#7d3c98", "#117a8b", "#9c2c6b", "#5d6d1e"};
  const detail::topology_drawing drawing(machine);
  std::vector<std::string> panels{detail::topology_panel(drawing, machine)};
  std::vector<std::size_t> order(trees.trees.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return trees.trees[a].weight != trees.trees[b].weight ? trees.trees[a].weight > trees.trees[b].weight : a < b;
  });
  const double scale = net.unit / machine.unit;
  for (std::size_t i = 0; i < std::min(order.size(), most_trees); ++i) {
    const tree& t = trees.trees[order[i]];
    const char* const colour = colours[i % colours.size()];
    std::string text = "tree " + std::to_string(i + 1) + " of " + std::to_string(order.size()) + ": rate " +
                       (scale == 1 ? to_string(t.weight) : espalier::detail::json_number(scale * to_double(t.weight))) +
                       ", depth " + std::to_string(depth(net, t));
    panels.push_back(drawing.links("#e8ebee", false) +
                     drawing.edges(net, uses_down(trees.kind) ? t.down : t.up, colour) +
                     drawing.vertices(t.root, colour) + drawing.caption(text));
  }
  return detail::svg_page(drawing, panels);
}

}  // namespace espalier::comm
