// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// optimised: never
// together: cases

#include <espalier/testing/executed.hpp>
#include <support/spmd_model.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

// The cases of XLA's partitioner tests (spmd_partitioner_test.cc) that need no control flow: what each moves there, and
// here; executed through schedule, memory and the executor's walk. docs/partitioner-cases.md is made from it:
//
//     ESPALIER_SOURCE=. ESPALIER_WRITE_DOCS=1 build/default/tests/unit "[partitioner_cases]"

namespace {

using namespace espalier;
using namespace espalier::test;

struct partitioner_case {
  int row;
  const char* name;
  std::vector<int> mesh;
  /// The collectives that XLA's test expects.
  const char* theirs;
  std::function<void(model&)> write;
};

using sizes = std::vector<std::int64_t>;

std::function<void(model&)> relayout(sizes shape, const char* from, const char* to) {
  return [=](model& m) {
    m.result(m.reshard(m.argument(shape, from), to));
    m.b[m.b.size() - 1].annotation = -1;
  };
}
std::function<void(model&)> product(const char* formula, sizes left, const char* left_at, sizes right,
                                    const char* right_at, const char* result_at) {
  return [=](model& m) {
    const int l = m.argument(left, left_at);
    const int r = m.argument(right, right_at);
    m.result(m.shard(m.einsum(formula, l, r), result_at));
  };
}
/// A function of one argument whose result is laid out like `to`.
std::function<void(model&)> map(sizes shape, const char* from, const char* to, std::function<int(model&, int)> f) {
  return [=](model& m) { m.result(m.shard(f(m, m.argument(shape, from)), to)); };
}
std::function<void(model&)> reshaping(sizes from, const char* from_at, sizes to, const char* to_at) {
  return map(from, from_at, to_at, [to](model& m, int x) { return m.reshape(x, to); });
}
/// A convolution of an image with a filter that every device has unless `filter_at` says otherwise.
std::function<void(model&)> convolving(sizes image, const char* from, sizes filter, const char* filter_at,
                                       const char* to, convolution_settings settings) {
  return [=](model& m) {
    const int x = m.argument(image, from);
    const int w = m.argument(filter, filter_at);
    m.result(m.shard(emit::convolution(m.b, x, w, settings), to));
  };
}
/// The filter's gradient: both operands of the convolution are split along a spatial dimension.
std::function<void(model&)> filter_gradient(sizes image, const char* at, sizes filter, convolution_settings settings) {
  return [=](model& m) {
    const int x = m.argument(image, at);
    const int w = m.argument(filter, "_,_,_,_");
    const int y = m.shard(emit::convolution(m.b, x, w, settings), at);
    m.result(m.gradients(m.total(emit::multiply(m.b, y, y)), {w})[0]);
  };
}
int max_pooled(model& m, int x, std::vector<window> windows) {
  extents shape = m.b[x].shape;
  std::vector<placed_window> placed;
  for (std::size_t k = 0; k < windows.size(); ++k) {
    const int d = static_cast<int>(k) + 1;
    const window& w = windows[k];
    shape[d] = (shape[d] + 2 * w.low - w.dilation * (w.size - 1) - 1) / w.stride + 1;
    placed.push_back(place_window(w, d, shape[d], axis_list{}));
  }
  return emit::pool(m.b, ops::max_pool, shape, placed.data(), x);
}

const std::vector<partitioner_case>& cases() {
  static const std::vector<partitioner_case> all{
      // --- changes of layout
      {1, "TiledToReplicated", {2}, "AG", relayout({2, 3}, "x,_", "_,_")},
      // Elements on the first device alone: a part of a dimension that has one element.
      {2, "SingleDeviceToReplicated", {2}, "AR", reshaping({1, 8, 3}, "x,_,_", {8, 3}, "_,_")},
      {3, "SingleDeviceToTiled", {2}, "AR", reshaping({1, 8, 3}, "x,_,_", {8, 3}, "x,_")},
      {4, "TiledToTiledEven", {2}, "A2A", relayout({8, 2}, "x,_", "_,x")},
      {5, "TiledToTiledUneven", {2}, "A2A", relayout({7, 31, 128}, "_,x,_", "x,_,_")},
      {6, "MultipleSourceTargetDimsInOneAllToAll1", {2, 2, 2}, "A2A",
       relayout({4, 8, 4, 8}, "_,xy,z,_", "x,_,_,yz")},
      {7, "SubgroupAllToAllReshard", {2, 2, 2}, "A2A", relayout({4, 4, 4, 4}, "x,y,_,z", "_,y,x,z")},
      {8, "TileToPartialReplicateReshard", {2, 2}, "AG", relayout({8, 8}, "x,y", "x,_")},
      {9, "PartialReplicateToTileReshard", {2, 2}, "-", relayout({8, 8}, "x,_", "x,y")},
      {10, "PartialReplicateToPartialReplicateReshard_AllReduce", {2, 2, 2}, "AG",
       relayout({8, 8}, "x,y", "x,_")},
      {11, "PartialReplicateToPartialReplicateReshard_DynamicSlice", {2, 2, 2}, "-",
       relayout({8, 8}, "x,_", "x,y")},
      {12, "PartialReplicateToPartialReplicateReshardCollectivePermute1", {2, 2, 2}, "CP",
       relayout({8, 8}, "_,x", "x,y")},
      {13, "ReshardToASingleAllToAll", {2, 4, 4}, "A2A", relayout({64, 64}, "xy,z", "x,zy")},
      {14, "ComplexReshardSplit", {2, 2, 2, 2}, "A2A, CP", relayout({8, 8, 8}, "_,x,yzw", "xy,z,w")},
      {15, "ComplexReshardToPartialReplicate", {2, 2, 2}, "A2A, ...",
       relayout({4, 8, 4, 8}, "_,xy,z,_", "_,_,_,x")},
      {16, "ReshardNoFullRematCompatible", {2, 2, 2}, "AG", relayout({6, 32, 4}, "xy,z,_", "x,y,z")},
      {17, "UnevenPadAllToAllReshard", {4, 2}, "CP",
       map({19, 19}, "x,y", "x,y", [](model& m, int x) { return m.add(x, m.transpose(x, {1, 0})); })},
      // --- elementwise, sources, reductions
      {20, "TiledElementwise", {2}, "-",
       [](model& m) { m.result(m.shard(m.add(m.argument({3, 3}, "x,_"), m.argument({3, 3}, "_,_")), "x,_")); }},
      {21, "BroadcastBothOldAndNewDimsSharded", {2, 2}, "-",
       map({4, 3}, "_,_", "x,y,_",
           [](model& m, int x) { return emit::broadcast(m.b, x, shape_of({4, 6, 3}), axis_list{}.with(0).with(2)); })},
      {22, "IotaAlongTileDimension", {2}, "-",
       [](model& m) {
         const int x = m.argument({16, 80, 91}, "_,_,x");
         m.result(m.shard(m.add(x, emit::iota(m.b, dtype::f32, m.b[x].shape, 2)), "_,_,x"));
       }},
      {23, "TiledToReplicatedReduce", {2}, "AR",
       map({3, 3}, "x,_", "", [](model& m, int x) { return m.total(x); })},
      {24, "TiledToTiledReduce", {2}, "-",
       map({4, 4, 4, 6}, "_,_,_,x", "x", [](model& m, int x) { return m.sum(x, 7); })},
      {25, "PartialTiledToPartialTiledReduce", {2, 2, 2}, "AR",
       map({4, 4}, "x,y", "y", [](model& m, int x) { return m.sum(x, 1); })},
      // --- products
      {26, "EinsumBatchPartitioned", {2}, "-",
       product("bij,bjk->bik", {5, 6, 4}, "x,_,_", {5, 4, 3}, "x,_,_", "x,_,_")},
      {27, "EinsumLHSandOutputBatchPartitioned", {2}, "-",
       product("bij,bjk->bik", {5, 6, 4}, "x,_,_", {5, 4, 3}, "_,_,_", "x,_,_")},
      {28, "EinsumContractingDimsPartitioned", {2, 2}, "AR, AR",
       product("ijkl,klm->ijm", {3, 4, 5, 7}, "_,_,x,y", {5, 7, 5}, "x,y,_", "_,_,_")},
      {29, "EinsumContractingDimsPartitionedResultPartiallySliced", {2, 2}, "AR, AR",
       product("ik,kj->ij", {8, 12}, "_,xy", {12, 6}, "xy,_", "x,_")},
      {30, "EinsumLHSNonContractingDimsPartitioned", {2, 2}, "-",
       product("abkd,kc->abcd", {3, 4, 5, 6}, "_,x,_,y", {5, 3}, "_,_", "_,x,_,y")},
      {31, "Dot2DPartitionedNonContractingAndContracting0", {2, 2}, "AG, AG",
       product("ik,kj->ij", {8, 12}, "x,y", {12, 8}, "x,y", "x,y")},
      {32, "Dot2DPartitionedNonContractingAndContracting1", {2, 2}, "AG, AR",
       product("ik,jk->ij", {8, 12}, "x,y", {8, 12}, "x,y", "x,y")},
      {33, "Dot2DPartitionedNonContractingAndContracting2", {2, 2}, "CP, AG",
       product("ik,kj->ij", {8, 12}, "_,_", {12, 8}, "x,y", "x,y")},
      {34, "Dot2DPartitionedBatchAndNonContracting", {2, 2}, "AG",
       product("bik,bkj->bij", {4, 6, 4}, "x,y,_", {4, 4, 6}, "x,y,_", "x,y,_")},
      {35, "Dot2DPartitionedBatchAndContracting", {2, 2}, "A2A, AR",
       product("bik,bkj->bij", {4, 6, 4}, "x,_,y", {4, 4, 6}, "_,x,y", "x,y,_")},
      {36, "Dot2DPartitionedBatchNonContractingAndContracting", {2, 2}, "AG",
       product("bik,bkj->bij", {4, 6, 4}, "x,_,y", {4, 4, 6}, "x,y,_", "x,_,y")},
      {37, "DotBatchAndPartialContracting", {2, 2, 2}, "AR",
       product("bik,bkj->bij", {4, 6, 4}, "x,y,z", {4, 4, 6}, "x,z,_", "x,y,_")},
      {38, "PartiallyReplicateRHS", {4, 2, 2}, "AG, AR",
       product("ik,kj->ij", {16, 32}, "x,yz", {32, 8}, "xyz,_", "x,_")},
      {39, "AllToAllAndPartialReplicateRHS", {2, 2, 2}, "A2A, AG, AR",
       product("ak,bck->abc", {64, 64}, "x,y", {64, 64, 64}, "_,z,yx", "x,z,_")},
      {40, "TiledDotOutputTiled", {2}, "AR", product("ik,kj->ij", {6, 8}, "_,x", {8, 4}, "x,_", "_,x")},
      {41, "UnreducedDot", {2}, "-",
       [](model& m) {
         const int y = m.shard(m.einsum("ik,kj->ij", m.argument({6, 8}, "_,x"), m.argument({8, 4}, "x,_")), "_,_!x");
         // The terms leave the product unsummed; the program's border is where they are.
         m.result(m.total(m.shard(m.unary(ops::negate, y), "_,_!x")));
       }},
      {41, "SubgroupUnreducedDot", {2, 2, 2}, "-",
       [](model& m) {
         const int y = m.einsum("ik,kj->ij", m.argument({8, 1024}, "x,y"), m.argument({1024, 256}, "y,z"));
         m.result(m.total(m.shard(m.unary(ops::negate, m.shard(y, "x,z!y")), "x,z!y")));
       }},
      // --- windows
      {48, "ConvolutionLhsTiledRhsReplicated", {2}, "CP, CP",
       convolving({1, 224, 224, 3}, "_,x,_,_", {7, 7, 3, 8}, "_,_,_,_", "_,x,_,_",
                  {.stride = {2, 2}, .low = {3, 3}, .high = {3, 3}})},
      {49, "ConvolutionBaseDilationSameStartPattern", {2}, "-",
       convolving({2, 7, 7, 5}, "_,x,_,_", {3, 3, 5, 4}, "_,_,_,_", "_,x,_,_",
                  {.stride = {4, 1}, .low = {1, 1}, .high = {2, 1}, .base_dilation = {2, 1}})},
      {50, "ConvolutionBaseDilationStride1", {2}, "CP",
       convolving({2, 7, 7, 5}, "_,x,_,_", {3, 3, 5, 4}, "_,_,_,_", "_,x,_,_",
                  {.low = {1, 1}, .high = {1, 1}, .base_dilation = {2, 1}})},
      {51, "ConvolutionLhsTiledRhsTiled", {2}, "CP, AR",
       filter_gradient({2, 12, 10, 3}, "_,x,_,_", {3, 3, 3, 4}, {.low = {1, 1}, .high = {1, 1}})},
      {51, "ConvolutionLhsTiledRhsTiledWindowReversal", {2}, "CP, AR",
       filter_gradient({2, 12, 10, 3}, "_,x,_,_", {3, 3, 3, 4},
                       {.low = {1, 1}, .high = {1, 1}, .reversed = {true, false}})},
      {51, "ConvolutionLhsTiledRhsTiled_UnevenDilated", {2}, "CP, AR",
       filter_gradient({2, 13, 10, 3}, "_,x,_,_", {3, 3, 3, 4}, {.low = {2, 1}, .high = {2, 1}, .dilation = {2, 1}})},
      {52, "ConvolutionInputSpatialDimAndFeatureDimPartitioned", {2, 2}, "CP, CP, AR",
       convolving({2, 14, 14, 8}, "_,x,_,y", {3, 3, 8, 6}, "_,_,y,_", "_,x,_,_", {.low = {1, 1}, .high = {1, 1}})},
      {53, "PartitionConvWithFeatureGroupCount", {2}, "-",
       convolving({2, 9, 9, 8}, "_,_,_,x", {3, 3, 2, 8}, "_,_,_,x", "_,_,_,x",
                  {.low = {1, 1}, .high = {1, 1}, .groups = 4})},
      {53, "PartitionConvWithBatchGroupCount", {2}, "-",
       convolving({16, 9, 9, 4}, "x,_,_,_", {3, 3, 4, 8}, "_,_,_,x", "_,_,_,x",
                  {.low = {1, 1}, .high = {1, 1}, .batch_groups = 8})},
      {54, "ReduceWindowTiledTwoSideHalo", {2}, "CP, CP",
       map({2, 7, 5, 3}, "_,x,_,_", "_,x,_,_",
           [](model& m, int x) { return max_pooled(m, x, {{.size = 3, .low = 1}, {}}); })},
      {54, "ReduceWindowTiled2D", {2, 2}, "CP, CP, CP, CP",
       map({2, 4, 6, 3}, "_,x,y,_", "_,x,y,_",
           [](model& m, int x) { return max_pooled(m, x, {{.size = 3, .low = 1}, {.size = 3, .low = 1}}); })},
      {54, "ReduceWindowTiledOneSideHaloBeyondNeighbor", {5}, "CP, CP",
       map({2, 9, 2, 1}, "_,x,_,_", "_,x,_,_",
           [](model& m, int x) { return max_pooled(m, x, {{.size = 5, .low = 2}, {}}); })},
      {55, "SelectAndScatterWithOverlap", {4}, "CP",
       [](model& m) {
         const int x = m.shard(m.argument({2, 14, 5, 3}, "_,x,_,_"), "_,x,_,_");
         const int y = m.shard(max_pooled(m, x, {{.size = 3, .stride = 2, .low = 1}, {}}), "_,x,_,_");
         m.result(m.shard(m.gradients(m.total(emit::multiply(m.b, y, y)), {x})[0], "_,x,_,_"));
       }},
      {56, "PadAlongPartitionedDimension", {2}, "CP",
       map({28, 5}, "x,_", "x,_", [](model& m, int x) { return emit::pad_around(m.b, x, 0, 3, 4, 0); })},
      {56, "PadFrom1To24", {8}, "CP",
       map({1, 3}, "x,_", "x,_", [](model& m, int x) { return emit::pad_around(m.b, x, 0, 3, 20, 0); })},
      {56, "PadToDoubleSize", {16}, "CP, CP",
       map({32, 3}, "x,_", "x,_", [](model& m, int x) { return emit::pad_around(m.b, x, 0, 13, 19, 0); })},
      {57, "SliceAlongPartitionedDimension", {2}, "CP",
       map({14, 5}, "x,_", "x,_", [](model& m, int x) { return emit::slice(m.b, x, 0, 1, 11); })},
      {57, "SliceTo1", {4}, "-",
       map({12, 3}, "x,_", "x,_", [](model& m, int x) { return emit::slice(m.b, x, 0, 0, 1); })},
      {57, "SliceToHalfSize", {16}, "CP, CP",
       map({64, 3}, "x,_", "x,_", [](model& m, int x) { return emit::slice(m.b, x, 0, 16, 32); })},
      {58, "MergedPadThenSliceShiftRight", {4}, "CP",
       map({4, 6}, "x,_", "x,_", [](model& m, int x) { return emit::pad_around(m.b, x, 0, 1, -1, 0); })},
      {59, "MergedSliceThenConcatRotateRight", {4}, "CP",
       map({12, 3}, "x,_", "x,_", [](model& m, int x) { return emit::roll(m.b, x, 0, 2); })},
      {60, "ConcatenateAlongPartitionedDimension", {2}, "A2A, A2A, A2A",
       [](model& m) {
         const int parts[]{m.argument({14, 257}, "_,x"), m.argument({14, 116}, "_,x")};
         m.result(m.shard(emit::concat(m.b, &parts[0], 2, 1), "_,x"));
       }},
      {61, "TiledReverseSwapShards", {2}, "CP",
       map({4, 6}, "x,_", "x,_", [](model& m, int x) { return emit::reverse(m.b, x, 0); })},
      {61, "TiledReverseHaloExchange", {2}, "CP",
       map({3, 6}, "x,_", "x,_", [](model& m, int x) { return emit::reverse(m.b, x, 0); })},
      // --- reshapes, lookups
      {62, "ReshapeWithReshard", {2}, "A2A",
       map({38, 38, 324}, "x,_,_", "_,x,_,_", [](model& m, int x) { return m.reshape(x, {38, 38, 4, 81}); })},
      {62, "ReshapePartialHaloExchange", {2, 4, 2}, "CP, CP, CP",
       map({4, 14, 4}, "x,y,z", "x,_,y,_,z,_", [](model& m, int x) { return m.reshape(x, {2, 2, 2, 7, 2, 2}); })},
      {62, "ReshapeMergeDimsWithHaloExchange", {2}, "CP",
       map({2, 3, 7, 10}, "_,_,x,_", "_,_,_,x,_", [](model& m, int x) { return m.reshape(x, {3, 2, 1, 14, 5}); })},
      // --- starts that are known when the program runs, random numbers
      {63, "DynamicUpdateSliceAlongPartitionedDimension", {2}, "AG",
       [](model& m) {
         const int x = m.argument({14, 8}, "x,_");
         const int update = m.argument({4, 8}, "x,_");
         m.result(m.shard(emit::dynamic_update_slice(m.b, x, update, {0, m.indices({}, 10)}), "x,_"));
       }},
      {64, "DynamicSliceReplicatedResultUsesCollectiveBroadcast", {4}, "broadcast",
       [](model& m) {
         const int x = m.argument({16, 8}, "x,_");
         m.result(m.shard(emit::dynamic_slice(m.b, x, m.indices({}, 16), 0, 1), "_,_"));
       }},
      {83, "DynamicUpdateSliceOfSliceUpdateCommunicationFree", {4}, "-",
       [](model& m) {
         const int x = m.argument({16, 8}, "x,_");
         const int cut = emit::slice(m.b, m.argument({16, 8}, "x,_"), 0, 3, 8);
         const int start = emit::constant(m.b, dtype::i32, extents{}, 3);
         m.result(m.shard(emit::dynamic_update_slice(m.b, x, cut, {0, start}), "x,_"));
       }},
      {73, "ReplicatedRng", {2}, "AR",
       [](model& m) {
         const int key = emit::convert(m.b, m.indices({2}, 1000), dtype::u32);
         m.result(m.shard(emit::uniform(m.b, dtype::f32, shape_of({6, 5}), key), "_,_"));
       }},
      {73, "PartitionedRng", {2}, "-",
       [](model& m) {
         const int key = emit::convert(m.b, m.indices({2}, 1000), dtype::u32);
         m.result(m.shard(emit::uniform(m.b, dtype::f32, shape_of({6, 5}), key), "x,_"));
       }},
      {73, "PartialReplicatedRng", {2, 4}, "AR",
       [](model& m) {
         const int key = emit::convert(m.b, m.indices({2}, 1000), dtype::u32);
         m.result(m.shard(emit::uniform(m.b, dtype::f32, shape_of({6, 5}), key), "x,_"));
       }},
      {65, "PassthroughGather", {2}, "-",
       [](model& m) {
         const int table = m.argument({2, 9}, "_,x");
         m.result(m.shard(emit::gather(m.b, table, m.indices({3}, 2, "_"), 0), "_,x"));
       }},
      {65, "IndexPassthroughGather", {4}, "-",
       [](model& m) {
         const int table = m.argument({2, 9}, "_,_");
         m.result(m.shard(emit::gather(m.b, table, m.indices({8}, 2, "x"), 0), "x,_"));
       }},
      {66, "GatherPartitionedOnTrivialSliceDims", {2}, "AR",
       [](model& m) {
         const int table = m.argument({17, 9}, "x,_");
         m.result(m.shard(emit::gather(m.b, table, m.indices({2, 3}, 17, "_,_"), 0), "_,_,_"));
       }},
      {68, "PassthroughScatter", {2}, "-",
       [](model& m) {
         const int updates = m.argument({3, 9}, "_,x");
         m.result(m.shard(emit::scatter_add(m.b, shape_of({2, 9}), m.indices({3}, 2, "_"), updates, 0), "_,x"));
       }},
      {68, "ScatterPartitionedOnTrivialSliceDims", {2}, "-",
       [](model& m) {
         const int updates = m.argument({6, 9}, "_,_");
         m.result(m.shard(emit::scatter_add(m.b, shape_of({17, 9}), m.indices({6}, 17, "_"), updates, 0), "x,_"));
       }},
  };
  return all;
}

/// The page of the documentation, as a table.
std::string page(const std::vector<std::string>& ours) {
  std::ostringstream text;
  text << "# What XLA's partitioner tests move, and what we do\n\n"
          "The cases of `spmd_partitioner_test.cc` (openxla/xla) that need no control flow, by their numbers in our "
          "list. "
          "AG, AR, A2A,\nCP: all-gather, all-reduce, all-to-all, collective-permute. Ours name the axes and the bytes "
          "of the device that sends most\n(an exchange: that receives most), each case executed and compared with one "
          "device. `tests/tensor/unit/partitioner_cases.cpp` makes this page.\n\n"
          "| | test | devices | XLA | ours |\n|---|---|---|---|---|\n";
  for (std::size_t n = 0; n < cases().size(); ++n) {
    const partitioner_case& c = cases()[n];
    text << "| " << c.row << " | " << c.name << " | ";
    for (std::size_t a = 0; a < c.mesh.size(); ++a) text << (a > 0 ? " x " : "") << c.mesh[a];
    text << " | " << c.theirs << " | " << (ours[n].empty() ? "-" : ours[n]) << " |\n";
  }
  return text.str();
}

TEST_CASE("XLA's partitioner cases move what the page says, and compute what one device does", "[partitioner_cases]") {
  std::vector<std::string> ours;
  for (const partitioner_case& c : cases()) {
    CAPTURE(c.row, c.name);
    model m;
    c.write(m);
    const spmd_program program = run_merged_on(c.mesh, m);
    ours.push_back(program.summary());
    const std::vector<tensor_value> expected = interpret(m.b.result(), m.arguments);
    const std::vector<tensor_value> made = execute(mesh_of(c.mesh), program.parts.program, m.arguments);
    REQUIRE(made.size() == expected.size());
    for (std::size_t r = 0; r < made.size(); ++r) {
      REQUIRE(made[r].data.size() == expected[r].data.size());
      double worst = 0;
      for (std::size_t i = 0; i < made[r].data.size(); ++i) {
        worst = std::max(worst, std::abs(made[r].data[i] - expected[r].data[i]) / (1 + std::abs(expected[r].data[i])));
      }
      CHECK(worst < 1e-4);
    }
  }
  const std::string made = page(ours);
  const char* const root = std::getenv("ESPALIER_SOURCE");
  const std::string file = std::string(root == nullptr ? "." : root) + "/docs/partitioner-cases.md";
  if (std::getenv("ESPALIER_WRITE_DOCS") != nullptr) std::ofstream(file) << made;
  std::ifstream written(file);
  CHECK(std::string(std::istreambuf_iterator<char>(written), {}) == made);
}

/// Executed and compared with one device, and what it moves.
std::string moved(const std::vector<int>& mesh, const std::function<void(model&)>& write) {
  model m;
  write(m);
  const spmd_program program = run_merged_on(mesh, m);
  const std::vector<tensor_value> expected = interpret(m.b.result(), m.arguments);
  const std::vector<tensor_value> made = execute(mesh_of(mesh), program.parts.program, m.arguments);
  REQUIRE(made.size() == expected.size());
  for (std::size_t r = 0; r < made.size(); ++r) {
    REQUIRE(made[r].data.size() == expected[r].data.size());
    for (std::size_t i = 0; i < made[r].data.size(); ++i) {
      REQUIRE(made[r].data[i] == Approx(expected[r].data[i]).margin(1e-6));
    }
  }
  return program.summary();
}

TEST_CASE("uneven reshapes move the elements between two parts, and no others", "[partitioner_cases]") {
  // Device 0 has elements 0 to 3 and keeps 0 to 2.
  CHECK(moved({2}, reshaping({3, 2}, "x,_", {6}, "x")) == "exchange(x) 4");
  CHECK(moved({2}, reshaping({6}, "x", {3, 2}, "x,_")) == "exchange(x) 4");
  // 7 rows of 5 are 4 and 3 rows on two devices; half of 35 elements are 18.
  CHECK(moved({2}, reshaping({7, 5}, "x,_", {35}, "x")) == "exchange(x) 8");
  CHECK(moved({2}, reshaping({35}, "x", {7, 5}, "x,_")) == "exchange(x) 8");
  // Completion carries the axis across: nothing but the argument is annotated.
  const auto follows = [](model& m) { m.result(m.reshape(m.argument({7, 5}, "x,_"), {35})); };
  CHECK(moved({2}, follows) == "exchange(x) 8");
  const auto leads = [](model& m) { m.result(m.shard(m.reshape(m.argument({35}), {7, 5}), "x,_")); };
  CHECK(moved({2}, leads) == "exchange(x) 8");
  // There are dimensions before and after, one of them split too.
  CHECK(moved({2, 2}, reshaping({4, 3, 2, 5}, "y,x,_,_", {4, 6, 5}, "y,x,_")) == "exchange(x) 40");
  // Neither extent divides the other, but the halves are the same elements.
  CHECK(moved({2}, reshaping({6, 4}, "x,_", {8, 3}, "x,_")) == "");
  CHECK(moved({2}, reshaping({5, 6}, "x,_", {10, 3}, "x,_")) == "exchange(x) 12");
  // More devices than rows: two of eight elements each become the halves of four devices.
  CHECK(moved({4}, reshaping({8}, "x", {2, 4}, "x,_")) == "exchange(x) 8");
  // A sum that is partial moves as terms only where it stays partial.
  const auto gradient = [](model& m) {
    const int x = m.argument({7, 5}, "x,_");
    const int y = m.reshape(m.multiply(x, x), {35});
    m.train(m.total(m.multiply(y, y)), {x});
  };
  CHECK(moved({2}, gradient) == "exchange(x) 8, exchange(x) 8, all_reduce(x) 4");
}

TEST_CASE("a rotation is one exchange, however it is written", "[partitioner_cases]") {
  const auto joined = [](model& m) {
    const int x = m.argument({12, 3}, "x,_");
    const int parts[]{emit::slice(m.b, x, 0, 10, 2), emit::slice(m.b, x, 0, 0, 10)};
    m.result(m.shard(emit::concat(m.b, &parts[0], 2, 0), "x,_"));
  };
  CHECK(moved({4}, joined) == "exchange(x) 24");
  const auto rolled = [](std::int64_t extent, std::int64_t by) {
    return map({extent, 3}, "x,_", "x,_", [by](model& m, int x) { return emit::roll(m.b, x, 0, by); });
  };
  CHECK(moved({4}, rolled(12, 2)) == "exchange(x) 24");
  CHECK(moved({4}, rolled(12, -1)) == "exchange(x) 12");
  // The roll is by a whole part: everything travels to the neighbour.
  CHECK(moved({4}, rolled(12, 3)) == "exchange(x) 36");
  // Uneven parts, and more devices than elements.
  CHECK(moved({4}, rolled(10, 1)) == "exchange(x) 12");
  CHECK(moved({8}, rolled(3, 1)) == "exchange(x) 12");
  CHECK(moved({2, 2}, map({10, 3}, "xy,_", "xy,_", [](model& m, int x) { return emit::roll(m.b, x, 0, 4); })) != "");
  // A dimension that is not split does not travel.
  CHECK(moved({2}, map({3, 10}, "x,_", "x,_", [](model& m, int x) { return emit::roll(m.b, x, 1, 4); })) == "");
}

}  // namespace
