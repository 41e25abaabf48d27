// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// processors: 1

#include <espalier/testing/naive.hpp>
#include <espalier/testing/random_graph.hpp>

#include <espalier/tensor/core/partition/local_program.hpp>
#include <espalier/tensor/core/program/normalise.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

/// Two meanings of every op, `op_info::evaluate` and the naive one, against each other.
namespace {

using namespace espalier;
using test::extents_of;
using test::naive_interpret;
using test::naive_storage;
using test::random_source;
using ids = std::vector<int>;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();
const std::vector<double> special{not_a_number, infinity, -infinity, 0,    -0.0,   1,     -1,    0.5,
                                  -2.5,         3,        700,       -700, 1e-300, 1e300, 256.5, -257.5};

bool agree(double a, double b, double scale) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= 1e-11 * scale;
}

/// The largest finite element, or 1.
double scale_of(const tensor_value& t) {
  double scale = 1;
  for (const double x : t.data) {
    if (std::isfinite(x)) scale = std::max(scale, std::abs(x));
  }
  return scale;
}

void require_agreement(const std::vector<tensor_value>& one, const std::vector<tensor_value>& other) {
  REQUIRE(one.size() == other.size());
  for (std::size_t r = 0; r < one.size(); ++r) {
    REQUIRE(one[r].shape == other[r].shape);
    REQUIRE(one[r].data.size() == other[r].data.size());
    const double scale = scale_of(one[r]);
    for (std::size_t i = 0; i < one[r].data.size(); ++i) {
      if (agree(one[r].data[i], other[r].data[i], scale)) continue;
      CAPTURE(r, i, one[r].data[i], other[r].data[i]);
      REQUIRE(false);
    }
  }
}

/// Computes `function(builder, arguments' ids)` in both ways, and returns the naive result.
template <class Function>
tensor_value both(const std::vector<tensor_value>& data, Function function, const std::vector<dtype>& types = {}) {
  builder b;
  ids a;
  for (std::size_t i = 0; i < data.size(); ++i) {
    a.push_back(emit::argument(b, i < types.size() ? types[i] : dtype::f64, data[i].shape, static_cast<int>(i)));
  }
  emit::result(b, function(b, a), 0);
  const std::vector<tensor_value> found = naive_interpret(b.result(), data);
  require_agreement(found, interpret(b.result(), data));
  return found[0];
}

/// Random numbers, one in eight of them special.
tensor_value any_data(random_source& random, const extents& shape) {
  tensor_value made = test::random_tensor(random, shape, -3, 3);
  for (double& x : made.data) {
    if (random.chance(0.125)) x = random.one_of(special);
  }
  return made;
}

extents any_shape(random_source& random, int low, int high) {
  extents shape;
  for (int rank = random.integer(low, high); rank > 0; --rank) {
    shape.append(random.one_of(std::vector<std::int64_t>{0, 1, 1, 2, 2, 3, 3, 4, 5}));
  }
  return shape;
}

tensor_value numbers(const extents& shape, const std::vector<double>& data) { return {shape, data}; }

/// Every pair of two lists.
std::pair<tensor_value, tensor_value> pairs(const std::vector<double>& values) {
  std::pair<tensor_value, tensor_value> made;
  const auto size = static_cast<std::int64_t>(values.size());
  made.first.shape = made.second.shape = extents_of({size, size});
  for (const double x : values) {
    for (const double y : values) {
      made.first.data.push_back(x);
      made.second.data.push_back(y);
    }
  }
  return made;
}

}  // namespace

