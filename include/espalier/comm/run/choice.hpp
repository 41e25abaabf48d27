// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/schedule/select.hpp>

#include <cstdint>
#include <optional>

namespace espalier::comm {

/// The method that carries out a collective. One that is no schedule needs a name here, a line in
/// `collectives::others_that_serve` and a case in `collectives::carry_out`.
enum class method : std::uint8_t {
  trees,        ///< a schedule packed for the network, in pipelined chunks
  low_latency,  ///< a schedule of few rounds, for little data
  library,      ///< the MPI library's own
  shared,       ///< shared memory, where all ranks are on one host
  single_copy   ///< the same, but what is no shared memory is copied by the operating system
};

[[nodiscard]] constexpr bool is_schedule(method how) { return how == method::trees || how == method::low_latency; }
[[nodiscard]] constexpr bool is_of_one_host(method how) { return how == method::shared || how == method::single_copy; }

[[nodiscard]] constexpr const char* name_of(method how) {
  switch (how) {
    case method::trees: return "trees";
    case method::low_latency: return "low_latency";
    case method::library: return "library";
    case method::shared: return "shared";
    case method::single_copy: return "single_copy";
  }
  return "?";
}

/// One way to carry out a collective.
struct choice {
  method how = method::library;
  std::int64_t chunk = 0;            ///< bytes of a message, of what is cut; 0: what the cost model says
  std::optional<algorithm> by = {};  ///< the algorithm of a schedule; none: the cost model's choice
  /// Blocks of `circulant_blocks`, shares of `ordered_trees`; of trees, times the usual `chunking::spare`.
  int parts = 1;

  [[nodiscard]] friend constexpr bool operator==(const choice&, const choice&) = default;
};

/// Trees, and what takes their place: ordered trees for reductions in the order of ranks, routes for exchanges.
[[nodiscard]] constexpr method method_of(algorithm how) {
  return how == algorithm::trees || how == algorithm::ordered_trees || how == algorithm::routes ? method::trees
                                                                                                : method::low_latency;
}

}  // namespace espalier::comm
