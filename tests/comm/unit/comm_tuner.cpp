// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// together: host

#include <espalier/comm/run/tuner.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <utility>

namespace {

using namespace espalier::comm;

/// Runs a tuner against a model of how long calls take. Returns the number of calls.
int settle(tuner& t, const std::function<double(const choice&, int)>& seconds) {
  int calls = 0;
  while (!t.settled() && calls < 300) {
    const int in_a_row = t.calls();
    double sum = 0;
    for (int n = 0; n < in_a_row; ++n) {
      const double one = seconds(t.next(), calls++);
      if (n > 0 || in_a_row == 1) sum += one;
    }
    t.note(sum / std::max(1, in_a_row - 1));
  }
  return calls;
}

/// A clock's noise, and that of ranks which begin apart: as long as the calls themselves.
struct noise {
  std::mt19937 random;
  double operator()() { return std::uniform_real_distribution<double>(0, 1e-6)(random); }
};

/// Pipelining: long chunks fill late, short ones cost messages.
double pipeline(double best_chunk, std::int64_t chunk) {
  const double x = static_cast<double>(chunk) / best_chunk;
  return 1 + 0.2 * (x + 1 / x);
}

}  // namespace

TEST_CASE("a tuner takes what is fastest, noise aside") {
  for (const method fastest : {method::library, method::low_latency, method::trees}) {
    tuner t({{method::library, 0}, {method::low_latency, 0}, {method::trees, 32768}});
    const int calls = settle(t, [&](const choice& c, int n) {
      const double noise = n % 3 == 0 ? 3 : 1;  // one call in three is disturbed
      return (c.how == fastest ? 1.0 : 5.0) * noise;
    });
    CHECK(t.next().how == fastest);
    CHECK(calls < 100);
  }
}

TEST_CASE("a tuner does not repeat what takes long and is far behind") {
  for (const double slow : {3.0, 6.0, 30.0}) {
    tuner t({{method::trees, 32768}, {method::library, 0}, {method::low_latency, 0}});
    int slow_calls = 0;
    settle(t, [&](const choice& c, int) {
      if (c.how == method::library) ++slow_calls;
      return c.how == method::library ? slow : 1.0;
    });
    CHECK(t.next().how != method::library);
    CHECK(slow_calls == (slow > 8 ? 1 : slow > 4 ? 2 : 3));
  }
  // A short first call may have made connections.
  tuner t({{method::low_latency, 0}, {method::library, 0}});
  settle(t, [&](const choice& c, int n) {
    return c.how == method::library && n > 1 ? 1e-6 : c.how == method::library ? 1e-3 : 1e-5;
  });
  CHECK(t.next().how == method::library);
}

TEST_CASE("a tuner finds a good chunk size by doubling and then going back") {
  tuning_limits limits;
  limits.eager = 0;
  for (const double best : {8192.0, 60000.0, 200000.0, 1000000.0}) {
    tuner t({{method::library, 0}, {method::trees, 32768}, {method::trees, 1 << 20}}, limits);
    const int calls =
        settle(t, [&](const choice& c, int) { return c.how == method::trees ? pipeline(best, c.chunk) : 2.0; });
    CAPTURE(best, t.next().chunk, calls);
    CHECK(t.next().how == method::trees);
    CHECK(pipeline(best, t.next().chunk) < 1.15 * pipeline(best, static_cast<std::int64_t>(best)));
    CHECK(calls < 60);
  }
}

TEST_CASE("one chunk size that is disturbed does not end the search") {
  tuning_limits limits;
  limits.eager = 0;
  tuner t({{method::library, 0}, {method::trees, 32768}}, limits);
  settle(t, [](const choice& c, int) {
    if (c.how == method::library) return 2.0;
    return pipeline(60000, c.chunk) * (c.chunk == 16384 ? 1.6 : 1.0);  // the second that is tried
  });
  CHECK(pipeline(60000, t.next().chunk) < 1.15 * pipeline(60000, 60000));
  CHECK(t.next().chunk > 32768);
}

TEST_CASE("chunk sizes keep away from the transport's eager limit") {
  tuning_limits limits;
  limits.eager = 65536;
  tuner t({{method::trees, 32768}, {method::library, 0}}, limits);
  settle(t, [&](const choice& c, int) {
    CHECK((c.chunk <= limits.eager / 4 * 3 || c.chunk >= 2 * limits.eager));
    return c.how == method::trees ? pipeline(65536, c.chunk) : 3.0;
  });
  CHECK(t.settled());
}

TEST_CASE("one candidate needs no trial") {
  tuner t({{method::trees, 4096}});
  CHECK(t.settled());
  CHECK(t.next() == choice{method::trees, 4096});
}

