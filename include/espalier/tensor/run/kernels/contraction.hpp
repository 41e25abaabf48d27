// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/dtype.hpp>
#include <espalier/tensor/run/kernels/blas.hpp>
#include <espalier/tensor/run/kernels/contraction/run.hpp>
#include <espalier/tensor/run/kernels/contraction/search.hpp>
#include <espalier/tensor/run/kernels/kernel.hpp>
#include <espalier/tensor/run/kernels/kernel_set.hpp>

#include <cstdint>
#include <type_traits>

// einsum of two operands on static extents. `plan_of` makes a plan at compile time (contraction/search.hpp): it says
// which labels become the rows, columns and depth of a matrix product, which become loops around it, and which
// operands, if any, are first rearranged in scratch. `contract` runs it (contraction/run.hpp): one function runs all
// plans, so that each costs little to compile.

namespace espalier::detail {

/// Products of floats are computed in this type: double if one of the three is, else float.
[[nodiscard]] constexpr dtype product_type(dtype a, dtype b, dtype c) {
  return a == dtype::f64 || b == dtype::f64 || c == dtype::f64 ? dtype::f64 : dtype::f32;
}
[[nodiscard]] constexpr kernels::gemm_plan plan_for(const kernels::contraction& p, dtype a, dtype b, dtype c) {
  const dtype computed = product_type(a, b, c);
  const bool must_pack[3] = {a != computed, b != computed, c != computed};
  return make_plan(p, must_pack);
}

template <kernels::contraction P, dtype A, dtype B, dtype C>
inline constexpr kernels::gemm_plan static_plan = plan_for(P, A, B, C);

}  // namespace espalier::detail

namespace espalier::kernels {

/// The plan of a contraction of f32 or f64 tensors (@pre `is_valid(p)`), or of tensors of three types of floats: one
/// that the product is not computed in (`detail::product_type`) is converted in scratch.
[[nodiscard]] constexpr gemm_plan plan_of(const contraction& p) {
  return detail::plan_for(p, dtype::f32, dtype::f32, dtype::f32);
}
[[nodiscard]] constexpr gemm_plan plan_of(const contraction& p, dtype a, dtype b, dtype c) {
  return detail::plan_for(p, a, b, c);
}

/// Bytes of scratch that `contract` needs for these element types; 0 where every operand is used where it lies.
[[nodiscard]] constexpr std::int64_t scratch_bytes(const contraction& p, dtype a, dtype b, dtype c) {
  return plan_of(p, a, b, c).scratch_elements * size_of(detail::product_type(a, b, c));
}
[[nodiscard]] constexpr std::int64_t scratch_bytes(const contraction& p, dtype type) {
  return scratch_bytes(p, type, type, type);
}

/// C = alpha * einsum(A, B) + beta * C; with beta = 0, C is written without being read.
///
/// A, B and C are row-major, contiguous, and do not overlap; each is float, double or for storage only. They are
/// multiplied and summed in double if one of them is, else in float, and rounded once. `scratch`:
/// `scratch_bytes` bytes aligned to 64 (null where that is 0). Nothing is allocated. Runs on up to
/// `omp_get_max_threads()` threads of the calling thread, and on one inside a parallel region. `tail`, if given: what
/// follows each part of C.
template <contraction P, class A, class B, class C, class Backend = detail::default_backend>
void contract(const A* a, const B* b, C* c, detail::compute_t<A, B, C> alpha, detail::compute_t<A, B, C> beta,
              void* scratch, product_tail* tail = nullptr) {
  static_assert(is_valid(P), "contract: each label must be in two or three of A, B and C, and once in C");
  constexpr int shared = shared_product(dtype_of<A>, dtype_of<B>, dtype_of<C>);
  if constexpr (shares_kernels && shared >= 0 && std::is_same_v<Backend, detail::default_backend>) {
    return processor_kernels().products[shared].contract(detail::static_plan<P, dtype_of<A>, dtype_of<B>, dtype_of<C>>,
                                                         a, b, c, alpha, beta, scratch, tail);
  } else {
    detail::run_contraction<Backend>(detail::static_plan<P, dtype_of<A>, dtype_of<B>, dtype_of<C>>, a, b, c, alpha,
                                     beta, scratch, tail);
  }
}

/// Iteration `item` of the plan's loops alone, on one thread, with alpha 1 and beta 0. Of a lower triangle, row i has
/// at least the columns before the next multiple of `triangle_grain`; what is not computed is not written.
/// @pre `plan_of(P, ...)` needs no scratch, and 0 <= item < its `iterations`; for a lower triangle it is a gemm whose
/// m and n are equal
template <contraction P, class A, class B, class C, class Backend = detail::default_backend>
void contract_item(const A* a, const B* b, C* c, std::int64_t item, bool lower_triangle = false) {
  constexpr int shared = shared_product(dtype_of<A>, dtype_of<B>, dtype_of<C>);
  if constexpr (shares_kernels && shared >= 0 && std::is_same_v<Backend, detail::default_backend>) {
    processor_kernels().products[shared].contract_item(detail::static_plan<P, dtype_of<A>, dtype_of<B>, dtype_of<C>>, a,
                                                       b, c, item, lower_triangle);
  } else {
    detail::run_contraction_item<Backend>(detail::static_plan<P, dtype_of<A>, dtype_of<B>, dtype_of<C>>, a, b, c, item,
                                          lower_triangle);
  }
}

}  // namespace espalier::kernels
