// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/einsum.hpp>

// A product added to an existing value. Users do not write it: programs that accumulate gradients contain it, so that a
// product is not written, read again and added.
namespace espalier {

namespace detail {

/// The factors of a product, but no factor that is summed over is split: each device would add the addend once more.
[[nodiscard]] constexpr factor_rule add_einsum_factors(op_view v) {
  factor_rule rule = einsum_factors(v);
  for (int d = 0; d < v.self().shape.rank; ++d) rule.operand[2][d] = rule.result[d];
  for (int f = 0; f < rule.count; ++f)
    if (rule.kind[f] == factor_kind::reduce) rule.kind[f] = factor_kind::blocked;
  return rule;
}

constexpr void add_einsum_gradient(gradient_context& c) {
  einsum_gradient(c);
  c.give(2, c.cotangent);
}

constexpr void evaluate_add_einsum(const evaluation& e) {
  evaluate_einsum(e);
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] += e.operand[2][i];
}

}  // namespace detail

namespace ops {
/// The einsum of operands 0 and 1, plus operand 2, which it overwrites if that is not read afterwards.
inline constexpr op_info add_einsum{.name = "add_einsum",
                                    .spread = propagation::dimensional,
                                    .facts = {.overwrites = 2, .attributes = "subscripts:einsum of_lone_head:flag"},
                                    .factors = detail::add_einsum_factors,
                                    .gradient = detail::add_einsum_gradient,
                                    .evaluate = detail::evaluate_add_einsum,
                                    .flops = detail::einsum_flops,
                                    .map = detail::map_einsum};
}  // namespace ops

namespace emit {

/// `product` + `addend`. If the product is an einsum of floating-point numbers it is made again as a sum with the
/// addend; without another reader it is then not computed any more.
constexpr int add_to(builder& b, int addend, int product) {
  const instruction of = b[product];
  if (of.op != &ops::einsum || !is_floating(of.type) || of.type != b[addend].type || of.shape != b[addend].shape)
    return add(b, addend, product);
  return b.append(
      with_attributes(builder::make(ops::add_einsum, of.type, of.shape, of.operand[0], of.operand[1], addend),
                      attributes_of<einsum_attributes>(of)));
}

}  // namespace emit

}  // namespace espalier