TEST_CASE("the library is left only for what is clearly faster") {
  for (const double other : {0.9, 0.99, 1.1}) {
    tuner t({{method::low_latency, 0}, {method::library, 0}});
    settle(t, [&](const choice& c, int) { return c.how == method::library ? 1.0 : other; });
    CHECK(t.next().how == (other < 0.98 ? method::low_latency : method::library));
  }
}

TEST_CASE("chunks are tried of the trees that were proposed, and of no others") {
  choice ordered{method::trees, 32768};
  ordered.by = algorithm::ordered_trees;
  ordered.parts = 4;
  tuner t({{method::library, 0}, ordered});
  settle(t, [&](const choice& c, int) {
    if (c.how == method::library) return 2.0;
    CHECK(c.by == algorithm::ordered_trees);
    CHECK(c.parts == 4);
    return pipeline(100000, c.chunk);
  });
  CHECK(t.next().by == algorithm::ordered_trees);
  CHECK(t.next().chunk > 32768);
}

TEST_CASE("the luckiest of many chunk sizes does not win over what is faster") {
  // As an all-to-all of 8 MiB on one host: shared memory is faster by a sixth, but slow in its first calls.
  int wrong = 0;
  constexpr int runs = 200;
  for (unsigned seed = 0; seed < runs; ++seed) {
    std::mt19937 random(seed);
    tuner t({{method::library, 0}, {method::shared, 0}, {method::trees, 1 << 20}});
    int shared = 0;
    const int calls = settle(t, [&](const choice& c, int) {
      const double usual = c.how == method::shared ? 510e-6 : c.how == method::library ? 700e-6 : 604e-6;
      const bool cold = c.how == method::shared && ++shared <= 3;
      return usual * (cold ? 1.3 : 1) * std::uniform_real_distribution<double>(0.85, 1.2)(random);
    });
    CAPTURE(seed, calls);
    REQUIRE(t.settled());
    CHECK(calls < 140);
    if (t.next().how != method::shared) ++wrong;
  }
  CHECK(wrong <= runs / 50);
}

TEST_CASE("a machine that is faster for a while does not make what is tried then the fastest") {
  int wrong = 0;
  constexpr int runs = 200;
  for (unsigned seed = 0; seed < runs; ++seed) {
    std::mt19937 random(seed);
    tuner t({{method::library, 0}, {method::low_latency, 0}, {method::shared, 0}});
    double state = 1;
    settle(t, [&](const choice& c, int n) {
      if (n % 3 == 0) state = random() % 10 == 0 ? 0.6 : 1;
      const double noise = std::uniform_real_distribution<double>(0.95, 1.1)(random);
      return 1e-3 * (c.how == method::shared ? 0.85 : 1) * state * noise;
    });
    if (t.next().how != method::shared) ++wrong;
  }
  CHECK(wrong <= runs / 50);
}

TEST_CASE("before a tuner settles it tries the best of each way once more, and of long calls only what is close") {
  for (const double unit : {1e-3, 1.0}) {
    for (const double other : {1.05, 1.3, 2.5}) {
      tuner t({{method::library, 0}, {method::shared, 0}, {method::trees, 32768}, {method::low_latency, 0}});
      int most = 1;
      const int calls = settle(t, [&](const choice& c, int) {
        most = std::max(most, t.calls());
        if (c.how == method::library) return unit;
        return unit * (c.how == method::shared ? other : 3);
      });
      CAPTURE(unit, other);
      const bool is_short = unit < 0.01;
      const bool has_finals = other < (is_short ? 2 : 1.1);
      // Three tries of each, then three of two ways. Of a millisecond, the first tries are of two calls but for the
      // first of all, the last of three calls, and nine where three do not tell.
      const int first = is_short ? 4 * 5 : 4 * 3;
      const int tries = is_short && other < 1.1 ? 9 : 3;
      CHECK(calls == first + (has_finals ? 2 * tries * (is_short ? 3 : 1) : 0));
      CHECK(most == (!is_short ? 1 : has_finals ? 3 : 2));
      CHECK(t.next().how == method::library);
      CHECK(t.seconds() == Approx(unit));
    }
  }
}

TEST_CASE("what one way leaves in the caches does not count against the way that is tried after it") {
  // As an all-to-all of 1 MiB on one host: a call after shared memory finds its data in the caches.
  tuner t({{method::library, 0}, {method::shared, 0}, {method::single_copy, 0}, {method::low_latency, 0}});
  method last = method::library;
  settle(t, [&](const choice& c, int) {
    const bool cold = std::exchange(last, c.how) == method::shared && c.how != method::shared;
    const double usual = c.how == method::single_copy ? 80e-6 : c.how == method::shared ? 120e-6 : 90e-6;
    return usual * (cold ? 2.5 : 1);
  });
  CHECK(t.next().how == method::single_copy);
}

