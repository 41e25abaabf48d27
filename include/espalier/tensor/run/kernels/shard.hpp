// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/argument.hpp>
#include <espalier/tensor/core/ops/shard.hpp>
#include <espalier/tensor/run/kernels/reshape.hpp>

namespace espalier::kernels {

/// These kernels copy: on one device a layout is only a promise and changes no value.
template <> struct kernel<&ops::shard> : detail::copy_kernel {};
template <> struct kernel<&ops::shard_value> : detail::copy_kernel {};
template <> struct kernel<&ops::reshard> : detail::copy_kernel {};
template <> struct kernel<&ops::match> : detail::copy_kernel {};
template <> struct kernel<&ops::result> : detail::copy_kernel {};
template <> struct block_kernel<&ops::shard> : detail::copy_block {};
template <> struct block_kernel<&ops::shard_value> : detail::copy_block {};
template <> struct block_kernel<&ops::reshard> : detail::copy_block {};
template <> struct block_kernel<&ops::match> : detail::copy_block {};
template <> struct block_kernel<&ops::result> : detail::copy_block {};

}  // namespace espalier::kernels
