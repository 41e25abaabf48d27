// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/tensor/run/io/xtensor.hpp>

#include <support/kinds.hpp>

#include <array>

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- integers of every size: exact, and modulo as many as there are -------------------------------------------------

template <class On> struct integers {
  constexpr auto operator()(auto a, auto b, auto c) const {
    const auto split = ep::shard<typename On::data, typename On::model>(a);
    const auto total = ep::scan([](auto sum, auto row) { return ep::results(sum + row * 3, sum); }, b, split);
    const auto grown = ep::einsum<"ij,jk->ik">(split, ep::shard<typename On::model, ep::none>(c));
    return ep::results(split + b, split * b, b - split, -split, split / b, grown, ep::sum<0>(split), ep::sum(split),
                       ep::prod<1>(split), ep::max<0>(split), ep::min(split), total, split < b,
                       ep::select(split != b, ep::maximum(split, b), split));
  }
};
template <class On, template <int...> class Tensor>
using integer_program = ep::program<typename On::mesh, integers<On>, Tensor<6, 5>, Tensor<5>, Tensor<5, 7>>;
template <class On> using u32_program = integer_program<On, ep::u32>;
template <class On> using i64_program = integer_program<On, ep::i64>;
template <class On> using i8_program = integer_program<On, ep::i8>;
template <class On> using u8_program = integer_program<On, ep::u8>;

/// Integers of any size in plain arithmetic: modulo 2^64, and so modulo every smaller power of two.
template <class T> struct modular {
  static T of(real x) { return static_cast<T>(static_cast<std::int64_t>(x)); }
  static T add(T x, T y) { return static_cast<T>(static_cast<std::uint64_t>(x) + static_cast<std::uint64_t>(y)); }
  static T multiply(T x, T y) { return static_cast<T>(static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(y)); }
  static T negate(T x) { return static_cast<T>(std::uint64_t{0} - static_cast<std::uint64_t>(x)); }
};

template <class T> plains plain_integers(const plains& in) {
  using m = modular<T>;
  const auto a = [&](int i, int j) { return m::of(in[0](i, j)); };
  const auto b = [&](int j) { return m::of(in[1](j)); };
  const auto c = [&](int j, int k) { return m::of(in[2](j, k)); };
  plain plus({6, 5}), times({6, 5}), minus({6, 5}), negative({6, 5}), quotient({6, 5}), grown({6, 7}), sums({5}), sum;
  plain products({6}), most({5}), least = plain::number(0), carry({5}), before({6, 5}), less({6, 5}), chosen({6, 5});
  sum = plain::number(0);
  T all = 0;
  T lowest = std::numeric_limits<T>::max();
  for (int i = 0; i < 6; ++i) {
    T product = 1;
    for (int j = 0; j < 5; ++j) {
      const T x = a(i, j);
      const T y = b(j);
      plus(i, j) = m::add(x, y);
      times(i, j) = m::multiply(x, y);
      minus(i, j) = m::add(y, m::negate(x));
      negative(i, j) = m::negate(x);
      quotient(i, j) = y == 0 ? T(0) : y == T(-1) && y < 0 ? m::negate(x) : static_cast<T>(x / y);
      less(i, j) = x < y ? 1 : 0;
      chosen(i, j) = x == y ? x : std::max(x, y);
      product = m::multiply(product, x);
      all = m::add(all, x);
      lowest = std::min(lowest, x);
    }
    products(i) = product;
    for (int k = 0; k < 7; ++k) {
      T cell = 0;
      for (int j = 0; j < 5; ++j) cell = m::add(cell, m::multiply(a(i, j), c(j, k)));
      grown(i, k) = cell;
    }
  }
  for (int j = 0; j < 5; ++j) {
    T column = 0;
    T highest = std::numeric_limits<T>::min();
    T state = b(j);
    for (int i = 0; i < 6; ++i) {
      column = m::add(column, a(i, j));
      highest = std::max(highest, a(i, j));
      before(i, j) = state;
      state = m::add(state, m::multiply(a(i, j), 3));
    }
    sums(j) = column;
    most(j) = highest;
    carry(j) = state;
  }
  sum.data[0] = all;
  least.data[0] = lowest;
  return {plus, times, minus, negative, quotient, grown, sums, sum, products, most, least, carry, before, less, chosen};
}

