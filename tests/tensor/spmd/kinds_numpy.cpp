// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

#include <cmath>

/// Programs that users of NumPy and JAX write first: dimensions of one element, triangles, where the largest is, parts
/// of results, gradients by several arguments, and derivatives in a direction.
namespace ep = espalier;
using namespace testing::kinds;

namespace {

using both = few_or_all<meshes<on<1, 1>, on<2, 2>>, meshes<on<1, 1>, on<2, 1>, on<1, 2>, on<2, 2>>>;

// --- dimensions, triangles, single elements
// ---------------------------------------------------------------------------

template <class On> struct dimensions {
  constexpr auto operator()(auto x, auto row) const {
    x = ep::shard<typename On::data, typename On::model>(x);  // 5 x 7: uneven on every mesh but the first
    const auto table = ep::broadcast_to<2, 5, 7>(ep::expand_dims<1>(row));
    const auto lower = ep::tril<1>(x) + ep::squeeze(ep::expand_dims<0, -1>(ep::triu<-1>(x * 10)));
    return ep::results(lower, table, ep::take<0, 3>(x), ep::take<-1, -2>(x));
  }
};
template <class On>
using dimensions_program = ep::program<typename On::mesh, dimensions<On>, ep::f32<5, 7>, ep::f32<2, 7>>;

plains plain_dimensions(const plains& in) {
  const plain &x = in[0], &row = in[1];
  plain lower({5, 7}), table({2, 5, 7}), third({7}), column({5});
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 7; ++j) {
      lower(i, j) = (j <= i + 1 ? x(i, j) : 0) + (j >= i - 1 ? 10 * x(i, j) : 0);
      for (int k = 0; k < 2; ++k) table(k, i, j) = row(k, j);
    }
    column(i) = x(i, 5);
  }
  for (int j = 0; j < 7; ++j) third(j) = x(3, j);
  return {lower, table, third, column};
}

// --- where the largest is
// ---------------------------------------------------------------------------------------------

template <class On> struct extremes {
  constexpr auto operator()(auto x, auto whole) const {
    x = ep::shard<typename On::data, typename On::model>(x);
    whole = ep::shard<typename On::model, typename On::data>(whole);
    return ep::results(ep::argmax<0>(x), ep::argmax<1>(x), ep::argmin<1>(x, ep::keep_dims), ep::argmin(x),
                       ep::argmax<-1>(whole), ep::argmax(whole), ep::any<0>(whole), ep::all<1>(x < 0.9F),
                       ep::any(x > 5));
  }
};
template <class On> using extremes_program = ep::program<typename On::mesh, extremes<On>, ep::f32<5, 7>, ep::i32<3, 5>>;

/// The first index of 0 ... count - 1 at which `value` is largest, a NaN being larger than all.
template <class F> int first_largest(int count, const F& value) {
  int best = 0;
  for (int i = 1; i < count; ++i) {
    const bool better = value(i) > value(best) || (std::isnan(value(i)) && !std::isnan(value(best)));
    if (better) best = i;
  }
  return best;
}
plains plain_extremes(const plains& in) {
  const plain &x = in[0], &whole = in[1];
  plain by_column({7}), by_row({5}), least({5, 1}), rows({3}), some({5}), small({5});
  for (int j = 0; j < 7; ++j) by_column(j) = first_largest(5, [&](int i) { return x(i, j); });
  for (int i = 0; i < 5; ++i) {
    by_row(i) = first_largest(7, [&](int j) { return x(i, j); });
    least(i, 0) = first_largest(7, [&](int j) { return -x(i, j); });
    small(i) = 1;
    for (int j = 0; j < 7; ++j) small(i) = small(i) != 0 && x(i, j) < 0.9L ? 1 : 0;
    some(i) = whole(0, i) != 0 || whole(1, i) != 0 || whole(2, i) != 0 ? 1 : 0;
  }
  for (int i = 0; i < 3; ++i) rows(i) = first_largest(5, [&](int j) { return whole(i, j); });
  const auto number = [](const plain& t, real sign) {
    return plain::number(first_largest(static_cast<int>(t.data.size()),
                                       [&](int i) { return sign * t.data[static_cast<std::size_t>(i)]; }));
  };
  return {by_column, by_row, least, number(x, -1), rows, number(whole, 1), some, small, plain::number(0)};
}

// --- gradients
// --------------------------------------------------------------------------------------------------------

template <class On> struct gradients {
  constexpr auto operator()(auto x, auto w, auto scale) const {
    x = ep::shard<typename On::data, ep::none>(x);
    const auto loss = [](auto a, auto b, auto s) {
      const auto h = ep::tanh(ep::matmul(a, b)) * s;
      return ep::results(ep::mean(h * h), ep::argmax<1>(h), h);
    };
    const auto [value, by] = ep::value_and_grad<1, 2>(loss)(x, w, scale);
    const auto [mean, where, hidden] = value;
    const auto [by_w, by_scale] = by;
    const auto by_x = ep::grad(loss)(x, w, scale);
    return ep::results(mean, hidden, by_x, by_w, by_scale, ep::grad<2>(loss)(x, w, scale), where);
  }
};
template <class On>
using gradients_program = ep::program<typename On::mesh, gradients<On>, ep::f64<5, 3>, ep::f64<3, 7>, ep::f64<7>>;

