// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/table.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

/// The tables of random programs, one for each type; what they hold follows from the place.
namespace espalier::test {

[[nodiscard]] constexpr bool is_unsigned(dtype type) {
  return facts_of(type).format == number_format::natural || type == dtype::boolean;
}
/// The entry at a place of the tables: small whole numbers, none below zero for types without a sign.
[[nodiscard]] constexpr int table_number(std::int64_t place, bool natural) {
  const auto number = static_cast<int>((place * 7 + place / 5 + 3) % 6) - 2;
  return natural && number < 0 ? -number : number;
}
template <bool Natural>
inline constexpr auto table_numbers = [] {
  std::array<std::int8_t, 24> numbers{};
  for (std::size_t k = 0; k < numbers.size(); ++k)
    numbers[k] = static_cast<std::int8_t>(table_number(static_cast<std::int64_t>(k), Natural));
  return numbers;
}();
template <dtype Type> inline constexpr const op_info& table_as = ops::table<table_numbers<is_unsigned(Type)>, Type>;
[[nodiscard]] constexpr const op_info& table_of(dtype type) {
  switch (type) {
    case dtype::f32: return table_as<dtype::f32>;
    case dtype::f64: return table_as<dtype::f64>;
    case dtype::bf16: return table_as<dtype::bf16>;
    case dtype::f16: return table_as<dtype::f16>;
    case dtype::i32: return table_as<dtype::i32>;
    case dtype::u32: return table_as<dtype::u32>;
    case dtype::i64: return table_as<dtype::i64>;
    case dtype::i8: return table_as<dtype::i8>;
    case dtype::u8: return table_as<dtype::u8>;
    default: return table_as<dtype::boolean>;
  }
}

}  // namespace espalier::test
