// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

namespace espalier::comm::detail {

/// Formats a number for messages: "0.3", "60", "12500".
[[nodiscard]] inline std::string number_text(double number) {
  char text[32];
  std::snprintf(&text[0], sizeof text, number >= 1000 ? "%.0f" : "%.3g", number);
  return &text[0];
}
[[nodiscard]] inline std::string seconds_text(std::chrono::duration<double> time) { return number_text(time.count()); }

/// How a rank waits: it polls for a while, then offers its processor to others between polls, and says when nothing has
/// moved for as long as the deadline. The clock is read only where the wait is long already.
class polling_wait {
 public:
  polling_wait(bool oversubscribed, std::chrono::duration<double> deadline)
      : allowed_(std::chrono::duration_cast<clock::duration>(deadline)), polls_(oversubscribed ? 0 : 2000) {}

  void moved() { idle_ = 0; }

  /// Called after a poll in which nothing moved. True: the deadline has passed.
  [[nodiscard]] bool exhausted() {
    if (++idle_ <= polls_) return false;
    std::this_thread::yield();
    const clock::time_point now = clock::now();
    if (idle_ == polls_ + 1) {
      since_ = now;
      looked_ = now;
    }
    return now - since_ > allowed_;
  }

  /// Whether it is time to look what the others do: now and then, where the wait is long. After `exhausted`.
  [[nodiscard]] bool wonders() {
    constexpr std::chrono::milliseconds between{20};
    if (idle_ <= polls_) return false;
    const clock::time_point now = clock::now();
    if (now - looked_ < between) return false;
    looked_ = now;
    return true;
  }

 private:
  using clock = std::chrono::steady_clock;

  clock::duration allowed_;
  int polls_;
  long idle_ = 0;
  clock::time_point since_{};
  clock::time_point looked_{};
};

}  // namespace espalier::comm::detail
