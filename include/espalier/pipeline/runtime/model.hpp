// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/nn/optimizers.hpp>
#include <espalier/pipeline/runtime/named.hpp>
#include <espalier/pipeline/runtime/program_layer.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace espalier::pipeline {

namespace detail {

template <int Rows, class Row> using with_rows = typename espalier::detail::stacked_tensor<Rows, Row>::type;

/// What stands for a layer with a mistake, and for those that read it: nothing else is said of them.
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
  /// Whether all devices of a replica have all of its rows.
  [[nodiscard]] static constexpr bool has_all_rows() {
    if constexpr (Mesh::devices == 1 || is_unsound || !is_right || I + 1 == Table::count) {
      return true;
    } else {
      return layouts_of_layer<Table, Mesh, I, Rows>::output().dim[0].empty();
    }
  }
  static constexpr bool is_sound = is_right && has_all_rows() && !is_unsound;

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
  /// Of all trees.
  static constexpr int leaves = count_leaves(tree_numbers{});

  /// Before the layer is completed: inputs as the layers that make them leave them, and all rows of data.
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

  static constexpr sharding made = completed::of(structure::result, 0);
  [[nodiscard]] static constexpr sharding output() { return made; }
  /// Of a leaf of its own parameters.
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
  static_assert(Layer::has_all_rows(),
                "model: a replica's devices share a layer's parameters and features, not its rows, which are divided "
                "among replicas: annotate another dimension of the layer's output than dimension 0.");
};

/// Whether the arguments and results of a part's program lie where other parts expect them.
template <class Program, class Border> [[nodiscard]] constexpr bool lies_as_cut() {
  const graph_view g = Border::code();
  const auto same = [&](int id, const layout& found) {
    return g[id].annotation < 0 || g.annotations[g[id].annotation].placement.same_layout(found.placement);
  };
  for (int k = 0; k < Border::value.arguments; ++k)
    if (!same(Border::value.argument[k], Program::argument_layout(k))) return false;
  for (int k = 0; k < Border::value.results; ++k)
    if (!same(Border::value.result[k], Program::result_layout(k))) return false;
  return true;
}

template <class Mesh, class Source, bool Adds> [[nodiscard]] compiled_part compile_part() {
  using border = part_border<Source, Adds>;
  compiled_part made;
  made.code = frozen<Source>::value;
  made.adds = Adds;
  if constexpr (border::value.results > 0) {
    static_assert(border::value.arguments > 0, "model: a layer's output does not depend on what it reads.");
    using program = typename part_program<Mesh, Source, Adds>::type;
    static_assert(Mesh::devices == 1 || lies_as_cut<program, border>(),
                  "a part of a layer is not laid out as it was cut");
    made.tables = &tables_of<program>;
  }
  return made;
}

template <class Mesh, class Traced> [[nodiscard]] compiled_batch compile_batch(int rows) {
  return {rows,
          {compile_part<Mesh, typename Traced::forward, false>(),
           compile_part<Mesh, typename Traced::input_gradient, false>(),
           compile_part<Mesh, typename Traced::weight_gradient, true>()}};
}

[[nodiscard]] inline std::vector<std::int64_t> numbers_of(const extents& shape, int first = 0) {
  return {shape.size + first, shape.size + shape.rank};
}

/// Lays the leaves of a tree out in a block, each at a multiple of 64 bytes, and returns the block's size.
/// `placement_of(leaf)` says how devices share one, by its number in the tree.
template <class Tree, class PlacementOf>
std::int64_t lay_out(const mesh_shape& mesh, const std::string& layer, std::vector<tensor_facts>& tensors,
                     const PlacementOf& placement_of, int skipped = 0) {
  std::int64_t bytes = 0;
  int number = 0;
  const Tree specs{};
  for_each_named_leaf(specs, [&](const auto& one, const leaf_path& path) {
    using tensor = plain<std::remove_cvref_t<decltype(one)>>;
    const int leaf = number++;
    if (leaf < skipped) return;
    tensors.push_back({layer + "." + path.str(), tensor::type, numbers_of(tensor::shape), bytes});
    if (mesh.devices() > 1) {
      tensors.back().whole = layout{tensor::shape, placement_of(leaf)};
      tensors.back().shape = numbers_of(local_shape(mesh, tensor::shape, tensors.back().whole->placement));
    }
    bytes += aligned(tensors.back().bytes());
  });
  return bytes;
}

