// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/program.hpp>

#include <utility>

/// Where a newcomer walks off the path: what C++ and NumPy have, and traced tensors do not.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

struct function {
  static constexpr float table[2]{1, 2};
  constexpr auto operator()(auto a, auto b, auto n) const {
#if defined(CASE_index)
    return a[0] + b[0];  // index
#elif defined(CASE_index_tensor)
    return a[n];  // index_tensor
#elif defined(CASE_pair)
    return std::pair(a, b);  // pair
#elif defined(CASE_squeeze)
    return ep::squeeze<0>(a);  // squeeze
#elif defined(CASE_twice)
    return ep::expand_dims<0, 0>(a);  // twice
#elif defined(CASE_direction)
    return ep::jvp([](auto x) { return x * x; })(a, ep::sum<0>(a));  // direction
#elif defined(CASE_parts)
    const auto [loss, gradient] = ep::value_and_grad([](auto x) { return ep::results(x, x); })(a);  // parts
    return ep::results(loss, gradient);
#elif defined(CASE_taken_apart)
    const auto body = [](auto h, auto x) { return ep::results(h, ep::sum<3>(x)); };  // taken_apart
    const auto [last, sums] = ep::scan(body, a, ep::expand_dims<1>(b));
    return ep::results(last * 2, sums + 1);
#elif defined(CASE_fraction)
    return n * 0.5;  // fraction
#elif defined(CASE_captures)
    const auto f = ep::checkpoint([&](auto x) { return ep::tanh(x) * b; });
    return f(a);
#elif defined(CASE_gradient_type)
    const auto back = [](auto x, auto, auto flow) { return ep::sum(flow * x); };
    const auto f = ep::custom_gradient([](auto x) { return ep::tanh(x); }, back);
    return ep::grad([&](auto x) { return ep::sum(f(x)); })(a);  // gradient_type
#elif defined(CASE_table)
    return ep::constant<ep::f32<3>, table>(a);  // table
#elif defined(CASE_range)
    return ep::maximum(ep::convert<ep::dtype::u8>(n), 256);  // range
#elif defined(CASE_bits)
    return a & 1;  // bits
#else
    const auto [y, slope] = ep::jvp([](auto x) { return x * x; })(ep::expand_dims<0, -1>(a), ep::expand_dims<0, 2>(b));
    const auto body = [](auto h, auto x) { return ep::results(h, ep::sum<0>(x)); };
    const auto [last, sums] = ep::scan(body, a, ep::expand_dims<1>(b));
    const auto loss = [](auto x) { return ep::results(ep::sum(x), x); };
    const auto [value, gradient] = ep::value_and_grad(loss)(a);
    return ep::results(ep::squeeze<0>(y), slope, last, sums, value, gradient,
                       ep::select(a > 0 && (b > 0 || a < b), ep::take<0, 0>(a), 0), ep::take<0>(a, n), 2 * n);
#endif
  }
};

