// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/half_runs.hpp>
#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/run/kernels/kernel.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

// The loops of all micro-operations. An elementwise op adds one function on scalars; the driver here makes it a loop
// over a block of rows, with static bounds and no run-time overlap checks.

namespace espalier::detail {

/// Rounds towards zero and saturates; a NaN becomes 0. The conversion itself stays in range whichever way the
/// comparisons go, so that it can be made for all elements of a vector.
template <class To, class From> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr To to_integer(From x) {
  // Powers of two, which floats hold: the least integer, and the one after the greatest.
  constexpr From least = static_cast<From>(std::numeric_limits<To>::min());
  constexpr To half = std::numeric_limits<To>::max() / 2 + 1;
  constexpr From end = static_cast<From>(half) * From(2);
  const bool low = x < least;
  const bool high = x >= end;
  const bool in_range = (x >= least) & (x < end);
  const auto value = static_cast<To>(in_range ? x : From(0));
  const To above = high ? std::numeric_limits<To>::max() : value;
  return low ? std::numeric_limits<To>::min() : above;
}

/// Converts one element as ops::convert does. Every load into the type of the computation, and every store from it,
/// uses it.
template <class To, class From> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr To element_cast(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (!std::is_same_v<From, computed_t<From>>) {
    return element_cast<To>(static_cast<computed_t<From>>(x));
  } else if constexpr (!std::is_same_v<To, computed_t<To>>) {
    return To(static_cast<computed_t<To>>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_same_v<From, bool>) {
    return x ? To(1) : To(0);  // a choice vectorises on g++ 12, the plain conversion does not
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    return to_integer<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

/// An instruction's scalar as an element. It may be a reduction's identity, so an infinity becomes the least or the
/// greatest value that the type has.
template <class T> [[nodiscard]] constexpr T element_of_scalar(double scalar) {
  if constexpr (std::is_same_v<T, bool>) {
    return scalar != 0 && scalar != -std::numeric_limits<double>::infinity();
  } else {
    return element_cast<T>(scalar);
  }
}

/// The unsigned integer with as many bits as an element.
template <int Bytes> struct word_of_size;
template <> struct word_of_size<1> { using type = std::uint8_t; };
template <> struct word_of_size<2> { using type = std::uint16_t; };
template <> struct word_of_size<4> { using type = std::uint32_t; };
template <> struct word_of_size<8> { using type = std::uint64_t; };
template <class T> using bits_of_t = typename word_of_size<static_cast<int>(sizeof(T))>::type;

/// Calls body(0), ..., body(count - 1) in any order, many at a time. The body holds what it needs by value: memory
/// that a reference refers to could change with every store.
template <class Body> ESPALIER_ALWAYS_INLINE void vector_loop(std::int64_t count, Body body) {
  ESPALIER_SIMD
  for (std::int64_t i = 0; i < count; ++i) body(i);
}

/// An element in the type computed in. A truth value is read as a byte: g++ 12 does not vectorise loads of `bool`.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE computed_t<T> load_element(const T* from) {
  if constexpr (std::is_same_v<T, bool>) {
    return *reinterpret_cast<const unsigned char*>(from) != 0;
  } else {
    return element_cast<computed_t<T>>(*from);
  }
}

/// Neighbouring elements, read as the type computed in.
template <class T> struct run_reader {
  const T* data;
  [[nodiscard]] ESPALIER_ALWAYS_INLINE computed_t<T> operator[](std::int64_t i) const { return load_element(data + i); }
};
/// One element for every index.
template <class T> struct value_reader {
  computed_t<T> value;
  [[nodiscard]] ESPALIER_ALWAYS_INLINE computed_t<T> operator[](std::int64_t) const { return value; }
};

/// An operand of a micro-operation: element type and width are static, where it lies is not.
template <class T, bool Wide> struct block_operand {
  static constexpr bool wide = Wide;
  const T* data;
  std::int64_t row;

  explicit block_operand(const kernels::stream& from) : data(static_cast<const T*>(from.data)), row(from.row) {}

  /// One row.
  [[nodiscard]] ESPALIER_ALWAYS_INLINE auto at(std::int64_t r) const {
    if constexpr (Wide) {
      return run_reader<T>{data + r * row};
    } else {
      return value_reader<T>{load_element(data + r * row)};
    }
  }
  /// Whether all rows together can be read as one, of which `at(0)` is the reader.
  [[nodiscard]] bool is_flat(std::int64_t columns) const { return row == (Wide ? columns : 0); }
  [[nodiscard]] run_reader<T> all_rows() const { return {data}; }
  [[nodiscard]] ESPALIER_ALWAYS_INLINE computed_t<T> of_row(std::int64_t r) const {
    return load_element(data + r * row);
  }
};

template <class Function, class Result, class... Readers>
ESPALIER_ALWAYS_INLINE void map_run(std::int64_t count, Result* to, Readers... from) {
  // However large the body is: a call in the loop would keep it from becoming vectors.
  vector_loop(count, [=](std::int64_t i)
                         ESPALIER_ALWAYS_INLINE_BODY { to[i] = element_cast<Result>(Function::apply(from[i]...)); });
}

/// Every operand and the result have one element per row.
template <class Function, class Result, class... Operands>
void map_narrow(std::int64_t rows, Result* to, std::int64_t to_row, Operands... from) {
  if (to_row == 1 && ((from.row == 1) && ...)) {
    map_run<Function>(rows, to, from.all_rows()...);
  } else {
    for (std::int64_t r = 0; r < rows; ++r) {
      to[r * to_row] = element_cast<Result>(Function::apply(from.of_row(r)...));
    }
  }
}

/// Rows shorter than this are unrolled by the compiler before it vectorises.
inline constexpr std::int64_t unrolled_row = 16;

/// How many columns a micro-operation works on.
template <std::int64_t Columns>
[[nodiscard]] ESPALIER_ALWAYS_INLINE std::int64_t columns_of_block(const kernels::block_call& call) {
  if constexpr (Columns == 0) {
    return call.columns & ~std::int64_t{15};  // says that there is no remainder
  } else if constexpr (Columns == any_columns) {
    return call.columns;
  } else {
    return Columns;
  }
}

/// One row. What is unrolled becomes vectors only if no store can touch what is still to be read.
template <class Function, std::int64_t Columns, class Result, class... Readers>
ESPALIER_ALWAYS_INLINE void map_row(std::int64_t columns, Result* to, Readers... from) {
  if constexpr (Columns > 0 && Columns < unrolled_row) {
    Result row[Columns];
    for (std::int64_t c = 0; c < Columns; ++c) row[c] = element_cast<Result>(Function::apply(from[c]...));
    std::memcpy(static_cast<void*>(to), &row[0], sizeof(row));
  } else {
    map_run<Function>(columns, to, from...);
  }
}

/// Short rows, and rows that are no whole number of vectors, are better taken together, where they are neighbours.
template <class Function, std::int64_t Columns, class Result, class... Operands>
void map_wide(const kernels::block_call& call, Result* to, Operands... from) {
  const std::int64_t to_row = call.result.row;
  const std::int64_t rows = call.rows;
  const std::int64_t columns = columns_of_block<Columns>(call);
  if constexpr (Columns == any_columns || (Columns > 0 && !is_long_row(Columns))) {
    if (to_row == columns && (from.is_flat(columns) && ...)) {
      map_run<Function>(rows * columns, to, from.at(0)...);
      return;
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) map_row<Function, Columns>(columns, to + r * to_row, from.at(r)...);
}

/// True if the result has one element per column. A result of one column counts as one per row, which is the same.
template <kernels::block_key Key> inline constexpr bool result_is_wide = Key.result_wide&& Key.columns != 1;
template <kernels::block_key Key, int K>
using operand_for = block_operand<storage_t<Key.operand_type[K]>, Key.wide[K] && Key.columns != 1>;

template <class Function, std::int64_t Columns, bool ResultWide, class Result, class... Operands>
void map_block(const kernels::block_call& call, Operands... from) {
  static_assert(ResultWide || !(Operands::wide || ...), "a result per row needs operands per row: reduce them first");
  auto* to = static_cast<Result*>(call.result.data);
  if constexpr (ResultWide) {
    map_wide<Function, Columns>(call, to, from...);
  } else {
    map_narrow<Function>(call.rows, to, call.result.row, from...);
  }
}

// --- f16

// Steps of f16 compute in float. They convert a block, pass it to the code for f32, and convert what that makes: so the
// code is shared, and conversions are those of half_runs.hpp.

[[nodiscard]] constexpr bool has_halves(const kernels::block_key& key) {
  bool found = key.type == dtype::f16;
  for (int k = 0; k < key.operand_count; ++k) found = found || key.operand_type[k] == dtype::f16;
  return found;
}
/// The key of the same step of f32: as kernel sets have it, whatever the number of columns.
[[nodiscard]] constexpr kernels::block_key with_floats(kernels::block_key key) {
  const bool is_wide = key.result_wide && key.columns != 1;
  key.columns = any_columns;
  key.result_wide = is_wide;
  if (key.type == dtype::f16) key.type = dtype::f32;
  for (int k = 0; k < key.operand_count; ++k) {
    if (key.operand_type[k] == dtype::f16) key.operand_type[k] = dtype::f32;
    key.wide[k] = key.wide[k] && is_wide;
  }
  return key;
}

/// The operands of a step, and its result, which comes last: the bytes of an element, 0 if it is f16.
struct half_sides {
  int operands = 0;
  std::int64_t bytes[4]{};
  bool wide[4]{};
};
[[nodiscard]] constexpr half_sides half_sides_of(const kernels::block_key& key) {
  half_sides sides{.operands = key.operand_count};
  const bool is_wide = key.result_wide && key.columns != 1;
  const auto bytes = [](dtype type) { return type == dtype::f16 ? 0 : size_of(type); };
  for (int k = 0; k < key.operand_count; ++k) {
    sides.bytes[k] = bytes(key.operand_type[k]);
    sides.wide[k] = key.wide[k] && is_wide;
  }
  sides.bytes[3] = bytes(key.type);
  sides.wide[3] = is_wide;
  return sides;
}

/// Runs a step of f32 on a block of which some sides are f16.
inline void run_through_floats(const kernels::block_call& call, const half_sides& sides,
                               kernels::block_function floats) {
  constexpr std::int64_t most = 1024;  // elements of a side, in the first-level cache
  alignas(64) float room[4][most];
  const auto at = [](const kernels::stream& side, std::int64_t element, std::int64_t bytes) {
    return static_cast<void*>(static_cast<char*>(side.data) + element * bytes);
  };
  const std::int64_t columns = sides.wide[3] ? call.columns : 1;
  const std::int64_t width = smaller_of(columns, most);
  const std::int64_t height = width > 0 ? most / width : 1;
  for (std::int64_t r = 0; r < call.rows; r += height) {
    for (std::int64_t c = 0; c < columns; c += width) {
      kernels::block_call part = call;
      part.rows = smaller_of(height, call.rows - r);
      part.columns = smaller_of(width, columns - c);
      part.first_row += r;
      part.first_column += c;
      const auto place = [&](const kernels::stream& side, int k) { return r * side.row + (sides.wide[k] ? c : 0); };
      const auto columns_of = [&](int k) { return sides.wide[k] ? part.columns : 1; };
      for (int k = 0; k < sides.operands; ++k) {
        const kernels::stream& from = call.operand[k];
        if (sides.bytes[k] != 0) {
          part.operand[k].data = at(from, place(from, k), sides.bytes[k]);
          continue;
        }
        const auto* const halves = static_cast<const float16*>(at(from, place(from, k), sizeof(float16)));
        convert_rows(halves, from.row, &room[k][0], columns_of(k), from.row == 0 ? 1 : part.rows, columns_of(k));
        part.operand[k] = {&room[k][0], from.row == 0 ? 0 : columns_of(k)};
      }
      if (sides.bytes[3] != 0) {
        part.result.data = at(call.result, place(call.result, 3), sides.bytes[3]);
        floats(part);
      } else {
        part.result = {&room[3][0], columns_of(3)};
        floats(part);
        auto* const halves = static_cast<float16*>(at(call.result, place(call.result, 3), sizeof(float16)));
        convert_rows(&room[3][0], columns_of(3), halves, call.result.row, part.rows, columns_of(3));
      }
    }
  }
}

/// The block kernel of an elementwise op: `Function::apply` computes one element from those of the operands.
template <class Function> struct elementwise_block {
  using function = Function;
  template <kernels::block_key Key> static void run(const kernels::block_call& call) {
    using result = storage_t<Key.type>;
    constexpr bool wide = result_is_wide<Key>;
    if constexpr (has_halves(Key)) {
      run_through_floats(call, half_sides_of(Key), &elementwise_block::template run<with_floats(Key)>);
    } else if constexpr (Key.operand_count == 1) {
      map_block<Function, Key.columns, wide, result>(call, operand_for<Key, 0>(call.operand[0]));
    } else if constexpr (Key.operand_count == 2) {
      map_block<Function, Key.columns, wide, result>(call, operand_for<Key, 0>(call.operand[0]),
                                                     operand_for<Key, 1>(call.operand[1]));
    } else {
      map_block<Function, Key.columns, wide, result>(call, operand_for<Key, 0>(call.operand[0]),
                                                     operand_for<Key, 1>(call.operand[1]),
                                                     operand_for<Key, 2>(call.operand[2]));
    }
  }
};

struct same_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) { return a; }
};
/// Copies a block of rows, of elements of so many bytes. The library's function is made for the processor that it runs
/// on, but a call of it costs as much as copying a few vectors.
inline constexpr std::int64_t least_copied_row = 64;
inline void copy_rows(const kernels::block_call& call, std::int64_t bytes) {
  const kernels::stream& from = call.operand[0];
  const kernels::stream& to = call.result;
  if (from.data == to.data && from.row == to.row) return;
  const bool is_flat = from.row == call.columns && to.row == call.columns;
  const std::int64_t rows = is_flat ? 1 : call.rows;
  const std::int64_t row_bytes = (is_flat ? call.rows * call.columns : call.columns) * bytes;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(static_cast<char*>(to.data) + r * to.row * bytes,
                static_cast<const char*>(from.data) + r * from.row * bytes, static_cast<std::size_t>(row_bytes));
  }
}

/// Whether the operand has as many elements as the result: rows of one column have one each.
[[nodiscard]] constexpr bool keeps_width(const kernels::block_key& key) {
  return !key.result_wide || key.columns == 1 || key.wide[0];
}
/// The block kernel of the ops that only pass a value on: as words of its size, if the types are the same. (A byte that
/// is a truth value is read as one, since padding may hold any.)
struct copy_block : elementwise_block<same_element> {
  template <kernels::block_key Key> static void run(const kernels::block_call& call) {
    if constexpr (Key.type == Key.operand_type[0] && Key.type != dtype::boolean) {
      using word = bits_of_t<storage_t<Key.type>>;
      if constexpr (Key.wide[0] && Key.result_wide && (Key.columns == 0 || Key.columns == any_columns)) {
        constexpr auto bytes = static_cast<std::int64_t>(sizeof(word));
        if (call.columns * bytes >= least_copied_row) return copy_rows(call, bytes);
      }
      map_block<same_element, Key.columns, result_is_wide<Key>, word>(
          call, block_operand < word, Key.wide[0] && Key.columns != 1 > (call.operand[0]));
    } else if constexpr (is_half_run<storage_t<Key.operand_type[0]>, storage_t<Key.type>> && keeps_width(Key)) {
      const kernels::stream& from = call.operand[0];
      convert_rows(static_cast<const storage_t<Key.operand_type[0]>*>(from.data), from.row,
                   static_cast<storage_t<Key.type>*>(call.result.data), call.result.row, call.rows,
                   result_is_wide<Key> ? call.columns : 1);
    } else {
      elementwise_block<same_element>::run<Key>(call);
    }
  }
};

}  // namespace espalier::detail