/// `Training::mesh`, or one device.
template <class Training> [[nodiscard]] constexpr auto find_mesh() {
  if constexpr (requires { typename Training::mesh; }) {
    return typename Training::mesh{};
  } else {
    return espalier::mesh<>{};
  }
}
template <class Training> using mesh_of_replica = decltype(find_mesh<Training>());

/// The optimizer of `Training::optimizer`, `nn::adamw_settings` or `nn::sgd_settings`, for one layer's parameters.
template <class Mesh, class Training, class Layer, class Layouts> struct optimizer_of {
  using settings = std::remove_cvref_t<decltype(Training::optimizer)>;
  static constexpr bool is_adamw = std::is_same_v<settings, nn::adamw_settings>;
  static_assert(is_adamw || std::is_same_v<settings, nn::sgd_settings>,
                "model: `optimizer` of the training settings is an nn::adamw_settings or an nn::sgd_settings");
  using tree = typename Layer::template parameters<spec>;
  using state = std::conditional_t<is_adamw, typename nn::adamw<Layer::template parameters>::template state<spec>,
                                   typename nn::sgd<Layer::template parameters>::template state<spec>>;
  struct function {
    constexpr auto operator()(const auto& before, const auto& gradients, const auto& rate) const {
      if constexpr (Layouts::are_known) {
        int k = 0;
        const auto lay_out = [&](const auto& one) {
          builder& b = *one.owner;
          b[one.id].annotation = b.annotate(b[one.id].shape, Layouts::argument(k++ % leaf_count<tree>()));
        };
        for_each_leaf(before.parameters, lay_out);
        for_each_leaf(gradients, lay_out);
      }
      if constexpr (is_adamw) {
        return nn::adamw_step(before, gradients, rate, Training::optimizer);
      } else {
        return nn::sgd_step(before, gradients, rate, Training::optimizer);
      }
    }
  };
  using program = espalier::program<Mesh, function, donated<state>, tree, f64<>>;
};

}  // namespace detail

/// A model as a row of layers, compiled for each number of rows of a list, that any plan of stages can execute:
///
///     struct training { static constexpr ep::nn::adamw_settings optimizer{}; };
///     using model = ep::pipeline::model<
///         ep::pipeline::batches<1, 2, 4>, training,
///         ep::pipeline::named<"embedding", embedding, ep::pipeline::reads<tokens>>,
///         ep::pipeline::named<"block", block>,
///         ep::pipeline::named<"head", head, ep::pipeline::tied<"embedding">, ep::pipeline::reads<targets>>>;
///
/// For each layer and number of rows one gradient is traced and cut into F, B and W (`program/cut.hpp`). Mistakes in a
/// layer are compile errors that name its line. The last layer returns the sum of its samples' losses.
/// Layers that `make` returns use the model: it outlives them.
template <class Batches, class Training, class... Layers> class model;
template <int... Rows, class Training, class... Layers>
class model<batches<Rows...>, Training, Layers...> final : public layer_model {
  using table = detail::layer_table<Layers...>;
  static_assert(sizeof...(Layers) > 0, "model: give one layer or more");
  static_assert(table::names_are_unique(), "model: two layers have the same name");

 public:
  /// The devices of a stage's replica: `Training::mesh`, or one.
  using mesh = detail::mesh_of_replica<Training>;
  /// Layer I's gradient for one number of rows, with its parts: for questions at compile time.
  template <int I, int RowCount>
  using traced =
      typename detail::layer_at<table, mesh, I,
                                RowCount>::checked::template traced<detail::layouts_at<table, mesh, I, RowCount>>;

