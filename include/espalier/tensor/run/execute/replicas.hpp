// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/function_ref.hpp>
#include <espalier/tensor/core/diagnostics/source_line.hpp>
#include <espalier/tensor/run/execute/array.hpp>
#include <espalier/tensor/run/execute/print.hpp>

#include <stdexcept>
#include <string>
#include <vector>

namespace espalier {

/// Copies of a replicated array differ between devices (`ESPALIER_CHECK=replicas`). The text names the array, the ranks
/// and the first element that differs.
struct replica_error : std::runtime_error, known_to_all_ranks {
  using std::runtime_error::runtime_error;
};

namespace detail {

/// The devices that hold the same elements of an array as `device`: those that differ from it only along these axes.
[[nodiscard]] axis_list replica_axes(const any_array& array);

/// Compares the copies of replicated arrays by their bits. Each device sends one number for each array; only of the
/// first that differs, elements too. Collective, with the same arrays on all ranks.
/// Errors: `replica_error`, with `name_of(index)` of the array, on every rank.
void compare_replicas(world& where, const std::vector<const any_array*>& all, function_ref<std::string(int)> name_of,
                      source_line line);

/// Copies the first device's part to all devices that hold the same elements. Collective.
void broadcast_replicas(world& where, const any_array& array, source_line line);

struct replica_broadcaster {
  world& where;
  source_line line;
  void operator()(const any_array& array) const { broadcast_replicas(where, array, line); }
};

}  // namespace detail

/// Makes the copies of a replicated array, or of all arrays of a tree, equal: of the devices that hold the same
/// elements the first one on the mesh sends its own to the others. Collective: all ranks call it. A sharded array
/// without copies stays as it is, and so do the terms of partial sums.
///
/// Needed only where ranks fill an array with numbers of their own, such as those of `std::random_device`.
/// `nn::initialise` draws numbers by an element's place in the whole tensor, equal on all ranks without a message.
///
///     auto w = run.argument<0>();
///     w.for_each([&](float& e, std::int64_t) { e = normal(engine_of_this_rank); });
///     ep::broadcast_from_root(world, w);
///
/// Errors: `argument_error` if an array is empty or of another world.
template <class Arrays>
void broadcast_from_root(world& where, const Arrays& arrays, source_line line = source_line::current()) {
  detail::for_each_leaf(arrays, detail::replica_broadcaster{where, line});
}

}  // namespace espalier

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/execute/impl/replicas.ipp>
#endif
