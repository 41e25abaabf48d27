// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

#include <espalier/core.hpp>
#include <espalier/manual.hpp>

namespace ep = espalier;
using namespace testing::kinds;

/// Programs that name the axes of two meshes over the same devices.

namespace {

/// Data x Model devices, and the same as Rows x Columns, in the same order or with columns first.
template <int Data, int Model, int Rows, int Columns> struct twice {
  struct data : ep::axis<"data", Data> {};
  struct model : ep::axis<"model", Model> {};
  struct rows : ep::axis<"rows", Rows> {};
  struct columns : ep::axis<"columns", Columns> {};
  using mesh = ep::joint_mesh<ep::mesh<data, model>, ep::mesh<rows, columns>>;
};
struct turned : twice<2, 4, 4, 2> {
  using mesh = ep::joint_mesh<ep::mesh<data, model>, ep::device_ids<ep::mesh<rows, columns>, 0, 4, 1, 5, 2, 6, 3, 7>>;
};

/// A mesh of two axes, and the same devices counted backwards as another mesh.
template <class First, class Second, class Data, class Model> struct backwards {
  template <int... Position>
  static ep::joint_mesh<
      ep::mesh<First, Second>,
      ep::device_ids<ep::mesh<Data, Model>, (static_cast<int>(sizeof...(Position)) - 1 - Position)...>>
      all(std::integer_sequence<int, Position...>);
  using mesh = decltype(all(std::make_integer_sequence<int, Data::size * Model::size>{}));
};

/// The same devices counted backwards along one axis or both, and the second axis in the order of a ring.
template <int Data, int Model> struct back : twice<Data, Model, Data, Model> {
  using base = twice<Data, Model, Data, Model>;
  using mesh =
      typename backwards<typename base::data, typename base::model, typename base::rows, typename base::columns>::mesh;
};
struct half_back : twice<2, 2, 2, 2> {
  using mesh = ep::joint_mesh<ep::mesh<data, model>, ep::device_ids<ep::mesh<rows, columns>, 2, 3, 0, 1>>;
};
struct ringed : twice<2, 4, 2, 4> {
  using mesh = ep::joint_mesh<ep::mesh<data, model>, ep::device_ids<ep::mesh<rows, columns>, 4, 5, 7, 6, 0, 1, 3, 2>>;
};
/// Backwards across the axes of the other mesh.
struct across : twice<2, 4, 8, 1> {
  using mesh = ep::joint_mesh<ep::mesh<data, model>, ep::device_ids<ep::mesh<rows, columns>, 7, 6, 5, 4, 3, 2, 1, 0>>;
};

/// A layer whose hidden values go from blocks of one mesh to blocks of the other, with its gradient.
template <class On> struct layer {
  constexpr auto operator()(auto x, auto w, auto v) const {
    const auto loss = [&](const auto& p) {
      const auto h = ep::shard<typename On::data, typename On::model>(ep::matmul(x, p.template get<0>()));
      const auto y = ep::matmul(ep::shard<typename On::rows, typename On::columns>(ep::tanh(h)), p.template get<1>());
      return ep::mean(y * y);
    };
    const auto [value, slopes] = ep::value_and_grad(loss)(ep::results(w, v));
    return ep::results(value, slopes.template get<0>(), slopes.template get<1>());
  }
};
template <class On>
using layer_program = ep::program<typename On::mesh, layer<On>, ep::sharded<ep::f64<7, 5>, typename On::rows, ep::none>,
                                  ep::sharded<ep::f64<5, 9>, ep::none, typename On::model>, ep::f64<9, 3>>;

real plain_layer(const plains& in) {
  real total = 0;
  for (int n = 0; n < 7; ++n) {
    real y[3]{};
    for (int k = 0; k < 9; ++k) {
      real h = 0;
      for (int i = 0; i < 5; ++i) h += in[0](n, i) * in[1](i, k);
      for (int j = 0; j < 3; ++j) y[j] += std::tanh(h) * in[2](k, j);
    }
    for (const real one : y) total += one * one / 21;
  }
  return total;
}

TEST_CASE("kinds: axes of two meshes over the same devices", "[kinds]") {
  const plains in{wave(1, {7, 5}), wave(2, {5, 9}), wave(3, {9, 3})};
  plains out{plain::number(plain_layer(in)), slope(plain_layer, in, 1), slope(plain_layer, in, 2)};
  everywhere<layer_program>(
      meshes<twice<1, 1, 1, 1>, twice<1, 2, 2, 1>, twice<2, 2, 4, 1>, twice<2, 4, 4, 2>, turned>{}, in, out);
  everywhere<layer_program>(few_or_all<meshes<back<1, 2>, half_back, across>,
                                       meshes<back<1, 2>, back<2, 2>, back<2, 4>, half_back, ringed, across>>{},
                            in, out);
}

template <class On> struct change {
  constexpr auto operator()(auto x) const {
    return ep::shard<typename On::rows, typename On::columns>(ep::shard<typename On::data, typename On::model>(x) *
                                                              2.0);
  }
};
template <class On>
using change_program =
    ep::program<typename On::mesh, change<On>, ep::sharded<ep::f64<8, 8>, typename On::data, typename On::model>>;

TEST_CASE("kinds: from blocks of one mesh to those of another", "[kinds]") {
  const plain x = wave(4, {8, 8});
  plain y = x;
  for (real& one : y.data) one *= 2;
  // Device (d, m1, c) has rows of half d and two columns from 4 m1 + 2 c on; it gets two rows of this half and four
  // columns from 4 c on. Where m1 and c differ none of the eight elements stay, each of 8 bytes.
  using same = twice<2, 4, 4, 2>;
  gives<change_program<same>>({x}, {y});
  CHECK(change_program<same>::bytes<ep::exchange>() == 64);
  // Columns first: device (d, m) gets rows 2 m and columns of half d, and has columns 2 m of the rows of half d.
  // Whoever has none of what it gets sends all eight.
  gives<change_program<turned>>({x}, {y});
  CHECK(change_program<turned>::bytes<ep::exchange>() == 64);
  // Of two meshes with the same axes nothing is sent.
  using alike = twice<2, 2, 2, 2>;
  gives<change_program<alike>>({x}, {y});
  CHECK(change_program<alike>::collectives() == 0);
}

/// The same in the other direction, and from blocks of a mesh to rows or columns of the other one.
template <class On, bool Back> struct turn {
  constexpr auto operator()(auto x) const {
    if constexpr (Back)
      return ep::shard<typename On::data, typename On::model>(x * 2.0);
    else
      return ep::shard<typename On::rows, typename On::columns>(x * 2.0);
  }
};
template <class On, class Rows, class Columns> struct to_blocks {
  constexpr auto operator()(auto x) const { return ep::reshard<Rows, Columns>(x); }
};
template <class On, class FromRows, class FromColumns, class Rows, class Columns>
using blocks_program =
    ep::program<typename On::mesh, to_blocks<On, Rows, Columns>, ep::sharded<ep::f64<8, 8>, FromRows, FromColumns>>;
template <class On, class FromRows, class FromColumns, class Rows, class Columns, class Kind>
void moves(std::int64_t bytes) {
  using program = blocks_program<On, FromRows, FromColumns, Rows, Columns>;
  const plain x = wave(9, {8, 8});
  gives<program>({x}, {x});
  CHECK(program::collectives() == 1);
  CHECK(program::template bytes<Kind>() == bytes);
}

TEST_CASE("kinds: a mesh and the same devices counted backwards", "[kinds]") {
  using two = back<2, 2>;
  using data = two::data;
  using model = two::model;
  using rows = two::rows;
  using columns = two::columns;
  // A shard has 16 elements of 8 bytes: all of it goes to the device at the other end.
  moves<two, data, model, rows, columns, ep::collective_permute>(128);
  moves<two, rows, columns, data, model, ep::collective_permute>(128);
  moves<two, data, model, rows, model, ep::collective_permute>(128);
  // XLA's ReshardBetweenPermutedMeshesWithReplicatedAxes permutes shards and gathers them along `columns`, 128 bytes
  // each. One exchange sends as much: of the 32 elements that a device wants it has none.
  moves<two, data, model, rows, ep::none, ep::exchange>(256);
  moves<two, data, ep::none, rows, ep::none, ep::collective_permute>(256);
  // A gather alone, as all of it is wanted, whatever the order is.
  moves<two, rows, ep::none, ep::none, ep::none, ep::all_gather>(256);
  // In the same order to another dimension: half of the 32 elements that a device has.
  moves<two, rows, ep::none, ep::none, rows, ep::all_to_all>(128);
  // Each axis for itself: the exact bytes of eight devices, where two of four along the ring stay where they are.
  moves<ringed, ringed::data, ringed::model, ringed::data, ringed::columns, ep::collective_permute>(64);
  moves<across, ep::axes<across::data, across::model>, ep::none, across::rows, ep::none, ep::collective_permute>(64);

  // What is laid out in the same order on both sides is not sent, and no operator between adds a move.
  using same = ep::program<two::mesh, turn<two, false>, ep::sharded<ep::f64<8, 8>, rows, columns>>;
  CHECK(same::collectives() == 0);
  using to_front = ep::program<two::mesh, turn<two, true>, ep::sharded<ep::f64<8, 8>, rows, columns>>;
  CHECK(to_front::collectives() == 1);
  CHECK(to_front::bytes<ep::collective_permute>() == 128);
}

/// Operators on values that are laid out in the other order, and with values of the first mesh.
template <class On> struct operators {
  static constexpr auto laid(auto x) { return ep::shard<typename On::rows, typename On::columns>(x); }
  constexpr auto operator()(auto x, auto z, auto w, auto order) const {
    const auto loss = [&](const auto& p) {
      const auto a = laid(p.template get<0>());
      const auto b = p.template get<1>();
      const auto halos = laid(ep::shift<0, 1>(a) * b + ep::shift<1, -2>(a));
      const auto both = laid(ep::concat<0>(a, halos));
      const auto part = laid(ep::slice<0, 3, 11>(both));
      const auto product = ep::matmul(ep::tanh(a), p.template get<2>());
      const auto flat = ep::shard<typename On::columns>(ep::reshape<70>(halos));
      const auto rows = laid(ep::gather<0>(a, order));
      const auto sums = ep::cumsum<0>(a);
      const auto steps = ep::repeat<3>([&](auto v) { return laid(v * 0.5 + ep::roll<0, 1>(a)); }, a);
      return ep::sum(product * product) + ep::sum(ep::max<1>(part)) + ep::sum(flat * flat) + ep::sum(rows * b) +
             ep::sum(sums * b) + ep::sum(steps * steps);
    };
    const auto [value, slopes] = ep::value_and_grad(loss)(ep::results(x, z, w));
    const auto a = laid(x);
    return ep::results(value, slopes.template get<0>(), slopes.template get<1>(), slopes.template get<2>(),
                       ep::sum<0>(a), ep::max<1>(a), ep::reverse<0>(a), ep::shift<0, 2>(a));
  }
};
template <class On>
using operators_program =
    ep::program<typename On::mesh, operators<On>, ep::sharded<ep::f64<7, 10>, typename On::rows, typename On::columns>,
                ep::sharded<ep::f64<7, 10>, typename On::data, typename On::model>,
                ep::sharded<ep::f64<10, 5>, typename On::columns, ep::none>,
                ep::sharded<ep::i32<7>, typename On::rows>>;

real plain_operators(const plains& in) {
  const plain& a = in[0];
  const plain& b = in[1];
  const int rows = a.size(0);
  const int columns = a.size(1);
  real total = 0;
  plain halos({rows, columns});
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      halos(i, j) = (i >= 1 ? a(i - 1, j) : 0) * b(i, j) + (j + 2 < columns ? a(i, j + 2) : 0);
      total += halos(i, j) * halos(i, j);
    }
    for (int k = 0; k < in[2].size(1); ++k) {
      real product = 0;
      for (int j = 0; j < columns; ++j) product += std::tanh(a(i, j)) * in[2](j, k);
      total += product * product;
    }
  }
  for (int i = 3; i < 11; ++i) {
    const auto at = [&](int j) { return i < rows ? a(i, j) : halos(i - rows, j); };
    real most = at(0);
    for (int j = 1; j < columns; ++j) most = std::max(most, at(j));
    total += most;
  }
  plain steps = a;
  for (int j = 0; j < columns; ++j) {
    real sum = 0;
    for (int i = 0; i < rows; ++i) {
      sum += a(i, j);
      total += sum * b(i, j) + a(static_cast<int>(in[3](i)), j) * b(i, j);
    }
  }
  for (int n = 0; n < 3; ++n) {
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < columns; ++j) steps(i, j) = steps(i, j) / 2 + a((i + rows - 1) % rows, j);
    }
  }
  for (const real one : steps.data) total += one * one;
  return total;
}

