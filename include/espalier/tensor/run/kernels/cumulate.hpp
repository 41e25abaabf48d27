// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/fill.hpp>
#include <espalier/tensor/core/ops/cumulate.hpp>
#include <espalier/tensor/run/kernels/kernel.hpp>
#include <espalier/tensor/run/kernels/parallel.hpp>
#include <espalier/tensor/run/kernels/reduce.hpp>

#include <cstdint>
#include <type_traits>

namespace espalier::detail {

/// The type of the carried value. Sums and products of floats are carried in double: in float, a sum of ones would stop
/// at 2^24, since each is rounded into it. Integer sums and products wrap, which only unsigned integers may.
template <class T, cumulation Kind>
using carry_t = std::conditional_t<Kind == cumulation::max || Kind == cumulation::min, accumulate_t<T>,
                                   std::conditional_t<is_floating(dtype_of<T>), double, wrapping_t<accumulate_t<T>>>>;

template <class Carry, class T, cumulation Kind> [[nodiscard]] constexpr Carry carry_start() {
  return element_cast<Carry>(element_of_scalar<computed_t<T>>(start_of(Kind)));
}

/// Neighbouring columns are carried along together: enough for a few vectors, few enough to stay in registers.
inline constexpr std::int64_t carried_columns = 32;

/// Walks along a dimension, of which a part has `valid` elements, with what is carried of up to `carried_columns`
/// neighbouring columns in `carry`; `step` is the distance of neighbours in a column. `f(c, at, before, after, b)` is
/// told of each element.
template <cumulation Kind, bool Reverse, class Carry, class A, class B, class F>
ESPALIER_ALWAYS_INLINE void carry_each(const A* a, [[maybe_unused]] const B* b, std::int64_t valid, std::int64_t step,
                                       std::int64_t columns, Carry* carry, const F& f) {
  for (std::int64_t n = 0; n < valid; ++n) {
    const std::int64_t row = (Reverse ? valid - 1 - n : n) * step;
    for (std::int64_t c = 0; c < columns; ++c) {
      const Carry before = carry[c];
      Carry term{};
      if constexpr (is_recurrence(Kind)) term = element_cast<Carry>(b[row + c]);
      carry[c] = carry_on<Kind>(before, element_cast<Carry>(a[row + c]), term);
      f(c, row + c, before, carry[c], term);
    }
  }
}

/// Sums that as many others are added to as they are made of: level l, if it is in use, has those of 2^l blocks. So
/// each element is rounded into as many sums as there are levels (Higham, "The accuracy of floating point summation",
/// 1993, pairwise).
class block_sums {
 public:
  explicit block_sums(std::int64_t columns) : columns_(columns) {}
  void add(const double* block) {
    double sum[carried_columns];
    for (std::int64_t c = 0; c < columns_; ++c) sum[c] = block[c];
    int level = 0;
    for (; (count_ >> level & 1) != 0; ++level) {
      for (std::int64_t c = 0; c < columns_; ++c) sum[c] += level_[level][c];
    }
    for (std::int64_t c = 0; c < columns_; ++c) level_[level][c] = sum[c];
    ++count_;
  }
  /// All of them, added to `start`.
  void total(const double* start, double* to) const {
    for (std::int64_t c = 0; c < columns_; ++c) to[c] = 0;
    for (int level = 0; (count_ >> level) != 0; ++level) {
      if ((count_ >> level & 1) == 0) continue;
      for (std::int64_t c = 0; c < columns_; ++c) to[c] += level_[level][c];
    }
    for (std::int64_t c = 0; c < columns_; ++c) to[c] += start[c];
  }