TEST_CASE("among the last, no way always comes after the same other one") {
  // A call after shared memory is slower by a fifth, as an all-to-all of 8 MiB on one host.
  int wrong = 0;
  constexpr int runs = 200;
  for (unsigned seed = 0; seed < runs; ++seed) {
    std::mt19937 random(seed);
    std::vector<choice> ways{{method::library, 0}, {method::shared, 0}, {method::trees, 1 << 20}};
    std::shuffle(ways.begin(), ways.end(), random);
    const method best = seed % 2 == 0 ? method::library : method::trees;
    tuner t(ways);
    method last = method::library;
    method before = method::library;
    settle(t, [&](const choice& c, int) {
      if (c.how != last) before = std::exchange(last, c.how);
      const double usual = c.how == method::shared ? 950e-6 : c.how == best ? 800e-6 : 870e-6;
      const double noise = std::uniform_real_distribution<double>(0.97, 1.03)(random);
      return usual * (before == method::shared ? 1.2 : 1) * noise;
    });
    if (t.next().how != best) ++wrong;
  }
  CHECK(wrong <= runs / 10);
}

TEST_CASE("what one call of a short collective tells is noise: several in a row decide") {
  // As on one host: shared memory needs half of the library's time, and both less than the noise of one call.
  for (unsigned seed = 0; seed < 200; ++seed) {
    noise of_one{std::mt19937(seed)};
    tuner t({{method::library, 0}, {method::shared, 0}, {method::low_latency, 0}});
    method last = method::trees;
    const int calls = settle(t, [&](const choice& c, int) {
      // The first of a row pays for caches that others have used; the rest follow closely.
      const bool first = t.calls() == 1 || c.how != std::exchange(last, c.how);
      const double quiet = c.how == method::shared ? 0.13e-6 : c.how == method::library ? 0.25e-6 : 0.3e-6;
      return quiet + (first ? of_one() : 0.1 * of_one());
    });
    CAPTURE(seed, calls);
    REQUIRE(t.settled());
    CHECK(t.next().how == method::shared);
    CHECK(calls < 200);
  }
}

TEST_CASE("of short calls the library's own is taken where it is clearly faster") {
  tuner t({{method::shared, 0}, {method::library, 0}});
  settle(t, [](const choice& c, int) { return c.how == method::library ? 1e-6 : 2e-6; });
  CHECK(t.next().how == method::library);
}

TEST_CASE("in a row are only short calls, and of those what is far behind no more") {
  for (const double unit : {1e-6, 1e-4}) {
    tuner t({{method::shared, 0}, {method::library, 0}, {method::low_latency, 0}});
    int slow = 0;
    int most = 1;
    settle(t, [&](const choice& c, int) {
      most = std::max(most, t.calls());
      if (c.how == method::low_latency) ++slow;
      return unit * (c.how == method::low_latency ? 10 : c.how == method::library ? 2.5 : 1);
    });
    CHECK(most == (unit < 1e-5 ? 8 : 2));
    CHECK(slow == 3);  // in two tries: of one call, and of two
    CHECK(t.next().how == method::shared);
  }
}

TEST_CASE("of long calls, chunk sizes are compared once more, and the largest of equal ones is taken") {
  // As an all-reduce of 16 MiB among eight hosts: small chunks keep the processors busy, and are as fast only now and
  // then.
  int small = 0;
  int slow = 0;
  constexpr int runs = 200;
  for (unsigned seed = 0; seed < runs; ++seed) {
    std::mt19937 random(seed);
    tuner t({{method::library, 0}, {method::trees, 16384}});
    const auto usual = [](std::int64_t chunk) {
      return chunk < 8192 ? 0.46 : chunk < 16384 ? 0.405 : chunk <= 49152 ? 0.4 : 0.9;
    };
    const int calls = settle(t, [&](const choice& c, int) {
      if (c.how == method::library) return 4.0;
      const double noise = c.chunk < 8192 ? 0.16 : 0.03;
      return usual(c.chunk) * std::uniform_real_distribution<double>(1 - noise, 1 + noise)(random);
    });
    CAPTURE(seed, calls, t.next().chunk);
    REQUIRE(t.settled());
    CHECK(t.next().how == method::trees);
    CHECK(calls < 40);
    if (t.next().chunk < 8192) ++small;
    if (usual(t.next().chunk) > 0.41) ++slow;
  }
  CHECK(small <= runs / 50);
  CHECK(slow <= runs / 50);
}
