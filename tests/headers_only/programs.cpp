// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// timeout: 120

#include <espalier/espalier.hpp>

#include <catch2/catch.hpp>
#include <support/run_program.hpp>

#include <string>

/// Programs without the library's compiled part: each brings along the code of the reductions and transfers that it
/// makes (execute/tables.hpp), and has to have them all.
namespace ep = espalier;

namespace {

template <int Devices> struct line : ep::axis<"line", Devices> {};
template <int Devices> using row = ep::mesh<line<Devices>>;

template <class Program> void agrees(double most = 1e-12) {
  ep::world world(Program::mesh::value);
  const testing::comparison seen = testing::run_and_compare<Program>(world);
  CHECK(seen.finite);
  CHECK(seen.compared > 0);
  CHECK(seen.worst <= most);
}

/// A gradient that is added up over the iterations of a loop, and nothing between devices.
struct summed_over_a_loop {
  constexpr auto operator()(auto weight, auto x) const {
    const auto loss = [&](auto w) {
      return ep::sum(ep::repeat<3>([&](auto h) { return ep::tanh(ep::matmul(h, w)); }, x));
    };
    return ep::value_and_grad(loss)(weight);
  }
};
using summed = ep::program<row<1>, summed_over_a_loop, ep::f64<4, 4>, ep::f64<3, 4>>;
static_assert(summed::collectives() == 0);

/// One window's halo.
template <int Devices> struct shifted {
  constexpr auto operator()(auto x) const { return ep::roll<0, 1>(ep::shard<line<Devices>, ep::none>(x)) - x; }
};
using one_window = ep::program<row<4>, shifted<4>, ep::f64<10, 3>>;
static_assert(one_window::collectives() == one_window::collectives<ep::exchange>() && one_window::collectives() == 1);

/// Halos of two fields, in the same messages.
template <int Devices> struct shifted_twice {
  constexpr auto operator()(auto x, auto y) const {
    x = ep::shard<line<Devices>, ep::none>(x);
    y = ep::shard<line<Devices>, ep::none>(y);
    return ep::results(ep::roll<0, 1>(x) + x, ep::roll<0, 1>(y) - y);
  }
};
using windows_together = ep::program<row<4>, shifted_twice<4>, ep::f64<10, 3>, ep::f64<12, 5>>;
static_assert(windows_together::collectives() == 1);

/// An exchange between two layouts: of the first there are four copies, and what is lacking is shared out among them.
struct side : ep::axis<"side", 2> {};
struct copies : ep::axis<"copies", 4> {};
struct exchanged {
  constexpr auto operator()(auto x) const { return ep::reshard<copies, ep::none>(ep::shard<side, ep::none>(x)) * 2.0; }
};
using layouts = ep::program<ep::mesh<side, copies>, exchanged, ep::f64<9, 13>>;
static_assert(layouts::collectives<ep::exchange>() == 1);

/// Gathered, scattered and transposed over the devices.
template <int Devices> struct moved {
  constexpr auto operator()(auto x, auto y) const {
    x = ep::shard<line<Devices>, ep::none>(x);
    y = ep::shard<ep::none, line<Devices>>(y);
    const auto whole = ep::reshard<ep::none, ep::none>(x);
    const auto terms =
        ep::reshard<line<Devices>, ep::none>(ep::matmul(y, ep::reshard<line<Devices>, ep::none>(y * 2.0)));
    return ep::results(whole, terms, ep::reshard<ep::none, line<Devices>>(x));
  }
};
using changes = ep::program<row<4>, moved<4>, ep::f64<8, 12>, ep::f64<8, 8>>;
static_assert(changes::collectives<ep::all_gather>() == 1 && changes::collectives<ep::reduce_scatter>() == 1 &&
              changes::collectives<ep::all_to_all>() == 1);

/// Combined by each operation, in several types.
template <int Devices> struct combined {
  constexpr auto operator()(auto reals, auto halves, auto numbers, auto bytes) const {
    reals = ep::shard<line<Devices>, ep::none>(reals);
    halves = ep::shard<line<Devices>, ep::none>(halves);
    numbers = ep::shard<line<Devices>, ep::none>(numbers);
    bytes = ep::shard<line<Devices>, ep::none>(bytes);
    return ep::results(ep::max<0>(reals), ep::min<0>(reals), ep::sum<0>(halves), ep::sum<0>(numbers), ep::max<0>(bytes),
                       ep::any<0>(reals > 0.5), ep::all<0>(numbers > 0));
  }
};
using reductions = ep::program<row<4>, combined<4>, ep::f32<9, 3>, ep::bf16<8, 3>, ep::i32<9, 3>, ep::u8<8, 5>>;
static_assert(reductions::collectives<ep::all_reduce>() >= 5);

template <class Program>
constexpr auto kinds = ep::detail::transfer_kinds_in(Program::device_mesh::value, Program::code);
static_assert(!kinds<summed>.windows && !kinds<summed>.exchanges && !kinds<summed>.together);
static_assert(kinds<one_window>.windows && !kinds<one_window>.exchanges && !kinds<one_window>.together);
static_assert(kinds<windows_together>.windows && kinds<windows_together>.together);
static_assert(!kinds<layouts>.windows && kinds<layouts>.exchanges && !kinds<layouts>.together);
static_assert(!kinds<changes>.windows && !kinds<changes>.exchanges);

}  // namespace

TEST_CASE("programs of headers alone have the code of all that they do") {
  agrees<summed>();
  agrees<one_window>();
  agrees<windows_together>();
  agrees<layouts>();
  agrees<changes>();
  agrees<reductions>(1e-2);
}

TEST_CASE("programs hold their ops without the rules, which are the compiler's") {
  const ep::graph_view kept = ep::tables_of<summed>().code;
  const ep::graph_view whole = summed::code;
  REQUIRE(kept.size == whole.size);
  int without = 0;
  for (int id = 0; id < kept.size; ++id) {
    CAPTURE(id);
    const ep::op_info& op = *whole[id].op;
    CHECK(std::string(kept[id].op->name) == op.name);
    CHECK(kept[id].op->fuse == op.fuse);
    CHECK(kept[id].op->positional == op.positional);
    CHECK(kept[id].op->facts.part == op.facts.part);
    CHECK((kept[id].op->flops == nullptr) == (op.flops == nullptr));
    if (op.flops == nullptr) continue;
    ++without;
    CHECK_THROWS_WITH(kept[id].op->flops(kept.view(id)), Catch::Contains("no rules of ops: ask Program::code"));
  }
  CHECK(without > 3);
}
