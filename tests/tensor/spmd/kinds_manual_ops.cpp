// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/manual.hpp>
#include <espalier/testing/executed.hpp>
#include <espalier/vmap.hpp>
#include <support/row_functions.hpp>
#include <support/spmd_check.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

// Every operator inside of a region by hand, of values that vary, with gradients inside and around: each device has
// rows of its own, one that it computes or several that it maps, against the same function for each row by the second
// meaning of every op.

namespace ep = espalier;

namespace {

using namespace espalier;
using namespace espalier::test;
using namespace espalier::test::row_functions;

template <int Devices> struct on {
  static constexpr int devices = Devices;
  struct data : ep::axis<"data", Devices> {};
  using mesh = ep::mesh<data>;
};

/// All numbers that a function returns, one after the other.
template <class T> constexpr auto line_of(const T& one) {
  if constexpr (ep::detail::is_results<T>) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(one.rest)>, ep::results<>>) {
      return line_of(one.first);
    } else {
      return ep::concat<0>(line_of(one.first), line_of(one.rest));
    }
  } else {
    return ep::reshape<-1>(ep::convert<ep::dtype::f64>(one));
  }
}
template <class F> struct line {
  constexpr auto operator()(const auto&... in) const { return line_of(F{}(in...)); }
};
/// A function in one row: its numbers, a loss, and its gradients by x and the weights.
template <class F> struct of_row {
  constexpr auto operator()(auto x, auto n, auto w) const {
    const auto [loss, slopes] = ep::value_and_grad<0, 2>(loss_of<F>{})(x, n, w);
    return ep::results(line<F>{}(x, n, w), loss, slopes);
  }
};

/// The same in a region along data. The gradient by the weights, which are the same on all devices, is added up.
template <class On, class F, bool Maps> struct by_hand {
  using data = typename On::data;
  template <class Function> static constexpr auto region(const Function& f) {
    using ep::dims;
    return ep::manual<data>(f, ep::in_specs<dims<data>, dims<ep::none, data>, dims<>>(),
                            ep::out_specs<dims<data>, dims<data>, dims<data>, dims<>>());
  }
  constexpr auto operator()(auto xs, auto ns, auto w) const {
    const auto values = region([](auto x, auto n, auto v) {
      if constexpr (Maps) {
        const auto [lines, losses, slopes] = ep::vmap<0, -1, ep::unmapped>(of_row<F>{})(x, n, v);
        return ep::results(lines, losses, slopes.template get<0>(), slopes.template get<1>());
      } else {
        const auto [lines, loss, slopes] = of_row<F>{}(ep::reshape<height, width>(x), ep::reshape<3>(n), v);
        return ep::results(ep::expand_dims<0>(lines), ep::reshape<1>(loss),
                           ep::expand_dims<0>(slopes.template get<0>()), slopes.template get<1>());
      }
    });
    const auto whole = [&](const auto& a, const auto& b) {
      const auto losses = ep::manual<data>(
          [](auto x, auto n, auto v) {
            if constexpr (Maps) {
              return ep::vmap<0, -1, ep::unmapped>(loss_of<F>{})(x, n, v);
            } else {
              return ep::reshape<1>(loss_of<F>{}(ep::reshape<height, width>(x), ep::reshape<3>(n), v));
            }
          },
          ep::in_specs<ep::dims<data>, ep::dims<ep::none, data>, ep::dims<>>(),
          ep::out_specs<ep::dims<data>>())(a, ns, b);
      return ep::sum(losses);
    };
    const auto [loss, back] = ep::value_and_grad<0, 1>(whole)(xs, w);
    return ep::results(values(xs, ns, w), loss, back);
  }
};
/// What is independent.
template <class On, class F> struct alone {
  using data = typename On::data;
  constexpr auto operator()(auto xs, auto ns, auto w) const {
    return ep::manual<data>(
        [](auto x, auto n, auto v) {
          return ep::expand_dims<0>(line<F>{}(ep::reshape<height, width>(x), ep::reshape<3>(n), v));
        },
        ep::in_specs<ep::dims<data>, ep::dims<ep::none, data>, ep::dims<>>(),
        ep::out_specs<ep::dims<data>>())(xs, ns, w);
  }
};
/// The trace, which the passes take on at run time: a constant it would be no other program.
template <class Mesh, class F, int Rows> graph traced() {
  return detail::trace<Mesh, F, ep::f64<Rows, height, width>, ep::i32<taken, Rows>, ep::f64<width, 5>>().program;
}
template <class F> graph row() {
  return detail::trace<on<1>::mesh, of_row<F>, ep::f64<height, width>, ep::i32<taken>, ep::f64<width, 5>>().program;
}

