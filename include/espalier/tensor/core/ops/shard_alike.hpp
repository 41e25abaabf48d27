// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/leaf_difference.hpp>
#include <espalier/tensor/core/ops/shard.hpp>

#include <type_traits>

namespace espalier {

namespace detail {
constexpr void shard_like_gradient(gradient_context& c);
constexpr void shard_as_gradient(gradient_context& c);
}  // namespace detail

namespace ops {
/// Operand 0 in the layout of operand 1, as `match`, where the user says so: no pass gives it another one.
inline constexpr op_info shard_like{.name = "shard_like",
                                    .spread = propagation::elementwise,
                                    .linear = linearity::first,
                                    .facts = {.requests = layout_request::as_operand, .is_written = true},
                                    .factors = detail::same_dimensions,
                                    .gradient = detail::shard_like_gradient,
                                    .evaluate = detail::evaluate_identity,
                                    .flops = detail::no_flops};
/// Operand 0; with a second operand, which is a `shard_as` as well, both get the same layout, whichever of the two it
/// reaches first.
inline constexpr op_info shard_as{.name = "shard_as",
                                  .spread = propagation::elementwise,
                                  .linear = linearity::first,
                                  .facts = {.requests = layout_request::as_partner, .is_written = true},
                                  .factors = detail::same_dimensions,
                                  .gradient = detail::shard_as_gradient,
                                  .evaluate = detail::evaluate_identity,
                                  .flops = detail::no_flops};
}  // namespace ops

namespace emit {
constexpr int shard_like(builder& b, int value, int like) {
  return b.append(ops::shard_like, b[value].type, b[value].shape, value, like);
}
constexpr int shard_as(builder& b, int value, int partner = -1) {
  return b.append(ops::shard_as, b[value].type, b[value].shape, value, partner);
}
}  // namespace emit

constexpr void detail::shard_like_gradient(gradient_context& c) {
  c.give(0, emit::shard_like(c.emit, c.cotangent, c.operand(1)));
}
constexpr void detail::shard_as_gradient(gradient_context& c) {
  c.give(0, emit::shard_like(c.emit, c.cotangent, c.id));
}

namespace detail {

/// The first leaves of two lists that have different names or shapes, as a reason; or void.
template <class One, class Other, template <class...> class Reason> struct first_other_shape { using type = void; };
template <class First, class... Rest, template <class...> class Reason>
struct first_other_shape<leaf_list<First, Rest...>, leaf_list<>, Reason> {
  using type = Reason<First, why::no_leaf>;
};
template <class First, class... Rest, template <class...> class Reason>
struct first_other_shape<leaf_list<>, leaf_list<First, Rest...>, Reason> {
  using type = Reason<why::no_leaf, First>;
};
template <class Name, class First, class... Rest, class OtherName, class Second, class... Others,
          template <class...> class Reason>
struct first_other_shape<leaf_list<why::leaf<Name, First>, Rest...>, leaf_list<why::leaf<OtherName, Second>, Others...>,
                         Reason> {
  static constexpr bool is_same = std::is_same_v<Name, OtherName> && First::shape == Second::shape;
  // Of two tensors that are no trees, the types say all.
  using difference = std::conditional_t<std::is_same_v<Name, why::text<>>, Reason<First, Second>,
                                        Reason<why::leaf<Name, First>, why::leaf<OtherName, Second>>>;
  using type = typename std::conditional_t<is_same, first_other_shape<leaf_list<Rest...>, leaf_list<Others...>, Reason>,
                                           std::type_identity<difference>>::type;
};
template <class One, class Other, template <class...> class Reason>
using difference_in_shape =
    typename first_other_shape<typename leaves_of<One>::type, typename leaves_of<Other>::type, Reason>::type;

template <class One, class Other>
inline constexpr bool differ_in_shape =
    !std::is_void_v<difference_in_shape<One, Other, why::laid_out_as_another_shape>>;

/// A mistake about a tensor takes its place; one about a tree is noted, and the tree stays.
template <class Reason, class A> constexpr auto mistaken(const A& a, source_line where, const char* op) {
  if constexpr (Symbol<A>) {
    return failed<Reason>(where, op);
  } else {
    owner_of(a)->note(failed<Reason>(where, op));
    return a;
  }
}

}  // namespace detail

/// The tensor `a` in the layout that `like` has, whatever completion gives that one: `shard_like(gradient, weight)`.
/// It is a change of layout, written as by `reshard`; nothing is inferred from `a` for `like`. Two parameter trees with
/// the same leaves are taken leaf by leaf. The shapes are the same, the element types need not be. The gradient has the
/// same layout. Errors: `laid_out_as_another_shape`.
///
///     const auto moment = ep::shard_like(ep::zeros_like(w), w);  // w: f32[256, 1024@model], and so is moment
template <class A, class Like>
constexpr auto shard_like(const A& a, const Like& like, source_line where = source_line::current()) {
  if constexpr (Failed<A> || Failed<Like>) {
    return detail::first_failure(a, like);
  } else if constexpr (detail::differ_in_shape<A, Like>) {
    using difference = detail::difference_in_shape<A, Like, why::laid_out_as_another_shape>;
    return detail::mistaken<difference>(a, where, "shard_like");
  } else {
    builder& b = *detail::owner_of(a);
    b.at(where);
    A made = a;
    detail::for_each_pair(made, like, [&](auto& one, const auto& other) {
      const int value = detail::operand_of(b, one, where);
      one.owner = &b;
      one.id = emit::shard_like(b, value, detail::operand_of(b, other, where));
    });
    return made;
  }
}

/// Two tensors that get the same layout, whichever of them is decided first: `const auto [p, q] = shard_as(a, b);` An
/// annotation of `a`, or of anything that leads to `q`, decides the layout of both; if two disagree, that of the first
/// tensor holds, and the second is moved to it. (JAX has this as `shard_alike`, XLA as `shard_as`.) Where `shard_like`
/// only looks at the layout of its second tensor, here both are asked. Trees, shapes, gradients and errors are as for
/// `shard_like`.
///
///     const auto [p, q] = ep::shard_as(x, ep::tanh(y));
///     return ep::shard<data, ep::none>(q) * p;  // p is split over data, too
template <class A, class B>
constexpr auto shard_as(const A& a, const B& b, source_line where = source_line::current()) {
  if constexpr (Failed<A> || Failed<B>) {
    const auto made = detail::first_failure(a, b);
    return results(made, made);
  } else if constexpr (detail::differ_in_shape<A, B>) {
    using difference = detail::difference_in_shape<A, B, why::laid_out_as_another_shape>;
    const auto made = detail::mistaken<difference>(a, where, "shard_as");
    return results(made, made);
  } else {
    builder& to = *detail::owner_of(a);
    to.at(where);
    A first = a;
    B second = b;
    detail::for_each_pair(first, second, [&](auto& one, auto& other) {
      const int value = detail::operand_of(to, one, where);
      const int partner = detail::operand_of(to, other, where);
      one.owner = other.owner = &to;
      one.id = emit::shard_as(to, value);
      other.id = emit::shard_as(to, partner, one.id);
    });
    return results(first, second);
  }
}

}  // namespace espalier
