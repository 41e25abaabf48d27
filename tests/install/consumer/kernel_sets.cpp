// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
//
// One program on the kernel set that ESPALIER_KERNELS asks for, against plain loops: products, attention, a norm of
// rows, a transposition, and an update that is one loop. A second program has all whose arithmetic is the same in all
// sets, whatever instructions it is made of: what is moved, counted or compared, sums in a fixed order, and products of
// numbers so short that nothing is rounded. Prints the set, and a checksum of the bits of that.
#include <espalier/espalier.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <utility>
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

constexpr int lines = 24, columns = 40, looked_up = 30, images = 2, side = 10, channels = 24, features = 17;
constexpr ep::convolution_settings same{.low = {1, 1}, .high = {1, 1}};
constexpr ep::pooling_settings halves{.size = {3, 2}, .stride = {2, 2}};
struct exact_step {
  constexpr auto operator()(auto key, auto x, auto y, auto places, auto image, auto filter) const {
    const auto looked = [](auto table, auto of) { return ep::sum(ep::gather<0>(table, of) * 0.3F); };
    const auto pooled = [](auto of) { return ep::sum(ep::max_pool<halves>(of) * 0.3F); };
    const auto filtered = [](auto a, auto b) { return ep::sum(ep::convolution<same>(a, b) * 0.5F); };
    const auto table = ep::value_and_grad(looked)(x, places);
    const auto pool = ep::value_and_grad(pooled)(image);
    const auto [input, weights] = ep::value_and_grad<0, 1>(filtered)(image, filter).gradient;
    const auto [most, most_at] = ep::top_k<1, 5>(x);
    const auto bits = ep::random_bits<ep::i32<lines, columns>>(key);
    const auto half = ep::convert<ep::dtype::bf16>(x);
    const auto short_x = ep::convert<ep::dtype::f16>(x);
    const auto short_y = ep::convert<ep::dtype::f16>(y);
    const auto long_bits = ep::convert<ep::dtype::i64>(bits) * 1000003;
    const auto words = (bits ^ ep::convert<ep::dtype::i32>(x * 100.0F)) >> 3;
    return ep::results(bits, ep::uniform<ep::f32<lines, columns>>(key), ep::dropout(key, x, 0.25),
                       ep::gather<0>(x, places), table.gradient, ep::gather<0>(half, places), ep::cumsum<0>(x),
                       ep::cumsum<1>(x, ep::from_last), ep::cummax<0>(x), ep::cumsum<0>(half),
                       ep::max_pool<halves>(image), ep::sum_pool<halves>(image), pool.gradient,
                       ep::convolution<same>(image, filter), input, weights, most, most_at, words, ep::floor(x * 7.0F),
                       ep::round(x * 7.0F), ep::clamp(y, x, ep::abs(y)), ep::convert<ep::dtype::bf16>(x * y), x / y,
                       ep::sign(x), short_x * short_y + short_x, short_x / short_y, ep::max<1>(short_x),
                       ep::sum<0>(short_x), ep::floor(short_x * 7.0F), ep::convert<ep::dtype::i32>(short_x * 1000.0F),
                       ep::max_pool<halves>(ep::convert<ep::dtype::f16>(image)), long_bits * long_bits + 3,
                       ep::sum<1>(long_bits), ep::convert<ep::dtype::f32>(long_bits), long_bits >> 5);
  }
};
using exact_program =
    ep::program<mesh, exact_step, ep::u32<2>, ep::f32<lines, columns>, ep::f32<lines, columns>, ep::i32<looked_up>,
                ep::f32<images, side, side, channels>, ep::f32<3, 3, channels, features>>;

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

/// Multiples of 1/8: their products and sums are exact.
double short_at(std::int64_t i) { return static_cast<double>(i * 7919 % 17 - 8) / 8; }

void add_bits(std::uint64_t& sum, const auto& elements) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(elements.data());
  for (std::size_t n = 0; n < elements.size() * sizeof(elements[0]); ++n) sum = (sum ^ bytes[n]) * 1099511628211U;
}
std::uint64_t exact_bits(ep::world& world) {
  ep::runner<exact_program> run(world);
  auto key = run.argument<0>();
  auto x = run.argument<1>();
  auto y = run.argument<2>();
  auto places = run.argument<3>();
  auto image = run.argument<4>();
  auto filter = run.argument<5>();
  key.for_each([](std::uint32_t& word, std::int64_t i) { word = static_cast<std::uint32_t>(17 * i + 5); });
  x.for_each([](float& e, std::int64_t i) { e = static_cast<float>(x_at(i)); });
  y.for_each([](float& e, std::int64_t i) { e = static_cast<float>(w_at(i)); });
  places.for_each([](std::int32_t& e, std::int64_t i) { e = static_cast<std::int32_t>(i * 5 % (lines + 3)); });
  image.for_each([](float& e, std::int64_t i) { e = static_cast<float>(short_at(i)); });
  filter.for_each([](float& e, std::int64_t i) { e = static_cast<float>(short_at(i + 3)); });
  const auto& out = run(key, x, y, places, image, filter);
  std::uint64_t sum = 14695981039346656037U;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (add_bits(sum, ep::gather(world, out.template get<static_cast<int>(I)>())), ...);
  }
  (std::make_index_sequence<36>{});
  return sum;
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
    const char* set = "of the program's own";
    if constexpr (ep::kernels::has_kernel_sets) set = names[static_cast<int>(ep::kernels::processor_kernels().level)];
    std::printf("kernel set %s\nbits %llx\n", set, static_cast<unsigned long long>(exact_bits(world)));
    if (worst > 2e-6) std::printf("off by %g\n", worst);
    return worst > 2e-6 ? 1 : 0;
  });
}
