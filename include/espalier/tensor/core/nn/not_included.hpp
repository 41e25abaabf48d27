// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/diagnostics/failure.hpp>
#include <espalier/tensor/core/diagnostics/not_included.hpp>
#include <espalier/tensor/core/nn/warm_up_settings.hpp>

/// The learning-rate schedules (nn/schedules.hpp), which `espalier/espalier.hpp` leaves out: a program that calls one
/// without `espalier/nn.hpp` is told to include it, as for the functions of diagnostics/not_included.hpp. The rate that
/// a call returns is a mistake that has been reported, so that the rest of the program adds no errors.
/// (The results are `auto` because the compiler makes such a function on the line that calls it.)
namespace espalier::not_included::schedules {

using rate = failed<detail::reported>;

template <class Call = void> constexpr auto constant_rate(any_argument /*step*/, any_argument /*rate*/) {
  static_assert(header_is_included<Call>,
                "constant_rate: espalier.hpp does not bring it. Add #include <espalier/nn.hpp>.");
  return rate{};
}
template <class Call = void>
constexpr auto linear_rate(any_argument /*step*/, any_argument /*from*/, any_argument /*to*/, any_argument /*steps*/) {
  static_assert(header_is_included<Call>,
                "linear_rate: espalier.hpp does not bring it. Add #include <espalier/nn.hpp>.");
  return rate{};
}
template <class Call = void>
constexpr auto cosine_rate(any_argument /*step*/, any_argument /*from*/, any_argument /*to*/, any_argument /*steps*/) {
  static_assert(header_is_included<Call>,
                "cosine_rate: espalier.hpp does not bring it. Add #include <espalier/nn.hpp>.");
  return rate{};
}
template <class Call = void>
constexpr auto warm_up_cosine(any_argument /*step*/, const nn::warm_up_settings& /*settings*/) {
  static_assert(header_is_included<Call>,
                "warm_up_cosine: espalier.hpp does not bring it. Add #include <espalier/nn.hpp>.");
  return rate{};
}
template <class Call = void>
constexpr auto warm_up_linear(any_argument /*step*/, const nn::warm_up_settings& /*settings*/) {
  static_assert(header_is_included<Call>,
                "warm_up_linear: espalier.hpp does not bring it. Add #include <espalier/nn.hpp>.");
  return rate{};
}
template <class Call = void>
constexpr auto inverse_square_root(any_argument /*step*/, any_argument /*peak*/, any_argument /*warm_up*/) {
  static_assert(header_is_included<Call>,
                "inverse_square_root: espalier.hpp does not bring it. Add #include <espalier/nn.hpp>.");
  return rate{};
}
template <class Call = void> constexpr auto relative_step(any_argument /*step*/) {
  static_assert(header_is_included<Call>,
                "relative_step: espalier.hpp does not bring it. Add #include <espalier/nn.hpp>.");
  return rate{};
}
template <class Call = void> constexpr auto average_decay(any_argument /*step*/, any_argument /*decay*/) {
  static_assert(header_is_included<Call>,
                "average_decay: espalier.hpp does not bring it. Add #include <espalier/nn.hpp>.");
  return rate{};
}

}  // namespace espalier::not_included::schedules

namespace espalier::nn {
using namespace not_included::schedules;  // NOLINT: see above
}  // namespace espalier::nn
