// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/dtype.hpp>
#include <espalier/tensor/core/diagnostics/failure.hpp>
#include <espalier/tensor/core/shape/extents.hpp>

#include <concepts>

namespace espalier {

namespace detail {

/// The common base of the tensor types of base/dtype.hpp. A value of one has no part in a program: operators pass it on
/// as they do a mistake, so if a function has a parameter `f32<8, 6> x`, the program reports that mistake and no other.
template <dtype Type, int... Extents> struct tensor_type : failure_tag {
  static_assert(sizeof...(Extents) <= max_rank, "a tensor has at most eight dimensions");
  static_assert(
      ((Extents >= 1) && ...),
      "the extents of a tensor are numbers from 1 on: f32<64, 6>. (-1 is for reshape<-1, 6>(x), which works it "
      "out; a batch that varies is padded to one size.)");
  static_assert(is_representable(extents{static_cast<int>(sizeof...(Extents)), {(Extents >= 1 ? Extents : 1)...}}),
                "a tensor has at most 2^59 elements: nothing that is larger fits any memory");
  static constexpr dtype type = Type;
  static constexpr int rank = static_cast<int>(sizeof...(Extents));
  static constexpr extents shape{rank, {(Extents >= 1 ? Extents : 1)...}};
};

}  // namespace detail

template <class T>
concept TensorType = requires {
  { T::type } -> std::convertible_to<dtype>;
  { T::shape } -> std::convertible_to<extents>;
  { T::rank } -> std::convertible_to<int>;
};

namespace detail {

template <int... Dims> struct dims_sequence {};
template <int Rank> struct make_dims;
template <> struct make_dims<0> { using type = dims_sequence<>; };
template <> struct make_dims<1> { using type = dims_sequence<0>; };
template <> struct make_dims<2> { using type = dims_sequence<0, 1>; };
template <> struct make_dims<3> { using type = dims_sequence<0, 1, 2>; };
template <> struct make_dims<4> { using type = dims_sequence<0, 1, 2, 3>; };
template <> struct make_dims<5> { using type = dims_sequence<0, 1, 2, 3, 4>; };
template <> struct make_dims<6> { using type = dims_sequence<0, 1, 2, 3, 4, 5>; };
template <> struct make_dims<7> { using type = dims_sequence<0, 1, 2, 3, 4, 5, 6>; };
template <> struct make_dims<8> { using type = dims_sequence<0, 1, 2, 3, 4, 5, 6, 7>; };

// The extents pass through an array of int: taken from the template argument in place, g++ 12 crashes in -Wconversion.
struct int_extents {
  int rank = 0;
  int size[max_rank]{};
};
[[nodiscard]] constexpr int_extents as_int(const extents& shape) {
  int_extents result;
  result.rank = shape.rank;
  for (int d = 0; d < shape.rank; ++d) result.size[d] = static_cast<int>(shape[d]);
  return result;
}
template <dtype Type, extents Shape> struct tensor_of_value {
  static_assert(
      is_representable(Shape),
      "this result would have a dimension of more than 2147483647 elements, or more than 2^59 elements in all: "
      "make two dimensions of the long one (reshape), or compute it in parts");
  static constexpr int_extents value = as_int(Shape);
  template <int... Dims>
  static typename dtype_row<Type>::template tensor<value.size[Dims]...> with(dims_sequence<Dims...>);
  using type = decltype(with(typename make_dims<value.rank>::type{}));
};

}  // namespace detail

/// The tensor type with this element type and these extents: values lifted back to types.
template <dtype Type, extents Shape> using tensor_for = typename detail::tensor_of_value<Type, Shape>::type;

}  // namespace espalier
