// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The kernels of convolutions and of their two gradients, called as a program on one device calls them.

#include "convolution_shapes.hpp"
#include "machine.hpp"

#include <espalier/tensor/run/kernels/convolution.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace espalier;
using namespace espalier::benchmarks;
using kernels::kernel_key;

enum class direction { forward, input, filter };
constexpr const char* names[]{"forward", "input", "filter"};

struct tensors {
  extents input;
  extents filter;
  extents output;
};
constexpr tensors tensors_of(const convolution_shape& s) {
  tensors t;
  t.input.append(s.images);
  t.output.append(s.images);
  for (int d = 0; d < s.spatial; ++d) {
    t.input.append(s.extent);
    t.filter.append(s.taps);
    t.output.append(s.output());
  }
  t.input.append(s.channels);
  t.filter.append(s.channels);
  t.filter.append(s.features);
  t.output.append(s.features);
  return t;
}

constexpr kernel_key key_of(const extents& first, const extents& second, const extents& result) {
  kernel_key key;
  key.shape = result;
  key.operand_count = 2;
  key.operand_shape[0] = first;
  key.operand_shape[1] = second;
  return key;
}
constexpr kernel_key key_of(const convolution_shape& s, direction way) {
  const tensors t = tensors_of(s);
  if (way == direction::forward) return key_of(t.input, t.filter, t.output);
  if (way == direction::input) return key_of(t.output, t.filter, t.input);
  return key_of(t.input, t.output, t.filter);
}

using kernel_function = void (*)(const kernels::kernel_call&);
struct compiled {
  kernel_function run;
  std::int64_t scratch;
};
template <const op_info* Op, kernel_key Key> constexpr compiled compiled_for() {
  return {&kernels::kernel<Op>::template run<Key>, kernels::kernel<Op>::scratch_bytes(Key)};
}
template <std::size_t I> compiled compiled_for(direction way) {
  constexpr convolution_shape s = convolution_shapes[I];
  switch (way) {
    case direction::forward: return compiled_for<&ops::convolution, key_of(s, direction::forward)>();
    case direction::input: return compiled_for<&ops::convolution_input_gradient, key_of(s, direction::input)>();
    default: return compiled_for<&ops::convolution_filter_gradient, key_of(s, direction::filter)>();
  }
}

/// Small multiples of 1/8. Their sums are exact, but where they are very long.
std::vector<float> numbers(const extents& shape, std::uint32_t seed) {
  std::vector<float> all(static_cast<std::size_t>(shape.elements()));
  for (float& x : all) {
    seed = seed * 1664525U + 1013904223U;
    x = static_cast<float>(static_cast<int>(seed >> 24U) % 9 - 4) / 8;
  }
  return all;
}

