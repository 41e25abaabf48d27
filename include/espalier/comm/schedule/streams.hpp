// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/schedule/schedule.hpp>
#include <espalier/config.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace espalier::comm {

/// The messages of one track from one rank to another that keep their order (rule 3 of schedule.hpp). Message
/// `chunk * sends.size() + i` of the stream belongs to the i-th of its steps.
struct message_stream {
  int track = 0;
  int from = 0;
  int to = 0;
  int edge = step::direct;
  std::vector<int> sends;     ///< steps of the track, in order
  std::vector<int> receives;  ///< of the same number in a schedule that is right
};

/// All streams of a schedule, in an order that depends on the schedule alone: their indices are good message tags.
struct stream_map {
  struct end {
    int stream = -1;   ///< -1: the step moves no message
    int message = -1;  ///< which of the stream's messages of a chunk
  };
  std::vector<message_stream> streams;
  std::vector<std::vector<end>> ends;  ///< by track and step
};

[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR stream_map streams_of(const schedule& plan) {
  struct message_end {
    int from;
    int to;
    int edge;
    int stream;
    int step;
    bool sends;
  };
  stream_map made;
  made.ends.assign(plan.tracks.size(), {});
  std::vector<message_end> found;
  for (std::size_t i = 0; i < plan.tracks.size(); ++i) {
    const track& t = plan.tracks[i];
    made.ends[i].assign(t.steps.size(), {});
    found.clear();
    for (const rank_steps& p : t.parts) {
      for (int k = p.begin; k < p.end; ++k) {
        const step& s = t.steps[static_cast<std::size_t>(k)];
        if (s.kind == action::send) found.push_back({p.rank, s.peer, s.edge, s.stream, k, true});
        if (is_receive(s.kind)) found.push_back({s.peer, p.rank, s.edge, s.stream, k, false});
      }
    }
    std::sort(found.begin(), found.end(), [](const message_end& a, const message_end& b) {
      if (a.from != b.from) return a.from < b.from;
      if (a.to != b.to) return a.to < b.to;
      if (a.edge != b.edge) return a.edge < b.edge;
      if (a.stream != b.stream) return a.stream < b.stream;
      return a.step < b.step;
    });
    for (std::size_t k = 0; k < found.size(); ++k) {
      const message_end& e = found[k];
      const bool continues = k > 0 && found[k - 1].from == e.from && found[k - 1].to == e.to &&
                             found[k - 1].edge == e.edge && found[k - 1].stream == e.stream;
      if (!continues) made.streams.push_back({static_cast<int>(i), e.from, e.to, e.edge, {}, {}});
      std::vector<int>& side = e.sends ? made.streams.back().sends : made.streams.back().receives;
      made.ends[i][static_cast<std::size_t>(e.step)] = {static_cast<int>(made.streams.size()) - 1,
                                                        static_cast<int>(side.size())};
      side.push_back(e.step);
    }
  }
  return made;
}

}  // namespace espalier::comm
