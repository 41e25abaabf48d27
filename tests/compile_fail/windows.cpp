// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/nn/norm.hpp>
#include <espalier/tensor/core/program/program.hpp>
/// Mistakes in windows, paddings and parts. `x` is an image, `w` a filter.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

struct function {
  constexpr auto operator()(auto x, auto w) const {
#if defined(CASE_larger)
    return ep::convolution<ep::convolution_settings{.dilation = {4, 1}}>(x, w);  // larger
#elif defined(CASE_stride)
    return ep::convolution<ep::convolution_settings{.stride = {1, 0}}>(x, w);  // stride
#elif defined(CASE_groups)
    return ep::convolution<ep::convolution_settings{.groups = 3}>(x, w);  // groups
#elif defined(CASE_batch_groups)
    return ep::convolution<ep::convolution_settings{.batch_groups = 4}>(x, w);  // batch groups
#elif defined(CASE_channels)
    return ep::convolution<ep::convolution_settings{.groups = 2}>(x, w);  // channels
#elif defined(CASE_pool)
    return ep::max_pool<ep::pooling_settings{.size = {9, 1}}>(x);  // pool
#elif defined(CASE_shift)
    return ep::shift<1, 8>(x);  // shift
#elif defined(CASE_split)
    return ep::split<1, 3>(x)[0];  // split
#elif defined(CASE_norm_groups)
    const auto gain = ep::mean<0, 1, 2>(x);
    return ep::nn::group_norm<3>(x, gain, gain);  // norm groups
#else
    const auto y = ep::convolution<ep::convolution_settings{.low = {1, 1}, .high = {1, 1}}>(x, w);
    const auto gain = ep::mean<0, 1, 2>(x);
    return ep::results(ep::max_pool<ep::pooling_settings{.size = {2, 2}}>(y), ep::shift<1, 7>(x), ep::split<1, 4>(x)[0],
                       ep::nn::group_norm<2>(x, gain, gain));
#endif
  }
};

// clang-format off
// first(CASE_larger): along this dimension the window is larger than the padded input
// expect(CASE_larger): window_is_larger_than_input<espalier::why::dim<1>, espalier::f32<2, 8, 8, 4>, espalier::f32<3, 3, 4, 6> ?>
// user_line(CASE_larger): step::flops
// kind(CASE_larger): `convolution`: a window larger than its input
// first(CASE_stride): strides and dilations are at least 1
// expect(CASE_stride): step_is_not_positive<espalier::f32<2, 8, 8, 4>, espalier::why::dim<2> ?>
// user_line(CASE_stride): step::flops
// kind(CASE_stride): a stride of 0
// first(CASE_groups): convolution: the number of groups must divide
// expect(CASE_groups): groups_do_not_divide<espalier::why::count<3>, espalier::f32<2, 8, 8, 4>, espalier::f32<3, 3, 4, 6> ?>
// user_line(CASE_groups): step::flops
// kind(CASE_groups): groups that do not divide
// first(CASE_batch_groups): convolution: the number of batch groups must divide the input's batch
// expect(CASE_batch_groups): batch_groups_do_not_divide<espalier::why::count<4>, espalier::f32<2, 8, 8, 4>, espalier::f32<3, 3, 4, 6> ?>
// user_line(CASE_batch_groups): step::flops
// kind(CASE_batch_groups): batch groups that do not divide
// first(CASE_channels): convolution: the last dimension of the input must be the last but one of the filter times
// expect(CASE_channels): channels_differ<espalier::why::count<2>, espalier::f32<2, 8, 8, 4>, espalier::f32<3, 3, 4, 6> ?>
// user_line(CASE_channels): step::flops
// kind(CASE_channels): `convolution`: channels that differ
// first(CASE_pool): along this dimension the window is larger than the padded input
// expect(CASE_pool): window_is_larger_than_input<espalier::why::dim<1>, espalier::f32<2, 8, 8, 4> ?>
// user_line(CASE_pool): step::flops
// kind(CASE_pool): pooling: a window larger than its input
// first(CASE_shift): pad, shift: along this dimension no element is left
// expect(CASE_shift): nothing_is_left<espalier::f32<2, 8, 8, 4>, espalier::why::dim<1> ?>
// user_line(CASE_shift): step::flops
// kind(CASE_shift): `shift`: nothing is left
// first(CASE_split): split: the number of parts does not divide the dimension
// expect(CASE_split): parts_do_not_divide<espalier::f32<2, 8, 8, 4>, espalier::why::dim<1>, espalier::why::count<3> ?>
// user_line(CASE_split): step::flops
// kind(CASE_split): `split`: parts that do not divide
// first(CASE_norm_groups): group_norm: the number of groups must divide the channels
// expect(CASE_norm_groups): norm_groups_do_not_divide<espalier::why::count<3>, espalier::f32<2, 8, 8, 4> ?>
// user_line(CASE_norm_groups): step::flops
// kind(CASE_norm_groups): `group_norm`: groups that do not divide
// clang-format on
using step = ep::program<mesh, function, ep::f32<2, 8, 8, 4>, ep::f32<3, 3, 4, 6>>;
constexpr auto work = step::flops();
