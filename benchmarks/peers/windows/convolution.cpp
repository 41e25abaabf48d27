// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The peer of benchmarks/convolution.cpp: oneDNN. Each tensor has the layout that oneDNN likes best, the primitive
// exists before, and neither making it nor any reordering is measured.

#include "../../convolution_shapes.hpp"
#include "../../machine.hpp"

#include <oneapi/dnnl/dnnl.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>

namespace {

using namespace espalier::benchmarks;
using dnnl::memory;

memory filled(const memory::desc& shape, const dnnl::engine& engine) {
  memory made(shape, engine);
  auto* const data = static_cast<float*>(made.get_data_handle());
  unsigned seed = 1;
  for (std::size_t i = 0; i < shape.get_size() / sizeof(float); ++i) {
    seed = seed * 1664525U + 1013904223U;
    data[i] = static_cast<float>(static_cast<int>(seed >> 24U) % 9 - 4) / 8;
  }
  return made;
}

void measure(const convolution_shape& s, const std::string& row) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  memory::dims input{s.images, s.channels};
  memory::dims filter{s.features, s.channels};
  memory::dims output{s.images, s.features};
  memory::dims stride;
  memory::dims padding;
  for (int d = 0; d < s.spatial; ++d) {
    input.push_back(s.extent);
    filter.push_back(s.taps);
    output.push_back(s.output());
    stride.push_back(s.stride);
    padding.push_back(s.padding());
  }
  const auto any = [](const memory::dims& dims) {
    return memory::desc(dims, memory::data_type::f32, memory::format_tag::any);
  };
  const auto direct = dnnl::algorithm::convolution_direct;
  const dnnl::convolution_forward::desc forward(dnnl::prop_kind::forward_training, direct, any(input), any(filter),
                                                any(output), stride, padding, padding);
  const dnnl::convolution_forward::primitive_desc hint(forward, engine);
  const auto run = [&](const char* name, const dnnl::primitive& made, const char* how,
                       std::unordered_map<int, memory> arguments) {
    const double taken = median_seconds(
        [&] {
          made.execute(stream, arguments);
          stream.wait();
        },
        {2, 7});
    report(row + "/" + std::string(s.name) + "/" + name, "oneDNN", s.flops() / taken * 1e-9, "GFLOP/s",
           std::string("\"implementation\": \"") + how + "\"");
  };
  {
    run("forward", dnnl::convolution_forward(hint), hint.impl_info_str(),
        {{DNNL_ARG_SRC, filled(hint.src_desc(), engine)},
         {DNNL_ARG_WEIGHTS, filled(hint.weights_desc(), engine)},
         {DNNL_ARG_DST, filled(hint.dst_desc(), engine)}});
  }
  {
    const dnnl::convolution_backward_data::primitive_desc back(
        {direct, any(input), any(filter), any(output), stride, padding, padding}, engine, hint);
    run("input", dnnl::convolution_backward_data(back), back.impl_info_str(),
        {{DNNL_ARG_DIFF_SRC, filled(back.diff_src_desc(), engine)},
         {DNNL_ARG_WEIGHTS, filled(back.weights_desc(), engine)},
         {DNNL_ARG_DIFF_DST, filled(back.diff_dst_desc(), engine)}});
  }
  {
    const dnnl::convolution_backward_weights::primitive_desc back(
        {direct, any(input), any(filter), any(output), stride, padding, padding}, engine, hint);
    run("filter", dnnl::convolution_backward_weights(back), back.impl_info_str(),
        {{DNNL_ARG_SRC, filled(back.src_desc(), engine)},
         {DNNL_ARG_DIFF_WEIGHTS, filled(back.diff_weights_desc(), engine)},
         {DNNL_ARG_DIFF_DST, filled(back.diff_dst_desc(), engine)}});
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (const convolution_shape& s : convolution_shapes) {
    if (argc != 3 || s.name != argv[2]) continue;
    measure(s, argv[1]);
    return EXIT_SUCCESS;
  }
  std::fprintf(stderr, "usage: %s ROW SHAPE, one of convolution_shapes.hpp\n", argv[0]);
  return EXIT_FAILURE;
}
