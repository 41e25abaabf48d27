// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Elementwise functions, reductions and layers of rows, of 4.2 million elements each.

#include "measured_row.hpp"

#include <espalier/tensor/core/nn/losses.hpp>
#include <espalier/tensor/core/nn/norm.hpp>
#include <espalier/tensor/core/nn/optimizers/adamw.hpp>
#include <espalier/tensor/core/program/differentiate.hpp>

namespace espalier::benchmarks {

namespace {

constexpr int rows_of_all = 4096;
constexpr int width = 1024;
constexpr double elements = 1.0 * rows_of_all * width;
using matrix = f32<rows_of_all, width>;
using row = f32<width>;
/// A part of the rows of each matrix: four such parts fit in the second cache.
constexpr int parts = 128;
using slab = f32<rows_of_all / parts, width>;
template <class... Specs> struct few {};
template <class... Specs> struct all {};
constexpr int classes = 8192;
using logits = f32<512, classes>;
constexpr int words = 8192;
using table = f32<words, 512>;
using tokens = i32<8192>;

struct exponential {
  constexpr auto operator()(const auto& x) const { return exp(x); }
};
struct hyperbolic_tangent {
  constexpr auto operator()(const auto& x) const { return tanh(x); }
};
struct gelu_forward {
  constexpr auto operator()(const auto& x) const { return gelu(x); }
};
/// The gradient of a loss whose gradient by f's result is `upper`.
template <class F> struct gradient_of {
  struct weighed {
    constexpr auto operator()(const auto& x, const auto& upper, const auto&... rest) const {
      return sum(F{}(x, rest...) * upper);
    }
  };
  constexpr auto operator()(const auto& x, const auto& upper, const auto&... rest) const {
    return grad<0>(weighed{})(x, upper, rest...);
  }
};
struct layer_norm_forward {
  constexpr auto operator()(const auto& x, const auto& gain, const auto& bias) const {
    return nn::layer_norm(x, gain, bias);
  }
};
/// The result, and the gradients of all three for its gradient `upper`.
struct layer_norm_both_ways {
  struct weighed {
    constexpr auto operator()(const auto& x, const auto& gain, const auto& bias, const auto& upper) const {
      const auto normalised = nn::layer_norm(x, gain, bias);
      return results(sum(normalised * upper), normalised);
    }
  };
  constexpr auto operator()(const auto& x, const auto& gain, const auto& bias, const auto& upper) const {
    const auto [value, gradients] = value_and_grad<0, 1, 2>(weighed{})(x, gain, bias, upper);
    const auto [loss, normalised] = value;
    const auto [by_x, by_gain, by_bias] = gradients;
    return results(normalised, by_x, by_gain, by_bias);
  }
};
struct softmax_of_rows {
  constexpr auto operator()(const auto& x) const { return softmax<-1>(x); }
};
struct cross_entropy_gradient {
  struct loss {
    constexpr auto operator()(const auto& x, const auto& targets) const { return nn::cross_entropy(x, targets); }
  };
  constexpr auto operator()(const auto& x, const auto& targets) const { return grad<0>(loss{})(x, targets); }
};
struct transposed {
  constexpr auto operator()(const auto& x) const { return transpose<1, 0>(x); }
};
struct sums_of_rows {
  constexpr auto operator()(const auto& x) const { return sum<1>(x); }
};
struct sums_of_columns {
  constexpr auto operator()(const auto& x) const { return sum<0>(x); }
};
struct gather_gradient {
  struct weighed {
    constexpr auto operator()(const auto& from, const auto& indices, const auto& upper) const {
      return sum(gather<0>(from, indices) * upper);
    }
  };
  constexpr auto operator()(const auto& from, const auto& indices, const auto& upper) const {
    return grad<0>(weighed{})(from, indices, upper);
  }
};
/// AdamW's step on one matrix, as `nn::adamw_step` writes it for each leaf; in place.
struct adamw_update {
  constexpr auto operator()(const auto& parameter, const auto& first, const auto& second, const auto& gradient) const {
    constexpr double beta1 = 0.9;
    constexpr double beta2 = 0.999;
    constexpr double rate = 1e-3;
    const auto mean = first + (gradient - first) * (1 - beta1);
    const auto square = second + (gradient * gradient - second) * (1 - beta2);
    return results(parameter * (1 - rate * 0.01) - mean / (sqrt(square) + 1e-8) * rate, mean, square);
  }
};

}  // namespace

void measure_elements(speed_rows& rows) {
  const least_work twice{2 * 4 * elements};
  const least_work thrice{3 * 4 * elements};
  // `F` on `Few`, and on `Specs`, which have a few rows and all of them.
  const auto measure = [&rows]<class F, class... Few, class... Specs>(std::string_view row, least_work least, F,
                                                                      few<Few...>, all<Specs...>, inputs how = {}) {
    rows.measure<F, Specs...>(row, least.with_instructions(rows.instruction_milliseconds<F, Few...>(row, parts, how)),
                              how);
  };
  measure("elements/exp", twice, exponential{}, few<slab>{}, all<matrix>{});
  measure("elements/tanh", twice, hyperbolic_tangent{}, few<slab>{}, all<matrix>{});
  measure("elements/gelu", twice, gelu_forward{}, few<slab>{}, all<matrix>{});
  measure("elements/gelu_gradient", thrice, gradient_of<gelu_forward>{}, few<slab, slab>{}, all<matrix, matrix>{});
  measure("elements/layer_norm", twice, layer_norm_forward{}, few<slab, row, row>{}, all<matrix, row, row>{});
  measure("elements/layer_norm_both_ways", {4 * 4 * elements}, layer_norm_both_ways{}, few<slab, row, row, slab>{},
          all<matrix, row, row, matrix>{});
  measure("elements/softmax", twice, softmax_of_rows{}, few<slab>{}, all<matrix>{});
  measure("elements/cross_entropy_gradient", twice, cross_entropy_gradient{},
          few<f32<512 / parts, classes>, i32<512 / parts>>{}, all<logits, i32<512>>{}, {.index_limit = classes});
  rows.measure<transposed, matrix>("elements/transpose", twice);
  const least_work once{.bytes = 4 * elements, .only_reads = true};
  rows.measure<sums_of_rows, matrix>("elements/sums_of_rows", once);
  rows.measure<sums_of_columns, matrix>("elements/sums_of_columns", once);
  rows.measure<gather_gradient, table, tokens, f32<8192, 512>>("elements/gather_gradient", twice,
                                                               {.index_limit = words});
  measure("elements/adamw", {.bytes = 7 * 4 * elements, .arrays = 4 * 4 * elements}, adamw_update{},
          few<donated<slab>, donated<slab>, donated<slab>, slab>{},
          all<donated<matrix>, donated<matrix>, donated<matrix>, matrix>{}, {.squared = 2});
}

}  // namespace espalier::benchmarks