/// Whole numbers in [low, low + count).
plain whole(int seed, std::vector<std::int64_t> extents, real low, real count) {
  plain made = wave(seed, std::move(extents));
  // The wave has 24 bits: more come from the place.
  const bool is_coarse = count > 0x1p24L;
  for (std::size_t i = 0; i < made.data.size(); ++i) {
    real& one = made.data[i];
    one = low + std::floor((one + 1) / 2 * (is_coarse ? count - 256 : count));
    if (is_coarse) one += static_cast<real>((i * 37 + 11) % 251);
  }
  return made;
}

// --- indices of every type of integer -------------------------------------------------------------------------------

template <class On> struct lookups {
  constexpr auto operator()(auto table, auto i, auto j, auto k, auto logits) const {
    const auto rows = ep::shard<typename On::data, typename On::model>(table);
    return ep::results(ep::gather<0>(rows, i), ep::gather<0>(rows, ep::shard<typename On::model>(j)),
                       ep::gather<1>(rows, k), ep::one_hot<300, ep::dtype::f16>(k),
                       ep::nn::cross_entropy_each(ep::shard<typename On::data, typename On::model>(logits), j));
  }
};
template <class On>
using lookup_program =
    ep::program<typename On::mesh, lookups<On>, ep::f64<9, 6>, ep::i64<4>, ep::u32<5>, ep::i8<3>, ep::f64<5, 9>>;

// --- f16: stored in 16 bits, computed in 32 -------------------------------------------------------------------------

template <class On> struct f16_training {
  constexpr auto operator()(auto w, auto bias, auto x) const {
    const auto loss = [&](const auto& p) {
      const auto split = ep::shard<typename On::data, ep::none>(x);
      const auto h = ep::tanh(ep::matmul(split, ep::shard<ep::none, typename On::model>(p.template get<0>())) +
                              p.template get<1>());
      return ep::mean(ep::convert<ep::dtype::f32>(h * h)) + ep::convert<ep::dtype::f32>(ep::sum(p.template get<1>()));
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(w, bias));
    return ep::results(value, gradient);
  }
};
template <class On>
using f16_program = ep::program<typename On::mesh, f16_training<On>, ep::f16<6, 5>, ep::f16<5>, ep::f16<7, 6>>;

real plain_f16(const plains& in) {
  const plain &w = in[0], &bias = in[1], &x = in[2];
  real total = 0;
  for (int j = 0; j < 5; ++j) {
    for (int i = 0; i < 7; ++i) {
      real sum = bias(j);
      for (int k = 0; k < 6; ++k) sum += x(i, k) * w(k, j);
      total += std::tanh(sum) * std::tanh(sum) / 35;
    }
    total += bias(j);
  }
  return total;
}

/// 3000 ones are 3000, in all rows and between devices, where f16 counts to 2048 only.
template <class On> struct long_sums {
  constexpr auto operator()(auto x) const {
    const auto split = ep::shard<typename On::data, typename On::model>(x);
    return ep::results(ep::sum<0>(split), ep::sum<1>(split), ep::sum(split), ep::max<0>(split));
  }
};
template <class On> using sums_program = ep::program<typename On::mesh, long_sums<On>, ep::f16<3000, 3>>;

// --- in and out through xtensor -------------------------------------------------------------------------------------

template <class On> struct doubled {
  constexpr auto operator()(auto x, auto y, auto z) const {
    return ep::results(ep::shard<typename On::data, typename On::model>(x) * 2.0,
                       ep::shard<typename On::model, ep::none>(y) + y, z + z);
  }
};
template <class On>
using doubled_program = ep::program<typename On::mesh, doubled<On>, ep::f16<5, 3>, ep::i64<3, 2>, ep::u32<4>>;

template <class Program> void doubles_xtensors() {
  ep::world world(Program::mesh::value);
  ep::runner<Program> run(world);
  auto x = run.template argument<0>();
  auto y = run.template argument<1>();
  auto z = run.template argument<2>();
  xt::xtensor<float, 2> floats(std::array<std::size_t, 2>{5, 3});
  xt::xtensor<std::int64_t, 2> longs(std::array<std::size_t, 2>{3, 2});
  xt::xtensor<std::uint32_t, 1> naturals(std::array<std::size_t, 1>{4});
  for (std::size_t i = 0; i < 15; ++i) floats.storage()[i] = static_cast<float>(i) * 0.25F;
  for (std::size_t i = 0; i < 6; ++i) longs.storage()[i] = (std::int64_t{1} << 60) + static_cast<std::int64_t>(i);
  for (std::size_t i = 0; i < 4; ++i) naturals.storage()[i] = 0x80000001U + static_cast<std::uint32_t>(i);
  ep::scatter(floats, x);
  ep::scatter(longs, y);
  ep::scatter(naturals, z);
  const auto& results = run(x, y, z);
  const auto twice_x = ep::gather_xtensor(world, results.template get<0>());
  const auto twice_y = ep::gather_xtensor(world, results.template get<1>());
  const auto twice_z = ep::gather_xtensor(world, results.template get<2>());
  for (std::size_t i = 0; i < 15; ++i) CHECK(static_cast<float>(twice_x.storage()[i]) == static_cast<float>(i) * 0.5F);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(twice_y.storage()[i] == (std::int64_t{1} << 61) + 2 * static_cast<std::int64_t>(i));
  }
  for (std::size_t i = 0; i < 4; ++i) CHECK(twice_z.storage()[i] == 2 + 2 * static_cast<std::uint32_t>(i));
}

}  // namespace

