// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

// Programs that say more about their layouts than single annotations: explicit mode, values that are laid out alike,
// priorities.

#include <espalier/tensor/core/program/explicit_mode.hpp>
#include <support/kinds.hpp>

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- explicit mode: a training step that writes every collective ----------------------------------------------------

/// The first weight is split over both axes and gathered over `data`, the second over `model`.
template <class On> struct written_step {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto w_in, auto w_out, auto x) const {
    const auto loss = [&](const auto& p) {
      const auto gathered = ep::reshard<ep::none, model>(p.template get<0>());  // all_gather over data
      const auto h = ep::tanh(ep::matmul(x, gathered));
      const auto y = ep::shard<data, ep::none>(ep::matmul(h, p.template get<1>()));  // all_reduce over model
      return ep::shard<>(ep::mean(y * y));                                           // all_reduce over data
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(w_in, w_out));
    // Of w_in the reduction is the gradient of the all_gather, a reduce_scatter; of w_out it is written here.
    const auto of_out = ep::reshard<model, ep::none>(gradient.template get<1>());
    return ep::results(w_in - gradient.template get<0>(), w_out - of_out, value);
  }
};
template <class On, template <int...> class Type, int Batch, int Width, int Hidden, template <class...> class Program>
using written_step_of = Program<typename On::mesh, written_step<On>,
                                ep::donated<ep::sharded<Type<Width, Hidden>, typename On::data, typename On::model>>,
                                ep::donated<ep::sharded<Type<Hidden, Width>, typename On::model, ep::none>>,
                                ep::sharded<Type<Batch, Width>, typename On::data, ep::none>>;
template <class On> using written_step_program = written_step_of<On, ep::f64, 7, 5, 6, ep::explicit_program>;

using even = on<2, 4>;
using written = written_step_of<even, ep::f32, 8, 8, 16, ep::explicit_program>;
using free = written_step_of<even, ep::f32, 8, 8, 16, ep::program>;
// By hand, of a device: a quarter of w_in's columns and half of its rows, f32[4, 4], go to one other; 4 x 8 partials of
// y are all-reduced over four; f32[8, 4] of a gradient are scattered over two, f32[4, 8] are all-reduced over two, with
// the loss.
static_assert(written::bytes<ep::all_gather>() == 4 * 4 * 4);
static_assert(written::bytes<ep::all_reduce, even::model>() == 2 * 3 * 4 * 8 * 4 / 4);
static_assert(written::bytes<ep::reduce_scatter>() == 8 * 4 * 4 / 2);
static_assert(written::bytes<ep::all_reduce, even::data>() == 4 * 8 * 4 + 4);
static_assert(written::collectives() == 4, "the loss travels with the gradient");
static_assert(written::collectives() == free::collectives() && written::code.size == free::code.size);

real plain_written_step(const plains& in) {
  const int batch = in[2].size(0), width = in[2].size(1), hidden = in[0].size(1);
  real total = 0;
  for (int b = 0; b < batch; ++b) {
    for (int o = 0; o < width; ++o) {
      real y = 0;
      for (int h = 0; h < hidden; ++h) {
        real sum = 0;
        for (int i = 0; i < width; ++i) sum += in[2](b, i) * in[0](i, h);
        y += std::tanh(sum) * in[1](h, o);
      }
      total += y * y / static_cast<real>(batch * width);
    }
  }
  return total;
}

// --- explicit mode in parts of a program: loops, halos, and a part that is automatic ---------------------------------

