// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/fixed_string.hpp>
#include <espalier/tensor/core/partition/machine.hpp>
#include <espalier/tensor/core/partition/run_price.hpp>
#include <espalier/tensor/core/program/annotated_values.hpp>
#include <espalier/tensor/core/program/callers.hpp>
#include <espalier/tensor/core/program/plan_version.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/core/program/sent_bytes.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

// The plan of a program as text that is the same on every compiler and machine. docs/explain.md describes it;
// run/report/plan_file.hpp reads it back and says what differs between two of them.
//
//     espalier plan 1
//     program mlp
//     mesh data=2, model=2
//     annotated 1 of 6 values
//     memory 1,245,184 B: 1,081,344 arguments, 32,768 results, 131,072 between
//     sends 32,768 B in 1 collective
//     time 4.915 us sending, 83.886 us computing, at 10,000,000,000 B/s, 1.638 us a start, 400,000,000,000 operations/s
//     all_reduce over model | 1 x 32,768 B | 4.915 us | f32[64@data, 256] | mlp.cpp:18 | mlp.cpp:17 f32[64@data,
//     1024@model]

namespace espalier {

/// The machine for which a plan predicts times. The standard has the ratios of partition/machine.hpp, which the passes
/// assume, and a device that sends 10 GB a second.
struct plan_rates {
  std::int64_t bytes_per_second = 10'000'000'000;
  /// The time in which a collective starts.
  std::int64_t start_nanoseconds = collective_latency * 1'000'000'000 / 10'000'000'000;
  std::int64_t operations_per_second = static_cast<std::int64_t>(operations_per_byte * 10'000'000'000);
};

namespace detail {

/// Text that is written into memory, or only counted.
class plan_sink {
 public:
  /// @param to room for the text, or null
  constexpr explicit plan_sink(char* to) : to_(to) {}

  [[nodiscard]] constexpr int size() const { return size_; }
  constexpr void put(char letter) {
    if (to_ != nullptr) to_[size_] = letter;
    ++size_;
  }
  constexpr void put(const char* text) {
    for (; *text != '\0'; ++text) put(*text);
  }
  constexpr void put(std::string_view text) {
    for (const char letter : text) put(letter);
  }
  /// "1,234,567"
  /// @pre value >= 0
  constexpr void put_count(std::int64_t value) {
    char digits[24]{};
    int count = 0;
    do {
      digits[count++] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value > 0);
    while (count > 0) {
      put(digits[--count]);
      if (count > 0 && count % 3 == 0) put(',');
    }
  }
  /// "12": an extent, or a number that names something.
  constexpr void put_plain(std::int64_t value) {
    if (value >= 10) put_plain(value / 10);
    put(static_cast<char>('0' + value % 10));
  }
  /// "4.915 us" of 4,915 nanoseconds.
  constexpr void put_time(std::int64_t nanoseconds) {
    put_count(nanoseconds / 1000);
    put('.');
    for (int digit = 100; digit > 0; digit /= 10) put(static_cast<char>('0' + nanoseconds / digit % 10));
    put(" us");
  }

 private:
  char* to_;
  int size_ = 0;
};

/// The source files that a plan names. A file is named without its folders, so that its name does not depend on where
/// and how the program is compiled; of two with the same name both have as many folders as tell them apart:
/// `encoder/block.hpp` and `decoder/block.hpp`.
struct plan_files {
  static constexpr int most = 32;
  const char* path[most]{};
  /// The letter with which the name of each begins.
  int from[most]{};
  int count = 0;

  constexpr void add(const source_line& where) {
    if (where.line == 0 || count == most) return;
    for (int n = 0; n < count; ++n) {
      if (same_text(path[n], where.file)) return;
    }
    path[count++] = where.file;
  }
  /// After all have been added.
  constexpr void find_names() {
    for (int n = 0; n < count; ++n) from[n] = name_at(path[n], length_of(path[n]));
    for (bool again = true; again;) {
      bool is_shared[most]{};
      again = false;
      for (int n = 0; n < count; ++n) {
        for (int other = 0; other < count && !is_shared[n]; ++other)
          is_shared[n] = other != n && from[n] > 0 && same_text(path[n] + from[n], path[other] + from[other]);
      }
      for (int n = 0; n < count; ++n) {
        if (!is_shared[n]) continue;
        from[n] = name_at(path[n], from[n] - 1);
        again = true;
      }
    }
  }
  /// A file beyond the first `most` is named without folders.
  [[nodiscard]] constexpr const char* name_of(const char* file) const {
    for (int n = 0; n < count; ++n) {
      if (same_text(path[n], file)) return file + from[n];
    }
    return file + name_at(file, length_of(file));
  }

