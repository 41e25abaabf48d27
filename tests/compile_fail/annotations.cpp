// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/program.hpp>

#include <boost/hana/define_struct.hpp>

/// Mistakes in annotations, of values and of arguments.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
struct stage : ep::axis<"stage", 2> {};
using mesh = ep::mesh<data, model>;

struct function {
  constexpr auto operator()(auto x, auto p, auto v) const {
#if defined(CASE_unknown_axis)
    return ep::shard<data, stage>(x);  // unknown_axis: the mesh has no `stage`
#elif defined(CASE_axis_twice)
    return ep::shard<data, data>(x);  // axis_twice
#elif defined(CASE_wrong_rank)
    return ep::shard<data>(x);  // wrong_rank
#elif defined(CASE_conflict)
    const auto rows = ep::shard<data, ep::none>(x);   // conflict: this
    return ep::exp(ep::shard<ep::none, data>(rows));  // conflict: and this
#elif defined(CASE_conflict_with_argument)
    return ep::exp(ep::shard<ep::none, data>(p.weight));  // conflict_with_argument
#elif defined(CASE_pending_sum)
    const auto product = ep::einsum<"bm,mh->bh">(x, ep::shard<model, ep::none>(v));
    const auto terms = ep::shard<data, ep::none, ep::unreduced<model>>(product);
    return ep::exp(terms);  // pending_sum: not the exponential of the sum
#elif defined(CASE_not_a_sum)
    return ep::shard<data, ep::none, ep::unreduced<model>>(x);  // not_a_sum: every device has all of it
#elif defined(CASE_pending_sum_plus_one)
    const auto product = ep::einsum<"bm,mh->bh">(x, ep::shard<model, ep::none>(v));
    const auto terms = ep::shard<data, ep::none, ep::unreduced<model>>(product);
    return terms + 1;  // pending_sum_plus_one: every device would add 1
#elif defined(CASE_like_another_shape)
    return ep::shard_like(x, v);  // like_another_shape
#elif defined(CASE_as_another_tree)
    const auto [one, other] = ep::shard_as(p, p.weight);  // as_another_tree
    return ep::results(one.weight, x, v);
#elif defined(CASE_priority)
    return ep::shard<data, ep::none, ep::priority<256>>(x);  // priority
#elif defined(CASE_in_scan_in_value_and_grad)
    const auto layer = [](auto h, auto) { return ep::tanh(ep::shard<stage>(h)); };  // in_scan_in_value_and_grad
    const auto loss = [&](auto w) { return ep::mean(ep::scan(layer, ep::sum<0>(w), w)); };
    const auto [value, gradient] = ep::value_and_grad(loss)(p.weight);
    return ep::results(value, p.weight - 0.1 * gradient);
#else
    const auto layer = [](auto h, auto) { return ep::tanh(ep::shard<model>(h)); };
    const auto loss = [&](auto w) { return ep::mean(ep::scan(layer, ep::sum<0>(w), w)); };
    const auto [value, gradient] = ep::value_and_grad(loss)(p.weight);
    const auto rows = ep::exp(ep::shard<data, ep::none>(x));
    const auto product = ep::einsum<"bm,mh->bh">(x, ep::shard<model, ep::none>(v));
    const auto terms = ep::shard<data, ep::none, ep::unreduced<model>>(product) * 2;
    const auto sum = ep::exp(ep::reshard<data, ep::none>(terms));
    return ep::results(value, gradient, ep::reshard<ep::none, data>(rows), sum, terms, p.bias);
#endif
  }
};

#if defined(CASE_argument_unknown_axis)
using of_bias = ep::sharded<ep::f32<256>, stage>;
#elif defined(CASE_argument_axis_twice)
using of_bias = ep::sharded<ep::f32<256>, ep::axes<data, data>>;
#elif defined(CASE_argument_priority)
using of_bias = ep::sharded<ep::f32<256>, data, ep::priority<-1>>;
#elif defined(CASE_argument_wrong_rank)
using of_bias = ep::sharded<ep::f32<256>, ep::none, data>;
#else
using of_bias = ep::sharded<ep::f32<256>, ep::none>;
#endif
template <class Leaf> struct parameters {
  BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::sharded<ep::f32<64, 256>, data, ep::none>>, weight),
                           (ep::leaf<Leaf, of_bias>, bias));
};

