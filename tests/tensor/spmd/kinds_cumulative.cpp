// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never

#include <support/kinds.hpp>

#include <algorithm>
#include <cmath>

/// Sums, products, extrema and recurrences along a dimension, split or not, and what flows back.
namespace ep = espalier;
using namespace testing::kinds;

namespace {

using cumulative_meshes =
    few_or_all<meshes<on<2, 2>, on<4, 1>>, meshes<on<1, 1>, on<2, 1>, on<1, 2>, on<2, 2>, on<4, 1>>>;

// --- forward and gradient, along a split dimension and along another one
// ---------------------------------------------------------

/// Nonlinear in each, so that what flows back differs from element to element.
template <class On> struct sums {
  constexpr auto operator()(auto x, auto a) const {
    x = ep::shard<typename On::data, typename On::model>(x);  // 7 x 5: uneven
    const auto loss = [](auto b, auto f) {
      const auto down = ep::cumsum<0>(b);
      const auto left = ep::cumsum<-1>(b, ep::from_last);
      const auto product = ep::cumprod<0>(b);
      const auto back = ep::cumprod<1>(b, ep::from_last);
      const auto top = ep::cummax<0>(b);
      const auto low = ep::cummin<1>(b, ep::from_last);
      const auto chain = ep::linear_recurrence<0>(f, b);
      const auto chain_back = ep::linear_recurrence<1>(b, f, ep::from_last);
      const auto each = ep::results(down, left, product, back, top, low, chain, chain_back);
      return ep::results(ep::sum(down * down) + ep::sum(left * left * left) + ep::sum(product * product) +
                             ep::sum(back * product) + ep::sum(top * top) + ep::sum(low * down) +
                             ep::sum(chain * chain) + ep::sum(chain_back * chain_back),
                         each);
    };
    return ep::value_and_grad<0, 1>(loss)(x, a);
  }
};
template <class On> struct sums_results {
  constexpr auto operator()(auto x, auto a) const {
    const auto [value, by] = sums<On>{}(x, a);
    return ep::results(value, by);
  }
};
template <class On> using sums_program = ep::program<typename On::mesh, sums_results<On>, ep::f64<7, 5>, ep::f64<7, 5>>;

template <class F> plain along(const plain& x, int dim, bool from_last, const F& step) {
  plain made = x;
  const int n = x.size(dim);
  for (int other = 0; other < x.size(1 - dim); ++other) {
    for (int k = 1; k < n; ++k) {
      const int here = from_last ? n - 1 - k : k;
      const int before = from_last ? here + 1 : here - 1;
      const int i = dim == 0 ? here : other, j = dim == 0 ? other : here;
      made(i, j) = dim == 0 ? step(made(before, other), i, j) : step(made(other, before), i, j);
    }
  }
  return made;
}
plains each_of(const plains& in) {
  const plain &x = in[0], &a = in[1];
  const auto added = [&](real so_far, int i, int j) { return so_far + x(i, j); };
  const auto times = [&](real so_far, int i, int j) { return so_far * x(i, j); };
  return {along(x, 0, false, added),
          along(x, 1, true, added),
          along(x, 0, false, times),
          along(x, 1, true, times),
          along(x, 0, false, [&](real so_far, int i, int j) { return std::max(so_far, x(i, j)); }),
          along(x, 1, true, [&](real so_far, int i, int j) { return std::min(so_far, x(i, j)); }),
          along(x, 0, false, [&](real so_far, int i, int j) { return a(i, j) * so_far + x(i, j); }),
          along(a, 1, true, [&](real so_far, int i, int j) { return x(i, j) * so_far + a(i, j); })};
}
real sums_loss(const plains& in) {
  const plains each = each_of(in);
  real sum = 0;
  for (std::size_t n = 0; n < in[0].data.size(); ++n) {
    const auto at = [&](std::size_t k) { return each[k].data[n]; };
    sum += at(0) * at(0) + at(1) * at(1) * at(1) + at(2) * at(2) + at(3) * at(2) + at(4) * at(4) + at(5) * at(0) +
           at(6) * at(6) + at(7) * at(7);
  }
  return sum;
}
plains plain_sums(const plains& in) {
  plains out{plain::number(sums_loss(in))};
  for (const plain& one : each_of(in)) out.push_back(one);
  out.push_back(slope(sums_loss, in, 0));
  out.push_back(slope(sums_loss, in, 1));
  return out;
}

// --- a gradient of a gradient
// ---------------------------------------------------------------------------------------------

template <class On> struct twice {
  constexpr auto operator()(auto x, auto a) const {
    x = ep::shard<typename On::data, typename On::model>(x);
    const auto slopes = [](auto b, auto f) {
      const auto loss = [](auto c, auto g) {
        const auto chain = ep::linear_recurrence<0>(g, c);
        return ep::sum(ep::cumprod<0>(c) * ep::cumprod<0>(c, ep::from_last)) + ep::sum(chain * chain * chain);
      };
      const auto by = ep::grad<0, 1>(loss)(b, f);
      const auto [by_b, by_f] = by;
      return ep::sum(by_b * by_b * by_b) + ep::sum(by_f * by_f);
    };
    return ep::grad<0, 1>(slopes)(x, a);
  }
};
template <class On> using twice_program = ep::program<typename On::mesh, twice<On>, ep::f64<7, 3>, ep::f64<7, 3>>;

real loss_of_slopes(const plains& in) {
  const auto loss = [](const plains& at) {
    const plain &x = at[0], &a = at[1];
    const auto times = [&](real so_far, int i, int j) { return so_far * x(i, j); };
    const plain down = along(x, 0, false, times), up = along(x, 0, true, times);
    const plain chain = along(x, 0, false, [&](real so_far, int i, int j) { return a(i, j) * so_far + x(i, j); });
    real sum = 0;
    for (std::size_t n = 0; n < x.data.size(); ++n) {
      sum += down.data[n] * up.data[n] + chain.data[n] * chain.data[n] * chain.data[n];
    }
    return sum;
  };
  real sum = 0;
  for (const real one : slope(loss, in, 0).data) sum += one * one * one;
  for (const real one : slope(loss, in, 1).data) sum += one * one;
  return sum;
}

// --- every element type
// ---------------------------------------------------------------------------------------------------

template <class On> struct types {
  constexpr auto operator()(auto... each) const { return ep::results(all(each)...); }

 private:
  static constexpr auto all(auto x) {
    x = ep::shard<ep::axes<typename On::data, typename On::model>, ep::none>(x);
    const auto top = ep::results(ep::cummax<0>(x), ep::cummin<0>(x, ep::from_last));
    if constexpr (decltype(x)::type == ep::dtype::boolean) {
      return top;
    } else {
      return ep::results(ep::cumsum<0>(x), ep::cumprod<0>(x), ep::linear_recurrence<0>(x, x), top);
    }
  }
};
template <class On>
using types_program =
    ep::program<typename On::mesh, types<On>, ep::f32<6, 3>, ep::bf16<6, 3>, ep::f16<6, 3>, ep::i8<6, 3>, ep::u8<6, 3>,
                ep::i32<6, 3>, ep::u32<6, 3>, ep::i64<6, 3>, ep::boolean<6, 3>>;

plains plain_types(const plains& in) {
  plains out;
  for (std::size_t k = 0; k < in.size(); ++k) {
    const plain& x = in[k];
    if (k + 1 < in.size()) {
      out.push_back(along(x, 0, false, [&](real so_far, int i, int j) { return so_far + x(i, j); }));
      out.push_back(along(x, 0, false, [&](real so_far, int i, int j) { return so_far * x(i, j); }));
      out.push_back(along(x, 0, false, [&](real so_far, int i, int j) { return x(i, j) * so_far + x(i, j); }));
    }
    out.push_back(along(x, 0, false, [&](real so_far, int i, int j) { return std::max(so_far, x(i, j)); }));
    out.push_back(along(x, 0, true, [&](real so_far, int i, int j) { return std::min(so_far, x(i, j)); }));
  }
  return out;
}

// --- sums of 8-bit integers wrap, small floats are summed in larger ones
// ---------------------------------------------------------------

template <class On> struct rounding {
  constexpr auto operator()(auto whole, auto half) const {
    whole = ep::shard<typename On::data>(whole);
    half = ep::shard<typename On::data>(half);
    return ep::results(ep::cumsum<0>(whole), ep::cumsum<0>(half));
  }
};
template <class On> using rounding_program = ep::program<typename On::mesh, rounding<On>, ep::i8<600>, ep::bf16<600>>;

// --- what moves
// -----------------------------------------------------------------------------------------------------------

using four = on<4, 1>;
struct split_rows {
  constexpr auto operator()(auto x) const { return ep::cumsum<0>(ep::shard<four::data, ep::none>(x)); }
};
// Long rows: of each of the four parts its sums.
using sums_of_parts = ep::program<four::mesh, split_rows, ep::f32<1024, 8>>;
static_assert(sums_of_parts::collectives() == 1 && sums_of_parts::collectives<ep::all_gather>() == 1);
static_assert(sums_of_parts::bytes<ep::all_gather>() == 3 * 8 * 4);
// Short ones: the other dimension is split instead, there and back.
using other_rows = ep::program<four::mesh, split_rows, ep::f32<4, 1024>>;
static_assert(other_rows::collectives<ep::all_gather>() == 0 && other_rows::collectives<ep::all_to_all>() == 2);
// A dimension that is not split: nothing.
struct split_columns {
  constexpr auto operator()(auto x) const {
    const auto loss = [](auto y) { return ep::sum(ep::cumsum<0>(y) * ep::cummax<0>(y)); };
    return ep::grad(loss)(ep::shard<ep::none, four::data>(x));
  }
};
static_assert(ep::program<four::mesh, split_columns, ep::f32<64, 64>>::collectives() == 0);

}  // namespace

