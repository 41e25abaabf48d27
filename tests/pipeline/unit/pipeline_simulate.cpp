// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// together: engine
#include <espalier/pipeline.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace espalier::pipeline;

// The numbers of the tests below are small; sums of them in other orders differ by less.
constexpr double close = 1e-9;

stage_costs stage(double forward, double input_gradient, double weight_gradient) {
  stage_costs one;
  one.forward_seconds = forward;
  one.input_gradient_seconds = input_gradient;
  one.weight_gradient_seconds = weight_gradient;
  return one;
}

hop_costs hop(double activation, double gradient, double latency, duplex mode = duplex::full) {
  hop_costs one;
  one.activation_bytes = activation * 8;
  one.gradient_bytes = gradient * 8;
  one.bytes_per_second = 8;
  one.latency_seconds = latency;
  one.mode = mode;
  return one;
}

const timed& entry(const simulation& run, int rank, const instruction& step) {
  for (const timed& one : run.timeline[static_cast<std::size_t>(rank)])
    if (one.step == step) return one;
  throw std::logic_error("rank " + std::to_string(rank) + " has no " + to_string(step));
}

double start_of(const simulation& run, int rank, action kind, int at_stage, int micro_batch) {
  return entry(run, rank, {kind, at_stage, micro_batch}).start;
}

// Random costs of stages and hops, none of them 0, so that no two things happen at once by chance.
costs random_costs(std::mt19937& random, int stages, double longest_hop) {
  const auto between = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random() % 10'000) / 1e4;
  };
  costs cost;
  for (int s = 0; s < stages; ++s) {
    stage_costs one = stage(between(0.5, 2), between(0.5, 2), between(0.5, 2));
    one.all_reduce_seconds = between(0, 5);
    one.optimizer_seconds = between(0, 1);
    cost.stages.push_back(one);
    if (s > 0) cost.hops.push_back(hop(between(0.01, longest_hop), between(0.01, longest_hop), between(0, 0.5)));
  }
  return cost;
}

TEST_CASE("a micro-batch travels there and back") {
  schedule plan = gpipe(2, 1);
  costs cost;
  cost.stages = {stage(2, 5, 7), stage(1, 3, 4)};
  cost.hops = {hop(3, 2, 0.5)};
  cost.stages[1].all_reduce_seconds = 1;
  cost.stages[0].optimizer_seconds = 0.25;
  const simulation run = simulate(plan, cost);
  REQUIRE(run.complete);
  // F 0-2, transfer 2-5 and 0.5 latency, F 5.5-6.5, BW 6.5-13.5, transfer 13.5-15.5 and 0.5, BW 16-28, step 28-28.25.
  CHECK(start_of(run, 1, action::forward, 1, 0) == Approx(5.5));
  CHECK(entry(run, 1, {action::backward, 1, 0}).end == Approx(13.5));
  CHECK(start_of(run, 0, action::backward, 0, 0) == Approx(16));
  CHECK(run.makespan == Approx(28.25));
  CHECK(run.busy[0] == Approx(14.25));       // with its step
  CHECK(run.span[1] == Approx(14.5 - 5.5));  // with its all-reduce
  CHECK(run.bubble == Approx(28.25 - 14.25));
}

TEST_CASE("a link carries one transfer at a time, and each arrives a latency later") {
  schedule plan = gpipe(2, 3);
  costs cost;
  cost.stages = {stage(1, 1, 1), stage(1, 1, 1)};
  cost.hops = {hop(5, 1, 2)};
  const simulation run = simulate(plan, cost);
  for (int m = 0; m < 3; ++m) {
    // Forwards end at 1, 2, 3; the link is busy from 1 on.
    CHECK(entry(run, 0, {action::send_activation, 0, m}).start == Approx(1 + 5 * m));
    CHECK(start_of(run, 1, action::forward, 1, m) == Approx(1 + 5 * (m + 1) + 2));
  }
}

TEST_CASE("stages of two ranks share their link") {
  // Two chunks: hops 0 and 2 are both from rank 0 to rank 1.
  schedule plan;
  plan.micro_batches = 2;
  plan.rank_of = loop_placement(2, 2);
  plan.lists.resize(2);
  for (const int s : {0, 1, 2, 3})
    for (const int m : {0, 1}) plan.lists[static_cast<std::size_t>(s % 2)].push_back({action::forward, s, m});
  costs cost;
  cost.stages.assign(4, stage(1, 0, 0));
  cost.hops.assign(3, hop(4, 0, 0));
  const simulation run = simulate(plan, cost);
  REQUIRE(run.complete);
  // Down: 1-5, 5-9. Back up: 6-10, 10-14. Down again: 11-15, 15-19.
  CHECK(start_of(run, 0, action::forward, 2, 0) == Approx(10));
  CHECK(start_of(run, 1, action::forward, 3, 0) == Approx(15));
  CHECK(start_of(run, 1, action::forward, 3, 1) == Approx(19));

  cost.hops.assign(3, hop(4, 0, 0, duplex::half));
  const simulation half = simulate(plan, cost);
  // Down 1-5 and 5-9, since both were asked for before rank 1 was done; then up 9-13 and 13-17; down 14 -> 17-21,
  // 21-25.
  CHECK(start_of(half, 0, action::forward, 2, 0) == Approx(13));
  CHECK(start_of(half, 0, action::forward, 2, 1) == Approx(17));
  CHECK(start_of(half, 1, action::forward, 3, 0) == Approx(21));
  CHECK(start_of(half, 1, action::forward, 3, 1) == Approx(25));
}

