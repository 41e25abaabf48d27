// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "made_up.hpp"

// kind(CASE_sizes): sizes that do not fit
// expect(CASE_sizes): the inner sizes differ
// expect(CASE_sizes, g++): required from here
// expect(CASE_sizes, clang): in instantiation of
// first(CASE_sizes): error: static.assert(ion)? failed.*inner sizes differ
// budget(CASE_sizes): 5 15
// expect(CASE_type): no_such_name
#if defined(CASE_sizes)
using product = decltype(made_up::multiply(made_up::matrix<2, 3>{}, made_up::matrix<4, 5>{}));
constexpr auto value = made_up::multiply(made_up::matrix<2, 3>{}, made_up::matrix<4, 5>{});  // here: 3 is not 4
#elif defined(CASE_type)
using unknown = made_up::no_such_name;
#else
constexpr auto value = made_up::multiply(made_up::matrix<2, 3>{}, made_up::matrix<3, 5>{});
#endif
