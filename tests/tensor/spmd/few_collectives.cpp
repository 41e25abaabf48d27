// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

// Training steps as they are written first, parameter by parameter, in an order that says nothing about communication.

#include <espalier/nn/training.hpp>
#include <espalier/tensor/core/nn/nn.hpp>
#include <espalier/tensor/core/program/program.hpp>

#include <boost/hana/define_struct.hpp>
#include <catch2/catch.hpp>
#include <support/run_program.hpp>

namespace ep = espalier;

namespace {

template <class Leaf> struct line {
  BOOST_HANA_DEFINE_STRUCT(line, (ep::leaf<Leaf, ep::f64<6>>, w), (ep::leaf<Leaf, ep::f64<>>, b));
};
struct logistic_loss {
  constexpr auto operator()(const auto& p, const auto& x, const auto& y) const {
    const auto z = ep::einsum<"nd,d->n">(x, p.w) + p.b;
    return ep::mean(ep::log(1.0 + ep::exp(z)) - y * z);
  }
};
struct logistic_step {
  constexpr auto operator()(const auto& p, const auto& x, const auto& y) const {
    const auto [loss, gradient] = ep::value_and_grad(logistic_loss{})(p, x, y);
    auto next = p;
    next.w = p.w - 0.1 * gradient.w;
    next.b = p.b - 0.1 * gradient.b;
    return ep::results(next, loss);
  }
};

template <class Leaf> struct mlp {
  BOOST_HANA_DEFINE_STRUCT(mlp, (ep::leaf<Leaf, ep::f64<6, 8>>, w1), (ep::leaf<Leaf, ep::f64<8>>, b1),
                           (ep::leaf<Leaf, ep::f64<8, 4>>, w2), (ep::leaf<Leaf, ep::f64<4>>, b2),
                           (ep::leaf<Leaf, ep::f64<4, 2>>, w3), (ep::leaf<Leaf, ep::f64<2>>, b3));
};
template <class Data, class Model> struct mlp_step {
  struct loss {
    constexpr auto operator()(const auto& p, const auto& x, const auto& y) const {
      const auto one = ep::shard<Data, Model>(ep::tanh(ep::matmul(x, p.w1) + p.b1));
      const auto two = ep::tanh(ep::matmul(one, p.w2) + p.b2);
      const auto difference = ep::matmul(two, p.w3) + p.b3 - y;
      return ep::mean(difference * difference);
    }
  };
  constexpr auto operator()(const auto& p, const auto& x, const auto& y) const {
    const auto [value, gradient] = ep::value_and_grad(loss{})(p, x, y);
    auto next = p;
    next.w1 = p.w1 - 0.1 * gradient.w1;
    next.b1 = p.b1 - 0.1 * gradient.b1;
    next.w2 = p.w2 - 0.1 * gradient.w2;
    next.b2 = p.b2 - 0.1 * gradient.b2;
    next.w3 = p.w3 - 0.1 * gradient.w3;
    next.b3 = p.b3 - 0.1 * gradient.b3;
    return ep::results(next, value);
  }
};

/// One step of k-means: the centre of the points nearest to each centre.
struct kmeans_step {
  constexpr auto operator()(const auto& x, const auto& centres) const {
    const auto distance = ep::sum<1>(centres * centres) - 2.0 * ep::einsum<"nd,kd->nk">(x, centres);
    const auto member = ep::convert<ep::dtype::f64>(distance <= ep::min<1>(distance, ep::keep_dims));
    const auto count = ep::sum<0>(member);
    return ep::einsum<"nk,nd->kd">(member, x) / ep::reshape<4, 1>(ep::maximum(count, 1.0));
  }
};

/// Rows whose columns are split, brought to mean 0 and variance 1.
struct normalised_rows {
  constexpr auto operator()(const auto& x) const {
    const auto centred = x - ep::mean<1>(x, ep::keep_dims);
    return centred * ep::rsqrt(ep::mean<1>(centred * centred, ep::keep_dims) + 1e-5);
  }
};

/// Two models, trained one after the other.
struct two_steps {
  constexpr auto operator()(const auto& p, const auto& q, const auto& x, const auto& y) const {
    const auto first = logistic_step{}(p, x, y);
    const auto second = logistic_step{}(q, x * x, y);
    return ep::results(first.template get<0>(), second.template get<0>());
  }
};

/// The weights of a recurrent network's three gates are one tensor, sliced in the body.
template <int Hidden> struct gru {
  template <class Leaf> struct cell {
    BOOST_HANA_DEFINE_STRUCT(cell, (ep::leaf<Leaf, ep::f64<3 * Hidden, Hidden>>, w));
  };
  struct loss {
    constexpr auto operator()(const auto& p, const auto& h, const auto& x, const auto& y) const {
      const auto body = [&](const auto& state, const auto& input) {
        const auto product = [&](auto gate, const auto& by) {
          constexpr int start = decltype(gate)::value * Hidden;
          return ep::slice<1, start, start + Hidden>(input) +
                 ep::einsum<"bi,hi->bh">(by, ep::slice<0, start, start + Hidden>(p.w));
        };
        const auto reset = ep::sigmoid(product(std::integral_constant<int, 0>{}, state));
        const auto update = ep::sigmoid(product(std::integral_constant<int, 1>{}, state));
        const auto made = ep::tanh(product(std::integral_constant<int, 2>{}, reset * state));
        return (1.0 - update) * made + update * state;
      };
      const auto difference = ep::scan(body, h, x) - y;
      return ep::mean(difference * difference);
    }
  };
  struct gradient {
    constexpr auto operator()(const auto& p, const auto& h, const auto& x, const auto& y) const {
      const auto [value, by_w] = ep::value_and_grad(loss{})(p, h, x, y);
      return ep::results(by_w, value);
    }
  };
  template <class Data, int Steps>
  using program = ep::program<ep::mesh<Data>, gradient, cell<ep::spec>, ep::sharded<ep::f64<8, Hidden>, Data, ep::none>,
                              ep::sharded<ep::f64<Steps, 8, 3 * Hidden>, ep::none, Data, ep::none>, ep::f64<8, Hidden>>;
};

/// A layer of attention that is added to what it reads, without a norm before it: its gradient is a sum of four terms,
/// three of which are partials over the heads.
template <class Data, class Model> struct attention_gradient {
  struct loss {
    constexpr auto operator()(auto x, const auto& wq, const auto& wk, const auto& wv, const auto& wo) const {
      x = ep::shard<Data, ep::none, ep::none>(x);
      const auto q = ep::shard<Data, ep::none, Model, ep::none>(ep::einsum<"bsm,mnd->bsnd">(x, wq));
      const auto k = ep::einsum<"bsm,mnd->bsnd">(x, wk);
      const auto v = ep::einsum<"bsm,mnd->bsnd">(x, wv);
      const auto y = x + ep::einsum<"bsnd,ndm->bsm">(ep::nn::causal_attention(q, k, v), wo);
      return ep::sum(y * y);
    }
  };
  constexpr auto operator()(const auto& x, const auto& wq, const auto& wk, const auto& wv, const auto& wo) const {
    const auto made = ep::value_and_grad<0>(loss{})(x, wq, wk, wv, wo);
    return ep::results(made.value, made.gradient);
  }
};

template <class Leaf> struct weights {
  BOOST_HANA_DEFINE_STRUCT(weights, (ep::leaf<Leaf, ep::f32<16, 32>>, up), (ep::leaf<Leaf, ep::f32<32, 16>>, down));
};
/// Layers in a loop whose weights are f32 and whose products are of `Type`.
template <class Data, class Model, ep::dtype Type> struct mixed_layers {
  struct layer {
    constexpr auto operator()(const auto& x, const auto& p) const {
      const auto low = [](const auto& one) { return ep::convert<Type>(one); };
      const auto wide = ep::shard<Data, Model>(ep::gelu(ep::einsum<"bw,wh->bh">(low(x), low(p.up))));
      return x + ep::convert<ep::dtype::f32>(ep::einsum<"bh,hw->bw">(wide, low(p.down)));
    }
  };
  struct loss {
    constexpr auto operator()(const auto& p, const auto& x) const {
      const auto y = ep::scan(layer{}, ep::shard<Data, ep::none>(x), p);
      return ep::mean(y * y);
    }
  };
  constexpr auto operator()(const auto& p, const auto& x) const {
    const auto [value, gradient] = ep::value_and_grad(loss{})(p, x);
    return ep::results(gradient, value);
  }
};

/// Batch norm by hand: the variance from the moments of x, or of x less its mean.
template <class Data, bool Moments> struct batch_norm_gradient {
  struct loss {
    constexpr auto operator()(auto x, const auto& gain, const auto& bias) const {
      x = ep::shard<Data, ep::none>(x);
      const auto mean = ep::mean<0>(x);
      const auto centred = x - mean;
      const auto normalised = [&](const auto& variance) { return centred * ep::rsqrt(variance + 1e-5) * gain + bias; };
      if constexpr (Moments) {
        return ep::sum(ep::tanh(normalised(ep::mean<0>(x * x) - mean * mean)));
      } else {
        return ep::sum(ep::tanh(normalised(ep::mean<0>(centred * centred))));
      }
    }
  };
  constexpr auto operator()(const auto& x, const auto& gain, const auto& bias) const {
    const auto made = ep::value_and_grad<0, 1, 2>(loss{})(x, gain, bias);
    return ep::results(made.value, made.gradient);
  }
};

template <class Leaf> struct two_layers {
  BOOST_HANA_DEFINE_STRUCT(two_layers, (ep::leaf<Leaf, ep::f32<16, 12>>, up), (ep::leaf<Leaf, ep::f32<12, 16>>, down));
};
enum class norm_of { nothing, gradient, clipped, scattered };
/// A step of AdamW whose state is split over the devices of `Data`, and what is done with the gradient before.
template <class Data, norm_of Norm> struct split_step {
  using place = ep::nn::split_state<Data, 12>;
  struct loss {
    constexpr auto operator()(const auto& p, const auto& x) const {
      const auto y = ep::matmul(ep::tanh(ep::matmul(ep::shard<Data, ep::none>(x), p.up)), p.down);
      return ep::mean(y * y);
    }
  };
  constexpr auto operator()(const auto& state, const auto& x, const auto& rate) const {
    auto [value, gradient] = ep::value_and_grad(loss{})(state.parameters, x);
    if constexpr (Norm == norm_of::scattered) gradient = ep::nn::scattered(gradient, place{});
    const auto square = ep::sum(gradient.up * gradient.up) + ep::sum(gradient.down * gradient.down);
    if constexpr (Norm == norm_of::clipped || Norm == norm_of::scattered) {
      const auto factor = ep::minimum(1 / (ep::sqrt(square) + 1e-6), 1);
      gradient.up *= factor;
      gradient.down *= factor;
    }
    // (The arguments have either sign, and a second moment does not.)
    auto before = state;
    before.second_moment.up *= before.second_moment.up;
    before.second_moment.down *= before.second_moment.down;
    const auto next = ep::nn::adamw_step(before, gradient, rate, {}, place{});
    if constexpr (Norm == norm_of::nothing) {
      return ep::results(next, value);
    } else {
      return ep::results(next, value, square);
    }
  }
};

template <int Data, int Model> struct on {
  struct data : ep::axis<"data", Data> {};
  struct model : ep::axis<"model", Model> {};
  using points = ep::sharded<ep::f64<8, 6>, data, ep::none>;
  using answers = ep::sharded<ep::f64<8>, data>;
  using logistic = ep::program<ep::mesh<data>, logistic_step, ep::donated<line<ep::spec>>, points, answers>;
  using both =
      ep::program<ep::mesh<data>, two_steps, ep::donated<line<ep::spec>>, ep::donated<line<ep::spec>>, points, answers>;
  using layers = ep::program<ep::mesh<data, model>, mlp_step<data, model>, ep::donated<mlp<ep::spec>>, points,
                             ep::sharded<ep::f64<8, 2>, data, ep::none>>;
  using kmeans = ep::program<ep::mesh<data>, kmeans_step, points, ep::f64<4, 6>>;
  using rows = ep::program<ep::mesh<data, model>, normalised_rows, ep::sharded<ep::f64<8, 32>, data, model>>;
  using heads = ep::sharded<ep::f32<16, 4, 4>, ep::none, model, ep::none>;
  using attention = ep::program<ep::mesh<data, model>, attention_gradient<data, model>,
                                ep::sharded<ep::f32<8, 4, 16>, data, ep::none, ep::none>, heads, heads, heads,
                                ep::sharded<ep::f32<4, 4, 16>, model, ep::none, ep::none>>;
  template <ep::dtype Type>
  using mixed = ep::program<ep::mesh<data, model>, mixed_layers<data, model, Type>, weights<ep::stacked<ep::spec, 3>>,
                            ep::f32<8, 16>>;
  template <bool Moments>
  using batch_norm =
      ep::program<ep::mesh<data>, batch_norm_gradient<data, Moments>, ep::f64<16, 8>, ep::f64<8>, ep::f64<8>>;
  template <norm_of Norm>
  using split_training =
      ep::program<ep::mesh<data>, split_step<data, Norm>, ep::donated<ep::nn::adamw<two_layers>::state<ep::spec>>,
                  ep::f32<8, 16>, ep::f32<>>;
  template <int Hidden, int Steps> using recurrent = typename gru<Hidden>::template program<data, Steps>;
};
using apart = on<2, 2>;

/// The only collectives are this many all_reduces.
template <class Program> constexpr bool reduces(int times) {
  return Program::template collectives<ep::all_reduce>() == times && Program::collectives() == times;
}
static_assert(reduces<apart::logistic>(1), "two gradients and the loss");
static_assert(reduces<apart::both>(1), "the first update waits for the second model");
static_assert(reduces<apart::layers>(2), "the second layer's sum over `model`; all gradients and the loss");
static_assert(reduces<apart::kmeans>(1), "sums and counts");
static_assert(reduces<apart::rows>(2) && apart::rows::bytes<ep::all_reduce>() == 2 * 4 * 8,
              "a mean of each row is summed before it is spread over the row's columns");
static_assert(reduces<apart::recurrent<4, 5>>(1), "the gradient and the loss");
static_assert(reduces<apart::recurrent<64, 5>>(2), "a gradient too large to travel with the loss");

// A sum over `model` of f32[4, 4, 16] forward, one backward, and one number over `data`: a device of two sends as many
// bytes as it has.
static_assert(reduces<apart::attention>(3) && apart::attention::bytes<ep::all_reduce>() == 2 * 4 * 4 * 16 * 4 + 4);
// Two sums over `model` in each of three iterations, which cannot wait, and all gradients and the loss behind the loop:
// the gradients of bf16 products are terms in f32, and f32 is what they become.
template <ep::dtype Type> constexpr std::int64_t mixed_bytes = apart::mixed<Type>::template bytes<ep::all_reduce>();
static_assert(reduces<apart::mixed<ep::dtype::f32>>(7) && reduces<apart::mixed<ep::dtype::bf16>>(7));
static_assert(mixed_bytes<ep::dtype::f32> == 6 * 4 * 16 * 4 + 2 * 3 * 16 * 16 * 4 + 4);
static_assert(mixed_bytes<ep::dtype::bf16> == mixed_bytes<ep::dtype::f32>);

// Sums that do not wait for one another are one all_reduce: both moments; then the sums of the gradient, five rows and
// the loss. Less its mean, x is known after the first sum, and the gradient of its variance before that of its mean:
// four, each of which waits for the one before, and the same six rows of 64 B and number of 8 B in all.
static_assert(reduces<apart::batch_norm<true>>(2) && reduces<apart::batch_norm<false>>(4));
static_assert(apart::batch_norm<true>::bytes<ep::all_reduce>() == 6 * 64 + 8);
static_assert(apart::batch_norm<false>::bytes<ep::all_reduce>() == 6 * 64 + 8);

// ZeRO: of each of two gradients of 768 B, and of its update, a device of four sends three quarters. Of each number
// that is summed it sends its term, or, if it is the one that adds them up, the sum to three others.
template <norm_of Norm> constexpr bool is_scattered(std::int64_t numbers) {
  using step = on<4, 1>::split_training<Norm>;
  return step::template bytes<ep::reduce_scatter>() == 2 * 576 && step::template bytes<ep::all_gather>() == 2 * 576 &&
         step::template bytes<ep::all_reduce>() == 3 * 4 + (numbers - 1) * 4 && step::collectives() == 3;
}
static_assert(is_scattered<norm_of::nothing>(1), "the loss");
static_assert(is_scattered<norm_of::gradient>(2), "a norm of the gradient is a sum over its shards");
static_assert(is_scattered<norm_of::clipped>(2), "and so is one by which it is scaled");
static_assert(is_scattered<norm_of::scattered>(2), "as by hand");

// Each iteration keeps activations only. (What is kept of the weights: their slices, and sums of the slices'
// gradients.)
template <int Steps> using long_run = apart::recurrent<64, Steps>;
constexpr std::int64_t weight_bytes = 3LL * 64 * 64 * 8;
constexpr std::int64_t state_bytes = 4LL * 64 * 8;
static_assert(long_run<16>::arena_bytes() - long_run<8>::arena_bytes() <= 8 * 8 * state_bytes);
static_assert(long_run<16>::arena_bytes() < 3 * weight_bytes + 16 * 8 * state_bytes);

// --- sums that a loop adds up ---------------------------------------------------------------------------------------

struct squared_error {
  constexpr auto operator()(const auto& w, const auto& x, const auto& y) const {
    const auto difference = ep::tanh(ep::matmul(x, w)) - y;
    return ep::sum(difference * difference);
  }
};
/// Gradients of micro-batches, in a carry that begins with what the caller has added up so far.
struct accumulate {
  constexpr auto operator()(const auto& before, const auto& w, const auto& xs, const auto& ys) const {
    const auto body = [&](const auto& sum, const auto& batch) {
      return sum + ep::grad(squared_error{})(w, batch.template get<0>(), batch.template get<1>());
    };
    return ep::scan(body, before, ep::results(xs, ys));
  }
};
/// The same with a parameter and an accumulator that are split, as in ZeRO.
template <class Data> struct accumulate_split {
  constexpr auto operator()(const auto& w, const auto& xs, const auto& ys) const {
    const auto body = [&](const auto& sum, const auto& batch) {
      const auto gradient = ep::grad(squared_error{})(w, batch.template get<0>(), batch.template get<1>());
      return sum + ep::reshard<Data, ep::none>(gradient);
    };
    const auto start = ep::shard<Data, ep::none>(ep::constant<ep::f32<8, 6>>(w, 0.5));
    return w - 0.1 * ep::scan(body, start, ep::results(xs, ys));
  }
};
/// As `accumulate`, but the user lays out what is added up; or the loop asks for the norm of the sum so far.
struct accumulate_fixed {
  constexpr auto operator()(const auto& w, const auto& xs, const auto& ys) const {
    const auto body = [&](const auto& sum, const auto& batch) {
      const auto next = sum + ep::grad(squared_error{})(w, batch.template get<0>(), batch.template get<1>());
      return ep::shard<ep::none, ep::none>(next);
    };
    return ep::scan(body, 0.0 * w, ep::results(xs, ys));
  }
};
template <class Data> struct accumulate_kept_split {
  constexpr auto operator()(const auto& w, const auto& xs, const auto& ys) const {
    const auto body = [&](const auto& sum, const auto& batch) {
      const auto gradient = ep::grad(squared_error{})(w, batch.template get<0>(), batch.template get<1>());
      return ep::shard<Data, ep::none>(sum + gradient);
    };
    return ep::scan(body, 0.0 * w, ep::results(xs, ys));
  }
};
struct accumulate_clipped {
  constexpr auto operator()(const auto& w, const auto& xs, const auto& ys) const {
    const auto body = [&](const auto& sum, const auto& batch) {
      const auto next = sum + ep::grad(squared_error{})(w, batch.template get<0>(), batch.template get<1>());
      return next / ep::maximum(1.0, ep::sqrt(ep::sum(next * next)));
    };
    return ep::scan(body, 0.0 * w, ep::results(xs, ys));
  }
};
/// Counts, sums and the largest and the least of all rows; the inner loop goes on with the sum of the outer one.
struct statistics {
  constexpr auto operator()(const auto& xs) const {
    const auto rows = [](const auto& carry, const auto& x) {
      const auto& [sum, square, most, least, count] = carry;
      const auto one = ep::convert<ep::dtype::i32>(ep::sum<1>(x) > 0.0);
      return ep::results(sum + ep::sum<0>(x), square + ep::sum(x * x), ep::maximum(most, ep::max<0>(x)),
                         ep::minimum(ep::min<0>(x), least), count + ep::sum(one));
    };
    const auto start =
        ep::results(ep::constant<ep::f32<3>>(xs, 0), ep::constant<ep::f32<>>(xs, 2), ep::constant<ep::f32<3>>(xs, -9),
                    ep::constant<ep::f32<3>>(xs, 9), ep::constant<ep::i32<>>(xs, 7));
    const auto all = [&](const auto& carry, const auto& x) { return ep::scan(rows, carry, x); };
    return ep::scan(all, start, xs);
  }
};
/// A loss that is summed over a loop, and its gradient; the body is computed again for that.
struct summed_loss {
  constexpr auto operator()(const auto& w, const auto& xs, const auto& ys) const {
    const auto loss = [](const auto& p, const auto& x, const auto& y) {
      const auto body = [&](const auto& sum, const auto& batch) {
        return sum + squared_error{}(p, batch.template get<0>(), batch.template get<1>());
      };
      return ep::log(ep::scan(body, ep::constant<ep::f32<>>(p, 1), ep::results(x, y), ep::recompute));
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(w, xs, ys);
    return ep::results(value, gradient);
  }
};

/// @tparam Rows of a micro-batch: 16 on four devices are 4 each, 10 are 3, 3, 3, 1
template <int Data, int Rows> struct in_loops {
  struct data : ep::axis<"data", Data> {};
  using mesh = ep::mesh<data>;
  using w = ep::f32<8, 6>;
  using xs = ep::sharded<ep::f32<5, Rows, 8>, ep::none, data, ep::none>;
  using ys = ep::f32<5, Rows, 6>;
  using sums = ep::program<mesh, accumulate, ep::donated<w>, w, xs, ys>;
  using split = ep::program<mesh, accumulate_split<data>, w, xs, ys>;
  using fixed = ep::program<mesh, accumulate_fixed, w, xs, ys>;
  using kept_split = ep::program<mesh, accumulate_kept_split<data>, w, xs, ys>;
  using clipped = ep::program<mesh, accumulate_clipped, w, xs, ys>;
  using counts = ep::program<mesh, statistics, ep::sharded<ep::f32<4, 3, Rows, 3>, ep::none, ep::none, data, ep::none>>;
  using loss = ep::program<mesh, summed_loss, w, xs, ys>;
  using narrow = ep::program<mesh, accumulate, ep::bf16<8, 6>, ep::bf16<8, 6>,
                             ep::sharded<ep::bf16<5, Rows, 8>, ep::none, data, ep::none>, ep::bf16<5, Rows, 6>>;
};
using four = in_loops<4, 16>;
using uneven = in_loops<4, 10>;

// An all_reduce of n bytes over four devices sends 2 n 3 / 4, a reduce_scatter half of that, and so does an all_gather
// to n bytes. Here n is 8 x 6 x 4 = 192.
template <class Program, class Kind> constexpr bool moves(int times, std::int64_t bytes) {
  return Program::template collectives<Kind>() == times && Program::template bytes<Kind>() == bytes;
}
static_assert(reduces<four::sums>(1) && moves<four::sums, ep::all_reduce>(1, 288));
static_assert(reduces<uneven::sums>(1) && moves<uneven::sums, ep::all_reduce>(1, 288));
static_assert(moves<four::split, ep::reduce_scatter>(1, 144) && moves<four::split, ep::all_gather>(1, 144) &&
              four::split::collectives() == 2);
static_assert(reduces<four::narrow>(1) && moves<four::narrow, ep::all_reduce>(1, 288), "in f32, as before");
static_assert(moves<four::fixed, ep::all_reduce>(5, 5 * 288), "as the user says");
static_assert(moves<four::kept_split, ep::reduce_scatter>(5, 5 * 144), "as the user says, in less memory");
static_assert(moves<four::clipped, ep::all_reduce>(5, 5 * 288), "the norm of the sum needs the sum");
// The sum of rows with that of squares; the count; the largest; the least. (Not each of them in twelve iterations.)
static_assert(reduces<four::counts>(4));
static_assert(reduces<four::loss>(2), "the loss, of which the gradient is computed; the gradient");

// --- rows that one device has ---------------------------------------------------------------------------------------

struct computed_row {
  constexpr auto operator()(const auto& a, const auto& index) const { return ep::dynamic_slice<0, 1>(a, index); }
};
struct looked_up_row {
  constexpr auto operator()(const auto& a, const auto& index) const { return ep::take<0>(a, index) * 2.0; }
};
struct last_row {
  constexpr auto operator()(const auto& a) const { return ep::shard<ep::none>(ep::take<0, -1>(a)); }
};
/// Layers that are split over devices, one after the other; a layer's gain travels with its weights.
struct layers_apart {
  constexpr auto operator()(const auto& w, const auto& x) const {
    return ep::scan([](const auto& h, const auto& one) { return ep::tanh(ep::matmul(h, one)); }, x, w);
  }
};
struct layers_with_gain {
  constexpr auto operator()(const auto& w, const auto& gain, const auto& x) const {
    const auto loss = [&](const auto& all) {
      const auto body = [](const auto& h, const auto& one) {
        return h + ep::tanh(ep::matmul(h, one.template get<0>())) * one.template get<1>();
      };
      const auto y = ep::scan(body, x, all, ep::recompute);
      return ep::sum(y * y);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(w, gain));
    return ep::results(value, gradient);
  }
};
/// @tparam Rows 8 on four devices are 2 each, 10 are 3, 3, 3, 1
template <int Devices, int Rows> struct rows_on {
  struct data : ep::axis<"data", Devices> {};
  using mesh = ep::mesh<data>;
  using table = ep::sharded<ep::f32<Rows, 1024>, data, ep::none>;
  using computed = ep::program<mesh, computed_row, table, ep::i32<>>;
  using looked_up = ep::program<mesh, looked_up_row, table, ep::i64<>>;
  using last = ep::program<mesh, last_row, table>;
  using stack = ep::sharded<ep::f32<Rows, 8, 8>, data, ep::none, ep::none>;
  using apart = ep::program<mesh, layers_apart, stack, ep::f32<4, 8>>;
  using with_gain =
      ep::program<mesh, layers_with_gain, stack, ep::sharded<ep::f32<Rows, 8>, data, ep::none>, ep::f32<4, 8>>;
};
// The owner of n bytes sends each byte at least once, and this is enough: the others pass pieces on. Here n is 4,096.
template <class Program> constexpr bool sends_rows(int times, std::int64_t bytes) {
  return moves<Program, ep::exchange>(times, bytes) && Program::collectives() == times;
}
static_assert(sends_rows<rows_on<4, 8>::computed>(1, 4096) && sends_rows<rows_on<4, 10>::computed>(1, 4096));
static_assert(sends_rows<rows_on<4, 8>::looked_up>(1, 4096) && sends_rows<rows_on<4, 10>::looked_up>(1, 4096));
static_assert(sends_rows<rows_on<4, 8>::last>(1, 4096) && sends_rows<rows_on<4, 10>::last>(1, 4096));
// Each device lacks three quarters of a stack of 2,048 bytes, or half of it, and all send as much as they receive.
static_assert(sends_rows<rows_on<4, 8>::apart>(8, 1536) && sends_rows<rows_on<2, 8>::apart>(8, 1024));
// Forward and, as layers are computed again, in the gradient: 288 bytes of a layer and its gain.
static_assert(sends_rows<rows_on<4, 8>::with_gain>(16, 16 * 216));

/// A partial beside a whole term that is split: a sum over both, which meets another partial, makes a partial of
/// either.
template <class Rows, class Columns> struct difference_of_sums {
  constexpr auto operator()(const auto& v, const auto& x, const auto& y) const {
    const auto columns = ep::sum<0>(ep::shard<Rows, ep::none>(x));
    return ep::sum(ep::shard<Rows>(y)) + 0.25 * ep::sum(ep::shard<Columns>(v) - columns);
  }
};
template <int Rows, int Columns> struct sums_on {
  struct rows : ep::axis<"rows", Rows> {};
  struct columns : ep::axis<"columns", Columns> {};
  using mesh = ep::mesh<rows, columns>;
  template <class Split, template <int...> class T = ep::f64>
  using of = ep::program<mesh, difference_of_sums<rows, Split>, T<9>, T<7, 9>, T<5>>;
  using one_axis = of<rows>;
  using two_axes = of<columns>;
};
static_assert(sums_on<4, 1>::one_axis::collectives() == 1);

template <class Program> void agrees(int times = 1, double tolerance = 1e-11) {
  ep::world world(Program::mesh::value);
  const testing::comparison seen = testing::run_and_compare<Program>(world, times);
  CHECK(seen.finite);
  CHECK(seen.compared > 0);
  CHECK(seen.worst < tolerance);
}
template <class In> void loops_agree() {
  agrees<typename In::sums>(2, 1e-5);
  agrees<typename In::split>(1, 1e-5);
  agrees<typename In::fixed>(1, 1e-5);
  agrees<typename In::clipped>(1, 1e-5);
  agrees<typename In::counts>(1, 1e-5);
  agrees<typename In::loss>(1, 1e-5);
  agrees<typename In::narrow>(1, 1e-2);
}

}  // namespace

TEST_CASE("steps whose all_reduces are merged compute what one device does", "[execute]") {
  agrees<on<4, 1>::logistic>(2);
  agrees<apart::both>(2);
  agrees<apart::layers>(2);
  agrees<on<4, 2>::layers>(2);
  agrees<apart::kmeans>();
  agrees<on<4, 1>::kmeans>();
  agrees<apart::rows>();
  agrees<on<2, 4>::rows>();
}

TEST_CASE("batch norm by hand is what one device computes", "[execute]") {
  agrees<apart::batch_norm<true>>();
  agrees<on<4, 1>::batch_norm<true>>();
  agrees<on<8, 1>::batch_norm<false>>();
}

TEST_CASE("gradients of weights that a loop's body slices are reduced behind it", "[execute]") {
#if ESPALIER_TEST_ALL_MESHES
  agrees<on<1, 1>::recurrent<4, 5>>();
  agrees<on<2, 1>::recurrent<4, 5>>();
#endif
  agrees<on<4, 1>::recurrent<4, 5>>();
}

TEST_CASE("partials that meet whole terms are reduced once", "[execute]") {
#if ESPALIER_TEST_ALL_MESHES
  agrees<on<1, 1>::attention>(1, 1e-5);
  agrees<on<1, 2>::attention>(1, 1e-5);
#endif
  agrees<apart::attention>(1, 1e-5);
  agrees<on<2, 4>::attention>(1, 1e-5);
}

TEST_CASE("a sum over a partial and a split whole term is a sum over the devices", "[execute]") {
  agrees<sums_on<2, 1>::one_axis>();
  agrees<sums_on<4, 1>::one_axis>();
  agrees<sums_on<8, 1>::one_axis>();
  agrees<sums_on<2, 2>::one_axis>();
  agrees<sums_on<2, 2>::two_axes>();
  agrees<sums_on<2, 4>::two_axes>();
  agrees<sums_on<2, 2>::of<sums_on<2, 2>::rows, ep::bf16>>(1, 5e-2);
  agrees<sums_on<2, 2>::of<sums_on<2, 2>::columns, ep::f16>>(1, 5e-3);
}

TEST_CASE("gradients of products in sixteen bits are reduced behind the loop", "[execute]") {
#if ESPALIER_TEST_ALL_MESHES
  agrees<on<1, 1>::mixed<ep::dtype::bf16>>(1, 2e-2);
  agrees<on<2, 1>::mixed<ep::dtype::bf16>>(1, 2e-2);
#endif
  agrees<apart::mixed<ep::dtype::bf16>>(1, 2e-2);
  agrees<on<4, 2>::mixed<ep::dtype::bf16>>(1, 2e-2);
  agrees<apart::mixed<ep::dtype::f32>>(1, 1e-5);
}

TEST_CASE("a norm leaves a gradient to be scattered to the shards of the optimizer", "[execute]") {
#if ESPALIER_TEST_ALL_MESHES
  agrees<on<1, 1>::split_training<norm_of::clipped>>(2, 1e-5);
  agrees<on<2, 1>::split_training<norm_of::clipped>>(2, 1e-5);
  agrees<on<8, 1>::split_training<norm_of::clipped>>(2, 1e-5);
#endif
  agrees<on<4, 1>::split_training<norm_of::clipped>>(2, 1e-5);
  agrees<on<4, 1>::split_training<norm_of::gradient>>(2, 1e-5);
}

TEST_CASE("rows that one device has are the same on all", "[execute]") {
  const auto agree = []<class On>(On) {
    agrees<typename On::computed>(1, 1e-7);
    agrees<typename On::looked_up>(1, 1e-6);
    agrees<typename On::last>(1, 1e-7);
    agrees<typename On::apart>(2, 1e-5);
    agrees<typename On::with_gain>(1, 1e-5);
  };
#if ESPALIER_TEST_ALL_MESHES
  agree(rows_on<1, 10>{});
  agree(rows_on<2, 8>{});
  agree(rows_on<8, 10>{});
#endif
  agree(rows_on<4, 8>{});
  agree(rows_on<4, 10>{});
}

TEST_CASE("sums that a loop adds up are those of one device", "[execute]") {
#if ESPALIER_TEST_ALL_MESHES
  loops_agree<in_loops<1, 10>>();
  loops_agree<in_loops<2, 16>>();
  loops_agree<uneven>();
  loops_agree<in_loops<8, 10>>();
#endif
  loops_agree<four>();
  agrees<uneven::sums>(2, 1e-5);
  agrees<uneven::counts>(1, 1e-5);
}
