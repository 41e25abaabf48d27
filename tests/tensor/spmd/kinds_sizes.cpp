// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- many rows of an odd length: what runs block by block, over borders of blocks and devices -----------------------

constexpr int rows = 1237;
constexpr int columns = 131;

template <class On> struct many_rows {
  constexpr auto operator()(auto x, auto gain, auto shift) const {
    const auto split = ep::shard<typename On::data, typename On::model>(x);
    const auto loss = [&](const auto& p) {
      const auto h = ep::tanh(split * p.template get<0>() + p.template get<1>());
      const auto odds = ep::softmax<-1>(h);
      const auto column = ep::sum<0>(odds * h);
      const auto half = ep::constant<ep::f32<columns>>(x, 0.5);
      const auto normal = ep::nn::layer_norm(odds, p.template get<0>(), half);
      const auto spread = ep::max<0>(h) - ep::min<1>(ep::transpose<1, 0>(h));
      return ep::mean(column * column) + ep::mean(normal * h) + ep::mean(spread);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(gain, shift));
    const auto size = ep::maximum(split, -split);
    return ep::results(value, gradient, ep::sum<0>(split), ep::sum<1>(split), ep::sum(split), ep::max<0>(size),
                       ep::transpose<1, 0>(split * gain));
  }
};
template <class On>
using rows_program =
    ep::program<typename On::mesh, many_rows<On>, ep::f32<rows, columns>, ep::f32<columns>, ep::f32<rows, 1>>;

real plain_rows(const plains& in) {
  const plain &x = in[0], &gain = in[1], &shift = in[2];
  real total = 0;
  plain column({columns}), top({columns}, -9), bottom({columns}, 9);
  for (int i = 0; i < rows; ++i) {
    plain h({columns}), odds({columns});
    real sum = 0, square = 0;
    for (int j = 0; j < columns; ++j) {
      h(j) = std::tanh(x(i, j) * gain(j) + shift(i, 0));
      sum += std::exp(h(j));
      top(j) = std::max(top(j), h(j));
      bottom(j) = std::min(bottom(j), h(j));
    }
    const real mean = 1.0L / columns;
    for (int j = 0; j < columns; ++j) {
      odds(j) = std::exp(h(j)) / sum;
      column(j) += odds(j) * h(j);
      square += (odds(j) - mean) * (odds(j) - mean) / columns;
    }
    for (int j = 0; j < columns; ++j) {
      total += ((odds(j) - mean) / std::sqrt(square + 1e-5L) * gain(j) + 0.5L) * h(j) / (rows * columns);
    }
  }
  for (int j = 0; j < columns; ++j) total += (column(j) * column(j) + top(j) - bottom(j)) / columns;
  return total;
}

// --- loops that leave things as they are, look at the whole, choose -------------------------------------------------

template <class On> struct odd_loops {
  constexpr auto operator()(auto xs, auto order, auto flags, auto w) const {
    const auto same = ep::scan([](auto c, auto x) { return ep::results(c, x); }, w, xs);
    const auto taken = ep::scan([&](auto, auto x) { return ep::results(x, w); }, w, xs);
    const auto doubled = ep::scan([](auto c, auto) { return ep::results(c * 2.0, c); }, w, xs);
    const auto chosen = ep::scan(
        [&](auto c, const auto& now) {
          const auto whole = ep::shard<ep::none, typename On::data, ep::none>(xs);
          const auto row = ep::gather<0>(whole, now.template get<0>());
          return ep::results(ep::select(now.template get<1>(), c + row, c), ep::sum(c));
        },
        w, ep::results(order, flags));
    const auto turned = ep::scan(
        [&](auto c, auto x) { return ep::reshard<typename On::model, typename On::data>(c * x + ep::mean<0>(xs)); },
        ep::reshard<typename On::data, ep::none>(w), xs);
    return ep::results(same, taken, doubled, chosen, turned);
  }
};
template <class On>
using loops_program =
    ep::program<typename On::mesh, odd_loops<On>, ep::f64<5, 4, 3>, ep::i32<6>, ep::boolean<6>, ep::f64<4, 3>>;

plains plain_loops(const plains& in) {
  const plain &xs = in[0], &w = in[3];
  plain last = w, doubled = w, before({5, 4, 3}), ws({5, 4, 3}), chosen = w, sums({6}), turned = w;
  for (std::size_t i = 0; i < 12; ++i) {
    real mean = 0;
    for (std::size_t t = 0; t < 5; ++t) mean += xs.data[12 * t + i] / 5;
    for (std::size_t t = 0; t < 5; ++t) {
      last.data[i] = xs.data[12 * t + i];
      ws.data[12 * t + i] = w.data[i];
      before.data[12 * t + i] = doubled.data[i];
      doubled.data[i] *= 2;
      turned.data[i] = turned.data[i] * xs.data[12 * t + i] + mean;
    }
    for (std::size_t t = 0; t < 6; ++t) {
      sums.data[t] += chosen.data[i];
      if (in[2].data[t] != 0) chosen.data[i] += xs.data[12 * static_cast<std::size_t>(in[1].data[t]) + i];
    }
  }
  return {w, xs, last, ws, doubled, before, chosen, sums, turned};
}

