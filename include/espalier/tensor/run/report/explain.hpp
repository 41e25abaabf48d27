// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/object_vector.hpp>
#include <espalier/config.hpp>

#include <espalier/tensor/core/diagnostics/source_line.hpp>
#include <espalier/tensor/core/partition/messages.hpp>
#include <espalier/tensor/core/program/annotated_values.hpp>
#include <espalier/tensor/core/program/callers.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/core/program/sent_bytes.hpp>
#include <espalier/tensor/core/program/without_rules.hpp>
#include <espalier/tensor/core/sharding/print.hpp>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace espalier {

namespace detail {

/// `model.hpp:31`
[[nodiscard]] std::string line_text(const source_line& where);

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

  void write(std::ostream& out, explained shown);

  [[nodiscard]] std::string op_text(int id) const;
  /// `block.hpp:12, called from model.hpp:31, called from train.cpp:7`
  [[nodiscard]] std::string line_of(const instruction& i) const;

 private:
  enum cell_number : std::uint8_t { line, op, result, times, sent, because_of, cells };
  struct row {
    std::vector<std::string> cell;
    /// The first of the instructions.
    int id = -1;
    std::int64_t times = 0;
    std::int64_t bytes = 0;
  };

  [[nodiscard]] static bool is_shown(const instruction& i, explained shown);

  /// Adds to the last row, if that says the same.
  void add(int id);

  /// Returns the bytes that the device that sends most sends in a run. Each row shows the device that sends most for
  /// that collective instead: a shift to the right and one to the left are two different devices.
  [[nodiscard]] std::int64_t most_sent() const;

  /// Whether numbers of both may be added up: what nobody knows the times of is not counted with what runs once.
  [[nodiscard]] bool runs_like(int one, int other) const { return endless_around(one) == endless_around(other); }
  /// The innermost loop around it of which nobody knows how often it runs, or -1.
  [[nodiscard]] int endless_around(int id) const;

  /// `3`, `at most 3` where a branch is not always taken or a loop may end early, `3 per iteration` where nobody knows
  /// how often a loop runs.
  [[nodiscard]] std::string times_text(int id, std::int64_t count) const;

  [[nodiscard]] std::string layout_text(const instruction& i, const layout& placed) const;

  /// The annotation that completion followed to a traced value: causes are followed back until one written by hand.
  [[nodiscard]] std::string cause_text(int id) const;

  const program_facts& of_;
  object_vector<row> rows_;
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

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/report/impl/explain.ipp>
#endif
