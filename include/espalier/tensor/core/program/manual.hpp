// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/core/ops/reasons/manual.hpp>
#include <espalier/tensor/core/program/manual/collectives.hpp>
#include <espalier/tensor/core/program/manual/mapping.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

/// Code by hand: a part of a program that is written for one shard, and communicates by itself.
namespace espalier {

/// How a tensor is cut into the shards of a region: for each dimension an axis of the region, `axes<...>`, major to
/// minor, or `none`. Dimensions at the end may be left out: `dims<>` is a tensor that all devices have whole.
template <class... Entries> struct dims {};
/// One `dims<...>` for each operand of a region, and for each of its results.
template <class... Dims> struct in_specs {};
template <class... Dims> struct out_specs {};

namespace detail {

enum class spec_fault : std::uint8_t { nothing, no_dims, not_in_mesh, named_twice, automatic, wrong_rank, not_equal };

/// A `dims<...>`, read.
struct read_spec {
  sharding split;
  spec_fault fault = spec_fault::nothing;
  /// The dimension that is not a multiple of its devices.
  int dim = 0;
};

template <class Mesh, axis_mask Own, class Spec> struct spec_reader {
  static constexpr read_spec read(const extents& shape, bool) {
    read_spec result;
    result.split = sharding::whole(shape.rank);
    result.fault = spec_fault::no_dims;
    return result;
  }
};
template <class Mesh, axis_mask Own, class... Entries> struct spec_reader<Mesh, Own, dims<Entries...>> {
  static constexpr read_spec read(const extents& shape, bool cuts) {
    const annotation_entry entries[]{read_entry<Mesh, Entries>::value..., annotation_entry{}};
    read_spec result;
    result.split = sharding::whole(shape.rank);
    axis_mask used = 0;
    const auto fail = [&](spec_fault fault) {
      result.fault = fault;
      return result;
    };
    for (int n = 0; n < static_cast<int>(sizeof...(Entries)); ++n) {
      const annotation_entry& one = entries[n];
      if (!one.is_dimension || one.is_open) return fail(spec_fault::no_dims);
      if (!one.known) return fail(spec_fault::not_in_mesh);
      if (n >= shape.rank) return fail(spec_fault::wrong_rank);
      if ((one.split.mask() & ~Own) != 0) return fail(spec_fault::automatic);
      if ((used & one.split.mask()) != 0 || count_of(one.split.mask()) != one.split.size())
        return fail(spec_fault::named_twice);
      used |= one.split.mask();
      result.split.dim[n] = one.split;
      result.dim = n;
      if (cuts && shape[n] % Mesh::value.parts(one.split) != 0) return fail(spec_fault::not_equal);
    }
    return result;
  }
};

/// A tensor that a spec is read for: itself, or for a parameter tree one that has the dimension of its stack, if any.
template <class T> struct read_for { using type = T; };
template <ParameterTree Tree> struct read_for<Tree> {
  using stack = stacking<kind_of<Tree>>;
  static constexpr extents shape = [] {
    extents made;
    if constexpr (stack::is_stack) {
      if constexpr (stack::is_outermost) made.append(stack::count);
    }
    return made;
  }();
  using type = symbol<typename mesh_of<Tree>::type, tensor_for<dtype::f32, shape>>;
};
/// The type of what the spec was read for has become `Read`: that of the tensor, or of the whole tree.
template <class T, class Read> struct cut_as { using type = Read; };
template <ParameterTree Tree, class Read> struct cut_as<Tree, Read> {
  using leaves = symbols<typename Read::mesh>;
  static constexpr auto find() {
    if constexpr (Read::rank == 0) {
      return std::type_identity<with_leaves<Tree, leaves>>{};
    } else {
      return std::type_identity<rebind_tree<Tree, stacked<leaves, static_cast<int>(Read::shape[0])>>>{};
    }
  }
  using type = typename decltype(find())::type;
};
/// The split of a leaf with so many dimensions: of trees only the stack's dimension is split, the first.
template <class T> [[nodiscard]] constexpr sharding split_of_leaf(const sharding& split, int rank) {
  if constexpr (Symbol<T>) {
    return split;
  } else {
    sharding made = sharding::whole(rank);
    if (split.rank > 0) made.dim[0] = split.dim[0];
    return made;
  }
}

/// The mistake in a spec of a tensor, or void.
template <class Mesh, axis_mask Own, class Spec, class Tensor, bool Cuts, bool IsTree>
[[nodiscard]] constexpr auto spec_mistake() {
  constexpr read_spec read = spec_reader<Mesh, Own, Spec>::read(Tensor::shape, Cuts);
  if constexpr (read.fault == spec_fault::no_dims) {
    return std::type_identity<why::spec_is_no_dims<Spec, Tensor>>{};
  } else if constexpr (read.fault == spec_fault::not_in_mesh) {
    return std::type_identity<why::manual_axis_not_in_mesh<Mesh, Spec>>{};
  } else if constexpr (read.fault == spec_fault::named_twice) {
    return std::type_identity<why::manual_axis_named_twice<Spec, Tensor>>{};
  } else if constexpr (read.fault == spec_fault::automatic) {
    return std::type_identity<why::spec_names_automatic_axis<Spec, Tensor>>{};
  } else if constexpr (read.fault == spec_fault::wrong_rank && IsTree) {
    return std::type_identity<why::tree_is_cut_along_its_stack_only<Spec>>{};
  } else if constexpr (read.fault == spec_fault::wrong_rank) {
    return std::type_identity<why::spec_of_wrong_rank<Spec, Tensor>>{};
  } else if constexpr (read.fault == spec_fault::not_equal) {
    return std::type_identity<why::shards_are_not_equal<Spec, Tensor, why::dim<read.dim>>>{};
  } else {
    return std::type_identity<void>{};
  }
}

[[nodiscard]] constexpr extents shard_shape(const mesh_shape& mesh, extents shape, const sharding& split, bool cuts) {
  for (int d = 0; d < shape.rank; ++d) {
    const std::int64_t parts = mesh.parts(split.dim[d]);
    shape[d] = cuts ? shape[d] / parts : shape[d] * parts;
  }
  return shape;
}

/// The mesh of the code around a region, and what is known of a tensor there.
template <class Mesh> struct mesh_around {
  using whole = Mesh;
  static constexpr axis_mask manual = 0;
  static constexpr axis_mask vary = 0;
  static constexpr axis_mask terms = 0;
  template <axis_mask, axis_mask> using with = Mesh;
};
template <class Mesh, class Over, class Varying, class Partial>
struct mesh_around<spmd::shards<Mesh, Over, Varying, Partial>> {
  using here = spmd::shards<Mesh, Over, Varying, Partial>;
  using whole = Mesh;
  static constexpr axis_mask manual = here::manual;
  static constexpr axis_mask vary = here::vary;
  static constexpr axis_mask terms = here::terms;
  template <axis_mask Vary, axis_mask Terms> using with = shards_on<Mesh, manual, Vary, Terms>;
};

/// What a function returns, as a list of results.
template <class Out> struct list_of_results { using type = results<Out>; };
template <class... Parts> struct list_of_results<results<Parts...>> { using type = results<Parts...>; };

template <class Mesh, axis_mask Mask> struct is_in_mask {
  template <class Axis> static constexpr bool holds = has_axis(Mask, Mesh::template index_of<Axis>);
};
template <class Mesh> struct is_not_in {
  template <class Axis> static constexpr bool holds = Mesh::template index_of<Axis> < 0;
};

/// A region: its axes, and the mesh of the code around it.
template <class Around, class... Axes> struct manual_region {
  using whole = typename mesh_around<Around>::whole;
  static constexpr axis_mask own = mask_of_axes<whole, Axes...>;
  static constexpr axis_mask manual = own | mesh_around<Around>::manual;

  /// The mistake in the axes, or void.
  static constexpr auto find_mistake() {
    if constexpr (sizeof...(Axes) == 0) {
      return std::type_identity<why::no_axis_named<whole>>{};
    } else if constexpr (!std::is_void_v<first_axis<is_not_in<whole>, Axes...>>) {
      return std::type_identity<why::manual_axis_not_in_mesh<whole, first_axis<is_not_in<whole>, Axes...>>>{};
    } else if constexpr (count_of(own) != static_cast<int>(sizeof...(Axes))) {
      return std::type_identity<why::manual_axis_named_twice<why::along<Axes...>>>{};
    } else if constexpr ((own & mesh_around<Around>::manual) != 0) {
      using again = first_axis<is_in_mask<whole, own & mesh_around<Around>::manual>, Axes...>;
      return std::type_identity<why::axis_is_manual_already<again>>{};
    } else {
      return std::type_identity<void>{};
    }
  }
  using mistake = typename decltype(find_mistake())::type;

  /// An operand of the region, and the shard that its function gets.
  template <class X, class Spec> struct operand {
    using given = X;
    using read = typename read_for<X>::type;
    using around = mesh_around<typename read::mesh>;
    using mistake = typename decltype(spec_mistake<whole, own, Spec, typename read::tensor, true, !Symbol<X>>())::type;
    static constexpr sharding split = spec_reader<whole, own, Spec>::read(read::shape, true).split;
    using cut = symbol<shards_on<whole, manual, around::vary | split.tiled(), around::terms>,
                       tensor_for<read::type, shard_shape(whole::value, read::shape, split, true)>>;
    using shard = typename cut_as<X, cut>::type;
  };

  template <class Part, class Spec> static constexpr auto find_mistake_in_result() {
    using read = typename read_for<Part>::type;
    if constexpr (!Symbol<read>) {
      return std::type_identity<why::manual_result_is_no_tensor<>>{};
    } else if constexpr (!is_by_hand<typename read::mesh>) {
      return std::type_identity<why::manual_result_is_no_tensor<typename read::tensor>>{};
    } else if constexpr (read::mesh::manual != manual) {
      return std::type_identity<why::manual_result_is_no_tensor<typename read::tensor>>{};
    } else {
      return spec_mistake<whole, own, Spec, typename read::tensor, false, !Symbol<Part>>();
    }
  }
  /// The mistake in the state of a result, or void.
  template <class Part, class Spec> static constexpr auto find_mistake_in_state() {
    if constexpr (!std::is_void_v<typename decltype(find_mistake_in_result<Part, Spec>())::type>) {
      return std::type_identity<void>{};
    } else {
      using mesh = typename read_for<Part>::type::mesh;
      using tensor = typename read_for<Part>::type::tensor;
      constexpr axis_mask differs =
          mesh::vary & own & ~spec_reader<whole, own, Spec>::read(tensor::shape, false).split.tiled();
      if constexpr (!std::is_void_v<first_axis<is_partial_along<mesh>, Axes...>>) {
        return std::type_identity<why::partial_leaves_region<first_axis<is_partial_along<mesh>, Axes...>, tensor>>{};
      } else if constexpr (differs != 0) {
        return std::type_identity<
            why::result_is_not_invariant<first_axis<is_in_mask<whole, differs>, Axes...>, tensor, Spec>>{};
      } else {
        return std::type_identity<void>{};
      }
    }
  }
  /// A result of the function, and what it is around the region.
  template <class Part, class Spec> struct result {
    using mistake = typename decltype(find_mistake_in_state<Part, Spec>())::type;
    using read = typename read_for<Part>::type;
    static constexpr sharding split = spec_reader<whole, own, Spec>::read(read::shape, false).split;
    using joined =
        symbol<typename mesh_around<Around>::template with<read::mesh::vary & ~own, read::mesh::terms & ~own>,
               tensor_for<read::type, shard_shape(whole::value, read::shape, split, false)>>;
    using type = typename cut_as<Part, joined>::type;
  };

  /// Notes the mistake that a mapping has found, with the axis that it is about.
  static constexpr void note(builder& b, const shard_mapping& mapping, const builder& inside) {
    const instruction& at = inside[mapping.fault_at];
    const auto about = [&]<class Axis>(std::type_identity<Axis>) {
      if (!has_axis(mapping.fault_axes, whole::template index_of<Axis>)) return;
      note_shard_fault<why::along<Axis>>(b, mapping.fault, at.where, at.op->name);
    };
    (about(std::type_identity<Axes>{}), ...);
  }
};

template <class Function, class In, class Out, class... Axes> struct manual_function;
template <class Function, class... Ins, class... Outs, class... Axes>
struct manual_function<Function, in_specs<Ins...>, out_specs<Outs...>, Axes...> {
  Function function;
  source_line where;

