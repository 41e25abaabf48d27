// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// A training step of the 3-D U-Net of examples/unet3d on volumes that are cut in two: against one device with as many
// threads, how much of it devices spend in the exchanges of halos, and what these move beside the figures by hand.

#include "machine.hpp"

#include <espalier/espalier.hpp>

#include "../examples/unet3d/unet3d.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

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

/// A communicator that knows how long its exchanges took: copying, and waiting for the other device.
template <class Communicator> class timed_communicator {
 public:
  explicit timed_communicator(Communicator& under) : under_(under) {}

  void prepare(const comm::transfer& moves) { under_.prepare(moves); }
  void prepare(const comm::transfer_group& group) { under_.prepare(group); }
  void exchange(const comm::transfer& moves, const void* source, void* target) {
    exchanging_ += seconds([&] { under_.exchange(moves, source, target); });
  }
  void reduce_exchange(const comm::transfer& moves, const void* source, void* target, const comm::reducer& by) {
    under_.reduce_exchange(moves, source, target, by);
  }
  void all_reduce(const comm::transfer_group& group, const void* source, void* target, std::int64_t count,
                  const comm::reducer& by) {
    under_.all_reduce(group, source, target, count, by);
  }
  void set_context(const comm::context* where) { under_.set_context(where); }
  [[nodiscard]] double exchanging() const { return exchanging_; }

 private:
  Communicator& under_;
  double exchanging_ = 0;
};

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
  /// Returns, by device, the part of a step that passes in exchanges, in the mean over `steps`.
  [[nodiscard]] std::vector<double> exchanging(int steps) {
    const auto& results = run_(state_, x_, labels_, rate_);
    std::vector<double> shares(static_cast<std::size_t>(here_.local_devices()));
    here_.on_devices([&](int local, auto& communicator) {
      timed_communicator timed(communicator);
      detail::item_executor device(tables_of<program_type>(), here_.device(local), timed);
      int index = 0;
      const auto give = [&](const auto& array) { device.set_argument(index++, array.data(local)); };
      detail::for_each_leaf(state_, give);
      for_each_of(give, x_, labels_, rate_);
      index = 0;
      detail::for_each_leaf(results, [&](const auto& array) { device.set_result(index++, array.data(local)); });
      device.run();
      const double before = timed.exchanging();
      const double all = seconds([&] {
        for (int step = 0; step < steps; ++step) device.run();
      });
      shares[static_cast<std::size_t>(local)] = (timed.exchanging() - before) / all;
    });
    return shares;
  }
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
  template <class Give, class... Arrays> static void for_each_of(const Give& give, const Arrays&... arrays) {
    (give(arrays), ...);
  }
  float loss_ = 0;
};

void against_two_threads(const std::string& row) {
  trainer<two_devices, depth> split;
  trainer<one_device, none> whole;
  const auto [split_seconds, whole_seconds] = interleaved_seconds(
      repeats{2, 7}, [&] { split.step(); }, [&] { whole.step(); });
  std::printf("losses %.6f and %.6f\n", static_cast<double>(split.loss()), static_cast<double>(whole.loss()));
  benchmarks::report(row, "ours", split_seconds * 1e3, "ms");
  benchmarks::report(row, "one device, " + std::to_string(whole.threads()) + " threads", whole_seconds * 1e3, "ms");
}

void halos(const std::string& row) {
  trainer<two_devices, depth> split;
  const std::vector<double> shares = split.exchanging(7);
  benchmarks::report(row, "ours", 100 * *std::max_element(shares.begin(), shares.end()), "%");
}

/// Reports our exchanges next to those found by hand, for two devices that have a neighbour on one side only: for every
/// channel that a 3^3 convolution reads (539 after weighting with the area of their level), a plane; likewise for its
/// cotangents (372).
void figures() {
  using evaluation = program<two_devices, unet3d::loss<depth>, unet3d::parameters<spec>, volumes, voxels>;
  using step = training<two_devices, depth>;
  const auto compare = [](const char* what, std::int64_t ours, std::int64_t by_hand, const char* unit) {
    const std::string row = std::string("unet3d_figures/") + what;
    benchmarks::report(row, "ours", static_cast<double>(ours), unit);
    benchmarks::report(row, "by hand", static_cast<double>(by_hand), unit);
  };
  constexpr std::int64_t plane = std::int64_t{side} * side * 4;
  compare("parameters", unet3d::parameter_count(), 19'069'955, "count");
  compare("exchanges_forward", evaluation::collectives<exchange>(), 14, "count");
  compare("exchanges_backward", step::collectives<exchange>() - evaluation::collectives<exchange>(), 13, "count");
  compare("bytes_forward", evaluation::bytes<exchange>(), 539 * plane, "B");
  compare("bytes_backward", step::bytes<exchange>() - evaluation::bytes<exchange>(), 372 * plane, "B");
  compare("gathers", step::collectives<all_gather>() + step::collectives<all_to_all>(), 0, "count");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string row = argc > 1 ? argv[1] : "unet3d_two_devices_vs_two_threads";
  return guarded_main(argc, argv, [&] {
    if (row == "unet3d_figures") {
      figures();
    } else if (row == "unet3d_halos") {
      halos(row);
    } else {
      against_two_threads(row);
    }
    return 0;
  });
}
