// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/program/program.hpp>
#include <espalier/program/sent_bytes.hpp>
#include <espalier/program/without_rules.hpp>
#include <espalier/report/table.hpp>
#include <espalier/sharding/print.hpp>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace espalier {

namespace detail {

/// `model.hpp:31`
[[nodiscard]] inline std::string line_text(const source_line& where) {
  if (where.line == 0) return "";
  std::string file = where.file;
  const std::size_t slash = file.rfind('/');
  if (slash != std::string::npos) file = file.substr(slash + 1);
  return file + ':' + std::to_string(where.line);
}

/// The annotation that completion followed to a value: causes are followed back until one that was written by hand.
[[nodiscard]] inline int annotation_behind(const graph_view& g, const int* cause, int id) {
  for (int steps = 0; steps < g.size && id >= 0; ++steps) {
    if (g[id].annotation >= 0) return id;
    if (cause[id] == id) return id;
    id = cause[id];
  }
  return -1;
}

}  // namespace detail

/// Which rows `explain` writes: all, or those of what moves between devices.
enum class explained : std::uint8_t { everything, collectives };
inline constexpr explained collectives_only = explained::collectives;

/// Writes what a program does, in the order of execution: one row for each line of source and kind of collective or
/// computation, with the layout of what it makes, how often it runs, the bytes each device sends for it, and the
/// annotation that led to the layout. What travels in the messages of another collective has rows of its own below
/// that one's, which names the bytes of all. `explain<step>(std::cout, collectives_only)` is the short form.
template <class Program> void explain(std::ostream& out, explained shown = explained::everything) {
  const mesh_shape& mesh = Program::mesh::value;
  const graph_view code = detail::without_rules<Program::code>::value;
  const graph_view traced = detail::without_rules<Program::traced>::value;
  const auto& completion = Program::completion_pass::value;
  report::table rows({{"line", "", report::align::left},
                      {"op", "", report::align::left},
                      {"result", "", report::align::left},
                      {"times", "", report::align::right},
                      {"sent", "", report::align::right},
                      {"because of", "", report::align::left}});
  struct row {
    std::string line;
    std::string op;
    std::string result;
    std::int64_t times = 0;
    std::int64_t bytes = 0;
    std::string cause;
  };
  std::vector<row> lines;
  for (int id = 0; id < code.size; ++id) {
    const instruction& i = code[id];
    // Of loops, what they hand out is worth a line.
    const op_facts& facts = i.op->facts;
    const bool structural = (facts.part >= structure::loop_begin && !collects(facts.part)) ||
                            facts.values == pattern::uniform || i.op->fuse == fusion::broadcast;
    if (structural) continue;
    row r;
    r.line = detail::line_text(i.where);
    r.op = i.op->name;
    const bool moves = communicates(i);
    if (!moves && shown == explained::collectives) continue;
    if (moves) r.op += " over " + names_of(mesh, Program::parts, list_of(attributes_of<collective_attributes>(i).axes));
    if (facts.travels_along) r.op = std::string("with the ") + i.op->name + " above";
    if (detail::travelling_together(code.code, code.size, id) > 1) r.op += ", with others";
    const layout& placed = code.annotations[i.annotation];
    r.result = to_string(mesh, Program::parts, i.type, placed.shape, placed.placement);
    r.times = detail::repetitions(code, id);
    if (moves) r.bytes = r.times * detail::sent_bytes_table<Program>::value.of[id];
    const int origin = i.origin;
    const int cause = detail::annotation_behind(traced, &completion.cause[0], origin);
    if (cause >= 0) {
      const instruction& a = traced[cause];
      r.cause =
          (part_of(a) == structure::argument ? "argument " + std::to_string(attributes_of<border_attributes>(a).number)
                                             : detail::line_text(a.where)) +
          " " + to_string(mesh, Program::parts, a.type, a.shape, traced.annotations[a.annotation].placement);
    }
    if (!lines.empty() && lines.back().line == r.line && lines.back().op == r.op && lines.back().result == r.result) {
      lines.back().times += r.times;
      lines.back().bytes += r.bytes;
      continue;
    }
    lines.push_back(r);
  }
  std::int64_t total = 0;
  for (const row& r : lines) {
    rows.row(r.line, r.op, r.result, std::to_string(r.times),
             r.bytes > 0 ? report::format_bytes(r.bytes) : std::string(), r.cause);
    total += r.bytes;
  }
  rows.print(out);
  const auto count = Program::collectives();
  out << "each device sends " << report::format_bytes(total) << " in " << count
      << (count == 1 ? " collective" : " collectives") << ", and needs "
      << report::format_bytes(Program::peak_bytes_per_device())
      << " of memory: " << report::format_bytes(Program::argument_bytes()) << " arguments, "
      << report::format_bytes(Program::result_bytes()) << " results, " << report::format_bytes(Program::arena_bytes())
      << " on the way\n";
}

/// The same of a program that `compile` returned: `explain(std::cout, step)`.
template <class Program>
void explain(std::ostream& out, const Program& /*program*/, explained shown = explained::everything) {
  explain<Program>(out, shown);
}

}  // namespace espalier
