// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/text.hpp>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier {

/// A graph that was read from text, with the mesh of its layouts. The texts that it points to (names of axes, labels,
/// files) live as long as one copy of it does.
struct parsed_graph {
  mesh_shape mesh;
  axis_parts parts;
  graph code;
  std::shared_ptr<std::deque<std::string>> texts = std::make_shared<std::deque<std::string>>();
  std::shared_ptr<std::deque<std::vector<int>>> orders = std::make_shared<std::deque<std::vector<int>>>();

  /// The mesh of which the parts of axes are the axes: what passes after completion see.
  [[nodiscard]] mesh_shape device_mesh() const { return cut_mesh(mesh, parts); }
};

/// The text of a graph that `parse_graph` cannot read: `line 3, column 8: read "eimsum", expected an operator's name`.
class graph_text_error : public std::runtime_error {
 public:
  graph_text_error(int line, int column, const std::string& read, const std::string& expected)
      : std::runtime_error(detail::joined({"line ", line, ", column ", column, ": read ",
                                           read.empty() ? std::string("the end of the line") : '"' + read + '"',
                                           ", expected ", expected})),
        line_(line),
        column_(column) {}
  [[nodiscard]] int line() const { return line_; }
  [[nodiscard]] int column() const { return column_; }

 private:
  int line_;
  int column_;
};

namespace detail {

/// Reads one line from left to right.
class line_reader {
 public:
  line_reader(std::string_view text, int line) : text_(text), line_(line) { skip_space(); }

  [[nodiscard]] bool at_end() const { return at_ >= text_.size(); }
  [[nodiscard]] bool sees(std::string_view token) const { return text_.substr(at_, token.size()) == token; }
  /// Whether a whole word is next, as `sum` is not in `summed`.
  [[nodiscard]] bool sees_word(std::string_view word) const {
    return sees(word) && (at_ + word.size() >= text_.size() || !is_word_character(text_[at_ + word.size()]));
  }
  /// Passes over a token if it is next.
  bool take(std::string_view token) {
    if (!sees(token)) return false;
    at_ += token.size();
    skip_space();
    return true;
  }
  bool take_word(std::string_view word) { return sees_word(word) && take(word); }
  void expect(std::string_view token) {
    if (!take(token)) fail(joined({"\"", std::string(token), "\""}));
  }
  /// Letters, digits, underscores and dots.
  [[nodiscard]] std::string_view word(const char* expected) {
    std::size_t end = at_;
    while (end < text_.size() && is_word_character(text_[end])) ++end;
    if (end == at_) fail(expected);
    return pass(end);
  }
  /// The name of an axis: anything but what follows one in a text.
  [[nodiscard]] std::string_view axis_name() {
    const std::size_t end = std::min(text_.find_first_of("*:?,]=<> \t", at_), text_.size());
    if (end == at_) fail("the name of an axis");
    return pass(end);
  }
  template <class Number = std::int64_t> [[nodiscard]] Number number() {
    Number value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc{}) fail("a whole number");
    pass(static_cast<std::size_t>(end - text_.data()));
    return value;
  }
  [[nodiscard]] bool sees_number() const {
    return !at_end() && ((text_[at_] >= '0' && text_[at_] <= '9') || text_[at_] == '-');
  }
  [[nodiscard]] double real() {
    if (take("nan(0x")) {
      std::uint64_t bits = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), bits, 16);
      if (error != std::errc{}) fail("the bits of a NaN in hexadecimal digits");
      pass(static_cast<std::size_t>(end - text_.data()));
      expect(")");
      return std::bit_cast<double>(bits);
    }
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc{}) fail("a number");
    pass(static_cast<std::size_t>(end - text_.data()));
    return value;
  }
  [[nodiscard]] std::string quoted_text() {
    std::string result;
    std::size_t end = at_ + 1;
    if (!sees("\"")) fail("a text in quotes");
    for (; end < text_.size() && text_[end] != '"'; ++end) {
      if (text_[end] == '\\' && end + 1 < text_.size()) ++end;
      result += text_[end];
    }
    if (end >= text_.size()) fail("a text that ends with a quote");
    pass(end + 1);
    return result;
  }

  [[nodiscard]] std::size_t position() const { return at_; }
  [[noreturn]] void fail(const std::string& expected) const { fail_at(at_, expected); }
  [[noreturn]] void fail_at(std::size_t position, const std::string& expected) const {
    std::size_t end = position;
    while (end < text_.size() && is_word_character(text_[end])) ++end;
    if (end == position && end < text_.size()) ++end;
    throw graph_text_error(line_, static_cast<int>(position) + 1, std::string(text_.substr(position, end - position)),
                           expected);
  }

 private:
  [[nodiscard]] static bool is_word_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  }
  std::string_view pass(std::size_t end) {
    const std::string_view token = text_.substr(at_, end - at_);
    at_ = end;
    skip_space();
    return token;
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
    if (sees("//")) at_ = text_.size();
  }

  std::string_view text_;
  int line_;
  std::size_t at_ = 0;
};

