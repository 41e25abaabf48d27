// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How ESPALIER_CHECK is read: the compiled half of checks.hpp.
#include <espalier/base/light_std/joined.hpp>
#include <espalier/tensor/run/execute/checks.hpp>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace espalier::detail {

ESPALIER_INLINE run_checks checks_in(const char* text) {
  run_checks found;
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
    constexpr std::string_view replicas = "replicas";
    bool is_known = true;
    if (word == "nan") {
      found.nan = true;
    } else if (word == replicas) {
      found.replicas_every = 100;
    } else if (word.size() > replicas.size() + 1 && word.substr(0, replicas.size() + 1) == "replicas:") {
      std::int64_t every = 0;
      for (const char digit : word.substr(replicas.size() + 1)) {
        is_known = is_known && digit >= '0' && digit <= '9' && every < 1'000'000'000;
        every = is_known ? 10 * every + (digit - '0') : 0;
      }
      is_known = every > 0;
      found.replicas_every = every;
    } else {
      is_known = word.empty();
    }
    if (!is_known) {
      constexpr const char* remedy =
          "\" is no check: give a comma list of replicas, replicas:n (compare copies on every n-th call) and nan";
      throw std::invalid_argument(
          joined({"espalier: ESPALIER_CHECK is \"", text, "\", of which \"", std::string(word), remedy}));
    }
  }
  return found;
}

ESPALIER_INLINE run_checks checks_of_environment() { return checks_in(std::getenv("ESPALIER_CHECK")); }

}  // namespace espalier::detail
