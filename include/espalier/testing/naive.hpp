// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/interpret.hpp>
#include <espalier/testing/table_numbers.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// A second meaning of every op, written from its description and from nothing else: a tensor is a function of an
/// index, a program is a set of equations. It shares no code with `op_info::evaluate` and `interpret`, so that a
/// mistake in these is seen.
namespace espalier::test {

/// Whether values are what the descriptions say, in double precision, or are stored as their own types after each op.
enum class naive_storage { exact, typed };

namespace naive {

/// Where an element stands in its tensor.
struct place_in {
  std::array<std::int64_t, max_rank> at{};
  [[nodiscard]] std::int64_t operator[](int d) const { return at[static_cast<std::size_t>(d)]; }
  [[nodiscard]] std::int64_t& operator[](int d) { return at[static_cast<std::size_t>(d)]; }
};

/// Calls `f` with every index of a shape, the last dimension fastest.
template <class F> void for_each_index(const extents& shape, F f) {
  for (int d = 0; d < shape.rank; ++d) {
    if (shape[d] == 0) return;
  }
  place_in index;
  for (;;) {
    f(index);
    int d = shape.rank - 1;
    while (d >= 0 && index[d] + 1 == shape[d]) index[d--] = 0;
    if (d < 0) return;
    ++index[d];
  }
}

/// The tensor whose element at each index is `f(index)`.
template <class F> tensor_value tensor_of(const extents& shape, F f) {
  tensor_value made{shape, {}};
  made.data.reserve(static_cast<std::size_t>(shape.elements()));
  for_each_index(shape, [&](const place_in& index) { made.data.push_back(f(index)); });
  return made;
}

[[nodiscard]] inline double element(const tensor_value& t, const place_in& index) {
  std::int64_t at = 0;
  for (int d = 0; d < t.shape.rank; ++d) at = at * t.shape[d] + index[d];
  return t.data.at(static_cast<std::size_t>(at));
}

// --- types
// ------------------------------------------------------------------------------------------------------------

/// The nearest number of so many significant bits, of two the even one, where no step is less than 2^least; from
/// 2^end on an infinity.
[[nodiscard]] inline double nearest_short(double x, int bits, int least, int end) {
  const auto from = static_cast<double>(static_cast<float>(x));
  if (!std::isfinite(from) || from == 0) return from;
  int exponent = 0;
  std::frexp(from, &exponent);
  const int step = std::max(exponent - bits, least);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(from, -step)), step);
  if (std::abs(rounded) >= std::ldexp(1.0, end)) return std::copysign(std::numeric_limits<double>::infinity(), rounded);
  return rounded;
}

/// The whole numbers of a type: from `least` on, as many as `count`.
struct whole_numbers {
  double least = 0;
  double count = 0;
};
[[nodiscard]] inline whole_numbers whole_numbers_of(dtype type) {
  switch (type) {
    case dtype::i8: return {-128, 256};
    case dtype::u8: return {0, 256};
    case dtype::i32: return {-0x1p31, 0x1p32};
    case dtype::i64: return {-0x1p63, 0x1p64};
    case dtype::u32: return {0, 0x1p32};
    default: return {};
  }
}

/// A whole number, modulo as many as the type has.
[[nodiscard]] inline double wrapped(dtype type, double x) {
  if (!std::isfinite(x)) return 0;
  const auto [least, count] = whole_numbers_of(type);
  const double whole = std::trunc(x);
  // Of 64 bits the greatest is no double: the next one stands for it.
  if (whole == least + (count - 1)) return whole;
  return whole - std::floor((whole - least) / count) * count;
}

/// What is left of the exact result of an op in memory: floats round, integers wrap around.
[[nodiscard]] inline double in_memory(dtype type, double x) {
  switch (type) {
    case dtype::f64: return x;
    case dtype::f32: return static_cast<double>(static_cast<float>(x));
    case dtype::bf16: return nearest_short(x, 8, -133, 128);
    case dtype::f16: return nearest_short(x, 11, -24, 16);
    case dtype::i8:
    case dtype::u8:
    case dtype::i32:
    case dtype::i64:
    case dtype::u32: return wrapped(type, x);
    case dtype::boolean: return x == 0 ? 0 : 1;
  }
  return x;
}

/// A conversion: floats become integers towards zero, at the ends of their range the nearest one, a NaN 0. Integers
/// become others modulo as many as there are.
[[nodiscard]] inline double converted(dtype type, double x, dtype from) {
  const auto [least, count] = whole_numbers_of(type);
  if (count == 0 || whole_numbers_of(from).count != 0) return in_memory(type, x);
  if (std::isnan(x)) return 0;
  return std::clamp(std::trunc(x), least, least + (count - 1));
}

// --- functions of elements
// --------------------------------------------------------------------------------------------

[[nodiscard]] inline double logistic(double x) { return 1 / (1 + std::exp(-x)); }

/// Between the numbers whose erf is less than x and those whose erf is not.
[[nodiscard]] inline double whose_erf_is(double x) {
  const double size = std::abs(x);
  if (size == 0) return x;
  if (size == 1) return x * std::numeric_limits<double>::infinity();
  if (!(size < 1)) return std::numeric_limits<double>::quiet_NaN();
  double low = 0;
  double high = 7;
  for (int step = 0; step < 1200 && low < high; ++step) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    (size < 0.5 ? std::erf(middle) < size : std::erfc(middle) > 1 - size) ? low = middle : high = middle;
  }
  return std::copysign(high, x);
}