  template <class... Operands> constexpr auto operator()(const Operands&... operands) const {
    if constexpr ((Failed<Operands> || ...)) {
      return first_failure_of(operands...);
    } else if constexpr (sizeof...(Operands) == 0 || !((Symbol<Operands> || ParameterTree<Operands>)&&...)) {
      return failed<why::manual_operand_is_no_tensor<>>(where);
    } else if constexpr (sizeof...(Operands) != sizeof...(Ins)) {
      return failed<why::manual_operands_do_not_fit<in_specs<Ins...>, typename read_for<Operands>::type::tensor...>>(
          where);
    } else {
      return call(operands...);
    }
  }

 private:
  template <class First, class... Rest>
  static constexpr auto first_failure_of(const First& first, const Rest&... rest) {
    return first_failure(first, rest...);
  }

  template <class First, class... Rest> constexpr auto call(const First& first, const Rest&... rest) const {
    using region =
        manual_region<operands_mesh<typename read_for<First>::type, typename read_for<Rest>::type...>, Axes...>;
    if constexpr (!std::is_void_v<typename region::mistake>) {
      return failed<typename region::mistake>(where);
    } else {
      return call_in<region>(results<Ins...>{}, first, rest...);
    }
  }

  template <class Region, class... Specs, class... Operands>
  constexpr auto call_in(const results<Specs...>& /*specs*/, const Operands&... operands) const {
    using mistake = typename first_mistake<typename Region::template operand<Operands, Specs>::mistake...>::type;
    if constexpr (!std::is_void_v<mistake>) {
      return failed<mistake>(where);
    } else if constexpr (!requires(const typename Region::template operand<Operands, Specs>::shard&... shards) {
                           function(shards...);
                         }) {
      return failed<why::manual_function_not_callable<typename Region::template operand<Operands, Specs>::shard...>>(
          where);
    } else {
      return traced<Region, typename Region::template operand<Operands, Specs>...>(operands...);
    }
  }

