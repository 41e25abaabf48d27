// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// together: random_programs
#include <tensor/unit/kernels_ops_checks.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <vector>

// The kernels that work on whole shards against `op_info::evaluate`, with one thread and with several.

namespace {

using namespace espalier;
using kernels::kernel_key;
using test::buffer;
using test::values;

using shape = extents;

struct run_options {
  values kind = values::any;
  double terms = 1;
  double scalar = 0;
  /// The range of the result (of a gather, its table) along dimension `along`, if it is not a whole tensor.
  std::optional<interval> here{};
  int along = 0;
  /// Indices are drawn from [first, last).
  std::int64_t first_index = 0;
  std::int64_t last_index = 0;
  int index_operand = -1;
  /// Operands beyond the first few, whose shapes no key has.
  std::vector<extents> further{};
  std::vector<placed_window> windows{};
  /// The result is where the operand is that it may overwrite, or the first one.
  bool in_place = false;
};

const extents& shape_of(const kernel_key& key, const run_options& options, int k) {
  return k < inline_operands ? key.operand_shape[k] : options.further[static_cast<std::size_t>(k - inline_operands)];
}
dtype type_of(const kernel_key& key, int k) { return k < inline_operands ? key.operand_type[k] : key.type; }

instruction_boxes boxes_for(const op_info& op, const kernel_key& key, const run_options& options) {
  const std::optional<interval>& here = options.here;
  const int along = options.along;
  instruction_boxes boxes;
  boxes.result = detail::whole_box(key.shape);
  for (int k = 0; k < key.operand_count; ++k) boxes.operand[k] = detail::whole_box(shape_of(key, options, k));
  tensor_box& placed = &op == &ops::gather ? boxes.operand[0] : boxes.result;
  if (here) placed.dim[along] = *here;
  return boxes;
}

using kernel_function = void (*)(const kernels::kernel_call&);

void check(const op_info& op, const kernel_key& key, kernel_function run, std::int64_t scratch_bytes,
           const run_options& options) {
  std::string shapes;
  for (int k = 0; k <= key.operand_count; ++k) {
    const extents& s = k < key.operand_count ? shape_of(key, options, k) : key.shape;
    shapes += k == key.operand_count ? " -> [" : " [";
    for (int d = 0; d < s.rank; ++d) shapes += (d > 0 ? "," : "") + std::to_string(s[d]);
    shapes += "]";
  }
  INFO(op.name << " " << name_of(key.type) << shapes);
  test::generator random;
  std::mt19937 index_engine(3);
  std::vector<buffer> operands;
  std::vector<std::vector<double>> plain;
  evaluation e;
  instruction self;
  self.op = &op;
  self.type = key.type;
  self.shape = key.shape;
  self.operand_count = key.operand_count;
  std::copy(std::begin(key.attribute), std::end(key.attribute), std::begin(self.attribute));
  self.scalar = options.scalar;
  e.self = &self;
  const instruction_boxes boxes = boxes_for(op, key, options);
  e.boxes = &boxes;
  e.windows = options.windows.data();
  for (int k = 0; k < key.operand_count; ++k) {
    operands.emplace_back(type_of(key, k), shape_of(key, options, k).elements());
    buffer& made = operands.back();
    random.fill(made, type_of(key, k), options.kind);
    if (k == options.index_operand) {
      std::uniform_int_distribution<std::int64_t> draw(options.first_index, options.last_index - 1);
      for (std::int64_t i = 0; i < made.size(); ++i) made.set(i, static_cast<double>(draw(index_engine)));
    }
    std::vector<double> all;
    for (std::int64_t i = 0; i < made.size(); ++i) all.push_back(made.get(i));
    plain.push_back(all);
  }
  for (int k = 0; k < key.operand_count; ++k) {
    e.operand[k] = plain[static_cast<std::size_t>(k)].data();
    e.operand_shape[k] = &shape_of(key, options, k);
    e.operand_type[k] = type_of(key, k);
  }
  std::vector<double> want(static_cast<std::size_t>(key.shape.elements()));
  e.result = want.data();
  op.evaluate(e);

  std::vector<std::vector<double>> outcomes;
  test::with_threads([&] {
    buffer result(key.type, key.shape.elements() + 1);
    for (std::int64_t i = 0; i < result.size(); ++i) result.set(i, 1);
    buffer scratch(dtype::boolean, scratch_bytes + 1);
    kernels::kernel_call call;
    std::vector<kernels::further_operand> further;
    for (int k = 0; k < key.operand_count; ++k) {
      const void* const data = operands[static_cast<std::size_t>(k)].data();
      if (k < inline_operands) {
        call.operand[k] = data;
      } else {
        further.push_back({data, type_of(key, k), shape_of(key, options, k)});
      }
    }
    call.further = further.data();
    call.windows = options.windows.data();
    if (options.in_place) {
      const auto shared = static_cast<std::size_t>(std::max<int>(0, op.facts.overwrites));
      for (std::int64_t i = 0; i < operands[shared].size(); ++i) result.set(i, operands[shared].get(i));
      call.operand[shared] = result.data();
    }
    call.result = result.data();
    call.scalar = options.scalar;
    call.boxes = &boxes;
    call.scratch = scratch.data();
    run(call);
    outcomes.emplace_back();
    for (std::int64_t i = 0; i < key.shape.elements(); ++i) {
      const double expected = detail::stored_as(key.type, want[static_cast<std::size_t>(i)]);
      outcomes.back().push_back(result.get(i));
      if (test::close_enough(result.get(i), expected, key.type, options.terms)) continue;
      INFO("element " << i << ": " << result.get(i) << " instead of " << expected);
      REQUIRE(false);
    }
    REQUIRE(result.get(key.shape.elements()) == 1);  // nothing is written beyond the result
  });
  // Bit for bit the same, whatever the number of threads: but products by a library that adds in another order
  // when it gets another number of rows.
  if ((&op == &ops::einsum || &op == &ops::add_einsum) && !detail::adds_in_one_order) return;
  for (const std::vector<double>& other : outcomes) {
    REQUIRE(std::memcmp(other.data(), outcomes[0].data(), other.size() * sizeof(double)) == 0);
  }
}

template <const op_info* Op, kernel_key Key> void check_key(const run_options& options = {}) {
  check(*Op, Key, &kernels::kernel<Op>::template run<Key>, kernels::kernel<Op>::scratch_bytes(Key), options);
}

constexpr kernel_key key_of(dtype type, extents from, extents to) {
  kernel_key key;
  key.type = type;
  key.shape = to;
  key.operand_count = 1;
  key.operand_type[0] = type;
  key.operand_shape[0] = from;
  return key;
}
template <class Attributes>
constexpr kernel_key key_of(dtype type, extents from, extents to, const Attributes& attributes) {
  kernel_key key = key_of(type, from, to);
  set_attributes(key, attributes);
  return key;
}

constexpr extents permuted(const extents& from, axis_list order) {
  extents to;
  for (int d = 0; d < from.rank; ++d) to.append(from[order[d]]);
  return to;
}
template <int... Order> constexpr axis_list order_of() {
  axis_list order;
  ((order = order.with(Order)), ...);
  return order;
}
template <dtype Type, extents From, int... Order> void check_transpose() {
  constexpr axis_list order = order_of<Order...>();
  check_key<&ops::transpose, key_of(Type, From, permuted(From, order), transpose_attributes{order})>();
}

constexpr extents with(extents s, int dim, std::int64_t size) {
  s[dim] = size;
  return s;
}

template <dtype Type, extents From, int Dim, int Start, int Size, int Step = 1> void check_slice() {
  constexpr slice_attributes places{Dim, Start, Step};
  check_key<&ops::slice, key_of(Type, From, with(From, Dim, Size), places)>();
  // The same places the other way round.
  check_key<&ops::pad, key_of(Type, with(From, Dim, Size), From, places)>();
}

template <dtype Type, extents From, std::int64_t Dims, reduction Kind = reduction::sum>
void check_reduce(values kind = values::any) {
  constexpr const op_info* op = Kind == reduction::sum ? &ops::reduce_sum : &ops::reduce;
  constexpr kernel_key key =
      key_of(Type, From, detail::reduced_shape(From, Dims, false), reduction_attributes{Dims, Kind});
  check_key<op, key>({.kind = kind, .terms = Kind == reduction::sum ? 300.0 : 20.0});
}
template <extents From, std::int64_t Dims> void check_reduce_all() {
  check_reduce<dtype::f32, From, Dims>();
  check_reduce<dtype::f64, From, Dims, reduction::max>(values::special);
}

template <dtype Type, extents From, extents To, int... Targets> void check_broadcast() {
  check_key<&ops::broadcast, key_of(Type, From, To, broadcast_attributes{order_of<Targets...>()})>();
}

constexpr einsum_term term(const char* letters) {
  einsum_term made;
  for (; *letters != '\0'; ++letters) made.append(*letters);
  return made;
}

constexpr kernel_key einsum_key(dtype type, const char* a, const char* b, const char* c, extents sa, extents sb,
                                extents sc) {
  kernel_key key = key_of(type, sa, sc, einsum_attributes{term(a), term(b), term(c)});
  key.operand_count = 2;
  key.operand_type[1] = type;
  key.operand_shape[1] = sb;
  return key;
}

template <kernel_key Product> void check_add_einsum(double terms = 1) {
  constexpr kernel_key key = [] {
    kernel_key made = Product;
    made.operand_count = 3;
    made.operand_type[2] = made.type;
    made.operand_shape[2] = made.shape;
    return made;
  }();
  for (const bool in_place : {true, false}) check_key<&ops::add_einsum, key>({.terms = terms, .in_place = in_place});
}

constexpr kernel_key gather_key(dtype type, extents table, extents indices, int along, dtype index = dtype::i32) {
  kernel_key key = key_of(type, table, detail::gathered_shape(table, indices, along), gather_attributes{along});
  key.operand_count = 2;
  key.operand_type[1] = index;
  key.operand_shape[1] = indices;
  return key;
}
constexpr kernel_key scatter_key(dtype type, extents table, extents indices, int along, dtype index = dtype::i32) {
  kernel_key key = key_of(index, indices, table, gather_attributes{along});
  key.type = type;
  key.operand_count = 2;
  key.operand_type[1] = type;
  key.operand_shape[1] = detail::gathered_shape(table, indices, along);
  return key;
}

/// Checks indices that start before this device's rows and end after them.
template <dtype Type, extents Table, extents Indices, int Along, dtype Index = dtype::i32> void check_lookup() {
  constexpr std::int64_t rows = Table[Along];
  run_options options{.terms = 40,
                      .here = interval{5, rows},
                      .along = Along,
                      .first_index = 2,
                      .last_index = rows + 9,
                      .index_operand = 1};
  check_key<&ops::gather, gather_key(Type, Table, Indices, Along, Index)>(options);
  options.index_operand = 0;
  check_key<&ops::scatter_add, scatter_key(Type, Table, Indices, Along, Index)>(options);
}

}  // namespace

