// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/joined.hpp>
#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/graph/op.hpp>
#include <espalier/tensor/core/sharding/print.hpp>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// A graph as text, one instruction on a line. docs/graph_text.md describes the form; graph/parse_text.hpp reads it.
//
//     mesh data=2, model=4
//     %0 = argument<number=0> : f32[64@data, 256]
//     %1 = argument<number=1> : f32[256, 1024@model]
//     %2 = einsum<"bm,mh->bh"> %0, %1 : f32[64@data, 1024@model]
//     %3 = result<number=0> %2 : f32[64@data, 1024@model]

namespace espalier {

/// The name under which a text shows an operator that is one of many with the same name, such as a user's table.
struct named_op {
  const char* name = "";
  const op_info* op = nullptr;
};

struct graph_text_options {
  /// Whether each line ends with the line of the user's source: `at "mlp.cpp":31`.
  bool lines = false;
  std::span<const named_op> names{};
};

namespace detail {

/// The way in which an attribute is written as text. `op_facts::attributes` names it after the colon; the standard is a
/// number.
enum class attribute_form : std::uint8_t {
  number,
  /// "reverse:flag": the name alone where it is true.
  flag,
  /// "dims:set": the bits that are set, `dims={0, 2}`.
  set,
  /// "order:dims": an `axis_list` of dimensions, `order=[1, 0]`.
  dims,
  /// "axes:axes": an `axis_mask`, `axes=data*model`.
  axes,
  /// "from:type": an element type, `from=f32`.
  type,
  /// "sums_travel_as:optional_type": one more than an element type, or 0, which is not written.
  optional_type,
  /// "kind:sum|prod": an enumeration of these enumerators.
  enumerator,
  /// "windows:windows": the number of the first window in the graph's table, `windows=#0`.
  windows,
  /// "window_count:count": a number that is not written where it is 0.
  count,
  /// "subscripts:einsum": three terms, `"ab,bc->ac"`.
  einsum,
  /// "value:scalar": `instruction::scalar`; this takes none of the attributes.
  scalar,
  /// "dim:dimension": the number of a dimension of the result and, where it has as many, of operand 0.
  dimension,
};

struct attribute_name {
  std::string_view name;
  attribute_form form = attribute_form::number;
  std::string_view enumerators{};
  /// The position in `instruction::attribute`.
  int first = 0;

  /// Returns the number of attributes that it takes.
  [[nodiscard]] int size() const { return form == attribute_form::einsum ? 3 : form == attribute_form::scalar ? 0 : 1; }
};

/// Reads `op_facts::attributes`.
[[nodiscard]] inline std::vector<attribute_name> attribute_names(const op_info& op) {
  static constexpr std::string_view forms[]{"", "flag",    "set",   "dims",   "axes",   "type",     "optional_type",
                                            "", "windows", "count", "einsum", "scalar", "dimension"};
  std::vector<attribute_name> names;
  int first = 0;
  std::string_view rest = op.facts.attributes;
  while (!rest.empty()) {
    const std::size_t end = rest.find(' ');
    std::string_view word = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    attribute_name one;
    one.first = first;
    const std::size_t colon = word.find(':');
    one.name = word.substr(0, colon);
    if (colon != std::string_view::npos) {
      const std::string_view form = word.substr(colon + 1);
      one.form = attribute_form::enumerator;
      one.enumerators = form;
      for (std::size_t f = 1; f < std::size(forms); ++f) {
        if (form == forms[f]) one.form = static_cast<attribute_form>(f);
      }
    }
    first += one.size();
    names.push_back(one);
  }
  return names;
}

/// Enumerator number `at` of "sum|prod|max", or nothing.
[[nodiscard]] inline std::string_view enumerator_at(std::string_view all, std::int64_t at) {
  for (; at > 0 && !all.empty(); --at) {
    const std::size_t bar = all.find('|');
    all = bar == std::string_view::npos ? std::string_view{} : all.substr(bar + 1);
  }
  return at < 0 ? std::string_view{} : all.substr(0, all.find('|'));
}

/// The shortest decimal number that is read back as the same double; `nan(0x7ff8000000000000)` for no number.
[[nodiscard]] inline std::string number_text(double x) {
  if (std::isnan(x)) {
    char digits[17];
    const auto end = std::to_chars(&digits[0], &digits[16], std::bit_cast<std::uint64_t>(x), 16).ptr;
    return "nan(0x" + std::string(&digits[0], end) + ")";
  }
  char digits[32];
  return {&digits[0], std::to_chars(&digits[0], &digits[32], x).ptr};
}

[[nodiscard]] inline std::string quoted(const char* text) {
  std::string result = "\"";
  for (; *text != '\0'; ++text) {
    if (*text == '"' || *text == '\\') result += '\\';
    result += *text;
  }
  return result + '"';
}

/// `separator` between what `write(n)` returns for n below `count`.
template <class Write> [[nodiscard]] std::string listed(int count, const Write& write) {
  std::string text;
  for (int n = 0; n < count; ++n) text += (n > 0 ? ", " : "") + write(n);
  return text;
}

class graph_writer {
 public:
  graph_writer(const mesh_shape& mesh, const axis_parts& parts, graph_view g, const graph_text_options& options)
      : mesh_(mesh), parts_(parts), g_(g), options_(options) {}

