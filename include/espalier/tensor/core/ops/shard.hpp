// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/function_as_axis.hpp>
#include <espalier/tensor/core/ops/softmax.hpp>
#include <espalier/tensor/core/sharding/annotation.hpp>

namespace espalier {

namespace detail {
constexpr void shard_gradient(gradient_context& c);
constexpr void reshard_gradient(gradient_context& c);
constexpr void match_gradient(gradient_context& c) { c.give(0, c.cotangent); }
}  // namespace detail

namespace ops {
/// The operand, with the user's sharding `annotation`. Its gradient is the same annotation (GSPMD section 3.6), which
/// is marked (`annotation_attributes`), because that one may meet another where the user's own may not.
inline constexpr op_info shard =
    detail::elementwise_op("shard", detail::evaluate_identity, detail::shard_gradient, linearity::first,
                           {.requests = layout_request::annotation,
                            .is_written = true,
                            .cheap_to_repeat = true,
                            .attributes = "of_gradient:flag"});
/// The same annotation, of the value alone: its gradient gets the layout that its readers have.
inline constexpr op_info shard_value =
    detail::elementwise_op("shard_value", detail::evaluate_identity, detail::match_gradient, linearity::first,
                           {.requests = layout_request::annotation, .is_written = true, .cheap_to_repeat = true});
/// The operand in another layout: nothing is inferred from one side to the other.
inline constexpr op_info reshard{.name = "reshard",
                                 .spread = propagation::none,
                                 .linear = linearity::first,
                                 .facts = {.requests = layout_request::change, .is_written = true},
                                 .factors = detail::same_dimensions,
                                 .gradient = detail::reshard_gradient,
                                 .evaluate = detail::evaluate_identity,
                                 .flops = detail::no_flops};
/// Operand 0 in the layout that operand 1 has: how a gradient comes out sharded like its parameter.
inline constexpr op_info match{.name = "match",
                               .spread = propagation::elementwise,
                               .linear = linearity::first,
                               .facts = {.requests = layout_request::as_operand, .attributes = "of_gradient:flag"},
                               .factors = detail::same_dimensions,
                               .gradient = detail::match_gradient,
                               .evaluate = detail::evaluate_identity,
                               .flops = detail::no_flops};
}  // namespace ops

namespace emit {
constexpr int annotated(builder& b, const op_info& op, int a, int annotation) {
  instruction made = builder::make(op, b[a].type, b[a].shape, a);
  made.annotation = annotation;
  return b.append(made);
}
constexpr int match(builder& b, int value, int like) {
  return b.append(ops::match, b[value].type, b[value].shape, value, like);
}
}  // namespace emit

constexpr void detail::shard_gradient(gradient_context& c) {
  // A partial's cotangent is whole on those axes, and the other way round.
  layout wanted = c.emit.result().annotations[c.self().annotation];
  wanted.placement.unreduced = 0;
  const int made = emit::annotated(c.emit, ops::shard, c.cotangent,
                                   c.emit.annotate(wanted.shape, wanted.placement, wanted.priority));
  set_attributes(c.emit[made], annotation_attributes{.of_gradient = true});
  c.give(0, made);
}
constexpr void detail::reshard_gradient(gradient_context& c) {
  const int made = emit::match(c.emit, c.cotangent, c.operand(0));
  set_attributes(c.emit[made], annotation_attributes{.of_gradient = true});
  c.give(0, made);
}

namespace detail {

template <const op_info* Op, class... Entries, Traced A> constexpr auto annotate(const A& a, source_line where) {
  if constexpr (Failed<A>) {
    return a;
  } else {
    constexpr read_annotation read = annotation_of<typename A::mesh, Entries...>(A::rank);
    if constexpr (read.fault == annotation_fault::wrong_rank) {
      return failed<why::annotation_of_wrong_rank<typename A::tensor, Entries...>>(where);
    } else if constexpr (read.fault == annotation_fault::unknown_axis) {
      return failed<why::unknown_mesh_axis<typename A::mesh, Entries...>>(where);
    } else if constexpr (read.fault == annotation_fault::axis_used_twice) {
      return failed<why::axis_used_twice<typename A::tensor, Entries...>>(where);
    } else if constexpr (read.fault == annotation_fault::no_such_priority) {
      return failed<why::no_such_priority<typename A::tensor, Entries...>>(where);
    } else {
      builder& b = *a.owner;
      b.at(where);
      const int annotation = b.annotate(A::shape, read.placement, read.priority);
      return symbol_like<A, typename A::tensor>(a, emit::annotated(b, *Op, a.id, annotation));
    }
  }
}

}  // namespace detail

/// Says how a tensor is laid out, one entry per dimension: `shard<data, none>(x)`. Completion carries it on, and
/// never changes it. Errors: `annotation_of_wrong_rank`, `unknown_mesh_axis`, `axis_used_twice`; two different
/// annotations of one tensor are `conflicting_annotations`.
template <class... Entries, Traced A> constexpr auto shard(const A& a, source_line where = source_line::current()) {
  return detail::annotate<&ops::shard, Entries...>(a, where);
}

/// Changes the layout: the same values, laid out as the entries say from here on. Errors as for `shard`.
template <class... Entries, Traced A> constexpr auto reshard(const A& a, source_line where = source_line::current()) {
  return detail::annotate<&ops::reshard, Entries...>(a, where);
}

/// Gives the tensor a name by which `program` answers for its sharding, and tables show it.
template <detail::fixed_string Name, Traced A> constexpr auto label(const A& a) {
  if constexpr (Symbol<A>) (*a.owner)[a.id].label = &Name.text[0];
  return a;
}

}  // namespace espalier
