// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// processors: 1
#include <espalier/pipeline.hpp>

#include <espalier/base/json.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace espalier::pipeline;

struct text_box {
  std::string kind;
  double x = 0;  // of its left end
  double y = 0;  // of its line
  double width = 0;
  std::string words;
};

// Texts with the room they take: letters of a sans-serif font are narrower than 0.62 of their size on average, digits
// narrower than 0.65.
std::vector<text_box> texts_of(const std::string& picture) {
  static const std::regex pattern("<text class=\"([a-z ]+)\" x=\"([-0-9.]+)\" y=\"([-0-9.]+)\">([^<]*)</text>");
  static const std::map<std::string, double> sizes{
      {"words", 12}, {"words end", 12}, {"title", 14}, {"tick", 11}, {"number", 10}};
  std::vector<text_box> all;
  for (std::sregex_iterator at(picture.begin(), picture.end(), pattern), end; at != end; ++at) {
    text_box one{(*at)[1], std::stod((*at)[2]), std::stod((*at)[3]), 0, (*at)[4]};
    one.width = sizes.at(one.kind) * 0.62 * static_cast<double>(one.words.size());
    if (one.kind == "words end") one.x -= one.width;
    if (one.kind == "tick" || one.kind == "number") one.x -= one.width / 2;
    all.push_back(one);
  }
  return all;
}

struct box {
  double x, y, width, height;
};

std::vector<box> boxes_of(const std::string& picture) {
  static const std::regex pattern("<rect x=\"([-0-9.]+)\" y=\"([-0-9.]+)\" width=\"([-0-9.]+)\" height=\"([-0-9.]+)\"");
  std::vector<box> all;
  for (std::sregex_iterator at(picture.begin(), picture.end(), pattern), end; at != end; ++at)
    all.push_back({std::stod((*at)[1]), std::stod((*at)[2]), std::stod((*at)[3]), std::stod((*at)[4])});
  return all;
}

chart drawn(const char* name, int ranks, int micro_batches, const costs& cost) {
  const schedule plan = make_schedule(name, ranks, chunks_of(find_schedule(name), 0), micro_batches, cost);
  return chart_of(plan, simulate(plan, cost));
}

costs busy_costs(int ranks, int chunks) {
  costs cost = divided(uniform_costs(ranks, 1, 1.2, 0.8, 0.3), chunks);
  for (stage_costs& one : cost.stages) {
    one.all_reduce_seconds = 2;
    one.optimizer_seconds = 0.5;
  }
  return cost;
}

TEST_CASE("texts of a chart do not run into one another, nor out of it") {
  for (const double width : {400.0, 700.0, 1200.0})
    for (const int micro_batches : {4, 12, 120}) {
      CAPTURE(width, micro_batches);
      const std::string picture =
          svg({drawn("1f1b", 5, micro_batches, busy_costs(5, 1)), drawn("zb_v", 5, micro_batches, busy_costs(5, 2))},
              width);
      const std::vector<text_box> texts = texts_of(picture);
      REQUIRE(texts.size() > 20);
      for (std::size_t a = 0; a < texts.size(); ++a) {
        CAPTURE(texts[a].words);
        CHECK(texts[a].x >= 0);
        // A title may be longer than a chart is wide only where that is as narrow as a thumb.
        if (texts[a].kind != "title") CHECK(texts[a].x + texts[a].width <= width);
        for (std::size_t b = a + 1; b < texts.size(); ++b) {
          if (std::abs(texts[a].y - texts[b].y) >= 11) continue;
          CAPTURE(texts[b].words);
          CHECK((texts[a].x + texts[a].width <= texts[b].x || texts[b].x + texts[b].width <= texts[a].x));
        }
      }
    }
}

