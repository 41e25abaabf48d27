// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

#include <cstdint>
#include <limits>

/// Arithmetic of integers, with numbers of any type, and `+=`.
namespace ep = espalier;
using namespace testing::kinds;

namespace {

using integer_meshes = few_or_all<meshes<on<1, 2>, on<2, 2>>, meshes<on<1, 1>, on<2, 1>, on<1, 2>, on<2, 2>>>;

template <class On> struct whole_numbers {
  constexpr auto operator()(auto... each) const { return ep::results(all(each)...); }

 private:
  static constexpr auto all(auto x) {
    x = ep::shard<typename On::data, typename On::model>(x);  // 5 x 3: uneven
    const auto y = x + 5;
    auto sum = x * y;
    sum += ep::take<0, 1>(x);
    sum -= 2;
    return ep::results((x & 6) | (y ^ 3), ~x, (y << 1) >> 2, x % 4, y / 3, sum, ep::maximum(x, 2U) * short{3});
  }
};
template <class On>
using whole_numbers_program = ep::program<typename On::mesh, whole_numbers<On>, ep::i32<5, 3>, ep::u32<5, 3>,
                                          ep::i8<5, 3>, ep::u8<5, 3>, ep::i64<5, 3>>;

/// Computes as C++ does in the element type T, where nothing is wider than T.
template <class T> void plain_whole(const plain& x, plains& out) {
  plains made(7, x);
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 3; ++j) {
      const auto a = static_cast<T>(x(i, j));
      const auto b = static_cast<T>(a + T{5});
      const auto set = [&](std::size_t k, auto value) { made[k](i, j) = static_cast<real>(static_cast<T>(value)); };
      set(0, (a & T{6}) | (b ^ T{3}));
      set(1, ~a);
      set(2, static_cast<T>(b << 1) >> 2);
      set(3, a % T{4});
      set(4, b / T{3});
      set(5, a * b + static_cast<T>(x(1, j)) - T{2});
      set(6, (a > T{2} ? a : T{2}) * T{3});
    }
  }
  out.insert(out.end(), made.begin(), made.end());
}

template <class On> struct large_numbers {
  constexpr auto operator()(auto x) const {
    x = ep::shard<typename On::data>(x);
    constexpr std::int64_t odd = 9007199254740993;  // 2^53 + 1: no double
    const auto large = x + odd;
    return ep::results(large - 9007199254740990, large % 10, large > odd, ep::select(x > 1, large, -odd) + odd,
                       x - std::numeric_limits<std::int64_t>::max() + 9223372036854775800, large >> 50);
  }
};
template <class On> using large_numbers_program = ep::program<typename On::mesh, large_numbers<On>, ep::i64<5>>;

template <class On> struct truth {
  constexpr auto operator()(auto a, auto b) const {
    a = ep::shard<typename On::data>(a);
    return ep::results(a & b, a | b, a ^ b, ~a, a && !b, ep::convert<ep::dtype::f32>(a) * 2.5L + 'a' + 1ULL);
  }
};
template <class On> using truth_program = ep::program<typename On::mesh, truth<On>, ep::boolean<5>, ep::boolean<5>>;

}  // namespace

TEST_CASE("integers compute as C++'s do") {
  plains in;
  plains expected;
  for (int k = 0; k < 5; ++k) {
    plain x = indices(k + 1, {5, 3}, 40);
    if (k % 2 == 0 && k != 1) {
      for (real& one : x.data) one -= 20;
    }
    in.push_back(x);
  }
  plain_whole<std::int32_t>(in[0], expected);
  plain_whole<std::uint32_t>(in[1], expected);
  plain_whole<std::int8_t>(in[2], expected);
  plain_whole<std::uint8_t>(in[3], expected);
  plain_whole<std::int64_t>(in[4], expected);
  everywhere<whole_numbers_program>(integer_meshes{}, in, expected, 0);
}

TEST_CASE("integers of 64 bits take numbers that no double is") {
  plain x({5});
  for (int i = 0; i < 5; ++i) x(i) = i;
  plain difference({5}), digit({5}), above({5}), chosen({5}), low({5}), high({5}, 8);
  for (int i = 0; i < 5; ++i) {
    difference(i) = i + 3;
    digit(i) = (3 + i) % 10;
    above(i) = i > 0 ? 1 : 0;
    chosen(i) = i > 1 ? static_cast<real>(2 * 9007199254740993 + i) : 0;
    low(i) = i - 7;
  }
  everywhere<large_numbers_program>(integer_meshes{}, {x}, {difference, digit, above, chosen, low, high}, 0);
}

TEST_CASE("operators of truth values") {
  const plains in{indices(1, {5}, 2), indices(2, {5}, 2)};
  plains expected(6, plain({5}));
  for (int i = 0; i < 5; ++i) {
    const bool a = in[0](i) != 0, b = in[1](i) != 0;
    expected[0](i) = a && b;
    expected[1](i) = a || b;
    expected[2](i) = a != b;
    expected[3](i) = !a;
    expected[4](i) = a && !b;
    expected[5](i) = (a ? 2.5L : 0.0L) + 'a' + 1;
  }
  everywhere<truth_program>(integer_meshes{}, in, expected, 0);
}
