// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace espalier::test {

/// Whether sanitizers watch: a case takes five times as long then, and more. What goes wrong in memory, or between
/// threads, goes wrong in a few cases of each kind; results are compared in all cases, by the usual build.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool is_instrumented = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool is_instrumented = true;
#else
inline constexpr bool is_instrumented = false;
#endif
#else
inline constexpr bool is_instrumented = false;
#endif

/// How many of so many random cases are tried.
[[nodiscard]] constexpr int tried_cases(int all) { return is_instrumented ? all / 5 : all; }

}  // namespace espalier::test
