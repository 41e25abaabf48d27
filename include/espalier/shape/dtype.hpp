// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

namespace espalier {

/// What one element is. `bf16` is a storage format: kernels compute on it in float32.
enum class dtype : std::uint8_t { f32, f64, bf16, i32, boolean };

/// Bytes one element occupies in memory, on the wire and in a checkpoint.
[[nodiscard]] constexpr std::int64_t size_of(dtype type) {
  switch (type) {
    case dtype::f32:
    case dtype::i32: return 4;
    case dtype::f64: return 8;
    case dtype::bf16: return 2;
    case dtype::boolean: return 1;
  }
  return 0;
}

/// The name used in errors, tables and docs: `f32`, `f64`, `bf16`, `i32`, `bool`.
[[nodiscard]] constexpr const char* name_of(dtype type) {
  switch (type) {
    case dtype::f32: return "f32";
    case dtype::f64: return "f64";
    case dtype::bf16: return "bf16";
    case dtype::i32: return "i32";
    case dtype::boolean: return "bool";
  }
  return "?";
}

[[nodiscard]] constexpr bool is_floating(dtype type) {
  return type == dtype::f32 || type == dtype::f64 || type == dtype::bf16;
}

/// How values are combined when a dimension is reduced, on one device or across several.
enum class reduction : std::uint8_t { sum, prod, max, min };

[[nodiscard]] constexpr const char* name_of(reduction kind) {
  switch (kind) {
    case reduction::sum: return "sum";
    case reduction::prod: return "prod";
    case reduction::max: return "max";
    case reduction::min: return "min";
  }
  return "?";
}

}  // namespace espalier
