// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: yes
// processors: 1
// together: schedule

#include <espalier/comm/schedule/circulant.hpp>
#include <espalier/comm/schedule/from_routes.hpp>
#include <espalier/comm/schedule/from_trees.hpp>
#include <espalier/comm/schedule/low_latency.hpp>
#include <espalier/comm/schedule/ordered.hpp>
#include <espalier/comm/schedule/price.hpp>
#include <espalier/comm/schedule/select.hpp>
#include <espalier/comm/schedule/simulate.hpp>
#include <espalier/comm/schedule/split.hpp>
#include <espalier/testing/channels.hpp>
#include <espalier/testing/three_phase.hpp>
#include <espalier/testing/validate_schedule.hpp>

#include <comm/unit/comm_schedule_networks.hpp>
#include <comm/unit/comm_schedule_run.hpp>
#include <support/instrumented.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace espalier::comm;
using namespace espalier::test;

const std::vector<collective> every_operation{
    collective::broadcast,      collective::reduce, collective::all_reduce, collective::all_gather,
    collective::reduce_scatter, collective::gather, collective::scatter,    collective::all_to_all};

long from_environment(const char* name, long otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtol(text, nullptr, 10);
}

class chooser {
 public:
  explicit chooser(std::uint32_t seed) : random_(seed) {}
  int below(int most) { return std::uniform_int_distribution<int>(0, most - 1)(random_); }
  bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(random_) < p; }
  std::mt19937& source() { return random_; }

 private:
  std::mt19937 random_;
};

struct made_case {
  std::string name;
  network net;
  schedule plan;
};

collective_call random_call(chooser& random, int ranks) {
  collective_call call;
  call.kind = every_operation[static_cast<std::size_t>(random.below(8))];
  call.ranks = ranks;
  call.root = random.below(ranks);
  call.in_place = random.chance(0.3);
  const int most = random.chance(0.3) ? 3 : random.chance(0.5) ? 12 : 60;
  const auto n = static_cast<std::size_t>(ranks);
  call.counts.resize(call.kind == collective::all_to_all ? n * n : has_blocks(call.kind) ? n : 1);
  const bool equal = random.chance(0.4);
  const int one = random.below(most);
  for (std::size_t i = 0; i < call.counts.size(); ++i) {
    const bool mirrored = call.kind == collective::all_to_all && call.in_place && i % n < i / n;
    call.counts[i] = mirrored ? call.counts[i % n * n + i / n] : equal ? one : random.below(most);
  }
  return call;
}

made_case random_case(chooser& random) {
  const int ranks = 1 + random.below(17);
  made_case made{"", random_network(ranks, random.source()), {}};
  collective_call call = random_call(random, ranks);
  chunking cut;
  cut.elements = 1 + random.below(random.chance(0.5) ? 4 : 40);
  cut.credits = 1 + random.below(4);
  cut.in_flight = random.chance(0.4) ? 1 + random.below(3) : 0;
  cut.grain = random.chance(0.2) ? 1 + random.below(4) : 1;
  const bool exchange =
      call.kind == collective::gather || call.kind == collective::scatter || call.kind == collective::all_to_all;
  const int way = random.below(exchange ? 3 : 4);
  made.name = std::string(name_of(call.kind)) + " on " + std::to_string(ranks) + " ranks";
  if (way == 3) {
    call.ordered = reduces(call.kind) && random.chance(0.5);
    made.plan = flat(call, random.below(ranks));
    made.name += ", flat";
    return made;
  }
  if (way == 0) {  // low latency
    switch (call.kind) {
      case collective::broadcast:
      case collective::reduce:
        made.plan = random.chance(0.6) ? circulant_blocks(call, 1 + random.below(9)) : binomial(call);
        break;
      case collective::gather:
      case collective::scatter: made.plan = binomial(call); break;
      case collective::all_reduce:
        call.ordered = random.chance(0.5);
        made.plan = call.ordered || random.chance(0.3) ? doubling(call) : circulant(call);
        break;
      case collective::all_gather:
      case collective::reduce_scatter: made.plan = circulant(call); break;
      case collective::all_to_all: made.plan = bruck(call); break;
      case collective::local_slice:
      case collective::collective_permute:
      case collective::exchange:
      case collective::reduce_exchange:
      case collective::barrier: break;
    }
    made.name += ", low latency";
    return made;
  }
  if (exchange) {
    routing_options little;
    little.most_phases = 1 + random.below(12);
    made.plan =
        way == 1 ? pairwise(call, cut) : from_routes(call, made.net, find_routes(call, made.net, little).routes, cut);
    made.name += way == 1 ? ", pairwise" : ", routes";
    return made;
  }
  if (way == 1 && reduces(call.kind)) {
    made.plan = from_ordered_trees(call, cut, call.kind == collective::all_reduce ? 1 + random.below(ranks) : 1);
    made.name += ", ordered trees";
    return made;
  }
  std::vector<tree> trees;
  call.ordered = reduces(call.kind) && random.chance(0.3);
  if (call.ordered) made.net = complete_network(ranks, 1e8, 1e-6);
  for (int i = 1 + random.below(4); i > 0; --i) {
    for (int b = 0; b < (has_blocks(call.kind) ? ranks : 1); ++b) {
      const int root = has_blocks(call.kind) ? b : has_root(call.kind) ? call.root : random.below(ranks);
      trees.push_back(call.ordered ? tree_of(made.net, random_ordered_parents(ranks, root, random.source()))
                                   : random_tree(made.net, root, random.source()));
    }
  }
  made.plan = from_trees(call, made.net, trees, cut);
  made.name += ", trees";
  return made;
}

std::string faults_of(const schedule_report& report) {
  std::string text;
  for (const schedule_fault& f : report.faults) text += describe(f) + "\n";
  return text;
}

const std::string no_faults;

}  // namespace

