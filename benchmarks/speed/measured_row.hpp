// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../machine.hpp"

#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/runner.hpp>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

/// Rows of the suite `speed`: one operator or layer on one device, against current frameworks on the same numbers
/// (benchmarks/peers/speed/rows.py).
namespace espalier::benchmarks {

/// What a row moves and multiplies at least. benchmarks/peers/collect.py finds what binds it among the machine's own
/// rates, and which share of that is reached.
struct least_work {
  double bytes = 0;
  double flops = 0;
  /// The bytes of all arrays, if the row passes over some of them twice: how large a cache would hold them.
  double arrays = 0;
  /// It writes next to nothing.
  bool only_reads = false;
  /// Milliseconds that its instructions take at least: `speed_rows::instruction_milliseconds`.
  double instructions = 0;

  [[nodiscard]] least_work with_instructions(double milliseconds) const {
    least_work made = *this;
    made.instructions = milliseconds;
    return made;
  }
};

/// An integer below `limit`, as rows.py draws it too.
[[nodiscard]] inline std::int64_t drawn_index(std::int64_t i, std::int64_t limit) {
  return i * 7919 % 4001 * limit / 4001;
}

/// How the arguments of a row are drawn.
struct inputs {
  /// Integers are below.
  std::int64_t index_limit = 1;
  /// An argument that is not negative (a second moment): the squares of what is drawn. -1: none.
  int squared = -1;
  /// Floats from this argument on are weights: a 32nd of what is drawn.
  int first_weight = INT_MAX;
  /// What every integer is, if it is not drawn.
  std::int64_t integer = -1;
};

/// Fills an argument.
struct filler {
  int argument = 0;
  inputs how;

  template <class Tensor> void operator()(sharded_array<Tensor>& array) const {
    using element = typename sharded_array<Tensor>::value_type;
    array.for_each([&](element& e, std::int64_t i) {
      if constexpr (std::is_integral_v<element>) {
        e = static_cast<element>(how.integer >= 0 ? how.integer : drawn_index(i, how.index_limit));
      } else {
        const auto x = static_cast<float>(drawn(i, argument)) * (argument >= how.first_weight ? 1.0F / 32 : 1.0F);
        e = static_cast<element>(argument == how.squared ? x * x : x);
      }
    });
  }
};

/// The mean magnitude of a result, printed beside its time: rows.py finds the same.
template <class Tensor> double mean_magnitude(world& here, const sharded_array<Tensor>& array) {
  double sum = 0;
  std::int64_t count = 0;
  for (const auto e : gather(here, array)) {
    const auto value = static_cast<double>(e);
    sum += value < 0 ? -value : value;
    ++count;
  }
  return sum / static_cast<double>(count);
}

class speed_rows {
 public:
  /// @param rows the rows to measure: a name, or a part of it up to a slash
  explicit speed_rows(std::string_view rows) : wanted_(rows) {}