  explicit model(training_options options = {}) : options_(std::move(options)) {
    // From here, so that nothing stands between the reason and the user's line in the message.
    static_assert(((sizeof(typename place_of<Layers, any_rows>::finding::raised) > 0) && ...));
    static_assert(((sizeof(reported<Layers, any_rows>) > 0) && ...));
    static_assert((are_reported<Rows> && ...));
    if constexpr ((are_sound<Rows> && ...)) {
      [&]<std::size_t... I>(std::index_sequence<I...>) { (describe<static_cast<int>(I)>(), ...); }
      (std::make_index_sequence<sizeof...(Layers)>{});
    }
  }

  [[nodiscard]] int layers() const override { return table::count; }
  [[nodiscard]] const layer_facts& facts(int index) const override {
    return described_[static_cast<std::size_t>(index)]->facts;
  }
  [[nodiscard]] mesh_shape replica_mesh() const override { return mesh::value; }
  [[nodiscard]] std::unique_ptr<layer> make(int index, replica_link& link) const override {
    return std::make_unique<detail::program_layer>(*described_[static_cast<std::size_t>(index)], options_, link);
  }

 private:
  static constexpr int any_rows = std::min({Rows...});
  template <class Layer, int RowCount>
  using place_of = detail::layer_at<table, mesh, table::find(Layer::name), RowCount>;
  template <int RowCount> static constexpr bool are_sound = (place_of<Layers, RowCount>::is_sound && ...);
  /// Mistakes for the first number of rows; those for the others only where it has none: most would be the same.
  struct nothing {};
  template <class Layer, int RowCount>
  using reported = std::conditional_t<RowCount == any_rows || are_sound<any_rows>,
                                      detail::report_layer<place_of<Layer, RowCount>>, nothing>;
  template <int RowCount> static constexpr bool are_reported = ((sizeof(reported<Layers, RowCount>) > 0) && ...);
  /// Devices keep their parts of the parameters whatever the number of rows.
  template <int I>
  static constexpr bool lies_alike =
      (std::is_same_v<detail::layouts_at<table, mesh, I, Rows>, detail::layouts_at<table, mesh, I, any_rows>> && ...);
  template <int I> using first_of = detail::layer_at<table, mesh, I, any_rows>;

  template <int I> void describe() {
    static_assert(lies_alike<I>,
                  "model: a layer is laid out differently for different numbers of rows: annotate its parameters and "
                  "its output.");
    auto made = std::make_unique<detail::layer_description>();
    detail::layer_description& d = *made;
    d.facts.name = table::names[I];
    d.mesh = mesh::value;
    d.batches = {detail::compile_batch<mesh, traced<I, Rows>>(Rows)...};
    std::sort(d.batches.begin(), d.batches.end(), [](const auto& a, const auto& b) { return a.batch < b.batch; });
    for (const detail::compiled_batch& one : d.batches) d.facts.batches.push_back(one.batch);
    using output = typename first_of<I>::output;
    const extents row = [] {
      if constexpr (mesh::devices == 1) {
        return output::shape;
      } else {
        return local_shape(mesh::value, output::shape, detail::layouts_at<table, mesh, I, any_rows>::output());
      }
    }();
    d.facts.output = {output::type, detail::numbers_of(row, output::rank > 0 ? 1 : 0)};
    describe_parameters<I>(d);
    const detail::layer_border border = describe_border<I>(d, typename first_of<I>::fields{});
    for (const detail::compiled_batch& one : d.batches) {
      d.places.push_back(detail::places_of(mesh::value, one, border));
      d.facts.kept.push_back(d.places.back().kept);
      d.facts.work.push_back({detail::work_of_part(mesh::value, one[part::forward]),
                              detail::work_of_part(mesh::value, one[part::input_gradient]),
                              detail::work_of_part(mesh::value, one[part::weight_gradient])});
    }
    described_.push_back(std::move(made));
  }

