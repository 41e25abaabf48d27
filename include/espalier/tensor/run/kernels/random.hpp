// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/simd.hpp>
#include <espalier/base/streaming.hpp>
#include <espalier/tensor/core/ops/random.hpp>
#include <espalier/tensor/run/kernels/kernel.hpp>
#include <espalier/tensor/run/kernels/lanes.hpp>
#include <espalier/tensor/run/kernels/parallel.hpp>
#include <espalier/tensor/run/kernels/typed_kernel.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace espalier::detail {

/// The key, and the words that all counters of one tensor share.
struct random_stream {
  std::uint32_t key[2];
  std::uint32_t number;
  std::uint32_t purpose;
};

// Blocks are computed side by side, a word in the lower half of each lane of 64 bits. What is in the upper half does
// not count, and is left there: so a round is six instructions for as many blocks as there are lanes. (A plain loop
// over words of 32 bits, as compilers vectorise it, takes twice the time.)

inline constexpr int block_lanes = integer_simd_bytes / static_cast<int>(sizeof(std::uint64_t));
using word_lanes = lanes<std::uint64_t, block_lanes>;

[[nodiscard]] ESPALIER_ALWAYS_INLINE word_lanes all_lanes(std::uint64_t value) { return word_lanes{} + value; }

/// The products of the lower halves.
[[nodiscard]] ESPALIER_ALWAYS_INLINE word_lanes product_of_words(word_lanes a, word_lanes b) {
  // By its name: <immintrin.h>, which has a function for it, costs every program 0.25 s and 100 MB.
#if defined(__AVX2__)
  word_lanes product;
  asm("vpmuludq %2, %1, %0" : "=v"(product) : "v"(a), "v"(b));
  return product;
#elif defined(__SSE2__)
  asm("pmuludq %1, %0" : "+x"(a) : "x"(b));
  return a;
#else
  return (a & 0xffffffffU) * (b & 0xffffffffU);
#endif
}

/// The four words of as many blocks as there are lanes.
struct block_words {
  word_lanes word[4];
};
/// Two of them: while one waits for its products the other one has work.
inline constexpr int side_by_side = 2;
inline constexpr int blocks_at_once = side_by_side * block_lanes;

inline constexpr std::uint32_t philox_factor[2]{0xD2511F53U, 0xCD9E8D57U};
inline constexpr std::uint32_t philox_step[2]{0x9E3779B9U, 0xBB67AE85U};

/// Runs the rounds from `First` to the last one.
template <int First> ESPALIER_ALWAYS_INLINE void philox_rounds_from(const random_stream& from, block_words* w) {
  ESPALIER_UNROLL
  for (unsigned round = First; round < philox_rounds; ++round) {
    const word_lanes first = all_lanes(static_cast<std::uint32_t>(from.key[0] + round * philox_step[0]));
    const word_lanes second = all_lanes(static_cast<std::uint32_t>(from.key[1] + round * philox_step[1]));
    ESPALIER_UNROLL
    for (int n = 0; n < side_by_side; ++n) {
      word_lanes* const word = &w[n].word[0];
      const word_lanes even = product_of_words(word[0], all_lanes(philox_factor[0]));
      const word_lanes odd = product_of_words(word[2], all_lanes(philox_factor[1]));
      word[0] = (odd >> 32) ^ word[1] ^ first;
      word[1] = odd;
      word[2] = (even >> 32) ^ word[3] ^ second;
      word[3] = even;
    }
  }
}

/// A tensor of so many bytes is in no cache when it is read: then its words are written past the caches, which need
/// not fetch first what they are to replace.
inline constexpr std::int64_t least_streamed_bytes = std::int64_t{64} << 20;

