// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace espalier::comm {

/// Returns the cuts of `count` elements in proportion to `weights`: share i is [result[i], result[i + 1]). All cuts but
/// the last fall on multiples of `grain`.
/// @post result.front() == 0, result.back() == count, result ascends
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::vector<std::int64_t> proportional_cuts(std::int64_t count,
                                                                                    const std::vector<double>& weights,
                                                                                    std::int64_t grain = 1) {
  double total = 0;
  for (const double weight : weights) total += weight;
  std::vector<std::int64_t> cuts{0};
  cuts.reserve(weights.size() + 1);
  double before = 0;
  for (const double weight : weights) {
    before += weight;
    if (before >= total) {  // what rounding left goes to a share that has a weight
      cuts.push_back(count);
      continue;
    }
    const double exact = static_cast<double>(count) * (before / total);
    const std::int64_t nearest = (static_cast<std::int64_t>(2 * exact / static_cast<double>(grain)) + 1) / 2 * grain;
    cuts.push_back(std::clamp(nearest, cuts.back(), count));
  }
  cuts.back() = count;
  return cuts;
}

/// How one share is cut into messages.
struct chunk_grid {
  std::int64_t chunks = 0;
  std::int64_t chunk = 0;
  std::int64_t cut = 0;  ///< elements by which the last one is shorter
};

/// Returns as few chunks of at most `most` elements as possible, all equal but the last.
/// @post chunks * chunk - cut == count, 0 <= cut < chunk
[[nodiscard]] constexpr chunk_grid equal_chunks(std::int64_t count, std::int64_t most, std::int64_t grain = 1) {
  if (count <= 0) return {};
  if (most < 1) throw std::invalid_argument("a chunk needs at least one element");
  const std::int64_t pieces = (count - 1) / most + 1;
  std::int64_t chunk = (count - 1) / pieces + 1;
  if (grain > 1 && chunk % grain != 0 && chunk / grain * grain + grain <= most) chunk = (chunk / grain + 1) * grain;
  const std::int64_t chunks = (count - 1) / chunk + 1;
  return {chunks, chunk, chunks * chunk - count};
}

}  // namespace espalier::comm
