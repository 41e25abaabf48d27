// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// processors: 1

#include "gradients_check.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

/// Checks the results of each op against a plain computation written here from the op's description.
namespace {

using namespace espalier;
using namespace gradients_check;
using test::extents_of;
using test::random_integers;
using test::random_source;
using test::random_tensor;
using ids = std::vector<int>;
using coordinates = std::vector<std::int64_t>;

/// Every index of a shape in row-major order.
std::vector<coordinates> indices_of(const extents& shape) {
  std::vector<coordinates> all{{}};
  for (int d = 0; d < shape.rank; ++d) {
    std::vector<coordinates> longer;
    for (const coordinates& i : all) {
      for (std::int64_t k = 0; k < shape[d]; ++k) {
        longer.push_back(i);
        longer.back().push_back(k);
      }
    }
    all = longer;
  }
  return all;
}

double at(const tensor_value& t, const coordinates& i) {
  std::int64_t offset = 0;
  for (int d = 0; d < t.shape.rank; ++d) offset = offset * t.shape[d] + i[static_cast<std::size_t>(d)];
  return t.data[static_cast<std::size_t>(offset)];
}

/// A tensor from a function of its index.
template <class F> tensor_value filled(const extents& shape, F f) {
  tensor_value made{shape, {}};
  for (const coordinates& i : indices_of(shape)) made.data.push_back(f(i));
  return made;
}

/// Runs `function(builder, ids)` on data of these types.
template <class Function>
tensor_value run(const std::vector<tensor_value>& data, Function function, const std::vector<dtype>& types = {}) {
  builder b;
  ids a;
  for (std::size_t i = 0; i < data.size(); ++i) {
    a.push_back(emit::argument(b, i < types.size() ? types[i] : dtype::f64, data[i].shape, static_cast<int>(i)));
  }
  emit::result(b, function(b, a), 0);
  return run_all_forms(b.result(), data)[0];
}

void require_equal(const tensor_value& one, const tensor_value& other) {
  REQUIRE(one.shape == other.shape);
  for (std::size_t i = 0; i < one.data.size(); ++i) {
    CAPTURE(i);
    const bool both_nan = std::isnan(one.data[i]) && std::isnan(other.data[i]);
    REQUIRE((both_nan || one.data[i] == other.data[i]));
  }
}

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("elementwise functions of one tensor") {
  random_source random(1);
  struct row {
    const op_info* op;
    double (*expected)(double);
    double low;
    double high;
  };
  const row rows[]{
      {&ops::exp, [](double x) { return std::exp(x); }, -3, 3},
      {&ops::log, [](double x) { return std::log(x); }, 0.1, 3},
      {&ops::sqrt, [](double x) { return std::sqrt(x); }, 0, 3},
      {&ops::rsqrt, [](double x) { return std::pow(x, -0.5); }, 0.1, 3},
      {&ops::tanh, [](double x) { return (std::exp(2 * x) - 1) / (std::exp(2 * x) + 1); }, -3, 3},
      {&ops::sigmoid, [](double x) { return 0.5 + 0.5 * std::tanh(x / 2); }, -3, 3},
      {&ops::relu, [](double x) { return std::max(x, 0.0); }, -1, 1},
      {&ops::silu, [](double x) { return x * (0.5 + 0.5 * std::tanh(x / 2)); }, -3, 3},
      // GPT-2's own spelling: x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)).
      {&ops::gelu,
       [](double x) { return x / (1 + std::exp(-2 * std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x))); },
       -3, 3},
      {&ops::negate, [](double x) { return 0 - x; }, -1, 1},
      {&ops::sin, [](double x) { return 2 * std::sin(x / 2) * std::cos(x / 2); }, -4, 4},
      {&ops::cos, [](double x) { return 1 - 2 * std::sin(x / 2) * std::sin(x / 2); }, -4, 4},
      {&ops::tan, [](double x) { return std::sin(2 * x) / (1 + std::cos(2 * x)); }, -1.2, 1.2},
      {&ops::erf, [](double x) { return 1 - std::erfc(x); }, -2, 2},
      {&ops::erfc, [](double x) { return 2 - std::erfc(-x); }, -2, 2},
      {&ops::expm1, [](double x) { return std::exp(x) - 1; }, -2, 2},
      {&ops::log1p, [](double x) { return std::log(1 + x); }, -0.7, 3},
      {&ops::abs, [](double x) { return std::sqrt(x * x); }, -3, 3},
      {&ops::sign, [](double x) { return x / std::sqrt(x * x); }, -3, 3},
      {&ops::is_finite, [](double) { return 1.0; }, -3, 3},
      {&ops::floor, [](double x) { return static_cast<double>(static_cast<int>(x + 8)) - 8; }, -3, 3},
      {&ops::ceil, [](double x) { return 8 - static_cast<double>(static_cast<int>(8 - x)); }, -3, 3},
      {&ops::trunc, [](double x) { return static_cast<double>(static_cast<int>(x)); }, -3, 3},
      {&ops::round, [](double x) { return static_cast<double>(std::lround(x)); }, -3, 3},
      {&ops::shard, [](double x) { return x; }, -1, 1},
      {&ops::reshard, [](double x) { return x; }, -1, 1},
      {&ops::stop_gradient, [](double x) { return x; }, -1, 1},
      {&ops::copy, [](double x) { return x; }, -1, 1},
      {&ops::logical_not, [](double x) { return x == 0 ? 1.0 : 0.0; }, -1, 1},
  };
  for (const row& r : rows) {
    CAPTURE(r.op->name);
    const tensor_value x = random_tensor(random, extents_of({3, 5}), r.low, r.high);
    require_close(run({x}, [&](builder& b, const ids& a) { return b.append(*r.op, dtype::f64, x.shape, a[0]); }),
                  filled(x.shape, [&](const coordinates& i) { return r.expected(at(x, i)); }), 1e-12);
  }
  for (const op_info* op :
       {&ops::exp,   &ops::log,  &ops::sqrt,       &ops::rsqrt,      &ops::tanh,   &ops::sigmoid, &ops::relu,
        &ops::silu,  &ops::gelu, &ops::silu_slope, &ops::gelu_slope, &ops::negate, &ops::sin,     &ops::cos,
        &ops::tan,   &ops::erf,  &ops::erfc,       &ops::expm1,      &ops::log1p,  &ops::abs,     &ops::sign,
        &ops::floor, &ops::ceil, &ops::trunc,      &ops::round,      &ops::erf_inv}) {
    CAPTURE(op->name);
    const tensor_value nan{extents_of({1}), {not_a_number}};
    CHECK(std::isnan(
        run({nan}, [&](builder& b, const ids& a) { return b.append(*op, dtype::f64, nan.shape, a[0]); }).data[0]));
  }
  // An inverse, also where erf is flat.
  const auto inverse = [&](double x) {
    const auto append = [](builder& b, const ids& a) { return b.append(ops::erf_inv, dtype::f64, {}, a[0]); };
    return run({tensor_value{{}, {x}}}, append).data[0];
  };
  for (const double x : {-2.5, -0.7, -0.3, -1e-9, 1e-300, 0.01, 0.47, 0.48, 1.0, 2.0}) {
    CAPTURE(x);
    CHECK(inverse(std::erf(x)) == Approx(x).epsilon(1e-12));
  }
  CHECK(std::erfc(inverse(1 - 0x1p-53)) == Approx(0x1p-53).epsilon(1e-13));
  CHECK(inverse(1) == std::numeric_limits<double>::infinity());
  CHECK(inverse(-1) == -std::numeric_limits<double>::infinity());
  CHECK(std::isnan(inverse(1.0 + 1e-15)));
  // Slopes are derivatives.
  const double h = 1e-5;
  for (const auto& [op, slope] : {std::pair{&ops::silu, &ops::silu_slope}, std::pair{&ops::gelu, &ops::gelu_slope}}) {
    const tensor_value x = random_tensor(random, extents_of({9}), -3, 3);
    const auto value = [&](const op_info& f, double shift) {
      tensor_value moved = x;
      for (double& v : moved.data) v += shift;
      return run({moved}, [&](builder& b, const ids& a) { return b.append(f, dtype::f64, x.shape, a[0]); });
    };
    const tensor_value above = value(*op, h);
    const tensor_value below = value(*op, -h);
    require_close(value(*slope, 0),
                  filled(x.shape, [&](const coordinates& i) { return (at(above, i) - at(below, i)) / (2 * h); }), 1e-8);
  }
}

