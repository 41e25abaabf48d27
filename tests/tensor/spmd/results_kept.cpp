// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never

#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/run/execute/checks.hpp>
#include <espalier/tensor/run/execute/copy.hpp>
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/replicas.hpp>
#include <espalier/tensor/run/execute/reshard.hpp>
#include <espalier/tensor/run/execute/runner.hpp>
#include <espalier/tensor/run/io/checkpoint.hpp>

#include <boost/hana/define_struct.hpp>
#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// The results that a user may keep of a run, and what is checked on request.
namespace ep = espalier;

namespace {

using Catch::Contains;
using numbers = std::vector<float>;
using vector = ep::f32<5>;  // uneven on two and four devices

template <int N> struct data : ep::axis<"data", N> {};
template <int N> using mesh = ep::mesh<data<N>>;

template <int N> struct twice {
  constexpr auto operator()(auto x) const { return ep::shard<data<N>>(x) * 2; }
};
template <int N> using doubling = ep::program<mesh<N>, twice<N>, vector>;

template <int N> struct grow {
  constexpr auto operator()(auto x) const { return ep::shard<data<N>>(x) + 1; }
};
template <int N> using growing = ep::program<mesh<N>, grow<N>, ep::donated<vector>>;

template <class Leaf> struct pair_of {
  BOOST_HANA_DEFINE_STRUCT(pair_of, (ep::leaf<Leaf, vector>, weights), (ep::leaf<Leaf, vector>, moments));
};
/// The state, and a number beside it.
template <int N> struct train {
  constexpr auto operator()(const auto& state, auto x) const {
    auto next = state;
    next.moments = state.moments + x;
    next.weights = state.weights - next.moments;
    return ep::results(next, ep::sum(next.weights));
  }
};
template <int N> using training = ep::program<mesh<N>, train<N>, ep::donated<pair_of<ep::spec>>, vector>;

/// Uneven: terms of five elements on two and four devices.
template <int N> using terms = ep::sharded<vector, ep::none, ep::unreduced<data<N>>>;
template <int N> struct add_up {
  constexpr auto operator()(auto sum, auto x) const {
    const auto parts = ep::sum<0>(ep::shard<data<N>, ep::none>(x));
    return ep::shard<ep::none, ep::unreduced<data<N>>>(sum + parts);
  }
};
template <int N> using adding = ep::program<mesh<N>, add_up<N>, ep::donated<terms<N>>, ep::f32<8, 5>>;
struct same {
  constexpr auto operator()(const auto& pair) const { return pair.weights * 1; }
};
template <int N> struct tree {
  template <class Leaf> struct with_terms {
    BOOST_HANA_DEFINE_STRUCT(with_terms, (ep::leaf<Leaf, terms<N>>, weights), (ep::leaf<Leaf, vector>, moments));
  };
};
template <int N> using summing = ep::program<mesh<N>, same, typename tree<N>::template with_terms<ep::spec>>;

numbers filled(float value) { return numbers(5, value); }
template <class Array> void fill(const Array& array, float value) {
  array.for_each([&](float& e, std::int64_t) { e = value; });
}

}  // namespace

TEST_CASE("ESPALIER_CHECK is a comma list", "[checks]") {
  using ep::detail::checks_in;
  CHECK(checks_in(nullptr).replicas_every == 0);
  CHECK_FALSE(checks_in("").nan);
  CHECK(checks_in("replicas").replicas_every == 100);
  CHECK(checks_in("replicas:7").replicas_every == 7);
  CHECK(checks_in("replicas,nan").nan);
  CHECK(checks_in("nan,replicas:12").replicas_every == 12);
  CHECK(checks_in("nan").replicas_every == 0);
  for (const char* const wrong :
       {"replica", "replicas:", "replicas:0", "replicas:-1", "replicas:1x", "nan,inf", "replicas:99999999999"}) {
    CHECK_THROWS_AS(checks_in(wrong), std::invalid_argument);
  }
  CHECK_THROWS_WITH(checks_in("nan,inf"), Contains("ESPALIER_CHECK is \"nan,inf\", of which \"inf\" is no check"));
}

