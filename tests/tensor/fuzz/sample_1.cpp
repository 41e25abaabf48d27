// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/sample.hpp>

TEST_CASE("random programs compiled for 1 device compute what they mean", "[fuzz]") {
  espalier::test::check_samples<espalier::test::grid<1>, 4, 1>();
}