TEST_CASE("elementwise functions of two tensors") {
  struct row {
    const op_info* op;
    std::function<double(double, double)> expected;
  };
  const row rows[]{
      {&ops::add, [](double x, double y) { return y + x; }},
      {&ops::subtract, [](double x, double y) { return -(y - x); }},
      {&ops::multiply, [](double x, double y) { return y * x; }},
      {&ops::divide, [](double x, double y) { return x / y; }},
      {&ops::less, [](double x, double y) { return y > x ? 1.0 : 0.0; }},
      {&ops::less_equal, [](double x, double y) { return y >= x ? 1.0 : 0.0; }},
      {&ops::equal, [](double x, double y) { return x == y ? 1.0 : 0.0; }},
      {&ops::not_equal, [](double x, double y) { return x == y ? 0.0 : 1.0; }},
      {&ops::logical_and, [](double x, double y) { return x * y != 0 ? 1.0 : 0.0; }},
      {&ops::logical_or, [](double x, double y) { return x != 0   ? 1.0
                                                         : y != 0 ? 1.0
                                                                  : 0.0; }},
      // NumPy's: a NaN wins on either side.
      {&ops::maximum, [](double x, double y) { return std::isnan(x)   ? x
                                                      : std::isnan(y) ? y
                                                                      : std::fmax(x, y); }},
      {&ops::minimum, [](double x, double y) { return std::isnan(x)   ? x
                                                      : std::isnan(y) ? y
                                                                      : std::fmin(x, y); }},
  };
  const double values[]{-2, -1, 0, 0.5, 1, 3, infinity};
  for (const row& r : rows) {
    CAPTURE(r.op->name);
    const bool logical = r.op == &ops::logical_and || r.op == &ops::logical_or;
    tensor_value x{extents_of({7, 7}), {}};
    tensor_value y{extents_of({7, 7}), {}};
    for (const double p : values) {
      for (const double q : values) {
        x.data.push_back(logical && std::isinf(p) ? 1 : p);
        y.data.push_back(logical && std::isinf(q) ? 1 : q);
      }
    }
    require_equal(
        run({x, y}, [&](builder& b, const ids& a) { return b.append(*r.op, dtype::f64, x.shape, a[0], a[1]); }),
        filled(x.shape, [&](const coordinates& i) { return r.expected(at(x, i), at(y, i)); }));
  }
  const tensor_value x{extents_of({3}), {not_a_number, 1, not_a_number}};
  const tensor_value y{extents_of({3}), {1, not_a_number, not_a_number}};
  for (const op_info* op : {&ops::maximum, &ops::minimum}) {
    CAPTURE(op->name);
    const auto made =
        run({x, y}, [&](builder& b, const ids& a) { return b.append(*op, dtype::f64, x.shape, a[0], a[1]); });
    for (const double v : made.data) CHECK(std::isnan(v));
  }
}

