// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The plan of a program as text, which all compilers write alike.

#include <espalier/core.hpp>
#include <espalier/tensor/core/ops/scan.hpp>
#include <espalier/tensor/core/program/differentiate.hpp>
#include <espalier/tensor/core/program/plan_text.hpp>

#include <string_view>

namespace ep = espalier;

namespace {

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using mesh = ep::mesh<data, model>;

// --- the whole text, and a file that is included

struct mlp {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    auto h = ep::relu(ep::einsum<"bm,mh->bh">(x, w_in));
    h = ep::shard<data, model>(h);
    return ep::einsum<"bh,hm->bm">(h, w_out);
  }
};
using step = ep::program<mesh, mlp, ep::f32<64, 256>, ep::f32<256, 1024>, ep::f32<1024, 256>>;

// 2 products of 2 x 64 x 256 x 1024 operations on 4 devices and a relu of 32 x 512, at 400 a nanosecond: 41.984 us.
// An all-reduce of 32 x 256 floats between two sends half of them there and back.
static_assert(ep::plan_text<step>() == R"(espalier plan 1
program mlp
mesh data=2, model=2
annotated 1 of 6 values
memory 1,245,184 B: 1,081,344 arguments, 32,768 results, 131,072 between
sends 32,768 B in 1 collective
time 4.915 us sending, 41.984 us computing, at 10,000,000,000 B/s, 1.638 us a start, 400,000,000,000 operations/s
all_reduce over model | 1 x 32,768 B | 4.915 us | f32[64@data, 256] | plan_text.cpp:27 | plan_text.cpp:26 f32[64@data, 1024@model]
)");
constexpr std::string_view kept =
#include "../../data/plans/mlp.plan"
    ;
static_assert(ep::plan_text<step>() == kept);

constexpr bool has(std::string_view text, std::string_view words) { return text.find(words) != std::string_view::npos; }

// --- other names and rates

constexpr auto nameless =
    ep::compile<mesh, ep::sharded<ep::f32<8, 16>, data, model>>([](auto x) { return ep::sum<0, 1>(x); });
static_assert(has(ep::plan_text(nameless), "\nprogram (lambda)\n"));
static_assert(has(ep::plan_text<"train">(nameless), "\nprogram train\n"));
// 12 bytes at 1 GB/s and 5 us.
constexpr ep::plan_rates slow{.bytes_per_second = 1'000'000'000, .start_nanoseconds = 5000};
static_assert(has(ep::plan_text<"train", slow>(nameless),
                  "\nall_reduce over data*model | 1 x 12 B | 5.012 us | f32[]"));
template <class T> struct box {
  struct inner {
    constexpr auto operator()(auto x) const { return ep::tanh(x); }
  };
};
static_assert(has(ep::plan_text<ep::program<mesh, box<mlp>::inner, ep::f32<8>>>(), "\nprogram inner\n"));
static_assert(has(ep::plan_text<ep::program<mesh, box<mlp>::inner, ep::f32<8>>>(), "\nannotated 0 of 2 values\n"));

// --- callers, loops, uneven shards, collectives that travel together, gradients

constexpr auto dense(auto x, auto w, ep::source_line where = ep::source_line::current()) {
  const ep::called_from caller(x, where);
  return ep::shard<data, ep::none>(ep::matmul(x, w));
}
struct two_layers {
  constexpr auto operator()(auto x, auto up, auto down) const {
    const auto h = dense(x, up);
    return dense(h, down);
  }
};
using layered = ep::program<mesh, two_layers, ep::f32<8, 16>, ep::sharded<ep::f32<16, 32>, ep::none, model>,
                            ep::sharded<ep::f32<32, 16>, ep::none, model>>;
static_assert(has(ep::plan_text<layered>(), "\nannotated 4 of 5 values\n"));
static_assert(has(ep::plan_text<layered>(),
                  "all_gather over model | 1 x 256 B | 1.664 us | f32[8@data, 32] | plan_text.cpp:72, called from "
                  "plan_text.cpp:76 | plan_text.cpp:72 f32[8@data, 32]\n"));

// In each of 7 iterations a device sends one half of its 4 x 16 sums.
struct repeated {
  constexpr auto operator()(auto x, auto layers) const {
    return ep::scan([](auto h, auto w) { return ep::tanh(ep::matmul(ep::shard<data, model>(h), w)); }, x, layers);
  }
};
static_assert(has(ep::plan_text<ep::program<mesh, repeated, ep::f32<8, 16>, ep::f32<7, 16, 16>>>(),
                  "\nreduce_scatter over model | 7 x 128 B | 11.556 us | f32[8@data, 16@model] | plan_text.cpp:90 | "));

// 7 x 9 over 2 x 2 devices: the first has 4 x 5 of 63 elements and sends them to 3 others; 240 B.
struct uneven {
  constexpr auto operator()(auto x, auto w) const {
    return ep::reshard<ep::none, ep::none>(ep::shard<data, model>(ep::matmul(x, w)));
  }
};
static_assert(has(ep::plan_text<ep::program<mesh, uneven, ep::f32<7, 5>, ep::f32<5, 9>>>(),
                  "\nall_gather over data*model | 1 x 240 B | "));

// Both gradients are sums over data, in one message with the loss; the annotation of the gradient is not the user's.
struct trained {
  constexpr auto operator()(auto x, auto w, auto v) const {
    const auto loss = [](auto weights, auto a) {
      const auto h = ep::shard<data, ep::none>(ep::tanh(ep::matmul(a, weights)));
      return ep::mean(h * h);
    };
    const auto other = [](auto weights, auto a) { return ep::mean(ep::shard<data, ep::none>(ep::matmul(a, weights))); };
    const auto [first, of_w] = ep::value_and_grad(loss)(w, x);
    const auto [second, of_v] = ep::value_and_grad(other)(v, x);
    return ep::results(first + second, of_w, of_v);
  }
};
using training = ep::program<mesh, trained, ep::f32<8, 4>, ep::f32<4, 6>, ep::f32<4, 2>>;
static_assert(has(ep::plan_text<training>(), "\nannotated 2 of "));
static_assert(has(ep::plan_text<training>(), "\nwith the all_reduce above | 1 x - | - | f32["));
static_assert(training::collectives() == 1);

// --- files of one name in several folders

constexpr bool names_are(ep::detail::plan_files files, std::string_view a, std::string_view b, std::string_view c) {
  files.find_names();
  const char* const of[]{files.path[0] + files.from[0], files.path[1] + files.from[1], files.path[2] + files.from[2]};
  return of[0] == a && of[1] == b && of[2] == c;
}
constexpr ep::detail::plan_files files_at(const char* a, const char* b, const char* c) {
  ep::detail::plan_files files;
  for (const char* one : {a, b, c}) files.add({one, 7});
  return files;
}
static_assert(names_are(files_at("/home/me/encoder/block.hpp", "/home/me/decoder/block.hpp", "/home/me/main.cpp"),
                        "encoder/block.hpp", "decoder/block.hpp", "main.cpp"));
static_assert(names_are(files_at("src/a/x/block.hpp", "src/b/x/block.hpp", "block.hpp"), "a/x/block.hpp",
                        "b/x/block.hpp", "block.hpp"));
static_assert(files_at("block.hpp", "block.hpp", "main.cpp").count == 2);

}  // namespace
