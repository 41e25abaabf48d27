// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why these operators refuse a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct window_is_larger_than_input {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "along this dimension the window is larger than the padded input, so that it fits nowhere. Use a "
                  "smaller filter or less dilation, or pad more.");
  };
};
template <class... Details> struct step_is_not_positive {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "strides and dilations are at least 1. A stride of 1 moves the window by one element, a dilation of 1 "
        "has no gaps.");
  };
};
template <class... Details> struct groups_do_not_divide {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "convolution: the number of groups must divide the input's channels and the filter's features. Groups "
        "as many as channels give a depthwise convolution.");
  };
};
template <class... Details> struct batch_groups_do_not_divide {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "convolution: the number of batch groups must divide the input's batch, its first dimension, and the "
                  "filter's features; and there can't be feature groups as well.");
  };
};
template <class... Details> struct channels_differ {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "convolution: the last dimension of the input must be the last but one of the filter times the number "
        "of groups. Inputs are [n, spatial ..., channels], filters [taps ..., channels of a group, features].");
  };
};

}  // namespace espalier::why
