// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/program.hpp>

#include <unistd.h>

/// Axes named as functions of C are: where both are global, the function hides the axis. In a namespace it does not,
/// nor where the axis is called `struct pipe`.
namespace ep = espalier;

struct pipe : ep::axis<"pipe", 2> {};

namespace layout {
struct link : ep::axis<"link", 2> {};
struct read : ep::axis<"read", 2> {};
using mesh = ep::mesh<link, read>;

struct function {
  constexpr auto operator()(auto x) const { return ep::tanh(ep::shard<link, read>(x)); }
};
using step = ep::program<mesh, function, ep::f32<8, 8>>;
static_assert(step::flops() > 0);
}  // namespace layout

struct function {
#if defined(CASE_annotation)
  constexpr auto operator()(auto x) const { return ep::tanh(ep::shard<pipe, ep::none>(x)); }  // annotation
#elif defined(CASE_reshard)
  constexpr auto operator()(auto x) const { return ep::tanh(ep::reshard<ep::none, pipe>(x)); }  // reshard
#else
  constexpr auto operator()(auto x) const { return ep::tanh(ep::shard<struct pipe, ep::none>(x)); }
#endif
};
#if defined(CASE_same_name)
struct other_link : ep::axis<"link", 2> {};
constexpr auto work = ep::mesh<layout::link, other_link>::devices;  // same_name
#elif defined(CASE_mesh)
constexpr auto work = ep::program<ep::mesh<pipe>, function, ep::f32<8, 8>>::flops();            // mesh
#else
constexpr auto work = ep::program<ep::mesh<struct pipe>, function, ep::f32<8, 8>>::flops();  // program
#endif

// clang-format off
// kind(CASE_mesh): `mesh<pipe>`, C's function
// first(CASE_mesh): (type/value mismatch|template argument for template type parameter must be a type)
// expect(CASE_mesh): pipe
// user_line(CASE_mesh): // mesh$
// kind(CASE_same_name): two axes of one name
// first(CASE_same_name): mesh: two axes have the same name, so that no table or message could tell one from the other
// expect(CASE_same_name): mesh<layout::link, other_link>
// user_line(CASE_same_name): // same_name$
// kind(CASE_annotation): `shard<pipe>`, C's function
// first(CASE_annotation): annotation: an axis is a type, and the name given here is a function's
// expect(CASE_annotation): axis_name_is_a_function<espalier::f32<8, 8> ?>::raise<espalier::why::at<espalier::why::line<27>
// user_line(CASE_annotation): // program$
// first(CASE_reshard): annotation: an axis is a type, and the name given here is a function's
// expect(CASE_reshard): axis_name_is_a_function<espalier::f32<8, 8> ?>::raise<espalier::why::at<espalier::why::line<29>
// user_line(CASE_reshard): // program$
// clang-format on
