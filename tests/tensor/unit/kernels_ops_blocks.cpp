// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <tensor/unit/kernels_ops_checks.hpp>

#include <algorithm>
#include <cmath>

// Every micro-operation against `op_info::evaluate`, in the memory layouts that fused groups have.

namespace {

using namespace espalier;
using kernels::block_key;
using test::buffer;
using test::values;

constexpr std::int64_t rows = 7;
constexpr std::int64_t first_row = 5;

/// The distance between rows of the operands and the result: their own length, more, or (operands only) nothing.
enum class distance { dense, padded, repeated };

struct block_test {
  const op_info* op = nullptr;
  block_key key;
  kernels::block_function run = nullptr;
  instruction reference{};
  values kind = values::any;
  distance apart = distance::dense;
  bool in_place = false;
  double terms = 1;
};

std::int64_t row_distance(const block_test& t, bool wide, bool is_result) {
  const std::int64_t length = wide ? t.key.columns : 1;
  if (t.apart == distance::padded) return length + 3;
  return t.apart == distance::repeated && !is_result ? 0 : length;
}

/// The operand's elements, one per row and column.
std::vector<double> spread_out(buffer& from, std::int64_t distance, bool wide, std::int64_t columns) {
  std::vector<double> all;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) all.push_back(from.get(r * distance + (wide ? c : 0)));
  }
  return all;
}

void check(block_test t) {
  const block_key& key = t.key;
  INFO(t.op->name << " " << name_of(key.type) << " from " << name_of(key.operand_type[0]) << ", " << key.columns
                  << " columns, wide " << key.wide[0] << key.wide[1] << key.wide[2] << " -> " << key.result_wide
                  << ", layout " << static_cast<int>(t.apart) << (t.in_place ? ", in place" : ""));
  test::generator random;
  kernels::block_call call;
  call.rows = rows;
  call.columns = key.columns;
  call.first_row = first_row;
  call.scalar = t.reference.scalar;
  instruction_boxes boxes;
  boxes.result.dim[0] = {-11, 4};
  call.boxes = &boxes;
  std::vector<buffer> operands;
  std::vector<std::vector<double>> spread;
  evaluation e;
  extents whole{2, {rows, key.columns}};
  for (int k = 0; k < key.operand_count; ++k) {
    operands.emplace_back(key.operand_type[k], rows * (key.columns + 3));
    random.fill(operands.back(), key.operand_type[k], t.kind);
    call.operand[k].row = row_distance(t, key.wide[k], t.in_place);
    spread.push_back(spread_out(operands.back(), call.operand[k].row, key.wide[k], key.columns));
  }
  buffer result(key.type, rows * (key.columns + 3));
  for (std::int64_t i = 0; i < result.size(); ++i) result.set(i, 1);
  for (int k = 0; k < key.operand_count; ++k) {
    const auto i = static_cast<std::size_t>(k);
    call.operand[k].data = operands[i].data();
    e.operand[k] = spread[i].data();
    e.operand_shape[k] = &whole;
    e.operand_type[k] = key.operand_type[k];
  }
  call.result = {t.in_place ? operands.back().data() : result.data(), row_distance(t, key.result_wide, true)};
  buffer& out = t.in_place ? operands.back() : result;

  std::vector<double> want(static_cast<std::size_t>(rows * key.columns));
  t.reference.op = t.op;
  t.reference.type = key.type;
  t.reference.operand_count = key.operand_count;
  if (t.reference.shape.rank == 0) t.reference.shape = whole;
  e.self = &t.reference;
  e.result = want.data();
  e.boxes = call.boxes;
  t.op->evaluate(e);
  t.run(call);

  const std::int64_t columns = key.result_wide ? key.columns : 1;
  const std::int64_t step = t.reference.shape.rank == 2 ? key.columns : columns;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const double expected = detail::stored_as(key.type, want[static_cast<std::size_t>(r * step + c)]);
      const double got = out.get(r * call.result.row + c);
      INFO("row " << r << " column " << c << ": " << got << " instead of " << expected);
      REQUIRE(test::close_enough(got, expected, key.type, t.terms));
    }
    // Nothing is written between the rows.
    if (t.apart == distance::padded && !t.in_place) REQUIRE(out.get(r * call.result.row + columns) == 1);
  }
}

