// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Profiles: the published format, graphs in line, sums.
// processors: 1
#include <espalier/pipeline/layer_graph.hpp>
#include <espalier/pipeline/profile.hpp>
#include <espalier/pipeline/read_profile.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pipeline_profiles.hpp"

using namespace espalier::pipeline;
using Catch::Matchers::Contains;

namespace {

constexpr const char* numbers = "forward_compute_time=1, backward_compute_time=2, activation_size=8, parameter_size=4";

std::string node(const std::string& id, const std::string& description = "layer") {
  return id + " -- " + description + " -- " + numbers + "\n";
}

profile parsed(const std::string& text) { return in_line(parse_layer_graph(text, "p.txt"), 1); }

}  // namespace

TEST_CASE("all published profiles are read, with their branches") {
  // Layers, milliseconds and parameter bytes as the files' own columns sum up, inputs left out.
  struct known {
    const char* name;
    int layers;
    double milliseconds;
    double parameters;
  };
  const std::vector<known> all{{"hpgo/vgg19", 25, 144.21, 548047022},
                               {"hpgo/bert_large", 28, 515.347, 1340567552},
                               {"hpgo/xlnet_36", 42, 300.71, 2003e6},
                               {"hpgo/amoebanet_36", 43, 168.05, 3731135780}};
  for (const known& one : all) {
    INFO(one.name);
    const profile model = profile_data::read(one.name, 1);
    const profile_sums sums(model);
    CHECK(model.size() == one.layers);
    CHECK(sums.seconds(0, model.size()) * 1e3 == Approx(one.milliseconds).epsilon(1e-12));
    CHECK(sums.parameter(0, model.size()) == one.parameters);
  }
  CHECK(profile_data::names().size() >= 25);
  for (const std::string& name : profile_data::names()) {
    INFO(name);
    CHECK(profile_data::read(name, 1).size() >= 12);
  }
}

TEST_CASE("what crosses a cut is each output that is read behind it, once") {
  // XLNet: after its first layer, that layer's output, the dropout's, the segments' and the mask cross.
  const profile model = profile_data::read("hpgo/xlnet_36", 1);
  const auto layer = [&](const std::string& name) {
    for (int k = 0; k < model.size(); ++k)
      if (model.layers[static_cast<std::size_t>(k)].name == name) return k;
    return -1;
  };
  REQUIRE(layer("Layer_17") >= 0);
  CHECK(model.layers[static_cast<std::size_t>(layer("Layer_17"))].output_bytes == 9e6);

  // a -> b -> d, a -> c -> d: with b first, a still crosses after b, and b and c after c.
  const std::string graph =
      "a -- Input -- forward_compute_time=9, backward_compute_time=0, activation_size=99, parameter_size=0\n"
      "b -- b -- forward_compute_time=1, backward_compute_time=2, activation_size=10, parameter_size=4\n"
      "c -- c -- forward_compute_time=1, backward_compute_time=2, activation_size=[1; 2], parameter_size=0 -- "
      "stage_id=3\n"
      "d -- d -- forward_compute_time=1, backward_compute_time=2, activation_size=5, parameter_size=4\n"
      "e -- e -- forward_compute_time=1, backward_compute_time=2, activation_size=7, parameter_size=4\n"
      "\ta -- b\n"
      "  b -- c\n"
      "\tb -- d\r\n"
      "\n"
      "\tc -- e\n\td -- e\n";
  const profile line = parsed(graph);
  REQUIRE(line.size() == 4);
  std::vector<std::pair<std::string, double>> outputs;
  for (const layer_profile& one : line.layers) outputs.emplace_back(one.name, one.output_bytes);
  // c makes 3 bytes more, d makes 5: c comes first; d then frees b.
  CHECK(outputs == std::vector<std::pair<std::string, double>>{{"b", 10}, {"c", 13}, {"d", 8}, {"e", 0}});
  CHECK(line.layers[0].weight_gradient_seconds == Approx(1e-3));
  CHECK(line.layers[1].weight_gradient_seconds == 0);
  CHECK(line.layers[1].input_gradient_seconds == Approx(2e-3));
  const layer_graph read = parse_layer_graph(graph, "p.txt");
  CHECK(read.nodes[2].stage == 3);
  CHECK(!read.nodes[1].stage.has_value());
}

TEST_CASE("every cut of a graph in line is legal") {
  std::mt19937 random(7);
  for (int repeat = 0; repeat < 200; ++repeat) {
    layer_graph graph;
    graph.name = "random";
    const int count = 2 + static_cast<int>(random() % 30);
    for (int k = 0; k < count; ++k) {
      layer_graph::node one;
      one.name = one.description = std::to_string(k);
      one.forward_seconds = 1;
      one.output_bytes = 1 + static_cast<double>(random() % 9);
      graph.nodes.push_back(one);
    }
    std::vector<int> shuffled = profile_data::devices(0, count);  // edges lead forward in this order, not in the file's
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    for (int from = 0; from < count; ++from)
      for (int to = from + 1; to < count; ++to)
        if (random() % 4 == 0)
          graph.edges.emplace_back(shuffled[static_cast<std::size_t>(from)], shuffled[static_cast<std::size_t>(to)]);
    const profile line = in_line(graph, 1);
    REQUIRE(line.size() == count);
    std::vector<int> place(static_cast<std::size_t>(count), -1);
    for (int k = 0; k < count; ++k)
      place[static_cast<std::size_t>(std::stoi(line.layers[static_cast<std::size_t>(k)].name))] = k;
    for (const auto& [from, to] : graph.edges)
      REQUIRE(place[static_cast<std::size_t>(from)] < place[static_cast<std::size_t>(to)]);
    for (int cut = 0; cut + 1 < count; ++cut) {
      double crossing = 0;
      for (int k = 0; k < count; ++k) {
        bool crosses = false;
        for (const auto& [from, to] : graph.edges)
          crosses = crosses || (from == k && place[static_cast<std::size_t>(k)] <= cut &&
                                place[static_cast<std::size_t>(to)] > cut);
        if (crosses) crossing += graph.nodes[static_cast<std::size_t>(k)].output_bytes;
      }
      REQUIRE(line.layers[static_cast<std::size_t>(cut)].output_bytes == crossing);
    }
  }
}