template <store How, std::size_t... Lane>
ESPALIER_ALWAYS_INLINE void store_words(const block_words& w, std::uint32_t* to, std::index_sequence<Lane...>) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::size_t half = block_lanes / 2;
  const word_lanes lower = all_lanes(0xffffffffU);
  const word_lanes left = (w.word[0] & lower) | (w.word[1] << 32);
  const word_lanes right = (w.word[2] & lower) | (w.word[3] << 32);
  const word_lanes pairs[2]{chosen_lanes<(Lane / 2 + (Lane % 2) * block_lanes)...>(left, right),
                            chosen_lanes<(half + Lane / 2 + (Lane % 2) * block_lanes)...>(left, right)};
  if constexpr (How == store::streaming && sizeof(pairs) % line_bytes == 0) {
    constexpr std::size_t line = line_bytes / sizeof(word_lanes);
    ESPALIER_UNROLL
    for (std::size_t k = 0; k < 2; k += line) stream_line(to + k * 2 * block_lanes, &pairs[k]);
  } else {
    std::memcpy(to, &pairs[0], sizeof(pairs));
  }
}
template <store How> ESPALIER_ALWAYS_INLINE void store_words(const block_words* w, std::uint32_t* to) {
  ESPALIER_UNROLL
  for (int n = 0; n < side_by_side; ++n) {
    store_words<How>(w[n], to + 4 * block_lanes * n, std::make_index_sequence<static_cast<std::size_t>(block_lanes)>{});
  }
}

/// Writes the words of `count` blocks, a multiple of `blocks_at_once`, from block `first` on.
/// @pre they all have the same upper half of their number; `to` is the begin of a line where the store is streaming
template <store How>
inline void write_blocks(const random_stream& from, std::uint64_t first, std::int64_t count, std::uint32_t* to) {
  word_lanes even[side_by_side];
  for (int n = 0; n < side_by_side; ++n) {
    word_lanes number = all_lanes(static_cast<std::uint32_t>(first));
    for (int lane = 0; lane < block_lanes; ++lane) number[lane] += static_cast<unsigned>(n * block_lanes + lane);
    even[n] = product_of_words(number, all_lanes(philox_factor[0]));
  }
  // In the first round, only the product of the block's number differs from block to block: each is the last one plus
  // a constant.
  const std::uint64_t odd = std::uint64_t{philox_factor[1]} * from.number;
  const word_lanes one =
      all_lanes(static_cast<std::uint32_t>(odd >> 32U) ^ static_cast<std::uint32_t>(first >> 32U) ^ from.key[0]);
  const word_lanes other = all_lanes(from.purpose ^ from.key[1]);
  for (std::int64_t i = 0; i < count; i += blocks_at_once) {
    block_words w[side_by_side];
    ESPALIER_UNROLL
    for (int n = 0; n < side_by_side; ++n) {
      w[n] = {{one, all_lanes(odd), (even[n] >> 32) ^ other, even[n]}};
      even[n] += std::uint64_t{philox_factor[0]} * blocks_at_once;
    }
    philox_rounds_from<1>(from, &w[0]);
    store_words<How>(&w[0], to + 4 * i);
  }
}

/// The number of blocks that are collected and then computed side by side if they do not follow each other.
inline constexpr int scattered_blocks = 16;

/// Blocks of which only some words are wanted, or that do not follow each other: computed side by side as well.
class scattered_words {
 public:
  explicit scattered_words(const random_stream& from) : from_(from) {}

  /// Words [first, first + count) of a block go to `to`.
  void add(std::uint64_t block, int first, int count, std::uint32_t* to) {
    low_[waiting_] = block;  // of which the lower half counts
    high_[waiting_] = block >> 32U;
    first_[waiting_] = first;
    count_[waiting_] = count;
    to_[waiting_] = to;
    if (++waiting_ == scattered_blocks) write();
  }
  void write() {
    std::uint32_t words[4 * scattered_blocks];
    for (int start = 0; start < waiting_; start += blocks_at_once) {
      block_words w[side_by_side];
      for (int n = 0; n < side_by_side; ++n) {
        std::memcpy(&w[n].word[0], &low_[start + n * block_lanes], sizeof(word_lanes));
        std::memcpy(&w[n].word[1], &high_[start + n * block_lanes], sizeof(word_lanes));
        w[n].word[2] = all_lanes(from_.number);
        w[n].word[3] = all_lanes(from_.purpose);
      }
      philox_rounds_from<0>(from_, &w[0]);
      store_words<store::cached>(&w[0], &words[4 * start]);
    }
    for (int n = 0; n < waiting_; ++n) {
      for (int k = 0; k < count_[n]; ++k) to_[n][k] = words[4 * n + first_[n] + k];
    }
    waiting_ = 0;
  }

 private:
  static_assert(scattered_blocks % blocks_at_once == 0);

