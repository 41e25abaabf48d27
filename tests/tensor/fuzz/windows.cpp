// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 300
// optimised: yes
// built: once

#include <espalier/testing/executed.hpp>
#include <support/spmd_model.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#endif

// Random convolutions in one to three dimensions, with the gradients of both operands: through the partitioner and the
// executor, on up to eight devices, against sums over the definition that know nothing of the library; and the elements
// that exchanges bring, against those that devices lack by the same definition.
// ESPALIER_CONVOLUTION_CASES: how many (100,000 if it is not set; tests/run --long: 300,000).

namespace {

using namespace espalier;
using namespace espalier::test;

/// base_dilation * p = stride * o + dilation * k - low; `reversed`: the filter's element for tap k is size - 1 - k.
struct spatial_window {
  int input = 1;
  int output = 1;
  int size = 1;
  int stride = 1;
  int low = 0;
  int high = 0;
  int dilation = 1;
  int base_dilation = 1;
  bool reversed = false;
  /// The number of devices over which the dimension is split, and the axis that splits it (-1: none).
  int parts = 1;
  int axis = -1;

  /// The element that output o sees through tap k, or -1.
  [[nodiscard]] int seen(int o, int k) const {
    const int scaled = stride * o + dilation * k - low;
    if (scaled < 0 || scaled % base_dilation != 0) return -1;
    return scaled / base_dilation < input ? scaled / base_dilation : -1;
  }
  [[nodiscard]] int tap(int k) const { return reversed ? size - 1 - k : k; }
};

struct drawn_convolution {
  std::vector<int> mesh;
  std::vector<spatial_window> spatial;
  int batch = 1;
  int channels = 1;  // of the input
  int features = 1;
  int groups = 1;
};

class convolution_draw {
 public:
  explicit convolution_draw(std::uint32_t seed) : engine_(seed) {}

  [[nodiscard]] int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }

  [[nodiscard]] drawn_convolution any() {
    static const std::vector<std::vector<int>> meshes{{2}, {3}, {4}, {5}, {7}, {8}, {2, 2}, {2, 3}, {4, 2}};
    drawn_convolution d;
    d.mesh = meshes[static_cast<std::size_t>(integer(0, static_cast<int>(meshes.size()) - 1))];
    const int rank = std::max(integer(0, 9) < 6 ? 1 : integer(2, 3), static_cast<int>(d.mesh.size()));
    const int longest = rank == 1 ? 24 : rank == 2 ? 9 : 5;
    for (int n = 0; n < rank; ++n) d.spatial.push_back(window(longest, rank == 1 ? 4 : 3));
    for (std::size_t axis = 0; axis < d.mesh.size(); ++axis) {
      int dim = 0;
      do { dim = integer(0, rank - 1); } while (d.spatial[static_cast<std::size_t>(dim)].axis >= 0);
      d.spatial[static_cast<std::size_t>(dim)].axis = static_cast<int>(axis);
      d.spatial[static_cast<std::size_t>(dim)].parts = d.mesh[axis];
    }
    d.batch = integer(1, 2);
    d.groups = integer(0, 3) == 0 ? 2 : 1;
    d.channels = d.groups * integer(1, 2);
    d.features = d.groups * integer(1, 2);
    return d;
  }

 private:
  [[nodiscard]] spatial_window window(int longest, int most_taps) {
    while (true) {
      spatial_window w;
      w.input = integer(1, longest);
      w.size = integer(1, most_taps);
      w.stride = integer(0, 1) == 0 ? 1 : integer(1, 4);
      w.dilation = integer(0, 1) == 0 ? 1 : integer(1, 3);
      w.base_dilation = integer(0, 1) == 0 ? 1 : integer(1, 4);
      w.low = integer(-3, 6);
      w.high = integer(-3, 6);
      w.reversed = integer(0, 3) == 0;
      const int span = w.base_dilation * (w.input - 1) + 1 + w.low + w.high - w.dilation * (w.size - 1) - 1;
      if (span < 0) continue;
      w.output = span / w.stride + 1;
      if (w.output <= 2 * longest) return w;
    }
  }

  std::mt19937 engine_;
};

/// A term of the sum: places in input, filter and output.
struct term {
  std::size_t input = 0;
  std::size_t filter = 0;
  std::size_t output = 0;
};

