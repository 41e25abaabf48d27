// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 300

#include <espalier/tensor/core/program/program.hpp>

#include <catch2/catch.hpp>
#include <support/run_program.hpp>

#include <boost/hana/define_struct.hpp>

/// Programs that a new user would write: arguments that nothing reads, loops of every form.
namespace ep = espalier;

namespace {

template <int Devices> struct line : ep::axis<"line", Devices> {};
template <int Devices> using row = ep::mesh<line<Devices>>;

/// Compares `Of<Devices>` on so many devices with what the oracle says.
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

/// Leaf 1 of the tree, leaf 1 of the stacked tree, `old` and the donated `spare` are read by nothing; a result takes
/// the place of `spare`.
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
                cell<ep::stacked<ep::spec, 3>>, ep::f64<7, 7>, ep::donated<ep::f64<6>>, ep::f64<9, 6>>;

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

// --- integers and truth values ---------------------------------------------------------------------------------------

/// Counting along split and whole dimensions, whether any and all hold, and the negative of an integer.
template <int Devices> struct counting {
  constexpr auto operator()(auto x, auto n) const {
    x = ep::shard<line<Devices>, ep::none>(x);
    n = ep::shard<line<Devices>>(n);
    const auto positive = x > 0;
    const auto count = ep::convert<ep::dtype::i32>(positive);
    return ep::results(ep::sum(count), ep::sum<0>(count), ep::max<0>(positive), ep::min<0>(positive), -n,
                       ep::sum(-n * 2));
  }
};
template <int Devices>
using counting_program = ep::program<row<Devices>, counting<Devices>, ep::f64<7, 3>, ep::i32<10>>;

// --- loops -----------------------------------------------------------------------------------------------------------

template <class Leaf> struct gates {
  BOOST_HANA_DEFINE_STRUCT(gates, (ep::leaf<Leaf, ep::f64<4, 20>>, input), (ep::leaf<Leaf, ep::f64<5, 20>>, hidden),
                           (ep::leaf<Leaf, ep::f64<20>>, bias));
};
template <class Leaf> struct memory {
  BOOST_HANA_DEFINE_STRUCT(memory, (ep::leaf<Leaf, ep::f64<6, 5>>, hidden), (ep::leaf<Leaf, ep::f64<6, 5>>, cell));
};

/// An LSTM over seven steps and its gradient: the carry is a pair, without and with an output, and as a tree, of which
/// all states are put out.
template <int Devices> struct lstm {
  template <class H, class C> static constexpr auto advance(const auto& p, const H& h, const C& c, const auto& x) {
    const auto all = ep::matmul(x, p.input) + ep::matmul(h, p.hidden) + p.bias;
    const auto in = ep::sigmoid(ep::slice<1, 0, 5>(all));
    const auto forget = ep::sigmoid(ep::slice<1, 5, 10>(all));
    const auto out = ep::sigmoid(ep::slice<1, 10, 15>(all));
    const auto next = forget * c + in * ep::tanh(ep::slice<1, 15, 20>(all));
    return ep::results(out * ep::tanh(next), next);
  }
  constexpr auto operator()(const auto& p, auto start, auto xs) const {
    xs = ep::shard<ep::none, line<Devices>, ep::none>(xs);
    const auto loss = [&](const auto& q, auto h) {
      const auto pair = ep::results(h, h * 0.5);
      const auto plain = ep::scan(
          [&](const auto& s, auto x) { return advance(q, s.template get<0>(), s.template get<1>(), x); }, pair, xs);
      const auto with_output = ep::scan(
          [&](const auto& s, auto x) {
            const auto next = advance(q, s.template get<0>(), s.template get<1>(), x);
            return ep::results(next, next.template get<0>());
          },
          pair, xs, ep::recompute);
      const auto pairs_out = ep::scan(
          [&](const auto& s, auto x) {
            const auto next = advance(q, s.template get<0>(), s.template get<1>(), x);
            return ep::results(next, next);
          },
          pair, xs);
      memory<ep::symbols<row<Devices>>> state{h, h};
      const auto [last, states] = [&] {
        const auto found = ep::scan(
            [&](const auto& s, auto x) {
              auto next = s;
              const auto made = advance(q, s.hidden, s.cell, x);
              next.hidden = made.template get<0>();
              next.cell = made.template get<1>();
              return ep::results(next, next);
            },
            state, xs);
        return std::pair(found.template get<0>(), found.template get<1>());
      }();
      return ep::mean(plain.template get<1>()) + ep::mean(with_output.template get<1>() * 2.0) +
             ep::mean(pairs_out.template get<1>().template get<1>()) + ep::mean(last.hidden * last.cell) +
             ep::mean(states.hidden * states.cell);
    };
    return ep::value_and_grad(loss)(p, start);  // as it is, it is two results
  }
};
template <int Devices>
using lstm_program = ep::program<row<Devices>, lstm<Devices>, gates<ep::spec>, ep::f64<6, 5>, ep::f64<7, 6, 4>>;

/// A loop of steps: with and without the step's number, with and without stacked outputs, recomputed, in one another,
/// over a tree that is put out stacked twice.
template <int Devices> struct steps {
  constexpr auto operator()(auto x, auto w) const {
    x = ep::shard<line<Devices>, ep::none>(x);
    const auto loss = [&](auto v, auto start) {
      const auto plain = ep::repeat<5>([&](auto h) { return ep::tanh(ep::matmul(h, v)); }, start);
      const auto counted = ep::repeat<4>(
          [&](auto h, auto step) {
            const auto t = ep::convert<ep::dtype::f64>(step) * 0.25;
            const auto next = h + t * ep::sigmoid(ep::matmul(h, v));
            return ep::results(next, ep::sum(next * t));
          },
          plain, ep::recompute);
      return ep::mean(counted.template get<0>()) + ep::mean(counted.template get<1>());
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(w, x);
    memory<ep::symbols<row<Devices>>> state{x, x + 1.0};
    const auto twice = ep::repeat<2>(
        [](const auto& outer) {
          return ep::repeat<3>(
              [](const auto& s, auto step) {
                auto next = s;
                next.hidden = s.cell * 0.5 + ep::convert<ep::dtype::f64>(step);
                next.cell = s.hidden + s.cell;
                return ep::results(next, next);
              },
              outer);
        },
        state);
    const auto over_both = ep::scan(
        [](auto sum, const auto& three) {
          return ep::scan([](auto s, const auto& one) { return s * 0.5 + one.hidden * one.cell; }, sum, three);
        },
        x, twice.template get<1>());
    const auto numbers = ep::repeat<6>([](auto sum, auto step) { return ep::results(sum + step, step * step); },
                                       ep::constant<ep::i32<>>(x, 1));
    return ep::results(value, gradient, twice, numbers, over_both);
  }
};
template <int Devices> using steps_program = ep::program<row<Devices>, steps<Devices>, ep::f64<6, 5>, ep::f64<5, 5>>;
// Of the tree that an inner loop of three steps puts out in each of two outer ones, the outer loop's dimension is
// first.
static_assert(steps_program<1>::result_layout(4).shape == ep::f64<2, 3, 6, 5>::shape);
static_assert(steps_program<1>::result_layout(7).shape == ep::i32<6>::shape);

/// Five scans in one another, over tensors that are stacked five times, each with an output; and the gradient.
template <int Devices> struct nested {
  template <int Level> static constexpr auto run(auto state, auto layers) {
    return ep::scan(
        [](auto h, auto layer) {
          if constexpr (Level == 1) {
            const auto next = ep::tanh(h * 0.5 + layer);
            return ep::results(next, next * layer);
          } else {
            const auto inner = run<Level - 1>(h, layer);
            return ep::results(inner.template get<0>() * 0.75, inner.template get<1>());
          }
        },
        state, layers);
  }
  constexpr auto operator()(auto x, auto layers) const {
    x = ep::shard<line<Devices>>(x);
    const auto loss = [](auto l, auto h) {
      const auto out = run<5>(h, l);
      const auto all = out.template get<1>();
      return ep::mean(out.template get<0>()) + ep::mean(all * all);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(layers, x);
    const auto out = run<5>(x, layers * 0.5);
    return ep::results(value, gradient, out);
  }
};
template <int Devices>
using nested_program = ep::program<row<Devices>, nested<Devices>, ep::f64<6>, ep::f64<2, 3, 2, 2, 3, 6>>;

}  // namespace

TEST_CASE("arguments that a function does not use are arguments all the same", "[execute]") {
  agrees_on<idle_program, 2, 8>(2);
  agrees_on<ones_program, 1, 4>();
}

TEST_CASE("a carry of two parts is a carry, with an output or without", "[execute]") {
  agrees_on<lstm_program, 1, 4>();
}

TEST_CASE("loops of a number of steps", "[execute]") { agrees_on<steps_program, 1, 4>(); }

TEST_CASE("loops nest to any depth", "[execute]") { agrees_on<nested_program, 1, 4>(); }

TEST_CASE("truth values are counted as integers, and integers have a negative", "[execute]") {
  agrees_on<counting_program, 1, 4>();
}