// Not `Op == &ops::select`: with -fsanitize=undefined g++ 12 takes no comparison of addresses for a constant.
template <const op_info* Op> constexpr bool has_condition = false;
template <> constexpr bool has_condition<&ops::select> = true;

template <const op_info* Op, dtype Type, std::int64_t Columns, unsigned Wide, int Count>
constexpr block_key key_for(dtype result = Type) {
  block_key key;
  key.columns = Columns;
  key.type = result;
  key.operand_count = Count;
  for (int k = 0; k < Count; ++k) {
    key.operand_type[k] = has_condition<Op> && k == 0 ? dtype::boolean : Type;
    key.wide[k] = (Wide >> k & 1U) != 0;
  }
  key.result_wide = Wide != 0;
  return key;
}

/// The kernel that a program uses for these rows: long ones share one for all lengths.
template <const op_info* Op, block_key Key> constexpr kernels::block_function kernel_for() {
  constexpr block_key key = [] {
    block_key made = Key;
    if (is_long_row(made.columns)) made.columns = 0;
    return made;
  }();
  return &kernels::block_kernel<Op>::template run<key>;
}

template <const op_info* Op, block_key Key> void check_layouts(values kind) {
  block_test t{.op = Op, .key = Key, .run = kernel_for<Op, Key>(), .kind = kind};
  for (const distance apart : {distance::dense, distance::padded, distance::repeated}) {
    t.apart = apart;
    t.in_place = false;
    check(t);
    const int last = Key.operand_count - 1;
    if (Key.operand_type[last] != Key.type || Key.wide[last] != Key.result_wide) continue;
    t.in_place = true;
    check(t);
  }
}

template <const op_info* Op, dtype Type, int Count, std::int64_t Columns = 17, dtype Result = Type>
void check_op(values kind = values::any) {
  check_layouts<Op, key_for<Op, Type, Columns, (1U << Count) - 1U, Count>(Result)>(kind);
}

template <const op_info* Op, dtype Type, dtype Result = Type, int Count = 2>
void check_widths(values kind = values::any) {
  check_layouts<Op, key_for<Op, Type, 17, 0, Count>(Result)>(kind);
  check_layouts<Op, key_for<Op, Type, 17, 1, Count>(Result)>(kind);
  if constexpr (Count > 1) check_layouts<Op, key_for<Op, Type, 17, 2, Count>(Result)>(kind);
  check_layouts<Op, key_for<Op, Type, 17, (1U << Count) - 1U, Count>(Result)>(kind);
}

template <const op_info* Op, dtype Type> void check_columns(values kind = values::any) {
  check_op<Op, Type, 2, 1>(kind);
  check_op<Op, Type, 2, 3>(kind);
  check_op<Op, Type, 2, 17>(kind);
  check_op<Op, Type, 2, 64>(kind);
  check_op<Op, Type, 2, 112>(kind);
  check_op<Op, Type, 2, 100>(kind);
  check_op<Op, Type, 2, 257>(kind);
}

template <dtype... Types> struct types {};
using floating = types<dtype::f32, dtype::f64, dtype::bf16, dtype::f16>;
using signed_types =
    types<dtype::f32, dtype::f64, dtype::bf16, dtype::i32, dtype::boolean, dtype::i64, dtype::i8, dtype::f16>;
using all_types = types<dtype::f32, dtype::f64, dtype::bf16, dtype::i32, dtype::boolean, dtype::u32, dtype::i64,
                        dtype::i8, dtype::f16>;
/// Types in which a sum of 100 small numbers has room.
using wide_types =
    types<dtype::f32, dtype::f64, dtype::bf16, dtype::i32, dtype::boolean, dtype::u32, dtype::i64, dtype::f16>;

template <const op_info* Op, int Count, dtype... Types> void check_types(types<Types...>, values kind = values::any) {
  (check_op<Op, Types, Count>(kind), ...);
}
template <const op_info* Op, dtype... Types> void check_comparison(types<Types...>, values kind = values::special) {
  (check_op<Op, Types, 2, 17, dtype::boolean>(kind), ...);
}
template <dtype To, dtype... From> void check_conversions(types<From...>) {
  (check_op<&ops::convert, From, 1, 100, To>(), ...);
}

}  // namespace