class graph_parser {
 public:
  graph_parser(std::span<const op_info* const> ops, std::span<const named_op> names) : ops_(ops), names_(names) {}

  [[nodiscard]] parsed_graph parse(std::string_view text) {
    int number = 0;
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      line_reader line(text.substr(0, end), ++number);
      text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
      if (line.at_end()) continue;
      if (line.take_word("mesh")) {
        mesh(line);
      } else if (line.take_word("window")) {
        window(line);
      } else {
        instruction_line(line);
      }
      if (!line.at_end()) line.fail("the end of the line");
    }
    if (!loops_.empty()) {
      line_reader rest("", number + 1);
      rest.fail(joined({"\"}\" and the region_end of %", loops_.back()}));
    }
    return std::move(result_);
  }

 private:
  // --- the head ------------------------------------------------------------------------------------------------------

  /// `data=2, model=2*4`: of the axis `model` two parts. `data=4 as ring [0, 1, 3, 2]`: layouts may name the axis in
  /// this order, too; without numbers it is counted backwards.
  void mesh(line_reader& line) {
    if (result_.mesh.rank > 0 || !result_.code.code.empty()) line.fail("the mesh once, before all instructions");
    do {
      mesh_shape& m = result_.mesh;
      axis_parts& p = result_.parts;
      if (m.rank == max_axes) line.fail(joined({"at most ", max_axes, " axes"}));
      m.name[m.rank] = keep(std::string(line.axis_name()));
      line.expect("=");
      m.size[m.rank] = 1;
      do {
        if (p.count == max_axes) line.fail(joined({"at most ", max_axes, " parts of axes"}));
        const int size = line.number<int>();
        if (size < 1) line.fail("a size of at least 1 before this");
        p.add(m.rank, m.size[m.rank], size);
        m.size[m.rank] *= size;
      } while (line.take("*"));
      if (line.take_word("as")) order(line);
      ++m.rank;
    } while (line.take(","));
  }

  /// `ring [0, 1, 3, 2]`, of the last axis.
  void order(line_reader& line) {
    mesh_shape& m = result_.mesh;
    if (m.rank >= most_ordered_axes) line.fail("no other order of the eighth axis");
    const char* const name = keep(std::string(line.axis_name()));
    const int size = m.size[m.rank];
    std::vector<int> places(static_cast<std::size_t>(size), -1);
    int place = 0;
    if (line.sees("[")) {
      each(line, "[", "]", [&] {
        const int device = line.number<int>();
        if (device < 0 || device >= size || places[static_cast<std::size_t>(device)] >= 0)
          line.fail("each device of the axis once");
        places[static_cast<std::size_t>(device)] = place++;
      });
      if (place != size) line.fail("as many devices as the axis has");
      result_.orders->push_back(std::move(places));
    }
    m.add_order(m.rank, name, place == 0 ? nullptr : result_.orders->back().data());
  }

  /// `#0 : dim=1 size=3 low=1 extent=16@x wraps`
  void window(line_reader& line) {
    line.expect("#");
    if (line.number<int>() != result_.code.windows.size()) line.fail("windows in the order of their numbers");
    line.expect(":");
    placed_window w{1, 1, 0, 1, 1, 0, 0, 0, false};
    while (!line.at_end()) {
      if (line.take_word("wraps")) {
        w.wraps = true;
        continue;
      }
      const std::size_t at = line.position();
      const std::string_view name = line.word("the name of a window's number");
      line.expect("=");
      const std::int64_t value = line.number();
      if (name == "dim") {
        w.dim = static_cast<int>(value);
      } else if (name == "size") {
        w.size = value;
      } else if (name == "stride") {
        w.stride = value;
      } else if (name == "low") {
        w.low = value;
      } else if (name == "dilation") {
        w.dilation = value;
      } else if (name == "base_dilation") {
        w.base_dilation = value;
      } else if (name == "extent") {
        w.extent = value;
        if (line.take("@")) w.axes = axes(line).code();
      } else {
        line.fail_at(at, "dim, size, stride, low, dilation, base_dilation, extent or wraps");
      }
    }
    result_.code.windows.push_back(w);
  }

  // --- instructions --------------------------------------------------------------------------------------------------

  void instruction_line(line_reader& line) {
    const bool closes = line.take("}");
    line.expect("%");
    const std::size_t name_at = line.position();
    const std::string name(line.word("the name of a value"));
    if (values_.count(name) > 0) line.fail_at(name_at, "a name that no value has");
    line.expect("=");
    instruction i;
    const std::size_t op_at = line.position();
    const std::string op_name(line.word("an operator's name"));
    i.op = find_op(op_name, false);
    if (i.op == nullptr) i.op = find_op(op_name, true);
    if (i.op == nullptr) line.fail_at(op_at, "an operator's name");
    if (closes != (structure_of(i) == structure::region_end))
      line.fail_at(op_at, closes ? "region_end" : "\"}\" before it");
    if (closes) {
      if (loops_.empty()) line.fail_at(op_at, "a region_begin before it");
      loops_.pop_back();
    }
    i.region = loops_.empty() ? -1 : loops_.back();
    if (line.take("<")) attributes(line, i);
    operands(line, i);
    line.expect(":");
    type(line, i);
    extras(line, i, op_name);
    const int id = result_.code.code.push_back(i);
    values_[name] = id;
    if (structure_of(i) == structure::region_begin) {
      line.expect("{");
      loops_.push_back(id);
    }
  }

  [[nodiscard]] const op_info* find_op(std::string_view name, bool travels) const {
    for (const named_op& one : names_) {
      if (name == one.name && one.op->facts.travels_along == travels) return one.op;
    }
    for (const op_info* const op : ops_) {
      if (name == op->name && op->facts.travels_along == travels) return op;
    }
    return nullptr;
  }

  [[nodiscard]] int value(line_reader& line) {
    line.expect("%");
    const std::size_t at = line.position();
    const auto found = values_.find(line.word("the name of a value"));
    if (found == values_.end()) line.fail_at(at, "a value of a line before this one");
    return found->second;
  }

  void operands(line_reader& line, instruction& i) {
    if (!line.sees("%")) return;
    do {
      const int operand = value(line);
      const int k = i.operand_count++;
      if (k < inline_operands) {
        i.operand[k] = operand;
      } else {
        if (i.further < 0) i.further = result_.code.further.size();
        result_.code.further.push_back(operand);
      }
    } while (line.take(","));
  }

  void attributes(line_reader& line, instruction& i) const {
    const std::vector<attribute_name> names = attribute_names(*i.op);
    if (line.take(">")) return;
    do { attribute(line, i, names); } while (line.take(","));
    line.expect(">");
  }
  void attribute(line_reader& line, instruction& i, const std::vector<attribute_name>& names) const {
    if (line.sees("\"")) {
      for (const attribute_name& one : names) {
        if (one.form == attribute_form::einsum) return einsum_terms(line, &i.attribute[one.first]);
      }
      line.fail(expected_attribute(names));
    }
    const std::size_t at = line.position();
    const std::string_view name = line.word("the name of an attribute");
    for (const attribute_name& one : names) {
      if (one.name != name || one.form == attribute_form::einsum) continue;
      if (one.form == attribute_form::scalar) {
        line.expect("=");
        i.scalar = line.real();
      } else {
        i.attribute[one.first] = attribute_value(line, one);
      }
      return;
    }
    for (int n = 0; n < max_attributes; ++n) {
      if (name != joined({"attribute", n})) continue;
      line.expect("=");
      i.attribute[n] = line.number();
      return;
    }
    if (name != "scalar") line.fail_at(at, expected_attribute(names));
    line.expect("=");
    i.scalar = line.real();
  }
  [[nodiscard]] static std::string expected_attribute(const std::vector<attribute_name>& names) {
    if (names.empty()) return "no attribute, since the operator has none";
    std::string text = "an attribute of the operator: ";
    for (std::size_t n = 0; n < names.size(); ++n) append_text(text, {n > 0 ? ", " : "", std::string(names[n].name)});
    return text;
  }

  [[nodiscard]] std::int64_t attribute_value(line_reader& line, const attribute_name& one) const {
    using enum attribute_form;
    if (one.form == flag && !line.sees("=")) return 1;
    line.expect("=");
    if (one.form == windows && line.take("#")) return line.number();
    if (one.form != axes && line.sees_number()) return line.number();
    switch (one.form) {
      case set: {
        std::int64_t bits = 0;
        each(line, "{", "}", [&] { bits |= std::int64_t{1} << (line.number<int>() & 63); });
        return bits;
      }
      case dims: {
        axis_list list;
        each(line, "[", "]", [&] { list = list.with(line.number<int>()); });
        return static_cast<std::int64_t>(list.code());
      }
      case axes: return static_cast<std::int64_t>(this->axes(line).mask());
      case type: return static_cast<std::int64_t>(element_type(line));
      case optional_type: return static_cast<std::int64_t>(element_type(line)) + 1;
      case enumerator: {
        const std::size_t at = line.position();
        const std::string_view word = line.word("an enumerator");
        for (std::int64_t n = 0; n == 0 || !enumerator_at(one.enumerators, n).empty(); ++n) {
          if (enumerator_at(one.enumerators, n) == word) return n;
        }
        line.fail_at(at, "one of " + std::string(one.enumerators));
      }
      default: line.fail("a whole number");
    }
  }
  static void einsum_terms(line_reader& line, std::int64_t* terms) {
    const std::size_t at = line.position();
    int term = 0;
    unsigned shift = 0;
    const std::string text = line.quoted_text();
    for (std::size_t k = 0; k < text.size(); ++k) {
      if (text[k] == ',' && term == 0) {
        term = 1;
        shift = 0;
      } else if (text[k] == '-' && term == 1 && k + 1 < text.size() && text[k + 1] == '>') {
        ++k;
        term = 2;
        shift = 0;
      } else {
        if (shift == 64) line.fail_at(at, "at most eight letters in each term");
        terms[term] =
            static_cast<std::int64_t>(static_cast<std::uint64_t>(terms[term]) |
                                      static_cast<std::uint64_t>(static_cast<unsigned char>(text[k])) << shift);
        shift += 8;
      }
    }
    if (term != 2) line.fail_at(at, "two operands and a result, as in \"ab,bc->ac\"");
  }
  /// Calls `f` for each entry of a list.
  template <class F> static void each(line_reader& line, const char* open, const char* close, const F& f) {
    line.expect(open);
    if (line.take(close)) return;
    do { f(); } while (line.take(","));
    line.expect(close);
  }

  // --- types and layouts ---------------------------------------------------------------------------------------------

  [[nodiscard]] static dtype element_type(line_reader& line) {
    const std::size_t at = line.position();
    const std::string_view name = line.word("an element type");
    for (int t = 0; t < dtype_count; ++t) {
      if (name == espalier::name_of(static_cast<dtype>(t))) return static_cast<dtype>(t);
    }
    line.fail_at(at, "an element type, such as f32");
  }

  /// `data*model:(1)2`: the parts of the axes, major to minor.
  [[nodiscard]] axis_list axes(line_reader& line) const {
    axis_list list;
    do {
      const std::size_t at = line.position();
      const std::string_view name = line.axis_name();
      int majors = 0;
      int size = 0;
      if (line.take(":(")) {
        majors = line.number<int>();
        line.expect(")");
        size = line.number<int>();
      }
      bool is_known = false;
      for (int n = 0; n < 2 * result_.parts.count; ++n) {
        const int p = n < result_.parts.count ? n : n - result_.parts.count + max_axes;
        const char* const its_name = result_.mesh.name[result_.parts.axis[p]];
        const bool is_meant = its_name != nullptr && name == its_name &&
                              (majors == 0 || (majors == result_.parts.majors[p] && size == result_.parts.size[p]));
        if (!is_meant) continue;
        if (list.contains(p)) line.fail_at(at, "each axis once");
        list = list.with(p);
        is_known = true;
      }
      if (!is_known) line.fail_at(at, "an axis of the mesh" + known_axes());
    } while (line.take("*"));
    return list;
  }
  [[nodiscard]] std::string known_axes() const {
    std::string text = " (";
    for (int a = 0; a < result_.mesh.rank; ++a) append_text(text, {a > 0 ? ", " : "", result_.mesh.name[a]});
    return result_.mesh.rank == 0 ? ", of which the text names none" : text + ")";
  }

  /// `f32[64@data, 1024@model?] sum@model local [32, 256]`
  void type(line_reader& line, instruction& i) {
    i.type = element_type(line);
    layout placed;
    placed.placement = sharding::whole(0);
    sharding& s = placed.placement;
    bool is_placed = false;
    each(line, "[", "]", [&] {
      if (placed.shape.rank == max_rank) line.fail(joined({"at most ", max_rank, " dimensions"}));
      const int d = placed.shape.rank;
      placed.shape.append(line.number());
      if (!line.take("@")) return;
      is_placed = true;
      if (!line.sees("?")) s.dim[d] = axes(line);
      if (line.take("?")) s.open |= 1U << static_cast<unsigned>(d);
    });
    s.rank = placed.shape.rank;
    if (line.take("replicated@")) {
      is_placed = true;
      s.replicated = axes(line).mask();
    }
    if (line.take("sum@")) {
      is_placed = true;
      s.unreduced = axes(line).mask();
    }
    is_placed = line.take_word("whole") || is_placed;
    i.shape = placed.shape;
    if (is_placed) {
      write_each(&s.dim[0], max_rank);
      i.annotation = result_.code.annotations.push_back(placed);
    }
    if (line.take_word("local")) {
      i.shape = {};
      each(line, "[", "]", [&] {
        if (i.shape.rank == max_rank) line.fail(joined({"at most ", max_rank, " dimensions"}));
        i.shape.append(line.number());
      });
    }
  }

  void extras(line_reader& line, instruction& i, std::string_view op_name) {
    while (!line.at_end() && !line.sees("{")) {
      const std::size_t at = line.position();
      const std::string_view word = line.word("an instruction's end");
      if (word == "travels_along") {
        i.op = find_op(op_name, true);
        if (i.op == nullptr) line.fail_at(at, "this after a collective only");
      } else if (word == "fixed") {
        if (i.annotation < 0) line.fail_at(at, "this after a layout only");
        result_.code.annotations[i.annotation].is_fixed = true;
      } else if (word == "priority") {
        if (i.annotation < 0) line.fail_at(at, "this after a layout only");
        result_.code.annotations[i.annotation].priority = line.number<std::uint8_t>();
      } else if (word == "region") {
        i.region = line.take_word("none") ? -1 : value(line);
      } else if (word == "origin") {
        i.origin = line.number<int>();
      } else if (word == "label") {
        i.label = keep(line.quoted_text());
      } else if (word == "at") {
        i.where.file = keep(line.quoted_text());
        line.expect(":");
        i.where.line = line.number<int>();
      } else {
        line.fail_at(at, "travels_along, region, origin, label, at, or the end of the line");
      }
    }
  }

  [[nodiscard]] const char* keep(std::string text) {
    for (const std::string& one : *result_.texts) {
      if (one == text) return one.c_str();
    }
    return result_.texts->emplace_back(std::move(text)).c_str();
  }

  std::span<const op_info* const> ops_;
  std::span<const named_op> names_;
  parsed_graph result_;
  std::map<std::string, int, std::less<>> values_;
  std::vector<int> loops_;
};

}  // namespace detail

/// Reads what `to_text` writes. Names of values may be any words (`%x`), lines may be empty, and `//` starts a comment.
/// `ops` are the operators that a text may name (`all_ops` of partition/ops_by_name.hpp), `names` those with a name of
/// their own. Throws `graph_text_error`, which says line, column, what was read and what is expected there.
[[nodiscard]] inline parsed_graph parse_graph(std::string_view text, std::span<const op_info* const> ops,
                                              std::span<const named_op> names = {}) {
  return detail::graph_parser(ops, names).parse(text);
}

}  // namespace espalier