TEST_CASE("malformed profiles are refused with their line") {
  const auto message = [](const std::string& text) -> std::string {
    try {
      (void)parsed(text);
    } catch (const std::invalid_argument& error) { return error.what(); }
    return "no error";
  };
  CHECK_THAT(message(""), Contains("p.txt: there are no layers"));
  CHECK_THAT(message("a -- b\n"), Contains("p.txt:1:") && Contains("an edge is, indented"));
  CHECK_THAT(message(node("a") + "just words\n"), Contains("p.txt:2: this is no layer"));
  CHECK_THAT(message(node("a") + node("a")), Contains("p.txt:2: a second layer has the name \"a\""));
  CHECK_THAT(message(node("a") + "\ta -- b\n"), Contains("p.txt:2: there is no layer \"b\""));
  CHECK_THAT(message(node("a") + "\n\ta\n"), Contains("p.txt:3: this is no edge"));
  CHECK_THAT(message(node("a") + "\ta -- a\n"), Contains("p.txt:2: layer \"a\" reads its own output"));
  CHECK_THAT(message(node("a") + node("b") + "\ta -- b\n\tb -- a\n"), Contains("cycle"));
  CHECK_THAT(message("a -- x -- forward_compute_time=1, backward_compute_time=2, activation_size=8\n"),
             Contains("p.txt:1: parameter_size is missing"));
  CHECK_THAT(
      message("a -- x -- forward_compute_time=one, backward_compute_time=2, activation_size=8, parameter_size=1\n"),
      Contains("forward_compute_time is \"one\""));
  CHECK_THAT(
      message("a -- x -- forward_compute_time=-1, backward_compute_time=2, activation_size=8, parameter_size=1\n"),
      Contains("\"-1\", expected a number, 0 or more"));
  CHECK_THAT(
      message("a -- x -- forward_compute_time=nan, backward_compute_time=2, activation_size=8, parameter_size=1\n"),
      Contains("\"nan\""));
  CHECK_THAT(
      message("a -- x -- forward_compute_time=1, backward_compute_time=2, activation_size=[8; 1, parameter_size=1\n"),
      Contains("without a closing bracket"));
  CHECK_THAT(
      message("a -- x -- forward_compute_time=1, backward_compute_time=2, activation_size=[], parameter_size=1\n"),
      Contains("activation_size is \"\""));
  CHECK_THAT(message("a -- x -- forward_compute_time=1, speed=2, activation_size=8, parameter_size=1\n"),
             Contains("\"speed=2\" is none of the four numbers"));
  CHECK_THAT(message("a -- x -- " + std::string(numbers) + " -- rank=2\n"), Contains("is not stage_id=NUMBER"));
  CHECK_THAT(
      message("a -- Input -- forward_compute_time=1, backward_compute_time=2, activation_size=8, parameter_size=0\n"),
      Contains("no layers behind the input"));
  CHECK_THAT(
      message("a -- x -- forward_compute_time=0, backward_compute_time=0, activation_size=8, parameter_size=0\n"),
      Contains("no layer takes any time"));
  CHECK_THROWS_WITH(read_profile("/nowhere/graph.txt", 1),
                    Contains("cannot read the profile /nowhere/graph.txt: No such"));
  CHECK_THROWS_WITH(read_profile("/", 1), Contains("cannot read the profile /: Is a directory"));
  CHECK_THROWS_WITH(profile_data::read("hpgo/vgg19", 0), Contains("a batch of 0.0"));
  // A description may hold the separator.
  CHECK(parsed(node("a", "conv -- 3x3")).layers.front().name == "conv -- 3x3");
}

TEST_CASE("sums over runs of layers, merged layers, measured activations") {
  std::mt19937 random(3);
  const profile model = profile_data::random_profile(random, 12);
  const profile_sums sums(model);
  double forward = 0;
  for (std::size_t k = 3; k < 8; ++k) forward += model.layers[k].forward_seconds;
  CHECK(sums.forward(3, 8) == Approx(forward));
  CHECK(sums.input(0) == 0);
  CHECK(sums.input(4) == model.layers[3].output_bytes);

  const profile merged = with_layers_merged(model, {1, 5, 12});
  REQUIRE(merged.size() == 3);
  CHECK(merged.layers[1].seconds() == Approx(sums.seconds(1, 5)));
  CHECK(merged.layers[1].parameter_bytes == Approx(sums.parameter(1, 5)));
  CHECK(merged.layers[1].output_bytes == model.layers[4].output_bytes);

  const profile_sums measured(with_activation_memory(model, 7e9));
  CHECK(measured.activation(0, 12) == Approx(7e9));
  CHECK(measured.activation(3, 8) / 7e9 == Approx(forward / sums.forward(0, 12)));
  CHECK_THROWS_WITH(with_activation_memory(model, -1), Contains("finite number"));
}
