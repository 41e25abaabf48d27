// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// ranks: 2 4
// timeout: 120
// lab([lab_slowdown]): star "400mbit 400mbit 400mbit 400mbit"

#include <espalier/comm.hpp>

#include <catch2/catch.hpp>
#include <support/mpi_ranks.hpp>
#include <support/mpi_require.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace espalier::comm;
using espalier::dtype;
using espalier::reduction;
using espalier::test::is_as_on_rank_0;
using espalier::test::rank_in;
using espalier::test::size_of;

element sums() { return element_of(dtype::f32, reduction::sum); }

/// All pairs linked alike.
network complete(double rate) {
  const auto n = static_cast<std::size_t>(size_of());
  std::vector<std::vector<double>> rates(n, std::vector<double>(n, rate));
  for (std::size_t r = 0; r < n; ++r) rates[r][r] = 0;
  return network_of(from_adjacency(rates));
}

collectives_options watchful(const network& found, int* probed) {
  collectives_options options;
  options.forced = choice{method::low_latency, 0};
  options.watch.least_bytes = 1;
  options.watch.cool_down = 0;
  options.watch.limits.window = 4;
  options.watch.limits.factor = 3;
  options.watch.probe = [found, probed](MPI_Comm) {
    ++*probed;
    return found;
  };
  return options;
}

std::string text_of(const std::vector<network_event>& events) {
  std::string text;
  for (const network_event& e : events) text += e.text + '\n';
  return text;
}

void pause_on(int rank, int milliseconds) {
  if (rank_in() == rank) std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

/// Makes calls in which no rank is late, then some in which a broadcast's root is, so that all others wait.
void late_broadcasts(collectives& all) {
  std::vector<float> data(100, 1);
  for (int n = 0; n < 12; ++n) all.broadcast(data.data(), 100, sums(), 0);
  for (int n = 0; n < 12; ++n) {
    pause_on(0, 20);
    all.broadcast(data.data(), 100, sums(), 0);
  }
}

}  // namespace

TEST_CASE("what became slow is probed once and planned anew, on all ranks alike", "[collectives]") {
  int probed = 0;
  collectives all(MPI_COMM_WORLD, complete(10), watchful(complete(2), &probed));
  late_broadcasts(all);
  const std::string text = text_of(all.events());
  INFO(text);
  REQUIRE_ALL(MPI_COMM_WORLD, probed == 1);
  REQUIRE_ALL(MPI_COMM_WORLD, all.events().size() == 2);
  REQUIRE_ALL(MPI_COMM_WORLD, text.find("broadcast of 400 bytes takes 0.0") == 0);
  REQUIRE_ALL(MPI_COMM_WORLD, text.find("there were 10000 MB/s, now there are 2000 MB/s") != std::string::npos);
  REQUIRE_ALL(MPI_COMM_WORLD, is_as_on_rank_0(text.substr(text.find("from rank"))));
  REQUIRE_ALL(MPI_COMM_WORLD, edge_rate(all.over(), all.over().edges.front()) == Approx(2e9));
  std::vector<float> data(100, static_cast<float>(all.rank()));
  std::vector<float> result(data.size());
  all.all_reduce(data.data(), result.data(), 100, sums());
  const auto right = static_cast<float>(size_of() * (size_of() - 1) / 2);
  REQUIRE_ALL(MPI_COMM_WORLD, std::all_of(result.begin(), result.end(), [&](float x) { return x == right; }));
}

TEST_CASE("where the network is as it was, nothing is planned anew", "[collectives]") {
  int probed = 0;
  collectives all(MPI_COMM_WORLD, complete(10), watchful(complete(9), &probed));
  late_broadcasts(all);
  const std::string text = text_of(all.events());
  INFO(text);
  REQUIRE_ALL(MPI_COMM_WORLD, probed == 1);
  REQUIRE_ALL(MPI_COMM_WORLD, text.find("no way between two ranks has changed") != std::string::npos);
  collective_call call = uniform_call(collective::broadcast, size_of(), 100);
  call.in_place = true;
  REQUIRE_ALL(MPI_COMM_WORLD, all.settled(call, sums()).has_value());
}

TEST_CASE("no probe before the cool-down is over, and none when nothing is watched", "[collectives]") {
  for (const bool watched : {false, true}) {
    int probed = 0;
    collectives_options options = watchful(complete(2), &probed);
    if (watched) {
      options.watch.cool_down = 3600;
    } else {
      options.watch.limits.factor = 0;
    }
    collectives all(MPI_COMM_WORLD, complete(10), options);
    late_broadcasts(all);
    REQUIRE_ALL(MPI_COMM_WORLD, (probed == 0 && all.events().empty()));
  }
}

