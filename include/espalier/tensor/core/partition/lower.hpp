// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/plan.hpp>
#include <espalier/tensor/core/partition/shifted_rows.hpp>

#include <type_traits>

namespace espalier {

/// The map from the rows of a fused chain to the rows of a tensor outside: the offset of row r, in elements, is the sum
/// over the terms of (r / divide) % modulo * stride.
struct row_map {
  int terms = 0;
  std::int64_t divide[max_rank]{};
  std::int64_t modulo[max_rank]{};
  std::int64_t stride[max_rank]{};

  [[nodiscard]] constexpr std::int64_t offset(std::int64_t row) const {
    std::int64_t result = 0;
    for (int t = 0; t < terms; ++t) result += row / divide[t] % modulo[t] * stride[t];
    return result;
  }
};

enum class source_kind : std::uint8_t {
  /// A temporary of the chain.
  temporary,
  /// A tensor in memory.
  memory,
  /// A number.
  constant,
  /// The partial results of a reduction over a row that is cut: one element for each block of the row.
  partials,
  /// A tensor in memory, some rows or columns further; where it ends, a copy in a temporary of the chain.
  shifted,
};

/// The place from which a fused step reads an operand, or to which it writes its result.
struct fused_source {
  source_kind kind = source_kind::memory;
  /// The instruction whose buffer it is; for a temporary its slot.
  int value = -1;
  int slot = -1;
  /// The entry in `fused_program::shifted`.
  int shifted = -1;
  row_map rows;
  double number = 0;
};

/// One micro-operation of a fused chain. The flags of a `kernels::block_key` in a form that needs no kernel header.
struct fused_step {
  /// The instruction whose op it carries out.
  int instruction = -1;
  /// The chain's, 0 if its rows are long, or `any_columns` if they are cut into blocks that are no whole vectors.
  std::int64_t columns = 1;
  dtype type = dtype::f32;
  int operand_count = 0;
  dtype operand_type[3]{};
  bool wide[3]{};
  bool result_wide = true;
  std::int64_t attribute[max_attributes]{};
  fused_source operand[3];
  fused_source result;
  bool accumulates = false;
  /// The passes in which the step runs if the rows of its chain are cut: bit p stands for pass p over a row.
  std::uint64_t passes = 1;
};

/// A fused chain: its steps run for one block of rows after another.
struct fused_chain {
  int first_step = 0;
  int step_count = 0;
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t block_rows = 1;
  int wide_slots = 0;
  int narrow_slots = 0;
  /// The number of columns summed over all rows, for which each thread needs a buffer.
  int accumulators = 0;
  /// The columns of one block: some of one row if rows are cut, otherwise all.
  std::int64_t block_columns = 1;
  /// The number of passes of the chain over a row that is cut: a reduction of the row is complete after a pass, and the
  /// next one computes again what it needs of those before, rather than have a whole row of it in memory.
  int passes = 1;
  /// Reductions of the row, for each of which there are partial results of all its blocks.
  int partials = 0;

  [[nodiscard]] constexpr bool is_cut() const { return block_columns < columns; }
  [[nodiscard]] constexpr std::int64_t blocks_of_row() const { return (columns + block_columns - 1) / block_columns; }
};

/// Everything about the fused chains of a program.
struct fused_program {
  detail::list<fused_step> steps;
  /// The chain of each launch; empty for single instructions.
  detail::list<fused_chain> chains;
  detail::list<shifted_rows> shifted;
};

inline constexpr std::int64_t block_elements = 1024;

namespace detail {

class fuser {
 public:
  constexpr fuser(graph_view g, const plan_view& plan, row_limits limits = {})
      : g_(g),
        limits_(limits),
        launches_(plan.launches),
        order_(plan.order),
        launch_of_(plan.launch_of),
        role_(plan.role),
        stored_(plan.stored),
        launch_count_(plan.launch_count),
        slot_(g.size, -1),
        last_use_(g.size, -1) {}

  constexpr fused_program run() {
    for (int u = 0; u < launch_count_; ++u) {
      fused_chain chain;
      if (launches_[u].fused) { chain = fuse(u); }
      result_.chains.push_back(chain);
    }
    return static_cast<fused_program&&>(result_);
  }

