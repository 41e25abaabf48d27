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

  static constexpr std::int64_t block_down = 64;
  static constexpr std::int64_t block_across = 64;
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

/// A rectangle of a plane: squares, then what they leave over.
template <class T>
void transpose_block(const T* from, std::int64_t from_row, T* to, std::int64_t to_row, std::int64_t down,
                     std::int64_t across) {
  constexpr int side = tile_side<typename word<static_cast<int>(sizeof(T))>::type>;
  const std::int64_t whole_down = down / side * side;
  const std::int64_t whole_across = across / side * side;
  for (std::int64_t a = 0; a < whole_across; a += side) {
    for (std::int64_t d = 0; d < whole_down; d += side) {
      transpose_square(from + a * from_row + d, from_row, to + d * to_row + a, to_row,
                       std::make_index_sequence<static_cast<std::size_t>(side)>{});
    }
  }
  for (std::int64_t d = 0; d < down; ++d) {
    for (std::int64_t a = d < whole_down ? whole_across : 0; a < across; ++a) to[d * to_row + a] = from[a * from_row + d];
  }
}

template <class T> void transpose_planes(const transpose_plan& plan, const T* from, T* to) {
  const std::int64_t down = plan.blocks_down();
  const std::int64_t across = plan.blocks_across();
  const std::int64_t blocks = plan.loops.iterations() * down * across;
  const std::int64_t elements = plan.loops.iterations() * plan.down.extent * plan.across.extent;
  parallel_ranges(blocks, elements, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const nest_walker at(plan.loops, i / (down * across));
      const std::int64_t d = i / across % down * transpose_plan::block_down;
      const std::int64_t a = i % across * transpose_plan::block_across;
      transpose_block(from + (*at).from + a * plan.across.from + d, plan.across.from, to + (*at).to + d * plan.down.to + a,
                      plan.down.to, std::min(transpose_plan::block_down, plan.down.extent - d),
                      std::min(transpose_plan::block_across, plan.across.extent - a));
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
