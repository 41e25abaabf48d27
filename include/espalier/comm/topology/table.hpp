// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/json.hpp>
#include <espalier/base/light_std/joined.hpp>
#include <espalier/comm/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace espalier::comm {

/// The topology as text: bandwidths from each vertex (row) to each other (column), channels added up, and what links
/// share.
[[nodiscard]] inline std::string describe(const topology& machine) {
  using espalier::detail::json_number;
  const std::size_t count = machine.vertices.size();
  const auto plural = [](std::size_t n, const std::string& what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : what.back() == 'h' ? "es" : "s");
  };
  const std::size_t ranks = rank_vertices(machine).size();
  std::string out = plural(ranks, "rank") + ", " + plural(count - ranks, "switch") + ", " +
                    plural(machine.links.size(), "link") + "; bandwidth 1 is " + json_number(machine.unit) +
                    " bytes/s" + (machine.unit_name.empty() ? "" : " (" + machine.unit_name + ")") + "\n";

  std::vector<std::vector<double>> sums(count, std::vector<double>(count, 0));
  for (const auto& link : machine.links)
    sums[static_cast<std::size_t>(link.from)][static_cast<std::size_t>(link.to)] += link.bandwidth;
  std::vector<std::vector<std::string>> rows{{""}};
  for (const auto& v : machine.vertices) rows[0].push_back(v.name);
  for (std::size_t u = 0; u < count; ++u) {
    const auto& v = machine.vertices[u];
    rows.push_back({v.name + (v.is_switch   ? " (switch)"
                              : v.host >= 0 ? " (host " + std::to_string(v.host) + ")"
                                            : "")});
    for (std::size_t w = 0; w < count; ++w)
      rows.back().push_back(u == w ? "x" : sums[u][w] > 0 ? json_number(sums[u][w]) : ".");
  }
  std::vector<std::size_t> width(count + 1, 1);
  for (const auto& row : rows)
    for (std::size_t c = 0; c <= count; ++c) width[c] = std::max(width[c], row[c].size());
  for (const auto& row : rows) {
    out += row[0] + std::string(width[0] - row[0].size(), ' ');
    for (std::size_t c = 1; c <= count; ++c)
      espalier::detail::append_text(out, {"  ", std::string(width[c] - row[c].size(), ' '), row[c]});
    out += '\n';
  }
  for (const auto& shared : machine.resources)
    out += shared.name + ": " + json_number(shared.bandwidth) + ", shared by " + plural(shared.links.size(), "link") +
           "\n";
  return out;
}

}  // namespace espalier::comm
