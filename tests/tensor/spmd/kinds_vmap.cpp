// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/testing/executed.hpp>
#include <espalier/testing/naive.hpp>
#include <espalier/testing/random_graph.hpp>
#include <espalier/vmap.hpp>
#include <support/row_functions.hpp>
#include <support/spmd_check.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <vector>

// Mapped functions, with gradients inside and outside of the map, against the same function for each row by the second
// meaning of every op. (Mapped programs of which plain loops know the numbers are in vmap.cpp.)

namespace ep = espalier;

namespace {

using namespace espalier;
using namespace espalier::test;
using namespace espalier::test::row_functions;

template <int Data, int Model> struct on {
  struct data : ep::axis<"data", Data> {};
  struct model : ep::axis<"model", Model> {};
  using mesh = ep::mesh<data, model>;
};

/// The same over rows, which are split over the data axis: x along dimension 0, integers along their last, weights
/// shared. The gradient inside and outside of the map.
template <class On, class F> struct over_rows {
  constexpr auto operator()(auto xs, auto ns, auto w) const {
    const auto x = ep::shard<typename On::data, ep::open, ep::open>(xs);
    const auto values = ep::vmap<0, -1, ep::unmapped>(F{})(x, ns, w);
    const auto [losses, slopes] = ep::vmap<0, -1, ep::unmapped>(ep::value_and_grad<0, 2>(loss_of<F>{}))(x, ns, w);
    const auto whole = [&](const auto& a, const auto& b) {
      return ep::sum(ep::vmap<0, -1, ep::unmapped>(loss_of<F>{})(a, ns, b));
    };
    const auto [loss, back] = ep::value_and_grad<0, 1>(whole)(x, w);
    return ep::results(values, losses, slopes, loss, back);
  }
};
/// What is independent.
template <class On, class F> struct rows_alone {
  constexpr auto operator()(auto xs, auto ns, auto w) const {
    const auto x = ep::shard<typename On::data, ep::open, ep::open>(xs);
    return ep::results(ep::vmap<0, -1, ep::unmapped>(F{})(x, ns, w),
                       ep::vmap<0, -1, ep::unmapped>(ep::value_and_grad<0, 2>(loss_of<F>{}))(x, ns, w));
  }
};

/// The traces of both, which the passes take on at run time: constants they would be no other programs.
template <class F, int Rows> struct kind {
  using on_data = on<2, 1>;
  static graph row() {
    return detail::trace<on_data::mesh, in_one_row<F>, ep::f64<height, width>, ep::i32<taken>, ep::f64<width, 5>>()
        .program;
  }
  template <class Over> static graph traced() {
    return detail::trace<on_data::mesh, Over, ep::f64<Rows, height, width>, ep::i32<taken, Rows>, ep::f64<width, 5>>()
        .program;
  }
  static graph rows() { return traced<over_rows<on_data, F>>(); }
  static graph alone() { return traced<rows_alone<on_data, F>>(); }
};

/// The results of `over_rows` from those of `in_one_row`.
values row_by_row(const graph& row, const values& in) {
  std::vector<values> of_result;
  for (int r = 0; r < in[0].shape[0]; ++r) {
    const values out = naive_interpret(row, {slice_of(in[0], 0, r), slice_of(in[1], 1, r), in[2]});
    of_result.resize(out.size());
    for (std::size_t k = 0; k < out.size(); ++k) of_result[k].push_back(out[k]);
  }
  values expected;
  for (const values& rows : of_result) expected.push_back(joined_rows(rows));
  const std::size_t losses = of_result.size() - 3;
  expected.push_back(added(of_result[losses]));
  expected.push_back(joined_rows(of_result[losses + 1]));
  expected.push_back(added(of_result[losses + 2]));
  return expected;
}

/// On 1, 2, 4 and 8 devices, and 3, of which the last have parts of other sizes: the partitioner's program, whose bytes
/// are counted, and the scheduled one, by the kernels.
template <class F> void is_as_row_by_row(int seed) {
  const values five = row_arguments<5>(seed);
  const graph rows = kind<F, 5>::rows();
  const values expected = row_by_row(normalise(kind<F, 5>::row()), five);
  const std::string meant = difference(naive_interpret(normalise(rows), five), expected, 1e-9);
  CHECK(meant == "");
  for (const int devices : {1, 2, 3, 4, 8}) {
    INFO("on " << devices << " devices");
    const mesh_shape mesh = mesh_of({devices, 1});
    const spmd_program program = merged_program(partitioned_program(mesh, rows));
    CHECK(fault_of(program, expected, five, 1e-9) == "");
    CHECK(difference(execute(program.mesh, program.parts.program, five), expected, 1e-9) == "");
  }
}
/// Eight rows on eight devices, each with its own, send nothing.
template <class F> void is_silent() {
  const spmd_program program = merged_program(partitioned_program(mesh_of({8, 1}), kind<F, 8>::alone()));
  INFO(program.summary());
  CHECK(program.collectives.empty());
}

}  // namespace

TEST_CASE("elements, sums and products over rows are those of each row") { is_as_row_by_row<elements_and_sums>(1); }
TEST_CASE("movements within rows") { is_as_row_by_row<movements>(11); }
TEST_CASE("lookups of each row, in its table or in one for all, send nothing") {
  is_silent<lookups>();
  is_as_row_by_row<lookups>(21);
}
TEST_CASE("images and filters of each row") { is_as_row_by_row<images>(31); }
TEST_CASE("loops that rows leave one after the other, and branches of which each takes its own") {
  is_as_row_by_row<regions>(41);
}
TEST_CASE("gradients of the user's are mapped as well") { is_as_row_by_row<own_gradients>(51); }
TEST_CASE("maps in maps, in loops and around gradients") { is_as_row_by_row<nested>(61); }