 private:
  constexpr fused_chain fuse(int u) {
    const launch& what = launches_[u];
    launch_ = u;
    chain_ = {};
    chain_.first_step = result_.steps.size();
    space_ = what.space;
    cut_ = what.is_cut;
    producers_.clear();
    chain_.columns = columns_of(space_);
    chain_.rows = leading(space_).elements();
    dense_ = true;
    limit_ = chain_.rows;
    free_wide_.clear();
    free_narrow_.clear();
    for (int n = what.first; n < what.first + what.count; ++n) note_uses(order_[n], n);
    for (int n = what.first; n < what.first + what.count; ++n) add(order_[n], n);
    chain_.step_count = result_.steps.size() - chain_.first_step;
    const bool in_region = what.region_end >= 0;
    if (dense_ && space_.elements() > 0 && !in_region) flatten();
    if (cut_) find_passes();
    // The blocks of a row region begin anywhere in an item.
    if (in_region) limit_ = greatest_common_divisor(limit_, space_[space_.rank - 2]);
    choose_block();
    return chain_;
  }

  // --- rows that are cut ------------------------------------------------------------------------------------------

  /// Appends a step, and where its operands come from.
  constexpr void append(const fused_step& step) {
    if (cut_) {
      step_of_.resize(g_.size, -1);
      for (int k = 0; k < 3; ++k) producers_.push_back(k < step.operand_count ? producer(step, k) : -1);
      step_of_[step.instruction] = result_.steps.size();
    }
    result_.steps.push_back(step);
  }
  /// The step of this chain that makes an operand, or -1.
  [[nodiscard]] constexpr int producer(const fused_step& step, int k) const {
    const fused_source& from = step.operand[k];
    if (from.kind == source_kind::constant || from.kind == source_kind::shifted) return -1;
    if (from.kind == source_kind::memory) return step_of_[from.value] < chain_.first_step ? -1 : step_of_[from.value];
    // The last one that wrote there.
    for (int s = result_.steps.size() - 1; s >= chain_.first_step; --s) {
      const fused_step& made = result_.steps[s];
      const bool is_there = made.result.kind == from.kind && made.result.slot == from.slot;
      if (is_there && (from.kind == source_kind::partials || made.result_wide == step.wide[k])) return s;
    }
    return -1;
  }

  /// A reduction in two steps: of each block, and of what came of the blocks.
  constexpr void reduce_blocks(fused_step step, const fused_source& result) {
    const dtype type = step.type;
    step.type = facts_of(type).accumulate;
    step.result = {};
    step.result.kind = source_kind::partials;
    step.result.value = step.instruction;
    step.result.slot = chain_.partials++;
    append(step);
    step.operand[0] = step.result;
    step.operand_type[0] = step.type;
    step.wide[0] = true;
    step.type = type;
    step.result = result;
    append(step);
  }
  [[nodiscard]] static constexpr bool combines_blocks(const fused_step& step) {
    return step.operand_count == 1 && step.operand[0].kind == source_kind::partials;
  }

  /// A step runs as soon as what it reads of its row is known. Elements that are not stored are computed again in each
  /// pass that reads them.
  constexpr void find_passes() {
    const int count = result_.steps.size() - chain_.first_step;
    list<int> pass(count, 0);
    for (int n = 0; n < count; ++n) {
      fused_step& step = result_.steps[chain_.first_step + n];
      for (int k = 0; k < step.operand_count; ++k) {
        const int from = producers_[3 * n + k] - chain_.first_step;
        if (from < 0) continue;
        const int known = pass[from] + (combines_blocks(step) ? 1 : 0);
        if (known > pass[n]) pass[n] = known;
      }
      if (pass[n] + 1 > chain_.passes) chain_.passes = pass[n] + 1;
      step.passes = is_made_again(step) ? 0 : std::uint64_t{1} << pass[n];
    }
    for (int n = count - 1; n >= 0; --n) {
      for (int k = 0; k < result_.steps[chain_.first_step + n].operand_count; ++k) {
        const int from = producers_[3 * n + k];
        if (from < 0 || !is_made_again(result_.steps[from])) continue;
        result_.steps[from].passes |= result_.steps[chain_.first_step + n].passes;
      }
    }
  }
  [[nodiscard]] static constexpr bool is_made_again(const fused_step& step) {
    return step.result_wide && step.result.kind == source_kind::temporary;
  }

