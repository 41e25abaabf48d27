// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include "support/layer_harness.hpp"
#include "support/pipeline_model.hpp"

#include <espalier/pipeline/planner.hpp>
#include <espalier/pipeline/schedules/by_name.hpp>
#include <espalier/pipeline/stages/engine/engine.hpp>
#include <espalier/pipeline/stages/measure/estimate.hpp>
#include <espalier/pipeline/stages/measure/measure.hpp>
#include <espalier/pipeline/stages/messages/transport_in_process.hpp>
#include <espalier/tensor/run/execute/runner.hpp>

#include <catch2/catch.hpp>
#include <support/written.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

/// Layers as F, B and W: what they compute, what they keep, what they need.
namespace ep = espalier;
namespace pl = espalier::pipeline;

namespace {

using namespace pipeline_model;
using three_batches = model<pl::batches<3, 1, 2>>;

/// The same parameters and samples in one program: the loss, and the gradients layer by layer.
struct reference {
  double loss = 0;
  std::vector<std::vector<double>> gradients;

  explicit reference(harness& from) {
    ep::world world(ep::mesh<>::value);
    ep::runner<whole_program<3>> run(world);
    auto parameters = run.argument<0>();
    auto given = run.argument<1>();
    auto next = run.argument<2>();
    const auto fill = [&](auto& tree, int k) {
      std::size_t n = 0;
      ep::detail::for_each_leaf(tree, [&](auto& leaf) {
        const pl::tensor_facts& facts = from.model.facts(k).parameters[n++];
        std::memcpy(leaf.data(0), from.layers[static_cast<std::size_t>(k)].parameters.data() + facts.offset,
                    static_cast<std::size_t>(facts.bytes()));
      });
    };
    fill(parameters.embedding_layer, 0);
    fill(parameters.attention_layer, 1);
    fill(parameters.widening_layer, 2);
    fill(parameters.narrowing_layer, 3);
    fill(parameters.head_layer, 5);
    for (int s = 0; s < 3; ++s)
      for (int p = 0; p < context; ++p) {
        given.data(0)[s * context + p] = word(s, p);
        next.data(0)[s * context + p] = word(s, p + 1);
      }
    const auto& result = run(parameters, given, next);
    loss = *result.template get<0>().data(0);
    ep::detail::for_each_leaf(result.template get<1>(), [&](const auto& leaf) {
      gradients.emplace_back(leaf.data(0), leaf.data(0) + leaf.local_extents().elements());
    });
  }
};

/// The largest difference from the reference's gradients times `weight`.
double difference(harness& ours, const reference& wanted, double weight) {
  double most = 0;
  std::size_t leaf = 0;
  for (std::size_t k = 0; k < ours.layers.size(); ++k) {
    for (const pl::tensor_facts& facts : ours.model.facts(static_cast<int>(k)).parameters) {
      const double* const at = ours.layers[k].gradients.numbers() + facts.offset / 8;
      const std::vector<double>& right = wanted.gradients.at(leaf++);
      REQUIRE(static_cast<std::size_t>(facts.elements()) == right.size());
      for (std::size_t i = 0; i < right.size(); ++i) {
        const double off = std::abs(at[i] - weight * right[i]);
        most = std::isnan(off) || off > most ? off : most;
        if (std::isnan(off)) return off;
      }
    }
  }
  CHECK(leaf == wanted.gradients.size());
  return most;
}

template <class Graph> ep::graph_view code_of() { return ep::detail::frozen<Graph>::value; }

std::int64_t flops_of(ep::graph_view g) {
  std::int64_t sum = 0;
  for (int id = 0; id < g.size; ++id)
    if (g[id].op->flops != nullptr) sum += g[id].op->flops(g.view(id));
  return sum;
}
int count_of(ep::graph_view g, bool (*is_counted)(const ep::instruction&)) {
  return static_cast<int>(std::count_if(g.code, g.code + g.size, is_counted));
}
bool contracts(const ep::instruction& i) { return i.op->facts.contracts; }
/// True for operations that may not be done twice.
bool is_work(const ep::instruction& i) {
  return structure_of(i) == ep::structure::none && i.operand_count > 0 && !i.op->facts.cheap_to_repeat;
}

template <int Layer> void check_work_is_done_once() {
  using traced = three_batches::traced<Layer, 3>;
  const ep::graph_view whole = code_of<typename traced::whole>();
  const ep::graph_view parts[] = {code_of<typename traced::forward>(), code_of<typename traced::input_gradient>(),
                                  code_of<typename traced::weight_gradient>()};
  const auto sum = [&](const auto& count) {
    return std::accumulate(std::begin(parts), std::end(parts), std::int64_t{0},
                           [&](std::int64_t total, const ep::graph_view& g) { return total + count(g); });
  };
  INFO("layer " << Layer);
  CHECK(sum([](ep::graph_view g) { return count_of(g, contracts); }) == count_of(whole, contracts));
  CHECK(sum([](ep::graph_view g) { return count_of(g, is_work); }) == count_of(whole, is_work));
  // The repeated operations are comparisons, one for each element.
  std::int64_t repeated = 0;
  for (const ep::graph_view& g : parts)
    for (int id = 0; id < g.size; ++id)
      if (g[id].op->facts.cheap_to_repeat) repeated += g[id].shape.elements();
  CHECK(sum(flops_of) >= flops_of(whole));
  CHECK(sum(flops_of) <= flops_of(whole) + repeated);
}

/// The losses of steps on these layers: each is F, B and W of all samples, divided as `shares` says, and the optimizer.
std::vector<double> losses_in_turn(const pl::layer_model& model, int samples, int steps) {
  harness ours(model);
  std::vector<double> losses;
  for (int step = 1; step <= steps; ++step) {
    ours.loss = 0;
    for (int s = 0; s < samples; ++s) ours.run(s, 1, 1.0 / samples);
    losses.push_back(ours.loss / samples);
    for (harness::one_layer& one : ours.layers) {
      if (one.parameters.size() == 0) continue;
      one.object->step(one.parameters.data(), one.gradients.data(), one.state.data(), step);
      one.gradients.clear();
    }
  }
  return losses;
}

/// The same of a plan, and on how many of its ranks the peak was not what the simulator says.
std::vector<double> losses_of_plan(const pl::layer_model& model, const pl::execution_plan& plan, int ranks, int steps,
                                   int& wrong_peaks) {
  const std::vector<double> peaks = pl::peak_activation_bytes(plan.order, pl::memory_costs(plan, model));
  std::vector<double> losses;
  std::vector<std::int64_t> held(static_cast<std::size_t>(ranks));
  ep::comm::run_devices(ranks, [&](ep::comm::in_process_communicator& here) {
    pl::engine engine(pl::make_transport(here), model,
                      here.rank() == 0 ? std::optional<pl::execution_plan>(plan) : std::nullopt);
    const step_data data(engine.data_wanted(), plan.samples());
    for (int step = 0; step < steps; ++step) {
      const pl::step_report report = engine.step(data.pointers());
      if (here.rank() == 0) losses.push_back(report.loss);
      held[static_cast<std::size_t>(here.rank())] = report.peak_activation_bytes;
    }
  });
  for (std::size_t g = 0; g < plan.groups.size(); ++g)
    if (plan.groups[g].ranks.size() == 1)
      wrong_peaks +=
          std::abs(peaks[g] - static_cast<double>(held[static_cast<std::size_t>(plan.groups[g].ranks[0])])) > 0.5;
  return losses;
}

}  // namespace

