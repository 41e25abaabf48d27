// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/kernels/lanes.hpp>
#include <espalier/kernels/reshape.hpp>
#include <espalier/ops/transpose.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace espalier::detail {

[[nodiscard]] constexpr run_nest transpose_nest(const extents& from, const extents& to, std::int64_t order) {
  const auto source = axis_list::from_code(static_cast<std::uint32_t>(order));
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

  // Of the shapes measured the best for tensors that are in no cache; smaller ones do not mind.
  static constexpr std::int64_t block_down = 32;
  static constexpr std::int64_t block_across = 128;
  [[nodiscard]] constexpr std::int64_t blocks_down() const { return ceil_div(down.extent, block_down); }
  [[nodiscard]] constexpr std::int64_t blocks_across() const { return ceil_div(across.extent, block_across); }
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

template <int Size> struct word;
template <> struct word<1> { using type = std::uint8_t; };
template <> struct word<2> { using type = std::uint16_t; };
template <> struct word<4> { using type = std::uint32_t; };
template <> struct word<8> { using type = std::uint64_t; };

/// The side of the square that is transposed in registers: at most 16, and one register a row.
template <class Word> inline constexpr int tile_side = std::min(16, full_lanes<Word>);

template <int Step, class V, std::size_t... Lane>
ESPALIER_ALWAYS_INLINE void exchange_lanes(V& a, V& b, std::index_sequence<Lane...>) {
  constexpr int side = static_cast<int>(sizeof...(Lane));
  const V x = a;
  const V y = b;
  a = __builtin_shufflevector(x, y, ((Lane & Step) != 0 ? side + static_cast<int>(Lane) - Step : static_cast<int>(Lane))...);
  b = __builtin_shufflevector(x, y, ((Lane & Step) != 0 ? side + static_cast<int>(Lane) : static_cast<int>(Lane) + Step)...);
}

/// One step of the transposition: of every 2 Step x 2 Step square, the off-diagonal quarters change places.
template <int Step, class V, std::size_t... Pair, std::size_t... Lane>
ESPALIER_ALWAYS_INLINE void exchange_rows(V* row, std::index_sequence<Pair...>, std::index_sequence<Lane...> all) {
  (exchange_lanes<Step>(row[Pair / Step * 2 * Step + Pair % Step], row[Pair / Step * 2 * Step + Pair % Step + Step], all),
   ...);
}

template <int Step, int Side, class V> ESPALIER_ALWAYS_INLINE void transpose_rows(V* row) {
  if constexpr (Step > 0) {
    exchange_rows<Step>(row, std::make_index_sequence<static_cast<std::size_t>(Side / 2)>{},
                        std::make_index_sequence<static_cast<std::size_t>(Side)>{});
    transpose_rows<Step / 2, Side>(row);
  }
}

template <class T, std::size_t... Row>
ESPALIER_ALWAYS_INLINE void transpose_square(const T* from, std::int64_t from_row, T* to, std::int64_t to_row,
                                             std::index_sequence<Row...>) {
  using type = typename word<static_cast<int>(sizeof(T))>::type;
  constexpr int side = static_cast<int>(sizeof...(Row));
  using vector = lanes<type, side>;
  vector row[side];
  (std::memcpy(&row[Row], from + static_cast<std::int64_t>(Row) * from_row, sizeof(vector)), ...);
  transpose_rows<side / 2, side>(&row[0]);
  (std::memcpy(static_cast<void*>(to + static_cast<std::int64_t>(Row) * to_row), &row[Row], sizeof(vector)), ...);
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

/// Both sides of a transposition walk over many rows at once, each a little: no hardware prefetcher follows that.
template <class T> ESPALIER_ALWAYS_INLINE void prefetch_square(const transposed_plane<T>& plane, int side) {
  for (int i = 0; i < side; ++i) {
    __builtin_prefetch(plane.from + i * plane.from_row, 0);
    __builtin_prefetch(plane.to + i * plane.to_row, 1);
  }
}

/// A block of a plane: squares, then what they leave over. `ahead` of its rows there are more to prefetch.
template <class T>
void transpose_block(const transposed_plane<T>& plane, std::int64_t down, std::int64_t across, std::int64_t ahead) {
  constexpr int side = tile_side<typename word<static_cast<int>(sizeof(T))>::type>;
  const std::int64_t whole_down = down / side * side;
  const std::int64_t whole_across = across / side * side;
  for (std::int64_t a = 0; a < whole_across; a += side) {
    for (std::int64_t d = 0; d < whole_down; d += side) {
      if (d + 3 * side <= ahead) prefetch_square(plane.at(d + 2 * side, a), side);
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
  constexpr std::int64_t block_down = transpose_plan::block_down;
  constexpr std::int64_t block_across = transpose_plan::block_across;
  const std::int64_t down = plan.blocks_down();
  const std::int64_t across = plan.blocks_across();
  const std::int64_t blocks = plan.loops.iterations() * down * across;
  const std::int64_t in_plane = plan.down.extent * plan.across.extent;
  const bool prefetch = in_plane * static_cast<std::int64_t>(sizeof(T)) > prefetch_above;
  parallel_ranges(blocks, plan.loops.iterations() * in_plane, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const nest_walker at(plan.loops, i / (down * across));
      const transposed_plane<T> whole{from + (*at).from, plan.across.from, to + (*at).to, plan.down.to};
      const std::int64_t d = i % down * block_down;
      const std::int64_t a = i / down % across * block_across;
      const std::int64_t left = plan.down.extent - d;
      transpose_block(whole.at(d, a), std::min(block_down, left), std::min(block_across, plan.across.extent - a),
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

template <> struct kernel<&ops::transpose> {
  static constexpr std::int64_t scratch_bytes(const kernel_key&) { return 0; }
  template <kernel_key Key> static void run(const kernel_call& call) {
    using element = storage_t<Key.type>;
    constexpr detail::run_nest nest = detail::transpose_nest(Key.operand_shape[0], Key.shape, Key.attribute[0]);
    if constexpr (nest.rank == 0 || nest.axis[nest.rank - 1].from == 1) {
      detail::copy_by<element, detail::closed(nest)>(call.operand[0], call.result);
    } else {
      detail::transpose_planes(detail::static_transpose<nest>, static_cast<const element*>(call.operand[0]),
                               static_cast<element*>(call.result));
    }
  }
};

}  // namespace espalier::kernels
