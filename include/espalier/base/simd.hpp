// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace espalier::detail {

/// Bytes of the widest register that the compiler may use. Vectors of the language are best as wide as this: wider ones
/// g++ 12 keeps in memory, and does some operations on them one element after the other.
#if defined(__AVX512F__)
inline constexpr int simd_bytes = 64;
#elif defined(__AVX__)
inline constexpr int simd_bytes = 32;
#else
inline constexpr int simd_bytes = 16;
#endif
/// The width for integers: AVX without AVX2 has none wider than 16.
#if defined(__AVX__) && !defined(__AVX2__)
inline constexpr int integer_simd_bytes = 16;
#else
inline constexpr int integer_simd_bytes = simd_bytes;
#endif

}  // namespace espalier::detail