  [[nodiscard]] bool wants(std::string_view row) const {
    return row == wanted_ || (row.starts_with(wanted_) && row[wanted_.size()] == '/');
  }
  /// Measures a program of arrays on one device: median milliseconds, and how far that is from the machine's own rate.
  template <class F, class... Specs> void measure(std::string_view row, least_work least, inputs how = {}) {
    measure_on<mesh<>, F, Specs...>(row, least, how);
  }
  /// The same, of a program with annotations. `Mesh` has one device.
  template <class Mesh, class F, class... Specs>
  void measure_on(std::string_view row, least_work least, inputs how = {}) {
    if (!wants(row)) return;
    using measured = program<Mesh, F, Specs...>;
    world here(Mesh::value);
    runner<measured> run(here);
    measure_with(here, row, least, how, run, std::make_integer_sequence<int, sizeof...(Specs)>{});
  }
  /// The milliseconds that a row would take if its data were at hand: those of the same program on a `parts`th of it,
  /// which the second cache holds, on one thread, times the parts that each thread has.
  template <class F, class... Specs>
  double instruction_milliseconds(std::string_view row, double parts, inputs how = {}) {
    if (!wants(row)) return 0;
    using measured = program<mesh<>, F, Specs...>;
    const int threads = threads_of_all();
    set_threads(1);
    world here(mesh<>::value);
    runner<measured> run(here);
    const double taken = [&]<int... I>(std::integer_sequence<int, I...> /*all*/) {
      auto arguments = std::make_tuple(run.template argument<I>()...);
      (filler{I, how}(std::get<I>(arguments)), ...);
      return median_seconds([&] { keep(run(std::get<I>(arguments)...)); }, {20, 200});
    }
    (std::make_integer_sequence<int, sizeof...(Specs)>{});
    set_threads(threads);
    return taken * 1e3 * parts / threads;
  }
  /// Bytes that a call needs, by which the process has grown at most: rows.py measures the same of PyTorch. What
  /// `Program` says is printed beside, and counts where it is more.
  template <class F, class... Specs> void measure_memory(std::string_view row) {
    if (!wants(row)) return;
    using measured = program<mesh<>, F, Specs...>;
    constexpr std::int64_t said = measured::peak_bytes_per_device();
#if defined(__GLIBC__)
    // What a row before this has freed goes back to the system, so that this one has to ask for it.
    mallopt(M_MMAP_THRESHOLD, 1 << 16);
    mallopt(M_TRIM_THRESHOLD, 1 << 16);
#endif
    world here(mesh<>::value);
    const std::int64_t before = status_bytes("VmRSS:");
    forget_most_memory();
    runner<measured> run(here);
    [&]<int... I>(std::integer_sequence<int, I...> /*all*/) {
      auto arguments = std::make_tuple(run.template argument<I>()...);
      (filler{I, {}}(std::get<I>(arguments)), ...);
      keep(run(std::get<I>(arguments)...));
    }
    (std::make_integer_sequence<int, sizeof...(Specs)>{});
    const std::int64_t grown = status_bytes("VmHWM:") - before;
    report(name_of(row), "ours", static_cast<double>(std::max(said, grown)) / (1 << 20), "MiB",
           "\"peak_bytes_per_device\": " + std::to_string(said) + ", \"grown_bytes\": " + std::to_string(grown));
  }
  /// The median of as many calls as take a second, 5 to 50.
  template <class Body> double milliseconds(const Body& body) const {
    const double once = median_seconds(body, {2, 3});
    int count = static_cast<int>(1.0 / (once + 1e-9));
    count = count < 5 ? 5 : count > 50 ? 50 : count;
    return median_seconds(body, {0, count}) * 1e3;
  }
  [[nodiscard]] static int threads_of_all() {
#if defined(_OPENMP)
    return omp_get_max_threads();
#else
    return 1;
#endif
  }
  /// The row elements/exp is called elements_2t/exp on two threads.
  [[nodiscard]] static std::string name_of(std::string_view row) {
    const char* const threads = std::getenv("OMP_NUM_THREADS");
    std::string name(row);
    name.insert(name.find('/'), std::string("_") + (threads == nullptr ? "all" : threads) + "t");
    return name;
  }
  /// The line of a row.
  static void line(std::string_view row, double milliseconds, least_work least, double magnitude) {
    const std::string name = name_of(row);
    std::string more = "\"mean_magnitude\": " + std::to_string(magnitude);
    const auto add = [&](const char* key, double value) {
      if (value > 0) more += std::string(", \"") + key + "\": " + std::to_string(value);
    };
    add("GB/s", least.bytes / milliseconds * 1e-6);
    add("GFLOP/s", least.flops / milliseconds * 1e-6);
    add("bytes", least.bytes);
    add("flops", least.flops);
    add("arrays", least.arrays > 0 ? least.arrays : least.bytes);
    add("only_reads", least.only_reads ? 1 : 0);
    add("instruction_ms", least.instructions);
    report(name, "ours", milliseconds, "ms", more);
  }

 private:
  template <class Program, int... I>
  void measure_with(world& here, std::string_view row, least_work least, inputs how, runner<Program>& run,
                    std::integer_sequence<int, I...> /*all*/) {
    auto arguments = std::make_tuple(run.template argument<I>()...);
    (filler{I, how}(std::get<I>(arguments)), ...);
    double magnitude = 0;
    const auto& result = run(std::get<I>(arguments)...);
    if constexpr (requires { result.template get<0>(); }) {
      magnitude = mean_magnitude(here, result.template get<0>());
    } else {
      magnitude = mean_magnitude(here, result);
    }
    line(row, milliseconds([&] { keep(run(std::get<I>(arguments)...)); }), least, magnitude);
  }

  /// A line of /proc/self/status in bytes: "VmRSS:", the memory in use, or "VmHWM:", the most since it was forgotten.
  [[nodiscard]] static std::int64_t status_bytes(std::string_view wanted) {
    std::ifstream file("/proc/self/status");
    std::string name;
    std::string rest;
    for (std::int64_t kibibytes = 0; file >> name; std::getline(file, rest)) {
      if (name == wanted && file >> kibibytes) return kibibytes * 1024;
    }
    return 0;
  }
  static void forget_most_memory() { std::ofstream("/proc/self/clear_refs") << 5; }

  std::string_view wanted_;
};

void measure_elements(speed_rows& rows);
void measure_attention(speed_rows& rows);
void measure_attention_memory(speed_rows& rows);
void measure_products(speed_rows& rows);
void measure_decode(speed_rows& rows);
void measure_regions(speed_rows& rows);

}  // namespace espalier::benchmarks
