// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// optimised: never
// together: cases

#include "gradients_check.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace {

using namespace espalier;
using namespace gradients_check;
using test::extents_of;
using test::random_integers;
using test::random_source;
using test::random_tensor;
using ids = std::vector<int>;

using unary = const op_info*;

/// Elements at least `gap` apart and in random order, so that none is near another's place in the order.
tensor_value distinct(random_source& random, const extents& shape) {
  tensor_value made = random_tensor(random, shape);
  const std::size_t n = made.data.size();
  for (std::size_t i = 0; i < n; ++i) made.data[i] = -1 + 2 * static_cast<double>(i) / static_cast<double>(n);
  for (std::size_t i = n; i > 1; --i) {
    std::swap(made.data[i - 1], made.data[static_cast<std::size_t>(random.integer(0, static_cast<int>(i) - 1))]);
  }
  return made;
}

}  // namespace

TEST_CASE("gradients of elementwise functions") {
  random_source random(1);
  struct range {
    unary op;
    double low;
    double high;
  };
  const range functions[]{
      {&ops::exp, -2, 2},      {&ops::log, 0.3, 3},       {&ops::sqrt, 0.3, 3},     {&ops::rsqrt, 0.3, 3},
      {&ops::tanh, -2, 2},     {&ops::sigmoid, -3, 3},    {&ops::silu, -3, 3},      {&ops::gelu, -3, 3},
      {&ops::relu, 0.01, 2},   {&ops::relu, -2, -0.01},   {&ops::negate, -1, 1},    {&ops::sin, -4, 4},
      {&ops::cos, -4, 4},      {&ops::tan, -1.2, 1.2},    {&ops::erf, -2, 2},       {&ops::erfc, -2, 2},
      {&ops::expm1, -2, 2},    {&ops::log1p, -0.7, 3},    {&ops::abs, 0.01, 2},     {&ops::abs, -2, -0.01},
      {&ops::sign, 0.01, 2},   {&ops::floor, 0.1, 0.9},   {&ops::ceil, -0.9, -0.1}, {&ops::trunc, 1.1, 1.9},
      {&ops::round, 1.6, 2.4}, {&ops::erf_inv, -0.8, 0.8}};
  for (const range& f : functions) {
    CAPTURE(f.op->name);
    check_gradients({random_tensor(random, extents_of({3, 4}), f.low, f.high)},
                    [&](builder& b, const ids& x) { return b.append(*f.op, b[x[0]].type, b[x[0]].shape, x[0]); });
    check_gradients({random_tensor(random, extents_of({}), f.low, f.high)},
                    [&](builder& b, const ids& x) { return b.append(*f.op, b[x[0]].type, b[x[0]].shape, x[0]); });
  }
}

TEST_CASE("relu passes nothing at zero") {
  const auto made = check_gradients({tensor_value{extents_of({2}), {3, -3}}}, [](builder& b, const ids& x) {
    return b.append(ops::relu, dtype::f64, b[x[0]].shape, x[0]);
  });
  const auto at_zero = differentiate_function({tensor_value{extents_of({1}), {0}}}, [](builder& b, const ids& x) {
    return b.append(ops::relu, dtype::f64, b[x[0]].shape, x[0]);
  });
  CHECK(made[2].data[1] == 0);
  CHECK(interpret(at_zero.code.result(), at_zero.arguments)[2].data[0] == 0);
}

