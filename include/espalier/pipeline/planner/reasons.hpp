// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/table.hpp>
#include <espalier/pipeline/plan.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace espalier::pipeline::detail {

/// "0-13" for devices that follow one another, "3-5,13-15" for others.
[[nodiscard]] inline std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t k = 0; k < numbers.size();) {
    std::size_t end = k + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ",";
    text += std::to_string(numbers[k]);
    if (end - k > 1) espalier::detail::append_text(text, {"-", numbers[end - 1]});
    k = end;
  }
  return text;
}

/// "14:2": the devices of each rank.
[[nodiscard]] inline std::string widths(const plan& chosen) {
  std::string text;
  for (int r = 0; r < chosen.order.ranks(); ++r)
    espalier::detail::append_text(text, {r == 0 ? "" : ":", chosen.stages[static_cast<std::size_t>(r)].devices.size()});
  return text;
}

/// "data parallel", "2 stages 14:2, 1f1b", "8 stages on 4 groups 4:4:4:4, interleaved".
[[nodiscard]] inline std::string plan_name(const plan& chosen) {
  if (chosen.stages.size() == 1) return "data parallel";
  std::string text = std::to_string(chosen.stages.size()) + " stages";
  if (chosen.order.ranks() < static_cast<int>(chosen.stages.size()))
    text += " on " + std::to_string(chosen.order.ranks()) + " groups";
  return text + " " + widths(chosen) + ", " + chosen.schedule_name;
}

/// Bytes in units of 10^9.
[[nodiscard]] inline std::string gigabytes(double bytes) { return espalier::detail::three_digits(bytes / 1e9) + " GB"; }

/// Why `lost` takes longer than `best`: the cause that adds most to it.
[[nodiscard]] inline std::string reason_for(const plan_times& lost, const plan_times& best) {
  struct cause {
    double seconds;
    const char* text;
  };
  const std::array<cause, 4> causes{{{lost.work - best.work, "its busiest stage computes "},
                                     {lost.bubble - best.bubble, "it waits "},
                                     {lost.transfer - best.transfer, "transfers hold it up "},
                                     {lost.all_reduce - best.all_reduce, "all-reduces hold it up "}}};
  if (lost.step <= best.step * (1 + 1e-9)) return "as fast, but with more parts";
  const cause* most = &causes.front();
  for (const cause& one : causes)
    if (one.seconds > most->seconds) most = &one;
  return most->text + espalier::report::format_duration(most->seconds) + " longer";
}

}  // namespace espalier::pipeline::detail
