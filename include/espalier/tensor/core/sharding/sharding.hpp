// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/mesh/mesh.hpp>
#include <espalier/tensor/core/shape/extents.hpp>

#include <cstdint>

namespace espalier {

/// The layout of one tensor on a mesh: for each dimension the ordered axes that split it (major to minor), and for the
/// tensor as a whole the axes it must stay replicated on and the axes on which it is a partial. An axis appears at most
/// once in all of these.
struct sharding {
  int rank = 0;
  axis_list dim[max_rank]{};
  /// Bit per dimension: propagation may refine it; and `decided_early`.
  std::uint32_t open = 0;
  /// Axes propagation must not use on this tensor.
  axis_mask replicated = 0;
  /// Axes on which each device holds a term of a sum that is still to be reduced.
  axis_mask unreduced = 0;

  /// The flag in `open` of a value that is split by annotations of an earlier priority than the last: no pass may lay
  /// it out in another way only because less moves then.
  static constexpr std::uint32_t decided_early = 1U << 31U;

  [[nodiscard]] constexpr bool is_open(int d) const { return (open >> static_cast<unsigned>(d) & 1U) != 0; }
  /// All axes that split some dimension.
  [[nodiscard]] constexpr axis_mask tiled() const {
    axis_mask result = 0;
    for (int d = 0; d < rank; ++d) result |= dim[d].mask();
    return result;
  }
  /// The same placement: flags that only guide propagation do not count.
  [[nodiscard]] constexpr bool same_layout(const sharding& other) const {
    if (rank != other.rank || unreduced != other.unreduced) return false;
    for (int d = 0; d < rank; ++d) {
      if (!(dim[d] == other.dim[d])) return false;
    }
    return true;
  }
  [[nodiscard]] static constexpr sharding all_open(int rank) {
    sharding result;
    result.rank = rank;
    result.open = (1U << static_cast<unsigned>(rank)) - 1U;
    return result;
  }
  [[nodiscard]] static constexpr sharding whole(int rank);
};

namespace detail {
/// An empty sharding to copy: a copy is a single step of a constant evaluation, a construction takes dozens.
inline constexpr sharding empty_sharding = [] {
  sharding result;
  write_each(&result.dim[0], max_rank);
  return result;
}();
}  // namespace detail

constexpr sharding sharding::whole(int rank) {
  sharding result = detail::empty_sharding;
  result.rank = rank;
  return result;
}

/// A whole tensor's extents and how they are placed on the mesh.
struct layout {
  extents shape;
  sharding placement;
  /// In a partitioned program: the user asked for it, inside of a loop, and no pass may change it.
  bool is_fixed = false;
  /// In a traced program, of an annotation: completion passes it on after those of lower numbers.
  std::uint8_t priority = 0;
};

/// The extent of every device's buffer for one dimension. Splitting is nested: each axis cuts the chunk of the axis
/// before it into equal parts, rounded up, so that gathering a minor axis gives exactly the major axis's chunks.
/// @post no device's interval is longer, and that of the first device is as long
[[nodiscard]] constexpr std::int64_t local_extent(const mesh_shape& mesh, std::int64_t extent, axis_list axes) {
  for (std::uint32_t rest = axes.code(); rest != 0; rest >>= 4U)
    extent = ceil_div(extent, mesh.size[(rest & 15U) - 1U]);
  return extent;
}

namespace detail {
/// Whether one tensor may be laid out in both ways.
[[nodiscard]] constexpr bool compatible(const sharding& a, const sharding& b) {
  if (a.unreduced != b.unreduced) return false;
  for (int d = 0; d < a.rank; ++d) {
    const bool a_longer = a.dim[d].size() >= b.dim[d].size();
    const axis_list longer = a_longer ? a.dim[d] : b.dim[d];
    const axis_list shorter = a_longer ? b.dim[d] : a.dim[d];
    if (!longer.starts_with(shorter)) return false;
    if (!(longer == shorter) && !(a_longer ? b : a).is_open(d)) return false;
  }
  return true;
}
}  // namespace detail

/// The part of one dimension that a device holds, in elements of the whole dimension.
struct interval {
  std::int64_t start = 0;
  std::int64_t size = 0;
};

/// Returns the start of `device`'s shard of a dimension and the number of real elements in it (possibly none).
/// @post the intervals by position follow one another from 0 to extent
[[nodiscard]] constexpr interval local_interval(const mesh_shape& mesh, std::int64_t extent, axis_list axes,
                                                int device) {
  interval result{0, extent};
  std::int64_t chunk = extent;
  for (int i = 0; i < axes.size(); ++i) {
    chunk = ceil_div(chunk, mesh.size[axes[i]]);
    const std::int64_t skipped = detail::smaller_of(mesh.coordinate(device, axes[i]) * chunk, result.size);
    result.start += skipped;
    result.size = detail::smaller_of(chunk, result.size - skipped);
  }
  return result;
}

/// Whether every device holds the same number of elements of a dimension split by `axes`.
[[nodiscard]] constexpr bool divides_evenly(const mesh_shape& mesh, std::int64_t extent, axis_list axes) {
  return extent % mesh.parts(axes) == 0;
}

/// The shape of every device's buffer.
[[nodiscard]] constexpr extents local_shape(const mesh_shape& mesh, const extents& shape, const sharding& placement) {
  extents result = shape;
  for (int d = 0; d < shape.rank; ++d) {
    if (!placement.dim[d].empty()) result[d] = local_extent(mesh, shape[d], placement.dim[d]);
  }
  return result;
}

}  // namespace espalier
