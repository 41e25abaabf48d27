// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/program.hpp>

#include <array>
#include <utility>

/// What a newcomer writes in a function that is no tensor program: conditions, casts, code that is not constexpr, names
/// that do not exist. The compiler's first message says so, one of the first three names the line, and no assertion
/// about the program fails beside it.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

inline int drawn() {
  static int state = 1;
  return state = state * 48271 % 7;
}

struct function {
#if defined(CASE_operator)
  auto operator()(auto x, auto y, auto n) const {// operator
#else
  constexpr auto operator()(auto x, auto y, auto n) const {
#endif
#if defined(CASE_if)
                                                 if (x) return y;  // if
  return n * x;
#elif defined(CASE_if_compared)
    if (ep::sum(x) > 0) return y;  // if_compared
    return n * x;
#elif defined(CASE_ternary)
  return x > 0 ? x : n* y;  // ternary
#elif defined(CASE_while)
  while (ep::sum(x) > 0 && ep::sum(y) > 0) x = x - n;  // while
  return x;
#elif defined(CASE_cast)
  return x * static_cast<float>(ep::sum(y)) + n;  // cast
#elif defined(CASE_negated)
  return ep::results(!x, n, y);  // negated
#elif defined(CASE_condition_failed)
  if (ep::sum<3>(x) > 0) return y;  // condition_failed
  return n * x;
#elif defined(CASE_called)
  return n * x + y * drawn();  // called
#elif defined(CASE_unknown)
  return ep::cumulative(x) + y * n;  // unknown
#elif defined(CASE_unknown_later)
  const auto h = ep::cumulative(x);  // unknown_later
  return h + y * n;
#elif defined(CASE_unknown_in_loss)
  const auto loss = [](auto w) { return ep::cumulative(w); };  // unknown_in_loss
  const auto [value, gradient] = ep::value_and_grad(loss)(x);
  return ep::results(value, gradient, y, n);
#elif defined(CASE_unknown_in_scan)
  const auto body = [](auto h) { return ep::cumulative(h); };  // unknown_in_scan
  return ep::repeat<3>(body, x) + y * n;
#elif defined(CASE_called_in_loss)
  const auto loss = [](auto w) { return ep::sum(w) * drawn(); };  // called_in_loss
  const auto [value, gradient] = ep::value_and_grad(loss)(x);
  return ep::results(value, gradient, y, n);
#elif defined(CASE_if_in_scan)
  const auto body = [](auto h) { return ep::sum(h) > 0 ? h * 2 : h; };  // if_in_scan
  return ep::repeat<3>(body, x) + y * n;
#elif defined(CASE_member)
  return x.sum() + y * n;  // member
#elif defined(CASE_assigned)
  x = ep::sum(x);  // assigned
  return x + y * n;
#elif defined(CASE_added)
  n += y;  // added
  return x + n;
#elif defined(CASE_pair)
  return std::pair(x, y* n);  // pair
#elif defined(CASE_array)
  return std::array{x, y* n};  // array
#elif defined(CASE_nothing)
  static_cast<void>(x + y * n);  // nothing
#else
  const auto t = x > 0;
  auto u = y > 0;
  auto sums = x;
  sums += y;
  sums -= 1;
  sums *= n;
  sums /= 2.0F;
  return ep::results(!t, !(x > 0), !u, t&& u, t || x > y, !t && !u, t & !u, ep::select(!t, sums, y* n));
#endif
}
}
;

using step = ep::program<mesh, function, ep::f32<8>, ep::f32<8>, ep::f32<>>;
// clang-format off
static_assert(step::flops() > 0 && step::is_sound == (step::result_count() == 8));  // the question
// clang-format on
#if !defined(CASE_condition_failed)
constexpr bool is_right = step::is_sound;
static_assert(is_right || step::collectives<ep::all_gather>() == 7);
static_assert(is_right || (3 * step::flops() + 1 > 5 && step::collectives() != 0 && 2 <= step::arena_bytes()));
static_assert(is_right || step::layout_of("h").placement.dim[0].contains(0));
static_assert(is_right || !step::argument_layout(9).placement.dim[1].empty());
static_assert(is_right || step::result_layout(0).shape == ep::f32<7, 5>::shape);
static_assert(is_right || step::argument_layout(0).shape[0] == 1024);
#endif

// clang-format off
// kind(CASE_if): `if (tensor)`
// first(CASE_if): if, \?:, while, a cast: what a tensor holds is known when the program runs, .* Use select\(
// expect(CASE_if): value_of<espalier::f32<8>, bool>
// user_line(CASE_if): // if$
// first(CASE_if_compared): if, \?:, while, a cast: what a tensor holds is known when the program runs, .* Use select\(
// expect(CASE_if_compared): value_of<espalier::boolean<>, bool>
// user_line(CASE_if_compared): // if_compared$
// first(CASE_ternary): if, \?:, while, a cast: what a tensor holds is known when the program runs, .* Use select\(
// expect(CASE_ternary): value_of<espalier::boolean<8>, bool>
// user_line(CASE_ternary): // ternary$
// first(CASE_while): if, \?:, while, a cast: what a tensor holds is known when the program runs, .* Use select\(
// expect(CASE_while): value_of<espalier::boolean<>, bool>
// user_line(CASE_while): // while$
// kind(CASE_cast): `float(tensor)`
// first(CASE_cast): if, \?:, while, a cast: what a tensor holds is known when the program runs
// expect(CASE_cast): value_of<espalier::f32<>, float>
// user_line(CASE_cast): // cast$
// kind(CASE_negated): `!x` of a tensor that is not boolean
// first(CASE_negated): a condition must be a boolean tensor. Compare first: x > 0.
// expect(CASE_negated): condition_is_not_boolean<espalier::f32<8> ?>::raise<espalier::why::in<espalier::why::op<'l', 'o', 'g', 'i', 'c', 'a', 'l', '_', 'n', 'o', 't' ?>, espalier::why::at<espalier::why::line<41>
// user_line(CASE_negated): // the question$
// first(CASE_condition_failed): if, \?:, while, a cast: what a tensor holds is known when the program runs
// expect(CASE_condition_failed): value_of<espalier::why::no_such_dimension<espalier::f32<8>, espalier::why::dim<3> ?>, bool>
// user_line(CASE_condition_failed): // condition_failed$
// budget(CASE_condition_failed): 8 30
// kind(CASE_called): a function that is not constexpr is called
// first(CASE_called, clang): constexpr variable 'the_function_and_what_it_calls_must_be_constexpr' must be initialized
// first(CASE_called, g++): function::operator\(\).* called in a constant expression
// expect(CASE_called): non-('constexpr' function 'int drawn|constexpr function 'drawn')
// user_line(CASE_called): // called$
// kind(CASE_operator): the function itself is not constexpr
// first(CASE_operator, clang): constexpr variable 'the_function_and_what_it_calls_must_be_constexpr' must be initialized
// first(CASE_operator, g++): called in a constant expression
// expect(CASE_operator): non-('constexpr' function 'auto function::operator|constexpr function 'operator)
// expect(CASE_operator): bodies.cpp:23:
// user_line(CASE_operator): // the question$
// kind(CASE_unknown): an op that does not exist
// first(CASE_unknown): 'cumulative'
// expect(CASE_unknown): cumulative
// user_line(CASE_unknown): // unknown$
// budget(CASE_unknown, clang): 1 5
// first(CASE_unknown_later): 'cumulative'
// expect(CASE_unknown_later): cumulative
// user_line(CASE_unknown_later): // unknown_later$
// budget(CASE_unknown_later, clang): 1 5
// first(CASE_unknown_in_loss): 'cumulative'
// expect(CASE_unknown_in_loss): cumulative
// user_line(CASE_unknown_in_loss): // unknown_in_loss$
// first(CASE_unknown_in_scan): 'cumulative'
// expect(CASE_unknown_in_scan): cumulative
// user_line(CASE_unknown_in_scan): // unknown_in_scan$
// expect(CASE_called_in_loss): non-('constexpr' function 'int drawn|constexpr function 'drawn')
// user_line(CASE_called_in_loss): // called_in_loss$
// Functions of functions stand between the two lines: each is a message.
// budget(CASE_called_in_loss): 11 36
// first(CASE_if_in_scan): if, \?:, while, a cast: what a tensor holds is known when the program runs, .* Use select\(
// expect(CASE_if_in_scan): value_of<espalier::boolean<>, bool>
// user_line(CASE_if_in_scan): // if_in_scan$
// budget(CASE_if_in_scan): 9 36
// kind(CASE_member): a member that does not exist, `x.sum()`
// first(CASE_member): no member named 'sum'
// expect(CASE_member): symbol<espalier::mesh<data>, espalier::f32<8> ?>
// user_line(CASE_member): // member$
// budget(CASE_member): 4 13
// kind(CASE_assigned): `x = sum(x)`, of another type
// first(CASE_assigned): =, \+=: a variable keeps its type, and this tensor has another one
// expect(CASE_assigned): assigned_another_type<espalier::f32<8>, espalier::f32< ?> ?>::raise<espalier::why::at<espalier::why::line<69>
// user_line(CASE_assigned): // the question$
// first(CASE_added): =, \+=: a variable keeps its type, and this tensor has another one
// expect(CASE_added): assigned_another_type<espalier::f32<>, espalier::f32<8> ?>::raise<espalier::why::at<espalier::why::line<72>
// user_line(CASE_added): // the question$
// kind(CASE_pair): `std::pair` for `results`
// first(CASE_pair): program: the function returns several results in a class of the standard library. Return espalier::results\(a, b\)
// expect(CASE_pair): results_in_another_class<function, std::pair<
// user_line(CASE_pair): // the question$
// first(CASE_array): program: the function returns several results in a class of the standard library. Return espalier::results\(a, b\)
// expect(CASE_array): results_in_another_class<function, std::array<
// user_line(CASE_array): // the question$
// kind(CASE_nothing): nothing is returned
// first(CASE_nothing): the function returns nothing. Return a tensor
// expect(CASE_nothing): function_returns_nothing<function>
// user_line(CASE_nothing): // the question$
// clang-format on
