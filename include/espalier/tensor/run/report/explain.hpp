// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/table.hpp>
#include <espalier/tensor/core/diagnostics/source_line.hpp>
#include <espalier/tensor/core/partition/messages.hpp>
#include <espalier/tensor/core/program/annotated_values.hpp>
#include <espalier/tensor/core/program/callers.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/core/program/sent_bytes.hpp>
#include <espalier/tensor/core/program/without_rules.hpp>
#include <espalier/tensor/core/sharding/print.hpp>

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace espalier {

namespace detail {

/// `model.hpp:31`
[[nodiscard]] inline std::string line_text(const source_line& where) {
  if (where.line == 0) return "";
  std::string file = where.file;
  const std::size_t slash = file.rfind('/');
  if (slash != std::string::npos) file = file.substr(slash + 1);
  return joined({file, ":", where.line});
}

}  // namespace detail

/// Which rows `explain` writes: all, or those of what moves between devices.
enum class explained : std::uint8_t { everything, collectives };
inline constexpr explained collectives_only = explained::collectives;

namespace detail {

/// The facts of a program that `explain` reads.
struct program_facts {
  const mesh_shape& mesh;
  const axis_parts& parts;
  graph_view code;
  /// The program of one device, and for each of its values the one that its layout was taken from.
  graph_view traced;
  const mesh_shape& device_mesh;
  const int* cause = nullptr;
  /// The bytes sent for each instruction, once, by the device that sends most for it; indexed by instruction.
  const std::int64_t* sent = nullptr;
  /// The bytes that a device sends for an instruction, once. Null where the first device sends the most for all of
  /// them, as it does where all are sums: a program of sums does not compile the counting of what shards lack.
  std::int64_t (*sent_by)(const mesh_shape& mesh, graph_view g, int id, int device) = nullptr;
  std::int64_t collectives = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t argument_bytes = 0;
  std::int64_t result_bytes = 0;
  std::int64_t arena_bytes = 0;
  annotation_count annotations;
  /// The lines from which helper functions were called (`called_from`).
  const source_line* callers = nullptr;
};

class explanation {
 public:
  explicit explanation(const program_facts& of) : of_(of) {}

  void write(std::ostream& out, explained shown) {
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

  [[nodiscard]] std::string op_text(int id) const {
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
  /// `block.hpp:12, called from model.hpp:31, called from train.cpp:7`
  [[nodiscard]] std::string line_of(const instruction& i) const {
    std::string text = line_text(i.where);
    for (int caller = i.where.caller; caller > 0;) {
      const source_line& call = of_.callers[caller - 1];
      if (!is_scope(call)) append_text(text, {", called from ", line_text(call)});
      caller = call.caller;
    }
    return text;
  }

 private:
  enum cell_number : std::uint8_t { line, op, result, times, sent, because_of, cells };
  struct row {
    std::vector<std::string> cell;
    /// The first of the instructions.
    int id = -1;
    std::int64_t times = 0;
    std::int64_t bytes = 0;
  };

  [[nodiscard]] static bool is_shown(const instruction& i, explained shown) {
    if (shown == explained::collectives) return communicates(i);
    // Of loops, what they hand out is worth a line.
    const structure part = structure_of(i);
    return (part < structure::loop_begin || collects(part)) && i.op->facts.values != pattern::uniform &&
           i.op->fuse != fusion::broadcast;
  }

  /// Adds to the last row, if that says the same.
  void add(int id) {
    const instruction& i = of_.code[id];
    std::vector<std::string> cell(cells);
    cell[line] = line_of(i);
    cell[op] = op_text(id);
    cell[result] = layout_text(i, of_.code.annotations[i.annotation]);
    const bool again = !rows_.empty() && rows_.back().cell[line] == cell[line] && rows_.back().cell[op] == cell[op] &&
                       rows_.back().cell[result] == cell[result] && runs_like(rows_.back().id, id);
    if (!again) {
      cell[because_of] = cause_text(i.origin);
      rows_.emplace_back().cell = std::move(cell);
      rows_.back().id = id;
    }
    const std::int64_t repeated = repetitions(of_.code, id);
    rows_.back().times += repeated;
    rows_.back().bytes += repeated * of_.sent[id];
  }

  /// Returns the bytes that the device that sends most sends in a run. Each row shows the device that sends most for
  /// that collective instead: a shift to the right and one to the left are two different devices.
  [[nodiscard]] std::int64_t most_sent() const {
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

  /// Whether numbers of both may be added up: what nobody knows the times of is not counted with what runs once.
  [[nodiscard]] bool runs_like(int one, int other) const { return endless_around(one) == endless_around(other); }
  /// The innermost loop around it of which nobody knows how often it runs, or -1.
  [[nodiscard]] int endless_around(int id) const {
    int region = of_.code[id].loop;
    while (region >= 0 && region_kind_of(of_.code[region]) != region_kind::until) region = of_.code[region].loop;
    return region;
  }

  /// `3`, `at most 3` where a branch is not always taken or a loop may end early, `3 per iteration` where nobody knows
  /// how often a loop runs.
  [[nodiscard]] std::string times_text(int id, std::int64_t count) const {
    bool is_most = false;
    if (endless_around(id) >= 0) return joined({count, " per iteration"});
    for (int region = of_.code[id].loop; region >= 0; region = of_.code[region].loop) {
      is_most = is_most || region_kind_of(of_.code[region]) != region_kind::counted;
    }
    return joined({is_most ? "at most " : "", count});
  }

  [[nodiscard]] std::string layout_text(const instruction& i, const layout& placed) const {
    return to_string(of_.mesh, of_.parts, i.type, placed.shape, placed.placement);
  }

  /// The annotation that completion followed to a traced value: causes are followed back until one written by hand.
  [[nodiscard]] std::string cause_text(int id) const {
    id = annotation_behind(of_.traced, of_.cause, id);
    if (id < 0) return "";
    const instruction& i = of_.traced[id];
    const std::string where = structure_of(i) == structure::argument
                                  ? joined({"argument ", attributes_of<border_attributes>(i).number})
                                  : line_text(i.where);
    return joined({where, " ", layout_text(i, of_.traced.annotations[i.annotation])});
  }

  const program_facts& of_;
  std::vector<row> rows_;
};

template <class Program> [[nodiscard]] program_facts facts_of_program() {
  constexpr bool only_sums = Program::template collectives<all_reduce>() == Program::collectives();
  constexpr annotation_count annotations = count_annotations(Program::traced);
  return {Program::mesh::value,
          Program::parts,
          without_rules<Program::code>::value,
          without_rules<Program::traced>::value,
          Program::device_mesh::value,
          &Program::completion_pass::value.cause[0],
          &sent_bytes_table<Program>::value.of[0],
          only_sums ? nullptr : &sent_in_messages,
          Program::collectives(),
          Program::peak_bytes_per_device(),
          Program::argument_bytes(),
          Program::result_bytes(),
          Program::arena_bytes(),
          annotations,
          &callers_of<Program>::value.of[0]};
}

}  // namespace detail

/// Writes what a program does, in the order of execution: one row for each line of source and kind of collective or
/// computation, with the layout of what it makes, how often it runs, the bytes each device sends for it, and the
/// annotation that led to the layout. What a `while_loop` without at_most_iterations runs is counted for one iteration.
/// What travels in the messages of another collective has rows of its own below that one's, which names the bytes of
/// all. A line in a helper function that says so (`called_from`) is followed by the lines of the calls.
/// `explain<step>(std::cout, collectives_only)` is the short form.
template <class Program> void explain(std::ostream& out, explained shown = explained::everything) {
  if constexpr (Program::is_sound) {  // otherwise its mistake has been reported
    const detail::program_facts facts = detail::facts_of_program<Program>();
    detail::explanation(facts).write(out, shown);
  }
}

/// The same of a program that `compile` returned: `explain(std::cout, step)`.
template <class Program>
void explain(std::ostream& out, const Program& /*program*/, explained shown = explained::everything) {
  explain<Program>(out, shown);
}

}  // namespace espalier
