// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/object_vector.hpp>
#include <espalier/base/light_std/place_in.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/tensor/run/execute/tables.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

// Scores that a causal mask hides need not be computed: of each square of scores, queries by keys, only the lower
// triangle counts. Nothing says so but the chain itself, which selects by "key <= query" and in the end has zeros for
// the rest.
//
// The zeros are exponentials of what is far below the maximum of its row. A row that is hidden entirely, since another
// mask hides the rest of it, has no such maximum: its softmax spreads over all keys. The executor
// detects this by the maximum, and computes the chain, and those that rely on its zeros, as a whole.

namespace espalier::detail {

/// What a step of a chain that leaves out upper triangles has to do with its mask. Of a block of rows the mask hides
/// nothing before the first row's own column: there a step that `makes` it has nothing to do, and one that `applies` it
/// hands its operand on.
enum class mask_part : std::uint8_t { none, makes, applies, applies_in_place };

/// Finds the fused chains that may leave out the upper triangles of the squares they work on.
class causal_finder {
 public:
  explicit causal_finder(const program_tables& t)
      : t_(t),
        side_(static_cast<std::size_t>(t.launch_count), 0),
        relies_on_(static_cast<std::size_t>(t.launch_count)),
        least_(static_cast<std::size_t>(t.step_count), -unbounded),
        mask_(static_cast<std::size_t>(t.step_count), mask_part::none),
        hidden_(static_cast<std::size_t>(t.code.size), content::any),
        low_(static_cast<std::size_t>(t.code.size), 0) {
    for (int u = 0; u < t_.launch_count; ++u) {
      if (!t_.launches[u].fused || !is_suitable(t_.chains[u])) continue;
      const fused_chain& c = t_.chains[u];
      side_[static_cast<std::size_t>(u)] = side_of(c, u);
      if (side(u) > 0) {
        find_mask(c, u);
        continue;
      }
      // Computed as a whole, and no launch looks at its maxima.
      for (int s = c.first_step; s < c.first_step + c.step_count; ++s) hidden(t_.steps[s].instruction) = content::any;
    }
  }

  /// Rows, and columns, of the squares of which launch `u` needs the lower triangles alone; 0 if it needs everything.
  [[nodiscard]] std::int64_t side(int u) const { return side_[static_cast<std::size_t>(u)]; }
  /// It does so only while none of these launches met a row that is hidden entirely.
  [[nodiscard]] const std::vector<int>& relies_on(int u) const { return relies_on_[static_cast<std::size_t>(u)]; }
  /// A maximum that step `s` finds and that is not greater than this belongs to a row that is hidden entirely.
  [[nodiscard]] double least(int s) const { return least_[static_cast<std::size_t>(s)]; }
  [[nodiscard]] bool looks_at_maxima(int s) const { return least(s) > -unbounded; }
  [[nodiscard]] mask_part mask(int s) const { return mask_[static_cast<std::size_t>(s)]; }

 private:
  /// The content of a value at the positions whose key is hidden.
  enum class content : std::uint8_t {
    any,
    /// So low a number that it is no row's maximum, and has no exponential. Also said of such a maximum.
    low,
    zero,
  };

  static constexpr double unbounded = std::numeric_limits<double>::max();
  /// No type has an exponential of less.
  static constexpr double no_exponential = 750;

  [[nodiscard]] bool is_suitable(const fused_chain& c) const {
    return is_long_row(c.columns) && !c.is_cut() && c.rows % c.columns == 0 &&
           kernels::triangle_grain % c.block_rows == 0 && can_run_again(c);
  }
  /// Not if it overwrites an argument or a loop's carry, which it may read.
  [[nodiscard]] bool can_run_again(const fused_chain& c) const {
    for (int s = c.first_step; s < c.first_step + c.step_count; ++s) {
      const fused_source& to = t_.steps[s].result;
      if (to.kind != source_kind::memory) continue;
      if (t_.where[to.value].space == memory_space::argument) return false;
      const int root = t_.root[to.value];  // none of what only a row region has, a few rows at a time
      if (root >= 0 && structure_of(t_.code[root]) == structure::region_parameter) return false;
    }
    return true;
  }

