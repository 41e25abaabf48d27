// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// built: once
#include <espalier/core.hpp>
#include <espalier/search.hpp>

#include <boost/hana/define_struct.hpp>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace ep = espalier;

struct x : ep::axis<"x", 4> {};
struct y : ep::axis<"y", 2> {};
using mesh = ep::mesh<x, y>;
using ep::none;
using ep::open;

struct mlp {
  constexpr auto operator()(auto in, auto up, auto down) const {
    const auto h = ep::relu(ep::einsum<"bm,mh->bh">(in, up));
    return ep::einsum<"bh,hm->bm">(h, down);
  }
};
struct placed_mlp {
  constexpr auto operator()(auto in, auto up, auto down) const {
    const auto h = ep::shard<x, y>(ep::relu(ep::einsum<"bm,mh->bh">(in, up)));
    return ep::einsum<"bh,hm->bm">(h, down);
  }
};
template <class Function, class Up = ep::f32<256, 1024>>
using mlp_program = ep::program<mesh, Function, ep::f32<66, 256>, Up, ep::f32<1024, 256>>;

/// Is compiled on parts of x: 2 x 2.
struct folded {
  constexpr auto operator()(auto in) const { return ep::sum<2>(ep::reshape<2, 4, 64>(in)); }
};
using folded_program = ep::program<mesh, folded, ep::sharded<ep::f32<8, 64>, x, none>>;

/// A loop with a collective in each iteration.
struct looped {
  struct step {
    constexpr auto operator()(const auto& v, const auto& w) const {
      return ep::shard<x, none>(ep::einsum<"bm,mn->bn">(v, ep::shard<y, none>(w)));
    }
  };
  constexpr auto operator()(const auto& v, const auto& stack) const { return ep::scan(step{}, v, stack); }
};
using looped_program = ep::program<mesh, looped, ep::f32<16, 32>, ep::f32<5, 32, 32>>;

template <class Program> void predicts() {
  const ep::plan_rates rates{
      .bytes_per_second = 1'000'000, .start_nanoseconds = 1000, .operations_per_second = 1'000'000};
  const ep::predicted_run run = ep::predict_run<Program>(rates);
  CHECK_FALSE(run.is_faulty);
  CHECK(run.collectives == Program::collectives());
  CHECK(run.operations == Program::flops());
  CHECK(run.memory == Program::peak_bytes_per_device());
  CHECK(run.computing_seconds * 1e6 == Approx(static_cast<double>(Program::flops())));
  CHECK(run.sending_seconds * 1e6 ==
        Approx(static_cast<double>(Program::collectives()) + static_cast<double>(run.bytes)).margin(0.01));
}

/// The least predicted time of all combinations of layouts of three tensors, or of none: 8 to the third.
double least_of_all(const ep::predicted_run& without, const std::vector<std::vector<ep::sharding>>& layouts) {
  using parts = ep::detail::parts_of_program<mlp_program<mlp>>;
  const ep::traced made = parts::trace_now();
  const ep::detail::passes_at_run_time passes(mesh::value);
  double least = without.seconds();
  std::vector<std::size_t> at(layouts.size(), 0);
  while (true) {
    ep::graph g = made.program;
    for (std::size_t n = 0; n < at.size(); ++n) {
      if (at[n] == 0) continue;
      const ep::extents shape = g.code[static_cast<int>(n)].shape;
      g.code[static_cast<int>(n)].annotation = g.annotations.push_back({shape, layouts[n][at[n] - 1]});
    }
    const ep::predicted_run run = passes.predict(g, {});
    if (!run.is_faulty) least = std::min(least, run.seconds());
    std::size_t n = 0;
    while (n < at.size() && ++at[n] > layouts[n].size()) at[n++] = 0;
    if (n == at.size()) return least;
  }
}

template <class Leaf> struct block {
  BOOST_HANA_DEFINE_STRUCT(block, (ep::leaf<Leaf, ep::f32<16, 32>>, up), (ep::leaf<Leaf, ep::f32<32, 16>>, down));
};
template <class Leaf> struct net {
  BOOST_HANA_DEFINE_STRUCT(net, (block<Leaf>, layer_0), (block<Leaf>, layer_1), (ep::leaf<Leaf, ep::f32<16, 4>>, head));
};
template <class Leaf> struct state {
  BOOST_HANA_DEFINE_STRUCT(state, (net<Leaf>, parameters), (net<Leaf>, first), (net<Leaf>, second));
};
struct use_net {
  constexpr auto operator()(const auto& s, auto in) const {
    const auto through = [](auto v, const auto& layer) {
      const auto h = ep::shard<open, open>(ep::einsum<"bm,mh->bh">(v, layer.up));
      return ep::einsum<"bh,hm->bm">(h, layer.down);
    };
    const auto v = through(through(in, s.parameters.layer_0), s.parameters.layer_1);
    return ep::shard<x, open>(ep::einsum<"bm,mo->bo">(v, s.parameters.head + s.first.head + s.second.head));
  }
};
using net_program = ep::program<mesh, use_net, state<ep::spec>, ep::sharded<ep::f32<8, 16>, x, none>>;

}  // namespace

