// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- integers: products of eight bits in thirty-two, of uneven sizes -------------------------------------------------

template <class On> struct narrow_products {
  constexpr auto operator()(auto x, auto w, auto u) const {
    x = ep::shard<typename On::data, typename On::model>(x);
    w = ep::shard<typename On::model, ep::none>(w);
    return ep::results(
        ep::matmul<ep::dtype::i32>(x, w), ep::einsum<"bm,bm->b", ep::dtype::i32>(x, u), ep::sum<ep::dtype::i32, 1>(x),
        ep::sum<ep::dtype::i64>(u, ep::keep_dims), ep::cumsum<ep::dtype::i32, 1>(x), ep::sum<ep::dtype::i32>(x > 50),
        ep::convolution<ep::convolution_settings{}, ep::dtype::i32>(ep::reshape<1, 7, 9>(x), ep::reshape<1, 9, 5>(w)));
  }
};
template <class On>
using narrow_program = ep::program<typename On::mesh, narrow_products<On>, ep::i8<7, 9>, ep::i8<9, 5>, ep::u8<7, 9>>;

// No operand is copied into a wider type: arguments, results, and nothing else.
template <class On> struct quantised {
  constexpr auto operator()(auto x, auto w) const {
    return ep::matmul<ep::dtype::i32>(x, ep::shard<ep::none, typename On::model>(w));
  }
};
template <class On>
using quantised_program = ep::program<typename On::mesh, quantised<On>, ep::i8<4, 64>, ep::i8<64, 256>>;
static_assert(quantised_program<on<1, 1>>::peak_bytes_per_device() == 4 * 64 + 64 * 256 + 4 * 4 * 256);
static_assert(quantised_program<on<1, 4>>::peak_bytes_per_device() == 4 * 64 + 64 * 64 + 4 * 4 * 64);
static_assert(quantised_program<on<1, 4>>::collectives() == 0);

plain whole_numbers(int seed, std::vector<std::int64_t> extents, int low, int count) {
  plain made = indices(seed, std::move(extents), count);
  for (real& one : made.data) one += static_cast<real>(low);
  return made;
}

// --- floats: what is wider than its operands, and its gradients -----------------------------------------------------

template <class On, ep::dtype Type> struct wide_products {
  constexpr auto operator()(auto x, auto w, auto v) const {
    const auto loss = [](auto a, auto b, auto c) {
      const auto y = ep::matmul<Type>(ep::shard<typename On::data, typename On::model>(a),
                                      ep::shard<typename On::model, ep::none>(b));
      const auto means = ep::mean<Type, 1>(a) + ep::sum<Type, 1>(a) + ep::take<1, -1>(ep::cumsum<Type, 1>(a));
      const auto z = ep::convolution<ep::convolution_settings{}, Type>(ep::reshape<1, 6, 8>(a), c);
      return ep::sum(y * y) + ep::sum(means * means) + ep::sum(z * z);
    };
    const auto [value, gradients] = ep::value_and_grad<0, 1, 2>(loss)(x, w, v);
    const auto [gx, gw, gv] = gradients;
    static_assert(decltype(value)::type == Type && decltype(gx)::type == std::remove_cvref_t<decltype(x)>::type);
    return ep::results(value, gx, gw, gv);
  }
};
template <class On>
using bf16_to_f32 = ep::program<typename On::mesh, wide_products<On, ep::dtype::f32>, ep::bf16<6, 8>, ep::bf16<8, 5>,
                                ep::bf16<2, 8, 3>>;
template <class On>
using f16_to_f32 =
    ep::program<typename On::mesh, wide_products<On, ep::dtype::f32>, ep::f16<6, 8>, ep::f16<8, 5>, ep::f16<2, 8, 3>>;
template <class On>
using f32_to_f64 =
    ep::program<typename On::mesh, wide_products<On, ep::dtype::f64>, ep::f32<6, 8>, ep::f32<8, 5>, ep::f32<2, 8, 3>>;

real plain_wide(const plains& in) {
  const plain &a = in[0], &b = in[1], &c = in[2];
  real loss = 0;
  for (int i = 0; i < 6; ++i) {
    real row = 0;
    for (int k = 0; k < 8; ++k) row += a(i, k);
    const real m = row / 8 + 2 * row;
    loss += m * m;
    for (int j = 0; j < 5; ++j) {
      real y = 0;
      for (int k = 0; k < 8; ++k) y += a(i, k) * b(k, j);
      loss += y * y;
    }
  }
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 3; ++j) {
      real z = 0;
      for (int t = 0; t < 2; ++t) {
        for (int k = 0; k < 8; ++k) z += a(i + t, k) * c(t, k, j);
      }
      loss += z * z;
    }
  }
  return loss;
}

// --- sixteen bits: terms of devices are added up before they are rounded
// ----------------------------------------------

