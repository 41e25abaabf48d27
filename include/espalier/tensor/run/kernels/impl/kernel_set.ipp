// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The functions of a kernel set: the compiled half of kernel_set.hpp.
//
// The compiled part has them once for its own flags (cmake/espalier.cpp), and once for each instruction set that these
// do not have (cmake/espalier_kernels.cpp). There the namespace `espalier` itself has another name, since functions of
// one name are one function for the linker, whichever instructions they are made of.
#include <espalier/base/fixed_string.hpp>
#include <espalier/comm/reducer.hpp>
#include <espalier/tensor/core/partition/ops_by_name.hpp>
#include <espalier/tensor/run/kernels/contraction.hpp>
#include <espalier/tensor/run/kernels/kernel_set.hpp>
#include <espalier/tensor/run/kernels/reduce.hpp>
#include <espalier/tensor/run/kernels/reshape.hpp>
#include <espalier/tensor/run/kernels/row_product.hpp>
#include <espalier/tensor/run/kernels/shared_blocks.hpp>
#include <espalier/tensor/run/kernels/transpose.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

namespace espalier::detail {

// --- micro-operations
// -------------------------------------------------------------------------------------------------

/// Which operands have an element for each column, as bits; `all_narrow`: not even the result has.
[[nodiscard]] constexpr int all_narrow(int operands) { return 1 << operands; }
[[nodiscard]] constexpr kernels::block_key key_of_pattern(const kernels::shared_block& row, dtype from, dtype to,
                                                          int pattern) {
  kernels::block_key key;
  key.columns = any_columns;
  key.type = to;
  key.operand_count = row.operands;
  key.result_wide = pattern != all_narrow(row.operands);
  for (int k = 0; k < row.operands; ++k) {
    key.operand_type[k] = kernels::operand_type_of(row.signature, k, from);
    key.wide[k] = key.result_wide && (pattern >> k & 1) != 0;
  }
  return key;
}
/// Of rows of one column all have one element a row, which is the same.
[[nodiscard]] constexpr int pattern_of(const kernels::block_key& key) {
  if (!key.result_wide || key.columns == 1) return all_narrow(key.operand_count);
  int pattern = 0;
  for (int k = 0; k < key.operand_count; ++k) pattern |= key.wide[k] ? 1 << k : 0;
  return pattern;
}

template <kernels::shared_block Row, dtype From, dtype To, std::size_t... Pattern>
[[nodiscard]] kernels::block_function find_pattern(const kernels::block_key& key, std::index_sequence<Pattern...>) {
  static constexpr kernels::block_function all[]{
      &kernels::block_kernel<Row.op>::template run<key_of_pattern(Row, From, To, static_cast<int>(Pattern))>...};
  return all[pattern_of(key)];
}
template <kernels::shared_block Row, dtype From, dtype To>
[[nodiscard]] kernels::block_function find_pattern(const kernels::block_key& key) {
  return find_pattern<Row, From, To>(
      key, std::make_index_sequence<static_cast<std::size_t>(all_narrow(Row.operands)) + 1>{});
}

/// A row that is reduced has an element for each column, however many there are.
template <reduction Kind, bool Accumulates, dtype Type> [[nodiscard]] constexpr kernels::block_key reduction_key() {
  kernels::block_key key;
  key.columns = any_columns;
  key.type = Type;
  key.operand_count = 1;
  key.operand_type[0] = Type;
  key.wide[0] = true;
  key.result_wide = Accumulates;
  set_attributes(key, fused_reduction_attributes{.kind = Kind, .accumulates = Accumulates});
  return key;
}
template <reduction Kind, dtype Type> [[nodiscard]] kernels::block_function find_reduction(bool accumulates) {
  return accumulates ? &reduce_block::run<reduction_key<Kind, true, Type>()>
                     : &reduce_block::run<reduction_key<Kind, false, Type>()>;
}
template <dtype Type> [[nodiscard]] kernels::block_function find_reduction(const fused_reduction_attributes& by) {
  switch (by.kind) {
    case reduction::sum: return find_reduction<reduction::sum, Type>(by.accumulates);
    case reduction::prod: return find_reduction<reduction::prod, Type>(by.accumulates);
    case reduction::max: return find_reduction<reduction::max, Type>(by.accumulates);
    case reduction::min: return find_reduction<reduction::min, Type>(by.accumulates);
  }
  return nullptr;
}

template <int Dim, dtype Type> [[nodiscard]] constexpr kernels::block_key index_key() {
  kernels::block_key key;
  key.columns = any_columns;
  key.type = Type;
  set_attributes(key, fused_index_attributes{.along_columns = true, .dim = Dim});
  return key;
}
template <dtype Type, int... Dim>
[[nodiscard]] kernels::block_function find_index(int dim, std::integer_sequence<int, Dim...>) {
  static constexpr kernels::block_function all[]{
      &kernels::block_kernel<&ops::iota>::template run<index_key<Dim, Type>()>...};
  return all[dim];
}

/// Calls `visit` with the type as a constant, if it is in the set.
template <kernels::type_set Set, int At = 0, class Visit> void with_type(dtype type, const Visit& visit) {
  if constexpr ((Set >> At) != 0) {
    if constexpr ((Set >> At & 1) != 0) {
      if (static_cast<int>(type) == At) return visit(std::integral_constant<dtype, static_cast<dtype>(At)>{});
    }
    with_type<Set, At + 1>(type, visit);
  }
}

template <kernels::shared_block Row> [[nodiscard]] kernels::block_function find_in_row(const kernels::block_key& key) {
  using kernels::block_signature;
  kernels::block_function found = nullptr;
  if constexpr (Row.signature == block_signature::converts) {
    with_type<Row.types>(key.operand_type[0], [&](auto from) {
      with_type<Row.types>(key.type, [&](auto to) { found = find_pattern<Row, from(), to()>(key); });
    });
  } else if constexpr (Row.signature == block_signature::compares) {
    with_type<Row.types>(key.operand_type[0],
                         [&](auto from) { found = find_pattern<Row, from(), dtype::boolean>(key); });
  } else if constexpr (Row.signature == block_signature::reduces) {
    with_type<Row.types>(
        key.type, [&](auto type) { found = find_reduction<type()>(attributes_of<fused_reduction_attributes>(key)); });
  } else if constexpr (Row.signature == block_signature::counts) {
    const int dim = attributes_of<fused_index_attributes>(key).dim;
    with_type<Row.types>(
        key.type, [&](auto type) { found = find_index<type()>(dim, std::make_integer_sequence<int, max_rank>{}); });
  } else {
    with_type<Row.types>(key.type, [&](auto type) { found = find_pattern<Row, type(), type()>(key); });
  }
  return found;
}

template <std::size_t... Row>
[[nodiscard]] kernels::block_function find_block(const char* op, const kernels::block_key& key,
                                                 std::index_sequence<Row...>) {
  kernels::block_function found = nullptr;
  const auto look = [&]<std::size_t R>(std::integral_constant<std::size_t, R>) {
    constexpr kernels::shared_block row = kernels::shared_blocks[R];
    if (!same_text(row.op->name, op)) return false;
    if (has_types(row, key)) found = find_in_row<row>(key);
    return true;
  };
  static_cast<void>((look(std::integral_constant<std::size_t, Row>{}) || ...));
  return found;
}
[[nodiscard]] inline kernels::block_function find_block(const char* op, const kernels::block_key& key) {
  return find_block(op, key, std::make_index_sequence<kernels::shared_block_count>{});
}

// --- kernels that depend on types
// -------------------------------------------------------------------------------------------------

template <class Kernel, std::size_t... Types>
[[nodiscard]] kernels::typed_function find_types(const kernels::kernel_types& types, std::index_sequence<Types...>) {
  kernels::typed_function found = nullptr;
  const auto look = [&]<std::size_t T>(std::integral_constant<std::size_t, T>) {
    constexpr kernels::kernel_types all = Kernel::shared[T];
    if (all == types) found = &Kernel::template run_typed<all>;
  };
  (look(std::integral_constant<std::size_t, Types>{}), ...);
  return found;
}
template <std::size_t... Op>
[[nodiscard]] kernels::typed_function find_kernel(const char* op, const kernels::kernel_types& types,
                                                  std::index_sequence<Op...>) {
  kernels::typed_function found = nullptr;
  const auto look = [&]<std::size_t N>(std::integral_constant<std::size_t, N>) {
    constexpr const op_info* info = named_ops[N];
    if constexpr (requires { kernels::kernel<info>::shared; }) {
      using kernel = kernels::kernel<info>;
      if (same_text(info->name, op))
        found = find_types<kernel>(types, std::make_index_sequence<std::size(kernel::shared)>{});
    }
  };
  (look(std::integral_constant<std::size_t, Op>{}), ...);
  return found;
}
/// All ops are asked whether they have types to share: none is listed here.
[[nodiscard]] inline kernels::typed_function find_kernel(const char* op, const kernels::kernel_types& types) {
  return find_kernel(op, types, std::make_index_sequence<std::size(named_ops)>{});
}

// --- whole kernels
// ----------------------------------------------------------------------------------------------------

/// The few short runs that are frequent have code of their own, as all have where extents are static.
template <class Word> void copy_words(const run_nest& nest, const void* from, void* to) {
  const auto* source = static_cast<const Word*>(from);
  auto* target = static_cast<Word*>(to);
  switch (nest.run) {
    case 1: return copy_nest<Word, 1>(nest, source, target);
    case 2: return copy_nest<Word, 2>(nest, source, target);
    case 3: return copy_nest<Word, 3>(nest, source, target);
    case 4: return copy_nest<Word, 4>(nest, source, target);
    case 8: return copy_nest<Word, 8>(nest, source, target);
    case 16: return copy_nest<Word, 16>(nest, source, target);
    default: return copy_nest<Word, 0>(nest, source, target);
  }
}
template <class Word> void transpose_words(const transpose_plan& plan, const void* from, void* to) {
  transpose_planes(plan, static_cast<const Word*>(from), static_cast<Word*>(to));
}

/// Short results of what is summed in float. Apart, since few are written.
inline void write_short_results(dtype type, void* to, std::int64_t at, const float* values, std::int64_t count) {
  if (type == dtype::f16) {
    result_writer<float16>{static_cast<float16*>(to)}(at, values, count);
  } else {
    result_writer<bfloat16>{static_cast<bfloat16*>(to)}(at, values, count);
  }
}
/// Stores results that are kept in Acc until then, in a type that only the call knows: so all of them share the code
/// that reduces.
template <class Acc> struct typed_writer {
  void* to;
  dtype type;
  ESPALIER_ALWAYS_INLINE void operator()(std::int64_t at, const Acc* values, std::int64_t count) const {
    if constexpr (std::is_same_v<Acc, float>) {
      if (type != dtype::f32) return write_short_results(type, to, at, values, count);
    }
    result_writer<Acc>{static_cast<Acc*>(to)}(at, values, count);
  }
};
template <reduction Kind, dtype From, dtype To>
void reduce_typed(const reduction_plan& plan, const void* from, void* to, void* scratch) {
  using acc = accumulator_t<storage_t<To>, Kind>;
  reduce_tensor_by<Kind, 0, acc>(plan, static_cast<const storage_t<From>*>(from), scratch, typed_writer<acc>{to, To});
}

template <dtype A, dtype B, dtype C> struct shared_product_functions {
  using left = storage_t<A>;
  using right = storage_t<B>;
  using result = storage_t<C>;
  using computed = compute_t<left, right, result>;

  static void contract(const kernels::gemm_plan& plan, const void* a, const void* b, void* c, double alpha, double beta,
                       void* scratch, kernels::product_tail* tail) {
    run_contraction<default_backend>(plan, static_cast<const left*>(a), static_cast<const right*>(b),
                                     static_cast<result*>(c), static_cast<computed>(alpha), static_cast<computed>(beta),
                                     scratch, tail);
  }
  static void contract_item(const kernels::gemm_plan& plan, const void* a, const void* b, void* c, std::int64_t item,
                            bool lower_triangle) {
    run_contraction_item<default_backend>(plan, static_cast<const left*>(a), static_cast<const right*>(b),
                                          static_cast<result*>(c), item, lower_triangle);
  }
};

template <std::size_t... Product> void add_products(kernels::kernel_set& set, std::index_sequence<Product...>) {
  const auto add = [&]<std::size_t P>(std::integral_constant<std::size_t, P>) {
    static constexpr kernels::product_types types = kernels::shared_products[P];
    using functions = shared_product_functions<types.a, types.b, types.c>;
    set.products[P].contract = &functions::contract;
    set.products[P].contract_item = &functions::contract_item;
    // The three types, in the order scores, x, y: of all roles.
    using rows = row_product_functions<types.a, types.b, types.c>;
    set.products[P].rows = &rows::run;
    set.products[P].row_scratch = &rows::scratch_bytes;
  };
  (add(std::integral_constant<std::size_t, Product>{}), ...);
}

template <std::size_t... Types> void add_reductions(kernels::kernel_set& set, std::index_sequence<Types...>) {
  const auto add = [&]<reduction Kind, std::size_t N>(std::integral_constant<std::size_t, N>,
                                                      std::integral_constant<reduction, Kind>) {
    constexpr kernels::reduction_types types = kernels::shared_reductions[N];
    set.reduce[kernels::shared_reduction(Kind, types.from, types.to)] = &reduce_typed<Kind, types.from, types.to>;
  };
  const auto add_kind = [&](auto kind) { (add(std::integral_constant<std::size_t, Types>{}, kind), ...); };
  add_kind(std::integral_constant<reduction, reduction::sum>{});
  add_kind(std::integral_constant<reduction, reduction::prod>{});
  add_kind(std::integral_constant<reduction, reduction::max>{});
  add_kind(std::integral_constant<reduction, reduction::min>{});
}

template <class Word> void add_moves(kernels::kernel_set& set) {
  const int n = kernels::word_index(sizeof(Word));
  set.copy[n] = &copy_words<Word>;
  set.transpose[n] = &transpose_words<Word>;
}

[[nodiscard]] inline kernels::kernel_set make_kernel_set(kernels::set_level level) {
  kernels::kernel_set set;
  set.level = level;
  set.block = &find_block;
  set.kernel = &find_kernel;
  set.reducer = &comm::detail::reducer_among<comm::detail::all_reducers>;
  add_moves<std::uint8_t>(set);
  add_moves<std::uint16_t>(set);
  add_moves<std::uint32_t>(set);
  add_moves<std::uint64_t>(set);
  add_reductions(set, std::make_index_sequence<kernels::shared_reduction_count>{});
  add_products(set, std::make_index_sequence<kernels::shared_product_count>{});
  set.tile_rows = tile_sizes<float>::rows;
  return set;
}

}  // namespace espalier::detail
