// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

// Programs with windows along split dimensions, by the library's kernels, against plain loops: stencils, convolutions
// and poolings, forward and gradient.

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- what moves along a split dimension -----------------------------------------------------------------------------

template <class On> struct moving {
  constexpr auto operator()(auto x) const {
    const auto rows = ep::shard<ep::axes<typename On::data, typename On::model>, ep::none>(x);
    return ep::results(ep::roll<0, 3>(rows), ep::roll<0, -4>(rows), ep::reverse<0>(rows), ep::shift<0, 1>(rows),
                       ep::shift<0, -2>(rows), ep::pad<0, 2, -1, 1>(rows, 7), ep::split<0, 2>(rows)[1],
                       ep::stack<1>(rows, ep::reverse<1>(rows)));
  }
};
template <class On> using moving_program = ep::program<typename On::mesh, moving<On>, ep::f32<10, 3>>;

plains plain_moving(const plain& x) {
  const int n = 10;
  plain forth({n, 3}), back({n, 3}), turned({n, 3}), down({n, 3}), up({n, 3}), wide({20, 3}, 7), half({5, 3});
  plain both({n, 2, 3});
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < 3; ++j) {
      forth((i + 3) % n, j) = x(i, j);
      back((i + 6) % n, j) = x(i, j);
      turned(n - 1 - i, j) = x(i, j);
      if (i + 1 < n) down(i + 1, j) = x(i, j);
      if (i >= 2) up(i - 2, j) = x(i, j);
      if (2 * i + 2 < 20) wide(2 * i + 2, j) = x(i, j);
      if (i >= 5) half(i - 5, j) = x(i, j);
      both(i, 0, j) = x(i, j);
      both(i, 1, j) = x(i, 2 - j);
    }
  }
  return {forth, back, turned, down, up, wide, half, both};
}

// --- a convolution in two dimensions, both split --------------------------------------------------------------------

constexpr ep::convolution_settings strided{.stride = {2, 1}, .low = {1, 2}, .high = {2, 1}, .dilation = {1, 2}};
constexpr ep::convolution_settings transposed{
    .low = {2, 1}, .high = {1, 1}, .base_dilation = {2, 3}, .reversed = {true, false}};
constexpr ep::convolution_settings grouped{.low = {1, 1}, .high = {1, 1}, .groups = 2};

template <class On, ep::convolution_settings Settings> struct convolving {
  constexpr auto operator()(auto x, auto w, auto weight) const {
    const auto loss = [&](const auto& p) {
      const auto split = ep::shard<ep::none, typename On::data, typename On::model, ep::none>(p.template get<0>());
      return ep::sum(ep::convolution<Settings>(split, p.template get<1>()) * weight);
    };
    const auto y =
        ep::convolution<Settings>(ep::shard<ep::none, typename On::data, typename On::model, ep::none>(x), w);
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(x, w));
    return ep::results(y, value, gradient);
  }
};

/// The place of tap k of the window at o, or -1.
int seen(const ep::convolution_settings& s, int d, int taps, int o, int k, int n) {
  const int tap = s.reversed[d] ? taps - 1 - k : k;
  const int at = s.stride[d] * o + s.dilation[d] * tap - s.low[d];
  return at < 0 || at % s.base_dilation[d] != 0 || at / s.base_dilation[d] >= n ? -1 : at / s.base_dilation[d];
}

