// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// ranks: 2 4 5 8
// timeout: 180

#include <espalier/comm.hpp>

#include <catch2/catch.hpp>
#include <support/comm_calls.hpp>
#include <support/mpi_ranks.hpp>
#include <support/mpi_require.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace espalier::comm;
using espalier::dtype;
using espalier::reduction;
using espalier::test::call_buffers;
using espalier::test::element_for;
using espalier::test::element_kind;
using espalier::test::fuzz_cases;
using espalier::test::fuzz_random;
using espalier::test::random_call;
using espalier::test::random_network;
using espalier::test::rank_in;
using espalier::test::size_of;
using espalier::test::text_of;

const element_kind& kind_number(std::size_t n) {
  static const std::vector<element_kind> kinds = espalier::test::element_kinds();
  return kinds[n % kinds.size()];
}
/// Sums of integers.
const element_kind& sums() { return kind_number(2); }

struct running {
  std::unique_ptr<call_buffers> buffers;
  started_collective handle;

  [[nodiscard]] std::string fault() const {
    const std::string found = buffers->fault();
    return found.empty() ? "" : text_of(buffers->call(), buffers->kind()) + ": " + found;
  }
};

running begin(collectives& all, const collective_call& call, const element_kind& kind = sums()) {
  running made{std::make_unique<call_buffers>(call, kind, all.rank()), {}};
  made.handle = all.start(call, made.buffers->input(), made.buffers->output(), element_for(kind));
  return made;
}

std::string run(collectives& all, const collective_call& call, const element_kind& kind = sums()) {
  running made{std::make_unique<call_buffers>(call, kind, all.rank()), {}};
  all.run(call, made.buffers->input(), made.buffers->output(), element_for(kind));
  return made.fault();
}

collectives_options forced(choice way) {
  collectives_options options;
  options.forced = way;
  return options;
}

}  // namespace

TEST_CASE("many operations in flight, waited for in any order, beside blocking ones", "[collectives]") {
  std::mt19937 together = fuzz_random();
  std::mt19937 own(static_cast<unsigned>(rank_in()) + 17U);
  const int ranks = size_of();
  const long networks = 4;
  for (long n = 0; n < networks; ++n) {
    collectives_options options;
    if (n % 4 == 1) options = forced({method::trees, 256});
    if (n % 4 == 2) options = forced({method::low_latency, 0});
    options.kept = 8;
    if (n % 4 == 3) options.tags = 4000;  // used up again and again
    collectives all(MPI_COMM_WORLD, random_network(together, ranks), options);
    for (long k = 0; k < fuzz_cases(120) / networks; ++k) {
      std::vector<running> under_way;
      std::string fault;
      const std::size_t count = 1 + together() % 9;
      for (std::size_t i = 0; i < count; ++i) {
        under_way.push_back(begin(all, random_call(together, ranks, 160000), kind_number(together())));
        // The work of ranks in between differs from rank to rank.
        if (own() % 3 == 0) (void)under_way[own() % under_way.size()].handle.test();
        if (own() % 5 == 0) under_way[own() % under_way.size()].handle.wait();
        if (together() % 4 == 0) fault += run(all, random_call(together, ranks, 160000), kind_number(together()));
      }
      std::shuffle(under_way.begin(), under_way.end(), own);
      for (running& one : under_way) {
        if (own() % 2 == 0) {
          one.handle.wait();
        } else {
          while (!one.handle.test()) continue;
        }
        fault += one.fault();
      }
      INFO(fault);
      REQUIRE_ALL(MPI_COMM_WORLD, fault.empty());
      REQUIRE_ALL(MPI_COMM_WORLD, all.pending().empty());
    }
  }
}

