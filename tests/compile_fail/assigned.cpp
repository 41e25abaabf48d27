// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/program.hpp>

#include <boost/hana/define_struct.hpp>

/// Mistakes whose type cannot travel on: a tensor's variable is overwritten, or only the gradient is used.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
struct stage : ep::axis<"stage", 2> {};
using mesh = ep::mesh<data, model>;

template <class Leaf> struct layer {
  BOOST_HANA_DEFINE_STRUCT(layer, (ep::leaf<Leaf, ep::f32<256, 1024>>, weight), (ep::leaf<Leaf, ep::f32<1024>>, bias));
};

struct train {
  constexpr auto operator()(auto p, auto x) const {
    const auto loss_of = [&](auto q) {
      auto h = ep::relu(ep::einsum<"bm,mh->bh">(x, q.weight) + q.bias);
#if defined(CASE_assigned)
      h = ep::shard<data, stage>(h);  // assigned
#else
      h = ep::shard<data, model>(h);
#endif
#if defined(CASE_gradient_only)
      return ep::mean(ep::sum<2>(h));  // gradient_only
#elif defined(CASE_loss)
      return h;
#else
      return ep::mean(h);
#endif
    };
    const auto [loss, gradient] = ep::value_and_grad(loss_of)(p);  // loss
    auto next = p;
    next.weight = p.weight - 0.1 * gradient.weight;
#if defined(CASE_leaf)
    next.bias = p.bias - 0.1 * ep::reshape<4, 255>(gradient.bias);  // leaf
#else
    next.bias = p.bias - 0.1 * gradient.bias;
#endif
#if defined(CASE_other_trace)
    ep::builder elsewhere;
    const int one = ep::emit::constant(elsewhere, ep::dtype::f32, ep::f32<1024>::shape, 1);
    next.bias = next.bias + ep::symbol<mesh, ep::f32<1024>>(elsewhere, one);  // other_trace
#elif defined(CASE_in_loop)
    ep::symbol<mesh, ep::f32<1024>> never;
    next.bias = ep::repeat<3>([&](auto h) { return h * never; }, p.bias);  // in_loop
#elif defined(CASE_carry)
    ep::symbol<mesh, ep::f32<1024>> never;
    ep::repeat<3>([](auto s) { return s; }, ep::results(p.bias, never));  // carry
#elif defined(CASE_never_assigned)
    auto other = decltype(p){};
    other.weight = next.weight;
    return other;
#endif
    return next;
  }
};

// clang-format off
// first(CASE_assigned): annotation: this axis does not belong to the program's mesh
// expect(CASE_assigned): unknown_mesh_axis<espalier::mesh<data, model>, data, stage>
// expect(CASE_assigned): line<24>
// user_line(CASE_assigned): step::flops
// budget(CASE_assigned): 5 16
// kind(CASE_assigned): a mistake behind `x += y`
// first(CASE_gradient_only): the tensor has no dimension of this number
// expect(CASE_gradient_only): line<29>
// user_line(CASE_gradient_only): step::flops
// kind(CASE_gradient_only): a mistake in what only the gradient reads
// first(CASE_loss): value_and_grad: the function must return one floating-point scalar
// expect(CASE_loss): line<36>
// user_line(CASE_loss): step::flops
// kind(CASE_loss): a loss that is no scalar, assigned to
// first(CASE_leaf): reshape: the new shape holds another number of elements
// expect(CASE_leaf): line<40>
// user_line(CASE_leaf): step::flops
// kind(CASE_leaf): a mistake assigned to a leaf
// first(CASE_other_trace): a tensor does not belong to this program: it comes from the trace of another one
// expect(CASE_other_trace): tensor_of_another_trace<.*line<47>
// user_line(CASE_other_trace): step::flops
// kind(CASE_other_trace): a tensor of another program's trace
// expect(CASE_in_loop): tensor_of_another_trace<.*line<50>
// expect(CASE_carry): tensor_of_another_trace<.*line<53>
// expect(CASE_never_assigned): tensor_of_another_trace<>::raise<espalier::why::program
// user_line(CASE_never_assigned): step::flops
// kind(CASE_never_assigned): a tensor that nothing was assigned to
// clang-format on
using step = ep::program<mesh, train, layer<ep::spec>, ep::f32<64, 256>>;
constexpr auto work = step::flops();
