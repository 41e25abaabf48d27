// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

// First, so that a message about a mistake need not list the way here.
#include <espalier/tensor/core/diagnostics/report.hpp>

#include <espalier/tensor/core/graph/called_from.hpp>
#include <espalier/tensor/core/program/check_call.hpp>
#include <espalier/tensor/core/program/program.hpp>

#include <cstdint>

/// Explicit mode: a program, or a part of one, in which nothing moves between devices that its author did not write.
namespace espalier {

namespace detail {

/// A function in whose calls collectives that nobody wrote may be of these kinds only: a bit for each `collective`.
template <class Function, std::uint32_t Allowed> struct function_in_mode {
  Function function;

  template <class... Arguments>
    requires requires(const Function& f, const Arguments&... given) { f(given...); }
  constexpr auto operator()(const Arguments&... given) const {
    builder* owner = nullptr;
    ((owner = owner == nullptr ? owner_of(given) : owner), ...);
    const caller_entry scope(owner, scope_entry(Allowed));
    return function(given...);
  }
};
template <class Function, std::uint32_t Allowed> struct written_function<function_in_mode<Function, Allowed>> {
  using type = typename written_function<Function>::type;
};
template <class... Kinds>
inline constexpr std::uint32_t bits_of_kinds = (0U | ... | bit_of(static_cast<int>(Kinds::kind)));

}  // namespace detail

/// The function `f` in explicit mode: communication that it does not write does not compile. A user writes
/// communication by a `shard` or `reshard` that changes a layout, or that gives a sum the layout it is to have, and by
/// `shard_like` and `shard_as`; their gradients are written with them. All else that would move something, such as an
/// operand in the wrong layout, a sum over a split dimension, or a gradient that devices have terms of, is the error
/// `communication_not_written`: it names the line, and lists the layouts that the line's result may have with the bytes
/// that a device sends for each.
///
///     constexpr auto mlp = ep::explicit_mode([](auto x, auto w_in, auto w_out) {  // x: f32[64@data, 256]
///       const auto h = ep::relu(ep::matmul(x, w_in));                             // f32[64@data, 1024@model]
///       return ep::shard<data, ep::none>(ep::matmul(h, w_out));                   // written: an all_reduce over model
///     });
///
/// `Allowed` are kinds of collectives that need not be written, as in `explicit_mode<exchange>(stencil)`, whose halos
/// are exchanged. Modes nest, and the innermost counts: see `auto_mode`. The program of such a function is an
/// `explicit_program`, or `compile<mesh, f32<64, 256>, ...>(explicit_mode(f))`. The mode costs nothing at run time.
template <CollectiveKind... Allowed, class Function> constexpr auto explicit_mode(const Function& f) {
  return detail::function_in_mode<Function, detail::bits_of_kinds<Allowed...>>{f};
}

/// The function `f` in automatic mode, where the compiler communicates as it needs: a part of a program in explicit
/// mode that need not write what it moves, such as an optimizer: `auto_mode([](auto state, auto gradient) { return
/// adamw_step(state, gradient, rate); })(state, gradient)`. A program is in automatic mode where nothing else is said.
template <class Function> constexpr auto auto_mode(const Function& f) {
  return detail::function_in_mode<Function, detail::all_kinds_allowed>{f};
}

/// The program of `Function` in explicit mode: `explicit_program<mesh, mlp, f32<64, 256>, f32<256, 1024>>`.
template <class Mesh, class Function, class... Arguments>
using explicit_program = program<Mesh, detail::function_in_mode<Function, 0>, Arguments...>;

}  // namespace espalier
