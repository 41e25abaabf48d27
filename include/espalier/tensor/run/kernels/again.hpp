// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/again.hpp>
#include <espalier/tensor/run/kernels/reshape.hpp>

namespace espalier::kernels {

template <> struct kernel<&ops::again> : detail::copy_kernel {};

}  // namespace espalier::kernels
