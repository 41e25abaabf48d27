// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// built: once
//
// The kernels that programs take from the compiled part (kernels/kernel_set.hpp). Which instruction set serves is tried
// by tests/install/consumer/kernel_sets.cpp; here: all that programs may ask for is there, and makes what a program's
// own kernels make, to the last bit where an element is one operation.
#include <espalier/comm/reducer.hpp>
#include <espalier/tensor/core/partition/ops_by_name.hpp>
#include <espalier/tensor/run/kernels/shared_blocks.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
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
            key.operand_type[k] = kernels::operand_type_of(row.signature, k, from);
            key.wide[k] = key.result_wide && (wide >> k & 1) != 0;
          }
          visit(key);
        }
      }
    }
  }
}

/// Elements of a type, which may be `bool`.
template <class T> struct elements {
  explicit elements(std::size_t count) : bytes(count * sizeof(T), 0x5a) {}
  [[nodiscard]] T* data() { return reinterpret_cast<T*>(bytes.data()); }
  [[nodiscard]] const T& operator[](std::size_t i) const { return reinterpret_cast<const T*>(bytes.data())[i]; }
  std::vector<unsigned char> bytes;
};
template <const op_info* Op, block_key Key> auto own(const block_call& call, std::size_t size) {
  elements<storage_t<Key.type>> made(size);
  block_call mine = call;
  mine.result.data = made.data();
  kernels::block_kernel<Op>::template run<Key>(mine);
  return made;
}
template <const op_info* Op, block_key Key> auto shared(const block_call& call, std::size_t size) {
  static_assert(kernels::is_shared(Op, Key));
  elements<storage_t<Key.type>> made(size);
  block_call mine = call;
  mine.result.data = made.data();
  kernels::processor_kernels().block(Op->name, Key)(mine);
  return made;
}
template <const op_info* Op, block_key Key> void gives_the_same(const block_call& call, std::size_t size) {
  const auto a = own<Op, Key>(call, size);
  const auto b = shared<Op, Key>(call, size);
  INFO(Op->name << " of rows of " << call.columns << ", " << name_of(Key.type));
  CHECK(a.bytes == b.bytes);
  CHECK(a.bytes != elements<storage_t<Key.type>>(size).bytes);
}
/// Which products and sums of a polynomial are rounded once depends on how the compiler optimised the file.
template <const op_info* Op, block_key Key> void gives_nearly_the_same(const block_call& call, std::size_t size) {
  const auto a = own<Op, Key>(call, size);
  const auto b = shared<Op, Key>(call, size);
  INFO(Op->name << " of rows of " << call.columns);
  float worst = 0;
  for (std::size_t i = 0; i < size; ++i) worst = std::max(worst, std::abs(a[i] - b[i]) / (std::abs(a[i]) + 1e-3F));
  CHECK(worst <= 1e-6F);
  CHECK(a.bytes != elements<storage_t<Key.type>>(size).bytes);
}

constexpr block_key key_for(std::int64_t columns, int operands, std::array<bool, 3> wide, bool result_wide = true) {
  block_key key;
  key.columns = columns;
  key.operand_count = operands;
  for (int k = 0; k < operands; ++k) key.wide[k] = wide[static_cast<std::size_t>(k)];
  key.result_wide = result_wide;
  return key;
}

/// The key of a step on operands of one type.
constexpr block_key step_key(dtype type, dtype to, std::int64_t columns, int operands, std::array<bool, 3> wide) {
  block_key made = key_for(columns, operands, wide);
  for (int k = 0; k < operands; ++k) made.operand_type[k] = type;
  made.type = to;
  return made;
}
constexpr std::array<bool, 3> all_wide{true, true, true};
constexpr std::array<bool, 3> first_wide{true, false, false};
/// Five rows of a and, twice, of b, none of them aligned; returns the number of elements.
template <class T>
std::size_t read_rows(block_call& call, std::vector<T>& a, std::vector<T>& b, std::int64_t columns,
                      std::int64_t b_row) {
  call.rows = 5;
  call.columns = columns;
  call.operand[0] = {a.data() + 1, columns};
  call.operand[1] = {b.data() + 3, b_row};
  call.operand[2] = {b.data() + 7, columns};
  call.result.row = columns;
  return static_cast<std::size_t>(5 * columns);
}

