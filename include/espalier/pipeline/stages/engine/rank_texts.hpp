// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/messages/conversation.hpp>
#include <espalier/pipeline/stages/messages/transport.hpp>
#include <espalier/pipeline/stages/plan/check_plan.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <list>
#include <mutex>
#include <string>
#include <vector>

namespace espalier::pipeline::detail {

/// The names of one rank's places in a step. They are made once, so that recording the place costs a number.
class rank_texts {
 public:
  rank_texts() = default;
  rank_texts(const execution_plan& plan, const layer_model& model, const std::vector<instruction>& list) {
    for (const instruction& step : list) {
      first_.push_back(static_cast<int>(texts_.size()));
      const layer_run run = plan.stages[as_index(step.stage)];
      std::string text =
          std::string(name_of(step.kind)) + " of stage " + std::to_string(step.stage) + " (" + run_text(run) + ")";
      if (step.kind < action::all_reduce) text += ", micro-batch " + std::to_string(step.micro_batch);
      texts_.push_back(text);
      for (int l = run.first; is_computation(step.kind) && l < run.last; ++l)
        texts_.push_back(text + ", " + layer_text(model, l));
    }
    first_.push_back(static_cast<int>(texts_.size()));
    texts_.emplace_back("the end of a step");
  }

  [[nodiscard]] const std::vector<std::string>& all() const { return texts_; }
  /// Returns the number of an instruction's text, and of that of layer number k of its stage in it. After the last
  /// instruction it is that of the end of the step.
  [[nodiscard]] int at(std::size_t index) const { return first_[std::min(index, first_.size() - 1)]; }
  [[nodiscard]] int at(std::size_t index, int k) const { return at(index) + 1 + k; }
  [[nodiscard]] const std::string& text(std::size_t index) const { return texts_[as_index(at(index))]; }

 private:
  std::vector<std::string> texts_;
  std::vector<int> first_;
};

/// Texts that stay until the program ends: a signal's handler may read them, whatever has been destroyed by then.
[[nodiscard]] inline const std::vector<std::string>& kept_for_good(const std::vector<std::string>& texts) {
  static std::mutex one_at_a_time;
  static auto* const all = new std::list<std::vector<std::string>>;  // NOLINT: not destroyed at the end
  const std::lock_guard lock(one_at_a_time);
  return all->emplace_back(texts);
}

/// " (stage 1: layers 2 to 3)": what a group of ranks works on.
[[nodiscard]] inline std::string whereabouts(const execution_plan& plan, int group) {
  std::string text;
  for (int s = 0; s < plan.order.stages(); ++s)
    if (plan.group_of(s) == group)
      text += (text.empty() ? " (stage " : ", stage ") + std::to_string(s) + ": " + run_text(plan.stages[as_index(s)]);
  return text.empty() ? text : text + ")";
}

/// Returns the end of the message of a wait that has expired: which ranks wait for no other rank, and which do.
[[nodiscard]] inline std::string who_holds_up(const std::vector<rank_place>& places,
                                              const std::vector<std::string>& whereabouts_of, int own) {
  std::string busy;
  std::string waiting;
  for (std::size_t k = 0; k < places.size(); ++k) {
    if (static_cast<int>(k) == own) continue;
    const std::string name = "\n  rank " + std::to_string(k) + whereabouts_of[k];
    if (!places[k].known) {
      busy += name + " does not answer: it computes, is stopped, or has ended";
      if (!places[k].text.empty()) busy += "; it is in " + places[k].text;
    } else if (places[k].waiting) {
      waiting += name + " waits in " + places[k].text;
    } else {
      busy += name + " is still in " + places[k].text;
    }
  }
  std::string text;
  if (!busy.empty()) text += "\n  not waiting for another rank:" + busy;
  if (!waiting.empty()) text += "\n  waiting, too:" + waiting;
  return text + "\n  to wait longer: set ESPALIER_DEADLINE_SECONDS";
}

}  // namespace espalier::pipeline::detail
