// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/ops/gather.hpp>
#include <espalier/tensor/run/kernels/reduce.hpp>
#include <espalier/tensor/run/kernels/typed_kernel.hpp>

#include <cstdint>
#include <type_traits>

namespace espalier::detail {

/// A table [outer, rows, inner], looked up `count` times, in parts of `each` with the same indices: all of it at once,
/// unless the lookups are a batch.
struct table_shape {
  std::int64_t outer = 1;
  std::int64_t rows = 1;
  std::int64_t inner = 1;
  std::int64_t count = 1;
  std::int64_t each = 1;

  /// The number of lookups of a batch, and which of them a part `o` of the table is of.
  [[nodiscard]] constexpr std::int64_t lookups() const { return each == 0 ? 0 : outer / each; }
  [[nodiscard]] constexpr std::int64_t lookup_of(std::int64_t o) const { return each == outer ? 0 : o / each; }
  /// The place of the first index for a part `o` of the table.
  [[nodiscard]] constexpr std::int64_t first_index(std::int64_t o) const { return lookup_of(o) * count; }
};

[[nodiscard]] constexpr table_shape shape_of_table(const extents& table, const extents& indices, gather_attributes at) {
  return {table.product(0, at.dim), table[at.dim], stride_of(table, at.dim), indices.product(at.batch, indices.rank),
          table.product(at.batch, at.dim)};
}

/// The element type that moves elements of the size of another.
[[nodiscard]] constexpr dtype word_type(dtype type) {
  switch (size_of(type)) {
    case 1: return dtype::u8;
    case 2: return dtype::bf16;
    case 4: return dtype::u32;
    default: return dtype::i64;
  }
}

template <class T, class Index>
void gather_rows(const table_shape& shape, interval here, const T* table, const Index* indices, T* to) {
  const std::int64_t real = smaller_of(here.size, shape.rows);
  const std::int64_t lookups = shape.outer * shape.count;
  parallel_ranges(lookups, lookups * shape.inner, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t row = std::int64_t{indices[shape.first_index(i / shape.count) + i % shape.count]} - here.start;
      T* out = to + i * shape.inner;
      if (row >= 0 && row < real) {
        copy_run(out, table + (i / shape.count * shape.rows + row) * shape.inner, shape.inner, 1);
      } else {
        fill_run(out, shape.inner, T{});
      }
    }
  });
}

/// The part of a table that one thread adds into: no other thread touches it, and the updates reach it in their order,
/// so that the result does not depend on the number of threads.
struct table_slice {
  std::int64_t outer_first = 0, outer_last = 0;
  std::int64_t row_first = 0, row_last = 0;
  std::int64_t first = 0, last = 0;  // of a row's elements
};

/// Cuts the dimension that makes long pieces of work out of few long runs.
[[nodiscard]] inline table_slice slice_of(const table_shape& shape, std::int64_t part, std::int64_t parts) {
  const auto cut = [=](std::int64_t extent, std::int64_t at) { return extent * at / parts; };
  table_slice mine{0, shape.outer, 0, shape.rows, 0, shape.inner};
  if (shape.outer >= 2 * parts) {
    mine.outer_first = cut(shape.outer, part);
    mine.outer_last = cut(shape.outer, part + 1);
  } else if (shape.inner >= 64 * parts) {
    // At whole cache lines, of rows that begin with one.
    const auto line = [&](std::int64_t at) { return at == parts ? shape.inner : cut(shape.inner, at) / 64 * 64; };
    mine.first = line(part);
    mine.last = line(part + 1);
  } else {
    mine.row_first = cut(shape.rows, part);
    mine.row_last = cut(shape.rows, part + 1);
  }
  return mine;
}

/// What is known of a lookup's indices before any row is added: the rows that this device has and that some index
/// names, and the indices that are the first to name theirs. One byte for each row, and one for each index; of a batch,
/// those of each lookup one after the other.
template <class Index>
void mark_first(const table_shape& shape, interval here, const Index* indices, unsigned char* named,
                unsigned char* is_first) {
  const std::int64_t end = smaller_of(here.size, shape.rows);
  fill_run(named, shape.lookups() * shape.rows, static_cast<unsigned char>(0));
  for (std::int64_t lookup = 0; lookup < shape.lookups(); ++lookup) {
    for (std::int64_t n = 0; n < shape.count; ++n) {
      const std::int64_t row = std::int64_t{indices[n]} - here.start;
      is_first[n] = 0;
      if (row < 0 || row >= end) continue;
      is_first[n] = named[row] == 0 ? 1 : 0;
      named[row] = 1;
    }
    indices += shape.count;
    named += shape.rows;
    is_first += shape.count;
  }
}

/// The first update of a row is stored and later ones are added, in their order: rows are not filled with zeros to be
/// read again. Adding it to zero makes a negative zero a positive one, as a sum would.
template <class T, class Acc, class Index>
void add_rows(const table_shape& shape, const table_slice& part, interval here, const Index* indices,
              const unsigned char* named, const unsigned char* is_first, const T* updates, Acc* table) {
  const std::int64_t width = part.last - part.first;
  const std::int64_t end = smaller_of(part.row_last, here.size, shape.rows);
  for (std::int64_t o = part.outer_first; o < part.outer_last; ++o) {
    const Index* const own = indices + shape.first_index(o);
    const unsigned char* const own_named = named + shape.lookup_of(o) * shape.rows;
    const unsigned char* const own_first = is_first + shape.first_index(o);
    Acc* slab = table + o * shape.rows * shape.inner + part.first;
    for (std::int64_t r = part.row_first; r < part.row_last; ++r) {
      if (own_named[r] == 0) fill_run(slab + r * shape.inner, width, Acc(0));
    }
    for (std::int64_t n = 0; n < shape.count; ++n) {
      const std::int64_t row = std::int64_t{own[n]} - here.start;
      if (row < part.row_first || row >= end) continue;
      Acc* to = slab + row * shape.inner;
      const T* from = updates + (o * shape.count + n) * shape.inner + part.first;
      if (own_first[n] != 0) {
        vector_loop(width, [=](std::int64_t i) { to[i] = static_cast<Acc>(Acc(0) + element_cast<Acc>(from[i])); });
      } else {
        vector_loop(width, [=](std::int64_t i) { to[i] = static_cast<Acc>(to[i] + element_cast<Acc>(from[i])); });
      }
    }
  }
}

