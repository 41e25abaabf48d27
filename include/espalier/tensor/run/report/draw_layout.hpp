// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/light_std/joined.hpp>
#include <espalier/base/table.hpp>
#include <espalier/base/xml_text.hpp>
#include <espalier/tensor/core/mesh/axis_parts.hpp>
#include <espalier/tensor/core/shape/tensor.hpp>
#include <espalier/tensor/core/sharding/annotation.hpp>
#include <espalier/tensor/core/sharding/box.hpp>
#include <espalier/tensor/core/sharding/print.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace espalier {

namespace detail {

/// A part of a tensor and the devices that hold it: all those with a term of one sum form a group, and every such
/// group holds the part once.
struct drawn_part {
  tensor_box box;
  std::vector<std::vector<int>> groups;
};

[[nodiscard]] inline bool same_box(const tensor_box& a, const tensor_box& b, int rank) {
  for (int d = 0; d < rank; ++d) {
    if (a.dim[d].start != b.dim[d].start || a.dim[d].size != b.dim[d].size) return false;
  }
  return true;
}

/// Whether two devices differ only along `axes`.
[[nodiscard]] inline bool differ_only_along(const mesh_shape& mesh, int a, int b, axis_mask axes) {
  for (int axis = 0; axis < mesh.rank; ++axis) {
    if (!has_axis(axes, axis) && mesh.coordinate(a, axis) != mesh.coordinate(b, axis)) return false;
  }
  return true;
}

/// Returns the parts and the devices that hold them, by device; devices without any element are put into `idle`.
[[nodiscard]] inline std::vector<drawn_part> drawn_parts(const mesh_shape& mesh, const layout& placed,
                                                         std::vector<int>& idle) {
  std::vector<drawn_part> all;
  const int rank = placed.shape.rank;
  for (int device = 0; device < mesh.devices(); ++device) {
    const tensor_box box = box_of(mesh, placed.shape, placed.placement, device);
    if (elements_of(box, rank) == 0) {
      idle.push_back(device);
      continue;
    }
    const auto same = [&](const drawn_part& one) { return same_box(one.box, box, rank); };
    auto found = std::find_if(all.begin(), all.end(), same);
    if (found == all.end()) found = all.insert(all.end(), {box, {}});
    const auto joins = [&](const std::vector<int>& group) {
      return differ_only_along(mesh, group.front(), device, placed.placement.unreduced);
    };
    const auto group = std::find_if(found->groups.begin(), found->groups.end(), joins);
    if (group == found->groups.end()) {
      found->groups.push_back({device});
    } else {
      group->push_back(device);
    }
  }
  return all;
}

[[nodiscard]] inline std::string joined_numbers(const std::vector<int>& numbers, const char* between) {
  std::string text;
  for (const int n : numbers) text += (text.empty() ? "" : between) + std::to_string(n);
  return text;
}

/// The picture of a layout. The two last dimensions that are split run down and to the right; where more are split,
/// there is a panel for each part of these.
class layout_drawing {
 public:
  layout_drawing(const mesh_shape& mesh, const axis_parts& axes, dtype type, const layout& placed)
      : whole_mesh_(mesh), axes_(axes), mesh_(cut_mesh(mesh, axes)), type_(type), placed_(placed) {
    boxes_ = drawn_parts(mesh_, placed, idle_);
    std::vector<int> split;
    for (int d = 0; d < placed.shape.rank; ++d) {
      if (!placed.placement.dim[d].empty()) split.push_back(d);
    }
    // Whole dimensions fill up, the last ones first: a matrix that is split by rows is drawn as a matrix.
    for (int d = placed.shape.rank - 1; d >= 0 && split.size() < 2; --d) {
      if (placed.placement.dim[d].empty()) split.push_back(d);
    }
    std::sort(split.begin(), split.end());
    if (!split.empty()) across_ = split.back(), split.pop_back();
    if (!split.empty()) down_ = split.back(), split.pop_back();
    panels_ = std::move(split);
  }

