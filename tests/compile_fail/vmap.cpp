// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/vmap.hpp>

#include <boost/hana/define_struct.hpp>
#include <espalier/tensor/core/program/program.hpp>
/// Mistakes in what is mapped, and in what comes out.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

struct rows {
  constexpr auto operator()(auto x, auto w) const {
    const auto product = [](auto row, auto weights) { return ep::matmul(weights, row); };
#if defined(CASE_sizes)
    const auto out = ep::vmap<0, 0>(product)(x, w);  // sizes
#elif defined(CASE_dim)
    const auto out = ep::vmap<2, ep::unmapped>(product)(x, w);  // dim
#elif defined(CASE_nothing)
    const auto out = ep::vmap<ep::unmapped, ep::unmapped>(product)(x, w);  // nothing
#elif defined(CASE_count)
    const auto out = ep::vmap<0>(product)(x, w);  // count
#elif defined(CASE_takes)
    const auto out = ep::vmap<0, ep::unmapped>([](auto row) { return row; })(x, w);  // takes
#elif defined(CASE_number)
    const auto out = ep::vmap<0, ep::unmapped>(product)(x, 2.0);  // number
#elif defined(CASE_differs)
    const auto out = ep::vmap<0, ep::unmapped>(product, ep::out_dims<ep::unmapped>)(x, w);  // differs
#elif defined(CASE_out)
    const auto out = ep::vmap<0, ep::unmapped>(product, ep::out_dims<2>)(x, w);  // out
#elif defined(CASE_ninth)
    const auto deep = [](auto row) { return ep::sum(ep::broadcast_to<2, 2, 2, 2, 2, 2, 2, 4>(row)); };  // ninth
    const auto out = ep::vmap<0>(deep)(x);
#elif defined(CASE_inside)
    const auto out = ep::vmap<0, ep::unmapped>([](auto row, auto v) { return row - ep::sum<3>(v); })(x, w);  // inside
#else
    const auto out = ep::vmap<0, ep::unmapped>(product, ep::out_dims<-1>)(x, w);
#endif
    return ep::results(out, w);
  }
};

using step = ep::program<mesh, rows, ep::f32<6, 4>, ep::f32<5, 4>>;
static_assert(step::flops() >= 0);

template <class Leaf> struct layer { BOOST_HANA_DEFINE_STRUCT(layer, (ep::leaf<Leaf, ep::f32<4>>, weight)); };
#if defined(CASE_tree)
using layers = layer<ep::spec>;
#else
using layers = layer<ep::stacked<ep::spec, 3>>;
#endif
struct trees {
  constexpr auto operator()(auto all) const {
    return ep::vmap<0>([](auto one) { return ep::sum(one.weight); })(all);  // tree
  }
};
using of_trees = ep::program<mesh, trees, layers>;
static_assert(of_trees::flops() >= 0);

// clang-format off
// kind(CASE_sizes): `vmap`: mapped dimensions of different sizes
// first(CASE_sizes): vmap: the mapped dimensions have different numbers of elements
// expect(CASE_sizes): mapped_sizes_differ<espalier::f32<6, 4>, espalier::f32<5, 4> ?>::raise<espalier::why::at<espalier::why::line<17>
// user_line(CASE_sizes): step::flops
// first(CASE_dim): vmap: the argument has no such dimension
// expect(CASE_dim): no_dimension_to_map<espalier::f32<6, 4>, espalier::why::dim<2> ?>::raise<espalier::why::at<espalier::why::line<19>
// user_line(CASE_dim): step::flops
// first(CASE_nothing): vmap: every argument is ep::unmapped
// expect(CASE_nothing): nothing_is_mapped<>::raise<espalier::why::at<espalier::why::line<21>
// user_line(CASE_nothing): step::flops
// first(CASE_count): vmap: name one dimension, or ep::unmapped, for each argument
// expect(CASE_count): dimensions_are_not_one_for_each<espalier::why::count<1>, espalier::why::count<2> ?>::raise<espalier::why::at<espalier::why::line<23>
// user_line(CASE_count): step::flops
// first(CASE_takes): vmap: the function cannot be called with these
// expect(CASE_takes): mapped_function_not_callable<espalier::f32<4>, espalier::f32<5, 4> ?>::raise<espalier::why::at<espalier::why::line<25>
// user_line(CASE_takes): step::flops
// first(CASE_number): vmap: arguments and results are tensors
// expect(CASE_number): mapped_value_is_not_a_tensor<>::raise<espalier::why::at<espalier::why::line<27>
// user_line(CASE_number): step::flops
// first(CASE_differs): vmap: this result depends on a mapped argument
// expect(CASE_differs): result_is_mapped<>::raise<espalier::why::at<espalier::why::line<29>
// user_line(CASE_differs): step::flops
// first(CASE_out): vmap: out_dims names a dimension that the result does not have
// expect(CASE_out): no_such_out_dimension<espalier::f32<5>, espalier::why::dim<2> ?>::raise<espalier::why::at<espalier::why::line<31>
// user_line(CASE_out): step::flops
// kind(CASE_ninth): `vmap`: an operator with eight dimensions
// first(CASE_ninth): vmap: this operator has no place for one more dimension
// expect(CASE_ninth): operator_cannot_be_mapped<>::raise<espalier::why::in<espalier::why::op<
// user_line(CASE_ninth): step::flops
// first(CASE_inside): the tensor has no dimension of this number
// expect(CASE_inside): no_such_dimension<espalier::f32<5, 4>, espalier::why::dim<3> ?>
// user_line(CASE_inside): step::flops
// first(CASE_tree): vmap: only the first dimension of a parameter tree is mapped
// expect(CASE_tree): tree_is_not_stacked<layer<.*>::raise<espalier::why::at<espalier::why::line<55>
// user_line(CASE_tree): of_trees::flops
// clang-format on