TEST_CASE("a chart has a bar for each computation, where and as long as it is") {
  const costs cost = busy_costs(4, 1);
  const schedule plan = zb_h1(4, 6);
  const simulation run = simulate(plan, cost);
  const double width = 1000;
  const std::string picture = svg({chart_of(plan, run)}, width);
  const double seconds = (width - 64 - 96) / run.makespan;
  std::vector<box> bars;
  std::size_t strips = 0;
  for (const box& one : boxes_of(picture)) {
    if (one.height == 18) bars.push_back(one);
    strips += one.height == 5 ? 1 : 0;
  }
  CHECK(strips == 4);
  REQUIRE(bars.size() == 4 * (3 * 6 + 1));
  std::size_t next = 0;
  for (const auto& list : run.timeline)
    for (const timed& one : list) {
      if (!is_computation(one.step.kind) && one.step.kind != action::optimizer) continue;
      CHECK(bars[next].x == Approx(64 + one.start * seconds).margin(0.02));
      CHECK(bars[next].width == Approx((one.end - one.start) * seconds).margin(0.02));
      ++next;
    }
  // Numbers stand in bars that have room for them.
  for (const text_box& number : texts_of(picture)) {
    if (number.kind != "number") continue;
    CHECK(std::any_of(bars.begin(), bars.end(), [&](const box& one) {
      return number.x >= one.x && number.x + number.width <= one.x + one.width && number.y > one.y &&
             number.y < one.y + one.height;
    }));
  }
  // Two sends of each of the three hops and of each micro-batch; grid lines are vertical.
  static const std::regex line("<line x1=\"[^\"]*\" y1=");
  CHECK(std::distance(std::sregex_iterator(picture.begin(), picture.end(), line), std::sregex_iterator()) == 3 * 6 * 2);
}

TEST_CASE("names in charts are escaped") {
  chart one;
  one.title = "a < b & \"c\"";
  one.rank_of = {0};
  one.timeline = {{{{action::forward, 0, 0}, 0, 1}}};
  CHECK(svg({one}).find("a &lt; b &amp; &quot;c&quot;") != std::string::npos);
}

TEST_CASE("charts as text") {
  CHECK(text_chart(drawn("1f1b", 2, 3, uniform_costs(2)), 48) ==
        "rank 0 F0  F1  ........BW0     F2  BW1     ....BW2\n"
        "rank 1 ....F0  BW0     F1  BW1     F2  BW2     ........\n");
  CHECK(text_chart(drawn("zb_v", 2, 2, divided(uniform_costs(2), 2)), 40) ==
        "rank 0 F0F1..f0b0w0f1b1w1B0W0..B1W1\n"
        "rank 1 ..F0f0F1f1b0w0B0W0b1w1B1W1..\n");
  CHECK(text_chart(drawn("1f1b", 4, 60, uniform_costs(4)), 100).empty());
}

struct trace_error {
  std::runtime_error operator()(espalier::detail::json_place where, const std::string& found,
                                const std::string& expected) const {
    return std::runtime_error("byte " + std::to_string(where.byte) + ": " + found + " instead of " + expected);
  }
};

TEST_CASE("a trace is JSON with the work of each rank, in microseconds") {
  const costs cost = busy_costs(3, 2);
  const schedule plan = zb_v(3, 5);
  const simulation run = simulate(plan, cost);
  const std::string text = chrome_trace({chart_of(plan, run)});
  std::map<int, double> computed;  // by thread
  std::map<std::string, int> kinds;
  std::size_t named = 0;
  espalier::detail::json_reader reader(text, trace_error{});
  reader.object([&](const std::string& outer) {
    if (outer != "traceEvents") return reader.skip_value();
    reader.array([&](std::size_t) {
      std::string phase;
      std::string kind;
      double duration = 0;
      int thread = -1;
      reader.object([&](const std::string& key) {
        if (key == "ph")
          phase = reader.string();
        else if (key == "cat")
          kind = reader.string();
        else if (key == "dur")
          duration = reader.number();
        else if (key == "tid")
          thread = static_cast<int>(reader.whole_number());
        else
          reader.skip_value();
      });
      if (phase == "M") ++named;
      if (phase != "X") return;
      ++kinds[kind];
      if (kind == "F" || kind == "B" || kind == "W" || kind == "optimizer") computed[thread] += duration;
    });
  });
  reader.finish();
  CHECK(named == 1 + 3 * 3);
  CHECK(kinds["F"] == 6 * 5);
  CHECK(kinds["W"] == 6 * 5);
  CHECK(kinds["send activation"] == 4 * 5);  // not at the turn of the V
  CHECK(kinds["all-reduce"] == 6);
  for (int r = 0; r < 3; ++r) CHECK(computed[3 * r] == Approx(run.busy[static_cast<std::size_t>(r)] * 1e6));
}

}  // namespace