TEST_CASE("without a probe, what becomes slow is noted once", "[collectives]") {
  collectives_options options = watchful({}, nullptr);
  options.watch.probe = nullptr;
  collectives all(MPI_COMM_WORLD, complete(10), options);
  late_broadcasts(all);
  const std::string text = text_of(all.events());
  INFO(text);
  REQUIRE_ALL(MPI_COMM_WORLD, all.events().size() == 1);
  REQUIRE_ALL(MPI_COMM_WORLD, text.find("times what was usual\n") != std::string::npos);
}

TEST_CASE("a rank that comes late to what all wait for is not a slow network", "[collectives]") {
  int probed = 0;
  collectives_options options = watchful(complete(2), &probed);
  options.watch.limits.window = 8;
  options.watch.limits.factor = 5;
  collectives all(MPI_COMM_WORLD, complete(10), options);
  std::vector<float> data(300000, 1);
  std::vector<float> result(data.size());
  for (int n = 0; n < 48; ++n) {
    if (n >= 16) pause_on(1, 30);
    all.all_reduce(data.data(), result.data(), static_cast<std::int64_t>(data.size()), sums());
  }
  INFO(text_of(all.events()));
  REQUIRE_ALL(MPI_COMM_WORLD, (probed == 0 && all.events().empty()));
}

TEST_CASE("a card that slows down while the program runs", "[.][lab_slowdown]") {
  collectives_options options;
  options.watch.cool_down = 1;
  options.watch.least_bytes = 1 << 19;
  options.watch.limits.window = 4;
  collectives all(MPI_COMM_WORLD, probe(MPI_COMM_WORLD), options);
  const collective_call call = uniform_call(collective::all_reduce, size_of(), 1 << 18);
  std::vector<float> data(1 << 18, 1);
  std::vector<float> result(data.size());
  bool right = true;
  const auto seconds_of_one = [&] {
    const auto start = std::chrono::steady_clock::now();
    all.run(call, data.data(), result.data(), sums());
    right =
        right && std::all_of(result.begin(), result.end(), [](float x) { return x == static_cast<float>(size_of()); });
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  // The time for which all ranks wait, and the usual one: a token bucket lets a first call pass; a call may be late.
  const auto usual = [](std::vector<double> seconds) {
    MPI_Allreduce(MPI_IN_PLACE, seconds.data(), static_cast<int>(seconds.size()), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
    return seconds[seconds.size() / 2];
  };
  const auto seconds_of = [&](int calls) {
    std::vector<double> seconds;
    for (int n = 0; n < calls; ++n) seconds.push_back(seconds_of_one());
    return usual(seconds);
  };
  const auto settle = [&] {
    for (int n = 0; n < 300 && !all.settled(call, sums()); ++n) (void)seconds_of_one();
  };
  settle();
  const double fast = seconds_of(9);
  REQUIRE_ALL(MPI_COMM_WORLD, all.events().empty());
  const int slowed =
      rank_in() == 2 ? std::system("tc qdisc change dev data root tbf rate 30mbit burst 32kb latency 200ms") : 0;
  REQUIRE_ALL(MPI_COMM_WORLD, slowed == 0);
  std::vector<double> slowed_calls;
  for (int n = 0; n < 40 && all.events().size() < 2; ++n) slowed_calls.push_back(seconds_of_one());
  REQUIRE_ALL(MPI_COMM_WORLD, all.events().size() == 2);
  // The first empties the bucket, the last held the probe.
  REQUIRE_ALL(MPI_COMM_WORLD, slowed_calls.size() > 2);
  const double slow = usual({slowed_calls.begin() + 1, slowed_calls.end() - 1});
  settle();
  const double replanned = seconds_of(5);
  if (rank_in() == 0) {
    std::cerr << "1 MiB all-reduce: " << fast * 1e3 << " ms, " << slow * 1e3 << " ms with a slower card, "
              << replanned * 1e3 << " ms planned anew (" << name_of(all.settled(call, sums()).value_or(choice{}).how)
              << ")\n"
              << text_of(all.events());
  }
  REQUIRE_ALL(MPI_COMM_WORLD, right);
  REQUIRE_ALL(MPI_COMM_WORLD, slow > 1.5 * fast);
  REQUIRE_ALL(MPI_COMM_WORLD, text_of(all.events()).find("from rank 2 to rank ") != std::string::npos);
  REQUIRE_ALL(MPI_COMM_WORLD, replanned < 0.9 * slow);
}
