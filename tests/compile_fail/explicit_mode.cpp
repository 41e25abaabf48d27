// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/explicit_mode.hpp>

/// Communication that a program in explicit mode does not write.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 4> {};
using mesh = ep::mesh<data, model>;

struct network {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    const auto h = ep::relu(ep::matmul(x, w_in));                        // f32[64@data, 1024@model]
    const auto whole = ep::shard<data, ep::none>(ep::matmul(h, w_out));  // a sum over model
#if defined(CASE_sum)
    return ep::results(whole, ep::relu(ep::matmul(2 * h, w_out)));  // sum
#elif defined(CASE_mean)
    return ep::mean(whole * whole);  // mean
#elif defined(CASE_operand)
    return whole + ep::reshard<ep::none, data>(x);  // operand
#elif defined(CASE_maximum)
    return ep::max<0>(whole);  // maximum
#elif defined(CASE_gradient)
    const auto loss = [&](auto w) {
      const auto terms = ep::matmul(x, w);  // gradient: each part of the batch has terms of it
      return ep::shard<>(ep::sum(terms));
    };
    return ep::results(whole, ep::grad(loss)(w_in));
#elif defined(CASE_inner)
    const auto part = ep::explicit_mode([](auto v) { return ep::exp(ep::sum<0>(v)); });  // inner
    return ep::auto_mode([&](auto v) { return ep::sum(v) + ep::sum(part(v)); })(whole);
#elif defined(CASE_kind)
    const auto rows = ep::explicit_mode<ep::exchange>([](auto v) { return ep::roll<0, 1>(v) + ep::sum(v); });  // kind
    return rows(whole);
#elif defined(CASE_halo)
    return ep::roll<0, 1>(whole);  // halo
#elif defined(CASE_body)
    return no_such_function(whole);
#else
    const auto mean = ep::shard<>(ep::mean(whole * whole));
    const auto columns = ep::reshard<data, ep::none>(ep::reshard<ep::none, model>(x)) + whole;
    const auto largest = ep::auto_mode([](auto v) { return ep::max<0>(v); })(columns);
    const auto loss = [&](auto w) { return ep::shard<>(ep::sum(ep::matmul(x, w))); };
    const auto gradient = ep::reshard<ep::none, model>(ep::grad(loss)(w_in));
    const auto rows = ep::explicit_mode<ep::exchange>([](auto v) { return ep::roll<0, 1>(v); })(whole);
    return ep::results(mean, columns, largest, gradient, rows);
#endif
  }
};

// clang-format off
// kind(CASE_sum): explicit mode: a sum over a split dimension
// first(CASE_sum): explicit mode: this line communicates, and nothing says that it may. Write shard<...> of its result with a layout of those listed
// expect(CASE_sum): communication_not_written<espalier::all_reduce, espalier::why::along<model>, espalier::f32<64, 256>, espalier::why::bytes<49152>, espalier::why::output<espalier::why::annotated<data, espalier::none, espalier::unreduced<model> ?>, espalier::why::bytes<0> ?>
// expect(CASE_sum): output<espalier::why::annotated<data, model>, espalier::why::bytes<24576> ?>
// expect(CASE_sum): output<espalier::why::annotated<data, espalier::none>, espalier::why::bytes<49152> ?> ?>::raise<espalier::why::at<espalier::why::line<17>
// user_line(CASE_sum): step::collectives
// budget(CASE_sum): 5 16
// first(CASE_mean): explicit mode: this line communicates
// expect(CASE_mean): communication_not_written<espalier::all_reduce, espalier::why::along<data>, espalier::f32<>, espalier::why::bytes<4>, espalier::why::output<espalier::why::annotated<espalier::unreduced<data> ?>, espalier::why::bytes<0> ?>, espalier::why::output<espalier::why::annotated<>, espalier::why::bytes<4> ?> ?>::raise<espalier::why::at<espalier::why::line<19>
// user_line(CASE_mean): step::collectives
// kind(CASE_operand): explicit mode: operands in two layouts
// first(CASE_operand): explicit mode: this line communicates
// expect(CASE_operand): communication_not_written<espalier::all_to_all, espalier::why::along<data>, espalier::f32<64, 256>, espalier::why::bytes<16384>
// expect(CASE_operand): output<espalier::why::annotated<espalier::none, data>, espalier::why::bytes<16384>, espalier::why::moved<espalier::why::operand<0>, espalier::why::annotated<espalier::none, data> ?> ?>
// expect(CASE_operand): line<21>
// user_line(CASE_operand): step::collectives
// first(CASE_maximum): explicit mode: this line communicates
// expect(CASE_maximum): communication_not_written<espalier::all_reduce, espalier::why::along<data>, espalier::f32<256>, .*line<23>
// user_line(CASE_maximum): step::collectives
// kind(CASE_gradient): explicit mode: a gradient
// first(CASE_gradient): explicit mode: this line communicates
// expect(CASE_gradient): communication_not_written<espalier::all_reduce, espalier::why::along<data>, espalier::f32<256, 1024>
// expect(CASE_gradient): line<26>
// user_line(CASE_gradient): step::collectives
// first(CASE_inner): explicit mode: this line communicates
// expect(CASE_inner): communication_not_written<espalier::all_reduce, espalier::why::along<data>, espalier::f32<256>, espalier::why::bytes<1024>.*line<31>
// user_line(CASE_inner): step::collectives
// first(CASE_kind): explicit mode: this line communicates
// expect(CASE_kind): communication_not_written<espalier::all_reduce.*line<34>
// user_line(CASE_kind): step::collectives
// first(CASE_halo): explicit mode: this line communicates
// expect(CASE_halo): communication_not_written<espalier::exchange, espalier::why::along<data>, espalier::f32<64, 256>, espalier::why::bytes<1024>, espalier::why::output<espalier::why::annotated<espalier::none, espalier::none>, espalier::why::bytes<32768>.*line<37>
// user_line(CASE_halo): step::collectives
// The mistakes of the function are said as without the mode.
// first(CASE_arguments): program: the function takes another number of arguments
// expect(CASE_arguments): wrong_argument_count<network, espalier::why::takes<3>, espalier::why::given<2> ?>
// user_line(CASE_arguments): step::collectives
// expect(CASE_body): explicit_mode.cpp:39
// user_line(CASE_body): no_such_function
// budget(CASE_body): 13 40
// clang-format on
#if defined(CASE_arguments)
using step = ep::explicit_program<mesh, network, ep::f32<64, 256>, ep::f32<256, 1024>>;
#else
using step = ep::explicit_program<mesh, network, ep::sharded<ep::f32<64, 256>, data, ep::none>,
                                  ep::sharded<ep::f32<256, 1024>, ep::none, model>, ep::f32<1024, 256>>;
#endif
static_assert(step::collectives<ep::all_to_all>() <= 2);
