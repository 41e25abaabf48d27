// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../machine.hpp"

#include <espalier/espalier.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

/// One program for each op and element type, on operands of a megabyte: to compare a build without -march that takes
/// its kernels from the compiled part with one that has them itself, for one processor
/// (benchmarks/kernel_sets/compare).
namespace espalier::benchmarks {

template <dtype Type, int... Extents> using tensor_of = typename detail::dtype_row<Type>::template tensor<Extents...>;

class kernel_rows {
 public:
  explicit kernel_rows(const char* only) : only_(only) {}

  /// Prints the least microseconds of a call.
  template <class F, class... Specs> void measure(const char* op, dtype type, std::int64_t below = 100) {
    const std::string name = std::string(op) + "/" + name_of(type);
    if (std::strstr(name.c_str(), only_) == nullptr) return;
    world here(mesh<>::value);
    runner<program<mesh<>, F, Specs...>> run(here);
    auto all = [&]<std::size_t... I>(std::index_sequence<I...>) {
      return std::make_tuple(run.template argument<static_cast<int>(I)>()...);
    }
    (std::index_sequence_for<Specs...>{});
    int argument = 0;
    std::apply([&](auto&... each) { (fill(each, argument++, below), ...); }, all);
    const auto call = [&] { std::apply([&](auto&... each) { keep(run(each...)); }, all); };
    call();
    const double once = seconds(call);
    const int times = once > 0.002 ? 1 : static_cast<int>(0.002 / once) + 1;
    double least = once;
    for (int n = 0; n < 20; ++n) {
      const double taken = seconds([&] {
                             for (int i = 0; i < times; ++i) call();
                           }) /
                           times;
      least = taken < least ? taken : least;
    }
    std::printf("%s %.3f\n", name.c_str(), least * 1e6);
    std::fflush(stdout);
  }

 private:
  template <class Tensor> static void fill(sharded_array<Tensor>& array, int argument, std::int64_t below) {
    using element = typename sharded_array<Tensor>::value_type;
    array.for_each([=](element& e, std::int64_t i) {
      const double x = drawn(i, argument);
      if constexpr (std::is_integral_v<element>) {
        const auto whole = static_cast<std::int64_t>((x + 2.0) / 4.001 * static_cast<double>(below));
        if constexpr (std::is_same_v<element, bool>) {
          e = whole % 2 != 0;
        } else {
          e = static_cast<element>(whole + (argument > 0 && below == 100 ? 1 : 0));
        }
      } else {
        e = static_cast<element>(static_cast<float>(x));
      }
    });
  }

