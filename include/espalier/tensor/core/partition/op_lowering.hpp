// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/lowering.hpp>
#include <espalier/tensor/core/partition/device_values.hpp>

namespace espalier::detail {

/// The partitioner as an op sees it that is lowered in steps of its own.
class op_lowering final : public partition_context {
 public:
  constexpr op_lowering(const completed_program& traced, device_values& device, int id)
      : traced_(traced), device_(device), id_(id) {}
  [[nodiscard]] constexpr const mesh_shape& mesh() const override { return traced_.mesh; }
  [[nodiscard]] constexpr op_view op() const override { return {traced_.g.code, id_, traced_.g.windows}; }
  [[nodiscard]] constexpr const factor_rule& rule() const override { return traced_.rules[id_]; }
  [[nodiscard]] constexpr const sharding& completed_layout() const override { return traced_.of[id_]; }
  [[nodiscard]] constexpr int operand(int k) const override {
    return device_.value[traced_.g.operand_at(traced_.g[id_], k)];
  }
  [[nodiscard]] constexpr const layout& layout_of(int value) const override { return device_.layout_of(value); }
  constexpr int reshard(int value, const sharding& to) override {
    const int moved = device_.reshard(value, to);
    const instruction& self = traced_.g[id_];
    for (int k = 0; k < self.operand_count; ++k) {
      if (value == operand(k)) return device_.rounded(traced_.g.operand_at(self, k), moved);
    }
    return moved;
  }
  constexpr int append(const instruction& step, const extents& shape, const sharding& placement) override {
    instruction widened = step;
    device_.widen(widened, &widened.operand[0],
                  widened.operand_count < inline_operands ? widened.operand_count : inline_operands);
    return device_.program.append(widened, shape, placement);
  }
  constexpr int merge_dimensions(int value, const extents& merged, const sharding& placement,
                                 const placed_windows& windows) override {
    return device_.program.merge_dimensions(value, merged, placement, windows);
  }
  constexpr void give(int number, int value) override { device_.value[id_ + number] = value; }
  constexpr int read_through(int value, const sharding& to, const placed_windows& windows) override {
    return device_.program.read_through(value, to, windows);
  }

 private:
  const completed_program& traced_;
  device_values& device_;
  int id_;
};

}  // namespace espalier::detail
