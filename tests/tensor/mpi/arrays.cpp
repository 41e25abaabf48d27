// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 120
// dies([carry_is_infinite]): 4 iteration 1: carry is inf at .7. of f32.8@data., on device 3
// dies([quotient_is_infinite]): 2 =nan: divide at [^ ]*arrays.cpp:[0-9]+, gives inf at .6. of f32.8@data., on device 1
// dies([gather_of_root]): 2 rank 0 waited 1 s in exchange for rank 1[^a-z]+instruction: gather .[^ ]*arrays.cpp:[0-9]+.

#include <catch2/catch.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/run/execute/copy.hpp>
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/replicas.hpp>
#include <espalier/tensor/run/execute/reshard.hpp>
#include <espalier/tensor/run/execute/runner.hpp>
#include <espalier/tensor/run/io/checkpoint.hpp>
#include <support/mpi_ranks.hpp>
#include <support/mpi_require.hpp>
#include <support/written.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

/// The arrays that a user keeps of a run, where each rank is a process: kept by all ranks, or by some.
namespace ep = espalier;

namespace {

using numbers = std::vector<float>;
using vector = ep::f32<5>;

template <int N> struct data : ep::axis<"data", N> {};
template <int N> using mesh = ep::mesh<data<N>>;
/// Every element of the result needs those of all ranks.
template <int N> struct grow {
  constexpr auto operator()(auto x) const { return ep::shard<data<N>>(x) + ep::sum(ep::shard<data<N>>(x)) * 0 + 1; }
};
template <int N> using growing = ep::program<mesh<N>, grow<N>, vector>;
template <int N> using in_place = ep::program<mesh<N>, grow<N>, ep::donated<vector>>;
template <int N> using terms = ep::sharded<vector, ep::none, ep::unreduced<data<N>>>;
template <int N> struct add_up {
  constexpr auto operator()(auto sum, auto x) const {
    const auto parts = ep::sum<0>(ep::shard<data<N>, ep::none>(x));
    return ep::shard<ep::none, ep::unreduced<data<N>>>(sum + parts);
  }
};
template <int N> using adding = ep::program<mesh<N>, add_up<N>, ep::donated<terms<N>>, ep::f32<8, 5>>;
struct plus {
  constexpr auto operator()(auto x, auto y) const { return x + y; }
};
template <int N> using whole = ep::program<mesh<N>, plus, ep::sharded<vector, ep::none>, ep::sharded<vector, ep::none>>;

/// Looks at what ranks share and at what they have alone, and in a loop.
template <int N> struct look {
  constexpr auto operator()(auto x, auto steps) const {
    const auto split = ep::shard<data<N>>(x);
    ep::print(ep::sum(split), "shared");
    const auto body = [](auto carry, auto step) { return ep::check_finite(ep::print(carry * step, "own"), "carry"); };
    return ep::scan(body, ep::print(split, "split"), steps);
  }
};
template <int N> using looking = ep::program<mesh<N>, look<N>, ep::f32<8>, ep::f32<3>>;
/// Each rank divides its own elements.
template <int N> struct divide {
  constexpr auto operator()(auto x) const { return 1.0 / (ep::shard<data<N>>(x) - 3.0); }
};
template <int N> using dividing = ep::program<mesh<N>, divide<N>, ep::f32<8>>;

numbers filled(float value) { return numbers(5, value); }
template <class Array> void fill(const Array& array, float value) {
  array.for_each([&](float& e, std::int64_t) { e = value; });
}

template <class Body> void on_all_ranks(const Body& body) {
  const int ranks = ep::test::size_of();
  const auto run = [&]<int N>(std::integral_constant<int, N>) {
    if (ranks != N) return;
    int argc = 0;
    char** argv = nullptr;
    ep::world world(argc, argv, mesh<N>{});
    body(world, std::integral_constant<int, N>{});
  };
  run(std::integral_constant<int, 1>{});
  run(std::integral_constant<int, 2>{});
  run(std::integral_constant<int, 4>{});
  run(std::integral_constant<int, 8>{});
}

}  // namespace

TEST_CASE("results and donated arrays that some ranks keep stay as they are") {
  on_all_ranks([]<int N>(ep::world& world, std::integral_constant<int, N>) {
    ep::runner<growing<N>> run(world);
    auto x = run.template argument<0>();
    fill(x, 1);
    std::vector<ep::sharded_array<vector>> kept;
    for (int n = 0; n < 4; ++n) {
      x = run(x);
      // Odd ranks keep them, with memory of their own for the next result; the others use two buffers in turn.
      if (world.device(0) % 2 == 1) kept.push_back(x);
    }
    REQUIRE_ALL(MPI_COMM_WORLD, ep::gather(world, x) == filled(5));
    bool same = true;
    for (std::size_t n = 0; n < kept.size(); ++n) {
      kept[n].for_each([&](const float& e, std::int64_t) { same = same && e == static_cast<float>(n + 2); });
    }
    REQUIRE_ALL(MPI_COMM_WORLD, same);

    ep::runner<in_place<N>> train(world);
    auto state = train.template argument<0>();
    state = train(state);
    const std::int64_t made = ep::shared_buffer::allocations();
    for (int n = 0; n < 3; ++n) state = train(state);
    REQUIRE_ALL(MPI_COMM_WORLD, ep::shared_buffer::allocations() == made);
    ep::sharded_array<vector> best;
    if (world.is_root()) best = state;
    for (int n = 0; n < 3; ++n) state = train(state);
    REQUIRE_ALL(MPI_COMM_WORLD, (train.copied_bytes() > 0) == world.is_root());
    REQUIRE_ALL(MPI_COMM_WORLD, ep::gather(world, state) == filled(7));
    bool kept_best = true;
    best.for_each([&](const float& e, std::int64_t) { kept_best = kept_best && e == 4; });
    REQUIRE_ALL(MPI_COMM_WORLD, kept_best);
  });
}