/// Looks up the kernels of an op for all types that it shares; returns how many there are.
template <const op_info* Op> int look_up_types() {
  if constexpr (requires { kernels::kernel<Op>::shared; }) {
    for (const kernels::kernel_types& types : kernels::kernel<Op>::shared) {
      INFO(Op->name << " of " << name_of(types.type) << ", variant " << types.variant);
      CHECK(kernels::processor_kernels().kernel(Op->name, types) != nullptr);
    }
    return static_cast<int>(std::size(kernels::kernel<Op>::shared));
  } else {
    return 0;
  }
}
template <std::size_t... Op> int look_up_all_types(std::index_sequence<Op...>) {
  return (look_up_types<detail::named_ops[Op]>() + ...);
}

/// A kernel of types as a program has it of its own, and as the set has it. Returns what they make.
template <const op_info* Op, kernels::kernel_key Key> auto kernel_gives_the_same(kernels::kernel_call call) {
  constexpr kernels::kernel_types types = kernels::kernel<Op>::types_of(Key);
  static_assert(kernels::has_shared_types<kernels::kernel<Op>>(types));
  static constexpr kernels::kernel_key key = Key;
  using results = elements<storage_t<Key.type>>;
  const auto size = static_cast<std::size_t>(Key.shape.elements());
  results made[2]{results(size), results(size)};
  const auto room = static_cast<std::size_t>(kernels::kernel<Op>::scratch_bytes(Key));
  std::vector<unsigned char> scratch(room + 128, 0x5a);
  call.scratch = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64);
  call.result = made[0].data();
  kernels::kernel<Op>::template run_typed<types>(key, call);
  call.result = made[1].data();
  kernels::processor_kernels().kernel(Op->name, types)(key, call);
  INFO(Op->name << " of " << name_of(Key.type));
  CHECK(made[0].bytes != results(size).bytes);
  CHECK(made[0].bytes == made[1].bytes);
  const auto* const end = static_cast<const unsigned char*>(call.scratch) + room;
  CHECK(std::all_of(end, end + 64, [](unsigned char byte) { return byte == 0x5a; }));
  return made[0];
}
constexpr kernels::kernel_key key_of(extents to, extents first, extents second = {}) {
  kernels::kernel_key key;
  key.shape = to;
  key.operand_count = second.rank > 0 ? 2 : 1;
  key.operand_shape[0] = first;
  key.operand_shape[1] = second;
  return key;
}
constexpr kernels::kernel_key with_attributes(kernels::kernel_key key, const auto& attributes) {
  set_attributes(key, attributes);
  return key;
}

}  // namespace

TEST_CASE("kernel sets: they have every kernel of types that a program leaves to them") {
  // Convolutions, pooling, lookups and random words.
  CHECK(look_up_all_types(std::make_index_sequence<std::size(detail::named_ops)>{}) > 40);
  CHECK(kernels::processor_kernels().kernel("gather", kernels::of_types(dtype::f32, dtype::f32, dtype::f32)) ==
        nullptr);
  CHECK(kernels::processor_kernels().kernel("no such op", kernels::of_types(dtype::u32)) == nullptr);
}