  template <class Region, class... Ways, class... Operands> constexpr auto traced(const Operands&... operands) const {
    using out_type = std::remove_cv_t<decltype(function(std::declval<const typename Ways::shard&>()...))>;
    if constexpr (std::is_void_v<out_type>) {
      return failed<why::function_returns_nothing<>>(where);
    } else {
      builder& b = *owner_of(results<Operands...>(operands...));
      b.at(where);
      inner_trace trace(b);
      int number = 0;
      // In braces, so that arguments are made in their order.
      const results<typename Ways::shard...> shards{argument<Ways>(trace.inside, number)...};
      const out_type out = call_with(function, shards);
      using failure = typename failure_in<out_type>::type;
      if constexpr (!std::is_void_v<failure>) {
        trace.has_mistake();
        return failure(failure_place(out));
      } else {
        using parts = typename list_of_results<out_type>::type;
        return leave<Region, Ways...>(trace, static_cast<const parts*>(nullptr), out, operands...);
      }
    }
  }

  template <class Region, class... Ways, class... Parts, class Out, class... Operands>
  constexpr auto leave(inner_trace& trace, const results<Parts...>* /*parts*/, const Out& out,
                       const Operands&... operands) const {
    if constexpr (sizeof...(Parts) != sizeof...(Outs)) {
      return failed<why::manual_results_do_not_fit<out_specs<Outs...>, Parts...>>(where);
    } else {
      using mistake = typename first_mistake<
          typename decltype(Region::template find_mistake_in_result<Parts, Outs>())::type...>::type;
      if constexpr (!std::is_void_v<mistake>) {
        trace.has_mistake();
        return failed<mistake>(where);
      } else {
        return mapped<Region, typename Region::template result<Parts, Outs>...>(
            trace, static_cast<const results<Ways...>*>(nullptr), out, operands...);
      }
    }
  }

