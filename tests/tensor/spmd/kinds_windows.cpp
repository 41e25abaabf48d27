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

// --- several shifts of one value ------------------------------------------------------------------------------------

/// The sum of `weight[a][b] * x(i + a - 2, j + b - 2)`, with zeros around the plane or on a torus.
constexpr int reach = 2;
using stencil_weights = real[2 * reach + 1][2 * reach + 1];

struct five_points {
  static constexpr stencil_weights weight{{}, {0, 0, 1}, {0, 1, -4, 1}, {0, 0, 1}, {}};
  constexpr auto operator()(auto u) const {
    return ep::shift<0, 1>(u) + ep::shift<0, -1>(u) + ep::shift<1, 1>(u) + ep::shift<1, -1>(u) - 4.0 * u;
  }
};
struct nine_points {
  static constexpr stencil_weights weight{{}, {0, 0.5, 1, -1}, {0, 0.5, 1, -1}, {0, 0.5, 1, -1}, {}};
  constexpr auto operator()(auto u) const {
    const auto column = [](auto v) { return ep::shift<0, 1>(v) + v + ep::shift<0, -1>(v); };
    return 0.5 * column(ep::shift<1, 1>(u)) + column(u) - column(ep::shift<1, -1>(u));
  }
};
struct nine_points_on_torus {
  static constexpr stencil_weights weight{{}, {0, 0.5, 1, -1}, {0, 0.5, 1, -1}, {0, 0.5, 1, -1}, {}};
  constexpr auto operator()(auto u) const {
    const auto column = [](auto v) { return ep::roll<0, 1>(v) + v + ep::roll<0, -1>(v); };
    return 0.5 * column(ep::roll<1, 1>(u)) + column(u) - column(ep::roll<1, -1>(u));
  }
};
struct fourth_order {
  static constexpr stencil_weights weight{{0, 0, -1}, {0, 0, 16}, {0, 0, -30}, {0, 0, 16}, {0, 0, -1}};
  constexpr auto operator()(auto u) const {
    return -1.0 * ep::shift<0, 2>(u) + 16.0 * ep::shift<0, 1>(u) - 30.0 * u + 16.0 * ep::shift<0, -1>(u) -
           ep::shift<0, -2>(u);
  }
};
/// The same by slices and joins: zeros are joined to both ends.
struct fourth_order_joined {
  constexpr auto operator()(auto u) const {
    constexpr int rows = decltype(u)::extent(0);
    constexpr int columns = decltype(u)::extent(1);
    const auto zeros = [&]<int Rows>(std::integral_constant<int, Rows>) {
      return ep::broadcast_to<Rows, columns>(ep::constant<ep::f64<>>(u, 0));
    };
    const auto one = zeros(std::integral_constant<int, 1>{});
    const auto two = zeros(std::integral_constant<int, 2>{});
    return -1.0 * ep::concat<0>(two, ep::slice<0, 0, rows - 2>(u)) +
           16.0 * ep::concat<0>(one, ep::slice<0, 0, rows - 1>(u)) - 30.0 * u +
           16.0 * ep::concat<0>(ep::slice<0, 1, rows>(u), one) - ep::concat<0>(ep::slice<0, 2, rows>(u), two);
  }
};

template <class On, class Stencil> struct stencilling {
  constexpr auto operator()(auto u, auto weight) const {
    const auto loss = [&](const auto& v) {
      const auto y = Stencil{}(ep::shard<typename On::data, typename On::model>(v));
      return ep::sum(y * y * weight);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(u);
    return ep::results(ep::repeat<3>(Stencil{}, ep::shard<typename On::data, typename On::model>(u)), value, gradient);
  }
};
template <class Stencil> struct of_stencil {
  template <class On>
  using program = ep::program<typename On::mesh, stencilling<On, Stencil>, ep::f64<13, 11>, ep::f64<13, 11>>;
};

plain plain_stencil(const plain& u, const stencil_weights& weight, bool torus, bool back = false) {
  plain y(u.extents);
  const int rows = u.size(0);
  const int columns = u.size(1);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      for (int a = -reach; a <= reach; ++a) {
        for (int b = -reach; b <= reach; ++b) {
          int p = i + a;
          int q = j + b;
          if (torus) {
            p = (p + rows) % rows;
            q = (q + columns) % columns;
          }
          if (p < 0 || p >= rows || q < 0 || q >= columns) continue;
          const real w = weight[a + reach][b + reach];
          if (back) {
            y(p, q) += w * u(i, j);
          } else {
            y(i, j) += w * u(p, q);
          }
        }
      }
    }
  }
  return y;
}
plains plain_stencilling(const plains& in, const stencil_weights& weight, bool torus) {
  plain three = in[0];
  for (int n = 0; n < 3; ++n) three = plain_stencil(three, weight, torus);
  plain y = plain_stencil(in[0], weight, torus);
  real total = 0;
  for (std::size_t k = 0; k < y.data.size(); ++k) {
    total += y.data[k] * y.data[k] * in[1].data[k];
    y.data[k] *= 2 * in[1].data[k];
  }
  return {three, plain::number(total), plain_stencil(y, weight, torus, true)};
}

