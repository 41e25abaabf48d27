// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/tensor/run/io/checkpoint.hpp>
#include <espalier/tensor/run/io/xtensor.hpp>
#include <support/kinds.hpp>

#include <boost/hana/define_struct.hpp>

#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <unistd.h>

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- reductions with ties, and their gradients ----------------------------------------------------------------------

template <class On> struct ties {
  constexpr auto operator()(auto x, auto y) const {
    const auto loss = [&](const auto& p) {
      const auto a = ep::shard<typename On::data, typename On::model>(p.template get<0>());
      const auto& b = p.template get<1>();
      const auto extremes = 2.0 * ep::max<0>(a) - 3.0 * ep::min<0>(a);                   // over a split dimension
      const auto products = ep::prod<1>(a);                                              // with zeros among them
      const auto larger = ep::mean(ep::maximum(a, b) * 5.0 + ep::minimum(b, a) * 0.25);  // equal here and there
      return ep::mean(extremes) + ep::mean(products) + larger + ep::max(a) + ep::mean(ep::relu(b));
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(x, y));
    // The first place where the largest of a row is.
    const auto top = x >= ep::max<1>(x, ep::keep_dims);
    const auto first = ep::min<1>(ep::select(top, ep::iota<ep::i32<8, 6>, 1>(x), 6));
    return ep::results(value, gradient, first, ep::sum<0>(ep::convert<ep::dtype::i32>(top)), (x == y) | !top);
  }
};
template <class On> using ties_program = ep::program<typename On::mesh, ties<On>, ep::f64<8, 6>, ep::f64<8, 6>>;

plains plain_ties(const plains& in) {
  const plain &x = in[0], &y = in[1];
  real value = 0;
  plain by_x({8, 6}), by_y({8, 6}), first({8}), count({6}), flags({8, 6});
  real top = -9;
  for (const real one : x.data) top = std::max(top, one);
  const auto all = static_cast<real>(std::count(x.data.begin(), x.data.end(), top));
  value += top;
  for (int j = 0; j < 6; ++j) {
    real most = x(0, j), least = x(0, j), at_most = 0, at_least = 0;
    for (int i = 0; i < 8; ++i) {
      most = std::max(most, x(i, j));
      least = std::min(least, x(i, j));
    }
    for (int i = 0; i < 8; ++i) {
      at_most += x(i, j) == most ? 1 : 0;
      at_least += x(i, j) == least ? 1 : 0;
    }
    value += (2 * most - 3 * least) / 6;
    for (int i = 0; i < 8; ++i) {  // those that are equal share
      if (x(i, j) == most) by_x(i, j) += 2 / at_most / 6;
      if (x(i, j) == least) by_x(i, j) -= 3 / at_least / 6;
      if (x(i, j) == top) by_x(i, j) += 1 / all;
    }
  }
  for (int i = 0; i < 8; ++i) {
    real product = 1, most = -9;
    for (int j = 0; j < 6; ++j) {
      product *= x(i, j);
      most = std::max(most, x(i, j));
    }
    value += product / 8;
    first(i) = 6;
    for (int j = 5; j >= 0; --j) {
      if (x(i, j) == most) first(i) = j;
      count(j) += x(i, j) == most ? 1 : 0;
      flags(i, j) = x(i, j) == y(i, j) || x(i, j) != most ? 1 : 0;
      real others = 1;
      for (int k = 0; k < 6; ++k) others *= k == j ? 1 : x(i, k);
      by_x(i, j) += others / 8;
      // Where both are equal the first operand takes all: x of the maximum, y of the minimum.
      value += (5 * std::max(x(i, j), y(i, j)) + 0.25L * std::min(x(i, j), y(i, j)) + std::max(y(i, j), 0.0L)) / 48;
      (x(i, j) >= y(i, j) ? by_x : by_y)(i, j) += 5.0L / 48;
      (y(i, j) <= x(i, j) ? by_y : by_x)(i, j) += 0.25L / 48;
      if (y(i, j) > 0) by_y(i, j) += 1.0L / 48;
    }
  }
  return {plain::number(value), by_x, by_y, first, count, flags};
}

// --- functions of elements, and their gradients ----------------------------------------------------------------------

