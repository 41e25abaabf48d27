// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/comm/host/copy.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace espalier::comm::host {

/// How a rank writes the chunks that others read in its region: through the caches, or past them.
///
/// Ranks under one last cache hand lines to each other in it. Under two, to write a line that another has read means to
/// ask over there first, which takes ten times as long as to write it to memory (EPYC; the reader notices little); and
/// on a virtual machine ranks change places while a program runs. So now and then one chunk of a call is written the
/// other way, and timed against its neighbours. How bytes are written changes nothing in what ranks tell each other:
/// every rank decides for itself, and a wrong decision costs only time.
class staging {
 public:
  /// `fixed`: always so, without trials.
  explicit staging(std::optional<store> fixed = {})
      : fixed_(fixed.has_value()), usual_(fixed.value_or(store::cached)), how_(usual_) {}

  /// Called before the first chunk of a call that this rank writes.
  void begin(std::int64_t rounds) {
    if (trial_ >= 0) decide();
    trial_ = -1;
    how_ = rounds < least_rounds && !fixed_ ? store::cached : usual_;
    if (fixed_ || rounds < least_rounds || (left_-- > 0 && rounds < many_rounds)) return;
    trial_ = rounds / 2;
    seconds_ = {};
    left_ = apart_;
    apart_ = espalier::detail::smaller_of(2 * apart_, most_apart);
  }

  /// How the chunks of a round are written.
  [[nodiscard]] store of(std::int64_t round) const {
    if (round != trial_) return how_;
    return how_ == store::cached ? store::streaming : store::cached;
  }
  /// Whether it should be timed, and `note` be told.
  [[nodiscard]] bool times(std::int64_t round) const {
    return trial_ >= 0 && trial_ - 1 <= round && round <= trial_ + 1;
  }
  /// True if it may be written piece by piece, between other work: as usual, and not timed.
  [[nodiscard]] bool in_pieces(std::int64_t round) const { return how_ == store::cached && !times(round); }
  void note(std::int64_t round, double seconds) { seconds_[static_cast<std::size_t>(round - trial_ + 1)] += seconds; }

  /// Writes a chunk.
  void write(std::byte* to, const std::byte* from, std::int64_t bytes, std::int64_t round) {
    using clock = std::chrono::steady_clock;
    const bool timed = times(round);
    const clock::time_point start = timed ? clock::now() : clock::time_point{};
    const store by = of(round);
    copy_bytes(to, from, bytes, by);
    if (by == store::streaming) finish_streaming();
    if (timed) note(round, std::chrono::duration<double>(clock::now() - start).count());
  }

 private:
  static constexpr std::int64_t least_rounds = 5;   // of which three in the middle are alike
  static constexpr std::int64_t many_rounds = 256;  // one that is slow does not count: every call is a trial
  static constexpr std::int64_t first_apart = 1;    // calls between trials, at first; then twice as many after each
  static constexpr std::int64_t most_apart = 15;
  // Readers find what was streamed in memory, not in a cache. Past the caches goes only what is so much faster to write
  // that this does not matter.
  static constexpr double streams_from = 4.5;
  static constexpr double streams_until = 3.5;

  void decide() {
    const bool streams = how_ == store::streaming;
    // A rank that loses its processor meanwhile finds one of the three slow, and changes nothing.
    const double usually = espalier::detail::smaller_of(seconds_[0], seconds_[2]);
    const double cached = streams ? seconds_[1] : usually;
    const double streamed = streams ? usually : seconds_[1];
    const bool should = cached > (streams ? streams_until : streams_from) * streamed;
    if (should == streams) return;
    usual_ = should ? store::streaming : store::cached;
    apart_ = first_apart;
    left_ = 0;
  }

  bool fixed_;
  store usual_;
  std::int64_t apart_ = first_apart;
  std::int64_t left_ = 0;  // calls until the next trial
  // The state of the call under way:
  store how_;
  std::int64_t trial_ = -1;             // the round that is written the other way
  std::array<double, 3> seconds_ = {};  // of the round before it, itself and the one after
};

}  // namespace espalier::comm::host
