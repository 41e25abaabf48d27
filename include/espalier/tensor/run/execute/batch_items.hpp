// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/object_vector.hpp>
#include <espalier/base/light_std/place_in.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/tensor/run/execute/causal.hpp>
#include <espalier/tensor/run/execute/tables.hpp>

#include <cstdint>
#include <utility>
#include <vector>

// Neighbouring launches that all work on the same independent items, such as the heads of attention, may take the first
// item through all of them before they touch the second. The values that they hand to each other are then still in the
// cache, and a value that no other launch reads is never written to memory: it lives in a buffer of one item's size.

namespace espalier::detail {

/// A value that a launch reads or writes in memory. `chunk`: bytes of one item, if the items of the value follow each
/// other in memory and the launch touches only the item it works on; else 0.
struct item_access {
  int value = -1;
  std::int64_t chunk = 0;
  bool writes = false;
};

/// A value that only the group reads: one item of it exists at a time, for each thread.
struct item_local {
  int value = -1;
  std::int64_t chunk = 0;
  std::int64_t offset = 0;  // in the thread's buffer
};

/// Launches [first, last] of a program that run item by item.
struct item_group {
  struct member {
    int launch = -1;
    /// Runs as a whole, before all items: it needs nothing that the group makes.
    bool whole = false;
    /// A product of which only the lower triangle is read, by these chains.
    bool lower_triangle = false;
    std::vector<int> readers;
    plain_vector<item_access> accesses;
  };
  int first = -1;
  int last = -1;
  std::int64_t items = 0;
  object_vector<member> members;
  plain_vector<item_local> locals;
  std::int64_t local_bytes = 0;

  [[nodiscard]] const item_local* local(int value) const {
    for (const item_local& l : locals) {
      if (l.value == value) return &l;
    }
    return nullptr;
  }
};

/// Finds the groups of a program.
class item_finder {
 public:
  item_finder(const program_tables& t, const causal_finder& causal) : t_(t), causal_(causal) {}

  /// A product of fewer items begins no group.
  static constexpr std::int64_t fewest_items = 4;

  [[nodiscard]] object_vector<item_group> run() {
    object_vector<item_group> groups;
    for (int u = 0; u < t_.launch_count; ++u) {
      item_group group = from(u);
      if (group.last < 0) continue;
      u = group.last;
      groups.push_back(std::move(group));
    }
    return groups;
  }

 private:
  using member = item_group::member;

  /// More than this, and an item does not stay in the second-level cache anyway.
  static constexpr std::int64_t most_bytes = 1 << 20;

  [[nodiscard]] int instruction_of(int u) const { return t_.order[t_.launches[u].first]; }
  [[nodiscard]] bool is_product(int u) const {
    const instruction& i = t_.code[instruction_of(u)];
    return !t_.launches[u].fused && t_.launches[u].region_end < 0 && i.op->facts.contracts && is_floating(i.type);
  }
  /// Launches that only say where something lies.
  [[nodiscard]] bool is_idle(int u) const {
    const instruction& i = t_.code[instruction_of(u)];
    return !t_.launches[u].fused && !has_kernel(i) && !marks_region(structure_of(i)) &&
           structure_of(i) != structure::result && collective_index(i.op) < 0;
  }

  /// The group that starts with the batched product of launch `u`; without a `last` if it is none.
  [[nodiscard]] item_group from(int u) const {
    item_group group;
    if (!is_product(u)) return group;
    group.first = u;
    group.items = plan_at(u).iterations;
    if (group.items < fewest_items) return {};
    int blocked = 0;
    int last = -1;
    std::size_t kept = 0;
    for (int n = u; n < t_.launch_count; ++n) {
      if (is_idle(n)) continue;
      if (t_.launches[n].region_end >= 0) break;
      member next = describe(n, group.items);
      // A chain that needs nothing from the group gains nothing by it, and may be needed by all items.
      const bool joins = is_product(n) || reads_from(group, next);
      const bool fits = next.launch >= 0 && joins && hands_over(group, next);
      if (!fits) {
        next = as_whole(n);
        if (next.launch < 0 || reads_from(group, next)) break;
      }
      group.members.push_back(std::move(next));
      if (!fits) continue;
      ++blocked;
      last = n;
      kept = group.members.size();
    }
    group.members.resize(kept);
    if (blocked < 2 || !has_flow(group) || bytes_of_item(group) > most_bytes) return {};
    group.last = last;
    find_locals(group);
    for (std::size_t n = 0; n < group.members.size(); ++n) find_lower_triangle(group, n);
    return group;
  }

