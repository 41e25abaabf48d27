// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/diagnostics/source_line.hpp>
#include <espalier/tensor/run/execute/array.hpp>
#include <espalier/tensor/run/execute/reduce_terms.hpp>

namespace espalier {

namespace detail {

/// Fills `into`, of the same type and shape, on the same devices. @pre `from` has no partial sums
void reshard_array(world& where, const any_array& from, const any_array& into, source_line line);

}  // namespace detail

/// Copies the elements of an array, or of a tree of arrays, into one that is laid out in another way: for another
/// program, or for another mesh of the same devices. Each device receives the elements that it lacks and nothing else,
/// in one exchange as in a program; no device holds the whole tensor. Collective: all ranks call it.
///
///     ep::world flat(argc, argv, ep::mesh<data>{}), grid(argc, argv, ep::mesh<rows, columns>{});
///     auto w = serve.argument<0>();               // as the program on `grid` wants it
///     ep::reshard(flat, trained.weights, w);      // f32[1024@data, 256] -> f32[1024@rows, 256@columns]
///
/// Device k of one mesh is device k of the other. `where` is the world of either. Partial sums are carried out first.
/// Errors: `argument_error` if an array is empty, was donated, or lies on other devices.
template <class Arrays>
void reshard(world& where, const Arrays& from, const Arrays& into, source_line line = source_line::current()) {
  detail::for_each_pair(from, into, [&](const auto& given, const auto& wanted) {
    if (!given.empty() && given.placed().placement.unreduced != 0) {
      detail::reshard_array(where, detail::without_partial_sums(where, given, line), wanted, line);
    } else {
      detail::reshard_array(where, given, wanted, line);
    }
  });
}

}  // namespace espalier

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/execute/impl/reshard.ipp>
#endif