TEMPLATE_TEST_CASE_SIG("results that are kept stay as they are", "[execute]", ((int N), N), 1, 2, 4) {
  ep::world world(mesh<N>::value);
  ep::runner<doubling<N>> run(world);
  const auto one = run.template argument<0>();
  const auto ten = run.template argument<0>();
  fill(one, 1);
  fill(ten, 10);
  const auto a = run(one);
  const auto b = run(ten);
  CHECK(ep::gather(world, a) == filled(2));
  CHECK(ep::gather(world, b) == filled(20));
  const auto c = run(a);
  CHECK(ep::gather(world, c) == filled(4));
  CHECK(ep::gather(world, a) == filled(2));

  // A reference is the runner's own: it follows, and no call makes new memory once no result is kept.
  std::vector<ep::sharded_array<vector>> kept;
  for (int n = 0; n < 3; ++n) {
    fill(one, static_cast<float>(n));
    kept.push_back(run(one));
  }
  for (std::size_t n = 0; n < 3; ++n) CHECK(ep::gather(world, kept[n]) == filled(2 * static_cast<float>(n)));
  kept.clear();
  const auto& last = run(one);
  const std::int64_t made = ep::shared_buffer::allocations();
  const float* const at = last.data(0);
  for (int n = 0; n < 5; ++n) {
    const auto passing = run(one);  // gone before the next call
    CHECK(passing.data(0) == at);
  }
  CHECK(ep::shared_buffer::allocations() == made);
  CHECK(run.copied_bytes() == 0);
}

TEST_CASE("a result outlives its runner and the next call of another one", "[execute]") {
  ep::world world(mesh<2>::value);
  ep::sharded_array<vector> kept;
  {
    ep::runner<doubling<2>> run(world);
    const auto x = run.argument<0>();
    fill(x, 3);
    kept = run(x);
  }
  CHECK(ep::gather(world, kept) == filled(6));
}

TEMPLATE_TEST_CASE_SIG("state = run(state) makes no memory and copies nothing", "[execute]", ((int N), N), 1, 2, 4) {
  ep::world world(mesh<N>::value);
  ep::runner<growing<N>> run(world);
  ep::runner<growing<N>> other(world);
  auto state = run.template argument<0>();
  state = run(state);
  state = other(state);
  const float* const at = state.data(N - 1);
  const std::int64_t made = ep::shared_buffer::allocations();
  for (int n = 0; n < 4; ++n) state = run(state);
  for (int n = 0; n < 4; ++n) {
    state = run(state);
    state = other(state);
  }
  CHECK(ep::shared_buffer::allocations() == made);
  CHECK(run.copied_bytes() + other.copied_bytes() == 0);
  CHECK(state.data(N - 1) == at);
  CHECK(ep::gather(world, state) == filled(14));
}

TEMPLATE_TEST_CASE_SIG("a kept handle of a donated state keeps its values", "[execute]", ((int N), N), 1, 2, 4) {
  ep::world world(mesh<N>::value);
  ep::runner<growing<N>> run(world);
  auto state = run.template argument<0>();
  state = run(state);
  const auto best = state;
  const std::int64_t shard = state.local_extents().elements() * 4;
  for (int n = 0; n < 5; ++n) state = run(state);
  CHECK(ep::gather(world, best) == filled(1));
  CHECK(ep::gather(world, state) == filled(6));
  CHECK(run.copied_bytes() == shard);  // by the first of these calls

  // The update is in place, without assignment: the argument is the result.
  auto p = run.template argument<0>();
  fill(p, 10);
  const auto before = p;
  run(p);
  const auto between = p;
  run(p);
  CHECK(ep::gather(world, p) == filled(12));
  CHECK(ep::gather(world, between) == filled(11));
  CHECK(ep::gather(world, before) == filled(10));
  CHECK(run.copied_bytes() == 3 * shard);

  // The user keeps a result by reference.
  const auto& r = run(p);
  const auto held = r;
  run(r);
  CHECK(ep::gather(world, r) == filled(14));
  CHECK(ep::gather(world, held) == filled(13));
}