/// A few elements, spread over the result, against the sum over their terms.
void check(const convolution_shape& s, direction way, const std::vector<float>& first, const std::vector<float>& second,
           const std::vector<float>& result) {
  const auto at = [](const std::vector<float>& from, std::int64_t i) {
    return static_cast<double>(from[static_cast<std::size_t>(i)]);
  };
  std::int64_t taps = 1;
  std::int64_t outputs = 1;
  for (int d = 0; d < s.spatial; ++d) {
    taps *= s.taps;
    outputs *= s.output();
  }
  // Element (n, p, c) of the input, (k, c, f) of the filter, (n, o, f) of the output. -1: any.
  const auto sum = [&](std::int64_t n0, std::int64_t p0, std::int64_t c0, std::int64_t k0, std::int64_t f0,
                       std::int64_t o0) {
    double total = 0;
    const auto range = [](std::int64_t fixed, std::int64_t count) {
      return fixed < 0 ? std::pair{std::int64_t{0}, count} : std::pair{fixed, fixed + 1};
    };
    const auto [n_first, n_last] = range(n0, s.images);
    const auto [o_first, o_last] = range(o0, outputs);
    const auto [k_first, k_last] = range(k0, taps);
    const auto [c_first, c_last] = range(c0, s.channels);
    const auto [f_first, f_last] = range(f0, s.features);
    for (std::int64_t o = o_first; o < o_last; ++o) {
      for (std::int64_t k = k_first; k < k_last; ++k) {
        std::int64_t p = 0;
        std::int64_t step = 1;
        bool real = true;
        for (std::int64_t d = 0, orest = o, krest = k; d < s.spatial; ++d) {
          const std::int64_t x = orest % s.output() * s.stride + krest % s.taps - s.padding();
          real = real && x >= 0 && x < s.extent;
          p += x * step;
          step *= s.extent;
          orest /= s.output();
          krest /= s.taps;
        }
        if (!real || (p0 >= 0 && p != p0)) continue;
        for (std::int64_t n = n_first; n < n_last; ++n) {
          for (std::int64_t c = c_first; c < c_last; ++c) {
            for (std::int64_t f = f_first; f < f_last; ++f) {
              const std::int64_t x = (n * step + p) * s.channels + c;
              const std::int64_t w = (k * s.channels + c) * s.features + f;
              const std::int64_t y = (n * outputs + o) * s.features + f;
              total += way == direction::forward ? at(first, x) * at(second, w)
                       : way == direction::input ? at(first, y) * at(second, w)
                                                 : at(first, x) * at(second, y);
            }
          }
        }
      }
    }
    return total;
  };
  const auto count = static_cast<std::int64_t>(result.size());
  for (std::int64_t i = 0; i < count; i += count / 37 + 1) {
    const std::int64_t last = way == direction::input ? s.channels : s.features;
    const std::int64_t rest = i / last;
    double want = 0;
    if (way == direction::forward) {
      want = sum(rest / outputs, -1, -1, -1, i % last, rest % outputs);
    } else if (way == direction::input) {
      const std::int64_t inputs = count / s.images / s.channels;
      want = sum(rest / inputs, rest % inputs, i % last, -1, -1, -1);
    } else {
      want = sum(-1, -1, rest % s.channels, rest / s.channels, i % last, -1);
    }
    if (std::abs(want - at(result, i)) > 1e-4 * (std::abs(want) + 100)) {
      throw std::runtime_error(std::string(s.name) + "/" + names[static_cast<int>(way)] + ": wrong result");
    }
  }
}

void measure(const convolution_shape& s, direction way, const compiled& kernel, const std::string& row) {
  const kernel_key key = key_of(s, way);
  const std::vector<float> first = numbers(key.operand_shape[0], 1);
  const std::vector<float> second = numbers(key.operand_shape[1], 2);
  std::vector<float> result(static_cast<std::size_t>(key.shape.elements()));
  struct alignas(64) line {
    char bytes[64];
  };
  std::vector<line> scratch(static_cast<std::size_t>(kernel.scratch / 64 + 1));
  placed_window windows[3];
  for (int d = 0; d < s.spatial; ++d) {
    windows[d] = place_window({.size = s.taps, .stride = s.stride, .low = s.padding()}, d + 1, 0, axis_list{});
  }
  instruction_boxes boxes;
  boxes.result = detail::whole_box(key.shape);
  for (int k = 0; k < 2; ++k) boxes.operand[k] = detail::whole_box(key.operand_shape[k]);
  kernels::kernel_call call{.operand = {first.data(), second.data()},
                            .result = result.data(),
                            .boxes = &boxes,
                            .windows = &windows[0],
                            .scratch = scratch.data()};
  const double taken = median_seconds([&] { kernel.run(call); }, {2, 7});
  check(s, way, first, second, result);
  report(row + "/" + std::string(s.name) + "/" + names[static_cast<int>(way)], "ours", s.flops() / taken * 1e-9,
         "GFLOP/s");
}

template <std::size_t... I> compiled find(std::size_t which, direction way, std::index_sequence<I...>) {
  compiled found{};
  ((I == which ? void(found = compiled_for<I>(way)) : void()), ...);
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::size_t count = std::size(convolution_shapes);
  for (std::size_t i = 0; i < count && argc == 3; ++i) {
    const convolution_shape& s = convolution_shapes[i];
    if (s.name != argv[2]) continue;
    for (const direction way : {direction::forward, direction::input, direction::filter}) {
      measure(s, way, find(i, way, std::make_index_sequence<count>{}), argv[1]);
    }
    return EXIT_SUCCESS;
  }
  std::fprintf(stderr, "usage: %s ROW SHAPE, one of convolution_shapes.hpp\n", argv[0]);
  return EXIT_FAILURE;
}