TEST_CASE("no gradient of relu or of an extremum hides a NaN") {
  const double nan = std::nan("");
  const auto gradients = [](std::vector<tensor_value> x, const auto& function) {
    const auto made = differentiate_function(std::move(x), function);
    return std::pair(interpret(made.code.result(), made.arguments), made.arguments.back().data);
  };
  {
    const auto [found, weight] = gradients({tensor_value{extents_of({3}), {nan, 1, -1}}}, [](builder& b, const ids& x) {
      return b.append(ops::relu, dtype::f64, b[x[0]].shape, x[0]);
    });
    CHECK(found[2].data == std::vector<double>{weight[0], weight[1], 0});
  }
  for (const op_info* op : {&ops::maximum, &ops::minimum}) {
    CAPTURE(op->name);
    const auto [found, weight] =
        gradients({tensor_value{extents_of({3}), {nan, 1, nan}}, tensor_value{extents_of({3}), {1, nan, nan}}},
                  [&](builder& b, const ids& x) { return b.append(*op, dtype::f64, b[x[0]].shape, x[0], x[1]); });
    CHECK(found[2].data == weight);
    CHECK(found[3].data == weight);
  }
  for (const reduction kind : {reduction::max, reduction::min}) {
    CAPTURE(name_of(kind));
    const auto [found, weight] = gradients({tensor_value{extents_of({2, 2}), {nan, 1, 2, 3}}},
                                           [&](builder& b, const ids& x) { return emit::reduce(b, kind, x[0], 2); });
    const double other = kind == reduction::max ? 0 : weight[1];
    CHECK(found[2].data == std::vector<double>{weight[0] / 2, weight[0] / 2, other, weight[1] - other});
  }
}

TEST_CASE("gradients of binary arithmetic, also of one value used twice") {
  random_source random(2);
  for (const op_info* op : {&ops::add, &ops::subtract, &ops::multiply, &ops::divide}) {
    CAPTURE(op->name);
    const auto x = random_tensor(random, extents_of({2, 3}), 0.5, 2);
    const auto y = random_tensor(random, extents_of({2, 3}), 0.5, 2);
    check_gradients({x, y}, [&](builder& b, const ids& a) { return b.append(*op, dtype::f64, x.shape, a[0], a[1]); });
    check_gradients({x}, [&](builder& b, const ids& a) { return b.append(*op, dtype::f64, x.shape, a[0], a[0]); });
  }
}

TEST_CASE("gradients of maximum and minimum go to the chosen operand, of ties to the first") {
  random_source random(3);
  for (const op_info* op : {&ops::maximum, &ops::minimum}) {
    const auto all = distinct(random, extents_of({2, 12}));
    tensor_value x{extents_of({12}), {all.data.begin(), all.data.begin() + 12}};
    tensor_value y{extents_of({12}), {all.data.begin() + 12, all.data.end()}};
    const auto function = [&](builder& b, const ids& a) { return b.append(*op, dtype::f64, x.shape, a[0], a[1]); };
    check_gradients({x, y}, function);
    const auto tied = differentiate_function({x, x}, function);
    const auto results = interpret(tied.code.result(), tied.arguments);
    CHECK(results[2].data == tied.arguments[2].data);
    CHECK(results[3].data == std::vector<double>(12, 0.0));
  }
}

TEST_CASE("gradients of atan2, pow and remainder") {
  random_source random(11);
  const extents shape = extents_of({3, 4});
  const auto apply = [&](const op_info& op) {
    return [&op, shape](builder& b, const ids& a) { return b.append(op, dtype::f64, shape, a[0], a[1]); };
  };
  const tensor_value y = random_tensor(random, shape, -2, 2);
  const tensor_value ahead = random_tensor(random, shape, 0.3, 2);
  const tensor_value behind = random_tensor(random, shape, -2, -0.3);
  check_gradients({y, ahead}, apply(ops::atan2));
  check_gradients({ahead, behind}, apply(ops::atan2));
  check_gradients({ahead, y}, apply(ops::pow));
  check_gradients({ahead, ahead}, apply(ops::pow));
  // The quotients are far from whole numbers: 2.2 to 2.8, and of all signs.
  const tensor_value divisor = random_tensor(random, shape, 0.95, 1.05);
  const tensor_value divided = random_tensor(random, shape, 2.4, 2.6);
  const auto negated = [](tensor_value x) {
    for (double& one : x.data) one = -one;
    return x;
  };
  check_gradients({divided, divisor}, apply(ops::remainder));
  check_gradients({negated(divided), divisor}, apply(ops::remainder));
  check_gradients({divided, negated(divisor)}, apply(ops::remainder));
}

