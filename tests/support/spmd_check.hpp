// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/run_price.hpp>
#include <espalier/tensor/core/program/check_graph.hpp>
#include <espalier/tensor/core/program/cut_axes.hpp>
#include <espalier/tensor/core/program/pass_list.hpp>
#include <espalier/tensor/core/program/recompute_rows.hpp>
#include <espalier/tensor/core/program/refine_layouts.hpp>
#include <espalier/testing/interpret_spmd.hpp>

#include <espalier/testing/random_graph.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

/// Takes a graph made at run time through all passes, runs it on simulated devices, and compares with one device.
namespace espalier::test {

[[nodiscard]] inline mesh_shape mesh_of(const std::vector<int>& sizes) {
  static constexpr const char* names[max_axes]{"x", "y", "z", "w", "s", "t", "u", "v"};
  mesh_shape mesh;
  for (const int size : sizes) {
    mesh.size[mesh.rank] = size;
    mesh.name[mesh.rank] = names[mesh.rank];
    ++mesh.rank;
  }
  return mesh;
}

/// Reads a sharding as the tests write it, one entry per dimension: "x,_,yz,?,x?" are split by x, whole, split by y and
/// z, open, and x or more. After "|" follow the axes to stay replicated on, after "!" those of a partial sum.
[[nodiscard]] inline sharding sharding_of(const std::string& text) {
  static const std::string names = "xyzwstuv";
  sharding result;
  char part = ',';
  bool any = false;
  int d = 0;
  for (const char c : text) {
    if (c == ',') ++d;
    if (c == '|' || c == '!') part = c;
    any = any || (part == ',' && c != '|' && c != '!');
    if (c == '?') result.open |= 1U << static_cast<unsigned>(d);
    const std::size_t axis = names.find(c);
    if (axis == std::string::npos) continue;
    const int a = static_cast<int>(axis);
    if (part == ',') result.dim[d] = result.dim[d].with(a);
    if (part == '|') result.replicated |= bit_of(a);
    if (part == '!') result.unreduced |= bit_of(a);
  }
  result.rank = any ? d + 1 : 0;
  return result;
}

[[nodiscard]] inline std::string text_of(const sharding& s) {
  static const std::string names = "xyzwstuv";
  std::string text = "[";
  for (int d = 0; d < s.rank; ++d) {
    if (d > 0) text += ",";
    for (int i = 0; i < s.dim[d].size(); ++i) text += names[static_cast<std::size_t>(s.dim[d][i])];
    if (s.dim[d].empty()) text += "_";
    if (s.is_open(d)) text += "?";
  }
  const auto set = [&](char mark, axis_mask axes) {
    if (axes == 0) return;
    text += mark;
    for (int a = 0; a < max_axes; ++a) {
      if (has_axis(axes, a)) text += names[static_cast<std::size_t>(a)];
    }
  };
  set('|', s.replicated);
  set('!', s.unreduced);
  return text + "]";
}

[[nodiscard]] inline std::string text_of(const extents& shape) {
  std::string text = "[";
  for (int d = 0; d < shape.rank; ++d) text += (d > 0 ? "," : "") + std::to_string(shape[d]);
  return text + "]";
}

/// Every instruction on a line of its own, with its sharding: from `of`, or from its annotation.
[[nodiscard]] inline std::string listing(graph_view g, const sharding* of = nullptr) {
  std::ostringstream out;
  int depth = 0;
  for (int id = 0; id < g.size; ++id) {
    const instruction& i = g[id];
    if (i.op == &ops::region_end) --depth;
    out << std::string(static_cast<std::size_t>(2 * std::max(depth, 0) + 2), ' ') << '%' << id << " = " << i.op->name;
    for (int k = 0; k < i.operand_count; ++k) out << (k > 0 ? ", %" : " %") << g.operand_at(i, k);
    out << " : " << name_of(i.type) << text_of(i.shape);
    if (of != nullptr) out << text_of(of[id]);
    if (of != nullptr && i.annotation >= 0) out << " <- annotated";
    if (of == nullptr && i.annotation >= 0) out << text_of(g.annotations[i.annotation].placement);
    const bool letters = i.op == &ops::einsum;
    if (letters) {
      out << " ";
      const einsum_attributes terms = attributes_of<einsum_attributes>(i);
      const auto write = [&](einsum_term term, const char* behind) {
        for (int d = 0; d < term.size(); ++d) out << term[d];
        out << behind;
      };
      write(terms.left, ",");
      write(terms.right, "->");
      write(terms.result, "");
    } else {
      out << " {" << i.attribute[0] << "," << i.attribute[1] << "," << i.attribute[2] << "}";
    }
    if (i.op == &ops::constant || i.op == &ops::mask) out << " value " << i.scalar;
    if (i.region >= 0) out << " in %" << i.region;
    out << '\n';
    if (i.op == &ops::region_begin) ++depth;
  }
  return out.str();
}

/// One collective of a partitioned program, with how often it runs.
struct collective_use {
  collective kind = collective::local_slice;
  axis_mask axes = 0;
  std::int64_t times = 1;
  /// The most bytes any device sends in one run.
  std::int64_t bytes = 0;
  int id = 0;
};

/// A graph on its way through the passes.
struct spmd_program {
  /// Its axes are these sub-axes of those of the mesh that was asked for.
  mesh_shape mesh;
  axis_parts axes;
  /// It wants sub-axes, but moves less with whole axes.
  bool stays_whole = false;
  graph traced;
  std::vector<factor_rule> rules;
  std::vector<sharding> of;
  std::vector<int> cause;
  partitioned parts;
  std::vector<collective_use> collectives;

