// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/espalier.hpp>

#include <boost/hana/define_struct.hpp>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <utility>

/// Calls in the spelling of NumPy, JAX, PyTorch or the standard library, in a program that is run: one sentence with
/// the spelling that this library has, at the line of the call.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

struct model {
  constexpr auto operator()(auto x, auto w, auto n) const {
    const auto loss = [](auto v, auto u) { return ep::sum(ep::einsum<"bm,mh->bh">(u, v)); };
#if defined(CASE_einsum)
    return ep::einsum("bm,mh->bh", x, w);  // einsum
#elif defined(CASE_matmul)
    return ep::matmul(x, w, true);  // matmul
#elif defined(CASE_sum)
    return ep::sum(x, 1);  // sum
#elif defined(CASE_sum_of_several)
    return ep::sum(x, {0, 1});  // sum_of_several
#elif defined(CASE_mean)
    return ep::mean(x, -1, true) * 2;  // mean
#elif defined(CASE_max)
    return ep::max(x, 0);  // max
#elif defined(CASE_larger)
    return ep::max(x, 2 * x);  // larger
#elif defined(CASE_softmax)
    return ep::softmax(x, -1) + x;  // softmax
#elif defined(CASE_argmax)
    return ep::argmax(x, 1);  // argmax
#elif defined(CASE_cumsum)
    return ep::cumsum(x, 0);  // cumsum
#elif defined(CASE_reshape)
    return ep::reshape(x, 6, 8);  // reshape
#elif defined(CASE_reshape_to_tuple)
    return ep::reshape(x, {6, 8});  // reshape_to_tuple
#elif defined(CASE_transpose)
    return ep::transpose(x, 1, 0);  // transpose
#elif defined(CASE_concat)
    return ep::concat(x, x, 0);  // concat
#elif defined(CASE_concat_list)
    return ep::concat({x, x}, 0);  // concat_list
#elif defined(CASE_expand_dims)
    return ep::expand_dims(x, 0);  // expand_dims
#elif defined(CASE_split)
    return ep::split(x, 2);  // split
#elif defined(CASE_slice)
    return ep::slice(x, 0, 4);  // slice
#elif defined(CASE_take)
    return ep::take<0>(x, 3);  // take
#elif defined(CASE_one_hot)
    return ep::one_hot(n, 10);  // one_hot
#elif defined(CASE_shard)
    return ep::shard<"data", ep::none>(x);  // shard
#elif defined(CASE_shard_second)
    return ep::reshard<ep::none, "data">(x);  // shard_second
#elif defined(CASE_shard_arguments)
    return ep::shard(x, data{}, ep::none{});  // shard_arguments
#elif defined(CASE_exp)
    return std::exp(x) * 2;  // exp
#elif defined(CASE_tanh)
    return std::tanh(x);  // tanh
#elif defined(CASE_abs)
    return std::abs(x);  // abs
#elif defined(CASE_pow)
    return std::pow(x, 2);  // pow
#elif defined(CASE_std_max)
    return std::max(x, x * 2);  // std_max
#elif defined(CASE_for)
    for (auto row : x) w = w + ep::sum(row);  // for
    return w;
#elif defined(CASE_while)
    while (ep::sum(x) > 0) x = x - 1;  // while
    return x;
#elif defined(CASE_len)
    for (int i = 0; i < len(x); ++i) x = x * 2;  // len
    return x;
#elif defined(CASE_output)
    std::cout << x << std::endl;  // output
    return x;
#elif defined(CASE_value_and_grad)
    const auto [value, gradient] = ep::value_and_grad(loss, w, x);  // value_and_grad
    return ep::results(value, gradient);
#elif defined(CASE_grad)
    return ep::grad(loss, w, x);  // grad
#elif defined(CASE_jvp)
    const auto [y, slope] = ep::jvp([](auto v) { return v * v; }, x, x);  // jvp
    return y + slope;
#elif defined(CASE_part)
    return ep::results(x, w).template get<2>();  // part
#elif defined(CASE_infers_several)
    return ep::reshape<-1, -1>(x);  // infers_several
#elif defined(CASE_does_not_divide)
    return ep::reshape<-1, 5>(x);  // does_not_divide
#else
    const auto [value, gradient] = ep::value_and_grad<0, 1>(loss)(w, x);
    const auto h = ep::reshape<6, -1>(x) + ep::reshape<-1, 8>(x);
    return ep::results(h, ep::reshape<-1>(ep::reshape<2, -1, 4>(x)), value, gradient, n);
#endif
  }
};