 private:
  /// Returns where the last name among the first `size` letters of a path begins.
  [[nodiscard]] static constexpr int name_at(const char* path, int size) {
    while (size > 0 && path[size - 1] != '/') --size;
    return size;
  }
};

/// The facts of a program that its plan has.
struct plan_facts {
  const mesh_shape& mesh;
  const axis_parts& parts;
  graph_view code;
  graph_view traced;
  const int* cause = nullptr;
  const source_line* callers = nullptr;
  plan_rates rates;
};

/// The nanoseconds in which a device sends so many bytes in one collective.
[[nodiscard]] constexpr double nanoseconds_of(const plan_rates& rates, std::int64_t bytes) {
  return static_cast<double>(rates.start_nanoseconds) +
         static_cast<double>(bytes) * 1e9 / static_cast<double>(rates.bytes_per_second);
}

/// The nearest integer, in a constant.
/// @pre value >= 0
[[nodiscard]] constexpr std::int64_t rounded_nanoseconds(double value) {
  const auto whole = static_cast<std::int64_t>(value);
  return value - static_cast<double>(whole) < 0.5 ? whole : whole + 1;
}

class plan_writer {
 public:
  constexpr plan_writer(const plan_facts& of, plan_sink& out) : of_(of), out_(out) {}

  /// Calls `f(line)` for each line of source that the entry of a collective names.
  template <class F> static constexpr void for_each_line(const plan_facts& of, int id, const F& f) {
    const source_line& where = of.code[id].where;
    f(where);
    for (int caller = where.caller; caller > 0; caller = of.callers[caller - 1].caller) {
      if (!is_scope(of.callers[caller - 1])) f(of.callers[caller - 1]);
    }
    if (const int behind = annotation_behind(of.traced, of.cause, of.code[id].origin); behind >= 0)
      f(of.traced[behind].where);
  }

  /// Writes the entry of a collective, one line.
  /// @param sent the bytes that a device sends for it, once
  constexpr void put_collective(int id, std::int64_t sent, const plan_files& files) {
    const instruction& i = of_.code[id];
    const bool travels = i.op->facts.travels_along;
    if (travels) out_.put("with the ");
    out_.put(i.op->name);
    if (travels) {
      out_.put(" above");
    } else {
      out_.put(" over ");
      put_axes(list_of(attributes_of<collective_attributes>(i).axes));
    }
    const std::int64_t times = repetitions(of_.code, id);
    next();
    out_.put_count(times);
    out_.put(" x ");
    if (travels) {
      out_.put('-');
      next();
      out_.put('-');
    } else {
      out_.put_count(sent);
      out_.put(" B");
      next();
      out_.put_time(rounded_nanoseconds(static_cast<double>(times) * nanoseconds_of(of_.rates, sent)));
    }
    next();
    put_layout(i, of_.code.annotations[i.annotation]);
    next();
    put_lines(i.where, files);
    next();
    put_cause(i.origin, files);
    out_.put('\n');
  }

  constexpr void put_mesh() {
    out_.put("mesh ");
    for (int a = 0; a < of_.mesh.rank; ++a) {
      if (a > 0) out_.put(", ");
      out_.put(of_.mesh.name[a]);
      out_.put('=');
      out_.put_plain(of_.mesh.size[a]);
    }
    out_.put('\n');
  }

