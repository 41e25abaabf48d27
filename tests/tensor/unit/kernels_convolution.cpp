// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// together: kernels

#include <support/instrumented.hpp>
#include <tensor/unit/kernels_ops_checks.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

// The kernels of convolutions and their gradients against the sum over all terms, for random windows, groups and boxes.
// Elements outside of a device's part are NaN: they must not be read.

namespace {

using namespace espalier;

struct drawn {
  int spatial = 1;
  placed_window window[3];
  extents input;
  extents filter;
  extents output;
  tensor_box at_input;
  tensor_box at_output;
  std::int64_t groups = 1;
  std::string text;
};

class convolution_draw {
 public:
  explicit convolution_draw(unsigned seed) : engine_(seed) {}

  [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  [[nodiscard]] bool once_in(std::int64_t n) { return integer(1, n) == 1; }

  [[nodiscard]] drawn any() {
    drawn d;
    d.spatial = static_cast<int>(integer(1, 3));
    const bool large = d.spatial < 3 && once_in(8);
    std::int64_t c = integer(1, once_in(3) ? 40 : 9);
    std::int64_t f = integer(1, once_in(3) ? 70 : 9);
    if (once_in(40)) f = 600;
    if (once_in(3)) {
      d.groups = integer(2, 5);
      if (once_in(2)) c = f = 1;  // depthwise
      if (once_in(3)) d.groups = 83;
      c = std::min<std::int64_t>(c, 6);
      f = std::min<std::int64_t>(f, 7);
    }
    const std::int64_t images = integer(1, 3);
    d.input.append(images);
    d.output.append(images);
    d.at_input.dim[0] = d.at_output.dim[0] = {0, once_in(4) ? integer(1, images) : images};
    for (int k = 0; k < d.spatial; ++k) {
      const std::int64_t most = large ? 40 : d.spatial == 3 ? 6 : 12;
      window w;
      w.size = integer(1, once_in(6) ? 7 : 3);
      w.stride = once_in(2) ? 1 : integer(1, 4);
      w.dilation = once_in(2) ? 1 : integer(1, 4);
      w.base_dilation = once_in(3) ? integer(2, 4) : 1;
      w.low = integer(-3, 5);
      d.window[k] = place_window(w, k + 1, 0, axis_list{});
      d.filter.append(w.size);
      d.input.append(integer(1, most));
      d.output.append(integer(1, most));
      part(d.input[k + 1], d.at_input.dim[k + 1]);
      part(d.output[k + 1], d.at_output.dim[k + 1]);
    }
    const int last = d.spatial + 1;
    d.filter.append(c);
    d.filter.append(f * d.groups);
    d.input.append(c * d.groups);
    d.output.append(f * d.groups);
    d.at_input.dim[last] = {0, c * d.groups};
    d.at_output.dim[last] = {0, f * d.groups};
    if (d.groups == 1 && once_in(4)) d.at_input.dim[last].size = integer(0, c);
    if (d.groups == 1 && once_in(4)) d.at_output.dim[last].size = integer(0, f);
    describe(d);
    return d;
  }
  /// One channel and one feature, as stencils have them: short lines and long ones, few and many, also beyond an edge.
  [[nodiscard]] drawn plane() {
    drawn d;
    d.spatial = static_cast<int>(integer(1, 3));
    const bool large = d.spatial == 2 && once_in(4);  // enough for several threads
    const std::int64_t images = integer(1, 2);
    d.input.append(images);
    d.output.append(images);
    d.at_input.dim[0] = d.at_output.dim[0] = {0, images};
    for (int k = 0; k < d.spatial; ++k) {
      const bool is_line = k + 1 == d.spatial;
      const std::int64_t most = is_line ? (large || once_in(2) ? 400 : 70) : large ? 130 : once_in(4) ? 1 : 11;
      window w;
      w.size = once_in(3) ? integer(1, d.spatial == 3 ? 5 : 7) : 3;
      if (!is_line && once_in(5)) w.stride = integer(2, 3);
      if (once_in(4)) w.dilation = once_in(2) ? w.stride : integer(2, 3);
      if (once_in(8)) w.base_dilation = 2;
      w.low = once_in(2) ? w.size / 2 : integer(-3, 5);
      d.window[k] = place_window(w, k + 1, 0, axis_list{});
      d.filter.append(w.size);
      d.input.append(integer(1, most));
      // It is as long as what it reads, or has any length.
      d.output.append(once_in(2) ? d.input[k + 1] : integer(1, most));
      part(d.input[k + 1], d.at_input.dim[k + 1]);
      part(d.output[k + 1], d.at_output.dim[k + 1]);
    }
    for (extents* const of : {&d.filter, &d.filter, &d.input, &d.output}) of->append(1);
    d.at_input.dim[d.spatial + 1] = d.at_output.dim[d.spatial + 1] = {0, 1};
    describe(d);
    return d;
  }

 private:
  /// Draws, in room for `extent` elements, those that a device has.
  void part(std::int64_t extent, interval& box) {
    box = {0, extent};
    if (once_in(3)) box.start = integer(0, 9);
    if (once_in(4)) box.size = integer(0, extent);
  }
  static void describe(drawn& d) {
    for (int k = 0; k < d.spatial; ++k) {
      const placed_window& w = d.window[k];
      for (const std::int64_t x : {w.size, w.stride, w.low, w.dilation, w.base_dilation}) {
        d.text += std::to_string(x) + " ";
      }
      d.text += "; ";
    }
    for (int k = 0; k < d.spatial + 2; ++k) {
      d.text += std::to_string(d.input[k]) + " [" + std::to_string(d.at_input.dim[k].start) + "+" +
                std::to_string(d.at_input.dim[k].size) + "] -> " + std::to_string(d.output[k]) + " [" +
                std::to_string(d.at_output.dim[k].start) + "+" + std::to_string(d.at_output.dim[k].size) + "], ";
    }
    d.text += "groups " + std::to_string(d.groups);
  }

  std::mt19937 engine_;
};

/// Which elements of a buffer are this device's.
[[nodiscard]] std::vector<bool> own(const extents& shape, const tensor_box& box) {
  std::vector<bool> all(static_cast<std::size_t>(shape.elements()));
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    std::int64_t rest = i;
    bool here = true;
    for (int d = shape.rank - 1; d >= 0; --d) {
      here = here && rest % shape[d] < box.dim[d].size;
      rest /= shape[d];
    }
    all[static_cast<std::size_t>(i)] = here;
  }
  return all;
}
[[nodiscard]] tensor_box box_of_filter(const drawn& d) {
  tensor_box box = detail::whole_box(d.filter);
  if (d.groups > 1) return box;
  box.dim[d.spatial].size = d.at_input.dim[d.spatial + 1].size;
  box.dim[d.spatial + 1].size = d.at_output.dim[d.spatial + 1].size;
  return box;
}

template <class T> struct operand {
  std::vector<T> stored;
  std::vector<double> plain;
  std::vector<bool> here;

  operand(const extents& shape, const tensor_box& box, test::generator& random) : here(own(shape, box)) {
    for (const bool one : here) {
      const auto x = T(static_cast<computed_t<T>>(one ? random(dtype_of<T>, test::values::any) : std::nan("")));
      stored.push_back(x);
      plain.push_back(static_cast<double>(x));
    }
  }
};

/// A kernel's result against `want`, and whatever the number of threads, bit for bit the same.
template <class Acc, class F>
void check(const char* name, const std::vector<double>& want, const std::vector<bool>& here, const F& run) {
  std::vector<std::vector<Acc>> outcomes;
  test::with_threads([&] {
    std::vector<Acc> got(want.size() + 1, Acc(77));
    run(got.data());
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (!here[i]) {
        got[i] = Acc(0);
      } else if (const double x = static_cast<double>(got[i]);
                 !(std::abs(x - want[i]) <= (sizeof(Acc) == 8 ? 1e-12 : 3e-4) * (std::abs(want[i]) + 10))) {
        INFO(name << " element " << i << ": " << x << " instead of " << want[i]);
        REQUIRE(false);
      }
    }
    REQUIRE(got.back() == Acc(77));
    outcomes.push_back(got);
  });
  for (const std::vector<Acc>& other : outcomes) REQUIRE(other == outcomes[0]);
}