  void find_mask(const fused_chain& c, int u) {
    for (int s = c.first_step + c.step_count - 1; s >= c.first_step; --s) {
      const fused_step& step = t_.steps[s];
      if (!step.result_wide || step.accumulates) continue;
      const op_facts& facts = op_of(step).facts;
      mask_part part = mask_part::none;
      if (facts.masks == masking::choice && is_causal(c, step)) {
        const bool hands_on = step.wide[1] && step.operand_type[1] == step.type &&
                              step.operand[1].kind != source_kind::constant &&
                              step.operand[1].kind != source_kind::shifted;
        if (hands_on) part = may_overwrite(c, u, s) ? mask_part::applies_in_place : mask_part::applies;
      } else if (step.result.kind == source_kind::temporary &&
                 (facts.masks == masking::order || facts.values == pattern::index) && only_makes_mask(c, s)) {
        part = mask_part::makes;
      }
      mask_[static_cast<std::size_t>(s)] = part;
    }
  }
  [[nodiscard]] bool reads(const fused_step& step, int k, int value) const {
    return step.operand[k].kind != source_kind::constant && step.operand[k].value == value;
  }
  /// Whether all that read step s make the mask, or apply it. @pre it is known of the steps after s
  [[nodiscard]] bool only_makes_mask(const fused_chain& c, int s) const {
    for (int reader = s + 1; reader < c.first_step + c.step_count; ++reader) {
      const fused_step& step = t_.steps[reader];
      for (int k = 0; k < step.operand_count; ++k) {
        if (!reads(step, k, t_.steps[s].instruction) || mask(reader) == mask_part::makes) continue;
        if (mask(reader) == mask_part::none || k != 0) return false;
      }
    }
    return true;
  }
  /// Whether what step s makes may be where its operand 1 is: what only a row region has, which nobody else reads; and
  /// the chain, whose results may be there too, reads no more of it once it has stored one.
  [[nodiscard]] bool may_overwrite(const fused_chain& c, int u, int s) const {
    const fused_step& step = t_.steps[s];
    const fused_source& from = step.operand[1];
    if (from.kind != source_kind::memory || step.result.kind != source_kind::temporary) return false;
    if (!t_.stored[from.value] || t_.root[from.value] >= 0 || t_.launch_of[from.value] == u) return false;
    for (int reader = 0; reader < t_.code.size; ++reader) {
      for (int k = 0; k < t_.code[reader].operand_count; ++k) {
        if (t_.code.operand_at(t_.code[reader], k) == from.value && reader != step.instruction) return false;
      }
    }
    bool is_written = false;
    for (int reader = c.first_step; reader < c.first_step + c.step_count; ++reader) {
      const fused_step& other = t_.steps[reader];
      for (int k = 0; k < other.operand_count; ++k) {
        if (reads(other, k, step.instruction) && is_written) return false;
      }
      is_written = is_written || other.result.kind == source_kind::memory;
    }
    return true;
  }

  [[nodiscard]] content& hidden(int value) { return hidden_[static_cast<std::size_t>(value)]; }

  [[nodiscard]] std::int64_t side_of(const fused_chain& c, int u) {
    bool suits = true;
    for (int s = c.first_step; s < c.first_step + c.step_count; ++s) {
      const fused_step& step = t_.steps[s];
      const content made = result_of(c, u, step);
      hidden(step.instruction) = made;
      if (made == content::low && op_of(step).fuse == fusion::reduction) {
        least_[static_cast<std::size_t>(s)] = low_[static_cast<std::size_t>(step.instruction)] + no_exponential;
      }
      if (op_of(step).fuse == fusion::reduction) {
        // A sum over zeros, or a maximum, is the same without them.
        suits = suits && !step.accumulates && (made == content::low || operand(c, u, step, 0) == content::zero);
        suits = suits && (made == content::low || kind_of(step) == reduction::sum);
      } else if (step.result.kind == source_kind::memory && step.result_wide) {
        suits = suits && made == content::zero;
      }
    }
    return suits ? c.columns : 0;
  }

  [[nodiscard]] const op_info& op_of(const fused_step& step) const { return *t_.code[step.instruction].op; }
  [[nodiscard]] static reduction kind_of(const fused_step& step) {
    return attributes_of<fused_reduction_attributes>(step).kind;
  }

  [[nodiscard]] content result_of(const fused_chain& c, int u, const fused_step& step) {
    const auto is = [&](int k, content what) { return operand(c, u, step, k) == what; };
    if (op_of(step).facts.masks == masking::choice) {
      const fused_source& otherwise = step.operand[2];
      if (otherwise.kind != source_kind::constant || !is_causal(c, step)) return content::any;
      const double stored = stored_as(step.type, otherwise.number);
      low_[static_cast<std::size_t>(step.instruction)] = stored;
      // In a type that does not hold the number, a row that is hidden entirely has no maximum to be known by.
      const bool is_held = stored > -std::numeric_limits<double>::infinity() || otherwise.number == stored;
      return otherwise.number == 0                                    ? content::zero
             : otherwise.number <= hidden_score(step.type) && is_held ? content::low
                                                                      : content::any;
    }
    if (op_of(step).fuse == fusion::reduction) {
      if (kind_of(step) != reduction::max || !is(0, content::low)) return content::any;
      // How low, only the mask itself says.
      const int from = stacked(step.operand[0].value);
      if (low_[static_cast<std::size_t>(from)] == 0) return content::any;
      low_[static_cast<std::size_t>(step.instruction)] = low_[static_cast<std::size_t>(from)];
      return content::low;
    }
    if (!step.result_wide) return content::any;
    const op_facts& facts = op_of(step).facts;
    if (facts.masks == masking::same && is(0, content::low)) {
      low_[static_cast<std::size_t>(step.instruction)] = low_[static_cast<std::size_t>(stacked(step.operand[0].value))];
      return content::low;
    }
    if (facts.masks == masking::difference) {
      return is(0, content::low) && is_maximum(u, step, 1) ? content::low : content::any;
    }
    if (facts.masks == masking::exponential && is(0, content::low)) return content::zero;
    for (int k = 0; k < step.operand_count; ++k) {
      if ((facts.vanishes_with >> static_cast<unsigned>(k) & 1U) != 0 && is(k, content::zero)) return content::zero;
    }
    return content::any;
  }

