// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>

namespace espalier::comm {

/// When a call counts as having become slow.
struct slowdown_limits {
  double factor = 1.5;  ///< times what was usual; 0: never
  int window = 8;       ///< calls of which the fastest counts: noise makes some slow, a slow link all
  int windows = 2;      ///< windows in a row that must be slow; as many make up the usual time
};

/// One rank's times of one call that has been settled. Windows of calls are compared with the first ones, which every
/// rank measured under the same habits of the program (which rank usually comes late).
///
/// Windows end at the same call on all ranks, which then combine their ratios into one number; what follows from that
/// follows on all ranks alike. Pure.
class slowdown_watch {
 public:
  slowdown_watch() = default;
  explicit slowdown_watch(const slowdown_limits& limits) : limits_(limits) {}

  /// How long a call took here. True: a window is over, and its ratio is to be combined and judged.
  [[nodiscard]] bool note(double seconds) {
    least_ = calls_ == 0 ? seconds : std::min(least_, seconds);
    if (++calls_ < limits_.window) return false;
    calls_ = 0;
    if (learned_ < limits_.windows) {
      usual_ = learned_ == 0 ? least_ : std::min(usual_, least_);
      ++learned_;
      return false;
    }
    return true;
  }

  /// The last window's fastest call on this rank, in times of what is usual here.
  [[nodiscard]] double ratio() const { return usual_ > 0 ? least_ / usual_ : 1; }
  [[nodiscard]] double seconds() const { return least_; }

  /// Hears the ranks' combined ratio. True: for long enough it has been too large.
  [[nodiscard]] bool judge(double combined) {
    slow_ = combined > limits_.factor && limits_.factor > 0 ? slow_ + 1 : 0;
    return slow_ >= limits_.windows;
  }

  /// Forgets the usual time of the call, which is then learned anew.
  void forget() { *this = slowdown_watch(limits_); }

 private:
  slowdown_limits limits_;
  double usual_ = 0;
  double least_ = 0;
  int calls_ = 0;
  int learned_ = 0;  // windows
  int slow_ = 0;     // windows in a row
};

/// How often something expensive may be done: each time in vain doubles the pause. Rank 0's, since clocks differ.
class cool_down {
 public:
  cool_down() = default;
  /// Seconds; the first may come when one pause has passed since `now`.
  cool_down(double pause, double now) : pause_(pause), from_(now + pause) {}

  [[nodiscard]] bool allows(double now) const { return now >= from_; }
  void done(double now, bool in_vain) {
    waits_ = in_vain ? std::min(waits_ * 2, 1024.0) : 1;
    from_ = now + pause_ * waits_;
  }

 private:
  double pause_ = 0;
  double from_ = 0;
  double waits_ = 1;
};

}  // namespace espalier::comm
