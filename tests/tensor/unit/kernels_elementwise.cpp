// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// together: random_programs

#include <espalier/tensor/run/kernels/kernels.hpp>
#include <tensor/unit/kernels_math_checks.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <utility>

// Errors of functions in units of the last place, over all magnitudes, as their docstrings promise them; what they are
// exactly, where they are exact; and their values at zeros, infinities and NaN. Through the block kernels that programs
// run, so that what a block holds beside an element is seen to change nothing.

namespace {

using namespace espalier;
using namespace kernels_math_checks;

template <class... T> constexpr kernels::block_key key_for(dtype result, T... operands) {
  kernels::block_key key;
  key.columns = 0;  // any number of columns, a multiple of 16
  key.type = result;
  for (const dtype type : {operands...}) {
    key.operand_type[key.operand_count] = type;
    key.wide[key.operand_count++] = true;
  }
  return key;
}

/// The op on neighbouring elements, `columns` at a time.
template <const op_info* Op, class Result, class... T>
std::vector<Result> run_blocks(std::int64_t columns, std::vector<T>... from) {
  constexpr kernels::block_key key = key_for(dtype_of<Result>, dtype_of<T>...);
  const std::size_t count = std::get<0>(std::tie(from...)).size();
  const std::size_t padded = (count + static_cast<std::size_t>(columns) - 1) / static_cast<std::size_t>(columns) *
                             static_cast<std::size_t>(columns);
  (from.resize(padded, from.back()), ...);
  std::vector<Result> to(padded);
  for (std::size_t first = 0; first < padded; first += static_cast<std::size_t>(columns)) {
    kernels::block_call call;
    call.rows = 1;
    call.columns = columns;
    int k = 0;
    ((call.operand[k++] = {from.data() + first, columns}), ...);
    call.result = {to.data() + first, columns};
    kernels::block_kernel<Op>::template run<key>(call);
  }
  to.resize(count);
  return to;
}
/// The same, once more in other blocks.
template <const op_info* Op, class Result, class... T> std::vector<Result> run(const std::vector<T>&... from) {
  const std::vector<Result> once = run_blocks<Op, Result>(512, from...);
  const std::vector<Result> again = run_blocks<Op, Result>(16, from...);
  bool same = true;
  for (std::size_t i = 0; i < once.size(); ++i) {
    same = same && (once[i] == again[i] || (once[i] != once[i] && again[i] != again[i]));
  }
  CHECK(same);
  return once;
}
template <const op_info* Op, class T, class... Rest> T one(T first, Rest... rest) {
  return run_blocks<Op, T>(16, std::vector<T>{first}, std::vector<T>{static_cast<T>(rest)}...)[0];
}

/// The largest error in ulp, and where.
struct finding {
  double error = 0;
  std::string where;
};
template <const op_info* Op, class T, class Reference> finding worst(const std::vector<T>& x, Reference reference) {
  const std::vector<T> y = run<Op, T>(x);
  finding found;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double error = ulps(y[i], static_cast<wider_t<T>>(reference(static_cast<wider_t<T>>(x[i]))));
    if (error > found.error) found = {error, Catch::StringMaker<T>::convert(x[i])};
  }
  return found;
}
template <const op_info* Op, class T, class Reference>
finding worst(const std::vector<T>& x, const std::vector<T>& y, Reference reference) {
  const std::vector<T> z = run<Op, T>(x, y);
  finding found;
  for (std::size_t i = 0; i < x.size(); ++i) {
    using W = wider_t<T>;
    const double error = ulps(z[i], static_cast<W>(reference(static_cast<W>(x[i]), static_cast<W>(y[i]))));
    if (error > found.error) {
      found = {error, Catch::StringMaker<T>::convert(x[i]) + ", " + Catch::StringMaker<T>::convert(y[i])};
    }
  }
  return found;
}

