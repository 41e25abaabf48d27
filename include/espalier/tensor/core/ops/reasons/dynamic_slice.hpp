// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why these operators refuse a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct start_is_not_an_integer_scalar {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "dynamic_slice, dynamic_update_slice: a start is one integer, a scalar like i32<>. Use "
                  "convert<dtype::i32>; of a tensor of starts, reshape<> one element to a scalar.");
  };
};
template <class... Details> struct slice_does_not_fit {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "dynamic_slice, dynamic_update_slice: along this dimension the slice is larger than the tensor that "
                  "it is cut from or written into, or empty. Choose a size from 1 to the tensor's extent.");
  };
};
template <class... Details> struct update_does_not_fit {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "dynamic_update_slice: the update needs the tensor's extents in all dimensions but those that have a "
                  "start, which differ. Reshape it, or name the dimension and give its start.");
  };
};

}  // namespace espalier::why
