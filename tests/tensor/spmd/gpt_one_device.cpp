// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

// The results with which the other gpt_*.cpp compare: one program a file, so that each compiles in little memory.
#include <support/tiny_gpt.hpp>

#include <catch2/catch.hpp>

namespace espalier::test {

const std::vector<double>& one_device_losses_f32() {
  static const std::vector<double> losses = tiny_losses<1, 1, f32>(agreement_steps);
  return losses;
}
const std::vector<double>& one_device_losses_f64() {
  static const std::vector<double> losses = tiny_losses<1, 1, f64>(agreement_steps);
  return losses;
}

}  // namespace espalier::test

namespace {

using namespace espalier;
using namespace espalier::test;

TEST_CASE("a GPT on one device learns, and communicates nothing") {
  STATIC_REQUIRE(tiny_training<1, 1, f64>::collectives() == 0);
  const std::vector<double>& losses = one_device_losses_f64();
  CHECK(losses.front() > 2.5);  // 16 symbols: log 16 is 2.77
  CHECK(losses.back() < losses.front() - 0.3);
  CHECK(largest_difference(losses, one_device_losses_f32()) < agreement_f32);
}

}  // namespace
