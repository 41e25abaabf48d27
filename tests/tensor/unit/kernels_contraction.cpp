// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// optimised: yes
// together: speed

#include <espalier/tensor/run/kernels/contraction.hpp>
#include <espalier/testing/contraction_of.hpp>

#include <support/instrumented.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

namespace kernels = espalier::kernels;
using espalier::bfloat16;
using espalier::dtype;
using kernels::contraction;
using kernels::contraction_of;

namespace {

std::int64_t count_of(const contraction& p, int rank, const signed char* dims) {
  std::int64_t count = 1;
  for (int d = 0; d < rank; ++d) count *= p.extent[dims[d]];
  return count;
}

/// The definition: every combination of all labels, in double. Also the sum of magnitudes, which scales the tolerance.
template <class A, class B>
void naive(const contraction& p, const std::vector<A>& a, const std::vector<B>& b, std::vector<double>& sum,
           std::vector<double>& size) {
  std::int64_t total = 1;
  for (int l = 0; l < p.label_count; ++l) total *= p.extent[l];
  for (std::int64_t i = 0; i < total; ++i) {
    std::int64_t index[contraction::max_labels] = {};
    std::int64_t rest = i;
    for (int l = p.label_count - 1; l >= 0; --l) {
      index[l] = rest % p.extent[l];
      rest /= p.extent[l];
    }
    const auto at = [&](int rank, const signed char* dims) {
      std::int64_t offset = 0;
      for (int d = 0; d < rank; ++d) offset = offset * p.extent[dims[d]] + index[dims[d]];
      return static_cast<std::size_t>(offset);
    };
    const double product = static_cast<double>(a[at(p.rank_a, p.a)]) * static_cast<double>(b[at(p.rank_b, p.b)]);
    sum[at(p.rank_c, p.c)] += product;
    size[at(p.rank_c, p.c)] += std::fabs(product);
  }
}

template <class T> std::vector<T> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(uniform(generator)));
  return values;
}

/// Operands, and what their product is.
template <class A, class B> struct known_product {
  std::vector<A> a;
  std::vector<B> b;
  std::vector<double> sum;
  std::vector<double> size;

  explicit known_product(const contraction& p)
      : a(random_values<A>(count_of(p, p.rank_a, p.a), 1)),
        b(random_values<B>(count_of(p, p.rank_b, p.b), 2)),
        sum(static_cast<std::size_t>(count_of(p, p.rank_c, p.c))),
        size(sum.size()) {
    naive(p, a, b, sum, size);
  }
};

template <contraction P, class Backend, class C, class A, class B>
void check_with(const known_product<A, B>& known, double alpha, double beta) {
  using T = espalier::detail::compute_t<A, B, C>;
  auto c = random_values<C>(static_cast<std::int64_t>(known.sum.size()), 3);
  const auto c_before = c;
  if (beta == 0.0)
    for (auto& v : c) v = static_cast<C>(std::numeric_limits<float>::quiet_NaN());  // must not be read

  constexpr std::int64_t bytes =
      kernels::scratch_bytes(P, espalier::dtype_of<A>, espalier::dtype_of<B>, espalier::dtype_of<C>);
  static_assert(bytes % 64 == 0);
  constexpr std::size_t guard = 16;
  std::vector<T> scratch(static_cast<std::size_t>(bytes) / sizeof(T) + guard, T(77));
  kernels::contract<P, A, B, C, Backend>(known.a.data(), known.b.data(), c.data(), static_cast<T>(alpha),
                                         static_cast<T>(beta), bytes == 0 ? nullptr : scratch.data());
  for (std::size_t i = scratch.size() - guard; i < scratch.size(); ++i) REQUIRE(scratch[i] == T(77));

  const double rounding = static_cast<double>(std::numeric_limits<T>::epsilon());
  for (std::size_t i = 0; i < c.size(); ++i) {
    const double before = beta == 0.0 ? 0.0 : beta * static_cast<double>(c_before[i]);
    const double expected = alpha * known.sum[i] + before;
    double tolerance = 8 * rounding * (std::fabs(alpha) * known.size[i] + std::fabs(before)) + rounding;
    if (std::is_same_v<C, bfloat16>) tolerance += std::fabs(expected) / 256.0;
    if (!(std::fabs(static_cast<double>(c[i]) - expected) <= tolerance)) {
      CAPTURE(i, alpha, beta, static_cast<double>(c[i]), expected, tolerance);
      FAIL("wrong element");
    }
  }
  SUCCEED();
}

