// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The examples of docs/concepts.md, docs/explain.md and docs/limits.md.

#include <espalier/core.hpp>
#include <espalier/vmap.hpp>

namespace ep = espalier;

namespace {

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using mesh = ep::mesh<data, model>;

// --- partials

struct wide : ep::axis<"wide", 4> {};
struct taken_apart {
  constexpr auto operator()(auto x) const {
    const auto two = ep::reshape<2, 16>(x);  // f32[2@wide:(1)2, 16@wide:(2)2]
    return ep::reshape<32>(ep::tanh(two));   // f32[32@wide]
  }
};
using parted = ep::program<ep::mesh<wide>, taken_apart, ep::sharded<ep::f32<32>, wide>>;
static_assert(parted::collectives() == 0);

struct two_products {
  constexpr auto operator()(auto h, auto a, auto b) const {
    h = ep::shard<data, model>(h);
    const auto p = ep::matmul(h, a);  // f32[64@data, 256] sum@model
    const auto q = ep::matmul(h, b);  // f32[64@data, 256] sum@model
    return (p + q) / 2;               // still a partial: one all-reduce of one tensor follows
  }
};
using pending = ep::program<mesh, two_products, ep::f32<64, 1024>, ep::f32<1024, 256>, ep::f32<1024, 256>>;
static_assert(pending::collectives() == 1);
static_assert(pending::collectives<ep::all_reduce, model>() == 1);

struct split_product {
  constexpr auto operator()(auto h, auto a) const {
    const auto y = ep::matmul(ep::shard<data, model>(h), a);
    return ep::shard<data, model>(y);  // no reader needs all of y
  }
};
using scattered = ep::program<mesh, split_product, ep::f32<64, 1024>, ep::f32<1024, 256>>;
static_assert(scattered::collectives<ep::reduce_scatter, model>() == 1);
static_assert(scattered::collectives<ep::all_reduce>() == 0);

// --- open

struct closed {
  constexpr auto operator()(auto x, auto w) const {
    return ep::shard<data, ep::none>(ep::matmul(x, w));  // columns are whole: an all-gather
  }
};
struct opened {
  constexpr auto operator()(auto x, auto w) const {
    return ep::shard<data, ep::open>(ep::matmul(x, w));  // completion decides: columns are split as those of w
  }
};
using columns_of_w = ep::sharded<ep::f32<256, 1024>, ep::none, model>;
template <class Function> using product = ep::program<mesh, Function, ep::f32<64, 256>, columns_of_w>;
static_assert(product<closed>::collectives<ep::all_gather>() == 1);
static_assert(product<opened>::collectives() == 0);
static_assert(product<opened>::result_layout(0).placement.dim[1] == ep::axis_list(mesh::index_of<model>));

// --- alike

struct follower {
  constexpr auto operator()(auto x, auto w, auto moment) const {
    const auto y = ep::shard<data, model>(ep::matmul(x, w));  // w: f32[256, 1024@model]
    return ep::results(y, ep::shard_like(moment, w));         // so the moment is f32[256, 1024@model]
  }
};
using following = ep::program<mesh, follower, ep::f32<64, 256>, ep::f32<256, 1024>, ep::f32<256, 1024>>;
static_assert(following::result_layout(1).placement.dim[1] == ep::axis_list(mesh::index_of<model>));

struct partners {
  constexpr auto operator()(auto a, auto b) const {
    const auto [p, q] = ep::shard_as(a, b);
    return ep::results(p, ep::shard<data, model>(ep::tanh(q)));  // decides for q, and so for p and a
  }
};
using paired = ep::program<mesh, partners, ep::f32<64, 256>, ep::f32<64, 256>>;
static_assert(paired::argument_layout(0).placement.dim[0] == ep::axis_list(mesh::index_of<data>));
static_assert(paired::collectives() == 0);

// --- priorities

struct product_of {
  constexpr auto operator()(auto x, auto w) const { return ep::matmul(x, w); }
};
template <class Rows, class Columns> using product_by = ep::program<mesh, product_of, Rows, Columns>;
template <int Level> using rows = ep::sharded<ep::f32<64, 256>, data, ep::none, ep::priority<Level>>;
template <int Level> using columns = ep::sharded<ep::f32<256, 128>, ep::none, data, ep::priority<Level>>;
static_assert(!product_by<rows<0>, columns<1>>::result_layout(0).placement.dim[0].empty());  // f32[64@data, 128]
static_assert(!product_by<rows<1>, columns<0>>::result_layout(0).placement.dim[1].empty());  // f32[64, 128@data]

// --- explicit mode

struct perceptron {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    const auto whole = ep::reshard<ep::none, model>(w_in);   // written: all-gather of the rows of w_in over data
    const auto h = ep::relu(ep::matmul(x, whole));           // f32[64@data, 1024@model]
    return ep::shard<data, ep::none>(ep::matmul(h, w_out));  // written: all-reduce of the product over model
  }
};
using written = ep::explicit_program<mesh, perceptron, ep::sharded<ep::f32<64, 256>, data, ep::none>,
                                     ep::sharded<ep::f32<256, 1024>, data, model>, ep::f32<1024, 256>>;
static_assert(written::collectives<ep::all_gather>() == 1 && written::collectives<ep::all_reduce>() == 1);
static_assert(written::collectives() == 2);

// --- donation

struct update {
  constexpr auto operator()(auto weights, auto gradient) const { return weights - gradient * 0.01; }
};
using weights = ep::f32<1024, 256>;
using copied = ep::program<mesh, update, weights, weights>;
using in_place = ep::program<mesh, update, ep::donated<weights>, weights>;
static_assert(copied::result_bytes() == copied::argument_bytes() / 2);
static_assert(in_place::result_bytes() == 0);

// --- callers

constexpr auto dense(auto x, auto w, ep::source_line where = ep::source_line::current()) {
  const ep::called_from caller(x, where);
  return ep::shard<data, ep::none>(ep::relu(ep::matmul(x, w)));
}
struct two_layers {
  constexpr auto operator()(auto x, auto up, auto down) const {
    const auto h = dense(x, up);
    return dense(h, down);
  }
};
using layered = ep::program<mesh, two_layers, ep::f32<8, 16>, ep::sharded<ep::f32<16, 32>, ep::none, model>,
                            ep::sharded<ep::f32<32, 16>, ep::none, model>>;
static_assert(layered::collectives<ep::all_gather>() == 2);

// --- limits

struct rows_alone {
  constexpr auto operator()(auto xs, auto w) const {  // f32[32@data, 64], f32[10, 64]
    const auto scores_of = [](auto x, auto v) { return ep::einsum<"kc,c->k">(v, x); };
    const auto scores = ep::vmap<0, ep::unmapped>(scores_of)(xs, w);  // f32[32@data, 10]
    const auto loss = [&](auto x, auto v) { return ep::sum(ep::tanh(scores_of(x, v))); };
    const auto slopes = ep::vmap<0, ep::unmapped>(ep::grad<1>(loss))(xs, w);  // f32[32@data, 10, 64]
    return ep::results(scores, slopes);
  }
};
using mapped = ep::program<mesh, rows_alone, ep::sharded<ep::f32<32, 64>, data, ep::none>, ep::f32<10, 64>>;
static_assert(mapped::collectives() == 0);

static_assert(ep::max_axes == 8);      // axes of a mesh
static_assert(ep::max_rank == 8);      // dimensions of a tensor
static_assert(ep::max_factors == 12);  // different letters of one product of two tensors
static_assert(ep::dtype_count == 10);  // f64 f32 f16 bf16, i64 i32 i8 u32 u8, bool

}  // namespace
