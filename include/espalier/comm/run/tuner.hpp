// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/run/choice.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace espalier::comm {

struct tuning_limits {
  int rounds = 3;             ///< tries of every candidate
  int chunk_rounds = 3;       ///< tries of every chunk size after that
  std::int64_t least = 4096;  ///< the fewest bytes of a chunk
  std::int64_t most = 4 << 20;
  std::int64_t eager = 65536;  ///< the transport's limit of eager messages: chunks keep away from it
  /// The MPI library's own is left only for a candidate that takes at most this share of its time: the rest may be
  /// noise.
  double favour = 0.95;
  /// Seconds. A shorter call cannot be timed alone: the resolution of the clock and the skew of the barrier before it
  /// are of the same size, and that barrier leaves the transport's memory in the caches and not that of others.
  double short_call = 5e-6;
  int short_rounds = 2;  ///< tries of each candidate until that is known
  int batch = 8;         ///< calls in a row that are one try of a short call
  int batch_rounds = 3;  ///< such tries of every candidate that is not much slower
  /// Shared memory counts with this share of its time there: in its first calls no copy of a tier is in a cache yet,
  /// and a machine whose processors change places between two tries makes more noise than that.
  double favour_shared = 0.75;
  int finalists = 4;           ///< ways that are tried once more before one is settled on
  int final_calls = 3;         ///< calls in a row that are one try of a finalist, the first not counted
  int least_final_rounds = 3;  ///< such tries of each finalist
  int most_final_rounds = 9;
  double final_seconds = 0.1;  ///< seconds that more than the least number of rounds may take
  /// A candidate that took more than this many times the least time is no finalist. Single calls differ by as much
  /// where the caches do not hold all data: a copy of 1 MiB by the operating system took 50 or 90 us from one call to
  /// the next (Xeon).
  double close = 2;
  double favour_final = 0.98;  ///< `favour` among finalists, where there is less noise
  double beaten = 0.92;        ///< a finalist is out if another takes at most this share of its time in every round
  double long_call = 0.1;      ///< seconds: in a longer call, one try tells more, and costs more
  double close_long = 1.1;     ///< `close` of long calls
  /// Seconds: a shorter call is made twice for one try, from the second on, and the first call warms up: the data that
  /// the candidate before it left in the caches, or evicted, would count for as much as the candidate itself.
  double warmed_up = 0.01;
  /// The largest of the chunk sizes whose times differ by at most this share is settled on: fewer messages leave the
  /// processor to others.
  double alike = 0.02;
};

/// Finds the fastest way for one collective at one size from how long tries take: first all candidates in turn that are
/// not much slower than the best, the least time of each counting; then, if trees may win, their chunk size by
/// multiplicative increase and additive decrease (Blink, section on chunk sizes). Last, the best of each way are tried
/// in turn once more, and only that counts: of many chunk sizes the luckiest looks better than it is, and first calls
/// are slow. Where calls are short, a try is several calls in a row; where they are long, several chunk sizes are among
/// the last. Pure: rank 0 runs it and tells the others.
class tuner {
 public:
  tuner() = default;
  explicit tuner(const std::vector<choice>& candidates, const tuning_limits& limits = {}) : limits_(limits) {
    for (const choice& c : candidates) tries_.push_back({c, -1, 0});
    if (tries_.size() <= 1) stage_ = stage::settled;
  }

  [[nodiscard]] bool settled() const { return stage_ == stage::settled; }
  /// Returns the choice to use in the next call.
  [[nodiscard]] choice next() const { return tries_[settled() ? best() : at_].tried; }
  /// And in how many in a row: of several, the first warms up, and the mean of the others is what `note` is told.
  [[nodiscard]] int calls() const { return calls_; }
  /// The least time of what was settled on.
  [[nodiscard]] double seconds() const { return tries_.empty() ? -1 : tries_[best()].least; }

  /// How long a call took that did what `next` said.
  void note(double seconds) {
    if (settled()) return;
    attempt& now = tries_[at_];
    now.least = now.count == 0 ? seconds : std::min(now.least, seconds);
    ++now.count;
    if (stage_ == stage::candidates) {
      do { at_ = (at_ + 1) % tries_.size(); } while (is_hopeless(tries_[at_]));
      const int rounds = tries_[at_].count;
      if (rounds > 0 && tries_[best()].least < limits_.warmed_up) calls_ = 2;
      if (rounds >= limits_.short_rounds && tries_[best()].least < limits_.short_call) {
        begin_batches();
      } else if (rounds >= limits_.rounds) {
        begin_chunks();
      }
    } else if (stage_ == stage::batches) {
      do { at_ = (at_ + 1) % tries_.size(); } while (is_slower(tries_[at_]));
      if (tries_[at_].count >= limits_.batch_rounds) stage_ = stage::settled;
    } else if (stage_ == stage::finals) {
      now.finals.push_back(seconds);
      if (++turn_ == tries_.size()) return end_final_round();
      at_ = order_[turn_];
    } else if (now.count >= limits_.chunk_rounds) {
      next_chunk();
    }
  }

