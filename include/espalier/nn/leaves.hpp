// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/graph/named_leaves.hpp>

namespace espalier::nn {

using espalier::for_each_named_leaf;
using espalier::leaf_path;

/// Members named `gain` and `bias` scale and shift what a layer computes. They start as 1 and 0, and weight decay,
/// which is for what mixes inputs, leaves them alone.
[[nodiscard]] constexpr bool is_gain_or_bias(const leaf_path& path) { return path.is("gain") || path.is("bias"); }

}  // namespace espalier::nn
