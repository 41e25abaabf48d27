// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/kernels/elementwise.hpp>
#include <espalier/kernels/parallel.hpp>
#include <espalier/ops/random.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace espalier::detail {

/// What all counters of one tensor have in common, and the key.
struct random_stream {
  std::uint32_t key[2];
  std::uint32_t number;
  std::uint32_t purpose;
};

/// The four words of a block; of many at once if this is called in a loop that becomes vectors.
struct random_block {
  std::uint32_t word[4];
};
[[nodiscard]] ESPALIER_ALWAYS_INLINE random_block block_of(const random_stream& from, std::uint32_t low,
                                                           std::uint32_t high) {
  std::uint32_t a = low;
  std::uint32_t b = high;
  std::uint32_t c = from.number;
  std::uint32_t d = from.purpose;
  std::uint32_t first = from.key[0];
  std::uint32_t second = from.key[1];
  ESPALIER_UNROLL
  for (int round = 0; round < philox_rounds; ++round) {
    const std::uint64_t even = std::uint64_t{0xD2511F53U} * a;
    const std::uint64_t odd = std::uint64_t{0xCD9E8D57U} * c;
    a = static_cast<std::uint32_t>(odd >> 32U) ^ b ^ first;
    b = static_cast<std::uint32_t>(odd);
    c = static_cast<std::uint32_t>(even >> 32U) ^ d ^ second;
    d = static_cast<std::uint32_t>(even);
    first += 0x9E3779B9U;
    second += 0xBB67AE85U;
  }
  return {{a, b, c, d}};
}

/// As many blocks as are computed side by side where they do not follow each other.
inline constexpr int scattered_blocks = 16;

/// Writes the words of `count` whole blocks, from block `first` on.
inline void write_blocks(const random_stream& from, std::uint64_t first, std::int64_t count, std::uint32_t* to) {
  while (count > 0) {
    const auto low = static_cast<std::uint32_t>(first);
    const auto high = static_cast<std::uint32_t>(first >> 32U);
    // Until the lower word of the counter starts again at 0.
    const std::int64_t here = std::min(count, (std::int64_t{1} << 32) - std::int64_t{low});
    vector_loop(here, [=](std::int64_t i) ESPALIER_ALWAYS_INLINE_BODY {
      const random_block made = block_of(from, low + static_cast<std::uint32_t>(i), high);
      to[4 * i] = made.word[0];
      to[4 * i + 1] = made.word[1];
      to[4 * i + 2] = made.word[2];
      to[4 * i + 3] = made.word[3];
    });
    first += static_cast<std::uint64_t>(here);
    to += 4 * here;
    count -= here;
  }
}

/// Blocks of which only some words are wanted, or that do not follow each other: computed side by side as well.
class scattered_words {
 public:
  explicit scattered_words(const random_stream& from) : from_(from) {}

  /// Words [first, first + count) of a block go to `to`.
  void add(std::uint64_t block, int first, int count, std::uint32_t* to) {
    low_[waiting_] = static_cast<std::uint32_t>(block);
    high_[waiting_] = static_cast<std::uint32_t>(block >> 32U);
    first_[waiting_] = first;
    count_[waiting_] = count;
    to_[waiting_] = to;
    if (++waiting_ == scattered_blocks) write();
  }
  void write() {
    std::uint32_t words[4 * scattered_blocks];
    const random_stream from = from_;
    const std::uint32_t* const low = &low_[0];
    const std::uint32_t* const high = &high_[0];
    std::uint32_t* const made = &words[0];
    vector_loop(scattered_blocks, [=](std::int64_t i) ESPALIER_ALWAYS_INLINE_BODY {
      const random_block one = block_of(from, low[i], high[i]);
      made[4 * i] = one.word[0];
      made[4 * i + 1] = one.word[1];
      made[4 * i + 2] = one.word[2];
      made[4 * i + 3] = one.word[3];
    });
    for (int n = 0; n < waiting_; ++n) {
      for (int k = 0; k < count_[n]; ++k) to_[n][k] = words[4 * n + first_[n] + k];
    }
    waiting_ = 0;
  }

 private:
  random_stream from_;
  int waiting_ = 0;
  std::uint32_t low_[scattered_blocks]{};
  std::uint32_t high_[scattered_blocks]{};
  int first_[scattered_blocks]{};
  int count_[scattered_blocks]{};
  std::uint32_t* to_[scattered_blocks]{};
};

