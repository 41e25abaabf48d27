// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "made_up.hpp"

// expect(CASE_sizes): the outer sizes differ
#if defined(CASE_sizes)
constexpr auto value = made_up::multiply(made_up::matrix<2, 3>{}, made_up::matrix<4, 5>{});
#endif
