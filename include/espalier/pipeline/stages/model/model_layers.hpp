// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/model/layer_layouts.hpp>
#include <espalier/pipeline/stages/model/layer_trace.hpp>
#include <espalier/pipeline/stages/model/named.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

/// The layers of a model as types: what each is called with, how that lies on the devices of a replica, and what is
/// wrong with it.
namespace espalier::pipeline::detail {

template <int Rows, class Row> using with_rows = typename espalier::detail::stacked_tensor<Rows, Row>::type;

/// A substitute for a layer with a mistake, and for the layers that read it, so that no further error names them.
struct unsound_layer {
  struct output {
    using tensor = void;
  };
};
/// A layer without one, and the types of its arguments.
template <class Mesh, class Layer, int Data, class... Arguments> struct sound_layer {
  using output = traced_output<Mesh, Layer, Arguments...>;
  template <class Layouts> using traced = traced_layer<Mesh, Layer, Data, Layouts, Arguments...>;
  template <class Layouts> using completed = completed_layer<Mesh, Layer, Layouts, Arguments...>;
};
template <class Finding, class Checked> struct found_layer {
  using finding = Finding;
  using checked = Checked;
};

template <class Table, class Mesh, int I, int Rows> struct layouts_of_layer;

/// A layer of a model for one number of rows: the types of its inputs are those of the outputs of other layers.
template <class Table, class Mesh, int I, int Rows> struct layer_at {
  using entry = typename Table::template at<I>;
  using layer = typename entry::layer;
  using fields = typename entry_facts<entry>::fields;
  static constexpr layer_links links = Table::template links<I>;
  using nothing = found_layer<espalier::detail::nothing_to_report, unsound_layer>;

  template <int J> using tree = typename Table::template at<J>::layer::template parameters<spec>;
  template <class... Arguments, class... Fields> static auto check(reads<Fields...>) {
    constexpr int data = static_cast<int>(sizeof...(Fields));
    using verdict = decltype(check_layer<Mesh, layer, data, Arguments..., with_rows<Rows, typename Fields::row>...>());
    if constexpr (verdict::is_mistake) {
      return found_layer<verdict, unsound_layer>{};
    } else {
      return found_layer<verdict,
                         sound_layer<Mesh, layer, data, Arguments..., with_rows<Rows, typename Fields::row>...>>{};
    }
  }
  template <std::size_t... T, std::size_t... In>
  static auto find(std::index_sequence<T...>, std::index_sequence<In...>) {
    if constexpr ((layer_at<Table, Mesh, links.input[In], Rows>::is_sound && ...)) {
      return check<tree<links.tree[T]>..., typename layer_at<Table, Mesh, links.input[In], Rows>::output...>(fields{});
    } else {
      return nothing{};
    }
  }
  static auto find() {
    if constexpr (links.unknown == nullptr) {
      return find(std::make_index_sequence<static_cast<std::size_t>(links.trees)>{},
                  std::make_index_sequence<static_cast<std::size_t>(links.inputs)>{});
    } else {
      return nothing{};
    }
  }
  using finding = typename decltype(find())::finding;
  using checked = typename decltype(find())::checked;
  using output = typename checked::output::tensor;
  static constexpr bool is_unsound = std::is_same_v<checked, unsound_layer>;

  [[nodiscard]] static constexpr bool has_right_output() {
    if constexpr (is_unsound) {
      return true;
    } else if constexpr (I + 1 == Table::count) {
      return output::rank == 0;
    } else {
      return output::rank > 0 && output::shape[0] == Rows;
    }
  }
  static constexpr bool is_right = has_right_output();
  static constexpr bool is_sound = is_right && !is_unsound;

  [[nodiscard]] static constexpr auto find_layouts() {
    if constexpr (Mesh::devices == 1) {
      return std::type_identity<on_one_device>{};
    } else {
      return std::type_identity<typename layouts_of_layer<Table, Mesh, I, Rows>::known>{};
    }
  }
};
template <class Table, class Mesh, int I, int Rows>
using layouts_at = typename decltype(layer_at<Table, Mesh, I, Rows>::find_layouts())::type;

/// How a layer's arguments, those of the gradient's trace without dy, and its output lie on the devices of a replica.
template <class Table, class Mesh, int I, int Rows> struct layouts_of_layer {
  static constexpr layer_links links = Table::template links<I>;
  using at = layer_at<Table, Mesh, I, Rows>;
  template <int J> using other = layouts_of_layer<Table, Mesh, J, Rows>;
  using tree_numbers = std::make_index_sequence<static_cast<std::size_t>(links.trees)>;
  using input_numbers = std::make_index_sequence<static_cast<std::size_t>(links.inputs)>;

  template <int J> static constexpr int leaves_of = leaf_count<typename at::template tree<J>>();
  template <std::size_t... T> [[nodiscard]] static constexpr int count_leaves(std::index_sequence<T...>) {
    return (0 + ... + leaves_of<links.tree[T]>);
  }
  template <class... Fields> [[nodiscard]] static constexpr int count_fields(reads<Fields...>) {
    return static_cast<int>(sizeof...(Fields));
  }
  /// The number of leaves of all trees.
  static constexpr int leaves = count_leaves(tree_numbers{});

  /// The layouts before the layer is completed: inputs as the layers that make them lay them out, and all rows of data.
  struct inputs_and_data {
    static constexpr int count = links.inputs + count_fields(typename at::fields{});
    template <std::size_t... In>
    [[nodiscard]] static constexpr sharding input([[maybe_unused]] int number, std::index_sequence<In...>) {
      sharding found = sharding::whole(0);
      ((number == static_cast<int>(In) ? static_cast<void>(found = other<links.input[In]>::output()) : void()), ...);
      return found;
    }
    template <class... Fields>
    [[nodiscard]] static constexpr sharding data([[maybe_unused]] int number, reads<Fields...>) {
      const int ranks[]{Fields::row::rank..., 0};
      return sharding::whole(ranks[number] + 1);
    }
    [[nodiscard]] static constexpr sharding of(int number) {
      return number < links.inputs ? input(number, input_numbers{})
                                   : data(number - links.inputs, typename at::fields{});
    }
  };
  static constexpr int arguments = leaves + inputs_and_data::count;
  using known_inputs = known_layouts<leaves, arguments, codes_of<inputs_and_data>()>;
  using completed = typename at::checked::template completed<known_inputs>;

  static constexpr sharding result_layout = completed::of(structure::result, 0);
  [[nodiscard]] static constexpr sharding output() { return result_layout; }
  /// Returns the layout of a leaf of the layer's own parameters.
  [[nodiscard]] static constexpr sharding parameter(int leaf) { return completed::of(structure::argument, leaf); }

  /// All of them: parameters as the layers lay them out that they belong to.
  struct everything {
    static constexpr int count = arguments + 1;
    template <std::size_t... T>
    [[nodiscard]] static constexpr sharding leaf_of_trees(int number, std::index_sequence<T...>) {
      sharding found = sharding::whole(0);
      int first = 0;
      [[maybe_unused]] const auto visit = [&](int leaves_here, sharding (*parameter_of)(int)) {
        if (number >= first && number < first + leaves_here) found = parameter_of(number - first);
        first += leaves_here;
      };
      (visit(leaves_of<links.tree[T]>, &other<links.tree[T]>::parameter), ...);
      return found;
    }
    [[nodiscard]] static constexpr sharding of(int number) {
      if (number == arguments) return output();
      return number < leaves ? leaf_of_trees(number, tree_numbers{}) : inputs_and_data::of(number - leaves);
    }
  };
  using known = known_layouts<0, arguments, codes_of<everything>()>;
};

/// Reports what is wrong with a layer, from here: a class in which an assertion fails is of no use to others.
template <class Layer> struct report_layer {
  static_assert(Layer::links.unknown == nullptr,
                "model: inputs<...> and skips<...> name layers that come earlier, tied<...> other layers with "
                "parameters. Compare the names, and the order of the layers.");
  static_assert(sizeof(typename Layer::finding::raised) > 0);
  static_assert(Layer::is_right,
                "model: dimension 0 of what a layer makes is the sample, as it is of what it reads; the last layer "
                "makes one number, the sum of its samples' losses.");
};

}  // namespace espalier::pipeline::detail