/// Writes the words of elements [at, at + count) of a whole tensor.
inline void write_run(const random_stream& from, scattered_words& scattered, std::int64_t at, std::int64_t count,
                      std::uint32_t* to) {
  while (count > 0) {
    const auto block = static_cast<std::uint64_t>(at) / 4;
    const auto first = static_cast<int>(at % 4);
    if (first == 0 && count >= 4 * scattered_blocks) {
      const std::int64_t whole = count / 4;
      write_blocks(from, block, whole, to);
      at += 4 * whole;
      to += 4 * whole;
      count -= 4 * whole;
    } else {
      const int here = static_cast<int>(std::min<std::int64_t>(4 - first, count));
      scattered.add(block, first, here, to);
      at += here;
      to += here;
      count -= here;
    }
  }
}

/// A buffer as runs of elements that follow each other in the whole tensor, too.
class tensor_runs {
 public:
  /// `shape` is that of the buffer, `box` the part of the tensor that it holds.
  tensor_runs(const extents& shape, const tensor_box& box, const extents& whole) {
    std::int64_t stride = 1;
    for (int d = shape.rank - 1; d >= 0; --d) {
      start_ += box.dim[d].start * stride;
      if (inside_) {
        length_ *= shape[d];
        inside_ = shape[d] == whole[d];
      } else {
        size_[dims_] = shape[d];
        stride_[dims_] = stride;
        ++dims_;
      }
      stride *= whole[d];
    }
  }

  [[nodiscard]] std::int64_t length() const { return length_; }

  /// Calls `f(where in the whole tensor, count, where in the buffer)` for the elements [first, last) of the buffer.
  template <class F> void for_each(std::int64_t first, std::int64_t last, const F& f) const {
    if (first >= last) return;
    std::int64_t index[max_rank]{};
    std::int64_t at = start_;
    std::int64_t rest = first / length_;
    for (int d = 0; d < dims_; ++d) {
      index[d] = rest % size_[d];
      rest /= size_[d];
      at += index[d] * stride_[d];
    }
    for (std::int64_t i = first; i < last;) {
      const std::int64_t inside = i % length_;
      const std::int64_t count = std::min(length_ - inside, last - i);
      f(at + inside, count, i);
      i += count;
      for (int d = 0; d < dims_; ++d) {
        at += stride_[d];
        if (++index[d] < size_[d]) break;
        at -= size_[d] * stride_[d];
        index[d] = 0;
      }
    }
  }

 private:
  std::int64_t start_ = 0;
  std::int64_t length_ = 1;
  bool inside_ = true;
  /// The dimensions outside of the runs, the last first.
  int dims_ = 0;
  std::int64_t size_[max_rank]{};
  std::int64_t stride_[max_rank]{};
};

/// The words of the elements that a buffer holds. How they are shared out changes none of them.
inline void write_words(const random_stream& from, const extents& shape, const tensor_box& box, const extents& whole,
                        std::uint32_t* to) {
  const tensor_runs runs(shape, box, whole);
  const std::int64_t blocks = (shape.elements() + 3) / 4;
  parallel_ranges(blocks, 4 * shape.elements(), [&](std::int64_t first, std::int64_t last) {
    scattered_words scattered(from);
    runs.for_each(4 * first, std::min(4 * last, shape.elements()),
                  [&](std::int64_t at, std::int64_t count, std::int64_t i) {
                    write_run(from, scattered, at, count, to + i);
                  });
    scattered.write();
  });
}

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct kernel<&ops::random_bits> {
  static constexpr std::int64_t scratch_bytes(const kernel_key&) { return 0; }
  template <kernel_key Key> static void run(const kernel_call& call) {
    const auto* const key = static_cast<const std::uint32_t*>(call.operand[0]);
    detail::random_stream from{{key[0], key[1]}, 0, static_cast<std::uint32_t>(Key.attribute[0])};
    if constexpr (Key.operand_count > 1) from.number = *static_cast<const std::uint32_t*>(call.operand[1]);
    // An i32 may be written as the unsigned type of its size.
    detail::write_words(from, Key.shape, call.boxes->result, call.boxes->whole,
                        static_cast<std::uint32_t*>(call.result));
  }
};

}  // namespace espalier::kernels
