// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

#include <cmath>

/// Einsums with diagonals, traces, ellipses and many operands.
namespace ep = espalier;
using namespace testing::kinds;

namespace {

using einsum_meshes = few_or_all<meshes<on<1, 2>, on<2, 2>>, meshes<on<1, 1>, on<2, 1>, on<1, 2>, on<2, 2>>>;

// --- diagonals
// --------------------------------------------------------------------------------------------------------

template <class On> struct diagonals {
  constexpr auto operator()(auto square, auto batch, auto cube, auto whole) const {
    using data = typename On::data;
    using model = typename On::model;
    square = ep::shard<data, model>(square);  // 5 x 5: uneven
    batch = ep::shard<ep::none, data, model>(batch);
    whole = ep::shard<model, data>(whole);
    const auto loss = [](auto s, auto b, auto c) {
      const auto diagonal = ep::einsum<"ii->i">(s);
      const auto traces = ep::einsum<"bii->b">(b);
      const auto product = ep::einsum<"ii,ij,j->i">(s, s, diagonal);
      return ep::results(ep::sum(diagonal * diagonal * diagonal) + ep::sum(traces * traces) + ep::sum(product) +
                             ep::einsum<"iii->">(c * c),
                         diagonal, ep::einsum<"ii->">(s), traces, ep::einsum<"ibi->ib">(c), product);
    };
    const auto [value, by] = ep::value_and_grad<0, 1, 2>(loss)(square, batch, cube);
    const auto [total, diagonal, trace, traces, rows, product] = value;
    const auto [by_square, by_batch, by_cube] = by;
    return ep::results(total, diagonal, trace, traces, rows, product, by_square, by_batch, by_cube,
                       ep::einsum<"ii->i">(whole), ep::einsum<"jj,jk->k">(whole, whole));
  }
};
template <class On>
using diagonals_program =
    ep::program<typename On::mesh, diagonals<On>, ep::f64<5, 5>, ep::f64<3, 5, 5>, ep::f64<3, 3, 3>, ep::i32<5, 5>>;

real diagonals_loss(const plains& in) {
  const plain &s = in[0], &b = in[1], &c = in[2];
  real sum = 0;
  for (int i = 0; i < 5; ++i) {
    sum += s(i, i) * s(i, i) * s(i, i);
    for (int j = 0; j < 5; ++j) sum += s(i, i) * s(i, j) * s(j, j);
  }
  for (int n = 0; n < 3; ++n) {
    real trace = 0;
    for (int i = 0; i < 5; ++i) trace += b(n, i, i);
    sum += trace * trace + c(n, n, n) * c(n, n, n);
  }
  return sum;
}
plains plain_diagonals(const plains& in) {
  const plain &s = in[0], &b = in[1], &c = in[2], &w = in[3];
  plain diagonal({5}), traces({3}), rows({3, 3}), product({5}), whole({5}), columns({5});
  real trace = 0;
  for (int i = 0; i < 5; ++i) {
    diagonal(i) = s(i, i);
    trace += s(i, i);
    whole(i) = w(i, i);
    for (int j = 0; j < 5; ++j) {
      product(i) += s(i, i) * s(i, j) * s(j, j);
      columns(i) += w(j, j) * w(j, i);
    }
    for (int n = 0; n < 3; ++n) traces(n) += b(n, i, i);
  }
  for (int i = 0; i < 3; ++i) {
    for (int n = 0; n < 3; ++n) rows(i, n) = c(i, n, i);
  }
  plains out = {plain::number(diagonals_loss(in)), diagonal, plain::number(trace), traces, rows, product};
  for (std::size_t k = 0; k < 3; ++k) out.push_back(slope(diagonals_loss, in, k));
  out.push_back(whole);
  out.push_back(columns);
  return out;
}

// --- ellipses
// ---------------------------------------------------------------------------------------------------------

template <class On> struct ellipses {
  constexpr auto operator()(auto a, auto b, auto v) const {
    using data = typename On::data;
    using model = typename On::model;
    a = ep::shard<data, ep::none, ep::none, model>(a);
    b = ep::shard<ep::none, ep::none, model>(b);
    const auto loss = [](auto x, auto y, auto z) {
      const auto product = ep::einsum<"...ij,...jk->...ik">(x, y);  // [3, 1, 5, 7] and [2, 7, 4]
      const auto last = ep::einsum<"i...->...i">(z);
      const auto whole = ep::einsum<"...,...->...">(z, x);  // [7] or so, along the last dimension
      return ep::results(ep::sum(product * product) + ep::sum(whole * whole * whole), product,
                         ep::einsum<"...i,i...->...">(x, last), whole);
    };
    const auto [value, by] = ep::value_and_grad<0, 1, 2>(loss)(a, b, v);
    const auto [total, product, ends, whole] = value;
    const auto [by_a, by_b, by_v] = by;
    return ep::results(total, product, ends, whole, by_a, by_b, by_v);
  }
};
template <class On>
using ellipses_program =
    ep::program<typename On::mesh, ellipses<On>, ep::f64<3, 1, 5, 7>, ep::f64<2, 7, 4>, ep::f64<7>>;

plain batched(const plains& in) {
  plain made({3, 2, 5, 4});
  for (int n = 0; n < 3; ++n) {
    for (int m = 0; m < 2; ++m) {
      for (int i = 0; i < 5; ++i) {
        for (int k = 0; k < 4; ++k) {
          for (int j = 0; j < 7; ++j) made(n, m, i, k) += in[0](n, 0, i, j) * in[1](m, j, k);
        }
      }
    }
  }
  return made;
}
real ellipses_loss(const plains& in) {
  real sum = 0;
  for (const real one : batched(in).data) sum += one * one;
  for (std::size_t n = 0; n < in[0].data.size(); ++n) {
    const real one = in[0].data[n] * in[2].data[n % 7];
    sum += one * one * one;
  }
  return sum;
}
plains plain_ellipses(const plains& in) {
  plain ends({3, 1, 5}), whole({3, 1, 5, 7});
  for (std::size_t n = 0; n < in[0].data.size(); ++n) {
    whole.data[n] = in[0].data[n] * in[2].data[n % 7];
    ends.data[n / 7] += whole.data[n];
  }
  plains out = {plain::number(ellipses_loss(in)), batched(in), ends, whole};
  for (std::size_t k = 0; k < 3; ++k) out.push_back(slope(ellipses_loss, in, k));
  return out;
}

// --- eight operands
// ---------------------------------------------------------------------------------------------------

template <class On> struct chain_of_eight {
  constexpr auto operator()(auto a, auto b, auto c, auto d, auto e, auto f, auto g, auto h) const {
    a = ep::shard<typename On::data, ep::none>(a);
    d = ep::shard<typename On::model, ep::none>(d);
    const auto loss = [](auto... each) {
      const auto product = ep::einsum<"ab,bc,cd,de,ef,fg,gh,h->a">(each...);
      return ep::results(ep::sum(product * product), product);
    };
    const auto [value, by] = ep::value_and_grad<0, 3, 7>(loss)(a, b, c, d, e, f, g, h);
    const auto [total, product] = value;
    const auto [by_a, by_d, by_h] = by;
    return ep::results(total, product, by_a, by_d, by_h);
  }
};
template <class On>
using chain_of_eight_program =
    ep::program<typename On::mesh, chain_of_eight<On>, ep::f64<5, 3>, ep::f64<3, 4>, ep::f64<4, 2>, ep::f64<2, 5>,
                ep::f64<5, 3>, ep::f64<3, 3>, ep::f64<3, 7>, ep::f64<7>>;

plain chain_product(const plains& in) {
  plain v = in[7];
  for (std::size_t k = 7; k-- > 0;) {
    plain next({in[k].extents[0]});
    for (int i = 0; i < in[k].size(0); ++i) {
      for (int j = 0; j < in[k].size(1); ++j) next(i) += in[k](i, j) * v(j);
    }
    v = next;
  }
  return v;
}
real chain_loss(const plains& in) {
  real sum = 0;
  for (const real one : chain_product(in).data) sum += one * one;
  return sum;
}

// --- the order of the products
// ----------------------------------------------------------------------------------------

// Matrices times a vector: from the vector's end n products of a matrix and a vector, from the left n products of
// matrices, 64 times the work.
struct vector_last {
  constexpr auto operator()(auto a, auto b, auto c, auto v) const { return ep::einsum<"ab,bc,cd,d->a">(a, b, c, v); }
};
using square = ep::f32<64, 64>;
using one_device = on<1, 1>::mesh;
static_assert(ep::program<one_device, vector_last, square, square, square, ep::f32<64>>::flops() == 3 * 2 * 64 * 64);
// The middle is small: outwards from there.
struct thin_middle {
  constexpr auto operator()(auto a, auto b, auto c, auto d) const { return ep::einsum<"ab,bc,cd,de->ae">(a, b, c, d); }
};
static_assert(ep::program<one_device, thin_middle, square, ep::f32<64, 2>, ep::f32<2, 64>, square>::flops() ==
              3 * 2 * 64 * 64 * 2);
// Nine letters in one product; what lies between would have more than eight dimensions in another order.
struct many_letters {
  constexpr auto operator()(auto a, auto b, auto c) const {
    return ep::einsum<"abcdefgx,abcdefxy,yg->abcdefg">(a, b, c);
  }
};
static_assert(ep::program<one_device, many_letters, ep::f32<2, 1, 2, 1, 2, 1, 2, 3>, ep::f32<2, 1, 2, 1, 2, 1, 3, 2>,
                          ep::f32<2, 2>>::collectives() == 0);

template <class On> struct nine_letters {
  constexpr auto operator()(auto a, auto b) const {
    a = ep::shard<typename On::data, typename On::model, ep::none, ep::none, ep::none, ep::none, ep::none, ep::none>(a);
    return ep::einsum<"abcdefgx,abcdefxy->abcdefgy">(a, b);
  }
};
template <class On>
using nine_letters_program =
    ep::program<typename On::mesh, nine_letters<On>, ep::f64<3, 2, 1, 2, 1, 1, 2, 3>, ep::f64<3, 2, 1, 2, 1, 1, 3, 2>>;
plain plain_nine_letters(const plains& in) {
  plain made({3, 2, 1, 2, 1, 1, 2, 2});
  for (std::size_t n = 0; n < 12; ++n) {
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t j = 0; j < 2; ++j) {
        for (std::size_t k = 0; k < 3; ++k) {
          made.data[n * 4 + i * 2 + j] += in[0].data[n * 6 + i * 3 + k] * in[1].data[n * 6 + k * 2 + j];
        }
      }
    }
  }
  return made;
}

