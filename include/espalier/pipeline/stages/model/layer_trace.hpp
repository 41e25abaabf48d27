// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/model/layer_layouts.hpp>
#include <espalier/tensor/core/ops/add_einsum.hpp>
#include <espalier/tensor/core/program/cut.hpp>
#include <espalier/tensor/core/program/program.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

/// A layer's gradient, traced once and cut into F, B and W.
namespace espalier::pipeline::detail {

using espalier::detail::leaf_count;
using espalier::detail::list;

/// The type that a layer returns while it is traced.
template <class Mesh, class Layer, class... Arguments>
using traced_output = std::remove_cvref_t<decltype(std::declval<const Layer&>()(
    std::declval<const espalier::detail::traced_t<Mesh, Arguments>&>()...))>;

/// Whether a gradient flows to this argument: parameters, and activations that are no integers.
template <class Argument> [[nodiscard]] constexpr bool takes_gradient() {
  if constexpr (ParameterTree<Argument>) {
    return true;
  } else {
    return is_floating(Argument::type);
  }
}

template <class First, class... Parts> constexpr auto prepended(const First& first, const results<Parts...>& others) {
  results<First, Parts...> all;
  all.first = first;
  all.rest = others;
  return all;
}

/// Returns those of the first `Count` arguments that a gradient flows to.
template <int Count> constexpr results<> with_gradients() { return {}; }
template <int Count, class First, class... Rest>
constexpr auto with_gradients(const First& first, const Rest&... rest) {
  if constexpr (Count == 0) {
    return results<>{};
  } else if constexpr (takes_gradient<First>()) {
    return prepended(first, with_gradients<Count - 1>(rest...));
  } else {
    return with_gradients<Count - 1>(rest...);
  }
}

/// (dy, parameters, inputs, data) -> (y, what flows back to parameters and inputs): the gradient of sum(y dy). The last
/// `Data` arguments are data, to which nothing flows. Where `Layouts` are known, dy lies as the output does, and what
/// flows back as what it flows to.
template <class Layer, int Data, class Layouts> struct layer_gradient {
  template <class Cotangent, class... Given>
  constexpr auto operator()(const Cotangent& cotangent, const Given&... given) const {
    builder& b = *cotangent.owner;
    if constexpr (Layouts::are_known) {
      b[cotangent.id].annotation = b.annotate(b[cotangent.id].shape, Layouts::output());
      lay_out_arguments<Layouts>(b, given...);
    }
    auto y = Layer{}(given...);
    if constexpr (Failed<decltype(y)>) {
      return y;
    } else {
      auto gradients = with_gradients<static_cast<int>(sizeof...(Given)) - Data>(given...);
      list<int> wanted;
      for_each_leaf(gradients, [&](const auto& one) { wanted.push_back(one.id); });
      list<int> ids(wanted.size(), -1);
      const int missing =
          pull_back(b, espalier::detail::operand_of(b, y), cotangent.id, wanted.data(), wanted.size(), ids.data());
      if (missing >= 0 && b.without_gradient < 0) b.without_gradient = missing;
      int k = 0;
      for_each_leaf(gradients, [&](auto& one) {
        one.id = ids[k] >= 0 ? ids[k] : emit::constant_like(b, wanted[k], 0);
        if constexpr (Layouts::are_known) {
          if (ids[k] >= 0) one.id = laid_out(b, one.id, b[wanted[k]].annotation);
        }
        ++k;
      });
      if constexpr (Layouts::are_known && Symbol<decltype(y)>) y.id = laid_out(b, y.id, b[cotangent.id].annotation);
      return prepended(y, gradients);
    }
  }
};

/// Returns the number after the last one that a graph's results have, at least `least`.
[[nodiscard]] constexpr int after_results(graph_view g, int least) {
  int next = least;
  for (int id = 0; id < g.size; ++id) {
    if (structure_of(g[id]) != structure::result) continue;
    const int number = attributes_of<border_attributes>(g[id]).number;
    if (number >= next) next = number + 1;
  }
  return next;
}

/// The first mistake in a layer, for its user's line: of the call, of what it computes, or of its gradient.
template <class Mesh, class Layer, int Data, class... Arguments> [[nodiscard]] constexpr auto check_layer() {
  if constexpr (!espalier::detail::compiles<Mesh, Layer, Arguments...>()) {
    return espalier::detail::verify<Mesh, Layer, Arguments...>();
  } else {
    using output = traced_output<Mesh, Layer, Arguments...>;
    if constexpr (!Symbol<output>) {
      return espalier::detail::verify<Mesh, Layer, Arguments...>();
    } else {
      using function = layer_gradient<Layer, Data, on_one_device>;
      constexpr auto found =
          espalier::detail::trace_findings<Mesh, function, typename output::tensor, Arguments...>::value;
      if constexpr (found.mistake != nullptr || found.gradient_is_missing) {
        return espalier::detail::verify<Mesh, function, typename output::tensor, Arguments...>();
      } else {
        return espalier::detail::nothing_to_report{};
      }
    }
  }
}

/// A layer on arguments of these types (trees of parameters, then inputs, then data), as three graphs. Their arguments
/// and results keep the numbers of the whole: argument 0 is dy, then come the layer's in their order; result 0 is y,
/// then come the gradients of parameters, then those of inputs. What crosses has numbers as `cut_numbers` says.
template <class Mesh, class Layer, int Data, class Layouts, class... Arguments> struct traced_layer {
  using output = traced_output<Mesh, Layer, Arguments...>;
  using function = layer_gradient<Layer, Data, Layouts>;

  /// Leaves of parameters; dy and all arguments; y and the gradients.
  static constexpr int parameters = (0 + ... + (ParameterTree<Arguments> ? leaf_count<Arguments>() : 0));
  static constexpr int arguments = (1 + ... + leaf_count<Arguments>());
  static constexpr int results = [] {
    int left = static_cast<int>(sizeof...(Arguments)) - Data;
    int count = 1;
    const auto visit = [&](bool flows, int leaves) {
      if (left > 0 && flows) count += leaves;
      --left;
    };
    (visit(takes_gradient<Arguments>(), leaf_count<Arguments>()), ...);
    return count;
  }();

  using simplified = espalier::detail::simplified_graph<
      Mesh, espalier::detail::traced_graph<Mesh, function, typename output::tensor, Arguments...>>;
  /// The three segments are completed as the whole is.
  using whole = std::conditional_t<Layouts::are_known, arranged_graph<Mesh, simplified>, simplified>;

  /// y is handed out by F, gradients of inputs by B, those of parameters by W.
  [[nodiscard]] static constexpr int segment_of_result(int number) {
    if (number == 0) return 0;
    return number > parameters ? 1 : 2;
  }
  [[nodiscard]] static constexpr cut_graph cut_after_forward() {
    const graph_view g = frozen<whole>::value;
    return cut(g, segments_by_results(g, segment_of_result), 0, {arguments, results, 1});
  }
  struct forward {
    static constexpr espalier::detail::graph_size room = frozen<whole>::counted;
    static constexpr graph make() { return cut_after_forward().early; }
  };
  struct backward {
    static constexpr espalier::detail::graph_size room = frozen<whole>::counted;
    static constexpr graph make() { return cut_after_forward().late; }
  };
  [[nodiscard]] static constexpr cut_graph cut_after_input_gradient() {
    const graph_view g = frozen<backward>::value;
    const int next = after_results(frozen<forward>::value, results);
    return cut(g, segments_by_results(g, segment_of_result), 1, {arguments, next, 1});
  }
  struct input_gradient {
    static constexpr espalier::detail::graph_size room = frozen<backward>::counted;
    static constexpr graph make() { return cut_after_input_gradient().early; }
  };
  struct weight_gradient {
    static constexpr espalier::detail::graph_size room = frozen<backward>::counted;
    static constexpr graph make() { return cut_after_input_gradient().late; }
  };
};

// --- programs --------------------------------------------------------------------------------------------------------

/// W adds to the gradients that are there; nothing is added for a parameter that the layer does not use.
[[nodiscard]] constexpr bool is_zero(const espalier::instruction& i) {
  return i.op->facts.values == pattern::uniform && i.scalar == 0;
}
[[nodiscard]] constexpr bool hands_out(graph_view g, int id, bool adds) {
  return structure_of(g[id]) == structure::result && !(adds && is_zero(g.operand(id, 0)));
}

/// Which instructions of a graph are its arguments and results, in their order.
template <class Source, bool Adds> struct part_border {
  static constexpr graph_view code() { return frozen<Source>::value; }
  struct table {
    int arguments = 0;
    int results = 0;
    int argument[frozen<Source>::size + 1]{};
    int result[frozen<Source>::size + 1]{};
  };
  static constexpr table value = [] {
    table t;
    const graph_view g = code();
    for (int id = 0; id < g.size; ++id) {
      if (structure_of(g[id]) == structure::argument) t.argument[t.arguments++] = id;
      if (hands_out(g, id, Adds)) t.result[t.results++] = id;
    }
    return t;
  }();
  template <int Id>
  using tensor_at = tensor_for<frozen<Source>::value.code[Id].type, frozen<Source>::value.code[Id].shape>;
};

/// Appends a graph's instructions; `given` holds its arguments and, if it adds, then the values to add its results to.
/// Both get the layouts that the graph has for them. Returns the results.
constexpr list<int> replay(builder& b, graph_view g, const int* given, bool adds) {
  const int annotations = b.result().annotations.size();
  const int further = b.result().further.size();
  espalier::detail::copy_tables(b.result(), g);
  list<int> number(g.size, -1);
  list<int> readers(g.size, 0);
  list<int> made;
  for (int id = 0; id < g.size; ++id) {
    for (int k = 0; k < g[id].operand_count; ++k) ++readers[g.operand_at(g[id], k)];
  }
  const auto lay_out = [&](int argument, int annotation) {
    if (annotation >= 0) b[argument].annotation = annotation + annotations;
  };
  for (int id = 0; id < g.size; ++id) {
    if (structure_of(g[id]) != structure::argument) continue;
    number[id] = *given++;
    lay_out(number[id], g[id].annotation);
  }
  for (int id = 0; id < g.size; ++id) {
    espalier::instruction i = g[id];
    if (structure_of(i) == structure::argument) continue;
    if (i.operand_count > espalier::inline_operands) i.further += further;
    renumber(i, number, b.result().further.data());
    if (i.annotation >= 0) i.annotation += annotations;
    if (structure_of(i) != structure::result) {
      number[id] = b.result().code.push_back(i);
    } else if (hands_out(g, id, adds)) {
      b.at(i.where);
      if (!adds) {
        made.push_back(i.annotation < 0 ? i.operand[0] : laid_out(b, i.operand[0], i.annotation));
        continue;
      }
      const int sum = *given++;
      lay_out(sum, g[id].annotation);
      const bool alone = readers[g[id].operand[0]] == 1;
      made.push_back(alone ? emit::add_to(b, sum, i.operand[0]) : emit::add(b, sum, i.operand[0]));
    }
  }
  return made;
}

/// A part as a function, so that it becomes a program like any other.
template <class Source, bool Adds> struct part_function {
  template <class First, class... Rest> constexpr auto operator()(const First& first, const Rest&... rest) const {
    using border = part_border<Source, Adds>;
    builder& b = *first.owner;
    const int given[]{first.id, rest.id...};
    const list<int> made = replay(b, border::code(), &given[0], Adds);
    return [&]<std::size_t... R>(std::index_sequence<R...>) {
      return espalier::results(
          symbol<typename First::mesh, typename border::template tensor_at<border::value.result[R]>>(
              b, made[static_cast<int>(R)])...);
    }
    (std::make_index_sequence<static_cast<std::size_t>(border::value.results)>{});
  }
};

template <class Mesh, class Source, bool Adds> struct part_program {
  using border = part_border<Source, Adds>;
  template <std::size_t... A, std::size_t... R> static auto find(std::index_sequence<A...>, std::index_sequence<R...>) {
    using function = part_function<Source, Adds>;
    if constexpr (Adds) {
      return std::type_identity<
          program<Mesh, function, typename border::template tensor_at<border::value.argument[A]>...,
                  donated<typename border::template tensor_at<border::value.result[R]>>...>>{};
    } else {
      return std::type_identity<
          program<Mesh, function, typename border::template tensor_at<border::value.argument[A]>...>>{};
    }
  }
  using type =
      typename decltype(find(std::make_index_sequence<static_cast<std::size_t>(border::value.arguments)>{},
                             std::make_index_sequence<static_cast<std::size_t>(border::value.results)>{}))::type;
};

}  // namespace espalier::pipeline::detail
