// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/fill.hpp>
#include <espalier/tensor/core/ops/convolution.hpp>
#include <espalier/tensor/run/kernels/contraction.hpp>
#include <espalier/tensor/run/kernels/elementwise.hpp>
#include <espalier/tensor/run/kernels/kernel_set.hpp>
#include <espalier/tensor/run/kernels/parallel.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace espalier::detail {

template <class To, class From> void convert_all(std::int64_t count, const From* from, To* to) {
  parallel_ranges(count, count, [=](std::int64_t first, std::int64_t last) {
    if constexpr (is_half_run<From, To>) {
      convert_run(from + first, to + first, last - first);
    } else {
      vector_loop(last - first, [=](std::int64_t i) { to[first + i] = element_cast<To>(from[first + i]); });
    }
  });
}

/// Integers, for which there is no fast library: term by term, modulo 2^32 or 2^64, as `evaluate` orders them.
template <class T, class F>
void convolve_exactly(const kernels::kernel_call& call, const windowed_attributes& attributes, const extents& input,
                      const extents& filter, const extents& output, const tensor_box& input_box,
                      const tensor_box& output_box, std::int64_t count, const F& f) {
  instruction self;
  set_attributes(self, attributes);
  evaluation e;
  e.self = &self;
  e.windows = call.windows;
  auto* const result = static_cast<T*>(call.result);
  fill_elements(result, result + count, T{});
  for_each_term_of_convolution(e, input, filter, output, input_box, output_box, f);
}
template <class T, class A, class B> void add_product(T& sum, A a, B b) {
  using word = std::make_unsigned_t<T>;
  sum = static_cast<T>(static_cast<word>(sum) + static_cast<word>(static_cast<word>(a) * static_cast<word>(b)));
}

/// What kernel sets convolve. The code that does most of the work is one for f32, f64 and bf16 each: it reads the first
/// operand, and what other types need, and all f16, is converted before and after.
inline constexpr kernels::kernel_types shared_convolutions[]{
    kernels::of_types(dtype::f32, dtype::f32, dtype::f32),    kernels::of_types(dtype::f64, dtype::f64, dtype::f64),
    kernels::of_types(dtype::bf16, dtype::bf16, dtype::bf16), kernels::of_types(dtype::f32, dtype::bf16, dtype::bf16),
    kernels::of_types(dtype::f32, dtype::f32, dtype::bf16),   kernels::of_types(dtype::f32, dtype::bf16, dtype::f32),
    kernels::of_types(dtype::bf16, dtype::f32, dtype::bf16),  kernels::of_types(dtype::bf16, dtype::bf16, dtype::f32),
    kernels::of_types(dtype::f16, dtype::f16, dtype::f16),    kernels::of_types(dtype::f32, dtype::f16, dtype::f16)};

/// The type of products, as which operands and results of another type are converted in scratch.
template <class Key> [[nodiscard]] constexpr dtype product_of(const Key& key) {
  return product_type(key.operand_type[0], key.operand_type[1], key.type);
}
template <kernels::kernel_types Types> struct convolution_types {
  using first = storage_t<Types.operand_type[0]>;
  using second = storage_t<Types.operand_type[1]>;
  using result = storage_t<Types.type>;
  using product = storage_t<product_of(Types)>;
};

/// Scratch for so many elements of products, and for those of operands and of the result that are converted.
[[nodiscard]] constexpr std::int64_t product_bytes(const kernels::kernel_key& key, std::int64_t others, bool second) {
  if (!is_floating(key.type)) return 0;
  const dtype product = product_of(key);
  if (key.operand_type[0] == dtype::f16) others += key.operand_shape[0].elements();
  if (second && key.operand_type[1] != product) others += key.operand_shape[1].elements();
  if (key.type != product) others += key.shape.elements();
  return others * size_of(product);
}

/// Elements of an operand as products have them: where they are, or converted in scratch, whose rest `scratch` is then.
template <class Product, class T>
[[nodiscard]] const Product* as_products(std::int64_t count, const T* from, Product*& scratch) {
  if constexpr (std::is_same_v<T, Product>) {
    return from;
  } else {
    Product* const converted = std::exchange(scratch, scratch + count);
    convert_all(count, from, converted);
    return converted;
  }
}
/// Those of the first operand, which is read in its own type, but for f16.
template <class Product, class T>
[[nodiscard]] const auto* as_first_operand(std::int64_t count, const T* from, Product*& scratch) {
  if constexpr (std::is_same_v<T, float16>) {
    return as_products(count, from, scratch);
  } else {
    return from;
  }
}
/// Calls `f(sums)`, which writes a result as products have it.
template <class Product, class T, class F> void with_sums(std::int64_t count, T* result, Product* scratch, const F& f) {
  if constexpr (std::is_same_v<T, Product>) {
    f(result);
  } else {
    f(scratch);
    convert_all(count, scratch, result);
  }
}

}  // namespace espalier::detail
