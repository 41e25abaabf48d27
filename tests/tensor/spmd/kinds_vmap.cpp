// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/vmap.hpp>
#include <support/kinds.hpp>

// A mapped function against the same function row by row: the row's program is run for each row on one device, and its
// ops have tests of their own against plain loops. A few mapped programs are compared with plain loops here.

namespace ep = espalier;
using namespace testing::kinds;

namespace {

using one_device = on<1, 1>;

/// The sum of a function of all floats of a tree.
template <class T> constexpr auto total_of(const T& one) {
  if constexpr (ep::detail::is_results<T>) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(one.rest)>, ep::results<>>) {
      return total_of(one.first);
    } else {
      return total_of(one.first) + total_of(one.rest);
    }
  } else if constexpr (T::type == ep::dtype::f64) {
    return ep::sum(ep::sin(one * 0.7 + 0.1));
  } else {
    return ep::sum(ep::convert<ep::dtype::f64>(one)) * 0.0;
  }
}
template <class F> struct loss_of {
  constexpr auto operator()(const auto&... in) const { return total_of(F{}(in...)); }
};

/// A function of x, integers and weights in one row: its value, and the gradients of a loss by x and the weights.
template <class F> struct in_one_row {
  constexpr auto operator()(auto x, auto n, auto w) const {
    const auto [loss, slopes] = ep::value_and_grad<0, 2>(loss_of<F>{})(x, n, w);
    return ep::results(F{}(x, n, w), loss, slopes);
  }
};
/// The same over rows, which are split over the data axis: x along dimension 0, integers along their last, weights
/// shared. The gradient inside and outside of the map.
template <class On, class F> struct over_rows {
  constexpr auto operator()(auto xs, auto ns, auto w) const {
    const auto x = ep::shard<typename On::data, ep::open, ep::open>(xs);
    const auto values = ep::vmap<0, -1, ep::unmapped>(F{})(x, ns, w);
    const auto [losses, slopes] = ep::vmap<0, -1, ep::unmapped>(ep::value_and_grad<0, 2>(loss_of<F>{}))(x, ns, w);
    const auto whole = [&](const auto& a, const auto& b) {
      return ep::sum(ep::vmap<0, -1, ep::unmapped>(loss_of<F>{})(a, ns, b));
    };
    const auto [loss, back] = ep::value_and_grad<0, 1>(whole)(x, w);
    return ep::results(values, losses, slopes, loss, back);
  }
};
/// What is independent.
template <class On, class F> struct rows_alone {
  constexpr auto operator()(auto xs, auto ns, auto w) const {
    const auto x = ep::shard<typename On::data, ep::open, ep::open>(xs);
    return ep::results(ep::vmap<0, -1, ep::unmapped>(F{})(x, ns, w),
                       ep::vmap<0, -1, ep::unmapped>(ep::value_and_grad<0, 2>(loss_of<F>{}))(x, ns, w));
  }
};

constexpr int height = 4, width = 6, numbers = 3;
template <class F> struct kind {
  using row = ep::program<one_device::mesh, in_one_row<F>, ep::f64<height, width>, ep::i32<numbers>, ep::f64<width, 5>>;
  template <class On, int Rows>
  using rows = ep::program<typename On::mesh, over_rows<On, F>, ep::f64<Rows, height, width>, ep::i32<numbers, Rows>,
                           ep::f64<width, 5>>;
  template <class On, int Rows>
  using alone = ep::program<typename On::mesh, rows_alone<On, F>, ep::f64<Rows, height, width>, ep::i32<numbers, Rows>,
                            ep::f64<width, 5>>;
};

