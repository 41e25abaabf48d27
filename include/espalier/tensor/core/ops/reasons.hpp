// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// All reasons of operators. Headers that users include have it first: a compiler lists the way to a reason that it
// reports, and this one is short.
#include <espalier/tensor/core/ops/reasons/bitwise.hpp>
#include <espalier/tensor/core/ops/reasons/compare.hpp>
#include <espalier/tensor/core/ops/reasons/concat.hpp>
#include <espalier/tensor/core/ops/reasons/convolution.hpp>
#include <espalier/tensor/core/ops/reasons/dimensions.hpp>
#include <espalier/tensor/core/ops/reasons/dynamic_slice.hpp>
#include <espalier/tensor/core/ops/reasons/einsum.hpp>
#include <espalier/tensor/core/ops/reasons/gather.hpp>
#include <espalier/tensor/core/ops/reasons/random.hpp>
#include <espalier/tensor/core/ops/reasons/rearrange.hpp>
#include <espalier/tensor/core/ops/reasons/reshape.hpp>
#include <espalier/tensor/core/ops/reasons/scan.hpp>
#include <espalier/tensor/core/ops/reasons/slice.hpp>
#include <espalier/tensor/core/ops/reasons/table.hpp>
#include <espalier/tensor/core/ops/reasons/top_k.hpp>
#include <espalier/tensor/core/ops/reasons/transpose.hpp>
