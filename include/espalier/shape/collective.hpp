// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

namespace espalier {

/// Everything by which ranks or devices pass data on, or make sure of each other: instructions of a partitioned
/// program, calls of `comm::collectives`, what a communicator does. A switch over it has no `default`, so that a
/// compiler names each place that a new one concerns.
enum class collective : std::uint8_t {
  // What changes the placement of a tensor (GSPMD section 4.5). The first cuts out what a device has already: no data
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

  // What only communicators do.
  broadcast,
  reduce,
  gather,
  scatter,
  /// A reduce-scatter of boxes: each rank combines what the others have of its own.
  reduce_exchange,
  barrier
};

inline constexpr int collective_kinds = static_cast<int>(collective::barrier) + 1;

/// Whether devices of a partitioned program send each other something by it.
[[nodiscard]] constexpr bool moves_tensors(collective kind) {
  switch (kind) {
    case collective::all_gather:
    case collective::all_to_all:
    case collective::collective_permute:
    case collective::reduce_scatter:
    case collective::all_reduce:
    case collective::exchange: return true;
    case collective::local_slice:
    case collective::broadcast:
    case collective::reduce:
    case collective::gather:
    case collective::scatter:
    case collective::reduce_exchange:
    case collective::barrier: return false;
  }
  return false;
}

/// The name used in errors, tables and docs.
[[nodiscard]] constexpr const char* name_of(collective kind) {
  switch (kind) {
    case collective::local_slice: return "local_slice";
    case collective::all_gather: return "all_gather";
    case collective::all_to_all: return "all_to_all";
    case collective::collective_permute: return "collective_permute";
    case collective::reduce_scatter: return "reduce_scatter";
    case collective::all_reduce: return "all_reduce";
    case collective::exchange: return "exchange";
    case collective::broadcast: return "broadcast";
    case collective::reduce: return "reduce";
    case collective::gather: return "gather";
    case collective::scatter: return "scatter";
    case collective::reduce_exchange: return "reduce_exchange";
    case collective::barrier: return "barrier";
  }
  return "?";
}

}  // namespace espalier
