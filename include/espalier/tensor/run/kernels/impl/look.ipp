// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How a program shows and checks values: the compiled half of look.hpp.
#include <espalier/base/light_std/joined.hpp>
#include <espalier/tensor/core/sharding/print.hpp>
#include <espalier/tensor/run/kernels/look.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

namespace espalier::detail {

/// Steps through the elements of a box in row-major order.
class element_walk {
 public:
  element_walk(const tensor_box& box, const extents& buffer) : box_(box), buffer_(buffer) {
    for (int d = 0; d < buffer.rank; ++d) {
      at_[d] = box.dim[d].start;
      ends_ = ends_ || box.dim[d].size <= 0;
    }
  }
  [[nodiscard]] bool ends() const { return ends_; }
  /// The element's indices in the whole tensor, and its place in the buffer.
  [[nodiscard]] const std::int64_t* indices() const { return &at_[0]; }
  [[nodiscard]] std::int64_t offset() const { return offset_; }
  /// How many leading dimensions begin anew with this element.
  [[nodiscard]] int turned() const { return turned_; }

  void next() {
    int d = buffer_.rank - 1;
    std::int64_t stride = 1;
    for (; d >= 0; --d) {
      offset_ += stride;
      if (++at_[d] < box_.dim[d].start + box_.dim[d].size) break;
      offset_ -= stride * box_.dim[d].size;
      at_[d] = box_.dim[d].start;
      stride *= buffer_[d];
    }
    turned_ = d + 1;
    ends_ = d < 0;
  }

