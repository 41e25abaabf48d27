// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/mapping.hpp>
#include <espalier/tensor/core/program/manual/states.hpp>

#include <cstdint>
#include <type_traits>

namespace espalier {

namespace detail {

/// The functions of one shard.
enum class by_hand_kind : std::uint8_t {
  /// What is the same on all devices, as something that varies; and what varies, as terms of a sum: the same values.
  vary,
  terms,
  sum,
  max,
  min,
  /// Shards put together along dimension `first`; the device's own shard of that; a shard of the sum.
  gather,
  own_part,
  scatter,
  /// Pieces of dimension `first` exchanged for pieces of dimension `second`.
  exchange,
  /// From each device to the one `first` after it, on a ring.
  shift,
  /// From each device to another one (`device_pairs`).
  permute,
  /// From device `first` to all; and what is the same everywhere, on device `first` alone, zeros elsewhere.
  broadcast,
  only_on,
  /// The number of the device.
  index,
};

/// Attributes of `ops::by_hand`.
struct by_hand_attributes {
  by_hand_kind kind = by_hand_kind::vary;
  axis_mask axes = 0;
  std::int64_t first = 0;
  std::int64_t second = 0;

  /// The same of tensors with `more` dimensions in front.
  [[nodiscard]] constexpr by_hand_attributes with_dimensions(int more) const {
    by_hand_attributes made = *this;
    const bool has_dim = kind == by_hand_kind::gather || kind == by_hand_kind::own_part ||
                         kind == by_hand_kind::scatter || kind == by_hand_kind::exchange;
    if (has_dim) made.first += more;
    if (kind == by_hand_kind::exchange) made.second += more;
    return made;
  }
};

/// The device that each receives from, or none: five bits for each, in two numbers.
class device_pairs {
 public:
  static constexpr int most_devices = 24;

  constexpr device_pairs() = default;
  constexpr device_pairs(std::int64_t first, std::int64_t second) : code_{first, second} {}
  [[nodiscard]] constexpr std::int64_t code(int half) const { return code_[half]; }
  /// The source of what `device` receives, or -1.
  [[nodiscard]] constexpr int source_of(int device) const {
    return static_cast<int>(code_[device / 12] >> (5 * (device % 12)) & 31) - 1;
  }
  constexpr void add(int source, int device) {
    code_[device / 12] |= static_cast<std::int64_t>(source + 1) << (5 * (device % 12));
  }
  [[nodiscard]] constexpr device_pairs inverse() const {
    device_pairs result;
    for (int device = 0; device < most_devices; ++device) {
      if (source_of(device) >= 0) result.add(device, source_of(device));
    }
    return result;
  }

