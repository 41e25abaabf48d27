// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/program.hpp>

#include <boost/hana/define_struct.hpp>

/// Mistakes of which the language lets a library say nothing: what compilers print of them themselves. docs/mistakes.md
/// says what is meant.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
#if defined(CASE_mesh)
using mesh = ep::mesh<2, 2>;  // mesh
#else
using mesh = ep::mesh<data>;
#endif

template <class Leaf> struct layer {
#if defined(CASE_comma)
  BOOST_HANA_DEFINE_STRUCT(layer, (ep::leaf<Leaf, ep::f32<8>>, w)(ep::leaf<Leaf, ep::f32<6>>, b));  // comma
#else
  BOOST_HANA_DEFINE_STRUCT(layer, (ep::leaf<Leaf, ep::f32<8>>, w), (ep::leaf<Leaf, ep::f32<6>>, b));
#endif
};

struct function {
  constexpr auto operator()(auto x, auto b) const {
    const auto loss = [](auto v, auto u) { return ep::sum(v * v) + ep::sum(u); };
#if defined(CASE_take)
    auto sum = ep::take<0, 0>(x);
    for (int i = 1; i < 3; ++i) sum = sum + ep::take<0, i>(x);  // take
    return sum;
#elif defined(CASE_names_too_many)
    const auto [value, of_x, of_b] = ep::value_and_grad<0, 1>(loss)(x, b);  // names_too_many
    return ep::results(value, of_x, of_b);
#elif defined(CASE_names_too_few)
    const auto [value] = ep::value_and_grad<0, 1>(loss)(x, b);  // names_too_few
    return value;
#else
    const auto [value, gradients] = ep::value_and_grad<0, 1>(loss)(x, b);
    return ep::results(value, gradients.template get<0>(), gradients.template get<1>());
#endif
  }
};

// clang-format off
using step = ep::program<mesh, function, ep::f32<8>, ep::f32<6>>;
static_assert(step::flops() > 0);  // the question

// first(CASE_mesh, g++): type/value mismatch at argument 1 in template parameter list for .*mesh
// first(CASE_mesh, clang): template argument for template type parameter must be a type
// expect(CASE_mesh): out_of_reach.cpp:\d+
// user_line(CASE_mesh): // mesh$
// budget(CASE_mesh): 20 40
// first(CASE_comma, g++): invalid declarator before ',' token
// first(CASE_comma, clang): expected '\)'
// expect(CASE_comma): out_of_reach.cpp:\d+
// user_line(CASE_comma): // comma$
// budget(CASE_comma): 40 90
// first(CASE_take, g++): no matching function for call to 'take<0, i>
// first(CASE_take, clang): no matching function for call to 'take'
// expect(CASE_take, g++): the value of 'i' is not usable in a constant expression
// expect(CASE_take, clang): invalid explicitly-specified argument for template parameter 'Index'
// user_line(CASE_take): // take$
// budget(CASE_take): 12 40
// first(CASE_names_too_many, g++): 3 names provided for structured binding
// first(CASE_names_too_many, clang): decomposes into 2 elements, but 3 names were provided
// expect(CASE_names_too_many): value_and_gradient
// user_line(CASE_names_too_many): // names_too_many$
// first(CASE_names_too_few, g++): only 1 name provided for structured binding
// first(CASE_names_too_few, clang): decomposes into 2 elements, but only 1 name was provided
// expect(CASE_names_too_few): value_and_gradient
// user_line(CASE_names_too_few): // names_too_few$
