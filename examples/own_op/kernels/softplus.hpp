// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/run/kernels/activation.hpp>

#include "../ops/softplus.hpp"

namespace mine {

struct softplus_element {
  // max(a, 0) + log(1 + exp(-|a|)): exp does not overflow.
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) {
    const T positive = a > T(0) ? a : T(0);
    return positive + espalier::kernels::log(T(1) + espalier::kernels::exp(a - positive - positive));
  }
};

}  // namespace mine

template <>
struct espalier::kernels::block_kernel<&mine::softplus_op>
    : espalier::detail::elementwise_block<mine::softplus_element> {};
