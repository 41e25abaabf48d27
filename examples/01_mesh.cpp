// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Meshes, tensors and layouts: what the types know before anything runs.

#include <espalier/core.hpp>
#include <espalier/tensor/core/sharding/print.hpp>

#include <iostream>

namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 3> {};
using mesh = ep::mesh<data, model>;

/// A program that only says where its argument lies.
struct place {
  constexpr auto operator()(auto x) const { return ep::shard<data, model>(x); }
};
using step = ep::program<mesh, place, ep::f32<4, 10>>;

static_assert(mesh::devices == 6);
static_assert(step::collectives() == 0);

int main() {
  const ep::layout& x = step::argument_layout(0);
  std::cout << "x is " << ep::to_string(mesh::value, ep::dtype::f32, x.shape, x.placement) << '\n';
  const ep::extents local = ep::local_shape(mesh::value, x.shape, x.placement);
  std::cout << "every device has a buffer of " << local[0] << " x " << local[1] << '\n';
  for (int device = 0; device < mesh::devices; ++device) {
    const ep::interval rows = ep::local_interval(mesh::value, x.shape[0], x.placement.dim[0], device);
    const ep::interval columns = ep::local_interval(mesh::value, x.shape[1], x.placement.dim[1], device);
    std::cout << "device " << device << " holds rows " << rows.start << " to " << rows.start + rows.size - 1
              << ", columns " << columns.start << " to " << columns.start + columns.size - 1 << '\n';
  }
  return std::cout.flush() ? 0 : 1;
}
