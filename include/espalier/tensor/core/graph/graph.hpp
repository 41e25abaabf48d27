// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/list.hpp>
#include <espalier/tensor/core/graph/factors.hpp>
#include <espalier/tensor/core/graph/instruction.hpp>
#include <espalier/tensor/core/graph/window.hpp>

namespace espalier {

/// A program as a value, in execution order. The body of a region is between its `region_begin` and `region_end`. Grows
/// freely inside a constant evaluation; `fixed_graph` outlives one.
struct graph {
  detail::list<instruction> code;
  detail::list<layout> annotations;
  detail::list<placed_window> windows;
  /// Operands beyond the first `inline_operands` of their instructions.
  detail::list<int> further;
};

/// A graph in arrays of exactly its size: the form in which a pass hands it to the next.
template <int Size, int Annotations, int Windows = 0, int Further = 0> struct fixed_graph {
  instruction code[Size > 0 ? Size : 1]{};
  layout annotations[Annotations > 0 ? Annotations : 1]{};
  placed_window windows[Windows > 0 ? Windows : 1]{};
  int further[Further > 0 ? Further : 1]{};
  static constexpr int size = Size;
  static constexpr int annotation_count = Annotations;
  static constexpr int window_count = Windows;
  static constexpr int further_count = Further;
};

/// A graph in arrays that are large enough for it, so that no pass has to run once for the size alone.
template <int Size, int Annotations, int Windows, int Further> struct roomy_graph {
  instruction code[Size > 0 ? Size : 1]{};
  layout annotations[Annotations > 0 ? Annotations : 1]{};
  placed_window windows[Windows > 0 ? Windows : 1]{};
  int further[Further > 0 ? Further : 1]{};
  int size = 0;
  int annotation_count = 0;
  int window_count = 0;
  int further_count = 0;
  /// Otherwise only the sizes are right.
  bool fits = false;
};

/// A view of any kind of graph, for passes.
struct graph_view {
  const instruction* code = nullptr;
  int size = 0;
  const layout* annotations = nullptr;
  int annotation_count = 0;
  const placed_window* windows = nullptr;
  int window_count = 0;
  const int* further = nullptr;
  int further_count = 0;

  constexpr graph_view() = default;
  constexpr graph_view(const graph& source)  // NOLINT(google-explicit-constructor): a view
      : code(source.code.data()),
        size(source.code.size()),
        annotations(source.annotations.data()),
        annotation_count(source.annotations.size()),
        windows(source.windows.data()),
        window_count(source.windows.size()),
        further(source.further.data()),
        further_count(source.further.size()) {}
  template <int Size, int Annotations, int Windows, int Further>
  // NOLINTNEXTLINE(google-explicit-constructor): a view
  constexpr graph_view(const fixed_graph<Size, Annotations, Windows, Further>& from)
      : code(&from.code[0]),
        size(Size),
        annotations(&from.annotations[0]),
        annotation_count(Annotations),
        windows(&from.windows[0]),
        window_count(Windows),
        further(&from.further[0]),
        further_count(Further) {}
  template <int Size, int Annotations, int Windows, int Further>
  // NOLINTNEXTLINE(google-explicit-constructor): a view
  constexpr graph_view(const roomy_graph<Size, Annotations, Windows, Further>& source)
      : code(&source.code[0]),
        size(source.size),
        annotations(&source.annotations[0]),
        annotation_count(source.annotation_count),
        windows(&source.windows[0]),
        window_count(source.window_count),
        further(&source.further[0]),
        further_count(source.further_count) {}

  [[nodiscard]] constexpr const instruction& operator[](int id) const { return code[id]; }
  /// Returns the instruction that is operand k of another one.
  [[nodiscard]] constexpr int operand_at(const instruction& i, int k) const {
    return k < inline_operands ? i.operand[k] : further[i.further + k - inline_operands];
  }
  [[nodiscard]] constexpr const instruction& operand(int id, int k) const {
    return code[code[id].operand_at(k, further)];
  }
  /// Returns the view of an instruction that the functions of its op read.
  [[nodiscard]] constexpr op_view view(int id) const { return {code, id, windows, further}; }
};

namespace detail {
/// Instructions keep the numbers of their annotations, windows and places in the table of further operands: a graph
/// made from another starts with all of them. (Those operands are renumbered in place, as those of an instruction are.)
constexpr void copy_tables(graph& to, graph_view from) {
  to.annotations.reserve(from.annotation_count);
  for (int i = 0; i < from.annotation_count; ++i) to.annotations.push_back(from.annotations[i]);
  for (int i = 0; i < from.window_count; ++i) to.windows.push_back(from.windows[i]);
  for (int i = 0; i < from.further_count; ++i) to.further.push_back(from.further[i]);
}

/// The same graph in lists of its own, with room for `more` instructions.
[[nodiscard]] constexpr graph copy_of(graph_view g, int more = 0) {
  graph made;
  made.code = list<instruction>(g.code, g.size, g.size + more);
  copy_tables(made, g);
  return made;
}

/// Names the operands and the region of an instruction by their numbers in the graph that is being made.
/// @param further the table of that graph: renumbered in place
constexpr void renumber(instruction& i, const list<int>& number, int* further) {
  // Every pass does this for every instruction: without functions clang counts half the steps.
  const int* const to = number.data();
  for (int k = 0; k < i.operand_count; ++k) {
    int* const operand = k < inline_operands ? &i.operand[k] : further + (i.further + k - inline_operands);
    *operand = to[*operand];
  }
  if (i.region >= 0) i.region = to[i.region];
}

/// Copies a graph into arrays that have room for it.
template <class Arrays> constexpr void copy_graph(Arrays& to, graph_view from) {
  for (int i = 0; i < from.further_count; ++i) to.further[i] = from.further[i];
  for (int i = 0; i < from.window_count; ++i) to.windows[i] = from.windows[i];
  for (int i = 0; i < from.size; ++i) to.code[i] = from.code[i];
  for (int i = 0; i < from.annotation_count; ++i) {
    to.annotations[i] = from.annotations[i];
    write_each(&to.annotations[i].placement.dim[0], max_rank);
  }
}
}  // namespace detail

/// Copies a graph into arrays of its own size: `freeze<make().code.size(), make().annotations.size()>(make())`.
template <int Size, int Annotations, int Windows = 0, int Further = 0>
constexpr fixed_graph<Size, Annotations, Windows, Further> freeze(graph_view source) {
  fixed_graph<Size, Annotations, Windows, Further> result;
  detail::copy_graph(result, source);
  return result;
}

template <int Size, int Annotations, int Windows, int Further>
constexpr roomy_graph<Size, Annotations, Windows, Further> freeze_roomily(graph_view source) {
  roomy_graph<Size, Annotations, Windows, Further> result;
  result.size = source.size;
  result.annotation_count = source.annotation_count;
  result.window_count = source.window_count;
  result.further_count = source.further_count;
  result.fits = source.size <= Size && source.annotation_count <= Annotations && source.window_count <= Windows &&
                source.further_count <= Further;
  if (result.fits) detail::copy_graph(result, source);
  return result;
}

}  // namespace espalier
