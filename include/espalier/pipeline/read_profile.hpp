// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/light_std/read_number.hpp>
#include <espalier/base/read_file.hpp>
#include <espalier/pipeline/layer_graph.hpp>
#include <espalier/pipeline/profile.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

/// Reads the text format of published layer profiles, line by line.
class layer_graph_reader {
 public:
  layer_graph_reader(std::string_view text, std::string file) : text_(text), file_(std::move(file)) {}

  [[nodiscard]] layer_graph read() {
    graph_.name = file_;
    for (std::size_t start = 0; start < text_.size();) {
      const std::size_t end = std::min(text_.find('\n', start), text_.size());
      ++line_;
      read_line(text_.substr(start, end - start));
      start = end + 1;
    }
    if (graph_.nodes.empty()) throw std::invalid_argument(file_ + ": there are no layers in this file; " + layer_form);
    for (const auto& [line, from, to] : edges_) {
      line_ = line;
      graph_.edges.emplace_back(node(from), node(to));
      if (graph_.edges.back().first == graph_.edges.back().second) fail("layer \"" + from + "\" reads its own output");
    }
    return std::move(graph_);
  }

 private:
  static constexpr const char* layer_form =
      "a layer is \"ID -- DESCRIPTION -- forward_compute_time=MS, backward_compute_time=MS, activation_size=BYTES, "
      "parameter_size=BYTES\"";
  static constexpr const char* edge_form = "an edge is, indented, \"ID -- ID\"";
  static constexpr std::string_view separator = " -- ";

  struct written_edge {
    int line;
    std::string from;
    std::string to;
  };

  [[noreturn]] void fail(const std::string& mistake) const {
    throw std::invalid_argument(file_ + ":" + std::to_string(line_) + ": " + mistake);
  }

  static std::string_view trimmed(std::string_view part) {
    constexpr std::string_view space = " \t\r";
    const std::size_t first = part.find_first_not_of(space);
    if (first == std::string_view::npos) return {};
    return part.substr(first, part.find_last_not_of(space) - first + 1);
  }

  static std::vector<std::string_view> parts(std::string_view line, std::string_view between) {
    std::vector<std::string_view> all;
    while (true) {
      const std::size_t at = line.find(between);
      all.push_back(trimmed(line.substr(0, at)));
      if (at == std::string_view::npos) return all;
      line.remove_prefix(at + between.size());
    }
  }

  void read_line(std::string_view line) {
    const std::string_view content = trimmed(line);
    if (content.empty()) return;
    const std::vector<std::string_view> fields = parts(content, separator);
    if (line.front() == ' ' || line.front() == '\t') {
      if (fields.size() != 2 || fields[0].empty() || fields[1].empty())
        fail(std::string("this is no edge; ") + edge_form);
      edges_.push_back({line_, std::string(fields[0]), std::string(fields[1])});
    } else {
      read_node(fields);
    }
  }

  void read_node(const std::vector<std::string_view>& fields) {
    std::size_t numbers = 0;  // a description may hold the separator
    while (numbers < fields.size() && fields[numbers].substr(0, 21) != "forward_compute_time=") ++numbers;
    if (numbers < 2 || numbers == fields.size() || fields.front().empty())
      fail(std::string("this is no layer; ") + layer_form + (fields.size() == 2 ? std::string("; ") + edge_form : ""));
    layer_graph::node read;
    read.name = fields.front();
    const char* const first = fields[1].data();
    const char* const last = fields[numbers - 1].data() + fields[numbers - 1].size();
    read.description = std::string(first, last);
    read_numbers(fields[numbers], read);
    for (std::size_t k = numbers + 1; k < fields.size(); ++k) {
      if (fields[k].substr(0, 9) != "stage_id=")
        fail(espalier::detail::joined({"\"", std::string(fields[k]), "\" is not stage_id=NUMBER"}));
      read.stage = static_cast<int>(number("stage_id", fields[k].substr(9)));
    }
    if (!index_.emplace(read.name, static_cast<int>(graph_.nodes.size())).second)
      fail("a second layer has the name \"" + read.name + "\"");
    graph_.nodes.push_back(std::move(read));
  }

  void read_numbers(std::string_view list, layer_graph::node& read) {
    constexpr double milliseconds = 1e-3;
    const std::array<std::pair<std::string_view, double*>, 4> fields{{{"forward_compute_time", &read.forward_seconds},
                                                                      {"backward_compute_time", &read.backward_seconds},
                                                                      {"activation_size", &read.output_bytes},
                                                                      {"parameter_size", &read.parameter_bytes}}};
    std::array<bool, 4> given{};
    for (const std::string_view entry : parts(list, ",")) {
      const std::size_t equals = std::min(entry.find('='), entry.size());
      std::size_t k = 0;
      while (k < fields.size() && fields[k].first != entry.substr(0, equals)) ++k;
      if (k == fields.size())
        fail(espalier::detail::joined({"\"", std::string(entry), "\" is none of the four numbers; ", layer_form}));
      if (given[k]) fail(std::string(fields[k].first) + " stands there twice");
      given[k] = true;
      *fields[k].second = value(fields[k].first, entry.substr(std::min(equals + 1, entry.size())));
    }
    for (std::size_t k = 0; k < fields.size(); ++k)
      if (!given[k]) fail(std::string(fields[k].first) + " is missing; " + layer_form);
    read.forward_seconds *= milliseconds;
    read.backward_seconds *= milliseconds;
  }

  /// A number, or the sum of a list in brackets: a layer with several outputs.
  [[nodiscard]] double value(std::string_view field, std::string_view text) const {
    if (text.substr(0, 1) != "[") return number(field, text);
    if (text.back() != ']') fail(std::string(field) + " is \"" + std::string(text) + "\", without a closing bracket");
    double sum = 0;
    for (const std::string_view part : parts(text.substr(1, text.size() - 2), ";")) sum += number(field, part);
    return sum;
  }

  [[nodiscard]] double number(std::string_view field, std::string_view text) const {
    double read = 0;
    const auto [end, error] = espalier::detail::read_number(text.data(), text.data() + text.size(), read);
    if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(read) || read < 0)
      fail(std::string(field) + " is \"" + std::string(text) + "\", expected a number, 0 or more");
    return read;
  }

  [[nodiscard]] int node(const std::string& name) const {
    const auto at = index_.find(name);
    if (at == index_.end()) fail("there is no layer \"" + name + "\" for this edge");
    return at->second;
  }

  std::string_view text_;
  std::string file_;
  int line_ = 0;
  layer_graph graph_;
  std::map<std::string, int> index_;
  std::vector<written_edge> edges_;
};

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// A graph in the format of PipeDream's and DAPPLE's published profiles: a line for each layer, then, indented by tabs
/// or spaces, a line for each edge.
///
/// `file` is named in errors. Throws std::invalid_argument, with the line, where the text is anything else.
[[nodiscard]] inline layer_graph parse_layer_graph(std::string_view text, const std::string& file) {
  return detail::layer_graph_reader(text, file).read();
}

/// The profile in a file of that format, in line, for `batch` samples: the format itself does not say how many.
/// Throws std::invalid_argument where the file cannot be read, is malformed, or holds no model that could be planned.
[[nodiscard]] inline profile read_profile(const std::string& path, double batch) {
  const espalier::detail::file_text file = espalier::detail::read_file(path);
  if (!file.failure.empty()) throw std::invalid_argument("cannot read the profile " + path + ": " + file.failure);
  return in_line(parse_layer_graph(file.text, path), batch);
}

}  // namespace espalier::pipeline
