// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/table.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iostream>
#include <ostream>
#include <string>
#include <utility>

#include <unistd.h>

namespace espalier::report {

/// True when `out` is the standard output or error stream and that is a terminal.
[[nodiscard]] inline bool is_terminal(const std::ostream& out) {
  if (&out == &std::cout) return ::isatty(STDOUT_FILENO) == 1;
  if (&out == &std::cerr || &out == &std::clog) return ::isatty(STDERR_FILENO) == 1;
  return false;
}

/// How a progress line behaves.
struct progress_options {
  std::int64_t first_step = 0;  ///< steps done before this run: a resumed training estimates from its own speed
  double flops_per_token = 0;   ///< floating-point operations of a training step per token
  double peak_flops = 0;        ///< of all devices together, per second; 0: no share of peak is shown
  double seconds_between_lines = 10;
  double seconds_between_redraws = 0.1;  ///< on a terminal
  bool terminal = false;                 ///< redraw one line instead of writing lines
  std::function<double()> clock = {};    ///< seconds, never decreasing; empty: the steady clock
};

/// One line that says how a training is doing:
/// `step 120/2,000  loss 2.345  12.3 k tokens/s  61.0 % of peak  1 min 12 s left`.
///
/// On a terminal the line is redrawn in place; elsewhere (a file, a pipe) a full line appears for the first step, then
/// every `seconds_between_lines`, and for the last. Speed is averaged over about the last ten seconds.
class progress {
 public:
  /// `total_steps` counts from the start of training, `options.first_step` included.
  progress(std::ostream& out, std::int64_t total_steps, progress_options options)
      : out_(&out), total_(total_steps), options_(std::move(options)) {
    if (!options_.clock)
      options_.clock = [] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
      };
    started_ = previous_ = options_.clock();
  }
  progress(std::ostream& out, std::int64_t total_steps) : progress(out, total_steps, options_for(out)) {}
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;
  ~progress() {
    try {
      finish();
    } catch (...) {  // a stream that throws must not end the program here
    }
  }

  [[nodiscard]] static progress_options options_for(const std::ostream& out) {
    progress_options options;
    options.terminal = is_terminal(out);
    return options;
  }

  /// Reports that `step` steps are done and `tokens` were processed since the last call.
  void update(std::int64_t step, double loss, std::int64_t tokens) {
    const double now = options_.clock();
    const double elapsed = now - previous_;
    previous_ = now;
    // Tokens and seconds decay alike: their ratio is a mean that weighs recent steps most, and long steps fully.
    const double kept = std::exp(-elapsed / 10.0);
    recent_tokens_ = recent_tokens_ * kept + static_cast<double>(tokens);
    recent_seconds_ = recent_seconds_ * kept + elapsed;
    recent_steps_ = recent_steps_ * kept + static_cast<double>(step - (seen_ ? step_ : options_.first_step));
    step_ = step;
    loss_ = loss;
    current_ = false;

    const bool last = step_ >= total_;
    const double pause = options_.terminal ? options_.seconds_between_redraws : options_.seconds_between_lines;
    if (!seen_ || last || now - shown_ >= pause) show(now);
    seen_ = true;
  }

  /// Returns the present line.
  [[nodiscard]] std::string line() const {
    std::string text = "step " + format_count(step_) + "/" + format_count(total_) + "  loss " + format_fixed(loss_, 3);
    if (recent_seconds_ > 0) {
      const double speed = recent_tokens_ / recent_seconds_;
      espalier::detail::append_text(text, {"  ", format_scaled(speed), " tokens/s"});
      if (options_.peak_flops > 0)
        espalier::detail::append_text(
            text, {"  ", format_percent(speed * options_.flops_per_token / options_.peak_flops), " of peak"});
      if (step_ < total_ && recent_steps_ > 0)
        espalier::detail::append_text(text, {"  ", format_duration(left()), " left"});
    }
    if (step_ >= total_) text += "  in " + format_duration(previous_ - started_);
    return text;
  }

  /// Shows the last state if it was not shown, and ends the line. Called by the destructor; further calls do nothing.
  void finish() {
    if (!seen_ || finished_) return;
    finished_ = true;
    if (!current_) show(previous_);
    if (options_.terminal) *out_ << '\n' << std::flush;
  }

 private:
  [[nodiscard]] double left() const {
    const double seconds = static_cast<double>(total_ - step_) * recent_seconds_ / recent_steps_;
    return seconds < 10 ? seconds : std::round(seconds);
  }

  void show(double now) {
    shown_ = now;
    current_ = true;
    std::string text = line();
    if (!options_.terminal) {
      *out_ << text << '\n' << std::flush;
      return;
    }
    // Spaces erase the rest of a longer line, on every kind of terminal.
    const std::size_t width = text.size();
    if (width < drawn_) text.append(drawn_ - width, ' ');
    drawn_ = width;
    *out_ << '\r' << text << std::flush;
  }

  std::ostream* out_;
  std::int64_t total_;
  progress_options options_;
  double started_ = 0;
  double previous_ = 0;
  double shown_ = 0;
  double recent_tokens_ = 0;
  double recent_seconds_ = 0;
  double recent_steps_ = 0;
  std::int64_t step_ = 0;
  double loss_ = 0;
  std::size_t drawn_ = 0;
  bool seen_ = false;
  bool current_ = false;  // the shown line is the latest state
  bool finished_ = false;
};

}  // namespace espalier::report
