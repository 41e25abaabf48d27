// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Packs trees for the collectives on a topology and says how fast they are: `trees TOPOLOGY.json`; `trees --help` has
// the options.
#include "common/command_line.hpp"

#include <espalier/base/table.hpp>
#include <espalier/comm/packing/pack.hpp>
#include <espalier/comm/schedule/from_routes.hpp>
#include <espalier/comm/schedule/from_trees.hpp>
#include <espalier/comm/schedule/routes.hpp>
#include <espalier/comm/schedule/simulate.hpp>
#include <espalier/comm/topology/json.hpp>
#include <espalier/comm/topology/paths.hpp>
#include <espalier/comm/topology/svg.hpp>
#include <espalier/comm/topology/table.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace comm = espalier::comm;
using espalier::collective;

constexpr std::array<collective, 8> all_collectives{
    collective::broadcast,      collective::reduce, collective::all_reduce, collective::all_gather,
    collective::reduce_scatter, collective::gather, collective::scatter,    collective::all_to_all};

struct options {
  std::string file;
  std::optional<collective> only;
  int root = 0;
  std::int64_t size = std::int64_t{64} << 20;
  std::string picture;
  bool json = false;
};

/// Reads the command line into `chosen`. A value is what the program is to end with at once.
std::optional<int> parse(int argc, char** argv, options& chosen) {
  command_line::application line("trees", "Packs trees for the collectives on a topology and says how fast they are.",
                                 "A topology file is described in docs/topology.md.");
  line.value("topology", chosen.file, "TOPOLOGY", "A file, as in tests/data/topologies")->required();
  const auto known = [&](std::string& name) -> std::string {
    std::replace(name.begin(), name.end(), '-', '_');
    std::string names;
    for (const collective what : all_collectives) {
      if (name == name_of(what)) return {};
      names += (names.empty() ? "" : ", ") + std::string(name_of(what));
    }
    return "there is no collective \"" + name + "\"; there are " + names;
  };
  line.add_option_function<std::string>(
          "--collective",
          [&](const std::string& name) {
            for (const collective what : all_collectives)
              if (name == name_of(what)) chosen.only = what;
          },
          "broadcast, reduce, all_reduce, all_gather, reduce_scatter, gather, scatter or all_to_all; without it, all")
      ->type_name("NAME")
      ->transform(CLI::Validator(known, ""));
  line.value("--root", chosen.root, "R", "Rank that broadcast, reduce, gather and scatter start from or end at")
      ->check(command_line::whole(0, 1 << 30));
  line.value("--size", chosen.size, "BYTES", "Bytes of the whole array in the simulated time")
      ->check(command_line::whole(0));
  line.value("--svg", chosen.picture, "FILE",
             "Write a picture of the topology, with the trees of the collective that was named");
  line.add_flag("--json", chosen.json, "One JSON object per line and collective instead of a table");
  return command_line::parse(line, argc, argv);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct result {
  collective what = collective::broadcast;
  std::string rate;  ///< a fraction in the file's unit; a decimal where it is none
  std::string bound;
  std::size_t trees = 0;
  int depth = 0;
  double planning_seconds = 0;
  std::optional<double> simulated_seconds;
};

/// Six digits, and no more than are there.
std::string decimal(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

/// "24/7"; where the numbers are too long to mean anything to a reader, a decimal.
std::string rate_text(const comm::fraction& rate, double scale) {
  const double factor = scale >= 1 ? std::round(scale) : std::round(1 / scale);
  const comm::fraction unit{static_cast<std::int64_t>(factor), 1};
  try {
    const comm::fraction in_units = scale >= 1 ? rate / unit : rate * unit;
    if (in_units.denominator <= 1'000'000) return comm::to_string(in_units);
  } catch (const std::overflow_error&) {  // as long as that
  }
  return decimal(comm::to_double(rate) / scale);
}

/// The best of some chunk sizes, as a tuner would find it.
template <class MakePlan>
std::optional<double> simulate_best(const comm::collective_call& call, const comm::network& net, MakePlan&& make_plan) {
  std::optional<double> best;
  const std::int64_t total = std::max<std::int64_t>(1, comm::total_elements(call));
  for (const std::int64_t chunks : {256, 1024, 4096}) {
    comm::chunking cut;
    cut.elements = std::max<std::int64_t>(1, total / chunks);
    comm::simulation_options simulated;
    simulated.element_bytes = 1;
    const comm::simulation outcome = comm::simulate(make_plan(cut), net, simulated);
    if (outcome.complete && (!best || outcome.seconds < *best)) best = outcome.seconds;
  }
  return best;
}

result plan(collective what, const options& chosen, const comm::network& net, double scale,
            std::optional<comm::packing>& picture) {
  result r;
  r.what = what;
  // `--size` is that of the whole array, `uniform_call` takes the size of one block.
  const std::int64_t ranks = net.ranks;
  const std::int64_t blocks = comm::has_cells(what) ? ranks * ranks : comm::has_blocks(what) ? ranks : 1;
  const auto call = comm::uniform_call(what, net.ranks, std::max<std::int64_t>(1, chosen.size / blocks),
                                       comm::has_root(what) ? chosen.root : 0);
  const auto start = std::chrono::steady_clock::now();
  if (comm::has_trees(what)) {
    comm::packing packing = comm::pack(net, what, call.root);
    r.planning_seconds = seconds_since(start);
    r.rate = rate_text(packing.rate, scale);
    r.bound = rate_text(packing.bound, scale);
    r.trees = packing.trees.size();
    r.depth = comm::depth(net, packing);
    if (!packing.trees.empty())
      r.simulated_seconds = simulate_best(
          call, net, [&](const comm::chunking& cut) { return comm::from_trees(call, net, packing.trees, cut); });
    if (chosen.only) picture = std::move(packing);
    return r;
  }
  comm::routing routing;
  try {
    routing = comm::find_routes(call, net);
  } catch (const std::invalid_argument&) {
    routing.rate = routing.bound = 0;  // two ranks without a path
  }
  r.planning_seconds = seconds_since(start);
  r.rate = decimal(routing.rate / scale);
  r.bound = decimal(routing.bound / scale);
  r.trees = routing.routes.size();
  for (const auto& route : routing.routes) r.depth = std::max(r.depth, static_cast<int>(route.edges.size()));
  if (!routing.routes.empty())
    r.simulated_seconds = simulate_best(
        call, net, [&](const comm::chunking& cut) { return comm::from_routes(call, net, routing.routes, cut); });
  return r;
}

void print_json(const result& r, int root) {
  const auto number = [](double value) { return espalier::detail::json_number(value); };
  // A fraction is a string, everything else a number.
  const auto rate = [](const std::string& text) {
    return text.find('/') == std::string::npos ? text : espalier::detail::json_string(text);
  };
  std::cout << "{\"collective\": \"" << name_of(r.what)
            << "\", \"root\": " << (comm::has_root(r.what) ? std::to_string(root) : "null")
            << ", \"rate\": " << rate(r.rate) << ", \"bound\": " << rate(r.bound) << ", \"trees\": " << r.trees
            << ", \"depth\": " << r.depth << ", \"planning_seconds\": " << number(r.planning_seconds)
            << ", \"simulated_seconds\": " << (r.simulated_seconds ? number(*r.simulated_seconds) : "null") << "}"
            << std::endl;
}

int run(const options& chosen) {
  const comm::topology machine = comm::load_topology(chosen.file);
  const comm::network net = comm::network_of(machine);
  if (chosen.root >= net.ranks)
    throw std::invalid_argument("--root is " + std::to_string(chosen.root) + ", but the ranks are 0 to " +
                                std::to_string(net.ranks - 1));
  const double scale = machine.unit / net.unit;
  if (!chosen.json) std::cout << comm::describe(machine) << '\n';

  std::optional<comm::packing> picture;
  espalier::report::table table(
      {{"collective"}, {"root"}, {"rate"}, {"bound"}, {"trees"}, {"depth"}, {"planning"}, {"simulated"}});
  for (const collective what : all_collectives) {
    if (chosen.only && what != *chosen.only) continue;
    const result r = plan(what, chosen, net, scale, picture);
    if (chosen.json) {
      print_json(r, chosen.root);
      continue;
    }
    using espalier::report::format_duration;
    table.row(std::string(name_of(what)), comm::has_root(what) ? std::to_string(chosen.root) : std::string("-"), r.rate,
              r.bound, static_cast<std::int64_t>(r.trees), r.depth, format_duration(r.planning_seconds),
              r.simulated_seconds ? format_duration(*r.simulated_seconds) : std::string("-"));
  }
  if (!chosen.json)
    std::cout << table
              << "\nRates are in the topology's unit; simulated: " << espalier::report::format_bytes(chosen.size)
              << " in all.\n";

  if (!chosen.picture.empty()) {
    std::ofstream file(chosen.picture, std::ios::binary);
    file << (picture ? comm::svg(machine, net, *picture) : comm::svg(machine));
    if (!file.flush()) throw std::runtime_error(chosen.picture + ": the picture cannot be written there");
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    options chosen;
    if (const std::optional<int> over = parse(argc, argv, chosen)) return command_line::ended("trees", *over);
    return command_line::ended("trees", run(chosen));
  } catch (const std::invalid_argument& error) {
    std::cerr << "trees: " << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "trees: " << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
