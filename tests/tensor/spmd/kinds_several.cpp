// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

namespace ep = espalier;
using namespace testing::kinds;

// Ops with several results, and with more operands than an instruction has room for.

namespace {

// --- the largest elements, of rows that devices share and along a dimension that they share -------------------------

template <class On> struct largest {
  using data = typename On::data;
  constexpr auto operator()(auto x, auto weight) const {
    const auto loss = [&](const auto& all) {
      const auto [values, indices] = ep::top_k<1, 3>(ep::shard<data, ep::none>(all));
      const auto top = ep::max_with_index<0>(values * values);
      return ep::sum(weight * values) + ep::sum(top.values);
    };
    const auto [value, slope] = ep::value_and_grad(loss)(x);
    const auto [values, indices] = ep::top_k<-1, 3>(ep::shard<data, ep::none>(x));
    const auto of_columns = ep::top_k<0, 4>(ep::shard<data, ep::none>(x));
    const auto [most, where] = ep::max_with_index<1>(x);
    return ep::results(value, slope, values, indices, of_columns.values, of_columns.indices, most, where);
  }
};
template <class On> using largest_program = ep::program<typename On::mesh, largest<On>, ep::f64<5, 7>, ep::f64<5, 3>>;
// Rows stay where they are, forward and back.
template <class On> struct largest_of_rows {
  constexpr auto operator()(auto x) const {
    const auto loss = [](const auto& all) {
      return ep::sum(ep::top_k<1, 2>(ep::shard<typename On::data, ep::none>(all)).values);
    };
    return ep::value_and_grad(loss)(x).gradient;
  }
};
static_assert(ep::program<on<4, 1>::mesh, largest_of_rows<on<4, 1>>, ep::f64<8, 7>>::collectives() <= 1);

/// The largest of the devices' parts of the dimension itself; no number of devices shares its 37 elements evenly.
template <class On> struct largest_of_parts {
  static constexpr auto top(const auto& all) { return ep::top_k<0, 3>(ep::shard<typename On::data, ep::none>(all)); }
  constexpr auto operator()(auto x, auto weight) const {
    const auto [value, slope] =
        ep::value_and_grad([&](const auto& all) { return ep::sum(weight * top(all).values); })(x);
    const auto [values, indices] = top(x);
    return ep::results(value, slope, values, indices);
  }
};
template <class On>
using largest_of_parts_program = ep::program<typename On::mesh, largest_of_parts<On>, ep::f64<37, 3>, ep::f64<3, 3>>;
// Three numbers and three places of each part move, in one collective.
template <class On> struct found_in_parts {
  constexpr auto operator()(auto x) const { return largest_of_parts<On>::top(x).indices; }
};
using found_on_four = ep::program<on<4, 1>::mesh, found_in_parts<on<4, 1>>, ep::f32<1000, 3>>;
static_assert(found_on_four::collectives() == 1 && found_on_four::bytes<ep::all_gather>() == 3 * 3 * 3 * (4 + 4));

/// The first `count` places of a line of elements: the largest first, of equal ones the first.
std::vector<int> places_of(const std::vector<real>& line, int count) {
  std::vector<int> places(line.size());
  for (std::size_t n = 0; n < line.size(); ++n) places[n] = static_cast<int>(n);
  std::stable_sort(places.begin(), places.end(),
                   [&](int a, int b) { return line[static_cast<std::size_t>(a)] > line[static_cast<std::size_t>(b)]; });
  places.resize(static_cast<std::size_t>(count));
  return places;
}
std::vector<real> line_of(const plain& x, int along, int at) {
  std::vector<real> line;
  for (int n = 0; n < x.size(along); ++n) line.push_back(along == 1 ? x(at, n) : x(n, at));
  return line;
}

real plain_largest(const plains& in) {
  real sum = 0;
  plain top({5, 3});
  for (int r = 0; r < 5; ++r) {
    const std::vector<int> places = places_of(line_of(in[0], 1, r), 3);
    for (int j = 0; j < 3; ++j) {
      const real value = in[0](r, places[static_cast<std::size_t>(j)]);
      sum += in[1](r, j) * value;
      top(r, j) = value * value;
    }
  }
  for (int j = 0; j < 3; ++j) {
    const std::vector<real> column = line_of(top, 0, j);
    sum += *std::max_element(column.begin(), column.end());
  }
  return sum;
}

// --- of every type --------------------------------------------------------------------------------------------------

template <class On, ep::dtype Type> struct typed {
  constexpr auto operator()(auto x) const {
    const auto top = ep::top_k<0, 2>(ep::convert<Type>(ep::shard<typename On::data, ep::none>(x)));
    return ep::results(ep::convert<ep::dtype::f64>(top.values), top.indices);
  }
};

// --- many operands --------------------------------------------------------------------------------------------------

template <class On> struct joined {
  using data = typename On::data;
  constexpr auto operator()(auto a, auto b, auto c, auto weight) const {
    const auto loss = [&](const auto& p) {
      const auto rows = ep::shard<data, ep::none>(p);
      const auto all = ep::shard<data, ep::none>(ep::concat<0>(rows, b, c, a * rows, c, b, rows + a));
      const auto layers = ep::shard<data, ep::none, ep::none>(ep::stack<0>(rows, a, rows, a, rows * rows, a));
      return ep::sum(weight * all * all) + ep::sum(layers * layers);
    };
    const auto [value, slope] = ep::value_and_grad(loss)(a);
    return ep::results(value, slope, ep::stack<2>(a, a + 1.0, a, a, 2.0 * a, a), ep::concat<1>(b, b, c, b, c, b));
  }
};
template <class On>
using joined_program =
    ep::program<typename On::mesh, joined<On>, ep::f64<3, 2>, ep::f64<1, 2>, ep::f64<1, 2>, ep::f64<13, 2>>;
// One op joins all: what each lacks comes in one exchange for each of its operands at most.
template <class Program> constexpr int count_of(const ep::op_info& op) {
  int count = 0;
  for (const ep::instruction& i : Program::code.code) count += i.op == &op ? 1 : 0;
  return count;
}

real plain_joined(const plains& in, const plain& a) {
  std::vector<plain> parts{a, in[1], in[2], a, in[2], in[1], a};
  for (int r = 0; r < 3; ++r) {
    for (int k = 0; k < 2; ++k) {
      parts[3](r, k) *= in[0](r, k);
      parts[6](r, k) += in[0](r, k);
    }
  }
  real sum = 0;
  int row = 0;
  for (const plain& part : parts) {
    for (int r = 0; r < part.size(0); ++r, ++row) {
      for (int k = 0; k < 2; ++k) sum += in[3](row, k) * part(r, k) * part(r, k);
    }
  }
  for (int r = 0; r < 3; ++r) {
    for (int k = 0; k < 2; ++k) {
      const real x = a(r, k);
      sum += 2 * x * x + x * x * x * x + 3 * in[0](r, k) * in[0](r, k);
    }
  }
  return sum;
}

/// Distinct numbers in no order.
plain scattered(std::vector<std::int64_t> shape) {
  plain x(std::move(shape));
  for (std::size_t n = 0; n < x.data.size(); ++n) x.data[n] = static_cast<real>((n * 17 + 5) % 37) / 8 - 2;
  return x;
}

}  // namespace

