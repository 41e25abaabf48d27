// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>
#include <espalier/pipeline/stages/messages/transport.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace espalier::pipeline::detail {

/// Tags of messages outside the schedule; the tags of its transfers come after them.
enum class talk_tag : int { numbers = transport::first_tag, loss, clock, peers, end };

[[nodiscard]] inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Waits until `done()`; meanwhile moves messages and does `background()`. The deadline begins anew with all progress.
/// `expired()` throws.
template <class Done, class Background, class Expired>
void wait_until(transport& ranks, const Done& done, const Background& background, const Expired& expired) {
  if (done()) return;
  double last = seconds_now();
  std::int64_t ended = ranks.ended();
  while (true) {
    ranks.progress(true);
    background();
    if (done()) return;
    if (ranks.ended() != ended) {
      ended = ranks.ended();
      last = seconds_now();
    } else if (seconds_now() - last > ranks.deadline().count()) {
      expired();
    }
  }
}

/// "2", "0.5"
[[nodiscard]] inline std::string seconds_text(double seconds) {
  std::string text = std::to_string(seconds);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

/// Lists of numbers between ranks, for what happens once: each call returns when it is done.
class conversation {
 public:
  explicit conversation(transport& ranks) : ranks_(&ranks) {}

  void tell(int to, const std::vector<std::int64_t>& words) {
    const auto count = static_cast<std::int64_t>(words.size());
    finish(ranks_->send(to, tag, &count, sizeof count), to);
    if (count > 0) finish(ranks_->send(to, tag, words.data(), bytes(words)), to);
  }
  [[nodiscard]] std::vector<std::int64_t> hear(int from) {
    std::int64_t count = 0;
    finish(ranks_->receive(from, tag, &count, sizeof count), from);
    std::vector<std::int64_t> words(static_cast<std::size_t>(count));
    if (count > 0) finish(ranks_->receive(from, tag, words.data(), bytes(words)), from);
    return words;
  }
  /// Copies the words of rank 0 to all ranks.
  void broadcast(std::vector<std::int64_t>& words) {
    if (ranks_->rank() != 0) {
      words = hear(0);
      return;
    }
    for (int k = 1; k < ranks_->size(); ++k) tell(k, words);
  }
  /// Returns, on rank 0, the words of each rank; nothing on other ranks.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> gather(const std::vector<std::int64_t>& words) {
    std::vector<std::vector<std::int64_t>> all;
    if (ranks_->rank() != 0) {
      tell(0, words);
      return all;
    }
    all.push_back(words);
    for (int k = 1; k < ranks_->size(); ++k) all.push_back(hear(k));
    return all;
  }
  /// Rank 0's verdict: where it is not empty, all ranks throw it.
  template <class Error> void agree(const std::string& verdict) {
    std::vector<std::int64_t> letters(verdict.begin(), verdict.end());
    broadcast(letters);
    if (letters.empty()) return;
    std::string text;
    for (const std::int64_t letter : letters) text += static_cast<char>(letter);
    throw Error(text);
  }
  void barrier() {
    (void)gather({});
    std::vector<std::int64_t> nothing;
    broadcast(nothing);
  }

  /// Seconds that this rank's clock is ahead of rank 0's: of several exchanges the quickest counts.
  [[nodiscard]] double clock_ahead() {
    constexpr int rounds = 16;
    if (ranks_->one_clock()) return 0;
    double ahead = 0;
    for (int other = 1; other < ranks_->size(); ++other) {
      double quickest = 1e300;
      for (int round = 0; round < rounds; ++round) {
        if (ranks_->rank() == 0) {
          double here = 0;
          finish(ranks_->receive(other, clock_tag, &here, sizeof here), other);
          here = seconds_now();
          finish(ranks_->send(other, clock_tag, &here, sizeof here), other);
        } else if (ranks_->rank() == other) {
          const double sent = seconds_now();
          double there = 0;
          finish(ranks_->send(0, clock_tag, &sent, sizeof sent), 0);
          finish(ranks_->receive(0, clock_tag, &there, sizeof there), 0);
          const double back = seconds_now();
          if (back - sent >= quickest) continue;
          quickest = back - sent;
          ahead = (sent + back) / 2 - there;
        }
      }
    }
    return ahead;
  }

 private:
  static constexpr int tag = static_cast<int>(talk_tag::numbers);
  static constexpr int clock_tag = static_cast<int>(talk_tag::clock);

  [[nodiscard]] static std::int64_t bytes(const std::vector<std::int64_t>& words) {
    return static_cast<std::int64_t>(words.size() * sizeof(std::int64_t));
  }
  void finish(int request, int other) {
    const auto nothing = [] {};
    wait_until(
        *ranks_, [&] { return ranks_->finished(request); }, nothing,
        [&] {
          const std::string text = "rank " + std::to_string(ranks_->rank()) + " waited " +
                                   seconds_text(ranks_->deadline().count()) + " s for rank " + std::to_string(other) +
                                   " outside of a step: all ranks must make the pipeline, save, load and collect "
                                   "together\n  to wait longer: set ESPALIER_DEADLINE_SECONDS";
          ranks_->fail(text);
          throw comm::comm_error(text);
        });
  }

  transport* ranks_;
};

}  // namespace espalier::pipeline::detail
