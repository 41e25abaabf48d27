// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: yes

#include <catch2/catch.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/run/execute/device.hpp>
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/runner.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

// A chain that reads a product follows its parts (run/execute/product_tails.hpp): with sizes of several tiles in each
// direction, rows that fill no tile, and every way in which a chain can read: a bias along the columns, one along rows
// that repeat, another tensor, sums of rows and over rows. Against plain loops in double.

namespace ep = espalier;

namespace {

template <int Data, int Model> struct on {
  struct data : ep::axis<"data", Data> {};
  struct model : ep::axis<"model", Model> {};
  using mesh = ep::mesh<data, model>;
};

/// Two layers of a residual block, the mean square of its rows, the sum of all rows of its inner layer, and a step of
/// gradient descent of everything.
/// x [steps, batch, wide], w [wide, hidden], b [hidden], v [hidden, wide], c [steps, wide].
template <class On> struct block {
  constexpr auto operator()(auto x, auto w, auto b, auto v, auto c) const {
    const auto loss = [](auto x0, auto w0, auto b0, auto v0, auto c0) {
      const auto xs = ep::shard<ep::none, typename On::data, ep::none>(x0);
      const auto ws = ep::shard<ep::none, typename On::model>(w0);
      const auto h = ep::tanh(ep::einsum<"tbw,wh->tbh">(xs, ws) + b0);
      const auto y = ep::einsum<"tbh,hw->tbw">(h, v0) + ep::expand_dims<1>(c0) + xs;
      const auto mean = ep::mean<-1>(y * y);
      return ep::results(ep::sum(y * ep::cos(y)), y / ep::sqrt(ep::expand_dims<-1>(mean) + 0.5), ep::sum<0, 1>(h));
    };
    const auto found = ep::value_and_grad<0, 1, 2, 3, 4>(loss)(x, w, b, v, c);
    const auto g = found.gradient;
    return ep::results(found.value.template get<1>(), g.template get<0>(), w - 0.25 * g.template get<1>(),
                       b - 0.25 * g.template get<2>(), v - 0.25 * g.template get<3>(), c - 0.25 * g.template get<4>(),
                       found.value.template get<2>());
  }
};

/// Nothing in its first chain depends on where rows end; what its second one makes does not all fit where the product
/// lies, and takes the place of what that is made of.
struct chains_in_place {
  constexpr auto operator()(auto x, auto w, auto v) const {
    const auto p = ep::einsum<"mk,kn->mn">(x, w);
    const auto h = ep::sin(p) + p * p;
    const auto q = ep::einsum<"mk,kn->mn">(h, v);
    const auto normal = q / ep::sqrt(ep::expand_dims<-1>(ep::mean<-1>(q * q)) + 1.0);
    return ep::einsum<"mk,kn->mn">(normal, v) + ep::einsum<"mk,nk->mn">(ep::cos(q), v);
  }
};
using in_place_program =
    ep::program<ep::mesh<>, chains_in_place, ep::f64<256, 240>, ep::f64<240, 240>, ep::f64<240, 240>>;

/// A chain that knows where its rows and columns are.
struct data : ep::axis<"data", 2> {};
struct places {
  constexpr auto operator()(auto x, auto w) const {
    const auto p = ep::einsum<"mk,kn->mn">(ep::shard<data, ep::none>(x), w);
    const auto row = ep::iota<ep::i32<480, 208>, 0>(x);
    const auto column = ep::iota<ep::i32<480, 208>, 1>(x);
    return ep::select(column * 2 < row, p, p * p + 1.0);
  }
};
using places_program = ep::program<ep::mesh<data>, places, ep::f64<480, 16>, ep::f64<16, 208>>;

struct sizes {
  int steps;
  int batch;
  int wide;
  int hidden;
};

double drawn(std::int64_t i, double scale) { return scale * std::sin(static_cast<double>(i * i % 10007)); }
std::vector<double> drawn_all(std::int64_t count, double scale, int shift) {
  std::vector<double> made(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) made[static_cast<std::size_t>(i)] = drawn(i + shift, scale);
  return made;
}

/// A matrix with plain indices.
struct matrix {
  std::vector<double> data;
  std::int64_t columns;
  double& operator()(std::int64_t i, std::int64_t j) { return data[static_cast<std::size_t>(i * columns + j)]; }
  double operator()(std::int64_t i, std::int64_t j) const { return data[static_cast<std::size_t>(i * columns + j)]; }
};
matrix zeros(std::int64_t rows, std::int64_t columns) {
  return {std::vector<double>(static_cast<std::size_t>(rows * columns)), columns};
}

/// All results of `block`, one after the other, by loops.
std::vector<std::vector<double>> by_loops(const sizes& of, const matrix& x, const matrix& w, const matrix& b,
                                          const matrix& v, const matrix& c) {
  const std::int64_t rows = std::int64_t{of.steps} * of.batch;
  const std::int64_t wide = of.wide;
  const std::int64_t hidden = of.hidden;
  matrix h = zeros(rows, hidden), y = zeros(rows, wide), normal = y, dx = y, dw = zeros(wide, hidden);
  matrix sums = zeros(1, hidden), db = sums, dv = zeros(hidden, wide), dc = zeros(of.steps, wide);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = 0; k < wide; ++k)
      for (std::int64_t j = 0; j < hidden; ++j) h(r, j) += x(r, k) * w(k, j);
    for (std::int64_t j = 0; j < hidden; ++j) sums(0, j) += h(r, j) = std::tanh(h(r, j) + b(0, j));
    for (std::int64_t j = 0; j < hidden; ++j)
      for (std::int64_t k = 0; k < wide; ++k) y(r, k) += h(r, j) * v(j, k);
    double squares = 0;
    std::vector<double> dy(static_cast<std::size_t>(wide));
    for (std::int64_t k = 0; k < wide; ++k) {
      const double one = y(r, k) += c(r / of.batch, k) + x(r, k);
      squares += one * one;
      dy[static_cast<std::size_t>(k)] = std::cos(one) - one * std::sin(one);
    }
    for (std::int64_t k = 0; k < wide; ++k)
      normal(r, k) = y(r, k) / std::sqrt(squares / static_cast<double>(wide) + 0.5);
    for (std::int64_t k = 0; k < wide; ++k) {
      dx(r, k) += dy[static_cast<std::size_t>(k)];
      dc(r / of.batch, k) += dy[static_cast<std::size_t>(k)];
    }
    for (std::int64_t j = 0; j < hidden; ++j) {
      double dh = 0;
      for (std::int64_t k = 0; k < wide; ++k) {
        dh += dy[static_cast<std::size_t>(k)] * v(j, k);
        dv(j, k) += h(r, j) * dy[static_cast<std::size_t>(k)];
      }
      const double before = dh * (1 - h(r, j) * h(r, j));
      db(0, j) += before;
      for (std::int64_t k = 0; k < wide; ++k) {
        dx(r, k) += before * w(k, j);
        dw(k, j) += x(r, k) * before;
      }
    }
  }
  const auto moved = [](const matrix& from, const matrix& by) {
    std::vector<double> to = from.data;
    for (std::size_t i = 0; i < to.size(); ++i) to[i] -= 0.25 * by.data[i];
    return to;
  };
  return {normal.data, dx.data, moved(w, dw), moved(b, db), moved(v, dv), moved(c, dc), sums.data};
}

