// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The one place that knows where xtensor keeps its headers, and what compilers need to be told about them.

#include <cstddef>
#include <type_traits>

#if __has_include(<xtensor/containers/xadapt.hpp>)
#include <xtensor/containers/xadapt.hpp>
#include <xtensor/containers/xarray.hpp>
#include <xtensor/containers/xtensor.hpp>
#else

#if defined(__clang__) && __clang_major__ >= 19
// clang 19 finds two partial specialisations of xtensor 0.24's rebind_container equally good. A full one settles it.
#include <xtensor/xstorage.hpp>
#include <xtensor/xutils.hpp>
namespace xt {
template <> struct rebind_container<std::ptrdiff_t, svector<std::size_t, 4, std::allocator<std::size_t>, true>> {
  using type = svector<std::ptrdiff_t, 4, std::allocator<std::ptrdiff_t>, true>;
};
template <> struct rebind_container<std::size_t, svector<std::ptrdiff_t, 4, std::allocator<std::ptrdiff_t>, true>> {
  using type = svector<std::size_t, 4, std::allocator<std::size_t>, true>;
};
template <> struct rebind_container<std::size_t, svector<std::size_t, 4, std::allocator<std::size_t>, true>> {
  using type = svector<std::size_t, 4, std::allocator<std::size_t>, true>;
};
template <> struct rebind_container<std::ptrdiff_t, svector<std::ptrdiff_t, 4, std::allocator<std::ptrdiff_t>, true>> {
  using type = svector<std::ptrdiff_t, 4, std::allocator<std::ptrdiff_t>, true>;
};
}  // namespace xt
#endif

#include <xtensor/xadapt.hpp>
#include <xtensor/xarray.hpp>
#include <xtensor/xtensor.hpp>
#endif