  [[nodiscard]] kernels::gemm_plan plan_at(int u) const {
    const kernels::kernel_key key = key_of(t_.code, instruction_of(u));
    return plan_for(contraction_for(key), key.operand_type[0], key.operand_type[1], key.type);
  }

  /// Returns what launch `u` touches when it works on one of `items` items; a `member` without a launch if it cannot.
  [[nodiscard]] member describe(int u, std::int64_t items) const {
    if (t_.launches[u].fused) return describe_chain(u, items);
    return is_product(u) ? describe_product(u, items) : member{};
  }

  [[nodiscard]] member describe_product(int u, std::int64_t items) const {
    const kernels::gemm_plan plan = plan_at(u);
    if (plan.iterations != items || plan.scratch_elements != 0 || plan.kind == product_kind::empty) return {};
    const int id = instruction_of(u);
    const instruction& i = t_.code[id];
    const bool by_row_and_column = plan.kind == product_kind::gemm;
    // Farthest element of an innermost product, in the order they are multiplied.
    const std::int64_t m = plan.m - 1;
    const std::int64_t n = plan.n - 1;
    const std::int64_t k = plan.k - 1;
    std::int64_t far_a = m * plan.a_row + k * plan.a_column;
    std::int64_t far_b = k * plan.b_row + n * plan.b_column;
    const std::int64_t far_c = m * plan.c_row + n * plan.c_column;
    for (int s = 0; s < plan.sum_loop_count; ++s) {
      far_a += (plan.sum_loops[s].extent - 1) * plan.sum_loops[s].a;
      far_b += (plan.sum_loops[s].extent - 1) * plan.sum_loops[s].b;
    }
    const auto chunk_of = [&](std::int64_t loop_axis::*stride, std::int64_t farthest, int value) {
      const std::int64_t elements = t_.code[value].shape.elements();
      const std::int64_t chunk = elements / items;
      if (!by_row_and_column || chunk * items != elements || farthest >= chunk) return std::int64_t{0};
      for (std::int64_t p = 0; p < items; ++p) {
        if (locate(plan.loops, plan.loop_count, p).*stride != p * chunk) return std::int64_t{0};
      }
      return chunk * size_of(t_.code[value].type);
    };
    const int left = i.operand[plan.swapped ? 1 : 0];
    const int right = i.operand[plan.swapped ? 0 : 1];
    member made;
    made.launch = u;
    made.accesses.push_back({left, chunk_of(&loop_axis::a, far_a, left), false});
    made.accesses.push_back({right, chunk_of(&loop_axis::b, far_b, right), false});
    made.accesses.push_back({id, chunk_of(&loop_axis::c, far_c, id), true});
    return made;
  }

  [[nodiscard]] member describe_chain(int u, std::int64_t items) const {
    const fused_chain& chain = t_.chains[u];
    const std::int64_t rows = chain.rows / items;
    if (rows * items != chain.rows || rows % chain.block_rows != 0) return {};
    member made;
    made.launch = u;
    const auto add = [&](const fused_source& source, dtype type, bool writes) {
      if (source.kind == source_kind::shifted) made.accesses.push_back({source.value, 0, false});
      if (source.kind != source_kind::memory) return;
      const row_map& map = source.rows;
      const bool dense = map.terms == 1 && map.divide[0] == 1 && map.modulo[0] == chain.rows;
      const std::int64_t chunk = dense ? rows * map.stride[0] * size_of(type) : 0;
      const bool whole = chunk * items == bytes_of(t_.code[source.value]);
      made.accesses.push_back({source.value, whole ? chunk : 0, writes});
    };
    for (int s = chain.first_step; s < chain.first_step + chain.step_count; ++s) {
      const fused_step& step = t_.steps[s];
      if (step.accumulates) return {};
      for (int k = 0; k < step.operand_count; ++k) add(step.operand[k], step.operand_type[k], false);
      add(step.result, step.type, true);
    }
    return made;
  }

