// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/vmap.hpp>
#include <own_op/kernels/ensemble.hpp>
#include <own_op/kernels/softplus.hpp>
#include <support/kinds.hpp>

#include <array>
#include <cmath>

// Mapped programs against plain loops over rows. (Every kind of op against its own rows: kinds_vmap.cpp.)

namespace ep = espalier;
using namespace testing::kinds;

namespace {

using row_meshes = few_or_all<meshes<on<4, 1>>, meshes<on<1, 1>, on<2, 1>, on<4, 1>, on<8, 1>>>;

// --- a lookup, a product, a softmax, a loop and a branch ------------------------------------------------------------

constexpr auto lookup_and_loop = [](auto x, auto n, auto w) {
  const auto weights = ep::softmax<1>(ep::gather<0>(x, n));
  const auto y = ep::einsum<"nk,kj->nj">(weights, w);
  const auto step = [](auto s, auto row) {
    const auto next = ep::tanh(s + row);
    return ep::results(next, next * row);
  };
  const auto scanned = ep::scan(step, ep::sum<0>(y), y);
  const auto last = scanned.template get<0>();
  const auto first = ep::reshape<>(ep::slice<0, 0, 1>(n));
  const auto end = ep::cond(
      first > 1, [&] { return last * 2.0; }, [&] { return ep::exp(last) + ep::sum(x); });
  return ep::results(end, scanned.template get<1>());
};
constexpr auto loss_of_row = [](auto x, auto n, auto w) {
  const auto out = lookup_and_loop(x, n, w);
  return ep::sum(out.template get<0>()) + ep::sum(ep::sin(out.template get<1>()));
};
template <class On> struct over_rows {
  constexpr auto operator()(auto xs, auto ns, auto w) const {
    const auto x = ep::shard<typename On::data, ep::open, ep::open>(xs);
    const auto values = ep::vmap<0, 1, ep::unmapped>(lookup_and_loop, ep::out_dims<1, -1>)(x, ns, w);
    const auto slopes = ep::vmap<0, 1, ep::unmapped>(ep::grad<2>(loss_of_row))(x, ns, w);
    const auto whole = [&](const auto& a, const auto& b) {
      return ep::sum(ep::vmap<0, 1, ep::unmapped>(loss_of_row)(a, ns, b));
    };
    const auto [loss, back] = ep::value_and_grad<0, 1>(whole)(x, w);
    return ep::results(values, slopes, loss, back);
  }
};
constexpr int rows = 5, high = 4, wide = 6, taken = 3, out = 2;
template <class On>
using over_rows_program =
    ep::program<typename On::mesh, over_rows<On>, ep::f64<rows, high, wide>, ep::i32<taken, rows>, ep::f64<wide, out>>;

struct row_values {
  std::vector<real> end;
  std::vector<real> all;
  real loss = 0;
};
row_values plain_row(const plains& in, int r) {
  plain y({taken, out});
  for (int t = 0; t < taken; ++t) {
    const auto from = static_cast<int>(in[1](t, r));
    real sum = 0;
    for (int k = 0; k < wide; ++k) sum += std::exp(in[0](r, from, k));
    for (int j = 0; j < out; ++j) {
      for (int k = 0; k < wide; ++k) y(t, j) += std::exp(in[0](r, from, k)) / sum * in[2](k, j);
    }
  }
  real total = 0;
  for (int h = 0; h < high; ++h) {
    for (int k = 0; k < wide; ++k) total += in[0](r, h, k);
  }
  row_values made;
  std::vector<real> state(out);
  for (int j = 0; j < out; ++j) state[static_cast<std::size_t>(j)] = y(0, j) + y(1, j) + y(2, j);
  for (int t = 0; t < taken; ++t) {
    for (int j = 0; j < out; ++j) {
      real& one = state[static_cast<std::size_t>(j)];
      one = std::tanh(one + y(t, j));
      made.all.push_back(one * y(t, j));
      made.loss += std::sin(made.all.back());
    }
  }
  for (const real one : state) {
    made.end.push_back(in[1](0, r) > 1 ? one * 2 : std::exp(one) + total);
    made.loss += made.end.back();
  }
  return made;
}
plains plain_rows(const plains& in) {
  plain ends({out, rows});
  plain all({taken, out, rows});
  plain slopes({rows, wide, out});
  for (int r = 0; r < rows; ++r) {
    const row_values one = plain_row(in, r);
    for (int j = 0; j < out; ++j) ends(j, r) = one.end[static_cast<std::size_t>(j)];
    for (int i = 0; i < taken * out; ++i) all(i / out, i % out, r) = one.all[static_cast<std::size_t>(i)];
    const plain by_w = slope([&](const plains& at) { return plain_row(at, r).loss; }, in, 2);
    for (int i = 0; i < wide * out; ++i) slopes(r, i / out, i % out) = by_w.data[static_cast<std::size_t>(i)];
  }
  const auto whole = [](const plains& at) {
    real loss = 0;
    for (int r = 0; r < rows; ++r) loss += plain_row(at, r).loss;
    return loss;
  };
  return {ends, all, slopes, plain::number(whole(in)), slope(whole, in, 0), slope(whole, in, 2)};
}

// --- keys -----------------------------------------------------------------------------------------------------------

using key_words = std::array<std::uint32_t, 2>;
/// Word `at` of a key: of `purpose` 0 bits, 2 a folded number, 3 keys.
std::uint32_t word(key_words key, std::int64_t at, std::uint32_t purpose, std::uint32_t number = 0) {
  const auto block = static_cast<std::uint64_t>(at) / 4;
  const auto four =
      ep::philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U), number, purpose}, key);
  return four[static_cast<std::size_t>(at % 4)];
}
template <class On> struct random_rows {
  constexpr auto operator()(auto keys, auto numbers, auto shared) const {
    const auto of_one = [](auto key, auto number, auto other) {
      const auto at = ep::fold_in(key, number);
      return ep::results(ep::random_bits<ep::u32<7, 3>>(key), at, ep::split_key<2>(key),
                         ep::random_bits<ep::u32<5>>(other),  // the same for all rows
                         ep::fold_in(other, number));
    };
    return ep::vmap<0, 0, ep::unmapped>(of_one)(ep::shard<typename On::data, ep::open>(keys), numbers, shared);
  }
};
template <class On>
using random_program = ep::program<typename On::mesh, random_rows<On>, ep::u32<3, 2>, ep::u32<3>, ep::u32<2>>;
static_assert(random_program<on<4, 1>>::template collectives<ep::all_gather>() == 0);