TEST_CASE("an array that a call took is refused with the call's line", "[execute]") {
  ep::world world(mesh<2>::value);
  ep::runner<growing<2>> run(world);
  ep::runner<doubling<2>> use(world);
  const auto state = run.argument<0>();
  const int line = __LINE__ + 1;
  const auto next = run(state);
  const std::string call = "results_kept.cpp:" + std::to_string(line);
  CHECK_THROWS_AS(run(state), ep::argument_error);
  CHECK_THROWS_WITH(ep::gather(world, state),
                    Contains("f32[5@data], was donated as argument 0 of the call in") && Contains(call));
  CHECK_THROWS_WITH(use(state), Contains(call));
  CHECK_THROWS_WITH(state.data(0), Contains(call));
  CHECK_THROWS_WITH(ep::copy(state), Contains(call));
  CHECK(ep::gather(world, next) == filled(1));

  // It makes no difference whether the array that took the result lives on.
  const auto passed = run.argument<0>();
  const int passing = __LINE__ + 1;
  { const auto gone = run(passed); }
  CHECK_THROWS_WITH(ep::gather(world, passed), Contains("results_kept.cpp:" + std::to_string(passing)));
  CHECK_THROWS_AS(run(passed), ep::argument_error);

  // A reference takes nothing, and neither does a copy with memory of its own; an array that is made of it does.
  const auto p = run.argument<0>();
  const auto& r = run(p);
  const auto copied = ep::copy(r);
  CHECK(ep::gather(world, p) == filled(1));
  run(p);
  CHECK(ep::gather(world, p) == filled(2));
  CHECK(ep::gather(world, copied) == filled(1));
  const auto before = p;
  const auto held = r;
  CHECK_THROWS_AS(run(p), ep::argument_error);
  CHECK_THROWS_AS(ep::gather(world, before), ep::argument_error);
  CHECK(ep::gather(world, held) == filled(2));

  // The leaves of a tree whose results are taken.
  ep::runner<training<2>> train(world);
  const auto tree = train.argument<0>();
  const auto x = train.argument<1>();
  fill(x, 1);
  { const auto loss = train(tree, x).get<1>(); }
  CHECK(ep::gather(world, tree.weights) == filled(-1));
  { const auto weights = train(tree, x).get<0>().weights; }
  CHECK_THROWS_AS(ep::gather(world, tree.weights), ep::argument_error);
  CHECK(ep::gather(world, tree.moments) == filled(2));
  CHECK_THROWS_AS(train(tree, x), ep::argument_error);

  // Reading an array of partial sums takes nothing.
  ep::runner<adding<2>> add(world);
  const auto sum = add.argument<0>();
  const auto& total = add(sum, add.argument<1>());
  CHECK(ep::gather(world, total) == filled(0));
  CHECK(ep::gather(world, sum) == filled(0));
}

TEMPLATE_TEST_CASE_SIG("trees are kept and copied leaf by leaf", "[execute]", ((int N), N), 1, 2) {
  ep::world world(mesh<N>::value);
  ep::runner<training<N>> run(world);
  auto state = run.template argument<0>();
  const auto x = run.template argument<1>();
  fill(x, 1);
  const auto& results = run(state, x);
  state = results.template get<0>();
  const auto kept = state;
  const auto copied = ep::copy(state);
  CHECK(copied.weights.data(0) != state.weights.data(0));
  const auto loss = results.template get<1>();
  state = run(state, x).template get<0>();
  CHECK(ep::gather(world, state.weights) == filled(-3));
  CHECK(ep::gather(world, kept.weights) == filled(-1));
  CHECK(ep::gather(world, copied.weights) == filled(-1));
  CHECK(ep::gather(world, copied.moments) == filled(1));
  CHECK(ep::gather(world, loss)[0] == -5);
  CHECK(ep::gather(world, run(state, x).template get<1>())[0] == -30);
  fill(copied.moments, 7);
  CHECK(ep::gather(world, kept.moments) == filled(1));
}

