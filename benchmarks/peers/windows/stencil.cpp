// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// A nine-point stencil as it is written by hand: each rank has its part of the plane with a border of one element,
// which MPI_Neighbor_alltoallw fills from up to eight neighbours, without a copy of its own; OpenMP loops over rows.
//
//     mpirun -n 4 stencil ROW SIDE STEPS

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace {

/// The start of the plane, as in benchmarks/stencil.cpp.
float start_of(long row, long column) { return static_cast<float>((row * 7 + column * 3) % 11 - 5) / 8; }

struct plane {
  long rows, columns;  // without the border
  std::vector<float> data;

  plane(long r, long c) : rows(r), columns(c), data(static_cast<std::size_t>((r + 2) * (c + 2)), 0.0F) {}
  float* row(long r) { return data.data() + (r + 1) * (columns + 2) + 1; }
};

void apply(plane& from, plane& to, const float* w) {
#pragma omp parallel for schedule(static)
  for (long r = 0; r < from.rows; ++r) {
    const float* __restrict above = from.row(r - 1);
    const float* __restrict here = from.row(r);
    const float* __restrict below = from.row(r + 1);
    float* __restrict out = to.row(r);
#pragma omp simd
    for (long c = 0; c < from.columns; ++c) {
      out[c] = w[0] * above[c - 1] + w[1] * above[c] + w[2] * above[c + 1] + w[3] * here[c - 1] + w[4] * here[c] +
               w[5] * here[c + 1] + w[6] * below[c - 1] + w[7] * below[c] + w[8] * below[c + 1];
    }
  }
}

/// The exchange of borders: neighbours, and what goes to and comes from each of them.
class borders {
 public:
  borders(MPI_Comm grid, const plane& of) {
    int sizes[2], periods[2], mine[2];
    MPI_Cart_get(grid, 2, sizes, periods, mine);
    std::vector<int> ranks;
    for (int down = -1; down <= 1; ++down) {
      for (int right = -1; right <= 1; ++right) {
        const int at[2]{mine[0] + down, mine[1] + right};
        const bool is_inside = at[0] >= 0 && at[0] < sizes[0] && at[1] >= 0 && at[1] < sizes[1];
        if ((down == 0 && right == 0) || !is_inside) continue;
        int rank = 0;
        MPI_Cart_rank(grid, at, &rank);
        ranks.push_back(rank);
        const auto edge = [&](int side, long extent, bool outside) {
          if (side == 0) return 1L;
          return side < 0 ? (outside ? 0L : 1L) : (outside ? extent + 1 : extent);
        };
        const long height = down == 0 ? of.rows : 1;
        const long width = right == 0 ? of.columns : 1;
        send_.push_back(box(of, edge(down, of.rows, false), edge(right, of.columns, false), height, width));
        receive_.push_back(box(of, edge(down, of.rows, true), edge(right, of.columns, true), height, width));
      }
    }
    const int n = static_cast<int>(ranks.size());
    counts_.assign(ranks.size(), 1);
    places_.assign(ranks.size(), 0);
    MPI_Dist_graph_create_adjacent(grid, n, ranks.data(), MPI_UNWEIGHTED, n, ranks.data(), MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &graph_);
  }
  void fill(plane& p) {
    MPI_Neighbor_alltoallw(p.data.data(), counts_.data(), places_.data(), send_.data(), p.data.data(), counts_.data(),
                           places_.data(), receive_.data(), graph_);
  }

 private:
  static MPI_Datatype box(const plane& of, long row, long column, long height, long width) {
    const int all[2]{static_cast<int>(of.rows + 2), static_cast<int>(of.columns + 2)};
    const int part[2]{static_cast<int>(height), static_cast<int>(width)};
    const int first[2]{static_cast<int>(row), static_cast<int>(column)};
    MPI_Datatype type;
    MPI_Type_create_subarray(2, all, part, first, MPI_ORDER_C, MPI_FLOAT, &type);
    MPI_Type_commit(&type);
    return type;
  }

  MPI_Comm graph_ = MPI_COMM_NULL;
  std::vector<MPI_Datatype> send_, receive_;
  std::vector<int> counts_;
  std::vector<MPI_Aint> places_;
};

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const char* const row = argc > 1 ? argv[1] : "stencil";
  const long side = argc > 2 ? std::atol(argv[2]) : 4096;
  const int steps = argc > 3 ? std::atoi(argv[3]) : 20;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int sizes[2]{0, 0};
  const int periods[2]{0, 0};
  MPI_Dims_create(ranks, 2, sizes);
  MPI_Comm grid;
  MPI_Cart_create(MPI_COMM_WORLD, 2, sizes, periods, 0, &grid);
  int rank = 0, at[2];
  MPI_Comm_rank(grid, &rank);
  MPI_Cart_coords(grid, rank, 2, at);
  plane one(side / sizes[0], side / sizes[1]), other = one;
  const float weights[9]{0.0F, 0.1F, 0.05F, 0.1F, 0.5F, 0.1F, 0.05F, 0.1F, 0.0F};
  borders exchange(grid, one);

  std::vector<double> times;
  double sum = 0;
  for (int repeat = 0; repeat < 6; ++repeat) {
    for (long r = 0; r < one.rows; ++r) {
      for (long c = 0; c < one.columns; ++c) {
        one.row(r)[c] = start_of(at[0] * one.rows + r, at[1] * one.columns + c);
      }
    }
    MPI_Barrier(grid);
    const double begin = MPI_Wtime();
    for (int step = 0; step < steps; ++step) {
      exchange.fill(one);
      apply(one, other, weights);
      std::swap(one.data, other.data);
    }
    double mine = MPI_Wtime() - begin, slowest = 0;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, grid);
    if (repeat > 0) times.push_back(slowest);
    double part = 0;
    for (long r = 0; r < one.rows; ++r) {
      for (long c = 0; c < one.columns; ++c) part += static_cast<double>(one.row(r)[c]) * one.row(r)[c];
    }
    MPI_Allreduce(&part, &sum, 1, MPI_DOUBLE, MPI_SUM, grid);
  }
  std::sort(times.begin(), times.end());
  if (rank == 0) {
    std::printf(
        "{\"row\": \"%s\", \"what\": \"peer\", \"value\": %.9g, \"unit\": \"steps/s\", \"config\": \"MPI by hand, "
        "%d x %d ranks\", \"checksum\": %.9g}\n",
        row, steps / times[times.size() / 2], sizes[0], sizes[1], sum);
  }
  MPI_Finalize();
}