 private:
  std::int64_t code_[2]{};
};

constexpr void by_hand_gradient(gradient_context& c);
constexpr mapped_value map_by_hand(map_context& c);

}  // namespace detail

namespace ops {
/// A function of one shard, in the trace of a region alone: program/manual/mapping.hpp makes other ops of it.
inline constexpr op_info by_hand{.name = "by_hand",
                                 .facts = {.unique = true, .attributes = "kind axes first second"},
                                 .factors = detail::same_dimensions,
                                 .gradient = detail::by_hand_gradient,
                                 .flops = detail::no_flops,
                                 .map = detail::map_by_hand};
}  // namespace ops

namespace emit {
constexpr int by_hand(builder& b, int x, const detail::by_hand_attributes& how, const extents& shape) {
  return b.append(with_attributes(builder::make(ops::by_hand, b[x].type, shape, x), how));
}
constexpr int by_hand(builder& b, int x, const detail::by_hand_attributes& how) {
  return by_hand(b, x, how, b[x].shape);
}
}  // namespace emit

/// Under `vmap` inside of the region: each device sends its lanes together.
constexpr mapped_value detail::map_by_hand(map_context& c) {
  const instruction& self = c.op().self();
  const auto how = attributes_of<by_hand_attributes>(self).with_dimensions(1);
  return {emit::by_hand(c.emit(), c.operand(0, 0), how, with_dimension(self.shape, 0, c.lanes())), 0};
}

/// Each function's transpose: of psum it is pvary, of all_gather psum_scatter, of a permutation its inverse.
constexpr void detail::by_hand_gradient(gradient_context& c) {
  builder& b = c.emit;
  by_hand_attributes how = attributes_of<by_hand_attributes>(c);
  const extents shape = b[c.operand(0)].shape;
  const auto back = [&](by_hand_kind kind) {
    how.kind = kind;
    c.give(0, emit::by_hand(b, c.cotangent, how, shape));
  };
  switch (how.kind) {
    case by_hand_kind::vary: back(by_hand_kind::sum); break;
    case by_hand_kind::sum:
    case by_hand_kind::terms: c.give(0, c.cotangent); break;
    case by_hand_kind::max:
    case by_hand_kind::min: {
      // As of any maximum, the cotangent goes in equal parts to the elements that equal it.
      const int equal = emit::compare(b, ops::equal, c.operand(0), c.id);
      const int one = emit::convert(b, equal, b[c.cotangent].type);
      how.kind = by_hand_kind::sum;
      const int ties = emit::by_hand(b, one, how);
      c.give(0, emit::multiply(b, emit::divide(b, c.cotangent, ties), one));
      break;
    }
    case by_hand_kind::gather: {
      // What follows may have added up the terms of all devices: then a shard of the sum is all that is needed.
      const instruction& from = b[c.cotangent];
      const auto before = attributes_of<by_hand_attributes>(from);
      if (from.op == &ops::by_hand && before.kind == by_hand_kind::sum && before.axes == how.axes) {
        how.kind = by_hand_kind::scatter;
        c.give(0, emit::by_hand(b, from.operand[0], how, shape));
      } else {
        back(by_hand_kind::own_part);
      }
      break;
    }
    case by_hand_kind::own_part:
    case by_hand_kind::scatter: back(by_hand_kind::gather); break;
    case by_hand_kind::exchange: {
      const std::int64_t first = how.first;
      how.first = how.second;
      how.second = first;
      back(how.kind);
      break;
    }
    case by_hand_kind::shift:
      how.first = -how.first;
      back(how.kind);
      break;
    case by_hand_kind::permute: {
      const device_pairs inverse = device_pairs(how.first, how.second).inverse();
      how.first = inverse.code(0);
      how.second = inverse.code(1);
      back(how.kind);
      break;
    }
    case by_hand_kind::broadcast: back(by_hand_kind::only_on); break;
    case by_hand_kind::only_on: back(by_hand_kind::broadcast); break;
    case by_hand_kind::index: break;
  }
}

template <class Mesh, class Over, class Varying, class Partial>
template <class S>
constexpr int spmd::shards<Mesh, Over, Varying, Partial>::operand(builder& b, const S& operand) {
  constexpr bool is_of_region = [] {
    if constexpr (detail::is_by_hand<typename S::mesh>) {
      return S::mesh::manual == manual;
    } else {
      return false;
    }
  }();
  if constexpr (!is_of_region) {
    detail::note_in_both(b, operand.owner, failed<why::tensor_of_code_around<typename S::tensor>>(b.where));
    return emit::constant(b, S::type, S::shape, 0);
  } else {
    constexpr axis_mask more = (vary | terms) & ~(S::mesh::vary | S::mesh::terms);
    const int id = detail::operand_of(b, operand, b.where);
    return more == 0 ? id : emit::by_hand(b, id, {.kind = detail::by_hand_kind::vary, .axes = more});
  }
}

namespace detail {

template <class Mesh, class... Axes>
inline constexpr axis_mask mask_of_axes = (axis_mask{0} | ... | bit_of(Mesh::template index_of<Axes>));

template <class Mesh> struct is_not_manual {
  template <class Axis>
  static constexpr bool holds =
      Mesh::template index_of<Axis> < 0 || !has_axis(Mesh::manual, Mesh::template index_of<Axis>);
};
template <class Mesh> struct is_invariant_along {
  template <class Axis>
  static constexpr bool holds = !has_axis(Mesh::vary | Mesh::terms, Mesh::template index_of<Axis>);
};
template <class Mesh> struct is_partial_along {
  template <class Axis> static constexpr bool holds = has_axis(Mesh::terms, Mesh::template index_of<Axis>);
};
template <class Mesh> struct is_not_invariant_along {
  template <class Axis> static constexpr bool holds = !is_invariant_along<Mesh>::template holds<Axis>;
};
/// The first axis for which `Question` holds, as a part of a reason, or void.
template <class Question, class First, class... Rest> [[nodiscard]] constexpr auto first_axis_that() {
  if constexpr (Question::template holds<First>) {
    return std::type_identity<why::along<First>>{};
  } else if constexpr (sizeof...(Rest) > 0) {
    return first_axis_that<Question, Rest...>();
  } else {
    return std::type_identity<void>{};
  }
}
template <class Question, class... Axes>
using first_axis = typename decltype(first_axis_that<Question, Axes...>())::type;

/// The states of an operand that a function of one shard takes.
enum class takes_state : std::uint8_t { any, varying, varying_or_partial, invariant, not_partial_yet };

/// The mistake in a call with this operand, or void.
template <takes_state Takes, class X, class... Axes> [[nodiscard]] constexpr auto by_hand_mistake() {
  using mesh = typename X::mesh;
  using tensor = typename X::tensor;
  if constexpr (!is_by_hand<mesh>) {
    return std::type_identity<why::outside_of_manual_code<tensor>>{};
  } else if constexpr (sizeof...(Axes) == 0) {
    return std::type_identity<why::no_axis_named<tensor>>{};
  } else if constexpr (!std::is_void_v<first_axis<is_not_manual<mesh>, Axes...>>) {
    return std::type_identity<why::axis_is_not_manual<first_axis<is_not_manual<mesh>, Axes...>, tensor>>{};
  } else if constexpr (count_of(mask_of_axes<mesh, Axes...>) != static_cast<int>(sizeof...(Axes))) {
    return std::type_identity<why::manual_axis_named_twice<why::along<Axes...>>>{};
  } else {
    using same = first_axis<is_invariant_along<mesh>, Axes...>;
    using terms = first_axis<is_partial_along<mesh>, Axes...>;
    using differs = first_axis<is_not_invariant_along<mesh>, Axes...>;
    if constexpr (Takes == takes_state::any) {
      return std::type_identity<void>{};
    } else if constexpr (Takes == takes_state::invariant) {
      return std::type_identity<
          std::conditional_t<std::is_void_v<differs>, void, why::already_varying<differs, tensor>>>{};
    } else if constexpr (!std::is_void_v<same>) {
      return std::type_identity<why::same_on_all_devices<same, tensor>>{};
    } else if constexpr (!std::is_void_v<terms> && Takes == takes_state::varying) {
      return std::type_identity<why::partial_is_not_added_up<terms, tensor>>{};
    } else if constexpr (!std::is_void_v<terms> && Takes == takes_state::not_partial_yet) {
      return std::type_identity<why::already_partial<terms, tensor>>{};
    } else {
      return std::type_identity<void>{};
    }
  }
}
template <takes_state Takes, class X, class... Axes>
using mistake_by_hand = typename decltype(by_hand_mistake<Takes, X, Axes...>())::type;

/// A function whose result has the operand's shape. `Vary` and `Terms`: the states of the result.
template <by_hand_kind Kind, takes_state Takes, class... Axes, class X>
constexpr auto state_by_hand(const X& x, source_line where, const char* name) {
  if constexpr (Failed<X>) {
    return x;
  } else if constexpr (!std::is_void_v<mistake_by_hand<Takes, X, Axes...>>) {
    return failed<mistake_by_hand<Takes, X, Axes...>>(where, name);
  } else {
    constexpr axis_mask axes = mask_of_axes<typename X::mesh, Axes...>;
    constexpr axis_mask vary = X::mesh::vary;
    constexpr axis_mask terms = X::mesh::terms;
    constexpr axis_mask with_vary = Kind == by_hand_kind::vary ? vary | axes : vary & ~axes;
    constexpr axis_mask with_terms = Kind == by_hand_kind::terms ? terms | axes : terms & ~axes;
    builder& b = *x.owner;
    b.at(where);
    return with_state<X, with_vary, with_terms>(b, emit::by_hand(b, x.id, {.kind = Kind, .axes = axes}));
  }
}

}  // namespace detail

/// Functions of one shard, inside of `manual<axes...>(f)`. JAX's names and rules; the dimensions and axes are template
/// arguments. Each names the bytes that a device sends, of a shard of n bytes on d devices along the axis.
/// Errors of all: `outside_of_manual_code`, `no_axis_named`, `axis_is_not_manual`, `manual_axis_named_twice`.
namespace spmd {

/// The number of devices along an axis.
template <MeshAxis Axis> inline constexpr int axis_size = Axis::size;

/// A pair of devices along an axis, for `permute`.
template <int Source, int Destination> struct from {
  static constexpr int source = Source;
  static constexpr int destination = Destination;
};

/// The sum of all devices' values along the axes: the same on all of them. 2 n (d - 1) / d bytes. Its transpose is
/// `pvary`. Errors: `same_on_all_devices`.
template <MeshAxis... Axes, Traced X> constexpr auto psum(const X& x, source_line where = source_line::current()) {
  return detail::state_by_hand<detail::by_hand_kind::sum, detail::takes_state::varying_or_partial, Axes...>(x, where,
                                                                                                            "psum");
}
/// The largest, and the smallest, of all devices' elements. 2 n (d - 1) / d bytes. Errors: `same_on_all_devices`,
/// `partial_is_not_added_up`.
template <MeshAxis... Axes, Traced X> constexpr auto pmax(const X& x, source_line where = source_line::current()) {
  return detail::state_by_hand<detail::by_hand_kind::max, detail::takes_state::varying, Axes...>(x, where, "pmax");
}
template <MeshAxis... Axes, Traced X> constexpr auto pmin(const X& x, source_line where = source_line::current()) {
  return detail::state_by_hand<detail::by_hand_kind::min, detail::takes_state::varying, Axes...>(x, where, "pmin");
}
/// psum, divided by the number of devices.
template <MeshAxis... Axes, Traced X> constexpr auto pmean(const X& x, source_line where = source_line::current()) {
  const auto sum = detail::state_by_hand<detail::by_hand_kind::sum, detail::takes_state::varying_or_partial, Axes...>(
      x, where, "pmean");
  if constexpr (Failed<std::remove_cvref_t<decltype(sum)>>) {
    return sum;
  } else {
    return detail::binary_of<&ops::multiply>(sum, 1.0 / (1.0 * ... * Axes::size), where);
  }
}
/// The same values as something that may vary: what is invariant, used with what varies, becomes so without being told.
/// Its transpose is `psum`. No bytes. Errors: `already_varying`.
template <MeshAxis... Axes, Traced X> constexpr auto pvary(const X& x, source_line where = source_line::current()) {
  return detail::state_by_hand<detail::by_hand_kind::vary, detail::takes_state::invariant, Axes...>(x, where, "pvary");
}
/// The same values as terms of a sum, which only linear operators, `psum` and `psum_scatter` read, and which cannot
/// leave the region: a `psum` that is forgotten does not compile. No bytes. Errors: `same_on_all_devices`,
/// `already_partial`.
template <MeshAxis... Axes, Traced X>
constexpr auto as_partial(const X& x, source_line where = source_line::current()) {
  return detail::state_by_hand<detail::by_hand_kind::terms, detail::takes_state::not_partial_yet, Axes...>(
      x, where, "as_partial");
}

/// All devices' shards one after the other along dimension Dim: the same on all of them. n (d - 1) bytes. Its transpose
/// is `psum_scatter`. Errors: `same_on_all_devices`, `partial_is_not_added_up`, `no_such_dimension`.
template <MeshAxis Axis, int Dim = 0, Traced X>
constexpr auto all_gather(const X& x, source_line where = source_line::current()) {
  if constexpr (Failed<X>) {
    return x;
  } else if constexpr (!std::is_void_v<detail::mistake_by_hand<detail::takes_state::varying, X, Axis>>) {
    return failed<detail::mistake_by_hand<detail::takes_state::varying, X, Axis>>(where, "all_gather");
  } else if constexpr (constexpr int dim = detail::dimension(Dim, X::rank); dim < 0) {
    return failed<why::no_such_dimension<typename X::tensor, why::dim<Dim>>>(where, "all_gather");
  } else {
    constexpr axis_mask axes = detail::mask_of_axes<typename X::mesh, Axis>;
    constexpr extents shape = detail::with_extent(X::shape, dim, X::shape[dim] * Axis::size);
    builder& b = *x.owner;
    b.at(where);
    return detail::with_state<X, X::mesh::vary & ~axes, X::mesh::terms, tensor_for<X::type, shape>>(
        b, emit::by_hand(b, x.id, {detail::by_hand_kind::gather, axes, dim}, shape));
  }
}

/// This device's shard, along dimension Dim, of the sum of all devices' values: a psum of which only a part is needed.
/// n (d - 1) / d bytes. Its transpose is `all_gather`. Errors: `same_on_all_devices`, `no_such_dimension`,
/// `shards_do_not_divide`.
template <MeshAxis Axis, int Dim = 0, Traced X>
constexpr auto psum_scatter(const X& x, source_line where = source_line::current()) {
  if constexpr (Failed<X>) {
    return x;
  } else if constexpr (!std::is_void_v<detail::mistake_by_hand<detail::takes_state::varying_or_partial, X, Axis>>) {
    return failed<detail::mistake_by_hand<detail::takes_state::varying_or_partial, X, Axis>>(where, "psum_scatter");
  } else if constexpr (constexpr int dim = detail::dimension(Dim, X::rank); dim < 0) {
    return failed<why::no_such_dimension<typename X::tensor, why::dim<Dim>>>(where, "psum_scatter");
  } else if constexpr (X::shape[dim] % Axis::size != 0) {
    return failed<why::shards_do_not_divide<typename X::tensor, why::dim<Dim>, why::along<Axis>>>(where,
                                                                                                  "psum_scatter");
  } else {
    constexpr axis_mask axes = detail::mask_of_axes<typename X::mesh, Axis>;
    constexpr extents shape = detail::with_extent(X::shape, dim, X::shape[dim] / Axis::size);
    builder& b = *x.owner;
    b.at(where);
    return detail::with_state<X, X::mesh::vary | axes, X::mesh::terms & ~axes, tensor_for<X::type, shape>>(
        b, emit::by_hand(b, x.id, {detail::by_hand_kind::scatter, axes, dim}, shape));
  }
}
/// The field's other name for `psum_scatter`.
template <MeshAxis Axis, int Dim = 0, Traced X>
constexpr auto reduce_scatter(const X& x, source_line where = source_line::current()) {
  return psum_scatter<Axis, Dim>(x, where);
}

/// Cuts dimension Split into d pieces, sends piece k to device k, and joins what it receives along dimension Concat.
/// n (d - 1) / d bytes. Its transpose is the all_to_all with both dimensions exchanged. Errors: `same_on_all_devices`,
/// `partial_is_not_added_up`, `no_such_dimension`, `shards_do_not_divide`.
template <MeshAxis Axis, int Split, int Concat, Traced X>
constexpr auto all_to_all(const X& x, source_line where = source_line::current()) {
  if constexpr (Failed<X>) {
    return x;
  } else if constexpr (!std::is_void_v<detail::mistake_by_hand<detail::takes_state::varying, X, Axis>>) {
    return failed<detail::mistake_by_hand<detail::takes_state::varying, X, Axis>>(where, "all_to_all");
  } else if constexpr (detail::dimension(Split, X::rank) < 0) {
    return failed<why::no_such_dimension<typename X::tensor, why::dim<Split>>>(where, "all_to_all");
  } else if constexpr (detail::dimension(Concat, X::rank) < 0) {
    return failed<why::no_such_dimension<typename X::tensor, why::dim<Concat>>>(where, "all_to_all");
  } else if constexpr (X::shape[detail::dimension(Split, X::rank)] % Axis::size != 0) {
    return failed<why::shards_do_not_divide<typename X::tensor, why::dim<Split>, why::along<Axis>>>(where,
                                                                                                    "all_to_all");
  } else {
    constexpr int split = detail::dimension(Split, X::rank);
    constexpr int concat = detail::dimension(Concat, X::rank);
    constexpr axis_mask axes = detail::mask_of_axes<typename X::mesh, Axis>;
    constexpr extents cut = detail::with_extent(X::shape, split, X::shape[split] / Axis::size);
    constexpr extents shape = detail::with_extent(cut, concat, cut[concat] * Axis::size);
    builder& b = *x.owner;
    b.at(where);
    return detail::with_state<X, X::mesh::vary, X::mesh::terms, tensor_for<X::type, shape>>(
        b, emit::by_hand(b, x.id, {detail::by_hand_kind::exchange, axes, split, concat}, shape));
  }
}

/// Each device's value goes to the device By further along the axis, on a ring: `permute<model, 1>(x)`. n bytes. Its
/// transpose goes the other way. Errors: `same_on_all_devices`, `partial_is_not_added_up`.
template <MeshAxis Axis, int By, Traced X>
constexpr auto permute(const X& x, source_line where = source_line::current()) {
  if constexpr (Failed<X>) {
    return x;
  } else if constexpr (!std::is_void_v<detail::mistake_by_hand<detail::takes_state::varying, X, Axis>>) {
    return failed<detail::mistake_by_hand<detail::takes_state::varying, X, Axis>>(where, "permute");
  } else {
    constexpr axis_mask axes = detail::mask_of_axes<typename X::mesh, Axis>;
    builder& b = *x.owner;
    b.at(where);
    return X(b, emit::by_hand(b, x.id, {detail::by_hand_kind::shift, axes, By}));
  }
}
/// Each pair's source sends to its destination, `permute<model, from<0, 1>, from<1, 0>>(x)`; who receives nothing has
/// zeros. n bytes for each different distance around the ring that pairs have. Its transpose has the pairs exchanged.
/// Errors: `same_on_all_devices`, `partial_is_not_added_up`, `devices_are_no_permutation`.
template <MeshAxis Axis, class First, class... Rest, Traced X>
constexpr auto permute(const X& x, source_line where = source_line::current()) {
  if constexpr (Failed<X>) {
    return x;
  } else if constexpr (!std::is_void_v<detail::mistake_by_hand<detail::takes_state::varying, X, Axis>>) {
    return failed<detail::mistake_by_hand<detail::takes_state::varying, X, Axis>>(where, "permute");
  } else {
    constexpr bool is_permutation = [] {
      static_assert(Axis::size <= detail::device_pairs::most_devices,
                    "permute: pairs are for at most 24 devices along an axis; permute<axis, 1>(x) is for any number.");
      const int source[]{First::source, Rest::source...};
      const int destination[]{First::destination, Rest::destination...};
      constexpr int count = 1 + static_cast<int>(sizeof...(Rest));
      for (int i = 0; i < count; ++i) {
        if (source[i] < 0 || source[i] >= Axis::size) return false;
        if (destination[i] < 0 || destination[i] >= Axis::size) return false;
        for (int j = 0; j < i; ++j) {
          if (source[i] == source[j] || destination[i] == destination[j]) return false;
        }
      }
      return true;
    }();
    if constexpr (!is_permutation) {
      return failed<why::devices_are_no_permutation<why::along<Axis>, First, Rest...>>(where, "permute");
    } else {
      constexpr axis_mask axes = detail::mask_of_axes<typename X::mesh, Axis>;
      constexpr detail::device_pairs pairs = [] {
        detail::device_pairs made;
        made.add(First::source, First::destination);
        (made.add(Rest::source, Rest::destination), ...);
        return made;
      }();
      builder& b = *x.owner;
      b.at(where);
      return X(b, emit::by_hand(b, x.id, {detail::by_hand_kind::permute, axes, pairs.code(0), pairs.code(1)}));
    }
  }
}

/// Device Root's value, on all devices along the axis. At most n bytes. Its transpose gives the root the sum. Errors:
/// `same_on_all_devices`, `partial_is_not_added_up`, `no_such_device`.
template <MeshAxis Axis, int Root = 0, Traced X>
constexpr auto broadcast(const X& x, source_line where = source_line::current()) {
  if constexpr (Failed<X>) {
    return x;
  } else if constexpr (!std::is_void_v<detail::mistake_by_hand<detail::takes_state::varying, X, Axis>>) {
    return failed<detail::mistake_by_hand<detail::takes_state::varying, X, Axis>>(where, "broadcast");
  } else if constexpr (Root < 0 || Root >= Axis::size) {
    return failed<why::no_such_device<why::along<Axis>, why::count<Root>>>(where, "broadcast");
  } else {
    constexpr axis_mask axes = detail::mask_of_axes<typename X::mesh, Axis>;
    builder& b = *x.owner;
    b.at(where);
    return detail::with_state<X, X::mesh::vary & ~axes, X::mesh::terms>(
        b, emit::by_hand(b, x.id, {detail::by_hand_kind::broadcast, axes, Root}));
  }
}

/// The number of this device along the axis, an i32<> that varies along it. `like` is any tensor of the region.
template <MeshAxis Axis, Traced Like>
constexpr auto axis_index(const Like& like, source_line where = source_line::current()) {
  if constexpr (Failed<Like>) {
    return like;
  } else if constexpr (!std::is_void_v<detail::mistake_by_hand<detail::takes_state::any, Like, Axis>>) {
    return failed<detail::mistake_by_hand<detail::takes_state::any, Like, Axis>>(where, "axis_index");
  } else {
    constexpr axis_mask axes = detail::mask_of_axes<typename Like::mesh, Axis>;
    builder& b = *like.owner;
    b.at(where);
    const int zero = emit::constant(b, dtype::i32, extents{}, 0);
    return detail::with_state<Like, axes, 0, i32<>>(b, emit::by_hand(b, zero, {detail::by_hand_kind::index, axes}));
  }
}

}  // namespace spmd

}  // namespace espalier
