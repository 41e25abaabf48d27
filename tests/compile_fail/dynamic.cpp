// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/program.hpp>

/// Mistakes in slices whose start is known when the program runs. `cache` is [layers, positions, width].
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

struct function {
  constexpr auto operator()(auto cache, auto row, auto starts, auto at) const {
#if defined(CASE_vector)
    return ep::dynamic_slice<0, 1>(cache, starts);  // vector
#elif defined(CASE_float)
    return ep::dynamic_update_slice<0>(cache, row, ep::convert<ep::dtype::f32>(at));  // float
#elif defined(CASE_larger)
    return ep::dynamic_slice<1, 17>(cache, at);  // larger
#elif defined(CASE_larger_update)
    return ep::dynamic_update_slice<0>(cache, ep::concat<0>(cache, cache), at);  // larger_update
#elif defined(CASE_beside)
    return ep::dynamic_update_slice<0>(cache, row, at);  // beside
#else
    return ep::dynamic_update_slice<0, 1>(cache, row + ep::dynamic_slice<1, 1>(ep::dynamic_slice<0, 1>(cache, at), at),
                                          at, ep::reshape<>(ep::slice<0, 1, 2>(starts)));
#endif
  }
};

// clang-format off
// first(CASE_vector): dynamic_slice, dynamic_update_slice: a start is one integer
// expect(CASE_vector): start_is_not_an_integer_scalar<espalier::i32<2> ?>
// user_line(CASE_vector): step::flops
// kind(CASE_vector): `dynamic_slice`: a start that is a vector
// first(CASE_float): dynamic_slice, dynamic_update_slice: a start is one integer
// expect(CASE_float): start_is_not_an_integer_scalar<espalier::f32<> ?>
// user_line(CASE_float): step::flops
// kind(CASE_float): `dynamic_slice`: a start that is no integer
// first(CASE_larger): dynamic_slice, dynamic_update_slice: along this dimension the slice is larger than the tensor
// expect(CASE_larger): slice_does_not_fit<espalier::f32<4, 16, 8>, espalier::why::dim<1>, espalier::why::extent<17> ?>
// user_line(CASE_larger): step::flops
// kind(CASE_larger): `dynamic_slice`: larger than the tensor
// first(CASE_larger_update): dynamic_slice, dynamic_update_slice: along this dimension the slice is larger than the tensor
// expect(CASE_larger_update): slice_does_not_fit<espalier::f32<4, 16, 8>, espalier::why::dim<0>, espalier::f32<8, 16, 8> ?>
// user_line(CASE_larger_update): step::flops
// kind(CASE_larger_update): `dynamic_update_slice`: larger than the tensor
// first(CASE_beside): dynamic_update_slice: the update needs the tensor's extents in all dimensions but those
// expect(CASE_beside): update_does_not_fit<espalier::f32<4, 16, 8>, espalier::f32<1, 1, 8> ?>
// user_line(CASE_beside): step::flops
// kind(CASE_beside): `dynamic_update_slice`: other extents beside
// clang-format on
using step = ep::program<mesh, function, ep::f32<4, 16, 8>, ep::f32<1, 1, 8>, ep::i32<2>, ep::i32<>>;
constexpr auto work = step::flops();
