// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/run/execute/array.hpp>
#include <espalier/tensor/run/execute/reduce_terms.hpp>

#include <vector>

namespace espalier {

namespace detail {

/// Gathers any tensor for `gather`: one whole copy for each device of this process.
[[nodiscard]] std::vector<shared_buffer> gather_shards(world& where, const any_array& array, source_line line);

}  // namespace detail

/// The whole tensor, row-major, on every process; of partial sums (`unreduced`) the sums. Collective: all ranks call
/// it, and one that does not come is named, with the line of the call, after `ESPALIER_DEADLINE_SECONDS`.
///
/// Errors: `argument_error` if the array is empty, of another world or donated to a call whose result is another array.
template <class Tensor>
[[nodiscard]] std::vector<storage_t<Tensor::type>> gather(world& where, const sharded_array<Tensor>& array,
                                                          source_line line = source_line::current()) {
  using element = storage_t<Tensor::type>;
  if (!array.empty() && array.placed().placement.unreduced != 0) {
    return gather(where, detail::without_partial_sums(where, array, line), line);
  }
  const std::vector<shared_buffer> whole = detail::gather_shards(where, array, line);
  // Through plain memory: a vector<bool> has none.
  const auto* const first = static_cast<const element*>(whole.front().data());
  return std::vector<element>(first, first + Tensor::shape.elements());
}

}  // namespace espalier

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/execute/impl/gather.ipp>
#endif
