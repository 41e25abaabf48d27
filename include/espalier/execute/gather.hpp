// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/execute/array.hpp>

#include <vector>

namespace espalier {

namespace detail {

/// What `gather` does for any tensor: the whole of it, once for each device of this process.
[[nodiscard]] std::vector<shared_buffer> gather_shards(world& where, const any_array& array);

}  // namespace detail

/// The whole tensor, row-major, on every process. Collective: all ranks call it.
///
/// Errors: `argument_error` if the array is empty or of another world.
template <class Tensor>
[[nodiscard]] std::vector<storage_t<Tensor::type>> gather(world& where, const sharded_array<Tensor>& array) {
  using element = storage_t<Tensor::type>;
  const std::vector<shared_buffer> whole = detail::gather_shards(where, array);
  // Through plain memory: a vector<bool> has none.
  const auto* const first = static_cast<const element*>(whole.front().data());
  return std::vector<element>(first, first + Tensor::shape.elements());
}

}  // namespace espalier

#if !defined(ESPALIER_COMPILED)
#include <espalier/execute/gather_compiled.hpp>
#endif