TEST_CASE("select, constant and iota") {
  random_source random(2);
  const tensor_value condition = random_integers(random, extents_of({4, 3}), 0, 1);
  const tensor_value yes = random_tensor(random, condition.shape);
  const tensor_value no = random_tensor(random, condition.shape);
  require_equal(
      run({condition, yes, no}, [](builder& b, const ids& a) { return emit::select(b, a[0], a[1], a[2]); },
          {dtype::boolean}),
      filled(condition.shape, [&](const coordinates& i) { return at(condition, i) == 1 ? at(yes, i) : at(no, i); }));
  require_equal(run({},
                    [](builder& b, const ids&) {
                      return emit::constant(b, dtype::f32, extents_of({2, 2}), 2.5);
                    }),
                tensor_value{extents_of({2, 2}), {2.5, 2.5, 2.5, 2.5}});
  require_equal(run({}, [](builder& b, const ids&) { return emit::constant(b, dtype::f32, extents_of({}), -1); }),
                tensor_value{extents_of({}), {-1}});
  for (int dim = 0; dim < 3; ++dim) {
    const extents shape = extents_of({2, 3, 4});
    require_equal(
        run({}, [&](builder& b, const ids&) { return emit::iota(b, dtype::i32, shape, dim); }),
        filled(shape, [&](const coordinates& i) { return static_cast<double>(i[static_cast<std::size_t>(dim)]); }));
  }
}

