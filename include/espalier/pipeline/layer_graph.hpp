// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/profile.hpp>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier::pipeline {

/// A model whose layers feed one another in any way, as profilers write it.
struct layer_graph {
  struct node {
    std::string name;         ///< unique
    std::string description;  ///< the kind of layer
    double forward_seconds = 0;
    double backward_seconds = 0;
    double output_bytes = 0;
    double parameter_bytes = 0;
    std::optional<int> stage;  ///< where some planner has put it
  };

  std::string name;
  std::vector<node> nodes;
  std::vector<std::pair<int, int>> edges;  ///< from a node to one that reads its output, by index
};

}  // namespace espalier::pipeline

namespace espalier::pipeline::detail {

/// Puts the layers of a graph in line, so that few bytes cross wherever the line is cut.
class graph_line {
 public:
  explicit graph_line(const layer_graph& graph)
      : graph_(graph),
        readers_(graph.nodes.size()),
        sources_(graph.nodes.size()),
        unplaced_readers_(graph.nodes.size()),
        unplaced_sources_(graph.nodes.size()),
        ready_since_(graph.nodes.size(), -1) {
    for (const auto& [from, to] : graph.edges) {
      readers_[index(from)].push_back(to);
      sources_[index(to)].push_back(from);
    }
    for (std::size_t k = 0; k < graph.nodes.size(); ++k) {
      for (auto* list : {&readers_[k], &sources_[k]}) {  // an edge that is listed twice is one
        std::sort(list->begin(), list->end());
        list->erase(std::unique(list->begin(), list->end()), list->end());
      }
      unplaced_readers_[k] = readers_[k].size();
      unplaced_sources_[k] = sources_[k].size();
    }
  }

  /// Nodes that hold the input: they have no sources and no parameters, and say so. Their time is that of loading data,
  /// and they belong to the first stage, whatever reads them.
  [[nodiscard]] bool is_input(int k) const {
    constexpr std::string_view word = "input";
    const auto& one = graph_.nodes[index(k)];
    if (!sources_[index(k)].empty() || one.parameter_bytes > 0 || one.description.size() < word.size()) return false;
    for (std::size_t c = 0; c < word.size(); ++c)
      if (std::tolower(static_cast<unsigned char>(one.description[c])) != word[c]) return false;
    return true;
  }

  /// Returns the layers in a line. The next one is always the layer after which the fewest bytes cross; of equals, the
  /// one whose sources were placed last, so that a branch is finished before another begins.
  [[nodiscard]] profile in_line(double batch) {
    std::vector<int> ready;
    for (int k = 0; k < size(); ++k)
      if (is_input(k)) place(k, 0, ready);
    for (int k = 0; k < size(); ++k)
      if (unplaced_sources_[index(k)] == 0 && !is_input(k) && ready_since_[index(k)] < 0) make_ready(k, 0, ready);
    profile line{graph_.name, batch, {}};
    double crossing = 0;
    for (int step = 1; !ready.empty(); ++step) {
      const auto better = [&](int a, int b) {
        const double more_a = growth(a);
        const double more_b = growth(b);
        if (more_a != more_b) return more_a < more_b;
        if (ready_since_[index(a)] != ready_since_[index(b)]) return ready_since_[index(a)] > ready_since_[index(b)];
        return a < b;
      };
      const auto next = std::min_element(ready.begin(), ready.end(), better);
      const int k = *next;
      ready.erase(next);
      crossing += growth(k);
      place(k, step, ready);
      line.layers.push_back(layer(k, crossing));
    }
    for (std::size_t k = 0; k < graph_.nodes.size(); ++k)
      if (unplaced_sources_[k] != 0)
        throw std::invalid_argument(graph_.name + ": layer \"" + graph_.nodes[k].name +
                                    "\" reads, through others, its own output: a graph of layers has no cycles");
    if (line.layers.empty()) throw std::invalid_argument(graph_.name + ": there are no layers behind the input");
    line.layers.back().output_bytes = 0;
    return line;
  }

 private:
  static std::size_t index(int k) { return static_cast<std::size_t>(k); }
  [[nodiscard]] int size() const { return static_cast<int>(graph_.nodes.size()); }

  /// Returns by how many bytes the cut after layer k is larger than the cut before it.
  [[nodiscard]] double growth(int k) const {
    double more = readers_[index(k)].empty() ? 0 : graph_.nodes[index(k)].output_bytes;
    for (const int source : sources_[index(k)])
      if (unplaced_readers_[index(source)] == 1 && !is_input(source)) more -= graph_.nodes[index(source)].output_bytes;
    return more;
  }

  void make_ready(int k, int step, std::vector<int>& ready) {
    ready_since_[index(k)] = step;
    ready.push_back(k);
  }

  void place(int k, int step, std::vector<int>& ready) {
    for (const int source : sources_[index(k)]) --unplaced_readers_[index(source)];
    for (const int reader : readers_[index(k)])
      if (--unplaced_sources_[index(reader)] == 0) make_ready(reader, step, ready);
  }

  /// Returns layer k as part of the line. If only the sum of both gradients is known, half of it is taken to be the
  /// weights', if there are any.
  [[nodiscard]] layer_profile layer(int k, double crossing) const {
    const auto& one = graph_.nodes[index(k)];
    layer_profile made;
    made.name = one.description;
    made.forward_seconds = one.forward_seconds;
    made.weight_gradient_seconds = one.parameter_bytes > 0 ? one.backward_seconds / 2 : 0;
    made.input_gradient_seconds = one.backward_seconds - made.weight_gradient_seconds;
    made.activation_bytes = one.output_bytes;
    made.parameter_bytes = one.parameter_bytes;
    made.output_bytes = std::max(0.0, crossing);
    return made;
  }

  const layer_graph& graph_;
  std::vector<std::vector<int>> readers_;
  std::vector<std::vector<int>> sources_;
  std::vector<std::size_t> unplaced_readers_;
  std::vector<std::size_t> unplaced_sources_;
  std::vector<int> ready_since_;
};

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// Returns the graph's layers in an order in which every cut is legal: all that a layer reads comes before it. The
/// output of each layer before a cut crosses it once if some layer after it reads that output.
///
/// Inputs (without sources and parameters, described as "Input...") are left out, as planners do: they cost nothing and
/// stay in the first stage. `batch`: the samples that the graph was profiled with.
/// Throws std::invalid_argument where layers form a cycle, or none are left.
[[nodiscard]] inline profile in_line(const layer_graph& graph, double batch) {
  profile line = detail::graph_line(graph).in_line(batch);
  require_usable(line);
  return line;
}

}  // namespace espalier::pipeline