template <class T> void check_all(const drawn& d, unsigned seed) {
  using product = accumulate_t<T>;
  test::generator random(seed);
  const operand<T> x(d.input, d.at_input, random);
  const operand<product> w(d.filter, box_of_filter(d), random);
  const operand<T> y(d.output, d.at_output, random);
  std::vector<product> cotangent;
  for (const double one : y.plain) cotangent.push_back(static_cast<product>(one));

  instruction self;
  evaluation e;
  e.self = &self;
  e.windows = &d.window[0];
  const auto sums = [&](std::size_t count, const auto& add) {
    std::vector<double> all(count);
    detail::for_each_term_of_convolution(e, d.input, d.filter, d.output, d.at_input, d.at_output,
                                         [&](const detail::convolution_term& t) { add(all, t); });
    return all;
  };
  const auto at = [](const std::vector<double>& from, std::int64_t i) { return from[static_cast<std::size_t>(i)]; };
  const std::int64_t channels = d.filter[d.spatial];
  const std::int64_t features = d.filter[d.spatial + 1];
  const std::int64_t f = features / d.groups;

  // Room for one image more or less is not what a part may leave out: both have the same images.
  const detail::convolution_task task =
      detail::convolution_task_for(&d.window[0], d.filter, d.input, d.at_input, d.output, d.at_output);
  check<product>("result",
                 sums(y.plain.size(),
                      [&](auto& all, const auto& t) {
                        all[static_cast<std::size_t>(t.output)] += at(x.plain, t.input) * at(w.plain, t.filter);
                      }),
                 y.here, [&](product* to) {
                   detail::convolve(task, x.stored.data(), w.stored.data(), channels, features, false, to);
                 });
  check<product>("filter's gradient",
                 sums(w.plain.size(),
                      [&](auto& all, const auto& t) {
                        all[static_cast<std::size_t>(t.filter)] += at(x.plain, t.input) * at(y.plain, t.output);
                      }),
                 w.here, [&](product* to) {
                   const std::int64_t parts = seed % 3 == 0 ? 3 : 1;
                   std::vector<product> others(w.stored.size() * 2, product(77));
                   detail::convolve_for_filter(task, x.stored.data(), cotangent.data(), channels, features, to, parts,
                                               others.data());
                 });
  placed_window windows[3];
  for (int k = 0; k < d.spatial; ++k) windows[k] = d.window[k].reversed();
  const extents turned = detail::turned_shape(d.filter, d.groups);
  const detail::convolution_task back =
      detail::convolution_task_for(&windows[0], turned, d.output, d.at_output, d.input, d.at_input);
  check<product>("input's gradient",
                 sums(x.plain.size(),
                      [&](auto& all, const auto& t) {
                        all[static_cast<std::size_t>(t.input)] += at(y.plain, t.output) * at(w.plain, t.filter);
                      }),
                 x.here, [&](product* to) {
                   std::vector<product> weights(w.stored.size());
                   detail::turn_filter(back, d.filter, d.groups, w.stored.data(), weights.data());
                   detail::convolve(back, y.stored.data(), weights.data(), f, channels * d.groups, true, to);
                 });
}

