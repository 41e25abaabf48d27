// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: yes

#include <espalier/base/dtype.hpp>
#include <espalier/tensor/run/kernels/arithmetic.hpp>
#include <espalier/tensor/run/kernels/convert.hpp>
#include <espalier/tensor/run/kernels/lanes.hpp>
#include <espalier/tensor/run/kernels/reduce.hpp>

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace espalier;

// --- the table
// -----------------------------------------------------------------------------------------------------------

/// Whether the rows stand in the order of the enumerators, and say the same as the C++ types.
consteval bool is_consistent(const dtype_facts& row, int place) {
  return with_storage(row.type, [&]<class T>(T) {
    const bool is_float = row.format <= number_format::brain;
    const bool is_signed = row.format == number_format::integer;
    const bool is_integral = is_signed || row.format == number_format::natural;
    bool same = static_cast<int>(row.type) == place && dtype_of<T> == row.type;
    same = same && row.bytes == static_cast<std::int64_t>(sizeof(T));
    same = same && std::is_same_v<T, bool> == (row.format == number_format::truth);
    same = same && (std::is_integral_v<T> && !std::is_same_v<T, bool>) == is_integral;
    same = same && (!is_integral || (std::is_signed_v<T> == is_signed && row.accumulate == row.type));
    same = same && (!is_float || dtype_of<computed_t<T>> == row.accumulate);
    return same;
  });
}
consteval bool are_consistent() {
  for (int n = 0; n < dtype_count; ++n) {
    if (!is_consistent(dtype_table[n], n)) return false;
  }
  return true;
}
static_assert(are_consistent());

// --- binary16
// ---------------------------------------------------------------------------------------------------------

