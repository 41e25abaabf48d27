// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 300

#include <espalier/program/program.hpp>

#include <catch2/catch.hpp>
#include <support/run_program.hpp>

#include <boost/hana/define_struct.hpp>

/// What a new user would write: arguments that nothing reads, loops of every form.
namespace ep = espalier;

namespace {

template <int Devices> struct line : ep::axis<"line", Devices> {};
template <int Devices> using row = ep::mesh<line<Devices>>;

/// `Of<Devices>` on one, two, four and eight devices, with what the oracle says.
template <template <int> class Of, int... Devices> void agrees_on(int times = 1) {
  const auto check = [times]<int D>(std::integral_constant<int, D>) {
    CAPTURE(D);
    ep::world world(Of<D>::mesh::value);
    const testing::comparison seen = testing::run_and_compare<Of<D>>(world, times);
    CHECK(seen.finite);
    CHECK(seen.compared > 0);
    CHECK(seen.worst < 1e-11);
  };
  (check(std::integral_constant<int, Devices>{}), ...);
}

template <class Leaf> struct cell {
  BOOST_HANA_DEFINE_STRUCT(cell, (ep::leaf<Leaf, ep::f64<6, 6>>, weight), (ep::leaf<Leaf, ep::f64<6, 2>>, unused),
                           (ep::leaf<Leaf, ep::f64<6>>, bias));
};

// --- arguments that nothing reads ------------------------------------------------------------------------------------

/// Leaf 1 of the tree, leaf 1 of the stacked tree, the donated `old` and `spare` are read by nothing; `old` has no
/// result that could take its place, `spare` has.
template <int Devices> struct idle {
  constexpr auto operator()(auto first, const auto& p, const auto& layers, auto old, auto spare, auto x) const {
    static_cast<void>(old);
    static_cast<void>(spare);
    x = ep::shard<line<Devices>, ep::none>(x);
    const auto loss = [&](auto q, auto unread) {
      static_cast<void>(unread);
      auto h = ep::tanh(ep::matmul(x, q.weight) + q.bias);
      h = ep::scan([](auto state, const auto& layer) { return ep::tanh(ep::matmul(state, layer.weight)) + layer.bias; },
                   h, layers);
      return ep::mean(h * h);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(p, first);
    const auto by_unread = [&](auto unread, auto q) { return loss(q, unread); };
    return ep::results(value, gradient, ep::value_and_grad(by_unread)(first, p).gradient, p.bias * 2.0);
  }
};
template <int Devices>
using idle_program =
    ep::program<row<Devices>, idle<Devices>, ep::sharded<ep::f64<5, 3>, line<Devices>, ep::none>, cell<ep::spec>,
                cell<ep::stacked<ep::spec, 3>>, ep::donated<ep::f64<7, 7>>, ep::donated<ep::f64<6>>, ep::f64<9, 6>>;

using idle_on_two = idle_program<2>;
static_assert(idle_on_two::argument_count() == 10);
// The caller's own annotation, and none.
static_assert(!idle_on_two::argument_layout(0).placement.dim[0].empty());
static_assert(idle_on_two::argument_layout(2).shape == ep::f64<6, 2>::shape);
static_assert(idle_on_two::argument_layout(2).placement.same_layout(ep::sharding::whole(2)));
static_assert(idle_on_two::argument_layout(5).shape == ep::f64<3, 6, 2>::shape);
static_assert(idle_on_two::argument_layout(7).shape == ep::f64<7, 7>::shape);

/// Not even one argument is read.
struct ones {
  constexpr auto operator()(auto x) const { return ep::constant<ep::f64<3>>(x, 1.0); }
};
template <int Devices> using ones_program = ep::program<row<Devices>, ones, ep::f64<4>>;
static_assert(ones_program<2>::argument_count() == 1);
static_assert(ones_program<2>::arena_bytes() == 0);

}  // namespace

TEST_CASE("arguments that a function does not use are arguments all the same", "[execute]") {
  agrees_on<idle_program, 1, 2, 4, 8>(2);
  agrees_on<ones_program, 1, 4>();
}
