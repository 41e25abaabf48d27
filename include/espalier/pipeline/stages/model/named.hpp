// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/fixed_string.hpp>
#include <espalier/tensor/core/graph/tree.hpp>
#include <espalier/tensor/core/mesh/mesh.hpp>
#include <espalier/tensor/core/shape/tensor.hpp>

#include <cstdint>
#include <type_traits>

// The text of a user's model of layers. A layer is a struct that computes on traced tensors, with its
// parameters, if it has any, as a tree called `parameters`:
//
//     struct dense_relu {
//       template <class Leaf> struct parameters {
//         BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f32<16, 8>>, weight), (ep::leaf<Leaf, ep::f32<8>>,
//         bias));
//       };
//       constexpr auto operator()(const auto& p, const auto& x) const { return ep::relu(ep::nn::dense(x, p.weight,
//       p.bias)); }
//     };
//
// It gets its parameters, those that are tied to it, its inputs and its data, in this order. Dimension 0 of all but
// parameters is the sample.

namespace espalier::pipeline {

/// The numbers of rows that each layer is compiled for: the shares of a micro-batch that a device may get.
template <int... Rows> struct batches {
  static_assert(sizeof...(Rows) > 0 && ((Rows > 0) && ...), "batches<...>: give one number or more, each at least 1");
};

/// Data that a step is given, such as tokens or targets: `struct tokens : ep::pipeline::field<"tokens", ep::i32<96>>
/// {};` with the type of one sample.
template <espalier::detail::fixed_string Name, TensorType Row> struct field {
  using row = Row;
  static constexpr const char* name = &Name.text[0];
};

namespace detail {

enum class option : std::uint8_t { inputs, skips, tied, reads, statistics_per_micro_batch };

template <class... Axes> struct axis_pack {};
template <class Mesh, class Pack, class Axis> struct with_foreign;
template <class Mesh, class... Known, class Axis> struct with_foreign<Mesh, axis_pack<Known...>, Axis> {
  static constexpr bool is_new = Mesh::template index_of<Axis> < 0 && !(std::is_same_v<Axis, Known> || ...);
  using type = std::conditional_t<is_new, axis_pack<Known..., Axis>, axis_pack<Known...>>;
};
template <class Mesh, class Pack, class... Axes> struct foreign_axes { using type = Pack; };
template <class Mesh, class Pack, class First, class... Rest>
struct foreign_axes<Mesh, Pack, First, Rest...>
    : foreign_axes<Mesh, typename with_foreign<Mesh, Pack, First>::type, Rest...> {};

/// A mesh of a list, where annotations may name the axes of the others.
template <class Mesh, class Pack, class... List> struct mesh_among;
template <class Mesh> struct mesh_among<Mesh, axis_pack<>> { using type = Mesh; };
template <class Mesh, class First, class... Rest> struct mesh_among<Mesh, axis_pack<First, Rest...>> {
  using type = submesh<Mesh, First, Rest...>;
};
template <class Mesh, class Pack, class... Axes, class... Rest>
struct mesh_among<Mesh, Pack, espalier::mesh<Axes...>, Rest...>
    : mesh_among<Mesh, typename foreign_axes<Mesh, Pack, Axes...>::type, Rest...> {};

template <espalier::detail::fixed_string... Names> struct name_list {
  static constexpr int count = static_cast<int>(sizeof...(Names));
  static constexpr const char* names[count + 1]{&Names.text[0]..., nullptr};
};

}  // namespace detail

/// The meshes that each layer is compiled for: a group of a plan has replicas of one of them.
template <class... Meshes> struct meshes;
template <class... Axes, class... Others> struct meshes<espalier::mesh<Axes...>, Others...> {
  /// One of them, as layers are traced on it.
  template <class Mesh>
  using on = typename detail::mesh_among<Mesh, detail::axis_pack<>, espalier::mesh<Axes...>, Others...>::type;
  using first = on<espalier::mesh<Axes...>>;
  template <class Mesh> [[nodiscard]] static constexpr int find() {
    constexpr bool same[]{std::is_same_v<Mesh, espalier::mesh<Axes...>>, std::is_same_v<Mesh, Others>...};
    constexpr int count = 1 + static_cast<int>(sizeof...(Others));
    int found = 0;
    while (found < count && !same[found]) ++found;
    static_assert((std::is_same_v<Mesh, espalier::mesh<Axes...>> || ... || std::is_same_v<Mesh, Others>),
                  "model: this mesh is not in the list of meshes that the layers are compiled for");
    return found;
  }
};

/// The layer reads the outputs of the layers with these names, instead of that of the layer before it.
template <espalier::detail::fixed_string... Names> struct inputs : detail::name_list<Names...> {
  static constexpr detail::option kind = detail::option::inputs;
};
/// The layer reads these outputs in addition to that of the layer before it, and after it.
template <espalier::detail::fixed_string... Names> struct skips : detail::name_list<Names...> {
  static constexpr detail::option kind = detail::option::skips;
};
/// The layer uses the parameters of these layers after its own.
template <espalier::detail::fixed_string... Names> struct tied : detail::name_list<Names...> {
  static constexpr detail::option kind = detail::option::tied;
};
/// It reads these fields.
template <class... Fields> struct reads { static constexpr detail::option kind = detail::option::reads; };

/// Samples of a micro-batch may depend on each other in this layer, as in batch normalisation: what the model computes
/// then changes with the number of micro-batches. Layers without this option in which they do are refused.
struct statistics_per_micro_batch {
  static constexpr detail::option kind = detail::option::statistics_per_micro_batch;
};

/// A layer in its place in a model: `named<"head", head, tied<"embedding">, reads<targets>>`.
template <espalier::detail::fixed_string Name, class Layer, class... Options> struct named {
  using layer = Layer;
  static constexpr const char* name = &Name.text[0];
};

namespace detail {

template <class Layer>
concept HasParameters = requires {
  typename Layer::template parameters<spec>;
};

/// The layers that a layer reads, by number.
struct layer_links {
  static constexpr int most = 16;
  int inputs = 0;
  int input[most]{};
  int trees = 0;
  int tree[most]{};
  /// The first name that is no earlier layer's (of `tied`: no other layer's with parameters).
  const char* unknown = nullptr;
};

template <option Kind, class... Options> struct option_names { static constexpr const char* const* value = nullptr; };
template <option Kind, class First, class... Rest> struct option_names<Kind, First, Rest...> {
  static constexpr const char* const* value = [] {
    if constexpr (First::kind == Kind) {
      return &First::names[0];
    } else {
      return option_names<Kind, Rest...>::value;
    }
  }();
};
template <class... Options> struct fields_of { using type = reads<>; };
template <class First, class... Rest> struct fields_of<First, Rest...> : fields_of<Rest...> {};
template <class... Fields, class... Rest> struct fields_of<reads<Fields...>, Rest...> {
  using type = reads<Fields...>;
};

template <class Entry> struct entry_facts;
template <espalier::detail::fixed_string Name, class Layer, class... Options>
struct entry_facts<named<Name, Layer, Options...>> {
  using fields = typename fields_of<Options...>::type;
  static constexpr const char* const* inputs = option_names<option::inputs, Options...>::value;
  static constexpr const char* const* skips = option_names<option::skips, Options...>::value;
  static constexpr const char* const* tied = option_names<option::tied, Options...>::value;
  static constexpr bool mixes_samples = ((Options::kind == option::statistics_per_micro_batch) || ...);
};

template <int I, class First, class... Rest> struct nth_layer : nth_layer<I - 1, Rest...> {};
template <class First, class... Rest> struct nth_layer<0, First, Rest...> { using type = First; };

/// The layers of a model in their order.
template <class... Layers> struct layer_table {
  static constexpr int count = static_cast<int>(sizeof...(Layers));
  template <int I> using at = typename nth_layer<I, Layers...>::type;
  static constexpr const char* names[count]{Layers::name...};
  static constexpr bool has_parameters[count]{HasParameters<typename Layers::layer>...};

  [[nodiscard]] static constexpr int find(const char* name) {
    for (int n = 0; n < count; ++n) {
      if (espalier::detail::same_text(names[n], name)) return n;
    }
    return -1;
  }
  [[nodiscard]] static constexpr bool names_are_unique() {
    for (int n = 0; n < count; ++n) {
      if (find(names[n]) != n) return false;
    }
    return true;
  }
  template <int I> [[nodiscard]] static constexpr layer_links links_of() {
    using facts = entry_facts<at<I>>;
    layer_links l;
    const auto add_inputs = [&](const char* const* all) {
      for (; all != nullptr && *all != nullptr; ++all) {
        const int from = find(*all);
        if ((from < 0 || from >= I) && l.unknown == nullptr) l.unknown = *all;
        l.input[l.inputs++] = from;
      }
    };
    if (facts::inputs == nullptr && I > 0) l.input[l.inputs++] = I - 1;
    add_inputs(facts::inputs);
    add_inputs(facts::skips);
    if (has_parameters[I]) l.tree[l.trees++] = I;
    for (const char* const* one = facts::tied; one != nullptr && *one != nullptr; ++one) {
      const int from = find(*one);
      if ((from < 0 || from == I || !has_parameters[from]) && l.unknown == nullptr) l.unknown = *one;
      l.tree[l.trees++] = from;
    }
    return l;
  }
  template <int I> static constexpr layer_links links = links_of<I>();
};

}  // namespace detail

}  // namespace espalier::pipeline
