// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The machine's own ceiling, printed above the table of benchmarks/run.
#include "../../machine.hpp"

#include <cstdlib>
#include <string>

int main(int argc, char** argv) {
  namespace bench = espalier::benchmarks;
  const int most = argc > 1 ? std::atoi(argv[1]) : 2;
  std::fprintf(stderr, "OpenBLAS kernels: %.*s\n", static_cast<int>(bench::blas_kernels().size()),
               bench::blas_kernels().data());
  for (int threads = 1; threads <= most; ++threads) {
    const std::string suffix = " " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
    bench::report("machine", "sgemm 2048" + suffix, bench::matmul_rate<float>(2048, threads), "GFLOP/s");
    bench::report("machine", "dgemm 2048" + suffix, bench::matmul_rate<double>(2048, threads), "GFLOP/s");
    const auto stream = bench::stream_bandwidth(threads);
    bench::report("machine", "stream copy" + suffix, stream.copy, "GB/s");
    bench::report("machine", "stream triad" + suffix, stream.triad, "GB/s");
  }
}
