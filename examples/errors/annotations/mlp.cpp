// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// Does not compile, by design: two annotations contradict each other. docs/errors.md quotes what compilers say.
#include <espalier/core.hpp>

namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using mesh = ep::mesh<data, model>;

struct mlp {
  constexpr auto operator()(auto x, auto w) const {
    const auto h = ep::shard<data, model>(ep::einsum<"bm,mh->bh">(x, w));
    return ep::relu(ep::shard<model, ep::none>(h));  // h is f32[64@data, 1024@model] already
  }
};

using step = ep::program<mesh, mlp, ep::f32<64, 256>, ep::f32<256, 1024>>;
static_assert(step::collectives() == 0);
