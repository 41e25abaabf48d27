// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/look.hpp>
#include <espalier/tensor/run/kernels/kernel.hpp>

#include <stdexcept>
#include <string>

namespace espalier {

/// An element that `check_finite`, or ESPALIER_CHECK=nan, found to be infinite or no number. The program has ended in
/// the middle: what it was to compute is not there.
struct not_finite : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace detail {

/// The first element of a tensor's part in a buffer, in row-major order, that is infinite or no number.
struct bad_element {
  /// Its indices in the whole tensor.
  std::int64_t at[max_rank]{};
  /// "nan", "inf" or "-inf"; null if all are finite.
  const char* name = nullptr;
};
/// Looks at the elements that `box` says the buffer has; beyond them is padding. `nan_only`: infinities are none.
[[nodiscard]] bad_element find_not_finite(dtype type, const void* data, const extents& buffer, const tensor_box& box,
                                          bool nan_only = false);

/// "[3, 17]"
[[nodiscard]] std::string text_of_indices(const std::int64_t* at, int rank);
/// "f32[64@data, 256]", of the tensor's extents and the mesh of a program, whose axes may be parts of those of its
/// mesh.
[[nodiscard]] std::string text_of_layout(const mesh_shape& mesh, dtype type, const extents& whole,
                                         const sharding& placement);
/// ", iteration 3", ", iteration 3 of iteration 0", or nothing outside of loops.
[[nodiscard]] std::string text_of_iterations(const kernels::look_site& site);

/// Prints the value to stderr.
void print_value(const kernels::kernel_call& call);
/// Throws `not_finite`.
void check_value(const kernels::kernel_call& call);

}  // namespace detail

template <> struct kernels::kernel<&ops::print> : kernels::no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) { espalier::detail::print_value(call); }
};
template <> struct kernels::kernel<&ops::check_finite> : kernels::no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) { espalier::detail::check_value(call); }
};

}  // namespace espalier

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/run/kernels/impl/look.ipp>
#endif
