// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/layout.hpp>
#include <espalier/detail/light_std/plain_vector.hpp>
#include <espalier/execute/causal.hpp>
#include <espalier/execute/finite_check.hpp>
#include <espalier/execute/tables.hpp>

#include <algorithm>
#include <atomic>
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
    for (int u = 0; u < t.unit_count; ++u) {
      if (!t.units[u].fused) continue;
      per_thread_ = std::max(per_thread_, bytes_per_thread(t.chains[u]));
      most_steps_ = std::max(most_steps_, t.chains[u].step_count);
    }
    placed_.resize(static_cast<std::size_t>(most_steps_ * threads_));
    spreads_ = std::vector<std::atomic<bool>>(static_cast<std::size_t>(t.unit_count));
    forget_rows();
  }

  [[nodiscard]] int threads() const { return threads_; }
  /// Bytes of scratch the chains need for all threads.
  [[nodiscard]] std::int64_t scratch_bytes() const { return per_thread_ * threads_; }

  /// Rows that a causal mask and others hide entirely (see execute/causal.hpp) are those of one run of the program.
  void forget_rows() {
    for (std::atomic<bool>& one : spreads_) one.store(false, std::memory_order_relaxed);
  }
  /// Rows, and columns, of the squares of which unit `u` computes the lower triangles alone; 0 if it computes all.
  [[nodiscard]] std::int64_t side(int u) const {
    if (causal_.side(u) == 0 || spreads(u)) return 0;
    for (const int other : causal_.relies_on(u)) {
      if (spreads(other)) return 0;
    }
    return causal_.side(u);
  }

  /// Runs the chain of unit `u`. `address(id)` is where a value is, `boxes_of(id)` which part of its tensor it is.
  template <class Address, class Boxes> void run(int u, char* scratch, const Address& address, const Boxes& boxes_of) {
    const fused_chain& chain = t_.chains[u];
    placed_step* const steps = &placed_[0];
    place_steps(chain, address, boxes_of, steps);
    if (chain.is_cut()) return run_cut(chain, steps, scratch);
    const std::int64_t blocks = (chain.rows + chain.block_rows - 1) / chain.block_rows;
    const std::int64_t work = chain.rows * chain.columns * chain.step_count;
    const std::int64_t threads = work < 32768 ? 1 : std::min<std::int64_t>(threads_, blocks);
    for (bool again = true; again;) {
      const std::int64_t triangle = side(u);
      if (threads == 1) {
        run_blocks(u, triangle, steps, 0, blocks, scratch);
      } else {
        ESPALIER_OMP(parallel for num_threads(static_cast<int>(threads)) schedule(static))
        for (std::int64_t t = 0; t < threads; ++t) {
          run_blocks(u, triangle, steps, blocks * t / threads, blocks * (t + 1) / threads, scratch + t * per_thread_);
        }
      }
      again = triangle > 0 && spreads(u);
    }
    for (int n = 0; n < chain.step_count; ++n) {
      const fused_step& step = t_.steps[chain.first_step + n];
      if (!step.accumulates) continue;
      combine(step, chain, scratch, threads, address(step.instruction));
      if (finite_.is_on()) finite_.look_at(step.instruction, address(step.instruction));
    }
  }

  /// Runs rows [first, last), whole blocks, of the chain of unit `u` on the calling thread, which has number `thread`.
  /// False if one of them turned out to be hidden entirely: to be run again, with all that was left out.
  /// @pre nothing is accumulated over rows
  template <class Address, class Boxes>
  [[nodiscard]] bool run_rows(int u, std::int64_t first, std::int64_t last, int thread, char* scratch,
                              const Address& address, const Boxes& boxes_of) {
    const fused_chain& chain = t_.chains[u];
    placed_step* const steps = &placed_[static_cast<std::size_t>(thread * most_steps_)];
    place_steps(chain, address, boxes_of, steps);
    if (chain.is_cut()) {
      for (std::int64_t row = first; row < last; ++row)
        run_cut_row(chain, steps, row, 1, scratch + thread * per_thread_);
      return true;
    }
    return run_blocks(u, side(u), steps, first / chain.block_rows, last / chain.block_rows,
                      scratch + thread * per_thread_);
  }

 private:
  /// Where the rows of a step's operand or result are. The plan's tables are too large to be read for every block.
  struct row_cursor {
    char* base = nullptr;
    std::int64_t size = 0;         // of an element
    std::int64_t bytes = 0;        // from row to row, if they are equally far apart
    const row_map* map = nullptr;  // if they are not
    std::int64_t step = 0;         // from row to row of a block, in elements
    std::int64_t along = 0;        // from block to block of a row that is cut
    bool is_temporary = false;     // then `bytes` is its place in the thread's scratch
    bool is_of_row = false;        // a temporary that all blocks of a row that is cut have in common
    bool is_stream = false;        // blocks pass over memory without a gap

    [[nodiscard]] char* at(std::int64_t row) const {
      return base + (map == nullptr ? row * bytes : map->offset(row) * size);
    }
    [[nodiscard]] kernels::stream block(std::int64_t row, char* scratch) const {
      return {is_temporary ? scratch + bytes : at(row), step};
    }
    /// Block b of a row that is cut. `own`: the scratch of the thread, `common`: that of the row.
    [[nodiscard]] kernels::stream block(std::int64_t row, std::int64_t b, char* own, char* common) const {
      return {(is_temporary ? (is_of_row ? common : own) + bytes : at(row)) + b * along, step};
    }
  };
  struct placed_step {
    typename Kernels::block_function function{};
    row_cursor operand[3];
    row_cursor result;
    int operand_count = 0;
    std::uint64_t passes = 1;
    bool is_wide = false;
    bool combines = false;   // what came of the blocks of a row that is cut
    bool is_stored = false;  // a row in memory for each row of the chain
    bool is_looked_at = false;
    dtype type = dtype::f32;
    const instruction_boxes* boxes = nullptr;
  };
  static constexpr std::int64_t element_bytes = 8;

  static void store(double& into, dtype type, double value) {
    with_storage(type, [&]<class T>(T) {
      const T element = element_of_scalar<T>(value);
      std::memcpy(&into, &element, sizeof(T));
    });
  }

  [[nodiscard]] static std::int64_t wide_bytes(const fused_chain& c) {
    return aligned(c.block_columns * c.block_rows * element_bytes);
  }
  [[nodiscard]] static std::int64_t narrow_bytes(const fused_chain& c) { return aligned(c.block_rows * element_bytes); }
  // Offsets in a thread's scratch.
  [[nodiscard]] static std::int64_t accumulator(const fused_chain& c, int slot) {
    return c.wide_slots * wide_bytes(c) + c.narrow_slots * narrow_bytes(c) + slot * aligned(c.columns * element_bytes);
  }
  [[nodiscard]] static std::int64_t temporary(const fused_chain& c, int slot, bool wide) {
    return wide ? slot * wide_bytes(c) : c.wide_slots * wide_bytes(c) + slot * narrow_bytes(c);
  }

  [[nodiscard]] static std::int64_t partials(const fused_chain& c, int slot) {
    return accumulator(c, c.accumulators) + slot * aligned(c.blocks_of_row() * element_bytes);
  }

  [[nodiscard]] static std::int64_t bytes_per_thread(const fused_chain& c) {
    return c.partials > 0 ? partials(c, c.partials) : accumulator(c, c.accumulators);
  }

  /// Columns that count in the block of rows from `row` on. `side`: see `causal_finder`.
  [[nodiscard]] static std::int64_t seen_columns(const fused_chain& c, std::int64_t side, std::int64_t row) {
    if (side == 0) return c.columns;
    constexpr std::int64_t grain = kernels::triangle_grain;
    return std::min(side, (row % side + c.block_rows + grain - 1) / grain * grain);
  }

  template <class Address>
  [[nodiscard]] static row_cursor cursor_of(const fused_chain& c, const fused_source& source, bool wide, dtype type,
                                            const double* number, const Address& address) {
    row_cursor made;
    made.size = size_of(type);
    switch (source.kind) {
      case source_kind::constant: made.base = reinterpret_cast<char*>(const_cast<double*>(number)); break;
      case source_kind::temporary:
        made.bytes = temporary(c, source.slot, wide);
        made.step = wide ? c.columns : 1;
        made.is_temporary = true;
        made.is_of_row = !wide;
        break;
      case source_kind::partials:
        made.bytes = partials(c, source.slot);
        made.along = made.size;
        made.is_temporary = made.is_of_row = true;
        break;
      case source_kind::memory: {
        const row_map& map = source.rows;
        const bool moves = map.terms > 0 && map.divide[0] == 1;
        made.base = static_cast<char*>(address(source.value));
        // Within a block at most the first term moves (see `fuser::map_rows`).
        if (moves) made.step = map.stride[0];
        // Most tensors are dense, and need no division.
        if (moves && map.terms == 1 && c.rows <= map.modulo[0]) {
          made.bytes = map.stride[0] * made.size;
        } else if (map.terms > 0) {
          made.map = &map;
        }
        // Rows that are read again are in the cache already.
        made.is_stream = wide && moves && map.stride[0] == c.columns;
        if (wide && c.is_cut()) made.along = c.block_columns * made.size;
        break;
      }
    }
    return made;
  }

  template <class Address, class Boxes>
  void place_steps(const fused_chain& chain, const Address& address, const Boxes& boxes_of, placed_step* steps) const {
    for (int n = 0; n < chain.step_count; ++n) {
      const int s = chain.first_step + n;
      const fused_step& step = t_.steps[s];
      placed_step& placed = steps[n];
      placed.function = kernels_.block(s);
      placed.operand_count = step.operand_count;
      placed.passes = step.passes;
      placed.is_wide = step.result_wide || step.result.kind == source_kind::partials;
      placed.combines = step.operand_count == 1 && step.operand[0].kind == source_kind::partials;
      for (int k = 0; k < step.operand_count; ++k) {
        placed.operand[k] = cursor_of(chain, step.operand[k], step.wide[k], step.operand_type[k],
                                      &numbers_[static_cast<std::size_t>(3 * s + k)], address);
      }
      if (step.accumulates) {
        placed.result = {};
        placed.result.bytes = accumulator(chain, step.result.slot);
        placed.result.is_temporary = true;
      } else {
        placed.result = cursor_of(chain, step.result, step.result_wide, step.type, nullptr, address);
      }
      placed.is_stored = !step.accumulates && step.result.kind == source_kind::memory && step.result_wide;
      placed.is_looked_at = causal_.looks_at_maxima(s);
      placed.type = step.type;
      placed.boxes = boxes_of(step.instruction);
    }
  }

  /// Fetches what a block of rows reads and writes while the one before it is computed, a share with each step: blocks
  /// are too short for the hardware to find out by itself, unless a row is long, and all of it at once would have to
  /// wait for the memory before anything is computed.
  class block_fetcher {
   public:
    block_fetcher() = default;
    /// The block from `row` on, of whose rows `columns` count.
    block_fetcher(const fused_chain& c, const placed_step* steps, std::int64_t row, std::int64_t columns)
        : chain_(&c), steps_(steps), row_(row), columns_(columns), rows_(std::min(c.block_rows, c.rows - row)) {}

    /// Fetches the next `lines` cache lines.
    void fetch(std::int64_t lines) {
      while (lines > 0 && (left_ > 0 || next_run())) {
        const std::int64_t count = std::min(lines, left_);
        if (writes_) {
          for (std::int64_t i = 0; i < count; ++i) __builtin_prefetch(from_ + i * line, 1, 2);
        } else {
          for (std::int64_t i = 0; i < count; ++i) __builtin_prefetch(from_ + i * line, 0, 2);
        }
        from_ += count * line;
        left_ -= count;
        lines -= count;
      }
    }

   private:
    /// The next part of a stream without a gap, if there is one.
    [[nodiscard]] bool next_run() {
      if (chain_ == nullptr) return false;
      if (++run_ < runs_) {
        from_ = start_ + run_ * chain_->columns * size_;
        left_ = lines_of_run_;
        return true;
      }
      while (step_ < chain_->step_count) {
        const placed_step& step = steps_[step_];
        const bool writes = operand_ == step.operand_count;
        const row_cursor& stream = writes ? step.result : step.operand[operand_];
        if (writes) {
          ++step_;
          operand_ = 0;
        } else {
          ++operand_;
        }
        if (!stream.is_stream) continue;
        // What is written is written whole.
        const bool whole = writes || columns_ == chain_->columns;
        run_ = 0;
        runs_ = whole ? 1 : rows_;
        size_ = stream.size;
        start_ = from_ = stream.at(row_);
        lines_of_run_ = left_ = ((whole ? rows_ * chain_->columns : columns_) * size_ + line - 1) / line;
        writes_ = writes;
        return true;
      }
      return false;
    }

    const fused_chain* chain_ = nullptr;  // null: there is no block
    const placed_step* steps_ = nullptr;
    std::int64_t row_ = 0;
    std::int64_t columns_ = 0;
    std::int64_t rows_ = 0;
    int step_ = 0;  // where the next stream is looked for
    int operand_ = 0;
    // Of the stream: it is one run, or one a row.
    std::int64_t run_ = 0;
    std::int64_t runs_ = 0;
    std::int64_t lines_of_run_ = 0;
    std::int64_t size_ = 0;  // of an element
    const char* start_ = nullptr;
    const char* from_ = nullptr;  // what is next
    std::int64_t left_ = 0;       // lines of the run
    bool writes_ = false;
  };
  static constexpr std::int64_t line = 64;

  /// Cache lines of a block to be fetched with each step; 0 where rows are so long that the hardware does it.
  [[nodiscard]] static std::int64_t lines_of_step(const fused_chain& c, const placed_step* steps) {
    if (c.columns > 4 * block_elements) return 0;
    std::int64_t bytes = 0;
    for (int n = 0; n < c.step_count; ++n) {
      const placed_step& step = steps[n];
      for (int k = 0; k < step.operand_count; ++k) bytes += step.operand[k].is_stream ? step.operand[k].size : 0;
      bytes += step.result.is_stream ? step.result.size : 0;
    }
    return (c.block_rows * c.columns * bytes / line + c.step_count - 1) / c.step_count;
  }

  /// Sets the elements of a block's rows that stand behind its columns to zero: a multiple of 16 (see `is_long_row`).
  static void clear_behind(const kernels::block_call& call, std::int64_t columns, std::int64_t size) {
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

  [[nodiscard]] bool spreads(int u) const {
    return spreads_[static_cast<std::size_t>(u)].load(std::memory_order_relaxed);
  }
  /// Whether all maxima that a step found in a block are greater than what is hidden, by enough.
  [[nodiscard]] static bool are_seen(const kernels::block_call& call, dtype type, double least) {
    return with_storage(type, [&]<class T>(T) {
      bool all = true;
      // Of what exponentials are taken of.
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
  void run_cut(const fused_chain& c, const placed_step* steps, char* scratch) const {
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

  void run_cut_row(const fused_chain& c, const placed_step* steps, std::int64_t row, std::int64_t threads,
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
  bool run_cut_block(const fused_chain& c, const placed_step* steps, std::int64_t row, int pass, bool wide,
                     std::int64_t b, char* own, char* common) const {
    bool others = false;
    kernels::block_call call;
    call.rows = 1;
    call.first_row = row;
    call.first_column = b * c.block_columns;
    const std::int64_t columns = std::min(c.block_columns, c.columns - call.first_column);
    for (int n = 0; n < c.step_count; ++n) {
      const placed_step& step = steps[n];
      if ((step.passes >> pass & 1U) == 0) continue;
      if (step.is_wide != wide) {
        others = true;
        continue;
      }
      for (int k = 0; k < step.operand_count; ++k) call.operand[k] = step.operand[k].block(row, b, own, common);
      call.result = step.result.block(row, b, own, common);
      call.columns = step.combines ? c.blocks_of_row() : columns;
      call.boxes = step.boxes;
      step.function(call);
    }
    return others;
  }

  /// False, and nothing that counts, if a row of a lower triangle turns out to be hidden entirely.
  bool run_blocks(int u, std::int64_t side, const placed_step* steps, std::int64_t first, std::int64_t last,
                  char* scratch) {
    const fused_chain& c = t_.chains[u];
    for (int n = 0; n < c.step_count; ++n) {
      const fused_step& step = t_.steps[c.first_step + n];
      if (step.accumulates) {
        char* const sums = scratch + accumulator(c, step.result.slot);
        std::fill(sums, sums + c.columns * element_bytes, '\0');
      }
    }
    const std::int64_t lines = lines_of_step(c, steps);
    const bool checks = finite_.is_on();
    for (std::int64_t b = first; b < last; ++b) {
      const std::int64_t row = b * c.block_rows;
      block_fetcher following;
      if (lines > 0 && b + 1 < last) {
        const std::int64_t next = row + c.block_rows;
        following = block_fetcher(c, steps, next, seen_columns(c, side, next));
      }
      kernels::block_call call;
      call.rows = std::min(c.block_rows, c.rows - row);
      call.columns = seen_columns(c, side, row);
      call.first_row = row;
      for (int n = 0; n < c.step_count; ++n) {
        const placed_step& step = steps[n];
        for (int k = 0; k < step.operand_count; ++k) call.operand[k] = step.operand[k].block(row, scratch);
        call.result = step.result.block(row, scratch);
        call.boxes = step.boxes;
        following.fetch(lines);
        step.function(call);
        if (checks) check_block(call, t_.steps[c.first_step + n], c);
        if (side > 0 && step.is_looked_at && !are_seen(call, step.type, causal_.least(c.first_step + n))) {
          spreads_[static_cast<std::size_t>(u)].store(true, std::memory_order_relaxed);
          return false;
        }
        if (call.columns < c.columns && step.is_stored) clear_behind(call, c.columns, step.result.size);
      }
    }
    return true;
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
        const auto* sums =
            reinterpret_cast<const sum_type*>(scratch + t * per_thread_ + accumulator(c, step.result.slot));
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
  plain_vector<placed_step> placed_;  // for each thread
  plain_vector<double> numbers_;
  /// By unit: it has met a row that is hidden entirely, in this run.
  std::vector<std::atomic<bool>> spreads_;
};

}  // namespace espalier::detail
