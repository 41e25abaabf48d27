// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/run/kernels/activation.hpp>
#include <espalier/tensor/run/kernels/add_einsum.hpp>
#include <espalier/tensor/run/kernels/again.hpp>
#include <espalier/tensor/run/kernels/arithmetic.hpp>
#include <espalier/tensor/run/kernels/bitwise.hpp>
#include <espalier/tensor/run/kernels/broadcast.hpp>
#include <espalier/tensor/run/kernels/compare.hpp>
#include <espalier/tensor/run/kernels/concat.hpp>
#include <espalier/tensor/run/kernels/constant.hpp>
#include <espalier/tensor/run/kernels/convert.hpp>
#include <espalier/tensor/run/kernels/convolution.hpp>
#include <espalier/tensor/run/kernels/cumulate.hpp>
#include <espalier/tensor/run/kernels/dynamic_slice.hpp>
#include <espalier/tensor/run/kernels/einsum.hpp>
#include <espalier/tensor/run/kernels/error_function.hpp>
#include <espalier/tensor/run/kernels/exponential.hpp>
#include <espalier/tensor/run/kernels/gather.hpp>
#include <espalier/tensor/run/kernels/iota.hpp>
#include <espalier/tensor/run/kernels/look.hpp>
#include <espalier/tensor/run/kernels/magnitude.hpp>
#include <espalier/tensor/run/kernels/mask.hpp>
#include <espalier/tensor/run/kernels/pooling.hpp>
#include <espalier/tensor/run/kernels/random.hpp>
#include <espalier/tensor/run/kernels/reduce.hpp>
#include <espalier/tensor/run/kernels/reshape.hpp>
#include <espalier/tensor/run/kernels/roll.hpp>
#include <espalier/tensor/run/kernels/rounding.hpp>
#include <espalier/tensor/run/kernels/scan.hpp>
#include <espalier/tensor/run/kernels/shard.hpp>
#include <espalier/tensor/run/kernels/shard_alike.hpp>
#include <espalier/tensor/run/kernels/slice.hpp>
#include <espalier/tensor/run/kernels/softmax.hpp>
#include <espalier/tensor/run/kernels/table.hpp>
#include <espalier/tensor/run/kernels/top_k.hpp>
#include <espalier/tensor/run/kernels/total_order.hpp>
#include <espalier/tensor/run/kernels/transpose.hpp>
#include <espalier/tensor/run/kernels/trigonometric.hpp>
