// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/core/sharding/print.hpp>
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/runner.hpp>
#include <espalier/tensor/run/io/xtensor_compat.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace espalier {

namespace detail {

template <class Container> [[nodiscard]] std::string shape_text(const Container& values) {
  std::string text = "(";
  for (std::size_t d = 0; d < values.dimension(); ++d) {
    text += (d > 0 ? ", " : "") + std::to_string(values.shape()[d]);
  }
  return text + ")";
}

template <class Tensor> [[nodiscard]] std::array<std::size_t, static_cast<std::size_t>(Tensor::rank)> xtensor_shape() {
  std::array<std::size_t, static_cast<std::size_t>(Tensor::rank)> shape{};
  for (std::size_t d = 0; d < shape.size(); ++d)
    shape[d] = static_cast<std::size_t>(Tensor::shape[static_cast<int>(d)]);
  return shape;
}

}  // namespace detail

/// Copies an xtensor array, view or expression into the shards of this process: each device takes its own part. Every
/// process has the whole of it. Elements are converted as NumPy does by itself (`same_kind`): to a type of the same
/// kind or of a later one of bool, natural, integer, floating; others are a compile error.
///
/// Errors: `argument_error` if the shapes differ, or if an integer is one that the tensor's type cannot hold; then
/// nothing has been written. Of partial sums the first device gets the values, and the others terms of 0.
template <class Tensor, class Values>
  requires(xt::is_xexpression<Values>::value)
void scatter(const Values& values, const sharded_array<Tensor>& into) {
  using given = typename Values::value_type;
  using element = storage_t<Tensor::type>;
  constexpr bool is_convertible = detail::converts_elements<given, element>;
  static_assert(
      is_convertible,
      "scatter: elements of this type are not converted by themselves. Convert them with xt::cast<...>(...).");
  if constexpr (is_convertible) {
    bool same = values.dimension() == static_cast<std::size_t>(Tensor::rank);
    for (int d = 0; same && d < Tensor::rank; ++d) {
      same = static_cast<std::int64_t>(values.shape()[static_cast<std::size_t>(d)]) == Tensor::shape[d];
    }
    if (!same) {
      const std::string wanted = to_string(mesh_shape{}, Tensor::type, Tensor::shape, sharding::whole(Tensor::rank));
      throw argument_error("xtensor values of shape " + detail::shape_text(values) + " were given for a tensor " +
                           wanted + ". Make the shapes equal, or transpose them first.");
    }
    // Flat access is only row-major where the container is.
    const auto flat = values.template begin<xt::layout_type::row_major>();
    if constexpr (std::is_integral_v<given> && std::is_integral_v<element>) {
      // Of all elements, so that all processes find the same.
      for (std::int64_t i = 0; i < Tensor::shape.elements(); ++i) {
        const given value = flat[i];
        if (!detail::fits_element<element>(value)) detail::refuse_element(std::to_string(value), Tensor::type);
      }
    }
    into.for_each(
        [&](element& one, std::int64_t index) { one = detail::converted_element<element>(given(flat[index])); });
  }
}

/// Leaves that are whole tensors: `dense<whole_tensors>` is a tree of xtensor containers.
struct whole_tensors {
  template <class Tensor>
  using of = xt::xtensor<storage_t<plain<Tensor>::type>, static_cast<std::size_t>(plain<Tensor>::rank)>;
};

namespace detail {

/// `run` takes whole tensors for arrays of the same rank, where that is known.
template <class Values>
  requires(xt::is_xexpression<Values>::value)
struct whole_tensor<Values> {
  static constexpr std::size_t rank = xt::get_rank<Values>::value;
  template <class Array>
  static constexpr bool fits = (rank == SIZE_MAX || rank == static_cast<std::size_t>(Array::tensor::rank)) &&
                               converts_elements<typename Values::value_type, typename Array::value_type>;
  template <class Tensor> static void copy(const Values& values, const sharded_array<Tensor>& into) {
    scatter(values, into);
  }
};

/// And for trees of arrays what `gather_xtensor` makes of them.
template <class Given, ParameterTree Taken>
inline constexpr bool is_whole_tensor<Given, Taken> = std::is_same_v<Given, with_leaves<Taken, whole_tensors>>;

template <class T> struct gathered;
template <class Tensor> struct gathered<sharded_array<Tensor>> { using type = whole_tensors::of<Tensor>; };
template <ParameterTree Tree> struct gathered<Tree> { using type = with_leaves<Tree, whole_tensors>; };
template <class... Parts> struct gathered<results<Parts...>> {
  using type = results<typename gathered<Parts>::type...>;
};

}  // namespace detail

/// The whole tensor as an xtensor container, on every process. Collective: all ranks call it.
template <class Tensor>
[[nodiscard]] whole_tensors::of<Tensor> gather_xtensor(world& where, const sharded_array<Tensor>& array,
                                                       source_line line = source_line::current()) {
  const auto values = gather(where, array, line);
  whole_tensors::of<Tensor> result(detail::xtensor_shape<Tensor>());
  std::size_t i = 0;
  for (const auto value : values) result.storage()[i++] = value;
  return result;
}
/// The same of all arrays of a tree, as the tree of `whole_tensors`, or of `results`.
template <class Arrays>
  requires(ParameterTree<Arrays> || detail::is_results<Arrays>)
[[nodiscard]] auto gather_xtensor(world& where, const Arrays& arrays, source_line line = source_line::current()) {
  typename detail::gathered<Arrays>::type whole;
  detail::for_each_pair(whole, arrays,
                        [&](auto& into, const auto& array) { into = gather_xtensor(where, array, line); });
  return whole;
}

/// A view of one shard, in place: `shard_view(x, local)(i, j) = 1`. Its shape is the local buffer's, padding included.
template <class Tensor> [[nodiscard]] auto shard_view(const sharded_array<Tensor>& array, int local) {
  const extents shape = array.local_extents();
  std::array<std::size_t, static_cast<std::size_t>(Tensor::rank)> sizes{};
  for (std::size_t d = 0; d < sizes.size(); ++d) sizes[d] = static_cast<std::size_t>(shape[static_cast<int>(d)]);
  return xt::adapt(array.data(local), static_cast<std::size_t>(shape.elements()), xt::no_ownership(), sizes);
}

}  // namespace espalier
