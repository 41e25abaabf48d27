// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Global Arrays' GA_Sgemm and GA_Dgemm on two ranks, each of A, B and C stored once: the peer of `matmul_2ranks_*`.
#include "matmul.hpp"

#include <ga.h>
#include <macdecls.h>

namespace {

/// How the three arrays are cut: by rows, by columns, or as Global Arrays itself chooses.
struct configuration {
  char left, right, product;  // 'r', 'c' or 'd'
  std::string name() const { return std::string("A ") + left + " B " + right + " C " + product; }
};

template <class T> int create(int n, char cut, const char* name) {
  int dims[2] = {n, n};
  int chunk[2] = {cut == 'c' ? n : -1, cut == 'r' ? n : -1};
  char label[8];
  std::snprintf(label, sizeof label, "%s", name);
  return NGA_Create(std::is_same_v<T, float> ? C_FLOAT : C_DBL, 2, dims, label, cut == 'd' ? nullptr : chunk);
}

/// Calls `visit(element, i, j)` on every element this rank stores.
template <class T, class Visit> void each_local(int array, Visit visit) {
  int low[2], high[2], stride[1];
  NGA_Distribution(array, GA_Nodeid(), low, high);
  if (low[0] < 0 || high[0] < low[0]) return;
  T* data = nullptr;
  NGA_Access(array, low, high, &data, stride);
  for (int i = low[0]; i <= high[0]; ++i)
    for (int j = low[1]; j <= high[1]; ++j) visit(data[std::size_t(i - low[0]) * stride[0] + (j - low[1])], i, j);
  NGA_Release_update(array, low, high);
}

template <class T> double measure(int n, const configuration& c, int repeats) {
  const int a = create<T>(n, c.left, "A"), b = create<T>(n, c.right, "B"), product = create<T>(n, c.product, "C");
  each_local<T>(a, [](T& x, long i, long j) { x = peers::left<T>(i, j); });
  each_local<T>(b, [](T& x, long i, long j) { x = peers::right<T>(i, j); });
  GA_Zero(product);
  GA_Sync();
  const auto multiply = [&] {
    if constexpr (std::is_same_v<T, float>)
      GA_Sgemm('N', 'N', n, n, n, 1.0f, a, b, 0.0f, product);
    else
      GA_Dgemm('N', 'N', n, n, n, 1.0, a, b, 0.0, product);
  };
  const double seconds = peers::median_seconds(repeats, multiply);
  bool good = true;
  each_local<T>(product, [&](T& x, long i, long j) {
    if (i % 509 == 0 && j % 1021 == 0) good = good && peers::right_product<T>(x, i, j, n);
  });
  peers::require_on_all(good, "global arrays");
  GA_Destroy(a);
  GA_Destroy(b);
  GA_Destroy(product);
  return seconds;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  GA_Initialize();
  MA_init(C_DBL, 8 << 20, 8 << 20);
  const auto request = peers::request::parse(argc, argv);
  const std::vector<configuration> configurations{
      {'d', 'd', 'd'}, {'r', 'r', 'r'}, {'c', 'c', 'c'}, {'r', 'c', 'r'}, {'r', 'c', 'c'}};
  peers::report_best(request, "global arrays", configurations, [&](const configuration& c, int repeats) {
    return request.type == "f64" ? measure<double>(request.n, c, repeats) : measure<float>(request.n, c, repeats);
  });
  GA_Terminate();
  MPI_Finalize();
}