template <class On> struct modes {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto x, auto up, auto down) const {
    const auto layers = ep::explicit_mode([](auto h, auto first, auto second) {
      const auto layer = [](auto state, const auto& weights) {
        const auto inner = ep::tanh(ep::matmul(state, weights.template get<0>()));
        return state + ep::shard<data, ep::none>(ep::matmul(inner, weights.template get<1>()));
      };
      return ep::scan(layer, h, ep::results(first, second));
    });
    const auto y = layers(x, up, down);
    const auto shifted = ep::explicit_mode<ep::exchange>([](auto v) {
      const auto largest = ep::auto_mode([](auto u) { return ep::max<0>(u); })(v);
      return ep::results(ep::roll<0, 1>(v) - v, largest);
    })(y);
    return ep::results(shifted.template get<0>(), shifted.template get<1>());
  }
};
template <class On>
using modes_program = ep::program<typename On::mesh, modes<On>, ep::sharded<ep::f64<7, 4>, typename On::data, ep::none>,
                                  ep::sharded<ep::f64<3, 4, 6>, ep::none, ep::none, typename On::model>,
                                  ep::sharded<ep::f64<3, 6, 4>, ep::none, typename On::model, ep::none>>;
static_assert(modes_program<even>::collectives<ep::all_reduce, even::model>() == 3, "one in each iteration");
static_assert(modes_program<even>::collectives<ep::all_reduce, even::data>() == 1, "the maximum");
static_assert(modes_program<even>::collectives<ep::exchange>() == 1);
static_assert(modes_program<even>::collectives() == 5);

plains plain_modes(const plains& in) {
  plain y = in[0];
  for (int layer = 0; layer < 3; ++layer) {
    plain next = y;
    for (int b = 0; b < 7; ++b) {
      for (int h = 0; h < 6; ++h) {
        real sum = 0;
        for (int i = 0; i < 4; ++i) sum += y(b, i) * in[1](layer, i, h);
        for (int o = 0; o < 4; ++o) next(b, o) += std::tanh(sum) * in[2](layer, h, o);
      }
    }
    y = next;
  }
  plain shifted({7, 4}), largest({4}, -1e9L);
  for (int b = 0; b < 7; ++b) {
    for (int o = 0; o < 4; ++o) {
      shifted(b, o) = y((b + 6) % 7, o) - y(b, o);
      largest(o) = std::max(largest(o), y(b, o));
    }
  }
  return {shifted, largest};
}

// --- values that are laid out alike
// -----------------------------------------------------------------------------------

/// `moment` follows the weight, whose layout is inferred from the product; the gradient as well.
template <class On> struct like_a_weight {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto x, auto w, auto moment) const {
    const auto loss = [&](auto weight) {
      const auto y = ep::shard<data, model>(ep::matmul(x, weight));
      return ep::sum(ep::tanh(y));
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(w);
    const auto squares = ep::shard_like(moment, w) + gradient * gradient;
    return ep::results(w - gradient / (1.0 + squares), squares, value);
  }
};
template <class On, template <int...> class Type, int Batch, int Width, int Hidden>
using like_a_weight_of = ep::program<typename On::mesh, like_a_weight<On>, Type<Batch, Width>, Type<Width, Hidden>,
                                     ep::sharded<Type<Width, Hidden>, typename On::model, ep::none>>;
template <class On> using like_a_weight_program = like_a_weight_of<On, ep::f64, 7, 5, 6>;
using weighted = like_a_weight_of<even, ep::f32, 8, 8, 16>;
// The moment comes as f32[2, 16] and is wanted as f32[8, 4]: of each device's 2 x 16 elements 3 of 4 go to others.
static_assert(weighted::argument_layout(1).placement.dim[1] == ep::axis_list(1));
static_assert(weighted::bytes<ep::all_to_all>() == 2 * 16 * 3 * 4 / 4);
static_assert(weighted::collectives<ep::all_to_all, even::model>() == 1);
static_assert(weighted::result_layout(1).placement.same_layout(weighted::argument_layout(1).placement));

plains plain_like_a_weight(const plains& in) {
  const auto value = [](const plains& at) {
    real total = 0;
    for (int b = 0; b < at[0].size(0); ++b) {
      for (int h = 0; h < at[1].size(1); ++h) {
        real sum = 0;
        for (int i = 0; i < at[0].size(1); ++i) sum += at[0](b, i) * at[1](i, h);
        total += std::tanh(sum);
      }
    }
    return total;
  };
  const plain gradient = slope(value, in, 1);
  plain squares = in[2], next = in[1];
  for (std::size_t i = 0; i < next.data.size(); ++i) {
    squares.data[i] += gradient.data[i] * gradient.data[i];
    next.data[i] -= gradient.data[i] / (1 + squares.data[i]);
  }
  return {next, squares, plain::number(value(in))};
}