TEST_CASE("sums, products, extrema and recurrences along dimensions, and their gradients") {
  const plains in{wave(1, {7, 5}, 1.5), wave(2, {7, 5}, 1.5)};
  everywhere<sums_program>(cumulative_meshes{}, in, plain_sums(in), 1e-8);
  // A product's gradient does not divide by the elements.
  plains zeros = in;
  zeros[0](2, 3) = zeros[0](5, 3) = zeros[0](0, 0) = 0;
  const plains expected = plain_sums(zeros);
  everywhere<sums_program>(meshes<on<2, 2>>{}, zeros, expected, 1e-6);
}

TEST_CASE("gradients of gradients of products and recurrences") {
  const plains in{wave(3, {7, 3}), wave(4, {7, 3})};
  const plains expected{slope(loss_of_slopes, in, 0), slope(loss_of_slopes, in, 1)};
  everywhere<twice_program>(meshes<on<1, 1>, on<2, 2>>{}, in, expected, 1e-5);
}

TEST_CASE("cumulative functions of every element type") {
  plains in;
  for (int k = 0; k < 9; ++k) {
    plain x = indices(k + 1, {6, 3}, k == 8 ? 2 : 3);
    for (real& one : x.data) one = k == 4 || k == 6 || k == 8 ? one : one - 1;
    in.push_back(x);
  }
  everywhere<types_program>(cumulative_meshes{}, in, plain_types(in), 1e-9);
}

TEST_CASE("cumulative sums wrap around, and are rounded once") {
  const plains in{plain({600}, 1), plain({600}, 1)};
  plain wrapped({600}), rounded({600});
  for (int i = 0; i < 600; ++i) {
    wrapped(i) = (i + 1 + 128) % 256 - 128;
    rounded(i) = i + 1;
  }
  // The result has 8 bits of 600: 2^-9 of it. Added up in them, the sum would stop at 256.
  everywhere<rounding_program>(cumulative_meshes{}, in, {wrapped, rounded}, 1.0 / 256);
}
