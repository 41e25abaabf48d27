// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// A training step of the 3-D U-Net of examples/unet3d on volumes that are cut in two, against one device with as many
// threads.

#include "machine.hpp"

#include <espalier/espalier.hpp>

#include "../examples/unet3d/unet3d.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using namespace espalier;
using namespace espalier::benchmarks;

constexpr int slices = 32;
constexpr int side = 16;
using volumes = f32<1, slices, side, side, unet3d::input_channels>;
using voxels = i32<1, slices, side, side>;

struct depth : axis<"depth", 2> {};
using two_devices = mesh<depth>;
struct alone : axis<"alone", 1> {};
using one_device = mesh<alone>;

template <class Mesh, class Depth>
using training =
    program<Mesh, unet3d::train_step<Depth>, donated<unet3d::optimizer::state<spec>>, volumes, voxels, f32<>>;

template <class Mesh, class Depth> class trainer {
 public:
  trainer()
      : here_(Mesh::value),
        run_(here_),
        state_(run_.template argument<0>()),
        x_(run_.template argument<1>()),
        labels_(run_.template argument<2>()),
        rate_(run_.template argument<3>()) {
    nn::initialise(
        state_.parameters, 1, [](const nn::leaf_path& path) { return nn::initial_by_name(path, 0.03); },
        [](auto& array, const auto& value) {
          array.for_each(
              [&](float& e, std::int64_t i) { e = static_cast<float>(value(static_cast<std::uint64_t>(i))); });
        });
    x_.for_each([](float& e, std::int64_t i) { e = static_cast<float>((i * 7) % 11 - 5) / 8; });
    labels_.for_each([](std::int32_t& l, std::int64_t i) { l = static_cast<std::int32_t>(i / 64 % unet3d::classes); });
    rate_.for_each([](float& r, std::int64_t) { r = 0.001F; });
  }
  void step() { loss_ = *run_(state_, x_, labels_, rate_).template get<1>().data(0); }
  [[nodiscard]] float loss() const { return loss_; }
  [[nodiscard]] int threads() const { return here_.threads_per_device(); }

 private:
  using program_type = training<Mesh, Depth>;
  world here_;
  runner<program_type> run_;
  std::remove_cvref_t<decltype(std::declval<runner<program_type>&>().template argument<0>())> state_;
  std::remove_cvref_t<decltype(std::declval<runner<program_type>&>().template argument<1>())> x_;
  std::remove_cvref_t<decltype(std::declval<runner<program_type>&>().template argument<2>())> labels_;
  std::remove_cvref_t<decltype(std::declval<runner<program_type>&>().template argument<3>())> rate_;
  float loss_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string row = argc > 1 ? argv[1] : "unet3d_two_devices_vs_two_threads";
  return guarded_main(argc, argv, [&] {
    trainer<two_devices, depth> split;
    trainer<one_device, none> whole;
    const auto [split_seconds, whole_seconds] = interleaved_seconds(
        repeats{2, 7}, [&] { split.step(); }, [&] { whole.step(); });
    std::printf("losses %.6f and %.6f\n", static_cast<double>(split.loss()), static_cast<double>(whole.loss()));
    benchmarks::report(row, "ours", split_seconds * 1e3, "ms");
    benchmarks::report(row, "one device, " + std::to_string(whole.threads()) + " threads", whole_seconds * 1e3, "ms");
    return 0;
  });
}