TEST_CASE("a half duplex link lets gradients pass first where both ask at once") {
  // Rank 0 does F0 and F1, rank 1 answers F0 with BW: F1's output and BW0's gradient are both ready at 5.
  schedule plan;
  plan.micro_batches = 2;
  plan.rank_of = loop_placement(2, 1);
  plan.lists = {{{action::forward, 0, 0}, {action::forward, 0, 1}, {action::backward, 0, 0}, {action::backward, 0, 1}},
                {{action::forward, 1, 0}, {action::backward, 1, 0}, {action::forward, 1, 1}, {action::backward, 1, 1}}};
  costs cost;
  cost.stages = {stage(2.5, 1, 1), stage(0.5, 0.5, 0.5)};
  cost.hops = {hop(1, 1, 0, duplex::half)};
  const simulation run = simulate(plan, cost);
  REQUIRE(run.complete);
  CHECK(entry(run, 0, {action::send_activation, 0, 0}).start == Approx(2.5));
  CHECK(entry(run, 1, {action::backward, 1, 0}).end == Approx(5));
  CHECK(entry(run, 1, {action::send_gradient, 1, 0}).start == Approx(5));
  CHECK(entry(run, 0, {action::send_activation, 0, 1}).start == Approx(6));
}

// DAPPLE's recursion over stages that alternate, network stages among them: F and B of stage x and micro-batch i.
double alternating(const std::vector<double>& forward, const std::vector<double>& backward, int micro_batches) {
  const int stages = static_cast<int>(forward.size());
  std::vector<std::vector<double>> f(static_cast<std::size_t>(micro_batches), std::vector<double>(forward.size()));
  auto b = f;
  const auto at = [&](const std::vector<std::vector<double>>& ends, int i, int x) {
    return i < 0 || i >= micro_batches || x < 0 || x >= stages
               ? 0.0
               : ends[static_cast<std::size_t>(i)][static_cast<std::size_t>(x)];
  };
  // Stage x has done F of micro-batch i after its B of i - K; as many passes as the longest chain has links.
  for (int pass = 0; pass < 2 * stages * micro_batches + 2; ++pass)
    for (int i = 0; i < micro_batches; ++i)
      for (int x = 0; x < stages; ++x) {
        const int ahead = stages - x;
        const auto column = static_cast<std::size_t>(x);
        f[static_cast<std::size_t>(i)][column] =
            std::max({at(b, i - ahead, x), at(f, i - 1, x), at(f, i, x - 1)}) + forward[column];
        b[static_cast<std::size_t>(i)][column] =
            std::max({at(b, i, x + 1), at(b, i - 1, x), at(f, std::min(i + ahead - 1, micro_batches - 1), x)}) +
            backward[column];
      }
  double end = 0;
  for (int x = 0; x < stages; ++x) end = std::max(end, at(b, micro_batches - 1, x));
  return end;
}

TEST_CASE("early backward scheduling follows DAPPLE's recursion") {
  std::mt19937 random(3);
  for (int repeat = 0; repeat < 60; ++repeat) {
    const int stages = 1 + static_cast<int>(random() % 6);
    const int micro_batches = 1 + static_cast<int>(random() % 9);
    costs cost = random_costs(random, stages, 1);
    cost.hops.clear();
    std::vector<double> forward;
    std::vector<double> backward;
    for (stage_costs& one : cost.stages) {
      one.all_reduce_seconds = one.optimizer_seconds = 0;
      forward.push_back(one.forward_seconds);
      backward.push_back(one.input_gradient_seconds + one.weight_gradient_seconds);
    }
    const simulation run = simulate(one_f_one_b(micro_batches, warm_up_pa(stages)), cost);
    CAPTURE(stages, micro_batches);
    CHECK(run.makespan == Approx(alternating(forward, backward, micro_batches)).epsilon(close));
  }
}