TEST_CASE("kernels: transpose moves every element, for any permutation", "[kernels]") {
  check_transpose<dtype::f32, shape{2, {100, 257}}, 1, 0>();
  check_transpose<dtype::f32, shape{2, {3, 400}}, 1, 0>();
  check_transpose<dtype::f32, shape{2, {257, 1}}, 1, 0>();
  check_transpose<dtype::f64, shape{2, {100, 130}}, 1, 0>();
  check_transpose<dtype::bf16, shape{2, {100, 130}}, 1, 0>();
  check_transpose<dtype::i32, shape{2, {64, 64}}, 1, 0>();
  check_transpose<dtype::boolean, shape{2, {100, 130}}, 1, 0>();
  check_transpose<dtype::f32, shape{4, {3, 17, 5, 64}}, 0, 2, 1, 3>();
  check_transpose<dtype::f32, shape{4, {3, 17, 5, 7}}, 0, 2, 3, 1>();
  check_transpose<dtype::f32, shape{4, {3, 17, 5, 40}}, 3, 1, 0, 2>();
  check_transpose<dtype::f32, shape{4, {30, 17, 5, 40}}, 3, 2, 1, 0>();
  check_transpose<dtype::f32, shape{3, {20, 30, 100}}, 2, 0, 1>();
  check_transpose<dtype::f32, shape{3, {1, 30, 1}}, 2, 0, 1>();
  check_transpose<dtype::f64, shape{5, {3, 4, 5, 6, 7}}, 4, 0, 3, 1, 2>();
}