  random_stream from_;
  int waiting_ = 0;
  std::uint64_t low_[scattered_blocks]{};
  std::uint64_t high_[scattered_blocks]{};
  int first_[scattered_blocks]{};
  int count_[scattered_blocks]{};
  std::uint32_t* to_[scattered_blocks]{};
};

/// Writes the words of elements [at, at + count) of a whole tensor.
inline void write_run(const random_stream& from, scattered_words& scattered, std::int64_t at, std::int64_t count,
                      std::uint32_t* to, store how) {
  while (count > 0) {
    const auto block = static_cast<std::uint64_t>(at) / 4;
    const auto first = static_cast<int>(at % 4);
    // Until the lower half of the block's number starts again at 0.
    const std::int64_t same = (std::int64_t{1} << 32) - static_cast<std::int64_t>(block & 0xffffffffU);
    const std::int64_t whole = smaller_of(count / 4, same) / blocks_at_once * blocks_at_once;
    if (first == 0 && whole > 0) {
      if (how == store::streaming && to_next_line(to, line_bytes) == 0) {
        write_blocks<store::streaming>(from, block, whole, to);
      } else {
        write_blocks<store::cached>(from, block, whole, to);
      }
      at += 4 * whole;
      to += 4 * whole;
      count -= 4 * whole;
    } else {
      const int here = static_cast<int>(smaller_of<std::int64_t>(4 - first, count));
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
      const std::int64_t count = smaller_of(length_ - inside, last - i);
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

/// The shape without its first dimensions.
[[nodiscard]] constexpr extents without_dimensions(const extents& shape, int count) {
  extents rest;
  for (int d = count; d < shape.rank; ++d) rest.append(shape[d]);
  return rest;
}

/// The words of the elements that a buffer holds. How they are shared out changes none of them, nor whether they are
/// written past the caches: from so many bytes on.
inline void write_words(const random_stream& from, const extents& shape, const tensor_box& box, const extents& whole,
                        std::uint32_t* to, std::int64_t streamed_from = least_streamed_bytes) {
  const tensor_runs runs(shape, box, whole);
  const std::int64_t blocks = (shape.elements() + 3) / 4;
  const auto bytes = shape.elements() * static_cast<std::int64_t>(sizeof(std::uint32_t));
  const store how = bytes >= streamed_from ? store::streaming : store::cached;
  parallel_ranges(blocks, 4 * shape.elements(), [&](std::int64_t first, std::int64_t last) {
    scattered_words scattered(from);
    runs.for_each(4 * first, smaller_of(4 * last, shape.elements()),
                  [&](std::int64_t at, std::int64_t count, std::int64_t i) {
                    write_run(from, scattered, at, count, to + i, how);
                  });
    scattered.write();
    if (how == store::streaming) finish_streaming();
  });
}

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct kernel<&ops::random_bits> : typed_kernel<&ops::random_bits>, no_scratch {
  /// Words and keys have 32 bits, whichever integers they are.
  [[nodiscard]] static constexpr kernel_types types_of(const kernel_key& /*key*/) { return of_types(dtype::u32); }
  static constexpr kernel_types shared[]{of_types(dtype::u32)};

  template <kernel_types Types> static void run_typed(const kernel_key& key, const kernel_call& call) {
    const auto* const keys = static_cast<const std::uint32_t*>(call.operand[0]);
    const auto* const numbers = static_cast<const std::uint32_t*>(key.operand_count > 1 ? call.operand[1] : nullptr);
    const auto words = attributes_of<detail::random_attributes>(key);
    // An i32 may be written as the unsigned type of its size.
    auto* const to = static_cast<std::uint32_t*>(call.result);
    const extents shape = detail::without_dimensions(key.shape, words.keys);
    const extents whole = detail::without_dimensions(call.boxes->whole, words.keys);
    tensor_box box;
    for (int d = 0; d < shape.rank; ++d) box.dim[d] = call.boxes->result.dim[d + words.keys];
    for (std::int64_t n = 0; n < key.shape.product(0, words.keys); ++n) {
      const detail::random_stream from{{keys[2 * n], keys[2 * n + 1]},
                                       numbers == nullptr ? 0 : numbers[n],
                                       static_cast<std::uint32_t>(words.purpose)};
      detail::write_words(from, shape, box, whole, to + n * shape.elements());
    }
  }
};

}  // namespace espalier::kernels
