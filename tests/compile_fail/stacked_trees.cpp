// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/program.hpp>

#include <boost/hana/define_struct.hpp>

/// A tree whose leaves have scan's dimension already.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};

template <class Leaf> struct one_layer {
  BOOST_HANA_DEFINE_STRUCT(one_layer, (ep::leaf<Leaf, ep::f32<4, 4>>, weight));
};
template <class Leaf> struct three_layers {
  BOOST_HANA_DEFINE_STRUCT(three_layers, (ep::leaf<Leaf, ep::f32<3, 4, 4>>, weight));
};

struct forward {
  constexpr auto operator()(auto x, const auto& layers) const {
    const auto body = [](auto c, const auto& layer) { return ep::tanh(ep::matmul(c, layer.weight)); };
    return ep::scan(body, x, layers);  // scanned
  }
};
#if defined(CASE_leaves)
using layers = three_layers<ep::spec>;
#else
using layers = one_layer<ep::stacked<ep::spec, 3>>;
#endif
static_assert(ep::program<ep::mesh<data>, forward, ep::f32<4, 4>, layers>::collectives() == 0);

// clang-format off
// first(CASE_leaves): scan: the tree is one layer, and not a stack of them. Declare a layer, without the dimension over which scan runs
// expect(CASE_leaves): leaves_are_not_stacked<three_layers<espalier::symbols<espalier::mesh<data> ?> ?> ?>::raise<espalier::why::at<espalier::why::line<22>
// user_line(CASE_leaves): collectives.. == 0
// kind(CASE_leaves): `scan` over a tree whose leaves are stacked already