TEST_CASE("two meanings of elementwise ops agree, on NaN, infinities and zeros too") {
  const tensor_value x = numbers(extents_of({static_cast<std::int64_t>(special.size())}), special);
  for (const op_info* const op :
       {&ops::negate,     &ops::logical_not, &ops::exp,   &ops::log,           &ops::sqrt,      &ops::rsqrt,
        &ops::tanh,       &ops::sigmoid,     &ops::relu,  &ops::silu,          &ops::gelu,      &ops::silu_slope,
        &ops::gelu_slope, &ops::sin,         &ops::cos,   &ops::erf,           &ops::erfc,      &ops::erf_inv,
        &ops::expm1,      &ops::log1p,       &ops::abs,   &ops::sign,          &ops::is_finite, &ops::floor,
        &ops::ceil,       &ops::trunc,       &ops::round, &ops::stop_gradient, &ops::copy,      &ops::shard,
        &ops::reshard,    &ops::shard_value}) {
    CAPTURE(op->name);
    both({x}, [&](builder& b, const ids& a) { return b.append(*op, dtype::f64, x.shape, a[0]); });
  }
  const auto [p, q] = pairs(special);
  for (const op_info* const op :
       {&ops::add,        &ops::subtract,  &ops::multiply,   &ops::divide,           &ops::less,
        &ops::less_equal, &ops::equal,     &ops::not_equal,  &ops::logical_and,      &ops::logical_or,
        &ops::maximum,    &ops::minimum,   &ops::match,      &ops::shard_like,       &ops::shard_as,
        &ops::atan2,      &ops::remainder, &ops::total_less, &ops::total_less_equal, &ops::total_equal}) {
    CAPTURE(op->name);
    both({p, q},
         [&, shape = p.shape](builder& b, const ids& a) { return b.append(*op, dtype::f64, shape, a[0], a[1]); });
  }
  const auto [m, n] = pairs({-7, -2, -1, 0, 1, 2, 3, 7, 1000});
  for (const op_info* const op :
       {&ops::add, &ops::subtract, &ops::multiply, &ops::divide, &ops::maximum, &ops::remainder, &ops::bitwise_and,
        &ops::bitwise_or, &ops::bitwise_xor, &ops::shift_right_logical, &ops::shift_right_arithmetic}) {
    CAPTURE(op->name);
    both({m, n},
         [&, shape = m.shape](builder& b, const ids& a) { return b.append(*op, dtype::i32, shape, a[0], a[1]); },
         {dtype::i32, dtype::i32});
  }
  const tensor_value whole = numbers(extents_of({4}), {-7, 7, 7, -7});
  const tensor_value by = numbers(extents_of({4}), {2, -2, 0, 3});
  CHECK(
      both({whole, by}, [](builder& b, const ids& a) { return emit::divide(b, a[0], a[1]); }, {dtype::i32, dtype::i32})
          .data == std::vector<double>{-3, -3, 0, -2});
  CHECK(std::isnan(
      both({x}, [&](builder& b, const ids& a) { return b.append(ops::relu, dtype::f64, x.shape, a[0]); }).data[0]));
  both({numbers(p.shape, q.data), p, q}, [](builder& b, const ids& a) { return emit::select(b, a[0], a[1], a[2]); });
  for (const op_info* const op : {&ops::softmax, &ops::standardise}) {
    both({p, q, p}, [&](builder& b, const ids& a) { return emit::normalised(b, *op, a[0], a[1], a[2], 2); });
  }
}

