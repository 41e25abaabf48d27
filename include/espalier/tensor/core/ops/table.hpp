// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/storage.hpp>
#include <espalier/tensor/core/ops/declare.hpp>
#include <espalier/tensor/core/ops/reasons/table.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

// Tensors whose elements are in the user's source: an array, or arrays of arrays. The table stays where it is, in the
// program's own memory; each device copies its shard of it.

namespace espalier {

namespace detail {

/// An array, or a std::array, of elements or of further arrays.
template <class T> struct table_traits {
  using element = T;
  static constexpr bool is_row = false;
};
template <class T>
  requires(!std::is_array_v<T> && requires { std::tuple_size<T>::value; })
struct table_traits<T> {
  using part = std::remove_cvref_t<decltype(std::declval<const T&>()[0])>;
  using element = typename table_traits<part>::element;
  static constexpr bool is_row = true;
  static constexpr std::int64_t size = static_cast<std::int64_t>(std::tuple_size<T>::value);
};
template <class T, std::size_t N> struct table_traits<T[N]> {
  using part = std::remove_cv_t<T>;
  using element = typename table_traits<part>::element;
  static constexpr bool is_row = true;
  static constexpr std::int64_t size = static_cast<std::int64_t>(N);
};

template <class T> constexpr void append_table_extents(extents& shape) {
  if constexpr (table_traits<T>::is_row) {
    shape.append(table_traits<T>::size);
    append_table_extents<typename table_traits<T>::part>(shape);
  }
}
template <class T> [[nodiscard]] constexpr int table_rank() {
  if constexpr (table_traits<T>::is_row) {
    return 1 + table_rank<typename table_traits<T>::part>();
  } else {
    return 0;
  }
}
template <class T> [[nodiscard]] constexpr std::int64_t table_elements() {
  if constexpr (table_traits<T>::is_row) {
    return table_traits<T>::size * table_elements<typename table_traits<T>::part>();
  } else {
    return 1;
  }
}
/// The shape of the arrays.
template <class T>
inline constexpr extents extents_of_table = [] {
  extents shape;
  append_table_extents<T>(shape);
  return shape;
}();

/// Element number `at`, in row-major order.
template <class T> [[nodiscard]] constexpr const auto& table_element(const T& table, std::int64_t at) {
  if constexpr (table_traits<T>::is_row) {
    constexpr std::int64_t row = table_elements<typename table_traits<T>::part>();
    return table_element(table[static_cast<std::size_t>(at / row)], at % row);
  } else {
    return table;
  }
}

/// The element type for elements of a C++ type, as far as there is one: `is_known` is false otherwise.
struct table_dtype {
  bool is_known = true;
  dtype type = dtype::f32;
};
template <class T> [[nodiscard]] constexpr table_dtype dtype_of_element() {
  if constexpr (std::is_same_v<T, bool>) {
    return {true, dtype::boolean};
  } else if constexpr (std::is_integral_v<T>) {
    if (sizeof(T) == 1) return {true, std::is_signed_v<T> ? dtype::i8 : dtype::u8};
    if (sizeof(T) == 4) return {true, std::is_signed_v<T> ? dtype::i32 : dtype::u32};
    return {sizeof(T) == 8 && std::is_signed_v<T>, dtype::i64};
  } else if constexpr (requires { dtype_of<T> == dtype::f32; }) {
    return {true, dtype_of<T>};
  } else {
    return {false, dtype::f32};
  }
}

/// Calls `f(index in the buffer, index in the table)` for the elements of a part.
template <class F>
constexpr void for_each_of_table(const extents& buffer, const extents& whole, const tensor_box& part, const F& f) {
  std::int64_t index[max_rank]{};
  std::int64_t to = 0;
  std::int64_t from = 0;
  for (int d = 0; d < whole.rank; ++d) {
    if (part.dim[d].size <= 0) return;
    from += part.dim[d].start * stride_of(whole, d);
  }
  for (;;) {
    f(to, from);
    int d = whole.rank - 1;
    for (; d >= 0; --d) {
      to += stride_of(buffer, d);
      from += stride_of(whole, d);
      if (++index[d] < part.dim[d].size) break;
      to -= stride_of(buffer, d) * index[d];
      from -= stride_of(whole, d) * index[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

template <const auto& Table> constexpr void evaluate_table(const evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = 0;
  for_each_of_table(e.self->shape, e.boxes->whole, e.boxes->result, [&](std::int64_t to, std::int64_t from) {
    const auto element = table_element(Table, from);
    e.result[to] = static_cast<double>(static_cast<computed_t<std::remove_const_t<decltype(element)>>>(element));
  });
}

template <const auto& Table, dtype Type>
void fill_from_table(void* result, const extents& buffer, const extents& whole, const tensor_box& part) {
  using element = storage_t<Type>;
  auto* const all = static_cast<element*>(result);
  for_each_of_table(buffer, whole, part, [&](std::int64_t to, std::int64_t from) {
    const auto one = table_element(Table, from);
    using given = std::remove_const_t<decltype(one)>;
    if constexpr (std::is_same_v<given, element>) {
      all[to] = one;
    } else if constexpr (std::is_same_v<element, bool>) {
      all[to] = static_cast<computed_t<given>>(one) != computed_t<given>(0);
    } else {
      all[to] = static_cast<element>(static_cast<computed_t<element>>(static_cast<computed_t<given>>(one)));
    }
  });
}

}  // namespace detail

namespace ops {
/// The elements of a table in the user's source. Each device makes its own part.
template <const auto& Table, dtype Type>
inline constexpr op_info table{.name = "table",
                               .spread = propagation::elementwise,
                               .factors = detail::same_dimensions,
                               .gradient = detail::no_gradient,
                               .evaluate = detail::evaluate_table<Table>,
                               .flops = detail::no_flops,
                               .positional = true,
                               .fill = detail::fill_from_table<Table, Type>};
}  // namespace ops

/// A tensor of `Type` with the elements of a table, in row-major order, on the mesh of `like`: any (nested) array or
/// std::array that lives as long as the program, as a constexpr variable of a namespace or a static member does. Where
/// the tensor is split, each device has its part only.
/// Errors: `table_size_mismatch`, `number_is_no_integer`.
template <TensorType Type, const auto& Table, Traced Like>
constexpr auto constant(const Like& like, source_line where = source_line::current()) {
  using table = std::remove_cvref_t<decltype(Table)>;
  using element = typename detail::table_traits<table>::element;
  if constexpr (Failed<Like>) {
    return like;
  } else if constexpr (constexpr std::int64_t count = detail::table_elements<table>();
                       count != Type::shape.elements()) {
    return failed<why::table_size_mismatch<Type, why::count<static_cast<int>(count)>>>(where);
  } else if constexpr (is_integer(Type::type) && !std::is_integral_v<element>) {
    return failed<why::number_is_no_integer<Type, element>>(where, "constant");
  } else {
    like.owner->at(where);
    constexpr const op_info& op = ops::table<Table, Type::type>;
    return detail::symbol_like<Like, Type>(like, like.owner->append(op, Type::type, Type::shape));
  }
}

/// The same with the table's own shape and element type: of a `std::array<std::array<float, 3>, 2>` an f32<2, 3>.
template <const auto& Table, Traced Like>
constexpr auto constant(const Like& like, source_line where = source_line::current()) {
  using table = std::remove_cvref_t<decltype(Table)>;
  constexpr detail::table_dtype type = detail::dtype_of_element<typename detail::table_traits<table>::element>();
  static_assert(type.is_known,
                "constant: no element type is made of this C++ type. Name the tensor type: "
                "constant<f32<3>, table>(like).");
  static_assert(detail::table_rank<table>() <= max_rank, "constant: the table has more than eight dimensions");
  if constexpr (Failed<Like>) {
    return like;
  } else {
    return constant<tensor_for<type.type, detail::extents_of_table<table>>, Table>(like, where);
  }
}

}  // namespace espalier
