// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/convolution.hpp>
#include <espalier/tensor/run/kernels/convolution/filter_gradient.hpp>
#include <espalier/tensor/run/kernels/convolution/forward.hpp>
#include <espalier/tensor/run/kernels/convolution/turned_filter.hpp>
#include <espalier/tensor/run/kernels/convolution/types.hpp>
#include <espalier/tensor/run/kernels/typed_kernel.hpp>

#include <cstdint>
#include <utility>

// A convolution is a product of matrices: rows are output positions, and a row has what the taps see of the input,
// zeros where that lies outside. That matrix is never made: strips of it are read straight from the input into the form
// in which the micro-kernel of the matrix product (kernels/gemm.hpp) wants them.

namespace espalier::kernels {

template <> struct kernel<&ops::convolution> : typed_kernel<&ops::convolution> {
  static constexpr auto& shared = detail::shared_convolutions;
  static constexpr std::int64_t scratch_bytes(const kernel_key& key) { return detail::product_bytes(key, 0, true); }
  template <kernel_types Types> static void run_typed(const kernel_key& key, const kernel_call& call) {
    using types = detail::convolution_types<Types>;
    const extents& filter = key.operand_shape[1];
    const auto attributes = attributes_of<windowed_attributes>(key);
    const auto* const x = static_cast<const typename types::first*>(call.operand[0]);
    const auto* const w = static_cast<const typename types::second*>(call.operand[1]);
    auto* const y = static_cast<typename types::result*>(call.result);
    if constexpr (!is_floating(Types.type)) {
      detail::convolve_exactly<typename types::result>(
          call, attributes, key.operand_shape[0], filter, key.shape, call.boxes->operand[0], call.boxes->result,
          key.shape.elements(),
          [=](const detail::convolution_term& t) { detail::add_product(y[t.output], x[t.input], w[t.filter]); });
    } else {
      const detail::convolution_task task =
          detail::convolution_task_for(call.windows + attributes.first_window, filter, key.operand_shape[0],
                                       call.boxes->operand[0], key.shape, call.boxes->result);
      auto* scratch = static_cast<typename types::product*>(call.scratch);
      const auto* const input = detail::as_first_operand(key.operand_shape[0].elements(), x, scratch);
      const auto* const weights = detail::as_products(filter.elements(), w, scratch);
      detail::with_sums(key.shape.elements(), y, scratch, [&](auto* sums) {
        detail::convolve(task, input, weights, filter[filter.rank - 2], filter[filter.rank - 1], false, sums);
      });
    }
  }
};

template <> struct kernel<&ops::convolution_input_gradient> : typed_kernel<&ops::convolution_input_gradient> {
  static constexpr auto& shared = detail::shared_convolutions;
  static constexpr std::int64_t scratch_bytes(const kernel_key& key) {
    return detail::product_bytes(key, key.operand_shape[1].elements(), false);
  }
  template <kernel_types Types> static void run_typed(const kernel_key& key, const kernel_call& call) {
    using types = detail::convolution_types<Types>;
    const extents& filter = key.operand_shape[1];
    const auto attributes = attributes_of<windowed_attributes>(key);
    const auto* const y = static_cast<const typename types::first*>(call.operand[0]);
    const auto* const w = static_cast<const typename types::second*>(call.operand[1]);
    auto* const x = static_cast<typename types::result*>(call.result);
    if constexpr (!is_floating(Types.type)) {
      detail::convolve_exactly<typename types::result>(
          call, attributes, key.shape, filter, key.operand_shape[0], call.boxes->result, call.boxes->operand[0],
          key.shape.elements(),
          [=](const detail::convolution_term& t) { detail::add_product(x[t.input], y[t.output], w[t.filter]); });
    } else {
      const int last = filter.rank - 1;
      const std::int64_t groups = detail::groups_of(key.shape, filter);
      const extents turned = detail::turned_shape(filter, groups);
      placed_window windows[3];
      for (int d = 0; d < filter.rank - 2; ++d) windows[d] = call.windows[attributes.first_window + d].reversed();
      const detail::convolution_task task = detail::convolution_task_for(
          &windows[0], turned, key.operand_shape[0], call.boxes->operand[0], key.shape, call.boxes->result);
      auto* scratch = static_cast<typename types::product*>(call.scratch);
      auto* const weights = std::exchange(scratch, scratch + filter.elements());
      detail::turn_filter(task, filter, groups, w, weights);
      const auto* const cotangent = detail::as_first_operand(key.operand_shape[0].elements(), y, scratch);
      detail::with_sums(key.shape.elements(), x, scratch, [&](auto* sums) {
        detail::convolve(task, cotangent, weights, turned[last - 1], turned[last], true, sums);
      });
    }
  }
};

template <> struct kernel<&ops::convolution_filter_gradient> : typed_kernel<&ops::convolution_filter_gradient> {
  static constexpr auto& shared = detail::shared_convolutions;
  static constexpr std::int64_t scratch_bytes(const kernel_key& key) {
    const std::int64_t others = detail::parts_of_filter_gradient(key.shape, key.operand_shape[1]) - 1;
    return detail::product_bytes(key, others * key.shape.elements(), true);
  }
  template <kernel_types Types> static void run_typed(const kernel_key& key, const kernel_call& call) {
    using types = detail::convolution_types<Types>;
    const extents& filter = key.shape;
    const auto attributes = attributes_of<windowed_attributes>(key);
    const auto* const x = static_cast<const typename types::first*>(call.operand[0]);
    const auto* const y = static_cast<const typename types::second*>(call.operand[1]);
    auto* const w = static_cast<typename types::result*>(call.result);
    if constexpr (!is_floating(Types.type)) {
      detail::convolve_exactly<typename types::result>(
          call, attributes, key.operand_shape[0], filter, key.operand_shape[1], call.boxes->operand[0],
          call.boxes->operand[1], key.shape.elements(),
          [=](const detail::convolution_term& t) { detail::add_product(w[t.filter], x[t.input], y[t.output]); });
    } else {
      const detail::convolution_task task =
          detail::convolution_task_for(call.windows + attributes.first_window, filter, key.operand_shape[0],
                                       call.boxes->operand[0], key.operand_shape[1], call.boxes->operand[1]);
      auto* scratch = static_cast<typename types::product*>(call.scratch);
      const std::int64_t parts = detail::parts_of_filter_gradient(filter, key.operand_shape[1]);
      const auto* const input = detail::as_first_operand(key.operand_shape[0].elements(), x, scratch);
      const auto* const cotangent = detail::as_products(key.operand_shape[1].elements(), y, scratch);
      auto* const others = std::exchange(scratch, scratch + (parts - 1) * filter.elements());
      detail::with_sums(key.shape.elements(), w, scratch, [&](auto* sums) {
        detail::convolve_for_filter(task, input, cotangent, filter[filter.rank - 2], filter[filter.rank - 1], sums,
                                    parts, others);
      });
    }
  }
};

}  // namespace espalier::kernels