/// The heat equation with a border that stays, by slices and joins.
template <class On> struct heat_in_a_frame {
  constexpr auto operator()(auto u, auto weight) const {
    const auto step = [](auto v) {
      const auto middle = ep::slice<1, 1, 21>(v);
      const auto rows = ep::slice<0, 1, 25>(v);
      const auto inner = ep::slice<0, 1, 25>(middle);
      const auto around = ep::slice<0, 0, 24>(middle) + ep::slice<0, 2, 26>(middle) + ep::slice<1, 0, 20>(rows) +
                          ep::slice<1, 2, 22>(rows);
      const auto next =
          ep::concat<1>(ep::slice<1, 0, 1>(rows), inner + 0.2 * (around - 4.0 * inner), ep::slice<1, 21, 22>(rows));
      return ep::shard<typename On::data, typename On::model>(
          ep::concat<0>(ep::slice<0, 0, 1>(v), next, ep::slice<0, 25, 26>(v)));
    };
    const auto start = [](auto v) { return ep::shard<typename On::data, typename On::model>(v); };
    const auto loss = [&](auto v) { return ep::sum(step(start(v)) * weight); };
    const auto [value, gradient] = ep::value_and_grad(loss)(u);
    return ep::results(ep::repeat<3>(step, start(u)), value, gradient);
  }
};
template <class On>
using heat_program = ep::program<typename On::mesh, heat_in_a_frame<On>, ep::f64<26, 22>, ep::f64<26, 22>>;

plain plain_heat(const plain& u) {
  plain next = u;
  for (int i = 1; i < 25; ++i) {
    for (int j = 1; j < 21; ++j)
      next(i, j) += 0.2L * (u(i - 1, j) + u(i + 1, j) + u(i, j - 1) + u(i, j + 1) - 4 * u(i, j));
  }
  return next;
}
plains plain_heat_in_a_frame(const plains& in) {
  plain three = in[0];
  for (int n = 0; n < 3; ++n) three = plain_heat(three);
  const plain one = plain_heat(in[0]);
  real total = 0;
  for (std::size_t k = 0; k < one.data.size(); ++k) total += one.data[k] * in[1].data[k];
  plain gradient = in[1];
  for (int i = 1; i < 25; ++i) {
    for (int j = 1; j < 21; ++j) {
      const real w = 0.2L * in[1](i, j);
      gradient(i, j) -= 4 * w;
      gradient(i - 1, j) += w;
      gradient(i + 1, j) += w;
      gradient(i, j - 1) += w;
      gradient(i, j + 1) += w;
    }
  }
  return {three, plain::number(total), gradient};
}

/// Shallow water on a torus: three fields, whose fluxes are computed from all of them.
struct shallow_water {
  constexpr auto operator()(const auto& s) const {
    const auto h = s.template get<0>();
    const auto hu = s.template get<1>();
    const auto hv = s.template get<2>();
    const auto u = hu / h;
    const auto v = hv / h;
    const auto pressure = 4.9 * h * h;
    const auto fx = hu * u + pressure;
    const auto gy = hv * v + pressure;
    const auto fy = hu * v;
    const auto north = [](auto a) { return ep::roll<0, 1>(a); };
    const auto south = [](auto a) { return ep::roll<0, -1>(a); };
    const auto west = [](auto a) { return ep::roll<1, 1>(a); };
    const auto east = [](auto a) { return ep::roll<1, -1>(a); };
    const auto mean = [&](auto a) { return (north(a) + south(a) + west(a) + east(a)) / 4; };
    return ep::results(mean(h) - 0.01 * (east(hu) - west(hu) + south(hv) - north(hv)),
                       mean(hu) - 0.01 * (east(fx) - west(fx) + south(fy) - north(fy)),
                       mean(hv) - 0.01 * (east(fy) - west(fy) + south(gy) - north(gy)));
  }
};
template <class On> struct four_steps_of_water {
  constexpr auto operator()(auto h, auto hu, auto hv) const {
    const auto laid_out = [](auto v) { return ep::shard<typename On::data, typename On::model>(v); };
    return ep::repeat<4>(shallow_water{}, ep::results(laid_out(h), laid_out(hu), laid_out(hv)));
  }
};
template <class On, int Rows, int Columns, class Type = ep::f64<Rows, Columns>>
using water_on = ep::program<typename On::mesh, four_steps_of_water<On>, Type, Type, Type>;
template <class On> using water_program = water_on<On, 13, 11>;

