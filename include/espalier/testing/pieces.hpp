// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/schedule/call.hpp>
#include <espalier/config.hpp>

#include <cstdint>
#include <vector>

namespace espalier::comm {

/// A run of elements on a rank. `contributor` is the rank whose value it is; `everyone`: all ranks' values combined.
struct piece {
  static constexpr int everyone = -1;
  location at;
  std::int64_t count = 0;
  std::int64_t element = 0;
  int contributor = everyone;
};

/// The pieces that `rank` holds before the collective.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::vector<piece> pieces_held(const collective_call& call,
                                                                       const call_layout& layout, int rank) {
  std::vector<piece> pieces;
  switch (facts_of(call.kind).before) {
    case array_share::whole_at_root:
      if (rank == call.root) pieces.push_back({layout.held(rank, 0, 0), layout.total(), 0, rank});
      break;
    case array_share::whole: pieces.push_back({layout.held(rank, 0, 0), layout.total(), 0, rank}); break;
    case array_share::block:
      pieces.push_back({layout.held(rank, rank, layout.first(rank)), layout.count(rank), layout.first(rank), rank});
      break;
    case array_share::cells:
      for (int d = 0; d < call.ranks; ++d) {
        const int cell = rank * call.ranks + d;
        pieces.push_back({layout.held(rank, cell, layout.first(cell)), layout.count(cell), layout.first(cell), rank});
      }
      break;
    case array_share::none: break;
  }
  return pieces;
}

/// The pieces that `rank` holds after it.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::vector<piece> pieces_wanted(const collective_call& call,
                                                                         const call_layout& layout, int rank) {
  std::vector<piece> pieces;
  const collective_facts& facts = facts_of(call.kind);
  const bool root = rank == call.root;
  /// Whose the numbers are that do not come block by block.
  const int contributor = facts.reduces ? piece::everyone : call.root;
  switch (facts.after) {
    case array_share::whole_at_root:
    case array_share::whole:
      if (!root && facts.after == array_share::whole_at_root) break;
      if (facts.before != array_share::block) {
        pieces.push_back({layout.result(0, 0), layout.total(), 0, contributor});
        break;
      }
      for (int s = 0; s < call.ranks; ++s) {
        pieces.push_back({layout.result(s, layout.first(s)), layout.count(s), layout.first(s), s});
      }
      break;
    case array_share::block:
      if (!facts.reduces && root && call.in_place) break;
      pieces.push_back({layout.result(rank, layout.first(rank)), layout.count(rank), layout.first(rank), contributor});
      break;
    case array_share::cells:
      for (int s = 0; s < call.ranks; ++s) {
        const int cell = s * call.ranks + rank;
        pieces.push_back({layout.result(cell, layout.first(cell)), layout.count(cell), layout.first(cell), s});
      }
      break;
    case array_share::none: break;
  }
  return pieces;
}

}  // namespace espalier::comm