TEST_CASE("kernels: slice and pad", "[kernels]") {
  check_slice<dtype::f32, shape{2, {100, 257}}, 0, 17, 40>();
  check_slice<dtype::f32, shape{2, {100, 257}}, 1, 17, 140>();
  check_slice<dtype::f32, shape{2, {400, 257}}, 1, 3, 120, 2>();
  check_slice<dtype::f64, shape{3, {3, 100, 17}}, 1, 1, 25, 3>();
  check_slice<dtype::bf16, shape{3, {3, 100, 17}}, 2, 16, 1>();
  check_slice<dtype::i32, shape{3, {17, 100, 30}}, 1, 0, 99>();
  check_slice<dtype::boolean, shape{1, {1000}}, 0, 3, 100, 5>();
  check_slice<dtype::f32, shape{1, {100003}}, 0, 1, 100000>();
}

/// Joins `Count` tensors that have `sizes` rows along a dimension.
template <dtype Type, shape Other, int Dim, int... Sizes> void check_concat() {
  constexpr int count = sizeof...(Sizes);
  constexpr std::int64_t sizes[]{Sizes...};
  constexpr kernel_key key = [&] {
    kernel_key made = key_of(Type, Other, with(Other, Dim, (Sizes + ...)));
    set_attributes(made, concat_attributes{.dim = Dim, .first_window = 1});
    made.operand_count = count;
    for (int k = 0; k < count && k < inline_operands; ++k) {
      made.operand_type[k] = Type;
      made.operand_shape[k] = with(Other, Dim, sizes[k]);
    }
    return made;
  }();
  run_options options;
  options.windows.resize(1);  // another op's
  std::int64_t start = 0;
  for (int k = 0; k < count; ++k) {
    options.windows.push_back(place_window({.low = start}, Dim, sizes[k], axis_list{}));
    start += sizes[k];
    if (k >= inline_operands) options.further.push_back(with(Other, Dim, sizes[k]));
  }
  check_key<&ops::concat, key>(options);
}

