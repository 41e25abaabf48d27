// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/tensor/core/program/budget.hpp>
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/report/explain.hpp>
#include <support/kinds.hpp>

/// Dimensions that are split by parts of an axis: what is split further than its first factor comes apart, and together
/// again, without a move.
namespace ep = espalier;
using namespace testing::kinds;
using Catch::Contains;

namespace {

/// For programs that run on meshes of two axes as well.
using one_axis_too = few_or_all<meshes<on<1, 8>>, model_axis>;

template <class Program> constexpr bool is_cut = Program::parts.count > Program::mesh::rank;
template <class Program> constexpr bool is_silent = Program::collectives() == 0;

// --- 8@4 is (2, 4) and (4, 2) and (2, 2, 2), forward and back
// ------------------------------------------------------------

template <class On> struct apart {
  constexpr auto operator()(auto x) const { return ep::reshape<2, 4>(x); }
};
template <class On>
using apart_program = ep::program<typename On::mesh, apart<On>, ep::sharded<ep::f32<8>, typename On::model>>;
static_assert(!is_cut<apart_program<on<1, 2>>> && is_silent<apart_program<on<1, 2>>>);
static_assert(is_cut<apart_program<on<1, 4>>> && is_silent<apart_program<on<1, 4>>>);
static_assert(is_cut<apart_program<on<2, 4>>> && is_silent<apart_program<on<2, 4>>>);
static_assert(is_silent<apart_program<on<1, 8>>>);
// The result is left open: each device has the two elements it had, of 2 x 2 parts.
static_assert(ep::local_shape(apart_program<on<1, 4>>::device_mesh::value, ep::extents{2, {2, 4}},
                              apart_program<on<1, 4>>::result_layout(0).placement) == ep::extents{2, {1, 2}});

template <class On> struct round_trip {
  template <class X> constexpr auto operator()(const X& x) const {
    const auto two = ep::reshape<2, 8>(x);
    const auto four = ep::reshape<4, 4>(ep::tanh(two) * 2.0);
    const auto three = ep::reshape<2, 2, 4>(four + ep::sin(four));
    return ep::reshape<16>(three * three - three);
  }
};
template <class On>
using round_trip_program = ep::program<typename On::mesh, round_trip<On>, ep::sharded<ep::f64<16>, typename On::model>>;
static_assert(is_silent<round_trip_program<on<1, 2>>>);
static_assert(is_silent<round_trip_program<on<1, 4>>>);
static_assert(is_silent<round_trip_program<on<1, 8>>>);
static_assert(round_trip_program<on<1, 8>>::parts.count == 4);  // 1, and 2 x 2 x 2
static_assert(is_silent<round_trip_program<on<2, 4>>>);

real trip(real x) {
  const real a = 2 * std::tanh(x);
  const real b = a + std::sin(a);
  return b * b - b;
}

// Their gradients, with a weight for each element, so that an element in another's place shows.
template <class On> struct weighted {
  constexpr auto operator()(auto x, auto w, auto v) const {
    const auto loss = [](const auto& p) {
      const auto three = ep::reshape<2, 2, 4>(ep::reshape<2, 8>(p.template get<0>()) * p.template get<1>());
      return ep::sum(three * three * p.template get<2>());
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(x, w, v));
    return ep::results(value, gradient);
  }
};
template <class On>
using weighted_program = ep::program<typename On::mesh, weighted<On>, ep::sharded<ep::f64<16>, typename On::model>,
                                     ep::f64<2, 8>, ep::f64<2, 2, 4>>;
static_assert(is_cut<weighted_program<on<1, 8>>>);
static_assert(weighted_program<on<1, 4>>::collectives() == 1);  // the loss
static_assert(weighted_program<on<1, 4>>::bytes<ep::all_reduce>() == 24);
static_assert(weighted_program<on<1, 8>>::collectives() == 1);

real plain_weighted(const plains& in) {
  real sum = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    const real t = in[0].data[i] * in[1].data[i];
    sum += t * t * in[2].data[i];
  }
  return sum;
}

// --- together: rows and columns become a dimension that the user splits by the whole axis
// -------------------------------

template <class On> struct together {
  constexpr auto operator()(auto x) const {
    const auto all = ep::shard<ep::none, typename On::model>(ep::reshape<3, 8>(x));
    return ep::results(all * all, ep::sum<1>(all));
  }
};
template <class On> using together_program = ep::program<typename On::mesh, together<On>, ep::f64<3, 2, 4>>;
static_assert(is_cut<together_program<on<1, 4>>>);
static_assert(together_program<on<1, 4>>::collectives() == 1);  // the sums