 private:
  const tensor_box& box_;
  const extents& buffer_;
  std::int64_t at_[max_rank]{};
  std::int64_t offset_ = 0;
  int turned_ = 0;
  bool ends_ = false;
};

/// A float whose exponent is all ones is none: "nan", "inf" or "-inf"; null for others. The same for all sizes of
/// floats but for where the exponent is.
template <class Bits>
[[nodiscard]] inline const char* name_of_not_finite(const void* data, std::int64_t n, Bits exponent) {
  const Bits bits = static_cast<const Bits*>(data)[n];
  if ((bits & exponent) != exponent) return nullptr;
  const auto mantissa = static_cast<Bits>((exponent & static_cast<Bits>(~exponent + 1U)) - 1U);
  if ((bits & mantissa) != 0) return "nan";
  return (bits & static_cast<Bits>(~(exponent | mantissa))) != 0 ? "-inf" : "inf";
}
[[nodiscard]] inline const char* name_of_not_finite(dtype type, const void* data, std::int64_t n) {
  switch (type) {
    case dtype::f64: return name_of_not_finite<std::uint64_t>(data, n, 0x7ff0000000000000U);
    case dtype::f32: return name_of_not_finite<std::uint32_t>(data, n, 0x7f800000U);
    case dtype::bf16: return name_of_not_finite<std::uint16_t>(data, n, 0x7f80U);
    case dtype::f16: return name_of_not_finite<std::uint16_t>(data, n, 0x7c00U);
    default: return nullptr;
  }
}

ESPALIER_INLINE bad_element find_not_finite(dtype type, const void* data, const extents& buffer, const tensor_box& box,
                                            bool nan_only) {
  bad_element first;
  if (!is_floating(type)) return first;
  for (element_walk walk(box, buffer); !walk.ends(); walk.next()) {
    const char* const name = name_of_not_finite(type, data, walk.offset());
    if (name == nullptr || (nan_only && name[0] != 'n')) continue;
    first.name = name;
    for (int d = 0; d < buffer.rank; ++d) first.at[d] = walk.indices()[d];
    break;
  }
  return first;
}

ESPALIER_INLINE std::string text_of_indices(const std::int64_t* at, int rank) {
  std::string text = "[";
  for (int d = 0; d < rank; ++d) append_text(text, {d > 0 ? ", " : "", at[d]});
  return text + "]";
}

ESPALIER_INLINE std::string text_of_layout(const mesh_shape& mesh, dtype type, const extents& whole,
                                           const sharding& placement) {
  // Neighbours of one name are parts of one axis.
  mesh_shape uncut;
  axis_parts parts;
  for (int p = 0; p < mesh.rank; ++p) {
    const bool goes_on = p > 0 && std::string(mesh.name[p]) == mesh.name[p - 1];
    const int axis = goes_on ? uncut.rank - 1 : uncut.rank++;
    parts.add(axis, goes_on ? parts.majors[p - 1] * mesh.size[p - 1] : 1, mesh.size[p]);
    uncut.name[axis] = mesh.name[p];
    uncut.name[axis + max_axes] = mesh.name[p + max_axes];
  }
  return to_string(uncut, parts, type, whole, placement);
}

ESPALIER_INLINE std::string text_of_iterations(const kernels::look_site& site) {
  std::string text;
  for (int n = 0; n < site.loops; ++n) {
    append_text(text, {n == 0 ? ", iteration " : " of iteration ", site.iteration[n]});
  }
  return text;
}

/// "model.cpp:40, iteration 3"
[[nodiscard]] inline std::string text_of_site(const kernels::look_site& site) {
  return joined({site.self->where.file, ":", site.self->where.line, text_of_iterations(site)});
}
[[nodiscard]] inline std::string name_of_look(const kernels::look_site& site) {
  const char* const name = site.self->label;
  return name == nullptr || *name == '\0' ? "value" : name;
}

[[nodiscard]] inline double element_at(dtype type, const void* data, std::int64_t n) {
  return with_storage(type, [&]<class T>(T) { return static_cast<double>(static_cast<const T*>(data)[n]); });
}
[[nodiscard]] inline std::string text_of_number(double value) {
  char text[32];
  std::snprintf(&text[0], sizeof(text), "%.6g", value);
  return &text[0];
}

/// Whether this device is the first of those that hold equal copies.
[[nodiscard]] inline bool is_first_copy(const kernels::look_site& site) {
  const axis_mask distinct = site.placement->tiled() | site.placement->unreduced;
  for (int axis = 0; axis < site.mesh->rank; ++axis) {
    if (!has_axis(distinct, axis) && site.mesh->coordinate(site.device, axis) != 0) return false;
  }
  return true;
}

/// Numbers in brackets as NumPy prints them: of each dimension the first and the last three where there are more than
/// `most` in all.
inline void append_values(std::string& text, dtype type, const void* data, const extents& buffer, const tensor_box& box,
                          int d, std::int64_t offset, bool abridged) {
  if (d == buffer.rank) {
    text += text_of_number(element_at(type, data, offset));
    return;
  }
  constexpr std::int64_t edge = 3;
  const std::int64_t size = box.dim[d].size;
  const std::string between = d + 1 == buffer.rank ? " " : "\n  " + std::string(static_cast<std::size_t>(d) + 1, ' ');
  text += '[';
  for (std::int64_t n = 0; n < size; ++n) {
    if (n > 0) text += between;
    if (abridged && size > 2 * edge && n == edge) {
      text += "..." + between;
      n = size - edge;
    }
    append_values(text, type, data, buffer, box, d + 1, offset + n * stride_of(buffer, d), abridged);
  }
  text += ']';
}

ESPALIER_INLINE void print_value(const kernels::kernel_call& call) {
  const kernels::look_site& site = *call.site;
  if (!is_first_copy(site)) return;
  const instruction& i = *site.self;
  const tensor_box& box = call.boxes->operand[0];
  const int rank = i.shape.rank;
  const std::int64_t count = elements_of(box, rank);
  if (count == 0) return;
  const void* const data = call.operand[0];

  std::string text =
      joined({name_of_look(site), ": ", text_of_layout(*site.mesh, i.type, call.boxes->whole, *site.placement), " at ",
              text_of_site(site), ", device ", site.device});
  if (count < call.boxes->whole.elements()) {
    text += ": [";
    for (int d = 0; d < rank; ++d) {
      const interval held = box.dim[d];
      append_text(text, {d > 0 ? ", " : "", held.start, "..", held.start + held.size - 1});
    }
    text += ']';
  }
  if (site.placement->unreduced != 0) text += ", its term of the sum";
  text += "\n  ";
  constexpr std::int64_t most = 64;
  append_values(text, i.type, data, i.shape, box, 0, 0, count > most);

  double least = INFINITY;
  double greatest = -INFINITY;
  double sum = 0;
  std::int64_t nans = 0;
  std::int64_t infinities = 0;
  for (element_walk walk(box, i.shape); !walk.ends(); walk.next()) {
    const double value = element_at(i.type, data, walk.offset());
    if (std::isnan(value)) {
      ++nans;
    } else if (std::isinf(value)) {
      ++infinities;
    } else {
      least = value < least ? value : least;
      greatest = value > greatest ? value : greatest;
      sum += value;
    }
  }
  const std::int64_t finite = count - nans - infinities;
  if (finite > 0) {
    append_text(text, {"\n  min ", text_of_number(least), ", max ", text_of_number(greatest), ", mean ",
                       text_of_number(sum / static_cast<double>(finite))});
  }
  if (nans + infinities > 0) {
    append_text(text, {finite > 0 ? ", " : "\n  ", nans, " nan and ", infinities, " infinite of ", count});
  }
  text += '\n';
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

ESPALIER_INLINE void check_value(const kernels::kernel_call& call) {
  const kernels::look_site& site = *call.site;
  const instruction& i = *site.self;
  const bad_element bad = find_not_finite(i.type, call.operand[0], i.shape, call.boxes->operand[0]);
  if (bad.name == nullptr) return;
  throw not_finite(
      joined({"check_finite at ", text_of_site(site), ": ", name_of_look(site), " is ", bad.name, " at ",
              text_of_indices(&bad.at[0], i.shape.rank), " of ",
              text_of_layout(*site.mesh, i.type, call.boxes->whole, *site.placement), ", on device ", site.device}));
}

}  // namespace espalier::detail
