// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/comm/host/space.hpp>
#include <espalier/comm/host/traffic.hpp>

#include <cstdint>
#include <optional>

namespace espalier::comm::host {

/// Sizes in bytes that decide how a call is carried out. Every rank must be given the same ones.
struct sizes {
  std::int64_t region = 640 << 10;      ///< size of one copy of the largest tier of a rank's region
  std::int64_t chunk = 128 << 10;       ///< size of a chunk at most
  std::int64_t least_chunk = 8 << 10;   ///< messages up to this size are sent as one chunk
  std::int64_t expose_from = 32 << 10;  ///< total: buffers may be read in place, or, per flow, by the operating system
  std::int64_t split_from = 64 << 10;   ///< extra bytes that a rank of many may read to save a second meeting
  std::int64_t stream_from = 32 << 20;  ///< total times ranks: results are written past the caches
  std::optional<store> stage_by = {};   ///< how chunks are written; none: the faster way, found by trials
};

[[nodiscard]] constexpr std::int64_t whole_lines(std::int64_t bytes) {
  return (bytes + line_bytes - 1) / line_bytes * line_bytes;
}

/// How a flow is cut into chunks, and where they are.
struct shape {
  const tier* of = nullptr;
  bool beside = false;      ///< the data is in the flag's own line
  std::int64_t chunk = 1;   ///< bytes
  std::int64_t stride = 0;  ///< bytes from one slot to the next
  std::int64_t rounds = 1;
  std::int64_t in_flight = 1;  ///< rounds that have room at the same time
};

/// `most`: the longest flow. `unit`: what must not be cut. `both_ways`: ranks write a chunk while they take one.
[[nodiscard]] inline shape shape_of(const region_layout& layout, const sizes& how, std::int64_t most, int fan,
                                    std::int64_t unit, bool both_ways = false) {
  shape cut;
  cut.of = &layout.of(0);
  cut.chunk = espalier::detail::larger_of<std::int64_t>(1, most);
  if (most <= flag_line::room) {
    cut.beside = true;
    return cut;
  }
  // To hand over a chunk costs as much as to copy some KiB. One way the data goes in 8 chunks; both ways, where a rank
  // has the other's to work on meanwhile, in 2 or 3 (Xeon: of 32 to 64 KiB each way 12 to 18 % less time than in 8), if
  // these leave room in the caches for what is sent and received (of 512 KiB each way 9 % less than with 128 KiB a
  // chunk).
  const std::int64_t chunks = !both_ways ? 8 : most > 4 * how.least_chunk ? 3 : 2;
  const std::int64_t longest = !both_ways ? how.chunk : espalier::detail::clamped(most / 16, how.chunk / 2, how.chunk);
  if (most > how.least_chunk) {
    cut.chunk = espalier::detail::clamped(whole_lines(most / chunks),
                                          espalier::detail::smaller_of(how.least_chunk, longest), longest);
    cut.chunk = espalier::detail::larger_of(unit, cut.chunk / unit * unit);
    cut.rounds = (most + cut.chunk - 1) / cut.chunk;
  }
  cut.stride = whole_lines(cut.chunk);
  // If data goes both ways, no rank gets ahead of the others' chunks: more room would only evict other data from the
  // caches.
  const auto most_in_flight = [&] { return both_ways && cut.rounds > chunks ? std::int64_t{2} : cut.rounds; };
  cut.in_flight = most_in_flight();
  const std::int64_t slots = cut.in_flight * fan;
  for (int t = 1; t < region_layout::tiers; ++t) {
    cut.of = &layout.of(t);
    if (slots <= cut.of->flags && slots * cut.stride <= cut.of->bytes) return cut;
  }
  // Not all at once: at least two rounds, so that one is filled while another is read.
  if (2 * fan * cut.stride > cut.of->bytes) {
    cut.chunk = cut.of->bytes / (2 * fan) / line_bytes * line_bytes;
    cut.chunk = espalier::detail::larger_of(unit, cut.chunk / unit * unit);
    cut.stride = whole_lines(cut.chunk);
    cut.rounds = (most + cut.chunk - 1) / cut.chunk;
  }
  cut.in_flight =
      espalier::detail::smaller_of(most_in_flight(), cut.of->flags / fan, cut.of->bytes / (fan * cut.stride));
  return cut;
}

/// How an array is cut where each rank reduces a part of every chunk. In the data of the largest tier: two rooms for
/// chunks, then two for results.
struct split_shape {
  std::int64_t total = 0;
  std::int64_t chunk = 1;
  std::int64_t share = 1;  ///< of each rank, in a whole chunk
  std::int64_t rounds = 1;

  [[nodiscard]] std::int64_t length(std::int64_t round) const {
    return espalier::detail::smaller_of(chunk, total - round * chunk);
  }
  /// The part of a chunk that a rank reduces: its bytes, and where they begin in the chunk.
  [[nodiscard]] flow part(std::int64_t round, int rank) const {
    const std::int64_t begin = espalier::detail::smaller_of(length(round), share * rank);
    return {espalier::detail::smaller_of(share, length(round) - begin), begin};
  }
  [[nodiscard]] std::int64_t room(std::int64_t round) const { return round % 2 * whole_lines(chunk); }
  [[nodiscard]] std::int64_t result(std::int64_t round) const {
    return 2 * whole_lines(chunk) + round % 2 * whole_lines(share);
  }
};

[[nodiscard]] inline split_shape split_shape_of(const region_layout& layout, const sizes& how, std::int64_t total,
                                                int ranks, std::int64_t unit) {
  const tier& of = layout.of(region_layout::tiers - 1);
  split_shape cut;
  cut.total = total;
  // A share is whole elements and, where these allow it, whole lines.
  const std::int64_t grain = line_bytes % unit == 0 ? line_bytes : unit;
  const std::int64_t most = (of.bytes / 2 - 4 * line_bytes) / (ranks + 1) / grain;
  const std::int64_t fair =
      espalier::detail::larger_of<std::int64_t>(1, espalier::detail::smaller_of(how.chunk, total / 4) / ranks / grain);
  cut.share = espalier::detail::larger_of<std::int64_t>(1, espalier::detail::smaller_of(most, fair)) * grain;
  cut.chunk = cut.share * ranks;
  cut.rounds = (total + cut.chunk - 1) / cut.chunk;
  return cut;
}

}  // namespace espalier::comm::host
