// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// ranks: 1 2 3 4 8

#include <espalier/comm/host/collectives.hpp>
#include <espalier/comm/run/arrival_list.hpp>

#include <catch2/catch.hpp>
#include <support/mpi_require.hpp>

#include <chrono>
#include <string>

namespace {

using espalier::comm::host_collectives;
using espalier::comm::detail::arrival_list;

constexpr std::chrono::duration<double> patience{20};

int rank_of() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int size_of() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// The first half of the ranks, and the second: taken for two hosts.
MPI_Comm half_of_world() {
  MPI_Comm half{};
  MPI_Comm_split(MPI_COMM_WORLD, rank_of() < (size_of() + 1) / 2 ? 0 : 1, 0, &half);
  return half;
}

/// All ranks but the last come to a call, then that one as well.
template <class Expect> void last_is_late(arrival_list& list, const Expect& expect) {
  for (std::uint64_t call = 1; call < 4; ++call) {
    const bool late = rank_of() == size_of() - 1 && size_of() > 1;
    if (!late) list.enter(call, {});
    MPI_Barrier(MPI_COMM_WORLD);
    expect(call, size_of() > 1);
    MPI_Barrier(MPI_COMM_WORLD);
    if (late) list.enter(call, {});
    MPI_Barrier(MPI_COMM_WORLD);
    expect(call, false);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST_CASE("who has not come to a call is named, in memory of its own and in that of host collectives", "[mpi]") {
  const std::string last = "rank " + std::to_string(size_of() - 1) + " did not come";
  const auto check = [&](arrival_list& list) {
    last_is_late(list, [&](std::uint64_t call, bool misses) {
      REQUIRE_ALL(MPI_COMM_WORLD, list.knows(call));
      REQUIRE_ALL(MPI_COMM_WORLD, list.text_of(call) == (misses ? last : "all ranks came, and it did not end"));
    });
  };
  MPI_Comm everyone{};
  MPI_Comm_dup(MPI_COMM_WORLD, &everyone);
  arrival_list own(MPI_COMM_WORLD, everyone, patience);
  check(own);
  const host_collectives shared(MPI_COMM_WORLD);
  arrival_list lent(shared.notices(), rank_of());
  check(lent);
}

TEST_CASE("of ranks on other hosts nothing is claimed", "[mpi]") {
  if (size_of() < 2) return;
  const int first = (size_of() + 1) / 2;
  const bool in_first = rank_of() < first;
  std::string others =
      size_of() == 2 || (!in_first && first == 1) || (in_first && size_of() - first == 1) ? "rank" : "ranks";
  for (int r = in_first ? first : 0; r < (in_first ? size_of() : first); ++r) {
    others += (r == (in_first ? first : 0) ? " " : ", ") + std::to_string(r);
  }
  const std::string unseen = "whether " + others + " on other hosts did cannot be seen from here";
  arrival_list list(MPI_COMM_WORLD, half_of_world(), patience);
  last_is_late(list, [&](std::uint64_t call, bool misses) {
    const bool here = misses && !in_first;
    const std::string expected = here ? "rank " + std::to_string(size_of() - 1) + " did not come; " + unseen
                                      : "all ranks of this host came; " + unseen;
    INFO(list.text_of(call));
    REQUIRE_ALL(MPI_COMM_WORLD, list.text_of(call) == expected);
    REQUIRE_ALL(MPI_COMM_WORLD, list.knows(call) == here);
  });
}

}  // namespace
