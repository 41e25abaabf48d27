// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/scan.hpp>
#include <espalier/tensor/run/kernels/reshape.hpp>

namespace espalier::kernels {

template <> struct kernel<&ops::copy> : detail::copy_kernel {};
template <> struct block_kernel<&ops::copy> : detail::copy_block {};

}  // namespace espalier::kernels