TEST_CASE("kernel sets: kernels of types make the bits of a program's own") {
  using kernels::kernel_call;
  std::vector<float> x(4000);
  std::vector<float> y(4000);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = std::sin(static_cast<float>(i) * 0.37F) * 3;
    y[i] = std::cos(static_cast<float>(i) * 0.11F) + 1.5F;
  }
  const std::int32_t places[9]{3, 0, 3, 12, 5, 5, 1, -1, 3};
  const std::uint32_t words[2]{7, 9};
  instruction_boxes boxes;
  const auto call_of = [&](const kernels::kernel_key& key, const void* first, const void* second = nullptr) {
    boxes = {};
    boxes.whole = key.shape;
    boxes.result = detail::whole_box(key.shape);
    for (int k = 0; k < key.operand_count; ++k) boxes.operand[k] = detail::whole_box(key.operand_shape[k]);
    return kernel_call{.operand = {first, second}, .boxes = &boxes};
  };

  constexpr auto gathered = [] {
    auto key = with_attributes(key_of({2, {9, 37}}, {2, {12, 37}}, {1, {9}}), gather_attributes{0});
    key.operand_type[1] = dtype::i32;
    return key;
  }();
  kernel_gives_the_same<&ops::gather, gathered>(call_of(gathered, x.data(), &places[0]));
  constexpr auto scattered = [] {
    auto key = with_attributes(key_of({2, {12, 37}}, {1, {9}}, {2, {9, 37}}), gather_attributes{0});
    key.operand_type[0] = dtype::i32;
    return key;
  }();
  kernel_gives_the_same<&ops::scatter_add, scattered>(call_of(scattered, &places[0], x.data()));
  constexpr auto random = [] {
    auto key = with_attributes(key_of({2, {13, 29}}, {1, {2}}), detail::random_attributes{});
    key.type = key.operand_type[0] = dtype::u32;
    return key;
  }();
  kernel_gives_the_same<&ops::random_bits, random>(call_of(random, &words[0]));

  const placed_window two[2]{place_window({.size = 2, .stride = 2}, 1, 0, axis_list{}),
                             place_window({.size = 3, .stride = 1, .low = 1}, 2, 0, axis_list{})};
  constexpr extents pictures{4, {2, 6, 7, 40}};
  constexpr auto pooled = with_attributes(key_of({4, {2, 3, 7, 40}}, pictures), windowed_attributes{});
  auto pool = call_of(pooled, x.data());
  pool.windows = &two[0];
  kernel_gives_the_same<&ops::sum_pool, pooled>(pool);
  kernel_gives_the_same<&ops::max_pool, pooled>(pool);
  // Of numbers whose products and sums are exact, whatever the order.
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(static_cast<int>(i * 7919 % 17) - 8) / 8;
    y[i] = static_cast<float>(static_cast<int>(i * 5077 % 13) - 6) / 8;
  }
  const placed_window three[2]{place_window({.size = 3, .low = 1}, 1, 0, axis_list{}),
                               place_window({.size = 3, .low = 1}, 2, 0, axis_list{})};
  constexpr extents filters{4, {3, 3, 40, 11}};
  constexpr extents filtered{4, {2, 6, 7, 11}};
  const auto convolve = [&]<const op_info * Op, kernels::kernel_key Key>() {
    auto call = call_of(Key, x.data(), y.data());
    call.windows = &three[0];
    const auto of_floats = kernel_gives_the_same<Op, Key>(call);
    // Of f16, the same sums are rounded once.
    constexpr auto half_key = [] {
      kernels::kernel_key key = Key;
      key.type = key.operand_type[0] = key.operand_type[1] = dtype::f16;
      return key;
    }();
    const std::vector<float16> half_x(x.begin(), x.end());
    const std::vector<float16> half_y(y.begin(), y.end());
    call.operand[0] = half_x.data();
    call.operand[1] = half_y.data();
    const auto of_halves = kernel_gives_the_same<Op, half_key>(call);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(Key.shape.elements()); ++i) {
      wrong += of_halves[i].bits == float16(of_floats[i]).bits ? 0 : 1;
    }
    CHECK(wrong == 0);
  };
  constexpr auto forward = with_attributes(key_of(filtered, pictures, filters), windowed_attributes{});
  constexpr auto to_input = with_attributes(key_of(pictures, filtered, filters), windowed_attributes{});
  constexpr auto to_filter = with_attributes(key_of(filters, pictures, filtered), windowed_attributes{});
  convolve.template operator()<&ops::convolution, forward>();
  convolve.template operator()<&ops::convolution_input_gradient, to_input>();
  convolve.template operator()<&ops::convolution_filter_gradient, to_filter>();
}

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
  key.type = key.operand_type[0] = key.operand_type[1] = dtype::boolean;
  CHECK_FALSE(kernels::is_shared(&ops::add, key));
  CHECK(kernels::processor_kernels().block("add", key) == nullptr);
  key = key_for(0, 2, {true, true, false});
  key.operand_type[1] = dtype::bf16;
  CHECK_FALSE(kernels::is_shared(&ops::add, key));
  CHECK_FALSE(kernels::is_shared(&ops::total_less, key_for(0, 2, {true, true, false})));
  CHECK(kernels::shared_product(dtype::f16, dtype::f32, dtype::f16) == -1);
  CHECK(kernels::shared_reduction(reduction::sum, dtype::i8, dtype::i32) == -1);
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
  gives_the_same<&ops::floor, key_for(any_columns, 1, {true, false, false})>(call, of(37, 0));
  gives_the_same<&ops::clamp, key_for(0, 3, {true, true, true})>(call, of(64, 64));
  gives_nearly_the_same<&ops::erf, key_for(0, 1, {true, false, false})>(call, of(96, 0));
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

