// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// Does not compile, by design: the program gathers what its budget says it must not. docs/errors.md quotes what
// compilers say.
#include <espalier/core.hpp>

namespace ep = espalier;
using namespace ep::literals;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using mesh = ep::mesh<data, model>;

struct mlp {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    const auto h = ep::shard<data, model>(ep::relu(ep::einsum<"bm,mh->bh">(x, w_in)));
    const auto y = ep::einsum<"bh,hm->bm">(h, w_out);
    return ep::reshard<ep::none, ep::none>(ep::tanh(y));  // the whole batch on every device
  }
};

using step = ep::program<mesh, mlp, ep::f32<64, 256>, ep::f32<256, 1024>, ep::f32<1024, 256>>;
static_assert(ep::budget<step, ep::at_most<ep::all_gather, 0>, ep::fits_in<2_MiB>>::holds);