// --- other element types, three dimensions, an axis of 6, and an axis before and after
// ---------------------------------

template <class On> struct thirds {
  constexpr auto operator()(auto x) const { return ep::reshape<4, 12>(ep::reshape<4, 3, 4>(x) + 1); }
};
template <class On> struct halves {
  constexpr auto operator()(auto y) const {
    const auto two = ep::reshape<2, 6, 4>(y);
    return ep::reshape<48>(two + two);
  }
};
/// An axis of 6 is 3 x 2 or 2 x 3, and not both in one program.
template <class On> struct sixths {
  constexpr auto operator()(auto x, auto y) const { return ep::results(thirds<On>{}(x), halves<On>{}(y)); }
};
struct six {
  struct data : ep::axis<"data", 2> {};
  struct model : ep::axis<"model", 6> {};
  struct last : ep::axis<"last", 2> {};
  using mesh = ep::mesh<data, model, last>;
};
using thirds_argument = ep::sharded<ep::i32<4, 12>, six::data, six::model>;
using halves_argument = ep::sharded<ep::bf16<48>, ep::axes<six::model, six::last>>;
using thirds_program = ep::program<six::mesh, thirds<six>, thirds_argument>;
using halves_program = ep::program<six::mesh, halves<six>, halves_argument>;
using sixths_program = ep::program<six::mesh, sixths<six>, thirds_argument, halves_argument>;
static_assert(is_silent<thirds_program> && is_silent<halves_program>);
static_assert(thirds_program::result_layout(0).placement.same_layout(thirds_program::argument_layout(0).placement));
static_assert(halves_program::result_layout(0).placement.same_layout(halves_program::argument_layout(0).placement));
static_assert(is_cut<sixths_program> && !is_silent<sixths_program>);

// --- uneven parts
// ------------------------------------------------------------------------------------------------------

/// y is an argument: parts of an axis would leave other elements of 6 than the axis does, and of 7 the same.
template <class On, int Rows> struct beside_uneven {
  constexpr auto operator()(auto x, auto y) const {
    const auto two = ep::reshape<2, 4>(x);
    return ep::results(ep::reshape<8>(two * two), y * 2.0, ep::einsum<"ab,c->bc">(two, y));
  }
};
template <class On, int Rows>
using beside_uneven_program =
    ep::program<typename On::mesh, beside_uneven<On, Rows>, ep::sharded<ep::f64<8>, typename On::model>,
                ep::sharded<ep::f64<Rows>, typename On::model>>;
template <class On> using beside_six = beside_uneven_program<On, 6>;
template <class On> using beside_seven = beside_uneven_program<On, 7>;
static_assert(!is_cut<beside_six<on<1, 4>>> && is_cut<beside_seven<on<1, 4>>>);

/// An uneven value in between does not matter.
template <class On> struct uneven_between {
  constexpr auto operator()(auto x) const {
    const auto two = ep::reshape<2, 4>(x);
    const auto middle = ep::shard<typename On::model, ep::none>(ep::pad<0, 1, 3>(two));  // 6 x 4
    return ep::results(ep::sum<0>(middle * middle), ep::reshape<8>(two));
  }
};
template <class On>
using uneven_between_program =
    ep::program<typename On::mesh, uneven_between<On>, ep::sharded<ep::f64<8>, typename On::model>>;
static_assert(is_cut<uneven_between_program<on<1, 4>>>);

/// Parts of 6 on 4 devices are no parts of (2, 3).
template <class On> struct uneven_apart {
  constexpr auto operator()(auto x) const {
    const auto two = ep::reshape<2, 3>(x);
    return ep::results(two * two, ep::reshape<6>(ep::transpose<1, 0>(two)));
  }
};
template <class On>
using uneven_apart_program =
    ep::program<typename On::mesh, uneven_apart<On>, ep::sharded<ep::f64<6>, typename On::model>>;
static_assert(!is_cut<uneven_apart_program<on<1, 4>>>);

// --- many sums of what comes apart: with whole axes it is gathered once, and each sum is there
// -------------------------------

