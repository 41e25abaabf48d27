// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/core.hpp>
#include <espalier/nn.hpp>

#include <boost/hana/define_struct.hpp>

/// A mixture of experts (GShard, arXiv 2006.16668), written for one device: each token goes to two of the experts, and
/// an expert takes a fixed number of tokens from each text. Dimensions have the names of the GSPMD paper (arXiv
/// 2105.04663, section 5.4): batch B, sequence S, model M, experts E of capacity C with H hidden units.
namespace mixture {

namespace ep = espalier;

inline constexpr int B = 8;
inline constexpr int S = 16;
inline constexpr int M = 32;
inline constexpr int E = 8;
inline constexpr int H = 64;
/// Two places for each token, and a quarter more: an expert that is asked more often turns tokens away.
inline constexpr int C = 2 * S * 5 / 4 / E;

template <class Leaf> struct parameters {
  BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f32<M, M>>, dense), (ep::leaf<Leaf, ep::f32<M, E>>, gate),
                           (ep::leaf<Leaf, ep::f32<E, M, H>>, up), (ep::leaf<Leaf, ep::f32<E, H, M>>, down));
};
using activations = ep::f32<B, S, M>;

/// Which place of which expert each token takes, and the balance: `dispatch` [B, S, E, C] has a 1 at the places of a
/// token, `combine` the weights of the experts' answers there. A token that was turned away has no place. `balance` is
/// smallest, 1, when all experts are asked equally often.
/// @param odds [B, S, E], of each token the probability of each expert
constexpr auto route(const auto& odds) {
  using ep::dtype;
  const auto first = ep::argmax<-1>(odds);
  const auto is_first = ep::one_hot<E>(first);
  const auto second = ep::argmax<-1>(odds - 2 * is_first);
  const auto is_second = ep::one_hot<E>(second);
  const auto first_odds = ep::sum<-1>(odds * is_first);
  const auto second_odds = ep::sum<-1>(odds * is_second);
  const auto both = first_odds + second_odds;

  // Places in the order of the tokens, those that are a token's first choice before all others. A place of C or more
  // does not exist, and one_hot has no 1 for it.
  const auto before_first = ep::cumsum<1>(is_first) - is_first;
  const auto before_second = ep::cumsum<1>(is_second) - is_second + ep::sum<1>(is_first, ep::keep_dims);
  const auto place_of = [](auto before, auto chosen) {
    return ep::one_hot<C>(ep::convert<dtype::i32>(ep::sum<-1>(before * chosen)));
  };
  const auto first_place = ep::einsum<"bse,bsc->bsec">(is_first, place_of(before_first, is_first));
  const auto second_place = ep::einsum<"bse,bsc->bsec">(is_second, place_of(before_second, is_second));
  const auto combine = ep::einsum<"bs,bsec->bsec">(first_odds / both, first_place) +
                       ep::einsum<"bs,bsec->bsec">(second_odds / both, second_place);
  const auto balance = E * ep::sum(ep::mean<0, 1>(is_first) * ep::mean<0, 1>(odds));
  return ep::results(first_place + second_place, combine, balance);
}

/// The mean squared error of a dense layer and a mixture of experts after it, and a hundredth of the balance:
/// (parameters, x, target) -> loss. `Layout` places tensors; its functions are named after their dimensions.
template <class Layout> struct loss {
  constexpr auto operator()(const auto& p, const auto& x, const auto& target) const {
    const auto h = Layout::bsm(ep::relu(ep::einsum<"bsm,mn->bsn">(Layout::bsm(x), p.dense)));
    const auto [dispatch, combine, balance] = route(ep::softmax<-1>(ep::einsum<"bsm,me->bse">(h, p.gate)));
    const auto tokens = Layout::of_tokens(ep::einsum<"bsec,bsm->ebcm">(dispatch, h));
    const auto taken = Layout::to_experts(tokens);
    const auto hidden = Layout::ebch(ep::relu(ep::einsum<"ebcm,emh->ebch">(taken, Layout::emh(p.up))));
    const auto answers = Layout::of_experts(ep::einsum<"ebch,ehm->ebcm">(hidden, Layout::ehm(p.down)));
    const auto y = h + ep::einsum<"bsec,ebcm->bsm">(combine, Layout::to_tokens(answers));
    const auto difference = Layout::bsm(y) - target;
    return ep::mean(difference * difference) + 0.01 * balance;
  }
};

/// A step of gradient descent: (parameters, x, target) -> (next parameters, loss before the step).
template <class Layout> struct train_step {
  constexpr auto operator()(const auto& p, const auto& x, const auto& target) const {
    const auto [value, gradient] = ep::value_and_grad(loss<Layout>{})(p, x, target);
    return ep::results(ep::tree_zip([](auto w, auto g) { return w - g; }, p, gradient), value);
  }
};
template <class Mesh, class Layout>
using training = ep::program<Mesh, train_step<Layout>, ep::donated<parameters<ep::spec>>, activations, activations>;

}  // namespace mixture