template <contraction P, class A, class B, class C> void check_types() {
  using own = espalier::detail::blocked_backend;
  using chosen = espalier::detail::default_backend;
  constexpr contraction p = P;  // clang 14 and 19 crash where an array member of a template argument decays
  const known_product<A, B> known(p);
  check_with<P, chosen, C>(known, 1.0, 0.0);
  check_with<P, chosen, C>(known, -0.5, 2.0);
  if constexpr (!std::is_same_v<own, chosen>) {
    check_with<P, own, C>(known, 1.0, 0.0);
    check_with<P, own, C>(known, -0.5, 2.0);
  }
}

template <contraction P> void check() {
  static_assert(kernels::is_valid(P));
  check_types<P, float, float, float>();
  check_types<P, double, double, double>();
}

}  // namespace

#define ESPALIER_CHECK(text, ...)               \
  do {                                          \
    INFO(text);                                 \
    check<contraction_of(text, __VA_ARGS__)>(); \
  } while (false)
#define SHAPE(...) \
  { __VA_ARGS__ }

TEST_CASE("matrix products of two-dimensional operands", "[kernels][contraction]") {
  ESPALIER_CHECK("bm,mh->bh", SHAPE(33, 17), SHAPE(17, 70));
  ESPALIER_CHECK("mh,bh->bm", SHAPE(17, 70), SHAPE(33, 70));
  ESPALIER_CHECK("bm,bh->mh", SHAPE(33, 17), SHAPE(33, 70));
  ESPALIER_CHECK("mb,mh->bh", SHAPE(17, 33), SHAPE(17, 70));
  ESPALIER_CHECK("mb,hm->bh", SHAPE(17, 33), SHAPE(70, 17));
  ESPALIER_CHECK("ij,jk->ki", SHAPE(13, 29), SHAPE(29, 40));
  ESPALIER_CHECK("ji,jk->ki", SHAPE(29, 13), SHAPE(29, 40));
  ESPALIER_CHECK("ij,kj->ki", SHAPE(13, 29), SHAPE(40, 29));
  ESPALIER_CHECK("ij,jk->ik", SHAPE(205, 401), SHAPE(401, 199));  // several blocks, all with remainders
}

TEST_CASE("products of several panels and strips, with remainders", "[kernels][contraction]") {
  ESPALIER_CHECK("ij,jk->ik", SHAPE(47, 300), SHAPE(300, 1060));
  if constexpr (!espalier::test::is_instrumented) {
    ESPALIER_CHECK("ij,kj->ik", SHAPE(47, 300), SHAPE(1060, 300));
    ESPALIER_CHECK("ji,kj->ik", SHAPE(300, 47), SHAPE(570, 300));
  }
  ESPALIER_CHECK("ji,jk->ik", SHAPE(600, 47), SHAPE(600, 570));
  ESPALIER_CHECK("ji,jk->ik", SHAPE(300, 23), SHAPE(300, 64));  // a strip is used where it lies
  ESPALIER_CHECK("ij,jk->ik", SHAPE(23, 300), SHAPE(300, 33));
}

namespace {

/// Products with a lower triangle, by rows and by columns, with the library's own kernels.
template <class T> void check_triangle(std::int64_t size, std::int64_t width) {
  using espalier::detail::matrix_view;
  const auto at = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  auto a = random_values<T>(size * size, 1);
  const auto b = random_values<T>(size * width, 2);
  for (std::int64_t i = 0; i < size; ++i) {
    for (std::int64_t j = i + 1; j < size; ++j) a[at(i * size + j)] = T(0);
  }
  for (const bool turned : {false, true}) {
    const matrix_view<const T> left{a.data(), turned ? 1 : size, turned ? size : 1};
    std::vector<T> c(at(size * width), std::numeric_limits<T>::quiet_NaN());
    espalier::detail::blocked_gemm<T>(size, width, size, T(1), left, {b.data(), width, 1}, T(0), c.data(), width);
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t j = 0; j < width; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < size; ++k) {
          sum += static_cast<double>(left.data[i * left.row_stride + k * left.column_stride]) *
                 static_cast<double>(b[at(k * width + j)]);
        }
        REQUIRE(static_cast<double>(c[at(i * width + j)]) == Approx(sum).margin(1e-4));
      }
    }
  }
}

}  // namespace