TEST_CASE("random schedules are valid, end, and compute what the collective is defined to", "[schedule]") {
  const auto base = static_cast<std::uint32_t>(from_environment("ESPALIER_FUZZ_SEED", 1));
  const long cases = from_environment("ESPALIER_FUZZ_CASES", tried_cases(4000));
  int failures = 0;
  for (long i = 0; i < cases && failures < 5; ++i) {
    const std::uint32_t seed = base + static_cast<std::uint32_t>(i);
    chooser random(seed);
    const made_case made = random_case(random);
    const schedule_report report = validate(made.plan, made.net);
    const int credits = 1 + random.below(3);
    const std::string wrong = schedule_run(made.plan, credits, seed).check();
    const bool complete = simulate(made.plan, made.net).complete;
    if (report && wrong.empty() && complete) continue;
    ++failures;
    FAIL_CHECK("ESPALIER_FUZZ_SEED=" << seed << ", " << made.name << ": " << wrong
                                     << (complete ? "" : "; the simulation does not end") << "\n"
                                     << faults_of(report));
  }
  CHECK(failures == 0);
}

namespace {

struct mutation {
  std::string name;
  bool must_show = true;  // false: may change nothing
};

// Changes one thing of a schedule. Empty name: there was nothing to change.
mutation mutate(schedule& plan, chooser& random) {
  std::vector<std::pair<std::size_t, std::size_t>> steps;
  for (std::size_t t = 0; t < plan.tracks.size(); ++t) {
    for (std::size_t s = 0; s < plan.tracks[t].steps.size(); ++s) steps.emplace_back(t, s);
  }
  if (steps.empty()) return {};
  const auto [t, at] = steps[static_cast<std::size_t>(random.below(static_cast<int>(steps.size())))];
  track& track = plan.tracks[t];
  step& s = track.steps[at];
  const bool must_show = s.kind != action::copy;  // a copy may be of something that is not needed
  const std::string where = " of step " + std::to_string(at) + " in track " + std::to_string(t);
  const std::int64_t shift = random.chance(0.5) ? 1 + random.below(3) : -1 - random.below(3);
  switch (random.below(8)) {
    case 0:
      track.steps.erase(track.steps.begin() + static_cast<std::ptrdiff_t>(at));
      for (rank_steps& p : track.parts) {
        if (p.begin > static_cast<int>(at)) --p.begin;
        if (p.end > static_cast<int>(at)) --p.end;
      }
      return {"without" + where, must_show};
    case 1:
      for (const rank_steps& p : track.parts) {
        if (p.begin <= static_cast<int>(at) && static_cast<int>(at) + 1 < p.end) {
          std::swap(s, track.steps[at + 1]);
          return {"swap" + where, false};
        }
      }
      return {};
    case 2:
      if (!reads(s.kind)) return {};
      s.from.offset += shift;
      return {"source moved by " + std::to_string(shift) + where, must_show};
    case 3:
      if (!writes(s.kind)) return {};
      s.to.offset += shift;
      return {"target moved by " + std::to_string(shift) + where, must_show};
    case 4:
      if (s.peer < 0) return {};
      s.peer = (s.peer + 1 + random.below(plan.call.ranks)) % plan.call.ranks;
      return {"peer changed" + where, false};
    case 5: s.count += shift; return {"count changed by " + std::to_string(shift) + where, must_show};
    case 6:
      if (s.peer < 0) return {};
      s.edge = s.edge == step::direct ? 0 : step::direct;
      return {"edge changed" + where};
    case 7:
      if (!plan.call.ordered || s.kind != action::receive_reduce) return {};
      s.incoming_left = !s.incoming_left;
      return {"operands exchanged" + where};
  }
  return {};
}

bool same_steps(const schedule& a, const schedule& b) {
  for (std::size_t t = 0; t < a.tracks.size(); ++t) {
    if (a.tracks[t].steps != b.tracks[t].steps) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("the validator finds what was changed in a schedule", "[schedule]") {
  const auto base = static_cast<std::uint32_t>(from_environment("ESPALIER_FUZZ_SEED", 1));
  const long cases = from_environment("ESPALIER_FUZZ_CASES", tried_cases(6000));
  long caught = 0;
  long harmless = 0;
  int failures = 0;
  for (long i = 0; i < cases && failures < 5; ++i) {
    const std::uint32_t seed = base + static_cast<std::uint32_t>(i);
    chooser random(seed);
    const made_case made = random_case(random);
    schedule changed = made.plan;
    const mutation done = mutate(changed, random);
    if (done.name.empty() || same_steps(made.plan, changed)) continue;
    if (!validate(changed)) {
      ++caught;
      continue;
    }
    // Two sends, or two reductions of an operator that commutes, may be exchanged, a copy may be longer than it need
    // be: then the results are still right.
    std::string wrong;
    for (std::uint32_t run = 0; run < 5 && wrong.empty(); ++run) wrong = schedule_run(changed, 1, run).check();
    if (!done.must_show && wrong.empty()) {
      ++harmless;
      continue;
    }
    ++failures;
    FAIL_CHECK("ESPALIER_FUZZ_SEED=" << seed << ", " << made.name << ", " << done.name
                                     << " was not noticed: " << wrong);
  }
  CHECK(failures == 0);
  CHECK(caught > cases / 3);
  CHECK(harmless < caught / 5);
}

TEST_CASE("a fault is described with rank, tree, chunk and step", "[schedule]") {
  const network net = line_network(4, 1e8, 1e-6);
  chunking cut;
  cut.elements = 10;
  schedule plan = from_trees(uniform_call(collective::broadcast, 4, 25, 0), net, {line_tree(net, 0)}, cut);
  REQUIRE(validate(plan, net));
  const std::size_t send_of_2 = static_cast<std::size_t>(steps_of(plan.tracks[0], 2)->begin) + 1;
  plan.tracks[0].steps[send_of_2].from.offset += 1;
  schedule_report report = validate(plan, net);
  REQUIRE(!report);
  CHECK(describe(report.faults[0]) == "rank 2, track 0 (tree 0), step 4: output [1, 26) reaches beyond the buffer");
  plan.tracks[0].steps[send_of_2].from.offset -= 1;
  plan.tracks[0].steps[send_of_2].peer = 1;
  report = validate(plan, net);
  REQUIRE(!report);
  CHECK(describe(report.faults[0]) ==
        "rank 2, track 0 (tree 0), step 4: the message exchanged with rank 1 names an edge between others");

  // Two ranks that receive before they send wait for each other.
  schedule circle;
  circle.call = uniform_call(collective::all_gather, 2, 1);
  circle.scratch = {0, 0};
  track_builder wrong(0, 0);
  for (int r = 0; r < 2; ++r) {
    wrong.rank(r);
    wrong.copy({place::input, 0}, {place::output, r}, 1);
    wrong.receive(1 - r, step::direct, {place::output, 1 - r}, 1);
    wrong.send(1 - r, step::direct, {place::input, 0}, 1);
  }
  circle.tracks.push_back(wrong.finish());
  report = validate(circle);
  REQUIRE(report.faults.size() == 2);
  CHECK(describe(report.faults[1]) == "rank 1, track 0 (tree 0), chunk 0, step 4: waits for ever for rank 0");
}

TEST_CASE("each kind of fault is told apart", "[schedule]") {
  constexpr location in0{place::input, 0};
  constexpr location out0{place::output, 0};
  // A reduction of two elements from rank 1 to rank 0, whose steps the cases write themselves.
  const auto first_fault = [&](const auto& root, const auto& other, bool ordered = false) {
    schedule plan;
    plan.call = uniform_call(collective::reduce, 2, 2);
    plan.call.ordered = ordered;
    plan.scratch = {2, 2};
    track_builder made(0, 0);
    made.rank(0);
    root(made);
    made.rank(1);
    other(made);
    plan.tracks.push_back(made.finish());
    const schedule_report report = validate(plan);
    return report ? -1 : static_cast<int>(report.faults[0].kind);
  };
  const auto is = [](fault what) { return static_cast<int>(what); };
  const auto sends = [&](track_builder& t) { t.send(0, step::direct, in0, 2); };
  const auto adds = [&](track_builder& t) { t.receive_reduce(1, step::direct, in0, out0, 2); };
  CHECK(first_fault(adds, sends) == -1);
  CHECK(first_fault(adds, sends, true) == -1);
  const auto sends_twice = [&](track_builder& t) {
    sends(t);
    sends(t);
  };
  CHECK(first_fault(
            [&](track_builder& t) {
              adds(t);
              t.receive_reduce(1, step::direct, out0, out0, 2);
            },
            sends_twice) == is(fault::twice));
  CHECK(first_fault([&](track_builder& t) { t.receive_reduce(1, step::direct, in0, out0, 2, true); }, sends, true) ==
        is(fault::out_of_order));
  CHECK(first_fault(
            [&](track_builder& t) {
              t.receive_reduce(1, step::direct, {place::input, 1}, out0, 1);
            },
            [&](track_builder& t) { t.send(0, step::direct, in0, 1); }) == is(fault::elements_differ));
  CHECK(first_fault(adds, [&](track_builder& t) { t.send(0, step::direct, in0, 1); }) == is(fault::size_differs));
  CHECK(first_fault(adds, [&](track_builder& t) {
          t.send(0, step::direct, {place::scratch, 0}, 2);
        }) == is(fault::unwritten));
  CHECK(first_fault(adds, [](track_builder&) {}) == is(fault::no_partner));
  CHECK(first_fault([&](track_builder& t) { t.receive_reduce(1, step::direct, in0, in0, 2); }, sends) ==
        is(fault::writes_input));
  CHECK(first_fault(
            [&](track_builder& t) {
              t.receive_reduce(1, step::direct, in0, {place::output, 1}, 2);
            },
            sends) == is(fault::outside));
  CHECK(first_fault(
            [&](track_builder& t) {
              t.receive_reduce(1, step::direct, in0, {place::scratch, 0}, 2);
            },
            sends) == is(fault::result_missing));
  CHECK(first_fault([&](track_builder& t) { t.receive(1, step::direct, out0, 2); }, sends) == is(fault::result_wrong));
  CHECK(first_fault([&](track_builder& t) { t.receive_reduce(0, step::direct, in0, out0, 2); }, sends) ==
        is(fault::malformed));
}

TEST_CASE("lanes that race are found even where every order happens to give the right result", "[schedule]") {
  // Two tracks write the same element of rank 1 with the same value.
  schedule plan;
  plan.call = uniform_call(collective::broadcast, 2, 1);
  plan.scratch = {0, 0};
  for (int t = 0; t < 2; ++t) {
    track_builder made(t, 0);
    made.rank(0);
    made.send(1, step::direct, {place::input, 0}, 1);
    if (t == 0) made.copy({place::input, 0}, {place::output, 0}, 1);
    made.rank(1);
    made.receive(0, step::direct, {place::output, 0}, 1);
    plan.tracks.push_back(made.finish());
  }
  const schedule_report report = validate(plan);
  REQUIRE(report.faults.size() == 1);
  CHECK(report.faults[0].kind == fault::race);
  CHECK(report.faults[0].rank == 1);
  plan.tracks[1].phase = 1;
  CHECK(validate(plan));
}

TEST_CASE("counts beyond 2^31 and counts below the number of trees", "[schedule]") {
  const network net = ring_network(6, 1e8, 1e-6);
  std::vector<tree> trees;
  for (int r = 0; r < 6; ++r) trees.push_back(ring_tree(net, r, r % 2 == 0 ? 1 : -1));
  chunking cut;
  cut.elements = 1 << 26;
  const std::int64_t large = (std::int64_t{1} << 33) + 12345;
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{5}, std::int64_t{7}, large}) {
    const schedule plan = from_trees(uniform_call(collective::all_reduce, 6, count), net, trees, cut);
    CHECK(faults_of(validate(plan, net)) == no_faults);
    CHECK(traffic_of(plan).elements == 2 * 5 * count);
    std::int64_t longest = 0;
    for (const track& t : plan.tracks) longest = std::max(longest, t.chunk);
    CHECK(longest <= cut.elements);
  }
}

TEST_CASE("16 MiB in 32 KiB chunks over 8 trees and 64 ranks are little to store", "[schedule]") {
  const network net = line_network(64, 1e9, 1e-6);
  std::vector<tree> trees;
  for (int i = 0; i < 8; ++i) trees.push_back(line_tree(net, 8 * i));
  const schedule plan = from_trees(uniform_call(collective::all_reduce, 64, 4 << 20), net, trees);
  std::size_t steps = 0;
  for (const track& t : plan.tracks) steps += t.steps.size();
  CHECK(steps == 8 * 4 * 63);
  CHECK(traffic_of(plan).messages == 512 * 2 * 63);
  const schedule_report report = validate(plan, net);
  CHECK(report);
  CHECK(report.messages == 512 * 2 * 63);
}

TEST_CASE("any change of a schedule changes its fingerprint", "[schedule]") {
  int compared = 0;
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    chooser random(seed);
    const schedule plan = random_case(random).plan;
    CHECK(fingerprint(plan) == fingerprint(schedule(plan)));
    schedule changed = plan;
    if (mutate(changed, random).name.empty() || same_steps(plan, changed)) continue;
    CHECK(fingerprint(plan) != fingerprint(changed));
    ++compared;
  }
  CHECK(compared > 200);
}