/// Bytes for what `mark_first` finds, and for sums of another type than the result's.
struct scatter_scratch {
  std::int64_t sums = 0;
  std::int64_t rows = 0;
  std::int64_t count = 0;
  [[nodiscard]] constexpr std::int64_t bytes() const { return sums + rows + count; }
};
template <class T, class R, class Index>
void scatter_add_rows(const table_shape& shape, interval here, const Index* indices, const T* updates, R* to,
                      const scatter_scratch& room, void* scratch) {
  using acc = accumulator_t<R, reduction::sum>;  // bf16 would lose small updates of a large sum
  acc* sums = nullptr;
  if constexpr (sizeof(acc) != sizeof(R)) {
    sums = static_cast<acc*>(scratch);
  } else {
    sums = reinterpret_cast<acc*>(to);  // the unsigned type of an integer may read and write it
  }
  auto* const named = static_cast<unsigned char*>(scratch) + room.sums;
  unsigned char* const is_first = named + room.rows;
  mark_first(shape, here, indices, named, is_first);
  const std::int64_t elements = shape.outer * shape.rows * shape.inner;
  const std::int64_t work = elements + shape.outer * shape.count * shape.inner;
  const std::int64_t threads = threads_for(work, work);
  parallel_ranges(threads, work, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t)
      add_rows(shape, slice_of(shape, t, threads), here, indices, named, is_first, updates, sums);
  });
  if constexpr (sizeof(acc) != sizeof(R)) {
    parallel_ranges(elements, elements, [=](std::int64_t first, std::int64_t last) {
      vector_loop(last - first, [=](std::int64_t i) { to[first + i] = element_cast<R>(sums[first + i]); });
    });
  }
}

}  // namespace espalier::detail

namespace espalier::kernels {

/// The boxes say which of the looked-up dimension's rows this device has; indices of others, and of padding, give 0.
template <> struct kernel<&ops::gather> : typed_kernel<&ops::gather>, no_scratch {
  /// Elements are moved as words of their size.
  [[nodiscard]] static constexpr kernel_types types_of(const kernel_key& key) {
    const dtype word = detail::word_type(key.type);
    return of_types(word, word, key.operand_type[1]);
  }
  static constexpr kernel_types shared[]{
      of_types(dtype::u8, dtype::u8, dtype::i32), of_types(dtype::bf16, dtype::bf16, dtype::i32),
      of_types(dtype::u32, dtype::u32, dtype::i32), of_types(dtype::i64, dtype::i64, dtype::i32)};

  template <kernel_types Types> static void run_typed(const kernel_key& key, const kernel_call& call) {
    using element = storage_t<Types.type>;
    using index = storage_t<Types.operand_type[1]>;
    const auto at = attributes_of<gather_attributes>(key);
    const detail::table_shape shape = detail::shape_of_table(key.operand_shape[0], key.operand_shape[1], at);
    detail::gather_rows(shape, call.boxes->operand[0].dim[at.dim], static_cast<const element*>(call.operand[0]),
                        static_cast<const index*>(call.operand[1]), static_cast<element*>(call.result));
  }
};

template <> struct kernel<&ops::scatter_add> : typed_kernel<&ops::scatter_add> {
  static constexpr kernel_types shared[]{
      of_types(dtype::f32, dtype::i32, dtype::f32),   of_types(dtype::f64, dtype::i32, dtype::f64),
      of_types(dtype::bf16, dtype::i32, dtype::bf16), of_types(dtype::f32, dtype::i32, dtype::bf16),
      of_types(dtype::f16, dtype::i32, dtype::f16),   of_types(dtype::f32, dtype::i32, dtype::f16)};

  static constexpr detail::scatter_scratch room(const kernel_key& key) {
    const std::int64_t bytes = size_of(facts_of(key.type).accumulate);
    const auto at = attributes_of<gather_attributes>(key);
    return {.sums = bytes == size_of(key.type) ? 0 : key.shape.elements() * bytes,
            .rows = detail::shape_of_table(key.shape, key.operand_shape[0], at).lookups() * key.shape[at.dim],
            .count = key.operand_shape[0].elements()};
  }
  static constexpr std::int64_t scratch_bytes(const kernel_key& key) { return room(key).bytes(); }
  template <kernel_types Types> static void run_typed(const kernel_key& key, const kernel_call& call) {
    using element = storage_t<Types.type>;
    using index = storage_t<Types.operand_type[0]>;
    const auto at = attributes_of<gather_attributes>(key);
    const detail::table_shape shape = detail::shape_of_table(key.shape, key.operand_shape[0], at);
    detail::scatter_add_rows(shape, call.boxes->result.dim[at.dim], static_cast<const index*>(call.operand[0]),
                             static_cast<const storage_t<Types.operand_type[1]>*>(call.operand[1]),
                             static_cast<element*>(call.result), room(key), call.scratch);
  }
};

}  // namespace espalier::kernels