template <class Leaf> struct layer {
#if defined(CASE_leaf)
  BOOST_HANA_DEFINE_STRUCT(layer, (ep::leaf<Leaf, ep::f32<8, 6>>, up), (ep::f32<6>, bias));  // leaf
#else
  BOOST_HANA_DEFINE_STRUCT(layer, (ep::leaf<Leaf, ep::f32<8, 6>>, up), (ep::leaf<Leaf, ep::f32<6>>, bias));
#endif
};

struct dense {
  constexpr auto operator()(auto x, auto p) const { return ep::einsum<"bh,mh->bm">(x, p.up) + ep::sum(p.bias); }
};

struct typed {
#if defined(CASE_parameter)
  constexpr auto operator()(ep::f32<4, 6> x, ep::f32<6> b) const {
#elif defined(CASE_one_parameter)
  constexpr auto operator()(ep::f32<4, 6> x, auto b) const {
#else
  constexpr auto operator()(auto x, auto b) const {
#endif
    const auto h = ep::relu(x + b) * 2;
    return ep::mean(ep::softmax<-1>(h) - ep::sum<1>(x, ep::keep_dims));
  }
};

// clang-format off
#if defined(CASE_leaf)
using step = ep::program<mesh, dense, ep::f32<4, 6>, layer<ep::spec>>;
#elif defined(CASE_parameter) || defined(CASE_one_parameter)
using step = ep::program<mesh, typed, ep::f32<4, 6>, ep::f32<6>>;
#elif defined(CASE_extent)
using step = ep::program<mesh, typed, ep::f32<-1, 6>, ep::f32<6>>;  // extent
#else
using step = ep::program<mesh, model, ep::f32<8, 6>, ep::f32<6, 5>, ep::i32<8>>;
using others = std::pair<ep::program<mesh, dense, ep::f32<4, 6>, layer<ep::spec>>, ep::program<mesh, typed, ep::f32<4, 6>, ep::f32<6>>>;
#endif

#if defined(CASE_axis_by_name)
static_assert(step::collectives<ep::all_gather, "data">() == 0);  // axis_by_name
#endif

int main(int argc, char** argv) {
#if defined(CASE_construct)
  step trained{};  // construct
  static_cast<void>(trained);
#endif
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});
    ep::runner<step> run(world);  // the run
    const auto x = run.argument<0>();
    const auto w = run.argument<1>();
#if defined(CASE_leaf) || defined(CASE_parameter) || defined(CASE_one_parameter) || defined(CASE_extent)
    run(x, w);
#else
    run(x, w, run.argument<2>());
#endif
    return 0;
  });
}

