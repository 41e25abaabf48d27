// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/compare.hpp>

#include <bit>

namespace espalier {

namespace detail {

/// Floats in the total order of IEEE 754: from the NaN with a sign through -infinity, -0 and 0 to the NaN without.
[[nodiscard]] constexpr std::int64_t total_rank(double a) {
  const auto raw = std::bit_cast<std::int64_t>(a);
  constexpr std::int64_t all_but_sign = 0x7fffffffffffffff;
  return raw < 0 ? raw ^ all_but_sign : raw;
}
constexpr double total_less_scalars(double a, double b) { return total_rank(a) < total_rank(b) ? 1 : 0; }
constexpr double total_less_equal_scalars(double a, double b) { return total_rank(a) <= total_rank(b) ? 1 : 0; }
constexpr double total_equal_scalars(double a, double b) { return total_rank(a) == total_rank(b) ? 1 : 0; }

/// Compares floats with `Total` and other types with `Plain`, whose order is total already.
template <const op_info* Total, const op_info* Plain, class A, class B>
constexpr auto total_comparison(const A& a, const B& b, source_line where) {
  if constexpr (std::is_void_v<typename refused_among<is_floating, A, B>::type>) {
    return binary<Total, binary_result::boolean>(a, b, where);
  } else {
    return binary<Plain, binary_result::boolean>(a, b, where);
  }
}

}  // namespace detail

/// The comparisons of floats in the total order.
namespace ops {
inline constexpr op_info total_less =
    detail::elementwise_op("total_less", detail::evaluate_binary<detail::total_less_scalars>, detail::no_gradient);
inline constexpr op_info total_less_equal = detail::elementwise_op(
    "total_less_equal", detail::evaluate_binary<detail::total_less_equal_scalars>, detail::no_gradient);
inline constexpr op_info total_equal =
    detail::elementwise_op("total_equal", detail::evaluate_binary<detail::total_equal_scalars>, detail::no_gradient);
}  // namespace ops

/// Comparisons in the total order of IEEE 754 (section 5.10), in which -0 is below 0 and every NaN has a place: above
/// +infinity, or with its sign set below -infinity. Of integers and truth values they are `<`, `<=` and `equal`. A
/// boolean tensor of the broadcast shape. Errors: `shape_mismatch`, `dtype_mismatch`.
template <class A, detail::OperatorArguments<A> B>
constexpr auto total_less(const A& a, const B& b, source_line where = source_line::current()) {
  return detail::total_comparison<&ops::total_less, &ops::less>(a, b, where);
}
template <class A, detail::OperatorArguments<A> B>
constexpr auto total_less_equal(const A& a, const B& b, source_line where = source_line::current()) {
  return detail::total_comparison<&ops::total_less_equal, &ops::less_equal>(a, b, where);
}
template <class A, detail::OperatorArguments<A> B>
constexpr auto total_equal(const A& a, const B& b, source_line where = source_line::current()) {
  return detail::total_comparison<&ops::total_equal, &ops::equal>(a, b, where);
}

}  // namespace espalier
