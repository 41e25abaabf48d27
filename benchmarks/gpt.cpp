// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The training step of a GPT: against the machine's matrix-product rate, and in milliseconds against PyTorch's.

#include "machine.hpp"
#include "steps/gpt_step.hpp"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace espalier;
using namespace espalier::benchmarks;

/// Seconds of processor time, of all threads, that one call of `body` takes.
template <class Body> double processor_seconds(Body&& body) {
  const std::clock_t begin = std::clock();
  body();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

/// The rate of the whole step beside that of a product of two 2048 x 2048 matrices, measured in turn.
void step_vs_blas(std::string_view row, int argc, char** argv) {
  world here(argc, argv, large_gpt_mesh());
  const auto step = make_large_gpt(here);
  const step_facts facts = step->facts();
  constexpr std::size_t n = 2048;
  std::vector<float> a(n * n), b(n * n), c(n * n);
  for (std::size_t i = 0; i < n * n; ++i) {
    a[i] = static_cast<float>(i % 13) / 8;
    b[i] = static_cast<float>(i % 7) / 8;
  }
  int number = 0;
  std::vector<double> step_work, product_work;
  const auto [step_seconds, product_seconds] = interleaved_seconds(
      {1, 7}, [&] { step_work.push_back(processor_seconds([&] { step->run(number++); })); },
      [&] { product_work.push_back(processor_seconds([&] { multiply(n, a.data(), b.data(), c.data()); })); });
  keep(c);
  // Where other programs disturb the clock, the processor's time says more; with several threads waiting counts too.
  std::printf("by processor time: %.3f of the product's rate\n",
              facts.flops / median(step_work) / (2.0 * n * n * n / median(product_work)));
  std::printf(
      "%.1f million parameters, %lld tokens, %.1f GFLOP (%.1f without the embedding tables), %.1f ms a step, "
      "%d traced instructions, %d as planned, loss %.6f\n",
      static_cast<double>(facts.parameters) * 1e-6, static_cast<long long>(facts.tokens), facts.flops * 1e-9,
      facts.multiplied_flops * 1e-9, step_seconds * 1e3, facts.traced_instructions, facts.instructions, step->loss());
  report(row, "ours", facts.flops / step_seconds * 1e-9, "GFLOP/s");
  report(row, "sgemm 2048^3 " + std::string(blas_kernels()), 2.0 * n * n * n / product_seconds * 1e-9, "GFLOP/s");
}

/// Median milliseconds of a step, the first losses, which the peer finds too, and on one device the share of products.
void step_vs_torch(std::string_view row, int argc, char** argv, const mesh_shape& mesh,
                   std::unique_ptr<gpt_step> (*make)(world&), repeats how) {
  world here(argc, argv, mesh);
  const auto step = make(here);
  std::vector<double> samples;
  std::string losses;
  for (int s = 0; s < how.warm_up + how.measured; ++s) {
    const double taken = seconds([&] { step->run(s); });
    if (s >= how.warm_up) samples.push_back(taken);
    if (s >= 8) continue;
    losses += (s > 0 ? ", " : "") + std::to_string(step->loss());
  }
  std::string more = "\"losses\": [" + losses + "]";
  if (mesh.devices() == 1) {
    const step_seconds spent = step->profile(how.measured / 2);
    more += ", \"flops\": " + std::to_string(step->facts().multiplied_flops) +
            ", \"share_in_products\": " + std::to_string(spent.products / spent.all) +
            ", \"share_in_attention\": " + std::to_string(spent.rows / spent.all);
  }
  if (here.is_root()) report(row, "ours", median(samples) * 1e3, "ms", more);
}

/// The step in mixed precision beside the same in f32, in turn.
void bf16_step(std::string_view row, int argc, char** argv) {
  world here(argc, argv, small_gpt_mesh());
  const auto step = make_small_gpt_bf16(here);
  const auto wide = make_small_gpt(here);
  int number = 0;
  int number_of_wide = 0;
  const auto [bf16_seconds, f32_seconds] = interleaved_seconds(
      {5, 20}, [&] { step->run(number++); }, [&] { wide->run(number_of_wide++); });
  report(
      row, "ours", bf16_seconds * 1e3, "ms",
      "\"loss\": " + std::to_string(step->loss()) + ", \"arena_bytes\": " + std::to_string(step->facts().arena_bytes));
  report(
      row, "ours in f32", f32_seconds * 1e3, "ms",
      "\"loss\": " + std::to_string(wide->loss()) + ", \"arena_bytes\": " + std::to_string(wide->facts().arena_bytes));
}

/// Runs steps and nothing else, for `perf record`.
void only_steps(int argc, char** argv, const mesh_shape& mesh, std::unique_ptr<gpt_step> (*make)(world&)) {
  world here(argc, argv, mesh);
  const auto step = make(here);
  const int count = argc > 2 ? std::atoi(argv[2]) : 10;
  step->run(0);
  for (int s = 1; s <= count; ++s) {
    const double taken = seconds([&] { step->run(s); });
    if (here.is_root()) std::printf("step %d: %.1f ms\n", s, taken * 1e3);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string row = argc > 1 ? argv[1] : "";
  if (row.starts_with("gpt_step_vs_blas")) {
    step_vs_blas(row, argc, argv);
  } else if (row.starts_with("small_gpt_vs_torch")) {
    step_vs_torch(row, argc, argv, small_gpt_mesh(), &make_small_gpt, {5, 20});
  } else if (row.starts_with("large_gpt_vs_torch")) {
    step_vs_torch(row, argc, argv, large_gpt_mesh(), &make_large_gpt, {3, 7});
  } else if (row.starts_with("small_gpt_bf16")) {
    bf16_step(row, argc, argv);
  } else if (row == "small_gpt_ddp_vs_torch_ddp") {
    step_vs_torch(row, argc, argv, small_gpt_data_parallel_mesh(), &make_small_gpt_data_parallel, {5, 20});
  } else if (row == "steps_of_large_gpt") {
    only_steps(argc, argv, large_gpt_mesh(), &make_large_gpt);
  } else if (row == "steps_of_small_gpt") {
    only_steps(argc, argv, small_gpt_mesh(), &make_small_gpt);
  } else {
    std::fprintf(stderr,
                 "usage: %s gpt_step_vs_blas_1t | small_gpt_vs_torch_1t | large_gpt_vs_torch_1t | small_gpt_bf16_1t | "
                 "small_gpt_ddp_vs_torch_ddp\n",
                 argv[0]);
    return EXIT_FAILURE;
  }
}
