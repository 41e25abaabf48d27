// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#if !defined(__GNUC__)
#include <cmath>
#endif

/// The functions of `<cmath>` on double, for what ops mean (`evaluate`). The header itself, with all that is in it of
/// the standard library's special functions, would be a fifth of what core.hpp costs to include.
namespace espalier::detail::real {

#if defined(__GNUC__)
inline double abs(double a) { return __builtin_fabs(a); }
inline double atan2(double y, double x) { return __builtin_atan2(y, x); }
inline double ceil(double a) { return __builtin_ceil(a); }
inline double copysign(double size, double sign) { return __builtin_copysign(size, sign); }
inline double cos(double a) { return __builtin_cos(a); }
inline double erf(double a) { return __builtin_erf(a); }
inline double erfc(double a) { return __builtin_erfc(a); }
inline double exp(double a) { return __builtin_exp(a); }
inline double expm1(double a) { return __builtin_expm1(a); }
inline double floor(double a) { return __builtin_floor(a); }
inline double fmod(double a, double b) { return __builtin_fmod(a, b); }
inline double log(double a) { return __builtin_log(a); }
inline double log1p(double a) { return __builtin_log1p(a); }
inline double pow(double a, double b) { return __builtin_pow(a, b); }
inline double sin(double a) { return __builtin_sin(a); }
inline double sqrt(double a) { return __builtin_sqrt(a); }
inline double tan(double a) { return __builtin_tan(a); }
inline double tanh(double a) { return __builtin_tanh(a); }
inline double trunc(double a) { return __builtin_trunc(a); }
#else
using std::abs, std::atan2, std::ceil, std::copysign, std::cos, std::erf, std::erfc, std::exp, std::expm1, std::floor,
    std::fmod, std::log, std::log1p, std::pow, std::sin, std::sqrt, std::tan, std::tanh, std::trunc;
#endif

}  // namespace espalier::detail::real
