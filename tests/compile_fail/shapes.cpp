// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/program.hpp>

/// Mistakes in element types, shapes and dimensions. `a`, `b` and `c` are what the mistaken line is about.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using mesh = ep::mesh<data, model>;

struct function {
  constexpr auto operator()(auto a, auto b, auto c) const {
#if defined(CASE_operator)
    const auto before = a * 2;
    const auto after = b * 2;
    return before + after;  // operator: 64 x 256 and 255 elements
#elif defined(CASE_operator_of_calls)
    return ep::relu(a) - ep::tanh(b) * 2;  // operator_of_calls
#elif defined(CASE_function)
    return ep::maximum(a, b);  // function
#elif defined(CASE_element_types)
    return a + c;  // element_types
#elif defined(CASE_not_floating)
    return ep::exp(c);  // not_floating
#elif defined(CASE_not_boolean)
    return ep::select(a, a, 0);  // not_boolean
#elif defined(CASE_truth_values)
    return ep::sum<1>(a > 0);  // truth_values
#elif defined(CASE_dimension)
    return ep::sum<2>(a);  // dimension
#elif defined(CASE_reshape)
    return ep::reshape<64, 255>(a);  // reshape
#elif defined(CASE_transpose)
    return ep::transpose<0, 0>(a);  // transpose
#elif defined(CASE_slice)
    return ep::slice<1, 200, 300>(a);  // slice
#elif defined(CASE_concat)
    return ep::concat<0>(a, ep::sum<0>(a));  // concat
#elif defined(CASE_indices)
    return ep::gather<0>(a, b);  // indices
#elif defined(CASE_rank)
    return ep::matmul(a, ep::sum(b));  // rank
#elif defined(CASE_in_scan_in_value_and_grad)
    const auto layer = [](auto h, auto weight) {
      return h * weight + ep::reshape<255>(weight);  // in_scan_in_value_and_grad
    };
    const auto loss = [&](auto weights) { return ep::mean(ep::scan(layer, ep::sum<0>(a), weights)); };
    const auto [value, gradient] = ep::value_and_grad(loss)(a);
    return ep::results(value, a - 0.1 * gradient);
#elif defined(CASE_not_integer)
    return ep::bitwise_and(a, 255);  // not_integer
#elif defined(CASE_bit_cast)
    return ep::bit_cast<ep::dtype::f64>(a);  // bit_cast
#elif defined(CASE_top_k)
    const auto [values, indices] = ep::top_k<1, 257>(a);  // top_k
    return ep::sum<1>(values);
#elif defined(CASE_too_long)
    return ep::pad<1, 2000000000, 2000000000>(a);  // too_long
#elif defined(CASE_result_type)
    return ep::sum<ep::dtype::i32, 1>(a);  // result_type
#else
    const auto layer = [](auto h, auto weight) { return h * weight + ep::reshape<256>(weight); };
    const auto loss = [&](auto weights) { return ep::mean(ep::scan(layer, ep::sum<0>(a), weights)); };
    const auto [value, gradient] = ep::value_and_grad(loss)(a);
    const auto row = ep::select(ep::slice<1, 0, 255>(a) > b, ep::exp(ep::concat<0>(b)), 0);
    const auto moved = ep::transpose<1, 0>(ep::reshape<64, 256>(ep::maximum(a, 1) - ep::tanh(a) * 2));
    const auto other = ep::sum<1>(ep::gather<0>(a, c)) + ep::convert<ep::dtype::f32>(c);
    const auto bits = ep::bitwise_and(ep::bit_cast<ep::dtype::i32>(a), 255);
    const auto [values, indices] = ep::top_k<1, 256>(a);
    return ep::results(value, gradient, row, ep::matmul(a, moved), other, bits, values, indices);
#endif
  }
};

