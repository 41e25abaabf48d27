// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/comm/run/choice.hpp>
#include <espalier/comm/schedule/routes.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

// Plans as numbers, to be handed out (agreement.hpp).
namespace espalier::comm::detail {

using plan_words = std::vector<std::int64_t>;

inline void put(plan_words& to, const std::vector<int>& list) {
  to.push_back(static_cast<std::int64_t>(list.size()));
  for (const int one : list) to.push_back(one);
}
[[nodiscard]] inline std::vector<int> take_list(const plan_words& from, std::size_t& at) {
  std::vector<int> list(static_cast<std::size_t>(from.at(at++)));
  for (int& one : list) one = static_cast<int>(from.at(at++));
  return list;
}

/// Rates and trees, without the certificate.
[[nodiscard]] inline plan_words to_words(const packing& trees) {
  plan_words made{static_cast<std::int64_t>(trees.kind), trees.root, trees.rate.numerator, trees.rate.denominator,
                  static_cast<std::int64_t>(trees.trees.size())};
  for (const tree& t : trees.trees) {
    made.push_back(t.root);
    made.push_back(t.weight.numerator);
    made.push_back(t.weight.denominator);
    put(made, t.down);
    put(made, t.up);
  }
  return made;
}
[[nodiscard]] inline packing packing_from(const plan_words& from) {
  packing made;
  made.kind = static_cast<collective>(from.at(0));
  made.root = static_cast<int>(from.at(1));
  made.rate = {from.at(2), from.at(3)};
  std::size_t at = 5;
  for (std::int64_t n = 0; n < from.at(4); ++n) {
    tree t;
    t.root = static_cast<int>(from.at(at++));
    t.weight.numerator = from.at(at++);
    t.weight.denominator = from.at(at++);
    t.down = take_list(from, at);
    t.up = take_list(from, at);
    made.trees.push_back(std::move(t));
  }
  return made;
}

[[nodiscard]] inline plan_words to_words(const std::vector<route>& routes) {
  plan_words made{static_cast<std::int64_t>(routes.size())};
  for (const route& r : routes) {
    made.push_back(r.from);
    made.push_back(r.to);
    made.push_back(std::bit_cast<std::int64_t>(r.weight));
    put(made, r.edges);
  }
  return made;
}
[[nodiscard]] inline std::vector<route> routes_from(const plan_words& from) {
  std::vector<route> made(static_cast<std::size_t>(from.at(0)));
  std::size_t at = 1;
  for (route& r : made) {
    r.from = static_cast<int>(from.at(at++));
    r.to = static_cast<int>(from.at(at++));
    r.weight = std::bit_cast<double>(from.at(at++));
    r.edges = take_list(from, at);
  }
  return made;
}

[[nodiscard]] inline plan_words to_words(const std::vector<choice>& choices) {
  plan_words made{static_cast<std::int64_t>(choices.size())};
  for (const choice& c : choices) {
    made.push_back(static_cast<std::int64_t>(c.how));
    made.push_back(c.chunk);
    made.push_back(c.by ? static_cast<std::int64_t>(*c.by) : -1);
    made.push_back(c.parts);
  }
  return made;
}
[[nodiscard]] inline std::vector<choice> choices_from(const plan_words& from, std::size_t at = 0) {
  std::vector<choice> made(static_cast<std::size_t>(from.at(at++)));
  for (choice& c : made) {
    c.how = static_cast<method>(from.at(at++));
    c.chunk = from.at(at++);
    const std::int64_t by = from.at(at++);
    if (by >= 0) c.by = static_cast<algorithm>(by);
    c.parts = static_cast<int>(from.at(at++));
  }
  return made;
}

}  // namespace espalier::comm::detail
