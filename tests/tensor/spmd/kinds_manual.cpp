// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/manual.hpp>
#include <support/kinds.hpp>

namespace ep = espalier;
namespace spmd = espalier::spmd;
using namespace testing::kinds;

namespace {

/// Calls `test.operator()<On>()` for each mesh: what a region gives depends on the number of devices.
template <class... On, class Test> void on_each(meshes<On...> /*meshes*/, const Test& test) {
  (test.template operator()<On>(), ...);
}
/// Rows of part k of d, along dimension `dim`.
plain part(const plain& x, int dim, int k, int d) {
  std::vector<std::int64_t> shape = x.extents;
  const std::int64_t size = shape[static_cast<std::size_t>(dim)] / d;
  shape[static_cast<std::size_t>(dim)] = size;
  plain made(shape);
  std::int64_t inner = 1;
  for (std::size_t n = static_cast<std::size_t>(dim) + 1; n < shape.size(); ++n) inner *= shape[n];
  for (std::size_t i = 0; i < made.data.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t outer = at / (inner * size);
    const std::int64_t row = at / inner % size;
    made.data[i] = x.data[static_cast<std::size_t>((outer * size * d + k * size + row) * inner + at % inner)];
  }
  return made;
}
plain joined(const plains& parts, int dim) {
  std::vector<std::int64_t> shape = parts[0].extents;
  const std::int64_t size = shape[static_cast<std::size_t>(dim)];
  const auto d = static_cast<std::int64_t>(parts.size());
  shape[static_cast<std::size_t>(dim)] = size * d;
  plain made(shape);
  std::int64_t inner = 1;
  for (std::size_t n = static_cast<std::size_t>(dim) + 1; n < shape.size(); ++n) inner *= shape[n];
  for (std::int64_t k = 0; k < d; ++k) {
    const plain& one = parts[static_cast<std::size_t>(k)];
    for (std::size_t i = 0; i < one.data.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t outer = at / (inner * size);
      const std::int64_t row = at / inner % size;
      made.data[static_cast<std::size_t>((outer * size * d + k * size + row) * inner + at % inner)] = one.data[i];
    }
  }
  return made;
}
template <class F> plain combined(const plain& a, const plain& b, const F& f) {
  plain made = a;
  for (std::size_t i = 0; i < a.data.size(); ++i) made.data[i] = f(a.data[i], b.data[i]);
  return made;
}
plain plus(const plain& a, const plain& b) {
  return combined(a, b, [](real x, real y) { return x + y; });
}
real square_sum(const plain& a) {
  real sum = 0;
  for (const real one : a.data) sum += one * one;
  return sum;
}

// --- all functions of one shard --------------------------------------------------------------------------------------

template <int Devices, class Model, class S> constexpr auto swapped(const S& s) {
  if constexpr (Devices == 1) {
    return spmd::permute<Model, spmd::from<0, 0>>(s);
  } else {
    return spmd::permute<Model, spmd::from<0, 1>, spmd::from<1, 0>>(s);
  }
}

/// Rows are cut along model by hand, the last dimension of three over data by the compiler.
template <class On> struct all_functions {
  using data = typename On::data;
  using model = typename On::model;
  static constexpr int devices = model::size;

  constexpr auto operator()(auto x) const {
    using ep::dims;
    using ep::none;
    const auto region = ep::manual<model>(
        [](auto given) {
          const auto s = ep::shard<none, none, data>(given);
          const auto sum = spmd::psum<model>(s);
          static_assert(spmd::is_varying<model, decltype(s)> && spmd::is_invariant<model, decltype(sum)>);
          const auto number = ep::convert<ep::dtype::f64>(spmd::axis_index<model>(s));
          return ep::results(sum, spmd::pmax<model>(s), spmd::pmin<model>(s), spmd::all_gather<model, 1>(s),
                             spmd::all_gather<model>(s), spmd::psum_scatter<model, 1>(s),
                             spmd::all_to_all<model, 1, 0>(s), spmd::permute<model, 1>(s), swapped<devices, model>(s),
                             spmd::broadcast<model, devices - 1>(s), s * number, s * sum,
                             spmd::pmean<model>(ep::sum(s * s)));
        },
        ep::in_specs<dims<model>>(),
        ep::out_specs<dims<>, dims<>, dims<>, dims<>, dims<>, dims<none, model>, dims<model>, dims<model>, dims<model>,
                      dims<>, dims<model>, dims<model>, dims<>>());
    const auto loss = [&](auto y) {
      const auto out = region(y);
      const auto all = [&]<int... N>(std::integer_sequence<int, N...>) {
        return ((0.1 * (N + 1) * ep::sum(out.template get<N>() * out.template get<N>())) + ...);
      }
      (std::make_integer_sequence<int, 13>{});
      return ep::results(all, out);
    };
    const auto both = ep::value_and_grad(loss)(x);
    return ep::results(both.value.template get<0>(), both.gradient, both.value.template get<1>());
  }
};
template <class On> using all_functions_program = ep::program<typename On::mesh, all_functions<On>, ep::f64<8, 8, 3>>;

plains plain_functions(const plain& x, int d) {
  plains s;
  for (int k = 0; k < d; ++k) s.push_back(part(x, 0, k, d));
  const auto at = [&](int k) -> const plain& { return s[static_cast<std::size_t>((k % d + d) % d)]; };
  plain sum = s[0], most = s[0], least = s[0];
  real squares = square_sum(s[0]);
  for (int k = 1; k < d; ++k) {
    sum = plus(sum, at(k));
    most = combined(most, at(k), [](real a, real b) { return std::max(a, b); });
    least = combined(least, at(k), [](real a, real b) { return std::min(a, b); });
    squares += square_sum(at(k));
  }
  plains exchanged, shifted, swaps, numbered, products;
  for (int k = 0; k < d; ++k) {
    plains pieces;
    for (int j = 0; j < d; ++j) pieces.push_back(part(at(j), 1, k, d));
    exchanged.push_back(joined(pieces, 0));
    shifted.push_back(at(k - 1));
    swaps.push_back(k < 2 ? at(d == 1 ? 0 : 1 - k) : plain(at(0).extents));
    plain times = at(k);
    for (real& one : times.data) one *= k;
    numbered.push_back(times);
    products.push_back(combined(at(k), sum, [](real a, real b) { return a * b; }));
  }
  return {sum,
          most,
          least,
          joined(s, 1),
          x,
          sum,
          joined(exchanged, 0),
          joined(shifted, 0),
          joined(swaps, 0),
          at(d - 1),
          joined(numbered, 0),
          joined(products, 0),
          plain::number(squares / d)};
}

// --- Megatron's block, written by hand -------------------------------------------------------------------------------

template <class On> struct by_hand_mlp {
  using data = typename On::data;
  using model = typename On::model;
  static constexpr auto region = ep::manual<model>(
      [](auto x, auto w_in, auto bias, auto w_out) {
        const auto h = ep::tanh(ep::matmul(x, w_in) + bias);
        return spmd::psum<model>(spmd::as_partial<model>(ep::matmul(h, w_out)));
      },
      ep::in_specs<ep::dims<>, ep::dims<ep::none, model>, ep::dims<model>, ep::dims<model>>(),
      ep::out_specs<ep::dims<>>());

  constexpr auto operator()(auto x, auto w_in, auto bias, auto w_out) const {
    const auto loss = [](auto y, auto a, auto b, auto c) {
      const auto out = region(ep::shard<data, ep::none>(y), a, b, c);
      return ep::sum(out * out);
    };
    const auto both = ep::value_and_grad<0, 1, 2, 3>(loss)(x, w_in, bias, w_out);
    return ep::results(both.value, both.gradient);
  }
};
template <class On>
using by_hand_mlp_program =
    ep::program<typename On::mesh, by_hand_mlp<On>, ep::f64<5, 4>, ep::f64<4, 8>, ep::f64<8>, ep::f64<8, 4>>;

real plain_mlp(const plains& in) {
  real loss = 0;
  for (int r = 0; r < 5; ++r) {
    real h[8];
    for (int j = 0; j < 8; ++j) {
      real sum = in[2](j);
      for (int i = 0; i < 4; ++i) sum += in[0](r, i) * in[1](i, j);
      h[j] = std::tanh(sum);
    }
    for (int o = 0; o < 4; ++o) {
      real sum = 0;
      for (int j = 0; j < 8; ++j) sum += h[j] * in[3](j, o);
      loss += sum * sum;
    }
  }
  return loss;
}

// --- regions in regions, collectives over several axes ---------------------------------------------------------------

/// x is cut along data by the outer region, its columns and the rows of w along model by the inner one.
template <class On> struct nested {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto x, auto w) const {
    using ep::dims;
    using ep::none;
    const auto loss = [](auto rows, auto weights) {
      return ep::manual<data>(
          [](auto s, auto v) {
            const auto inner = ep::manual<model>(
                [](auto t, auto u) {
                  const auto product = spmd::psum<model>(ep::matmul(t, u));
                  static_assert(spmd::is_varying<data, decltype(product)>);
                  const auto total = spmd::psum<data, model>(ep::sum(t * t));
                  const auto next = spmd::permute<data, 1>(product);
                  return ep::results(product * next, total);
                },
                ep::in_specs<dims<none, model>, dims<model>>(), ep::out_specs<dims<>, dims<>>());
            const auto out = inner(s, v);
            return spmd::psum<data>(ep::sum(out.template get<0>())) + 0.5 * out.template get<1>();
          },
          ep::in_specs<dims<data>, dims<>>(), ep::out_specs<dims<>>())(rows, weights);
    };
    const auto both = ep::value_and_grad<0, 1>(loss)(x, w);
    return ep::results(both.value, both.gradient);
  }
};
template <class On> using nested_program = ep::program<typename On::mesh, nested<On>, ep::f64<8, 8>, ep::f64<8, 3>>;