TEST_CASE("arrays of terms, copies that differ, and new layouts, over ranks") {
  on_all_ranks([]<int N>(ep::world& world, std::integral_constant<int, N>) {
    ep::runner<adding<N>> add(world);
    const auto sum = add.template argument<0>();
    const auto rows = add.template argument<1>();
    rows.for_each([](float& e, std::int64_t at) { e = static_cast<float>(at); });
    add(sum, rows);
    const numbers expected{140, 148, 156, 164, 172};
    REQUIRE_ALL(MPI_COMM_WORLD, ep::gather(world, sum) == expected);
    ep::runner<growing<N>> split(world);
    const auto part = split.template argument<0>();
    ep::reshard(world, ep::sharded_array<vector>(sum), part);
    REQUIRE_ALL(MPI_COMM_WORLD, ep::gather(world, part) == expected);

    setenv("ESPALIER_CHECK", "replicas:1,nan", 1);
    ep::runner<whole<N>> use(world);
    unsetenv("ESPALIER_CHECK");
    const auto x = use.template argument<0>();
    const auto y = use.template argument<1>();
    fill(x, 3);
    fill(y, 1);
    if (world.device(0) == N - 1) y.data(0)[2] = 0.5F;
    std::string text;
    try {
      use(x, y);
    } catch (const ep::replica_error& error) { text = error.what(); }
    const std::string wanted = "on rank " + std::to_string(N - 1) + " it is not as on rank 0. The first element that " +
                               "differs is (2): 1 on rank 0, 0.5 on rank " + std::to_string(N - 1);
    REQUIRE_ALL(MPI_COMM_WORLD, (N == 1 ? text.empty() : text.find("argument 1 of") != std::string::npos));
    REQUIRE_ALL(MPI_COMM_WORLD, (N == 1 || text.find(wanted) != std::string::npos));
    ep::broadcast_from_root(world, y);
    if (N > 1) REQUIRE_ALL(MPI_COMM_WORLD, ep::gather(world, use(x, y)) == filled(4));
  });
}

TEST_CASE("each rank shows what it has, and what all have is shown once") {
  on_all_ranks([]<int N>(ep::world& world, std::integral_constant<int, N>) {
    ep::runner<looking<N>> run(world);
    const auto x = run.template argument<0>();
    const auto steps = run.template argument<1>();
    x.for_each([](float& e, std::int64_t at) { e = static_cast<float>(at); });
    steps.for_each([](float& e, std::int64_t) { e = 2; });
    numbers result;
    const std::string text = testing::written_by([&] { result = ep::gather(world, run(x, steps)); });
    const int device = world.device(0);
    const std::string mine = ", device " + std::to_string(device);
    REQUIRE_ALL(MPI_COMM_WORLD, result == numbers{0, 8, 16, 24, 32, 40, 48, 56});
    REQUIRE_ALL(MPI_COMM_WORLD, testing::count_of(text, "shared: f32[] at ") == (device == 0 ? 1 : 0));
    REQUIRE_ALL(MPI_COMM_WORLD, testing::count_of(text, "split: f32[8") == 1);
    REQUIRE_ALL(MPI_COMM_WORLD, testing::count_of(text, "own: f32[8") == 3);
    REQUIRE_ALL(MPI_COMM_WORLD, testing::count_of(text, mine) == (device == 0 ? 5 : 4));
    REQUIRE_ALL(MPI_COMM_WORLD, testing::count_of(text, "iteration 2" + mine) == 1);
  });
}

// An exception on one rank ends the job: the last words are its own.
TEST_CASE("check_finite of the last rank's element, in a loop", "[.][carry_is_infinite]") {
  on_all_ranks([]<int N>(ep::world& world, std::integral_constant<int, N>) {
    ep::runner<looking<N>> run(world);
    const auto x = run.template argument<0>();
    const auto steps = run.template argument<1>();
    x.for_each([](float& e, std::int64_t at) { e = at == 7 ? 9.0F : 0.0F; });
    steps.for_each([](float& e, std::int64_t at) { e = at == 0 ? 1.0F : 1e38F; });
    run(x, steps);
    CHECK(ep::gather(world, x).empty());  // no rank comes here
  });
}

TEST_CASE("ESPALIER_CHECK=nan on the rank that has the element", "[.][quotient_is_infinite]") {
  on_all_ranks([]<int N>(ep::world& world, std::integral_constant<int, N>) {
    setenv("ESPALIER_CHECK", "nan", 1);
    ep::runner<dividing<N>> run(world);
    const auto x = run.template argument<0>();
    x.for_each([](float& e, std::int64_t) { e = 1; });
    REQUIRE_ALL(MPI_COMM_WORLD, ep::gather(world, run(x)) == numbers(8, -0.5F));
    x.for_each([](float& e, std::int64_t at) { e = static_cast<float>(at == 6 ? 3 : -at); });
    run(x);
    CHECK(ep::gather(world, x).empty());
  });
}

TEST_CASE("gather that only the root calls", "[.][gather_of_root]") {
  setenv("ESPALIER_DEADLINE_SECONDS", "1", 1);
  on_all_ranks([]<int N>(ep::world& world, std::integral_constant<int, N>) {
    ep::runner<growing<N>> run(world);
    const auto x = run.template argument<0>();
    if (world.is_root()) {
      CHECK(ep::gather(world, x) == filled(0));
    } else {
      std::this_thread::sleep_for(std::chrono::seconds(3));  // it has forgotten
    }
  });
}
