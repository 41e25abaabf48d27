// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/run/kernels/gemm.hpp>
#include <espalier/tensor/run/kernels/lanes.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace espalier::detail {

/// Few features: each is a sum of products along the strip's rows, several at a time.
template <class Acc> class few_features {
 public:
  static constexpr std::int64_t most = 4;
  using sizes = tile_sizes<Acc>;

  /// Rows of `features` elements, `step` apart.
  void load(const Acc* filter, std::int64_t depth, std::int64_t step, std::int64_t features) {
    depth_ = depth;
    features_ = features;
    for (std::int64_t q = 0; q < features; ++q) {
      for (std::int64_t p = 0; p < depth; ++p) weight_[q][p] = filter[p * step + q];
      for (std::int64_t p = depth; p < (depth + lane_count - 1) / lane_count * lane_count; ++p) weight_[q][p] = Acc(0);
    }
  }
  /// to[q] (+)= the sum over a row, @pre zeros after it up to a whole vector.
  void multiply(const Acc* row, bool adds, Acc* to) const {
    switch (features_) {
      case 1: return sums<1>(row, adds, to);
      case 2: return sums<2>(row, adds, to);
      case 3: return sums<3>(row, adds, to);
      default: return sums<4>(row, adds, to);
    }
  }
  /// Writes zeros after a row of a strip.
  void end(Acc* row) const {
    for (std::int64_t p = depth_; p % lane_count != 0; ++p) row[p] = Acc(0);
  }

 private:
  static constexpr int lane_count = full_lanes<Acc>;
  static_assert(sizes::depth % lane_count == 0);

  template <int Features> void sums(const Acc* row, bool adds, Acc* to) const {
    using vector = lanes<Acc, lane_count>;
    vector sum[Features][2] = {};
    std::int64_t p = 0;
    for (; p + 2 * lane_count <= depth_; p += 2 * lane_count) {
      const vector left = load_lanes<Acc, lane_count>(row + p);
      const vector right = load_lanes<Acc, lane_count>(row + p + lane_count);
      ESPALIER_UNROLL
      for (int q = 0; q < Features; ++q) {
        sum[q][0] += left * load_lanes<Acc, lane_count>(&weight_[q][p]);
        sum[q][1] += right * load_lanes<Acc, lane_count>(&weight_[q][p + lane_count]);
      }
    }
    for (; p < depth_; p += lane_count) {
      const vector left = load_lanes<Acc, lane_count>(row + p);
      for (int q = 0; q < Features; ++q) sum[q][0] += left * load_lanes<Acc, lane_count>(&weight_[q][p]);
    }
    for (int q = 0; q < Features; ++q) {
      const Acc all = sum_of_lanes<lane_count>(sum[q][0] + sum[q][1]);
      to[q] = adds ? to[q] + all : all;
    }
  }
  template <int Count> [[nodiscard]] static Acc sum_of_lanes(const lanes<Acc, Count>& v) {
    if constexpr (Count == 2) {
      return v[0] + v[1];
    } else {
      constexpr auto all = std::make_index_sequence<static_cast<std::size_t>(Count / 2)>{};
      return sum_of_lanes<Count / 2>(lower_half<Acc, Count>(v, all) + upper_half<Acc, Count>(v, all));
    }
  }

  alignas(64) Acc weight_[most][sizes::depth];
  std::int64_t depth_ = 0;
  std::int64_t features_ = 0;
};

}  // namespace espalier::detail
