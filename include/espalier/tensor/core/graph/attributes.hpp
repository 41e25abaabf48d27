// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

// Attributes are the facts of an op beyond its operands, such as the start of a `slice`. An instruction has room for a
// few numbers; an op family declares what they are, as a struct in its header, through which all read and write them:
//
//     struct slice_attributes {
//       int dim = 0;
//       std::int64_t start = 0;
//       std::int64_t step = 1;
//     };
//     set_attributes(made, slice_attributes{.dim = 1, .start = 4});
//     attributes_of<slice_attributes>(made).start  // 4

namespace espalier {

/// The number of attributes that an instruction has room for.
inline constexpr int max_attributes = 4;

namespace detail {

/// A stored number on its way into a field: an integer, a truth value, an enumerator, or a list that has a code.
struct stored_attribute {
  std::int64_t number = 0;
  template <class Field> constexpr operator Field() const {  // NOLINT(google-explicit-constructor): it is the field
    if constexpr (requires { Field::from_code(0U); }) {
      return Field::from_code(static_cast<std::uint32_t>(number));
    } else {
      return static_cast<Field>(number);
    }
  }
};

/// The number that is stored for a field.
template <class Field>
  requires(std::is_integral_v<Field> || std::is_enum_v<Field>)
[[nodiscard]] constexpr std::int64_t as_stored(Field field) { return static_cast<std::int64_t>(field); }
template <class Field>
  requires requires(const Field& field) { field.code(); }
[[nodiscard]] constexpr std::int64_t as_stored(const Field& field) { return static_cast<std::int64_t>(field.code()); }

/// Returns the number of fields of a struct.
template <class Attributes> [[nodiscard]] constexpr int count_fields() {
  static_assert(std::is_aggregate_v<Attributes>, "an op's attributes are a struct without constructors");
  using any = stored_attribute;
  static_assert(
      !requires {
        Attributes{any{}, any{}, any{}, any{}, any{}};
      },
      "an op has at most four attributes");
  if constexpr (requires { Attributes{any{}, any{}, any{}, any{}}; }) {
    return 4;
  } else if constexpr (requires { Attributes{any{}, any{}, any{}}; }) {
    return 3;
  } else if constexpr (requires { Attributes{any{}, any{}}; }) {
    return 2;
  } else {
    return 1;
  }
}
template <class Attributes> inline constexpr int field_count = count_fields<Attributes>();

template <class Attributes, int... At>
[[nodiscard]] constexpr Attributes fields_from(const std::int64_t* stored, std::integer_sequence<int, At...>) {
  return Attributes{stored_attribute{stored[At]}...};
}

/// Every instruction has all four: what is not used is 0, so that equal instructions are equal in all of them.
template <class... Fields> constexpr void store_fields(std::int64_t* to, const Fields&... fields) {
  int at = 0;
  ((to[at++] = as_stored(fields)), ...);
  while (at < max_attributes) to[at++] = 0;
}

/// An instruction, the key of a kernel, or a step of a fused chain.
template <class Holder>
concept HoldsAttributes = requires(const Holder& holder) {
  holder.attribute[max_attributes - 1];
};
/// A type that gives access to an instruction: an `op_view`, a `gradient_context`.
template <class View>
concept ShowsInstruction = requires(const View& view) {
  view.self().attribute[max_attributes - 1];
};

}  // namespace detail

/// The attributes of an instruction, a kernel's key or what views an instruction, as its op family declares them.
/// @pre the op is one of those that have `Attributes`; a key says nothing of its op
template <class Attributes, detail::HoldsAttributes Holder>
[[nodiscard]] constexpr Attributes attributes_of(const Holder& holder) {
  return detail::fields_from<Attributes>(&holder.attribute[0],
                                         std::make_integer_sequence<int, detail::field_count<Attributes>>{});
}
template <class Attributes, detail::ShowsInstruction View>
[[nodiscard]] constexpr Attributes attributes_of(const View& view) {
  return attributes_of<Attributes>(view.self());
}

/// Stores the attributes of an op.
/// @post attributes_of<Attributes>(holder) gives them back
template <detail::HoldsAttributes Holder, class Attributes>
constexpr void set_attributes(Holder& holder, const Attributes& attributes) {
  if constexpr (detail::field_count<Attributes> == 1) {
    const auto& [a] = attributes;
    detail::store_fields(&holder.attribute[0], a);
  } else if constexpr (detail::field_count<Attributes> == 2) {
    const auto& [a, b] = attributes;
    detail::store_fields(&holder.attribute[0], a, b);
  } else if constexpr (detail::field_count<Attributes> == 3) {
    const auto& [a, b, c] = attributes;
    detail::store_fields(&holder.attribute[0], a, b, c);
  } else {
    const auto& [a, b, c, d] = attributes;
    detail::store_fields(&holder.attribute[0], a, b, c, d);
  }
}

/// `holder` with the attributes of an op: `b.append(with_attributes(builder::make(op, type, shape, a), attributes))`.
template <detail::HoldsAttributes Holder, class Attributes>
[[nodiscard]] constexpr Holder with_attributes(Holder holder, const Attributes& attributes) {
  set_attributes(holder, attributes);
  return holder;
}

}  // namespace espalier