template <class On> struct functions {
  static constexpr auto angles(const auto& x, const auto& y) {
    return ep::sin(x) * ep::cos(3.0 * y) + ep::tan(0.3 * x) + ep::atan2(y, x - 4.0);
  }
  static constexpr auto growth(const auto& x, const auto& y) {
    return ep::erf(x) - ep::erfc(y) * ep::expm1(0.5 * x) + ep::log1p(ep::abs(y)) + ep::pow(ep::abs(x) + 0.5, y);
  }
  static constexpr auto steps(const auto& x, const auto& y) {
    return ep::remainder(10.0 * x, ep::abs(y) + 0.7) + ep::floor(3.0 * x) * ep::ceil(y) - ep::round(4.0 * y) * x +
           ep::trunc(5.0 * x) * y + ep::clamp(-0.4, x + y, ep::abs(y));
  }
  constexpr auto operator()(auto x, auto y, auto n, auto m) const {
    x = ep::shard<typename On::data, typename On::model>(x);
    const auto loss = [](const auto& p) {
      const auto& a = p.template get<0>();
      const auto& b = p.template get<1>();
      return ep::sum(angles(a, b)) + ep::sum(growth(a, b)) + ep::sum(steps(a, b));
    };
    const auto words = ep::bitwise_xor(ep::bitwise_and(n, m), ep::bitwise_or(ep::bitwise_not(n), ep::shift_left(m, 3)));
    const auto fields = ep::shift_right_arithmetic(n, ep::bitwise_and(m, 7)) + ep::shift_right_logical(m, 5);
    const auto exponents = ep::shift_right_logical(ep::bit_cast<ep::dtype::i32>(ep::convert<ep::dtype::f32>(x)), 23);
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(x, y));
    return ep::results(value, gradient, words, fields + ep::remainder(n, m),
                       ep::clamp(-3, ep::sign(n) * ep::abs(m), 20), exponents,
                       ep::total_less(x, y) & ep::is_finite(x / y));
  }
};
template <class On>
using functions_program =
    ep::program<typename On::mesh, functions<On>, ep::f64<7, 5>, ep::f64<7, 5>, ep::i32<7, 5>, ep::i32<7, 5>>;

real plain_function(real x, real y) {
  const real least = std::min(std::max(x + y, -0.4L), std::abs(y));
  return std::sin(x) * std::cos(3 * y) + std::tan(0.3L * x) + std::atan2(y, x - 4) + std::erf(x) -
         std::erfc(y) * std::expm1(0.5L * x) + std::log1p(std::abs(y)) + std::pow(std::abs(x) + 0.5L, y) +
         std::fmod(10 * x, std::abs(y) + 0.7L) + std::floor(3 * x) * std::ceil(y) - std::round(4 * y) * x +
         std::trunc(5 * x) * y + least;
}

// --- constants, indices, arguments as results -----------------------------------------------------------------------

template <class On> struct constants {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto x, auto scale) const {
    const auto sevens = ep::constant<ep::f64<5, 4>>(x, 7.0);
    const auto rows = ep::shard<data, model>(ep::iota<ep::f64<5, 4>, 0>(x));
    const auto columns = ep::convert<ep::dtype::f64>(ep::iota<ep::i32<4>, 0>(x));
    const auto table = rows * 10.0 + columns;
    const auto loss = [&](auto s) { return ep::mean(s * table + sevens) + ep::mean(ep::constant<ep::f64<3>>(s, 2.0)); };
    const auto [value, slope_by_scale] = ep::value_and_grad(loss)(scale);
    const auto nothing = [&](auto s) { return ep::mean(ep::constant<ep::f64<3>>(s, 2.0)); };
    return ep::results(sevens, ep::sum<0>(table), x, x, value, slope_by_scale,
                       ep::value_and_grad(nothing)(scale).gradient, ep::sum(ep::one_hot<9>(ep::iota<ep::i32<6>, 0>(x))),
                       1.0 - sevens * 0.5, ep::concat<0>(columns, columns, columns, columns, columns),
                       ep::stop_gradient(scale) * ep::max<0>(sevens));
  }
};
template <class On> using constants_program = ep::program<typename On::mesh, constants<On>, ep::i32<5, 4>, ep::f64<>>;

// --- Game of Life on a torus ----------------------------------------------------------------------------------------