// Products whose terms on each of the devices would be rounded to other numbers: of 256 and seven times 1 bf16 has 256
// if they are added one by one, 262 if four devices round two of them each, and 264 if 263 is rounded once.
template <class On, ep::dtype... Type> struct rounds_once {
  constexpr auto operator()(auto x, auto w) const {
    x = ep::shard<typename On::data, ep::none>(x);
    const auto loss = [](auto weights, auto inputs) {
      const auto y = ep::matmul<Type...>(ep::convert<ep::dtype::bf16>(inputs), ep::convert<ep::dtype::bf16>(weights));
      return ep::sum(ep::convert<ep::dtype::f32>(y));
    };
    const auto direct = ep::convert<ep::dtype::bf16>(x);
    return ep::results(
        ep::grad(loss)(w, x), ep::sum<0>(direct), ep::sum<0>(direct * 2) / 2,
        ep::scan([](auto sum, auto) { return ep::results(sum + 1, sum); }, ep::sum<0>(direct), x).template get<0>());
  }
};
template <class On> using in_bf16 = ep::program<typename On::mesh, rounds_once<On>, ep::f32<8, 3>, ep::f32<3, 2>>;
template <class On>
using in_f32 = ep::program<typename On::mesh, rounds_once<On, ep::dtype::f32>, ep::f32<8, 3>, ep::f32<3, 2>>;

template <class On> struct halves {
  constexpr auto operator()(auto ones, auto two) const {
    const auto loss = [](auto a) { return ep::mean(a); };
    return ep::results(ep::mean(ones), ep::mean(two), ep::sum<ep::dtype::f32>(ones), ep::grad(loss)(two),
                       ep::mean<0>(two, ep::keep_dims));
  }
};
// The same with sums that travel in sixteen bits, in half the bytes: each device's term is rounded again.
template <class On> struct sent_narrow {
  constexpr auto operator()(auto x, auto w) const {
    ep::send_sums_as<ep::dtype::bf16>(x);
    const auto here = ep::shard<typename On::data, ep::none>(x);
    return ep::results(rounds_once<On>{}(x, w).template get<0>(), ep::sum<0>(here) * 2, ep::max<0>(here));
  }
};
template <class On> using narrow_sums = ep::program<typename On::mesh, sent_narrow<On>, ep::f32<8, 3>, ep::f32<3, 2>>;

template <class On, template <int...> class T>
using halves_of = ep::program<typename On::mesh, halves<On>, ep::sharded<T<70000>, typename On::data>, T<2>>;
template <class On> using halves_f16 = halves_of<On, ep::f16>;
template <class On> using halves_bf16 = halves_of<On, ep::bf16>;

template <class On, class Function>
using two_matrices = ep::program<typename On::mesh, Function, ep::f32<8, 3>, ep::f32<3, 2>>;
template <class On> struct gradient_alone {
  constexpr auto operator()(auto x, auto w) const { return rounds_once<On>{}(x, w).template get<0>(); }
};
template <class On> struct narrow_gradient {
  constexpr auto operator()(auto x, auto w) const { return sent_narrow<On>{}(x, w).template get<0>(); }
};
// Six elements of a gradient, to three others and from them: in f32, or in bf16 where that is chosen.
static_assert(two_matrices<on<4, 1>, gradient_alone<on<4, 1>>>::bytes<ep::all_reduce>() == 40);
static_assert(two_matrices<on<4, 1>, narrow_gradient<on<4, 1>>>::bytes<ep::all_reduce>() == 20);

// --- very long sums
// ---------------------------------------------------------------------------------------------------

template <class On> struct long_sums {
  constexpr auto operator()(auto x) const {
    x = ep::shard<typename On::data>(x);
    const auto sums = ep::cumsum<0>(x);
    return ep::results(ep::take<0, -1>(sums), ep::take<0, 0>(ep::cumsum<0>(x, ep::from_last)),
                       ep::take<0, 16777999>(sums));
  }
};
template <class On> using long_f32 = ep::program<typename On::mesh, long_sums<On>, ep::f32<16778217>>;

// Sums of doubles are added pairwise: of n tenths one by one the error would grow with n.
template <class On> struct double_sums {
  constexpr auto operator()(auto x) const {
    return ep::results(ep::take<0, -1>(ep::cumsum<0>(ep::shard<typename On::data>(x))),
                       ep::take<0, 0>(ep::cumsum<0>(x, ep::from_last)));
  }
};
template <class On> using long_f64 = ep::program<typename On::mesh, double_sums<On>, ep::f64<1000003>>;

}  // namespace

