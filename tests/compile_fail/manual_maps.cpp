// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/manual.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/vmap.hpp>

#include <boost/hana/define_struct.hpp>

/// Mistakes where code for one shard meets maps, gradients of the user's, and operators of the user's.
namespace ep = espalier;
namespace spmd = espalier::spmd;
using ep::dims;
using ep::in_specs;
using ep::out_specs;

struct model : ep::axis<"model", 4> {};
using mesh = ep::mesh<model>;

// clang-format off
/// An operator that says nothing of its dimensions.
constexpr ep::op_info sorted_op{.name = "sorted", .factors = [](ep::op_view) { return ep::factor_rule{}; }, .flops = ep::detail::no_flops};
[[maybe_unused]] constexpr auto sorted = [](auto x, ep::source_line where = ep::source_line::current()) { x.owner->at(where); return decltype(x)(*x.owner, x.owner->append(sorted_op, x.type, x.shape, x.id)); };
constexpr auto product = [](auto backward) { return ep::custom_gradient([](auto a, auto b) { return a * b; }, backward); };

constexpr auto by_hand = [](auto s, [[maybe_unused]] auto w) {  // s varies along model, w does not
#if defined(CASE_operator)
  return spmd::psum<model>(sorted(s) * w);  // operator
#elif defined(CASE_lanes)
  return spmd::psum<model>(ep::vmap([](auto row) { return ep::while_loop([](auto t) { return ep::sum(t) > 0.0; }, [](auto t) { return t - 1.0; }, row); })(s));  // lanes
#elif defined(CASE_twice)
  return ep::vmap([](auto row) { return spmd::psum<model>(spmd::psum<model>(row)); })(s);  // twice
#elif defined(CASE_flows)
  return spmd::psum<model>(ep::sum<0>(product([](auto a, auto b, auto, auto into) { return ep::results(into * b, ep::sum<0>(into * a)); })(s, w)));
#elif defined(CASE_forgotten)
  return ep::vmap([](auto row) { return row * 2.0; })(s);
#elif defined(CASE_tree)
  return spmd::psum<model>(ep::sum<0>(s) * w);
#else
  const auto own = product([](auto a, auto b, auto, auto into) { return ep::results(into * b, spmd::psum<model>(ep::sum<0>(into * a))); })(s, w);
  return spmd::psum<model>(ep::sum<0>(own));
#endif
};

template <class Leaf> struct layer { BOOST_HANA_DEFINE_STRUCT(layer, (ep::leaf<Leaf, ep::f32<16, 6>>, weight)); };
struct region {
  constexpr auto operator()(auto x, auto w, [[maybe_unused]] auto tree) const {
#if defined(CASE_tree)
    return ep::manual<model>([](auto t) { return spmd::psum<model>(t.weight); }, in_specs<dims<model>>(), out_specs<dims<>>())(tree);  // tree
#else
    const auto loss = [](auto a, auto b) {
      return ep::sum(ep::manual<model>(by_hand, in_specs<dims<model>, dims<>>(), out_specs<dims<>>())(a, b));  // region
    };
    return ep::value_and_grad<0, 1>(loss)(x, w).gradient;
#endif
  }
};
// clang-format on

using step = ep::program<mesh, region, ep::f32<16, 6>, ep::f32<6>, layer<ep::spec>>;
static_assert(step::flops() >= 0);

// first(CASE_operator): manual: this operator has no place
// expect(CASE_operator): not_for_shards<.*::raise<.*espalier::why::at<espalier::why::line<27>
// user_line(CASE_operator): step::flops
// first(CASE_lanes): manual: what decides about a branch
// expect(CASE_lanes): decision_varies<.*::raise<.*espalier::why::at<espalier::why::line<29>
// user_line(CASE_lanes): step::flops
// first(CASE_twice): spmd: the operand is invariant
// expect(CASE_twice): same_on_all_devices<.*::raise<.*espalier::why::at<espalier::why::line<31>
// user_line(CASE_twice): step::flops
// first(CASE_flows): custom_gradient
// expect(CASE_flows): gradient_of_another_type<.*::raise<.*espalier::why::at<espalier::why::line<23>
// user_line(CASE_flows): step::flops
// first(CASE_forgotten): manual: out_specs promises a result
// expect(CASE_forgotten): result_is_not_invariant<.*::raise<.*espalier::why::at<espalier::why::line<51>
// user_line(CASE_forgotten): step::flops
// first(CASE_tree): manual: the leaves of a parameter tree have one
// expect(CASE_tree): tree_is_cut_along_its_stack_only<.*::raise<.*espalier::why::at<espalier::why::line<48>
// user_line(CASE_tree): step::flops