TEST_CASE("the zeros of a triangle change nothing", "[kernels][contraction]") {
  for (const std::int64_t size : {5, 24, 64, 131, 300}) {
    for (const std::int64_t width : {32, 70, 300}) {
      check_triangle<float>(size, width);
      check_triangle<double>(size, width);
    }
  }
}

TEST_CASE("attention, forward and backward", "[kernels][contraction]") {
  ESPALIER_CHECK("bsm,mnd->bsnd", SHAPE(2, 9, 12), SHAPE(12, 3, 8));
  ESPALIER_CHECK("bsnd,btnd->bnst", SHAPE(2, 9, 3, 8), SHAPE(2, 11, 3, 8));
  ESPALIER_CHECK("bnst,btnd->bsnd", SHAPE(2, 3, 9, 11), SHAPE(2, 11, 3, 8));
  ESPALIER_CHECK("bsnd,ndm->bsm", SHAPE(2, 9, 3, 8), SHAPE(3, 8, 12));
  ESPALIER_CHECK("bsnd,mnd->bsm", SHAPE(2, 9, 3, 8), SHAPE(12, 3, 8));
  ESPALIER_CHECK("bsm,bsnd->mnd", SHAPE(2, 9, 12), SHAPE(2, 9, 3, 8));
  ESPALIER_CHECK("bsm,ndm->bsnd", SHAPE(2, 9, 12), SHAPE(3, 8, 12));
  ESPALIER_CHECK("bsnd,bsm->ndm", SHAPE(2, 9, 3, 8), SHAPE(2, 9, 12));
  ESPALIER_CHECK("bnst,bsnd->btnd", SHAPE(2, 3, 9, 11), SHAPE(2, 9, 3, 8));
  ESPALIER_CHECK("bsnd,btnd->bnst", SHAPE(4, 32, 4, 16), SHAPE(4, 32, 4, 16));
}

/// Row i of a lower triangle has the columns before the next multiple of `triangle_grain`, and no more than an eighth
/// of all after the diagonal, or a few: the rest is as it was.
template <int Positions, class T> void check_lower_triangle() {
  constexpr contraction p = contraction_of("bsnd,btnd->bnst", {1, Positions, 2, 8}, {1, Positions, 2, 8});
  constexpr std::size_t side = Positions;
  const auto a = random_values<T>(count_of(p, p.rank_a, p.a), 1);
  const auto b = random_values<T>(count_of(p, p.rank_b, p.b), 2);
  constexpr T untouched = T(77);
  std::vector<T> whole(2 * side * side, untouched);
  std::vector<T> lower = whole;
  for (std::int64_t part = 0; part < 2; ++part) {
    kernels::contract_item<p, T, T, T>(a.data(), b.data(), whole.data(), part);
    kernels::contract_item<p, T, T, T>(a.data(), b.data(), lower.data(), part, true);
  }
  constexpr std::size_t grain = kernels::triangle_grain;
  constexpr std::size_t most_behind = std::max<std::size_t>(2 * grain, side / 8 + grain);
  int wrong = 0;
  for (std::size_t row = 0; row < 2 * side; ++row) {
    const std::size_t i = row % side;
    for (std::size_t j = 0; j < side; ++j) {
      const T value = lower[row * side + j];
      const bool agrees = std::abs(static_cast<double>(value - whole[row * side + j])) < 1e-4;
      if (j < (i / grain + 1) * grain && !agrees) ++wrong;
      if (j > i + most_behind && value != untouched) ++wrong;
      if (!agrees && value != untouched) ++wrong;
    }
  }
  CAPTURE(Positions);
  CHECK(wrong == 0);
}

TEST_CASE("the lower triangle of a product", "[kernels][contraction]") {
  check_lower_triangle<64, float>();
  check_lower_triangle<112, float>();
  check_lower_triangle<112, double>();
  check_lower_triangle<600, float>();
}

TEST_CASE("mixture of experts", "[kernels][contraction]") {
  ESPALIER_CHECK("gsec,gsm->egcm", SHAPE(2, 8, 4, 3), SHAPE(2, 8, 6));
  ESPALIER_CHECK("egcm,emh->egch", SHAPE(4, 2, 3, 6), SHAPE(4, 6, 10));
  ESPALIER_CHECK("gsec,egcm->gsm", SHAPE(2, 8, 4, 3), SHAPE(4, 2, 3, 6));
  ESPALIER_CHECK("gsm,egcm->gsec", SHAPE(2, 8, 6), SHAPE(4, 2, 3, 6));
}

