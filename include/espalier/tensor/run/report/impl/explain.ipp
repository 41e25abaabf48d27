// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The compiled half of explain.hpp.
#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/table.hpp>
#include <espalier/tensor/core/partition/messages.hpp>
#include <espalier/tensor/core/program/annotated_values.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/core/program/sent_bytes.hpp>
#include <espalier/tensor/core/sharding/print.hpp>
#include <espalier/tensor/run/report/explain.hpp>

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace espalier::detail {

ESPALIER_INLINE std::string line_text(const source_line& where) {
  if (where.line == 0) return "";
  std::string file = where.file;
  const std::size_t slash = file.rfind('/');
  if (slash != std::string::npos) file = file.substr(slash + 1);
  return joined({file, ":", where.line});
}

ESPALIER_INLINE void explanation::write(std::ostream& out, explained shown) {
  for (int id = 0; id < of_.code.size; ++id) {
    if (is_shown(of_.code[id], shown)) add(id);
  }
  // In a loop: a list of columns would be six times the code of one.
  static constexpr const char* names[cells]{"line", "op", "result", "times", "sent", "because of"};
  std::vector<espalier::report::column> columns(cells);
  for (int c = 0; c < cells; ++c) {
    espalier::report::column& one = columns[static_cast<std::size_t>(c)];
    one.name = names[c];
    one.alignment = c == times || c == sent ? espalier::report::align::right : espalier::report::align::left;
  }
  espalier::report::table table(std::move(columns));
  for (row& one : rows_) {
    one.cell[times] = times_text(one.id, one.times);
    if (one.bytes > 0) one.cell[sent] = espalier::report::format_bytes(one.bytes);
    table.add(std::move(one.cell));
  }
  table.print(out);
  out << joined(
      {"each device sends ",
       espalier::report::format_bytes(most_sent()),
       " in ",
       of_.collectives,
       of_.collectives == 1 ? " collective" : " collectives",
       ", and needs ",
       espalier::report::format_bytes(of_.peak_bytes),
       " of memory: ",
       espalier::report::format_bytes(of_.argument_bytes),
       " arguments, ",
       espalier::report::format_bytes(of_.result_bytes),
       " results, ",
       espalier::report::format_bytes(of_.arena_bytes),
       " on the way\n",
       of_.annotations.annotated,
       " of ",
       of_.annotations.values,
       of_.annotations.annotated == 1 ? " values is annotated (" : " values are annotated (",
       espalier::report::format_percent(
           of_.annotations.values == 0 ? 0 : static_cast<double>(of_.annotations.annotated) / of_.annotations.values),
       ")\n"});
}

ESPALIER_INLINE std::string explanation::op_text(int id) const {
  const instruction& i = of_.code[id];
  std::string text = i.op->name;
  if (i.op->facts.travels_along) {
    text = joined({"with the ", text, " above"});
  } else if (communicates(i)) {
    const axis_list axes = list_of(attributes_of<collective_attributes>(i).axes);
    append_text(text, {" over ", names_of(of_.mesh, of_.parts, axes)});
  }
  if (travelling_together(of_.code.code, of_.code.size, id) > 1) text += ", with others";
  return text;
}

ESPALIER_INLINE std::string explanation::line_of(const instruction& i) const {
  std::string text = line_text(i.where);
  for (int caller = i.where.caller; caller > 0;) {
    const source_line& call = of_.callers[caller - 1];
    if (!is_scope(call)) append_text(text, {", called from ", line_text(call)});
    caller = call.caller;
  }
  return text;
}

ESPALIER_INLINE bool explanation::is_shown(const instruction& i, explained shown) {
  if (shown == explained::collectives) return communicates(i);
  // Of loops, what they hand out is worth a line.
  const structure part = structure_of(i);
  return (part < structure::region_begin || collects(part)) && i.op->facts.values != pattern::uniform &&
         i.op->fuse != fusion::broadcast;
}

ESPALIER_INLINE void explanation::add(int id) {
  const instruction& i = of_.code[id];
  std::vector<std::string> cell(cells);
  cell[line] = line_of(i);
  cell[op] = op_text(id);
  cell[result] = layout_text(i, of_.code.annotations[i.annotation]);
  const bool again = !rows_.empty() && rows_.back().cell[line] == cell[line] && rows_.back().cell[op] == cell[op] &&
                     rows_.back().cell[result] == cell[result] && runs_like(rows_.back().id, id);
  if (!again) {
    cell[because_of] = cause_text(i.origin);
    rows_.push_back({std::move(cell), id});
  }
  const std::int64_t repeated = repetitions(of_.code, id);
  rows_.back().times += repeated;
  rows_.back().bytes += repeated * of_.sent[id];
}

ESPALIER_INLINE std::int64_t explanation::most_sent() const {
  std::int64_t most = 0;
  const int devices = of_.sent_by == nullptr ? 1 : static_cast<int>(of_.device_mesh.devices());
  for (int device = 0; device < devices; ++device) {
    run_total sum(of_.code);
    for (int id = 0; id < of_.code.size; ++id) {
      if (!communicates(of_.code[id])) continue;
      sum.add(id, of_.sent_by == nullptr ? of_.sent[id] : of_.sent_by(of_.device_mesh, of_.code, id, device));
    }
    most = larger_of(most, sum.total());
  }
  return most;
}

ESPALIER_INLINE int explanation::endless_around(int id) const {
  int region = of_.code[id].region;
  while (region >= 0 && region_kind_of(of_.code[region]) != region_kind::until) region = of_.code[region].region;
  return region;
}

ESPALIER_INLINE std::string explanation::times_text(int id, std::int64_t count) const {
  bool is_most = false;
  if (endless_around(id) >= 0) return joined({count, " per iteration"});
  for (int region = of_.code[id].region; region >= 0; region = of_.code[region].region) {
    is_most = is_most || region_kind_of(of_.code[region]) != region_kind::counted;
  }
  return joined({is_most ? "at most " : "", count});
}

ESPALIER_INLINE std::string explanation::layout_text(const instruction& i, const layout& placed) const {
  return to_string(of_.mesh, of_.parts, i.type, placed.shape, placed.placement);
}

ESPALIER_INLINE std::string explanation::cause_text(int id) const {
  id = annotation_behind(of_.traced, of_.cause, id);
  if (id < 0) return "";
  const instruction& i = of_.traced[id];
  const std::string where = structure_of(i) == structure::argument
                                ? joined({"argument ", attributes_of<border_attributes>(i).number})
                                : line_text(i.where);
  return joined({where, " ", layout_text(i, of_.traced.annotations[i.annotation])});
}

}  // namespace espalier::detail
