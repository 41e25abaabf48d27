// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/shard_alike.hpp>
#include <espalier/tensor/run/kernels/reshape.hpp>

namespace espalier::kernels {

template <> struct kernel<&ops::shard_like> : detail::copy_kernel {};
template <> struct kernel<&ops::shard_as> : detail::copy_kernel {};
template <> struct block_kernel<&ops::shard_like> : detail::copy_block {};
template <> struct block_kernel<&ops::shard_as> : detail::copy_block {};

}  // namespace espalier::kernels