template <class T> std::vector<T> joined(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
template <class T> std::vector<T> negated(std::vector<T> x) {
  for (T& one : x) one = -one;
  return x;
}
/// Returns numbers of every magnitude and both signs.
template <class T> std::vector<T> all_floats(int count) {
  const std::vector<T> x = all_magnitudes<T>(count);
  return joined(x, negated(x));
}
/// Any bits: of every magnitude, in no order, NaN and infinities among them.
template <class T> std::vector<T> any_bits(int count, unsigned seed) {
  using bits = espalier::detail::float_bits<T>;
  std::mt19937_64 random(seed);
  std::vector<T> x;
  for (int i = 0; i < count; ++i) {
    auto raw = static_cast<bits>(random());
    if (i % 64 == 0) raw |= espalier::detail::float_format<T>::infinity;
    x.push_back(std::bit_cast<T>(raw));
  }
  return x;
}
/// The float next to each multiple of pi / 2, where sine, cosine or tangent nearly vanish.
template <class T> std::vector<T> near_quarters(int count) {
  std::vector<T> x;
  const long double quarter = std::acos(-1.0L) / 2;
  for (int i = 1; i <= count; ++i) {
    const T at = static_cast<T>(quarter * i);
    for (const T one : {at, std::nextafter(at, T(0)), std::nextafter(at, infinity<T>)}) x.push_back(one);
  }
  return x;
}

template <class T> bool is(T got, T want) {
  return std::isnan(want) ? std::isnan(got) : got == want && std::signbit(got) == std::signbit(want);
}

#define CHECK_ERROR(found, limit)           \
  do {                                      \
    const finding result = (found);         \
    CAPTURE(result.where);                  \
    CHECK(result.error <= (limit) + slack); \
  } while (false)

}  // namespace

