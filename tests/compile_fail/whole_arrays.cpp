// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/run/execute/runner.hpp>
#include <espalier/tensor/run/io/xtensor.hpp>

/// Whole tensors that a program cannot be given.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

struct model {
  constexpr auto operator()(auto x, auto n, auto rate) const { return ep::gather<0>(x, n) * rate; }
};
using step = ep::program<mesh, model, ep::f32<64, 256>, ep::i32<3>, ep::f32<>>;

void run_it(ep::world& world) {
  ep::runner<step> run(world);
  const xt::xtensor<double, 2> x = xt::ones<double>({64, 256});
  const xt::xtensor<int, 1> n{1, 2, 3};
#if defined(CASE_elements)
  const auto& y = run(x, xt::xtensor<float, 1>{1, 2, 3}, 0.1);  // elements
#elif defined(CASE_rank)
  const auto& y = run(n, n, 0.1);  // rank
#elif defined(CASE_scatter)
  const auto& y = run(x, n, 0.1);
  auto places = run.argument<1>();
  ep::scatter(x, places);  // scatter
#else
  const auto& y = run(x, n, 0.1);
#endif
  static_cast<void>(ep::gather_xtensor(world, y));
}

// clang-format off
// kind(CASE_elements): `run`: a whole tensor of elements that are not converted
// first(CASE_elements): run: this argument is not what the program declares: first what was given, then what it takes
// expect(CASE_elements): run_argument_of_another_type<xt::xtensor_container
// user_line(CASE_elements): run.x, xt
// kind(CASE_rank): `run`: a whole tensor of another rank
// first(CASE_rank): run: this argument is not what the program declares: first what was given, then what it takes
// expect(CASE_rank): run_argument_of_another_type<xt::xtensor_container
// user_line(CASE_rank): run.n, n
// first(CASE_scatter): scatter: elements of this type are not converted by themselves
// expect(CASE_scatter): not converted by themselves. Convert them with xt::cast
// user_line(CASE_scatter): ep::scatter.x
// clang-format on