TEST_CASE("what was started later may be over first", "[collectives]") {
  std::mt19937 random = fuzz_random();
  const int ranks = size_of();
  collectives all(MPI_COMM_WORLD, random_network(random, ranks), forced({method::trees, 16384}));
  int overtaken = 0;
  for (int n = 0; n < 5; ++n) {
    running large = begin(all, uniform_call(collective::all_reduce, ranks, 2 << 20));
    running small = begin(all, uniform_call(collective::all_reduce, ranks, 1));
    small.handle.wait();
    if (!large.handle.over()) ++overtaken;
    const std::string fault = small.fault();
    large.handle.wait();
    INFO(fault << large.fault());
    REQUIRE_ALL(MPI_COMM_WORLD, (fault.empty() && large.fault().empty()));
  }
  int anywhere = 0;
  MPI_Allreduce(&overtaken, &anywhere, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  REQUIRE_ALL(MPI_COMM_WORLD, anywhere > 0);
}

TEST_CASE("ranks that wait for different things take each other's further", "[collectives]") {
  std::mt19937 random = fuzz_random();
  const int ranks = size_of();
  // It has several rounds, so that no rank's part is done when it has begun. The MPI library's own, which takes nothing
  // of ours further, is what blocking calls use where it is forced.
  for (const choice way : {choice{method::trees, 4096}, choice{method::library, 0}}) {
    collectives_options options = forced(way);
    options.deadline = std::chrono::duration<double>(20);
    collectives all(MPI_COMM_WORLD, random_network(random, ranks), options);
    const bool even = all.rank() % 2 == 0;
    for (const std::int64_t count : {1, 300, 100000}) {
      const collective_call call = uniform_call(collective::all_reduce, ranks, count);
      for (int n = 0; n < 10; ++n) {
        running first = begin(all, call);
        running second = begin(all, call);
        if (even) first.handle.wait();
        if (!even) second.handle.wait();
        std::string fault = run(all, call);
        if (!even) first.handle.wait();
        if (even) second.handle.wait();
        fault += first.fault() + second.fault();
        INFO(fault);
        REQUIRE_ALL(MPI_COMM_WORLD, fault.empty());
        // Here odd ranks come to the blocking call with nothing under way, and even ones with two.
        running third = begin(all, call);
        running fourth = begin(all, call);
        if (!even) third.handle.wait();
        if (!even) fourth.handle.wait();
        fault = run(all, call);
        third.handle.wait();
        fourth.handle.wait();
        fault += third.fault() + fourth.fault();
        INFO(fault);
        REQUIRE_ALL(MPI_COMM_WORLD, fault.empty());
      }
    }
  }
}

TEST_CASE("handles may be dropped, and collectives with work under way", "[collectives]") {
  std::mt19937 random = fuzz_random();
  const int ranks = size_of();
  const collective_call call = uniform_call(collective::all_reduce, ranks, 50000);
  call_buffers first(call, sums(), rank_in());
  call_buffers second(call, sums(), rank_in());
  {
    collectives all(MPI_COMM_WORLD, random_network(random, ranks), forced({method::trees, 4096}));
    (void)all.start(call, first.input(), first.output(), element_for(sums()));
    started_collective handle = all.start(call, second.input(), second.output(), element_for(sums()));
    handle = {};
  }
  REQUIRE_ALL(MPI_COMM_WORLD, first.fault().empty());
  REQUIRE_ALL(MPI_COMM_WORLD, second.fault().empty());
}

TEST_CASE("what is pending can be listed", "[collectives]") {
  std::mt19937 random = fuzz_random();
  const int ranks = size_of();
  collectives all(MPI_COMM_WORLD, random_network(random, ranks), forced({method::trees, 1024}));
  const collective_call call = uniform_call(collective::all_reduce, ranks, 20000);
  std::string fault = run(all, call);  // planned together
  const bool late = all.rank() == ranks - 1;
  running mine;
  if (!late) {
    mine = begin(all, call);
    for (int n = 0; n < 100; ++n) all.progress();
  }
  const std::vector<pending_operation> list = all.pending();
  const std::string text = describe(list);
  INFO(text);
  bool right = late ? list.empty() : list.size() == 1 && list[0].kind == collective::all_reduce && list[0].seconds >= 0;
  for (const pending_operation& o : list) {
    for (const pending_message& m : o.messages) {
      right = right && m.peer != all.rank() && m.peer < ranks && m.bytes > 0 && m.bytes <= 1024 && m.chunk < m.chunks;
    }
    right = right && !o.messages.empty() && text.find("all_reduce 0, for ") != std::string::npos &&
            text.find(" bytes\n") != std::string::npos;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (late) mine = begin(all, call);
  mine.handle.wait();
  fault += mine.fault();
  REQUIRE_ALL(MPI_COMM_WORLD, right);
  REQUIRE_ALL(MPI_COMM_WORLD, all.pending().empty());
  REQUIRE_ALL(MPI_COMM_WORLD, fault.empty());
}

TEST_CASE("a wait for what one rank never starts ends, and says what else is under way", "[collectives]") {
  std::mt19937 random = fuzz_random();
  const int ranks = size_of();
  collectives_options options = forced({method::trees, 1024});
  options.deadline = std::chrono::duration<double>(0.3);
  std::string said;
  std::string again;
  {
    // Buffers outlive what may still be received into them.
    const collective_call call = uniform_call(collective::all_reduce, ranks, 5000);
    call_buffers first(call, sums(), rank_in());
    call_buffers second(call, sums(), rank_in());
    collectives all(MPI_COMM_WORLD, random_network(random, ranks), options);
    std::string fault = run(all, call);
    if (all.rank() != ranks - 1) {
      started_collective one = all.start(call, first.input(), first.output(), element_for(sums()));
      started_collective other = all.start(call, second.input(), second.output(), element_for(sums()));
      try {
        one.wait();
      } catch (const comm_error& error) { said = error.what(); }
      try {
        other.wait();
      } catch (const comm_error& error) { again = error.what(); }
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  INFO(said << "\n" << again);
  const bool named = said.find("waited 0.3 s in all_reduce for rank") != std::string::npos &&
                     said.find("pending: tree ") != std::string::npos &&
                     said.find("under way on this rank:\nall_reduce 0, for ") != std::string::npos &&
                     said.find("\nall_reduce 1, for ") != std::string::npos;
  const bool refused = again.find("an earlier collective") != std::string::npos;
  REQUIRE_ALL(MPI_COMM_WORLD, (rank_in() == ranks - 1 || (named && refused)));
}

TEST_CASE("no rank gets more than two rounds of credits ahead of the one it sends to", "[collectives]") {
  const int ranks = size_of(MPI_COMM_WORLD);
  const int rank = rank_in(MPI_COMM_WORLD);
  constexpr std::int64_t count = 500;
  chunking cut;
  cut.elements = 1;
  cut.in_flight = 1000;
  const schedule plan = from_ordered_trees(uniform_call(collective::reduce, ranks, count, 0), cut);
  mpi_schedule_runner runner(plan, MPI_COMM_WORLD, 4);
  const std::vector<float> input(count, 1.0F);
  std::vector<float> output(count, 0.0F);
  const element what = element_of(dtype::f32, reduction::sum);
  const bool sends_only = rank == ranks - 1;
  if (sends_only) {
    // Messages of four bytes leave at once, even if no rank takes them.
    runner.begin(input.data(), output.data(), what.by);
    const auto begun = std::chrono::steady_clock::now();
    const auto is_within = [&](std::chrono::seconds time) { return std::chrono::steady_clock::now() - begun < time; };
    while (is_within(std::chrono::seconds(10)) && runner.pending().size() > 2) runner.progress();
    const std::vector<pending_message> waiting = runner.pending();
    REQUIRE(waiting.size() == 2);
    for (const pending_message& m : waiting) CHECK(m.chunk < 2 * cut.credits);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (!sends_only) runner.begin(input.data(), output.data(), what.by);
  runner.wait();
  if (rank == 0) CHECK(output == std::vector<float>(count, static_cast<float>(ranks)));
}

TEST_CASE("several at once, as docs/collectives.md has it", "[collectives]") {
  std::mt19937 random = fuzz_random();
  const int ranks = size_of();
  collectives all(MPI_COMM_WORLD, random_network(random, ranks));
  const element what = element_of(dtype::f32, reduction::sum);
  const std::vector<float> gradients(1000, 1);
  std::vector<float> summed(gradients.size());
  const std::vector<float> row(10, static_cast<float>(all.rank()));
  std::vector<float> rows(row.size() * static_cast<std::size_t>(ranks));
  std::vector<float> step(1, static_cast<float>(all.rank() + 3));
  const collective_call sum = uniform_call(collective::all_reduce, ranks, 1000);
  const collective_call gather = uniform_call(collective::all_gather, ranks, 10);

  started_collective one = all.start(sum, gradients.data(), summed.data(), what);  // returns at once
  started_collective other = all.start(gather, row.data(), rows.data(), what);     // any number of them
  all.broadcast(step.data(), 1, what, 0);                                          // blocking ones in between, too
  const std::string list = describe(all.pending());  // all_reduce 0, for 1.2 s: tree 1, chunk 3 of 16, from rank 2, ...
  if (!other.test()) other.wait();                   // in any order: each takes all of them further
  one.wait();

  bool right = step[0] == 3 && summed[999] == static_cast<float>(ranks);
  for (std::size_t i = 0; i < rows.size(); ++i) right = right && rows[i] == static_cast<float>(i / row.size());
  INFO(list);
  REQUIRE_ALL(MPI_COMM_WORLD, right);
}