TEST_CASE("reductions over every set of dimensions") {
  random_source random(3);
  const tensor_value x = random_tensor(random, extents_of({2, 3, 4}));
  struct row {
    reduction kind;
    double start;
    std::function<double(double, double)> combine;
  };
  const row rows[]{{reduction::sum, 0, [](double a, double b) { return b + a; }},
                   {reduction::prod, 1, [](double a, double b) { return b * a; }},
                   {reduction::max, -DBL_MAX, [](double a, double b) { return std::max(a, b); }},
                   {reduction::min, DBL_MAX, [](double a, double b) { return std::min(a, b); }}};
  for (const row& r : rows) {
    for (std::int64_t dims = 0; dims < 8; ++dims) {
      CAPTURE(name_of(r.kind), dims);
      extents shape;
      for (int d = 0; d < 3; ++d) {
        if ((dims >> d & 1) == 0) shape.append(x.shape[d]);
      }
      const tensor_value expected = filled(shape, [&](const coordinates& to) {
        double total = r.start;
        for (const coordinates& from : indices_of(x.shape)) {
          coordinates kept;
          for (int d = 0; d < 3; ++d) {
            if ((dims >> d & 1) == 0) kept.push_back(from[static_cast<std::size_t>(d)]);
          }
          if (kept == to) total = r.combine(total, at(x, from));
        }
        return total;
      });
      require_equal(run({x}, [&](builder& b, const ids& a) { return emit::reduce(b, r.kind, a[0], dims); }), expected);
    }
  }
  const tensor_value holes{extents_of({3}), {1, not_a_number, 2}};
  for (const reduction kind : {reduction::sum, reduction::prod, reduction::max, reduction::min}) {
    CHECK(std::isnan(run({holes}, [&](builder& b, const ids& a) { return emit::reduce(b, kind, a[0], 1); }).data[0]));
  }
}

TEST_CASE("broadcasts follow NumPy's rule, or repeat along the named dimensions") {
  random_source random(4);
  for (const auto& [from, to] :
       {std::pair{extents_of({}), extents_of({2, 3})}, std::pair{extents_of({3}), extents_of({2, 3})},
        std::pair{extents_of({2, 1, 3}), extents_of({4, 2, 5, 3})}, std::pair{extents_of({1, 1}), extents_of({3, 2})},
        std::pair{extents_of({2, 3}), extents_of({2, 3})}}) {
    const tensor_value x = random_tensor(random, from);
    const int added = to.rank - from.rank;
    const extents source = from;
    require_equal(run({x}, [&shape = to](builder& b, const ids& a) { return emit::broadcast_to(b, a[0], shape); }),
                  filled(to, [&](const coordinates& i) {
                    coordinates j;
                    for (int d = 0; d < source.rank; ++d) {
                      j.push_back(source[d] == 1 ? 0 : i[static_cast<std::size_t>(d + added)]);
                    }
                    return at(x, j);
                  }));
  }
  const tensor_value x = random_tensor(random, extents_of({2, 3}));
  require_equal(run({x},
                    [](builder& b, const ids& a) {
                      return emit::broadcast_along(b, a[0], extents_of({2, 4, 3, 2}), 10);
                    }),
                filled(extents_of({2, 4, 3, 2}), [&](const coordinates& i) {
                  return at(x, {i[0], i[2]});
                }));
}