plain hidden(const plains& in) {
  plain h({5, 7});
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 7; ++j) {
      real sum = 0;
      for (int k = 0; k < 3; ++k) sum += in[0](i, k) * in[1](k, j);
      h(i, j) = std::tanh(sum) * in[2](j);
    }
  }
  return h;
}
real mean_square(const plains& in) {
  real sum = 0;
  for (const real one : hidden(in).data) sum += one * one;
  return sum / 35;
}
plains plain_gradients(const plains& in) {
  const plain h = hidden(in);
  plain where({5});
  for (int i = 0; i < 5; ++i) where(i) = first_largest(7, [&](int j) { return h(i, j); });
  const plain by_scale = slope(mean_square, in, 2);
  return {plain::number(mean_square(in)),
          h,
          slope(mean_square, in, 0),
          slope(mean_square, in, 1),
          by_scale,
          by_scale,
          where};
}

// --- a derivative in a direction
// --------------------------------------------------------------------------------------

template <class On> struct directions {
  constexpr auto operator()(auto x, auto w, auto dx, auto dw) const {
    x = ep::shard<typename On::data, ep::none>(x);
    w = ep::shard<typename On::model, ep::none, ep::none>(w);  // of a stack, along the layers
    const auto layers = [](auto h, auto weights) {
      const auto body = [](auto carry, auto layer) {
        const auto next = ep::tanh(ep::matmul(carry, layer)) + carry;
        return ep::results(next, ep::sum<0>(next * next));
      };
      const auto [last, sums] = ep::scan(body, h, weights);
      return ep::results(last, sums, ep::argmax<1>(last));
    };
    const auto [value, slope] = ep::jvp(layers)(ep::results(x, w), ep::results(dx, dw));
    const auto [same, identity] = ep::jvp([](auto a) { return ep::results(a, a * a); })(x, dx);
    const auto [itself, square] = identity;
    // The derivative of a derivative.
    const auto cubed = [&](auto a) {
      const auto [cube, three_squares] = ep::jvp([](auto b) { return b * b * b; })(a, dx);
      return three_squares;
    };
    const auto [first, second] = ep::jvp(cubed)(x, dx);
    return ep::results(value.template get<0>(), slope, itself, square, second);
  }
};
template <class On>
using directions_program =
    ep::program<typename On::mesh, directions<On>, ep::f64<5, 3>, ep::f64<4, 3, 3>, ep::f64<5, 3>, ep::f64<4, 3, 3>>;

plains run_layers(plain h, const plain& w) {
  plain sums({4, 3});
  for (int l = 0; l < 4; ++l) {
    plain next({5, 3});
    for (int i = 0; i < 5; ++i) {
      for (int j = 0; j < 3; ++j) {
        real sum = 0;
        for (int k = 0; k < 3; ++k) sum += h(i, k) * w(l, k, j);
        next(i, j) = std::tanh(sum) + h(i, j);
        sums(l, j) += next(i, j) * next(i, j);
      }
    }
    h = next;
  }
  return {h, sums};
}
plains plain_directions(const plains& in) {
  constexpr real step = 1e-6L;
  const auto moved = [&](real by) {
    plains at{in[0], in[1]};
    for (std::size_t leaf = 0; leaf < 2; ++leaf) {
      for (std::size_t i = 0; i < at[leaf].data.size(); ++i) at[leaf].data[i] += by * in[leaf + 2].data[i];
    }
    return run_layers(at[0], at[1]);
  };
  const plains above = moved(step), below = moved(-step);
  plains slopes = above;
  for (std::size_t r = 0; r < 2; ++r) {
    for (std::size_t i = 0; i < slopes[r].data.size(); ++i)
      slopes[r].data[i] = (above[r].data[i] - below[r].data[i]) / (2 * step);
  }
  plain square = in[0], second = in[0];
  for (std::size_t i = 0; i < square.data.size(); ++i) {
    square.data[i] = 2 * in[0].data[i] * in[2].data[i];
    second.data[i] = 6 * in[0].data[i] * in[2].data[i] * in[2].data[i];
  }
  return {run_layers(in[0], in[1])[0], slopes[0], slopes[1], plain({5}), in[2], square, second};
}

}  // namespace

TEST_CASE("dimensions of one element, triangles, single elements") {
  const plains in{wave(1, {5, 7}), wave(2, {2, 7})};
  everywhere<dimensions_program>(both{}, in, plain_dimensions(in), 1e-6);
}
TEST_CASE("where the largest is, the first of several and a NaN before all") {
  plains in{wave(3, {5, 7}), indices(4, {3, 5}, 3)};
  in[0](2, 4) = in[0](2, 1) = 2;  // ties
  in[0](0, 3) = in[0](0, 6) = std::numeric_limits<real>::quiet_NaN();
  everywhere<extremes_program>(both{}, in, plain_extremes(in));
}
TEST_CASE("gradients by chosen arguments, and what else a function returns") {
  const plains in{wave(5, {5, 3}), wave(6, {3, 7}), wave(7, {7})};
  everywhere<gradients_program>(both{}, in, plain_gradients(in), 1e-8);
}
TEST_CASE("derivatives in a direction, through loops, of derivatives") {
  const plains in{wave(8, {5, 3}), wave(9, {4, 3, 3}), wave(10, {5, 3}), wave(11, {4, 3, 3})};
  everywhere<directions_program>(both{}, in, plain_directions(in), 1e-8);
}
