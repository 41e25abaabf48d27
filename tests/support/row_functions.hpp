// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/naive.hpp>
#include <espalier/testing/random_graph.hpp>
#include <espalier/vmap.hpp>

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

/// Functions of one row, between them of every operator, to be mapped over rows or run by a device each.
namespace espalier::test::row_functions {

namespace ep = espalier;

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
inline constexpr int height = 4, width = 6, taken = 3;

using values = std::vector<tensor_value>;

inline tensor_value wave(int seed, const extents& shape) {
  tensor_value made{shape, {}};
  dice random(static_cast<std::uint32_t>(seed));
  for (std::int64_t i = 0; i < shape.elements(); ++i) made.data.push_back(random.integer(-1000, 1000) / 1001.0);
  return made;
}
template <int Rows> values row_arguments(int seed) {
  tensor_value n = wave(seed + 1, extents{2, {taken, Rows}});
  for (double& one : n.data) one = std::floor(one * 3.5 + 2.5);  // -1 ... 5: some are out of range
  return {wave(seed, extents{3, {Rows, height, width}}), n, wave(seed + 2, extents{2, {width, 5}})};
}

inline tensor_value slice_of(const tensor_value& all, int dim, int at) {
  tensor_value one{detail::without_dimension(all.shape, dim), {}};
  const std::int64_t inner = all.shape.product(dim + 1, all.shape.rank);
  for (std::int64_t i = 0; i < one.shape.elements(); ++i)
    one.data.push_back(all.data[static_cast<std::size_t>((i / inner * all.shape[dim] + at) * inner + i % inner)]);
  return one;
}
inline tensor_value joined_rows(const values& rows) {
  tensor_value all{detail::with_dimension(rows[0].shape, 0, static_cast<std::int64_t>(rows.size())), {}};
  for (const tensor_value& row : rows) all.data.insert(all.data.end(), row.data.begin(), row.data.end());
  return all;
}
inline tensor_value added(const values& rows) {
  tensor_value sum = rows[0];
  for (std::size_t r = 1; r < rows.size(); ++r) {
    for (std::size_t i = 0; i < sum.data.size(); ++i) sum.data[i] += rows[r].data[i];
  }
  return sum;
}

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
    const auto one_way = ep::cond(
        first > 2, [&] { return ep::sin(x); }, [&] { return ep::matmul(x, ep::matmul(w, ep::transpose<1, 0>(w))); });
    const auto one_of = ep::switch_case(
        first, [&] { return x; }, [&] { return x * x; }, [&] { return ep::exp(x); });
    return ep::results(ep::results(scanned.template get<0>(), scanned.template get<1>()), rows_of_w, repeated, many,
                       ep::results(one_way, one_of));
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

// --- maps in maps ---------------------------------------------------------------------------------------------------

struct nested {
  constexpr auto operator()(auto x, auto n, auto w) const {
    const auto layer = [](auto row, auto v) { return ep::tanh(ep::matmul(row, v)); };
    const auto looked_up = ep::vmap<1, ep::unmapped>([](auto column, auto at) { return ep::gather<0>(column, at); },
                                                     ep::out_dims<-1>)(x, n);
    const auto slopes =
        ep::vmap<0, ep::unmapped>(ep::grad<1>([=](auto row, auto v) { return ep::sum(ep::sin(layer(row, v))); }))(x, w);
    const auto until = ep::vmap<0>([](auto row) {
      return ep::while_loop([](auto s) { return ep::sum(ep::abs(s)) > 1.0; }, [](auto s) { return s * 0.6; }, row,
                            ep::at_most_iterations<6>);
    })(x);
    const auto in_loop = ep::repeat<2>(
        [&](auto h) {
          return ep::vmap<0, 0>([](auto a, auto b) {
            return ep::cond(
                ep::sum(a) > 0.0, [&] { return a * b; }, [&] { return ep::sin(a) - b; });
          })(h, x);
        },
        x);
    const auto product =
        ep::custom_gradient([](auto a, auto b) { return ep::matmul(a, b); },
                            [](auto a, auto b, auto value, auto into) {
                              return ep::results(ep::matmul(b, into) * 2.0,
                                                 ep::expand_dims<1>(a) * ep::expand_dims<0>(into * ep::cos(value)));
                            });
    return ep::results(ep::vmap<0, ep::unmapped>(layer)(x, w), looked_up, slopes,
                       ep::results(until, in_loop, ep::vmap<0, ep::unmapped>(product)(x, w)));
  }
};

}  // namespace espalier::test::row_functions