TEST_CASE("two meanings of powers, tangents and clamps agree") {
  // Relative to the result: a scale for all would hide the small ones.
  const tensor_value x = numbers(extents_of({9}), {-1.5, -1, -0.3, -0.0, 0, 0.2, 0.9, 1, 1.5});
  both({x}, [&](builder& b, const ids& a) { return b.append(ops::tan, dtype::f64, x.shape, a[0]); });
  const auto [p, q] = pairs({not_a_number, infinity, -infinity, 0, -0.0, 1, -1, 0.5, -2.5, 3, -3, 1e10, -700});
  both({p, q}, [&](builder& b, const ids& a) { return b.append(ops::pow, dtype::f64, b[a[0]].shape, a[0], a[1]); });
  const auto [m, n] = pairs(special);
  for (const double high : special) {
    const tensor_value top{m.shape, std::vector<double>(m.data.size(), high)};
    both({m, n, top},
         [&](builder& b, const ids& a) { return b.append(ops::clamp, dtype::f64, top.shape, a[0], a[1], a[2]); });
  }
  const auto rest = [&](double a, double b) {
    return both({numbers(extents_of({1}), {a}), numbers(extents_of({1}), {b})},
                [](builder& g, const ids& i) {
                  return g.append(ops::remainder, dtype::f64, extents_of({1}), i[0], i[1]);
                })
        .data[0];
  };
  CHECK(rest(7.5, 2) == 1.5);
  CHECK(rest(-7.5, 2) == -1.5);
  CHECK(rest(7.5, -2) == 1.5);
  CHECK(std::signbit(rest(-4, 2)));
  CHECK(std::isnan(rest(1, 0)));
}

TEST_CASE("two meanings of bits agree") {
  const auto [m, n] = pairs({0, 1, -1, 2, 3, 5, 31, 32, 33, -32, 77, 65535, 2147483647.0, -2147483648.0});
  for (const op_info* const op : {&ops::bitwise_and, &ops::bitwise_or, &ops::bitwise_xor, &ops::shift_left,
                                  &ops::shift_right_logical, &ops::shift_right_arithmetic}) {
    CAPTURE(op->name);
    both({m, n},
         [&, shape = m.shape](builder& b, const ids& a) { return b.append(*op, dtype::i32, shape, a[0], a[1]); },
         {dtype::i32, dtype::i32});
  }
  both({m}, [](builder& b, const ids& a) { return b.append(ops::bitwise_not, dtype::i32, b[a[0]].shape, a[0]); },
       {dtype::i32});
  const auto [yes, no] = pairs({0, 1});
  for (const op_info* const op : {&ops::bitwise_and, &ops::bitwise_or, &ops::bitwise_xor}) {
    both({yes, no},
         [&, shape = yes.shape](builder& b, const ids& a) { return b.append(*op, dtype::boolean, shape, a[0], a[1]); },
         {dtype::boolean, dtype::boolean});
  }
  both({yes}, [](builder& b, const ids& a) { return b.append(ops::bitwise_not, dtype::boolean, b[a[0]].shape, a[0]); },
       {dtype::boolean});
  const double tiny = std::ldexp(1.0, -149);
  const tensor_value x =
      numbers(extents_of({11}), {0, -0.0, 1, -1.5, 3, 0x1.fffffep127, tiny, -5 * tiny, 0x1p-126, infinity, -infinity});
  const tensor_value bits =
      both({x}, [](builder& b, const ids& a) { return emit::bit_cast(b, a[0], dtype::i32); }, {dtype::f32});
  CHECK(bits.data == std::vector<double>{0, -2147483648.0, 0x3f800000, 0xbfc00000 - 0x1p32, 0x40400000, 0x7f7fffff, 1,
                                         0x80000005 - 0x1p32, 0x00800000, 0x7f800000, 0xff800000 - 0x1p32});
  const tensor_value back =
      both({bits}, [](builder& b, const ids& a) { return emit::bit_cast(b, a[0], dtype::f32); }, {dtype::i32});
  CHECK(back.data == x.data);
}