template <class On, template <int...> class T, int Steps, int Batch, int Wide, int Hidden> struct setting {
  static constexpr sizes of{Steps, Batch, Wide, Hidden};
  using program = ep::program<typename On::mesh, block<On>, T<Steps, Batch, Wide>, T<Wide, Hidden>, T<Hidden>,
                              T<Hidden, Wide>, T<Steps, Wide>>;

  /// The largest difference from plain loops, of elements of order 1.
  static double worst() {
    const matrix x{drawn_all(std::int64_t{Steps} * Batch * Wide, 1, 1), Wide};
    const matrix w{drawn_all(std::int64_t{Wide} * Hidden, 0.1, 2), Hidden};
    const matrix b{drawn_all(Hidden, 1, 3), Hidden};
    const matrix v{drawn_all(std::int64_t{Hidden} * Wide, 0.1, 4), Wide};
    const matrix c{drawn_all(std::int64_t{Steps} * Wide, 1, 5), Wide};
    ep::world world(program::mesh::value);
    ep::runner<program> run(world);
    const auto filled = [](auto argument, const matrix& with) {
      argument.for_each([&](auto& one, std::int64_t i) {
        using element = std::remove_reference_t<decltype(one)>;
        using number = std::conditional_t<std::is_same_v<element, double>, double, float>;
        one = static_cast<element>(static_cast<number>(with.data[static_cast<std::size_t>(i)]));
      });
      return argument;
    };
    const auto& results = run(filled(run.template argument<0>(), x), filled(run.template argument<1>(), w),
                              filled(run.template argument<2>(), b), filled(run.template argument<3>(), v),
                              filled(run.template argument<4>(), c));
    const auto expected = by_loops(of, x, w, b, v, c);
    double worst = 0;
    const auto compare = [&]<std::size_t N>(std::integral_constant<std::size_t, N>) {
      const auto found = ep::gather(world, results.template get<N>());
      REQUIRE(found.size() == expected[N].size());
      double scale = 1;
      for (const double one : expected[N]) scale = std::max(scale, std::abs(one));
      for (std::size_t i = 0; i < found.size(); ++i) {
        const double apart = std::abs(static_cast<double>(found[i]) - expected[N][i]) / scale;
        worst = apart <= worst ? worst : apart;
      }
    };
    [&]<std::size_t... N>(std::index_sequence<N...>) { (compare(std::integral_constant<std::size_t, N>{}), ...); }
    (std::make_index_sequence<7>{});
    return worst;
  }
};

