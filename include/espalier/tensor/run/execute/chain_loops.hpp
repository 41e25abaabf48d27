// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/lower.hpp>
#include <espalier/tensor/run/kernels/chain_loop.hpp>
#include <espalier/tensor/run/kernels/kernels.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

// Which fused chains of a program are loops of their own (kernels/chain_loop.hpp).

namespace espalier::detail {

/// Each such chain is code of its own, that only equal chains share: with fewer steps it is not worth compiling.
inline constexpr int least_loop_steps = 8;
/// With more, values no longer stay in registers.
inline constexpr int most_loop_steps = 24;

/// The number of the earlier step of the chain that computes instruction `value`, or -1.
[[nodiscard]] constexpr int step_making(const fused_chain& c, const fused_step* steps, int before, int value) {
  for (int n = before - 1; n >= 0; --n) {
    if (steps[c.first_step + n].instruction == value) return n;
  }
  return -1;
}

/// Whether the rows of a chain follow one another in memory without a gap.
[[nodiscard]] constexpr bool is_dense(const fused_chain& c, const row_map& rows) {
  if (rows.terms == 0) return c.rows == 1;
  return rows.terms == 1 && rows.divide[0] == 1 && rows.stride[0] == c.columns && rows.modulo[0] >= c.rows;
}

/// Step n of a chain as one of a loop; `op` is null if it can be none: it has a number for each row, or floats that
/// are computed in different types.
[[nodiscard]] constexpr kernels::loop_step loop_step_of(graph_view g, const fused_chain& c, const fused_step* steps,
                                                        int n) {
  const fused_step& step = steps[c.first_step + n];
  const dtype computed = facts_of(steps[c.first_step].type).accumulate;
  const auto fits = [computed](dtype type) { return is_floating(type) && facts_of(type).accumulate == computed; };
  kernels::loop_step made;
  if (!step.result_wide || step.accumulates || step.operand_count == 0 || !fits(step.type)) return made;
  made.type = step.type;
  made.operand_count = step.operand_count;
  made.is_stored = step.result.kind == source_kind::memory;
  if (made.is_stored && !is_dense(c, step.result.rows)) return made;
  for (int k = 0; k < step.operand_count; ++k) {
    const fused_source& from = step.operand[k];
    made.operand_type[k] = step.operand_type[k];
    if (!fits(step.operand_type[k])) return made;
    made.made_by[k] = from.kind == source_kind::constant ? -1 : step_making(c, steps, n, from.value);
    if (made.made_by[k] >= 0) {
      if (!step.wide[k]) return made;
      made.from[k] = kernels::loop_source::step;
    } else if (from.kind == source_kind::constant || (from.kind == source_kind::memory && !step.wide[k])) {
      if (from.rows.terms > 0) return made;
      made.from[k] = kernels::loop_source::value;
    } else {
      if (from.kind != source_kind::memory || !is_dense(c, from.rows)) return made;
      made.from[k] = kernels::loop_source::elements;
    }
  }
  made.op = g[step.instruction].op;
  return made;
}

[[nodiscard]] constexpr bool may_be_loop(graph_view g, const fused_chain& c, const fused_step* steps) {
  if (c.step_count < least_loop_steps || c.step_count > most_loop_steps || c.is_cut()) return false;
  for (int n = 0; n < c.step_count; ++n) {
    if (loop_step_of(g, c, steps, n).op == nullptr) return false;
  }
  return true;
}

/// The loops of a program's chains.
template <class Program> struct chain_loops {
  using made = lowered<Program>;
  static constexpr int launches = made::launches;
  /// The launches that may be loops.
  static constexpr struct found {
    int count = 0;
    int launch[launches > 0 ? launches : 1]{};
  } candidates = [] {
    found result;
    for (int u = 0; u < launches; ++u) {
      if (may_be_loop(Program::code, made::value.chains[u], &made::value.steps[0])) result.launch[result.count++] = u;
    }
    return result;
  }();

  template <int Launch, int N>
  static constexpr kernels::loop_step step = loop_step_of(Program::code, made::value.chains[Launch],
                                                          &made::value.steps[0], N);

  template <int Launch, std::size_t... N>
  [[nodiscard]] static kernels::loop_function function_of(std::index_sequence<N...>) {
    if constexpr ((ElementwiseFunction<step<Launch, static_cast<int>(N)>.op> && ...)) {
      return chain_loop<computed_t<storage_t<step<Launch, 0>.type>>,
                        step<Launch, static_cast<int>(N)>...>::for_processor();
    } else {
      return nullptr;
    }
  }
  template <std::size_t... Candidate>
  [[nodiscard]] static const kernels::loop_function* table(std::index_sequence<Candidate...>) {
    struct spread {
      kernels::loop_function of[launches > 0 ? launches : 1]{};
    };
    static const spread all = [] {
      spread result;
      ((result.of[candidates.launch[Candidate]] = function_of<candidates.launch[Candidate]>(
            std::make_index_sequence<static_cast<std::size_t>(
                made::value.chains[candidates.launch[Candidate]].step_count)>{})),
       ...);
      return result;
    }();
    return &all.of[0];
  }
};

/// One for each launch, null where there is none; null if the program has none at all.
template <class Program> [[nodiscard]] const kernels::loop_function* loops_of() {
  using loops = chain_loops<Program>;
  if constexpr (loops::candidates.count == 0) {
    return nullptr;
  } else {
    return loops::table(std::make_index_sequence<static_cast<std::size_t>(loops::candidates.count)>{});
  }
}

}  // namespace espalier::detail