  /// Launch `u` as one that runs before all items.
  [[nodiscard]] member as_whole(int u) const {
    member made;
    if (!t_.launches[u].fused && !has_kernel(t_.code[instruction_of(u)])) return made;
    made.launch = u;
    made.whole = true;
    const launch& what = t_.launches[u];
    for (int n = what.first; n < what.first + what.count; ++n) {
      const instruction& i = t_.code[t_.order[n]];
      for (int k = 0; k < i.operand_count; ++k) add_read(made, t_.code.operand_at(i, k));
      if (t_.root[t_.order[n]] >= 0) made.accesses.push_back({t_.order[n], 0, true});
    }
    return made;
  }
  /// A value without memory is made from what it repeats.
  void add_read(member& made, int value) const {
    if (t_.root[value] >= 0) {
      made.accesses.push_back({value, 0, false});
      return;
    }
    const instruction& i = t_.code[value];
    for (int k = 0; k < i.operand_count; ++k) add_read(made, t_.code.operand_at(i, k));
  }

  [[nodiscard]] const item_access* writer(const item_group& group, int value) const {
    for (const member& m : group.members) {
      for (const item_access& a : m.accesses) {
        if (a.writes && t_.root[a.value] == t_.root[value]) return &a;
      }
    }
    return nullptr;
  }
  /// Whether `next` reads, of what the group makes item by item, only the item it works on.
  [[nodiscard]] bool hands_over(const item_group& group, const member& next) const {
    for (const item_access& a : next.accesses) {
      if (a.writes) continue;
      for (const member& m : group.members) {
        if (m.whole) continue;
        for (const item_access& made : m.accesses) {
          if (!made.writes || t_.root[made.value] != t_.root[a.value]) continue;
          if (made.value != a.value || made.chunk == 0 || made.chunk != a.chunk) return false;
        }
      }
    }
    return true;
  }
  [[nodiscard]] bool reads_from(const item_group& group, const member& next) const {
    for (const item_access& a : next.accesses) {
      for (const member& m : group.members) {
        if (m.whole) continue;
        for (const item_access& made : m.accesses) {
          if ((made.writes || a.writes) && t_.root[made.value] == t_.root[a.value]) return true;
        }
      }
    }
    return false;
  }
  [[nodiscard]] bool has_flow(const item_group& group) const {
    for (const member& m : group.members) {
      for (const item_access& a : m.accesses) {
        const item_access* const made = a.writes || m.whole ? nullptr : writer(group, a.value);
        if (made != nullptr && made->chunk > 0) return true;
      }
    }
    return false;
  }
  [[nodiscard]] static std::int64_t bytes_of_item(const item_group& group) {
    std::int64_t bytes = 0;
    std::vector<int> seen;
    for (const member& m : group.members) {
      for (const item_access& a : m.accesses) {
        if (m.whole || place_in(seen, a.value) >= 0) continue;
        seen.push_back(a.value);
        bytes += a.chunk;
      }
    }
    return bytes;
  }

  void find_locals(item_group& group) const {
    for (const member& m : group.members) {
      if (m.whole) continue;
      for (const item_access& a : m.accesses) {
        if (!a.writes || a.chunk == 0 || !is_local(group, a.value)) continue;
        group.locals.push_back({a.value, a.chunk, group.local_bytes});
        group.local_bytes += aligned(a.chunk);
      }
    }
  }
  [[nodiscard]] bool is_local(const item_group& group, int value) const {
    if (t_.root[value] != value || t_.where[value].space != memory_space::arena) return false;
    for (int id = 0; id < t_.code.size; ++id) {
      if (id != value && t_.root[id] == value) return false;
      for (int k = 0; k < t_.code[id].operand_count; ++k) {
        if (t_.code.operand_at(t_.code[id], k) != value) continue;
        bool inside = false;
        for (const member& m : group.members) inside = inside || (!m.whole && m.launch == t_.launch_of[id]);
        if (!inside) return false;
      }
    }
    return true;
  }

