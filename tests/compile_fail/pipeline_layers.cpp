// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/pipeline/stages/model/model.hpp>

/// Mistakes in layers of a pipeline, and in what they read.
namespace ep = espalier;
namespace pl = espalier::pipeline;

struct across : ep::axis<"across", 2> {};
struct along : ep::axis<"along", 2> {};
struct features : pl::field<"features", ep::f32<8>> {};
struct wanted : pl::field<"wanted", ep::f32<4>> {};

struct dense {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f32<8, 8>>, weight));
  };
  constexpr auto operator()(const auto& p, const auto& x) const {
#if defined(CASE_wrong_shape)
    return ep::einsum<"bi,jk->bk">(x, p.weight) + ep::transpose<1, 0>(x);  // wrong_shape: 8 rows, one column
#elif defined(CASE_no_rows)
    return ep::einsum<"bi,ij->jb">(x, p.weight);
#elif defined(CASE_unknown_axis)
    return ep::shard<across, ep::none>(ep::einsum<"bi,ij->bj">(x, p.weight));
#elif defined(CASE_batch_statistics)
    const auto h = ep::einsum<"bi,ij->bj">(x, p.weight);
    return h - ep::mean<0>(h);  // batch_statistics
#else
    return ep::tanh(ep::einsum<"bi,ij->bj">(x, p.weight));
#endif
  }
};
struct distance {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f32<8, 4>>, weight));
  };
  constexpr auto operator()(const auto& p, const auto& x, const auto& goal) const {
    const auto error = ep::einsum<"bi,ij->bj">(x, p.weight) - goal;
#if defined(CASE_no_loss)
    return error * error;
#elif defined(CASE_no_sum)
    return ep::sqrt(ep::sum(error * error));  // no_sum
#else
    return ep::sum(error * error);
#endif
  }
};

struct training {
  static constexpr ep::nn::sgd_settings optimizer{};
#if defined(CASE_unknown_axis) || defined(CASE_unlisted_mesh)
  using meshes = pl::meshes<ep::mesh<>, ep::mesh<along>>;
#endif
};

#if defined(CASE_unknown_name)
using last = pl::named<"distance", distance, pl::inputs<"dens">, pl::reads<wanted>>;
#elif defined(CASE_same_name)
using last = pl::named<"dense", distance, pl::reads<wanted>>;
#else
using last = pl::named<"distance", distance, pl::reads<wanted>>;
#endif

// clang-format off
// first(CASE_wrong_shape): elementwise: these shapes do not broadcast against each other
// expect(CASE_wrong_shape): shape_mismatch<espalier::f32<2, 8>, espalier::f32<8, 2> ?>::raise<espalier::why::in<espalier::why::op<'a', 'd', 'd' ?>, espalier::why::at<espalier::why::line<20>
// user_line(CASE_wrong_shape): layers;
// kind(CASE_wrong_shape): pipeline: shapes in a layer that differ
// first(CASE_no_rows): model: dimension 0 of what a layer makes is the sample
// expect(CASE_no_rows): layer_at<
// user_line(CASE_no_rows): layers;
// kind(CASE_no_rows): pipeline: a layer without rows
// first(CASE_unknown_axis): annotation: this axis does not belong to the program's mesh
// expect(CASE_unknown_axis): unknown_mesh_axis<espalier::submesh<espalier::mesh<>, along>, across, espalier::none
// user_line(CASE_unknown_axis): layers;
// kind(CASE_unknown_axis): pipeline: an axis of another mesh
// first(CASE_unlisted_mesh): model: this mesh is not in the list of meshes that the layers are compiled for
// expect(CASE_unlisted_mesh): across
// user_line(CASE_unlisted_mesh): mesh_number
// kind(CASE_unlisted_mesh): pipeline: a mesh that layers are not compiled for
// first(CASE_unknown_name): model: inputs<...> and skips<...> name layers that come earlier
// expect(CASE_unknown_name): Compare the names, and the order of the layers
// user_line(CASE_unknown_name): layers;
// kind(CASE_unknown_name): pipeline: a layer reads one that does not exist
// first(CASE_same_name): model: two layers have the same name
// expect(CASE_same_name): dense
// user_line(CASE_same_name): layers;
// kind(CASE_same_name): pipeline: two layers of one name
// first(CASE_no_loss): model: dimension 0 of what a layer makes is the sample
// expect(CASE_no_loss): the last layer makes one number, the sum of its samples' losses
// user_line(CASE_no_loss): layers;
// kind(CASE_no_loss): pipeline: the last layer makes no loss
// first(CASE_batch_statistics): pipeline: one sample of this layer's output depends on the other samples
// expect(CASE_batch_statistics): samples_are_mixed<espalier::why::op<[^>]*> ?>::raise<espalier::why::at<espalier::why::line<27>
// user_line(CASE_batch_statistics): layers;
// kind(CASE_batch_statistics): pipeline: statistics over the samples of a micro-batch
// first(CASE_no_sum): pipeline: the loss is no sum over samples
// expect(CASE_no_sum): loss_is_no_sum<espalier::why::op<[^>]*> ?>::raise<espalier::why::at<espalier::why::line<42>
// user_line(CASE_no_sum): layers;
// kind(CASE_no_sum): pipeline: a loss that is no sum over samples
// clang-format on
int main() {
  const pl::model<pl::batches<2, 3>, training, pl::named<"dense", dense, pl::reads<features>>, last> layers;
#if defined(CASE_unlisted_mesh)
  return layers.mesh_number<ep::mesh<across>>;
#else
  return layers.layers() - 2;
#endif
}