TEST_CASE("block kernels: arithmetic is what evaluate says, for every type", "[kernels]") {
  check_types<&ops::add, 2>(all_types{});
  check_types<&ops::subtract, 2>(signed_types{});
  check_types<&ops::multiply, 2>(all_types{});
  check_types<&ops::divide, 2>(floating{}, values::nonzero);
  check_types<&ops::divide, 2>(types<dtype::i32, dtype::u32, dtype::i64, dtype::i8>{});
  check_types<&ops::negate, 1>(signed_types{});
}

TEST_CASE("block kernels: operands per row and per column combine, at every length of row", "[kernels]") {
  check_widths<&ops::subtract, dtype::f32>();
  check_widths<&ops::subtract, dtype::bf16>();
  check_widths<&ops::less, dtype::f32, dtype::boolean>(values::special);
  check_widths<&ops::exp, dtype::f32, dtype::f32, 1>();
  check_widths<&ops::select, dtype::f32, dtype::f32, 3>();
  check_columns<&ops::subtract, dtype::f32>();
  check_columns<&ops::maximum, dtype::f64>(values::special);
}

TEST_CASE("block kernels: comparisons give truth values, and NaN goes through extrema", "[kernels]") {
  check_comparison<&ops::less>(all_types{});
  check_comparison<&ops::less_equal>(all_types{});
  check_comparison<&ops::equal>(all_types{});
  check_comparison<&ops::not_equal>(all_types{});
  check_types<&ops::maximum, 2>(all_types{}, values::special);
  check_types<&ops::minimum, 2>(all_types{}, values::special);
  check_types<&ops::logical_and, 2>(types<dtype::boolean>{});
  check_types<&ops::logical_or, 2>(types<dtype::boolean>{});
  check_types<&ops::logical_not, 1>(types<dtype::boolean>{});
  check_types<&ops::select, 3>(all_types{}, values::special);
}

TEST_CASE("block kernels: activations", "[kernels]") {
  check_types<&ops::exp, 1>(floating{});
  check_types<&ops::log, 1>(floating{}, values::positive);
  check_types<&ops::sqrt, 1>(floating{}, values::positive);
  check_types<&ops::rsqrt, 1>(floating{}, values::positive);
  check_types<&ops::tanh, 1>(floating{});
  check_types<&ops::sigmoid, 1>(floating{});
  check_types<&ops::relu, 1>(floating{}, values::special);
  check_types<&ops::silu, 1>(floating{});
  check_types<&ops::gelu, 1>(floating{});
  check_types<&ops::silu_slope, 1>(floating{});
  check_types<&ops::gelu_slope, 1>(floating{});
}

TEST_CASE("block kernels: functions of one element and of two, in every type", "[kernels]") {
  check_types<&ops::sin, 1>(floating{});
  check_types<&ops::cos, 1>(types<dtype::bf16>{});
  check_types<&ops::tan, 1>(types<dtype::bf16>{});
  check_types<&ops::atan2, 2>(floating{}, values::special);
  check_types<&ops::erf, 1>(types<dtype::bf16>{}, values::special);
  check_types<&ops::erfc, 1>(types<dtype::bf16>{}, values::special);
  check_types<&ops::erf_inv, 1>(types<dtype::bf16>{}, values::special);
  check_types<&ops::expm1, 1>(types<dtype::bf16>{}, values::special);
  check_types<&ops::log1p, 1>(types<dtype::bf16>{}, values::positive);
  check_types<&ops::pow, 2>(types<dtype::f32, dtype::bf16>{}, values::positive);
  check_types<&ops::abs, 1>(types<dtype::bf16, dtype::i32>{}, values::special);
  check_types<&ops::sign, 1>(types<dtype::bf16, dtype::i32>{}, values::special);
  check_types<&ops::clamp, 3>(types<dtype::f32, dtype::bf16, dtype::i32>{}, values::special);
  check_op<&ops::is_finite, dtype::f32, 1, 17, dtype::boolean>(values::special);
  check_op<&ops::is_finite, dtype::bf16, 1, 17, dtype::boolean>(values::special);
  check_types<&ops::floor, 1>(types<dtype::bf16>{}, values::special);
  check_types<&ops::ceil, 1>(types<dtype::bf16>{}, values::special);
  check_types<&ops::trunc, 1>(types<dtype::bf16>{}, values::special);
  check_types<&ops::round, 1>(types<dtype::bf16>{}, values::special);
  check_types<&ops::remainder, 2>(types<dtype::f32, dtype::f64, dtype::bf16, dtype::i32>{}, values::nonzero);
  check_widths<&ops::remainder, dtype::f32>(values::special);
  check_widths<&ops::sin, dtype::f32, dtype::f32, 1>(values::special);
  check_comparison<&ops::total_less>(floating{});
  check_comparison<&ops::total_less_equal>(floating{});
  check_comparison<&ops::total_equal>(floating{});
}