plain slice_of(const plain& all, int dim, int at) {
  std::vector<std::int64_t> shape;
  std::int64_t outer = 1, inner = 1;
  for (int d = 0; d < static_cast<int>(all.extents.size()); ++d) {
    const std::int64_t extent = all.extents[static_cast<std::size_t>(d)];
    if (d != dim) shape.push_back(extent);
    if (d < dim) outer *= extent;
    if (d > dim) inner *= extent;
  }
  plain one(shape);
  const std::int64_t count = all.extents[static_cast<std::size_t>(dim)];
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t i = 0; i < inner; ++i) {
      one.data[static_cast<std::size_t>(o * inner + i)] =
          all.data[static_cast<std::size_t>((o * count + at) * inner + i)];
    }
  }
  return one;
}
plain stacked(const plains& rows) {
  plain all;
  all.extents = rows[0].extents;
  all.extents.insert(all.extents.begin(), static_cast<std::int64_t>(rows.size()));
  for (const plain& row : rows) all.data.insert(all.data.end(), row.data.begin(), row.data.end());
  return all;
}
plain added(const plains& rows) {
  plain sum = rows[0];
  for (std::size_t r = 1; r < rows.size(); ++r) {
    for (std::size_t i = 0; i < sum.data.size(); ++i) sum.data[i] += rows[r].data[i];
  }
  return sum;
}

/// The results of `over_rows` from those of `in_one_row`.
template <class F> plains row_by_row(const plains& in) {
  using program = typename kind<F>::row;
  ep::world world(program::mesh::value);
  ep::runner<program> runner(world);
  std::vector<plains> of_result;
  for (int r = 0; r < in[0].size(0); ++r) {
    const plains out = run_with(runner, {slice_of(in[0], 0, r), slice_of(in[1], 1, r), in[2]}, 1,
                                std::make_integer_sequence<int, 3>{});
    of_result.resize(out.size());
    for (std::size_t k = 0; k < out.size(); ++k) of_result[k].push_back(out[k]);
  }
  plains expected;
  for (const plains& rows : of_result) expected.push_back(stacked(rows));
  const std::size_t losses = of_result.size() - 3;
  expected.push_back(added(of_result[losses]));
  expected.push_back(stacked(of_result[losses + 1]));
  expected.push_back(added(of_result[losses + 2]));
  return expected;
}

template <int Rows> plains row_arguments(int seed) {
  plain n = indices(seed + 1, {numbers, Rows}, 7);
  for (real& one : n.data) one -= 1;  // -1 ... 5: some are out of range
  return {wave(seed, {Rows, height, width}), n, wave(seed + 2, {width, 5})};
}

/// On 1, 2, 4 and 8 devices, of which the last have parts of other sizes. Eight rows: each of its own device, none of
/// which sends anything.
template <class F, class... On> void is_as_row_by_row(meshes<On...> /*meshes*/, int seed) {
  const plains five = row_arguments<5>(seed);
  const plains expected = row_by_row<F>(five);
  (gives<typename kind<F>::template rows<On, 5>>(five, expected, 1e-9), ...);
}
/// Whether eight rows on eight devices send nothing.
template <class F> inline constexpr bool is_silent = kind<F>::template alone<on<8, 1>, 8>::collectives() == 0;

using all_sizes = meshes<on<1, 1>, on<2, 1>, on<4, 1>, on<8, 1>>;
using on_two = few_or_all<meshes<on<2, 1>>, all_sizes>;
using on_four = few_or_all<meshes<on<4, 1>>, all_sizes>;
using on_eight = few_or_all<meshes<on<8, 1>>, all_sizes>;

// --- elements, sums, movements --------------------------------------------------------------------------------------