void check_any(const drawn& d, unsigned seed) {
  INFO(seed << ": " << d.text);
  if (seed % 4 == 0) {
    check_all<double>(d, seed);
  } else if (seed % 4 == 1) {
    check_all<bfloat16>(d, seed);
  } else {
    check_all<float>(d, seed);
  }
}

}  // namespace

TEST_CASE("kernels: random convolutions and their gradients are the sum of their terms", "[kernels]") {
  constexpr unsigned count = 400;
  for (unsigned seed = 0; seed < count; ++seed) check_any(convolution_draw(seed).any(), seed);
}

TEST_CASE("kernels: random stencils and their gradients are the sum of their terms", "[kernels]") {
  constexpr unsigned count = test::tried_cases(400);
  for (unsigned seed = 0; seed < count; ++seed) check_any(convolution_draw(seed).plane(), seed);
}

TEST_CASE("kernels: what a stencil sees beyond an edge is nothing, also if its weights are no numbers", "[kernels]") {
  // A zero times infinity would be no number.
  constexpr std::int64_t rows = 7;
  constexpr std::int64_t columns = 150;
  drawn d;
  d.spatial = 2;
  for (int k = 0; k < 2; ++k) d.window[k] = place_window({.size = 3, .low = 1}, k + 1, 0, axis_list{});
  d.input = d.output = {4, {1, rows, columns, 1}};
  d.filter = {4, {3, 3, 1, 1}};
  d.at_input = d.at_output = detail::whole_box(d.input);
  const detail::convolution_task task =
      detail::convolution_task_for(&d.window[0], d.filter, d.input, d.at_input, d.output, d.at_output);
  const std::vector<float> x(rows * columns, 1.0F);
  std::vector<float> y(rows * columns);
  for (const int tap : {0, 2, 6, 8}) {
    std::vector<float> weights(9, 1.0F);
    weights[static_cast<std::size_t>(tap)] = std::numeric_limits<float>::infinity();
    detail::convolve(task, x.data(), weights.data(), 1, 1, false, y.data());
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const std::int64_t r = i / columns + tap / 3 - 1;
      const std::int64_t c = i % columns + tap % 3 - 1;
      const bool is_seen = r >= 0 && r < rows && c >= 0 && c < columns;
      const std::int64_t terms = (i / columns % (rows - 1) == 0 ? 2 : 3) * (i % columns % (columns - 1) == 0 ? 2 : 3);
      const float want = is_seen ? std::numeric_limits<float>::infinity() : static_cast<float>(terms);
      if (y[static_cast<std::size_t>(i)] != want) {
        INFO("tap " << tap << ", element " << i << ": " << y[static_cast<std::size_t>(i)]);
        REQUIRE(false);
      }
    }
  }
}

TEST_CASE("kernels: a convolution with few positions shares out features, and sums stay the same", "[kernels]") {
  drawn d;
  d.window[0] = place_window({.size = 7, .low = 3}, 1, 0, axis_list{});
  d.input = {3, {1, 9, 200}};
  d.filter = {3, {7, 200, 36}};
  d.output = {3, {1, 9, 36}};
  d.at_input = detail::whole_box(d.input);
  d.at_output = detail::whole_box(d.output);
  check_all<float>(d, 1);
}
