// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include <espalier/tensor/run/io/xtensor.hpp>
#include <support/kinds.hpp>
#include <xtensor/xview.hpp>

#include <boost/hana/define_struct.hpp>

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- a layer whose parameters are a tree, fed with whole arrays, views and expressions ------------------------------

template <class Leaf> struct dense {
  BOOST_HANA_DEFINE_STRUCT(dense, (ep::leaf<Leaf, ep::f64<4, 3>>, weight), (ep::leaf<Leaf, ep::f64<3>>, bias));
};
template <class On> struct layer {
  constexpr auto operator()(const auto& p, auto x, auto rate, auto n) const {
    const auto y = ep::matmul(ep::shard<typename On::data, ep::none>(x), p.weight) + p.bias * rate;
    return ep::results(y, p, n + 1);
  }
};
template <class On>
using layer_program = ep::program<typename On::mesh, layer<On>, dense<ep::spec>, ep::f64<5, 4>, ep::f64<>, ep::i32<3>>;

template <class Arrays> void check_layer(const Arrays& got, const xt::xarray<double>& x, double rate) {
  const auto& [y, p, n] = got;
  REQUIRE(y.shape()[0] == 5);
  REQUIRE(y.shape()[1] == 3);
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      double sum = p.bias(j) * rate;
      for (std::size_t k = 0; k < 4; ++k) sum += x(i, k) * p.weight(k, j);
      CHECK(std::abs(y(i, j) - sum) < 1e-12);
    }
  }
  for (std::size_t j = 0; j < 3; ++j) CHECK(n(j) == static_cast<std::int32_t>(j) + 2);
}