struct elements_and_sums {
  constexpr auto operator()(auto x, auto n, auto w) const {
    const auto shared = ep::softmax(w * 2.0);  // the same for all rows
    const auto h = ep::select(x > 0.1, ep::exp(x) * 2.0 - x, ep::tanh(x));
    const auto product = ep::matmul(x, w) + ep::matmul(x, shared);
    const auto normal = ep::softmax<0>(h) + ep::log_softmax<1>(x);
    const auto sums = ep::results(ep::sum<1>(h), ep::max<0>(x), ep::min<1>(x * h), ep::prod<0>(x), ep::mean(x));
    const auto whole = ep::results(ep::argmax<1>(x), ep::convert<ep::dtype::f64>(n) * ep::sum(x), ep::any(x > 0.9),
                                   ep::sum<ep::dtype::i32>(n > 2), ep::tril<1>(x));
    return ep::results(h, product, normal, sums, whole);
  }
};
struct movements {
  constexpr auto operator()(auto x, auto n, auto w) const {
    const auto turned = ep::transpose<1, 0>(x);
    const auto other = ep::reshape<3, 8>(x);
    const auto cut = ep::slice<1, 1, 6, 2>(x);
    const auto wide = ep::pad<0, 1, 2>(x) + 0.5;
    const auto rolled = ep::roll<1, 2>(x) * ep::reverse<0>(x);
    const auto joined =
        ep::concat<1>(x, cut, ep::slice<0, 0, 4>(ep::transpose<1, 0>(w)) * 1.0, turned.rank == 2 ? x : x, x);
    const auto so_far = ep::results(ep::cumsum<1>(x), ep::cumprod<0>(x), ep::cummax<1>(x, ep::from_last),
                                    ep::linear_recurrence<0>(x * 0.5, x));
    const auto [largest, where] = ep::top_k<1, 2>(x);
    return ep::results(ep::results(turned, other, cut, wide), rolled, joined, so_far,
                       ep::results(largest, where, ep::expand_dims<1>(x), ep::stack<1>(x, x * x), n));
  }
};

// --- lookups --------------------------------------------------------------------------------------------------------

struct lookups {
  constexpr auto operator()(auto x, auto n, auto w) const {
    const auto start = ep::reshape<>(ep::slice<0, 0, 1>(n));
    const auto other = ep::reshape<>(ep::slice<0, 1, 2>(n));
    const auto of_row = ep::results(ep::gather<0>(x, n), ep::gather<1>(x, n));  // table and indices of each row
    const auto of_all = ep::results(ep::gather<0>(w, n), ep::gather<1>(w, n));
    const auto same = ep::gather<0>(x, ep::iota<ep::i32<2>, 0>(w));
    const auto cut = ep::results(ep::dynamic_slice<1, 2>(x, start), ep::dynamic_slice<0, 3>(w, start),
                                 ep::dynamic_slice<0, 2>(x, ep::constant<ep::i32<>>(w, 1)));
    const auto update = ep::slice<0, 1, 3>(ep::slice<1, 0, 2>(x)) * 3.0;
    const auto written =
        ep::results(ep::dynamic_update_slice<0, 1>(x, update, start, other),
                    ep::dynamic_update_slice<0>(w, ep::slice<0, 0, 2>(w) * ep::sum(x), other),
                    ep::dynamic_update_slice<1>(x, ep::slice<1, 3, 5>(x) * 2.0, ep::constant<ep::i32<>>(w, 3)));
    return ep::results(
        of_row, of_all, same, cut,
        ep::results(written, ep::einsum<"bn,bw->nw">(ep::one_hot<4, ep::dtype::f64>(n), ep::gather<0>(x, n))));
  }
};

// --- images ---------------------------------------------------------------------------------------------------------

inline constexpr ep::convolution_settings around{.low = {1}, .high = {1}};
inline constexpr ep::convolution_settings grouped{.low = {1}, .high = {1}, .groups = 2};
inline constexpr ep::pooling_settings by_two{.size = {2}, .stride = {2}};
struct images {
  constexpr auto operator()(auto x, auto n, auto w) const {
    const auto image = ep::reshape<1, 6, 4>(x);
    const auto shared = ep::reshape<3, 2, 5>(w);
    const auto own = ep::reshape<3, 4, 2>(x);
    const auto plain_image = ep::reshape<1, 5, 6>(w);
    const auto filtered =
        ep::results(ep::convolution<around>(ep::slice<2, 0, 2>(image), shared),
                    ep::convolution<around>(image, own),                             // both of each row
                    ep::convolution<grouped>(image, ep::reshape<3, 2, 4>(x)),        // groups within
                    ep::convolution<around>(plain_image, ep::reshape<1, 6, 4>(x)));  // the filter alone
    const auto pooled = ep::results(ep::max_pool<by_two>(image), ep::sum_pool<by_two>(image * image));
    return ep::results(filtered, pooled, n);
  }
};

// --- loops and branches ---------------------------------------------------------------------------------------------