/// The same in one region over both axes.
template <class On> struct both_by_hand {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto x, auto w) const {
    using ep::dims;
    const auto loss = [](auto rows, auto weights) {
      return ep::manual<data, model>(
          [](auto t, auto u) {
            const auto product = spmd::psum<model>(ep::matmul(t, u));
            const auto next = spmd::permute<data, 1>(product);
            return spmd::psum<data>(ep::sum(product * next)) + 0.5 * spmd::psum<model, data>(ep::sum(t * t));
          },
          ep::in_specs<dims<data, model>, dims<model>>(), ep::out_specs<dims<>>())(rows, weights);
    };
    const auto both = ep::value_and_grad<0, 1>(loss)(x, w);
    return ep::results(both.value, both.gradient);
  }
};
template <class On>
using both_by_hand_program = ep::program<typename On::mesh, both_by_hand<On>, ep::f64<8, 8>, ep::f64<8, 3>>;

real plain_nested(const plains& in, int d) {
  plain product({8, 3});
  real squares = 0;
  for (int r = 0; r < 8; ++r) {
    for (int i = 0; i < 8; ++i) squares += in[0](r, i) * in[0](r, i);
    for (int o = 0; o < 3; ++o) {
      for (int i = 0; i < 8; ++i) product(r, o) += in[0](r, i) * in[1](i, o);
    }
  }
  const int rows = 8 / d;
  real all = squares / 2;
  for (int r = 0; r < 8; ++r) {
    for (int o = 0; o < 3; ++o) all += product(r, o) * product((r - rows + 8) % 8, o);
  }
  return all;
}

}  // namespace