TEST_CASE("shares of an ordered all-reduce load all ranks alike", "[schedule]") {
  const network net = star_network({1, 1, 1, 1, 1, 1, 1, 1}, 1e8, 1e-6);
  const std::int64_t elements = 4 << 20;
  const auto seconds = [&](int shares) {
    const schedule plan = from_ordered_trees(uniform_call(collective::all_reduce, 8, elements), {}, shares);
    CHECK(faults_of(validate(plan, net)) == no_faults);
    return simulate(plan, net).seconds / (4.0 * static_cast<double>(elements) / 1e8);
  };
  CHECK(seconds(1) < 3.1);  // an inner rank takes two children's sums and its parent's result
  CHECK(seconds(8) < 2.4);  // 1.75 is optimal for values in any order
}

TEST_CASE("data is cut in proportion", "[schedule]") {
  using cuts = std::vector<std::int64_t>;
  CHECK(proportional_cuts(10, {1, 1}) == cuts{0, 5, 10});
  CHECK(proportional_cuts(7, {2, 0, 1, 0}) == cuts{0, 5, 5, 7, 7});
  CHECK(proportional_cuts(1, {1, 1, 1}) == cuts{0, 0, 1, 1});
  CHECK(proportional_cuts(0, {1, 1}) == cuts{0, 0, 0});
  CHECK(proportional_cuts(100, {1, 1, 1}, 16) == cuts{0, 32, 64, 100});
}

