// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

namespace ep = espalier;
using namespace testing::kinds;

namespace {

/// Differences of the fourth order: of what is itself a difference, they are good to nine digits.
template <class F> plain fine_slope(const F& f, plains arguments, std::size_t leaf) {
  constexpr real step = 1e-3L;
  plain result = arguments[leaf];
  for (std::size_t i = 0; i < result.data.size(); ++i) {
    const real here = arguments[leaf].data[i];
    const auto at = [&](int steps) {
      arguments[leaf].data[i] = here + static_cast<real>(steps) * step;
      return f(arguments);
    };
    const real slope = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step);
    arguments[leaf].data[i] = here;
    result.data[i] = slope;
  }
  return result;
}

// --- losses that end in a bare sum ----------------------------------------------------------------------------------

template <class On> struct bare_sums {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto x, auto w, auto table, auto tokens) const {
    const auto slope = [&](const auto& loss, const auto& by) { return ep::value_and_grad(loss)(by).gradient; };
    const auto by_product = slope([&](auto a) { return ep::sum(ep::matmul(ep::shard<data, model>(a), w)); }, x);
    const auto by_row = slope([&](auto t) { return ep::sum(ep::gather<0>(t, tokens)); }, table);
    const auto by_join =
        slope([&](auto a) { return ep::sum(ep::concat<1>(a * a, ep::slice<1, 1, 3>(a), ep::transpose<1, 0>(w))); }, x);
    const auto by_cut = slope([](auto a) { return ep::sum(ep::slice<0, 1, 4>(a)); }, x);
    const auto by_turn = slope([](auto a) { return ep::sum(ep::transpose<1, 0>(a)); }, x);
    const auto by_shape = slope([](auto a) { return ep::sum(ep::reshape<3, 8>(a)); }, x);
    const auto by_loop = slope(
        [&](auto v) {
          const auto step = [&](auto h, auto row) { return h * 0.5 + ep::einsum<"j,jk->k">(row, v); };
          return ep::sum(ep::scan(step, ep::constant<ep::f64<6>>(v, 0.0), x));
        },
        w);
    return ep::results(by_product, by_row, by_join, by_cut, by_turn, by_shape, by_loop);
  }
};
template <class On>
using sums_program =
    ep::program<typename On::mesh, bare_sums<On>, ep::f64<6, 4>, ep::f64<4, 6>, ep::f64<5, 3>, ep::i32<2, 4>>;

plains plain_sums(const plains& in) {
  const plain &x = in[0], &w = in[1];
  plain product = x, row({5, 3}), join = x, cut({6, 4}), loop = w;
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 4; ++j) {
      product(i, j) = 0;
      for (int k = 0; k < 6; ++k) product(i, j) += w(j, k);
      join(i, j) = 2 * x(i, j) + (j == 1 || j == 2 ? 1 : 0);
      cut(i, j) = i >= 1 && i < 4 ? 1 : 0;
    }
  }
  for (const real token : in[3].data) {
    for (int k = 0; k < 3; ++k) row(static_cast<int>(token), k) += 1;
  }
  for (int j = 0; j < 4; ++j) {
    for (int k = 0; k < 6; ++k) {
      loop(j, k) = 0;
      for (int t = 0; t < 6; ++t) loop(j, k) += x(t, j) * std::pow(0.5L, 5 - t);
    }
  }
  return {product, row, join, cut, plain({6, 4}, 1), plain({6, 4}, 1), loop};
}

// --- gradients of gradients: a Hessian times a vector, a gradient's penalty, a step that is looked through ----------

template <class On> struct second_order {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto w, auto v, auto x) const {
    const auto loss = [&](auto weight, auto input) {
      const auto h = ep::shard<data, model>(ep::tanh(ep::matmul(input, weight)));
      return ep::mean(h * h * h) + ep::mean(ep::softmax<-1>(h) * h);
    };
    const auto rows = ep::shard<data, ep::none>(x);
    const auto directed = [&](auto weight) { return ep::sum(ep::value_and_grad(loss)(weight, rows).gradient * v); };
    const auto hessian_times_v = ep::value_and_grad(directed)(w).gradient;

    const auto penalty = [&](auto weight) {
      const auto critic = [&](auto input) {
        return ep::sum(ep::matmul(ep::tanh(ep::matmul(input, weight)), ep::transpose<1, 0>(v)));
      };
      const auto by_input = ep::value_and_grad(critic)(rows).gradient;
      const auto length = ep::sqrt(ep::sum<1>(by_input * by_input) + 0.01);
      return ep::mean((length - 1.0) * (length - 1.0));
    };
    const auto [value, by_penalty] = ep::value_and_grad(penalty)(w);

    const auto through_step = [&](auto weight) {
      const auto next = weight - 0.5 * ep::value_and_grad(loss)(weight, rows).gradient;
      return loss(next, 2.0 * rows);
    };
    return ep::results(hessian_times_v, value, by_penalty, ep::value_and_grad(through_step)(w).gradient);
  }
};
template <class On>
using second_program = ep::program<typename On::mesh, second_order<On>, ep::f64<3, 4>, ep::f64<3, 4>, ep::f64<6, 3>>;