TEST_CASE("block kernels: bits of integers and truth values", "[kernels]") {
  using words = types<dtype::i32, dtype::boolean>;
  check_types<&ops::bitwise_and, 2>(words{});
  check_types<&ops::bitwise_or, 2>(words{});
  check_types<&ops::bitwise_xor, 2>(words{});
  check_types<&ops::bitwise_not, 1>(words{});
  check_widths<&ops::shift_left, dtype::i32>();
  check_types<&ops::shift_right_logical, 2>(types<dtype::i32>{}, values::positive);
  check_types<&ops::shift_right_arithmetic, 2>(types<dtype::i32>{});
}

TEST_CASE("block kernels: conversions between all types, and copies", "[kernels]") {
  check_conversions<dtype::f32>(all_types{});
  check_conversions<dtype::f64>(all_types{});
  check_conversions<dtype::bf16>(all_types{});
  check_conversions<dtype::i32>(all_types{});
  check_conversions<dtype::boolean>(all_types{});
  check_conversions<dtype::u32>(all_types{});
  check_conversions<dtype::i64>(all_types{});
  check_conversions<dtype::i8>(all_types{});
  check_conversions<dtype::f16>(all_types{});
  check_types<&ops::stop_gradient, 1>(all_types{}, values::special);
  check_types<&ops::shard, 1>(all_types{}, values::special);
  check_types<&ops::copy, 1>(all_types{}, values::special);
}

TEST_CASE("block kernels: relu of a NaN is a NaN", "[kernels]") {
  CHECK(std::isnan(detail::relu_element::apply(std::nanf(""))));
  CHECK(std::isnan(detail::relu_element::apply(std::nan(""))));
  CHECK(detail::relu_element::apply(-1.5F) == 0);
  CHECK(detail::relu_element::apply(1.5) == 1.5);
}

TEST_CASE("block kernels: floats beyond an integer's range saturate", "[kernels]") {
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(detail::element_cast<std::int32_t>(2147483648.0F) == std::numeric_limits<std::int32_t>::max());
  CHECK(detail::element_cast<std::int32_t>(-3e9) == std::numeric_limits<std::int32_t>::min());
  CHECK(detail::element_cast<std::int32_t>(-2147483648.0) == std::numeric_limits<std::int32_t>::min());
  CHECK(detail::element_cast<std::int32_t>(2147483647.0) == std::numeric_limits<std::int32_t>::max());
  CHECK(detail::element_cast<std::int32_t>(std::nanf("")) == 0);
  CHECK(detail::element_cast<std::int32_t>(-1.9F) == -1);
  CHECK(detail::element_of_scalar<std::int32_t>(-inf) == std::numeric_limits<std::int32_t>::min());
  CHECK(detail::element_cast<std::uint32_t>(-0.9F) == 0);
  CHECK(detail::element_cast<std::uint32_t>(-1.0) == 0);
  CHECK(detail::element_cast<std::uint32_t>(4294967040.0F) == 4294967040U);
  CHECK(detail::element_cast<std::uint32_t>(4294967296.0F) == 4294967295U);
  CHECK(detail::element_cast<std::int64_t>(9223372036854775808.0) == std::numeric_limits<std::int64_t>::max());
  CHECK(detail::element_cast<std::int64_t>(9223371487098961920.0F) == 9223371487098961920);
  CHECK(detail::element_cast<std::int64_t>(-9223372036854775808.0) == std::numeric_limits<std::int64_t>::min());
  CHECK(detail::element_cast<std::int64_t>(-inf) == std::numeric_limits<std::int64_t>::min());
  CHECK(detail::element_cast<std::int8_t>(127.9F) == 127);
  CHECK(detail::element_cast<std::int8_t>(128.0F) == 127);
  CHECK(detail::element_cast<std::int8_t>(-128.9F) == -128);
  CHECK(detail::element_cast<std::int8_t>(-1e9) == -128);
  CHECK(detail::element_cast<std::int8_t>(float16(std::nanf(""))) == 0);
  CHECK(detail::element_of_scalar<std::uint32_t>(-inf) == 0);
  CHECK(detail::element_of_scalar<std::int64_t>(inf) == std::numeric_limits<std::int64_t>::max());
  CHECK_FALSE(detail::element_of_scalar<bool>(-inf));
  CHECK(detail::element_of_scalar<bool>(inf));
}

