// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>

namespace espalier::report {

/// True when `out` is the standard output or error stream and that is a terminal.
[[nodiscard]] bool is_terminal(const std::ostream& out);

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
  progress(std::ostream& out, std::int64_t total_steps, progress_options options);
  progress(std::ostream& out, std::int64_t total_steps);
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;
  ~progress();

  [[nodiscard]] static progress_options options_for(const std::ostream& out);

  /// Reports that `step` steps are done and `tokens` were processed since the last call.
  void update(std::int64_t step, double loss, std::int64_t tokens);

  /// Returns the present line.
  [[nodiscard]] std::string line() const;

  /// Shows the last state if it was not shown, and ends the line. Called by the destructor; further calls do nothing.
  void finish();

 private:
  [[nodiscard]] double left() const;

  void show(double now);

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

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/report/impl/progress.ipp>
#endif