// --- ops of a user, which know nothing of maps ----------------------------------------------------------------------

template <class On> struct own_ops {
  constexpr auto operator()(auto xs, auto y) const {
    const auto loss = [](auto x, auto other) {
      const auto [mean, variance] = mine::ensemble(mine::softplus(x), other);
      return ep::sum(mean * variance);
    };
    const auto by_row = ep::vmap<1, ep::unmapped>(ep::value_and_grad<0, 1>(loss));
    return by_row(ep::shard<ep::open, typename On::data>(xs), y);
  }
};
template <class On> using own_program = ep::program<typename On::mesh, own_ops<On>, ep::f64<4, 3>, ep::f64<4>>;
static_assert(own_program<on<4, 1>>::collectives() == 0);

// --- rows of a cache ------------------------------------------------------------------------------------------------

/// Beam search: the rows of each cache in the order of their parents. Nothing moves, forward or back.
template <class On> struct beams {
  constexpr auto operator()(auto caches, auto parents) const {
    const auto cache = ep::shard<typename On::data, ep::none, ep::none, ep::none>(caches);
    const auto pick = [](auto table, auto chosen) { return ep::gather<0>(table, chosen); };
    const auto loss = [=](auto table, auto chosen) { return ep::sum(ep::sin(pick(table, chosen))); };
    return ep::results(ep::vmap(pick)(cache, parents), ep::vmap(ep::grad<0>(loss))(cache, parents));
  }
};
template <class On> using beam_program = ep::program<typename On::mesh, beams<On>, ep::f32<8, 3, 16, 4>, ep::i32<8, 3>>;
static_assert(beam_program<on<8, 1>>::collectives() == 0);

// --- a pipeline -----------------------------------------------------------------------------------------------------