TEST_CASE("two meanings of conversions agree") {
  std::vector<double> values = special;
  // Ties of bf16 (eight significant bits) and f32, the ends of their ranges and of the integers', what is subnormal.
  for (const double x : {257.0,        259.0,    258.0,    16777217.0, 16777219.0,   0x1.fep127,    0x1.ffp127,
                         0x1.feffp127, 0x1p-133, 0x1p-134, 0x1.8p-133, 2147483647.0, -2147483648.0, 3e9,
                         -3e9,         65504.0,  65519.9,  65520.0,    2049.0,       2051.0,        0x1p-14,
                         0x1.ffcp-15,  0x1p-24,  0x1p-25,  0x1.8p-25,  0x1.4p-23,    127.0,         127.9,
                         128.0,        -128.9,   -129.0,   -0.9,       4294967295.0, 4294967296.0,  0x1p53,
                         -0x1p62,      0x1p64,   2.999,    -2.999,     0.1,          1.0 / 3}) {
    values.push_back(x);
  }
  const tensor_value x = numbers(extents_of({static_cast<std::int64_t>(values.size())}), values);
  for (const dtype_facts& row : dtype_table) {
    const dtype type = row.type;
    CAPTURE(row.name);
    const tensor_value found =
        both({x}, [&](builder& b, const ids& a) { return b.append(ops::convert, type, x.shape, a[0]); });
    // The results are equal to the last bit.
    builder b;
    emit::result(b, b.append(ops::convert, type, x.shape, emit::argument(b, dtype::f64, x.shape, 0)), 0);
    const tensor_value evaluated = interpret(b.result(), {x})[0];
    for (std::size_t i = 0; i < values.size(); ++i) {
      CAPTURE(values[i], found.data[i], evaluated.data[i]);
      CHECK((found.data[i] == evaluated.data[i] || (std::isnan(found.data[i]) && std::isnan(evaluated.data[i]))));
    }
  }
  // Integers end where others go on: modulo, not the nearest.
  const tensor_value whole = numbers(extents_of({9}), {-129, -1, 0, 127, 128, 255, 256, 2147483647, 4294967295});
  for (const auto& [from, to] : {std::pair(dtype::i64, dtype::i8), std::pair(dtype::i64, dtype::u32),
                                 std::pair(dtype::i64, dtype::i32), std::pair(dtype::i64, dtype::f16)}) {
    CAPTURE(name_of(from), name_of(to));
    const tensor_value found =
        both({whole}, [&, type = to](builder& b, const ids& a) { return emit::convert(b, a[0], type); }, {from});
    if (to == dtype::i8) CHECK(found.data == std::vector<double>{127, -1, 0, 127, -128, -1, 0, -1, -1});
    if (to == dtype::u32) CHECK(found.data[1] == 4294967295.0);
    if (to == dtype::i32) CHECK(found.data[8] == -1);
  }
  CHECK(test::naive::nearest_short(257, 8, -133, 128) == 256);
  CHECK(test::naive::nearest_short(259, 8, -133, 128) == 260);
  CHECK(test::naive::nearest_short(2049, 11, -24, 16) == 2048);
  CHECK(test::naive::nearest_short(65519, 11, -24, 16) == 65504);
  CHECK(test::naive::wrapped(dtype::i32, 2147483648.0) == -2147483648.0);
  CHECK(test::naive::wrapped(dtype::i32, -4294967297.0) == -1);
  CHECK(test::naive::wrapped(dtype::u32, -1) == 4294967295.0);
  CHECK(test::naive::wrapped(dtype::i8, 300) == 44);
}

