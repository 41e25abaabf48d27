// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: yes
// together: speed

#include <espalier/tensor/run/kernels/row_product.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kernels = espalier::kernels;
using espalier::dtype;
using espalier::einsum_attributes;
using espalier::einsum_term;
using espalier::extents;
using espalier::row_product;

namespace {

einsum_term term_of(const char* letters) {
  einsum_term term;
  for (; *letters != 0; ++letters) term.append(*letters);
  return term;
}
template <class... Sizes> extents extents_of_sizes(Sizes... sizes) {
  extents shape;
  (shape.append(sizes), ...);
  return shape;
}

constexpr std::int64_t row_count = 21;
constexpr std::int64_t rows_at_once = 8;

/// Scores [rows, keys], x [rows, features], and y [keys, features], or [features, keys] if it is turned.
template <dtype S, dtype X, dtype Y> class row_products {
 public:
  row_products(std::int64_t keys, std::int64_t features, bool turned)
      : keys_(keys),
        features_(features),
        y_term_(term_of(turned ? "fk" : "kf")),
        y_shape_(turned ? extents_of_sizes(features, keys) : extents_of_sizes(keys, features)),
        y_key_(turned ? 1 : features),
        y_feature_(turned ? keys : 1) {
    fill(scores_, row_count * keys, 7);
    fill(x_, row_count * features, 11);
    fill(y_, keys * features, 13);
  }

  /// The largest difference from the sums in doubles, of their magnitudes; `parts`: as many threads share the sums.
  double makes() {
    const row_product plan = plan_of(term_of("rf"), y_term_, term_of("rk"), extents_of_sizes(row_count, features_),
                                     y_shape_, extents_of_sizes(row_count, keys_), 2);
    std::vector<espalier::storage_t<S>> made(static_cast<std::size_t>(row_count * keys_));
    run(plan, x_.data(), y_.data(), made.data(), 1);
    return worst_of(row_count, keys_, features_, [&](std::int64_t r, std::int64_t k, std::int64_t f) {
      return term{x(r, f), y(k, f), static_cast<double>(made[static_cast<std::size_t>(r * keys_ + k)])};
    });
  }
  double keeps() {
    const row_product plan = plan_of(term_of("rk"), y_term_, term_of("rf"), extents_of_sizes(row_count, keys_),
                                     y_shape_, extents_of_sizes(row_count, features_), 0);
    std::vector<espalier::storage_t<X>> made(static_cast<std::size_t>(row_count * features_));
    run(plan, scores_.data(), y_.data(), made.data(), 1);
    return worst_of(row_count, features_, keys_, [&](std::int64_t r, std::int64_t f, std::int64_t k) {
      return term{scores(r, k), y(k, f), static_cast<double>(made[static_cast<std::size_t>(r * features_ + f)])};
    });
  }
  double sums(int parts) {
    const row_product plan = plan_of(term_of("rk"), term_of("rf"), y_term_, extents_of_sizes(row_count, keys_),
                                     extents_of_sizes(row_count, features_), y_shape_, 0);
    std::vector<espalier::storage_t<Y>> made(static_cast<std::size_t>(keys_ * features_));
    for (auto& one : made) one = espalier::detail::element_cast<espalier::storage_t<Y>>(99.0F);  // which does not count
    run(plan, scores_.data(), x_.data(), made.data(), parts);
    return worst_of(keys_, features_, row_count, [&](std::int64_t k, std::int64_t f, std::int64_t r) {
      const std::int64_t at = k * y_key_ + f * y_feature_;
      return term{scores(r, k), x(r, f), static_cast<double>(made[static_cast<std::size_t>(at)])};
    });
  }

 private:
  /// The factors of a term, and what was made of all terms of an element.
  struct term {
    double left;
    double right;
    double made;
  };
  template <class Term>
  static double worst_of(std::int64_t lines, std::int64_t columns, std::int64_t terms, const Term& term_at) {
    double worst = 0;
    for (std::int64_t i = 0; i < lines; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        double sum = 0;
        double size = 0;
        for (std::int64_t n = 0; n < terms; ++n) {
          const term one = term_at(i, j, n);
          sum += one.left * one.right;
          size += std::fabs(one.left * one.right);
        }
        const double difference = std::fabs(term_at(i, j, 0).made - sum) / (1 + size);
        worst = difference <= worst ? worst : difference;  // a NaN stays
      }
    }
    return worst;
  }