// --- matrix products of any ranks
// ----------------------------------------------------------------------------------------

template <class On> struct products {
  constexpr auto operator()(auto a, auto b, auto v, auto w, auto whole, auto ones) const {
    using data = typename On::data;
    using model = typename On::model;
    a = ep::shard<data, ep::none, model, ep::none>(a);
    b = ep::shard<ep::none, ep::none, model>(b);
    whole = ep::shard<ep::none, data>(whole);
    const auto loss = [](auto m, auto n, auto x, auto y) {
      const auto product = ep::matmul(m, n);  // [3, 1, 5, 7] and [2, 7, 4]
      const auto rows = ep::matmul(x, n);     // [7] and [2, 7, 4]
      const auto columns = ep::matmul(m, x);
      const auto first = ep::take<0, 0>(rows);
      const auto number = ep::matmul(ep::matmul(first, y), first);
      return ep::results(ep::sum(product * product) + ep::sum(columns * columns) + number * number, product, rows,
                         columns, number);
    };
    const auto [value, by] = ep::value_and_grad<0, 1, 2, 3>(loss)(a, b, v, w);
    return ep::results(value, by, ep::matmul(whole, ones));
  }
};
template <class On>
using products_program = ep::program<typename On::mesh, products<On>, ep::f64<3, 1, 5, 7>, ep::f64<2, 7, 4>, ep::f64<7>,
                                     ep::f64<4, 4>, ep::i8<4, 5>, ep::i8<5>>;

