// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/reducer.hpp>
#include <espalier/tensor/core/partition/collectives.hpp>
#include <espalier/tensor/core/partition/kinds.hpp>
#include <espalier/tensor/core/partition/lower.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/core/program/without_rules.hpp>
#include <espalier/tensor/run/execute/chain_loops.hpp>
#include <espalier/tensor/run/execute/message_tables.hpp>
#include <espalier/tensor/run/kernels/kernels.hpp>
#include <espalier/tensor/run/kernels/row_product.hpp>
#include <espalier/tensor/run/kernels/shared_blocks.hpp>
#include <espalier/tensor/run/kernels/shifted_rows.hpp>

#include <cstddef>
#include <utility>

namespace espalier {

using kernel_function = void (*)(const kernels::kernel_call&);

/// A program as the executor sees it: constants and function pointers, the same type for all programs.
/// One made at run time has no functions: its executor brings its own.
struct program_tables : plan_view {
  mesh_shape mesh;
  graph_view code;
  const fused_step* steps = nullptr;
  int step_count = 0;
  const fused_chain* chains = nullptr;
  /// Operands of steps that are read further; both are null if there are none.
  const shifted_rows* shifted = nullptr;
  const detail::shift_functions* shifts = nullptr;
  const kernels::block_function* block_functions = nullptr;
  /// The chains that are one loop, by launch; null if there are none.
  const kernels::loop_function* loop_functions = nullptr;
  const kernel_function* kernel_functions = nullptr;
  /// The products in row regions, by launch; null if there are none.
  const kernels::row_kernel* const* row_kernels = nullptr;
  std::int64_t kernel_scratch_bytes = 0;
  comm::reducer (*reducer_of)(dtype type, reduction kind) = nullptr;
  detail::transfer_functions transfers{};
  int argument_count = 0;
  int result_count = 0;
};

namespace detail {

/// Instructions that the executor carries out itself; all others have a kernel.
[[nodiscard]] constexpr bool has_kernel(const instruction& i) {
  const op_facts& facts = i.op->facts;
  if (facts.looks) return true;
  return facts.part == structure::none && !facts.shares_operand && facts.moves < 0 && !facts.is_further_result;
}

[[nodiscard]] constexpr kernels::kernel_key key_of(graph_view g, int id) {
  const instruction& i = g[id];
  kernels::kernel_key key;
  key.type = i.type;
  key.shape = i.shape;
  key.operand_count = i.operand_count;
  for (int k = 0; k < i.operand_count && k < inline_operands; ++k) {
    key.operand_type[k] = g.operand(id, k).type;
    key.operand_shape[k] = g.operand(id, k).shape;
  }
  for (int a = 0; a < max_attributes; ++a) key.attribute[a] = i.attribute[a];
  return key;
}

[[nodiscard]] constexpr kernels::block_key key_of(const fused_step& step) {
  kernels::block_key key;
  key.columns = step.columns;
  key.type = step.type;
  key.operand_count = step.operand_count;
  for (int k = 0; k < step.operand_count; ++k) {
    key.operand_type[k] = step.operand_type[k];
    key.wide[k] = step.wide[k];
  }
  key.result_wide = step.result_wide;
  for (int a = 0; a < max_attributes; ++a) key.attribute[a] = step.attribute[a];
  return key;
}

/// The kinds of kernels that a program needs.
template <class Program> struct kernel_kinds {
  static constexpr int steps = lowered<Program>::steps;
  static constexpr int launches = lowered<Program>::launches;
  static constexpr const fused_step* step = &lowered<Program>::value.steps[0];
  static constexpr kind_table<steps> of_steps =
      sort_into_kinds<steps>([](int) { return true; }, [](int s) { return kernel_hash(Program::code, step[s]); },
                             [](int a, int b) { return same_kernel(Program::code, step[a], step[b]); });
  [[nodiscard]] static constexpr int instruction_of(int launch) {
    return Program::plan.order[Program::plan.launches[launch].first];
  }
  static constexpr kind_table<launches> of_launches = sort_into_kinds<launches>(
      [](int u) {
        return !Program::plan.launches[u].fused && Program::plan.launches[u].scores < 0 &&
               has_kernel(Program::code.code[instruction_of(u)]);
      },
      [](int u) { return kernel_hash(Program::code, instruction_of(u)); },
      [](int a, int b) { return same_kernel(Program::code, instruction_of(a), instruction_of(b)); });
  /// The products in row regions.
  static constexpr bool has_row_regions = [] {
    for (const launch& u : Program::plan.launches) {
      if (u.region_end >= 0) return true;
    }
    return false;
  }();
};

/// Static attributes become template arguments again: equal keys share one kernel.
template <class Program, int Kind> struct lifted_step {
  static constexpr const fused_step& step = kernel_kinds<Program>::step[kernel_kinds<Program>::of_steps.first[Kind]];
  static constexpr const op_info* op = Program::code.code[step.instruction].op;
  static constexpr kernels::block_key key = key_of(step);
  [[nodiscard]] static kernels::block_function function() {
    if constexpr (kernels::shares_kernels && kernels::is_shared(op, key)) {
      return kernels::processor_kernels().block(op->name, key);
    } else {
      return &kernels::block_kernel<op>::template run<key>;
    }
  }
};
template <class Program, int Kind> struct lifted_launch {
  static constexpr int id = kernel_kinds<Program>::instruction_of(kernel_kinds<Program>::of_launches.first[Kind]);
  static constexpr const op_info* op = Program::code.code[id].op;
  static constexpr kernels::kernel_key key = key_of(Program::code, id);
  static constexpr kernel_function function = &kernels::kernel<op>::template run<key>;
  static constexpr std::int64_t scratch_bytes = kernels::kernel<op>::scratch_bytes(key);
};

/// A product in a row region, with the scales of its operands.
template <class Program, int Launch> struct lifted_row_product {
  static constexpr const launch& product = Program::plan.launches[Launch];
  static constexpr int id = kernel_kinds<Program>::instruction_of(Launch);
  static constexpr kernels::kernel_key key = key_of(Program::code, id);
  static constexpr kernels::row_kernel value = [] {
    kernels::row_kernel made = row_kernel_of<key, product.scores>::value;
    for (int k = 0; k < 2; ++k) {
      if (product.unscaled[k] >= 0)
        made.plan.scale[k] = scaled_value_of(Program::code, Program::code.code[id].operand[k]).by;
    }
    return made;
  }();
};
template <class Program, int Launch> [[nodiscard]] constexpr const kernels::row_kernel* row_kernel_at() {
  if constexpr (Program::plan.launches[Launch].scores >= 0) {
    return &lifted_row_product<Program, Launch>::value;
  } else {
    return nullptr;
  }
}
template <class Program, std::size_t... Launch>
[[nodiscard]] const kernels::row_kernel* const* row_table(std::index_sequence<Launch...>) {
  static constexpr const kernels::row_kernel* of[]{row_kernel_at<Program, static_cast<int>(Launch)>()..., nullptr};
  return &of[0];
}

/// The entry of `by_kind` for each step or launch, found by its kind; null if it has none.
template <class Function, int Count> struct spread_table {
  Function of[kind_table<Count>::room]{};
  constexpr spread_table(const kind_table<Count>& kinds, const Function* by_kind) {
    for (int n = 0; n < Count; ++n) of[n] = kinds.of[n] < 0 ? nullptr : by_kind[kinds.of[n]];
  }
};

template <class Program, std::size_t... Kind>
[[nodiscard]] const kernels::block_function* block_table(std::index_sequence<Kind...>) {
  using kinds = kernel_kinds<Program>;
  static const kernels::block_function by_kind[]{lifted_step<Program, static_cast<int>(Kind)>::function()..., nullptr};
  static const spread_table<kernels::block_function, kinds::steps> table(kinds::of_steps, &by_kind[0]);
  return &table.of[0];
}
template <class Program, std::size_t... Kind>
[[nodiscard]] const kernel_function* kernel_table(std::index_sequence<Kind...>) {
  using kinds = kernel_kinds<Program>;
  static constexpr kernel_function by_kind[]{lifted_launch<Program, static_cast<int>(Kind)>::function..., nullptr};
  static constexpr spread_table<kernel_function, kinds::launches> table(kinds::of_launches, &by_kind[0]);
  return &table.of[0];
}
template <class Program, std::size_t... Kind> [[nodiscard]] std::int64_t most_scratch(std::index_sequence<Kind...>) {
  static constexpr std::int64_t each[]{lifted_launch<Program, static_cast<int>(Kind)>::scratch_bytes..., 0};
  std::int64_t most = 0;
  for (const std::int64_t bytes : each) most = bytes > most ? bytes : most;
  return most;
}

/// Returns the reducers of a program: between devices, and over the iterations of its loops.
[[nodiscard]] constexpr comm::detail::reducer_set reducers_in(graph_view g) {
  comm::detail::reducer_set found = 0;
  const auto add = [&](dtype type, reduction kind) {
    found |= comm::detail::reducer_set{1} << comm::detail::place_of(type, kind);
  };
  for (int id = 0; id < g.size; ++id) {
    const int place = collective_index(g[id].op);
    if (structure_of(g[id]) == structure::loop_sum) {
      add(g[id].type, reduction::sum);
    } else if (place >= 0 && facts_of(static_cast<collective>(place)).reduces) {
      add(g[id].type, attributes_of<collective_attributes>(g[id]).combine);
    }
  }
  return found;
}

/// The code that combines and what makes transfers are compiled for what a program does; the compiled part of the
/// library has them for all.
template <class Program> void add_communication(program_tables& t) {
#if defined(ESPALIER_COMPILED)
  t.reducer_of = &comm::reducer_of;
  t.transfers = all_transfers();
#else
  constexpr comm::detail::reducer_set combined = reducers_in(Program::code);
  constexpr transfer_kinds kinds = transfer_kinds_in(Program::device_mesh::value, Program::code);
  t.reducer_of = &comm::detail::reducer_among<combined>;
  t.transfers = transfers_of_kinds<kinds>();
#endif
}

}  // namespace detail

/// The tables of a program; instantiates its kernels.
template <class Program> [[nodiscard]] program_tables tables_of() {
  using lowered = detail::lowered<Program>;
  using kinds = detail::kernel_kinds<Program>;
  constexpr auto steps = std::make_index_sequence<static_cast<std::size_t>(kinds::of_steps.count)>{};
  constexpr auto launches = std::make_index_sequence<static_cast<std::size_t>(kinds::of_launches.count)>{};
  program_tables t;
  static_cast<plan_view&>(t) = Program::plan;
  t.mesh = Program::device_mesh::value;
  t.code = detail::without_rules<Program::code>::value;
  t.steps = &lowered::value.steps[0];
  t.step_count = lowered::steps;
  t.chains = &lowered::value.chains[0];
  if constexpr (lowered::shifted > 0) {
    t.shifted = &lowered::value.shifted[0];
    t.shifts = &detail::all_shift_functions;
  }
  t.block_functions = detail::block_table<Program>(steps);
  t.loop_functions = detail::loops_of<Program>();
  t.kernel_functions = detail::kernel_table<Program>(launches);
  t.kernel_scratch_bytes = detail::most_scratch<Program>(launches);
  if constexpr (kinds::has_row_regions) {
    t.row_kernels = detail::row_table<Program>(std::make_index_sequence<static_cast<std::size_t>(lowered::launches)>{});
  }
  detail::add_communication<Program>(t);
  t.argument_count = Program::argument_count();
  t.result_count = Program::result_count();
  return t;
}

}  // namespace espalier