  template <class T> static void fill(std::vector<T>& values, std::int64_t count, std::int64_t seed) {
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(espalier::detail::element_cast<T>(static_cast<float>(i * seed % 17 - 8) / 4));
  }
  static row_product plan_of(einsum_term left, einsum_term right, einsum_term result, const extents& a,
                             const extents& b, const extents& c, int scores) {
    return espalier::detail::row_product_of(einsum_attributes{left, right, result, true}, a, b, c, scores);
  }
  /// A block of rows after the other, each by all parts.
  static void run(const row_product& plan, const void* left, const void* right, void* result, int parts) {
    REQUIRE(plan.role != espalier::row_role::none);
    using functions = espalier::detail::row_product_functions<S, X, Y>;
    const auto bytes = static_cast<std::size_t>(functions::scratch_bytes(plan, rows_at_once));
    std::vector<std::vector<double>> rooms(static_cast<std::size_t>(parts), std::vector<double>(bytes / 8 + 16));
    for (std::int64_t first = 0; first < row_count; first += rows_at_once) {
      for (int part = 0; part < parts; ++part) {
        kernels::row_call call;
        call.operand[0] = left;
        call.operand[1] = right;
        call.result = result;
        call.first_row = first;
        call.rows = std::min(rows_at_once, row_count - first);
        call.keys = plan.keys;
        call.begins_item = first == 0;
        call.begins_sum = first == 0;
        call.ends_sum = first + call.rows == row_count;
        const auto start = reinterpret_cast<std::uintptr_t>(rooms[static_cast<std::size_t>(part)].data());
        call.scratch = rooms[static_cast<std::size_t>(part)].data() + (64 - start % 64) % 64 / 8;
        call.part = part;
        call.parts = parts;
        functions::run(plan, call);
      }
    }
  }

  [[nodiscard]] double scores(std::int64_t r, std::int64_t k) const {
    return static_cast<double>(scores_[static_cast<std::size_t>(r * keys_ + k)]);
  }
  [[nodiscard]] double x(std::int64_t r, std::int64_t f) const {
    return static_cast<double>(x_[static_cast<std::size_t>(r * features_ + f)]);
  }
  [[nodiscard]] double y(std::int64_t k, std::int64_t f) const {
    return static_cast<double>(y_[static_cast<std::size_t>(k * y_key_ + f * y_feature_)]);
  }

  std::int64_t keys_;
  std::int64_t features_;
  einsum_term y_term_;
  extents y_shape_;
  std::int64_t y_key_;
  std::int64_t y_feature_;
  std::vector<espalier::storage_t<S>> scores_;
  std::vector<espalier::storage_t<X>> x_;
  std::vector<espalier::storage_t<Y>> y_;
};

template <dtype S, dtype X, dtype Y> void check(std::int64_t keys, std::int64_t features, double most) {
  for (const bool turned : {false, true}) {
    CAPTURE(keys, features, turned);
    row_products<S, X, Y> all(keys, features, turned);
    CHECK(all.makes() < most);
    CHECK(all.keeps() < most);
    for (const int parts : {1, 2, 3}) CHECK(all.sums(parts) < most);
  }
}

}  // namespace

TEST_CASE("products of a few rows of scores at a time", "[kernels]") {
  check<dtype::f64, dtype::f64, dtype::f64>(101, 37, 1e-14);
  check<dtype::f32, dtype::f32, dtype::f32>(101, 37, 1e-6);
  check<dtype::f32, dtype::bf16, dtype::bf16>(101, 37, 4e-3);
  check<dtype::bf16, dtype::bf16, dtype::f32>(101, 37, 4e-3);
}

TEST_CASE("products of a few rows of scores with a table that no thread keeps a copy of", "[kernels]") {
  // A little more than 8 MiB.
  check<dtype::f64, dtype::f64, dtype::f64>(1037, 1025, 1e-14);
  check<dtype::f32, dtype::f32, dtype::f32>(2053, 1025, 1e-6);
  check<dtype::f32, dtype::bf16, dtype::bf16>(2053, 1025, 4e-3);
}