TEST_CASE("vectors, outer products and element-wise products", "[kernels][contraction]") {
  ESPALIER_CHECK("i,j->ij", SHAPE(7), SHAPE(19));
  ESPALIER_CHECK("i,j->ji", SHAPE(7), SHAPE(19));
  ESPALIER_CHECK("ij,j->i", SHAPE(37, 21), SHAPE(21));
  ESPALIER_CHECK("ji,j->i", SHAPE(21, 37), SHAPE(21));
  ESPALIER_CHECK("j,ij->i", SHAPE(21), SHAPE(37, 21));
  ESPALIER_CHECK("j,ji->i", SHAPE(21), SHAPE(21, 600));
  ESPALIER_CHECK("i,i->", SHAPE(1003), SHAPE(1003));
  ESPALIER_CHECK("ij,ji->", SHAPE(12, 31), SHAPE(31, 12));
  ESPALIER_CHECK("i,i->i", SHAPE(1003), SHAPE(1003));
  ESPALIER_CHECK("bi,bi->b", SHAPE(15, 40), SHAPE(15, 40));
  ESPALIER_CHECK("ib,ib->b", SHAPE(15, 40), SHAPE(15, 40));
  ESPALIER_CHECK("bi,b->bi", SHAPE(15, 40), SHAPE(15));
  ESPALIER_CHECK("bi,i->bi", SHAPE(15, 40), SHAPE(40));
  ESPALIER_CHECK("b,bi->ib", SHAPE(15), SHAPE(15, 40));
  ESPALIER_CHECK("bn,btn->bt", SHAPE(3, 16), SHAPE(3, 9, 16));
  ESPALIER_CHECK(",->", SHAPE(), SHAPE());
  ESPALIER_CHECK("ij,->ij", SHAPE(5, 6), SHAPE());
  ESPALIER_CHECK("ii,i->i", SHAPE(9, 9), SHAPE(9));
}

TEST_CASE("orders that fit no plain product", "[kernels][contraction]") {
  ESPALIER_CHECK("iab,baj->ij", SHAPE(10, 5, 6), SHAPE(6, 5, 12));
  ESPALIER_CHECK("abi,bja->ij", SHAPE(5, 6, 10), SHAPE(6, 12, 5));
  ESPALIER_CHECK("mkb,knb->mnb", SHAPE(9, 10, 5), SHAPE(10, 12, 5));
  ESPALIER_CHECK("bmk,bkn->mnb", SHAPE(5, 9, 10), SHAPE(5, 10, 12));
  ESPALIER_CHECK("mbk,nkb->bnm", SHAPE(9, 5, 10), SHAPE(12, 10, 5));
  ESPALIER_CHECK("abc,cd->dab", SHAPE(4, 5, 6), SHAPE(6, 7));
  ESPALIER_CHECK("abc,cd->adb", SHAPE(4, 5, 6), SHAPE(6, 7));
  ESPALIER_CHECK("abc,cd->bda", SHAPE(4, 5, 6), SHAPE(6, 7));
  ESPALIER_CHECK("akbl,lckd->dacb", SHAPE(3, 4, 5, 6), SHAPE(6, 7, 4, 2));
  ESPALIER_CHECK("mkb,knb->mnb", SHAPE(60, 70, 20), SHAPE(70, 50, 20));
  ESPALIER_CHECK("iab,baj->ij", SHAPE(64, 12, 16), SHAPE(16, 12, 64));
}

TEST_CASE("extents of one and of zero", "[kernels][contraction]") {
  ESPALIER_CHECK("ij,jk->ik", SHAPE(1, 8), SHAPE(8, 9));
  ESPALIER_CHECK("ij,jk->ik", SHAPE(7, 1), SHAPE(1, 9));
  ESPALIER_CHECK("ij,jk->ik", SHAPE(7, 8), SHAPE(8, 1));
  ESPALIER_CHECK("ij,jk->ik", SHAPE(1, 1), SHAPE(1, 1));
  ESPALIER_CHECK("bsnd,btnd->bnst", SHAPE(2, 1, 3, 8), SHAPE(2, 11, 3, 8));
  ESPALIER_CHECK("bnst,btnd->bsnd", SHAPE(2, 3, 1, 11), SHAPE(2, 11, 3, 8));
  ESPALIER_CHECK("bsnd,btnd->bnst", SHAPE(1, 6, 1, 8), SHAPE(1, 11, 1, 8));
  ESPALIER_CHECK("ij,jk->ik", SHAPE(4, 0), SHAPE(0, 5));
  ESPALIER_CHECK("ij,jk->ik", SHAPE(0, 4), SHAPE(4, 5));
}

