// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/runner.hpp>

/// Mistakes in how a program is run; and of a mistake in the program itself nothing more is said where it is run.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

struct model {
  constexpr auto operator()(auto x, auto w, auto n) const {
#if defined(CASE_in_program)
    return ep::results(ep::matmul(x, ep::transpose<1, 0>(w)), ep::gather<0>(w, n), ep::sum(x));  // in_program
#else
    return ep::results(ep::matmul(x, w), ep::gather<0>(w, n), ep::sum(x));
#endif
  }
};
using step = ep::program<mesh, model, ep::f32<64, 256>, ep::f32<256, 128>, ep::i32<3>>;

void run_it(ep::world& world) {
  ep::runner<step> run(world);
  const auto x = run.argument<0>();
  const auto w = run.argument<1>();
  auto n = run.argument<2>();
  n.for_each([](std::int32_t& element, std::int64_t index) { element = static_cast<std::int32_t>(index); });
#if defined(CASE_swapped)
  const auto& y = run(w, x, n);  // swapped
#elif defined(CASE_missing)
  const auto& y = run(x, w);  // missing
#else
  const auto& y = run(x, w, n);
#endif
  const auto& [products, rows, total] = y;
#if defined(CASE_indexed)
  const float first_element = products[0];  // indexed
  static_cast<void>(first_element);
#endif
#if defined(CASE_walked)
  for (auto row : products) static_cast<void>(row);  // walked
#endif
  const auto all = ep::gather(world, products);
  y.get<2>().for_each([](float& element, std::int64_t /*index*/) { element = 0; });
  static_cast<void>(all);
  static_cast<void>(rows);
  static_cast<void>(total);
}

// clang-format off
// kind(CASE_swapped): `run`: arguments swapped
// first(CASE_swapped): run: this argument is not what the program declares: first what was given, then what it takes
// expect(CASE_swapped): run_argument_of_another_type<espalier::sharded_array<espalier::f32<256, 128> ?>, espalier::sharded_array<espalier::f32<64, 256> ?> ?>::raise<espalier::why::argument<0>
// user_line(CASE_swapped): run.w, x, n
// kind(CASE_missing): `run`: an argument missing
// first(CASE_missing): run: the program takes another number of arguments
// expect(CASE_missing): run_takes_other_arguments<espalier::why::takes<3>, espalier::why::given<2> ?>
// user_line(CASE_missing): run.x, w.;
// kind(CASE_indexed): an array indexed as if it were in one place
// first(CASE_indexed): array: its elements are spread over devices
// expect(CASE_indexed): ep::gather.world, x..i. is element i of the whole tensor; x.for_each
// user_line(CASE_indexed): products.0.
// kind(CASE_walked): a loop over the rows of an array
// first(CASE_walked): array: its elements are spread over devices
// expect(CASE_walked): array_is_not_indexed
// user_line(CASE_walked): for .auto row : products
// kind(CASE_in_program): a mistake in a program that is run
// first(CASE_in_program): matmul: the last dimension of the first operand differs
// expect(CASE_in_program): matmul_size_mismatch<espalier::f32<64, 256>, espalier::f32<128, 256> ?>::raise<espalier::why::at<espalier::why::line<15>
// user_line(CASE_in_program): ep::runner<step> run
// budget(CASE_in_program): 5 16
// clang-format on