TEST_CASE("two meanings of ops that move elements agree, for sizes 0 and 1 too") {
  random_source random(31);
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    const tensor_value x = any_data(random, any_shape(random, 1, 4));
    const int rank = x.shape.rank;
    const int dim = random.integer(0, rank - 1);
    for (const reduction kind : {reduction::sum, reduction::prod, reduction::max, reduction::min}) {
      const int dims = random.integer(0, (1 << rank) - 1);
      both({x}, [&](builder& b, const ids& a) { return emit::reduce(b, kind, a[0], dims); });
    }
    extents wide;
    axis_list targets;
    for (int d = 0; d < rank; ++d) {
      if (random.chance(0.3)) wide.append(random.integer(0, 3));
      targets = targets.with(wide.rank);
      wide.append(x.shape[d] == 1 ? random.integer(1, 3) : x.shape[d]);
    }
    both({x}, [&](builder& b, const ids& a) { return emit::broadcast(b, a[0], wide, targets); });
    std::vector<int> order;
    for (int d = 0; d < rank; ++d) order.insert(order.begin() + random.integer(0, d), d);
    axis_list permuted;
    for (const int d : order) permuted = permuted.with(d);
    both({x}, [&](builder& b, const ids& a) { return emit::transpose(b, a[0], permuted); });
    both({x}, [&](builder& b, const ids& a) { return emit::reshape(b, a[0], extents_of({1, x.shape.elements()})); });
    const int start = random.integer(0, 2);
    const int step = random.integer(1, 3);
    if (start < x.shape[dim]) {
      const std::int64_t size = (x.shape[dim] - start + step - 1) / step;
      both({x}, [&](builder& b, const ids& a) { return emit::slice(b, a[0], dim, start, size, step); });
    }
    const std::int64_t room = start + step * x.shape[dim] + random.integer(0, 2);
    both({x}, [&](builder& b, const ids& a) { return emit::pad(b, a[0], dim, start, room, step); });
    extents other = x.shape;
    other[dim] = random.integer(0, 3);
    const tensor_value y = any_data(random, other);
    both({x, y}, [&](builder& b, const ids& a) {
      const int parts[]{a[0], a[1], a[0], a[1], a[1], a[0]};
      return emit::concat(b, &parts[0], random.integer(2, 6), dim);
    });
    both({}, [&](builder& b, const ids&) { return emit::iota(b, dtype::i32, x.shape, dim); });
    both({}, [&](builder& b, const ids&) { return emit::constant(b, dtype::f64, x.shape, -1.5); });
    const tensor_value key{extents_of({2}), {static_cast<double>(random.integer(0, 9)) * 4e8, 77}};
    const tensor_value number{extents_of({}), {static_cast<double>(random.integer(0, 9)) * 3e8}};
    const dtype words = round % 2 == 0 ? dtype::u32 : dtype::i32;
    both({key}, [&](builder& b, const ids& a) { return emit::random_bits(b, words, x.shape, a[0]); }, {dtype::u32});
    both({key, number},
         [&](builder& b, const ids& a) {
           return emit::random_bits(b, words, x.shape, a[0], detail::random_purpose::fold, a[1]);
         },
         {dtype::u32, dtype::u32});
    // Rows outside of the table too.
    const tensor_value rows = test::random_integers(random, any_shape(random, 0, 2), -1, 5);
    both({x, rows}, [&](builder& b, const ids& a) { return emit::gather(b, a[0], a[1], dim); },
         {dtype::f64, dtype::i32});
    const tensor_value updates = any_data(random, detail::gathered_shape(x.shape, rows.shape, dim));
    both({rows, updates}, [&](builder& b, const ids& a) { return emit::scatter_add(b, x.shape, a[0], a[1], dim); },
         {dtype::i32});
    if (x.shape[dim] == 0) continue;
    const tensor_value at = test::random_integers(random, extents{}, -3, 6);
    const int size = random.integer(1, static_cast<int>(x.shape[dim]));
    both({x, at}, [&](builder& b, const ids& a) { return emit::dynamic_slice(b, a[0], a[1], dim, size); },
         {dtype::f64, dtype::i32});
    extents part = x.shape;
    part[dim] = size;
    const int second = random.integer(0, rank - 1);
    part[second] = random.integer(second == dim ? size : 0, static_cast<int>(part[second]));
    const tensor_value changed = any_data(random, part);
    const tensor_value from = test::random_integers(random, extents{}, -3, 6);
    both({x, changed, at, from},
         [&](builder& b, const ids& a) {
           return emit::dynamic_update_slice(b, a[0], a[1], {dim, a[2]},
                                             second == dim ? emit::placed_at{} : emit::placed_at{second, a[3]});
         },
         {dtype::f64, dtype::f64, dtype::i32, dtype::i32});
  }
}

