// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// together: passes

#include <espalier/tensor/core/partition/memory.hpp>
#include <espalier/tensor/run/execute/steps.hpp>

#include <espalier/testing/executed.hpp>
#include <support/spmd_model.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace {

using namespace espalier;

/// The definition of `place_buffers` once more: beside all buffers placed before that live at the same time, the lowest
/// of the smallest gaps that are large enough.
std::int64_t tightest_gap(const std::vector<buffer>& placed, const std::vector<std::int64_t>& at, const buffer& b) {
  std::vector<std::pair<std::int64_t, std::int64_t>> taken;
  for (std::size_t p = 0; p < placed.size(); ++p) {
    if (placed[p].first <= b.last && b.first <= placed[p].last) taken.emplace_back(at[p], at[p] + placed[p].bytes);
  }
  std::sort(taken.begin(), taken.end());
  std::int64_t best = -1;
  std::int64_t best_gap = 0;
  std::int64_t end = 0;
  for (const auto& [begin, stop] : taken) {
    if (begin - end >= b.bytes && (best < 0 || begin - end < best_gap)) {
      best = end;
      best_gap = begin - end;
    }
    end = std::max(end, stop);
  }
  return best < 0 ? end : best;
}

std::vector<buffer> random_buffers(std::mt19937& random, int count, int launches) {
  std::vector<buffer> made;
  for (int n = 0; n < count; ++n) {
    const int first = static_cast<int>(random() % static_cast<unsigned>(launches));
    // Mostly short lives, some that last nearly all the time.
    const int most = random() % 4 == 0 ? launches : 4;
    const int last = std::min(launches - 1, first + static_cast<int>(random() % static_cast<unsigned>(most)));
    made.push_back({n, 64 * static_cast<std::int64_t>(1 + random() % 40), first, last});
  }
  return made;
}

}  // namespace

TEST_CASE("buffers go into the tightest gap beside those they live with, in however many goes", "[partition]") {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    const int count = 1 + static_cast<int>(random() % 60);
    const int launches = 1 + static_cast<int>(random() % 50);
    const std::vector<buffer> buffers = random_buffers(random, count, launches);
    std::vector<int> order(buffers.size());
    sort_buffers(buffers.data(), count, order.data());

    std::vector<std::int64_t> offset(buffers.size(), -1);
    const int middle = count / 3;
    place_buffers(buffers.data(), order.data(), 0, middle, launches, offset.data());
    const std::int64_t size = place_buffers(buffers.data(), order.data(), middle, count, launches, offset.data());

    std::vector<buffer> placed;
    std::vector<std::int64_t> at;
    std::int64_t end = 0;
    for (const int n : order) {
      const buffer& b = buffers[static_cast<std::size_t>(n)];
      INFO("trial " << trial << ", " << count << " buffers over " << launches << " units, buffer " << n);
      REQUIRE(offset[static_cast<std::size_t>(n)] == tightest_gap(placed, at, b));
      placed.push_back(b);
      at.push_back(offset[static_cast<std::size_t>(n)]);
      end = std::max(end, at.back() + b.bytes);
    }
    REQUIRE(size == end);
    REQUIRE(size >= live_bytes(buffers.data(), count, launches));
  }
}

TEST_CASE("what is stacked is computed in its place, and copied only where it lives elsewhere", "[partition]") {
  using namespace espalier::test;
  for (const bool is_carry : {false, true}) {
    CAPTURE(is_carry);
    model m;
    const int state = m.argument({4, 3});
    emit::region_begin(m.b, 5, false, false);
    const int carry = emit::region_parameter(m.b, state);
    const int value = m.unary(ops::tanh, carry);
    const int next = emit::region_yield(m.b, carry, m.multiply(value, value));
    emit::region_end(m.b);
    m.result(emit::region_result(m.b, next));
    m.result(emit::loop_stack(m.b, is_carry ? carry : value));
    const spmd_program program = run_merged_on({1}, m);
    const run_time_plan plan(mesh_of({1}), program.parts.program);
    const detail::step_list steps(plan.tables());
    int copies = 0;
    for (int n = 0; n < steps.size(); ++n) copies += steps[n].kind == detail::step_kind::stack ? 1 : 0;
    CHECK(copies == (is_carry ? 1 : 0));
  }
}