TEST_CASE("what a run takes is predicted as the compiled program answers", "[search]") {
  predicts<mlp_program<placed_mlp>>();
  predicts<folded_program>();
  predicts<looped_program>();
  STATIC_REQUIRE(folded_program::collectives() == 0);  // only on parts of x
  STATIC_REQUIRE(looped_program::collectives() == 5);
}

TEST_CASE("the layouts that are tried", "[search]") {
  // None; x or y in either place; x in one and y in the other; both in one.
  CHECK(ep::detail::layouts_to_try(mesh::value, ep::f32<64, 64>::shape).size() == 1 + 4 + 2 + 2);
  // Four devices do not share three rows, and a device gets a part of each layout.
  CHECK(ep::detail::layouts_to_try(mesh::value, ep::f32<3, 64>::shape).size() == 1 + 3 + 1 + 1);
  CHECK(ep::detail::layouts_to_try(mesh::value, ep::f32<>::shape).size() == 1);
}

TEST_CASE("layers share a choice, and so do copies of the parameters and values that are marked", "[search]") {
  using parts = ep::detail::parts_of_program<net_program>;
  const ep::traced made = parts::trace_now();
  ep::detail::annotation_groups groups(mesh::value, made.program);
  parts::for_each_argument([&](const auto& specification) { groups.add(specification); });
  std::vector<std::string> found;
  for (const auto& one : groups.finish()) {
    std::string name = one.name.find(".cpp:") == std::string::npos ? one.name : "a line";
    found.push_back(name + " " + std::to_string(one.members.size()) + (one.is_follower ? " follows" : ""));
  }
  // The input, and the result, have annotations of the user's.
  const std::vector<std::string> expected{
      "parameters.layer_*.up 2",      "parameters.layer_*.down 2", "parameters.head 1", "first.layer_*.up 4 follows",
      "first.layer_*.down 4 follows", "first.head 2 follows",      "a line 2"};
  CHECK(found == expected);
}

TEST_CASE("a search finds the best layouts there are, and the same ones again", "[search]") {
  const ep::found_annotations found = ep::search_annotations<mlp_program<mlp>>();
  const auto layouts = [](const ep::extents& shape) { return ep::detail::layouts_to_try(mesh::value, shape); };
  const double least = least_of_all(
      found.without,
      {layouts(ep::f32<66, 256>::shape), layouts(ep::f32<256, 1024>::shape), layouts(ep::f32<1024, 256>::shape)});
  CHECK(found.fits);
  CHECK(found.found.seconds() < 0.9 * found.without.seconds());
  CHECK(found.found.seconds() <= 1.002 * least);
  std::ostringstream once;
  std::ostringstream again;
  found.print(once);
  ep::search_annotations<mlp_program<mlp>>().print(again);
  CHECK(once.str() == again.str());
}

TEST_CASE("a search keeps to the memory, and to the user's annotations", "[search]") {
  const ep::found_annotations any = ep::search_annotations<mlp_program<mlp>>();
  const std::int64_t memory = any.found.memory * 9 / 10;
  const ep::found_annotations small = ep::search_annotations<mlp_program<mlp>>({.memory = memory});
  CHECK(small.fits);
  CHECK(small.found.memory <= memory);
  CHECK(small.found.seconds() >= any.found.seconds());
  const ep::found_annotations impossible = ep::search_annotations<mlp_program<mlp>>({.memory = 1000});
  CHECK_FALSE(impossible.fits);
  CHECK(impossible.found.memory <= small.found.memory);

  using kept = mlp_program<mlp, ep::sharded<ep::f32<256, 1024>, none, y>>;
  for (const ep::found_annotation& one : ep::search_annotations<kept>().annotations) CHECK(one.where != "argument 1");
  const ep::found_annotations few = ep::search_annotations<mlp_program<mlp>>({.most_tried = 3});
  CHECK(few.tried <= 3 + 3);  // the annotations that are there are weighed once more
}
