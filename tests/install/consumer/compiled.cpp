// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
//
// A program on the compiled part: one of its two files runs it, the other one gathers what came out.
#if !defined(ESPALIER_COMPILED)
#error "espalier::compiled says that it is linked"
#endif
#include "compiled.hpp"

#include <cstdio>

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});
    ep::runner<step> run(world);
    const auto x = run.argument<0>();
    x.for_each([](float& element, std::int64_t index) { element = static_cast<float>(index); });
    const float sum = sum_of(world, run(x));
    std::printf("the sum is %g\n", static_cast<double>(sum));
    return sum == 28 ? 0 : 1;
  });
}
