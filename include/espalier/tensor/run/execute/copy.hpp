// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/run/execute/array.hpp>

namespace espalier {

namespace detail {

/// Gives an array memory of its own, with the elements that it had.
void detach(any_array& array);

struct array_detacher {
  void operator()(any_array& array) const { detach(array); }
};

}  // namespace detail

/// An array, a tree of arrays or the results of a program with memory of its own and the same elements and layout:
/// nothing that happens to the given one changes it. Every process copies its own shards, and none waits for another.
///
///     const auto best = ep::copy(state);   // `best = state` shares memory until a call would change it
///
/// Errors: `argument_error` if an array was donated, and another has taken its memory.
template <class Arrays> [[nodiscard]] Arrays copy(const Arrays& arrays) {
  Arrays made = arrays;
  detail::for_each_leaf(made, detail::array_detacher{});
  return made;
}

}  // namespace espalier

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/execute/impl/copy.ipp>
#endif
