// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

namespace espalier {

/// Everything by which ranks or devices pass data on, or make sure of each other: instructions of a partitioned
/// program, calls of `comm::collectives`, what a communicator does. A new one is an enumerator and a row of
/// `collective_table`, from which passes and schedules learn what they ask, and whatever carries it out: nothing else
/// lists the kinds.
enum class collective : std::uint8_t {
  // Changes of a tensor's placement (GSPMD section 4.5). The first cuts out what a device has already: no data
  // moves.
  local_slice,
  all_gather,
  all_to_all,
  collective_permute,
  reduce_scatter,
  all_reduce,
  /// Changes any placement into any other: every device receives exactly the elements that it lacks, at most one box
  /// from each other device.
  exchange,

  // Collectives of communicators alone.
  broadcast,
  reduce,
  gather,
  scatter,
  /// A reduce-scatter of boxes: each rank combines what the others have of its own.
  reduce_exchange,
  barrier,
};

/// Which part of the array that a call is about a rank has, before it or after it.
enum class array_share : std::uint8_t {
  none,           ///< the kind is no call of all ranks with counts
  whole,          ///< every rank all of it
  whole_at_root,  ///< the root all of it, others nothing
  block,          ///< every rank a block of it
  cells,          ///< rank r of an array of ranks x ranks cells row r before, column r after
};

/// The properties of a kind of collective.
struct collective_facts {
  collective kind;
  /// The name in errors, tables and docs.
  const char* name;
  /// Whether it is an instruction of partitioned programs, whether devices send each other something by it, and whether
  /// it can bring what windows need.
  bool is_instruction = false;
  bool moves = false;
  bool has_windows = false;
  /// Whether what several ranks have is combined.
  bool reduces = false;
  /// The shares of the array that ranks hold before and after a call that all of them make.
  array_share before = array_share::none;
  array_share after = array_share::none;
  /// Returns the bytes that each device of a group of `n` sends for an instruction if its buffer had `local` bytes
  /// before. Null if these two numbers do not determine it.
  std::int64_t (*sent)(std::int64_t local, std::int64_t n) = nullptr;
};

namespace detail {
[[nodiscard]] constexpr std::int64_t sent_nothing(std::int64_t /*local*/, std::int64_t /*n*/) { return 0; }
[[nodiscard]] constexpr std::int64_t sent_to_all(std::int64_t local, std::int64_t n) { return local * (n - 1); }
[[nodiscard]] constexpr std::int64_t sent_to_one(std::int64_t local, std::int64_t /*n*/) { return local; }
[[nodiscard]] constexpr std::int64_t sent_but_own(std::int64_t local, std::int64_t n) {
  return (local * (n - 1) + n - 1) / n;
}
[[nodiscard]] constexpr std::int64_t sent_but_own_twice(std::int64_t local, std::int64_t n) {
  return (2 * local * (n - 1) + n - 1) / n;
}
}  // namespace detail

inline constexpr collective_facts collective_table[]{
    {.kind = collective::local_slice,
     .name = "local_slice",
     .is_instruction = true,
     .has_windows = true,
     .sent = detail::sent_nothing},
    {.kind = collective::all_gather,
     .name = "all_gather",
     .is_instruction = true,
     .moves = true,
     .before = array_share::block,
     .after = array_share::whole,
     .sent = detail::sent_to_all},
    {.kind = collective::all_to_all,
     .name = "all_to_all",
     .is_instruction = true,
     .moves = true,
     .before = array_share::cells,
     .after = array_share::cells,
     .sent = detail::sent_but_own},
    {.kind = collective::collective_permute,
     .name = "collective_permute",
     .is_instruction = true,
     .moves = true,
     .sent = detail::sent_to_one},
    {.kind = collective::reduce_scatter,
     .name = "reduce_scatter",
     .is_instruction = true,
     .moves = true,
     .reduces = true,
     .before = array_share::whole,
     .after = array_share::block,
     .sent = detail::sent_but_own},
    {.kind = collective::all_reduce,
     .name = "all_reduce",
     .is_instruction = true,
     .moves = true,
     .reduces = true,
     .before = array_share::whole,
     .after = array_share::whole,
     .sent = detail::sent_but_own_twice},
    {.kind = collective::exchange, .name = "exchange", .is_instruction = true, .moves = true, .has_windows = true},
    {.kind = collective::broadcast,
     .name = "broadcast",
     .before = array_share::whole_at_root,
     .after = array_share::whole},
    {.kind = collective::reduce,
     .name = "reduce",
     .reduces = true,
     .before = array_share::whole,
     .after = array_share::whole_at_root},
    {.kind = collective::gather, .name = "gather", .before = array_share::block, .after = array_share::whole_at_root},
    {.kind = collective::scatter, .name = "scatter", .before = array_share::whole_at_root, .after = array_share::block},
    {.kind = collective::reduce_exchange, .name = "reduce_exchange", .reduces = true},
    {.kind = collective::barrier, .name = "barrier"},
};
inline constexpr int collective_kinds = static_cast<int>(sizeof(collective_table) / sizeof(collective_table[0]));

[[nodiscard]] constexpr const collective_facts& facts_of(collective kind) {
  return collective_table[static_cast<int>(kind)];
}

/// Whether devices of a partitioned program send each other something by it.
[[nodiscard]] constexpr bool moves_tensors(collective kind) { return facts_of(kind).moves; }

/// The name used in errors, tables and docs.
[[nodiscard]] constexpr const char* name_of(collective kind) { return facts_of(kind).name; }

}  // namespace espalier
