// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "draw.hpp"

#include <espalier/espalier.hpp>
#include <espalier/io.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>

// A small network learns digits from files: begun on one device, saved in the middle of an epoch, and taken up from
// there on one device and on 2 x 2, which draw the same batches.

namespace ep = espalier;

constexpr int batch = 100;
constexpr std::int64_t train_rows = 6000;
constexpr std::int64_t test_rows = 1000;
const std::filesystem::path folder = "digits_data";
const std::filesystem::path checkpoint = folder / "middle.safetensors";

using images = ep::f32<batch, digits::side * digits::side>;  // a picture's rows in one dimension
using labels = ep::i32<batch>;

template <class Leaf> struct parameters {
  BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f32<digits::side * digits::side, 96>>, up),
                           (ep::leaf<Leaf, ep::f32<96>>, bias), (ep::leaf<Leaf, ep::f32<96, 10>>, down));
};
template <class Leaf> using training_state = ep::nn::adamw<parameters>::state<Leaf>;

/// The state that a run needs to go on: the model's, and the place in the data.
template <class Leaf> struct run_state {
  BOOST_HANA_DEFINE_STRUCT(run_state, (training_state<Leaf>, model), (ep::io::place_leaves<Leaf>, place));
};

template <class Data, class Model> struct network {
  struct logits {
    constexpr auto operator()(const auto& p, auto x) const {
      auto hidden = ep::relu(ep::matmul(ep::shard<Data, ep::none>(x), p.up) + p.bias);
      return ep::matmul(ep::shard<Data, Model>(hidden), p.down);
    }
  };
  struct loss {
    constexpr auto operator()(const auto& p, auto x, auto y) const { return ep::nn::cross_entropy(logits{}(p, x), y); }
  };
  struct step {
    constexpr auto operator()(const auto& before, auto x, auto y, auto rate) const {
      const auto [value, gradient] = ep::value_and_grad(loss{})(before.parameters, x, y);
      return ep::results(ep::nn::adamw_step(before, gradient, rate), value);
    }
  };
  using mesh = ep::mesh<Data, Model>;
  using training = ep::program<mesh, step, ep::donated<training_state<ep::spec>>, images, labels, ep::f32<>>;
  using inference = ep::program<mesh, logits, parameters<ep::spec>, images>;

  explicit network(ep::world& world)
      : world_(world),
        train_(world),
        infer_(world),
        state(train_.template argument<0>()),
        batches(open(world, {.seed = 5, .rows = train_rows}, train_.template argument<1>(),
                     train_.template argument<2>())) {}

  static auto open(ep::world& world, const ep::io::dataset_options& rows, const ep::sharded_array<images>& x,
                   const ep::sharded_array<labels>& y) {
    return ep::io::dataset(world, rows, ep::io::column(x, ep::io::npy(folder / "images.npy").scaled(1 / 255.0)),
                           ep::io::column(y, ep::io::idx(folder / "labels.idx").within(0, 9)));
  }

  void start() {
    ep::nn::initialise(
        state.parameters, 1, [](const auto& path) { return ep::nn::initial_by_name(path, 0.08); },
        [](auto& array, const auto& value) {
          array.for_each(
              [&](float& e, std::int64_t i) { e = static_cast<float>(value(static_cast<std::uint64_t>(i))); });
        });
  }
  void train(int steps) {
    for (int n = 0; n < steps; ++n) {
      const auto& [x, y] = batches.next();  // while this step runs, a thread reads the next batch
      (void)train_(state, x, y, 0.002F);
    }
  }
  void save() const {
    ep::save_checkpoint(world_, run_state<ep::arrays>{state, ep::io::leaves_of(world_, batches.place())}, checkpoint);
  }
  void resume() {
    const run_state<ep::arrays> saved{state, ep::io::leaves_of(world_)};
    ep::load_checkpoint(world_, saved, checkpoint);
    batches.seek(ep::io::place_in(saved.place));
  }
  /// Returns how many of the rows that training does not see are recognised.
  [[nodiscard]] int right() {
    auto tests = open(world_, {.shuffle = false, .first_row = train_rows, .rows = test_rows},
                      infer_.template argument<1>(), train_.template argument<2>());
    int count = 0;
    for (std::int64_t n = 0; n < tests.batches(); ++n) {
      const auto& [x, y] = tests.next();
      const auto scores = ep::gather(world_, infer_(state.parameters, x));
      const auto truth = ep::gather(world_, y);
      for (std::size_t r = 0; r < batch; ++r) {
        const auto row = scores.begin() + static_cast<std::ptrdiff_t>(10 * r);
        count += std::max_element(row, row + 10) - row == truth[r];
      }
    }
    return count;
  }

 private:
  ep::world& world_;
  ep::runner<training> train_;
  ep::runner<inference> infer_;

 public:
  typename ep::runner<training>::template argument_type<0> state;
  ep::io::dataset<images, labels> batches;
};

struct data_1 : ep::axis<"data", 1> {};
struct model_1 : ep::axis<"model", 1> {};
struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using on_one = network<data_1, model_1>;
using on_four = network<data, model>;
static_assert(on_four::training::collectives<ep::all_gather>() == 0);

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, on_four::mesh{});  // mpirun -n 4: four ranks; without it: four threads
    int right_on_one = 0;
    ep::together(world, [&] {
      if (!world.is_root()) return;
      digits::write_files(folder, train_rows + test_rows);
      ep::world alone(on_one::mesh::value);
      on_one one(alone);
      one.start();
      one.train(190);  // three epochs of 60 batches, and 10 more
      one.save();
      one.train(600);
      right_on_one = one.right();
    });
    on_four four(world);
    four.resume();
    const ep::io::dataset_place place = four.batches.place();
    four.train(600);
    const int right_on_four = four.right();
    if (!world.is_root()) return 0;
    std::cout << four.batches.rows() << " rows, " << four.batches.batches() << " batches an epoch\n"
              << "2 x 2 devices went on at batch " << place.batch << " of epoch " << place.epoch << '\n';
    const auto enough = [](int right) { return right * 100 >= 95 * test_rows ? "at least" : "LESS THAN"; };
    std::cout << enough(right_on_one) << " 95 % of " << test_rows << " other digits are told right on one device\n"
              << enough(right_on_four) << " 95 % of " << test_rows << " other digits are told right on 2 x 2 devices\n";
    return 0;
  });
}
