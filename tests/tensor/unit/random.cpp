// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: yes
// together: speed

#include <catch2/catch.hpp>
#include <espalier/tensor/run/kernels/random.hpp>
#include <tensor/unit/kernels_ops_checks.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

// The generator itself, and its kernel on parts of tensors.

namespace espalier {
namespace {

using block = std::array<std::uint32_t, 4>;

// The values are from the file kat_vectors of Random123 (D. E. Shaw Research).
constexpr block zeros{0, 0, 0, 0};
constexpr block ones{0xffffffffU, 0xffffffffU, 0xffffffffU, 0xffffffffU};
constexpr block pi{0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U};
static_assert(philox<7>(zeros, {0, 0}) == block{0x5f6fb709U, 0x0d893f64U, 0x4f121f81U, 0x4f730a48U});
static_assert(philox<7>(ones, {ones[0], ones[1]}) == block{0x5207ddc2U, 0x45165e59U, 0x4d8ee751U, 0x8c52f662U});
static_assert(philox<7>(pi, {0xa4093822U, 0x299f31d0U}) == block{0x4dfccabaU, 0x190a87f0U, 0xc47362baU, 0xb6b5242aU});
static_assert(philox<10>(zeros, {0, 0}) == block{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U});
static_assert(philox<10>(ones, {ones[0], ones[1]}) == block{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU});
static_assert(philox<10>(pi, {0xa4093822U, 0x299f31d0U}) == block{0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U});

constexpr detail::random_stream stream{{0xa4093822U, 0x299f31d0U}, 0x13198a2eU, 0x03707344U};

std::uint32_t word(std::int64_t at) {
  const auto number = static_cast<std::uint64_t>(at) / 4;
  return philox(
      {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32U), stream.number, stream.purpose},
      {stream.key[0], stream.key[1]})[static_cast<std::size_t>(at % 4)];
}

/// A part of a tensor, in a buffer that may have room for more.
void check_part(const extents& whole, const extents& shape, const tensor_box& box) {
  const auto count = static_cast<std::size_t>(shape.elements());
  const auto check = [&](std::int64_t streamed_from) {
    std::vector<std::uint32_t> got(count + 1, 7);
    detail::write_words(stream, shape, box, whole, got.data(), streamed_from);
    REQUIRE(got[count] == 7);
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      std::int64_t rest = i;
      std::int64_t at = 0;
      bool real = true;
      for (int d = shape.rank - 1; d >= 0; --d) {
        const std::int64_t here = rest % shape[d];
        real = real && here < box.dim[d].size;
        at += (box.dim[d].start + here) * stride_of(whole, d);
        rest /= shape[d];
      }
      if (!real) continue;
      INFO("element " << i);
      REQUIRE(got[static_cast<std::size_t>(i)] == word(at));
    }
  };
  test::with_threads([&] {
    check(detail::least_streamed_bytes);
    check(0);
  });
}

}  // namespace

TEST_CASE("random words of the parts of a tensor are those of the whole") {
  for (const std::int64_t start : {0, 1, 2, 3, 4, 63, 1021}) {
    for (const std::int64_t size : {0, 1, 2, 3, 5, 63, 64, 65, 200, 40000}) {
      CAPTURE(start, size);
      check_part({1, {50000}}, {1, {size}}, {{{start, size}}});
      if (size < 300) {
        check_part({2, {60, 1300}}, {2, {20, size}}, {{{40, 20}, {start, size}}});
        check_part({3, {9, 1300, 5}}, {3, {3, size + 1, 5}}, {{{6, 3}, {start, size}, {0, 5}}});
        check_part({3, {9, 1300, 6}}, {3, {9, size, 2}}, {{{0, 9}, {start, size}, {3, 2}}});
      }
    }
  }
  check_part({}, {}, {});
  check_part({4, {3, 300, 7, 8}}, {4, {2, 300, 7, 8}}, {{{1, 2}, {0, 300}, {0, 7}, {0, 8}}});
}

TEST_CASE("random words of a tensor with more than 2^34 elements") {
  // The counter's second word is needed, and begins within a run.
  const std::int64_t edge = std::int64_t{1} << 34;
  check_part({1, {edge * 3}}, {1, {500}}, {{{edge - 241, 500}}});
  check_part({2, {8, edge}}, {2, {2, 130}}, {{{5, 2}, {edge - 130, 130}}});
  CHECK(word(edge) != word(0));
}

TEST_CASE("numbers and purposes give other words") {
  std::vector<std::uint32_t> all;
  for (const std::uint32_t number : {0U, 1U, 2U}) {
    for (const std::uint32_t purpose : {0U, 1U, 2U}) {
      std::uint32_t made[16];
      detail::write_words({{1, 2}, number, purpose}, {1, {16}}, {{{0, 16}}}, {1, {16}}, &made[0]);
      all.insert(all.end(), std::begin(made), std::end(made));
    }
  }
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
}

TEST_CASE("the last number below a bound") {
  CHECK(detail::last_below(dtype::f32, 1.0) == 1.0 - 0x1p-24);
  CHECK(detail::last_below(dtype::f32, -1.0) == -1.0 - 0x1p-23);
  CHECK(detail::last_below(dtype::f64, 2.0) == 2.0 - 0x1p-52);
  CHECK(detail::last_below(dtype::bf16, 1.0) == 1.0 - 0x1p-8);
  CHECK(detail::last_below(dtype::f16, 1.0) == 1.0 - 0x1p-11);
  CHECK(detail::last_below(dtype::f32, 0.1) == static_cast<double>(std::nextafter(0.1F, 0.0F)));  // 0.1F is above 0.1
  CHECK(detail::last_below(dtype::f32, 0.0) == -0x1p-149);
  CHECK(detail::last_below(dtype::f16, 1e9) == 65504.0);
}

/// Printed, not asserted: where memory takes what is written, not the first-level cache, this is what counts.
TEST_CASE("random words against stored constants") {
  for (const std::int64_t count : {std::int64_t{1} << 14, std::int64_t{1} << 25}) {
    std::vector<std::uint32_t> memory(static_cast<std::size_t>(count));
    const extents shape{1, {count}};
    const auto best = [&](const auto& work) {
      double least = 1e9;
      for (int round = 0; round < 7; ++round) {
        const auto start = std::chrono::steady_clock::now();
        work();
        least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      }
      return 4e-9 * static_cast<double>(count) / least;
    };
    test::with_threads([&] {
      const double words =
          best([&] { detail::write_words(stream, shape, detail::whole_box(shape), shape, memory.data()); });
      const double constants = best([&] { detail::fill_all(count, memory.data(), std::uint32_t{3}); });
      std::printf("%9lld words, %d threads: random %.1f GB/s, constants %.1f GB/s, ratio %.2f\n",
                  static_cast<long long>(count), detail::available_threads(), words, constants, words / constants);
    });
  }
}

}  // namespace espalier