  [[nodiscard]] std::string svg() const {
    const double plot_width = std::max(panels_.empty() ? 420.0 : 240.0, 30.0 * static_cast<double>(parts(across_)));
    const double plot_height = down_ < 0 ? 48.0 : height_for(plot_width);
    const double width = left + plot_width + right;
    const double height = above() + plot_height + below;
    const std::vector<tensor_box> shown = panel_boxes();
    const std::size_t columns = std::min<std::size_t>(shown.size(), 4);
    const std::size_t rows = (shown.size() + columns - 1) / columns;
    const std::vector<std::string> notes = remarks();
    std::size_t longest = title().size() + 8;
    for (const std::string& one : notes) longest = std::max(longest, one.size());
    const double page_width = std::max(width * static_cast<double>(columns), 7.0 * static_cast<double>(longest));
    const double page_height = head + height * static_cast<double>(rows) + 18 * static_cast<double>(notes.size()) + 8;

    std::string out =
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"" + number(page_width) + "\" height=\"" +
        number(page_height) + "\" viewBox=\"0 0 " + number(page_width) + " " + number(page_height) +
        "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222222\">\n<title>" + xml_text(title()) +
        "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" + text(left, 20, title(), "start", 14);
    for (std::size_t p = 0; p < shown.size(); ++p) {
      const std::size_t row = p / columns;
      out += "<g transform=\"translate(" + number(width * static_cast<double>(p % columns)) + " " +
             number(head + height * static_cast<double>(row)) + ")\">\n" + panel(shown[p], plot_width, plot_height) +
             "</g>\n";
    }
    double y = head + height * static_cast<double>(rows) + 10;
    for (const std::string& one : notes) out += text(left, y, one, "start", 12), y += 18;
    return out + "</svg>\n";
  }

 private:
  static constexpr double left = 64;
  static constexpr double right = 24;
  static constexpr double below = 14;
  static constexpr double head = 30;
  static constexpr std::array<const char*, 12> colours{"#a6cee3", "#fdd49e", "#b2df8a", "#fbb4ae",
                                                       "#cab2d6", "#ffed9f", "#9fd8cb", "#e5c6a8",
                                                       "#c6d9f1", "#e0e0a0", "#f4c2d7", "#c7c7c7"};

  /// The height above the drawing, with room for the panels' captions if there are panels.
  [[nodiscard]] double above() const { return panels_.empty() ? 44 : 62; }
  [[nodiscard]] static std::string number(double value) { return espalier::report::format_fixed(value, 1); }
  [[nodiscard]] static std::string text(double x, double y, const std::string& words, const char* anchor, double size) {
    return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\" font-size=\"" +
           number(size) + "\">" + xml_text(words) + "</text>\n";
  }

  [[nodiscard]] std::string title() const {
    return espalier::to_string(whole_mesh_, axes_, type_, placed_.shape, placed_.placement);
  }
  [[nodiscard]] std::int64_t extent(int d) const { return d < 0 ? 1 : placed_.shape[d]; }
  [[nodiscard]] std::int64_t parts(int d) const { return d < 0 ? 1 : mesh_.parts(placed_.placement.dim[d]); }
  [[nodiscard]] double height_for(double width) const {
    const double like_the_tensor = width * static_cast<double>(extent(down_)) / static_cast<double>(extent(across_));
    return std::max(std::clamp(like_the_tensor, 0.3 * width, width), 24.0 * static_cast<double>(parts(down_)));
  }
  [[nodiscard]] static interval along(const tensor_box& box, int d) { return d < 0 ? interval{0, 1} : box.dim[d]; }

  /// One box for each part of the dimensions that have panels.
  [[nodiscard]] std::vector<tensor_box> panel_boxes() const {
    std::vector<tensor_box> shown;
    for (const drawn_part& one : boxes_) {
      const auto same = [&](const tensor_box& other) { return is_in_panel(one.box, other); };
      if (std::none_of(shown.begin(), shown.end(), same)) shown.push_back(one.box);
    }
    return shown;
  }
  [[nodiscard]] bool is_in_panel(const tensor_box& box, const tensor_box& panel) const {
    return std::all_of(panels_.begin(), panels_.end(), [&](int d) { return box.dim[d].start == panel.dim[d].start; });
  }

  /// "[4, 7) of dimension 0"
  [[nodiscard]] static std::string range(interval part) {
    return joined({"[", part.start, ", ", part.start + part.size, ")"});
  }

  /// `0 + 1, 2 + 3`: two copies of a sum of two terms each.
  [[nodiscard]] static std::string holders(const drawn_part& one, const char* between = ", ") {
    std::string words;
    for (const std::vector<int>& group : one.groups)
      words += (words.empty() ? "" : between) + joined_numbers(group, " + ");
    return words;
  }

