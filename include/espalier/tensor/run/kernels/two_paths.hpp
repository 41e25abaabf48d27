// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/run/kernels/elementwise.hpp>

// Functions that a vector loop computes for almost all arguments, and for the rest only a library does. A look at all
// elements of the block decides: in almost all blocks there is none of the rest, and the loop has no branch.

namespace espalier::detail {

// Such a function has `apply` for arguments that `is_usual` accepts, and `exact` for the others.

template <class Function, class... Readers>
[[nodiscard]] ESPALIER_ALWAYS_INLINE bool is_usual_row(std::int64_t columns, Readers... from) {
  unsigned unusual = 0;
  ESPALIER_OMP(simd reduction(| : unusual))
  for (std::int64_t c = 0; c < columns; ++c) unusual |= Function::is_usual(from[c]...) ? 0U : 1U;
  return unusual == 0;
}
template <class Function, std::int64_t Columns, bool Wide, class... Operands>
[[nodiscard]] bool is_usual_block(const kernels::block_call& call, Operands... from) {
  const std::int64_t columns = Wide ? columns_of_block<Columns>(call) : 1;
  for (std::int64_t r = 0; r < call.rows; ++r) {
    if (!is_usual_row<Function>(columns, from.at(r)...)) return false;
  }
  return true;
}

template <class Function, std::int64_t Columns, bool Wide, class Result, class... Operands>
void map_one_by_one(const kernels::block_call& call, Operands... from) {
  const auto either = [](auto... a) {
    return Function::is_usual(a...) ? Function::apply(a...) : Function::exact(a...);
  };
  const std::int64_t columns = Wide ? columns_of_block<Columns>(call) : 1;
  for (std::int64_t r = 0; r < call.rows; ++r) {
    auto* const to = static_cast<Result*>(call.result.data) + r * call.result.row;
    for (std::int64_t c = 0; c < columns; ++c) to[c] = element_cast<Result>(either(from.at(r)[c]...));
  }
}

/// The block kernel of such a function. What an element becomes does not depend on the others.
template <class Function> struct two_path_block {
  template <kernels::block_key Key> static void run(const kernels::block_call& call) {
    if constexpr (has_halves(Key)) {
      run_through_floats(call, half_sides_of(Key), &two_path_block::template run<with_floats(Key)>);
    } else {
      run_in_place<Key>(call);
    }
  }

 private:
  template <kernels::block_key Key> static void run_in_place(const kernels::block_call& call) {
    constexpr bool wide = result_is_wide<Key>;
    const auto map = [&call](auto... from) {
      if (is_usual_block<Function, Key.columns, wide>(call, from...)) {
        map_block<Function, Key.columns, wide, storage_t<Key.type>>(call, from...);
      } else {
        map_one_by_one<Function, Key.columns, wide, storage_t<Key.type>>(call, from...);
      }
    };
    if constexpr (Key.operand_count == 1) {
      map(operand_for<Key, 0>(call.operand[0]));
    } else {
      map(operand_for<Key, 0>(call.operand[0]), operand_for<Key, 1>(call.operand[1]));
    }
  }
};

}  // namespace espalier::detail
