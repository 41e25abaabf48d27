// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/bitwise.hpp>
#include <espalier/tensor/run/kernels/elementwise.hpp>

#include <bit>
#include <type_traits>

namespace espalier::detail {

/// The bitwise *and* of integers, or the logical one of truth values.
struct and_bits {
  template <class W> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr W of(W a, W b) {
    return static_cast<W>(a & b);
  }
};
struct or_bits {
  template <class W> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr W of(W a, W b) {
    return static_cast<W>(a | b);
  }
};
struct xor_bits {
  template <class W> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr W of(W a, W b) {
    return static_cast<W>(a ^ b);
  }
};
/// An amount is read without sign: by as many bits as there are, or more, nothing is left but the sign.
struct shifted_left {
  template <class W> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr W of(W a, W amount) {
    return amount < 8 * sizeof(W) ? static_cast<W>(a << amount) : W{0};
  }
};
struct shifted_right {
  template <class W> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr W of(W a, W amount) {
    return amount < 8 * sizeof(W) ? static_cast<W>(a >> amount) : W{0};
  }
};
struct shifted_right_with_sign {
  template <class W> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr W of(W a, W amount) {
    const W most = 8 * sizeof(W) - 1;
    return static_cast<W>(static_cast<std::make_signed_t<W>>(a) >> (amount < most ? amount : most));
  }
};

/// A function of bits as one of integers or truth values: of words, which are unsigned.
template <class Function> struct elements_of_bits {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a, T b) {
    return static_cast<T>(Function::of(static_cast<bits_of_t<T>>(a), static_cast<bits_of_t<T>>(b)));
  }
};
struct bitwise_not_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) {
    if constexpr (std::is_same_v<T, bool>) {
      return !a;
    } else {
      return static_cast<T>(~a);
    }
  }
};

/// An operand that is read as it is stored, not in the type that it is computed in: no NaN changes its bits.
template <class T, bool Wide> struct stored_operand {
  static constexpr bool wide = Wide;
  struct run_reader {
    const T* data;
    [[nodiscard]] ESPALIER_ALWAYS_INLINE const T& operator[](std::int64_t i) const { return data[i]; }
  };
  struct value_reader {
    const T* data;
    [[nodiscard]] ESPALIER_ALWAYS_INLINE const T& operator[](std::int64_t) const { return *data; }
  };
  const T* data;
  std::int64_t row;

  explicit stored_operand(const kernels::stream& from) : data(static_cast<const T*>(from.data)), row(from.row) {}

  [[nodiscard]] ESPALIER_ALWAYS_INLINE auto at(std::int64_t r) const {
    return std::conditional_t<Wide, run_reader, value_reader>{data + r * row};
  }
  [[nodiscard]] bool is_flat(std::int64_t columns) const { return row == (Wide ? columns : 0); }
  [[nodiscard]] run_reader all_rows() const { return {data}; }
  [[nodiscard]] ESPALIER_ALWAYS_INLINE const T& of_row(std::int64_t r) const { return data[r * row]; }
};
template <class Result> struct bit_cast_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr Result apply(const T& a) {
    return std::bit_cast<Result>(a);
  }
};

}  // namespace espalier::detail

namespace espalier::kernels {

template <>
struct block_kernel<&ops::bitwise_and> : detail::elementwise_block<detail::elements_of_bits<detail::and_bits>> {};
template <>
struct block_kernel<&ops::bitwise_or> : detail::elementwise_block<detail::elements_of_bits<detail::or_bits>> {};
template <>
struct block_kernel<&ops::bitwise_xor> : detail::elementwise_block<detail::elements_of_bits<detail::xor_bits>> {};
template <> struct block_kernel<&ops::bitwise_not> : detail::elementwise_block<detail::bitwise_not_element> {};
template <>
struct block_kernel<&ops::shift_left> : detail::elementwise_block<detail::elements_of_bits<detail::shifted_left>> {};
template <>
struct block_kernel<&ops::shift_right_logical>
    : detail::elementwise_block<detail::elements_of_bits<detail::shifted_right>> {};
template <>
struct block_kernel<&ops::shift_right_arithmetic>
    : detail::elementwise_block<detail::elements_of_bits<detail::shifted_right_with_sign>> {};
template <> struct block_kernel<&ops::bit_cast> {
  template <block_key Key> static void run(const block_call& call) {
    using from = storage_t<Key.operand_type[0]>;
    using to = storage_t<Key.type>;
    static_assert(sizeof(from) == sizeof(to));
    constexpr bool wide = Key.wide[0] && Key.columns != 1;
    detail::map_block<detail::bit_cast_element<to>, Key.columns, detail::result_is_wide<Key>, to>(
        call, detail::stored_operand<from, wide>(call.operand[0]));
  }
};

}  // namespace espalier::kernels