  [[nodiscard]] std::int64_t count(collective kind, axis_mask along = 0) const {
    std::int64_t times = 0;
    for (const collective_use& use : collectives) {
      if (use.kind == kind && (along == 0 || use.axes == along)) times += use.times;
    }
    return times;
  }
  [[nodiscard]] std::int64_t bytes(collective kind, axis_mask along = 0) const {
    std::int64_t sum = 0;
    for (const collective_use& use : collectives) {
      if (use.kind == kind && (along == 0 || use.axes == along)) sum += use.times * use.bytes;
    }
    return sum;
  }
  [[nodiscard]] std::int64_t total_bytes() const {
    std::int64_t sum = 0;
    for (const collective_use& use : collectives) sum += use.times * use.bytes;
    return sum;
  }
  /// Returns the bytes that the device that sends most sends in one run: `program::bytes` of all kinds together.
  [[nodiscard]] std::int64_t most_bytes() const {
    std::int64_t most = 0;
    for (int device = 0; device < mesh.devices(); ++device) {
      std::int64_t sum = 0;
      for (const collective_use& use : collectives)
        sum += use.times * detail::sent_in_messages(mesh, parts.program, use.id, device);
      most = std::max(most, sum);
    }
    return most;
  }
  /// "all_reduce(x) 2x48 B, ...", in program order.
  [[nodiscard]] std::string summary() const {
    static const std::string names = "xyzwstuv";
    std::string text;
    for (const collective_use& use : collectives) {
      text += (text.empty() ? "" : ", ") + std::string(name_of(use.kind)) + "(";
      for (int a = 0; a < max_axes; ++a) {
        if (has_axis(use.axes, a)) text += names[static_cast<std::size_t>(a)];
      }
      text += ") " + (use.times > 1 ? std::to_string(use.times) + "x" : "") + std::to_string(use.bytes);
    }
    return text;
  }
  [[nodiscard]] std::string text() const {
    std::string head = "mesh";
    for (int a = 0; a < mesh.rank; ++a) head += " " + std::to_string(mesh.size[a]);
    return head + "\ncompleted:\n" + listing(traced, of.data()) + "partitioned:\n" + listing(parts.program);
  }
};

/// The first `count` passes of a list, with a check of the graph after each.
template <int Count>
[[nodiscard]] graph checked_passes(const pass (&list)[Count], int count, const mesh_shape& mesh, graph_view g,
                                   graph_stage stage) {
  graph result;
  detail::copy_tables(result, g);
  for (int id = 0; id < g.size; ++id) result.code.push_back(g[id]);
  for (int n = 0; n < count; ++n) {
    result = list[n].run(mesh, result);
    check(mesh, result, stage, list[n].name);
  }
  return result;
}

/// Completes as `completed_on_sub_axes` does with constants: on the sub-axes that the graph wants.
/// @param cuts whether axes may be cut
[[nodiscard]] inline spmd_program completed_program(const mesh_shape& mesh, graph_view g, bool cuts = true) {
  spmd_program made;
  made.mesh = mesh;
  made.axes = axis_parts::whole(mesh);
  check(mesh, g, graph_stage::traced, "trace");
  const graph whole = checked_passes(passes_on_tensors, length_of(passes_on_tensors), mesh, g, graph_stage::tensors);
  made.traced = whole;
  for (int id = 0; id < whole.code.size(); ++id)
    made.rules.push_back(whole.code[id].op->factors(graph_view(whole).view(id)));
  made.of.resize(made.rules.size());
  made.cause.resize(made.rules.size());
  while (true) {
    lay_out(made.mesh, made.traced, made.rules.data(), made.of.data(), made.cause.data(), 0);  // of small ones too
    if (!cuts) return made;
    const axis_parts wanted = refined_sub_axes(made.mesh, made.traced, made.rules.data(), made.of.data(), made.axes);
    if (wanted.count == made.axes.count) return made;
    made.axes = wanted;
    made.mesh = cut_mesh(mesh, wanted);
    made.traced = on_sub_axes(whole, wanted);
    check(made.mesh, made.traced, graph_stage::tensors, "cut_axes");
  }
}

[[nodiscard]] inline std::int64_t times_of(graph_view g, int id) {
  std::int64_t times = 1;
  for (int l = g[id].region; l >= 0; l = g[l].region) times *= attributes_of<region_attributes>(g[l]).iterations;
  return times;
}

inline void list_collectives(spmd_program& made) {
  const mesh_shape& mesh = made.mesh;
  const graph_view code = made.parts.program;
  made.collectives.clear();
  for (int id = 0; id < code.size; ++id) {
    if (!starts_collective(code[id])) continue;
    collective_use use;
    use.kind = static_cast<collective>(detail::collective_index(code[id].op));
    use.axes = attributes_of<collective_attributes>(code[id]).axes;
    use.times = times_of(code, id);
    for (int device = 0; device < mesh.devices(); ++device) {
      use.bytes = std::max(use.bytes, detail::sent_in_messages(mesh, code, id, device));
    }
    use.id = id;
    made.collectives.push_back(use);
  }
}

/// All passes but the last, on the sub-axes that the graph wants.
[[nodiscard]] inline spmd_program partitioned_on(const mesh_shape& mesh, graph_view g, bool cuts) {
  spmd_program made = completed_program(mesh, g, cuts);
  made.parts = partition(made.mesh, made.traced, made.rules.data(), made.of.data());
  if (made.parts.fault != partition_fault::nothing) return made;  // no pass runs on what was given up
  check(made.mesh, made.parts.program, graph_stage::buffers, "partition");
  made.parts.program = checked_passes(passes_on_buffers, length_of(passes_on_buffers) - 1, made.mesh,
                                      made.parts.program, graph_stage::buffers);
  list_collectives(made);
  return made;
}

/// The last pass: collectives that wait together become one.
[[nodiscard]] inline spmd_program merged_program(spmd_program made) {
  if (made.parts.fault != partition_fault::nothing) return made;
  const pass& last = passes_on_buffers[length_of(passes_on_buffers) - 1];
  made.parts.program = last.run(made.mesh, made.parts.program);
  check(made.mesh, made.parts.program, graph_stage::buffers, last.name);
  if (detail::has_scores(made.parts.program)) {
    made.parts.program = recompute_rows(made.parts.program);
    check(made.mesh, made.parts.program, graph_stage::buffers, "recompute_rows");
  }
  if (detail::widens(made.parts.program)) {
    made.parts.program = repeat_widened(made.parts.program, make_schedule(made.parts.program));
    check(made.mesh, made.parts.program, graph_stage::buffers, "repeat_widened");
  }
  list_collectives(made);
  return made;
}

/// All passes but the last: what the partitioner itself decides, on the mesh that `on_chosen_sub_axes` decides for.
[[nodiscard]] inline spmd_program partitioned_program(const mesh_shape& mesh, graph_view g) {
  spmd_program made = partitioned_on(mesh, g, true);
  if (made.axes.count == mesh.rank) return made;
  const auto price = [](const spmd_program& of) {
    const spmd_program merged = merged_program(of);
    return price_of_run(merged.mesh, merged.parts.program, merged.parts.fault != partition_fault::nothing);
  };
  spmd_program whole = partitioned_on(mesh, g, false);
  whole.stays_whole = true;
  return price(made).is_dearer_than(price(whole)) ? whole : made;
}

/// Returns where results differ from those expected by more than `tolerance`, relative to the largest element, or an
/// empty string.
[[nodiscard]] inline std::string difference(const std::vector<tensor_value>& made,
                                            const std::vector<tensor_value>& expected, double tolerance) {
  for (std::size_t r = 0; r < expected.size(); ++r) {
    double scale = 1;
    for (const double x : expected[r].data) scale = std::max(scale, std::abs(x));
    for (std::size_t i = 0; i < expected[r].data.size(); ++i) {
      const double a = expected[r].data[i];
      const double b = made.at(r).data.at(i);
      const bool same = std::abs(a - b) <= tolerance * scale || a == b || (a != a && b != b);
      if (same) continue;
      return "result " + std::to_string(r) + " element " + std::to_string(i) + ": one device " + std::to_string(a) +
             ", the mesh " + std::to_string(b);
    }
  }
  return "";
}

/// Whether the user would be told that a partial sum cannot be where an annotation wants it: no fault of the library's.
[[nodiscard]] inline bool is_refused(const spmd_program& program) {
  return program.parts.fault == partition_fault::no_partial_sum ||
         program.parts.fault == partition_fault::partial_sum_dropped;
}

/// Returns the fault of a partitioned program, or an empty string: results that differ from those of one device by more
/// than `tolerance`, relative to the largest element; bytes that differ from what `sent_bytes` promises.
[[nodiscard]] inline std::string fault_of(const spmd_program& program, const std::vector<tensor_value>& expected,
                                          const std::vector<tensor_value>& arguments, double tolerance = 1e-9) {
  if (program.parts.fault != partition_fault::nothing) {
    return "partition reports fault " + std::to_string(static_cast<int>(program.parts.fault)) + " at %" +
           std::to_string(program.parts.fault_at);
  }
  const graph_view code = program.parts.program;
  spmd_outcome outcome;
  try {
    outcome = interpret_spmd(program.mesh, code, arguments);
  } catch (const std::exception& e) { return e.what(); }
  if (std::string wrong = difference(outcome.results, expected, tolerance); !wrong.empty()) return wrong;
  // Of a loop until a condition is false, and of a branch, the most is promised; of one without a limit, one iteration.
  bool may_send_less = false;
  for (int id = 0; id < code.size; ++id) {
    if (structure_of(code[id]) != structure::region_begin) continue;
    may_send_less = may_send_less || code[id].operand_count > 0;
    if (attributes_of<region_attributes>(code[id]).kind == region_kind::until) return "";
  }
  for (int device = 0; device < program.mesh.devices(); ++device) {
    traffic promised;
    for (const collective_use& use : program.collectives) {
      promised[use.kind] += use.times * detail::sent_in_messages(program.mesh, code, use.id, device);
    }
    for (std::size_t kind = 0; kind < promised.bytes.size(); ++kind) {
      const std::int64_t sent = outcome.sent[static_cast<std::size_t>(device)].bytes[kind];
      if (may_send_less ? sent > promised.bytes[kind] : sent != promised.bytes[kind]) {
        return "device " + std::to_string(device) + " sends " + std::to_string(sent) + " bytes of " +
               name_of(static_cast<collective>(kind)) + ", promised were " + std::to_string(promised.bytes[kind]);
      }
    }
  }
  return "";
}

}  // namespace espalier::test