TEST_CASE("two meanings of einsum agree") {
  random_source random(32);
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    const tensor_value x = any_data(random, any_shape(random, 0, 3));
    extents shape;
    einsum_term left;
    einsum_term right;
    einsum_term result;
    char next = 'a';
    for (int d = 0; d < x.shape.rank; ++d) left.append(next++);
    for (int rank = random.integer(0, 3); rank > 0; --rank) {
      const int shared = x.shape.rank > 0 && random.chance(0.7) ? random.integer(0, x.shape.rank - 1) : -1;
      if (shared >= 0 && !right.contains(left[shared])) {
        right.append(left[shared]);
        shape.append(x.shape[shared]);
      } else {
        right.append(next++);
        shape.append(random.integer(0, 3));
      }
    }
    for (char letter = 'a'; letter < next; ++letter) {
      const char at = static_cast<char>('a' + (letter - 'a' + round) % (next - 'a'));
      if (random.chance(0.6)) result.append(at);
    }
    const tensor_value y = any_data(random, shape);
    both({x, y}, [&](builder& b, const ids& a) { return emit::einsum(b, a[0], left, a[1], right, result); });
  }
}

namespace {

/// A loop without slices over carries from the arguments; `body(builder, carries)` says what is passed on.
template <class Body>
std::vector<tensor_value> looped(std::int64_t count, bool reverse, const std::vector<double>& start, Body body) {
  builder b;
  std::vector<tensor_value> data;
  ids carries;
  for (const double x : start) {
    data.push_back({extents{}, {x}});
    emit::argument(b, dtype::f64, extents{}, static_cast<int>(data.size()) - 1);
  }
  emit::region_begin(b, count, reverse, false);
  for (std::size_t k = 0; k < start.size(); ++k) carries.push_back(emit::region_parameter(b, static_cast<int>(k)));
  const ids passed = body(b, carries);
  ids next;
  for (std::size_t k = 0; k < passed.size(); ++k) {
    // The value is passed as it is: no copy that makes an order harmless.
    next.push_back(b.append(ops::region_yield, dtype::f64, extents{}, carries[k], passed[k]));
  }
  emit::region_end(b);
  for (std::size_t k = 0; k < next.size(); ++k) emit::result(b, emit::region_result(b, next[k]), static_cast<int>(k));
  const std::vector<tensor_value> found = naive_interpret(b.result(), data);
  require_agreement(found, interpret(b.result(), data));
  return found;
}

}  // namespace

TEST_CASE("loops hand all carries on at once") {
  const auto fibonacci = [](builder& b, const ids& c) { return ids{c[1], emit::add(b, c[0], c[1])}; };
  CHECK(looped(10, false, {0, 1}, fibonacci)[0].data[0] == 55);
  CHECK(looped(0, false, {0, 1}, fibonacci)[1].data[0] == 1);
  CHECK(looped(1, true, {0, 1}, fibonacci)[0].data[0] == 1);
  const auto turn = [](builder&, const ids& c) { return ids{c[1], c[2], c[0]}; };
  const std::vector<tensor_value> turned = looped(4, false, {1, 2, 3}, turn);
  CHECK(turned[0].data[0] == 2);
  CHECK(turned[2].data[0] == 1);
  // The same value for two carries, one from outside, one unchanged.
  const auto mixed = [](builder& b, const ids& c) {
    const int sum = emit::add(b, c[0], c[1]);
    return ids{sum, sum, 0, c[3]};
  };
  const std::vector<tensor_value> last = looped(3, false, {1, 2, 5, 9}, mixed);
  CHECK(last[0].data[0] == 12);
  CHECK(last[1].data[0] == 12);
  CHECK(last[2].data[0] == 1);
  CHECK(last[3].data[0] == 9);
}