 private:
  enum class stage : std::uint8_t { candidates, batches, rising, falling, finals, settled };
  struct attempt {
    choice tried;
    double least = -1;
    int count = 0;
    std::vector<double> finals = {};  // times, by round
  };

  [[nodiscard]] double cost(const attempt& a) const {
    if (a.count == 0) return std::numeric_limits<double>::infinity();
    if (a.tried.how == method::library) return limits_.favour * a.least;
    return a.tried.how == method::shared && short_ ? limits_.favour_shared * a.least : a.least;
  }
  [[nodiscard]] std::size_t best() const {
    std::size_t found = 0;
    for (std::size_t i = 1; i < tries_.size(); ++i) {
      if (cost(tries_[i]) < cost(tries_[found])) found = i;
    }
    return found;
  }
  /// Not worth another try. One try tells only where calls are long and the difference is great: it may have been
  /// disturbed, or have made connections.
  [[nodiscard]] bool is_hopeless(const attempt& a) const {
    const double slower = a.least / tries_[best()].least;
    return a.count > 1 ? slower > 4 : a.count == 1 && a.least > limits_.long_call && slower > 8;
  }
  [[nodiscard]] std::size_t best_trees() const {
    std::size_t found = tries_.size();
    for (std::size_t i = 0; i < tries_.size(); ++i) {
      if (tries_[i].tried.how != method::trees || tries_[i].count == 0) continue;
      if (found == tries_.size() || tries_[i].least < tries_[found].least) found = i;
    }
    return found;
  }

  /// Everything that may be fastest is tried again; what single calls took is forgotten.
  void begin_batches() {
    const double most = 4 * tries_[best()].least + 0.25 * limits_.short_call;
    std::erase_if(tries_, [&](const attempt& a) { return a.least > most; });
    for (attempt& a : tries_) a = {a.tried, -1, 0};
    at_ = 0;
    short_ = true;
    calls_ = limits_.batch;
    stage_ = tries_.size() == 1 ? stage::settled : stage::batches;
  }
  /// A batch may be disturbed, but hardly two.
  [[nodiscard]] bool is_slower(const attempt& a) const { return a.count > 1 && cost(a) > 1.5 * cost(tries_[best()]); }

  void begin_chunks() {
    const std::size_t trees = best_trees();
    // Much slower: no chunk size makes up for that.
    if (trees == tries_.size() || tries_[trees].least > 2 * tries_[best()].least) return begin_finals();
    stage_ = stage::rising;
    pattern_ = tries_[trees].tried;
    chunk_ = pattern_.chunk / 4;
    try_chunk(chunk_);
  }

  void next_chunk() {
    const double now = tries_[at_].least;
    if (stage_ == stage::rising) {
      const bool rose = last_ < 0 || now < 0.99 * last_;
      if (rose) {
        last_ = now;
        turning_point_ = chunk_;
        misses_ = 0;
      } else if (++misses_ == 1) {
        turning_point_ = chunk_;
      }
      // One that is no better may have been disturbed.
      if (misses_ < 2 && chunk_ * 2 <= limits_.most) return try_chunk(chunk_ *= 2);
      stage_ = stage::falling;
      chunk_ = turning_point_;
      step_ = std::max<std::int64_t>(chunk_ / 4, 1);
      return try_chunk(chunk_ -= step_);
    }
    if (now < last_ && chunk_ - step_ >= limits_.least && chunk_ > step_) {
      last_ = now;
      return try_chunk(chunk_ -= step_);
    }
    begin_finals();
  }

  /// Tries a chunk size, or the nearest below that is away from the eager limit; what was tried before is known.
  void try_chunk(std::int64_t chunk) {
    chunk = std::clamp(chunk, limits_.least, limits_.most);
    const std::int64_t low = limits_.eager / 4 * 3;
    if (chunk > low && chunk < 2 * limits_.eager) chunk = chunk > limits_.eager ? 2 * limits_.eager : low;
    chunk_ = chunk;
    choice wanted = pattern_;
    wanted.chunk = chunk;
    for (std::size_t i = 0; i < tries_.size(); ++i) {
      if (tries_[i].tried == wanted) {
        at_ = i;
        if (tries_[i].count >= limits_.chunk_rounds) {
          if (++repeats_ > 4) {
            begin_finals();
          } else {
            next_chunk();
          }
        }
        return;
      }
    }
    tries_.push_back({wanted, -1, 0});
    at_ = tries_.size() - 1;
  }