template <class On> struct life {
  static constexpr auto up(const auto& x) { return ep::concat<0>(ep::slice<0, 1, 9>(x), ep::slice<0, 0, 1>(x)); }
  static constexpr auto down(const auto& x) { return ep::concat<0>(ep::slice<0, 8, 9>(x), ep::slice<0, 0, 8>(x)); }
  static constexpr auto left(const auto& x) { return ep::concat<1>(ep::slice<1, 1, 7>(x), ep::slice<1, 0, 1>(x)); }
  static constexpr auto right(const auto& x) { return ep::concat<1>(ep::slice<1, 6, 7>(x), ep::slice<1, 0, 6>(x)); }
  constexpr auto operator()(auto board) const {
    for (int generation = 0; generation < 2; ++generation) {
      board = ep::shard<typename On::data, typename On::model>(board);
      const auto alive = ep::convert<ep::dtype::i32>(board);
      const auto three = up(alive) + alive + down(alive);
      const auto neighbours = left(three) + three + right(three) - alive;
      board = (neighbours == 3) | (board & (2 == neighbours));
    }
    return ep::results(board, ep::sum(ep::convert<ep::dtype::i32>(board)));
  }
};
template <class On> using life_program = ep::program<typename On::mesh, life<On>, ep::donated<ep::boolean<9, 7>>>;

plain plain_life(const plain& board) {
  plain next({9, 7});
  for (int i = 0; i < 9; ++i) {
    for (int j = 0; j < 7; ++j) {
      real neighbours = -board(i, j);
      for (int a = 8; a <= 10; ++a) {
        for (int b = 6; b <= 8; ++b) neighbours += board((i + a) % 9, (j + b) % 7);
      }
      next(i, j) = neighbours == 3 || (neighbours == 2 && board(i, j) != 0) ? 1 : 0;
    }
  }
  return next;
}

// --- bf16 and f32 mixed: rounded where the program says, summed in f32 ----------------------------------------------

template <class On> struct mixed_precision {
  constexpr auto operator()(auto w, auto v, auto x) const {
    auto h = ep::matmul(ep::shard<typename On::data, ep::none>(x), w);
    h = ep::relu(ep::shard<typename On::data, typename On::model>(h));
    const auto y = ep::convert<ep::dtype::f32>(ep::matmul(h, v));
    return ep::results(y, ep::softmax<-1>(h), ep::max<0>(h), ep::convert<ep::dtype::bf16>(ep::mean<1>(y)));
  }
};
template <class On>
using mixed_program =
    ep::program<typename On::mesh, mixed_precision<On>, ep::bf16<4, 8>, ep::bf16<8, 4>, ep::bf16<8, 4>>;

// --- arrays in and out: xtensor, safetensors ------------------------------------------------------------------------

template <class Leaf> struct little_model {
  BOOST_HANA_DEFINE_STRUCT(little_model, (ep::leaf<Leaf, ep::f32<6, 5>>, weight), (ep::leaf<Leaf, ep::bf16<5>>, bias),
                           (ep::leaf<Leaf, ep::i32<>>, step), (ep::leaf<Leaf, ep::boolean<3>>, used));
};
template <class On> struct little {
  constexpr auto operator()(auto model) const {
    model.weight = ep::shard<typename On::data, typename On::model>(model.weight) * 2.0;
    model.bias = model.bias + 1.0;
    model.step = model.step + 1;
    model.used = !model.used;
    return model;
  }
};
template <class On>
using little_program = ep::program<typename On::mesh, little<On>, ep::donated<little_model<ep::spec>>>;

/// Runs the program on what `from` holds, or on numbers from plain memory, and saves it to `to`.
template <class Program> void step_and_save(const std::filesystem::path& from, const std::filesystem::path& to) {
  ep::world world(Program::mesh::value);
  ep::runner<Program> run(world);
  auto model = run.template argument<0>();
  if (from.empty()) {
    model.weight.for_each([](float& one, std::int64_t i) { one = static_cast<float>(i) * 0.5F; });
    model.bias.for_each([](ep::bfloat16& one, std::int64_t i) { one = ep::bfloat16(static_cast<float>(i)); });
    model.used.for_each([](bool& one, std::int64_t i) { one = i == 1; });
  } else {
    CHECK(ep::load_checkpoint(world, model, from).at("by") == "kinds");
  }
  ep::save_checkpoint(world, run(model), to, {{"by", "kinds"}});
}

