// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/dtype.hpp>
#include <espalier/comm/reduce.hpp>
#include <espalier/tensor/core/graph/instruction.hpp>
#include <espalier/tensor/core/partition/row_product.hpp>
#include <espalier/tensor/run/kernels/kernel.hpp>

#include <cstdint>

// The kernels that programs share. Most of their work does not depend on a program's extents: these functions take them
// as values, and only types are static. By default they are compiled in each program, for the instruction set that its
// flags say. With the compiled part of the library (ESPALIER_COMPILED) a program has none of their code: the compiled
// part has them once for each instruction set, and the processor that a program runs on says which set serves.

namespace espalier::detail {
struct run_nest;
struct transpose_plan;
struct reduction_plan;
}  // namespace espalier::detail

namespace espalier::kernels {

struct gemm_plan;
struct row_call;

/// Element types of the operands and the result of a product.
struct product_types {
  dtype a = dtype::f32;
  dtype b = dtype::f32;
  dtype c = dtype::f32;
  friend constexpr bool operator==(const product_types&, const product_types&) = default;
};
/// Those that kernel sets multiply.
inline constexpr product_types shared_products[]{
    {dtype::f32, dtype::f32, dtype::f32},    {dtype::f64, dtype::f64, dtype::f64},
    {dtype::bf16, dtype::bf16, dtype::bf16}, {dtype::bf16, dtype::bf16, dtype::f32},
    {dtype::bf16, dtype::f32, dtype::f32},   {dtype::f32, dtype::bf16, dtype::f32},
    {dtype::bf16, dtype::f32, dtype::bf16},  {dtype::f32, dtype::bf16, dtype::bf16},
    {dtype::f32, dtype::f32, dtype::bf16},   {dtype::f16, dtype::f16, dtype::f16},
    {dtype::f16, dtype::f16, dtype::f32}};
inline constexpr int shared_product_count = static_cast<int>(sizeof(shared_products) / sizeof(product_types));
/// The index in `shared_products`, or -1.
[[nodiscard]] constexpr int shared_product(dtype a, dtype b, dtype c) {
  for (int n = 0; n < shared_product_count; ++n) {
    if (shared_products[n] == product_types{a, b, c}) return n;
  }
  return -1;
}

/// Element types of the operand and the result of a reduction.
struct reduction_types {
  dtype from = dtype::f32;
  dtype to = dtype::f32;
  friend constexpr bool operator==(const reduction_types&, const reduction_types&) = default;
};
/// Those that kernel sets reduce, by each kind of reduction.
inline constexpr reduction_types shared_reductions[]{
    {dtype::f32, dtype::f32},  {dtype::f64, dtype::f64}, {dtype::bf16, dtype::bf16}, {dtype::bf16, dtype::f32},
    {dtype::f32, dtype::bf16}, {dtype::f16, dtype::f16}, {dtype::f16, dtype::f32},   {dtype::f32, dtype::f16},
    {dtype::i32, dtype::i32},  {dtype::i64, dtype::i64}, {dtype::i8, dtype::i8},     {dtype::u8, dtype::u8},
    {dtype::u32, dtype::u32}};
inline constexpr int shared_reduction_count = static_cast<int>(sizeof(shared_reductions) / sizeof(reduction_types));
/// The index in a set's table, or -1.
[[nodiscard]] constexpr int shared_reduction(reduction kind, dtype from, dtype to) {
  for (int n = 0; n < shared_reduction_count; ++n) {
    if (shared_reductions[n] == reduction_types{from, to}) return static_cast<int>(kind) * shared_reduction_count + n;
  }
  return -1;
}

/// What the code of a kernel depends on that takes extents as values (typed_kernel.hpp).
struct kernel_types {
  dtype type = dtype::f32;
  int operand_count = 0;
  /// Of the first operands: a kernel with more of them is not for these.
  dtype operand_type[inline_operands]{};
  /// The choice of the key's attributes, as the kernel numbers it.
  int variant = 0;
  friend constexpr bool operator==(const kernel_types&, const kernel_types&) = default;
};
[[nodiscard]] constexpr kernel_types all_types_of(const kernel_key& key) {
  kernel_types types{.type = key.type, .operand_count = key.operand_count};
  for (int k = 0; k < inline_operands; ++k) types.operand_type[k] = key.operand_type[k];
  return types;
}
/// `of_types(dtype::f32, dtype::f32, dtype::i32)`: an f32 of an f32 and an i32.
template <class... Types> [[nodiscard]] constexpr kernel_types of_types(dtype result, Types... operands) {
  return {.type = result, .operand_count = sizeof...(Types), .operand_type = {operands...}};
}
[[nodiscard]] constexpr kernel_types with_variant(kernel_types types, int variant) {
  types.variant = variant;
  return types;
}
/// Whether kernel sets have a kernel for these types.
template <class Kernel> [[nodiscard]] constexpr bool has_shared_types(const kernel_types& types) {
  if constexpr (requires { Kernel::shared; }) {
    for (const kernel_types& one : Kernel::shared) {
      if (one == types) return true;
    }
  }
  return false;
}
using typed_function = void (*)(const kernel_key& key, const kernel_call& call);

/// The instruction sets: what the compiled part's own flags allow, and what x86-64-v3 and x86-64-v4 name.
enum class set_level : std::uint8_t { base, avx2, avx512 };

/// The functions for one instruction set. Elements that are only moved are words of 1, 2, 4 or 8 bytes: tables of four
/// begin with the shortest.
struct kernel_set {
  set_level level = set_level::base;
  /// The micro-operation of a step, or null if the sets do not have it (`is_shared`).
  block_function (*block)(const char* op, const block_key& key) = nullptr;
  /// The kernel of an op for these types, or null if the sets do not have it (`has_shared_types`).
  typed_function (*kernel)(const char* op, const kernel_types& types) = nullptr;
  void (*copy[4])(const detail::run_nest& nest, const void* from, void* to){};
  void (*transpose[4])(const detail::transpose_plan& plan, const void* from, void* to){};
  void (*reduce[4 * shared_reduction_count])(const detail::reduction_plan& plan, const void* from, void* to,
                                             void* scratch){};
  /// How elements are combined that devices send each other (comm/reducer.hpp).
  comm::reducer (*reducer)(dtype type, reduction kind) = nullptr;
  /// See `contract` (contraction.hpp) and `row_product` (partition/row_product.hpp).
  struct product {
    void (*contract)(const gemm_plan& plan, const void* a, const void* b, void* c, double alpha, double beta,
                     void* scratch, product_tail* tail) = nullptr;
    void (*contract_item)(const gemm_plan& plan, const void* a, const void* b, void* c, std::int64_t item,
                          bool lower_triangle) = nullptr;
    void (*rows)(const row_product& plan, const row_call& call) = nullptr;
    std::int64_t (*row_scratch)(const row_product& plan, std::int64_t rows) = nullptr;
  };
  product products[shared_product_count]{};
  /// The rows of a tile of a product of f32.
  std::int64_t tile_rows = 0;
};

/// Whether there is a compiled part, and whether programs take from it what they can. With ESPALIER_OWN_KERNELS a file
/// has all kernels itself, as without a compiled part: the library's tests run both ways.
#if defined(ESPALIER_COMPILED)
inline constexpr bool has_kernel_sets = true;
#else
inline constexpr bool has_kernel_sets = false;
#endif
#if defined(ESPALIER_COMPILED) && !defined(ESPALIER_OWN_KERNELS)
inline constexpr bool shares_kernels = true;
#else
inline constexpr bool shares_kernels = false;
#endif

/// The set for the processor this runs on: the best that it supports and that the compiled part has.
/// ESPALIER_KERNELS=avx2 in the environment, or `base`, asks for a lesser one, for comparisons.
[[nodiscard]] const kernel_set& processor_kernels();

/// The index of the functions that move elements of so many bytes.
[[nodiscard]] constexpr int word_index(std::int64_t bytes) {
  return bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3;
}

}  // namespace espalier::kernels
