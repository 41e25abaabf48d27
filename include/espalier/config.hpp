// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/version.hpp>

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "Espalier needs C++20: compile with -std=c++20"
// No compiler stops at an #error, but all do where a file is missing: else thousands of lines about what follows, also
// in the user's own file, would hide the one that counts.
#include "compile with -std=c++20"
#endif

#if defined(__GNUC__) || defined(__clang__)
#define ESPALIER_RESTRICT __restrict__
#define ESPALIER_ALWAYS_INLINE [[gnu::always_inline]] inline
#define ESPALIER_ALWAYS_INLINE_BODY __attribute__((always_inline))  // of a lambda, after its parameters
#else
#define ESPALIER_RESTRICT
#define ESPALIER_ALWAYS_INLINE inline
#define ESPALIER_ALWAYS_INLINE_BODY
#endif

// Definitions that are not templates are inline, unless ESPALIER_COMPILED says that the library's compiled part is
// linked (the target espalier::compiled): then only that part includes such definitions.
#if defined(ESPALIER_COMPILED)
#define ESPALIER_INLINE
#else
#define ESPALIER_INLINE inline
#endif

// Functions on a std::vector are constexpr where the standard library's vector is: libstdc++ 12, libc++ 15 and later.
#include <version>
#if defined(__cpp_lib_constexpr_vector)
#define ESPALIER_CONSTEXPR_VECTOR constexpr
#else
#define ESPALIER_CONSTEXPR_VECTOR inline
#endif

// OpenMP pragmas through one macro, so that a build without OpenMP stays free of unknown-pragma warnings.
#define ESPALIER_PRAGMA(text) _Pragma(#text)
#if defined(_OPENMP)
#define ESPALIER_OMP(directive) ESPALIER_PRAGMA(omp directive)
#else
#define ESPALIER_OMP(directive)
#endif

// A loop whose iterations are independent: vectorise it without asking for a run-time overlap check.
#if defined(__clang__)
#define ESPALIER_VECTORISE ESPALIER_PRAGMA(clang loop vectorize(assume_safety))
#elif defined(__GNUC__)
#define ESPALIER_VECTORISE ESPALIER_PRAGMA(GCC ivdep)
#else
#define ESPALIER_VECTORISE
#endif

// The same for a loop that is worth vectors at any level of optimisation: at -O2, g++ makes them where OpenMP asks for
// it.
#if defined(_OPENMP)
#define ESPALIER_SIMD ESPALIER_OMP(simd)
#else
#define ESPALIER_SIMD ESPALIER_VECTORISE
#endif

// A short loop whose variables belong in registers.
#if defined(__clang__)
#define ESPALIER_UNROLL ESPALIER_PRAGMA(clang loop unroll(full))
#elif defined(__GNUC__)
#define ESPALIER_UNROLL ESPALIER_PRAGMA(GCC unroll 16)
#else
#define ESPALIER_UNROLL
#endif
