// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace espalier::comm::detail {

/// How many rounds `players` need for each to meet each once.
[[nodiscard]] inline int tournament_rounds(int players) { return players < 2 ? 0 : players - 1 + players % 2; }

/// Returns the opponent of a player in a round, in which each player meets at most one; -1: none. By the circle method.
[[nodiscard]] inline int opponent(int players, int round, int player) {
  const int even = players + players % 2;
  const int circle = even - 1;  // the last player stays where it is, the others turn
  int other = 0;
  if (player == circle) {
    // The player p with 2 p = round (mod circle), which is odd, so that 2 has an inverse.
    other = round % 2 == 0 ? round / 2 : (round + circle) / 2;
  } else {
    other = ((round - player) % circle + circle) % circle;
    if (other == player) other = circle;
  }
  return other < players ? other : -1;
}

}  // namespace espalier::comm::detail
