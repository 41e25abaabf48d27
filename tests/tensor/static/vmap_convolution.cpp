// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include <espalier/core.hpp>
#include <espalier/vmap.hpp>

// A convolution and both of its gradients are mapped where they are compiled: filters of stages, each on its own
// device.
namespace ep = espalier;

struct stage : ep::axis<"stage", 2> {};
inline constexpr ep::convolution_settings around{.low = {1}, .high = {1}};
struct filtered {
  constexpr auto operator()(auto images, auto filters) const {
    const auto loss = [](const auto& x, const auto& w) {
      return ep::sum(ep::vmap([](auto image, auto filter) { return ep::convolution<around>(image, filter); })(x, w));
    };
    return ep::grad<0, 1>(loss)(ep::shard<stage, ep::none, ep::none, ep::none>(images), filters);
  }
};
using program = ep::program<ep::mesh<stage>, filtered, ep::f32<2, 3, 8, 4>, ep::f32<2, 3, 4, 5>>;
static_assert(program::collectives() == 0);
