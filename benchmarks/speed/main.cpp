// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Operators and layers on one device, in milliseconds, on as many threads as OMP_NUM_THREADS says.

#include "measured_row.hpp"

#include <cstdlib>

int main(int argc, char** argv) {
  using namespace espalier::benchmarks;
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s elements | attention | memory | products | decode | regions | elements/exp ...\n",
                 argv[0]);
    return EXIT_FAILURE;
  }
  speed_rows rows(argv[1]);
  measure_elements(rows);
  measure_attention(rows);
  measure_attention_memory(rows);
  measure_products(rows);
  measure_decode(rows);
  measure_regions(rows);
}