  const char* only_;
};

// The functions that are measured, in namespaces of their own names.
namespace rows {
#define ESPALIER_ROW_OF_ONE(name, ...)                                     \
  struct name {                                                            \
    constexpr auto operator()(const auto& x) const { return __VA_ARGS__; } \
  };
#define ESPALIER_ROW_OF_TWO(name, ...)                                                    \
  struct name {                                                                           \
    constexpr auto operator()(const auto& x, const auto& y) const { return __VA_ARGS__; } \
  };
#define ESPALIER_ROW_OF_THREE(name, ...)                                                                 \
  struct name {                                                                                          \
    constexpr auto operator()(const auto& x, const auto& y, const auto& z) const { return __VA_ARGS__; } \
  };
ESPALIER_ROW_OF_TWO(add, x + y)
ESPALIER_ROW_OF_TWO(multiply, x* y)
ESPALIER_ROW_OF_TWO(divide, x / y)
ESPALIER_ROW_OF_TWO(remainder, espalier::remainder(x, y))
ESPALIER_ROW_OF_TWO(maximum, espalier::maximum(x, y))
ESPALIER_ROW_OF_TWO(less, x < y)
ESPALIER_ROW_OF_TWO(equal, espalier::equal(x, y))
ESPALIER_ROW_OF_THREE(select, espalier::select(x, y, z))
ESPALIER_ROW_OF_THREE(clamp, espalier::clamp(x, y, z))
ESPALIER_ROW_OF_TWO(add_column, x + y)
ESPALIER_ROW_OF_ONE(negate, -x)
ESPALIER_ROW_OF_ONE(absolute, espalier::abs(x))
ESPALIER_ROW_OF_ONE(sign, espalier::sign(x))
ESPALIER_ROW_OF_ONE(exp, espalier::exp(x))
ESPALIER_ROW_OF_ONE(sqrt, espalier::sqrt(x* x))
ESPALIER_ROW_OF_ONE(tanh, espalier::tanh(x))
ESPALIER_ROW_OF_ONE(gelu, espalier::gelu(x))
ESPALIER_ROW_OF_ONE(sigmoid, espalier::sigmoid(x))
ESPALIER_ROW_OF_ONE(relu, espalier::relu(x))
ESPALIER_ROW_OF_ONE(log1p, espalier::log1p(x* x))
ESPALIER_ROW_OF_ONE(sine, espalier::sin(x))
ESPALIER_ROW_OF_ONE(floor, espalier::floor(x))
ESPALIER_ROW_OF_ONE(is_finite, espalier::is_finite(x))
ESPALIER_ROW_OF_TWO(power, espalier::pow(x* x, y))
ESPALIER_ROW_OF_TWO(bit_xor, x ^ y)
ESPALIER_ROW_OF_ONE(shift, x >> 3)
ESPALIER_ROW_OF_ONE(invert, !x)
ESPALIER_ROW_OF_TWO(both, x&& y)
template <dtype To> struct convert_to {
  constexpr auto operator()(const auto& x) const { return espalier::convert<To>(x); }
};
ESPALIER_ROW_OF_ONE(sum_columns, espalier::sum<0>(x))
ESPALIER_ROW_OF_ONE(sum_rows, espalier::sum<1>(x))
ESPALIER_ROW_OF_ONE(sum_all, espalier::sum(x))
ESPALIER_ROW_OF_ONE(max_rows, espalier::max<1>(x))
ESPALIER_ROW_OF_ONE(max_columns, espalier::max<0>(x))
ESPALIER_ROW_OF_ONE(norm, espalier::sum<1>(x* x))
ESPALIER_ROW_OF_ONE(count, espalier::any<1>(x))
ESPALIER_ROW_OF_ONE(softmax, espalier::softmax<-1>(x))
ESPALIER_ROW_OF_ONE(running_sum, espalier::cumsum<1>(x))
ESPALIER_ROW_OF_ONE(running_columns, espalier::cumsum<0>(x))
ESPALIER_ROW_OF_ONE(arg_max, espalier::argmax<1>(x))
struct largest {
  constexpr auto operator()(const auto& x) const {
    const auto [values, places] = espalier::top_k<1, 4>(x);
    return espalier::results(values, places);
  }
};
ESPALIER_ROW_OF_TWO(look_up, espalier::gather<0>(x, y))
struct look_up_gradient {
  struct weighed {
    constexpr auto operator()(const auto& x, const auto& at, const auto& upper) const {
      return espalier::sum(espalier::gather<0>(x, at) * upper);
    }
  };
  constexpr auto operator()(const auto& x, const auto& at, const auto& upper) const {
    return espalier::grad<0>(weighed{})(x, at, upper);
  }
};
ESPALIER_ROW_OF_ONE(hot, espalier::one_hot<64>(x))
ESPALIER_ROW_OF_ONE(padded, espalier::pad<1, 3, 5>(x))
ESPALIER_ROW_OF_ONE(turned, espalier::transpose<1, 0>(x))
ESPALIER_ROW_OF_TWO(joined, espalier::concat<1>(x, y))
ESPALIER_ROW_OF_ONE(rolled, espalier::roll<1, 7>(x))
inline constexpr pooling_settings by_two{.size = {2, 2}, .stride = {2, 2}};
ESPALIER_ROW_OF_ONE(pool_max, espalier::max_pool<by_two>(x))
inline constexpr convolution_settings padded_by_one{.low = {1, 1}, .high = {1, 1}};
ESPALIER_ROW_OF_TWO(convolved, espalier::convolution<padded_by_one>(x, y))
ESPALIER_ROW_OF_TWO(product, espalier::matmul(x, y))
#undef ESPALIER_ROW_OF_ONE
#undef ESPALIER_ROW_OF_TWO
#undef ESPALIER_ROW_OF_THREE
}  // namespace rows

/// Ops of one element type.
template <dtype Type> void measure_ops(kernel_rows& all) {
  constexpr int lines = 512;
  constexpr int width = (1 << 20) / lines / static_cast<int>(size_of(Type));
  using matrix = tensor_of<Type, lines, width>;
  using column = tensor_of<Type, lines, 1>;
  using choice = boolean<lines, width>;
  constexpr bool is_float = is_floating(Type);
  constexpr bool is_number = Type != dtype::boolean;
  all.measure<rows::equal, matrix, matrix>("equal", Type);
  all.measure<rows::select, choice, matrix, matrix>("select", Type);
  all.measure<rows::turned, matrix>("transpose", Type);
  all.measure<rows::padded, matrix>("pad", Type);
  all.measure<rows::joined, matrix, matrix>("concat", Type);
  all.measure<rows::rolled, matrix>("roll", Type);
  all.measure<rows::look_up, matrix, i32<lines>>("gather", Type, lines);
  if constexpr (Type != dtype::f32) all.measure<rows::convert_to<dtype::f32>, matrix>("to f32", Type);
  if constexpr (Type != dtype::i32) all.measure<rows::convert_to<dtype::i32>, matrix>("to i32", Type);
  if constexpr (Type != dtype::f16) all.measure<rows::convert_to<dtype::f16>, matrix>("to f16", Type);
  if constexpr (Type != dtype::bf16) all.measure<rows::convert_to<dtype::bf16>, matrix>("to bf16", Type);
  if constexpr (is_number) {
    all.measure<rows::add, matrix, matrix>("add", Type);
    all.measure<rows::multiply, matrix, matrix>("multiply", Type);
    all.measure<rows::add_column, matrix, column>("add a column", Type);
    all.measure<rows::maximum, matrix, matrix>("maximum", Type);
    all.measure<rows::less, matrix, matrix>("less", Type);
    all.measure<rows::clamp, matrix, matrix, matrix>("clamp", Type);
    all.measure<rows::divide, matrix, matrix>("divide", Type);
    all.measure<rows::remainder, matrix, matrix>("remainder", Type);
    all.measure<rows::absolute, matrix>("abs", Type);
    all.measure<rows::sum_rows, matrix>("sum of rows", Type);
    all.measure<rows::sum_columns, matrix>("sum of columns", Type);
    all.measure<rows::sum_all, matrix>("sum", Type);
    all.measure<rows::max_rows, matrix>("max of rows", Type);
    all.measure<rows::max_columns, matrix>("max of columns", Type);
    all.measure<rows::norm, matrix>("sum of squares of rows", Type);
    all.measure<rows::running_sum, matrix>("cumsum of rows", Type);
    all.measure<rows::running_columns, matrix>("cumsum of columns", Type);
    all.measure<rows::largest, matrix>("top_k", Type);
    all.measure<rows::arg_max, matrix>("argmax", Type);
    all.measure<rows::pool_max, tensor_of<Type, 8, 32, 32, width / 16>>("max_pool", Type);
    all.measure<rows::product, tensor_of<Type, 128, 128>, tensor_of<Type, 128, 128>>("product", Type);
  } else {
    all.measure<rows::invert, matrix>("logical_not", Type);
    all.measure<rows::both, matrix, matrix>("logical_and", Type);
    all.measure<rows::count, matrix>("any", Type);
  }
  if constexpr (is_float) {
    all.measure<rows::negate, matrix>("negate", Type);
    all.measure<rows::sign, matrix>("sign", Type);
    all.measure<rows::exp, matrix>("exp", Type);
    all.measure<rows::sqrt, matrix>("sqrt", Type);
    all.measure<rows::tanh, matrix>("tanh", Type);
    all.measure<rows::gelu, matrix>("gelu", Type);
    all.measure<rows::sigmoid, matrix>("sigmoid", Type);
    all.measure<rows::relu, matrix>("relu", Type);
    all.measure<rows::log1p, matrix>("log1p", Type);
    all.measure<rows::sine, matrix>("sin", Type);
    all.measure<rows::floor, matrix>("floor", Type);
    all.measure<rows::power, matrix, matrix>("pow", Type);
    all.measure<rows::is_finite, matrix>("is_finite", Type);
    all.measure<rows::softmax, matrix>("softmax", Type);
    all.measure<rows::look_up_gradient, matrix, i32<lines>, matrix>("gather gradient", Type, lines);
    all.measure<rows::convolved, tensor_of<Type, 2, 28, 28, 64>, tensor_of<Type, 3, 3, 64, 64>>("convolution", Type);
  } else if constexpr (is_number) {
    all.measure<rows::bit_xor, matrix, matrix>("xor", Type);
    all.measure<rows::shift, matrix>("shift right", Type);
    all.measure<rows::hot, tensor_of<Type, 4096>>("one_hot", Type, 64);
  }
}

void measure_f32(kernel_rows& all);
void measure_f64(kernel_rows& all);
void measure_bf16(kernel_rows& all);
void measure_f16(kernel_rows& all);
void measure_i32(kernel_rows& all);
void measure_i64(kernel_rows& all);
void measure_u32(kernel_rows& all);
void measure_i8(kernel_rows& all);
void measure_u8(kernel_rows& all);
void measure_boolean(kernel_rows& all);

}  // namespace espalier::benchmarks
