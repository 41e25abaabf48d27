// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/diagnostics/report.hpp>
#include <espalier/tensor/core/program/passes.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

/// The reason why a program's function cannot be called with its arguments.
namespace espalier::detail {

template <class Member> struct member_arity { static constexpr int value = -1; };
template <class F, class Result, class... Parameters> struct member_arity<Result (F::*)(Parameters...)> {
  static constexpr int value = static_cast<int>(sizeof...(Parameters));
};
template <class F, class Result, class... Parameters>
struct member_arity<Result (F::*)(Parameters...) const> : member_arity<Result (F::*)(Parameters...)> {};

/// A function object that can be called with Count arguments of any type. Together with a function template that can be
/// called so too, the call is ambiguous: that tells how many arguments the template takes without instantiating its
/// body, which would be full of errors. (With the last parameter, no constraint decides between the two.)
template <int Count> struct other_call_operator;
template <> struct other_call_operator<1> { template <class A, class = void> void operator()(A) const; };
template <> struct other_call_operator<2> { template <class A, class B, class = void> void operator()(A, B) const; };
template <> struct other_call_operator<3> {
  template <class A, class B, class C, class = void> void operator()(A, B, C) const;
};
template <> struct other_call_operator<4> {
  template <class A, class B, class C, class D, class = void> void operator()(A, B, C, D) const;
};
template <> struct other_call_operator<5> {
  template <class A, class B, class C, class D, class E, class = void> void operator()(A, B, C, D, E) const;
};
template <> struct other_call_operator<6> {
  template <class A, class B, class C, class D, class E, class F, class = void> void operator()(A, B, C, D, E, F) const;
};
template <class Function, int Count> struct with_other_call_operator : Function, other_call_operator<Count> {
  using Function::operator();
  using other_call_operator<Count>::operator();
};
template <class Function, class... Given> [[nodiscard]] constexpr bool takes_these() {
  return !requires(const with_other_call_operator<Function, static_cast<int>(sizeof...(Given))>& f,
                   const Given&... given) {
    f(given...);
  };
}
template <class Function, int Count> [[nodiscard]] constexpr bool takes() {
  struct anything {};
  return []<std::size_t... I>(std::index_sequence<I...>) {
    return takes_these<Function, std::conditional_t<I == 0, anything, anything>...>();
  }
  (std::make_index_sequence<static_cast<std::size_t>(Count)>{});
}

/// Returns the number of arguments that a function object takes, or -1 if that cannot be told.
template <class Function> [[nodiscard]] constexpr int arity_of() {
  if constexpr (requires { &Function::operator(); }) {
    return member_arity<decltype(&Function::operator())>::value;
  } else if constexpr (std::is_class_v<Function> && !std::is_final_v<Function>) {
    return takes<Function, 1>()   ? 1
           : takes<Function, 2>() ? 2
           : takes<Function, 3>() ? 3
           : takes<Function, 4>() ? 4
           : takes<Function, 5>() ? 5
           : takes<Function, 6>() ? 6
                                  : -1;
  } else {
    return -1;
  }
}

/// The function that a user wrote: the one that a function of ours calls with what it is given itself.
template <class Function> struct written_function { using type = Function; };

/// Whether arguments of these types fit a function that cannot be called with them: then something in its body is no
/// C++, of which the compiler has spoken. Asked with another mesh, since clang forgets what it found to be wrong.
struct any_axis : axis<"any", 1> {};
template <class Function, class... Arguments> [[nodiscard]] constexpr bool fits() {
  constexpr int count = static_cast<int>(sizeof...(Arguments));
  if constexpr (std::is_class_v<Function> && !std::is_final_v<Function> && count >= 1 && count <= 6) {
    return takes_these<Function, traced_t<mesh<any_axis>, Arguments>...>();
  } else {
    return false;
  }
}

/// Whether a function takes the types that describe tensors, where it should take tensors of a trace. (Of a template it
/// cannot be asked without making its body.)
template <class Function, class... Arguments> [[nodiscard]] constexpr bool takes_tensor_types() {
  if constexpr (requires { &Function::operator(); }) {
    return std::is_invocable_v<const Function&, plain<typename argument_traits<Arguments>::type>...>;
  } else {
    return false;
  }
}

/// Reports a function that cannot be called with these arguments.
template <class Function, class... Arguments> [[nodiscard]] constexpr auto explain_call() {
  constexpr int given = static_cast<int>(sizeof...(Arguments));
  constexpr int arity = arity_of<Function>();
  if constexpr (arity >= 0 && arity != given) {
    return report<why::wrong_argument_count<Function, why::takes<arity>, why::given<given>>, why::program>{};
  } else if constexpr (takes_tensor_types<Function, Arguments...>()) {
    return report<why::parameter_is_a_tensor_type<Function, Arguments...>, why::program>{};
  } else {
    return report<why::function_not_callable<Function, Arguments...>, why::program>{};
  }
}

}  // namespace espalier::detail
