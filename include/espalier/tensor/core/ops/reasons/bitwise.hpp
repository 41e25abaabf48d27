// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why these operators refuse a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct operand_is_not_integer {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "this op works on the bits of integers. Use convert<dtype::i32> on the numbers, or "
                  "bit_cast<dtype::i32> on the bits of a float.");
  };
};
template <class... Details> struct bit_cast_size_mismatch {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "bit_cast: an element of the new type has another number of bits. Choose one of the same size, or "
                  "use convert<dtype> to keep the values.");
  };
};

}  // namespace espalier::why