plains plain_water(const plains& in) {
  plains s = in;
  const int rows = s[0].size(0);
  const int columns = s[0].size(1);
  for (int n = 0; n < 4; ++n) {
    plains next = s;
    const auto at = [&](int i, int j) {
      struct state {
        real h, hu, hv, fx, gy, fy;
      };
      const int p = (i + rows) % rows;
      const int q = (j + columns) % columns;
      const real h = s[0](p, q);
      const real hu = s[1](p, q);
      const real hv = s[2](p, q);
      return state{h, hu, hv, hu * hu / h + 4.9L * h * h, hv * hv / h + 4.9L * h * h, hu * hv / h};
    };
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < columns; ++j) {
        const auto north = at(i - 1, j);
        const auto south = at(i + 1, j);
        const auto west = at(i, j - 1);
        const auto east = at(i, j + 1);
        next[0](i, j) = (north.h + south.h + west.h + east.h) / 4 - 0.01L * (east.hu - west.hu + south.hv - north.hv);
        next[1](i, j) =
            (north.hu + south.hu + west.hu + east.hu) / 4 - 0.01L * (east.fx - west.fx + south.fy - north.fy);
        next[2](i, j) =
            (north.hv + south.hv + west.hv + east.hv) / 4 - 0.01L * (east.fy - west.fy + south.gy - north.gy);
      }
    }
    s = next;
  }
  return s;
}

// --- what they move -------------------------------------------------------------------------------------------------

template <class On, class F, class T> struct alone {
  using program = ep::program<typename On::mesh, F, ep::sharded<T, typename On::data, typename On::model>>;
  static constexpr auto exchanges = program::template collectives<ep::exchange>();
  static constexpr auto bytes = program::template bytes<ep::exchange>();
};
template <class Stencil> struct gradient_of {
  constexpr auto operator()(auto u) const {
    return ep::value_and_grad([](auto v) {
             const auto y = Stencil{}(v);
             return ep::sum(y * y);
           })(u)
        .gradient;
  }
};
// A device within has 1,025 x 2,049 of 4,097 x 4,097 elements, two neighbours above and below and one beside it.
constexpr std::int64_t plane_borders = (2 * 2049 + 1025) * 4;
using five_on_plane = alone<on<4, 2>, five_points, ep::f32<4097, 4097>>;
static_assert(five_on_plane::bytes == plane_borders && five_on_plane::exchanges <= 2);
using five_back = alone<on<4, 2>, gradient_of<five_points>, ep::f32<4097, 4097>>;
static_assert(five_back::bytes == 2 * plane_borders && five_back::exchanges <= 4);
// With two corners.
using nine_on_plane = alone<on<4, 2>, nine_points, ep::f32<4097, 4097>>;
static_assert(nine_on_plane::bytes == plane_borders + 2 * 4 && nine_on_plane::exchanges == 1);
// On a torus of two columns of devices the other column is on both sides.
using nine_on_torus = alone<on<4, 2>, nine_points_on_torus, ep::f32<4097, 4097>>;
static_assert(nine_on_torus::bytes == plane_borders + (1025 + 4) * 4 && nine_on_torus::exchanges == 1);
// Two rows of three numbers to each of two neighbours.
using fourth_on_line = alone<on<4, 1>, fourth_order, ep::f64<4097, 3>>;
static_assert(fourth_on_line::bytes == 2 * 2 * 3 * 8 && fourth_on_line::exchanges == 1);
using fourth_joined = alone<on<4, 1>, fourth_order_joined, ep::f64<4097, 3>>;
static_assert(fourth_joined::bytes == 2 * 2 * 3 * 8 && fourth_joined::exchanges == 1);
using fourth_back = alone<on<4, 1>, gradient_of<fourth_order>, ep::f64<4097, 3>>;
static_assert(fourth_back::bytes == 2 * 2 * 2 * 3 * 8 && fourth_back::exchanges == 2);
// 26 rows over four devices are 7, 7, 7 and 5: a device within sends two rows of 11 numbers and one column of 7 in each
// of three steps of the loop, and so before the loss and for its gradient.
static_assert(heat_program<on<4, 2>>::collectives<ep::exchange>() <= 3 + 1 + 4 &&
              heat_program<on<4, 2>>::bytes<ep::exchange>() <= (3 + 1 + 2) * (2 * 11 + 7) * 8);
