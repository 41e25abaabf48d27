// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "made_up.hpp"

// expect(CASE_deep): too deep
#if defined(CASE_deep)
constexpr int value = made_up::too_deep<9>();
#endif
