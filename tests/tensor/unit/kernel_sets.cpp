// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// built: once
//
// The kernels that programs take from the compiled part (kernels/kernel_set.hpp). Which instruction set serves is tried
// by tests/install/consumer/kernel_sets.cpp; here: all that programs may ask for is there, and makes what a program's
// own kernels make, to the last bit where an element is one operation.
#include <espalier/tensor/run/kernels/shared_blocks.hpp>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace {

using namespace espalier;
using kernels::block_call;
using kernels::block_key;
using kernels::block_signature;

constexpr dtype all_types[]{dtype::f32, dtype::f64, dtype::bf16, dtype::i32, dtype::boolean,
                            dtype::u32, dtype::i64, dtype::i8,   dtype::f16, dtype::u8};

/// Keys of one op of the list: all types in all places, and all widths that a chain may ask for.
template <class Visit> void for_each_key(const kernels::shared_block& row, const Visit& visit) {
  for (const std::int64_t columns : {std::int64_t{0}, any_columns, std::int64_t{1}, std::int64_t{6}}) {
    for (const dtype to : all_types) {
      for (const dtype from : all_types) {
        for (int wide = 0; wide <= 1 << row.operands; ++wide) {
          block_key key;
          key.columns = columns;
          key.type = to;
          key.operand_count = row.operands;
          key.result_wide = wide < 1 << row.operands;
          for (int k = 0; k < row.operands; ++k) {
            key.operand_type[k] = row.signature == block_signature::selects && k == 0 ? dtype::boolean : from;
            key.wide[k] = key.result_wide && (wide >> k & 1) != 0;
          }
          visit(key);
        }
      }
    }
  }
}

template <const op_info* Op, block_key Key> std::vector<float> own(const block_call& call, std::size_t size) {
  std::vector<float> made(size, -7.0F);
  block_call mine = call;
  mine.result.data = made.data();
  kernels::block_kernel<Op>::template run<Key>(mine);
  return made;
}
template <const op_info* Op, block_key Key> std::vector<float> shared(const block_call& call, std::size_t size) {
  static_assert(kernels::is_shared(Op, Key));
  std::vector<float> made(size, -7.0F);
  block_call mine = call;
  mine.result.data = made.data();
  kernels::processor_kernels().block(Op->name, Key)(mine);
  return made;
}
template <const op_info* Op, block_key Key> void gives_the_same(const block_call& call, std::size_t size) {
  const std::vector<float> a = own<Op, Key>(call, size);
  const std::vector<float> b = shared<Op, Key>(call, size);
  INFO(Op->name << " of rows of " << call.columns);
  CHECK(std::memcmp(a.data(), b.data(), size * sizeof(float)) == 0);
  CHECK(a[0] != -7.0F);
}
/// Which products and sums of a polynomial are rounded once depends on how the compiler optimised the file.
template <const op_info* Op, block_key Key> void gives_nearly_the_same(const block_call& call, std::size_t size) {
  const std::vector<float> a = own<Op, Key>(call, size);
  const std::vector<float> b = shared<Op, Key>(call, size);
  INFO(Op->name << " of rows of " << call.columns);
  float worst = 0;
  for (std::size_t i = 0; i < size; ++i) worst = std::max(worst, std::abs(a[i] - b[i]) / (std::abs(a[i]) + 1e-3F));
  CHECK(worst <= 1e-6F);
  CHECK(a[0] != -7.0F);
}

constexpr block_key key_for(std::int64_t columns, int operands, std::array<bool, 3> wide, bool result_wide = true) {
  block_key key;
  key.columns = columns;
  key.operand_count = operands;
  for (int k = 0; k < operands; ++k) key.wide[k] = wide[static_cast<std::size_t>(k)];
  key.result_wide = result_wide;
  return key;
}

}  // namespace

