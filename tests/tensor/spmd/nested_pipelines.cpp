// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <conformer/sent.hpp>
#include <nested/sent.hpp>
#include <support/kinds.hpp>

// The pipelines of examples/nested and examples/conformer, which run there on 2 x 2 devices, on the paper's 4 x 4 and
// on others: what they send, counted by hand.

namespace {

using namespace testing::kinds;
using trained = few_or_all<meshes<on<4, 4>>, meshes<on<2, 2>, on<4, 2>, on<2, 4>, on<4, 4>>>;
using evaluated = few_or_all<meshes<>, meshes<on<2, 2>, on<2, 4>, on<4, 4>>>;

template <class On> void trains() {
  using x = typename On::data;
  using y = typename On::model;
  using mesh = typename On::mesh;
  CHECK(nested::sends_as_by_hand<nested::training<mesh, x::size, x, y>, x, y>(true));
  CHECK(conformer::sends_as_by_hand<conformer::training<mesh, x::size, x, y>, x, y>(true));
}
template <class On> void evaluates() {
  using x = typename On::data;
  using y = typename On::model;
  using mesh = typename On::mesh;
  CHECK(nested::sends_as_by_hand<nested::evaluation<mesh, x::size, x, y>, x, y>(false));
  CHECK(conformer::sends_as_by_hand<conformer::evaluation<mesh, x::size, x, y>, x, y>(false));
}
template <class... On> void train_all(meshes<On...> /*meshes*/) { (trains<On>(), ...); }
template <class... On> void evaluate_all(meshes<On...> /*meshes*/) { (evaluates<On>(), ...); }

}  // namespace

TEST_CASE("the pipelines of the paper's figure 2 and table 5 send what is said by hand") {
  train_all(trained{});
  evaluate_all(evaluated{});
}
