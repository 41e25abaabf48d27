// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <cstdint>

namespace espalier::detail {

/// Which checks a run makes beyond what it computes: `ESPALIER_CHECK`, a comma list such as `replicas:10,nan`.
struct run_checks {
  /// Compare copies of replicated arrays on every call with this number, the first one included; 0 is never.
  std::int64_t replicas_every = 0;
  /// Look for elements that are not finite.
  bool nan = false;
};

/// Reads a comma list of `replicas`, `replicas:n` and `nan`; null and "" are no checks. `replicas` alone compares on
/// the first call of a runner and on every 100th.
///
///     checks_in("replicas:10,nan")  // {10, true}
///
/// Errors: `std::invalid_argument` for another word or for an n that is not a positive number.
[[nodiscard]] run_checks checks_in(const char* text);

/// The checks that `ESPALIER_CHECK` asks for, read when it is called: a runner does so when it is made.
/// Errors: as `checks_in`.
[[nodiscard]] run_checks checks_of_environment();

/// Whether `ESPALIER_CHECK` asks for `nan`.
[[nodiscard]] inline bool checks_nan() { return checks_of_environment().nan; }
/// How often `ESPALIER_CHECK` asks for `replicas`: every so many calls; 0 is never.
[[nodiscard]] inline std::int64_t checks_replicas_every() { return checks_of_environment().replicas_every; }

}  // namespace espalier::detail

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/execute/impl/checks.ipp>
#endif