template <class On, int Sums> struct sums_apart {
  constexpr auto operator()(auto x) const {
    const auto y = ep::reshape<2, 4>(x);
    if constexpr (Sums == 1) {
      return ep::sum<0>(y * y);
    } else {
      return ep::results(ep::sum<0>(y), ep::sum<0>(y * y), ep::sum<0>(ep::sin(y)), ep::sum<0>(ep::tanh(y)));
    }
  }
};
template <class On, int Sums>
using sums_apart_program =
    ep::program<typename On::mesh, sums_apart<On, Sums>, ep::sharded<ep::f64<8>, typename On::model>>;
template <class On> using one_sum_apart = sums_apart_program<On, 1>;
template <class On> using four_sums_apart = sums_apart_program<On, 4>;
static_assert(is_cut<one_sum_apart<on<1, 4>>> && one_sum_apart<on<1, 4>>::bytes<ep::all_reduce>() == 16);
// On parts it would be 4 x 16 B.
static_assert(!is_cut<four_sums_apart<on<1, 4>>> && four_sums_apart<on<1, 4>>::bytes<ep::all_gather>() == 48);
static_assert(four_sums_apart<on<1, 4>>::collectives() == 1);

// --- grouped-query attention with two heads of keys and values, on more devices than that
// -------------------------------

constexpr int rows = 2, length = 4, width = 6, heads = 8, kept_heads = 2, depth = 4;

template <class On> struct grouped_queries {
  constexpr auto operator()(auto wq, auto wk, auto wv, auto wo, auto x) const {
    constexpr int group = heads / kept_heads;
    const auto loss = [&](const auto& p) {
      const auto in = ep::shard<typename On::data, ep::none, ep::none>(x);
      const auto q =
          ep::reshape<rows, length, kept_heads, group, depth>(ep::einsum<"bsw,wh->bsh">(in, p.template get<0>()));
      const auto k = ep::reshape<rows, length, kept_heads, depth>(ep::einsum<"bsw,wh->bsh">(in, p.template get<1>()));
      const auto v = ep::reshape<rows, length, kept_heads, depth>(ep::einsum<"bsw,wh->bsh">(in, p.template get<2>()));
      const auto scores = ep::einsum<"bqgrd,bkgd->bgrqk">(q, k) * 0.5;
      const auto mixed = ep::einsum<"bgrqk,bkgd->bqgrd">(ep::softmax<-1>(ep::nn::hide_future(scores)), v);
      const auto y = ep::einsum<"bsh,hw->bsw">(ep::reshape<rows, length, heads * depth>(mixed), p.template get<3>());
      return ep::mean(y * y);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(wq, wk, wv, wo));
    return ep::results(value, gradient);
  }
};
template <class On>
using grouped_program =
    ep::program<typename On::mesh, grouped_queries<On>,
                ep::sharded<ep::f64<width, heads * depth>, ep::none, typename On::model>,
                ep::sharded<ep::f64<width, kept_heads * depth>, ep::none, typename On::model>,
                ep::sharded<ep::f64<width, kept_heads * depth>, ep::none, typename On::model>,
                ep::sharded<ep::f64<heads * depth, width>, typename On::model, ep::none>, ep::f64<rows, length, width>>;

// Keys and values, 2 KiB, come to the devices that have queries of their head, and sums of their gradients go back.
static_assert(grouped_program<on<1, 4>>::bytes<ep::all_gather>() == 2 * 128);
static_assert(grouped_program<on<1, 4>>::bytes<ep::reduce_scatter>() == 2 * 128);
static_assert(grouped_program<on<1, 4>>::collectives() == 3);  // and that of the output
static_assert(grouped_program<on<1, 8>>::bytes<ep::all_gather>() == 2 * 192);
static_assert(grouped_program<on<1, 8>>::bytes<ep::reduce_scatter>() == 2 * 192);
static_assert(grouped_program<on<1, 8>>::collectives() == 3);
// A budget of an axis counts what moves along a part of it.
static_assert(ep::budget<grouped_program<on<1, 4>>, ep::at_most<ep::all_gather, 1, on<1, 4>::model>,
                         ep::at_most<ep::all_gather, 0, on<1, 4>::data>>::holds);
static_assert(grouped_program<on<1, 4>>::collectives<ep::all_gather, on<1, 4>::model>() == 1);

