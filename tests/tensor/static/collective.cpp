// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include <espalier/base/collective.hpp>
#include <espalier/comm/network.hpp>
#include <espalier/comm/schedule/call.hpp>

#include <string_view>

/// Every kind of collective has a name of its own, and what is said of kinds fits together.
namespace ep = espalier;

namespace {

/// Rows stand in the order of the enumerators, of which each has one, and say what fits together.
constexpr bool is_consistent() {
  for (int k = 0; k < ep::collective_kinds; ++k) {
    const ep::collective_facts& row = ep::collective_table[k];
    if (static_cast<int>(row.kind) != k) return false;
    if ((row.before == ep::array_share::none) != (row.after == ep::array_share::none)) return false;
    if (row.moves && !row.is_instruction) return false;
    if (row.before == ep::array_share::whole && !row.reduces) return false;
  }
  return true;
}
static_assert(is_consistent() && ep::collective_kinds == static_cast<int>(ep::collective::barrier) + 1);

constexpr bool names_differ() {
  for (int a = 0; a < ep::collective_kinds; ++a) {
    const std::string_view name = ep::name_of(static_cast<ep::collective>(a));
    if (name == "?") return false;
    for (int b = 0; b < a; ++b) {
      if (name == ep::name_of(static_cast<ep::collective>(b))) return false;
    }
  }
  return true;
}
static_assert(names_differ());

constexpr int count(bool (*holds)(ep::collective)) {
  int found = 0;
  for (int k = 0; k < ep::collective_kinds; ++k) found += holds(static_cast<ep::collective>(k)) ? 1 : 0;
  return found;
}
static_assert(count(ep::moves_tensors) == 6 && count(ep::comm::has_schedules) == 8 && count(ep::comm::has_trees) == 5);

constexpr bool trees_make_schedules() {
  for (int k = 0; k < ep::collective_kinds; ++k) {
    const auto kind = static_cast<ep::collective>(k);
    if (ep::comm::has_trees(kind) && !ep::comm::has_schedules(kind)) return false;
    if (ep::comm::has_trees(kind) && ep::comm::has_blocks(kind) && ep::comm::has_root(kind)) return false;
  }
  return true;
}
static_assert(trees_make_schedules());

}  // namespace
