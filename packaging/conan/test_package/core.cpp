// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/core.hpp>

#include <cstdio>

static_assert(espalier::size_of(espalier::dtype_of<espalier::bfloat16>) == 2);

int main() {
  std::printf("espalier %d.%d.%d\n", ESPALIER_VERSION_MAJOR, ESPALIER_VERSION_MINOR, ESPALIER_VERSION_PATCH);
}
