// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Batches of a .npy file of 64 MiB, which lies on the disk and not in the system's cache, read by two ranks while they
// work: how much longer is a step than with batches that are there? The step is as long as reading a batch, and leaves
// the processor free, as one on an accelerator or behind a network does (data_behind_wait), or computes on all
// processors that there are (data_behind_step), which then also have to copy what is read.

#include "machine.hpp"

#include <espalier/espalier.hpp>
#include <espalier/tensor/run/io/dataset.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using namespace espalier;
using namespace espalier::benchmarks;

constexpr int rows = 1024;  // of 64 KiB
constexpr int width = 16384;
constexpr int batch = 64;

struct data : axis<"data", 2> {};
using two_ranks = mesh<data>;
using pictures = f32<batch, width>;

/// A product with the batch; how many runs of it make the step as long as it is to be.
struct work {
  constexpr auto operator()(auto x, auto w) const {
    const auto part = reshape<batch * 64, 256>(shard<data, none>(x));
    return sum<0>(repeat<1>([&](auto h) { return tanh(matmul(h, w)); }, part));
  }
};
using step = program<two_ranks, work, pictures, f32<256, 256>>;

void write_file(const std::filesystem::path& path) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1024, 16384), }";
  header.resize(117, ' ');
  std::ofstream file(path, std::ios::binary);
  file << std::string("\x93NUMPY\x01\x00\x76\x00", 10) << header << '\n';
  std::vector<float> row(width);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < width; ++c) row[static_cast<std::size_t>(c)] = static_cast<float>((r * 7 + c * 3) % 11 - 5) / 8;
    file.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(row.size() * sizeof(float)));
  }
}

/// Takes a file out of the system's cache. @pre no process has it mapped
void forget(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  (void)::fdatasync(file);
  (void)::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string row = argc > 1 ? argv[1] : "data_behind_step";
  return guarded_main(argc, argv, [&] {
    world here(argc, argv, two_ranks{});
    const std::filesystem::path path = "bench_data_64MiB.npy";
    together(here, [&] {
      if (here.is_root()) write_file(path);
    });
    set_threads(1);
    runner<step> run(here);
    const auto w = run.argument<1>();
    std::vector<sharded_array<pictures>> memory;  // all batches of an epoch
    for (int n = 0; n < rows / batch; ++n) {
      memory.push_back(run.argument<0>());
      memory.back().for_each([](float& e, std::int64_t i) { e = static_cast<float>(i % 11 - 5) / 8; });
    }
    w.for_each([](float& e, std::int64_t i) { e = static_cast<float>(i % 7 - 3) / 16; });
    const auto barrier = [&] { here.on_devices([](int, auto& communicator) { communicator.barrier(); }); };
    constexpr int steps = rows / batch;

    // Measures reading an epoch alone, and how many runs of the program last as long.
    const auto fresh = [&](bool ahead) {
      barrier();
      together(here, [&] {
        if (here.is_root()) forget(path);
      });
      return std::make_unique<io::dataset<pictures>>(here, io::dataset_options{.seed = 1, .read_ahead = ahead},
                                                     io::column(run.argument<0>(), io::npy(path)));
    };
    const auto slowest = [&](double mine) {
      double most = 0;
      here.on_devices([&](int local, auto& communicator) {
        if (local != 0) return;
        for (int rank = 0; rank < communicator.size(); ++rank) {
          double theirs = mine;
          if (here.uses_mpi()) communicator.broadcast(&theirs, sizeof theirs, rank);
          most = std::max(most, theirs);
        }
      });
      return most;
    };
    std::vector<double> reading;
    std::vector<double> computing;
    for (int repeat = 0; repeat < 5; ++repeat) {
      const auto batches = fresh(false);
      reading.push_back(slowest(seconds([&] {
        for (int n = 0; n < steps; ++n) (void)batches->next();
      })));
      computing.push_back(slowest(seconds([&] {
        for (const auto& x : memory) run(x, w);
      })));
    }
    const int runs = std::max(1, static_cast<int>(median(reading) / median(computing) + 0.5));

    const std::chrono::duration<double> waiting(median(reading) / steps);
    const auto one_step = [&](const auto& x) {
      if (row == "data_behind_wait") {
        std::this_thread::sleep_for(waiting);
      } else {
        for (int i = 0; i < runs; ++i) run(x, w);
      }
    };

    std::vector<double> from_file;
    std::vector<double> in_memory;
    double waited = 0;
    for (int repeat = 0; repeat < 9; ++repeat) {
      const auto batches = fresh(true);
      (void)batches->next();  // nothing hides the reading of an epoch's first batch
      barrier();
      from_file.push_back(slowest(seconds([&] {
        for (int n = 1; n < steps; ++n) {
          const double asked = now();
          const auto& [rows_here] = batches->next();
          waited += now() - asked;
          one_step(rows_here);
        }
      })));
      barrier();
      in_memory.push_back(slowest(seconds([&] {
        for (int n = 1; n < steps; ++n) one_step(memory[static_cast<std::size_t>(n)]);
      })));
    }
    together(here, [&] {
      if (here.is_root()) std::filesystem::remove(path);
    });
    if (!here.is_root()) return 0;
    char read_alone[128];
    std::snprintf(read_alone, sizeof read_alone, "\"reading_alone_ms\": %.3f, \"waited_ms\": %.3f, \"runs_a_step\": %d",
                  median(reading) / steps * 1e3, waited / (9 * (steps - 1)) * 1e3, runs);
    benchmarks::report(row, "ours", median(from_file) / (steps - 1) * 1e3, "ms", read_alone);
    benchmarks::report(row, "in memory", median(in_memory) / (steps - 1) * 1e3, "ms");
    return 0;
  });
}