TEST_CASE("kinds: integers of every size, exact where they fit and modulo where they do not", "[kinds]") {
  const plains small{whole(1, {6, 5}, 0, 5), whole(2, {5}, 0, 4), whole(3, {5, 7}, 0, 3)};
  const plains large{whole(1, {6, 5}, 0, 0x1p32L), whole(2, {5}, 1, 0x1p31L), whole(3, {5, 7}, 0, 0x1p32L)};
  // Far beyond what a double holds exactly.
  const plains huge{whole(1, {6, 5}, -0x1p62L, 0x1p63L), whole(2, {5}, -0x1p61L, 0x1p62L),
                    whole(3, {5, 7}, -0x1p62L, 0x1p63L)};
  const plains tiny{whole(1, {6, 5}, -128, 256), whole(2, {5}, -128, 256), whole(3, {5, 7}, -128, 256)};
  everywhere<u32_program>(both_ways{}, small, plain_integers<std::uint32_t>(small), 0);
  everywhere<u32_program>(both_ways{}, large, plain_integers<std::uint32_t>(large), 0);
  everywhere<i64_program>(both_ways{}, huge, plain_integers<std::int64_t>(huge), 0);
  everywhere<i8_program>(both_ways{}, small, plain_integers<std::int8_t>(small), 0);
  everywhere<u8_program>(both_ways{}, small, plain_integers<std::uint8_t>(small), 0);
  everywhere<i8_program>(both_ways{}, tiny, plain_integers<std::int8_t>(tiny), 0);
}

TEST_CASE("kinds: indices of every type of integer", "[kinds]") {
  plains in{wave(1, {9, 6}), indices(2, {4}, 9), indices(3, {5}, 9), indices(4, {3}, 6), wave(5, {5, 9})};
  in[1](2) = -1;
  in[1](3) = 0x1p32L + 3;  // no row 3 of any table
  plain first({4, 6}), second({5, 6}), third({9, 3}), hot({3, 300}), entropy({5});
  for (int n = 0; n < 4; ++n) {
    for (int j = 0; j < 6; ++j) first(n, j) = n < 2 ? in[0](static_cast<int>(in[1](n)), j) : 0;
  }
  for (int n = 0; n < 5; ++n) {
    const int row = static_cast<int>(in[2](n));
    for (int j = 0; j < 6; ++j) second(n, j) = in[0](row, j);
    real sum = 0;
    for (int c = 0; c < 9; ++c) sum += std::exp(in[4](n, c));
    entropy(n) = std::log(sum) - in[4](n, row);
  }
  for (int n = 0; n < 3; ++n) {
    const int column = static_cast<int>(in[3](n));
    for (int i = 0; i < 9; ++i) third(i, n) = in[0](i, column);
    hot(n, column) = 1;
  }
  everywhere<lookup_program>(both_ways{}, in, {first, second, third, hot, entropy});
}

TEST_CASE("kinds: training in f16, and long sums", "[kinds]") {
  plains in{wave(1, {6, 5}), wave(2, {5}), wave(3, {7, 6})};
  for (plain& one : in) {
    for (real& number : one.data) number = std::round(number * 512) / 512;  // what f16 holds exactly
  }
  everywhere<f16_program>(both_ways{}, in, value_and_slopes(plain_f16, in, 2), 4e-3);
  const plain ones({3000, 3}, 1);
  everywhere<sums_program>(both_ways{}, {ones},
                           {plain({3}, 3000), plain({3000}, 3), plain::number(9000), plain({3}, 1)}, 0);
}

TEST_CASE("kinds: xtensors of f16, i64 and u32 come in and out", "[kinds]") {
  doubles_xtensors<doubled_program<on<1, 1>>>();
  doubles_xtensors<doubled_program<on<2, 2>>>();
}