// clang-format off
// kind(CASE_unknown_axis): `shard`: an axis of another mesh
// first(CASE_unknown_axis): annotation: this axis does not belong to the program's mesh. Add it to the mesh, or name
// expect(CASE_unknown_axis): unknown_mesh_axis<espalier::mesh<data, model>, data, stage>
// expect(CASE_unknown_axis): at<espalier::why::line<18>, 'a', 'n', 'n', 'o', 't', 'a', 't', 'i', 'o', 'n', 's', '.', 'c', 'p', 'p'>
// user_line(CASE_unknown_axis): step::collectives
// budget(CASE_unknown_axis): 5 16
// kind(CASE_axis_twice): `shard`: one axis twice
// first(CASE_axis_twice): annotation: one mesh axis cannot split two dimensions of the same tensor. Use it once
// expect(CASE_axis_twice): axis_used_twice<espalier::f32<64, 256>, data, data>
// expect(CASE_axis_twice): line<20>
// user_line(CASE_axis_twice): step::collectives
// kind(CASE_wrong_rank): `shard`: too few entries
// first(CASE_wrong_rank): annotation: another number of entries than the tensor has dimensions. Write one per dimension
// expect(CASE_wrong_rank): annotation_of_wrong_rank<espalier::f32<64, 256>, data>
// expect(CASE_wrong_rank): line<22>
// user_line(CASE_wrong_rank): step::collectives
// kind(CASE_conflict): two annotations in conflict
// first(CASE_conflict): two annotations of the same tensor contradict each other. Remove one of the two lines, or use reshard
// expect(CASE_conflict): conflicting_annotations<espalier::why::annotated<data, espalier::none>, espalier::why::at<espalier::why::line<24>.*, espalier::why::annotated<espalier::none, data> ?>::raise<espalier::why::at<espalier::why::line<25>
// user_line(CASE_conflict): step::collectives
// first(CASE_conflict_with_argument): two annotations of the same tensor contradict each other
// expect(CASE_conflict_with_argument): conflicting_annotations<espalier::why::annotated<data, espalier::none>, espalier::why::argument_leaf<1>, espalier::why::annotated<espalier::none, data> ?>::raise<espalier::why::at<espalier::why::line<27>
// user_line(CASE_conflict_with_argument): step::collectives
// first(CASE_pending_sum): this op cannot work on the terms of a sum, but its operand is annotated unreduced.*Carry the sum out first, with reshard
// expect(CASE_pending_sum): pending_sum_dropped<espalier::why::op<'e', 'x', 'p'> ?>::raise<espalier::why::at<espalier::why::line<31>
// user_line(CASE_pending_sum): step::collectives
// first(CASE_not_a_sum): annotation: unreduced<...> keeps a sum pending, and this is no sum along these axes
// expect(CASE_not_a_sum): not_a_pending_sum<espalier::why::annotated<data, espalier::none, espalier::unreduced<model> ?> ?>::raise<espalier::why::at<espalier::why::line<33>
// user_line(CASE_not_a_sum): step::collectives
// first(CASE_pending_sum_plus_one): this op cannot work on the terms of a sum
// expect(CASE_pending_sum_plus_one): pending_sum_dropped<espalier::why::op<'a', 'd', 'd'> ?>::raise<espalier::why::at<espalier::why::line<37>
// user_line(CASE_pending_sum_plus_one): step::collectives
// first(CASE_like_another_shape): these tensors, or the leaves of two trees, have different shapes or names
// expect(CASE_like_another_shape): laid_out_as_another_shape<espalier::f32<64, 256>, espalier::f32<256, 32> ?>::raise<espalier::why::in<espalier::why::op<'s', 'h', 'a', 'r', 'd', '_', 'l', 'i', 'k', 'e'>, espalier::why::at<espalier::why::line<39>
// user_line(CASE_like_another_shape): step::collectives
// first(CASE_as_another_tree): these tensors, or the leaves of two trees, have different shapes or names
// expect(CASE_as_another_tree): laid_out_as_another_shape<.*line<41>
// user_line(CASE_as_another_tree): step::collectives
// first(CASE_priority): annotation: priorities are 0 to 255
// expect(CASE_priority): no_such_priority<espalier::f32<64, 256>, data, espalier::none, espalier::priority<256> ?>::raise<espalier::why::at<espalier::why::line<44>
// user_line(CASE_priority): step::collectives
// first(CASE_argument_priority): annotation: priorities are 0 to 255
// expect(CASE_argument_priority): no_such_priority<espalier::sharded<espalier::f32<256>, data, espalier::priority<-1> ?> ?>::raise<espalier::why::argument<1>
// user_line(CASE_argument_priority): step::collectives
// first(CASE_in_scan_in_value_and_grad): annotation: this axis does not belong to the program's mesh
// expect(CASE_in_scan_in_value_and_grad): line<46>
// user_line(CASE_in_scan_in_value_and_grad): step::collectives
// budget(CASE_in_scan_in_value_and_grad): 5 16
// Arguments are declared in the program's type, so their number stands for a line.
// first(CASE_argument_unknown_axis): annotation: this axis does not belong to the program's mesh
// expect(CASE_argument_unknown_axis): unknown_mesh_axis<espalier::mesh<data, model>, espalier::sharded<espalier::f32<256>, stage> ?>::raise<espalier::why::argument<1>
// user_line(CASE_argument_unknown_axis): step::collectives
// first(CASE_argument_axis_twice): annotation: one mesh axis cannot split two dimensions of the same tensor
// expect(CASE_argument_axis_twice): axis_used_twice<espalier::sharded<espalier::f32<256>, espalier::axes<data, data> ?> ?>::raise<espalier::why::argument<1>
// user_line(CASE_argument_axis_twice): step::collectives
// first(CASE_argument_wrong_rank): annotation: another number of entries than the tensor has dimensions
// expect(CASE_argument_wrong_rank): annotation_of_wrong_rank<espalier::sharded<espalier::f32<256>, espalier::none, data> ?>::raise<espalier::why::argument<1>
// user_line(CASE_argument_wrong_rank): step::collectives
// clang-format on
using step = ep::program<mesh, function, ep::f32<64, 256>, parameters<ep::spec>, ep::f32<256, 32>>;
static_assert(step::collectives<ep::collective_permute>() == 0);