/// Counts the products that took what follows them along.
class counting_kernels : public ep::detail::compiled_kernels {
 public:
  counting_kernels(const ep::program_tables& t, std::atomic<int>& taken) : compiled_kernels(t), taken_(&taken) {}
  void run(int launch, const ep::kernels::kernel_call& call) const {
    compiled_kernels::run(launch, call);
    if (call.tail != nullptr && call.tail->is_taken) ++*taken_;
  }

 private:
  std::atomic<int>* taken_;
};

template <class Program> int tails_taken() {
  const ep::program_tables tables = ep::tables_of<Program>();
  std::vector<std::vector<double>> memory;
  for (int id = 0; id < tables.code.size; ++id)
    memory.emplace_back(static_cast<std::size_t>(tables.code[id].shape.elements()), 0.5);
  std::atomic<int> taken = 0;
  ep::world world(Program::mesh::value);
  world.on_devices([&](int local, ep::comm::any_communicator& communicator) {
    ep::detail::device_executor<ep::comm::any_communicator, counting_kernels> device(
        tables, world.device(local), communicator, counting_kernels(tables, taken));
    for (int id = 0; id < tables.code.size; ++id) {
      const auto part = ep::structure_of(tables.code[id]);
      if (part != ep::structure::argument && part != ep::structure::result) continue;
      const int number = ep::attributes_of<ep::border_attributes>(tables.code[id]).number;
      void* const data = memory[static_cast<std::size_t>(id)].data();
      part == ep::structure::argument ? device.set_argument(number, data) : device.set_result(number, data);
    }
    device.run();
  });
  return taken;
}

matrix product(const matrix& a, const matrix& b, bool turned) {
  const auto rows = static_cast<std::int64_t>(a.data.size()) / a.columns;
  const std::int64_t columns = turned ? static_cast<std::int64_t>(b.data.size()) / b.columns : b.columns;
  matrix c = zeros(rows, columns);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < a.columns; ++k)
      for (std::int64_t j = 0; j < columns; ++j) c(i, j) += a(i, k) * (turned ? b(j, k) : b(k, j));
  return c;
}
template <class F> matrix mapped(matrix of, F f) {
  for (double& one : of.data) one = f(one);
  return of;
}

template <int... Extents> using f32 = ep::f32<Extents...>;
template <int... Extents> using f64 = ep::f64<Extents...>;
template <int... Extents> using bf16 = ep::bf16<Extents...>;

}  // namespace

TEST_CASE("chains follow products part by part, and compute what plain loops do", "[execute]") {
  // After the second product the whole rows of a norm, after the first parts of rows.
  using one = setting<on<1, 1>, f32, 5, 61, 272, 528>;
  CHECK(tails_taken<one::program>() == 2);
  CHECK(one::worst() < 1e-5);
}