// --- what moves elements: steps, many parts, rows that do not exist, shapes -----------------------------------------

template <class On> struct movers {
  constexpr auto operator()(auto x, auto index) const {
    const auto loss = [&](auto v) {
      const auto t = ep::reshard<ep::axes<typename On::data, typename On::model>, ep::none>(v);
      const auto third = ep::slice<0, 1, 10, 3>(t);
      const auto second = ep::slice<1, 0, 7, 2>(t);
      const auto joined = ep::concat<0>(third, third, t, third, ep::slice<0, 0, 2>(t), t);
      return ep::mean(ep::exp(ep::gather<1>(joined, index))) + ep::mean(second * second * second);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(x);
    const auto split = ep::shard<typename On::data, typename On::model>(x);
    return ep::results(value, gradient, ep::reshape<77>(split), ep::reshape<7, 11>(split), ep::slice<0, 2, 3>(split),
                       ep::gather<0>(x, index), ep::transpose<1, 0>(x), ep::reshape<1, 11, 1, 7>(x));
  }
};
template <class On> using movers_program = ep::program<typename On::mesh, movers<On>, ep::f64<11, 7>, ep::i32<2, 3>>;

real plain_moved(const plains& in) {
  std::vector<int> which{1, 4, 7, 1, 4, 7};
  for (int i = 0; i < 11; ++i) which.push_back(i);
  which.insert(which.end(), {1, 4, 7, 0, 1});
  for (int i = 0; i < 11; ++i) which.push_back(i);
  real total = 0;
  for (const int i : which) {
    for (const real column : in[1].data) {
      const bool exists = column >= 0 && column < 7;
      total += std::exp(exists ? in[0](i, static_cast<int>(column)) : 0) / static_cast<real>(6 * which.size());
    }
  }
  for (int i = 0; i < 11; ++i) {
    for (int j = 0; j < 7; j += 2) total += in[0](i, j) * in[0](i, j) * in[0](i, j) / 44;
  }
  return total;
}

// --- every type in products, divisions, loops and conversions -------------------------------------------------------

template <class On, ep::dtype Half> struct types {
  constexpr auto operator()(auto f, auto h, auto i, auto b) const {
    const auto split = ep::shard<typename On::data, typename On::model>(f);
    const auto own = ep::shard<typename On::data, ep::none>(i);
    const auto half = ep::convert<Half>(split);
    const auto counts = ep::scan([](auto c, auto row) { return ep::results(c + row, c); }, ep::slice<0, 0, 1>(i),
                                 ep::reshape<5, 1, 4>(i));
    const auto tops =
        ep::scan([](auto c, auto row) { return ep::results(ep::maximum(c, row), ep::convert<ep::dtype::f32>(c)); },
                 ep::convert<Half>(ep::slice<0, 0, 1>(f)), ep::reshape<5, 1, 4>(h));
    return ep::results(
        ep::einsum<"ij,kj->ik">(own, i), ep::einsum<"ij,kj->ik">(ep::shard<ep::none, typename On::model>(h), h), i / 3,
        ep::convert<ep::dtype::i32>(split * 10.0), ep::prod<0>(i), ep::max<0>(half), ep::sum<1>(half),
        ep::mean<0>(ep::convert<ep::dtype::f32>(half)), ep::select(b, i, -1), !b | ((own < 2) & (f > 0.0)),
        ep::concat<0>(b, !b), counts, tops, ep::one_hot<3, Half>(ep::slice<0, 0, 1>(i)));
  }
};
template <class On>
using f32_program = ep::program<typename On::mesh, types<On, ep::dtype::f32>, ep::f32<5, 4>, ep::f32<5, 4>,
                                ep::i32<5, 4>, ep::boolean<5, 4>>;
template <class On>
using bf16_program = ep::program<typename On::mesh, types<On, ep::dtype::bf16>, ep::f32<5, 4>, ep::bf16<5, 4>,
                                 ep::i32<5, 4>, ep::boolean<5, 4>>;

plains plain_types(const plains& in) {
  const plain &f = in[0], &h = in[1], &i = in[2], &b = in[3];
  plain whole({5, 5}), half({5, 5}), thirds({5, 4}), tens({5, 4}), product({4}, 1), most({4}, -9), sums({5});
  plain means({4}), chosen({5, 4}), either({5, 4}), both({10, 4}), count({1, 4}), counts({5, 1, 4}), top({1, 4});
  plain tops({5, 1, 4}), hot({1, 4, 3});
  for (int k = 0; k < 4; ++k) {
    count(0, k) = i(0, k);
    top(0, k) = f(0, k);
    for (int c = 0; c < 3; ++c) hot(0, k, c) = i(0, k) == c ? 1 : 0;
    for (int r = 0; r < 5; ++r) {
      for (int q = 0; q < 5; ++q) {
        whole(r, q) += i(r, k) * i(q, k);
        half(r, q) += h(r, k) * h(q, k);
      }
      thirds(r, k) = std::trunc(i(r, k) / 3);
      tens(r, k) = std::trunc(f(r, k) * 10);
      product(k) *= i(r, k);
      most(k) = std::max(most(k), f(r, k));
      sums(r) += f(r, k);
      means(k) += f(r, k) / 5;
      chosen(r, k) = b(r, k) != 0 ? i(r, k) : -1;
      either(r, k) = b(r, k) == 0 || (i(r, k) < 2 && f(r, k) > 0) ? 1 : 0;
      both(r, k) = b(r, k);
      both(r + 5, k) = 1 - b(r, k);
      counts(r, 0, k) = count(0, k);
      count(0, k) += i(r, k);
      tops(r, 0, k) = top(0, k);
      top(0, k) = std::max(top(0, k), h(r, k));
    }
  }
  return {whole, half, thirds, tens, product, most, sums, means, chosen, either, both, count, counts, top, tops, hot};
}

}  // namespace

