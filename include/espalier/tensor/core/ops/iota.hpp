// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/declare.hpp>

namespace espalier {

namespace detail {

constexpr void evaluate_iota(const evaluation& e) {
  const extents& to = e.self->shape;
  const int along = attributes_of<index_attributes>(*e.self).dim;
  const std::int64_t stride = stride_of(to, along);
  for (std::int64_t i = 0; i < to.elements(); ++i) {
    e.result[i] = static_cast<double>(e.boxes->result.dim[along].start + i / stride % to[along]);
  }
}

}  // namespace detail

namespace ops {
/// Each element's index along one dimension; a device counts from its own offset.
inline constexpr op_info iota{.name = "iota",
                              .spread = propagation::elementwise,
                              .fuse = fusion::source,
                              .facts = {.values = pattern::index, .attributes = "dim:dimension"},
                              .factors = detail::same_dimensions,
                              .gradient = detail::no_gradient,
                              .evaluate = detail::evaluate_iota,
                              .flops = detail::no_flops,
                              .positional = true};
}  // namespace ops

namespace emit {
constexpr int iota(builder& b, dtype type, const extents& shape, int dim) {
  return b.append(with_attributes(builder::make(ops::iota, type, shape), index_attributes{dim}));
}
}  // namespace emit

/// A tensor of `Type` whose elements are their own index along dimension `Dim`, on the mesh of `like`.
/// Errors: `no_such_dimension`.
template <TensorType Type, int Dim, Traced Like>
constexpr auto iota(const Like& like, source_line where = source_line::current()) {
  if constexpr (Failed<Like>) {
    return like;
  } else if constexpr (detail::dimension(Dim, Type::rank) < 0) {
    return failed<why::no_such_dimension<Type, why::dim<Dim>>>(where, "iota");
  } else {
    like.owner->at(where);
    return detail::symbol_like<Like, Type>(
        like, emit::iota(*like.owner, Type::type, Type::shape, detail::dimension(Dim, Type::rank)));
  }
}

}  // namespace espalier
