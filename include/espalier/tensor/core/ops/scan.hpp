// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/tree.hpp>
#include <espalier/tensor/core/ops/iota.hpp>
#include <espalier/tensor/core/ops/reasons/scan.hpp>
#include <espalier/tensor/core/ops/shard.hpp>

namespace espalier {

namespace detail {

/// The stacked dimension stays whole: each iteration reads or writes one slice of it.
[[nodiscard]] constexpr factor_rule loop_slice_factors(op_view v) {
  factor_rule rule;
  const extents& from = v.operand(0).shape;
  rule.operand[0][0] = factor_list(rule.add(from[0], factor_kind::blocked));
  for (int d = 0; d < v.self().shape.rank; ++d) {
    rule.result[d] = factor_list(rule.add(v.self().shape[d]));
    rule.operand[0][d + 1] = rule.result[d];
  }
  return rule;
}
[[nodiscard]] constexpr factor_rule loop_stack_factors(op_view v) {
  factor_rule rule;
  const extents& to = v.self().shape;
  rule.result[0] = factor_list(rule.add(to[0], factor_kind::blocked));
  for (int d = 1; d < to.rank; ++d) {
    rule.result[d] = factor_list(rule.add(to[d]));
    rule.operand[0][d - 1] = rule.result[d];
  }
  return rule;
}

/// The bodies' gradients are made as a whole, by differentiate.hpp.
constexpr op_info region_op(const char* name, factor_rule (*factors)(op_view), op_facts facts,
                            linearity linear = linearity::none, void (*gradient)(gradient_context&) = no_gradient) {
  facts.bound_to_region = true;
  return {.name = name,
          .spread = propagation::elementwise,
          .linear = linear,
          .facts = facts,
          .factors = factors,
          .gradient = gradient,
          .evaluate = evaluate_identity,
          .flops = no_flops};
}

}  // namespace detail

/// A region in the list of instructions: the body of a loop, or a branch, which runs once or not at all
/// (`region_kind`). The first parameter of an `until_or_at_most`, as it is traced, counts its iterations from 0, for
/// the gradient.
///
///     region_begin  entry                    see `region_attributes`; `entry`, if it decides how often the region runs
///       region_parameter  init               what the previous iteration yielded, at first `init`
///       loop_slice  stacked                  this iteration's slice of a tensor outside, along its first dimension
///       ...                                  the body; it may use any value before the region
///       region_yield  parameter, value       what the parameter is in the next iteration
///     region_end  region_begin, goes_on      `goes_on`, computed in the body, if it decides whether the region runs
///     again region_result  region_yield            what the last iteration yielded, or `init` if there was none
///     loop_stack  value in the body          its values in all iterations, along a new first dimension
///     loop_sum  value in the body            the sum of its values over all iterations
///
/// What belongs to loops alone is named after them; a parameter of a loop is its carry.
namespace ops {
inline constexpr op_info region_begin = detail::region_op(
    "region_begin", detail::same_dimensions,
    {.part = structure::region_begin,
     .unique = true,
     .attributes = "iterations reverse:flag recompute:flag kind:|up_to|until|until_or_at_most|branch"});
inline constexpr op_info region_parameter = detail::region_op("region_parameter", detail::same_dimensions,
                                                              {.part = structure::region_parameter, .unique = true});
inline constexpr op_info region_yield =
    detail::region_op("region_yield", detail::same_dimensions, {.part = structure::region_yield, .unique = true});
inline constexpr op_info region_end =
    detail::region_op("region_end", detail::same_dimensions, {.part = structure::region_end, .unique = true});
inline constexpr op_info region_result =
    detail::region_op("region_result", detail::same_dimensions,
                      {.part = structure::region_result, .unique = true, .shares_operand = true});
inline constexpr op_info loop_slice =
    detail::region_op("loop_slice", detail::loop_slice_factors,
                      {.part = structure::loop_slice, .cheap_to_repeat = true}, linearity::first);
inline constexpr op_info loop_stack =
    detail::region_op("loop_stack", detail::loop_stack_factors, {.part = structure::loop_stack}, linearity::first);
inline constexpr op_info loop_sum =
    detail::region_op("loop_sum", detail::same_dimensions, {.part = structure::loop_sum}, linearity::first);
/// The operand's values in a buffer of their own.
inline constexpr op_info copy =
    detail::region_op("copy", detail::same_dimensions, {.unique = true}, linearity::first, detail::match_gradient);
}  // namespace ops

namespace emit {

/// @param entry what a region that is not counted reads
constexpr int region_begin(builder& b, const region_attributes& attributes, int entry = -1, int branch = 0) {
  instruction made = with_attributes(builder::make(ops::region_begin, dtype::i32, extents{}, entry), attributes);
  made.scalar = branch;
  b.region = b.append(made);
  return b.region;
}
constexpr int region_begin(builder& b, std::int64_t count, bool reverse, bool recompute) {
  return region_begin(b, region_attributes{count, reverse, recompute});
}
constexpr int region_parameter(builder& b, int init) {
  return b.append(ops::region_parameter, b[init].type, b[init].shape, init);
}

constexpr int copy(builder& b, int value) { return b.append(ops::copy, b[value].type, b[value].shape, value); }

/// A value that is itself a carry of this loop would be overwritten while it is passed on.
constexpr int region_yield(builder& b, int carry, int value) {
  const bool is_carry = b[value].op == &ops::region_parameter && b[value].region == b.region && value != carry;
  const int source = is_carry ? copy(b, value) : value;
  return b.append(ops::region_yield, b[carry].type, b[carry].shape, carry, source);
}
constexpr void region_end(builder& b, int goes_on = -1) {
  const int begin = b.region;
  b.append(ops::region_end, dtype::i32, extents{}, begin, goes_on);
  b.region = b[begin].region;
  b[b.size() - 1].region = b.region;
}
constexpr int region_result(builder& b, int next) {
  return b.append(ops::region_result, b[next].type, b[next].shape, next);
}
constexpr int loop_slice(builder& b, int stacked) {
  extents shape;
  for (int d = 1; d < b[stacked].shape.rank; ++d) shape.append(b[stacked].shape[d]);
  return b.append(ops::loop_slice, b[stacked].type, shape, stacked);
}
constexpr extents stacked_shape(const builder& b, int value) {
  extents shape;
  shape.append(attributes_of<region_attributes>(b[b[value].region]).iterations);
  for (int d = 0; d < b[value].shape.rank; ++d) shape.append(b[value].shape[d]);
  return shape;
}
/// The value as one of the loop being built, as `loop_stack` and `loop_sum` need it.
constexpr int own(builder& b, int value) { return b[value].region == b.region ? value : copy(b, value); }
/// Belongs outside the loop of `value`; wherever it is appended, `normalise` moves it there.
constexpr int loop_stack(builder& b, int value) {
  const int id =
      b.result().code.push_back(builder::make(ops::loop_stack, b[value].type, stacked_shape(b, value), value));
  b[id].region = b[b[value].region].region;
  b[id].where = b[value].where;
  return id;
}
constexpr int loop_sum(builder& b, int value) {
  const int id = b.result().code.push_back(builder::make(ops::loop_sum, b[value].type, b[value].shape, value));
  b[id].region = b[b[value].region].region;
  b[id].where = b[value].where;
  return id;
}

}  // namespace emit

/// Asks `scan` to recompute its body in the gradient from the carry alone, instead of keeping every value of every
/// iteration: less memory, about a third more work.
struct recompute_t {};
inline constexpr recompute_t recompute{};

namespace detail {

/// The return value of a loop's body: the next carry, or that and an output. No type is a part of itself, so a carry
/// that is `results` of two is not mistaken for a pair of carry and output, nor the other way round.
template <class Carry, class Out> struct body_parts { static constexpr bool carry_fits = false; };
template <class Carry> struct body_parts<Carry, Carry> {
  static constexpr bool carry_fits = true;
  static constexpr bool has_output = false;
  static constexpr const Carry& carry(const Carry& out) { return out; }
};
template <class Carry, class Output> struct body_parts<Carry, results<Carry, Output>> {
  static constexpr bool carry_fits = true;
  static constexpr bool has_output = true;
  static constexpr const Carry& carry(const results<Carry, Output>& out) { return out.first; }
};

/// A tree of stacked leaves as its leaves are inside the loop.
template <class T> struct inside_loop;
template <class Mesh, class Tensor> struct inside_loop<symbol<Mesh, Tensor>> {
  using type = symbol<Mesh, typename unstacked_tensor<Tensor>::type>;
  static constexpr int count = static_cast<int>(Tensor::shape[0]);
};
/// Whether all leaves of a tree, or of what results<...> hold, have a dimension that `scan` takes off.
template <class T> inline constexpr bool is_stacked = true;
template <ParameterTree Tree> inline constexpr bool is_stacked<Tree> = requires {
  typename stacking<kind_of<Tree>>::rest;
};
template <class... Parts> inline constexpr bool is_stacked<results<Parts...>> = (is_stacked<Parts> && ...);

template <ParameterTree Tree> struct inside_loop<Tree> {
  using type = rebind_tree<Tree, typename stacking<kind_of<Tree>>::rest>;
  static constexpr int count = stacking<kind_of<Tree>>::count;
};
template <class... Parts> struct inside_loop<results<Parts...>> {
  using type = results<typename inside_loop<Parts>::type...>;
  static constexpr int counts[]{inside_loop<Parts>::count...};
  static constexpr int count = [] {
    for (const int c : counts) {
      if (c != counts[0]) return -1;
    }
    return counts[0];
  }();
};

/// The type, outside a loop, of the stacked values of an output that the body computes.
template <int Count, class Y> struct outside_loop;
template <int Count, class Mesh, class Tensor> struct outside_loop<Count, symbol<Mesh, Tensor>> {
  using type = symbol<Mesh, typename stacked_tensor<Count, Tensor>::type>;
};
template <int Count, ParameterTree Tree> struct outside_loop<Count, Tree> {
  using type = with_leaves<Tree, stacked<typename stacking<kind_of<Tree>>::leaves, Count>>;
};
template <int Count, class... Parts> struct outside_loop<Count, results<Parts...>> {
  using type = results<typename outside_loop<Count, Parts>::type...>;
};

/// The same tensors, of which those that do not belong to `b` are reported.
template <class Tree> constexpr Tree operands_of(builder& b, Tree tree, source_line where) {
  for_each_leaf(tree, [&](auto& one) {
    one.id = operand_of(b, one, where);
    one.owner = &b;
  });
  return tree;
}

/// The mesh of traced tensors.
template <class T> struct mesh_of;
template <class Mesh, class Tensor> struct mesh_of<symbol<Mesh, Tensor>> { using type = Mesh; };
template <class Mesh> struct mesh_of<symbols<Mesh>> { using type = Mesh; };
template <ParameterTree Tree> struct mesh_of<Tree> : mesh_of<typename stacking<kind_of<Tree>>::leaves> {};
template <class First, class... Rest> struct mesh_of<results<First, Rest...>> : mesh_of<First> {};

/// A value that a loop may carry, or take a layer of: tensors, trees of them and `results`.
template <class T>
concept LoopValue = requires {
  typename mesh_of<T>::type;
};
/// A type to show of what is none: the type of a function would be a screen of noise.
template <class T> struct shown_loop_value { using reason = why::loop_value_is_not_a_tensor<>; };
template <Scalar T> struct shown_loop_value<T> { using reason = why::loop_value_is_not_a_tensor<T>; };

/// A loop of Count iterations around `body`, which is called with the builder and the carry.
template <bool Recompute, int Count, class Carry, class Body>
constexpr auto loop(const Carry& carry, const Body& body, source_line where) {
  builder& b = *owner_of(carry);
  b.at(where);
  Carry inside = operands_of(b, carry, where);
  emit::region_begin(b, Count, false, Recompute);
  for_each_leaf(inside, [&](auto& one) { one.id = emit::region_parameter(b, one.id); });
  if constexpr (std::is_void_v<decltype(body(b, inside))>) {
    return failed<why::function_returns_nothing<>>(where);
  } else {
    const auto out = body(b, inside);
    using out_type = std::remove_cv_t<decltype(out)>;
    using parts = body_parts<Carry, out_type>;
    if constexpr (!std::is_void_v<typename failure_in<out_type>::type>) {
      return typename failure_in<out_type>::type(failure_place(out));
    } else if constexpr (!parts::carry_fits) {
      return failed<why::carry_changes_type<Carry, out_type>>(where);
    } else {
      b.at(where);
      Carry next = operands_of(b, parts::carry(out), where);
      for_each_pair(next, inside,
                    [&](auto& value, const auto& before) { value.id = emit::region_yield(b, before.id, value.id); });
      const auto finish = [&] {
        emit::region_end(b);
        for_each_leaf(next, [&](auto& one) { one.id = emit::region_result(b, one.id); });
      };
      if constexpr (parts::has_output) {
        auto outputs = operands_of(b, out.template get<1>(), where);
        for_each_leaf(outputs, [&](auto& one) { one.id = emit::own(b, one.id); });
        finish();
        typename outside_loop<Count, decltype(outputs)>::type stacks{};
        for_each_pair(stacks, outputs, [&](auto& stack, const auto& value) {
          stack.owner = &b;
          stack.id = emit::loop_stack(b, value.id);
        });
        return results(next, stacks);
      } else {
        finish();
        return next;
      }
    }
  }
}

template <bool Recompute, class Body, class Carry, class Stacked>
constexpr auto scan(const Body& body, const Carry& carry, const Stacked& layers, source_line where) {
  if constexpr (Failed<Carry> || Failed<Stacked>) {
    return first_failure(carry, layers);
  } else if constexpr (!LoopValue<Carry>) {
    return failed<typename shown_loop_value<Carry>::reason>(where);
  } else if constexpr (!LoopValue<Stacked>) {
    return failed<typename shown_loop_value<Stacked>::reason>(where);
  } else if constexpr (!is_stacked<Stacked>) {
    return failed<why::leaves_are_not_stacked<Stacked>>(where);
  } else if constexpr (inside_loop<Stacked>::count < 0) {
    return failed<why::stacked_sizes_differ<Stacked>>(where);
  } else if constexpr (!requires(typename inside_loop<Stacked>::type layer) { body(carry, layer); }) {
    return failed<why::body_not_callable<Carry, typename inside_loop<Stacked>::type>>(where);
  } else {
    const auto with_slices = [&](builder& b, const Carry& inside) {
      typename inside_loop<Stacked>::type slices{};
      for_each_pair(slices, layers, [&](auto& slice, const auto& whole) {
        slice.owner = &b;
        slice.id = emit::loop_slice(b, operand_of(b, whole, where));
      });
      return body(inside, slices);
    };
    return loop<Recompute, inside_loop<Stacked>::count>(carry, with_slices, where);
  }
}

template <bool Recompute, int Count, class Body, class Carry>
constexpr auto repeat(const Body& body, const Carry& carry, source_line where) {
  static_assert(Count >= 1, "repeat: a loop needs at least one step");
  if constexpr (Failed<Carry>) {
    return carry;
  } else if constexpr (!LoopValue<Carry>) {
    return failed<typename shown_loop_value<Carry>::reason>(where);
  } else {
    using index_type = symbol<typename mesh_of<Carry>::type, i32<>>;
    if constexpr (requires(const index_type& index) { body(carry, index); }) {
      builder& outside = *owner_of(carry);
      outside.at(where);
      const int indices = emit::iota(outside, dtype::i32, i32<Count>::shape, 0);
      const auto with_index = [&](builder& b, const Carry& inside) {
        return body(inside, index_type(b, emit::loop_slice(b, indices)));
      };
      return loop<Recompute, Count>(carry, with_index, where);
    } else if constexpr (!requires { body(carry); }) {
      return failed<why::body_not_callable<Carry>>(where);
    } else {
      return loop<Recompute, Count>(
          carry, [&](builder&, const Carry& inside) { return body(inside); }, where);
    }
  }
}

}  // namespace detail

/// Runs `body(carry, layer)` once for each layer of a tree (or tensor, or results<...>) with a stacked first
/// dimension. The body returns the next carry, or results(next carry, output); scan returns the last carry, or
/// results(last carry, stacked outputs). Carry and output are tensors, trees or results<...> of these. The body is
/// traced once, however many layers there are.
/// Errors: `carry_changes_type`, `stacked_sizes_differ`, `leaves_are_not_stacked`, `loop_value_is_not_a_tensor`,
/// `body_not_callable`, and whatever the body does wrong.
template <class Body, class Carry, class Stacked>
constexpr auto scan(const Body& body, const Carry& carry, const Stacked& layers,
                    source_line where = source_line::current()) {
  return detail::scan<false>(body, carry, layers, where);
}
template <class Body, class Carry, class Stacked>
constexpr auto scan(const Body& body, const Carry& carry, const Stacked& layers, recompute_t,
                    source_line where = source_line::current()) {
  return detail::scan<true>(body, carry, layers, where);
}

/// Runs `body(carry)`, or `body(carry, step)` with the number of the step as an i32<>, counted from 0, Steps times. The
/// body and `repeat` return the same as with `scan`. Errors: `carry_changes_type`, `loop_value_is_not_a_tensor`,
/// `body_not_callable`, and whatever the body does wrong.
template <int Steps, class Body, class Carry>
constexpr auto repeat(const Body& body, const Carry& carry, source_line where = source_line::current()) {
  return detail::repeat<false, Steps>(body, carry, where);
}
template <int Steps, class Body, class Carry>
constexpr auto repeat(const Body& body, const Carry& carry, recompute_t, source_line where = source_line::current()) {
  return detail::repeat<true, Steps>(body, carry, where);
}

}  // namespace espalier
