// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/messages/conversation.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>
#include <espalier/pipeline/stages/plan/plan_words.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier::pipeline::detail {

/// Rank 0's plan, on all ranks.
/// Throws std::invalid_argument on all of them where it has none, or one has another plan or model.
[[nodiscard]] inline execution_plan agree_on(conversation talk, const std::optional<execution_plan>& plan,
                                             const layer_model& model, int rank) {
  std::vector<std::int64_t> words;
  if (rank == 0 && plan) words = words_of(*plan);
  talk.broadcast(words);
  if (words.empty())
    throw std::invalid_argument("rank 0 has no plan: pass one to its engine, which sends it to the others");
  execution_plan agreed = plan_of(words);
  const std::int64_t sum = checksum_of(agreed);
  const std::vector<std::int64_t> mine{plan ? checksum_of(*plan) : sum, checksum_of(model)};
  std::string verdict;
  const auto all = talk.gather(mine);
  for (std::size_t k = 0; k < all.size() && verdict.empty(); ++k) {
    if (all[k][0] != sum)
      verdict = "rank " + std::to_string(k) + " has another plan than rank 0: give all ranks one plan, or rank 0 alone";
    if (all[k][1] != mine[1])
      verdict = "rank " + std::to_string(k) +
                " has another model than rank 0 (layers, sizes or names differ): start one program on all ranks";
  }
  talk.agree<std::invalid_argument>(verdict);
  return agreed;
}

}  // namespace espalier::pipeline::detail
