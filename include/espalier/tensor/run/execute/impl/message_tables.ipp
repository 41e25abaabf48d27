// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The compiled half of message_tables.hpp.
#include <espalier/tensor/run/execute/message_tables.hpp>

#if defined(ESPALIER_COMPILED)

namespace espalier::detail {

ESPALIER_INLINE transfer_functions all_transfers() { return transfers_of_kinds<transfer_kinds::all()>(); }

}  // namespace espalier::detail

#endif
