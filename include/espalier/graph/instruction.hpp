// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/diagnostics/source_line.hpp>
#include <espalier/graph/attributes.hpp>
#include <espalier/shape/dtype.hpp>
#include <espalier/sharding/sharding.hpp>

#include <cstdint>

namespace espalier {

struct op_info;

inline constexpr int max_operands = 4;

/// One operation on tensors. Operands and the enclosing loop are indices into the graph's code, always smaller than
/// the instruction's own index, except that a `loop_begin` is its own loop's name.
struct instruction {
  const op_info* op = nullptr;
  dtype type = dtype::f32;
  /// Extents of the result: of the whole tensor before partitioning, of a device's buffer after it.
  extents shape;
  int operand_count = 0;
  int operand[max_operands]{-1, -1, -1, -1};
  /// What the op's own struct says they are: read and written through graph/attributes.hpp.
  std::int64_t attribute[max_attributes]{};
  double scalar = 0;
  /// The `loop_begin` of the innermost enclosing loop, or -1.
  int loop = -1;
  /// Index of a layout in the graph's annotations, or -1.
  int annotation = -1;
  /// After partitioning: the instruction of the traced graph this one was made for.
  int origin = -1;
  source_line where;
  const char* label = nullptr;
};

}  // namespace espalier
