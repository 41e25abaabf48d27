// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The compiled half of reducer.hpp.
#include <espalier/comm/reducer.hpp>

#if defined(ESPALIER_COMPILED)

namespace espalier::comm {

ESPALIER_INLINE reducer reducer_of(dtype type, reduction kind) {
  return detail::reducer_among<detail::all_reducers>(type, kind);
}

}  // namespace espalier::comm

#endif
