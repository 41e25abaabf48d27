// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/partition/collectives.hpp>
#include <espalier/partition/memory.hpp>
#include <espalier/partition/schedule.hpp>

namespace espalier {

/// A partitioned program in the order of execution, with every buffer's place: all that the executor needs besides
/// kernels. Arrays of exactly the size.
template <int Instructions, int Units, int Ordered> struct fixed_plan {
  unit units[Units > 0 ? Units : 1]{};
  int order[Ordered > 0 ? Ordered : 1]{};
  int unit_of[Instructions > 0 ? Instructions : 1]{};
  fused_role role[Instructions > 0 ? Instructions : 1]{};
  bool stored[Instructions > 0 ? Instructions : 1]{};
  location where[Instructions > 0 ? Instructions : 1]{};
  int root[Instructions > 0 ? Instructions : 1]{};
  bool copied[Instructions > 0 ? Instructions : 1]{};
  /// Bytes of the one block that holds everything the program computes on the way.
  std::int64_t arena_bytes = 0;
  /// The largest sum of buffers alive at the same time: no arena can be smaller.
  std::int64_t live_bytes = 0;
  static constexpr int unit_count = Units;
  static constexpr int ordered_count = Ordered;
};

namespace detail {

/// How often each instruction runs: the product of the lengths of its loops.
[[nodiscard]] constexpr std::int64_t repetitions(graph_view g, int id) {
  std::int64_t count = 1;
  for (int loop = g[id].loop; loop >= 0; loop = g[loop].loop) count *= g[loop].attribute[0];
  return count;
}

template <int Buffers> struct buffer_table {
  buffer of[Buffers > 0 ? Buffers : 1]{};
  int order[Buffers > 0 ? Buffers : 1]{};
};

template <int Buffers> struct arena_table {
  int placed[Buffers > 0 ? Buffers : 1]{};
  std::int64_t offset[Buffers > 0 ? Buffers : 1]{};
  arena_state state;
};

/// The plan of a frozen graph, made in steps that each stay within a compiler's limits.
template <const auto& Program> struct planned {
  static constexpr int size = Program.size;
  static constexpr int unit_count = make_schedule(Program).units.size();
  static constexpr int ordered_count = make_schedule(Program).order.size();
  using plan_type = fixed_plan<size, unit_count, ordered_count>;

  static constexpr int buffer_count = outline_memory(Program, make_schedule(Program)).buffers.size();
  static constexpr buffer_table<buffer_count> buffers = [] {
    const memory_outline outline = outline_memory(Program, make_schedule(Program));
    buffer_table<buffer_count> table;
    for (int i = 0; i < buffer_count; ++i) table.of[i] = outline.buffers[i];
    sort_buffers(&table.of[0], buffer_count, &table.order[0]);
    return table;
  }();

  /// Buffers are placed forty at a time: each placement looks at all placed before.
  static constexpr int batch = 40;
  static constexpr int batches = (buffer_count + batch - 1) / batch;
  static constexpr arena_table<buffer_count> next_batch(arena_table<buffer_count> table, int n) {
    const int stop = (n + 1) * batch < buffer_count ? (n + 1) * batch : buffer_count;
    place_buffers(&buffers.of[0], &buffers.order[0], n * batch, stop, &table.placed[0], &table.offset[0], table.state);
    return table;
  }
  template <int Batch> struct arena {
    static constexpr arena_table<buffer_count> value = next_batch(arena<Batch - 1>::value, Batch - 1);
  };
  template <int Batch>
    requires(Batch == 0)
  struct arena<Batch> {
    static constexpr arena_table<buffer_count> value{};
  };

  static constexpr plan_type value = [] {
    const schedule s = make_schedule(Program);
    const memory_outline outline = outline_memory(Program, s);
    const arena_table<buffer_count>& table = arena<batches>::value;
    plan_type p;
    for (int u = 0; u < unit_count; ++u) p.units[u] = s.units[u];
    for (int n = 0; n < ordered_count; ++n) p.order[n] = s.order[n];
    list<std::int64_t> base(size, 0);
    for (int b = 0; b < buffer_count; ++b) base[buffers.of[b].value] = table.offset[b];
    for (int id = 0; id < size; ++id) {
      p.unit_of[id] = s.unit_of[id];
      p.role[id] = s.role[id];
      p.stored[id] = s.stored[id];
      p.root[id] = outline.root[id];
      p.copied[id] = outline.copied[id];
      if (outline.root[id] < 0) continue;
      p.where[id] = outline.within[id];
      if (p.where[id].space == memory_space::arena) p.where[id].offset += base[outline.root[id]];
    }
    p.arena_bytes = table.state.size;
    p.live_bytes = live_bytes(&buffers.of[0], buffer_count, unit_count);
    return p;
  }();
};

}  // namespace detail

}  // namespace espalier
