// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/manual.hpp>
#include <espalier/tensor/core/program/explicit_mode.hpp>

#include <cstdint>
#include <type_traits>

/// What functions of one shard send, and the states in the types of shards.
namespace ep = espalier;
namespace spmd = espalier::spmd;
using ep::dims;
using ep::in_specs;
using ep::none;
using ep::out_specs;

namespace {

/// Shards of 8 x 64 elements, 2048 bytes, on as many devices.
constexpr std::int64_t n = 8 * 64 * 4;
template <int Devices> struct on {
  struct model : ep::axis<"model", Devices> {};
  using mesh = ep::mesh<model>;

  struct all {
    constexpr auto operator()(auto x) const {
      return ep::manual<model>(
          [](auto s) {
            return ep::results(spmd::psum<model>(s), spmd::all_gather<model>(s), spmd::psum_scatter<model, 1>(s),
                               spmd::all_to_all<model, 1, 0>(s), spmd::permute<model, 1>(s));
          },
          in_specs<dims<model>>(), out_specs<dims<>, dims<>, dims<none, model>, dims<model>, dims<model>>())(x);
    }
  };
  using program = ep::program<mesh, all, ep::f32<8 * Devices, 64>>;
  // All is written: explicit mode takes it as it is.
  using written = ep::explicit_program<mesh, all, ep::sharded<ep::f32<8 * Devices, 64>, model, none>>;

  static constexpr bool sends_the_least =
      program::template bytes<ep::all_reduce>() == 2 * n * (Devices - 1) / Devices &&
      program::template bytes<ep::all_gather>() == n * (Devices - 1) &&
      program::template bytes<ep::reduce_scatter>() == n * (Devices - 1) / Devices &&
      program::template bytes<ep::all_to_all>() == n * (Devices - 1) / Devices &&
      program::template bytes<ep::exchange>() == n && program::collectives() == 5;
};
static_assert(on<2>::sends_the_least);
static_assert(on<4>::sends_the_least);
static_assert(on<8>::sends_the_least);
static_assert(on<4>::written::collectives() == 5);

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 4> {};
using mesh = ep::mesh<data, model>;

/// Gradients send what transposes send: of an all_gather a reduce_scatter, of a psum nothing.
struct transposes {
  constexpr auto operator()(auto x, auto w) const {
    const auto loss = [](auto rows, auto v) {
      const auto out = ep::manual<model>(
          [](auto s, auto u) {
            const auto all = spmd::all_gather<model>(s);  // f32[16, 32], read by what varies
            return spmd::psum<model>(ep::sum(ep::sin(ep::matmul(all, u))));
          },
          in_specs<dims<model>, dims<none, model>>(), out_specs<dims<>>())(rows, v);
      return out;
    };
    return ep::value_and_grad<0>(loss)(x, w);
  }
};
using back = ep::program<ep::mesh<model>, transposes, ep::f32<16, 32>, ep::f32<32, 8>>;
static_assert(back::bytes<ep::all_gather>() == 4 * 32 * 4 * 3);
static_assert(back::bytes<ep::reduce_scatter>() == 16 * 32 * 4 * 3 / 4);
static_assert(back::collectives() == 3);  // and the loss

/// The state of each tensor, in its type.
struct states {
  constexpr auto operator()(auto x, auto w) const {
    return ep::manual<data, model>(
        [](auto s, auto v) {
          using shard = decltype(s);
          using weight = decltype(v);
          static_assert(std::is_same_v<typename shard::tensor, ep::f32<8, 6>>);
          static_assert(spmd::is_varying<data, shard> && spmd::is_invariant<model, shard>);
          static_assert(spmd::is_invariant<data, weight> && spmd::is_varying<model, weight>);
          using product = decltype(ep::matmul(s, v));
          static_assert(spmd::is_varying<data, product> && spmd::is_varying<model, product>);
          const auto terms = spmd::as_partial<model>(ep::matmul(s, v));
          static_assert(spmd::is_partial<model, decltype(2.0 * terms)> && !spmd::is_varying<model, decltype(terms)>);
          static_assert(spmd::is_partial<model, decltype(ep::matmul(terms, v))>);  // times what varies
          const auto sum = spmd::psum<model>(terms);
          static_assert(spmd::is_invariant<model, decltype(sum)> && spmd::is_varying<data, decltype(sum)>);
          static_assert(spmd::is_varying<model, decltype(spmd::pvary<model>(sum))>);
          static_assert(spmd::is_invariant<data, decltype(spmd::axis_index<model>(s))>);
          return spmd::psum<data>(sum);
        },
        in_specs<dims<data>, dims<none, model>>(), out_specs<dims<>>())(x, w);
  }
};
static_assert(ep::program<mesh, states, ep::f32<16, 6>, ep::f32<6, 24>>::collectives() > 0);

}  // namespace
