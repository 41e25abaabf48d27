// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/convert.hpp>
#include <espalier/tensor/run/kernels/elementwise.hpp>

namespace espalier::kernels {

/// The driver loads and stores through `element_cast`, which is the conversion. A float beyond an integer's range
/// becomes the nearest integer, a NaN 0.
template <> struct block_kernel<&ops::convert> : detail::copy_block {};

}  // namespace espalier::kernels