real plain_grouped(const plains& in) {
  const plain &wq = in[0], &wk = in[1], &wv = in[2], &wo = in[3], &x = in[4];
  const auto project = [&](const plain& w, int b, int s, int h) {
    real sum = 0;
    for (int i = 0; i < width; ++i) sum += x(b, s, i) * w(i, h);
    return sum;
  };
  real total = 0;
  for (int b = 0; b < rows; ++b) {
    for (int s = 0; s < length; ++s) {
      plain y({width});
      for (int h = 0; h < heads; ++h) {
        const int kept = h / (heads / kept_heads);
        std::vector<real> weights;
        real sum = 0;
        for (int t = 0; t <= s; ++t) {
          real score = 0;
          for (int d = 0; d < depth; ++d)
            score += project(wq, b, s, h * depth + d) * project(wk, b, t, kept * depth + d);
          weights.push_back(std::exp(score / 2));
          sum += weights.back();
        }
        for (int t = 0; t <= s; ++t) {
          for (int d = 0; d < depth; ++d) {
            const real mixed = weights[static_cast<std::size_t>(t)] / sum * project(wv, b, t, kept * depth + d);
            for (int i = 0; i < width; ++i) y(i) += mixed * wo(h * depth + d, i);
          }
        }
      }
      for (int i = 0; i < width; ++i) total += y(i) * y(i) / (rows * length * width);
    }
  }
  return total;
}

}  // namespace

TEST_CASE("what an axis of 4 splits comes apart into 2 x 2", "[spmd]") {
  const plains in{wave(1, {8})};
  plain out({2, 4});
  out.data = in[0].data;
  everywhere<apart_program>(one_axis_too{}, in, {out}, 1e-6);
  everywhere<apart_program>(both_axes{}, in, {out}, 1e-6);
}

TEST_CASE("and together again, however often", "[spmd]") {
  const plains in{wave(2, {16})};
  plain out({16});
  for (std::size_t i = 0; i < 16; ++i) out.data[i] = trip(in[0].data[i]);
  everywhere<round_trip_program>(one_axis_too{}, in, {out});
  everywhere<round_trip_program>(both_axes{}, in, {out});
}

TEST_CASE("gradients of what is split by parts of an axis", "[spmd]") {
  const plains in{wave(3, {16}), wave(4, {2, 8}), wave(5, {2, 2, 4})};
  const plains out = value_and_slopes(plain_weighted, in, 3);
  everywhere<weighted_program>(one_axis_too{}, in, out, 1e-8);
  everywhere<weighted_program>(both_axes{}, in, out, 1e-8);
}

TEST_CASE("dimensions that become one are split by the axis that the user splits it by", "[spmd]") {
  const plains in{wave(6, {3, 2, 4})};
  plain squares({3, 8});
  plain sums({3});
  for (std::size_t i = 0; i < 24; ++i) {
    squares.data[i] = in[0].data[i] * in[0].data[i];
    sums.data[i / 8] += in[0].data[i];
  }
  everywhere<together_program>(model_axis{}, in, {squares, sums});
}

TEST_CASE("an axis of 6 in the middle of a mesh is 3 x 2, or 2 x 3", "[spmd]") {
  const plains in{indices(7, {4, 12}, 50), indices(8, {48}, 100)};
  plain more({4, 12});
  plain twice({48});
  for (std::size_t i = 0; i < 48; ++i) {
    more.data[i] = in[0].data[i] + 1;
    twice.data[i] = 2 * in[1].data[i];
  }
  gives<thirds_program>({in[0]}, {more}, 0);
  gives<halves_program>({in[1]}, {twice}, 0);
  gives<sixths_program>(in, {more, twice}, 0);
}

TEST_CASE("an axis stays whole where parts would leave an argument's elements elsewhere", "[spmd]") {
  const auto expected = [](const plains& in) {
    plains out{plain({8}), plain(in[1].extents), plain({4, in[1].extents[0]})};
    for (std::size_t i = 0; i < 8; ++i) out[0].data[i] = in[0].data[i] * in[0].data[i];
    for (std::size_t c = 0; c < in[1].data.size(); ++c) {
      out[1].data[c] = 2 * in[1].data[c];
      for (std::size_t b = 0; b < 4; ++b)
        out[2].data[b * in[1].data.size() + c] = (in[0].data[b] + in[0].data[4 + b]) * in[1].data[c];
    }
    return out;
  };
  const plains with_six{wave(9, {8}), wave(10, {6})};
  everywhere<beside_six>(model_axis{}, with_six, expected(with_six));
  const plains with_seven{wave(9, {8}), wave(10, {7})};
  everywhere<beside_seven>(model_axis{}, with_seven, expected(with_seven));
}

