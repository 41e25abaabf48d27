// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/factor_axes.hpp>
#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/graph/op.hpp>

namespace espalier {

/// The partitioner as it serves an op that is lowered in steps of its own (`op_info::lower`). Values are instructions
/// of the program of one device; those of the op's operands exist already, in layouts that other ops decided on.
class partition_context {
 public:
  [[nodiscard]] constexpr virtual const mesh_shape& mesh() const = 0;
  /// The op in the traced graph: whole tensors.
  [[nodiscard]] constexpr virtual op_view op() const = 0;
  [[nodiscard]] constexpr virtual const factor_rule& rule() const = 0;
  /// The layout of the result that completion chose. The value that `lower` returns may have another layout, and is
  /// resharded.
  [[nodiscard]] constexpr virtual const sharding& completed_layout() const = 0;
  /// The value of operand k.
  [[nodiscard]] constexpr virtual int operand(int k) const = 0;
  [[nodiscard]] constexpr virtual const layout& layout_of(int value) const = 0;

  /// The value in another layout.
  constexpr virtual int reshard(int value, const sharding& to) = 0;
  /// An instruction on local buffers, whose result is the part of a tensor of this shape that `placement` says.
  constexpr virtual int append(const instruction& step, const extents& shape, const sharding& placement) = 0;
  /// The value's buffers as those of a tensor of another shape with the same elements, in which some dimensions are
  /// merged: windows say which elements of those a device has.
  constexpr virtual int merge_dimensions(int value, const extents& merged, const sharding& placement,
                                         const placed_windows& windows) = 0;
  /// Names the value of the op's result `number`, 1 or more, where it has several: all of them, each appended directly
  /// after the instruction that `lower` returns.
  constexpr virtual void give(int number, int value) = 0;
  /// The elements that windows need of a value, and those alone: what a device lacks comes from others in one exchange.
  /// @param to how the other dimensions are laid out, and which axes split the factors of the windows
  constexpr virtual int read_through(int value, const sharding& to, const placed_windows& windows) = 0;

 protected:
  constexpr partition_context() = default;
  constexpr partition_context(const partition_context&) = default;
  constexpr partition_context& operator=(const partition_context&) = default;
  constexpr ~partition_context() = default;
};

namespace detail {

/// The layout in which another dimension than `along` is split by the axes that split that one, if one is long enough.
[[nodiscard]] constexpr bool split_elsewhere(const mesh_shape& mesh, const extents& shape, int along,
                                             sharding& placed) {
  const axis_list axes = placed.dim[along];
  for (int d = 0; d < shape.rank; ++d) {
    const axis_list both = placed.dim[d].followed_by(axes);
    if (d == along || placed.dim[d].size() + axes.size() > max_axes || !divides_evenly(mesh, shape[d], both)) continue;
    placed.dim[d] = both;
    placed.dim[along] = {};
    return true;
  }
  return false;
}

}  // namespace detail

}  // namespace espalier
