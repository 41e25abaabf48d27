// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why these operators refuse a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct reshape_size_mismatch {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "reshape: the new shape holds another number of elements. Choose extents with the same "
                  "product.");
  };
};
template <class... Details> struct reshape_infers_several {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "reshape: -1 is there several times, and only one extent can follow from the others. Write the "
                  "others as numbers: reshape<-1, 8>(x).");
  };
};
template <class... Details> struct reshape_does_not_divide {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "reshape: the product of the other extents does not divide the number of elements, so that -1 stands "
                  "for no whole number. Choose extents that divide it.");
  };
};

}  // namespace espalier::why
