// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/detail/list.hpp>
#include <espalier/graph/instruction.hpp>
#include <espalier/graph/window.hpp>

namespace espalier {

/// A program as a value, in execution order. The body of a loop stands between its `loop_begin` and `loop_end`.
/// Grows freely inside a constant evaluation; `fixed_graph` is what outlives one.
struct graph {
  detail::list<instruction> code;
  detail::list<layout> annotations;
  detail::list<placed_window> windows;
};

/// A graph in arrays of exactly its size: the form in which a pass hands it to the next.
template <int Size, int Annotations, int Windows = 0> struct fixed_graph {
  instruction code[Size > 0 ? Size : 1]{};
  layout annotations[Annotations > 0 ? Annotations : 1]{};
  placed_window windows[Windows > 0 ? Windows : 1]{};
  static constexpr int size = Size;
};

/// A graph in arrays that are large enough for it, for a pass that is too dear to run once for the size alone.
template <int Room> struct roomy_graph {
  instruction code[Room]{};
  layout annotations[Room]{};
  placed_window windows[Room]{};
  int size = 0;
  int annotation_count = 0;
  int window_count = 0;
  /// Otherwise only the sizes are right.
  bool fits = false;
};

/// What a pass reads: any kind of graph.
struct graph_view {
  const instruction* code = nullptr;
  int size = 0;
  const layout* annotations = nullptr;
  int annotation_count = 0;
  const placed_window* windows = nullptr;
  int window_count = 0;

  constexpr graph_view() = default;
  constexpr graph_view(const graph& source)  // NOLINT(google-explicit-constructor): a view
      : code(source.code.data()),
        size(source.code.size()),
        annotations(source.annotations.data()),
        annotation_count(source.annotations.size()),
        windows(source.windows.data()),
        window_count(source.windows.size()) {}
  template <int Size, int Annotations, int Windows>
  // NOLINTNEXTLINE(google-explicit-constructor): a view
  constexpr graph_view(const fixed_graph<Size, Annotations, Windows>& from)
      : code(&from.code[0]),
        size(Size),
        annotations(&from.annotations[0]),
        annotation_count(Annotations),
        windows(&from.windows[0]),
        window_count(Windows) {}
  template <int Room>
  constexpr graph_view(const roomy_graph<Room>& source)  // NOLINT(google-explicit-constructor): a view
      : code(&source.code[0]),
        size(source.size),
        annotations(&source.annotations[0]),
        annotation_count(source.annotation_count),
        windows(&source.windows[0]),
        window_count(source.window_count) {}

  [[nodiscard]] constexpr const instruction& operator[](int id) const { return code[id]; }
  [[nodiscard]] constexpr const instruction& operand(int id, int k) const { return code[code[id].operand[k]]; }
};

namespace detail {
/// Instructions keep the numbers of their annotations and windows: a graph made from another starts with all of them.
constexpr void copy_tables(graph& to, graph_view from) {
  to.annotations.reserve(from.annotation_count);
  for (int i = 0; i < from.annotation_count; ++i) to.annotations.push_back(from.annotations[i]);
  for (int i = 0; i < from.window_count; ++i) to.windows.push_back(from.windows[i]);
}
}  // namespace detail

/// Copies a graph into arrays of its own size: `freeze<make().code.size(), make().annotations.size()>(make())`.
template <int Size, int Annotations, int Windows = 0>
constexpr fixed_graph<Size, Annotations, Windows> freeze(const graph& source) {
  fixed_graph<Size, Annotations, Windows> result;
  for (int i = 0; i < Windows; ++i) result.windows[i] = source.windows[i];
  for (int i = 0; i < Size; ++i) result.code[i] = source.code[i];
  for (int i = 0; i < Annotations; ++i) {
    result.annotations[i] = source.annotations[i];
    detail::write_each(&result.annotations[i].placement.dim[0], max_rank);
  }
  return result;
}

template <int Room> constexpr roomy_graph<Room> freeze_roomily(const graph& source) {
  roomy_graph<Room> result;
  result.size = source.code.size();
  result.annotation_count = source.annotations.size();
  result.window_count = source.windows.size();
  result.fits = result.size <= Room && result.annotation_count <= Room && result.window_count <= Room;
  if (!result.fits) return result;
  for (int i = 0; i < result.window_count; ++i) result.windows[i] = source.windows[i];
  for (int i = 0; i < result.size; ++i) result.code[i] = source.code[i];
  for (int i = 0; i < result.annotation_count; ++i) {
    result.annotations[i] = source.annotations[i];
    detail::write_each(&result.annotations[i].placement.dim[0], max_rank);
  }
  return result;
}

}  // namespace espalier