TEMPLATE_TEST_CASE_SIG("arrays of pending sums are read as sums and written as one term", "[execute]", ((int N), N), 1,
                       2, 4) {
  ep::world world(mesh<N>::value);
  ep::runner<adding<N>> run(world);
  static_assert(adding<N>::collectives() == 0);
  const auto sum = run.template argument<0>();
  const auto x = run.template argument<1>();
  x.for_each([](float& e, std::int64_t at) { e = static_cast<float>(at); });
  run(sum, x);
  run(sum, x);
  const numbers expected{280, 296, 312, 328, 344};  // 2 (0 + 5 + ... + 35 + 8 column)
  CHECK(ep::gather(world, sum) == expected);

  // A checkpoint has the sums, whatever the mesh, and gives one device the whole of them.
  ep::runner<summing<N>> use(world);
  auto saved = use.template argument<0>();
  saved.weights = sum;
  fill(saved.moments, 3);
  CHECK(ep::gather(world, use(saved)) == expected);
  const auto path = std::filesystem::temp_directory_path() / ("espalier_terms_" + std::to_string(N));
  ep::save_checkpoint(world, saved, path);
  const auto loaded = use.template argument<0>();
  fill(loaded.weights, 77);
  ep::load_checkpoint(world, loaded, path);
  std::filesystem::remove(path);
  CHECK(ep::gather(world, loaded.weights) == expected);
  CHECK(ep::gather(world, loaded.moments) == filled(3));
  CHECK(ep::gather(world, use(loaded)) == expected);

  fill(loaded.weights, 5);
  CHECK(ep::gather(world, loaded.weights) == filled(5));
  CHECK(ep::gather(world, use(loaded)) == filled(5));
  const auto read = [&] { loaded.weights.for_each([](float /*e*/, std::int64_t /*at*/) {}); };
  if (N == 1) return;  // nothing is partial
  CHECK_THROWS_WITH(
      read(), Contains("for_each reads this device's terms of pending sums (f32[5] sum@data)") && Contains("gather"));
}

TEST_CASE("a runner without its world, and a world that has moved", "[execute]") {
  std::optional<ep::world> world(std::in_place, mesh<2>::value);
  ep::runner<doubling<2>> run(*world);
  const auto x = run.argument<0>();
  fill(x, 2);
  ep::world other(std::move(*world));
  CHECK(ep::gather(other, run(x)) == filled(4));
  CHECK_THROWS_WITH(ep::gather(*world, x), Contains("this world was moved from"));
  world.reset();
  const auto kept = run(x);
  { const ep::world last(std::move(other)); }
  CHECK_THROWS_AS(run(x), ep::argument_error);
  CHECK_THROWS_WITH(run(x), Contains("this runner's world is gone"));
  CHECK_THROWS_WITH(run.argument<0>(), Contains("this runner's world is gone"));
  CHECK(kept.data(0)[0] == 4);
}

