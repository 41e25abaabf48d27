// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/dtype.hpp>
#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/config.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace espalier::comm {

/// Dimensions a box may have: as many as a tensor. Most boxes need few once neighbouring ones are joined;
/// the others have extent 1 and cost nothing.
inline constexpr int block_rank = 8;

/// A box of elements that lies strided in a source and in a target buffer. Units: elements. The innermost dimension is
/// the last; an unused dimension has extent 1. A box with an extent of 0 is empty: uneven shards have such boxes.
/// "Packed order" is row-major over the extents, and is how the box travels.
struct block {
  static_assert(block_rank == 8);
  std::int64_t extent[block_rank] = {1, 1, 1, 1, 1, 1, 1, 1};
  std::int64_t source_stride[block_rank] = {};
  std::int64_t target_stride[block_rank] = {};
  std::int64_t source_offset = 0;
  std::int64_t target_offset = 0;

  [[nodiscard]] constexpr std::int64_t elements() const {
    return extent[0] * extent[1] * extent[2] * extent[3] * extent[4] * extent[5] * extent[6] * extent[7];
  }
  [[nodiscard]] constexpr bool empty() const { return elements() == 0; }

  [[nodiscard]] friend constexpr bool operator==(const block&, const block&) = default;
};

/// The box of `count` elements that lies contiguously on both sides.
[[nodiscard]] constexpr block contiguous_block(std::int64_t count, std::int64_t source_offset = 0,
                                               std::int64_t target_offset = 0) {
  block box;
  box.extent[block_rank - 1] = count;
  box.source_stride[block_rank - 1] = 1;
  box.target_stride[block_rank - 1] = 1;
  box.source_offset = source_offset;
  box.target_offset = target_offset;
  return box;
}

/// A box that contains nothing.
[[nodiscard]] constexpr block empty_block() { return contiguous_block(0); }

/// The facts on which all members of a collective agree: which ranks take part, and which channel counts its bytes.
struct transfer_group {
  /// World ranks in group order, this rank included. The order is also the order of every reduction.
  std::vector<int> members;
  /// Index of this rank in `members`.
  int self = 0;
  /// Index of the byte counter; the caller gives each kind of collective and axis group its own.
  int channel = 0;
};

/// The part of one rank in a collective that moves boxes between the members of a group.
struct transfer : transfer_group {
  /// Per member: the box of this rank's source that goes there; its target side is the packed message.
  espalier::detail::plain_vector<block> outgoing;
  /// Per member k: the source side lies in member k's OWN source buffer, the target side in this rank's target.
  /// @pre `incoming[k].elements()` equals what member k has in its `outgoing` for this rank.
  espalier::detail::plain_vector<block> incoming;
  dtype type = dtype::f32;
};

/// Bytes this rank sends to other members in `moves`; what stays on the rank costs nothing.
[[nodiscard]] inline std::int64_t sent_bytes(const transfer& moves) {
  std::int64_t elements = 0;
  for (std::size_t k = 0; k < moves.outgoing.size(); ++k) {
    if (k != static_cast<std::size_t>(moves.self)) elements += moves.outgoing[k].elements();
  }
  return elements * size_of(moves.type);
}

/// Elements [begin, end) of a buffer.
struct element_range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] constexpr std::int64_t size() const { return end - begin; }
};

/// Which elements of `count` member `index` of `members` reduces in an all-reduce: the first `count % members` ranges
/// are one element longer than the others.
[[nodiscard]] constexpr element_range owned_range(std::int64_t count, int members, int index) {
  const std::int64_t base = count / members;
  const std::int64_t longer = count % members;
  const std::int64_t begin = index * base + espalier::detail::smaller_of<std::int64_t>(index, longer);
  return {begin, begin + base + (index < longer ? 1 : 0)};
}

/// Bytes member `self` of `members` sends in one all-reduce of `count` elements: everyone's part of its own values,
/// then its own part of the result to everyone; 2(n-1)/n of the buffer when it divides evenly. Equal to what the
/// run-time counter shows.
[[nodiscard]] constexpr std::int64_t all_reduce_sent_bytes(std::int64_t count, std::int64_t element_size, int members,
                                                           int self) {
  const std::int64_t own = owned_range(count, members, self).size();
  return (count - own + own * (members - 1)) * element_size;
}

}  // namespace espalier::comm

