// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How plans are read and compared: the compiled half of plan_file.hpp.
#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/read_file.hpp>
#include <espalier/base/table.hpp>
#include <espalier/tensor/core/program/plan_version.hpp>
#include <espalier/tensor/run/report/plan_file.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

namespace detail {

/// Reads a plan line by line.
class plan_reader {
 public:
  plan_reader(std::string_view text, const std::string& file) : rest_(text) { plan_.file = file; }

  [[nodiscard]] plan_document read() {
    read_head();
    while (next_line()) {
      if (!line_.empty()) read_entry();
    }
    return plan_;
  }

 private:
  [[noreturn]] void fail(std::initializer_list<text_piece> words) const {
    std::string text = plan_.file;
    append_text(text, words);
    throw plan_error(text);
  }
  [[noreturn]] void fail_here(const char* expected) const {
    fail({", line ", number_, ": \"", shown(line_), "\" stands where a plan has ", expected});
  }
  /// Binary files have long lines.
  [[nodiscard]] static std::string shown(std::string_view line) {
    std::string text;
    for (const char c : line.substr(0, 60)) text += c >= ' ' && c <= '~' ? c : '?';
    return line.size() > 60 ? text + "..." : text;
  }

  [[nodiscard]] bool next_line() {
    if (rest_.empty()) return false;
    const std::size_t end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view{} : rest_.substr(end + 1);
    if (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
    ++number_;
    // The end of a raw string.
    if (is_raw_ && line_ == ")\"") line_ = {};
    return true;
  }
  void need_line(const char* expected) {
    if (!next_line()) fail({" is a part of a plan: it ends after line ", number_, ", before ", expected});
  }
  [[nodiscard]] static bool skip(std::string_view& text, std::string_view words) {
    if (text.substr(0, words.size()) != words) return false;
    text.remove_prefix(words.size());
    return true;
  }
  /// "1,234"
  [[nodiscard]] static bool read_count(std::string_view& text, std::int64_t& value) {
    std::size_t n = 0;
    value = 0;
    for (; n < text.size() && ((text[n] >= '0' && text[n] <= '9') || (n > 0 && text[n] == ',')); ++n) {
      if (text[n] == ',') continue;
      const int digit = text[n] - '0';
      if (value > (std::numeric_limits<std::int64_t>::max() - digit) / 10) return false;
      value = value * 10 + digit;
    }
    text.remove_prefix(n);
    return n > 0;
  }
  [[nodiscard]] static std::string before(std::string_view& text, std::string_view end) {
    const std::size_t at = text.find(end);
    std::string result(text.substr(0, at));
    text = at == std::string_view::npos ? std::string_view{} : text.substr(at + end.size());
    return result;
  }

  void read_head() {
    if (rest_.empty()) fail({" is no plan: it is empty"});
    static_cast<void>(next_line());
    is_raw_ = skip(line_, "R\"(");
    std::string_view text = line_;
    std::int64_t version = 0;
    if (!skip(text, "espalier plan ") || !read_count(text, version) || !text.empty())
      fail({" is no plan: its first line is \"", shown(line_), "\", and that of a plan is \"espalier plan ",
            plan_version, "\""});
    if (version != plan_version) {
      fail({" is a plan of version ", version, ", and this program reads version ", plan_version,
            ": write it again with this release, or compare it with the espalier-plan of the release that wrote it"});
    }
    need_line("\"program ...\"");
    text = line_;
    if (!skip(text, "program ")) fail_here("\"program ...\"");
    plan_.program = text;
    need_line("\"mesh ...\"");
    text = line_;
    if (!skip(text, "mesh ")) fail_here("\"mesh ...\"");
    plan_.mesh = text;
    need_line("\"annotated ...\"");
    text = line_;
    if (!(skip(text, "annotated ") && read_count(text, plan_.annotated) && skip(text, " of ") &&
          read_count(text, plan_.values) && text == " values"))
      fail_here("\"annotated N of N values\"");
    need_line("\"memory ...\"");
    text = line_;
    if (!(skip(text, "memory ") && read_count(text, plan_.peak) && skip(text, " B: ") &&
          read_count(text, plan_.arguments) && skip(text, " arguments, ") && read_count(text, plan_.results) &&
          skip(text, " results, ") && read_count(text, plan_.between) && text == " between"))
      fail_here("\"memory N B: N arguments, N results, N between\"");
    need_line("\"sends ...\"");
    text = line_;
    if (!(skip(text, "sends ") && read_count(text, plan_.sent) && skip(text, " B in ") &&
          read_count(text, plan_.collectives) && skip(text, " collective")))
      fail_here("\"sends N B in N collectives\"");
    need_line("\"time ...\"");
    text = line_;
    if (!skip(text, "time ")) fail_here("\"time ...\"");
    plan_.sending = before(text, " sending, ");
    plan_.computing = before(text, " computing, at ");
    plan_.machine = text;
    if (plan_.machine.empty()) fail_here("\"time T us sending, T us computing, at N B/s, ...\"");
  }

  void read_entry() {
    constexpr const char* expected = "\"kind over axes | times x bytes | time | layout | line | annotation\"";
    std::string_view text = line_;
    std::string_view fields[6];
    for (int n = 0; n < 6; ++n) {
      const std::size_t end = text.find(" | ");
      if ((end == std::string_view::npos) != (n == 5)) fail_here(expected);
      fields[n] = text.substr(0, end);
      if (n < 5) text.remove_prefix(end + 3);
      if (fields[n] == "-") fields[n] = {};
    }
    plan_entry one;
    std::string_view head = fields[0];
    if (skip(head, "with the ")) {
      if (plan_.entries.empty()) fail_here("a collective before one that travels with it");
      one.travels = true;
      one.kind = plan_.entries.back().kind;
      one.axes = plan_.entries.back().axes;
    } else {
      one.kind = before(head, " over ");
      one.axes = head;
      if (one.kind.empty() || one.axes.empty()) fail_here(expected);
    }
    std::string_view amount = fields[1];
    if (!read_count(amount, one.times) || !skip(amount, " x ")) fail_here(expected);
    if (one.travels ? amount != "-" : !read_count(amount, one.bytes) || amount != " B") fail_here(expected);
    one.layout = fields[3];
    one.line = fields[4];
    one.cause = fields[5];
    plan_.entries.push_back(one);
  }

  std::string_view rest_;
  std::string_view line_;
  int number_ = 0;
  bool is_raw_ = false;
  plan_document plan_;
};

/// A text without the numbers of lines: `block.hpp, called from model.hpp`.
[[nodiscard]] inline std::string without_lines(const std::string& text) {
  std::string result;
  for (std::size_t n = 0; n < text.size(); ++n) {
    const auto is_digit = [&](std::size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
    if (text[n] != ':' || !is_digit(n + 1)) {
      result += text[n];
      continue;
    }
    while (is_digit(n + 1)) ++n;
  }
  return result;
}

class plan_comparison {
 public:
  plan_comparison(const plan_document& before, const plan_document& after)
      : before_(before), after_(after), match_(before.entries.size(), none), is_matched_(after.entries.size(), false) {}

  [[nodiscard]] plan_differences run() {
    if (before_.program != after_.program) {
      throw plan_error(joined({after_.file, " is the plan of \"", after_.program, "\", and ", before_.file,
                               " that of \"", before_.program, "\": plans of one program are compared"}));
    }
    if (before_.mesh != after_.mesh) say({"the mesh is ", after_.mesh, " instead of ", before_.mesh});
    match();
    compare_entries();
    compare_sums();
    return found_;
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  void say(std::initializer_list<text_piece> words) { found_.changes.push_back(joined(words)); }
  [[nodiscard]] static std::string count(std::int64_t value) { return espalier::report::format_count(value); }

  /// Finds each collective again, the surest matches first.
  void match() {
    match_if([](const plan_entry& a, const plan_entry& b) {
      return is_alike(a, b) && a.line == b.line && a.cause == b.cause;
    });
    match_if([](const plan_entry& a, const plan_entry& b) {
      return is_alike(a, b) && without_lines(a.line) == without_lines(b.line) &&
             without_lines(a.cause) == without_lines(b.cause);
    });
    match_if(
        [](const plan_entry& a, const plan_entry& b) { return is_kind(a, b) && a.line == b.line && !a.line.empty(); });
    match_if([](const plan_entry& a, const plan_entry& b) {
      return is_kind(a, b) && a.layout == b.layout && without_lines(a.line) == without_lines(b.line);
    });
    match_in_order();
    match_if([](const plan_entry& a, const plan_entry& b) {
      return a.kind == b.kind && a.axes == b.axes && a.layout == b.layout;
    });
    match_if([](const plan_entry& a, const plan_entry& b) {
      return a.line == b.line && !a.line.empty() && !a.travels && !b.travels;
    });
  }
  template <class Same> void match_if(const Same& same) {
    std::size_t first = 0;
    for (std::size_t n = 0; n < match_.size(); ++n) {
      if (match_[n] != none) continue;
      while (first < is_matched_.size() && is_matched_[first]) ++first;
      for (std::size_t m = first; m < is_matched_.size(); ++m) {
        if (is_matched_[m] || !same(before_.entries[n], after_.entries[m])) continue;
        match_[n] = m;
        is_matched_[m] = true;
        break;
      }
    }
  }
  /// Those of one kind in one file, in order, if there are as many as before: all lines and layouts may have changed.
  void match_in_order() {
    for (std::size_t n = 0; n < match_.size(); ++n) {
      if (match_[n] != none) continue;
      const plan_entry& one = before_.entries[n];
      const auto same = [&](const plan_entry& other) {
        return is_kind(one, other) && without_lines(one.line) == without_lines(other.line);
      };
      std::vector<std::size_t> old;
      std::vector<std::size_t> now;
      for (std::size_t k = n; k < match_.size(); ++k) {
        if (match_[k] == none && same(before_.entries[k])) old.push_back(k);
      }
      for (std::size_t k = 0; k < is_matched_.size(); ++k) {
        if (!is_matched_[k] && same(after_.entries[k])) now.push_back(k);
      }
      if (old.size() != now.size()) continue;
      for (std::size_t k = 0; k < old.size(); ++k) {
        match_[old[k]] = now[k];
        is_matched_[now[k]] = true;
      }
    }
  }
  [[nodiscard]] static bool is_kind(const plan_entry& a, const plan_entry& b) {
    return a.kind == b.kind && a.axes == b.axes && a.travels == b.travels;
  }
  [[nodiscard]] static bool is_alike(const plan_entry& a, const plan_entry& b) {
    return is_kind(a, b) && a.times == b.times && a.bytes == b.bytes && a.layout == b.layout;
  }

  /// `all-gather over x`
  [[nodiscard]] static std::string kind_text(const plan_entry& one) {
    std::string kind = one.kind;
    for (char& c : kind) c = c == '_' ? '-' : c;
    return joined({kind, " over ", one.axes});
  }
  /// `all-gather over x at main.cpp:41`, with its layout where the plan has another one there.
  [[nodiscard]] static std::string name_of(const plan_document& plan, const plan_entry& one) {
    int alike = 0;
    for (const plan_entry& other : plan.entries) alike += is_kind(one, other) && one.line == other.line ? 1 : 0;
    const bool needs_layout = one.line.empty() || alike > 1;
    std::string text = one.travels ? joined({one.layout, " in the ", kind_text(one)}) : kind_text(one);
    if (!one.travels && needs_layout) append_text(text, {" of ", one.layout});
    if (!one.line.empty()) append_text(text, {" at ", one.line});
    return text;
  }
  /// `, 12 times 4,096 B`
  [[nodiscard]] static std::string amount_text(const plan_entry& one) {
    if (one.travels) return "";
    return one.times == 1 ? joined({", ", count(one.bytes), " B"})
                          : joined({", ", count(one.times), " times ", count(one.bytes), " B"});
  }
  [[nodiscard]] static const char* changed(std::int64_t before, std::int64_t after) {
    return after > before ? " grew from " : " shrank from ";
  }
  [[nodiscard]] static const char* article(const plan_entry& one) {
    return !one.travels && (one.kind[0] == 'a' || one.kind[0] == 'e') ? "an " : "a ";
  }

  void compare_entries() {
    for (std::size_t n = 0; n < match_.size(); ++n) {
      const plan_entry& a = before_.entries[n];
      if (match_[n] == none) {
        say({"the ", name_of(before_, a), amount_text(a), a.travels ? " is gone" : ", is gone"});
      } else {
        compare(a, after_.entries[match_[n]]);
      }
    }
    for (std::size_t m = 0; m < is_matched_.size(); ++m) {
      const plan_entry& b = after_.entries[m];
      if (!is_matched_[m]) say({"a new ", name_of(after_, b), amount_text(b)});
    }
  }
  void compare(const plan_entry& a, const plan_entry& b) {
    const std::string name = name_of(after_, b);
    if (a.kind != b.kind || a.axes != b.axes) {
      return say({"the ", name_of(before_, a), amount_text(a), ", became ", article(b), kind_text(b), amount_text(b)});
    }
    if (a.travels != b.travels) {
      return b.travels ? say({"the ", name_of(before_, a), " travels in the messages of another one"})
                       : say({"the ", name, amount_text(b), ", has messages of its own"});
    }
    bool same = true;
    std::string layout;
    if (a.layout != b.layout) layout = joined({"; its result is ", b.layout, " instead of ", a.layout});
    if (a.bytes != b.bytes) {
      same = false;
      say({"the ", name, changed(a.bytes, b.bytes), count(a.bytes), " to ", count(b.bytes), " B", layout});
    } else if (!layout.empty()) {
      same = false;
      say({"the result of the ", name, " is ", b.layout, " instead of ", a.layout});
    }
    if (a.times != b.times) {
      same = false;
      say({"the ", name, " runs ", times_text(b.times), " instead of ", times_text(a.times)});
    }
    if (without_lines(a.cause) != without_lines(b.cause)) {
      same = false;
      say({"the ", name, b.cause.empty() ? " follows from no annotation" : " is because of ", b.cause, " instead of ",
           a.cause.empty() ? std::string("no annotation") : a.cause});
    }
    if (same && (a.line != b.line || a.cause != b.cause)) ++found_.moved;
  }
  [[nodiscard]] static std::string times_text(std::int64_t times) {
    return times == 1 ? std::string("once") : joined({count(times), " times"});
  }

  void compare_sums() {
    const plan_document& a = before_;
    const plan_document& b = after_;
    if (a.sent != b.sent) { say({"a device sends ", count(b.sent), " B in all instead of ", count(a.sent)}); }
    if (a.collectives != b.collectives) {
      say({"a device takes part in ", count(b.collectives), b.collectives == 1 ? " collective" : " collectives",
           " instead of ", count(a.collectives)});
    }
    std::string parts;
    const auto compare_part = [&](const char* name, std::int64_t before, std::int64_t after) {
      if (before == after) return;
      append_text(parts, {parts.empty() ? "" : ", ", name, " from ", count(before), " to ", count(after)});
    };
    compare_part("arguments", a.arguments, b.arguments);
    compare_part("results", a.results, b.results);
    compare_part("values between", a.between, b.between);
    if (a.peak != b.peak) {
      say({"peak memory", changed(a.peak, b.peak), count(a.peak), " to ", count(b.peak), " B: ", parts});
    } else if (!parts.empty()) {
      say({"peak memory is the same, ", count(b.peak), " B, in other parts: ", parts});
    }
    if (a.machine != b.machine) {
      say({"times are predicted for another machine: ", b.machine, " instead of ", a.machine});
    } else if (a.computing != b.computing) {
      say({"computing is predicted to take ", b.computing, " instead of ", a.computing});
    }
    if (a.annotated != b.annotated || a.values != b.values) {
      say({count(b.annotated), " of ", count(b.values), " values are annotated instead of ", count(a.annotated), " of ",
           count(a.values)});
    }
  }

  const plan_document& before_;
  const plan_document& after_;
  /// For each collective before, the one after that it became.
  std::vector<std::size_t> match_;
  std::vector<bool> is_matched_;
  plan_differences found_;
};

}  // namespace detail

ESPALIER_INLINE plan_document parse_plan(std::string_view text, const std::string& file) {
  return detail::plan_reader(text, file).read();
}

ESPALIER_INLINE plan_document read_plan(const std::string& file) {
  const detail::file_text whole = detail::read_file(file);
  if (!whole.failure.empty()) throw plan_error(detail::joined({file, " cannot be read: ", whole.failure}));
  return parse_plan(whole.text, file);
}

ESPALIER_INLINE plan_differences compare_plans(const plan_document& before, const plan_document& after) {
  return detail::plan_comparison(before, after).run();
}

ESPALIER_INLINE void detail::write_plan_file(const std::string& file, std::string_view text) {
  std::string content = "R\"(";
  content.append(text.data(), text.size());
  content += ")\"\n";
  struct closer {
    void operator()(std::FILE* opened) const { std::fclose(opened); }
  };
  errno = 0;
  const std::unique_ptr<std::FILE, closer> out(std::fopen(file.c_str(), "wb"));
  const bool is_written = out != nullptr &&
                          std::fwrite(content.data(), 1, content.size(), out.get()) == content.size() &&
                          std::fflush(out.get()) == 0;
  if (!is_written) throw plan_error(joined({file, " cannot be written: ", std::strerror(errno)}));
}

ESPALIER_INLINE void detail::check_plan_file(const std::string& file, std::string_view text) {
  const plan_document kept = read_plan(file);
  const plan_document now = parse_plan(text, "the plan of the program");
  if (kept.program != now.program) {
    throw plan_error(joined({file, " is the plan of \"", kept.program, "\", not of \"", now.program,
                             "\": give the file that write_plan wrote for this program"}));
  }
  const plan_differences found = compare_plans(kept, now);
  if (found.changes.empty()) return;
  std::string words = joined({"the plan of \"", now.program, "\" is not the one in ", file, ":\n"});
  for (const std::string& change : found.changes) append_text(words, {"  ", change, "\n"});
  append_text(words, {"If that is meant, write the file again: ep::write_plan<...>(\"", file, "\")."});
  throw plan_changed(words);
}

}  // namespace espalier
