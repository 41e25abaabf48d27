// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/trees.hpp>
#include <espalier/tensor/run/execute/array.hpp>
#include <espalier/tensor/run/execute/together.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>

/// Functions of trees of arrays, at run time: what nn/trees.hpp has inside programs.
namespace espalier {

namespace detail {

template <class Leaves> inline constexpr bool are_all_arrays = false;
template <class... Leaves>
inline constexpr bool are_all_arrays<std::tuple<const Leaves*...>> = (... && std::is_base_of_v<any_array, Leaves>);
/// An array, a tree of arrays, or `results` of these.
template <class T>
concept ArrayTree = are_all_arrays<leaf_tuple<T>>;

/// Whether a device is the one that counts a shard's elements: copies, along other axes than those that split the
/// array, do not.
[[nodiscard]] inline bool counts_shard(const any_array& array, int local) {
  const axis_mask splits = array.placed().placement.tiled();
  for (int axis = 0; axis < array.mesh().rank; ++axis) {
    const bool copies = (splits >> static_cast<unsigned>(axis) & 1U) == 0;
    if (copies && array.mesh().coordinate(array.device(local), axis) != 0) return false;
  }
  return true;
}

inline void require_values(const world& where, const any_array& array, const char* what) {
  require_in_world(where, array, what);
  if (array.placed().placement.unreduced == 0) return;
  throw argument_error(std::string(what) + " is an array of sums that are not carried out: " + array.text() +
                       ". Have a program return it without unreduced<...>.");
}

/// Calls f(element as double) for every element of the tree that this process counts.
template <class Tree, class F>
void for_each_counted(const world& where, const Tree& tree, const char* what, const F& f) {
  for_each_leaf(tree, [&](const auto& array) {
    require_values(where, array, what);
    using element = typename std::remove_cvref_t<decltype(array)>::value_type;
    for (int k = 0; k < array.local_count(); ++k) {
      if (!counts_shard(array, k)) continue;
      for (shard_rows row(array, k); row.any; row.next()) {
        const element* const first = array.data(k) + row.at;
        for (std::int64_t i = 0; i < row.length; ++i)
          f(static_cast<double>(static_cast<computed_t<element>>(first[i])));
      }
    }
  });
}

}  // namespace detail

/// New arrays of zeros, laid out as those of `tree`: `auto sum = zeros_like(state.parameters);`
/// Errors: `argument_error` if an array is empty.
template <detail::ArrayTree Tree> [[nodiscard]] Tree zeros_like(const Tree& tree) {
  Tree made = tree;
  detail::for_each_leaf(made, [](auto& array) {
    if (array.empty()) {
      throw argument_error("zeros_like: an array of the tree is empty. Make it with runner::argument<I>().");
    }
    for (shared_buffer& shard : detail::array_memory::shards(array)) shard = shared_buffer(shard.bytes());
  });
  return made;
}

/// The square root of the sum of the squares of all elements of all arrays, each counted once however many devices have
/// a copy: added up in double precision, the same number on every process. Collective: all ranks call it.
/// Errors: `argument_error` if an array is empty, of another world, or of sums that are not carried out.
template <detail::ArrayTree Tree> [[nodiscard]] double global_norm(world& where, const Tree& tree) {
  double mine = 0;
  together(where, [&] {
    detail::for_each_counted(where, tree, "global_norm: a leaf of the tree", [&](double x) { mine += x * x; });
  });
  double sum = 0;
  for (const std::int64_t part : detail::values_of_all_processes(where, std::bit_cast<std::int64_t>(mine))) {
    sum += std::bit_cast<double>(part);
  }
  return std::sqrt(sum);
}

/// Scales the arrays, where they are, so that their `global_norm` is at most `most`, and returns the norm that they
/// had. Each element is rounded once. Collective. Errors: as of `global_norm`.
template <detail::ArrayTree Tree> double clip_by_global_norm(world& where, const Tree& tree, double most) {
  const double norm = global_norm(where, tree);
  if (norm <= most) return norm;
  detail::for_each_leaf(tree, [&](const auto& array) {
    using element = typename std::remove_cvref_t<decltype(array)>::value_type;
    static_assert(is_floating(dtype_of<element>), "clip_by_global_norm: a leaf has no floating-point elements.");
    array.for_each([&](element& x, std::int64_t /*index*/) {
      using computed = computed_t<element>;
      x = static_cast<element>(static_cast<computed>(static_cast<double>(static_cast<computed>(x)) * (most / norm)));
    });
  });
  return norm;
}

/// Whether no element of any array is infinite or NaN: the same on every process. Collective. Errors: as of
/// `global_norm`.
template <detail::ArrayTree Tree> [[nodiscard]] bool all_finite(world& where, const Tree& tree) {
  std::int64_t others = 0;
  together(where, [&] {
    detail::for_each_counted(where, tree, "all_finite: a leaf of the tree",
                             [&](double x) { others += std::isfinite(x) ? 0 : 1; });
  });
  const auto all = detail::values_of_all_processes(where, others);
  return std::all_of(all.begin(), all.end(), [](std::int64_t count) { return count == 0; });
}

}  // namespace espalier