TEMPLATE_TEST_CASE("sin, cos and tan are accurate for angles of every size", "[kernels][math]", float, double) {
  using T = TestType;
  const bool single = sizeof(T) == 4;
  const auto sine = [](auto x) { return std::sin(x); };
  const auto cosine = [](auto x) { return std::cos(x); };
  const auto tangent = [](auto x) { return std::tan(x); };
  for (const auto& x : {spread<T>(T(-4), T(4), 200'000), spread<T>(T(-1e5), T(1e5), 200'000), all_floats<T>(100'000),
                        spread<T>(T(1e6), T(1.1e6), 50'000), near_quarters<T>(200'000)}) {
    CHECK_ERROR((worst<&ops::sin>(x, sine)), single ? 0.51 : 0.8);
    CHECK_ERROR((worst<&ops::cos>(x, cosine)), single ? 0.51 : 0.8);
    CHECK_ERROR((worst<&ops::tan>(x, tangent)), single ? 0.51 : 2.2);
  }
  for (const T x :
       {T(0.3), T(2), T(1e6), T(1e20), std::numeric_limits<T>::denorm_min(), std::numeric_limits<T>::max()}) {
    CHECK(one<&ops::sin>(-x) == -one<&ops::sin>(x));
    CHECK(one<&ops::cos>(-x) == one<&ops::cos>(x));
    CHECK(one<&ops::tan>(-x) == -one<&ops::tan>(x));
  }
  for (const T zero : {T(0), -T(0)}) {
    CHECK(is(one<&ops::sin>(zero), zero));
    CHECK(is(one<&ops::tan>(zero), zero));
    CHECK(one<&ops::cos>(zero) == T(1));
  }
  for (const T x : {infinity<T>, -infinity<T>, not_a_number<T>}) {
    CHECK(std::isnan(one<&ops::sin>(x)));
    CHECK(std::isnan(one<&ops::cos>(x)));
    CHECK(std::isnan(one<&ops::tan>(x)));
  }
}

TEMPLATE_TEST_CASE("atan2 is accurate in all directions", "[kernels][math]", float, double) {
  using T = TestType;
  const double limit = sizeof(T) == 4 ? 0.51 : 2.4;
  const auto angle = [](auto y, auto x) { return std::atan2(y, x); };
  CHECK_ERROR((worst<&ops::atan2>(any_bits<T>(200'000, 1), any_bits<T>(200'000, 2), angle)), limit);
  const std::vector<T> turn = spread<T>(T(0), T(7), 200'000);
  std::vector<T> y;
  std::vector<T> x;
  for (std::size_t i = 0; i < turn.size(); ++i) {
    const T size = std::ldexp(T(1), static_cast<int>(i % 41) - 20);
    y.push_back(size * std::sin(turn[i]));
    x.push_back(size * std::cos(turn[i]));
  }
  CHECK_ERROR((worst<&ops::atan2>(y, x, angle)), limit);
  // Large and tiny ones, whose sums and quotients leave the range.
  const T big = std::numeric_limits<T>::max();
  const T small = std::numeric_limits<T>::denorm_min();
  const std::vector<T> all{T(0),  -T(0),  T(1),      T(-1),       big,          -big,           big / 3,
                           small, -small, 3 * small, infinity<T>, -infinity<T>, not_a_number<T>};
  for (const T up : all) {
    for (const T along : all) {
      CAPTURE(up, along);
      const T got = one<&ops::atan2>(up, along);
      const T want = std::atan2(up, along);
      CHECK(ulps(got, static_cast<wider_t<T>>(
                          std::atan2(static_cast<wider_t<T>>(up), static_cast<wider_t<T>>(along)))) <= limit + slack);
      CHECK((std::isnan(want) || std::signbit(got) == std::signbit(want)));
    }
  }
}

TEMPLATE_TEST_CASE("expm1 and log1p are accurate near zero and far from it", "[kernels][math]", float, double) {
  using T = TestType;
  const auto grown = [](auto x) { return std::expm1(x); };
  const auto root = [](auto x) { return std::log1p(x); };
  const T limit = sizeof(T) == 4 ? T(89) : T(710);
  for (const auto& x : {spread<T>(-limit, limit, 300'000), spread<T>(T(-1), T(1), 300'000), all_floats<T>(100'000)}) {
    CHECK_ERROR((worst<&ops::expm1>(x, grown)), 2.3);
    CHECK_ERROR((worst<&ops::log1p>(x, root)), 1.3);
  }
  CHECK_ERROR((worst<&ops::log1p>(spread<T>(T(-1) + std::numeric_limits<T>::epsilon(), T(4), 300'000), root)), 1.3);
  CHECK(is(one<&ops::expm1>(-infinity<T>), T(-1)));
  CHECK(is(one<&ops::expm1>(infinity<T>), infinity<T>));
  CHECK(is(one<&ops::log1p>(T(-1)), -infinity<T>));
  CHECK(is(one<&ops::log1p>(infinity<T>), infinity<T>));
  CHECK(std::isnan(one<&ops::log1p>(T(-1.5))));
  CHECK(std::isnan(one<&ops::log1p>(-infinity<T>)));
  for (const T x : {T(0), -T(0), not_a_number<T>, std::numeric_limits<T>::denorm_min()}) {
    CHECK(is(one<&ops::expm1>(x), x));
    CHECK(is(one<&ops::log1p>(x), x));
  }
}

TEMPLATE_TEST_CASE("pow is accurate over its whole range, and follows C at the ends", "[kernels][math]", float,
                   double) {
  using T = TestType;
  const double limit = sizeof(T) == 4 ? 0.51 : 1.4;
  const auto power = [](auto x, auto y) { return std::pow(x, y); };
  std::mt19937_64 random(5);
  const auto real = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random() >> 11U) * 0x1p-53;
  };
  // Results of every magnitude, of bases of every magnitude and of those next to 1.
  std::vector<T> x = all_magnitudes<T>(200'000);
  for (int i = 0; i < 200'000; ++i) x.push_back(static_cast<T>(1 + real(-1, 1) * std::exp2(real(-20, 0))));
  std::vector<T> y;
  const double most = sizeof(T) == 4 ? 104 : 745;
  for (const T base : x) {
    const double size = std::log(static_cast<double>(base));
    y.push_back(static_cast<T>(size == 0 ? 2.5 : real(-most, most) / size));
  }
  CHECK_ERROR((worst<&ops::pow>(x, y, power)), limit);
  // Whole exponents, of negative bases too.
  std::vector<T> whole;
  for (T& base : x) {
    whole.push_back(static_cast<T>(static_cast<int>(random() % 41U) - 20));
    if (random() % 2U == 0) base = -base;
  }
  CHECK_ERROR((worst<&ops::pow>(x, whole, power)), limit);
  CHECK_ERROR((worst<&ops::pow>(any_bits<T>(200'000, 3), any_bits<T>(200'000, 4), power)), limit);
  const T huge = std::ldexp(T(1), std::numeric_limits<T>::digits);
  const std::vector<T> all{T(0),
                           -T(0),
                           T(1),
                           T(-1),
                           T(0.5),
                           T(-0.5),
                           T(2),
                           T(-2),
                           T(3),
                           T(-3),
                           T(2.5),
                           T(-2.5),
                           huge,
                           -huge,
                           huge - T(1),
                           T(1) - huge,
                           huge * 2,
                           std::numeric_limits<T>::max(),
                           infinity<T>,
                           -infinity<T>,
                           not_a_number<T>,
                           std::numeric_limits<T>::denorm_min(),
                           -std::numeric_limits<T>::denorm_min()};
  for (const T base : all) {
    for (const T exponent : all) {
      CAPTURE(base, exponent);
      const T got = one<&ops::pow>(base, exponent);
      const T want = std::pow(base, exponent);
      CHECK((std::isfinite(want) ? ulps(got, static_cast<wider_t<T>>(want)) <= limit + slack + 0.6 : is(got, want)));
      CHECK((std::isnan(want) || std::signbit(got) == std::signbit(want)));
    }
  }
}

TEMPLATE_TEST_CASE("erf and erfc are accurate, also where erfc is tiny", "[kernels][math]", float, double) {
  using T = TestType;
  const bool single = sizeof(T) == 4;
  const auto inside = [](auto x) { return std::erf(x); };
  const auto outside = [](auto x) { return std::erfc(x); };
  const T limit = single ? T(10.5) : T(27.5);
  for (const auto& x :
       {spread<T>(-limit, limit, 300'000), spread<T>(T(-1.5), T(1.5), 300'000), all_floats<T>(100'000)}) {
    CHECK_ERROR((worst<&ops::erf>(x, inside)), single ? 0.51 : 1.4);
    CHECK_ERROR((worst<&ops::erfc>(x, outside)), single ? 0.51 : 4);
  }
  CHECK(is(one<&ops::erf>(-T(0)), -T(0)));
  CHECK(is(one<&ops::erf>(infinity<T>), T(1)));
  CHECK(is(one<&ops::erf>(-infinity<T>), T(-1)));
  CHECK(is(one<&ops::erfc>(infinity<T>), T(0)));
  CHECK(is(one<&ops::erfc>(-infinity<T>), T(2)));
  CHECK(std::isnan(one<&ops::erf>(not_a_number<T>)));
  CHECK(std::isnan(one<&ops::erfc>(not_a_number<T>)));
  for (const T x : spread<T>(T(0), T(6), 5'000)) CHECK(one<&ops::erf>(-x) == -one<&ops::erf>(x));
}

TEMPLATE_TEST_CASE("erf_inv is accurate, also near 1", "[kernels][math]", float, double) {
  using T = TestType;
  const bool single = sizeof(T) == 4;
  // One step of Newton's method doubles the number of right digits, starting from those of double.
  const auto inverse = [](auto x) {
    using wide = decltype(x);
    const wide size = std::abs(x);
    wide y = detail::erf_inv_scalar(static_cast<double>(size));
    if (std::isfinite(y)) {
      const wide excess = size < wide(0.5) ? std::erf(y) - size : (1 - size) - std::erfc(y);
      y -= excess / (wide(1.1283791670955125738961589L) * std::exp(-y * y));
    }
    return std::copysign(y, x);
  };
  std::vector<T> near_one{T(1) - std::numeric_limits<T>::epsilon() / 2};
  while (near_one.size() < 100'000) near_one.push_back(1 - (1 - near_one.back()) * T(1.0003));
  for (const auto& x : {spread<T>(T(-1), T(1), 300'000), spread<T>(T(-0.01), T(0.01), 100'000), near_one}) {
    CHECK_ERROR((worst<&ops::erf_inv>(x, inverse)), single ? 4 : 7);
  }
  CHECK(is(one<&ops::erf_inv>(-T(0)), -T(0)));
  CHECK(is(one<&ops::erf_inv>(T(1)), infinity<T>));
  CHECK(is(one<&ops::erf_inv>(T(-1)), -infinity<T>));
  CHECK(std::isnan(one<&ops::erf_inv>(T(1.5))));
  CHECK(std::isnan(one<&ops::erf_inv>(-infinity<T>)));
  CHECK(std::isnan(one<&ops::erf_inv>(not_a_number<T>)));
  for (const T x : spread<T>(T(0), T(1), 5'000)) CHECK(one<&ops::erf_inv>(-x) == -one<&ops::erf_inv>(x));
}

namespace {

template <const op_info* Op, class T, class Reference> void check_exact(const std::vector<T>& x, Reference reference) {
  const std::vector<T> y = run<Op, T>(x);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (is(y[i], static_cast<T>(reference(x[i])))) continue;
    if (wrong++ == 0) FAIL_CHECK(Op->name << " of " << x[i] << " is " << y[i]);
  }
  CHECK(wrong == 0);
}
template <const op_info* Op, class T, class Reference>
void check_exact(const std::vector<T>& x, const std::vector<T>& y, Reference reference) {
  const std::vector<T> z = run<Op, T>(x, y);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (is(z[i], static_cast<T>(reference(x[i], y[i])))) continue;
    if (wrong++ == 0) FAIL_CHECK(Op->name << " of " << x[i] << " and " << y[i] << " is " << z[i]);
  }
  CHECK(wrong == 0);
}

/// Returns numbers with a fraction of a half and without one, on both sides of where all numbers are whole.
template <class T> std::vector<T> halves() {
  std::vector<T> x;
  for (int i = -3000; i <= 3000; ++i) {
    const T half = static_cast<T>(i) / 2;
    for (const T one : {half, std::nextafter(half, infinity<T>), std::nextafter(half, -infinity<T>)}) x.push_back(one);
  }
  for (int power = std::numeric_limits<T>::digits - 3; power <= std::numeric_limits<T>::digits + 1; ++power) {
    for (int i = -9; i <= 9; ++i) x.push_back(std::ldexp(T(1), power) + static_cast<T>(i) / 4);
  }
  return x;
}

}  // namespace

TEMPLATE_TEST_CASE("floor, ceil, trunc, round, abs and sign are exact", "[kernels][math]", float, double) {
  using T = TestType;
  const std::vector<T> ends{T(0), -T(0), infinity<T>, -infinity<T>, not_a_number<T>, std::numeric_limits<T>::max()};
  for (const auto& x : {joined(halves<T>(), negated(halves<T>())), all_floats<T>(50'000), ends}) {
    check_exact<&ops::floor>(x, [](T a) { return std::floor(a); });
    check_exact<&ops::ceil>(x, [](T a) { return std::ceil(a); });
    check_exact<&ops::trunc>(x, [](T a) { return std::trunc(a); });
    check_exact<&ops::round>(x, [](T a) { return std::nearbyint(a); });
    check_exact<&ops::abs>(x, [](T a) { return std::fabs(a); });
    check_exact<&ops::sign>(x, [](T a) { return a > 0 ? T(1) : a < 0 ? T(-1) : a; });
  }
}

TEMPLATE_TEST_CASE("remainder is exact however large the quotient is", "[kernels][math]", float, double) {
  using T = TestType;
  const auto rest = [](T a, T b) { return std::fmod(a, b); };
  check_exact<&ops::remainder>(any_bits<T>(20'000, 5), any_bits<T>(20'000, 6), rest);
  std::mt19937_64 random(7);
  std::vector<T> x;
  std::vector<T> y;
  // Multiples, and what is next to them, of divisors of every size: a quotient that is rounded must not count.
  const std::vector<T> sizes = all_magnitudes<T>(300'000);
  for (const T size : sizes) {
    const int bits = std::numeric_limits<T>::digits == 24 ? 29 : 21;
    const T multiple = size * static_cast<T>(random() >> (64 - random() % static_cast<unsigned>(bits) - 1));
    x.push_back(random() % 3 == 0 ? multiple : std::nextafter(multiple, random() % 2 == 0 ? T(0) : infinity<T>));
    y.push_back(random() % 2 == 0 ? size : -size);
    if (random() % 2 == 0) x.back() = -x.back();
  }
  check_exact<&ops::remainder>(x, y, rest);
}

TEST_CASE("NaN and infinities go through clamp and is_finite, and have their places in the total order", "[kernels]") {
  const float nan = not_a_number<float>;
  const float inf = infinity<float>;
  CHECK(one<&ops::clamp>(-1.0F, 3.0F, 2.0F) == 2.0F);
  CHECK(one<&ops::clamp>(-1.0F, -3.0F, 2.0F) == -1.0F);
  CHECK(one<&ops::clamp>(2.0F, 0.0F, -1.0F) == -1.0F);
  CHECK(std::isnan(one<&ops::clamp>(-1.0F, nan, 2.0F)));
  CHECK(std::isnan(one<&ops::clamp>(nan, 0.0F, 2.0F)));
  CHECK(std::isnan(one<&ops::clamp>(0.0F, 0.0F, nan)));
  const std::vector<float> order{-nan, -inf, -1.0F, -0.0F, 0.0F, 1e-45F, 1.0F, inf, nan};
  std::vector<float> x;
  std::vector<float> y;
  for (const float a : order) {
    for (const float b : order) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  // Truth values through their bytes: std::vector<bool> has no elements.
  const auto compare = [&]<const op_info * Op>() {
    constexpr kernels::block_key key = key_for(dtype::boolean, dtype::f32, dtype::f32);
    std::array<bool, 96> to{};
    std::vector<float> left = x;
    std::vector<float> right = y;
    left.resize(96);
    right.resize(96);
    kernels::block_call call;
    call.rows = 1;
    call.columns = 96;
    call.operand[0] = {left.data(), 96};
    call.operand[1] = {right.data(), 96};
    call.result = {to.data(), 96};
    kernels::block_kernel<Op>::template run<key>(call);
    return to;
  };
  const auto less = compare.operator()<&ops::total_less>();
  const auto less_equal = compare.operator()<&ops::total_less_equal>();
  const auto equal = compare.operator()<&ops::total_equal>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    CAPTURE(i / order.size(), i % order.size());
    CHECK(less[i] == (i / order.size() < i % order.size()));
    CHECK(less_equal[i] == (i / order.size() <= i % order.size()));
    CHECK(equal[i] == (i / order.size() == i % order.size()));
  }
}

TEST_CASE("integers: remainder, bits, shifts, abs and sign are exact to the ends of the range", "[kernels]") {
  using integer = std::int32_t;
  constexpr integer least = std::numeric_limits<integer>::min();
  constexpr integer most = std::numeric_limits<integer>::max();
  std::vector<integer> interesting{0,  1,  -1,  2,   -2,    3,    7,        -7,    31,        32,        33,
                                   63, 64, -31, 255, 65536, most, most - 1, least, least + 1, 0x55555555};
  std::mt19937 random(9);
  for (int i = 0; i < 200; ++i) interesting.push_back(static_cast<integer>(random() >> (random() % 32U)));
  std::vector<integer> x;
  std::vector<integer> y;
  for (const integer a : interesting) {
    for (const integer b : interesting) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  const auto wrapped = [](std::int64_t a) { return static_cast<integer>(static_cast<std::uint32_t>(a)); };
  const auto check = [&]<const op_info * Op>(auto reference) {
    const std::vector<integer> z = run<Op, integer>(x, y);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (z[i] == reference(std::int64_t{x[i]}, std::int64_t{y[i]})) continue;
      FAIL_CHECK(Op->name << " of " << x[i] << " and " << y[i] << " is " << z[i]);
      break;
    }
  };
  using wide = std::int64_t;
  check.operator()<&ops::remainder>([](wide a, wide b) { return b == 0 ? a : a % b; });
  check.operator()<&ops::bitwise_and>([](wide a, wide b) { return a & b; });
  check.operator()<&ops::bitwise_or>([](wide a, wide b) { return a | b; });
  check.operator()<&ops::bitwise_xor>([](wide a, wide b) { return a ^ b; });
  check.operator()<&ops::shift_left>([&](wide a, wide b) { return b < 0 || b > 31 ? 0 : wrapped(a << b); });
  check.operator()<&ops::shift_right_logical>(
      [&](wide a, wide b) { return b < 0 || b > 31 ? 0 : wrapped((a & 0xffffffff) >> b); });
  check.operator()<&ops::shift_right_arithmetic>(
      [](wide a, wide b) { return b < 0 || b > 31 ? (a < 0 ? -1 : 0) : a >> b; });
  const std::vector<integer> opposite = run<&ops::bitwise_not, integer>(x);
  const std::vector<integer> size = run<&ops::abs, integer>(x);
  const std::vector<integer> sign = run<&ops::sign, integer>(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    REQUIRE(opposite[i] == -1 - x[i]);
    REQUIRE(size[i] == wrapped(std::abs(wide{x[i]})));
    REQUIRE(sign[i] == (x[i] > 0 ? 1 : x[i] < 0 ? -1 : 0));
  }
}

TEST_CASE("bit_cast keeps every bit, also of a NaN that would become quiet", "[kernels]") {
  std::vector<float> x{0.0F, -0.0F, 1.0F, -2.5F, infinity<float>, not_a_number<float>, 1e-45F};
  x.push_back(std::bit_cast<float>(0x7f800001U));
  x.push_back(std::bit_cast<float>(0xffbfffffU));
  const std::vector<std::int32_t> bits = run<&ops::bit_cast, std::int32_t>(x);
  const std::vector<float> back = run_blocks<&ops::bit_cast, float>(16, bits);
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(bits[i] == std::bit_cast<std::int32_t>(x[i]));
    CHECK(std::bit_cast<std::int32_t>(back[i]) == bits[i]);
  }
  bfloat16 signalling;
  signalling.bits = 0x7f81;
  constexpr kernels::block_key key = key_for(dtype::bf16, dtype::bf16);
  std::vector<bfloat16> from(16, signalling);
  std::vector<bfloat16> to(16);
  kernels::block_call call;
  call.rows = 1;
  call.columns = 16;
  call.operand[0] = {from.data(), 16};
  call.result = {to.data(), 16};
  kernels::block_kernel<&ops::bit_cast>::run<key>(call);
  for (const bfloat16 one : to) CHECK(one.bits == 0x7f81);
}
