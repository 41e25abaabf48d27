// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/storage.hpp>

#include <cstdint>
#include <type_traits>

// The table of element types. A new one is an enumerator, a row of `dtype_table` in the same order, a row of C++ types
// and a case of `with_storage`, all in this file: nothing else in the library lists all types. That the rows agree is
// checked by tests/base/unit/shape_dtype.cpp.

namespace espalier {

/// The type of one element.
enum class dtype : std::uint8_t { f32, f64, bf16, i32, boolean, u32, i64, i8, f16, u8 };

/// The meaning of an element's bits.
enum class number_format : std::uint8_t {
  binary,   ///< a binary float of IEEE 754
  brain,    ///< a float with the exponent of float32, and a shorter mantissa
  integer,  ///< two's complement
  natural,  ///< an integer without sign
  truth,    ///< a byte, 0 or 1
};

struct dtype_facts {
  dtype type;
  /// The name in errors, tables and docs.
  const char* name;
  /// The name in safetensors files.
  const char* wire_name;
  /// The bytes of one element in memory, on the wire and in a checkpoint.
  std::int64_t bytes;
  number_format format;
  /// The type in which kernels and collectives keep partial results until they round once. Floats are also computed in
  /// it. Sums and products of integers wrap around.
  dtype accumulate;
};

inline constexpr dtype_facts dtype_table[]{
    {dtype::f32, "f32", "F32", 4, number_format::binary, dtype::f32},
    {dtype::f64, "f64", "F64", 8, number_format::binary, dtype::f64},
    {dtype::bf16, "bf16", "BF16", 2, number_format::brain, dtype::f32},
    {dtype::i32, "i32", "I32", 4, number_format::integer, dtype::i32},
    {dtype::boolean, "bool", "BOOL", 1, number_format::truth, dtype::i32},
    {dtype::u32, "u32", "U32", 4, number_format::natural, dtype::u32},
    {dtype::i64, "i64", "I64", 8, number_format::integer, dtype::i64},
    {dtype::i8, "i8", "I8", 1, number_format::integer, dtype::i8},
    {dtype::f16, "f16", "F16", 2, number_format::binary, dtype::f32},
    {dtype::u8, "u8", "U8", 1, number_format::natural, dtype::u8},
};
inline constexpr int dtype_count = static_cast<int>(sizeof(dtype_table) / sizeof(dtype_table[0]));

[[nodiscard]] constexpr const dtype_facts& facts_of(dtype type) { return dtype_table[static_cast<int>(type)]; }

/// Bytes one element occupies in memory, on the wire and in a checkpoint.
[[nodiscard]] constexpr std::int64_t size_of(dtype type) { return facts_of(type).bytes; }

/// The name used in errors, tables and docs.
[[nodiscard]] constexpr const char* name_of(dtype type) { return facts_of(type).name; }

[[nodiscard]] constexpr bool is_floating(dtype type) { return facts_of(type).format <= number_format::brain; }
/// Signed or not; truth values are none.
[[nodiscard]] constexpr bool is_integer(dtype type) {
  const number_format format = facts_of(type).format;
  return format == number_format::integer || format == number_format::natural;
}
/// Whether elements are computed with in another type than they are stored in.
[[nodiscard]] constexpr bool is_for_storage(dtype type) {
  return is_floating(type) && facts_of(type).accumulate != type;
}

namespace detail {

template <dtype Type, int... Extents> struct tensor_type;  // in shape/tensor.hpp

/// The C++ type of an element, and the name of the tensor types.
template <dtype Type> struct dtype_row;

}  // namespace detail

/// Tensor types: an element type and the extents of the dimensions, in elements. `f32<>` is a scalar.
template <int... Extents> struct f32 : detail::tensor_type<dtype::f32, Extents...> {};
template <int... Extents> struct f64 : detail::tensor_type<dtype::f64, Extents...> {};
template <int... Extents> struct bf16 : detail::tensor_type<dtype::bf16, Extents...> {};
template <int... Extents> struct i32 : detail::tensor_type<dtype::i32, Extents...> {};
template <int... Extents> struct boolean : detail::tensor_type<dtype::boolean, Extents...> {};
template <int... Extents> struct u32 : detail::tensor_type<dtype::u32, Extents...> {};
template <int... Extents> struct i64 : detail::tensor_type<dtype::i64, Extents...> {};
template <int... Extents> struct i8 : detail::tensor_type<dtype::i8, Extents...> {};
template <int... Extents> struct u8 : detail::tensor_type<dtype::u8, Extents...> {};
template <int... Extents> struct f16 : detail::tensor_type<dtype::f16, Extents...> {};

template <> struct detail::dtype_row<dtype::f32> {
  using storage = float;
  template <int... Extents> using tensor = f32<Extents...>;
};
template <> struct detail::dtype_row<dtype::f64> {
  using storage = double;
  template <int... Extents> using tensor = f64<Extents...>;
};
template <> struct detail::dtype_row<dtype::bf16> {
  using storage = bfloat16;
  template <int... Extents> using tensor = bf16<Extents...>;
};
template <> struct detail::dtype_row<dtype::i32> {
  using storage = std::int32_t;
  template <int... Extents> using tensor = i32<Extents...>;
};
template <> struct detail::dtype_row<dtype::boolean> {
  using storage = bool;
  template <int... Extents> using tensor = boolean<Extents...>;
};
template <> struct detail::dtype_row<dtype::u32> {
  using storage = std::uint32_t;
  template <int... Extents> using tensor = u32<Extents...>;
};
template <> struct detail::dtype_row<dtype::i64> {
  using storage = std::int64_t;
  template <int... Extents> using tensor = i64<Extents...>;
};
template <> struct detail::dtype_row<dtype::i8> {
  using storage = std::int8_t;
  template <int... Extents> using tensor = i8<Extents...>;
};
template <> struct detail::dtype_row<dtype::u8> {
  using storage = std::uint8_t;
  template <int... Extents> using tensor = u8<Extents...>;
};
template <> struct detail::dtype_row<dtype::f16> {
  using storage = float16;
  template <int... Extents> using tensor = f16<Extents...>;
};

/// The C++ type that holds one element of `Type`.
template <dtype Type> using storage_t = typename detail::dtype_row<Type>::storage;

template <class T> inline constexpr dtype dtype_of = T::no_such_dtype;
template <> inline constexpr dtype dtype_of<float> = dtype::f32;
template <> inline constexpr dtype dtype_of<double> = dtype::f64;
template <> inline constexpr dtype dtype_of<bfloat16> = dtype::bf16;
template <> inline constexpr dtype dtype_of<std::int32_t> = dtype::i32;
template <> inline constexpr dtype dtype_of<bool> = dtype::boolean;
template <> inline constexpr dtype dtype_of<std::uint32_t> = dtype::u32;
template <> inline constexpr dtype dtype_of<std::int64_t> = dtype::i64;
template <> inline constexpr dtype dtype_of<std::int8_t> = dtype::i8;
template <> inline constexpr dtype dtype_of<std::uint8_t> = dtype::u8;
template <> inline constexpr dtype dtype_of<float16> = dtype::f16;

/// Calls `visit(T{})` with the storage type of `type`: the one place where an element type that is known at run time
/// becomes a C++ type.
template <class Visit> constexpr decltype(auto) with_storage(dtype type, Visit visit) {
  switch (type) {
    case dtype::f64: return visit(double{});
    case dtype::bf16: return visit(bfloat16{});
    case dtype::i32: return visit(std::int32_t{});
    case dtype::boolean: return visit(bool{});
    case dtype::u32: return visit(std::uint32_t{});
    case dtype::i64: return visit(std::int64_t{});
    case dtype::i8: return visit(std::int8_t{});
    case dtype::f16: return visit(float16{});
    case dtype::u8: return visit(std::uint8_t{});
    case dtype::f32: break;
  }
  return visit(float{});
}

/// The type in which partial results of elements of type T are kept. (Sums and products of integers use `wrapping_t` of
/// it.)
template <class T> using accumulate_t = storage_t<facts_of(dtype_of<T>).accumulate>;

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
