// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never

#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/run/execute/copy.hpp>
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/runner.hpp>

#include <support/instrumented.hpp>

#include <espalier/testing/random_graph.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

/// Random calls of programs with donated arguments: arrays are kept, copied, given again, and given twice. A model that
/// knows nothing of memory says what each of them holds.
namespace ep = espalier;

namespace {

using ep::test::random_source;
using numbers = std::vector<float>;
using vector = ep::f32<5>;  // uneven on two and four devices

template <int N> struct data : ep::axis<"data", N> {};
template <int N> using mesh = ep::mesh<data<N>>;
template <int N> using split = ep::sharded<vector, data<N>>;

/// The donated arguments come back in each other's places, in a loop that exchanges them three times; each of the other
/// results has memory of its own, and the last is an argument as it is.
template <int N> struct exchange {
  constexpr auto operator()(const auto& p, const auto& q, const auto& x) const {
    const auto [a, b] = ep::repeat<3>(
        [&](const auto& s) {
          const auto [first, second] = s;
          return ep::results(second + x, first * 0.5);
        },
        ep::results(p, q));
    return ep::results(a, b, p - q, x);
  }
};
template <int N>
using exchanging = ep::program<mesh<N>, exchange<N>, ep::donated<split<N>>, ep::donated<split<N>>, split<N>>;

/// One donated argument, and a number.
template <int N> struct move_on {
  constexpr auto operator()(const auto& p, const auto& x) const {
    return ep::results(p * 0.5 + x, ep::sum(p) - ep::sum(x));
  }
};
template <int N> using moving = ep::program<mesh<N>, move_on<N>, ep::donated<split<N>>, split<N>>;

/// An array as the model knows it: numbers, or spent. Handles of the same array have one identity.
struct known {
  numbers values = numbers(5, 0);
  bool is_spent = false;
  int identity = 0;
};

template <int N> class calls {
  static constexpr int slots = 6;
  using array = ep::sharded_array<vector>;

 public:
  explicit calls(std::uint32_t seed) : random_(seed), world_(mesh<N>::value), exchange_(world_), move_(world_) {
    for (std::size_t n = 0; n < slots; ++n) {
      arrays_[n] = move_.template argument<0>();
      fill(n);
    }
  }

  /// One thing that a user may do, and what the model says about it.
  void step() {
    const std::size_t a = any();
    const std::size_t b = any();
    const std::size_t c = any();
    const std::size_t to = any();
    switch (random_.integer(0, 7)) {
      case 0: arrays_[a] = move_.template argument<0>(); return fill(a);
      case 1:
        arrays_[a] = arrays_[b];
        known_[a] = known_[b];
        return;
      case 2:
        if (known_[b].is_spent) return;
        arrays_[a] = ep::copy(arrays_[b]);
        known_[a] = known_[b];
        known_[a].identity = ++identities_;
        return;
      case 3:
      case 4: return move_on(a, b, to);
      default: return exchange_all(a, b, c, to);
    }
  }
  /// The first array that is not what the model says, or "".
  std::string fault() {
    for (std::size_t n = 0; n < slots; ++n) {
      if (known_[n].is_spent) continue;
      if (ep::gather(world_, arrays_[n]) != known_[n].values) return "array " + std::to_string(n) + " is another one";
    }
    return "";
  }
  [[nodiscard]] int calls_made() const { return calls_; }
  [[nodiscard]] int refused() const { return refused_; }

 private:
  std::size_t any() { return static_cast<std::size_t>(random_.integer(0, slots - 1)); }
  void fill(std::size_t n) {
    known_[n] = made();
    for (float& one : known_[n].values) one = static_cast<float>(random_.integer(-8, 8));
    arrays_[n].for_each([&](float& e, std::int64_t at) { e = known_[n].values[static_cast<std::size_t>(at)]; });
  }
  known made() {
    known one;
    one.identity = ++identities_;
    return one;
  }
  void spend(std::size_t n) { known_[n].is_spent = true; }

  void move_on(std::size_t p, std::size_t x, std::size_t to) {
    if (known_[p].is_spent || known_[x].is_spent) {
      ++refused_;
      CHECK_THROWS_AS(move_(arrays_[p], arrays_[x]), ep::argument_error);
      return;
    }
    ++calls_;
    known next = made();
    float sum = 0;
    for (std::size_t i = 0; i < 5; ++i) {
      next.values[i] = known_[p].values[i] * 0.5F + known_[x].values[i];
      sum += known_[p].values[i] - known_[x].values[i];
    }
    const auto& results = move_(arrays_[p], arrays_[x]);
    CHECK(ep::gather(world_, results.template get<1>())[0] == sum);
    arrays_[to] = results.template get<0>();
    spend(p);
    known_[to] = next;
  }
  void exchange_all(std::size_t p, std::size_t q, std::size_t x, std::size_t to) {
    const bool is_spent = known_[p].is_spent || known_[q].is_spent || known_[x].is_spent;
    if (is_spent || known_[p].identity == known_[q].identity) {
      ++refused_;
      CHECK_THROWS_AS(exchange_(arrays_[p], arrays_[q], arrays_[x]), ep::argument_error);
      return;
    }
    ++calls_;
    known a = made();
    known b = made();
    known difference = made();
    known same = made();
    a.values = known_[p].values;
    b.values = known_[q].values;
    same.values = known_[x].values;
    for (std::size_t i = 0; i < 5; ++i) {
      difference.values[i] = a.values[i] - b.values[i];
      for (int n = 0; n < 3; ++n) {
        const float first = a.values[i];
        a.values[i] = b.values[i] + known_[x].values[i];
        b.values[i] = first * 0.5F;
      }
    }
    const auto& results = exchange_(arrays_[p], arrays_[q], arrays_[x]);
    // Some results are kept, in any places, and some are not.
    const bool keeps_both = random_.chance(0.6);
    const std::size_t other = (to + 1) % slots;
    const std::size_t third = (to + 2) % slots;
    const bool keeps_rest = random_.chance(0.5);
    const auto all = results;
    spend(p);
    spend(q);
    arrays_[to] = all.template get<0>();
    known_[to] = a;
    if (keeps_both) {
      arrays_[other] = all.template get<1>();
      known_[other] = b;
    }
    if (keeps_rest) {
      const bool takes_argument = random_.chance(0.5);
      arrays_[third] = takes_argument ? all.template get<3>() : all.template get<2>();
      known_[third] = takes_argument ? same : difference;
    }
    CHECK(ep::gather(world_, all.template get<2>()) == difference.values);
  }

  random_source random_;
  ep::world world_;
  ep::runner<exchanging<N>> exchange_;
  ep::runner<moving<N>> move_;
  std::array<array, slots> arrays_;
  std::array<known, slots> known_;
  int identities_ = 0;
  int calls_ = 0;
  int refused_ = 0;
};

}  // namespace

TEMPLATE_TEST_CASE_SIG("random calls with arrays that are kept and given again", "[fuzz]", ((int N), N), 1, 2, 4) {
  const char* const seed = std::getenv("ESPALIER_FUZZ_SEED");
  const char* const cases = std::getenv("ESPALIER_FUZZ_CASES");
  const auto first = seed == nullptr ? 1U : static_cast<std::uint32_t>(std::strtoul(seed, nullptr, 10));
  const int most = cases == nullptr ? (ep::test::is_instrumented ? 3 : 30) : std::atoi(cases);
  int calls_made = 0;
  int refused = 0;
  for (std::uint32_t n = 0; n < static_cast<std::uint32_t>(most); ++n) {
    calls<N> one(first + n);
    for (int k = 0; k < 40; ++k) {
      CAPTURE(first + n, k);
      one.step();
      REQUIRE(one.fault() == "");
    }
    calls_made += one.calls_made();
    refused += one.refused();
  }
  CHECK(calls_made > most * 5);
  CHECK(refused > most);
}