TEST_CASE("gradients of pow at 0, of abs at 0, and of clamp at its bounds") {
  const auto gradients = [](std::vector<tensor_value> x, const auto& function) {
    const auto made = differentiate_function(std::move(x), function);
    return std::pair(interpret(made.code.result(), made.arguments), made.arguments.back().data);
  };
  const auto power = [](builder& b, const ids& a) { return b.append(ops::pow, dtype::f64, b[a[0]].shape, a[0], a[1]); };
  {
    const auto [found, weight] = gradients(
        {tensor_value{extents_of({5}), {0, 0, 0, -2, 3}}, tensor_value{extents_of({5}), {0, 1, 2, 3, 0}}}, power);
    CHECK(found[2].data == std::vector<double>{0, weight[1], 0, 12 * weight[3], 0});
    CHECK(found[3].data[0] == 0);
    CHECK(found[3].data[1] == 0);
    CHECK(found[3].data[2] == 0);
    CHECK(std::isnan(found[3].data[3]));
    CHECK(found[3].data[4] == weight[4] * std::log(3.0));
  }
  {
    const auto [found, weight] = gradients({tensor_value{extents_of({3}), {0, -2, 2}}}, [](builder& b, const ids& a) {
      return b.append(ops::abs, dtype::f64, b[a[0]].shape, a[0]);
    });
    CHECK(found[2].data == std::vector<double>{0, -weight[1], weight[2]});
  }
  // Inside, at both bounds, outside of each, and with the bounds the wrong way round.
  const tensor_value low{extents_of({7}), {-1, -1, -1, -1, -1, 2, 2}};
  const tensor_value x{extents_of({7}), {0, -1, 1, -3, 3, 0, 5}};
  const tensor_value high{extents_of({7}), {1, 1, 1, 1, 1, 1, 1}};
  const auto clamp = [](builder& b, const ids& a) {
    return b.append(ops::clamp, dtype::f64, b[a[0]].shape, a[0], a[1], a[2]);
  };
  const auto [found, weight] = gradients({low, x, high}, clamp);
  CHECK(found[2].data == std::vector<double>{0, 0, 0, weight[3], 0, 0, 0});
  CHECK(found[3].data == std::vector<double>{weight[0], weight[1], weight[2], 0, 0, 0, 0});
  CHECK(found[4].data == std::vector<double>{0, 0, 0, 0, weight[4], weight[5], weight[6]});
  const double nan = std::nan("");
  const auto [hidden, scale] =
      gradients({tensor_value{extents_of({3}), {nan, 0, 0}}, tensor_value{extents_of({3}), {1, nan, 1}},
                 tensor_value{extents_of({3}), {2, 2, nan}}},
                clamp);
  CHECK(hidden[2].data[0] == scale[0]);
  CHECK(hidden[3].data[1] == scale[1]);
  CHECK(hidden[4].data[2] == scale[2]);
  random_source random(12);
  check_gradients({random_tensor(random, extents_of({20}), -0.6, -0.4), random_tensor(random, extents_of({20}), -1, 1),
                   random_tensor(random, extents_of({20}), 0.4, 0.6)},
                  clamp);
}

TEST_CASE("gradients of select and of what a comparison reads") {
  random_source random(4);
  const extents shape = extents_of({4, 3});
  check_gradients({distinct(random, shape), random_tensor(random, shape), random_tensor(random, shape)},
                  [&](builder& b, const ids& a) {
                    const int threshold = emit::constant(b, dtype::f64, shape, 0.04);
                    const int above = emit::compare(b, ops::less, threshold, a[0]);
                    const int also = b.append(ops::logical_not, dtype::boolean, shape, above);
                    const int either = b.append(ops::logical_or, dtype::boolean, shape, above, also);
                    const int both = b.append(ops::logical_and, dtype::boolean, shape, above, either);
                    return emit::multiply(b, emit::select(b, both, a[1], a[2]), emit::keep_where(b, above, a[0]));
                  });
}

