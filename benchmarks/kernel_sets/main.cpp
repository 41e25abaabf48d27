// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Microseconds of each op and element type on one device. `compare` builds this in two ways.

#include "rows.hpp"

int main(int argc, char** argv) {
  using namespace espalier::benchmarks;
  kernel_rows all(argc > 1 ? argv[1] : "/");
  measure_f32(all);
  measure_f64(all);
  measure_bf16(all);
  measure_f16(all);
  measure_i32(all);
  measure_i64(all);
  measure_u32(all);
  measure_i8(all);
  measure_u8(all);
  measure_boolean(all);
}