TEST_CASE("kernels: concat", "[kernels]") {
  check_concat<dtype::f32, shape{2, {100, 257}}, 0, 100, 3>();
  check_concat<dtype::f32, shape{2, {100, 257}}, 1, 257, 3, 100, 17>();
  check_concat<dtype::bf16, shape{3, {17, 3, 5}}, 1, 3, 1, 4>();
  check_concat<dtype::boolean, shape{1, {17}}, 0, 17, 1, 4, 3>();
  check_concat<dtype::f32, shape{2, {30, 257}}, 0, 1, 2, 3, 4, 5, 60>();
  check_concat<dtype::i64, shape{3, {5, 30, 7}}, 1, 3, 1, 4, 1, 5, 9, 2, 6, 5>();
  check_concat<dtype::boolean, shape{2, {17, 9}}, 1, 1, 1, 2, 1, 3>();
}

TEST_CASE("kernels: gather and scatter_add look only at this device's rows", "[kernels]") {
  check_lookup<dtype::f32, shape{2, {30, 257}}, shape{2, {17, 20}}, 0>();
  check_lookup<dtype::f32, shape{2, {30, 3}}, shape{1, {100}}, 0>();
  check_lookup<dtype::f64, shape{2, {3, 100}}, shape{1, {17}}, 1>();
  check_lookup<dtype::bf16, shape{2, {30, 64}}, shape{1, {257}}, 0>();
  check_lookup<dtype::i32, shape{3, {17, 100, 31}}, shape{1, {40}}, 1>();
  check_lookup<dtype::f32, shape{2, {3000, 8}}, shape{1, {5000}}, 0>();
  check_lookup<dtype::f32, shape{1, {17}}, shape{0, {}}, 0>();
  check_lookup<dtype::f16, shape{2, {30, 64}}, shape{1, {257}}, 0, dtype::i64>();
  check_lookup<dtype::i64, shape{2, {30, 17}}, shape{1, {100}}, 0, dtype::u32>();
  check_lookup<dtype::u32, shape{2, {30, 17}}, shape{1, {100}}, 0, dtype::i8>();
}

