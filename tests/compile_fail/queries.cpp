// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/program.hpp>

/// Questions about values that a program does not have.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using mesh = ep::mesh<data, model>;

struct mlp {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    auto h = ep::relu(ep::einsum<"bm,mh->bh">(x, w_in));
    h = ep::label<"hidden">(ep::shard<data, model>(h));
    return ep::label<"out">(ep::einsum<"bh,hm->bm">(h, w_out));
  }
};
using step = ep::program<mesh, mlp, ep::f32<64, 256>, ep::f32<256, 1024>, ep::f32<1024, 256>>;

static_assert(step::layout_of("hidden").placement.dim[0].contains(0));
static_assert(step::layout_of("out").shape[1] == 256);
static_assert(step::argument_layout(2).shape[0] == 1024);
static_assert(step::result_layout(0).shape[0] == 64);

// The compilers say that the assertion is no constant, then why: the name of the function says it, and its template
// arguments say what there is.
// clang-format off
// expect(CASE_label): no_value_has_this_label.*text<'h', 'i', 'd', 'd', 'e', 'n'>, (espalier::why::)?text<'o', 'u', 't'> ?[>}]
// expect(CASE_label): layout_of\(.*"hiden"
// user_line(CASE_label): the question: label
// budget(CASE_label): 5 16
// kind(CASE_label): `layout_of`: a label that no value has
// expect(CASE_no_label): no_value_has_this_label(<>|.*with Labels = {})
// user_line(CASE_no_label): the question: no label
// budget(CASE_no_label): 5 16
// kind(CASE_no_label): `layout_of` in a program without labels
// expect(CASE_argument): no_argument_has_this_number(<espalier::why::|.*with Count = )count<3>
// expect(CASE_argument): argument_layout\(3\)
// user_line(CASE_argument): the question: argument
// budget(CASE_argument): 5 16
// kind(CASE_argument): `argument_layout`: no such argument
// expect(CASE_result): no_result_has_this_number(<espalier::why::|.*with Count = )count<1>
// expect(CASE_result): result_layout\(-1\)
// user_line(CASE_result): the question: result
// budget(CASE_result): 5 16
// kind(CASE_result): `result_layout`: no such result
// A program with a mistake reports that, and answers no questions.
// first(CASE_mistake): einsum: the same label stands for two different sizes
// expect(CASE_mistake): queries.cpp:\d+
// budget(CASE_mistake): 6 20
// clang-format on
#if defined(CASE_label)
static_assert(step::layout_of("hiden").placement.dim[0].contains(0));  // the question: label
#elif defined(CASE_no_label)
struct nothing_labelled {
  constexpr auto operator()(auto x) const { return ep::tanh(x); }
};
using plain = ep::program<mesh, nothing_labelled, ep::f32<64>>;
constexpr ep::layout found = plain::layout_of("hidden");  // the question: no label
#elif defined(CASE_argument)
static_assert(step::argument_layout(3).shape[0] == 64);  // the question: argument
#elif defined(CASE_result)
static_assert(step::result_layout(-1).shape[0] == 64);  // the question: result
#elif defined(CASE_mistake)
using wrong = ep::program<mesh, mlp, ep::f32<64, 256>, ep::f32<255, 1024>, ep::f32<1024, 256>>;
static_assert(wrong::layout_of("hidden").shape.rank >= 0 && wrong::argument_layout(7).shape.rank >= 0);
#endif
