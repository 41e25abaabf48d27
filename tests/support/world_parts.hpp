// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/optimizers.hpp>
#include <espalier/tensor/run/execute/runner.hpp>
#include <espalier/tensor/run/execute/world.hpp>
#include <support/run_program.hpp>

/// A world of four devices comes apart into one device and a row of three, as threads and as ranks.
namespace testing {

struct whole_axis : ep::axis<"whole", 4> {};
struct part_axis : ep::axis<"part", 3> {};
using whole_mesh = ep::mesh<whole_axis>;
using single_mesh = ep::mesh<>;
using part_mesh = ep::mesh<part_axis>;

/// Sums over the mesh, and seven rows on three devices.
template <class Axis> struct divided_work {
  constexpr auto operator()(auto x, auto w) const {
    const auto loss = [](auto weights, auto rows) {
      return ep::mean(ep::tanh(ep::einsum<"bk,kc->bc">(rows, weights)));
    };
    return ep::value_and_grad(loss)(w, ep::shard<Axis, ep::none>(x));
  }
};
using whole_program = ep::program<whole_mesh, divided_work<whole_axis>, ep::f64<7, 5>, ep::f64<5, 3>>;
using single_program = ep::program<single_mesh, divided_work<ep::none>, ep::f64<7, 5>, ep::f64<5, 3>>;
using part_program = ep::program<part_mesh, divided_work<part_axis>, ep::f64<7, 5>, ep::f64<5, 3>>;
static_assert(part_program::collectives<ep::all_reduce>() > 0 && whole_program::collectives<ep::all_reduce>() > 0);

}  // namespace testing