TEST_CASE("kinds: every function of one shard, and its gradient", "[kinds][manual]") {
  const plain x = wave(1, {8, 8, 3});
  on_each(few_or_all<meshes<on<1, 1>, on<2, 4>>, meshes<on<1, 1>, on<1, 2>, on<2, 2>, on<2, 4>>>{}, [&]<class On>() {
    constexpr int d = On::model::size;
    const plains outs = plain_functions(x, d);
    const auto loss = [&](const plains& in) {
      real all = 0;
      real factor = 0;
      for (const plain& one : plain_functions(in[0], d)) all += (factor += 0.1L) * square_sum(one);
      return all;
    };
    plains expected = value_and_slopes(loss, {x}, 1);
    expected.insert(expected.end(), outs.begin(), outs.end());
    gives<all_functions_program<On>>({x}, expected, 1e-8);
  });
}

TEST_CASE("kinds: Megatron's block by hand along model, the batch by the compiler along data", "[kinds][manual]") {
  const plains in{wave(1, {5, 4}), wave(2, {4, 8}), wave(3, {8}), wave(4, {8, 4})};
  everywhere<by_hand_mlp_program>(few_or_all<meshes<on<1, 2>>, meshes<on<1, 1>, on<1, 2>, on<2, 2>, on<2, 4>>>{}, in,
                                  value_and_slopes(plain_mlp, in, 4), 1e-7);
}

TEST_CASE("kinds: regions in regions, and sums over several axes", "[kinds][manual]") {
  const plains in{wave(1, {8, 8}), wave(2, {8, 3})};
  on_each(few_or_all<meshes<on<2, 2>>, meshes<on<1, 1>, on<2, 1>, on<2, 2>, on<4, 2>>>{}, [&]<class On>() {
    const auto loss = [](const plains& given) { return plain_nested(given, On::data::size); };
    const plains expected = value_and_slopes(loss, in, 2);
    gives<nested_program<On>>(in, expected, 1e-7);
    gives<both_by_hand_program<On>>(in, expected, 1e-7);
  });
}
