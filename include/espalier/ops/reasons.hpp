// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// All reasons of operators. Headers that users include have it first: a compiler lists the way to a reason that it
// reports, and this one is short.
#include <espalier/ops/reasons/bitwise.hpp>
#include <espalier/ops/reasons/compare.hpp>
#include <espalier/ops/reasons/concat.hpp>
#include <espalier/ops/reasons/convolution.hpp>
#include <espalier/ops/reasons/dimensions.hpp>
#include <espalier/ops/reasons/dynamic_slice.hpp>
#include <espalier/ops/reasons/einsum.hpp>
#include <espalier/ops/reasons/gather.hpp>
#include <espalier/ops/reasons/random.hpp>
#include <espalier/ops/reasons/rearrange.hpp>
#include <espalier/ops/reasons/reshape.hpp>
#include <espalier/ops/reasons/scan.hpp>
#include <espalier/ops/reasons/slice.hpp>
#include <espalier/ops/reasons/table.hpp>
#include <espalier/ops/reasons/top_k.hpp>
#include <espalier/ops/reasons/transpose.hpp>