// The laws that comments state as @post: each test has the name of the function and the law, as they stand there.

TEST_CASE("proportional_cuts: result.front() == 0, result.back() == count, result ascends", "[schedule][law]") {
  chooser random(8);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::int64_t count = random.below(1000);
    const std::int64_t grain = 1 + random.below(20);
    std::vector<double> weights(1 + static_cast<std::size_t>(random.below(9)), 1);
    for (double& weight : weights) weight = random.chance(0.2) ? 0 : random.below(100) * 0.37;
    weights[0] += 0.01;
    const std::vector<std::int64_t> cuts = proportional_cuts(count, weights, grain);
    REQUIRE(cuts.size() == weights.size() + 1);
    REQUIRE(cuts.front() == 0);
    REQUIRE(cuts.back() == count);
    REQUIRE(std::is_sorted(cuts.begin(), cuts.end()));
    for (const std::int64_t cut : cuts) REQUIRE((cut == count || cut % grain == 0));
  }
}

TEST_CASE("equal_chunks: chunks * chunk - cut == count, 0 <= cut < chunk", "[schedule][law]") {
  chooser random(7);
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t count = random.below(1000);
    const std::int64_t most = 1 + random.below(60);
    const std::int64_t grain = 1 + random.below(9);
    const chunk_grid grid = equal_chunks(count, most, grain);
    CHECK(grid.chunks * grid.chunk - grid.cut == count);
    CHECK(grid.chunk <= most);
    CHECK((grid.cut >= 0 && (grid.cut < grid.chunk || count == 0)));
  }
}

TEST_CASE("split_over_channels: the sum is `bytes`, and no share is negative", "[schedule][law]") {
  chooser random(9);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::int64_t bytes = random.below(100000);
    std::vector<channel_cost> channels(1 + static_cast<std::size_t>(random.below(5)));
    for (channel_cost& one : channels) one = {random.below(9) * 1e3, random.below(9) * 1.0};
    channels[0].rate += 10;
    const std::vector<std::int64_t> shares = split_over_channels(bytes, channels, 1 + random.below(9));
    REQUIRE(shares.size() == channels.size());
    std::int64_t sum = 0;
    for (const std::int64_t share : shares) {
      REQUIRE(share >= 0);
      sum += share;
    }
    REQUIRE(sum == bytes);
  }
}

TEST_CASE("circulant_skips: every rank is a sum of different skips", "[schedule][law]") {
  for (int ranks = 1; ranks <= 200; ++ranks) {
    const std::vector<int> skips = circulant_skips(ranks);
    std::vector<bool> is_sum(static_cast<std::size_t>(ranks), false);
    is_sum[0] = true;
    for (std::size_t k = 0; k + 1 < skips.size(); ++k) {
      for (int r = ranks - 1; r >= skips[k]; --r)
        if (is_sum[static_cast<std::size_t>(r - skips[k])]) is_sum[static_cast<std::size_t>(r)] = true;
    }
    CAPTURE(ranks);
    REQUIRE(skips.back() == ranks);
    REQUIRE(std::count(is_sum.begin(), is_sum.end(), false) == 0);
    // ceil(log2(ranks)) rounds
    REQUIRE(((1 << (skips.size() - 1)) >= ranks && (ranks == 1 || (1 << (skips.size() - 2)) < ranks)));
  }
}

