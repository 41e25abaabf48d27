// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
//
// What a user of the compile-time half alone needs: headers, C++20, no library.
#include <espalier/config.hpp>
#if __has_include(<espalier/core.hpp>)
#include <espalier/core.hpp>
#endif
#include <espalier/base/dtype.hpp>

#include <cstdio>

#if defined(_OPENMP) || defined(ESPALIER_USE_CBLAS) || defined(OMPI_MPI_H)
#error "espalier::core brought more than the compile-time half"
#endif

static_assert(espalier::size_of(espalier::dtype_of<espalier::bfloat16>) == 2);

int main() {
  std::printf("espalier %d.%d.%d\n", ESPALIER_VERSION_MAJOR, ESPALIER_VERSION_MINOR, ESPALIER_VERSION_PATCH);
}