/// Two tensors get one layout. `Decided` says where it is decided: by the first, by the second, by a reader of the
/// first, by a reader of the second, or by both, which disagree.
enum class decided { by_first, by_second, by_reader_of_first, by_reader_of_second, by_both };
template <class On, decided By> struct alike {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto a, auto b) const {
    constexpr bool first = By == decided::by_first || By == decided::by_both;
    constexpr bool second = By == decided::by_second || By == decided::by_both;
    const auto x = [&] {
      if constexpr (first) return ep::shard<data, model>(ep::exp(a));
      if constexpr (!first) return ep::exp(a);
    }();
    const auto y = [&] {
      if constexpr (second) return ep::shard<model, data>(ep::tanh(b));
      if constexpr (!second) return ep::tanh(b);
    }();
    const auto [p, q] = ep::shard_as(x, y);
    auto read_p = ep::sin(p);
    auto read_q = ep::cos(q);
    if constexpr (By == decided::by_reader_of_first) read_p = ep::shard<model, data>(read_p);
    if constexpr (By == decided::by_reader_of_second) read_q = ep::shard<model, data>(read_q);
    return ep::results(ep::label<"p">(p), ep::label<"q">(q), read_p, read_q);
  }
};
template <class On, decided By, int Rows, int Columns, class... Entries>
using alike_of = ep::program<typename On::mesh, alike<On, By>, ep::f32<Rows, Columns>, ep::f32<Rows, Columns>>;
template <decided By> struct alike_program { template <class On> using on = alike_of<On, By, 5, 7>; };
/// Both have the layout <major, minor>, and this many bytes are sent.
template <decided By> constexpr bool alike_as(int major, int minor, std::int64_t bytes) {
  using step = alike_of<even, By, 8, 16>;
  const ep::sharding p = step::layout_of("p").placement;
  const ep::sharding q = step::layout_of("q").placement;
  return p.same_layout(q) && p.dim[0] == ep::axis_list(major) && p.dim[1] == ep::axis_list(minor) &&
         step::template bytes<ep::collective_permute>() + step::template bytes<ep::all_to_all>() +
                 step::template bytes<ep::exchange>() ==
             bytes;
}
static_assert(alike_as<decided::by_first>(0, 1, 0));
static_assert(alike_as<decided::by_second>(1, 0, 0));
static_assert(alike_as<decided::by_reader_of_first>(1, 0, 0));
static_assert(alike_as<decided::by_reader_of_second>(1, 0, 0));
// The second moves to the layout of the first, in which a device has 4 x 4 elements: those of device (0, 2) are all on
// others before.
static_assert(alike_as<decided::by_both>(0, 1, 4 * 4 * 4));

// --- priorities
// -------------------------------------------------------------------------------------------------------

/// Two annotations want one axis for different dimensions of a product: `First` and `Second` are the priorities of the
/// batch and of the weight.
struct product_of_two {
  constexpr auto operator()(auto x, auto w) const { return ep::tanh(ep::matmul(x, w)); }
};
template <class On, int First, int Second, int Batch, int Width, int Hidden>
using product_by_priority =
    ep::program<typename On::mesh, product_of_two,
                ep::sharded<ep::f32<Batch, Width>, typename On::data, ep::none, ep::priority<First>>,
                ep::sharded<ep::f32<Width, Hidden>, ep::none, typename On::data, ep::priority<Second>>>;