constexpr int stages = 4, batches = 5, width = 6, iterations = batches + stages - 1;
/// A shifting buffer: each iteration every stage computes on what the stage before it has computed in the last one.
template <class On> struct shifting_buffer {
  constexpr auto operator()(auto weights, auto inputs) const {
    using stage = typename On::data;
    const auto w = ep::shard<stage, ep::none, ep::none>(weights);
    const auto layer = [](auto x, auto one) { return ep::tanh(ep::matmul(x, one)) + x; };
    const auto first = ep::equal(ep::iota<ep::i32<stages, width>, 0>(w), 0);
    const auto body = [&](auto state, auto input) {
      const auto from_previous = ep::shift<0, 1>(state);
      const auto all = ep::vmap(layer)(ep::select(first, ep::broadcast_to<stages, width>(input), from_previous), w);
      return ep::results(ep::shard<stage, ep::none>(all), all);
    };
    const auto fed = ep::pad<0, 0, stages - 1>(inputs);
    const auto start = ep::shard<stage, ep::none>(ep::constant<ep::f64<stages, width>>(w, 0));
    const auto [last, all] = ep::scan(body, start, fed);
    return ep::reshape<batches, width>(ep::slice<1, stages - 1, stages>(ep::slice<0, stages - 1, iterations>(all)));
  }
};
template <class On>
using pipeline =
    ep::program<typename On::mesh, shifting_buffer<On>, ep::f64<stages, width, width>, ep::f64<batches, width>>;

/// The gradient of a pipeline whose micro-batches, and what becomes of them, are split over the devices of its stages
/// before and after it.
constexpr int many = 8, trained_iterations = many + stages - 1;
template <class On> struct train_shifting_buffer {
  constexpr auto operator()(auto weights, auto inputs, auto factors) const {
    using stage = typename On::data;
    const auto loss = [&](const auto& all_weights, const auto& all_inputs) {
      const auto w = ep::shard<stage, ep::none, ep::none>(all_weights);
      const auto layer = [](auto x, auto one) { return ep::tanh(ep::matmul(x, one)) + x; };
      const auto first = ep::equal(ep::iota<ep::i32<stages, width>, 0>(w), 0);
      const auto body = [&](auto state, auto input) {
        const auto fed = ep::select(first, ep::broadcast_to<stages, width>(input), ep::shift<0, 1>(state));
        const auto all = ep::shard<stage, ep::none>(ep::vmap(layer)(fed, w));
        return ep::results(all, all);
      };
      const auto to_all = ep::reshard<ep::none, ep::none>(ep::shard<stage, ep::none>(all_inputs));
      const auto start = ep::shard<stage, ep::none>(ep::constant<ep::f64<stages, width>>(w, 0));
      const auto all = ep::scan(body, start, ep::pad<0, 0, stages - 1>(to_all)).template get<1>();
      const auto outputs = ep::take<1, -1>(ep::slice<0, stages - 1, trained_iterations>(all));
      return ep::sum(ep::sin(ep::shard<stage, ep::none>(outputs)) * factors);
    };
    const auto [value, slopes] = ep::value_and_grad<0, 1>(loss)(weights, inputs);
    return ep::results(value, slopes);
  }
};
template <class On>
using trained_pipeline = ep::program<typename On::mesh, train_shifting_buffer<On>, ep::f64<stages, width, width>,
                                     ep::f64<many, width>, ep::f64<many, width>>;

plains plain_pipeline(const plains& in) {
  plain x = in[1];
  for (int s = 0; s < stages; ++s) {
    plain next = x;
    for (int b = 0; b < x.size(0); ++b) {
      for (int j = 0; j < width; ++j) {
        real sum = 0;
        for (int i = 0; i < width; ++i) sum += x(b, i) * in[0](s, i, j);
        next(b, j) += std::tanh(sum);
      }
    }
    x = next;
  }
  return {x};
}

}  // namespace

TEST_CASE("a mapped function of a lookup, a product, a loop and a branch is that of each row") {
  plain n({taken, rows});
  for (int t = 0; t < taken; ++t) {
    for (int r = 0; r < rows; ++r) n(t, r) = (t * 3 + r * 2 + r / 3) % high;
  }
  const plains in{wave(1, {rows, high, wide}), n, wave(2, {wide, out})};
  everywhere<over_rows_program>(row_meshes{}, in, plain_rows(in), 1e-8);
}

TEST_CASE("keys that are mapped give each row its own numbers") {
  plains in{indices(5, {3, 2}, 4000000), indices(6, {3}, 9), indices(7, {2}, 4000000)};
  const key_words other{static_cast<std::uint32_t>(in[2](0)), static_cast<std::uint32_t>(in[2](1))};
  plain bits({3, 7, 3}), folded({3, 2}), split({3, 2, 2}), same({3, 5}), own({3, 2});
  for (int r = 0; r < 3; ++r) {
    const key_words key{static_cast<std::uint32_t>(in[0](r, 0)), static_cast<std::uint32_t>(in[0](r, 1))};
    const auto number = static_cast<std::uint32_t>(in[1](r));
    for (int i = 0; i < 21; ++i) bits(r, i / 3, i % 3) = word(key, i, 0);
    for (int i = 0; i < 2; ++i) folded(r, i) = word(key, i, 2, number);
    for (int i = 0; i < 4; ++i) split(r, i / 2, i % 2) = word(key, i, 3);
    for (int i = 0; i < 5; ++i) same(r, i) = word(other, i, 0);
    for (int i = 0; i < 2; ++i) own(r, i) = word(other, i, 2, number);
  }
  everywhere<random_program>(row_meshes{}, in, {bits, folded, split, same, own}, 0);
}