plains plain_convolution(const ep::convolution_settings& s, const plains& in) {
  const plain &x = in[0], &w = in[1], &weight = in[2];
  plain y(weight.extents), from_x(x.extents), from_w(w.extents);
  real total = 0;
  const int in_group = w.size(2);
  const int out_group = w.size(3) / s.groups;
  for (int n = 0; n < x.size(0); ++n) {
    for (int i = 0; i < y.size(1); ++i) {
      for (int j = 0; j < y.size(2); ++j) {
        for (int a = 0; a < w.size(0); ++a) {
          for (int b = 0; b < w.size(1); ++b) {
            const int p = seen(s, 0, w.size(0), i, a, x.size(1));
            const int q = seen(s, 1, w.size(1), j, b, x.size(2));
            if (p < 0 || q < 0) continue;
            for (int f = 0; f < w.size(3); ++f) {
              for (int c = 0; c < in_group; ++c) {
                const int from = f / out_group * in_group + c;
                y(n, i, j, f) += x(n, p, q, from) * w(a, b, c, f);
                from_x(n, p, q, from) += weight(n, i, j, f) * w(a, b, c, f);
                from_w(a, b, c, f) += weight(n, i, j, f) * x(n, p, q, from);
              }
            }
          }
        }
      }
    }
  }
  for (std::size_t k = 0; k < y.data.size(); ++k) total += y.data[k] * weight.data[k];
  return {y, plain::number(total), from_x, from_w};
}

template <class On>
using strided_program = ep::program<typename On::mesh, convolving<On, strided>, ep::f32<2, 11, 9, 3>,
                                    ep::f32<3, 3, 3, 5>, ep::f32<2, 6, 8, 5>>;
template <class On>
using transposed_program = ep::program<typename On::mesh, convolving<On, transposed>, ep::f64<2, 5, 4, 2>,
                                       ep::f64<3, 2, 2, 3>, ep::f64<2, 10, 11, 3>>;
template <class On>
using grouped_program = ep::program<typename On::mesh, convolving<On, grouped>, ep::bf16<1, 8, 7, 4>,
                                    ep::bf16<3, 3, 2, 6>, ep::bf16<1, 8, 7, 6>>;

// --- batch groups: each half of the batch has filters of its own ----------------------------------------------------

constexpr ep::convolution_settings in_batch_groups{.low = {1, 1}, .high = {1, 1}, .batch_groups = 2};
template <class On>
using batch_groups_program = ep::program<typename On::mesh, convolving<On, in_batch_groups>, ep::f32<6, 5, 4, 2>,
                                         ep::f32<3, 3, 2, 4>, ep::f32<3, 5, 4, 4>>;

plains plain_batch_groups(const plains& in) {
  const plain &x = in[0], &w = in[1], &weight = in[2];
  plain y(weight.extents), from_x(x.extents), from_w(w.extents);
  real total = 0;
  for (int n = 0; n < 3; ++n) {
    for (int i = 0; i < 5; ++i) {
      for (int j = 0; j < 4; ++j) {
        for (int f = 0; f < 4; ++f) {
          const int part = 3 * (f / 2) + n;
          for (int a = 0; a < 3; ++a) {
            for (int b = 0; b < 3; ++b) {
              const int p = i + a - 1;
              const int q = j + b - 1;
              if (p < 0 || p >= 5 || q < 0 || q >= 4) continue;
              for (int c = 0; c < 2; ++c) {
                y(n, i, j, f) += x(part, p, q, c) * w(a, b, c, f);
                from_x(part, p, q, c) += weight(n, i, j, f) * w(a, b, c, f);
                from_w(a, b, c, f) += weight(n, i, j, f) * x(part, p, q, c);
              }
            }
          }
          total += y(n, i, j, f) * weight(n, i, j, f);
        }
      }
    }
  }
  return {y, plain::number(total), from_x, from_w};
}

// --- fewer channels than devices: some have a term of the sum without a single product ------------------------------

constexpr ep::convolution_settings plain_settings{.low = {1, 1}, .high = {1, 1}};

template <class On> struct split_channels {
  constexpr auto operator()(auto x, auto w, auto weight) const {
    const auto along = [](const auto& v) {
      return ep::shard<ep::none, ep::none, ep::none, ep::axes<typename On::data, typename On::model>>(v);
    };
    const auto loss = [&](const auto& p) {
      return ep::sum(ep::convolution<plain_settings>(along(p.template get<0>()), p.template get<1>()) * weight);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(x, w));
    return ep::results(ep::convolution<plain_settings>(along(x), w), value, gradient);
  }
};
template <class On>
using few_channels_program =
    ep::program<typename On::mesh, split_channels<On>, ep::f32<2, 5, 4, 3>, ep::f32<3, 3, 3, 2>, ep::f32<2, 5, 4, 2>>;