/// Returns the value of the bits by the definition of the format: a sign, 5 bits of exponent, 10 of mantissa.
double meant(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  double size = 0;
  if (exponent == 31) {
    size = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else {
    size = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  }
  return std::copysign(size, (bits & 0x8000) != 0 ? -1.0 : 1.0);
}
float16 half_of(std::uint16_t bits) {
  float16 made;
  made.bits = bits;
  return made;
}
bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

constexpr std::uint16_t greatest_half = 0x7bff;

// A constant evaluation takes the same way: -2^-24, an infinity, a NaN.
static_assert(static_cast<float>(float16(-0x1p-24F)) == -0x1p-24F);
static_assert(float16(65520.0F).bits == 0x7c00);
static_assert((float16(std::numeric_limits<float>::quiet_NaN()).bits & 0x7fff) > 0x7c00);

// --- conversions
// ------------------------------------------------------------------------------------------------------

/// Numbers at which conversions between element types turn, as the type holds them.
template <class T> std::vector<T> edges() {
  std::vector<T> made;
  if constexpr (std::is_same_v<T, bool>) {
    made = {false, true};
  } else if constexpr (std::is_integral_v<T>) {
    // Everything around the ends of all integer types, as far as this one goes.
    for (int bits = 0; bits < std::numeric_limits<T>::digits; ++bits) {
      const auto power = static_cast<T>(std::uint64_t{1} << bits);
      for (const T step : {T(-2), T(-1), T(0), T(1), T(2)}) {
        const auto sum = static_cast<T>(static_cast<std::uint64_t>(power) + static_cast<std::uint64_t>(step));
        made.push_back(sum);
        made.push_back(static_cast<T>(std::uint64_t{0} - static_cast<std::uint64_t>(sum)));
      }
    }
    made.push_back(std::numeric_limits<T>::max());
    made.push_back(std::numeric_limits<T>::min());
  } else {
    using wide = computed_t<T>;
    const wide infinity = std::numeric_limits<wide>::infinity();
    for (const wide one : {wide(0), wide(0.49), wide(0.5), wide(0.99), wide(1.5), wide(2.5), wide(1.0 / 3), infinity,
                           std::numeric_limits<wide>::quiet_NaN(), std::numeric_limits<wide>::denorm_min(),
                           std::numeric_limits<wide>::max(), std::numeric_limits<wide>::min()}) {
      made.push_back(static_cast<T>(one));
      made.push_back(static_cast<T>(-one));
    }
    for (int exponent = -30; exponent < 70; ++exponent) {
      const wide power = std::ldexp(wide(1), exponent);
      for (const wide one : {power, std::nextafter(power, wide(0)), std::nextafter(power, infinity), power + wide(0.5),
                             power - wide(0.5), power * wide(1.0009765625 / 2), power - wide(1)}) {
        made.push_back(static_cast<T>(one));
        made.push_back(static_cast<T>(-one));
      }
    }
  }
  return made;
}

/// The nearest number of a short format, of two the even one, looked for among all.
template <class T> double nearest_of_all(float x) {
  if (std::isnan(x)) return x;
  double best = std::numeric_limits<double>::infinity();
  double least = std::numeric_limits<double>::infinity();
  bool is_even = false;
  const std::uint32_t end = std::is_same_v<T, float16> ? 0x7c00 : 0x7f80;
  for (std::uint32_t bits = 0; bits <= end; ++bits) {
    // The format goes on beyond its end as if there were one exponent more, which is where infinity begins.
    const double value = bits == end                  ? (std::is_same_v<T, float16> ? 0x1p16 : 0x1p128)
                         : std::is_same_v<T, float16> ? meant(static_cast<std::uint16_t>(bits))
                                                      : static_cast<double>(std::bit_cast<float>(bits << 16U));
    const double off = std::abs(value - std::abs(static_cast<double>(x)));
    if (off < least || (off == least && !is_even)) {
      least = off;
      best = bits == end ? std::numeric_limits<double>::infinity() : value;
      is_even = bits % 2 == 0;
    }
  }
  const double beyond = std::is_same_v<T, float16> ? 0x1p16 : 0x1p128;
  if (std::abs(static_cast<double>(x)) >= beyond) best = std::numeric_limits<double>::infinity();
  return std::copysign(best, static_cast<double>(x));
}

/// Converts as ops::convert says it does, in a type that holds all numbers there are.
template <class To, class From> To converted(From stored) {
  const auto from = static_cast<computed_t<From>>(stored);
  if constexpr (std::is_same_v<To, bool>) {
    return from != computed_t<From>(0);
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<computed_t<From>>) {
    const auto x = std::trunc(static_cast<long double>(from));
    if (std::isnan(x)) return 0;
    if (x >= static_cast<long double>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    if (x <= static_cast<long double>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    return static_cast<To>(x);
  } else if constexpr (std::is_integral_v<To>) {
    // Modulo a power of two: the lowest bits.
    auto bits = static_cast<std::uint64_t>(from);
    To made{};
    std::memcpy(&made, &bits, sizeof(made));
    return made;
  } else {
    const auto x = static_cast<long double>(from);
    return static_cast<To>(static_cast<computed_t<To>>(x));
  }
}

template <dtype From, dtype To> void check_conversion() {
  using source = storage_t<From>;
  using target = storage_t<To>;
  // std::vector<bool> has no elements to point at.
  const auto drawn = edges<source>();
  std::vector<unsigned char> in(drawn.size() * sizeof(source));
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const source one = drawn[i];
    std::memcpy(&in[i * sizeof(source)], &one, sizeof(one));
  }
  std::vector<unsigned char> out(drawn.size() * sizeof(target));
  static constexpr kernels::block_key key = [] {
    kernels::block_key made;
    made.columns = 1;
    made.type = To;
    made.operand_count = 1;
    made.operand_type[0] = From;
    return made;
  }();
  kernels::block_call call;
  call.rows = static_cast<std::int64_t>(drawn.size());
  call.columns = 1;
  call.operand[0] = {in.data(), 1};
  call.result = {out.data(), 1};
  kernels::block_kernel<&ops::convert>::run<key>(call);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const source one = drawn[i];
    const target expected = converted<target>(one);
    target got{};
    std::memcpy(&got, &out[i * sizeof(target)], sizeof(got));
    if (same(static_cast<double>(got), static_cast<double>(expected)) &&
        (is_floating(To) || std::memcmp(&got, &expected, sizeof(got)) == 0)) {
      continue;
    }
    INFO(name_of(From) << " to " << name_of(To) << ", element " << i << ": " << static_cast<double>(one) << " became "
                       << static_cast<double>(got) << " instead of " << static_cast<double>(expected));
    REQUIRE(false);
  }
}

template <dtype From, std::size_t... To> void check_conversions_from(std::index_sequence<To...>) {
  (check_conversion<From, static_cast<dtype>(To)>(), ...);
}
template <std::size_t... From> void check_conversions(std::index_sequence<From...> all) {
  (check_conversions_from<static_cast<dtype>(From)>(all), ...);
}

// --- integers wrap around
// ---------------------------------------------------------------------------------------------

/// Holds every product of two 64-bit integers.
__extension__ using exact = __int128;

/// The lowest bits of an exact result.
template <class T> T wrapped(exact result) { return std::bit_cast<T>(static_cast<std::make_unsigned_t<T>>(result)); }
template <class T> void check_wrapping(const std::vector<T>& numbers) {
  for (const T a : numbers) {
    for (const T b : numbers) {
      const exact x = a;
      const exact y = b;
      const bool right = detail::add_elements::apply(a, b) == wrapped<T>(x + y) &&
                         detail::subtract_elements::apply(a, b) == wrapped<T>(x - y) &&
                         detail::multiply_elements::apply(a, b) == wrapped<T>(x * y) &&
                         detail::divide_elements::apply(a, b) == wrapped<T>(y == 0 ? 0 : x / y);
      if (right) continue;
      INFO(name_of(dtype_of<T>) << ": " << +a << " and " << +b);
      REQUIRE(false);
    }
    REQUIRE(detail::negate_element::apply(a) == wrapped<T>(-exact{a}));
  }
  // Sums and products of many, in vectors and in what is left over.
  for (const std::int64_t count : {1, 7, 63, 64, 100, 300}) {
    std::vector<T> some;
    exact sum = 0;
    std::make_unsigned_t<T> product = 1;
    for (std::int64_t i = 0; i < count; ++i) {
      some.push_back(static_cast<T>(numbers[static_cast<std::size_t>(i * 7) % numbers.size()] | T(1)));
      sum += some.back();
      product = static_cast<std::make_unsigned_t<T>>(std::uint64_t{product} * static_cast<std::uint64_t>(some.back()));
    }
    using word = detail::accumulator_t<T, reduction::sum>;
    REQUIRE(detail::element_cast<T>(detail::reduce_run<reduction::sum, word>(some.data(), count)) == wrapped<T>(sum));
    REQUIRE(detail::element_cast<T>(detail::reduce_run<reduction::prod, word>(some.data(), count)) ==
            std::bit_cast<T>(product));
  }
}

}  // namespace

