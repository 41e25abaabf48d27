// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

/// Layers of a pipeline in which the samples of a micro-batch stay apart, and others in which they do not.
#include <espalier/pipeline/stages/model/model.hpp>

namespace ep = espalier;
namespace pl = espalier::pipeline;

namespace {

constexpr int samples = 4;
using sequence = ep::f32<samples, 6, 8>;
using row = ep::f32<samples, 8>;

template <class Layer, bool IsLoss, class... Inputs>
constexpr bool mixes =
    pl::detail::sample_findings<pl::detail::traced_layer<ep::mesh<>, Layer, 0, pl::detail::on_one_device, Inputs...>,
                                samples, IsLoss>::at >= 0;
template <class Layer, class... Inputs> constexpr bool layer_mixes = mixes<Layer, false, Inputs...>;
template <class Layer, class... Inputs> constexpr bool loss_mixes = mixes<Layer, true, Inputs...>;

// --- apart -----------------------------------------------------------------------------------------------------------
struct norm {
  constexpr auto operator()(const auto& x) const { return x - ep::expand_dims<1>(ep::mean<1>(x)); }
};
static_assert(!layer_mixes<norm, row>);

/// Samples and places become one dimension, are read with another split, and are told apart again.
struct merged {
  constexpr auto operator()(const auto& x) const {
    const auto h = ep::tanh(ep::reshape<samples * 6, 8>(x));
    return ep::reshape<samples, 48>(ep::reshape<samples * 3, 16>(ep::softmax<1>(h)));
  }
};
static_assert(!layer_mixes<merged, sequence>);

/// The place before the sample.
struct turned {
  constexpr auto operator()(const auto& x) const {
    const auto h = ep::reshape<6 * samples, 8>(ep::transpose<1, 0, 2>(x));
    return ep::transpose<1, 0, 2>(ep::reshape<6, samples, 8>(ep::relu(h)));
  }
};
static_assert(!layer_mixes<turned, sequence>);

struct attention {
  constexpr auto operator()(const auto& x) const {
    return ep::einsum<"bqk,bkm->bqm">(ep::softmax<2>(ep::einsum<"bqm,bkm->bqk">(x, x)), x);
  }
};
static_assert(!layer_mixes<attention, sequence>);

/// A recurrence along the places, in a loop.
struct recurrent {
  struct cell {
    constexpr auto operator()(const auto& state, const auto& x) const { return ep::tanh(state + x); }
  };
  constexpr auto operator()(const auto& x) const {
    const auto by_place = ep::transpose<1, 0, 2>(x);
    return ep::scan(cell{}, ep::constant<row>(x, 0), by_place);
  }
};
static_assert(!layer_mixes<recurrent, sequence>);

struct shifted {
  constexpr auto operator()(const auto& x) const { return ep::roll<1, 1>(x) + ep::cumsum<1>(x); }
};
static_assert(!layer_mixes<shifted, sequence>);

// --- mixed -----------------------------------------------------------------------------------------------------------
struct centred {
  constexpr auto operator()(const auto& x) const { return x - ep::mean<0>(x); }
};
static_assert(layer_mixes<centred, row>);
static_assert(layer_mixes<centred, sequence>);
struct largest {
  constexpr auto operator()(const auto& x) const { return x - ep::max<0>(x); }
};
static_assert(layer_mixes<largest, row>);
struct softmax_over_samples {
  constexpr auto operator()(const auto& x) const { return ep::softmax<0>(x); }
};
static_assert(layer_mixes<softmax_over_samples, row>);
struct counted {
  constexpr auto operator()(const auto& x) const { return ep::cumsum<0>(x); }
};
static_assert(layer_mixes<counted, row>);
struct neighbour {
  constexpr auto operator()(const auto& x) const { return ep::roll<0, 1>(x); }
};
static_assert(layer_mixes<neighbour, row>);
/// Each sample attends to all of the micro-batch.
struct across {
  constexpr auto operator()(const auto& x) const { return ep::einsum<"bc,cm->bm">(ep::einsum<"bm,cm->bc">(x, x), x); }
};
static_assert(layer_mixes<across, row>);
/// Statistics after samples and places have become one dimension.
struct merged_centred {
  constexpr auto operator()(const auto& x) const {
    const auto h = ep::reshape<samples * 6, 8>(x);
    return ep::reshape<samples, 6, 8>(h - ep::mean<0>(h));
  }
};
static_assert(layer_mixes<merged_centred, sequence>);
/// The mean goes through a loop's carry.
struct recurrent_centred {
  struct cell {
    constexpr auto operator()(const auto& state, const auto& x) const { return state + (x - ep::mean<0>(x)); }
  };
  constexpr auto operator()(const auto& x) const {
    const auto by_place = ep::transpose<1, 0, 2>(x);
    return ep::scan(cell{}, ep::constant<row>(x, 0), by_place);
  }
};
static_assert(layer_mixes<recurrent_centred, sequence>);

/// Refused in a model, unless it is asked for.
static_assert(!pl::detail::entry_facts<pl::named<"centred", centred>>::mixes_samples);
static_assert(pl::detail::entry_facts<pl::named<"centred", centred, pl::statistics_per_micro_batch>>::mixes_samples);

// --- losses ----------------------------------------------------------------------------------------------------------
struct squares {
  constexpr auto operator()(const auto& x) const { return ep::sum(x * x) * 0.5; }
};
static_assert(!loss_mixes<squares, row>);
struct dots {
  constexpr auto operator()(const auto& x, const auto& y) const { return ep::einsum<"bm,bm->">(x, y); }
};
static_assert(!loss_mixes<dots, row, row>);
struct root {
  constexpr auto operator()(const auto& x) const { return ep::sqrt(ep::sum(x * x)); }
};
static_assert(loss_mixes<root, row>);
struct ratio {
  constexpr auto operator()(const auto& x, const auto& weight) const { return ep::sum(x * weight) / ep::sum(weight); }
};
static_assert(loss_mixes<ratio, row, row>);
struct worst {
  constexpr auto operator()(const auto& x) const { return ep::max(x); }
};
static_assert(loss_mixes<worst, row>);

}  // namespace
