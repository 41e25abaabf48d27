// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "rows.hpp"

namespace espalier::benchmarks {
void measure_boolean(kernel_rows& all) { measure_ops<dtype::boolean>(all); }
}  // namespace espalier::benchmarks