TEST_CASE("slices, stacks and sums of nested and reversed loops") {
  // The sum over i of a[i] times the sum of row i of m, backwards.
  builder b;
  const int a = emit::argument(b, dtype::f64, extents_of({3}), 0);
  const int m = emit::argument(b, dtype::f64, extents_of({3, 2}), 1);
  const int zero = emit::constant(b, dtype::f64, extents{}, 0);
  emit::region_begin(b, 3, true, false);
  const int outer_begin = b.region;
  const int total = emit::region_parameter(b, zero);
  const int one = emit::loop_slice(b, a);
  const int row = emit::loop_slice(b, m);
  emit::region_begin(b, 2, false, false);
  const int inner = emit::multiply(b, emit::loop_slice(b, row), one);
  // Belongs to the outer loop, though it stands in the inner one.
  instruction doubled = builder::make(ops::add, dtype::f64, extents{}, one, one);
  doubled.region = outer_begin;
  const int twice = b.result().code.push_back(doubled);
  const int plus = emit::add(b, inner, twice);
  emit::region_end(b);
  const int sum = emit::loop_sum(b, plus);
  const int both_rows = emit::loop_stack(b, inner);
  const int added = emit::region_yield(b, total, emit::add(b, total, sum));
  emit::region_end(b);
  emit::result(b, emit::region_result(b, added), 0);
  emit::result(b, emit::loop_stack(b, both_rows), 1);
  emit::result(b, emit::loop_stack(b, total), 2);
  const std::vector<tensor_value> data{{extents_of({3}), {1, 10, 100}}, {extents_of({3, 2}), {1, 2, 3, 4, 5, 6}}};
  const std::vector<tensor_value> found = naive_interpret(b.result(), data);
  // Sums of the rows are 3, 7, 11; every iteration adds 4 times a[i] too.
  CHECK(found[0].data == std::vector<double>{7 + 110 + 1500});
  CHECK(found[1].data == std::vector<double>{1, 2, 30, 40, 500, 600});
  CHECK(found[2].data == std::vector<double>{1610, 1500, 0});
  require_agreement(found, interpret(b.result(), data));
  CHECK_THROWS_WITH(naive_interpret(b.result(), {data[0]}), Catch::Contains("argument is missing"));
}

TEST_CASE("two meanings of random programs agree, loops and gradients in them") {
  std::size_t values = 0;
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    random_source random(seed);
    test::random_graph_options options;
    options.instructions = 40;
    options.more_ops = random.chance(0.7);
    const test::random_program made = test::random_graph(random, options);
    const std::vector<tensor_value> found = naive_interpret(made.code.result(), made.arguments);
    require_agreement(found, interpret(made.code.result(), made.arguments));
    require_agreement(found, naive_interpret(normalise(made.code.result()), made.arguments));
    values += found.size();
  }
  CHECK(values > 1000);
}

TEST_CASE("values stored as their types, and what is refused") {
  builder b;
  const int x = emit::argument(b, dtype::bf16, extents{}, 0);
  const int y = emit::argument(b, dtype::i32, extents{}, 1);
  emit::result(b, emit::add(b, x, emit::constant(b, dtype::bf16, extents{}, 1)), 0);
  emit::result(b, emit::add(b, y, y), 1);
  emit::result(b, emit::constant(b, dtype::f32, extents{}, 0.1), 2);
  const std::vector<tensor_value> data{{extents{}, {256}}, {extents{}, {1500000000}}};
  const auto exact = naive_interpret(b.result(), data);
  CHECK(exact[0].data[0] == 257);
  CHECK(exact[1].data[0] == -1294967296);
  CHECK(exact[2].data[0] == 0.1);
  const auto typed = naive_interpret(b.result(), data, naive_storage::typed);
  CHECK(typed[0].data[0] == 256);
  CHECK(typed[1].data[0] == -1294967296);
  CHECK(typed[2].data[0] == static_cast<double>(0.1F));
  emit::result(b, b.append(ops::mask, dtype::bf16, extents{}, x), 3);
  CHECK_THROWS_WITH(naive_interpret(b.result(), data), Catch::Contains("mask has no meaning here"));
}
