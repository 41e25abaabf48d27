// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// ScaLAPACK's p[sd]gemm on two ranks, each of A, B and C stored once, block-cyclic: the peer of `matmul_2ranks_*`.
#include "matmul.hpp"

extern "C" {
void Cblacs_pinfo(int*, int*);
void Cblacs_get(int, int, int*);
void Cblacs_gridinit(int*, const char*, int, int);
void Cblacs_gridinfo(int, int*, int*, int*, int*);
void Cblacs_gridexit(int);
int numroc_(const int*, const int*, const int*, const int*, const int*);
void descinit_(int*, const int*, const int*, const int*, const int*, const int*, const int*, const int*, const int*,
               int*);
void psgemm_(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*,
             const int*, const int*, const float*, const int*, const int*, const int*, const float*, float*, const int*,
             const int*, const int*);
void pdgemm_(const char*, const char*, const int*, const int*, const int*, const double*, const double*, const int*,
             const int*, const int*, const double*, const int*, const int*, const int*, const double*, double*,
             const int*, const int*, const int*);
}

namespace {

struct configuration {
  int rows, columns, block;
  std::string name() const {
    return std::to_string(rows) + "x" + std::to_string(columns) + " nb " + std::to_string(block);
  }
};

template <class T> double measure(int n, const configuration& c, int repeats) {
  int context = 0, rows = 0, columns = 0, row = 0, column = 0;
  Cblacs_get(-1, 0, &context);
  Cblacs_gridinit(&context, "Row", c.rows, c.columns);
  Cblacs_gridinfo(context, &rows, &columns, &row, &column);
  const int zero = 0, one = 1, nb = c.block;
  const int my_rows = numroc_(&n, &nb, &row, &zero, &rows), my_columns = numroc_(&n, &nb, &column, &zero, &columns);
  const int leading = std::max(1, my_rows);
  int descriptor[9], info = 0;
  descinit_(descriptor, &n, &n, &nb, &nb, &zero, &zero, &context, &leading, &info);

  const auto global_row = [&](int i) { return (i / nb * rows + row) * nb + i % nb; };
  const auto global_column = [&](int j) { return (j / nb * columns + column) * nb + j % nb; };
  const std::size_t size = std::size_t(leading) * std::max(1, my_columns);
  std::vector<T> a(size), b(size), product(size);
  for (int j = 0; j < my_columns; ++j)
    for (int i = 0; i < my_rows; ++i) {
      a[std::size_t(j) * leading + i] = peers::left<T>(global_row(i), global_column(j));
      b[std::size_t(j) * leading + i] = peers::right<T>(global_row(i), global_column(j));
    }
  const T unit = 1, nothing = 0;
  const auto multiply = [&] {
    if constexpr (std::is_same_v<T, float>)
      psgemm_("N", "N", &n, &n, &n, &unit, a.data(), &one, &one, descriptor, b.data(), &one, &one, descriptor, &nothing,
              product.data(), &one, &one, descriptor);
    else
      pdgemm_("N", "N", &n, &n, &n, &unit, a.data(), &one, &one, descriptor, b.data(), &one, &one, descriptor, &nothing,
              product.data(), &one, &one, descriptor);
  };
  const double seconds = peers::median_seconds(repeats, multiply);
  bool good = true;
  for (int s = 0; s < 8; ++s) {
    const int i = s * 997 % my_rows, j = s * 613 % my_columns;
    good = good && peers::right_product<T>(product[std::size_t(j) * leading + i], global_row(i), global_column(j), n);
  }
  peers::require_on_all(good, "scalapack");
  Cblacs_gridexit(context);
  return seconds;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const auto request = peers::request::parse(argc, argv);
  int rank = 0, ranks = 1;
  Cblacs_pinfo(&rank, &ranks);
  std::vector<configuration> configurations;
  for (int block : {128, 256, 512}) {
    configurations.push_back({1, ranks, block});
    if (ranks > 1) configurations.push_back({ranks, 1, block});
  }
  peers::report_best(request, "scalapack", configurations, [&](const configuration& c, int repeats) {
    return request.type == "f64" ? measure<double>(request.n, c, repeats) : measure<float>(request.n, c, repeats);
  });
  MPI_Finalize();
}
