// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

namespace ep = espalier;
using namespace testing::kinds;

// Rows of more elements than a chain works on as a whole (`row_limits`): they are cut into blocks of columns, and
// passed over as often as what is reduced of them is needed.

namespace {

// --- a loss over many classes, which devices share or have whole ----------------------------------------------------

constexpr int classes = 131'075;  // 65,538 and 65,537 on two devices

template <class On> struct many_classes {
  constexpr auto operator()(auto x, auto targets, auto bias) const {
    const auto split = ep::shard<ep::none, typename On::model>(x);
    const auto loss = [&](auto logits) { return ep::nn::cross_entropy(logits + bias, targets); };
    const auto [value, gradient] = ep::value_and_grad(loss)(split);
    const auto odds = ep::softmax(split);
    const auto chosen = ep::one_hot<classes, ep::dtype::f32>(targets);
    return ep::results(value, gradient, ep::relu(split), odds, ep::argmax<1>(split), ep::max<1>(split * split),
                       ep::sum<1>(chosen * odds), ep::log_softmax(split) - odds);
  }
};
template <class On>
using classes_program =
    ep::program<typename On::mesh, many_classes<On>, ep::f32<2, classes>, ep::i32<2>, ep::f32<classes>>;

plains plain_classes(const plains& in) {
  plain value = plain::number(0), slope({2, classes}), positive({2, classes}), odds({2, classes}), best({2}),
        square({2}), picked({2}), last({2, classes});
  for (int i = 0; i < 2; ++i) {
    real sum = 0, biased = 0;
    for (int j = 0; j < classes; ++j) {
      const real x = in[0](i, j);
      sum += std::exp(x);
      biased += std::exp(x + in[2](j));
      if (x > in[0](i, static_cast<int>(best(i)))) best(i) = j;
      square(i) = std::max(square(i), x * x);
      positive(i, j) = std::max(x, real(0));
    }
    const int target = static_cast<int>(in[1](i));
    value() += (std::log(biased) - in[0](i, target) - in[2](target)) / 2;
    for (int j = 0; j < classes; ++j) {
      odds(i, j) = std::exp(in[0](i, j)) / sum;
      last(i, j) = std::log(odds(i, j)) - odds(i, j);
      slope(i, j) = (std::exp(in[0](i, j) + in[2](j)) / biased - (j == target ? 1 : 0)) / 2;
    }
    picked(i) = odds(i, target);
  }
  return {value, slope, positive, odds, best, square, picked, last};
}

// --- every kind of type, lengths that are and that are not whole vectors -------------------------------------------

template <ep::TensorType Tensor> struct one_type {
  constexpr auto operator()(auto x, auto gain) const {
    const auto by_row = x * gain;
    const auto odds = ep::softmax(by_row);
    return ep::results(odds, ep::tanh(x) + x, ep::min<1>(by_row), ep::convert<ep::dtype::i32>(x) + 3,
                       ep::sum<1>(odds * x));
  }
};
template <class On, ep::TensorType Tensor, ep::TensorType Gain>
using type_program = ep::program<typename On::mesh, one_type<Tensor>, Tensor, Gain>;
template <class On> using f64_program = type_program<On, ep::f64<3, 100'003>, ep::f64<3, 1>>;
template <class On> using bf16_program = type_program<On, ep::bf16<3, 65'537>, ep::bf16<3, 1>>;
template <class On> using f16_program = type_program<On, ep::f16<3, 128'256>, ep::f16<3, 1>>;

plains plain_type(const plains& in) {
  const int rows = in[0].size(0);
  const int columns = in[0].size(1);
  plain odds(in[0].extents), curve(in[0].extents), least({rows}, 99), whole(in[0].extents), mean({rows});
  for (int i = 0; i < rows; ++i) {
    real sum = 0;
    for (int j = 0; j < columns; ++j) sum += std::exp(in[0](i, j) * in[1](i, 0));
    for (int j = 0; j < columns; ++j) {
      const real x = in[0](i, j);
      odds(i, j) = std::exp(x * in[1](i, 0)) / sum;
      curve(i, j) = std::tanh(x) + x;
      least(i) = std::min(least(i), x * in[1](i, 0));
      whole(i, j) = std::trunc(x) + 3;
      mean(i) += odds(i, j) * x;
    }
  }
  return {odds, curve, least, whole, mean};
}

plains inputs_of_type(int columns) {
  plains in{wave(1, {3, columns}, 4), plain({3, 1})};
  for (real& x : in[0].data) x = std::round(x * 16) / 16;  // what every type holds, and its products with these:
  in[1](0, 0) = 1;
  in[1](1, 0) = -0.5;
  in[1](2, 0) = 2;
  return in;
}

// --- an update that is computed in place, and integers of one long row ----------------------------------------------

struct updates {
  constexpr auto operator()(auto w, auto n) const {
    const auto gradient = ep::grad([](auto v) { return ep::sum(v * v * v); })(w);
    return ep::results(w - 0.125 * gradient, n * n + 1);
  }
};
template <class On>
using updates_program = ep::program<typename On::mesh, updates, ep::donated<ep::f32<2, 65'539>>, ep::i32<65'537>>;

}  // namespace

TEST_CASE("kinds: a loss over more classes than a block of a row has", "[kinds]") {
  plains in{wave(1, {2, classes}, 6), indices(2, {2}, classes), wave(3, {classes})};
  in[1](1) = classes - 1;
  for (const std::size_t leaf : {std::size_t{0}, std::size_t{2}}) {
    for (real& x : in[leaf].data) x = static_cast<real>(static_cast<float>(x));
  }
  everywhere<classes_program>(few_or_all<meshes<on<1, 1>, on<1, 4>>, meshes<on<1, 1>, on<1, 2>, on<1, 4>>>{}, in,
                              plain_classes(in), 2e-6);
  // Of the loss and of each maximum, the devices tell each other one number a row; the classes stay where they are.
  // As for short rows: the gradient's exponentials and where the target is.
  CHECK(classes_program<on<1, 1>>::arena_bytes() < 2 * classes * (4 + 1) + 1024);
  using shared = classes_program<on<1, 2>>;
  CHECK(shared::bytes<ep::all_reduce>() + shared::bytes<ep::all_gather>() + shared::bytes<ep::all_to_all>() < 1024);
}

TEST_CASE("kinds: long rows of every float, odd or whole vectors", "[kinds]") {
  everywhere<f64_program>(meshes<on<1, 1>, on<2, 1>>{}, inputs_of_type(100'003), plain_type(inputs_of_type(100'003)),
                          1e-12);
  everywhere<bf16_program>(meshes<on<1, 1>>{}, inputs_of_type(65'537), plain_type(inputs_of_type(65'537)), 3e-2);
  everywhere<f16_program>(meshes<on<1, 1>>{}, inputs_of_type(128'256), plain_type(inputs_of_type(128'256)), 1e-2);
}

TEST_CASE("kinds: long rows that are overwritten, and integers", "[kinds]") {
  plains in{wave(1, {2, 65'539}), indices(2, {65'537}, 1000)};
  for (real& x : in[0].data) x = std::round(x * 256) / 256;
  plains out = in;
  for (real& x : out[0].data) x -= x * x * 3 / 8;
  for (real& n : out[1].data) n = n * n + 1;
  everywhere<updates_program>(meshes<on<1, 1>, on<2, 1>>{}, in, out, 1e-6);
  CHECK(updates_program<on<1, 1>>::peak_bytes_per_device() == 4 * (2 * 65'539 + 2 * 65'537));
}
