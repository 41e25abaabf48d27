// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/engine/rank_texts.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/messages/conversation.hpp>
#include <espalier/pipeline/stages/messages/transport.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>
#include <espalier/pipeline/stages/plan/flow.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace espalier::pipeline::detail {

/// Returns the text of an expired wait: asks where all ranks are, and says which ranks hold the others up.
[[nodiscard]] inline std::string expired_text(transport& ranks, const execution_plan& plan, const layer_model& model,
                                              const flow& lists, const std::string& own_place,
                                              const std::string& awaited) {
  const double deadline = ranks.deadline().count();
  std::vector<rank_place> places = ranks.ask(std::chrono::duration<double>(std::min(2.0, std::max(0.1, deadline / 4))));
  std::vector<std::string> whereabouts_of;
  for (int k = 0; k < ranks.size(); ++k) {
    whereabouts_of.push_back(whereabouts(plan, lists.group(k)));
    rank_place& place = places[as_index(k)];
    const std::vector<std::string> texts = rank_texts(plan, model, lists.list(k)).all();
    if (!place.known && place.number >= 0 && as_index(place.number) < texts.size())
      place.text = texts[as_index(place.number)];
  }
  return "rank " + std::to_string(ranks.rank()) + " waited " + seconds_text(deadline) + " s in " + own_place + " for " +
         awaited + who_holds_up(places, whereabouts_of, ranks.rank());
}

}  // namespace espalier::pipeline::detail