TEST_CASE("reshape keeps row-major order; transpose permutes") {
  random_source random(5);
  const tensor_value x = random_tensor(random, extents_of({2, 3, 4}));
  for (const extents& shape : {extents_of({24}), extents_of({4, 3, 2}), extents_of({1, 6, 4})}) {
    require_equal(run({x}, [&](builder& b, const ids& a) { return emit::reshape(b, a[0], shape); }),
                  tensor_value{shape, x.data});
  }
  std::vector<int> order{0, 1, 2};
  do {
    const auto o = [&](int d) { return order[static_cast<std::size_t>(d)]; };
    const extents shape = extents_of({x.shape[o(0)], x.shape[o(1)], x.shape[o(2)]});
    require_equal(
        run({x},
            [&](builder& b, const ids& a) { return emit::transpose(b, a[0], axis_list(o(0)).with(o(1)).with(o(2))); }),
        filled(shape, [&](const coordinates& i) {
          coordinates j(3);
          for (int d = 0; d < 3; ++d) j[static_cast<std::size_t>(o(d))] = i[static_cast<std::size_t>(d)];
          return at(x, j);
        }));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("slices and paddings") {
  random_source random(6);
  const tensor_value x = random_tensor(random, extents_of({5, 6, 7}));
  for (int dim = 0; dim < 3; ++dim) {
    const auto d = static_cast<std::size_t>(dim);
    for (int start = 0; start < 4; ++start) {
      for (int step = 1; step < 4; ++step) {
        CAPTURE(dim, start, step);
        const std::int64_t size = (x.shape[dim] - start + step - 1) / step;
        extents shape = x.shape;
        shape[dim] = size;
        require_equal(run({x}, [&](builder& b, const ids& a) { return emit::slice(b, a[0], dim, start, size, step); }),
                      filled(shape, [&](coordinates i) {
                        i[d] = start + step * i[d];
                        return at(x, i);
                      }));
        extents wide = x.shape;
        wide[dim] = start + step * (x.shape[dim] - 1) + 3;
        require_equal(
            run({x}, [&](builder& b, const ids& a) { return emit::pad(b, a[0], dim, start, wide[dim], step); }),
            filled(wide, [&](coordinates i) {
              const std::int64_t from = i[d] - start;
              if (from < 0 || from % step != 0 || from / step >= x.shape[dim]) return 0.0;
              i[d] = from / step;
              return at(x, i);
            }));
      }
    }
  }
}

TEST_CASE("joining two to nine parts") {
  random_source random(7);
  for (int dim = 0; dim < 3; ++dim) {
    const auto d = static_cast<std::size_t>(dim);
    for (int count = 2; count <= 9; ++count) {
      CAPTURE(dim, count);
      std::vector<tensor_value> parts;
      std::vector<std::int64_t> start{0};
      extents shape = extents_of({2, 3, 2});
      for (int k = 0; k < count; ++k) {
        shape[dim] = 1 + (k * 5 + dim) % 3;
        start.push_back(start.back() + shape[dim]);
        parts.push_back(random_tensor(random, shape));
      }
      shape[dim] = start.back();
      require_equal(run(parts, [&](builder& b, const ids& a) { return emit::concat(b, a.data(), count, dim); }),
                    filled(shape, [&](coordinates i) {
                      std::size_t part = 0;
                      while (start[part + 1] <= i[d]) ++part;
                      i[d] -= start[part];
                      return at(parts[part], i);
                    }));
    }
  }
}

TEST_CASE("gather looks rows up, zeros outside; scatter_add adds into them") {
  random_source random(8);
  const tensor_value table = random_tensor(random, extents_of({3, 4, 5}));
  const tensor_value rows = random_integers(random, extents_of({2, 6}), -1, 5);
  for (int dim = 0; dim < 3; ++dim) {
    CAPTURE(dim);
    const auto d = static_cast<std::ptrdiff_t>(dim);
    const extents shape = detail::gathered_shape(table.shape, rows.shape, dim);
    const auto row_of = [&](const coordinates& i) {
      return static_cast<std::int64_t>(at(rows, {i[static_cast<std::size_t>(d)], i[static_cast<std::size_t>(d + 1)]}));
    };
    const auto source_of = [&](const coordinates& i) {
      coordinates j(i.begin(), i.begin() + d);
      j.push_back(row_of(i));
      j.insert(j.end(), i.begin() + d + 2, i.end());
      return j;
    };
    require_equal(run({table, rows}, [&](builder& b, const ids& a) { return emit::gather(b, a[0], a[1], dim); },
                      {dtype::f64, dtype::i32}),
                  filled(shape, [&](const coordinates& i) {
                    const bool inside = row_of(i) >= 0 && row_of(i) < table.shape[dim];
                    return inside ? at(table, source_of(i)) : 0.0;
                  }));
    const tensor_value updates = random_tensor(random, shape);
    require_close(run({rows, updates},
                      [&](builder& b, const ids& a) { return emit::scatter_add(b, table.shape, a[0], a[1], dim); },
                      {dtype::i32, dtype::f64}),
                  filled(table.shape,
                         [&](const coordinates& to) {
                           double sum = 0;
                           for (const coordinates& i : indices_of(shape))
                             sum += source_of(i) == to ? at(updates, i) : 0.0;
                           return sum;
                         }),
                  1e-13);
  }
}

namespace {

/// The sum over all assignments of values to letters.
tensor_value plain_einsum(const detail::einsum_formula& f, const std::vector<tensor_value>& data) {
  std::string letters;
  extents sizes;
  for (int k = 0; k < f.operands; ++k) {
    for (int d = 0; d < f.operand[k].size(); ++d) {
      if (letters.find(f.operand[k][d]) != std::string::npos) continue;
      letters += f.operand[k][d];
      sizes.append(data[static_cast<std::size_t>(k)].shape[d]);
    }
  }
  const auto pick = [&](const einsum_term& term, const coordinates& all) {
    coordinates i;
    for (int d = 0; d < term.size(); ++d) i.push_back(all[letters.find(term[d])]);
    return i;
  };
  extents shape;
  for (int d = 0; d < f.result.size(); ++d) shape.append(sizes[static_cast<int>(letters.find(f.result[d]))]);
  return filled(shape, [&](const coordinates& to) {
    double sum = 0;
    for (const coordinates& all : indices_of(sizes)) {
      if (pick(f.result, all) != to) continue;
      double term = 1;
      for (int k = 0; k < f.operands; ++k) term *= at(data[static_cast<std::size_t>(k)], pick(f.operand[k], all));
      sum += term;
    }
    return sum;
  });
}

void check_einsum(random_source& random, const detail::einsum_formula& f) {
  REQUIRE(f.valid);
  std::vector<tensor_value> data;
  for (int k = 0; k < f.operands; ++k) {
    extents shape;
    for (int d = 0; d < f.operand[k].size(); ++d) shape.append(2 + (f.operand[k][d] - 'a') % 3);
    data.push_back(random_tensor(random, shape));
  }
  require_close(run(data, [&](builder& b, const ids& a) { return detail::emit_einsum(b, f, a.data()); }),
                plain_einsum(f, data), 1e-12);
}

}  // namespace

TEST_CASE("einsums") {
  random_source random(9);
  check_einsum(random, detail::formula_of<"bm,mh->bh">);
  check_einsum(random, detail::formula_of<"abc,acd->abd">);
  check_einsum(random, detail::formula_of<"abc, cda -> dba">);
  check_einsum(random, detail::formula_of<"a,b->ba">);
  check_einsum(random, detail::formula_of<"a,a->">);
  check_einsum(random, detail::formula_of<"ab,ba->ab">);
  check_einsum(random, detail::formula_of<"abc,bd->ad">);
  check_einsum(random, detail::formula_of<"ab,c->">);
  check_einsum(random, detail::formula_of<",ab->ba">);
  check_einsum(random, detail::formula_of<"abc->ca">);
  check_einsum(random, detail::formula_of<"ab->">);
  check_einsum(random, detail::formula_of<"ab,bc,cd->ad">);
  check_einsum(random, detail::formula_of<"abx,bcy,cda->xyd">);
  check_einsum(random, detail::formula_of<"ab,bc,cd,de->ea">);
  check_einsum(random, detail::formula_of<"a,b,c,d,e->edcba">);
  check_einsum(random, detail::formula_of<"abcdef,fgba->gcde">);
  check_einsum(random, detail::formula_of<"aa->a">);
  check_einsum(random, detail::formula_of<"aa->">);
  check_einsum(random, detail::formula_of<"baca->cb">);
  check_einsum(random, detail::formula_of<"aaa->a">);
  check_einsum(random, detail::formula_of<"abba->ab">);
  check_einsum(random, detail::formula_of<"aab,bcc->ac">);
  check_einsum(random, detail::formula_of<"ab,bb,bc,cc->">);
  check_einsum(random, detail::formula_of<"a,ab,abc,bc,c,ca,cb,d->dca">);
}

namespace {
constexpr float two_by_three[2][3]{{1, 2, 3}, {4, 5, 6}};
}  // namespace

TEST_CASE("a table's elements, in their order") {
  const tensor_value got = run({}, [](builder& b, const ids&) {
    return b.append(ops::table<two_by_three, dtype::f32>, dtype::f32, extents_of({3, 2}));
  });
  CHECK(got.data == std::vector<double>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("softmax and log_softmax, also of large numbers") {
  random_source random(10);
  for (const double size : {1.0, 700.0}) {
    const tensor_value x = random_tensor(random, extents_of({3, 4}), -size, size);
    for (std::int64_t dims = 1; dims < 4; ++dims) {
      CAPTURE(size, dims);
      const tensor_value logarithm = filled(x.shape, [&](const coordinates& i) {
        double sum = 0;
        for (const coordinates& j : indices_of(x.shape)) {
          const bool same = ((dims & 1) != 0 || i[0] == j[0]) && ((dims & 2) != 0 || i[1] == j[1]);
          if (same) sum += std::exp(at(x, j) - at(x, i));
        }
        return -std::log(sum);
      });
      const bool finite = size < 100;
      const auto made = run({x}, [&](builder& b, const ids& a) { return emit::log_softmax(b, a[0], dims); });
      if (finite) require_close(made, logarithm, 1e-12);
      for (const double v : made.data) CHECK(std::isfinite(v));
      require_close(run({x}, [&](builder& b, const ids& a) { return emit::softmax(b, a[0], dims); }),
                    filled(x.shape, [&](const coordinates& i) { return std::exp(at(logarithm, i)); }), 1e-12);
    }
  }
}

TEST_CASE("convert rounds as a store would") {
  const tensor_value x{extents_of({8}), {1.0 / 3, -2.75, 1e-3, 257.0, 0, -0.9, 3.999, 1.00390625}};
  const auto to = [&](dtype type) {
    return run({x}, [&](builder& b, const ids& a) { return emit::convert(b, a[0], type); }).data;
  };
  CHECK(to(dtype::f64) == x.data);
  CHECK(to(dtype::i32) == std::vector<double>{0, -2, 0, 257, 0, 0, 3, 1});
  CHECK(to(dtype::boolean) == std::vector<double>{1, 1, 1, 1, 0, 1, 1, 1});
  const auto f32 = to(dtype::f32);
  const auto bf16 = to(dtype::bf16);
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(f32[i] == static_cast<double>(static_cast<float>(x.data[i])));
    CHECK(std::abs(bf16[i] - x.data[i]) <= std::abs(x.data[i]) / 256);
  }
  // Ties go to even: 257 lies between 256 and 258, 1 + 1/256 between 1 and 1 + 1/128.
  CHECK(bf16[3] == 256);
  CHECK(bf16[7] == 1);
}

TEST_CASE("the interpreter says what is wrong with arguments and ops") {
  builder b;
  const int x = emit::argument(b, dtype::f32, extents_of({2}), 1);
  emit::result(b, x, 0);
  const tensor_value two{extents_of({2}), {1, 2}};
  const tensor_value three{extents_of({3}), {1, 2, 3}};
  CHECK_THROWS_WITH(interpret(b.result(), {two}), Catch::Contains("argument 1 is missing"));
  CHECK_THROWS_WITH(interpret(b.result(), {two, three}), Catch::Contains("argument 1 has another shape"));
  CHECK_THROWS_WITH(interpret(b.result(), {two, tensor_value{extents_of({2}), {1}}}), Catch::Contains("another shape"));
  static constexpr op_info mute{.name = "mute"};
  emit::result(b, b.append(mute, dtype::f32, extents_of({2}), x), 1);
  CHECK_THROWS_WITH(interpret(b.result(), {two, two}), Catch::Contains("mute has no function `evaluate`"));
}

TEST_CASE("results come in the order of their numbers") {
  builder b;
  const int x = emit::argument(b, dtype::f32, extents_of({1}), 0);
  emit::result(b, emit::negate(b, x), 1);
  emit::result(b, x, 0, x);
  const auto results = run_all_forms(b.result(), {tensor_value{extents_of({1}), {3}}});
  CHECK(results[0].data[0] == 3);
  CHECK(results[1].data[0] == -3);
}

TEST_CASE("loops by hand: carries, slices, stacks and sums in both directions") {
  for (const bool reverse : {false, true}) {
    builder b;
    const int xs = emit::argument(b, dtype::f64, extents_of({4, 1}), 0);
    const int zero = emit::constant(b, dtype::f64, extents_of({1}), 0);
    emit::region_begin(b, 4, reverse, false);
    const int carry = emit::region_parameter(b, zero);
    const int x = emit::loop_slice(b, xs);
    const int next = emit::region_yield(b, carry, emit::add(b, emit::scale(b, carry, 10), x));
    const int before = emit::own(b, carry);
    emit::region_end(b);
    emit::result(b, emit::region_result(b, next), 0);
    emit::result(b, emit::loop_stack(b, before), 1);
    emit::result(b, emit::loop_sum(b, x), 2);
    emit::result(b, emit::loop_stack(b, x), 3);
    const auto results = run_all_forms(b.result(), {tensor_value{extents_of({4, 1}), {1, 2, 3, 4}}});
    CHECK(results[0].data[0] == (reverse ? 4321 : 1234));
    CHECK(results[1].data == (reverse ? std::vector<double>{432, 43, 4, 0} : std::vector<double>{0, 1, 12, 123}));
    CHECK(results[2].data[0] == 10);
    CHECK(results[3].data == std::vector<double>{1, 2, 3, 4});
  }
}
