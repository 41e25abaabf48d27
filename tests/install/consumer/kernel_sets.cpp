// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
//
// One program on the kernel set that ESPALIER_KERNELS asks for, against plain loops: products, attention, a norm of
// rows, a transposition, and an update that is one loop. Prints the set.
#include <espalier/espalier.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string_view>
#include <vector>

namespace ep = espalier;
using mesh = ep::mesh<>;
constexpr int rows = 70, width = 48;

struct step {
  constexpr auto operator()(auto x, auto w, auto m) const {
    const auto q = ep::matmul(x, w);
    const auto mixed = ep::matmul(ep::softmax<-1>(ep::einsum<"id,jd->ij">(q, x)), x);
    const auto gate = ep::gelu(mixed) + ep::tanh(q);
    const auto centred = gate - ep::mean<1>(gate, ep::keep_dims);
    const auto moment = m * 0.9F + centred * 0.1F;
    const auto next = x - moment / (ep::sqrt(moment * moment + 0.25F) + ep::exp(-moment)) * 0.01F;
    return ep::results(next, ep::transpose<1, 0>(moment), ep::sum(moment * moment));
  }
};
using program = ep::program<mesh, step, ep::f32<rows, width>, ep::f32<width, width>, ep::f32<rows, width>>;

namespace {

double x_at(std::int64_t i) { return 0.5 * std::sin(0.37 * static_cast<double>(i)); }
double w_at(std::int64_t i) { return 0.2 * std::cos(0.11 * static_cast<double>(i)); }
double m_at(std::int64_t i) { return 0.1 * std::sin(0.05 * static_cast<double>(i)); }

struct expected {
  std::vector<double> next = std::vector<double>(rows * width);
  std::vector<double> moment = std::vector<double>(rows * width);
  double sum = 0;
};
expected by_loops() {
  expected made;
  std::vector<double> q(rows * width);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < width; ++j) {
      for (int k = 0; k < width; ++k) {
        q[static_cast<std::size_t>(i * width + j)] += x_at(i * width + k) * w_at(k * width + j);
      }
    }
  }
  for (int i = 0; i < rows; ++i) {
    double weight[rows];
    double total = 0;
    for (int j = 0; j < rows; ++j) {
      double score = 0;
      for (int k = 0; k < width; ++k) score += q[static_cast<std::size_t>(i * width + k)] * x_at(j * width + k);
      total += weight[j] = std::exp(score);
    }
    double gate[width];
    double mean = 0;
    for (int k = 0; k < width; ++k) {
      double mixed = 0;
      for (int j = 0; j < rows; ++j) mixed += weight[j] / total * x_at(j * width + k);
      const double inner = std::sqrt(2 / std::acos(-1.0)) * (mixed + 0.044715 * mixed * mixed * mixed);
      gate[k] = 0.5 * mixed * (1 + std::tanh(inner)) + std::tanh(q[static_cast<std::size_t>(i * width + k)]);
      mean += gate[k] / width;
    }
    for (int k = 0; k < width; ++k) {
      const auto n = static_cast<std::size_t>(i * width + k);
      const double moment = m_at(i * width + k) * 0.9 + (gate[k] - mean) * 0.1;
      made.moment[n] = moment;
      made.next[n] = x_at(i * width + k) - moment / (std::sqrt(moment * moment + 0.25) + std::exp(-moment)) * 0.01;
      made.sum += moment * moment;
    }
  }
  return made;
}

}  // namespace

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});
    ep::runner<program> run(world);
    auto x = run.argument<0>();
    auto w = run.argument<1>();
    auto m = run.argument<2>();
    const auto fill = [](auto& array, double (*at)(std::int64_t)) {
      array.for_each([at](float& element, std::int64_t index) { element = static_cast<float>(at(index)); });
    };
    fill(x, x_at);
    fill(w, w_at);
    fill(m, m_at);
    const auto& out = run(x, w, m);
    const auto next = ep::gather(world, out.get<0>());
    const auto turned = ep::gather(world, out.get<1>());
    const double sum = static_cast<double>(ep::gather(world, out.get<2>()).front());

    const expected right = by_loops();
    double worst = std::abs(sum - right.sum) / right.sum;
    for (int i = 0; i < rows; ++i) {
      for (int k = 0; k < width; ++k) {
        const auto n = static_cast<std::size_t>(i * width + k);
        const auto t = static_cast<std::size_t>(k * rows + i);
        worst = std::max(worst, std::abs(static_cast<double>(next[n]) - right.next[n]));
        worst = std::max(worst, std::abs(static_cast<double>(turned[t]) - right.moment[n]));
      }
    }
    constexpr const char* names[]{"base", "avx2", "avx512"};
    std::printf("kernel set %s\n", names[static_cast<int>(ep::kernels::processor_kernels().level)]);
    if (worst > 2e-6) std::printf("off by %g\n", worst);
    return worst > 2e-6 ? 1 : 0;
  });
}
