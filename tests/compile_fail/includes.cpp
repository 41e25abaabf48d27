// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/espalier.hpp>

#include <iostream>
#if !defined(CASE_save) && !defined(CASE_load) && !defined(CASE_scatter) && !defined(CASE_gather) && !defined(CASE_view)
#include <espalier/tensor/run/io/checkpoint.hpp>
#include <espalier/tensor/run/io/xtensor.hpp>
#endif

/// What the header of everything does not bring: called without its own header, it says which that is.
namespace ep = espalier;

namespace unqualified {
using namespace espalier;  // where both the functions and what stands for them are in sight
void use(world& everyone, const sharded_array<f32<4, 3>>& x) {
#if defined(CASE_save)
  save_checkpoint(everyone, x, "file");  // save
#elif !defined(CASE_load) && !defined(CASE_scatter) && !defined(CASE_gather) && !defined(CASE_view)
  save_checkpoint(everyone, x, "file");
  load_checkpoint(everyone, x, "file");
#endif
}
}  // namespace unqualified

void use(ep::world& everyone, ep::sharded_array<ep::f32<4, 3>>& x) {
#if defined(CASE_load)
  const auto notes = ep::load_checkpoint(everyone, x, "file");  // load
#elif defined(CASE_scatter)
  const int values = 0;
  ep::scatter(values, x);  // scatter
#elif defined(CASE_gather)
  const auto all = ep::gather_xtensor(everyone, x);  // gather
  const float first = all(0, 0);
  std::cout << all[1];
  std::cout << all << all.shape(0);
  for (const float one : all) std::cout << one;
#elif defined(CASE_view)
  auto part = ep::shard_view(x, 0);  // view
  part(1, 1) = 1;
  part += 2;
#elif !defined(CASE_save)
  const auto notes = ep::load_checkpoint(everyone, x, "file");
  ep::save_checkpoint(everyone, x, "file", notes);
  ep::scatter(ep::gather_xtensor(everyone, x), x);
  ep::shard_view(x, 0)(1, 1) = 1;
#endif
}

// clang-format off
// first(CASE_save): save_checkpoint: espalier.hpp does not bring it. Add #include <espalier/io.hpp>
// expect(CASE_save): save_checkpoint
// user_line(CASE_save): save_checkpoint.everyone, x, "file".;  // save
// kind(CASE_save): `save_checkpoint` without its header
// first(CASE_load): load_checkpoint: espalier.hpp does not bring it. Add #include <espalier/io.hpp>
// expect(CASE_load): load_checkpoint
// user_line(CASE_load): // load
// kind(CASE_load): `load_checkpoint` without its header
// first(CASE_scatter): scatter: espalier.hpp does not bring it. Add #include <espalier/xtensor.hpp>
// expect(CASE_scatter): scatter
// user_line(CASE_scatter): // scatter
// kind(CASE_scatter): `scatter` without its header
// first(CASE_gather): gather_xtensor: espalier.hpp does not bring it. Add #include <espalier/xtensor.hpp>
// expect(CASE_gather): gather_xtensor
// user_line(CASE_gather): // gather
// kind(CASE_gather): `gather_xtensor` without its header
// first(CASE_view): shard_view: espalier.hpp does not bring it. Add #include <espalier/xtensor.hpp>
// expect(CASE_view): shard_view
// user_line(CASE_view): // view
// kind(CASE_view): `shard_view` without its header
// clang-format on