template <class F> void for_each_term(const drawn_convolution& c, std::size_t dim, term at, const F& f) {
  if (dim < c.spatial.size()) {
    const spatial_window& w = c.spatial[dim];
    for (int o = 0; o < w.output; ++o) {
      for (int k = 0; k < w.size; ++k) {
        const int p = w.seen(o, k);
        if (p < 0) continue;
        const auto next = [](std::size_t place, int extent, int index) {
          return place * static_cast<std::size_t>(extent) + static_cast<std::size_t>(index);
        };
        for_each_term(c, dim + 1,
                      {next(at.input, w.input, p), next(at.filter, w.size, w.tap(k)), next(at.output, w.output, o)}, f);
      }
    }
    return;
  }
  const auto features = static_cast<std::size_t>(c.features);
  const auto channels = static_cast<std::size_t>(c.channels);
  const std::size_t of_group = channels / static_cast<std::size_t>(c.groups);
  for (std::size_t feature = 0; feature < features; ++feature) {
    const std::size_t group = feature / (features / static_cast<std::size_t>(c.groups));
    for (std::size_t channel = 0; channel < of_group; ++channel) {
      f(term{at.input * channels + group * of_group + channel, (at.filter * of_group + channel) * features + feature,
             at.output * features + feature});
    }
  }
}
template <class F> void for_each_term(const drawn_convolution& c, const F& f) {
  for (int n = 0; n < c.batch; ++n) {
    for_each_term(c, 0, {static_cast<std::size_t>(n), 0, static_cast<std::size_t>(n)}, f);
  }
}

struct span {
  int first = 0;
  int last = -1;

  [[nodiscard]] std::int64_t size() const { return std::max(last - first + 1, 0); }
  void include(int index) {
    if (size() == 0) first = last = index;
    first = std::min(first, index);
    last = std::max(last, index);
  }
  [[nodiscard]] span common(span other) const { return {std::max(first, other.first), std::min(last, other.last)}; }
};

[[nodiscard]] span part_of_extent(int extent, int parts, int part) {
  const int chunk = (extent + parts - 1) / parts;
  return {std::min(part * chunk, extent), std::min((part + 1) * chunk, extent) - 1};
}

/// Elements that all devices together lack: of the input, to compute the outputs, or the other way round. A buffer is a
/// box, so that what lies between two elements that are needed is needed too.
[[nodiscard]] std::int64_t lacking(const drawn_convolution& c, bool of_input) {
  std::int64_t total = 0;
  int devices = 1;
  for (const int size : c.mesh) devices *= size;
  for (int device = 0; device < devices; ++device) {
    std::int64_t needed = 1;
    std::int64_t held = 1;
    for (const spatial_window& w : c.spatial) {
      int part = 0;
      if (w.axis >= 0) {
        int rest = device;
        for (int axis = static_cast<int>(c.mesh.size()) - 1; axis > w.axis; --axis) {
          rest /= c.mesh[static_cast<std::size_t>(axis)];
        }
        part = rest % w.parts;
      }
      const span mine = part_of_extent(of_input ? w.output : w.input, w.parts, part);
      span seen;
      for (int o = 0; o < w.output; ++o) {
        for (int k = 0; k < w.size; ++k) {
          const int p = w.seen(o, k);
          if (p < 0) continue;
          if (of_input && o >= mine.first && o <= mine.last) seen.include(p);
          if (!of_input && p >= mine.first && p <= mine.last) seen.include(o);
        }
      }
      needed *= seen.size();
      held *= seen.common(part_of_extent(of_input ? w.input : w.output, w.parts, part)).size();
    }
    total += needed - held;
  }
  return total * c.batch * (of_input ? c.channels : c.features);
}

/// Elements that collectives bring to all devices together, without those that add up.
[[nodiscard]] std::int64_t received(const spmd_program& program) {
  std::int64_t total = 0;
  const graph_view g = program.parts.program;
  for (int id = 0; id < g.size; ++id) {
    const int kind = detail::collective_index(g[id].op);
    if (kind < 0 || static_cast<collective>(kind) == collective::local_slice) continue;
    const auto what = static_cast<collective>(kind);
    if (what == collective::all_reduce || what == collective::reduce_scatter) continue;
    const axis_mask axes = attributes_of<collective_attributes>(g[id]).axes;
    for (int device = 0; device < program.mesh.devices(); ++device) {
      const layout& from = g.annotations[g.operand(id, 0).annotation];
      const layout& to = g.annotations[g[id].annotation];
      const comm::transfer moves = detail::reads_windows(g[id])
                                       ? detail::make_window_transfer(program.mesh, g, id, device, 0)
                                       : detail::make_transfer(program.mesh, to.shape, g[id].type, from.placement,
                                                               to.placement, axes, what, device, 0);
      for (std::size_t k = 0; k < moves.incoming.size(); ++k) {
        if (static_cast<int>(k) != moves.self) total += moves.incoming[k].elements();
      }
    }
  }
  return total;
}

[[nodiscard]] std::string text_of(const drawn_convolution& c) {
  std::string text = "mesh";
  for (const int size : c.mesh) text += ' ' + std::to_string(size);
  for (const spatial_window& w : c.spatial) {
    text += "; " + std::to_string(w.input) + " to " + std::to_string(w.output) + " in " + std::to_string(w.parts) +
            " parts, size " + std::to_string(w.size) + ", stride " + std::to_string(w.stride) + ", low " +
            std::to_string(w.low) + ", high " + std::to_string(w.high) + ", dilation " + std::to_string(w.dilation) +
            ", base " + std::to_string(w.base_dilation) + (w.reversed ? ", reversed" : "");
  }
  return text + "; batch " + std::to_string(c.batch) + ", channels " + std::to_string(c.channels) + " to " +
         std::to_string(c.features) + ", groups " + std::to_string(c.groups);
}