namespace {

template <dtype Type, bool Wide, std::int64_t Columns> void check_constant(double value) {
  constexpr block_key key = [] {
    block_key made;
    made.columns = Columns;
    made.type = Type;
    made.result_wide = Wide;
    return made;
  }();
  block_test t{.op = &ops::constant, .key = key, .run = kernel_for<&ops::constant, key>()};
  t.reference.scalar = value;
  check(t);
  t.apart = distance::padded;
  check(t);
}

template <dtype Type, bool Wide, std::int64_t Columns, bool AlongColumns> void check_iota() {
  constexpr block_key key = [] {
    block_key made;
    made.columns = Columns;
    made.type = Type;
    made.result_wide = Wide;
    set_attributes(made, fused_index_attributes{.along_columns = AlongColumns, .dim = 0, .repeat = 2, .size = 3});
    return made;
  }();
  for (const std::int64_t gap : {0, 3}) {
    const std::int64_t width = Wide ? Columns : 1;
    buffer result(Type, rows * (width + gap));
    kernels::block_call call;
    call.rows = rows;
    call.columns = Columns;
    call.first_row = first_row;
    instruction_boxes boxes;
    boxes.result.dim[0] = {-2, 3};
    call.boxes = &boxes;
    call.result = {result.data(), width + gap};
    kernel_for<&ops::iota, key>()(call);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < width; ++c) {
        const std::int64_t want = -2 + (AlongColumns ? c : (first_row + r) / 2 % 3);
        REQUIRE(result.get(r * (width + gap) + c) == detail::stored_as(Type, static_cast<double>(want)));
      }
    }
  }
}

template <const op_info* Op, reduction Kind, dtype Type, std::int64_t Columns, bool Down, dtype Result = Type>
void check_reduce() {
  constexpr block_key key = [] {
    block_key made = key_for<Op, Type, Columns, 1, 1>(Result);
    set_attributes(made, fused_reduction_attributes{.kind = Kind, .accumulates = Down});
    made.result_wide = Down;
    return made;
  }();
  block_test t{.op = Op, .key = key, .run = kernel_for<Op, key>()};
  t.kind = Kind == reduction::max || Kind == reduction::min ? values::special : values::any;
  t.terms = static_cast<double>(Columns) + 8;
  set_attributes(t.reference, reduction_attributes{.dims = Down ? 1 : 2, .kind = Kind});
  for (const distance apart : {distance::dense, distance::padded}) {
    t.apart = apart;
    if constexpr (!Down) {
      t.reference.shape = {1, {rows}};
      check(t);
    } else {
      // The sums go into accumulators that hold a value already, in two calls.
      const std::int64_t row = row_distance(t, true, false);
      test::generator random;
      buffer from(Type, rows * (Columns + 3));
      random.fill(from, Type, t.kind);
      constexpr dtype held = facts_of(Result).accumulate;
      buffer to(held, Columns);
      std::vector<double> want(static_cast<std::size_t>(Columns));
      const std::vector<double> all = spread_out(from, row, true, Columns);
      const extents whole{2, {rows, Columns}};
      evaluation e;
      t.reference.shape = {1, {Columns}};
      e.self = &t.reference;
      e.operand[0] = all.data();
      e.operand_shape[0] = &whole;
      e.result = want.data();
      Op->evaluate(e);
      for (std::int64_t c = 0; c < Columns; ++c) {
        const double start = Kind == reduction::prod ? 1 : 0;
        to.set(c, start);
        want[static_cast<std::size_t>(c)] = detail::combine(Kind, want[static_cast<std::size_t>(c)], start);
      }
      kernels::block_call call;
      call.rows = 5;
      call.columns = Columns;
      call.operand[0] = {from.data(), row};
      call.result = {to.data(), 0};
      t.run(call);
      call.rows = rows - 5;
      call.operand[0].data = static_cast<std::byte*>(from.data()) + 5 * row * size_of(Type);
      t.run(call);
      for (std::int64_t c = 0; c < Columns; ++c) {
        const double expected = detail::stored_as(held, want[static_cast<std::size_t>(c)]);
        INFO(name_of(Kind) << " " << name_of(Type) << " column " << c << ": " << to.get(c) << " instead of "
                           << expected);
        REQUIRE(test::close_enough(to.get(c), expected, held, 20));
      }
    }
  }
}

