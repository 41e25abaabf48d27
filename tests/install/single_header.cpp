// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
//
// What somebody types into Compiler Explorer: one header, and the compiler says what moves.
#include "espalier_core.hpp"

namespace ep = espalier;
using namespace ep::literals;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};

struct mlp {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    const auto h = ep::shard<data, model>(ep::relu(ep::einsum<"bm,mh->bh">(x, w_in)));
    return ep::einsum<"bh,hm->bm">(h, w_out);
  }
};
using step = ep::program<ep::mesh<data, model>, mlp, ep::f32<64, 256>, ep::f32<256, 1024>, ep::f32<1024, 256>>;
static_assert(step::collectives() == 1 && step::collectives<ep::all_reduce>() == 1);
static_assert(step::bytes<ep::all_reduce>() == 32 * 1024);
static_assert(step::peak_bytes_per_device() <= 2_MiB);
static_assert(ESPALIER_VERSION ==
              ESPALIER_VERSION_MAJOR * 10000 + ESPALIER_VERSION_MINOR * 100 + ESPALIER_VERSION_PATCH);
