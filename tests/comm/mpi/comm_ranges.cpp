// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never

// Collectives as programs of Boost.MPI call them, against Boost.MPI's own on the same ranks.

#include <espalier/comm.hpp>

#include <boost/mpi/collectives.hpp>
#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <support/mpi_require.hpp>
#include <xtensor/xtensor.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

namespace {

using namespace espalier::comm;
namespace bm = boost::mpi;

/// A class of the program's, with a gap in it, whose product does not commute: x -> a x + b.
struct affine {
  std::int16_t a = 1;
  std::int64_t b = 0;
  template <class Archive> void serialize(Archive& archive, unsigned) { archive& a& b; }
  friend bool operator==(const affine&, const affine&) = default;
};
/// First the left one, then the right one.
struct compose {
  affine operator()(const affine& l, const affine& r) const {
    return {static_cast<std::int16_t>(l.a * r.a), r.a * l.b + r.b};
  }
};

std::vector<std::optional<choice>> ways() {
  return {std::nullopt, choice{method::trees, 64}, choice{method::low_latency, 0}, choice{method::library, 0},
          choice{method::shared, 0}};
}
collectives_options by(const std::optional<choice>& way) {
  collectives_options options;
  options.forced = way;
  return options;
}

template <class T> std::vector<T> numbers_of(int rank, std::size_t count) {
  std::vector<T> made(count);
  for (std::size_t n = 0; n < count; ++n) made[n] = static_cast<T>((static_cast<std::size_t>(rank) * 7 + n * 3) % 11);
  return made;
}

}  // namespace

namespace boost::mpi {
template <> struct is_mpi_datatype<affine> : mpl::true_ {};
}  // namespace boost::mpi

TEST_CASE("ranges of numbers: as Boost.MPI's collectives", "[ranges]") {
  const bm::communicator world;
  const int ranks = world.size();
  const auto parts = static_cast<std::size_t>(ranks);
  const topology machine = probe(world);
  for (const std::optional<choice>& way : ways()) {
    collectives all(world, machine, by(way));
    for (int again = 0; again < 3; ++again) {
      const std::vector<double> mine = numbers_of<double>(world.rank(), 13 * parts);
      std::vector<double> wanted(mine.size());
      std::vector<double> found(mine.size());
      bm::all_reduce(world, mine.data(), static_cast<int>(mine.size()), wanted.data(), std::plus<double>());
      all_reduce(all, mine, found, std::plus<>());
      REQUIRE_ALL(world, found == wanted);
      bm::all_reduce(world, mine.data(), static_cast<int>(mine.size()), wanted.data(), bm::maximum<double>());
      all_reduce(all, mine, found, bm::maximum<double>());
      REQUIRE_ALL(world, found == wanted);

      const std::vector<unsigned short> bits = numbers_of<unsigned short>(world.rank(), 5);
      std::vector<unsigned short> either(5);
      bm::all_reduce(world, bits.data(), 5, either.data(), bm::bitwise_or<unsigned short>());
      std::array<unsigned short, 5> in_place{};
      std::copy(bits.begin(), bits.end(), in_place.begin());
      all_reduce(all, in_place, bm::bitwise_or<unsigned short>());
      REQUIRE_ALL(world, std::equal(either.begin(), either.end(), in_place.begin()));
      REQUIRE_ALL(world, all_reduce(all, world.rank() + 1, std::multiplies<>()) ==
                             bm::all_reduce(world, world.rank() + 1, std::multiplies<int>()));

      const int root = ranks - 1;
      std::vector<double> part(13);
      reduce_scatter(all, mine, part, std::plus<>());
      std::vector<double> sums(mine.size());
      bm::all_reduce(world, mine.data(), static_cast<int>(mine.size()), sums.data(), std::plus<double>());
      REQUIRE_ALL(world, std::equal(part.begin(), part.end(), sums.begin() + 13 * world.rank()));
      std::vector<double> rooted(world.rank() == root ? mine.size() : 0);
      reduce(all, mine, rooted, std::plus<>(), root);
      REQUIRE_ALL(world, (world.rank() != root || rooted == sums));

      std::vector<float> all_rows(4 * parts);
      const std::vector<float> row = numbers_of<float>(world.rank(), 4);
      all_gather(all, row, std::span(all_rows));
      std::vector<float> expected;
      bm::all_gather(world, row.data(), 4, expected);
      REQUIRE_ALL(world, all_rows == expected);
      std::vector<float> rows_of_root(world.rank() == 0 ? 4 * parts : 0);
      gather(all, row, rows_of_root, 0);
      REQUIRE_ALL(world, (world.rank() != 0 || rows_of_root == expected));
      std::vector<float> back(4);
      scatter(all, rows_of_root, back, 0);
      REQUIRE_ALL(world, back == row);
      std::vector<float> exchanged(4 * parts);
      all_to_all(all, expected, exchanged);
      for (std::size_t r = 0; r < parts; ++r) {
        REQUIRE_ALL(world, std::equal(row.begin(), row.end(), exchanged.begin() + static_cast<std::ptrdiff_t>(4 * r)));
      }
      xt::xtensor<float, 2> table = xt::zeros<float>({2, 3});
      if (world.rank() == root) table(1, 2) = 5;
      broadcast(all, std::span(table.data(), table.size()), root);
      REQUIRE_ALL(world, table(1, 2) == 5.0F);
    }
  }
}

TEST_CASE("objects of a program's own class, combined in the order of ranks", "[ranges]") {
  const bm::communicator world;
  const topology machine = probe(world);
  for (const std::optional<choice>& way : ways()) {
    collectives all(world, machine, by(way));
    for (int again = 0; again < 3; ++again) {
      std::vector<affine> mine(9);
      for (std::size_t n = 0; n < mine.size(); ++n) {
        mine[n] = {static_cast<std::int16_t>(world.rank() % 2 == 0 ? 3 : -2), world.rank() + static_cast<int>(n)};
      }
      std::vector<affine> wanted(mine.size());
      bm::all_reduce(world, mine.data(), static_cast<int>(mine.size()), wanted.data(), compose());
      std::vector<affine> found(mine.size());
      all_reduce(all, mine, found, compose());
      REQUIRE_ALL(world, found == wanted);
      std::vector<affine> gathered(mine.size() * static_cast<std::size_t>(world.size()));
      all_gather(all, mine, gathered);
      std::vector<affine> expected;
      bm::all_gather(world, mine.data(), static_cast<int>(mine.size()), expected);
      REQUIRE_ALL(world, gathered == expected);
    }
  }
}

TEST_CASE("ranges whose sizes do not fit are named before anything is sent", "[ranges]") {
  const bm::communicator world;
  collectives all(world, probe(world));
  const std::vector<int> three(3);
  std::vector<int> four(4);
  REQUIRE_THROWS_WITH(all_reduce(all, three, four, std::plus<>()),
                      "all_reduce: 3 elements go in and 4 come out, but they must be as many");
  REQUIRE_THROWS_WITH(all_gather(all, three, four), Catch::Matchers::Contains("needs as many for each rank"));
  all_reduce(all, four, std::plus<>());  // and goes on
}
