// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/run/execute/chain_steps.hpp>

#include <cstdint>

namespace espalier::detail {

/// Fetches the memory that a block of rows reads and writes while the one before it is computed, a share with each
/// step: blocks are too short for the hardware to find out by itself, unless a row is long, and all of it at once would
/// have to wait for the memory before anything is computed.
///
/// It fetches one cache line in eight, and leaves those between to the hardware, whose fetching it sets off. A core has
/// few places for lines on their way to its first cache, and all of a block's lines would keep these from what the
/// steps themselves read and write.
template <class Step> class block_fetcher {
 public:
  /// Bytes from one line that is fetched to the next.
  static constexpr std::int64_t distance = 8 * 64;

  block_fetcher() = default;
  /// The block from `row` on, of whose rows `columns` count.
  block_fetcher(const fused_chain& c, const Step* steps, std::int64_t row, std::int64_t columns)
      : chain_(&c), steps_(steps), row_(row), columns_(columns), rows_(smaller_of(c.block_rows, c.rows - row)) {}

  /// Fetches the next `lines` lines.
  void fetch(std::int64_t lines) {
    while (lines > 0 && (left_ > 0 || next_run())) {
      const std::int64_t count = smaller_of(lines, left_);
      if (writes_) {
        for (std::int64_t i = 0; i < count; ++i) __builtin_prefetch(from_ + i * distance, 1, 2);
      } else {
        for (std::int64_t i = 0; i < count; ++i) __builtin_prefetch(from_ + i * distance, 0, 2);
      }
      from_ += count * distance;
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
      const Step& step = steps_[step_];
      const bool writes = operand_ == step.operand_count;
      const row_cursor& stream = writes ? step.result : step.operand[operand_];
      if (writes) {
        ++step_;
        operand_ = 0;
      } else {
        ++operand_;
      }
      if (!stream.is_stream || (writes && step.is_streamed)) continue;
      // Results are written whole.
      const bool whole = writes || columns_ == chain_->columns;
      run_ = 0;
      runs_ = whole ? 1 : rows_;
      size_ = stream.size;
      start_ = from_ = stream.at(row_);
      lines_of_run_ = left_ = ((whole ? rows_ * chain_->columns : columns_) * size_ + distance - 1) / distance;
      writes_ = writes;
      return true;
    }
    return false;
  }

  const fused_chain* chain_ = nullptr;  // null: there is no block
  const Step* steps_ = nullptr;
  std::int64_t row_ = 0;
  std::int64_t columns_ = 0;
  std::int64_t rows_ = 0;
  int step_ = 0;  // where the next stream is looked for
  int operand_ = 0;
  // The stream is one run, or one a row.
  std::int64_t run_ = 0;
  std::int64_t runs_ = 0;
  std::int64_t lines_of_run_ = 0;
  std::int64_t size_ = 0;  // of an element
  const char* start_ = nullptr;
  const char* from_ = nullptr;  // what is next
  std::int64_t left_ = 0;       // lines of the run
  bool writes_ = false;
};

/// Lines of a block to be fetched with each step; 0 where the hardware does it: where rows are long, and where
/// steps are few.
template <class Step> [[nodiscard]] std::int64_t lines_of_step(const fused_chain& c, const Step* steps) {
  if (c.columns > 4 * block_elements || c.step_count < least_fetched_steps) return 0;
  std::int64_t bytes = 0;
  for (int n = 0; n < c.step_count; ++n) {
    const Step& step = steps[n];
    for (int k = 0; k < step.operand_count; ++k) bytes += step.operand[k].is_stream ? step.operand[k].size : 0;
    bytes += step.result.is_stream && !step.is_streamed ? step.result.size : 0;
  }
  return (c.block_rows * c.columns * bytes / block_fetcher<Step>::distance + c.step_count - 1) / c.step_count;
}

}  // namespace espalier::detail