  [[nodiscard]] std::string all() const {
    std::string text = head();
    std::vector<int> loops;
    for (int id = 0; id < g_.size; ++id) {
      const structure part = structure_of(g_[id]);
      if (part == structure::region_end && !loops.empty()) loops.pop_back();
      text += std::string(2 * loops.size(), ' ');
      text += instruction_text(id, loops.empty() ? -1 : loops.back()) + '\n';
      if (part == structure::region_begin) loops.push_back(id);
    }
    return text;
  }

  /// @param region the region that the instruction's place in the list implies
  [[nodiscard]] std::string instruction_text(int id, int region) const {
    const instruction& i = g_[id];
    std::string text = structure_of(i) == structure::region_end ? "} " : "";
    append_text(text, {"%", id, " = ", name_of_op(*i.op)});
    text += attributes_text(i);
    text += i.operand_count > 0 ? " " : "";
    text += listed(i.operand_count, [&](int k) { return joined({"%", g_.operand_at(i, k)}); });
    append_text(text, {" : ", type_text(i)});
    if (i.op->facts.travels_along) text += " travels_along";
    if (i.annotation >= 0 && g_.annotations[i.annotation].is_fixed) text += " fixed";
    if (i.annotation >= 0 && g_.annotations[i.annotation].priority > 0)
      append_text(text, {" priority ", static_cast<int>(g_.annotations[i.annotation].priority)});
    if (i.region != region) text += i.region < 0 ? std::string(" region none") : joined({" region %", i.region});
    if (i.origin >= 0) append_text(text, {" origin ", i.origin});
    if (i.label != nullptr) text += " label " + quoted(i.label);
    if (options_.lines && i.where.line != 0) text += joined({" at ", quoted(i.where.file), ":", i.where.line});
    return structure_of(i) == structure::region_begin ? text + " {" : text;
  }

