// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// built: once

#include <support/tiny_gpt.hpp>

#include <catch2/catch.hpp>

namespace {

using namespace espalier;
using namespace espalier::test;

TEST_CASE("a GPT on a 2 x 2 mesh has the losses of one device in double precision") {
  CHECK(largest_difference(one_device_losses_f64(), tiny_losses<2, 2, f64>(agreement_steps)) < agreement_f64);
}

TEST_CASE("a GPT on a 2 x 2 mesh has the losses of one device in single precision") {
  CHECK(largest_difference(one_device_losses_f32(), tiny_losses<2, 2, f32>(agreement_steps)) < agreement_f32);
}

}  // namespace