TEST_CASE("F, B and W of unequal layers make the gradient of the whole model", "[pipeline_layers]") {
  const three_batches model(options());
  const std::vector<std::vector<int>> shares{{3}, {1, 2}, {2, 1}, {1, 1, 1}};
  for (const std::vector<int>& share : shares) {
    harness ours(model);
    const reference wanted(ours);
    int first = 0;
    for (const int rows : share) {
      ours.run(first, rows, 0.25);
      first += rows;
    }
    INFO(share.size() << " shares, the first of " << share.front());
    CHECK(std::abs(ours.loss - wanted.loss) < 1e-10);
    CHECK(difference(ours, wanted, 0.25) < 1e-10);
    CHECK(ours.is_intact);
  }
}

TEST_CASE("F again makes the same bits", "[pipeline_layers]") {
  const three_batches model(options());
  for (const int rows : {1, 2, 3}) {
    harness ours(model);
    ours.recompute = true;
    ours.run(0, rows, 1);
    CHECK(ours.is_intact);
  }
}

TEST_CASE("No work is done in two parts", "[pipeline_layers]") {
  check_work_is_done_once<0>();
  check_work_is_done_once<1>();
  check_work_is_done_once<2>();
  check_work_is_done_once<3>();
  check_work_is_done_once<4>();
  check_work_is_done_once<5>();
}