 private:
  [[nodiscard]] std::string head() const {
    std::string text;
    for (int a = 0, p = 0; a < mesh_.rank; ++a) {
      append_text(text, {a == 0 ? "mesh " : ", ", mesh_.name[a], "="});
      for (const int first = p; p < parts_.count && parts_.axis[p] == a; ++p)
        append_text(text, {p == first ? "" : "*", parts_.size[p]});
      if (has_axis(mesh_.ordered, a)) append_text(text, {" as ", mesh_.name[a + max_axes], order_text(a)});
    }
    if (!text.empty()) text += '\n';
    for (int n = 0; n < g_.window_count; ++n)
      append_text(text, {"window #", n, " : ", window_text(g_.windows[n]), "\n"});
    return text;
  }
  /// The devices of an axis in its other order; nothing if they are counted backwards.
  [[nodiscard]] std::string order_text(int axis) const {
    if (mesh_.order[axis] == nullptr) return "";
    std::vector<int> devices(static_cast<std::size_t>(mesh_.size[axis]));
    for (int at = 0; at < mesh_.size[axis]; ++at) devices[static_cast<std::size_t>(mesh_.order[axis][at])] = at;
    return " [" + numbers_text(devices) + ']';
  }
  [[nodiscard]] std::string window_text(const placed_window& w) const {
    std::string text = joined({"dim=", w.dim, " size=", w.size});
    if (w.stride != 1) append_text(text, {" stride=", w.stride});
    if (w.low != 0) append_text(text, {" low=", w.low});
    if (w.dilation != 1) append_text(text, {" dilation=", w.dilation});
    if (w.base_dilation != 1) append_text(text, {" base_dilation=", w.base_dilation});
    append_text(text, {" extent=", w.extent});
    if (w.axes != 0) append_text(text, {"@", axes_text(axis_list::from_code(w.axes))});
    return w.wraps ? text + " wraps" : text;
  }
  [[nodiscard]] std::string axes_text(axis_list axes) const { return names_of(mesh_, parts_, axes); }

  [[nodiscard]] const char* name_of_op(const op_info& op) const {
    for (const named_op& one : options_.names) {
      if (one.op == &op) return one.name;
    }
    return op.name;
  }

  /// `<dim=1, start=4>`, or nothing.
  [[nodiscard]] std::string attributes_text(const instruction& i) const {
    std::string text;
    const auto add = [&](const std::string& one) { text += (text.empty() ? "<" : ", ") + one; };
    int known = 0;
    bool shows_scalar = false;
    const std::vector<attribute_name> names = attribute_names(*i.op);
    for (const attribute_name& one : names) {
      known = one.first + one.size();
      shows_scalar = shows_scalar || one.form == attribute_form::scalar;
      if (is_shown(i, one, names)) add(attribute_text(i, one));
    }
    for (int n = known; n < max_attributes; ++n) {
      if (i.attribute[n] != 0) add(joined({"attribute", n, "=", i.attribute[n]}));
    }
    if (!shows_scalar && std::bit_cast<std::uint64_t>(i.scalar) != 0) add("scalar=" + number_text(i.scalar));
    return text.empty() ? text : text + '>';
  }
  [[nodiscard]] static bool is_shown(const instruction& i, const attribute_name& one,
                                     const std::vector<attribute_name>& all) {
    using enum attribute_form;
    if (one.size() != 1 || i.attribute[one.first] != 0) return true;
    if (one.form == enumerator && one.enumerators.substr(0, 1) == "|") return false;
    if (one.form == windows) {
      // The windows are not written if the op says how many there are, and there are none.
      for (const attribute_name& other : all) {
        if (other.form == count && i.attribute[other.first] == 0) return false;
      }
    }
    return one.form != flag && one.form != axes && one.form != optional_type && one.form != count;
  }
  [[nodiscard]] std::string attribute_text(const instruction& i, const attribute_name& one) const {
    using enum attribute_form;
    const std::int64_t value = one.size() > 0 ? i.attribute[one.first] : 0;
    std::string name(one.name);
    switch (one.form) {
      case flag:
        if (value == 1) return name;
        break;
      case set:
        if (value >= 0) {
          std::vector<int> bits;
          for (int d = 0; d < 63; ++d) {
            if ((value >> d & 1) != 0) bits.push_back(d);
          }
          return name + "={" + numbers_text(bits) + '}';
        }
        break;
      case dims: {
        const axis_list list = axis_list::from_code(static_cast<std::uint32_t>(value));
        std::vector<int> entries;
        axis_list again;
        for (int d = 0; d < list.size(); ++d) {
          entries.push_back(list[d]);
          again = again.with(list[d]);
        }
        if (static_cast<std::int64_t>(again.code()) == value) return name + "=[" + numbers_text(entries) + ']';
        break;
      }
      case axes: return name + '=' + axes_text(list_of(static_cast<axis_mask>(value)));
      case type:
      case optional_type: {
        const std::int64_t number = value - (one.form == optional_type ? 1 : 0);
        if (number >= 0 && number < dtype_count) return name + '=' + espalier::name_of(static_cast<dtype>(number));
        break;
      }
      case enumerator:
        if (const std::string_view word = enumerator_at(one.enumerators, value); !word.empty())
          return name + '=' + std::string(word);
        break;
      case windows: return joined({name, "=#", value});
      case einsum: return einsum_text(&i.attribute[one.first]);
      case scalar: return name + '=' + number_text(i.scalar);
      default: break;
    }
    return joined({name, "=", value});
  }
  [[nodiscard]] static std::string numbers_text(const std::vector<int>& numbers) {
    return listed(static_cast<int>(numbers.size()),
                  [&](int n) { return joined({numbers[static_cast<std::size_t>(n)]}); });
  }
  [[nodiscard]] static std::string einsum_text(const std::int64_t* terms) {
    std::string text = "\"";
    for (int t = 0; t < 3; ++t) {
      text += t == 0 ? "" : t == 1 ? "," : "->";
      for (auto rest = static_cast<std::uint64_t>(terms[t]); rest != 0; rest >>= 8U)
        text += static_cast<char>(rest & 255U);
    }
    return text + '"';
  }

