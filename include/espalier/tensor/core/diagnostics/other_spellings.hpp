// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Calls in another library's spelling, `sum(x, 1)` for `sum<1>(x)`: overloads that only a mistake can choose, each
/// with one sentence that the compiler prints on the user's line.
///
/// Three habits keep the messages short. espalier.hpp includes this header before all others, because compilers list
/// every file on the way to a message. Each assertion is in the function that the user calls, which returns auto, for
/// g++ to make its body at the call. And nothing follows a message: a mistake that the compiler has already printed
/// takes the place of the result.
///
/// A call that is right costs nothing here: its template arguments or the number of its arguments fit none of these. To
/// read the header takes 10 ms, which a file that includes only core.hpp does not pay: core.hpp does not include this
/// one.
#include <espalier/base/fixed_string.hpp>
#include <espalier/tensor/core/diagnostics/failure.hpp>

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <iosfwd>
#include <type_traits>

namespace espalier {

namespace why {
/// Whether a call is spelled as this library spells it: never, where it is asked. (Of a mistake made before, the
/// compiler speaks elsewhere.)
template <class Tensor> inline constexpr bool is_called_so = std::derived_from<Tensor, detail::failure_tag>;
}  // namespace why

namespace detail {

/// A traced tensor, or a mistake in its place: symbols themselves are defined later.
template <class T>
concept TensorOrMistake = std::derived_from<T, symbol_tag> || std::derived_from<T, failure_tag>;
template <class T>
concept NoSourceLine = !std::same_as<T, source_line>;

/// The result of a call about which the compiler has printed a message: a mistake that is not reported again.
template <class A> constexpr auto spoken_of(const A& a) {
  if constexpr (std::derived_from<A, failure_tag>) {
    return a;
  } else {
    return failed<reported>{};
  }
}

}  // namespace detail

// --- products --------------------------------------------------------------------------------------------------------

template <std::size_t Size, detail::TensorOrMistake A, class... Rest>
constexpr auto einsum(const char (&/*formula*/)[Size], const A& a, const Rest&... /*rest*/) {
  static_assert(why::is_called_so<A>,
                "einsum: the formula stands between < and >, since the result's type follows "
                "from it. Write einsum<\"bm,mh->bh\">(x, w).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, detail::TensorOrMistake B, std::integral C, class... More>
constexpr auto matmul(const A& a, const B& /*b*/, C /*transposed*/, More... /*more*/) {
  static_assert(why::is_called_so<A>,
                "matmul: takes two tensors. Write matmul(x, transpose<1, 0>(w)) for a transposed "
                "one, or einsum<\"bm,hm->bh\">(x, w).");
  return detail::spoken_of(a);
}

// --- dimensions, as NumPy gives them: at run time --------------------------------------------------------------------

template <detail::TensorOrMistake A, std::integral Dim, class... More>
constexpr auto sum(const A& a, Dim /*dim*/, More... /*more*/) {
  static_assert(why::is_called_so<A>,
                "sum: dimensions stand between < and >, since the result's type follows from "
                "them. Write sum<1>(x), sum<0, 1>(x), or sum<1>(x, keep_dims).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A> constexpr auto sum(const A& a, std::initializer_list<int> /*dims*/) {
  static_assert(why::is_called_so<A>,
                "sum: dimensions stand between < and >, since the result's type follows from "
                "them. Write sum<1>(x), sum<0, 1>(x), or sum<1>(x, keep_dims).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral Dim, class... More>
constexpr auto mean(const A& a, Dim /*dim*/, More... /*more*/) {
  static_assert(why::is_called_so<A>,
                "mean: dimensions stand between < and >, since the result's type follows from "
                "them. Write mean<1>(x), mean<0, 1>(x), or mean<1>(x, keep_dims).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A> constexpr auto mean(const A& a, std::initializer_list<int> /*dims*/) {
  static_assert(why::is_called_so<A>,
                "mean: dimensions stand between < and >, since the result's type follows from "
                "them. Write mean<1>(x), mean<0, 1>(x), or mean<1>(x, keep_dims).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral Dim, class... More>
constexpr auto prod(const A& a, Dim /*dim*/, More... /*more*/) {
  static_assert(why::is_called_so<A>,
                "prod: dimensions stand between < and >, since the result's type follows from "
                "them. Write prod<1>(x), or prod<1>(x, keep_dims).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, class Other, class... More>
  requires(std::is_arithmetic_v<Other> || detail::TensorOrMistake<Other>)
constexpr auto max(const A& a, const Other& /*dim*/, More... /*more*/) {
  static_assert(why::is_called_so<A>,
                "max: dimensions stand between < and >: max<1>(x). The larger of two tensors, or "
                "of a tensor and a number, is maximum(x, y).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, class Other, class... More>
  requires(std::is_arithmetic_v<Other> || detail::TensorOrMistake<Other>)
constexpr auto min(const A& a, const Other& /*dim*/, More... /*more*/) {
  static_assert(why::is_called_so<A>,
                "min: dimensions stand between < and >: min<1>(x). The smaller of two tensors, or "
                "of a tensor and a number, is minimum(x, y).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral Dim> constexpr auto argmax(const A& a, Dim /*dim*/) {
  static_assert(why::is_called_so<A>, "argmax: the dimension stands between < and >. Write argmax<1>(x).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral Dim> constexpr auto argmin(const A& a, Dim /*dim*/) {
  static_assert(why::is_called_so<A>, "argmin: the dimension stands between < and >. Write argmin<1>(x).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral Dim> constexpr auto softmax(const A& a, Dim /*dim*/) {
  static_assert(why::is_called_so<A>, "softmax: the dimension stands between < and >. Write softmax<-1>(x).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral Dim> constexpr auto log_softmax(const A& a, Dim /*dim*/) {
  static_assert(why::is_called_so<A>, "log_softmax: the dimension stands between < and >. Write log_softmax<-1>(x).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral Dim> constexpr auto cumsum(const A& a, Dim /*dim*/) {
  static_assert(why::is_called_so<A>, "cumsum: the dimension stands between < and >. Write cumsum<0>(x).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral Dim> constexpr auto cumprod(const A& a, Dim /*dim*/) {
  static_assert(why::is_called_so<A>, "cumprod: the dimension stands between < and >. Write cumprod<0>(x).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral Count, class... More>
constexpr auto top_k(const A& a, Count /*count*/, More... /*more*/) {
  static_assert(why::is_called_so<A>,
                "top_k: the dimension and the number of elements stand between < and >. Write "
                "top_k<-1, 5>(x).");
  return detail::spoken_of(a);
}

// --- shapes ----------------------------------------------------------------------------------------------------------

template <detail::TensorOrMistake A, std::integral First, class... More>
constexpr auto reshape(const A& a, First /*extent*/, More... /*extents*/) {
  static_assert(why::is_called_so<A>,
                "reshape: the extents stand between < and >, since they are the result's type. "
                "Write reshape<6, 8>(x), or reshape<-1, 8>(x).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A> constexpr auto reshape(const A& a, std::initializer_list<int> /*extents*/) {
  static_assert(why::is_called_so<A>,
                "reshape: the extents stand between < and >, since they are the result's type. "
                "Write reshape<6, 8>(x), or reshape<-1, 8>(x).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral First, class... More>
constexpr auto broadcast_to(const A& a, First /*extent*/, More... /*extents*/) {
  static_assert(why::is_called_so<A>, "broadcast_to: the extents stand between < and >. Write broadcast_to<6, 8>(x).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A> constexpr auto broadcast_to(const A& a, std::initializer_list<int> /*extents*/) {
  static_assert(why::is_called_so<A>, "broadcast_to: the extents stand between < and >. Write broadcast_to<6, 8>(x).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral First, class... More>
constexpr auto transpose(const A& a, First /*dim*/, More... /*dims*/) {
  static_assert(why::is_called_so<A>,
                "transpose: the order of the dimensions stands between < and >. Write "
                "transpose<1, 0>(x).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A> constexpr auto transpose(const A& a, std::initializer_list<int> /*dims*/) {
  static_assert(why::is_called_so<A>,
                "transpose: the order of the dimensions stands between < and >. Write "
                "transpose<1, 0>(x).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral Dim> constexpr auto squeeze(const A& a, Dim /*dim*/) {
  static_assert(why::is_called_so<A>, "squeeze: the dimension stands between < and >. Write squeeze<0>(x).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral Dim> constexpr auto expand_dims(const A& a, Dim /*dim*/) {
  static_assert(why::is_called_so<A>, "expand_dims: the dimension stands between < and >. Write expand_dims<0>(x).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, detail::TensorOrMistake B, class... More>
constexpr auto concat(const A& a, const B& /*b*/, const More&... /*more*/) {
  static_assert(why::is_called_so<A>, "concat: the dimension stands between < and >. Write concat<0>(x, y).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A> constexpr auto concat(std::initializer_list<A> tensors, int /*dim*/ = 0) {
  static_assert(why::is_called_so<A>, "concat: the dimension stands between < and >. Write concat<0>(x, y).");
  return detail::spoken_of(*tensors.begin());
}
template <detail::TensorOrMistake A, detail::TensorOrMistake B, class... More>
constexpr auto stack(const A& a, const B& /*b*/, const More&... /*more*/) {
  static_assert(why::is_called_so<A>, "stack: the dimension stands between < and >. Write stack<0>(x, y).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A> constexpr auto stack(std::initializer_list<A> tensors, int /*dim*/ = 0) {
  static_assert(why::is_called_so<A>, "stack: the dimension stands between < and >. Write stack<0>(x, y).");
  return detail::spoken_of(*tensors.begin());
}
template <detail::TensorOrMistake A, std::integral Parts, class... More>
constexpr auto split(const A& a, Parts /*parts*/, More... /*more*/) {
  static_assert(why::is_called_so<A>,
                "split: the dimension and the number of parts stand between < and >. Write "
                "split<0, 2>(x).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral By, class... More>
constexpr auto roll(const A& a, By /*by*/, More... /*more*/) {
  static_assert(why::is_called_so<A>,
                "roll: the dimension and the distance stand between < and >. Write "
                "roll<0, 1>(x).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral Dim> constexpr auto reverse(const A& a, Dim /*dim*/) {
  static_assert(why::is_called_so<A>, "reverse: the dimension stands between < and >. Write reverse<0>(x).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral First, class... More>
constexpr auto slice(const A& a, First /*first*/, More... /*more*/) {
  static_assert(why::is_called_so<A>,
                "slice: the dimension, the first element and the one after the last stand between "
                "< and >: slice<0, 2, 5>(x) is x[2:5]. A start that a tensor holds is for "
                "dynamic_slice.");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral Index, class... More>
constexpr auto take(const A& a, Index /*index*/, More... /*more*/) {
  static_assert(why::is_called_so<A>,
                "take: the dimension and the index stand between < and >: take<0, 3>(x) is x[3]. "
                "An index that changes is a tensor: take<0>(x, index), or use scan.");
  return detail::spoken_of(a);
}
template <int Dim, detail::TensorOrMistake A, std::integral Index> constexpr auto take(const A& a, Index /*index*/) {
  static_assert(why::is_called_so<A>,
                "take: the dimension and the index stand between < and >: take<0, 3>(x) is x[3]. "
                "An index that changes is a tensor: take<0>(x, index), or use scan.");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, std::integral Count> constexpr auto one_hot(const A& a, Count /*classes*/) {
  static_assert(why::is_called_so<A>,
                "one_hot: the number of classes stands between < and >. Write "
                "one_hot<10>(labels).");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A> constexpr auto len(const A& /*a*/) {
  static_assert(why::is_called_so<A>,
                "len: the extent of a dimension is part of the tensor's type. Write x.extent(0).");
  return A::extent(0);
}

// --- layouts ---------------------------------------------------------------------------------------------------------

template <detail::fixed_string Axis, class... Entries, detail::TensorOrMistake A> constexpr auto shard(const A& a) {
  static_assert(why::is_called_so<A>,
                "shard: axes are types, not names. Write shard<data, none>(x), where struct data : "
                "axis<\"data\", 2> {}.");
  return detail::spoken_of(a);
}
template <class First, detail::fixed_string Axis, class... Entries, detail::TensorOrMistake A>
constexpr auto shard(const A& a) {
  static_assert(why::is_called_so<A>,
                "shard: axes are types, not names. Write shard<none, data>(x), where struct data : "
                "axis<\"data\", 2> {}.");
  return detail::spoken_of(a);
}
template <class First, class Second, detail::fixed_string Axis, class... Entries, detail::TensorOrMistake A>
constexpr auto shard(const A& a) {
  static_assert(
      why::is_called_so<A>,
      "shard: axes are types, not names. Write shard<none, none, data>(x), where struct data : axis<\"data\", 2> {}.");
  return detail::spoken_of(a);
}
template <detail::fixed_string Axis, detail::fixed_string Other, detail::fixed_string... Entries,
          detail::TensorOrMistake A>
constexpr auto shard(const A& a) {
  static_assert(why::is_called_so<A>,
                "shard: axes are types, not names. Write shard<data, model>(x), where struct data "
                ": axis<\"data\", 2> {}.");
  return detail::spoken_of(a);
}
template <detail::TensorOrMistake A, detail::NoSourceLine First, class... Entries>
constexpr auto shard(const A& a, const First& /*entry*/, const Entries&... /*entries*/) {
  static_assert(why::is_called_so<A>,
                "shard: the entries stand between < and >, one for each dimension. Write "
                "shard<data, none>(x), where struct data : axis<\"data\", 2> {}.");
  return detail::spoken_of(a);
}
template <detail::fixed_string Axis, class... Entries, detail::TensorOrMistake A> constexpr auto reshard(const A& a) {
  static_assert(why::is_called_so<A>,
                "reshard: axes are types, not names. Write reshard<data, none>(x), where struct "
                "data : axis<\"data\", 2> {}.");
  return detail::spoken_of(a);
}
template <class First, detail::fixed_string Axis, class... Entries, detail::TensorOrMistake A>
constexpr auto reshard(const A& a) {
  static_assert(why::is_called_so<A>,
                "reshard: axes are types, not names. Write reshard<none, data>(x), where struct "
                "data : axis<\"data\", 2> {}.");
  return detail::spoken_of(a);
}
template <class First, class Second, detail::fixed_string Axis, class... Entries, detail::TensorOrMistake A>
constexpr auto reshard(const A& a) {
  static_assert(why::is_called_so<A>,
                "reshard: axes are types, not names. Write reshard<none, none, data>(x), where struct data : "
                "axis<\"data\", 2> {}.");
  return detail::spoken_of(a);
}
template <detail::fixed_string Axis, detail::fixed_string Other, detail::fixed_string... Entries,
          detail::TensorOrMistake A>
constexpr auto reshard(const A& a) {
  static_assert(why::is_called_so<A>,
                "reshard: axes are types, not names. Write reshard<data, model>(x), where struct "
                "data : axis<\"data\", 2> {}.");
  return detail::spoken_of(a);
}

// --- functions of functions ------------------------------------------------------------------------------------------

template <int... Numbers, class Function, detail::NoSourceLine First, class... Rest>
constexpr auto value_and_grad(const Function& /*f*/, const First& first, const Rest&... /*rest*/) {
  static_assert(why::is_called_so<First>,
                "value_and_grad: makes a function, which is then called. Write "
                "value_and_grad(f)(w, x), or value_and_grad<0, 1>(f)(w, b).");
  return detail::spoken_of(first);
}
template <int... Numbers, class Function, detail::NoSourceLine First, class... Rest>
constexpr auto grad(const Function& /*f*/, const First& first, const Rest&... /*rest*/) {
  static_assert(why::is_called_so<First>,
                "grad: makes a function, which is then called. Write grad(f)(w, x), or "
                "grad<0, 1>(f)(w, b).");
  return detail::spoken_of(first);
}
template <class Function, detail::NoSourceLine First, class... Rest>
constexpr auto jvp(const Function& /*f*/, const First& first, const Rest&... /*rest*/) {
  static_assert(why::is_called_so<First>, "jvp: makes a function, which is then called. Write jvp(f)(x, direction).");
  return detail::spoken_of(first);
}

// --- output ----------------------------------------------------------------------------------------------------------

namespace detail {

/// `std::cout << x << '\n'`: what follows is taken, whatever it is.
struct nothing_printed {
  template <class T> constexpr const nothing_printed& operator<<(const T& /*more*/) const { return *this; }
  constexpr const nothing_printed& operator<<(std::ostream& (* /*endl*/)(std::ostream&)) const { return *this; }
};
template <class T>
concept OutputStream = requires(T& out) {
  out.flush().rdbuf();
};

// Found in the namespace of a symbol's bases.
template <OutputStream Stream, std::derived_from<symbol_tag> A>
constexpr auto operator<<(Stream& /*out*/, const A& /*a*/) {
  static_assert(why::is_called_so<A>,
                "<<: a tensor has no elements while a program is compiled. Return it, and print "
                "what gather(world, run(x)) gives when the program has run.");
  return nothing_printed{};
}

}  // namespace detail

}  // namespace espalier

// `std::exp(x)`. Nothing but a function of this name in the namespace can answer. Nothing of the standard library is
// changed: symbols are ours, and of anything else these are no candidates.
namespace std {  // NOLINT(cert-dcl58-cpp)

template <espalier::detail::TensorOrMistake A> constexpr auto exp(const A& a) {
  static_assert(espalier::why::is_called_so<A>,
                "std::exp: takes a number. Write ep::exp(x), with namespace ep = espalier, or exp(x).");
  return espalier::detail::spoken_of(a);
}
template <espalier::detail::TensorOrMistake A> constexpr auto expm1(const A& a) {
  static_assert(espalier::why::is_called_so<A>,
                "std::expm1: takes a number. Write ep::expm1(x), with namespace ep = espalier, or expm1(x).");
  return espalier::detail::spoken_of(a);
}
template <espalier::detail::TensorOrMistake A> constexpr auto log(const A& a) {
  static_assert(espalier::why::is_called_so<A>,
                "std::log: takes a number. Write ep::log(x), with namespace ep = espalier, or log(x).");
  return espalier::detail::spoken_of(a);
}
template <espalier::detail::TensorOrMistake A> constexpr auto log1p(const A& a) {
  static_assert(espalier::why::is_called_so<A>,
                "std::log1p: takes a number. Write ep::log1p(x), with namespace ep = espalier, or log1p(x).");
  return espalier::detail::spoken_of(a);
}
template <espalier::detail::TensorOrMistake A> constexpr auto sqrt(const A& a) {
  static_assert(espalier::why::is_called_so<A>,
                "std::sqrt: takes a number. Write ep::sqrt(x), with namespace ep = espalier, or sqrt(x).");
  return espalier::detail::spoken_of(a);
}
template <espalier::detail::TensorOrMistake A> constexpr auto tanh(const A& a) {
  static_assert(espalier::why::is_called_so<A>,
                "std::tanh: takes a number. Write ep::tanh(x), with namespace ep = espalier, or tanh(x).");
  return espalier::detail::spoken_of(a);
}
template <espalier::detail::TensorOrMistake A> constexpr auto sin(const A& a) {
  static_assert(espalier::why::is_called_so<A>,
                "std::sin: takes a number. Write ep::sin(x), with namespace ep = espalier, or sin(x).");
  return espalier::detail::spoken_of(a);
}
template <espalier::detail::TensorOrMistake A> constexpr auto cos(const A& a) {
  static_assert(espalier::why::is_called_so<A>,
                "std::cos: takes a number. Write ep::cos(x), with namespace ep = espalier, or cos(x).");
  return espalier::detail::spoken_of(a);
}
template <espalier::detail::TensorOrMistake A> constexpr auto tan(const A& a) {
  static_assert(espalier::why::is_called_so<A>,
                "std::tan: takes a number. Write ep::tan(x), with namespace ep = espalier, or tan(x).");
  return espalier::detail::spoken_of(a);
}
template <espalier::detail::TensorOrMistake A> constexpr auto erf(const A& a) {
  static_assert(espalier::why::is_called_so<A>,
                "std::erf: takes a number. Write ep::erf(x), with namespace ep = espalier, or erf(x).");
  return espalier::detail::spoken_of(a);
}
template <espalier::detail::TensorOrMistake A> constexpr auto floor(const A& a) {
  static_assert(espalier::why::is_called_so<A>,
                "std::floor: takes a number. Write ep::floor(x), with namespace ep = espalier, or floor(x).");
  return espalier::detail::spoken_of(a);
}
template <espalier::detail::TensorOrMistake A> constexpr auto round(const A& a) {
  static_assert(espalier::why::is_called_so<A>,
                "std::round: takes a number. Write ep::round(x), with namespace ep = espalier, or round(x).");
  return espalier::detail::spoken_of(a);
}
template <espalier::detail::TensorOrMistake A> constexpr auto abs(const A& a) {
  static_assert(espalier::why::is_called_so<A>,
                "std::abs: takes a number. Write ep::abs(x), with namespace ep = espalier, or abs(x).");
  return espalier::detail::spoken_of(a);
}
template <espalier::detail::TensorOrMistake A> constexpr auto fabs(const A& a) {
  static_assert(espalier::why::is_called_so<A>,
                "std::fabs: takes a number. Write ep::abs(x), with namespace ep = espalier, or abs(x).");
  return espalier::detail::spoken_of(a);
}
template <espalier::detail::TensorOrMistake A, class B> constexpr auto pow(const A& a, const B& /*b*/) {
  static_assert(espalier::why::is_called_so<A>,
                "std::pow: takes numbers. Write ep::pow(x, y), with namespace ep = espalier, or pow(x, y).");
  return espalier::detail::spoken_of(a);
}
template <class A, espalier::detail::TensorOrMistake B>
  requires(std::is_arithmetic_v<A>)
constexpr auto pow(const A& /*a*/, const B& b) {
  static_assert(espalier::why::is_called_so<B>,
                "std::pow: takes numbers. Write ep::pow(x, y), with namespace ep = espalier, or pow(x, y).");
  return espalier::detail::spoken_of(b);
}
template <espalier::detail::TensorOrMistake A> constexpr auto max(const A& a, const A& /*b*/) {
  static_assert(espalier::why::is_called_so<A>,
                "std::max: takes numbers. Write ep::maximum(x, y), with namespace ep = espalier, for the larger of "
                "each two elements.");
  return espalier::detail::spoken_of(a);
}
template <espalier::detail::TensorOrMistake A, class B>
  requires(!std::same_as<A, B>)
constexpr auto max(const A& a, const B& /*b*/) {
  static_assert(espalier::why::is_called_so<A>,
                "std::max: takes numbers. Write ep::maximum(x, y), with namespace ep = espalier, for the larger of "
                "each two elements.");
  return espalier::detail::spoken_of(a);
}
template <espalier::detail::TensorOrMistake A> constexpr auto min(const A& a, const A& /*b*/) {
  static_assert(espalier::why::is_called_so<A>,
                "std::min: takes numbers. Write ep::minimum(x, y), with namespace ep = espalier, for the smaller of "
                "each two elements.");
  return espalier::detail::spoken_of(a);
}
template <espalier::detail::TensorOrMistake A, class B>
  requires(!std::same_as<A, B>)
constexpr auto min(const A& a, const B& /*b*/) {
  static_assert(espalier::why::is_called_so<A>,
                "std::min: takes numbers. Write ep::minimum(x, y), with namespace ep = espalier, for the smaller of "
                "each two elements.");
  return espalier::detail::spoken_of(a);
}

}  // namespace std