 private:
  constexpr void next() { out_.put(" | "); }
  /// As `names_of`.
  constexpr void put_axes(axis_list axes) {
    for (int n = 0; n < axes.size();) {
      const int part = axes[n];
      if (n > 0) out_.put('*');
      out_.put(of_.mesh.name[of_.parts.axis[part]]);
      const int all = of_.parts.whole_axis_at(axes, n);
      if (all == 0) {
        out_.put(":(");
        out_.put_plain(of_.parts.majors[part]);
        out_.put(')');
        out_.put_plain(of_.parts.size[part]);
      }
      n += all == 0 ? 1 : all;
    }
  }
  /// As `to_string`.
  constexpr void put_layout(const instruction& i, const layout& placed) {
    out_.put(name_of(i.type));
    out_.put('[');
    for (int d = 0; d < placed.shape.rank; ++d) {
      if (d > 0) out_.put(", ");
      out_.put_plain(placed.shape[d]);
      if (placed.placement.dim[d].empty()) continue;
      out_.put('@');
      put_axes(placed.placement.dim[d]);
    }
    out_.put(']');
    if (placed.placement.unreduced == 0) return;
    out_.put(" sum@");
    put_axes(list_of(placed.placement.unreduced));
  }
  constexpr void put_line(const source_line& where, const plan_files& files) {
    out_.put(files.name_of(where.file));
    out_.put(':');
    out_.put_plain(where.line);
  }
  constexpr void put_lines(const source_line& where, const plan_files& files) {
    if (where.line == 0) return out_.put('-');
    put_line(where, files);
    for (int caller = where.caller; caller > 0; caller = of_.callers[caller - 1].caller) {
      if (is_scope(of_.callers[caller - 1])) continue;
      out_.put(", called from ");
      put_line(of_.callers[caller - 1], files);
    }
  }
  constexpr void put_cause(int id, const plan_files& files) {
    const int behind = annotation_behind(of_.traced, of_.cause, id);
    if (behind < 0) return out_.put('-');
    const instruction& i = of_.traced[behind];
    if (structure_of(i) == structure::argument) {
      out_.put("argument ");
      out_.put_plain(attributes_of<border_attributes>(i).number);
    } else {
      put_line(i.where, files);
    }
    out_.put(' ');
    put_layout(i, of_.traced.annotations[i.annotation]);
  }