TEST_CASE("the all-reduce of a late stage runs while earlier stages still work") {
  costs cost = uniform_costs(4);
  const schedule plan = one_f_one_b(8, warm_up_pa(4));
  const double bare = simulate(plan, cost).makespan;
  CHECK(bare == Approx(8 * 3 + 9));
  // Rank 3 is done three backwards of 2 before rank 0.
  cost.stages[3].all_reduce_seconds = 6;
  CHECK(simulate(plan, cost).makespan == Approx(bare));
  cost.stages[3].all_reduce_seconds = 7.5;
  CHECK(simulate(plan, cost).makespan == Approx(bare + 1.5));
  cost.stages[0].all_reduce_seconds = 2;
  CHECK(simulate(plan, cost).makespan == Approx(bare + 2));
}

TEST_CASE("all-reduces of a rank's stages run one after another, beside its computations") {
  costs cost = uniform_costs(2, 1, 1, 1);
  cost.stages[0].all_reduce_seconds = cost.stages[1].all_reduce_seconds = 4;
  cost.stages[0].optimizer_seconds = 1;
  schedule plan;
  plan.micro_batches = 1;
  plan.rank_of = {0, 0};
  plan.lists = {{{action::forward, 0, 0}, {action::forward, 1, 0}, {action::backward, 1, 0}, {action::backward, 0, 0}}};
  const simulation run = simulate(plan, cost);
  // Stage 1 is done at 4, stage 0 at 6: all-reduces 4-8 and 8-12, then the step.
  CHECK(run.makespan == Approx(13));
  CHECK(quick_makespan(plan, cost) == Approx(13));
}

TEST_CASE("a deadlock is found, and says who waits for what") {
  schedule plan = with_transfers(one_f_one_b(2, {2, 1}));
  REQUIRE(simulate(plan, uniform_costs(2)).complete);
  SECTION("a receive that stands before what it answers") {
    auto& list = plan.lists[0];
    const auto receive = std::find_if(list.begin(), list.end(),
                                      [](const instruction& one) { return one.kind == action::receive_gradient; });
    const instruction moved = *receive;
    list.erase(receive);
    list.insert(list.begin(), moved);
    const simulation run = simulate(plan, uniform_costs(2));
    CHECK_FALSE(run.complete);
    REQUIRE(run.waiting.size() == 2);
    CHECK(run.waiting[0] == "rank 0 waits for the gradient of micro-batch 0 from stage 1 on rank 1");
    CHECK(run.waiting[1] == "rank 1 waits for the activation of micro-batch 0 from stage 0 on rank 0");
  }
  SECTION("a message that is never sent") {
    auto& list = plan.lists[0];
    list.erase(std::find(list.begin(), list.end(), instruction{action::send_activation, 0, 1}));
    const simulation run = simulate(plan, uniform_costs(2));
    CHECK_FALSE(run.complete);
    CHECK(run.waiting.back() == "rank 1 waits for the activation of micro-batch 1 from stage 0 on rank 0");
  }
  SECTION("a computation before its operands") {
    schedule wrong = zb_h1(2, 2);
    std::swap(wrong.lists[1][0], wrong.lists[1][1]);  // F0 and B0
    const simulation run = simulate(wrong, uniform_costs(2));
    CHECK_FALSE(run.complete);
    CHECK(run.waiting.back() ==
          "rank 1 waits for what B of stage 1, micro-batch 0 needs, which does not stand before it in the rank's list");
    CHECK(quick_makespan(wrong, uniform_costs(2)) == std::numeric_limits<double>::infinity());
  }
}

TEST_CASE("recomputed stages hold inputs, and do their forward again") {
  schedule plan = one_f_one_b(8, warm_up_pa(4));
  costs cost = uniform_costs(4, 1, 2, 0.5);
  for (stage_costs& one : cost.stages) {
    one.activation_bytes = 10;
    one.weight_gradient_bytes = 6;
    one.input_bytes = 1;
    one.state_bytes = 100;
  }
  CHECK(peak_activation_bytes(plan, cost) == std::vector<double>{40, 30, 20, 10});
  CHECK(peak_bytes(plan, cost) == std::vector<double>{140, 130, 120, 110});
  plan.recomputed.assign(4, true);
  CHECK(peak_activation_bytes(plan, cost) == std::vector<double>{14, 13, 12, 11});
  const simulation run = simulate(plan, cost);
  CHECK(run.busy[2] == Approx(8 * 4.5));
  CHECK(run.makespan == Approx(8 * 4.5 + 3 * 4.5));  // B of 3.5 on the way back, F of 1 on the way there
  plan.recomputed = {false, false, true, false};
  CHECK(peak_activation_bytes(plan, cost) == std::vector<double>{40, 30, 12, 10});
  CHECK(simulate(plan, cost).busy[3] == Approx(8 * 3.5));
}

TEST_CASE("memory between B and W is counted") {
  costs cost = uniform_costs(3);
  for (stage_costs& one : cost.stages) {
    one.activation_bytes = 4;
    one.weight_gradient_bytes = 1;
  }
  // ZB-H1 holds 3 - i activations and i waiting for W on rank i, and one more F before the next W.
  CHECK(peak_activation_bytes(zb_h1(3, 6), cost) == std::vector<double>{12, 9, 6});
}