 private:
  std::int64_t columns_;
  std::int64_t count_ = 0;
  double level_[48][carried_columns];
};

/// The same of doubles that are summed, for which there is no wider type: in blocks of elements, whose sums are added
/// pairwise.
template <bool Reverse, class F>
void carry_in_blocks(const double* a, std::int64_t valid, std::int64_t step, std::int64_t columns, double* carry,
                     const F& f) {
  constexpr std::int64_t block = 64;
  block_sums before(columns);
  double base[carried_columns];
  copy_elements(carry, carry + columns, &base[0]);
  for (std::int64_t first = 0; first < valid; first += block) {
    const std::int64_t count = smaller_of(block, valid - first);
    const std::int64_t at = (Reverse ? valid - first - count : first) * step;
    double sum[carried_columns]{};
    carry_each<cumulation::sum, Reverse>(a + at, a + at, count, step, columns, &sum[0],
                                         [&](std::int64_t c, std::int64_t i, double here, double after, double term) {
                                           f(c, at + i, base[c] + here, base[c] + after, term);
                                         });
    before.add(&sum[0]);
    before.total(carry, &base[0]);
  }
  copy_elements(&base[0], &base[0] + columns, carry);
}

template <cumulation Kind, bool Reverse, class Carry, class A, class B, class F>
ESPALIER_ALWAYS_INLINE void carry_along(const A* a, const B* b, std::int64_t valid, std::int64_t step,
                                        std::int64_t columns, Carry* carry, const F& f) {
  if constexpr (Kind == cumulation::sum && std::is_same_v<A, double>) {
    carry_in_blocks<Reverse>(a, valid, step, columns, carry, f);
  } else {
    carry_each<Kind, Reverse>(a, b, valid, step, columns, carry, f);
  }
}

/// Calls `f(outer, first, columns)` for all blocks of neighbouring columns of a tensor of `Shape`, from several
/// threads.
template <extents Shape, int Along, class F> void for_each_column_block(const F& f) {
  constexpr std::int64_t step = stride_of(Shape, Along);
  constexpr std::int64_t blocks = (step + carried_columns - 1) / carried_columns;
  constexpr std::int64_t count = Shape.product(0, Along) * blocks;
  parallel_ranges(count, Shape.elements(), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t column = i % blocks * carried_columns;
      f(i / blocks, column, smaller_of(carried_columns, step - column));
    }
  });
}

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct kernel<&ops::cumulate> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    static constexpr cumulate_attributes how = attributes_of<cumulate_attributes>(Key);
    constexpr int along = how.dim;
    constexpr int own = detail::is_recurrence(how.kind) ? 2 : 1;
    constexpr int held = detail::carried(how.kind);
    constexpr std::int64_t step = stride_of(Key.shape, along);
    constexpr std::int64_t size = Key.shape[along];
    using element = storage_t<Key.type>;
    using carry_type = detail::carry_t<element, how.kind>;
    const auto* const a = static_cast<const storage_t<Key.operand_type[0]>*>(call.operand[0]);
    const auto* const b = static_cast<const storage_t<Key.operand_type[own - 1]>*>(call.operand[own - 1]);
    auto* const result = static_cast<element*>(call.result);
    const std::int64_t valid = call.boxes->result.dim[along].size;
    detail::for_each_column_block<Key.shape, along>([&](std::int64_t outer, std::int64_t first, std::int64_t columns) {
      carry_type carry[detail::carried_columns];
      for (std::int64_t c = 0; c < columns; ++c) carry[c] = detail::carry_start<carry_type, element, how.kind>();
      if constexpr (Key.operand_count > own) {
        constexpr std::int64_t parts = Key.operand_shape[own][along] / held;
        using part_type = storage_t<Key.operand_type[own]>;
        const std::int64_t mine = call.boxes->operand[own + 1].dim[along].start / held;
        const auto* const carries =
            static_cast<const part_type*>(call.operand[own]) + outer * parts * held * step + first;
        for (std::int64_t c = 0; c < columns; ++c) {
          carry[c] = detail::carried_to<how.kind>(carry[c], carries + c, step, mine, parts, how.reverse);
        }
      }
      const std::int64_t at = outer * size * step + first;
      detail::carry_along<how.kind, how.reverse>(
          a + at, b + at, valid, step, columns, &carry[0],
          [to = result + at](std::int64_t, std::int64_t i, carry_type before, carry_type after, carry_type term) {
            to[i] = detail::element_cast<element>(detail::shown<how.kind, how.exclusive>(before, after, term));
          });
    });
  }
};

template <> struct kernel<&ops::part_of_cumulate> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    static constexpr cumulate_attributes how = attributes_of<cumulate_attributes>(Key);
    constexpr int along = how.dim;
    constexpr int held = detail::carried(how.kind);
    constexpr extents from = Key.operand_shape[0];
    constexpr std::int64_t step = stride_of(from, along);
    using element = storage_t<Key.type>;
    using carry_type = detail::carry_t<element, how.kind>;
    using part_type = storage_t<Key.type>;
    const auto* const a = static_cast<const storage_t<Key.operand_type[0]>*>(call.operand[0]);
    const auto* const b = static_cast<const storage_t<Key.operand_type[held - 1]>*>(call.operand[held - 1]);
    auto* const result = static_cast<part_type*>(call.result);
    const std::int64_t valid = call.boxes->operand[0].dim[along].size;
    detail::for_each_column_block<from, along>([&](std::int64_t outer, std::int64_t first, std::int64_t columns) {
      carry_type carry[detail::carried_columns];
      carry_type factor[detail::carried_columns];
      for (std::int64_t c = 0; c < columns; ++c) {
        carry[c] = detail::carry_start<carry_type, element, how.kind>();
        factor[c] = carry_type(1);
      }
      const std::int64_t at = outer * from[along] * step + first;
      detail::carry_along<how.kind, how.reverse>(a + at, b + at, valid, step, columns, &carry[0],
                                                 [](std::int64_t, std::int64_t, carry_type, carry_type, carry_type) {});
      auto* const to = result + outer * held * step + first;
      if constexpr (held == 2) {
        detail::carry_along<cumulation::prod, how.reverse>(
            a + at, a + at, valid, step, columns, &factor[0],
            [](std::int64_t, std::int64_t, carry_type, carry_type, carry_type) {});
        for (std::int64_t c = 0; c < columns; ++c) to[c] = detail::element_cast<part_type>(factor[c]);
      }
      for (std::int64_t c = 0; c < columns; ++c) to[(held - 1) * step + c] = detail::element_cast<part_type>(carry[c]);
    });
  }
};

}  // namespace espalier::kernels