TEST_CASE("channels of different rates and start-up costs end together", "[schedule]") {
  // Blink's closed form for two channels: D_P = D BW_P / (BW_P + BW_N) - T BW_P BW_N / (BW_P + BW_N).
  const double bus = 12e9;
  const double link = 40e9;
  const double start = 1e-3;
  const std::int64_t bytes = 1 << 30;
  const std::vector<std::int64_t> shares = split_over_channels(bytes, {{bus, start}, {link, 0}});
  CHECK(static_cast<double>(shares[0]) ==
        Approx(static_cast<double>(bytes) * bus / (bus + link) - start * bus * link / (bus + link)).epsilon(1e-6));
  CHECK(shares[0] + shares[1] == bytes);
  CHECK(static_cast<double>(shares[0]) / bus + start == Approx(static_cast<double>(shares[1]) / link).epsilon(1e-6));
  // Too little to pay for the start: all on one.
  CHECK(split_over_channels(1 << 20, {{bus, start}, {link, 0}}) == std::vector<std::int64_t>{0, 1 << 20});
  // Two that take part, and one that starts too late: the two end together.
  const std::vector<channel_cost> three{{2e9, 0}, {1e9, 1e-4}, {50e9, 1}};
  const std::vector<std::int64_t> some = split_over_channels(1 << 20, three);
  CHECK(some[2] == 0);
  CHECK(static_cast<double>(some[0]) / 2e9 == Approx(static_cast<double>(some[1]) / 1e9 + 1e-4).epsilon(1e-4));
  CHECK(split_over_channels(0, {{bus, start}, {link, start}}) == std::vector<std::int64_t>{0, 0});

  // A ring whose ranks also have a slow network of their own.
  network net = ring_network(4, 1e8, 1e-6);
  const int first = static_cast<int>(net.edges.size());
  for (int r = 0; r < 3; ++r) add_link(net, r, r + 1, 1, 1e-6);
  packing fast;
  fast.kind = collective::broadcast;
  fast.trees = {ring_tree(net, 0, 1), ring_tree(net, 0, -1)};
  fast.rate = fast.bound = {2, 1};
  packing slow = fast;
  slow.rate = slow.bound = {1, 1};
  slow.trees = {fast.trees[0]};
  for (int r = 1; r < 4; ++r) {
    slow.trees[0].down[static_cast<std::size_t>(r)] = first + 2 * (r - 1);
    slow.trees[0].up[static_cast<std::size_t>(r)] = first + 2 * (r - 1) + 1;
  }
  const std::int64_t elements = 3 << 20;
  const collective_call call = uniform_call(collective::broadcast, 4, elements);
  const schedule both = from_channels(call, net, {fast, slow}, {0, 0}, elements * 4);
  CHECK(faults_of(validate(both, net)) == no_faults);
  CHECK(simulate(both, net).seconds < 1.05 * 4.0 * static_cast<double>(elements) / 3e8);
}

TEST_CASE("chunk sizes", "[schedule]") {
  const hop_cost hop{50e-6, 10e-6, 1e8};
  const std::int64_t bytes = 16 << 20;
  const chunk_price best = best_chunk(bytes, 6, hop);
  // No other size is better.
  for (std::int64_t chunk = 1024; chunk <= bytes; chunk = chunk * 5 / 4) {
    CHECK(pipelined_seconds(static_cast<double>(bytes), 6, static_cast<double>(chunk), hop) >= best.seconds * 0.9999);
  }
  CHECK(best.seconds > static_cast<double>(bytes) / 1e8);
  CHECK(best.seconds < 1.05 * static_cast<double>(bytes) / 1e8);
  // Not near the size from which a transport asks first.
  chunk_limits limits;
  for (const std::int64_t eager : {4096, 32768, 65536, 131072}) {
    limits.eager = eager;
    const std::int64_t chunk = best_chunk(bytes, 6, hop, limits).bytes;
    CHECK((chunk <= eager * 3 / 4 || chunk >= 2 * eager));
  }
  // A long round trip needs larger chunks.
  CHECK(best_chunk(bytes, 6, {5e-3, 10e-6, 1e8}).bytes * 4 >= 1000000);
  CHECK(best_chunk(100, 6, hop).bytes == 100);
  CHECK(best_chunk(0, 6, hop).bytes == 1);
}

namespace {

// The time that the simulation of large messages may take: 5 % more than the bound, and the way through the tree.
double allowed(double bound, int depth, double latency) { return 1.05 * bound + depth * latency; }

}  // namespace

TEST_CASE("pipelined trees reach the bound of networks made by hand", "[schedule]") {
  const double unit = 1e8;
  const double latency = 20e-6;
  const std::int64_t elements = 8 << 20;
  const double seconds = 4.0 * static_cast<double>(elements) / unit;  // at rate 1
  chunking cut;
  cut.elements = 8192;
  const auto run = [&](collective what, const network& net, const std::vector<tree>& trees, double rate) {
    collective_call call = uniform_call(what, net.ranks, elements);
    if (has_blocks(what)) call.counts.assign(call.counts.size(), elements / net.ranks);
    call.root = trees.front().root;
    const schedule plan = from_trees(call, net, trees, cut);
    CHECK(faults_of(validate(plan, net)) == no_faults);
    const simulation s = simulate(plan, net);
    CHECK(s.complete);
    INFO(name_of(what) << " on " << net.ranks << " ranks: " << s.seconds << " s, bound " << seconds / rate << " s");
    CHECK(s.seconds >= seconds / rate * 0.999);
    CHECK(s.seconds <= allowed(seconds / rate, 2 * net.ranks, latency));
    for (const double u : s.utilisation) CHECK(u <= 1.000001);
  };
  {
    const network net = line_network(5, unit, latency);
    for (const collective what : {collective::broadcast, collective::reduce, collective::all_reduce}) {
      for (int root = 0; root < 5; ++root) run(what, net, {line_tree(net, root)}, 1);
    }
  }
  {
    const network net = ring_network(8, unit, latency);
    run(collective::broadcast, net, {ring_tree(net, 3, 1), ring_tree(net, 3, -1)}, 2);
    std::vector<tree> each;
    for (int r = 0; r < 8; ++r) {
      each.push_back(ring_tree(net, r, 1));
      each.push_back(ring_tree(net, r, -1));
    }
    run(collective::all_gather, net, each, 16.0 / 7);
    run(collective::reduce_scatter, net, each, 16.0 / 7);
    // The eight rows that leave out one link each, all with middle roots.
    std::vector<tree> rows;
    for (int r = 0; r < 8; ++r) {
      std::vector<int> parents(8, -1);
      for (int i = 1; i <= 4; ++i) parents[static_cast<std::size_t>((r + i) % 8)] = (r + i - 1) % 8;
      for (int i = 1; i <= 3; ++i) parents[static_cast<std::size_t>((r + 8 - i) % 8)] = (r + 9 - i) % 8;
      rows.push_back(tree_of(net, parents));
    }
    run(collective::all_reduce, net, rows, 8.0 / 7);
  }
  {
    const network net = complete_network(8, unit, latency);
    std::vector<tree> flat;
    for (int r = 0; r < 8; ++r) flat.push_back(flat_tree(net, r));
    run(collective::all_reduce, net, flat, 4);
    run(collective::all_gather, net, flat, 8);
    run(collective::reduce_scatter, net, flat, 8);
  }
  {
    // Cards of 4, 4, 1, 4: the slow rank is a leaf, which reduce-scatter + all-gather can't have (rate 2/3).
    const network net = star_network({4, 4, 1, 4}, unit, latency);
    run(collective::all_reduce, net, {tree_of(net, {-1, 0, 1, 1})}, 1);
    run(collective::broadcast, net, {tree_of(net, {-1, 0, 1, 1})}, 1);
  }
  {
    // A ring that runs one way: values go up round it and results down the same links, both pipelined.
    network net = empty_network(4, unit);
    for (int r = 0; r < 4; ++r) {
      net.resources.push_back({"", 1});
      net.edges.push_back({r, (r + 1) % 4, {r}, latency});
    }
    run(collective::all_reduce, net, {{0, {-1, 0, 1, 2}, {-1, 1, 2, 3}, {1, 1}}}, 0.5);
  }
  {
    const network net = line_network(4, unit, latency, {4, 4, 1});
    run(collective::all_reduce, net, {line_tree(net, 1)}, 1);
  }
}

