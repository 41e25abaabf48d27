// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "made_up.hpp"

// A kind of mistake has no larger budget than all cases.
// kind(CASE_deep): calls that are too deep
// budget(CASE_deep): 100 100
// user_line(CASE_deep): int value
// expect(CASE_deep): too deep
#if defined(CASE_deep)
constexpr int value = made_up::too_deep<9>();
#endif