TEST_CASE("What is kept, and how long what is not kept is needed", "[pipeline_layers]") {
  const three_batches model(options());
  using pl::part;
  for (std::size_t n = 0; n < 3; ++n) {
    const auto rows = static_cast<std::int64_t>(n) + 1;
    const auto kept = [&](int k) { return model.facts(k).kept[n]; };
    INFO(rows << " rows");
    // A look-up: nothing; its gradient needs the words, which are there.
    CHECK(kept(0).kept_bytes + kept(0).kept_through_bytes + kept(0).kept_between_bytes == 0);
    // relu(x W + b): the mask follows from the output, W needs the input, and the masked gradient of B.
    CHECK(kept(2).kept_bytes + kept(2).kept_through_bytes == 0);
    CHECK(kept(2).kept_between_bytes == ep::aligned(rows * context * wide * 8));
    // gelu(x W + b) + s^2: of this gelu's argument alone.
    CHECK(kept(3).kept_bytes == ep::aligned(rows * context * width * 8));
    CHECK(kept(3).kept_through_bytes == 0);
    CHECK(kept(3).kept_between_bytes == ep::aligned(rows * context * width * 8));
    // tanh: its output.
    CHECK(kept(4).kept_bytes + kept(4).kept_through_bytes + kept(4).kept_between_bytes == 0);
    // Attention: query, key, value, weights, and what they mix, which alone only W reads.
    const std::int64_t one = ep::aligned(rows * context * width * 8);
    const std::int64_t weights = ep::aligned(rows * heads * context * context * 8);
    CHECK(kept(1).kept_bytes == 3 * one + weights);
    CHECK(kept(1).kept_through_bytes == one);
  }
  CHECK(model.facts(0).output_gradient_needed == part::weight_gradient);
  CHECK(model.facts(2).output_needed == part::input_gradient);
  CHECK(model.facts(2).output_gradient_needed == part::input_gradient);
  CHECK(model.facts(2).inputs.at(0).needed == part::weight_gradient);
  CHECK(model.facts(3).inputs.at(0).needed == part::weight_gradient);
  CHECK(model.facts(3).inputs.at(1).needed == part::input_gradient);
  CHECK(model.facts(3).inputs.at(1).layer == 0);
  CHECK(model.facts(3).output_needed == part::forward);
  CHECK(model.facts(4).inputs.at(0).needed == part::forward);
  CHECK(model.facts(4).output_needed == part::input_gradient);
  CHECK(model.facts(5).parameters_of == std::vector<int>{5, 0});
  CHECK(model.facts(1).output.shape == std::vector<std::int64_t>{context, width});
  CHECK(model.facts(5).output.shape.empty());
  CHECK(model.facts(0).batches == std::vector<int>{1, 2, 3});
}

namespace {

/// A look at a value that the layer hands on, at one that the gradient alone needs, at one without other readers, at an
/// argument, and at one in a loop.
struct looking {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f64<width, width>>, weight),
                             (ep::leaf<Leaf, ep::f64<2, width>>, gains));
  };
  constexpr auto operator()(const auto& p, const auto& x) const {
    ep::print(x, "argument");
    const auto h = ep::tanh(ep::print(ep::matmul(x, p.weight), "product"));
    ep::print(ep::exp(h), "unread");
    const auto body = [](auto c, auto gain) { return ep::check_finite(ep::print(ep::tanh(c * gain), "in loop")); };
    return ep::print(ep::scan(body, h, p.gains), "out");
  }
};
using looking_model =
    pl::model<pl::batches<1>, training, pl::named<"embedding", embedding, pl::reads<tokens>>,
              pl::named<"looking", looking>, pl::named<"head", head, pl::tied<"embedding">, pl::reads<targets>>>;

}  // namespace

TEST_CASE("A layer shows a value once: not in B, and not where F runs again", "[pipeline_layers]") {
  const looking_model model(options());
  for (const bool recompute : {false, true}) {
    harness ours(model);
    ours.recompute = recompute;
    const std::string text = testing::written_by([&] { ours.run(0, 1, 1); });
    INFO(text);
    for (const char* const name : {"argument: ", "product: ", "unread: ", "out: "})
      CHECK(testing::count_of(text, name) == 1);
    CHECK(testing::count_of(text, "in loop: ") == 2);
    CHECK(ours.is_intact);
  }
  harness broken(model);
  broken.layers[1].parameters.numbers()[model.facts(1).parameters[1].offset / 8] = std::nan("");
  std::string thrown;
  (void)testing::written_by([&] {
    try {
      broken.run(0, 1, 1);
    } catch (const ep::not_finite& error) { thrown = error.what(); }
  });
  CHECK_THAT(thrown, Catch::Contains("check_finite at ") && Catch::Contains("iteration 0"));
}

