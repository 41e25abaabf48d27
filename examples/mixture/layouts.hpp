// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "model.hpp"

#include <espalier/core.hpp>

#include <cstdint>

/// Two layouts of the mixture on four devices, and what each sends in a step of training, counted by hand.
namespace mixture {

using ep::none;
using ep::reshard;
using ep::shard;

/// Annotates nothing. Layouts derive from it and say what they place.
struct as_it_is {
  static constexpr auto bsm(const auto& v) { return v; }
  /// What is sent to the experts and what they answer, [E, B, C, M], where the tokens are and where the experts are.
  static constexpr auto of_tokens(const auto& v) { return v; }
  static constexpr auto to_experts(const auto& v) { return v; }
  static constexpr auto of_experts(const auto& v) { return v; }
  static constexpr auto to_tokens(const auto& v) { return v; }
  static constexpr auto ebch(const auto& v) { return v; }
  static constexpr auto emh(const auto& weight) { return weight; }
  static constexpr auto ehm(const auto& weight) { return weight; }
};

/// Each device has some texts and some experts.
struct n : ep::axis<"n", 4> {};
struct experts : as_it_is {
  static constexpr auto bsm(const auto& v) { return shard<n, none, none>(v); }
  static constexpr auto emh(const auto& weight) { return shard<n, none, none>(weight); }
  static constexpr auto ehm(const auto& weight) { return shard<n, none, none>(weight); }
};

/// Texts and experts over x, the experts' products over y (the GSPMD paper, figure 8b). The changes of layout in the
/// middle are written out, so that tokens are gathered along y after they are sent along x, as the paper has it.
/// Without them both is one exchange of as many bytes.
struct x : ep::axis<"x", 2> {};
struct y : ep::axis<"y", 2> {};
struct hybrid : as_it_is {
  static constexpr auto bsm(const auto& v) { return shard<x, none, y>(v); }
  static constexpr auto of_tokens(const auto& v) { return shard<none, x, none, y>(v); }
  static constexpr auto to_experts(const auto& v) { return reshard<x, none, none, y>(v); }
  static constexpr auto of_experts(const auto& v) { return shard<x, none, none, y>(v); }
  static constexpr auto to_tokens(const auto& v) { return reshard<none, x, none, y>(v); }
  static constexpr auto ebch(const auto& v) { return shard<x, none, none, y>(v); }
  static constexpr auto emh(const auto& weight) { return shard<x, none, y>(weight); }
  static constexpr auto ehm(const auto& weight) { return shard<x, y, none>(weight); }
};

// The bytes that a device sends, by hand. An all-gather to n bytes over d devices, and a reduce-scatter of n bytes,
// send n (d - 1) / d, an all-reduce twice that, and an all-to-all n (d - 1) / d of the n bytes that each device has.
// Where an all-reduce's elements cannot be divided equally, the device with one more sends most.
constexpr std::int64_t gather(std::int64_t bytes, std::int64_t devices) { return bytes / devices * (devices - 1); }
constexpr std::int64_t scatter(std::int64_t bytes, std::int64_t devices) { return gather(bytes, devices); }
constexpr std::int64_t to_all(std::int64_t bytes, std::int64_t devices) { return gather(bytes, devices); }
constexpr std::int64_t reduce(std::int64_t bytes, std::int64_t devices) {
  const std::int64_t elements = bytes / 4;
  const std::int64_t own = (elements + devices - 1) / devices;
  return 4 * (elements - own + own * (devices - 1));
}
inline constexpr std::int64_t taken = 4 * E * B * C * M;  // all that experts are sent, and all that they answer
inline constexpr std::int64_t stream = 4 * B * S * M;
inline constexpr std::int64_t odds = 4 * B * S * E;
inline constexpr std::int64_t one = 4;

// Tokens travel to their experts, the answers back, and so do the gradients of both: four times the places that a
// device's texts have with all experts. The gradients of the experts' weights need no collective. The gradients of the
// other two are summed in one message, and the balance, two numbers for each expert, with the loss in another.
using experts_step = training<ep::mesh<n>, experts>;
static_assert(experts_step::collectives<ep::all_to_all, n>() == 4);
static_assert(experts_step::bytes<ep::all_to_all>() == 4 * to_all(taken / 4, 4));
static_assert(experts_step::collectives<ep::all_reduce, n>() == 2);
static_assert(experts_step::bytes<ep::all_reduce>() == reduce(4 * (M * M + M * E), 4) + reduce(4 * 2 * E + one, 4));
static_assert(experts_step::collectives() == 4 + 2);
// A quarter of the experts, of x and of target; all of the other two.
static_assert(experts_step::argument_bytes() == 2 * 4 * E * M * H / 4 + 4 * (M * M + M * E) + 2 * stream / 4);

// Forward the paper's order: to the experts along x, an all-gather along y, the two products, a reduce-scatter along y,
// and back along x. The gradient goes the same way in reverse. No expert's weight moves.
inline constexpr std::int64_t X = 2;
inline constexpr std::int64_t Y = 2;
using hybrid_step = training<ep::mesh<x, y>, hybrid>;
static_assert(hybrid_step::collectives<ep::all_to_all, x>() == 4);
static_assert(hybrid_step::bytes<ep::all_to_all>() == 4 * to_all(taken / (X * Y), X));
// M is split by y, so the dense layer ends with a reduce-scatter, too, and its gradient begins with an all-gather.
static_assert(hybrid_step::collectives<ep::all_gather, y>() == 2 + 1);
static_assert(hybrid_step::bytes<ep::all_gather>() == 2 * gather(taken / X, Y) + gather(stream / X, Y));
static_assert(hybrid_step::collectives<ep::reduce_scatter, y>() == 2 + 1);
static_assert(hybrid_step::bytes<ep::reduce_scatter>() == 2 * scatter(taken / X, Y) + scatter(stream / X, Y));
// What sums over M is summed over y: the gate, and the gradient of `combine`, one number for each place of each token.
// The gradients of dense layer and gate, of which each device has the rows of its part of M, are summed over x, and so
// is the balance; the loss over all.
static_assert(hybrid_step::collectives<ep::all_reduce>() == 5);
static_assert(hybrid_step::bytes<ep::all_reduce>() == reduce(odds / X, Y) + reduce(odds * C / X, Y) +
                                                          reduce(4 * (M * M + M * E) / Y, X) + reduce(4 * 2 * E, X) +
                                                          reduce(one, X* Y));
static_assert(hybrid_step::collectives() == 4 + 3 + 3 + 5);
static_assert(hybrid_step::argument_bytes() ==
              2 * 4 * E * M * H / (X * Y) + 4 * (M * M + M * E) / Y + 2 * stream / (X * Y));

}  // namespace mixture