  /// The words as large as the room allows, or fewer of them.
  [[nodiscard]] static std::string fitted(const drawn_part& one, double x, double y, double width, double height) {
    const auto size_of = [&](const std::string& words) {
      return std::min({14.0, (width - 6) / (0.56 * static_cast<double>(words.size())), height - 4});
    };
    std::string words = holders(one);
    if (size_of(words) < 7) {
      std::size_t devices = 0;
      for (const std::vector<int>& group : one.groups) devices += group.size();
      words = std::to_string(one.groups.front().front()) + " ... (" + std::to_string(devices) + ")";
    }
    const double size = size_of(words);
    return size < 6 ? std::string() : text(x + width / 2, y + height / 2 + 0.36 * size, words, "middle", size);
  }

  [[nodiscard]] std::string panel(const tensor_box& shown, double width, double height) const {
    std::string out;
    std::string words;
    std::vector<std::int64_t> columns{0, extent(across_)};
    std::vector<std::int64_t> rows{0, extent(down_)};
    const double scale_x = width / static_cast<double>(extent(across_));
    const double scale_y = height / static_cast<double>(extent(down_));
    for (std::size_t n = 0; n < boxes_.size(); ++n) {
      const drawn_part& one = boxes_[n];
      if (!is_in_panel(one.box, shown)) continue;
      const interval c = along(one.box, across_);
      const interval r = along(one.box, down_);
      columns.push_back(c.start);
      rows.push_back(r.start);
      const double x = left + scale_x * static_cast<double>(c.start);
      const double y = above() + scale_y * static_cast<double>(r.start);
      const double w = scale_x * static_cast<double>(c.size);
      const double h = scale_y * static_cast<double>(r.size);
      std::string where;
      for (int d = 0; d < placed_.shape.rank; ++d) where += (d == 0 ? "" : " x ") + range(one.box.dim[d]);
      const std::string who = holders(one);
      out += "<rect class=\"part\" x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(w) +
             "\" height=\"" + number(h) + "\" fill=\"" + colours.at(n % colours.size()) +
             "\" stroke=\"#444444\"><title>" + xml_text((where.empty() ? "the scalar" : where) + ": devices " + who) +
             "</title></rect>\n";
      words += fitted(one, x, y, w, h);
    }
    out += words;
    if (across_ >= 0) {
      out += text(left + width / 2, above() - 28, dimension_name(across_), "middle", 12);
      for (const std::int64_t at : spread(columns, scale_x, 26))
        out += text(left + scale_x * static_cast<double>(at), above() - 6, std::to_string(at), "middle", 10);
    }
    if (down_ >= 0) {
      for (const std::int64_t at : spread(rows, scale_y, 13))
        out += text(left - 6, above() + scale_y * static_cast<double>(at) + 4, std::to_string(at), "end", 10);
      const std::string x = number(14);
      const std::string y = number(above() + height / 2);
      out += "<text text-anchor=\"middle\" transform=\"translate(" + x + " " + y + ") rotate(-90)\">" +
             xml_text(dimension_name(down_)) + "</text>\n";
    }
    if (!panels_.empty()) {
      std::string caption;
      for (const int d : panels_)
        caption += (caption.empty() ? "" : ", ") + dimension_name(d) + ": " + range(shown.dim[d]);
      out += text(left + width / 2, above() - 44, caption, "middle", 11);
    }
    return out;
  }

  /// The numbers once each, without those that would run into the one before.
  [[nodiscard]] static std::vector<std::int64_t> spread(std::vector<std::int64_t> at, double scale, double room) {
    std::sort(at.begin(), at.end());
    std::vector<std::int64_t> kept;
    for (const std::int64_t one : at) {
      if (kept.empty() || scale * static_cast<double>(one - kept.back()) >= room) kept.push_back(one);
    }
    return kept;
  }

  /// "dimension 0, by data * model"
  [[nodiscard]] std::string dimension_name(int d) const {
    std::string words = "dimension " + std::to_string(d);
    const axis_list axes = placed_.placement.dim[d];
    return axes.empty() ? words : words + ", by " + names_of(whole_mesh_, axes_, axes, " * ");
  }

