// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/program.hpp>

/// Mistakes in what a program, value_and_grad or scan is given, and in what functions return.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

struct mlp {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    const auto h = ep::relu(ep::einsum<"bm,mh->bh">(x, w_in));
    return ep::einsum<"bh,hm->bm">(h, w_out);
  }
};
struct takes_trees {
  constexpr auto operator()(const ep::symbol<mesh, ep::f32<64>>& x) const { return x; }
};
struct with_constructor {
  int power;
  constexpr explicit with_constructor(int p) : power(p) {}
  constexpr auto operator()(auto x) const { return x; }
};
struct returns_a_number {
  constexpr auto operator()(auto x) const { return x.extent(0); }
};
struct returns_nothing {
  constexpr void operator()(auto) const {}
};

struct squares {
  constexpr auto operator()(auto w) const {
#if defined(CASE_loss)
    return w * w;
#else
    return ep::sum(w * w);
#endif
  }
};
struct train {
  constexpr auto operator()(auto w, auto layers, auto others) const {
    const auto [loss, gradient] = ep::value_and_grad(squares{})(w);  // loss
#if defined(CASE_carry)
    const auto out = ep::scan([](auto h, auto layer) { return ep::sum<0>(h * layer); }, w, layers);  // carry
#elif defined(CASE_in_results)
    const auto out = ep::scan([](auto h, auto l) { return ep::results(h, ep::sum<3>(l)); }, w, layers);  // in_results
#elif defined(CASE_pair)
    const auto pair = ep::results(w, w);
    const auto out = ep::repeat<2>([](auto s) { return ep::results(s.template get<0>(), 1); }, pair);  // pair
#elif defined(CASE_stacked)
    const auto both = ep::results(layers, others);
    const auto out = ep::scan([](auto h, auto parts) { return h * parts.template get<0>(); }, w, both);  // stacked
#elif defined(CASE_exchanged)
    const auto out = ep::repeat<3>(w, [](auto h) { return h * 2; });  // exchanged
#elif defined(CASE_carry_number)
    const auto out = ep::scan([](auto h, auto layer) { return h + ep::sum(layer); }, 0.5, layers);  // carry_number
#elif defined(CASE_layers_exchanged)
    const auto out = ep::scan(w, layers, [](auto h, auto layer) { return h * layer; });  // layers_exchanged
#elif defined(CASE_body_of_one)
    const auto out = ep::scan([](auto h) { return h * 2; }, w, layers);  // body_of_one
#elif defined(CASE_body_of_three)
    const auto out = ep::repeat<3>([](auto h, auto n, auto m) { return h * n * m; }, w);  // body_of_three
#else
    const auto both = ep::results(layers, layers * 2);
    const auto out = ep::scan([](auto h, auto parts) { return h * parts.template get<0>(); }, w, both);
#endif
    return ep::results(loss, gradient, out, others);
  }
};

struct takes_both {
  constexpr auto operator()(auto one, auto other) const { return ep::results(one * other, ep::sum(one)); }
};

using x = ep::f32<64, 256>;
using w_in = ep::f32<256, 1024>;
using w_out = ep::f32<1024, 256>;

