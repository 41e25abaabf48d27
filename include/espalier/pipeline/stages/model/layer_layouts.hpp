// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/shard.hpp>
#include <espalier/tensor/core/program/passes.hpp>

#include <cstdint>

/// How the devices of a replica share what goes into a layer and what comes out of it.
///
/// A layer's arguments and output are laid out as completion finds from the annotations in the layer and of its
/// parameters, and from the layouts of the outputs that it reads; rows of data are there whole. Gradients lie as what
/// they are gradients of: so two layers that read one output give gradients that can be added, and the same devices of
/// two replicas hold the same parts.
namespace espalier::pipeline::detail {

using espalier::detail::for_each_leaf;
using espalier::detail::frozen;

/// The layouts of a replica that is one device: none.
struct on_one_device {
  static constexpr bool are_known = false;
};

/// Layouts as numbers, so that layers that are alike have the same type and are compiled once: of each the rank, then
/// the axes of each dimension.
template <int Count> struct layout_codes { std::uint32_t code[Count > 0 ? Count : 1]{}; };

/// The layouts of a layer's arguments from the leaf `First` on and, after all `Count` arguments, that of its output.
template <int First, int Count, auto Codes> struct known_layouts {
  static constexpr bool are_known = true;
  [[nodiscard]] static constexpr bool knows(int argument) { return argument >= First; }
  [[nodiscard]] static constexpr sharding argument(int number) { return at(number - First); }
  [[nodiscard]] static constexpr sharding output() { return at(Count - First); }

 private:
  [[nodiscard]] static constexpr sharding at(int number) {
    int place = 0;
    for (; number > 0; --number) place += 1 + static_cast<int>(Codes.code[place]);
    sharding made = sharding::whole(static_cast<int>(Codes.code[place]));
    for (int d = 0; d < made.rank; ++d) made.dim[d] = axis_list::from_code(Codes.code[place + 1 + d]);
    return made;
  }
};

/// The numbers of `List::of(n)` for n < List::count.
template <class List> [[nodiscard]] constexpr int code_length() {
  int length = 0;
  for (int n = 0; n < List::count; ++n) length += 1 + List::of(n).rank;
  return length;
}
template <class List> [[nodiscard]] constexpr layout_codes<code_length<List>()> codes_of() {
  layout_codes<code_length<List>()> made;
  int place = 0;
  for (int n = 0; n < List::count; ++n) {
    const sharding one = List::of(n);
    made.code[place++] = static_cast<std::uint32_t>(one.rank);
    for (int d = 0; d < one.rank; ++d) made.code[place++] = one.dim[d].code();
  }
  return made;
}

/// Lays out the arguments of a layer that `Layouts` knows: `knows(k)` and `argument(k)` by leaf.
template <class Layouts, class... Given> constexpr void lay_out_arguments(builder& b, const Given&... given) {
  int k = 0;
  const auto visit = [&](const auto& one) {
    if (Layouts::knows(k)) b[one.id].annotation = b.annotate(b[one.id].shape, Layouts::argument(k));
    ++k;
  };
  (for_each_leaf(given, visit), ...);
}

/// A value in a layout that is known, as a gradient is: it may differ from what the user said of the value elsewhere.
constexpr int laid_out(builder& b, int value, int annotation) {
  const int made = emit::annotated(b, ops::shard, value, annotation);
  set_attributes(b[made], annotation_attributes{.of_gradient = true});
  return made;
}

template <class Layer, class Layouts> struct laid_out_layer {
  template <class First, class... Given> constexpr auto operator()(const First& first, const Given&... given) const {
    builder* b = nullptr;
    for_each_leaf(first, [&](const auto& one) { b = one.owner; });
    lay_out_arguments<Layouts>(*b, first, given...);
    return Layer{}(first, given...);
  }
};

/// Returns a layout as completion left it, closed to further refinement.
[[nodiscard]] constexpr sharding closed(const sharding& completed) {
  sharding made = sharding::whole(completed.rank);
  for (int d = 0; d < completed.rank; ++d) made.dim[d] = completed.dim[d];
  return made;
}

/// A layer on arguments of these types, completed, where `Layouts` says how some of them lie.
template <class Mesh, class Layer, class Layouts, class... Arguments> struct completed_layer {
  using source = espalier::detail::simplified_graph<
      Mesh, espalier::detail::traced_graph<Mesh, laid_out_layer<Layer, Layouts>, Arguments...>>;
  using completion = espalier::detail::completed<Mesh, source>;

  [[nodiscard]] static constexpr sharding of(structure part, int number) {
    const graph_view g = frozen<source>::value;
    for (int id = 0; id < g.size; ++id)
      if (structure_of(g[id]) == part && attributes_of<border_attributes>(g[id]).number == number)
        return closed(completion::value.of[id]);
    return sharding::whole(0);
  }
};

/// Whether completion alone says how a value is laid out; what is in a loop is left to it.
[[nodiscard]] constexpr bool wants_annotation(const espalier::instruction& i) {
  const bool in_loop =
      i.region >= 0 || structure_of(i) == structure::region_begin || structure_of(i) == structure::region_end;
  return i.annotation < 0 && !in_loop;
}

/// A graph in which every value outside of loops says how it was completed, so that what is cut out of it is completed
/// alike.
template <class Mesh, class Source> struct arranged_graph {
  using completion = espalier::detail::completed<Mesh, Source>;

  static constexpr espalier::detail::graph_size counted = [] {
    const graph_view g = frozen<Source>::value;
    espalier::detail::graph_size size = frozen<Source>::counted;
    for (int id = 0; id < g.size; ++id) size.annotations += wants_annotation(g[id]) ? 1 : 0;
    return size;
  }();
  [[nodiscard]] static constexpr graph make() {
    const graph_view g = frozen<Source>::value;
    graph made;
    espalier::detail::copy_tables(made, g);
    for (int id = 0; id < g.size; ++id) {
      espalier::instruction i = g[id];
      if (wants_annotation(i)) {
        // Closed: a layout that was moved to where it costs least would be propagated into again.
        sharding placement = completion::value.of[id];
        placement.open = 0;
        i.annotation = made.annotations.push_back({i.shape, placement});
      }
      made.code.push_back(i);
    }
    return made;
  }
};

}  // namespace espalier::pipeline::detail