// One row of 50 numbers to each side: of however many rows, in one exchange.
struct rolled_both_ways {
  constexpr auto operator()(auto u) const { return ep::roll<0, 1>(u) + ep::roll<0, -1>(u); }
};
template <int Rows> using rolled_rows = alone<on<2, 2>, rolled_both_ways, ep::f32<Rows, 100>>;
static_assert(rolled_rows<40>::bytes == 2 * 50 * 4 && rolled_rows<40>::exchanges == 1);
static_assert(rolled_rows<42>::bytes == 2 * 50 * 4 && rolled_rows<42>::exchanges == 1);
// Of 13 rows a last shard of 1 row reads those 1 and 5 before it, and not what lies between; of 7 and 6 rows all 5 are
// read. Both ways a device sends 5 rows of 2 numbers.
struct near_and_far {
  constexpr auto operator()(auto u) const { return ep::roll<0, 1>(u) * ep::roll<0, 5>(u); }
};
template <int Devices> using short_shards = alone<on<Devices, 1>, near_and_far, ep::f64<13, 2>>;
static_assert(short_shards<2>::bytes == 5 * 2 * 8 && short_shards<4>::bytes == 5 * 2 * 8);
// The borders of three fields of 101 x 149 over 2 x 2 devices: on a torus two rows of 75 numbers and two columns of 51.
using water_on_basin = water_on<on<2, 2>, 101, 149, ep::f32<101, 149>>;
static_assert(water_on_basin::collectives<ep::exchange>() == 4 &&
              water_on_basin::bytes<ep::exchange>() == 4 * 3 * (2 * 75 + 2 * 51) * 4);

// --- pooling ---------------------------------------------------------------------------------------------------------

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

TEST_CASE("windows: several shifts of one value, forward and gradient", "[kinds]") {
  const plains in{wave(1, {13, 11}), wave(2, {13, 11})};
  everywhere<of_stencil<five_points>::program>(both_ways{}, in, plain_stencilling(in, five_points::weight, false),
                                               1e-12);
  everywhere<of_stencil<nine_points>::program>(both_ways{}, in, plain_stencilling(in, nine_points::weight, false),
                                               1e-12);
  everywhere<of_stencil<nine_points_on_torus>::program>(
      both_ways{}, in, plain_stencilling(in, nine_points_on_torus::weight, true), 1e-12);
  const plains by_fourth = plain_stencilling(in, fourth_order::weight, false);
  everywhere<of_stencil<fourth_order>::program>(both_ways{}, in, by_fourth, 1e-12);
  everywhere<of_stencil<fourth_order_joined>::program>(both_axes{}, in, by_fourth, 1e-12);
}

TEST_CASE("windows: a frame that stays, by slices and joins", "[kinds]") {
  const plains in{wave(1, {26, 22}), wave(2, {26, 22})};
  everywhere<heat_program>(both_ways{}, in, plain_heat_in_a_frame(in), 1e-12);
}

TEST_CASE("windows: fields on a torus, whose fluxes are rolled", "[kinds]") {
  plains in{wave(1, {13, 11}, 0.2), wave(2, {13, 11}, 0.2), wave(3, {13, 11}, 0.2)};
  for (real& depth : in[0].data) depth += 1;
  everywhere<water_program>(both_ways{}, in, plain_water(in), 1e-12);
}

TEST_CASE("windows: poolings, with ties", "[kinds]") {
  // Few different numbers, so that windows have several largest elements.
  plains in{indices(1, {2, 9, 6, 3}, 4), wave(2, {2, 5, 6, 3})};
  everywhere<pooling_program>(both_ways{}, in, plain_pooling(in), 1e-6);
}