TEST_CASE("ops of a user that know nothing of maps are mapped by their factors") {
  const plains in{wave(3, {4, 3}, 2), wave(4, {4})};
  const auto loss = [](const plains& at, int r) {
    real sum = 0;
    for (int i = 0; i < 4; ++i) {
      const real a = std::log1p(std::exp(at[0](i, r)));
      const real mean = (a + at[1](i)) / 2;
      sum += mean * ((a - mean) * (a - mean) + (at[1](i) - mean) * (at[1](i) - mean)) / 2;
    }
    return sum;
  };
  plain losses({3}), by_x({3, 4}), by_y({3, 4});
  for (int r = 0; r < 3; ++r) {
    const auto of_row = [&](const plains& at) { return loss(at, r); };
    losses(r) = of_row(in);
    const plain x = slope(of_row, in, 0);
    const plain y = slope(of_row, in, 1);
    for (int i = 0; i < 4; ++i) {
      by_x(r, i) = x(i, r);
      by_y(r, i) = y(i);
    }
  }
  everywhere<own_program>(row_meshes{}, in, {losses, by_x, by_y}, 1e-8);
}

TEST_CASE("a pipeline of mapped stages sends what one stage hands on, and its outputs once") {
  using program = pipeline<on<stages, 1>>;
  // Of a state of 6 numbers one exchange in each of the 8 iterations, and 5 outputs of 6 numbers once; no weights.
  CHECK(program::template collectives<ep::exchange>() == iterations + 1);
  CHECK(program::template bytes<ep::exchange>() == iterations * width * 8 + batches * width * 8);
  CHECK(program::collectives() == iterations + 1);
  const plains in{wave(8, {stages, width, width}), wave(9, {batches, width})};
  everywhere<pipeline>(few_or_all<meshes<on<4, 1>>, meshes<on<1, 1>, on<2, 1>, on<4, 1>, on<8, 1>>>{}, in,
                       plain_pipeline(in), 1e-9);
}

TEST_CASE("the gradient of a pipeline of mapped stages sends what comes back, and sums nothing in the loop") {
  using program = trained_pipeline<on<stages, 1>>;
  constexpr int state = width * 8;
  constexpr int all = many * state;
  // All stages get the micro-batches, and their gradient, which the first stage makes, is scattered after the loop.
  CHECK(program::template collectives<ep::all_gather>() == 1);
  CHECK(program::template bytes<ep::all_gather>() == all / 4 * 3);
  CHECK(program::template collectives<ep::reduce_scatter>() == 1);
  CHECK(program::template bytes<ep::reduce_scatter>() == all / 4 * 3);
  // The loss.
  CHECK(program::template collectives<ep::all_reduce>() == 1);
  CHECK(program::template bytes<ep::all_reduce>() == 3 * 8);
  // A stage in the middle sends most: in each iteration to the next stage, and back to the one before, and its two
  // outputs' gradients to the last stage once. (That one sends no zeros, and deals six outputs out.)
  CHECK(program::template collectives<ep::exchange>() == 2 * trained_iterations + 2);
  CHECK(program::template bytes<ep::exchange>() == 2 * trained_iterations * state + all / 4);
  CHECK(program::collectives() == 2 * trained_iterations + 2 + 3);
  const plains in{wave(11, {stages, width, width}), wave(12, {many, width}), wave(13, {many, width})};
  const auto loss = [](const plains& at) {
    const plain out = plain_pipeline(at)[0];
    real sum = 0;
    for (std::size_t i = 0; i < out.data.size(); ++i) sum += std::sin(out.data[i]) * at[2].data[i];
    return sum;
  };
  everywhere<trained_pipeline>(few_or_all<meshes<on<4, 1>>, meshes<on<1, 1>, on<2, 1>, on<4, 1>, on<8, 1>>>{}, in,
                               value_and_slopes(loss, in, 2), 1e-8);
}
