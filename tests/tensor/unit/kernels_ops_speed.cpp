// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: yes
// together: speed
#include <tensor/unit/kernels_ops_checks.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

// Speed of chains of micro-operations beside the same chain as one loop written by hand, and of moving tensors beside
// memcpy: printed, not asserted. Their results are compared.

namespace {

using namespace espalier;
using kernels::block_call;
using kernels::block_key;
using kernels::kernel_key;
using kernels::stream;
using test::buffer;

/// Seconds of the fastest of several runs.
template <class Body> double seconds(Body body) {
  double best = 1e9;
  for (int trial = 0; trial < 7; ++trial) {
    const auto start = std::chrono::steady_clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

template <const op_info* Op, std::int64_t Columns, unsigned Wide, int Count, bool ResultWide = true,
          reduction Kind = reduction::sum>
constexpr kernels::block_function micro() {
  constexpr block_key key = [] {
    block_key made;
    made.columns = is_long_row(Columns) ? 0 : Columns;
    made.operand_count = Count;
    for (int k = 0; k < Count; ++k) made.wide[k] = (Wide >> k & 1U) != 0;
    made.result_wide = ResultWide;
    if (Op->fuse == fusion::reduction) set_attributes(made, fused_reduction_attributes{.kind = Kind});
    return made;
  }();
  return &kernels::block_kernel<Op>::template run<key>;
}

/// An operand of a step: memory outside, which moves on with the block, or a temporary.
struct place {
  float* data = nullptr;
  std::int64_t row = 0;
  bool moves = false;
};
struct step {
  kernels::block_function run = nullptr;
  place result;
  place operand[3]{};
};

void run_chain(const std::vector<step>& steps, std::int64_t rows, std::int64_t columns, std::int64_t block) {
  for (std::int64_t first = 0; first < rows; first += block) {
    block_call call;
    call.rows = std::min(block, rows - first);
    call.columns = columns;
    call.first_row = first;
    const auto at = [first](const place& p) { return stream{p.data + (p.moves ? first * p.row : 0), p.row}; };
    for (const step& s : steps) {
      for (int k = 0; k < 3; ++k) call.operand[k] = at(s.operand[k]);
      call.result = at(s.result);
      s.run(call);
    }
  }
}

struct floats {
  explicit floats(std::int64_t count) : memory(dtype::f32, count) {
    test::generator random;
    random.fill(memory, dtype::f32, test::values::any);
    data = static_cast<float*>(memory.data());
  }
  buffer memory;
  float* data;
};

void print(const char* what, double elements, double chain, double hand) {
  std::printf("%-44s %6.2f Gelem/s, by hand %6.2f: %3.0f %%\n", what, elements / chain * 1e-9, elements / hand * 1e-9,
              100 * hand / chain);
}

double largest_difference(const floats& a, const floats& b) {
  double worst = 0;
  for (std::int64_t i = 0; i < a.memory.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(a.data[i]) - static_cast<double>(b.data[i])));
  }
  return worst;
}

}  // namespace

