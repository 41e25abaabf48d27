// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

// Stencils whose chains read neighbouring rows and columns where they are, sums that go row by row, and carries of
// loops that are computed in place.

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- neighbours, circles and an inner part, with their gradient ------------------------------------------------------

constexpr int height = 13;
constexpr int width = 70;

constexpr auto around(const auto& x) {
  return ep::shift<0, 1>(x) + 2.0 * ep::shift<0, -1>(x) - ep::shift<1, 1>(x) - 3.0 * ep::shift<1, -2>(x);
}

template <class On> struct neighbours {
  constexpr auto operator()(auto start, auto weight) const {
    const auto loss = [&](const auto& x0) {
      const auto x = ep::shard<typename On::data, typename On::model>(x0);
      const auto turned = ep::roll<0, 3>(x) * ep::roll<1, -5>(ep::roll<0, -1>(x)) + around(x) * weight;
      const auto inner = ep::slice<0, 1, height - 1>(ep::slice<1, 2, width - 1>(turned));
      const auto other = ep::slice<0, 2, height>(ep::slice<1, 0, width - 3>(x));
      return ep::sum(turned * turned) + ep::sum(inner * other * other);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(start);
    return ep::results(value, gradient);
  }
};
template <class On>
using neighbours_program =
    ep::program<typename On::mesh, neighbours<On>, ep::f64<height, width>, ep::f64<height, width>>;

real at(const plain& x, int i, int j) { return i < 0 || j < 0 || i >= x.size(0) || j >= x.size(1) ? 0 : x(i, j); }
real plain_around(const plain& x, int i, int j) {
  return at(x, i - 1, j) + 2 * at(x, i + 1, j) - at(x, i, j - 1) - 3 * at(x, i, j + 2);
}
real plain_neighbours(const plains& in) {
  const plain& x = in[0];
  const auto turned = [&](int i, int j) {
    return x((i + height - 3) % height, j) * x((i + 1) % height, (j + 5) % width) + plain_around(x, i, j) * in[1](i, j);
  };
  real sum = 0;
  for (int i = 0; i < height; ++i) {
    for (int j = 0; j < width; ++j) sum += turned(i, j) * turned(i, j);
  }
  for (int i = 0; i < height - 2; ++i) {
    for (int j = 0; j < width - 3; ++j) sum += turned(i + 1, j + 2) * x(i + 2, j) * x(i + 2, j);
  }
  return sum;
}

// --- the same in one dimension, and in three, with other types -------------------------------------------------------

template <class On> struct other_ranks {
  constexpr auto operator()(auto line, auto space, auto flags) const {
    const auto l = ep::shard<typename On::data>(line);
    const auto s = ep::shard<typename On::model, typename On::data, ep::none>(space);
    const auto f = ep::shard<ep::none, typename On::data>(flags);
    return ep::results(ep::shift<0, 2>(l) - ep::roll<0, 1>(l),
                       ep::shift<0, 1>(ep::shift<1, -1>(ep::shift<2, 1>(s))) + s,
                       ep::shift<1, 1>(ep::shift<0, -1>(f)) + ep::shift<1, -1>(f));
  }
};
template <class On>
using other_ranks_program =
    ep::program<typename On::mesh, other_ranks<On>, ep::f32<1100>, ep::i32<5, 6, 7>, ep::bf16<3, 11>>;

// --- sums, and others, over all elements -----------------------------------------------------------------------------

template <class On> struct whole {
  constexpr auto operator()(auto sixteen, auto integers, auto floats) const {
    const auto s = ep::shard<typename On::data, ep::none>(sixteen);
    const auto i = ep::shard<typename On::data, typename On::model>(integers);
    const auto f = ep::shard<typename On::model, typename On::data, ep::none>(floats);
    const auto square = [](const auto& v) { return ep::sum(v * v); };
    const auto [value, gradient] = ep::value_and_grad(square)(f);
    return ep::results(ep::sum(s * s), ep::sum(i * i), ep::max(i * 3), ep::min(i - 5), ep::prod(f * f), ep::max(-f),
                       value, gradient);
  }
};
template <class On>
using whole_program = ep::program<typename On::mesh, whole<On>, ep::bf16<20, 80>, ep::i32<9, 128>, ep::f64<3, 5, 64>>;

// --- carries that are computed in place, and some that must not be ---------------------------------------------------

constexpr int times = 5;

template <class On> struct carries {
  constexpr auto operator()(auto start, auto field) const {
    const auto rows = [](const auto& v) { return ep::shard<typename On::data, typename On::model>(v); };
    // x and d are read for the last time where their next values are made; r goes through the neighbours of d.
    const auto descend = [](const auto& s) {
      const auto [x, r, d] = s;
      const auto next = r - 0.05 * around(d);
      const auto share = 0.001 * ep::sum(next * next);
      return ep::results(x + 0.1 * d, next, next + share * d);
    };
    // a and b change places; c is read with a shift where it is made; e is read after its next value.
    const auto exchange = [](const auto& s) {
      const auto [a, b, c, e] = s;
      const auto next = 0.5 * e + a;
      const auto sum = ep::sum(next * next);
      return ep::results(b, a, c + 0.25 * ep::shift<0, 1>(c), next + 0.01 * sum + 0.125 * ep::shift<1, -1>(e));
    };
    const auto first = ep::repeat<times>(descend, ep::results(rows(start), rows(field), rows(start * field)));
    const auto& r = first.template get<1>();
    const auto [a, b, c, e] = ep::repeat<times>(exchange, ep::results(rows(start), rows(field), r, r));
    return ep::results(first, a, b, c, e);
  }
};
template <class On>
using carries_program =
    ep::program<typename On::mesh, carries<On>, ep::donated<ep::f64<height, width>>, ep::f64<height, width>>;

plains plain_carries(const plains& in) {
  const plain none({height, width});
  plain x = in[0], r = in[1], d = none;
  for (std::size_t n = 0; n < d.data.size(); ++n) d.data[n] = in[0].data[n] * in[1].data[n];
  const auto square = [](const plain& v) {
    real sum = 0;
    for (const real one : v.data) sum += one * one;
    return sum;
  };
  for (int t = 0; t < times; ++t) {
    for (int i = 0; i < height; ++i) {
      for (int j = 0; j < width; ++j) {
        x(i, j) += 0.1L * d(i, j);
        r(i, j) -= 0.05L * plain_around(d, i, j);
      }
    }
    const real share = 0.001L * square(r);
    for (std::size_t n = 0; n < d.data.size(); ++n) d.data[n] = r.data[n] + share * d.data[n];
  }
  plain a = in[0], b = in[1], c = r, e = r;
  for (int t = 0; t < times; ++t) {
    plain next = none, smooth = none, moved = none;
    for (int i = 0; i < height; ++i) {
      for (int j = 0; j < width; ++j) {
        next(i, j) = e(i, j) / 2 + a(i, j);
        smooth(i, j) = c(i, j) + at(c, i - 1, j) / 4;
      }
    }
    const real sum = square(next);
    for (int i = 0; i < height; ++i) {
      for (int j = 0; j < width; ++j) moved(i, j) = next(i, j) + 0.01L * sum + at(e, i, j + 1) / 8;
    }
    std::swap(a, b);
    c = smooth;
    e = moved;
  }
  return {x, r, d, a, b, c, e};
}

}  // namespace

