// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "made_up.hpp"

// expect(CASE_sizes): the inner sizes differ
// user_line(CASE_sizes): this is not the line
constexpr int elsewhere = 0;  // this is not the line
#if defined(CASE_sizes)
constexpr auto value = made_up::multiply(made_up::matrix<2, 3>{}, made_up::matrix<4, 5>{});
#endif