struct regions {
  constexpr auto operator()(auto x, auto n, auto w) const {
    const auto first = ep::reshape<>(ep::slice<0, 0, 1>(n));
    const auto layer = [&](auto h, auto row) { return ep::results(ep::tanh(h + row), h * row); };
    const auto scanned = ep::scan(layer, ep::sum<0>(x), x);
    const auto rows_of_w = ep::scan([&](auto h, auto row) { return h + ep::sum(row) * ep::sum(x); }, ep::sum(x), w);
    const auto repeated =
        ep::repeat<3>([&](auto h, auto step) { return h * 0.9 + ep::convert<ep::dtype::f64>(step) * x; }, x);
    // Rows run 0 to 8 times.
    const auto many = ep::while_loop([&](auto s) { return ep::sum(ep::abs(s.template get<0>())) > 3.0; },
                                     [&](auto s) {
                                       const auto [h, count] = s;
                                       return ep::results(h * 0.7 + 0.01 * x, count + 1);
                                     },
                                     ep::results(x, ep::constant<ep::i32<>>(w, 0)), ep::at_most_iterations<8>);
    const auto taken = ep::cond(
        first > 2, [&] { return ep::sin(x); }, [&] { return ep::matmul(x, ep::matmul(w, ep::transpose<1, 0>(w))); });
    const auto one_of = ep::switch_case(
        first, [&] { return x; }, [&] { return x * x; }, [&] { return ep::exp(x); });
    return ep::results(ep::results(scanned.template get<0>(), scanned.template get<1>()), rows_of_w, repeated, many,
                       ep::results(taken, one_of));
  }
};

// --- functions with a gradient of the user's, and layouts -----------------------------------------------------------

struct own_gradients {
  constexpr auto operator()(auto x, auto n, auto w) const {
    const auto product =
        ep::custom_gradient([](auto a, auto b) { return ep::matmul(a, b); },
                            [](auto a, auto b, auto value, auto into) {
                              return ep::results(ep::matmul(into, ep::transpose<1, 0>(b)) * 2.0,
                                                 ep::matmul(ep::transpose<1, 0>(a), into * ep::cos(value)));
                            });
    const auto again = ep::checkpoint([](auto a, auto b) { return ep::tanh(ep::matmul(ep::exp(a), b)); });
    const auto laid_out = ep::shard_like(ep::shard<ep::open, ep::open>(x) * 2.0, x);
    return ep::results(product(x, w), again(x, w), laid_out, ep::stop_gradient(x) * x, n);
  }
};

/// Beam search: the rows of each cache in the order of their parents. Nothing moves, forward or back.
template <class On> struct beams {
  constexpr auto operator()(auto caches, auto parents) const {
    const auto cache = ep::shard<typename On::data, ep::none, ep::none, ep::none>(caches);
    const auto pick = [](auto table, auto rows) { return ep::gather<0>(table, rows); };
    const auto loss = [&](auto table, auto rows) { return ep::sum(ep::sin(pick(table, rows))); };
    return ep::results(ep::vmap(pick)(cache, parents), ep::vmap(ep::grad<0>(loss))(cache, parents));
  }
};
template <class On> using beam_program = ep::program<typename On::mesh, beams<On>, ep::f32<8, 3, 16, 4>, ep::i32<8, 3>>;
static_assert(beam_program<on<2, 1>>::collectives() == 0 && beam_program<on<8, 1>>::collectives() == 0);

}  // namespace

TEST_CASE("elements, sums and products over rows are those of each row") {
  is_as_row_by_row<elements_and_sums>(on_four{}, 1);
}
TEST_CASE("movements within rows") { is_as_row_by_row<movements>(on_two{}, 11); }
TEST_CASE("lookups of each row, in its table or in one for all, send nothing") {
  static_assert(is_silent<lookups>);
  is_as_row_by_row<lookups>(on_eight{}, 21);
}
TEST_CASE("images and filters of each row") { is_as_row_by_row<images>(on_two{}, 31); }
TEST_CASE("loops that rows leave one after the other, and branches of which each takes its own") {
  is_as_row_by_row<regions>(on_four{}, 41);
}
TEST_CASE("gradients of the user's are mapped as well") { is_as_row_by_row<own_gradients>(on_two{}, 51); }
