// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/partition/collectives.hpp>
#include <espalier/tensor/core/partition/memory.hpp>
#include <espalier/tensor/core/partition/pass_chunks.hpp>
#include <espalier/tensor/core/partition/row_regions.hpp>
#include <espalier/tensor/core/partition/scaled_operands.hpp>
#include <espalier/tensor/core/partition/scheduler.hpp>

namespace espalier {

/// A partitioned program in the order of execution, with every buffer's place: all that the executor needs besides
/// kernels. Arrays of exactly the size.
template <int Instructions, int Launches, int Ordered> struct fixed_plan {
  launch launches[Launches > 0 ? Launches : 1]{};
  int order[Ordered > 0 ? Ordered : 1]{};
  int launch_of[Instructions > 0 ? Instructions : 1]{};
  fused_role role[Instructions > 0 ? Instructions : 1]{};
  bool stored[Instructions > 0 ? Instructions : 1]{};
  location where[Instructions > 0 ? Instructions : 1]{};
  int root[Instructions > 0 ? Instructions : 1]{};
  bool copied[Instructions > 0 ? Instructions : 1]{};
  /// The copies of `memory_outline`, then -1 in the rest of `copies`; also -1 for a value that is not saved.
  int copies[Instructions > 0 ? Instructions : 1]{};
  std::int64_t saved_at[Instructions > 0 ? Instructions : 1]{};
  /// Bytes of the one block that holds everything the program computes on the way.
  std::int64_t arena_bytes = 0;
  /// The largest sum of buffers alive at the same time: no arena can be smaller.
  std::int64_t live_bytes = 0;
  static constexpr int launch_count = Launches;
  static constexpr int ordered_count = Ordered;
};

/// A view of a plan for lowering and execution, whether the plan was made by the compiler or at run time.
struct plan_view {
  const launch* launches = nullptr;
  int launch_count = 0;
  const int* order = nullptr;
  const int* launch_of = nullptr;
  const fused_role* role = nullptr;
  const bool* stored = nullptr;
  const location* where = nullptr;
  const int* root = nullptr;
  const bool* copied = nullptr;
  const int* copies = nullptr;
  const std::int64_t* saved_at = nullptr;
  std::int64_t arena_bytes = 0;

  constexpr plan_view() = default;
  template <int Instructions, int Launches, int Ordered>
  constexpr plan_view(const fixed_plan<Instructions, Launches, Ordered>& source)  // NOLINT(google-explicit-constructor)
      : launches(&source.launches[0]),
        launch_count(Launches),
        order(&source.order[0]),
        launch_of(&source.launch_of[0]),
        role(&source.role[0]),
        stored(&source.stored[0]),
        where(&source.where[0]),
        root(&source.root[0]),
        copied(&source.copied[0]),
        copies(&source.copies[0]),
        saved_at(&source.saved_at[0]),
        arena_bytes(source.arena_bytes) {}
};

namespace detail {

/// Returns how often each instruction runs: the product of the lengths of its loops.
[[nodiscard]] constexpr std::int64_t repetitions(graph_view g, int id) {
  std::int64_t count = 1;
  for (int region = g[id].region; region >= 0; region = g[region].region) {
    count *= attributes_of<region_attributes>(g[region]).iterations;
  }
  return count;
}

/// What a run takes of something, bytes or operations, of which instructions take some each time that they run. Of
/// branches only the one counts that takes most, with all regions that run when it does: those that read the same
/// value.
class run_total {
 public:
  constexpr explicit run_total(graph_view g) : g_(g) {}

  constexpr void add(int id, std::int64_t amount) {
    const int branch = add_outside(g_[id].region, amount);
    if (branch < 0) return;
    in_branch_.resize(g_.size, 0);
    in_branch_[branch] += amount_;
  }
  [[nodiscard]] constexpr std::int64_t total() {
    // The regions in a branch come after its beginning, and so do all other branches of the first one's value.
    for (int id = in_branch_.size() - 1; id >= 0; --id) {
      if (!is_first(id)) continue;
      const int branch = add_outside(g_[id].region, largest(id));
      if (branch >= 0) in_branch_[branch] += amount_;
    }
    in_branch_.clear();
    return total_;
  }

