// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/dtype.hpp>
#include <espalier/base/json.hpp>
#include <espalier/tensor/run/io/box.hpp>
#include <espalier/tensor/run/io/error.hpp>
#include <espalier/tensor/run/io/safetensors.hpp>
#include <espalier/tensor/run/io/safetensors_header.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace espalier::detail {

template <class T> [[nodiscard]] double wide(T value) { return static_cast<double>(static_cast<computed_t<T>>(value)); }

/// The nearest number of the other type. Sixteen-bit floats are rounded to from float, so a double becomes the float
/// that lies on the same side of every number halfway between two of those: cut off, with an odd last bit.
template <class To, class From> [[nodiscard]] To rounded_once(From value) {
  if constexpr (!std::is_integral_v<To> && sizeof(To) == 2 && (std::is_integral_v<From> || sizeof(From) == 8)) {
    const auto exact = static_cast<double>(value);
    auto near = static_cast<float>(exact);
    if (std::isfinite(near) && static_cast<double>(near) != exact) {
      if (std::abs(static_cast<double>(near)) > std::abs(exact)) near = std::nextafter(near, 0.0F);
      near = std::bit_cast<float>(std::bit_cast<std::uint32_t>(near) | 1U);
    }
    return static_cast<To>(near);
  } else {
    return static_cast<To>(static_cast<computed_t<To>>(static_cast<computed_t<From>>(value)));
  }
}

/// Whether elements of a file are converted to another type when asked: floats to floats, integers to integers and
/// floats. A bool stays a bool.
[[nodiscard]] inline bool converts(dtype from, dtype to) {
  if (from == to) return true;
  if (from == dtype::boolean || to == dtype::boolean) return false;
  return is_floating(to) || is_integer(from);
}

/// Converts `count` elements that lie one after the other. Returns the first element that the type cannot hold, as
/// text; those before it are converted. A finite float that would become infinite is one.
/// @pre converts(from, to)
[[nodiscard]] inline std::optional<std::string> convert_elements(dtype from, const std::byte* source, dtype to,
                                                                 std::byte* target, std::int64_t target_stride,
                                                                 std::int64_t count) {
  std::optional<std::string> refused;
  with_storage(from, [&]<class From>(From) {
    with_storage(to, [&]<class To>(To) {
      if constexpr (std::is_integral_v<From> || !std::is_integral_v<To>) {
        for (std::int64_t i = 0; i < count; ++i) {
          From value;
          std::memcpy(&value, source + i * static_cast<std::int64_t>(sizeof(From)), sizeof(From));
          bool fits = true;
          if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
            if constexpr (!std::is_same_v<From, bool> && !std::is_same_v<To, bool>) fits = std::in_range<To>(value);
          }
          const To converted = rounded_once<To>(value);
          if constexpr (!std::is_integral_v<To>) {
            fits = std::isfinite(wide(converted)) || !std::isfinite(wide(value));
          }
          if (!fits) {
            refused = std::is_integral_v<From> ? std::to_string(static_cast<std::int64_t>(wide(value)))
                                               : json_number(wide(value));
            return;
          }
          std::memcpy(target + i * target_stride * static_cast<std::int64_t>(sizeof(To)), &converted, sizeof(To));
        }
      }
    });
  });
  return refused;
}

/// Reads a box, as `reader.read_box` does, into memory of another element type. With a null `target` the elements are
/// only looked at: nothing is read if none of them can be refused.
/// @pre converts(type in the file, type)
/// Errors: `io::checkpoint_error` with the first element that the type cannot hold.
inline void read_box_as(dtype type, const io::safetensors_reader& reader, const io::tensor_info& info,
                        std::vector<std::int64_t> starts, std::vector<std::int64_t> extents, std::byte* target,
                        std::span<const std::int64_t> strides) {
  // Every number of these types is in the range of the other.
  const bool in_f32 = info.type != dtype::f64;
  if (target == nullptr &&
      (type == dtype::f64 || (in_f32 && type == dtype::f32) || (is_integer(info.type) && type == dtype::bf16))) {
    return;
  }
  std::int64_t elements = 1;
  for (const std::int64_t extent : extents) elements *= extent;
  if (elements == 0) return;

  constexpr std::int64_t room = std::int64_t{1} << 17;  // elements: a buffer of at most 1 MiB
  if (elements > room) {
    std::size_t cut = 0;
    while (extents[cut] == 1) ++cut;
    const std::int64_t most = std::max<std::int64_t>(1, room / (elements / extents[cut]));
    const std::int64_t all = extents[cut];
    for (std::int64_t i = 0; i < all; i += most) {
      extents[cut] = std::min(most, all - i);
      read_box_as(type, reader, info, starts, extents,
                  target == nullptr ? nullptr : target + i * strides[cut] * size_of(type), strides);
      starts[cut] += extents[cut];
    }
    return;
  }

  std::vector<std::byte> in_file(static_cast<std::size_t>(elements * size_of(info.type)));
  reader.read_box(info.name, starts, extents, in_file.data());
  std::vector<std::byte> looked_at(static_cast<std::size_t>(size_of(type)));
  // Row by row.
  const std::size_t outer = extents.empty() ? 0 : extents.size() - 1;
  const std::int64_t row = extents.empty() ? 1 : extents.back();
  std::vector<box_dimension> rows;
  for (std::size_t d = 0; d < outer; ++d) rows.push_back({extents[d], 0, target == nullptr ? 0 : strides[d]});
  const std::byte* next = in_file.data();
  for_each_index(rows, 0, 0, [&](std::int64_t, std::int64_t at) {
    std::byte* const into = target == nullptr ? looked_at.data() : target + at * size_of(type);
    const std::int64_t stride = target == nullptr || extents.empty() ? 0 : strides[outer];
    if (const auto refused = convert_elements(info.type, next, type, into, stride, row)) {
      throw io::checkpoint_error(
          reader.path(), "the element " + *refused + " in tensor " + json_string(info.name) + " = " + describe(info),
          std::string("elements in the range of ") + name_of(type) + ", to which the tensor is to be converted",
          "load it into a leaf of a type that holds them");
    }
    next += row * size_of(info.type);
  });
}

}  // namespace espalier::detail