  template <class Region, class... Made, class... Ways, class Out, class... Operands>
  constexpr auto mapped(inner_trace& trace, const results<Ways...>* /*ways*/, const Out& out,
                        const Operands&... operands) const {
    builder& b = trace.around;
    list<int> ids;
    for_each_leaf(out, [&](const auto& one) { ids.push_back(operand_of(trace.inside, one, where)); });
    results<typename Made::type...> made;
    for_each_leaf(made, [&](auto& one) { one.owner = &b; });
    if (trace.has_mistake()) {
      for_each_leaf(made, [&](auto& one) { one.id = emit::constant(b, one.type, one.shape, 0); });
    } else {
      b.at(where);
      using mistake = typename first_mistake<typename Made::mistake...>::type;
      shard_mapping mapping(Region::whole::value, Region::own, trace.inside, b);
      int number = 0;
      const auto enter = [&]<class Way>(std::type_identity<Way>, const auto& operand) {
        for_each_leaf(operand, [&](const auto& one) {
          const sharding split = split_of_leaf<typename Way::given>(Way::split, one.rank);
          mapping.enter(number++, operand_of(b, one, where), split);
        });
      };
      (enter(std::type_identity<Ways>{}, operands), ...);
      if (mapping.fault == shard_fault::nothing) mapping.find_states();
      // What is wrong inside comes first: it may be why a result is.
      if constexpr (!std::is_void_v<mistake>) {
        if (mapping.fault == shard_fault::nothing) b.note(failed<mistake>(where));
      } else {
        if (mapping.fault == shard_fault::nothing) mapping.run();
      }
      if (trace.inside.without_gradient >= 0 && b.without_gradient < 0)
        b.without_gradient = mapping.value(trace.inside.without_gradient);
      list<sharding> splits;
      const auto add_splits = [&]<class Joined>(std::type_identity<Joined>) {
        const typename Joined::type whole{};
        for_each_leaf(whole, [&](const auto& one) {
          splits.push_back(split_of_leaf<typename Joined::type>(Joined::split, one.rank));
        });
      };
      (add_splits(std::type_identity<Made>{}), ...);
      int n = 0;
      b.at(where);
      for_each_leaf(made, [&](auto& one) {
        const bool is_right = mapping.fault == shard_fault::nothing && std::is_void_v<mistake>;
        one.id = is_right ? mapping.leave(ids[n], splits[n]) : -1;
        if (one.id < 0) one.id = emit::constant(b, one.type, one.shape, 0);
        ++n;
      });
      if (mapping.fault != shard_fault::nothing) Region::note(b, mapping, trace.inside);
    }
    if constexpr (is_results<Out>) {
      return made;
    } else {
      return made.first;
    }
  }

