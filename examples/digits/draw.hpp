// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/nn.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// Pictures of digits, each moved, scaled, slanted, of another darkness and under noise, as files of the formats that
/// data sets come in.
namespace digits {

constexpr int side = 16;
constexpr std::string_view glyphs[]{
    "01110100011001110101110011000101110", "00100011000010000100001000010001110", "01110100010000100010001000100011111",
    "11111000100010000010000011000101110", "00010001100101010010111110001000010", "11111100001111000001000011000101110",
    "00110010001000011110100011000101110", "11111000010001000100010000100001000", "01110100011000101110100011000101110",
    "01110100011000101111000010001001100"};  // 5 x 7 dots each

/// A number in (0, 1) that belongs to a picture.
inline double chance(std::int64_t picture, std::uint32_t which) {
  return espalier::nn::uniform_at(11, which, static_cast<std::uint64_t>(picture))[0];
}
inline int label(std::int64_t picture) { return static_cast<int>(chance(picture, 0) * 10); }

inline std::uint8_t pixel(std::int64_t picture, int row, int column) {
  const double scale = 1.5 + 0.4 * chance(picture, 1);
  const double y = (row - 7.5 - 3 * (chance(picture, 2) - 0.5)) / scale + 3.5;
  const double x =
      (column - 7.5 - 4 * (chance(picture, 3) - 0.5)) / scale + 2.5 + (y - 3.5) * 0.5 * (chance(picture, 4) - 0.5);
  const auto dot = [&](int r, int c) {
    const bool there = r >= 0 && r < 7 && c >= 0 && c < 5;
    return there && glyphs[label(picture)][static_cast<std::size_t>(5 * r + c)] == '1' ? 1.0 : 0.0;
  };
  const int r = static_cast<int>(std::floor(y));
  const int c = static_cast<int>(std::floor(x));
  const double ink = dot(r, c) * (0.7 + 0.3 * chance(picture, 5));
  const double noise = chance(picture, 6 + static_cast<std::uint32_t>(side * row + column)) - 0.5;
  return static_cast<std::uint8_t>(255 * std::clamp(ink + 0.5 * noise, 0.0, 1.0));
}

inline void write(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  if (!file.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush())
    throw std::runtime_error("cannot write " + path.string());
}

/// `images.npy`, as numpy.save writes an array u8 [count, 16, 16], and `labels.idx`, as MNIST's labels are.
inline void write_files(const std::filesystem::path& folder, std::int64_t count) {
  std::filesystem::create_directories(folder);
  std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (" + std::to_string(count) + ", 16, 16), }";
  header.resize(117, ' ');
  std::string images = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + '\n';
  std::string labels("\x00\x00\x08\x01", 4);
  for (int shift = 24; shift >= 0; shift -= 8) labels += static_cast<char>(count >> shift & 255);
  for (std::int64_t picture = 0; picture < count; ++picture) {
    labels += static_cast<char>(label(picture));
    for (int at = 0; at < side * side; ++at) images += static_cast<char>(pixel(picture, at / side, at % side));
  }
  write(folder / "images.npy", images);
  write(folder / "labels.idx", labels);
}

}  // namespace digits