TEST_CASE("kernels: an index of a padding row finds nothing", "[kernels]") {
  constexpr kernel_key key = gather_key(dtype::f32, {2, {4, 3}}, {1, {5}}, 0);
  const float table[]{0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32};
  const std::int32_t indices[]{7, 8, 9, 10, 6};
  float result[15];
  const instruction_boxes boxes = boxes_for(ops::gather, key, {.here = interval{7, 2}});
  kernels::kernel_call call{.operand = {&table[0], &indices[0]}, .result = &result[0], .boxes = &boxes};
  kernels::kernel<&ops::gather>::run<key>(call);
  const float want[]{0, 1, 2, 10, 11, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  CHECK(std::equal(&result[0], &result[0] + 15, &want[0]));

  constexpr kernel_key back = scatter_key(dtype::f32, {2, {4, 3}}, {1, {5}}, 0);
  float updates[15];
  for (int i = 0; i < 15; ++i) updates[i] = static_cast<float>(i);
  float sums[12];
  const instruction_boxes boxes_back = boxes_for(ops::scatter_add, back, {.here = interval{7, 2}});
  kernels::kernel_call scatter{.operand = {&indices[0], &updates[0]}, .result = &sums[0], .boxes = &boxes_back};
  std::vector<std::byte> scratch(static_cast<std::size_t>(kernels::kernel<&ops::scatter_add>::scratch_bytes(back)));
  scatter.scratch = scratch.data();
  kernels::kernel<&ops::scatter_add>::run<back>(scatter);
  const float wanted[]{0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0};
  CHECK(std::equal(&sums[0], &sums[0] + 12, &wanted[0]));
}

TEST_CASE("kernels: a device without any of the channels has a term of zeros") {
  constexpr kernel_key fixed = [] {
    kernel_key made;
    made.shape = {3, {1, 4, 2}};
    made.operand_count = 2;
    made.operand_shape[0] = {3, {1, 4, 1}};
    made.operand_shape[1] = {3, {3, 1, 2}};
    return made;
  }();
  const placed_window window = place_window({.size = 3, .low = 1}, 0, 0, axis_list{});
  instruction_boxes boxes = boxes_for(ops::convolution, fixed, {});
  boxes.operand[0].dim[2] = boxes.operand[1].dim[1] = {1, 0};
  const float nothing[8]{9, 9, 9, 9, 9, 9, 9, 9};
  float result[8]{7, 7, 7, 7, 7, 7, 7, 7};
  kernels::kernel<&ops::convolution>::run<fixed>(
      {.operand = {&nothing[0], &nothing[0]}, .result = &result[0], .boxes = &boxes, .windows = &window});
  for (const float one : result) CHECK(one == 0);
}

TEST_CASE("kernels: reductions over any dimensions", "[kernels]") {
  check_reduce_all<shape{1, {257}}, 1>();
  check_reduce_all<shape{1, {100003}}, 1>();
  check_reduce_all<shape{2, {100, 257}}, 1>();
  check_reduce_all<shape{2, {100, 257}}, 2>();
  check_reduce_all<shape{2, {100, 257}}, 3>();
  check_reduce_all<shape{2, {30000, 3}}, 1>();
  check_reduce_all<shape{2, {30000, 3}}, 2>();
  check_reduce_all<shape{2, {40, 2500}}, 1>();
  check_reduce_all<shape{3, {17, 100, 31}}, 2>();
  check_reduce_all<shape{3, {17, 100, 31}}, 5>();
  check_reduce_all<shape{4, {17, 3, 100, 31}}, 5>();
  check_reduce_all<shape{4, {17, 3, 100, 31}}, 10>();
  check_reduce_all<shape{3, {1, 1, 1}}, 7>();
  check_reduce_all<shape{3, {1, 40, 1}}, 5>();
  check_reduce<dtype::bf16, shape{2, {400, 257}}, 1>();
  check_reduce<dtype::bf16, shape{2, {400, 257}}, 2>();
  check_reduce<dtype::i32, shape{2, {400, 257}}, 1>();
  check_reduce<dtype::i32, shape{2, {400, 257}}, 2, reduction::min>();
  check_reduce<dtype::i32, shape{2, {400, 257}}, 3, reduction::max>();
  check_reduce<dtype::f16, shape{2, {400, 257}}, 1>();
  check_reduce<dtype::i64, shape{2, {400, 257}}, 3>();
  check_reduce<dtype::i64, shape{2, {400, 257}}, 2, reduction::max>();
  check_reduce<dtype::u32, shape{2, {400, 257}}, 2>();
  check_reduce<dtype::u32, shape{2, {400, 257}}, 1, reduction::max>();
  check_reduce<dtype::i8, shape{2, {400, 257}}, 3, reduction::min>();
  check_reduce<dtype::i8, shape{2, {400, 257}}, 2, reduction::max>();
  check_reduce<dtype::boolean, shape{2, {400, 17}}, 2, reduction::prod>();
  check_reduce<dtype::boolean, shape{2, {400, 17}}, 1, reduction::max>();
  check_reduce<dtype::f32, shape{2, {400, 17}}, 2, reduction::prod>();
  check_reduce<dtype::f32, shape{2, {400, 17}}, 1, reduction::min>(values::special);
}

TEST_CASE("kernels: broadcast repeats along new and stretched dimensions", "[kernels]") {
  check_broadcast<dtype::f32, shape{1, {257}}, shape{2, {200, 257}}, 1>();
  check_broadcast<dtype::f32, shape{1, {200}}, shape{2, {200, 257}}, 0>();
  check_broadcast<dtype::f64, shape{0, {}}, shape{3, {17, 3, 5}}>();
  check_broadcast<dtype::bf16, shape{3, {17, 1, 5}}, shape{3, {17, 300, 5}}, 0, 1, 2>();
  check_broadcast<dtype::boolean, shape{2, {17, 5}}, shape{4, {3, 17, 100, 5}}, 1, 3>();
  check_broadcast<dtype::i32, shape{2, {1, 5}}, shape{3, {3, 17, 5}}, 1, 2>();
}

TEST_CASE("kernels: copies, constants and counting", "[kernels]") {
  check_key<&ops::reshape, key_of(dtype::f32, {2, {300, 257}}, {2, {257, 300}})>();
  check_key<&ops::copy, key_of(dtype::bf16, {1, {17}}, {1, {17}})>();
  check_key<&ops::stop_gradient, key_of(dtype::boolean, {1, {17}}, {1, {17}})>({.in_place = true});
  constexpr auto made = [](dtype type, extents to, int along) {
    kernel_key key = key_of(type, {}, to, index_attributes{along});
    key.operand_count = 0;
    return key;
  };
  check_key<&ops::constant, made(dtype::f32, {2, {300, 257}}, 0)>({.scalar = -2.5});
  check_key<&ops::constant, made(dtype::i32, {1, {17}}, 0)>({.scalar = 3});
  check_key<&ops::iota, made(dtype::f32, {2, {300, 257}}, 0)>({.here = interval{-40, 300}});
  check_key<&ops::iota, made(dtype::i32, {2, {300, 257}}, 1)>({.here = interval{-40, 300}, .along = 1});
  check_key<&ops::iota, made(dtype::bf16, {3, {3, 17, 5}}, 1)>({.here = interval{1000, 300}, .along = 1});
}

TEST_CASE("kernels: mask fills what is not real", "[kernels]") {
  const double inf = std::numeric_limits<double>::infinity();
  for (const bool in_place : {false, true}) {
    for (const std::int64_t real : {0, 1, 60, 100}) {
      run_options options{.scalar = -inf, .here = interval{0, real}, .in_place = in_place};
      check_key<&ops::mask, key_of(dtype::f32, {2, {100, 400}}, {2, {100, 400}}, mask_attributes{0})>(options);
      options.along = 1;
      check_key<&ops::mask, key_of(dtype::f32, {3, {17, 100, 30}}, {3, {17, 100, 30}}, mask_attributes{1})>(options);
      check_key<&ops::mask, key_of(dtype::bf16, {2, {17, 100}}, {2, {17, 100}}, mask_attributes{1})>(options);
    }
  }
}

TEST_CASE("kernels: einsum", "[kernels]") {
  check_key<&ops::einsum, einsum_key(dtype::f32, "bm", "mh", "bh", {2, {100, 40}}, {2, {40, 17}}, {2, {100, 17}})>(
      {.terms = 40});
  check_key<&ops::einsum, einsum_key(dtype::f64, "bshd", "bthd", "bhst", {4, {2, 17, 3, 8}}, {4, {2, 20, 3, 8}},
                                     {4, {2, 3, 17, 20}})>({.terms = 40});
  check_key<&ops::einsum, einsum_key(dtype::bf16, "bm", "hm", "hb", {2, {10, 40}}, {2, {17, 40}}, {2, {17, 10}})>(
      {.terms = 1000});
  check_key<&ops::einsum, einsum_key(dtype::f32, "i", "j", "ij", {1, {100}}, {1, {17}}, {2, {100, 17}})>();
  check_key<&ops::einsum, einsum_key(dtype::f32, "ij", "ij", "", {2, {100, 17}}, {2, {100, 17}}, {0, {}})>(
      {.terms = 1000});
  check_key<&ops::einsum, einsum_key(dtype::i32, "bm", "mh", "hb", {2, {100, 40}}, {2, {40, 17}}, {2, {17, 100}})>();
  check_key<&ops::einsum, einsum_key(dtype::i64, "bm", "mh", "hb", {2, {100, 40}}, {2, {40, 17}}, {2, {17, 100}})>();
  check_key<&ops::einsum, einsum_key(dtype::u32, "bm", "mh", "bh", {2, {10, 40}}, {2, {40, 17}}, {2, {10, 17}})>();
  check_key<&ops::einsum, einsum_key(dtype::f16, "bm", "hm", "hb", {2, {10, 40}}, {2, {17, 40}}, {2, {17, 10}})>(
      {.terms = 40});
}

TEST_CASE("kernels: a product is added to what is there, in its place or elsewhere", "[kernels]") {
  check_add_einsum<einsum_key(dtype::f32, "bm", "mh", "bh", {2, {100, 40}}, {2, {40, 17}}, {2, {100, 17}})>(40);
  check_add_einsum<einsum_key(dtype::f64, "bshd", "bthd", "bhst", {4, {2, 17, 3, 8}}, {4, {2, 20, 3, 8}},
                              {4, {2, 3, 17, 20}})>(40);
  // One that is put in order after the product, one of a vector, one of numbers alone.
  check_add_einsum<einsum_key(dtype::f32, "sbw", "bshd", "hwd", {3, {5, 4, 16}}, {4, {4, 5, 3, 8}}, {3, {3, 16, 8}})>(
      40);
  check_add_einsum<einsum_key(dtype::f32, "ij", "j", "i", {2, {100, 17}}, {1, {17}}, {1, {100}})>(40);
  check_add_einsum<einsum_key(dtype::f32, "ij", "ij", "", {2, {10, 17}}, {2, {10, 17}}, {0, {}})>(1000);
  check_add_einsum<einsum_key(dtype::bf16, "bm", "hm", "hb", {2, {10, 40}}, {2, {17, 40}}, {2, {17, 10}})>(1000);
  check_add_einsum<einsum_key(dtype::f16, "bm", "hm", "hb", {2, {10, 40}}, {2, {17, 40}}, {2, {17, 10}})>(40);
}