TEST_CASE("copies of a replicated array that differ are named, or made equal", "[checks]") {
  ep::world world(mesh<4>::value);
  setenv("ESPALIER_CHECK", "replicas:2,nan", 1);
  ep::runner<training<4>> run(world);
  ep::runner<doubling<4>> split(world);
  unsetenv("ESPALIER_CHECK");
  const auto state = run.argument<0>();
  const auto x = run.argument<1>();
  fill(x, 1);
  run(state, x);
  state.moments.data(2)[3] = 0.25F;
  state.moments.data(2)[4] = 7;
  state.moments.data(3)[1] = 7;
  run(state, x);                                      // is not looked at
  CHECK_THROWS_AS(run(state, x), ep::replica_error);  // the weights differ by now
  run(state, x);
  CHECK_THROWS_WITH(run(state, x), Contains("argument 0.weights of the program, f32[5], differs") &&
                                       Contains("on rank 2, 3 it is not") &&
                                       Contains("The first element that differs is (3): ") &&
                                       Contains("ep::broadcast_from_root"));
  ep::broadcast_from_root(world, state);
  run(state, x);
  CHECK_NOTHROW(run(state, x));
  for (int k = 1; k < 4; ++k)
    CHECK(numbers(state.moments.data(k), state.moments.data(k) + 5) == ep::gather(world, state.moments));

  // Sharded ones have no copies, and what pads them is not compared.
  const auto y = split.argument<0>();
  fill(y, 3);
  y.data(3)[1] = 9;
  CHECK(ep::gather(world, split(y)) == filled(6));
  setenv("ESPALIER_CHECK", "replica", 1);
  CHECK_THROWS_AS(ep::runner<doubling<4>>(world), std::invalid_argument);
  unsetenv("ESPALIER_CHECK");
}

namespace {

/// Uneven along both dimensions.
using table = ep::f32<5, 7>;
struct rows : ep::axis<"rows", 2> {};
struct columns : ep::axis<"columns", 2> {};
using grid = ep::mesh<rows, columns>;
struct as_given {
  constexpr auto operator()(auto x) const { return x * 1; }
};
struct across {
  constexpr auto operator()(auto x) const { return ep::reshard<ep::none, data<4>>(ep::shard<data<4>, ep::none>(x)); }
};
template <class Mesh, class... Entries> using holding = ep::program<Mesh, as_given, ep::sharded<table, Entries...>>;
std::vector<std::int64_t> bytes_sent(ep::world& world) {
  std::vector<std::int64_t> sent(static_cast<std::size_t>(world.local_devices()));
  world.on_devices([&](int local, ep::comm::any_communicator& communicator) {
    for (const std::int64_t bytes : communicator.counters()) sent[static_cast<std::size_t>(local)] += bytes;
    communicator.reset_counters();
  });
  return sent;
}

/// Elements that a device lacks, over all devices: those of its new box that are not in the old one.
template <class Array> std::int64_t lacked_bytes(const Array& from, const Array& into) {
  std::int64_t elements = 0;
  for (int k = 0; k < from.local_count(); ++k) {
    for (std::int64_t flat = 0; flat < Array::tensor::shape.elements(); ++flat) {
      const auto holds = [&](const Array& array) {
        const ep::interval r = array.held(k, 0);
        const ep::interval c = array.held(k, 1);
        return flat / 7 >= r.start && flat / 7 < r.start + r.size && flat % 7 >= c.start && flat % 7 < c.start + c.size;
      };
      if (holds(into) && !holds(from)) ++elements;
    }
  }
  return elements * static_cast<std::int64_t>(sizeof(typename Array::value_type));
}

template <class From, class To> void check_reshard(ep::world& here, ep::world& there) {
  ep::runner<From> first(here);
  ep::runner<To> second(there);
  const auto x = first.template argument<0>();
  const auto y = second.template argument<0>();
  x.for_each([](float& e, std::int64_t at) { e = static_cast<float>(at + 1); });
  (void)bytes_sent(here);
  ep::reshard(here, x, y);
  std::int64_t sent = 0;
  for (const std::int64_t bytes : bytes_sent(here)) sent += bytes;
  CHECK(sent == lacked_bytes(x, y));
  numbers expected;
  for (int n = 1; n <= 35; ++n) expected.push_back(static_cast<float>(n));
  CHECK(ep::gather(there, second(y)) == expected);
}

}  // namespace

