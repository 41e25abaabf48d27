// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The compiled half of progress.hpp.
#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/table.hpp>
#include <espalier/tensor/run/report/progress.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>

#include <unistd.h>

namespace espalier::report {

ESPALIER_INLINE bool is_terminal(const std::ostream& out) {
  if (&out == &std::cout) return ::isatty(STDOUT_FILENO) == 1;
  if (&out == &std::cerr || &out == &std::clog) return ::isatty(STDERR_FILENO) == 1;
  return false;
}

ESPALIER_INLINE progress::progress(std::ostream& out, std::int64_t total_steps, progress_options options)
    : out_(&out), total_(total_steps), options_(std::move(options)) {
  if (!options_.clock)
    options_.clock = [] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
  started_ = previous_ = options_.clock();
}

ESPALIER_INLINE progress::progress(std::ostream& out, std::int64_t total_steps)
    : progress(out, total_steps, options_for(out)) {}

ESPALIER_INLINE progress::~progress() {
  try {
    finish();
  } catch (...) {  // a stream that throws must not end the program here
  }
}

ESPALIER_INLINE progress_options progress::options_for(const std::ostream& out) {
  progress_options options;
  options.terminal = is_terminal(out);
  return options;
}

ESPALIER_INLINE void progress::update(std::int64_t step, double loss, std::int64_t tokens) {
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

ESPALIER_INLINE std::string progress::line() const {
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

ESPALIER_INLINE void progress::finish() {
  if (!seen_ || finished_) return;
  finished_ = true;
  if (!current_) show(previous_);
  if (options_.terminal) *out_ << '\n' << std::flush;
}

ESPALIER_INLINE double progress::left() const {
  const double seconds = static_cast<double>(total_ - step_) * recent_seconds_ / recent_steps_;
  return seconds < 10 ? seconds : std::round(seconds);
}

ESPALIER_INLINE void progress::show(double now) {
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

}  // namespace espalier::report
