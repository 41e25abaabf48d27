// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/espalier.hpp>

namespace ep = espalier;
struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

struct total {
  constexpr auto operator()(auto x) const { return ep::sum(ep::shard<data>(x)); }
};
using step = ep::program<mesh, total, ep::f32<8>>;

float sum_of(ep::world& world, const ep::sharded_array<ep::f32<>>& sum);
