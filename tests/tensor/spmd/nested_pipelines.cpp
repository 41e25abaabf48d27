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

template <class On> struct of_figure_2 {
  using x = typename On::data;
  using y = typename On::model;
  using training = nested::training<typename On::mesh, x::size, x, y>;
  using evaluation = nested::evaluation<typename On::mesh, x::size, x, y>;
};
template <class On> struct of_table_5 {
  using x = typename On::data;
  using y = typename On::model;
  using training = conformer::training<typename On::mesh, x::size, x, y>;
  using evaluation = conformer::evaluation<typename On::mesh, x::size, x, y>;
};

using namespace testing::kinds;
using both_trained = few_or_all<meshes<on<4, 4>>, meshes<on<2, 2>, on<4, 2>, on<2, 4>, on<4, 4>>>;
using evaluated = few_or_all<meshes<>, meshes<on<2, 2>, on<2, 4>, on<4, 4>>>;

template <class... On> void train_as_by_hand(meshes<On...> /*meshes*/) {
  (CHECK(nested::sends_as_by_hand<typename of_figure_2<On>::training, typename On::data, typename On::model>(true)),
   ...);
  (CHECK(conformer::sends_as_by_hand<typename of_table_5<On>::training, typename On::data, typename On::model>(true)),
   ...);
}
template <class... On> void evaluate_as_by_hand(meshes<On...> /*meshes*/) {
  (CHECK(nested::sends_as_by_hand<typename of_figure_2<On>::evaluation, typename On::data, typename On::model>(false)),
   ...);
  (CHECK(
       conformer::sends_as_by_hand<typename of_table_5<On>::evaluation, typename On::data, typename On::model>(false)),
   ...);
}

}  // namespace

TEST_CASE("the pipelines of the paper's figure 2 and table 5 send what is said by hand") {
  train_as_by_hand(both_trained{});
  evaluate_as_by_hand(evaluated{});
}