TEST_CASE("A layer's optimizer steps are AdamW's", "[pipeline_layers]") {
  const three_batches model(options());
  harness ours(model);
  auto& layer = ours.layers[2];
  const std::vector<pl::tensor_facts>& leaves = model.facts(2).parameters;
  REQUIRE(leaves.size() == 2);
  CHECK(leaves[0].name == "widening.weight");
  std::vector<double> value[2], first[2], second[2];
  for (std::size_t l = 0; l < 2; ++l) {
    const double* const at = layer.parameters.numbers() + leaves[l].offset / 8;
    value[l].assign(at, at + leaves[l].elements());
    first[l].resize(value[l].size());
    second[l].resize(value[l].size());
  }
  for (std::int64_t step = 1; step <= 3; ++step) {
    const double rate = 0.01 / static_cast<double>(step);
    for (std::size_t l = 0; l < 2; ++l)
      for (std::size_t i = 0; i < value[l].size(); ++i) {
        const double g = std::sin(static_cast<double>(i + l) * static_cast<double>(step));
        layer.gradients.numbers()[leaves[l].offset / 8 + static_cast<std::int64_t>(i)] = g;
        first[l][i] = 0.9 * first[l][i] + 0.1 * g;
        second[l][i] = 0.999 * second[l][i] + 0.001 * g * g;
        const double m = first[l][i] / (1 - std::pow(0.9, static_cast<double>(step)));
        const double v = second[l][i] / (1 - std::pow(0.999, static_cast<double>(step)));
        const double decay = l == 0 ? 0.1 : 0;  // biases do not decay
        value[l][i] -= rate * (m / (std::sqrt(v) + 1e-8) + decay * value[l][i]);
      }
    layer.object->step(layer.parameters.data(), layer.gradients.data(), layer.state.data(), step);
    for (std::size_t l = 0; l < 2; ++l)
      for (std::size_t i = 0; i < value[l].size(); ++i)
        CHECK(layer.parameters.numbers()[leaves[l].offset / 8 + static_cast<std::int64_t>(i)] ==
              Approx(value[l][i]).epsilon(1e-9));
  }
  CHECK(layer.parameters.is_intact());
  CHECK(layer.state.is_intact());
}

TEST_CASE("Layers refuse what they were not compiled or prepared for", "[pipeline_layers]") {
  const three_batches model(options());
  pl::no_peers alone;
  const std::unique_ptr<pl::layer> one = model.make(2, 0, alone);
  CHECK_THROWS_WITH(one->prepare(5), Catch::Contains("\"widening\" is not compiled for 5 rows, but for 1, 2, 3"));
  pl::layer_memory memory;
  memory.batch = 2;
  CHECK_THROWS_WITH(one->forward(memory), Catch::Contains("call prepare(2)"));
  pl::measure_options wrong;
  wrong.rows = 6;
  CHECK_THROWS_WITH(pl::measure(model, "small", wrong), Catch::Contains("not compiled for 6 rows"));
}