TEST_CASE("speed: softmax of 256 columns", "[kernels]") {
  constexpr std::int64_t columns = 256;
  constexpr std::int64_t block = 4;
  for (const std::int64_t rows : {64, 8192}) {
    const std::int64_t repeat = 8192 / rows;
    floats x(rows * columns);
    floats y(rows * columns);
    floats by_hand(rows * columns);
    floats wide(block * columns);
    floats top(block);
    floats total(block);
    floats one(1);
    *one.data = 1;
    const place from{x.data, columns, true};
    const place to{y.data, columns, true};
    const place t{wide.data, columns};
    const place n{top.data, 1};
    const place s{total.data, 1};
    const std::vector<step> steps{
        {micro<&ops::reduce, columns, 1, 1, false, reduction::max>(), n, {from}},
        {micro<&ops::subtract, columns, 1, 2>(), t, {from, n}},
        {micro<&ops::exp, columns, 1, 1>(), t, {t}},
        {micro<&ops::reduce_sum, columns, 1, 1, false>(), s, {t}},
        {micro<&ops::divide, columns, 0, 2, false>(), s, {{one.data, 0}, s}},
        {micro<&ops::multiply, columns, 1, 2>(), to, {t, s}},
    };
    const auto hand = [&] {
      for (std::int64_t r = 0; r < rows; ++r) {
        const float* in = x.data + r * columns;
        float* out = by_hand.data + r * columns;
        const auto highest = detail::reduce_run<reduction::max, float>(in, columns);
        detail::vector_loop(columns, [=](std::int64_t c) { out[c] = kernels::exp(in[c] - highest); });
        const float inverse = 1 / detail::reduce_run<reduction::sum, float>(out, columns);
        detail::vector_loop(columns, [=](std::int64_t c) { out[c] *= inverse; });
      }
    };
    const double chain_time = seconds([&] {
      for (std::int64_t i = 0; i < repeat; ++i) run_chain(steps, rows, columns, block);
    });
    const double hand_time = seconds([&] {
      for (std::int64_t i = 0; i < repeat; ++i) hand();
    });
    print(rows > 64 ? "softmax, 256 columns, 8 MiB" : "softmax, 256 columns, 64 KiB",
          static_cast<double>(rows * repeat * columns), chain_time, hand_time);
    CHECK(largest_difference(y, by_hand) < 1e-6);
  }
}

TEST_CASE("speed: layer norm of 512 columns", "[kernels]") {
  constexpr std::int64_t columns = 512;
  constexpr std::int64_t block = 2;
  constexpr float inverse_count = 1.0F / columns;
  for (const std::int64_t rows : {32, 4096}) {
    const std::int64_t repeat = 4096 / rows;
    floats x(rows * columns);
    floats y(rows * columns);
    floats by_hand(rows * columns);
    floats wide(block * columns);
    floats square(block * columns);
    floats mean(block);
    floats deviation(block);
    floats gain(columns);
    floats bias(columns);
    floats scalar(2);
    scalar.data[0] = inverse_count;
    scalar.data[1] = 1e-5F;
    const place from{x.data, columns, true};
    const place to{y.data, columns, true};
    const place t{wide.data, columns};
    const place q{square.data, columns};
    const place m{mean.data, 1};
    const place d{deviation.data, 1};
    const std::vector<step> steps{
        {micro<&ops::reduce_sum, columns, 1, 1, false>(), m, {from}},
        {micro<&ops::multiply, columns, 0, 2, false>(), m, {m, {scalar.data, 0}}},
        {micro<&ops::subtract, columns, 1, 2>(), t, {from, m}},
        {micro<&ops::multiply, columns, 3, 2>(), q, {t, t}},
        {micro<&ops::reduce_sum, columns, 1, 1, false>(), d, {q}},
        {micro<&ops::multiply, columns, 0, 2, false>(), d, {d, {scalar.data, 0}}},
        {micro<&ops::add, columns, 0, 2, false>(), d, {d, {scalar.data + 1, 0}}},
        {micro<&ops::rsqrt, columns, 0, 1, false>(), d, {d}},
        {micro<&ops::multiply, columns, 1, 2>(), t, {t, d}},
        {micro<&ops::multiply, columns, 3, 2>(), t, {t, {gain.data, 0}}},
        {micro<&ops::add, columns, 3, 2>(), to, {t, {bias.data, 0}}},
    };
    const auto hand = [&] {
      for (std::int64_t r = 0; r < rows; ++r) {
        const float* in = x.data + r * columns;
        float* out = by_hand.data + r * columns;
        const float middle = detail::reduce_run<reduction::sum, float>(in, columns) * inverse_count;
        detail::vector_loop(columns, [=](std::int64_t c) { out[c] = (in[c] - middle) * (in[c] - middle); });
        const auto squares = detail::reduce_run<reduction::sum, float>(out, columns);
        const float scale = kernels::rsqrt(squares * inverse_count + 1e-5F);
        detail::vector_loop(columns, [=, g = gain.data, b = bias.data](std::int64_t c) {
          out[c] = (in[c] - middle) * scale * g[c] + b[c];
        });
      }
    };
    const double chain_time = seconds([&] {
      for (std::int64_t i = 0; i < repeat; ++i) run_chain(steps, rows, columns, block);
    });
    const double hand_time = seconds([&] {
      for (std::int64_t i = 0; i < repeat; ++i) hand();
    });
    print(rows > 32 ? "layer norm, 512 columns, 8 MiB" : "layer norm, 512 columns, 64 KiB",
          static_cast<double>(rows * repeat * columns), chain_time, hand_time);
    CHECK(largest_difference(y, by_hand) < 1e-4);
  }
}