real plain_loss(const plains& in) {  // weights, inputs
  real total = 0;
  for (int b = 0; b < 6; ++b) {
    std::vector<real> h(4);
    real sum = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      for (int i = 0; i < 3; ++i) h[j] += in[1](b, i) * in[0](i, static_cast<int>(j));
      h[j] = std::tanh(h[j]);
      sum += std::exp(h[j]);
    }
    for (const real one : h) total += (one * one * one + std::exp(one) / sum * one) / 24;
  }
  return total;
}
plains plain_second(const plains& in) {
  const auto directed = [&](const plains& at) {
    const plain by = fine_slope(plain_loss, {at[0], in[2]}, 0);
    real sum = 0;
    for (std::size_t i = 0; i < by.data.size(); ++i) sum += by.data[i] * in[1].data[i];
    return sum;
  };
  const auto penalty = [&](const plains& at) {
    real total = 0;
    for (int b = 0; b < 6; ++b) {
      plain by({3});
      for (int j = 0; j < 4; ++j) {
        real h = 0;
        for (int i = 0; i < 3; ++i) h += in[2](b, i) * at[0](i, j);
        const real out = in[1](0, j) + in[1](1, j) + in[1](2, j);
        for (int i = 0; i < 3; ++i) by(i) += out * (1 - std::tanh(h) * std::tanh(h)) * at[0](i, j);
      }
      const real length = std::sqrt(by(0) * by(0) + by(1) * by(1) + by(2) * by(2) + 0.01L);
      total += (length - 1) * (length - 1) / 6;
    }
    return total;
  };
  plain twice = in[2];
  for (real& one : twice.data) one *= 2;
  const auto through_step = [&](const plains& at) {
    plain next = at[0];
    const plain by = fine_slope(plain_loss, {at[0], in[2]}, 0);
    for (std::size_t i = 0; i < by.data.size(); ++i) next.data[i] -= 0.5L * by.data[i];
    return plain_loss({next, twice});
  };
  return {fine_slope(directed, {in[0]}, 0), plain::number(penalty({in[0]})), fine_slope(penalty, {in[0]}, 0),
          fine_slope(through_step, {in[0]}, 0)};
}

/// The second derivative of a loop's result by what it reads, and the third of a cubic.
template <class On> struct higher_order {
  constexpr auto operator()(auto w, auto xs) const {
    const auto run = [&](auto weight) {
      const auto step = [&](auto h, auto x) {
        return ep::tanh(ep::shard<typename On::data, ep::none>(x) * weight + h * 0.5);
      };
      const auto last = ep::scan(step, ep::constant<ep::f64<4, 3>>(xs, 0.0), xs);
      return ep::mean(last * last);
    };
    const auto length = [&](auto weight) {
      const auto by = ep::value_and_grad(run)(weight).gradient;
      return ep::sum(by * by);
    };
    const auto cubic = [](auto a) { return ep::sum(a * a * a * a); };
    const auto first = [&](auto a) { return ep::sum(ep::value_and_grad(cubic)(a).gradient); };
    const auto second = [&](auto a) { return ep::sum(ep::value_and_grad(first)(a).gradient); };
    return ep::results(ep::value_and_grad(length)(w).gradient, ep::value_and_grad(second)(w).gradient);
  }
};
template <class On>
using higher_program = ep::program<typename On::mesh, higher_order<On>, ep::f64<3>, ep::f64<5, 4, 3>>;

