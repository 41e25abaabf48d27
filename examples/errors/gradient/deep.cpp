// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// Does not compile, by design: a mistake in a loop over layers, in a function that is differentiated. The message is as
// long as at the top of a program. docs/errors.md quotes it.
#include <espalier/core.hpp>

#include <boost/hana/define_struct.hpp>

namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

template <class Leaf> struct dense {
  BOOST_HANA_DEFINE_STRUCT(dense, (ep::leaf<Leaf, ep::f32<256, 256>>, weight), (ep::leaf<Leaf, ep::f32<256>>, bias));
};
template <class Leaf> using stack = dense<ep::stacked<Leaf, 12>>;

struct layer {
  constexpr auto operator()(auto h, auto p) const {
    return ep::tanh(ep::matmul(h, p.weight) + ep::sum<1>(p.bias));  // the bias has one dimension, number 0
  }
};
struct loss_of {
  constexpr auto operator()(auto p, auto x) const { return ep::mean(ep::scan(layer{}, x, p)); }
};
struct train {
  constexpr auto operator()(auto p, auto x) const {
    const auto [loss, gradient] = ep::value_and_grad(loss_of{})(p, x);
    return ep::results(loss, gradient);
  }
};

using step = ep::program<mesh, train, stack<ep::spec>, ep::f32<64, 256>>;
static_assert(step::collectives<ep::all_gather>() == 0);
