// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/program/differentiate.hpp>

#include <limits>
#include <type_traits>

/// The type of every op's result says its element type and shape, and agrees with the instruction it appends.
namespace ep = espalier;

namespace {

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using mesh = ep::mesh<data, model>;

template <class Tensor> using tensor_symbol = ep::symbol<mesh, Tensor>;

/// Calls `f` on symbols of these types; true if it returns a `Result` whose instruction has that type and shape.
template <class Result, class... Arguments, class F> constexpr bool gives(const F& f) {
  ep::builder b;
  int index = 0;
  const auto argument = [&]<class Tensor>(const Tensor&) {
    return tensor_symbol<Tensor>(b, ep::emit::argument(b, Tensor::type, Tensor::shape, index++));
  };
  const auto made = f(argument(Arguments{})...);
  static_assert(std::is_same_v<std::remove_cv_t<decltype(made)>, tensor_symbol<Result>>);
  return b[made.id].type == Result::type && b[made.id].shape == Result::shape;
}

/// The same, where a mistake is to come of it.
template <template <class...> class Reason, class... Arguments, class F> constexpr bool fails(const F& f) {
  ep::builder b;
  const auto made = f(tensor_symbol<Arguments>(b, ep::emit::argument(b, Arguments::type, Arguments::shape, 0))...);
  return []<class... Details>(const ep::failed<Reason<Details...>>&) { return true; }(made);
}

using x2 = ep::f32<64, 256>;

/// Whether both traces hear of it when `f` is called on an x2 of one and an `Other` of the other one, or of none.
template <class Other, class F> constexpr bool notes_strangers(const F& f) {
  bool ok = true;
  for (const bool from_first : {true, false}) {
    ep::builder b;
    ep::builder other;
    // The number of the stranger is none of the trace's.
    for (int k = 0; k < 40; ++k) ep::emit::constant(other, ep::dtype::f32, ep::extents{}, 0);
    const tensor_symbol<x2> one(b, ep::emit::constant(b, x2::type, x2::shape, 1));
    const tensor_symbol<Other> two(other, ep::emit::constant(other, Other::type, Other::shape, 1));
    f(one, from_first ? two : tensor_symbol<Other>());
    ok = ok && b.mistake != nullptr && (!from_first || other.mistake != nullptr) && b.size() < 40;
  }
  return ok;
}
constexpr bool strangers() {
  bool ok = true;
  ok &= notes_strangers<x2>([](auto a, auto b) { return a + b; });
  ok &= notes_strangers<x2>([](auto a, auto b) { return b < a; });
  ok &= notes_strangers<x2>([](auto a, auto b) { return ep::select(a > 0, a, b); });
  ok &= notes_strangers<x2>([](auto a, auto b) { return ep::select(a > 0, b, a); });
  ok &= notes_strangers<x2>([](auto a, auto b) { return ep::clamp(a, b, 1); });
  ok &= notes_strangers<x2>([](auto a, auto b) { return ep::clamp(b, a, b); });
  ok &= notes_strangers<x2>([](auto a, auto b) { return ep::pow(a, b); });
  ok &= notes_strangers<x2>([](auto a, auto b) { return ep::einsum<"ab,ab->a">(a, b); });
  ok &= notes_strangers<x2>([](auto a, auto b) { return ep::concat<0>(a, b); });
  ok &= notes_strangers<ep::i32<3>>([](auto a, auto b) { return ep::gather<0>(a, b); });
  ok &= notes_strangers<x2>([](auto a, auto b) { return ep::repeat<2>([](auto s) { return s; }, ep::results(a, b)); });
  ok &= notes_strangers<x2>([](auto a, auto b) { return ep::repeat<2>([&](auto) { return b; }, a); });
  ok &= notes_strangers<x2>([](auto a, auto b) { return ep::repeat<2>([&](auto s) { return ep::results(s, b); }, a); });
  ok &= notes_strangers<x2>([](auto a, auto b) { return ep::scan([](auto s, auto) { return s; }, a, b); });
  ok &= notes_strangers<ep::f32<>>([](auto a, auto b) { return ep::value_and_grad([&](auto) { return b; })(a); });
  return ok;
}
static_assert(strangers());

constexpr bool elementwise() {
  bool ok = true;
  const auto add = [](auto a, auto b) { return a + b; };
  ok &= gives<x2, x2, x2>(add);
  ok &= gives<x2, x2, ep::f32<256>>(add);
  ok &= gives<x2, ep::f32<256>, x2>(add);
  ok &= gives<x2, x2, ep::f32<>>(add);
  ok &= gives<ep::f32<4, 5>, ep::f32<4, 1>, ep::f32<5>>(add);
  ok &= gives<ep::f32<3, 4, 5>, ep::f32<3, 1, 5>, ep::f32<4, 1>>(add);
  ok &= gives<ep::i32<7>, ep::i32<7>, ep::i32<1>>(add);
  ok &= gives<x2, x2>([](auto a) { return 2 * a - 1; });
  ok &= gives<x2, x2>([](auto a) { return 1 / (-a); });
  ok &= gives<ep::boolean<64, 256>, x2, ep::f32<256>>([](auto a, auto b) { return a < b; });
  ok &= gives<ep::boolean<64, 256>, x2, ep::f32<256>>([](auto a, auto b) { return (!(a >= b)) | ep::equal(a, b); });
  ok &= gives<ep::boolean<64>, ep::i32<64>>([](auto a) { return ep::not_equal(a, 3); });
  ok &= gives<ep::boolean<64>, ep::i32<64>>([](auto a) { return (a == 3) | (3 == a) | (a != 3) | (3 != a); });
  ok &= gives<ep::boolean<64, 256>, x2, ep::f32<256>>([](auto a, auto b) { return (a == b) | (b != a) | (a == a); });
  ok &= gives<x2, x2, x2>([](auto a, auto b) { return ep::maximum(a, b); });
  ok &= gives<x2, ep::boolean<64, 1>, x2>([](auto c, auto a) { return ep::select(c, a, 0); });
  ok &= gives<x2, ep::boolean<256>, ep::f32<64, 1>, ep::f32<>>(
      [](auto c, auto a, auto b) { return ep::select(c, a, b); });
  ok &= gives<x2, x2>([](auto a) { return ep::gelu(ep::exp(ep::relu(a))); });
  ok &= gives<ep::bf16<64, 256>, x2>([](auto a) { return ep::convert<ep::dtype::bf16>(a); });
  ok &= gives<x2, x2>([](auto a) { return ep::label<"name">(ep::shard<data, ep::none>(ep::stop_gradient(a))); });
  ok &= gives<x2, x2>([](auto a) { return ep::softmax(ep::log_softmax<0>(a)); });
  ok &= gives<ep::i32<7>, ep::i32<7>>([](auto a) { return -a; });
  ok &= gives<ep::u32<7>, ep::u32<7>, ep::u32<1>>(add);
  ok &= gives<ep::f16<7>, ep::i64<7>>([](auto a) { return ep::exp(ep::convert<ep::dtype::f16>(a * 2)); });
  ok &= gives<ep::i8<7>, ep::f16<7>>([](auto a) { return ep::maximum(ep::convert<ep::dtype::i8>(a), 0); });
  ok &= fails<ep::why::dtype_mismatch, ep::u32<3>, ep::i32<3>>(add);
  ok &= fails<ep::why::operand_is_not_floating, ep::i64<3>>([](auto a) { return ep::exp(a); });
  ok &= fails<ep::why::operand_is_boolean, ep::boolean<7>>([](auto a) { return -a; });
  ok &= fails<ep::why::operand_is_boolean, ep::boolean<7>, ep::boolean<7>>(add);
  ok &= fails<ep::why::operand_is_boolean, ep::boolean<7>>([](auto a) { return 2 * a; });
  ok &= fails<ep::why::operand_is_boolean, ep::boolean<7>>([](auto a) { return a / 2; });
  ok &= gives<ep::boolean<7>, ep::boolean<7>, ep::boolean<7>>([](auto a, auto b) { return ep::maximum(a, b); });
  ok &= fails<ep::why::shape_mismatch, ep::f32<3>, ep::f32<4>>(add);
  ok &= fails<ep::why::dtype_mismatch, ep::f32<3>, ep::i32<3>>(add);
  ok &= fails<ep::why::operand_is_not_floating, ep::i32<3>>([](auto a) { return ep::exp(a); });
  ok &= fails<ep::why::condition_is_not_boolean, x2>([](auto a) { return ep::select(a, a, a); });
  return ok;
}
static_assert(elementwise());

constexpr bool more_functions() {
  bool ok = true;
  using row = ep::f32<256>;
  using whole = ep::i32<7>;
  using truth = ep::boolean<7>;
  ok &= gives<x2, x2>([](auto a) { return ep::sin(ep::cos(ep::tan(a))); });
  ok &= gives<x2, x2>([](auto a) { return ep::erf(ep::erfc(ep::expm1(ep::log1p(a)))); });
  ok &= gives<x2, x2>([](auto a) { return ep::floor(ep::ceil(ep::trunc(ep::round(a)))); });
  ok &= gives<x2, x2, row>([](auto a, auto b) { return ep::atan2(a, b); });
  ok &= gives<x2, row, x2>([](auto a, auto b) { return ep::pow(a, b); });
  ok &= gives<x2, x2>([](auto a) { return ep::pow(a, 2) + ep::pow(2, a) + ep::atan2(1.0, a); });
  ok &= gives<x2, x2>([](auto a) { return ep::remainder(ep::abs(a), 3) + ep::sign(a); });
  ok &= gives<whole, whole, whole>([](auto a, auto b) { return ep::remainder(ep::abs(a), ep::sign(b)); });
  ok &= gives<ep::boolean<64, 256>, x2>([](auto a) { return ep::is_finite(a); });
  ok &= gives<x2, x2>([](auto a) { return ep::clamp(0, a, 1); });
  ok &= gives<x2, row, x2, ep::f32<>>([](auto low, auto a, auto high) { return ep::clamp(low, a, high); });
  ok &= gives<whole, whole>([](auto a) { return ep::clamp(-1, a, a); });
  ok &= gives<whole, whole, whole>([](auto a, auto b) { return ep::bitwise_xor(ep::bitwise_and(a, b), b); });
  ok &= gives<truth, truth, truth>([](auto a, auto b) { return ep::bitwise_or(ep::bitwise_not(a), b); });
  ok &= gives<whole, whole>([](auto a) { return ep::shift_left(ep::shift_right_logical(a, 3), a); });
  ok &= gives<whole, whole>([](auto a) { return ep::shift_right_arithmetic(a, 1); });
  ok &= gives<ep::i32<64, 256>, x2>([](auto a) { return ep::bit_cast<ep::dtype::i32>(a); });
  ok &= gives<x2, x2>([](auto a) { return ep::bit_cast<ep::dtype::f32>(ep::bit_cast<ep::dtype::i32>(a)); });
  ok &= gives<ep::boolean<64, 256>, x2, row>([](auto a, auto b) { return ep::total_less(a, b); });
  ok &= gives<truth, whole>([](auto a) { return ep::total_less_equal(a, 3) | ep::total_equal(a, a); });
  ok &= fails<ep::why::operand_is_not_floating, whole>([](auto a) { return ep::sin(a); });
  ok &= fails<ep::why::operand_is_not_floating, whole>([](auto a) { return ep::atan2(1, a); });
  ok &= fails<ep::why::operand_is_not_floating, whole, x2>([](auto a, auto b) { return ep::pow(b, a); });
  ok &= fails<ep::why::operand_is_not_floating, truth>([](auto a) { return ep::is_finite(a); });
  ok &= fails<ep::why::operand_is_not_floating, whole>([](auto a) { return ep::round(a); });
  ok &= fails<ep::why::operand_is_boolean, truth>([](auto a) { return ep::abs(a); });
  ok &= fails<ep::why::operand_is_boolean, truth>([](auto a) { return ep::clamp(0, a, 1); });
  ok &= fails<ep::why::operand_is_boolean, truth>([](auto a) { return ep::remainder(a, a); });
  ok &= fails<ep::why::operand_is_boolean, truth>([](auto a) { return ep::bit_cast<ep::dtype::i32>(a); });
  ok &= fails<ep::why::operand_is_not_integer, x2>([](auto a) { return ep::bitwise_and(a, 1); });
  ok &= fails<ep::why::operand_is_not_integer, x2>([](auto a) { return ep::bitwise_not(a); });
  ok &= fails<ep::why::operand_is_not_integer, truth>([](auto a) { return ep::shift_left(a, 1); });
  ok &= fails<ep::why::bit_cast_size_mismatch, x2>([](auto a) { return ep::bit_cast<ep::dtype::f64>(a); });
  ok &= fails<ep::why::bit_cast_size_mismatch, x2>([](auto a) { return ep::bit_cast<ep::dtype::boolean>(a); });
  ok &= fails<ep::why::shape_mismatch, x2, ep::f32<3>>([](auto a, auto b) { return ep::clamp(b, a, 1); });
  ok &= fails<ep::why::dtype_mismatch, x2, ep::f64<256>>([](auto a, auto b) { return ep::clamp(0, a, b); });
  ok &= fails<ep::why::dtype_mismatch, x2, ep::f64<256>>([](auto a, auto b) { return ep::remainder(a, b); });
  ok &= fails<ep::why::operand_is_not_floating, whole>([](auto a) { return ep::clamp(0, ep::sin(a), 1); });
  return ok;
}
static_assert(more_functions());

/// Whether a mistake is noted by value.
template <class Type, class F> constexpr bool notes(const F& f) {
  ep::builder b;
  f(tensor_symbol<Type>(b, ep::emit::argument(b, Type::type, Type::shape, 0)));
  return b.mistake != nullptr;
}

constexpr bool integers_and_numbers() {
  bool ok = true;
  using whole = ep::i32<7>;
  using natural = ep::u8<7>;
  using truth = ep::boolean<7>;
  const auto bits = [](auto a, auto b) { return ((a & b) | (a ^ ~b)) % b; };
  ok &= gives<whole, whole, whole>(bits);
  ok &= gives<natural, natural, ep::u8<1>>(bits);
  ok &= gives<whole, whole>([](auto a) { return (3 & a) | ((a << 2) >> a) | (1 << a) | (a % 3) | (7 ^ a); });
  ok &= gives<truth, truth, truth>([](auto a, auto b) { return ((a & b) | ~(a ^ b)) && (a || b); });
  ok &= fails<ep::why::operand_is_not_integer, x2>([](auto a) { return a & 1; });
  ok &= fails<ep::why::operand_is_not_integer, x2>([](auto a) { return a << 1; });
  ok &= fails<ep::why::operand_is_boolean, truth>([](auto a) { return a % 2; });
  ok &= fails<ep::why::condition_is_not_boolean, whole, whole>([](auto a, auto b) { return a && b; });
  ok &= fails<ep::why::dtype_mismatch, whole, truth>([](auto a, auto b) { return a & b; });
  // Numbers of any arithmetic type.
  const auto any = [](auto a) {
    return a + 1 + 1U + 1L + 1LL + 1UL + 1ULL + short{1} + 'a' + true + static_cast<unsigned char>(1);
  };
  ok &= gives<x2, x2>(any) && gives<ep::bf16<3>, ep::bf16<3>>(any) && gives<whole, whole>(any);
  ok &= gives<x2, x2>([](auto a) { return a * 2.0 * 2.0F * 2.0L; });
  // Those that the tensor does not have.
  ok &= notes<natural>([](auto a) { return a + 256; }) && !notes<natural>([](auto a) { return a + 255; });
  ok &= notes<natural>([](auto a) { return ep::maximum(-1, a); });
  ok &= notes<ep::i8<7>>([](auto a) { return ep::select(a > 0, a, 128); });
  ok &= notes<whole>([](auto a) { return ep::clamp(0, a, 2147483648U); }) && !notes<whole>(any);
  ok &= notes<ep::i64<7>>([](auto a) { return a < 9223372036854775808U; });
  ok &= !notes<ep::i64<7>>([](auto a) { return a < 9223372036854775807; });
  const auto adds = [](auto a, auto b) {
    a += b;
    a -= 1;
    a *= b;
    a /= 2;
    return a;
  };
  ok &= gives<x2, x2, ep::f32<256>>(adds) && gives<whole, whole, whole>(adds);
  ok &= notes<ep::f32<1>>([](auto a) { return a += ep::broadcast_to<3>(a); });
  return ok;
}
static_assert(integers_and_numbers());

constexpr bool reductions() {
  bool ok = true;
  using x = ep::f32<2, 3, 5>;
  ok &= gives<ep::f32<>, x>([](auto a) { return ep::sum(a); });
  ok &= gives<ep::f32<3, 5>, x>([](auto a) { return ep::sum<0>(a); });
  ok &= gives<ep::f32<2, 3>, x>([](auto a) { return ep::max<-1>(a); });
  ok &= gives<ep::f32<3>, x>([](auto a) { return ep::min<0, -1>(a); });
  ok &= gives<ep::f32<2>, x>([](auto a) { return ep::prod<1, 2>(a); });
  ok &= gives<ep::f32<1, 1, 1>, x>([](auto a) { return ep::sum(a, ep::keep_dims); });
  ok &= gives<ep::f32<2, 1, 5>, x>([](auto a) { return ep::max<1>(a, ep::keep_dims); });
  ok &= gives<ep::f32<1, 3, 1>, x>([](auto a) { return ep::mean<0, 2>(a, ep::keep_dims); });
  ok &= gives<ep::f32<2, 5>, x>([](auto a) { return ep::mean<1>(a); });
  ok &= gives<x, x>([](auto a) { return a - ep::mean<-1>(a, ep::keep_dims); });
  ok &= fails<ep::why::no_such_dimension, x>([](auto a) { return ep::sum<3>(a); });
  ok &= fails<ep::why::no_such_dimension, x>([](auto a) { return ep::max<-4>(a, ep::keep_dims); });
  using truth = ep::boolean<2, 3>;
  ok &= gives<ep::boolean<2>, truth>([](auto a) { return ep::max<1>(a); });
  ok &= gives<ep::boolean<1, 3>, truth>([](auto a) { return ep::min<0>(a, ep::keep_dims); });
  ok &= gives<ep::i32<2>, truth>([](auto a) { return ep::sum<1>(ep::convert<ep::dtype::i32>(a)); });
  ok &= fails<ep::why::operand_is_boolean, truth>([](auto a) { return ep::sum<1>(a); });
  ok &= fails<ep::why::operand_is_boolean, truth>([](auto a) { return ep::prod(a, ep::keep_dims); });
  ok &= fails<ep::why::operand_is_not_floating, truth>([](auto a) { return ep::mean(a); });
  ok &= fails<ep::why::operand_is_not_floating, ep::i32<3>>([](auto a) { return ep::mean(a, ep::keep_dims); });
  return ok;
}
static_assert(reductions());

constexpr bool cumulative() {
  bool ok = true;
  using x = ep::f32<2, 3, 5>;
  ok &= gives<x, x>([](auto a) { return ep::cumsum<0>(ep::cumprod<-1>(a, ep::from_last)); });
  ok &= gives<x, x>([](auto a) { return ep::cummax<1>(ep::cummin<2>(a, ep::from_last)); });
  ok &= gives<ep::boolean<7>, ep::boolean<7>>([](auto a) { return ep::cummax<0>(a); });
  ok &= gives<x, ep::f32<3, 1>, x>([](auto a, auto b) { return ep::linear_recurrence<-2>(a, b); });
  ok &= gives<x, x, ep::f32<>>([](auto a, auto b) { return ep::linear_recurrence<0>(a, b, ep::from_last); });
  ok &= fails<ep::why::no_such_dimension, x>([](auto a) { return ep::cumsum<3>(a); });
  ok &= fails<ep::why::no_such_dimension, ep::f32<>>([](auto a) { return ep::cummin<0>(a); });
  ok &= fails<ep::why::operand_is_boolean, ep::boolean<7>>([](auto a) { return ep::cumprod<0>(a); });
  ok &= fails<ep::why::dtype_mismatch, x, ep::f64<5>>([](auto a, auto b) { return ep::linear_recurrence<0>(a, b); });
  ok &= fails<ep::why::shape_mismatch, x, ep::f32<4>>([](auto a, auto b) { return ep::linear_recurrence<0>(a, b); });
  ok &= fails<ep::why::operand_is_boolean, ep::boolean<7>, ep::boolean<7>>(
      [](auto a, auto b) { return ep::linear_recurrence<0>(a, b); });
  return ok;
}
static_assert(cumulative());

constexpr float two_by_three[2][3]{{1, 2, 3}, {4, 5, 6}};
constexpr long long one_number = 1;
constexpr bool tables() {
  bool ok = true;
  ok &= gives<ep::f32<2, 3>, x2>([](auto a) { return ep::constant<two_by_three>(a); });
  ok &= gives<ep::f64<6>, x2>([](auto a) { return ep::constant<ep::f64<6>, two_by_three>(a); });
  ok &= gives<ep::i64<>, x2>([](auto a) { return ep::constant<one_number>(a); });
  ok &= fails<ep::why::table_size_mismatch, x2>([](auto a) { return ep::constant<ep::f32<7>, two_by_three>(a); });
  ok &= fails<ep::why::number_is_no_integer, x2>([](auto a) { return ep::constant<ep::i32<6>, two_by_three>(a); });
  return ok;
}
static_assert(tables());

constexpr bool shapes() {
  bool ok = true;
  using x = ep::f32<2, 3, 4>;
  ok &= gives<ep::f32<6, 4>, x>([](auto a) { return ep::reshape<6, 4>(a); });
  ok &= gives<ep::f32<12, 2>, x>([](auto a) { return ep::reshape<-1, 2>(a); });
  ok &= gives<ep::f32<3, 8, 1>, x>([](auto a) { return ep::reshape<3, -1, 1>(a); });
  ok &= gives<ep::bf16<35>, ep::bf16<7, 5>>([](auto a) { return ep::reshape<-1>(a); });
  ok &= gives<ep::f32<1>, ep::f32<>>([](auto a) { return ep::reshape<-1>(a); });
  ok &= gives<ep::f32<4, 2, 3>, x>([](auto a) { return ep::transpose<2, 0, 1>(a); });
  ok &= gives<ep::f32<2, 2, 4>, x>([](auto a) { return ep::slice<1, 0, 3, 2>(a); });
  ok &= gives<ep::f32<2, 3, 1>, x>([](auto a) { return ep::slice<-1, 3, 4>(a); });
  ok &= gives<ep::f32<2, 8, 4>, x, ep::f32<2, 1, 4>, ep::f32<2, 4, 4>>(
      [](auto a, auto b, auto c) { return ep::concat<1>(a, b, c); });
  ok &= gives<ep::f32<14, 3, 4>, x>([](auto a) { return ep::concat<0>(a, a, a, a, a, a, a); });
  ok &= gives<ep::f32<2, 2, 4>, x>([](auto a) { return ep::top_k<1, 2>(a).values; });
  ok &= gives<ep::i32<2, 3, 1>, x>([](auto a) { return ep::top_k<-1, 1>(a).indices; });
  ok &= gives<ep::f32<3, 4>, x>([](auto a) { return ep::max_with_index<0>(a).values; });
  ok &= gives<ep::i32<2, 3>, x>([](auto a) { return ep::max_with_index<-1>(a).indices; });
  ok &= fails<ep::why::top_k_out_of_range, x>([](auto a) { return ep::top_k<1, 4>(a).values; });
  ok &= fails<ep::why::top_k_out_of_range, x>([](auto a) { return ep::top_k<1, 0>(a).indices; });
  ok &= fails<ep::why::no_such_dimension, x>([](auto a) { return ep::max_with_index<3>(a).values; });
  ok &= gives<ep::i32<2, 3>, x>([](auto a) { return ep::iota<ep::i32<2, 3>, -1>(a); });
  ok &= gives<ep::f64<2>, x>([](auto a) { return ep::constant<ep::f64<2>>(a, 3); });
  ok &= fails<ep::why::reshape_size_mismatch, x>([](auto a) { return ep::reshape<5, 5>(a); });
  ok &= fails<ep::why::reshape_does_not_divide, x>([](auto a) { return ep::reshape<-1, 5>(a); });
  ok &= fails<ep::why::reshape_does_not_divide, x>([](auto a) { return ep::reshape<-1, 48>(a); });
  ok &= fails<ep::why::reshape_infers_several, x>([](auto a) { return ep::reshape<-1, 2, -1>(a); });
  ok &= fails<ep::why::bad_permutation, x>([](auto a) { return ep::transpose<0, 0, 1>(a); });
  ok &= fails<ep::why::out_of_bounds, x>([](auto a) { return ep::slice<1, 0, 4>(a); });
  ok &= fails<ep::why::concat_shape_mismatch, x, ep::f32<2, 3, 5>>([](auto a, auto b) { return ep::concat<0>(a, b); });
  return ok;
}
static_assert(shapes());

constexpr bool contractions() {
  bool ok = true;
  ok &= gives<ep::f32<64, 8>, x2, ep::f32<256, 8>>([](auto a, auto b) { return ep::einsum<"bm,mh->bh">(a, b); });
  ok &= gives<ep::f32<64>, x2>([](auto a) { return ep::einsum<"ab->a">(a); });
  ok &= gives<ep::f32<256, 64>, x2>([](auto a) { return ep::einsum<"ab->ba">(a); });
  ok &= gives<ep::f32<>, ep::f32<4>, ep::f32<4>>([](auto a, auto b) { return ep::einsum<"a,a->">(a, b); });
  ok &= gives<ep::f32<5, 4>, ep::f32<4>, ep::f32<5>>([](auto a, auto b) { return ep::einsum<"a, b -> ba">(a, b); });
  ok &= gives<ep::f32<5, 2>, ep::f32<2, 3>, ep::f32<3, 4>, ep::f32<4, 5>>(
      [](auto a, auto b, auto c) { return ep::einsum<"ab,bc,cd->da">(a, b, c); });
  ok &= gives<ep::f32<2, 6>, ep::f32<2, 3>, ep::f32<3, 4>, ep::f32<4, 5>, ep::f32<5, 6>>(
      [](auto a, auto b, auto c, auto d) { return ep::einsum<"ab,bc,cd,de->ae">(a, b, c, d); });
  ok &= gives<ep::f32<2, 8, 7, 5>, ep::f32<2, 8, 7, 3>, ep::f32<2, 8, 3, 5>>(
      [](auto a, auto b) { return ep::matmul(a, b); });
  ok &= gives<ep::f32<2, 7, 5>, ep::f32<2, 7, 3>, ep::f32<3, 5>>([](auto a, auto b) { return ep::matmul(a, b); });
  const auto matrices = [](auto a, auto b) { return ep::matmul(a, b); };
  ok &= gives<ep::f32<>, ep::f32<3>, ep::f32<3>>(matrices);
  ok &= gives<ep::f32<5>, ep::f32<3>, ep::f32<3, 5>>(matrices);
  ok &= gives<ep::f32<4, 2, 5>, ep::f32<3>, ep::f32<4, 2, 3, 5>>(matrices);
  ok &= gives<ep::f32<4, 2, 7>, ep::f32<4, 2, 7, 3>, ep::f32<3>>(matrices);
  ok &= gives<ep::f32<4, 2, 7, 5>, ep::f32<7, 3>, ep::f32<4, 2, 3, 5>>(matrices);
  ok &= gives<ep::f32<4, 2, 7, 5>, ep::f32<4, 1, 7, 3>, ep::f32<2, 3, 5>>(matrices);
  ok &= gives<ep::i32<2, 1, 1, 1, 1, 1, 7, 5>, ep::i32<2, 1, 1, 1, 1, 1, 7, 3>, ep::i32<3, 5>>(matrices);
  ok &= fails<ep::why::wrong_rank, ep::f32<>, ep::f32<3, 5>>(matrices);
  ok &= fails<ep::why::matmul_size_mismatch, ep::f32<3>, ep::f32<5>>(matrices);
  ok &= fails<ep::why::matmul_size_mismatch, ep::f32<4, 3>, ep::f32<4>>(matrices);
  ok &= fails<ep::why::einsum_batch_mismatch, ep::f32<2, 7, 3>, ep::f32<3, 3, 5>>(matrices);
  ok &= fails<ep::why::dtype_mismatch, ep::f32<7, 3>, ep::f64<3>>(matrices);
  const auto product = [](auto a, auto b) { return ep::einsum<"ab,bc->ac">(a, b); };
  ok &= fails<ep::why::einsum_size_mismatch, ep::f32<2, 3>, ep::f32<4, 5>>(product);
  ok &= fails<ep::why::einsum_wrong_rank, ep::f32<2, 3>, ep::f32<3>>(product);
  ok &= fails<ep::why::dtype_mismatch, ep::f32<2, 3>, ep::f64<3, 2>>(product);
  ok &= fails<ep::why::operand_is_boolean, ep::boolean<2, 3>, ep::boolean<3, 2>>(product);
  ok &= fails<ep::why::einsum_bad_formula, ep::f32<2>>([](auto a) { return ep::einsum<"a->b">(a); });
  ok &= fails<ep::why::einsum_bad_formula, ep::f32<2, 2>>([](auto a) { return ep::einsum<"ab->aa">(a); });
  ok &= fails<ep::why::einsum_bad_formula, ep::f32<2, 2>>([](auto a) { return ep::einsum<"...a->a">(a); });
  ok &= fails<ep::why::einsum_bad_formula, ep::f32<2, 2>>([](auto a) { return ep::einsum<"ab->...ab">(a); });
  ok &= fails<ep::why::einsum_bad_formula, ep::f32<2, 2>>([](auto a) { return ep::einsum<"..a->..a">(a); });
  ok &= fails<ep::why::einsum_bad_formula, ep::f32<2, 2>>([](auto a) { return ep::einsum<"...a...->...a">(a); });
  ok &= fails<ep::why::einsum_bad_formula, ep::f32<2>>([](auto a) { return ep::einsum<"a,a,a,a,a,a,a,a,a->a">(a); });
  ok &= fails<ep::why::einsum_size_mismatch, ep::f32<2, 3>>([](auto a) { return ep::einsum<"aa->a">(a); });
  ok &= gives<ep::f32<2>, ep::f32<2, 2>>([](auto a) { return ep::einsum<"aa->a">(a); });
  ok &= gives<ep::f32<>, ep::f32<2, 2, 2>>([](auto a) { return ep::einsum<"aaa->">(a); });
  ok &= gives<ep::f32<5, 7, 2>, ep::f32<2, 5, 7>>([](auto a) { return ep::einsum<"a...->...a">(a); });
  ok &= gives<ep::f32<4>, ep::f32<4>>([](auto a) { return ep::einsum<"a...->a...">(a); });
  const auto batched = [](auto a, auto b) { return ep::einsum<"...ab,...bc->...ac">(a, b); };
  ok &= gives<ep::f32<2, 8, 7, 5>, ep::f32<2, 1, 7, 3>, ep::f32<8, 3, 5>>(batched);
  ok &= gives<ep::f32<7, 5>, ep::f32<7, 3>, ep::f32<3, 5>>(batched);
  ok &= gives<ep::f32<1, 7, 5>, ep::f32<1, 7, 3>, ep::f32<1, 3, 5>>(batched);
  ok &= fails<ep::why::einsum_batch_mismatch, ep::f32<2, 7, 3>, ep::f32<3, 3, 5>>(batched);
  ok &= fails<ep::why::einsum_size_mismatch, ep::f32<2, 7, 3>, ep::f32<2, 7, 5>>(batched);
  ok &= fails<ep::why::einsum_wrong_rank, ep::f32<2, 7, 3>, ep::f32<3>>(batched);
  ok &= fails<ep::why::einsum_too_many_dimensions, ep::f32<3, 2, 2, 2, 2, 2>, ep::f32<3, 2, 2, 2>>(
      [](auto a, auto b) { return ep::einsum<"...abcde,...xyz->...abcdexyz">(a, b); });
  ok &= fails<ep::why::einsum_wrong_operand_count, ep::f32<2>>([](auto a) { return ep::einsum<"a,a->a">(a); });
  ok &= fails<ep::why::matmul_size_mismatch, ep::f32<2, 3>, ep::f32<2, 3>>(
      [](auto a, auto b) { return ep::matmul(a, b); });
  return ok;
}
static_assert(contractions());

constexpr bool lookups() {
  bool ok = true;
  ok &= gives<ep::f32<4, 6, 16>, ep::f32<100, 16>, ep::i32<4, 6>>([](auto t, auto i) { return ep::gather(t, i); });
  ok &= gives<ep::bf16<100, 4>, ep::bf16<100, 16>, ep::i32<4>>([](auto t, auto i) { return ep::gather<1>(t, i); });
  ok &= gives<ep::f32<100>, ep::f32<100, 16>, ep::i32<>>([](auto t, auto i) { return ep::gather<-1>(t, i); });
  ok &= gives<ep::f32<4, 6, 10>, ep::i32<4, 6>>([](auto i) { return ep::one_hot<10>(i); });
  ok &= gives<ep::bf16<10>, ep::i32<>>([](auto i) { return ep::one_hot<10, ep::dtype::bf16>(i); });
  ok &= gives<ep::f32<4, 16>, ep::f32<100, 16>, ep::i64<4>>([](auto t, auto i) { return ep::gather(t, i); });
  ok &= gives<ep::f16<4, 200>, ep::i8<4>>([](auto i) { return ep::one_hot<200, ep::dtype::f16>(i); });
  ok &= gives<ep::f32<100, 3>, ep::f32<100, 16>, ep::u32<>>(
      [](auto t, auto i) { return ep::dynamic_slice<-1, 3>(t, i); });
  ok &= gives<ep::i8<100, 16>, ep::i8<100, 16>, ep::i64<>>(
      [](auto t, auto i) { return ep::dynamic_slice<0, 100>(t, i); });
  ok &= gives<ep::bf16<100, 16>, ep::bf16<100, 16>, ep::bf16<2, 16>, ep::i8<>>(
      [](auto t, auto u, auto i) { return ep::dynamic_update_slice<0>(t, u, i); });
  ok &= gives<ep::boolean<9, 4, 5>, ep::boolean<9, 4, 5>, ep::boolean<1, 4, 2>, ep::i32<>>(
      [](auto t, auto u, auto i) { return ep::dynamic_update_slice<0, -1>(t, u, i, i); });
  ok &= fails<ep::why::no_such_dimension, x2, ep::i32<>>([](auto a, auto i) { return ep::dynamic_slice<2, 1>(a, i); });
  ok &= fails<ep::why::slice_does_not_fit, x2, ep::i32<>>([](auto a, auto i) { return ep::dynamic_slice<0, 0>(a, i); });
  ok &=
      fails<ep::why::slice_does_not_fit, x2, ep::i32<>>([](auto a, auto i) { return ep::dynamic_slice<0, 65>(a, i); });
  ok &= fails<ep::why::start_is_not_an_integer_scalar, x2, ep::i32<1>>(
      [](auto a, auto i) { return ep::dynamic_slice<0, 1>(a, i); });
  ok &= fails<ep::why::start_is_not_an_integer_scalar, x2, ep::f32<>>(
      [](auto a, auto i) { return ep::dynamic_slice<0, 1>(a, i); });
  const auto update = [](auto a, auto u, auto i) { return ep::dynamic_update_slice<0>(a, u, i); };
  ok &= fails<ep::why::no_such_dimension, x2, x2, ep::i32<>>(
      [](auto a, auto u, auto i) { return ep::dynamic_update_slice<0, 2>(a, u, i, i); });
  ok &= fails<ep::why::start_is_not_an_integer_scalar, x2, x2, ep::boolean<>>(update);
  ok &= fails<ep::why::slice_does_not_fit, x2, ep::f32<65, 256>, ep::i32<>>(update);
  ok &= fails<ep::why::update_does_not_fit, x2, ep::f32<2, 255>, ep::i32<>>(update);
  ok &= fails<ep::why::update_does_not_fit, x2, ep::f32<256>, ep::i32<>>(update);
  ok &= fails<ep::why::update_does_not_fit, x2, ep::f32<2, 256>, ep::i32<>>(
      [](auto a, auto u, auto i) { return ep::dynamic_update_slice<0, -2>(a, u, i, i); });
  ok &= fails<ep::why::dtype_mismatch, x2, ep::f64<2, 256>, ep::i32<>>(update);
  ok &= fails<ep::why::indices_are_not_integers, ep::boolean<3>>([](auto a) { return ep::one_hot<3>(a); });
  ok &= fails<ep::why::indices_are_not_integers, x2>([](auto a) { return ep::one_hot<3>(a); });
  ok &= fails<ep::why::indices_are_not_integers, x2>([](auto a) { return ep::gather(a, a); });
  return ok;
}
static_assert(lookups());

constexpr bool random_numbers() {
  bool ok = true;
  using key = ep::u32<2>;
  using row = ep::f32<3>;
  ok &= gives<ep::u32<4, 5>, key>([](auto k) { return ep::random_bits<ep::u32<4, 5>>(k); });
  ok &= gives<ep::i32<>, key>([](auto k) { return ep::random_bits<ep::i32<>>(k); });
  ok &= gives<key, x2>([](auto a) { return ep::random_key(a, 7); });
  ok &= gives<key, key>([](auto k) { return ep::fold_in(ep::fold_in(k, -3), 7U); });
  ok &= gives<key, key, ep::i32<>>([](auto k, auto n) { return ep::fold_in(k, n); });
  ok &= gives<ep::u32<6, 2>, key>([](auto k) { return ep::split_key<6>(k); });
  ok &= gives<ep::bf16<4, 5>, key>([](auto k) { return ep::uniform<ep::bf16<4, 5>>(k); });
  ok &= gives<ep::f64<4>, key>([](auto k) { return ep::uniform<ep::f64<4>>(k, -1, 1); });
  ok &= gives<ep::f16<4, 5>, key>([](auto k) { return ep::normal<ep::f16<4, 5>>(k); });
  ok &= gives<ep::boolean<4>, key>([](auto k) { return ep::bernoulli<ep::boolean<4>>(k, 0.5); });
  ok &= gives<ep::i8<4, 3>, key, row>([](auto k, auto p) { return ep::bernoulli<ep::i8<4, 3>>(k, p); });
  ok &= gives<ep::i32<64>, key, x2>([](auto k, auto a) { return ep::categorical(k, a); });
  ok &= gives<ep::i32<256>, key, x2>([](auto k, auto a) { return ep::categorical<0>(k, a); });
  ok &= gives<x2, key, x2>([](auto k, auto a) { return ep::dropout(k, a, 0.1); });
  ok &= fails<ep::why::not_a_random_key, ep::i32<2>>([](auto k) { return ep::random_bits<ep::u32<4>>(k); });
  ok &= fails<ep::why::not_a_random_key, ep::u32<3>>([](auto k) { return ep::uniform<row>(k, 0, 1); });
  ok &= fails<ep::why::not_a_random_key, ep::u32<>>([](auto k) { return ep::normal<row>(k); });
  ok &= fails<ep::why::not_a_random_key, ep::u32<1, 2>>([](auto k) { return ep::fold_in(k, 1); });
  ok &= fails<ep::why::not_a_random_key, x2>([](auto a) { return ep::split_key<2>(a); });
  ok &= fails<ep::why::not_a_random_key, x2>([](auto a) { return ep::dropout(a, a, 0.5); });
  ok &= fails<ep::why::not_a_random_key, x2>([](auto a) { return ep::categorical(a, a); });
  ok &= fails<ep::why::not_a_random_key, x2>([](auto a) { return ep::bernoulli<ep::boolean<2>>(a, 0.5); });
  ok &= fails<ep::why::random_bits_are_words, key>([](auto k) { return ep::random_bits<ep::i64<4>>(k); });
  ok &= fails<ep::why::operand_is_not_floating, key>([](auto k) { return ep::normal<ep::i32<4>>(k); });
  ok &= fails<ep::why::operand_is_not_floating, key>([](auto k) { return ep::dropout(k, k, 0.5); });
  ok &= fails<ep::why::operand_is_not_floating, key>([](auto k) { return ep::bernoulli<ep::i32<2>>(k, k); });
  ok &= fails<ep::why::shape_mismatch, key, row>([](auto k, auto p) { return ep::bernoulli<ep::i32<4>>(k, p); });
  ok &= fails<ep::why::shape_mismatch, key, row>([](auto k, auto p) { return ep::bernoulli<ep::i32<1>>(k, p); });
  ok &= fails<ep::why::not_one_integer, key, row>([](auto k, auto n) { return ep::fold_in(k, n); });
  ok &= fails<ep::why::not_one_integer, key, ep::i64<>>([](auto k, auto n) { return ep::fold_in(k, n); });
  ok &= fails<ep::why::no_such_dimension, key, x2>([](auto k, auto a) { return ep::categorical<2>(k, a); });
  return ok;
}
static_assert(random_numbers());

constexpr bool dimensions() {
  bool ok = true;
  using ep::dtype;
  using ones = ep::f32<1, 3, 1, 4>;
  ok &= gives<ep::f32<3, 4>, ones>([](auto a) { return ep::squeeze(a); });
  ok &= gives<ep::f32<1, 3, 4>, ones>([](auto a) { return ep::squeeze<2>(a); });
  ok &= gives<ep::f32<3, 4>, ones>([](auto a) { return ep::squeeze<-2, 0>(a); });
  ok &= fails<ep::why::dimension_has_more_elements, ones>([](auto a) { return ep::squeeze<0, 1>(a); });
  ok &= fails<ep::why::no_such_dimension, ones>([](auto a) { return ep::squeeze<4>(a); });
  ok &= gives<ep::f32<1, 64, 256>, x2>([](auto a) { return ep::expand_dims<0>(a); });
  ok &= gives<ep::f32<64, 1, 256, 1>, x2>([](auto a) { return ep::expand_dims<-1, 1>(a); });
  ok &= fails<ep::why::no_such_dimension, x2>([](auto a) { return ep::expand_dims<3>(a); });
  ok &= fails<ep::why::dimension_named_twice, x2>([](auto a) { return ep::expand_dims<0, -4>(a); });
  ok &= fails<ep::why::wrong_rank, ep::f32<2, 2, 2, 2, 2, 2, 2, 2>>([](auto a) { return ep::expand_dims<0>(a); });
  ok &= gives<ep::f32<5, 3, 2, 4>, ones>([](auto a) { return ep::broadcast_to<5, 3, 2, 4>(a); });
  ok &= gives<ep::i32<2, 3>, ep::i32<>>([](auto a) { return ep::broadcast_to<2, 3>(a); });
  ok &= fails<ep::why::shape_mismatch, ep::f32<3>>([](auto a) { return ep::broadcast_to<4>(a); });
  ok &= fails<ep::why::shape_mismatch, ep::f32<2, 3>>([](auto a) { return ep::broadcast_to<3>(a); });
  ok &= fails<ep::why::shape_mismatch, ep::f32<2, 3>>([](auto a) { return ep::broadcast_to<1, 3>(a); });
  ok &= gives<ep::f32<64>, x2>([](auto a) { return ep::take<1, -1>(a); });
  ok &= gives<ep::f32<256>, x2>([](auto a) { return ep::take<0, 63>(a); });
  ok &= fails<ep::why::out_of_bounds, x2>([](auto a) { return ep::take<0, 64>(a); });
  ok &= fails<ep::why::out_of_bounds, x2>([](auto a) { return ep::take<0, -65>(a); });
  ok &= gives<ep::f32<64, 2>, x2, ep::i32<2>>([](auto a, auto i) { return ep::take<1>(a, i); });
  ok &= gives<ep::boolean<2, 3, 3>, ep::boolean<2, 3, 3>>([](auto a) { return ep::tril(a); });
  ok &= gives<ep::i32<3, 4>, ep::i32<3, 4>>([](auto a) { return ep::triu<-1>(a); });
  ok &= fails<ep::why::wrong_rank, ep::f32<3>>([](auto a) { return ep::triu(a); });
  ok &= gives<ep::i32<64>, x2>([](auto a) { return ep::argmax<1>(a); });
  ok &= gives<ep::i32<>, x2>([](auto a) { return ep::argmin(a); });
  ok &= gives<ep::i32<64, 1>, x2>([](auto a) { return ep::argmin<-1>(a, ep::keep_dims); });
  ok &= gives<ep::i64<>, ep::i8<65536, 32768>>([](auto a) { return ep::argmax(a); });
  ok &= fails<ep::why::no_such_dimension, x2>([](auto a) { return ep::argmax<2>(a); });
  ok &= gives<ep::boolean<256>, x2>([](auto a) { return ep::any<0>(a); });
  ok &= gives<ep::boolean<1, 1>, ep::boolean<3, 4>>([](auto a) { return ep::all(a, ep::keep_dims); });
  ok &= fails<ep::why::no_such_dimension, ep::boolean<3>>([](auto a) { return ep::any<1>(a); });
  return ok;
}
static_assert(dimensions());

/// Mistakes in numbers, of which types say nothing.
constexpr bool noted_numbers() {
  bool ok = true;
  const auto notes = [](const auto& f) {
    ep::builder b;
    f(tensor_symbol<ep::u32<2>>(b, ep::emit::argument(b, ep::dtype::u32, ep::u32<2>::shape, 0)));
    return b.mistake != nullptr;
  };
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  ok &= !notes([](auto k) { ep::uniform<ep::f32<4>>(k, 0, 1e-3); });
  ok &= notes([](auto k) { ep::uniform<ep::f32<4>>(k, 1, 1); });
  ok &= notes([](auto k) { ep::uniform<ep::f32<4>>(k, 0, nan); });
  ok &= !notes([](auto k) { ep::bernoulli<ep::boolean<4>>(k, 0), ep::bernoulli<ep::boolean<4>>(k, 1); });
  ok &= notes([](auto k) { ep::bernoulli<ep::boolean<4>>(k, 1.1); });
  ok &= notes([](auto k) { ep::bernoulli<ep::boolean<4>>(k, -0.1); });
  ok &= notes([](auto k) { ep::dropout(k, ep::constant<ep::f32<4>>(k, 1), nan); });
  return ok;
}
static_assert(noted_numbers());

constexpr bool loops_and_gradients() {
  bool ok = true;
  const auto last = [](auto h, auto w) {
    return ep::scan([](auto carry, auto layer) { return ep::tanh(ep::matmul(carry, layer)); }, h, w);
  };
  ok &= gives<ep::f32<4, 8>, ep::f32<4, 8>, ep::f32<3, 8, 8>>(last);
  ok &= gives<ep::f32<3, 4>, ep::f32<4, 8>, ep::f32<3, 8, 8>>([](auto h, auto w) {
    const auto body = [](auto carry, auto layer) { return ep::results(ep::matmul(carry, layer), ep::sum<1>(carry)); };
    return ep::scan(body, h, w, ep::recompute).template get<1>();
  });
  ok &= gives<ep::f32<3, 8, 8>, ep::f32<3, 8, 8>, ep::f32<4, 8>>([=](auto w, auto h) {
    return ep::value_and_grad([=](auto weights) { return ep::mean(last(h, weights)); })(w).gradient;
  });
  ok &= gives<ep::f32<>, ep::f32<4, 8>>(
      [](auto a) { return ep::value_and_grad([](auto x) { return ep::sum(x); })(a).value; });
  ok &= gives<ep::f32<3, 4>, ep::f32<4, 8>, ep::f32<3, 8, 8>>([](auto h, auto w) {
    const auto body = [](auto carry, auto layer) { return ep::results(ep::matmul(carry, layer), ep::sum<1>(carry)); };
    const auto [hidden, sums] = ep::scan(body, h, w);
    static_assert(std::is_same_v<typename decltype(hidden)::tensor, ep::f32<4, 8>>);
    return sums;
  });
  ok &= fails<ep::why::no_such_dimension, x2>([](auto a) {
    const auto [final, outputs] = ep::scan([](auto h, auto x) { return ep::results(h, ep::sum<4>(x)); }, a, a);
    return final + outputs;
  });
  ok &= fails<ep::why::loss_is_not_scalar, x2>(
      [](auto a) { return ep::value_and_grad([](auto x) { return x; })(a).value; });
  ok &= fails<ep::why::carry_changes_type, x2>(
      [](auto a) { return ep::scan([](auto carry, auto) { return ep::convert<ep::dtype::bf16>(carry); }, a, a); });
  return ok;
}
static_assert(loops_and_gradients());

}  // namespace