// clang-format off
// kind(CASE_too_few): too few arguments
// first(CASE_too_few): program: the function takes another number of arguments. Name one argument type for each
// expect(CASE_too_few): wrong_argument_count<mlp, espalier::why::takes<3>, espalier::why::given<1> ?>
// user_line(CASE_too_few): step::collectives
// budget(CASE_too_few): 5 16
// first(CASE_too_many): program: the function takes another number of arguments
// expect(CASE_too_many): wrong_argument_count<mlp, espalier::why::takes<3>, espalier::why::given<4> ?>
// user_line(CASE_too_many): step::collectives
// first(CASE_other_type): program: the function cannot be called with these arguments
// expect(CASE_other_type): function_not_callable<takes_trees, espalier::f32<64, 256> ?>
// user_line(CASE_other_type): step::collectives
// kind(CASE_has_members): a function with members
// first(CASE_has_members): program: the function has no default constructor. Use a struct without members
// expect(CASE_has_members): function_without_default<with_constructor>
// user_line(CASE_has_members): step::collectives
// kind(CASE_number_as_argument): `float` as an argument
// first(CASE_number_as_argument): program: an argument must be a tensor type, sharded<...>, a parameter tree of these
// expect(CASE_number_as_argument): argument_is_not_a_tensor<float>::raise<espalier::why::argument<1>
// user_line(CASE_number_as_argument): step::collectives
// first(CASE_number_as_result): program: the function must return a tensor, a parameter tree, or results<...> of these
// expect(CASE_number_as_result): not_a_tensor<returns_a_number, int>
// user_line(CASE_number_as_result): step::collectives
// kind(CASE_donated): `donated<...>` that no result takes
// first(CASE_donated): donated: no result takes this argument's memory, since none is left that is of its type
// expect(CASE_donated): donated_without_result<espalier::f32<1024, 256> ?>::raise<espalier::why::argument<2>
// user_line(CASE_donated): step::collectives
// first(CASE_donated_twice): donated: no result takes this argument's memory
// expect(CASE_donated_twice): donated_without_result<espalier::f32<64, 256> ?>::raise<espalier::why::argument<1>
// user_line(CASE_donated_twice): step::collectives
// first(CASE_no_result): the function returns nothing. Return a tensor
// expect(CASE_no_result): function_returns_nothing<returns_nothing>
// user_line(CASE_no_result): step::collectives
// kind(CASE_loss): a loss that is no scalar
// first(CASE_loss): value_and_grad: the function must return one floating-point scalar. Reduce the loss with mean or sum
// expect(CASE_loss): loss_is_not_scalar<espalier::f32<64> ?>::raise<espalier::why::at<espalier::why::line<43>, 'f', 'u', 'n', 'c', 't', 'i', 'o', 'n', 's', '.', 'c', 'p', 'p'>
// user_line(CASE_loss): training::flops
// kind(CASE_carry): `scan`: the carry changes its type
// first(CASE_carry): scan, repeat: the body must return a carry of the type it was given
// expect(CASE_carry): carry_changes_type<espalier::f32<64>, espalier::f32<> ?>::raise<espalier::why::at<espalier::why::line<45>
// user_line(CASE_carry): training::flops
// first(CASE_in_results): the tensor has no dimension of this number
// expect(CASE_in_results): no_such_dimension<espalier::f32<64>, espalier::why::dim<3> ?>::raise<espalier::why::in<espalier::why::op<'s', 'u', 'm' ?>, espalier::why::at<espalier::why::line<47>
// user_line(CASE_in_results): training::flops
// first(CASE_pair): scan, repeat: the body must return a carry of the type it was given
// expect(CASE_pair): carry_changes_type<espalier::results<espalier::f32<64>, espalier::f32<64> ?>, espalier::results<espalier::f32<64>, int> ?>::raise<espalier::why::at<espalier::why::line<50>
// user_line(CASE_pair): training::flops
// first(CASE_stacked): scan: all stacked tensors need the same first dimension, the number of iterations
// expect(CASE_stacked): stacked_sizes_differ<espalier::results<espalier::f32<4, 64>, espalier::f32<3, 64> ?> ?>::raise<espalier::why::at<espalier::why::line<53>
// user_line(CASE_stacked): training::flops
// kind(CASE_exchanged): `repeat`: the carry before the body
// first(CASE_exchanged): scan, repeat: the body comes first, then the carry, then scan's layers
// expect(CASE_exchanged): loop_value_is_not_a_tensor<>::raise<espalier::why::at<espalier::why::line<55>
// user_line(CASE_exchanged): training::flops
// kind(CASE_carry_number): `scan`: a number as the carry
// first(CASE_carry_number): scan, repeat: the body comes first, then the carry, then scan's layers
// expect(CASE_carry_number): loop_value_is_not_a_tensor<double>::raise<espalier::why::at<espalier::why::line<57>
// user_line(CASE_carry_number): training::flops
// first(CASE_layers_exchanged): scan, repeat: the body comes first, then the carry, then scan's layers
// expect(CASE_layers_exchanged): loop_value_is_not_a_tensor<>::raise<espalier::why::at<espalier::why::line<59>
// user_line(CASE_layers_exchanged): training::flops
// kind(CASE_body_of_one): `scan`: a body of another number of arguments
// first(CASE_body_of_one): scan, repeat: the body cannot be called with these. scan calls body
// expect(CASE_body_of_one): body_not_callable<espalier::f32<64>, espalier::f32<64> ?>::raise<espalier::why::at<espalier::why::line<61>
// user_line(CASE_body_of_one): training::flops
// first(CASE_body_of_three): scan, repeat: the body cannot be called with these
// expect(CASE_body_of_three): body_not_callable<espalier::f32<64> ?>::raise<espalier::why::at<espalier::why::line<63>
// user_line(CASE_body_of_three): training::flops
// clang-format on
#if defined(CASE_too_few)
using step = ep::program<mesh, mlp, x>;
#elif defined(CASE_too_many)
using step = ep::program<mesh, mlp, x, w_in, w_out, x>;
#elif defined(CASE_other_type)
using step = ep::program<mesh, takes_trees, x>;
#elif defined(CASE_has_members)
using step = ep::program<mesh, with_constructor, x>;
#elif defined(CASE_number_as_argument)
using step = ep::program<mesh, mlp, x, float, w_out>;
#elif defined(CASE_number_as_result)
using step = ep::program<mesh, returns_a_number, x>;
#elif defined(CASE_donated)
using step = ep::program<mesh, mlp, x, w_in, ep::donated<w_out>>;
#elif defined(CASE_donated_twice)
using step = ep::program<mesh, takes_both, ep::donated<x>, ep::donated<x>>;
#elif defined(CASE_no_result)
using step = ep::program<mesh, returns_nothing, x>;
#else
using step = ep::program<mesh, mlp, x, w_in, w_out>;
static_assert(ep::program<mesh, takes_trees, ep::f32<64>>::is_sound);
static_assert(ep::program<mesh, mlp, ep::donated<x>, w_in, w_out>::is_sound);
static_assert(ep::program<mesh, takes_both, x, ep::donated<x>>::is_sound);
#endif
static_assert(step::collectives<ep::all_gather>() == 0);

using training = ep::program<mesh, train, ep::f32<64>, ep::f32<4, 64>, ep::f32<3, 64>>;
constexpr auto work = training::flops();
