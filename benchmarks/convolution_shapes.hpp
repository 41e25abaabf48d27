// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string_view>

// The convolutions that benchmarks/convolution.cpp and its peer measure: one list, so that both have the same.

namespace espalier::benchmarks {

/// `name` is extent_channels_taps_features. As many elements, taps and steps in each of `spatial` dimensions; zeros
/// around it so that stride 1 keeps the extent.
struct convolution_shape {
  std::string_view name;
  int spatial;
  int images;
  int extent;
  int channels;
  int taps;
  int stride;
  int features;

  [[nodiscard]] constexpr int padding() const { return taps / 2; }
  [[nodiscard]] constexpr int output() const { return (extent + 2 * padding() - taps) / stride + 1; }
  [[nodiscard]] constexpr double flops() const {
    double count = 2.0 * images * channels * features;
    for (int d = 0; d < spatial; ++d) count *= static_cast<double>(output()) * taps;
    return count;
  }
};

inline constexpr convolution_shape convolution_shapes[]{
    // ResNet-50: each of its layers that is not like another.
    {"224_3_7x7s2_64", 2, 32, 224, 3, 7, 2, 64},
    {"56_64_1x1_64", 2, 32, 56, 64, 1, 1, 64},
    {"56_64_3x3_64", 2, 16, 56, 64, 3, 1, 64},
    {"56_64_1x1_256", 2, 32, 56, 64, 1, 1, 256},
    {"56_256_1x1_64", 2, 32, 56, 256, 1, 1, 64},
    {"56_256_1x1_128", 2, 16, 56, 256, 1, 1, 128},
    {"56_128_3x3s2_128", 2, 16, 56, 128, 3, 2, 128},
    {"28_128_1x1_512", 2, 32, 28, 128, 1, 1, 512},
    {"56_256_1x1s2_512", 2, 16, 56, 256, 1, 2, 512},
    {"28_512_1x1_128", 2, 32, 28, 512, 1, 1, 128},
    {"28_128_3x3_128", 2, 16, 28, 128, 3, 1, 128},
    {"28_512_1x1_256", 2, 16, 28, 512, 1, 1, 256},
    {"28_256_3x3s2_256", 2, 16, 28, 256, 3, 2, 256},
    {"14_256_1x1_1024", 2, 32, 14, 256, 1, 1, 1024},
    {"28_512_1x1s2_1024", 2, 16, 28, 512, 1, 2, 1024},
    {"14_1024_1x1_256", 2, 32, 14, 1024, 1, 1, 256},
    {"14_256_3x3_256", 2, 16, 14, 256, 3, 1, 256},
    {"14_1024_1x1_512", 2, 32, 14, 1024, 1, 1, 512},
    {"14_512_3x3s2_512", 2, 32, 14, 512, 3, 2, 512},
    {"7_512_1x1_2048", 2, 32, 7, 512, 1, 1, 2048},
    {"14_1024_1x1s2_2048", 2, 32, 14, 1024, 1, 2, 2048},
    {"7_2048_1x1_512", 2, 32, 7, 2048, 1, 1, 512},
    {"7_512_3x3_512", 2, 32, 7, 512, 3, 1, 512},
    // Voxels.
    {"32_32_3x3x3_32", 3, 1, 32, 32, 3, 1, 32},
    {"16_64_3x3x3_64", 3, 4, 16, 64, 3, 1, 64},
    {"32_64_3x3x3_64", 3, 1, 32, 64, 3, 1, 64},
    {"16_128_3x3x3_128", 3, 1, 16, 128, 3, 1, 128},
};

}  // namespace espalier::benchmarks
