// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/parse_text.hpp>
#include <espalier/tensor/core/partition/ops_by_name.hpp>

#include <espalier/testing/table_numbers.hpp>

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

/// Graphs written as text and read again.
namespace espalier::test {

/// The tables of random programs, which all have one operator's name.
[[nodiscard]] inline std::span<const named_op> table_names() {
  static const std::array<named_op, 10> all{{{"table_f32", &table_of(dtype::f32)},
                                             {"table_f64", &table_of(dtype::f64)},
                                             {"table_bf16", &table_of(dtype::bf16)},
                                             {"table_f16", &table_of(dtype::f16)},
                                             {"table_i32", &table_of(dtype::i32)},
                                             {"table_u32", &table_of(dtype::u32)},
                                             {"table_i64", &table_of(dtype::i64)},
                                             {"table_i8", &table_of(dtype::i8)},
                                             {"table_u8", &table_of(dtype::u8)},
                                             {"table_bool", &table_of(dtype::boolean)}}};
  return all;
}

[[nodiscard]] inline parsed_graph parsed(std::string_view text) { return parse_graph(text, all_ops(), table_names()); }
[[nodiscard]] inline std::string text_of_graph(const mesh_shape& mesh, const axis_parts& parts, graph_view g) {
  return to_text(mesh, parts, g, {.lines = true, .names = table_names()});
}

/// The first field in which two instructions differ, or nothing. Layouts are compared, not their numbers.
[[nodiscard]] inline std::string difference_of(graph_view a, graph_view b, int id) {
  const instruction& x = a[id];
  const instruction& y = b[id];
  const auto same_words = [](const char* one, const char* other) {
    return one == nullptr || other == nullptr ? one == other : std::string_view(one) == other;
  };
  if (x.op != y.op) return "operator";
  if (x.type != y.type) return "type";
  if (!(x.shape == y.shape)) return "shape";
  if (x.operand_count != y.operand_count) return "number of operands";
  for (int k = 0; k < x.operand_count; ++k) {
    if (a.operand_at(x, k) != b.operand_at(y, k)) return "operand " + std::to_string(k);
  }
  for (int n = 0; n < max_attributes; ++n) {
    if (x.attribute[n] != y.attribute[n]) return "attribute " + std::to_string(n);
  }
  if (std::bit_cast<std::uint64_t>(x.scalar) != std::bit_cast<std::uint64_t>(y.scalar)) return "scalar";
  if (x.region != y.region) return "region";
  if (x.origin != y.origin) return "origin";
  if (!same_words(x.label, y.label)) return "label";
  if (x.where.line != y.where.line || (x.where.line != 0 && !same_words(x.where.file, y.where.file))) return "line";
  if ((x.annotation < 0) != (y.annotation < 0)) return "annotation";
  if (x.annotation < 0) return "";
  const layout& p = a.annotations[x.annotation];
  const layout& q = b.annotations[y.annotation];
  if (!(p.shape == q.shape)) return "shape of the layout";
  if (!p.placement.same_layout(q.placement)) return "layout";
  if (p.placement.open != q.placement.open || p.placement.replicated != q.placement.replicated) return "open axes";
  return "";
}
[[nodiscard]] inline std::string difference_of(graph_view a, graph_view b) {
  if (a.size != b.size) return std::to_string(a.size) + " and " + std::to_string(b.size) + " instructions";
  if (a.window_count != b.window_count) return "the number of windows";
  for (int n = 0; n < a.window_count; ++n) {
    if (!(a.windows[n] == b.windows[n])) return "window " + std::to_string(n);
  }
  for (int id = 0; id < a.size; ++id) {
    if (const std::string field = difference_of(a, b, id); !field.empty())
      return "%" + std::to_string(id) + ": " + field;
  }
  return "";
}

/// That a graph is written, read and written again as the same text and the same graph, or what is not.
[[nodiscard]] inline std::string fault_of_text(const mesh_shape& mesh, const axis_parts& parts, graph_view g) {
  const std::string text = text_of_graph(mesh, parts, g);
  if (text.find("attribute0") != std::string::npos) return "an attribute has no name:\n" + text;
  try {
    const parsed_graph read = parsed(text);
    const std::string differs = difference_of(g, read.code);
    if (!differs.empty()) return "read from its text, a graph differs in " + differs + "\n" + text;
    if (text_of_graph(read.mesh, read.parts, read.code) != text) return "printed again, a text differs:\n" + text;
  } catch (const graph_text_error& error) { return error.what() + ("\n" + text); }
  return "";
}

}  // namespace espalier::test