  /// The best of each way again, in turn; what they took before is forgotten.
  void begin_finals() {
    const double least = tries_[best()].least;
    const bool is_long = least > limits_.long_call;
    const double most = (is_long ? limits_.close_long : limits_.close) * least;
    std::erase_if(tries_, [&](const attempt& a) { return a.count == 0 || a.least > most; });
    std::sort(tries_.begin(), tries_.end(), [&](const attempt& a, const attempt& b) { return cost(a) < cost(b); });
    std::vector<attempt> last;
    const auto add_unless = [&](auto is_in) {
      for (const attempt& a : tries_) {
        const bool known = std::any_of(last.begin(), last.end(), [&](const attempt& l) { return is_in(a, l); });
        if (!known && static_cast<int>(last.size()) < limits_.finalists) last.push_back({a.tried, -1, 0});
      }
    };
    add_unless([](const attempt& a, const attempt& l) { return is_like(a, l); });
    // Long calls, which are few, try other chunk sizes too: the least of three times is mostly luck among so many.
    const auto is_near = [](const attempt& a, const attempt& l) {
      const auto [less, more] = std::minmax({a.tried.chunk, l.tried.chunk});
      return is_like(a, l) && (less == more || 2 * less > more);
    };
    if (is_long) add_unless(is_near);
    at_ = 0;
    if (last.size() < 2) {
      tries_.resize(1);
      stage_ = stage::settled;
      return;
    }
    tries_ = std::move(last);
    calls_ = is_long ? 1 : limits_.final_calls;
    const double round = least * calls_ * static_cast<double>(tries_.size());
    const auto wanted = static_cast<int>(std::min(limits_.final_seconds / round, 1e6));
    final_rounds_ = std::clamp(wanted, limits_.least_final_rounds, limits_.most_final_rounds);
    stage_ = stage::finals;
    begin_final_round();
  }
  /// Orders the candidates anew each time: the one that follows shared memory is slower for some calls (all-to-all of 8
  /// MiB: a fifth).
  void begin_final_round() {
    order_.resize(tries_.size());
    for (std::size_t i = 0; i < order_.size(); ++i) {
      random_ = random_ * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX
      const auto other = static_cast<std::size_t>((random_ >> 33U) % (i + 1));
      order_[i] = order_[other];
      order_[other] = i;
    }
    turn_ = 0;
    at_ = order_[0];
  }
  void end_final_round() {
    if (tries_[0].count >= limits_.least_final_rounds) {
      const std::vector<attempt> all = tries_;
      std::erase_if(tries_, [&](const attempt& a) {
        return std::any_of(all.begin(), all.end(), [&](const attempt& other) { return beats(other, a); });
      });
    }
    if (tries_.size() == 1 || tries_[0].count >= final_rounds_) return decide();
    begin_final_round();
  }
  /// True if `a` is clearly faster in every round: more rounds would tell the same.
  [[nodiscard]] bool beats(const attempt& a, const attempt& other) const {
    for (std::size_t round = 0; round < a.finals.size(); ++round) {
      if (final_cost(a, round) > limits_.beaten * final_cost(other, round)) return false;
    }
    return true;
  }
  [[nodiscard]] double final_cost(const attempt& a, std::size_t round) const {
    return (a.tried.how == method::library ? limits_.favour_final : 1) * a.finals[round];
  }
  /// Takes the finalist whose usual part of a round's time is the least: a machine that is slow for a while, or whose
  /// memory others use, is so for a whole round.
  void decide() {
    std::vector<double> usual;
    for (const attempt& a : tries_) {
      std::vector<double> parts;
      for (std::size_t round = 0; round < a.finals.size(); ++round) {
        double all = 0;
        for (const attempt& other : tries_) all += other.finals[round];
        parts.push_back(final_cost(a, round) / all);
      }
      const auto middle = parts.begin() + static_cast<std::ptrdiff_t>(parts.size() / 2);
      std::nth_element(parts.begin(), middle, parts.end());
      usual.push_back(*middle);
    }
    auto found = static_cast<std::size_t>(std::min_element(usual.begin(), usual.end()) - usual.begin());
    const double enough = (1 + limits_.alike) * usual[found];
    for (std::size_t i = 0; i < tries_.size(); ++i) {
      if (usual[i] <= enough && is_like(tries_[i], tries_[found]) &&
          tries_[i].tried.chunk > tries_[found].tried.chunk) {
        found = i;
      }
    }
    tries_ = {tries_[found]};
    at_ = 0;
    stage_ = stage::settled;
  }
  /// The same way, but for the length of its chunks.
  [[nodiscard]] static bool is_like(const attempt& a, const attempt& b) {
    return a.tried.how == b.tried.how && a.tried.by == b.tried.by && a.tried.parts == b.tried.parts;
  }

  tuning_limits limits_;
  std::vector<attempt> tries_;
  std::size_t at_ = 0;
  stage stage_ = stage::candidates;
  int calls_ = 1;  // in a row that are one try
  int final_rounds_ = 0;
  std::vector<std::size_t> order_;  // of the finalists, in this round
  std::size_t turn_ = 0;            // in that order
  std::uint64_t random_ = 1;
  bool short_ = false;  // calls are, and have been tried in batches
  choice pattern_;      // the trees whose chunks are tried
  std::int64_t chunk_ = 0;
  std::int64_t step_ = 0;
  std::int64_t turning_point_ = 0;  // the first chunk that was no better, or the last that was
  int misses_ = 0;
  double last_ = -1;
  int repeats_ = 0;
};

}  // namespace espalier::comm