TEST_CASE("the simulator's costs are those of the model", "[schedule]") {
  const std::int64_t elements = 1 << 20;
  const double bytes = 4.0 * static_cast<double>(elements);
  chunking cut;
  cut.elements = elements / 256;
  const double chunk = bytes / 256;
  const auto seconds = [&](collective what, const network& net, const simulation_options& options) {
    return simulate(from_trees(uniform_call(what, net.ranks, elements), net, {line_tree(net, 0)}, cut), net, options)
        .seconds;
  };
  {
    // A round trip that takes longer than the credits last: `credits` chunks per round trip.
    const network net = line_network(2, 1e9, 1e-3);
    simulation_options options;
    for (const int credits : {1, 2, 4}) {
      options.credits = credits;
      CHECK(seconds(collective::broadcast, net, options) ==
            Approx(256.0 / credits * (2e-3 + chunk / 1e9)).epsilon(0.02));
    }
    options.credits = 4096;
    CHECK(seconds(collective::broadcast, net, options) == Approx(bytes / 1e9 + 1e-3).epsilon(0.001));
  }
  {
    // Work of the ranks: reductions at the root, messages at both ends.
    const network net = line_network(2, 1e9, 0);
    simulation_options options;
    options.reduce_seconds_per_byte = 3e-9;
    CHECK(seconds(collective::reduce, net, options) == Approx(bytes * 3e-9).epsilon(0.02));
    options.reduce_seconds_per_byte = 0;
    options.message_seconds = 1e-3;
    CHECK(seconds(collective::broadcast, net, options) == Approx(256e-3).epsilon(0.02));
    CHECK(seconds(collective::all_reduce, net, options) == Approx(2 * 256e-3).epsilon(0.02));
    // The root's own copy into its output.
    options.message_seconds = 0;
    options.copy_seconds_per_byte = 5e-9;
    CHECK(seconds(collective::broadcast, net, options) == Approx(bytes * 5e-9).epsilon(0.02));
  }
  {
    // Lanes: with one at a time, each chunk goes all the way up and down before the next one starts.
    const network net = line_network(4, 1e9, 0);
    cut.in_flight = 1;
    CHECK(seconds(collective::all_reduce, net, {}) == Approx(6 * bytes / 1e9).epsilon(0.01));
    cut.in_flight = 0;
    CHECK(seconds(collective::all_reduce, net, {}) == Approx(bytes / 1e9).epsilon(0.03));
  }
  {
    // Messages that go directly take the quickest way where there is no link.
    const network net = line_network(4, 1e9, 1e-3);
    const std::vector<network_path> paths = all_paths(net);
    CHECK(paths[0 * 4 + 3].latency == Approx(3e-3));
    CHECK(paths[0 * 4 + 3].resources.size() == 3);
    CHECK(paths[0 * 4 + 3].rate == Approx(1e9));
    CHECK(paths[0].rate == 0);
  }
}

TEST_CASE("as many lanes are open as chunks are on their way, and some to spare", "[schedule]") {
  // Chunks of 0.1 ms over two hops of 1 ms: what leaves every 0.1 ms is 22 chunks ahead of what arrives.
  const network net = line_network(3, 1e9, 1e-3);
  tree line = line_tree(net, 0);
  chunking cut;
  cut.elements = 25000;
  const auto lanes = [&](collective what) {
    return from_trees(uniform_call(what, 3, 25000 * 100), net, {line}, cut).tracks.front().in_flight;
  };
  line.weight = {1, 1};
  CHECK(lanes(collective::broadcast) == 25);
  CHECK(lanes(collective::all_reduce) == 47);
  cut.spare = 24;
  CHECK(lanes(collective::broadcast) == 46);
  cut.spare = 3;
  line.weight = {1, 2};
  CHECK(lanes(collective::broadcast) == 14);
  cut.element_bytes = 8;  // 0.2 ms, and every 0.4 ms one
  CHECK(lanes(collective::broadcast) == 9);
}