template <class On> using batch_first = product_by_priority<On, 0, 1, 7, 5, 6>;
template <class On> using weight_first = product_by_priority<On, 3, 1, 7, 5, 6>;
template <int First, int Second> using even_product = product_by_priority<even, First, Second, 64, 16, 8>;
template <class Step> constexpr bool splits_only(int dim) {
  const ep::sharding y = Step::result_layout(0).placement;
  return y.dim[dim] == ep::axis_list(0) && y.dim[1 - dim].empty();
}
// The weight, f32[16, 4] on a device, is gathered: 256 bytes.
static_assert(splits_only<even_product<0, 1>>(0));
static_assert(even_product<0, 1>::bytes<ep::all_gather>() == 16 * 4 * 4 && even_product<0, 1>::collectives() == 1);
static_assert(splits_only<even_product<0, 0>>(0));
// x, f32[32, 16] on a device, is gathered: as many bytes as the user's priority costs.
static_assert(splits_only<even_product<1, 0>>(1));
static_assert(even_product<1, 0>::bytes<ep::all_gather>() == 32 * 16 * 4 && even_product<1, 0>::collectives() == 1);
static_assert(splits_only<even_product<7, 2>>(1), "only the order counts");

using every_count = few_or_all<meshes<on<1, 1>, on<2, 4>>, meshes<on<1, 1>, on<1, 2>, on<2, 2>, on<2, 4>>>;

}  // namespace

TEST_CASE("kinds: a training step in explicit mode, two steps in place", "[kinds]") {
  plains in{wave(1, {5, 6}), wave(2, {6, 5}), wave(3, {7, 5})};
  const plains start = in;
  real value = 0;
  for (int step = 0; step < 2; ++step) {
    value = plain_written_step(in);
    const plains by{slope(plain_written_step, in, 0), slope(plain_written_step, in, 1)};
    for (std::size_t leaf = 0; leaf < 2; ++leaf) {
      for (std::size_t i = 0; i < by[leaf].data.size(); ++i) in[leaf].data[i] -= by[leaf].data[i];
    }
  }
  everywhere<written_step_program>(every_count{}, start, {in[0], in[1], plain::number(value)}, 1e-9, 2);
}

TEST_CASE("kinds: parts of a program in explicit mode", "[kinds]") {
  const plains in{wave(1, {7, 4}), wave(2, {3, 4, 6}), wave(3, {3, 6, 4})};
  everywhere<modes_program>(every_count{}, in, plain_modes(in));
}

TEST_CASE("kinds: a value laid out like another one", "[kinds]") {
  const plains in{wave(1, {7, 5}), wave(2, {5, 6}), wave(3, {5, 6}, 0.5)};
  everywhere<like_a_weight_program>(every_count{}, in, plain_like_a_weight(in));
}

TEST_CASE("kinds: two values laid out alike, wherever that is decided", "[kinds]") {
  const plains in{wave(1, {5, 7}), wave(2, {5, 7})};
  plains out{in[0], in[1], in[0], in[1]};
  for (std::size_t i = 0; i < in[0].data.size(); ++i) {
    out[0].data[i] = std::exp(in[0].data[i]);
    out[1].data[i] = std::tanh(in[1].data[i]);
    out[2].data[i] = std::sin(out[0].data[i]);
    out[3].data[i] = std::cos(out[1].data[i]);
  }
  everywhere<alike_program<decided::by_first>::on>(every_count{}, in, out, 1e-5);
  everywhere<alike_program<decided::by_second>::on>(every_count{}, in, out, 1e-5);
  everywhere<alike_program<decided::by_reader_of_first>::on>(every_count{}, in, out, 1e-5);
  everywhere<alike_program<decided::by_reader_of_second>::on>(every_count{}, in, out, 1e-5);
  everywhere<alike_program<decided::by_both>::on>(every_count{}, in, out, 1e-5);
}

TEST_CASE("kinds: priorities of annotations", "[kinds]") {
  const plains in{wave(1, {7, 5}), wave(2, {5, 6})};
  plain out({7, 6});
  for (int b = 0; b < 7; ++b) {
    for (int h = 0; h < 6; ++h) {
      real sum = 0;
      for (int i = 0; i < 5; ++i) sum += in[0](b, i) * in[1](i, h);
      out(b, h) = std::tanh(sum);
    }
  }
  everywhere<batch_first>(every_count{}, in, {out}, 1e-5);
  everywhere<weight_first>(every_count{}, in, {out}, 1e-5);
}
