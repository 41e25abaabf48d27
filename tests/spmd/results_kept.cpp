// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never

#include <espalier/execute/checks.hpp>

#include <catch2/catch.hpp>

#include <stdexcept>

/// What a user may keep of a run, and what is checked on request.
namespace ep = espalier;

using Catch::Contains;

TEST_CASE("ESPALIER_CHECK is a comma list", "[checks]") {
  using ep::detail::checks_in;
  CHECK(checks_in(nullptr).replicas_every == 0);
  CHECK_FALSE(checks_in("").nan);
  CHECK(checks_in("replicas").replicas_every == 100);
  CHECK(checks_in("replicas:7").replicas_every == 7);
  CHECK(checks_in("replicas,nan").nan);
  CHECK(checks_in("nan,replicas:12").replicas_every == 12);
  CHECK(checks_in("nan").replicas_every == 0);
  for (const char* const wrong :
       {"replica", "replicas:", "replicas:0", "replicas:-1", "replicas:1x", "nan,inf", "replicas:99999999999"}) {
    CHECK_THROWS_AS(checks_in(wrong), std::invalid_argument);
  }
  CHECK_THROWS_WITH(checks_in("nan,inf"), Contains("ESPALIER_CHECK is \"nan,inf\", of which \"inf\" is no check"));
}
