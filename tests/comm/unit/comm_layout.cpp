// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// together: host

#include "comm_checks.hpp"

#include <espalier/comm/layout.hpp>
#include <espalier/comm/reducer.hpp>
#include <espalier/testing/collapsed_block.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <limits>
#include <numeric>

namespace {

using namespace espalier;
using namespace espalier::comm;
using comm_checks::each_element;

static_assert(all_reduce_sent_bytes(8, 4, 4, 0) == 2 * 3 * 8 * 4 / 4);
static_assert(all_reduce_sent_bytes(1, 4, 4, 0) == 3 * 4, "the owner sends the result to three");
static_assert(all_reduce_sent_bytes(1, 4, 4, 3) == 4, "another sends its one value to the owner");
static_assert(all_reduce_sent_bytes(7, 8, 1, 0) == 0);
static_assert(all_reduce_sent_bytes(7, 8, 2, 0) == 56 && all_reduce_sent_bytes(7, 8, 2, 1) == 56);
/// A box of the last four dimensions.
constexpr block box_of_four(std::array<std::int64_t, 4> extent, std::array<std::int64_t, 4> source,
                            std::array<std::int64_t, 4> target) {
  block box = contiguous_block(1, 5, 6);
  for (std::size_t d = 0; d < 4; ++d) {
    box.extent[block_rank - 4 + d] = extent[d];
    box.source_stride[block_rank - 4 + d] = source[d];
    box.target_stride[block_rank - 4 + d] = target[d];
  }
  return box;
}
static_assert(collapsed(box_of_four({2, 3, 1, 4}, {12, 4, 99, 1}, {24, 4, 77, 1})) ==
              box_of_four({1, 1, 2, 12}, {0, 0, 12, 1}, {0, 0, 24, 1}));
constexpr block two_runs = box_of_four({1, 2, 3, 4}, {0, 12, 4, 1}, {0, 40, 8, 1});
static_assert(comm::detail::contiguous_source(two_runs, 3, 9) == 8);
static_assert(comm::detail::contiguous_target(two_runs, 3, 9) == -1);
static_assert(comm::detail::contiguous_target(two_runs, 13, 3) == 47);

/// A box that has as many dimensions as there can be, none of which continues another: a part of each.
constexpr block box_of_eight = [] {
  block box = contiguous_block(1);
  std::int64_t stride = 1;
  for (int d = block_rank - 1; d >= 0; --d) {
    box.extent[d] = 2;
    box.source_stride[d] = stride;
    box.target_stride[d] = 2 * stride;
    stride *= 3;
  }
  return box;
}();
static_assert(collapsed(box_of_eight) == box_of_eight);
static_assert(box_of_eight.elements() == 256);
static_assert(comm::detail::contiguous_source(box_of_eight, 255, 1) == 1 + 3 + 9 + 27 + 81 + 243 + 729 + 2187);
static_assert(comm::detail::contiguous_source(box_of_eight, 0, 256) == -1);

TEST_CASE("owned ranges cover a buffer once, and differ by one element at most", "[comm][layout]") {
  for (const std::int64_t count : {0, 1, 5, 12, 1001}) {
    for (int members = 1; members <= 9; ++members) {
      std::int64_t end = 0;
      for (int k = 0; k < members; ++k) {
        const element_range range = owned_range(count, members, k);
        REQUIRE(range.begin == end);
        REQUIRE((range.size() == count / members || range.size() == count / members + 1));
        end = range.end;
      }
      REQUIRE(end == count);
    }
  }
}

TEST_CASE("a box of eight strided dimensions copies, packs and unpacks its elements", "[comm][layout]") {
  std::vector<int> source(6561);
  std::iota(source.begin(), source.end(), 1);
  std::vector<int> expected(2 * source.size(), -1);
  std::vector<int> copied = expected;
  std::vector<int> unpacked = expected;
  std::vector<int> in_order;
  each_element(box_of_eight, [&](std::int64_t from, std::int64_t to) {
    expected.at(static_cast<std::size_t>(to)) = source.at(static_cast<std::size_t>(from));
    in_order.push_back(source[static_cast<std::size_t>(from)]);
  });
  copy_block(copied.data(), source.data(), box_of_eight);
  CHECK(copied == expected);
  std::vector<int> packed(256);
  pack(dtype::i32, packed.data(), source.data(), box_of_eight);
  CHECK(packed == in_order);
  unpack(dtype::i32, unpacked.data(), packed.data(), box_of_eight);
  CHECK(unpacked == expected);
}

TEST_CASE("a box copies, packs, unpacks and reduces the same elements, collapsed or not", "[comm][layout]") {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const block plain = comm_checks::box_between(static_cast<int>(seed % 3), 1, 0, seed, false, 0);
    std::vector<int> source(comm_checks::source_size);
    std::iota(source.begin(), source.end(), 1);
    std::vector<int> expected(source.size(), -1);
    each_element(plain,
                 [&](auto s, auto t) { expected[static_cast<std::size_t>(t)] = source[static_cast<std::size_t>(s)]; });
    for (const block& box : {plain, collapsed(plain)}) {
      REQUIRE(box.elements() == plain.elements());
      std::vector<int> target(source.size(), -1);
      copy_block(target.data(), source.data(), box);
      REQUIRE(target == expected);
      std::vector<int> packed(static_cast<std::size_t>(box.elements()));
      pack(dtype::i32, packed.data(), source.data(), box);
      std::vector<int> unpacked(source.size(), -1);
      unpack(dtype::i32, unpacked.data(), packed.data(), box);
      REQUIRE(unpacked == expected);
      reduce_block<reduction::sum>(target.data(), source.data(), box);
      for (std::size_t i = 0; i < target.size(); ++i) REQUIRE(target[i] == (expected[i] == -1 ? -1 : 2 * expected[i]));
      for (std::int64_t first = 0; first < box.elements(); first += 13) {
        const std::int64_t length = std::min<std::int64_t>(29, box.elements() - first);
        const std::int64_t start = comm::detail::contiguous_source(box, first, length);
        if (start < 0) continue;
        for (std::int64_t i = 0; i < length; ++i) {
          REQUIRE(source[static_cast<std::size_t>(start + i)] == packed[static_cast<std::size_t>(first + i)]);
        }
      }
    }
  }
}

TEST_CASE("a NaN on any device stays visible in max and min", "[comm][layout]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float values[3][3] = {{nan, 1, 1}, {1, nan, 1}, {1, 1, nan}};
  const contribution parts[3] = {{values[0], nullptr}, {values[1], nullptr}, {values[2], nullptr}};
  for (const reduction kind : {reduction::max, reduction::min}) {
    float result[3] = {};
    comm::detail::reduce_range(comm::reducer_of(dtype::f32, kind), result, contiguous_block(3), 0, 3, parts, 3);
    for (const float r : result) REQUIRE(r != r);
  }
}

TEST_CASE("bf16 sums are kept in float and rounded once", "[comm][layout]") {
  const bfloat16 values[4] = {bfloat16(256.0F), bfloat16(1.0F), bfloat16(1.0F), bfloat16(2.0F)};
  const contribution parts[4] = {
      {&values[0], nullptr}, {&values[1], nullptr}, {&values[2], nullptr}, {&values[3], nullptr}};
  bfloat16 result;
  comm::detail::reduce_range(comm::reducer_of(dtype::bf16, reduction::sum), &result, contiguous_block(1), 0, 1, parts,
                             4);
  REQUIRE(static_cast<float>(result) == 260.0F);  // rounding each step would give 258
}

}  // namespace
