// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/diagnostics/reasons.hpp>
#include <espalier/tensor/core/diagnostics/source_line.hpp>
#include <espalier/tensor/core/graph/symbol.hpp>

/// Overloads for `shard<pipe>(x)` where the name of an axis is that of a function too, as C has `pipe`, `read`, `link`,
/// `time`: of two global ones the function is found, which is a mistake. They are found together with the overloads
/// that take types.
namespace espalier {

namespace detail {

template <class A> constexpr auto name_is_no_axis(const A& a, source_line where) {
  if constexpr (Failed<A>) {
    return a;
  } else {
    return failed<why::axis_name_is_a_function<typename A::tensor>>(where);
  }
}

}  // namespace detail

template <auto Function, class... Entries, Traced A>
constexpr auto shard(const A& a, source_line where = source_line::current()) {
  return detail::name_is_no_axis(a, where);
}
template <class First, auto Function, class... Entries, Traced A>
constexpr auto shard(const A& a, source_line where = source_line::current()) {
  return detail::name_is_no_axis(a, where);
}
template <auto Function, class... Entries, Traced A>
constexpr auto reshard(const A& a, source_line where = source_line::current()) {
  return detail::name_is_no_axis(a, where);
}
template <class First, auto Function, class... Entries, Traced A>
constexpr auto reshard(const A& a, source_line where = source_line::current()) {
  return detail::name_is_no_axis(a, where);
}

}  // namespace espalier
