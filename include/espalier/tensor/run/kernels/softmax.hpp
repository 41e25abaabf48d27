// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/softmax.hpp>
#include <espalier/tensor/run/kernels/elementwise.hpp>
#include <espalier/tensor/run/kernels/reshape.hpp>

namespace espalier::detail {

/// Computes value * factor; the first operand is the one that the others were made of, and is not read.
struct normalised_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T, T value, T factor) {
    return value * factor;
  }
};

}  // namespace espalier::detail

namespace espalier::kernels {

/// A softmax is fused from its parts; only the last is the family's own.
template <> struct block_kernel<&ops::softmax> : detail::elementwise_block<detail::normalised_elements> {};
template <> struct block_kernel<&ops::standardise> : detail::elementwise_block<detail::normalised_elements> {};

template <> struct kernel<&ops::stop_gradient> : detail::copy_kernel {};
template <> struct block_kernel<&ops::stop_gradient> : detail::copy_block {};

}  // namespace espalier::kernels
