// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

#include <array>
#include <cstdint>

/// Constants whose elements stand in the source, of every rank and element type, split like any tensor.
namespace ep = espalier;
using namespace testing::kinds;

namespace {

using table_meshes = few_or_all<meshes<on<2, 2>, on<4, 1>>, meshes<on<1, 1>, on<2, 1>, on<1, 2>, on<2, 2>, on<4, 1>>>;

constexpr std::array<std::array<float, 3>, 5> matrix{
    {{1, 2, 3}, {4, 5.5F, 6}, {-7, 8, 9}, {10, 11, 12}, {13, 14, 15.25F}}};
constexpr double cube[2][3][2]{{{1, 2}, {3, 4}, {5, 6}}, {{7, 8}, {9, 10}, {11, 12.5}}};
constexpr std::array<std::int64_t, 3> large{9007199254740993, -9007199254740993, 5};  // no doubles
constexpr std::uint8_t bytes[7]{0, 1, 127, 128, 200, 254, 255};
constexpr std::array<bool, 5> mask{true, false, false, true, true};
constexpr float number = 2.5F;
constexpr std::array<int, 6> whole{-3, 2, 100, 0, 5, -128};
constexpr std::array<unsigned, 2> natural{4294967295U, 7};

template <class On> struct tables {
  constexpr auto operator()(auto x) const {
    using data = typename On::data;
    using model = typename On::model;
    const auto m = ep::shard<data, model>(ep::constant<matrix>(x));
    const auto c = ep::shard<ep::none, model, data>(ep::constant<cube>(x));
    const auto large_ones = ep::shard<data>(ep::constant<large>(x));  // next to each other in the order of doubles
    const auto loss = [&](auto y) { return ep::sum(ep::matmul(y, m) * ep::constant<number>(y)); };
    const auto small = ep::shard<ep::axes<data, model>>(ep::constant<ep::i8<6>, whole>(x));
    return ep::results(m, c, ep::remainder(large_ones, 10), ep::shard<data>(ep::constant<bytes>(x)),
                       ep::shard<data>(ep::constant<mask>(x)), ep::constant<number>(x), small, ep::constant<natural>(x),
                       ep::constant<ep::f64<2, 3>, whole>(x), ep::constant<ep::bf16<3, 2>, whole>(x),
                       ep::constant<ep::f16<6>, whole>(x), ep::constant<ep::boolean<6>, whole>(x),
                       ep::constant<ep::f32<15>, matrix>(x), ep::grad(loss)(x));
  }
};
template <class On> using tables_program = ep::program<typename On::mesh, tables<On>, ep::f32<3, 5>>;

plain of(std::vector<std::int64_t> shape, std::initializer_list<real> values) {
  plain made(std::move(shape));
  made.data.assign(values);
  return made;
}

template <class On> struct added_rows {
  static constexpr float row[5]{1, 2, 3, 4, 5};
  constexpr auto operator()(auto x) const {
    return ep::repeat<3>([](auto h) { return h + ep::constant<ep::f32<5>, row>(h); }, x);
  }
};
template <class On> using added_rows_program = ep::program<typename On::mesh, added_rows<On>, ep::f32<3, 5>>;

// A table that is split takes the memory of a part.
struct large_table {
  static constexpr std::array<float, 4096> zeros{};
  constexpr auto operator()(auto x) const { return ep::sum(ep::shard<on<4, 1>::data>(x) * ep::constant<zeros>(x)); }
};
using split_table = ep::program<on<4, 1>::mesh, large_table, ep::f32<4096>>;
static_assert(split_table::collectives() == 1 && split_table::arena_bytes() <= 4096 + 256);
}  // namespace

TEST_CASE("tables in the source are constants of any rank and element type") {
  const plain x = wave(1, {3, 5});
  plain m({5, 3}), by({3, 5});
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 3; ++j) m(i, j) = matrix[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
    for (int j = 0; j < 3; ++j) { by(j, i) = static_cast<real>(number) * (m(i, 0) + m(i, 1) + m(i, 2)); }
  }
  plain flat({15});
  flat.data = m.data;
  const std::initializer_list<real> six{-3, 2, 100, 0, 5, -128};
  const plains expected{m,
                        of({2, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12.5L}),
                        of({3}, {3, -3, 5}),
                        of({7}, {0, 1, 127, 128, 200, 254, 255}),
                        of({5}, {1, 0, 0, 1, 1}),
                        plain::number(2.5L),
                        of({6}, six),
                        of({2}, {4294967295.0L, 7}),
                        of({2, 3}, six),
                        of({3, 2}, six),
                        of({6}, six),
                        of({6}, {1, 1, 1, 0, 1, 1}),
                        flat,
                        by};
  everywhere<tables_program>(table_meshes{}, {x}, expected, 1e-7);
}

TEST_CASE("a table in a loop") {
  const plain x = wave(1, {3, 5});
  plain after = x;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 5; ++j) after(i, j) += 3 * (j + 1);
  }
  everywhere<added_rows_program>(table_meshes{}, {x}, {after}, 1e-6);
}
