// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

/// Pictures of six shapes, each of another size and place, under noise: disk, square, ring, frame, cross and saltire.
namespace vit {

/// A number in (0, 1) that belongs to a picture.
inline double chance(std::int64_t picture, std::uint32_t which) {
  return ep::nn::uniform_at(11, which, static_cast<std::uint64_t>(picture))[0];
}
inline int shape_of(std::int64_t picture) { return static_cast<int>(chance(picture, 0) * classes); }

inline float pixel(std::int64_t picture, std::int64_t at) {
  const double y = static_cast<double>(at / side) - (8 + 8 * chance(picture, 1));
  const double x = static_cast<double>(at % side) - (8 + 8 * chance(picture, 2));
  const double size = 4 + 3 * chance(picture, 3);
  const double radius = std::hypot(x, y);
  const double most = std::max(std::abs(x), std::abs(y));
  const auto is_inside = [&] {
    switch (shape_of(picture)) {
      case 0: return radius < size;
      case 1: return most < size;
      case 2: return radius < size && radius > size - 2;
      case 3: return most < size && most > size - 2;
      case 4: return most < size && std::min(std::abs(x), std::abs(y)) < 1.2;
      default: return most < size && std::abs(std::abs(x) - std::abs(y)) < 1.2;
    }
  };
  const double noise = ep::nn::uniform_at(12, static_cast<std::uint32_t>(at), static_cast<std::uint64_t>(picture))[0];
  return static_cast<float>((is_inside() ? 1.0 : 0.0) + 0.5 * (noise - 0.5));
}

/// Fills a batch with the pictures `first`, `first` + 1, ... and their classes.
inline void load(std::int64_t first, const auto& images, const auto& labels) {
  images.for_each([&](float& e, std::int64_t i) { e = pixel(first + i / (side * side), i % (side * side)); });
  labels.for_each([&](std::int32_t& e, std::int64_t i) { e = shape_of(first + i); });
}

}  // namespace vit