  template <int I> void describe_parameters(detail::layer_description& d) {
    using one = typename table::template at<I>::layer;
    if constexpr (detail::HasParameters<one>) {
      using optimizer = detail::optimizer_of<mesh, Training, one, detail::layouts_at<table, mesh, I, any_rows>>;
      using tree = typename optimizer::tree;
      const auto placement_of = [](int leaf) { return optimizer::program::argument_layout(leaf).placement; };
      d.facts.parameter_bytes = detail::lay_out<tree>(d.mesh, d.facts.name, d.facts.parameters, placement_of);
      const int leaves = static_cast<int>(d.facts.parameters.size());
      d.facts.state_bytes =
          detail::lay_out<typename optimizer::state>(d.mesh, d.facts.name, d.facts.state, placement_of, leaves);
      const tree specs{};
      for_each_named_leaf(specs, [&](const auto&, const leaf_path& path) {
        d.initial.push_back(options_.initial(d.facts.name, path));
      });
      d.first_leaf = leaves_;
      leaves_ += static_cast<std::uint32_t>(leaves);
      d.optimizer.tables = &tables_of<typename optimizer::program>;
      std::vector<detail::place>& places = d.optimizer.places.arguments;
      using detail::room;
      for (const tensor_facts& leaf : d.facts.parameters) places.push_back({room::parameters, 0, leaf.offset});
      for (const tensor_facts& leaf : d.facts.state) places.push_back({room::inputs, 0, leaf.offset});
      for (const tensor_facts& leaf : d.facts.parameters) places.push_back({room::gradients, 0, leaf.offset});
      places.push_back({room::data, 0, 0});
    }
  }

  template <int I, class... Fields>
  detail::layer_border describe_border(detail::layer_description& d, reads<Fields...>) const {
    using detail::room;
    static constexpr const detail::layer_links& links = table::template links<I>;
    detail::layer_border border;
    border.arguments.push_back({room::output_gradient, 0, 0});
    border.results.push_back({room::output, 0, 0});
    [&]<std::size_t... T>(std::index_sequence<T...>) { (add_tree<links.tree[T]>(d, border), ...); }
    (std::make_index_sequence<static_cast<std::size_t>(links.trees)>{});
    const auto latest = [&](int number) {
      part last = part::forward;
      for (const detail::compiled_batch& one : d.batches) last = std::max(last, detail::last_reader(one, number));
      return last;
    };
    [&]<std::size_t... In>(std::index_sequence<In...>) {
      [[maybe_unused]] const auto add = [&](int from, int index, bool has_gradient) {
        d.facts.inputs.push_back({from, latest(static_cast<int>(border.arguments.size())), has_gradient});
        border.arguments.push_back({room::inputs, index, 0});
        if (has_gradient) border.results.push_back({room::input_gradients, index, 0});
      };
      (add(links.input[In], static_cast<int>(In), is_floating(first_of<links.input[In]>::output::type)), ...);
    }
    (std::make_index_sequence<static_cast<std::size_t>(links.inputs)>{});
    (d.facts.data.push_back({Fields::name, {Fields::row::type, detail::numbers_of(Fields::row::shape)}}), ...);
    for (int k = 0; k < static_cast<int>(sizeof...(Fields)); ++k) border.arguments.push_back({room::data, k, 0});
    d.facts.output_needed = latest(static_cast<int>(border.arguments.size()));
    d.facts.output_gradient_needed = std::max(part::input_gradient, latest(0));
    return border;
  }

  template <int J> void add_tree(detail::layer_description& d, detail::layer_border& border) const {
    const int index = static_cast<int>(d.facts.parameters_of.size());
    d.facts.parameters_of.push_back(J);
    std::vector<tensor_facts> leaves;
    detail::lay_out<typename table::template at<J>::layer::template parameters<spec>>(d.mesh, "", leaves, [](int leaf) {
      if constexpr (mesh::devices == 1) {
        return sharding::whole(leaf);
      } else {
        return detail::layouts_at<table, mesh, J, any_rows>::argument(leaf);
      }
    });
    for (const tensor_facts& leaf : leaves) {
      border.arguments.push_back({detail::room::parameters, index, leaf.offset});
      border.results.push_back({detail::room::gradients, index, leaf.offset});
    }
  }

  training_options options_;
  std::uint32_t leaves_ = 0;
  std::vector<std::unique_ptr<detail::layer_description>> described_;
};

}  // namespace espalier::pipeline
