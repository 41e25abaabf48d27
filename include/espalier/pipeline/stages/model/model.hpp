// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/pipeline/stages/model/model_layers.hpp>
#include <espalier/pipeline/stages/model/named.hpp>
#include <espalier/pipeline/stages/model/program_layer.hpp>
#include <espalier/pipeline/stages/model/sample_rows.hpp>
#include <espalier/tensor/core/nn/optimizers.hpp>
#include <espalier/tensor/core/program/without_rules.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace espalier::pipeline {

namespace detail {

/// Whether the arguments and results of a part's program lie where other parts expect them.
template <class Program, class Border> [[nodiscard]] constexpr bool lies_as_cut() {
  const graph_view g = Border::code();
  const auto same = [&](int id, const layout& found) {
    if (g[id].annotation < 0) return true;
    return on_sub_axes(g.annotations[g[id].annotation].placement, Program::parts).same_layout(found.placement);
  };
  for (int k = 0; k < Border::value.arguments; ++k)
    if (!same(Border::value.argument[k], Program::argument_layout(k))) return false;
  for (int k = 0; k < Border::value.results; ++k)
    if (!same(Border::value.result[k], Program::result_layout(k))) return false;
  return true;
}

/// Returns the work of a part on each device.
template <class Mesh, class Source, bool Adds> [[nodiscard]] constexpr work_facts work_of_part() {
  if constexpr (Mesh::devices > 1 && part_border<Source, Adds>::value.results > 0) {
    return work_of(part_program<Mesh, Source, Adds>::type::code);
  } else {
    return work_alone(frozen<Source>::value, Adds);
  }
}

template <class Mesh, class Source, bool Adds> [[nodiscard]] compiled_part compile_part() {
  using border = part_border<Source, Adds>;
  compiled_part made;
  made.code = espalier::detail::without_rules<frozen<Source>::value>::value;
  made.adds = Adds;
  constexpr work_facts work = work_of_part<Mesh, Source, Adds>();
  made.work = work;
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

/// `Training::meshes`, or `Training::mesh` alone, or one device.
template <class Training> [[nodiscard]] constexpr auto find_meshes() {
  if constexpr (requires { typename Training::meshes; }) {
    return typename Training::meshes{};
  } else if constexpr (requires { typename Training::mesh; }) {
    return meshes<typename Training::mesh>{};
  } else {
    return meshes<espalier::mesh<>>{};
  }
}

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
///
/// `using mesh = ep::mesh<model_axis>;` in the training settings: a replica is such a mesh, over which each layer is
/// partitioned. `using meshes = pl::meshes<ep::mesh<>, ep::mesh<model_axis>, ep::mesh<data_axis, model_axis>>;`: each
/// layer is compiled for all of these, and the group of a plan says which of them its replicas are. Annotations in
/// layers may name any of their axes; those that a mesh does not have split nothing there.
/// Layers that `make` returns use the model: it outlives them.
template <class Batches, class Training, class... Layers> class model;
template <int... Rows, class Training, class... Layers>
class model<batches<Rows...>, Training, Layers...> final : public layer_model {
  using mesh_list = decltype(detail::find_meshes<Training>());
  using table = detail::layer_table<Layers...>;
  static_assert(sizeof...(Layers) > 0, "model: give one layer or more");
  static_assert(table::names_are_unique(), "model: two layers have the same name");

 public:
  /// The number of a mesh in the list, for `replica_group::mesh`.
  template <class Mesh> static constexpr int mesh_number = mesh_list::template find<Mesh>();
  /// Layer I's gradient for one number of rows on a mesh of the list, with its parts: for questions at compile time.
  template <int I, int RowCount, class Mesh = typename mesh_list::first>
  using traced =
      typename detail::layer_at<table, Mesh, I,
                                RowCount>::checked::template traced<detail::layouts_at<table, Mesh, I, RowCount>>;

  explicit model(training_options options = {}) : options_(std::move(options)) {
    // From here, so that nothing comes between the reason and the user's line in the message.
    static_assert(((sizeof(typename place_of<Layers, any_rows, any_mesh>::finding::raised) > 0) && ...));
    static_assert(((sizeof(reported<Layers, any_rows, any_mesh>) > 0) && ...));
    static_assert((are_reported<Rows, any_mesh> && ...));
    static_assert(((sizeof(typename samples_of<Layers>::raised) > 0) && ...));
    describe_all(mesh_list{});
  }

  [[nodiscard]] int layers() const override { return table::count; }
  [[nodiscard]] int meshes() const override { return static_cast<int>(described_.size()); }
  using layer_model::facts;
  [[nodiscard]] const layer_facts& facts(int index, int mesh) const override { return described(index, mesh).facts; }
  [[nodiscard]] mesh_shape replica_mesh(int mesh) const override { return described(0, mesh).mesh; }
  [[nodiscard]] std::unique_ptr<layer> make(int index, int mesh, replica_link& link) const override {
    return std::make_unique<detail::program_layer>(described(index, mesh), options_, link);
  }

 private:
  static constexpr int any_rows = std::min({Rows...});
  using any_mesh = typename mesh_list::first;
  template <class Layer, int RowCount, class Mesh>
  using place_of = detail::layer_at<table, Mesh, table::find(Layer::name), RowCount>;
  template <int RowCount, class Mesh>
  static constexpr bool are_sound = (place_of<Layers, RowCount, Mesh>::is_sound && ...);
  /// Mistakes for the first mesh and number of rows; those for the others only where it has none: most would be the
  /// same.
  struct nothing {};
  template <class Layer, int RowCount, class Mesh>
  using reported =
      std::conditional_t<(RowCount == any_rows && std::is_same_v<Mesh, any_mesh>) || are_sound<any_rows, any_mesh>,
                         detail::report_layer<place_of<Layer, RowCount, Mesh>>, nothing>;
  /// Whether samples stay apart: the same for all numbers of rows but one, where it cannot be told.
  template <class Layer> [[nodiscard]] static constexpr auto find_samples() {
    constexpr int most = std::max({Rows...});
    if constexpr (most == 1 || !are_sound<most, any_mesh> || detail::entry_facts<Layer>::mixes_samples) {
      return espalier::detail::nothing_to_report{};
    } else {
      constexpr int number = table::find(Layer::name);
      return
          typename detail::sample_findings<traced<number, most, any_mesh>, most, number + 1 == table::count>::finding{};
    }
  }
  template <class Layer> using samples_of = decltype(find_samples<Layer>());
  template <int RowCount, class Mesh>
  static constexpr bool are_reported = ((sizeof(reported<Layers, RowCount, Mesh>) > 0) && ...);
  /// Devices keep their parts of the parameters whatever the number of rows.
  template <int I, class Mesh>
  static constexpr bool lies_alike =
      (std::is_same_v<detail::layouts_at<table, Mesh, I, Rows>, detail::layouts_at<table, Mesh, I, any_rows>> && ...);
  template <int I, class Mesh> using first_of = detail::layer_at<table, Mesh, I, any_rows>;

  [[nodiscard]] const detail::layer_description& described(int index, int mesh) const {
    return *described_[static_cast<std::size_t>(mesh)][static_cast<std::size_t>(index)];
  }

  template <class... Meshes> void describe_all(pipeline::meshes<Meshes...>) {
    (describe_on<typename mesh_list::template on<Meshes>>(), ...);
  }
  template <class Mesh> void describe_on() {
    static_assert((are_reported<Rows, Mesh> && ...));
    if constexpr ((are_sound<Rows, Mesh> && ...)) {
      described_.emplace_back();
      leaves_ = 0;
      [&]<std::size_t... I>(std::index_sequence<I...>) { (describe<static_cast<int>(I), Mesh>(), ...); }
      (std::make_index_sequence<sizeof...(Layers)>{});
    }
  }

  template <int I, class Mesh> void describe() {
    static_assert(lies_alike<I, Mesh>,
                  "model: a layer is laid out differently for different numbers of rows: annotate its parameters and "
                  "its output.");
    auto made = std::make_unique<detail::layer_description>();
    detail::layer_description& d = *made;
    d.facts.name = table::names[I];
    d.mesh = Mesh::value;
    d.batches = {detail::compile_batch<Mesh, traced<I, Rows, Mesh>>(Rows)...};
    std::sort(d.batches.begin(), d.batches.end(), [](const auto& a, const auto& b) { return a.batch < b.batch; });
    for (const detail::compiled_batch& one : d.batches) d.facts.batches.push_back(one.batch);
    describe_output<I, Mesh>(d.facts);
    describe_parameters<I, Mesh>(d);
    const detail::layer_border border = describe_border<I, Mesh>(d, typename first_of<I, Mesh>::fields{});
    for (const detail::compiled_batch& one : d.batches) {
      d.places.push_back(detail::places_of(Mesh::value, one, border));
      d.facts.kept.push_back(d.places.back().kept);
      d.facts.work.push_back(
          {one[part::forward].work, one[part::input_gradient].work, one[part::weight_gradient].work});
    }
    described_.back().push_back(std::move(made));
  }

  template <int I, class Mesh> void describe_output(layer_facts& facts) {
    using output = typename first_of<I, Mesh>::output;
    extents row = output::shape;
    if constexpr (Mesh::devices > 1 && output::rank > 0) {
      facts.whole_output = layout{output::shape, detail::layouts_at<table, Mesh, I, any_rows>::output()};
      facts.whole_output->shape[0] = 1;
      row = local_shape(Mesh::value, output::shape, facts.whole_output->placement);
    }
    facts.output = {output::type, detail::numbers_of(row, output::rank > 0 ? 1 : 0)};
  }

  template <int I, class Mesh> void describe_parameters(detail::layer_description& d) {
    using one = typename table::template at<I>::layer;
    if constexpr (detail::HasParameters<one>) {
      using optimizer = detail::optimizer_of<Mesh, Training, one, detail::layouts_at<table, Mesh, I, any_rows>>;
      using tree = typename optimizer::tree;
      static_assert(std::is_same_v<typename optimizer::program::device_mesh, Mesh>,
                    "model: the state is of whole axes");
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

  template <int I, class Mesh, class... Fields>
  detail::layer_border describe_border(detail::layer_description& d, reads<Fields...>) const {
    using detail::room;
    static constexpr const detail::layer_links& links = table::template links<I>;
    detail::layer_border border;
    border.arguments.push_back({room::output_gradient, 0, 0});
    border.results.push_back({room::output, 0, 0});
    [&]<std::size_t... T>(std::index_sequence<T...>) { (add_tree<links.tree[T], Mesh>(d, border), ...); }
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
      (add(links.input[In], static_cast<int>(In), is_floating(first_of<links.input[In], Mesh>::output::type)), ...);
    }
    (std::make_index_sequence<static_cast<std::size_t>(links.inputs)>{});
    (d.facts.data.push_back({Fields::name, {Fields::row::type, detail::numbers_of(Fields::row::shape)}}), ...);
    for (int k = 0; k < static_cast<int>(sizeof...(Fields)); ++k) border.arguments.push_back({room::data, k, 0});
    d.facts.output_needed = latest(static_cast<int>(border.arguments.size()));
    d.facts.output_gradient_needed = std::max(part::input_gradient, latest(0));
    return border;
  }

  template <int J, class Mesh> void add_tree(detail::layer_description& d, detail::layer_border& border) const {
    const int index = static_cast<int>(d.facts.parameters_of.size());
    d.facts.parameters_of.push_back(J);
    std::vector<tensor_facts> leaves;
    detail::lay_out<typename table::template at<J>::layer::template parameters<spec>>(d.mesh, "", leaves, [](int leaf) {
      if constexpr (Mesh::devices == 1) {
        return sharding::whole(leaf);
      } else {
        return detail::layouts_at<table, Mesh, J, any_rows>::argument(leaf);
      }
    });
    for (const tensor_facts& leaf : leaves) {
      border.arguments.push_back({detail::room::parameters, index, leaf.offset});
      border.results.push_back({detail::room::gradients, index, leaf.offset});
    }
  }

  training_options options_;
  std::uint32_t leaves_ = 0;
  std::vector<std::vector<std::unique_ptr<detail::layer_description>>> described_;  // by mesh and layer
};

}  // namespace espalier::pipeline
