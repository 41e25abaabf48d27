// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/json.hpp>
#include <espalier/base/light_std/joined.hpp>
#include <espalier/pipeline/chart.hpp>
#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/simulate.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace espalier::pipeline {

/// A run in the trace event format of Chrome, for chrome://tracing or Perfetto: each chart is a process, each rank
/// three threads, of computations, transfers and all-reduces. Seconds become microseconds.
[[nodiscard]] inline std::string chrome_trace(const std::vector<chart>& charts) {
  using espalier::detail::json_number;
  using espalier::detail::json_string;
  std::string events;
  const auto add = [&](const std::string& event) { events += (events.empty() ? "\n" : ",\n") + event; };
  const auto name = [&](const char* kind, std::size_t process, std::size_t thread, const std::string& text) {
    add("{\"ph\": \"M\", \"name\": \"" + std::string(kind) + "\", \"pid\": " + std::to_string(process) +
        ", \"tid\": " + std::to_string(thread) + ", \"args\": {\"name\": " + json_string(text) + "}}");
  };
  for (std::size_t p = 0; p < charts.size(); ++p) {
    name("process_name", p, 0, charts[p].title);
    for (std::size_t r = 0; r < charts[p].timeline.size(); ++r) {
      const std::string rank = "rank " + std::to_string(r);
      name("thread_name", p, 3 * r, rank);
      name("thread_name", p, 3 * r + 1, rank + ", transfers");
      name("thread_name", p, 3 * r + 2, rank + ", all-reduces");
      for (const timed& entry : charts[p].timeline[r]) {
        const action kind = entry.step.kind;
        const bool waits = kind == action::receive_activation || kind == action::receive_gradient;
        if (waits || (!is_computation(kind) && entry.end <= entry.start)) continue;
        const bool sends = kind == action::send_activation || kind == action::send_gradient;
        const std::size_t thread = 3 * r + (sends ? 1 : kind == action::all_reduce ? 2 : 0);
        std::string label(name_of(kind));
        std::string details = "\"stage\": " + std::to_string(entry.step.stage);
        if (kind < action::all_reduce) {
          espalier::detail::append_text(label, {" ", entry.step.micro_batch});
          details += ", \"micro_batch\": " + std::to_string(entry.step.micro_batch);
        }
        add("{\"ph\": \"X\", \"name\": " + json_string(label) +
            ", \"cat\": " + json_string(std::string(name_of(kind))) + ", \"pid\": " + std::to_string(p) +
            ", \"tid\": " + std::to_string(thread) + ", \"ts\": " + json_number(entry.start * 1e6) +
            ", \"dur\": " + json_number((entry.end - entry.start) * 1e6) + ", \"args\": {" + details + "}}");
      }
    }
  }
  return "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [" + events + "\n]}\n";
}

}  // namespace espalier::pipeline