 private:
  /// Adds an amount of region `inside` if no branch is around it; else returns the innermost, in which it is `amount_`.
  constexpr int add_outside(int inside, std::int64_t amount) {
    amount_ = amount;
    for (int region = inside; region >= 0; region = g_[region].region) {
      if (region_kind_of(g_[region]) == region_kind::branch) return region;
      amount_ *= attributes_of<region_attributes>(g_[region]).iterations;
    }
    total_ += amount_;
    return -1;
  }
  [[nodiscard]] constexpr bool is_branch(int id) const {
    return structure_of(g_[id]) == structure::region_begin && region_kind_of(g_[id]) == region_kind::branch;
  }
  [[nodiscard]] constexpr bool reads_alike(int a, int b) const {
    return g_[a].operand[0] == g_[b].operand[0] && g_[a].region == g_[b].region;
  }
  [[nodiscard]] constexpr bool is_first(int id) const {
    if (!is_branch(id)) return false;
    for (int other = 0; other < id; ++other) {
      if (is_branch(other) && reads_alike(id, other)) return false;
    }
    return true;
  }
  /// The most that the branches with the value of the first one take, of all numbers.
  [[nodiscard]] constexpr std::int64_t largest(int first) const {
    std::int64_t most = 0;
    for (int one = first; one < g_.size; ++one) {
      if (!is_branch(one) || !reads_alike(one, first)) continue;
      std::int64_t sum = 0;
      for (int other = first; other < g_.size; ++other) {
        const bool runs_too =
            is_branch(other) && reads_alike(other, first) && branch_number(g_[other]) == branch_number(g_[one]);
        if (runs_too) sum += in_branch_[other];
      }
      most = sum > most ? sum : most;
    }
    return most;
  }