template <class On, class F, class OfRow, bool Maps> void is_as_row_by_row(int seed) {
  constexpr int each = Maps ? 2 : 1;
  constexpr int rows = each * On::devices;
  INFO(each << " rows on each of " << On::devices << " devices");
  const values in = row_arguments<rows>(seed);
  const graph one = row<OfRow>();
  std::vector<values> of_result(4);
  for (int r = 0; r < rows; ++r) {
    const values out = naive_interpret(normalise(one), {slice_of(in[0], 0, r), slice_of(in[1], 1, r), in[2]});
    for (std::size_t k = 0; k < out.size(); ++k) of_result[k].push_back(out[k]);
  }
  // Of the gradients by the weights the devices' sum: each map's first row, and its second.
  values of_place;
  for (int place = 0; place < each; ++place) {
    values of_devices;
    for (int r = place; r < rows; r += each) of_devices.push_back(of_result[3][static_cast<std::size_t>(r)]);
    of_place.push_back(added(of_devices));
  }
  const values expected{joined_rows(of_result[0]), joined_rows(of_result[1]),
                        joined_rows(of_result[2]), Maps ? joined_rows(of_place) : of_place[0],
                        added(of_result[1]),       joined_rows(of_result[2]),
                        added(of_result[3])};

  const graph all = traced<typename On::mesh, by_hand<On, F, Maps>, rows>();
  const mesh_shape& mesh = On::mesh::value;
  CHECK(difference(naive_interpret(normalise(all), in), expected, 1e-9) == "");
  const spmd_program program = merged_program(partitioned_program(mesh, all));
  CHECK(fault_of(program, expected, in, 1e-9) == "");
  CHECK(difference(execute(program.mesh, program.parts.program, in), expected, 1e-9) == "");
}
template <class F, class OfRow = F> void is_as_each_device(int seed) {
#if ESPALIER_TEST_ALL_MESHES
  is_as_row_by_row<on<1>, F, OfRow, false>(seed);
  is_as_row_by_row<on<2>, F, OfRow, false>(seed);
  is_as_row_by_row<on<4>, F, OfRow, false>(seed);
  is_as_row_by_row<on<1>, F, OfRow, true>(seed);
  is_as_row_by_row<on<2>, F, OfRow, true>(seed);
  is_as_row_by_row<on<8>, F, OfRow, true>(seed);
#endif
  is_as_row_by_row<on<8>, F, OfRow, false>(seed);
  is_as_row_by_row<on<4>, F, OfRow, true>(seed);
  // A region without a collective sends nothing.
  const spmd_program silent =
      merged_program(partitioned_program(on<8>::mesh::value, traced<on<8>::mesh, alone<on<8>, F>, 8>()));
  INFO(silent.summary());
  CHECK(silent.collectives.empty());
}

// --- loops -----------------------------------------------------------------------------------------------------------

