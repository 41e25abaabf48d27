// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Compares the bytes that each device of a 2 x 2 mesh sends in a training step, as the communicators count them, with
// what the program says at compile time and with the least that data x tensor parallelism needs.

#include "machine.hpp"
#include "steps/compiled_step.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#if defined(ESPALIER_USE_MPI)

namespace {
/// Bytes handed to MPI, whatever the library counts.
std::atomic<std::int64_t> message_bytes{0};
}  // namespace

// All that the communicator sends goes through here: the profiling interface of MPI (MPI 3.1, section 14.2).
extern "C" int MPI_Isend(const void* buffer, int count, MPI_Datatype type, int target, int tag, MPI_Comm communicator,
                         MPI_Request* request) {
  int size = 0;
  MPI_Type_size(type, &size);
  message_bytes += std::int64_t{count} * size;
  return PMPI_Isend(buffer, count, type, target, tag, communicator, request);
}

#endif

namespace {

using namespace espalier;
using namespace espalier::benchmarks;

struct data : axis<"data", 2> {};
struct model : axis<"model", 2> {};
using square = mesh<data, model>;
using config = small_gpt;
using step_program = training_step<square, config, gpt::megatron<data, model>>;

constexpr axis_mask along_data = 1U << square::index_of<data>;
constexpr axis_mask along_model = 1U << square::index_of<model>;

[[nodiscard]] std::string axes_name(axis_mask axes) {
  if (axes == along_data) return "data";
  if (axes == along_model) return "model";
  return axes == 0 ? "none" : "data_and_model";
}

/// A reason to communicate that data x tensor parallelism cannot do without, and the bytes a device sends for it.
struct need {
  std::string what;
  std::int64_t bytes = 0;
};

/// An all-reduce of `elements` f32 over n devices: each sends 2 (n - 1) / n of them.
constexpr std::int64_t all_reduced(std::int64_t elements, std::int64_t n) { return 2 * (n - 1) * elements * 4 / n; }

/// Returns what is sent over data: the gradient of every parameter, of each device's shard, and the mean loss.
/// (Megatron-LM section 3: query, key, value, up by columns, output and down by rows, both vocabulary tables by words.)
std::vector<need> needs_over_data() {
  constexpr std::int64_t w = config::width, v = config::vocabulary, h = config::hidden, parts = model::size;
  constexpr std::int64_t norms = 2 * w * 2;                                  // gain and bias, two norms: whole
  constexpr std::int64_t attention = 4 * w * w / parts + 3 * w / parts + w;  // the output's bias is whole
  constexpr std::int64_t mlp = 2 * w * h / parts + h / parts + w;            // so is that of `down`
  const auto reduced = [](std::int64_t elements) { return all_reduced(elements, data::size); };
  return {{"gradients of the blocks", reduced(config::layers * (norms + attention + mlp))},
          {"gradients of token table and head", reduced(2 * v * w / parts)},
          {"gradient of the position table", reduced(config::context * w)},
          {"gradient of the final norm", reduced(2 * w)},
          {"mean loss", reduced(1)}};
}

/// Returns what is sent over model: the activations between the two halves of attention and of the MLP, forward and
/// backward, and what the split vocabulary takes.
std::vector<need> needs_over_model() {
  constexpr std::int64_t tokens = std::int64_t{config::batch} * config::context / data::size;
  constexpr std::int64_t activation = tokens * config::width;
  const auto reduced = [](std::int64_t elements) { return all_reduced(elements, model::size); };
  return {{"two activations a layer, forward", reduced(config::layers * 2 * activation)},
          {"two activations a layer, backward", reduced(config::layers * 2 * activation)},
          {"token table, forward: rows of other devices", reduced(activation)},
          {"head, backward", reduced(activation)},
          {"cross entropy: maximum, sum of exponentials, target's logit", reduced(3 * tokens)}};
}

[[nodiscard]] std::int64_t sum_of(const std::vector<need>& needs) {
  std::int64_t sum = 0;
  for (const need& n : needs) sum += n.bytes;
  return sum;
}

template <class Kind> struct compile_time_row {
  static std::int64_t bytes(axis_mask axes) {
    // `bytes<Kind, data>` counts joint groups too.
    const std::int64_t joint = step_program::bytes<Kind, data, model>();
    if (axes == along_data) return step_program::bytes<Kind, data>() - joint;
    if (axes == along_model) return step_program::bytes<Kind, model>() - joint;
    return joint;
  }
};
[[nodiscard]] std::int64_t compile_time_bytes(collective kind, axis_mask axes) {
  switch (kind) {
    case collective::all_gather: return compile_time_row<all_gather>::bytes(axes);
    case collective::all_to_all: return compile_time_row<all_to_all>::bytes(axes);
    case collective::collective_permute: return compile_time_row<collective_permute>::bytes(axes);
    case collective::reduce_scatter: return compile_time_row<reduce_scatter>::bytes(axes);
    case collective::all_reduce: return compile_time_row<all_reduce>::bytes(axes);
    case collective::exchange: return compile_time_row<exchange>::bytes(axes);
    case collective::local_slice:
    case collective::broadcast:
    case collective::reduce:
    case collective::gather:
    case collective::scatter:
    case collective::reduce_exchange:
    case collective::barrier: break;
  }
  return 0;
}

/// Counted per channel (kind x 256 + axes) in one step; the most of all devices.
std::map<int, std::int64_t> count_bytes(world& here, gpt_step& step) {
  here.on_devices([](int, auto& communicator) { communicator.reset_counters(); });
  step.run(0);
  std::vector<std::map<int, std::int64_t>> counted(static_cast<std::size_t>(here.local_devices()));
  here.on_devices([&](int local, auto& communicator) {
    const auto sent = communicator.counters();
    for (std::size_t channel = 0; channel < sent.size(); ++channel) {
      if (sent[channel] > 0) counted[static_cast<std::size_t>(local)][static_cast<int>(channel)] = sent[channel];
    }
  });
  std::map<int, std::int64_t> most;
  for (const auto& device : counted) {
    for (const auto& [channel, bytes] : device) most[channel] = std::max(most[channel], bytes);
  }
  return most;
}

void list_collectives() {
  const graph_view g = step_program::code;
  for (int id = 0; id < g.size; ++id) {
    if (!communicates(g[id])) continue;
    const char* file = g[id].where.file;
    for (const char* c = file; *c != '\0'; ++c) file = *c == '/' ? c + 1 : file;
    std::printf("  %-18s %-6s %2lld x %9lld B  %s:%d  f32[", g[id].op->name,
                axes_name(attributes_of<collective_attributes>(g[id]).axes).c_str(),
                static_cast<long long>(detail::repetitions(g, id)),
                static_cast<long long>(step_program::sent_bytes_of(id, 0)), file, g[id].where.line);
    for (int d = 0; d < g[id].shape.rank; ++d)
      std::printf("%s%lld", d > 0 ? ", " : "", static_cast<long long>(g[id].shape[d]));
    std::printf("]\n");
  }
}

#if defined(ESPALIER_USE_MPI)
/// Compares, under mpirun, the bytes that rank 0 really hands to MPI in a step with those that its communicator
/// counted.
void compare_messages(world& here, gpt_step& step) {
  step.run(0);
  std::int64_t counted = 0;
  here.on_devices([](int, auto& communicator) { communicator.reset_counters(); });
  message_bytes = 0;
  step.run(1);
  const std::int64_t sent = message_bytes;
  here.on_devices([&](int, auto& communicator) {
    for (const std::int64_t bytes : communicator.counters()) counted += bytes;
  });
  if (!here.is_root()) return;
  report("bytes_in_messages/all", "ours", static_cast<double>(sent), "B");
  report("bytes_in_messages/all", "counted", static_cast<double>(counted), "B");
}
#endif

}  // namespace

