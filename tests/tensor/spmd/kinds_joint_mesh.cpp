// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

#include <espalier/core.hpp>

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

}  // namespace