TEST_CASE("speed: AdamW on a million elements", "[kernels]") {
  constexpr std::int64_t columns = 1024;
  constexpr std::int64_t rows = 1024;
  constexpr float b1 = 0.9F;
  constexpr float b2 = 0.95F;
  constexpr float rate = 1e-3F;
  constexpr float decay = 0.1F;
  constexpr float small = 1e-8F;
  floats p(rows * columns);
  floats g(rows * columns);
  floats m(rows * columns);
  floats v(rows * columns);
  for (std::int64_t i = 0; i < rows * columns; ++i) v.data[i] = v.data[i] * v.data[i];
  floats p2 = p;
  floats m2 = m;
  floats v2 = v;
  for (floats* copied : {&p2, &m2, &v2}) copied->data = static_cast<float*>(copied->memory.data());
  floats t1(columns);
  floats t2(columns);
  float constants[]{b1, 1 - b1, b2, 1 - b2, small, decay, rate};
  const place weight{p.data, columns, true};
  const place slope{g.data, columns, true};
  const place first{m.data, columns, true};
  const place second{v.data, columns, true};
  const place a{t1.data, columns};
  const place b{t2.data, columns};
  const auto number = [&](int i) { return place{&constants[i], 0}; };
  constexpr auto scale = micro<&ops::multiply, columns, 1, 2>();
  constexpr auto shift = micro<&ops::add, columns, 1, 2>();
  constexpr auto add = micro<&ops::add, columns, 3, 2>();
  const std::vector<step> steps{
      {scale, first, {first, number(0)}}, {scale, a, {slope, number(1)}},
      {add, first, {first, a}},           {micro<&ops::multiply, columns, 3, 2>(), a, {slope, slope}},
      {scale, a, {a, number(3)}},         {scale, second, {second, number(2)}},
      {add, second, {second, a}},         {micro<&ops::sqrt, columns, 1, 1>(), a, {second}},
      {shift, a, {a, number(4)}},         {micro<&ops::divide, columns, 3, 2>(), a, {first, a}},
      {scale, b, {weight, number(5)}},    {add, a, {a, b}},
      {scale, a, {a, number(6)}},         {micro<&ops::subtract, columns, 3, 2>(), weight, {weight, a}},
  };
  const auto hand = [&] {
    detail::vector_loop(rows * columns, [w = p2.data, x = g.data, n = m2.data, u = v2.data](std::int64_t i) {
      n[i] = b1 * n[i] + (1 - b1) * x[i];
      u[i] = b2 * u[i] + (1 - b2) * (x[i] * x[i]);
      w[i] -= rate * (n[i] / (kernels::sqrt(u[i]) + small) + decay * w[i]);
    });
  };
  const double chain_time = seconds([&] { run_chain(steps, rows, columns, 1); });
  const double hand_time = seconds(hand);
  print("AdamW, 1 Mi elements", static_cast<double>(rows * columns), chain_time, hand_time);
  const double triad = seconds([&] {
    detail::vector_loop(rows * columns,
                        [a1 = p2.data, b1 = m2.data, c1 = v2.data](std::int64_t i) { c1[i] = a1[i] + b1[i]; });
  });
  std::printf("%-44s %6.2f GB/s (7 streams of 4 bytes), an addition %6.2f GB/s\n", "",
              28e-9 * rows * columns / chain_time, 12e-9 * rows * columns / triad);
  CHECK(largest_difference(p, p2) < 1e-4);
}

