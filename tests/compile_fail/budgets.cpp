// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/budget.hpp>

/// Programs that cost more than they may.
namespace ep = espalier;
using namespace ep::literals;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using mesh = ep::mesh<data, model>;

struct mlp {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    auto h = ep::relu(ep::einsum<"bm,mh->bh">(x, w_in));
    h = ep::shard<data, model>(h);
    const auto y = ep::einsum<"bh,hm->bm">(h, w_out);
    return ep::reshard<ep::none, ep::none>(ep::tanh(y));  // all_reduce over model, then all_gather over data
  }
};
using step = ep::program<mesh, mlp, ep::f32<64, 256>, ep::f32<256, 1024>, ep::f32<1024, 256>>;

static_assert(step::collectives<ep::all_to_all>() == 0);
static_assert(step::collectives<ep::all_reduce, model>() == 1);
static_assert(step::peak_bytes_per_device() <= 2_MiB);
using good = ep::budget<step, ep::at_most<ep::all_gather, 1>, ep::at_most<ep::all_gather, 0, model>,
                        ep::at_most_bytes<ep::all_reduce, 32_KiB>, ep::fits_in<2_MiB>>;
static_assert(good::holds);

// A limit exceeded names the collective, its axes, what there is, what is allowed, the tensor, the bytes, the line.
// clang-format off
// kind(CASE_count): a collective more than the budget
// first(CASE_count): budget: this line needs one more collective of this kind than the budget allows. Annotate
// expect(CASE_count): too_many_collectives<espalier::all_gather, espalier::why::along<data>, espalier::why::needs<1>, espalier::why::allowed<0>, espalier::f32<64, 256>, espalier::why::bytes<32768> ?>::raise<espalier::why::at<espalier::why::line<18>, 'b', 'u', 'd', 'g', 'e', 't', 's', '.', 'c', 'p', 'p'>
// user_line(CASE_count): the limit: count
// budget(CASE_count): 5 16
// first(CASE_count_along): budget: this line needs one more collective of this kind
// expect(CASE_count_along): too_many_collectives<espalier::all_reduce, espalier::why::along<model>.*line<18>
// user_line(CASE_count_along): the limit: along
// first(CASE_bytes): budget: collectives of this kind send more bytes per device than the budget allows; the largest stands here
// expect(CASE_bytes): too_many_bytes<espalier::all_reduce, espalier::why::along<model>, espalier::why::needs_bytes<32768>, espalier::why::allowed_bytes<1024>, espalier::why::least_bytes<32768>, espalier::f32<64, 256>, espalier::why::bytes<32768> ?>::raise<espalier::why::at<espalier::why::line<18>
// user_line(CASE_bytes): the limit: bytes
// Without the annotation of line 75 nothing moves.
// first(CASE_least): budget: collectives of this kind send more bytes per device
// expect(CASE_least): too_many_bytes<espalier::all_to_all, espalier::why::along<data>, espalier::why::needs_bytes<65536>, espalier::why::allowed_bytes<1024>, espalier::why::least_bytes<0, espalier::why::at<espalier::why::line<75>, 'b', 'u', 'd', 'g', 'e', 't', 's', '.', 'c', 'p', 'p'> ?>, espalier::f32<256, 256>
// user_line(CASE_least): the limit: least
// kind(CASE_memory): more memory than the budget
// first(CASE_memory): budget: a device needs more memory than the budget allows; the largest buffer stands here
// expect(CASE_memory): does_not_fit<espalier::why::needs_bytes<\d+>, espalier::why::allowed_bytes<1048576>, espalier::why::buffer<espalier::f32<256, 512>, espalier::why::bytes<524288>, espalier::why::argument_leaf<1> ?>
// user_line(CASE_memory): the limit: memory
// What moves along a part of an axis moves along the axis.
// first(CASE_part): budget: this line needs one more collective of this kind
// expect(CASE_part): too_many_collectives<espalier::all_reduce, espalier::why::along<wide>, espalier::why::needs<1>, espalier::why::allowed<0>, espalier::f32<4>
// user_line(CASE_part): the limit: part
// A plain assertion on a query: the compiler names the query and, from clang 19 on, g++ 12 too, the numbers.
// first(CASE_plain): static.assert(ion)? failed.*collectives|static assertion failed
// expect(CASE_plain): collectives
// user_line(CASE_plain): the limit: plain
// A program with a mistake reports that, and nothing of its budget.
// first(CASE_mistake): einsum: the same label stands for two different sizes
// expect(CASE_mistake): einsum_size_mismatch
// expect(CASE_mistake): line<15>
// expect(CASE_mistake): budgets.cpp:93
// budget(CASE_mistake): 6 20
// clang-format on
#if defined(CASE_count)
static_assert(ep::budget<step, ep::at_most<ep::all_gather, 0>>::holds);  // the limit: count
#elif defined(CASE_count_along)
using limit = ep::at_most<ep::all_reduce, 0, model>;
static_assert(ep::budget<step, ep::at_most<ep::all_reduce, 0, data>, limit>::holds);  // the limit: along
#elif defined(CASE_bytes)
static_assert(ep::budget<step, ep::at_most_bytes<ep::all_reduce, 1_KiB>>::holds);  // the limit: bytes
#elif defined(CASE_least)
struct exchanged {
  constexpr auto operator()(auto x) const { return ep::sum<1>(ep::tanh(ep::shard<ep::none, data>(ep::exp(x)))); }
};
using wasteful = ep::program<mesh, exchanged, ep::sharded<ep::f32<256, 256>, data, ep::none>>;
static_assert(ep::budget<wasteful, ep::at_most_bytes<ep::all_to_all, 1_KiB>>::holds);  // the limit: least
#elif defined(CASE_memory)
static_assert(ep::budget<step, ep::fits_in<1_MiB>>::holds);  // the limit: memory
#elif defined(CASE_part)
struct wide : ep::axis<"wide", 4> {};
struct sum_of_halves {
  constexpr auto operator()(auto x) const { return ep::reshard<ep::none>(ep::sum<0>(ep::reshape<2, 4>(x))); }
};
using halves = ep::program<ep::mesh<wide>, sum_of_halves, ep::sharded<ep::f32<8>, wide>>;
static_assert(halves::parts.count == 2);
static_assert(ep::budget<halves, ep::at_most<ep::all_reduce, 0, wide>>::holds);  // the limit: part
#elif defined(CASE_plain)
static_assert(step::collectives<ep::all_gather>() == 0);  // the limit: plain
#elif defined(CASE_mistake)
using wrong = ep::program<mesh, mlp, ep::f32<64, 256>, ep::f32<255, 1024>, ep::f32<1024, 256>>;
static_assert(ep::budget<wrong, ep::at_most<ep::all_gather, 0>, ep::fits_in<0>>::holds);  // the limit: mistake
#endif
