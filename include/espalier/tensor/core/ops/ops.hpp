// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/core/ops/activation.hpp>
#include <espalier/tensor/core/ops/add_einsum.hpp>
#include <espalier/tensor/core/ops/again.hpp>
#include <espalier/tensor/core/ops/argument.hpp>
#include <espalier/tensor/core/ops/arithmetic.hpp>
#include <espalier/tensor/core/ops/bitwise.hpp>
#include <espalier/tensor/core/ops/branch.hpp>
#include <espalier/tensor/core/ops/compare.hpp>
#include <espalier/tensor/core/ops/concat.hpp>
#include <espalier/tensor/core/ops/convert.hpp>
#include <espalier/tensor/core/ops/convolution.hpp>
#include <espalier/tensor/core/ops/cumulate.hpp>
#include <espalier/tensor/core/ops/dimensions.hpp>
#include <espalier/tensor/core/ops/dynamic_slice.hpp>
#include <espalier/tensor/core/ops/einsum.hpp>
#include <espalier/tensor/core/ops/error_function.hpp>
#include <espalier/tensor/core/ops/exponential.hpp>
#include <espalier/tensor/core/ops/further_result.hpp>
#include <espalier/tensor/core/ops/gather.hpp>
#include <espalier/tensor/core/ops/iota.hpp>
#include <espalier/tensor/core/ops/look.hpp>
#include <espalier/tensor/core/ops/magnitude.hpp>
#include <espalier/tensor/core/ops/pooling.hpp>
#include <espalier/tensor/core/ops/random.hpp>
#include <espalier/tensor/core/ops/rearrange.hpp>
#include <espalier/tensor/core/ops/reduce.hpp>
#include <espalier/tensor/core/ops/rounding.hpp>
#include <espalier/tensor/core/ops/scan.hpp>
#include <espalier/tensor/core/ops/search.hpp>
#include <espalier/tensor/core/ops/shard.hpp>
#include <espalier/tensor/core/ops/shard_alike.hpp>
#include <espalier/tensor/core/ops/slice.hpp>
#include <espalier/tensor/core/ops/softmax.hpp>
#include <espalier/tensor/core/ops/table.hpp>
#include <espalier/tensor/core/ops/top_k.hpp>
#include <espalier/tensor/core/ops/total_order.hpp>
#include <espalier/tensor/core/ops/transpose.hpp>
#include <espalier/tensor/core/ops/trigonometric.hpp>
#include <espalier/tensor/core/ops/while_loop.hpp>
