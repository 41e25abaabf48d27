// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/ops/activation.hpp>
#include <espalier/ops/add_einsum.hpp>
#include <espalier/ops/again.hpp>
#include <espalier/ops/argument.hpp>
#include <espalier/ops/arithmetic.hpp>
#include <espalier/ops/bitwise.hpp>
#include <espalier/ops/compare.hpp>
#include <espalier/ops/concat.hpp>
#include <espalier/ops/convert.hpp>
#include <espalier/ops/convolution.hpp>
#include <espalier/ops/cumulate.hpp>
#include <espalier/ops/dimensions.hpp>
#include <espalier/ops/dynamic_slice.hpp>
#include <espalier/ops/einsum.hpp>
#include <espalier/ops/error_function.hpp>
#include <espalier/ops/exponential.hpp>
#include <espalier/ops/further_result.hpp>
#include <espalier/ops/gather.hpp>
#include <espalier/ops/iota.hpp>
#include <espalier/ops/look.hpp>
#include <espalier/ops/magnitude.hpp>
#include <espalier/ops/pooling.hpp>
#include <espalier/ops/random.hpp>
#include <espalier/ops/rearrange.hpp>
#include <espalier/ops/reduce.hpp>
#include <espalier/ops/rounding.hpp>
#include <espalier/ops/scan.hpp>
#include <espalier/ops/search.hpp>
#include <espalier/ops/shard.hpp>
#include <espalier/ops/slice.hpp>
#include <espalier/ops/softmax.hpp>
#include <espalier/ops/table.hpp>
#include <espalier/ops/top_k.hpp>
#include <espalier/ops/total_order.hpp>
#include <espalier/ops/transpose.hpp>
#include <espalier/ops/trigonometric.hpp>