TEST_CASE("trees of unequal weights that share a link end together", "[schedule]") {
  // Two ways from 0 to 2, of rates 3 and 1, behind one card of rate 4.
  network net = empty_network(3, 1e8);
  net.resources = {{"card", 4}, {"direct", 1}, {"first hop", 3}, {"second hop", 4}};
  net.edges = {{0, 2, {0, 1}, 1e-6}, {0, 1, {0, 2}, 1e-6}, {1, 2, {3}, 1e-6}, {0, 1, {0}, 1e-6}};
  tree over_1{0, {-1, 1, 2}, {-1, -1, -1}, {3, 1}};
  const std::int64_t elements = 4 << 20;
  const schedule plan =
      from_trees(uniform_call(collective::broadcast, 3, elements), net, {over_1, {0, {-1, 3, 0}, {}, {1, 2}}});
  CHECK(faults_of(validate(plan, net)) == no_faults);
  // 3 + 1/2: the card carries 3 + 2 x 1/2 = 4.
  CHECK(simulate(plan, net).seconds <= 1.05 * 4.0 * static_cast<double>(elements) / 3.5e8);
}

TEST_CASE("gather, scatter and all-to-all find routes and keep to them", "[schedule]") {
  const double unit = 1e8;
  const double latency = 10e-6;
  const auto run = [&](collective what, const network& net, double rate) {
    const std::int64_t blocks = what == collective::all_to_all ? net.ranks * net.ranks : net.ranks;
    const collective_call call = uniform_call(what, net.ranks, (8 << 20) / blocks);
    const routing found = find_routes(call, net);
    INFO(name_of(what) << " on " << net.ranks << " ranks");
    CHECK(found.bound == Approx(rate).epsilon(0.03));
    CHECK(found.rate >= 0.97 * rate);
    CHECK(found.bound >= 0.9999 * rate);
    chunking cut;
    cut.elements = 4096;
    const schedule plan = from_routes(call, net, found.routes, cut);
    CHECK(faults_of(validate(plan, net)) == no_faults);
    const simulation s = simulate(plan, net);
    CHECK(s.complete);
    const double bound = 4.0 * static_cast<double>(total_elements(call)) / (found.bound * unit);
    CHECK(s.seconds <= allowed(bound, net.ranks, latency));
  };
  // The only way into the root of a row carries all other blocks.
  run(collective::gather, line_network(5, unit, latency), 5.0 / 4);
  run(collective::scatter, line_network(5, unit, latency), 5.0 / 4);
  // Two ways into a root of a ring, 7 blocks of 8.
  run(collective::gather, ring_network(8, unit, latency), 16.0 / 7);
  run(collective::scatter, ring_network(8, unit, latency), 16.0 / 7);
  // Every pair its own link: 1/64 of the array each.
  run(collective::all_to_all, complete_network(8, unit, latency), 64);
  // Pairs are 4 x 1/4 + 3 + 2 + 1 hops apart: per rank (2 (1 + 2 + 3) + 4) / 64 of the array over 2 links each way.
  run(collective::all_to_all, ring_network(8, unit, latency), 64.0 * 2 / 16);
  // Cards: each sends 3/16 of the array; the slow one decides.
  run(collective::all_to_all, star_network({4, 4, 1, 4}, unit, latency), 16.0 / 3);
}

TEST_CASE("the three-phase form over hosts", "[schedule]") {
  // Three hosts of 2, 3 and 1 ranks: memory inside, a card each way per host.
  network net = empty_network(6, 1e8);
  net.host = {0, 0, 1, 1, 1, 2};
  for (int h = 0; h < 3; ++h) {
    net.resources.push_back({"out", 1});
    net.resources.push_back({"in", 1});
  }
  for (int a = 0; a < 6; ++a) {
    for (int b = 0; b < 6; ++b) {
      if (a == b) continue;
      const int from = net.host[static_cast<std::size_t>(a)];
      const int to = net.host[static_cast<std::size_t>(b)];
      network::edge e{a, b, {}, 1e-6};
      if (from == to) {
        net.resources.push_back({"memory", 20});
        e.resources = {static_cast<int>(net.resources.size()) - 1};
      } else {
        e.resources = from < to ? std::vector<int>{2 * from, 2 * to + 1} : std::vector<int>{2 * to + 1, 2 * from};
      }
      net.edges.push_back(e);
    }
  }
  const std::vector<tree> trees = three_phase_trees(net);
  CHECK(trees.size() == 9);  // 3 partitions, 3 hosts
  const std::int64_t elements = 3 << 20;
  chunking cut;
  cut.elements = 4096;
  const schedule plan = from_trees(uniform_call(collective::all_reduce, 6, elements), net, trees, cut);
  CHECK(faults_of(validate(plan, net)) == no_faults);
  // Equal cards: 2 (n - 1) / n of the data crosses each, n = 3 hosts.
  CHECK(simulate(plan, net).seconds <= 1.05 * 4.0 * static_cast<double>(elements) * (4.0 / 3) / 1e8);
  for (int root = 0; root < 6; ++root) {
    const schedule down =
        from_trees(uniform_call(collective::broadcast, 6, 1000, root), net, three_phase_trees(net, {}, root), cut);
    CHECK(faults_of(validate(down, net)) == no_faults);
  }
}

TEST_CASE("round-optimal broadcasts have as few rounds as there can be", "[schedule]") {
  for (int ranks = 2; ranks <= 70; ++ranks) {
    const int rounds_of_one = static_cast<int>(circulant_skips(ranks).size()) - 1;
    for (const std::int64_t blocks : {1, 2, 5, 9}) {
      const circulant_rounds rounds(ranks, blocks);
      CHECK(rounds.rounds() == blocks - 1 + rounds_of_one);
      // One message out and one in per rank and round holds by construction; each block comes exactly once.
      for (int r = 1; r < ranks; ++r) {
        std::vector<int> times(static_cast<std::size_t>(blocks), 0);
        for (std::int64_t i = 0; i < rounds.rounds(); ++i) {
          if (const std::int64_t b = rounds.received(r, i); b >= 0) ++times[static_cast<std::size_t>(b)];
        }
        CHECK(times == std::vector<int>(static_cast<std::size_t>(blocks), 1));
      }
    }
  }
}