// clang-format off
// kind(CASE_einsum): `einsum("bm,mh->bh", x, w)`
// first(CASE_einsum): einsum: the formula stands between < and >.* Write einsum<\\?"bm,mh->bh\\?">\(x, w\)
// expect(CASE_einsum): spellings.cpp:\d+
// user_line(CASE_einsum): // einsum$
// budget(CASE_einsum): 7 25
// first(CASE_matmul): matmul: takes two tensors. Write matmul\(x, transpose<1, 0>\(w\)\)
// expect(CASE_matmul): spellings.cpp:\d+
// user_line(CASE_matmul): // matmul$
// budget(CASE_matmul): 7 25
// kind(CASE_sum): `sum(x, 1)`
// first(CASE_sum): sum: dimensions stand between < and >.* Write sum<1>\(x\)
// expect(CASE_sum): spellings.cpp:\d+
// user_line(CASE_sum): // sum$
// budget(CASE_sum): 7 25
// first(CASE_sum_of_several): sum: dimensions stand between < and >.* Write sum<1>\(x\), sum<0, 1>\(x\)
// expect(CASE_sum_of_several): spellings.cpp:\d+
// user_line(CASE_sum_of_several): // sum_of_several$
// budget(CASE_sum_of_several): 7 25
// first(CASE_mean): mean: dimensions stand .* mean<1>\(x, keep_dims\)
// expect(CASE_mean): spellings.cpp:\d+
// user_line(CASE_mean): // mean$
// budget(CASE_mean): 7 25
// kind(CASE_max): `max(x, 0)`
// first(CASE_max): max: dimensions stand between < and >: max<1>\(x\)
// expect(CASE_max): spellings.cpp:\d+
// user_line(CASE_max): // max$
// budget(CASE_max): 7 25
// first(CASE_larger): max: .* The larger of two tensors, or of a tensor and a number, is maximum\(x, y\)
// expect(CASE_larger): spellings.cpp:\d+
// user_line(CASE_larger): // larger$
// budget(CASE_larger): 7 25
// kind(CASE_softmax): `softmax(x, -1)`
// first(CASE_softmax): softmax: the dimension stands between < and >. Write softmax<-1>\(x\)
// expect(CASE_softmax): spellings.cpp:\d+
// user_line(CASE_softmax): // softmax$
// budget(CASE_softmax): 7 25
// first(CASE_argmax): argmax: the dimension stands between < and >. Write argmax<1>\(x\)
// expect(CASE_argmax): spellings.cpp:\d+
// user_line(CASE_argmax): // argmax$
// budget(CASE_argmax): 7 25
// first(CASE_cumsum): cumsum: the dimension stands between < and >. Write cumsum<0>\(x\)
// expect(CASE_cumsum): spellings.cpp:\d+
// user_line(CASE_cumsum): // cumsum$
// budget(CASE_cumsum): 7 25
// kind(CASE_reshape): `reshape(x, 6, 8)`
// first(CASE_reshape): reshape: the extents stand between < and >.* Write reshape<6, 8>\(x\)
// expect(CASE_reshape): spellings.cpp:\d+
// user_line(CASE_reshape): // reshape$
// budget(CASE_reshape): 7 25
// first(CASE_reshape_to_tuple): reshape: the extents stand between < and >.* Write reshape<6, 8>\(x\)
// expect(CASE_reshape_to_tuple): spellings.cpp:\d+
// user_line(CASE_reshape_to_tuple): // reshape_to_tuple$
// budget(CASE_reshape_to_tuple): 7 25
// kind(CASE_transpose): `transpose(x, 1, 0)`
// first(CASE_transpose): transpose: the order of the dimensions stands between < and >. Write transpose<1, 0>\(x\)
// expect(CASE_transpose): spellings.cpp:\d+
// user_line(CASE_transpose): // transpose$
// budget(CASE_transpose): 7 25
// kind(CASE_concat): `concat(x, y, 0)`
// first(CASE_concat): concat: the dimension stands between < and >. Write concat<0>\(x, y\)
// expect(CASE_concat): spellings.cpp:\d+
// user_line(CASE_concat): // concat$
// budget(CASE_concat): 7 25
// first(CASE_concat_list): concat: the dimension stands between < and >. Write concat<0>\(x, y\)
// expect(CASE_concat_list): spellings.cpp:\d+
// user_line(CASE_concat_list): // concat_list$
// budget(CASE_concat_list): 7 25
// first(CASE_expand_dims): expand_dims: the dimension stands between < and >. Write expand_dims<0>\(x\)
// expect(CASE_expand_dims): spellings.cpp:\d+
// user_line(CASE_expand_dims): // expand_dims$
// budget(CASE_expand_dims): 7 25
// first(CASE_split): split: the dimension and the number of parts stand between < and >. Write split<0, 2>\(x\)
// expect(CASE_split): spellings.cpp:\d+
// user_line(CASE_split): // split$
// budget(CASE_split): 7 25
// first(CASE_slice): slice: the dimension, the first element .* slice<0, 2, 5>\(x\) is x\[2:5\]
// expect(CASE_slice): spellings.cpp:\d+
// user_line(CASE_slice): // slice$
// budget(CASE_slice): 7 25
// kind(CASE_take): `take<0>(x, 3)`
// first(CASE_take): take: the dimension and the index stand between < and >: take<0, 3>\(x\) is x\[3\]
// expect(CASE_take): spellings.cpp:\d+
// user_line(CASE_take): // take$
// budget(CASE_take): 7 25
// first(CASE_one_hot): one_hot: the number of classes stands between < and >. Write one_hot<10>\(labels\)
// expect(CASE_one_hot): spellings.cpp:\d+
// user_line(CASE_one_hot): // one_hot$
// budget(CASE_one_hot): 7 25
// kind(CASE_shard): `shard<"data", none>(x)`
// first(CASE_shard): shard: axes are types, not names. Write shard<data, none>\(x\)
// expect(CASE_shard): spellings.cpp:\d+
// user_line(CASE_shard): // shard$
// budget(CASE_shard): 7 25
// first(CASE_shard_second): reshard: axes are types, not names. Write reshard<none, data>\(x\)
// expect(CASE_shard_second): spellings.cpp:\d+
// user_line(CASE_shard_second): // shard_second$
// budget(CASE_shard_second): 7 25
// kind(CASE_shard_arguments): `shard(x, data{}, none{})`
// first(CASE_shard_arguments): shard: the entries stand between < and >, one for each dimension. Write shard<data, none>\(x\)
// expect(CASE_shard_arguments): spellings.cpp:\d+
// user_line(CASE_shard_arguments): // shard_arguments$
// budget(CASE_shard_arguments): 7 25
// kind(CASE_exp): `std::exp(x)`
// first(CASE_exp): std::exp: takes a number. Write ep::exp\(x\)
// expect(CASE_exp): spellings.cpp:\d+
// user_line(CASE_exp): // exp$
// budget(CASE_exp): 7 25
// first(CASE_tanh): std::tanh: takes a number. Write ep::tanh\(x\)
// expect(CASE_tanh): spellings.cpp:\d+
// user_line(CASE_tanh): // tanh$
// budget(CASE_tanh): 7 25
// first(CASE_abs): std::abs: takes a number. Write ep::abs\(x\)
// expect(CASE_abs): spellings.cpp:\d+
// user_line(CASE_abs): // abs$
// budget(CASE_abs): 7 25
// kind(CASE_pow): `std::pow(x, 2)`
// first(CASE_pow): std::pow: takes numbers. Write ep::pow\(x, y\)
// expect(CASE_pow): spellings.cpp:\d+
// user_line(CASE_pow): // pow$
// budget(CASE_pow): 7 25
// kind(CASE_std_max): `std::max(x, y)`
// first(CASE_std_max): std::max: takes numbers. Write ep::maximum\(x, y\)
// expect(CASE_std_max): spellings.cpp:\d+
// user_line(CASE_std_max): // std_max$
// budget(CASE_std_max): 7 25
// kind(CASE_for): `for (auto row : x)`
// first(CASE_for): for \(auto row : x\): a tensor has no rows to walk over .* Use scan\(body, carry, x\)
// expect(CASE_for): spellings.cpp:\d+
// user_line(CASE_for): // for$
// budget(CASE_for): 7 25
// kind(CASE_while): `while (sum(x) > 0)`
// first(CASE_while): if, \?:, while, a cast: what a tensor holds is known when the program runs
// expect(CASE_while): spellings.cpp:\d+
// user_line(CASE_while): // while$
// budget(CASE_while): 7 25
// kind(CASE_len): `len(x)`
// first(CASE_len): len: the extent of a dimension is part of the tensor's type. Write x.extent\(0\)
// expect(CASE_len): spellings.cpp:\d+
// user_line(CASE_len): // len$
// budget(CASE_len): 7 25
// kind(CASE_output): `std::cout << x` in a program
// first(CASE_output): <<: a tensor has no elements while a program is compiled
// expect(CASE_output): spellings.cpp:\d+
// user_line(CASE_output): // output$
// budget(CASE_output): 7 25
// kind(CASE_value_and_grad): `value_and_grad(f, w, x)`
// first(CASE_value_and_grad): value_and_grad: makes a function, which is then called. Write value_and_grad\(f\)\(w, x\)
// expect(CASE_value_and_grad): spellings.cpp:\d+
// user_line(CASE_value_and_grad): // value_and_grad$
// budget(CASE_value_and_grad): 7 25
// first(CASE_grad): grad: makes a function, which is then called. Write grad\(f\)\(w, x\)
// expect(CASE_grad): spellings.cpp:\d+
// user_line(CASE_grad): // grad$
// budget(CASE_grad): 7 25
// first(CASE_jvp): jvp: makes a function, which is then called. Write jvp\(f\)\(x, direction\)
// expect(CASE_jvp): spellings.cpp:\d+
// user_line(CASE_jvp): // jvp$
// budget(CASE_jvp): 7 25
// kind(CASE_part): `results(a, b).get<2>()`
// first(CASE_part): results: there is no part of this number. They count from 0
// expect(CASE_part): spellings.cpp:\d+
// user_line(CASE_part): // part$
// budget(CASE_part): 7 25
// kind(CASE_infers_several): `reshape<-1, -1>(x)`
// first(CASE_infers_several): reshape: -1 is there several times
// expect(CASE_infers_several): reshape_infers_several<espalier::f32<8, 6>, espalier::why::extent<-1>, espalier::why::extent<-1> ?>::raise<espalier::why::at<espalier::why::line<101>
// user_line(CASE_infers_several): // the run$
// budget(CASE_infers_several): 7 25
// kind(CASE_does_not_divide): `reshape<-1, 5>(x)` of 48 elements
// first(CASE_does_not_divide): reshape: the product of the other extents does not divide
// expect(CASE_does_not_divide): reshape_does_not_divide<espalier::f32<8, 6>, espalier::why::extent<-1>, espalier::why::extent<5> ?>::raise<espalier::why::at<espalier::why::line<103>
// user_line(CASE_does_not_divide): // the run$
// budget(CASE_does_not_divide): 7 25
// kind(CASE_leaf): a parameter tree without `leaf`
// first(CASE_leaf): a parameter tree: this member is the same whatever the leaves are.* Write leaf<Leaf, f32<8, 6>>
// expect(CASE_leaf): member_is_no_leaf<layer<espalier::spec>, espalier::f32<6> ?>::raise<espalier::why::argument<1>
// user_line(CASE_leaf): // the run$
// budget(CASE_leaf): 7 25
// kind(CASE_parameter): a parameter `f32<8, 6> x`
// first(CASE_parameter): program: the function's parameters are tensors of a trace.* Write auto
// expect(CASE_parameter): parameter_is_a_tensor_type<typed, espalier::f32<4, 6>, espalier::f32<6> ?>
// user_line(CASE_parameter): // the run$
// budget(CASE_parameter): 7 25
// first(CASE_one_parameter): program: the function cannot be called with these arguments. Take its parameters as auto
// expect(CASE_one_parameter): function_not_callable<typed, espalier::f32<4, 6>, espalier::f32<6> ?>
// user_line(CASE_one_parameter): // the run$
// budget(CASE_one_parameter): 7 25
// kind(CASE_extent): `f32<-1, 6>`
// first(CASE_extent): program: the extents of a tensor are numbers from 1 on.* Write f32<64, 6> for f32<-1, 6>
// expect(CASE_extent): extent_is_not_positive<espalier::f32<-1, 6> ?>::raise<espalier::why::argument<0>
// user_line(CASE_extent): // the run$
// budget(CASE_extent): 7 25
// kind(CASE_construct): `program<...>{}`
// first(CASE_construct): program: is a type, and nothing is made of it. Ask step::flops\(\)
// expect(CASE_construct): spellings.cpp:\d+
// user_line(CASE_construct): // construct$
// budget(CASE_construct): 7 25
// kind(CASE_axis_by_name): `step::collectives<all_gather, "data">()`
// first(CASE_axis_by_name): collectives: axes are types, not names. Write step::collectives<all_gather, data>\(\)
// expect(CASE_axis_by_name): spellings.cpp:\d+
// user_line(CASE_axis_by_name): // axis_by_name$
// budget(CASE_axis_by_name): 7 25
// clang-format on