TEST_CASE("f16: every element is what its bits say, and comes back from a float") {
  for (std::uint32_t n = 0; n < 0x10000; ++n) {
    const auto bits = static_cast<std::uint16_t>(n);
    const float value = half_of(bits);
    if (!same(static_cast<double>(value), meant(bits))) FAIL("bits " << n << " became " << value);
    const std::uint16_t back = float16(value).bits;
    // A signalling NaN comes back quiet.
    const std::uint16_t quiet = std::isnan(value) ? 0x200 : 0;
    if (back != (bits | quiet)) FAIL("bits " << n << " came back as " << back);
  }
}

TEST_CASE("f16: vectors of elements are read as single ones are") {
  constexpr int width = detail::full_lanes<float>;
  float16 from[width];
  for (std::uint32_t n = 0; n < 0x10000; n += width) {
    for (int k = 0; k < width; ++k) from[k] = half_of(static_cast<std::uint16_t>(n + static_cast<std::uint32_t>(k)));
    const detail::lanes<float, width> found = detail::load_lanes<float, width>(&from[0]);
    for (int k = 0; k < width; ++k) {
      if (!same(static_cast<double>(found[k]), static_cast<double>(static_cast<float>(from[k])))) {
        FAIL("bits " << n + static_cast<std::uint32_t>(k));
      }
    }
  }
}

