// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// together: host

#include <espalier/comm/run/slowdown.hpp>

#include <catch2/catch.hpp>

namespace {

using namespace espalier::comm;

/// Feeds calls of `seconds` until a window is judged or `most` calls have passed. Returns whether it was too slow.
bool is_slow(slowdown_watch& watch, double seconds, int most) {
  for (int n = 0; n < most; ++n) {
    if (watch.note(seconds) && watch.judge(watch.ratio())) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a call that stays slow is noticed, after two windows") {
  slowdown_watch watch;
  CHECK_FALSE(is_slow(watch, 1.0, 100));
  // The window under way has fast calls in it.
  int calls = 0;
  while (calls < 100 && !is_slow(watch, 1.6, 1)) ++calls;
  CHECK(calls >= 8);
  CHECK(calls <= 24);
}

TEST_CASE("a little slower, or slow now and then, is not slow") {
  slowdown_watch watch;
  CHECK_FALSE(is_slow(watch, 1.0, 40));
  CHECK_FALSE(is_slow(watch, 1.4, 400));
  for (int n = 0; n < 400; ++n) CHECK_FALSE(is_slow(watch, n % 7 == 0 ? 1.0 : 50.0, 1));
  // One slow window between two usual ones.
  for (int n = 0; n < 400; ++n) CHECK_FALSE(is_slow(watch, n / 8 % 2 == 0 ? 1.0 : 50.0, 1));
}

TEST_CASE("what is usual is learned from the first windows, and anew when told to") {
  slowdown_watch watch;
  CHECK_FALSE(is_slow(watch, 9.0, 8));  // caches were cold
  CHECK_FALSE(is_slow(watch, 1.0, 8));
  CHECK_FALSE(is_slow(watch, 1.0, 8));
  CHECK(watch.ratio() == Approx(1));
  CHECK(is_slow(watch, 2.0, 100));
  watch.forget();
  CHECK_FALSE(is_slow(watch, 2.0, 100));
  CHECK(is_slow(watch, 4.0, 100));
}

TEST_CASE("what counts is what all ranks found together") {
  slowdown_watch watch;
  for (int n = 0; n < 16; ++n) CHECK_FALSE(watch.note(1.0));
  bool judged = false;
  // This rank waits for others, who say that nothing is slow.
  for (int n = 0; n < 80; ++n) {
    if (watch.note(10.0)) judged = watch.judge(1.01) || judged;
  }
  CHECK_FALSE(judged);
  // And the other way round.
  for (int n = 0; n < 80; ++n) {
    if (watch.note(1.0)) judged = watch.judge(3.0) || judged;
  }
  CHECK(judged);
}

TEST_CASE("a factor of zero watches nothing") {
  slowdown_limits limits;
  limits.factor = 0;
  slowdown_watch watch(limits);
  CHECK_FALSE(is_slow(watch, 1.0, 40));
  CHECK_FALSE(is_slow(watch, 100.0, 400));
}

TEST_CASE("probes keep their distance, and more of it where they find nothing") {
  cool_down pause(10, 100);
  CHECK_FALSE(pause.allows(109));
  CHECK(pause.allows(110));
  pause.done(120, false);
  CHECK_FALSE(pause.allows(129));
  CHECK(pause.allows(130));
  pause.done(130, true);
  CHECK_FALSE(pause.allows(149));
  CHECK(pause.allows(150));
  pause.done(150, true);
  CHECK_FALSE(pause.allows(189));
  CHECK(pause.allows(190));
  pause.done(190, false);
  CHECK(pause.allows(200));
}
