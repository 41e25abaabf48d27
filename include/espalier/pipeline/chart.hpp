// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/xml_text.hpp>
#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/simulate.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace espalier::pipeline {

/// A run of a schedule, simulated or measured, to be drawn.
struct chart {
  std::string title;
  std::vector<int> rank_of;                  ///< by stage
  std::vector<std::vector<timed>> timeline;  ///< by rank
};

}  // namespace espalier::pipeline

namespace espalier::pipeline::detail {

[[nodiscard]] inline std::string pixels(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", value);
  std::string number = text.data();
  while (number.back() == '0') number.pop_back();
  if (number.back() == '.') number.pop_back();
  return number;
}

/// 1, 2 or 5 times a power of ten: the least that cuts `length` into at most `parts`.
[[nodiscard]] inline double round_step(double length, int parts) {
  const double least = length / parts;
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least * (1 - 1e-12)) return factor * power;
  return 10 * power;
}

/// Which of its rank's stages a stage is, from 0.
[[nodiscard]] inline int chunk_of(const chart& one, int stage) {
  return static_cast<int>(std::count(one.rank_of.begin(), one.rank_of.begin() + stage, one.rank_of[as_index(stage)]));
}

// Charts below one another, with one scale of time, so that lengths can be compared.
class gantt_drawing {
 public:
  gantt_drawing(const std::vector<chart>& charts, double width) : charts_(charts), plot_(width - left - right) {
    for (const chart& one : charts) {
      for (const auto& list : one.timeline)
        for (const timed& entry : list) {
          longest_ = std::max(longest_, entry.end);
          present_[static_cast<std::size_t>(entry.step.kind)] |= drawn(entry);
        }
      for (std::size_t s = 0; s < one.rank_of.size(); ++s)
        chunks_ = std::max(chunks_, chunk_of(one, static_cast<int>(s)) + 1);
    }
  }

  [[nodiscard]] std::string draw() {
    std::string body;
    double y = 8;
    body += legend(y);
    for (const chart& one : charts_) body += panel(one, y);
    const std::string width = pixels(left + plot_ + right);
    const std::string height = pixels(y);
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + width + "\" height=\"" + height +
           "\" viewBox=\"0 0 " + width + " " + height +
           "\">\n<style>text{font-family:sans-serif;font-size:12px;fill:#222222}.title{font-size:14px;font-weight:bold}"
           ".number{font-size:10px;text-anchor:middle}.end{text-anchor:end}.tick{font-size:11px;text-anchor:middle}"
           "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" +
           body + "</svg>\n";
  }

 private:
  static constexpr double left = 64;
  static constexpr double right = 96;
  static constexpr double row = 28;
  static constexpr double bar = 18;
  static constexpr double strip = 5;     // of an all-reduce, below the bar
  static constexpr double letter = 7.5;  // width of a letter of 12 pixels, generously
  static constexpr double digit = 6.5;   // width of a digit of 10 pixels
  static constexpr std::size_t most_transfers = 600;

  struct look {
    action kind;
    std::array<int, 3> colour;
    const char* meaning;
  };
  static constexpr std::array<look, 6> looks{{
      {action::forward, {158, 197, 244}, "F: forward"},
      {action::input_gradient, {247, 185, 119}, "B: gradient of the input"},
      {action::weight_gradient, {168, 213, 162}, "W: gradient of the weights"},
      {action::backward, {242, 161, 161}, "BW: both gradients"},
      {action::all_reduce, {176, 141, 214}, "all-reduce"},
      {action::optimizer, {190, 190, 190}, "optimizer step"},
  }};

  [[nodiscard]] static bool drawn(const timed& entry) {
    return is_computation(entry.step.kind) || entry.end > entry.start;
  }

  // Later stages of a rank are darker, down to three quarters.
  [[nodiscard]] std::string colour(const look& one, int chunk) const {
    const double shade = chunks_ > 1 ? 1 - 0.27 * chunk / (chunks_ - 1) : 1;
    std::array<char, 8> text{};
    std::snprintf(text.data(), text.size(), "#%02x%02x%02x", static_cast<unsigned>(one.colour[0] * shade),
                  static_cast<unsigned>(one.colour[1] * shade), static_cast<unsigned>(one.colour[2] * shade));
    return text.data();
  }