template <class Program> void takes_and_gives_whole_tensors() {
  ep::world world(Program::mesh::value);
  ep::runner<Program> run(world);
  const auto p = run.template argument<0>();
  const xt::xarray<int> counted = xt::arange<int>(12).reshape({4, 3});
  ep::scatter(counted, p.weight);  // integers become numbers
  ep::scatter(xt::xtensor<float, 1>{0.5F, -1, 2}, p.bias);
  const xt::xarray<double> x = xt::arange<double>(20.).reshape({5, 4});
  const xt::xtensor<std::int64_t, 1> n{1, 2, 3};
  check_layer(ep::gather_xtensor(world, run(p, x, 0.25, n)), x, 0.25);
  // The tree of parameters whole as well, more than once, and changed between.
  dense<ep::whole_tensors> whole = ep::gather_xtensor(world, p);
  check_layer(ep::gather_xtensor(world, run(whole, x, 0.25, n)), x, 0.25);
  whole.weight *= -3;
  whole.bias(1) = 7;
  const auto got = ep::gather_xtensor(world, run(whole, x, 0.5, n));
  check_layer(got, x, 0.5);
  CHECK(got.template get<1>().weight == whole.weight);
  CHECK(got.template get<1>().bias == whole.bias);
  // An expression, and a number of another type.
  check_layer(ep::gather_xtensor(world, run(p, 2. * x - 1., 3, n)), 2. * x - 1., 3);
  // A view into a larger array, and what is stored column by column.
  const xt::xarray<double> large = xt::arange<double>(60.).reshape({6, 10});
  const auto part = xt::view(large, xt::range(1, 6), xt::range(3, 7));
  check_layer(ep::gather_xtensor(world, run(p, part, 1.0F, n)), part, 1);
  xt::xtensor<float, 2, xt::layout_type::column_major> columns(std::array<std::size_t, 2>{5, 4});
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t k = 0; k < 4; ++k) columns(i, k) = static_cast<float>(i) - 2 * static_cast<float>(k);
  }
  check_layer(ep::gather_xtensor(world, run(p, columns, 1, n)), columns, 1);
  // Arrays and whole tensors in one call; the arrays made for whole tensors are no others' business.
  auto own = run.template argument<1>();
  ep::scatter(x, own);
  check_layer(ep::gather_xtensor(world, run(p, own, -1, n)), x, -1);

  // Arguments that do not fit are refused before anything runs.
  const auto& last = run(p, own, -1, n);
  const auto before = ep::gather_xtensor(world, last.template get<0>());
  CHECK_THROWS_WITH(run(p, xt::transpose(x), 1, n), Catch::Contains("shape (4, 5) were given for a tensor f64[5, 4]"));
  CHECK_THROWS_AS(run(p, x, 1, xt::xtensor<std::int64_t, 1>{1, 5'000'000'000, 3}), ep::argument_error);
  CHECK_THROWS_WITH(run(p, x, 1, xt::xtensor<std::uint32_t, 1>{1, 2, 0x80000000U}),
                    Catch::Contains("2147483648, which i32 cannot hold"));
  CHECK((ep::gather_xtensor(world, last.template get<0>()) == before));
  check_layer(ep::gather_xtensor(world, run(p, x, 1, n)), x, 1);
}

// --- a donated argument: a whole tensor is copied, and stays what it is ----------------------------------------------

template <class On> struct decay {
  constexpr auto operator()(auto x) const { return ep::shard<ep::none, typename On::model>(x) * 0.5 + 1; }
};
template <class On> using decay_program = ep::program<typename On::mesh, decay<On>, ep::donated<ep::f32<3, 7>>>;

template <class Program> void copies_what_is_donated() {
  ep::world world(Program::mesh::value);
  ep::runner<Program> run(world);
  const xt::xtensor<float, 2> x = xt::ones<float>({3, 7}) * 8.F;
  for (int n = 0; n < 3; ++n) {
    const auto& y = run(x);
    CHECK((ep::gather_xtensor(world, y) == xt::ones<float>({3, 7}) * 5.F));
    const auto& z = run(y);  // of its own result
    CHECK((ep::gather_xtensor(world, z) == xt::ones<float>({3, 7}) * 3.5F));
  }
  CHECK((x == xt::ones<float>({3, 7}) * 8.F));
}

/// A result in the memory of its donated argument is an argument itself, while the first is given whole again.
template <class On> struct summed {
  constexpr auto operator()(auto x, auto y) const { return ep::shard<ep::none, typename On::model>(x) * 0.5 + y; }
};
template <class On>
using summed_program = ep::program<typename On::mesh, summed<On>, ep::donated<ep::f32<3, 7>>, ep::f32<3, 7>>;

template <class Program> void reads_results_as_they_were() {
  ep::world world(Program::mesh::value);
  ep::runner<Program> run(world);
  const auto all = [](float value) { return xt::xtensor<float, 2>(xt::ones<float>({3, 7}) * value); };
  const auto* y = &run(all(4), all(1));  // 3
  CHECK((ep::gather_xtensor(world, *y) == all(3)));
  for (const float expected : {5.F, 7.F, 9.F}) {
    y = &run(all(4), *y);  // 2 more
    CHECK((ep::gather_xtensor(world, *y) == all(expected)));
  }
  const auto kept = *y;  // a copy shares the memory, which must not be written now
  CHECK((ep::gather_xtensor(world, run(all(4), kept)) == all(11)));
  CHECK((ep::gather_xtensor(world, run(all(4), kept)) == all(11)));
  CHECK((ep::gather_xtensor(world, kept) == all(9)));
}

// --- which elements are converted ------------------------------------------------------------------------------------

template <class From, class Tensor>
constexpr bool takes = ep::detail::is_whole_tensor<xt::xtensor<From, 2>, ep::sharded_array<Tensor>>;
static_assert(takes<float, ep::f32<2, 2>> && takes<double, ep::bf16<2, 2>> && takes<ep::float16, ep::f64<2, 2>>);
static_assert(takes<bool, ep::i8<2, 2>> && takes<std::uint32_t, ep::i32<2, 2>> && takes<std::int64_t, ep::i8<2, 2>>);
static_assert(takes<std::int32_t, ep::f16<2, 2>> && takes<bool, ep::boolean<2, 2>>);
static_assert(!takes<float, ep::i32<2, 2>> && !takes<std::int32_t, ep::u32<2, 2>> && !takes<int, ep::boolean<2, 2>>);
static_assert(!takes<float, ep::f32<2>> && !takes<float, ep::f32<2, 2, 2>>);
static_assert(ep::detail::is_whole_tensor<xt::xarray<float>, ep::sharded_array<ep::f32<2, 2>>>);
static_assert(ep::detail::is_whole_tensor<double, ep::sharded_array<ep::bf16<>>>);
static_assert(!ep::detail::is_whole_tensor<double, ep::sharded_array<ep::f32<1>>>);
static_assert(!ep::detail::is_whole_tensor<char, ep::sharded_array<ep::i32<>>>);
static_assert(ep::detail::is_whole_tensor<signed char, ep::sharded_array<ep::i32<>>>);

template <class On> struct widened {
  constexpr auto operator()(auto a, auto b, auto c, auto d) const { return ep::results(a, b, c, d); }
};
template <class On>
using widened_program =
    ep::program<typename On::mesh, widened<On>, ep::sharded<ep::bf16<2, 3>, ep::none, typename On::data>,
                ep::sharded<ep::i8<4>, typename On::data>, ep::boolean<3>, ep::f16<>>;

template <class Program> void converts() {
  ep::world world(Program::mesh::value);
  ep::runner<Program> run(world);
  const xt::xtensor<double, 2> numbers{{1.00390625, -2, 0.5}, {3e38, 1e-3, 7}};
  const auto [a, b, c, d] = ep::gather_xtensor(
      world, run(numbers, xt::xtensor<std::int64_t, 1>{-128, 127, 0, 5}, xt::xtensor<bool, 1>{true, false, true}, 0.1));
  for (std::size_t i = 0; i < 6; ++i) {
    const float expected = static_cast<float>(ep::bfloat16(static_cast<float>(numbers.storage()[i])));
    CHECK(static_cast<float>(a.storage()[i]) == expected);
  }
  CHECK((b == xt::xtensor<std::int8_t, 1>{-128, 127, 0, 5}));
  CHECK((c == xt::xtensor<bool, 1>{true, false, true}));
  CHECK(static_cast<float>(d()) == static_cast<float>(ep::float16(0.1F)));
  CHECK_THROWS_WITH(run(numbers, xt::xtensor<int, 1>{0, 0, -129, 0}, xt::xtensor<bool, 1>{true, false, true}, 0),
                    Catch::Contains("-129, which i8 cannot hold"));
}

}  // namespace

TEST_CASE("xtensor: a runner takes whole arrays, views and expressions, and numbers for scalars") {
  takes_and_gives_whole_tensors<layer_program<on<1, 1>>>();
  takes_and_gives_whole_tensors<layer_program<on<2, 1>>>();
  takes_and_gives_whole_tensors<layer_program<on<2, 2>>>();
}

TEST_CASE("xtensor: what is donated is a copy of the whole tensor") {
  copies_what_is_donated<decay_program<on<1, 1>>>();
  copies_what_is_donated<decay_program<on<1, 4>>>();
  reads_results_as_they_were<summed_program<on<1, 1>>>();
  reads_results_as_they_were<summed_program<on<1, 2>>>();
}

TEST_CASE("xtensor: elements are converted to a type of the same kind or a later one") {
  converts<widened_program<on<1, 1>>>();
  converts<widened_program<on<2, 1>>>();
}
