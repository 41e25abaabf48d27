// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace espalier::detail {

// std::min and std::max, of numbers only: `<algorithm>`, where they are declared, is a sixth of what core.hpp costs to
// include.

template <class T> [[nodiscard]] constexpr T smaller_of(T a, T b) { return b < a ? b : a; }
template <class T> [[nodiscard]] constexpr T larger_of(T a, T b) { return a < b ? b : a; }

}  // namespace espalier::detail
