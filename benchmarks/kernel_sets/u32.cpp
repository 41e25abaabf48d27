// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "rows.hpp"

namespace espalier::benchmarks {
void measure_u32(kernel_rows& all) { measure_ops<dtype::u32>(all); }
}  // namespace espalier::benchmarks