/// Empty, or what is wrong.
[[nodiscard]] std::string fault_of(const drawn_convolution& c) {
  std::vector<std::int64_t> input{c.batch};
  std::vector<std::int64_t> filter;
  std::vector<std::int64_t> output{c.batch};
  std::string at = "_";
  convolution_settings settings;
  settings.groups = c.groups;
  for (std::size_t d = 0; d < c.spatial.size(); ++d) {
    const spatial_window& w = c.spatial[d];
    input.push_back(w.input);
    filter.push_back(w.size);
    output.push_back(w.output);
    at += w.axis < 0 ? ",_" : w.axis == 0 ? ",x" : ",y";
    settings.stride[d] = w.stride;
    settings.low[d] = w.low;
    settings.high[d] = w.high;
    settings.dilation[d] = w.dilation;
    settings.base_dilation[d] = w.base_dilation;
    settings.reversed[d] = w.reversed;
  }
  input.push_back(c.channels);
  filter.push_back(c.channels / c.groups);
  filter.push_back(c.features);
  output.push_back(c.features);
  at += ",_";

  model m;
  const int x = m.argument(input, at);
  const int filter_id = m.argument(filter);
  const int cotangent = m.argument(output, at);
  // Whole numbers, so that no sum is rounded.
  int next = 0;
  for (tensor_value& argument : m.arguments) {
    for (double& value : argument.data) value = (next = (next * 5 + 3) % 17) - 8;
  }
  const int y = m.shard(emit::convolution(m.b, x, filter_id, settings), at);
  m.result(y);
  for (const int gradient : m.gradients(m.total(m.multiply(y, cotangent)), {x, filter_id})) m.result(gradient);

  std::vector<std::vector<double>> expected(3);
  expected[0].resize(m.arguments[2].data.size());
  expected[1].resize(m.arguments[0].data.size());
  expected[2].resize(m.arguments[1].data.size());
  for_each_term(c, [&](const term& t) {
    expected[0][t.output] += m.arguments[0].data[t.input] * m.arguments[1].data[t.filter];
    expected[1][t.input] += m.arguments[2].data[t.output] * m.arguments[1].data[t.filter];
    expected[2][t.filter] += m.arguments[0].data[t.input] * m.arguments[2].data[t.output];
  });
  const spmd_program program = merged_program(partitioned_program(mesh_of(c.mesh), m.b.result()));
  const std::vector<tensor_value> made = execute(mesh_of(c.mesh), program.parts.program, m.arguments);
  static const char* const names[]{"the result", "the input's gradient", "the filter's gradient"};
  for (std::size_t r = 0; r < made.size(); ++r) {
    if (made[r].data != expected[r]) return std::string(names[r]) + " differs";
  }
  const std::int64_t brought = received(program);
  const std::int64_t missing = lacking(c, true) + lacking(c, false);
  if (brought != missing) {
    return std::to_string(brought) + " elements are brought, " + std::to_string(missing) + " are missing\n" +
           program.text();
  }
  return "";
}

[[nodiscard]] long convolution_cases() {
  constexpr long usual = 100000;
  const char* const given = std::getenv("ESPALIER_CONVOLUTION_CASES");
  return given == nullptr ? usual : std::atol(given);
}

}  // namespace

TEST_CASE("random convolutions and both gradients on a mesh: their sums, and no element more than is missing",
          "[windows]") {
  const long cases = convolution_cases();
  const auto workers = static_cast<long>(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::vector<std::string>> faults(static_cast<std::size_t>(workers));
  std::vector<std::thread> threads;
  for (long worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&, worker] {
#if defined(_OPENMP)
      omp_set_num_threads(1);
#endif
      for (long n = worker; n < cases; n += workers) {
        const drawn_convolution c = convolution_draw(static_cast<std::uint32_t>(n)).any();
        std::string fault;
        try {
          fault = fault_of(c);
        } catch (const std::exception& error) { fault = error.what(); }
        if (!fault.empty()) {
          faults[static_cast<std::size_t>(worker)].push_back(std::to_string(n) + ": " + text_of(c) + ": " + fault);
        }
      }
    });
  }
  for (std::thread& one : threads) one.join();
  std::size_t wrong = 0;
  for (const std::vector<std::string>& of_worker : faults) {
    wrong += of_worker.size();
    for (std::size_t n = 0; n < std::min<std::size_t>(of_worker.size(), 5); ++n) std::cout << of_worker[n] << '\n';
  }
  std::cout << cases << " random convolutions with both gradients: " << wrong << " wrong\n";
  CHECK(wrong == 0);
}