namespace espalier::comm::detail {

using comm::block;
using comm::block_rank;

/// Visits packed elements [first, first + count) of a box as inner runs: `visit(source, target, length)` with the
/// indices of the run's first element on both sides.
template <class Visit>
constexpr void for_each_run(const block& box, std::int64_t first, std::int64_t count, Visit visit) {
  if (count <= 0) return;
  constexpr int inner = block_rank - 1;
  const std::int64_t row = box.extent[inner];
  std::int64_t column = first % row;
  std::int64_t rest = first / row;
  std::int64_t index[inner] = {};
  std::int64_t source = box.source_offset;
  std::int64_t target = box.target_offset;
  for (int d = inner - 1; d >= 0; --d) {
    if (box.extent[d] == 1) continue;
    index[d] = rest % box.extent[d];
    rest /= box.extent[d];
    source += index[d] * box.source_stride[d];
    target += index[d] * box.target_stride[d];
  }
  while (count > 0) {
    const std::int64_t length = espalier::detail::smaller_of(row - column, count);
    visit(source + column * box.source_stride[inner], target + column * box.target_stride[inner], length);
    count -= length;
    column = 0;
    for (int d = inner - 1; d >= 0; --d) {
      source += box.source_stride[d];
      target += box.target_stride[d];
      if (++index[d] < box.extent[d]) break;
      source -= box.extent[d] * box.source_stride[d];
      target -= box.extent[d] * box.target_stride[d];
      index[d] = 0;
    }
  }
}

template <class T>
void copy_run(T* target, std::int64_t target_step, const T* source, std::int64_t source_step, std::int64_t length) {
  if (source_step == 1 && target_step == 1) {
    std::memcpy(target, source, static_cast<std::size_t>(length) * sizeof(T));
    return;
  }
  ESPALIER_VECTORISE
  for (std::int64_t i = 0; i < length; ++i) target[i * target_step] = source[i * source_step];
}

/// The side of a box that is a packed message instead, whose elements follow one another without gaps.
enum class packed_side : std::uint8_t { none, source, target };

/// Packed elements [first, first + count) of a box. All three kinds of copies are this one, so that a program has them
/// once for each size of elements.
template <class T>
void copy_range(T* target, const T* source, const block& box, std::int64_t first, std::int64_t count,
                packed_side packed) {
  const std::int64_t from = packed == packed_side::source ? 1 : box.source_stride[block_rank - 1];
  const std::int64_t to = packed == packed_side::target ? 1 : box.target_stride[block_rank - 1];
  for_each_run(box, first, count, [&](std::int64_t s, std::int64_t t, std::int64_t length) {
    copy_run(packed == packed_side::target ? target : target + t, to,
             packed == packed_side::source ? source : source + s, from, length);
    if (packed == packed_side::target) target += length;
    if (packed == packed_side::source) source += length;
  });
}

/// Returns where packed elements [first, first + count) start if they lie contiguously on one side, else -1.
[[nodiscard]] constexpr std::int64_t contiguous_start(const std::int64_t (&extent)[block_rank],
                                                      const std::int64_t (&stride)[block_rank], std::int64_t offset,
                                                      std::int64_t first, std::int64_t count) {
  std::int64_t run = 1;  // elements that follow one another on this side, seen from the inside
  std::int64_t start = offset;
  std::int64_t rest = first;
  bool unbroken = true;
  for (int d = block_rank - 1; d >= 0; --d) {
    if (extent[d] == 0) return offset;
    if (extent[d] == 1) continue;
    if (unbroken) {
      unbroken = stride[d] == run;
      if (unbroken) run *= extent[d];
    }
    start += rest % extent[d] * stride[d];
    rest /= extent[d];
  }
  return count <= 1 || first % run + count <= run ? start : -1;
}

[[nodiscard]] constexpr std::int64_t contiguous_source(const block& box, std::int64_t first, std::int64_t count) {
  return contiguous_start(box.extent, box.source_stride, box.source_offset, first, count);
}

[[nodiscard]] constexpr std::int64_t contiguous_target(const block& box, std::int64_t first, std::int64_t count) {
  return contiguous_start(box.extent, box.target_stride, box.target_offset, first, count);
}

/// The word as which elements are copied: all types of one size share the copy.
template <class Word> struct [[gnu::may_alias]] cell { Word bits; };

/// Calls `visit(cell)` with the cell that is as large as an element of `type`.
template <class Visit> void with_cell(dtype type, const Visit& visit) {
  switch (size_of(type)) {
    case 1: return visit(cell<std::uint8_t>{});
    case 2: return visit(cell<std::uint16_t>{});
    case 4: return visit(cell<std::uint32_t>{});
    default: return visit(cell<std::uint64_t>{});
  }
}
static_assert([] {
  for (const dtype_facts& row : dtype_table)
    if (row.bytes != 1 && row.bytes != 2 && row.bytes != 4 && row.bytes != 8) return false;
  return true;
}());

/// `copy_range` where the element type is known at run time.
inline void copy_range(dtype type, void* target, const void* source, const block& box, std::int64_t first,
                       std::int64_t count, packed_side packed) {
  with_cell(type, [&]<class T>(T) {
    copy_range(static_cast<T*>(target), static_cast<const T*>(source), box, first, count, packed);
  });
}

/// Source side of packed elements [first, first + count) into contiguous `packed`.
inline void pack_range(dtype type, void* packed, const void* source, const block& box, std::int64_t first,
                       std::int64_t count) {
  copy_range(type, packed, source, box, first, count, packed_side::target);
}

/// Contiguous `packed` to the target side of packed elements [first, first + count).
inline void unpack_range(dtype type, void* target, const void* packed, const block& box, std::int64_t first,
                         std::int64_t count) {
  copy_range(type, target, packed, box, first, count, packed_side::source);
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// Copies the box from `source` to `target`.
/// @pre the two sides do not overlap
template <class T> void copy_block(T* target, const T* source, const block& box) {
  detail::copy_range(target, source, box, 0, box.elements(), detail::packed_side::none);
}

/// `copy_block` where the element type is known at run time.
inline void copy_block(dtype type, void* target, const void* source, const block& box) {
  detail::copy_range(type, target, source, box, 0, box.elements(), detail::packed_side::none);
}

/// Source side of the box into `packed`, `box.elements()` elements in packed order.
inline void pack(dtype type, void* packed, const void* source, const block& box) {
  detail::pack_range(type, packed, source, box, 0, box.elements());
}

/// `packed`, `box.elements()` elements in packed order, to the target side of the box.
inline void unpack(dtype type, void* target, const void* packed, const block& box) {
  detail::unpack_range(type, target, packed, box, 0, box.elements());
}

}  // namespace espalier::comm
