// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include "models.hpp"

#include <espalier/core.hpp>
#include <espalier/pipeline/stages/model/model.hpp>

#include <boost/hana/define_struct.hpp>

#include <utility>

namespace espalier::benchmarks {

namespace {

namespace pl = espalier::pipeline;

struct training {
  static constexpr nn::sgd_settings optimizer{};
};

template <int Rows, int Width> struct input : pl::field<"input", f32<Rows, Width>> {};
template <int Rows, int Width> struct wanted : pl::field<"wanted", f32<Rows, Width>> {};

/// x + relu(x up) down, of `Rows` vectors a sample.
template <int Width, int Hidden> struct two_products {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (leaf<Leaf, f32<Width, Hidden>>, up), (leaf<Leaf, f32<Hidden, Width>>, down));
  };
  constexpr auto operator()(const auto& p, const auto& x) const { return x + matmul(relu(matmul(x, p.up)), p.down); }
};

/// The squared distance from what is wanted.
struct distance {
  constexpr auto operator()(const auto& x, const auto& z) const {
    const auto d = x - z;
    return sum(d * d);
  }
};

using light = two_products<256, 512>;
using heavy = two_products<256, 1536>;
using uneven_model = pl::model<pl::batches<1, 2, 4, 8, 16>, training,
                               pl::named<"light0", light, pl::reads<input<64, 256>>>, pl::named<"light1", light>,
                               pl::named<"light2", light>, pl::named<"light3", light>, pl::named<"light4", light>,
                               pl::named<"light5", light>, pl::named<"heavy0", heavy>, pl::named<"heavy1", heavy>,
                               pl::named<"heavy2", heavy>, pl::named<"heavy3", heavy>, pl::named<"heavy4", heavy>,
                               pl::named<"heavy5", heavy>, pl::named<"loss", distance, pl::reads<wanted<64, 256>>>>;

using tiny = two_products<16, 16>;
using tiny_model = pl::model<pl::batches<2>, training, pl::named<"tiny0", tiny, pl::reads<input<4, 16>>>,
                             pl::named<"tiny1", tiny>, pl::named<"tiny2", tiny>, pl::named<"tiny3", tiny>,
                             pl::named<"loss", distance, pl::reads<wanted<4, 16>>>>;

template <class Model, int Rows, int Width> layers_to_train of_numbers() {
  layers_to_train made;
  pl::training_options options;
  options.rate = [](std::int64_t) { return 1e-6; };
  made.model = std::make_unique<Model>(std::move(options));
  const int layers = made.model->layers() - 1;  // the loss takes no time
  made.equal_split = [layers](int stages) {
    std::vector<int> first;
    for (int s = 0; s < stages; ++s) first.push_back(s * layers / stages);
    return first;
  };
  made.fill = [](const std::string& name, std::int64_t step, int sample, std::byte* row) {
    auto* const to = reinterpret_cast<float*>(row);
    const auto shift = static_cast<int>(step % 5) + (name == "wanted" ? 1 : 0);
    for (int k = 0; k < Rows * Width; ++k) to[k] = static_cast<float>((k + sample + shift) % 17) / 16;
  };
  made.start = [](pl::engine&) {};
  return made;
}

}  // namespace

layers_to_train uneven_layers() {
  layers_to_train made = of_numbers<uneven_model, 64, 256>();
  made.samples = 32;
  made.micro_batch = 4;
  return made;
}

layers_to_train tiny_layers() { return of_numbers<tiny_model, 4, 16>(); }

}  // namespace espalier::benchmarks