  const plan_facts& of_;
  plan_sink& out_;
};

/// The name of a type as both compilers write it, without its namespaces and template arguments: `mlp`. A type without
/// a name, as a lambda's, has none.
template <class Type> [[nodiscard]] constexpr std::string_view plain_name_of_type() {
#if defined(__GNUC__) || defined(__clang__)
  std::string_view text = __PRETTY_FUNCTION__;
  const std::size_t begin = text.find("Type = ");
  if (begin == std::string_view::npos) return {};
  text.remove_prefix(begin + 7);
  std::size_t first = 0;
  for (std::size_t n = 0; n < text.size(); ++n) {
    const char c = text[n];
    if (c == '<' || c == '(' || c == '{') {
      // `{anonymous}::mlp`, `(anonymous namespace)::mlp` and `box<int>::mlp` go on after the bracket.
      int depth = 0;
      std::size_t end = n;
      for (; end < text.size(); ++end) {
        depth += text[end] == '<' || text[end] == '(' || text[end] == '{' ? 1 : 0;
        depth -= text[end] == '>' || text[end] == ')' || text[end] == '}' ? 1 : 0;
        if (depth == 0) break;
      }
      if (end + 2 < text.size() && text[end + 1] == ':' && text[end + 2] == ':') {
        n = end + 2;
        first = n + 1;
        continue;
      }
      return text.substr(first, n - first);
    }
    if (c == ':') first = n + 1;
    if (c == ']' || c == ';') return text.substr(first, n - first);
  }
#endif
  return {};
}

[[nodiscard]] constexpr bool is_one_line(const char* text) {
  for (; *text != '\0'; ++text) {
    if (*text == '\n' || *text == '\r' || *text == '"') return false;
  }
  return true;
}

template <int Size> struct plan_letters { char text[Size + 1]{}; };

/// The text of a program's plan: its head, and the entries of its collectives, some in each constant evaluation.
template <class Program, fixed_string Name, plan_rates Rates> class plan_of_program {
  static constexpr int entries_in_evaluation = 16;
  static constexpr int size = Program::code.size;
  static constexpr const auto& sent = sent_bytes_table<Program>::value;

  struct collective_list {
    int count = 0;
    int id[size > 0 ? size : 1]{};
  };
  static constexpr collective_list moving = [] {
    collective_list all;
    for (int id = 0; id < size; ++id) {
      if (communicates(Program::code.code[id])) all.id[all.count++] = id;
    }
    return all;
  }();
  static constexpr int chunks = (moving.count + entries_in_evaluation - 1) / entries_in_evaluation;
  [[nodiscard]] static constexpr int end_of(int chunk) {
    return smaller_of(moving.count, (chunk + 1) * entries_in_evaluation);
  }
  [[nodiscard]] static constexpr plan_facts facts() {
    return {Program::mesh::value,
            Program::parts,
            Program::code,
            Program::traced,
            &Program::completion_pass::value.cause[0],
            &callers_of<Program>::value.of[0],
            Rates};
  }

  [[nodiscard]] static constexpr plan_files with_files_of(const plan_files& before, int chunk) {
    plan_files all = before;
    const plan_facts of = facts();
    for (int n = chunk * entries_in_evaluation; n < end_of(chunk); ++n)
      plan_writer::for_each_line(of, moving.id[n], [&](const source_line& where) { all.add(where); });
    return all;
  }
  template <int Chunk> struct files_before {
    static constexpr plan_files value = with_files_of(files_before<Chunk - 1>::value, Chunk - 1);
  };
  template <int Chunk>
    requires(Chunk == 0)
  struct files_before<Chunk> {
    static constexpr plan_files value{};
  };
  static constexpr plan_files files = [] {
    plan_files all = files_before<chunks>::value;
    all.find_names();
    return all;
  }();

  // The bytes of the device that sends most: each device in an evaluation of its own.
  static constexpr bool alike = all_send_alike(Program::device_mesh::value, Program::code);
  static constexpr int step = step_between_asked(Program::mesh::devices);
  template <int N> struct bytes_sent {
    static constexpr std::int64_t value = bytes_sent_by(Program::device_mesh::value, Program::code, N* step);
  };
  template <int... N> [[nodiscard]] static constexpr std::int64_t most_of(std::integer_sequence<int, N...> /*asked*/) {
    std::int64_t most = 0;
    ((most = larger_of(most, bytes_sent<N>::value)), ...);
    return most;
  }
  [[nodiscard]] static constexpr std::int64_t sum_of_all() {
    run_total sum(Program::code);
    for (int n = 0; n < moving.count; ++n) sum.add(moving.id[n], sent.of[moving.id[n]]);
    return sum.total();
  }
  [[nodiscard]] static constexpr std::int64_t most_sent() {
    if constexpr (alike) {
      return sum_of_all();
    } else {
      return most_of(std::make_integer_sequence<int, (Program::mesh::devices + step - 1) / step>{});
    }
  }
  static constexpr annotation_count annotations = count_annotations(Program::traced);

  static constexpr int write_head(char* to) {
    const plan_facts of = facts();
    plan_sink out(to);
    out.put("espalier plan ");
    out.put_plain(plan_version);
    out.put("\nprogram ");
    const std::string_view type = plain_name_of_type<typename Program::function>();
    out.put(Name.size() > 0 ? std::string_view(&Name.text[0]) : type.empty() ? std::string_view("(lambda)") : type);
    out.put('\n');
    plan_writer(of, out).put_mesh();
    out.put("annotated ");
    out.put_count(annotations.annotated);
    out.put(" of ");
    out.put_count(annotations.values);
    out.put(" values\nmemory ");
    out.put_count(Program::peak_bytes_per_device());
    out.put(" B: ");
    out.put_count(Program::argument_bytes());
    out.put(" arguments, ");
    out.put_count(Program::result_bytes());
    out.put(" results, ");
    out.put_count(Program::arena_bytes());
    out.put(" between\nsends ");
    out.put_count(most_sent());
    out.put(" B in ");
    out.put_count(Program::collectives());
    out.put(Program::collectives() == 1 ? " collective\ntime " : " collectives\ntime ");
    const double sending = static_cast<double>(Program::collectives()) * nanoseconds_of(Rates, 0) +
                           static_cast<double>(sum_of_all()) * 1e9 / static_cast<double>(Rates.bytes_per_second);
    out.put_time(rounded_nanoseconds(sending));
    out.put(" sending, ");
    out.put_time(rounded_nanoseconds(static_cast<double>(Program::flops()) * 1e9 /
                                     static_cast<double>(Rates.operations_per_second)));
    out.put(" computing, at ");
    out.put_count(Rates.bytes_per_second);
    out.put(" B/s, ");
    out.put_time(Rates.start_nanoseconds);
    out.put(" a start, ");
    out.put_count(Rates.operations_per_second);
    out.put(" operations/s\n");
    return out.size();
  }
  static constexpr int write_entries(int chunk, char* to) {
    const plan_facts of = facts();
    plan_sink out(to);
    plan_writer writer(of, out);
    for (int n = chunk * entries_in_evaluation; n < end_of(chunk); ++n)
      writer.put_collective(moving.id[n], sent.of[moving.id[n]], files);
    return out.size();
  }
  /// Chunk -1 is the head.
  template <int Chunk> struct piece {
    static constexpr int write(char* to) {
      if constexpr (Chunk < 0) {
        return write_head(to);
      } else {
        return write_entries(Chunk, to);
      }
    }
    static constexpr int length = write(nullptr);
    static constexpr plan_letters<length> value = [] {
      plan_letters<length> letters;
      write(&letters.text[0]);
      return letters;
    }();
  };
  template <int... Chunk> [[nodiscard]] static constexpr auto join(std::integer_sequence<int, Chunk...> /*chunks*/) {
    plan_letters<(piece<-1>::length + ... + piece<Chunk>::length)> all;
    int at = 0;
    const auto add = [&](const char* text, int length) {
      for (int n = 0; n < length; ++n) all.text[at + n] = text[n];
      at += length;
    };
    add(&piece<-1>::value.text[0], piece<-1>::length);
    (add(&piece<Chunk>::value.text[0], piece<Chunk>::length), ...);
    return all;
  }

 public:
  static constexpr auto letters = join(std::make_integer_sequence<int, chunks>{});
  static constexpr std::string_view text{&letters.text[0], sizeof(letters.text) - 1};
};

}  // namespace detail

/// Returns the plan of a program as text: what a device sends, needs and computes, and a line for each collective with
/// its kind and axes, how often it runs and the bytes that a device sends for it once, its predicted time in a run, the
/// layout of its result, its line of source with the calls of helper functions around it (`called_from`), and the
/// annotation that led to the layout. A field that a collective does not have is `-`. The text is a constant, the same
/// on every compiler and machine, and ends with a newline:
///
///     static_assert(ep::plan_text<step>() == R"(espalier plan 1
///     program mlp
///     ...)");
///     constexpr std::string_view kept =
///     #include "mlp.plan"
///     ;
///     static_assert(ep::plan_text<step>() == kept);
///
/// `write_plan` writes a file that can be included so; `check_plan` and the program espalier-plan say in words what
/// differs. Files are named without folders, except where two have the same name.
/// The program has the name `Name`, `plan_text<step, "train">()`, or that of its function's type; a lambda has none.
/// Times are those of a machine with these rates, `plan_text<step, "train", ep::plan_rates{.bytes_per_second =
/// 1'000'000'000}>()`: bytes and starts of collectives one after the other, and operations apart from them.
/// Where devices send different amounts, at most 31 of them are asked for the largest.
template <class Program, detail::fixed_string Name = "", plan_rates Rates = plan_rates{}>
[[nodiscard]] constexpr std::string_view plan_text() {
  static_assert(Rates.bytes_per_second > 0 && Rates.operations_per_second > 0 && Rates.start_nanoseconds >= 0,
                "plan_text: a rate is no positive number. Give bytes and operations per second of at least 1, and a "
                "start of at least 0 nanoseconds.");
  static_assert(detail::is_one_line(&Name.text[0]),
                "plan_text: the name of a program is one line. Write plan_text<step, \"train\">().");
  if constexpr (Program::is_sound) {  // otherwise its mistake has been reported
    return detail::plan_of_program<Program, Name, Rates>::text;
  } else {
    return {};
  }
}
/// The same of a program that `compile` returned: `plan_text<"train">(step)`.
template <detail::fixed_string Name = "", plan_rates Rates = plan_rates{}, class Program>
[[nodiscard]] constexpr std::string_view plan_text(const Program& /*program*/) {
  return plan_text<Program, Name, Rates>();
}

}  // namespace espalier