TEST_CASE("gradients of reductions over every set of dimensions") {
  random_source random(5);
  for (const reduction kind : {reduction::sum, reduction::prod, reduction::max, reduction::min}) {
    for (std::int64_t dims = 1; dims < 8; ++dims) {
      CAPTURE(name_of(kind), dims);
      check_gradients({distinct(random, extents_of({2, 3, 2}))},
                      [&](builder& b, const ids& a) { return emit::reduce(b, kind, a[0], dims); });
    }
  }
}

TEST_CASE("a product's gradient is exact with no, one and two zeros") {
  const auto gradient_of = [](std::vector<double> x) {
    const auto made =
        differentiate_function({tensor_value{extents_of({1, 4}), std::move(x)}},
                               [](builder& b, const ids& a) { return emit::reduce(b, reduction::prod, a[0], 2); });
    auto results = run_all_forms(made.code.result(), made.arguments);
    for (double& g : results[2].data) g /= made.arguments[1].data[0];
    return results[2].data;
  };
  const auto none = gradient_of({2, 3, 5, 7});
  const double expected[]{105, 70, 42, 30};
  for (std::size_t i = 0; i < 4; ++i) CHECK(none[i] == Approx(expected[i]));
  const auto one = gradient_of({2, 0, 5, 7});
  CHECK(one[0] == 0);
  CHECK(one[1] == Approx(70));
  CHECK(one[2] == 0);
  CHECK(gradient_of({2, 0, 0, 7}) == std::vector<double>(4, 0.0));
  check_gradients({tensor_value{extents_of({2, 3}), {2, 0, 3, 0, 1, 0}}},
                  [](builder& b, const ids& a) { return emit::reduce(b, reduction::prod, a[0], 2); });
}

TEST_CASE("an extremum's gradient is shared by all that equal it") {
  for (const reduction kind : {reduction::max, reduction::min}) {
    const auto made = differentiate_function({tensor_value{extents_of({4}), {5, 5, 5, 5}}},
                                             [&](builder& b, const ids& a) { return emit::reduce(b, kind, a[0], 1); });
    const auto results = run_all_forms(made.code.result(), made.arguments);
    for (const double g : results[2].data) CHECK(g == Approx(made.arguments[1].data[0] / 4));
  }
}

TEST_CASE("gradients of broadcasts: new dimensions, dimensions of size 1, scalars") {
  random_source random(6);
  const auto to = [&](std::initializer_list<std::int64_t> from, std::initializer_list<std::int64_t> shape) {
    check_gradients({random_tensor(random, extents_of(from))},
                    [&](builder& b, const ids& a) { return emit::broadcast_to(b, a[0], extents_of(shape)); });
  };
  to({}, {2, 3});
  to({3}, {2, 3});
  to({1}, {4});
  to({2, 1, 3}, {2, 4, 3});
  to({1, 1}, {5, 2, 3});
  to({2, 1}, {3, 2, 1});
  to({2, 3}, {2, 3});
  check_gradients({random_tensor(random, extents_of({2, 3}))}, [](builder& b, const ids& a) {
    return emit::broadcast_along(b, a[0], extents_of({2, 4, 3}), 2);
  });
}