TEST_CASE("bfloat16 storage is computed in float32", "[kernels][contraction]") {
  constexpr contraction product = contraction_of("bm,mh->bh", SHAPE(33, 17), SHAPE(17, 70));
  check_types<product, bfloat16, bfloat16, bfloat16>();
  check_types<product, bfloat16, bfloat16, float>();
  check_types<product, float, bfloat16, float>();
  check_types<product, bfloat16, float, bfloat16>();
  constexpr contraction attention = contraction_of("bsnd,btnd->bnst", SHAPE(2, 9, 3, 8), SHAPE(2, 11, 3, 8));
  check_types<attention, bfloat16, bfloat16, bfloat16>();
  check_types<contraction_of("i,i->", SHAPE(100), SHAPE(100)), bfloat16, bfloat16, float>();
  CHECK(kernels::scratch_bytes(product, dtype::bf16) >= 4 * (33 * 17 + 17 * 70 + 33 * 70));
}

TEST_CASE("what needs no copy gets none", "[kernels][contraction]") {
  constexpr auto free_of_scratch = [](const contraction& p) { return kernels::scratch_bytes(p, dtype::f32) == 0; };
  STATIC_REQUIRE(free_of_scratch(contraction_of("bsm,mnd->bsnd", SHAPE(8, 256, 512), SHAPE(512, 8, 64))));
  STATIC_REQUIRE(free_of_scratch(contraction_of("bsnd,btnd->bnst", SHAPE(8, 256, 8, 64), SHAPE(8, 256, 8, 64))));
  STATIC_REQUIRE(free_of_scratch(contraction_of("bnst,btnd->bsnd", SHAPE(8, 8, 256, 256), SHAPE(8, 256, 8, 64))));
  STATIC_REQUIRE(free_of_scratch(contraction_of("bnst,bsnd->btnd", SHAPE(8, 8, 256, 256), SHAPE(8, 256, 8, 64))));
  STATIC_REQUIRE(free_of_scratch(contraction_of("bsnd,ndm->bsm", SHAPE(8, 256, 8, 64), SHAPE(8, 64, 512))));
  STATIC_REQUIRE(free_of_scratch(contraction_of("bsm,bsnd->mnd", SHAPE(8, 256, 512), SHAPE(8, 256, 8, 64))));
  STATIC_REQUIRE(free_of_scratch(contraction_of("ij,jk->ki", SHAPE(64, 65), SHAPE(65, 66))));

  constexpr auto projection = kernels::plan_of(contraction_of("bsm,mnd->bsnd", SHAPE(8, 256, 512), SHAPE(512, 8, 64)));
  STATIC_REQUIRE(projection.m == 8 * 256);
  STATIC_REQUIRE(projection.n == 8 * 64);
  STATIC_REQUIRE(projection.k == 512);
  STATIC_REQUIRE(projection.iterations == 1);

  constexpr auto scores =
      kernels::plan_of(contraction_of("bsnd,btnd->bnst", SHAPE(8, 256, 8, 64), SHAPE(8, 256, 8, 64)));
  STATIC_REQUIRE(scores.iterations == 64);
  STATIC_REQUIRE(scores.a_row == 8 * 64);
  STATIC_REQUIRE(scores.flops() == 2.0 * 8 * 8 * 256 * 256 * 64);
}

TEST_CASE("what is no contraction of two operands is refused", "[kernels][contraction]") {
  CHECK_FALSE(kernels::is_valid(contraction_of("ij,jk->i", SHAPE(2, 3), SHAPE(3, 4))));    // k in B alone
  CHECK_FALSE(kernels::is_valid(contraction_of("ij,jk->ikl", SHAPE(2, 3), SHAPE(3, 4))));  // l from nowhere
  CHECK_FALSE(kernels::is_valid(contraction_of("ij,jk->ikk", SHAPE(2, 3), SHAPE(3, 4))));  // k twice
  CHECK_FALSE(kernels::is_valid(contraction_of("ij,jk->ik", SHAPE(2, 3), SHAPE(5, 4))));   // j is 3 and 5
  CHECK_FALSE(kernels::is_valid(contraction_of("ij,jk", SHAPE(2, 3), SHAPE(3, 4))));
  CHECK_FALSE(kernels::is_valid(contraction_of("ij,jk->ik", SHAPE(2, 3, 4), SHAPE(3, 4))));
}