  constexpr void note_uses(int id, int n) {
    for (int k = 0; k < g_[id].operand_count; ++k) {
      const int o = g_.operand_at(g_[id], k);
      last_use_[source_of(o)] = n;
    }
  }
  [[nodiscard]] constexpr int source_of(int o) const {
    if (launch_of_[o] < 0 && g_[o].op->fuse == fusion::broadcast) return g_[o].operand[0];
    while (is_shifted(o)) o = g_[o].operand[0];
    return o;
  }
  [[nodiscard]] constexpr bool is_shifted(int o) const { return launch_of_[o] < 0 && g_[o].op->shifts != nullptr; }

  constexpr void add(int id, int n) {
    const instruction& i = g_[id];
    fused_step step;
    step.instruction = id;
    step.type = i.type;
    step.operand_count = i.operand_count;
    const bool wide_context = i.op->fuse == fusion::reduction || role_[id] == fused_role::wide;
    for (int k = 0; k < i.operand_count; ++k) {
      step.operand_type[k] = g_[g_.operand_at(i, k)].type;
      step.operand[k] = read(g_.operand_at(i, k), wide_context, step.wide[k]);
    }
    step.accumulates = role_[id] == fused_role::accumulator;
    if (i.op->fuse == fusion::reduction) {
      const reduction kind = attributes_of<reduction_attributes>(i).kind;
      set_attributes(step, fused_reduction_attributes{.kind = kind, .accumulates = step.accumulates});
      dense_ = false;
    }
    step.result_wide = role_[id] != fused_role::narrow;
    // Operands read for the last time here leave their slots to the result: micro-operations work in place, as long
    // as an element of the result is not larger than what has been read.
    for (int k = 0; k < i.operand_count; ++k) {
      if (size_of(g_[source_of(g_.operand_at(i, k))].type) == size_of(i.type))
        release(source_of(g_.operand_at(i, k)), n);
    }
    step.result = write(id, step.result_wide, step.accumulates);
    for (int k = 0; k < i.operand_count; ++k) {
      release(source_of(g_.operand_at(i, k)), n);
      if (step.operand[k].kind == source_kind::shifted) free_wide_.push_back(step.operand[k].slot);
    }
    if (cut_ && i.op->fuse == fusion::reduction) return reduce_blocks(step, step.result);
    append(step);
  }

  constexpr void release(int source, int n) {
    if (launch_of_[source] != launch_ || last_use_[source] != n || slot_[source] < 0) return;
    // Every pass over a row that is cut may read what those before have found about it.
    if (cut_ && role_[source] == fused_role::narrow) return;
    (role_[source] == fused_role::narrow ? free_narrow_ : free_wide_).push_back(slot_[source]);
    slot_[source] = -1;
  }

  constexpr int take_slot(bool wide) {
    list<int>& free = wide ? free_wide_ : free_narrow_;
    if (!free.empty()) {
      const int slot = free.back();
      free.pop_back();
      return slot;
    }
    return wide ? chain_.wide_slots++ : chain_.narrow_slots++;
  }

  constexpr fused_source write(int id, bool wide, bool accumulates) {
    fused_source target;
    target.value = id;
    if (accumulates) {
      target.slot = chain_.accumulators++;
      return target;
    }
    if (stored_[id]) {
      target.rows = dense_rows(wide ? chain_.columns : 1);
      return target;
    }
    target.kind = source_kind::temporary;
    target.slot = slot_[id] = take_slot(wide);
    return target;
  }

  [[nodiscard]] constexpr row_map dense_rows(std::int64_t stride) const {
    row_map map;
    if (chain_.rows == 1) return map;
    map.terms = 1;
    map.divide[0] = 1;
    map.modulo[0] = chain_.rows;
    map.stride[0] = stride;
    return map;
  }

  /// Operand `o` of a step that works on the whole space (`wide_context`) or on one element per row.
  constexpr fused_source read(int o, bool wide_context, bool& wide) {
    const instruction& i = g_[o];
    fused_source source;
    wide = false;
    if (launch_of_[o] < 0 && i.op->facts.values == pattern::uniform) return number(i.scalar);
    if (launch_of_[o] < 0 && i.op->facts.values == pattern::index) {
      dense_ = false;
      return index(o, wide_context, wide);
    }
    if (launch_of_[o] < 0 && i.op->fuse == fusion::broadcast) return repeated(o, wide_context, wide);
    wide = wide_context;
    if (is_shifted(o)) return shifted(o);
    if (!wide) dense_ = false;
    source.value = o;
    if (launch_of_[o] == launch_ && !stored_[o]) {
      source.kind = source_kind::temporary;
      source.slot = slot_[o];
    } else {
      source.rows = dense_rows(wide ? chain_.columns : 1);
    }
    return source;
  }

