// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/object_vector.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/tensor/run/execute/causal.hpp>
#include <espalier/tensor/run/execute/tables.hpp>

#include <cstdint>
#include <numeric>
#include <utility>

namespace espalier::detail {

/// A value of which a thread has a few rows at a time.
struct row_local {
  int value = -1;
  std::int64_t row_bytes = 0;
  std::int64_t offset = 0;  // in the thread's buffer
};

/// A row region as it runs (partition/row_regions.hpp): its launches take turns for `block` rows of an item.
struct row_region {
  struct member {
    int launch = -1;
    /// Null for a chain.
    const kernels::row_kernel* product = nullptr;
    std::int64_t scratch_at = 0;  // in the thread's buffer
    /// The product needs no keys after those that a causal mask lets its last row see, while the chains leave these
    /// out.
    bool follows_mask = false;
    /// A chain all of whose scores are read so.
    bool clears_little = false;
  };
  int first = -1;
  int last = -1;
  std::int64_t items = 1;
  std::int64_t rows = 1;
  std::int64_t keys = 1;
  std::int64_t block = 1;
  /// Neighbouring items that a thread takes together, since they are summed up to the same result.
  std::int64_t together = 1;
  bool sums = false;
  /// Some chains may need lower triangles only.
  bool may_see_triangles = false;
  plain_vector<member> members;
  plain_vector<row_local> locals;
  std::int64_t bytes = 0;  // of a thread's buffer

  [[nodiscard]] std::int64_t blocks() const { return (rows + block - 1) / block; }
  [[nodiscard]] const row_local* local(int value) const {
    for (const row_local& l : locals) {
      if (l.value == value) return &l;
    }
    return nullptr;
  }
};

/// Collects the row regions of a program.
class row_region_reader {
 public:
  row_region_reader(const program_tables& t, const causal_finder& causal) : t_(t), causal_(causal) {}

  [[nodiscard]] object_vector<row_region> run() const {
    object_vector<row_region> all;
    if (t_.row_kernels == nullptr) return all;
    for (int u = 0; u < t_.launch_count; ++u) {
      if (t_.launches[u].region_end < 0) continue;
      all.push_back(read(u));
      u = t_.launches[u].region_end;
    }
    return all;
  }

 private:
  /// The scores of a block, of all values together, take up to so many bytes: they stay in the second-level cache.
  static constexpr std::int64_t most_bytes = 640 << 10;
  static constexpr std::int64_t most_rows = 192;
  /// Of fewer, what all rows read (keys, values) comes from a further cache too often.
  static constexpr std::int64_t fewest_rows = 48;

  [[nodiscard]] int instruction_of(int u) const { return t_.order[t_.launches[u].first]; }

  [[nodiscard]] row_region read(int first) const {
    row_region r;
    r.first = first;
    r.last = t_.launches[first].region_end;
    for (int u = first; u <= r.last; ++u) {
      row_region::member m;
      m.launch = u;
      m.product = t_.row_kernels[u];
      r.members.push_back(m);
    }
    const row_product& p = r.members.front().product->plan;
    r.rows = p.rows;
    r.keys = p.keys;
    for (int d = 0; d < p.item_dims; ++d) r.items *= p.item_extent[d];
    std::int64_t grain = kernels::rows_of_tile();
    std::int64_t row_bytes = 0;
    for (const row_region::member& m : r.members) {
      if (m.product != nullptr && m.product->plan.role == row_role::sums) {
        r.sums = true;
        r.together = larger_of(r.together, m.product->plan.items_of_y());
      }
      if (m.product == nullptr) {
        grain = std::lcm(grain, t_.chains[m.launch].block_rows);
        r.may_see_triangles = r.may_see_triangles || causal_.side(m.launch) == r.keys;
      }
      const launch& what = t_.launches[m.launch];
      for (int n = what.first; n < what.first + what.count; ++n) {
        const int id = t_.order[n];
        if (!t_.stored[id] || t_.root[id] >= 0) continue;
        row_local made{id, r.keys * size_of(t_.code[id].type), -1};
        made.offset = m.product == nullptr ? place_of_operand(r, m.launch, made) : -1;
        if (made.offset < 0) row_bytes += made.row_bytes;
        r.locals.push_back(made);
      }
    }
    std::int64_t block = smaller_of(most_bytes / larger_of<std::int64_t>(row_bytes, 1), most_rows);
    block = larger_of(block / grain, (fewest_rows + grain - 1) / grain) * grain;
    r.block = smaller_of(block, r.rows);
    // One that is in another's place has the number of that one until now.
    for (std::size_t n = 0; n < r.locals.size(); ++n) {
      row_local& l = r.locals[n];
      if (l.offset >= 0) {
        l.offset = r.locals[static_cast<std::size_t>(l.offset)].offset;
      } else {
        l.offset = r.bytes;
        r.bytes += aligned(r.block * l.row_bytes);
      }
    }
    for (row_region::member& m : r.members) {
      if (m.product == nullptr) continue;
      m.scratch_at = r.bytes;
      r.bytes += aligned(m.product->scratch_bytes(r.block));
    }
    for (row_region::member& m : r.members) m.follows_mask = m.product != nullptr && follows_mask(r, m);
    for (row_region::member& m : r.members) m.clears_little = m.product == nullptr && clears_little(r, m.launch);
    return r;
  }

