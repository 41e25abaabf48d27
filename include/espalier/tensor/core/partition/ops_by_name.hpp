// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/partition/collectives.hpp>

#include <iterator>
#include <span>
#include <vector>

namespace espalier {

namespace detail {

/// The operators of a text that are no collectives.
inline constexpr const op_info* named_ops[]{&ops::exp,
                                            &ops::log,
                                            &ops::sqrt,
                                            &ops::rsqrt,
                                            &ops::tanh,
                                            &ops::sigmoid,
                                            &ops::relu,
                                            &ops::silu,
                                            &ops::gelu,
                                            &ops::silu_slope,
                                            &ops::gelu_slope,
                                            &ops::add_einsum,
                                            &ops::again,
                                            &ops::argument,
                                            &ops::result,
                                            &ops::add,
                                            &ops::subtract,
                                            &ops::multiply,
                                            &ops::divide,
                                            &ops::negate,
                                            &ops::bitwise_and,
                                            &ops::bitwise_or,
                                            &ops::bitwise_xor,
                                            &ops::bitwise_not,
                                            &ops::shift_left,
                                            &ops::shift_right_logical,
                                            &ops::shift_right_arithmetic,
                                            &ops::bit_cast,
                                            &ops::reduce_sum,
                                            &ops::broadcast,
                                            &ops::less,
                                            &ops::less_equal,
                                            &ops::equal,
                                            &ops::not_equal,
                                            &ops::logical_and,
                                            &ops::logical_or,
                                            &ops::logical_not,
                                            &ops::maximum,
                                            &ops::minimum,
                                            &ops::select,
                                            &ops::concat,
                                            &ops::constant,
                                            &ops::convert,
                                            &ops::convolution,
                                            &ops::convolution_input_gradient,
                                            &ops::convolution_filter_gradient,
                                            &ops::cumulate,
                                            &ops::part_of_cumulate,
                                            &ops::dynamic_slice,
                                            &ops::dynamic_update_slice,
                                            &ops::einsum,
                                            &ops::erf,
                                            &ops::erfc,
                                            &ops::erf_inv,
                                            &ops::expm1,
                                            &ops::log1p,
                                            &ops::pow,
                                            &ops::further_result,
                                            &ops::gather,
                                            &ops::scatter_add,
                                            &ops::iota,
                                            &ops::print,
                                            &ops::check_finite,
                                            &ops::abs,
                                            &ops::sign,
                                            &ops::is_finite,
                                            &ops::clamp,
                                            &ops::sum_pool,
                                            &ops::max_pool,
                                            &ops::pool_equal,
                                            &ops::spread_equal,
                                            &ops::random_bits,
                                            &ops::reduce,
                                            &ops::reshape,
                                            &ops::roll,
                                            &ops::floor,
                                            &ops::ceil,
                                            &ops::trunc,
                                            &ops::round,
                                            &ops::remainder,
                                            &ops::region_begin,
                                            &ops::region_parameter,
                                            &ops::region_yield,
                                            &ops::region_end,
                                            &ops::region_result,
                                            &ops::loop_slice,
                                            &ops::loop_stack,
                                            &ops::loop_sum,
                                            &ops::copy,
                                            &ops::shard,
                                            &ops::shard_value,
                                            &ops::reshard,
                                            &ops::match,
                                            &ops::shard_like,
                                            &ops::shard_as,
                                            &ops::slice,
                                            &ops::pad,
                                            &ops::stop_gradient,
                                            &ops::softmax,
                                            &ops::standardise,
                                            &ops::top_k,
                                            &ops::part_of_top_k,
                                            &ops::take_along,
                                            &ops::put_along,
                                            &ops::total_less,
                                            &ops::total_less_equal,
                                            &ops::total_equal,
                                            &ops::transpose,
                                            &ops::sin,
                                            &ops::cos,
                                            &ops::tan,
                                            &ops::atan2,
                                            &ops::merge_dimensions,
                                            &ops::mask};

}  // namespace detail

/// All operators that the text of a graph may name (graph/parse_text.hpp): those of ops/, and those that only a
/// partitioned program has. Nothing but the reader of texts needs it. tests/support/op_page.py fails where one is
/// missing.
[[nodiscard]] inline std::span<const op_info* const> all_ops() {
  static const std::vector<const op_info*> all = [] {
    std::vector<const op_info*> list(std::begin(detail::named_ops), std::end(detail::named_ops));
    list.push_back(&ops::exchange_from_owner);
    list.push_back(&ops::exchange_along_from_owner);
    for (const collective_facts& kind : collective_table) {
      if (!kind.is_instruction) continue;
      list.push_back(&detail::collective_ops.of[static_cast<int>(kind.kind)]);
      list.push_back(&detail::travelling_ops.of[static_cast<int>(kind.kind)]);
    }
    return list;
  }();
  return all;
}

}  // namespace espalier