  template <class Way> static constexpr auto argument(builder& b, int& number) {
    typename Way::shard made{};
    for_each_leaf(made, [&](auto& one) {
      one.owner = &b;
      one.seen = b.where;
      one.id = emit::argument(b, one.type, one.shape, number++);
    });
    return made;
  }
};

}  // namespace detail

/// The function `f`, which is written for one shard, as a function of whole tensors: JAX's shard_map. It is called with
/// the shards of the operands, cut along `Axes` as `in_specs` says, and what it returns is joined as `out_specs` says;
/// along these axes it communicates by itself, with the functions of `spmd`. The other axes of the mesh stay automatic:
/// inside of the region, too, the compiler splits along them and communicates.
///
///     const auto mlp = ep::manual<model>(
///         [](auto x, auto w_in, auto w_out) {                       // f32[64, 256], f32[256, 512], f32[512, 256]
///           const auto h = ep::relu(ep::matmul(x, w_in));           // f32[64, 512], varies along model
///           return ep::spmd::psum<model>(ep::matmul(h, w_out));     // f32[64, 256], the same on all devices
///         },
///         ep::in_specs<ep::dims<>, ep::dims<ep::none, model>, ep::dims<model>>(), ep::out_specs<ep::dims<>>());
///     const auto y = mlp(x, w_in, w_out);                           // f32[64, 256], f32[256, 1024], f32[1024, 256]
///
/// The type of a tensor in the region says along which axes it varies, and along which it is a partial; see
/// `spmd::is_varying`. What is invariant may be used with what varies. `f` returns a tensor or results(...) of several.
/// Operands and results may be parameter trees: the `dims<>` of one is of all its leaves, and one that is a stack,
/// `tree<stacked<spec, 12>>`, may be cut along its layers, `dims<stage>`.
/// Regions nest, over further axes. Gradients go through, and may be taken inside: there the gradient by an invariant
/// parameter is added up over the devices.
///
/// Errors: `manual_axis_not_in_mesh`, `manual_axis_named_twice`, `axis_is_manual_already`, `no_axis_named`,
/// `manual_operands_do_not_fit`, `manual_results_do_not_fit`, `manual_operand_is_no_tensor`,
/// `manual_result_is_no_tensor`, `manual_function_not_callable`, `spec_is_no_dims`, `spec_of_wrong_rank`,
/// `spec_names_automatic_axis`, `tree_is_cut_along_its_stack_only`, `shards_are_not_equal`, `result_is_not_invariant`,
/// `partial_leaves_region`, and of what `f` does `partial_in_nonlinear_op`, `product_of_partials`,
/// `partial_meets_whole`, `tensor_of_code_around`, `laid_out_along_manual_axis`, `decision_varies`, `not_for_shards`,
/// `too_many_dimensions_by_hand`.
template <MeshAxis... Axes, class Function, class... Ins, class... Outs>
constexpr auto manual(const Function& f, in_specs<Ins...> /*in*/, out_specs<Outs...> /*out*/,
                      source_line where = source_line::current()) {
  return detail::manual_function<Function, in_specs<Ins...>, out_specs<Outs...>, Axes...>{f, where};
}

}  // namespace espalier