  /// The number of a local value that only the chain of launch `u` reads, each row before it writes that row of `made`,
  /// and whose place nothing else has taken; or -1.
  [[nodiscard]] std::int64_t place_of_operand(const row_region& r, int u, const row_local& made) const {
    const fused_chain& chain = t_.chains[u];
    if (chain.is_cut()) return -1;
    for (std::size_t n = 0; n < r.locals.size(); ++n) {
      const row_local& l = r.locals[n];
      bool fits = l.row_bytes == made.row_bytes && l.offset < 0;
      for (const row_local& other : r.locals) fits = fits && other.offset != static_cast<std::int64_t>(n);
      for (int reader = 0; reader < t_.code.size && fits; ++reader) {
        for (int k = 0; k < t_.code[reader].operand_count; ++k)
          fits = fits && (t_.code.operand_at(t_.code[reader], k) != l.value || t_.launch_of[reader] == u);
      }
      bool is_written = t_.launch_of[l.value] == u;
      for (int s = chain.first_step; s < chain.first_step + chain.step_count && fits; ++s) {
        const fused_step& step = t_.steps[s];
        for (int k = 0; k < step.operand_count; ++k) {
          const bool reads = step.operand[k].kind == source_kind::memory && step.operand[k].value == l.value;
          fits = fits && !(reads && is_written);
        }
        is_written = is_written || (step.result.kind == source_kind::memory && step.result.value == made.value);
      }
      if (fits && t_.launch_of[l.value] != u) return static_cast<std::int64_t>(n);
    }
    return -1;
  }

  [[nodiscard]] bool sees_triangles(const row_region& r, int u) const {
    return u >= r.first && u <= r.last && t_.launches[u].fused && causal_.side(u) == r.keys;
  }
  [[nodiscard]] bool follows_mask(const row_region& r, const row_region::member& m) const {
    const int id = instruction_of(m.launch);
    if (m.product->plan.role != row_role::makes) {
      // What a chain has left out is zero.
      return sees_triangles(r, t_.launch_of[t_.code[id].operand[m.product->plan.scores]]);
    }
    if (r.local(id) == nullptr) return false;
    for (int reader = 0; reader < t_.code.size; ++reader) {
      for (int k = 0; k < t_.code[reader].operand_count; ++k) {
        if (t_.code.operand_at(t_.code[reader], k) == id && !sees_triangles(r, t_.launch_of[reader])) return false;
      }
    }
    return true;
  }
  /// Whether only chains and products that need no more read what a chain makes.
  [[nodiscard]] bool clears_little(const row_region& r, int u) const {
    if (!sees_triangles(r, u)) return false;
    const launch& what = t_.launches[u];
    for (int n = what.first; n < what.first + what.count; ++n) {
      const int id = t_.order[n];
      if (!t_.stored[id] || t_.code[id].shape.elements() != r.items * r.rows * r.keys) continue;
      if (r.local(id) == nullptr) return false;
      for (const row_region::member& m : r.members) {
        const launch& reader = t_.launches[m.launch];
        for (int at = reader.first; at < reader.first + reader.count; ++at) {
          for (int k = 0; k < t_.code[t_.order[at]].operand_count; ++k) {
            if (t_.code.operand_at(t_.code[t_.order[at]], k) != id) continue;
            if (m.product != nullptr ? !m.follows_mask : !sees_triangles(r, m.launch)) return false;
          }
        }
      }
    }
    return true;
  }

  const program_tables& t_;
  const causal_finder& causal_;
};

}  // namespace espalier::detail