TEST_CASE("uneven parts within a program that cuts an axis, and parts that no cut makes even", "[spmd]") {
  const plains in{wave(11, {8})};
  plain sums({4});
  for (std::size_t i = 0; i < 8; ++i) sums.data[i % 4] += in[0].data[i] * in[0].data[i];
  everywhere<uneven_between_program>(model_axis{}, in, {sums, in[0]});

  const plains six{wave(12, {6})};
  plain squares({2, 3});
  plain turned({6});
  for (std::size_t i = 0; i < 6; ++i) {
    squares.data[i] = six[0].data[i] * six[0].data[i];
    turned.data[i % 3 * 2 + i / 3] = six[0].data[i];
  }
  everywhere<uneven_apart_program>(model_axis{}, six, {squares, turned});
}

TEST_CASE("an axis stays whole where parts would have to be summed up more often", "[spmd]") {
  const plains in{wave(20, {8})};
  plains out(4, plain({4}));
  for (std::size_t i = 0; i < 8; ++i) {
    const real x = in[0].data[i];
    out[0].data[i % 4] += x;
    out[1].data[i % 4] += x * x;
    out[2].data[i % 4] += std::sin(x);
    out[3].data[i % 4] += std::tanh(x);
  }
  everywhere<one_sum_apart>(model_axis{}, in, {out[1]});
  everywhere<four_sums_apart>(model_axis{}, in, out);
}

TEST_CASE("attention with fewer heads of keys than devices", "[spmd]") {
  const plains in{wave(13, {width, heads * depth}), wave(14, {width, kept_heads * depth}),
                  wave(15, {width, kept_heads * depth}), wave(16, {heads * depth, width}),
                  wave(17, {rows, length, width})};
  const plains out = value_and_slopes(plain_grouped, in, 4);
  everywhere<grouped_program>(one_axis_too{}, in, out, 1e-8);
  everywhere<grouped_program>(both_axes{}, in, out, 1e-8);
}

TEST_CASE("an array that is split by parts of an axis says how, and is gathered", "[spmd]") {
  using program = apart_program<on<1, 4>>;
  ep::world world(program::mesh::value);
  ep::runner<program> run(world);
  auto x = run.argument<0>();
  const plain values = wave(18, {8});
  write_array(x, values);
  CHECK(x.text() == "f32[8@model]");
  const auto& two = run(x);
  CHECK(two.text() == "f32[2@model:(1)2, 4@model:(2)2]");
  CHECK(two.mesh().rank == 3);
  const std::vector<float> all = ep::gather(world, two);
  for (std::size_t i = 0; i < 8; ++i) CHECK(all[i] == static_cast<float>(values.data[i]));

  std::ostringstream text;
  ep::explain<program>(text);
  CHECK_THAT(text.str(), Contains("f32[2@model:(1)2, 4@model:(2)2]") && Contains("f32[8@model]"));
}

namespace {

template <class On> struct doubled {
  constexpr auto operator()(auto x) const { return x + x; }
};
/// It has no axis to cut.
using whole_axis = ep::program<on<1, 4>::mesh, doubled<on<1, 4>>, ep::sharded<ep::f64<16>, on<1, 4>::model>>;
using columns = ep::program<on<1, 4>::mesh, doubled<on<1, 4>>, ep::sharded<ep::f32<2, 4>, ep::none, on<1, 4>::model>>;

}  // namespace

TEST_CASE("arrays pass between programs that cut an axis and programs that do not", "[spmd]") {
  using cut = round_trip_program<on<1, 4>>;
  static_assert(is_cut<cut> && !is_cut<whole_axis>);
  ep::world world(cut::mesh::value);
  ep::runner<cut> first(world);
  ep::runner<whole_axis> second(world);
  auto x = second.argument<0>();
  const plain values = wave(19, {16});
  write_array(x, values);
  const auto y = first(x);
  const auto z = read_array(second(y));
  for (std::size_t i = 0; i < 16; ++i) {
    CHECK(static_cast<double>(z.data[i]) == Approx(static_cast<double>(2 * trip(values.data[i]))));
  }

  ep::runner<apart_program<on<1, 4>>> apart(world);
  ep::runner<columns> third(world);
  auto eight = apart.argument<0>();
  CHECK_THROWS_WITH(third(apart(eight)), Contains("argument 0 of the program is laid out as f32[2, 4@model], but was "
                                                  "given f32[2@model:(1)2, 4@model:(2)2]"));
}