  [[nodiscard]] static constexpr fused_source number(double value) {
    fused_source source;
    source.kind = source_kind::constant;
    source.number = value;
    return source;
  }

  /// A broadcast value: what it repeats, with the strides of the dimensions it lies along.
  constexpr fused_source repeated(int o, bool wide_context, bool& wide) {
    const instruction& b = g_[o];
    const int inner = b.operand[0];
    const instruction& from = g_[inner];
    if (launch_of_[inner] < 0 && from.op->facts.values == pattern::uniform) return number(from.scalar);
    dense_ = false;
    fused_source source;
    source.value = inner;
    if (launch_of_[inner] == launch_ && !stored_[inner]) {
      source.kind = source_kind::temporary;
      source.slot = slot_[inner];
      return source;
    }
    const int row_dims = wide_context ? space_.rank - 1 : b.shape.rank;
    std::int64_t stride[max_rank]{};
    for (int d = 0; d < from.shape.rank; ++d) {
      const int target = broadcast_target(b, d);
      if (from.shape[d] == 1) continue;
      if (target < row_dims) {
        stride[target] = stride_of(from.shape, d);
      } else {
        wide = true;
      }
    }
    source.rows = map_rows(&stride[0], row_dims);
    return source;
  }

  /// A value whose elements have been moved: what it was made of, where that is.
  constexpr fused_source shifted(int o) {
    dense_ = false;
    shifted_rows rows;
    for (; is_shifted(o); o = g_[o].operand[0]) {
      rows.op[rows.count] = o;
      rows.shift[rows.count++] = g_[o].op->shifts(g_.view(o));
    }
    rows.source = o;
    fused_source source;
    source.kind = source_kind::shifted;
    source.value = o;
    source.slot = take_slot(true);
    source.shifted = result_.shifted.size();
    result_.shifted.push_back(rows);
    return source;
  }

  /// Neighbouring dimensions that continue each other become one term; blocks must not cross from one run of a term
  /// into the next.
  constexpr row_map map_rows(const std::int64_t* stride, int dims) {
    row_map map;
    std::int64_t inner = 1;
    for (int d = dims - 1; d >= 0;) {
      std::int64_t extent = space_[d];
      int first = d;
      while (first > 0 && stride[first - 1] == stride[d] * extent) {
        --first;
        extent *= space_[first];
      }
      if (stride[d] != 0) {
        map.divide[map.terms] = inner;
        map.modulo[map.terms] = extent;
        map.stride[map.terms] = stride[d];
        ++map.terms;
        if (inner > 1) limit_ = greatest_common_divisor(limit_, inner);
        if (inner * extent < chain_.rows) limit_ = greatest_common_divisor(limit_, inner * extent);
      }
      inner *= extent;
      d = first - 1;
    }
    return map;
  }

  /// An index is made in the chain by a step of its own, once.
  constexpr fused_source index(int o, bool wide_context, bool& wide) {
    const instruction& i = g_[o];
    const int along = attributes_of<index_attributes>(i).dim;
    wide = wide_context && along == i.shape.rank - 1;
    fused_step step;
    step.instruction = o;
    step.type = i.type;
    step.result_wide = wide;
    fused_index_attributes index{.along_columns = wide, .dim = along};
    if (!wide) {
      const int row_dims = wide_context ? space_.rank - 1 : i.shape.rank;
      index.repeat = i.shape.product(along + 1, row_dims);
      index.size = i.shape[along];
    }
    set_attributes(step, index);
    step.result.kind = source_kind::temporary;
    step.result.value = o;
    step.result.slot = take_slot(wide);
    fused_source source = step.result;
    append(step);
    return source;
  }

