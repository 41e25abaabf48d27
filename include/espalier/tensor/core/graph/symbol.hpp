// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/diagnostics/failure.hpp>
#include <espalier/tensor/core/diagnostics/reasons.hpp>
#include <espalier/tensor/core/graph/builder.hpp>
#include <espalier/tensor/core/graph/operators.hpp>
#include <espalier/tensor/core/shape/tensor.hpp>

#include <concepts>

namespace espalier {

/// A tensor while a program is traced: its type says what it is, its value which instruction computes it.
///
/// Copying one notes the line on which that happened: a function of any number of tensors has no room for a default
/// argument that would ask for the caller's line, but it can take them by value.
template <class Mesh, TensorType Type>
struct symbol : detail::operand<Mesh, Type>,
                detail::assigning_operators<symbol<Mesh, Type>>,
                detail::without_value<symbol<Mesh, Type>, Type> {
  using mesh = Mesh;
  using tensor = Type;
  static constexpr dtype type = Type::type;
  static constexpr int rank = Type::rank;
  static constexpr extents shape = Type::shape;

  using detail::operand<Mesh, Type>::owner;
  using detail::operand<Mesh, Type>::id;
  using detail::operand<Mesh, Type>::seen;

  constexpr symbol() = default;
  constexpr symbol(builder& target, int instruction)
      : detail::operand<Mesh, Type>(&target, instruction, target.where) {}
  constexpr explicit symbol(const detail::operand<Mesh, Type>& other)
      : symbol(other, other.seen.file, other.seen.line) {}
  constexpr symbol(const symbol& other, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : symbol(static_cast<const detail::operand<Mesh, Type>&>(other), file, line) {}
  constexpr symbol& operator=(const symbol& other) = default;
  /// `h = shard<...>(h)` with a mistake in it: the type of h says no more, so the mistake is noted by value.
  template <class Reason> constexpr symbol& operator=(const failed<Reason>& mistake) {
    owner->note(mistake);
    return *this;
  }
  /// `x = sum(x)`: a mistake, since a variable keeps its type.
  template <TensorType Other> constexpr symbol& operator=(const symbol<Mesh, Other>& other) {
    other.owner->note(failed<why::assigned_another_type<Type, Other>>(other.seen));
    return *this;
  }
  constexpr ~symbol() = default;

  /// A mistake: see `take`, `slice` and `gather`.
  constexpr auto operator[](detail::subscript index) const {
    return failed<why::tensor_has_no_subscript<Type>>(index.where);
  }

  /// Notes a use as in `if (tensor)` (see `without_value`), after which no other mistake is reported.
  constexpr void note_use_as_value() const {
    if (owner != nullptr) owner->note(failed<detail::reported>(seen));
  }

  /// The extent of a dimension, in elements; negative dimensions count from the end.
  static constexpr int extent(int dim) { return static_cast<int>(shape[dim < 0 ? dim + rank : dim]); }

 private:
  constexpr symbol(const detail::operand<Mesh, Type>& other, const char* file, int line)
      : detail::operand<Mesh, Type>(other.owner, other.id, {file, line}),
        detail::assigning_operators<symbol>(),
        detail::without_value<symbol, Type>() {}
};

template <class T>
concept Symbol = std::derived_from<T, detail::symbol_tag>;

/// The operands that an op accepts: a tensor, or a mistake that is on its way to being reported.
template <class T>
concept Traced = Symbol<T> || Failed<T>;

namespace detail {

/// A dimension given as -rank ... rank-1, counted from the front; -1 when out of range.
[[nodiscard]] constexpr int dimension(int dim, int rank) {
  if (dim < 0) dim += rank;
  return dim >= 0 && dim < rank ? dim : -1;
}

/// Instruction `id` as a tensor of its own, with an annotation of its own (in ops/reshape.hpp).
[[nodiscard]] constexpr int unchanged(builder& b, int id);

/// The mesh of what an op makes of tensors on two meshes: all tensors of a program have the same. Where code is written
/// for one shard, a tensor's mesh also says along which axes devices differ (program/manual.hpp).
template <class Mesh, class Other> struct common_mesh { using type = Mesh; };
template <class First, class... Rest> struct mesh_of_all { using type = typename First::mesh; };
template <class First, class Second, class... Rest>
struct mesh_of_all<First, Second, Rest...>
    : mesh_of_all<
          symbol<typename common_mesh<typename First::mesh, typename Second::mesh>::type, typename First::tensor>,
          Rest...> {};
template <class... Operands> using operands_mesh = typename mesh_of_all<Operands...>::type;

/// The result of an op on `like`, and `others`. One that does nothing for these sizes is another tensor all the same:
/// whether it may be annotated otherwise than `like` does not depend on sizes.
template <class Like, TensorType Type, class... Others>
constexpr auto symbol_like(const Like& like, int id, const Others&... /*others*/) {
  return symbol<operands_mesh<Like, Others...>, Type>(*like.owner, id == like.id ? unchanged(*like.owner, id) : id);
}

}  // namespace detail

}  // namespace espalier