TEST_CASE("the largest elements, where they are, and what flows back to them") {
  const plains in{scattered({5, 7}), scattered({5, 3})};
  plains expected = value_and_slopes(plain_largest, in, 1);
  plain values({5, 3});
  plain indices({5, 3});
  plain most({5});
  plain where({5});
  for (int r = 0; r < 5; ++r) {
    const std::vector<int> places = places_of(line_of(in[0], 1, r), 3);
    for (int j = 0; j < 3; ++j) {
      indices(r, j) = places[static_cast<std::size_t>(j)];
      values(r, j) = in[0](r, places[static_cast<std::size_t>(j)]);
    }
    most(r) = values(r, 0);
    where(r) = indices(r, 0);
  }
  plain column_values({4, 7});
  plain column_indices({4, 7});
  for (int k = 0; k < 7; ++k) {
    const std::vector<int> places = places_of(line_of(in[0], 0, k), 4);
    for (int j = 0; j < 4; ++j) {
      column_indices(j, k) = places[static_cast<std::size_t>(j)];
      column_values(j, k) = in[0](places[static_cast<std::size_t>(j)], k);
    }
  }
  for (const plain& one : {values, indices, column_values, column_indices, most, where}) expected.push_back(one);
  everywhere<largest_program>(data_axis{}, in, expected, 1e-8);
}

TEST_CASE("the largest elements of parts of a dimension, low and equal ones among them") {
  plains in{scattered({37, 3}), scattered({3, 3})};
  // A part that has fewer elements than are wanted must not add any: here all but two are lower than a zero.
  for (int r = 0; r < 37; ++r) in[0](r, 1) = r == 35 || r == 20 ? r : -r - 100;
  for (int r = 0; r < 37; ++r) in[0](r, 2) = r % 3;
  real value = 0;
  plain slope({37, 3});
  plain values({3, 3});
  plain indices({3, 3});
  for (int k = 0; k < 3; ++k) {
    const std::vector<int> places = places_of(line_of(in[0], 0, k), 3);
    for (int j = 0; j < 3; ++j) {
      const int r = places[static_cast<std::size_t>(j)];
      indices(j, k) = r;
      values(j, k) = in[0](r, k);
      slope(r, k) = in[1](j, k);
      value += in[1](j, k) * in[0](r, k);
    }
  }
  everywhere<largest_of_parts_program>(data_axis{}, in, plains{plain::number(value), slope, values, indices}, 1e-8);
}