TEST_CASE("kernel sets: they have every micro-operation that a program leaves to them") {
  const kernels::kernel_set& set = kernels::processor_kernels();
  int asked = 0;
  for (const kernels::shared_block& row : kernels::shared_blocks) {
    for_each_key(row, [&](block_key key) {
      if (row.signature != block_signature::reduces) {
        if (!kernels::is_shared(row.op, key)) return;
        INFO(row.op->name);
        CHECK(set.block(row.op->name, key) != nullptr);
        ++asked;
        return;
      }
      for (const reduction kind : {reduction::sum, reduction::prod, reduction::max, reduction::min}) {
        for (const bool accumulates : {false, true}) {
          set_attributes(key, fused_reduction_attributes{.kind = kind, .accumulates = accumulates});
          if (!kernels::is_shared(row.op, key)) continue;
          CHECK(set.block(row.op->name, key) != nullptr);
          ++asked;
        }
      }
    });
  }
  CHECK(asked > 3000);
  for (int n = 0; n < kernels::shared_product_count; ++n) {
    CHECK(set.products[n].contract != nullptr);
    CHECK(set.products[n].contract_item != nullptr);
    CHECK(set.products[n].rows != nullptr);
    CHECK(set.products[n].row_scratch != nullptr);
  }
  for (const auto function : set.reduce) CHECK(function != nullptr);
  for (int n = 0; n < 4; ++n) {
    CHECK(set.copy[n] != nullptr);
    CHECK(set.transpose[n] != nullptr);
  }
}

TEST_CASE("kernel sets: of any other type or op a program has its own code") {
  block_key key = key_for(0, 2, {true, true, false});
  CHECK(kernels::is_shared(&ops::add, key));
  key.type = key.operand_type[0] = key.operand_type[1] = dtype::i64;
  CHECK_FALSE(kernels::is_shared(&ops::add, key));
  CHECK(kernels::processor_kernels().block("add", key) == nullptr);
  key = key_for(0, 2, {true, true, false});
  key.operand_type[1] = dtype::bf16;
  CHECK_FALSE(kernels::is_shared(&ops::add, key));
  CHECK_FALSE(kernels::is_shared(&ops::atan2, key_for(0, 2, {true, true, false})));
  CHECK(kernels::shared_product(dtype::f16, dtype::f16, dtype::f16) == -1);
  CHECK(kernels::shared_reduction(reduction::sum, dtype::i64, dtype::i64) == -1);
}

TEST_CASE("kernel sets: micro-operations make the bits of a program's own, functions nearly") {
  constexpr std::int64_t rows = 5;
  std::vector<float> x(5 * 96);
  std::vector<float> y(5 * 96);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = std::sin(static_cast<float>(i) * 0.37F) * 3;
    y[i] = std::cos(static_cast<float>(i) * 0.11F) + 1.5F;
  }
  block_call call;
  call.rows = rows;
  const auto of = [&](std::int64_t columns, std::int64_t y_row) {
    call.columns = columns;
    call.operand[0] = {x.data(), columns};
    call.operand[1] = {y.data(), y_row};
    call.operand[2] = {x.data() + 7, columns == 6 ? 1 : columns};
    call.result.row = columns;
    return static_cast<std::size_t>(rows * columns);
  };
  // Short rows, long ones, and some that are no whole vectors; y with an element for each column, and for each row.
  gives_the_same<&ops::add, key_for(6, 2, {true, true, false})>(call, of(6, 6));
  gives_the_same<&ops::add, key_for(6, 2, {true, false, false})>(call, of(6, 1));
  gives_the_same<&ops::multiply, key_for(0, 2, {true, false, false})>(call, of(96, 1));
  gives_the_same<&ops::divide, key_for(any_columns, 2, {true, true, false})>(call, of(37, 37));
  gives_nearly_the_same<&ops::tanh, key_for(0, 1, {true, false, false})>(call, of(96, 0));
  gives_nearly_the_same<&ops::gelu, key_for(21, 1, {true, false, false})>(call, of(21, 0));
  gives_nearly_the_same<&ops::exp, key_for(1, 1, {true, false, false})>(call, of(1, 0));
  gives_the_same<&ops::softmax, key_for(6, 3, {true, true, false})>(call, of(6, 6));
  gives_nearly_the_same<&ops::sin, key_for(0, 1, {true, false, false})>(call, of(64, 0));

  constexpr auto sum_of_row = [] {
    block_key key = key_for(6, 1, {true, false, false}, false);
    set_attributes(key, fused_reduction_attributes{.kind = reduction::sum});
    return key;
  }();
  of(6, 0);
  call.result.row = 1;
  gives_the_same<&ops::reduce_sum, sum_of_row>(call, static_cast<std::size_t>(rows));
}
