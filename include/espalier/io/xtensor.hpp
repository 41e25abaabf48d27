// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/execute/gather.hpp>
#include <espalier/execute/runner.hpp>
#include <espalier/io/xtensor_compat.hpp>

#include <array>
#include <cstddef>
#include <string>

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

/// Copies an xtensor container into the shards of this process: each device takes its own part. Every process holds
/// the whole container. Errors: `argument_error` if the shapes differ.
template <class Tensor, class Container> void scatter(const Container& values, sharded_array<Tensor>& into) {
  bool same = values.dimension() == static_cast<std::size_t>(Tensor::rank);
  for (int d = 0; same && d < Tensor::rank; ++d) {
    same = values.shape()[static_cast<std::size_t>(d)] == static_cast<std::size_t>(Tensor::shape[d]);
  }
  if (!same) {
    const std::string wanted = to_string(mesh_shape{}, Tensor::type, Tensor::shape, sharding::whole(Tensor::rank));
    throw argument_error("scatter: an xtensor container of shape " + detail::shape_text(values) +
                         " was given for a tensor " + wanted + ". Make the shapes equal, or transpose it first.");
  }
  using element = storage_t<Tensor::type>;
  // Flat access is only row-major where the container is.
  const auto flat = values.template begin<xt::layout_type::row_major>();
  into.for_each([&](element& one, std::int64_t index) { one = static_cast<element>(flat[index]); });
}

/// The whole tensor as an xtensor container, on every process. Collective: all ranks call it.
template <class Tensor>
[[nodiscard]] xt::xtensor<storage_t<Tensor::type>, static_cast<std::size_t>(Tensor::rank)> gather_xtensor(
    world& where, const sharded_array<Tensor>& array) {
  const auto values = gather(where, array);
  xt::xtensor<storage_t<Tensor::type>, static_cast<std::size_t>(Tensor::rank)> result(detail::xtensor_shape<Tensor>());
  std::size_t i = 0;
  for (const auto value : values) result.storage()[i++] = value;
  return result;
}

/// A view of one shard, in place: `shard_view(x, local)(i, j) = 1`. Its shape is the local buffer's, padding included.
template <class Tensor> [[nodiscard]] auto shard_view(const sharded_array<Tensor>& array, int local) {
  const extents shape = array.local_extents();
  std::array<std::size_t, static_cast<std::size_t>(Tensor::rank)> sizes{};
  for (std::size_t d = 0; d < sizes.size(); ++d) sizes[d] = static_cast<std::size_t>(shape[static_cast<int>(d)]);
  return xt::adapt(array.data(local), static_cast<std::size_t>(shape.elements()), xt::no_ownership(), sizes);
}

}  // namespace espalier