/// Bytes of a tensor in a safetensors file, found by hand: eight bytes of length, JSON, data.
std::string bytes_in_file(const std::filesystem::path& path, const std::string& name) {
  std::ifstream in(path, std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8U | static_cast<unsigned char>(all.at(i));
  const std::string header = all.substr(8, length);
  const std::size_t at = header.find("data_offsets", header.find('"' + name + '"'));
  REQUIRE(at != std::string::npos);
  const std::size_t open = header.find('[', at) + 1;
  const std::uint64_t from = std::stoull(header.substr(open));
  const std::uint64_t to = std::stoull(header.substr(header.find(',', open) + 1));
  return all.substr(8 + length + from, to - from);
}

template <class On> struct turn {
  constexpr auto operator()(auto x) const {
    return ep::transpose<1, 0>(ep::shard<typename On::data, typename On::model>(x)) + 1.0;
  }
};
template <class On> using turn_program = ep::program<typename On::mesh, turn<On>, ep::f32<6, 5>>;

template <class Program> void turns_xtensor() {
  ep::world world(Program::mesh::value);
  ep::runner<Program> run(world);
  auto x = run.template argument<0>();
  // Column by column in memory: what is copied is the tensor, not its memory.
  xt::xtensor<double, 2, xt::layout_type::column_major> values(std::array<std::size_t, 2>{6, 5});
  for (std::size_t i = 0; i < 6; ++i) {
    for (std::size_t j = 0; j < 5; ++j) values(i, j) = static_cast<double>(10 * i + j);
  }
  ep::scatter(values, x);
  if (x.held(0, 0).size > 0 && x.held(0, 1).size > 0) ep::shard_view(x, 0)(0, 0) = 100;
  for (int k = 1; k < x.local_count(); ++k) {  // copies of the first element
    if (x.held(k, 0).start == 0 && x.held(k, 1).start == 0) ep::shard_view(x, k)(0, 0) = 100;
  }
  const auto y = ep::gather_xtensor(world, run(x));
  REQUIRE(y.shape()[0] == 5);
  REQUIRE(y.shape()[1] == 6);
  for (std::size_t i = 0; i < 6; ++i) {
    for (std::size_t j = 0; j < 5; ++j) {
      CHECK(y(j, i) == (i + j == 0 ? 101.0F : static_cast<float>(10 * i + j + 1)));
    }
  }
}

}  // namespace

TEST_CASE("kinds: reductions and comparisons with ties", "[kinds]") {
  plains in{indices(1, {8, 6}, 4), indices(2, {8, 6}, 4)};
  for (std::size_t leaf = 0; leaf < 2; ++leaf) {
    for (real& one : in[leaf].data) one -= 1;  // -1, 0, 1, 2
  }
  everywhere<ties_program>(both_ways{}, in, plain_ties(in));
}

TEST_CASE("kinds: functions of elements and their gradients", "[kinds]") {
  const plains in{wave(3, {7, 5}, 2), wave(4, {7, 5}, 1.5), wave(5, {7, 5}, 4e8), wave(6, {7, 5}, 1000)};
  plains arguments = in;
  for (std::size_t leaf : {2U, 3U}) {
    for (real& one : arguments[leaf].data) one = std::trunc(one);
  }
  const auto loss = [](const plains& x) {
    real sum = 0;
    for (std::size_t i = 0; i < x[0].data.size(); ++i) sum += plain_function(x[0].data[i], x[1].data[i]);
    return sum;
  };
  plains expected = value_and_slopes(loss, arguments, 2);
  for (int k = 0; k < 5; ++k) expected.emplace_back(std::vector<std::int64_t>{7, 5});
  for (std::size_t i = 0; i < 35; ++i) {
    const auto n = static_cast<std::int32_t>(arguments[2].data[i]);
    const auto m = static_cast<std::int32_t>(arguments[3].data[i]);
    const auto unsigned_m = static_cast<std::uint32_t>(m);
    const auto x = static_cast<double>(arguments[0].data[i]);
    expected[3].data[i] = (n & m) ^ (~n | static_cast<std::int32_t>(unsigned_m << 3U));
    expected[4].data[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(n >> (m & 7)) + (unsigned_m >> 5U) +
                                                    static_cast<std::uint32_t>(n % m));
    expected[5].data[i] = std::min(std::max((n > 0 ? 1 : n < 0 ? -1 : 0) * std::abs(m), -3), 20);
    expected[6].data[i] = std::bit_cast<std::uint32_t>(static_cast<float>(x)) >> 23U;
    expected[7].data[i] = arguments[0].data[i] < arguments[1].data[i] ? 1 : 0;
  }
  everywhere<functions_program>(both_ways{}, arguments, expected);
}