TEST_CASE("kernel sets: steps of f16 and of 64-bit integers make the bits of a program's own") {
  constexpr std::size_t most = 5 * 1200;
  // All elements there are, and numbers that need 64 bits.
  std::vector<float16> x(most + 8);
  std::vector<float16> y(most + 8);
  std::vector<std::int64_t> m(most + 8);
  std::vector<std::int64_t> n(most + 8);
  std::vector<float> f(most + 8);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i].bits = static_cast<std::uint16_t>(i * 40503);
    y[i] = float16(std::cos(static_cast<float>(i) * 0.11F) * 1.7F);
    m[i] = static_cast<std::int64_t>(i * 0x9e3779b97f4a7c15U);
    n[i] = static_cast<std::int64_t>(i % 97 * i % 89) - 40;
    f[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i * 0x9e3779b1U));
  }
  block_call call;
  const auto of = [&](auto& a, auto& b, std::int64_t columns, std::int64_t b_row) {
    return read_rows(call, a, b, columns, b_row);
  };
  constexpr dtype f16 = dtype::f16;
  // Short rows, long ones, some longer than a buffer of floats, and no whole vectors.
  gives_the_same<&ops::add, step_key(f16, f16, 6, 2, all_wide)>(call, of(x, y, 6, 6));
  gives_the_same<&ops::add, step_key(f16, f16, 6, 2, first_wide)>(call, of(x, y, 6, 1));
  gives_the_same<&ops::add, step_key(f16, f16, 0, 2, all_wide)>(call, of(x, y, 1152, 1152));
  gives_the_same<&ops::multiply, step_key(f16, f16, any_columns, 2, all_wide)>(call, of(x, y, 1031, 1031));
  gives_the_same<&ops::subtract, step_key(f16, f16, any_columns, 2, first_wide)>(call, of(x, y, 1031, 1));
  gives_the_same<&ops::subtract, step_key(f16, f16, any_columns, 2, all_wide)>(call, of(x, y, 37, 0));
  gives_the_same<&ops::divide, step_key(f16, f16, 1, 2, all_wide)>(call, of(x, y, 1, 1));
  gives_the_same<&ops::maximum, step_key(f16, f16, 0, 2, all_wide)>(call, of(x, y, 96, 96));
  gives_the_same<&ops::clamp, step_key(f16, f16, 0, 3, all_wide)>(call, of(x, y, 96, 96));
  gives_the_same<&ops::less, step_key(f16, dtype::boolean, 0, 2, all_wide)>(call, of(x, y, 96, 96));
  gives_the_same<&ops::remainder, step_key(f16, f16, 0, 2, all_wide)>(call, of(x, y, 96, 96));
  gives_the_same<&ops::reshape, step_key(f16, f16, 0, 1, first_wide)>(call, of(x, y, 96, 96));
  gives_the_same<&ops::convert, step_key(f16, dtype::f32, 21, 1, first_wide)>(call, of(x, y, 21, 21));
  gives_the_same<&ops::convert, step_key(f16, dtype::i32, 0, 1, first_wide)>(call, of(x, y, 1152, 0));
  gives_the_same<&ops::convert, step_key(f16, dtype::i64, 0, 1, first_wide)>(call, of(x, y, 64, 0));
  gives_the_same<&ops::convert, step_key(dtype::i64, f16, 0, 1, first_wide)>(call, of(n, n, 64, 0));
  gives_the_same<&ops::convert, step_key(dtype::f32, f16, 0, 1, first_wide)>(call, of(f, f, 1152, 0));
  gives_the_same<&ops::convert, step_key(dtype::f32, f16, any_columns, 1, {false, false, false})>(call,
                                                                                                  of(f, f, 37, 0));
  gives_the_same<&ops::convert, step_key(f16, dtype::bf16, 0, 1, first_wide)>(call, of(x, y, 96, 0));

  constexpr dtype i64 = dtype::i64;
  gives_the_same<&ops::add, step_key(i64, i64, 6, 2, all_wide)>(call, of(m, n, 6, 6));
  gives_the_same<&ops::multiply, step_key(i64, i64, 0, 2, first_wide)>(call, of(m, n, 96, 1));
  gives_the_same<&ops::divide, step_key(i64, i64, any_columns, 2, all_wide)>(call, of(m, n, 37, 37));
  gives_the_same<&ops::remainder, step_key(i64, i64, 0, 2, all_wide)>(call, of(m, n, 96, 96));
  gives_the_same<&ops::less, step_key(i64, dtype::boolean, 0, 2, all_wide)>(call, of(m, n, 96, 96));
  gives_the_same<&ops::bitwise_xor, step_key(i64, i64, 0, 2, all_wide)>(call, of(m, n, 96, 96));
  gives_the_same<&ops::shift_right_arithmetic, step_key(i64, i64, 0, 2, first_wide)>(call, of(m, n, 96, 1));
  gives_the_same<&ops::convert, step_key(i64, dtype::f32, 0, 1, first_wide)>(call, of(m, n, 96, 0));
  gives_the_same<&ops::convert, step_key(dtype::f32, i64, 0, 1, first_wide)>(call, of(f, f, 96, 0));
  gives_the_same<&ops::convert, step_key(i64, dtype::f64, 0, 1, first_wide)>(call, of(m, n, 96, 0));
  gives_the_same<&ops::convert, step_key(i64, dtype::i32, 0, 1, first_wide)>(call, of(m, n, 96, 0));
  gives_the_same<&ops::abs, step_key(i64, i64, 0, 1, first_wide)>(call, of(m, n, 96, 0));
}

