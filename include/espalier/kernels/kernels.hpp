// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/kernels/activation.hpp>
#include <espalier/kernels/add_einsum.hpp>
#include <espalier/kernels/again.hpp>
#include <espalier/kernels/arithmetic.hpp>
#include <espalier/kernels/bitwise.hpp>
#include <espalier/kernels/broadcast.hpp>
#include <espalier/kernels/compare.hpp>
#include <espalier/kernels/concat.hpp>
#include <espalier/kernels/constant.hpp>
#include <espalier/kernels/convert.hpp>
#include <espalier/kernels/convolution.hpp>
#include <espalier/kernels/cumulate.hpp>
#include <espalier/kernels/dynamic_slice.hpp>
#include <espalier/kernels/einsum.hpp>
#include <espalier/kernels/error_function.hpp>
#include <espalier/kernels/exponential.hpp>
#include <espalier/kernels/gather.hpp>
#include <espalier/kernels/iota.hpp>
#include <espalier/kernels/look.hpp>
#include <espalier/kernels/magnitude.hpp>
#include <espalier/kernels/mask.hpp>
#include <espalier/kernels/pooling.hpp>
#include <espalier/kernels/random.hpp>
#include <espalier/kernels/reduce.hpp>
#include <espalier/kernels/reshape.hpp>
#include <espalier/kernels/roll.hpp>
#include <espalier/kernels/rounding.hpp>
#include <espalier/kernels/scan.hpp>
#include <espalier/kernels/shard.hpp>
#include <espalier/kernels/slice.hpp>
#include <espalier/kernels/softmax.hpp>
#include <espalier/kernels/table.hpp>
#include <espalier/kernels/top_k.hpp>
#include <espalier/kernels/total_order.hpp>
#include <espalier/kernels/transpose.hpp>
#include <espalier/kernels/trigonometric.hpp>
