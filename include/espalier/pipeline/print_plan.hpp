// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/json.hpp>
#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/table.hpp>
#include <espalier/pipeline/cluster.hpp>
#include <espalier/pipeline/plan.hpp>
#include <espalier/pipeline/planner/reasons.hpp>
#include <espalier/pipeline/profile.hpp>

#include <cstddef>
#include <ostream>
#include <string>

namespace espalier::pipeline::detail {

inline void print_stages(std::ostream& out, const profile& model, const plan& chosen) {
  using espalier::report::format_duration;
  espalier::report::table lines({{"stage"},
                                 {"layers"},
                                 {"first"},
                                 {"devices"},
                                 {"samples"},
                                 {"forward"},
                                 {"backward"},
                                 {"to the next"},
                                 {"all-reduce"},
                                 {"in flight"},
                                 {"memory"}});
  for (std::size_t s = 0; s < chosen.stages.size(); ++s) {
    const plan_stage& one = chosen.stages[s];
    const std::string layers =
        one.last - one.first > 1 ? espalier::detail::joined({one.first, "-", one.last - 1}) : std::to_string(one.first);
    std::string name = model.layers[static_cast<std::size_t>(one.first)].name;
    if (name.size() > 24) name = name.substr(0, 21) + "...";
    const std::size_t rank = static_cast<std::size_t>(chosen.order.rank_of[s]);
    lines.row(s, layers, name, ranges(one.devices), one.share, format_duration(one.forward_seconds),
              format_duration(one.backward_seconds) + (one.recomputed ? " (F again)" : ""),
              s + 1 < chosen.stages.size() ? format_duration(one.transfer_seconds) : "-",
              one.all_reduce_seconds > 0 ? format_duration(one.all_reduce_seconds) : "-", one.in_flight,
              gigabytes(chosen.memory_bytes[rank]));
  }
  lines.print(out, "  ");
}

inline void print_times(std::ostream& out, const plan& chosen) {
  using espalier::report::format_duration;
  using espalier::report::format_percent;
  const plan_times& times = chosen.times;
  espalier::report::table lines({{"of the step"}, {"time"}, {"share"}});
  const auto line = [&](const char* cause, double seconds) {
    lines.row(cause, format_duration(seconds), format_percent(seconds / times.step));
  };
  line("the busiest stage computes", times.work);
  line("it waits (fill, drain, uneven stages)", times.bubble);
  line("transfers add", times.transfer);
  line("all-reduces add", times.all_reduce);
  lines.print(out, "  ");
}

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// Writes a plan as a person reads it: the stages, where the step's time goes, the other plans and why they lost.
inline void print(std::ostream& out, const profile& model, const planner_options& asked, const planning& result) {
  using espalier::report::format_duration;
  const plan& best = result.best;
  const int samples = asked.global_batch / best.micro_batches;
  out << detail::plan_name(best) << "; " << best.micro_batches << " micro-batch" << (best.micro_batches > 1 ? "es" : "")
      << " of " << samples << " sample" << (samples > 1 ? "s" : "") << "\n"
      << format_duration(best.times.step)
      << " a step: " << espalier::report::format_scaled(asked.global_batch / best.times.step, "samples/s") << ", "
      << espalier::report::format_fixed(best.speed_up) << " times one device\n\n";
  detail::print_stages(out, model, best);
  out << "\n";
  detail::print_times(out, best);
  if (result.others.empty()) return;
  out << "\n";
  espalier::report::table lines(
      {{"other plans", "", espalier::report::align::left}, {"micro-batches"}, {"step"}, {"slower"}, {"why"}});
  for (const alternative& other : result.others) {
    if (!other.fits) {
      lines.row(other.name, "-", "-", "-", other.reason);
      continue;
    }
    lines.row(other.name, other.candidate.micro_batches, format_duration(other.candidate.times.step),
              espalier::report::format_percent(other.candidate.times.step / best.times.step - 1), other.reason);
  }
  lines.print(out, "  ");
}

/// A plan as one JSON object: `schedule`, `micro_batches`, `step_seconds`, `speed_up`, `work_seconds`,
/// `bubble_seconds`, `transfer_seconds`, `all_reduce_seconds`, `memory_bytes` by rank, and `stages` with `first_layer`,
/// `last_layer` (the last of its layers), `devices`, `rank`, `recomputed`, `in_flight`, `samples`.
[[nodiscard]] inline std::string to_json(const plan& chosen) {
  using espalier::detail::json_number;
  const auto list = [](const auto& numbers) {
    std::string text = "[";
    for (std::size_t k = 0; k < numbers.size(); ++k)
      text += (k == 0 ? "" : ", ") + json_number(static_cast<double>(numbers[k]));
    return text + "]";
  };
  std::string text = "{\"schedule\": " + espalier::detail::json_string(chosen.schedule_name) +
                     ", \"micro_batches\": " + std::to_string(chosen.micro_batches) +
                     ", \"step_seconds\": " + json_number(chosen.times.step) +
                     ", \"speed_up\": " + json_number(chosen.speed_up) +
                     ", \"work_seconds\": " + json_number(chosen.times.work) +
                     ", \"bubble_seconds\": " + json_number(chosen.times.bubble) +
                     ", \"transfer_seconds\": " + json_number(chosen.times.transfer) +
                     ", \"all_reduce_seconds\": " + json_number(chosen.times.all_reduce) +
                     ", \"memory_bytes\": " + list(chosen.memory_bytes) + ", \"stages\": [";
  for (std::size_t s = 0; s < chosen.stages.size(); ++s) {
    const plan_stage& one = chosen.stages[s];
    text += (s == 0 ? "" : ", ") + std::string("{\"first_layer\": ") + std::to_string(one.first) +
            ", \"last_layer\": " + std::to_string(one.last - 1) + ", \"devices\": " + list(one.devices) +
            ", \"rank\": " + std::to_string(chosen.order.rank_of[s]) +
            ", \"recomputed\": " + (one.recomputed ? "true" : "false") +
            ", \"in_flight\": " + std::to_string(one.in_flight) + ", \"samples\": " + std::to_string(one.share) + "}";
  }
  return text + "]}";
}

/// Returns a planner's result as one JSON object: `plan`, `others` (each with `name`, `fits`, `reason` and, where it
/// fits, `plan`), `partitions`, `evaluated` and `planning_seconds`.
[[nodiscard]] inline std::string to_json(const planning& result) {
  std::string text = "{\"plan\": " + to_json(result.best) + ", \"others\": [";
  for (std::size_t k = 0; k < result.others.size(); ++k) {
    const alternative& other = result.others[k];
    text += (k == 0 ? "" : ", ") + std::string("{\"name\": ") + espalier::detail::json_string(other.name) +
            ", \"fits\": " + (other.fits ? "true" : "false") +
            ", \"reason\": " + espalier::detail::json_string(other.reason) +
            (other.fits ? ", \"plan\": " + to_json(other.candidate) : std::string()) + "}";
  }
  return text + "], \"partitions\": " + std::to_string(result.partitions) +
         ", \"evaluated\": " + std::to_string(result.evaluated) +
         ", \"planning_seconds\": " + espalier::detail::json_number(result.seconds) + "}";
}

}  // namespace espalier::pipeline
