// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

/// Functions that the standard library has, but not for constant evaluations.
namespace espalier::detail {

/// The square root of x >= 0, by Newton's method from above.
[[nodiscard]] constexpr double square_root(double x) {
  if (x <= 0) return 0;
  double root = x > 1 ? x : 1;
  for (;;) {
    const double next = (root + x / root) / 2;
    if (next >= root) return root;
    root = next;
  }
}

/// The natural logarithm of x in (0, 2): 2 artanh((x - 1) / (x + 1)) as its series, summed from the smallest term.
[[nodiscard]] constexpr double logarithm(double x) {
  const double ratio = (x - 1) / (x + 1);
  const double square = ratio * ratio;
  double sum = 0;
  for (int power = 81; power >= 1; power -= 2) sum = sum * square + 1.0 / power;
  return 2 * ratio * sum;
}

}  // namespace espalier::detail