  graph_view g_;
  std::int64_t total_ = 0;
  std::int64_t amount_ = 0;
  /// By `region_begin`; empty as long as no branch takes anything.
  list<std::int64_t> in_branch_;
};

/// The result of `outline_memory`, in arrays that outlive a constant evaluation.
template <int Instructions> struct fixed_outline {
  static constexpr int room = Instructions > 0 ? Instructions : 1;
  int root[room]{};
  location within[room]{};
  bool copied[room]{};
  int copies[room]{};
  bool saved[room]{};
  buffer buffers[room]{};
  int buffer_count = 0;
};

template <int Instructions>
[[nodiscard]] constexpr fixed_outline<Instructions> freeze_outline(const memory_outline& outline) {
  fixed_outline<Instructions> result;
  for (int id = 0; id < Instructions; ++id) {
    result.root[id] = outline.root[id];
    result.copied[id] = outline.copied[id];
    result.copies[id] = id < outline.copies.size() ? outline.copies[id] : -1;
    result.saved[id] = outline.saved[id];
    if (outline.root[id] >= 0) result.within[id] = outline.within[id];
  }
  result.buffer_count = outline.buffers.size();
  for (int i = 0; i < result.buffer_count; ++i) result.buffers[i] = outline.buffers[i];
  return result;
}

template <int Buffers> struct buffer_table {
  buffer of[Buffers > 0 ? Buffers : 1]{};
  int order[Buffers > 0 ? Buffers : 1]{};
};

template <int Buffers> struct arena_table {
  std::int64_t offset[Buffers > 0 ? Buffers : 1]{};
  std::int64_t size = 0;
};

/// The plan of a frozen graph, made in steps that each stay within a compiler's limits.
template <class Mesh, const auto& Program> struct planned {
  static constexpr int size = Program.size;

  /// The schedule is made chunk by chunk; which values have to be in memory is known when it is complete.
  using cut = pass_chunks<size, 512>;
  template <int Chunk> static constexpr scheduler started() {
    if constexpr (Chunk == 0) {
      return scheduler(Program);
    } else {
      return scheduler(Program, placed<Chunk - 1>::value);
    }
  }
  template <int Chunk> static constexpr schedule_progress<size> run_chunk() {
    scheduler work = started<Chunk>();
    work.run(cut::first(Chunk), cut::last(Chunk));
    return work.template save<size>();
  }
  template <int Chunk> struct placed { static constexpr schedule_progress<size> value = run_chunk<Chunk>(); };
  static constexpr fixed_schedule<size> with_regions = [] {
    schedule made = scheduler(Program, placed<cut::count - 1>::value).finish();
    form_row_regions(Program, made);
    return freeze_schedule<size>(made);
  }();
  /// Most programs have no row regions: nothing more is to be done.
  static constexpr bool has_regions = has_row_regions(with_regions);
  template <bool HasRegions> struct finished {
    static constexpr fixed_schedule<size> value = scale_where_read(Program, with_regions);
  };
  template <bool HasRegions>
    requires(!HasRegions)
  struct finished<HasRegions> {
    static constexpr const fixed_schedule<size>& value = with_regions;
  };
  static constexpr const fixed_schedule<size>& scheduled = finished<has_regions>::value;

  static constexpr fixed_outline<size> outline = freeze_outline<size>(outline_memory(Mesh::value, Program, scheduled));
  static constexpr int launch_count = scheduled.launch_count;
  static constexpr int ordered_count = scheduled.ordered_count;
  static constexpr int buffer_count = outline.buffer_count;
  using plan_type = fixed_plan<size, launch_count, ordered_count>;

  static constexpr buffer_table<buffer_count> buffers = [] {
    buffer_table<buffer_count> table;
    for (int i = 0; i < buffer_count; ++i) table.of[i] = outline.buffers[i];
    sort_buffers(&table.of[0], buffer_count, &table.order[0]);
    return table;
  }();

  /// Many buffers are placed in several goes: each takes up what those before it have placed.
  static constexpr int goes = buffer_count <= 128 * length_of_evaluations ? 1 : buffer_count <= 2048 ? 4 : 12;
  static constexpr arena_table<buffer_count> next_go(arena_table<buffer_count> table, int n) {
    table.size = place_buffers(&buffers.of[0], &buffers.order[0], n * buffer_count / goes,
                               (n + 1) * buffer_count / goes, launch_count, &table.offset[0]);
    return table;
  }
  template <int Goes> struct arena {
    static constexpr arena_table<buffer_count> value = next_go(arena<Goes - 1>::value, Goes - 1);
  };
  template <int Goes>
    requires(Goes == 0)
  struct arena<Goes> {
    static constexpr arena_table<buffer_count> value{};
  };

  static constexpr plan_type value = [] {
    const arena_table<buffer_count>& table = arena<goes>::value;
    plan_type p;
    for (int u = 0; u < launch_count; ++u) p.launches[u] = scheduled.launches[u];
    for (int n = 0; n < ordered_count; ++n) p.order[n] = scheduled.order[n];
    list<std::int64_t> base(size, 0);
    for (int b = 0; b < buffer_count; ++b) base[buffers.of[b].value] = table.offset[b];
    for (int id = 0; id < size; ++id) {
      p.launch_of[id] = scheduled.launch_of[id];
      p.role[id] = scheduled.role[id];
      p.stored[id] = scheduled.stored[id];
      p.root[id] = outline.root[id];
      p.copied[id] = outline.copied[id];
      p.copies[id] = outline.copies[id];
      p.saved_at[id] = outline.saved[id] ? base[id] : -1;
      if (outline.root[id] < 0) continue;
      p.where[id] = outline.within[id];
      if (p.where[id].space == memory_space::arena) p.where[id].offset += base[outline.root[id]];
    }
    p.arena_bytes = table.size;
    p.live_bytes = live_bytes(&buffers.of[0], buffer_count, launch_count);
    return p;
  }();
};

}  // namespace detail

}  // namespace espalier
