// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/schedule/streams.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier::comm {

/// One rank's part of a schedule, with everything worked out that does not change from chunk to chunk.
struct rank_schedule {
  struct own_step {
    step move;
    /// The number of the message among all messages of one chunk of each track. Both ends count alike.
    int tag = -1;
    /// The place where the message of a reduction waits: bytes from the start of the staging memory, for slot 0.
    std::int64_t staged_at = 0;
    /// Nothing that stands before it in the lane touches its target: the receive may be posted when the lane begins.
    bool early = false;
    /// Sends before it in the lane that read what it writes: these have to leave first, and no others, since they may
    /// wait for a message of ours that comes later.
    std::vector<int> after;
  };

  struct own_track {
    const track* shape = nullptr;
    std::vector<own_step> steps;
    /// Lanes begun and not finished: as many slots.
    int slots = 1;
    int index = 0;  ///< of the track in the schedule
  };

  int rank = 0;
  int credits = 1;
  int tags = 0;  ///< that the schedule needs
  std::int64_t element_bytes = 1;
  std::int64_t scratch_bytes = 0;
  std::int64_t staging_bytes = 0;
  std::vector<own_track> tracks;  ///< by phase
};

namespace detail {

[[nodiscard]] inline bool overlap(const location& a, std::int64_t a_count, const location& b, std::int64_t b_count) {
  if (a.where != b.where) return false;
  // Where one is used round robin and the other not, the distance depends on the chunk.
  if (a.cyclic != b.cyclic) return true;
  return a.offset < b.offset + b_count && b.offset < a.offset + a_count;
}

inline void find_dependences(std::vector<rank_schedule::own_step>& steps) {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    rank_schedule::own_step& mine = steps[i];
    if (!writes(mine.move.kind)) continue;
    mine.early = mine.move.kind == action::receive;
    for (std::size_t j = 0; j < i; ++j) {
      const step& before = steps[j].move;
      const bool read = reads(before.kind) && overlap(before.from, before.count, mine.move.to, mine.move.count);
      const bool written = writes(before.kind) && overlap(before.to, before.count, mine.move.to, mine.move.count);
      mine.early = mine.early && !read && !written;
      if (read && before.kind == action::send) mine.after.push_back(static_cast<int>(j));
    }
  }
}

}  // namespace detail

/// @pre the schedule outlives the result
/// Errors: std::invalid_argument if a chunk has more bytes than a message of MPI can have.
[[nodiscard]] inline rank_schedule part_of_rank(const schedule& plan, int rank, std::int64_t element_bytes) {
  rank_schedule mine;
  mine.rank = rank;
  mine.credits = std::max(1, plan.credits);
  const stream_map map = streams_of(plan);
  std::vector<int> first_tag;
  for (const message_stream& s : map.streams) {
    first_tag.push_back(mine.tags);
    mine.tags += static_cast<int>(std::max(s.sends.size(), s.receives.size()));
  }
  mine.element_bytes = element_bytes;
  mine.scratch_bytes = plan.scratch[static_cast<std::size_t>(rank)] * element_bytes;
  constexpr std::int64_t alignment = 64;
  int number = 0;
  for (const track& t : plan.tracks) {
    const int index = number++;
    const rank_steps* const own = steps_of(t, rank);
    if (own == nullptr || t.chunks == 0) continue;
    rank_schedule::own_track made;
    made.shape = &t;
    made.index = index;
    made.slots = static_cast<int>(std::clamp<std::int64_t>(t.in_flight, 1, std::max<std::int64_t>(1, t.chunks)));
    for (int i = own->begin; i < own->end; ++i) {
      rank_schedule::own_step s;
      s.move = t.steps[static_cast<std::size_t>(i)];
      const std::int64_t bytes = s.move.count * element_bytes;
      if (s.move.kind != action::copy && bytes > std::numeric_limits<int>::max()) {
        throw std::invalid_argument("a message of " + std::to_string(bytes) +
                                    " bytes is too long for MPI: the schedule needs smaller chunks");
      }
      if (s.move.kind == action::receive_reduce) {
        s.staged_at = mine.staging_bytes;
        mine.staging_bytes += (bytes + alignment - 1) / alignment * alignment * made.slots;
      }
      const stream_map::end end = map.ends[static_cast<std::size_t>(index)][static_cast<std::size_t>(i)];
      if (end.stream >= 0) s.tag = first_tag[static_cast<std::size_t>(end.stream)] + end.message;
      made.steps.push_back(s);
    }
    detail::find_dependences(made.steps);
    mine.tracks.push_back(std::move(made));
  }
  std::sort(mine.tracks.begin(), mine.tracks.end(), [](const auto& a, const auto& b) {
    return a.shape->phase != b.shape->phase ? a.shape->phase < b.shape->phase : a.index < b.index;
  });
  return mine;
}

}  // namespace espalier::comm