  /// Finds out whether a product's items are squares that only chains under a causal mask read, and nothing is written
  /// meanwhile where its operands lie: it may have to be made as a whole after all.
  void find_lower_triangle(item_group& group, std::size_t n) const {
    member& m = group.members[n];
    if (m.whole || t_.launches[m.launch].fused || group.local(instruction_of(m.launch)) == nullptr) return;
    const int made = instruction_of(m.launch);
    const kernels::gemm_plan plan = plan_at(m.launch);
    if (plan.m != plan.n || plan.c_row != plan.n || plan.c_column != 1) return;
    std::vector<int> readers;
    for (int id = 0; id < t_.code.size; ++id) {
      const instruction& i = t_.code[id];
      bool reads = false;
      for (int k = 0; k < i.operand_count; ++k) reads = reads || t_.code.operand_at(i, k) == made;
      if (!reads) continue;
      if (t_.launch_of[id] < 0 || causal_.side(t_.launch_of[id]) != plan.n) return;
      readers.push_back(t_.launch_of[id]);
    }
    for (std::size_t later = n + 1; later < group.members.size(); ++later) {
      if (overwrites(group, group.members[later], t_.code[made])) return;
      if (group.members[later].launch == readers.back()) break;
    }
    m.lower_triangle = true;
    m.readers = std::move(readers);
  }
  [[nodiscard]] bool overwrites(const item_group& group, const member& later, const instruction& product) const {
    for (const item_access& a : later.accesses) {
      if (!a.writes || group.local(a.value) != nullptr) continue;
      for (int k = 0; k < product.operand_count; ++k) {
        if (may_overlap(a.value, product.operand[k])) return true;
      }
    }
    return false;
  }
  /// Whether the buffers that two values are in have bytes in common.
  [[nodiscard]] bool may_overlap(int a, int b) const {
    const location& one = t_.where[t_.root[a]];
    const location& other = t_.where[t_.root[b]];
    if (one.space != other.space || one.index != other.index) return false;
    if (one.alternates || other.alternates) return true;
    return one.offset < other.offset + bytes_of(t_.code[t_.root[b]]) &&
           other.offset < one.offset + bytes_of(t_.code[t_.root[a]]);
  }

  const program_tables& t_;
  const causal_finder& causal_;
};

/// Whether the items of a group may really run in any order where its values lie now: the memory plan lets values share
/// a place if their launches run one after the other. `address(value)` is where a value that is not local lies.
template <class Address>
[[nodiscard]] bool items_are_independent(const program_tables& t, const item_group& group, const Address& address) {
  struct range {
    const char* begin;
    const char* end;
    const item_group::member* of;
    const item_access* access;
  };
  // On the stack: a run allocates nothing.
  constexpr std::size_t most = 96;
  range ranges[most];
  std::size_t count = 0;
  for (const item_group::member& m : group.members) {
    for (const item_access& a : m.accesses) {
      if (group.local(a.value) != nullptr) continue;
      if (count == most) return false;
      const char* const begin = static_cast<const char*>(address(a.value));
      ranges[count++] = {begin, begin + bytes_of(t.code[a.value]), &m, &a};
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const range& x = ranges[i];
      const range& y = ranges[j];
      if (!x.access->writes && !y.access->writes) continue;
      if (x.end <= y.begin || y.end <= x.begin) continue;
      // A whole launch that comes first and is read later: as it would be.
      if (y.of->whole && (x.of->whole || x.access->value == y.access->value)) continue;
      const bool same_items = !x.of->whole && !y.of->whole && x.begin == y.begin && x.access->chunk > 0 &&
                              x.access->chunk == y.access->chunk;
      const bool same_launch =
          x.of == y.of && x.access->value == y.access->value && x.access->writes == y.access->writes;
      if (!same_items && !same_launch) return false;
    }
  }
  return true;
}

/// The items of a compiled program's launch of kind `Kind` that is a product: what the finder asks for it; 0 if it is
/// none.
template <class Program, int Kind> [[nodiscard]] constexpr std::int64_t items_of_product() {
  using product = lifted_launch<Program, Kind>;
  constexpr kernels::kernel_key key = product::key;
  if constexpr (product::op->facts.contracts && is_floating(key.type)) {
    return static_plan<contraction_for(key), key.operand_type[0], key.operand_type[1], key.type>.iterations;
  } else {
    return 0;
  }
}

}  // namespace espalier::detail
