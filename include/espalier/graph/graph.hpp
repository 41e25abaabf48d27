// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/detail/list.hpp>
#include <espalier/graph/instruction.hpp>

namespace espalier {

/// A program as a value, in execution order. The body of a loop stands between its `loop_begin` and `loop_end`.
/// Grows freely inside a constant evaluation; `fixed_graph` is what outlives one.
struct graph {
  detail::list<instruction> code;
  detail::list<layout> annotations;
};

/// A graph in arrays of exactly its size: the form in which a pass hands it to the next.
template <int Size, int Annotations> struct fixed_graph {
  instruction code[Size > 0 ? Size : 1]{};
  layout annotations[Annotations > 0 ? Annotations : 1]{};
  static constexpr int size = Size;
};

/// A graph in arrays that are large enough for it, for a pass that is too dear to run once for the size alone.
template <int Room> struct roomy_graph {
  instruction code[Room]{};
  layout annotations[Room]{};
  int size = 0;
  int annotation_count = 0;
  /// Otherwise only the sizes are right.
  bool fits = false;
};

/// What a pass reads: any kind of graph.
struct graph_view {
  const instruction* code = nullptr;
  int size = 0;
  const layout* annotations = nullptr;
  int annotation_count = 0;

  constexpr graph_view() = default;
  constexpr graph_view(const graph& source)  // NOLINT(google-explicit-constructor): a view
      : code(source.code.data()),
        size(source.code.size()),
        annotations(source.annotations.data()),
        annotation_count(source.annotations.size()) {}
  template <int Size, int Annotations>
  constexpr graph_view(const fixed_graph<Size, Annotations>& source)  // NOLINT(google-explicit-constructor): a view
      : code(&source.code[0]), size(Size), annotations(&source.annotations[0]), annotation_count(Annotations) {}
  template <int Room>
  constexpr graph_view(const roomy_graph<Room>& source)  // NOLINT(google-explicit-constructor): a view
      : code(&source.code[0]),
        size(source.size),
        annotations(&source.annotations[0]),
        annotation_count(source.annotation_count) {}

  [[nodiscard]] constexpr const instruction& operator[](int id) const { return code[id]; }
  [[nodiscard]] constexpr const instruction& operand(int id, int k) const { return code[code[id].operand[k]]; }
};

/// Copies a graph into arrays of its own size: `freeze<make().code.size(), make().annotations.size()>(make())`.
template <int Size, int Annotations> constexpr fixed_graph<Size, Annotations> freeze(const graph& source) {
  fixed_graph<Size, Annotations> result;
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
  result.fits = result.size <= Room && result.annotation_count <= Room;
  if (!result.fits) return result;
  for (int i = 0; i < result.size; ++i) result.code[i] = source.code[i];
  for (int i = 0; i < result.annotation_count; ++i) {
    result.annotations[i] = source.annotations[i];
    detail::write_each(&result.annotations[i].placement.dim[0], max_rank);
  }
  return result;
}

}  // namespace espalier
