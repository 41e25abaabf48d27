// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/ops/transpose.hpp>
#include <espalier/tensor/run/kernels/reshape.hpp>
#include <espalier/tensor/run/kernels/square.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace espalier::detail {

[[nodiscard]] constexpr run_nest transpose_nest(const extents& from, const extents& to, axis_list source) {
  run_nest nest;
  for (int d = 0; d < to.rank; ++d) nest.append({to[d], stride_of(from, source[d]), stride_of(to, d)});
  return nest;
}

/// A permutation that moves the innermost dimension: loops around planes, of which `down` are neighbours in the source
/// and `across` neighbours in the result.
struct transpose_plan {
  run_nest loops;
  run_axis down;
  run_axis across;
};

/// The part of a plane that is moved at a time, in elements: 128 bytes of 512 / sizeof(T) rows. Of the shapes measured
/// the best for tensors that are in no cache; smaller ones do not mind.
template <class T> struct transpose_block_size {
  static constexpr std::int64_t line = 64 / static_cast<std::int64_t>(sizeof(T));
  static constexpr std::int64_t down = 2 * line;
  static constexpr std::int64_t across = 8 * line;
};

/// @pre the nest's last loop does not read neighbours.
[[nodiscard]] constexpr transpose_plan plan_transpose(const run_nest& nest) {
  transpose_plan plan;
  plan.across = nest.axis[nest.rank - 1];
  for (int i = 0; i + 1 < nest.rank; ++i) {
    if (nest.axis[i].from == 1) {
      plan.down = nest.axis[i];
    } else {
      plan.loops.axis[plan.loops.rank++] = nest.axis[i];
    }
  }
  return plan;
}

template <int Write, class T> ESPALIER_ALWAYS_INLINE void prefetch_rows(const T* at, std::int64_t row, int count) {
  for (int i = 0; i < count; ++i) __builtin_prefetch(at + i * row, Write);
}

/// A plane, or the rest of one: element (down, across) of the result is (across, down) of the source.
template <class T> struct transposed_plane {
  const T* from;
  std::int64_t from_row;
  T* to;
  std::int64_t to_row;

  [[nodiscard]] transposed_plane at(std::int64_t down, std::int64_t across) const {
    return {from + across * from_row + down, from_row, to + down * to_row + across, to_row};
  }
};

/// A block of a plane: squares, then what they leave over. `ahead` rows below its first there are more to prefetch:
/// both sides walk over many rows at once, each a little, which no hardware prefetcher follows.
template <class T>
void transpose_block(const transposed_plane<T>& plane, std::int64_t down, std::int64_t across, std::int64_t ahead) {
  using size = transpose_block_size<T>;
  constexpr int side = tile_side<typename word<static_cast<int>(sizeof(T))>::type>;
  const std::int64_t whole_down = down / side * side;
  const std::int64_t whole_across = across / side * side;
  for (std::int64_t a = 0; a < whole_across; a += side) {
    for (std::int64_t d = 0; d < whole_down; d += side) {
      if (d + size::down + side <= ahead) {
        const transposed_plane<T> next = plane.at(d + size::down, a);
        if (d % size::line == 0) prefetch_rows<0>(next.from, next.from_row, side);
        if (a % size::line == 0) prefetch_rows<1>(next.to, next.to_row, side);
      }
      const transposed_plane<T> square = plane.at(d, a);
      transpose_square(square.from, square.from_row, square.to, square.to_row,
                       std::make_index_sequence<static_cast<std::size_t>(side)>{});
    }
  }
  for (std::int64_t d = 0; d < down; ++d) {
    T* to = plane.to + d * plane.to_row;
    const T* from = plane.from + d;
    for (std::int64_t a = d < whole_down ? whole_across : 0; a < across; ++a) to[a] = from[a * plane.from_row];
  }
}

/// Bytes of a plane that is worth prefetching: it does not fit the second-level cache.
inline constexpr std::int64_t prefetch_above = 1 << 19;

/// Blocks are taken along the rows of the source, so that what is prefetched beyond one block is in the next.
template <class T> void transpose_planes(const transpose_plan& plan, const T* from, T* to) {
  using size = transpose_block_size<T>;
  const std::int64_t down = ceil_div(plan.down.extent, size::down);
  const std::int64_t across = ceil_div(plan.across.extent, size::across);
  const std::int64_t blocks = plan.loops.iterations() * down * across;
  const std::int64_t in_plane = plan.down.extent * plan.across.extent;
  const bool prefetch = in_plane * static_cast<std::int64_t>(sizeof(T)) > prefetch_above;
  parallel_ranges(blocks, plan.loops.iterations() * in_plane, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const nest_walker at(plan.loops, i / (down * across));
      const transposed_plane<T> whole{from + (*at).from, plan.across.from, to + (*at).to, plan.down.to};
      const std::int64_t d = i % down * size::down;
      const std::int64_t a = i / down % across * size::across;
      const std::int64_t left = plan.down.extent - d;
      transpose_block(whole.at(d, a), smaller_of(size::down, left), smaller_of(size::across, plan.across.extent - a),
                      prefetch ? left : 0);
    }
  });
}

template <run_nest Nest> inline constexpr transpose_plan static_transpose = plan_transpose(Nest);

[[nodiscard]] constexpr run_nest closed(run_nest nest) {
  nest.close();
  return nest;
}

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct kernel<&ops::transpose> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    using element = storage_t<Key.type>;
    constexpr detail::run_nest nest =
        detail::transpose_nest(Key.operand_shape[0], Key.shape, attributes_of<transpose_attributes>(Key).source);
    if constexpr (nest.rank == 0 || nest.axis[nest.rank - 1].from == 1) {
      detail::copy_by<element, detail::closed(nest)>(call.operand[0], call.result);
    } else if constexpr (shares_kernels) {
      processor_kernels().transpose[word_index(sizeof(element))](detail::static_transpose<nest>, call.operand[0],
                                                                 call.result);
    } else {
      detail::transpose_planes(detail::static_transpose<nest>, static_cast<const element*>(call.operand[0]),
                               static_cast<element*>(call.result));
    }
  }
};

}  // namespace espalier::kernels