template <const op_info* Op, reduction Kind, std::int64_t Columns, bool Down, dtype... Types>
void check_reduce_types(types<Types...>) {
  (check_reduce<Op, Kind, Types, Columns, Down>(), ...);
}
template <const op_info* Op, reduction Kind, bool Down, std::int64_t... Columns> void check_reduce_columns() {
  (check_reduce<Op, Kind, dtype::f32, Columns, Down>(), ...);
}

}  // namespace

TEST_CASE("block kernels: constants and counting", "[kernels]") {
  check_constant<dtype::f32, true, 17>(-2.5);
  check_constant<dtype::f64, false, 17>(1e300);
  check_constant<dtype::bf16, true, 3>(0.1);
  check_constant<dtype::f32, true, 80>(0.5);
  check_constant<dtype::i32, true, 17>(-7);
  check_constant<dtype::boolean, false, 17>(1);
  check_iota<dtype::f32, true, 17, true>();
  check_iota<dtype::i32, true, 257, true>();
  check_iota<dtype::bf16, true, 3, true>();
  check_iota<dtype::i32, true, 80, true>();
  check_iota<dtype::f32, true, 80, false>();
  check_iota<dtype::f64, true, 1, true>();
  check_iota<dtype::i32, false, 17, false>();
  check_iota<dtype::f32, false, 17, false>();
  check_iota<dtype::i32, true, 17, false>();
  check_iota<dtype::i64, true, 257, true>();
  check_iota<dtype::f16, true, 80, true>();
  check_constant<dtype::i64, true, 17>(-4e15);
  check_constant<dtype::u32, true, 80>(4e9);
  check_constant<dtype::i8, true, 80>(-128);
  check_constant<dtype::f16, true, 17>(0.1);
}

TEST_CASE("block kernels: reductions of rows and of columns", "[kernels]") {
  check_reduce_types<&ops::reduce_sum, reduction::sum, 100, false>(wide_types{});
  check_reduce_types<&ops::reduce, reduction::max, 100, false>(all_types{});
  check_reduce_types<&ops::reduce, reduction::min, 100, false>(all_types{});
  check_reduce_types<&ops::reduce, reduction::prod, 17, false>(floating{});
  check_reduce_types<&ops::reduce, reduction::prod, 3, false>(
      types<dtype::i32, dtype::boolean, dtype::u32, dtype::i64>{});
  check_reduce_types<&ops::reduce_sum, reduction::sum, 17, true>(wide_types{});
  check_reduce_types<&ops::reduce, reduction::max, 17, true>(all_types{});
  check_reduce_types<&ops::reduce, reduction::min, 17, true>(all_types{});
  check_reduce_types<&ops::reduce, reduction::prod, 17, true>(floating{});
  check_reduce_columns<&ops::reduce_sum, reduction::sum, false, 1, 3, 16, 17, 80, 257, 1024, 1030>();
  check_reduce_columns<&ops::reduce, reduction::max, false, 1, 3, 16, 17, 80, 257, 1024, 1030>();
  check_reduce_columns<&ops::reduce_sum, reduction::sum, true, 1, 3, 16, 80, 257, 1024>();
  check_reduce<&ops::reduce_sum, reduction::sum, dtype::bf16, 100, false, dtype::f32>();
  check_reduce<&ops::reduce_sum, reduction::sum, dtype::bf16, 100, true, dtype::f32>();
  check_reduce<&ops::reduce_sum, reduction::sum, dtype::f16, 100, false, dtype::f32>();
}
