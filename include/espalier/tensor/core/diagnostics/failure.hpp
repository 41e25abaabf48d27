// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/diagnostics/reasons.hpp>
#include <espalier/tensor/core/diagnostics/source_line.hpp>

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace espalier {

template <class Reason> struct failed;

namespace detail {
/// `==` and `!=` of symbols, and of what stands for them, are in the namespace of their tags, where nothing else finds
/// them: the passes compare much, for which no compiler has to look at these.
namespace equality {
struct failure_tag {};
struct symbol_tag {};
}  // namespace equality
using equality::failure_tag;
using equality::symbol_tag;

// A member function's body is made on the line that needs it; by g++ later, but what its noexcept asks is made there.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__EDG__)
#define ESPALIER_ASSERTED_BEFORE_BODY 1
#else
#define ESPALIER_ASSERTED_BEFORE_BODY 0
#endif

/// The reason of a mistake of which the compiler has spoken already, on the user's line.
struct reported {};

/// Both ends of no rows of a tensor.
template <class Tensor> struct no_rows {
  template <class Reason = reported> constexpr auto operator*() const { return failed<Reason>{}; }
  constexpr no_rows& operator++() { return *this; }
  constexpr bool operator!=(const no_rows& /*end*/) const { return false; }
};
}  // namespace detail

// A mistake that has been reported is not reported again.
template <class As> struct why::value_of<detail::reported, As> {
  static constexpr bool is_known_while_compiling = true;
};
template <> struct why::rows_of<detail::reported> { static constexpr bool are_known_while_compiling = true; };

namespace detail {

/// The elements of a tensor are not known while a program is compiled: `if (x > 0)` and `float(x)` are mistakes. The
/// compiler says so on the user's line, and nothing follows. Only what converts explicitly comes here, nothing of ours
/// does.
template <class Self, class Tensor> struct without_value {
  template <class Value>
    requires(std::is_arithmetic_v<Value>)
  constexpr explicit operator Value() const
#if ESPALIER_ASSERTED_BEFORE_BODY
      noexcept([] {
        static_assert(why::value_of<Tensor, Value>::is_known_while_compiling,
                      "if, ?:, while, a cast: what a tensor holds is known when the program runs, not when it is "
                      "compiled. Use select(condition, yes, no), of which both are computed.");
        return true;
      }())
#endif
  {
#if !ESPALIER_ASSERTED_BEFORE_BODY
    static_assert(why::value_of<Tensor, Value>::is_known_while_compiling,
                  "if, ?:, while, a cast: what a tensor holds is known when the program runs, not when it is "
                  "compiled. Use select(condition, yes, no), of which both are computed.");
#endif
    static_cast<const Self&>(*this).note_use_as_value();
    return Value{};
  }

  /// `for (auto row : x)`: a mistake, too. The rows are none, of the type of a mistake that has been reported.
  template <class Rows = Tensor> constexpr auto begin() const {
    static_assert(why::rows_of<Rows>::are_known_while_compiling,
                  "for (auto row : x): a tensor has no rows to walk over while a program is compiled. Use "
                  "scan(body, carry, x) for each row in turn, or take<0, 3>(x) for one; most operators work on all at "
                  "once.");
    return no_rows<Tensor>{};
  }
  [[nodiscard]] constexpr auto end() const { return no_rows<Tensor>{}; }
};
#undef ESPALIER_ASSERTED_BEFORE_BODY
}  // namespace detail

/// The place of a mistake: the line, and the op that found it, or null if the reason itself names the op.
struct mistake_place : source_line {
  const char* op = nullptr;
};

/// A mistake found while tracing. It takes the place of the result and travels on through every later op, so that it
/// is reported once, by `program`, however deep in loops and gradients it happened.
/// `Reason` names what happened with the types involved.
template <class Reason> struct failed : detail::failure_tag, detail::without_value<failed<Reason>, Reason> {
  using reason = Reason;
  mistake_place where;

  constexpr failed() = default;
  constexpr explicit failed(mistake_place place) : where(place) {}
  /// `op`: of a reason that several ops have, which of them it was.
  constexpr explicit failed(source_line line, const char* op = nullptr) : where{line, op} {}

  // The questions that a model may ask of a tensor, or of results: an answer keeps the rest of the model from adding
  // errors of its own to the one that counts.
  static constexpr int rank = 0;
  static constexpr int extent(int) { return 1; }
  template <int> [[nodiscard]] constexpr const failed& get() const { return *this; }
  /// Each of several parts is the mistake.
  [[nodiscard]] constexpr const failed& operator[](int) const { return *this; }
  /// Here nothing could note anything.
  constexpr void note_use_as_value() const {}
};

template <class T>
concept Failed = std::derived_from<T, detail::failure_tag>;

}  // namespace espalier

/// `const auto [last, outputs] = scan(...)`, where nothing but a mistake came out: both are the mistake. (Of more than
/// two parts nothing is known.)
template <class Reason> struct std::tuple_size<espalier::failed<Reason>> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I, class Reason> struct std::tuple_element<I, espalier::failed<Reason>> {
  using type = espalier::failed<Reason>;
};

namespace espalier::detail {

/// A reason as a value: the address of its `id`. `reason_of(reason_at<address>{})` gives the type back.
struct reason_id {};
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-template-friend"
#endif
template <const reason_id* Id> struct reason_at { friend constexpr auto reason_of(reason_at); };
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
template <class Reason> struct noted_reason {
  static constexpr reason_id id{};
  friend constexpr auto reason_of(reason_at<&noted_reason::id>) { return failed<Reason>{}; }
};

/// A substitute for something that does not exist, after the compiler has said so.
inline constexpr failed<reported> no_such_part{};

/// The first of some types that is not void, or void.
template <class... Mistakes> struct first_mistake { using type = void; };
template <class First, class... Rest>
struct first_mistake<First, Rest...>
    : std::conditional_t<std::is_void_v<First>, first_mistake<Rest...>, std::type_identity<First>> {};

/// The first mistake among the arguments of an op.
template <class First, class... Rest> constexpr auto first_failure(const First& first, const Rest&... rest) {
  if constexpr (Failed<First>) {
    return first;
  } else {
    return first_failure(rest...);
  }
}

}  // namespace espalier::detail
