// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// Does not compile, by design: one dimension of w_in is wrong. docs/errors.md quotes what compilers say.
#include <espalier/core.hpp>

namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using mesh = ep::mesh<data, model>;

struct mlp {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    const auto h = ep::relu(ep::einsum<"bm,mh->bh">(x, w_in));  // m is 256 in x, and 255 in w_in
    return ep::einsum<"bh,hm->bm">(h, w_out);
  }
};

using step = ep::program<mesh, mlp, ep::f32<64, 256>, ep::f32<255, 1024>, ep::f32<1024, 256>>;
static_assert(step::collectives() == 0);
