// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why these operators refuse a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct not_a_random_key {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "a random key is two words, a u32<2>. Make one with random_key(x, seed) or fold_in, take a row of "
                  "split_key, or give the function an argument of that type.");
  };
};
template <class... Details> struct random_bits_are_words {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "random_bits: the elements are words, u32 or i32. Use uniform, normal or bernoulli for other types.");
  };
};
template <class... Details> struct not_one_integer {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "fold_in: the number must be an integer, or a tensor i32<> or u32<>. Fold several in one after the "
                  "other.");
  };
};
template <class... Details> struct range_is_empty {
  template <class Where> struct raise {
    static_assert(Where::ok, "uniform: the lower bound must be less than the upper one. Swap them.");
  };
};
template <class... Details> struct not_a_probability {
  template <class Where> struct raise {
    static_assert(Where::ok, "bernoulli, dropout: a probability is a number from 0 to 1.");
  };
};

}  // namespace espalier::why