namespace {

/// Notes which elements have been followed, and whether they were what they had to be by then.
struct noted_tail : kernels::product_tail {
  const float* result = nullptr;
  const double* expected = nullptr;
  std::vector<std::atomic<int>> seen;
  std::atomic<int> incomplete = 0;
  std::atomic<int> broken_rows = 0;

  explicit noted_tail(std::size_t elements) : seen(elements) {
    run = [](const kernels::product_tail& self, std::int64_t row, std::int64_t rows, std::int64_t column,
             std::int64_t count) {
      auto& mine = const_cast<noted_tail&>(static_cast<const noted_tail&>(self));
      if (count < mine.columns) ++mine.broken_rows;
      for (std::int64_t i = row; i < row + rows; ++i) {
        for (std::int64_t j = column; j < column + count; ++j) {
          const auto at = static_cast<std::size_t>(i * mine.columns + j);
          ++mine.seen[at];
          if (!(std::fabs(static_cast<double>(mine.result[at]) - mine.expected[at]) < 1e-4)) ++mine.incomplete;
        }
      }
    };
  }
};

template <contraction P> void check_tail(bool takes, std::int64_t columns, bool whole_rows) {
  constexpr contraction p = P;
  const known_product<float, float> known(p);
  std::vector<float> c(known.sum.size(), std::numeric_limits<float>::quiet_NaN());
  std::vector<float> scratch(static_cast<std::size_t>(kernels::scratch_bytes(p, dtype::f32)) / sizeof(float) + 16);
  noted_tail tail(c.size());
  tail.columns = columns;
  tail.takes_whole_rows = whole_rows;
  tail.result = c.data();
  tail.expected = known.sum.data();
  kernels::contract<P>(known.a.data(), known.b.data(), c.data(), 1.0F, 0.0F, scratch.data(), &tail);
  CHECK(tail.is_taken == takes);
  CHECK(tail.incomplete == 0);
  int once = 0;
  for (const std::atomic<int>& times : tail.seen) once += times == 1 ? 1 : 0;
  CHECK(once == (takes ? static_cast<int>(c.size()) : 0));
  if (takes) CHECK(tail.columns * count_of(p, p.rank_c, p.c) / tail.columns == static_cast<std::int64_t>(c.size()));
  if (whole_rows) CHECK(tail.broken_rows == 0);
}

}  // namespace

TEST_CASE("what follows a product gets each part once, complete", "[kernels][contraction]") {
  // Several tiles and panels in each direction, and a rest of each.
  constexpr contraction large = contraction_of("mk,kn->mn", SHAPE(61, 530), SHAPE(530, 1040));
  check_tail<large>(true, 0, false);
  check_tail<large>(true, 1040, false);
  check_tail<large>(false, 520, false);  // those of another matrix
  check_tail<large>(false, 1040, true);  // more than a panel
  constexpr contraction narrow = contraction_of("mk,kn->mn", SHAPE(611, 300), SHAPE(300, 304));
  check_tail<narrow>(true, 304, true);
  constexpr contraction of_heads = contraction_of("bsm,mnd->bsnd", SHAPE(2, 61, 64), SHAPE(64, 5, 16));
  check_tail<of_heads>(true, 80, true);
  check_tail<of_heads>(false, 16, false);
  // The factors change places: columns of one product are rows of the other.
  constexpr contraction turned = contraction_of("mk,nk->mn", SHAPE(96, 70), SHAPE(128, 70));
  check_tail<turned>(true, 0, false);
  // No matrix in one piece: a batch, rows that are no whole vectors, a result in an order of its own.
  check_tail<contraction_of("bij,bjk->bik", SHAPE(3, 16, 20), SHAPE(3, 20, 64))>(false, 0, false);
  check_tail<contraction_of("mk,kn->mn", SHAPE(20, 30), SHAPE(30, 72))>(false, 0, false);
}