// clang-format off
// kind(CASE_operator): `x + y` of shapes that do not fit
// first(CASE_operator): elementwise: these shapes do not broadcast against each other.* or one of them 1
// expect(CASE_operator): shape_mismatch<espalier::f32<64, 256>, espalier::f32<255> ?>
// expect(CASE_operator): at<espalier::why::line<17>, 's', 'h', 'a', 'p', 'e', 's', '.', 'c', 'p', 'p'>
// user_line(CASE_operator): step::flops
// budget(CASE_operator): 5 16
// first(CASE_operator_of_calls): elementwise: these shapes do not broadcast against each other
// expect(CASE_operator_of_calls): line<19>
// user_line(CASE_operator_of_calls): step::flops
// first(CASE_function): elementwise: these shapes do not broadcast against each other
// expect(CASE_function): line<21>
// user_line(CASE_function): step::flops
// kind(CASE_element_types): `x + y` of other element types
// first(CASE_element_types): these tensors have different element types. None is converted silently
// expect(CASE_element_types): dtype_mismatch<espalier::f32<64, 256>, espalier::i32<64> ?>
// expect(CASE_element_types): line<23>
// user_line(CASE_element_types): step::flops
// kind(CASE_not_floating): `exp` of integers
// first(CASE_not_floating): this op needs a floating-point tensor. Use convert<dtype>
// expect(CASE_not_floating): line<25>
// user_line(CASE_not_floating): step::flops
// first(CASE_not_boolean): a condition must be a boolean tensor. Compare first
// expect(CASE_not_boolean): line<27>
// user_line(CASE_not_boolean): step::flops
// first(CASE_truth_values): this op computes with numbers, and the tensor holds truth values. Use convert<dtype::i32>
// expect(CASE_truth_values): operand_is_boolean<espalier::boolean<64, 256> ?>
// expect(CASE_truth_values): line<29>
// user_line(CASE_truth_values): step::flops
// first(CASE_result_type): sums of these elements cannot have this type. Of floats it is a float
// expect(CASE_result_type): result_type_cannot_hold_sums<espalier::i32<>, espalier::f32<64, 256> ?>
// expect(CASE_result_type): line<61>
// user_line(CASE_result_type): step::flops
// kind(CASE_dimension): a dimension that does not exist
// first(CASE_dimension): the tensor has no dimension of this number. They count from 0, or from -1 backwards
// expect(CASE_dimension): no_such_dimension<espalier::f32<64, 256>, espalier::why::dim<2> ?>
// expect(CASE_dimension): line<31>
// user_line(CASE_dimension): step::flops
// kind(CASE_reshape): `reshape` to another number of elements
// first(CASE_reshape): reshape: the new shape holds another number of elements
// expect(CASE_reshape): reshape_size_mismatch<espalier::f32<64, 256>, espalier::f32<64, 255> ?>
// expect(CASE_reshape): line<33>
// user_line(CASE_reshape): step::flops
// first(CASE_transpose): transpose: not a permutation. Name every dimension exactly once
// expect(CASE_transpose): line<35>
// user_line(CASE_transpose): step::flops
// first(CASE_slice): slice: the range leaves the dimension
// expect(CASE_slice): out_of_bounds<espalier::f32<64, 256>, espalier::why::dim<1>, espalier::why::extent<200>, espalier::why::extent<300> ?>
// expect(CASE_slice): line<37>
// user_line(CASE_slice): step::flops
// first(CASE_concat): concat: the shapes differ in another dimension than the joined one
// expect(CASE_concat): line<39>
// user_line(CASE_concat): step::flops
// kind(CASE_indices): indices that are not integers
// first(CASE_indices): indices must be integers. Use convert<dtype::i32>
// expect(CASE_indices): line<41>
// user_line(CASE_indices): step::flops
// first(CASE_rank): a tensor has another number of dimensions than this op needs
// expect(CASE_rank): wrong_rank<espalier::f32<64, 256>, espalier::f32< ?> ?>
// expect(CASE_rank): line<43>
// user_line(CASE_rank): step::flops
// first(CASE_in_scan_in_value_and_grad): reshape: the new shape holds another number of elements
// expect(CASE_in_scan_in_value_and_grad): reshape_size_mismatch<espalier::f32<256>, espalier::f32<255> ?>
// expect(CASE_in_scan_in_value_and_grad): line<46>
// user_line(CASE_in_scan_in_value_and_grad): step::flops
// budget(CASE_in_scan_in_value_and_grad): 5 16
// first(CASE_not_integer): this op works on the bits of integers. Use convert<dtype::i32> on the numbers
// expect(CASE_not_integer): operand_is_not_integer<espalier::f32<64, 256> ?>
// expect(CASE_not_integer): line<52>
// user_line(CASE_not_integer): step::flops
// first(CASE_bit_cast): bit_cast: an element of the new type has another number of bits
// expect(CASE_bit_cast): bit_cast_size_mismatch<espalier::f32<64, 256>, espalier::f64<64, 256> ?>
// expect(CASE_bit_cast): line<54>
// user_line(CASE_bit_cast): step::flops
// first(CASE_top_k): top_k: so many elements cannot be chosen. Choose 1 <= count <= extent of the dimension
// expect(CASE_top_k): top_k_out_of_range<espalier::f32<64, 256>, espalier::why::dim<1>, espalier::why::count<257> ?>
// expect(CASE_top_k): line<56>
// user_line(CASE_top_k): step::flops
// kind(CASE_too_long): more elements than an int counts
// first(CASE_too_long): concat, pad: this dimension would have more than 2147483647 elements
// expect(CASE_too_long): too_many_elements<espalier::f32<64, 256>, espalier::why::dim<1> ?>
// expect(CASE_too_long): line<59>
// user_line(CASE_too_long): step::flops
// clang-format on
using step = ep::program<mesh, function, ep::f32<64, 256>, ep::f32<255>, ep::i32<64>>;
constexpr auto work = step::flops();
