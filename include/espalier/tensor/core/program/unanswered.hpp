// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/sharding/box.hpp>
#include <espalier/tensor/core/sharding/sharding.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>

/// The answer of a program with a mistake to questions, so that no assertion about it fails in addition to the mistake:
/// every comparison is true, every flag is set, and a value computed from an answer is an answer too.
namespace espalier::detail {

struct unanswered;

template <class T>
concept OtherThanUnanswered = !std::derived_from<T, unanswered>;

struct unanswered {
  /// One number among others, where a plain one is needed; true, where a truth is.
  constexpr operator std::int64_t() const { return 1; }  // NOLINT(google-explicit-constructor)
  constexpr bool operator!() const { return true; }
  template <class Index> constexpr unanswered operator[](const Index& /*index*/) const { return {}; }
};

template <OtherThanUnanswered T> constexpr bool operator==(unanswered /*a*/, const T& /*b*/) { return true; }
template <OtherThanUnanswered T> constexpr bool operator!=(unanswered /*a*/, const T& /*b*/) { return true; }
template <OtherThanUnanswered T> constexpr bool operator<(unanswered /*a*/, const T& /*b*/) { return true; }
template <OtherThanUnanswered T> constexpr bool operator<=(unanswered /*a*/, const T& /*b*/) { return true; }
template <OtherThanUnanswered T> constexpr bool operator>(unanswered /*a*/, const T& /*b*/) { return true; }
template <OtherThanUnanswered T> constexpr bool operator>=(unanswered /*a*/, const T& /*b*/) { return true; }
template <OtherThanUnanswered T> constexpr bool operator==(const T& /*a*/, unanswered /*b*/) { return true; }
template <OtherThanUnanswered T> constexpr bool operator!=(const T& /*a*/, unanswered /*b*/) { return true; }
template <OtherThanUnanswered T> constexpr bool operator<(const T& /*a*/, unanswered /*b*/) { return true; }
template <OtherThanUnanswered T> constexpr bool operator<=(const T& /*a*/, unanswered /*b*/) { return true; }
template <OtherThanUnanswered T> constexpr bool operator>(const T& /*a*/, unanswered /*b*/) { return true; }
template <OtherThanUnanswered T> constexpr bool operator>=(const T& /*a*/, unanswered /*b*/) { return true; }
constexpr bool operator==(unanswered /*a*/, unanswered /*b*/) { return true; }
constexpr bool operator!=(unanswered /*a*/, unanswered /*b*/) { return true; }
constexpr bool operator<(unanswered /*a*/, unanswered /*b*/) { return true; }
constexpr bool operator<=(unanswered /*a*/, unanswered /*b*/) { return true; }
constexpr bool operator>(unanswered /*a*/, unanswered /*b*/) { return true; }
constexpr bool operator>=(unanswered /*a*/, unanswered /*b*/) { return true; }

template <class A, class B>
concept OneIsUnanswered = (std::derived_from<A, unanswered> &&
                           (std::is_arithmetic_v<B> || std::derived_from<B, unanswered>)) ||
                          (std::derived_from<B, unanswered> && std::is_arithmetic_v<A>);
template <class A, class B>
  requires OneIsUnanswered<A, B>
constexpr unanswered operator+(const A& /*a*/, const B& /*b*/) { return {}; }
template <class A, class B>
  requires OneIsUnanswered<A, B>
constexpr unanswered operator-(const A& /*a*/, const B& /*b*/) { return {}; }
template <class A, class B>
  requires OneIsUnanswered<A, B>
constexpr unanswered operator*(const A& /*a*/, const B& /*b*/) { return {}; }
template <class A, class B>
  requires OneIsUnanswered<A, B>
constexpr unanswered operator/(const A& /*a*/, const B& /*b*/) { return {}; }

/// The same as extents, as the axes of a dimension, as a sharding and as a layout.
struct unanswered_extents : unanswered {
  unanswered rank;
  constexpr operator extents() const { return {}; }  // NOLINT(google-explicit-constructor)
};
struct unanswered_axes : unanswered {
  template <class Axis> [[nodiscard]] constexpr unanswered contains(const Axis& /*axis*/) const { return {}; }
  [[nodiscard]] constexpr unanswered empty() const { return {}; }
  [[nodiscard]] constexpr unanswered size() const { return {}; }
};
struct unanswered_dimensions {
  constexpr unanswered_axes operator[](int /*dim*/) const { return {}; }
};
struct unanswered_sharding : unanswered {
  unanswered rank;
  unanswered unreduced;
  unanswered_dimensions dim;
  template <class Other> [[nodiscard]] constexpr unanswered same_layout(const Other& /*other*/) const { return {}; }
  constexpr operator sharding() const { return sharding::whole(0); }  // NOLINT(google-explicit-constructor)
};
struct unanswered_layout : unanswered {
  unanswered_extents shape;
  unanswered_sharding placement;
  constexpr operator layout() const { return {}; }  // NOLINT(google-explicit-constructor)
};

}  // namespace espalier::detail
