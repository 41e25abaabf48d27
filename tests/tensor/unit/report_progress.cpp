// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// together: random_programs
#include <espalier/tensor/run/report/progress.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <sstream>

using namespace espalier::report;

namespace {

progress_options with_clock(const double& now, bool terminal) {
  progress_options options;
  options.terminal = terminal;
  options.clock = [&now] { return now; };
  return options;
}

}  // namespace

TEST_CASE("a progress line has step, loss, speed, share of peak and time left", "[report]") {
  double now = 100;
  std::ostringstream out;
  progress_options options = with_clock(now, false);
  options.flops_per_token = 1e6;
  options.peak_flops = 4e9;
  progress bar(out, 2000, options);
  for (int step = 1; step <= 120; ++step) {
    now += 0.5;
    bar.update(step, 2.3456, 1000);
  }
  CHECK(bar.line() == "step 120/2,000  loss 2.346  2.00 k tokens/s  50.0 % of peak  15 min 40 s left");
  // 60 s at a line every 10 s: the first step, then 10.5 s, 20.5 s, ...
  const std::string text = out.str();
  CHECK(std::count(text.begin(), text.end(), '\n') == 6);
  CHECK(text.rfind("step 1/2,000", 0) == 0);
  CHECK(text.find('\r') == std::string::npos);
  bar.finish();
  bar.finish();
  CHECK(out.str().size() > text.size());  // the last state, which no line had shown yet
  CHECK(out.str().find("step 120/2,000") == out.str().rfind("step 120/2,000"));
}

TEST_CASE("the last step is shown once, with the time it all took", "[report]") {
  double now = 0;
  std::ostringstream out;
  {
    progress bar(out, 2, with_clock(now, false));
    now += 1;
    bar.update(1, 3.0, 10);
    now += 1;
    bar.update(2, 2.0, 10);
  }
  CHECK(out.str() ==
        "step 1/2  loss 3.000  10.0 tokens/s  1.00 s left\n"
        "step 2/2  loss 2.000  10.0 tokens/s  in 2.00 s\n");
}

TEST_CASE("on a terminal one line is redrawn and fully erased", "[report]") {
  double now = 0;
  std::ostringstream out;
  {
    progress bar(out, 3, with_clock(now, true));
    now += 100;
    bar.update(1, 1000.0, 10);
    const std::size_t first = out.str().size() - 1;  // without the \r
    now += 0.01;
    bar.update(2, 1.0, 10);  // too soon to redraw
    CHECK(out.str().size() == first + 1);
    now += 100;
    bar.update(3, 1.0, 10);
    CHECK(out.str().size() >= 2 * (first + 1));
  }
  const std::string text = out.str();
  CHECK(std::count(text.begin(), text.end(), '\r') == 2);
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  CHECK(text.back() == '\n');
}

TEST_CASE("a resumed run estimates from its own steps, and speed follows a change", "[report]") {
  double now = 0;
  std::ostringstream out;
  progress_options options = with_clock(now, false);
  options.first_step = 1000;
  progress bar(out, 1100, options);
  now += 1;
  bar.update(1001, 1.0, 100);
  CHECK(bar.line() == "step 1,001/1,100  loss 1.000  100 tokens/s  1 min 39 s left");
  for (int step = 1002; step <= 1060; ++step) {
    now += 2;
    bar.update(step, 1.0, 100);
  }
  CHECK_THAT(bar.line(), Catch::Contains("50.0 tokens/s") && Catch::Contains("1 min 20 s left"));
}

TEST_CASE("a progress that was never updated writes nothing", "[report]") {
  std::ostringstream out;
  { const progress bar(out, 10); }
  CHECK(out.str().empty());
  CHECK_FALSE(is_terminal(out));
}