/// The function of one element that an op is, or null.
[[nodiscard]] inline double (*function_of_one(const op_info* op))(double) {
  const auto same = [](double x) { return x; };
  if (op == &ops::negate) return [](double x) { return -x; };
  if (op == &ops::logical_not) return [](double x) { return x == 0 ? 1.0 : 0.0; };
  if (op == &ops::exp) return [](double x) { return std::exp(x); };
  if (op == &ops::log) return [](double x) { return std::log(x); };
  if (op == &ops::sqrt) return [](double x) { return std::sqrt(x); };
  if (op == &ops::rsqrt) return [](double x) { return 1 / std::sqrt(x); };
  if (op == &ops::tanh) return [](double x) { return std::tanh(x); };
  if (op == &ops::sigmoid) return [](double x) { return logistic(x); };
  if (op == &ops::relu) return [](double x) { return x <= 0 ? 0.0 : x; };
  if (op == &ops::silu) return [](double x) { return x * logistic(x); };
  if (op == &ops::gelu) {
    return
        [](double x) { return x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x))) / 2; };
  }
  // The derivatives of the last two.
  if (op == &ops::silu_slope) return [](double x) { return logistic(x) + x * logistic(x) * (1 - logistic(x)); };
  if (op == &ops::gelu_slope) {
    return [](double x) {
      const double scale = std::sqrt(2 / std::acos(-1.0));
      const double t = std::tanh(scale * (x + 0.044715 * x * x * x));
      return (1 + t) / 2 + x * (1 - t * t) / 2 * scale * (1 + 3 * 0.044715 * x * x);
    };
  }
  if (op == &ops::sin) return [](double x) { return std::sin(x); };
  if (op == &ops::cos) return [](double x) { return std::cos(x); };
  if (op == &ops::tan) return [](double x) { return std::sin(x) / std::cos(x); };
  if (op == &ops::erf) return [](double x) { return std::erf(x); };
  if (op == &ops::erfc) return [](double x) { return std::erfc(x); };
  if (op == &ops::erf_inv) return whose_erf_is;
  if (op == &ops::expm1) return [](double x) { return std::expm1(x); };
  if (op == &ops::log1p) return [](double x) { return std::log1p(x); };
  if (op == &ops::abs) return [](double x) { return std::signbit(x) ? -x : x; };
  if (op == &ops::sign) return [](double x) { return std::isnan(x) ? x : (x > 0 ? 1.0 : 0.0) - (x < 0 ? 1.0 : 0.0); };
  if (op == &ops::is_finite) return [](double x) { return std::isfinite(x) ? 1.0 : 0.0; };
  if (op == &ops::trunc) {
    return [](double x) {
      double whole = 0;
      std::modf(x, &whole);
      return whole;
    };
  }
  if (op == &ops::floor) return [](double x) { return std::trunc(x) > x ? std::trunc(x) - 1 : std::trunc(x); };
  if (op == &ops::ceil) return [](double x) { return std::trunc(x) < x ? std::trunc(x) + 1 : std::trunc(x); };
  if (op == &ops::round) return [](double x) { return std::nearbyint(x); };
  // What only says something to passes: about gradients, layouts and buffers. (Of `match`, operand 1 is a model.)
  for (const op_info* const one :
       {&ops::stop_gradient, &ops::copy, &ops::shard, &ops::reshard, &ops::match, &ops::again}) {
    if (op == one) return same;
  }
  return nullptr;
}

/// A NaN in either place is the greatest and the smallest, as NumPy has it.
[[nodiscard]] inline double larger(double x, double y) {
  if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<double>::quiet_NaN();
  return x < y ? y : x;
}
[[nodiscard]] inline double smaller(double x, double y) {
  if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<double>::quiet_NaN();
  return y < x ? y : x;
}

/// What is left of x when as many y as fit are taken away, with x's sign; of integers, x itself where y is zero.
[[nodiscard]] inline double left_over(double x, double y) {
  const double size = std::abs(y);
  const double rest = std::remainder(std::abs(x), size);
  return std::copysign(rest < 0 ? rest + size : rest, x);
}
/// -NaN, -infinity ... -0, 0 ... infinity, NaN.
[[nodiscard]] inline bool is_below(double x, double y) {
  const auto group = [](double z) { return !std::isnan(z) ? 0 : std::signbit(z) ? -1 : 1; };
  if (group(x) != 0 || group(y) != 0) return group(x) < group(y);
  return x < y || (x == y && std::signbit(x) && !std::signbit(y));
}

/// The function of two elements that an op is, or null.
[[nodiscard]] inline double (*function_of_two(const op_info* op, dtype type))(double, double) {
  if (op == &ops::add) return [](double x, double y) { return x + y; };
  if (op == &ops::subtract) return [](double x, double y) { return x - y; };
  if (op == &ops::multiply) return [](double x, double y) { return x * y; };
  // Integers divide towards zero, and by zero into zero.
  if (op == &ops::divide && whole_numbers_of(type).count != 0) {
    return [](double x, double y) { return y == 0 ? 0 : std::trunc(x / y); };
  }
  if (op == &ops::divide) return [](double x, double y) { return x / y; };
  if (op == &ops::less) return [](double x, double y) { return x < y ? 1.0 : 0.0; };
  if (op == &ops::less_equal) return [](double x, double y) { return x <= y ? 1.0 : 0.0; };
  if (op == &ops::equal) return [](double x, double y) { return x == y ? 1.0 : 0.0; };
  if (op == &ops::not_equal) return [](double x, double y) { return x == y ? 0.0 : 1.0; };
  if (op == &ops::logical_and) return [](double x, double y) { return x == 0 || y == 0 ? 0.0 : 1.0; };
  if (op == &ops::logical_or) return [](double x, double y) { return x == 0 && y == 0 ? 0.0 : 1.0; };
  if (op == &ops::atan2) return [](double y, double x) { return std::arg(std::complex<double>(x, y)); };
  if (op == &ops::pow) return [](double x, double y) { return std::pow(x, y); };
  if (op == &ops::remainder && !is_floating(type)) {
    return [](double x, double y) { return y == 0 ? x : left_over(x, y); };
  }
  if (op == &ops::remainder) return left_over;
  if (op == &ops::total_less) return [](double x, double y) { return is_below(x, y) ? 1.0 : 0.0; };
  if (op == &ops::total_less_equal) return [](double x, double y) { return is_below(y, x) ? 0.0 : 1.0; };
  if (op == &ops::total_equal) return [](double x, double y) { return is_below(x, y) || is_below(y, x) ? 0.0 : 1.0; };
  if (op == &ops::maximum) return larger;
  if (op == &ops::minimum) return smaller;
  return nullptr;
}

// --- bits
// ------------------------------------------------------------------------------------------------------------

[[nodiscard]] inline double power_of_two(std::int64_t n) { return std::ldexp(1.0, static_cast<int>(n)); }
/// How many bits of an element say something.
[[nodiscard]] inline std::int64_t bits_of(dtype type) { return type == dtype::boolean ? 1 : 8 * size_of(type); }
/// Digit k of a whole number in two's complement.
[[nodiscard]] inline bool digit(double x, std::int64_t k) {
  const double shifted = std::floor(x / power_of_two(k));
  return shifted - 2 * std::floor(shifted / 2) != 0;
}
/// Whether op is a function of two words, and what it makes of x and y.
[[nodiscard]] inline bool is_function_of_words(const op_info* op) {
  for (const op_info* const one : {&ops::bitwise_and, &ops::bitwise_or, &ops::bitwise_xor, &ops::shift_left,
                                   &ops::shift_right_logical, &ops::shift_right_arithmetic}) {
    if (op == one) return true;
  }
  return false;
}
[[nodiscard]] inline double function_of_words(const op_info* op, dtype type, double x, double y) {
  const std::int64_t bits = bits_of(type);
  const double all = power_of_two(bits);
  // An amount without its sign.
  const double amount = y < 0 ? y + all : y;
  const bool small = amount < static_cast<double>(bits);
  const double by = small ? power_of_two(static_cast<std::int64_t>(amount)) : 1;
  double made = 0;
  if (op == &ops::shift_left) {
    made = small ? x * by : 0;
  } else if (op == &ops::shift_right_logical) {
    made = small ? std::floor((x < 0 ? x + all : x) / by) : 0;
  } else if (op == &ops::shift_right_arithmetic) {
    made = small ? std::floor(x / by) : x < 0 ? -1 : 0;
  } else {
    for (std::int64_t k = 0; k < bits; ++k) {
      const int both = (digit(x, k) ? 1 : 0) + (digit(y, k) ? 1 : 0);
      const bool is_set = op == &ops::bitwise_and ? both == 2 : op == &ops::bitwise_or ? both > 0 : both == 1;
      if (is_set) made += power_of_two(k);
    }
  }
  return in_memory(type, made);
}

