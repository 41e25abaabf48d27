// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Conjugate gradients as they are written by hand: each rank has some rows of the plane, and the direction a border of
// one row on either side, which MPI exchanges; OpenMP loops over rows, and each pass over memory does all that it can.
//
//     mpirun -n 2 conjugate_gradients ROW SIDE

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

/// The heat, as in benchmarks/conjugate_gradients.cpp.
double heat_of(long row, long column) {
  return static_cast<double>((row * 7 + column * 3) % 11 - 5) / 8 + (row == column ? 1 : 0);
}

/// Rows of a plane, with a border of zeros around them.
struct plane {
  long rows, columns;  // without the border
  std::vector<double> data;

  plane(long r, long c) : rows(r), columns(c), data(static_cast<std::size_t>((r + 2) * (c + 2)), 0.0) {}
  double* row(long r) { return data.data() + (r + 1) * (columns + 2) + 1; }
};

/// The rows that neighbours have next to those of a rank.
void exchange(plane& p, int above, int below) {
  const int count = static_cast<int>(p.columns);
  MPI_Sendrecv(p.row(0), count, MPI_DOUBLE, above, 0, p.row(p.rows), count, MPI_DOUBLE, below, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  MPI_Sendrecv(p.row(p.rows - 1), count, MPI_DOUBLE, below, 1, p.row(-1), count, MPI_DOUBLE, above, 1, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
}

double sum_of_ranks(double mine) {
  double all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

/// product = A direction, and their inner product on this rank.
double apply(plane& direction, plane& product) {
  double sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
  for (long r = 0; r < direction.rows; ++r) {
    const double* __restrict above = direction.row(r - 1);
    const double* __restrict here = direction.row(r);
    const double* __restrict below = direction.row(r + 1);
    double* __restrict out = product.row(r);
    double of_row = 0;
#pragma omp simd reduction(+ : of_row)
    for (long c = 0; c < direction.columns; ++c) {
      out[c] = 4.02 * here[c] - above[c] - below[c] - here[c - 1] - here[c + 1];
      of_row += here[c] * out[c];
    }
    sum += of_row;
  }
  return sum;
}

/// x += length * direction, residual -= length * product, and the square of the residual on this rank.
double advance(double length, plane& direction, plane& product, plane& x, plane& residual) {
  double sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
  for (long r = 0; r < x.rows; ++r) {
    const double* __restrict d = direction.row(r);
    const double* __restrict p = product.row(r);
    double* __restrict to = x.row(r);
    double* __restrict left = residual.row(r);
    double of_row = 0;
#pragma omp simd reduction(+ : of_row)
    for (long c = 0; c < x.columns; ++c) {
      to[c] += length * d[c];
      left[c] -= length * p[c];
      of_row += left[c] * left[c];
    }
    sum += of_row;
  }
  return sum;
}

/// direction = residual + share * direction.
void turn(double share, plane& residual, plane& direction) {
#pragma omp parallel for schedule(static)
  for (long r = 0; r < direction.rows; ++r) {
    const double* __restrict left = residual.row(r);
    double* __restrict d = direction.row(r);
#pragma omp simd
    for (long c = 0; c < direction.columns; ++c) d[c] = left[c] + share * d[c];
  }
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const char* const row = argc > 1 ? argv[1] : "conjugate_gradients";
  const long side = argc > 2 ? std::atol(argv[2]) : 1024;
  constexpr double tolerance = 1e-16;
  int ranks = 0, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int above = rank == 0 ? MPI_PROC_NULL : rank - 1;
  const int below = rank == ranks - 1 ? MPI_PROC_NULL : rank + 1;
  const long first = side * rank / ranks, last = side * (rank + 1) / ranks;
  plane heat(last - first, side);
  for (long r = 0; r < heat.rows; ++r) {
    for (long c = 0; c < side; ++c) heat.row(r)[c] = heat_of(first + r, c);
  }

  std::vector<double> times;
  double sum = 0;
  int iterations = 0;
  plane x(heat.rows, side), residual = x, direction = x, product = x;
  for (int repeat = 0; repeat < 6; ++repeat) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    double part = 0;
#pragma omp parallel for schedule(static) reduction(+ : part)
    for (long r = 0; r < heat.rows; ++r) {
      for (long c = 0; c < side; ++c) {
        const double h = heat.row(r)[c];
        x.row(r)[c] = 0;
        residual.row(r)[c] = direction.row(r)[c] = h;
        part += h * h;
      }
    }
    const double whole = sum_of_ranks(part);
    double square = whole;
    for (iterations = 0; square > tolerance * whole; ++iterations) {
      exchange(direction, above, below);
      const double length = square / sum_of_ranks(apply(direction, product));
      const double next = sum_of_ranks(advance(length, direction, product, x, residual));
      turn(next / square, residual, direction);
      square = next;
    }
    double mine = MPI_Wtime() - begin, slowest = 0;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (repeat > 0) times.push_back(slowest);
    part = 0;
    for (long r = 0; r < x.rows; ++r) {
      for (long c = 0; c < side; ++c) part += x.row(r)[c] * x.row(r)[c];
    }
    sum = sum_of_ranks(part);
  }
  std::sort(times.begin(), times.end());
  if (rank == 0) {
    std::printf(
        "{\"row\": \"%s\", \"what\": \"peer\", \"value\": %.9g, \"unit\": \"iterations/s\", \"config\": \"MPI by hand, "
        "%d "
        "ranks\", \"iterations\": %d, \"checksum\": %.9g}\n",
        row, iterations / times[times.size() / 2], ranks, iterations, sum);
  }
  MPI_Finalize();
}