// --- a stencil in a loop: the plane changes between two halves of a buffer, with its neighbours' rows around it ------

template <class On> struct stepping {
  constexpr auto operator()(auto start, auto w, auto weight) const {
    const auto rows = [](const auto& v) {
      return ep::shard<ep::none, ep::axes<typename On::data, typename On::model>, ep::none, ep::none>(v);
    };
    const auto step = [&](auto x) { return ep::convolution<plain_settings>(x, w); };
    // An odd and an even number of steps, and one before which the plane was used for something else.
    const auto five = ep::repeat<5>(step, rows(start));
    const auto four = ep::repeat<4>([&](auto x) { return step(x) - 0.25 * x; }, rows(start) + 1.0);
    const auto loss = [&](const auto& p) { return ep::sum(ep::repeat<3>(step, rows(p)) * weight); };
    const auto [value, gradient] = ep::value_and_grad(loss)(start);
    return ep::results(five, four, value, gradient);
  }
};
template <class On>
using stepping_program =
    ep::program<typename On::mesh, stepping<On>, ep::f64<1, 10, 4, 1>, ep::f64<3, 3, 1, 1>, ep::f64<1, 10, 4, 1>>;

plain stepped(const plain& x, const plain& w, bool back = false) {
  plain y(x.extents);
  for (int i = 0; i < 10; ++i) {
    for (int j = 0; j < 4; ++j) {
      for (int a = 0; a < 3; ++a) {
        for (int b = 0; b < 3; ++b) {
          const int p = i + a - 1;
          const int q = j + b - 1;
          if (p < 0 || p >= 10 || q < 0 || q >= 4) continue;
          if (back) {
            y(0, p, q, 0) += x(0, i, j, 0) * w(a, b, 0, 0);
          } else {
            y(0, i, j, 0) += x(0, p, q, 0) * w(a, b, 0, 0);
          }
        }
      }
    }
  }
  return y;
}
plains plain_stepping(const plains& in) {
  const plain& w = in[1];
  plain five = in[0];
  plain four = in[0];
  plain last = in[0];
  plain gradient = in[2];
  for (real& e : four.data) e += 1;
  for (int n = 0; n < 5; ++n) five = stepped(five, w);
  for (int n = 0; n < 4; ++n) {
    plain next = stepped(four, w);
    for (std::size_t k = 0; k < next.data.size(); ++k) next.data[k] -= four.data[k] / 4;
    four = next;
  }
  for (int n = 0; n < 3; ++n) last = stepped(last, w);
  for (int n = 0; n < 3; ++n) gradient = stepped(gradient, w, true);
  real total = 0;
  for (std::size_t k = 0; k < last.data.size(); ++k) total += last.data[k] * in[2].data[k];
  return {five, four, plain::number(total), gradient};
}

// --- pooling
// ----------------------------------------------------------------------------------------------------------

constexpr ep::pooling_settings pool{.size = {3, 2}, .stride = {2, 1}, .low = {1, 0}, .high = {1, 1}};

template <class On> struct pooling {
  constexpr auto operator()(auto x, auto weight) const {
    const auto split = [](const auto& v) {
      return ep::shard<ep::none, typename On::data, typename On::model, ep::none>(v);
    };
    const auto most = [&](auto v) { return ep::sum(ep::max_pool<pool>(split(v)) * weight); };
    const auto all = [&](auto v) { return ep::sum(ep::mean_pool<pool>(split(v)) * weight); };
    const auto [top, from_top] = ep::value_and_grad(most)(x);
    const auto [mean, from_mean] = ep::value_and_grad(all)(x);
    return ep::results(ep::max_pool<pool>(split(x)), ep::sum_pool<pool>(split(x)), from_top, from_mean);
  }
};
template <class On>
using pooling_program = ep::program<typename On::mesh, pooling<On>, ep::f32<2, 9, 6, 3>, ep::f32<2, 5, 6, 3>>;

