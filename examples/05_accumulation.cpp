// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The gradients of five micro-batches, added up in the carry of a loop, as on one device: devices add up their own
// terms and reduce them once, after the loop.

#include <espalier/espalier.hpp>

#include <cmath>
#include <iostream>

namespace ep = espalier;

struct data : ep::axis<"data", 4> {};
using mesh = ep::mesh<data>;

struct loss_of {
  constexpr auto operator()(auto w, auto x, auto y) const {
    const auto error = ep::tanh(ep::matmul(x, w)) - y;
    return ep::sum(error * error);
  }
};

struct training_step {
  constexpr auto operator()(auto w, auto xs, auto ys) const {  // five micro-batches of 16 rows
    xs = ep::shard<ep::none, data, ep::none>(xs);              // the only hint: f32[5, 16@data, 8]
    const auto body = [w](const auto& sums, const auto& batch) {
      const auto [loss, gradient] = ep::value_and_grad(loss_of{})(w, batch.template get<0>(), batch.template get<1>());
      return ep::results(sums.template get<0>() + gradient, sums.template get<1>() + loss);
    };
    const auto nothing = ep::results(ep::constant<ep::f32<8, 12>>(w, 0), ep::constant<ep::f32<>>(w, 0));
    const auto [gradient, loss] = ep::scan(body, nothing, ep::results(xs, ys));
    return ep::results(w - 0.01 * gradient, loss);
  }
};
using step = ep::program<mesh, training_step, ep::donated<ep::f32<8, 12>>, ep::f32<5, 16, 8>, ep::f32<5, 16, 12>>;

static_assert(step::collectives() == 1);  // one all-reduce of gradient and loss, not one in each iteration
// 8 x 12 + 1 numbers in four shares, of which the largest is 25: a device sends at most 97 + 2 x 25 of them.
static_assert(step::bytes<ep::all_reduce>() == 588);

/// The same step on one device.
struct alone : ep::axis<"alone", 1> {};
struct plain_step {
  constexpr auto operator()(auto w, auto xs, auto ys) const {
    const auto rows = [](auto all) { return ep::reshape<80, decltype(all)::shape[2]>(all); };
    const auto [loss, gradient] = ep::value_and_grad(loss_of{})(w, rows(xs), rows(ys));
    return ep::results(w - 0.01 * gradient, loss);
  }
};
using reference =
    ep::program<ep::mesh<alone>, plain_step, ep::donated<ep::f32<8, 12>>, ep::f32<5, 16, 8>, ep::f32<5, 16, 12>>;

template <class Array> void fill(Array& array, double phase) {
  array.for_each([&](float& element, std::int64_t i) {
    element = static_cast<float>(std::sin(0.37 * static_cast<double>(i) + phase));
  });
}

/// Three steps; returns the weights and the last loss.
template <class Program> auto train(ep::world& world) {
  ep::runner<Program> run(world);
  auto w = run.template argument<0>();
  auto xs = run.template argument<1>();
  auto ys = run.template argument<2>();
  fill(w, 1);
  fill(xs, 2);
  fill(ys, 3);
  float loss = 0;
  for (int n = 0; n < 3; ++n) loss = ep::gather(world, run(w, xs, ys).template get<1>())[0];
  auto numbers = ep::gather(world, w);
  if (world.is_root()) numbers.push_back(loss);
  return numbers;
}

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});
    const auto four = train<step>(world);
    if (!world.is_root()) return 0;

    ep::explain<step>(std::cout, ep::collectives_only);
    ep::world one(ep::mesh<alone>::value);
    const auto expected = train<reference>(one);
    double difference = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
      difference = std::fmax(difference, std::abs(double(four[i]) - double(expected[i])));
    const bool agree = four.size() == expected.size() && difference < 1e-3;
    std::cout << (agree ? "five micro-batches and the whole batch agree\n"
                        : "FIVE MICRO-BATCHES AND THE WHOLE BATCH DISAGREE\n");
    return agree ? 0 : 1;
  });
}