  [[nodiscard]] double at(double time) const { return left + (longest_ > 0 ? time / longest_ * plot_ : 0); }

  static std::string box(double x, double y, double width, double height, const std::string& fill,
                         const std::string& tip) {
    return "<rect x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\" width=\"" + pixels(width) + "\" height=\"" +
           pixels(height) + "\" fill=\"" + fill + "\" stroke=\"#ffffff\" stroke-width=\"0.6\">" +
           (tip.empty() ? "" : "<title>" + espalier::detail::xml_text(tip) + "</title>") + "</rect>\n";
  }
  static std::string text(double x, double y, const char* kind, const std::string& words) {
    return std::string("<text class=\"") + kind + "\" x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\">" +
           espalier::detail::xml_text(words) + "</text>\n";
  }

  static std::string grid_line(const std::string& x, double top, double bottom) {
    return "<line x1=\"" + x + "\" x2=\"" + x + "\" y1=\"" + pixels(top) + "\" y2=\"" + pixels(bottom) +
           "\" stroke=\"#dddddd\"/>\n";
  }

  // The kinds that occur, in as many lines as they need.
  [[nodiscard]] std::string legend(double& y) const {
    std::string out;
    double x = left;
    const auto entry = [&](const std::string& fill, const std::string& words) {
      const double width = 20 + letter * static_cast<double>(words.size()) + 16;
      if (x > left && x + width > left + plot_ + right) {
        x = left;
        y += 20;
      }
      if (!fill.empty()) out += box(x, y, 14, 14, fill, "");
      out += text(x + (fill.empty() ? 0 : 20), y + 11, "words", words);
      x += width;
    };
    for (const look& one : looks)
      if (present_[static_cast<std::size_t>(one.kind)]) entry(colour(one, 0), one.meaning);
    if (present_[static_cast<std::size_t>(action::send_activation)] ||
        present_[static_cast<std::size_t>(action::send_gradient)])
      entry("", "lines: transfers");
    if (chunks_ > 1) entry("", "darker: later stages of a rank");
    y += 24;
    return out;
  }

  [[nodiscard]] std::string panel(const chart& one, double& y) const {
    std::string out = text(left, y + 14, "title", one.title);
    y += 24;
    const double top = y;
    const double bottom = top + row * static_cast<double>(one.timeline.size());
    const double step = longest_ > 0 ? round_step(longest_, std::max(2, static_cast<int>(plot_ / 80))) : 1;
    for (int i = 0; i * step <= longest_ * (1 + 1e-9); ++i) {
      const std::string x = pixels(at(i * step));
      out += grid_line(x, top, bottom);
      out += text(at(i * step), bottom + 14, "tick", short_number(i * step));
    }
    out += transfers(one, top);
    for (std::size_t r = 0; r < one.timeline.size(); ++r) {
      const double line = top + row * static_cast<double>(r);
      out += text(left - 8, line + 14, "words end", "rank " + std::to_string(r));
      double busy = 0;
      for (const timed& entry : one.timeline[r]) {
        if (is_computation(entry.step.kind) || entry.step.kind == action::optimizer) busy += entry.end - entry.start;
        out += bar_of(one, entry, line);
      }
      const double end = end_of(one);
      if (end > 0)
        out += text(left + plot_ + 8, line + 14, "words",
                    short_number(std::round(1000 * (1 - busy / end)) / 10) + " % idle");
    }
    y = bottom + 30;
    return out;
  }

  [[nodiscard]] static double end_of(const chart& one) {
    double end = 0;
    for (const auto& list : one.timeline)
      for (const timed& entry : list) end = std::max(end, entry.end);
    return end;
  }

  [[nodiscard]] std::string bar_of(const chart& one, const timed& entry, double line) const {
    const auto style =
        std::find_if(looks.begin(), looks.end(), [&](const look& each) { return each.kind == entry.step.kind; });
    if (style == looks.end() || entry.end <= entry.start) return "";
    const double x = at(entry.start);
    const double width = at(entry.end) - x;
    const std::string tip = to_string(entry.step) + ", " + short_number(entry.start) + " to " + short_number(entry.end);
    const std::string fill = colour(*style, chunk_of(one, entry.step.stage));
    if (entry.step.kind == action::all_reduce) return box(x, line + bar + 2, width, strip, fill, tip);
    std::string out = box(x, line, width, bar, fill, tip);
    const std::string number = std::to_string(entry.step.micro_batch);
    if (is_computation(entry.step.kind) && width >= digit * static_cast<double>(number.size()) + 2)
      out += text(x + width / 2, line + 13, "number", number);
    return out;
  }