TEST_CASE("kinds: operators on values that are laid out backwards", "[kinds]") {
  const plains in{wave(5, {7, 10}), wave(6, {7, 10}), wave(7, {10, 5}), indices(8, {7}, 7)};
  plains out = value_and_slopes(plain_operators, in, 3);
  plain sums({10});
  plain most({7}, -9);
  plain turned_rows({7, 10});
  plain moved({7, 10});
  for (int i = 0; i < 7; ++i) {
    for (int j = 0; j < 10; ++j) {
      sums(j) += in[0](i, j);
      most(i) = std::max(most(i), in[0](i, j));
      turned_rows(i, j) = in[0](6 - i, j);
      moved(i, j) = i >= 2 ? in[0](i - 2, j) : 0;
    }
  }
  for (const plain& one : {sums, most, turned_rows, moved}) out.push_back(one);
  everywhere<operators_program>(
      few_or_all<meshes<back<2, 2>, ringed>, meshes<back<1, 2>, back<2, 2>, half_back, back<2, 4>, ringed, across>>{},
      in, out);
}

/// Of two meshes of 2 x 4 and 4 x 2, `data` and `columns` are axes of both. By hand along `columns`, along which
/// `outward` is cut, between values that are laid out by the axes of either mesh.
template <class On> struct hand_over_columns {
  constexpr auto operator()(auto x, auto inward, auto outward) const {
    namespace spmd = ep::spmd;
    using columns = typename On::columns;
    const auto block = ep::manual<columns>(
        [](auto shard, auto in, auto out) {
          const auto terms = spmd::as_partial<columns>(ep::matmul(ep::tanh(ep::matmul(shard, in)), out));
          return spmd::psum<columns>(terms);
        },
        ep::in_specs<ep::dims<>, ep::dims<ep::none, columns>, ep::dims<columns>>(), ep::out_specs<ep::dims<>>());
    const auto loss = [&](const auto& p) {
      const auto y = block(ep::reshard<typename On::rows, ep::none>(x), p.template get<0>(), p.template get<1>());
      return ep::mean(y * y);
    };
    const auto [value, slopes] = ep::value_and_grad(loss)(ep::results(inward, outward));
    return ep::results(value, slopes.template get<0>(), slopes.template get<1>());
  }
};
template <class On>
using hand_program = ep::program<typename On::mesh, hand_over_columns<On>,
                                 ep::sharded<ep::f64<8, 5>, typename On::data, ep::none>, ep::f64<5, 8>, ep::f64<8, 3>>;

real plain_hand(const plains& in) {
  real total = 0;
  for (int n = 0; n < 8; ++n) {
    real y[3]{};
    for (int k = 0; k < 8; ++k) {
      real h = 0;
      for (int i = 0; i < 5; ++i) h += in[0](n, i) * in[1](i, k);
      for (int j = 0; j < 3; ++j) y[j] += std::tanh(h) * in[2](k, j);
    }
    for (const real one : y) total += one * one / 24;
  }
  return total;
}

TEST_CASE("kinds: code by hand along an axis that two meshes have in common", "[kinds]") {
  const plains in{wave(9, {8, 5}), wave(10, {5, 8}), wave(11, {8, 3})};
  plains out{plain::number(plain_hand(in)), slope(plain_hand, in, 1), slope(plain_hand, in, 2)};
  everywhere<hand_program>(meshes<twice<2, 4, 4, 2>>{}, in, out);
}

}  // namespace