TEST_CASE("low-latency schedules take as many latencies as they have rounds", "[schedule]") {
  for (const int ranks : {2, 3, 5, 8, 13, 16}) {
    const network net = complete_network(ranks, 1e12, 1e-3);
    const int rounds = static_cast<int>(circulant_skips(ranks).size()) - 1;
    const auto latencies = [&](const schedule& plan) { return simulate(plan, net).seconds / 1e-3; };
    CHECK(latencies(binomial(uniform_call(collective::broadcast, ranks, 10, 1))) <= rounds + 0.01);
    CHECK(latencies(binomial(uniform_call(collective::gather, ranks, 10, 1))) <= rounds + 0.01);
    CHECK(latencies(circulant(uniform_call(collective::all_gather, ranks, 10))) == Approx(rounds).margin(0.01));
    CHECK(latencies(circulant(uniform_call(collective::reduce_scatter, ranks, 10))) == Approx(rounds).margin(0.01));
    CHECK(latencies(circulant(uniform_call(collective::all_reduce, ranks, 100))) == Approx(2 * rounds).margin(0.01));
    CHECK(latencies(bruck(uniform_call(collective::all_to_all, ranks, 10))) == Approx(rounds).margin(0.01));
    const bool power = (ranks & (ranks - 1)) == 0;
    CHECK(latencies(doubling(uniform_call(collective::all_reduce, ranks, 10))) <= (power ? rounds : rounds + 1) + 0.01);
    CHECK(latencies(circulant_blocks(uniform_call(collective::broadcast, ranks, 100), 4)) <= rounds + 3.01);
  }
}

TEST_CASE("small messages get few rounds, large ones trees", "[schedule]") {
  const network net = line_network(8, 1e9, 10e-6, {4, 4, 4, 1, 4, 4, 4});
  const std::vector<tree> trees{line_tree(net, 4)};
  selection_input given;
  given.trees = &trees;
  for (const collective what : every_operation) {
    selection_input here = given;
    std::vector<tree> each;
    for (int r = 0; r < 8; ++r) each.push_back(line_tree(net, r));
    if (has_blocks(what)) here.trees = &each;
    for (const std::int64_t count : {0, 1, 1000, 100000}) {
      for (const bool ordered : {false, true}) {
        collective_call call = uniform_call(what, 8, count, 4);
        call.ordered = ordered && reduces(what);
        const std::vector<candidate> found = candidates(call, net, here);
        REQUIRE(!found.empty());
        for (const candidate& c : found) {
          INFO(name_of(what) << " of " << count << " by " << name_of(c.how));
          CHECK(faults_of(validate(schedule_of(c, call, net, here), net)) == no_faults);
        }
      }
    }
  }
  CHECK(candidates(uniform_call(collective::all_reduce, 8, 2), net, given).front().how == algorithm::doubling);
  // Few ranks that are all as far apart: one latency, or two, instead of as many as there are rounds.
  const network wide = star_network({4, 4, 4, 4, 4}, 1e9, 10e-6);
  CHECK(candidates(uniform_call(collective::broadcast, 5, 2), wide, {}).front().how == algorithm::flat);
  CHECK(candidates(uniform_call(collective::all_reduce, 5, 2), wide, {}).front().how == algorithm::flat);
  // The root of a flat all-reduce has a wide card: the slow one's would carry every other rank's data.
  for (const int slow : {0, 2, 4}) {
    std::vector<std::int64_t> cards(5, 4);
    cards[static_cast<std::size_t>(slow)] = 1;
    const network uneven = star_network(cards, 1e6, 10e-6);
    const collective_call call = uniform_call(collective::all_reduce, 5, 250);
    candidate hub;
    hub.how = algorithm::flat;
    const double chosen = simulate(schedule_of(hub, call, uneven), uneven).seconds;
    CHECK(chosen < 0.5 * simulate(flat(call, slow), uneven).seconds);
    for (int other = 0; other < 5; ++other) CHECK(chosen <= simulate(flat(call, other), uneven).seconds);
  }
  CHECK(candidates(uniform_call(collective::all_reduce, 8, 4 << 20), net, given).front().how == algorithm::trees);
  // The formula for trees is what the simulation says, to some percent.
  for (const std::int64_t count : {1 << 16, 1 << 20, 1 << 22}) {
    const collective_call call = uniform_call(collective::all_reduce, 8, count, 4);
    for (const candidate& c : candidates(call, net, given)) {
      if (c.how != algorithm::trees) continue;
      simulation_options options;
      options.message_seconds = given.overhead;
      CHECK(simulate(schedule_of(c, call, net, given), net, options).seconds == Approx(c.seconds).epsilon(0.25));
    }
  }
}

TEST_CASE("calls that contradict themselves and trees that don't fit are refused", "[schedule]") {
  const network net = line_network(4, 1e8, 1e-6);
  const auto refuses = [&](const collective_call& call, const std::vector<tree>& trees, const char* words) {
    CHECK_THROWS_WITH(from_trees(call, net, trees), Catch::Contains(words));
  };
  collective_call call = uniform_call(collective::broadcast, 4, 10, 1);
  refuses(call, {line_tree(net, 0)}, "must have the call's root");
  refuses(call, {}, "no tree serves");
  refuses(uniform_call(collective::all_gather, 4, 1), {line_tree(net, 0)}, "no tree serves");
  tree broken = line_tree(net, 1);
  broken.down[3] = -1;
  refuses(call, {broken}, "don't reach every rank");
  broken.down[3] = 0;
  refuses(call, {broken}, "don't end at their ranks");
  broken = line_tree(net, 1);
  broken.down[2] = edge_between(net, 3, 2);
  refuses(call, {broken}, "form a circle");
  call.root = 4;
  refuses(call, {line_tree(net, 1)}, "root");
  call = uniform_call(collective::all_gather, 4, 1);
  call.counts.pop_back();
  refuses(call, {}, "one per rank");
  call = uniform_call(collective::reduce, 4, 10, 2);
  call.ordered = true;
  const network star = star_network({1, 1, 1, 1}, 1e8, 0);
  CHECK_THROWS_WITH(from_trees(call, star, {tree_of(star, {3, 2, -1, 2})}), Catch::Contains("neighbouring ranks"));
}
