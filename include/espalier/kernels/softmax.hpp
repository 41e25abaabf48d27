// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/kernels/reshape.hpp>
#include <espalier/ops/softmax.hpp>

namespace espalier::kernels {

/// A softmax is fused from its parts; only this op is the family's own.
template <> struct kernel<&ops::stop_gradient> : detail::copy_kernel {};
template <> struct block_kernel<&ops::stop_gradient> : detail::copy_block {};

}  // namespace espalier::kernels