TEST_CASE("Layers train alike under any plan", "[pipeline_layers]") {
  const three_batches model(options());
  constexpr int samples = 6;
  constexpr int steps = 3;
  const std::vector<double> wanted = losses_in_turn(model, samples, steps);
  CHECK(wanted[2] < wanted[0]);
  const auto order = [](const char* name, int ranks, int micro_batches, std::vector<bool> recomputed = {}) {
    return pl::make_schedule(name, ranks, 1, micro_batches, pl::uniform_costs(ranks), recomputed);
  };
  struct named_plan {
    const char* name;
    int ranks;
    pl::execution_plan plan;
  };
  const int layers = model.layers();
  const std::vector<named_plan> plans{
      {"one rank", 1, pl::make_execution_plan(order("gpipe", 1, 2), {0}, layers, {{{0}, {}}}, samples)},
      {"the skip crosses", 2,
       pl::make_execution_plan(order("1f1b", 2, 3), {0, 2}, layers, {{{0}, {}}, {{1}, {}}}, samples)},
      {"W apart", 3,
       pl::make_execution_plan(order("zb_h1", 3, 6), {0, 1, 4}, layers, {{{0}, {}}, {{1}, {}}, {{2}, {}}}, samples)},
      {"recomputed", 2,
       pl::make_execution_plan(order("1f1b", 2, 3, {true, true}), {0, 3}, layers, {{{0}, {}}, {{1}, {}}}, samples)},
      {"1 : 2 and 1", 3,
       pl::make_execution_plan(order("zb_h1", 2, 2), {0, 3}, layers, {{{0, 1}, {1, 2}}, {{2}, {}}}, samples)},
  };
  for (const named_plan& one : plans) {
    INFO(one.name);
    int wrong_peaks = 0;
    const std::vector<double> losses = losses_of_plan(model, one.plan, one.ranks, steps, wrong_peaks);
    REQUIRE(losses.size() == wanted.size());
    for (std::size_t k = 0; k < losses.size(); ++k) CHECK(std::abs(losses[k] - wanted[k]) < 1e-10);
    CHECK(wrong_peaks == 0);
  }
}

TEST_CASE("A measured profile can be planned", "[pipeline_layers]") {
  const three_batches model(options());
  pl::measure_options chosen;
  chosen.rows = 2;
  chosen.repetitions = 3;
  int filled = 0;
  chosen.fill = [&](const pl::data_facts& data, std::byte* rows, int count) {
    for (int i = 0; i < count * context; ++i)
      reinterpret_cast<std::int32_t*>(rows)[i] = word(i, data.name == "targets");
    ++filled;
  };
  const pl::profile measured = pl::measure(model, "small", chosen);
  CHECK(filled == 2);
  REQUIRE(measured.size() == 6);
  CHECK_NOTHROW(pl::require_usable(measured));
  CHECK(measured.batch == 2);
  for (int k = 0; k < 6; ++k) {
    const pl::layer_profile& one = measured.layers[static_cast<std::size_t>(k)];
    CHECK(one.name == model.facts(k).name);
    CHECK(one.forward_seconds > 0);
    CHECK(one.parameter_bytes == static_cast<double>(model.facts(k).parameter_bytes));
  }
  // widening keeps its output, for W of the next layer; narrowing gelu's argument, and its output has no later reader.
  CHECK(measured.layers[2].activation_bytes == 2 * context * wide * 8);
  CHECK(measured.layers[3].activation_bytes == static_cast<double>(ep::aligned(2 * context * width * 8)));
  CHECK(measured.layers[5].output_bytes == 0);
}

TEST_CASE("A profile without a machine counts what layers do", "[pipeline_layers]") {
  const three_batches model(options());
  const auto seconds = [&](int rows, const pl::device_rates& device) {
    return pl::estimate(model, "small", rows, device).layers[2];
  };
  // relu(x W + b), all of it bound by memory: the product reads x and W and writes, the rest reads that and b and
  // writes.
  const double x = 3 * context * width;
  const double y = 3 * context * wide;
  const double weight = width * wide;
  const pl::device_rates bytes{1e300, 1};
  const pl::layer_profile of_three = seconds(3, bytes);
  CHECK(of_three.forward_seconds == Approx(8 * (x + weight + y + y + wide + y)));
  // B: the mask follows from y; what it gives dy is read by the product, and by W, which adds to both gradients.
  CHECK(of_three.input_gradient_seconds == Approx(8 * (y + y + y + y + weight + x)));
  CHECK(of_three.weight_gradient_seconds == Approx(8 * (x + y + weight + 2 * weight + y + wide + 2 * wide)));
  CHECK(of_three.optimizer_seconds == Approx(3 * model.facts(2).parameter_bytes + 2 * model.facts(2).state_bytes));
  CHECK(of_three.activation_bytes == 3 * context * wide * 8);
  CHECK(of_three.output_bytes == 3 * context * (wide + width) * 8);  // and what skips this layer
  CHECK(seconds(3, {1, 1e300}).seconds() < 1e-6);
  CHECK_THROWS_WITH(pl::estimate(model, "small", 4, bytes), Catch::Contains("not compiled for 4 rows"));
  CHECK_THROWS_WITH(pl::estimate(model, "small", 3, {0, 1}), Catch::Contains("give positive numbers"));
}