TEST_CASE("kinds: neighbours, circles and an inner part are read where they are", "[kinds]") {
  const plains in{wave(1, {height, width}), wave(2, {height, width})};
  everywhere<neighbours_program>(both_ways{}, in, value_and_slopes(plain_neighbours, in, 1), 1e-8);
}

TEST_CASE("kinds: shifts in one dimension and in three, of integers and bf16", "[kinds]") {
  const plains in{wave(1, {1100}), indices(2, {5, 6, 7}, 1000), indices(3, {3, 11}, 100)};
  plain line({1100}), space({5, 6, 7}), flags({3, 11});
  for (int i = 0; i < 1100; ++i) line(i) = (i < 2 ? 0 : in[0](i - 2)) - in[0]((i + 1099) % 1100);
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 6; ++j) {
      for (int k = 0; k < 7; ++k)
        space(i, j, k) = (i > 0 && j < 5 && k > 0 ? in[1](i - 1, j + 1, k - 1) : 0) + in[1](i, j, k);
    }
  }
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 11; ++j) flags(i, j) = at(in[2], i + 1, j - 1) + at(in[2], i, j + 1);
  }
  everywhere<other_ranks_program>(both_ways{}, in, {line, space, flags}, 1e-6);
}

TEST_CASE("kinds: sums and others over all elements of rows", "[kinds]") {
  plains in{plain({20, 80}), indices(2, {9, 128}, 20000), wave(3, {3, 5, 64})};
  // The squares of a row add up to 257, which is no bf16; twenty times that is rounded once.
  for (int i = 0; i < 20; ++i) {
    for (int j = 0; j < 80; ++j) in[0](i, j) = j < 25 ? 2 : j < 25 + 13 ? 3 : j < 25 + 13 + 40 ? 1 : 0;
  }
  REQUIRE(25 * 4 + 13 * 9 + 40 == 257);
  std::int32_t integers = 0;
  real largest = -1e9L, least = 1e9L, product = 1, low = 1e9L, squares = 0;
  for (const real one : in[1].data) {
    integers = static_cast<std::int32_t>(static_cast<std::uint32_t>(integers) +
                                         static_cast<std::uint32_t>(one) * static_cast<std::uint32_t>(one));
    largest = std::max(largest, 3 * one);
    least = std::min(least, one - 5);
  }
  for (real& one : in[2].data) one = one < 0 ? one - 0.5L : one + 0.5L;  // so that the product is no zero
  for (const real one : in[2].data) {
    product *= one * one;
    low = std::min(low, one);
    squares += one * one;
  }
  plain slopes = in[2];
  for (real& one : slopes.data) one *= 2;
  everywhere<whole_program>(both_ways{}, in,
                            {plain::number(5152), plain::number(integers), plain::number(largest), plain::number(least),
                             plain::number(product), plain::number(-low), plain::number(squares), slopes},
                            1e-9);
}

TEST_CASE("kinds: carries in their places, exchanged, shifted, and read later", "[kinds]") {
  const plains in{wave(4, {height, width}), wave(5, {height, width})};
  everywhere<carries_program>(both_ways{}, in, plain_carries(in), 1e-9);
}
