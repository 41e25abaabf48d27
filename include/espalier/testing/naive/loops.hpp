// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/naive/lookups.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

/// The meanings of loops.
namespace espalier::test::naive {

/// Meanings of carries, slices, results, stacks and sums of loops.
class loop_equations : protected lookup_equations {
 protected:
  using lookup_equations::lookup_equations;

  /// The value of `id` in iteration `k` (by index, not by order) of the loop it belongs to.
  const tensor_value& value_in(int id, int region, std::int64_t k) {
    const std::int64_t before = iteration(region);
    iteration(region) = k;
    const tensor_value& found = value(id);
    iteration(region) = before;
    return found;
  }
  /// The number of iterations of a loop, in the current iterations of those around it.
  [[nodiscard]] std::int64_t count_of(int region) {
    if (g_[region].operand_count == 0) return most_of(region);
    const double entry = operand(region, 0).data.at(0);
    const int goes_on = goes_on_[static_cast<std::size_t>(region)];
    const region_kind kind = attributes_of<region_attributes>(g_[region]).kind;
    switch (kind) {
      case region_kind::branch: return entry == g_[region].scalar ? 1 : 0;
      case region_kind::up_to: return std::clamp<std::int64_t>(static_cast<std::int64_t>(entry), 0, most_of(region));
      case region_kind::until:
      case region_kind::until_or_at_most: {
        if (goes_on < 0) refuse(region, "never ends");
        std::int64_t count = entry != 0 ? 1 : 0;
        while (count > 0 && count < most_of(region) && value_in(goes_on, region, count - 1).data.at(0) != 0) ++count;
        if (kind == region_kind::until && count == most_of(region)) refuse(region, "runs longer than tests do");
        return count;
      }
      default: refuse(region, "has no largest number of iterations");
    }
  }
  /// The index of the nth iteration to run.
  [[nodiscard]] std::int64_t nth(int region, std::int64_t n) {
    return runs_down(region) ? count_of(region) - 1 - n : n;
  }

  tensor_value carry(int id) {
    const int region = g_[id].region;
    if (g_[g_[id].operand[0]].region == region) refuse(id, "starts with a value of its own loop");
    if (iteration(region) == nth(region, 0)) return operand(id, 0);
    const int next = passed_on_by_[static_cast<std::size_t>(id)];
    if (next < 0) refuse(id, "is passed on by nothing");
    const int passed = g_[next].operand[1];
    // What is passed on may be a value from outside.
    return value_in(passed, region, iteration(region) + (runs_down(region) ? 1 : -1));
  }

  tensor_value loop_slice(int id) {
    const tensor_value& whole = operand(id, 0);
    const std::int64_t k = iteration(g_[id].region);
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      place_in i;
      i[0] = k;
      for (int d = 0; d < g_[id].shape.rank; ++d) i[d + 1] = to[d];
      return element(whole, i);
    });
  }

  tensor_value region_result(int id) {
    const int next = g_[id].operand[0];
    if (g_[next].op != &ops::region_yield) refuse(id, "is the result of no carry");
    const int region = g_[next].region;
    const int carried = g_[next].operand[0];
    const std::int64_t count = count_of(region);
    if (count == 0) return value(g_[carried].operand[0]);
    // In order, so that no iteration has to ask for a chain of those before it.
    for (std::int64_t n = 0; n + 1 < count; ++n) value_in(g_[next].operand[1], region, nth(region, n));
    return value_in(g_[next].operand[1], region, nth(region, count - 1));
  }

  /// The loop of the values that a stack or sum collects.
  [[nodiscard]] int collecting_region(int id) const {
    const int region = g_[g_[id].operand[0]].region;
    if (region < 0 || g_[region].region != g_[id].region) refuse(id, "collects no value of a loop where it stands");
    return region;
  }

  tensor_value loop_stack(int id) {
    const int region = collecting_region(id);
    if (g_[id].shape[0] != most_of(region)) refuse(id, "has another length than its loop");
    const std::int64_t count = count_of(region);
    for (std::int64_t n = 0; n < count; ++n) value_in(g_[id].operand[0], region, nth(region, n));
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      // Nothing reads layers of iterations that there were not.
      if (to[0] >= count) return 0.0;
      place_in i;
      for (int d = 1; d < g_[id].shape.rank; ++d) i[d - 1] = to[d];
      return element(value_in(g_[id].operand[0], region, to[0]), i);
    });
  }

  tensor_value loop_sum(int id) {
    const int region = collecting_region(id);
    tensor_value made = tensor_of(g_[id].shape, [](const place_in&) { return 0.0; });
    std::vector<double> sizes(made.data.size(), 0.0);
    const std::int64_t count = count_of(region);
    for (std::int64_t n = 0; n < count; ++n) {
      const tensor_value& term = value_in(g_[id].operand[0], region, nth(region, n));
      for (std::size_t i = 0; i < made.data.size(); ++i) {
        made.data[i] += term.data.at(i);
        sizes[i] += std::abs(term.data[i]);
      }
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) note(g_[id].type, made.data[i], sizes[i]);
    return made;
  }
};

}  // namespace espalier::test::naive