  /// `f32[64@data, 1024@model?] sum@model local [32, 256]`
  [[nodiscard]] std::string type_text(const instruction& i) const {
    const layout* const placed = i.annotation >= 0 ? &g_.annotations[i.annotation] : nullptr;
    const extents& shape = placed != nullptr ? placed->shape : i.shape;
    std::string text = espalier::name_of(i.type);
    text += '[' + listed(shape.rank, [&](int d) { return dimension_text(shape[d], placed, d); }) + ']';
    if (placed == nullptr) return text;
    const sharding& s = placed->placement;
    if (s.replicated != 0) text += " replicated@" + axes_text(list_of(s.replicated));
    if (s.unreduced != 0) text += " sum@" + axes_text(list_of(s.unreduced));
    if (s.tiled() == 0 && s.open == 0 && s.replicated == 0 && s.unreduced == 0) text += " whole";
    if (!(shape == i.shape))
      text += " local [" + listed(i.shape.rank, [&](int d) { return joined({i.shape[d]}); }) + ']';
    return text;
  }
  [[nodiscard]] std::string dimension_text(std::int64_t extent, const layout* placed, int d) const {
    std::string text = joined({extent});
    if (placed == nullptr) return text;
    const sharding& s = placed->placement;
    if (!s.dim[d].empty() || s.is_open(d)) text += '@';
    if (!s.dim[d].empty()) text += axes_text(s.dim[d]);
    return s.is_open(d) ? text + '?' : text;
  }

  const mesh_shape& mesh_;
  const axis_parts& parts_;
  graph_view g_;
  const graph_text_options& options_;
};

}  // namespace detail

/// A graph as text, which `parse_graph` reads back. `mesh` is that of the user; `parts` are the axes that layouts name,
/// all of them whole where no axis is split into sub-axes.
/// @pre options.lines; options.names has a name for each op that `ops` of `parse_graph` does not have
/// @post parse_graph(to_text(g)) is g, and its text is the same
[[nodiscard]] inline std::string to_text(const mesh_shape& mesh, const axis_parts& parts, graph_view g,
                                         const graph_text_options& options = {}) {
  return detail::graph_writer(mesh, parts, g, options).all();
}
[[nodiscard]] inline std::string to_text(const mesh_shape& mesh, graph_view g, const graph_text_options& options = {}) {
  return to_text(mesh, axis_parts::whole(mesh), g, options);
}
/// One instruction as text: `%2 = add %0, %1 : f32[64@data]`.
[[nodiscard]] inline std::string to_text(const mesh_shape& mesh, const axis_parts& parts, graph_view g, int id,
                                         const graph_text_options& options = {}) {
  return detail::graph_writer(mesh, parts, g, options).instruction_text(id, g[id].region);
}

}  // namespace espalier