TEST_CASE("kinds: products and sums of integers in a wider type", "[kinds]") {
  const plains in{whole_numbers(1, {7, 9}, -128, 256), whole_numbers(2, {9, 5}, -128, 256),
                  whole_numbers(3, {7, 9}, 0, 256)};
  plain product({7, 5}), rows({7}), sums({7}), all({1, 1}), so_far({7, 9}), large = plain::number(0), z({1, 7, 5});
  for (int i = 0; i < 7; ++i) {
    for (int k = 0; k < 9; ++k) {
      rows(i) += in[0](i, k) * in[2](i, k);
      sums(i) += in[0](i, k);
      so_far(i, k) = sums(i);
      all.data[0] += in[2](i, k);
      large.data[0] += in[0](i, k) > 50 ? 1 : 0;
      for (int j = 0; j < 5; ++j) product(i, j) += in[0](i, k) * in[1](k, j);
    }
  }
  z.data = product.data;
  everywhere<narrow_program>(both_ways{}, in, {product, rows, sums, all, so_far, large, z}, 0);
  plain x({4, 64}), w({64, 256}), y({4, 256});
  for (std::size_t i = 0; i < x.data.size(); ++i) x.data[i] = static_cast<real>(i % 100);
  for (std::size_t i = 0; i < w.data.size(); ++i) w.data[i] = static_cast<real>(i % 7);
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 64; ++k) {
      for (int j = 0; j < 256; ++j) y(i, j) += x(i, k) * w(k, j);
    }
  }
  CHECK(y(0, 1) == 5922);
  everywhere<quantised_program>(meshes<on<1, 1>, on<1, 4>>{}, {x, w}, {y}, 0);
}

TEST_CASE("kinds: products and sums of floats in a wider type, and their gradients", "[kinds]") {
  plains in{wave(1, {6, 8}), wave(2, {8, 5}), wave(3, {2, 8, 3})};
  for (plain& one : in) {
    for (real& number : one.data) number = std::round(number * 64) / 64;  // what bf16 holds exactly
  }
  const plains expected = value_and_slopes(plain_wide, in, 3);
  // The value is not rounded to sixteen bits; each term that flows back to an operand is, once.
  const auto near = [&]<class... On>(meshes<On...>, auto program, double value, double gradient) {
    const auto one = [&]<class Here>(Here) {
      const plains got = program.template operator()<Here>();
      INFO("on a mesh of " << mesh_text(Here::mesh::value));
      CHECK(difference(got[0], expected[0], value) == "");
      for (std::size_t r = 1; r < 4; ++r) CHECK(difference(got[r], expected[r], gradient) == "");
    };
    (one(On{}), ...);
  };
  near(
      few_or_all<meshes<on<1, 1>, on<2, 2>>, meshes<on<1, 1>, on<2, 1>, on<2, 2>>>{},
      [&]<class On> { return run<bf16_to_f32<On>>(in); }, 1e-6, 0.03);
  near(
      few_or_all<meshes<on<1, 4>>, meshes<on<1, 1>, on<1, 4>>>{}, [&]<class On> { return run<f16_to_f32<On>>(in); },
      1e-6, 0.004);
  near(
      few_or_all<meshes<on<2, 2>>, meshes<on<1, 1>, on<2, 2>>>{}, [&]<class On> { return run<f32_to_f64<On>>(in); },
      1e-12, 2e-7);
}

TEST_CASE("kinds: sums of sixteen bits are rounded once, on every mesh", "[kinds]") {
  plain x({8, 3}, 1);
  for (int j = 0; j < 3; ++j) x(0, j) = 256;
  const plain w = wave(1, {3, 2});
  // A carry of bf16 that 1 is added to eight times: 264 + 2k is held exactly, 265 is not.
  everywhere<in_bf16>(data_axis{}, {x, w}, {plain({3, 2}, 264), plain({3}, 264), plain({3}, 264), plain({3}, 264)}, 0);
  // The sums are of two rows each: 256 + 1, which is 256 in bf16, and 2 three times; then 262 once, which it holds.
  const plains halved{plain({3, 2}, 262), plain({3}, 524), plain({3}, 256)};
  everywhere<narrow_sums>(meshes<on<4, 1>>{}, {x, w}, halved, 0);
  everywhere<in_f32>(data_axis{}, {x, w}, {plain({3, 2}, 263), plain({3}, 264), plain({3}, 264), plain({3}, 264)}, 0);
}

TEST_CASE("kinds: means of sixteen bits are divided before they are rounded", "[kinds]") {
  const plains in{plain({70000}, 1), plain({2}, 40000)};
  const plain half({2}, 0.5);
  everywhere<halves_f16>(data_axis{}, in,
                         {plain::number(1), plain::number(40000), plain::number(70000), half, plain({1}, 40000)}, 0);
  const plains brain{plain({70000}, 1), plain({2}, 39936)};
  everywhere<halves_bf16>(data_axis{}, brain,
                          {plain::number(1), plain::number(39936), plain::number(70000), half, plain({1}, 39936)}, 0);
}

TEST_CASE("kinds: cumulated sums do not lose small terms of many", "[kinds]") {
  const plain ones({16778217}, 1);
  const plains sums{plain::number(16778217), plain::number(16778217), plain::number(16778000)};
  everywhere<long_f32>(meshes<on<1, 1>, on<4, 1>>{}, {ones}, sums, 1e-7);
  const plain tenths({1000003}, static_cast<real>(0.1));
  const plain sum = plain::number(static_cast<real>(0.1) * 1000003);
  everywhere<long_f64>(meshes<on<1, 1>, on<4, 1>>{}, {tenths}, {sum, sum}, 4e-15);
}