TEMPLATE_TEST_CASE("many elements at once are converted to the bits that each alone becomes", "", float16, bfloat16) {
  const auto half_with = [](std::uint32_t bits) {
    TestType made;
    made.bits = static_cast<std::uint16_t>(bits);
    return made;
  };
  std::vector<TestType> all(0x10000);
  for (std::uint32_t n = 0; n < 0x10000; ++n) all[n] = half_with(n);
  for (const std::size_t first : {0U, 1U, 3U}) {  // of what is no whole register, too
    const std::size_t count = all.size() - 2 * first;
    std::vector<float> wide(count + 1, -7.0F);
    detail::convert_run(&all[first], wide.data(), static_cast<std::int64_t>(count));
    for (std::size_t i = 0; i < count; ++i) {
      if (std::bit_cast<std::uint32_t>(wide[i]) != std::bit_cast<std::uint32_t>(static_cast<float>(all[first + i]))) {
        FAIL("bits " << first + i);
      }
    }
    CHECK(wide[count] == -7.0F);
  }
  // Floats of all exponents, infinities and NaNs, and all that are halfway between two elements.
  std::vector<float> wide;
  for (std::uint32_t n = 0; n < 0x10000; ++n) {
    for (const std::uint32_t low :
         {0x0U, 0x1U, 0x0fffU, 0x1000U, 0x1001U, 0x2fffU, 0x3000U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      wide.push_back(std::bit_cast<float>(n << 16U | low));
    }
  }
  wide.resize(wide.size() - 3);
  std::vector<TestType> made(wide.size() + 1, half_with(0x1234));
  detail::convert_run(wide.data(), made.data(), static_cast<std::int64_t>(wide.size()));
  for (std::size_t i = 0; i < wide.size(); ++i) {
    if (made[i].bits != TestType(wide[i]).bits) FAIL("float of bits " << std::bit_cast<std::uint32_t>(wide[i]));
  }
  CHECK(made[wide.size()].bits == 0x1234);
}

TEST_CASE("f16: a float becomes the nearest element, of two the even one") {
  for (std::uint16_t n = 0; n < greatest_half; ++n) {
    const auto low = static_cast<float>(meant(n));
    const auto high = static_cast<float>(meant(static_cast<std::uint16_t>(n + 1)));
    const float middle = (low + high) / 2;  // a float has room for it
    for (const bool negative : {false, true}) {
      const auto bits = [&](float x) { return float16(negative ? -x : x).bits; };
      const std::uint16_t sign = negative ? 0x8000 : 0;
      const bool right = bits(std::nextafter(middle, low)) == (sign | n) &&
                         bits(std::nextafter(middle, high)) == (sign | (n + 1)) &&
                         bits(middle) == (sign | (n + n % 2)) && bits(std::nextafter(high, low)) == (sign | (n + 1));
      if (!right) FAIL("between " << low << " and " << high << (negative ? ", negative" : ""));
    }
  }
  CHECK(float16(65519.996F).bits == greatest_half);
  CHECK(float16(65520.0F).bits == 0x7c00);
  CHECK(float16(65536.0F).bits == 0x7c00);
  CHECK(float16(-std::numeric_limits<float>::max()).bits == 0xfc00);
  CHECK(float16(std::numeric_limits<float>::infinity()).bits == 0x7c00);
  CHECK(float16(0x1p-25F).bits == 0);
  CHECK(float16(std::nextafter(0x1p-25F, 1.0F)).bits == 1);
  CHECK(float16(-std::numeric_limits<float>::denorm_min()).bits == 0x8000);
  // A NaN that only says so in the bits that go.
  CHECK(std::isnan(static_cast<float>(float16(std::bit_cast<float>(0x7f800001U)))));
}

TEST_CASE("short floats: the nearest of all") {
  for (const float x : {0.1F, 1.0F / 3, 2049.0F, 2051.0F, 65519.0F, 65520.0F, 1e-7F, 3e-8F, 2.98e-8F, 6.1e-5F, 1e30F,
                        3.4e38F, -257.0F, -259.0F, 1e-40F, 5e-41F}) {
    CAPTURE(x);
    CHECK(static_cast<double>(static_cast<float>(float16(x))) == nearest_of_all<float16>(x));
    CHECK(static_cast<double>(static_cast<float>(bfloat16(x))) == nearest_of_all<bfloat16>(x));
  }
}

TEST_CASE("conversions between all pairs of element types, where they turn") {
  check_conversions(std::make_index_sequence<static_cast<std::size_t>(dtype_count)>{});
}

TEST_CASE("integers of every size wrap around, and divide without a trap") {
  check_wrapping(edges<std::int8_t>());
  check_wrapping(edges<std::int32_t>());
  check_wrapping(edges<std::uint32_t>());
  check_wrapping(edges<std::int64_t>());
}

TEST_CASE("the table of element types says what the names are") {
  CHECK(std::string(name_of(dtype::boolean)) == "bool");
  CHECK(std::string(facts_of(dtype::bf16).wire_name) == "BF16");
  CHECK(is_for_storage(dtype::f16));
  CHECK_FALSE(is_for_storage(dtype::f64));
  CHECK_FALSE(is_integer(dtype::boolean));
  static_assert(std::is_same_v<accumulate_t<float16>, float> && std::is_same_v<accumulate_t<bool>, std::int32_t>);
  static_assert(std::is_same_v<detail::accumulator_t<std::int8_t, reduction::sum>, std::uint8_t>);
  static_assert(std::is_same_v<detail::accumulator_t<std::int8_t, reduction::max>, std::int8_t>);
}
