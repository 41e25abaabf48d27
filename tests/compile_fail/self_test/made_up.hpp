// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A library of one function, for cases that show what run_case.py detects.
namespace made_up {

template <int Rows, int Columns> struct matrix {};

template <int Rows, int Inner, int OtherInner, int Columns>
constexpr matrix<Rows, Columns> multiply(matrix<Rows, Inner> /*left*/, matrix<OtherInner, Columns> /*right*/) {
  static_assert(Inner == OtherInner, "multiply: the inner sizes differ");
  return {};
}

template <int Depth> constexpr int too_deep() {
  if constexpr (Depth == 0) {
    static_assert(Depth != 0, "too deep");
    return 0;
  } else {
    return too_deep<Depth - 1>();
  }
}

}  // namespace made_up