// clang-format off
// kind(CASE_index): `x[0]`
// first(CASE_index): x\[...\]: tensors have no subscripts. Use take<0, 3>\(x\) for x\[3\]
// expect(CASE_index): tensor_has_no_subscript<espalier::f32<8> ?>::raise<espalier::why::at<espalier::why::line<17>
// user_line(CASE_index): step::flops
// first(CASE_index_tensor): x\[...\]: tensors have no subscripts
// expect(CASE_index_tensor): tensor_has_no_subscript<espalier::f32<8> ?>::raise<espalier::why::at<espalier::why::line<19>
// user_line(CASE_index_tensor): step::flops
// first(CASE_pair): program: the function returns several results in a class of the standard library
// expect(CASE_pair): results_in_another_class<function, std::pair<espalier::f32<8>, espalier::f32<8> ?> ?>
// user_line(CASE_pair): step::flops
// kind(CASE_squeeze): `squeeze` of a dimension with more elements
// first(CASE_squeeze): squeeze: this dimension has more than one element
// expect(CASE_squeeze): dimension_has_more_elements<espalier::f32<8>, espalier::why::dim<0> ?>::raise<espalier::why::at<espalier::why::line<23>
// user_line(CASE_squeeze): step::flops
// first(CASE_twice): a dimension is named twice. Name each once
// expect(CASE_twice): dimension_named_twice<espalier::f32<8>, espalier::why::dim<0>, espalier::why::dim<0> ?>::raise<espalier::why::in<espalier::why::op<'e', 'x', 'p', 'a', 'n', 'd', '_', 'd', 'i', 'm', 's' ?>, espalier::why::at<espalier::why::line<25>
// user_line(CASE_twice): step::flops
// kind(CASE_direction): a direction of `jvp` of another type
// first(CASE_direction): jvp: the direction must have the type of the point
// expect(CASE_direction): tangent_of_another_type<espalier::f32<8>, espalier::f32< ?> ?>::raise<espalier::why::at<espalier::why::line<27>
// user_line(CASE_direction): step::flops
// kind(CASE_parts): a loss that is no scalar, with something beside it
// first(CASE_parts): value_and_grad: the function must return one floating-point scalar
// expect(CASE_parts): loss_is_not_scalar<espalier::results<espalier::f32<8>, espalier::f32<8> ?> ?>::raise<espalier::why::at<espalier::why::line<29>
// user_line(CASE_parts): step::flops
// first(CASE_taken_apart): the tensor has no dimension of this number
// expect(CASE_taken_apart): no_such_dimension<espalier::f32<1>, espalier::why::dim<3> ?>::raise<espalier::why::in<espalier::why::op<'s', 'u', 'm' ?>, espalier::why::at<espalier::why::line<32>
// user_line(CASE_taken_apart): step::flops
// kind(CASE_fraction): a fraction among integers
// first(CASE_fraction): the tensor holds integers, and the number is a float: it would lose its fraction
// expect(CASE_fraction): number_is_no_integer<espalier::i32<3>, double ?>::raise<espalier::why::in<espalier::why::op<'m', 'u', 'l', 't', 'i', 'p', 'l', 'y' ?>, espalier::why::at<espalier::why::line<36>
// user_line(CASE_fraction): step::flops
// first(CASE_captures): custom_gradient, checkpoint: the function that the gradient calls keeps values of its own
// expect(CASE_captures): function_with_captures<.*line<38>
// user_line(CASE_captures): step::flops
// first(CASE_gradient_type): custom_gradient: the gradient must return a tensor \(or tree\) of its argument's type
// expect(CASE_gradient_type): gradient_of_another_type<.*f32< ?>.*f32<8>.*line<42>
// user_line(CASE_gradient_type): step::flops
// first(CASE_table): constant: the table has another number of elements than the tensor
// expect(CASE_table): table_size_mismatch<espalier::f32<3>, espalier::why::count<2> ?>::raise<espalier::why::at<espalier::why::line<45>
// user_line(CASE_table): step::flops
// first(CASE_range): the tensor's integers are not so large, or have no sign: this number is none of them
// expect(CASE_range): number_out_of_range<espalier::u8<3>, int ?>::raise<espalier::why::in<espalier::why::op<'m', 'a', 'x', 'i', 'm', 'u', 'm' ?>, espalier::why::at<espalier::why::line<47>
// user_line(CASE_range): step::flops
// expect(CASE_bits): operand_is_not_integer<espalier::f32<8> ?>::raise<espalier::why::in<espalier::why::op<'b', 'i', 't', 'w', 'i', 's', 'e', '_', 'a', 'n', 'd' ?>, espalier::why::at<espalier::why::line<49>
// user_line(CASE_bits): step::flops
// clang-format on
using step = ep::program<mesh, function, ep::f32<8>, ep::f32<8>, ep::i32<3>>;
constexpr auto work = step::flops();
