// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../gpt/model.hpp"

#include <espalier/core.hpp>
#include <espalier/nn.hpp>

/// Layouts of examples/gpt that people would write, to compare with what a search finds.
namespace search {

namespace ep = espalier;
using ep::none;
using ep::shard;
using here = ep::source_line;

struct x : ep::axis<"x", 2> {};
struct y : ep::axis<"y", 4> {};
using mesh = ep::mesh<x, y>;

/// The model of examples/gpt with its usual sizes.
struct model : gpt::config<128, 192, 6, 4, 96, 8> {};

/// No annotation at all.
struct unannotated : gpt::megatron<> {
  static constexpr auto placed(const auto& parameters) { return parameters; }
};
/// The rows of the batch over all devices.
struct data_parallel : unannotated {
  static constexpr auto residual(const auto& v, here at = here::current()) {
    return shard<ep::axes<x, y>, none, none>(v, at);
  }
  static constexpr auto logits(const auto& v, here at = here::current()) { return residual(v, at); }
};
/// Heads, hidden units and vocabulary over all devices.
struct model_parallel : unannotated {
  using all = ep::axes<x, y>;
  static constexpr auto residual(const auto& v, here at = here::current()) { return shard<none, none, none>(v, at); }
  static constexpr auto heads(const auto& v, here at = here::current()) { return shard<none, none, all, none>(v, at); }
  static constexpr auto hidden(const auto& v, here at = here::current()) { return shard<none, none, all>(v, at); }
  static constexpr auto logits(const auto& v, here at = here::current()) { return shard<none, none, all>(v, at); }
  static constexpr auto embedding(const auto& v, here at = here::current()) { return shard<all, none>(v, at); }
};
/// Megatron's: the batch over one axis, heads, hidden units and vocabulary over the other.
template <class Data, class Model> struct megatron : gpt::megatron<Data, Model> {
  static constexpr auto placed(const auto& parameters) { return parameters; }
};

/// The weights of the GSPMD paper's layouts in two dimensions (arXiv 2105.04663, Table 1), a layer's in a stack.
struct two_dimensions : unannotated {
  static constexpr auto placed(const auto& parameters) {
    auto p = parameters;
    const auto to_heads = [](const auto& weight) { return shard<none, x, y, none>(weight); };
    p.blocks.query.weight = to_heads(p.blocks.query.weight);
    p.blocks.key.weight = to_heads(p.blocks.key.weight);
    p.blocks.value.weight = to_heads(p.blocks.value.weight);
    p.blocks.output.weight = shard<none, y, none, x>(p.blocks.output.weight);
    p.blocks.up.weight = shard<none, x, y>(p.blocks.up.weight);
    p.blocks.down.weight = shard<none, y, x>(p.blocks.down.weight);
    p.head = shard<x, y>(p.head);
    return p;
  }
  static constexpr auto embedding(const auto& v, here at = here::current()) { return shard<y, x>(v, at); }
};
struct attempt_1 : two_dimensions {
  static constexpr auto residual(const auto& v, here at = here::current()) { return shard<none, none, x>(v, at); }
  static constexpr auto heads(const auto& v, here at = here::current()) { return shard<none, none, y, none>(v, at); }
  static constexpr auto hidden(const auto& v, here at = here::current()) { return shard<none, none, y>(v, at); }
  static constexpr auto logits(const auto& v, here at = here::current()) { return shard<none, none, y>(v, at); }
};
struct attempt_2 : two_dimensions {
  static constexpr auto residual(const auto& v, here at = here::current()) { return shard<x, none, none>(v, at); }
  static constexpr auto heads(const auto& v, here at = here::current()) { return shard<x, none, y, none>(v, at); }
  static constexpr auto hidden(const auto& v, here at = here::current()) { return shard<x, none, y>(v, at); }
  static constexpr auto logits(const auto& v, here at = here::current()) { return shard<x, none, y>(v, at); }
};
struct finalized : attempt_2 {
  static constexpr auto residual(const auto& v, here at = here::current()) { return shard<x, none, y>(v, at); }
};

/// As `gpt::train_step`, with the parameters placed as the layout says.
template <class Layout> struct train_step {
  constexpr auto operator()(const auto& state, const auto& tokens, const auto& targets, const auto& rate) const {
    const auto loss = [](const auto& parameters, const auto& text, const auto& next) {
      return gpt::loss<model, Layout>{}(Layout::placed(parameters), text, next);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(state.parameters, tokens, targets);
    return ep::results(ep::nn::adamw_step(state, gradient, rate, model::optimizer), value);
  }
};
template <class Layout>
using step = ep::program<mesh, train_step<Layout>, ep::donated<gpt::state<model, ep::spec>>, model::tokens,
                         model::tokens, model::rate>;

}  // namespace search