TEMPLATE_TEST_CASE("kernel sets: steps of short integers make the bits of a program's own", "", std::int8_t,
                   std::uint8_t, std::uint32_t) {
  constexpr std::size_t most = 5 * 1200;
  std::vector<TestType> m(most + 8);
  std::vector<TestType> n(most + 8);
  std::vector<float> f(most + 8);
  for (std::size_t i = 0; i < m.size(); ++i) {
    m[i] = static_cast<TestType>(static_cast<std::uint32_t>(i * 0x9e3779b1U) >> 3U);
    n[i] = static_cast<TestType>(i * i % 251);
    f[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i * 0x9e3779b1U));
  }
  block_call call;
  const auto of = [&](auto& a, auto& b, std::int64_t columns, std::int64_t b_row) {
    return read_rows(call, a, b, columns, b_row);
  };
  constexpr dtype type = dtype_of<TestType>;
  gives_the_same<&ops::add, step_key(type, type, 6, 2, all_wide)>(call, of(m, n, 6, 6));
  gives_the_same<&ops::add, step_key(type, type, 0, 2, first_wide)>(call, of(m, n, 1152, 1));
  gives_the_same<&ops::multiply, step_key(type, type, any_columns, 2, all_wide)>(call, of(m, n, 1031, 1031));
  gives_the_same<&ops::divide, step_key(type, type, any_columns, 2, all_wide)>(call, of(m, n, 37, 37));
  gives_the_same<&ops::remainder, step_key(type, type, 0, 2, all_wide)>(call, of(m, n, 96, 96));
  gives_the_same<&ops::maximum, step_key(type, type, 0, 2, all_wide)>(call, of(m, n, 96, 96));
  gives_the_same<&ops::clamp, step_key(type, type, 0, 3, all_wide)>(call, of(m, n, 96, 96));
  gives_the_same<&ops::bitwise_xor, step_key(type, type, 0, 2, all_wide)>(call, of(m, n, 96, 96));
  gives_the_same<&ops::shift_left, step_key(type, type, 0, 2, first_wide)>(call, of(m, n, 96, 1));
  gives_the_same<&ops::shift_right_logical, step_key(type, type, 0, 2, all_wide)>(call, of(m, n, 96, 96));
  gives_the_same<&ops::shift_right_arithmetic, step_key(type, type, any_columns, 2, first_wide)>(call, of(m, n, 37, 1));
  gives_the_same<&ops::less, step_key(type, dtype::boolean, 0, 2, all_wide)>(call, of(m, n, 96, 96));
  gives_the_same<&ops::convert, step_key(type, dtype::f32, 0, 1, first_wide)>(call, of(m, n, 1152, 0));
  gives_the_same<&ops::convert, step_key(type, dtype::bf16, any_columns, 1, first_wide)>(call, of(m, n, 37, 0));
  gives_the_same<&ops::convert, step_key(type, dtype::i32, 0, 1, first_wide)>(call, of(m, n, 96, 0));
  gives_the_same<&ops::convert, step_key(dtype::f32, type, 0, 1, first_wide)>(call, of(f, f, 1152, 0));
}