TEST_CASE("an array is laid out anew between programs and meshes", "[execute]") {
  using ep::none;
  ep::world line(mesh<4>::value);
  ep::world square(grid::value);
  using by_rows = holding<mesh<4>, data<4>, none>;
  using by_columns = holding<mesh<4>, none, data<4>>;
  using whole = holding<mesh<4>, none, none>;
  using tiles = holding<grid, rows, columns>;
  using swapped = holding<grid, columns, rows>;
  using minor = holding<grid, none, columns>;
  check_reshard<by_rows, by_columns>(line, line);
  check_reshard<by_columns, by_rows>(line, line);
  check_reshard<by_rows, whole>(line, line);
  check_reshard<whole, by_columns>(line, line);
  check_reshard<by_rows, by_rows>(line, line);
  check_reshard<tiles, swapped>(square, square);
  check_reshard<minor, tiles>(square, square);
  check_reshard<by_rows, tiles>(line, square);
  check_reshard<swapped, by_columns>(square, line);
  check_reshard<minor, by_rows>(square, line);

  // The bytes are as many as those of a program's exchange.
  using crossing = ep::program<mesh<4>, across, ep::sharded<table, data<4>, none>>;
  ep::runner<crossing> cross(line);
  const auto x = cross.argument<0>();
  (void)bytes_sent(line);
  const auto expected = cross(x);
  const std::vector<std::int64_t> in_program = bytes_sent(line);
  ep::runner<by_columns> hold(line);
  const auto y = hold.argument<0>();
  ep::reshard(line, x, y);
  CHECK(bytes_sent(line) == in_program);

  // Sums are carried out, and written as one term.
  ep::runner<adding<4>> add(line);
  ep::runner<doubling<4>> split(line);
  const auto sum = add.argument<0>();
  const auto rows_given = add.argument<1>();
  rows_given.for_each([](float& e, std::int64_t /*at*/) { e = 1; });
  add(sum, rows_given);
  const auto split_sum = split.argument<0>();
  ep::reshard(line, ep::sharded_array<vector>(sum), split_sum);
  CHECK(ep::gather(line, split_sum) == filled(8));
  ep::reshard(line, split_sum, sum);
  CHECK(ep::gather(line, sum) == filled(8));

  ep::world two(mesh<2>::value);
  ep::runner<doubling<2>> fewer(two);
  CHECK_THROWS_WITH(ep::reshard(line, split_sum, fewer.argument<0>()),
                    Contains("reshard: the array to be filled lies on data 2, and the world is one of data 4"));
  CHECK_THROWS_WITH(ep::reshard(line, ep::sharded_array<vector>(), split_sum), Contains("empty"));
}

TEST_CASE("arrays are printed with layout and a few elements", "[execute]") {
  const auto text = [](const auto& what) {
    std::ostringstream out;
    out << what;
    return out.str();
  };
  ep::world world(mesh<2>::value);
  ep::runner<doubling<2>> run(world);
  const auto x = run.argument<0>();
  x.for_each([](float& e, std::int64_t at) { e = static_cast<float>(at) / 4; });
  CHECK(text(run(x)) == "f32[5@data]: 0, 0.5, 1, 1.5, 2");
  CHECK(text(ep::sharded_array<vector>()) == "an empty array");
  ep::runner<training<2>> train(world);
  const auto state = train.argument<0>();
  CHECK(text(state.weights) == "f32[5]: 0, 0, 0, 0, 0");
  CHECK(text(train(state, train.argument<1>())) == "f32[5]: 0, 0, 0, 0, 0\nf32[5]: 0, 0, 0, 0, 0\nf32[]: 0");
  ep::runner<adding<2>> add(world);
  const auto& sum = add(add.argument<0>(), add.argument<1>());
  CHECK_THAT(text(sum), Contains("pending sums, which gather adds up"));
  using long_one = ep::program<grid, as_given, ep::sharded<ep::i64<3, 5>, rows, columns>>;
  ep::world square(grid::value);
  ep::runner<long_one> hold(square);
  const auto y = hold.argument<0>();
  y.for_each([](std::int64_t& e, std::int64_t at) { e = at; });
  CHECK(text(y) == "i64[3@rows, 5@columns]: 0, 1, 2, 3, 4, 5, ..., 13, 14");
}