namespace {

template <const op_info* Op, kernel_key Key> double time_of(buffer& from, buffer& to) {
  kernels::kernel_call call;
  call.operand[0] = from.data();
  call.result = to.data();
  buffer scratch(dtype::boolean, kernels::kernel<Op>::scratch_bytes(Key) + 1);
  call.scratch = scratch.data();
  return seconds([&] { kernels::kernel<Op>::template run<Key>(call); });
}

template <dtype Type, std::int64_t Rows, std::int64_t Columns> void print_transpose(const char* what) {
  constexpr kernel_key key = [] {
    kernel_key made;
    made.type = Type;
    made.operand_count = 1;
    made.operand_type[0] = Type;
    made.operand_shape[0] = {2, {Rows, Columns}};
    made.shape = {2, {Columns, Rows}};
    set_attributes(made, transpose_attributes{axis_list(1).with(0)});
    return made;
  }();
  buffer from(Type, Rows * Columns);
  buffer to(Type, Rows * Columns);
  const double moved = time_of<&ops::transpose, key>(from, to);
  const double copied = time_of<&ops::copy, key>(from, to);
  const double bytes = 2e-9 * static_cast<double>(Rows * Columns * size_of(Type));
  std::printf("transpose %-34s %6.2f GB/s, copy %6.2f: %3.0f %%\n", what, bytes / moved, bytes / copied,
              100 * copied / moved);
}

template <std::int64_t Rows, std::int64_t Columns, std::int64_t Dims> void print_sum(const char* what) {
  constexpr kernel_key key = [] {
    kernel_key made;
    made.operand_count = 1;
    made.operand_shape[0] = {2, {Rows, Columns}};
    made.shape = detail::reduced_shape(made.operand_shape[0], Dims, false);
    set_attributes(made, reduction_attributes{.dims = Dims});
    return made;
  }();
  buffer from(dtype::f32, Rows * Columns);
  buffer to(dtype::f32, Rows * Columns);
  const double taken = time_of<&ops::reduce_sum, key>(from, to);
  std::printf("sum %-40s %6.2f GB/s\n", what, 4e-9 * static_cast<double>(Rows * Columns) / taken);
}

}  // namespace

TEST_CASE("speed: transposes and sums of tensors", "[kernels]") {
#if defined(_OPENMP)
  std::printf("%d threads\n", omp_get_max_threads());
#endif
  print_transpose<dtype::f32, 256, 256>("256 x 256 f32");
  print_transpose<dtype::f32, 1024, 1024>("1024 x 1024 f32");
  print_transpose<dtype::f32, 1000, 1000>("1000 x 1000 f32");
  print_transpose<dtype::f32, 4096, 4096>("4096 x 4096 f32");
  print_transpose<dtype::f32, 4000, 4100>("4000 x 4100 f32");
  print_transpose<dtype::f32, 100000, 64>("100000 x 64 f32");
  print_transpose<dtype::f32, 64, 100000>("64 x 100000 f32");
  print_transpose<dtype::f64, 2048, 2048>("2048 x 2048 f64");
  print_transpose<dtype::bf16, 4096, 4096>("4096 x 4096 bf16");
  print_sum<256, 256, 1>("over rows, 256 x 256");
  print_sum<256, 256, 2>("over columns, 256 x 256");
  print_sum<4096, 4096, 1>("over rows, 4096 x 4096");
  print_sum<4096, 4096, 2>("over columns, 4096 x 4096");
  print_sum<4096, 4096, 3>("over all, 4096 x 4096");
  print_sum<1000000, 8, 1>("over rows, 1000000 x 8");
  print_sum<1000000, 8, 2>("over columns, 1000000 x 8");
}
