// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/base/streaming.hpp>
#include <espalier/comm/layout.hpp>
#include <espalier/tensor/run/execute/block_fetcher.hpp>
#include <espalier/tensor/run/execute/causal.hpp>
#include <espalier/tensor/run/execute/chain_steps.hpp>
#include <espalier/tensor/run/execute/finite_check.hpp>
#include <espalier/tensor/run/execute/product_tails.hpp>
#include <espalier/tensor/run/execute/tables.hpp>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace espalier::detail {

/// Runs fused chains: all steps pass over one block of rows before the next block is touched, so that what they hand
/// to each other stays in the first-level cache.
template <class Kernels> class chain_runner {
 public:
  /// `causal`, `kernels` and `finite`: of the same program; kept.
  chain_runner(const program_tables& t, const causal_finder& causal, const Kernels& kernels, finite_check& finite)
      : t_(t), causal_(causal), kernels_(kernels), finite_(finite) {
    threads_ = 1;
#if defined(_OPENMP)
    threads_ = omp_get_max_threads();
#endif
    numbers_.resize(static_cast<std::size_t>(t.step_count) * 3);
    for (int s = 0; s < t.step_count; ++s) {
      for (int k = 0; k < t.steps[s].operand_count; ++k) {
        store(numbers_[static_cast<std::size_t>(3 * s + k)], t.steps[s].operand_type[k], t.steps[s].operand[k].number);
      }
    }
    for (int u = 0; u < t.launch_count; ++u) {
      if (!t.launches[u].fused) continue;
      per_thread_ = larger_of(per_thread_, scratch_layout::bytes_per_thread(t.chains[u]));
      most_steps_ = larger_of(most_steps_, t.chains[u].step_count);
      int shifts = 0;
      for (int n = 0; n < t.chains[u].step_count; ++n) {
        const fused_step& step = t.steps[t.chains[u].first_step + n];
        for (int k = 0; k < step.operand_count; ++k) shifts += step.operand[k].kind == source_kind::shifted ? 1 : 0;
      }
      most_shifts_ = larger_of(most_shifts_, shifts);
    }
    shifts_.resize(static_cast<std::size_t>(most_shifts_ * threads_));
    placed_.resize(static_cast<std::size_t>(most_steps_ * threads_));
    spreads_ = std::vector<std::atomic<bool>>(static_cast<std::size_t>(t.launch_count));
    forget_rows();
  }

  [[nodiscard]] int threads() const { return threads_; }
  /// Bytes of scratch the chains need for all threads.
  [[nodiscard]] std::int64_t scratch_bytes() const { return per_thread_ * threads_; }

  /// Rows that a causal mask and others hide entirely (see execute/causal.hpp) are those of one run of the program.
  void forget_rows() {
    for (std::atomic<bool>& one : spreads_) one.store(false, std::memory_order_relaxed);
  }
  /// Rows, and columns, of the squares of which launch `u` computes the lower triangles alone; 0 if it computes all.
  [[nodiscard]] std::int64_t side(int u) const {
    if (causal_.side(u) == 0 || spreads(u)) return 0;
    for (const int other : causal_.relies_on(u)) {
      if (spreads(other)) return 0;
    }
    return causal_.side(u);
  }

  /// Runs the chain of launch `u`. `address(id)` is where a value is, `boxes_of(id)` which part of its tensor it is.
  template <class Address, class Boxes> void run(int u, char* scratch, const Address& address, const Boxes& boxes_of) {
    const fused_chain& chain = t_.chains[u];
    step_type* const steps = &placed_[0];
    place_steps(chain, address, boxes_of, steps, shifts_.data());
    if (chain.is_cut()) return run_cut(chain, steps, scratch);
    const std::int64_t blocks = (chain.rows + chain.block_rows - 1) / chain.block_rows;
    const std::int64_t work = chain.rows * chain.columns * chain.step_count;
    const std::int64_t threads = work < 32768 ? 1 : smaller_of<std::int64_t>(threads_, blocks);
    if (run_as_loop(u, steps, threads)) return;
    for (bool again = true; again;) {
      const std::int64_t triangle = side(u);
      if (triangle == 0) choose_streamed(chain, steps, least_passed_to_stream(chain));
      if (threads == 1) {
        run_blocks(u, triangle, steps, 0, chain.rows, scratch);
      } else {
        ESPALIER_OMP(parallel for num_threads(static_cast<int>(threads)) schedule(static))
        for (std::int64_t t = 0; t < threads; ++t) {
          run_blocks(u, triangle, steps, blocks * t / threads * chain.block_rows,
                     smaller_of(blocks * (t + 1) / threads * chain.block_rows, chain.rows), scratch + t * per_thread_);
        }
      }
      again = triangle > 0 && spreads(u);
    }
    combine_sums(chain, scratch, threads, address);
  }

  /// Runs a product by `multiply(tail)`, and the chain of launch `u` on each part of it as soon as that is complete
  /// (execute/product_tails.hpp). False if the product did not take the tail: then the chain is still to be run.
  template <class Address, class Boxes, class Multiply>
  [[nodiscard]] bool follow(int u, const tail_fit& fit, char* scratch, const Address& address, const Boxes& boxes_of,
                            const Multiply& multiply) {
    const fused_chain& chain = t_.chains[u];
    place_steps(chain, address, boxes_of, &placed_[0], shifts_.data());
    for (int t = 0; t < threads_; ++t) clear_sums(chain, scratch + t * per_thread_);
    tail_of_product tail;
    tail.run = &run_part;
    tail.columns = fit.is_flat ? 0 : chain.columns;
    tail.takes_whole_rows = fit.takes_whole_rows;
    tail.runner = this;
    tail.chain = &chain;
    tail.is_flat = fit.is_flat;
    tail.scratch = scratch;
    multiply(tail);
    if (tail.is_taken) combine_sums(chain, scratch, threads_, address);
    return tail.is_taken;
  }

  /// Runs rows [first, last), which no value repeats in the middle of a block (those of an item, or some of them), of
  /// the chain of launch `u` on the calling thread, which has number `thread`. False if one of them turned out to be
  /// hidden entirely: to be run again, with all that was left out.
  /// @pre nothing is accumulated over rows
  template <class Address, class Boxes>
  [[nodiscard]] bool run_rows(int u, std::int64_t first, std::int64_t last, int thread, char* scratch,
                              const Address& address, const Boxes& boxes_of) {
    const fused_chain& chain = t_.chains[u];
    step_type* const steps = &placed_[static_cast<std::size_t>(thread * most_steps_)];
    place_steps(chain, address, boxes_of, steps, shifts_.data() + thread * most_shifts_);
    if (chain.is_cut()) {
      for (std::int64_t row = first; row < last; ++row)
        run_cut_row(chain, steps, row, 1, scratch + thread * per_thread_);
      return true;
    }
    return run_blocks(u, side(u), steps, first, last, scratch + thread * per_thread_);
  }
  /// The same of a chain in a row region, with lower triangles of this side, or 0. Zeros are written after what a row
  /// sees: up to where the rows after it end, or column `end`, or, if that is 0, to the end.
  template <class Address, class Boxes>
  [[nodiscard]] bool run_rows(int u, std::int64_t first, std::int64_t last, int thread, char* scratch,
                              const Address& address, const Boxes& boxes_of, std::int64_t triangle, std::int64_t end) {
    const fused_chain& chain = t_.chains[u];
    step_type* const steps = &placed_[static_cast<std::size_t>(thread * most_steps_)];
    place_steps(chain, address, boxes_of, steps, shifts_.data() + thread * most_shifts_);
    if (chain.is_cut()) {
      for (std::int64_t row = first; row < last; ++row)
        run_cut_row(chain, steps, row, 1, scratch + thread * per_thread_);
      return true;
    }
    return run_blocks(u, triangle, steps, first, last, scratch + thread * per_thread_, end);
  }
  /// Whether launch `u` is known to need lower triangles only, unless it meets a row that is hidden entirely.
  [[nodiscard]] std::int64_t possible_side(int u) const { return causal_.side(u); }

 private:
  using step_type = placed_step<typename Kernels::block_function>;

  static void store(double& into, dtype type, double value) {
    with_storage(type, [&]<class T>(T) {
      const T element = element_of_scalar<T>(value);
      std::memcpy(&into, &element, sizeof(T));
    });
  }

  /// `shift`: room for the operands that are read further.
  template <class Address, class Boxes>
  void place_steps(const fused_chain& chain, const Address& address, const Boxes& boxes_of, step_type* steps,
                   placed_shift* shift) const {
    for (int n = 0; n < chain.step_count; ++n) {
      const int s = chain.first_step + n;
      const fused_step& step = t_.steps[s];
      step_type& placed = steps[n];
      placed.function = kernels_.block(s);
      placed.operand_count = step.operand_count;
      placed.passes = step.passes;
      placed.is_wide = step.result_wide || step.result.kind == source_kind::partials;
      placed.combines = step.operand_count == 1 && step.operand[0].kind == source_kind::partials;
      for (int k = 0; k < step.operand_count; ++k) {
        placed.operand[k] = cursor_of(chain, step.operand[k], step.wide[k], step.operand_type[k],
                                      &numbers_[static_cast<std::size_t>(3 * s + k)], address);
        if (step.operand[k].kind == source_kind::temporary) {
          const int maker = step_making(chain, t_.steps, n, step.operand[k].value);
          if (maker >= 0 && steps[maker].mask == mask_part::applies_in_place) placed.operand[k] = steps[maker].result;
        }
        if (step.operand[k].kind != source_kind::shifted) continue;
        const shifted_rows& rows = t_.shifted[step.operand[k].shifted];
        const instruction_boxes* boxes[shifted_rows::most]{};
        for (int m = 0; m < rows.count; ++m) boxes[m] = boxes_of(rows.op[m]);
        shift->base = static_cast<const char*>(address(rows.source));
        shift->size = placed.operand[k].size;
        t_.shifts->place(*shift, rows, t_.code, &boxes[0]);
        placed.operand[k].shift = shift++;
      }
      if (step.accumulates) {
        placed.result = {};
        placed.result.bytes = scratch_layout::accumulator(chain, step.result.slot);
        placed.result.is_temporary = true;
        placed.result.size = with_storage(
            step.type, []<class T>(T) -> std::int64_t { return sizeof(accumulator_t<T, reduction::sum>); });
      } else {
        placed.result = cursor_of(chain, step.result, step.result_wide, step.type, nullptr, address);
      }
      placed.is_stored = !step.accumulates && step.result.kind == source_kind::memory && step.result_wide;
      placed.is_streamed = false;
      placed.is_looked_at = causal_.looks_at_maxima(s);
      placed.mask = causal_.mask(s);
      if (placed.mask == mask_part::applies_in_place) placed.result = placed.operand[1];
      placed.type = step.type;
      placed.boxes = boxes_of(step.instruction);
    }
  }

  /// Runs the chain of launch `u` as one loop; false if it is none, or if elements are to be looked at step by step.
  [[nodiscard]] bool run_as_loop(int u, const step_type* steps, std::int64_t threads) const {
    const fused_chain& c = t_.chains[u];
    const kernels::loop_function loop = kernels_.loop(u);
    if (loop == nullptr || finite_.is_on() || side(u) > 0) return false;
    void* at[4 * most_loop_steps]{};
    for (int n = 0; n < c.step_count; ++n) {
      const step_type& step = steps[n];
      for (int k = 0; k < step.operand_count; ++k) at[4 * n + k] = step.operand[k].base;
      if (!step.is_stored) continue;
      at[4 * n + 3] = step.result.base;
      // What is read there under another name is read before it is written.
      for (int m = n + 1; m < c.step_count; ++m) {
        for (int k = 0; k < steps[m].operand_count; ++k) {
          if (is_read_anew(c, m, k) && steps[m].operand[k].base == step.result.base) return false;
        }
      }
    }
    // Ranges begin with cache lines, wherever rows begin.
    const std::int64_t elements = c.rows * c.columns;
    const auto cut = [=](std::int64_t t) { return t == threads ? elements : elements * t / threads / 64 * 64; };
    if (threads == 1) {
      loop({&at[0], 0, elements});
    } else {
      ESPALIER_OMP(parallel for num_threads(static_cast<int>(threads)) schedule(static))
      for (std::int64_t t = 0; t < threads; ++t) loop({&at[0], cut(t), cut(t + 1)});
    }
    return true;
  }
  /// Whether operand k of a chain's step m is memory, and not what an earlier step has made.
  [[nodiscard]] bool is_read_anew(const fused_chain& c, int m, int k) const {
    const fused_source& from = t_.steps[c.first_step + m].operand[k];
    return from.kind == source_kind::memory && step_making(c, t_.steps, m, from.value) < 0;
  }

  /// Sets the elements of a block's rows that are after its columns to zero: a multiple of 16 (see `is_long_row`).
  static void clear_after(const kernels::block_call& call, std::int64_t columns, std::int64_t size) {
    char* row = static_cast<char*>(call.result.data);
    for (std::int64_t r = 0; r < call.rows; ++r, row += call.result.row * size) {
      if (size >= 4) {
        clear_run<64>(row + call.columns * size, row + columns * size);
      } else {
        clear_run<16>(row + call.columns * size, row + columns * size);
      }
    }
  }
  /// Few bytes, for which the library's function is not worth calling. @pre a multiple of `Step` of them
  template <std::int64_t Step> static void clear_run(char* from, const char* to) {
    for (; from != to; from += Step) std::memset(from, 0, static_cast<std::size_t>(Step));
  }

  /// Moves a block of rows to their place, where they follow one another without a gap.
  static void stream_rows(char* to, const kernels::block_call& call, std::int64_t size) {
    stream_bytes(reinterpret_cast<std::byte*>(to), static_cast<const std::byte*>(call.result.data),
                 call.rows * call.columns * size);
  }

  [[nodiscard]] bool spreads(int u) const {
    return spreads_[static_cast<std::size_t>(u)].load(std::memory_order_relaxed);
  }
  /// Whether all maxima that a step found in a block are greater than what is hidden, by enough.
  [[nodiscard]] static bool are_seen(const kernels::block_call& call, dtype type, double least) {
    return with_storage(type, [&]<class T>(T) {
      bool all = true;
      // Exponentials are taken of floats.
      if constexpr (is_floating(dtype_of<T>)) {
        const T* const maxima = static_cast<const T*>(call.result.data);
        for (std::int64_t r = 0; r < call.rows; ++r)
          all = all && static_cast<double>(maxima[r * call.result.row]) > least;
      }
      return all;
    });
  }

  // --- rows that are cut ------------------------------------------------------------------------------------------

  /// Threads take rows, if there are enough; otherwise a part of each.
  void run_cut(const fused_chain& c, const step_type* steps, char* scratch) const {
    if (threads_ == 1 || c.rows < 4 * threads_) {
      for (std::int64_t row = 0; row < c.rows; ++row) run_cut_row(c, steps, row, threads_, scratch);
      return;
    }
    ESPALIER_OMP(parallel for num_threads(threads_) schedule(static))
    for (std::int64_t t = 0; t < threads_; ++t) {
      for (std::int64_t row = c.rows * t / threads_; row < c.rows * (t + 1) / threads_; ++row)
        run_cut_row(c, steps, row, 1, scratch + t * per_thread_);
    }
  }

  void run_cut_row(const fused_chain& c, const step_type* steps, std::int64_t row, std::int64_t threads,
                   char* scratch) const {
    const std::int64_t blocks = c.blocks_of_row();
    for (int pass = 0; pass < c.passes; ++pass) {
      // First what follows from the passes before; an element of the row each.
      if (!run_cut_block(c, steps, row, pass, false, 0, scratch, scratch)) continue;
      if (threads == 1) {
        for (std::int64_t b = 0; b < blocks; ++b) run_cut_block(c, steps, row, pass, true, b, scratch, scratch);
        continue;
      }
      ESPALIER_OMP(parallel for num_threads(static_cast<int>(threads)) schedule(static))
      for (std::int64_t t = 0; t < threads; ++t) {
        for (std::int64_t b = blocks * t / threads; b < blocks * (t + 1) / threads; ++b)
          run_cut_block(c, steps, row, pass, true, b, scratch + t * per_thread_, scratch);
      }
    }
  }

  /// The steps of a pass that have an element for each column of a block (`wide`), or those that have one for the row.
  /// Whether there are others.
  bool run_cut_block(const fused_chain& c, const step_type* steps, std::int64_t row, int pass, bool wide,
                     std::int64_t b, char* own, char* common) const {
    bool others = false;
    kernels::block_call call;
    call.rows = 1;
    call.first_row = row;
    call.first_column = b * c.block_columns;
    const std::int64_t columns = smaller_of(c.block_columns, c.columns - call.first_column);
    for (int n = 0; n < c.step_count; ++n) {
      const step_type& step = steps[n];
      if ((step.passes >> pass & 1U) == 0) continue;
      if (step.is_wide != wide) {
        others = true;
        continue;
      }
      call.columns = step.combines ? c.blocks_of_row() : columns;
      for (int k = 0; k < step.operand_count; ++k) {
        const row_cursor& from = step.operand[k];
        call.operand[k] = from.shift == nullptr ? from.block(row, b, own, common)
                                                : t_.shifts->block(*from.shift, call, own + from.bytes);
      }
      call.result = step.result.block(row, b, own, common);
      call.boxes = step.boxes;
      step.function(call);
    }
    return others;
  }

  /// Rows [first, last), a block after the other from the first on; the last block may be smaller. False, and nothing
  /// that counts, if a row of a lower triangle turns out to be hidden entirely.
  bool run_blocks(int u, std::int64_t side, const step_type* steps, std::int64_t first, std::int64_t last,
                  char* scratch, std::int64_t end = 0) {
    const fused_chain& c = t_.chains[u];
    clear_sums(c, scratch);
    // The rows of a region are in the second-level cache.
    const std::int64_t lines = end > 0 ? 0 : lines_of_step(c, steps);
    const bool checks = finite_.is_on();
    bool streams = false;
    for (std::int64_t row = first; row < last; row += c.block_rows) {
      block_fetcher<step_type> following;
      const std::int64_t next = row + c.block_rows;
      if (lines > 0 && next < last) {
        following = block_fetcher<step_type>(c, steps, next, seen_columns(c, side, next));
      }
      kernels::block_call call;
      call.rows = smaller_of(c.block_rows, last - row);
      call.columns = seen_columns(c, side, row);
      call.first_row = row;
      // No row of the block hides a column before its own.
      const std::int64_t known =
          side > 0 && !checks ? row % side / kernels::triangle_grain * kernels::triangle_grain : 0;
      for (int n = 0; n < c.step_count; ++n) {
        const step_type& step = steps[n];
        for (int k = 0; k < step.operand_count; ++k) {
          const row_cursor& from = step.operand[k];
          call.operand[k] = from.shift == nullptr ? from.block(row, scratch)
                                                  : t_.shifts->block(*from.shift, call, scratch + from.bytes);
        }
        call.result = step.result.block(row, scratch);
        if (step.is_streamed) call.result.data = scratch + scratch_layout::streamed(c);
        call.boxes = step.boxes;
        following.fetch(lines);
        if (known > 0 && step.mask != mask_part::none) {
          run_near_diagonal(step, t_.steps[c.first_step + n], call, known);
        } else {
          step.function(call);
        }
        if (checks) check_block(call, t_.steps[c.first_step + n], c);
        if (side > 0 && step.is_looked_at && !are_seen(call, step.type, causal_.least(c.first_step + n))) {
          spreads_[static_cast<std::size_t>(u)].store(true, std::memory_order_relaxed);
          return false;
        }
        const std::int64_t cleared = end > 0 ? smaller_of(end, call.columns + kernels::triangle_grain) : c.columns;
        if (call.columns < cleared && step.is_stored) clear_after(call, cleared, step.result.size);
        if (step.is_streamed) stream_rows(step.result.at(row), call, step.result.size);
        streams = streams || step.is_streamed;
      }
    }
    if (streams) finish_streaming();
    return true;
  }

  /// Runs a step that makes or applies a mask, which hides none of the first `known` columns.
  static void run_near_diagonal(const step_type& step, const fused_step& what, const kernels::block_call& call,
                                std::int64_t known) {
    const std::int64_t size = step.result.size;
    if (step.mask == mask_part::applies) {
      const auto* from = static_cast<const char*>(call.operand[1].data);
      auto* to = static_cast<char*>(call.result.data);  // the same, where what is stored takes the operand's place
      for (std::int64_t r = 0; r < call.rows && to != from; ++r) {
        std::memcpy(to + r * call.result.row * size, from + r * call.operand[1].row * size,
                    static_cast<std::size_t>(known * size));
      }
    }
    kernels::block_call near = call;
    near.columns -= known;
    near.first_column += known;
    for (int k = 0; k < step.operand_count; ++k) {
      if (what.wide[k]) near.operand[k].data = static_cast<char*>(near.operand[k].data) + known * step.operand[k].size;
    }
    near.result.data = static_cast<char*>(near.result.data) + known * size;
    step.function(near);
  }

  /// Looks at the rows that a step has made.
  void check_block(const kernels::block_call& call, const fused_step& step, const fused_chain& c) const {
    const std::int64_t columns = step.result_wide ? c.columns : 1;
    const instruction& i = t_.code[step.instruction];
    if (step.accumulates || i.shape.elements() != c.rows * columns) return;
    const char* row = static_cast<const char*>(call.result.data);
    for (std::int64_t r = 0; r < call.rows; ++r, row += call.result.row * size_of(i.type)) {
      finite_.look_at(step.instruction, row, (call.first_row + r) * columns, step.result_wide ? call.columns : 1);
    }
  }

  // --- parts of a product -------------------------------------------------------------------------------------------

  struct tail_of_product : kernels::product_tail {
    const chain_runner* runner = nullptr;
    const fused_chain* chain = nullptr;
    bool is_flat = false;
    char* scratch = nullptr;
  };

  static void run_part(const kernels::product_tail& tail, std::int64_t row, std::int64_t rows, std::int64_t column,
                       std::int64_t columns) {
    const auto& of = static_cast<const tail_of_product&>(tail);
    std::int64_t thread = 0;
#if defined(_OPENMP)
    thread = omp_get_thread_num();
#endif
    kernels::block_call part;
    part.rows = rows;
    part.columns = columns;
    part.first_row = row;
    part.first_column = column;
    of.runner->run_part(of, part, of.scratch + thread * of.runner->per_thread_);
  }

  void run_part(const tail_of_product& tail, const kernels::block_call& part, char* scratch) const {
    const fused_chain& c = *tail.chain;
    const step_type* const steps = &placed_[0];
    // What does not go on evenly from row to row is found anew for each.
    std::int64_t together = larger_of<std::int64_t>(1, c.block_rows * c.columns / part.columns);
    for (int n = 0; n < c.step_count; ++n) {
      bool is_even = steps[n].result.map == nullptr && steps[n].is_wide;
      for (int k = 0; k < steps[n].operand_count; ++k) is_even = is_even && steps[n].operand[k].map == nullptr;
      if (!is_even) together = 1;
    }
    kernels::block_call call = part;
    for (; call.first_row < part.first_row + part.rows; call.first_row += together) {
      call.rows = smaller_of(together, part.first_row + part.rows - call.first_row);
      for (int n = 0; n < c.step_count; ++n) {
        const step_type& step = steps[n];
        const fused_step& what = t_.steps[c.first_step + n];
        for (int k = 0; k < step.operand_count; ++k)
          call.operand[k] = stream_of(tail, step.operand[k], what.wide[k], call, scratch);
        call.result = stream_of(tail, step.result, step.is_wide, call, scratch);
        if (what.accumulates) call.result = {scratch + step.result.bytes + part.first_column * step.result.size, 0};
        call.boxes = step.boxes;
        step.function(call);
      }
    }
  }
  /// What a step reads or writes of a part: an element for each column (`wide`) or one for the row.
  [[nodiscard]] static kernels::stream stream_of(const tail_of_product& tail, const row_cursor& rows, bool wide,
                                                 const kernels::block_call& part, char* scratch) {
    if (rows.is_temporary) return {scratch + rows.bytes, wide ? part.columns : rows.step};
    if (!wide) return {rows.at(part.first_row), rows.step};
    if (!tail.is_flat) return {rows.at(part.first_row) + part.first_column * rows.size, rows.step};
    // Its own rows may be shorter or longer than the product's.
    return {rows.base + (part.first_row * tail.columns + part.first_column) * rows.size, tail.columns};
  }

  /// The sums over rows of one thread.
  void clear_sums(const fused_chain& c, char* scratch) const {
    for (int n = 0; n < c.step_count; ++n) {
      const fused_step& step = t_.steps[c.first_step + n];
      if (!step.accumulates) continue;
      char* const sums = scratch + scratch_layout::accumulator(c, step.result.slot);
      std::memset(sums, 0, static_cast<std::size_t>(c.columns * scratch_layout::element_bytes));
    }
  }
  template <class Address>
  void combine_sums(const fused_chain& c, const char* scratch, std::int64_t threads, const Address& address) {
    for (int n = 0; n < c.step_count; ++n) {
      const fused_step& step = t_.steps[c.first_step + n];
      if (!step.accumulates) continue;
      combine(step, c, scratch, threads, address(step.instruction));
      if (finite_.is_on()) finite_.look_at(step.instruction, address(step.instruction));
    }
  }

  /// Adds up what the threads summed, in the order of the rows they worked on.
  void combine(const fused_step& step, const fused_chain& c, const char* scratch, std::int64_t threads,
               void* result) const {
    with_storage(step.type, [&]<class T>(T) { add_threads(step, c, scratch, threads, static_cast<T*>(result)); });
  }
  template <class T>
  void add_threads(const fused_step& step, const fused_chain& c, const char* scratch, std::int64_t threads,
                   T* result) const {
    using sum_type = accumulator_t<T, reduction::sum>;
    for (std::int64_t i = 0; i < c.columns; ++i) {
      sum_type total{};
      for (std::int64_t t = 0; t < threads; ++t) {
        const auto* sums = reinterpret_cast<const sum_type*>(scratch + t * per_thread_ +
                                                             scratch_layout::accumulator(c, step.result.slot));
        total = t == 0 ? sums[i] : static_cast<sum_type>(total + sums[i]);
      }
      result[i] = element_cast<T>(total);
    }
  }

  const program_tables& t_;
  const causal_finder& causal_;
  const Kernels& kernels_;
  finite_check& finite_;
  int threads_ = 1;
  std::int64_t per_thread_ = 0;
  int most_steps_ = 0;
  int most_shifts_ = 0;
  plain_vector<step_type> placed_;     // for each thread
  plain_vector<placed_shift> shifts_;  // also
  plain_vector<double> numbers_;
  /// The launches that have met a row that is hidden entirely, in this run.
  std::vector<std::atomic<bool>> spreads_;
};

}  // namespace espalier::detail
