// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// together: kernels

#include <espalier/tensor/run/kernels/dynamic_slice.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using namespace espalier;

/// Large enough that threads share the work: their ranges begin and end within slabs.
constexpr extents whole{3, {5, 3000, 33}};
constexpr extents part{3, {5, 2001, 33}};
constexpr extents update{3, {5, 2001, 7}};

constexpr kernels::kernel_key slice_key = [] {
  kernels::kernel_key key;
  key.type = dtype::f32;
  key.shape = part;
  key.operand_count = 2;
  key.operand_type[0] = dtype::f32;
  key.operand_shape[0] = whole;
  key.operand_type[1] = dtype::i64;
  set_attributes(key, dynamic_slice_attributes{.dim = 1, .extent = 9000, .size = 2001});
  return key;
}();
constexpr kernels::kernel_key update_key = [] {
  kernels::kernel_key key;
  key.type = dtype::f32;
  key.shape = whole;
  key.operand_count = 4;
  key.operand_type[0] = key.operand_type[1] = dtype::f32;
  key.operand_shape[0] = whole;
  key.operand_shape[1] = update;
  key.operand_type[2] = dtype::i64;
  key.operand_type[3] = dtype::i8;
  set_attributes(key, dynamic_update_slice_attributes{1, 9000, 2, 33});
  return key;
}();

std::vector<float> counted(const extents& shape, float from) {
  std::vector<float> made(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < made.size(); ++i) made[i] = from + static_cast<float>(i % 65521);
  return made;
}
std::size_t at(const extents& shape, std::int64_t a, std::int64_t b, std::int64_t c) {
  return static_cast<std::size_t>((a * shape[1] + b) * shape[2] + c);
}
/// This device has rows [3000, 6000) of 9000, the last of them padding.
instruction_boxes boxes_of(const tensor_box& result, const tensor_box& operand) {
  instruction_boxes boxes;
  boxes.result = result;
  boxes.operand[0] = operand;
  return boxes;
}
tensor_box box(std::int64_t start, std::int64_t rows, std::int64_t columns) {
  tensor_box made;
  made.dim[0] = {0, 5};
  made.dim[1] = {start, rows};
  made.dim[2] = {0, columns};
  return made;
}

}  // namespace

TEST_CASE("large dynamic slices of the rows that a device owns") {
  const std::vector<float> x = counted(whole, 1);
  for (const std::int64_t start : {-5, 0, 1000, 2000, 3500, 4500, 5998, 7000, 99999}) {
    CAPTURE(start);
    std::vector<float> y(static_cast<std::size_t>(part.elements()), -7);
    const instruction_boxes boxes = boxes_of(box(0, 2001, 33), box(3000, 2999, 33));
    kernels::kernel_call call;
    call.operand[0] = x.data();
    call.operand[1] = &start;
    call.result = y.data();
    call.boxes = &boxes;
    kernels::kernel<&ops::dynamic_slice>::run<slice_key>(call);
    const std::int64_t first = std::min<std::int64_t>(std::max<std::int64_t>(start, 0), 9000 - 2001);
    std::int64_t wrong = 0;
    for (std::int64_t a = 0; a < 5; ++a) {
      for (std::int64_t b = 0; b < 2001; ++b) {
        const bool mine = first + b >= 3000 && first + b < 5999;
        for (std::int64_t c = 0; c < 33; ++c) {
          const float expected = mine ? x[at(whole, a, first + b - 3000, c)] : 0.0F;
          wrong += y[at(part, a, b, c)] == expected ? 0 : 1;
        }
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("large dynamic updates of what a device owns, in place and not") {
  const std::vector<float> u = counted(update, -70000);
  const std::int8_t column = 20;
  for (const std::int64_t start : {-5, 2000, 3500, 4500, 5998, 7000}) {
    for (const bool in_place : {false, true}) {
      CAPTURE(start, in_place);
      std::vector<float> x = counted(whole, 1);
      const std::vector<float> before = x;
      std::vector<float> y(x.size(), -7);
      const instruction_boxes boxes = boxes_of(box(3000, 2999, 33), box(3000, 2999, 33));
      kernels::kernel_call call;
      call.operand[0] = x.data();
      call.operand[1] = u.data();
      call.operand[2] = &start;
      call.operand[3] = &column;
      call.result = in_place ? x.data() : y.data();
      call.boxes = &boxes;
      kernels::kernel<&ops::dynamic_update_slice>::run<update_key>(call);
      const std::int64_t first = std::min<std::int64_t>(std::max<std::int64_t>(start, 0), 9000 - 2001);
      const std::vector<float>& got = in_place ? x : y;
      std::int64_t wrong = 0;
      for (std::int64_t a = 0; a < 5; ++a) {
        for (std::int64_t b = 0; b < 2999; ++b) {
          const std::int64_t row = 3000 + b - first;
          for (std::int64_t c = 0; c < 33; ++c) {
            const bool written = row >= 0 && row < 2001 && c >= 20 && c < 27;
            const float expected = written ? u[at(update, a, row, c - 20)] : before[at(whole, a, b, c)];
            wrong += got[at(whole, a, b, c)] == expected ? 0 : 1;
          }
        }
      }
      CHECK(wrong == 0);
      if (!in_place) CHECK(x == before);
    }
  }
}