/// How many bits of a float are its mantissa's; the others but one are the exponent's.
[[nodiscard]] inline int mantissa_of(dtype type) { return type == dtype::f64 ? 52 : type == dtype::bf16 ? 7 : 23; }
/// The bits of a float as a whole number, and the other way round: sign, exponent, mantissa (IEEE 754).
[[nodiscard]] inline double word_of_float(dtype type, double x) {
  const int mantissa = mantissa_of(type);
  const int exponents = static_cast<int>(bits_of(type)) - 1 - mantissa;
  const double bias = power_of_two(exponents - 1) - 1;
  const double sign = std::signbit(x) ? power_of_two(bits_of(type) - 1) : 0;
  const double unit = power_of_two(mantissa);
  if (std::isnan(x)) return sign + (2 * bias + 1) * unit + unit / 2;
  if (std::isinf(x)) return sign + (2 * bias + 1) * unit;
  const double size = std::abs(x);
  if (size < std::ldexp(2.0, -static_cast<int>(bias))) {
    return sign + std::ldexp(size, static_cast<int>(bias) - 1 + mantissa);
  }
  int exponent = 0;
  const double fraction = std::frexp(size, &exponent);
  return sign + (exponent - 1 + bias) * unit + (2 * fraction - 1) * unit;
}
[[nodiscard]] inline double float_of_word(dtype type, double word) {
  const int mantissa = mantissa_of(type);
  const int exponents = static_cast<int>(bits_of(type)) - 1 - mantissa;
  const auto bias = static_cast<int>(power_of_two(exponents - 1)) - 1;
  const double top = power_of_two(bits_of(type) - 1);
  const double without_sign = word >= top ? word - top : word;
  const double unit = power_of_two(mantissa);
  const double exponent = std::floor(without_sign / unit);
  const double rest = without_sign - exponent * unit;
  double size = std::ldexp(unit + rest, static_cast<int>(exponent) - bias - mantissa);
  if (exponent == 0) size = std::ldexp(rest, 1 - bias - mantissa);
  if (exponent == 2 * bias + 1) {
    size = rest == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return word >= top ? -size : size;
}
/// Word `at` of the sequence that belongs to a key, a number and a purpose: Philox4x32-7 of the number of the word's
/// block (Salmon et al., 2011, figure 2: of four words two are multiplied, and take each other's places).
[[nodiscard]] inline double random_word(std::uint64_t at, const tensor_value& key, double number,
                                        std::int64_t purpose) {
  constexpr std::uint64_t all = std::uint64_t{1} << 32U;
  std::uint64_t left[2]{at / 4 % all, static_cast<std::uint64_t>(number)};
  std::uint64_t right[2]{at / 4 / all, static_cast<std::uint64_t>(purpose)};
  const std::uint64_t factor[2]{3528531795U, 3449720151U};
  const std::uint64_t weyl[2]{2654435769U, 3144134277U};
  for (std::uint64_t round = 0; round < 7; ++round) {
    std::uint64_t next[2]{};
    for (std::size_t k = 0; k < 2; ++k) {
      const std::uint64_t round_key = (static_cast<std::uint64_t>(key.data.at(k)) + round * weyl[k]) % all;
      next[k] = factor[1 - k] * left[1 - k] / all ^ right[k] ^ round_key;
    }
    for (std::size_t k = 0; k < 2; ++k) right[k] = factor[1 - k] * left[1 - k] % all;
    for (std::size_t k = 0; k < 2; ++k) left[k] = next[k];
  }
  return static_cast<double>(at % 2 == 0 ? left[at % 4 / 2] : right[at % 4 / 2]);
}

/// An element's bits as another type's. (Of 64 bits a double holds 53.)
[[nodiscard]] inline double with_bits_of(dtype from, dtype to, double x) {
  const double all = power_of_two(bits_of(from));
  const double word = is_floating(from) ? word_of_float(from, in_memory(from, x)) : x < 0 ? x + all : x;
  return is_floating(to) ? float_of_word(to, word) : in_memory(to, word);
}

/// Entry d of a list of dimensions: four bits each, counted from one.
[[nodiscard]] inline int listed_dimension(std::int64_t code, int d) {
  return static_cast<int>(code >> (4 * d) & 15) - 1;
}

/// The letters of an einsum's term: eight bits each.
[[nodiscard]] inline std::string letters_of(std::int64_t code) {
  std::string letters;
  for (auto rest = static_cast<std::uint64_t>(code); rest != 0; rest >>= 8U) {
    letters += static_cast<char>(rest & 255U);
  }
  return letters;
}

/// A program as equations: the value of an instruction in one iteration of every loop around it is a function of its
/// operands' values. Computed where a result asks for it, and kept; the order of the instructions means nothing.
class equations {
 public:
  equations(graph_view g, const std::vector<tensor_value>& arguments, naive_storage storage)
      : g_(g),
        arguments_(arguments),
        storage_(storage),
        known_(static_cast<std::size_t>(g.size)),
        iteration_(static_cast<std::size_t>(g.size), -1),
        passed_on_by_(static_cast<std::size_t>(g.size), -1) {
    for (int id = 0; id < g.size; ++id) {
      if (g[id].op == &ops::loop_next) passed_on_by_[static_cast<std::size_t>(g[id].operand[0])] = id;
    }
  }

  /// Whether every value that was computed is a whole number that its type holds, and so is every sum of some of the
  /// terms of a sum: then the order of additions and the types between them change nothing.
  [[nodiscard]] bool exact() const { return exact_; }

  [[nodiscard]] std::vector<tensor_value> results() {
    std::vector<tensor_value> made;
    for (int id = 0; id < g_.size; ++id) {
      if (g_[id].op != &ops::result) continue;
      const auto number = static_cast<std::size_t>(attributes_of<border_attributes>(g_[id]).number);
      if (made.size() <= number) made.resize(number + 1);
      made[number] = value(g_[id].operand[0]);
    }
    return made;
  }

 private:
  struct slot {
    bool known = false;
    tensor_value value;
  };

  [[noreturn]] void refuse(int id, const std::string& why) const {
    throw std::invalid_argument("naive: %" + std::to_string(id) + " = " + g_[id].op->name + " " + why);
  }

  /// A result of this type, and the sum of its terms' sizes.
  void note(dtype type, double x, double size) {
    const auto [least, count] = naive::whole_numbers_of(type);
    double most = 0x1p53;
    if (type == dtype::bf16) most = 0x1p8;
    if (type == dtype::f16) most = 0x1p11;
    if (type == dtype::f32) most = 0x1p24;
    if (count != 0) most = std::min(most, least + (count - 1));
    exact_ = exact_ && x == std::trunc(x) && size <= most && (count == 0 || x >= least);
  }

  [[nodiscard]] std::int64_t count_of(int loop) const { return attributes_of<loop_attributes>(g_[loop]).iterations; }
  [[nodiscard]] bool runs_down(int loop) const { return attributes_of<loop_attributes>(g_[loop]).reverse; }
  [[nodiscard]] std::int64_t& iteration(int loop) { return iteration_[static_cast<std::size_t>(loop)]; }

  /// The value of `id` in the current iterations of the loops around it.
  const tensor_value& value(int id) {
    std::size_t slots = 1;
    std::size_t at = 0;
    for (int loop = g_[id].loop; loop >= 0; loop = g_[loop].loop) {
      if (iteration(loop) < 0) refuse(id, "is read outside its loop");
      at += slots * static_cast<std::size_t>(iteration(loop));
      slots *= static_cast<std::size_t>(count_of(loop));
    }
    std::vector<slot>& known = known_[static_cast<std::size_t>(id)];
    if (known.empty()) known.resize(slots);
    if (!known[at].known) {
      tensor_value made = computed(id);
      if (!(made.shape == g_[id].shape)) refuse(id, "comes out in another shape than it has");
      for (const double x : made.data) note(g_[id].type, x, std::abs(x));
      if (storage_ == naive_storage::typed || !is_floating(g_[id].type)) {
        for (double& x : made.data) x = in_memory(g_[id].type, x);
      }
      known[at].value = std::move(made);
      known[at].known = true;
    }
    return known[at].value;
  }

  const tensor_value& operand(int id, int k) {
    if (k >= g_[id].operand_count) refuse(id, "has too few operands");
    return value(g_.operand_at(g_[id], k));
  }

  tensor_value computed(int id) {
    const instruction& self = g_[id];
    const op_info* const op = self.op;
    if (op == &ops::argument) return argument(id);
    if (op == &ops::constant) {
      return tensor_of(self.shape, [&](const place_in&) { return self.scalar; });
    }
    if (op == &ops::iota) {
      const int along = attributes_of<index_attributes>(self).dim;
      return tensor_of(self.shape, [&](const place_in& i) { return static_cast<double>(i[along]); });
    }
    if (op == &table_of(self.type)) {
      std::int64_t at = 0;
      return tensor_of(
          self.shape, [&](const place_in&) { return static_cast<double>(table_number(at++, is_unsigned(self.type))); });
    }
    if (op == &ops::random_bits) {
      const tensor_value& key = operand(id, 0);
      const double number = self.operand_count > 1 ? operand(id, 1).data.at(0) : 0;
      const auto purpose = static_cast<std::int64_t>(attributes_of<detail::random_attributes>(self).purpose);
      std::uint64_t at = 0;  // elements come in their order
      return tensor_of(self.shape,
                       [&](const place_in&) { return in_memory(self.type, random_word(at++, key, number, purpose)); });
    }
    if (const auto f = function_of_one(op); f != nullptr) {
      tensor_value made = operand(id, 0);
      for (double& x : made.data) x = f(x);
      return made;
    }
    if (const auto f = function_of_two(op, self.type); f != nullptr) {
      const tensor_value& x = operand(id, 0);
      const tensor_value& y = same_shape(id, 1);
      return tensor_of(x.shape, [&](const place_in& i) { return f(element(x, i), element(y, i)); });
    }
    if (op == &ops::convert) {
      tensor_value made = operand(id, 0);
      for (double& x : made.data) x = converted(self.type, x, g_[self.operand[0]].type);
      return made;
    }
    if (is_function_of_words(op)) {
      const tensor_value& x = operand(id, 0);
      const tensor_value& y = same_shape(id, 1);
      return tensor_of(
          x.shape, [&](const place_in& i) { return function_of_words(op, self.type, element(x, i), element(y, i)); });
    }
    if (op == &ops::bitwise_not) {
      tensor_value made = operand(id, 0);
      for (double& x : made.data) x = self.type == dtype::boolean ? 1 - x : in_memory(self.type, -x - 1);
      return made;
    }
    if (op == &ops::bit_cast) {
      tensor_value made = operand(id, 0);
      const dtype from = attributes_of<bit_cast_attributes>(self).from;
      for (double& x : made.data) x = with_bits_of(from, self.type, x);
      return made;
    }
    if (op == &ops::clamp) {
      const tensor_value& low = same_shape(id, 0);
      const tensor_value& x = same_shape(id, 1);
      const tensor_value& high = same_shape(id, 2);
      return tensor_of(x.shape, [&](const place_in& i) {
        return smaller(larger(element(x, i), element(low, i)), element(high, i));
      });
    }
    if (op == &ops::select) {
      const tensor_value& condition = operand(id, 0);
      const tensor_value& yes = same_shape(id, 1);
      const tensor_value& no = same_shape(id, 2);
      return tensor_of(condition.shape, [&](const place_in& i) {
        return element(condition, i) == 0 ? element(no, i) : element(yes, i);
      });
    }
    if (op == &ops::softmax || op == &ops::standardise) {
      const tensor_value& x = same_shape(id, 1);
      const tensor_value& factor = same_shape(id, 2);
      return tensor_of(x.shape, [&](const place_in& i) { return element(x, i) * element(factor, i); });
    }
    if (op == &ops::reshape) return {self.shape, operand(id, 0).data};
    if (op == &ops::broadcast) return broadcast(id);
    if (op == &ops::transpose) return transpose(id);
    if (op == &ops::reduce_sum || op == &ops::reduce) return reduce(id);
    if (op == &ops::einsum) return einsum(id);
    if (op == &ops::slice) return slice(id);
    if (op == &ops::cumulate) return cumulate(id);
    if (op == &ops::pad) return pad(id);
    if (op == &ops::roll) return roll(id);
    if (op == &ops::concat) return concat(id);
    if (op == &ops::top_k) return top_k(id, id, false);
    if (op == &ops::further_result && g_.operand(id, 0).op == &ops::top_k) return top_k(id, self.operand[0], true);
    if (op == &ops::take_along || op == &ops::put_along) return moved_along(id);
    if (op == &ops::convolution) return convolution(id);
    if (op == &ops::convolution_input_gradient) return input_gradient(id);
    if (op == &ops::convolution_filter_gradient) return filter_gradient(id);
    if (op == &ops::sum_pool || op == &ops::max_pool) return pool(id);
    if (op == &ops::pool_equal) return pool_equal(id);
    if (op == &ops::spread_equal) return spread_equal(id);
    if (op == &ops::gather) return gather(id);
    if (op == &ops::scatter_add) return scatter_add(id);
    if (op == &ops::dynamic_slice) return dynamic_slice(id);
    if (op == &ops::dynamic_update_slice) return dynamic_update_slice(id);
    if (op == &ops::loop_carry) return carry(id);
    if (op == &ops::loop_slice) return loop_slice(id);
    if (op == &ops::loop_result) return loop_result(id);
    if (op == &ops::loop_stack) return loop_stack(id);
    if (op == &ops::loop_sum) return loop_sum(id);
    refuse(id, "has no meaning here");
  }

  const tensor_value& same_shape(int id, int k) {
    const tensor_value& found = operand(id, k);
    if (!(found.shape == g_[id].shape)) refuse(id, "has operands of other shapes");
    return found;
  }

  tensor_value argument(int id) const {
    const auto number = static_cast<std::size_t>(attributes_of<border_attributes>(g_[id]).number);
    if (number >= arguments_.size()) refuse(id, "is missing");
    if (arguments_[number].data.size() != static_cast<std::size_t>(g_[id].shape.elements())) refuse(id, "is too small");
    return arguments_[number];
  }

  // --- one tensor
  // -----------------------------------------------------------------------------------------------------

  tensor_value broadcast(int id) {
    const tensor_value& from = operand(id, 0);
    const axis_list target = attributes_of<broadcast_attributes>(g_[id]).target;
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      place_in i;
      for (int d = 0; d < from.shape.rank; ++d) {
        i[d] = from.shape[d] == 1 ? 0 : to[listed_dimension(target.code(), d)];
      }
      return element(from, i);
    });
  }

  tensor_value transpose(int id) {
    const tensor_value& from = operand(id, 0);
    const axis_list source = attributes_of<transpose_attributes>(g_[id]).source;
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      place_in i;
      for (int d = 0; d < from.shape.rank; ++d) i[listed_dimension(source.code(), d)] = to[d];
      return element(from, i);
    });
  }

  tensor_value reduce(int id) {
    const tensor_value& from = operand(id, 0);
    const std::int64_t dims = attributes_of<reduction_attributes>(g_[id]).dims;
    const reduction kind = attributes_of<reduction_attributes>(g_[id]).kind;
    std::vector<int> kept;
    std::vector<int> gone;
    extents rest;
    for (int d = 0; d < from.shape.rank; ++d) {
      const bool goes = (dims >> d & 1) == 1;
      (goes ? gone : kept).push_back(d);
      if (goes) rest.append(from.shape[d]);
    }
    const double most = std::numeric_limits<double>::infinity();
    const double none = kind == reduction::sum    ? 0
                        : kind == reduction::prod ? 1
                        : kind == reduction::max  ? -most
                                                  : most;
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      place_in i;
      for (std::size_t d = 0; d < kept.size(); ++d) i[kept[d]] = to[static_cast<int>(d)];
      double sum = none;
      double size = 0;
      for_each_index(rest, [&](const place_in& along) {
        for (std::size_t d = 0; d < gone.size(); ++d) i[gone[d]] = along[static_cast<int>(d)];
        const double x = element(from, i);
        size += std::abs(x);
        switch (kind) {
          case reduction::sum: sum += x; break;
          case reduction::prod: sum *= x; break;
          case reduction::max: sum = larger(sum, x); break;
          case reduction::min: sum = smaller(sum, x); break;
        }
      });
      if (kind == reduction::sum) note(g_[id].type, sum, size);
      return sum;
    });
  }

  tensor_value slice(int id) {
    const tensor_value& from = operand(id, 0);
    const auto read = attributes_of<slice_attributes>(g_[id]);
    return tensor_of(g_[id].shape, [&](place_in i) {
      i[read.dim] = read.start + read.step * i[read.dim];
      return element(from, i);
    });
  }

  tensor_value roll(int id) {
    const tensor_value& from = operand(id, 0);
    const auto [along, by] = attributes_of<roll_attributes>(g_[id]);
    return tensor_of(g_[id].shape, [&, dim = along, shift = by](place_in i) {
      i[dim] -= shift;
      if (i[dim] < 0) i[dim] += from.shape[dim];
      return element(from, i);
    });
  }

  /// Each element from the start again.
  tensor_value cumulate(int id) {
    const instruction& self = g_[id];
    const cumulate_attributes how = attributes_of<cumulate_attributes>(self);
    const tensor_value& x = operand(id, 0);
    const tensor_value& terms = self.operand_count == 2 ? operand(id, 1) : x;
    const std::int64_t extent = self.shape[how.dim];
    constexpr double most = std::numeric_limits<double>::infinity();
    return tensor_of(self.shape, [&](const place_in& to) {
      const std::int64_t before = how.reverse ? extent - 1 - to[how.dim] : to[how.dim];
      double sum = how.kind == cumulation::prod  ? 1
                   : how.kind == cumulation::max ? -most
                   : how.kind == cumulation::min ? most
                                                 : 0;
      double size = std::isinf(sum) ? 0 : sum;
      place_in i = to;
      for (std::int64_t n = 0; n < before + (how.exclusive ? 0 : 1); ++n) {
        i[how.dim] = how.reverse ? extent - 1 - n : n;
        const double factor = element(x, i);
        const double term = element(terms, i);
        switch (how.kind) {
          case cumulation::sum:
            sum += factor;
            size += std::abs(factor);
            break;
          case cumulation::prod:
            sum *= factor;
            size *= std::abs(factor);
            break;
          case cumulation::max: sum = larger(sum, factor); break;
          case cumulation::min: sum = smaller(sum, factor); break;
          case cumulation::recurrence:
            sum = factor * sum + term;
            size = std::abs(factor) * size + std::abs(term);
            break;
          case cumulation::late_recurrence:
            // The factor is for what comes behind this element.
            sum = (n == before ? 1 : factor) * (sum + term);
            size = (n == before ? 1 : std::abs(factor)) * (size + std::abs(term));
            break;
        }
      }
      if (how.kind != cumulation::max && how.kind != cumulation::min) note(self.type, sum, size);
      return sum;
    });
  }

  tensor_value pad(int id) {
    const tensor_value& from = operand(id, 0);
    const auto written = attributes_of<slice_attributes>(g_[id]);
    const int along = written.dim;
    return tensor_of(g_[id].shape, [&](place_in i) {
      const std::int64_t behind = i[along] - written.start;
      const std::int64_t row = behind / written.step;
      if (behind % written.step != 0 || row < 0 || row >= from.shape[along]) return 0.0;
      i[along] = row;
      return element(from, i);
    });
  }

  // --- windows
  // -------------------------------------------------------------------------------------------------------

  [[nodiscard]] const placed_window& window_of(int id, int spatial) const {
    return g_.windows[attributes_of<windowed_attributes>(g_[id]).first_window + spatial];
  }
  /// [taps] of the windows of an op.
  [[nodiscard]] extents taps_of(int id, int spatial) const {
    extents taps;
    for (int d = 0; d < spatial; ++d) taps.append(window_of(id, d).size);
    return taps;
  }
  /// The element of [n, spatial ..., channels] that tap k of the window at `o` sees: false if there is none.
  bool seen_by(int id, const extents& shape, const place_in& o, const place_in& k, place_in& p) const {
    p[0] = o[0];
    for (int d = 0; d < shape.rank - 2; ++d) {
      const placed_window& w = window_of(id, d);
      p[d + 1] = -1;
      for (std::int64_t one = 0; one < shape[d + 1]; ++one) {
        if (w.base_dilation * one + w.low == w.stride * o[d + 1] + w.dilation * k[d]) p[d + 1] = one;
      }
      if (p[d + 1] < 0) return false;
    }
    return true;
  }

  /// Calls f(x's place, filter's place, y's place) for all products of a convolution.
  template <class F>
  void for_each_product(int id, const extents& x, const extents& filter, const extents& y, const F& f) {
    const int spatial = filter.rank - 2;
    const int last = spatial + 1;
    const std::int64_t groups = x[last] / filter[spatial];
    for_each_index(y, [&](const place_in& at_y) {
      for_each_index(taps_of(id, spatial), [&](const place_in& k) {
        place_in at_x;
        if (!seen_by(id, x, at_y, k, at_x)) return;
        place_in at_filter = k;
        at_filter[spatial + 1] = at_y[last];
        const std::int64_t group = at_y[last] / (y[last] / groups);
        for (std::int64_t c = 0; c < filter[spatial]; ++c) {
          at_filter[spatial] = c;
          at_x[last] = group * filter[spatial] + c;
          f(at_x, at_filter, at_y);
        }
      });
    });
  }
  /// Sums products into a tensor: `f(add)` calls add(place, term) for every one.
  template <class F> tensor_value summed(int id, const F& f) {
    tensor_value made = tensor_of(g_[id].shape, [](const place_in&) { return 0.0; });
    tensor_value size = made;
    f([&](const place_in& to, double term) {
      element_at(made, to) += term;
      element_at(size, to) += std::abs(term);
    });
    for (std::size_t n = 0; n < made.data.size(); ++n) note(g_[id].type, made.data[n], size.data[n]);
    return made;
  }
  static double& element_at(tensor_value& of, const place_in& i) {
    std::size_t at = 0;
    for (int d = 0; d < of.shape.rank; ++d)
      at = at * static_cast<std::size_t>(of.shape[d]) + static_cast<std::size_t>(i[d]);
    return of.data[at];
  }

  tensor_value convolution(int id) {
    const tensor_value& x = operand(id, 0);
    const tensor_value& w = operand(id, 1);
    return summed(id, [&](const auto& add) {
      for_each_product(id, x.shape, w.shape, g_[id].shape, [&](const auto& at_x, const auto& at_w, const auto& at_y) {
        add(at_y, element(x, at_x) * element(w, at_w));
      });
    });
  }
  tensor_value input_gradient(int id) {
    const tensor_value& y = operand(id, 0);
    const tensor_value& w = operand(id, 1);
    return summed(id, [&](const auto& add) {
      for_each_product(id, g_[id].shape, w.shape, y.shape, [&](const auto& at_x, const auto& at_w, const auto& at_y) {
        add(at_x, element(y, at_y) * element(w, at_w));
      });
    });
  }
  tensor_value filter_gradient(int id) {
    const tensor_value& x = operand(id, 0);
    const tensor_value& y = operand(id, 1);
    return summed(id, [&](const auto& add) {
      for_each_product(id, x.shape, g_[id].shape, y.shape, [&](const auto& at_x, const auto& at_w, const auto& at_y) {
        add(at_w, element(x, at_x) * element(y, at_y));
      });
    });
  }

  /// Calls f(o, p) for every window at o of the result's shape and every element p of `seen` that it sees.
  template <class F> void for_each_seen(int id, const extents& seen, const F& f) {
    const int spatial = seen.rank - 2;
    for_each_index(g_[id].shape, [&](const place_in& o) {
      for_each_index(taps_of(id, spatial), [&](const place_in& k) {
        place_in p;
        if (!seen_by(id, seen, o, k, p)) return;
        p[spatial + 1] = o[spatial + 1];
        f(o, p);
      });
    });
  }
  tensor_value pool(int id) {
    const tensor_value& x = operand(id, 0);
    if (g_[id].op == &ops::sum_pool) {
      return summed(id, [&](const auto& add) {
        for_each_seen(id, x.shape, [&](const place_in& o, const place_in& p) { add(o, element(x, p)); });
      });
    }
    const double least = -std::numeric_limits<double>::infinity();
    tensor_value made = tensor_of(g_[id].shape, [&](const place_in&) { return least; });
    for_each_seen(id, x.shape, [&](const place_in& o, const place_in& p) {
      element_at(made, o) = larger(element_at(made, o), element(x, p));
    });
    return made;
  }
  tensor_value pool_equal(int id) {
    const tensor_value& x = operand(id, 0);
    const tensor_value& y = operand(id, 1);
    const tensor_value& v = operand(id, 2);
    return summed(id, [&](const auto& add) {
      for_each_seen(id, x.shape, [&](const place_in& o, const place_in& p) {
        if (element(x, p) == element(y, o)) add(o, element(v, p));
      });
    });
  }
  tensor_value spread_equal(int id) {
    const tensor_value& x = operand(id, 0);
    const tensor_value& y = operand(id, 1);
    const tensor_value& g = operand(id, 2);
    return summed(id, [&](const auto& add) {
      for_each_seen(id, y.shape, [&](const place_in& p, const place_in& o) {
        if (element(x, p) == element(y, o)) add(p, element(g, o));
      });
    });
  }

  // --- several tensors
  // ------------------------------------------------------------------------------------------------

  tensor_value concat(int id) {
    const int along = attributes_of<concat_attributes>(g_[id]).dim;
    for (int k = 0; k < g_[id].operand_count; ++k) operand(id, k);
    return tensor_of(g_[id].shape, [&](place_in i) {
      int k = 0;
      while (i[along] >= operand(id, k).shape[along]) i[along] -= operand(id, k++).shape[along];
      return element(operand(id, k), i);
    });
  }

  /// The element that exactly j others of its row come before: larger ones, NaNs, and equal ones that stand before it.
  tensor_value top_k(int id, int op, bool wants_index) {
    const int along = attributes_of<along_attributes>(g_[op]).dim;
    const tensor_value& x = operand(op, 0);
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      place_in i = to;
      const auto at = [&](std::int64_t n) {
        i[along] = n;
        return element(x, i);
      };
      for (std::int64_t n = 0; n < x.shape[along]; ++n) {
        const double mine = at(n);
        std::int64_t before = 0;
        for (std::int64_t m = 0; m < x.shape[along]; ++m) {
          const double other = at(m);
          const bool equal = other == mine || (std::isnan(other) && std::isnan(mine));
          const bool larger = std::isnan(other) ? !std::isnan(mine) : other > mine;
          before += larger || (equal && m < n) ? 1 : 0;
        }
        if (before == to[along]) return wants_index ? static_cast<double>(n) : mine;
      }
      return std::numeric_limits<double>::quiet_NaN();
    });
  }

  tensor_value moved_along(int id) {
    const int along = attributes_of<along_attributes>(g_[id]).dim;
    const tensor_value& x = operand(id, 0);
    const tensor_value& places = operand(id, 1);
    const bool takes = g_[id].op == &ops::take_along;
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      place_in i = to;
      if (takes) {
        const double from = element(places, to);
        if (!(from >= 0 && from < static_cast<double>(x.shape[along]))) return 0.0;
        i[along] = static_cast<std::int64_t>(from);
        return element(x, i);
      }
      for (std::int64_t n = 0; n < x.shape[along]; ++n) {
        i[along] = n;
        if (element(places, i) == static_cast<double>(to[along])) return element(x, i);
      }
      return 0.0;
    });
  }

  tensor_value einsum(int id) {
    const tensor_value& x = operand(id, 0);
    const tensor_value& y = operand(id, 1);
    const einsum_attributes letters = attributes_of<einsum_attributes>(g_[id]);
    const std::string left = letters_of(letters.left.code());
    const std::string right = letters_of(letters.right.code());
    const std::string result = letters_of(letters.result.code());
    std::string summed;
    std::array<std::int64_t, 256> size{};
    std::array<std::int64_t, 256> at{};
    const auto number = [](char letter) { return static_cast<std::size_t>(static_cast<unsigned char>(letter)); };
    const auto read = [&](const std::string& term, const extents& shape) {
      for (std::size_t d = 0; d < term.size(); ++d) {
        size[number(term[d])] = shape[static_cast<int>(d)];
        const bool is_new = result.find(term[d]) == std::string::npos && summed.find(term[d]) == std::string::npos;
        if (is_new) summed += term[d];
      }
    };
    read(left, x.shape);
    read(right, y.shape);
    const auto here = [&](const std::string& term) {
      place_in i;
      for (std::size_t d = 0; d < term.size(); ++d) i[static_cast<int>(d)] = at[number(term[d])];
      return i;
    };
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      for (std::size_t d = 0; d < result.size(); ++d) at[number(result[d])] = to[static_cast<int>(d)];
      std::int64_t terms = 1;
      for (const char letter : summed) terms *= size[number(letter)];
      double sum = 0;
      double size_of_terms = 0;
      for (std::int64_t n = 0; n < terms; ++n) {
        // The letters are the digits of n.
        std::int64_t rest = n;
        for (const char letter : summed) {
          at[number(letter)] = rest % size[number(letter)];
          rest /= size[number(letter)];
        }
        const double term = element(x, here(left)) * element(y, here(right));
        sum += term;
        size_of_terms += std::abs(term);
      }
      note(g_[id].type, sum, size_of_terms);
      return sum;
    });
  }

  /// The index of the row that is looked up for element `i` of what was looked up: dimensions `along`, `along` + 1, ...
  /// of it are those of the indices.
  [[nodiscard]] static double row_of(const tensor_value& indices, int along, const place_in& i) {
    place_in at;
    for (int d = 0; d < indices.shape.rank; ++d) at[d] = i[along + d];
    return element(indices, at);
  }
  /// The same element's index in the table.
  [[nodiscard]] static place_in in_table(const extents& table, const extents& indices, int along, const place_in& i,
                                         double row) {
    place_in at;
    for (int d = 0; d < table.rank; ++d) {
      if (d < along) at[d] = i[d];
      if (d > along) at[d] = i[d + indices.rank - 1];
    }
    at[along] = static_cast<std::int64_t>(row);
    return at;
  }

  tensor_value gather(int id) {
    const tensor_value& table = operand(id, 0);
    const tensor_value& indices = operand(id, 1);
    const int along = attributes_of<gather_attributes>(g_[id]).dim;
    return tensor_of(g_[id].shape, [&](const place_in& i) {
      const double row = row_of(indices, along, i);
      if (row < 0 || row >= static_cast<double>(table.shape[along])) return 0.0;
      return element(table, in_table(table.shape, indices.shape, along, i, row));
    });
  }

  tensor_value scatter_add(int id) {
    const tensor_value& indices = operand(id, 0);
    const tensor_value& updates = operand(id, 1);
    const extents& table = g_[id].shape;
    const int along = attributes_of<gather_attributes>(g_[id]).dim;
    tensor_value made = tensor_of(table, [](const place_in&) { return 0.0; });
    std::vector<double> sizes(made.data.size(), 0.0);
    for_each_index(updates.shape, [&](const place_in& i) {
      const double row = row_of(indices, along, i);
      if (row < 0 || row >= static_cast<double>(table[along])) return;
      const place_in to = in_table(table, indices.shape, along, i, row);
      std::int64_t at = 0;
      for (int d = 0; d < table.rank; ++d) at = at * table[d] + to[d];
      made.data.at(static_cast<std::size_t>(at)) += element(updates, i);
      sizes.at(static_cast<std::size_t>(at)) += std::abs(element(updates, i));
    });
    for (std::size_t i = 0; i < sizes.size(); ++i) note(g_[id].type, made.data[i], sizes[i]);
    return made;
  }

  /// The first of `size` neighbours among `extent` elements: `start`, or what is nearest to it.
  [[nodiscard]] static std::int64_t first_of(double start, std::int64_t extent, std::int64_t size) {
    std::int64_t nearest = 0;
    for (std::int64_t at = 0; at + size <= extent; ++at) {
      const double distance = std::abs(static_cast<double>(at) - start);
      if (distance < std::abs(static_cast<double>(nearest) - start)) nearest = at;
    }
    return nearest;
  }

  tensor_value dynamic_slice(int id) {
    const tensor_value& from = operand(id, 0);
    const int along = attributes_of<dynamic_slice_attributes>(g_[id]).dim;
    const std::int64_t first = first_of(operand(id, 1).data.at(0), from.shape[along], g_[id].shape[along]);
    return tensor_of(g_[id].shape, [&](place_in i) {
      i[along] += first;
      return element(from, i);
    });
  }

  tensor_value dynamic_update_slice(int id) {
    const tensor_value& update = operand(id, 1);
    place_in first;
    for (int k = 2; k < g_[id].operand_count; ++k) {
      const auto placed = attributes_of<dynamic_update_slice_attributes>(g_[id]);
      const int d = k == 2 ? placed.dim : placed.second_dim;
      first[d] = first_of(operand(id, k).data.at(0), g_[id].shape[d], update.shape[d]);
    }
    const tensor_value& before = operand(id, 0);
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      place_in i = to;
      for (int d = 0; d < update.shape.rank; ++d) {
        i[d] -= first[d];
        if (i[d] < 0 || i[d] >= update.shape[d]) return element(before, to);
      }
      return element(update, i);
    });
  }

  // --- loops
  // ----------------------------------------------------------------------------------------------------------

  /// The value of `id` in iteration `k` (by index, not by order) of the loop it belongs to.
  const tensor_value& value_in(int id, int loop, std::int64_t k) {
    const std::int64_t before = iteration(loop);
    iteration(loop) = k;
    const tensor_value& found = value(id);
    iteration(loop) = before;
    return found;
  }
  /// The index of the nth iteration to run.
  [[nodiscard]] std::int64_t nth(int loop, std::int64_t n) const {
    return runs_down(loop) ? count_of(loop) - 1 - n : n;
  }

  tensor_value carry(int id) {
    const int loop = g_[id].loop;
    if (g_[g_[id].operand[0]].loop == loop) refuse(id, "starts with a value of its own loop");
    if (iteration(loop) == nth(loop, 0)) return operand(id, 0);
    const int next = passed_on_by_[static_cast<std::size_t>(id)];
    if (next < 0) refuse(id, "is passed on by nothing");
    const int passed = g_[next].operand[1];
    // What is passed on may be a value from outside.
    return value_in(passed, loop, iteration(loop) + (runs_down(loop) ? 1 : -1));
  }

  tensor_value loop_slice(int id) {
    const tensor_value& whole = operand(id, 0);
    const std::int64_t k = iteration(g_[id].loop);
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      place_in i;
      i[0] = k;
      for (int d = 0; d < g_[id].shape.rank; ++d) i[d + 1] = to[d];
      return element(whole, i);
    });
  }

  tensor_value loop_result(int id) {
    const int next = g_[id].operand[0];
    if (g_[next].op != &ops::loop_next) refuse(id, "is the result of no carry");
    const int loop = g_[next].loop;
    const int carried = g_[next].operand[0];
    if (count_of(loop) == 0) return value(g_[carried].operand[0]);
    // In order, so that no iteration has to ask for a chain of those before it.
    for (std::int64_t n = 0; n + 1 < count_of(loop); ++n) value_in(g_[next].operand[1], loop, nth(loop, n));
    return value_in(g_[next].operand[1], loop, nth(loop, count_of(loop) - 1));
  }

  /// Of a stack or sum: the loop of what is collected.
  [[nodiscard]] int collecting_loop(int id) const {
    const int loop = g_[g_[id].operand[0]].loop;
    if (loop < 0 || g_[loop].loop != g_[id].loop) refuse(id, "collects no value of a loop where it stands");
    return loop;
  }

  tensor_value loop_stack(int id) {
    const int loop = collecting_loop(id);
    if (g_[id].shape[0] != count_of(loop)) refuse(id, "has another length than its loop");
    for (std::int64_t n = 0; n < count_of(loop); ++n) value_in(g_[id].operand[0], loop, nth(loop, n));
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      place_in i;
      for (int d = 1; d < g_[id].shape.rank; ++d) i[d - 1] = to[d];
      return element(value_in(g_[id].operand[0], loop, to[0]), i);
    });
  }

  tensor_value loop_sum(int id) {
    const int loop = collecting_loop(id);
    tensor_value made = tensor_of(g_[id].shape, [](const place_in&) { return 0.0; });
    std::vector<double> sizes(made.data.size(), 0.0);
    for (std::int64_t n = 0; n < count_of(loop); ++n) {
      const tensor_value& term = value_in(g_[id].operand[0], loop, nth(loop, n));
      for (std::size_t i = 0; i < made.data.size(); ++i) {
        made.data[i] += term.data.at(i);
        sizes[i] += std::abs(term.data[i]);
      }
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) note(g_[id].type, made.data[i], sizes[i]);
    return made;
  }

  graph_view g_;
  const std::vector<tensor_value>& arguments_;
  naive_storage storage_;
  bool exact_ = true;
  /// By instruction, then by the iterations of the loops around it.
  std::vector<std::vector<slot>> known_;
  /// By `loop_begin`: the index of the iteration whose values are being computed, -1 outside of it.
  std::vector<std::int64_t> iteration_;
  /// By `loop_carry`: its `loop_next`.
  std::vector<int> passed_on_by_;
};

}  // namespace naive

/// Results, and whether every value on the way is a whole number that its type holds, however its terms are added: then
/// any right way of computing gives the same, to the last bit.
struct naive_outcome {
  std::vector<tensor_value> results;
  bool is_exact = false;
};
[[nodiscard]] inline naive_outcome naive_run(graph_view g, const std::vector<tensor_value>& arguments,
                                             naive_storage storage = naive_storage::exact) {
  naive::equations program(g, arguments, storage);
  naive_outcome made;
  made.results = program.results();
  made.is_exact = program.exact();
  return made;
}

/// The results of a traced program, as the builder made it, on one device. Integers are integers and truth values are
/// truth values in any case; floats are double precision, or with `typed` stored as their types after every op.
/// Throws std::invalid_argument where the program or its data make no sense, and for ops that no traced program has.
[[nodiscard]] inline std::vector<tensor_value> naive_interpret(graph_view g, const std::vector<tensor_value>& arguments,
                                                               naive_storage storage = naive_storage::exact) {
  return naive_run(g, arguments, storage).results;
}

}  // namespace espalier::test
