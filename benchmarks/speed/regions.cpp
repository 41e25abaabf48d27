// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// What an iteration of a loop until a condition, and a branch in it, cost beside the same by hand.

#include "measured_row.hpp"

#include <espalier/tensor/core/ops/branch.hpp>
#include <espalier/tensor/core/ops/while_loop.hpp>

namespace espalier::benchmarks {

namespace {

constexpr int size = 1024;
constexpr int iterations = 10000;
using numbers = f64<size>;

/// x -> x / 2 + 1 as often as `limit` says, and the square of the last change. `Branches`: every second time another
/// way, x / 4 + 2.
template <bool Branches> struct until {
  static constexpr auto next(const auto& x, const auto& n) {
    if constexpr (Branches) {
      return cond((n & 1) == 0, [&] { return 0.5 * x + 1.0; }, [&] { return 0.25 * x + 2.0; });
    } else {
      return 0.5 * x + 1.0;
    }
  }
  constexpr auto operator()(const auto& x, const auto& limit) const {
    const auto step = [](const auto& state) {
      const auto [before, change, n] = state;
      const auto after = next(before, n);
      const auto difference = after - before;
      return results(after, sum(difference * difference), n + 1);
    };
    return while_loop([&](const auto& state) { return state.template get<2>() < limit; }, step,
                      results(x, constant<f64<>>(x, 0), constant<i32<>>(x, 0)));
  }
};

template <bool Branches> double by_hand(std::vector<double>& x, int limit) {
  double change = 0;
  for (int n = 0; n < limit; ++n) {
    const double factor = Branches && n % 2 != 0 ? 0.25 : 0.5;
    const double more = Branches && n % 2 != 0 ? 2 : 1;
    double square = 0;
    double* const at = x.data();
#pragma omp simd reduction(+ : square)
    for (int i = 0; i < size; ++i) {
      const double after = factor * at[i] + more;
      const double difference = after - at[i];
      square += difference * difference;
      at[i] = after;
    }
    change = square;
    keep(change);
  }
  return change;
}

template <bool Branches> void measure(speed_rows& rows, std::string_view row) {
  if (!rows.wants(row)) return;
  using measured = program<mesh<>, until<Branches>, numbers, i32<>>;
  world here(mesh<>::value);
  runner<measured> run(here);
  auto x = run.template argument<0>();
  auto limit = run.template argument<1>();
  x.for_each([](double& e, std::int64_t i) { e = static_cast<double>(i); });
  limit.for_each([](std::int32_t& e, std::int64_t) { e = iterations; });
  const double ours = rows.milliseconds([&] { keep(run(x, limit)); });
  const double hand = rows.milliseconds([&] {
    std::vector<double> start(size);
    for (int i = 0; i < size; ++i) start[static_cast<std::size_t>(i)] = i;
    keep(by_hand<Branches>(start, iterations));
  });
  // Microseconds an iteration.
  report(speed_rows::name_of(row), "ours", (ours - hand) * 1e3 / iterations, "us more",
         "\"ours\": " + std::to_string(ours * 1e3 / iterations) +
             ", \"by_hand\": " + std::to_string(hand * 1e3 / iterations));
}

}  // namespace

void measure_regions(speed_rows& rows) {
  measure<false>(rows, "regions/while");
  measure<true>(rows, "regions/while_cond");
}

}  // namespace espalier::benchmarks