TEST_CASE("kernel sets: choices among truth values make the bits of a program's own") {
  std::vector<unsigned char> truths(5 * 96);
  for (std::size_t i = 0; i < truths.size(); ++i) truths[i] = static_cast<unsigned char>(i * 40503 >> 4U & 1U);
  block_call call;
  call.rows = 5;
  const auto of = [&](std::int64_t columns) {
    call.columns = call.result.row = columns;
    for (int k = 0; k < 3; ++k) call.operand[k] = {truths.data() + 7 * k, columns};
    return static_cast<std::size_t>(5 * columns);
  };
  constexpr dtype truth = dtype::boolean;
  gives_the_same<&ops::select, step_key(truth, truth, 0, 3, all_wide)>(call, of(64));
  gives_the_same<&ops::select, step_key(truth, truth, any_columns, 3, all_wide)>(call, of(37));
  gives_the_same<&ops::not_equal, step_key(truth, truth, 0, 2, all_wide)>(call, of(64));
}

TEMPLATE_TEST_CASE("kernel sets: softmax of 16 bits makes the bits of a program's own", "", float16, bfloat16) {
  std::vector<TestType> x(5 * 96);
  std::vector<float> raised(5 * 96);
  std::vector<float> factor(5);
  for (std::size_t i = 0; i < x.size(); ++i) {
    raised[i] = std::exp(std::sin(static_cast<float>(i) * 0.37F) * 3);
    factor[i % 5] = 0.03F + static_cast<float>(i) / 64;
  }
  block_call call;
  call.rows = 5;
  const auto of = [&](std::int64_t columns) {
    call.columns = call.result.row = columns;
    call.operand[0] = {x.data(), columns};
    call.operand[1] = {raised.data(), columns};
    call.operand[2] = {factor.data(), 1};
    return static_cast<std::size_t>(5 * columns);
  };
  constexpr auto key = [](std::int64_t columns) {
    block_key made = step_key(dtype::f32, dtype_of<TestType>, columns, 3, {true, true, false});
    made.operand_type[0] = dtype_of<TestType>;
    return made;
  };
  gives_the_same<&ops::softmax, key(0)>(call, of(96));
  gives_the_same<&ops::softmax, key(6)>(call, of(6));
  gives_the_same<&ops::standardise, key(any_columns)>(call, of(37));
}