int main(int argc, char** argv) {
  world here(argc, argv, square{});
  compiled_step<step_program, config> step(here);
#if defined(ESPALIER_USE_MPI)
  if (here.uses_mpi()) {
    compare_messages(here, step);
    return EXIT_SUCCESS;
  }
#endif
  const std::map<int, std::int64_t> counted = count_bytes(here, step);
  list_collectives();
  std::map<axis_mask, std::int64_t> total;
  for (const collective what : {collective::all_gather, collective::all_to_all, collective::collective_permute,
                                collective::reduce_scatter, collective::all_reduce, collective::exchange}) {
    for (const axis_mask axes : {along_data, along_model, along_data | along_model}) {
      const auto found = counted.find(static_cast<int>(what) * 256 + static_cast<int>(axes));
      const std::int64_t sent = found == counted.end() ? 0 : found->second;
      const std::int64_t computed = compile_time_bytes(what, axes);
      total[axes] += sent;
      if (sent == 0 && computed == 0) continue;
      const std::string row = "bytes_per_axis/" + axes_name(axes) + "/" + detail::op_of(what).name;
      report(row, "ours", static_cast<double>(sent), "B");
      report(row, "compile time", static_cast<double>(computed), "B");
    }
  }
  for (const axis_mask axes : {along_data, along_model, along_data | along_model}) {
    const std::vector<need> needs = axes == along_data    ? needs_over_data()
                                    : axes == along_model ? needs_over_model()
                                                          : std::vector<need>{};
    for (const need& n : needs) {
      std::printf("  needed over %s: %9lld B  %s\n", axes_name(axes).c_str(), static_cast<long long>(n.bytes),
                  n.what.c_str());
    }
    const std::int64_t least = sum_of(needs);
    if (total[axes] != least) {
      std::printf("  EXCESS over %s: %lld B sent, %lld B needed\n", axes_name(axes).c_str(),
                  static_cast<long long>(total[axes]), static_cast<long long>(least));
    }
    const std::string row = "bytes_per_axis/" + axes_name(axes) + "/total";
    report(row, "ours", static_cast<double>(total[axes]), "B");
    report(row, "minimum", static_cast<double>(least), "B");
  }
}