TEST_CASE("kinds: constants, indices, and arguments as results", "[kinds]") {
  const plain x = indices(1, {5, 4}, 100);
  plain sums({4}), five({20});
  for (int j = 0; j < 4; ++j) sums(j) = 100 + 5 * j;
  for (int i = 0; i < 20; ++i) five(i) = i % 4;
  everywhere<constants_program>(both_ways{}, {x, plain::number(3)},
                                {plain({5, 4}, 7), sums, x, x, plain::number(3 * 21.5L + 9), plain::number(21.5L),
                                 plain::number(0), plain::number(6), plain({5, 4}, -2.5L), five, plain({4}, 21)});
}

TEST_CASE("kinds: Game of Life, four generations in place", "[kinds]") {
  const plain board = indices(1, {9, 7}, 2);
  const plain end = plain_life(plain_life(plain_life(plain_life(board))));
  real alive = 0;
  for (const real one : end.data) alive += one;
  REQUIRE(alive > 5);
  everywhere<life_program>(both_ways{}, {board}, {end, plain::number(alive)}, 0, 2);
}

TEST_CASE("kinds: bf16 between f32", "[kinds]") {
  plains in{wave(1, {4, 8}), wave(2, {8, 4}), wave(3, {8, 4})};
  for (plain& one : in) {
    for (real& number : one.data) number = std::round(number * 64) / 64;  // what bf16 holds exactly
  }
  plain h({8, 8}), y({8, 4}), odds({8, 8}), most({8}), means({8});
  for (int b = 0; b < 8; ++b) {
    real sum = 0;
    for (int j = 0; j < 8; ++j) {
      for (int i = 0; i < 4; ++i) h(b, j) += in[2](b, i) * in[0](i, j);
      h(b, j) = std::max(h(b, j), 0.0L);
      sum += std::exp(h(b, j));
      most(j) = std::max(most(j), h(b, j));
      for (int o = 0; o < 4; ++o) y(b, o) += h(b, j) * in[1](j, o);
    }
    for (int j = 0; j < 8; ++j) odds(b, j) = std::exp(h(b, j)) / sum;
    for (int o = 0; o < 4; ++o) means(b) += y(b, o) / 4;
  }
  everywhere<mixed_program>(both_axes{}, in, {y, odds, most, means}, 0.02);
}

TEST_CASE("kinds: xtensor in and out", "[kinds]") {
  turns_xtensor<turn_program<on<1, 1>>>();
  turns_xtensor<turn_program<on<2, 1>>>();
  turns_xtensor<turn_program<on<2, 2>>>();
  turns_xtensor<turn_program<on<2, 4>>>();
}

TEST_CASE("kinds: safetensors from mesh to mesh", "[kinds]") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("espalier_kinds_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::filesystem::path a = folder / "a.safetensors";
  const std::filesystem::path b = folder / "b.safetensors";
  step_and_save<little_program<on<2, 2>>>("", a);
  step_and_save<little_program<on<2, 4>>>(a, b);
  step_and_save<little_program<on<1, 1>>>(b, a);
  step_and_save<little_program<on<1, 2>>>(a, b);
  std::string weight, bias;
  for (int i = 0; i < 30; ++i) {
    const float value = static_cast<float>(i) * 8;
    weight.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  for (int i = 0; i < 5; ++i) {
    const auto value = static_cast<float>(i + 4);
    bias.append(reinterpret_cast<const char*>(&value) + 2, 2);
  }
  CHECK(bytes_in_file(b, "weight") == weight);
  CHECK(bytes_in_file(b, "bias") == bias);
  CHECK(bytes_in_file(b, "step") == std::string("\4\0\0\0", 4));
  CHECK(bytes_in_file(b, "used") == std::string("\0\1\0", 3));
  std::filesystem::remove_all(folder);
}