plains plain_pooling(const plains& in) {
  const plain &x = in[0], &weight = in[1];
  plain most(weight.extents, -99), sums(weight.extents), from_most(x.extents), from_all(x.extents);
  for (int turn = 0; turn < 2; ++turn) {
    for (int n = 0; n < 2; ++n) {
      for (int i = 0; i < 5; ++i) {
        for (int j = 0; j < 6; ++j) {
          for (int c = 0; c < 3; ++c) {
            int ties = 0;
            for (int pass = 0; pass < 2; ++pass) {
              for (int a = 0; a < 3; ++a) {
                for (int b = 0; b < 2; ++b) {
                  const int p = 2 * i + a - 1;
                  const int q = j + b;
                  if (p < 0 || p >= 9 || q >= 6) continue;
                  const real value = x(n, p, q, c);
                  if (turn == 0 && pass == 0) {
                    most(n, i, j, c) = std::max(most(n, i, j, c), value);
                    sums(n, i, j, c) += value;
                  } else if (turn == 1 && pass == 0) {
                    ties += value == most(n, i, j, c) ? 1 : 0;
                  } else if (turn == 1) {
                    from_all(n, p, q, c) += weight(n, i, j, c) / 6;
                    if (value == most(n, i, j, c))
                      from_most(n, p, q, c) += weight(n, i, j, c) / static_cast<real>(ties);
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  return {most, sums, from_most, from_all};
}

}  // namespace

TEST_CASE("windows: rolls, shifts, pads and parts along a split dimension", "[kinds]") {
  const plains in{wave(1, {10, 3})};
  everywhere<moving_program>(both_ways{}, in, plain_moving(in[0]), 0);
}

TEST_CASE("windows: strided and dilated convolutions, both dimensions split unevenly", "[kinds]") {
  const plains in{wave(1, {2, 11, 9, 3}), wave(2, {3, 3, 3, 5}), wave(3, {2, 6, 8, 5})};
  everywhere<strided_program>(both_ways{}, in, plain_convolution(strided, in), 1e-5);
}

TEST_CASE("windows: transposed convolutions", "[kinds]") {
  const plains in{wave(1, {2, 5, 4, 2}), wave(2, {3, 2, 2, 3}), wave(3, {2, 10, 11, 3})};
  everywhere<transposed_program>(both_axes{}, in, plain_convolution(transposed, in), 1e-13);
}

TEST_CASE("windows: grouped convolutions in bf16", "[kinds]") {
  // Small whole numbers: sums of their products are exact.
  plains in{indices(1, {1, 8, 7, 4}, 3), indices(2, {3, 3, 2, 6}, 3), indices(3, {1, 8, 7, 6}, 2)};
  everywhere<grouped_program>(both_axes{}, in, plain_convolution(grouped, in), 1e-2);
}

TEST_CASE("windows: a convolution in batch groups", "[kinds]") {
  const plains in{wave(1, {6, 5, 4, 2}), wave(2, {3, 3, 2, 4}), wave(3, {3, 5, 4, 4})};
  everywhere<batch_groups_program>(both_axes{}, in, plain_batch_groups(in), 1e-5);
}

TEST_CASE("windows: a convolution over fewer channels than devices", "[kinds]") {
  const plains in{wave(1, {2, 5, 4, 3}), wave(2, {3, 3, 3, 2}), wave(3, {2, 5, 4, 2})};
  everywhere<few_channels_program>(both_ways{}, in, plain_convolution(plain_settings, in), 1e-5);
}

TEST_CASE("windows: a stencil in a loop", "[kinds]") {
  const plains in{wave(1, {1, 10, 4, 1}), wave(2, {3, 3, 1, 1}), wave(3, {1, 10, 4, 1})};
  everywhere<stepping_program>(both_ways{}, in, plain_stepping(in), 1e-12);
}

TEST_CASE("windows: poolings, with ties", "[kinds]") {
  // Few different numbers, so that windows have several largest elements.
  plains in{indices(1, {2, 9, 6, 3}, 4), wave(2, {2, 5, 6, 3})};
  everywhere<pooling_program>(both_ways{}, in, plain_pooling(in), 1e-6);
}
