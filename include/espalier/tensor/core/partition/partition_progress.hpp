// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/graph.hpp>

#include <cstdint>

namespace espalier {

/// The mistakes that partitioning finds.
enum class partition_fault : std::uint8_t {
  nothing,
  op_without_rule,
  /// A sum that was to stay partial meets an op that needs it whole.
  partial_sum_dropped,
  /// An annotation says that a sum is partial where none is.
  no_partial_sum,
};

namespace detail {

/// A reshard that was made before, to be used again where it is in scope, and the next one of the same value.
struct value_variant {
  int value = -1;
  int next = -1;
};

/// A sum that waits for more terms: its value so far is a partial, to which the rest, which is whole on every device,
/// is added when the partial has been reduced (partition/open_sums.hpp).
struct open_sum {
  /// The traced instruction, and the value of the device's program that is the rest.
  int id = -1;
  int rest = -1;
};
/// The number of sums that may be open at the same time.
inline constexpr int most_open_sums = 8;

/// The progress of partitioning, in arrays: a long graph is partitioned chunk by chunk, each in a constant evaluation
/// of its own. `Size` is that of the whole graph.
template <int Size, int Room> struct partition_progress {
  static constexpr int size = Size > 0 ? Size : 1;

  roomy_graph<Room, Room, Room, Room> program;
  int origin[Room]{};
  int first_variant[Room]{};
  value_variant variants[Room]{};
  int variant_count = 0;
  int value[size]{};
  int terms[size]{};
  open_sum open[most_open_sums]{};
  int open_count = 0;
  int region = -1;
  bool hoisted = false;
  partition_fault fault = partition_fault::nothing;
  int fault_at = -1;
};

}  // namespace detail

}  // namespace espalier