struct loops {
  constexpr auto operator()(auto x, auto n, auto w) const {
    const auto layer = [&](auto h, auto row) { return ep::results(ep::tanh(h + row), h * row); };
    const auto scanned = ep::scan(layer, ep::sum<0>(x), x);
    const auto rows_of_w = ep::scan([&](auto h, auto row) { return h + ep::sum(row) * ep::sum(x); }, ep::sum(x), w);
    const auto repeated =
        ep::repeat<3>([&](auto h, auto step) { return h * 0.9 + ep::convert<ep::dtype::f64>(step) * x; }, x);
    // All devices decide alike.
    const auto until = ep::while_loop([](auto s) { return s.template get<1>() < 3; },
                                      [&](auto s) {
                                        const auto [h, count] = s;
                                        return ep::results(h * 0.7 + 0.01 * x, count + 1);
                                      },
                                      ep::results(x, ep::constant<ep::i32<>>(w, 0)), ep::at_most_iterations<8>);
    const auto one_way = ep::cond(
        ep::sum(w) > 0.0, [&] { return ep::sin(x); }, [&] { return x * x; });
    return ep::results(scanned.template get<0>(), scanned.template get<1>(), rows_of_w, repeated,
                       until.template get<0>(), one_way, n);
  }
};

// --- gradients of the user's -----------------------------------------------------------------------------------------

struct alone_sum {
  static constexpr auto of(auto x) { return x; }
};
template <class Axis> struct sum_of_devices {
  static constexpr auto of(auto x) { return ep::spmd::psum<Axis>(x); }
};
/// What flows back to the weights, which are the same on all devices, is the same: `Sum` makes it so.
template <class Sum> struct own_backward {
  constexpr auto operator()(auto a, auto b, auto value, auto into) const {
    return ep::results(ep::matmul(into, ep::transpose<1, 0>(b)) * 2.0,
                       Sum::of(ep::matmul(ep::transpose<1, 0>(a), into * ep::cos(value))));
  }
};
template <class Sum> struct gradients {
  constexpr auto operator()(auto x, auto n, auto w) const {
    const auto product = ep::custom_gradient([](auto a, auto b) { return ep::matmul(a, b); }, own_backward<Sum>{});
    const auto again = ep::checkpoint([](auto a, auto b) { return ep::tanh(ep::matmul(ep::exp(a), b)); });
    // Values that vary less than the arguments, and a checkpoint in a loop and in a checkpoint.
    const auto of_weights = ep::checkpoint([](auto a, auto b) { return ep::results(ep::sin(b), a * ep::sum(b)); });
    const auto in_loop = ep::repeat<2>(
        [&](auto h) { return ep::checkpoint([](auto a, auto b) { return ep::tanh(a * ep::sum(ep::sin(b))); })(h, w); },
        x);
    const auto nested = ep::checkpoint([](auto a, auto b) {
      return ep::checkpoint([](auto c, auto d) { return ep::sin(ep::matmul(c, d)); })(ep::cos(a), b * b);
    });
    return ep::results(product(x, w), again(x, w), of_weights(x, w), in_loop, nested(x, w), ep::stop_gradient(x) * x,
                       n);
  }
};

}  // namespace

TEST_CASE("by hand: elements, sums and products", "[manual]") { is_as_each_device<elements_and_sums>(1); }
TEST_CASE("by hand: movements within shards", "[manual]") { is_as_each_device<movements>(11); }
TEST_CASE("by hand: lookups by what varies, in what varies or not", "[manual]") { is_as_each_device<lookups>(21); }
TEST_CASE("by hand: images and filters of each device", "[manual]") { is_as_each_device<images>(31); }
TEST_CASE("by hand: loops and branches", "[manual]") { is_as_each_device<loops>(41); }
TEST_CASE("by hand: gradients of the user's and checkpoints", "[manual]") {
  is_as_row_by_row<on<8>, gradients<sum_of_devices<on<8>::data>>, gradients<alone_sum>, false>(51);
  is_as_row_by_row<on<4>, gradients<sum_of_devices<on<4>::data>>, gradients<alone_sum>, true>(51);
}
