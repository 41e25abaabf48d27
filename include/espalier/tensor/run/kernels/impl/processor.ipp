// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Which kernel set a processor gets. Where all files have their own kernels (ESPALIER_OWN_KERNELS), there is none.
#include <espalier/comm/reducer.hpp>
#include <espalier/tensor/run/kernels/gemm.hpp>
#include <espalier/tensor/run/kernels/kernel_set.hpp>
#if !defined(ESPALIER_OWN_KERNELS)
#include <espalier/tensor/run/kernels/impl/kernel_set.ipp>
#endif

#include <cstdlib>

#if defined(ESPALIER_KERNEL_SETS)
#include <cpuid.h>

// Each is a `kernel_set` of the library as cmake/espalier_kernels.cpp names it.
extern "C" const void* espalier_kernels_avx2();
extern "C" const void* espalier_kernels_avx512();
#endif

namespace espalier::detail {

inline const kernels::kernel_set& choose_kernel_set() {
#if defined(ESPALIER_OWN_KERNELS)
  static const kernels::kernel_set base{.reducer = &comm::detail::reducer_among<comm::detail::all_reducers>,
                                        .tile_rows = tile_sizes<float>::rows};
#else
  static const kernels::kernel_set base = make_kernel_set(kernels::set_level::base);
#endif
#if defined(ESPALIER_KERNEL_SETS)
  const char* const text = std::getenv("ESPALIER_KERNELS");
  const char* const wanted = text == nullptr ? "" : text;
  const auto as_set = [](const void* set) -> const kernels::kernel_set& {
    return *static_cast<const kernels::kernel_set*>(set);
  };
  // Not all compilers know the name of the conversions of f16 (half_runs.hpp).
  const auto has_f16c = [] {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  };
  // What x86-64-v4 and x86-64-v3 name.
  const bool has_avx2 = has_f16c() && __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                        __builtin_cpu_supports("bmi") != 0 && __builtin_cpu_supports("bmi2") != 0;
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") != 0 &&
                          __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512cd") != 0 &&
                          __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  if (same_text(wanted, "base")) return base;
  if (has_avx512 && !same_text(wanted, "avx2")) return as_set(espalier_kernels_avx512());
  if (has_avx2) return as_set(espalier_kernels_avx2());
#endif
  return base;
}

}  // namespace espalier::detail

namespace espalier::kernels {

const kernel_set& processor_kernels() {
  static const kernel_set& chosen = espalier::detail::choose_kernel_set();
  return chosen;
}

}  // namespace espalier::kernels

namespace espalier::comm {

reducer reducer_of(dtype type, reduction kind) { return kernels::processor_kernels().reducer(type, kind); }

}  // namespace espalier::comm