  // From the sender's bar to the receiver's; none where there are so many that one would see nothing else.
  [[nodiscard]] std::string transfers(const chart& one, double top) const {
    std::string out;
    std::size_t count = 0;
    for (std::size_t r = 0; r < one.timeline.size(); ++r)
      for (const timed& entry : one.timeline[r]) {
        const bool forward = entry.step.kind == action::send_activation;
        if ((!forward && entry.step.kind != action::send_gradient) || entry.end <= entry.start) continue;
        const int target = entry.step.stage + (forward ? 1 : -1);
        if (target < 0 || as_index(target) >= one.rank_of.size()) continue;
        const int to = one.rank_of[as_index(target)];
        const bool down = to > static_cast<int>(r);
        out += "<line x1=\"" + pixels(at(entry.start)) + "\" y1=\"" +
               pixels(top + row * static_cast<double>(r) + (down ? bar : 0)) + "\" x2=\"" + pixels(at(entry.end)) +
               "\" y2=\"" + pixels(top + row * to + (down ? 0 : bar)) +
               "\" stroke=\"#777777\" stroke-width=\"0.8\"/>\n";
        if (++count > most_transfers) return "";
      }
    return out;
  }

  const std::vector<chart>& charts_;
  double plot_;
  double longest_ = 0;
  int chunks_ = 1;
  std::array<bool, 10> present_{};
};

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// Gantt charts (SVG) below one another, with one scale of time: a row per rank, a bar per computation with the number
/// of its micro-batch where there is room, thin strips for all-reduces, lines for transfers that take time.
/// `width` in pixels.
[[nodiscard]] inline std::string svg(const std::vector<chart>& charts, double width = 1200) {
  return detail::gantt_drawing(charts, std::max(width, 400.0)).draw();
}

/// The chart of a simulated schedule, whose title says what it costs.
[[nodiscard]] inline chart chart_of(const schedule& plan, const simulation& run) {
  double most = 0;
  for (const double peak : run.peak_activation_bytes) most = std::max(most, peak);
  return {plan.name + ": makespan " + detail::short_number(run.makespan) + ", bubble " +
              detail::short_number(run.bubble) + ", peak " + detail::short_number(most),
          plan.rank_of, run.timeline};
}

/// The same as text, a line per rank of up to `columns` letters: F0, B0, W0 and so on, a point for each empty cell.
/// Empty where the shortest computation would get less than two letters.
[[nodiscard]] inline std::string text_chart(const chart& one, int columns = 110) {
  double longest = 0;
  double shortest = 0;
  for (const auto& list : one.timeline)
    for (const timed& entry : list) {
      longest = std::max(longest, entry.end);
      const double seconds = entry.end - entry.start;
      if (is_computation(entry.step.kind) && seconds > 0)
        shortest = shortest > 0 ? std::min(shortest, seconds) : seconds;
    }
  if (shortest == 0 || columns < 10) return "";
  // Whole letters for the shortest one, so that equal computations look equal.
  const double letters = std::floor(columns * shortest / longest);
  if (letters < 2) return "";
  const double scale = std::min(letters, 4.0) / shortest;
  std::string out;
  for (std::size_t r = 0; r < one.timeline.size(); ++r) {
    std::string line(static_cast<std::size_t>(std::llround(longest * scale)), '.');
    for (const timed& entry : one.timeline[r]) {
      if (!is_computation(entry.step.kind)) continue;
      const auto from = static_cast<std::size_t>(std::llround(entry.start * scale));
      const auto to = std::min(line.size(), static_cast<std::size_t>(std::llround(entry.end * scale)));
      if (to <= from) continue;
      std::string word = std::string(name_of(entry.step.kind)) + std::to_string(entry.step.micro_batch);
      if (word.size() > to - from) word = name_of(entry.step.kind).substr(0, to - from);
      if (detail::chunk_of(one, entry.step.stage) % 2 == 1)
        for (char& letter : word)
          if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
      word.resize(to - from, ' ');
      line.replace(from, to - from, word);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += "rank " + std::to_string(r) + " " + line + "\n";
  }
  return out;
}

}  // namespace espalier::pipeline