  /// Nothing in the chain depends on the shape: any split into rows and columns serves, so all such chains take the
  /// same, and share their kernels.
  constexpr void flatten() {
    const std::int64_t total = chain_.rows * chain_.columns;
    std::int64_t columns = total < block_elements ? total : block_elements;
    while (total % columns != 0) --columns;
    if (columns < 64 && columns < chain_.columns) {
      if (!cut_) return;
      columns = total;  // a single row
    } else {
      cut_ = false;
    }
    chain_.columns = columns;
    chain_.rows = total / columns;
    limit_ = chain_.rows;
    for (int s = chain_.first_step; s < result_.steps.size(); ++s) {
      fused_step& step = result_.steps[s];
      for (int k = 0; k < step.operand_count; ++k) {
        if (step.operand[k].kind == source_kind::memory) step.operand[k].rows = dense_rows(columns);
      }
      if (step.result.kind == source_kind::memory) step.result.rows = dense_rows(columns);
    }
  }

  constexpr void choose_block() {
    std::int64_t rows = block_elements / (chain_.columns > 0 ? chain_.columns : 1);
    if (rows > chain_.rows) rows = chain_.rows;
    if (rows < 1) rows = 1;
    if (limit_ < chain_.rows) {
      if (rows > limit_) rows = limit_;
      while (limit_ % rows != 0) --rows;
    }
    chain_.block_rows = cut_ ? 1 : rows;
    chain_.block_columns = cut_ ? limits_.block : chain_.columns;
    std::int64_t columns = chain_.columns;
    if (is_long_row(columns)) {
      columns = 0;
    } else if (cut_) {
      columns = any_columns;
    }
    for (int s = chain_.first_step; s < result_.steps.size(); ++s) {
      fused_step& step = result_.steps[s];
      step.columns = cut_ && combines_blocks(step) ? any_columns : columns;
    }
  }

  graph_view g_;
  row_limits limits_;
  const launch* launches_;
  const int* order_;
  const int* launch_of_;
  const fused_role* role_;
  const bool* stored_;
  int launch_count_;
  list<int> slot_;
  list<int> last_use_;
  list<int> free_wide_;
  list<int> free_narrow_;
  fused_program result_;
  fused_chain chain_;
  extents space_;
  int launch_ = -1;
  bool dense_ = true;
  bool cut_ = false;
  std::int64_t limit_ = 1;
  // The lists serve a chain whose rows are cut: the first has three entries for each step, the second one for each
  // instruction.
  list<int> producers_;
  list<int> step_of_;
};

}  // namespace detail

template <int Steps, int Launches, int Shifted> struct fixed_fused_program {
  fused_step steps[Steps > 0 ? Steps : 1]{};
  fused_chain chains[Launches > 0 ? Launches : 1]{};
  shifted_rows shifted[Shifted > 0 ? Shifted : 1]{};
  static constexpr int step_count = Steps;
};

namespace detail {

/// The size of the fused chains of a planned program.
struct fused_size {
  /// One for each instruction, and one for each index that an instruction makes for itself.
  int steps = 0;
  /// Operands that are read further.
  int shifted = 0;
};
[[nodiscard]] constexpr fused_size fused_size_of(graph_view g, const plan_view& plan) {
  fused_size count;
  for (int u = 0; u < plan.launch_count; ++u) {
    const launch& what = plan.launches[u];
    if (!what.fused) continue;
    count.steps += what.count;
    for (int n = what.first; n < what.first + what.count; ++n) {
      const instruction& i = g[plan.order[n]];
      if (what.is_cut && i.op->fuse == fusion::reduction) ++count.steps;
      for (int k = 0; k < i.operand_count; ++k) {
        const int o = g.operand_at(i, k);
        if (plan.launch_of[o] >= 0) continue;
        if (g[o].op->facts.values == pattern::index) ++count.steps;
        if (g[o].op->shifts != nullptr) ++count.shifted;
      }
    }
  }
  return count;
}

/// The fused chains of a program, frozen.
template <class Program> struct lowered {
  static constexpr fused_size size = fused_size_of(Program::code, Program::plan);
  static constexpr int steps = size.steps;
  static constexpr int shifted = size.shifted;
  static constexpr int launches = std::remove_cvref_t<decltype(Program::plan)>::launch_count;
  static constexpr fixed_fused_program<steps, launches, shifted> value = [] {
    const fused_program made = fuser(Program::code, Program::plan).run();
    fixed_fused_program<steps, launches, shifted> result;
    for (int s = 0; s < steps; ++s) result.steps[s] = made.steps[s];
    for (int u = 0; u < launches; ++u) result.chains[u] = made.chains[u];
    for (int n = 0; n < shifted; ++n) result.shifted[n] = made.shifted[n];
    return result;
  }();
};

}  // namespace detail

}  // namespace espalier
