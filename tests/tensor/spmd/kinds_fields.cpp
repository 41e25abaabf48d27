// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

// Fields that change in loops, of which every device has some rows with those of its neighbours around them, and
// sequences whose parts are not whole rows of what they are reshaped to.

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- a membrane: two fields that change places, smoothed in a loop inside the loop, kept and summed over time --------

constexpr int height = 11;
constexpr int width = 3;
constexpr int times = 4;
constexpr ep::convolution_settings two_around{.low = {2, 1}, .high = {2, 1}};
constexpr ep::convolution_settings one_above{.low = {1, 0}, .high = {0, 0}};

template <class On> struct membrane {
  constexpr auto operator()(auto start, auto before, auto w, auto above, auto forces, auto weight) const {
    const auto rows = [](const auto& v) {
      return ep::shard<ep::none, ep::axes<typename On::data, typename On::model>, ep::none, ep::none>(v);
    };
    const auto loss = [&](const auto& p) {
      const auto& taps = p.template get<1>();
      const auto step = [&](const auto& fields, auto force) {
        const auto& u = fields.template get<0>();
        const auto smooth = ep::repeat<3>([&](auto x) { return ep::convolution<two_around>(x, taps); }, u);
        const auto next = 2.0 * u - fields.template get<1>() + 0.25 * smooth + force;
        return ep::results(ep::results(next, u), ep::convolution<one_above>(next, above));
      };
      const auto last = ep::scan(step, ep::results(rows(p.template get<0>()), rows(before)), forces);
      const auto& kept = last.template get<1>();
      return ep::sum(kept * kept * weight) + ep::sum(ep::roll<1, 4>(last.template get<0>().template get<1>()));
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(start, w));
    return ep::results(value, gradient);
  }
};
template <class On>
using membrane_program = ep::program<typename On::mesh, membrane<On>, ep::f64<1, height, width, 1>,
                                     ep::f64<1, height, width, 1>, ep::f64<5, 3, 1, 1>, ep::f64<2, 1, 1, 1>,
                                     ep::f64<times, 1, height, width, 1>, ep::f64<times, 1, height, width, 1>>;

plain smoothed(const plain& x, const plain& w, int low_rows, int low_columns) {
  plain y(x.extents);
  for (int i = 0; i < height; ++i) {
    for (int j = 0; j < width; ++j) {
      for (int a = 0; a < w.size(0); ++a) {
        for (int b = 0; b < w.size(1); ++b) {
          const int p = i + a - low_rows;
          const int q = j + b - low_columns;
          if (p >= 0 && p < height && q >= 0 && q < width) y(0, i, j, 0) += x(0, p, q, 0) * w(a, b, 0, 0);
        }
      }
    }
  }
  return y;
}
real plain_membrane(const plains& in) {
  plain u = in[0];
  plain before = in[2];
  real total = 0;
  for (int t = 0; t < times; ++t) {
    plain smooth = u;
    for (int n = 0; n < 3; ++n) smooth = smoothed(smooth, in[1], 2, 1);
    plain next = u;
    for (int i = 0; i < height; ++i) {
      for (int j = 0; j < width; ++j) {
        next(0, i, j, 0) = 2 * u(0, i, j, 0) - before(0, i, j, 0) + smooth(0, i, j, 0) / 4 + in[4](t, 0, i, j, 0);
      }
    }
    const plain kept = smoothed(next, in[3], 1, 0);
    for (int i = 0; i < height; ++i) {
      for (int j = 0; j < width; ++j) total += kept(0, i, j, 0) * kept(0, i, j, 0) * in[5](t, 0, i, j, 0);
    }
    before = u;
    u = next;
  }
  for (const real e : before.data) total += e;
  return total;
}

// --- sentences of unequal devices: flattened, looked up, turned and put back -----------------------------------------

template <class On> struct sentences {
  constexpr auto operator()(auto words, auto table, auto mix, auto weight) const {
    const auto loss = [&](const auto& p) {
      const auto of_sentences = ep::shard<typename On::data, ep::none>(words);          // i32[7@data, 5]
      const auto flat = ep::reshape<-1>(of_sentences);                                  // i32[35@data]
      const auto seen = ep::gather<0>(p.template get<0>(), flat);                       // f64[35@data, 6]
      const auto mixed = ep::tanh(ep::einsum<"nc,cd->nd">(seen, p.template get<1>()));  // f64[35@data, 4]
      const auto shifted = ep::roll<0, 1>(mixed) + ep::reshape<-1, 4>(ep::roll<0, -2>(ep::reshape<7, 5, 4>(mixed)));
      const auto reordered = ep::reshape<10, -1>(shifted);  // neither divides the other
      return ep::sum(ep::reshape<5, 28>(reordered) * weight);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(table, mix));
    return ep::results(value, gradient);
  }
};
template <class On>
using sentences_program = ep::program<typename On::mesh, sentences<On>, ep::i32<7, 5>, ep::f64<9, 6>,
                                      ep::sharded<ep::f64<6, 4>, ep::none, typename On::model>, ep::f64<5, 28>>;

real plain_sentences(const plains& in) {
  plain mixed({35, 4});
  for (int n = 0; n < 35; ++n) {
    const int word = static_cast<int>(in[2](n / 5, n % 5));
    for (int d = 0; d < 4; ++d) {
      real sum = 0;
      for (int c = 0; c < 6; ++c) sum += in[0](word, c) * in[1](c, d);
      mixed(n, d) = std::tanh(sum);
    }
  }
  real total = 0;
  for (int n = 0; n < 35; ++n) {
    for (int d = 0; d < 4; ++d) {
      const int at = 4 * n + d;
      total += (mixed((n + 34) % 35, d) + mixed((n + 10) % 35, d)) * in[3](at / 28, at % 28);
    }
  }
  return total;
}

}  // namespace

TEST_CASE("fields: a membrane, smoothed in a loop inside its loop", "[kinds]") {
  const plain start = wave(1, {1, height, width, 1}), before = wave(2, {1, height, width, 1});
  const plain w = wave(3, {5, 3, 1, 1}, 0.3), above = wave(4, {2, 1, 1, 1});
  const plain forces = wave(5, {times, 1, height, width, 1}), weight = wave(6, {times, 1, height, width, 1});
  everywhere<membrane_program>(both_ways{}, {start, before, w, above, forces, weight},
                               value_and_slopes(plain_membrane, {start, w, before, above, forces, weight}, 2), 1e-8);
}

TEST_CASE("fields: sentences on devices with unequal numbers of them", "[kinds]") {
  const plain words = indices(1, {7, 5}, 9), table = wave(2, {9, 6}), mix = wave(3, {6, 4});
  const plain weight = wave(4, {5, 28});
  const plains expected = value_and_slopes(plain_sentences, {table, mix, words, weight}, 2);
  everywhere<sentences_program>(both_ways{}, {words, table, mix, weight}, expected, 1e-8);
  everywhere<sentences_program>(few_or_all<meshes<on<2, 4>>, both_axes>{}, {words, table, mix, weight}, expected, 1e-8);
}