plains plain_higher(const plains& in) {
  const auto run = [&](const plains& at) {
    real total = 0;
    for (int b = 0; b < 4; ++b) {
      for (int j = 0; j < 3; ++j) {
        real h = 0;
        for (int t = 0; t < 5; ++t) h = std::tanh(in[1](t, b, j) * at[0](j) + 0.5L * h);
        total += h * h / 12;
      }
    }
    return total;
  };
  const auto length = [&](const plains& at) {
    real sum = 0;
    for (const real one : fine_slope(run, at, 0).data) sum += one * one;
    return sum;
  };
  plain third = in[0];
  for (real& one : third.data) one *= 24;
  return {fine_slope(length, {in[0]}, 0), third};
}

// --- bf16 training: biases, and weights that a loop captures --------------------------------------------------------

template <class On> struct bf16_training {
  constexpr auto operator()(auto w, auto bias, auto recurrent, auto xs) const {
    const auto loss = [&](const auto& p) {
      const auto step = [&](auto h, auto x) {
        x = ep::shard<typename On::data, ep::none>(x);
        const auto inside = ep::matmul(x, p.template get<0>()) + p.template get<1>();
        return ep::shard<typename On::data, typename On::model>(ep::tanh(inside + h * p.template get<2>()));
      };
      const auto h = ep::scan(step, ep::constant<ep::bf16<4, 6>>(xs, 0.0), xs);
      const auto y = ep::convert<ep::dtype::f32>(h);
      return ep::mean(y * y);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(w, bias, recurrent));
    const auto sums = ep::sum<0>(ep::sum<0>(xs));
    return ep::results(value, gradient, sums);
  }
};
template <class On>
using bf16_program =
    ep::program<typename On::mesh, bf16_training<On>, ep::bf16<3, 6>, ep::bf16<6>, ep::bf16<6>, ep::bf16<3, 4, 3>>;

real plain_bf16(const plains& in) {
  real total = 0;
  for (int b = 0; b < 4; ++b) {
    for (int j = 0; j < 6; ++j) {
      real h = 0;
      for (int t = 0; t < 3; ++t) {
        real sum = in[1](j) + h * in[2](j);
        for (int i = 0; i < 3; ++i) sum += in[3](t, b, i) * in[0](i, j);
        h = std::tanh(sum);
      }
      total += h * h / 24;
    }
  }
  return total;
}

/// Column sums that are longer than what bf16 counts exactly: 600 ones are 600, not 256.
template <class On> struct bf16_columns {
  constexpr auto operator()(auto bias, auto x) const {
    const auto loss = [&](auto b) {
      const auto y = ep::convert<ep::dtype::f32>(ep::shard<typename On::data, ep::none>(x) + b);
      return ep::sum(y);
    };
    return ep::results(ep::value_and_grad(loss)(bias).gradient, ep::sum<0>(x * 1.0));
  }
};
template <class On>
using columns_program = ep::program<typename On::mesh, bf16_columns<On>, ep::bf16<5>, ep::bf16<600, 5>>;

}  // namespace

TEST_CASE("kinds: gradients of losses that end in a bare sum", "[kinds]") {
  const plains in{wave(1, {6, 4}), wave(2, {4, 6}), wave(3, {5, 3}), indices(4, {2, 4}, 5)};
  everywhere<sums_program>(both_ways{}, in, plain_sums(in));
}

TEST_CASE("kinds: gradients of gradients", "[kinds]") {
  const plains in{wave(1, {3, 4}), wave(2, {3, 4}), wave(3, {6, 3})};
  everywhere<second_program>(both_ways{}, in, plain_second(in), 1e-8);
}

TEST_CASE("kinds: gradients of gradients of a loop, and third derivatives", "[kinds]") {
  const plains in{wave(1, {3}), wave(2, {5, 4, 3})};
  everywhere<higher_program>(data_axis{}, in, plain_higher(in), 1e-8);
}

TEST_CASE("kinds: training in bf16", "[kinds]") {
  plains in{wave(1, {3, 6}), wave(2, {6}), wave(3, {6}), wave(4, {3, 4, 3})};
  for (plain& one : in) {
    for (real& number : one.data) number = std::round(number * 64) / 64;  // what bf16 holds exactly
  }
  plains out = value_and_slopes(plain_bf16, in, 3);
  out.emplace_back(std::vector<std::int64_t>{3});
  for (std::size_t i = 0; i < in[3].data.size(); ++i) out.back().data[i % 3] += in[3].data[i];
  everywhere<bf16_program>(both_axes{}, in, out, 0.03);
}

TEST_CASE("kinds: long columns in bf16", "[kinds]") {
  everywhere<columns_program>(data_axis{}, {plain({5}), plain({600, 5}, 1)}, {plain({5}, 600), plain({5}, 600)}, 0.005);
}