TEST_CASE("gradients of reshapes and transpositions") {
  random_source random(7);
  const auto x = random_tensor(random, extents_of({2, 3, 4}));
  for (const extents& shape : {extents_of({6, 4}), extents_of({24}), extents_of({4, 3, 2}), extents_of({1, 8, 3})}) {
    check_gradients({x}, [&](builder& b, const ids& a) { return emit::reshape(b, a[0], shape); });
  }
  std::vector<int> order{0, 1, 2};
  do {
    check_gradients({x}, [&](builder& b, const ids& a) {
      return emit::transpose(b, a[0], axis_list(order[0]).with(order[1]).with(order[2]));
    });
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("gradients of slices and paddings with steps") {
  random_source random(8);
  for (int dim = 0; dim < 3; ++dim) {
    for (int step = 1; step <= 3; ++step) {
      for (int start = 0; start <= 2; ++start) {
        CAPTURE(dim, step, start);
        const auto x = random_tensor(random, extents_of({7, 7, 7}));
        const std::int64_t size = (7 - start - 1) / step + 1;
        check_gradients({random_tensor(random, dim == 0   ? extents_of({7, 2})
                                               : dim == 1 ? extents_of({2, 7, 3})
                                                          : extents_of({2, 1, 7}))},
                        [&](builder& b, const ids& a) { return emit::slice(b, a[0], dim, start, size, step); });
        extents small = dim == 0 ? extents_of({3, 2}) : dim == 1 ? extents_of({2, 3, 2}) : extents_of({2, 1, 3});
        check_gradients({random_tensor(random, small)}, [&](builder& b, const ids& a) {
          return emit::pad(b, a[0], dim, start, start + 2 * step + 1 + (step == 2 ? 1 : 0), step);
        });
      }
    }
  }
}

TEST_CASE("gradients of joining two to nine parts") {
  random_source random(9);
  for (int parts = 2; parts <= 9; ++parts) {
    for (int dim = 0; dim < 2; ++dim) {
      CAPTURE(parts, dim);
      std::vector<tensor_value> data;
      for (int k = 0; k < parts; ++k) {
        const std::int64_t size = 1 + k % 3;
        data.push_back(random_tensor(random, dim == 0 ? extents_of({size, 2}) : extents_of({2, size})));
      }
      const auto results =
          check_gradients(data, [&](builder& b, const ids& a) { return emit::concat(b, a.data(), parts, dim); });
      std::vector<double> expected;
      for (int row = 0; row < (dim == 0 ? 1 : 2); ++row) {
        for (const tensor_value& part : data) {
          const std::size_t run = dim == 0 ? part.data.size() : part.data.size() / 2;
          const auto from = part.data.begin() + static_cast<std::ptrdiff_t>(run) * row;
          expected.insert(expected.end(), from, from + static_cast<std::ptrdiff_t>(run));
        }
      }
      CHECK(results[1].data == expected);
    }
  }
}

TEST_CASE("gradients of sums, products, extrema and recurrences along a dimension") {
  random_source random(12);
  const std::vector<tensor_value> data{random_tensor(random, extents_of({3, 5, 2})),
                                       random_tensor(random, extents_of({3, 5, 2}))};
  for (int dim = 0; dim < 3; ++dim) {
    for (const bool reverse : {false, true}) {
      for (const bool exclusive : {false, true}) {
        CAPTURE(dim, reverse, exclusive);
        for (const cumulation kind : {cumulation::sum, cumulation::prod, cumulation::max, cumulation::min}) {
          // (The first of what is carried of an extremum is infinite.)
          if (exclusive && kind >= cumulation::max) continue;
          check_gradients({data[0]}, [&](builder& b, const ids& a) {
            return emit::cumulate(b, a[0], {dim, kind, reverse, exclusive});
          });
        }
        check_gradients(data, [&](builder& b, const ids& a) {
          return emit::recurrence(b, a[0], a[1], {dim, cumulation::recurrence, reverse, exclusive});
        });
        if (exclusive) continue;
        check_gradients(data, [&](builder& b, const ids& a) {
          return emit::recurrence(b, a[0], a[1], {dim, cumulation::late_recurrence, reverse, exclusive});
        });
      }
    }
  }
}

TEST_CASE("gradients of lookups and of adding into rows, with repeated and missing indices") {
  random_source random(10);
  for (int dim = 0; dim < 3; ++dim) {
    CAPTURE(dim);
    const auto table = random_tensor(random, extents_of({4, 3, 4}));
    tensor_value rows = random_integers(random, extents_of({2, 3}), 0, 2);
    rows.data[0] = 1;
    rows.data[1] = 1;
    rows.data[2] = 9;
    rows.data[3] = -1;
    check_gradients({table, rows}, [&](builder& b, const ids& a) { return emit::gather(b, a[0], a[1], dim); },
                    {dtype::f64, dtype::i32});
    const auto updates = random_tensor(random, detail::gathered_shape(table.shape, rows.shape, dim));
    check_gradients({rows, updates},
                    [&](builder& b, const ids& a) { return emit::scatter_add(b, table.shape, a[0], a[1], dim); },
                    {dtype::i32, dtype::f64});
  }
}

namespace {

template <class Formula> void check_einsum(random_source& random, Formula formula) {
  const detail::einsum_formula& f = formula;
  std::vector<tensor_value> data;
  for (int k = 0; k < f.operands; ++k) {
    extents shape;
    for (int d = 0; d < f.operand[k].size(); ++d) shape.append(2 + (f.operand[k][d] - 'a') % 3);
    data.push_back(random_tensor(random, shape));
  }
  check_gradients(data, [&](builder& b, const ids& a) { return detail::emit_einsum(b, f, a.data()); });
}

}  // namespace

TEST_CASE("gradients of einsums") {
  random_source random(11);
  check_einsum(random, detail::formula_of<"bm,mh->bh">);
  check_einsum(random, detail::formula_of<"mb,hm->hb">);
  check_einsum(random, detail::formula_of<"abc,acd->abd">);
  check_einsum(random, detail::formula_of<"abc,cda->dba">);
  check_einsum(random, detail::formula_of<"a,b->ab">);
  check_einsum(random, detail::formula_of<"a,b->ba">);
  check_einsum(random, detail::formula_of<"a,a->">);
  check_einsum(random, detail::formula_of<"ab,ab->ab">);
  check_einsum(random, detail::formula_of<"ab,ba->ab">);
  check_einsum(random, detail::formula_of<"ab,c->c">);
  check_einsum(random, detail::formula_of<"abc,bd->ad">);
  check_einsum(random, detail::formula_of<"abc,def->be">);
  check_einsum(random, detail::formula_of<"ab,bc->">);
  check_einsum(random, detail::formula_of<",ab->ba">);
  check_einsum(random, detail::formula_of<"ab,->a">);
  check_einsum(random, detail::formula_of<"abc->ca">);
  check_einsum(random, detail::formula_of<"abc->b">);
  check_einsum(random, detail::formula_of<"aa->a">);
  check_einsum(random, detail::formula_of<"aba->">);
  check_einsum(random, detail::formula_of<"abb,bcc->ac">);
  check_einsum(random, detail::formula_of<"ab,bc,cd,d->a">);
  check_einsum(random, detail::formula_of<"abc->cab">);
  check_einsum(random, detail::formula_of<"ab->">);
  check_einsum(random, detail::formula_of<"ab->ab">);
  check_einsum(random, detail::formula_of<"ab,bc,cd->ad">);
  check_einsum(random, detail::formula_of<"abx,bcy,cda->xyd">);
  check_einsum(random, detail::formula_of<"a,a,a->a">);
  check_einsum(random, detail::formula_of<"ab,bc,cd,de->ea">);
  check_einsum(random, detail::formula_of<"ab,cd,ef,ac->">);
}

TEST_CASE("gradients of a product that is added to something") {
  random_source random(13);
  check_gradients({random_tensor(random, extents_of({3, 2})), random_tensor(random, extents_of({2, 4})),
                   random_tensor(random, extents_of({4, 3}))},
                  [](builder& b, const ids& a) {
                    return emit::add_to(
                        b, a[2],
                        detail::emit_einsum(b, detail::formula_of<"ab,bc->ca">, std::vector<int>{a[0], a[1]}.data()));
                  });
}

TEST_CASE("an operand that an einsum multiplies with itself") {
  random_source random(12);
  check_gradients({random_tensor(random, extents_of({3, 3}))}, [](builder& b, const ids& a) {
    return detail::emit_einsum(b, detail::formula_of<"ab,bc->ac">, std::vector<int>{a[0], a[0]}.data());
  });
}

TEST_CASE("gradients of softmax and log_softmax along every dimension") {
  random_source random(13);
  for (std::int64_t dims = 1; dims < 8; ++dims) {
    CAPTURE(dims);
    const auto x = random_tensor(random, extents_of({2, 3, 4}), -3, 3);
    check_gradients({x}, [&](builder& b, const ids& a) { return emit::softmax(b, a[0], dims); });
    check_gradients({x}, [&](builder& b, const ids& a) { return emit::log_softmax(b, a[0], dims); });
  }
}

TEST_CASE("a conversion's gradient is converted back, and ends at integers") {
  random_source random(14);
  const auto x = random_tensor(random, extents_of({2, 3}), -3, 3);
  const auto made = differentiate_function(
      {x}, [](builder& b, const ids& a) { return emit::convert(b, emit::convert(b, a[0], dtype::bf16), dtype::f64); });
  const auto results = run_all_forms(made.code.result(), made.arguments);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(results[2].data[i] == detail::stored_as(dtype::bf16, made.arguments[1].data[i]));
  }
  const auto cut = differentiate_function(
      {x}, [](builder& b, const ids& a) { return emit::convert(b, emit::convert(b, a[0], dtype::i32), dtype::f64); });
  CHECK(run_all_forms(cut.code.result(), cut.arguments)[2].data == std::vector<double>(6, 0.0));
}

TEST_CASE("annotations, reshards, matches and copies pass gradients; stop_gradient does not") {
  random_source random(15);
  const auto x = random_tensor(random, extents_of({2, 3}));
  check_gradients({x}, [](builder& b, const ids& a) {
    const int note = b.annotate(b[a[0]].shape, sharding::whole(2));
    const int sharded = emit::annotated(b, ops::shard, a[0], note);
    const int resharded = emit::annotated(b, ops::reshard, sharded, note);
    const int matched = emit::match(b, emit::multiply(b, resharded, a[0]), sharded);
    return b.append(ops::copy, dtype::f64, b[a[0]].shape, matched);
  });
  const auto stopped = differentiate_function({x}, [](builder& b, const ids& a) {
    return emit::multiply(b, a[0], b.append(ops::stop_gradient, dtype::f64, b[a[0]].shape, a[0]));
  });
  const auto results = run_all_forms(stopped.code.result(), stopped.arguments);
  for (std::size_t i = 0; i < 6; ++i) CHECK(results[2].data[i] == x.data[i] * stopped.arguments[1].data[i]);
}

TEST_CASE("an op without a gradient rule is named, but only when it is in the way") {
  const tensor_value x{extents_of({2}), {1, 2}};
  const auto made = differentiate_function(
      {x}, [](builder& b, const ids& a) { return b.append(ops::silu_slope, dtype::f64, b[a[0]].shape, a[0]); });
  REQUIRE(made.without_gradient >= 0);
  CHECK(std::string(made.code[made.without_gradient].op->name) == "silu_slope");
  const auto aside = differentiate_function({x}, [](builder& b, const ids& a) {
    const int constant = emit::constant_like(b, a[0], 2);
    return emit::add(b, a[0], b.append(ops::silu_slope, dtype::f64, b[a[0]].shape, constant));
  });
  CHECK(aside.without_gradient == -1);
}

TEST_CASE("a loss that does not depend on an argument has gradient zero") {
  const tensor_value x{extents_of({2}), {1, 2}};
  const auto results = check_gradients({x, x}, [](builder&, const ids& a) { return a[0]; });
  CHECK(results[3].data == std::vector<double>(2, 0.0));
}

TEST_CASE("second derivatives") {
  random_source random(16);
  const auto x = random_tensor(random, extents_of({3, 3}), 0.5, 1.5);
  check_gradients({x}, [](builder& b, const ids& a) {
    const int y = emit::softmax(
        b, detail::emit_einsum(b, detail::formula_of<"ab,bc->ac">, std::vector<int>{a[0], a[0]}.data()), 2);
    const int z = emit::multiply(b, y, b.append(ops::exp, dtype::f64, b[y].shape, a[0]));
    const int inner = emit::reduce_sum(b, emit::divide(b, z, a[0]), 3);
    int gradient = -1;
    differentiate(b, inner, a.data(), 1, &gradient);
    return gradient;
  });
}
