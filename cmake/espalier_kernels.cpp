// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The kernel set of one instruction set, for programs whose own flags allow less. Compiled once for each
// (the target espalier::compiled does), together with espalier.cpp, which ESPALIER_KERNEL_SETS tells that they are
// there:
//
//     -DESPALIER_COMPILED=1 -DESPALIER_KERNEL_SET=avx2   -march=x86-64-v3
//     -DESPALIER_COMPILED=1 -DESPALIER_KERNEL_SET=avx512 -march=x86-64-v4 -mprefer-vector-width=512
#if !defined(ESPALIER_KERNEL_SET) || !defined(ESPALIER_COMPILED)
#error "compile this with ESPALIER_COMPILED and ESPALIER_KERNEL_SET: the target espalier::compiled does"
#endif

// All of the library that is compiled here has names of its own: of functions with the same name the linker keeps one,
// and it may keep this one, whose instructions other processors do not have.
#define ESPALIER_JOIN_TOKENS(a, b) a##b
#define ESPALIER_NAME_OF_SET(name) ESPALIER_JOIN_TOKENS(espalier_, name)
#define espalier ESPALIER_NAME_OF_SET(ESPALIER_KERNEL_SET)

#include <espalier/tensor/run/kernels/impl/kernel_set.ipp>

#define ESPALIER_KERNELS_OF_SET(name) ESPALIER_JOIN_TOKENS(espalier_kernels_, name)

extern "C" const void* ESPALIER_KERNELS_OF_SET(ESPALIER_KERNEL_SET)();
extern "C" const void* ESPALIER_KERNELS_OF_SET(ESPALIER_KERNEL_SET)() {
  static const espalier::kernels::kernel_set set =
      espalier::detail::make_kernel_set(espalier::kernels::set_level::ESPALIER_KERNEL_SET);
  return &set;
}