TEST_CASE("the same in f64, with rows of several parts that are summed", "[execute]") {
  using wide = setting<on<1, 1>, f64, 5, 7, 528, 272>;
  CHECK(tails_taken<wide::program>() == 1);
  CHECK(wide::worst() < 1e-13);
}

TEST_CASE("chains that cannot follow wait: rows that are no whole vectors, products in another type", "[execute]") {
  using odd = setting<on<1, 1>, f32, 3, 5, 71, 133>;
  CHECK(tails_taken<odd::program>() == 0);
  CHECK(odd::worst() < 1e-5);
  using sixteen = setting<on<1, 1>, bf16, 2, 6, 64, 96>;
  CHECK(tails_taken<sixteen::program>() == 0);
  CHECK(sixteen::worst() < 5e-2);
}

TEST_CASE("chains follow products on four devices", "[execute]") {
  using four = setting<on<2, 2>, f32, 2, 14, 80, 192>;
  CHECK(tails_taken<four::program>() >= 4);  // one on each, or more
  CHECK(four::worst() < 1e-5);
}

TEST_CASE("a chain does not overwrite what its product still reads", "[execute]") {
  // The first chain follows its product. The place of `h` goes to what the second one makes.
  CHECK(tails_taken<in_place_program>() == 1);
  const matrix x{drawn_all(256 * 240, 1, 1), 240};
  const matrix w{drawn_all(240 * 240, 0.05, 2), 240};
  const matrix v{drawn_all(240 * 240, 0.05, 3), 240};
  ep::world world(in_place_program::mesh::value);
  ep::runner<in_place_program> run(world);
  auto a = run.argument<0>();
  auto b = run.argument<1>();
  auto c = run.argument<2>();
  a.for_each([&](double& one, std::int64_t i) { one = x.data[static_cast<std::size_t>(i)]; });
  b.for_each([&](double& one, std::int64_t i) { one = w.data[static_cast<std::size_t>(i)]; });
  c.for_each([&](double& one, std::int64_t i) { one = v.data[static_cast<std::size_t>(i)]; });
  const std::vector<double> found = ep::gather(world, run(a, b, c));
  const matrix h = mapped(product(x, w, false), [](double p) { return std::sin(p) + p * p; });
  const matrix q = product(h, v, false);
  matrix normal = q;
  for (std::int64_t i = 0; i < 256; ++i) {
    double squares = 0;
    for (std::int64_t j = 0; j < 240; ++j) squares += q(i, j) * q(i, j);
    for (std::int64_t j = 0; j < 240; ++j) normal(i, j) /= std::sqrt(squares / 240 + 1);
  }
  const matrix one = product(normal, v, false);
  const matrix other = product(mapped(q, [](double of) { return std::cos(of); }), v, true);
  REQUIRE(found.size() == one.data.size());
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double apart = std::abs(found[i] - one.data[i] - other.data[i]);
    worst = apart <= worst ? worst : apart;
  }
  CHECK(worst < 1e-11);
}

TEST_CASE("chains that know where their rows and columns are follow whole rows, on two devices", "[execute]") {
  CHECK(tails_taken<places_program>() == 2);
  const matrix x{drawn_all(480 * 16, 1, 1), 16};
  const matrix w{drawn_all(16 * 208, 1, 2), 208};
  ep::world world(places_program::mesh::value);
  ep::runner<places_program> run(world);
  auto a = run.argument<0>();
  auto b = run.argument<1>();
  a.for_each([&](double& one, std::int64_t i) { one = x.data[static_cast<std::size_t>(i)]; });
  b.for_each([&](double& one, std::int64_t i) { one = w.data[static_cast<std::size_t>(i)]; });
  const std::vector<double> found = ep::gather(world, run(a, b));
  const matrix p = product(x, w, false);
  REQUIRE(found.size() == p.data.size());
  double worst = 0;
  for (std::int64_t i = 0; i < 480; ++i) {
    for (std::int64_t j = 0; j < 208; ++j) {
      const double expected = j * 2 < i ? p(i, j) : p(i, j) * p(i, j) + 1;
      const double apart = std::abs(found[static_cast<std::size_t>(i * 208 + j)] - expected);
      worst = apart <= worst ? worst : apart;
    }
  }
  CHECK(worst < 1e-12);
}