real products_loss(const plains& in, plain& product, plain& rows, plain& columns, real& number) {
  product = batched(in);
  rows = plain({2, 4});
  columns = plain({3, 1, 5});
  for (int i = 0; i < 7; ++i) {
    for (int k = 0; k < 4; ++k) {
      for (int m = 0; m < 2; ++m) rows(m, k) += in[2](i) * in[1](m, i, k);
    }
    for (int n = 0; n < 3; ++n) {
      for (int j = 0; j < 5; ++j) columns(n, 0, j) += in[0](n, 0, j, i) * in[2](i);
    }
  }
  number = 0;
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 4; ++k) number += rows(0, i) * in[3](i, k) * rows(0, k);
  }
  real sum = number * number;
  for (const real one : product.data) sum += one * one;
  for (const real one : columns.data) sum += one * one;
  return sum;
}
plains plain_products(const plains& in) {
  plain product, rows, columns, whole({4});
  real number = 0;
  const auto loss = [&](const plains& at) { return products_loss(at, product, rows, columns, number); };
  plains out{plain::number(loss(in)), product, rows, columns, plain::number(number)};
  for (std::size_t k = 0; k < 4; ++k) out.push_back(slope(loss, in, k));
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 5; ++k) whole(i) += in[4](i, k) * in[5](k);
  }
  out.push_back(whole);
  return out;
}

}  // namespace