TEST_CASE("lists with transfers are what lists of computations become") {
  std::mt19937 random(11);
  for (const char* name : {"gpipe", "1f1b", "zb_h1", "zb_v", "interleaved_zb"}) {
    const int chunks = chunks_of(find_schedule(name), 0);
    const costs cost = random_costs(random, 3 * chunks, 1);
    const schedule plan = make_schedule(name, 3, chunks, 7, cost);
    REQUIRE(only_computations(plan));
    const schedule whole = with_transfers(plan);
    CHECK_FALSE(only_computations(whole));
    CHECK(validate(whole).empty());
    CHECK(simulate(plan, cost).makespan == simulate(whole, cost).makespan);
    CHECK(peak_bytes(plan, cost) == peak_bytes(whole, cost));
  }
}

TEST_CASE("the quick evaluation agrees with the simulation") {
  std::mt19937 random(5);
  for (int repeat = 0; repeat < 300; ++repeat) {
    const auto& kind = known_schedules[random() % (known_schedules.size() - 1)];  // all but auto
    const int ranks = 1 + static_cast<int>(random() % 5);
    const int micro_batches = 2 * ranks + static_cast<int>(random() % 6);
    const int chunks = chunks_of(kind, kind.chunks == chunk_count::any ? 1 + static_cast<int>(random() % 3) : 0);
    costs cost = random_costs(random, ranks * chunks, repeat % 3 == 0 ? 4 : 0.5);
    schedule plan = make_schedule(kind.name, ranks, chunks, micro_batches, cost);
    if (repeat % 4 == 0)
      for (std::size_t s = 0; s < cost.stages.size(); ++s) plan.recomputed.push_back(random() % 2 == 0);
    CAPTURE(kind.name, ranks, chunks, micro_batches);
    const simulation run = simulate(plan, cost);
    CHECK(run.makespan == Approx(quick_makespan(plan, cost)).epsilon(close));
    CHECK(run.makespan >= lower_bound(plan, cost) * (1 - close));
    for (hop_costs& one : cost.hops) one.mode = duplex::half;  // of which the quick evaluation knows nothing
    CHECK(quick_makespan(plan, cost) >= run.makespan * (1 - close));
  }
}

TEST_CASE("what does not belong together is refused") {
  const schedule plan = gpipe(3, 2);
  CHECK_THROWS_WITH(simulate(plan, uniform_costs(2)), "the costs hold 2 stages, the pipeline needs 3, one per stage");
  costs cost = uniform_costs(3);
  cost.stages[1].forward_seconds = -1;
  CHECK_THROWS_WITH(simulate(plan, cost), "forward_seconds of stage 1 is -1: give a finite number, 0 or more");
  cost = uniform_costs(3, 1, 1, 1, 0.5);
  cost.hops[1].bytes_per_second = 0;
  CHECK_THROWS_WITH(simulate(plan, cost), "bytes_per_second of hop 1 is 0: give a number above 0");
  schedule wrong = plan;
  wrong.lists[2][0].stage = 1;
  CHECK_THROWS_AS(simulate(wrong, uniform_costs(3)), std::invalid_argument);
}

TEST_CASE("validate finds what a schedule lacks") {
  const schedule good = zb_h1(3, 4);
  CHECK(validate(good).empty());
  schedule wrong = good;
  wrong.lists[1].pop_back();
  CHECK(validate(wrong) == std::vector<std::string>{"rank 1 never does W of stage 1, micro-batch 3"});
  wrong = good;
  wrong.lists[0].push_back({action::forward, 0, 2});
  CHECK(validate(wrong) == std::vector<std::string>{"rank 0 does F of stage 0, micro-batch 2 twice"});
  wrong = good;
  wrong.lists[0].push_back({action::forward, 1, 2});
  CHECK(validate(wrong) ==
        std::vector<std::string>{"rank 0 does F of stage 1, micro-batch 2, a stage of another rank"});
  wrong = good;
  std::swap(wrong.lists[2][1], wrong.lists[2][0]);
  CHECK(validate(wrong).front() == "rank 2 does B of stage 2, micro-batch 0 before its F");
  // Rank 0 waits for a gradient that rank 1 gives only after a second F.
  wrong = one_f_one_b(4, {2, 1, 1});
  wrong.lists[1] = one_f_one_b(4, {3, 3, 1}).lists[1];
  CHECK(validate(wrong).size() == 3);
  costs cost = uniform_costs(3);
  cost.memory_bytes = {3, 3, 2};
  CHECK(validate(good, cost) == std::vector<std::string>{"rank 2 holds 3 bytes, its limit is 2"});
}

}  // namespace