TEST_CASE("kernel sets: devices combine elements as a program without them does") {
  constexpr std::int64_t count = 1000;
  for (const dtype type : all_types) {
    for (const reduction kind : {reduction::sum, reduction::prod, reduction::max, reduction::min}) {
      if (!comm::is_reducible(type, kind)) continue;
      const comm::reducer mine = comm::detail::reducer_among<comm::detail::all_reducers>(type, kind);
      const comm::reducer theirs = kernels::processor_kernels().reducer(type, kind);
      const auto bytes = static_cast<std::size_t>(count * size_of(type));
      std::vector<unsigned char> parts[3];
      for (std::size_t k = 0; k < 3; ++k) {
        for (std::size_t i = 0; i < bytes; ++i) {
          // Small numbers of either sign, and no NaN, of which any may be the result.
          const bool is_high =
              i % static_cast<std::size_t>(size_of(type)) + 1 == static_cast<std::size_t>(size_of(type));
          const auto drawn = static_cast<unsigned char>((i * 7919 + k * 104729) % 251);
          const bool is_free = is_high ? false : type != dtype::boolean;
          parts[k].push_back(is_free ? drawn : static_cast<unsigned char>(drawn % (is_floating(type) ? 64 : 2)));
        }
      }
      INFO(name_of(type) << " " << name_of(kind));
      const std::byte* from[3];
      for (std::size_t k = 0; k < 3; ++k) from[k] = reinterpret_cast<const std::byte*>(parts[k].data());
      std::vector<unsigned char> results[2]{std::vector<unsigned char>(bytes), std::vector<unsigned char>(bytes)};
      for (const comm::reducer* by : {&mine, &theirs}) {
        std::byte* to = reinterpret_cast<std::byte*>(results[by == &mine ? 0 : 1].data());
        comm::host::fold_job job;
        job.targets = &to;
        job.parts = &from[0];
        job.members = 3;
        job.count = count;
        by->fold(job);
      }
      CHECK(results[0] == results[1]);
      for (const comm::reducer* by : {&mine, &theirs}) {
        void* const to = results[by == &mine ? 0 : 1].data();
        by->tile(comm::detail::partial_sides::none, to, from[0], from[1], count);
      }
      CHECK(results[0] == results[1]);
    }
  }
}

TEST_CASE("kernel sets: reductions of f16 and of long and unsigned integers") {
  constexpr std::int64_t lines = 130;
  constexpr std::int64_t columns = 70;
  std::vector<float16> x(lines * columns);
  std::vector<std::int64_t> m(lines * columns);
  std::vector<std::uint32_t> w(lines * columns);
  for (std::size_t i = 0; i < x.size(); ++i) {
    w[i] = static_cast<std::uint32_t>(i * 0x9e3779b1U);
    // Sums that are exact, whatever the order.
    x[i] = float16(static_cast<float>(static_cast<int>(i * 7919 % 17) - 8) / 8);
    m[i] = static_cast<std::int64_t>(i * 0x9e3779b97f4a7c15U);
  }
  const auto same_of_both = [&]<reduction Kind, dtype From, dtype To>(const auto& from, std::int64_t dims) {
    const auto plan = detail::plan_reduction({2, {lines, columns}}, dims);
    elements<storage_t<To>> made[2]{elements<storage_t<To>>(lines), elements<storage_t<To>>(lines)};
    std::vector<double> scratch(static_cast<std::size_t>(plan.splits * plan.results) + 1);
    detail::reduce_tensor<Kind, 0>(plan, from.data(), made[0].data(), scratch.data());
    kernels::processor_kernels().reduce[kernels::shared_reduction(Kind, From, To)](plan, from.data(), made[1].data(),
                                                                                   scratch.data());
    INFO(name_of(From) << " to " << name_of(To) << ", " << name_of(Kind) << ", dims " << dims);
    CHECK(made[0].bytes == made[1].bytes);
    CHECK(made[0].bytes != elements<storage_t<To>>(lines).bytes);
  };
  for (const std::int64_t dims : {1, 2, 3}) {
    same_of_both.template operator()<reduction::sum, dtype::f16, dtype::f16>(x, dims);
    same_of_both.template operator()<reduction::sum, dtype::f16, dtype::f32>(x, dims);
    same_of_both.template operator()<reduction::max, dtype::f16, dtype::f16>(x, dims);
    same_of_both.template operator()<reduction::sum, dtype::i64, dtype::i64>(m, dims);
    same_of_both.template operator()<reduction::min, dtype::i64, dtype::i64>(m, dims);
    same_of_both.template operator()<reduction::sum, dtype::u32, dtype::u32>(w, dims);
    same_of_both.template operator()<reduction::max, dtype::u32, dtype::u32>(w, dims);
  }
}