TEST_CASE("a letter twice in an operand is its diagonal, or the trace") {
  const plains in{wave(1, {5, 5}), wave(2, {3, 5, 5}), wave(3, {3, 3, 3}), indices(4, {5, 5}, 9)};
  everywhere<diagonals_program>(einsum_meshes{}, in, plain_diagonals(in));
}

TEST_CASE("an ellipsis stands for dimensions that broadcast") {
  const plains in{wave(5, {3, 1, 5, 7}), wave(6, {2, 7, 4}), wave(7, {7})};
  everywhere<ellipses_program>(einsum_meshes{}, in, plain_ellipses(in));
}

TEST_CASE("an einsum of eight operands") {
  const plains in{wave(1, {5, 3}), wave(2, {3, 4}), wave(3, {4, 2}), wave(4, {2, 5}),
                  wave(5, {5, 3}), wave(6, {3, 3}), wave(7, {3, 7}), wave(8, {7})};
  const plains expected{plain::number(chain_loss(in)), chain_product(in), slope(chain_loss, in, 0),
                        slope(chain_loss, in, 3), slope(chain_loss, in, 7)};
  everywhere<chain_of_eight_program>(einsum_meshes{}, in, expected);
}

TEST_CASE("an einsum of nine letters") {
  const plains in{wave(1, {3, 2, 1, 2, 1, 1, 2, 3}), wave(2, {3, 2, 1, 2, 1, 1, 3, 2})};
  everywhere<nine_letters_program>(einsum_meshes{}, in, {plain_nine_letters(in)});
}

TEST_CASE("matrix products of vectors, and of batches that broadcast") {
  const plains in{wave(1, {3, 1, 5, 7}), wave(2, {2, 7, 4}),    wave(3, {7}),
                  wave(4, {4, 4}),       indices(5, {4, 5}, 5), indices(6, {5}, 5)};
  everywhere<products_program>(einsum_meshes{}, in, plain_products(in));
}
