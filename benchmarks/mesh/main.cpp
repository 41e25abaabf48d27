// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Measures the cost of a mesh: nothing when it has one device, and some share of two devices' speed when it has two.

#include "../machine.hpp"
#include "../steps/gpt_step.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace espalier::benchmarks {
/// The small GPT with all its annotations on a mesh whose two axes have one device each.
mesh_shape mesh_of_one();
std::unique_ptr<gpt_step> make_small_gpt_on_mesh_of_one(world& where);
std::int64_t collectives_on_mesh_of_one();
}  // namespace espalier::benchmarks

namespace {

using namespace espalier;
using namespace espalier::benchmarks;

/// A step of execution: a kernel of its own, or the micro-operations of a fused chain, with the name of what it does.
struct executed {
  std::string name;
  std::vector<const void*> functions;
  friend bool operator==(const executed&, const executed&) = default;
};

/// All that is executed, in order. Kernels are the same function when all that is static about them is the same.
std::vector<executed> list_kernels(const program_tables& t) {
  std::vector<executed> list;
  for (int u = 0; u < t.launch_count; ++u) {
    executed one;
    if (t.launches[u].fused) {
      const fused_chain& chain = t.chains[u];
      one.name = "fused " + std::to_string(chain.rows) + " x " + std::to_string(chain.columns);
      for (int s = chain.first_step; s < chain.first_step + chain.step_count; ++s) {
        one.functions.push_back(reinterpret_cast<const void*>(t.block_functions[s]));
      }
    } else {
      one.name = t.code[t.order[t.launches[u].first]].op->name;
      one.functions.push_back(reinterpret_cast<const void*>(t.kernel_functions[u]));
    }
    list.push_back(std::move(one));
  }
  return list;
}

void collectives_of_one(const std::string& row) {
  world here(mesh_of_one());
  const auto step = make_small_gpt_on_mesh_of_one(here);
  const program_tables t = step->tables();
  std::int64_t in_code = 0;
  for (int id = 0; id < t.code.size; ++id) in_code += detail::collective_index(t.code[id].op) >= 0 ? 1 : 0;
  step->run(0);
  std::int64_t bytes = 0;
  here.on_devices([&](int, auto& communicator) {
    for (const std::int64_t sent : communicator.counters()) bytes += sent;
  });
  std::printf("mesh of one device: %lld collectives a run, %lld in the code (local slices included), %lld bytes sent\n",
              static_cast<long long>(collectives_on_mesh_of_one()), static_cast<long long>(in_code),
              static_cast<long long>(bytes));
  report(row, "ours", static_cast<double>(collectives_on_mesh_of_one() + in_code), "count");
}

void kernels_of_one(const std::string& row) {
  world plain(small_gpt_mesh());
  world annotated(mesh_of_one());
  const auto without = make_small_gpt(plain);
  const auto with = make_small_gpt_on_mesh_of_one(annotated);
  const std::vector<executed> wanted = list_kernels(without->tables());
  const std::vector<executed> found = list_kernels(with->tables());
  std::size_t equal = 0;
  for (std::size_t k = 0; k < wanted.size() && k < found.size(); ++k) {
    if (wanted[k] == found[k]) {
      ++equal;
    } else if (equal == k) {
      std::printf("the first difference is at %zu: %s, unpartitioned %s\n", k, found[k].name.c_str(),
                  wanted[k].name.c_str());
    }
  }
  without->run(0);
  with->run(0);
  std::printf(
      "kernels and fused chains in order: %zu on a mesh of one device, %zu unpartitioned, %zu the same; arenas "
      "%lld and %lld bytes; losses %.9g and %.9g\n",
      found.size(), wanted.size(), equal, static_cast<long long>(with->facts().arena_bytes),
      static_cast<long long>(without->facts().arena_bytes), with->loss(), without->loss());
  // An instruction that is missing on either side counts as a difference.
  report(row, "ours", static_cast<double>(equal), "count");
  report(row, "unpartitioned", static_cast<double>(std::max(wanted.size(), found.size())), "count");
}

constexpr repeats how{3, 15};

void two_devices(const std::string& row) {
  world two(small_gpt_data_parallel_mesh());
  world one(small_gpt_mesh());
  const auto split = make_small_gpt_data_parallel(two);
  const auto whole = make_small_gpt(one);
  int a = 0;
  int b = 0;
  const auto [split_seconds, whole_seconds] = interleaved_seconds(
      how, [&] { split->run(a++); }, [&] { whole->run(b++); });
  std::printf("losses %.6f and %.6f\n", split->loss(), whole->loss());
  report(row, "ours", split_seconds * 1e3, "ms");
  report(row, "one device, " + std::to_string(one.threads_per_device()) + " threads", whole_seconds * 1e3, "ms");
}

void two_ranks(const std::string& row, int argc, char** argv) {
  world here(argc, argv, small_gpt_data_parallel_mesh());
  const auto step = make_small_gpt_data_parallel(here);
  int number = 0;
  const double taken = median_seconds([&] { step->run(number++); }, how);
  if (here.is_root()) report(row, "ours", taken * 1e3, "ms");
}

void two_threads(const std::string& row) {
  world here(small_gpt_mesh());
  const auto step = make_small_gpt(here);
  int number = 0;
  const double taken = median_seconds([&] { step->run(number++); }, how);
  report(row, "one device, " + std::to_string(here.threads_per_device()) + " threads", taken * 1e3, "ms");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string row = argc > 1 ? argv[1] : "";
  if (row == "mesh_of_one_collectives") {
    collectives_of_one(row);
  } else if (row == "mesh_of_one_kernels") {
    kernels_of_one(row);
  } else if (row == "two_devices_vs_two_threads") {
    two_devices(row);
  } else if (row == "two_ranks_vs_two_threads") {
    two_ranks(row, argc, argv);
  } else if (row == "two_threads" && argc > 2) {
    two_threads(argv[2]);
  } else {
    std::fprintf(stderr, "usage: %s mesh_of_one_{collectives,kernels} | two_{devices,ranks}_vs_two_threads\n", argv[0]);
    return EXIT_FAILURE;
  }
}
