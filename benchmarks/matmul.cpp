// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// C = A B over two ranks, each of the three stored once: half of A, half of B and half of C on each rank.

#include "machine.hpp"

#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/run/execute/runner.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace espalier;
using namespace espalier::benchmarks;

struct ranks : axis<"ranks", 2> {};
using two_ranks = mesh<ranks>;

/// Rows of A and C, rows of B: each rank fetches the other half of B, n^2 / 2 elements, and multiplies once.
struct gather_b {
  static constexpr const char* name = "A rows, B rows, C rows: all_gather of B";
  template <class Matrix> using a = sharded<Matrix, ranks, none>;
  template <class Matrix> using b = sharded<Matrix, ranks, none>;
  constexpr auto operator()(const auto& left, const auto& right) const {
    return shard<ranks, none>(einsum<"mk,kn->mn">(left, reshard<none, none>(right)));
  }
};

/// Columns of B and C, columns of A: each rank fetches the other half of A.
struct gather_a {
  static constexpr const char* name = "A columns, B columns, C columns: all_gather of A";
  template <class Matrix> using a = sharded<Matrix, none, ranks>;
  template <class Matrix> using b = sharded<Matrix, none, ranks>;
  constexpr auto operator()(const auto& left, const auto& right) const {
    return shard<none, ranks>(einsum<"mk,kn->mn">(reshard<none, none>(left), right));
  }
};

/// Columns of A, rows of B: each rank multiplies its half of the sum, and the terms of C are added: reduce_scatter.
struct scatter_c {
  static constexpr const char* name = "A columns, B rows, C rows: reduce_scatter of C";
  template <class Matrix> using a = sharded<Matrix, none, ranks>;
  template <class Matrix> using b = sharded<Matrix, ranks, none>;
  constexpr auto operator()(const auto& left, const auto& right) const {
    return shard<ranks, none>(einsum<"mk,kn->mn">(left, right));
  }
};

/// Operands as the peers have them: small multiples of 1/8, so that products are exact.
template <class T> T left(std::int64_t i, std::int64_t j) { return static_cast<T>((i * 7 + j * 3) % 11 - 5) / 8; }
template <class T> T right(std::int64_t i, std::int64_t j) { return static_cast<T>((i * 5 + j * 13) % 9 - 4) / 8; }

template <class T> bool right_product(T value, std::int64_t i, std::int64_t j, std::int64_t n) {
  double sum = 0;
  for (std::int64_t k = 0; k < n; ++k) sum += static_cast<double>(left<T>(i, k)) * static_cast<double>(right<T>(k, j));
  return std::abs(sum - static_cast<double>(value)) <= 1e-5 * static_cast<double>(n);
}

/// Median seconds, each run as long as the slower rank's.
template <class Matrix, class Way> double measure(world& here, int repeats) {
  using product = program<two_ranks, Way, typename Way::template a<Matrix>, typename Way::template b<Matrix>>;
  using element = storage_t<Matrix::type>;
  constexpr std::int64_t n = Matrix::shape[0];
  constexpr std::int64_t half = n * n / 2 * size_of(Matrix::type);
  static_assert(product::argument_bytes() == 2 * half && product::result_bytes() == half,
                "each of A, B and C is stored once across the ranks");
  static_assert(product::template bytes<all_gather>() + product::template bytes<reduce_scatter>() == half);
  static_assert(product::template bytes<all_reduce>() + product::template bytes<all_to_all>() == 0);

  runner<product> run(here);
  auto a = run.template argument<0>();
  auto b = run.template argument<1>();
  a.for_each([](element& x, std::int64_t i) { x = left<element>(i / n, i % n); });
  b.for_each([](element& x, std::int64_t i) { x = right<element>(i / n, i % n); });
  const auto* c = &run(a, b);
  bool good = true;
  std::int64_t seen = 0;
  c->for_each([&](element& x, std::int64_t i) {
    if (seen++ % 99991 == 0) good = good && right_product(x, i / n, i % n, n);
  });
  if (!good) throw std::runtime_error(std::string("wrong product: ") + Way::name);

  std::vector<double> samples;
  for (int r = 0; r < repeats; ++r) {
    double slowest = 0;
    here.on_devices([](int, auto& communicator) { communicator.barrier(); });
    const double mine = seconds([&] { run(a, b); });
    here.on_devices([&](int local, auto& communicator) {
      // Ranks broadcast in turn: the longest counts.
      if (local != 0) return;
      for (int rank = 0; rank < communicator.size(); ++rank) {
        double taken = mine;
        if (here.uses_mpi()) communicator.broadcast(&taken, sizeof taken, rank);
        slowest = std::max(slowest, taken);
      }
    });
    samples.push_back(slowest);
  }
  return median(samples);
}

template <class Matrix> void compare(world& here, const std::string& row) {
  constexpr auto n = static_cast<double>(Matrix::shape[0]);
  const double seconds_of[]{measure<Matrix, gather_b>(here, 2), measure<Matrix, gather_a>(here, 2),
                            measure<Matrix, scatter_c>(here, 2)};
  const char* const names[]{gather_b::name, gather_a::name, scatter_c::name};
  int best = 0;
  for (int i = 0; i < 3; ++i) {
    if (seconds_of[i] < seconds_of[best]) best = i;
    if (here.is_root()) std::printf("%s: %.1f GFLOP/s\n", names[i], 2 * n * n * n / seconds_of[i] * 1e-9);
  }
  // The peers do the same: the scan took the fastest, a fresh measurement is free of that luck.
  constexpr int repeats = 5;
  const double taken = best == 0   ? measure<Matrix, gather_b>(here, repeats)
                       : best == 1 ? measure<Matrix, gather_a>(here, repeats)
                                   : measure<Matrix, scatter_c>(here, repeats);
  if (!here.is_root()) return;
  report(row, "ours", 2 * n * n * n / taken * 1e-9, "GFLOP/s", std::string("\"config\": \"") + names[best] + "\"");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string row = argc > 1 ? argv[1] : "";
  world here(argc, argv, two_ranks{});
  if (row == "matmul_2ranks_f32_2048") {
    compare<f32<2048, 2048>>(here, row);
  } else if (row == "matmul_2ranks_f32_4096") {
    compare<f32<4096, 4096>>(here, row);
  } else if (row == "matmul_2ranks_f64_2048") {
    compare<f64<2048, 2048>>(here, row);
  } else if (row == "matmul_2ranks_f64_4096") {
    compare<f64<4096, 4096>>(here, row);
  } else {
    std::fprintf(stderr, "usage: mpirun -n 2 %s matmul_2ranks_{f32,f64}_{2048,4096}\n", argv[0]);
    return EXIT_FAILURE;
  }
}