  /// Operand k of a step, if it has an element per column.
  [[nodiscard]] content operand(const fused_chain& c, int u, const fused_step& step, int k) {
    const fused_source& from = step.operand[k];
    if (from.kind == source_kind::constant || !step.wide[k]) return content::any;
    if (from.kind == source_kind::temporary || t_.launch_of[from.value] == u) return hidden(from.value);
    const extents& shape = t_.code[from.value].shape;
    const bool is_square = shape.rank >= 2 && shape[shape.rank - 1] == c.columns && shape[shape.rank - 2] == c.columns;
    const bool is_dense = maps(from.rows, c.rows, c.columns);
    if (!is_square || !is_dense) return content::any;
    const int value = stacked(from.value);
    if (hidden(value) != content::any) rely(u, t_.launch_of[value]);
    return hidden(value);
  }
  /// Records that launch `u` relies on what launch `other` hides. That holds unless `other`, or a launch that it relies
  /// on, meets a row that is hidden entirely.
  void rely(int u, int other) {
    std::vector<int>& launches = relies_on_[static_cast<std::size_t>(u)];
    const auto add = [&](int one) {
      if (place_in(launches, one) < 0) launches.push_back(one);
    };
    add(other);
    for (const int one : relies_on(other)) add(one);
  }
  /// Whether operand k is the maximum of each row of low values, found by this chain or by one before it.
  [[nodiscard]] bool is_maximum(int u, const fused_step& step, int k) {
    const fused_source& from = step.operand[k];
    if (from.kind == source_kind::constant || step.wide[k]) return false;
    if (t_.code[from.value].op->fuse != fusion::reduction || hidden(from.value) != content::low) return false;
    if (t_.launch_of[from.value] != u) rely(u, t_.launch_of[from.value]);
    return true;
  }
  /// The value in a loop that an iteration of another one gets back.
  [[nodiscard]] int stacked(int value) const {
    const instruction& i = t_.code[value];
    if (structure_of(i) != structure::loop_slice || structure_of(t_.code[i.operand[0]]) != structure::loop_stack)
      return value;
    return t_.code[i.operand[0]].operand[0];
  }

  /// Whether a step selects by "key <= query" in each square.
  [[nodiscard]] bool is_causal(const fused_chain& c, const fused_step& step) const {
    const fused_source& from = step.operand[0];
    if (!step.wide[0] || from.kind == source_kind::constant) return false;
    const instruction& seen = t_.code[from.value];
    if (from.kind == source_kind::temporary) {
      // Made by the chain itself, for all squares.
      const int rank = seen.shape.rank;
      return seen.op->facts.masks == masking::order && rank >= 2 && seen.shape[rank - 2] == c.columns &&
             seen.shape[rank - 1] == c.columns && counts(seen.operand[0], rank - 1) &&
             counts(seen.operand[1], rank - 2);
    }
    if (from.kind != source_kind::memory || !maps(from.rows, c.columns, c.columns)) return false;
    return seen.op->facts.masks == masking::order && seen.shape.rank == 2 && seen.shape[0] == c.columns &&
           seen.shape[1] == c.columns && counts(seen.operand[0], 1) && counts(seen.operand[1], 0);
  }
  /// Whether a value is each element's own index along `dim`, from 0 on every device.
  [[nodiscard]] bool counts(int value, int dim) const {
    const instruction& i = t_.code[value];
    return i.op->facts.values == pattern::index && attributes_of<index_attributes>(i).dim == dim &&
           t_.code.annotations[i.annotation].placement.dim[dim].empty();
  }
  [[nodiscard]] static bool maps(const row_map& map, std::int64_t rows, std::int64_t columns) {
    return map.terms == 1 && map.divide[0] == 1 && map.modulo[0] == rows && map.stride[0] == columns;
  }

  const program_tables& t_;
  plain_vector<std::int64_t> side_;
  object_vector<std::vector<int>> relies_on_;
  plain_vector<double> least_;  // by step
  plain_vector<mask_part> mask_;
  plain_vector<content> hidden_;
  /// The number that a mask, or a maximum under one, has where keys are hidden.
  plain_vector<double> low_;
};

}  // namespace espalier::detail