namespace {
template <class On> using typed_f32 = ep::program<typename On::mesh, typed<On, ep::dtype::f32>, ep::f64<48, 5>>;
template <class On> using typed_f16 = ep::program<typename On::mesh, typed<On, ep::dtype::f16>, ep::f64<48, 5>>;
template <class On> using typed_bf16 = ep::program<typename On::mesh, typed<On, ep::dtype::bf16>, ep::f64<48, 5>>;
template <class On> using typed_i8 = ep::program<typename On::mesh, typed<On, ep::dtype::i8>, ep::f64<48, 5>>;
template <class On> using typed_i32 = ep::program<typename On::mesh, typed<On, ep::dtype::i32>, ep::f64<48, 5>>;
template <class On> using typed_u32 = ep::program<typename On::mesh, typed<On, ep::dtype::u32>, ep::f64<48, 5>>;
template <class On> using typed_i64 = ep::program<typename On::mesh, typed<On, ep::dtype::i64>, ep::f64<48, 5>>;
template <class On> using typed_f64 = ep::program<typename On::mesh, typed<On, ep::dtype::f64>, ep::f64<48, 5>>;
template <class On> using typed_bool = ep::program<typename On::mesh, typed<On, ep::dtype::boolean>, ep::f64<48, 5>>;

using each_count = meshes<on<1, 1>, on<2, 1>, on<4, 1>>;
/// How rows are divided does not depend on their type.
using other_types = few_or_all<meshes<on<4, 1>>, each_count>;

/// Whole numbers from 0 to 4: each column has equal ones. `most` is the largest that the type tells from others.
void check_type(const auto& run, int most) {
  plain x({48, 5});
  for (int r = 0; r < 48; ++r) {
    for (int k = 0; k < 5; ++k) x(r, k) = (r * 7 + k * 3 + r * k) % 5;
  }
  plain values({2, 5});
  plain indices({2, 5});
  for (int k = 0; k < 5; ++k) {
    std::vector<real> column = line_of(x, 0, k);
    for (real& one : column) one = std::min(one, static_cast<real>(most));
    const std::vector<int> places = places_of(column, 2);
    for (int j = 0; j < 2; ++j) {
      indices(j, k) = places[static_cast<std::size_t>(j)];
      values(j, k) = column[static_cast<std::size_t>(places[static_cast<std::size_t>(j)])];
    }
  }
  run(plains{x}, plains{values, indices});
}
}  // namespace

TEST_CASE("the largest elements of every type; of equal ones the first") {
  check_type([](const plains& in, const plains& out) { everywhere<typed_f32>(each_count{}, in, out); }, 4);
  check_type([](const plains& in, const plains& out) { everywhere<typed_f16>(other_types{}, in, out); }, 4);
  check_type([](const plains& in, const plains& out) { everywhere<typed_bf16>(other_types{}, in, out); }, 4);
  check_type([](const plains& in, const plains& out) { everywhere<typed_i8>(other_types{}, in, out); }, 4);
  check_type([](const plains& in, const plains& out) { everywhere<typed_i32>(other_types{}, in, out); }, 4);
  check_type([](const plains& in, const plains& out) { everywhere<typed_u32>(other_types{}, in, out); }, 4);
  check_type([](const plains& in, const plains& out) { everywhere<typed_i64>(other_types{}, in, out); }, 4);
  check_type([](const plains& in, const plains& out) { everywhere<typed_f64>(other_types{}, in, out); }, 4);
  check_type([](const plains& in, const plains& out) { everywhere<typed_bool>(other_types{}, in, out); }, 1);
}

TEST_CASE("seven tensors joined and six stacked, along split dimensions and others") {
  const plains in{scattered({3, 2}), scattered({1, 2}), scattered({1, 2}), scattered({13, 2})};
  // The gradient is by the first argument of the loss alone: whatever else the body reaches is a constant.
  plains expected = value_and_slopes([&](const plains& p) { return plain_joined(in, p[0]); }, in, 1);
  plain stacked({3, 2, 6});
  for (int r = 0; r < 3; ++r) {
    for (int k = 0; k < 2; ++k) {
      const real x = in[0](r, k);
      const real all[]{x, x + 1, x, x, 2 * x, x};
      for (int n = 0; n < 6; ++n) stacked(r, k, n) = all[n];
    }
  }
  plain beside({1, 12});
  const int which[]{1, 1, 2, 1, 2, 1};
  for (int n = 0; n < 6; ++n) {
    for (int k = 0; k < 2; ++k) beside(0, 2 * n + k) = in[static_cast<std::size_t>(which[n])](0, k);
  }
  expected.push_back(stacked);
  expected.push_back(beside);
  everywhere<joined_program>(data_axis{}, in, expected, 1e-8);
  CHECK(count_of<joined_program<on<4, 1>>>(ep::ops::concat) == 4);
}
