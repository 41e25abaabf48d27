// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/fixed_string.hpp>

#include <concepts>
#include <cstdint>

namespace espalier {

/// A mesh axis: a name and the number of devices along it. Derive a struct of your own, so that every diagnostic
/// prints your word for it: `struct data : espalier::axis<"data", 2> {};`
template <detail::fixed_string Name, int Size> struct axis {
  static_assert(Size >= 1, "a mesh axis needs at least one device");
  static constexpr const char* name = &Name.text[0];
  static constexpr int size = Size;
};

template <class T>
concept MeshAxis = requires {
  { T::name } -> std::convertible_to<const char*>;
  { T::size } -> std::convertible_to<int>;
};

/// The largest number of axes of a mesh, and of dimensions of a tensor.
inline constexpr int max_axes = 8;
inline constexpr int max_rank = 8;

/// A set of mesh axes, one bit each.
using axis_mask = std::uint32_t;

/// An axis whose devices a mesh also counts in another order, backwards for example, has a second number in lists: its
/// own plus `max_axes` (`mesh_shape::ordered`). Both numbers mean the same groups of devices, so a set of axes has one
/// bit for both; lists that differ only in this place shards differently and are not equal. The last number has no
/// room in a list: axis 7 has one order only.
inline constexpr int most_ordered_axes = 7;
/// The axis that an entry of a list means, whatever the order.
[[nodiscard]] constexpr int axis_of_entry(int entry) { return entry & (max_axes - 1); }

/// The mesh axes that split one dimension, major to minor: four bits each, so that copying and comparing one costs a
/// single step in a constant evaluation. An entry is an axis, or one in its other order (`most_ordered_axes`).
class axis_list {
 public:
  constexpr axis_list() = default;
  constexpr explicit axis_list(int axis) : code_(static_cast<std::uint32_t>(axis + 1)) {}
  [[nodiscard]] static constexpr axis_list from_code(std::uint32_t code) { return {code, coded{}}; }

  [[nodiscard]] constexpr std::uint32_t code() const { return code_; }
  [[nodiscard]] constexpr bool empty() const { return code_ == 0; }
  [[nodiscard]] constexpr int size() const {
    int count = 0;
    for (std::uint32_t rest = code_; rest != 0; rest >>= 4U) ++count;
    return count;
  }
  [[nodiscard]] constexpr int operator[](int i) const {
    return static_cast<int>((code_ >> (4U * static_cast<std::uint32_t>(i))) & 15U) - 1;
  }
  [[nodiscard]] constexpr int back() const { return (*this)[size() - 1]; }
  [[nodiscard]] constexpr axis_list with(int axis) const {
    return from_code(code_ | (static_cast<std::uint32_t>(axis + 1) << (4U * static_cast<std::uint32_t>(size()))));
  }
  [[nodiscard]] constexpr axis_list first(int count) const {
    return from_code(count >= 8 ? code_ : code_ & ((1U << (4U * static_cast<std::uint32_t>(count))) - 1U));
  }
  /// The list after its first `count` axes: all of it for 0, nothing from its size on.
  /// @post first(n).followed_by(without_first(n)) is the list
  [[nodiscard]] constexpr axis_list without_first(int count) const {
    return from_code(count >= 8 ? 0 : code_ >> (4U * static_cast<std::uint32_t>(count)));
  }
  [[nodiscard]] constexpr axis_list followed_by(axis_list minor) const {
    // Eight axes fill the code, which can't be shifted by its whole width.
    return minor.empty() ? *this : from_code(code_ | (minor.code_ << (4U * static_cast<std::uint32_t>(size()))));
  }
  [[nodiscard]] constexpr axis_mask mask() const {
    axis_mask result = 0;
    for (std::uint32_t rest = code_; rest != 0; rest >>= 4U) result |= 1U << ((rest - 1U) & 7U);
    return result;
  }
  /// Whether the axis of an entry is in the list, in either order.
  [[nodiscard]] constexpr bool contains(int axis) const {
    return (mask() >> (static_cast<unsigned>(axis) & 7U) & 1U) != 0;
  }
  [[nodiscard]] constexpr bool starts_with(axis_list prefix) const { return first(prefix.size()) == prefix; }
  /// The same list without the axes of `removed`, order kept.
  /// @post the axes of the list that are not removed, in their order
  [[nodiscard]] constexpr axis_list without(axis_mask removed) const {
    axis_list result;
    for (std::uint32_t rest = code_; rest != 0; rest >>= 4U) {
      const int axis = static_cast<int>(rest & 15U) - 1;
      if ((removed >> (static_cast<unsigned>(axis) & 7U) & 1U) == 0) result = result.with(axis);
    }
    return result;
  }
  [[nodiscard]] constexpr bool operator==(const axis_list&) const = default;

 private:
  struct coded {};
  constexpr axis_list(std::uint32_t code, coded) : code_(code) {}

  std::uint32_t code_ = 0;
};

namespace detail {

/// g++ 12 cannot read an array element of class type in a constant if it was only value-initialised ("modification of
/// ... is not a constant expression"). Whatever is kept in a constexpr variable has its lists written one by one.
constexpr void write_each([[maybe_unused]] axis_list* lists, [[maybe_unused]] int count) {
#if defined(__GNUC__) && !defined(__clang__)
  for (int i = 0; i < count; ++i) lists[i] = axis_list::from_code(lists[i].code());
#endif
}

}  // namespace detail

[[nodiscard]] constexpr axis_mask bit_of(int axis) { return 1U << static_cast<unsigned>(axis); }
/// Whether the axis of an entry is in a set.
[[nodiscard]] constexpr bool has_axis(axis_mask mask, int axis) {
  return (mask >> (static_cast<unsigned>(axis) & 7U) & 1U) != 0;
}

/// The axes of a set in mesh order.
/// @post the axes ascend, and list_of(mask).mask() == mask
[[nodiscard]] constexpr axis_list list_of(axis_mask mask) {
  axis_list result;
  for (int axis = 0; axis < max_axes; ++axis) {
    if (has_axis(mask, axis)) result = result.with(axis);
  }
  return result;
}

[[nodiscard]] constexpr int count_of(axis_mask mask) { return list_of(mask).size(); }

}  // namespace espalier
