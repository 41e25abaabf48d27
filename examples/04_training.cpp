// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// A transformer of one block that learns to count: trained, saved, loaded, and trained on as if nothing had happened.

#include <espalier/espalier.hpp>
#include <espalier/io.hpp>

#include <iostream>
#include <string>

namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using mesh = ep::mesh<data, model>;

template <class Leaf> struct norm { BOOST_HANA_DEFINE_STRUCT(norm, (ep::leaf<Leaf, ep::f32<32>>, gain)); };
template <class Leaf> struct block {
  BOOST_HANA_DEFINE_STRUCT(block, (norm<Leaf>, first_norm), (norm<Leaf>, second_norm),
                           (ep::leaf<Leaf, ep::f32<32, 4, 8>>, query), (ep::leaf<Leaf, ep::f32<32, 4, 8>>, key),
                           (ep::leaf<Leaf, ep::f32<32, 4, 8>>, value), (ep::leaf<Leaf, ep::f32<4, 8, 32>>, output),
                           (ep::leaf<Leaf, ep::f32<32, 64>>, up), (ep::leaf<Leaf, ep::f32<64, 32>>, down));
};
template <class Leaf> struct parameters {
  BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f32<16, 32>>, token),
                           (ep::leaf<Leaf, ep::f32<12, 32>>, position), (block<Leaf>, layer),
                           (ep::leaf<Leaf, ep::f32<32, 16>>, head));
};
// Parameters, AdamW's two moments of each, and the number of steps: all that a checkpoint needs.
template <class Leaf> using training_state = ep::nn::adamw<parameters>::state<Leaf>;

struct loss_of {
  constexpr auto operator()(const auto& p, auto tokens, auto targets) const {
    auto x = ep::gather<0>(p.token, tokens) + p.position;  // f32[16@data, 12, 32]
    auto h = ep::nn::rms_norm(x, p.layer.first_norm.gain);
    auto q = ep::einsum<"bsw,whd->bshd">(h, p.layer.query);  // f32[16@data, 12, 4@model, 8]
    q = ep::shard<data, ep::none, model, ep::none>(q);       // the heads are spread over `model`
    const auto k = ep::einsum<"bsw,whd->bshd">(h, p.layer.key);
    const auto v = ep::einsum<"bsw,whd->bshd">(h, p.layer.value);
    x = x + ep::einsum<"bshd,hdw->bsw">(ep::nn::causal_attention(q, k, v), p.layer.output);
    h = ep::nn::rms_norm(x, p.layer.second_norm.gain);
    auto hidden = ep::gelu(ep::einsum<"bsw,wh->bsh">(h, p.layer.up));
    hidden = ep::shard<data, ep::none, model>(hidden);  // and so are the hidden units
    x = x + ep::einsum<"bsh,hw->bsw">(hidden, p.layer.down);
    return ep::nn::cross_entropy(ep::einsum<"bsw,wv->bsv">(x, p.head), targets);
  }
};

struct training_step {
  constexpr auto operator()(const auto& state, auto tokens, auto targets, auto rate) const {
    const auto [loss, gradient] = ep::value_and_grad(loss_of{})(state.parameters, tokens, targets);
    return ep::results(ep::nn::adamw_step(state, gradient, rate), loss);
  }
};

// Donated: the new state takes the memory of the old one.
using step = ep::program<mesh, training_step, ep::donated<training_state<ep::spec>>, ep::i32<16, 12>, ep::i32<16, 12>,
                         ep::f32<>>;
static_assert(step::collectives<ep::all_reduce, model>() == 4);  // two forward, two backward
static_assert(step::collectives<ep::all_reduce, data>() == 1);   // all gradients in one
static_assert(step::collectives() == 5);                         // and nothing else moves

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});
    ep::runner<step> run(world);
    auto state = run.argument<0>();
    auto tokens = run.argument<1>();
    auto targets = run.argument<2>();
    auto rate = run.argument<3>();
    // Row r counts upwards from r by 1, 2 or 3, modulo 16. Each device fills the rows it has.
    const auto count = [](std::int64_t ahead) {
      return [ahead](std::int32_t& token, std::int64_t i) {
        const std::int64_t row = i / 12;
        token = static_cast<std::int32_t>((row + (i % 12 + ahead) * (1 + row % 3)) % 16);
      };
    };
    tokens.for_each(count(0));
    targets.for_each(count(1));
    rate.for_each([](float& element, std::int64_t) { element = 0.01F; });
    // An element's first value depends on its place in the whole tensor, not on the device that has it.
    const auto start = [&](auto& tree) {
      ep::nn::initialise(
          tree.parameters, 1, [](const auto& path) { return ep::nn::initial_by_name(path, 0.1); },
          [](auto& array, const auto& value) {
            array.for_each([&](float& element, std::int64_t i) {
              element = static_cast<float>(value(static_cast<std::uint64_t>(i)));
            });
          });
    };
    const auto train = [&](auto& tree, int steps) {
      float loss = 0;
      for (int n = 0; n < steps; ++n) loss = ep::gather(world, run(tree, tokens, targets, rate).template get<1>())[0];
      return loss;
    };

    start(state);
    const float first = train(state, 1);
    train(state, 49);
    ep::save_checkpoint(world, state, "04_training.safetensors", {{"made by", "examples/04_training.cpp"}});
    const float last = train(state, 50);

    auto loaded = run.argument<0>();
    ep::load_checkpoint(world, loaded, "04_training.safetensors");
    const float again = train(loaded, 50);

    if (!world.is_root()) return 0;
    ep::explain<step>(std::cout, ep::collectives_only);
    std::cout << "the loss of step 1 is that of guessing among 16: " << (first > 2.7F && first < 2.9F ? "yes" : "NO")
              << "\nafter 100 steps it is a twentieth of that: " << (last < first / 20 ? "yes" : "NO")
              << "\nfrom the checkpoint on it is the same, to the last bit: " << (again == last ? "yes" : "NO") << '\n';
    return last < first / 20 && again == last ? 0 : 1;
  });
}