  [[nodiscard]] std::vector<std::string> remarks() const {
    std::vector<std::string> notes;
    std::string grid = "numbers are devices of the mesh";
    for (int axis = 0; axis < whole_mesh_.rank; ++axis) {
      grid += (axis == 0 ? " " : " x ") + std::string(whole_mesh_.name[axis]) + " " +
              std::to_string(whole_mesh_.size[axis]);
    }
    if (whole_mesh_.rank > 1) grid += ", the last axis fastest";
    notes.push_back(grid);
    bool copies = false;
    for (const drawn_part& one : boxes_) copies = copies || one.groups.size() > 1;
    if (copies) notes.emplace_back("a, b: each holds a copy");
    if (placed_.placement.unreduced != 0) {
      const axis_list partial = list_of(placed_.placement.unreduced);
      notes.push_back("a + b: each holds a term of a sum over " + names_of(whole_mesh_, axes_, partial, " * "));
    }
    if (!idle_.empty())
      notes.push_back((idle_.size() == 1 ? "nothing on device " : "nothing on devices ") + joined_numbers(idle_, ", "));
    return notes;
  }

  const mesh_shape& whole_mesh_;
  axis_parts axes_;
  /// The mesh of the axes' sub-axes.
  mesh_shape mesh_;
  dtype type_;
  const layout& placed_;
  std::vector<drawn_part> boxes_;
  std::vector<int> idle_;
  int across_ = -1;
  int down_ = -1;
  std::vector<int> panels_;
};

}  // namespace detail

/// A picture (SVG) of a tensor's layout: every part of the tensor as a cell, as large as it is, with the numbers of the
/// devices that hold it. `0, 2` are copies, `0 + 1` terms of a partial sum. The two last dimensions that are split run
/// down and to the right; where more are, there is a panel for each part of these.
/// @pre the placement is one of this shape on this mesh
[[nodiscard]] inline std::string draw_layout(const mesh_shape& mesh, dtype type, const layout& placed) {
  return detail::layout_drawing(mesh, axis_parts::whole(mesh), type, placed).svg();
}
/// Draws a placement on sub-axes of a mesh.
[[nodiscard]] inline std::string draw_layout(const mesh_shape& mesh, const axis_parts& axes, dtype type,
                                             const layout& placed) {
  return detail::layout_drawing(mesh, axes, type, placed).svg();
}

namespace detail {
/// A tensor type and its annotation, if it has one.
template <class Tensor> struct annotated_tensor {
  template <class Mesh> static constexpr read_annotation read{.placement = sharding::whole(Tensor::rank)};
};
template <class Tensor, class... Entries> struct annotated_tensor<sharded<Tensor, Entries...>> {
  template <class Mesh> static constexpr read_annotation read = annotation_of<Mesh, Entries...>(Tensor::rank);
};
}  // namespace detail

/// The same of a type, written as an argument of a program is: `draw_layout<mesh, sharded<f32<64, 256>, data,
/// none>>()`. A type without annotation is whole on every device.
template <class Mesh, TensorType Tensor> [[nodiscard]] std::string draw_layout() {
  using annotated = detail::annotated_tensor<Tensor>;
  constexpr detail::read_annotation read = annotated::template read<Mesh>;
  static_assert(read.fault == detail::annotation_fault::nothing,
                "draw_layout: the entries do not fit the tensor, or name an axis that the mesh does not have");
  return draw_layout(Mesh::value, Tensor::type, {Tensor::shape, read.placement});
}

/// Draws the value of a program that has this label: `draw_layout<step>("hidden")`. Errors: as `layout_of`.
template <class Program> [[nodiscard]] std::string draw_layout(const char* label) {
  const layout& placed = Program::layout_of(label);
  dtype type = dtype::f32;
  for (const auto& one : Program::code.code) {
    if (&Program::code.annotations[one.annotation] == &placed) type = one.type;
  }
  return draw_layout(Program::mesh::value, Program::parts, type, placed);
}

/// Draws the layout of an array in a world.
template <class World, class Array>
  requires requires(const World& w, const Array& a) {
    w.mesh_value();
    a.parts();
    a.placed();
  }
[[nodiscard]] std::string draw_layout(const World& where, const Array& array) {
  return draw_layout(where.mesh_value(), array.parts(), Array::tensor::type, array.placed());
}

}  // namespace espalier
