// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/mesh/joint_mesh.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/ops/reasons/manual.hpp>

#include <type_traits>

/// The types of tensors in code that is written for one shard (program/manual.hpp).
namespace espalier::spmd {

/// The axes along which a region is by hand, and of a tensor those along which it varies from device to device, and
/// those along which each device has a term of a sum: parts of the tensor's type. Along all other axes of `over` it is
/// invariant, the same on all devices.
template <class... Axes> struct over {};
template <class... Axes> struct varying {};
template <class... Axes> struct partial {};

}  // namespace espalier::spmd

namespace espalier::detail {

/// The axes that a mesh is made of, as a list.
template <class Mesh> struct axes_of_mesh;
template <MeshAxis... Axes> struct axes_of_mesh<mesh<Axes...>> { using type = spmd::over<Axes...>; };
template <class Mesh, MeshAxis... Others> struct axes_of_mesh<submesh<Mesh, Others...>> : axes_of_mesh<Mesh> {};
/// Of joined meshes, each common axis by the first name that it has alone.
template <class Joint, class Named, class Axes> struct named_common_axes;
template <class Joint, class... Named> struct named_common_axes<Joint, spmd::over<Named...>, axis_types<>> {
  using type = spmd::over<Named...>;
};
template <class Joint, class... Named, class First, class... Rest>
struct named_common_axes<Joint, spmd::over<Named...>, axis_types<First, Rest...>> {
  static constexpr int index = Joint::template index_of<First>;
  static constexpr bool is_new = index >= 0 && ((Joint::template index_of<Named> != index) && ... && true);
  using named = std::conditional_t<is_new, spmd::over<Named..., First>, spmd::over<Named...>>;
  using type = typename named_common_axes<Joint, named, axis_types<Rest...>>::type;
};
template <class... Meshes>
struct axes_of_mesh<joint_mesh<Meshes...>>
    : named_common_axes<joint_mesh<Meshes...>, spmd::over<>, typename axes_of_meshes<axis_types<>, Meshes...>::type> {};

template <class... Lists> struct joined_lists;
template <template <class...> class List, class... All> struct joined_lists<List<All...>> {
  using type = List<All...>;
};
template <template <class...> class List, class... First, class... Second, class... Rest>
struct joined_lists<List<First...>, List<Second...>, Rest...> : joined_lists<List<First..., Second...>, Rest...> {};

/// The axes of a mask, in the order of the mesh, so that equal states have equal types.
template <template <class...> class List, class Mesh, axis_mask Mask> struct axes_of_mask {
  template <class... Axes>
  static typename joined_lists<List<>, std::conditional_t<has_axis(Mask, Mesh::template index_of<Axes>), List<Axes>,
                                                          List<>>...>::type chosen(spmd::over<Axes...>);
  using type = decltype(chosen(typename axes_of_mesh<Mesh>::type{}));
};

template <class Mesh, class List> inline constexpr axis_mask mask_of_list = 0;
template <class Mesh, template <class...> class List, class... Axes>
inline constexpr axis_mask mask_of_list<Mesh, List<Axes...>> = (axis_mask{0} | ... |
                                                                bit_of(Mesh::template index_of<Axes>));

template <class Reason> constexpr void note_in_both(builder& one, builder* other, const failed<Reason>& mistake) {
  one.note(mistake);
  if (other != nullptr) other->note(mistake);
}

}  // namespace espalier::detail

namespace espalier::spmd {

/// The mesh of a tensor in code for one shard: that of the program, and what is known about the tensor.
///
///     symbol<shards<mesh, over<data, model>, varying<data>>, f32<8, 16>>   along model it is the same on all devices
template <class Mesh, class Over, class Varying = varying<>, class Partial = partial<>> struct shards : Mesh {
  using whole = Mesh;
  static constexpr axis_mask manual = detail::mask_of_list<Mesh, Over>;
  static constexpr axis_mask vary = detail::mask_of_list<Mesh, Varying>;
  static constexpr axis_mask terms = detail::mask_of_list<Mesh, Partial>;

  /// An operand of an op whose result is on this mesh: one that is the same on all devices becomes one that varies, so
  /// that its gradient is added up. One of the code around the region is a mistake.
  template <class S> static constexpr int operand(builder& b, const S& operand);
};

}  // namespace espalier::spmd

namespace espalier::detail {

template <class Mesh> inline constexpr bool is_by_hand = false;
template <class... Parts> inline constexpr bool is_by_hand<spmd::shards<Parts...>> = true;

/// The mesh with these states. A partial that is multiplied by what varies is still a partial.
template <class Mesh, axis_mask Over, axis_mask Vary, axis_mask Terms>
using shards_on = spmd::shards<Mesh, typename axes_of_mask<spmd::over, Mesh, Over>::type,
                               typename axes_of_mask<spmd::varying, Mesh, (Vary & ~Terms)>::type,
                               typename axes_of_mask<spmd::partial, Mesh, Terms>::type>;
/// The same tensor with other states.
template <class S, axis_mask Vary, axis_mask Terms, class Tensor = typename S::tensor>
using with_state = symbol<shards_on<typename S::mesh::whole, S::mesh::manual, Vary, Terms>, Tensor>;

template <class Mesh, class Over, class V, class P, class V2, class P2>
struct common_mesh<spmd::shards<Mesh, Over, V, P>, spmd::shards<Mesh, Over, V2, P2>> {
  using one = spmd::shards<Mesh, Over, V, P>;
  using other = spmd::shards<Mesh, Over, V2, P2>;
  using type = shards_on<Mesh, one::manual, one::vary | other::vary, one::terms | other::terms>;
};
template <class Mesh, class Over, class V, class P>
struct common_mesh<spmd::shards<Mesh, Over, V, P>, spmd::shards<Mesh, Over, V, P>> {
  using type = spmd::shards<Mesh, Over, V, P>;
};
/// Of a tensor of the code around, which is a mistake, whichever comes first.
template <class Mesh, class Over, class V, class P> struct common_mesh<Mesh, spmd::shards<Mesh, Over, V, P>> {
  using type = spmd::shards<Mesh, Over, V, P>;
};
template <class Mesh, class Over, class V, class P, class Over2, class V2, class P2>
  requires(mask_of_list<Mesh, Over> != mask_of_list<Mesh, Over2>)
struct common_mesh<spmd::shards<Mesh, Over, V, P>, spmd::shards<Mesh, Over2, V2, P2>> {
  // The inner region has more axes.
  using type = std::conditional_t<(count_of(mask_of_list<Mesh, Over>) > count_of(mask_of_list<Mesh, Over2>)),
                                  spmd::shards<Mesh, Over, V, P>, spmd::shards<Mesh, Over2, V2, P2>>;
};

}  // namespace espalier::detail

namespace espalier::spmd {

/// Whether a tensor inside of a region may differ between devices along an axis, is the same on all of them, or is a
/// term of a sum on each: one of the three is true.
///
///     static_assert(ep::spmd::is_invariant<model, decltype(ep::spmd::psum<model>(x))>);
template <MeshAxis Axis, class X>
inline constexpr bool is_varying = has_axis(X::mesh::vary, X::mesh::template index_of<Axis>);
template <MeshAxis Axis, class X>
inline constexpr bool is_partial = has_axis(X::mesh::terms, X::mesh::template index_of<Axis>);
template <MeshAxis Axis, class X>
inline constexpr bool is_invariant = has_axis(X::mesh::manual, X::mesh::template index_of<Axis>) &&
                                     !is_varying<Axis, X> && !is_partial<Axis, X>;

}  // namespace espalier::spmd
