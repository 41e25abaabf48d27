// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/collective.hpp>

#include <concepts>

namespace espalier {

namespace detail {
template <collective Kind> struct collective_type { static constexpr collective kind = Kind; };
}  // namespace detail

/// The kinds of communication, as types for queries: `step::collectives<all_gather>()`.
struct all_gather : detail::collective_type<collective::all_gather> {};
struct all_to_all : detail::collective_type<collective::all_to_all> {};
struct collective_permute : detail::collective_type<collective::collective_permute> {};
struct reduce_scatter : detail::collective_type<collective::reduce_scatter> {};
struct all_reduce : detail::collective_type<collective::all_reduce> {};
struct exchange : detail::collective_type<collective::exchange> {};

template <class T>
concept CollectiveKind = requires {
  { T::kind } -> std::convertible_to<collective>;
};

namespace detail {

/// The type of a kind.
template <collective Kind> struct type_of_collective;
template <> struct type_of_collective<collective::all_gather> { using type = espalier::all_gather; };
template <> struct type_of_collective<collective::all_to_all> { using type = espalier::all_to_all; };
template <> struct type_of_collective<collective::collective_permute> { using type = espalier::collective_permute; };
template <> struct type_of_collective<collective::reduce_scatter> { using type = espalier::reduce_scatter; };
template <> struct type_of_collective<collective::all_reduce> { using type = espalier::all_reduce; };
template <> struct type_of_collective<collective::exchange> { using type = espalier::exchange; };

}  // namespace detail

}  // namespace espalier
