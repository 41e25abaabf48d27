// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/sample.hpp>

#include <cstdint>

// g++ takes seconds for each: half of the sample, but for the long run.
#if ESPALIER_TEST_ALL_MESHES
inline constexpr std::uint32_t parts = 1;
#else
inline constexpr std::uint32_t parts = 2;
#endif

TEST_CASE("random programs compiled for 4 devices compute what they mean", "[fuzz]") {
  espalier::test::check_samples<espalier::test::grid<2, 2>, parts>();
}