TEST_CASE("kinds: many rows of an odd length", "[kinds]") {
  const plains in{wave(1, {rows, columns}), wave(2, {columns}), wave(3, {rows, 1})};
  plain sums({columns}), row_sums({rows}), all = plain::number(0), most({columns}), turned({columns, rows});
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      sums(j) += in[0](i, j);
      row_sums(i) += in[0](i, j);
      all() += in[0](i, j);
      most(j) = std::max(most(j), std::abs(in[0](i, j)));
      turned(j, i) = in[0](i, j) * in[1](j);
    }
  }
  // There are 1368 gradients: differences along one direction; all meshes agree on the rest.
  const plains first = run<rows_program<on<1, 1>>>(in);
  const plains direction{wave(4, {columns}), wave(5, {rows, 1})};
  const auto along = [&](const plains& step) {
    plains moved = in;
    for (std::size_t leaf = 0; leaf < 2; ++leaf) {
      for (std::size_t i = 0; i < direction[leaf].data.size(); ++i) {
        moved[leaf + 1].data[i] += step[0]() * direction[leaf].data[i];
      }
    }
    return plain_rows(moved);
  };
  real slope_along = 0;
  for (std::size_t leaf = 0; leaf < 2; ++leaf) {
    for (std::size_t i = 0; i < direction[leaf].data.size(); ++i) {
      slope_along += first[leaf + 1].data[i] * direction[leaf].data[i];
    }
  }
  CHECK(static_cast<double>(slope_along) ==
        Approx(static_cast<double>(slope(along, {plain::number(0)}, 0)())).epsilon(1e-5));
  everywhere<rows_program>(few_or_all<meshes<on<1, 2>, on<4, 2>>, meshes<on<1, 1>, on<1, 2>, on<4, 1>, on<4, 2>>>{}, in,
                           {plain::number(plain_rows(in)), first[1], first[2], sums, row_sums, all, most, turned},
                           2e-5);
}

TEST_CASE("kinds: loops that leave things as they are, look at the whole, choose", "[kinds]") {
  const plains in{wave(1, {5, 4, 3}), indices(2, {6}, 5), indices(3, {6}, 2), wave(4, {4, 3})};
  everywhere<loops_program>(both_ways{}, in, plain_loops(in));
}

TEST_CASE("kinds: steps, many parts, rows that do not exist, shapes", "[kinds]") {
  plains in{wave(1, {11, 7}), indices(2, {2, 3}, 7)};
  in[1](0, 0) = 12;
  in[1](0, 1) = -1;
  plain cut({1, 7}), found({2, 3, 7}), turned({7, 11});
  for (int j = 0; j < 7; ++j) {
    cut(0, j) = in[0](2, j);
    for (int i = 0; i < 11; ++i) turned(j, i) = in[0](i, j);
    for (int a = 0; a < 2; ++a) {
      for (int b = 0; b < 3; ++b) {
        const int row = static_cast<int>(in[1](a, b));
        found(a, b, j) = row >= 0 && row < 11 ? in[0](row, j) : 0;
      }
    }
  }
  plains out = value_and_slopes(plain_moved, in, 1);
  out.insert(out.end(), {in[0], in[0], cut, found, turned, in[0]});
  everywhere<movers_program>(both_ways{}, in, out);
}

TEST_CASE("kinds: every type in products, divisions, loops and conversions", "[kinds]") {
  plains in{wave(1, {5, 4}), wave(2, {5, 4}), indices(3, {5, 4}, 5), indices(4, {5, 4}, 2)};
  for (std::size_t leaf = 0; leaf < 2; ++leaf) {
    for (real& one : in[leaf].data) one = std::round(one * 64) / 64;  // what bf16 holds exactly
  }
  everywhere<f32_program>(both_ways{}, in, plain_types(in), 1e-6);
  everywhere<bf16_program>(few_or_all<meshes<on<2, 4>>, meshes<on<1, 1>, on<2, 4>>>{}, in, plain_types(in), 1e-2);
}
